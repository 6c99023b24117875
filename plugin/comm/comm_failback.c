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
 * A second thread answers the HELLO of a peer that connects again while nobody calls this end. The
 * answer has the number of messages received, which completes the sends of a peer whose last
 * acknowledgement was lost. It keeps the control connections of all comms, too (link_keep.h), and shows how
 * far they have come (comm_live.c), and closes what comes in at the sockets that prove that this process exists
 * (presence.h). No call of an adapter is made on that thread, so a sick one of another
 * comm delays no answer.
 *
 * It does that for a second after the end of a comm that was closed during a failover, too, so that
 * the peer, which may connect again, learns that this end has everything.
 *
 * The two threads serve all comms. They run while there is a comm with failover, the second while one has a
 * row of the statistics, too. An attempt belongs to the first, so a comm can be closed while its attempt blocks:
 * the comm marks the attempt as cancelled, and the thread frees it.
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
#include "connect/presence.h"
#include "connect/retry.h"

/* Failed attempts that are logged, before those that come once a minute. */
enum { ATTEMPTS_LOGGED = 4 };
/* An attempt that takes longer is given up: the peer may have no thread for it. */
#define ATTEMPT_NS (30 * PVN_NS_PER_S)
/* Lanes that are lost again sooner flap: the next attempt waits longer. */
#define STABLE_NS (60 * PVN_NS_PER_S)
/* A thread's pause while a connection is being made, while one may come in, and while all comms have
 * their best lanes. */
#define BUSY_NS  (PVN_NS_PER_MS)
#define IDLE_NS  (50 * PVN_NS_PER_MS)
#define WATCH_NS (200 * PVN_NS_PER_MS)
/* For how long the peer of a comm that was closed in a failover is answered. */
#define LINGER_NS PVN_NS_PER_S
/* For how long the end of the process waits for attempts that are given up. */
#define FINISH_NS (LINGER_NS + PVN_NS_PER_S / 2)

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
    bool cancelled;      /* the comm has no pointer to it any more */
    atomic_bool ready;   /* conn is up, for the comm to take */
    uint64_t lingers_ns; /* the comm has been closed, and its peer is answered until then; else 0 */
    atomic_bool replaced; /* acceptor: the peer makes a connection in place of the one in use */
    bool in_answer;       /* the answering thread looks for its connections just now */
    bool tried;           /* conn is the trying thread's, which may be in a step of it */

    /* The trying thread's while `tried`, except a conn that is ready; else under the lock: */
    struct pvn_conn *conn;
    bool member; /* conn is one of the listener's */
    uint64_t began_ns, next_ns, wait_ns;
    unsigned attempts;
};

/* One of the two threads. */
struct worker {
    const char *name;
    void *(*run)(void *);
    pthread_t thread;
    bool running;
    bool ended; /* it has run, and is to be joined */
};

static void *run_trying(void *arg);
static void *run_answering(void *arg);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* it counts monotonic time, as no static initializer does */
static bool has_changed;       /* it is initialized */
static struct comm_failback *all;
enum { ANSWERS, TRIES, WORKERS };
static struct worker workers[WORKERS] = {[ANSWERS] = {.name = "pvn-answer", .run = run_answering},
                                         [TRIES] = {.name = "pvn-failback", .run = run_trying}};
static void *library; /* keeps the code of the thread mapped */

/* ---- the two threads ---- */

static void drop_conn(struct comm_failback *f, const char *why)
{
    if (f->member)
        pvn_listener_leave(f->listener, f->conn);
    f->member = false;
    pvn_conn_close(f->conn, why);
    f->conn = NULL;
    f->began_ns = 0;
}

static void attempt_failed(struct comm_failback *f, const char *why)
{
    if (f->sender &&
        (f->attempts++ < ATTEMPTS_LOGGED || f->wait_ns == pvn_retry_longest_ns(PVN_RETRY_RETURN)))
        pvn_info(PVN_NET,
                 "failback: %s to %s: no better lanes yet: %s; the next attempt is in %.0f s",
                 f->conn->where, f->conn->who, why, (double)f->wait_ns / PVN_NS_PER_S);
    drop_conn(f, why);
    f->next_ns = pvn_now_ns() + f->wait_ns;
    f->wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, f->wait_ns);
}

/* Without the lock, by the thread that tries. */
static bool begin_attempt(struct comm_failback *f)
{
    if (f->sender && pvn_now_ns() >= f->next_ns)
        f->conn = pvn_conn_new(&f->cfg);
    if (!f->conn)
        return false;
    f->conn->cfg.no_fallback = f->no_fallback;
    f->began_ns = pvn_now_ns();
    return true;
}

static bool takes_too_long(const struct comm_failback *f)
{
    return pvn_now_ns() - f->began_ns >
           (f->conn->state == PVN_CONN_DIAL ? pvn_retry_answer_ns(PVN_RETRY_RETURN) : ATTEMPT_NS);
}

/* Without the lock. True: the connection is up and better than what there is. */
static bool step(struct comm_failback *f)
{
    int rc;

    if (f->began_ns == 0 && !begin_attempt(f))
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

/* The caller holds the lock, which is released for the end of one that is lost while it waits for its comm. */
static void look_at_ready(struct comm_failback *f)
{
    struct pvn_err err = PVN_ERR_INIT;

    if (pvn_conn_listen(f->conn, &err) == 0 && !f->conn->goodbye && !f->conn->ctrl.eof)
        return;
    atomic_store(&f->ready, false);
    f->tried = true;
    pthread_mutex_unlock(&lock);
    attempt_failed(f, err.n > 0 ? err.reason[0] : "the peer has given it up");
    pthread_mutex_lock(&lock);
    f->tried = false;
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

/* The caller holds the lock, which is released during the step. */
static void try_one(struct comm_failback *f)
{
    bool up;

    if (atomic_load(&f->ready)) {
        look_at_ready(f);
        return;
    }
    if (f->lingers_ns || (!f->sender && !f->conn))
        return;
    f->tried = true;
    pthread_mutex_unlock(&lock);
    up = step(f);
    if (up && f->member) {
        pvn_listener_leave(f->listener, f->conn);
        f->member = false;
    }
    pthread_mutex_lock(&lock);
    f->tried = false;
    atomic_store(&f->ready, up);
}

/* The caller holds the lock, which is released for the listener: that may be locked by a comm's thread in
 * a call of an adapter. */
static void answer_one(struct comm_failback *f)
{
    struct pvn_conn *conn = NULL;
    bool replaced = false, lingers = f->lingers_ns != 0, tries = f->tried || f->conn;

    if (f->sender)
        return;
    f->in_answer = true;
    pthread_mutex_unlock(&lock);
    if (lingers)
        pvn_listener_dismiss(f->listener, f->id);
    else
        replaced = pvn_listener_beside(f->listener, f->id, tries ? NULL : &conn);
    pthread_mutex_lock(&lock);
    f->in_answer = false;
    if (lingers) {
        f->cancelled = pvn_now_ns() >= f->lingers_ns;
        if (f->cancelled)
            comm_received_forget(f->id);
    } else {
        atomic_store(&f->replaced, replaced);
    }
    if (conn) {
        f->conn = conn;
        f->member = true;
    }
    if (conn || f->cancelled)
        pthread_cond_broadcast(&changed);
}

/* Removes a cancelled one from the list. */
static struct comm_failback *take_cancelled(void)
{
    for (struct comm_failback **at = &all; *at; at = &(*at)->next)
        if ((*at)->cancelled && !(*at)->in_answer) {
            struct comm_failback *f = *at;

            *at = f->next;
            return f;
        }
    return NULL;
}

/* The thread holds the lock and gives it up for good. */
static void *end_worker(struct worker *w)
{
    w->running = false;
    w->ended = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *run_trying(void *arg)
{
    struct comm_failback *f;
    bool busy, worse;

    pthread_mutex_lock(&lock);
    for (;;) {
        while ((f = take_cancelled())) {
            pthread_mutex_unlock(&lock);
            destroy(f);
            pthread_mutex_lock(&lock);
        }
        if (!all && !pvn_link_keep_any())
            return end_worker(arg);
        busy = worse = false;
        for (f = all; f; f = f->next) {
            if (!f->cancelled)
                try_one(f);
            busy |= f->conn && !atomic_load(&f->ready);
            worse |= f->worse || atomic_load(&f->ready);
        }
        pvn_cond_wait(&changed, &lock, busy ? BUSY_NS : worse ? IDLE_NS : WATCH_NS);
    }
}

static void *run_answering(void *arg)
{
    pthread_mutex_lock(&lock);
    while (all || pvn_link_keep_any() || comm_live_any() || pvn_presence_any()) {
        bool worse;

        pthread_mutex_unlock(&lock);
        comm_live_step();
        pvn_presence_answer();
        worse = pvn_link_keep_step();
        pthread_mutex_lock(&lock);
        for (struct comm_failback *f = all; f; f = f->next) {
            if (!f->cancelled)
                answer_one(f);
            worse |= f->worse || f->lingers_ns;
        }
        pvn_cond_wait(&changed, &lock, worse ? IDLE_NS : WATCH_NS);
    }
    return end_worker(arg);
}

/* The caller holds the lock. */
static void join_ended(void)
{
    for (int i = 0; i < WORKERS; i++) {
        if (workers[i].ended)
            pthread_join(workers[i].thread, NULL);
        workers[i].ended = false;
    }
}

static bool is_running(void)
{
    return workers[ANSWERS].running || workers[TRIES].running;
}

/* The caller holds the lock. lingering: or will be soon. */
static bool all_cancelled(bool lingering)
{
    for (const struct comm_failback *f = all; f; f = f->next)
        if (!f->cancelled && !(lingering && f->lingers_ns))
            return false;
    return true;
}

void comm_failback_finish(bool lingering, bool unmapping)
{
    uint64_t until = pvn_now_ns() + FINISH_NS;
    void *unused = NULL;

    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    while (is_running() && !pvn_link_keep_any() && !comm_live_any() && !pvn_presence_any() &&
           all_cancelled(lingering) && pvn_now_ns() < until)
        pvn_cond_wait(&changed, &lock, FINISH_NS / 8);
    join_ended();
    if (!is_running() && !unmapping) {
        unused = library;
        library = NULL;
    }
    pthread_mutex_unlock(&lock);
    /* The caller of the plugin still has the library open. */
    pvn_library_release(unused);
}

static void init_changed(void)
{
    pvn_cond_init(&changed);
    has_changed = true;
}

/* The first n of the two. The caller holds the lock. While a thread runs, it may be anywhere in the library,
 * which is not unmapped. */
static int start_threads(int n)
{
    int rc = 0;

    if (!has_changed)
        init_changed();
    if (!library)
        library = pvn_library_hold();
    join_ended();
    for (int i = 0; i < n && rc == 0; i++) {
        struct worker *w = &workers[i];

        if (!w->running)
            rc = pvn_thread_start(&w->thread, w->run, w, w->name);
        w->running |= rc == 0;
    }
    return rc;
}

void comm_failback_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    init_changed();
    all = NULL;
    for (int i = 0; i < WORKERS; i++)
        workers[i].running = workers[i].ended = false;
    library = NULL; /* it stays open, as in the parent */
    pvn_presence_after_fork();
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
    f->sender = c->link.sender;
    f->id = c->link.id;
    f->cfg = c->link.paths.home;
    f->cfg.beside = true;
    f->no_fallback = pvn_conn_worth_is_fast(c->link.paths.best) && !c->link.conn->cfg.away;
    f->worth = pvn_conn_worth(c->link.conn);
    f->worse = f->worth < c->link.paths.best;
    f->wait_ns = c->back.wait_ns;
    f->next_ns = pvn_now_ns() + f->wait_ns;
    if (f->next_ns < c->link.paths.memory.home_ns)
        f->next_ns = c->link.paths.memory.home_ns;
    if (!c->link.sender) {
        f->listener = c->link.keeper;
        pvn_listener_keep(f->listener);
    }
    return f;
}

void comm_failback_start(struct pvn_comm *c)
{
    struct comm_failback *f;
    int rc;

    bool worse = pvn_conn_worth(c->link.conn) < c->link.paths.best;

    /* An acceptor always has one, which answers the connector. */
    if (c->back.tries || !pvn_conn_failback(c->link.conn) || (c->link.sender && !worse))
        return;
    if (c->back.wait_ns == 0)
        c->back.wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, 0);
    if (worse && c->back.slower_ns == 0)
        c->back.slower_ns = pvn_now_ns();
    f = new_failback(c);
    if (!f)
        return;
    pthread_mutex_lock(&lock);
    rc = start_threads(WORKERS);
    if (rc == 0) {
        f->next = all;
        all = f;
        c->back.tries = f;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (rc)
        destroy(f);
}

void comm_failback_need(bool tries)
{
    pthread_mutex_lock(&lock);
    start_threads(tries ? WORKERS : ANSWERS + 1);
    pthread_mutex_unlock(&lock);
}

void comm_failback_stop(struct pvn_comm *c)
{
    if (!c->back.tries)
        return;
    pthread_mutex_lock(&lock);
    c->back.tries->cancelled = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    c->back.tries = NULL;
}

void comm_failback_linger(struct pvn_comm *c)
{
    if (!c->back.tries || c->link.sender ||
        !comm_received_keep(c->link.id, pvn_engine_received(c->engine)))
        return;
    pthread_mutex_lock(&lock);
    c->back.tries->lingers_ns = pvn_now_ns() + LINGER_NS;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    c->back.tries = NULL;
}

struct pvn_conn *comm_failback_take(struct pvn_comm *c)
{
    struct pvn_conn *conn = NULL;

    if (!c->back.tries || !atomic_load(&c->back.tries->ready))
        return NULL;
    pthread_mutex_lock(&lock);
    if (atomic_load(&c->back.tries->ready)) {
        conn = c->back.tries->conn;
        c->back.tries->conn = NULL;
        c->back.tries->began_ns = 0;
        /* No further attempt while this one is used. */
        c->back.tries->next_ns = UINT64_MAX;
        atomic_store(&c->back.tries->ready, false);
    }
    pthread_mutex_unlock(&lock);
    return conn;
}

bool comm_failback_is_ready(const struct pvn_comm *c)
{
    return atomic_load(&c->back.tries->ready);
}

bool comm_failback_is_replaced(const struct pvn_comm *c)
{
    return c->back.tries && atomic_load(&c->back.tries->replaced);
}

void comm_failback_lost(struct pvn_comm *c)
{
    uint64_t now = pvn_now_ns();

    comm_failback_stop(c);
    if (!c->link.sender)
        comm_failback_start(c);
    if (c->back.came_ns == 0)
        return;
    if (now - c->back.came_ns >= STABLE_NS) {
        c->back.wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, 0);
    } else {
        c->back.wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, c->back.wait_ns);
        if (!c->back.said_flaps)
            pvn_warn(
                "failback: %s %s %s: the lanes were lost again %.1f s after the return to them; "
                "the time to the next attempt doubles each time this happens, up to %.0f s",
                c->link.conn->where, c->link.sender ? "to" : "from", c->link.conn->who,
                (double)(now - c->back.came_ns) / PVN_NS_PER_S,
                (double)pvn_retry_longest_ns(PVN_RETRY_RETURN) / PVN_NS_PER_S);
        c->back.said_flaps = true;
    }
    c->back.came_ns = 0;
}
