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
    char *bounce; /* two slots, through which those in GPU memory are worked on; NULL: no need */
    size_t in_len, out_len;
    uint32_t seed;
    int failed; /* a send, while the ranks waited for each other */
};

/* Memory for the largest arrays that will be used. 0, or -1 after pvn_rank_fail; pvn_ring_close in
 * either case. */
int pvn_ring_open(struct pvn_ring *g, struct pvn_rank *r, uint64_t in_bytes, uint64_t out_bytes);
/* Which collective comes next, with how many elements (struct pvn_ring_shape). */
void pvn_ring_shape_to(struct pvn_ring *g, enum pvn_collective what, uint64_t count);
/* Completes what earlier runs have sent. */
int pvn_ring_complete_sends(struct pvn_ring *g);
/* rc: how the run went; without a failure everything is completed and given back. */
int pvn_ring_close(struct pvn_ring *g, int rc);

#endif
