/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A sealed stream: TLS 1.3 by OpenSSL over a TCP connection. The two ends prove to each other that
 * they have the same secret. There are no certificates, tickets, early data or renegotiation. Each
 * handshake has an ephemeral key exchange (psk_dhe_ke), so somebody who records it and gets the key
 * later can read nothing. The suites are AES-128-GCM and ChaCha20-Poly1305.
 *
 * Nobody else may send or receive on the socket. A stream that ends without TLS's alert ends like
 * any other: data that have to be complete say so themselves (frames have lengths, a comm ends with
 * a GOODBYE).
 *
 * Threads: one at a time per stream, with one exception: one thread may send (send, sendv) while
 * another one receives (recv, recvv). They take turns, each for a record of 16 KiB. Nothing else
 * blocks, and nothing raises SIGPIPE. Each call leaves the thread's queue of OpenSSL errors empty,
 * which the host process may use as well.
 */
#ifndef PVN_SEAL_SEAL_H
#define PVN_SEAL_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"

enum {
    PVN_SEAL_SECRET = 32, /* bytes of a stream's secret */
    /* Bytes of the connector's first flight that pvn_seal_is_first needs. */
    PVN_SEAL_FIRST_BYTES = 6
};

struct pvn_seal;

/* 0, or a negative errno with *err if the loaded OpenSSL cannot do this; that does not change
 * later. Any thread. */
int pvn_seal_check(struct pvn_err *err);

/* Frees what all streams share, and the library's context, unless there is a stream. The next load
 * makes them again. No other thread may use this or key.h meanwhile. The host process may unload
 * the plugin, which would leak them. */
void pvn_seal_forget(void);
/* In a forked child: another thread of the parent may have held a lock. The parent's objects stay
 * in memory, unused. */
void pvn_seal_after_fork(void);

/* fd: a connected, non-blocking socket. It stays the caller's, and open while the stream is used.
 * acceptor: true at the end that was dialled. The secret is copied. NULL with *err. */
struct pvn_seal *pvn_seal_new(int fd, bool acceptor, const uint8_t secret[PVN_SEAL_SECRET],
                              struct pvn_err *err);
/* Called before the handshake of a stream with much data, which is taken from the socket in larger
 * pieces. by_kernel: after the handshake the kernel seals and opens the stream, if it takes it
 * over; only if pvn_kernel_tls_check succeeded. */
void pvn_seal_expect_bulk(struct pvn_seal *s, bool by_kernel);
/* After the handshake: true if the kernel has the stream. send, recv, has_pending and export must
 * not be called then, see pvn_sockio_of. */
bool pvn_seal_is_by_kernel(const struct pvn_seal *s);
/* NULL is allowed. Sends nothing. */
void pvn_seal_free(struct pvn_seal *s);

/* Takes a step of the handshake. 0: done, and the other end has the secret; -EAGAIN; -EKEYREJECTED:
 * it has another secret, or bytes were damaged or forged, as *err says; -ENOMSG: the first byte
 * does not begin TLS, and is still in the socket with all that follows; -ECONNRESET: end of the
 * connection; or the socket's error. */
int pvn_seal_handshake(struct pvn_seal *s, struct pvn_err *err);

/* Like send and recv with MSG_DONTWAIT, but they return a negative errno: bytes; 0 (recv: end of
 * stream); -EAGAIN; -EBADMSG: the received bytes are damaged or forged; -ECONNRESET: also if the
 * other end found our bytes so; or the socket's error. A send that returned -EAGAIN has to be
 * repeated with the same bytes, to which more may be appended. Only after the handshake. */
ssize_t pvn_seal_send(struct pvn_seal *s, const void *buf, size_t len);
ssize_t pvn_seal_recv(struct pvn_seal *s, void *buf, size_t len);
/* send and recv for several pieces. sendv: n > 0, and no piece is empty. Short pieces share a
 * record. It sends as many records as the socket takes, 256 KiB at most. recvv fills the pieces. As
 * with a socket, fewer bytes mean that no more have come, except the beginning of a record. */
ssize_t pvn_seal_sendv(struct pvn_seal *s, const struct iovec *iov, int n);
ssize_t pvn_seal_recvv(struct pvn_seal *s, const struct iovec *iov, int n);
/* sendv and recvv of a stream that the kernel has, as entries of a table (sockio.h). fd: the
 * stream's; flags: 0. One thread may send while another one receives, without turns. */
ssize_t pvn_seal_kernel_sendv(int fd, struct pvn_seal *s, struct iovec *iov, int n);
ssize_t pvn_seal_kernel_recvv(int fd, struct pvn_seal *s, struct iovec *iov, int n, int flags);
/* After the end of such a stream: true if it ended within a record. False before. */
bool pvn_seal_kernel_has_pending(const struct pvn_seal *s);
/* True if recv has bytes that were already taken from the socket; after the end: if the stream
 * ended within a record. */
bool pvn_seal_has_pending(const struct pvn_seal *s);

/* Derives a secret that both ends of this stream have and nobody else. After the handshake. 0 or a
 * negative errno. */
int pvn_seal_export(struct pvn_seal *s, const char *label, uint8_t *out, size_t len,
                    struct pvn_err *err);
/* Names the suite, for a person. */
const char *pvn_seal_suite(const struct pvn_seal *s);

/* Sets how many records a stream sends with one key, for tests; 0: the usual number. For streams
 * whose handshake ends later. */
void pvn_seal_rekey_after(uint64_t records);

/* Checks the first bytes from a connector, before anything is done for it. 1: they begin a
 * handshake; 0: too few; -1: they do not. */
int pvn_seal_is_first(const uint8_t *bytes, size_t len);

#endif
