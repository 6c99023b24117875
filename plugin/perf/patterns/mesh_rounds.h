/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which pvn-perf mesh measures the pairs of ranks. In each round a rank or adapter
 * takes part in only one pair, so that no measurement disturbs another one. If every rank has an
 * adapter, the rounds are those of a round-robin tournament: n - 1 rounds, or n for an odd number.
 */
#ifndef PVN_PERF_MESH_ROUNDS_H
#define PVN_PERF_MESH_ROUNDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_mesh_rounds {
    int nranks, n; /* n: rounds */
    int *partner;  /* [round * nranks + rank]; -1: the rank has no partner in this round */
};

/*
 * place: per rank, equal for ranks that share an adapter. Every pair of ranks comes once. 0 (free
 * with pvn_mesh_rounds_free) or -ENOMEM. Any thread.
 */
int pvn_mesh_rounds_make(struct pvn_mesh_rounds *m, const uint64_t *place, int nranks);
void pvn_mesh_rounds_free(struct pvn_mesh_rounds *m);

#ifdef __cplusplus
}
#endif

#endif
