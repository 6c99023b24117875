/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The link that connects a comm with its peer, from the set-up of its first connection through
 * failovers and failbacks to its end. It consists of the connection in use, the paths on which the
 * peer can be reached again, and one state machine, whose table (link.c) says which event is
 * allowed in which state. A connection (conn.h) has states of its own while it is set up; a link
 * outlives its connections.
 *
 * Threads: the thread that has the comm: that of its data calls, or pvn-help in its place
 * (ARCHITECTURE). Other threads read sender, id and keeper, which do not change meanwhile, and the
 * fields that paths.h names.
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
    PVN_LINK_SETUP,    /* the first connection is being made */
    PVN_LINK_UP,       /* lanes and control connection work */
    PVN_LINK_ALONE,    /* the lanes work, and the control connection is lost */
    PVN_LINK_GONE,     /* the peer has closed or ended; data that it sent before may still come */
    PVN_LINK_DRAINS,   /* no new sends; switches to better lanes when the open sends have ended */
    PVN_LINK_FENCE,    /* nothing new goes over the old lanes; their last completions are taken */
    PVN_LINK_CONNECT,  /* a new connection is being made, or waited for */
    PVN_LINK_EXCHANGE, /* over it, the ends exchange which messages they have */
    PVN_LINK_ENDED,    /* the comm has failed, or ended without a fault; only close is left */
    PVN_LINK_STATES
};

enum pvn_link_event {
    PVN_LINK_CAME_UP,   /* the first connection is up */
    PVN_LINK_CTRL_LOST, /* the control connection is lost, and the lanes can go on without it */
    PVN_LINK_CTRL_BACK, /* another control connection has taken its place */
    /* The peer sent a GOODBYE, or the control connection has ended with its process. */
    PVN_LINK_PEER_GONE,
    PVN_LINK_BETTER,    /* a connection with better lanes is up, and sends are open */
    PVN_LINK_NO_BETTER, /* that connection is lost, or the open sends have not ended in time */
    PVN_LINK_LOST,      /* a lane is lost, the peer says so, or the comm goes over to other lanes */
    PVN_LINK_FENCED,    /* the old lanes move no memory any more */
    PVN_LINK_CONNECTED, /* the new connection is up */
    PVN_LINK_AGAIN,     /* the new connection is lost, or its lanes do not take the comm's memory */
    PVN_LINK_RESUMED,   /* both engines go on with the new lanes */
    PVN_LINK_END,       /* the comm ends, whatever the reason */
    PVN_LINK_EVENTS
};

/* The return to better lanes (failback, link_back.h). Times are of the monotonic clock. */
struct pvn_link_back {
    /* Attempts at a connection with better lanes; NULL: none are made. */
    struct pvn_link_tries *tries;
    uint64_t wait_ns;   /* pause before the first attempt */
    uint64_t pause_ns;  /* UP: DRAINS is not entered before this time */
    uint64_t slower_ns; /* since when the lanes are worse than the best; 0: they are not */
    /* When the lanes became the best again; 0: they never were worse, or have been lost since. */
    uint64_t came_ns;
    bool said_flaps;
};

/*
 * All fields are zero at first, which is SETUP. The following may be set in each state; the others
 * are NULL or 0:
 *
 *     SETUP                      sender, id, conn, listener
 *     UP                         sender, id, conn, keeper, served, back, ctrl_err, keep, paths
 *     ALONE, GONE                as UP; ctrl_err says why, and moved_ns and moved_bytes are in use
 *     DRAINS                     as UP; a sender only; back.tries are READY, or were just now
 *     FENCE, CONNECT, EXCHANGE   as UP, and failover; failover->next in EXCHANGE, at times before
 *     ENDED                      as UP, without failover, back.tries, keep; after SETUP, as SETUP
 */
struct pvn_link {
    enum pvn_link_state state;
    uint64_t since_ns;             /* when the state was entered */
    bool sender;                   /* the connector */
    uint64_t id;                   /* of the comm at both ends: the nonce of its first connection */
    struct pvn_conn *conn;         /* in use, or in SETUP the first one; never NULL */
    struct pvn_listener *listener; /* lazy acceptor, until it is up; else NULL */
    /* Acceptor with failover: the listener where the peer reconnects; else NULL. */
    struct pvn_listener *keeper;
    struct pvn_link_failover *failover; /* FENCE, CONNECT, EXCHANGE: link_failover.h; else NULL */
    struct pvn_link_back back;
    bool served; /* the plugin's threads work for this link (link_back.h, link_keep.h) */
    struct pvn_err ctrl_err; /* the last error or reason from the control connection */
    /* ALONE, GONE: how much data had moved, and when more last did. Time in which no request was
     * open (GONE) or nobody called (ALONE) does not count. */
    uint64_t moved_ns, moved_bytes;
    struct pvn_link_keep *keep; /* keeps the control connection; NULL: nothing does */
    struct pvn_paths paths;
};

/*
 * Enters the state that follows this event. since_ns does not change if the state stays the same.
 * False: the event is not allowed in this state, which does not change; that is a fault of the
 * caller.
 */
bool pvn_link_on(struct pvn_link *l, enum pvn_link_event event, uint64_t now);

/* Like pvn_link_on, with the present time and a line in the log: a warning if the event is not
 * allowed. */
void pvn_link_note(struct pvn_link *l, enum pvn_link_event event);

/* ns that the present state may last while nothing shows that the peer goes on, from the table;
 * UINT64_MAX: no limit. ALONE, GONE: counted while no data move (is_over); DRAINS: in all; in a
 * failover: while the peer is not seen. */
uint64_t pvn_link_limit_ns(const struct pvn_link *l);
/* ALONE, GONE: more data have moved, so the limit begins again. `bytes` counts bytes or chunks, all
 * so far. */
void pvn_link_moved(struct pvn_link *l, uint64_t bytes, uint64_t now);
/* True if no data have moved for that limit. excused: none could. */
bool pvn_link_is_over(struct pvn_link *l, uint64_t bytes, bool excused, uint64_t now);

/* True if the state takes new data calls at once: UP, ALONE, GONE. */
bool pvn_link_is_open(const struct pvn_link *l);

/* The names that ARCHITECTURE uses. */
const char *pvn_link_state_name(enum pvn_link_state state);
const char *pvn_link_event_name(enum pvn_link_event event);

#endif
