/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/ctrl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "connect/sock.h"

void pvn_ctrl_init(struct pvn_ctrl *c, int fd)
{
    memset(c, 0, sizeof(*c));
    c->fd = fd;
    c->io = &pvn_sockio_plain;
}

void pvn_ctrl_seal(struct pvn_ctrl *c)
{
    c->io = &pvn_sockio_sealed;
}

void pvn_ctrl_close(struct pvn_ctrl *c)
{
    uint8_t drop[512];
    int i;

    if (c->fd >= 0) {
        for (i = 0; i < 8 && recv(c->fd, drop, sizeof(drop), MSG_DONTWAIT) > 0; i++)
            ;
        pvn_sock_close(c->fd);
    }
    pvn_seal_free(c->seal);
    free(c->tx);
    free(c->body);
    pvn_ctrl_init(c, -1);
}

int pvn_ctrl_put(struct pvn_ctrl *c, const void *bytes, size_t len, struct pvn_err *err)
{
    uint8_t *p = realloc(c->tx, c->tx_len + len);

    if (!p)
        return pvn_err_set(err, -ENOMEM, "no memory for %zu bytes to be sent to the peer", len);
    memcpy(p + c->tx_len, bytes, len);
    c->tx = p;
    c->tx_len += len;
    return 0;
}

int pvn_ctrl_put_frame(struct pvn_ctrl *c, enum pvn_frame_type type, const void *body, size_t len,
                       struct pvn_err *err)
{
    struct pvn_frame_header h = {.type = (uint8_t)type, .len = (uint32_t)len};
    uint8_t buf[PVN_FRAME_HEADER_BYTES];
    int rc;

    pvn_frame_header_encode(buf, &h);
    rc = pvn_ctrl_put(c, buf, sizeof(buf), err);
    if (rc == 0 && len > 0) {
        rc = pvn_ctrl_put(c, body, len, err);
        if (rc)
            c->tx_len -= sizeof(buf); /* the peer would take the next frame for this one's body */
    }
    return rc;
}

int pvn_ctrl_flush(struct pvn_ctrl *c, struct pvn_err *err)
{
    size_t end = c->tx_len - c->tx_held;

    while (c->tx_done < end) {
        ssize_t n = pvn_sockio_send(c->io, c->fd, c->seal, c->tx + c->tx_done, end - c->tx_done);

        if (n == -EAGAIN)
            return -EAGAIN;
        if (n < 0)
            return pvn_err_set(err, (int)n, "sending on the control connection failed");
        c->tx_done += (size_t)n;
    }
    if (c->tx_held)
        return 0;
    free(c->tx);
    c->tx = NULL;
    c->tx_len = c->tx_done = 0;
    return 0;
}

/* Reads until `want` bytes are in buf, of which *have are there already. 0: all are there; -EAGAIN;
 * or an error. */
static int fill(struct pvn_ctrl *c, uint8_t *buf, size_t want, size_t *have, struct pvn_err *err)
{
    while (*have < want) {
        ssize_t n = pvn_sockio_recv(c->io, c->fd, c->seal, buf + *have, want - *have);

        if (n > 0) {
            *have += (size_t)n;
            c->started = true;
            continue;
        }
        if (n == 0) {
            c->eof = true;
            if (c->started)
                return pvn_err_set(err, -ECONNRESET,
                                   "peer closed the control connection within a frame");
            return pvn_err_set(err, -EPIPE, "peer closed the control connection");
        }
        if (n == -EAGAIN)
            return -EAGAIN;
        if (c->seal)
            shutdown(c->fd, SHUT_RDWR); /* so that a poll of the socket reports its end */
        if (n == -EBADMSG)
            return pvn_err_set(err, -EBADMSG,
                               "what came on the control connection is not what the peer sent: it "
                               "was damaged or forged");
        return pvn_err_set(err, (int)n, "receiving on the control connection failed");
    }
    return 0;
}

int pvn_ctrl_get(struct pvn_ctrl *c, enum pvn_frame_type *type, const uint8_t **body, size_t *len,
                 struct pvn_err *err)
{
    int rc;

    if (!c->started) { /* the frame delivered last is not needed any more */
        free(c->body);
        c->body = NULL;
        c->body_len = c->header_len = 0;
    }
    if (c->header_len < sizeof(c->header)) {
        rc = fill(c, c->header, sizeof(c->header), &c->header_len, err);
        if (rc)
            return rc;
        rc = pvn_frame_header_decode(c->header, &c->h, err);
        if (rc)
            return rc;
        /* One byte more than the body, because malloc(0) may return NULL, which means that memory
         * is short. */
        c->body = malloc(c->h.len + 1);
        if (!c->body)
            return pvn_err_set(err, -ENOMEM, "no memory for a frame of %u bytes", c->h.len);
    }
    rc = fill(c, c->body, c->h.len, &c->body_len, err);
    if (rc)
        return rc;
    c->started = false;
    *type = (enum pvn_frame_type)c->h.type;
    *body = c->body;
    *len = c->h.len;
    return 1;
}
