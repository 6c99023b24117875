/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Plain calls for the bytes of a socket: of a plain connection, and of one that the kernel
 * seals. */
#ifndef PVN_SEAL_PLAIN_H
#define PVN_SEAL_PLAIN_H

#include <sys/types.h>
#include <sys/uio.h>

struct pvn_seal;

/* sendmsg and recvmsg without waiting and without SIGPIPE. They return bytes, 0 (recvv: end of
 * stream), or a negative errno. `seal` is not used: these are entries of a table (sockio.h). flags:
 * MSG_PEEK or 0. The pieces do not change. */
ssize_t pvn_plain_sendv(int fd, struct pvn_seal *seal, struct iovec *iov, int n);
ssize_t pvn_plain_recvv(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags);

#endif
