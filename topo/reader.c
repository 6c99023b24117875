/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers of a machine: texts and numbers of files, notes, arrays. */
#include "topo/reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pvn_topo_copy_text(char *out, size_t cap, const char *text)
{
    size_t n = strnlen(text, cap - 1);

    memcpy(out, text, n);
    out[n] = '\0';
}

void pvn_topo_clean_text(char *text)
{
    size_t n = strlen(text);

    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ' || text[n - 1] == '\t' ||
                     text[n - 1] == '\r'))
        text[--n] = '\0';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
            text[i] = '?';
}

void pvn_topo_leave_note(struct pvn_topo_reader *r, const char *where, const char *format, ...)
{
    struct pvn_topo *t = r->topo;
    struct pvn_topo_note *note;
    va_list args;

    if (t->nnotes >= PVN_TOPO_MAX_NOTES) {
        t->notes_dropped++;
        return;
    }
    note = pvn_topo_array_add((void **)&t->notes, &t->nnotes, sizeof(*note));
    if (!note) {
        t->notes_dropped++;
        return;
    }
    pvn_topo_copy_text(note->where, sizeof(note->where), where);
    va_start(args, format);
    vsnprintf(note->text, sizeof(note->text), format, args);
    va_end(args);
    pvn_topo_clean_text(note->where);
    pvn_topo_clean_text(note->text);
}

void pvn_topo_leave_unread(struct pvn_topo_reader *r, enum pvn_topo_unread list, const char *where,
                           int rc, const char *lost)
{
    if ((r->flags & PVN_TOPO_PARTIAL) != 0)
        return;
    r->topo->unread |= list;
    pvn_topo_leave_note(r, where, "cannot be listed (%s): %s", strerror(-rc), lost);
}

int pvn_topo_reader_nomem(struct pvn_topo_reader *r)
{
    snprintf(r->err->text, sizeof(r->err->text), "out of memory");
    return -ENOMEM;
}

int pvn_topo_reader_too_many(struct pvn_topo_reader *r, const char *what, int limit)
{
    snprintf(r->err->text, sizeof(r->err->text),
             "more than %d %s: this is no description of one machine", limit, what);
    return -E2BIG;
}

void *pvn_topo_array_add(void **array, int *n, size_t size)
{
    char *element;

    /* The array grows at every power of two, so no capacity is stored beside it. */
    if ((*n & (*n - 1)) == 0) {
        size_t cap = *n == 0 ? 1 : 2 * (size_t)*n;
        void *bigger = realloc(*array, cap * size);

        if (!bigger)
            return NULL;
        *array = bigger;
    }
    element = (char *)*array + (size_t)*n * size;
    memset(element, 0, size);
    (*n)++;
    return element;
}

bool pvn_topo_read_text(struct pvn_topo_reader *r, const char *dir, const char *name, char *out,
                        size_t cap)
{
    ssize_t got = pvn_topo_fs_read_at(r->fs, dir, name, out, cap - 1);

    out[got > 0 ? got : 0] = '\0';
    if (got < 0)
        return false;
    for (ssize_t i = 0; i < got; i++)
        if (out[i] == '\0')
            out[i] = i == got - 1 ? '\n' : '?';
    pvn_topo_clean_text(out);
    return true;
}

bool pvn_topo_parse_int(const char *text, int base, long min, long max, int *value)
{
    char *end;
    long v;

    if (text[0] == '\0' || text[0] == ' ' || text[0] == '+')
        return false;
    errno = 0;
    v = strtol(text, &end, base);
    if (errno != 0 || *end != '\0' || v < min || v > max)
        return false;
    *value = (int)v;
    return true;
}

int pvn_topo_read_int(struct pvn_topo_reader *r, const char *dir, const char *name, int base,
                      int min, int max)
{
    char text[64];
    int value;

    /* Captures have an empty file if the kernel refused the read (the speed of a link that is
     * down). */
    if (!pvn_topo_read_text(r, dir, name, text, sizeof(text)) || text[0] == '\0')
        return PVN_TOPO_UNKNOWN;
    if (!pvn_topo_parse_int(text, base, min, max, &value)) {
        char where[PVN_TOPO_FS_PATH_MAX];

        snprintf(where, sizeof(where), "%.150s/%s", dir, name);
        pvn_topo_leave_note(r, where, "\"%s\" is no number from %d to %d; taken as unknown", text,
                            min, max);
        return PVN_TOPO_UNKNOWN;
    }
    return value;
}

bool pvn_topo_read_link_name(struct pvn_topo_reader *r, const char *dir, const char *name,
                             char *out, size_t cap)
{
    char link[PVN_TOPO_FS_PATH_MAX];
    const char *last;

    out[0] = '\0';
    if (pvn_topo_fs_readlink_at(r->fs, dir, name, link, sizeof(link)) < 0)
        return false;
    last = strrchr(link, '/');
    last = !last ? link : last + 1;
    pvn_topo_copy_text(out, cap, last);
    pvn_topo_clean_text(out);
    return out[0] != '\0';
}

bool pvn_topo_real_below(struct pvn_topo_reader *r, const char *dir, const char *name, char *out)
{
    char path[PVN_TOPO_FS_PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
        pvn_topo_fs_resolve(r->fs, path, out) == 0 &&
        pvn_topo_fs_type(r->fs, out) == PVN_TOPO_FS_DIR)
        return true;
    out[0] = '\0';
    return false;
}
