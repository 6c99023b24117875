/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory, kept while somebody uses it.
 *
 * NCCL registers the same buffers again and again, and parts of buffers that are registered
 * already; a registration costs a system call per device, locked pages and an entry of the device's
 * table. So a request inside a region of the same kind takes a reference to it, and the
 * last reference takes the region away at once: memory that nobody has registered may be freed by
 * its owner at any time.
 *
 * A region is offered only while a reference covers all of its pages. When the last one that does is given
 * back, the owner may give pages back to the system, which maps others at the same addresses, while the
 * device still has the old ones: the region stays for those who have it, for their part is as it was, and
 * the next request registers what is there then.
 *
 * A region is registered with several devices together: with all that were requested, or with none.
 *
 * Any thread. One lock, which is held during the callbacks: two requests for the same memory must
 * not register it twice.
 */
#ifndef PVN_MEMORY_MEMCACHE_H
#define PVN_MEMORY_MEMCACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { PVN_MEMCACHE_DEVS = 32 }; /* devices of one cache: bits of a mask */

/* Regions serve only requests of their own kind. */
struct pvn_mem_kind {
    int ptr_type;       /* NCCL_PTR_... */
    unsigned access;    /* as passed to the callback */
    uint64_t buffer_id; /* distinguishes allocations that follow each other at one address
                           (CU_POINTER_ATTRIBUTE_BUFFER_ID); 0: host */
};

struct pvn_mem {
    uintptr_t addr; /* of the region, which contains the requested range */
    size_t len;     /* bytes */
    struct pvn_mem_kind kind;
    void *
        handle[PVN_MEMCACHE_DEVS]; /* what reg gave; NULL for devices that were not requested yet */
};

struct pvn_memcache_ops {
    /* Registers [addr, addr + len) with device dev. extra is the caller's of pvn_memcache_get. 0
     * and a handle that is not NULL, or a negative errno with *err. */
    int (*reg)(void *arg, int dev, uintptr_t addr, size_t len, const struct pvn_mem_kind *kind,
               const void *extra, void **handle, struct pvn_err *err);
    void (*dereg)(void *arg, int dev, void *handle);
};

struct pvn_memcache_stats {
    uint64_t hits, misses;  /* requests that met a region / that made one */
    uint64_t regions, refs; /* now */
    uint64_t bytes;         /* now, of all regions; overlapping ones count each */
    uint64_t steps;         /* tree nodes that lookups have visited */
};

struct pvn_memcache;

/* page: regions are widened to multiples of it (a power of two), so that neighbours in one page
 * share; 1: taken as they are, for kinds whose registration is tied to an exact range. NULL: no
 * memory. */
struct pvn_memcache *pvn_memcache_new(const struct pvn_memcache_ops *ops, void *arg, size_t page);

/* Takes away what is left and returns how many regions that were, which ought to be 0. */
size_t pvn_memcache_free(struct pvn_memcache *c);

/*
 * A region that contains [addr, addr + len) and is registered with every device of the mask. 0 and
 * *out, or a negative errno with *err: -EINVAL for an empty range, one that passes the end of the
 * address space, or no device; -ENOMEM; or what reg answered, and then nothing of this call is left
 * registered.
 */
int pvn_memcache_get(struct pvn_memcache *c, uintptr_t addr, size_t len,
                     const struct pvn_mem_kind *kind, uint32_t devs, const void *extra,
                     struct pvn_mem **out, struct pvn_err *err);

/* Gives the reference back that was got with this range. */
void pvn_memcache_put(struct pvn_memcache *c, struct pvn_mem *mem, uintptr_t addr, size_t len);

void pvn_memcache_get_stats(struct pvn_memcache *c, struct pvn_memcache_stats *out);

#endif
