/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/clock.h"
#include "base/log.h"

void comm_link_on(struct pvn_comm *c, enum pvn_link_event event)
{
    enum pvn_link_state before = c->link.state;

    if (!pvn_link_on(&c->link, event, pvn_now_ns()))
        pvn_warn(
            "%s %s %s: %s in the state %s, where it may not come: a fault of the plugin; please report it",
            c->conn->where, c->sender ? "to" : "from", c->conn->who, pvn_link_event_name(event),
            pvn_link_state_name(before));
    else if (c->link.state != before)
        pvn_trace(PVN_NET, "%s %s %s: %s: %s", c->conn->where, c->sender ? "to" : "from",
                  c->conn->who, pvn_link_event_name(event), pvn_link_state_name(c->link.state));
}

void comm_end_drain(struct pvn_comm *c)
{
    if (c->link.state != PVN_LINK_DRAINS)
        return;
    comm_link_on(c, PVN_LINK_NO_BETTER);
    comm_allow_calls(c);
}
