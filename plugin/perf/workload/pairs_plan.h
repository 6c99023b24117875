/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan by which NCCL spreads point-to-point operations over rounds, channels and messages: the
 * facts of src/init.cc (ncclP2pSchedule), src/graph/paths.cc (ncclTopoComputeP2pChannels),
 * src/include/channel.h, src/include/device.h (ncclP2pPartBounds) and src/enqueue.cc (addP2pToPlan,
 * addWorkBatchToPlan) of NCCL 2.28.9, for nodes with one network adapter each. Nothing is moved
 * here.
 *
 * A node has `group` ranks. With more than one, NCCL's PXN moves data for rank l of another node
 * through NVLink to rank l of the own node, and from there over the network. So only ranks with the
 * same number in their nodes have comms with each other, and each comm carries a stream for every
 * rank of the sending node.
 */
#ifndef PVN_PERF_PAIRS_PLAN_H
#define PVN_PERF_PAIRS_PLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_PAIRS_SLOT (128 * 1024) /* NCCL_P2P_NET_CHUNKSIZE */
#define PVN_PAIRS_BATCH                                                                            \
    8 /* operations that a channel runs at once (a batch); also the limit of `group` */

struct pvn_pairs_plan {
    int nodes, node; /* number of nodes; this rank's node */
    int group;       /* 1, 2, 4 or 8 ranks of a node */
    int channels;    /* a power of two */
    int per_peer; /* comms of a pair in one direction: the channels that share its bytes at most */
    int few;      /* comms that an operation uses at first */
    size_t slot;  /* limit of a message's bytes */
    int *delta;   /* [nodes] distance to a round's peer */
    int *round;   /* [nodes] round of a distance */
};

/* Makes the plan. nranks is a multiple of group. per_peer: channels of a pair, at most `channels`;
 * 0: as many as NCCL takes without NCCL_NCHANNELS_PER_NET_PEER. 0, or -ENOMEM; free with
 * pvn_pairs_plan_free in either case. */
int pvn_pairs_plan_init(struct pvn_pairs_plan *p, int nranks, int rank, int group, int channels,
                        int per_peer, size_t slot);
void pvn_pairs_plan_free(struct pvn_pairs_plan *p);

/* The round in which this rank sends to a node, or receives from it. */
int pvn_pairs_round(const struct pvn_pairs_plan *p, int node, int send);
/* The channel that carries a part of a round's operation, and the batch of that channel to which
 * the round belongs. */
int pvn_pairs_channel(const struct pvn_pairs_plan *p, int round, int part);
int pvn_pairs_batch(const struct pvn_pairs_plan *p, int round);

/* The number of parts of an operation (0 if it has no bytes), and the range of a part. */
int pvn_pairs_parts(const struct pvn_pairs_plan *p, uint64_t bytes);
void pvn_pairs_part(uint64_t bytes, int parts, int part, uint64_t *from, uint64_t *to);
/* Bytes of the messages of an operation; the last one may be shorter. */
size_t pvn_pairs_message(const struct pvn_pairs_plan *p, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
