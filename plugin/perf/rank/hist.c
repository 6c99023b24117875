/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Values below PVN_HIST_LINEAR have a bucket each. Above, the highest bit of a value gives the
 * power of two, and the PVN_HIST_BITS bits below it the bucket within.
 */
#include "config.h"

#include "perf/rank/hist.h"

#include <string.h>

void pvn_hist_clear(struct pvn_hist *h)
{
    memset(h, 0, sizeof(*h));
}

unsigned pvn_hist_index(uint64_t ns)
{
    unsigned top, octave;

    if (ns < PVN_HIST_LINEAR)
        return (unsigned)ns;
    top = 63 - (unsigned)__builtin_clzll(ns);
    octave = top - PVN_HIST_BITS; /* 1 for the first above the linear part */
    return (octave << PVN_HIST_BITS) + (unsigned)(ns >> octave);
}

void pvn_hist_range(unsigned i, uint64_t *low, uint64_t *high)
{
    unsigned octave, in;

    if (i < PVN_HIST_LINEAR) {
        *low = *high = i;
        return;
    }
    octave = (i >> PVN_HIST_BITS) - 1;
    in = i - (octave << PVN_HIST_BITS);
    *low = (uint64_t)in << octave;
    *high = *low + (UINT64_C(1) << octave) - 1;
}

void pvn_hist_add(struct pvn_hist *h, uint64_t ns)
{
    if (h->count == 0 || ns < h->min)
        h->min = ns;
    if (ns > h->max)
        h->max = ns;
    h->count++;
    if (ns > PVN_HIST_MAX)
        h->over++;
    else
        h->bucket[pvn_hist_index(ns)]++;
}

void pvn_hist_merge(struct pvn_hist *h, const struct pvn_hist *from)
{
    if (from->count && (h->count == 0 || from->min < h->min))
        h->min = from->min;
    if (from->max > h->max)
        h->max = from->max;
    h->count += from->count;
    h->over += from->over;
    for (unsigned i = 0; i < PVN_HIST_BUCKETS; i++)
        h->bucket[i] += from->bucket[i];
}

double pvn_hist_percentile(const struct pvn_hist *h, double q)
{
    double wanted = q * (double)h->count;
    uint64_t rank, seen = 0;

    /* The smallest number of values that is at least this share: rounded up, and at least one. */
    rank = wanted > 1 ? (uint64_t)wanted : 1;
    if ((double)rank < wanted)
        rank++;
    if (rank >= h->count || h->count == 0)
        return (double)h->max;
    for (unsigned i = 0; i < PVN_HIST_BUCKETS; i++) {
        uint64_t low, high;
        double mid;

        seen += h->bucket[i];
        if (seen < rank)
            continue;
        pvn_hist_range(i, &low, &high);
        mid = ((double)low + (double)high) / 2;
        return mid < (double)h->min ? (double)h->min : mid > (double)h->max ? (double)h->max : mid;
    }
    return (double)h->max;
}
