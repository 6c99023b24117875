/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/pages.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *pvn_pages_new(size_t *len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *mem = NULL;

    *len = (*len + page - 1) / page * page;
    if (posix_memalign(&mem, page, *len) != 0)
        return NULL;
    return memset(mem, 0, *len);
}
