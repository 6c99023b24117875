/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Failover: replaces the lanes of a comm and sends the messages that the old lanes have not delivered
 * over the new ones; see engine.h. */
#include "engine/engine_recv.h"

#include <errno.h>
#include <string.h>

enum { POLL_BATCH = 32 };

int pvn_engine_drain(struct pvn_engine *e)
{
    struct pvn_event ev[POLL_BATCH];
    for (int i = 0; i < e->cfg.nlanes && e->state != ENG_FAILED; i++) {
        struct pvn_lane *l = e->cfg.lanes[i];
        int n;
        do {
            n = l->ops->drain(l, ev, POLL_BATCH);
            if (n > 0 && e->tx)
                eng_tx_events(e, ev, n);
            else if (n > 0)
                eng_rx_events(e, l, ev, n);
        } while (n > 0 && e->state != ENG_FAILED);
        pvn_lane_watch_empty(&l->watch);
    }
    return e->state == ENG_FAILED ? e->err.code : 0;
}

/* ---- receiver ---- */

uint64_t pvn_engine_received(const struct pvn_engine *e)
{
    if (!e->rx)
        return 0;
    return __atomic_load_n(&e->stats.msgs, __ATOMIC_ACQUIRE) +
           __atomic_load_n(&e->rx->early, __ATOMIC_RELAXED);
}

static unsigned all_buffers(int n)
{
    return (1u << n) - 1;
}

/* The open groups, oldest first. Returns their number. */
static int open_groups(const struct receiver *rx, struct recv_group **g)
{
    uint64_t first = rx->next_slot > SLOT_RING ? rx->next_slot - SLOT_RING : 0;
    int n = 0;
    for (uint64_t s = first; s < rx->next_slot; s++)
        if (rx->ring[s % SLOT_RING])
            g[n++] = rx->ring[s % SLOT_RING];
    return n;
}

void pvn_engine_make_report(const struct pvn_engine *e, struct pvn_engine_report *r)
{
    const struct receiver *rx = e->rx;
    struct recv_group *g[PVN_MAX_REQS];
    memset(r, 0, sizeof(*r));
    r->epoch = e->epoch;
    r->by_slot = e->needs_cts;
    r->n = open_groups(rx, g);
    for (int i = 0; i < r->n; i++) {
        r->open[i].slot = g[i]->slot;
        r->open[i].buffers = g[i]->req.sizes;
        for (int b = 0; b < g[i]->req.sizes; b++)
            if (g[i]->ent[b].done)
                r->open[i].done |= (uint8_t)(1u << b);
    }
    r->next = r->by_slot ? rx->next_slot : rx->match->next;
    for (unsigned i = 0; !r->by_slot && i < 2 * PVN_MAX_SENDS; i++)
        if (r->next + i >= PVN_MAX_SENDS && eng_match_has(rx, r->next + i - PVN_MAX_SENDS))
            r->have[i / 64] |= UINT64_C(1) << (i % 64);
}

bool pvn_engine_may_use_slots(const struct pvn_engine *e)
{
    return e->needs_cts || !eng_match_keeps(e->rx);
}

/* Forgets the chunks of incomplete messages, because they are sent again from the first byte. */
static void forget_parts(struct receiver *rx)
{
    struct recv_group *g[PVN_MAX_REQS];
    int n = open_groups(rx, g);
    for (int i = 0; i < n; i++)
        for (int b = 0; b < g[i]->req.sizes; b++) {
            struct recv_ent *ent = &g[i]->ent[b];
            if (ent->done)
                ent->matched = true;
            else
                ent->matched = ent->total_known = false;
        }
}

/* Renumbers the open groups from slot 0; they are announced again. */
static void number_slots(struct receiver *rx)
{
    struct recv_group *g[PVN_MAX_REQS];
    int n = open_groups(rx, g);
    memset(rx->ring, 0, sizeof(rx->ring));
    for (int i = 0; i < n; i++) {
        g[i]->slot = (uint64_t)i;
        rx->ring[i] = g[i];
    }
    /* A thread that reads between the two stores sees too few open requests, never too many. */
    uint64_t fewer = rx->next_slot - (uint64_t)n;
    eng_set(&rx->next_slot, (uint64_t)n);
    __atomic_store_n(&rx->earlier, rx->earlier + fewer, __ATOMIC_RELEASE);
    rx->oldest_slot = 0;
    rx->unpublished = (unsigned)n;
}

static void use_lanes(struct pvn_engine *e, struct pvn_lane *const *lanes, int nlanes)
{
    e->cfg.nlanes = nlanes;
    for (int i = 0; i < nlanes; i++)
        e->cfg.lanes[i] = lanes[i];
    eng_use_lanes(e);
    e->state = ENG_RUNS;
    e->stats.resumes++;
}

int pvn_engine_resume_receiver(struct pvn_engine *e, struct pvn_lane *const *lanes, int nlanes,
                               const struct pvn_engine_answer *a)
{
    struct receiver *rx = e->rx;
    bool by_slot = e->needs_cts;
    if (e->state == ENG_FAILED)
        return e->err.code;
    if (a->next < a->first || a->next - a->first > PVN_MAX_SENDS)
        return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                        "the peer goes on from message %llu before message %llu",
                        (unsigned long long)a->first, (unsigned long long)a->next);
    if (eng_prepare(rx, lanes, nlanes) < 0)
        return eng_fail(e, -ENOMEM, PVN_FAULT_SYSTEM,
                        "no memory to go on with the lanes of the new connection");
    use_lanes(e, lanes, nlanes);
    e->epoch++;
    rx->visible = false;
    if (e->needs_cts) {
        /* Incomplete messages are sent again, and name their slot then. */
        eng_match_free(rx);
        forget_parts(rx);
        number_slots(rx);
        if (!e->places)
            eng_place_free(rx);
    } else if (by_slot) {
        eng_place_free(rx);
        forget_parts(rx);
        rx->unpublished = 0;
        eng_match_begin(rx, a);
    } else {
        eng_match_rewind(rx);
    }
    e->unposted = rx->unpublished > 0;
    return 0;
}

/* ---- sender ---- */

/* Completes a message that the receiver has. */
static void delivered(struct pvn_engine *e, struct send_msg *m)
{
    m->count = m->next = 1;
    if (eng_is_kept(m)) {
        eng_unkeep(e, m);
        return;
    }
    eng_count_bytes(e, m->req.size);
    eng_req_done(e, &m->req);
}

static uint64_t oldest_number(const struct sender *tx)
{
    return tx->next > MSG_RING ? tx->next - MSG_RING : 0;
}

/* Message `number` if the receiver may not have it, else NULL. */
static struct send_msg *open_message(struct sender *tx, uint64_t number)
{
    struct send_msg *m = &tx->msg[number % MSG_RING];
    bool waits = m->req.state == REQ_OPEN || eng_is_kept(m);
    return waits && m->w.cookie == pvn_id(number) ? m : NULL;
}

static int fail_impossible_report(struct pvn_engine *e)
{
    return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                    "the peer's report of what it has received is not possible");
}

static int fail_lost_message(struct pvn_engine *e)
{
    return eng_fail(e, -EIO, PVN_FAULT_REMOTE,
                    "a message that this end has completed is missing at the peer, so it cannot be "
                    "sent again");
}

static int find_slot(const struct pvn_engine_report *r, uint64_t slot)
{
    for (int i = 0; i < r->n; i++)
        if (r->open[i].slot == slot)
            return i;
    return NO_INDEX;
}

/* True if the receiver has the message that was sent to this slot. */
static bool has_by_slot(const struct pvn_engine_report *r, const struct send_msg *m)
{
    int i = find_slot(r, m->w.f.seq);
    if (i < 0)
        return true;
    return r->open[i].done >> (r->open[i].buffers == 1 ? 0 : m->w.f.recv) & 1;
}

static bool has_by_number(const struct pvn_engine_report *r, uint64_t number)
{
    uint64_t i = number + PVN_MAX_SENDS - r->next;
    if (number + PVN_MAX_SENDS < r->next)
        return true;
    return i < 2 * PVN_MAX_SENDS && r->have[i / 64] >> (i % 64) & 1;
}

static bool has(const struct pvn_engine_report *r, uint64_t number, const struct send_msg *m)
{
    return r->by_slot ? has_by_slot(r, m) : has_by_number(r, number);
}

void pvn_engine_acknowledge(struct pvn_engine *e, uint64_t received)
{
    struct sender *tx = e->tx;
    if (e->state != ENG_PAUSED || received != tx->next)
        return;
    for (uint64_t k = oldest_number(tx); k < tx->next; k++) {
        struct send_msg *m = open_message(tx, k);
        if (!m)
            continue;
        m->unassigned = false;
        delivered(e, m);
    }
    tx->unassigned = 0;
}

/* Number of buffers of open slots to which a message was sent that the receiver does not have. */
static int missing_by_slot(const struct sender *tx, const struct pvn_engine_report *r)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        uint64_t slot = r->open[i].slot;
        unsigned taken = slot < tx->slot_head    ? all_buffers(r->open[i].buffers)
                         : slot == tx->slot_head ? tx->taken[slot % SLOT_RING]
                                                 : 0;
        n += __builtin_popcount(taken & ~(unsigned)r->open[i].done);
    }
    return n;
}

static int missing_by_number(const struct sender *tx, const struct pvn_engine_report *r)
{
    int n = 0;
    for (uint64_t k = oldest_number(tx); k < tx->next; k++)
        n += !has_by_number(r, k);
    return n;
}

/* True if the receiver has not resumed since its last report, because the answer was lost together with the
 * lanes with which this end has resumed. The receiver has got nothing over those lanes and repeats its
 * report. */
static bool missed_answer(const struct pvn_engine *e, const struct pvn_engine_report *r)
{
    return r->epoch + 1 == e->epoch;
}

static bool is_possible(const struct pvn_engine *e, const struct pvn_engine_report *r)
{
    const struct sender *tx = e->tx;
    if (r->n < 0 || r->n > PVN_MAX_REQS)
        return false;
    if (!missed_answer(e, r) && (r->epoch != e->epoch || r->by_slot != e->needs_cts))
        return false;
    if (!missed_answer(e, r) &&
        (r->next < (r->by_slot ? tx->slot_head : 0) || (!r->by_slot && r->next > tx->next)))
        return false;
    for (int i = 0; i < r->n; i++) {
        unsigned buffers = r->open[i].buffers, done = r->open[i].done;
        if (buffers < 1 || buffers > PVN_MAX_RECVS || done >= all_buffers((int)buffers))
            return false;
        if (i > 0 && r->open[i].slot <= r->open[i - 1].slot)
            return false;
        if (r->by_slot && (r->open[i].slot >= r->next || r->next - r->open[i].slot > SLOT_RING))
            return false;
    }
    return true;
}

/* Completes the messages that the receiver has and marks the others as unassigned. *first: the oldest of
 * these. 0 or the engine's error. */
static int complete_delivered(struct pvn_engine *e, const struct pvn_engine_report *r,
                              uint64_t *first)
{
    struct sender *tx = e->tx;
    bool nothing = missed_answer(e, r);
    int missing = r->by_slot ? missing_by_slot(tx, r) : missing_by_number(tx, r);
    int again = 0;
    *first = tx->next;
    tx->unassigned = 0;
    for (uint64_t k = oldest_number(tx); k < tx->next; k++) {
        struct send_msg *m = open_message(tx, k);
        if (!m)
            continue;
        /* A message that is waiting for a buffer since an earlier failover was not sent to any slot. */
        bool waits = m->unassigned;
        m->unassigned = false;
        if (!nothing && !waits && has(r, k, m)) {
            delivered(e, m);
            continue;
        }
        again += r->by_slot ? !waits : 1;
        *first = *first < k ? *first : k;
        m->unassigned = true;
        tx->unassigned++;
    }
    return nothing || again == missing ? 0 : fail_lost_message(e);
}

/* Prepares a message to be sent again from its first byte. */
static void rewind_message(struct pvn_engine *e, struct send_msg *m, uint64_t number)
{
    struct plan plan = eng_plan(e, m->req.size);
    m->w.f.total = m->req.size;
    m->w.f.len = (uint32_t)plan.chunk;
    m->w.f.offset = 0;
    m->w.f.chunk = 0;
    m->w.f.recv = 0;
    m->w.f.seq = number;
    m->w.to = NULL;
    m->count = (uint16_t)plan.count;
    m->next = 0;
    m->ndone = 0;
    chunk_clear(eng_done_chunks(e->tx, m));
    e->stats.replayed++;
    e->stats.kept_again += eng_is_kept(m);
}

/* Slots are numbered from 0 again, the receiver's open ones first. */
static void number_slots_again(struct sender *tx, const struct pvn_engine_report *r)
{
    memset(tx->taken, 0, sizeof(tx->taken));
    tx->slot_head = 0;
    tx->cts = NULL;
    for (int i = 0; i < r->n; i++)
        tx->taken[i] = r->open[i].done;
}

static void fill_answer(const struct sender *tx, uint64_t first, struct pvn_engine_answer *a)
{
    memset(a, 0, sizeof(*a));
    a->first = first;
    a->next = tx->next;
    for (uint64_t k = first; k < tx->next; k++)
        if (!tx->msg[k % MSG_RING].unassigned)
            a->done[(k - first) / 64] |= UINT64_C(1) << ((k - first) % 64);
}

int pvn_engine_resume_sender(struct pvn_engine *e, struct pvn_lane *const *lanes, int nlanes,
                             const struct pvn_engine_report *r, struct pvn_engine_answer *a)
{
    struct sender *tx = e->tx;
    uint64_t first;
    if (e->state == ENG_FAILED)
        return e->err.code;
    if (!is_possible(e, r))
        return fail_impossible_report(e);
    if (complete_delivered(e, r, &first) != 0)
        return e->err.code;
    fill_answer(tx, first, a);
    use_lanes(e, lanes, nlanes);
    e->epoch = r->epoch + 1;
    number_slots_again(tx, r);
    for (uint64_t k = first; k < tx->next; k++) {
        struct send_msg *m = open_message(tx, k);
        if (!m)
            continue;
        rewind_message(e, m, k);
        m->unassigned = e->needs_cts;
    }
    if (!e->needs_cts)
        tx->unassigned = 0;
    tx->unposted = first;
    e->unposted = first < tx->next;
    return 0;
}
