/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/conn_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"

#define BIT(s) (1u << PVN_CONN_##s)

struct state {
    const char *name;
    unsigned next; /* BIT of every state that may follow, FAILED aside */
    enum pvn_phase phase;
    const char *doing; /* for messages: the step that is not done yet */
};

static const struct state states[PVN_CONN_STATES] = {
    [PVN_CONN_START] = {"START", BIT(DIAL) | BIT(SEAL) | BIT(HELLO) | BIT(CLOSED), PVN_PHASE_DIAL,
                        "starting"},
    [PVN_CONN_DIAL] = {"DIAL", BIT(SEAL) | BIT(HELLO) | BIT(CLOSED), PVN_PHASE_DIAL,
                       "connecting to the peer's listener"},
    [PVN_CONN_SEAL] = {"SEAL", BIT(DIAL) | BIT(HELLO) | BIT(CLOSED), PVN_PHASE_HELLO,
                       "waiting for the peer to prove the key"},
    [PVN_CONN_HELLO] = {"HELLO", BIT(DIAL) | BIT(OFFER) | BIT(CLOSED), PVN_PHASE_HELLO,
                        "waiting for the peer's HELLO"},
    [PVN_CONN_OFFER] = {"OFFER", BIT(BIND) | BIT(CLOSED), PVN_PHASE_OFFER,
                        "waiting for the peer's list of lanes"},
    [PVN_CONN_BIND] = {"BIND", BIT(VERIFY) | BIT(CLOSED), PVN_PHASE_BIND, "connecting the lanes"},
    [PVN_CONN_VERIFY] = {"VERIFY", BIT(READY) | BIT(CLOSED), PVN_PHASE_VERIFY,
                         "the lanes' first round trip"},
    [PVN_CONN_READY] = {"READY", BIT(UP) | BIT(CLOSED), PVN_PHASE_READY,
                        "waiting for the peer to agree to the lanes that work"},
    [PVN_CONN_UP] = {"UP", BIT(DRAIN), PVN_PHASE_TRANSFER, "up"},
    [PVN_CONN_DRAIN] = {"DRAIN", BIT(CLOSED), PVN_PHASE_CLOSE, "closing"},
    [PVN_CONN_CLOSED] = {"CLOSED", 0, PVN_PHASE_CLOSE, "closed"},
    [PVN_CONN_FAILED] = {"FAILED", BIT(CLOSED), PVN_PHASE_CLOSE, "failed"},
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

static enum pvn_phase phase_of(const struct pvn_conn *c)
{
    return states[c->state].phase;
}

const char *conn_doing(const struct pvn_conn *c)
{
    if ((c->state == PVN_CONN_SEAL || c->state == PVN_CONN_HELLO) && c->cfg.sender && !c->began_ns)
        return "waiting for the peer's process to call accept";
    return states[c->state].doing;
}

bool conn_last_attempt(const struct pvn_conn *c, char *buf, size_t cap)
{
    struct pvn_err err;

    buf[0] = '\0';
    if (c->state != PVN_CONN_DIAL || !c->err.code)
        return false;
    err = c->err;
    if (!c->cfg.has_instead)
        err.n = 0; /* leaves out the address, which is known */
    pvn_err_format(&err, buf, cap);
    return true;
}

/* Returns how much the job's key seals: nothing, the control connection, or data as well, if all
 * lanes seal them. */
static enum pvn_stat_sealed sealed(const struct pvn_conn *c)
{
    bool data = c->state >= PVN_CONN_UP && c->nlanes > 0;

    for (int k = 0; data && k < c->nlanes; k++)
        data = c->lane[k] && c->lane[k]->caps & PVN_LANE_SEALED;
    if (c->ctrl.io != &pvn_sockio_sealed)
        return PVN_STAT_SEALED_NONE;
    return data ? PVN_STAT_SEALED_DATA : PVN_STAT_SEALED_CONTROL;
}

void conn_publish(struct pvn_conn *c)
{
    char why[PVN_ERR_TEXT_LEN];
    char buf[sizeof(why) + 100]; /* holds an error behind what the connection does */
    const char *text = "";
    enum pvn_stat_phase phase = PVN_STAT_SETUP;

    if (!c->stat || c->state == PVN_CONN_CLOSED)
        return;
    if (c->state == PVN_CONN_FAILED) {
        phase = PVN_STAT_FAILED;
        pvn_err_format(&c->err, buf, sizeof(buf));
        text = buf;
    } else if (c->state >= PVN_CONN_UP) {
        phase = PVN_STAT_UP;
    } else if (conn_last_attempt(c, why, sizeof(why))) {
        snprintf(buf, sizeof(buf), "%s: the last attempt failed: %s", conn_doing(c), why);
        text = buf;
    } else {
        text = conn_doing(c);
    }
    if (c->state != PVN_CONN_FAILED)
        pvn_stat_seal(c->stat, sealed(c));
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
    conn_publish(c);
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

void conn_report(struct pvn_conn *c, const char *text)
{
    uint8_t body[PVN_REASON_MAX + 2];
    int n = pvn_reason_encode(body, sizeof(body), text);

    /* The handshake is not done, so frames have no stream yet. */
    if (c->state == PVN_CONN_SEAL)
        return;
    /* The connector may have put this control connection in the place of a lost one already, and would
     * take an ERROR for the end of the comm. */
    if (c->state == PVN_CONN_OFFER && c->cfg.control)
        return;
    /* A peer that is up already would take an ERROR for the end of the comm, but this end's comm
     * goes on. */
    if (c->state == PVN_CONN_READY && (c->cfg.resumes || c->theirs.resumes))
        return;
    /* Frames that have not left yet go first, because a frame cannot start within another. */
    c->ctrl.tx_held = 0;
    if (c->ctrl.fd >= 0 && n > 0 &&
        pvn_ctrl_put_frame(&c->ctrl, PVN_FRAME_ERROR, body, (size_t)n, NULL) == 0)
        pvn_ctrl_flush(&c->ctrl, NULL);
}

/* How long an error waits until its lanes are fenced: an adapter's queue has to be empty for 2
 * ms. */
#define FENCE_NS (50 * PVN_NS_PER_MS)

/* Fences the lanes. The caller may reuse its memory as soon as it has the error, so no memory that
 * was posted may be read or written later. */
static void fence_lanes(struct pvn_conn *c)
{
    const struct timespec pause = {.tv_nsec = (long)PVN_NS_PER_MS / 2};
    uint64_t until = pvn_now_ns() + FENCE_NS;

    for (int i = 0; i < c->nlanes; i++) {
        struct pvn_lane *l = c->lane[i];
        int rc = l ? l->ops->fence(l) : 0;

        for (; rc == -EAGAIN && pvn_now_ns() < until; rc = l->ops->fence(l))
            nanosleep(&pause, NULL);
        if (rc)
            pvn_warn(
                "%s to %s: lane %d (%s) cannot be fenced: it may still move memory of messages "
                "that have ended with an error",
                c->where, c->who, i, l->ops->name);
    }
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
        conn_report(c, text);
    }
    pvn_poller_remove(c->watch);
    c->watch = NULL;
    pvn_ctrl_close(&c->ctrl);
    if (c->state == PVN_CONN_UP)
        fence_lanes(c);
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
            err, pvn_hint_id_find(PVN_HINT_ERRNO, err->code, phase_of(c), PVN_PAST_NEVER_WORKED));
    pvn_err_add(err, "connection set-up failed in state %s", states[c->state].name);
    return pvn_conn_fail(c, err);
}

const struct pvn_device *conn_lane_device(const struct pvn_conn *c, int k)
{
    return c->lane_args[c->lane_arg[k]].dev;
}

void conn_lane_name(const struct pvn_conn *c, int k, char *buf, size_t cap)
{
    snprintf(buf, cap, "lane %d (%s on %.60s)", k, c->lane[k]->ops->name,
             conn_lane_device(c, k)->name);
}

bool pvn_conn_failover(const struct pvn_conn *c)
{
    return c->mine.features & c->theirs.features & PVN_FEATURE_FAILOVER;
}

bool pvn_conn_keeps(const struct pvn_conn *c)
{
    return pvn_conn_failover(c) && c->mine.features & c->theirs.features & PVN_FEATURE_KEEPS;
}

bool pvn_conn_shared(const struct pvn_conn *c)
{
    return c->mine.features & c->theirs.features & PVN_FEATURE_SHARED;
}

bool pvn_conn_seals_data(const struct pvn_conn *c)
{
    return c->cfg.key && (c->mine.features | c->theirs.features) & PVN_FEATURE_SEALS_DATA;
}

bool pvn_conn_failback(const struct pvn_conn *c)
{
    return pvn_conn_failover(c) && c->mine.features & c->theirs.features & PVN_FEATURE_FAILBACK;
}

bool pvn_conn_large(const struct pvn_conn *c)
{
    return c->mine.features & c->theirs.features & PVN_FEATURE_LARGE;
}

int pvn_conn_worth(const struct pvn_conn *c)
{
    int i, faster = 0;

    for (i = 0; i < c->nlanes; i++)
        faster |= !c->lane[i]->ops->is_fallback;
    return 2 * (faster * PVN_MAX_LANES + c->nlanes) + !c->cfg.away;
}

bool pvn_conn_worth_is_fast(int worth)
{
    return worth / 2 > PVN_MAX_LANES;
}

void pvn_conn_lanes_text(const struct pvn_conn *c, char *buf, size_t cap)
{
    char lane[256];
    int i;

    buf[0] = '\0';
    for (i = 0; i < c->nlanes; i++) {
        if (c->lane[i]->ops->describe(c->lane[i], lane, sizeof(lane)) <= 0)
            conn_lane_name(c, i, lane, sizeof(lane));
        pvn_str_append(buf, cap, "%s%s", i ? "; " : "", lane);
    }
}

void pvn_conn_count(const struct pvn_conn *c, struct pvn_lane_counters *sum)
{
    int i;

    memset(sum, 0, sizeof(*sum));
    for (i = 0; i < c->nlanes; i++)
        c->lane[i]->ops->count(c->lane[i], sum);
}
