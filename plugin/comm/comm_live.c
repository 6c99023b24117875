/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows other processes how far a comm has come, even if its last request is done and nobody calls
 * any more. The plugin's answering thread (comm_workers.c) copies the counters that the engine
 * keeps for itself into the comm's row of the statistics. So messages pay nothing for it.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/clock.h"

/* The thread runs more often while a failover goes on. */
#define COPY_NS (PVN_NS_PER_S / 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_comm *all; /* comms that have a row */
static uint64_t copied_ns;

void comm_live_step(void)
{
    uint64_t now = pvn_now_ns();

    pthread_mutex_lock(&lock);
    if (now - copied_ns >= COPY_NS) {
        copied_ns = now;
        for (struct pvn_comm *c = all; c; c = c->lists.of_live) {
            struct pvn_live live;

            pvn_engine_count(c->engine, &live);
            pvn_live_put(c->stats.live, &live);
        }
    }
    pthread_mutex_unlock(&lock);
}

bool comm_live_any(void)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = all != NULL;
    pthread_mutex_unlock(&lock);
    return any;
}

void comm_live_join(struct pvn_comm *c)
{
    c->stats.live = pvn_stat_live(c->link.conn->stat);
    if (!c->stats.live)
        return;
    pthread_mutex_lock(&lock);
    c->lists.of_live = all;
    all = c;
    pthread_mutex_unlock(&lock);
}

void comm_live_leave(struct pvn_comm *c)
{
    if (!c->stats.live)
        return;
    pthread_mutex_lock(&lock);
    for (struct pvn_comm **at = &all; *at; at = &(*at)->lists.of_live)
        if (*at == c) {
            *at = c->lists.of_live;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void comm_live_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    all = NULL;
}
