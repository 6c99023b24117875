/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory without a GPU, for pvn-perf's messages (messages.c): NCCL's staging buffers come from
 * cudaHostAlloc, so their pages are of 4 KiB and the kernel cannot move them. Memory of malloc may be in
 * huge pages, for which adapters need fewer translations.
 */
#ifndef PVN_PERF_PIN_H
#define PVN_PERF_PIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Pins len bytes of a private mapping at p, which begins at a page. They count against RLIMIT_MEMLOCK. Returns a
 * descriptor that keeps them pinned; the caller unmaps the memory first and then closes it. -1 with the reason in
 * why: nothing is pinned, but the mapping excludes huge pages now and is to be unmapped. Any thread.
 */
int pvn_pin(void *p, size_t len, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
