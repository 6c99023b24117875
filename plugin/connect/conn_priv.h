/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the handshake's files: parts of conn.c (state and failure) and conn_frame.c (frames). */
#ifndef PVN_CONNECT_CONN_PRIV_H
#define PVN_CONNECT_CONN_PRIV_H

#include "connect/conn.h"

/* The only function that changes state. */
void conn_goto(struct pvn_conn *c, enum pvn_conn_state to);
/* Completes *err with both ends and the hint of the present state, if it has none, then calls
 * pvn_conn_fail. */
int conn_fail_now(struct pvn_conn *c, struct pvn_err *err);
/* Updates the peer's name in messages once more is known about it. */
void conn_name_peer(struct pvn_conn *c);
/* Names the step of the present state that is not done yet, and so which end has to act; for
 * messages. */
const char *conn_doing(const struct pvn_conn *c);
/* In DIAL: writes why the last attempt failed, with the hint for it. False, and "": none has
 * failed. */
bool conn_last_attempt(const struct pvn_conn *c, char *buf, size_t cap);
/* Puts the state into the connection's row of the statistics. */
void conn_publish(struct pvn_conn *c);
/* Sends the peer an ERROR frame with this text, as far as the socket takes it. */
void conn_report(struct pvn_conn *c, const char *text);

/* The device of lane k, and words for the lane in messages. */
const struct pvn_device *conn_lane_device(const struct pvn_conn *c, int k);
void conn_lane_name(const struct pvn_conn *c, int k, char *buf, size_t cap);

/* Queues a frame whose encoder returned len. 0, or a negative errno with *err. */
int conn_put_frame(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, int len,
                   struct pvn_err *err);
/* Writes the queued frames. 0, also if the socket is full; else the connection has failed. */
int conn_flush(struct pvn_conn *c);
/* Takes the next frame: 1: its type is in `want` (bits); -EAGAIN; or the connection has failed,
 * because the peer gave up, closed, or sent another frame. */
int conn_expect(struct pvn_conn *c, unsigned want, enum pvn_frame_type *type, const uint8_t **body,
                size_t *len);
/* The part of conn_expect that follows pvn_ctrl_get, whose result is rc. The frame is valid if rc
 * is 1. */
int conn_judge(struct pvn_conn *c, int rc, unsigned want, enum pvn_frame_type type,
               const uint8_t *body, size_t len, struct pvn_err *err);
/* Has the poller watch the control socket. */
void conn_watch_control(struct pvn_conn *c);
/* Records the contents of a GOODBYE. */
void conn_take_goodbye(struct pvn_conn *c, const uint8_t *body, size_t len);

#endif
