/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Sends: how a message takes a buffer of an announced slot, and the functions of engine_tx.c that
 * engine_calls.h calls. */
#ifndef PVN_ENGINE_ENGINE_TX_H
#define PVN_ENGINE_ENGINE_TX_H

#include "engine/engine_priv.h"

/* Fails the engine because a send is longer than the matching receive. Returns the error. */
int eng_too_long(struct pvn_engine *e, size_t size, int tag, uint64_t room);
/* Posts a message that has several chunks or has to wait for room. 0 or the engine's error. */
int eng_post_cut(struct pvn_engine *e, struct send_msg *m);
/* Result of isend if the state of the engine or the length of the message permits no send. */
int eng_send_refused(struct pvn_engine *e);
/* Result of isend after a lane has refused a message with rc. */
int eng_not_posted(struct pvn_engine *e, struct pvn_lane *l, struct send_msg *m, int rc);
/* Result of isend without a slot. Makes progress, because the caller repeats isend until there is a
 * slot and may call nothing else meanwhile. */
int eng_no_slot_yet(struct pvn_engine *e);
/* Initialises the entry of the next message, which is used for the first time. */
void eng_first_use(struct pvn_engine *e);
/* A lane with eng_moves() has taken the message, which is one chunk. */
void eng_posted(struct pvn_lane *l, const struct send_msg *m);
/* next_slot of the first lane has failed with rc, or the slot is invalid. Returns the engine's error; 0:
 * paused. */
int eng_slot_failed(struct pvn_engine *e, int rc);

/* True while a message with this tag that has to be sent again after a failover has no buffer. A new
 * message with the same tag must not overtake it. */
bool eng_is_behind(const struct pvn_engine *e, int tag);

/* The next lane, round robin. */
static inline struct pvn_lane *eng_next_lane(struct pvn_engine *e)
{
    int lane = e->rr;
    e->rr = lane + 1 == e->cfg.nlanes ? 0 : lane + 1;
    return e->cfg.lanes[lane];
}

/* Bitmap of the taken buffers of the oldest slot. Sends never look past that slot: groups are filled in
 * order, as in NCCL's own IB transport. */
static inline uint8_t *eng_taken(struct sender *tx)
{
    return &tx->taken[tx->slot_head % SLOT_RING];
}

/* A free buffer of the oldest slot with this tag, or NULL. */
static inline const struct pvn_cts_entry *eng_match_buffer(struct sender *tx, int tag)
{
    const struct pvn_cts *c = tx->cts;
    if (__builtin_expect(c->n == 1, 1))
        return c->e[0].tag == tag ? c->e : NULL;
    unsigned taken = *eng_taken(tx);
    for (int i = 0; i < c->n; i++)
        if (c->e[i].tag == tag && !(taken >> i & 1))
            return &c->e[i];
    return NULL;
}

/* Marks a buffer of the oldest slot as taken. */
static inline void eng_take_buffer(struct sender *tx, int buf)
{
    if (__builtin_expect(tx->cts->n > 1, 0)) {
        uint8_t *taken = eng_taken(tx);
        *taken |= (uint8_t)(1u << buf);
        if (*taken != (1u << tx->cts->n) - 1)
            return;
        *taken = 0;
    }
    tx->cts = NULL;
    tx->slot_head++;
}

/* Requests the next slot from the lane. 1: tx->cts is set, 0: the slot has not been announced, or the
 * engine's error. */
static inline int eng_request_slot(struct pvn_engine *e)
{
    struct sender *tx = e->tx;
    struct pvn_lane *l = e->cfg.lanes[0];
    const struct pvn_cts *c;
    int rc = l->data->next_slot(l, &c);
    if (rc == 0)
        return 0;
    if (__builtin_expect(rc < 0 || (unsigned)c->n - 1 >= PVN_MAX_RECVS, 0))
        return eng_slot_failed(e, rc < 0 ? rc : -EPROTO);
    tx->cts = c;
    return 1;
}

/* Gives the message a buffer of the oldest slot. 1: done, 0: no such buffer has been announced yet, or the
 * engine's error. */
static inline int eng_take_slot(struct pvn_engine *e, struct send_msg *m)
{
    struct sender *tx = e->tx;
    if (!tx->cts) {
        int rc = eng_request_slot(e);
        if (rc != 1)
            return rc;
    }
    const struct pvn_cts_entry *to = eng_match_buffer(tx, m->w.f.tag);
    if (__builtin_expect(!to, 0))
        return 0;
    if (__builtin_expect(m->req.size > to->size, 0))
        return eng_too_long(e, m->req.size, m->w.f.tag, to->size);
    int buf = (int)(to - tx->cts->e);
    m->w.f.seq = tx->slot_head;
    m->w.f.recv = (uint8_t)buf;
    m->w.to = to;
    eng_take_buffer(tx, buf);
    return 1;
}

#endif
