/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Assigns a column (NIC) to every row (GPU) so that the cost is least in this order: the sum of the
 * distances; then how much the rows share (for every link, users x (users - 1)); then the sum of a
 * second distance. Columns may be used by several rows. */
#ifndef PVN_TOPO_NCCL_ASSIGN_H
#define PVN_TOPO_NCCL_ASSIGN_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_TOPO_ASSIGN_NEVER      1000000 /* a distance that forbids the pair */
#define PVN_TOPO_ASSIGN_SECOND_MAX 1000000L

struct pvn_topo_assign {
    int rows, cols, links;
    const int *distance; /* [row][col], 0..PVN_TOPO_ASSIGN_NEVER */
    const int *second;   /* [row][col], the last tie breaker, 0..PVN_TOPO_ASSIGN_SECOND_MAX */
    /* For each [row][col] the links it uses: numbers below links, ended by -1. Rows that meet on
     * the path to different columns share those links. */
    const int *const *uses;
};

/* Fills out[row] with a column, or -1 for a row whose every column is forbidden. *exact (may be
 * NULL) says whether the optimum is proven: it is when the search space is small enough (some 10^5
 * partial assignments); otherwise the result is a greedy one, improved by moves while they help. 0
 * or -ENOMEM. */
int pvn_topo_assign_solve(const struct pvn_topo_assign *p, int *out, bool *exact);

/* The three costs of an assignment, for tests and sentences. */
void pvn_topo_assign_cost(const struct pvn_topo_assign *p, const int *out, long cost[3]);

#ifdef __cplusplus
}
#endif

#endif
