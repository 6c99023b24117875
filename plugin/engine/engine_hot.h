/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's calls for the usual message: one buffer, one lane that writes to remote addresses,
 * nothing that waits for room, and nothing wrong. Inline, for at eight bytes the way here is most
 * of what a message costs. They read and write what the general calls of engine.h do, and hand over
 * to those whatever is not as described.
 *
 * Only comm_hot.h and tests/support/hot.c include this.
 */
#ifndef PVN_ENGINE_ENGINE_HOT_H
#define PVN_ENGINE_ENGINE_HOT_H

#include "engine/engine_priv.h"

static_assert(offsetof(struct send_msg, req) == 0 && offsetof(struct recv_group, req) == 0,
              "the address of either is its request's");

/* The place of the next message, free; NULL: pvn_engine_isend is to be called. */
static inline struct send_msg *eng_hot_place(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    struct send_msg *m = &tx->msg[tx->next % MSG_RING];
    return __builtin_expect(e->unusual || m->req.state != REQ_FREE, 0) ? NULL : m;
}

/* Sends it. 1: it has a request, whose address is m's; else as send_next, and what was given is in
 * m: nothing has been done, and pvn_engine_isend is to be called. Where there is no buffer for it,
 * 0, that would look again and move the comm along, which is to be done now and then. */
static inline int eng_hot_isend(struct pvn_engine *e, struct send_msg *m, const void *data,
                                size_t size, int tag, const struct pvn_mr *mr)
{
    /* Before the call, for then few registers have to be saved for what comes behind it. */
    uint32_t cookie = pvn_id(e->tx->next);
    m->w.cookie = cookie;
    m->w.f.tag = tag;
    m->w.src = data;
    m->w.mr = mr;
    m->req.size = size;
    struct pvn_lane *l = e->cfg.lanes[0];
    int rc = l->ops->send_next(l, data, size, tag, mr, cookie);
    if (__builtin_expect(rc != 1, 0))
        return rc;
    e = m->req.e;
    e->tx->next++;
    m->w.f.seq = e->tx->slot_head++; /* for a failover */
    e->stats.chunks++;
    eng_req_open(e, &m->req);
    return 1;
}

/* A group for the next slot; NULL: pvn_engine_irecv is to be called. */
static inline struct recv_group *eng_hot_group(struct pvn_engine *e)
{
    struct receiver *rx = e->rx;
    return __builtin_expect(e->unusual || rx->ring[rx->next_slot % SLOT_RING], 0) ? NULL : rx->free;
}

/* Posts it: it has a request then, whose address is g's. 0, or what eng_not_published is to be
 * asked. */
static inline int eng_hot_irecv(struct pvn_engine *e, struct recv_group *g, void *data, size_t size,
                                int tag, const struct pvn_mr *mr)
{
    struct pvn_lane *l = e->cfg.lanes[0];
    uint64_t slot = e->rx->next_slot;
    eng_open_entry(g, 0, data, size, tag, mr);
    eng_open_group(e, g, slot, 1);
    return l->ops->post_cts(l, slot, 1, g->buf);
}

/* Whether a look at what the lane of an open request watches says
 * that progress would find nothing. */
static inline bool eng_hot_no_news(const struct pvn_req *req)
{
    const struct pvn_engine *e = req->e;
    struct pvn_lane *l = e->cfg.lanes[0];
    struct pvn_lane_watch *w = &l->watch;
    if (w->polls == 0 || l->kick_due || e->unusual ||
        __atomic_load_n(w->at[0], __ATOMIC_RELAXED) != w->same[0] ||
        __atomic_load_n(w->at[1], __ATOMIC_RELAXED) != w->same[1])
        return false;
    w->polls--;
    return true;
}

/* A request that is done and has one size. */
static inline bool eng_hot_is_done(const struct pvn_req *req)
{
    return req->state == REQ_DONE && req->sizes == 1;
}

/* Frees such a request, whose size it returns. */
static inline size_t eng_hot_finish(struct pvn_req *req)
{
    req->state = REQ_FREE;
    if (req->kind == REQ_RECV)
        eng_free_group((struct recv_group *)req);
    return req->size;
}

#endif
