/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Frames over the control connection: of the set-up, and of a connection that is UP. */
#include "config.h"
#include "connect/conn_priv.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"

int conn_put_frame(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, int len,
                   struct pvn_err *err)
{
    int rc;

    if (len < 0)
        return pvn_err_set(err, len, "%s frame cannot be encoded", pvn_frame_name(type));
    c->ctrl.tx_held = 0; /* what is held goes first */
    rc = pvn_ctrl_put_frame(&c->ctrl, type, body, (size_t)len, err);
    if (rc == 0) {
        c->frame_sent = true;
        c->said_ns = pvn_now_ns();
    }
    return rc;
}

int conn_flush(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT, peers = PVN_ERR_INIT;
    enum pvn_frame_type type;
    const uint8_t *body;
    size_t len;
    char text[PVN_REASON_MAX];
    int rc = pvn_ctrl_flush(&c->ctrl, &err);

    if (rc == 0 || rc == -EAGAIN)
        return 0;
    /* The peer may have sent its reason before it closed. */
    while (pvn_ctrl_get(&c->ctrl, &type, &body, &len, &peers) > 0)
        if (type == PVN_FRAME_ERROR && pvn_reason_decode(body, len, text, NULL) == 0) {
            pvn_err_set(&err, -EREMOTEIO, "the peer gave up: %s", text);
            break;
        }
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    return conn_fail_now(c, &err);
}

void conn_take_goodbye(struct pvn_conn *c, const uint8_t *body, size_t len)
{
    c->goodbye = true;
    c->has_received = pvn_goodbye_decode(body, len);
}

int conn_judge(struct pvn_conn *c, int rc, unsigned want, enum pvn_frame_type type,
               const uint8_t *body, size_t len, struct pvn_err *err)
{
    char text[PVN_REASON_MAX];

    if (rc == -EAGAIN)
        return rc;
    if (rc > 0) {
        if (want >> type & 1)
            return 1;
        if (type == PVN_FRAME_ERROR && pvn_reason_decode(body, len, text, err) == 0) {
            pvn_err_set(err, -EREMOTEIO, "the peer gave up: %s", text);
        } else if (type == PVN_FRAME_GOODBYE) {
            conn_take_goodbye(c, body, len);
            pvn_err_set(err, -ECONNABORTED,
                        "the peer closed while the connection was being set up");
        } else if (type != PVN_FRAME_ERROR) {
            pvn_err_set(err, -EPROTO, "%s frame from the peer in state %s", pvn_frame_name(type),
                        pvn_conn_state_name(c->state));
        }
    }
    if (err->code != -ENOMEM)
        pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    return conn_fail_now(c, err);
}

int conn_expect(struct pvn_conn *c, unsigned want, enum pvn_frame_type *type, const uint8_t **body,
                size_t *len)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc;

    *type = PVN_FRAME_ERROR;
    *body = NULL;
    *len = 0;
    rc = pvn_ctrl_get(&c->ctrl, type, body, len, &err);
    if (rc > 0)
        c->heard_ns = pvn_now_ns();
    if (rc > 0 && *type == PVN_FRAME_BEAT && c->theirs.features & PVN_FEATURE_BEATS)
        return -EAGAIN;
    return conn_judge(c, rc, want, *type, *body, *len, &err);
}

int pvn_conn_send(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, int len,
                  struct pvn_err *err)
{
    int rc = conn_put_frame(c, type, body, len, err);

    if (rc == 0)
        rc = pvn_ctrl_flush(&c->ctrl, err);
    return rc == -EAGAIN ? 0 : rc;
}

void conn_watch_control(struct pvn_conn *c)
{
    char text[PVN_ERR_REASON_LEN];

    c->watch = pvn_poller_add(c->ctrl.fd);
    if (!c->watch)
        pvn_info(PVN_NET,
                 "%s to %s: the control connection cannot be watched by epoll (%s), it is read now "
                 "and then",
                 c->where, c->who, pvn_strerror(errno, text, sizeof(text)));
}

void pvn_conn_confirm(struct pvn_conn *c)
{
    pvn_conn_send(c, PVN_FRAME_BEAT, NULL, 0, NULL);
}

bool pvn_conn_is_confirmed(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    enum pvn_frame_type type;
    const uint8_t *body;
    size_t len;

    return c->state == PVN_CONN_OFFER && pvn_ctrl_get(&c->ctrl, &type, &body, &len, &err) > 0 &&
           type == PVN_FRAME_BEAT;
}

void pvn_conn_replace_control(struct pvn_conn *c, struct pvn_conn *from)
{
    pvn_poller_remove(c->watch);
    pvn_ctrl_close(&c->ctrl);
    c->ctrl = from->ctrl;
    pvn_ctrl_init(&from->ctrl, -1);
    c->queried = c->peer_asks = false;
    conn_watch_control(c);
}

void pvn_conn_goodbye(struct pvn_conn *c)
{
    uint8_t body[8];

    pvn_conn_send(c, PVN_FRAME_GOODBYE, body, pvn_goodbye_encode(body, sizeof(body), c->received),
                  NULL);
}

void pvn_conn_ask(struct pvn_conn *c)
{
    if (c->queried || c->ctrl.eof || !(c->mine.features & c->theirs.features & PVN_FEATURE_ALIVE))
        return;
    c->queried = true;
    c->answered = false;
    pvn_conn_send(c, PVN_FRAME_ASK, NULL, 0, NULL);
}

void pvn_conn_answer(struct pvn_conn *c, uint32_t open)
{
    uint8_t body[8];

    /* A peer that sends ASK and does not read gets no more answers than the socket takes. */
    if (c->ctrl.tx_len > 0 && pvn_ctrl_flush(&c->ctrl, NULL) != 0)
        return;
    c->peer_asks = false;
    pvn_conn_send(c, PVN_FRAME_ALIVE, body, pvn_alive_encode(body, sizeof(body), open), NULL);
}

int pvn_conn_path(struct pvn_conn *c, struct pvn_err *err)
{
    bool outlived = c->cfg.resumes || (c->state == PVN_CONN_UP && pvn_conn_failover(c));
    uint64_t limit = pvn_path_limit(outlived), silent;

    if (limit == 0 || c->ctrl.fd < 0 || c->ctrl.eof)
        return 0;
    silent = pvn_path_silent(&c->ctrl.path, c->ctrl.fd, pvn_now_ns());
    if (silent < limit)
        return 0;
    c->ctrl.eof = true;
    pvn_err_set(err, -ETIMEDOUT,
                "control connection: the peer's machine has acknowledged nothing for %.1f s",
                (double)silent / PVN_NS_PER_S);
    pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    pvn_err_set_hint(err, PVN_HINT_LOST_AFTER_WORKING);
    return err->code;
}

bool pvn_conn_answers(const struct pvn_conn *c)
{
    return c->cfg.nports == 1 && (c->queried || c->answered) && !c->ctrl.eof &&
           pvn_path_answers(c->ctrl.fd);
}

bool pvn_conn_has_input(const struct pvn_conn *c)
{
    uint8_t byte;

    return c->ctrl.started || c->ctrl.fd < 0 || c->ctrl.eof ||
           c->ctrl.io->has_pending(c->ctrl.seal) ||
           recv(c->ctrl.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

int pvn_conn_expect(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t **body, size_t *len,
                    struct pvn_err *err)
{
    enum pvn_frame_type got;
    char text[PVN_REASON_MAX];
    int rc = pvn_ctrl_flush(&c->ctrl, err);

    if (rc && rc != -EAGAIN)
        return rc;
    rc = pvn_ctrl_get(&c->ctrl, &got, body, len, err);
    if (rc == -EAGAIN && pvn_conn_path(c, err) != 0)
        return err->code;
    if (rc <= 0 || got == type)
        return rc;
    if (got == PVN_FRAME_BEAT && c->theirs.features & PVN_FEATURE_BEATS)
        return -EAGAIN;
    if (got == PVN_FRAME_GOODBYE) {
        conn_take_goodbye(c, *body, *len);
        pvn_err_set(err, -ECONNABORTED, "the peer has closed the new connection");
    } else if (got == PVN_FRAME_ERROR && pvn_reason_decode(*body, *len, text, err) == 0) {
        pvn_err_set(err, -EREMOTEIO, "the peer gave up: %s", text);
    } else {
        pvn_err_set(err, -EPROTO, "%s frame where %s was expected", pvn_frame_name(got),
                    pvn_frame_name(type));
    }
    pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    return err->code;
}
