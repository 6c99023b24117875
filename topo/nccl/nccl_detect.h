/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's document as NCCL would make it on the machine: which PCI functions appear, under which
 * parent, with which attributes (NCCL 2.30 src/graph/xml.cc ncclTopoGetXmlFromSys, topo.cc,
 * os/linux.cc). */
#ifndef PVN_TOPO_NCCL_NCCL_DETECT_H
#define PVN_TOPO_NCCL_NCCL_DETECT_H

#include "topo/nccl/nccl_doc.h"
#include "topo/nccl/nic.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_topo_ndetect {
    const struct pvn_topo *topo;
    const struct pvn_topo_nics *nics; /* the plugin's devices, in its order: dev numbers */
    const struct pvn_topo_ndoc
        *file;   /* NCCL_TOPO_FILE to start from, or NULL; its attributes win */
    int net_gdr; /* gdr attribute of the nets: 1, 0, or -1 to leave it out */
};

/* The document for a job with one rank on every GPU of the machine, ranks in bus-id order, every
 * device of the plugin used. Two values are NVML's in NCCL and come from sysfs here: a GPU's number
 * is its place in bus-id order, and its link is its maximum speed (a job wakes it up) with its
 * present width. 0 and *doc (the caller frees it), -ENOMEM, or -EINVAL with a sentence in why. */
int pvn_topo_ndoc_detect(const struct pvn_topo_ndetect *in, struct pvn_topo_ndoc **doc, char *why,
                         size_t why_len);

/* The GPUs that a job of this machine would use, as indices into topo->gpus, in bus-id order:
 * NVIDIA's where there is one, else AMD's, else accelerators, else Intel's. list has room for
 * topo->ngpus. */
int pvn_topo_ndoc_gpus(const struct pvn_topo *topo, int *list);

/* The model's function for a pci node's bus id, or -1. */
int pvn_topo_ndoc_pci_index(const struct pvn_topo *topo, const char *busid);

/* Only what a file meant for NCCL_TOPO_FILE should hold: the version stays (1 for NCCL, 2 for AMD's
 * RCCL, which accepts no other), no gpu and nic elements (NCCL finds those
 * by itself; given ones win even when wrong) but for the name of a NIC that a file puts on a cpu, link_speed and link_width spelled out on every bridge
 * that no sysfs describes. Changes doc. 0 or -ENOMEM. */
int pvn_topo_ndoc_make_topo_file(struct pvn_topo_ndoc *doc);

#ifdef __cplusplus
}
#endif

#endif
