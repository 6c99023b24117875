/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that can be checked exactly: what ranks contribute to an all-reduce, what the sum must be,
 * and bytes of a message that say which message they belong to.
 *
 * Contributions are small whole numbers, so that float32 sums are exact in any order: element i of
 * rank r is g(i) * w(r) + (i & 15) with g in 1..128 depending on the seed and w in 1..61, which
 * makes a missing, doubled, misplaced or stale contribution show. Sums stay below 2^24 up to
 * PVN_BOOT_MAX_RANKS ranks.
 */
#ifndef PVN_PERF_VALUES_H
#define PVN_PERF_VALUES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void pvn_values_fill(float *dst, uint64_t count, int rank, uint32_t seed);
float pvn_values_expected(uint64_t i, int nranks, uint32_t seed);
/* Number of wrong elements; *first is the index of the first one. */
uint64_t pvn_values_check(const float *got, uint64_t count, int nranks, uint32_t seed,
                          uint64_t *first);

/* dst[i] = a[i] + b[i]; dst may be a or b. */
void pvn_values_add(float *dst, const float *a, const float *b, uint64_t count);

/*
 * The same into two places, and a copy likewise (dst may be NULL there). out stands for memory of a
 * GPU: what is written there takes no part in this processor's caches, if it begins at whole 16
 * bytes.
 */
void pvn_values_add_out(float *dst, float *out, const float *a, const float *b, uint64_t count);
void pvn_values_copy_out(float *dst, float *out, const float *src, uint64_t count);

/* Bytes of message `id`. */
void pvn_bytes_fill(void *dst, size_t len, uint64_t id);
/* Number of wrong bytes; *first is the offset of the first one. */
size_t pvn_bytes_check(const void *got, size_t len, uint64_t id, size_t *first);
/* Number of bytes that are not `value`. */
size_t pvn_bytes_not(const void *got, size_t len, unsigned char value);

#ifdef __cplusplus
}
#endif

#endif
