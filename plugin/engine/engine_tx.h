/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Sends: how a message takes a buffer of an announced slot, and what engine_calls.h calls of engine_tx.c. */
#ifndef PVN_ENGINE_ENGINE_TX_H
#define PVN_ENGINE_ENGINE_TX_H

#include "engine/engine_priv.h"

/* The engine fails: a send is longer than the receive that it has met. Returns the error. */
int eng_too_long(struct pvn_engine *e, size_t size, int tag, uint64_t room);
/* A message that is cut or has to wait for room. 0 or the engine's error. */
int eng_post_cut(struct pvn_engine *e, struct send_msg *m);
/* isend: what it answers when the engine or the message is not such that anything can be sent; when a
 * lane has not taken the message, rc says why; and when there is no slot, for the caller calls again until
 * there is one, and what else it waits for moves on meanwhile. */
int eng_send_refused(struct pvn_engine *e);
int eng_not_posted(struct pvn_engine *e, struct pvn_lane *l, struct send_msg *m, int rc);
int eng_no_slot_yet(struct pvn_engine *e);
/* Sets the place of the next message, which no message has had. */
void eng_first_use(struct pvn_engine *e);
/* This lane, with eng_moves(), has taken the message, which is one chunk. */
void eng_posted(struct pvn_lane *l, const struct send_msg *m);
/* The first lane has died of a request for a slot, or the slot is none. The engine's error; 0: paused. */
int eng_slot_failed(struct pvn_engine *e, int rc);

/* True while a message with this tag, that is sent again after a failover, has no buffer. Another one with
 * the tag may not overtake it. */
bool eng_is_behind(const struct pvn_engine *e, int tag);

/* The lane whose turn it is. */
static inline struct pvn_lane *eng_next_lane(struct pvn_engine *e)
{
    int lane = e->rr;
    e->rr = lane + 1 == e->cfg.nlanes ? 0 : lane + 1;
    return e->cfg.lanes[lane];
}

/* Buffers of the oldest slot that are not free any more. Sends never look past it, for the receiver's
 * groups are filled in order, as NCCL's own verbs transport does. */
static inline uint8_t *eng_taken(struct sender *tx)
{
    return &tx->taken[tx->slot_head % SLOT_RING];
}

/* A free buffer of that slot with this tag, or NULL. */
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

/* A buffer of the oldest slot is not free any more. */
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

/* Asks the lane for the oldest slot with free buffers: 1, 0: it has not been announced, or the
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

/* Gives a message the next buffer with its tag. 1, 0: none has been announced yet, or the engine's error. */
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
