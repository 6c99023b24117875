/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/link_back.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"
#include "base/thread.h"
#include "connect/handshake.h"
#include "connect/listener.h"
#include "connect/retry.h"

/* The first failed attempts are logged; of the later ones, which come once a minute in the end, one an hour. */
enum { ATTEMPTS_LOGGED = 4, ATTEMPTS_AN_HOUR = 60 };
/* An attempt that takes longer is given up, because the peer may have no thread for it. */
#define ATTEMPT_NS (30 * PVN_NS_PER_S)
/* Lanes that are lost again within this time flap: the pause before the next attempt doubles. */
#define STABLE_NS (60 * PVN_NS_PER_S)
/* Pauses of the trying thread: while a connection is being made; while one may come in; while all
 * links have their best lanes. */
#define BUSY_NS  (PVN_NS_PER_MS)
#define IDLE_NS  (50 * PVN_NS_PER_MS)
#define WATCH_NS (200 * PVN_NS_PER_MS)
/* An attempt that LINGERS does so for FAILOVER_TIMEOUT, for as long as the peer may dial, or for END_NS from when
 * the process has no more use for the plugin. */
#define END_NS PVN_NS_PER_S
/* If the open sends have not ended in DRAINS, the link is UP for this long before it drains
 * again. */
#define DRAIN_PAUSE_NS PVN_NS_PER_S

enum back_state { TRIES, READY, TAKEN, LINGERS, STOPPED };

struct pvn_link_tries {
    struct pvn_link_tries *next;
    bool sender;
    uint64_t id;                   /* of the comm */
    struct pvn_conn_cfg cfg;       /* connector */
    struct pvn_listener *listener; /* acceptor */
    bool no_fallback;
    int worth;  /* pvn_conn_worth() of the lanes in use */
    bool worse; /* the link has had better lanes */

    /* Protected by the lock; state and replaced are also read without it. */
    _Atomic enum back_state state;
    uint64_t lingers_ns;  /* LINGERS: until when */
    uint64_t received;    /* LINGERS: messages */
    atomic_bool replaced; /* acceptor: the peer makes a connection in place of the one in use */
    bool in_answer;       /* the answering thread is looking for its connections */
    bool tried;           /* the trying thread has conn, and may be in a step of it */

    /* Used by the trying thread while `tried` is set; else, and if a conn is READY, protected by
     * the lock: */
    struct pvn_conn *conn;
    bool member; /* conn is one of the listener's members */
    uint64_t began_ns, next_ns, wait_ns;
    unsigned attempts;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* initialized at run time, because it uses the monotonic clock */
static bool has_changed;       /* `changed` is initialized */
static unsigned changes;
static struct pvn_link_tries *all;

static enum back_state state_of(const struct pvn_link_tries *t)
{
    return atomic_load(&t->state);
}

/* The caller holds the lock. The states from LINGERS on mean that the link is gone, so only STOPPED
 * may follow them. */
static void enter(struct pvn_link_tries *t, enum back_state to)
{
    if (state_of(t) < LINGERS || to == STOPPED)
        atomic_store(&t->state, to);
}

/* The caller holds the lock. */
static void note_change(void)
{
    changes++;
    if (has_changed)
        pthread_cond_broadcast(&changed);
}

/* ---- the two threads ---- */

static void drop_conn(struct pvn_link_tries *t, const char *why)
{
    if (t->member)
        pvn_listener_leave(t->listener, t->conn);
    t->member = false;
    pvn_conn_close(t->conn, why);
    t->conn = NULL;
    t->began_ns = 0;
}

static void attempt_failed(struct pvn_link_tries *t, const char *why)
{
    t->attempts++;
    if (t->sender && (t->attempts <= ATTEMPTS_LOGGED || t->attempts % ATTEMPTS_AN_HOUR == 0))
        pvn_info(PVN_NET,
                 "failback: %s to %s: no better lanes yet: %s; the next attempt is in %.0f s",
                 t->conn->where, t->conn->who, why, (double)t->wait_ns / PVN_NS_PER_S);
    drop_conn(t, why);
    t->next_ns = pvn_now_ns() + t->wait_ns;
    t->wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, t->wait_ns);
}

/* Called by the trying thread, without the lock. */
static bool begin_attempt(struct pvn_link_tries *t)
{
    if (t->sender && pvn_now_ns() >= t->next_ns)
        t->conn = pvn_conn_new(&t->cfg);
    if (!t->conn)
        return false;
    t->conn->cfg.no_fallback = t->no_fallback;
    t->began_ns = pvn_now_ns();
    return true;
}

static bool takes_too_long(const struct pvn_link_tries *t)
{
    return pvn_now_ns() - t->began_ns >
           (t->conn->state == PVN_CONN_DIAL ? pvn_retry_answer_ns(PVN_RETRY_RETURN) : ATTEMPT_NS);
}

/* Called without the lock. True: the connection is up and better than the one in use. */
static bool step(struct pvn_link_tries *t)
{
    int rc;

    if (t->began_ns == 0 && !begin_attempt(t))
        return false;
    if (t->member)
        pvn_listener_take_in(t->listener);
    rc = pvn_conn_step(t->conn);
    if (rc == -EAGAIN && takes_too_long(t))
        attempt_failed(t, "the connection could not be made in time");
    else if (rc && rc != -EAGAIN)
        attempt_failed(t, t->conn->err.reason[0]);
    else if (rc == 0 && pvn_conn_worth(t->conn) <= t->worth)
        attempt_failed(t, "there are no better lanes yet");
    else if (rc == 0)
        return true;
    return false;
}

/* Drops a connection that is lost while it is READY. The caller holds the lock, which is released
 * meanwhile. */
static void look_at_ready(struct pvn_link_tries *t)
{
    struct pvn_err err = PVN_ERR_INIT;

    if (pvn_conn_listen(t->conn, &err) == 0 && !t->conn->goodbye && !t->conn->ctrl.eof)
        return;
    enter(t, TRIES);
    t->tried = true;
    pthread_mutex_unlock(&lock);
    attempt_failed(t, err.n > 0 ? err.reason[0] : "the peer has given it up");
    pthread_mutex_lock(&lock);
    t->tried = false;
}

/* The caller holds the lock, which is released during the step. */
static void try_one(struct pvn_link_tries *t)
{
    bool up;

    if (state_of(t) == READY) {
        look_at_ready(t);
        return;
    }
    if (state_of(t) != TRIES || (!t->sender && !t->conn))
        return;
    t->tried = true;
    pthread_mutex_unlock(&lock);
    up = step(t);
    if (up && t->member) {
        pvn_listener_leave(t->listener, t->conn);
        t->member = false;
    }
    pthread_mutex_lock(&lock);
    t->tried = false;
    if (up)
        enter(t, READY);
}

/* The caller holds the lock. It is released for the listener, whose lock a comm's thread may hold
 * during a call of an adapter. */
static void answer_one(struct pvn_link_tries *t)
{
    struct pvn_conn *conn = NULL;
    bool replaced = false, lingers = state_of(t) == LINGERS;
    bool tries = t->tried || t->conn || state_of(t) != TRIES;

    if (t->sender)
        return;
    t->in_answer = true;
    pthread_mutex_unlock(&lock);
    if (lingers)
        pvn_listener_dismiss(t->listener, t->id);
    else
        replaced = pvn_listener_beside(t->listener, t->id, tries ? NULL : &conn);
    pthread_mutex_lock(&lock);
    t->in_answer = false;
    if (lingers && pvn_now_ns() >= t->lingers_ns)
        enter(t, STOPPED);
    else if (!lingers)
        atomic_store(&t->replaced, replaced);
    if (conn) {
        t->conn = conn;
        t->member = true;
    }
    if (conn || state_of(t) == STOPPED)
        note_change();
}

static void destroy(struct pvn_link_tries *t)
{
    if (t->conn)
        drop_conn(t, "the comm was closed, or was connected by a failover");
    if (t->listener)
        pvn_listener_let_go(t->listener);
    free(t);
}

/* Removes attempts that are STOPPED from the list and returns them; NULL: there are none. */
static struct pvn_link_tries *take_stopped(void)
{
    for (struct pvn_link_tries **at = &all; *at; at = &(*at)->next)
        if (state_of(*at) == STOPPED && !(*at)->in_answer) {
            struct pvn_link_tries *t = *at;

            *at = t->next;
            return t;
        }
    return NULL;
}

uint64_t pvn_link_back_try(void)
{
    struct pvn_link_tries *t;
    bool busy = false, worse = false;

    pthread_mutex_lock(&lock);
    while ((t = take_stopped())) {
        pthread_mutex_unlock(&lock);
        destroy(t);
        pthread_mutex_lock(&lock);
    }
    for (t = all; t; t = t->next) {
        try_one(t);
        busy |= t->conn && state_of(t) == TRIES;
        worse |= t->worse || state_of(t) == READY;
    }
    pthread_mutex_unlock(&lock);
    return busy ? BUSY_NS : worse ? IDLE_NS : WATCH_NS;
}

bool pvn_link_back_answer(void)
{
    bool soon = false;

    pthread_mutex_lock(&lock);
    for (struct pvn_link_tries *t = all; t; t = t->next) {
        if (state_of(t) != STOPPED)
            answer_one(t);
        soon |= t->worse || state_of(t) == LINGERS;
    }
    pthread_mutex_unlock(&lock);
    return soon;
}

static void init_changed(void)
{
    pvn_cond_init(&changed);
    has_changed = true;
}

void pvn_link_back_wait(unsigned *seen, uint64_t ns)
{
    pthread_mutex_lock(&lock);
    if (!has_changed)
        init_changed();
    if (*seen == changes)
        pvn_cond_wait(&changed, &lock, ns);
    *seen = changes;
    pthread_mutex_unlock(&lock);
}

void pvn_link_back_end_soon(void)
{
    uint64_t until = pvn_now_ns() + END_NS;

    pthread_mutex_lock(&lock);
    for (struct pvn_link_tries *t = all; t; t = t->next)
        if (t->lingers_ns > until)
            t->lingers_ns = until;
    pthread_mutex_unlock(&lock);
}

void pvn_link_back_wake(void)
{
    pthread_mutex_lock(&lock);
    note_change();
    pthread_mutex_unlock(&lock);
}

bool pvn_link_back_any(void)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = all != NULL;
    pthread_mutex_unlock(&lock);
    return any;
}

bool pvn_link_back_all_stopped(bool lingering)
{
    bool stopped = true;

    pthread_mutex_lock(&lock);
    for (const struct pvn_link_tries *t = all; t; t = t->next)
        stopped &= state_of(t) == STOPPED || (lingering && state_of(t) == LINGERS);
    pthread_mutex_unlock(&lock);
    return stopped;
}

uint64_t pvn_link_back_received(uint64_t id)
{
    uint64_t n = 0;

    pthread_mutex_lock(&lock);
    for (const struct pvn_link_tries *t = all; t; t = t->next)
        if (t->id == id && state_of(t) == LINGERS)
            n = t->received;
    pthread_mutex_unlock(&lock);
    return n;
}

void pvn_link_back_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    has_changed = false;
    all = NULL;
}

/* ---- the link's thread ---- */

static struct pvn_link_tries *new_tries(const struct pvn_link *l)
{
    struct pvn_link_tries *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->sender = l->sender;
    t->id = l->id;
    t->cfg = l->paths.home;
    t->cfg.beside = true;
    t->no_fallback = pvn_conn_worth_is_fast(l->paths.best) && !l->conn->cfg.away;
    t->worth = pvn_conn_worth(l->conn);
    t->worse = t->worth < l->paths.best;
    t->wait_ns = l->back.wait_ns;
    t->next_ns = pvn_now_ns() + t->wait_ns;
    if (t->next_ns < l->paths.memory.home_ns)
        t->next_ns = l->paths.memory.home_ns;
    if (!l->sender) {
        t->listener = l->keeper;
        pvn_listener_keep(t->listener);
    }
    return t;
}

void pvn_link_back_start(struct pvn_link *l)
{
    bool worse = pvn_conn_worth(l->conn) < l->paths.best;
    struct pvn_link_tries *t;

    if (l->back.tries || !l->served || !pvn_conn_failback(l->conn) || (l->sender && !worse))
        return;
    if (l->back.wait_ns == 0)
        l->back.wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, 0);
    if (worse && l->back.slower_ns == 0)
        l->back.slower_ns = pvn_now_ns();
    t = new_tries(l);
    if (!t)
        return;
    l->back.tries = t;
    pthread_mutex_lock(&lock);
    t->next = all;
    all = t;
    /* Wakes the threads only for worse lanes. Other links have nothing to do until the threads'
     * next look, 200 ms later at most, and a link that lost its lanes has woken them
     * (pvn_link_back_stop). When many comms come up at once, a look at all of them for each would
     * take a processor. */
    if (worse)
        note_change();
    pthread_mutex_unlock(&lock);
}

/* Ends the link's use of its attempts. */
static void leave(struct pvn_link *l, enum back_state to)
{
    struct pvn_link_tries *t = l->back.tries;

    pthread_mutex_lock(&lock);
    enter(t, to);
    note_change();
    pthread_mutex_unlock(&lock);
    l->back.tries = NULL;
}

void pvn_link_back_stop(struct pvn_link *l)
{
    if (l->back.tries)
        leave(l, STOPPED);
}

void pvn_link_back_linger(struct pvn_link *l, uint64_t received)
{
    if (!l->back.tries || l->sender)
        return;
    pthread_mutex_lock(&lock);
    l->back.tries->received = received;
    l->back.tries->lingers_ns = pvn_now_ns() + pvn_params_get()->failover_timeout;
    pthread_mutex_unlock(&lock);
    leave(l, LINGERS);
}

struct pvn_conn *pvn_link_back_take(struct pvn_link *l)
{
    struct pvn_link_tries *t = l->back.tries;
    struct pvn_conn *conn = NULL;

    if (!t || state_of(t) != READY)
        return NULL;
    pthread_mutex_lock(&lock);
    if (state_of(t) == READY) {
        conn = t->conn;
        t->conn = NULL;
        t->began_ns = 0;
        enter(t, TAKEN);
    }
    pthread_mutex_unlock(&lock);
    return conn;
}

struct pvn_conn *pvn_link_back_look(struct pvn_link *l, bool open, uint64_t now)
{
    bool drains = l->state == PVN_LINK_DRAINS;

    if (!l->back.tries || !l->sender || (!drains && l->state != PVN_LINK_UP))
        return NULL;
    if (state_of(l->back.tries) != READY) { /* not yet, or no longer */
        if (drains)
            pvn_link_note(l, PVN_LINK_NO_BETTER);
        return NULL;
    }
    if (!open)
        return pvn_link_back_take(l);
    if (!drains && now >= l->back.pause_ns)
        pvn_link_note(l, PVN_LINK_BETTER);
    /* The state may have been entered after `now`. */
    if (!drains || now < l->since_ns + pvn_link_limit_ns(l))
        return NULL;
    pvn_link_note(l, PVN_LINK_NO_BETTER);
    l->back.pause_ns = now + DRAIN_PAUSE_NS;
    return NULL;
}

bool pvn_link_back_is_replaced(const struct pvn_link *l)
{
    return l->back.tries && atomic_load(&l->back.tries->replaced);
}

void pvn_link_back_lost(struct pvn_link *l)
{
    struct pvn_link_back *b = &l->back;
    uint64_t now = pvn_now_ns();

    pvn_link_back_stop(l);
    if (!l->sender)
        pvn_link_back_start(l);
    if (b->came_ns == 0)
        return;
    if (now - b->came_ns >= STABLE_NS) {
        b->wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, 0);
    } else {
        b->wait_ns = pvn_retry_next_ns(PVN_RETRY_RETURN, b->wait_ns);
        if (!b->said_flaps)
            pvn_warn(
                "failback: %s %s %s: the lanes were lost again %.1f s after the return to them; "
                "the time to the next attempt doubles each time this happens, up to %.0f s",
                l->conn->where, l->sender ? "to" : "from", l->conn->who,
                (double)(now - b->came_ns) / PVN_NS_PER_S,
                (double)pvn_retry_longest_ns(PVN_RETRY_RETURN) / PVN_NS_PER_S);
        b->said_flaps = true;
    }
    b->came_ns = 0;
}

void pvn_link_back_settle(struct pvn_link *l)
{
    int worth = pvn_conn_worth(l->conn);

    pvn_link_back_stop(l);
    l->paths.best = worth > l->paths.best ? worth : l->paths.best;
    pvn_link_back_start(l);
    if (worth < l->paths.best)
        return;
    if (l->back.slower_ns)
        l->back.came_ns = pvn_now_ns();
    l->back.slower_ns = 0;
}
