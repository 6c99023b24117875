/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Distribution of times in constant memory: a histogram with buckets that are linear within each
 * power of two. A value read from it, for example a percentile, differs from the measured one by at
 * most the fraction PVN_HIST_ERROR, from 1 ns to PVN_HIST_MAX. The smallest and the largest
 * value are exact. Histograms can be merged without further loss.
 */
#ifndef PVN_PERF_HIST_H
#define PVN_PERF_HIST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_HIST_BITS    7  /* buckets of a power of two: 2^7 */
#define PVN_HIST_OCTAVES 32 /* powers of two above the part with a bucket per nanosecond */
#define PVN_HIST_LINEAR  (2u << PVN_HIST_BITS)
#define PVN_HIST_BUCKETS (PVN_HIST_LINEAR + (PVN_HIST_OCTAVES << PVN_HIST_BITS))
#define PVN_HIST_MAX     ((UINT64_C(1) << (PVN_HIST_BITS + 1 + PVN_HIST_OCTAVES)) - 1) /* ns: 18 min */
#define PVN_HIST_ERROR   (1.0 / (2 << PVN_HIST_BITS)) /* half a bucket: 0.4 % */

struct pvn_hist {
    uint64_t count;    /* number of values */
    uint64_t over;     /* values above PVN_HIST_MAX, which are in no bucket */
    uint64_t min, max; /* ns; 0 if there is no value */
    uint64_t bucket[PVN_HIST_BUCKETS];
};

void pvn_hist_clear(struct pvn_hist *h);
void pvn_hist_add(struct pvn_hist *h, uint64_t ns);
/* Adds all values of `from`. */
void pvn_hist_merge(struct pvn_hist *h, const struct pvn_hist *from);

/*
 * The value in ns that the share `q` (0 to 1) of all values does not exceed, as the middle of its
 * bucket. 0 if there is no value. The largest value if q is 1, or if the percentile is above
 * PVN_HIST_MAX.
 */
double pvn_hist_percentile(const struct pvn_hist *h, double q);

/* Bucket i holds the values from *low to *high, both included. */
void pvn_hist_range(unsigned i, uint64_t *low, uint64_t *high);
/* The bucket of a value up to PVN_HIST_MAX. */
unsigned pvn_hist_index(uint64_t ns);

#ifdef __cplusplus
}
#endif

#endif
