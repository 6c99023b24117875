/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Assigns a column (NIC) to every row (GPU) at the least cost. The cost is, in this order: the sum
 * of the distances; the sharing of links (for every link, users x (users - 1)); the sum of a second
 * distance. Several rows may use a column. */
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
    const int *second;   /* [row][col], the tie breaker, 0..PVN_TOPO_ASSIGN_SECOND_MAX */
    /* For each [row][col] the links that it uses: numbers below `links`, terminated by -1. Rows
     * whose paths to different columns overlap share those links. */
    const int *const *uses;
};

/* Fills out[row] with a column, or -1 if every column is forbidden for the row. *exact (may be
 * NULL): the result is a proven optimum, which requires a search space of at most some 10^5 partial
 * assignments. Otherwise the result is greedy, improved by single moves until none helps. 0 or
 * -ENOMEM. */
int pvn_topo_assign_solve(const struct pvn_topo_assign *p, int *out, bool *exact);

/* Computes the three costs of an assignment, for tests and messages. */
void pvn_topo_assign_cost(const struct pvn_topo_assign *p, const int *out, long cost[3]);

#ifdef __cplusplus
}
#endif

#endif
