/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/sockio.h"

#include "seal/plain.h"

static ssize_t plain_send(int fd, struct pvn_seal *seal, const void *buf, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)buf, len};

    return pvn_plain_sendv(fd, seal, &iov, 1);
}

static ssize_t plain_recv(int fd, struct pvn_seal *seal, void *buf, size_t len)
{
    struct iovec iov = {buf, len};

    return pvn_plain_recvv(fd, seal, &iov, 1, 0);
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

static ssize_t in_kernel_sendv(int fd, struct pvn_seal *seal, struct iovec *iov, int n)
{
    (void)fd;
    return pvn_seal_kernel_sendv(seal, iov, n);
}

static ssize_t in_kernel_recvv(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags)
{
    (void)fd;
    (void)flags;
    return pvn_seal_kernel_recvv(seal, iov, n);
}

static ssize_t in_kernel_send(int fd, struct pvn_seal *seal, const void *buf, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)buf, len};

    return in_kernel_sendv(fd, seal, &iov, 1);
}

static ssize_t in_kernel_recv(int fd, struct pvn_seal *seal, void *buf, size_t len)
{
    struct iovec iov = {buf, len};

    return in_kernel_recvv(fd, seal, &iov, 1, 0);
}

const struct pvn_sockio pvn_sockio_plain = {plain_send, plain_recv, pvn_plain_sendv,
                                            pvn_plain_recvv, plain_has_pending};
const struct pvn_sockio pvn_sockio_sealed = {sealed_send, sealed_recv, sealed_sendv, sealed_recvv,
                                             pvn_seal_has_pending};
const struct pvn_sockio pvn_sockio_in_kernel = {in_kernel_send, in_kernel_recv, in_kernel_sendv,
                                                in_kernel_recvv, plain_has_pending};

const struct pvn_sockio *pvn_sockio_of(const struct pvn_seal *seal)
{
    return pvn_seal_is_by_kernel(seal) ? &pvn_sockio_in_kernel : &pvn_sockio_sealed;
}
