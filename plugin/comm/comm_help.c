/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/comm_help.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/poller.h"
#include "base/thread.h"
#include "comm/comm_priv.h"

/* The first and the longest pause between two looks at a comm that nobody calls. It doubles each
 * time. */
#define FIRST_NS   (PVN_NS_PER_S / 5)
#define LONGEST_NS PVN_NS_PER_S
/* Pauses between two steps of a failover: at its begin, and the longest later. */
#define SOON_NS     (2 * PVN_NS_PER_MS)
#define SOON_MAX_NS (50 * PVN_NS_PER_MS)
/* How long a close waits for messages that are kept: on a path that works, and in a failover. */
#define CLOSE_NS          PVN_NS_PER_S
#define CLOSE_FAILOVER_NS (3 * PVN_NS_PER_S)
/* An abort closes many comms, all of which would wait for the same peer. So a close within CLOSES_NS of one that gave
 * up waits for CLOSE_AGAIN_NS: enough for the acknowledgement of a machine that is there. */
#define CLOSES_NS      (10 * PVN_NS_PER_S)
#define CLOSE_AGAIN_NS (PVN_NS_PER_S / 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* uses the monotonic clock */
static bool has_changed;       /* `changed` is initialized */
static struct comm_help *all;
/* Comms that have help, in the list or not yet; the thread runs while there are some. */
static int users;
/* Number of the newest thread; an older one ends when it sees another number. */
static uintptr_t number;
static pthread_t thread;
static _Atomic uint64_t gave_up_ns; /* when a close last gave up */

/* ---- the thread ---- */

/* True in a failover, or if all requests are done, but messages have not been acknowledged yet. */
static bool needs_help(const struct pvn_comm *c)
{
    return !c->end.failed && (c->link.failover || (pvn_engine_kept(c->engine) > 0 &&
                                                   pvn_engine_pending(c->engine) == 0));
}

/* Takes the steps of one look. There are several, because a lane may hold a message back for others
 * in the first ones. Time limits do not run, because nobody calls. */
static void move_on(struct pvn_comm *c, uint64_t now)
{
    enum { STEPS = 4 };

    if (c->link.failover)
        comm_failover_uncalled(c, now);
    for (int i = 0; i < STEPS && needs_help(c); i++)
        comm_attend_beside(c, now);
}

/* The pause until the next look. A failover is stepped often at its begin, when its peer is likely
 * to be there. */
static uint64_t next_pause(const struct comm_help *h, bool hurries)
{
    uint64_t next = hurries && h->hurries ? h->wait_ns + h->wait_ns / 8
                    : hurries             ? SOON_NS
                    : h->hurries          ? FIRST_NS
                                          : 2 * h->wait_ns;
    uint64_t most = hurries ? SOON_MAX_NS : LONGEST_NS;

    return next < most ? next : most;
}

/* Takes the comm and its steps if nobody has called it since the last look. */
static void look(struct comm_help *h, uint64_t now)
{
    enum comm_user user = COMM_CALLED;
    bool hurries;

    if (atomic_compare_exchange_strong(&h->user, &user, COMM_FREE)) {
        h->hurries = false;
        h->wait_ns = FIRST_NS;
        h->look_ns = now + FIRST_NS;
        return;
    }
    user = COMM_FREE;
    if (now < h->look_ns || !atomic_compare_exchange_strong(&h->user, &user, COMM_HELPER))
        return;
    hurries = h->comm->link.failover;
    if (needs_help(h->comm))
        move_on(h->comm, now);
    hurries = (hurries || h->comm->link.failover) && !h->comm->end.failed;
    atomic_store(&h->user, COMM_FREE);
    h->wait_ns = next_pause(h, hurries);
    h->look_ns = now + h->wait_ns;
    h->hurries = hurries;
}

/* The thread. arg: its number. Steps are taken with the lock held, because none of them blocks. */
static void *help_all(void *arg)
{
    pthread_mutex_lock(&lock);
    while (users > 0 && number == (uintptr_t)arg) {
        uint64_t now = pvn_poller_poll(PVN_POLLER_IDLE_NS);
        uint64_t until = now + FIRST_NS;

        for (struct comm_help *h = all; h; h = h->next) {
            look(h, now);
            until = h->hurries && h->look_ns < until ? h->look_ns : until;
        }
        pvn_cond_wait(&changed, &lock, until > now ? until - now : 0);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void init_changed(void)
{
    pvn_cond_init(&changed);
    has_changed = true;
}

/* Starts the thread. The caller holds the lock. An earlier thread may not have ended yet. */
static bool start(void)
{
    int rc;

    if (!has_changed)
        init_changed();
    number++;
    rc = pvn_thread_start(&thread, help_all, (void *)number, "pvn-help");
    if (rc)
        pvn_thread_not_started("pvn-help", rc,
                               "small sends wait for the peer's acknowledgement, which is slower");
    return rc == 0;
}

void comm_help_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    for (struct comm_help *h = all; h; h = h->next)
        atomic_store(&h->user, COMM_CALLED);
    all = NULL;
    users = 0;
    has_changed = false;
}

/* ---- the comm's thread ---- */

bool comm_help_new(struct pvn_comm *c)
{
    struct comm_help *h = calloc(1, sizeof(*h));
    bool runs;

    if (!h)
        return false;
    h->comm = c;
    h->wait_ns = FIRST_NS;
    pthread_mutex_lock(&lock);
    runs = users > 0 || start();
    users += runs;
    pthread_mutex_unlock(&lock);
    if (runs)
        c->help = h;
    else
        free(h);
    return runs;
}

void comm_help_join(struct pvn_comm *c)
{
    pthread_mutex_lock(&lock);
    c->help->next = all;
    all = c->help;
    pthread_mutex_unlock(&lock);
}

/* ---- close ---- */

/* True if there is nothing to wait for: the peer's machine has all bytes, or the comm has ended. */
static bool has_arrived(const struct pvn_comm *c)
{
    if (c->end.failed || pvn_engine_kept(c->engine) == 0)
        return true;
    if (c->link.failover || pvn_engine_paused(c->engine))
        return false;
    for (int i = 0; i < c->link.conn->nlanes; i++)
        if (c->link.conn->lane[i]->ops->left(c->link.conn->lane[i]) > 0)
            return false;
    return true;
}

/* The longest wait of a close that began at this time. */
static uint64_t limit_ns(const struct pvn_comm *c, uint64_t began)
{
    uint64_t gave_up = atomic_load(&gave_up_ns);

    if (gave_up && began - gave_up < CLOSES_NS)
        return CLOSE_AGAIN_NS;
    return c->link.failover ? CLOSE_FAILOVER_NS : CLOSE_NS;
}

static void say_late(const struct pvn_comm *c, uint64_t waited)
{
    int kept = pvn_engine_kept(c->engine);

    pvn_warn(
        "%s to %s: closed while %d small message%s that had been sent may not have reached the peer: %s within %.2g s; likely: "
        "the path was lost at the end of the job, or the peer has ended; try: the peer's log says whether it waits "
        "for them",
        c->link.conn->where, c->link.conn->who, kept, kept == 1 ? "" : "s",
        c->link.failover ? "no new connection was made"
                         : "the peer's machine has not acknowledged them",
        (double)waited / PVN_NS_PER_S);
}

static void deliver(struct pvn_comm *c)
{
    const struct timespec pause = {.tv_nsec = (long)PVN_NS_PER_MS};
    uint64_t began = pvn_now_ns(), now = began;

    /* Open requests mean an abort: their buffers are gone already, so nothing more may be sent. */
    if (c->end.failed || pvn_engine_kept(c->engine) == 0 || pvn_engine_pending(c->engine) > 0)
        return;
    /* The peer may have reported that the lanes are lost. Messages that its machine has
     * acknowledged are lost with them then. */
    pvn_poller_poll_now();
    comm_attend_beside(c, now);
    while (!has_arrived(c) && now - began < limit_ns(c, began)) {
        nanosleep(&pause, NULL);
        now = pvn_poller_poll(PVN_POLLER_IDLE_NS);
        comm_attend_beside(c, now);
    }
    if (has_arrived(c))
        return;
    say_late(c, limit_ns(c, began));
    atomic_store(&gave_up_ns, now);
}

void comm_help_leave(struct pvn_comm *c)
{
    struct comm_help *h = c->help;
    pthread_t ended;
    bool last;

    if (!h)
        return;
    pthread_mutex_lock(&lock);
    for (struct comm_help **at = &all; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    last = --users == 0;
    ended = thread;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (last)
        pthread_join(ended, NULL);
    deliver(c);
    c->help = NULL;
    free(h);
}
