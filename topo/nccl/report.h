/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The library's interface for the plugin: it sorts the plugin's devices, completes them from the
 * model of the machine, and reports the layout when the plugin starts. */
#ifndef PVN_TOPO_NCCL_REPORT_H
#define PVN_TOPO_NCCL_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_topo;
struct pvn_topo_nics;

/* A network device that the caller has found. */
struct pvn_topo_nic_device {
    const char *name;     /* its name for NCCL: the key in topology files */
    const char *pci_path; /* real sysfs path, NULL or "" for none */
    const char *ifname;   /* its own network interface, NULL or "" for an RDMA device */
    int ifindex;          /* index of ifname, because /sys may show another network namespace */
    uint64_t guid;
    int port;
    int speed_mbps;  /* 0 unknown */
    int rail;        /* -1 not set */
    bool gpu_memory; /* offered to NCCL for GPU memory */
};

/* A device completed with facts of the model. A device that the model does not know stays as
 * given. */
struct pvn_topo_placed {
    int from;    /* its index in the caller's list */
    bool on_pci; /* the model has its function */
    /* The function's path from /sys on, or NULL; valid as long as the placement */
    const char *pci_path;
    uint64_t guid; /* guid and port: see struct pvn_topo_nic */
    int port;
    int speed_mbps; /* as given, else from sysfs; 0 unknown */
    int rail;       /* -1 not set */
};

/* Constant after pvn_topo_placement_make; any thread may read it. */
struct pvn_topo_placement {
    /* In PCI order, then by name; in the caller's order if the machine was not read */
    struct pvn_topo_placed *list;
    int n;
    struct pvn_topo *topo; /* NULL if the machine could not be read */
    struct pvn_topo_nics *nics;
    double ms;      /* duration of reading and placing, milliseconds */
    char note[640]; /* a sentence on what could not be done, or "" */
};

/* Reads the machine below root ("/"), with the directory sysfs as its /sys (NULL: its own). rails
 * is a user's text for pvn_topo_nics_set_rails, or "". The slow parts are not read: config space,
 * and all but the first row of GID tables. A machine that cannot be read is no error: note says so.
 * Returns 0 (free the result), -ENOMEM, or -EINVAL for invalid rails; both errors set a sentence in
 * why. */
int pvn_topo_placement_make(const char *root, const char *sysfs,
                            const struct pvn_topo_nic_device *devices, int n, const char *rails,
                            struct pvn_topo_placement *out, char *why, int why_len);
/* Frees a placement, which may be all zero. */
void pvn_topo_placement_free(struct pvn_topo_placement *p);

/* Passes each finished line to `line`: one on counts and cost, one per device that NCCL cannot
 * place as it is, and one per GPU with the NIC that NCCL will take, the class and the reason. get
 * has getenv's contract. */
void pvn_topo_placement_report(const struct pvn_topo_placement *p,
                               const char *(*get)(const char *name, void *user),
                               void (*line)(const char *text, void *user), void *user);

#ifdef __cplusplus
}
#endif

#endif
