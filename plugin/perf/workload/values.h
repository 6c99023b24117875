/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that can be checked exactly: the ranks' contributions to a collective, the expected sum, and
 * bytes of a message that identify the message.
 *
 * All numbers are small and whole, so that sums are exact. float32: element i of rank r is g(i) *
 * w(r) + (i & 15), with g in 1..128 depending on the seed and w in 1..61. So a missing, doubled,
 * misplaced or stale contribution shows. Sums stay below 2^24 up to PVN_BOOT_MAX_RANKS ranks, in
 * any order. bfloat16 holds whole numbers up to 256 only: rank r contributes h(r, i) - h(r + 1, i)
 * with h in 0..127, and rank 0 v(i) in 1..128 in addition. Around a ring the sum of any neighbours
 * is then within -127..255, and that of all ranks is v(i).
 */
#ifndef PVN_PERF_VALUES_H
#define PVN_PERF_VALUES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pvn_type { PVN_FLOAT32, PVN_BFLOAT16 };

size_t pvn_type_size(enum pvn_type type);      /* bytes */
const char *pvn_type_name(enum pvn_type type); /* "float32" */

/* The owner of an element: a rank of nranks, or PVN_SUM for the sum of all. */
#define PVN_SUM (-1)
struct pvn_whose {
    enum pvn_type type;
    int rank, nranks;
    uint32_t seed;
};

/* Writes the elements at, at + 1, ... of an array. */
void pvn_values_fill(void *dst, uint64_t at, uint64_t count, const struct pvn_whose *w);
double pvn_values_expected(uint64_t i, const struct pvn_whose *w);
/* Number of wrong elements; *first is the index of the first one in got. */
uint64_t pvn_values_check(const void *got, uint64_t at, uint64_t count, const struct pvn_whose *w,
                          uint64_t *first);
double pvn_values_get(enum pvn_type type, const void *array, uint64_t i);

/*
 * Write a[i] + b[i], or a copy, to dst, out or both (one may be NULL; dst may be a or b). out
 * stands for GPU memory: writes to it bypass this processor's caches if it is aligned to 16 bytes.
 */
void pvn_values_add(enum pvn_type type, void *dst, void *out, const void *a, const void *b,
                    uint64_t count);
void pvn_bytes_copy(void *dst, void *out, const void *src, size_t len);

/* Writes the bytes of message `id`. */
void pvn_bytes_fill(void *dst, size_t len, uint64_t id);
/* Number of wrong bytes; *first is the offset of the first one. */
size_t pvn_bytes_check(const void *got, size_t len, uint64_t id, size_t *first);
/* Number of bytes that are not `value`. */
size_t pvn_bytes_not(const void *got, size_t len, unsigned char value);

#ifdef __cplusplus
}
#endif

#endif
