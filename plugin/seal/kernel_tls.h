/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.3 by the kernel, for connections whose handshake is complete: Linux's "tls" on top of a TCP
 * socket (Documentation/networking/tls.rst), AES-128-GCM. The kernel seals what is sent, and opens
 * what comes. Data that it has accepted may wait there for room, and a close drops them.
 *
 * A key may seal a limited number of records (see seal.c). So a kernel that cannot change the keys
 * of a connection is not used; Linux can from version 6.14 on.
 */
#ifndef PVN_SEAL_KERNEL_TLS_H
#define PVN_SEAL_KERNEL_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
    PVN_KERNEL_TLS_SECRET = 32, /* bytes of the secret of one direction (RFC 8446, section 7.1) */
    /* Types of records (RFC 8446, appendix B.1) */
    PVN_RECORD_ALERT = 21,
    PVN_RECORD_HANDSHAKE = 22
};

/* Tries kernel TLS on a connection of this process with itself over 127.0.0.1, once per process. 0,
 * or a negative errno with the reason in *err. Loads the kernel's module if the process may.
 * OpenSSL has been loaded. Any thread. */
int pvn_kernel_tls_check(struct pvn_err *err);

/* Puts "tls" on top of a connected socket, which changes nothing before a key is set. 0 or a negative errno. */
int pvn_kernel_tls_attach(int fd);
/* Sets the first key of a direction, or the next one, derived from its secret. out: the direction
 * in which this end sends. Records are counted from 0. 0; -EBUSY: this kernel cannot change a key;
 * or another negative errno. */
int pvn_kernel_tls_set_key(int fd, bool out, const uint8_t secret[PVN_KERNEL_TLS_SECRET]);
/* Replaces a secret by the one that follows it (RFC 8446, section 7.2). 0 or a negative errno. */
int pvn_kernel_tls_next_secret(uint8_t secret[PVN_KERNEL_TLS_SECRET]);

/* One record of a type other than data. send returns its number of bytes: it sends all or none.
 * recv takes the next received record, which recv(2) refuses with EIO, and sets *type. Otherwise
 * both return a negative errno; -EAGAIN: not now. */
ssize_t pvn_kernel_tls_send_record(int fd, uint8_t type, const void *buf, size_t len);
ssize_t pvn_kernel_tls_recv_record(int fd, uint8_t *type, void *buf, size_t len);

#endif
