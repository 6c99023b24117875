/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Parts of a document that NCCL never visits. NCCL takes a pci that holds a <nic> for a NIC,
 * whatever its class, and ignores other pcis inside it (2.30 src/graph/topo.cc, ncclTopoAddPci). */
#ifndef PVN_TOPO_NCCL_LOST_H
#define PVN_TOPO_NCCL_LOST_H

#include <stddef.h>

#include "topo/nccl/nccl_doc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lists the GPUs and NICs that are lost below this pci, as "GPU 0000:53:00.0, NIC mlx5_1
 * (0000:54:00.0)" cut to len, and returns their number. 0 and "" if NCCL visits everything
 * below. */
int pvn_topo_ndoc_lost(const struct pvn_topo_ndoc_node *pci, char *list, size_t len);

/* Moves each <nic> that is beside other pcis into a pci of its own. The common pci becomes an
 * invented bridge. 0 or -ENOMEM. */
int pvn_topo_ndoc_separate_nics(struct pvn_topo_ndoc *doc);

/* Removes each <gpu> whose function has a class that NCCL does not accept for a GPU (accelerators
 * of other makers, which RCCL accepts). */
void pvn_topo_ndoc_drop_foreign_gpus(struct pvn_topo_ndoc *doc);

#ifdef __cplusplus
}
#endif

#endif
