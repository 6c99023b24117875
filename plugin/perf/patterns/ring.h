/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The ring of comms with its slots and a rank's arrays, on which one collective runs after another. */
#ifndef PVN_PERF_RING_H
#define PVN_PERF_RING_H

#include "perf/rank/rank.h"
#include "perf/patterns/ring_steps.h"
#include "perf/rank/slots.h"
#include "perf/rank/timed.h"
#include "perf/workload/values.h"

struct pvn_ring_channel;

struct pvn_ring {
    struct pvn_rank *r;
    struct pvn_timed t; /* times the collective of the current shape */
    struct pvn_ring_shape shape;
    size_t size; /* bytes of an element */
    struct pvn_ring_channel *ch;
    char *mem;
    size_t mem_len;
    char *in, *out;
    char *bounce; /* two slots for copies of slots in GPU memory; NULL: not needed */
    size_t in_len, out_len;
    uint32_t seed;
    int failed; /* a send failed while the ranks waited for each other */
};

/* Allocates memory for the largest arrays that will be used. 0, or -1 after pvn_rank_fail; call
 * pvn_ring_close in either case. */
int pvn_ring_open(struct pvn_ring *g, struct pvn_rank *r, uint64_t in_bytes, uint64_t out_bytes);
/* Selects the next collective and its number of elements (struct pvn_ring_shape). */
void pvn_ring_shape_to(struct pvn_ring *g, enum pvn_collective what, uint64_t count);
/* rc: the run's result. After a success this completes everything and frees it. */
int pvn_ring_close(struct pvn_ring *g, int rc);

#endif
