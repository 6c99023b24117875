/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/plain.h"

#include <errno.h>
#include <sys/socket.h>

/* A single piece goes by send and recv, which are shorter: a few ns count for small messages. */
ssize_t pvn_plain_sendv(int fd, struct pvn_seal *seal, struct iovec *iov, int n)
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

ssize_t pvn_plain_recvv(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags)
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
