/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a link's control connection, whether or not anybody calls the comm. When it is lost, the
 * connector makes another one beside the lanes, which may still work, and the acceptor takes it.
 * Both ends do that on the plugin's answering thread. The comm's own thread, which may sleep for
 * hours, adopts the new one at its next call. Until then the new one shows the peer that this
 * process is there, so that no time limit of a failover runs out.
 *
 * Each attempt takes the next path (paths.h), as a failover does. By a nonce, the new connection
 * names the connection whose control connection it replaces. So if it comes too late, after a
 * failover has replaced the lanes as well, it finds nothing to replace.
 *
 * A process that is stopped as a whole answers no HELLO. But its machine acknowledges the bytes
 * that this end has sent.
 *
 * Threads: step: the answering thread. The others: as link.h.
 */
#ifndef PVN_CONNECT_LINK_KEEP_H
#define PVN_CONNECT_LINK_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/link.h"

/* Takes one step for all links; does not block. True: there is more to do soon. */
bool pvn_link_keep_step(void);
/* In a forked child: forgets the parent's links. */
void pvn_link_keep_after_fork(void);

/* Begins to keep the control connection of a link that is up, and that has its keeper at the
 * acceptor. Does nothing if the peer cannot replace a control connection (pvn_conn_keeps), or
 * without memory. */
void pvn_link_keep_join(struct pvn_link *l);
void pvn_link_keep_leave(struct pvn_link *l);
/* The link's connection, or its control connection, is another one now. Called before the old one
 * is closed. */
void pvn_link_keep_watch(struct pvn_link *l);
/* Lets the peer name the connection with this nonce as well, until the next watch. */
void pvn_link_keep_expect(struct pvn_link *l, uint64_t nonce);
/* True if the peer shows that it is there while its control connection is lost. */
bool pvn_link_keep_lives(const struct pvn_link *l);
/* Adopts the new control connection, if there is one (CTRL_BACK), and forgets the error of the old
 * one. */
bool pvn_link_keep_adopt(struct pvn_link *l);

#endif
