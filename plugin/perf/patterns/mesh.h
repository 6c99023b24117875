/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf mesh in a rank: pairs of ranks are connected only for their round, verified, and
 * measured in each direction. If a pair fails, the others continue. One thread.
 */
#ifndef PVN_PERF_MESH_H
#define PVN_PERF_MESH_H

#include "perf/patterns/mesh_rounds.h"
#include "perf/patterns/p2p_flow.h"

/* A rank's measurements in a round, as exchanged with all ranks. */
struct pvn_mesh_result {
    int32_t failed; /* its pair failed, or it has no partner in this round */
    uint32_t via;
    int64_t errors; /* wrong messages received */
    /* Half round trips to its partner, which this rank began. */
    uint64_t trips;
    double time_us, min_us, p90_us, p99_us, p999_us, max_us;
    double best_us; /* the median of the best part */
    /* Data received from its partner. */
    uint64_t units;
    double seconds, cpu;
    double best_rate; /* units per second in the best part */
};

struct pvn_mesh {
    struct pvn_rank *r;
    struct pvn_p2p p;
    struct pvn_mesh_rounds rounds;
    uint64_t latency_size, bandwidth_size; /* bytes of a message */
    size_t memory;                         /* bytes of p.mem */
    int partner;                           /* partner in this round; -1: none */
    int failed;                            /* this pair failed in this round */
    char why[200];                         /* this rank's reason, or "" */
    int lead;                              /* the side of the pair that begins or sends */
    uint64_t count;                        /* round trips, or messages, that fit --time */
    int left_open;                /* comms of a failed pair stay open until the process ends */
    int *fails, *good;            /* per rank: its failed and good pairs so far */
    int nfailed;                  /* failed pairs of all ranks */
    struct pvn_hist *half, *part; /* half round trips: all, and those of one part */
    struct pvn_mesh_result mine, *all;
};

/* ---- mesh_pair.c: steps of one pair. 0, or -1 after pvn_rank_fail. ---- */

int pvn_mesh_connect(struct pvn_mesh *m, char (*handle)[NCCL_NET_HANDLE_MAXSIZE]);
/* Verifies every byte of every size, in both directions at once. */
int pvn_mesh_verify(struct pvn_mesh *m);
/* Each measurement has two steps, between which both ends learn the count. */
int pvn_mesh_try_latency(struct pvn_mesh *m);
int pvn_mesh_latency(struct pvn_mesh *m);
int pvn_mesh_try_bandwidth(struct pvn_mesh *m);
int pvn_mesh_bandwidth(struct pvn_mesh *m);
int pvn_mesh_finish(struct pvn_mesh *m);

#endif
