/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Comms between pairs of ranks, as many as NCCL makes for point-to-point operations (pairs_plan.h), and groups
 * of such operations on them, as NCCL's proxy runs them: per channel one batch after the other, the operations of a
 * batch at once, through slots that they share. Streams of one comm come in grouped receives, if the plugin has
 * those; else each has a comm of its own.
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
    char *mem; /* slots for what is sent, per channel, then those for what is received */
    size_t mem_len;
    char *bounce; /* a message, where the slots are in GPU memory */
    struct pvn_pairs_channel *ch;
    struct pvn_pairs_piece *piece; /* of the group that runs */
    int pieces;
    int failed;     /* a send, while the ranks waited for each other */
    int64_t errors; /* wrong stamps and sizes, as they are found */
};

/* One direction between this rank and its counterpart of another node: stream i is of rank i of the sending node. */
struct pvn_pair_op {
    int node, send;
    char *data[PVN_PAIRS_BATCH];
    uint64_t bytes[PVN_PAIRS_BATCH]; /* 0: nothing is sent */
};

/* After pvn_rank_open: the comms with the nodes that the collective needs, which pvn_rank_close closes. 0, or -1 after
 * pvn_rank_fail. */
int pvn_pairs_open(struct pvn_rank *r);

/* Memory for slots, registered with all comms. 0, or -1 after pvn_rank_fail; pvn_pairs_stop in either case. */
int pvn_pairs_start(struct pvn_pairs *p);
/* rc: how the run went; without a failure everything is completed and given back. */
int pvn_pairs_stop(struct pvn_pairs *p, int rc);

/* A group of operations, at most one for each node and direction. 0 when everything has come and what is sent was
 * handed over, or -1 after pvn_rank_fail. The data may be used again. */
int pvn_pairs_run(struct pvn_pairs *p, const struct pvn_pair_op *op, int n);

static inline struct pvn_pair_comm *pvn_pairs_comm(const struct pvn_pairs *p, int node, int part,
                                                   int lane)
{
    return &p->comm[(node * p->plan.per_peer + part) * p->lanes + lane];
}

/* Slots of one channel in either direction: NCCL has 16 for steps of 8, for each rank of the node that sends. */
static inline int pvn_pairs_pool(const struct pvn_pairs *p, int send)
{
    int slots = 2 * p->r->o->steps;

    return (slots < PVN_PAIRS_BATCH ? PVN_PAIRS_BATCH : slots) * (send ? p->plan.group : 1);
}

/* 1 if this rank has comms with a node. */
int pvn_pairs_talks(const struct pvn_pairs *p, int node);

#endif
