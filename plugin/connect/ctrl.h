/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The control connection of a comm: frames in both directions over one non-blocking socket. What
 * cannot be written at once is kept and written later; a frame is delivered when its last byte has
 * come. Buffers exist only while they hold something, so an idle comm pays for none.
 *
 * Where there is a key all but the preamble is sealed, from its handshake on (pvn_ctrl_seal).
 */
#ifndef PVN_CONNECT_CTRL_H
#define PVN_CONNECT_CTRL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "connect/path_watch.h"
#include "connect/wire.h"
#include "seal/sockio.h"

struct pvn_ctrl {
    int fd;                /* -1: none; owned */
    struct pvn_seal *seal; /* NULL: plain; owned, from before its handshake on */
    const struct pvn_sockio *io;
    bool eof;
    bool started; /* the first byte of a frame has come, the last one has not */
    uint8_t *tx;
    size_t tx_len, tx_done;
    uint8_t header[PVN_FRAME_HEADER_BYTES];
    size_t header_len;
    struct pvn_frame_header h;
    uint8_t *body;
    size_t body_len;
    struct pvn_path_watch path;
};

void pvn_ctrl_init(struct pvn_ctrl *c, int fd);
/* Reads what the peer still sent, so that closing does not reset the connection under our last
 * frame. */
void pvn_ctrl_close(struct pvn_ctrl *c);

/* c->seal has done its handshake: what comes and goes from now on is sealed. Nothing is queued. */
void pvn_ctrl_seal(struct pvn_ctrl *c);

/* Queues bytes or a frame. 0, or -ENOMEM. */
int pvn_ctrl_put(struct pvn_ctrl *c, const void *bytes, size_t len, struct pvn_err *err);
int pvn_ctrl_put_frame(struct pvn_ctrl *c, enum pvn_frame_type type, const void *body, size_t len,
                       struct pvn_err *err);
/* 0 everything is out, -EAGAIN, or the connection's error. */
int pvn_ctrl_flush(struct pvn_ctrl *c, struct pvn_err *err);

/*
 * The next whole frame: 1 and *type, *body (valid until the next call), *len; -EAGAIN; -EPIPE the
 * peer closed (no byte of a frame had come), -ECONNRESET it closed within a frame; or another
 * error: -EBADMSG if what came is not what the peer has sealed.
 */
int pvn_ctrl_get(struct pvn_ctrl *c, enum pvn_frame_type *type, const uint8_t **body, size_t *len,
                 struct pvn_err *err);

#endif
