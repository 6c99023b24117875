/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener: where the comms of one device are reached. A connection is unauthenticated until its
 * preamble names the listener's session. Then a control connection becomes a pending connection
 * (handshake.h), and a data connection goes to the pending connection whose nonce it names. An
 * unauthenticated connection is closed if its bytes are no preamble, a second after it has named
 * another session, after HELLO_TIMEOUT, or if it is the oldest and the room for such connections is
 * full. None of that changes a real peer's state or makes it wait.
 *
 * A virtual device has one listening socket per member. The handle has the address of the first
 * one, and the lanes' offers have the others. The first comm that agrees on failover opens more
 * sockets, on other interfaces, whose addresses travel in the HELLO. A comm that is connected
 * through one of these has its lanes on that interface.
 *
 * Threads: any. Connections that nobody takes are closed without the listener's lock. The plugin's
 * answering thread closes only those without lanes, because closing a lane may block in an adapter.
 * A listener outlives its close while a connection needs it: the data connections of a lazy one
 * come in after NCCL's v4 has closed the listener.
 */
#ifndef PVN_CONNECT_LISTENER_H
#define PVN_CONNECT_LISTENER_H

#include "connect/handshake.h"

enum {
    PVN_LISTENER_UNDECIDED = 64, /* connections whose preamble is not complete */
    PVN_LISTENER_UNPROVED = 64   /* with a key: connections whose handshake is not complete */
};

struct pvn_listener;

struct pvn_listener_cfg {
    const struct pvn_device *dev;
    int nports; /* as in struct pvn_conn_cfg */
    const struct pvn_device *port[PVN_MAX_LANES];
    int traffic_class;
    bool lazy;
    bool shared, failover;             /* see struct pvn_conn_cfg */
    const struct pvn_key *key;         /* see struct pvn_conn_cfg; outlives the listener */
    uint64_t (*received)(uint64_t id); /* see struct pvn_conn_cfg */
    /* Devices on other interfaces, at which a comm that has lost its path may be reconnected. */
    int nothers;
    const struct pvn_device *other[PVN_OTHER_ADDRS];
};

/* Counters, for tests and statistics. */
struct pvn_listener_stats {
    uint64_t accepted; /* connections */
    uint64_t rejected; /* closed for wrong bytes, or by the other side, while unauthenticated */
    uint64_t late;     /* closed because their time limit was over */
    uint64_t crowded;  /* closed because the room was full */
    uint64_t streams;  /* data connections handed on */
    /* Connections that named the session, but did not prove the key, or have a key while this
     * process has none. */
    uint64_t unproved;
    uint64_t no_files; /* accept calls that failed for lack of descriptors or memory */
};

/* Returns 0 with *out and its handle in handle[PVN_HANDLE_BYTES], or a negative errno with *err. */
int pvn_listener_open(const struct pvn_listener_cfg *cfg, uint8_t *handle,
                      struct pvn_listener **out, struct pvn_err *err);

/*
 * Returns the next comm's connection, which is then the caller's. 0: *conn is UP (lazy: its HELLO
 * is through), or *conn is NULL: call again. Negative with *err: a peer that had identified itself
 * failed, or nobody connected within ACCEPT_TIMEOUT. If such a peer may take a comm with failover for
 * up, the listener's sockets are closed, unless another comm of this listener is up; later calls
 * return -ECONNABORTED.
 */
int pvn_listener_accept(struct pvn_listener *l, struct pvn_conn **conn, struct pvn_err *err);

/* For a lazy connection that accept has given out. step assigns the connections that have come in,
 * then steps this one, and returns as pvn_conn_step. leave gives the reference back, once the
 * connection is UP, or before it is closed. */
int pvn_listener_step(struct pvn_listener *l, struct pvn_conn *conn);
void pvn_listener_leave(struct pvn_listener *l, struct pvn_conn *conn);

/* A comm that may have to be reconnected keeps its listener, and lets go of it when it ends. */
void pvn_listener_keep(struct pvn_listener *l);
void pvn_listener_let_go(struct pvn_listener *l);
/* Returns a new connection for comm `id` (`resumes` in struct pvn_hello), which is UP; NULL: call
 * again. Closes connections that fail, and sets *why to the reason of the last one; the peer makes
 * others. fallback_only: the comm can go on only with lanes of the fallback transport. */
struct pvn_conn *pvn_listener_resumed(struct pvn_listener *l, uint64_t id, bool fallback_only,
                                      struct pvn_err *why);

/* Like pvn_listener_resumed, for a connection that is set up beside the one in use. *conn has had
 * its HELLO, or is NULL if there is none. The caller steps it without the listener's lock, and
 * calls pvn_listener_leave before it uses or closes it. `conn` may be NULL: no connection is taken
 * then.
 *
 * True if a connection has come that replaces the one in use, because the peer has lost that. Does
 * nothing while another thread steps a connection of this listener. */
bool pvn_listener_beside(struct pvn_listener *l, uint64_t id, struct pvn_conn **conn);

/* Returns the newest connection that the peer made to replace the control connection of the
 * connection with this nonce. The caller owns it. NULL: there is none. */
struct pvn_conn *pvn_listener_control(struct pvn_listener *l, uint64_t nonce);

/* Comm `id` has been closed. Connections that would replace its lanes are answered with a HELLO and
 * with a GOODBYE, which has the number of messages that the comm has received. */
void pvn_listener_dismiss(struct pvn_listener *l, uint64_t id);

/* Assigns the connections that have come in. For the data connections of a connection from
 * pvn_listener_beside. */
void pvn_listener_take_in(struct pvn_listener *l);

/* Closes pending connections, except those for comms that are up, and sends their peers the reason.
 * Gives the caller's reference back. */
void pvn_listener_close(struct pvn_listener *l);

/* Copies the counters. The log reports the first rejected connection, and the number of all at the
 * close. */
void pvn_listener_get_stats(struct pvn_listener *l, struct pvn_listener_stats *out);

#endif
