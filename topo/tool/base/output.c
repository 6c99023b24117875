/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/tool/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0, or the negative errno that keeps a file of this name from being created. */
static int may_be_made(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    int code = access(dirname(copy), W_OK | X_OK) < 0 ? -errno : 0;
    free(copy);
    return code;
}

int tool_file_open(struct tool_file *f, const char *path)
{
    struct stat st;
    *f = (struct tool_file){.path = path, .fd = -1, .text = -1};
    int code = stat(path, &st) < 0 ? -errno : 0;
    if (code == -ENOENT)
        code = may_be_made(path);
    else if (code == 0 && (f->fd = open(path, O_WRONLY | O_CLOEXEC)) < 0)
        code = -errno;
    if (code == 0 && (f->text = memfd_create("pvn-topo", MFD_CLOEXEC)) < 0)
        code = -errno;
    if (code < 0)
        tool_file_close(f);
    return code;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR)
            return -errno;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int tool_file_save(struct tool_file *f)
{
    char block[16384];
    struct stat st;
    int code = 0;
    ssize_t n = 0;
    if (f->fd < 0) {
        f->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        f->part = f->fd >= 0;
        /* The path is a dangling link, or another process created the file first. */
        if (f->fd < 0 && errno == EEXIST)
            f->fd = open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (f->fd < 0)
            return -errno;
    }
    if (fstat(f->fd, &st) < 0 || (S_ISREG(st.st_mode) && ftruncate(f->fd, 0) < 0))
        return -errno;
    for (off_t at = 0; code == 0 && (n = pread(f->text, block, sizeof(block), at)) > 0; at += n)
        code = write_all(f->fd, block, (size_t)n);
    if (code == 0 && n < 0)
        code = -errno;
    /* NFS reports a full disk only at close. */
    if (close(f->fd) < 0 && code == 0)
        code = -errno;
    f->fd = -1;
    f->part &= code != 0;
    return code;
}

void tool_file_close(struct tool_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->text >= 0)
        close(f->text);
    f->fd = f->text = -1;
    if (f->part)
        unlink(f->path);
}
