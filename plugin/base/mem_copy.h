/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Copy functions for memory that the processor cannot access (memory/gpucopy.h). A NULL pointer to this struct means
 * ordinary memory. */
#ifndef PVN_BASE_MEM_COPY_H
#define PVN_BASE_MEM_COPY_H

#include <stddef.h>

#include "base/err.h"

struct pvn_mem_copy {
    /* take returns host memory of n bytes for fast copies, or NULL; give returns it to the same struct. Both may be
     * called from any thread and do not block. */
    void *(*take)(const struct pvn_mem_copy *c, size_t n);
    void (*give)(const struct pvn_mem_copy *c, void *host);
    /* Copy n bytes to or from host memory. They return when the copy is complete: 0, or a negative errno with *err.
     * They may be called from any thread and block during the copy. */
    int (*to_host)(const struct pvn_mem_copy *c, void *host, const void *mem, size_t n,
                   struct pvn_err *err);
    int (*from_host)(const struct pvn_mem_copy *c, void *mem, const void *host, size_t n,
                     struct pvn_err *err);
};

#endif
