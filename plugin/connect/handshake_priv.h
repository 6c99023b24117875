/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The steps that handshake.c drives: handshake_steps.c has START to HELLO but for SEAL, which handshake_seal.c has,
 * handshake_lanes.c OFFER to READY. */
#ifndef PVN_CONNECT_HANDSHAKE_PRIV_H
#define PVN_CONNECT_HANDSHAKE_PRIV_H

#include "connect/conn.h"

/* Steps return 0 when the state is done with (they have called conn_goto), -EAGAIN, or what
 * conn_fail_now returned. */
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

/* Connector: the listener has closed the connection before it read what this end has sent, as it does with connections that
 * are silent for too long while its process is busy. True: worth another try, and DIAL is next. */
bool conn_redial(struct pvn_conn *c);

/* The state's time is over, for it has lasted so long: lanes that are behind are left out. 0: go on
 * without them; 1: the state is not about lanes; negative: as pvn_conn_fail. */
int conn_late_lanes(struct pvn_conn *c, const char *knob, uint64_t waited);

#endif
