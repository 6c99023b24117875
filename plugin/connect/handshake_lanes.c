/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The later half of connection set-up, OFFER to READY: both ends make lanes, test them, and agree
 * on those to keep. */
#include "config.h"
#include "connect/conn_priv.h"
#include "connect/handshake_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"

/* ---- OFFER ---- */

/* Warns of a lane that does not work. An attempt beside a working connection says so only in the
 * trace, because the loss is known already, and every attempt meets it again. */
static void warn(const struct pvn_conn *c, const struct pvn_err *err)
{
    char text[PVN_ERR_TEXT_LEN];

    if (!c->cfg.beside) {
        pvn_warn_err(err);
        return;
    }
    pvn_err_format(err, text, sizeof(text));
    pvn_trace(PVN_NET, "%s", text);
}

/* True if this connection resumes a comm, whose messages wait for it. */
static bool resumes(const struct pvn_conn *c)
{
    return (c->cfg.sender ? c->cfg.resumes : c->theirs.resumes) != 0;
}

/* True if this connection may have lanes of the port's v-th transport. */
static bool may_use(const struct pvn_conn *c, const struct pvn_device *dev, int v)
{
    if (v >= dev->nvia)
        return false;
    return dev->via[v].ops->is_fallback ? !c->cfg.no_fallback : !c->cfg.fallback_only;
}

/* Returns the number of a lane of port i by its v-th transport, in an offer. A lane of the port's
 * best transport (v = 0) has the port's number, even if other ports have no lane. The other lanes
 * have the numbers after the ports'. */
static uint8_t number_of(const struct pvn_conn *c, int i, int v)
{
    int n = v ? c->cfg.nports % PVN_MAX_LANES : i, k = 0;

    while (k < c->nlanes)
        if (c->lane_number[k++] == n) {
            n = (n + 1) % PVN_MAX_LANES;
            k = 0;
        }
    return (uint8_t)n;
}

/* Makes the lane of port i by its v-th transport. 0, even if it cannot be made; or the connection
 * has failed. */
static int make_lane(struct pvn_conn *c, int i, int v, struct pvn_err *err)
{
    const struct pvn_device *dev = c->cfg.port[i];
    struct pvn_lane_args *a = &c->lane_args[c->nlanes];
    struct pvn_lane *l = NULL;
    int rc;

    a->dev = dev;
    a->sender = c->cfg.sender;
    a->session = c->cfg.session;
    a->nonce = c->cfg.nonce;
    a->streams = c->cfg.key ? c->streams : NULL;
    a->sealed = pvn_conn_seals_data(c);
    a->traffic_class = c->traffic_class;
    a->service_level = c->mine.service_level;
    a->acknowledged = pvn_conn_failover(c);
    a->clear_to_send = pvn_conn_shared(c);
    a->may_block = c->cfg.beside || !resumes(c);
    a->spare = c->cfg.nports > 1 && !a->may_block;
    a->large = c->cfg.beside && pvn_conn_large(c);
    a->listen_addr = c->cfg.listen_addr[i];
    rc = dev->via[v].ops->lane_new(dev->via[v].index, a, &l, err);
    if (rc) {
        pvn_err_add(err, "no %s lane on %s", dev->via[v].ops->name, dev->name);
        if (pvn_params_get()->strict)
            return conn_fail_now(c, err);
        warn(c, err);
        return 0;
    }
    l->idx = c->nlanes;
    c->lane_arg[c->nlanes] = c->nlanes;
    c->lane_number[c->nlanes] = number_of(c, i, v);
    c->lane[c->nlanes++] = l;
    return 0;
}

/* Makes a lane per port and transport while there is room, and skips those that cannot be made. The
 * ports' best transports come first, and one lane is reserved for a transport that works with any
 * peer. 0, or the connection has failed. */
static int make_lanes(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    int room = PVN_MAX_LANES, i, v, rc;

    for (i = 0; i < c->cfg.nports; i++)
        if (may_use(c, c->cfg.port[i], 1))
            room = PVN_MAX_LANES - 1;
    for (v = 0; v < 2; v++, room = PVN_MAX_LANES)
        for (i = 0; i < c->cfg.nports; i++) {
            if (!may_use(c, c->cfg.port[i], v))
                continue;
            if (c->nlanes < room) {
                rc = make_lane(c, i, v, &err);
                if (rc)
                    return rc;
            } else if (v == 0) {
                pvn_info(PVN_NET, "%s: %s is not used: a comm has %d lanes at most", c->where,
                         c->cfg.port[i]->name, PVN_MAX_LANES);
            }
        }
    if (c->nlanes > 0)
        return 0;
    if (err.code == 0)
        pvn_err_set(&err, -ENODEV, "device %s has no transport", c->cfg.dev->name);
    return conn_fail_now(c, &err);
}

/* Sends an offer of lanes 0 .. nlanes-1; index[i] is the number of lane i in it. */
static int put_offer(struct pvn_conn *c, const uint8_t *index)
{
    uint8_t blob[PVN_MAX_LANES][PVN_OFFER_BLOB_MAX], body[PVN_FRAME_BODY_MAX];
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_offer o = {.n = c->nlanes};
    int i, n;

    for (i = 0; i < c->nlanes; i++) {
        struct pvn_lane *l = c->lane[i];

        n = l->ops->offer(l, blob[i], sizeof(blob[i]));
        if (n < 0) {
            err = l->err;
            if (err.code == 0)
                pvn_err_set(&err, n, "lane on %s has no offer", conn_lane_device(c, i)->name);
            return conn_fail_now(c, &err);
        }
        o.lane[i].index = index[i];
        o.lane[i].rail = conn_lane_device(c, i)->rail;
        o.lane[i].len = (uint16_t)n;
        o.lane[i].blob = blob[i];
        snprintf(o.lane[i].kind, sizeof(o.lane[i].kind), "%s", l->ops->name);
        snprintf(o.lane[i].name, sizeof(o.lane[i].name), "%s", conn_lane_device(c, i)->name);
    }
    n = conn_put_frame(c, PVN_FRAME_OFFER, body, pvn_offer_encode(body, sizeof(body), &o), &err);
    return n ? conn_fail_now(c, &err) : 0;
}

bool conn_offer_keeps(const struct pvn_conn *c)
{
    for (int i = 0; i < c->cfg.nports; i++)
        for (int v = 0; v < 2; v++)
            if (may_use(c, c->cfg.port[i], v) && !c->cfg.port[i]->via[v].ops->offer_keeps)
                return false;
    return true;
}

int conn_make_offer(struct pvn_conn *c)
{
    int rc = make_lanes(c);

    return rc ? rc : put_offer(c, c->lane_number);
}

void conn_withdraw_offer(struct pvn_conn *c)
{
    for (int k = 0; k < c->nlanes; k++) {
        c->lane[k]->ops->close(c->lane[k]);
        c->lane[k] = NULL;
    }
    c->nlanes = 0;
}

static int keep_blob(struct pvn_conn *c, int k, const struct pvn_lane_offer *o)
{
    c->peer_blob[k] = malloc(o->len + 1u);
    if (!c->peer_blob[k])
        return -ENOMEM;
    if (o->len)
        memcpy(c->peer_blob[k], o->blob, o->len);
    c->peer_blob_len[k] = o->len;
    return 0;
}

/* This end has a faster kind of lane, but the peer has none to pair with it. 0, or the connection
 * has failed (STRICT). */
static int fall_back(struct pvn_conn *c, const char *kind)
{
    struct pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EPROTONOSUPPORT,
                "the peer has no usable %s device for this connection (its own log says why), so "
                "only TCP is left",
                kind);
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    pvn_conn_locate(c, -1, &err);
    if (pvn_params_get()->strict) {
        pvn_err_add(&err, "NCCL_PVRDMA_STRICT is set");
        return conn_fail_now(c, &err);
    }
    pvn_err_add(&err, "TCP is used; NCCL_PVRDMA_STRICT=1 makes this an error");
    pvn_warn_err(&err);
    return 0;
}

/* Makes lane own[k] pair k, and closes lanes that are in no pair. All own[k] are distinct. */
static int arrange(struct pvn_conn *c, const int *own, int pairs)
{
    struct pvn_lane *old[PVN_MAX_LANES];
    bool kept_better = false;
    char lost[64] = "";
    int i, k;

    memcpy(old, c->lane, sizeof(old));
    memset(c->lane, 0, sizeof(c->lane));
    for (k = 0; k < pairs; k++) {
        c->lane[k] = old[own[k]];
        c->lane[k]->idx = k;
        c->lane_arg[k] = own[k];
        old[own[k]] = NULL;
        kept_better |= !c->lane[k]->ops->is_fallback;
    }
    for (i = 0; i < PVN_MAX_LANES; i++)
        if (old[i]) {
            if (!old[i]->ops->is_fallback)
                snprintf(lost, sizeof(lost), "%s", old[i]->ops->name);
            pvn_trace(PVN_NET, "%s to %s: lane %d (%s) has no partner", c->where, c->who, i,
                      old[i]->ops->name);
            old[i]->ops->close(old[i]);
        }
    c->nlanes = pairs;
    return lost[0] && !kept_better ? fall_back(c, lost) : 0;
}

static void list_kinds(char *buf, size_t cap, const struct pvn_offer *o)
{
    int i;

    buf[0] = '\0';
    for (i = 0; i < o->n; i++)
        pvn_str_append(buf, cap, "%s%s on %s", i ? ", " : "", o->lane[i].kind, o->lane[i].name);
    if (o->n == 0)
        pvn_str_append(buf, cap, "none");
}

static int lane_of_number(const struct pvn_conn *c, uint8_t number)
{
    for (int k = 0; k < c->nlanes; k++)
        if (c->lane_number[k] == number)
            return k;
    return -1;
}

int conn_step_offer_connector(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    enum pvn_frame_type type;
    struct pvn_offer o;
    const uint8_t *body;
    size_t len;
    int own[PVN_MAX_LANES], k, rc;

    if (c->nlanes == 0) { /* the offer did not go out with the HELLO */
        rc = conn_make_offer(c);
        if (rc == 0)
            rc = conn_flush(c);
        return rc ? rc : -EAGAIN; /* the answer has not come yet */
    }
    rc = conn_flush(c);
    if (rc)
        return rc;
    rc = conn_expect(c, 1u << PVN_FRAME_OFFER, &type, &body, &len);
    if (rc < 0)
        return rc;
    rc = pvn_offer_decode(body, len, &o, &err);
    if (rc == 0 && o.n == 0)
        rc = pvn_err_set(&err, -EPROTO, "the peer chose no lane");
    for (k = 0; rc == 0 && k < o.n; k++) {
        own[k] = lane_of_number(c, o.lane[k].index);
        if (own[k] < 0 || strcmp(c->lane[own[k]]->ops->name, o.lane[k].kind) != 0)
            rc = pvn_err_set(&err, -EPROTO, "the peer paired its %s lane with our lane %d of %d",
                             o.lane[k].kind, o.lane[k].index, c->nlanes);
        else if (keep_blob(c, k, &o.lane[k]) != 0)
            rc = pvn_err_set(&err, -ENOMEM, "no memory for the peer's offer");
    }
    if (rc) {
        if (rc == -EPROTO)
            pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
        return conn_fail_now(c, &err);
    }
    rc = arrange(c, own, o.n);
    if (rc)
        return rc;
    conn_goto(c, PVN_CONN_BIND);
    return 0;
}

static bool same_kind(const struct pvn_conn *c, int j, const struct pvn_lane_offer *o)
{
    return strcmp(c->lane[j]->ops->name, o->kind) == 0;
}

enum alike { SAME_RAIL, SAME_PLACE, ALIKE_AT_ALL, ALIKE_END };

/* True if this rule lets lane j of this end be the partner of the peer's lane o, which is of the
 * same kind. */
static bool are_alike(const struct pvn_conn *c, enum alike rule, int j,
                      const struct pvn_lane_offer *o)
{
    if (rule == SAME_RAIL)
        return o->rail >= 0 && o->rail == conn_lane_device(c, j)->rail;
    return rule == ALIKE_AT_ALL || (!c->lane[j]->ops->is_fallback && o->index == c->lane_number[j]);
}

/* Sets mate[i] to the lane of this end that is paired with the peer's i-th lane, -1: none. Both are
 * of the same kind. Lanes on the same rail are paired first, if both ends know their rail. Lanes of
 * ports with the same number follow, so that a port without a lane does not shift the pairs of the
 * others. The rest are paired in order. */
static void match_lanes(const struct pvn_conn *c, const struct pvn_offer *theirs, int *mate)
{
    unsigned used = 0;
    int i, j;

    for (i = 0; i < theirs->n; i++)
        mate[i] = -1;
    for (enum alike rule = 0; rule < ALIKE_END; rule++)
        for (i = 0; i < theirs->n; i++)
            for (j = 0; j < c->nlanes && mate[i] < 0; j++) {
                const struct pvn_lane_offer *o = &theirs->lane[i];

                if (used >> j & 1 || !same_kind(c, j, o) || !are_alike(c, rule, j, o))
                    continue;
                mate[i] = j;
                used |= 1u << j;
            }
}

/* Returns the number of pairs, or -ENOMEM. They keep the connector's order, which is NCCL's. */
static int choose_pairs(struct pvn_conn *c, const struct pvn_offer *theirs, int *own,
                        uint8_t *index)
{
    int mate[PVN_MAX_LANES], i, pairs = 0;

    match_lanes(c, theirs, mate);
    for (i = 0; i < theirs->n; i++) {
        if (mate[i] < 0)
            continue;
        if (keep_blob(c, pairs, &theirs->lane[i]) != 0)
            return -ENOMEM;
        own[pairs] = mate[i];
        index[pairs++] = theirs->lane[i].index;
    }
    return pairs;
}

int conn_step_offer_acceptor(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    enum pvn_frame_type type;
    struct pvn_offer o;
    const uint8_t *body;
    size_t len;
    uint8_t index[PVN_MAX_LANES];
    char text[PVN_ERR_REASON_LEN];
    int own[PVN_MAX_LANES], n, rc;
    size_t queued;

    rc = conn_expect(c, 1u << PVN_FRAME_OFFER, &type, &body, &len);
    if (rc < 0) {
        /* Our HELLO leaves alone if the peer's offer has not come with its HELLO. */
        int failed = rc == -EAGAIN ? conn_flush(c) : 0;

        return failed ? failed : rc;
    }
    rc = pvn_offer_decode(body, len, &o, &err);
    if (rc) {
        pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
        return conn_fail_now(c, &err);
    }
    rc = make_lanes(c);
    if (rc)
        return rc;
    n = choose_pairs(c, &o, own, index);
    if (n <= 0) {
        list_kinds(text, sizeof(text), &o);
        if (n < 0)
            pvn_err_set(&err, n, "no memory for the peer's offer");
        else
            pvn_err_set(
                &err, -EPROTONOSUPPORT,
                "both ends have no kind of lane in common: the peer has %.200s, this end %s on %s",
                text, c->lane[0]->ops->name, conn_lane_device(c, 0)->name);
        return conn_fail_now(c, &err);
    }
    rc = arrange(c, own, n);
    if (rc)
        return rc;
    queued = c->ctrl.tx_len;
    rc = put_offer(c, index);
    if (rc)
        return rc;
    /* Held until this end's lanes are bound: when the connector has the offer, they can receive. */
    c->ctrl.tx_held = c->ctrl.tx_len - queued;
    conn_goto(c, PVN_CONN_BIND);
    return 0;
}

/* ---- BIND, VERIFY ---- */

/* Leaves lane k out. 0 if others are left or may still come; else the connection has failed. */
static int drop_lane(struct pvn_conn *c, int k, struct pvn_err *err)
{
    unsigned all = (1u << c->nlanes) - 1;
    char lane[128];

    conn_lane_name(c, k, lane, sizeof(lane));
    pvn_conn_locate(c, k, err);
    c->dropped |= 1u << k;
    if (pvn_params_get()->strict || (c->dropped & all) == all) {
        pvn_err_add(err, "%s does not work%s", lane,
                    (c->dropped & all) == all ? " and no other is left"
                                              : ", and NCCL_PVRDMA_STRICT is set");
        return conn_fail_now(c, err);
    }
    pvn_err_add(err, "%s does not work and is left out", lane);
    warn(c, err);
    c->lane[k]->ops->close(c->lane[k]);
    c->lane[k] = NULL;
    return 0;
}

static int lane_failed(struct pvn_conn *c, int k, int code)
{
    struct pvn_err err = c->lane[k]->err;

    if (err.code == 0)
        pvn_err_set(&err, code, "the lane gave no reason");
    return drop_lane(c, k, &err);
}

/* True if a lane has to wait until the peer has sent its first request. A queue pair's first
 * request that is sent before the peer's queue pair is connected is retransmitted only after a
 * timeout of seconds. The connector goes first, because it knows that the acceptor has bound its
 * lanes. The acceptor does not know when the connector has bound its own. */
static bool goes_second(const struct pvn_conn *c, const struct pvn_lane *l)
{
    return !c->cfg.sender && !c->ready_seen && l->caps & PVN_LANE_CONNECTOR_FIRST;
}

/* True if a lane that goes second still has time. Its limit begins with the peer's READY
 * (conn_step_verify), which comes late if one of the peer's lanes has taken all of its time. */
static bool waits_for_ready(const struct pvn_conn *c, const struct pvn_lane *l, uint64_t waited)
{
    const struct pvn_params *p = pvn_params_get();

    return goes_second(c, l) && waited < p->verify_timeout + p->ready_timeout;
}

int conn_late_lanes(struct pvn_conn *c, const char *knob, uint64_t waited)
{
    unsigned done = c->state == PVN_CONN_BIND ? c->bound : c->verified;
    bool bind = c->state == PVN_CONN_BIND;
    int k, rc;

    if (!bind && c->state != PVN_CONN_VERIFY)
        return 1;
    for (k = 0; k < c->nlanes; k++) {
        struct pvn_err err = PVN_ERR_INIT;
        enum pvn_past past;

        if ((done | c->dropped) >> k & 1 || (!bind && waits_for_ready(c, c->lane[k], waited)))
            continue;
        pvn_err_set(&err, -ETIMEDOUT, "%s not done in time (%s)",
                    bind ? "connecting the lane" : "first round trip over the lane", knob);
        pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
        /* A device's only lane over TCP goes to the socket of the control connection, which works. */
        past = c->lane[k]->ops->is_fallback && c->cfg.nports == 1 ? PVN_PAST_ANSWERS
                                                                  : PVN_PAST_NEVER_WORKED;
        pvn_err_set_hint(&err, pvn_hint_id_find(PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_VERIFY, past));
        rc = drop_lane(c, k, &err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Takes the peer's frames while lanes are being set up: its READY, which may come before ours, or
 * its error. */
static int hear_peer(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    enum pvn_frame_type type;
    const uint8_t *body;
    size_t len;
    int rc;

    /* A peer that has this end's READY as well is UP. Its next frames are left for later. */
    if (c->ready_seen && c->state == PVN_CONN_READY)
        return 0;
    rc = conn_expect(c, c->ready_seen ? 0 : 1u << PVN_FRAME_READY, &type, &body, &len);
    if (rc < 0)
        return rc == -EAGAIN ? 0 : rc;
    rc = pvn_ready_decode(body, len, &c->ready_mask, &err);
    if (rc) {
        pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
        return conn_fail_now(c, &err);
    }
    c->ready_seen = true;
    return 0;
}

static int listen_to_peer(struct pvn_conn *c)
{
    int rc = conn_flush(c);

    return rc ? rc : hear_peer(c);
}

/* Hands data sockets that have come in to their lanes. */
static void empty_inbox(struct pvn_conn *c)
{
    int i, kept = 0;

    pthread_mutex_lock(&c->inbox_lock);
    for (i = 0; i < c->ninbox; i++) {
        struct pvn_conn_socket *s = &c->inbox[i];
        struct pvn_lane *l = s->lane < c->nlanes ? c->lane[s->lane] : NULL;
        int rc;

        if (l && !(c->bound >> s->lane & 1)) {
            c->inbox[kept++] = *s;
            continue;
        }
        pvn_sock_set_class(s->fd, c->traffic_class); /* the listener did not know the class */
        rc = l ? l->ops->adopt(l, s->stream, s->fd) : -ENOENT;
        if (rc) {
            pvn_info(PVN_NET,
                     "%s: data connection %u of lane %u from %s is unexpected and is closed (%d)",
                     c->where, s->stream, s->lane, c->who, rc);
            pvn_sock_close(s->fd);
        }
    }
    c->ninbox = kept;
    pthread_mutex_unlock(&c->inbox_lock);
}

/* Returns until when a lane repeats failed attempts (see pvn_lane.retry_until_ns). The only lane of a
 * new comm has half of VERIFY_TIMEOUT: the peer waits for the whole of it, and must not end the
 * connection before this end has reported its reason. A lane beside others is left out at once.
 * Failover and failback repeat the whole connection instead. */
static uint64_t retry_until(const struct pvn_conn *c)
{
    if (c->nlanes > 1 || c->cfg.beside || resumes(c))
        return 0;
    return c->entered_ns + pvn_params_get()->verify_timeout / 2;
}

int conn_step_bind(struct pvn_conn *c)
{
    unsigned all = (1u << c->nlanes) - 1;
    int k, rc;

    for (k = 0; k < c->nlanes; k++) {
        if ((c->bound | c->dropped) >> k & 1)
            continue;
        c->lane[k]->retry_until_ns = retry_until(c);
        rc = c->lane[k]->ops->bind(c->lane[k], c->peer_blob[k], c->peer_blob_len[k]);
        if (rc == 0)
            c->bound |= 1u << k;
        else if (rc != -EAGAIN && (rc = lane_failed(c, k, rc)) != 0)
            return rc;
    }
    if (((c->bound | c->dropped) & all) != all) {
        rc = listen_to_peer(c);
        return rc ? rc : -EAGAIN;
    }
    c->ctrl.tx_held = 0; /* the acceptor's offer leaves with the first step of VERIFY */
    for (k = 0; k < c->nlanes; k++) {
        free(c->peer_blob[k]);
        c->peer_blob[k] = NULL;
    }
    conn_goto(c, PVN_CONN_VERIFY);
    return 0;
}

int conn_step_verify(struct pvn_conn *c)
{
    unsigned all = (1u << c->nlanes) - 1;
    bool first = !c->ready_seen;
    int k, rc = listen_to_peer(c);

    if (rc)
        return rc;
    if (first && c->ready_seen && !c->cfg.sender) /* lanes that go second begin now */
        c->entered_ns = pvn_now_ns();
    empty_inbox(c);
    for (k = 0; k < c->nlanes; k++) {
        if ((c->verified | c->dropped) >> k & 1 || goes_second(c, c->lane[k]))
            continue;
        /* The peer has left the lane out and waits for us. Its own log says why. */
        if (c->ready_seen && !(c->ready_mask >> k & 1)) {
            struct pvn_err err = PVN_ERR_INIT;

            pvn_err_set(&err, -EREMOTEIO, "the peer could not use the lane");
            pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
            rc = drop_lane(c, k, &err);
            if (rc)
                return rc;
            continue;
        }
        c->lane[k]->retry_until_ns = retry_until(c);
        rc = c->lane[k]->ops->verify(c->lane[k]);
        if (rc == 0)
            c->verified |= 1u << k;
        else if (rc != -EAGAIN && (rc = lane_failed(c, k, rc)) != 0)
            return rc;
    }
    if (((c->verified | c->dropped) & all) != all)
        return -EAGAIN;
    conn_goto(c, PVN_CONN_READY);
    return 0;
}

/* ---- READY ---- */

/* Classes of lanes that cannot be mixed in one comm: fallback, without clear-to-send, with
 * clear-to-send. */
static int class_of(const struct pvn_lane *l)
{
    return l->ops->is_fallback ? 0 : l->caps & PVN_LANE_NEEDS_CTS ? 2 : 1;
}

/* Keeps the best class of the lanes that work at both ends. Both ends choose the same class,
 * because they have the same lanes. */
static void release_fallbacks(struct pvn_conn *c)
{
    int best = 0, k;

    for (k = 0; k < c->nlanes; k++)
        if (c->lane[k] && class_of(c->lane[k]) > best)
            best = class_of(c->lane[k]);
    for (k = 0; k < c->nlanes; k++)
        if (c->lane[k] && class_of(c->lane[k]) < best) {
            c->lane[k]->ops->close(c->lane[k]);
            c->lane[k] = NULL;
        }
}

/* Keeps the lanes that work at both ends, in the same order at both. */
static int keep_common_lanes(struct pvn_conn *c)
{
    int k, kept = 0, rc;

    for (k = 0; k < c->nlanes; k++)
        if (c->lane[k] && !(c->ready_mask >> k & 1)) {
            struct pvn_err err = PVN_ERR_INIT;

            pvn_err_set(&err, -EREMOTEIO, "the peer could not use the lane");
            pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
            rc = drop_lane(c, k, &err);
            if (rc)
                return rc;
        }
    release_fallbacks(c);
    for (k = 0; k < c->nlanes; k++)
        if (c->lane[k]) {
            struct pvn_lane *l = c->lane[k];

            c->lane[k] = NULL;
            c->lane_arg[kept] = c->lane_arg[k];
            l->idx = kept;
            c->lane[kept++] = l;
        }
    c->nlanes = kept;
    return 0;
}

static void come_up(struct pvn_conn *c)
{
    char text[PVN_ERR_TEXT_LEN] = "";
    int i;

    pthread_mutex_lock(&c->inbox_lock);
    for (i = 0; i < c->ninbox; i++)
        pvn_sock_close(c->inbox[i].fd);
    c->ninbox = 0;
    free(c->inbox);
    c->inbox = NULL;
    pthread_mutex_unlock(&c->inbox_lock);
    conn_watch_control(c);
    conn_goto(c, PVN_CONN_UP);
    pvn_conn_lanes_text(c, text, sizeof(text));
    pvn_stat_lanes(c->stat, text);
    /* NCCL shows INIT by default and NET only on request, and this line concerns every user. */
    pvn_info(PVN_INIT | PVN_NET, "%s: %s %s, wire version %d, %s%d lane%s: %s", c->where,
             c->cfg.sender ? "sends to" : "receives from", c->who,
             pvn_wire_agree(&c->mine, &c->theirs, NULL),
             c->cfg.key ? "control connection sealed, " : "", c->nlanes, c->nlanes == 1 ? "" : "s",
             text);
}

int conn_step_ready(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    uint8_t body[16];
    int rc;

    if (!c->frame_sent) {
        rc = conn_put_frame(c, PVN_FRAME_READY, body,
                            pvn_ready_encode(body, sizeof(body), c->verified), &err);
        if (rc)
            return conn_fail_now(c, &err);
        c->ready_sent = true;
    }
    rc = listen_to_peer(c);
    if (rc)
        return rc;
    if (!c->ready_seen || c->ctrl.tx_len)
        return -EAGAIN;
    rc = keep_common_lanes(c);
    if (rc)
        return rc;
    come_up(c);
    return 0;
}
