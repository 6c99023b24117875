/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A link in a failover (FENCE, CONNECT, EXCHANGE): the connection that is to take over, how a
 * connector makes it, and the signs that the peer is there meanwhile. The comm takes the steps
 * (comm_failover.c), because it owns the fences, the registrations and the engine.
 *
 * Threads: as link.h.
 */
#ifndef PVN_CONNECT_LINK_FAILOVER_H
#define PVN_CONNECT_LINK_FAILOVER_H

#include "connect/link.h"
#include "connect/path_watch.h"
#include "connect/presence.h"

/* Progress within EXCHANGE: none; `next` has the comm's memory; the receiver has sent its
 * report. */
enum pvn_link_exchange {
    PVN_LINK_EXCHANGE_BEGINS,
    PVN_LINK_EXCHANGE_ATTACHED,
    PVN_LINK_EXCHANGE_REPORTED
};

/* Times are of the monotonic clock. */
struct pvn_link_failover {
    struct pvn_conn *next; /* the connection that is to take over; NULL: none yet */
    enum pvn_link_exchange step;
    bool refuses; /* acceptor: the faster kind of lane has refused the comm's memory */
    unsigned refusals;
    bool exchanged; /* the peer may have given up the old connection */
    /* The old control connection has ended in order, and no other one shows the peer. */
    bool hung_up;
    /* It was reset: the peer's machine does not know it any more. */
    bool reset;
    /* This is a switch to better lanes, which are in `next`, and no loss. An acceptor may have no
     * `next` yet. */
    bool switches;
    unsigned attempts;
    unsigned path; /* connector: the path of `next` */
    struct pvn_path_watch silence;
    unsigned refused;    /* connector: bit per path that refused the last attempt on it */
    uint64_t retry_ns;   /* connector: no attempt before this time */
    uint64_t dialled_ns; /* connector: when `next` was begun */
    /* Start of the limit; time without calls, or with the peer seen, does not count. */
    uint64_t began_ns;
    uint64_t since_ns; /* start of the failover; time without calls does not count */
    bool stall_reported;
    uint64_t stepped_ns;
    uint64_t key_ns;                 /* when the key file is checked next */
    struct pvn_presence_probe probe; /* acceptor: looks for the peer while nothing else shows it */
    bool stands;                     /* the probe has found that the peer's process is stopped */
    /* Acceptor: since when all addresses of the peer's process refuse, after a reset; 0: they do not. Time without calls
     * does not count. */
    uint64_t gone_ns;
    struct pvn_err last; /* the last attempt's error */
};

/* Begins after a loss, or for a switch to other lanes, in FENCE. False: no memory, and nothing has
 * changed. */
bool pvn_link_failover_begin(struct pvn_link *l);
/* Puts the next connection, which is up, into use. messages: how many were delivered before.
 * Returns the old connection, which the caller closes; the caller also notes RESUMED. */
struct pvn_conn *pvn_link_take_over(struct pvn_link *l, uint64_t messages);
/* The comm ends. Gives up the failover and the return, if any, and adopts a control connection that
 * is there, so that the peer hears of the end. If the next connection is up, it carries the reason
 * `why`. why NULL: the comm is closed, and a receiver has received `received` messages. No memory
 * is registered with the next connection's lanes any more. */
void pvn_link_end(struct pvn_link *l, const struct pvn_err *why, uint64_t received);

/* Makes the next connection after its pause (connector), or takes it from the listener or from the
 * return (acceptor). 0: it is up; -EAGAIN: call again; else *err says why it is lost, and it stays
 * in `next` until pvn_link_drop_next. fallback_only: see pvn_listener_resumed. */
int pvn_link_connect(struct pvn_link *l, bool fallback_only, struct pvn_err *err);
/* Connector, after a failed attempt: true if all paths refuse, and the old control connection is
 * gone. */
bool pvn_link_is_refused(struct pvn_link *l, const struct pvn_err *why);
/* Closes the next connection, if there is one, without a GOODBYE; another one is made after a pause
 * (AGAIN). An acceptor's attempts (link_back.h) begin again, a connector's end. No memory is
 * registered with its lanes any more. */
void pvn_link_drop_next(struct pvn_link *l);

/* Connector, in FENCE or EXCHANGE: turns a switch into a failover after a loss, whose first attempt
 * is still to come (EXCHANGE: AGAIN). No memory is registered with the next connection's lanes any
 * more. */
void pvn_link_leave_better(struct pvn_link *l);

/* At an acceptor: if no connection shows the peer, probes for its process. */
void pvn_link_look_for_peer(struct pvn_link *l, uint64_t now);
/* True if a connection, or that probe, shows that the peer is there. */
bool pvn_link_sees_peer(const struct pvn_link *l);
/* pvn_link_sees_peer in words, for users. */
const char *pvn_link_peer_text(const struct pvn_link *l);

#endif
