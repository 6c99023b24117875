/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What the calls of a comm do now and then beside their own work: they watch the comm, or take the
 * steps of its failover, and do the same for the idle comms of their thread.
 *
 * Why the idle ones: the peer may wait for an end whose requests are all done, and which nobody calls.
 * The last acknowledgement may be what was lost.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/clock.h"

/* Every comm that is driven, and when a thread last took the steps of its idle ones. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_comm *all;
static __thread uint64_t driven_ns;

#define DRIVE_NS PVN_NS_PER_MS

void comm_attend_join(struct pvn_comm *c)
{
    pthread_mutex_lock(&all_lock);
    c->next_of_all = all;
    all = c;
    pthread_mutex_unlock(&all_lock);
}

void comm_attend_leave(struct pvn_comm *c)
{
    pthread_mutex_lock(&all_lock);
    for (struct pvn_comm **at = &all; *at; at = &(*at)->next_of_all)
        if (*at == c) {
            *at = c->next_of_all;
            break;
        }
    pthread_mutex_unlock(&all_lock);
}

void comm_attend_after_fork(void)
{
    pthread_mutex_init(&all_lock, NULL);
    all = NULL;
}

/* Of a comm of another thread nothing but the name of that thread may be read. */
static bool is_idle_here(const struct pvn_comm *c)
{
    return atomic_load_explicit(&c->thread, memory_order_relaxed) == &driven_ns && !c->failed &&
           (c->failover || pvn_engine_pending(c->engine) == 0);
}

/* Its lanes may have copies of messages that are done for the caller, and these may fail. */
static void drive_idle(struct pvn_comm *c)
{
    comm_look_at_peer(c);
    if (c->failover || c->failed)
        return;
    if (pvn_engine_progress(c->engine) != 0)
        comm_engine_failed(c);
    else if (pvn_engine_paused(c->engine))
        comm_failover_begin(c, pvn_engine_pause_reason(c->engine));
}

/* Takes the steps of the calling thread's idle comms. self: the one that was called. */
static void drive(struct pvn_comm *self, uint64_t now)
{
    atomic_store_explicit(&self->thread, &driven_ns, memory_order_relaxed);
    if (now - driven_ns < DRIVE_NS || pthread_mutex_trylock(&all_lock) != 0)
        return;
    driven_ns = now;
    for (struct pvn_comm *c = all; c; c = c->next_of_all) {
        if (c == self || !is_idle_here(c))
            continue;
        if (c->failover)
            comm_failover_step(c);
        else
            drive_idle(c);
    }
    pthread_mutex_unlock(&all_lock);
}

void comm_attend(struct pvn_comm *c)
{
    uint64_t now = pvn_poller_poll(PVN_POLLER_IDLE_NS);

    if (c->driven)
        drive(c, now);
    if (c->failover) {
        c->attend_in = 0;
        comm_failover_step(c);
        return;
    }
    c->attend_in = ATTEND_EVERY - 1;
    comm_watch(c, now);
}
