/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Requests that do not move: warns, ends a lane whose device has forgotten a request, and enforces
 * the limit that the user has set. */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>

#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"

/* Sends the peer an ASK until its answer shows open requests: it takes messages then. The peer
 * answers at its next call. */
static void ask_peer(struct pvn_comm *c, uint64_t now)
{
    if (c->link.conn->answered && c->link.conn->peer_open > 0 && c->stall.peer_ready_ns == 0)
        c->stall.peer_ready_ns = now;
    if (c->stall.peer_ready_ns == 0)
        pvn_conn_ask(c->link.conn);
}

static void check_lanes(struct pvn_comm *c, uint64_t now)
{
    bool depends_on_peer = false;

    for (int i = 0; i < c->link.conn->nlanes; i++) {
        struct pvn_lane *l = c->link.conn->lane[i];
        int rc = l->ops->overdue(l, now, c->stall.peer_ready_ns);

        if (rc == -EAGAIN) {
            depends_on_peer = true;
        } else if (rc < 0) {
            if (rc == -ETIMEDOUT && l->err.hint == 0 && pvn_conn_answers(c->link.conn))
                pvn_err_set_hint(&l->err, pvn_hint_id_find(PVN_HINT_ERRNO, rc, PVN_PHASE_TRANSFER,
                                                           PVN_PAST_ANSWERS));
            pvn_engine_fail_lane(c->engine, l, rc);
            return;
        }
    }
    if (depends_on_peer) {
        ask_peer(c, now);
        return;
    }
    c->stall.peer_ready_ns = 0;
    c->link.conn->answered = false;
}

void comm_answer_peer(struct pvn_comm *c)
{
    enum { POLLS = 64 };
    uint64_t empty = pvn_engine_get_stats(c->engine)->empty_polls;

    /* Takes all that has come, so that the receive queues are filled again. */
    for (int i = 0; i < POLLS && pvn_engine_get_stats(c->engine)->empty_polls == empty; i++)
        if (pvn_engine_progress(c->engine) < 0)
            return;
    pvn_conn_answer(c->link.conn, (uint32_t)pvn_engine_pending(c->engine));
}

/* Ends the comm by the user's limit, whatever the reason is. */
static void give_up(struct pvn_comm *c, uint64_t now, const char *oldest)
{
    struct pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -ETIMEDOUT,
                "nothing has moved for %.1f s, the limit of NCCL_PVRDMA_STALL_ABORT: %s",
                (double)(now - c->stall.moved_ns) / PVN_NS_PER_S, oldest);
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    pvn_err_set_hint(
        &err, pvn_hint_id_find(PVN_HINT_ERRNO, err.code, PVN_PHASE_TRANSFER, PVN_PAST_STALLED));
    pvn_engine_fail(c->engine, &err);
}

void comm_look_for_stalls(struct pvn_comm *c, uint64_t now)
{
    uint64_t warn = pvn_params_get()->stall_warn, limit = pvn_params_get()->stall_abort;
    uint64_t bytes = comm_bytes_moved(c), silent, age;
    char text[256];

    c->stall.look_ns = now + COMM_LOOK_NS;
    check_lanes(c, now);
    if (bytes != c->stall.moved_bytes || pvn_engine_pending(c->engine) == 0 ||
        c->stall.moved_ns == 0) {
        c->stall.moved_bytes = bytes;
        c->stall.moved_ns = now;
        c->stall.reported = false;
        return;
    }
    silent = now - c->stall.moved_ns;
    if ((c->stall.reported || warn == 0 || silent < warn) && (limit == 0 || silent < limit))
        return;
    /* The comm may have been idle until a moment ago. */
    age = pvn_engine_oldest(c->engine, text, sizeof(text));
    if (warn && !c->stall.reported && silent >= warn && age >= warn) {
        c->stall.reported = true;
        pvn_warn("%s %s %s: nothing has moved for %.0f s: %s; %d requests open",
                 c->link.conn->where, c->link.sender ? "to" : "from", c->link.conn->who,
                 (double)silent / PVN_NS_PER_S, text, pvn_engine_pending(c->engine));
    }
    if (limit && silent >= limit && age >= limit)
        give_up(c, now, text);
}
