/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The algorithm of each collective on a ring, as in NCCL's kernels (runRing in
 * src/device/all_reduce.h, all_gather.h, reduce_scatter.h and broadcast.h, and the slices of
 * src/device/prims_simple.h, of NCCL 2.30.7). Each step names the elements that a rank reads, their
 * source and their destination. Nothing is moved here.
 */
#ifndef PVN_PERF_RING_STEPS_H
#define PVN_PERF_RING_STEPS_H

#include <stdint.h>

#include "perf/options/opts.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A rank's input and output have `count` elements each in an all-reduce, in a broadcast (from rank
 * 0) and in a sendrecv (each rank sends to the next one). An all-gather's input has `count`, and
 * its output `count` for each rank. A reduce-scatter's input has `count` for each rank, and its
 * output `count`.
 */
struct pvn_ring_shape {
    enum pvn_collective what;
    int nranks, rank;
    uint64_t count;
    uint64_t slot;  /* limit of elements in a message */
    uint64_t align; /* elements in 16 bytes */
    int slices;     /* messages per chunk */
};

/* A channel's share of the elements, and the position in it. */
struct pvn_ring_pos {
    uint64_t start, end;
    uint64_t at;    /* position at which the current loop begins */
    uint64_t chunk; /* elements of the loop's chunk */
    int phase, slice;
    int side; /* sendrecv, whose sides are independent: 0 sends, 1 receives */
};

/* A move reads the input, a received message, or their sum. It writes the output, a message to the
 * next rank, or both. */
enum { PVN_IN = 1, PVN_RECEIVED = 2, PVN_OUT = 4, PVN_SENT = 8 };

struct pvn_move {
    unsigned uses;
    uint64_t in, out; /* positions in the input and the output */
    uint64_t count;   /* may be 0: the message is still sent */
};

/* Number of positions of a channel: 2 if sending and receiving are independent, else 1. */
int pvn_ring_sides(const struct pvn_ring_shape *s);
/* The share of channel c of `channels`. */
void pvn_ring_share(const struct pvn_ring_shape *s, int c, int channels, struct pvn_ring_pos *p);
/* Moves to the beginning of the share. 0 if the share is empty. */
int pvn_ring_start(const struct pvn_ring_shape *s, struct pvn_ring_pos *p);
struct pvn_move pvn_ring_move(const struct pvn_ring_shape *s, const struct pvn_ring_pos *p);
/* Advances to the next move. 0 if there is none. */
int pvn_ring_next(const struct pvn_ring_shape *s, struct pvn_ring_pos *p);
/* Counts the messages that the share receives from the previous rank; changes the position. */
uint64_t pvn_ring_receives(const struct pvn_ring_shape *s, struct pvn_ring_pos *p);

/* Elements of the input and of the output. */
uint64_t pvn_ring_in(const struct pvn_ring_shape *s);
uint64_t pvn_ring_out(const struct pvn_ring_shape *s);

/* nccl-tests' factor from algorithm to bus bandwidth, and the ratio of the bytes that all ranks
 * send to the array's bytes. */
double pvn_ring_factor(enum pvn_collective what, int nranks);
double pvn_ring_sent(enum pvn_collective what, int nranks);

#ifdef __cplusplus
}
#endif

#endif
