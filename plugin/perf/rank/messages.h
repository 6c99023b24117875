/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a rank's messages lie in, as --memory says: of a GPU, pinned as NCCL's staging buffers
 * are, or ordinary. Registered as NCCL's transport does (src/transport/net.cc of NCCL 2.30.7, sendProxyConnect
 * and recvProxyConnect), one piece of memory at a time.
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
    enum pvn_perf_memory kind; /* GPU, PINNED or MOVABLE: what it is */
    char how[PVN_MEMORY_HOW];  /* which GPU and how it is reached; what pins it */
    struct pvn_gpu *gpu;       /* NULL: no CUDA here, or not wanted */
    bool flush;                /* NCCL would call iflush after receives */
    bool dmabuf;               /* GPU memory is registered by descriptor */
    bool staged;       /* GPU memory was requested, and the device takes host memory alone */
    uint64_t gpu_base; /* what was allocated on the GPU, 0: nothing */
    bool by_cuda;      /* pinned by cuMemHostAlloc */
    int pin_fd;        /* holds memory pinned; -1: it does not */
};

/* For the memory of the options: before the plugin is loaded, for it looks for CUDA, and when the devices are
 * known, which decide the rest. Between pvn_rank_hold and pvn_rank_agree. 0, or -1 after pvn_rank_fail. */
int pvn_messages_start(struct pvn_rank *r);
int pvn_messages_settle(struct pvn_rank *r);
void pvn_messages_end(struct pvn_rank *r);

/* Whole pages for messages, or NULL after pvn_rank_fail. Between pvn_rank_hold and pvn_rank_agree. */
void *pvn_rank_alloc_messages(struct pvn_rank *r, size_t len);
void pvn_rank_free_messages(struct pvn_rank *r, void *p, size_t len);
/* Leaves it as it is until the process ends, because requests on it may never end: others can be
 * allocated. */
void pvn_messages_forget(struct pvn_rank *r);
/* After pvn_rank_agree: which memory it is; at rank 0, and at the server for itself. 0, or -1 after
 * pvn_rank_fail. */
int pvn_messages_say(struct pvn_rank *r);

/* True if the processor cannot reach it: only the copies below do. */
bool pvn_messages_on_gpu(const struct pvn_rank *r);
/* 0, or -1 after pvn_rank_fail. */
int pvn_messages_write(struct pvn_rank *r, void *to, const void *from, size_t len);
int pvn_messages_read(struct pvn_rank *r, void *to, const void *from, size_t len);

/* A part of the memory for one comm. 0, or -1 after pvn_rank_fail. */
int pvn_messages_register(struct pvn_rank *r, void *comm, void *p, size_t len, void **mhandle);
/*
 * After a receive of `n` buffers with these sizes, as NCCL's recvProxyProgress: *request is what is to be
 * tested until the GPU sees the bytes; NULL: it does. Does nothing where no flush is needed. 0, or -1 after
 * pvn_rank_fail.
 */
int pvn_messages_flush(struct pvn_rank *r, void *comm, int n, void **data, const int *sizes,
                       void **mhandles, void **request);

/* "gpu", "pinned", "movable", or "" for the default: in files and between serve and its client. */
const char *pvn_memory_name(enum pvn_perf_memory kind);

#endif
