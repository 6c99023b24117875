/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory as NCCL's staging buffers are: pinned, as cudaHostAlloc leaves it, in pages of 4 KiB that the
 * kernel cannot move.
 */
#ifndef PVN_PERF_PIN_H
#define PVN_PERF_PIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Pins len bytes of private memory at p, which begins at a page. Returns a descriptor that holds the
 * pages, which the caller closes after unmapping the memory. -1 with the reason in why: nothing is
 * pinned, but the memory has been excluded from huge pages and is to be unmapped. Any thread.
 */
int pvn_pin(void *p, size_t len, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
