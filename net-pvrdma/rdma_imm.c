/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Imm mode: a chunk arrives as RDMA WRITE with immediate, which takes a receive request and is
 * reported by the completion queue. */
#include "net-pvrdma/rdma_rx.h"
#include "net-pvrdma/rdma_tx.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

/* A receiver never has fewer receives posted than the sender may have chunks in flight. */
enum { DATA_RECVS = RECORD_RING + CHAIN };

/* ---- sender ---- */

/* The size goes first, so that it is there when the immediate arrives on the same queue pair. */
static void put_size(struct rdma_lane *r, int k, const struct pvn_write *w)
{
    size_t at = (w->f.seq % PVN_SLOT_SPAN) * PVN_MAX_RECVS + w->f.recv;
    /* The device may still be reading it for an earlier chunk, which says the same. */
    __atomic_store_n(&r->totals[at], htole64(w->f.total), __ATOMIC_RELAXED);
    struct ibv_send_wr *size =
        rdma_wr(r, k, &r->totals[at], sizeof(uint64_t), r->mem_mr->lkey,
                r->peer.mem_addr + MEM_TOTALS + at * sizeof(uint64_t), r->peer.mem_rkey);
    if (r->cfg.max_inline >= sizeof(uint64_t))
        size->send_flags |= IBV_SEND_INLINE;
}

/* A message of one chunk is one request, and on a network one packet if it is short. */
static inline void imm_put_chunk(struct rdma_lane *r, int k, const struct pvn_write *w,
                                 uint32_t lkey)
{
    bool whole = w->f.len == w->f.total;
    if (!whole)
        put_size(r, k, w);
    struct ibv_send_wr *wr = rdma_wr(r, k, w->src, w->f.len, lkey, w->raddr, w->rkey);
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = htobe32(imm_make(w->f.seq, w->f.recv, whole ? CHUNK_WHOLE : w->f.chunk));
    rdma_signal_data(&r->qp[k], wr, k, whole ? 1 : PER_CHUNK, r->qp[k].posted + 1);
    /* The processor copies inline data, so not from a GPU. */
    if (w->f.len <= r->cfg.max_inline && w->mr && w->mr->gpu == 0)
        wr->send_flags |= IBV_SEND_INLINE;
}

int rdma_imm_post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    return rdma_post_chunk(rdma_of(l), w, imm_put_chunk);
}

/* ---- receiver ---- */

/* Posts receive requests that carry no buffer: an immediate needs one, its data does not. */
static int refill(struct rdma_lane *r, int qp)
{
    struct rqp *q = &r->qp[qp];
    struct ibv_recv_wr wr[CHAIN];
    while (q->recv_lack > 0) {
        unsigned n = q->recv_lack < CHAIN ? q->recv_lack : CHAIN;
        for (unsigned i = 0; i < n; i++)
            wr[i] = (struct ibv_recv_wr){.wr_id = wr_id_make(WR_RECV, qp, 0),
                                         .next = i + 1 < n ? &wr[i + 1] : NULL};
        struct ibv_recv_wr *bad = NULL;
        r->stats.post_recv++;
        int rc = ibv_post_recv(q->qp, wr, &bad);
        if (rc)
            return rdma_dead(r, -(rc < 0 ? EIO : rc), "posting to the receive queue");
        q->recv_lack -= n;
    }
    return 0;
}

static uint32_t imm_recv_slots(const struct rdma_lane *r)
{
    return r->cfg.sender ? 1 : DATA_RECVS;
}

static int imm_post_first(struct rdma_lane *r, int qp)
{
    if (r->cfg.sender)
        return 0;
    r->qp[qp].recv_lack = DATA_RECVS < r->cfg.max_wr ? DATA_RECVS : r->cfg.max_wr;
    return refill(r, qp);
}

/* The event of a receive completion. */
static inline void arrived(struct rdma_lane *r, int qp, const struct ibv_wc *wc,
                           struct pvn_event *ev)
{
    struct rqp *q = &r->qp[qp];
    uint32_t imm = be32toh(wc->imm_data);
    uint32_t total_at = (imm_id(imm) % PVN_SLOT_SPAN) * PVN_MAX_RECVS + imm_recv(imm);
    bool whole = imm_chunk(imm) == CHUNK_WHOLE;
    q->seen++;
    q->longs++;
    q->recv_lack++;
    rdma_seen(r, qp);
    ev->kind = PVN_EV_ARRIVED;
    ev->id = imm_id(imm);
    ev->recv = imm_recv(imm);
    ev->chunk = whole ? 0 : imm_chunk(imm);
    ev->data = NULL;
    ev->bytes = wc->byte_len;
    ev->total =
        whole ? wc->byte_len : le64toh(__atomic_load_n(&r->totals[total_at], __ATOMIC_ACQUIRE));
}

static int imm_took_recv(struct rdma_lane *r, int qp, const struct ibv_wc *wc, struct pvn_event *ev,
                         int *n)
{
    if (!ev)
        return rdma_dead(r, -EPROTO, "reading a receive completion on a sending lane");
    arrived(r, qp, wc, &ev[(*n)++]);
    return 0;
}

static int poll_queue(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    int before = *n, rc = rdma_take(r, CQ_BATCH, ev, max, n);
    /* Of several queue pairs. */
    for (int i = before; i < *n; i++)
        rdma_started(r, ev[i].id);
    for (int k = 0; rc >= 0 && k < r->nqps; k++) {
        /* In batches: each call is a doorbell. The peer's window is
         * smaller than what stays posted. */
        if (r->qp[k].recv_lack >= CHAIN)
            rc = refill(r, k);
    }
    return rc < 0 ? rc : 0;
}

/* Where all there is to look at is the next short message. Long messages show in the queue. */
static inline void imm_watch(struct rdma_lane *r)
{
    if (r->flush.pending || !r->rx.idle_queue)
        return;
    const struct rqp *q = &r->qp[0];
    const uint32_t *line = &q->shorts.next->stamp;
    uint32_t at_line = __atomic_load_n(line, __ATOMIC_RELAXED);
    if (at_line != htole32(q->shorts.lines + 1))
        rdma_watch(r, line, at_line, line, at_line);
}

int rdma_imm_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct rdma_lane *r = rdma_of(l);
    l->fast.watch.polls = 0;
    int n = 0, rc = r->flush.pending ? rdma_flush_poll(r, ev, max, &n) : 0, flushed = n;
    if (rc == 0)
        rc = rdma_read_shorts(r, ev, max, &n);
    int in_memory = n;
    if (rc == 0)
        rc = poll_queue(r, ev, max, &n);
    if (rc == 0 && n > flushed) {
        r->rx.idle_queue = n == in_memory;
        rdma_rx_took(r, n - flushed);
    } else if (rc == 0) {
        if (!r->fresh)
            imm_watch(r);
        rc = rdma_rx_empty_poll(r) ? rdma_healthy(r) : 0;
    }
    /* What came before an error is reported before it: the peer may know that it arrived. */
    return rc < 0 && n == 0 ? rc : n;
}

/* ---- fence ---- */

static int imm_save(struct rdma_lane *r, const struct ibv_wc *wc)
{
    if (r->nkept == r->room_kept) {
        int room = r->room_kept ? 2 * r->room_kept : 64;
        struct pvn_event *ev = realloc(r->kept, (size_t)room * sizeof(*ev));
        if (!ev)
            return -ENOMEM;
        r->kept = ev;
        r->room_kept = room;
    }
    arrived(r, (int)(wc->wr_id >> 48 & 0xff), wc, &r->kept[r->nkept++]);
    return 0;
}

static int imm_save_arrivals(struct rdma_lane *r)
{
    return r->cfg.sender ? 0 : rdma_empty_queue(r, imm_save);
}

static void imm_take_landed(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    for (; *n < max && r->kept_at < r->nkept; r->kept_at++)
        ev[(*n)++] = r->kept[r->kept_at];
}

const struct rdma_mode rdma_imm_mode = {
    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
    .rx_polls_queue = true,
    .waits_for_receives = true,
    .recv_slots = imm_recv_slots,
    .open = rdma_open_one_sided,
    .post_first = imm_post_first,
    .probe = rdma_probe_by_write,
    .peer_connected = rdma_peer_has_written,
    .took_recv = imm_took_recv,
    .save_arrivals = imm_save_arrivals,
    .take_landed = imm_take_landed,
    .before_close = rdma_rx_final_ack,
    .get_stats = rdma_one_sided_stats,
};
