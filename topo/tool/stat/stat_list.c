/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the list of files that were read. */
#include <stdlib.h>
#include <string.h>

#include "topo/tool/stat/stat.h"

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

/* The name of a file, which holds pid and start of its process, so that it is unique on a host. Its
 * directory may have another name in another container. */
static const char *base(const struct pvn_stats *f)
{
    const char *slash = strrchr(f->path, '/');
    return slash ? slash + 1 : f->path;
}

static uint32_t hash(const struct pvn_stats *f)
{
    uint32_t h = 2166136261u;
    for (const char *s = f->head.id.host; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    for (const char *s = base(f); *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static bool same(const struct pvn_stats *a, const struct pvn_stats *b)
{
    return strcmp(a->head.id.host, b->head.id.host) == 0 && strcmp(base(a), base(b)) == 0 &&
           !stat_are_apart(a, b);
}

/* The entry of f in the table, or the free entry for it. */
static int *place(const struct stat_list *list, const struct pvn_stats *f)
{
    uint32_t i = hash(f) % (uint32_t)list->slots;
    while (list->slot[i] >= 0 && !same(&list->file[list->slot[i]], f))
        i = (i + 1) % (uint32_t)list->slots;
    return &list->slot[i];
}

int stat_list_find(struct stat_list *list, const struct pvn_stats *f)
{
    if (2 * list->n >= list->slots) {
        int slots = 4 * list->n + 256;
        int *more = realloc(list->slot, (size_t)slots * sizeof(*more));
        if (!more)
            return -1;
        memset(more, -1, (size_t)slots * sizeof(*more));
        list->slot = more;
        list->slots = slots;
        list->in_slots = 0;
    }
    for (; list->in_slots < list->n; list->in_slots++)
        *place(list, &list->file[list->in_slots]) = list->in_slots;
    return *place(list, f);
}

void stat_list_free(struct stat_list *list)
{
    for (int i = 0; i < list->n; i++)
        pvn_stats_free(&list->file[i]);
    free(list->file);
    free(list->slot);
    memset(list, 0, sizeof(*list));
}
