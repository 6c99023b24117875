/* The sending half of the engine: numbering, clear-to-send, chunks out, completions in. */
#include "core/engine_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Finds a free buffer with this tag in the oldest slot that has free buffers. Sends never look past
 * it: the receiver's groups are filled in order, as NCCL's own verbs transport does. */
static struct send_slot *match_slot(struct sender *tx, int tag, int *buf)
{
    struct send_slot *s = &tx->slots[tx->slot_head % SLOT_RING];
    if (!s->valid || s->cts.seq != tx->slot_head)
        return NULL;
    for (int i = 0; i < s->cts.n; i++) {
        if (s->cts.e[i].tag == tag && !(s->taken >> i & 1)) {
            *buf = i;
            return s;
        }
    }
    return NULL;
}

static inline void take_slot(struct sender *tx, struct send_slot *s, int buf, struct send_msg *m)
{
    m->slot = s->cts.seq;
    m->recv = (uint8_t)buf;
    m->to = &s->cts.e[buf];
    s->taken |= 1u << buf;
    if (s->taken == (1u << s->cts.n) - 1) {
        s->valid = false;
        tx->slot_head++;
    }
}

/* 0: posted, -EAGAIN: no lane has room, other: failed. */
static int post_chunk(struct pvn_engine *e, struct send_msg *m)
{
    size_t offset = (size_t)m->next * m->plan.chunk;
    size_t len = m->size - offset < m->plan.chunk ? m->size - offset : m->plan.chunk;
    struct pvn_write w = {
        .f = {.seq = e->needs_cts ? m->slot : m->seq,
              .total = m->size,
              .offset = offset,
              .len = (uint32_t)len,
              .chunk = (uint16_t)m->next,
              .recv = m->recv,
              .tag = m->tag},
        .cookie = pvn_id(m->seq),
        .src = m->src + offset,
        .mr = m->mr,
        .raddr = m->to ? m->to->addr + offset : 0,
    };
    for (int tried = 0; tried < e->cfg.nlanes; tried++) {
        struct pvn_lane *l = e->cfg.lanes[e->rr];
        w.rkey = m->to ? m->to->rkey[e->rr] : 0;
        e->rr = e->rr + 1 == e->cfg.nlanes ? 0 : e->rr + 1;
        int rc = l->ops->post_write(l, &w);
        if (rc == 0) {
            l->kick_due = true;
            m->next++;
            e->stats.chunks++;
            return 0;
        }
        if (rc != -EAGAIN)
            return eng_fail_lane(e, l, rc);
        e->stats.again++;
    }
    return -EAGAIN;
}

/* Hands chunks to the lanes in message order; the order is what keeps a matched receiver, whose
 * streams may each be stopped at a message that has no buffer yet, from waiting for one that is
 * behind it. */
int eng_tx_post(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    while (tx->unposted < tx->next) {
        struct send_msg *m = &tx->msg[tx->unposted % MSG_RING];
        while (m->next < m->plan.count) {
            int rc = post_chunk(e, m);
            if (rc == -EAGAIN)
                return 0;
            if (rc < 0)
                return rc;
        }
        tx->unposted++;
    }
    return 0;
}

int pvn_engine_isend(struct pvn_engine *e, const void *data, size_t size, int tag,
                     const struct pvn_mr *mr, struct pvn_req **out)
{
    *out = NULL;
    if (e->failed)
        return e->err.code;
    if (!e->tx)
        return -EINVAL;
    if (size >> MAX_TOTAL_LOG2)
        return -EMSGSIZE;
    struct sender *tx = e->tx;
    struct send_msg *m = &tx->msg[tx->next % MSG_RING];
    if (m->open || e->nfree == 0)
        return 0;
    struct send_slot *s = NULL;
    int buf = 0;
    if (e->needs_cts) {
        s = match_slot(tx, tag, &buf);
        if (!s) {
            /* The entry may be waiting in a lane: look, then try once more. */
            int rc = pvn_engine_progress(e);
            if (rc < 0)
                return rc;
            s = match_slot(tx, tag, &buf);
            if (!s)
                return 0;
        }
        if (size > s->cts.e[buf].size)
            return eng_fail(e, -EMSGSIZE, PVN_FAULT_ARGUMENT,
                            "a send of %zu bytes (tag %d) met a receive of %llu bytes", size, tag,
                            (unsigned long long)s->cts.e[buf].size);
    }
    m->open = true;
    m->seq = tx->next++;
    m->src = data;
    m->size = size;
    m->tag = tag;
    m->mr = mr;
    m->to = NULL;
    m->plan = eng_plan(e, size);
    m->next = 0;
    m->ndone = 0;
    chunk_clear(&m->done, m->plan.count);
    if (s)
        take_slot(tx, s, buf, m);
    m->req = eng_req_get(e, REQ_SEND);
    m->req->size = size;
    int rc = eng_tx_post(e);
    if (rc == 0)
        rc = eng_kick(e);
    if (rc < 0)
        return rc;
    *out = m->req;
    return 0;
}

static void sent(struct pvn_engine *e, const struct pvn_event *ev)
{
    struct send_msg *m = &e->tx->msg[ev->id % MSG_RING];
    if (!m->open || pvn_id(m->seq) != ev->id || ev->chunk >= m->next) {
        e->stats.stale++;
        return;
    }
    if (chunk_test(&m->done, ev->chunk)) {
        e->stats.dups++;
        return;
    }
    chunk_add(&m->done, ev->chunk);
    if (++m->ndone < m->plan.count)
        return;
    m->open = false;
    e->stats.bytes += m->size;
    eng_req_done(m->req);
}

static void cts(struct pvn_engine *e, const struct pvn_cts *c)
{
    struct sender *tx = e->tx;
    if (c->n < 1 || c->n > PVN_MAX_RECVS) {
        eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                 "the peer announced a grouped receive of %d buffers; 1 to %d are possible", c->n,
                 PVN_MAX_RECVS);
        return;
    }
    /* An entry that is published again (a repeated event, a replay) must not free what was taken.
     */
    struct send_slot *s = &tx->slots[c->seq % SLOT_RING];
    if (c->seq < tx->slot_head || c->seq >= tx->slot_head + SLOT_RING ||
        (s->valid && s->cts.seq == c->seq)) {
        e->stats.stale++;
        return;
    }
    s->valid = true;
    s->taken = 0;
    s->cts.seq = c->seq;
    s->cts.n = c->n;
    for (int i = 0; i < c->n; i++)
        s->cts.e[i] = c->e[i];
}

void eng_tx_event(struct pvn_engine *e, const struct pvn_event *ev)
{
    if (ev->kind == PVN_EV_SENT)
        sent(e, ev);
    else
        cts(e, ev->cts);
}

void eng_tx_oldest(const struct pvn_engine *e, const struct pvn_req *req, char *text, size_t cap)
{
    for (int i = 0; i < MSG_RING; i++) {
        const struct send_msg *m = &e->tx->msg[i];
        if (!m->open || m->req != req)
            continue;
        snprintf(
            text, cap,
            "message %llu (%zu bytes, tag %d): %u of %u chunks handed to the lanes, %u of them "
            "accepted; waiting for %s",
            (unsigned long long)m->seq, m->size, m->tag, m->next, m->plan.count, m->ndone,
            m->next < m->plan.count ? "the lanes or the peer to take more"
                                    : "the peer or the network to take what the lanes hold");
        return;
    }
}
