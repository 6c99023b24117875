/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A link's control connection is kept, whether or not anybody calls the comm: when it is lost, the
 * connector makes another one beside the lanes, which may still work, and the acceptor takes it.
 * Both ends do that on the plugin's answering thread. The comm's own thread, which may sleep
 * for hours, adopts the new one when it comes by; until then that connection is what
 * shows the peer that this process is there, so that no time limit of a failover runs out.
 *
 * Each attempt takes the next path (paths.h), as a failover does. A connection names the one
 * whose control connection it replaces by its nonce, so one that was made too late, when a failover
 * has replaced the lanes as well, finds nothing to replace.
 *
 * A process that is stopped as a whole answers no HELLO. Its machine does, and acknowledges what
 * this end has sent.
 *
 * Threads: step: the answering thread. The others: as link.h.
 */
#ifndef PVN_CONNECT_LINK_KEEP_H
#define PVN_CONNECT_LINK_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/link.h"

/* One step for all links, which does not block; true: there is more to do soon. */
bool pvn_link_keep_step(void);
/* In a forked child: forgets the parent's. */
void pvn_link_keep_after_fork(void);

/* The link is up, and at the acceptor has its keeper. Nothing is kept where the peer cannot replace a control connection
 * (pvn_conn_keeps), or where there is no memory. */
void pvn_link_keep_join(struct pvn_link *l);
void pvn_link_keep_leave(struct pvn_link *l);
/* The link's connection is another one than before, or has another control connection. Before the old one is closed. */
void pvn_link_keep_watch(struct pvn_link *l);
/* The peer may name the connection with this nonce as well, until the next watch. */
void pvn_link_keep_expect(struct pvn_link *l, uint64_t nonce);
/* True if the peer shows that it is there while its control connection is lost. */
bool pvn_link_keep_lives(const struct pvn_link *l);
/* Takes the new control connection, if there is one (CTRL_BACK); what the old one brought last is forgotten. */
bool pvn_link_keep_adopt(struct pvn_link *l);

#endif
