/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The link that connects a comm with its peer, from the set-up of its first connection through failovers and returns to its
 * end: the connection in use, where the peer is reached again, and one state machine, whose table (link.c) says what may
 * follow what. A connection (conn.h) has states of its own while it is set up; a link outlives its connections.
 *
 * Threads: the one that has the comm, that of its data calls or pvn-help in its place (ARCHITECTURE). Others read sender,
 * id and keeper, which do not change while they may, and what paths.h says.
 */
#ifndef PVN_CONNECT_LINK_H
#define PVN_CONNECT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/conn.h"
#include "connect/paths.h"

struct pvn_link_failover;
struct pvn_link_keep;
struct pvn_link_tries;
struct pvn_listener;

enum pvn_link_state {
    PVN_LINK_SETUP, /* the first connection is being made */
    PVN_LINK_UP,    /* lanes and control connection work */
    PVN_LINK_ALONE, /* the lanes work, and the control connection is lost */
    PVN_LINK_GONE,  /* the peer has closed or ended; what it sent before may still come */
    PVN_LINK_DRAINS, /* takes no new sends, to go over to better lanes when the open ones have ended */
    PVN_LINK_FENCE,    /* nothing new goes through the old lanes; what they still report is taken */
    PVN_LINK_CONNECT,  /* a new connection is made, or waited for */
    PVN_LINK_EXCHANGE, /* the ends say over it what they have */
    PVN_LINK_ENDED,    /* the comm has failed, or ended without a fault; only close is left */
    PVN_LINK_STATES
};

enum pvn_link_event {
    PVN_LINK_CAME_UP,   /* the first connection is up */
    PVN_LINK_CTRL_LOST, /* the control connection is lost, and the lanes can go on without it */
    PVN_LINK_CTRL_BACK, /* another one has taken its place */
    PVN_LINK_PEER_GONE, /* the control connection says so, or has ended with the peer's process */
    PVN_LINK_BETTER,    /* a connection with better lanes is up, and sends are open */
    PVN_LINK_NO_BETTER, /* that connection is lost, or the sends have not ended in time */
    PVN_LINK_LOST,      /* a lane is lost, the peer says so, or the comm goes over to other lanes */
    PVN_LINK_FENCED,    /* the old lanes move no memory any more */
    PVN_LINK_CONNECTED, /* the new connection is up */
    PVN_LINK_AGAIN,     /* the new connection is lost, or its lanes do not take the comm's memory */
    PVN_LINK_RESUMED,   /* both engines go on with the new lanes */
    PVN_LINK_END,       /* the comm ends, whatever the reason */
    PVN_LINK_EVENTS
};

/* The return to better lanes (link_back.h). Times are of the monotonic clock. */
struct pvn_link_back {
    struct pvn_link_tries
        *tries;         /* attempts at a connection with better lanes; NULL: none are made */
    uint64_t wait_ns;   /* before the first attempt */
    uint64_t pause_ns;  /* UP: DRAINS not before */
    uint64_t slower_ns; /* since when the lanes are worse than the best; 0: they are not */
    uint64_t
        came_ns; /* when they were the best again; 0: they never were worse, or were lost since */
    bool said_flaps;
};

/*
 * All zero at first: SETUP. What may be set in each state; the rest is NULL or 0:
 *
 *     SETUP                      sender, id, conn, listener
 *     UP                         sender, id, conn, keeper, served, back, ctrl_err, keep, paths
 *     ALONE, GONE                as UP; ctrl_err says why, and moved_ns and moved_bytes count
 *     DRAINS                     as UP; a sender's, whose back.tries are READY or were until a moment ago
 *     FENCE, CONNECT, EXCHANGE   as UP, and failover; its `next` in EXCHANGE always, before that at times
 *     ENDED                      as UP, without failover, back.tries and keep; or, out of SETUP, as that
 */
struct pvn_link {
    enum pvn_link_state state;
    uint64_t since_ns;             /* when the state was entered */
    bool sender;                   /* the connector */
    uint64_t id;                   /* of the comm at both ends: the nonce of its first connection */
    struct pvn_conn *conn;         /* in use, or in SETUP the first one; never NULL */
    struct pvn_listener *listener; /* lazy acceptor, until it is up; else NULL */
    struct pvn_listener *keeper; /* acceptor, failover: where the peer connects again; else NULL */
    struct pvn_link_failover *failover; /* FENCE, CONNECT, EXCHANGE: link_failover.h; else NULL */
    struct pvn_link_back back;
    bool served; /* the plugin's threads do what link_back.h and link_keep.h have for them */
    struct pvn_err ctrl_err; /* what the control connection brought last */
    /* ALONE, GONE: when something last moved, no request was open (GONE), or nobody called (ALONE), and how much had. */
    uint64_t moved_ns, moved_bytes;
    struct pvn_link_keep *keep; /* keeps the control connection; NULL: nothing does */
    struct pvn_paths paths;
};

/*
 * Goes over to the next state; one that stays the same keeps since_ns. False: this event may not come in this state,
 * which does not change then. That is a fault of the caller.
 */
bool pvn_link_on(struct pvn_link *l, enum pvn_link_event event, uint64_t now);

/* pvn_link_on with the present time, and with a line in the log: a warning where the event may not come. */
void pvn_link_note(struct pvn_link *l, enum pvn_link_event event);

/* ns: for how long the present state may last while nothing shows that the peer goes on, from the table; UINT64_MAX: there
 * is no limit. ALONE, GONE: while nothing moves (is_over); DRAINS: in all; in a failover: while the peer is not seen. */
uint64_t pvn_link_limit_ns(const struct pvn_link *l);
/* ALONE, GONE: bytes or chunks, a count of all so far, have moved; the limit begins again. */
void pvn_link_moved(struct pvn_link *l, uint64_t bytes, uint64_t now);
/* True if nothing has moved for that limit. excused: nothing could. */
bool pvn_link_is_over(struct pvn_link *l, uint64_t bytes, bool excused, uint64_t now);

/* True if the state takes new data calls without more ado: UP, ALONE, GONE. */
bool pvn_link_is_open(const struct pvn_link *l);

/* As ARCHITECTURE has them. */
const char *pvn_link_state_name(enum pvn_link_state state);
const char *pvn_link_event_name(enum pvn_link_event event);

#endif
