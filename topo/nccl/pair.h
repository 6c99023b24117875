/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Pairs each GPU with NICs: those that NCCL will take, and the one that we advise. The two answers
 * are separate.
 *
 * This is the part of the topology library that the plugin uses:
 *
 *     pvn_topo_load("/", ...);  pvn_topo_nics_find(topo, ..., &nics);
 *     nics.list[i].pci_path, .speed_mbps, .guid, .port, .rail   -> the properties of device i
 *     pvn_topo_pairs_new(topo, &nics, &env, &pairs, ...);
 *     pvn_topo_pairs_line(pairs, gpu, text, sizeof(text))             -> one INFO line per GPU
 *
 * All results are read-only and may be shared by threads. */
#ifndef PVN_TOPO_NCCL_PAIR_H
#define PVN_TOPO_NCCL_PAIR_H

#include "topo/nccl/nccl_tree.h"
#include "topo/nccl/nic.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_TOPO_PAIR_NETS 16 /* NICs listed per GPU */
#define PVN_TOPO_PAIR_WHY  512

struct pvn_topo_pair {
    int gpu; /* index into tree->gpus */
    /* The nets that NCCL takes on channel 0, 1, ... until the sequence repeats, each once: indices
     * into tree->nets. NCCL's search for rings and trees starts from these and leaves them only for
     * lack of bandwidth. */
    int nccl[PVN_TOPO_PAIR_NETS];
    int n_nccl;
    char nccl_why[PVN_TOPO_PAIR_WHY];
    int advice; /* index into tree->nets, or -1 if no NIC can be advised */
    /* The other ports of the advised NIC's card that are given to no other GPU: they belong to this
     * GPU, too. */
    int more[PVN_TOPO_PAIR_NETS];
    int n_more;
    char advice_why[PVN_TOPO_PAIR_WHY];
    bool hidden; /* the hypervisor hides their distance */
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
    char unknown[160]; /* facts that are unknown and needed for `exact`, "" if none */
    char note[512];    /* a remark on the whole machine, or "" */
};

/* Makes the pairs of a machine: builds NCCL's document and tree (rules of nccl_detect.h) and pairs
 * its GPUs. file is NCCL_TOPO_FILE's document, or NULL. env may be NULL for NCCL's defaults. 0,
 * -ENOMEM or -EINVAL with a sentence in why. topo and nics must outlive the result. */
int pvn_topo_pairs_new(const struct pvn_topo *topo, const struct pvn_topo_nics *nics,
                       const struct pvn_topo_ndoc *file, const struct pvn_topo_nccl_env *env,
                       struct pvn_topo_pairs **out, char *why, size_t why_len);

/* Makes the pairs of an existing tree, for example of an NCCL XML file alone. topo and nics may be
 * NULL. */
int pvn_topo_pairs_of_tree(const struct pvn_topo *topo, const struct pvn_topo_nics *nics,
                           struct pvn_topo_ntree *tree, struct pvn_topo_pairs **out);
void pvn_topo_pairs_free(struct pvn_topo_pairs *pairs);

/* "GPU0 0000:07:00.0: NCCL takes mlx5_0 (PIX, 24.0 GB/s), ...": class, bandwidth and why in one
 * line. Cut to len. */
void pvn_topo_pairs_line(const struct pvn_topo_pairs *pairs, int gpu, char *text, size_t len);

/* True if the hypervisor invents the distance between a GPU and a net. False without a model. */
bool pvn_topo_pairs_hidden(const struct pvn_topo_pairs *pairs, int gpu, int net);

/* The number of GPUs (nets) before this one with the same number: several ranks share a GPU's
 * number, and a file may repeat any number. */
int pvn_topo_pairs_gpu_repeat(const struct pvn_topo_pairs *pairs, int gpu);
int pvn_topo_pairs_net_repeat(const struct pvn_topo_pairs *pairs, int net);

/* Index of the GPU named by bus id (in NVML's or sysfs's spelling), "GPU3", "3" or "GPU3#2" (the
 * second with that number); -1 if there is none. */
int pvn_topo_pairs_find_gpu(const struct pvn_topo_pairs *pairs, const char *text);
/* Index of the net named by its name, "NIC2", "NET2", "2" (the plugin's number), "NIC2#2" or bus
 * id; -1 if there is none. */
int pvn_topo_pairs_find_net(const struct pvn_topo_pairs *pairs, const char *text);

/* Index, in the machine's model, of the function of a GPU or net of the tree, or -1. */
int pvn_topo_pairs_gpu_pci(const struct pvn_topo_pairs *pairs, int gpu);
int pvn_topo_pairs_net_pci(const struct pvn_topo_pairs *pairs, int net);
/* The machine's entry for a net of the tree; NULL if the tree was made from a file. */
const struct pvn_topo_nic *pvn_topo_pairs_nic(const struct pvn_topo_pairs *pairs, int net);

/* Limit of devices in a virtual device in plugin API 12; up to API 11 it is 4. */
#define PVN_TOPO_FUSION_MAX 8

/* Finds the sets of nets that NCCL would fuse into one virtual device if the plugin has
 * makeVDevice: those of NCCL_NET_FORCE_MERGE, the others by NCCL_NET_MERGE_LEVEL and _POLICY.
 * group[net] gets the set's first net in the plugin's list. problem (len bytes): "", or the mistake
 * in NCCL_NET_FORCE_MERGE that keeps NCCL from starting; then nothing is fused. 0 or -ENOMEM. */
int pvn_topo_pairs_fusion(const struct pvn_topo_pairs *pairs, int max_devs, int *group,
                          char *problem, size_t len);

/* Writes one sentence that says which nets of two hosts may be connected under NCCL_CROSS_NIC. */
void pvn_topo_pairs_cross_nic(const struct pvn_topo_pairs *pairs, char *text, size_t len);

#ifdef __cplusplus
}
#endif

#endif
