/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What handshake.c (the table, deadlines, the end), handshake_steps.c (START to HELLO) and
 * handshake_lanes.c (OFFER to READY) share. */
#ifndef PVN_CONNECT_HANDSHAKE_PRIV_H
#define PVN_CONNECT_HANDSHAKE_PRIV_H

#include "connect/handshake.h"

/* Steps return 0 when the state is done with (they have called conn_goto), -EAGAIN, or what
 * conn_fail_now returned. */
int conn_step_start(struct pvn_conn *c);
int conn_step_dial(struct pvn_conn *c);
int conn_step_hello_connector(struct pvn_conn *c);
int conn_step_hello_acceptor(struct pvn_conn *c);
int conn_step_offer_connector(struct pvn_conn *c);
int conn_step_offer_acceptor(struct pvn_conn *c);
int conn_step_bind(struct pvn_conn *c);
int conn_step_verify(struct pvn_conn *c);
int conn_step_ready(struct pvn_conn *c);

/* The state's time is over: lanes that are behind are left out. 0: go on without them; 1: the state
 * is not about lanes; negative: as pvn_conn_fail. */
int conn_late_lanes(struct pvn_conn *c, const char *knob);

/* Queues a frame whose encoder returned len. 0, or a negative errno with *err. */
int conn_put_frame(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, int len,
                   struct pvn_err *err);
/* Writes what is queued. 0 also while the socket is full, or the connection has failed. */
int conn_flush(struct pvn_conn *c);
/* The next frame: 1 and it is one of those in `want` (bits), -EAGAIN, or the connection has failed:
 * the peer gave up, closed, or sent something else. */
int conn_expect(struct pvn_conn *c, unsigned want, enum pvn_frame_type *type, const uint8_t **body,
                size_t *len);

/* The only function that changes state. */
void conn_goto(struct pvn_conn *c, enum pvn_conn_state to);
/* Fills in who, where and the hint of the present state where the error has none, then
 * pvn_conn_fail. */
int conn_fail_now(struct pvn_conn *c, struct pvn_err *err);
/* Words for the peer once more is known about it. */
void conn_name_peer(struct pvn_conn *c);
enum pvn_phase conn_phase(const struct pvn_conn *c);

#endif
