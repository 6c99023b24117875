/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/tool/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_CREAT where it is there as well: the name may be a link to a file that is not there yet. */
#define FLAGS (O_WRONLY | O_CREAT | O_CLOEXEC)

int tool_file_open(struct tool_file *f, const char *path)
{
    *f = (struct tool_file){.path = path, .text = -1};
    f->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd >= 0) {
        /* It can be made, and is missing again for whoever reads it as an input. */
        close(f->fd);
        unlink(path);
        f->fd = -1;
    } else if (errno != EEXIST || (f->fd = open(path, FLAGS, 0666)) < 0) {
        return -errno;
    }
    if ((f->text = memfd_create("pvn-topo", MFD_CLOEXEC)) < 0) {
        int code = -errno;
        tool_file_close(f);
        return code;
    }
    return 0;
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
        if ((f->fd = open(f->path, FLAGS, 0666)) < 0)
            return -errno;
        f->part = true;
    }
    if (fstat(f->fd, &st) < 0 || (S_ISREG(st.st_mode) && ftruncate(f->fd, 0) < 0))
        return -errno;
    for (off_t at = 0; code == 0 && (n = pread(f->text, block, sizeof(block), at)) > 0; at += n)
        code = write_all(f->fd, block, (size_t)n);
    if (code == 0 && n < 0)
        code = -errno;
    /* NFS says only here that the disk is full. */
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
