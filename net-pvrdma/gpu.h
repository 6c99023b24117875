/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory on one RDMA device: the callbacks of gpumem.h implemented with verbs, the result of the trials
 * on this device, and a registrar for lanes. The registrar handles GPU memory itself and passes host memory
 * on to another registrar.
 *
 * Threads: open and close are called by one thread at a time per device, and close when no registration is
 * left. All other functions may be called from any thread.
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
    const char *name;               /* name of the device, for messages; copied */
    bool can_write;                 /* RDMA WRITE works on the device */
    bool can_read;     /* the device can read its own host's memory by RDMA READ, too */
    const char *lacks; /* see pvn_gpumem_nic */
    enum pvn_gpu_mem_mode mode;
    enum pvn_flush_mode flush;
    bool nccl_no_dmabuf;  /* NCCL_DMABUF_ENABLE=0 */
    const char *cuda_lib; /* NCCL_PVRDMA_CUDA_LIB */
    /* The result of the trials on an earlier context of the device, which is also valid for this one. NULL:
     * the trials are made now. */
    const struct pvn_gpumem_cap *known;
    /* State of the device; outlives this; NULL: never relaxed */
    struct pvn_rdma_ordering *ordering;
};

/* Tries to register memory of the GPU whose context is current on this thread; NCCL has chosen that GPU. A
 * device that cannot access GPU memory is no error. Returns NULL, with *err, only if memory is short. */
struct pvn_rdma_gpu *pvn_rdma_gpu_open(const struct pvn_rdma_gpu_cfg *cfg, struct pvn_err *err);
/* NULL is allowed. */
void pvn_rdma_gpu_close(struct pvn_rdma_gpu *g);

/* The result of the trials: ptr_support and flush.force are properties that the device reports to NCCL, text
 * is its line in the log. Valid until close. */
const struct pvn_gpumem_cap *pvn_rdma_gpu_cap(const struct pvn_rdma_gpu *g);

/* Fills in a registrar for all memory, which passes host memory on to cfg.host. Registrations of the same GPU
 * allocation share a region, which lives as long as one of them. May be called from any thread. */
void pvn_rdma_gpu_registrar(struct pvn_rdma_gpu *g, struct pvn_rdma_registrar *out);

#endif
