/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between GPU memory and host memory, for lanes that reach host memory only: a connection of
 * an RDMA device that has fallen back to TCP, or has failed over to it.
 *
 * Each GPU has one stream of its own here, which does not wait for the application's kernels: one
 * of NCCL's may be running, and wait for these very bytes. The host's side is pinned memory, a pool
 * for each GPU; where that is used up, it is ordinary memory, which the driver copies through pinned
 * memory of its own. The pool is made when memory of the GPU is registered, since pinning may wait
 * for running kernels, too (CUDA C++ Programming Guide 13.0, "Implicit Synchronization": a
 * page-locked host memory allocation).
 *
 * Threads: any. A child of fork() gets errors.
 */
#ifndef PVN_MEMORY_GPUCOPY_H
#define PVN_MEMORY_GPUCOPY_H

#include "base/mem_copy.h"

/* How the bytes of this GPU memory are copied; valid until unload. NULL with *err: there is no CUDA
 * in this process, or the address is none of a GPU's. */
const struct pvn_mem_copy *pvn_gpucopy_of(const void *addr, struct pvn_err *err);
/* Before memory of a GPU may have to be copied, in a call that may wait for kernels: makes the pool
 * of the GPU that this address is on. Where it cannot be, copies are slower. */
void pvn_gpucopy_prepare(const void *addr);
/* Makes visible to that GPU what adapters have written into its memory; nothing has to be done where
 * the GPU says that it always is (its ordering of remote writes). 0 or a negative errno with *err;
 * -EOPNOTSUPP: the driver cannot. */
int pvn_gpucopy_flush(const struct pvn_mem_copy *c, struct pvn_err *err);
/* Nobody copies any more. */
void pvn_gpucopy_unload(void);
void pvn_gpucopy_after_fork(void);

#endif
