/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan by which NCCL spreads point-to-point operations over rounds, channels and messages: the facts of
 * src/init.cc (ncclP2pSchedule), src/graph/paths.cc (ncclTopoComputeP2pChannels), src/include/channel.h,
 * src/include/device.h (ncclP2pPartBounds) and src/enqueue.cc (addP2pToPlan, addWorkBatchToPlan) of
 * NCCL 2.28.9, for nodes with one network adapter each. Nothing is moved here.
 *
 * A node has `group` ranks. With more than one, NCCL's PXN brings what they send to rank l of another node to
 * rank l of their own, through NVLink, and from there over the network: so only ranks of the same number
 * in their nodes have comms with each other, and each carries a stream for every rank of the sending node.
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
    8 /* operations that a channel works on at a time: a batch; also `group` at most */

struct pvn_pairs_plan {
    int nodes, node; /* how many; this rank's */
    int group;       /* 1, 2, 4 or 8 ranks of a node */
    int channels;    /* a power of two */
    int per_peer; /* comms of a pair in one direction: the channels that share its bytes at most */
    int few;      /* of these, as many as an operation begins with */
    size_t slot;  /* bytes of a message at most */
    int *delta;   /* [nodes] how far the peer of a round is */
    int *round;   /* [nodes] and the round of a distance */
};

/* 0, or -ENOMEM. nranks is a multiple of group. per_peer: channels of a pair, at most `channels`; 0: as many as NCCL
 * takes without NCCL_NCHANNELS_PER_NET_PEER. Free with pvn_pairs_plan_free in either case. */
int pvn_pairs_plan_init(struct pvn_pairs_plan *p, int nranks, int rank, int group, int channels,
                        int per_peer, size_t slot);
void pvn_pairs_plan_free(struct pvn_pairs_plan *p);

/* The round in which this rank sends to a node, or receives from it. */
int pvn_pairs_round(const struct pvn_pairs_plan *p, int node, int send);
/* The channel that carries a part of a round's operation; the batch of that channel to which it belongs. */
int pvn_pairs_channel(const struct pvn_pairs_plan *p, int round, int part);
int pvn_pairs_batch(const struct pvn_pairs_plan *p, int round);

/* Into how many parts an operation is divided (0: it has no bytes), and where a part lies in it. */
int pvn_pairs_parts(const struct pvn_pairs_plan *p, uint64_t bytes);
void pvn_pairs_part(uint64_t bytes, int parts, int part, uint64_t *from, uint64_t *to);
/* Bytes of the messages of an operation; the last one may be shorter. */
size_t pvn_pairs_message(const struct pvn_pairs_plan *p, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
