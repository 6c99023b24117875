/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The network devices that can carry NCCL's traffic, as the plugin reports them to NCCL and the
 * tool shows them. Made from a loaded struct pvn_topo; needs only libc. */
#ifndef PVN_TOPO_NCCL_NIC_H
#define PVN_TOPO_NCCL_NIC_H

#include "topo/pvn_topo.h"
#include "topo/nccl/report.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pvn_topo_nic_choice {
    PVN_TOPO_NICS_AUTO = 0, /* RDMA ports if one is active, else network interfaces */
    PVN_TOPO_NICS_RDMA,
    PVN_TOPO_NICS_TCP,
    PVN_TOPO_NICS_ALL,
};

struct pvn_topo_nic {
    char name[PVN_TOPO_NAME_MAX]; /* "mlx5_0", "mlx4_0:2" if there are several ports, "ens1f0" */
    int rdma, port_index;         /* index in topo->rdmas and its ports, or -1 */
    int net;                      /* index in topo->nets, or -1 */
    int pci;                      /* index in topo->pci, or -1 */
    bool up;                      /* port active, or interface with carrier */
    bool pvrdma;
    /* The port number from 1, counted across the functions of a card: NCCL takes two NICs of equal
     * guid and port for one wire. Virtual functions have the number of their physical one. */
    int port;
    int speed_mbps; /* 0 unknown (NCCL then takes 10000); for PVRDMA the speed of its interface */
    uint64_t guid;  /* equal for the ports and functions of one card */
    int rail;       /* -1 unset */
    int gdr;        /* offered for GPU memory: 1, 0, or -1 not known */
    /* The pciPath to report, owned by topo, or NULL. It is the device's own function, for PVRDMA
     * function 1. NCCL's own transport reports function 0 (and, for virtual functions, device 0),
     * which may be no NIC, a bridge or missing (NCCL#811). The place in NCCL's tree is the same. */
    const char *pci_path;
    char path_note[256]; /* "", or the reason why pci_path is NULL, or how NCCL will treat it */
    int from;            /* pvn_topo_nics_of_devices: its index in the caller's list */
};

struct pvn_topo_nics {
    struct pvn_topo_nic *list; /* in PCI order, devices without PCI last, then by name */
    int n;
    char left_out[256]; /* names of the devices that are left out because they are down, or "" */
};

/* Finds the NICs. Leaves out loopback, bonds' members, bridges, VLANs and virtual interfaces and,
 * as NCCL does, devices that are down, unless all are down or the choice is PVN_TOPO_NICS_ALL. 0 or
 * -ENOMEM; free with pvn_topo_nics_free. topo must outlive the result. */
int pvn_topo_nics_find(const struct pvn_topo *topo, enum pvn_topo_nic_choice choice,
                       struct pvn_topo_nics *out);
void pvn_topo_nics_free(struct pvn_topo_nics *nics);
int pvn_topo_nics_by_name(const struct pvn_topo_nics *nics, const char *name); /* index or -1 */

/* Makes NICs from the caller's devices, in the order of pvn_topo_nics_find, with the model's facts
 * on their place, card and port; a given speed stays. If topo is NULL, or the model does not know a
 * device, all values stay as given. 0 or -ENOMEM; free with pvn_topo_nics_free. */
int pvn_topo_nics_of_devices(const struct pvn_topo *topo, const struct pvn_topo_nic_device *devices,
                             int n, struct pvn_topo_nics *out);

/* Sets rails from a user's text "mlx5_0=0,mlx5_1=1" (0..32767; every rank must use the same
 * numbers). 0; -EINVAL with a sentence in err and no change; -ENOENT with a sentence if the text
 * names a missing device, with the other rails set. */
int pvn_topo_nics_set_rails(struct pvn_topo_nics *nics, const char *text, struct pvn_topo_err *err);

/* Sets the rail of each NIC that has none, from the ports' reports: InfiniBand ports with different
 * subnet prefixes get one rail per prefix, which is the same number on every host. Returns the
 * number of rails, or 0 if nothing is known (one prefix only, or Ethernet, whose addresses do not
 * show which ports can reach each other). */
int pvn_topo_nics_find_rails(const struct pvn_topo *topo, struct pvn_topo_nics *nics);

#ifdef __cplusplus
}
#endif

#endif
