/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sending half of the engine: hands chunks to the lanes, takes slots and completions from them. */
#include "engine/engine_tx.h"

#include <errno.h>
#include <stdio.h>

/* 0: posted, -EAGAIN: the lane has no room or the engine has paused, else the engine's error. */
static inline int post_to(struct pvn_engine *e, struct pvn_lane *l, struct send_msg *m,
                          const struct pvn_write *w)
{
    int rc = l->data->post_write(l, w);
    if (__builtin_expect(rc != 0, 0)) {
        e->stats.again += rc == -EAGAIN;
        if (rc != -EAGAIN)
            rc = pvn_engine_fail_lane(e, l, rc);
        return rc ? rc : -EAGAIN;
    }
    if (eng_moves(l) && eng_moved(l))
        l->profiler->posted(l, w);
    m->next++;
    e->stats.chunks++;
    return 0;
}

/* Posts to the next lane, round robin, that has room. */
static int post_to_any(struct pvn_engine *e, struct send_msg *m, struct pvn_write *w)
{
    int rc = -EAGAIN;
    for (int tried = 0; tried < e->cfg.nlanes && rc == -EAGAIN && e->state == ENG_RUNS; tried++)
        rc = post_to(e, eng_next_lane(e), m, w);
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
    return post_to_any(e, m, &w);
}

__attribute__((noinline, cold)) int eng_too_long(struct pvn_engine *e, size_t size, int tag,
                                                 uint64_t room)
{
    return eng_fail(e, -EMSGSIZE, PVN_FAULT_ARGUMENT,
                    "a send of %zu bytes (tag %d) met a receive of %llu bytes", size, tag,
                    (unsigned long long)room);
}

__attribute__((cold)) int eng_slot_failed(struct pvn_engine *e, int rc)
{
    struct pvn_lane *l = e->cfg.lanes[0];
    struct pvn_event ev[1];
    int lost = 0;
    if (l->err.code == 0)
        return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                        "the peer announced a grouped receive of an impossible number of buffers; "
                        "1 to %d are possible",
                        PVN_MAX_RECVS);
    /* The lane may still have events from before its failure. */
    while (lost == 0 && l->data->poll(l, ev, 1) == 1)
        lost = eng_tx_events(e, ev, 1);
    return lost ? lost : pvn_engine_fail_lane(e, l, rc);
}

/* Gives a buffer to a message that is sent again after a failover. 0, -EAGAIN: none has been announced for
 * it yet, or the engine's error. */
static int assign(struct pvn_engine *e, struct send_msg *m)
{
    int rc = eng_take_slot(e, m);
    if (rc != 1)
        return rc ? rc : -EAGAIN;
    m->unassigned = false;
    e->tx->unassigned--;
    return 0;
}

/* Posts the remaining chunks. 0: all are posted, -EAGAIN: no room, or the engine's error. */
static int post_rest(struct pvn_engine *e, struct send_msg *m)
{
    int rc = 0;
    while (m->next < m->count && rc == 0)
        rc = post_chunk(e, m);
    return rc;
}

/* The oldest unassigned message that can take a buffer of the oldest slot, or NULL. */
static struct send_msg *find_for_slot(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    for (uint64_t k = tx->unposted; tx->cts && k < tx->next; k++) {
        struct send_msg *m = &tx->msg[k % MSG_RING];
        if (m->unassigned && eng_match_buffer(tx, m->w.f.tag))
            return m;
    }
    return NULL;
}

/* Posts messages behind the oldest one, which has no buffer yet. If the messages were first sent without
 * clear-to-send, the receives may be in another order than the messages. So while the oldest message waits,
 * those behind it take the slots with their tags. 0: no more can be posted now, 1: the oldest message has a
 * buffer now, or the engine's error. */
__attribute__((noinline)) static int post_others(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    struct send_msg *m;
    bool moved = false;
    while ((m = find_for_slot(e))) {
        int rc = assign(e, m);
        if (rc)
            return rc == -EAGAIN ? 0 : rc;
        moved = true;
        if (!tx->cts && tx->unassigned > 0 && (rc = eng_request_slot(e)) < 0)
            return rc;
    }
    for (uint64_t k = tx->unposted; k < tx->next; k++) {
        m = &tx->msg[k % MSG_RING];
        int rc = m->unassigned ? 0 : post_rest(e, m);
        if (rc)
            return rc == -EAGAIN ? 0 : rc;
    }
    return moved && !tx->msg[tx->unposted % MSG_RING].unassigned;
}

bool eng_is_behind(const struct pvn_engine *e, int tag)
{
    const struct sender *tx = e->tx;
    for (uint64_t k = tx->unposted; k < tx->next; k++) {
        const struct send_msg *m = &tx->msg[k % MSG_RING];
        if (m->unassigned && m->w.f.tag == tag)
            return true;
    }
    return false;
}

/* Hands chunks to the lanes in message order. A matched receiver stops each stream at a message that has
 * no buffer yet, so in another order it could wait for a message behind the one that stops the stream. */
int eng_tx_post(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    e->unposted = true;
    pvn_lane_watch_empty(e->watch);
    if (e->state == ENG_PAUSED)
        return 0;
    while (tx->unposted < tx->next) {
        struct send_msg *m = &tx->msg[tx->unposted % MSG_RING];
        int rc = m->unassigned ? assign(e, m) : 0;
        if (rc == -EAGAIN) {
            rc = post_others(e);
            if (rc != 1)
                return rc;
            continue;
        }
        if (rc == 0)
            rc = post_rest(e, m);
        if (rc)
            return rc == -EAGAIN ? 0 : rc;
        tx->unposted++;
    }
    e->unposted = false;
    return 0;
}

void eng_posted(struct pvn_lane *l, const struct send_msg *m)
{
    if (eng_moved(l))
        l->profiler->posted(l, &m->w);
}

int eng_post_cut(struct pvn_engine *e, struct send_msg *m)
{
    struct plan plan = eng_plan(e, m->w.f.total);
    m->w.f.len = (uint32_t)plan.chunk;
    m->count = (uint16_t)plan.count;
    m->ndone = 0;
    chunk_clear(eng_done_chunks(e->tx, m));
    if (!e->unposted)
        e->tx->unposted = e->tx->next - 1;
    return eng_tx_post(e);
}

__attribute__((noinline)) void eng_first_use(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    struct send_msg *m = &tx->msg[tx->fresh];
    *m = (struct send_msg){.count = 1, .next = 1};
    eng_init_req(e, &m->req, REQ_SEND);
    tx->fresh = tx->fresh + 1 < MSG_RING ? tx->fresh + 1 : UINT64_MAX;
}

__attribute__((cold)) int eng_send_refused(struct pvn_engine *e)
{
    if (e->state == ENG_FAILED)
        return e->err.code;
    return !e->tx ? -EINVAL : e->state == ENG_PAUSED ? 0 : -EMSGSIZE;
}

int eng_not_posted(struct pvn_engine *e, struct pvn_lane *l, struct send_msg *m, int rc)
{
    if (rc != -EAGAIN)
        rc = pvn_engine_fail_lane(e, l, rc);
    return rc == -EAGAIN || rc == 0 ? eng_post_cut(e, m) : rc;
}

/* Counts a chunk of a message of several chunks. True if it was the last one. */
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

/* Handles PVN_EV_SENT of any chunk. */
__attribute__((noinline)) static void sent_any(struct pvn_engine *e, uint32_t id, unsigned chunk)
{
    struct send_msg *m = &e->tx->msg[id % MSG_RING];
    bool waits = m->req.state == REQ_OPEN || eng_is_kept(m);
    if (!waits || m->w.cookie != id || chunk >= m->next) {
        e->stats.stale++;
        return;
    }
    if (m->count > 1 && !last_of_many(e, m, chunk))
        return;
    if (eng_is_kept(m)) {
        eng_unkeep(e, m);
        return;
    }
    eng_count_bytes(e, m->req.size);
    eng_req_done(e, &m->req);
}

/* True if the message has several chunks or is not posted yet. In this form, without a negation, the
 * compiler loads both fields at once. */
static inline bool is_not_one_chunk(const struct send_msg *m)
{
    return m->count != 1 || m->next != 1;
}

/* Handles PVN_EV_SENT of chunk 0: the fast path for messages of one chunk. */
static inline void sent(struct pvn_engine *e, uint32_t id)
{
    struct send_msg *m = &e->tx->msg[id % MSG_RING];
    if (__builtin_expect(m->req.state != REQ_OPEN || m->w.cookie != id || is_not_one_chunk(m), 0)) {
        sent_any(e, id, 0);
        return;
    }
    eng_count_bytes(e, m->req.size);
    eng_req_done(e, &m->req);
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
        } else if (ev->kind == PVN_EV_TAKEN) {
            eng_keep(e, ev->id);
        } else {
            e->stats.stale++;
        }
    }
    return __builtin_expect(e->state == ENG_FAILED, 0) ? e->err.code : 0;
}

bool pvn_engine_sends(const struct pvn_engine *e, const struct pvn_mr *mr)
{
    if (!e->tx || eng_pending(e) == 0)
        return false;
    for (uint64_t i = 0; i < eng_used_msgs(e->tx); i++) {
        const struct send_msg *m = &e->tx->msg[i];
        if (m->req.state == REQ_OPEN && m->w.mr == mr)
            return true;
    }
    return false;
}

bool pvn_engine_reads(const struct pvn_engine *e, const struct pvn_mr *mr)
{
    return e->state == ENG_RUNS && pvn_engine_sends(e, mr);
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
