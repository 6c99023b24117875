/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting up a comm's connection: one state machine for both ends, from the first packet to lanes
 * that have carried a round trip (design: START, DIAL, SEAL, HELLO, OFFER, BIND, VERIFY, READY, UP; then
 * DRAIN, CLOSED; FAILED from anywhere). Each state has a name, a step function per role, the states
 * that may follow and a deadline with its knob; one function changes state and checks.
 *
 *     connector                                  acceptor
 *     DIAL    TCP to the handle's address        (listener: preamble, session, nonce)
 *     SEAL    preamble ------------------------>  with a key only; then a handshake of TLS 1.3, behind
 *             <------------ handshake ----------->  which all is sealed
 *     HELLO   preamble, HELLO ----------------->
 *             <--------------------------------- HELLO
 *     OFFER   its lanes ----------------------->
 *             <--------------------------------- the pairs it chose, with its own lanes' blobs
 *     BIND    the lanes connect to each other; TCP streams
 *             come in at the listener, which hands them to
 *             their lane
 *     VERIFY  <---------- a round trip on each --------->  a lane that fails is left out and named
 *     READY   <------------ lanes that work ------------>  both keep what works at both ends
 *     UP      data flows over the lanes
 *
 * Deadlines count the time in which the callers of both ends drive the machine: NCCL's proxy thread
 * may be busy elsewhere for seconds, which is no fault of the peer or of the path. An end that is
 * driven says so by its frames, and by a BEAT when it has had none to send for a while; while the
 * peer sends nothing, the limit is ACCEPT_TIMEOUT. Where the peer's own caller has to come first
 * (the connector waits for somebody to call accept; a lazy end of NCCL's v4 interface waits for the
 * first isend), the deadline is ACCEPT_TIMEOUT or none, until the first byte of the peer's answer
 * is there.
 *
 * Threads: one at a time. Nothing blocks.
 */
#ifndef PVN_CONNECT_HANDSHAKE_H
#define PVN_CONNECT_HANDSHAKE_H

#include <stdbool.h>

#include "connect/conn.h"

/* NULL with errno ENOMEM. accepted: takes fd, whose preamble has been read. */
struct pvn_conn *pvn_conn_new(const struct pvn_conn_cfg *cfg);
struct pvn_conn *pvn_conn_accepted(const struct pvn_conn_cfg *cfg, int fd);

/* One step: 0 UP, -EAGAIN call again, else FAILED with conn->err. The peer has then been sent the reason. */
int pvn_conn_step(struct pvn_conn *c);

/* Connector: its HELLO has been handed to the kernel, so that the peer's accept will find it. */
bool pvn_conn_hello_sent(const struct pvn_conn *c);

/* Acceptor: a data socket for one of its lanes; takes fd in any case. */
void pvn_conn_adopt(struct pvn_conn *c, int lane, int stream, int fd);

/*
 * UP: looks at the control connection, at the cost of one load while it is silent. 0 nothing new, 1
 * the peer said goodbye, 2 it pauses the comm for a failover and *err says why, 3
 * the same for a better connection, negative: *err says what the peer reports or that it is gone;
 * the state stays UP.
 */
int pvn_conn_watch(struct pvn_conn *c, struct pvn_err *err);
/* pvn_conn_watch by a system call, whatever the poller says. */
int pvn_conn_listen(struct pvn_conn *c, struct pvn_err *err);

/* c, which is UP, takes over from old, and goes on with its row of the statistics. */
void pvn_conn_replace(struct pvn_conn *c, struct pvn_conn *old);

/* Ends it in good order if it is UP: the peer gets a GOODBYE, and the lanes are stopped. From then on
 * no memory is read or written, so registrations can be given back. Only close follows. */
void pvn_conn_stop(struct pvn_conn *c);

/* Stops it, closes all lanes and frees everything. `why`: the reason that the peer is sent when it
 * is not UP; NULL: none. */
void pvn_conn_close(struct pvn_conn *c, const char *why);

/* pvn_conn_close later, for a caller that must not wait. take: those with lanes stay in the list, except
 * with_lanes. */
void pvn_conn_set_aside(struct pvn_conn **list, struct pvn_conn *c, const char *why);
struct pvn_conn *pvn_conn_take_aside(struct pvn_conn **list, bool with_lanes);
void pvn_conn_close_aside(struct pvn_conn *list);

#endif
