/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sending side: chunks, short messages, clear-to-send entries. */
#ifndef PVN_NET_PVRDMA_RDMA_TX_H
#define PVN_NET_PVRDMA_RDMA_TX_H

#include "net-pvrdma/rdma_path.h"
#include "net-pvrdma/rdma_post.h"

/* Notes the message and chunk that the queue pair's next completion or acknowledgement will stand for. */
static inline void rdma_note(struct rqp *q, uint32_t cookie, uint32_t chunk)
{
    q->note[q->posted++ % RECORD_RING] = rdma_note_make(cookie, chunk);
}

/* Maximum of requests per chunk: its data, and its record or (imm) the size of its message. PER_COUNTED adds the
 * count of imm mode with counts. */
enum { PER_CHUNK = 2, PER_COUNTED = 3 };

/* The start of the queue pair's window: the number of chunks that the receiver has read (record mode), or that have
 * completed (imm mode). In record mode a completion is not enough, because the record is then in the peer's ring,
 * which is full until the peer has read it. In imm mode the device waits if it finds no receive request. */
static inline uint32_t rdma_window_from(const struct rdma_lane *r, const struct rqp *q)
{
    return r->tx.window_by_reads ? q->consumed : q->acked;
}
static inline bool rdma_has_room(const struct rdma_lane *r, const struct rqp *q)
{
    return q->posted - rdma_window_from(r, q) < r->tx.window &&
           q->posted - q->reported < RECORD_RING && q->slots >= PER_CHUNK;
}

int rdma_pick_path(struct rdma_lane *r, uint32_t bytes);
/* Picks a queue pair that has room for a chunk of this size. -1: none has. */
static inline int rdma_pick_qp(struct rdma_lane *r, uint32_t bytes)
{
    if (r->paths)
        return rdma_pick_path(r, bytes);
    if (__builtin_expect(rdma_has_room(r, &r->qp[0]), 1))
        return 0;
    r->tx.starved |= r->qp[0].slots < PER_CHUNK;
    return -1;
}

/* rdma_short.c */
void rdma_short_open(struct rdma_lane *r); /* called once the mode is agreed */
/* Takes the lines of a short message of len bytes. False if they are not free now. */
bool rdma_short_take_room(struct rdma_lane *r, uint32_t len);
/* Posts a short message whose lines have been taken. 0, or the lane is dead. */
int rdma_post_short(struct rdma_lane *r, const struct pvn_write *w);

/* rdma_tx.c */
int rdma_not_registered(struct rdma_lane *r, const struct pvn_rdma_mem *mem);
int rdma_next_slot(struct pvn_lane *l, const struct pvn_cts **cts);
int rdma_tx_kick(struct pvn_lane *l);
int rdma_tx_poll(struct pvn_lane *l, struct pvn_event *ev, int max);

#endif
