/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which NIC for which GPU: what NCCL will do, and what we advise. Two answers that are kept apart.
 *
 * This is the part of the topology library that the plugin uses:
 *
 *     pvn_topo_load("/", ...);  pvn_topo_nics_find(topo, ..., &nics);
 *     nics.list[i].pci_path, .speed_mbps, .guid, .port, .rail   -> the properties of device i
 *     pvn_topo_pairs_new(topo, &nics, &env, &pairs, ...);
 *     pvn_topo_pairs_line(pairs, gpu, text, sizeof(text))             -> one INFO line per GPU
 *
 * Everything made here is read-only afterwards and may be shared by threads. */
#ifndef PVN_TOPO_NCCL_PAIR_H
#define PVN_TOPO_NCCL_PAIR_H

#include "topo/nccl/nccl_tree.h"
#include "topo/nccl/nic.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_TOPO_PAIR_NETS 16 /* NICs of one GPU that are listed; more are counted in n_nccl_all */
#define PVN_TOPO_PAIR_WHY  512

struct pvn_topo_pair {
    int gpu; /* index into tree->gpus */
    /* The nets that NCCL takes on channel 0, 1, ... until it repeats: indices into tree->nets. Its ring and
     * tree search starts from these and leaves them only for lack of bandwidth. */
    int nccl[PVN_TOPO_PAIR_NETS];
    int n_nccl, n_nccl_all;
    char nccl_why[PVN_TOPO_PAIR_WHY];
    int advice; /* index into tree->nets, or -1: no NIC can be advised */
    /* The other ports of its card that no GPU has been given: they belong to it as well. */
    int more[PVN_TOPO_PAIR_NETS];
    int n_more;
    char advice_why[PVN_TOPO_PAIR_WHY];
    bool hidden; /* the hypervisor hides how far they are apart */
    bool moved;  /* the advice was moved from a NIC that others share */
};

struct pvn_topo_pairs {
    const struct pvn_topo *topo; /* NULL when made from a file */
    const struct pvn_topo_nics
        *nics;                   /* NULL when made from a file; list[net.dev] is a net's entry */
    struct pvn_topo_ndoc *doc;   /* owned when made by pvn_topo_pairs_new */
    struct pvn_topo_ntree *tree; /* owned when made by pvn_topo_pairs_new */
    bool owns;
    struct pvn_topo_pair *list;
    int n;
    bool exact;        /* the advice is a proven optimum, and every distance and speed is known */
    char unknown[160]; /* what is not known and would be needed to call it one, "" nothing */
    char note[512];    /* about the whole machine, "" when there is nothing to say */
};

/* From the machine: makes NCCL's document and tree (rules of nccl_detect.h) and pairs them. file
 * may be NULL, else NCCL_TOPO_FILE's document. env may be NULL for NCCL's defaults. 0, -ENOMEM or
 * -EINVAL with a sentence in why. topo and nics must outlive it. */
int pvn_topo_pairs_new(const struct pvn_topo *topo, const struct pvn_topo_nics *nics,
                       const struct pvn_topo_ndoc *file, const struct pvn_topo_nccl_env *env,
                       struct pvn_topo_pairs **out, char *why, size_t why_len);

/* From a tree that was made elsewhere, for example from an NCCL XML file alone. topo and nics may
 * be NULL. */
int pvn_topo_pairs_of_tree(const struct pvn_topo *topo, const struct pvn_topo_nics *nics,
                           struct pvn_topo_ntree *tree, struct pvn_topo_pairs **out);
void pvn_topo_pairs_free(struct pvn_topo_pairs *pairs);

/* "GPU0 0000:07:00.0: NCCL takes mlx5_0 (PIX, 24.0 GB/s), ...": class, bandwidth and why in one
 * line. Cut to len. */
void pvn_topo_pairs_line(const struct pvn_topo_pairs *pairs, int gpu, char *text, size_t len);

/* True if the distance of a GPU and a net is only what the hypervisor pretends. False without a
 * model. */
bool pvn_topo_pairs_hidden(const struct pvn_topo_pairs *pairs, int gpu, int net);

/* How many GPUs (nets) before this one have its number: several ranks on a GPU share
 * one, and a file may repeat any. */
int pvn_topo_pairs_gpu_repeat(const struct pvn_topo_pairs *pairs, int gpu);
int pvn_topo_pairs_net_repeat(const struct pvn_topo_pairs *pairs, int net);

/* Index of the GPU whose bus id is given (any of NVML's and sysfs's spellings), or "GPU3", "3",
 * "GPU3#2" (the second with that number); -1. */
int pvn_topo_pairs_find_gpu(const struct pvn_topo_pairs *pairs, const char *text);
/* Index of the net by name, "NIC2", "NET2", "2" (the plugin's number), "NIC2#2" or bus id; -1. */
int pvn_topo_pairs_find_net(const struct pvn_topo_pairs *pairs, const char *text);

/* Function in the machine's model of a GPU or net of the tree, or -1. */
int pvn_topo_pairs_gpu_pci(const struct pvn_topo_pairs *pairs, int gpu);
int pvn_topo_pairs_net_pci(const struct pvn_topo_pairs *pairs, int net);
/* The machine's entry for a net of the tree, NULL when it was made from a file. */
const struct pvn_topo_nic *pvn_topo_pairs_nic(const struct pvn_topo_pairs *pairs, int net);

/* Most devices of a virtual one: plugin API 12; up to 11 it is 4. */
#define PVN_TOPO_FUSION_MAX 8

/* The sets of nets that NCCL would fuse into one virtual device if the plugin has makeVDevice:
 * those of NCCL_NET_FORCE_MERGE, the others by NCCL_NET_MERGE_LEVEL and _POLICY. group[net] gets
 * the set's net that comes first in the plugin's list. problem (len bytes): "", or what is wrong
 * with NCCL_NET_FORCE_MERGE and keeps NCCL from starting; then nothing is fused. 0 or -ENOMEM. */
int pvn_topo_pairs_fusion(const struct pvn_topo_pairs *pairs, int max_devs, int *group,
                          char *problem, size_t len);

/* One sentence on which nets of two hosts may face each other under NCCL_CROSS_NIC. */
void pvn_topo_pairs_cross_nic(const struct pvn_topo_pairs *pairs, char *text, size_t len);

#ifdef __cplusplus
}
#endif

#endif
