/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/handshake.h"

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
#include "connect/conn_priv.h"
#include "connect/handshake_priv.h"
#include "connect/presence.h"

#define PARAM(f) offsetof(struct pvn_params, f)
#define KNOB(k)  PVN_PARAM_PREFIX k

enum { CONNECTOR, ACCEPTOR, ROLES };

/* An end that has sent no frame for BEAT_NS sends a BEAT. A peer that has sent no frame for
 * ABSENT_NS is absent: its caller does not drive the set-up. */
#define BEAT_NS   (PVN_NS_PER_S / 4)
#define ABSENT_NS (2 * BEAT_NS)

struct step {
    int (*run[ROLES])(struct pvn_conn *);
    size_t deadline; /* offset of a uint64_t in struct pvn_params, 0: none */
    const char *knob;
};

/* The steps of each state before UP; conn.h describes the states. */
static const struct step steps[PVN_CONN_UP] = {
    [PVN_CONN_START] = {{conn_step_start, NULL}, 0, NULL},
    [PVN_CONN_DIAL] = {{conn_step_dial, NULL}, PARAM(connect_timeout), KNOB("CONNECT_TIMEOUT")},
    [PVN_CONN_SEAL] = {{conn_step_seal_connector, conn_step_seal_acceptor},
                       PARAM(seal_timeout),
                       KNOB("SEAL_TIMEOUT")},
    [PVN_CONN_HELLO] = {{conn_step_hello_connector, conn_step_hello_acceptor},
                        PARAM(hello_timeout),
                        KNOB("HELLO_TIMEOUT")},
    [PVN_CONN_OFFER] = {{conn_step_offer_connector, conn_step_offer_acceptor},
                        PARAM(offer_timeout),
                        KNOB("OFFER_TIMEOUT")},
    [PVN_CONN_BIND] = {{conn_step_bind, conn_step_bind}, PARAM(bind_timeout), KNOB("BIND_TIMEOUT")},
    [PVN_CONN_VERIFY] = {{conn_step_verify, conn_step_verify},
                         PARAM(verify_timeout),
                         KNOB("VERIFY_TIMEOUT")},
    [PVN_CONN_READY] = {{conn_step_ready, conn_step_ready},
                        PARAM(ready_timeout),
                        KNOB("READY_TIMEOUT")},
};

uint64_t pvn_conn_features(bool lazy, bool failover, bool shared, bool has_key)
{
    uint64_t f = PVN_FEATURE_ALIVE | PVN_FEATURE_BEATS | PVN_FEATURE_LARGE;

    /* Lazy comms come up within data calls and are left out of failover. */
    if (lazy)
        f |= PVN_FEATURE_LAZY;
    else if (failover)
        f |= PVN_FEATURE_FAILOVER | PVN_FEATURE_FAILBACK | PVN_FEATURE_KEEPS;
    if (shared)
        f |= PVN_FEATURE_SHARED;
    if (has_key && pvn_params_get()->encrypt != PVN_ENCRYPT_CONTROL)
        f |= PVN_FEATURE_SEALS_DATA;
    return f;
}

static uint64_t features(const struct pvn_conn_cfg *cfg)
{
    return pvn_conn_features(cfg->lazy, cfg->failover, cfg->shared, cfg->key != NULL) |
           (cfg->control ? PVN_FEATURE_CONTROL : 0) | (cfg->beside ? PVN_FEATURE_BESIDE : 0) |
           (cfg->away ? PVN_FEATURE_AWAY : 0);
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
    pthread_mutex_init(&c->inbox_lock, NULL);
    pvn_ctrl_init(&c->ctrl, -1);
    c->traffic_class = -1;
    c->mine.version_min = PVN_WIRE_VERSION_MIN;
    c->mine.version_max = PVN_WIRE_VERSION;
    c->mine.pid = (uint32_t)getpid();
    c->mine.session = cfg->session;
    c->mine.features = features(cfg);
    c->mine.resumes = cfg->resumes;
    c->mine.traffic_class = -1;
    if (cfg->sender && !cfg->resumes)
        c->theirs.features = cfg->peer_features;
    c->present = cfg->sender && cfg->failover && !cfg->lazy;
    if (c->present)
        c->mine.nothers = pvn_presence_hold(cfg->seen, cfg->nseen, c->mine.other);
    snprintf(c->mine.plugin_version, sizeof(c->mine.plugin_version), "%s", pvn_version());
    if (gethostname(c->mine.host, sizeof(c->mine.host) - 1) != 0)
        snprintf(c->mine.host, sizeof(c->mine.host), "unknown");
    snprintf(c->mine.device, sizeof(c->mine.device), "%s", cfg->dev->name);
    snprintf(c->where, sizeof(c->where), "%s", cfg->dev->name);
    /* A connection that resumes a comm takes over the row of the one that it replaces
     * (pvn_conn_replace). */
    c->stat = cfg->resumes ? NULL : pvn_stat_new(PVN_STAT_SETUP, cfg->sender, cfg->dev->name);
    conn_name_peer(c);
    conn_publish(c);
    c->entered_ns = c->stepped_ns = pvn_now_ns();
    return c;
}

struct pvn_conn *pvn_conn_accepted(const struct pvn_conn_cfg *cfg, int fd)
{
    struct pvn_conn *c = pvn_conn_new(cfg);

    if (!c)
        return NULL;
    pvn_ctrl_init(&c->ctrl, fd);
    conn_goto(c, cfg->key ? PVN_CONN_SEAL : PVN_CONN_HELLO);
    return c;
}

/* True if the peer's answer depends on when its caller comes by, so that no deadline can be set. */
static bool at_leisure(const struct pvn_conn *c)
{
    if (c->began_ns || c->state == PVN_CONN_DIAL)
        return false;
    return c->cfg.lazy || (c->theirs.features & PVN_FEATURE_LAZY);
}

/* The peer's kernel accepts connections without its process, so a wait in DIAL is not caused by
 * that process. */
static void say_dialling(struct pvn_conn *c, uint64_t waited)
{
    const struct pvn_hint *hint =
        pvn_hint_find(PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_DIAL, PVN_PAST_NEVER_WORKED);
    double s = (double)waited / PVN_NS_PER_S;
    char text[PVN_ERR_TEXT_LEN];

    if (conn_last_attempt(c, text, sizeof(text)))
        pvn_warn("%s to %s: still %s after %.0f s: the last attempt failed: %s", c->where, c->who,
                 conn_doing(c), s, text);
    else
        pvn_warn("%s to %s: still %s after %.0f s: nothing has answered at that address; likely: "
                 "%s; try: %s",
                 c->where, c->who, conn_doing(c), s, hint->likely, hint->todo);
}

static void say_waiting(struct pvn_conn *c, uint64_t waited)
{
    uint64_t limit = pvn_params_get()->stall_warn;

    if (c->said_waiting || limit == 0 || waited < limit)
        return;
    c->said_waiting = true;
    if (c->state == PVN_CONN_DIAL) {
        say_dialling(c, waited);
        return;
    }
    pvn_warn(
        "%s to %s: still %s after %.0f s (state %s); the process there has not taken its next step",
        c->where, c->who, conn_doing(c), (double)waited / PVN_NS_PER_S,
        pvn_conn_state_name(c->state));
}

static bool beats(const struct pvn_conn *c)
{
    return c->state > PVN_CONN_HELLO && c->theirs.features & PVN_FEATURE_BEATS && !at_leisure(c);
}

/* True if the peer is there, but its caller does not drive the set-up. */
static bool is_absent(const struct pvn_conn *c, uint64_t now)
{
    return beats(c) && now - c->heard_ns > ABSENT_NS;
}

/* Sends a BEAT if one is due. Every frame shows that this end is driven, so a set-up in which
 * nobody waits needs none. */
static void beat(struct pvn_conn *c, uint64_t now)
{
    if (!beats(c) || now - c->said_ns < BEAT_NS || c->ctrl.tx_len > 0)
        return;
    c->said_ns = now;
    if (pvn_ctrl_put_frame(&c->ctrl, PVN_FRAME_BEAT, NULL, 0, NULL) == 0)
        pvn_ctrl_flush(&c->ctrl, NULL); /* if it fails, so does the next get */
}

static int peer_is_absent(struct pvn_conn *c, uint64_t limit)
{
    struct pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -ETIMEDOUT, "the peer's process has not driven the set-up for %.3g s (%s)",
                (double)limit / PVN_NS_PER_S, KNOB("ACCEPT_TIMEOUT"));
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    return conn_fail_now(c, &err);
}

static int check_deadline(struct pvn_conn *c, uint64_t now)
{
    const struct pvn_params *p = pvn_params_get();
    const struct step *s = &steps[c->state];
    uint64_t since = c->began_ns ? c->began_ns : c->entered_ns, limit = 0;
    const char *knob = s->knob;
    struct pvn_err err = PVN_ERR_INIT;
    int rc;

    if (s->deadline && !at_leisure(c))
        limit = *(const uint64_t *)((const char *)p + s->deadline);
    if ((c->state == PVN_CONN_SEAL || c->state == PVN_CONN_HELLO) && c->cfg.sender &&
        !c->began_ns) {
        limit = p->accept_timeout;
        knob = KNOB("ACCEPT_TIMEOUT");
    }
    if (c->state == PVN_CONN_READY && limit && !c->ready_seen) {
        limit += p->verify_timeout; /* one of the peer's lanes may take that long */
        knob = KNOB("READY_TIMEOUT") " and " KNOB("VERIFY_TIMEOUT");
    }
    if (c->state > PVN_CONN_DIAL && pvn_conn_path(c, &err) != 0)
        return conn_fail_now(c, &err);
    say_waiting(c, now - (is_absent(c, now) ? c->heard_ns : c->entered_ns));
    pvn_stat_look(c->stat, now);
    if (is_absent(c, now) && p->accept_timeout && now - c->heard_ns >= p->accept_timeout)
        return peer_is_absent(c, p->accept_timeout);
    if (limit == 0 || now - since < limit)
        return -EAGAIN;
    rc = conn_late_lanes(c, knob, now - since);
    if (rc <= 0)
        return rc ? rc : -EAGAIN;
    /* The system has said why the last attempt failed. Report its error, and the hint for that, not
     * the limit's. */
    if (c->err.code) {
        err = c->err;
        pvn_err_add(&err, "%s took longer than %.3g s (%s)", conn_doing(c),
                    (double)limit / PVN_NS_PER_S, knob);
        return conn_fail_now(c, &err);
    }
    pvn_err_set(&err, -ETIMEDOUT, "%s took longer than %.3g s (%s)", conn_doing(c),
                (double)limit / PVN_NS_PER_S, knob);
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    return conn_fail_now(c, &err);
}

/* Takes ns off the time that counts. The state or the unfinished frame may be younger than that. */
static void stand_still(struct pvn_conn *c, uint64_t ns, uint64_t now)
{
    c->entered_ns = pvn_not_counted_ns(c->entered_ns, ns, now);
    if (c->began_ns)
        c->began_ns = pvn_not_counted_ns(c->began_ns, ns, now);
}

int pvn_conn_step(struct pvn_conn *c)
{
    uint64_t now = pvn_now_ns(), last = c->stepped_ns, began = now, took;
    int rc = 0;

    if (now - last > PVN_AWAY_NS) {
        stand_still(c, now - last, now);
        c->heard_ns += now - last;
        /* The peer's limit, which no BEAT stops, may have been over meanwhile. */
        if (c->ctrl.seal && c->state == PVN_CONN_SEAL)
            c->redials = 0;
        last = now;
    }
    c->stepped_ns = now;
    while (c->state < PVN_CONN_UP && rc == 0)
        rc = steps[c->state].run[c->cfg.sender ? CONNECTOR : ACCEPTOR](c);
    if (c->state == PVN_CONN_UP)
        return 0;
    if (c->state == PVN_CONN_FAILED)
        return c->err.code;
    /* Absence is counted from the end of the step, because the state may be younger than the call:
     * counted from the start, it would move entered_ns into the future, and every deadline would be
     * over at once. If the step took long, this process was stopped or an adapter blocked. A part
     * of that time counts: it is not the peer's fault, but some limit has to remain. */
    c->stepped_ns = now = pvn_now_ns();
    took = now - began;
    if (took > PVN_AWAY_NS)
        c->heard_ns = pvn_not_counted_ns(c->heard_ns, took - PVN_AWAY_NS, now);
    if (is_absent(c, now))
        stand_still(c, now - last, now);
    else if (took > PVN_AWAY_NS)
        stand_still(c, took - PVN_AWAY_NS, now);
    if (!c->ctrl.started)
        c->began_ns = 0;
    else if (c->began_ns == 0)
        c->began_ns = now;
    beat(c, now);
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
    bool taken = false, twice = false;

    pthread_mutex_lock(&c->inbox_lock);
    /* Somebody who reads the network may repeat the preamble. The copy must take no room from other
     * data sockets. */
    for (int i = 0; i < c->ninbox; i++)
        twice |= c->inbox[i].lane == lane && c->inbox[i].stream == stream;
    if (c->inbox && !twice && c->ninbox < PVN_CONN_INBOX) {
        struct pvn_conn_socket *s = &c->inbox[c->ninbox++];

        s->fd = fd;
        s->lane = (uint8_t)lane;
        s->stream = (uint16_t)stream;
        taken = true;
    }
    pthread_mutex_unlock(&c->inbox_lock);
    if (taken)
        return;
    if (twice)
        pvn_trace(PVN_NET, "%s: data connection %d of lane %d from %s came twice", c->where, stream,
                  lane, c->who);
    else
        pvn_info(PVN_NET, "%s: data connection %d of lane %d from %s came too late and was closed",
                 c->where, stream, lane, c->who);
    pvn_sock_close(fd);
}

/* Handles a frame that came while UP. 0: nothing for the caller; 1: GOODBYE; 2: the peer pauses the
 * comm for a failover, 3: for a better connection, and *err has its reason; negative: the peer's
 * error, or its breach of the protocol. */
static int take_frame(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, size_t len,
                      struct pvn_err *err)
{
    char text[PVN_REASON_MAX];

    if (type == PVN_FRAME_GOODBYE) {
        conn_take_goodbye(c, body, len);
        return 1;
    }
    if (type == PVN_FRAME_BEAT && c->theirs.features & PVN_FEATURE_BEATS)
        return 0; /* sent in the last moments of the set-up */
    if (type == PVN_FRAME_ASK && c->theirs.features & PVN_FEATURE_ALIVE) {
        c->peer_asks = true;
        return 0;
    }
    if (type == PVN_FRAME_ALIVE && c->queried &&
        pvn_alive_decode(body, len, &c->peer_open, err) == 0) {
        c->queried = false;
        c->answered = true;
        return 0;
    }
    if (type == PVN_FRAME_LANE_DOWN && pvn_conn_failover(c) &&
        pvn_reason_decode(body, len, text, err) == 0) {
        pvn_err_set(err, -ENETDOWN, "the peer: %s", text);
        pvn_err_set_fault(err, PVN_FAULT_REMOTE);
        return 2;
    }
    if (type == PVN_FRAME_SWITCH && pvn_conn_failback(c) && !c->cfg.sender &&
        pvn_reason_decode(body, len, text, err) == 0) {
        pvn_err_set(err, -ESTALE, "the peer: %s", text);
        pvn_err_set_fault(err, PVN_FAULT_REMOTE);
        return 3;
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
        return pvn_conn_path(c, err);
    }
    if (rc > 0)
        rc = take_frame(c, type, body, len, err);
    else
        pvn_err_set_hint(err,
                         pvn_hint_id_find(PVN_HINT_ERRNO, rc, PVN_PHASE_TRANSFER, PVN_PAST_WORKED));
    if (rc < 0) {
        c->ctrl.eof = true; /* the peer sends nothing more */
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

/* True if the peer does not wait for our data any more, even if no call of this end has met an
 * error yet. */
static bool peer_is_gone(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;

    return c->state == PVN_CONN_FAILED || pvn_conn_listen(c, &err) != 0 || c->goodbye ||
           c->ctrl.eof;
}

void pvn_conn_replace(struct pvn_conn *c, struct pvn_conn *old)
{
    old->replaced = true;
    c->stat = old->stat;
    old->stat = NULL;
    conn_name_peer(c);
    conn_publish(c);
}

static void abandon(struct pvn_conn *c)
{
    bool gone = c->replaced || peer_is_gone(c);

    for (int i = 0; i < PVN_MAX_LANES; i++)
        if (c->lane[i])
            c->lane[i]->abandoned = gone;
}

void pvn_conn_stop(struct pvn_conn *c)
{
    if (c->state != PVN_CONN_UP)
        return;
    abandon(c);
    conn_goto(c, PVN_CONN_DRAIN);
    if (!c->replaced)
        pvn_conn_goodbye(c);
    for (int i = 0; i < c->nlanes; i++)
        c->lane[i]->ops->stop(c->lane[i]);
}

void pvn_conn_close(struct pvn_conn *c, const char *why)
{
    int i;

    if (!c)
        return;
    if (c->state == PVN_CONN_UP) {
        pvn_conn_stop(c);
    } else if (c->state != PVN_CONN_DRAIN) {
        abandon(c);
        if (why && c->state != PVN_CONN_FAILED)
            conn_report(c, why);
    }
    for (i = 0; i < PVN_MAX_LANES; i++) {
        if (c->lane[i])
            c->lane[i]->ops->close(c->lane[i]);
        free(c->peer_blob[i]);
    }
    for (i = 0; i < c->ninbox; i++)
        pvn_sock_close(c->inbox[i].fd);
    pvn_poller_remove(c->watch);
    pvn_ctrl_close(&c->ctrl);
    if (c->present)
        pvn_presence_release();
    conn_goto(c, PVN_CONN_CLOSED);
    pvn_stat_end(c->stat);
    pthread_mutex_destroy(&c->inbox_lock);
    free(c->lane_args);
    free(c->inbox);
    explicit_bzero(c->streams, sizeof(c->streams));
    free(c);
}

void pvn_conn_set_aside(struct pvn_conn **list, struct pvn_conn *c, const char *why)
{
    c->next_aside = *list;
    c->why_aside = why;
    *list = c;
}

struct pvn_conn *pvn_conn_take_aside(struct pvn_conn **list, bool with_lanes)
{
    struct pvn_conn *taken = NULL;

    while (*list) {
        struct pvn_conn *c = *list;

        if (c->nlanes > 0 && !with_lanes) {
            list = &c->next_aside;
            continue;
        }
        *list = c->next_aside;
        c->next_aside = taken;
        taken = c;
    }
    return taken;
}

void pvn_conn_close_aside(struct pvn_conn *list)
{
    while (list) {
        struct pvn_conn *c = list;

        list = c->next_aside;
        pvn_conn_close(c, c->why_aside);
    }
}
