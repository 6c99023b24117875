/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/link.h"

#include <errno.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"
#include "connect/link_failover.h"

enum { REFUSED, OFFSET }; /* a missing entry is 0: the event is not allowed */
#define TO(s)   (PVN_LINK_##s + OFFSET)
#define KNOB(f) (offsetof(struct pvn_params, f) + OFFSET)

/* How long to wait for a peer whose process seems to have ended. A proxy may have closed an idle
 * connection, and the connector makes another one. */
#define ENDED_NS (3 * PVN_NS_PER_S)

static const struct row {
    const char *name;
    bool open;
    size_t knob;       /* the limit is this parameter */
    uint64_t limit_ns; /* the limit where there is no parameter; 0: none */
    uint64_t ended_ns; /* instead of these, if the peer's process seems to have ended */
    unsigned char next[PVN_LINK_EVENTS];
} row[PVN_LINK_STATES] = {
    [PVN_LINK_SETUP] = {.name = "SETUP",
                        .next = {[PVN_LINK_CAME_UP] = TO(UP), [PVN_LINK_END] = TO(ENDED)}},
    [PVN_LINK_UP] = {.name = "UP",
                     .open = true,
                     .next = {[PVN_LINK_CTRL_LOST] = TO(ALONE),
                              [PVN_LINK_CTRL_BACK] = TO(UP),
                              [PVN_LINK_PEER_GONE] = TO(GONE),
                              [PVN_LINK_BETTER] = TO(DRAINS),
                              [PVN_LINK_LOST] = TO(FENCE),
                              [PVN_LINK_END] = TO(ENDED)}},
    [PVN_LINK_ALONE] = {.name = "ALONE",
                        .open = true,
                        .knob = KNOB(failover_timeout),
                        .ended_ns = ENDED_NS,
                        .next = {[PVN_LINK_CTRL_LOST] = TO(ALONE),
                                 [PVN_LINK_CTRL_BACK] = TO(UP),
                                 [PVN_LINK_PEER_GONE] = TO(GONE),
                                 [PVN_LINK_LOST] = TO(FENCE),
                                 [PVN_LINK_END] = TO(ENDED)}},
    [PVN_LINK_GONE] = {.name = "GONE",
                       .open = true,
                       .limit_ns = PVN_NS_PER_S,
                       .ended_ns = ENDED_NS,
                       .next = {[PVN_LINK_CTRL_BACK] = TO(UP),
                                [PVN_LINK_PEER_GONE] = TO(GONE),
                                [PVN_LINK_LOST] = TO(FENCE),
                                [PVN_LINK_END] = TO(ENDED)}},
    [PVN_LINK_DRAINS] = {.name = "DRAINS",
                         .limit_ns = PVN_NS_PER_S / 10,
                         .next = {[PVN_LINK_CTRL_LOST] = TO(ALONE),
                                  [PVN_LINK_CTRL_BACK] = TO(DRAINS),
                                  [PVN_LINK_PEER_GONE] = TO(GONE),
                                  [PVN_LINK_NO_BETTER] = TO(UP),
                                  [PVN_LINK_LOST] = TO(FENCE),
                                  [PVN_LINK_END] = TO(ENDED)}},
    [PVN_LINK_FENCE] = {.name = "FENCE",
                        .knob = KNOB(failover_timeout),
                        .ended_ns = ENDED_NS,
                        .next = {[PVN_LINK_CTRL_BACK] = TO(FENCE),
                                 [PVN_LINK_FENCED] = TO(CONNECT),
                                 [PVN_LINK_END] = TO(ENDED)}},
    [PVN_LINK_CONNECT] = {.name = "CONNECT",
                          .knob = KNOB(failover_timeout),
                          .ended_ns = ENDED_NS,
                          .next = {[PVN_LINK_CTRL_BACK] = TO(CONNECT),
                                   [PVN_LINK_CONNECTED] = TO(EXCHANGE),
                                   [PVN_LINK_AGAIN] = TO(CONNECT),
                                   [PVN_LINK_END] = TO(ENDED)}},
    [PVN_LINK_EXCHANGE] = {.name = "EXCHANGE",
                           .knob = KNOB(failover_timeout),
                           .ended_ns = ENDED_NS,
                           .next = {[PVN_LINK_CTRL_BACK] = TO(EXCHANGE),
                                    [PVN_LINK_AGAIN] = TO(CONNECT),
                                    [PVN_LINK_RESUMED] = TO(UP),
                                    [PVN_LINK_END] = TO(ENDED)}},
    /* A control connection that comes now carries the reason to the peer. */
    [PVN_LINK_ENDED] = {.name = "ENDED",
                        .next = {[PVN_LINK_CTRL_BACK] = TO(ENDED), [PVN_LINK_END] = TO(ENDED)}},
};

bool pvn_link_on(struct pvn_link *l, enum pvn_link_event event, uint64_t now)
{
    unsigned to = row[l->state].next[event];

    if (to == REFUSED)
        return false;
    if (l->state != (enum pvn_link_state)(to - OFFSET))
        l->since_ns = now;
    l->state = (enum pvn_link_state)(to - OFFSET);
    return true;
}

bool pvn_link_is_open(const struct pvn_link *l)
{
    return row[l->state].open;
}

/* True if the control connection shows that the peer's process has ended: it was reset or forged
 * (ALONE), or has ended in order (the others). */
static bool seems_ended(const struct pvn_link *l)
{
    int code = l->ctrl_err.code;

    if (l->failover)
        return l->failover->hung_up || l->failover->gone_ns;
    if (l->state == PVN_LINK_ALONE)
        return code == -ECONNRESET || code == -EBADMSG;
    return code == -EPIPE && pvn_conn_keeps(l->conn);
}

uint64_t pvn_link_limit_ns(const struct pvn_link *l)
{
    const struct row *r = &row[l->state];
    uint64_t limit;

    if (r->ended_ns && seems_ended(l))
        return r->ended_ns;
    if (!r->knob)
        return r->limit_ns ? r->limit_ns : UINT64_MAX;
    limit = *(const uint64_t *)((const char *)pvn_params_get() + (r->knob - OFFSET));
    /* Less if the peer may have found another path already. */
    return l->state == PVN_LINK_ALONE && l->sender && pvn_paths_more(&l->paths) ? limit / 4 : limit;
}

void pvn_link_moved(struct pvn_link *l, uint64_t bytes, uint64_t now)
{
    l->moved_bytes = bytes;
    l->moved_ns = now;
}

bool pvn_link_is_over(struct pvn_link *l, uint64_t bytes, bool excused, uint64_t now)
{
    if (excused || bytes != l->moved_bytes)
        pvn_link_moved(l, bytes, now);
    return now - l->moved_ns >= pvn_link_limit_ns(l);
}

const char *pvn_link_state_name(enum pvn_link_state state)
{
    return row[state].name;
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
