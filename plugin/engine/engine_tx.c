/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Messages in progress at their sender: chunks to the lanes, slots and completions from them. */
#include "engine/engine_tx.h"

#include <errno.h>
#include <stdio.h>

/* 0: posted, -EAGAIN: no room, other: failed. */
static inline int post_to(struct pvn_engine *e, int lane, struct send_msg *m, struct pvn_write *w)
{
    struct pvn_lane *l = e->cfg.lanes[lane];
    w->rkey = e->needs_cts ? eng_target(e->tx, m)->rkey[lane] : 0;
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
        rc = post_to(e, eng_next_lane(e), m, w);
    }
    return rc;
}

static int post_chunk(struct pvn_engine *e, struct send_msg *m)
{
    struct pvn_write w = m->w;
    size_t offset = (size_t)m->next * m->w.f.len, left = m->w.f.total - offset;
    w.f.offset = offset;
    if (left < w.f.len)
        w.f.len = (uint32_t)left;
    w.f.chunk = m->next;
    w.more = m->next + 1 < m->count;
    w.src = (const uint8_t *)m->w.src + offset;
    w.raddr += offset;
    return post_to_any(e, m, &w);
}

__attribute__((noinline, cold)) int eng_too_long(struct pvn_engine *e, size_t size, int tag,
                                                 uint64_t room)
{
    return eng_fail(e, -EMSGSIZE, PVN_FAULT_ARGUMENT,
                    "a send of %zu bytes (tag %d) met a receive of %llu bytes", size, tag,
                    (unsigned long long)room);
}

/* A message that is sent again after a failover takes a buffer as a new one does. -EAGAIN: none has
 * been announced for it yet. */
static int assign(struct pvn_engine *e, struct send_msg *m)
{
    struct sender *tx = e->tx;
    struct send_slot *s = eng_first_slot(tx);
    int buf = s->announced ? eng_match_buffer(s, m->w.f.tag) : NO_INDEX;
    if (buf < 0)
        return -EAGAIN;
    int rc = eng_take_slot(e, s, m, buf, m->req.size, m->w.f.tag);
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
    pvn_lane_watch_empty(e->watch);
    if (e->paused)
        return 0;
    while (tx->unposted < tx->next) {
        struct send_msg *m = &tx->msg[tx->unposted % MSG_RING];
        if (m->unassigned) {
            int rc = assign(e, m);
            if (rc == -EAGAIN) {
                e->cfg.lanes[0]->awaits_cts = true;
                return 0;
            }
            if (rc)
                return rc;
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

/* A message of several chunks: whether this was the last. */
__attribute__((noinline)) static bool last_of_many(struct pvn_engine *e, struct send_msg *m,
                                                   unsigned chunk)
{
    struct chunk_set *done = eng_done_chunks(e->tx, m);
    if (chunk_test(done, chunk)) {
        e->stats.dups++;
        return false;
    }
    chunk_add(done, chunk);
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

__attribute__((noinline, cold)) static void too_far_ahead(struct pvn_engine *e, uint64_t slot)
{
    eng_fail(
        e, -EPROTO, PVN_FAULT_REMOTE,
        "the peer announced receive %llu while receive %llu is open, and no more than %d may be",
        (unsigned long long)slot, (unsigned long long)e->tx->slot_head, SLOT_RING);
}

static inline void cts(struct pvn_engine *e, const struct pvn_cts *c)
{
    struct sender *tx = e->tx;
    if (c->n < 1 || c->n > PVN_MAX_RECVS) {
        impossible_cts(e, c->n);
        return;
    }
    if (__builtin_expect((int64_t)(c->seq - tx->slot_head) >= SLOT_RING, 0)) {
        too_far_ahead(e, c->seq);
        return;
    }
    /* An entry that is published again (a repeated event, a
     * replay) must not free what was taken. */
    struct send_slot *s = &tx->slots[c->seq % SLOT_RING];
    if (c->seq < tx->slot_head || s->announced) {
        e->stats.stale++;
        return;
    }
    s->cts = c;
    s->announced = true;
    tx->known++;
    e->announced = true;
}

int eng_tx_events(struct pvn_engine *e, const struct pvn_event *ev, int n)
{
    for (const struct pvn_event *end = ev + n; ev < end; ev++) {
        if (ev->kind == PVN_EV_SENT) {
            uint32_t id = ev->id, more = ev->more;
            if (ev->chunk == 0)
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

bool pvn_engine_reads(const struct pvn_engine *e, const struct pvn_mr *mr)
{
    if (!e->tx || e->stopped)
        return false;
    for (int i = 0; i < MSG_RING; i++) {
        const struct send_msg *m = &e->tx->msg[i];
        if (m->req.state == REQ_OPEN && m->w.mr == mr)
            return true;
    }
    return false;
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
