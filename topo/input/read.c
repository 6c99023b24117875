/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads all bytes of a file, a pipe or standard input. */
#include "topo/input/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_failed(const char *path, int code, struct pvn_topo_err *err)
{
    snprintf(err->text, sizeof(err->text), "%.200s: cannot be read: %s", path, strerror(code));
    return -code;
}

/* O_NONBLOCK, because opening a FIFO must not wait for a writer. poll waits instead, with its
 * limit. */
static int open_path(const char *path, struct pvn_topo_err *err)
{
    static bool stdin_taken;
    struct stat st;
    int fd;
    if (strcmp(path, "-") == 0) {
        if (stdin_taken) {
            snprintf(err->text, sizeof(err->text),
                     "-: standard input can be read once, and was; give one of them as a file");
            return -EINVAL;
        }
        stdin_taken = true;
        fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
        return fd < 0 ? read_failed(path, errno, err) : fd;
    }
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return read_failed(path, errno, err);
    if (fstat(fd, &st) < 0 || S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode)) {
        close(fd);
        return read_failed(path, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, err);
    }
    return fd;
}

/* 1 if there is something to read, or the end. A FIFO that has had no writer yet is neither. */
static int wait_readable(int fd, int wait_s)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&p, 1, isatty(fd) || wait_s < 0 ? -1 : wait_s * 1000);
    while (ready < 0 && errno == EINTR);
    return ready < 0 ? -errno : ready;
}

static int read_all(int fd, const char *path, int wait_s, struct pvn_topo_input *in,
                    struct pvn_topo_err *err)
{
    size_t room = 0;
    for (;;) {
        int ready = wait_readable(fd, wait_s);
        if (ready < 0)
            return read_failed(path, -ready, err);
        if (ready == 0) {
            snprintf(err->text, sizeof(err->text),
                     "%.200s: nothing arrived for %d s; see whether something writes to it "
                     "(--timeout SECONDS waits longer)",
                     path, wait_s);
            return -ETIMEDOUT;
        }
        if (in->len + 1 >= room) {
            room = room ? 2 * room : 1 << 16;
            char *more = realloc(in->data, room);
            if (!more)
                return read_failed(path, ENOMEM, err);
            in->data = more;
        }
        ssize_t got = read(fd, in->data + in->len, room - in->len - 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            return read_failed(path, errno, err);
        if (got == 0)
            break;
        in->len += (size_t)got;
        if (in->len > PVN_TOPO_INPUT_MAX) {
            snprintf(err->text, sizeof(err->text),
                     "%.200s: more than the %d MiB that a description of a machine may have", path,
                     PVN_TOPO_INPUT_MAX >> 20);
            return -EFBIG;
        }
    }
    in->data[in->len] = '\0';
    return 0;
}

int pvn_topo_input_slurp(const char *path, int wait_s, struct pvn_topo_input *in,
                         struct pvn_topo_err *err)
{
    *in = (struct pvn_topo_input){.kind = PVN_TOPO_INPUT_TAR};
    int fd = open_path(path, err);
    if (fd < 0)
        return fd;
    int code = read_all(fd, path, wait_s, in, err);
    close(fd);
    if (code < 0)
        pvn_topo_input_free(in);
    return code;
}

void pvn_topo_input_free(struct pvn_topo_input *in)
{
    free(in->data);
    *in = (struct pvn_topo_input){.kind = PVN_TOPO_INPUT_TAR};
}
