/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A connection of a rendezvous, plain or sealed, with blocking calls: each takes at most until the
 * deadline (monotonic seconds). One thread; errors are negative errnos. */
#ifndef PVN_TOOLS_BOOT_LINE_H
#define PVN_TOOLS_BOOT_LINE_H

#include "seal/seal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_boot_line {
    int fd;                /* does not block */
    struct pvn_seal *seal; /* NULL: plain */
};

/* Send and receive whole buffers: 0, -ETIMEDOUT, -ECONNRESET or another errno. */
int pvn_boot_line_send(const struct pvn_boot_line *l, const void *data, size_t len,
                       double deadline);
int pvn_boot_line_recv(const struct pvn_boot_line *l, void *data, size_t len, double deadline);
/* Does the handshake of a sealed connection: 0, -EKEYREJECTED with *err, or an error as above. */
int pvn_boot_line_shake(const struct pvn_boot_line *l, double deadline, struct pvn_err *err);

/* Closes fd, frees seal, and sets fd to -1. */
void pvn_boot_line_close(struct pvn_boot_line *l);

#ifdef __cplusplus
}
#endif

#endif
