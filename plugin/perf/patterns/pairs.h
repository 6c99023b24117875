/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Comms between pairs of ranks, as many as NCCL makes for point-to-point operations (pairs_plan.h),
 * and groups of such operations, run as by NCCL's proxy. Each channel runs one batch after the
 * other. The operations of a batch run at once, through shared slots. The streams of one comm use
 * grouped receives, if the plugin has them; else each stream has a comm of its own.
 */
#ifndef PVN_PERF_PAIRS_H
#define PVN_PERF_PAIRS_H

#include "perf/workload/pairs_plan.h"
#include "perf/rank/rank.h"

struct pvn_pair_comm {
    int dev;
    void *listen, *send, *recv;
    void *send_mh, *recv_mh;
};

struct pvn_pairs_channel;
struct pvn_pairs_piece;

struct pvn_pairs {
    struct pvn_rank *r;
    struct pvn_pairs_plan plan;
    int lanes;                  /* comms of a part: 1, or one for each stream */
    int max_recvs;              /* buffers of a grouped receive */
    struct pvn_pair_comm *comm; /* pvn_pairs_comm */
    char *mem;                  /* send slots of all channels, then receive slots */
    size_t mem_len;
    char *bounce; /* a message, if the slots are in GPU memory */
    struct pvn_pairs_channel *ch;
    struct pvn_pairs_piece *piece; /* pieces of the running group */
    int pieces;
    int failed;     /* a send failed while the ranks waited for each other */
    int64_t errors; /* wrong stamps and sizes so far */
};

/* One direction between this rank and its counterpart of another node. Stream i belongs to rank i
 * of the sending node. */
struct pvn_pair_op {
    int node, send;
    char *data[PVN_PAIRS_BATCH];
    uint64_t bytes[PVN_PAIRS_BATCH]; /* 0: nothing is sent */
};

/* Called after pvn_rank_open: connects to the nodes that the collective needs; pvn_rank_close
 * closes these comms. 0, or -1 after pvn_rank_fail. */
int pvn_pairs_open(struct pvn_rank *r);

/* Allocates slots and registers them with all comms. 0, or -1 after pvn_rank_fail; call
 * pvn_pairs_stop in either case. */
int pvn_pairs_start(struct pvn_pairs *p);
/* rc: the run's result. After a success this completes everything and frees it. */
int pvn_pairs_stop(struct pvn_pairs *p, int rc);

/* Runs a group of operations, at most one for each node and direction. 0 when all data has arrived
 * and all sends are posted, or -1 after pvn_rank_fail. The data may be used again. */
int pvn_pairs_run(struct pvn_pairs *p, const struct pvn_pair_op *op, int n);

static inline struct pvn_pair_comm *pvn_pairs_comm(const struct pvn_pairs *p, int node, int part,
                                                   int lane)
{
    return &p->comm[(node * p->plan.per_peer + part) * p->lanes + lane];
}

/* Slots of one channel in one direction: NCCL has 16 for steps of 8, for each rank of the sending
 * node. */
static inline int pvn_pairs_pool(const struct pvn_pairs *p, int send)
{
    int slots = 2 * p->r->o->steps;

    return (slots < PVN_PAIRS_BATCH ? PVN_PAIRS_BATCH : slots) * (send ? p->plan.group : 1);
}

#endif
