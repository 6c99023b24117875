/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A link's return (failback): one that a failover has left with worse lanes goes back to better ones.
 *
 * The connector makes a new connection beside the one in use. It shares nothing with earlier ones:
 * new queue pairs, GIDs as of now (rdma_adapter.h), new packet sequence numbers, verified by a round
 * trip. A thread of the plugin makes it, at both ends, because calls into a sick adapter can block
 * for a minute; messages go over the old lanes meanwhile. After an attempt that fails or finds
 * nothing better the next one waits twice as long (retry.h), without a limit of attempts. An attempt has states of its own:
 *
 *     TRIES     a connection is being made, when it is time for that, or at the acceptor when the peer's HELLO has come
 *     READY     it is up and better than the one in use; the link takes it, or it is lost: TRIES
 *     TAKEN     the link has taken it, and makes no other meanwhile
 *     LINGERS   acceptor: the comm has been closed in a failover, and has all that it was to receive; for a
 *               second its peer, which may connect again, is answered with the number of messages
 *     STOPPED   the link has no pointer to it any more; the trying thread frees it, so a comm can be closed
 *               while its attempt blocks
 *
 * When it is READY, the sender takes no new sends until the open ones have completed (BETTER, DRAINS in link.h). Both ends
 * then take the steps of a failover with this connection as the next one. If it is lost meanwhile, these
 * steps make another one, as after any loss.
 *
 * An acceptor always has attempts, for by them it answers the HELLO of a peer that connects again while nobody calls this end. The
 * answer has the number of messages received, which completes the sends of a peer whose last
 * acknowledgement was lost.
 *
 * Threads: try: the trying thread; answer: the answering one, which makes no call of an adapter, so that a sick one of another
 * comm delays no answer; received, any, all_stopped, wait, wake: all. The others: as link.h.
 */
#ifndef PVN_CONNECT_LINK_BACK_H
#define PVN_CONNECT_LINK_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/link.h"

/* Begins attempts where the lanes in use are worse than the best so far; an acceptor's always. Nothing where the peer cannot
 * return, where threads do not serve the link, or without memory. */
void pvn_link_back_start(struct pvn_link *l);
void pvn_link_back_stop(struct pvn_link *l);
/* The comm is closed in a failover, and has received so many messages, all that were to come. */
void pvn_link_back_linger(struct pvn_link *l, uint64_t received);
/* The lanes in use are lost. */
void pvn_link_back_lost(struct pvn_link *l);
/* The link goes on with other lanes: attempts begin where these are worse than the best so far. */
void pvn_link_back_settle(struct pvn_link *l);

/* The connection that is READY, for the caller to go over to; NULL: there is none. */
struct pvn_conn *pvn_link_back_take(struct pvn_link *l);
/* pvn_link_back_take of a sender, which has open sends or not. As long as it has, the link DRAINS and is UP in turn: receives
 * may depend on messages that are still to be sent. */
struct pvn_conn *pvn_link_back_look(struct pvn_link *l, bool open, uint64_t now);
/* Acceptor: true if the peer makes a connection in place of the one in use, so it has lost its lanes. */
bool pvn_link_back_is_replaced(const struct pvn_link *l);
/* Messages that the closed comm with this id had received, while it LINGERS; 0: there is none. */
uint64_t pvn_link_back_received(uint64_t id);

/* One step of all attempts; frees those that are STOPPED. Returns the pause until the next one, ns. */
uint64_t pvn_link_back_try(void);
/* One answer of all acceptors. True: there is more to do soon. */
bool pvn_link_back_answer(void);
/* Waits until something has changed since *seen, which begins as 0: ns at most. */
void pvn_link_back_wait(unsigned *seen, uint64_t ns);
void pvn_link_back_wake(void);
/* True if there is an attempt in any state. */
bool pvn_link_back_any(void);
/* True if all that there are, are STOPPED; lingering: or LINGER. */
bool pvn_link_back_all_stopped(bool lingering);
/* In a forked child: forgets the parent's. */
void pvn_link_back_after_fork(void);

#endif
