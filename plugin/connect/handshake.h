/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting up a comm's connection: one state machine for both ends, from the first packet to lanes
 * that have carried a round trip (design: START, DIAL, HELLO, OFFER, BIND, VERIFY, READY, UP; then
 * DRAIN, CLOSED; FAILED from anywhere). Each state has a name, a step function per role, the states
 * that may follow and a deadline with its knob; one function changes state and checks.
 *
 *     connector                                  acceptor
 *     DIAL    TCP to the handle's address        (listener: preamble, session, nonce)
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
 * Deadlines count the time in which the caller drives the machine: NCCL's proxy thread may be busy
 * elsewhere for seconds, which is no fault of the peer. Where the peer's own caller has to come
 * first (the connector waits for somebody to call accept; a lazy end of NCCL's v4 interface waits
 * for the first isend), the deadline is ACCEPT_TIMEOUT or none, until the first byte of the peer's
 * answer is there.
 *
 * Threads: one at a time. Nothing blocks.
 */
#ifndef PVN_CONNECT_HANDSHAKE_H
#define PVN_CONNECT_HANDSHAKE_H

#include <stdbool.h>

#include "connect/ctrl.h"
#include "base/poller.h"
#include "connect/sock.h"
#include "stats/stats.h"
#include "connect/transport.h"
#include "connect/wire.h"

enum pvn_conn_state {
    PVN_CONN_START,
    PVN_CONN_DIAL,
    PVN_CONN_HELLO,
    PVN_CONN_OFFER,
    PVN_CONN_BIND,
    PVN_CONN_VERIFY,
    PVN_CONN_READY,
    PVN_CONN_UP,
    PVN_CONN_DRAIN,
    PVN_CONN_CLOSED,
    PVN_CONN_FAILED,
    PVN_CONN_STATES
};

/* Data sockets that may wait for their lane: 8 lanes of 16 streams. */
enum { PVN_CONN_INBOX = 128 };

struct pvn_conn_cfg {
    bool sender;                  /* the connector, which sends data */
    const struct pvn_device *dev; /* as NCCL chose it, perhaps virtual; must outlive the conn */
    int nports;                   /* its physical members */
    const struct pvn_device *port[PVN_MAX_LANES];
    /* Acceptor: where the listener waits for each member. */
    struct sockaddr_storage listen_addr[PVN_MAX_LANES];
    /* connector: the listener; acceptor: the other end of the connection */
    struct sockaddr_storage peer;
    socklen_t peer_len;
    uint64_t session;
    uint64_t nonce;    /* connector: 0, made for every attempt */
    int traffic_class; /* asked for by the communicator at this end, -1: not */
    bool lazy;         /* PVN_FEATURE_LAZY */
};

/* A data socket that came in before its lane asked. */
struct pvn_conn_socket {
    int fd;
    uint8_t lane;
    uint16_t stream;
};

struct pvn_conn {
    struct pvn_conn_cfg cfg;
    enum pvn_conn_state state;
    uint64_t entered_ns; /* when the state was entered, moved on while nobody called */
    uint64_t stepped_ns; /* end of the last call of step */
    uint64_t began_ns;   /* when the first byte of an unfinished frame came, 0: none */
    struct pvn_ctrl ctrl;
    struct pvn_watch *watch; /* of the control socket, from UP on */
    unsigned unwatched;      /* calls of pvn_conn_watch without a watch */
    struct pvn_hello mine, theirs;
    bool hello_seen; /* a valid HELLO has come */
    bool frame_sent; /* this state's frame has been queued */
    bool said_waiting, said_dial;
    unsigned redials; /* connections that the peer closed without an answer */
    unsigned attempts;
    uint64_t redial_ns;  /* not before */
    uint64_t refused_ns; /* first refusal in a row, 0: none */
    int traffic_class;   /* in effect, -1: the system's */
    bool ready_seen;
    uint32_t ready_mask; /* what the peer says works */

    int nlanes; /* own lanes until the pairs are known, then pairs */
    struct pvn_lane *lane[PVN_MAX_LANES];
    struct pvn_lane_args *lane_args; /* PVN_MAX_LANES, of lane[i] at lane_arg[i] */
    int lane_arg[PVN_MAX_LANES];
    unsigned bound, verified, dropped; /* bit per lane */
    uint8_t *peer_blob[PVN_MAX_LANES]; /* until bound */
    size_t peer_blob_len[PVN_MAX_LANES];
    struct pvn_conn_socket *inbox; /* PVN_CONN_INBOX, acceptor until UP */
    int ninbox;

    struct pvn_stat *stat;         /* its row of the statistics, may be NULL */
    bool goodbye;                  /* the peer has closed in good order */
    char who[PVN_ERR_PLACE_LEN];   /* the peer, as well as it is known */
    char where[PVN_ERR_PLACE_LEN]; /* this end */
    struct pvn_err err;            /* FAILED: why */
};

/* NULL with errno ENOMEM. accepted: takes fd, whose preamble has been read. */
struct pvn_conn *pvn_conn_new(const struct pvn_conn_cfg *cfg);
struct pvn_conn *pvn_conn_accepted(const struct pvn_conn_cfg *cfg, int fd);

/* Names both ends in *err: the hosts, and behind them what the lane at fault has put there; where
 * none has, what lane k knows, and the devices at least. k < 0: no lane. Once per error. */
void pvn_conn_locate(const struct pvn_conn *c, int k, struct pvn_err *err);

/* The lanes, each as it describes itself, in one line. From UP on. */
void pvn_conn_lanes_text(const struct pvn_conn *c, char *buf, size_t cap);

/* What they have counted. From UP on. */
void pvn_conn_count(const struct pvn_conn *c, struct pvn_lane_counters *sum);

/* One step: 0 UP, -EAGAIN call again, else FAILED with conn->err. The peer has then been told. */
int pvn_conn_step(struct pvn_conn *c);

/* Connector: its HELLO has been handed to the kernel, so that the peer's accept will find it. */
bool pvn_conn_hello_sent(const struct pvn_conn *c);

/* Acceptor: a data socket for one of its lanes; takes fd in any case. */
void pvn_conn_adopt(struct pvn_conn *c, int lane, int stream, int fd);

/*
 * UP: looks at the control connection, at the cost of one load while it is silent. 0 nothing new, 1
 * the peer said goodbye, negative: *err says what the peer reports or that it is gone; the state
 * stays UP.
 */
int pvn_conn_watch(struct pvn_conn *c, struct pvn_err *err);
/* The same by a system call, whatever the poller says. */
int pvn_conn_listen(struct pvn_conn *c, struct pvn_err *err);

/* Ends the connection with an error of this end, of which the peer hears. FAILED already: nothing.
 * Returns the error's code. */
int pvn_conn_fail(struct pvn_conn *c, const struct pvn_err *err);

/* Ends it in good order if it is UP (the peer gets a GOODBYE), closes all lanes and frees
 * everything. `why`: what the peer is told when it is not UP; NULL: nothing. */
void pvn_conn_close(struct pvn_conn *c, const char *why);

const char *pvn_conn_state_name(enum pvn_conn_state s);
/* Whether the table allows `to` after `from`; for tests. */
bool pvn_conn_may_follow(enum pvn_conn_state from, enum pvn_conn_state to);

#endif
