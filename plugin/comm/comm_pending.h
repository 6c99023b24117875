/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of connections that connect has begun and not finished. NCCL calls connect again until it
 * is done, and between the calls has only its handle, in which the cookie of an entry lies.
 *
 * An entry keeps the poller, but not the plugin: its owner's finalize gives it up, or the last.
 *
 * Threads: any. An entry that was taken belongs to the thread that took it until it is put back.
 */
#ifndef PVN_COMM_COMM_PENDING_H
#define PVN_COMM_COMM_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "connect/handshake.h"

struct comm_pending {
    struct comm_pending *next;
    uint64_t cookie;   /* not 0 */
    const void *owner; /* see struct pvn_comm_cfg */
    struct pvn_conn *conn;
    bool busy; /* a thread has taken it from the table */
};

/* An entry that is not in the table yet, and has no connection. NULL with *err. */
struct comm_pending *comm_pending_new(const void *owner, struct pvn_err *err);
/* Takes the entry for this thread. NULL: there is none, or with *busy another thread has it. */
struct comm_pending *comm_pending_take(uint64_t cookie, bool *busy);
/* Puts a new entry into the table, or one back that was taken. */
void comm_pending_put(struct comm_pending *p);
/* Removes and frees an entry that is new or was taken; its connection is the caller's. */
void comm_pending_free(struct comm_pending *p);
/* Closes this owner's connections and removes them, NULL: all; not those that a thread has taken. */
void comm_pending_drop(const void *owner);
/* In a forked child: forgets the parent's. */
void comm_pending_after_fork(void);

#endif
