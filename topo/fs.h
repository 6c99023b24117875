/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Read access to files below a root, with links kept inside it. Internal to topo/.
 *
 * The files are in a store: a directory, or a tar image in memory. Symbolic links are resolved
 * here, component by component, so an absolute link or ".." never leads out of the root. */
#ifndef PVN_TOPO_FS_H
#define PVN_TOPO_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_topo_err;

enum {
    PVN_TOPO_FS_PATH_MAX = 4096,   /* longest path, links resolved */
    PVN_TOPO_FS_MAX_LINKS = 40,    /* as the kernel's MAXSYMLINKS */
    PVN_TOPO_FS_MAX_NAMES = 65536, /* entries of a directory */
};

enum pvn_topo_fs_type {
    PVN_TOPO_FS_NONE = 0,
    PVN_TOPO_FS_FILE,
    PVN_TOPO_FS_DIR,
    PVN_TOPO_FS_LINK,
    PVN_TOPO_FS_OTHER, /* a device, a pipe, a socket: never opened */
};

struct pvn_topo_fs_names {
    char **name; /* sorted by strcmp, no "." and ".." */
    int n;
};

struct pvn_topo_fs;

/* The operations of a store. Paths start with '/', contain no "." or "..", no double slash, and no
 * link except in the last component. */
struct pvn_topo_fs_ops {
    enum pvn_topo_fs_type (*type)(struct pvn_topo_fs *fs, const char *path);
    /* Length of the link's text, or negative errno (-EINVAL: no link). Not NUL-terminated. */
    ssize_t (*readlink)(struct pvn_topo_fs *fs, const char *path, char *buf, size_t cap);
    /* At most cap bytes from offset at of a regular file (0 at its end), or negative errno. */
    ssize_t (*read)(struct pvn_topo_fs *fs, const char *path, size_t at, void *buf, size_t cap);
    int (*list)(struct pvn_topo_fs *fs, const char *path, struct pvn_topo_fs_names *names);
    /* Hint that the next reads are of files in this directory. May be NULL. */
    void (*enter)(struct pvn_topo_fs *fs, const char *dir);
    void (*close)(struct pvn_topo_fs *fs);
};

enum {
    PVN_TOPO_FS_KNOWN = 512, /* directories known to be no links; a power of two */
};

struct pvn_topo_fs {
    const struct pvn_topo_fs_ops *ops;
    /* Every path of a machine starts with the same few
     * directories, so each is looked up once. */
    char *known[PVN_TOPO_FS_KNOWN];
};

/* Opens a directory; topo/capture/open.h opens the other forms. 0 or negative errno. */
/* sys: the directory to use as the root's /sys, or NULL for the root's own. */
int pvn_topo_fs_open_dir(const char *root, const char *sys, struct pvn_topo_fs **fs);
void pvn_topo_fs_close(struct pvn_topo_fs *fs);

/* Real path of path below the root, into out (PVN_TOPO_FS_PATH_MAX bytes). 0 or negative errno:
 * -ENOENT for a dangling link, -ELOOP for a loop, -ENAMETOOLONG. */
int pvn_topo_fs_resolve(struct pvn_topo_fs *fs, const char *path, char *out);

/* The next three functions take any path and follow links in it. */
ssize_t pvn_topo_fs_read(struct pvn_topo_fs *fs, const char *path, void *buf, size_t cap);
int pvn_topo_fs_list(struct pvn_topo_fs *fs, const char *path, struct pvn_topo_fs_names *names);
enum pvn_topo_fs_type pvn_topo_fs_type(struct pvn_topo_fs *fs, const char *path);

/* Announces that the next reads are of files in the directory with the real path dir. */
void pvn_topo_fs_enter(struct pvn_topo_fs *fs, const char *dir);

/* Reads dir/name without resolving links: dir is a real path, and name is one component. A link is
 * not followed. */
ssize_t pvn_topo_fs_read_at(struct pvn_topo_fs *fs, const char *dir, const char *name, void *buf,
                            size_t cap);
/* pvn_topo_fs_read_at from an offset. */
ssize_t pvn_topo_fs_pread_at(struct pvn_topo_fs *fs, const char *dir, const char *name, size_t at,
                             void *buf, size_t cap);
/* Text of the link dir/name, NUL-terminated. Length or negative errno. */
ssize_t pvn_topo_fs_readlink_at(struct pvn_topo_fs *fs, const char *dir, const char *name,
                                char *buf, size_t cap);

/* A whole file of at most max bytes, NUL-terminated, for the caller to free. -EFBIG beyond max. */
int pvn_topo_fs_read_all(struct pvn_topo_fs *fs, const char *path, size_t max, char **text,
                         size_t *len);

void pvn_topo_fs_names_free(struct pvn_topo_fs_names *names);
/* Appends a copy of name. 0, -ENOMEM or -E2BIG. */
int pvn_topo_fs_names_add(struct pvn_topo_fs_names *names, const char *name);
void pvn_topo_fs_names_sort(struct pvn_topo_fs_names *names);

#ifdef __cplusplus
}
#endif
#endif
