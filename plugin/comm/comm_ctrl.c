/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm whose control connection is lost while its lanes work: the network that carries it has an
 * outage, and the adapters have another network, or a path of their own. The lanes go on. Both ends
 * adopt the control connection that is made in its place (link_keep.h). They do so within a
 * failover, too, where it shows that the peer is there.
 *
 * Until then a lane that fails begins a failover as always. A time limit replaces the reports that
 * only the control connection could have brought: if the caller waits and nothing moves, the peer
 * may have ended, or may be in a failover that it could not report.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"

bool comm_ctrl_may_be_away(const struct pvn_comm *c, int code)
{
    bool outage =
        code == -ETIMEDOUT || code == -EHOSTUNREACH || code == -ENETUNREACH || code == -ENETDOWN;

    /* The peer may have lost it in an outage of one direction only. Forged bytes count as such a
     * loss at both ends. */
    if (code == -ECONNRESET || code == -EBADMSG)
        outage = pvn_conn_keeps(c->link.conn);
    if (!outage || !pvn_conn_failover(c->link.conn) || !pvn_engine_may_pause(c->engine) ||
        pvn_engine_paused(c->engine))
        return false;
    for (int i = 0; i < c->link.conn->nlanes; i++)
        if (c->link.conn->lane[i]->ops->is_fallback) /* a fallback lane uses the same network */
            return false;
    return true;
}

void comm_ctrl_lost(struct pvn_comm *c)
{
    char text[PVN_ERR_TEXT_LEN];

    comm_note(c, PVN_LINK_CTRL_LOST);
    pvn_link_moved(&c->link, comm_bytes_moved(c), pvn_now_ns());
    pvn_err_format(&c->link.ctrl_err, text, sizeof(text));
    pvn_warn("%s %s %s: the control connection is lost: %s; the lanes go on without it, and it is "
             "made again when the peer can be reached",
             c->link.conn->where, c->link.sender ? "to" : "from", c->link.conn->who, text);
}

int comm_ctrl_wait(struct pvn_comm *c, bool idle)
{
    uint64_t now = pvn_now_ns();

    if (!pvn_link_is_over(&c->link, comm_bytes_moved(c), idle, now))
        return 0;
    pvn_err_clear(&c->link.ctrl_err);
    return pvn_err_set(&c->link.ctrl_err, -ETIMEDOUT,
                       "the control connection was lost %.1f s ago, and nothing has moved for "
                       "%.3g s",
                       (double)(now - c->link.since_ns) / PVN_NS_PER_S,
                       (double)(now - c->link.moved_ns) / PVN_NS_PER_S);
}
