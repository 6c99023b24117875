/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Pins memory as fixed buffers of an io_uring, the means that an ordinary process has without a
 * device: the kernel holds their pages as for a driver (FOLL_LONGTERM). Nothing else of the ring is
 * used. */
#include "config.h"
#include "perf/rank/pin.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Headers before Linux 5.1 lack these. The numbers are those of all processors but Alpha and MIPS. */
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup    425
#define SYS_io_uring_register 427
#endif
enum {
    REGISTER_BUFFERS = 0, /* IORING_REGISTER_BUFFERS */
    PARAMS_SIZE = 120     /* of struct io_uring_params */
};

#define BUFFER_MAX (UINT64_C(1) << 30) /* the kernel's limit for one fixed buffer */

/* The cause of a failure. For a system call that their profile does not allow, containers return
 * EPERM (Docker), or ENOSYS as a kernel without it does (Podman). */
static const char *cause(int code)
{
    int filtered = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) > 0;

    if (code == ENOMEM)
        return " (more than ulimit -l allows?)";
    if (code != EPERM && code != ENOSYS)
        return "";
    if (filtered)
        return " (by a seccomp profile, as containers have: allow io_uring_setup and io_uring_register in it)";
    return code == EPERM ? " (by kernel.io_uring_disabled: set it to 0)"
                         : " (this kernel has no io_uring: Linux 5.1 with CONFIG_IO_URING has)";
}

static int call_failed(int fd, char *why, size_t why_len, const char *call)
{
    int code = errno;

    snprintf(why, why_len, "%s: %s%s", call, strerror(code), cause(code));
    if (fd >= 0)
        close(fd);
    return -1;
}

static int register_buffers(int fd, char *p, size_t len)
{
    size_t n = (len + BUFFER_MAX - 1) / BUFFER_MAX;
    struct iovec *v = calloc(n, sizeof(*v));
    long rc;

    if (!v)
        return -1;
    for (size_t i = 0; i < n; i++) {
        v[i].iov_base = p + i * BUFFER_MAX;
        v[i].iov_len = i + 1 < n ? BUFFER_MAX : len - i * BUFFER_MAX;
    }
    rc = syscall(SYS_io_uring_register, fd, REGISTER_BUFFERS, v, (unsigned)n);
    free(v);
    return rc < 0 ? -1 : 0;
}

int pvn_pin(void *p, size_t len, char *why, size_t why_len)
{
    uint64_t params[PARAMS_SIZE / sizeof(uint64_t)] = {0};
    int fd;

    /* cudaHostAlloc does not give huge pages. */
    madvise(p, len, MADV_NOHUGEPAGE);
    fd = (int)syscall(SYS_io_uring_setup, 1, params);
    if (fd < 0)
        return call_failed(-1, why, why_len, "io_uring_setup");
    if (register_buffers(fd, p, len) < 0)
        return call_failed(fd, why, why_len, "registering the memory with io_uring");
    return fd;
}
