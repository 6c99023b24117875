/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of registered memory regions with reference counts.
 *
 * NCCL registers the same buffers again and again, and parts of buffers that are registered already. A
 * registration costs a system call per device, pinned pages and an entry in the device's table. So a request
 * that lies inside a region of the same kind takes a reference to that region. The region is deregistered with
 * its last reference at once, because the owner may then free the memory at any time.
 *
 * A region serves new requests only while one of its references covers all of its pages. After that reference
 * is dropped, the owner may return pages outside of the other references to the system. The system may then map
 * other pages at these addresses, while the device still uses the old ones. So the region is retired: it stays
 * for its remaining references, whose pages are unchanged, and the next request registers a new region.
 *
 * A region is registered with all requested devices, or with none.
 *
 * All functions may be called from any thread. One lock is held during the callbacks, because two requests for
 * the same memory must not register it twice.
 */
#ifndef PVN_MEMORY_MEMCACHE_H
#define PVN_MEMORY_MEMCACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { PVN_MEMCACHE_DEVS = 32 }; /* devices of one cache: bits of a mask */

/* A region serves only requests of the same kind. */
struct pvn_mem_kind {
    int ptr_type;    /* NCCL_PTR_... */
    unsigned access; /* access rights, for the callback */
    /* Distinguishes allocations that follow each other at one address (CU_POINTER_ATTRIBUTE_BUFFER_ID);
     * 0: host memory. */
    uint64_t buffer_id;
};

/* A region, which contains the requested range. */
struct pvn_mem {
    uintptr_t addr;
    size_t len; /* bytes */
    struct pvn_mem_kind kind;
    void *handle[PVN_MEMCACHE_DEVS]; /* of reg, per device; NULL: not requested yet */
};

struct pvn_memcache_ops {
    /* Registers [addr, addr + len) with device dev. extra is an argument of pvn_memcache_get. Returns 0 and a
     * handle that is not NULL, or a negative errno with *err. */
    int (*reg)(void *arg, int dev, uintptr_t addr, size_t len, const struct pvn_mem_kind *kind,
               const void *extra, void **handle, struct pvn_err *err);
    void (*dereg)(void *arg, int dev, void *handle);
};

struct pvn_memcache_stats {
    uint64_t hits;          /* requests that found a region */
    uint64_t regions, refs; /* current numbers */
    uint64_t bytes;         /* current sum over all regions, overlaps counted for each */
    uint64_t steps;         /* total of tree nodes visited by lookups */
};

struct pvn_memcache;

/* page: regions are widened to multiples of this power of two, so that buffers in one page share a region. With 1
 * regions are not widened, for kinds whose registration needs an exact range. Returns NULL if memory is short. */
struct pvn_memcache *pvn_memcache_new(const struct pvn_memcache_ops *ops, void *arg, size_t page);

/* Deregisters the remaining regions and returns their number, which should be 0. */
size_t pvn_memcache_free(struct pvn_memcache *c);

/*
 * Takes a reference to a region that contains [addr, addr + len) and is registered with every device of the mask
 * `devs`; registers it if necessary. Returns 0 and *out, or a negative errno with *err: -EINVAL for an empty
 * range, a range past the end of the address space or an empty mask; -ENOMEM; or the error of reg, after which no
 * registration of this call is left.
 */
int pvn_memcache_get(struct pvn_memcache *c, uintptr_t addr, size_t len,
                     const struct pvn_mem_kind *kind, uint32_t devs, const void *extra,
                     struct pvn_mem **out, struct pvn_err *err);

/* Drops a reference that was taken with this range. */
void pvn_memcache_put(struct pvn_memcache *c, struct pvn_mem *mem, uintptr_t addr, size_t len);

void pvn_memcache_get_stats(struct pvn_memcache *c, struct pvn_memcache_stats *out);

#endif
