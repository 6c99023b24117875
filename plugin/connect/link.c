/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/link.h"

#include "base/clock.h"
#include "base/log.h"

enum { REFUSED, OFFSET }; /* entries that are not given are 0 */
#define TO(s) (PVN_LINK_##s + OFFSET)

static const unsigned char next[PVN_LINK_STATES][PVN_LINK_EVENTS] = {
    [PVN_LINK_SETUP] = {[PVN_LINK_CAME_UP] = TO(UP), [PVN_LINK_END] = TO(ENDED)},
    [PVN_LINK_UP] = {[PVN_LINK_CTRL_LOST] = TO(ALONE),
                     [PVN_LINK_CTRL_BACK] = TO(UP),
                     [PVN_LINK_PEER_GONE] = TO(GONE),
                     [PVN_LINK_BETTER] = TO(DRAINS),
                     [PVN_LINK_LOST] = TO(FENCE),
                     [PVN_LINK_END] = TO(ENDED)},
    [PVN_LINK_ALONE] = {[PVN_LINK_CTRL_LOST] = TO(ALONE),
                        [PVN_LINK_CTRL_BACK] = TO(UP),
                        [PVN_LINK_PEER_GONE] = TO(GONE),
                        [PVN_LINK_LOST] = TO(FENCE),
                        [PVN_LINK_END] = TO(ENDED)},
    [PVN_LINK_GONE] = {[PVN_LINK_CTRL_BACK] = TO(UP),
                       [PVN_LINK_PEER_GONE] = TO(GONE),
                       [PVN_LINK_LOST] = TO(FENCE),
                       [PVN_LINK_END] = TO(ENDED)},
    [PVN_LINK_DRAINS] = {[PVN_LINK_CTRL_LOST] = TO(ALONE),
                         [PVN_LINK_CTRL_BACK] = TO(DRAINS),
                         [PVN_LINK_PEER_GONE] = TO(GONE),
                         [PVN_LINK_NO_BETTER] = TO(UP),
                         [PVN_LINK_LOST] = TO(FENCE),
                         [PVN_LINK_END] = TO(ENDED)},
    [PVN_LINK_FENCE] = {[PVN_LINK_CTRL_BACK] = TO(FENCE),
                        [PVN_LINK_FENCED] = TO(CONNECT),
                        [PVN_LINK_END] = TO(ENDED)},
    [PVN_LINK_CONNECT] = {[PVN_LINK_CTRL_BACK] = TO(CONNECT),
                          [PVN_LINK_CONNECTED] = TO(EXCHANGE),
                          [PVN_LINK_AGAIN] = TO(CONNECT),
                          [PVN_LINK_END] = TO(ENDED)},
    [PVN_LINK_EXCHANGE] = {[PVN_LINK_CTRL_BACK] = TO(EXCHANGE),
                           [PVN_LINK_AGAIN] = TO(CONNECT),
                           [PVN_LINK_RESUMED] = TO(UP),
                           [PVN_LINK_END] = TO(ENDED)},
    /* A control connection that comes now is to carry the reason. */
    [PVN_LINK_ENDED] = {[PVN_LINK_CTRL_BACK] = TO(ENDED), [PVN_LINK_END] = TO(ENDED)},
};

bool pvn_link_on(struct pvn_link *l, enum pvn_link_event event, uint64_t now)
{
    unsigned to = next[l->state][event];

    if (to == REFUSED)
        return false;
    if (l->state != (enum pvn_link_state)(to - OFFSET))
        l->since_ns = now;
    l->state = (enum pvn_link_state)(to - OFFSET);
    return true;
}

bool pvn_link_is_open(const struct pvn_link *l)
{
    return l->state == PVN_LINK_UP || l->state == PVN_LINK_ALONE || l->state == PVN_LINK_GONE;
}

const char *pvn_link_state_name(enum pvn_link_state state)
{
    static const char *const name[PVN_LINK_STATES] = {
        [PVN_LINK_SETUP] = "SETUP",     [PVN_LINK_UP] = "UP",
        [PVN_LINK_ALONE] = "ALONE",     [PVN_LINK_GONE] = "GONE",
        [PVN_LINK_DRAINS] = "DRAINS",   [PVN_LINK_FENCE] = "FENCE",
        [PVN_LINK_CONNECT] = "CONNECT", [PVN_LINK_EXCHANGE] = "EXCHANGE",
        [PVN_LINK_ENDED] = "ENDED",
    };

    return name[state];
}

const char *pvn_link_event_name(enum pvn_link_event event)
{
    static const char *const name[PVN_LINK_EVENTS] = {
        [PVN_LINK_CAME_UP] = "CAME_UP",     [PVN_LINK_CTRL_LOST] = "CTRL_LOST",
        [PVN_LINK_CTRL_BACK] = "CTRL_BACK", [PVN_LINK_PEER_GONE] = "PEER_GONE",
        [PVN_LINK_BETTER] = "BETTER",       [PVN_LINK_NO_BETTER] = "NO_BETTER",
        [PVN_LINK_LOST] = "LOST",           [PVN_LINK_FENCED] = "FENCED",
        [PVN_LINK_CONNECTED] = "CONNECTED", [PVN_LINK_AGAIN] = "AGAIN",
        [PVN_LINK_RESUMED] = "RESUMED",     [PVN_LINK_END] = "END",
    };

    return name[event];
}

void pvn_link_note(struct pvn_link *l, enum pvn_link_event event)
{
    enum pvn_link_state before = l->state;

    if (!pvn_link_on(l, event, pvn_now_ns()))
        pvn_warn(
            "%s %s %s: %s in the state %s, where it may not come: a fault of the plugin; please report it",
            l->conn->where, l->sender ? "to" : "from", l->conn->who, pvn_link_event_name(event),
            pvn_link_state_name(before));
    else if (l->state != before)
        pvn_trace(PVN_NET, "%s %s %s: %s: %s", l->conn->where, l->sender ? "to" : "from",
                  l->conn->who, pvn_link_event_name(event), pvn_link_state_name(l->state));
}
