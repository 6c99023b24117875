/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A connection of a meeting, plain or sealed, used as a whole: each call takes until the deadline (monotonic seconds) at
 * most. One thread; errors are negative errnos. */
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

/* Whole buffers: 0, -ETIMEDOUT, -ECONNRESET or another errno. */
int pvn_boot_line_send(const struct pvn_boot_line *l, const void *data, size_t len,
                       double deadline);
int pvn_boot_line_recv(const struct pvn_boot_line *l, void *data, size_t len, double deadline);
/* The handshake of a sealed one: 0; -EKEYREJECTED and *err says why; or as above. */
int pvn_boot_line_shake(const struct pvn_boot_line *l, double deadline, struct pvn_err *err);

/* Closes and frees both, and leaves fd -1. */
void pvn_boot_line_close(struct pvn_boot_line *l);

#ifdef __cplusplus
}
#endif

#endif
