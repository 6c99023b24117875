/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Orders for qsort. */
#ifndef PVN_PERF_ORDER_H
#define PVN_PERF_ORDER_H

/* double, ascending */
static inline int pvn_by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

#endif
