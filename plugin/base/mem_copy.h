/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Memory that the processor does not reach, and how its bytes are copied (memory/gpucopy.h). Where
 * there is a pointer to one of these, NULL means ordinary memory. */
#ifndef PVN_BASE_MEM_COPY_H
#define PVN_BASE_MEM_COPY_H

#include <stddef.h>

#include "base/err.h"

struct pvn_mem_copy {
    /* Host memory for n bytes, from and to which copies are fast; NULL: there is none. Given back
     * to the same one. From any thread; do not block. */
    void *(*take)(const struct pvn_mem_copy *c, size_t n);
    void (*give)(const struct pvn_mem_copy *c, void *host);
    /* 0 when the bytes are there, or a negative errno with *err. From any thread; may block for as
     * long as the copy takes. */
    int (*to_host)(const struct pvn_mem_copy *c, void *host, const void *mem, size_t n,
                   struct pvn_err *err);
    int (*from_host)(const struct pvn_mem_copy *c, void *mem, const void *host, size_t n,
                     struct pvn_err *err);
};

#endif
