/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/conn_priv.h"
#include "connect/handshake_priv.h"
#include "connect/listen_sockets.h"
#include "connect/retry.h"
#include "connect/route.h"

#include <errno.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "base/random.h"
#include "seal/seal_begin.h"

/* If a listener refuses connections, its process is gone or a firewall rejects them. It is dialled
 * for this long all the same, because a fail-over address refuses connections while it moves
 * between machines. */
#define REFUSED_LIMIT_NS (2 * PVN_NS_PER_S)
/* How many times a connector dials again after the peer closed the connection before its first
 * frame. */
enum { MAX_REDIALS = 3 };

int conn_step_start(struct pvn_conn *c)
{
    conn_goto(c, PVN_CONN_DIAL);
    return 0;
}

/* ---- DIAL ---- */

/* The traffic class is the parameter's, else the one that the communicator requests, as in NCCL.
 * Without TC_FORCE the communicator comes first. */
static int effective_class(int requested)
{
    const struct pvn_params *p = pvn_params_get();

    if (requested < 0 || (p->tc_force && p->traffic_class >= 0))
        return p->traffic_class;
    return requested;
}

/* The service level is the parameter's, else the number of the traffic class that the communicator
 * requests, as in NCCL. The acceptor's is the parameter's, else the connector's. */
static uint8_t service_level(const struct pvn_conn *c)
{
    const struct pvn_params *p = pvn_params_get();

    if (p->service_level >= 0)
        return (uint8_t)p->service_level;
    if (!c->cfg.sender)
        return c->theirs.service_level;
    return c->cfg.traffic_class < 0 ? 0 : (uint8_t)c->cfg.traffic_class;
}

/* Dials the peer's other address next. The address that seemed near belongs to a machine in another
 * network with the same numbers, or to nobody. */
static void try_instead(struct pvn_conn *c)
{
    struct sockaddr_storage peer = c->cfg.peer;

    if (!c->cfg.has_instead)
        return;
    c->cfg.peer = c->cfg.instead;
    c->cfg.instead = peer;
    conn_name_peer(c);
}

/* True if the peer named its loopback address while this end uses another interface: the peer may
 * be elsewhere. */
static bool is_elsewhere(const struct pvn_conn *c)
{
    return pvn_addr_is_loopback((const struct sockaddr *)&c->cfg.peer) &&
           !pvn_addr_is_loopback((const struct sockaddr *)&c->cfg.port[0]->addr);
}

static int dial_failed(struct pvn_conn *c, int code, struct pvn_err *err)
{
    uint64_t now = pvn_now_ns();
    bool again, same;

    pvn_ctrl_close(&c->ctrl);
    if (err->code == 0) {
        pvn_err_set(err, code, "connecting failed");
        pvn_err_set_hint(
            err, pvn_hint_id_find(PVN_HINT_ERRNO, code, PVN_PHASE_DIAL, PVN_PAST_NEVER_WORKED));
    }
    if (is_elsewhere(c))
        pvn_err_set_hint(
            err, pvn_hint_id_find(PVN_HINT_ERRNO, code, PVN_PHASE_DIAL, PVN_PAST_ELSEWHERE));
    if (code == -ECONNREFUSED) {
        if (c->refused_ns == 0)
            c->refused_ns = now;
        /* A listener that is kept for failovers goes away only with its process, so a refusal is
         * final. */
        again = !c->cfg.resumes && now - c->refused_ns < REFUSED_LIMIT_NS;
    } else {
        c->refused_ns = 0;
        again = pvn_retry_may_help(code);
    }
    if (!again) {
        if (code == -ECONNREFUSED)
            pvn_err_set_fault(err, PVN_FAULT_REMOTE);
        return conn_fail_now(c, err);
    }
    if (!c->said_dial) {
        char text[PVN_ERR_TEXT_LEN];

        c->said_dial = true;
        pvn_err_format(err, text, sizeof(text));
        pvn_info(PVN_NET, "%s to %s: %s; trying again until NCCL_PVRDMA_CONNECT_TIMEOUT is over",
                 c->where, c->who, text);
    }
    same = c->err.code == err->code;
    c->err = *err; /* quoted in warnings meanwhile, and in the error if the deadline comes */
    if (!same)
        conn_publish(c);
    try_instead(c);
    c->redial_ns = now + pvn_retry_pause_ns(PVN_RETRY_DIAL, c->attempts++);
    return -EAGAIN;
}

/* Connector: true if both this end and the listener have a key, or neither has. */
static bool keys_fit(const struct pvn_conn *c)
{
    return (c->cfg.key != NULL) == c->cfg.peer_has_key;
}

/* Fails because only one end has a key, and sends the listener the reason as well. Returns as
 * pvn_conn_fail. */
static int refuse_unlike(struct pvn_conn *c)
{
    struct pvn_preamble p = {.version = PVN_WIRE_VERSION,
                             .kind = PVN_PREAMBLE_CTRL,
                             .session = c->cfg.session,
                             .nonce = pvn_random64()};
    uint8_t bytes[PVN_PREAMBLE_MOST];
    struct pvn_err err = PVN_ERR_INIT;

    /* conn_fail_now sends the reason after it, in an ERROR frame. */
    pvn_ctrl_put(&c->ctrl, bytes, (size_t)pvn_preamble_encode(bytes, &p), NULL);
    if (c->cfg.key)
        pvn_err_set(
            &err, -EKEYREJECTED,
            "this process has a key (NCCL_PVRDMA_KEY_FILE), and the peer's listener has none, "
            "or is of a release without keys");
    else
        pvn_err_set(
            &err, -EKEYREJECTED,
            "the peer's listener has a key (NCCL_PVRDMA_KEY_FILE), and this process has none");
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    pvn_err_set_hint(&err, PVN_HINT_OTHER_KEY);
    return conn_fail_now(c, &err);
}

int conn_step_dial(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    const struct pvn_device *dev = c->cfg.port[0];
    const struct sockaddr_storage *from;
    int rc;

    if (c->ctrl.fd < 0) {
        if (pvn_now_ns() < c->redial_ns)
            return -EAGAIN;
        c->traffic_class = effective_class(c->cfg.traffic_class);
        from = pvn_route_source(dev, (const struct sockaddr *)&c->cfg.peer);
        rc = pvn_sock_dial(from, from ? dev->addr_len : 0, &c->cfg.peer, c->cfg.peer_len,
                           c->traffic_class, &err);
        if (rc < 0)
            return dial_failed(c, rc, &err);
        pvn_ctrl_init(&c->ctrl, rc);
    }
    rc = pvn_sock_connected(c->ctrl.fd);
    if (rc == -EAGAIN)
        return rc;
    if (rc)
        return dial_failed(c, rc, &err);
    pvn_err_clear(&c->err);
    if (!keys_fit(c))
        return refuse_unlike(c);
    conn_goto(c, c->cfg.key ? PVN_CONN_SEAL : PVN_CONN_HELLO);
    return 0;
}

/* ---- HELLO ---- */

static int put_hello(struct pvn_conn *c, struct pvn_err *err)
{
    uint8_t body[512];

    return conn_put_frame(c, PVN_FRAME_HELLO, body, pvn_hello_encode(body, sizeof(body), &c->mine),
                          err);
}

/* Warns if the user has requested failover at this end and the peer has none. All comms with a
 * process have the same text, so the log folds it. */
static void warn_without_failover(const struct pvn_conn *c)
{
    if (pvn_params_get()->failover != 1 || !c->cfg.failover || pvn_conn_failover(c))
        return;
    pvn_warn("no failover with %s pid %u, where it is off (NCCL_PVRDMA_FAILOVER=0 or auto, or "
             "NCCL_PVRDMA_STRICT=1): a lost connection ends the job; set NCCL_PVRDMA_FAILOVER=1 "
             "for all ranks",
             c->theirs.host, c->theirs.pid);
}

static int take_hello(struct pvn_conn *c, const uint8_t *body, size_t len, struct pvn_err *err)
{
    int rc = pvn_hello_decode(body, len, &c->theirs, err);

    if (rc)
        return rc;
    rc = pvn_wire_agree(&c->mine, &c->theirs, err);
    if (rc < 0)
        return rc;
    if (c->theirs.session != c->cfg.session)
        return pvn_err_set(err, -EPROTO,
                           "HELLO for another session: a stale or misdirected handle");
    if (c->nlanes > 0 && (c->theirs.features ^ c->cfg.peer_features) & PVN_FEATURES_IN_HANDLE)
        return pvn_err_set(
            err, -EPROTO, "HELLO with features %llx, and the handle of its listener had %llx",
            (unsigned long long)c->theirs.features, (unsigned long long)c->cfg.peer_features);
    c->hello_seen = true;
    c->heard_ns = pvn_now_ns();
    if (!c->cfg.sender)
        c->cfg.beside = c->theirs.features & PVN_FEATURE_BESIDE;
    if (!c->cfg.sender)
        c->cfg.control = c->theirs.features & PVN_FEATURE_CONTROL;
    if (!c->cfg.sender)
        c->cfg.away = c->theirs.features & PVN_FEATURE_AWAY;
    if (!c->cfg.sender && c->theirs.resumes) {
        pvn_stat_discard(c->stat);
        c->stat = NULL;
    }
    conn_name_peer(c);
    warn_without_failover(c);
    return 0;
}

/* Fails because of the peer's HELLO. An errno alone does not explain that: the peer has another
 * version or is no peer. */
static int hello_refused(struct pvn_conn *c, struct pvn_err *err)
{
    pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    return conn_fail_now(c, err);
}

bool conn_redial(struct pvn_conn *c)
{
    if (c->redials >= MAX_REDIALS)
        return false;
    pvn_trace(PVN_NET, "%s to %s: closed by the peer before its HELLO, dialling again", c->where,
              c->who);
    c->redials++;
    conn_withdraw_offer(c);
    pvn_ctrl_close(&c->ctrl);
    try_instead(c);
    c->redial_ns = pvn_now_ns() + pvn_retry_pause_ns(PVN_RETRY_DIAL, c->redials);
    conn_goto(c, PVN_CONN_DIAL);
    return true;
}

/* Queues the preamble, unless there is a key: it went out in SEAL then. */
static int put_preamble(struct pvn_conn *c, struct pvn_err *err)
{
    struct pvn_preamble p = {.version = PVN_WIRE_VERSION,
                             .kind = PVN_PREAMBLE_CTRL,
                             .session = c->cfg.session,
                             .nonce = pvn_random64()};
    uint8_t bytes[PVN_PREAMBLE_MOST];

    if (c->cfg.key)
        return 0;
    c->cfg.nonce = p.nonce;
    return pvn_ctrl_put(&c->ctrl, bytes, (size_t)pvn_preamble_encode(bytes, &p), err);
}

/* Checks the key file again if this connection replaces another one. 0, or the connection has
 * failed and the peer has been sent the reason. */
static int check_replaced(struct pvn_conn *c, bool resumes)
{
    struct pvn_err err = PVN_ERR_INIT;

    if (!c->cfg.key || !resumes || pvn_seal_check_replaced(&err) == 0)
        return 0;
    return conn_fail_now(c, &err);
}

int conn_step_hello_connector(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    enum pvn_frame_type type = PVN_FRAME_ERROR;
    const uint8_t *body = NULL;
    size_t len = 0;
    int rc;

    if (!c->frame_sent) {
        if (check_replaced(c, c->cfg.resumes) != 0)
            return c->err.code;
        c->mine.traffic_class = (int16_t)c->traffic_class;
        c->mine.service_level = service_level(c);
        rc = put_preamble(c, &err);
        if (rc == 0)
            rc = put_hello(c, &err);
        if (rc)
            return conn_fail_now(c, &err);
        /* A new comm saves a round trip, because the handle names the peer's features. A
         * connection that replaces lanes often finds no peer, and makes lanes when it has one. */
        if (!c->cfg.resumes && conn_offer_keeps(c) && conn_make_offer(c) != 0)
            return c->err.code;
        pvn_ctrl_flush(&c->ctrl, NULL); /* if it fails, so does get */
        return -EAGAIN;                 /* the answer has not come yet */
    }
    pvn_ctrl_flush(&c->ctrl, NULL);
    rc = pvn_ctrl_get(&c->ctrl, &type, &body, &len, &err);
    if ((rc == -EPIPE || rc == -ECONNRESET) && !c->ctrl.started && conn_redial(c))
        return -EAGAIN;
    rc = conn_judge(c, rc, 1u << PVN_FRAME_HELLO, type, body, len, &err);
    if (rc < 0)
        return rc;
    rc = take_hello(c, body, len, &err);
    if (rc)
        return hello_refused(c, &err);
    conn_goto(c, PVN_CONN_OFFER);
    return c->cfg.control ? -EAGAIN : 0;
}

int conn_step_hello_acceptor(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    enum pvn_frame_type type;
    const uint8_t *body;
    size_t len;
    int rc;

    if (!c->hello_seen) {
        rc = conn_expect(c, 1u << PVN_FRAME_HELLO, &type, &body, &len);
        if (rc < 0)
            return rc;
        rc = take_hello(c, body, len, &err);
        if (rc)
            return hello_refused(c, &err);
        if (check_replaced(c, c->theirs.resumes) != 0)
            return c->err.code;
        c->traffic_class = effective_class(c->theirs.traffic_class >= 0 ? c->theirs.traffic_class
                                                                        : c->cfg.traffic_class);
        pvn_sock_set_class(c->ctrl.fd, c->traffic_class);
        c->mine.traffic_class = (int16_t)c->traffic_class;
        c->mine.service_level = service_level(c);
        if (c->theirs.resumes && c->cfg.received)
            c->mine.received = c->cfg.received(c->theirs.resumes);
        if (pvn_conn_failover(c) && c->cfg.sockets)
            c->mine.nothers = pvn_listen_sockets_others(c->cfg.sockets, c->mine.other);
        rc = put_hello(c, &err);
        if (rc)
            return conn_fail_now(c, &err);
    }
    conn_goto(c, PVN_CONN_OFFER);
    /* No lanes yet: the listener learns from the HELLO whose thread makes them. That of a new comm
     * is in accept, which makes the next step, and the HELLO leaves with the offer. Nobody makes
     * that step soon for a lazy comm or for an existing one. */
    rc = c->cfg.lazy || c->theirs.resumes ? conn_flush(c) : 0;
    return rc ? rc : -EAGAIN;
}
