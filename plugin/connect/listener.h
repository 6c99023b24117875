/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener: where the comms of one device are reached. A connection is unauthenticated until its
 * preamble names the listener's session. Then a control connection starts a pending conn
 * (handshake.h), and a data connection goes to the conn whose nonce it names. An unauthenticated
 * one is closed when it is no preamble, a second after it has named another session, after
 * HELLO_TIMEOUT, or when the room for such connections is full and it is the oldest. None of that touches a real peer's state or makes it wait.
 *
 * A virtual device has one listening socket per member; the first one's address is in the handle,
 * the others travel in the lanes' offers. With the first comm that agrees on failover there are
 * more, on other interfaces, whose addresses travel in the HELLO: a comm that is connected through
 * one of these has its lanes on that interface.
 *
 * Threads: any. Connections that nobody takes are closed without its lock, and by the plugin's answering
 * thread only where they have no lanes, whose end may block in an adapter. The listener outlives its close while a conn still needs it (a lazy conn's data
 * connections come in after NCCL's v4 has closed the listener).
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
    bool shared, failover;             /* of struct pvn_conn_cfg */
    const struct pvn_key *key;         /* of struct pvn_conn_cfg; outlives the listener */
    uint64_t (*received)(uint64_t id); /* of struct pvn_conn_cfg */
    /* Devices of other interfaces, where a comm that has lost its path may be connected again. */
    int nothers;
    const struct pvn_device *other[PVN_OTHER_ADDRS];
};

/* Counters, for tests and statistics. */
struct pvn_listener_stats {
    uint64_t accepted; /* connections */
    uint64_t rejected; /* of them closed for wrong bytes, or by the other side, unauthenticated */
    uint64_t late;     /* closed because their time was over */
    uint64_t crowded;  /* closed because the room was full */
    uint64_t streams;  /* data connections handed on */
    uint64_t
        unproved; /* that named the session and did not prove the key, or have one that is not here */
    uint64_t no_files; /* accept calls that failed for lack of descriptors or memory */
};

/* 0 and *out with its handle in handle[PVN_HANDLE_BYTES], or a negative errno with *err. */
int pvn_listener_open(const struct pvn_listener_cfg *cfg, uint8_t *handle,
                      struct pvn_listener **out, struct pvn_err *err);

/*
 * The next comm: 0 with *conn UP (lazy: its HELLO is through), or *conn NULL: call again. Negative
 * with *err: a peer that had said who it is failed, or nobody came within ACCEPT_TIMEOUT. The conn
 * is the caller's.
 */
int pvn_listener_accept(struct pvn_listener *l, struct pvn_conn **conn, struct pvn_err *err);

/* For a lazy conn that accept has given out: assigns what has come in, then steps the conn; returns
 * as pvn_conn_step. Once it is UP, or before it is closed, pvn_listener_leave gives the reference
 * back. */
int pvn_listener_step(struct pvn_listener *l, struct pvn_conn *conn);
void pvn_listener_leave(struct pvn_listener *l, struct pvn_conn *conn);

/* A comm that may have to be connected again keeps its listener, and lets go of it at its end. */
void pvn_listener_keep(struct pvn_listener *l);
void pvn_listener_let_go(struct pvn_listener *l);
/* A new connection for comm `id` (struct pvn_hello, resumes), which is UP, or NULL: call again. Connections that fail are closed, and *why is the reason of
 * the last one; the peer makes others. fallback_only: the comm can go on with lanes of the fallback transport only. */
struct pvn_conn *pvn_listener_resumed(struct pvn_listener *l, uint64_t id, bool fallback_only,
                                      struct pvn_err *why);

/* pvn_listener_resumed for a connection that is set up beside the connection in use: *conn has had its HELLO and is the
 * caller's to step, without the listener's lock, and to leave before it is closed or used; conn NULL:
 * none is taken. True: there is one that is to replace the connection in use, so the peer has lost
 * that. Does nothing while another thread steps a conn of this listener. */
bool pvn_listener_beside(struct pvn_listener *l, uint64_t id, struct pvn_conn **conn);

/* The newest connection that is to be the control connection of the one with this nonce, for the
 * caller to use; NULL: there is none. */
struct pvn_conn *pvn_listener_control(struct pvn_listener *l, uint64_t nonce);

/* Comm `id` has been closed: connections that would replace its lanes get their HELLO, and a GOODBYE
 * with the number of messages that it has received. */
void pvn_listener_dismiss(struct pvn_listener *l, uint64_t id);

/* Assigns what has come in: for the data connections of such a conn. */
void pvn_listener_take_in(struct pvn_listener *l);

/* Closes pending conns, except those for comms that are up; their peers get the reason. Gives the caller's reference back. */
void pvn_listener_close(struct pvn_listener *l);

/* Rejected connections are reported once and summed up when the listener is closed. */
void pvn_listener_get_stats(struct pvn_listener *l, struct pvn_listener_stats *out);

#endif
