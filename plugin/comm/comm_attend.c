/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What the calls of a comm do now and then beside their own work: they watch the comm, or take the
 * steps of its failover, and do the same for the idle comms of their thread.
 *
 * Why the idle ones: the peer may wait for an end whose requests are all done, and which nobody calls.
 * The last acknowledgement may be what was lost, or what its device never ends.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/clock.h"

/* Every comm that is driven, and when a thread last took the steps of its idle ones. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_comm *all;
static __thread uint64_t driven_ns;
/* The same ones for comm_attend_received(), which is called with the other lock held or not. */
static pthread_mutex_t ids_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_comm *ids;

#define DRIVE_NS PVN_NS_PER_MS
/* For how long a comm takes no new sends to switch to better lanes, and the pause after that. */
#define DRAIN_NS       (100 * PVN_NS_PER_MS)
#define DRAIN_PAUSE_NS PVN_NS_PER_S

void comm_attend_join(struct pvn_comm *c)
{
    pthread_mutex_lock(&all_lock);
    c->next_of_all = all;
    all = c;
    pthread_mutex_unlock(&all_lock);
    pthread_mutex_lock(&ids_lock);
    c->next_of_ids = ids;
    ids = c;
    pthread_mutex_unlock(&ids_lock);
}

uint64_t comm_attend_received(uint64_t id)
{
    uint64_t n = 0;

    pthread_mutex_lock(&ids_lock);
    for (const struct pvn_comm *c = ids; c; c = c->next_of_ids)
        if (c->id == id && !c->sender)
            n = pvn_engine_received(c->engine);
    pthread_mutex_unlock(&ids_lock);
    return n;
}

void comm_attend_leave(struct pvn_comm *c)
{
    pthread_mutex_lock(&ids_lock);
    for (struct pvn_comm **at = &ids; *at; at = &(*at)->next_of_ids)
        if (*at == c) {
            *at = c->next_of_ids;
            break;
        }
    pthread_mutex_unlock(&ids_lock);
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
    pthread_mutex_init(&ids_lock, NULL);
    ids = NULL;
    comm_failback_after_fork();
}

/* Of a comm of another thread nothing but the name of that thread may be read. */
static bool is_idle_here(const struct pvn_comm *c)
{
    return comm_thread_is_here(c) && !c->failed &&
           (c->failover || pvn_engine_pending(c->engine) == 0);
}

static void end_drain(struct pvn_comm *c)
{
    if (c->drains)
        comm_allow_fast_path(c);
    c->drains = false;
}

/* A better connection is there: once the open sends have ended the comm switches to it. Their
 * receives may depend on messages that are still to be sent, so sends are held for a while only. */
static void look_for_better(struct pvn_comm *c, uint64_t now)
{
    struct pvn_conn *conn;

    if (!c->failback || !c->sender || c->failover || c->failed)
        return;
    if (!comm_failback_is_ready(c)) { /* or not any more */
        end_drain(c);
        return;
    }
    if (pvn_engine_pending(c->engine) > 0) {
        if (!c->drains && now >= c->drain_ns) {
            c->drains = true;
            c->sends = NO_EPOCH;
            c->drain_ns = now + DRAIN_NS;
        } else if (c->drains && now >= c->drain_ns) {
            end_drain(c);
            c->drain_ns = now + DRAIN_PAUSE_NS;
        }
        if (c->drains)
            c->attend_in = 0;
        return;
    }
    conn = comm_failback_take(c);
    if (conn)
        comm_failover_switch(c, conn);
}

/* Its lanes may have copies of messages that are done for the caller, and these may fail. */
static void drive_idle(struct pvn_comm *c, uint64_t now)
{
    comm_look_at_peer(c);
    look_for_better(c, now);
    if (c->failover || c->failed)
        return;
    if (now >= c->look_ns)
        comm_look_for_stalls(c, now);
    if (pvn_engine_progress(c->engine) != 0)
        comm_engine_failed(c);
    else if (pvn_engine_paused(c->engine))
        comm_failover_begin(c, pvn_engine_pause_reason(c->engine));
}

static void step_failover(struct pvn_comm *c)
{
    comm_failover_step(c);
    /* The new connection's first frame may have come with the last one of the exchange. */
    if (!c->failover && !c->failed)
        comm_listen_to_peer(c);
}

/* Takes the steps of the calling thread's idle comms. self: the one that was called. */
static void drive(struct pvn_comm *self, uint64_t now)
{
    if (now - driven_ns < DRIVE_NS || pthread_mutex_trylock(&all_lock) != 0)
        return;
    driven_ns = now;
    for (struct pvn_comm *c = all; c; c = c->next_of_all) {
        if (c == self || !is_idle_here(c))
            continue;
        if (c->failover)
            step_failover(c);
        else
            drive_idle(c, now);
    }
    pthread_mutex_unlock(&all_lock);
}

void comm_attend(struct pvn_comm *c)
{
    uint64_t now = pvn_poller_poll(PVN_POLLER_IDLE_NS);

    comm_thread_note(c);
    if (c->driven)
        drive(c, now);
    if (c->failover) {
        c->attend_in = 0;
        step_failover(c);
        return;
    }
    c->attend_in = ATTEND_EVERY - 1;
    if (c->failed)
        return;
    look_for_better(c, now);
    if (!c->failover)
        comm_watch(c, now);
}
