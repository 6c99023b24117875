/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A link in a failover (FENCE, CONNECT, EXCHANGE): the connection that is to take over, how a connector makes it, and
 * what shows meanwhile that the peer is there. The comm takes the steps (comm_failover.c), since fences, registrations and
 * the engine are its own.
 *
 * Threads: as link.h.
 */
#ifndef PVN_CONNECT_LINK_FAILOVER_H
#define PVN_CONNECT_LINK_FAILOVER_H

#include "connect/link.h"
#include "connect/path_watch.h"
#include "connect/presence.h"

/* Within EXCHANGE, done so far: nothing; `next` has the comm's memory; the receiver has sent its report. */
enum pvn_link_exchange {
    PVN_LINK_EXCHANGE_BEGINS,
    PVN_LINK_EXCHANGE_ATTACHED,
    PVN_LINK_EXCHANGE_REPORTED
};

/* Times are of the monotonic clock. */
struct pvn_link_failover {
    struct pvn_conn *next; /* the connection that is to take over; NULL: none yet */
    enum pvn_link_exchange step;
    bool refuses; /* acceptor: the faster kind of lane does not take the comm's memory */
    unsigned refusals;
    bool exchanged; /* the peer may have given up the old connection */
    bool hung_up;   /* the old control connection has ended in order, and no other shows the peer */
    bool
        switches; /* not after a loss, but to better lanes: `next`; an acceptor may have none yet */
    unsigned attempts;
    unsigned path; /* connector: of `next` */
    struct pvn_path_watch silence;
    unsigned refused;    /* connector: bit per path on which the last attempt was refused */
    uint64_t retry_ns;   /* connector: not before */
    uint64_t dialled_ns; /* connector: when `next` was begun */
    uint64_t began_ns;   /* moved on while nobody called, and while the peer is there */
    uint64_t since_ns;   /* moved on while nobody called */
    bool stall_reported;
    uint64_t stepped_ns;
    uint64_t key_ns;                 /* when the key's file is looked at next */
    struct pvn_presence_probe probe; /* acceptor, while nothing else shows the peer */
    bool stands;                     /* as the probe found it: the peer's process is stopped */
    struct pvn_err last;             /* of the last attempt */
};

/* A loss, or a switch to other lanes: FENCE. False: there is no memory, and nothing has changed. */
bool pvn_link_failover_begin(struct pvn_link *l);
/* The next connection, which is up, is the one in use from now on, with so many messages delivered before it. Returns the
 * old one, which the caller closes; RESUMED is the caller's to note. */
struct pvn_conn *pvn_link_take_over(struct pvn_link *l, uint64_t messages);
/* The comm ends: gives up the failover and the return, if there are any, and adopts a control connection that is there, so
 * that the peer hears of the end. On a next connection that is up it hears why; NULL: the comm is closed, and a receiver has
 * `received` so many messages. No memory is registered with the next connection's lanes any more. */
void pvn_link_end(struct pvn_link *l, const struct pvn_err *why, uint64_t received);

/* Makes the next connection, after its pause, or takes it from the listener or from the return: 0 it is up, -EAGAIN call
 * again, else *err says why it is lost; it stays in `next`, for pvn_link_drop_next. fallback_only: of pvn_listener_resumed. */
int pvn_link_connect(struct pvn_link *l, bool fallback_only, struct pvn_err *err);
/* Connector, when an attempt has failed: true if all paths refuse, and the old control connection is gone. */
bool pvn_link_is_refused(struct pvn_link *l, const struct pvn_err *why);
/* Closes the next connection, if there is one, without a GOODBYE, and another one is to be made after a pause (AGAIN); an
 * acceptor's attempts (link_back.h) begin again, a connector's end. No memory is registered with its lanes any more. */
void pvn_link_drop_next(struct pvn_link *l);

/* Connector, in FENCE or EXCHANGE: a switch becomes a failover after a loss, whose first attempt is still to come (EXCHANGE:
 * AGAIN). No memory is registered with the next connection's lanes any more. */
void pvn_link_leave_better(struct pvn_link *l);

/* Looks, at an acceptor that no connection shows the peer, for its process. */
void pvn_link_look_for_peer(struct pvn_link *l, uint64_t now);
/* True if a connection, or that look, shows that the peer is there. */
bool pvn_link_sees_peer(const struct pvn_link *l);
/* pvn_link_sees_peer in words, for users. */
const char *pvn_link_peer_text(const struct pvn_link *l);

#endif
