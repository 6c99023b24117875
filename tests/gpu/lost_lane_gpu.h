/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* GPU memory for lost_lane. Its main thread makes the data calls and must have no CUDA context.
 * So calls that need one run on a thread of their own, with the GPU's primary context. Any thread
 * may call these functions. */
#ifndef PVN_TESTS_LOST_LANE_GPU_H
#define PVN_TESTS_LOST_LANE_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "memory/cuda_abi.h"

/* Loads the driver and retains the first GPU's primary context. Returns 0, or -1 with the reason.
 * *absent: there is no GPU or no driver. */
int ll_gpu_open(const char *lib, bool *absent, char *why, size_t why_len);
/* Calls f(arg) on a thread with the context, and waits for its end. */
void ll_gpu_call(void (*f)(void *), void *arg);
/* These return a CUDA error; 0: success. */
int ll_gpu_alloc(pvn_cu_ptr *at, size_t len);
int ll_gpu_write(pvn_cu_ptr to, const void *from, size_t len);
int ll_gpu_read(void *to, pvn_cu_ptr from, size_t len);
int ll_gpu_set(pvn_cu_ptr to, unsigned char byte, size_t len);
int ll_gpu_export(int *fd, pvn_cu_ptr first, size_t len);
/* True if the calling thread has a context. */
bool ll_gpu_has_context(void);
/* Makes the calls that find and export memory on the calling thread, and describes their results
 * in text. */
void ll_gpu_probe(pvn_cu_ptr at, size_t len, char *text, size_t text_len);

#endif
