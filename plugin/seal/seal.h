/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A sealed stream: TLS 1.3 by OpenSSL over a TCP connection, between two ends that prove to each other that they have
 * the same secret. No certificates, tickets, early data or renegotiation; an ephemeral key exchange in each handshake
 * (psk_dhe_ke), so that who records it and has the key later reads nothing; AES-128-GCM or ChaCha20-Poly1305.
 *
 * Sends and receives with the socket itself do not mix with these. An end of the stream without its alert is an end like
 * any other: what has to be complete says so itself (frames have lengths, a comm's end is a GOODBYE).
 *
 * Threads: one at a time per stream but for send, recv, sendv and recvv, where one thread may send while another one receives;
 * they take turns, each for a record of 16 KiB. Nothing else blocks, and nothing raises SIGPIPE. Each call leaves the thread's queue of
 * OpenSSL errors empty, which the host process may use as well.
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
    PVN_SEAL_FIRST_BYTES =
        6 /* of the connector's first flight, by which pvn_seal_is_first judges */
};

struct pvn_seal;

/* 0, or a negative errno with *err if the OpenSSL that is loaded cannot do this, which is so for good. Any thread. */
int pvn_seal_check(struct pvn_err *err);

/* Frees what all streams have in common, and the library's context, unless there is a stream; the next load makes them again. No
 * other thread uses this or key.h meanwhile. The host process may unload the plugin, and would lose them. */
void pvn_seal_forget(void);
/* In a forked child, where another thread of the parent may have held a lock: what the parent had stays in memory, unused. */
void pvn_seal_after_fork(void);

/* fd: a connected, non-blocking socket; stays the caller's, and open while the stream is used. acceptor: the end that is
 * dialled. The secret is copied. NULL with *err. */
struct pvn_seal *pvn_seal_new(int fd, bool acceptor, const uint8_t secret[PVN_SEAL_SECRET],
                              struct pvn_err *err);
/* Before the handshake, of a stream on which much comes: it is taken from the socket in larger pieces. by_kernel: behind the
 * handshake the kernel seals and opens it, if it takes it over; only where pvn_kernel_tls_check has said that it can. */
void pvn_seal_expect_bulk(struct pvn_seal *s, bool by_kernel);
/* After the handshake: true if the kernel has the stream. send, recv, has_pending and export are then not called any more,
 * see pvn_sockio_of. */
bool pvn_seal_is_by_kernel(const struct pvn_seal *s);
/* NULL is allowed. Sends nothing. */
void pvn_seal_free(struct pvn_seal *s);

/* The handshake: 0 done, and the other end has the secret; -EAGAIN; -EKEYREJECTED: it has another one, or what came was
 * damaged or forged, *err says which; -ENOMSG: the first byte that has come is none of TLS, and it and what follows are still
 * in the socket; -ECONNRESET the end of the connection; or the socket's error. */
int pvn_seal_handshake(struct pvn_seal *s, struct pvn_err *err);

/* As send and recv with MSG_DONTWAIT, but they return a negative errno: bytes, 0 (recv: the end), -EAGAIN, -EBADMSG what
 * came is not what the other end sent, -ECONNRESET also if that is so there, or the socket's error. A send that returned -EAGAIN is repeated with the same
 * bytes and, behind these, perhaps more. Only after the handshake. */
ssize_t pvn_seal_send(struct pvn_seal *s, const void *buf, size_t len);
ssize_t pvn_seal_recv(struct pvn_seal *s, void *buf, size_t len);
/* send and recv for several pieces. sendv: n > 0, none is empty; short pieces share a record, and as many records are sent as the
 * socket takes, 256 KiB at most. recvv: fills the pieces; fewer bytes say, as of a socket, that no more have come, but for the
 * beginning of a record. */
ssize_t pvn_seal_sendv(struct pvn_seal *s, const struct iovec *iov, int n);
ssize_t pvn_seal_recvv(struct pvn_seal *s, const struct iovec *iov, int n);
/* sendv and recvv of a stream that the kernel has, as entries of a table (sockio.h). fd: the stream's; flags: 0. One thread may send while another one receives, at once. */
ssize_t pvn_seal_kernel_sendv(int fd, struct pvn_seal *s, struct iovec *iov, int n);
ssize_t pvn_seal_kernel_recvv(int fd, struct pvn_seal *s, struct iovec *iov, int n, int flags);
/* After the end of such a stream: true if it came in the middle of a record. False before. */
bool pvn_seal_kernel_has_pending(const struct pvn_seal *s);
/* True if recv has bytes that it has taken from the socket already; after the end: it came in the middle of a record. */
bool pvn_seal_has_pending(const struct pvn_seal *s);

/* A secret that both ends of this stream have and nobody else. After the handshake. 0 or a negative errno. */
int pvn_seal_export(struct pvn_seal *s, const char *label, uint8_t *out, size_t len,
                    struct pvn_err *err);
/* The suite in words, for a person. */
const char *pvn_seal_suite(const struct pvn_seal *s);

/* Records that a stream sends with one key, for tests; 0: as usual. For streams whose handshake ends later. */
void pvn_seal_rekey_after(uint64_t records);

/* Judges the first bytes from a connector, before anything is done for it: 1 they are those of a handshake, 0 too few,
 * -1 they are not. */
int pvn_seal_is_first(const uint8_t *bytes, size_t len);

#endif
