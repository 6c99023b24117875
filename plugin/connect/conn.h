/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm's connection as such: its states, what it consists of, and how it fails. handshake.h says
 * how it comes up.
 */
#ifndef PVN_CONNECT_CONN_H
#define PVN_CONNECT_CONN_H

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/poller.h"
#include "connect/ctrl.h"
#include "connect/sock.h"
#include "connect/transport.h"
#include "connect/wire.h"
#include "stats/stats.h"

/* The states; conn.c has which may follow which, handshake.c the steps and
 * deadlines. */
enum pvn_conn_state {
    PVN_CONN_START,  /* connector: nothing is done yet */
    PVN_CONN_DIAL,   /* connector: get a TCP connection to the listener named in the handle */
    PVN_CONN_SEAL,   /* with a key: both ends prove it, and seal the control connection */
    PVN_CONN_HELLO,  /* learn who the peer is and which wire version both speak */
    PVN_CONN_OFFER,  /* make this end's lanes, learn the peer's, agree on the pairs */
    PVN_CONN_BIND,   /* connect each lane to its pair with what the peer's offer says of it */
    PVN_CONN_VERIFY, /* prove each lane by a round trip; leave out those that fail */
    PVN_CONN_READY,  /* agree on the lanes that work at both ends */
    PVN_CONN_UP,     /* data flows; the control connection is watched for the peer's end */
    PVN_CONN_DRAIN,  /* close in good order: the peer gets a GOODBYE */
    PVN_CONN_CLOSED, /* everything is given back */
    PVN_CONN_FAILED, /* the reason is in err and has been sent to the peer; only close is left */
    PVN_CONN_STATES
};

/* Data sockets that may wait for their lane: 8 lanes of 16 streams. */
enum { PVN_CONN_INBOX = 128 };

/* Gaps between calls of accept or step that are longer do not count against its time limit. */
#define PVN_AWAY_NS (PVN_NS_PER_S / 2)

struct pvn_key;
struct pvn_listen_sockets;

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
    /* Connector: another address of the listener, dialled in turn with `peer`; of the same length. */
    bool has_instead;
    struct sockaddr_storage instead;
    uint64_t session;
    uint64_t nonce;            /* connector: 0, made for every attempt */
    const struct pvn_key *key; /* both ends prove it; NULL: none. Outlives the conn */
    bool peer_has_key;         /* connector: as the listener's handle says */
    int traffic_class;         /* requested by the communicator at this end, -1: not */
    bool lazy;                 /* PVN_FEATURE_LAZY */
    bool shared;               /* PVN_FEATURE_SHARED; the same for all connections of a comm */
    uint64_t resumes;          /* connector: of struct pvn_hello */
    bool failover;             /* requested by this end: the comm outlives its lanes */
    /* Connector, with failover: devices at whose addresses its process can be seen (presence.h). */
    int nseen;
    const struct pvn_device *seen[PVN_OTHER_ADDRS];
    /* Takes another path than the comm's first one. Acceptor: known from the HELLO. */
    bool away;
    /* Set up beside the connection in use, by another thread. Acceptor: known from the HELLO. */
    bool beside;
    /* Only to be the control connection of one whose nonce `resumes` has: it gets no further than
     * HELLO, so it has no lanes. Acceptor: known from the HELLO. */
    bool control;
    /* Acceptor: what a comm has received, for the HELLO; may be NULL. From any thread. */
    uint64_t (*received)(uint64_t id);
    /* Acceptor: the listener's. Where failover is agreed, the HELLO says where else it can be reached. */
    struct pvn_listen_sockets *sockets;
    bool no_fallback;   /* lanes of TCP are no gain */
    bool fallback_only; /* acceptor: the comm holds messages that other lanes cannot take over */
};

/* A data socket that came in before its lane was ready for it. */
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
    uint64_t heard_ns;   /* when the peer last sent a frame, moved on while nobody called */
    uint64_t said_ns;    /* when this end last sent a frame */
    struct pvn_ctrl ctrl;
    struct pvn_watch *watch; /* of the control socket, from UP on */
    unsigned unwatched;      /* calls of pvn_conn_watch without a watch */
    struct pvn_hello mine, theirs;
    bool hello_seen; /* a valid HELLO has come */
    bool in_clear;   /* SEAL, connector: the listener refuses without a handshake */
    uint8_t streams[PVN_SECRET_BYTES]; /* with a key, from HELLO on: of data connections' tokens */
    bool frame_sent;                   /* this state's frame has been queued */
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
    uint8_t lane_number[PVN_MAX_LANES]; /* of lane[i] as it was made, in offers */
    unsigned bound, verified, dropped;  /* bit per lane */
    uint8_t *peer_blob[PVN_MAX_LANES];  /* until bound */
    size_t peer_blob_len[PVN_MAX_LANES];
    pthread_mutex_t inbox_lock;    /* the listener fills it */
    struct pvn_conn_socket *inbox; /* PVN_CONN_INBOX, acceptor until UP */
    int ninbox;

    bool queried;  /* a query whether the peer is alive has no answer yet */
    bool answered; /* it has, with so many open requests */
    uint32_t peer_open;
    bool peer_asks; /* whether this end is alive */

    struct pvn_stat *stat; /* its row of the statistics, may be NULL */
    bool goodbye;          /* the peer has closed in good order */
    bool dismissed;        /* it was set up for a comm that has been closed, and the peer knows */
    uint64_t received;     /* for this end's GOODBYE, see wire.h */
    uint64_t has_received; /* by the peer's */
    bool replaced;         /* close: another connection has taken over, the peer hears nothing */
    bool present;          /* holds what presence.h has */
    struct pvn_conn *next_aside; /* see pvn_conn_set_aside */
    const char *why_aside;
    char who[PVN_ERR_PLACE_LEN];   /* the peer, as well as it is known */
    char where[PVN_ERR_PLACE_LEN]; /* this end */
    struct pvn_err err; /* FAILED: why; DIAL: the last attempt's, code 0: none has failed */
};

/* Names both ends in *err: the hosts, and behind them what the lane at fault has put there; where
 * none has, what lane k knows, and the devices at least. k < 0: no lane. Once per error. */
void pvn_conn_locate(const struct pvn_conn *c, int k, struct pvn_err *err);

/* Ends the connection with an error of this end, which the peer is sent, and fences its lanes: when
 * it returns, no memory that was posted is read or written any more. FAILED already: nothing.
 * Returns the error's code. */
int pvn_conn_fail(struct pvn_conn *c, const struct pvn_err *err);

/* The lanes, each as it describes itself, in one line. From UP on. */
void pvn_conn_lanes_text(const struct pvn_conn *c, char *buf, size_t cap);

/* The lanes' counters. From UP on. */
void pvn_conn_count(const struct pvn_conn *c, struct pvn_lane_counters *sum);

/* True if both ends request that the comm outlive its lanes. From OFFER on. */
bool pvn_conn_failover(const struct pvn_conn *c);
/* And, with it, whether its control connection may be replaced alone. */
bool pvn_conn_keeps(const struct pvn_conn *c);
/* And, with it, whether it may come back to better lanes. */
bool pvn_conn_failback(const struct pvn_conn *c);
/* True if both ends verify lanes with full-size packets where that is required. From OFFER on. */
bool pvn_conn_large(const struct pvn_conn *c);
/* True if data over TCP are sealed. From OFFER on. */
bool pvn_conn_seals_data(const struct pvn_conn *c);
/* True if ranks may share the comm, so that all its lanes have clear-to-send. From OFFER on. */
bool pvn_conn_shared(const struct pvn_conn *c);
/* How good the lanes and their path are, to be compared with what the same comm had. From UP on. */
int pvn_conn_worth(const struct pvn_conn *c);
/* True if that worth is one of lanes among which there is a faster kind than the fallback. */
bool pvn_conn_worth_is_fast(int worth);

/*
 * Frames while UP, for a failover. Send: 0 queued, and written as far as the socket takes it; len
 * is what an encoder returned. Expect: 1 a frame of this type, -EAGAIN, else *err: the peer's error
 * frame, its GOODBYE (as `goodbye` says then), its end, or another frame.
 */
int pvn_conn_send(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, int len,
                  struct pvn_err *err);
int pvn_conn_expect(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t **body, size_t *len,
                    struct pvn_err *err);

/* A connection that is for this alone: the connector has the acceptor's HELLO, and says so; the
 * acceptor uses it after that only. */
void pvn_conn_confirm(struct pvn_conn *c);
bool pvn_conn_is_confirmed(struct pvn_conn *c);
/* While UP: the control connection of `from`, such a connection, becomes that of c. The caller closes
 * what is left of `from`. */
void pvn_conn_replace_control(struct pvn_conn *c, struct pvn_conn *from);

/* In any state: this end has closed its comm, and has `received` so many messages. */
void pvn_conn_goodbye(struct pvn_conn *c);

/* While UP: asks the peer whether it is alive, and answers it with the number of open requests; see
 * `queried` and `peer_asks`. A peer that does not know these frames is not queried. */
void pvn_conn_ask(struct pvn_conn *c);
void pvn_conn_answer(struct pvn_conn *c, uint32_t open);

/*
 * Looks if the peer's machine still answers on the control connection: 0, or -ETIMEDOUT, once, when it has answered
 * nothing for TCP_USER_TIMEOUT. For waits that do not call step, listen or expect, which look by themselves.
 */
int pvn_conn_path(struct pvn_conn *c, struct pvn_err *err);
/* True if it has answered since it was queried (ask). */
bool pvn_conn_answers(const struct pvn_conn *c);

/* True if expect has something to look at, the peer's end included. */
bool pvn_conn_has_input(const struct pvn_conn *c);

const char *pvn_conn_state_name(enum pvn_conn_state s);
/* True if the table allows `to` after `from`; for tests. */
bool pvn_conn_may_follow(enum pvn_conn_state from, enum pvn_conn_state to);

#endif
