/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Registration and flush of GPU memory, without a line of verbs.
 *
 * The RDMA lane passes what it can do as three callbacks and a few facts. These functions decide,
 * by a trial registration, what is offered to NCCL for a NIC, how a buffer becomes one memory
 * region, and how a received buffer is flushed. Every decision comes with one sentence for the log.
 *
 * A region is always one registration with one key, because a clear-to-send entry carries one key
 * per lane.
 *
 * Threads: the functions keep no state of their own; what is handed in must not change during a
 * call. Calls that take a pvn_cuda run on the caller's thread, with the CUDA context that NCCL has
 * made current there. */
#ifndef PVN_MEMORY_GPUMEM_H
#define PVN_MEMORY_GPUMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/cuda_shim.h"
#include "base/err.h"
#include "base/param.h"

/* ---- what the lane provides ---- */

/* Registration in one protection domain of one NIC, with the access rights that lane uses for data.
 * 0 and *mr, or a negative errno with the reason in err; *mr is the lane's own. All three are
 * required; a NIC whose provider cannot register dma-bufs answers -EOPNOTSUPP. */
struct pvn_gpumem_ops {
    int (*reg_mr)(void *nic, uint64_t addr, uint64_t len, void **mr, struct pvn_err *err);
    /* `offset`: of the region's first byte in the dma-buf; `iova`: the address that remote writers
     * will use. The descriptor may be closed when the call has returned. */
    int (*reg_dmabuf_mr)(void *nic, int fd, uint64_t offset, uint64_t len, uint64_t iova, void **mr,
                         struct pvn_err *err);
    int (*dereg_mr)(void *nic, void *mr, struct pvn_err *err);
};

struct pvn_gpumem_nic {
    const char *name; /* "mlx5_0 port 1", for texts */
    const struct pvn_gpumem_ops *ops;
    void *nic;      /* first argument of the callbacks */
    bool can_write; /* RDMA WRITE: a peer can place data in registered memory */
    bool can_read;  /* RDMA READ */
    /* A fact about its driver for the sentence when nothing works; NULL: none is known */
    const char *lacks;
};

/* ---- flush ---- */

enum pvn_flush_kind {
    PVN_FLUSH_NONE,       /* nothing to do: iflush completes at once */
    PVN_FLUSH_READ,       /* an RDMA READ from the buffer by the adapter that wrote it */
    PVN_FLUSH_CUDA,       /* pvn_cuda_flush() */
    PVN_FLUSH_IMPOSSIBLE, /* so GPU memory must not be offered */
};

struct pvn_flush_plan {
    enum pvn_flush_kind kind;
    bool force; /* the property forceFlush: NCCL would skip a flush that is needed */
    char text[256];
};

/* NCCL itself requests a flush below compute capability 9.0. From 9.0 up it requests one where forceFlush
 * or NCCL_NET_FORCE_FLUSH is set, and where the CPU reaches the GPU over C2C but the NIC over PCIe, so that a flag may
 * overtake data (2.30.7, graph/paths.cc, ncclTopoNeedFlush). So what it requests is done on any GPU, and `force` matters
 * from 9.0 up only. */
void pvn_flush_decide(enum pvn_flush_mode mode, const struct pvn_cuda_caps *gpu, bool nic_can_read,
                      struct pvn_flush_plan *out);

/* ---- capability ---- */

struct pvn_gpumem_trial {
    bool done;
    int rc; /* 0: a real registration of GPU memory worked and was undone */
    char why[192];
};

/* Everything the verdict depends on. */
struct pvn_gpumem_facts {
    enum pvn_gpu_mem_mode mode; /* NCCL_PVRDMA_GPU_MEM */
    enum pvn_flush_mode flush;  /* NCCL_PVRDMA_FLUSH */
    bool nccl_no_dmabuf;        /* NCCL_DMABUF_ENABLE=0 */
    bool can_write, can_read;   /* of the NIC */
    const char *lacks;          /* of the NIC, see pvn_gpumem_nic */
    int cuda_rc;                /* 0: CUDA is there and gpu is filled; else why not */
    char cuda_why[192];
    struct pvn_cuda_caps gpu;
    struct pvn_gpumem_trial peer, dmabuf;
};

struct pvn_gpumem_cap {
    bool peer;       /* ordinary registration of GPU addresses: a peer-memory client is at work */
    bool dmabuf;     /* registration of dma-buf descriptors */
    int ptr_support; /* NCCL_PTR_ bits for getProperties */
    struct pvn_flush_plan flush;
    char text[512]; /* one line: "gpu memory: dma-buf on GPU 0000:1b:00.0 (NVIDIA H100 ...)" */
};

/* The verdict on facts, and nothing but them. */
void pvn_gpumem_decide(const struct pvn_gpumem_facts *facts, struct pvn_gpumem_cap *cap);

/* Proves the capability of `nic` with GPU `dev`: registers a small buffer for real, by dma-buf and
 * by peer memory as far as the mode allows, deregisters it and decides. The caller fills mode,
 * flush and nccl_no_dmabuf of *facts, this the rest. `cu` NULL: no CUDA in this process; `cuda_why`
 * then says why (may be NULL). `dev` -1: the device of the context that is current. Never fails:
 * what does not work is the verdict. */
void pvn_gpumem_prove(const struct pvn_cuda *cu, const char *cuda_why, int dev,
                      const struct pvn_gpumem_nic *nic, struct pvn_gpumem_facts *facts,
                      struct pvn_gpumem_cap *cap);

/* ---- one buffer ---- */

/* The allocations that hold a buffer: one for cudaMalloc, one
 * or more for mapped (VMM) memory. */
struct pvn_gpumem_view {
    int dev;
    unsigned segments;
    uint64_t base; /* start of the first one */
    uint64_t end;  /* end of the last one */
    uint64_t id;   /* changes whenever any of them is freed, remapped or given out again */
    int gdr_capable;
};
/* -EFAULT where a part is not device memory, -EXDEV where it is spread over devices. len > 0. */
int pvn_gpumem_look(const struct pvn_cuda *cu, uint64_t addr, uint64_t len,
                    struct pvn_gpumem_view *out, struct pvn_err *err);

#define PVN_GPU_PAGE                                                                               \
    (UINT64_C(64) << 10) /* what the NVIDIA driver pins and maps for third parties */

/* How [addr, addr + len) is registered: the range grows to whole GPU pages, so that neighbours
 * share a registration, but not past the allocation, and then to whole host pages, which is what
 * devices and the export of a dma-buf take (NCCL's own InfiniBand transport registers whole host
 * pages too). */
struct pvn_gpumem_plan {
    uint64_t addr, len; /* of the region, and of the dma-buf */
};
/* `host_page` in bytes, a power of two. -EINVAL when the buffer is empty, wraps, or is not inside
 * the view. */
int pvn_gpumem_plan_region(uint64_t addr, uint64_t len, const struct pvn_gpumem_view *view,
                           uint64_t host_page, struct pvn_gpumem_plan *out, struct pvn_err *err);

struct pvn_gpumem_mr {
    void *mr; /* the lane's */
    bool by_dmabuf;
    int dev;
    uint64_t addr, len; /* the region, in whole host pages */
};

/* 0 if cap allows a registration with NCCL's descriptor fd (-1: without one), else
 * -EOPNOTSUPP. */
int pvn_gpumem_usable(const struct pvn_gpumem_nic *nic, const struct pvn_gpumem_cap *cap, int fd,
                      struct pvn_err *err);

/* Registers GPU memory by the path that cap has proved. `fd` -1: a peer-memory registration, or a
 * dma-buf that is exported here; otherwise NCCL's descriptor (regMrDmaBuf) with its offset, which
 * stays the caller's to close. */
int pvn_gpumem_register(const struct pvn_cuda *cu, const struct pvn_gpumem_nic *nic,
                        const struct pvn_gpumem_cap *cap, uint64_t addr, uint64_t len, int fd,
                        uint64_t offset, struct pvn_gpumem_mr *out, struct pvn_err *err);
int pvn_gpumem_deregister(const struct pvn_gpumem_nic *nic, struct pvn_gpumem_mr *mr,
                          struct pvn_err *err);

#endif
