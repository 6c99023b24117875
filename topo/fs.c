/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Links, whole files and names on top of a store. */
#include "topo/fs.h"
#include "topo/pvn_topo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void pvn_topo_fs_close(struct pvn_topo_fs *fs)
{
    if (!fs)
        return;
    for (int i = 0; i < PVN_TOPO_FS_KNOWN; i++)
        free(fs->known[i]);
    fs->ops->close(fs);
}

void pvn_topo_fs_enter(struct pvn_topo_fs *fs, const char *dir)
{
    if (fs->ops->enter)
        fs->ops->enter(fs, dir);
}

static char **known_slot(struct pvn_topo_fs *fs, const char *path)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    while (*path != '\0')
        hash = (hash ^ (unsigned char)*path++) * 16777619u;
    return &fs->known[hash % PVN_TOPO_FS_KNOWN];
}

static bool is_known(struct pvn_topo_fs *fs, const char *path)
{
    const char *known = *known_slot(fs, path);

    return known && strcmp(known, path) == 0;
}

static void set_known(struct pvn_topo_fs *fs, const char *path)
{
    char **slot = known_slot(fs, path);
    char *copy = strdup(path);

    if (copy) {
        free(*slot);
        *slot = copy;
    }
}

/* The unresolved part of a path. It is kept at the end of its buffer, so that the text of a link
 * can be put before it. */
struct rest {
    char buf[2 * PVN_TOPO_FS_PATH_MAX];
    size_t start;
};

static int rest_push(struct rest *rest, const char *text, size_t len)
{
    if (len + 1 > rest->start || sizeof(rest->buf) - rest->start + len + 1 > PVN_TOPO_FS_PATH_MAX)
        return -ENAMETOOLONG;
    rest->start -= len + 1;
    memcpy(rest->buf + rest->start, text, len);
    rest->buf[rest->start + len] = '/';
    return 0;
}

/* Takes the next component; NULL at the end. */
static const char *rest_pop(struct rest *rest, size_t *len)
{
    const char *end = rest->buf + sizeof(rest->buf);
    const char *at = rest->buf + rest->start;
    const char *slash;

    while (at < end && *at == '/')
        at++;
    if (at == end) {
        rest->start = sizeof(rest->buf);
        return NULL;
    }
    slash = memchr(at, '/', (size_t)(end - at));
    *len = (size_t)(slash - at);
    rest->start = (size_t)(slash - rest->buf);
    return at;
}

static void drop_component(char *out, size_t *used)
{
    while (*used > 0 && out[*used - 1] != '/')
        (*used)--;
    if (*used > 0)
        (*used)--;
    out[*used] = '\0';
}

int pvn_topo_fs_resolve(struct pvn_topo_fs *fs, const char *path, char *out)
{
    struct rest rest = {.start = sizeof(rest.buf)};
    char link[PVN_TOPO_FS_PATH_MAX];
    size_t used = 0, len;
    const char *part;
    int links = 0, rc;

    rc = rest_push(&rest, path, strlen(path));
    if (rc != 0)
        return rc;
    out[0] = '\0';
    while ((part = rest_pop(&rest, &len))) {
        size_t before = used;
        ssize_t got;

        if (len == 1 && part[0] == '.')
            continue;
        if (len == 2 && part[0] == '.' && part[1] == '.') {
            drop_component(out, &used);
            continue;
        }
        if (used + len + 2 > PVN_TOPO_FS_PATH_MAX)
            return -ENAMETOOLONG;
        out[used++] = '/';
        memcpy(out + used, part, len);
        used += len;
        out[used] = '\0';
        if (is_known(fs, out))
            continue;
        got = fs->ops->readlink(fs, out, link, sizeof(link));
        if (got == -EINVAL) {
            if (rest.start < sizeof(rest.buf))
                set_known(fs, out); /* something below it is looked up */
            continue;
        }
        if (got < 0)
            return (int)got;
        if (++links > PVN_TOPO_FS_MAX_LINKS)
            return -ELOOP;
        if (got == 0)
            return -ENOENT;
        used = link[0] == '/' ? 0 : before;
        out[used] = '\0';
        rc = rest_push(&rest, link, (size_t)got);
        if (rc != 0)
            return rc;
    }
    if (used == 0)
        strcpy(out, "/");
    return 0;
}

ssize_t pvn_topo_fs_read(struct pvn_topo_fs *fs, const char *path, void *buf, size_t cap)
{
    char real[PVN_TOPO_FS_PATH_MAX];
    int rc = pvn_topo_fs_resolve(fs, path, real);

    return rc != 0 ? rc : fs->ops->read(fs, real, 0, buf, cap);
}

int pvn_topo_fs_list(struct pvn_topo_fs *fs, const char *path, struct pvn_topo_fs_names *names)
{
    char real[PVN_TOPO_FS_PATH_MAX];
    int rc = pvn_topo_fs_resolve(fs, path, real);

    *names = (struct pvn_topo_fs_names){0};
    if (rc == 0)
        rc = fs->ops->list(fs, real, names);
    if (rc != 0) {
        pvn_topo_fs_names_free(names);
        return rc;
    }
    pvn_topo_fs_names_sort(names);
    return 0;
}

enum pvn_topo_fs_type pvn_topo_fs_type(struct pvn_topo_fs *fs, const char *path)
{
    char real[PVN_TOPO_FS_PATH_MAX];

    return pvn_topo_fs_resolve(fs, path, real) == 0 ? fs->ops->type(fs, real) : PVN_TOPO_FS_NONE;
}

static int join(char *out, const char *dir, const char *name)
{
    int n = snprintf(out, PVN_TOPO_FS_PATH_MAX, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);

    return n < PVN_TOPO_FS_PATH_MAX ? 0 : -ENAMETOOLONG;
}

ssize_t pvn_topo_fs_pread_at(struct pvn_topo_fs *fs, const char *dir, const char *name, size_t at,
                             void *buf, size_t cap)
{
    char path[PVN_TOPO_FS_PATH_MAX];
    int rc = join(path, dir, name);

    return rc != 0 ? rc : fs->ops->read(fs, path, at, buf, cap);
}

ssize_t pvn_topo_fs_read_at(struct pvn_topo_fs *fs, const char *dir, const char *name, void *buf,
                            size_t cap)
{
    return pvn_topo_fs_pread_at(fs, dir, name, 0, buf, cap);
}

ssize_t pvn_topo_fs_readlink_at(struct pvn_topo_fs *fs, const char *dir, const char *name,
                                char *buf, size_t cap)
{
    char path[PVN_TOPO_FS_PATH_MAX];
    int rc = join(path, dir, name);
    ssize_t got;

    if (rc != 0)
        return rc;
    got = fs->ops->readlink(fs, path, buf, cap);
    if (got < 0)
        return got;
    if ((size_t)got >= cap)
        return -ENAMETOOLONG;
    buf[got] = '\0';
    return got;
}

int pvn_topo_fs_read_all(struct pvn_topo_fs *fs, const char *path, size_t max, char **text,
                         size_t *len)
{
    size_t cap = 4096;
    char *buf = NULL;

    for (;;) {
        char *bigger = realloc(buf, cap + 1);
        ssize_t got;

        if (!bigger) {
            free(buf);
            return -ENOMEM;
        }
        buf = bigger;
        got = pvn_topo_fs_read(fs, path, buf, cap);
        if (got < 0) {
            free(buf);
            return (int)got;
        }
        if ((size_t)got < cap) {
            buf[got] = '\0';
            *text = buf;
            *len = (size_t)got;
            return 0;
        }
        if (cap >= max) {
            free(buf);
            return -EFBIG;
        }
        cap *= 4;
    }
}

void pvn_topo_fs_names_free(struct pvn_topo_fs_names *names)
{
    for (int i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
    *names = (struct pvn_topo_fs_names){0};
}

int pvn_topo_fs_names_add(struct pvn_topo_fs_names *names, const char *name)
{
    if (names->n >= PVN_TOPO_FS_MAX_NAMES)
        return -E2BIG;
    if ((names->n & (names->n - 1)) == 0) {
        size_t cap = names->n == 0 ? 1 : 2 * (size_t)names->n;
        char **bigger = realloc(names->name, cap * sizeof(*bigger));

        if (!bigger)
            return -ENOMEM;
        names->name = bigger;
    }
    names->name[names->n] = strdup(name);
    if (!names->name[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void pvn_topo_fs_names_sort(struct pvn_topo_fs_names *names)
{
    if (names->n > 1)
        qsort(names->name, (size_t)names->n, sizeof(*names->name), by_name);
}
