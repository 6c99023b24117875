/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of a lookup in the registration cache by the number of regions. It prints a
 * table and asserts nothing. usage: memcache [LOOKUPS], 1000000 by default */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "memory/memcache.h"

static int reg(void *arg, int dev, uintptr_t addr, size_t len, const struct pvn_mem_kind *kind,
               const void *extra, void **handle, struct pvn_err *err)
{
    *handle = arg;
    return 0;
}

static void dereg(void *arg, int dev, void *handle)
{
}

static int measure(size_t regions, size_t lookups)
{
    static const struct pvn_memcache_ops ops = {reg, dereg};
    const struct pvn_mem_kind host = {1, 7, 0};
    const uintptr_t base = 0x100000000, stride = 65536;
    struct pvn_mem *m;
    struct pvn_memcache_stats before, after;
    struct pvn_err err;
    unsigned x = 1;
    struct pvn_memcache *c = pvn_memcache_new(&ops, &err, 4096);
    if (!c)
        return 1;
    double start = pvn_now_s();
    for (size_t i = 0; i < regions; i++) /* each reaches into the next */
        if (pvn_memcache_get(c, base + i * stride, 100000, &host, 1, NULL, &m, &err))
            return 1;
    double filled_ns = (pvn_now_s() - start) * 1e9 / (double)regions;
    pvn_memcache_get_stats(c, &before);
    start = pvn_now_s();
    for (size_t i = 0; i < lookups; i++) {
        x = x * 1664525 + 1013904223;
        uintptr_t at = base + (x >> 8) % regions * stride + 4096;
        if (pvn_memcache_get(c, at, 512, &host, 1, NULL, &m, &err))
            return 1;
        pvn_memcache_put(c, m, at, 512);
    }
    double found_ns = (pvn_now_s() - start) * 1e9 / (double)lookups;
    pvn_memcache_get_stats(c, &after);
    printf("%8zu %12.0f %12.0f %12.1f\n", regions, filled_ns, found_ns,
           (double)(after.steps - before.steps) / (double)lookups);
    pvn_memcache_free(c);
    return 0;
}

int main(int argc, char **argv)
{
    size_t lookups = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    printf("%8s %12s %12s %12s\n", "regions", "insert ns", "get+put ns", "nodes seen");
    for (size_t n = 10; n <= 100000; n *= 10)
        if (measure(n, lookups))
            return 1;
    return 0;
}
