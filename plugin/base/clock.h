/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time. */
#ifndef PVN_BASE_CLOCK_H
#define PVN_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define PVN_NS_PER_US UINT64_C(1000)
#define PVN_NS_PER_MS UINT64_C(1000000)
#define PVN_NS_PER_S  UINT64_C(1000000000)

/* Nanoseconds since a fixed point (CLOCK_MONOTONIC); never 0, never goes back. May be called from any thread. */
static inline uint64_t pvn_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * PVN_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* pvn_now_ns in seconds, for tools and tests. */
static inline double pvn_now_s(void)
{
    return (double)pvn_now_ns() / (double)PVN_NS_PER_S;
}

/* Returns the start of a time limit, moved forward by ns that do not count. The result is never later than `now`, because
 * now - result is unsigned and would become huge. */
static inline uint64_t pvn_not_counted_ns(uint64_t since, uint64_t ns, uint64_t now)
{
    return since + ns < now ? since + ns : now;
}

#endif
