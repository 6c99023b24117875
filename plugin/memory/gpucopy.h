/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between GPU memory and host memory, for lanes that can access host memory only: a connection of an
 * RDMA device that has fallen back to TCP, or has failed over to TCP.
 *
 * Each GPU has a stream for these copies, which does not wait for the application's kernels: a running kernel
 * of NCCL may wait for these very bytes. On the host's side each GPU has a pool of pinned memory. If the pool
 * is used up, ordinary memory is used, which the driver copies through pinned memory of its own. The pool is
 * allocated when memory of the GPU is registered, because pinning may also wait for running kernels (CUDA C++
 * Programming Guide 13.0, "Implicit Synchronization": a page-locked host memory allocation).
 *
 * All functions may be called from any thread. In a forked child they return errors.
 */
#ifndef PVN_MEMORY_GPUCOPY_H
#define PVN_MEMORY_GPUCOPY_H

#include "base/mem_copy.h"

/* The copy functions for this GPU memory; valid until unload. Returns NULL with *err if there is no CUDA in this
 * process or the address is not in GPU memory. */
const struct pvn_mem_copy *pvn_gpucopy_of(const void *addr, struct pvn_err *err);
/* Allocates the pool of the GPU that holds addr. Call this before the first copy, in a call that may wait for
 * kernels. If it fails, copies are slower. */
void pvn_gpucopy_prepare(const void *addr);
/* Makes earlier writes of adapters into the GPU's memory visible to the GPU. Does nothing if the GPU reports that
 * remote writes are always ordered. 0 or a negative errno with *err; -EOPNOTSUPP: the driver has no flush. */
int pvn_gpucopy_flush(const struct pvn_mem_copy *c, struct pvn_err *err);
/* Frees streams and pools. No copy may be in progress or follow. */
void pvn_gpucopy_unload(void);
void pvn_gpucopy_after_fork(void);

#endif
