/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Registration and flush of GPU memory, independent of verbs.
 *
 * The RDMA lane passes its abilities as three callbacks and a few facts. A trial registration decides what a NIC
 * offers to NCCL. Other functions decide how a buffer becomes one memory region and how a received buffer is
 * flushed. Every decision comes with one sentence for the log.
 *
 * A region is always one registration with one key, because a clear-to-send entry carries one key per lane.
 *
 * Threads: the functions keep no state of their own. Their arguments must not change during a call. Calls with a
 * pvn_cuda use the CUDA context that NCCL has made current on the calling thread. */
#ifndef PVN_MEMORY_GPUMEM_H
#define PVN_MEMORY_GPUMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/cuda_shim.h"
#include "base/err.h"
#include "base/param.h"

/* ---- what the lane provides ---- */

/* Registration in one protection domain of one NIC, with the access rights that the lane uses for data. Returns 0
 * and *mr, which is private to the lane, or a negative errno with the reason in err. All three functions are
 * required. If the NIC's provider cannot register dma-bufs, reg_dmabuf_mr returns -EOPNOTSUPP. */
struct pvn_gpumem_ops {
    int (*reg_mr)(void *nic, uint64_t addr, uint64_t len, void **mr, struct pvn_err *err);
    /* offset: position of the region's first byte in the dma-buf; iova: address that remote writers use. The
     * caller may close the descriptor after the call. */
    int (*reg_dmabuf_mr)(void *nic, int fd, uint64_t offset, uint64_t len, uint64_t iova, void **mr,
                         struct pvn_err *err);
    int (*dereg_mr)(void *nic, void *mr, struct pvn_err *err);
};

struct pvn_gpumem_nic {
    const char *name; /* "mlx5_0 port 1", for texts */
    const struct pvn_gpumem_ops *ops;
    void *nic;      /* first argument of the callbacks */
    bool can_write; /* RDMA WRITE works: a peer can write into registered memory */
    bool can_read;  /* it can read its own host's memory by RDMA READ */
    /* A known limitation of the NIC's driver, for the log if no trial works; NULL: none is known */
    const char *lacks;
};

/* ---- flush ---- */

enum pvn_flush_kind {
    PVN_FLUSH_NONE,       /* no flush: iflush completes at once */
    PVN_FLUSH_READ,       /* the adapter that wrote the buffer reads from it by RDMA READ */
    PVN_FLUSH_CUDA,       /* pvn_cuda_flush() */
    PVN_FLUSH_IMPOSSIBLE, /* no flush works, so GPU memory must not be offered */
};

struct pvn_flush_plan {
    enum pvn_flush_kind kind;
    bool force; /* the property forceFlush; set if NCCL would omit a flush that is needed */
    char text[256];
};

/* Decides how received data are flushed. Below compute capability 9.0 NCCL always requests a flush. From 9.0 on it
 * requests one only if forceFlush or NCCL_NET_FORCE_FLUSH is set, or if the CPU reaches the GPU over C2C but the NIC
 * reaches it over PCIe, so that a flag may overtake data (2.30.7, graph/paths.cc, ncclTopoNeedFlush). So a requested flush
 * is done on any GPU, and `force` matters only from 9.0 on. */
void pvn_flush_decide(enum pvn_flush_mode mode, const struct pvn_cuda_caps *gpu, bool nic_can_read,
                      struct pvn_flush_plan *out);

/* ---- capability ---- */

struct pvn_gpumem_trial {
    bool done;
    int rc; /* 0: a real registration of GPU memory worked and was undone */
    char why[192];
};

/* All facts on which pvn_gpumem_decide depends. */
struct pvn_gpumem_facts {
    enum pvn_gpu_mem_mode mode; /* NCCL_PVRDMA_GPU_MEM */
    enum pvn_flush_mode flush;  /* NCCL_PVRDMA_FLUSH */
    bool nccl_no_dmabuf;        /* NCCL_DMABUF_ENABLE=0 */
    bool can_write, can_read;   /* of the NIC */
    const char *lacks;          /* of the NIC, see pvn_gpumem_nic */
    int cuda_rc; /* 0: CUDA is in use and `gpu` is filled in; else a negative errno */
    char cuda_why[192];
    struct pvn_cuda_caps gpu;
    struct pvn_gpumem_trial peer, dmabuf;
};

struct pvn_gpumem_cap {
    bool peer;       /* GPU addresses can be registered directly, through a peer-memory client */
    bool dmabuf;     /* dma-bufs can be registered */
    int ptr_support; /* NCCL_PTR_ bits for getProperties */
    struct pvn_flush_plan flush;
    char text[512]; /* one line: "gpu memory: dma-buf on GPU 0000:1b:00.0 (NVIDIA H100 ...)" */
};

/* Decides what the NIC offers. The result depends only on the facts. */
void pvn_gpumem_decide(const struct pvn_gpumem_facts *facts, struct pvn_gpumem_cap *cap);

/* Tries what `nic` can do with GPU `dev`, and decides. It registers and deregisters a small buffer, by dma-buf and
 * by peer memory if the mode allows these. The caller fills in mode, flush and nccl_no_dmabuf of *facts; this
 * function fills in the rest. cu NULL: there is no CUDA in this process; cuda_why (may be NULL) is the reason. dev
 * -1: the device of the current context. This function cannot fail: a failed trial is a result in *cap. */
void pvn_gpumem_prove(const struct pvn_cuda *cu, const char *cuda_why, int dev,
                      const struct pvn_gpumem_nic *nic, struct pvn_gpumem_facts *facts,
                      struct pvn_gpumem_cap *cap);

/* ---- one buffer ---- */

/* The allocations that hold a buffer: one of cudaMalloc, one or more of mapped (VMM) memory. */
struct pvn_gpumem_view {
    int dev;
    unsigned segments; /* number of allocations */
    uint64_t base;     /* start of the first allocation */
    uint64_t end;      /* end of the last allocation */
    uint64_t id;       /* changes if an allocation is freed, remapped or allocated again */
    int gdr_capable;
};
/* Finds the allocations of a buffer; len > 0. -EFAULT: a part is not device memory. -EXDEV: the buffer is spread over
 * several devices. */
int pvn_gpumem_look(const struct pvn_cuda *cu, uint64_t addr, uint64_t len,
                    struct pvn_gpumem_view *out, struct pvn_err *err);

/* Page size with which the NVIDIA driver pins and maps memory for other devices. */
#define PVN_GPU_PAGE (UINT64_C(64) << 10)

/* The region for a buffer. The buffer's range grows to whole GPU pages within its allocation, so that neighbours share
 * a registration. Then it grows to whole host pages, because devices and the export of dma-bufs require these (NCCL's
 * own InfiniBand transport also registers whole host pages). */
struct pvn_gpumem_plan {
    uint64_t addr, len; /* range of the region, and of the dma-buf */
};
/* host_page: in bytes, a power of two. -EINVAL if the buffer is empty, wraps around, or is not inside the view. */
int pvn_gpumem_plan_region(uint64_t addr, uint64_t len, const struct pvn_gpumem_view *view,
                           uint64_t host_page, struct pvn_gpumem_plan *out, struct pvn_err *err);

struct pvn_gpumem_mr {
    void *mr; /* private to the lane */
    bool by_dmabuf;
    int dev;
    uint64_t addr, len; /* the region, in whole host pages */
};

/* 0 if cap allows a registration with NCCL's dma-buf fd (-1: without one), else -EOPNOTSUPP. */
int pvn_gpumem_usable(const struct pvn_gpumem_nic *nic, const struct pvn_gpumem_cap *cap, int fd,
                      struct pvn_err *err);

/* Registers GPU memory by a path that worked in the trial. fd -1: through a dma-buf that this function exports, or a
 * peer-memory client. Otherwise fd is NCCL's dma-buf (regMrDmaBuf) with its offset; the caller keeps and closes it. */
int pvn_gpumem_register(const struct pvn_cuda *cu, const struct pvn_gpumem_nic *nic,
                        const struct pvn_gpumem_cap *cap, uint64_t addr, uint64_t len, int fd,
                        uint64_t offset, struct pvn_gpumem_mr *out, struct pvn_err *err);
int pvn_gpumem_deregister(const struct pvn_gpumem_nic *nic, struct pvn_gpumem_mr *mr,
                          struct pvn_err *err);

#endif
