/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The common part of record and imm mode, which write into the receiver's memory. */
#ifndef PVN_NET_PVRDMA_RDMA_ONE_SIDED_H
#define PVN_NET_PVRDMA_RDMA_ONE_SIDED_H

#include "net-pvrdma/rdma_tx.h"

/* True if the chunk may go as a short message. Both ends copy short messages by processor, so source and
 * destination must be host memory. A short chunk of a longer message does not qualify. */
static inline bool rdma_may_be_short(const struct rdma_lane *r, const struct pvn_write *w)
{
    return w->to->copies && w->f.total <= r->l.short_max && w->f.len == w->f.total && w->mr &&
           w->mr->gpu == 0;
}

/* Takes room for a message of one line without a check of the ring. True if that worked. */
static inline bool rdma_short_takes_line(struct rdma_lane *r, uint32_t len)
{
    return __builtin_expect(len <= r->line_max && --r->qp[0].shorts.room >= 0, 1);
}

/* Finds the key of the chunk's source. -EFAULT: the bytes lie outside of their registration. */
static inline int rdma_lkey(struct rdma_lane *r, const struct pvn_write *w, uint32_t *lkey)
{
    const struct pvn_rdma_mem *mem = w->mr ? w->mr->lane_mr[r->l.idx] : NULL;
    const struct ibv_mr *mr = mem ? pvn_rdma_mem_find(mem, (uintptr_t)w->src, w->f.len) : NULL;
    *lkey = mr ? mr->lkey : 0;
    return __builtin_expect(mr || w->f.len == 0, 1) ? 0 : rdma_not_registered(r, mem);
}

/* Posts a chunk that is not a short message of one line, or for which the ring has to be checked. The mode's
 * put_chunk adds the chunk's requests, up to `most`, to the queue pair's chain, which has room for them. */
static inline __attribute__((always_inline)) int rdma_post_chunk(
    struct rdma_lane *r, const struct pvn_write *w,
    void (*put_chunk)(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w, uint32_t lkey),
    const uint32_t most)
{
    uint32_t lkey;
    if (rdma_may_be_short(r, w) && rdma_short_take_room(r, w->f.len))
        return rdma_post_short(r, w);
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
    put_chunk(r, q, w, lkey);
    rdma_note(q, w->cookie, w->f.chunk);
    if (r->paths)
        rdma_path_posted(r, k, w->f.len);
    q->longs++;
    q->shorts.room = 0; /* the chunk has used slots, so the room has to be counted again */
    if (w->more) {
        r->l.kick_due = true;
        return 0;
    }
    /* The doorbell below posts everything, so a kick has nothing left to do. */
    if (r->nqps == 1)
        r->l.kick_due = false;
    return rdma_ring_chain(r, q);
}

/* post_write of a mode. A short message of one line is the same in all modes; everything else goes to the mode's
 * post_long. post_long is a separate function so that the short path need not save its registers. */
static inline int rdma_post_write(struct pvn_lane *l, const struct pvn_write *w,
                                  int (*post_long)(struct rdma_lane *r, const struct pvn_write *w))
{
    struct rdma_lane *r = rdma_of(l);
    return rdma_may_be_short(r, w) && rdma_short_takes_line(r, w->f.len) ? rdma_post_short(r, w)
                                                                         : post_long(r, w);
}

/* Common members of the tables of data operations; poll of receivers and post_write of senders are the mode's. */
#define RDMA_RX_OPS                                                                                \
    .post_cts = rdma_post_cts, .post_write = pvn_lane_no_post_write,                               \
    .next_slot = pvn_lane_no_next_slot, .post_flush = rdma_post_flush, .kick = rdma_rx_kick,       \
    .copy_out = rdma_copy_out
#define RDMA_TX_OPS                                                                                \
    .post_cts = pvn_lane_no_post_cts, .next_slot = rdma_next_slot,                                 \
    .post_flush = pvn_lane_no_post_flush, .kick = rdma_tx_kick, .poll = rdma_tx_poll,              \
    .copy_out = pvn_lane_no_copy

/* rdma_one_sided.c: members of struct rdma_mode */
int rdma_one_sided_open(struct rdma_lane *r);
int rdma_probe_by_write(struct rdma_lane *r, int qp);
int rdma_peer_has_written(struct rdma_lane *r);
void rdma_one_sided_stats(const struct rdma_lane *r, struct pvn_rdma_lane_stats *out);

#endif
