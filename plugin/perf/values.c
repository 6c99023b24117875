/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/values.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* A constant trip count lets -O2 use vector instructions, which it does not for unknown ones. */
#define BLOCK 16

static uint32_t weight(int rank)
{
    return (uint32_t)(rank % 61) + 1;
}

static float element(uint64_t i, uint32_t scale, uint32_t ranks, uint32_t seed)
{
    uint32_t lo = (uint32_t)i, g = 1 + (((lo + seed * 0x9e3779b9u) * 0x85ebca6bu) >> 25);

    return (float)(int32_t)(g * scale + ranks * (lo & 15));
}

void pvn_values_fill(float *dst, uint64_t count, int rank, uint32_t seed)
{
    uint32_t w = weight(rank);
    uint64_t i = 0;

    for (; i + BLOCK <= count; i += BLOCK) {
        for (int k = 0; k < BLOCK; k++)
            dst[i + (uint64_t)k] = element(i + (uint64_t)k, w, 1, seed);
    }
    for (; i < count; i++)
        dst[i] = element(i, w, 1, seed);
}

static uint32_t weight_sum(int nranks)
{
    uint32_t sum = 0;

    for (int r = 0; r < nranks; r++)
        sum += weight(r);
    return sum;
}

float pvn_values_expected(uint64_t i, int nranks, uint32_t seed)
{
    return element(i, weight_sum(nranks), (uint32_t)nranks, seed);
}

uint64_t pvn_values_check(const float *got, uint64_t count, int nranks, uint32_t seed,
                          uint64_t *first)
{
    uint32_t w = weight_sum(nranks);
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i += BLOCK) {
        uint64_t n = count - i < BLOCK ? count - i : BLOCK;
        float want[BLOCK];

        for (int k = 0; k < BLOCK; k++)
            want[k] = element(i + (uint64_t)k, w, (uint32_t)nranks, seed);
        if (memcmp(want, got + i, n * sizeof(float)) == 0)
            continue;
        for (uint64_t k = 0; k < n; k++) {
            if (memcmp(&want[k], &got[i + k], sizeof(float)) != 0 && wrong++ == 0)
                *first = i + k;
        }
    }
    return wrong;
}

void pvn_values_add(float *dst, const float *a, const float *b, uint64_t count)
{
    uint64_t i = 0;

    for (; i + BLOCK <= count; i += BLOCK) {
        float sum[BLOCK];

        for (int k = 0; k < BLOCK; k++)
            sum[k] = a[i + (uint64_t)k] + b[i + (uint64_t)k];
        memcpy(dst + i, sum, sizeof(sum));
    }
    for (; i < count; i++)
        dst[i] = a[i] + b[i];
}

/* Four elements to memory, past the caches where processor and address allow it. */
static void write_around(float *to, const float *v)
{
#ifdef __SSE2__
    if ((uintptr_t)to % 16 == 0) {
        _mm_stream_ps(to, _mm_loadu_ps(v));
        return;
    }
#endif
    memcpy(to, v, 4 * sizeof(float));
}

void pvn_values_add_out(float *dst, float *out, const float *a, const float *b, uint64_t count)
{
    uint64_t i = 0;

    for (; i + BLOCK <= count; i += BLOCK) {
        float sum[BLOCK];

        for (int k = 0; k < BLOCK; k++)
            sum[k] = a[i + (uint64_t)k] + b[i + (uint64_t)k];
        memcpy(dst + i, sum, sizeof(sum));
        for (int k = 0; k < BLOCK; k += 4)
            write_around(out + i + k, sum + k);
    }
    for (; i < count; i++)
        out[i] = dst[i] = a[i] + b[i];
}

void pvn_values_copy_out(float *dst, float *out, const float *src, uint64_t count)
{
    uint64_t i = 0;

    for (; i + BLOCK <= count; i += BLOCK) {
        float v[BLOCK];

        memcpy(v, src + i, sizeof(v));
        if (dst)
            memcpy(dst + i, v, sizeof(v));
        for (int k = 0; k < BLOCK; k += 4)
            write_around(out + i + k, v + k);
    }
    for (; i < count; i++) {
        out[i] = src[i];
        if (dst)
            dst[i] = src[i];
    }
}

/* splitmix64's finaliser: neighbouring words of neighbouring messages are unrelated. */
static uint64_t word(uint64_t id, uint64_t i)
{
    uint64_t z = id * 0x9e3779b97f4a7c15ull + i;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void pvn_bytes_fill(void *dst, size_t len, uint64_t id)
{
    char *p = dst;

    for (size_t at = 0; at < len; at += 8) {
        uint64_t w = word(id, at / 8);

        memcpy(p + at, &w, len - at < 8 ? len - at : 8);
    }
}

size_t pvn_bytes_check(const void *got, size_t len, uint64_t id, size_t *first)
{
    const unsigned char *p = got;
    size_t wrong = 0;

    for (size_t at = 0; at < len; at += 8) {
        size_t n = len - at < 8 ? len - at : 8;
        uint64_t w = word(id, at / 8);
        unsigned char want[8];

        if (memcmp(p + at, &w, n) == 0)
            continue;
        memcpy(want, &w, 8);
        for (size_t k = 0; k < n; k++) {
            if (p[at + k] != want[k] && wrong++ == 0)
                *first = at + k;
        }
    }
    return wrong;
}

size_t pvn_bytes_not(const void *got, size_t len, unsigned char value)
{
    const unsigned char *p = got;
    size_t wrong = 0;

    for (size_t i = 0; i < len; i++)
        wrong += p[i] != value;
    return wrong;
}
