/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Internals of the reduced tree, shared by nccl_graph.c, which builds it, and nccl_paths.c, which
 * walks it. */
#ifndef PVN_TOPO_NCCL_NCCL_GRAPH_H
#define PVN_TOPO_NCCL_NCCL_GRAPH_H

#include "topo/nccl/nccl_tree.h"

/* Builds the nodes and links of tree->doc in an empty tree. 0, -ENOMEM, or -EINVAL with a sentence
 * in why. */
int pvn_topo_ngraph_build(struct pvn_topo_ntree *tree, char *why, size_t why_len);

/* True if two nodes are on one host. A document may hold several hosts that share an NVLink fabric;
 * the cpus' host_hash distinguishes them. */
bool pvn_topo_ngraph_same_host(const struct pvn_topo_ntree *tree, int a, int b);

/* A bus id as NCCL's number. */
uint64_t pvn_topo_nbusid_number(const char *busid);

#endif
