/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory on one RDMA device: gpumem.h's callbacks made of verbs, its verdict for the device,
 * and a registrar for lanes that sends GPU memory here and host memory where it went before.
 *
 * Threads: open and close from one thread at a time per device, no registration is left at close;
 * everything else from any thread.
 */
#ifndef PVN_NET_PVRDMA_GPU_H
#define PVN_NET_PVRDMA_GPU_H

#include "memory/gpumem.h"
#include "net-pvrdma/ordering.h"
#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/verbs.h"

struct pvn_rdma_gpu;

struct pvn_rdma_gpu_cfg {
    const struct pvn_verbs *v;
    struct ibv_pd *pd;
    struct pvn_rdma_registrar host; /* takes host memory; outlives the pvn_rdma_gpu */
    const char *name;               /* of the device, for messages; copied */
    bool can_write;                 /* RDMA WRITE works on it */
    bool can_read;                  /* RDMA READ too: max_qp_rd_atom > 0 */
    const char *lacks;              /* see pvn_gpumem_nic */
    enum pvn_gpu_mem_mode mode;
    enum pvn_flush_mode flush;
    bool nccl_no_dmabuf;  /* NCCL_DMABUF_ENABLE=0 */
    const char *cuda_lib; /* NCCL_PVRDMA_CUDA_LIB */
    /* The verdict of an earlier context of the device, which holds for this one. NULL: it is tried. */
    const struct pvn_gpumem_cap *known;
    struct pvn_rdma_ordering *ordering; /* of the device, outlives it; NULL: never relaxed */
};

/* Tries for real what the device can do with the GPU whose context is current on this thread, which
 * is NCCL's choice. NULL only without memory, with *err: a device that cannot reach GPU memory is a
 * verdict. */
struct pvn_rdma_gpu *pvn_rdma_gpu_open(const struct pvn_rdma_gpu_cfg *cfg, struct pvn_err *err);
/* NULL is allowed. */
void pvn_rdma_gpu_close(struct pvn_rdma_gpu *g);

/* ptr_support and flush.force are the device's properties, text is its line in the log. Valid until
 * close. */
const struct pvn_gpumem_cap *pvn_rdma_gpu_cap(const struct pvn_rdma_gpu *g);

/* A registrar for all memory: passes host memory on to cfg.host. Regions of GPU memory are shared by
 * registrations of the same allocation and kept as long as one of them is there. Any thread. */
void pvn_rdma_gpu_registrar(struct pvn_rdma_gpu *g, struct pvn_rdma_registrar *out);

#endif
