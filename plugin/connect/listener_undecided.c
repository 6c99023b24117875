/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Undecided connections: a listener accepted them, and they have not yet sent the preamble (wire.h)
 * that says who they are. A complete preamble with the listener's session makes a control
 * connection a new member, and gives a data connection to the member that it is for. Anybody can
 * connect to the port. So nothing else that they send is believed, and their number, their time and
 * the reports of them are limited.
 *
 * Threads: the caller of all functions holds the listener's lock. None blocks. */
#include "config.h"
#include "connect/listener_priv.h"
#include "connect/token.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"

/* Connections taken from one listening socket per call, so that a flood does not hold up the
 * caller. */
enum { ACCEPT_BATCH = 64 };
/* A connection that named another session is kept open for this long, so that guessing is slow. */
#define REFUSED_NS PVN_NS_PER_S

/* Takes entry i out of the room, which stays in order of age. Its descriptor is the caller's. */
static void leave_room(struct pvn_listener *l, int i)
{
    l->nroom--;
    memmove(&l->room[i], &l->room[i + 1], (size_t)(l->nroom - i) * sizeof(l->room[0]));
}

/* Reports the first rejected connection of a listener, and traces the others: a port scan must not fill the log. */
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

/* Closes the oldest connection whose handshake is not complete if there is no room for another one. With a key only. */
static void close_unproved(struct pvn_listener *l)
{
    struct member **oldest = NULL;
    int n = 0;

    for (struct member **at = &l->members; *at; at = &(*at)->next)
        if (!(*at)->given && (*at)->conn->state == PVN_CONN_SEAL) {
            oldest = oldest ? oldest : at;
            n++;
        }
    if (n < PVN_LISTENER_UNPROVED)
        return;
    l->stats.crowded++;
    listener_set_aside(l, oldest, NULL);
}

/* Makes a member of a control connection, which begins a comm. Takes u->fd over.
 *
 * u->at is the index of the listening socket (listen_sockets.h). A connection to a port's socket,
 * or to a further address of the first port, gets all ports of the device; on the first port it
 * listens at the address that the peer used. A connection to a socket on another interface gets
 * that device alone. */
static void start_conn(struct pvn_listener *l, const struct undecided *u, uint64_t nonce)
{
    struct pvn_conn_cfg cfg = {.sender = false,
                               .dev = l->cfg.dev,
                               .nports = l->cfg.nports,
                               .peer = u->peer,
                               .session = l->session,
                               .nonce = nonce,
                               .key = l->cfg.key,
                               .traffic_class = l->cfg.traffic_class,
                               .lazy = l->cfg.lazy,
                               .shared = l->cfg.shared,
                               .failover = l->cfg.failover,
                               .received = l->cfg.received,
                               .sockets = &l->on};
    struct member *m = calloc(1, sizeof(*m)), **end = &l->members;
    bool elsewhere = u->at >= l->cfg.nports + l->on.nmore;

    close_unproved(l);
    if (elsewhere) {
        cfg.dev = l->on.dev[u->at];
        cfg.nports = 1;
    }
    for (int i = 0; i < cfg.nports; i++) {
        cfg.port[i] = l->on.dev[elsewhere ? u->at : i];
        cfg.listen_addr[i] =
            &l->on.addr[elsewhere || (i == 0 && u->at >= l->cfg.nports) ? u->at : i];
    }
    if (m)
        m->conn = pvn_conn_accepted(&cfg, u->fd);
    if (!m || !m->conn) {
        pvn_warn("%s: no memory for a new connection", l->cfg.dev->name);
        free(m);
        pvn_sock_close(u->fd);
        return;
    }
    m->expected_ns = pvn_now_ns();
    while (*end)
        end = &(*end)->next;
    *end = m;
}

/* True if the connection's token is right, or if neither end has a key. Otherwise *why has the
 * reason. */
static bool is_proved(const struct pvn_listener *l, const struct pvn_preamble *p,
                      const struct member *m, const char **why)
{
    uint8_t token[PVN_TOKEN_BYTES];
    int rc;

    if (!pvn_preamble_has_token(p->kind)) {
        *why = l->cfg.key ? "it has no key, or is of a release without keys" : NULL;
        return !l->cfg.key;
    }
    *why = "it has a key, and this process has none";
    if (!l->cfg.key)
        return false;
    if (p->kind == PVN_PREAMBLE_CTRL_KEY) {
        *why = "it has another key, or its first bytes were forged";
        rc = pvn_token_of_control(l->cfg.key, p->session, p->nonce, token, NULL);
    } else {
        *why = "data for a connection that is not being set up";
        if (!m || !m->conn->hello_seen)
            return false;
        *why = "data that do not belong to the connection that they name";
        rc = pvn_token_of_stream(m->conn->streams, p->lane, p->stream, token, NULL);
    }
    return rc == 0 && pvn_key_is_equal(token, p->token, sizeof(token));
}

/* Sends the reason in the clear, because both ends can read nothing else. */
static void say_why_not(const struct undecided *u, const char *why)
{
    uint8_t buf[PVN_FRAME_HEADER_BYTES + PVN_REASON_MAX + 2];
    char text[PVN_ERR_REASON_LEN];
    struct pvn_frame_header h = {.type = PVN_FRAME_ERROR};
    int n;

    snprintf(text, sizeof(text),
             "the listener refuses this end: %s; all ranks of a job need the same "
             "NCCL_PVRDMA_KEY_FILE, or none",
             why);
    n = pvn_reason_encode(buf + PVN_FRAME_HEADER_BYTES, sizeof(buf) - PVN_FRAME_HEADER_BYTES, text);
    h.len = (uint32_t)n;
    pvn_frame_header_encode(buf, &h);
    if (send(u->fd, buf, PVN_FRAME_HEADER_BYTES + (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        pvn_trace(PVN_NET, "the reason could not be sent: errno %d", errno);
}

/* Gives the descriptor of a connection with a valid preamble to its owner, or closes it. The
 * connection has left the room. */
static void assign_connection(struct pvn_listener *l, const struct undecided *u,
                              const struct pvn_preamble *p)
{
    struct member *m = listener_find(l, p->nonce);
    bool is_control = p->kind == PVN_PREAMBLE_CTRL || p->kind == PVN_PREAMBLE_CTRL_KEY;

    if (is_control && !m && (!l->closed || l->keepers > 0)) {
        start_conn(l, u, p->nonce);
    } else if (!is_control && m) {
        l->stats.streams++;
        pvn_conn_adopt(m->conn, p->lane, p->stream, u->fd);
    } else {
        l->stats.rejected++;
        say_rejected(l, u,
                     !is_control ? "data for a connection that is not being set up"
                     : m         ? "a second control connection with the same nonce"
                                 : "the listener is closed");
        pvn_sock_close(u->fd);
    }
}

/* Refuses a connection that named another session. It stays in the room for REFUSED_NS, and is the first to be closed
 * if the room is full. */
static void refuse_session(struct pvn_listener *l, struct undecided *u, const char *why,
                           uint64_t now)
{
    l->stats.rejected++;
    say_rejected(l, u, why);
    u->refused = true;
    u->since_ns = now;
}

/* Refuses a connection that named the session but has not the right token. A control connection
 * comes from a peer, so it is sent the reason. It stays in the room as in refuse_session. */
static void refuse_unproved(struct pvn_listener *l, struct undecided *u,
                            const struct pvn_preamble *p, const char *why, uint64_t now)
{
    bool is_control = p->kind == PVN_PREAMBLE_CTRL || p->kind == PVN_PREAMBLE_CTRL_KEY;
    char text[200], key[PVN_KEY_TEXT];

    if (!is_control) {
        refuse_session(l, u, why, now);
        return;
    }
    if (p->kind == PVN_PREAMBLE_CTRL_KEY && l->cfg.key) {
        snprintf(text, sizeof(text), "%s (the listener's key has %s)", why,
                 pvn_key_describe(l->cfg.key, key));
        why = text;
    }
    say_why_not(u, why);
    listener_note_unproved(l, &u->peer, why);
    u->refused = true;
    u->since_ns = now;
}

/* Closes a refused connection when its time is over. True if entry i has left the room. */
static bool end_refused(struct pvn_listener *l, int i, uint64_t now)
{
    if (now - l->room[i].since_ns < REFUSED_NS)
        return false;
    pvn_sock_close(l->room[i].fd);
    leave_room(l, i);
    return true;
}

/* Reads the bytes of the preamble that have come, and acts on them. True if entry i has left the
 * room. */
static bool read_preamble(struct pvn_listener *l, int i, uint64_t now)
{
    struct undecided *u = &l->room[i];
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_preamble p;
    const char *why = NULL, *unproved = NULL;
    int verdict = 0;

    if (u->refused)
        return end_refused(l, i, now);
    while (verdict == 0 && !why) {
        /* Read no byte beyond the preamble: the next ones belong to the handshake or to a frame. */
        size_t want = pvn_preamble_bytes(u->bytes, u->got) - u->got;
        ssize_t n = recv(u->fd, u->bytes + u->got, want, MSG_DONTWAIT);

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
    if (verdict == -EACCES) {
        refuse_session(l, u, err.reason[0], now);
        return false;
    }
    if (verdict < 0)
        why = err.reason[0];
    if (verdict > 0 && !is_proved(l, &p, listener_find(l, p.nonce), &unproved)) {
        refuse_unproved(l, u, &p, unproved, now);
        return false;
    }
    if (verdict > 0) {
        struct undecided known = *u; /* u is overwritten when it leaves the room */

        leave_room(l, i);
        assign_connection(l, &known, &p);
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

static void read_preambles(struct pvn_listener *l, uint64_t now)
{
    for (int i = 0; i < l->nroom;)
        if (!read_preamble(l, i, now))
            i++;
}

/* Makes room for one more: closes a refused connection, or else the oldest. */
static void make_room(struct pvn_listener *l, uint64_t now)
{
    int i = 0;

    if (l->nroom < PVN_LISTENER_UNDECIDED)
        return;
    read_preambles(l, now);
    if (l->nroom < PVN_LISTENER_UNDECIDED)
        return;
    while (i < l->nroom && !l->room[i].refused)
        i++;
    if (i == l->nroom) {
        i = 0;
        l->stats.crowded++;
        say_rejected(l, &l->room[0], "too many unauthenticated connections, this is the oldest");
    }
    pvn_sock_close(l->room[i].fd);
    leave_room(l, i);
}

/* Keeps the errno of accept for pvn_listener_accept, and warns once. */
static void report_no_files(struct pvn_listener *l, const struct pvn_err *err)
{
    l->stats.no_files++;
    l->no_files = err->code;
    if (l->said_no_files)
        return;
    l->said_no_files = true;
    pvn_warn_err(err);
}

/* Allocates the room. It exists only while a connection is undecided, which is rarely. False: no
 * memory. */
static bool build_room(struct pvn_listener *l)
{
    if (!l->room)
        l->room = malloc(PVN_LISTENER_UNDECIDED * sizeof(*l->room));
    if (!l->room)
        pvn_warn("%s: no memory for a new connection", l->cfg.dev->name);
    return l->room != NULL;
}

/* Fills in which sockets may have a connection; false: none has. accept4 makes a socket before it
 * finds the queue empty: that takes 3 us for each socket, and this poll 0.4 us for all. */
static bool look_for_connections(const struct pvn_listener *l, bool ready[PVN_LISTEN_SOCKETS])
{
    struct pollfd p[PVN_LISTEN_SOCKETS];
    int rc;

    for (int i = 0; i < l->on.n; i++)
        p[i] = (struct pollfd){.fd = l->on.fd[i], .events = POLLIN};
    rc = poll(p, (nfds_t)l->on.n, 0);
    for (int i = 0; i < l->on.n; i++)
        ready[i] = rc < 0 || p[i].revents;
    return rc != 0;
}

/* Takes a connection from socket i. False: there was none, or it could not be taken. */
static bool take_one(struct pvn_listener *l, int i, uint64_t now)
{
    struct undecided u = {.since_ns = now, .at = i};
    struct pvn_err err = PVN_ERR_INIT;

    u.fd = pvn_sock_accept(l->on.fd[i], &u.peer, &err);
    if (u.fd == -EAGAIN)
        return false;
    if (u.fd < 0) {
        pvn_err_set_where(&err, "listener on %s", l->on.dev[i]->name);
        report_no_files(l, &err);
        return false;
    }
    l->stats.accepted++;
    if (!build_room(l)) {
        pvn_sock_close(u.fd);
        return false;
    }
    make_room(l, now);
    l->room[l->nroom++] = u;
    read_preamble(l, l->nroom - 1, now);
    return true;
}

void listener_take_in(struct pvn_listener *l, uint64_t now)
{
    bool ready[PVN_LISTEN_SOCKETS], more = true;

    l->no_files = 0;
    for (int n = 0; more && n < ACCEPT_BATCH && look_for_connections(l, ready); n++)
        for (int i = 0; i < l->on.n; i++)
            more &= !ready[i] || take_one(l, i, now);
    read_preambles(l, now);
    if (l->nroom == 0) {
        free(l->room);
        l->room = NULL;
    }
}
