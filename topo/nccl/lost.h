/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Parts of a document that NCCL never visits: a pci that holds a <nic> is a NIC to it, whatever its class,
 * and the other pcis in it are not looked at (2.30 src/graph/topo.cc, ncclTopoAddPci). */
#ifndef PVN_TOPO_NCCL_LOST_H
#define PVN_TOPO_NCCL_LOST_H

#include <stddef.h>

#include "topo/nccl/nccl_doc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The GPUs and NICs that are lost below this pci: how many, and "GPU 0000:53:00.0, NIC mlx5_1
 * (0000:54:00.0)" cut to len. 0 and "" where NCCL visits what is below. */
int pvn_topo_ndoc_lost(const struct pvn_topo_ndoc_node *pci, char *list, size_t len);

/* Gives each <nic> beside other pcis a pci of its own: the common one becomes an invented bridge.
 * 0 or -ENOMEM. */
int pvn_topo_ndoc_separate_nics(struct pvn_topo_ndoc *doc);

/* Takes each <gpu> away whose function has a class that NCCL refuses one in: accelerators of others. RCCL
 * takes them. */
void pvn_topo_ndoc_drop_foreign_gpus(struct pvn_topo_ndoc *doc);

#ifdef __cplusplus
}
#endif

#endif
