/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sending half of the engine: numbering, clear-to-send, chunks out, completions in. */
#include "engine/engine_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Finds a free buffer with this tag in a slot. */
static int match_buffer(const struct send_slot *s, int tag)
{
    for (int i = 0; i < s->cts->n; i++)
        if (s->cts->e[i].tag == tag && !(s->taken >> i & 1))
            return i;
    return NO_INDEX;
}

/* The oldest slot that has free buffers: sends never look past it, for the receiver's groups are
 * filled in order, as NCCL's own verbs transport does. */
static inline struct send_slot *first_slot(struct sender *tx)
{
    return &tx->slots[tx->slot_head % SLOT_RING];
}

static inline void take_buffer(struct pvn_engine *e, struct send_slot *s, int buf)
{
    struct sender *tx = e->tx;
    if (s->cts->n > 1) {
        s->taken |= 1u << buf;
        if (s->taken != (1u << s->cts->n) - 1)
            return;
        s->taken = 0;
    }
    s->cts = NULL;
    tx->slot_head++;
    e->announced = --tx->known > 0;
}

/* 0: posted, -EAGAIN: no room, other: failed. */
static inline int post_to(struct pvn_engine *e, int lane, struct send_msg *m, struct pvn_write *w)
{
    struct pvn_lane *l = e->cfg.lanes[lane];
    w->rkey = m->to ? m->to->rkey[lane] : 0;
    int rc = l->ops->post_write(l, w);
    if (__builtin_expect(rc != 0, 0)) {
        e->stats.again += rc == -EAGAIN;
        if (rc != -EAGAIN)
            rc = eng_fail_lane(e, l, rc);
        return rc ? rc : -EAGAIN;
    }
    eng_moved(l);
    m->next++;
    e->stats.chunks++;
    return 0;
}

/* To the lane whose turn it is, or the next one that has room. */
static int post_to_any(struct pvn_engine *e, struct send_msg *m, struct pvn_write *w)
{
    int rc = -EAGAIN;
    for (int tried = 0; tried < e->cfg.nlanes && rc == -EAGAIN && !e->paused; tried++) {
        int lane = e->rr;
        e->rr = lane + 1 == e->cfg.nlanes ? 0 : lane + 1;
        rc = post_to(e, lane, m, w);
    }
    return rc;
}

static int post_chunk(struct pvn_engine *e, struct send_msg *m)
{
    struct pvn_write w = m->w;
    size_t offset = (size_t)m->next * m->chunk, left = m->w.f.total - offset;
    w.f.offset = offset;
    w.f.len = (uint32_t)(left < m->chunk ? left : m->chunk);
    w.f.chunk = m->next;
    w.more = m->next + 1 < m->count;
    w.src = (const uint8_t *)m->w.src + offset;
    w.raddr += offset;
    return post_to_any(e, m, &w);
}

__attribute__((noinline, cold)) static int too_long(struct pvn_engine *e, size_t size, int tag,
                                                    uint64_t room)
{
    return eng_fail(e, -EMSGSIZE, PVN_FAULT_ARGUMENT,
                    "a send of %zu bytes (tag %d) met a receive of %llu bytes", size, tag,
                    (unsigned long long)room);
}

/* Gives a message buffer `buf` of the oldest slot. 0 or the engine's error. */
static inline int take_slot(struct pvn_engine *e, struct send_slot *s, struct send_msg *m, int buf,
                            size_t size, int tag)
{
    const struct pvn_cts_entry *to = &s->cts->e[buf];
    if (__builtin_expect(size > to->size, 0))
        return too_long(e, size, tag, to->size);
    m->w.f.seq = e->tx->slot_head;
    m->w.f.recv = (uint8_t)buf;
    m->w.raddr = to->addr;
    m->w.rkey = to->rkey[0];
    m->w.copies = to->copies;
    m->to = to;
    take_buffer(e, s, buf);
    return 0;
}

/* A message that is sent again after a failover takes a buffer as a new one does. -EAGAIN: none has
 * been announced for it yet. */
static int assign(struct pvn_engine *e, struct send_msg *m)
{
    struct sender *tx = e->tx;
    struct send_slot *s = first_slot(tx);
    int buf = s->cts ? match_buffer(s, m->w.f.tag) : NO_INDEX;
    if (buf < 0)
        return -EAGAIN;
    int rc = take_slot(e, s, m, buf, m->req.size, m->w.f.tag);
    if (rc)
        return rc;
    m->unassigned = false;
    if (--tx->unassigned == 0)
        e->cfg.lanes[0]->fast.keeps_cts = e->sends_next;
    return 0;
}

/* Hands chunks to the lanes in message order; the order is what keeps a matched receiver, whose
 * streams may each be stopped at a message that has no buffer yet, from waiting for one that is
 * behind it. */
int eng_tx_post(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    e->unposted = true;
    if (e->paused)
        return 0;
    while (tx->unposted < tx->next) {
        struct send_msg *m = &tx->msg[tx->unposted % MSG_RING];
        if (m->unassigned) {
            int rc = assign(e, m);
            if (rc)
                return rc == -EAGAIN ? 0 : rc;
        }
        while (m->next < m->count) {
            int rc = post_chunk(e, m);
            if (rc == -EAGAIN)
                return 0;
            if (rc < 0)
                return rc;
        }
        tx->unposted++;
    }
    e->unposted = false;
    return 0;
}

/* A message is cut, or waits for room. */
__attribute__((noinline)) static int post_cut(struct pvn_engine *e, struct send_msg *m)
{
    struct plan plan = eng_plan(e, m->w.f.total);
    m->chunk = plan.chunk;
    m->count = (uint16_t)plan.count;
    m->ndone = 0;
    chunk_clear(&m->done);
    if (!e->unposted)
        e->tx->unposted = e->tx->next - 1;
    return eng_tx_post(e);
}

/* A message that is one chunk, before which nothing waits, and with no other lane to choose. */
static inline int post_whole(struct pvn_engine *e, struct send_msg *m)
{
    struct pvn_lane *l = e->cfg.lanes[0];
    int rc = l->ops->post_write(l, &m->w);
    if (__builtin_expect(rc != 0, 0))
        return rc == -EAGAIN || (rc = eng_fail_lane(e, l, rc)) == 0 ? post_cut(e, m) : rc;
    m->next = 1;
    e->stats.chunks++;
    eng_moved(l);
    return l->kick_due ? eng_kick_all(e) : 0;
}

__attribute__((noinline, cold)) static int refuse(struct pvn_engine *e)
{
    return e->failed ? e->err.code : e->tx ? -EMSGSIZE : -EINVAL;
}

/* The buffer of the oldest slot for a send with this tag; NO_INDEX: none has been announced, or
 * messages that are sent again come first. */
static inline int find_buffer(const struct sender *tx, const struct send_slot *s, int tag)
{
    if (!s->cts || tx->unassigned > 0)
        return NO_INDEX;
    if (s->cts->n == 1 && s->cts->e[0].tag == tag)
        return 0;
    return match_buffer(s, tag);
}

/* The next slot may be waiting in a lane: polls them, and asks a lane on the fast path to report
 * its slots as events. 0 or the engine's error. */
__attribute__((noinline)) static int poll_for_slots(struct pvn_engine *e)
{
    if (e->paused)
        return 0;
    e->cfg.lanes[0]->fast.keeps_cts = false;
    int rc = pvn_engine_progress(e);
    if (!e->paused)
        e->cfg.lanes[0]->fast.keeps_cts = e->sends_next && e->tx->unassigned == 0;
    return rc;
}

int pvn_engine_isend(struct pvn_engine *e, const void *data, size_t size, int tag,
                     const struct pvn_mr *mr, struct pvn_req **out)
{
    struct sender *tx = e->tx;
    *out = NULL;
    if (__builtin_expect(e->failed || !tx || size >> MAX_TOTAL_LOG2, 0))
        return refuse(e);
    struct send_msg *m = &tx->msg[tx->next % MSG_RING];
    if (m->req.state != REQ_FREE || e->paused)
        return 0;
    if (e->needs_cts) {
        int buf = find_buffer(tx, first_slot(tx), tag);
        if (buf < 0) {
            int rc = poll_for_slots(e);
            if (rc || e->paused)
                return rc;
            buf = find_buffer(tx, first_slot(tx), tag);
            if (buf < 0)
                return 0;
        }
        int rc = take_slot(e, first_slot(tx), m, buf, size, tag);
        if (__builtin_expect(rc != 0, 0))
            return rc;
    } else {
        m->w.f.seq = tx->next;
    }
    m->w.cookie = pvn_id(tx->next++);
    m->w.f.total = size;
    m->w.f.len = (uint32_t)size;
    m->w.f.tag = tag;
    m->w.src = data;
    m->w.mr = mr;
    m->req.size = size;
    m->count = 1;
    m->next = 0;
    eng_req_open(e, &m->req);
    int rc;
    if (__builtin_expect(size <= e->chunk && !e->unposted && e->cfg.nlanes == 1, 1)) {
        rc = post_whole(e, m);
    } else {
        rc = post_cut(e, m);
        if (rc == 0)
            rc = eng_kick(e);
    }
    if (__builtin_expect(rc < 0, 0))
        return rc;
    *out = &m->req;
    return 0;
}

/* A message of several chunks: whether this was the last. */
__attribute__((noinline)) static bool last_of_many(struct pvn_engine *e, struct send_msg *m,
                                                   unsigned chunk)
{
    if (chunk_test(&m->done, chunk)) {
        e->stats.dups++;
        return false;
    }
    chunk_add(&m->done, chunk);
    if (++m->ndone < m->count)
        return false;
    m->count = m->next = 1;
    return true;
}

/* Any chunk. */
__attribute__((noinline)) static void sent_any(struct pvn_engine *e, uint32_t id, unsigned chunk)
{
    struct send_msg *m = &e->tx->msg[id % MSG_RING];
    if (m->req.state != REQ_OPEN || m->w.cookie != id || chunk >= m->next) {
        e->stats.stale++;
        return;
    }
    if (m->count > 1 && !last_of_many(e, m, chunk))
        return;
    e->stats.bytes += m->req.size;
    eng_req_done(e, &m->req);
}

/* Of several chunks, or not posted yet. One load of both, see eng_takes_slow_path. */
static inline bool is_not_one_chunk(const struct send_msg *m)
{
    return m->count != 1 || m->next != 1;
}

/* Chunk 0. */
static inline void sent(struct pvn_engine *e, uint32_t id)
{
    struct send_msg *m = &e->tx->msg[id % MSG_RING];
    if (__builtin_expect(m->req.state != REQ_OPEN || m->w.cookie != id || is_not_one_chunk(m), 0)) {
        sent_any(e, id, 0);
        return;
    }
    e->stats.bytes += m->req.size;
    eng_req_done(e, &m->req);
}

__attribute__((noinline, cold)) static void impossible_cts(struct pvn_engine *e, int n)
{
    eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
             "the peer announced a grouped receive of %d buffers; 1 to %d are possible", n,
             PVN_MAX_RECVS);
}

static inline void cts(struct pvn_engine *e, const struct pvn_cts *c)
{
    struct sender *tx = e->tx;
    if (c->n < 1 || c->n > PVN_MAX_RECVS) {
        impossible_cts(e, c->n);
        return;
    }
    /* An entry that is published again (a repeated event, a
     * replay) must not free what was taken. */
    struct send_slot *s = &tx->slots[c->seq % SLOT_RING];
    if (c->seq - tx->slot_head >= SLOT_RING || s->cts) {
        e->stats.stale++;
        return;
    }
    s->cts = c;
    tx->known++;
    e->announced = true;
}

int eng_tx_events(struct pvn_engine *e, const struct pvn_event *ev, int n)
{
    for (const struct pvn_event *end = ev + n; ev < end; ev++) {
        if (ev->kind == PVN_EV_SENT) {
            uint32_t id = ev->id, more = ev->more;
            if (ev->part == 0)
                sent(e, id);
            else
                sent_any(e, id, ev->chunk);
            for (; more > 0; more--)
                sent(e, id = pvn_id(id + 1));
        } else if (ev->kind == PVN_EV_CTS)
            cts(e, ev->cts);
        else
            e->stats.stale++;
    }
    return __builtin_expect(e->failed, 0) ? e->err.code : 0;
}

void eng_tx_oldest(const struct pvn_engine *e, const struct pvn_req *req, char *text, size_t cap)
{
    const struct send_msg *m = (const struct send_msg *)req;
    uint64_t behind = pvn_id(e->tx->next - m->w.cookie);
    snprintf(text, cap,
             "message %llu (%llu bytes, tag %d): %u of %u chunks handed to the lanes, %u of them "
             "accepted; waiting for %s",
             (unsigned long long)(e->tx->next - behind), (unsigned long long)m->req.size,
             m->w.f.tag, m->next, m->count, m->count > 1 ? m->ndone : 0,
             m->next < m->count ? "the lanes or the peer to take more"
                                : "the peer or the network to take what the lanes hold");
}
