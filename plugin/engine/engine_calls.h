/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * isend, irecv and test of an engine. They are inline because function calls would cost a message of
 * 8 bytes 120 instructions of some 800. comm.c, their only caller in the plugin, calls each in one place.
 *
 * All return 0 or a negative errno; pvn_engine_err then says why. A return of 0 with *req NULL means that
 * the caller must try again later (no free request, no clear-to-send yet). Buffers belong to the caller
 * and must stay until the request completes. mr may be NULL where no lane needs a registration.
 * n: 1 to PVN_MAX_RECVS.
 */
#ifndef PVN_ENGINE_ENGINE_CALLS_H
#define PVN_ENGINE_ENGINE_CALLS_H

#include "engine/engine_recv.h"
#include "engine/engine_tx.h"

static_assert(offsetof(struct send_msg, req) == 0 && offsetof(struct recv_group, req) == 0,
              "the address of either is its request's");

/* Posts a message of one chunk while no other message waits. A short message takes the first lane, another
 * one the lane whose turn it is. */
static inline int eng_post_whole(struct pvn_engine *e, struct send_msg *m)
{
    struct pvn_lane *l = e->cfg.lanes[0];
    if (__builtin_expect(e->cfg.nlanes > 1, 0) && m->req.size > l->short_max)
        l = eng_next_lane(e);
    int rc = l->data->post_write(l, &m->w);
    if (__builtin_expect(rc != 0, 0))
        return eng_not_posted(e, l, m, rc);
    m->next = 1;
    e->stats.chunks++;
    if (eng_moves(l))
        eng_posted(l, m);
    return 0;
}

/* Kicks the lanes that are due; usually none is. */
static inline int eng_kick(struct pvn_engine *e)
{
    bool due = false;
    for (int i = 0; i < e->cfg.nlanes; i++)
        due |= e->cfg.lanes[i]->kick_due;
    return due ? eng_kick_all(e) : 0;
}

/* The entry of the next message. The assumed alignment makes gcc compute its address once. Without it,
 * gcc computes the address again for each field, in 20 instructions. */
static inline struct send_msg *eng_next_msg(struct sender *tx)
{
    return __builtin_assume_aligned(&tx->msg[tx->next % MSG_RING], _Alignof(struct send_msg));
}

/* The caller of isend has seen by a plain load that a GPU has written the data. A processor that
 * exchanges loads, as arm64, may have read data that isend copies before it saw that. x86 does not, and
 * the compiler moves no load out of the library's function. */
static inline void eng_order_loads(void)
{
#if !defined(__x86_64__) && !defined(__i386__)
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

static inline int eng_isend(struct pvn_engine *e, const void *data, size_t size, int tag,
                            const struct pvn_mr *mr, struct pvn_req **req)
{
    struct sender *tx = e->tx;
    *req = NULL;
    eng_order_loads();
    if (__builtin_expect(e->state != ENG_RUNS || !tx || size >> MAX_TOTAL_LOG2, 0))
        return eng_send_refused(e);
    if (__builtin_expect(tx->next == tx->fresh, 0))
        eng_first_use(e);
    struct send_msg *m = eng_next_msg(tx);
    if (__builtin_expect(m->req.state != REQ_FREE, 0))
        return m->req.state == REQ_KEPT ? pvn_engine_progress(e) : 0;
    /* Stored before the lane's next_slot is called, so that the compiler need not save the arguments
     * across that call. */
    m->w.f.total = m->req.size = size;
    m->w.f.len = (uint32_t)size;
    m->w.f.tag = tag;
    m->w.src = data;
    m->w.mr = mr;
    if (e->needs_cts) {
        bool waits = __builtin_expect(tx->unassigned > 0, 0) && eng_is_behind(e, tag);
        int rc = waits ? 0 : eng_take_slot(e, m);
        if (__builtin_expect(rc != 1, 0))
            return rc ? rc : eng_no_slot_yet(e);
    } else {
        m->w.f.seq = tx->next;
    }
    m->w.cookie = pvn_id(tx->next);
    eng_set(&tx->next, tx->next + 1);
    if (__builtin_expect(tx->keeper != NULL, 0))
        m->w.kept = eng_may_keep(e, m->req.size, m->w.mr);
    m->count = 1;
    m->next = 0;
    eng_req_open(e, &m->req);
    int rc = __builtin_expect(m->req.size > e->chunk || e->unposted, 0) ? eng_post_cut(e, m)
                                                                        : eng_post_whole(e, m);
    if (__builtin_expect(rc == 0 && (e->cfg.lanes[0]->kick_due || e->cfg.nlanes > 1), 0))
        rc = eng_kick(e);
    if (__builtin_expect(rc < 0, 0))
        return rc;
    *req = &m->req;
    return 0;
}

static inline int eng_irecv(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                            const int *tags, const struct pvn_mr *const *mrs, struct pvn_req **req)
{
    struct receiver *rx = e->rx;
    *req = NULL;
    if (__builtin_expect(e->state != ENG_RUNS || !rx, 0))
        return eng_recv_refused(e);
    struct recv_group *g = rx->free;
    if (__builtin_expect(!g, 0))
        g = eng_more_groups(e);
    if (__builtin_expect(!g || rx->ring[rx->next_slot % SLOT_RING], 0))
        return 0;
    eng_open_entry(g, 0, data[0], sizes[0], tags[0], mrs ? mrs[0] : NULL);
    if (__builtin_expect(n > 1, 0))
        eng_open_more(g, n, data, sizes, tags, mrs);
    eng_open_group(e, g, rx->next_slot, n);
    int rc = e->needs_cts ? eng_announce(e, g) : eng_match_claim(e, g);
    if (__builtin_expect(rc < 0, 0))
        return rc;
    *req = &g->req;
    return 0;
}

/* True if a test of the request would find nothing, because the watched words of its lane are unchanged.
 * Most tests end here, since NCCL tests all its comms until one of them completes. */
static inline bool eng_is_still(const struct pvn_req *req)
{
    return req->state == REQ_OPEN && eng_watch_is_still(req->e->watch);
}

static inline bool eng_is_done(const struct pvn_req *req)
{
    return req->state == REQ_DONE;
}

/* Size of message i of a completed request, in bytes. A receive has one size per buffer, a send has one,
 * and a flush has one, which is 0; req->sizes is their number. */
static inline size_t eng_size(const struct pvn_req *req, int i)
{
    return i == 0 ? req->size : ((const struct recv_group *)req)->ent[i].total;
}

/* Frees a request that is done. */
static inline void eng_finish(struct pvn_req *req)
{
    req->state = req->after;
    if (req->kind == REQ_RECV)
        eng_free_group((struct recv_group *)req);
}

/* Makes progress unless the request has completed. A request that completed before the comm failed stays
 * completed. */
static inline int eng_progress_for(struct pvn_req *req)
{
    if (req->state == REQ_OPEN)
        return pvn_engine_progress(req->e);
    return eng_is_done(req) ? 0 : -EINVAL;
}

#endif
