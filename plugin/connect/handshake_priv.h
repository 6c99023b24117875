/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The steps that handshake.c drives. handshake_steps.c has START, DIAL and HELLO, handshake_seal.c
 * has SEAL, and handshake_lanes.c has OFFER to READY. */
#ifndef PVN_CONNECT_HANDSHAKE_PRIV_H
#define PVN_CONNECT_HANDSHAKE_PRIV_H

#include "connect/conn.h"

/* Steps return 0 when the state is finished (they have called conn_goto), -EAGAIN, or the result of
 * conn_fail_now. */
int conn_step_start(struct pvn_conn *c);
int conn_step_dial(struct pvn_conn *c);
int conn_step_seal_connector(struct pvn_conn *c);
int conn_step_seal_acceptor(struct pvn_conn *c);
int conn_step_hello_connector(struct pvn_conn *c);
int conn_step_hello_acceptor(struct pvn_conn *c);
int conn_step_offer_connector(struct pvn_conn *c);
int conn_step_offer_acceptor(struct pvn_conn *c);
int conn_step_bind(struct pvn_conn *c);
int conn_step_verify(struct pvn_conn *c);
int conn_step_ready(struct pvn_conn *c);

/* Connector: make_offer makes the lanes and queues the offer; 0, or the connection has failed.
 * withdraw_offer closes the lanes, for another attempt. offer_keeps is true if the offer may wait
 * for the peer. */
bool conn_offer_keeps(const struct pvn_conn *c);
int conn_make_offer(struct pvn_conn *c);
void conn_withdraw_offer(struct pvn_conn *c);

/* Connector: the listener has closed the connection before it read what this end sent. It does so
 * with connections that were silent for too long while its process was busy. True if another
 * attempt is made; the state is DIAL then. */
bool conn_redial(struct pvn_conn *c);

/* Leaves out the lanes that are not ready when the state's time limit `knob` is over, after
 * `waited` ns. 0: go on without them; 1: the state is not about lanes; negative: as
 * pvn_conn_fail. */
int conn_late_lanes(struct pvn_conn *c, const char *knob, uint64_t waited);

#endif
