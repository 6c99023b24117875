/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A sealed stream's parts, for the files that move its bytes: seal.c, by OpenSSL, and seal_kernel.c, by the kernel. */
#ifndef PVN_SEAL_SEAL_PRIV_H
#define PVN_SEAL_SEAL_PRIV_H

#include <stdatomic.h>

#include "seal/kernel_tls.h"
#include "seal/seal.h"
#include "seal/ssl_dl.h"

enum {
    RECORD = SSL3_RT_MAX_PLAIN_LENGTH, /* bytes of the longest record: 16 KiB */
    HELD = 64                          /* bytes of the message of a new key, 27, and some */
};

/* The stream's turn, taken in the order of arrival: a thread that seals one record after the other would else keep one out
 * that has an acknowledgement to send. */
struct turn {
    atomic_uint next, current; /* tickets: of who comes next, and of whose turn it is */
};

/* One direction. */
struct direction {
    bool over; /* for good: each further call returns `code` */
    ssize_t code;
    /* The secret of its keys, of a stream that the kernel takes over; has_secret: the handshake has come to it. */
    bool has_secret;
    uint8_t secret[PVN_KERNEL_TLS_SECRET];
};

struct pvn_seal {
    SSL *ssl; /* NULL: the kernel has the stream */
    int fd;
    bool acceptor;
    enum { BY_OPENSSL, TO_KERNEL, BY_KERNEL } by; /* TO_KERNEL: if the handshake's suite allows */
    struct turn turn;
    int code;          /* negative errno of the last call of the socket that failed, 0: none */
    bool end;          /* the other end has closed the connection */
    bool begun;        /* the first byte from there has been looked at */
    bool empty;        /* the last call that received took all that the socket had */
    bool begun_record; /* a send has returned -EAGAIN, and is to be repeated */
    struct direction out, in;
    uint64_t records_per_key;
    uint64_t records;   /* sent with the current key; by the kernel: at least so many */
    bool holds;         /* what OpenSSL writes goes to `held` */
    uint8_t held[HELD]; /* bytes [held_begin, held_end): they go out before what is sent next */
    size_t held_begin, held_end;
    uint8_t secret[PVN_SEAL_SECRET];
};

/* The suite of streams that the kernel takes over. */
#define PVN_SEAL_SUITE_OF_KERNEL "TLS_AES_128_GCM_SHA256"

/* seal_kernel.c: by OpenSSL's callback, a line with a secret of the handshake of a stream that is TO_KERNEL. */
void pvn_seal_note_secret(struct pvn_seal *seal, const char *line);
/* After the handshake of such a stream, by the suite above: it is BY_KERNEL from now on, or stays as it is, for OpenSSL. 0 or a
 * negative errno. */
int pvn_seal_to_kernel(struct pvn_seal *seal, struct pvn_err *err);

#endif
