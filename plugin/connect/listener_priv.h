/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the listener's files. Connections come from the sockets (listen_sockets.c). They stay
 * in the room until they have said who they are (listener_undecided.c), and then become members
 * (listener_members.c). Members go to accept (listener.c) or to the comms that they are for
 * (listener_resumed.c). */
#ifndef PVN_CONNECT_LISTENER_PRIV_H
#define PVN_CONNECT_LISTENER_PRIV_H

#include <pthread.h>

#include "base/addr.h"
#include "connect/listen_sockets.h"
#include "connect/listener.h"
#include "stats/stats.h"

/* A connection whose preamble is not complete, or was refused. */
struct undecided {
    int fd;
    int at;       /* index of its listening socket in struct pvn_listen_sockets */
    bool refused; /* it named another session, or did not prove the key: nothing more is read */
    uint64_t since_ns; /* when it was accepted or, if refused, when it was refused */
    size_t got;        /* bytes of the preamble so far */
    uint8_t bytes[PVN_PREAMBLE_MOST];
    struct sockaddr_storage peer;
};

/* A connection that has not been given out, or one that has (lazy, or beside another) and still
 * expects data connections. */
struct member {
    struct member *next;
    struct pvn_conn *conn;
    bool given;
    /* When the comm that it is for last looked for it, at first when it came in; plus time in which
     * nobody could look. */
    uint64_t expected_ns;
};

struct pvn_listener {
    pthread_mutex_t lock; /* everything below */
    int refs;             /* the caller's, until close; one per given member; one per keeper */
    bool closed;
    int keepers;        /* comms that may be reconnected */
    uint64_t looked_ns; /* when a comm last looked for its new connections */
    struct pvn_listener_cfg cfg;
    uint64_t session;
    struct pvn_listen_sockets on;
    /* The first nroom of PVN_LISTENER_UNDECIDED entries are in use, oldest first. NULL while there
     * are none. */
    struct undecided *room;
    int nroom;
    struct member *members; /* oldest first */
    struct pvn_conn *aside; /* closed without the lock, because closing lanes may block */
    /* When accept was first called since its last success, plus time in which nobody called; 0: it
     * was not. */
    uint64_t waiting_ns;
    uint64_t called_ns;
    int no_files; /* negative errno of the last accept that lacked files or memory, 0: none */
    bool said_no_files, said_rejected;
    /* Why the first peer that named the session was refused for its key, or for having none; NULL:
     * none was refused. */
    char *unproved;
    struct pvn_listener_stats stats;
    struct pvn_stat *stat; /* its row of the statistics while it is open, may be NULL */
};

/* The caller of these functions holds the lock. */

/* listener_members.c */
struct member *listener_find(struct pvn_listener *l, uint64_t nonce);
/* Takes a member off the list and returns its connection, which is then the caller's. */
struct pvn_conn *listener_remove(struct pvn_listener *l, struct member **at);
/* Takes a member off the list; its connection is closed after the lock is released. why: sent to
 * its peer, or NULL. */
void listener_set_aside(struct pvn_listener *l, struct member **at, const char *why);
/* Takes conn off the list of members. If it replaces the lanes of comm `id` (0: of none), older
 * connections for that comm are set aside. */
void listener_take_out(struct pvn_listener *l, const struct pvn_conn *conn, uint64_t id);
void listener_unlock(struct pvn_listener *l);
/* Unlocks in the answering thread, which makes no call of an adapter: connections with lanes stay
 * aside for others. */
void listener_unlock_answering(struct pvn_listener *l);

/* Records that a peer that named the session has not proved the key. Warns of the first one. */
void listener_note_unproved(struct pvn_listener *l, const struct sockaddr_storage *peer,
                            const char *why);

/* listener_undecided.c: takes connections from the sockets, and makes members of those that come
 * from a peer. */
void listener_take_in(struct pvn_listener *l, uint64_t now);

#endif
