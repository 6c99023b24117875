/* Short messages: written whole into a ring in the receiver's memory, copied there into the posted
 * buffer; see rdma_wire.h. */
#include "net-pvrdma/rdma_priv.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* The requests of all short messages of a queue pair differ in two addresses and a length. */
void rdma_short_open(struct rdma_lane *r)
{
    r->shorts = r->cfg.shorts && r->peer.shorts && r->cfg.mode != PVN_RDMA_SEND;
    for (int k = 0; k < r->nqps; k++) {
        struct short_ring *s = &r->qp[k].shorts;
        s->base = r->mem + mem_short(r->cfg.qps) + (size_t)k * SHORT_RING_BYTES;
        s->next = (const struct short_head *)s->base;
        s->remote = r->peer.mem_addr + mem_short(r->peer.nqps) + (size_t)k * SHORT_RING_BYTES;
        s->sge.lkey = r->mem_mr->lkey;
        s->wr = (struct ibv_send_wr){.wr_id = wr_id_make(WR_DATA, k, 1),
                                     .sg_list = &s->sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_RDMA_WRITE,
                                     .wr.rdma.rkey = r->peer.mem_rkey};
    }
}

static inline void step(struct short_ring *s, uint32_t lines)
{
    s->count++;
    s->lines += lines;
    s->at += lines;
    if (s->at >= SHORT_LINES)
        s->at = 0;
    s->next = (const struct short_head *)(s->base + (size_t)s->at * sizeof(struct short_head));
}

/* ---- sender ---- */

/* Whether the ring has room, as far as is known; if not, what the receiver says now is looked at.
 */
static inline bool has_lines(struct rdma_lane *r, int k, uint32_t lines)
{
    struct short_ring *s = &r->qp[k].shorts;
    if (s->lines + lines - s->free_from <= SHORT_LINES)
        return true;
    uint32_t told = le32toh(__atomic_load_n(&r->ack->lines[k], __ATOMIC_ACQUIRE));
    if (s->lines - told <= s->lines - s->free_from)
        s->free_from = told;
    return s->lines + lines - s->free_from <= SHORT_LINES;
}

static inline bool is_registered(const struct pvn_write *w)
{
    uintptr_t at = (uintptr_t)w->src - (uintptr_t)w->mr->addr;
    return at <= w->mr->len && w->f.len <= w->mr->len - at;
}

static void fill_more(struct short_more *m, const uint8_t *src, uint32_t left, uint32_t stamp)
{
    for (; left > 0; m++) {
        uint32_t n = left < SHORT_MORE_BYTES ? left : SHORT_MORE_BYTES;
        memcpy(m->data, src, n);
        m->stamp = stamp;
        src += n;
        left -= n;
    }
}

static inline void fill(struct short_head *h, const struct pvn_write *w, uint32_t stamp)
{
    uint32_t len = w->f.len, n = len < SHORT_HEAD_BYTES ? len : SHORT_HEAD_BYTES;
    h->imm = htole32(imm_make(w->f.seq, w->f.recv, 0));
    h->bytes = htole32(len);
    memcpy(h->data, w->src, n);
    h->stamp = stamp;
    if (len > n)
        fill_more((struct short_more *)(h + 1), (const uint8_t *)w->src + n, len - n, stamp);
}

int rdma_post_short(struct rdma_lane *r, const struct pvn_write *w)
{
    int k = rdma_pick_qp(r);
    if (k < 0)
        return -EAGAIN;
    struct rqp *q = &r->qp[k];
    struct short_ring *s = &q->shorts;
    uint32_t lines = short_lines(w->f.len), bytes = lines * (uint32_t)sizeof(struct short_head);
    if (__builtin_expect(!has_lines(r, k, lines) || !is_registered(w) || q->nwr, 0))
        return rdma_post_long(r, w);
    struct short_head *h = (struct short_head *)(s->base + (size_t)s->at * sizeof(*h));
    fill(h, w, htole32(s->count + 1));
    s->sge.addr = (uintptr_t)h;
    s->sge.length = bytes;
    s->wr.send_flags = IBV_SEND_SIGNALED | (bytes <= r->cfg.max_inline ? IBV_SEND_INLINE : 0);
    s->wr.wr.rdma.remote_addr = s->remote + (size_t)s->at * sizeof(*h);
    step(s, lines);
    q->places--;
    rdma_note(r, q, w);
    r->stats.shorts++;
    struct ibv_send_wr *bad = NULL;
    r->stats.post_send++;
    r->moved = true;
    r->owed++;
    int rc = ibv_post_send(q->qp, &s->wr, &bad);
    return __builtin_expect(rc == 0, 1) ? 0 : rdma_not_posted(r, rc);
}

/* ---- receiver ---- */

__attribute__((noinline)) static bool all_lines(const struct short_head *h, uint32_t lines,
                                                uint32_t stamp)
{
    const struct short_more *m = (const struct short_more *)(h + 1);
    for (uint32_t i = 0; i + 1 < lines; i++)
        if (__atomic_load_n(&m[i].stamp, __ATOMIC_ACQUIRE) != stamp)
            return false;
    return true;
}

int rdma_read_shorts(struct rdma_lane *r, int k, struct pvn_event *ev, int max, int *n)
{
    struct rqp *q = &r->qp[k];
    while (*n < max && rdma_short_is_there(q)) {
        const struct short_head *h = q->shorts.next;
        uint32_t bytes = le32toh(h->bytes), imm = le32toh(h->imm);
        if (__builtin_expect(bytes > SHORT_MAX, 0))
            return rdma_dead(r, -EPROTO, "reading a short message: it is longer than any can be");
        uint32_t lines = short_lines(bytes);
        if (lines > 1 && !all_lines(h, lines, htole32(q->shorts.count + 1)))
            break;
        struct pvn_event *e = &ev[(*n)++];
        e->kind = PVN_EV_ARRIVED;
        e->id = imm_id(imm);
        e->recv = imm_recv(imm);
        e->chunk = 0;
        e->bytes = bytes;
        e->total = bytes;
        e->data = bytes ? h : NULL;
        step(&q->shorts, lines);
        q->seen++;
        r->stats.shorts++;
    }
    return 0;
}

void rdma_copy_out(const struct pvn_event *ev, void *dst)
{
    const struct short_head *h = ev->data;
    uint32_t left = ev->bytes, n = left < SHORT_HEAD_BYTES ? left : SHORT_HEAD_BYTES;
    uint8_t *to = dst;
    memcpy(to, h->data, n);
    const struct short_more *m = (const struct short_more *)(h + 1);
    for (left -= n; left > 0; left -= n, m++) {
        to += n;
        n = left < SHORT_MORE_BYTES ? left : SHORT_MORE_BYTES;
        memcpy(to, m->data, n);
    }
}
