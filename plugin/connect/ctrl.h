/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The control connection of a comm: frames in both directions over one non-blocking socket. Bytes
 * that the socket does not take at once are kept and written later. A frame is delivered when its
 * last byte has come. Buffers exist only while they hold something, so an idle comm needs none.
 *
 * With a key, everything after the preamble is sealed: the handshake comes first (pvn_ctrl_seal).
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
    size_t tx_held; /* how many of the last bytes of tx flush holds back; set by the owner */
    uint8_t header[PVN_FRAME_HEADER_BYTES];
    size_t header_len;
    struct pvn_frame_header h;
    uint8_t *body;
    size_t body_len;
    struct pvn_path_watch path;
};

void pvn_ctrl_init(struct pvn_ctrl *c, int fd);
/* Closes the connection. Before that it reads what the peer has sent, because a close with unread
 * bytes would reset the connection, and our last frame could be lost. */
void pvn_ctrl_close(struct pvn_ctrl *c);

/* Seals everything that is sent and received from now on. The handshake of c->seal is complete, and
 * nothing is queued. */
void pvn_ctrl_seal(struct pvn_ctrl *c);

/* Queues bytes or a frame, all or nothing. 0, or -ENOMEM. */
int pvn_ctrl_put(struct pvn_ctrl *c, const void *bytes, size_t len, struct pvn_err *err);
int pvn_ctrl_put_frame(struct pvn_ctrl *c, enum pvn_frame_type type, const void *body, size_t len,
                       struct pvn_err *err);
/* 0: everything is written, but for what tx_held holds back; -EAGAIN; or the connection's error. */
int pvn_ctrl_flush(struct pvn_ctrl *c, struct pvn_err *err);

/*
 * Returns 1 with the next whole frame in *type, *body (valid until the next call) and *len;
 * -EAGAIN; -EPIPE: the peer closed between two frames; -ECONNRESET: it closed within a frame;
 * -EBADMSG: the bytes are not those that the peer sealed; or another error.
 */
int pvn_ctrl_get(struct pvn_ctrl *c, enum pvn_frame_type *type, const uint8_t **body, size_t *len,
                 struct pvn_err *err);

#endif
