/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory without a GPU, for pvn-perf's messages (messages.c). NCCL's staging buffers
 * come from cudaHostAlloc, so they have pages of 4 KiB that the kernel cannot move. Memory from
 * malloc may have huge pages, for which adapters need fewer translations.
 */
#ifndef PVN_PERF_PIN_H
#define PVN_PERF_PIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Pins len bytes of a private mapping at p, which is page-aligned. They count against
 * RLIMIT_MEMLOCK. Returns a descriptor that keeps them pinned; the caller first unmaps the memory
 * and then closes the descriptor. On failure returns -1 with the reason in why. Nothing is pinned
 * then, but the mapping no longer allows huge pages, so the caller must unmap it. Any thread.
 */
int pvn_pin(void *p, size_t len, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
