/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The two-sided mode, for devices without RDMA WRITE: messages travel as SENDs into receives that the
 * receiver has posted.
 *
 * The only known device of this kind is emulated: QEMU's PVRDMA (up to version 9.0), which carries out a SEND
 * in place of a WRITE. VMware's PVRDMA and every adapter with reliable connected queue pairs have RDMA WRITE.
 * So this mode is for guests of such a QEMU and for tests of SENDs. It costs these 580 lines, the 150 of
 * probe.c, which detects such a device, and some 100 elsewhere: the layout of buffers in rdma_wire.h, the
 * length of receive queues in rdma_qp.c, all_signaled in rdma_mode.h. The other modes must not become more
 * complex because of this one.
 *
 * A chunk is cut into pieces. Each piece is copied into a buffer of the sender, sent, and copied from the
 * receiver's buffer to its destination. The sender has a credit for each posted receive. When half of the
 * receives are used, the receiver posts them again and returns their credits in one small SEND. So no SEND
 * finds an empty receive queue. A message for which no receive is posted yet stays in its buffer and holds up
 * the messages behind it on the same queue pair; the sender stops when it has no credits left.
 *
 * Only a completion shows that a piece has arrived. If polling the queue is expensive, the queue is polled only
 * when a stamp in the next buffer shows that a piece has begun to arrive.
 */
#include "net-pvrdma/rdma_tx.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/copy_in_order.h"
#include "base/pages.h"

enum {
    CREDIT_BYTES = 64, /* distance of two credit buffers */
    PIECE_BYTES = PIECE - (int)sizeof(struct piece_head)
};

/* The longest time that a close waits: at a sender for messages that were reported as sent, at a receiver for the
 * credits that acknowledge received messages. */
#define DRAIN_NS        PVN_NS_PER_S
#define FINAL_CREDIT_NS (PVN_NS_PER_S / 10)

/* The current chunk of a queue pair. */
struct chunk {
    bool open;
    struct pvn_write w; /* sender */
    struct pvn_frame f; /* receiver */
    uint8_t *dst;       /* receiver: destination; valid only with `needed` */
    bool needed;        /* receiver: false for a duplicate, whose bytes are dropped */
    uint32_t done;      /* bytes posted (sender) or copied (receiver) */
};

struct two_qp {
    uint8_t *piece;    /* `depth` message buffers: of SENDs (sender), of receives (receiver) */
    uint8_t *credit;   /* CREDIT_RECVS buffers: of receives (sender), of SENDs (receiver) */
    uint32_t arrived;  /* completions of receives taken */
    uint32_t posted;   /* receives posted */
    uint32_t returned; /* receiver: credit messages sent */
    uint32_t handed;   /* sender: chunks posted completely */
    uint32_t last[RECORD_RING]; /* sender: rqp.posted after the last piece of each such chunk */
    struct chunk c;
    uint32_t len[1 << PIECES_LOG2]; /* receiver: lengths of pieces that have arrived */
};

struct two_sided {
    uint32_t depth; /* receives that the receiver posts on each queue pair */
    uint8_t *mem;
    struct ibv_mr *mr;
    struct two_qp q[PVN_RDMA_MAX_QPS];
};

static int map_buffers(struct rdma_lane *r)
{
    uint8_t log2 = r->cfg.sender ? r->peer.pieces_log2 : rdma_pieces_log2(r);
    struct two_sided *t = calloc(1, sizeof(*t));
    if (!t)
        return rdma_dead(r, -ENOMEM, "allocating its two-sided state");
    r->two = t;
    t->depth = 1u << log2;
    size_t per_qp = (size_t)t->depth * PIECE + CREDIT_RECVS * CREDIT_BYTES;
    size_t len = per_qp * (size_t)r->nqps;
    t->mem = pvn_pages_new(&len);
    if (!t->mem)
        return rdma_dead(r, -ENOMEM, "allocating its message buffers");
    t->mr = r->cfg.v->reg_mr(r->cfg.pd, t->mem, len, IBV_ACCESS_LOCAL_WRITE);
    if (!t->mr)
        return rdma_dead(r, -(errno ? errno : EIO), "registering its message buffers");
    for (int k = 0; k < r->nqps; k++) {
        t->q[k].piece = t->mem + (size_t)k * t->depth * PIECE;
        t->q[k].credit =
            t->mem + (size_t)r->nqps * t->depth * PIECE + (size_t)k * CREDIT_RECVS * CREDIT_BYTES;
    }
    return 0;
}

void rdma_two_free(struct rdma_lane *r)
{
    if (!r->two)
        return;
    if (r->two->mr)
        r->cfg.v->dereg_mr(r->two->mr);
    free(r->two->mem);
    free(r->two);
    r->two = NULL;
}

static uint8_t *piece_at(const struct two_sided *t, int k, uint32_t i)
{
    return t->q[k].piece + (size_t)(i % t->depth) * PIECE;
}

static uint8_t *credit_at(const struct two_sided *t, int k, uint32_t i)
{
    return t->q[k].credit + (size_t)(i % CREDIT_RECVS) * CREDIT_BYTES;
}

/* Posts `count` receives on queue pair k, up to CHAIN of them per call. */
static int post_recvs(struct rdma_lane *r, int k, uint32_t count)
{
    struct two_sided *t = r->two;
    struct two_qp *q = &t->q[k];
    while (count > 0) {
        struct ibv_recv_wr wr[CHAIN];
        struct ibv_sge sge[CHAIN];
        struct ibv_recv_wr *bad = NULL;
        uint32_t n = count < CHAIN ? count : CHAIN;
        for (uint32_t i = 0; i < n; i++) {
            uint8_t *to =
                r->cfg.sender ? credit_at(t, k, q->posted + i) : piece_at(t, k, q->posted + i);
            sge[i] = (struct ibv_sge){.addr = (uintptr_t)to,
                                      .length = r->cfg.sender ? CREDIT_BYTES : PIECE,
                                      .lkey = t->mr->lkey};
            wr[i] = (struct ibv_recv_wr){.wr_id = rdma_wr_id(WR_RECV, k, 0),
                                         .sg_list = &sge[i],
                                         .num_sge = 1,
                                         .next = i + 1 < n ? &wr[i + 1] : NULL};
        }
        r->stats.post_recv++;
        int rc = ibv_post_recv(r->qp[k].qp, wr, &bad);
        if (rc)
            return rdma_dead(r, -(rc < 0 ? EIO : rc), "posting to the receive queue");
        q->posted += n;
        count -= n;
    }
    return 0;
}

static int two_open(struct rdma_lane *r)
{
    r->l.caps = (r->cfg.acknowledged ? PVN_LANE_SENT_IS_DELIVERED : PVN_LANE_SENT_IS_COPIED) |
                PVN_LANE_SETS_KICK_DUE;
    int rc = map_buffers(r);
    for (int k = 0; rc == 0 && k < r->nqps; k++)
        rc = post_recvs(r, k, r->cfg.sender ? CREDIT_RECVS : r->two->depth);
    return rc;
}

/* ---- requests ---- */

static int send_piece(struct rdma_lane *r, int k, enum piece_kind kind, const struct pvn_frame *f,
                      const uint8_t *src, uint32_t len)
{
    struct two_sided *t = r->two;
    struct rqp *q = &r->qp[k];
    if (q->nwr == CHAIN) {
        int rc = rdma_ring(r, k);
        if (rc < 0)
            return rc;
    }
    uint8_t *buf = piece_at(t, k, q->posted);
    *(struct piece_head *)buf = (struct piece_head){.seq = htole64(f->seq),
                                                    .total = htole64(f->total),
                                                    .offset = htole64(f->offset),
                                                    .len = htole32(f->len),
                                                    .tag = (int32_t)htole32((uint32_t)f->tag),
                                                    .chunk = htole16(f->chunk),
                                                    .kind = (uint8_t)kind,
                                                    .stamp = htole32(q->posted + 1)};
    if (len)
        memcpy(buf + sizeof(struct piece_head), src, len);
    uint32_t bytes = (uint32_t)sizeof(struct piece_head) + len;
    struct ibv_send_wr *wr = rdma_wr(q, buf, bytes, t->mr->lkey, 0, 0);
    r->l.kick_due = true;
    wr->opcode = IBV_WR_SEND;
    rdma_signal(q, wr, rdma_wr_id(WR_PLAIN, k, 1));
    q->posted++;
    return 0;
}

/* Sends a credit message: the number of receives that the receiver has posted again. */
static int send_credits(struct rdma_lane *r, int k)
{
    struct two_sided *t = r->two;
    struct two_qp *q = &t->q[k];
    if (r->qp[k].slots == 0)
        return rdma_dead(r, -ENOBUFS, "returning credits: its send queue is full");
    struct credit *c = (struct credit *)credit_at(t, k, q->returned);
    *c = (struct credit){.returned = htole32(q->posted - t->depth),
                         .stamp = htole32(q->returned + 1)};
    struct ibv_send_wr *wr = rdma_wr(&r->qp[k], c, sizeof(*c), t->mr->lkey, 0, 0);
    wr->opcode = IBV_WR_SEND;
    rdma_signal(&r->qp[k], wr, rdma_wr_id(WR_PLAIN, k, 1));
    q->returned++;
    r->stats.acks_alone++;
    return rdma_ring(r, k);
}

/* The first round trip: the sender sends an empty piece, the receiver a credit message without credits. */
static int two_probe(struct rdma_lane *r, int k)
{
    static const struct pvn_frame none;
    if (!r->cfg.sender)
        return send_credits(r, k);
    int rc = send_piece(r, k, PIECE_PROBE, &none, NULL, 0);
    return rc < 0 ? rc : rdma_ring(r, k);
}

/* ---- completions ---- */

static int took_credits(struct rdma_lane *r, const struct rdma_done *recv)
{
    struct two_qp *q = &r->two->q[recv->qp];
    struct rqp *qp = &r->qp[recv->qp];
    const struct credit *c = (const struct credit *)credit_at(r->two, recv->qp, q->arrived);
    uint32_t returned = le32toh(c->returned);
    if (recv->bytes != sizeof(*c) || le32toh(c->stamp) != q->arrived + 1 ||
        returned - qp->acked > qp->posted - qp->acked)
        return rdma_dead(r, -EPROTO,
                         "reading returned credits: more than were spent, or not credits");
    qp->acked = returned;
    q->arrived++;
    return 0;
}

static int took(struct rdma_lane *r, const struct rdma_done *recv)
{
    struct two_qp *q = &r->two->q[recv->qp];
    if (q->arrived == q->posted)
        return rdma_dead(r, -EPROTO, "reading a receive completion: none was posted");
    if (r->cfg.sender)
        return took_credits(r, recv);
    q->len[q->arrived % r->two->depth] = recv->bytes;
    q->arrived++;
    return 0;
}

/* Takes up to max completions. 0, or the lane is dead. */
static int take(struct rdma_lane *r, int max)
{
    struct rdma_recvs recvs;
    int rc = rdma_take(r, max, &recvs);
    for (int i = 0; i < recvs.n; i++)
        (void)took(r, &recvs.of[i]);
    return rc < 0 ? rc : r->l.err.code;
}

static int two_take(struct rdma_lane *r)
{
    return take(r, CQ_BATCH);
}

/* Number of completions of queue pair k that stamps in memory announce: receives that have begun to arrive, and at a
 * sender the completions of its SENDs that are before them in the queue. */
static uint32_t visible(const struct rdma_lane *r, int k)
{
    const struct two_sided *t = r->two;
    const struct two_qp *q = &t->q[k];
    uint32_t n = 0;
    if (r->cfg.sender) {
        const struct credit *c = (const struct credit *)credit_at(t, k, q->arrived);
        if (__atomic_load_n(&c->stamp, __ATOMIC_ACQUIRE) != htole32(q->arrived + 1))
            return 0;
        uint32_t done = le32toh(__atomic_load_n(&c->returned, __ATOMIC_RELAXED)) - r->qp[k].plain;
        return 1 + (done <= t->depth ? done : 0);
    }
    for (; n < CQ_BATCH && q->arrived + n != q->posted; n++) {
        const struct piece_head *h = (const struct piece_head *)piece_at(t, k, q->arrived + n);
        if (__atomic_load_n(&h->stamp, __ATOMIC_ACQUIRE) != htole32(q->arrived + n + 1))
            break;
    }
    return n;
}

/* Sender: number of SENDs whose completion the receiver's credits announce; 0 below REAP_AT. */
static uint32_t ended(const struct rdma_lane *r, int k)
{
    uint32_t n = r->qp[k].acked - r->qp[k].plain;
    return r->cfg.sender && n <= r->two->depth && n >= REAP_AT ? n : 0;
}

/* True if the receiver has as many credit messages in flight as it may. If credits acknowledge messages, no message is then
 * taken until another credit message may be sent. After the report of a message its caller may make no further call, so the
 * acknowledgement has to go out together with the report. */
static bool is_full_of_credits(const struct rdma_lane *r)
{
    return !r->cfg.sender && r->cfg.acknowledged && r->outstanding >= CREDIT_RECVS / 2;
}

static int take_completions(struct rdma_lane *r)
{
    uint32_t known = 0;
    if (!r->cfg.costly_poll) {
        bool due = !r->cfg.sender || r->outstanding || r->two->q[0].posted;
        return due ? two_take(r) : 0;
    }
    for (int k = 0; k < r->nqps; k++)
        known += visible(r, k) + ended(r, k);
    if (known == 0 && is_full_of_credits(r))
        known = 1;
    else if (known == 0 && rdma_time_to_poll(r))
        known = r->cfg.acknowledged && r->outstanding ? r->outstanding : 1;
    return known ? take(r, (int)known) : 0;
}

static int two_peer_connected(struct rdma_lane *r)
{
    int rc = two_take(r);
    return rc < 0 ? rc : r->two->q[0].arrived > 0 ? 0 : -EAGAIN;
}

/* ---- sender ---- */

/* Posts pieces of the current chunk while there are credits. */
static int push(struct rdma_lane *r, int k)
{
    struct two_sided *t = r->two;
    struct two_qp *q = &t->q[k];
    struct rqp *qp = &r->qp[k];
    while (q->c.open && qp->posted - qp->acked < t->depth && qp->slots > 0) {
        const struct pvn_write *w = &q->c.w;
        uint32_t left = w->f.len - q->c.done;
        uint32_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
        int rc = send_piece(r, k, q->c.done ? PIECE_MORE : PIECE_FIRST, &w->f,
                            (const uint8_t *)w->src + q->c.done, n);
        if (rc < 0)
            return rc;
        q->c.done += n;
        if (q->c.done < w->f.len)
            continue;
        qp->note[q->handed % RECORD_RING] = rdma_note_make(w->cookie, w->f.chunk);
        q->last[q->handed++ % RECORD_RING] = qp->posted;
        q->c.open = false;
    }
    return 0;
}

static int two_post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    struct rdma_lane *r = rdma_of(l);
    struct two_sided *t = r->two;
    for (int i = 0; i < r->nqps; i++) {
        int k = r->next_qp;
        struct rqp *qp = &r->qp[k];
        r->next_qp = k + 1 == r->nqps ? 0 : k + 1;
        if (t->q[k].c.open || qp->posted - qp->acked == t->depth || qp->slots == 0 ||
            t->q[k].handed - qp->reported == RECORD_RING)
            continue;
        t->q[k].c = (struct chunk){.open = true, .w = *w};
        r->stats.chunks++;
        return push(r, k);
    }
    return -EAGAIN;
}

/* True if the oldest unreported chunk may be reported as sent. With cfg.acknowledged, the credit of its last piece must have
 * come back. Its completion is not enough: the piece may still lie in the receiver's buffers, because no receive is posted
 * for it or an earlier message is missing, and would be lost together with these buffers. */
static bool is_sent(const struct rdma_lane *r, const struct two_qp *q, const struct rqp *qp)
{
    if (!r->cfg.acknowledged)
        return true;
    uint32_t last = q->last[qp->reported % RECORD_RING];
    return (int32_t)(qp->acked - last) >= 0;
}

static int poll_sends(struct rdma_lane *r, struct pvn_event *ev, int max)
{
    int n = 0, rc = r->l.err.code ? r->l.err.code : take_completions(r);
    for (int k = 0; rc >= 0 && k < r->nqps; k++) {
        struct two_qp *q = &r->two->q[k];
        struct rqp *qp = &r->qp[k];
        if (q->c.open)
            rc = push(r, k);
        for (; n < max && qp->reported != q->handed && is_sent(r, q, qp);
             qp->reported++, r->chunks_done++) {
            uint32_t note = qp->note[qp->reported % RECORD_RING];
            ev[n++] = (struct pvn_event){
                .kind = PVN_EV_SENT, .id = rdma_note_id(note), .chunk = rdma_note_chunk(note)};
        }
        if (rc >= 0 && q->arrived + CREDIT_RECVS - q->posted >= CREDIT_RECVS / 2)
            rc = post_recvs(r, k, q->arrived + CREDIT_RECVS - q->posted);
    }
    return rc < 0 && n == 0 ? rc : n;
}

/* Waits before a close until the requests in flight have completed, because they are lost with the queue pair: messages that
 * were reported as sent, or the credits by which the peer learns that its last messages have arrived. */
static void two_drain(struct rdma_lane *r)
{
    uint64_t until = pvn_now_ns() + (r->cfg.sender ? DRAIN_NS : FINAL_CREDIT_NS);
    bool awaited = r->cfg.sender || r->cfg.acknowledged;
    if (!r->two || !awaited || !r->verified || r->errored || r->l.abandoned)
        return;
    for (int k = 0; k < r->nqps; k++)
        rdma_ring(r, k);
    while (r->l.err.code == 0 && r->outstanding > 0 && pvn_now_ns() < until)
        if (two_take(r) < 0)
            return;
}

/* ---- receiver ---- */

static int begin_chunk(struct rdma_lane *r, struct chunk *c, const struct piece_head *h)
{
    struct pvn_place to = {0};
    c->f = (struct pvn_frame){.seq = le64toh(h->seq),
                              .total = le64toh(h->total),
                              .offset = le64toh(h->offset),
                              .len = le32toh(h->len),
                              .chunk = le16toh(h->chunk),
                              .tag = (int32_t)le32toh((uint32_t)h->tag)};
    int rc = r->l.place(r->l.engine, &r->l, &c->f, &to);
    if (rc == -EAGAIN)
        return rc;
    if (rc < 0 && rc != -EALREADY)
        return rdma_dead(r, rc, "placing a message");
    c->needed = rc == 0;
    c->dst = to.dst;
    c->done = 0;
    c->open = true;
    return 0;
}

/* Copies one piece to its destination. 0, -EAGAIN: no receive is posted for it yet, or the lane is dead. */
static int place_piece(struct rdma_lane *r, int k, struct pvn_event *ev, int *n)
{
    struct two_sided *t = r->two;
    struct chunk *c = &t->q[k].c;
    uint32_t at = r->qp[k].seen, bytes = t->q[k].len[at % t->depth];
    const struct piece_head *h = (const struct piece_head *)piece_at(t, k, at);
    bool whole = bytes >= sizeof(*h) && le32toh(h->stamp) == at + 1;
    if (!whole || h->kind > PIECE_MORE || (h->kind == PIECE_MORE) != c->open)
        return rdma_dead(r, -EPROTO, "reading a piece of a message: it is not what must come next");
    if (h->kind == PIECE_PROBE)
        return 0;
    int rc = h->kind == PIECE_FIRST ? begin_chunk(r, c, h) : 0;
    if (rc < 0)
        return rc;
    bytes -= (uint32_t)sizeof(*h);
    if (bytes > c->f.len - c->done || (bytes == 0 && c->f.len > 0))
        return rdma_dead(r, -EPROTO, "reading a piece of a message: its length is impossible");
    if (c->needed && bytes)
        pvn_copy_in_order(c->dst + c->done, h + 1, bytes);
    c->done += bytes;
    if (c->done < c->f.len)
        return 0;
    c->open = false;
    r->stats.chunks++;
    r->chunks_done++;
    if (c->needed)
        ev[(*n)++] = (struct pvn_event){.kind = PVN_EV_ARRIVED,
                                        .id = pvn_id(c->f.seq),
                                        .chunk = c->f.chunk,
                                        .bytes = c->f.len,
                                        .total = c->f.total};
    return 0;
}

/* Copies the pieces of one queue pair. *moved is set if a piece has been copied, because a piece on another queue pair may have
 * waited for it. */
static int place_pieces(struct rdma_lane *r, int k, struct pvn_event *ev, int max, int *n,
                        bool *moved)
{
    struct rqp *qp = &r->qp[k];
    int rc = 0;
    while (rc == 0 && *n < max && qp->seen != r->two->q[k].arrived) {
        rc = place_piece(r, k, ev, n);
        qp->seen += rc == 0;
        *moved |= rc == 0;
    }
    return rc == -EAGAIN ? 0 : rc;
}

/* True if the sender may wait for the credits, because no chunk is incomplete and credits acknowledge messages. */
static bool is_awaited(const struct rdma_lane *r, int k)
{
    return r->cfg.acknowledged && !r->two->q[k].c.open;
}

static int poll_receives(struct rdma_lane *r, struct pvn_event *ev, int max)
{
    struct two_sided *t = r->two;
    bool moved = false;
    int n = 0, rc = r->l.err.code ? r->l.err.code : take_completions(r);
    for (int k = 0; rc >= 0 && k < r->nqps && !is_full_of_credits(r); k++) {
        struct rqp *qp = &r->qp[k];
        rc = place_pieces(r, k, ev, max, &n, &moved);
        uint32_t lack = qp->seen + t->depth - t->q[k].posted;
        if (rc == 0 && (lack >= t->depth / 2 || (lack > 0 && is_awaited(r, k)))) {
            rc = post_recvs(r, k, lack);
            if (rc == 0)
                rc = send_credits(r, k);
        }
    }
    /* Arrivals from before an error are reported before it, because the peer may know that they arrived. */
    return rc < 0 && n == 0 ? rc : n;
}

static int two_tx_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    int n = poll_sends(rdma_of(l), ev, max);
    return n ? n : rdma_healthy(rdma_of(l));
}

static int two_rx_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    int n = poll_receives(rdma_of(l), ev, max);
    return n ? n : rdma_healthy(rdma_of(l));
}

/* Saves the completions of receives. two_take_landed then reports the pieces whose destination is known. The other pieces are
 * not acknowledged, so the peer sends them again, as it does with everything after a malformed piece, at which the lane
 * dies. */
static int two_save_arrivals(struct rdma_lane *r)
{
    struct rdma_recvs recvs;
    int rc = 0;
    if (r->cfg.sender)
        return 0;
    do {
        rc = rdma_take_last(r, &recvs);
        for (int i = 0; i < recvs.n; i++)
            (void)took(r, &recvs.of[i]);
    } while (recvs.n > 0);
    return rc;
}

static void two_take_landed(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    int rc = 0;
    bool moved;
    do {
        moved = false;
        for (int k = 0; rc == 0 && k < r->nqps; k++)
            rc = place_pieces(r, k, ev, max, n, &moved);
    } while (rc == 0 && moved);
}

/* The lane counts chunks itself in this mode. */
static void two_get_stats(const struct rdma_lane *r, struct pvn_rdma_lane_stats *out)
{
    (void)r, (void)out;
}

#define TWO_OPS                                                                                    \
    .post_cts = pvn_lane_no_post_cts, .next_slot = pvn_lane_no_next_slot,                          \
    .post_flush = pvn_lane_no_post_flush, .kick = rdma_tx_kick, .copy_out = pvn_lane_no_copy
static const struct pvn_lane_data_ops two_rx = {TWO_OPS, .post_write = pvn_lane_no_post_write,
                                                .poll = two_rx_poll};
static const struct pvn_lane_data_ops two_tx = {TWO_OPS, .post_write = two_post_write,
                                                .poll = two_tx_poll};

const struct rdma_mode rdma_send_mode = {
    .opcode = IBV_WR_SEND,
    .all_signaled = true,
    .copies = true,
    .open = two_open,
    .probe = two_probe,
    .peer_connected = two_peer_connected,
    .take = two_take,
    .save_arrivals = two_save_arrivals,
    .take_landed = two_take_landed,
    .before_close = two_drain,
    .get_stats = two_get_stats,
    .data = {&two_rx, &two_tx},
};
