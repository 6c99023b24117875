/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/handshake_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "base/version.h"

#define BIT(s)   (1u << PVN_CONN_##s)
#define PARAM(f) offsetof(struct pvn_params, f)
#define KNOB(k)  PVN_PARAM_PREFIX k

enum { CONNECTOR, ACCEPTOR, ROLES };

/* By how much nobody may have called step before the pause is taken off the state's time. */
#define AWAY_NS (PVN_NS_PER_S / 2)

struct state {
    const char *name;
    int (*step[ROLES])(struct pvn_conn *);
    unsigned next;   /* BIT of every state that may follow, FAILED aside */
    size_t deadline; /* offset of a uint64_t in struct pvn_params, 0: none */
    const char *knob;
    enum pvn_phase phase;
    const char *doing; /* for messages: what did not end in time */
};

static const struct state states[PVN_CONN_STATES] = {
    [PVN_CONN_START] = {"START",
                        {conn_step_start, NULL},
                        BIT(DIAL) | BIT(HELLO) | BIT(CLOSED),
                        0,
                        NULL,
                        PVN_PHASE_DIAL,
                        "starting"},
    [PVN_CONN_DIAL] = {"DIAL",
                       {conn_step_dial, NULL},
                       BIT(HELLO) | BIT(CLOSED),
                       PARAM(connect_timeout),
                       KNOB("CONNECT_TIMEOUT"),
                       PVN_PHASE_DIAL,
                       "connecting to the peer's listener"},
    [PVN_CONN_HELLO] = {"HELLO",
                        {conn_step_hello_connector, conn_step_hello_acceptor},
                        BIT(DIAL) | BIT(OFFER) | BIT(CLOSED),
                        PARAM(hello_timeout),
                        KNOB("HELLO_TIMEOUT"),
                        PVN_PHASE_HELLO,
                        "waiting for the peer's HELLO"},
    [PVN_CONN_OFFER] = {"OFFER",
                        {conn_step_offer_connector, conn_step_offer_acceptor},
                        BIT(BIND) | BIT(CLOSED),
                        PARAM(offer_timeout),
                        KNOB("OFFER_TIMEOUT"),
                        PVN_PHASE_OFFER,
                        "waiting for the peer's list of lanes"},
    [PVN_CONN_BIND] = {"BIND",
                       {conn_step_bind, conn_step_bind},
                       BIT(VERIFY) | BIT(CLOSED),
                       PARAM(bind_timeout),
                       KNOB("BIND_TIMEOUT"),
                       PVN_PHASE_BIND,
                       "connecting the lanes"},
    [PVN_CONN_VERIFY] = {"VERIFY",
                         {conn_step_verify, conn_step_verify},
                         BIT(READY) | BIT(CLOSED),
                         PARAM(verify_timeout),
                         KNOB("VERIFY_TIMEOUT"),
                         PVN_PHASE_VERIFY,
                         "the lanes' first round trip"},
    [PVN_CONN_READY] = {"READY",
                        {conn_step_ready, conn_step_ready},
                        BIT(UP) | BIT(CLOSED),
                        PARAM(ready_timeout),
                        KNOB("READY_TIMEOUT"),
                        PVN_PHASE_READY,
                        "waiting for the peer to agree to the lanes that work"},
    [PVN_CONN_UP] = {"UP", {NULL, NULL}, BIT(DRAIN), 0, NULL, PVN_PHASE_TRANSFER, "up"},
    [PVN_CONN_DRAIN] = {"DRAIN", {NULL, NULL}, BIT(CLOSED), 0, NULL, PVN_PHASE_CLOSE, "closing"},
    [PVN_CONN_CLOSED] = {"CLOSED", {NULL, NULL}, 0, 0, NULL, PVN_PHASE_CLOSE, "closed"},
    [PVN_CONN_FAILED] = {"FAILED", {NULL, NULL}, BIT(CLOSED), 0, NULL, PVN_PHASE_CLOSE, "failed"},
};

const char *pvn_conn_state_name(enum pvn_conn_state s)
{
    return (unsigned)s < PVN_CONN_STATES ? states[s].name : "?";
}

bool pvn_conn_may_follow(enum pvn_conn_state from, enum pvn_conn_state to)
{
    if (to == PVN_CONN_FAILED)
        return from != PVN_CONN_CLOSED && from != PVN_CONN_FAILED;
    return (states[from].next >> to & 1) != 0;
}

enum pvn_phase conn_phase(const struct pvn_conn *c)
{
    return states[c->state].phase;
}

/* What is not done yet in the present state, and so who has to do something. */
static const char *doing(const struct pvn_conn *c)
{
    if (c->state == PVN_CONN_HELLO && c->cfg.sender && !c->began_ns)
        return "waiting for the peer's process to call accept";
    return states[c->state].doing;
}

static void tell_stat(struct pvn_conn *c)
{
    char text[PVN_ERR_TEXT_LEN] = "";
    enum pvn_stat_phase phase = PVN_STAT_SETUP;

    if (!c->stat || c->state == PVN_CONN_CLOSED)
        return;
    if (c->state == PVN_CONN_FAILED) {
        phase = PVN_STAT_FAILED;
        pvn_err_format(&c->err, text, sizeof(text));
    } else if (c->state >= PVN_CONN_UP) {
        phase = PVN_STAT_UP;
    } else {
        snprintf(text, sizeof(text), "%s", doing(c));
    }
    pvn_stat_state(c->stat, phase, states[c->state].name, text);
}

void conn_goto(struct pvn_conn *c, enum pvn_conn_state to)
{
    uint64_t now = pvn_now_ns();

    if (!pvn_conn_may_follow(c->state, to)) {
        pvn_warn("bug: connection to %s went from %s to %s; it is given up", c->who,
                 states[c->state].name, states[to].name);
        pvn_err_set(&c->err, -ENOTRECOVERABLE, "connection went from %s to %s",
                    states[c->state].name, states[to].name);
        pvn_err_set_fault(&c->err, PVN_FAULT_INTERNAL);
        to = PVN_CONN_FAILED;
    }
    pvn_trace(PVN_NET, "%s to %s: %s -> %s after %.3f ms", c->where, c->who, states[c->state].name,
              states[to].name, (double)(now - c->entered_ns) / PVN_NS_PER_MS);
    c->state = to;
    c->entered_ns = now;
    c->frame_sent = false;
    c->said_waiting = false;
    tell_stat(c);
}

void conn_name_peer(struct pvn_conn *c)
{
    char addr[PVN_ADDR_TEXT_LEN];
    bool known = c->hello_seen && c->theirs.host[0];

    pvn_addr_format((const struct sockaddr *)&c->cfg.peer, addr, sizeof(addr));
    pvn_stat_peer(c->stat, known ? c->theirs.host : "", known ? c->theirs.pid : 0, addr);
    if (known)
        snprintf(c->who, sizeof(c->who), "%.50s pid %u at %.60s", c->theirs.host, c->theirs.pid,
                 addr);
    else
        snprintf(c->who, sizeof(c->who), "%s", addr);
}

struct pvn_conn *pvn_conn_new(const struct pvn_conn_cfg *cfg)
{
    struct pvn_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->cfg = *cfg;
    c->lane_args = calloc(PVN_MAX_LANES, sizeof(*c->lane_args));
    c->inbox = cfg->sender ? NULL : calloc(PVN_CONN_INBOX, sizeof(*c->inbox));
    if (!c->lane_args || (!cfg->sender && !c->inbox)) {
        free(c->lane_args);
        free(c->inbox);
        free(c);
        errno = ENOMEM;
        return NULL;
    }
    pvn_ctrl_init(&c->ctrl, -1);
    c->traffic_class = -1;
    c->mine.version_min = PVN_WIRE_VERSION_MIN;
    c->mine.version_max = PVN_WIRE_VERSION;
    c->mine.pid = (uint32_t)getpid();
    c->mine.session = cfg->session;
    c->mine.features = cfg->lazy ? PVN_FEATURE_LAZY : 0;
    c->mine.traffic_class = -1;
    snprintf(c->mine.plugin_version, sizeof(c->mine.plugin_version), "%s", pvn_version());
    if (gethostname(c->mine.host, sizeof(c->mine.host) - 1) != 0)
        snprintf(c->mine.host, sizeof(c->mine.host), "unknown");
    snprintf(c->mine.device, sizeof(c->mine.device), "%s", cfg->dev->name);
    snprintf(c->where, sizeof(c->where), "%s", cfg->dev->name);
    c->stat = pvn_stat_new(PVN_STAT_SETUP, cfg->sender, cfg->dev->name);
    conn_name_peer(c);
    tell_stat(c);
    c->entered_ns = c->stepped_ns = pvn_now_ns();
    return c;
}

struct pvn_conn *pvn_conn_accepted(const struct pvn_conn_cfg *cfg, int fd)
{
    struct pvn_conn *c = pvn_conn_new(cfg);

    if (!c)
        return NULL;
    pvn_ctrl_init(&c->ctrl, fd);
    conn_goto(c, PVN_CONN_HELLO);
    return c;
}

static void tell_peer(struct pvn_conn *c, const char *text)
{
    uint8_t body[PVN_REASON_MAX + 2];
    int n = pvn_reason_encode(body, sizeof(body), text);

    /* What has not left yet goes first: a frame cannot start within another. */
    if (c->ctrl.fd >= 0 && n > 0 &&
        pvn_ctrl_put_frame(&c->ctrl, PVN_FRAME_ERROR, body, (size_t)n, NULL) == 0)
        pvn_ctrl_flush(&c->ctrl, NULL);
}

int pvn_conn_fail(struct pvn_conn *c, const struct pvn_err *err)
{
    char text[PVN_ERR_TEXT_LEN];

    if (c->state == PVN_CONN_FAILED || c->state == PVN_CONN_CLOSED)
        return c->err.code;
    c->err = *err;
    if (c->err.code >= 0)
        c->err.code = -EIO;
    if (c->err.fault != PVN_FAULT_REMOTE || c->err.who[0] == '\0' || !c->ctrl.eof) {
        pvn_err_format(&c->err, text, sizeof(text));
        tell_peer(c, text);
    }
    pvn_poller_remove(c->watch);
    c->watch = NULL;
    pvn_ctrl_close(&c->ctrl);
    conn_goto(c, PVN_CONN_FAILED);
    return c->err.code;
}

void pvn_conn_locate(const struct pvn_conn *c, int k, struct pvn_err *err)
{
    struct pvn_err lane = *err;

    if (lane.where[0] == '\0' && lane.who[0] == '\0' && k >= 0)
        c->lane[k]->ops->locate(c->lane[k], &lane);
    pvn_err_set_where(err, "%.50s %s", c->mine.host, lane.where[0] ? lane.where : c->where);
    pvn_err_set_who(err, "%s%s%s", c->who, lane.who[0] ? " " : "", lane.who);
}

int conn_fail_now(struct pvn_conn *c, struct pvn_err *err)
{
    if (err->where[0] == '\0')
        pvn_conn_locate(c, -1, err);
    if (err->hint == 0)
        pvn_err_set_hint(
            err, pvn_hint_id_find(PVN_HINT_ERRNO, err->code, conn_phase(c), PVN_PAST_NEVER_WORKED));
    pvn_err_add(err, "connection set-up failed in state %s", states[c->state].name);
    return pvn_conn_fail(c, err);
}

/* Whether the peer's answer depends on when its caller comes by, so that no deadline can be set. */
static bool at_leisure(const struct pvn_conn *c)
{
    if (c->began_ns || c->state == PVN_CONN_DIAL)
        return false;
    return c->cfg.lazy || (c->theirs.features & PVN_FEATURE_LAZY);
}

static void say_waiting(struct pvn_conn *c, uint64_t waited)
{
    uint64_t patience = pvn_params_get()->stall_warn;

    if (c->said_waiting || patience == 0 || waited < patience)
        return;
    c->said_waiting = true;
    pvn_warn(
        "%s to %s: still %s after %.0f s (state %s); the process there has not taken its next step",
        c->where, c->who, states[c->state].doing, (double)waited / PVN_NS_PER_S,
        states[c->state].name);
}

static int check_deadline(struct pvn_conn *c, uint64_t now)
{
    const struct pvn_params *p = pvn_params_get();
    const struct state *s = &states[c->state];
    uint64_t since = c->began_ns ? c->began_ns : c->entered_ns, limit = 0;
    const char *knob = s->knob;
    struct pvn_err err = PVN_ERR_INIT;
    int rc;

    if (s->deadline && !at_leisure(c))
        limit = *(const uint64_t *)((const char *)p + s->deadline);
    if (c->state == PVN_CONN_HELLO && c->cfg.sender && !c->began_ns) {
        limit = p->accept_timeout;
        knob = KNOB("ACCEPT_TIMEOUT");
    }
    say_waiting(c, now - c->entered_ns);
    pvn_stat_look(c->stat, now);
    if (limit == 0 || now - since < limit)
        return -EAGAIN;
    rc = conn_late_lanes(c, knob);
    if (rc <= 0)
        return rc ? rc : -EAGAIN;
    pvn_err_set(&err, -ETIMEDOUT, "%s took longer than %.3g s (%s)", doing(c),
                (double)limit / PVN_NS_PER_S, knob);
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    if (c->err.code) /* the last attempt's reason */
        pvn_err_add(&err, "last attempt: %s", c->err.reason[0]);
    return conn_fail_now(c, &err);
}

int pvn_conn_step(struct pvn_conn *c)
{
    uint64_t now = pvn_now_ns();
    int rc = 0;

    if (now - c->stepped_ns > AWAY_NS) {
        c->entered_ns += now - c->stepped_ns;
        if (c->began_ns)
            c->began_ns += now - c->stepped_ns;
    }
    c->stepped_ns = now;
    while (c->state < PVN_CONN_UP && rc == 0)
        rc = states[c->state].step[c->cfg.sender ? CONNECTOR : ACCEPTOR](c);
    if (c->state == PVN_CONN_UP)
        return 0;
    if (c->state == PVN_CONN_FAILED)
        return c->err.code;
    /* The state may be younger than the call: absence counts from here, or it would end up in the
     * future and every deadline at once in the past. */
    c->stepped_ns = now = pvn_now_ns();
    if (!c->ctrl.started)
        c->began_ns = 0;
    else if (c->began_ns == 0)
        c->began_ns = now;
    return check_deadline(c, now);
}

bool pvn_conn_hello_sent(const struct pvn_conn *c)
{
    if (c->state == PVN_CONN_HELLO)
        return c->frame_sent && c->ctrl.tx_len == 0;
    return c->state > PVN_CONN_HELLO && c->state <= PVN_CONN_UP;
}

void pvn_conn_adopt(struct pvn_conn *c, int lane, int stream, int fd)
{
    if (c->state < PVN_CONN_UP && c->ninbox < PVN_CONN_INBOX) {
        struct pvn_conn_socket *s = &c->inbox[c->ninbox++];

        s->fd = fd;
        s->lane = (uint8_t)lane;
        s->stream = (uint16_t)stream;
        return;
    }
    pvn_info(PVN_NET, "%s: data connection %d of lane %d from %s came too late and was closed",
             c->where, stream, lane, c->who);
    pvn_sock_close(fd);
}

/* A frame that came while UP. 1 goodbye, negative the peer's error or its breach of the rules. */
static int take_frame(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, size_t len,
                      struct pvn_err *err)
{
    char text[PVN_REASON_MAX];

    if (type == PVN_FRAME_GOODBYE) {
        c->goodbye = true;
        return 1;
    }
    if (type == PVN_FRAME_ERROR && pvn_reason_decode(body, len, text, err) == 0)
        pvn_err_set(err, -EREMOTEIO, "the peer gave up: %s", text);
    else if (type != PVN_FRAME_ERROR)
        pvn_err_set(err, -EPROTO, "%s frame on a connection that is up", pvn_frame_name(type));
    pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    return err->code;
}

int pvn_conn_listen(struct pvn_conn *c, struct pvn_err *err)
{
    enum pvn_frame_type type;
    const uint8_t *body;
    size_t len;
    int rc;

    if (c->state != PVN_CONN_UP || c->goodbye || c->ctrl.eof)
        return 0;
    rc = pvn_ctrl_get(&c->ctrl, &type, &body, &len, err);
    if (rc == -EAGAIN) {
        if (c->watch)
            pvn_poller_arm(c->watch);
        return 0;
    }
    if (rc > 0)
        rc = take_frame(c, type, body, len, err);
    else
        pvn_err_set_hint(err,
                         pvn_hint_id_find(PVN_HINT_ERRNO, rc, PVN_PHASE_TRANSFER, PVN_PAST_WORKED));
    if (rc < 0) {
        c->ctrl.eof = true; /* nothing more is expected from there */
        pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    }
    return rc;
}

int pvn_conn_watch(struct pvn_conn *c, struct pvn_err *err)
{
    enum { UNWATCHED_EVERY = 256 };

    if (c->watch ? !pvn_poller_ready(c->watch) : ++c->unwatched % UNWATCHED_EVERY != 0)
        return 0;
    return pvn_conn_listen(c, err);
}

/* Nobody is left who waits for what was sent, though none of this end's calls may have met that. */
static bool peer_is_gone(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;

    return c->state == PVN_CONN_FAILED || pvn_conn_listen(c, &err) != 0 || c->goodbye ||
           c->ctrl.eof;
}

void pvn_conn_close(struct pvn_conn *c, const char *why)
{
    bool gone;
    int i;

    if (!c)
        return;
    gone = peer_is_gone(c);
    if (c->state == PVN_CONN_UP) {
        conn_goto(c, PVN_CONN_DRAIN);
        if (pvn_ctrl_put_frame(&c->ctrl, PVN_FRAME_GOODBYE, NULL, 0, NULL) == 0)
            pvn_ctrl_flush(&c->ctrl, NULL);
    } else if (why && c->state != PVN_CONN_FAILED) {
        tell_peer(c, why);
    }
    for (i = 0; i < PVN_MAX_LANES; i++) {
        if (c->lane[i]) {
            c->lane[i]->abandoned = gone;
            c->lane[i]->ops->close(c->lane[i]);
        }
        free(c->peer_blob[i]);
    }
    for (i = 0; i < c->ninbox; i++)
        pvn_sock_close(c->inbox[i].fd);
    pvn_poller_remove(c->watch);
    pvn_ctrl_close(&c->ctrl);
    conn_goto(c, PVN_CONN_CLOSED);
    pvn_stat_end(c->stat);
    free(c->lane_args);
    free(c->inbox);
    free(c);
}
