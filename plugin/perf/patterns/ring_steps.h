/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The algorithm of each collective on a ring, as NCCL's kernels have it (runRing in
 * src/device/all_reduce.h, all_gather.h, reduce_scatter.h and broadcast.h, and the slices of
 * src/device/prims_simple.h, of NCCL 2.30.7), step by step: which elements a rank takes from where and
 * puts where. Nothing is moved here.
 */
#ifndef PVN_PERF_RING_STEPS_H
#define PVN_PERF_RING_STEPS_H

#include <stdint.h>

#include "perf/options/opts.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A rank's input and output have `count` elements each in an all-reduce, in a broadcast (from rank 0) and where
 * each rank sends to the next one. An all-gather's input has count, and its output count for each rank; a
 * reduce-scatter's input has count for each rank, and its output count.
 */
struct pvn_ring_shape {
    enum pvn_collective what;
    int nranks, rank;
    uint64_t count;
    uint64_t slot;  /* elements of a message at most */
    uint64_t align; /* elements in 16 bytes */
    int slices;     /* messages per chunk */
};

/* A channel's share of the elements, and the position in it. */
struct pvn_ring_pos {
    uint64_t start, end;
    uint64_t at;    /* where the current loop begins */
    uint64_t chunk; /* of the loop, elements */
    int phase, slice;
    int side; /* sendrecv, whose sides do not wait for each other: 0 sends, 1 receives */
};

/* A move reads the input, a received message, or both, which are added, and writes the
 * output, a message to the next rank, or both. */
enum { PVN_IN = 1, PVN_RECEIVED = 2, PVN_OUT = 4, PVN_SENT = 8 };

struct pvn_move {
    unsigned uses;
    uint64_t in, out; /* where in the input and the output */
    uint64_t count;   /* may be 0: the message is sent all the same */
};

/* How many positions a channel has at a time: 2 where sending and receiving are apart. */
int pvn_ring_sides(const struct pvn_ring_shape *s);
/* The share of channel c of `channels`. */
void pvn_ring_share(const struct pvn_ring_shape *s, int c, int channels, struct pvn_ring_pos *p);
/* Goes to the beginning of the share. 0: it is empty. */
int pvn_ring_start(const struct pvn_ring_shape *s, struct pvn_ring_pos *p);
struct pvn_move pvn_ring_move(const struct pvn_ring_shape *s, const struct pvn_ring_pos *p);
/* Goes to the next move. 0: that was the last one. */
int pvn_ring_next(const struct pvn_ring_shape *s, struct pvn_ring_pos *p);
/* How many messages the share brings from the previous rank; moves the position. */
uint64_t pvn_ring_receives(const struct pvn_ring_shape *s, struct pvn_ring_pos *p);

/* Elements of the input and of the output. */
uint64_t pvn_ring_in(const struct pvn_ring_shape *s);
uint64_t pvn_ring_out(const struct pvn_ring_shape *s);

/* nccl-tests' factor from algorithm to bus bandwidth, and how many of the array's bytes all ranks
 * send together. */
double pvn_ring_factor(enum pvn_collective what, int nranks);
double pvn_ring_sent(enum pvn_collective what, int nranks);

#ifdef __cplusplus
}
#endif

#endif
