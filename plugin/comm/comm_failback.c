/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Failback: a comm that a failover has left with worse lanes returns to better ones.
 *
 * The connector makes a new connection beside the one in use. It shares nothing with earlier ones:
 * new queue pairs, a new scan of the GID tables, new packet sequence numbers, verified by a round
 * trip. A thread of the plugin makes it, at both ends, because calls into a sick adapter can block
 * for a minute; messages go over the old lanes meanwhile. After an attempt that fails or finds
 * nothing better the next one waits twice as long, from 1 s to 60 s, without a limit of attempts.
 *
 * When the connection is up, the sender accepts no new sends until the open ones have completed
 * (comm_attend.c) and sends SWITCH over the old connection. Both ends then take the steps of a
 * failover (comm_failover.c) with this connection as the next one. If it is lost meanwhile, these
 * steps make another one, as after any loss.
 *
 * The same thread answers the HELLO of a peer that connects again while nobody calls this end. The
 * answer has the number of messages received, which completes the sends of a peer whose last
 * acknowledgement was lost.
 *
 * One thread serves all comms. It runs while there is a receiving comm with failover, or a sending
 * one with worse lanes. An attempt belongs to the thread, so a comm can be closed while its attempt
 * blocks: the comm marks the attempt as cancelled, and the thread frees it.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/plugin.h"

#define WAIT_FIRST_NS PVN_NS_PER_S
#define WAIT_MAX_NS   (60 * PVN_NS_PER_S)
/* Failed attempts that are logged, before those that come once a minute. */
enum { ATTEMPTS_LOGGED = 4 };
/* An attempt that takes longer is given up: the peer may have no thread for it. */
#define ATTEMPT_NS (30 * PVN_NS_PER_S)
/* And one that gets no answer: the kernel would dial again less and less often. */
#define DIAL_NS (3 * PVN_NS_PER_S)
/* Lanes that are lost again sooner flap: the next attempt waits longer. */
#define STABLE_NS (60 * PVN_NS_PER_S)
/* The thread's pause while a connection is being made, while one may come in, and while all comms
 * have their best lanes. */
#define BUSY_NS  (PVN_NS_PER_MS)
#define IDLE_NS  (50 * PVN_NS_PER_MS)
#define WATCH_NS (200 * PVN_NS_PER_MS)
/* For how long the end of the process waits for attempts that are given up. */
#define FINISH_NS PVN_NS_PER_S

struct comm_failback {
    struct comm_failback *next;
    bool sender;
    uint64_t id;                   /* of the comm */
    struct pvn_conn_cfg cfg;       /* connector */
    struct pvn_listener *listener; /* acceptor */
    bool no_fallback;
    int worth;  /* pvn_conn_worth() of the lanes in use */
    bool worse; /* the comm has had better ones */

    /* Under the lock: */
    bool cancelled;       /* the comm has no pointer to it any more */
    atomic_bool ready;    /* conn is up, for the comm to take */
    atomic_bool replaced; /* acceptor: the peer makes a connection in place of the one in use */

    /* The thread's, except a conn that is ready: */
    struct pvn_conn *conn;
    bool member; /* conn is one of the listener's */
    uint64_t began_ns, next_ns, wait_ns;
    unsigned attempts;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct comm_failback *all;
static bool running;
static bool ended; /* it has run, and is to be joined */
static pthread_t thread;
static void *library; /* keeps the code of the thread mapped */

/* ---- the thread ---- */

static void drop_conn(struct comm_failback *f, const char *why)
{
    if (f->member)
        pvn_listener_leave(f->listener, f->conn);
    f->member = false;
    pvn_conn_close(f->conn, why);
    f->conn = NULL;
}

static void attempt_failed(struct comm_failback *f, const char *why)
{
    if (f->sender && (f->attempts++ < ATTEMPTS_LOGGED || f->wait_ns == WAIT_MAX_NS))
        pvn_info(PVN_NET,
                 "failback: %s to %s: no better lanes yet: %s; the next attempt is in %.0f s",
                 f->conn->where, f->conn->who, why, (double)f->wait_ns / PVN_NS_PER_S);
    drop_conn(f, why);
    f->next_ns = pvn_now_ns() + f->wait_ns;
    f->wait_ns = 2 * f->wait_ns < WAIT_MAX_NS ? 2 * f->wait_ns : WAIT_MAX_NS;
}

static void begin_attempt(struct comm_failback *f)
{
    if (f->sender && pvn_now_ns() < f->next_ns)
        return;
    if (f->sender)
        f->conn = pvn_conn_new(&f->cfg);
    else
        atomic_store(&f->replaced, pvn_listener_beside(f->listener, f->id, &f->conn));
    if (!f->conn)
        return;
    f->member = !f->sender;
    f->conn->cfg.no_fallback = f->no_fallback;
    f->began_ns = pvn_now_ns();
}

static bool takes_too_long(const struct comm_failback *f)
{
    return pvn_now_ns() - f->began_ns > (f->conn->state == PVN_CONN_DIAL ? DIAL_NS : ATTEMPT_NS);
}

/* Without the lock. True: the connection is up and better than what there is. */
static bool step(struct comm_failback *f)
{
    int rc;

    if (!f->conn)
        begin_attempt(f);
    if (!f->conn)
        return false;
    if (f->member)
        pvn_listener_take_in(f->listener);
    rc = pvn_conn_step(f->conn);
    if (rc == -EAGAIN && takes_too_long(f))
        attempt_failed(f, "the connection could not be made in time");
    else if (rc && rc != -EAGAIN)
        attempt_failed(f, f->conn->err.reason[0]);
    else if (rc == 0 && pvn_conn_worth(f->conn) <= f->worth)
        attempt_failed(f, "there are no better lanes yet");
    else if (rc == 0)
        return true;
    return false;
}

/* With the lock. A connection that waits for its comm can be lost. */
static void look_at_ready(struct comm_failback *f)
{
    struct pvn_err err = PVN_ERR_INIT;

    if (pvn_conn_listen(f->conn, &err) == 0 && !f->conn->goodbye && !f->conn->ctrl.eof)
        return;
    atomic_store(&f->ready, false);
    attempt_failed(f, err.n > 0 ? err.reason[0] : "the peer has given it up");
}

static void destroy(struct comm_failback *f)
{
    if (f->conn)
        drop_conn(f, "the comm was closed, or was connected by a failover");
    if (f->listener)
        pvn_listener_let_go(f->listener);
    free(f);
    pvn_plugin_release();
}

/* With the lock, which is released during the step. */
static void step_one(struct comm_failback *f)
{
    bool up;

    if (atomic_load(&f->ready)) {
        look_at_ready(f);
        return;
    }
    pthread_mutex_unlock(&lock);
    up = step(f);
    if (up && f->member) {
        pvn_listener_leave(f->listener, f->conn);
        f->member = false;
    }
    pthread_mutex_lock(&lock);
    atomic_store(&f->ready, up);
}

static void pause_for(uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&changed, &lock, &until);
}

/* Removes a cancelled one from the list. */
static struct comm_failback *take_cancelled(void)
{
    for (struct comm_failback **at = &all; *at; at = &(*at)->next)
        if ((*at)->cancelled) {
            struct comm_failback *f = *at;

            *at = f->next;
            return f;
        }
    return NULL;
}

static void *run(void *arg)
{
    struct comm_failback *f;
    bool busy, worse;

    (void)arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while ((f = take_cancelled())) {
            pthread_mutex_unlock(&lock);
            destroy(f);
            pthread_mutex_lock(&lock);
        }
        if (!all)
            break;
        busy = worse = false;
        for (f = all; f; f = f->next) {
            if (!f->cancelled)
                step_one(f);
            busy |= f->conn && !atomic_load(&f->ready);
            worse |= f->worse;
        }
        pause_for(busy ? BUSY_NS : worse ? IDLE_NS : WATCH_NS);
    }
    running = false;
    ended = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* With the lock, which the thread has given up for good. */
static void join_ended(void)
{
    if (ended)
        pthread_join(thread, NULL);
    ended = false;
}

/* With the lock. */
static bool all_cancelled(void)
{
    for (const struct comm_failback *f = all; f; f = f->next)
        if (!f->cancelled)
            return false;
    return true;
}

void comm_failback_finish(bool unmapping)
{
    uint64_t until = pvn_now_ns() + FINISH_NS;
    void *unused = NULL;

    pthread_mutex_lock(&lock);
    while (running && all_cancelled() && pvn_now_ns() < until)
        pause_for(FINISH_NS / 8);
    join_ended();
    if (!running && !unmapping) {
        unused = library;
        library = NULL;
    }
    pthread_mutex_unlock(&lock);
    /* The caller of the plugin still has the library open. */
    pvn_library_release(unused);
}

/* With the lock. While the thread runs, it may be anywhere in the library, which is not unmapped. */
static int start_thread(void)
{
    int rc;

    if (running)
        return 0;
    join_ended();
    if (!library)
        library = pvn_library_hold();
    rc = pvn_thread_start(&thread, run, NULL, "pvn-failback");
    running = rc == 0;
    return rc;
}

void comm_failback_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
    all = NULL;
    running = ended = false;
    library = NULL; /* it stays open, as in the parent */
}

/* ---- the comm's thread ---- */

static struct comm_failback *new_failback(struct pvn_comm *c)
{
    struct comm_failback *f = calloc(1, sizeof(*f));
    struct pvn_err err = PVN_ERR_INIT;

    if (!f || pvn_plugin_hold(&err) != 0) {
        free(f);
        return NULL;
    }
    f->sender = c->sender;
    f->id = c->id;
    f->cfg = c->home;
    f->cfg.resumes = c->id;
    f->cfg.beside = true;
    f->no_fallback = pvn_conn_worth_is_fast(c->best) && !c->conn->cfg.away;
    f->worth = pvn_conn_worth(c->conn);
    f->worse = f->worth < c->best;
    f->wait_ns = c->failback_wait_ns;
    f->next_ns = pvn_now_ns() + f->wait_ns;
    if (!c->sender) {
        f->listener = c->keeper;
        pvn_listener_keep(f->listener);
    }
    return f;
}

void comm_failback_start(struct pvn_comm *c)
{
    struct comm_failback *f;
    int rc;

    bool worse = pvn_conn_worth(c->conn) < c->best;

    /* An acceptor always has one, which answers the connector. */
    if (c->failback || !pvn_conn_failback(c->conn) || (c->sender && !worse))
        return;
    if (c->failback_wait_ns == 0)
        c->failback_wait_ns = WAIT_FIRST_NS;
    if (worse && c->slower_ns == 0)
        c->slower_ns = pvn_now_ns();
    f = new_failback(c);
    if (!f)
        return;
    pthread_mutex_lock(&lock);
    rc = start_thread();
    if (rc == 0) {
        f->next = all;
        all = f;
        c->failback = f;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (rc)
        destroy(f);
}

void comm_failback_stop(struct pvn_comm *c)
{
    if (!c->failback)
        return;
    pthread_mutex_lock(&lock);
    c->failback->cancelled = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    c->failback = NULL;
    c->drains = false;
}

struct pvn_conn *comm_failback_take(struct pvn_comm *c)
{
    struct pvn_conn *conn = NULL;

    if (!c->failback || !atomic_load(&c->failback->ready))
        return NULL;
    pthread_mutex_lock(&lock);
    if (atomic_load(&c->failback->ready)) {
        conn = c->failback->conn;
        c->failback->conn = NULL;
        /* No further attempt while this one is used. */
        c->failback->next_ns = UINT64_MAX;
        atomic_store(&c->failback->ready, false);
    }
    pthread_mutex_unlock(&lock);
    return conn;
}

bool comm_failback_is_ready(const struct pvn_comm *c)
{
    return atomic_load(&c->failback->ready);
}

bool comm_failback_is_replaced(const struct pvn_comm *c)
{
    return c->failback && atomic_load(&c->failback->replaced);
}

void comm_failback_lost(struct pvn_comm *c)
{
    uint64_t now = pvn_now_ns();

    comm_failback_stop(c);
    if (!c->sender)
        comm_failback_start(c);
    if (c->came_back_ns == 0)
        return;
    if (now - c->came_back_ns >= STABLE_NS) {
        c->failback_wait_ns = WAIT_FIRST_NS;
    } else {
        c->failback_wait_ns *= 2;
        if (c->failback_wait_ns > WAIT_MAX_NS)
            c->failback_wait_ns = WAIT_MAX_NS;
        if (!c->said_flaps)
            pvn_warn(
                "failback: %s %s %s: the lanes were lost again %.1f s after the return to them; "
                "the time to the next attempt doubles each time this happens, up to %.0f s",
                c->conn->where, c->sender ? "to" : "from", c->conn->who,
                (double)(now - c->came_back_ns) / PVN_NS_PER_S, (double)WAIT_MAX_NS / PVN_NS_PER_S);
        c->said_flaps = true;
    }
    c->came_back_ns = 0;
}
