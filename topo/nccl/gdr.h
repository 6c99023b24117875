/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's decision on GPUDirect RDMA between a GPU and a NIC: NCCL's conditions in NCCL's order,
 * each with the value that was seen and the value that is needed (NCCL 2.30 src/graph/paths.cc
 * ncclTopoCheckGdr, transport/net.cc). */
#ifndef PVN_TOPO_NCCL_GDR_H
#define PVN_TOPO_NCCL_GDR_H

#include "topo/nccl/pair.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pvn_topo_gdr_result {
    PVN_TOPO_GDR_YES,
    PVN_TOPO_GDR_NO,
    /* no condition refuses it, but only a running job can prove that it works */
    PVN_TOPO_GDR_LIKELY,
    PVN_TOPO_GDR_UNKNOWN, /* the files that were read do not show it */
};

enum pvn_topo_gdr_condition {
    PVN_TOPO_GDR_NIC,
    PVN_TOPO_GDR_GPU,
    PVN_TOPO_GDR_PARTITION,
    PVN_TOPO_GDR_SEND,
    PVN_TOPO_GDR_DISTANCE,
    PVN_TOPO_GDR_MODE,
    PVN_TOPO_GDR_CONDITIONS,
};

struct pvn_topo_gdr_step {
    const char *title; /* "the NIC can reach GPU memory" */
    enum pvn_topo_gdr_result result;
    char seen[256];
    char needed[160];
    char remedy[384]; /* the variable, module or host setting that changes it; "" when there is none
                       */
};

struct pvn_topo_gdr {
    struct pvn_topo_gdr_step steps[PVN_TOPO_GDR_CONDITIONS];
    int first_no;      /* the condition that refuses it, or -1 */
    bool pci_mode;     /* C2C system with a PCIe path: NCCL forces the PCIe mapping */
    char verdict[512]; /* one line: yes, no with the reason, or the facts that are unknown */
};

/* gpu and net are indices into the tree of pairs. */
void pvn_topo_gdr_judge(const struct pvn_topo_pairs *pairs, int gpu, int net,
                        struct pvn_topo_gdr *out);
/* Sets gdr to 0 for NICs that cannot reach GPU memory: network interfaces, whose transport takes
 * only host memory (net_socket.cc ptrSupport), and RDMA devices that fail the condition
 * PVN_TOPO_GDR_NIC. Call this before pvn_topo_pairs_new, because NCCL diverts the paths of such
 * NICs through the CPU before it chooses. */
void pvn_topo_gdr_find(const struct pvn_topo *topo, const struct pvn_topo_nccl_env *env,
                       struct pvn_topo_nics *nics);
const char *
pvn_topo_gdr_result_name(enum pvn_topo_gdr_result result); /* "yes", "NO", "likely", "unknown" */

#ifdef __cplusplus
}
#endif

#endif
