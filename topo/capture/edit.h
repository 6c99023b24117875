/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Changes to a loaded model. All take effect at once, or none does. Internal to topo/. */
#ifndef PVN_TOPO_CAPTURE_EDIT_H
#define PVN_TOPO_CAPTURE_EDIT_H

#include "topo/pvn_topo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies of the two arrays that change. Indexes stay valid in the copies. */
struct pvn_topo_edit {
    struct pvn_topo *t;
    struct pvn_topo_pci *pci;
    int npci;
    struct pvn_topo_root *roots;
    int nroots;
};

int pvn_topo_edit_begin(struct pvn_topo_edit *e, struct pvn_topo *t);
void pvn_topo_edit_abort(struct pvn_topo_edit *e);
/* Cannot fail. flags: enum pvn_topo_merged. */
void pvn_topo_edit_commit(struct pvn_topo_edit *e, unsigned flags);

/* Index or -ENOMEM. */
int pvn_topo_edit_add_root(struct pvn_topo_edit *e, const char *name, uint32_t domain, uint8_t bus,
                           int numa);
/* Adds an invented bridge below parent (-1: on the root bus). link may be NULL. Index or
 * -ENOMEM. */
int pvn_topo_edit_add_bridge(struct pvn_topo_edit *e, uint32_t domain, int bus, int dev, int fn,
                             enum pvn_topo_pci_kind kind, int parent, int root, int numa,
                             const struct pvn_topo_pci_link *link);
/* Moves every function of the slot of pci below parent. */
void pvn_topo_edit_move_slot(struct pvn_topo_edit *e, int pci, int parent, int root);
/* Sets the NUMA node of every function of the slot. */
void pvn_topo_edit_set_numa(struct pvn_topo_edit *e, int pci, int node);
/* A domain that no function has, at most `from`. */
uint32_t pvn_topo_edit_free_domain(const struct pvn_topo_edit *e, uint32_t from);

/* A link whose current and maximum values are this speed and width. */
struct pvn_topo_pci_link pvn_topo_edit_link(int speed_mts, int width);

/* One `device` line of a hints file. */
struct pvn_topo_hint_device {
    int line;
    char name[PVN_TOPO_NAME_MAX];
    char host[PVN_TOPO_BDF_MAX]; /* "" without */
    int in;                      /* index of the switch, or -1 */
    int node;                    /* or PVN_TOPO_UNKNOWN */
};

struct pvn_topo_hint_switch {
    int line;
    char name[PVN_TOPO_NAME_MAX];
    int in;               /* index of an earlier switch, or -1 */
    int node;             /* or PVN_TOPO_UNKNOWN */
    int speed_mts, width; /* or PVN_TOPO_UNKNOWN */
};

struct pvn_topo_hints {
    struct pvn_topo_hint_switch *switches;
    int nswitches;
    struct pvn_topo_hint_device *devices;
    int ndevices;
};

/* Parses the text; needs no machine. Free with pvn_topo_hints_free, also after an error. */
int pvn_topo_hints_parse(struct pvn_topo_hints *h, const char *text, size_t len, const char *name,
                         struct pvn_topo_err *err);
void pvn_topo_hints_free(struct pvn_topo_hints *h);
/* Index of the function that an address, an interface or an RDMA device names, or -1. */
int pvn_topo_hints_find(const struct pvn_topo *t, const char *name);

#ifdef __cplusplus
}
#endif
#endif
