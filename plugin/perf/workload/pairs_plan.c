/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/workload/pairs_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART_ALIGN      4096 /* bytes */
#define PER_PEER        2    /* channels of a pair in a small job */
#define OPS_PER_CHANNEL 4    /* with more of them a pair has fewer channels */

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Orders the distances as 0, 1, 3, 6, 10, ..., modulo the next power of two, without those that do
 * not exist. */
static void order_rounds(struct pvn_pairs_plan *p)
{
    unsigned span = 1, distance = 0;
    int n = 0;

    while (span < (unsigned)p->nodes)
        span *= 2;
    for (unsigned step = 1; step <= span; step++) {
        if (distance < (unsigned)p->nodes) {
            p->delta[n] = (int)distance;
            p->round[distance] = n++;
        }
        distance = (distance + step) % span;
    }
}

int pvn_pairs_plan_init(struct pvn_pairs_plan *p, int nranks, int rank, int group, int channels,
                        int per_peer, size_t slot)
{
    memset(p, 0, sizeof(*p));
    p->nodes = nranks / group;
    p->node = rank / group;
    p->group = group;
    p->channels = channels;
    p->slot = slot;
    p->per_peer = per_peer ? per_peer : channels < PER_PEER ? channels : PER_PEER;
    while (!per_peer && p->per_peer > 1 && p->per_peer * nranks > OPS_PER_CHANNEL * channels)
        p->per_peer /= 2;
    p->few = p->per_peer;
    while (p->few > 1 && p->few * nranks > channels)
        p->few /= 2;
    p->delta = calloc((size_t)p->nodes, sizeof(*p->delta));
    p->round = calloc((size_t)p->nodes, sizeof(*p->round));
    if (!p->delta || !p->round)
        return -ENOMEM;
    order_rounds(p);
    return 0;
}

void pvn_pairs_plan_free(struct pvn_pairs_plan *p)
{
    free(p->delta);
    free(p->round);
    p->delta = p->round = NULL;
}

int pvn_pairs_round(const struct pvn_pairs_plan *p, int node, int send)
{
    int distance = send ? node - p->node : p->node - node;

    return p->round[(distance + p->nodes) % p->nodes];
}

/* Consecutive rounds begin at distant channels, because the bits of their number are reversed. */
int pvn_pairs_channel(const struct pvn_pairs_plan *p, int round, int part)
{
    int base = 0;

    for (int bit = 1; bit < p->channels; bit *= 2) {
        base = base * 2 + round % 2;
        round /= 2;
    }
    return (base + part) % p->channels;
}

int pvn_pairs_batch(const struct pvn_pairs_plan *p, int round)
{
    return round * p->group / PVN_PAIRS_BATCH;
}

int pvn_pairs_parts(const struct pvn_pairs_plan *p, uint64_t bytes)
{
    uint64_t least = p->slot / 2 ? p->slot / 2 : 1, each;
    uint64_t n = ceil_div(bytes, least);

    if (n > (uint64_t)p->few)
        n = (uint64_t)p->few;
    if (n == 0)
        return 0;
    each = ceil_div(bytes, n);
    while (each > p->slot && 2 * n <= (uint64_t)p->per_peer) {
        n *= 2;
        each = ceil_div(bytes, n);
    }
    return (int)n;
}

void pvn_pairs_part(uint64_t bytes, int parts, int part, uint64_t *from, uint64_t *to)
{
    uint64_t each;

    *from = *to = 0;
    if (part >= parts)
        return;
    each = ceil_div(ceil_div(bytes, (uint64_t)parts), PART_ALIGN) * PART_ALIGN;
    *from = each * (uint64_t)part < bytes ? each * (uint64_t)part : bytes;
    *to = *from + each < bytes ? *from + each : bytes;
}

size_t pvn_pairs_message(const struct pvn_pairs_plan *p, uint64_t bytes)
{
    return bytes < p->slot ? p->slot / 4 : bytes < 8 * p->slot ? p->slot / 2 : p->slot;
}
