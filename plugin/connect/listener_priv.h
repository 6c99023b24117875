/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the listener's files: connections go from its sockets (listen_sockets.c) into the room of those that have
 * not said who they are (listener_undecided.c), from there to its members (listener_members.c), and these to accept
 * (listener.c) or to the comms that they are for (listener_resumed.c). */
#ifndef PVN_CONNECT_LISTENER_PRIV_H
#define PVN_CONNECT_LISTENER_PRIV_H

#include <pthread.h>

#include "base/addr.h"
#include "connect/listen_sockets.h"
#include "connect/listener.h"
#include "stats/stats.h"

/* A connection whose preamble is not complete, or names another session. */
struct undecided {
    int fd;
    int at;            /* index in listen_sockets.h of the socket that it came by */
    bool refused;      /* it named another session: nothing is read from it any more */
    uint64_t since_ns; /* accepted or, if refused, refused then */
    size_t got;        /* bytes of the preamble so far */
    uint8_t bytes[PVN_PREAMBLE_MOST];
    struct sockaddr_storage peer;
};

/* A conn that accept has not given out, or a lazy one that still expects data connections. */
struct member {
    struct member *next;
    struct pvn_conn *conn;
    bool given;
    /* When the comm that it names was last looked for, or it came in; moved on while nobody looked. */
    uint64_t expected_ns;
};

struct pvn_listener {
    pthread_mutex_t lock; /* everything below */
    int refs;             /* the caller's, until close, and one per given member */
    bool closed;
    int keepers;        /* comms that may be connected again */
    uint64_t looked_ns; /* when one of these last looked for its connections */
    struct pvn_listener_cfg cfg;
    uint64_t session;
    struct pvn_listen_sockets on;
    struct undecided *
        room; /* PVN_LISTENER_UNDECIDED while there is one, else NULL: the first nroom, oldest first */
    int nroom;
    struct member *members; /* oldest first */
    struct pvn_conn *aside; /* to be closed without the lock: their lanes' end may block */
    /* First accept since the last success, moved on while nobody called; 0: none */
    uint64_t waiting_ns;
    uint64_t called_ns;
    int no_files; /* errno of the last accept that failed for lack of something, 0: none */
    bool said_no_files, said_rejected;
    /* Why the first peer that named the session was refused for its key, or for having none; NULL: none was. */
    char *unproved;
    struct pvn_listener_stats stats;
    struct pvn_stat *stat; /* its row of the statistics while it is open, may be NULL */
};

/* All of these are called with the lock. */

/* listener_members.c */
struct member *listener_find(struct pvn_listener *l, uint64_t nonce);
/* Takes a member off the list; its conn is the caller's. */
struct pvn_conn *listener_remove(struct pvn_listener *l, struct member **at);
/* Closes a member's conn once the lock is given up; why: for its peer, or NULL. */
void listener_set_aside(struct pvn_listener *l, struct member **at, const char *why);
/* conn is no member any more. id: of the comm whose lanes it replaces, 0: none */
void listener_take_out(struct pvn_listener *l, const struct pvn_conn *conn, uint64_t id);
void listener_unlock(struct pvn_listener *l);
/* Unlocks in the thread that makes no call of an adapter: connections with lanes are left to others. */
void listener_unlock_answering(struct pvn_listener *l);

/* A peer that named the session has not proved the key: warns of the first one. */
void listener_note_unproved(struct pvn_listener *l, const struct sockaddr_storage *peer,
                            const char *why);

/* listener_undecided.c: takes connections from the sockets and makes members of those that are a peer's. */
void listener_take_in(struct pvn_listener *l, uint64_t now);

#endif
