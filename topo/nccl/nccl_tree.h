/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's reduced tree: the graph of GPUs, PCIe switches, NUMA nodes, NICs and networks that NCCL
 * makes from its document, with its path types, its bandwidth model and the decisions that follow
 * from them.
 *
 * Facts: NCCL 2.30, src/graph/topo.cc, paths.cc, topo.h. Bandwidths are NCCL's model numbers in
 * GB/s (10^9 bytes/s), not measurements. Not thread safe; a finished tree is read-only and may be
 * shared. */
#ifndef PVN_TOPO_NCCL_NCCL_TREE_H
#define PVN_TOPO_NCCL_NCCL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topo/nccl/nccl_doc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Path types, best first. The numbers are those of NCCL 2.28 and later, which its TRACE lines
 * print. */
enum pvn_topo_npath {
    PVN_TOPO_NPATH_LOC,
    PVN_TOPO_NPATH_NVL,
    PVN_TOPO_NPATH_NVB,
    PVN_TOPO_NPATH_C2C,
    PVN_TOPO_NPATH_PIX,
    PVN_TOPO_NPATH_PXB,
    PVN_TOPO_NPATH_P2C,
    PVN_TOPO_NPATH_PXN,
    PVN_TOPO_NPATH_PHB,
    PVN_TOPO_NPATH_SYS,
    PVN_TOPO_NPATH_NET,
    PVN_TOPO_NPATH_DIS,
};

/* "PIX"; static. */
const char *pvn_topo_npath_name(enum pvn_topo_npath type);
/* "the same PCIe switch"; static. For sentences. */
const char *pvn_topo_npath_words(enum pvn_topo_npath type);

enum pvn_topo_nvendor {
    PVN_TOPO_NCPU_UNKNOWN,
    PVN_TOPO_NCPU_INTEL,
    PVN_TOPO_NCPU_AMD,
    PVN_TOPO_NCPU_ZHAOXIN
};
enum pvn_topo_narch {
    PVN_TOPO_NARCH_UNKNOWN,
    PVN_TOPO_NARCH_X86,
    PVN_TOPO_NARCH_ARM,
    PVN_TOPO_NARCH_POWER
};

enum pvn_topo_netdevs_policy { PVN_TOPO_NETDEVS_AUTO, PVN_TOPO_NETDEVS_ALL, PVN_TOPO_NETDEVS_MAX };
enum pvn_topo_merge_policy { PVN_TOPO_MERGE_ALL, PVN_TOPO_MERGE_RAIL };

/* NCCL's own variables that change its decisions. -1 in a level: not set. */
struct pvn_topo_nccl_env {
    int p2p_level;                        /* NCCL_P2P_LEVEL, or NCCL_P2P_DISABLE=1 */
    int gdr_level;                        /* NCCL_NET_GDR_LEVEL */
    int gdr_read;                         /* NCCL_NET_GDR_READ: 0, 1, or -1 unset or negative */
    bool gdr_c2c;                         /* NCCL_NET_GDR_C2C, default 1 */
    bool gdr_mlopart;                     /* NCCL_NET_GDR_MLOPART, default 0 */
    bool dmabuf;                          /* NCCL_DMABUF_ENABLE, default 1 */
    bool pxn_disable;                     /* NCCL_PXN_DISABLE, default 0 */
    bool pxn_c2c;                         /* NCCL_PXN_C2C, default 1 */
    bool nvb_disable;                     /* NCCL_NVB_DISABLE, default 0 */
    int cross_nic;                        /* NCCL_CROSS_NIC, default 2 */
    enum pvn_topo_netdevs_policy netdevs; /* NCCL_NETDEVS_POLICY, default AUTO */
    int netdevs_max;                      /* n of MAX:n */
    int merge_level;                      /* NCCL_NET_MERGE_LEVEL: PVN_TOPO_MERGE_PORT by default */
    enum pvn_topo_merge_policy merge_policy; /* NCCL_NET_MERGE_POLICY */
    const char *force_merge; /* NCCL_NET_FORCE_MERGE, or NULL; the caller's string */
    char bad[160]; /* a sentence on a value that NCCL would not understand; "" if there is none */
};

#define PVN_TOPO_MERGE_PORT PVN_TOPO_NPATH_NVL /* NCCL gives PORT the number of NVL */

/* Fills env by a lookup function with getenv's contract (NULL if unset); get may be NULL for all
 * defaults. Values are read as NCCL reads them, including the old single digits of the levels. */
void pvn_topo_nccl_env_load(struct pvn_topo_nccl_env *env,
                            const char *(*get)(const char *name, void *user), void *user);

enum pvn_topo_nnode_kind {
    PVN_TOPO_NN_CPU, /* a NUMA node, in NCCL's language */
    PVN_TOPO_NN_PCI, /* a switch: its upstream port */
    PVN_TOPO_NN_DEV, /* a GPU's hardware; it has one GPU node for each rank that uses it */
    PVN_TOPO_NN_GPU,
    PVN_TOPO_NN_NVS, /* the NVSwitch fabric, one node whatever the number of chips */
    PVN_TOPO_NN_NIC,
    PVN_TOPO_NN_NET, /* one network device of the plugin */
};

enum pvn_topo_nlink_kind {
    PVN_TOPO_NL_LOC = 0,
    PVN_TOPO_NL_NVL = 1,
    PVN_TOPO_NL_C2C = 3,
    PVN_TOPO_NL_PCI = 4,
    PVN_TOPO_NL_SYS = 9,
    PVN_TOPO_NL_NET = 10,
};

struct pvn_topo_nlink {
    enum pvn_topo_nlink_kind kind;
    int to; /* index of the node at the other end */
    float bw;
};

struct pvn_topo_nnode {
    enum pvn_topo_nnode_kind kind;
    int up;         /* the node above it in the tree, -1 for a cpu and for NVS */
    char busid[32]; /* of PCI, DEV, GPU, NIC; "" when there is none (a NIC right below a cpu) */
    const struct pvn_topo_ndoc_node *doc; /* the element it came from (pci, gpu, nic, net or cpu) */
    uint64_t ids;  /* vendor, device, subsystem vendor, subsystem device, 16 bits each */
    float up_bw;   /* GB/s of the link to `up` */
    int flattened; /* PCI: how many Broadcom sub-switches were folded into this one */
    struct pvn_topo_nlink *links;
    int n_links;
    union {
        struct {
            int numa; /* as in the document; may be -1 */
            enum pvn_topo_narch arch;
            enum pvn_topo_nvendor vendor;
            int family, model;
            float inter_bw; /* to any other cpu */
        } cpu;
        struct {
            int dev, sm; /* NVML number, compute capability times ten (0 unknown) */
            int gdr;     /* 1 yes, 0 no, -1 not stated */
            int mlopart; /* number of a memory-locality partition, -1 for a whole GPU */
        } gpu;
        struct {
            const char *name; /* of the document; "" when absent */
            int dev;          /* number in the plugin's list */
            int port;
            uint64_t guid;
            bool has_guid;
            int speed; /* Mb/s as NCCL takes it: 10000 if the document has 0 or less */
            int gdr;   /* 1 yes, 0 no, -1 not stated */
            int rail;  /* -1 unset */
        } net;
    };
};

struct pvn_topo_npath_info {
    enum pvn_topo_npath type;
    float bw;
    short hops;
    short next; /* node index of the next hop towards the base, -1 at the base */
};

/* NCCL's result for one GPU and one net. */
struct pvn_topo_nroute {
    enum pvn_topo_npath type; /* after PXN and the detour for a refused GPUDirect */
    float bw;
    int via_gpu; /* PXN: the GPU that relays (index into gpus), else -1 */
    bool detour; /* GPUDirect refused, so the data goes through the GPU's cpu */
};

struct pvn_topo_ntree {
    const struct pvn_topo_ndoc *doc; /* borrowed: must outlive the tree */
    struct pvn_topo_nccl_env env;
    struct pvn_topo_nnode *nodes;
    int n_nodes;
    int *gpus, *nets, *cpus; /* node indices in NCCL's order */
    int n_gpus, n_nets, n_cpus;
    /* NCCL's own list of networks, as indices into nets. A net without a PCI path is once in the
     * document for each NUMA node with GPUs: NCCL lists every one of these elements, though they are
     * one device at one place. */
    int *net_list;
    int n_net_list;
    /* paths[base][node]; the bases are the cpus, then the gpus, then the nets. Internal: use the
     * accessors. */
    struct pvn_topo_npath_info *paths;
    struct pvn_topo_nroute *routes; /* [gpu][net] */
};

/* Makes the tree. 0, -ENOMEM, or -EINVAL with a sentence in why (at least 256 bytes): no <system>,
 * or more of something than NCCL can hold. */
int pvn_topo_ntree_new(const struct pvn_topo_ndoc *doc, const struct pvn_topo_nccl_env *env,
                       struct pvn_topo_ntree **tree, char *why, size_t why_len);
void pvn_topo_ntree_free(struct pvn_topo_ntree *tree);

/* The path in the graph, before PXN and detours. GPU and net arguments are indices into gpus and
 * nets, cpu into cpus. */
const struct pvn_topo_npath_info *pvn_topo_ntree_gpu_net(const struct pvn_topo_ntree *tree, int gpu,
                                                         int net);
const struct pvn_topo_npath_info *pvn_topo_ntree_gpu_gpu(const struct pvn_topo_ntree *tree,
                                                         int from, int to);
const struct pvn_topo_npath_info *pvn_topo_ntree_gpu_cpu(const struct pvn_topo_ntree *tree, int gpu,
                                                         int cpu);
const struct pvn_topo_npath_info *pvn_topo_ntree_net_cpu(const struct pvn_topo_ntree *tree, int net,
                                                         int cpu);
const struct pvn_topo_npath_info *pvn_topo_ntree_net_net(const struct pvn_topo_ntree *tree,
                                                         int from, int to);
const struct pvn_topo_nroute *pvn_topo_ntree_route(const struct pvn_topo_ntree *tree, int gpu,
                                                   int net);

/* Writes the nodes of the graph's path from the GPU (first) to the net (last) to hops[max]. Returns
 * their number, or 0 if there is no path. */
int pvn_topo_ntree_hops(const struct pvn_topo_ntree *tree, int gpu, int net, int *hops, int max);

/* The cpu (index into cpus) that NCCL calls local to a GPU, or -1. */
int pvn_topo_ntree_gpu_local_cpu(const struct pvn_topo_ntree *tree, int gpu);
/* NUMA number of the cpu above a node, or -2 if there is none. */
int pvn_topo_ntree_numa(const struct pvn_topo_ntree *tree, int node);

/* Finds the local nets of a GPU by NCCL's rule: the highest bandwidth and, among equals, the best
 * type. Fills list (room for n_net_list) in the order of net_list, so that a net may be in it repeatedly,
 * and returns their number. */
int pvn_topo_ntree_local_nets(const struct pvn_topo_ntree *tree, int gpu, int *list);
/* Finds the local GPUs of a net by that rule. */
int pvn_topo_ntree_local_gpus(const struct pvn_topo_ntree *tree, int net, int *list);

/* The net (index into nets) that NCCL takes for a GPU and a channel, or -1 if there is none. */
int pvn_topo_ntree_pick(const struct pvn_topo_ntree *tree, int gpu, int channel);

/* Bandwidth of a PCIe link in GB/s, computed by NCCL's rule from the two texts of the document.
 * *speed_known: the speed is in NCCL's dictionary (otherwise it counts as gen3). *width_known: the
 * width is not 0 (otherwise it counts as 16). Both may be NULL. */
float pvn_topo_npci_bw(const char *speed, const char *width, bool *speed_known, bool *width_known);

#ifdef __cplusplus
}
#endif

#endif
