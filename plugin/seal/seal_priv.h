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
    HELD = 64                          /* bytes of a KeyUpdate message, 27, and some more */
};

/* The stream's turn, a lock taken in the order of arrival. Otherwise a thread that seals one record
 * after the other would keep out one that has an acknowledgement to send. */
struct turn {
    atomic_uint next, current; /* tickets: the next one, and the one whose turn it is */
};

/* One direction of a stream. */
struct direction {
    bool over; /* ended for good: each further call returns `code` */
    ssize_t code;
    /* The secret of this direction's keys, for a stream that the kernel takes over. has_secret: the
     * handshake has derived it. */
    bool has_secret;
    uint8_t secret[PVN_KERNEL_TLS_SECRET];
};

struct pvn_seal {
    SSL *ssl; /* NULL: the kernel has the stream */
    int fd;
    bool acceptor;
    enum { BY_OPENSSL, TO_KERNEL, BY_KERNEL } by; /* TO_KERNEL: if the suite allows */
    struct turn turn;
    int code;          /* negative errno of the last socket call that failed, 0: none */
    bool end;          /* the other end has closed the connection */
    bool begun;        /* the first byte from there has been checked */
    bool empty;        /* the last receive took all that the socket had */
    bool begun_record; /* a send has returned -EAGAIN and has to be repeated */
    struct direction out, in;
    uint64_t records_per_key;
    /* Sent with the current key; by the kernel: estimated from each call's bytes. */
    uint64_t records;
    bool holds;         /* OpenSSL's output goes to `held` */
    uint8_t held[HELD]; /* bytes [held_begin, held_end), which go out before all others */
    size_t held_begin, held_end;
    uint8_t secret[PVN_SEAL_SECRET];
};

/* The suite of streams that the kernel takes over. */
#define PVN_SEAL_SUITE_OF_KERNEL "TLS_AES_128_GCM_SHA256"

/* seal_kernel.c. OpenSSL's callback has a line with a secret of the handshake, for a stream that is
 * TO_KERNEL. */
void pvn_seal_note_secret(struct pvn_seal *seal, const char *line);
/* Called after the handshake of such a stream, with the suite above. The stream is BY_KERNEL from
 * now on, or stays OpenSSL's. 0 or a negative errno. */
int pvn_seal_to_kernel(struct pvn_seal *seal, struct pvn_err *err);

#endif
