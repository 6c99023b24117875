/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A failover in progress, for comm_failover.c, which takes its steps, and comm_error.c, which ends
 * it with the comm. */
#ifndef PVN_COMM_COMM_FAILOVER_H
#define PVN_COMM_COMM_FAILOVER_H

#include "connect/handshake.h"
#include "connect/path_watch.h"
#include "connect/presence.h"

/* Within EXCHANGE, done so far: nothing; `next` has the comm's memory; the receiver has sent its report. */
enum exchange_step { EXCHANGE_BEGINS, EXCHANGE_ATTACHED, EXCHANGE_REPORTED };

struct comm_failover {
    struct pvn_conn *next; /* the connection that is to take over */
    enum exchange_step step;
    bool refuses; /* acceptor: the faster kind of lane does not take that */
    unsigned refusals;
    bool exchanged; /* the peer may have given up the old connection */
    bool hung_up;   /* the old control connection has ended in order, and no other shows the peer */
    bool switches;  /* not after a loss, but to better lanes */
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
    struct pvn_presence_probe probe; /* acceptor, while nothing else shows the peer */
    bool stands;                     /* as the probe found it: the peer's process is stopped */
    struct pvn_err last;             /* of the last attempt */
};

#endif
