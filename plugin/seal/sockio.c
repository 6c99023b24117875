/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/sockio.h"

#include <errno.h>
#include <sys/socket.h>

/* The short calls for the short case: small messages are where a few ns count. */
static ssize_t plain_sendv(int fd, struct pvn_seal *seal, struct iovec *iov, int n)
{
    struct msghdr mh = {.msg_iov = iov};
    ssize_t rc;

    (void)seal;
    mh.msg_iovlen = (size_t)n;
    do {
        rc = n == 1 ? send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                    : sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : rc;
}

static ssize_t plain_recvv(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags)
{
    struct msghdr mh = {.msg_iov = iov};
    ssize_t rc;

    (void)seal;
    mh.msg_iovlen = (size_t)n;
    do {
        rc = n == 1 ? recv(fd, iov->iov_base, iov->iov_len, flags | MSG_DONTWAIT)
                    : recvmsg(fd, &mh, flags | MSG_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : rc;
}

static ssize_t plain_send(int fd, struct pvn_seal *seal, const void *buf, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)buf, len};

    return plain_sendv(fd, seal, &iov, 1);
}

static ssize_t plain_recv(int fd, struct pvn_seal *seal, void *buf, size_t len)
{
    struct iovec iov = {buf, len};

    return plain_recvv(fd, seal, &iov, 1, 0);
}

static bool plain_has_pending(const struct pvn_seal *seal)
{
    (void)seal;
    return false;
}

static ssize_t sealed_send(int fd, struct pvn_seal *seal, const void *buf, size_t len)
{
    (void)fd;
    return pvn_seal_send(seal, buf, len);
}

static ssize_t sealed_recv(int fd, struct pvn_seal *seal, void *buf, size_t len)
{
    (void)fd;
    return pvn_seal_recv(seal, buf, len);
}

static ssize_t sealed_sendv(int fd, struct pvn_seal *seal, struct iovec *iov, int n)
{
    (void)fd;
    return pvn_seal_sendv(seal, iov, n);
}

static ssize_t sealed_recvv(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags)
{
    (void)fd;
    (void)flags;
    return pvn_seal_recvv(seal, iov, n);
}

const struct pvn_sockio pvn_sockio_plain = {plain_send, plain_recv, plain_sendv, plain_recvv,
                                            plain_has_pending};
const struct pvn_sockio pvn_sockio_sealed = {sealed_send, sealed_recv, sealed_sendv, sealed_recvv,
                                             pvn_seal_has_pending};
