/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread, pvn-help, that takes a comm's steps while its caller sleeps.
 *
 * A sender over TCP that outlives its lanes completes a small message when the kernel has it, and
 * keeps a copy until the peer has acknowledged it (engine_keep.c). If the connection is lost
 * meanwhile, the copy has to be sent again. But the caller has no reason to call any more, because
 * all its requests are done. So this thread takes the steps of such a comm when nobody has called
 * it for a while. It runs while there is such a comm.
 *
 * The caller and the thread use the comm in turn, which costs the data calls of such a comm two
 * atomic operations. A call that finds the thread at work says that it has to be repeated. The
 * thread makes no call of an adapter, because only processes without adapters have such comms.
 */
#ifndef PVN_COMM_COMM_HELP_H
#define PVN_COMM_COMM_HELP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pvn_comm;

/* CALLED: free, and called since the thread last looked. */
enum comm_user { COMM_FREE, COMM_CALLED, COMM_CALLER, COMM_HELPER };

struct comm_help {
    _Atomic enum comm_user user;
    /* Used by the thread only, under its lock: */
    struct comm_help *next;
    struct pvn_comm *comm;
    uint64_t look_ns, wait_ns; /* when it looks at the comm next, and the pause before that */
    bool hurries;              /* the comm was in a failover */
};

/* Takes the comm for the caller, or for a thread that attends to it beside other comms. False: the
 * helper has it. */
static inline bool comm_help_take(struct comm_help *h)
{
    enum comm_user user = atomic_load_explicit(&h->user, memory_order_relaxed);

    return user < COMM_CALLER &&
           atomic_compare_exchange_strong_explicit(&h->user, &user, COMM_CALLER,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void comm_help_give(struct comm_help *h)
{
    atomic_store_explicit(&h->user, COMM_CALLED, memory_order_release);
}

/* Called before the comm has an engine. False: no memory, or the thread cannot be started. */
bool comm_help_new(struct pvn_comm *c);
/* The comm is up. Caller and thread use it in turn from now on. */
void comm_help_join(struct pvn_comm *c);
/* The comm is being closed, and no other thread attends to it any more. Waits until the peer's
 * machine has acknowledged the messages that are kept, a few seconds at most; warns if it has not.
 * Sends nothing for a comm with open requests. */
void comm_help_leave(struct pvn_comm *c);
void comm_help_after_fork(void);

#endif
