/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm whose control connection is lost while its lanes work: the network that carries it has an
 * outage, and the adapters have another network, or a path of their own. The lanes go on. The
 * connector dials the peer's listener once a second; when it answers, both ends take the steps of a
 * failover (comm_failover.c) with the connection that was made, which has a control connection
 * again. The acceptor learns from that connection.
 *
 * Until then a lane that fails begins a failover as always. What only the control connection could
 * have reported is replaced by a time limit: where the caller waits and nothing moves, the peer may
 * have ended, or may be in a failover that it could not report.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"

#define DIAL_EVERY_NS PVN_NS_PER_S
/* For how long one attempt may take: the kernel dials again after 1 s and after 3 s. */
#define DIAL_NS (4 * PVN_NS_PER_S)

bool comm_ctrl_may_be_away(const struct pvn_comm *c, int code)
{
    bool outage =
        code == -ETIMEDOUT || code == -EHOSTUNREACH || code == -ENETUNREACH || code == -ENETDOWN;

    if (!outage || !pvn_conn_failover(c->conn) || !pvn_engine_may_pause(c->engine) ||
        pvn_engine_paused(c->engine))
        return false;
    for (int i = 0; i < c->conn->nlanes; i++)
        if (c->conn->lane[i]->ops->is_fallback) /* it uses the same network */
            return false;
    return true;
}

void comm_ctrl_lost(struct pvn_comm *c)
{
    char text[PVN_ERR_TEXT_LEN];

    c->ctrl_lost_ns = c->ctrl_moved_ns = pvn_now_ns();
    c->ctrl_dial_ns = c->ctrl_lost_ns + DIAL_EVERY_NS;
    c->ctrl_moved_bytes = comm_bytes_moved(c);
    pvn_err_format(&c->ctrl_err, text, sizeof(text));
    pvn_warn("%s %s %s: the control connection is lost: %s; the lanes go on without it, and it is "
             "made again when the peer can be reached",
             c->conn->where, c->sender ? "to" : "from", c->conn->who, text);
}

void comm_ctrl_forget(struct pvn_comm *c)
{
    pvn_conn_close(c->ctrl_next, NULL);
    c->ctrl_next = NULL;
    c->ctrl_lost_ns = 0;
}

static int peer_answers(struct pvn_comm *c)
{
    pvn_err_clear(&c->ctrl_err);
    return pvn_err_set(&c->ctrl_err, -ENETRESET,
                       "the control connection was lost %.1f s ago, and the peer can be reached",
                       (double)(pvn_now_ns() - c->ctrl_lost_ns) / PVN_NS_PER_S);
}

/* The TCP connection stands. */
static bool is_dialled(const struct pvn_conn *next)
{
    return next->state > PVN_CONN_DIAL && next->state <= PVN_CONN_UP;
}

int comm_ctrl_dial(struct pvn_comm *c)
{
    uint64_t now = pvn_now_ns();
    int rc;

    if (!c->sender)
        return 0;
    if (!c->ctrl_next) {
        struct pvn_conn_cfg cfg = c->home;

        if (now < c->ctrl_dial_ns)
            return 0;
        cfg.resumes = c->id;
        c->ctrl_next = pvn_conn_new(&cfg);
        c->ctrl_dial_ns = now;
        if (!c->ctrl_next)
            return 0;
    }
    rc = pvn_conn_step(c->ctrl_next);
    /* A peer that refuses is there, too: the failover finds out whether its process is. */
    if (is_dialled(c->ctrl_next) || c->ctrl_next->refused_ns)
        return peer_answers(c);
    if (rc != -EAGAIN || now - c->ctrl_dial_ns > DIAL_NS) {
        pvn_conn_close(c->ctrl_next, NULL);
        c->ctrl_next = NULL;
        c->ctrl_dial_ns = now + DIAL_EVERY_NS;
    }
    return 0;
}

struct pvn_conn *comm_ctrl_take(struct pvn_comm *c)
{
    struct pvn_conn *next = NULL;

    if (c->ctrl_next && is_dialled(c->ctrl_next)) {
        next = c->ctrl_next;
        c->ctrl_next = NULL;
    }
    comm_ctrl_forget(c);
    return next;
}

/* Earlier where the peer may have found another path. */
static uint64_t limit(const struct pvn_comm *c)
{
    uint64_t ns = pvn_params_get()->failover_timeout;

    return c->sender && comm_paths_more(c) ? ns / 4 : ns;
}

int comm_ctrl_wait(struct pvn_comm *c, bool idle)
{
    uint64_t now = pvn_now_ns(), bytes = comm_bytes_moved(c);

    if (idle || bytes != c->ctrl_moved_bytes) {
        c->ctrl_moved_bytes = bytes;
        c->ctrl_moved_ns = now;
    }
    if (now - c->ctrl_moved_ns < limit(c))
        return 0;
    pvn_err_clear(&c->ctrl_err);
    return pvn_err_set(&c->ctrl_err, -ETIMEDOUT,
                       "the control connection was lost %.1f s ago, and nothing has moved for "
                       "%.3g s",
                       (double)(now - c->ctrl_lost_ns) / PVN_NS_PER_S,
                       (double)(now - c->ctrl_moved_ns) / PVN_NS_PER_S);
}
