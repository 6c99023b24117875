/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sending side: chunks, short messages, clear-to-send entries. */
#ifndef PVN_NET_PVRDMA_RDMA_TX_H
#define PVN_NET_PVRDMA_RDMA_TX_H

#include "net-pvrdma/rdma_path.h"

/* What a completion or an acknowledgement of the chunk will stand for. */
static inline void rdma_note(struct rqp *q, uint32_t cookie, uint32_t chunk)
{
    q->note[q->posted++ % RECORD_RING] = rdma_note_make(cookie, chunk);
}

/* Requests of one chunk at most: its data, and its record or (imm) its message's size before it; with
 * counts, one behind it besides. */
enum { PER_CHUNK = 2, PER_COUNTED = 3 };

/* Chunks from whose number on a queue pair's window is counted. A completion says that a record is
 * in the peer's ring, not that the peer has read it. An immediate that comes too early finds no
 * receive request, and the device waits. */
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
/* A queue pair that has room for a chunk of so many bytes, -1: none has. */
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
void rdma_short_open(struct rdma_lane *r); /* once the peer's offer is known and the mode agreed */
/* 0, -EAGAIN, 1: not as a short message, or the lane is dead. */
int rdma_post_short(struct rdma_lane *r, const struct pvn_write *w);
int rdma_send_next(struct pvn_lane *l, const void *src, size_t size, int32_t tag,
                   const struct pvn_mr *mr, uint32_t cookie);

/* Sender: whether the next clear-to-send line is there, at least the first of its slot. */
static inline bool rdma_cts_is_there(const struct rdma_lane *r)
{
    return __atomic_load_n(&r->tx.line->stamp, __ATOMIC_ACQUIRE) ==
           htole32((uint32_t)r->tx.next_cts + 1);
}
/* Goes on to the next slot, behind one of n lines, whose number is returned. */
static inline uint64_t rdma_take_slot(struct rdma_lane *r, int n)
{
    r->tx.next_line += (unsigned)n;
    r->tx.line = &r->cts[r->tx.next_line % CTS_LINES];
    return r->tx.next_cts++;
}

/* rdma_tx.c */
int rdma_not_registered(struct rdma_lane *r, const struct pvn_rdma_mem *mem);
int rdma_tx_kick(struct pvn_lane *l);
int rdma_tx_poll(struct pvn_lane *l, struct pvn_event *ev, int max);

/* rdma_record.c, rdma_imm.c */
int rdma_record_post_write(struct pvn_lane *l, const struct pvn_write *w);
int rdma_imm_post_write(struct pvn_lane *l, const struct pvn_write *w);
int rdma_counted_post_write(struct pvn_lane *l, const struct pvn_write *w);

/* The receiver copies only host memory, and only from host memory can it be copied here. A part of
 * a message is no message, however short. */
static inline bool rdma_may_be_short(const struct rdma_lane *r, const struct pvn_write *w)
{
    return w->copies && w->f.total <= r->short_max && w->f.len == w->f.total && w->mr &&
           w->mr->gpu == 0;
}

/* 0 and the key, or -EFAULT: the bytes are not in the registration that came with them. */
static inline int rdma_lkey(struct rdma_lane *r, const struct pvn_write *w, uint32_t *lkey)
{
    const struct pvn_rdma_mem *mem = w->mr ? w->mr->lane_mr[r->l.idx] : NULL;
    const struct ibv_mr *mr = mem ? pvn_rdma_mem_find(mem, (uintptr_t)w->src, w->f.len) : NULL;
    *lkey = mr ? mr->lkey : 0;
    return __builtin_expect(mr || w->f.len == 0, 1) ? 0 : rdma_not_registered(r, mem);
}

/* Posts a chunk. put_chunk, of the mode, adds its requests, most at most, to the queue pair's chain,
 * where there is room for them. */
static inline __attribute__((always_inline)) int rdma_post_chunk(
    struct rdma_lane *r, const struct pvn_write *w,
    void (*put_chunk)(struct rdma_lane *r, int qp, const struct pvn_write *w, uint32_t lkey),
    const uint32_t most)
{
    uint32_t lkey;
    bool due = r->l.kick_due;
    if (rdma_may_be_short(r, w)) {
        int rc = rdma_post_short(r, w);
        if (rc <= 0)
            return rc;
    }
    int k = rdma_pick_qp(r, w->f.len);
    if (k < 0)
        return -EAGAIN;
    if (rdma_lkey(r, w, &lkey) < 0)
        return r->l.err.code;
    struct rqp *q = &r->qp[k];
    if (most > PER_CHUNK && q->slots < most) {
        r->tx.starved = true;
        return -EAGAIN;
    }
    if (q->nwr + (int)most > CHAIN) {
        int rc = rdma_ring(r, k);
        if (rc < 0)
            return rc;
    }
    put_chunk(r, k, w, lkey);
    rdma_note(q, w->cookie, w->f.chunk);
    if (r->paths)
        rdma_path_posted(r, k, w->f.len);
    q->longs++;
    q->shorts.room = 0; /* to be counted again */
    if (w->more)
        return 0;
    /* Usually this message is all there is, and then nothing is left for a kick. */
    r->l.kick_due = r->nqps > 1 && (due || w->f.chunk > 0);
    return rdma_ring_chain(r, q);
}

#endif
