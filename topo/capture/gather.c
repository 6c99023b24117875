/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo gather: packs a machine into a small tar for a bug report. The model is loaded once
 * through a recorder, a file system that forwards each call to the real one and keeps the data
 * read. These records, without names and serial numbers (redact.c), become the tar, so loading it
 * reads the same files. */
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/fs.h"
#include "topo/capture/gather.h"
#include "topo/capture/open.h"
#include "topo/counters/counters.h"
#include "topo/pvn_topo.h"
#include "topo/reader.h"

/* A failed allocation does not fail the read: it sets rc, which is checked after the model has been
 * loaded. */
struct recorder {
    struct pvn_topo_fs fs;     /* first: the operations cast a pointer to it to the recorder */
    struct pvn_topo_fs *inner; /* the machine; closed with the recorder */
    void *tree;                /* records by path (tsearch) */
    struct pvn_topo_record **records; /* n of them, each owned */
    int n;
    int rc; /* -ENOMEM: something could not be recorded */
};

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct pvn_topo_record *)a)->path,
                  ((const struct pvn_topo_record *)b)->path);
}

/* Finds or creates the record of a path; NULL sets r->rc. */
static struct pvn_topo_record *record_of(struct recorder *r, const char *path,
                                         enum pvn_topo_fs_type type)
{
    struct pvn_topo_record *made = calloc(1, sizeof(*made)), **found, **slot;

    if (!made || !(made->path = strdup(path)))
        goto fail;
    made->type = type;
    found = tsearch(made, &r->tree, by_path);
    if (!found)
        goto fail;
    if (*found != made) {
        struct pvn_topo_record *known = *found;

        free(made->path);
        free(made);
        return known;
    }
    slot = pvn_topo_array_add((void **)&r->records, &r->n, sizeof(*slot));
    if (!slot) {
        tdelete(made, &r->tree, by_path);
        goto fail;
    }
    *slot = made;
    return made;
fail:
    if (made)
        free(made->path);
    free(made);
    r->rc = -ENOMEM;
    return NULL;
}

/* Records len bytes of a file at an offset, or a link's text. Other parts of the file keep earlier
 * data, or are zero. len 0 records only that the file exists. */
static void remember(struct recorder *r, const char *path, enum pvn_topo_fs_type type, size_t at,
                     const void *data, size_t len)
{
    struct pvn_topo_record *rec = record_of(r, path, type);

    if (!rec || len == 0)
        return;
    if (at + len > rec->len) {
        char *bigger = realloc(rec->data, at + len + 1);

        if (!bigger) {
            r->rc = -ENOMEM;
            return;
        }
        rec->data = bigger;
        memset(rec->data + rec->len, 0, at + len + 1 - rec->len);
        rec->len = at + len;
    }
    memcpy(rec->data + at, data, len);
}

static enum pvn_topo_fs_type rec_type(struct pvn_topo_fs *fs, const char *path)
{
    struct recorder *r = (struct recorder *)fs;
    enum pvn_topo_fs_type type = r->inner->ops->type(r->inner, path);

    if (type == PVN_TOPO_FS_DIR)
        remember(r, path, PVN_TOPO_FS_DIR, 0, NULL, 0);
    return type;
}

static ssize_t rec_readlink(struct pvn_topo_fs *fs, const char *path, char *buf, size_t cap)
{
    struct recorder *r = (struct recorder *)fs;
    ssize_t got = r->inner->ops->readlink(r->inner, path, buf, cap);

    if (got > 0)
        remember(r, path, PVN_TOPO_FS_LINK, 0, buf, (size_t)got);
    return got;
}

static ssize_t rec_read(struct pvn_topo_fs *fs, const char *path, size_t at, void *buf, size_t cap)
{
    struct recorder *r = (struct recorder *)fs;
    ssize_t got = r->inner->ops->read(r->inner, path, at, buf, cap);

    if (got >= 0)
        remember(r, path, PVN_TOPO_FS_FILE, at, buf, (size_t)got);
    return got;
}

static int rec_list(struct pvn_topo_fs *fs, const char *path, struct pvn_topo_fs_names *names)
{
    struct recorder *r = (struct recorder *)fs;
    int rc = r->inner->ops->list(r->inner, path, names);

    if (rc == 0)
        remember(r, path, PVN_TOPO_FS_DIR, 0, NULL, 0);
    return rc;
}

static void rec_enter(struct pvn_topo_fs *fs, const char *dir)
{
    pvn_topo_fs_enter(((struct recorder *)fs)->inner, dir);
}

static void rec_close(struct pvn_topo_fs *fs)
{
    struct recorder *r = (struct recorder *)fs;

    for (int i = 0; i < r->n; i++) {
        tdelete(r->records[i], &r->tree, by_path);
        free(r->records[i]->path);
        free(r->records[i]->data);
        free(r->records[i]);
    }
    free(r->records);
    pvn_topo_fs_close(r->inner);
}

static int by_path_pointer(const void *a, const void *b)
{
    return by_path(*(struct pvn_topo_record *const *)a, *(struct pvn_topo_record *const *)b);
}

int pvn_topo_gather(const char *root, int fd, unsigned flags, struct pvn_topo_err *err)
{
    static const struct pvn_topo_fs_ops ops = {
        .type = rec_type,
        .readlink = rec_readlink,
        .read = rec_read,
        .list = rec_list,
        .enter = rec_enter,
        .close = rec_close,
    };
    struct recorder r = {.fs = {.ops = &ops}};
    struct pvn_topo_look look = {0};
    struct pvn_topo *topo = NULL;
    int rc = pvn_topo_fs_open(root, &r.inner, err);

    if (rc != 0)
        return rc;
    rc = pvn_topo_load_fs(&r.fs, root, NULL, &topo, err);
    if (rc == 0) {
        /* This reads the counters' files only so that the recorder keeps them. */
        rc = pvn_topo_look_read(&r.fs, topo, NULL, 0, NULL, &look);
        pvn_topo_look_free(&look);
        if (rc != 0)
            snprintf(err->text, sizeof(err->text), "%.300s: out of memory for its counters", root);
    }
    pvn_topo_free(topo);
    if (rc != 0)
        goto out;
    if (r.n > 1)
        qsort(r.records, (size_t)r.n, sizeof(*r.records), by_path_pointer);
    rc = r.rc != 0 ? r.rc : pvn_topo_redact(r.records, r.n, flags);
    if (rc == 0)
        rc = pvn_topo_tar_write(fd, r.records, r.n);
    if (rc != 0)
        snprintf(err->text, sizeof(err->text), "%.300s: cannot gather: %s", root, strerror(-rc));
out:
    pvn_topo_fs_close(&r.fs);
    return rc;
}
