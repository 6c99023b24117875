/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A link's return (failback): after a failover to worse lanes it goes back to better ones.
 *
 * The connector makes a new connection beside the one in use. It shares nothing with earlier ones:
 * new queue pairs, GIDs as of now (rdma_adapter.h), new packet sequence numbers, verified by a
 * round trip. A thread of the plugin makes it, at both ends, because calls into a sick adapter can
 * block for a minute; messages go over the old lanes meanwhile. After an attempt that fails or
 * finds nothing better, the next pause is twice as long (retry.h). The number of attempts has no
 * limit. An attempt has states of its own:
 *
 *     TRIES     a connection is being made: at the connector when its pause is over, at the
 *               acceptor when the peer's HELLO has come
 *     READY     it is up and better than the one in use; the link takes it, or it is lost: TRIES
 *     TAKEN     the link has taken it; no other one is made meanwhile
 *     LINGERS   acceptor: the comm was closed in a failover and has received all messages; its
 *               peer, which may connect again, is answered with their number
 *     STOPPED   the link has no pointer to it any more; the trying thread frees it, so a comm can be closed
 *               while its attempt blocks
 *
 * In READY, the sender takes no new sends until the open ones have completed (BETTER, DRAINS in
 * link.h). Both ends then take the steps of a failover with this connection as the next one. If it
 * is lost meanwhile, these steps make another one, as after any loss.
 *
 * An acceptor always has attempts. They answer the HELLO of a peer that connects again while nobody
 * calls this end. The answer has the number of messages received, which completes the sends of a
 * peer whose last acknowledgement was lost.
 *
 * Threads: try runs in the trying thread (pvn-failback). answer runs in the answering thread
 * (pvn-answer), and makes no call of an adapter, so that a sick adapter of one comm delays no
 * answer of another. received, any, all_stopped, wait, wake and end_soon: any thread. The others: as
 * link.h.
 */
#ifndef PVN_CONNECT_LINK_BACK_H
#define PVN_CONNECT_LINK_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/link.h"

/* Begins attempts if the lanes in use are worse than the best so far; an acceptor's in any case.
 * Does nothing if the peer cannot return, if the plugin's threads do not work for the link, or
 * without memory. */
void pvn_link_back_start(struct pvn_link *l);
void pvn_link_back_stop(struct pvn_link *l);
/* The comm is closed in a failover and has received this number of messages, all that were to come:
 * LINGERS, for FAILOVER_TIMEOUT. */
void pvn_link_back_linger(struct pvn_link *l, uint64_t received);
/* The lanes in use are lost. If they were so soon after a return, the pause before the next attempt
 * doubles. */
void pvn_link_back_lost(struct pvn_link *l);
/* The link goes on with other lanes. Attempts begin if these are worse than the best so far. */
void pvn_link_back_settle(struct pvn_link *l);

/* Takes the connection that is READY, for the caller to switch to; NULL: there is none. */
struct pvn_conn *pvn_link_back_take(struct pvn_link *l);
/* Like pvn_link_back_take, for a sender; `open`: it has open sends. The connection is taken when
 * none are open. Until then the link alternates between DRAINS and UP, because receives may depend
 * on messages that are still to be sent. */
struct pvn_conn *pvn_link_back_look(struct pvn_link *l, bool open, uint64_t now);
/* Acceptor: true if the peer makes a connection in place of the one in use, because it has lost its
 * lanes. */
bool pvn_link_back_is_replaced(const struct pvn_link *l);
/* Returns how many messages the closed comm with this id had received, while it LINGERS; 0: there
 * is none. */
uint64_t pvn_link_back_received(uint64_t id);

/* Takes one step of all attempts, and frees those that are STOPPED. Returns the pause until the
 * next step, ns. */
uint64_t pvn_link_back_try(void);
/* Takes one step of answering, for all acceptors. True: there is more to do soon. */
bool pvn_link_back_answer(void);
/* Waits until something has changed since *seen (0 at first), for ns at most. */
void pvn_link_back_wait(unsigned *seen, uint64_t ns);
void pvn_link_back_wake(void);
/* Ends all that LINGERS within a second, for the end of the process or of its use of the plugin. */
void pvn_link_back_end_soon(void);
/* True if there is an attempt in any state. */
bool pvn_link_back_any(void);
/* True if all attempts are STOPPED; with `lingering`, LINGERS counts as well. */
bool pvn_link_back_all_stopped(bool lingering);
/* In a forked child: forgets the parent's attempts. */
void pvn_link_back_after_fork(void);

#endif
