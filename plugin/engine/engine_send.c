/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A send begins: it gets a number and, where there is clear-to-send, a buffer of the receiver. */
#include "engine/engine_tx.h"

#include <errno.h>

/* A message is cut, or waits for room. */
__attribute__((noinline)) static int post_cut(struct pvn_engine *e, struct send_msg *m)
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

/* Likewise with several lanes: by the one whose turn it is. */
__attribute__((noinline)) static int post_whole_in_turn(struct pvn_engine *e, struct send_msg *m)
{
    int lane = eng_next_lane(e);
    struct pvn_lane *l = e->cfg.lanes[lane];
    m->w.rkey = e->needs_cts ? eng_target(e->tx, m)->rkey[lane] : 0;
    int rc = l->ops->post_write(l, &m->w);
    if (__builtin_expect(rc != 0, 0))
        return rc == -EAGAIN || (rc = eng_fail_lane(e, l, rc)) == 0 ? post_cut(e, m) : rc;
    m->next = 1;
    e->stats.chunks++;
    eng_moved(l);
    return 0;
}

__attribute__((noinline, cold)) static int refuse(struct pvn_engine *e)
{
    if (e->failed)
        return e->err.code;
    return !e->tx ? -EINVAL : e->paused ? 0 : -EMSGSIZE;
}

/* The buffer of the oldest slot for a send with this tag; NO_INDEX: none has been announced, or
 * messages that are sent again come first. */
static inline int find_buffer(const struct sender *tx, const struct send_slot *s, int tag)
{
    if (!s->announced || tx->unassigned > 0)
        return NO_INDEX;
    if (s->cts->n == 1 && s->cts->e[0].tag == tag)
        return 0;
    return eng_match_buffer(s, tag);
}

/* The next slot may be waiting in a lane: polls them, and asks a lane on the fast path to report
 * its slots as events. The buffer for a send with this tag, -EAGAIN: none, or the engine's error. */
__attribute__((noinline)) static int poll_for_buffer(struct pvn_engine *e, int tag)
{
    struct sender *tx = e->tx;
    e->cfg.lanes[0]->fast.keeps_cts = false;
    pvn_lane_watch_empty(&e->cfg.lanes[0]->fast.watch); /* it does not show slots */
    e->cfg.lanes[0]->awaits_cts = true;
    int rc = pvn_engine_progress(e);
    if (rc || e->paused)
        return rc ? rc : -EAGAIN;
    e->cfg.lanes[0]->fast.keeps_cts = e->sends_next && tx->unassigned == 0;
    int buf = find_buffer(tx, eng_first_slot(tx), tag);
    return buf == NO_INDEX ? -EAGAIN : buf;
}

int pvn_engine_isend(struct pvn_engine *e, const void *data, size_t size, int tag,
                     const struct pvn_mr *mr, struct pvn_req **out)
{
    struct sender *tx = e->tx;
    *out = NULL;
    if (__builtin_expect(e->stopped || !tx || size >> MAX_TOTAL_LOG2, 0))
        return refuse(e);
    struct send_msg *m = &tx->msg[tx->next % MSG_RING];
    if (m->req.state != REQ_FREE)
        return 0;
    if (e->needs_cts) {
        int buf = find_buffer(tx, eng_first_slot(tx), tag);
        if (buf < 0) {
            buf = poll_for_buffer(e, tag);
            if (buf < 0)
                return buf == -EAGAIN ? 0 : buf;
        }
        int rc = eng_take_slot(e, eng_first_slot(tx), m, buf, size, tag);
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
    if (__builtin_expect(size <= e->chunk && !e->unposted && !e->several_lanes, 1)) {
        rc = post_whole(e, m);
    } else {
        rc = size <= e->chunk && !e->unposted ? post_whole_in_turn(e, m) : post_cut(e, m);
        if (rc == 0)
            rc = eng_kick(e);
    }
    if (__builtin_expect(rc < 0, 0))
        return rc;
    *out = &m->req;
    return 0;
}
