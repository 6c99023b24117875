/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The XML document that NCCL would make on this machine and write to NCCL_TOPO_DUMP_FILE: the PCI
 * functions in it, their parents and attributes. The rules are those of NCCL 2.30: src/graph/xml.cc
 * (ncclTopoGetXmlFromSys), topo.cc, os/linux.cc. pair.c builds NCCL's tree from it; pvn-topo dump
 * --xml writes it to a file. */
#ifndef PVN_TOPO_NCCL_NCCL_DETECT_H
#define PVN_TOPO_NCCL_NCCL_DETECT_H

#include "topo/nccl/nccl_doc.h"
#include "topo/nccl/nic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The input. The caller keeps ownership of everything. */
struct pvn_topo_ndetect {
    const struct pvn_topo *topo;
    const struct pvn_topo_nics *nics; /* the plugin's devices; the index is NCCL's dev number */
    const struct pvn_topo_ndoc
        *file;   /* NCCL_TOPO_FILE, or NULL. The document begins with it, and its attributes win. */
    int net_gdr; /* gdr attribute of the nets: 1, 0, or -1 to leave it out */
};

/* Makes the document of a job with one rank on every GPU, ranks in bus-id order, that uses every
 * device of the plugin. NCCL takes two values of a GPU from NVML; here they come from sysfs. A
 * GPU's number is its position in bus-id order. Its link has the maximum speed, because a job wakes
 * an idle link, and the present width. A net without a PCI path is below the NUMA node of each
 * rank's GPU, unless the file has NUMA nodes. Returns 0 and *doc (free with pvn_topo_ndoc_free),
 * -ENOMEM, or -EINVAL with a sentence in why. */
int pvn_topo_ndoc_detect(const struct pvn_topo_ndetect *in, struct pvn_topo_ndoc **doc, char *why,
                         size_t why_len);

/* A job's use of a GPU. If no NVIDIA GPU has the driver nvidia, the machine is treated as if the
 * driver were loaded, so functions without it count as used. The same holds for the driver's list
 * of its GPUs, if it has none of them. */
enum pvn_topo_gpu_use {
    PVN_TOPO_GPU_USED,
    PVN_TOPO_GPU_FOR_GUESTS,   /* an SR-IOV virtual function, seen by the host */
    PVN_TOPO_GPU_OTHER_DRIVER, /* NVIDIA's, on vfio-pci or similar, beside others that CUDA sees */
    PVN_TOPO_GPU_NO_DRIVER,    /* NVIDIA's without a driver, beside others that CUDA sees */
    PVN_TOPO_GPU_NOT_LISTED,   /* not among the GPUs of NVIDIA's driver, beside others that are */
};
/* gpu is an index into topo->gpus. */
enum pvn_topo_gpu_use pvn_topo_ndoc_gpu_use(const struct pvn_topo *topo, int gpu);

/* Reduces doc to the elements that a file for NCCL_TOPO_FILE should have. 0 or -ENOMEM.
 *   version    stays: 1 for NCCL, 2 for AMD's RCCL, which accepts no other
 *   gpu, nic   are removed: NCCL finds them by itself, and would prefer a file's even if they are
 *              wrong. The name of a NIC that the file has directly on a cpu stays, because no PCI
 *              function stands for it
 *   bridges    get link_speed and link_width if no sysfs describes them */
int pvn_topo_ndoc_make_topo_file(struct pvn_topo_ndoc *doc);

#ifdef __cplusplus
}
#endif

#endif
