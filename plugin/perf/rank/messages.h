/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a rank's messages, selected by --memory: GPU memory, pinned memory like NCCL's
 * staging buffers, or ordinary memory. It is registered as by NCCL's transport
 * (src/transport/net.cc of NCCL 2.30.7, sendProxyConnect and recvProxyConnect), one piece at a
 * time.
 */
#ifndef PVN_PERF_MESSAGES_H
#define PVN_PERF_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/rank/gpu.h"
#include "perf/driver/netdrv.h"
#include "perf/options/opts.h"

#define PVN_MEMORY_HOW 192

struct pvn_rank;

struct pvn_messages {
    enum pvn_perf_memory kind; /* the actual kind: GPU, PINNED or MOVABLE */
    char how[PVN_MEMORY_HOW];  /* the GPU and how it is reached, or the means of pinning */
    struct pvn_gpu *gpu;       /* NULL: no CUDA here, or not requested */
    bool flush;                /* NCCL would call iflush after receives */
    bool dmabuf;               /* GPU memory is registered by descriptor */
    bool staged;       /* GPU memory was requested, but the device accepts only host memory */
    uint64_t gpu_base; /* address of the allocation on the GPU, 0: none */
    bool by_cuda;      /* pinned by cuMemHostAlloc */
    int pin_fd;        /* keeps memory pinned; -1: memory is not pinned by it */
};

/* Set up the memory that the options request. start runs before the plugin is loaded, because it
 * looks for CUDA; settle runs when the devices are known, because they decide the rest. Between
 * pvn_rank_hold and pvn_rank_agree. 0, or -1 after pvn_rank_fail. */
int pvn_messages_start(struct pvn_rank *r);
int pvn_messages_settle(struct pvn_rank *r);
void pvn_messages_end(struct pvn_rank *r);

/* Allocates whole pages for messages; NULL after pvn_rank_fail. Between pvn_rank_hold and
 * pvn_rank_agree. */
void *pvn_rank_alloc_messages(struct pvn_rank *r, size_t len);
void pvn_rank_free_messages(struct pvn_rank *r, void *p, size_t len);
/* Leaves the memory allocated until the process ends, because requests on it may never end. New
 * memory can be allocated. */
void pvn_messages_forget(struct pvn_rank *r);
/* Called after pvn_rank_agree: reports which memory is in use, at rank 0, and at the server for
 * itself. 0, or -1 after pvn_rank_fail. */
int pvn_messages_say(struct pvn_rank *r);

/* True if the processor cannot access the memory, so that only the copies below can. */
bool pvn_messages_on_gpu(const struct pvn_rank *r);
/* Copy to and from the memory. 0, or -1 after pvn_rank_fail. */
int pvn_messages_write(struct pvn_rank *r, void *to, const void *from, size_t len);
int pvn_messages_read(struct pvn_rank *r, void *to, const void *from, size_t len);

/* Registers a part of the memory for one comm. 0, or -1 after pvn_rank_fail. */
int pvn_messages_register(struct pvn_rank *r, void *comm, void *p, size_t len, void **mhandle);
/*
 * Called after a receive of `n` buffers with these sizes, as in NCCL's recvProxyProgress. *request
 * must be tested until the GPU sees the bytes; NULL: the GPU sees them already. Does nothing if no
 * flush is needed. 0, or -1 after pvn_rank_fail.
 */
int pvn_messages_flush(struct pvn_rank *r, void *comm, int n, void **data, const int *sizes,
                       void **mhandles, void **request);

/* "gpu", "pinned", "movable", or "" for the default; used in files and between serve and its
 * client. */
const char *pvn_memory_name(enum pvn_perf_memory kind);

#endif
