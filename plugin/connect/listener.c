/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/listener_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "base/random.h"

#define KEY_FILE "NCCL_PVRDMA_KEY_FILE"

static void stop_listening(struct pvn_listener *l)
{
    pvn_listen_sockets_close(&l->on);
    for (int i = 0; i < l->nroom; i++)
        pvn_sock_close(l->room[i].fd);
    l->nroom = 0;
}

/* No member is given out here, because each of those holds a reference. Members are left after
 * close only if a comm let go while its peer was reconnecting. */
static void destroy(struct pvn_listener *l)
{
    while (l->members)
        pvn_conn_close(listener_remove(l, &l->members),
                       "the comm that was to be connected again was closed");
    stop_listening(l);
    free(l->room);
    free(l->unproved);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Releases a reference and the lock. */
static void unref(struct pvn_listener *l)
{
    bool last = --l->refs == 0;

    listener_unlock(l);
    if (last)
        destroy(l);
}

int pvn_listener_open(const struct pvn_listener_cfg *cfg, uint8_t *handle,
                      struct pvn_listener **out, struct pvn_err *err)
{
    struct pvn_handle h = {.version = PVN_WIRE_VERSION};
    struct pvn_listener *l = calloc(1, sizeof(*l));
    int i, rc = 0;

    if (!l)
        return pvn_err_set(err, -ENOMEM, "no memory for a listener on %s", cfg->dev->name);
    pthread_mutex_init(&l->lock, NULL);
    l->cfg = *cfg;
    l->on.nports = cfg->nports;
    l->on.nothers = cfg->nothers;
    memcpy(l->on.other, cfg->other, sizeof(l->on.other));
    l->refs = 1;
    l->session = pvn_random64();
    for (i = 0; i < cfg->nports && rc == 0; i++)
        rc = pvn_listen_sockets_add(&l->on, cfg->port[i], &cfg->port[i]->addr, err);
    if (rc == 0 &&
        pvn_wire_addr_from_sockaddr(&h.addr, (const struct sockaddr *)&l->on.addr[0]) != 0)
        rc = pvn_err_set(err, -EAFNOSUPPORT, "device %s has no IP address", cfg->dev->name);
    if (rc) {
        destroy(l);
        return rc;
    }
    for (i = 0; i < pvn_handle_room(&h.addr) && i < cfg->port[0]->nmore; i++)
        if (pvn_listen_sockets_add(&l->on, cfg->port[0], &cfg->port[0]->more[i].addr, NULL) == 0)
            pvn_wire_addr_from_sockaddr(&h.more[l->on.nmore++],
                                        (const struct sockaddr *)&l->on.addr[l->on.n - 1]);
    h.nmore = l->on.nmore;
    h.has_key = cfg->key != NULL;
    h.features = pvn_conn_features(cfg->lazy, cfg->failover, cfg->shared, h.has_key);
    h.session = l->session;
    pvn_handle_encode(handle, &h);
    l->stat = pvn_stat_new(PVN_STAT_LISTEN, false, cfg->dev->name);
    pvn_stat_state(l->stat, PVN_STAT_LISTEN, "LISTEN", "accept is not being called");
    *out = l;
    return 0;
}

/* Removes a connection that failed before it was given out. True if that is accept's result: the
 * peer had identified itself, so the caller that waits for it must know. */
static bool conn_failed(struct pvn_listener *l, struct member **at, struct pvn_err *err)
{
    struct pvn_conn *c = (*at)->conn;
    bool known = c->hello_seen || c->err.code == -EPROTONOSUPPORT;

    if (known) {
        *err = c->err;
    } else if (c->err.code == -EKEYREJECTED || strstr(c->err.reason[0], KEY_FILE)) {
        /* The second case: the peer has a key, this process has none, and the peer has said so. */
        listener_note_unproved(l, &c->cfg.peer, c->err.reason[0]);
    } else {
        l->stats.rejected++;
        pvn_info(PVN_NET, "%s: a connection from %s ended before its HELLO: %s", l->cfg.dev->name,
                 c->who, c->err.reason[0]);
    }
    listener_set_aside(l, at, NULL);
    return known;
}

/* Until a peer connects, the listener's row says where one is expected. */
static void publish_wait(struct pvn_listener *l, uint64_t now)
{
    char text[160], addr[PVN_ADDR_TEXT_LEN];

    if (now != l->waiting_ns) {
        pvn_stat_look(l->stat, now);
        return;
    }
    snprintf(text, sizeof(text), "waiting for a peer to connect to %s",
             pvn_addr_format((const struct sockaddr *)&l->on.addr[0], addr, sizeof(addr)));
    pvn_stat_state(l->stat, PVN_STAT_LISTEN, "ACCEPT", text);
}

/* Returns -ETIMEDOUT with *err if ACCEPT_TIMEOUT is over, else 0. coming: a peer has sent its
 * HELLO, and the limits of its states count instead. */
static int accept_deadline(struct pvn_listener *l, uint64_t now, bool coming, struct pvn_err *err)
{
    uint64_t limit = pvn_params_get()->accept_timeout;
    char text[PVN_ADDR_TEXT_LEN], why[PVN_ERR_REASON_LEN] = "", desc[80];

    if (l->waiting_ns == 0)
        l->waiting_ns = now;
    else if (now - l->called_ns > PVN_AWAY_NS)
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
    if (l->unproved)
        pvn_str_append(why, sizeof(why), "; %s", l->unproved);
    pvn_err_set(err, -ETIMEDOUT, "no peer has connected to %s within %.3g s (%sACCEPT_TIMEOUT)%s",
                pvn_addr_format((const struct sockaddr *)&l->on.addr[0], text, sizeof(text)),
                (double)limit / PVN_NS_PER_S, PVN_PARAM_PREFIX, why);
    pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    pvn_err_set_where(err, "%s", l->cfg.dev->name);
    pvn_err_set_hint(
        err, pvn_hint_id_find(PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_ACCEPT, PVN_PAST_NEVER_WORKED));
    return -ETIMEDOUT;
}

/* Called when accept reports a set-up that failed after this end's READY. The peer is up if it has
 * that READY, and only its own was lost. With failover it would connect again for as long as
 * something listens here, and no comm of this end would answer. */
static void refuse_from_now_on(struct pvn_listener *l)
{
    for (const struct member *m = l->members; m; m = m->next)
        if (m->given)
            return;
    if (l->keepers > 0)
        return;
    while (l->members)
        listener_set_aside(l, &l->members, "a set-up at this listener has failed, which closed it");
    stop_listening(l);
}

/* Accept was called again after refuse_from_now_on. */
static int report_closed(struct pvn_listener *l, struct pvn_err *err)
{
    pvn_err_set(
        err, -ECONNABORTED,
        "this listener was closed when a set-up at it failed, because the peer may take that "
        "for done; a new peer needs a new listener");
    pvn_err_set_where(err, "%s", l->cfg.dev->name);
    return err->code;
}

/* Steps a connection that may be for a new comm. The peer may have sent its offer with the HELLO. A
 * lazy comm has no lanes yet when accept gives it out. */
static int step_new(struct pvn_conn *c)
{
    bool before_hello = !c->hello_seen;
    int rc = pvn_conn_step(c);

    if (rc == -EAGAIN && before_hello && c->hello_seen && !c->theirs.resumes && !c->cfg.lazy)
        rc = pvn_conn_step(c);
    return rc;
}

int pvn_listener_accept(struct pvn_listener *l, struct pvn_conn **conn, struct pvn_err *err)
{
    struct member **at;
    bool coming = false, peer_may_be_up = false;
    uint64_t now;
    int rc = 0;

    *conn = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->on.n == 0)
        rc = report_closed(l, err);
    /* Read the clock with the lock held: its last holder may have accepted connections until
     * now. */
    now = pvn_now_ns();
    listener_take_in(l, now);
    for (at = &l->members; *at && !*conn && rc == 0;) {
        struct member *m = *at;

        /* Connections that replace a comm's lanes belong to that comm (pvn_listener_resumed). */
        if (m->given || m->conn->theirs.resumes) {
            at = &m->next;
            continue;
        }
        rc = step_new(m->conn);
        if (m->conn->theirs.resumes) {
            rc = 0;
            at = &m->next;
            continue;
        }
        if (rc == 0) {
            *conn = listener_remove(l, at);
        } else if (rc == -EAGAIN && m->conn->cfg.lazy && m->conn->hello_seen) {
            *conn = m->conn;
            m->given = true;
            l->refs++;
            rc = 0;
        } else if (rc == -EAGAIN) {
            coming |= m->conn->hello_seen;
            at = &m->next;
            rc = 0;
        } else {
            peer_may_be_up = m->conn->ready_sent && pvn_conn_failover(m->conn);
            if (!conn_failed(l, at, err))
                rc = 0;
        }
    }
    if (rc && peer_may_be_up)
        refuse_from_now_on(l);
    if (*conn || rc) {
        l->waiting_ns = 0;
        pvn_stat_state(l->stat, PVN_STAT_LISTEN, "LISTEN", "accept is not being called");
    } else {
        rc = accept_deadline(l, now, coming, err);
    }
    listener_unlock(l);
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

void pvn_listener_take_in(struct pvn_listener *l)
{
    pthread_mutex_lock(&l->lock);
    listener_take_in(l, pvn_now_ns());
    listener_unlock(l);
}

int pvn_listener_step(struct pvn_listener *l, struct pvn_conn *conn)
{
    pvn_listener_take_in(l);
    /* The step runs without the lock, because it may wait for an adapter. Threads that hold the lock
     * fill this connection's inbox, which has a lock of its own, and read only members that are fixed
     * since its HELLO. */
    return pvn_conn_step(conn);
}

void pvn_listener_leave(struct pvn_listener *l, struct pvn_conn *conn)
{
    pthread_mutex_lock(&l->lock);
    listener_take_out(l, conn, conn->state == PVN_CONN_UP ? conn->theirs.resumes : 0);
    unref(l);
}

void pvn_listener_close(struct pvn_listener *l)
{
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
    for (struct member **at = &l->members; *at;)
        /* A comm that is up may still take the connection that resumes it. */
        if ((*at)->given || ((*at)->conn->theirs.resumes && l->keepers > 0))
            at = &(*at)->next;
        else
            listener_set_aside(l, at, "the listener was closed before the connection was accepted");
    unref(l);
}

void pvn_listener_get_stats(struct pvn_listener *l, struct pvn_listener_stats *out)
{
    pthread_mutex_lock(&l->lock);
    *out = l->stats;
    pthread_mutex_unlock(&l->lock);
}
