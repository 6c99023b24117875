/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Connection set-up of a comm: one state machine for both ends, from the first packet to lanes that
 * have carried a round trip. The states are START, DIAL, SEAL, HELLO, OFFER, BIND, VERIFY, READY,
 * UP; then DRAIN, CLOSED; FAILED may follow any of them. Each state has a name, a step function per
 * role, the states that may follow, and a deadline with its parameter. One function changes the
 * state and checks that the change is allowed.
 *
 *     connector                                  acceptor
 *     DIAL    TCP to the handle's address        (listener: preamble, session, nonce)
 *     SEAL    preamble ------------------------>  with a key only; the TLS 1.3 handshake follows,
 *             <------------ handshake ----------->  and everything after it is sealed
 *     HELLO   preamble, HELLO ----------------->
 *             <--------------------------------- HELLO
 *     OFFER   its lanes ----------------------->  (new comm over TCP: with the HELLOs)
 *             <--------------------------------- the pairs it chose, with its own lanes' blobs
 *     BIND    the lanes connect to each other; TCP streams
 *             come in at the listener, which hands them to
 *             their lane
 *     VERIFY  <---------- a round trip on each --------->  a lane that fails is left out and named
 *     READY   <------------ lanes that work ------------>  both keep what works at both ends
 *     UP      data flows over the lanes
 *
 * Deadlines count only the time in which the callers of both ends drive the state machine: NCCL's
 * proxy thread may be busy elsewhere for seconds, and that is no fault of the peer or of the path.
 * Every frame shows that its sender is driven. An end that has had no frame to send for a while
 * sends a BEAT. While the peer sends nothing, the limit is ACCEPT_TIMEOUT. Sometimes the peer's
 * caller has to act first: the connector waits for the peer to call accept, and a lazy end (NCCL's
 * v4 interface) waits for its first isend. The deadline is then ACCEPT_TIMEOUT, or none, until the
 * first byte of the peer's answer has come.
 *
 * Threads: one at a time. No step blocks. Close may block in the adapter of a lane.
 */
#ifndef PVN_CONNECT_HANDSHAKE_H
#define PVN_CONNECT_HANDSHAKE_H

#include <stdbool.h>

#include "connect/conn.h"

/* The features (wire.h) of an end whose connections have these properties, but for those that a
 * single connection has. */
uint64_t pvn_conn_features(bool lazy, bool failover, bool shared, bool has_key);

/* NULL with errno ENOMEM on failure. pvn_conn_accepted takes fd over if it succeeds; the preamble
 * has been read from it. */
struct pvn_conn *pvn_conn_new(const struct pvn_conn_cfg *cfg);
struct pvn_conn *pvn_conn_accepted(const struct pvn_conn_cfg *cfg, int fd);

/* Takes one step. 0: UP; -EAGAIN: call again; other negative values: FAILED, conn->err has the
 * reason, and the peer has been sent it. */
int pvn_conn_step(struct pvn_conn *c);

/* Connector: true once the kernel has this end's HELLO, so that the peer's accept will find it. */
bool pvn_conn_hello_sent(const struct pvn_conn *c);

/* Acceptor: queues a data socket for one of the connection's lanes. Takes fd over in any case. */
void pvn_conn_adopt(struct pvn_conn *c, int lane, int stream, int fd);

/*
 * While UP: polls the control connection, at the cost of one load while nothing comes. Returns 0:
 * nothing new; 1: the peer said GOODBYE; 2: the peer pauses the comm for a failover, and *err says
 * why; 3: the peer pauses it for a better connection, and *err says why; negative: *err says what
 * the peer reports, or that it is gone. The state stays UP.
 */
int pvn_conn_watch(struct pvn_conn *c, struct pvn_err *err);
/* Like pvn_conn_watch, but makes the system call whatever the poller says. */
int pvn_conn_listen(struct pvn_conn *c, struct pvn_err *err);

/* Connection c, which is UP, takes over from `old` and continues its row of the statistics. `old`
 * sends no GOODBYE. */
void pvn_conn_replace(struct pvn_conn *c, struct pvn_conn *old);

/* Ends a connection that is UP in good order: the peer gets a GOODBYE, and the lanes are stopped.
 * When it returns, no memory is read or written any more, so registrations can be given back. Only
 * pvn_conn_close may follow. */
void pvn_conn_stop(struct pvn_conn *c);

/* Stops the connection, closes all lanes and frees everything. If it was not UP, the peer is sent
 * the reason `why`; NULL: none. */
void pvn_conn_close(struct pvn_conn *c, const char *why);

/* pvn_conn_close later, for a caller that must not wait: set_aside adds a connection to the list,
 * take_aside takes connections off it, close_aside closes those. take_aside leaves connections that
 * have lanes in the list, unless with_lanes is set. */
void pvn_conn_set_aside(struct pvn_conn **list, struct pvn_conn *c, const char *why);
struct pvn_conn *pvn_conn_take_aside(struct pvn_conn **list, bool with_lanes);
void pvn_conn_close_aside(struct pvn_conn *list);

#endif
