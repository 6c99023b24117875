/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/listener.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "base/random.h"
#include "stats/stats.h"

/* Connections taken from one listening socket per call: a flood must not keep its caller. */
enum { ACCEPT_BATCH = 64 };
/* By how much nobody may have called accept before the pause is taken off its time. */
#define AWAY_NS (PVN_NS_PER_S / 2)

/* A connection whose preamble is not complete. */
struct undecided {
    int fd;
    int at; /* of the listening sockets */
    uint64_t since_ns;
    size_t got;
    uint8_t bytes[PVN_PREAMBLE_BYTES];
    struct sockaddr_storage peer;
};

/* A conn that accept has not given out, or a lazy one that still expects data connections. */
struct member {
    struct member *next;
    struct pvn_conn *conn;
    bool given;
};

struct pvn_listener {
    pthread_mutex_t lock; /* everything below */
    int refs;             /* the caller's, until close, and one per given member */
    bool closed;
    int keepers; /* comms that may be connected again */
    struct pvn_listener_cfg cfg;
    uint64_t session;
    /* Listening sockets: one per port, then those on other interfaces, once there are any. */
    int nfds;
    int fd[PVN_MAX_LANES + PVN_OTHER_ADDRS];
    const struct pvn_device *dev[PVN_MAX_LANES + PVN_OTHER_ADDRS];
    struct sockaddr_storage addr[PVN_MAX_LANES + PVN_OTHER_ADDRS];
    bool others_open;
    struct undecided room[PVN_LISTENER_UNDECIDED]; /* the first nroom, oldest first */
    int nroom;
    struct member *members; /* oldest first */
    /* First accept since the last success, moved on while nobody called; 0: none */
    uint64_t waiting_ns;
    uint64_t called_ns;
    int no_files; /* errno of the last accept that failed for lack of something, 0: none */
    bool said_no_files, said_rejected;
    struct pvn_listener_stats stats;
    struct pvn_stat *stat; /* its row of the statistics while it is open, may be NULL */
};

static struct pvn_conn *remove_member(struct pvn_listener *l, struct member **at)
{
    struct member *m = *at;
    struct pvn_conn *c = m->conn;

    *at = m->next;
    free(m);
    return c;
}

/* None of the members is given out: those that are have a reference. After close there are others
 * where a comm let go while its peer was connecting again. */
static void destroy(struct pvn_listener *l)
{
    int i;

    while (l->members)
        pvn_conn_close(remove_member(l, &l->members),
                       "the comm that was to be connected again was closed");
    for (i = 0; i < l->nfds; i++)
        pvn_sock_close(l->fd[i]);
    for (i = 0; i < l->nroom; i++)
        pvn_sock_close(l->room[i].fd);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Unlocks. */
static void unref(struct pvn_listener *l)
{
    bool last = --l->refs == 0;

    pthread_mutex_unlock(&l->lock);
    if (last)
        destroy(l);
}

static int open_socket(struct pvn_listener *l, const struct pvn_device *dev, struct pvn_err *err)
{
    int at = l->nfds;

    l->addr[at] = dev->addr;
    l->dev[at] = dev;
    l->fd[at] = pvn_sock_listen(&l->addr[at], dev->addr_len, err);
    if (l->fd[at] >= 0) {
        l->nfds++;
        return 0;
    }
    pvn_err_set_where(err, "%s", dev->name);
    return l->fd[at];
}

/* With the lock, which pvn_conn_step of an acceptor's HELLO is called with. An interface that
 * cannot be listened on is none by which the comm could be reached. */
static int others(struct pvn_listener *l, struct pvn_wire_addr *out)
{
    int n = 0;

    for (int i = 0; i < l->cfg.nothers && !l->others_open; i++) {
        struct pvn_err err = PVN_ERR_INIT;

        if (open_socket(l, l->cfg.other[i], &err) != 0)
            pvn_trace(PVN_NET, "%s: %s", l->cfg.other[i]->name, err.reason[0]);
    }
    l->others_open = true;
    for (int i = l->cfg.nports; i < l->nfds; i++)
        if (!pvn_addr_is_link_local((const struct sockaddr *)&l->addr[i]) &&
            pvn_wire_addr_from_sockaddr(&out[n], (const struct sockaddr *)&l->addr[i]) == 0)
            n++;
    return n;
}

int pvn_listener_open(const struct pvn_listener_cfg *cfg, uint8_t *handle,
                      struct pvn_listener **out, struct pvn_err *err)
{
    struct pvn_handle h = {.version = PVN_WIRE_VERSION};
    struct pvn_listener *l = calloc(1, sizeof(*l));
    int i, rc;

    if (!l)
        return pvn_err_set(err, -ENOMEM, "no memory for a listener on %s", cfg->dev->name);
    pthread_mutex_init(&l->lock, NULL);
    l->cfg = *cfg;
    l->refs = 1;
    l->session = pvn_random64();
    for (i = 0; i < cfg->nports; i++) {
        rc = open_socket(l, cfg->port[i], err);
        if (rc) {
            destroy(l);
            return rc;
        }
    }
    rc = pvn_wire_addr_from_sockaddr(&h.addr, (const struct sockaddr *)&l->addr[0]);
    if (rc) {
        destroy(l);
        return pvn_err_set(err, rc, "device %s has no IP address", cfg->dev->name);
    }
    h.session = l->session;
    pvn_handle_encode(handle, &h);
    l->stat = pvn_stat_new(PVN_STAT_LISTEN, false, cfg->dev->name);
    pvn_stat_state(l->stat, PVN_STAT_LISTEN, "LISTEN", "accept is not being called");
    *out = l;
    return 0;
}

/* Takes entry i out of the room, keeping the order of age. */
static void leave_room(struct pvn_listener *l, int i)
{
    l->nroom--;
    memmove(&l->room[i], &l->room[i + 1], (size_t)(l->nroom - i) * sizeof(l->room[0]));
}

static void say_rejected(struct pvn_listener *l, const struct undecided *u, const char *why)
{
    char addr[PVN_ADDR_TEXT_LEN];

    if (l->said_rejected) {
        pvn_trace(PVN_NET, "%s: closed an unauthenticated connection: %s", l->cfg.dev->name, why);
        return;
    }
    l->said_rejected = true;
    pvn_info(PVN_NET,
             "%s: closed a connection from %s that is not from a peer (%s); further ones are "
             "counted only",
             l->cfg.dev->name,
             pvn_addr_format((const struct sockaddr *)&u->peer, addr, sizeof(addr)), why);
}

static struct member *find(struct pvn_listener *l, uint64_t nonce)
{
    struct member *m;

    for (m = l->members; m; m = m->next)
        if (m->conn->cfg.nonce == nonce)
            return m;
    return NULL;
}

/* A control connection: the beginning of a comm. Takes u->fd. */
static void start_conn(struct pvn_listener *l, const struct undecided *u, uint64_t nonce)
{
    struct pvn_conn_cfg cfg = {.sender = false,
                               .dev = l->cfg.dev,
                               .nports = l->cfg.nports,
                               .peer = u->peer,
                               .session = l->session,
                               .nonce = nonce,
                               .traffic_class = l->cfg.traffic_class,
                               .lazy = l->cfg.lazy,
                               .shared = l->cfg.shared,
                               .failover = l->cfg.failover,
                               .received = l->cfg.received,
                               .others = others,
                               .listener = l};
    struct member *m = calloc(1, sizeof(*m)), **end = &l->members;
    bool elsewhere = u->at >= l->cfg.nports;
    int i;

    if (elsewhere) {
        cfg.dev = l->dev[u->at];
        cfg.nports = 1;
    }
    for (i = 0; i < cfg.nports; i++) {
        cfg.port[i] = l->dev[elsewhere ? u->at : i];
        cfg.listen_addr[i] = l->addr[elsewhere ? u->at : i];
    }
    if (m)
        m->conn = pvn_conn_accepted(&cfg, u->fd);
    if (!m || !m->conn) {
        pvn_warn("%s: no memory for a new connection", l->cfg.dev->name);
        free(m);
        pvn_sock_close(u->fd);
        return;
    }
    while (*end)
        end = &(*end)->next;
    *end = m;
}

/* Its preamble is complete: u has left the room, its descriptor finds an owner. */
static void hand_over(struct pvn_listener *l, const struct undecided *u,
                      const struct pvn_preamble *p)
{
    struct member *m = find(l, p->nonce);

    if (p->kind == PVN_PREAMBLE_CTRL && !m && (!l->closed || l->keepers > 0)) {
        start_conn(l, u, p->nonce);
    } else if (p->kind == PVN_PREAMBLE_STREAM && m) {
        l->stats.streams++;
        pvn_conn_adopt(m->conn, p->lane, p->stream, u->fd);
    } else {
        l->stats.rejected++;
        say_rejected(l, u,
                     p->kind == PVN_PREAMBLE_STREAM
                         ? "data for a connection that is not being set up"
                     : m ? "a second control connection with the same nonce"
                         : "the listener is closed");
        pvn_sock_close(u->fd);
    }
}

/* Reads what has come of the preamble. True: the entry has left the room. */
static bool decide(struct pvn_listener *l, int i, uint64_t now)
{
    struct undecided *u = &l->room[i];
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_preamble p;
    const char *why = NULL;
    int verdict = 0;

    while (u->got < sizeof(u->bytes) && verdict == 0 && !why) {
        ssize_t n = recv(u->fd, u->bytes + u->got, sizeof(u->bytes) - u->got, MSG_DONTWAIT);

        if (n > 0) {
            u->got += (size_t)n;
            verdict = pvn_preamble_decode(u->bytes, u->got, l->session, &p, &err);
        } else if (n == 0) {
            why = "it was closed again without a byte";
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            why = "it was reset";
        }
    }
    if (verdict < 0)
        why = err.reason[0];
    if (verdict > 0) {
        struct undecided known = *u;

        leave_room(l, i);
        hand_over(l, &known, &p);
        return true;
    }
    if (!why && now - u->since_ns >= pvn_params_get()->hello_timeout) {
        why = "it did not identify itself within NCCL_PVRDMA_HELLO_TIMEOUT";
        l->stats.late++;
    } else if (why) {
        l->stats.rejected++;
    } else {
        return false;
    }
    say_rejected(l, u, why);
    pvn_sock_close(u->fd);
    leave_room(l, i);
    return true;
}

static void decide_all(struct pvn_listener *l, uint64_t now)
{
    int i;

    for (i = 0; i < l->nroom;)
        if (!decide(l, i, now))
            i++;
}

static void make_room(struct pvn_listener *l, uint64_t now)
{
    if (l->nroom < PVN_LISTENER_UNDECIDED)
        return;
    decide_all(l, now);
    if (l->nroom < PVN_LISTENER_UNDECIDED)
        return;
    l->stats.crowded++;
    say_rejected(l, &l->room[0], "too many unauthenticated connections, this is the oldest");
    pvn_sock_close(l->room[0].fd);
    leave_room(l, 0);
}

static void out_of_files(struct pvn_listener *l, const struct pvn_err *err)
{
    l->stats.no_files++;
    l->no_files = err->code;
    if (l->said_no_files)
        return;
    l->said_no_files = true;
    pvn_warn_err(err);
}

static void take_in(struct pvn_listener *l, uint64_t now)
{
    int i, n;

    l->no_files = 0;
    for (i = 0; i < l->nfds; i++)
        for (n = 0; n < ACCEPT_BATCH; n++) {
            struct undecided u = {.since_ns = now, .at = i};
            struct pvn_err err = PVN_ERR_INIT;

            u.fd = pvn_sock_accept(l->fd[i], &u.peer, &err);
            if (u.fd == -EAGAIN)
                break;
            if (u.fd < 0) {
                pvn_err_set_where(&err, "listener on %s", l->dev[i]->name);
                out_of_files(l, &err);
                break;
            }
            l->stats.accepted++;
            make_room(l, now);
            pvn_sock_tune(u.fd, -1);
            l->room[l->nroom++] = u;
            decide(l, l->nroom - 1, now);
        }
    decide_all(l, now);
}

/* A conn has failed before it was given out. True when that is accept's result: the peer had been
 * recognised, and whoever waits for it must know. */
static bool conn_failed(struct pvn_listener *l, struct member **at, struct pvn_err *err)
{
    struct pvn_conn *c = remove_member(l, at);
    bool known = c->hello_seen || c->err.code == -EPROTONOSUPPORT;

    if (known) {
        *err = c->err;
    } else {
        l->stats.rejected++;
        pvn_info(PVN_NET, "%s: a connection from %s ended before its HELLO: %s", l->cfg.dev->name,
                 c->who, c->err.reason[0]);
    }
    pvn_conn_close(c, NULL);
    return known;
}

/* Until a peer is there its row says where it is expected. */
static void publish_wait(struct pvn_listener *l, uint64_t now)
{
    char text[160], addr[PVN_ADDR_TEXT_LEN];

    if (now != l->waiting_ns) {
        pvn_stat_look(l->stat, now);
        return;
    }
    snprintf(text, sizeof(text), "waiting for a peer to connect to %s",
             pvn_addr_format((const struct sockaddr *)&l->addr[0], addr, sizeof(addr)));
    pvn_stat_state(l->stat, PVN_STAT_LISTEN, "ACCEPT", text);
}

/* coming: a peer is there, whose states have limits of their own. */
static int accept_deadline(struct pvn_listener *l, uint64_t now, bool coming, struct pvn_err *err)
{
    uint64_t limit = pvn_params_get()->accept_timeout;
    char text[PVN_ADDR_TEXT_LEN], why[160] = "", desc[80];

    if (l->waiting_ns == 0)
        l->waiting_ns = now;
    else if (now - l->called_ns > AWAY_NS)
        l->waiting_ns += now - l->called_ns;
    l->called_ns = now;
    publish_wait(l, now);
    if (coming)
        l->waiting_ns = now;
    if (limit == 0 || now - l->waiting_ns < limit)
        return 0;
    if (l->no_files)
        pvn_str_append(why, sizeof(why), "; connections could not be accepted: %s",
                       pvn_strerror(l->no_files, desc, sizeof(desc)));
    pvn_err_set(err, -ETIMEDOUT, "no peer has connected to %s within %.3g s (%sACCEPT_TIMEOUT)%s",
                pvn_addr_format((const struct sockaddr *)&l->addr[0], text, sizeof(text)),
                (double)limit / PVN_NS_PER_S, PVN_PARAM_PREFIX, why);
    pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    pvn_err_set_where(err, "%s", l->cfg.dev->name);
    pvn_err_set_hint(
        err, pvn_hint_id_find(PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_ACCEPT, PVN_PAST_NEVER_WORKED));
    return -ETIMEDOUT;
}

int pvn_listener_accept(struct pvn_listener *l, struct pvn_conn **conn, struct pvn_err *err)
{
    uint64_t now = pvn_now_ns();
    struct member **at;
    bool coming = false;
    int rc = 0;

    *conn = NULL;
    pthread_mutex_lock(&l->lock);
    take_in(l, now);
    for (at = &l->members; *at && !*conn && rc == 0;) {
        struct member *m = *at;

        /* Those that replace a comm's lanes are that comm's: pvn_listener_resumed. */
        if (m->given || m->conn->theirs.resumes) {
            at = &m->next;
            continue;
        }
        rc = pvn_conn_step(m->conn);
        if (m->conn->theirs.resumes) {
            rc = 0;
            at = &m->next;
            continue;
        }
        if (rc == 0) {
            *conn = remove_member(l, at);
        } else if (rc == -EAGAIN && m->conn->cfg.lazy && m->conn->hello_seen) {
            *conn = m->conn;
            m->given = true;
            l->refs++;
            rc = 0;
        } else if (rc == -EAGAIN) {
            coming |= m->conn->hello_seen;
            at = &m->next;
            rc = 0;
        } else if (!conn_failed(l, at, err)) {
            rc = 0;
        }
    }
    if (*conn || rc) {
        l->waiting_ns = 0;
        pvn_stat_state(l->stat, PVN_STAT_LISTEN, "LISTEN", "accept is not being called");
    } else {
        rc = accept_deadline(l, now, coming, err);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void pvn_listener_keep(struct pvn_listener *l)
{
    pthread_mutex_lock(&l->lock);
    l->refs++;
    l->keepers++;
    pthread_mutex_unlock(&l->lock);
}

void pvn_listener_let_go(struct pvn_listener *l)
{
    pthread_mutex_lock(&l->lock);
    l->keepers--;
    unref(l);
}

/* Whether the conn is for this comm, or may still turn out to be. */
static bool concerns(const struct pvn_conn *c, uint64_t id)
{
    return !c->hello_seen || c->theirs.resumes == id;
}

/* Steps a conn that replaces the lanes of comm id, or may turn out to. */
static int step_resumed(struct pvn_conn *c, uint64_t id, bool fallback_only)
{
    if (!concerns(c, id))
        return -EAGAIN;
    /* The comm is being connected by a failover, so this one is out of date. */
    if (c->hello_seen && c->cfg.beside)
        return -ESTALE;
    if (c->hello_seen)
        c->cfg.fallback_only = fallback_only;
    return pvn_conn_step(c);
}

int pvn_listener_resumed(struct pvn_listener *l, uint64_t id, bool fallback_only,
                         struct pvn_conn **conn)
{
    *conn = NULL;
    pthread_mutex_lock(&l->lock);
    take_in(l, pvn_now_ns());
    for (struct member **at = &l->members; *at && !*conn;) {
        struct member *m = *at;
        int rc = m->given ? -EAGAIN : step_resumed(m->conn, id, fallback_only);

        if (rc == 0 && m->conn->theirs.resumes == id)
            *conn = remove_member(l, at);
        else if (rc == 0 || rc == -EAGAIN)
            at = &m->next;
        else
            pvn_conn_close(remove_member(l, at), NULL);
    }
    pthread_mutex_unlock(&l->lock);
    return 0;
}

/* A connection that its maker has not closed again. */
static bool is_alive(const struct pvn_conn *c)
{
    struct pollfd p = {.fd = c->ctrl.fd, .events = POLLRDHUP};

    return c->state != PVN_CONN_FAILED && poll(&p, 1, 0) <= 0;
}

bool pvn_listener_beside(struct pvn_listener *l, uint64_t id, struct pvn_conn **conn)
{
    bool replaced = false;

    *conn = NULL;
    pthread_mutex_lock(&l->lock);
    take_in(l, pvn_now_ns());
    for (struct member **at = &l->members; *at && !*conn;) {
        struct member *m = *at;

        /* No further than to its HELLO: see conn_step_hello_acceptor. */
        if (!m->given && !m->conn->hello_seen)
            pvn_conn_step(m->conn);
        if (m->given || m->conn->theirs.resumes != id) {
            at = &m->next;
        } else if (m->conn->cfg.beside) {
            m->given = true;
            l->refs++;
            *conn = m->conn;
        } else if (is_alive(m->conn)) {
            replaced = true;
            at = &m->next;
        } else {
            /* The peer goes on to make others for as long as nobody calls the comm. */
            pvn_conn_close(remove_member(l, at), NULL);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return replaced;
}

void pvn_listener_take_in(struct pvn_listener *l)
{
    pthread_mutex_lock(&l->lock);
    take_in(l, pvn_now_ns());
    pthread_mutex_unlock(&l->lock);
}

int pvn_listener_step(struct pvn_listener *l, struct pvn_conn *conn)
{
    int rc;

    /* The lock is held while the conn steps, for its inbox is filled by other conns' threads. */
    pthread_mutex_lock(&l->lock);
    take_in(l, pvn_now_ns());
    rc = pvn_conn_step(conn);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void pvn_listener_leave(struct pvn_listener *l, struct pvn_conn *conn)
{
    struct member **at;

    pthread_mutex_lock(&l->lock);
    for (at = &l->members; *at; at = &(*at)->next)
        if ((*at)->conn == conn) {
            remove_member(l, at);
            break;
        }
    unref(l);
}

void pvn_listener_close(struct pvn_listener *l)
{
    struct member **at;

    pthread_mutex_lock(&l->lock);
    l->closed = true;
    pvn_stat_end(l->stat);
    l->stat = NULL;
    if (l->stats.rejected + l->stats.late + l->stats.crowded > 1)
        pvn_info(
            PVN_NET,
            "%s: of %llu connections %llu were not from a peer, %llu did not identify themselves in time, "
            "%llu were closed for lack of room",
            l->cfg.dev->name, (unsigned long long)l->stats.accepted,
            (unsigned long long)l->stats.rejected, (unsigned long long)l->stats.late,
            (unsigned long long)l->stats.crowded);
    for (at = &l->members; *at;) {
        if ((*at)->given)
            at = &(*at)->next;
        else
            pvn_conn_close(remove_member(l, at),
                           "the listener was closed before the connection was accepted");
    }
    unref(l);
}

void pvn_listener_get_stats(struct pvn_listener *l, struct pvn_listener_stats *out)
{
    pthread_mutex_lock(&l->lock);
    *out = l->stats;
    pthread_mutex_unlock(&l->lock);
}
