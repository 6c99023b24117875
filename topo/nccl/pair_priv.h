/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by pair.c, pair_nodes.c and advice.c. Internal to topo/nccl. */
#ifndef PVN_TOPO_NCCL_PAIR_PRIV_H
#define PVN_TOPO_NCCL_PAIR_PRIV_H

#include "topo/nccl/pair.h"

/* Appends to the NUL-terminated text in a buffer of len bytes. Text that does not fit is cut. */
void pvn_topo_append(char *text, size_t len, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline const struct pvn_topo_nnode *gpu_node(const struct pvn_topo_pairs *p, int gpu)
{
    return &p->tree->nodes[p->tree->gpus[gpu]];
}

static inline const struct pvn_topo_nnode *net_node(const struct pvn_topo_pairs *p, int net)
{
    return &p->tree->nodes[p->tree->nets[net]];
}

static inline const char *net_name(const struct pvn_topo_pairs *p, int net)
{
    return net_node(p, net)->net.name;
}

/* Fills advice, more, advice_why and hidden of every pair, and exact and unknown of the result.
 * NCCL's own choice must be filled in before. 0 or -ENOMEM. */
int pvn_topo_pairs_advise(struct pvn_topo_pairs *p);

#endif
