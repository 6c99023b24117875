/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Groups of hosts that reach each other well within a group and slowly from one to the other, as racks
 * do that a slow trunk joins. Pure functions, any thread. */
#ifndef PVN_PERF_MESH_GROUPS_H
#define PVN_PERF_MESH_GROUPS_H

#include "perf/results/mesh_find.h"

#ifdef __cplusplus
extern "C" {
#endif

int pvn_mesh_hosts(const struct pvn_mesh_matrix *m);
/*
 * Fills group: two hosts are in one where a path between them, in any direction, is not slow against the best
 * paths of all hosts, or a third host is in one with both. A group has two hosts at least; with fewer than two groups,
 * or before all is measured, there are none. 0 or -ENOMEM.
 */
int pvn_mesh_group(struct pvn_mesh_matrix *m);
/* True if a path leads from one group to another. */
bool pvn_mesh_crosses(const struct pvn_mesh_matrix *m, int from, int to);
/* "c0, c1, c2 and 5 more", as many as fit. */
void pvn_mesh_group_names(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names,
                          int group, char *out, size_t cap);

#ifdef __cplusplus
}
#endif

#endif
