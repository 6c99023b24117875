/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Groups of hosts with good paths within a group and slow paths between groups, like racks that a
 * slow trunk connects. Pure functions, any thread. */
#ifndef PVN_PERF_MESH_GROUPS_H
#define PVN_PERF_MESH_GROUPS_H

#include "perf/results/mesh_find.h"

#ifdef __cplusplus
extern "C" {
#endif

int pvn_mesh_hosts(const struct pvn_mesh_matrix *m);
/*
 * Fills group. Two hosts are in one group if a path between them, in either direction, is not slow
 * compared with the best paths of all hosts, or if both are in a group with a third host. A group
 * has at least two hosts. There are no groups if there would be fewer than two, or if not
 * everything was measured. 0 or -ENOMEM.
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
