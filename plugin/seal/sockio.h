/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How the bytes of one TCP connection are read and written: plain, or sealed, by OpenSSL or by the kernel. Whoever has a connection has its table, and
 * calls the socket itself for what concerns no bytes (its end, its state, the poller).
 *
 * A poller sees the socket alone. Bytes that a sealed stream has taken from it, and its user has not, show by has_pending,
 * and so does the beginning of a record whose rest has not come, of a stream in the kernel after its end alone; a recv that has
 * returned -EAGAIN leaves no more than that.
 *
 * Threads: as seal.h says. Nothing blocks.
 */
#ifndef PVN_SEAL_SOCKIO_H
#define PVN_SEAL_SOCKIO_H

#include "seal/seal.h"

/* fd: non-blocking; seal: of the sealed tables, after its handshake; NULL for the plain one. Bytes, 0 (recvv: the end), or a
 * negative errno, as seal.h has them; n > 0 pieces, which stay as they are. flags: MSG_PEEK, of the plain table only, or 0. */
struct pvn_sockio {
    ssize_t (*sendv)(int fd, struct pvn_seal *seal, struct iovec *iov, int n);
    ssize_t (*recvv)(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags);
    bool (*has_pending)(const struct pvn_seal *seal);
};

/* in_kernel: of a sealed stream that the kernel has, see seal.h. */
extern const struct pvn_sockio pvn_sockio_plain, pvn_sockio_sealed, pvn_sockio_in_kernel;

/* One piece. */
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

/* The table of a stream whose handshake is over. */
const struct pvn_sockio *pvn_sockio_of(const struct pvn_seal *seal);

#endif
