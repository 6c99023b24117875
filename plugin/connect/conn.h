/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm's connection: its states, its parts, and how it fails. handshake.h says how it comes up.
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

/* conn.c has the table of states that may follow each other, handshake.c the steps and
 * deadlines. */
enum pvn_conn_state {
    PVN_CONN_START, /* connector: nothing is done yet */
    PVN_CONN_DIAL,  /* connector: get a TCP connection to the listener named in the handle */
    PVN_CONN_SEAL,  /* with a key: both ends prove it, and seal the control connection */
    /* Learn who the peer is and which wire version both speak. The connector of a new comm over TCP
     * makes its lanes, and sends its offer behind the HELLO. */
    PVN_CONN_HELLO,
    PVN_CONN_OFFER, /* make this end's lanes, learn the peer's, agree on the pairs */
    /* Connect each lane to its partner, with the partner's data from the peer's offer. */
    PVN_CONN_BIND,
    PVN_CONN_VERIFY, /* prove each lane by a round trip; leave out those that fail */
    PVN_CONN_READY,  /* agree on the lanes that work at both ends */
    PVN_CONN_UP,     /* data flows; the control connection is polled for the peer's end */
    PVN_CONN_DRAIN,  /* close in good order: the peer gets a GOODBYE */
    PVN_CONN_CLOSED, /* everything is given back */
    PVN_CONN_FAILED, /* the reason is in err and has been sent to the peer; only close is left */
    PVN_CONN_STATES
};

/* Data sockets that may wait for their lane: 8 lanes of 16 streams. */
enum { PVN_CONN_INBOX = 128 };

/* A gap between two calls of accept or step that is longer than this does not count against the
 * time limit. */
#define PVN_AWAY_NS (PVN_NS_PER_S / 2)

struct pvn_key;
struct pvn_listen_sockets;

struct pvn_conn_cfg {
    bool sender;                  /* the connector, which sends data */
    const struct pvn_device *dev; /* as NCCL chose it, perhaps virtual; must outlive the conn */
    int nports;                   /* number of its physical members, which are in `port` */
    const struct pvn_device *port[PVN_MAX_LANES];
    /* Acceptor: the listener's address on each port, in the listener, which outlives the set-up. */
    const struct sockaddr_storage *listen_addr[PVN_MAX_LANES];
    /* connector: the listener; acceptor: the other end of the connection */
    struct sockaddr_storage peer;
    socklen_t peer_len;
    /* Connector: another address of the listener, dialled in turn with `peer`; of the same length. */
    bool has_instead;
    struct sockaddr_storage instead;
    uint64_t session;
    uint64_t nonce;            /* connector: 0, because each attempt makes a new one */
    const struct pvn_key *key; /* both ends prove it; NULL: none. Outlives the conn */
    bool peer_has_key;         /* connector: as the listener's handle says */
    uint64_t peer_features;    /* connector: the listener's, as its handle says */
    int traffic_class;         /* requested by the communicator at this end, -1: none */
    bool lazy;                 /* PVN_FEATURE_LAZY */
    bool shared;               /* PVN_FEATURE_SHARED; the same for all connections of a comm */
    uint64_t resumes;          /* connector: see struct pvn_hello */
    bool failover;             /* requested by this end: the comm outlives its lanes */
    /* Connector, with failover: devices at whose addresses its process can be seen (presence.h). */
    int nseen;
    const struct pvn_device *seen[PVN_OTHER_ADDRS];
    /* True if this takes another path than the comm's first connection. Acceptor: set by the
     * HELLO. */
    bool away;
    /* True if another thread sets this up beside the connection in use. Acceptor: set by the
     * HELLO. */
    bool beside;
    /* True if this becomes the control connection of the connection whose nonce is `resumes`,
     * and nothing else. It goes no further than HELLO, so it has no lanes. Acceptor: set by the
     * HELLO. */
    bool control;
    /* Acceptor: returns how many messages comm `id` has received, for the HELLO; may be NULL.
     * Called from any thread. */
    uint64_t (*received)(uint64_t id);
    /* Acceptor: the listener's sockets. If failover is agreed, the HELLO names those on other
     * interfaces. */
    struct pvn_listen_sockets *sockets;
    bool no_fallback; /* no lanes of the fallback transport (TCP) */
    /* Only lanes of the fallback transport. Acceptor: the comm holds messages that other lanes
     * cannot take over. Connector: other lanes were lost on this path (path_memory.h). */
    bool fallback_only;
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
    uint64_t entered_ns; /* when the state was entered, plus time that does not count */
    uint64_t stepped_ns; /* end of the last call of step */
    uint64_t began_ns;   /* when the first byte of an unfinished frame came, 0: none */
    uint64_t heard_ns;   /* when the peer last sent a frame, plus time that does not count */
    uint64_t said_ns;    /* when this end last sent a frame */
    struct pvn_ctrl ctrl;
    struct pvn_watch *watch; /* polls the control socket, from UP on */
    unsigned unwatched;      /* calls of pvn_conn_watch without a watch */
    struct pvn_hello mine, theirs;
    bool hello_seen; /* a valid HELLO has come */
    bool in_clear;   /* SEAL, connector: the listener answers in the clear, to refuse */
    /* Secret for the tokens of data connections; with a key, from HELLO on. */
    uint8_t streams[PVN_SECRET_BYTES];
    bool frame_sent; /* this state's frame has been queued */
    bool said_waiting, said_dial;
    unsigned redials; /* connections that the peer closed without an answer */
    unsigned attempts;
    uint64_t redial_ns;  /* no dialling before this time */
    uint64_t refused_ns; /* when the first of several refusals in a row came, 0: none */
    int traffic_class;   /* in effect, -1: the system's */
    bool ready_sent;     /* the peer may be UP */
    bool ready_seen;
    uint32_t ready_mask; /* lanes that work, as the peer's READY says */

    int nlanes; /* own lanes until the pairs are known, then pairs */
    struct pvn_lane *lane[PVN_MAX_LANES];
    struct pvn_lane_args *lane_args; /* PVN_MAX_LANES entries; lane[i]'s is number lane_arg[i] */
    int lane_arg[PVN_MAX_LANES];
    uint8_t lane_number[PVN_MAX_LANES]; /* number of the i-th lane that was made, in offers */
    unsigned bound, verified, dropped;  /* bit per lane */
    uint8_t *peer_blob[PVN_MAX_LANES];  /* from the peer's offer, until bound */
    size_t peer_blob_len[PVN_MAX_LANES];
    pthread_mutex_t inbox_lock;    /* for the inbox, which the listener fills */
    struct pvn_conn_socket *inbox; /* PVN_CONN_INBOX entries; acceptor, until UP */
    int ninbox;

    bool queried;  /* an ASK has no answer yet */
    bool answered; /* it has one; peer_open is the peer's number of open requests */
    uint32_t peer_open;
    bool peer_asks; /* the peer has sent an ASK, which has no answer yet */

    struct pvn_stat *stat; /* its row of the statistics, may be NULL */
    bool goodbye;          /* the peer has closed in good order */
    bool dismissed; /* set up for a comm that has been closed; the peer has been sent a GOODBYE */
    uint64_t received;     /* messages, for this end's GOODBYE, see wire.h */
    uint64_t has_received; /* messages that the peer has received, from its GOODBYE */
    bool replaced;         /* another connection has taken over, so close sends the peer nothing */
    bool present;          /* close has to release a hold of presence.h */
    struct pvn_conn *next_aside; /* see pvn_conn_set_aside */
    const char *why_aside;
    char who[PVN_ERR_PLACE_LEN];   /* the peer, as well as it is known */
    char where[PVN_ERR_PLACE_LEN]; /* this end */
    /* FAILED: the reason. DIAL: the last attempt's error; code 0: none has failed. */
    struct pvn_err err;
};

/* Adds both ends to *err: the hosts, each followed by the place that the lane at fault has put into
 * *err, else by the place that lane k knows, else by the device. k < 0: no lane. Called once per
 * error. */
void pvn_conn_locate(const struct pvn_conn *c, int k, struct pvn_err *err);

/* Ends the connection with an error of this end: sends it to the peer and fences the lanes. When it
 * returns, no posted memory is read or written any more; if a lane cannot be fenced, a warning says
 * so. Does nothing if the connection is FAILED already. Returns the error's code. */
int pvn_conn_fail(struct pvn_conn *c, const struct pvn_err *err);

/* Describes the lanes in one line. From UP on. */
void pvn_conn_lanes_text(const struct pvn_conn *c, char *buf, size_t cap);

/* Adds up the lanes' counters. From UP on. */
void pvn_conn_count(const struct pvn_conn *c, struct pvn_lane_counters *sum);

/* True if both ends request that the comm outlive its lanes. From OFFER on, as the next ones, and
 * from the start at the connector of a new comm. */
bool pvn_conn_failover(const struct pvn_conn *c);
/* True if, besides, its control connection may be replaced alone. */
bool pvn_conn_keeps(const struct pvn_conn *c);
/* True if, besides, it may return to better lanes. */
bool pvn_conn_failback(const struct pvn_conn *c);
/* True if both ends verify lanes with full-size packets where that is required. */
bool pvn_conn_large(const struct pvn_conn *c);
/* True if data over TCP are sealed. */
bool pvn_conn_seals_data(const struct pvn_conn *c);
/* True if ranks may share the comm, so that all its lanes have clear-to-send. */
bool pvn_conn_shared(const struct pvn_conn *c);
/* Ranks the lanes and their path, for comparison with others of the same comm; higher is better.
 * Lanes of a faster kind than the fallback count most, then the number of lanes, then the comm's
 * first path. From UP on. */
int pvn_conn_worth(const struct pvn_conn *c);
/* True if lanes of this rank include a faster kind than the fallback. */
bool pvn_conn_worth_is_fast(int worth);

/*
 * Frames while UP, for a failover. send queues a frame, whose `len` is the result of its encoder,
 * and writes as much as the socket takes; 0 or a negative errno. expect returns 1 for a frame of
 * this type, -EAGAIN, or a negative errno with *err: the peer's ERROR, its GOODBYE (`goodbye` is
 * set then), its end of stream, or another frame.
 */
int pvn_conn_send(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t *body, int len,
                  struct pvn_err *err);
int pvn_conn_expect(struct pvn_conn *c, enum pvn_frame_type type, const uint8_t **body, size_t *len,
                    struct pvn_err *err);

/* For a connection that is only made to become a control connection. confirm: the connector has the
 * acceptor's HELLO, and sends a BEAT to say so. is_confirmed: the acceptor has that BEAT; it does
 * not use the connection before. */
void pvn_conn_confirm(struct pvn_conn *c);
bool pvn_conn_is_confirmed(struct pvn_conn *c);
/* While UP: c gets the control connection of `from`, which was made for that. The caller closes the
 * rest of `from`. */
void pvn_conn_replace_control(struct pvn_conn *c, struct pvn_conn *from);

/* In any state: sends a GOODBYE with the number of messages in `received`, because this end has
 * closed its comm. */
void pvn_conn_goodbye(struct pvn_conn *c);

/* While UP. ask sends the peer an ASK, unless one has no answer yet, or the peer does not know this
 * frame (see `queried`). answer answers the peer's ASK (see `peer_asks`) with the number of open
 * requests. */
void pvn_conn_ask(struct pvn_conn *c);
void pvn_conn_answer(struct pvn_conn *c, uint32_t open);

/*
 * Checks that the peer's machine still answers on the control connection. 0, or -ETIMEDOUT, once,
 * when it has acknowledged nothing for TCP_USER_TIMEOUT. For waits that do not call step, listen or
 * expect, which check it themselves.
 */
int pvn_conn_path(struct pvn_conn *c, struct pvn_err *err);
/* True if an ASK was sent, and the peer's kernel has acknowledged all that was sent. False for a
 * device of several ports, whose lanes may take another route than the control connection. */
bool pvn_conn_answers(const struct pvn_conn *c);

/* True if expect would find a frame or a part of one, an error, or the peer's end of stream. */
bool pvn_conn_has_input(const struct pvn_conn *c);

const char *pvn_conn_state_name(enum pvn_conn_state s);
/* True if the table allows `to` after `from`; for tests. */
bool pvn_conn_may_follow(enum pvn_conn_state from, enum pvn_conn_state to);

#endif
