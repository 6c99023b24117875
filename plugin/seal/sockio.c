/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/sockio.h"

#include <errno.h>
#include <sys/socket.h>

static ssize_t plain_send(int fd, struct pvn_seal *seal, const void *buf, size_t len)
{
    ssize_t n;

    (void)seal;
    do {
        n = send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static ssize_t plain_recv(int fd, struct pvn_seal *seal, void *buf, size_t len)
{
    ssize_t n;

    (void)seal;
    do {
        n = recv(fd, buf, len, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
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

const struct pvn_sockio pvn_sockio_plain = {plain_send, plain_recv, plain_has_pending};
const struct pvn_sockio pvn_sockio_sealed = {sealed_send, sealed_recv, pvn_seal_has_pending};
