/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Imm mode: a chunk arrives as RDMA WRITE with immediate, which consumes a receive request and is reported by
 * the completion queue.
 *
 * A receiver whose completion queue is expensive to poll must not poll it while nothing arrives. So its sender
 * writes a count after each chunk, in the same chain: the number of chunks on this queue pair. The receiver
 * polls only for as many completions as the count is ahead of the completions that it has taken. The count
 * decides only when to poll. If a network or a device shows the count before the completion, the receiver polls
 * too early, but still reports only completed chunks.
 */
#include "net-pvrdma/rdma_one_sided.h"
#include "net-pvrdma/rdma_rx.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

/* ---- sender ---- */

/* Writes the size of the message before the chunk, so that it is there when the immediate arrives on the same
 * queue pair. */
static void put_size(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w)
{
    size_t at = (w->f.seq % PVN_SLOT_SPAN) * PVN_MAX_RECVS + w->f.recv;
    /* The device may still be reading the word for an earlier chunk of this message, with the same value. */
    __atomic_store_n(&r->totals[at], htole64(w->f.total), __ATOMIC_RELAXED);
    struct ibv_send_wr *size =
        rdma_wr(q, &r->totals[at], sizeof(uint64_t), r->mem_mr->lkey,
                r->peer.mem_addr + MEM_TOTALS + at * sizeof(uint64_t), r->peer.mem_rkey);
    if (r->cfg.max_inline >= sizeof(uint64_t))
        size->send_flags |= IBV_SEND_INLINE;
}

/* The source of the count of one chunk. Each chunk in flight has its own one, because the device reads the source
 * later, and a newer count would announce chunks that have not arrived. The sources lie in the second half of the
 * queue pair's record ring, which imm mode does not use. Message sizes take at most the first half of the first
 * queue pair's ring. */
static_assert(RECORD_RING * sizeof(uint32_t) <= RECORD_RING / 2 * sizeof(struct record),
              "there is room for the counts of a queue pair");
static uint32_t *staged_count(const struct rdma_lane *r, ptrdiff_t k, uint32_t posted)
{
    uint32_t *first = (uint32_t *)&r->record[k * RECORD_RING + RECORD_RING / 2];
    return &first[posted % RECORD_RING];
}

static void put_count(struct rdma_lane *r, struct rqp *q, uint32_t slots)
{
    ptrdiff_t k = q - r->qp;
    uint32_t *count = staged_count(r, k, q->posted);
    *count = htole32((uint32_t)q->longs + 1);
    struct ibv_send_wr *wr =
        rdma_wr(q, count, sizeof(*count), r->mem_mr->lkey,
                r->peer.mem_addr + MEM_COUNTS + (size_t)k * sizeof(*count), r->peer.mem_rkey);
    rdma_end_chunk(r, q, wr, slots);
    if (r->cfg.max_inline >= sizeof(*count))
        wr->send_flags |= IBV_SEND_INLINE;
}

/* Adds a chunk's requests to the chain. A message of one chunk is one request, and one packet if it is short. */
static inline __attribute__((always_inline)) void put_chunk(struct rdma_lane *r, struct rqp *q,
                                                            const struct pvn_write *w,
                                                            uint32_t lkey, const bool counted)
{
    bool whole = w->f.len == w->f.total;
    if (!whole)
        put_size(r, q, w);
    struct ibv_send_wr *wr =
        rdma_wr(q, w->src, w->f.len, lkey, w->to->addr + w->f.offset, w->to->rkey[r->l.idx]);
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = htobe32(imm_make(w->f.seq, w->f.recv, whole ? CHUNK_WHOLE : w->f.chunk));
    if (!counted)
        rdma_end_chunk(r, q, wr, whole ? 1 : PER_CHUNK);
    /* The processor copies inline data, which it cannot do from a GPU. */
    if (w->f.len <= r->cfg.max_inline && w->mr && w->mr->gpu == 0)
        wr->send_flags |= IBV_SEND_INLINE;
    if (counted)
        put_count(r, q, whole ? 2 : PER_COUNTED);
}

static inline void imm_put_chunk(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w,
                                 uint32_t lkey)
{
    put_chunk(r, q, w, lkey, false);
}

__attribute__((noinline)) static int post_long(struct rdma_lane *r, const struct pvn_write *w)
{
    return rdma_post_chunk(r, w, imm_put_chunk, PER_CHUNK);
}

static int imm_post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    return rdma_post_write(l, w, post_long);
}

static inline void counted_put_chunk(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w,
                                     uint32_t lkey)
{
    put_chunk(r, q, w, lkey, true);
}

__attribute__((noinline)) static int post_counted(struct rdma_lane *r, const struct pvn_write *w)
{
    return rdma_post_chunk(r, w, counted_put_chunk, PER_COUNTED);
}

static int counted_post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    return rdma_post_write(l, w, post_counted);
}

/* ---- receiver ---- */

/* Posts receive requests without a buffer: an immediate consumes a request, but its data need no buffer. */
static int refill(struct rdma_lane *r, int qp)
{
    struct rqp *q = &r->qp[qp];
    struct ibv_recv_wr wr[CHAIN];
    while (q->recv_lack > 0) {
        unsigned n = q->recv_lack < CHAIN ? q->recv_lack : CHAIN;
        for (unsigned i = 0; i < n; i++)
            wr[i] = (struct ibv_recv_wr){.wr_id = rdma_wr_id(WR_RECV, qp, 0),
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

static int imm_open(struct rdma_lane *r)
{
    int rc = rdma_one_sided_open(r);
    for (int k = 0; rc == 0 && !r->cfg.sender && k < r->nqps; k++) {
        r->qp[k].recv_lack = IMM_RECVS < r->cfg.max_wr ? IMM_RECVS : r->cfg.max_wr;
        rc = refill(r, k);
    }
    return rc;
}

/* Turns a receive completion into an event. */
static inline void arrived(struct rdma_lane *r, const struct rdma_done *recv, struct pvn_event *ev)
{
    struct rqp *q = &r->qp[recv->qp];
    uint32_t imm = recv->imm;
    uint32_t total_at = (imm_id(imm) % PVN_SLOT_SPAN) * PVN_MAX_RECVS + imm_recv(imm);
    bool whole = imm_chunk(imm) == CHUNK_WHOLE;
    q->seen++;
    q->longs++;
    q->recv_lack++;
    rdma_seen(r, q);
    ev->kind = PVN_EV_ARRIVED;
    ev->id = imm_id(imm);
    ev->recv = imm_recv(imm);
    ev->chunk = whole ? 0 : imm_chunk(imm);
    ev->data = NULL;
    ev->bytes = recv->bytes;
    ev->total =
        whole ? recv->bytes : le64toh(__atomic_load_n(&r->totals[total_at], __ATOMIC_ACQUIRE));
}

/* Takes up to `most` completions. */
static inline __attribute__((always_inline)) int poll_queue(struct rdma_lane *r, const int most,
                                                            struct pvn_event *ev, int max, int *n)
{
    struct rdma_recvs recvs;
    int room = max - *n, rc = rdma_take(r, most < room ? most : room, &recvs);
    for (int i = 0; i < recvs.n; i++) {
        struct pvn_event *e = &ev[(*n)++];
        arrived(r, &recvs.of[i], e);
        rdma_started(r, e->id); /* for each event, because several queue pairs are not in order */
    }
    for (int k = 0; rc >= 0 && k < r->nqps; k++) {
        /* In batches, because each call is a doorbell. Enough receives stay posted for the peer's window. */
        if (r->qp[k].recv_lack >= CHAIN)
            rc = refill(r, k);
    }
    return rc < 0 ? rc : 0;
}

/* Watches the stamp of the next short message. Long messages show only in the queue, so the watch is set only while
 * the queue is idle. */
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

static int imm_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct rdma_lane *r = rdma_of(l);
    int n = 0, rc = r->flush.pending ? rdma_flush_poll(r, ev, max, &n) : 0, flushed = n;
    if (rc == 0)
        rc = rdma_read_shorts(r, ev, max, &n);
    int in_memory = n;
    if (rc == 0)
        rc = poll_queue(r, CQ_BATCH, ev, max, &n);
    if (rc == 0 && n > flushed) {
        r->rx.idle_queue = n == in_memory;
        rdma_rx_took(r, n - flushed);
    } else if (rc == 0) {
        if (!r->fresh)
            imm_watch(r);
        rc = rdma_rx_empty_poll(r) ? rdma_healthy(r) : 0;
    }
    /* Arrivals from before an error are reported before it, because the peer may know that they arrived. */
    return rc < 0 && n == 0 ? rc : n;
}

/* ---- receiver with counts ---- */

/* Chunks that have arrived according to the queue pair's count and whose completion has not been taken. 0 if polls
 * have taken completions before their count was visible. */
static inline uint32_t ahead(const struct rqp *q, uint32_t count)
{
    uint32_t n = le32toh(count) - (uint32_t)q->longs;
    return (int32_t)n <= 0 ? 0 : n < RECORD_RING ? n : RECORD_RING;
}

static inline uint32_t announced(const struct rdma_lane *r)
{
    uint32_t sum = 0;
    for (int k = 0; k < r->nqps; k++)
        sum += ahead(&r->qp[k], __atomic_load_n(&r->counts[k], __ATOMIC_ACQUIRE));
    return sum;
}

/* True if memory shows that a poll would find something. */
static inline bool counted_has_events(const struct rdma_lane *r)
{
    return r->flush.pending || rdma_short_is_there(r) || announced(r) || r->rx.take_now;
}

/* Number of completions of this end's own chains to poll for. These lie between the arrivals. As in record mode they
 * are polled for when there are many or when their slots are needed. */
static uint32_t chains_due(struct rdma_lane *r)
{
    uint32_t known = rdma_rx_known(r);
    if (!r->rx.take_now)
        return known >= REAP_AT ? known : 0;
    r->rx.take_now = false;
    return known || r->outstanding == 0 ? known : 1;
}

/* Polls for no more completions than are known to be in the queue. */
static int take_announced(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    uint64_t empty = r->stats.empty_polls;
    uint32_t known = announced(r) + chains_due(r);
    int rc = 0;
    for (; rc == 0 && known && *n < max && r->stats.empty_polls == empty; known = announced(r))
        rc = poll_queue(r, known < CQ_BATCH ? (int)known : CQ_BATCH, ev, max, n);
    return rc;
}

/* Watches the stamp of the next short message and the count of the queue pair. A lane with several queue pairs sets no
 * watch, because a watch has only two words. */
static inline void counted_watch(struct rdma_lane *r)
{
    if (r->nqps > 1 || r->flush.pending)
        return;
    const struct rqp *q = &r->qp[0];
    const uint32_t *line = &q->shorts.next->stamp, *count = &r->counts[0];
    uint32_t at_line = __atomic_load_n(line, __ATOMIC_RELAXED);
    uint32_t at_count = __atomic_load_n(count, __ATOMIC_RELAXED);
    if (at_line != htole32(q->shorts.lines + 1) && !ahead(q, at_count))
        rdma_watch(r, line, at_line, count, at_count);
}

/* Handles an empty poll. Arrivals show in memory, so the queue is polled only for errors, after an idle time. */
static inline int counted_empty_poll(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    if (!r->fresh)
        counted_watch(r);
    if (!rdma_rx_empty_poll(r))
        return 0;
    int rc = rdma_healthy(r);
    if (rc == 0 && rdma_time_to_poll(r))
        rc = poll_queue(r, (int)rdma_rx_known(r) + 1, ev, max, n);
    if (*n > 0)
        rdma_rx_took(r, *n);
    return rc;
}

__attribute__((noinline)) static int counted_take_all(struct rdma_lane *r, struct pvn_event *ev,
                                                      int max)
{
    int n = 0, rc = r->flush.pending ? rdma_flush_poll(r, ev, max, &n) : 0, flushed = n;
    if (rc == 0)
        rc = rdma_read_shorts(r, ev, max, &n);
    if (rc == 0)
        rc = take_announced(r, ev, max, &n);
    if (rc == 0 && n > flushed)
        rdma_rx_took(r, n - flushed);
    else if (rc == 0 && n == 0)
        rc = counted_empty_poll(r, ev, max, &n);
    /* Arrivals from before an error are reported before it, because the peer may know that they arrived. */
    return rc < 0 && n == 0 ? rc : n;
}

static int counted_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct rdma_lane *r = rdma_of(l);
    if (counted_has_events(r))
        return counted_take_all(r, ev, max);
    int n = 0, rc = counted_empty_poll(r, ev, max, &n);
    return rc < 0 && n == 0 ? rc : n;
}

/* ---- fence ---- */

static int keep(struct rdma_lane *r, const struct rdma_done *recv)
{
    if (r->nkept == r->room_kept) {
        int room = r->room_kept ? 2 * r->room_kept : 64;
        struct pvn_event *ev = realloc(r->kept, (size_t)room * sizeof(*ev));
        if (!ev)
            return -ENOMEM;
        r->kept = ev;
        r->room_kept = room;
    }
    arrived(r, recv, &r->kept[r->nkept++]);
    return 0;
}

static int imm_save_arrivals(struct rdma_lane *r)
{
    struct rdma_recvs recvs;
    int rc = 0;
    if (r->cfg.sender)
        return 0;
    do {
        rc = rdma_take_last(r, &recvs);
        for (int i = 0; i < recvs.n; i++)
            if (keep(r, &recvs.of[i]) < 0)
                return -ENOMEM;
    } while (recvs.n > 0);
    return rc;
}

static void imm_take_landed(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    for (; *n < max && r->kept_at < r->nkept; r->kept_at++)
        ev[(*n)++] = r->kept[r->kept_at];
}

/* Takes completions while the lane closes. Arrivals are counted, so that they are acknowledged, and then dropped. */
static int take_unseen(struct rdma_lane *r)
{
    struct rdma_recvs recvs;
    int rc = rdma_take(r, CQ_BATCH, &recvs);
    for (int i = 0; i < recvs.n; i++) {
        struct pvn_event ev;
        arrived(r, &recvs.of[i], &ev);
    }
    return rc;
}

static void imm_final_ack(struct rdma_lane *r)
{
    rdma_rx_final_ack(r, take_unseen);
}

static const struct pvn_lane_data_ops imm_rx = {RDMA_RX_OPS, .poll = imm_poll};
static const struct pvn_lane_data_ops imm_tx = {RDMA_TX_OPS, .post_write = imm_post_write};
static const struct pvn_lane_data_ops counted_rx = {RDMA_RX_OPS, .poll = counted_poll};
static const struct pvn_lane_data_ops counted_tx = {RDMA_TX_OPS, .post_write = counted_post_write};

#define IMM_MODE                                                                                   \
    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .rx_polls_queue = true, .waits_for_receives = true,      \
    .relaxed = true, .open = imm_open, .probe = rdma_probe_by_write,                               \
    .peer_connected = rdma_peer_has_written, .take = rdma_take_requests,                           \
    .save_arrivals = imm_save_arrivals, .take_landed = imm_take_landed,                            \
    .before_close = imm_final_ack, .get_stats = rdma_one_sided_stats

const struct rdma_mode rdma_imm_mode = {IMM_MODE, .data = {&imm_rx, &imm_tx}};
const struct rdma_mode rdma_counted_mode = {IMM_MODE, .data = {&counted_rx, &counted_tx}};
