/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's fast path: one buffer, a comm whose lanes write to remote addresses and of which the
 * first has a fast path of its own (lane.h), nothing that waits for room, and nothing wrong. Inline,
 * since for a message of eight bytes these instructions are most of the cost. They change the same
 * state as the calls of engine.h, which are the slow path and take every other case.
 *
 * Only comm_fast.h and tests/support/hot.c include this.
 */
#ifndef PVN_ENGINE_ENGINE_FAST_H
#define PVN_ENGINE_ENGINE_FAST_H

#include "engine/engine_priv.h"

static_assert(offsetof(struct send_msg, req) == 0 && offsetof(struct recv_group, req) == 0,
              "the address of either is its request's");

/* The entry of the next message, free; NULL: pvn_engine_isend is to be called. */
static inline struct send_msg *eng_fast_message(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    struct send_msg *m = &tx->msg[tx->next % MSG_RING];
    return __builtin_expect(eng_takes_slow_path(e) || m->req.state != REQ_FREE, 0) ? NULL : m;
}

/* Sends it. 1: it has a request, whose address is m's; else as send_next, nothing was sent, and m
 * holds the arguments. On -EAGAIN the caller calls pvn_engine_isend; on 0 (no slot has been
 * announced) it does so now and then, because that also makes progress. */
static inline int eng_fast_isend(struct pvn_engine *e, struct send_msg *m, const void *data,
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
    int rc = l->ops->fast.send_next(l, data, size, tag, mr, cookie);
    if (__builtin_expect(rc != 1, 0))
        return rc;
    e = m->req.e;
    e->tx->next++;
    m->w.f.seq = e->tx->slot_head++; /* for a failover */
    e->stats.chunks++;
    if (l->kick_due)
        pvn_lane_watch_empty(e->watch);
    eng_req_open(e, &m->req);
    return 1;
}

/* A group for the next slot; NULL: pvn_engine_irecv is to be called. */
static inline struct recv_group *eng_fast_group(struct pvn_engine *e)
{
    struct receiver *rx = e->rx;
    return __builtin_expect(eng_takes_slow_path(e) || rx->ring[rx->next_slot % SLOT_RING], 0)
               ? NULL
               : rx->free;
}

/* Posts it: it has a request then, whose address is g's. 0, -EFAULT for eng_take_back, or an error
 * for eng_publish_later. */
static inline int eng_fast_irecv(struct pvn_engine *e, struct recv_group *g, void *data,
                                 size_t size, int tag, const struct pvn_mr *mr)
{
    struct pvn_lane *l = e->cfg.lanes[0];
    uint64_t slot = e->rx->next_slot;
    eng_open_entry(g, 0, data, size, tag, mr);
    eng_open_group(e, g, slot, 1);
    pvn_lane_watch_empty(e->watch);
    return l->ops->post_cts(l, slot, 1, g->buf);
}

/* Whether a request is open and what its lane watches shows that nothing has come of it. */
static inline bool eng_fast_is_still(const struct pvn_req *req)
{
    return req->state == REQ_OPEN && eng_watch_is_still(req->e->watch);
}

/* Whether the peer's writes reach nothing but what the receives have registered. */
static inline bool eng_needs_registration(const struct pvn_engine *e)
{
    return e->needs_cts && !e->places;
}

/* A request that is done and has one size. */
static inline bool eng_fast_is_done(const struct pvn_req *req)
{
    return req->state == REQ_DONE && req->sizes == 1;
}

/* Frees such a request, whose size it returns. */
static inline size_t eng_fast_finish(struct pvn_req *req)
{
    req->state = REQ_FREE;
    if (req->kind == REQ_RECV)
        eng_free_group((struct recv_group *)req);
    return req->size;
}

#endif
