/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/patterns/moe.h"

#include <string.h>

#define LEAST_WEIGHT 64 /* the least weight of an expert */
#define WEIGHTS      193
#define EMPTY_PAIRS  8 /* one pair in so many has no bytes */

/* splitmix64's finaliser over three numbers. */
static uint64_t hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t z = (a * 0x9e3779b97f4a7c15ull + b) * 0x9e3779b97f4a7c15ull + c + 1;

    z *= 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* The expert that the number `at` selects by weight, among all but `taken`; `at` is below the sum
 * of their weights. */
static int pick(const uint64_t *weight, uint64_t at, int taken)
{
    int e = 0;

    for (; e + 1 < PVN_MOE_EXPERTS; e++) {
        if (e == taken)
            continue;
        if (at < weight[e])
            break;
        at -= weight[e];
    }
    return e;
}

void pvn_moe_route(int layer, int src, int tokens, uint64_t count[PVN_MOE_EXPERTS])
{
    uint64_t weight[PVN_MOE_EXPERTS], sum = 0;

    for (int e = 0; e < PVN_MOE_EXPERTS; e++) {
        weight[e] = LEAST_WEIGHT + hash((uint64_t)layer, (uint64_t)e, 0) % WEIGHTS;
        sum += weight[e];
    }
    memset(count, 0, sizeof(*count) * PVN_MOE_EXPERTS);
    for (int t = 0; t < tokens; t++) {
        uint64_t random = hash((uint64_t)layer, (uint64_t)src, (uint64_t)t + 1);
        int first = pick(weight, (random >> 32) % sum, -1);
        int second = pick(weight, (random & 0xffffffff) % (sum - weight[first]), first);

        count[first]++;
        count[second]++;
    }
}

int pvn_moe_rank(int expert, int src, int nranks)
{
    int first = src / PVN_MOE_EXPERTS * PVN_MOE_EXPERTS, ranks = nranks - first;

    return first + expert % (ranks < PVN_MOE_EXPERTS ? ranks : PVN_MOE_EXPERTS);
}

void pvn_moe_bytes(int layer, int tokens, int combine, int nranks, uint64_t *bytes)
{
    uint64_t count[PVN_MOE_EXPERTS];

    memset(bytes, 0, sizeof(*bytes) * (size_t)nranks * (size_t)nranks);
    for (int src = 0; src < nranks; src++) {
        pvn_moe_route(layer, src, tokens, count);
        for (int e = 0; e < PVN_MOE_EXPERTS; e++) {
            int dst = pvn_moe_rank(e, src, nranks);
            int at = combine ? dst * nranks + src : src * nranks + dst;

            bytes[at] += count[e] * PVN_MOE_TOKEN_BYTES;
        }
    }
}

void pvn_uneven_bytes(uint64_t each, int nranks, uint64_t *bytes)
{
    for (int src = 0; src < nranks; src++) {
        uint64_t *row = &bytes[src * nranks], sum = 0, left = each;

        for (int dst = 0; dst < nranks; dst++) {
            uint64_t random = hash((uint64_t)nranks, (uint64_t)src, (uint64_t)dst);

            row[dst] = random % EMPTY_PAIRS ? 1 + (random >> 8) % 255 : 0;
            sum += row[dst];
        }
        for (int dst = 0; dst < nranks; dst++) {
            row[dst] = sum ? each * row[dst] / sum : 0;
            left -= row[dst];
        }
        row[src] += left;
    }
}
