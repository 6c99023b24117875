/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/workload/values.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Elements processed at once. A constant trip count lets -O2 use vector instructions. */
#define BLOCK       16
#define BLOCK_BYTES (BLOCK * sizeof(float))

size_t pvn_type_size(enum pvn_type type)
{
    return type == PVN_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
}

const char *pvn_type_name(enum pvn_type type)
{
    return type == PVN_FLOAT32 ? "float32" : "bfloat16";
}

/* ---- float32 ---- */

static uint32_t weight(int rank)
{
    return (uint32_t)(rank % 61) + 1;
}

static float element(uint64_t i, uint32_t scale, uint32_t ranks, uint32_t seed)
{
    uint32_t lo = (uint32_t)i, g = 1 + (((lo + seed * 0x9e3779b9u) * 0x85ebca6bu) >> 25);

    return (float)(int32_t)(g * scale + ranks * (lo & 15));
}

static uint32_t weight_sum(int nranks)
{
    uint32_t sum = 0;

    for (int r = 0; r < nranks; r++)
        sum += weight(r);
    return sum;
}

/* ---- bfloat16: the upper half of a float32 ---- */

static float widen(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Rounds to nearest, ties to even. */
static uint16_t narrow(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* A number 0..127: with a rank one that cancels out in the sum over all ranks, with -1 the
 * remainder of that sum. */
static int32_t mix(uint64_t i, int rank, uint32_t seed)
{
    uint32_t z = (uint32_t)i + seed * 0x9e3779b9u + (uint32_t)(rank + 1) * 0xc2b2ae35u;

    z *= 0x85ebca6bu;
    z = (z ^ (z >> 15)) * 0xc2b2ae35u;
    return (int32_t)(z >> 25);
}

static uint16_t element16(uint64_t i, const struct pvn_whose *w)
{
    int32_t v = 0;

    if (w->rank == PVN_SUM)
        return narrow((float)(mix(i, -1, w->seed) + 1));
    if (w->rank == 0)
        v = mix(i, -1, w->seed) + 1;
    v += mix(i, w->rank, w->seed) - mix(i, (w->rank + 1) % w->nranks, w->seed);
    return narrow((float)v);
}

/* ---- both ---- */

/* Fills up to BLOCK elements. The scale of a float32 is that of one rank, or the sum of all. */
static void fill_block(void *dst, uint64_t at, uint64_t n, const struct pvn_whose *w,
                       uint32_t scale, uint32_t ranks)
{
    if (w->type == PVN_FLOAT32) {
        float v[BLOCK];

        for (int k = 0; k < BLOCK; k++)
            v[k] = element(at + (uint64_t)k, scale, ranks, w->seed);
        memcpy(dst, v, n * sizeof(float));
    } else {
        uint16_t v[BLOCK];

        for (int k = 0; k < BLOCK; k++)
            v[k] = element16(at + (uint64_t)k, w);
        memcpy(dst, v, n * sizeof(uint16_t));
    }
}

static uint32_t scale_of(const struct pvn_whose *w)
{
    return w->rank == PVN_SUM ? weight_sum(w->nranks) : weight(w->rank);
}

static uint32_t ranks_of(const struct pvn_whose *w)
{
    return w->rank == PVN_SUM ? (uint32_t)w->nranks : 1;
}

void pvn_values_fill(void *dst, uint64_t at, uint64_t count, const struct pvn_whose *w)
{
    uint32_t scale = scale_of(w), ranks = ranks_of(w);
    size_t size = pvn_type_size(w->type);

    for (uint64_t i = 0; i < count; i += BLOCK)
        fill_block((char *)dst + i * size, at + i, count - i < BLOCK ? count - i : BLOCK, w, scale,
                   ranks);
}

double pvn_values_get(enum pvn_type type, const void *array, uint64_t i)
{
    if (type == PVN_FLOAT32) {
        float f;

        memcpy(&f, (const char *)array + i * sizeof(f), sizeof(f));
        return (double)f;
    }
    uint16_t v;

    memcpy(&v, (const char *)array + i * sizeof(v), sizeof(v));
    return (double)widen(v);
}

double pvn_values_expected(uint64_t i, const struct pvn_whose *w)
{
    char one[sizeof(float)];

    fill_block(one, i, 1, w, scale_of(w), ranks_of(w));
    return pvn_values_get(w->type, one, 0);
}

uint64_t pvn_values_check(const void *got, uint64_t at, uint64_t count, const struct pvn_whose *w,
                          uint64_t *first)
{
    uint32_t scale = scale_of(w), ranks = ranks_of(w);
    size_t size = pvn_type_size(w->type);
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i += BLOCK) {
        uint64_t n = count - i < BLOCK ? count - i : BLOCK;
        const char *have = (const char *)got + i * size;
        char want[BLOCK_BYTES];

        fill_block(want, at + i, n, w, scale, ranks);
        if (memcmp(want, have, n * size) == 0)
            continue;
        for (uint64_t k = 0; k < n; k++)
            if (memcmp(want + k * size, have + k * size, size) != 0 && wrong++ == 0)
                *first = i + k;
    }
    return wrong;
}

/* Writes sixteen bytes to memory, past the caches if processor and address allow it. */
static void write_around(void *to, const void *v)
{
#ifdef __SSE2__
    if ((uintptr_t)to % 16 == 0) {
        _mm_stream_si128(to, _mm_loadu_si128(v));
        return;
    }
#endif
    memcpy(to, v, 16);
}

/* Writes BLOCK_BYTES to dst and out, each of which may be NULL. */
static void write_block(char *dst, char *out, const void *v)
{
    if (dst)
        memcpy(dst, v, BLOCK_BYTES);
    for (size_t k = 0; out && k < BLOCK_BYTES; k += 16)
        write_around(out + k, (const char *)v + k);
}

static void write_rest(char *dst, char *out, const void *v, size_t len)
{
    if (dst)
        memcpy(dst, v, len);
    if (out)
        memcpy(out, v, len);
}

static void add_floats(char *dst, char *out, const float *a, const float *b, uint64_t count)
{
    uint64_t i = 0;

    for (; i + BLOCK <= count; i += BLOCK) {
        float sum[BLOCK];

        for (int k = 0; k < BLOCK; k++)
            sum[k] = a[i + (uint64_t)k] + b[i + (uint64_t)k];
        write_block(dst ? dst + i * sizeof(float) : NULL, out ? out + i * sizeof(float) : NULL,
                    sum);
    }
    for (; i < count; i++) {
        float sum = a[i] + b[i];

        write_rest(dst ? dst + i * sizeof(float) : NULL, out ? out + i * sizeof(float) : NULL, &sum,
                   sizeof(sum));
    }
}

static void add_bfloats(char *dst, char *out, const uint16_t *a, const uint16_t *b, uint64_t count)
{
    enum { N = BLOCK_BYTES / sizeof(uint16_t) };

    for (uint64_t i = 0; i < count; i += N) {
        uint64_t n = count - i < N ? count - i : N;
        uint16_t sum[N] = {0};
        char *d = dst ? dst + i * sizeof(uint16_t) : NULL,
             *o = out ? out + i * sizeof(uint16_t) : NULL;

        if (n < N) {
            for (uint64_t k = 0; k < n; k++)
                sum[k] = narrow(widen(a[i + k]) + widen(b[i + k]));
            write_rest(d, o, sum, n * sizeof(uint16_t));
            continue;
        }
        for (int k = 0; k < N; k++)
            sum[k] = narrow(widen(a[i + (uint64_t)k]) + widen(b[i + (uint64_t)k]));
        write_block(d, o, sum);
    }
}

void pvn_values_add(enum pvn_type type, void *dst, void *out, const void *a, const void *b,
                    uint64_t count)
{
    if (type == PVN_FLOAT32)
        add_floats(dst, out, a, b, count);
    else
        add_bfloats(dst, out, a, b, count);
}

void pvn_bytes_copy(void *dst, void *out, const void *src, size_t len)
{
    const char *from = src;
    char *d = dst, *o = out;
    size_t i = 0;

    if (!out) {
        memcpy(dst, src, len);
        return;
    }
    for (; i + BLOCK_BYTES <= len; i += BLOCK_BYTES) {
        char v[BLOCK_BYTES];

        memcpy(v, from + i, sizeof(v));
        write_block(d ? d + i : NULL, o + i, v);
    }
    write_rest(d ? d + i : NULL, o + i, from + i, len - i);
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
        for (size_t k = 0; k < n; k++)
            if (p[at + k] != want[k] && wrong++ == 0)
                *first = at + k;
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
