/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What engine_send.c and engine_tx.c share: how a message takes a buffer of an announced slot. */
#ifndef PVN_ENGINE_ENGINE_TX_H
#define PVN_ENGINE_ENGINE_TX_H

#include "engine/engine_priv.h"

/* The engine fails: a send is longer than the receive that it has met. Returns the error. */
int eng_too_long(struct pvn_engine *e, size_t size, int tag, uint64_t room);

/* The lane whose turn it is. */
static inline int eng_next_lane(struct pvn_engine *e)
{
    int lane = e->rr;
    e->rr = lane + 1 == e->cfg.nlanes ? 0 : lane + 1;
    return lane;
}

/* Finds a free buffer with this tag in a slot. */
static inline int eng_match_buffer(const struct send_slot *s, int tag)
{
    for (int i = 0; i < s->cts->n; i++)
        if (s->cts->e[i].tag == tag && !(s->taken >> i & 1))
            return i;
    return NO_INDEX;
}

/* Where a message of a clear-to-send comm goes, once it has a buffer: the lane's own. */
static inline const struct pvn_cts_entry *eng_target(const struct sender *tx,
                                                     const struct send_msg *m)
{
    return &tx->slots[m->w.f.seq % SLOT_RING].cts->e[m->w.f.recv];
}

/* The oldest slot that has free buffers: sends never look past it, for the receiver's groups are
 * filled in order, as NCCL's own verbs transport does. */
static inline struct send_slot *eng_first_slot(struct sender *tx)
{
    return &tx->slots[tx->slot_head % SLOT_RING];
}

static inline void eng_take_buffer(struct pvn_engine *e, struct send_slot *s, int buf)
{
    struct sender *tx = e->tx;
    if (s->cts->n > 1) {
        s->taken |= 1u << buf;
        if (s->taken != (1u << s->cts->n) - 1)
            return;
        s->taken = 0;
    }
    s->announced = false;
    tx->slot_head++;
    e->announced = --tx->known > 0;
}

/* Gives a message buffer `buf` of the oldest slot. 0 or the engine's error. */
static inline int eng_take_slot(struct pvn_engine *e, struct send_slot *s, struct send_msg *m,
                                int buf, size_t size, int tag)
{
    const struct pvn_cts_entry *to = &s->cts->e[buf];
    if (__builtin_expect(size > to->size, 0))
        return eng_too_long(e, size, tag, to->size);
    m->w.f.seq = e->tx->slot_head;
    m->w.f.recv = (uint8_t)buf;
    m->w.raddr = to->addr;
    m->w.rkey = to->rkey[0];
    m->w.copies = to->copies;
    eng_take_buffer(e, s, buf);
    /* A message that finds none again says so again; until then nobody waits, and a peer that has taken
     * all that was sent may close. */
    e->cfg.lanes[0]->awaits_cts = false;
    return 0;
}

#endif
