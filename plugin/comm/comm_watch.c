/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Watches a comm that is up: events of its control connection, a peer that is lost, and the peer's
 * reason for a broken lane. */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>

#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "base/poller.h"
#include "connect/link_back.h"

/* How long a comm whose data socket broke waits for the peer's own reason, which is usually already
 * in flight on the control connection: both logs then name the same cause. */
#define GRACE_NS (PVN_NS_PER_S / 4)

/* A longer time than this between two calls does not count as a stall, because nothing can move
 * while nobody calls. */
#define AWAY_NS PVN_NS_PER_S

void comm_fail_by_peer(struct pvn_comm *c)
{
    pvn_engine_fail(c->engine, &c->link.ctrl_err);
    c->end.grace_ns = 1;
}

/* True if the path to the peer is lost, and not the peer. */
static bool is_path_lost(int code)
{
    return code == -ECONNRESET || code == -ETIMEDOUT || code == -EHOSTUNREACH ||
           code == -ENETUNREACH || code == -ENETDOWN || code == -ECONNABORTED || code == -EBADMSG;
}

/* Handles an event of the control connection, as pvn_conn_watch returns it. */
static void take_ctrl_event(struct pvn_comm *c, int event)
{
    if (comm_ctrl_may_be_away(c, event)) {
        if (c->link.state != PVN_LINK_GONE)
            comm_ctrl_lost(c);
        return;
    }
    bool hung_up = event == -EPIPE && c->link.sender && pvn_conn_keeps(c->link.conn);

    if (pvn_conn_failover(c->link.conn) && (event == 2 || is_path_lost(event) || hung_up)) {
        comm_failover_begin(c, &c->link.ctrl_err);
        return;
    }
    if (event == 3) {
        comm_failover_switch(c, NULL);
        return;
    }
    if (event == -EREMOTEIO || event == -EPROTO || (event < 0 && c->link.sender)) {
        comm_fail_by_peer(c);
        return;
    }
    if (event > 0) {
        /* Data that were sent before the GOODBYE are still on the streams, and their end
         * follows. */
        if (!c->link.sender && c->link.conn->lane[0]->caps & PVN_LANE_ENDS)
            return;
        pvn_err_set(&c->link.ctrl_err, -ECONNRESET, "the peer has closed its end of the comm");
        pvn_err_set_fault(&c->link.ctrl_err, PVN_FAULT_REMOTE);
    }
    comm_note(c, PVN_LINK_PEER_GONE);
    pvn_link_moved(&c->link, comm_bytes_moved(c), pvn_now_ns());
}

static void check_lost(struct pvn_comm *c)
{
    uint64_t now = pvn_now_ns();

    /* Nobody may have called for long, so take first what has come meanwhile. */
    if (now - c->link.moved_ns > AWAY_NS)
        pvn_engine_progress(c->engine);
    if (pvn_link_is_over(&c->link, comm_bytes_moved(c), pvn_engine_pending(c->engine) == 0, now) &&
        !comm_failover_has_all(c))
        comm_fail_by_peer(c);
}

void comm_listen_to_peer(struct pvn_comm *c)
{
    int event = pvn_conn_listen(c->link.conn, &c->link.ctrl_err);

    if (event)
        take_ctrl_event(c, event);
}

void comm_look_at_peer(struct pvn_comm *c)
{
    int event;

    pvn_link_keep_adopt(&c->link);
    event = pvn_conn_watch(c->link.conn, &c->link.ctrl_err);
    if (event == 0 && pvn_link_back_is_replaced(&c->link)) {
        pvn_err_set(&c->link.ctrl_err, -ECONNRESET,
                    "the peer has lost the connection and connects again");
        pvn_err_set_fault(&c->link.ctrl_err, PVN_FAULT_REMOTE);
        comm_failover_begin(c, &c->link.ctrl_err);
    }
    if (event)
        take_ctrl_event(c, event);
}

bool comm_has_lost_lanes(struct pvn_comm *c)
{
    int event;

    pvn_poller_poll_now();
    pvn_link_keep_adopt(&c->link);
    event = pvn_conn_watch(c->link.conn, &c->link.ctrl_err);
    pvn_engine_progress(c->engine);
    return (pvn_engine_paused(c->engine) || is_path_lost(event)) && event != -EPIPE &&
           !c->link.conn->goodbye;
}

void comm_look_at_path(struct pvn_comm *c)
{
    int event = pvn_conn_path(c->link.conn, &c->link.ctrl_err);

    if (event)
        take_ctrl_event(c, event);
}

void comm_watch(struct pvn_comm *c, uint64_t now)
{
    bool idle = now - c->attended_ns > AWAY_NS;

    if (idle)
        c->stall.moved_ns = now;
    c->attended_ns = now;
    comm_look_at_peer(c);
    if (c->link.state == PVN_LINK_ALONE && comm_ctrl_wait(c, idle) != 0)
        comm_failover_begin(c, &c->link.ctrl_err);
    if (pvn_engine_paused(c->engine) && !c->link.failover && !c->end.failed)
        comm_failover_begin(c, pvn_engine_pause_reason(c->engine));
    if (c->link.conn->peer_asks)
        comm_answer_peer(c);
    if (c->link.state == PVN_LINK_GONE)
        check_lost(c);
    /* The row of a comm that has failed keeps the reason. */
    if (now >= c->stall.look_ns && !c->end.failed) {
        comm_look_at_path(c);
        comm_look_for_stalls(c, now);
        comm_publish(c, now);
    }
}

static bool from_the_wire(int code)
{
    return code == -ECONNRESET || code == -EPIPE || code == -ECONNABORTED || code == -ENOTCONN ||
           code == -ETIMEDOUT;
}

/* Chooses the hint of an error: the peer's machine still answers, the comm was idle for longer than
 * a firewall may allow, or it was at work. */
static enum pvn_past past_of(const struct pvn_comm *c, int code)
{
    uint64_t moved = c->stats.counts.moved_ns; /* 0: never, or there are no statistics */

    if (code == -ETIMEDOUT && pvn_conn_answers(c->link.conn))
        return PVN_PAST_ANSWERS;
    return moved && pvn_now_ns() - moved > (uint64_t)PVN_PAST_IDLE_S * PVN_NS_PER_S
               ? PVN_PAST_IDLE
               : PVN_PAST_WORKED;
}

int comm_engine_failed(struct pvn_comm *c)
{
    const struct pvn_err *e = pvn_engine_err(c->engine);
    struct pvn_err err;
    uint64_t now;

    c->end.refused = false;
    if (c->end.failed)
        return c->end.err.code;
    if (c->end.grace_ns == 0) {
        c->end.grace_ns = from_the_wire(e->code) ? pvn_now_ns() + GRACE_NS : 1;
        if (e->code == -ETIMEDOUT)
            pvn_conn_ask(c->link.conn); /* its acknowledgement shows that the machine is there */
    }
    err = *e;
    if (c->end.grace_ns > 1) {
        int event = pvn_conn_listen(c->link.conn, &c->link.ctrl_err);

        now = pvn_now_ns();
        if (event == 0 && now < c->end.grace_ns && !c->link.conn->goodbye &&
            !c->link.conn->ctrl.eof)
            return 0;
        if (c->link.conn->goodbye)
            pvn_err_add(&err, "the peer has closed its end of the comm");
        else if (c->link.ctrl_err.code == -EREMOTEIO)
            err = c->link.ctrl_err;
        else if (c->link.conn->ctrl.eof)
            pvn_err_add(
                &err,
                "the peer's process has ended or was killed: its control connection is gone too");
    }
    if (err.hint == 0)
        pvn_err_set_hint(&err, pvn_hint_id_find(PVN_HINT_ERRNO, err.code, PVN_PHASE_TRANSFER,
                                                past_of(c, err.code)));
    return comm_fail(c, &err);
}
