/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Connections for comms that are up: they replace the comm's lanes, or are set up beside them, or
 * become its control connection alone. Also the answer of a comm that has been closed to such
 * connections. */
#include "config.h"
#include "connect/listener_priv.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/clock.h"
#include "base/param.h"

enum { LOCK_TRIES = 10 };

/* Takes the lock for the answering thread, or gives up. A comm's thread in a failover looks at the
 * listener again and again, so it holds the lock most of the time, but for some microseconds each.
 * A call of an adapter holds it for long. */
static bool lock_soon(struct pvn_listener *l)
{
    const struct timespec pause = {.tv_nsec = 50000};

    for (int i = 0; i < LOCK_TRIES; i++) {
        if (pthread_mutex_trylock(&l->lock) == 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* True if the peer has not closed the connection again. */
static bool is_alive(const struct pvn_conn *c)
{
    struct pollfd p = {.fd = c->ctrl.fd, .events = POLLRDHUP};

    return c->state != PVN_CONN_FAILED && poll(&p, 1, 0) <= 0;
}

/* True if no comm will take this connection. */
static bool is_left_behind(const struct pvn_listener *l, const struct member *m, uint64_t now)
{
    const struct pvn_conn *c = m->conn;

    if (m->given)
        return false;
    if (!c->theirs.resumes) /* accept would take it, until close */
        return l->closed && (c->hello_seen || c->state == PVN_CONN_FAILED);
    return !is_alive(c) || now - m->expected_ns >= pvn_params_get()->hello_timeout;
}

/* For comms that are being reconnected: takes in connections, and sets aside those that no comm
 * takes. control: control connections count as expected, too. The answering thread, which takes
 * those for a comm in a failover, may not have got the lock for a while. */
static void take_in_resumed(struct pvn_listener *l, uint64_t id, bool control)
{
    uint64_t now = pvn_now_ns(), gap = now - l->looked_ns;

    l->looked_ns = now;
    listener_take_in(l, now);
    for (struct member **at = &l->members; *at;) {
        struct member *m = *at;

        /* While a call of an adapter holds the lock, nobody can look for connections. */
        if (gap > PVN_AWAY_NS)
            m->expected_ns = pvn_not_counted_ns(m->expected_ns, gap, now);
        if (m->conn->theirs.resumes == id || (control && m->conn->cfg.control))
            m->expected_ns = now;
        if (is_left_behind(l, m, now))
            listener_set_aside(l, at, "no comm is waiting for this connection");
        else
            at = &m->next;
    }
}

/* True if the connection is for this comm, or may still turn out to be. */
static bool concerns(const struct pvn_conn *c, uint64_t id)
{
    return !c->hello_seen || c->theirs.resumes == id;
}

/* Steps a connection that replaces the lanes of comm `id`, or may turn out to. */
static int step_resumed(struct pvn_conn *c, uint64_t id, bool fallback_only)
{
    if (!concerns(c, id))
        return -EAGAIN;
    /* The comm is in a failover, so a connection that was made beside the old one is out of
     * date. */
    if (c->hello_seen && c->cfg.beside)
        return -ESTALE;
    if (c->hello_seen && c->cfg.control)
        return -EAGAIN;
    if (c->hello_seen)
        c->cfg.fallback_only = fallback_only;
    return pvn_conn_step(c);
}

struct pvn_conn *pvn_listener_resumed(struct pvn_listener *l, uint64_t id, bool fallback_only,
                                      struct pvn_err *why)
{
    struct pvn_conn *conn = NULL;

    pthread_mutex_lock(&l->lock);
    take_in_resumed(l, id, true);
    for (struct member **at = &l->members; *at && !conn;) {
        struct member *m = *at;
        int rc = m->given ? -EAGAIN : step_resumed(m->conn, id, fallback_only);

        if (rc == 0 && m->conn->theirs.resumes == id) {
            conn = m->conn;
        } else if (rc == 0 || rc == -EAGAIN) {
            at = &m->next;
        } else {
            if (m->conn->theirs.resumes == id && m->conn->err.code)
                *why = m->conn->err;
            listener_set_aside(l, at, NULL);
        }
    }
    if (conn)
        listener_take_out(l, conn, id);
    listener_unlock(l);
    return conn;
}

bool pvn_listener_beside(struct pvn_listener *l, uint64_t id, struct pvn_conn **conn)
{
    bool replaced = false;

    if (conn)
        *conn = NULL;
    if (!lock_soon(l))
        return false;
    take_in_resumed(l, id, false);
    for (struct member **at = &l->members; *at && !(conn && *conn);) {
        struct member *m = *at;

        /* No step beyond HELLO: see conn_step_hello_acceptor. */
        if (!m->given && !m->conn->hello_seen)
            pvn_conn_step(m->conn);
        if (m->given || m->conn->theirs.resumes != id || m->conn->cfg.control ||
            (m->conn->cfg.beside && !conn)) {
            at = &m->next;
        } else if (m->conn->cfg.beside) {
            m->given = true;
            l->refs++;
            *conn = m->conn;
        } else {
            /* It may have got its HELLO just now, and failed. */
            replaced |= is_alive(m->conn);
            /* The key file has another key now. The comm has to look at the file, too. */
            replaced |= m->conn->err.code == -EKEYREVOKED;
            at = &m->next;
        }
    }
    listener_unlock_answering(l);
    return replaced;
}

struct pvn_conn *pvn_listener_control(struct pvn_listener *l, uint64_t nonce)
{
    struct pvn_conn *newest = NULL;

    if (!lock_soon(l))
        return NULL;
    take_in_resumed(l, nonce, false);
    for (struct member **at = &l->members; *at;) {
        struct pvn_conn *c = (*at)->conn;

        if (!(*at)->given && !c->hello_seen)
            pvn_conn_step(c);
        if ((*at)->given || !c->cfg.control) {
            at = &(*at)->next;
        } else if (!is_alive(c)) {
            listener_set_aside(l, at, NULL);
        } else if (c->theirs.resumes == nonce && pvn_conn_is_confirmed(c)) {
            pvn_conn_close(newest, NULL);
            newest = listener_remove(l, at);
        } else {
            at = &(*at)->next;
        }
    }
    listener_unlock_answering(l);
    return newest;
}

void pvn_listener_dismiss(struct pvn_listener *l, uint64_t id)
{
    if (!lock_soon(l))
        return;
    take_in_resumed(l, id, false);
    for (struct member *m = l->members; m; m = m->next) {
        struct pvn_conn *c = m->conn;

        if (!m->given && !c->hello_seen)
            pvn_conn_step(c);
        if (m->given || !c->hello_seen || c->theirs.resumes != id || c->cfg.control || c->dismissed)
            continue;
        c->dismissed = true;
        c->received = c->mine.received;
        pvn_conn_goodbye(c);
    }
    listener_unlock_answering(l);
}
