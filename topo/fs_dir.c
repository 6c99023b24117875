/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A directory as the store. */
#include "topo/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct name {
    char *text;
    unsigned char type; /* DT_* of dirent.h */
};

/* The directory that is being read. Its entries are listed once, so that lookups of missing files
 * cost no system call. */
struct inside {
    char *dir;
    int fd;
    struct name *names; /* sorted */
    int n;
};

struct fs_dir {
    struct pvn_topo_fs fs;
    int fd;
    int sys_fd; /* directory used as /sys, or -1 */
    struct inside in;
};

/* Returns the directory from which to look path up, and the name to look up there. */
static int start(struct pvn_topo_fs *fs, const char *path, const char **name)
{
    const struct fs_dir *d = (const struct fs_dir *)fs;
    bool in_sys =
        d->sys_fd >= 0 && strncmp(path, "/sys", 4) == 0 && (path[4] == '/' || path[4] == '\0');

    path += in_sys ? 4 : 0;
    *name = path[0] == '\0' || path[1] == '\0' ? "." : path + 1;
    return in_sys ? d->sys_fd : d->fd;
}

static int open_dir_at(struct pvn_topo_fs *fs, const char *path)
{
    const char *name;
    int fd = start(fs, path, &name);

    return openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static void leave(struct inside *in)
{
    if (!in->dir)
        return;
    for (int i = 0; i < in->n; i++)
        free(in->names[i].text);
    free(in->names);
    free(in->dir);
    close(in->fd);
    *in = (struct inside){0};
}

static bool add_name(struct inside *in, const char *text, unsigned char type)
{
    if ((in->n & (in->n - 1)) == 0) {
        struct name *bigger =
            realloc(in->names, (in->n == 0 ? 1 : 2 * (size_t)in->n) * sizeof(*bigger));

        if (!bigger)
            return false;
        in->names = bigger;
    }
    in->names[in->n] = (struct name){strdup(text), type};
    return in->names[in->n].text && ++in->n < PVN_TOPO_FS_MAX_NAMES;
}

/* Calls each for every entry except "." and ".." until it returns other than 0. 0 or negative
 * errno. */
static int for_each_entry(int fd, int (*each)(void *ctx, const struct dirent *e), void *ctx)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0), rc = 0;
    DIR *dir = own >= 0 ? fdopendir(own) : NULL;

    if (!dir) {
        rc = -errno;
        if (own >= 0)
            close(own);
        return rc;
    }
    while (rc == 0) {
        const struct dirent *e;

        errno = 0;
        e = readdir(dir);
        if (!e) {
            rc = -errno;
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = each(ctx, e);
    }
    closedir(dir);
    return rc;
}

static int keep_entry(void *ctx, const struct dirent *e)
{
    return add_name(ctx, e->d_name, e->d_type) ? 0 : -ENOMEM;
}

static void dir_enter(struct pvn_topo_fs *fs, const char *dir)
{
    struct inside *in = &((struct fs_dir *)fs)->in;

    if (in->dir && strcmp(in->dir, dir) == 0)
        return;
    leave(in);
    in->fd = open_dir_at(fs, dir);
    if (in->fd < 0)
        return;
    in->dir = strdup(dir);
    if (!in->dir) {
        close(in->fd);
        return;
    }
    /* If the list failed (too long, out of memory), every file is looked up by itself. */
    if (for_each_entry(in->fd, keep_entry, in) != 0) {
        leave(in);
        return;
    }
    if (in->n > 1)
        qsort(in->names, (size_t)in->n, sizeof(*in->names), by_text);
}

/* The place from which to look a path up: the directory that is being read, with the plain name, or
 * the root. */
struct place {
    int fd;
    const char *name;
    bool listed; /* type is known from the list */
    enum pvn_topo_fs_type type;
};

static enum pvn_topo_fs_type type_of_entry(unsigned char type)
{
    switch (type) {
    case DT_REG:
        return PVN_TOPO_FS_FILE;
    case DT_DIR:
        return PVN_TOPO_FS_DIR;
    case DT_LNK:
        return PVN_TOPO_FS_LINK;
    default:
        return PVN_TOPO_FS_OTHER;
    }
}

static struct place find_place(struct pvn_topo_fs *fs, const char *path)
{
    const struct inside *in = &((struct fs_dir *)fs)->in;
    struct place place = {0};
    size_t n = in->dir ? strlen(in->dir) : 0;
    const struct name *entry;
    struct name key;

    place.fd = start(fs, path, &place.name);
    if (n == 0 || strncmp(path, in->dir, n) != 0 || path[n] != '/' || strchr(path + n + 1, '/'))
        return place;
    place.fd = in->fd;
    place.name = path + n + 1;
    key.text = (char *)(uintptr_t)place.name;
    entry = in->n > 0 ? bsearch(&key, in->names, (size_t)in->n, sizeof(key), by_text) : NULL;
    place.listed = !entry || entry->type != DT_UNKNOWN;
    place.type = !entry ? PVN_TOPO_FS_NONE : type_of_entry(entry->type);
    return place;
}

static enum pvn_topo_fs_type type_at(const struct place *place)
{
    struct stat st;

    if (place->listed)
        return place->type;
    if (fstatat(place->fd, place->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return PVN_TOPO_FS_NONE;
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        return PVN_TOPO_FS_FILE;
    case S_IFDIR:
        return PVN_TOPO_FS_DIR;
    case S_IFLNK:
        return PVN_TOPO_FS_LINK;
    default:
        return PVN_TOPO_FS_OTHER;
    }
}

static enum pvn_topo_fs_type dir_type(struct pvn_topo_fs *fs, const char *path)
{
    struct place place = find_place(fs, path);

    return type_at(&place);
}

static ssize_t dir_readlink(struct pvn_topo_fs *fs, const char *path, char *buf, size_t cap)
{
    struct place place = find_place(fs, path);
    ssize_t got;

    if (place.listed && place.type != PVN_TOPO_FS_LINK)
        return place.type == PVN_TOPO_FS_NONE ? -ENOENT : -EINVAL;
    got = readlinkat(place.fd, place.name, buf, cap);
    return got < 0 ? -errno : got;
}

static ssize_t dir_read(struct pvn_topo_fs *fs, const char *path, size_t at, void *buf, size_t cap)
{
    struct place place = find_place(fs, path);
    size_t have = 0;
    ssize_t rc;
    int fd;

    /* A pipe or a device in a hostile root must not be opened, because opening it can block or have
     * an effect. */
    switch (type_at(&place)) {
    case PVN_TOPO_FS_FILE:
        break;
    case PVN_TOPO_FS_NONE:
        return -ENOENT;
    default:
        return -EINVAL;
    }
    fd = openat(place.fd, place.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    while (have < cap) {
        rc = pread(fd, (char *)buf + have, cap - have, (off_t)(at + have));
        if (rc < 0 && errno == EINTR)
            continue;
        if (rc < 0) {
            rc = -errno;
            close(fd);
            /* Config space of a sleeping device may end early. The bytes read so far are still
             * valid. */
            return have > 0 ? (ssize_t)have : rc;
        }
        have += (size_t)rc;
        /* One read returns a whole sysfs attribute; only procfs needs several. */
        if (rc == 0 || strncmp(path, "/sys/", 5) == 0)
            break;
    }
    close(fd);
    return (ssize_t)have;
}

static int list_entry(void *ctx, const struct dirent *e)
{
    return pvn_topo_fs_names_add(ctx, e->d_name);
}

static int dir_list(struct pvn_topo_fs *fs, const char *path, struct pvn_topo_fs_names *names)
{
    int fd = open_dir_at(fs, path);
    int rc;

    if (fd < 0)
        return -errno;
    rc = for_each_entry(fd, list_entry, names);
    close(fd);
    return rc;
}

static void dir_close(struct pvn_topo_fs *fs)
{
    struct fs_dir *d = (struct fs_dir *)fs;

    leave(&d->in);
    close(d->fd);
    if (d->sys_fd >= 0)
        close(d->sys_fd);
    free(d);
}

int pvn_topo_fs_open_dir(const char *root, const char *sys, struct pvn_topo_fs **fs)
{
    static const struct pvn_topo_fs_ops ops = {
        .type = dir_type,
        .readlink = dir_readlink,
        .read = dir_read,
        .list = dir_list,
        .enter = dir_enter,
        .close = dir_close,
    };
    struct fs_dir *d = calloc(1, sizeof(*d));

    if (!d)
        return -ENOMEM;
    d->fs.ops = &ops;
    d->fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d->sys_fd = sys && d->fd >= 0 ? open(sys, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (d->fd < 0 || (sys && d->sys_fd < 0)) {
        int rc = -errno;

        if (d->fd >= 0)
            close(d->fd);
        free(d);
        return rc;
    }
    *fs = &d->fs;
    return 0;
}
