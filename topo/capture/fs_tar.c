/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A tar image in memory as the store: POSIX ustar with GNU long names ('L', 'K') and the path and
 * linkpath records of pax headers, as written by pvn_topo_gather, GNU tar and bsdtar. If all
 * entries share a leading directory (the name of a capture) other than sys, proc or etc, it is
 * dropped. */
#include "topo/capture/open.h"
#include "topo/pvn_topo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 512,
    MAX_ENTRIES = 1 << 20,
};

struct entry {
    char *path; /* starts with '/', no trailing slash */
    enum pvn_topo_fs_type type;
    const char *data; /* file content, or a link's text */
    size_t len;
    size_t order; /* the later of two entries with one name counts */
};

struct fs_tar {
    struct pvn_topo_fs fs;
    char *image;
    size_t bytes;
    struct entry *entries; /* sorted by path */
    size_t n, cap;
};

static int by_path(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = strcmp(x->path, y->path);

    if (c != 0)
        return c;
    return x->order < y->order ? -1 : 1;
}

static const struct entry *find_entry(struct pvn_topo_fs *fs, const char *path)
{
    const struct fs_tar *t = (struct fs_tar *)fs;
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = strcmp(t->entries[mid].path, path);

        if (c == 0)
            return &t->entries[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* First entry whose path is not before text. */
static size_t lower_bound(const struct fs_tar *t, const char *text)
{
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (strcmp(t->entries[mid].path, text) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* True for a directory without an entry of its own: "/a/b" implies "/a". */
static bool implied_dir(const struct fs_tar *t, const char *path, char *prefix)
{
    size_t at;
    int n = snprintf(prefix, PVN_TOPO_FS_PATH_MAX, "%s/", path[1] == '\0' ? "" : path);

    if (n >= PVN_TOPO_FS_PATH_MAX)
        return false;
    at = lower_bound(t, prefix);
    return at < t->n && strncmp(t->entries[at].path, prefix, (size_t)n) == 0;
}

static enum pvn_topo_fs_type tar_type(struct pvn_topo_fs *fs, const char *path)
{
    const struct entry *e = find_entry(fs, path);
    char prefix[PVN_TOPO_FS_PATH_MAX];

    if (e)
        return e->type;
    return path[1] == '\0' || implied_dir((struct fs_tar *)fs, path, prefix) ? PVN_TOPO_FS_DIR
                                                                             : PVN_TOPO_FS_NONE;
}

static ssize_t tar_readlink(struct pvn_topo_fs *fs, const char *path, char *buf, size_t cap)
{
    const struct entry *e = find_entry(fs, path);

    if (!e)
        return tar_type(fs, path) == PVN_TOPO_FS_DIR ? -EINVAL : -ENOENT;
    if (e->type != PVN_TOPO_FS_LINK)
        return -EINVAL;
    memcpy(buf, e->data, e->len < cap ? e->len : cap);
    return (ssize_t)(e->len < cap ? e->len : cap);
}

static ssize_t tar_read(struct pvn_topo_fs *fs, const char *path, size_t at, void *buf, size_t cap)
{
    const struct entry *e = find_entry(fs, path);
    size_t len;

    if (!e)
        return tar_type(fs, path) == PVN_TOPO_FS_DIR ? -EINVAL : -ENOENT;
    if (e->type != PVN_TOPO_FS_FILE)
        return -EINVAL;
    len = at < e->len ? e->len - at : 0;
    len = len < cap ? len : cap;
    memcpy(buf, e->data + (at < e->len ? at : 0), len);
    return (ssize_t)len;
}

static int tar_list(struct pvn_topo_fs *fs, const char *path, struct pvn_topo_fs_names *names)
{
    const struct fs_tar *t = (struct fs_tar *)fs;
    char prefix[PVN_TOPO_FS_PATH_MAX], name[PVN_TOPO_FS_PATH_MAX], last[PVN_TOPO_FS_PATH_MAX] = "";
    const struct entry *own = find_entry(fs, path);
    size_t len;

    if (own && own->type != PVN_TOPO_FS_DIR)
        return -ENOTDIR;
    if (!implied_dir(t, path, prefix))
        return own ? 0 : -ENOENT;
    len = strlen(prefix);
    /* "a-b" sorts between "a" and "a/c", so a directory with an entry of its own appears twice. The
     * second time, skip the entries below it. */
    for (size_t i = lower_bound(t, prefix);
         i < t->n && strncmp(t->entries[i].path, prefix, len) == 0; i++) {
        const char *rest = t->entries[i].path + len;
        size_t n = strcspn(rest, "/");
        int rc;

        memcpy(name, rest, n);
        name[n] = '\0';
        if (n == 0 || strcmp(name, last) == 0)
            continue;
        strcpy(last, name);
        if (rest[n] == '/') {
            char full[PVN_TOPO_FS_PATH_MAX];

            memcpy(full, t->entries[i].path, len + n);
            full[len + n] = '\0';
            if (find_entry(fs, full))
                continue;
        }
        rc = pvn_topo_fs_names_add(names, name);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void tar_close(struct pvn_topo_fs *fs)
{
    struct fs_tar *t = (struct fs_tar *)fs;

    for (size_t i = 0; i < t->n; i++)
        free(t->entries[i].path);
    free(t->entries);
    free(t->image);
    free(t);
}

/* Parses a number field, which is octal text. GNU's base-256 form (top bit set) is not needed below
 * 8 GiB. */
static bool parse_octal(const char *field, size_t n, uint64_t *value)
{
    uint64_t v = 0;
    size_t i = 0;

    while (i < n && field[i] == ' ')
        i++;
    if (i == n || field[i] == '\0') {
        *value = 0;
        return true;
    }
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++) {
        if (v >> 60 != 0)
            return false;
        v = v << 3 | (uint64_t)(field[i] - '0');
    }
    if (i < n && field[i] != ' ' && field[i] != '\0')
        return false;
    *value = v;
    return true;
}

static bool checksum_ok(const char *h)
{
    uint64_t want;
    unsigned sum = 0;

    for (int i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : (unsigned char)h[i];
    return parse_octal(h + 148, 8, &want) && want == sum;
}

/* Changes "./a//b/" to "/a/b". Refuses "..", which no archive of ours has. NULL if nothing is left
 * or memory is short; *rc distinguishes the two. */
static char *clean_path(const char *raw, size_t len, int *rc)
{
    char *out = malloc(len + 2);
    size_t used = 0, i = 0;

    *rc = 0;
    if (!out) {
        *rc = -ENOMEM;
        return NULL;
    }
    while (i < len) {
        size_t start;

        while (i < len && raw[i] == '/')
            i++;
        start = i;
        while (i < len && raw[i] != '/')
            i++;
        if (i == start || (i - start == 1 && raw[start] == '.'))
            continue;
        if (i - start == 2 && raw[start] == '.' && raw[start + 1] == '.') {
            *rc = -EINVAL;
            break;
        }
        out[used++] = '/';
        memcpy(out + used, raw + start, i - start);
        used += i - start;
    }
    out[used] = '\0';
    if (*rc == 0 && used >= PVN_TOPO_FS_PATH_MAX)
        *rc = -ENAMETOOLONG;
    if (*rc != 0 || used == 0) {
        free(out);
        return NULL;
    }
    return out;
}

static int add_entry(struct fs_tar *t, char *path, enum pvn_topo_fs_type type, const char *data,
                     size_t len)
{
    if (t->n >= MAX_ENTRIES)
        return -E2BIG;
    if (t->n == t->cap) {
        size_t cap = t->cap == 0 ? 256 : 2 * t->cap;
        struct entry *bigger = realloc(t->entries, cap * sizeof(*bigger));

        if (!bigger)
            return -ENOMEM;
        t->entries = bigger;
        t->cap = cap;
    }
    t->entries[t->n] = (struct entry){path, type, data, len, t->n};
    t->n++;
    return 0;
}

/* Facts from a long-name or pax header about the next entry. */
struct next {
    const char *path, *link;
    size_t path_len, link_len;
};

/* Records are "LENGTH KEY=VALUE\n". */
static void read_pax(const char *data, size_t len, struct next *next)
{
    size_t at = 0;

    while (at < len) {
        size_t rec = 0, i = at;

        while (i < len && data[i] >= '0' && data[i] <= '9' && rec < len) {
            rec = rec * 10 + (size_t)(data[i] - '0');
            i++;
        }
        if (i >= len || data[i] != ' ' || rec <= i - at + 1 || rec > len - at)
            return;
        i++;
        if (at + rec - i > 6 && memcmp(data + i, "path=", 5) == 0) {
            next->path = data + i + 5;
            next->path_len = at + rec - i - 6;
        } else if (at + rec - i > 10 && memcmp(data + i, "linkpath=", 9) == 0) {
            next->link = data + i + 9;
            next->link_len = at + rec - i - 10;
        }
        at += rec;
    }
}

/* Path of an entry: prefix and name, or the name from an earlier long-name or pax header. */
static char *entry_path(const char *h, const struct next *next, int *rc)
{
    char joined[155 + 1 + 100];
    size_t n = 0;

    if (next->path)
        return clean_path(next->path, strnlen(next->path, next->path_len), rc);
    if (memcmp(h + 257, "ustar", 5) == 0 && memcmp(h + 257, "ustar  ", 7) != 0) {
        n = strnlen(h + 345, 155);
        memcpy(joined, h + 345, n);
        if (n > 0)
            joined[n++] = '/';
    }
    memcpy(joined + n, h, strnlen(h, 100));
    n += strnlen(h, 100);
    return clean_path(joined, n, rc);
}

static int take_entry(struct fs_tar *t, const char *h, size_t size, const struct next *next)
{
    const char *data = h + BLOCK;
    enum pvn_topo_fs_type type;
    char *path;
    int rc;

    switch (h[156]) {
    case '0':
    case '\0':
        type = PVN_TOPO_FS_FILE;
        break;
    case '2':
        type = PVN_TOPO_FS_LINK;
        data = next->link ? next->link : h + 157;
        size = next->link ? strnlen(next->link, next->link_len) : strnlen(h + 157, 100);
        break;
    case '5':
        type = PVN_TOPO_FS_DIR;
        size = 0;
        break;
    default:
        return 0;
    }
    path = entry_path(h, next, &rc);
    if (!path)
        return rc;
    rc = add_entry(t, path, type, data, size);
    if (rc != 0)
        free(path);
    return rc;
}

static int read_image(struct fs_tar *t, struct pvn_topo_err *err)
{
    struct next next = {0};
    size_t at = 0;

    while (t->bytes - at >= BLOCK) {
        const char *h = t->image + at;
        uint64_t size;
        int rc = 0;

        if (h[0] == '\0')
            return 0;
        if (!checksum_ok(h) || !parse_octal(h + 124, 12, &size)) {
            snprintf(
                err->text, sizeof(err->text),
                "not an (uncompressed) tar file: bad header at byte %zu; unpack it and give the "
                "directory instead",
                at);
            return -EINVAL;
        }
        if (size > t->bytes - at - BLOCK) {
            snprintf(err->text, sizeof(err->text),
                     "tar file ends early: the entry at byte %zu needs %llu bytes, but %zu are "
                     "left; copy the file again",
                     at, (unsigned long long)size, t->bytes - at - BLOCK);
            return -EINVAL;
        }
        switch (h[156]) {
        case 'L':
            next.path = h + BLOCK;
            next.path_len = (size_t)size;
            break;
        case 'K':
            next.link = h + BLOCK;
            next.link_len = (size_t)size;
            break;
        case 'x':
            read_pax(h + BLOCK, (size_t)size, &next);
            break;
        case 'g':
            break;
        default:
            rc = take_entry(t, h, (size_t)size, &next);
            next = (struct next){0};
        }
        if (rc != 0) {
            snprintf(err->text, sizeof(err->text), "tar file: the entry at byte %zu: %s", at,
                     rc == -EINVAL ? "\"..\" in its name" : strerror(-rc));
            return rc;
        }
        size = (size + BLOCK - 1) / BLOCK * BLOCK;
        at += BLOCK;
        at += size < t->bytes - at ? (size_t)size : t->bytes - at;
    }
    if (t->bytes == 0)
        return 0;
    snprintf(err->text, sizeof(err->text),
             "tar file is cut: it ends at byte %zu without the block of zeros that ends every tar; "
             "copy it again",
             t->bytes);
    return -EINVAL;
}

/* Keeps only the last of several entries with one name. */
static void drop_repeats(struct fs_tar *t)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->n; i++)
        if (i + 1 < t->n && strcmp(t->entries[i].path, t->entries[i + 1].path) == 0)
            free(t->entries[i].path);
        else
            t->entries[kept++] = t->entries[i];
    t->n = kept;
}

static void drop_common_dir(struct fs_tar *t)
{
    size_t len, kept = 0;

    if (t->n == 0)
        return;
    len = 1 + strcspn(t->entries[0].path + 1, "/");
    if ((len == 4 && memcmp(t->entries[0].path, "/sys", 4) == 0) ||
        (len == 5 && memcmp(t->entries[0].path, "/proc", 5) == 0))
        return;
    for (size_t i = 0; i < t->n; i++) {
        const char *p = t->entries[i].path;

        if (strncmp(p, t->entries[0].path, len) != 0 || (p[len] != '/' && p[len] != '\0'))
            return;
    }
    for (size_t i = 0; i < t->n; i++) {
        char *p = t->entries[i].path;

        if (p[len] == '\0') {
            free(p);
            continue;
        }
        memmove(p, p + len, strlen(p + len) + 1);
        t->entries[kept++] = t->entries[i];
    }
    t->n = kept;
}

int pvn_topo_fs_open_tar(const void *image, size_t bytes, struct pvn_topo_fs **fs,
                         struct pvn_topo_err *err)
{
    static const struct pvn_topo_fs_ops ops = {
        .type = tar_type,
        .readlink = tar_readlink,
        .read = tar_read,
        .list = tar_list,
        .close = tar_close,
    };
    struct fs_tar *t = calloc(1, sizeof(*t));
    int rc;

    if (!t) {
        snprintf(err->text, sizeof(err->text), "out of memory");
        return -ENOMEM;
    }
    t->fs.ops = &ops;
    t->image = malloc(bytes > 0 ? bytes : 1);
    if (!t->image) {
        snprintf(err->text, sizeof(err->text), "out of memory");
        free(t);
        return -ENOMEM;
    }
    memcpy(t->image, image, bytes);
    t->bytes = bytes;
    rc = read_image(t, err);
    if (rc == 0 && t->n == 0) {
        snprintf(err->text, sizeof(err->text), "tar file without a single file");
        rc = -EINVAL;
    }
    if (rc != 0) {
        tar_close(&t->fs);
        return rc;
    }
    qsort(t->entries, t->n, sizeof(*t->entries), by_path);
    drop_repeats(t);
    drop_common_dir(t);
    *fs = &t->fs;
    return 0;
}
