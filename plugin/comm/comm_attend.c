/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The work that calls of a comm do now and then beside their own: they watch the comm, or take the
 * steps of its failover, and do the same for the idle comms of their thread.
 *
 * Idle comms need it because the peer may wait for an end whose requests are all done, and which
 * nobody calls: the last acknowledgement may have been lost, or its device may never complete it.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/clock.h"
#include "connect/link_back.h"

/* Every comm that is driven, and when this thread last took the steps of its idle ones. A step
 * may block in a sick adapter, so it is taken without the lock; the comm stays in the list
 * meanwhile. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t step_ended = PTHREAD_COND_INITIALIZER;
static struct pvn_comm *all;
static __thread uint64_t driven_ns;
#define DRIVE_NS PVN_NS_PER_MS
/* A comm that is attended so late is attended after fewer calls. */
#define SLOW_NS (PVN_NS_PER_S / 4)

void comm_attend_join(struct pvn_comm *c)
{
    pthread_mutex_lock(&all_lock);
    c->lists.of_driven = all;
    all = c;
    pthread_mutex_unlock(&all_lock);
}

void comm_attend_stop(struct pvn_comm *c)
{
    pthread_mutex_lock(&all_lock);
    c->lists.leaves = true;
    while (c->lists.in_step)
        pthread_cond_wait(&step_ended, &all_lock);
    pthread_mutex_unlock(&all_lock);
}

void comm_attend_leave(struct pvn_comm *c)
{
    pthread_mutex_lock(&all_lock);
    for (struct pvn_comm **at = &all; *at; at = &(*at)->lists.of_driven)
        if (*at == c) {
            *at = c->lists.of_driven;
            break;
        }
    pthread_mutex_unlock(&all_lock);
}

void comm_attend_after_fork(void)
{
    pthread_mutex_init(&all_lock, NULL);
    pthread_cond_init(&step_ended, NULL);
    for (struct pvn_comm *c = all; c; c = c->lists.of_driven)
        c->lists.in_step = false;
    all = NULL;
}

uint64_t comm_received(uint64_t id)
{
    uint64_t n = 0;

    pthread_mutex_lock(&all_lock);
    for (const struct pvn_comm *c = all; c; c = c->lists.of_driven)
        if (c->link.id == id && !c->link.sender)
            n = pvn_engine_received(c->engine);
    pthread_mutex_unlock(&all_lock);
    return n ? n : pvn_link_back_received(id);
}

/* For comms of this thread only: of another thread's comm nothing but its `thread` may be read. */
static bool is_idle(const struct pvn_comm *c)
{
    return !c->end.failed && (c->link.failover || pvn_engine_pending(c->engine) == 0);
}

/* Looks for a better connection, to which the comm switches once the open sends have ended. */
static void look_for_better(struct pvn_comm *c, uint64_t now)
{
    struct pvn_conn *better;

    if (!c->link.back.tries)
        return;
    better = pvn_link_back_look(&c->link, pvn_engine_pending(c->engine) > 0, now);
    comm_set_calls(c);
    if (c->link.state == PVN_LINK_DRAINS)
        c->attend_in = 0;
    if (better)
        comm_failover_switch(c, better);
}

/* Takes a step of an idle comm. Its lanes may have copies of messages that are done for the caller,
 * and these may fail. */
static void drive_idle(struct pvn_comm *c, uint64_t now)
{
    comm_look_at_peer(c);
    look_for_better(c, now);
    if (c->link.failover || c->end.failed)
        return;
    if (now >= c->stall.look_ns) {
        comm_look_at_path(c);
        comm_look_for_stalls(c, now);
    }
    if (pvn_engine_progress(c->engine) != 0)
        comm_engine_failed(c);
    else if (pvn_engine_paused(c->engine))
        comm_failover_begin(c, pvn_engine_pause_reason(c->engine));
}

static void step_failover(struct pvn_comm *c)
{
    comm_failover_step(c);
    /* The new connection's first frame may have come with the last one of the exchange. */
    if (!c->link.failover && !c->end.failed)
        comm_listen_to_peer(c);
}

void comm_attend_beside(struct pvn_comm *c, uint64_t now)
{
    if (c->link.failover)
        step_failover(c);
    else
        drive_idle(c, now);
}

/* Takes the steps of the calling thread's idle comms. self: the comm that was called. */
static void drive(struct pvn_comm *self, uint64_t now)
{
    if (now - driven_ns < DRIVE_NS || pthread_mutex_trylock(&all_lock) != 0)
        return;
    driven_ns = now;
    for (struct pvn_comm *c = all; c; c = c->lists.of_driven) {
        if (c == self || c->lists.leaves || !comm_thread_is_here(c) ||
            (c->help && !comm_help_take(c->help)))
            continue;
        c->lists.in_step = true;
        pthread_mutex_unlock(&all_lock);
        if (is_idle(c))
            comm_attend_beside(c, now);
        if (c->help)
            comm_help_give(c->help);
        pthread_mutex_lock(&all_lock);
        c->lists.in_step = false;
        pthread_cond_broadcast(&step_ended);
    }
    pthread_mutex_unlock(&all_lock);
}

/* Sets after how many calls the comm is attended next. No time limit counts if that takes longer than a
 * second (comm_watch.c), as ATTEND_EVERY calls of a slow caller do. */
static void set_next(struct pvn_comm *c, uint64_t now)
{
    uint64_t took = c->attended_ns ? now - c->attended_ns : 0;

    if (took < SLOW_NS / 4 && c->attend_shift > 0)
        c->attend_shift--;
    for (; took > SLOW_NS && c->attend_shift < ATTEND_SHIFT_MAX; took /= 2)
        c->attend_shift++;
    c->attend_in = (ATTEND_EVERY >> c->attend_shift) - 1;
}

void comm_attend(struct pvn_comm *c)
{
    uint64_t now = pvn_poller_poll(PVN_POLLER_IDLE_NS);

    comm_thread_note(c);
    if (c->lists.driven)
        drive(c, now);
    if (c->link.failover) {
        c->attend_in = 0;
        step_failover(c);
        return;
    }
    set_next(c, now);
    if (c->end.failed)
        return;
    look_for_better(c, now);
    if (!c->link.failover)
        comm_watch(c, now);
}
