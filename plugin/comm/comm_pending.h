/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of connections that connect (comm_setup.c) has begun and not finished. NCCL calls connect again until it
 * is done; between the calls it keeps only its handle, into which connect writes the cookie of the entry.
 *
 * An entry holds the plugin (plugin.h), as the key has to stay while a connection uses it. The finalize of its owner
 * drops it.
 *
 * Threads: any; one lock protects the table. An entry that was taken stays in the table, but belongs to the thread
 * that took it, until it is put back or freed.
 */
#ifndef PVN_COMM_COMM_PENDING_H
#define PVN_COMM_COMM_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "connect/handshake.h"

struct comm_pending {
    struct comm_pending *next;
    uint64_t cookie;       /* random, not 0 */
    const void *owner;     /* see struct pvn_comm_cfg */
    struct pvn_conn *conn; /* set by the creator before the entry is put back */
    bool busy;             /* a thread has taken it */
    bool dropped;          /* its owner was finalized while it was taken */
};

/* Makes an entry, without a connection, which this thread has taken. NULL with *err. */
struct comm_pending *comm_pending_new(const void *owner, struct pvn_err *err);
/* Takes the entry for this thread. NULL: another thread has it (*busy is true), or there is
 * none. */
struct comm_pending *comm_pending_take(uint64_t cookie, bool *busy);
/* Puts back an entry that was taken. False, without doing so, if its owner was finalized meanwhile. */
bool comm_pending_put(struct comm_pending *p);
/* Removes and frees an entry that was taken; its connection stays the caller's. */
void comm_pending_free(struct comm_pending *p);
/* Closes the connections of this owner (NULL: of all) and frees their entries. Those that a thread has
 * taken cannot be put back any more. */
void comm_pending_drop(const void *owner);
/* In a forked child: forgets the parent's entries without touching them. */
void comm_pending_after_fork(void);

#endif
