/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The plugin's side of the library: its devices put in order and completed from the model of the
 * machine, and what it says about the layout when it starts. */
#ifndef PVN_TOPO_NCCL_REPORT_H
#define PVN_TOPO_NCCL_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_topo;
struct pvn_topo_nics;

/* A network device that the caller has found by its own means. */
struct pvn_topo_nic_device {
    const char *name;     /* NCCL's name of it: the key in topology files */
    const char *pci_path; /* real sysfs path, NULL or "" for none */
    const char *ifname;   /* its own network interface, NULL or "" for an RDMA device */
    int ifindex;          /* of ifname: /sys may show another network namespace's interfaces */
    uint64_t guid;
    int port;
    int speed_mbps;  /* 0 unknown */
    int rail;        /* -1 not set */
    bool gpu_memory; /* offered to NCCL for GPU memory */
};

/* A device with what the model knows; where it does not know the device, as given. */
struct pvn_topo_placed {
    int from;    /* its place in the caller's list */
    bool on_pci; /* the model has its function */
    /* The function's path from /sys on, or NULL; lives as long as the placement */
    const char *pci_path;
    uint64_t guid; /* guid and port: see struct pvn_topo_nic */
    int port;
    int speed_mbps; /* as given, else what sysfs reports; 0 unknown */
    int rail;       /* -1 not set */
};

/* Constant after pvn_topo_placement_make; any thread may read it. */
struct pvn_topo_placement {
    /* In PCI order, then by name; in the caller's where nothing was read */
    struct pvn_topo_placed *list;
    int n;
    struct pvn_topo *topo; /* NULL when the machine could not be read */
    struct pvn_topo_nics *nics;
    double ms;      /* that reading and placing took, milliseconds */
    char note[640]; /* what could not be done, a sentence; "" nothing */
};

/* Reads the machine below root ("/"), with the directory sysfs for its /sys (NULL: its own). rails
 * is a user's text for pvn_topo_nics_set_rails, or "". Config space and all but the first row of
 * GID tables, the slow parts, are not read. A machine that cannot be read is no error: note says
 * so. 0,
 * -ENOMEM, or -EINVAL for rails that cannot be understood; both with a sentence in why. Free in
 * case of 0. */
int pvn_topo_placement_make(const char *root, const char *sysfs,
                            const struct pvn_topo_nic_device *devices, int n, const char *rails,
                            struct pvn_topo_placement *out, char *why, int why_len);
/* All zero is allowed. */
void pvn_topo_placement_free(struct pvn_topo_placement *p);

/* Gives each finished line to `line`: one of counts and cost, one per device that NCCL cannot place
 * as it is, one per GPU with the NIC that NCCL will take, the class, and why. get is getenv with
 * its contract. */
void pvn_topo_placement_report(const struct pvn_topo_placement *p,
                               const char *(*get)(const char *name, void *user),
                               void (*line)(const char *text, void *user), void *user);

#ifdef __cplusplus
}
#endif

#endif
