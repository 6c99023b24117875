/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes the bytes of one TCP connection: plain, or sealed by OpenSSL or by the kernel.
 * The owner of a connection has its table, and calls the socket itself only for other things (its
 * end, its state, the poller).
 *
 * A poller sees the socket alone. has_pending reports bytes that a sealed stream has taken from the
 * socket and its user has not read. It also reports the beginning of a record whose rest has not
 * come; of a stream in the kernel only after its end. After a recv that returned -EAGAIN nothing
 * else is left.
 *
 * Threads: as seal.h says. Nothing blocks.
 */
#ifndef PVN_SEAL_SOCKIO_H
#define PVN_SEAL_SOCKIO_H

#include "seal/seal.h"

/* fd: non-blocking. seal: for the sealed tables, after its handshake; NULL for the plain one. n > 0
 * pieces, which do not change. flags: MSG_PEEK (plain table only) or 0. Bytes, 0 (recvv: end of
 * stream), or a negative errno, as in seal.h. */
struct pvn_sockio {
    ssize_t (*sendv)(int fd, struct pvn_seal *seal, struct iovec *iov, int n);
    ssize_t (*recvv)(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags);
    bool (*has_pending)(const struct pvn_seal *seal);
};

/* in_kernel: for a sealed stream that the kernel has, see seal.h. */
extern const struct pvn_sockio pvn_sockio_plain, pvn_sockio_sealed, pvn_sockio_in_kernel;

/* sendv and recvv of one piece. */
static inline ssize_t pvn_sockio_send(const struct pvn_sockio *io, int fd, struct pvn_seal *seal,
                                      const void *buf, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)buf, len};

    return io->sendv(fd, seal, &iov, 1);
}

static inline ssize_t pvn_sockio_recv(const struct pvn_sockio *io, int fd, struct pvn_seal *seal,
                                      void *buf, size_t len)
{
    struct iovec iov = {buf, len};

    return io->recvv(fd, seal, &iov, 1, 0);
}

/* Returns the table of a sealed stream whose handshake is complete. */
const struct pvn_sockio *pvn_sockio_of(const struct pvn_seal *seal);

#endif
