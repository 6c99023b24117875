/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the list of what was read. */
#include <stdlib.h>

#include "topo/tool/stat.h"

struct pvn_stats *stat_list_next(struct stat_list *list)
{
    if (list->n == list->cap) {
        int cap = list->cap ? 2 * list->cap : 16;
        struct pvn_stats *more = realloc(list->file, (size_t)cap * sizeof(*more));
        if (!more) {
            tool_error("out of memory for %d files", cap);
            return NULL;
        }
        list->file = more;
        list->cap = cap;
    }
    return &list->file[list->n];
}
