/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Record mode: the sender writes a record after a chunk's data, and the receiver polls the ring of records. */
#include "net-pvrdma/rdma_one_sided.h"
#include "net-pvrdma/rdma_rx.h"

#include <endian.h>
#include <errno.h>

/* Both ends: advances to the next record of the queue pair's ring. */
static inline void next_record(struct rqp *q)
{
    q->next_record += ++q->records % RECORD_RING ? 1 : 1 - RECORD_RING;
}

/* ---- sender ---- */

/* Adds the record of a chunk to the chain. A record has the same offset in both ends' blocks. */
static inline void put_record(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w)
{
    struct record *rec = q->next_record;
    next_record(q);
    /* The other fields are always zero. */
    rec->total = htole64(w->f.total);
    rec->imm = htole32(imm_make(w->f.seq, w->f.recv, w->f.chunk));
    rec->bytes = htole32(w->f.len);
    rec->sum = htole32(record_sum(w->f.total, imm_make(w->f.seq, w->f.recv, w->f.chunk), w->f.len));
    rec->stamp = htole32(q->records);
    struct ibv_send_wr *wr =
        rdma_wr(q, rec, sizeof(*rec), r->mem_mr->lkey,
                r->peer.mem_addr + (uintptr_t)rec - (uintptr_t)r->mem, r->peer.mem_rkey);
    rdma_end_chunk(r, q, wr, w->f.len ? PER_CHUNK : 1);
    if (r->cfg.max_inline >= sizeof(*rec))
        wr->send_flags |= IBV_SEND_INLINE;
}

static inline void record_put_chunk(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w,
                                    uint32_t lkey)
{
    if (w->f.len)
        rdma_wr(q, w->src, w->f.len, lkey, w->to->addr + w->f.offset, w->to->rkey[r->l.idx]);
    put_record(r, q, w);
}

__attribute__((noinline)) static int post_long(struct rdma_lane *r, const struct pvn_write *w)
{
    return rdma_post_chunk(r, w, record_put_chunk, PER_CHUNK);
}

static int record_post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    return rdma_post_write(l, w, post_long);
}

/* ---- receiver ---- */

static inline bool record_is_there(const struct rqp *q)
{
    return __atomic_load_n(&q->next_record->stamp, __ATOMIC_ACQUIRE) == htole32(q->records + 1);
}

/* Reads the records of a queue pair, at least one of which is visible. 0, or the lane is dead. */
static inline __attribute__((always_inline)) int read_records(struct rdma_lane *r, struct rqp *q,
                                                              struct pvn_event *ev, int max, int *n)
{
    uint32_t before = q->seen;
    int rc = 0;
    do {
        const struct record *rec = q->next_record;
        if (__builtin_expect(!record_is_whole(rec), 0)) {
            rc = rdma_partial(r, 1 + (int)(q - r->qp), q->records, PARTIAL_RECORD);
            break;
        }
        q->longs++;
        q->seen++;
        next_record(q);
        uint32_t imm = le32toh(rec->imm);
        struct pvn_event *e = &ev[(*n)++];
        e->kind = PVN_EV_ARRIVED;
        e->id = imm_id(imm);
        e->recv = imm_recv(imm);
        e->chunk = imm_chunk(imm);
        e->bytes = le32toh(rec->bytes);
        e->total = le64toh(rec->total);
        e->data = NULL;
    } while (*n < max && record_is_there(q));
    if (q->seen != before) {
        rdma_started(r, ev[*n - 1].id);
        rdma_seen(r, q);
    }
    return rc;
}

/* Reads the records after the fence. A record that is incomplete when the queue pair is destroyed stays incomplete, so
 * it is ignored. */
static void record_take_landed(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    for (struct rqp *q = r->qp; q < r->qp + r->nqps && *n < max; q++)
        if (record_is_there(q))
            (void)read_records(r, q, ev, max, n);
}

/* True if memory shows that a poll would find something. */
static bool record_has_events(const struct rdma_lane *r)
{
    if (r->flush.pending)
        return true;
    if (rdma_short_is_there(r))
        return true;
    for (int k = 0; k < r->nqps; k++)
        if (record_is_there(&r->qp[k]))
            return true;
    return false;
}

/* Watches the stamps of the next short message and the next record. */
static inline void record_watch(struct rdma_lane *r)
{
    if (r->nqps > 1 || r->flush.pending)
        return;
    const struct rqp *q = &r->qp[0];
    const uint32_t *line = &q->shorts.next->stamp, *record = &q->next_record->stamp;
    uint32_t at_line = __atomic_load_n(line, __ATOMIC_RELAXED);
    uint32_t at_record = __atomic_load_n(record, __ATOMIC_RELAXED);
    if (at_line != htole32(q->shorts.lines + 1) && at_record != htole32(q->records + 1))
        rdma_watch(r, line, at_line, record, at_record);
}

static inline int record_empty_poll(struct rdma_lane *r)
{
    if (!r->fresh)
        record_watch(r);
    return rdma_rx_empty_poll(r) ? rdma_rx_look_around(r) : 0;
}

__attribute__((noinline)) static int record_take_all(struct rdma_lane *r, struct pvn_event *ev,
                                                     int max)
{
    int n = 0, rc = r->flush.pending ? rdma_flush_poll(r, ev, max, &n) : 0, flushed = n;
    if (rc == 0 && rdma_short_is_there(r))
        rc = rdma_read_shorts(r, ev, max, &n);
    for (struct rqp *q = r->qp, *end = q + r->nqps; rc == 0 && q < end && n < max; q++)
        if (record_is_there(q))
            rc = read_records(r, q, ev, max, &n);
    if (rc == 0 && n > flushed) {
        rdma_rx_took(r, n - flushed);
        rc = rdma_rx_reap_known(r);
    } else if (rc == 0) {
        rc = record_empty_poll(r);
    }
    /* Arrivals from before an error are reported before it, because the peer may know that they arrived. */
    return rc < 0 && n == 0 ? rc : n;
}

static int record_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct rdma_lane *r = rdma_of(l);
    return record_has_events(r) ? record_take_all(r, ev, max) : record_empty_poll(r);
}

static int record_open(struct rdma_lane *r)
{
    for (int k = 0; k < r->nqps; k++)
        r->qp[k].next_record = &r->record[(size_t)k * RECORD_RING];
    return rdma_one_sided_open(r);
}

static int nothing_to_save(struct rdma_lane *r)
{
    (void)r; /* arrivals lie in memory, which the fence does not touch */
    return 0;
}

static void record_final_ack(struct rdma_lane *r)
{
    rdma_rx_final_ack(r, rdma_take_requests);
}

static const struct pvn_lane_data_ops record_rx = {RDMA_RX_OPS, .poll = record_poll};
static const struct pvn_lane_data_ops record_tx = {RDMA_TX_OPS, .post_write = record_post_write};

const struct rdma_mode rdma_record_mode = {
    .opcode = IBV_WR_RDMA_WRITE,
    .window_by_reads = true,
    .open = record_open,
    .probe = rdma_probe_by_write,
    .peer_connected = rdma_peer_has_written,
    .take = rdma_take_requests,
    .save_arrivals = nothing_to_save,
    .take_landed = record_take_landed,
    .before_close = record_final_ack,
    .get_stats = rdma_one_sided_stats,
    .data = {&record_rx, &record_tx},
};
