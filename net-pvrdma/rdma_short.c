/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Short messages: the sender writes them into a ring in the receiver's memory, and the receiver copies them to the posted
 * buffer; see rdma_wire.h. */
#include "net-pvrdma/rdma_rx.h"
#include "net-pvrdma/rdma_tx.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/copy_in_order.h"

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Sets the flags of the ring's request for a message of `lines` lines. Between two messages the flags are those for a message
 * of one line. */
static void set_inline(const struct rdma_lane *r, struct short_ring *s, uint32_t lines)
{
    bool fits = lines * sizeof(struct short_head) <= r->cfg.max_inline;
    s->wr.send_flags = fits ? IBV_SEND_INLINE : 0;
}

/* Prepares the ring and its request. The requests of two short messages differ only in two addresses, the length and
 * the flags of set_inline. */
void rdma_short_open(struct rdma_lane *r)
{
    /* Unsignaled requests need another sign of completion. A sender with expensive completions gets acknowledgements
     * soon, and a receiver sees in the use of its entries that its chains have completed. */
    r->signal_every = r->cfg.costly_poll || !r->cfg.sender ? SIGNAL_EVERY : 1;
    r->l.short_max = r->peer.shorts ? r->cfg.short_max : 0;
    r->copies = r->l.short_max > 0 ? CTS_COPIES : 0;
    r->sums = r->cfg.software && r->peer.software;
    r->line_max = smaller((uint32_t)r->l.short_max, SHORT_HEAD_BYTES);
    struct short_ring *s = &r->qp[0].shorts;
    uint8_t *base = r->mem + mem_short(r->cfg.qps);
    s->base = s->next = (struct short_head *)base;
    s->end = s->base + SHORT_LINES;
    s->to_remote = r->peer.mem_addr + mem_short(r->peer.nqps) - (uintptr_t)base;
    s->sge.lkey = r->mem_mr->lkey;
    s->wr = (struct ibv_send_wr){.sg_list = &s->sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .wr.rdma.rkey = r->peer.mem_rkey};
    set_inline(r, s, 1);
}

/* The first line of the next message, after the message of `lines` lines at h. */
static inline struct short_head *behind(const struct short_ring *s, struct short_head *h,
                                        uint32_t lines)
{
    h += lines;
    return h < s->end ? h : s->base;
}

/* Copies up to one line. It copies the first and the last 4, 8 or 16 bytes, which may overlap, so that it needs neither a
 * call nor a loop. Always inline, because with _FORTIFY_SOURCE the checked copies look too large to gcc before it has
 * removed the checks. */
static inline __attribute__((always_inline)) void copy_few(void *dst, const void *src, uint32_t n)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
    if (n - 8 <= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + n - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + n - 8, &last, 8);
    } else if (n > 16) {
        memcpy(to, from, 16);
        if (n > 32) {
            memcpy(to + 16, from + 16, 16);
            memcpy(to + n - 32, from + n - 32, 16);
        }
        memcpy(to + n - 16, from + n - 16, 16);
    } else if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4);
        memcpy(&last, from + n - 4, 4);
        memcpy(to, &first, 4);
        memcpy(to + n - 4, &last, 4);
    } else if (n > 0) {
        to[0] = from[0];
        to[n / 2] = from[n / 2];
        to[n - 1] = from[n - 1];
    }
}
static_assert(SHORT_HEAD_BYTES <= 64, "four pieces of 16 bytes are all of them");

/* ---- sender ---- */

/* Reads the receiver's acknowledgement and counts how many lines may be sent. Each line counts as one chunk and one slot,
 * so a message of several lines is counted for more than it uses. */
__attribute__((noinline)) static int32_t count_room(struct rdma_lane *r, struct rqp *q)
{
    struct short_ring *s = &q->shorts;
    uint32_t lines_read = le32toh(__atomic_load_n(&r->tx.acks->lines, __ATOMIC_ACQUIRE));
    if (s->lines - lines_read <= s->lines - s->free_from)
        s->free_from = lines_read;
    s->room = 0;
    if (q->nwr == 0 && rdma_has_room(r, q)) {
        uint32_t chunks = smaller(r->tx.window - (q->posted - rdma_window_from(r, q)),
                                  RECORD_RING - (q->posted - q->reported));
        s->room =
            (int32_t)smaller(smaller(chunks, q->slots), SHORT_LINES - (s->lines - s->free_from));
    }
    return s->room;
}

bool rdma_short_take_room(struct rdma_lane *r, uint32_t len)
{
    struct rqp *q = &r->qp[0];
    int32_t lines = (int32_t)short_lines(len);
    if (q->shorts.room < lines && count_room(r, q) < lines)
        return false;
    q->shorts.room -= lines;
    return true;
}

/* Posts the ring's request with a completion. */
__attribute__((noinline)) static int post_signalled(struct rdma_lane *r, struct rqp *q)
{
    struct ibv_send_wr wr = q->shorts.wr, *bad;
    rdma_signal_data(r, q, &wr, q->posted);
    r->outstanding += q->signalled;
    q->signalled = 0;
    int rc = ibv_post_send(q->qp, &wr, &bad);
    return __builtin_expect(rc == 0, 1) ? 0 : rdma_not_posted(r, rc);
}

/* Sends the message at h, without the first `skip` bytes of its line. The lines are counted in the ring already. */
static inline int post_lines(struct rdma_lane *r, struct rqp *q, struct short_head *h,
                             uint32_t lines, uint32_t skip, uint32_t cookie)
{
    struct short_ring *s = &q->shorts;
    struct ibv_send_wr *bad;
    uintptr_t at = (uintptr_t)h->data + skip;
    s->sge.addr = at;
    s->sge.length = lines * (uint32_t)sizeof(*h) - skip;
    s->wr.wr.rdma.remote_addr = at + s->to_remote;
    s->next = behind(s, h, lines);
    q->slots--;
    rdma_note(q, cookie, 0);
    if (__builtin_expect(++q->unsignaled >= r->signal_every, 0))
        return post_signalled(r, q);
    int rc = ibv_post_send(q->qp, &s->wr, &bad);
    return __builtin_expect(rc == 0, 1) ? 0 : rdma_not_posted(r, rc);
}

static inline uint32_t short_imm(const struct pvn_write *w)
{
    return htole32(imm_make(w->f.seq, w->f.recv, 0));
}

static inline __attribute__((always_inline)) int
post_one_line(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w, const bool sum)
{
    struct short_head *h = q->shorts.next;
    uint32_t lines = q->shorts.lines + 1, len = w->f.len, skip = short_skip(len);
    q->shorts.lines = lines;
    h->imm = short_imm(w);
    h->bytes = htole16((uint16_t)len);
    h->stamp = htole32(lines);
    copy_few(h->data + skip, w->src, len);
    if (sum)
        h->sum = htole16(short_line_sum(h, len));
    return post_lines(r, q, h, 1, sum ? short_sum_from(len) : skip, w->cookie);
}

__attribute__((noinline)) static int post_summed(struct rdma_lane *r, struct rqp *q,
                                                 const struct pvn_write *w)
{
    return post_one_line(r, q, w, true);
}

/* Posts a message of one line. The variant with a sum is a separate function, because as a branch its registers would
 * cost the variant without a sum 30 instructions. */
static inline __attribute__((always_inline)) int post_line(struct rdma_lane *r, struct rqp *q,
                                                           const struct pvn_write *w)
{
    return r->sums ? post_summed(r, q, w) : post_one_line(r, q, w, false);
}

__attribute__((noinline)) static int post_several_lines(struct rdma_lane *r, struct rqp *q,
                                                        const struct pvn_write *w)
{
    const uint8_t *src = w->src;
    uint32_t len = w->f.len;
    struct short_ring *s = &q->shorts;
    struct short_head *h = s->next;
    uint32_t stamp = htole32(s->lines + 1), lines = short_lines(len);
    s->lines += lines;
    h->imm = short_imm(w);
    h->bytes = htole16((uint16_t)len);
    h->stamp = stamp;
    memcpy(h->data, src, SHORT_HEAD_BYTES);
    src += SHORT_HEAD_BYTES;
    len -= SHORT_HEAD_BYTES;
    for (struct short_more *m = (struct short_more *)(h + 1); len > 0; m++) {
        uint32_t n = smaller(len, SHORT_MORE_BYTES);
        memcpy(m->data, src, n);
        m->stamp = stamp;
        src += n;
        len -= n;
    }
    h->sum = htole16(short_sum(h, lines));
    set_inline(r, s, lines);
    int rc = post_lines(r, q, h, lines, 0, w->cookie);
    set_inline(r, s, 1);
    return rc;
}

int rdma_post_short(struct rdma_lane *r, const struct pvn_write *w)
{
    struct rqp *q = &r->qp[0];
    return __builtin_expect(w->f.len > SHORT_HEAD_BYTES, 0) ? post_several_lines(r, q, w)
                                                            : post_line(r, q, w);
}

/* ---- receiver ---- */

/* True if the first line of the message after `before` lines is visible. */
static inline bool is_there(const struct short_head *h, uint32_t before)
{
    return __atomic_load_n(&h->stamp, __ATOMIC_ACQUIRE) == htole32(before + 1);
}

/* Checks the other lines of a message of several lines. 1: complete, 0: not yet, or the lane is dead. */
__attribute__((noinline)) static int all_lines(struct rdma_lane *r, const struct short_head *h,
                                               uint32_t lines, uint32_t before)
{
    const struct short_more *m = (const struct short_more *)(h + 1);
    for (uint32_t i = 0; i + 1 < lines; i++)
        if (__atomic_load_n(&m[i].stamp, __ATOMIC_ACQUIRE) != htole32(before + 1))
            return 0;
    if (le16toh(h->sum) == short_sum(h, lines))
        return 1;
    return rdma_partial(r, 0, before, PARTIAL_SHORT);
}

static inline __attribute__((always_inline)) int
read_shorts(struct rdma_lane *r, struct pvn_event *ev, int max, int *n, const bool sums)
{
    struct rqp *q = &r->qp[0];
    struct short_ring *s = &q->shorts;
    struct pvn_event *const first = ev + *n, *const end = ev + max, *e = first;
    struct short_head *h = s->next;
    uint32_t before = s->lines;
    for (; e < end && is_there(h, before); e++) {
        uint32_t bytes = le16toh(h->bytes), lines = 1;
        if (__builtin_expect(bytes > SHORT_HEAD_BYTES, 0)) {
            if (bytes > SHORT_MAX)
                return rdma_dead(r, -EPROTO, PARTIAL_SHORT ": it is longer than any can be");
            lines = short_lines(bytes);
            int rc = all_lines(r, h, lines, before);
            if (rc < 0)
                return rc;
            if (rc == 0)
                break;
        } else if (sums && le16toh(h->sum) != short_line_sum(h, bytes)) {
            int rc = rdma_partial(r, 0, before, PARTIAL_SHORT);
            if (rc < 0)
                return rc;
            break;
        }
        uint32_t imm = le32toh(h->imm);
        e->kind = PVN_EV_ARRIVED;
        e->id = imm_id(imm);
        e->chunk = 0;
        e->recv = imm_recv(imm);
        e->bytes = bytes;
        e->total = bytes;
        e->data = bytes ? h : NULL;
        before += lines;
        h = behind(s, h, lines);
    }
    s->lines = before;
    s->next = h;
    if (e > first) {
        q->seen += (uint32_t)(e - first);
        *n += (int)(e - first);
        rdma_started(r, e[-1].id);
    }
    return 0;
}

__attribute__((noinline)) static int read_summed(struct rdma_lane *r, struct pvn_event *ev, int max,
                                                 int *n)
{
    return read_shorts(r, ev, max, n, true);
}

int rdma_read_shorts(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    return r->sums ? read_summed(r, ev, max, n) : read_shorts(r, ev, max, n, false);
}

/* Collects a message of several lines first. A line ends within a word of 8 bytes, which has to appear as a whole. */
__attribute__((noinline)) static void copy_lines(const struct short_head *h, uint32_t bytes,
                                                 void *dst)
{
    uint8_t all[SHORT_MAX];
    const struct short_more *m = (const struct short_more *)(h + 1);

    memcpy(all, h->data, SHORT_HEAD_BYTES);
    for (uint32_t at = SHORT_HEAD_BYTES; at < bytes; at += SHORT_MORE_BYTES, m++)
        memcpy(all + at, m->data, SHORT_MORE_BYTES);
    pvn_copy_in_order(dst, all, bytes);
}

void rdma_copy_out(const struct pvn_event *ev, void *dst)
{
    const struct short_head *h = ev->data;

    if (ev->bytes <= SHORT_HEAD_BYTES)
        copy_few(dst, h->data + short_skip(ev->bytes), ev->bytes);
    else
        copy_lines(h, ev->bytes, dst);
}
