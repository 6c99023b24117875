/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.3 by the kernel, for connections whose handshake is over: Linux's "tls" on top of a TCP socket
 * (Documentation/networking/tls.rst), AES-128-GCM. What is sent is then sealed by the kernel, and what comes is opened by it. A send
 * that was accepted may wait in the kernel for room, and a close drops it then.
 *
 * A key may seal so much only (see seal.c), so a kernel that cannot exchange the keys of a connection is not used:
 * Linux can from version 6.14 on.
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

/* Tries it on a connection of this process with itself over 127.0.0.1, once per process: 0, or a negative errno with *err,
 * why not. Loads the kernel's module where the process may. OpenSSL has been loaded. Any thread. */
int pvn_kernel_tls_check(struct pvn_err *err);

/* Puts "tls" on top of a connected socket, which changes nothing before a key is set. 0 or a negative errno. */
int pvn_kernel_tls_attach(int fd);
/* Sets the first key of a direction, or the next one, out of its secret; out: of what this end sends. Records are counted from
 * 0. 0, -EBUSY: this kernel cannot exchange a key, or another negative errno. */
int pvn_kernel_tls_set_key(int fd, bool out, const uint8_t secret[PVN_KERNEL_TLS_SECRET]);
/* The secret that follows this one, in its place (RFC 8446, section 7.2). 0 or a negative errno. */
int pvn_kernel_tls_next_secret(uint8_t secret[PVN_KERNEL_TLS_SECRET]);

/* One record of a type other than data. send: its bytes, all or none. recv: those of the one at the head of what has come,
 * which recv(2) refuses by EIO; *type: its type. Both return a negative errno otherwise, -EAGAIN: not now. */
ssize_t pvn_kernel_tls_send_record(int fd, uint8_t type, const void *buf, size_t len);
ssize_t pvn_kernel_tls_recv_record(int fd, uint8_t *type, void *buf, size_t len);

#endif
