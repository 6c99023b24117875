/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching on the receiving side of comms without clear-to-send.
 *
 * Message k, in the sender's order, goes to the oldest posted buffer with its tag. Streams are not
 * ordered among each other, so a chunk of message k+1 may arrive first. It then waits in its stream until
 * message k is known, because k's tag decides which buffers are left for k+1. This cannot deadlock: the
 * sender hands out chunks in message order, so the first chunk of the lowest unknown message is always at
 * the head of some stream.
 */
#include "engine/engine_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy_in_order.h"

/* The first of these entries of `unexpected`, a bit each. */
static struct unexpected *first_of(struct matching *mt, uint64_t entries)
{
    return &mt->unexpected[__builtin_ctzll(entries)];
}

int eng_match_new(struct receiver *rx)
{
    rx->match = aligned_alloc(_Alignof(struct matching), sizeof(*rx->match));
    if (!rx->match)
        return -ENOMEM;
    memset(rx->match, 0, offsetof(struct matching, unexpected));
    return 0;
}

void eng_match_free(struct receiver *rx)
{
    for (uint64_t left = rx->match ? rx->match->used : 0; left; left &= left - 1)
        free(first_of(rx->match, left)->buf);
    free(rx->match);
    rx->match = NULL;
}

/* Finds the oldest posted buffer with this tag that has no message yet. False if there is none. */
static bool find_buffer(struct receiver *rx, int tag, int *group, int *ent)
{
    for (uint64_t s = rx->oldest_slot; s < rx->next_slot; s++) {
        struct recv_group *g = rx->ring[s % SLOT_RING];
        for (int i = 0; g && i < g->req.sizes; i++) {
            if (!g->ent[i].matched && g->buf[i].tag == tag) {
                *group = (int)(g - rx->groups);
                *ent = i;
                return true;
            }
        }
    }
    return false;
}

static int too_long(struct pvn_engine *e, uint64_t msg, int tag, uint64_t total, size_t size)
{
    return eng_fail(
        e, -EMSGSIZE, PVN_FAULT_REMOTE,
        "the peer's message %llu (tag %d) has %llu bytes, the receive posted for it takes %zu",
        (unsigned long long)msg, tag, (unsigned long long)total, size);
}

/* Returns the index of a new entry, or the engine's error. */
static int unexpected_new(struct pvn_engine *e, const struct pvn_frame *f)
{
    struct matching *mt = e->rx->match;
    if (mt->used == UINT64_MAX || f->total > e->cfg.unexpected_max ||
        mt->unexpected_bytes > e->cfg.unexpected_max - f->total)
        return eng_fail(
            e, -ENOBUFS, PVN_FAULT_ARGUMENT,
            "message %llu has tag %d and %llu bytes, no posted receive has that tag, and %d "
            "messages of %zu bytes are kept aside already (limits: %d, %zu bytes)",
            (unsigned long long)f->seq, f->tag, (unsigned long long)f->total,
            __builtin_popcountll(mt->used), mt->unexpected_bytes, UNEXPECTED_SLOTS,
            e->cfg.unexpected_max);
    uint8_t *buf = malloc(f->total ? f->total : 1);
    if (!buf)
        return eng_fail(e, -ENOMEM, PVN_FAULT_SYSTEM,
                        "no memory to keep %llu bytes of message %llu aside",
                        (unsigned long long)f->total, (unsigned long long)f->seq);
    struct unexpected *s = first_of(mt, ~mt->used);
    *s = (struct unexpected){
        .msg = f->seq, .total = f->total, .tag = f->tag, .buf = buf, .group = NO_INDEX};
    int idx = (int)(s - mt->unexpected);
    mt->used |= UINT64_C(1) << idx;
    mt->unexpected_bytes += f->total;
    e->stats.unexpected++;
    return idx;
}

static void unexpected_free(struct matching *mt, struct unexpected *s)
{
    mt->used &= ~(UINT64_C(1) << (s - mt->unexpected));
    mt->unexpected_bytes -= s->total;
    free(s->buf);
}

static inline struct placed *placed_of(struct receiver *rx, int group, int ent)
{
    return &rx->match->placed[group][ent];
}

static inline void forget_placed(struct placed *p)
{
    p->bytes = 0;
    chunk_clear(&p->chunks);
}

/* Gives a message of `total` bytes to buffer i of the group. */
static inline void give(struct receiver *rx, int group, int i, uint64_t total)
{
    struct recv_ent *ent = &rx->groups[group].ent[i];
    ent->matched = true;
    ent->total = total;
    ent->total_known = true;
    ent->got = 0;
    forget_placed(placed_of(rx, group, i));
    chunk_clear(&ent->seen);
    rx->match->unmatched--;
}

/* Skips messages that were delivered before a failover: they may lie between those that are sent again. */
static void skip_known(struct matching *mt)
{
    const struct msg_map *m = &mt->map[mt->next % MSG_RING];
    while (m->kind == MAP_DONE && m->msg == mt->next)
        m = &mt->map[++mt->next % MSG_RING];
}

/* Gives the next message a buffer, or queues it as unexpected. 0, -EAGAIN or the engine's error. */
static int match_next(struct pvn_engine *e, const struct pvn_frame *f)
{
    struct receiver *rx = e->rx;
    struct matching *mt = rx->match;
    struct msg_map *m = &mt->map[f->seq % MSG_RING];
    /* The ring entry belongs to message f->seq - MSG_RING, which is still arriving on another stream. */
    if (m->kind == MAP_ENT || m->kind == MAP_UNEXPECTED)
        return -EAGAIN;
    if (mt->unmatched == 0)
        return -EAGAIN;
    int gi = 0, ei = 0;
    if (find_buffer(rx, f->tag, &gi, &ei)) {
        size_t size = rx->groups[gi].buf[ei].size;
        if (f->total > size)
            return too_long(e, f->seq, f->tag, f->total, size);
        give(rx, gi, ei, f->total);
        *m = (struct msg_map){
            .kind = MAP_ENT, .idx = (int16_t)gi, .ent = (uint8_t)ei, .msg = f->seq};
    } else if (e->state == ENG_PAUSED) {
        return -EAGAIN; /* the sender has no acknowledgement for it and sends it again */
    } else {
        int si = unexpected_new(e, f);
        if (si < 0)
            return si;
        *m = (struct msg_map){.kind = MAP_UNEXPECTED, .idx = (int16_t)si, .msg = f->seq};
    }
    mt->next++;
    skip_known(mt);
    return 0;
}

/* Checks a chunk against what is known of its message and returns its destination. Each chunk gets its
 * destination only once, and only while the message has bytes left for it. Otherwise a lane could still
 * write to the buffer after the message is complete. */
static int locate(struct pvn_engine *e, const struct pvn_frame *f, uint64_t total,
                  struct placed *placed, uint8_t *base, struct pvn_place *to)
{
    if (f->total != total)
        return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                        "the peer gives message %llu two sizes, %llu and %llu bytes",
                        (unsigned long long)f->seq, (unsigned long long)total,
                        (unsigned long long)f->total);
    if (chunk_test(&placed->chunks, f->chunk)) {
        e->stats.dups++;
        return -EALREADY;
    }
    if (f->len > total - placed->bytes)
        return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                        "the peer's chunks of message %llu overlap: %u more bytes than its %llu",
                        (unsigned long long)f->seq, f->len, (unsigned long long)total);
    chunk_add(&placed->chunks, f->chunk);
    placed->bytes += f->len;
    to->dst = base + f->offset;
    return 0;
}

int eng_match_place(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                    struct pvn_place *to)
{
    struct pvn_engine *e = engine;
    struct receiver *rx = e->rx;
    if (e->state == ENG_FAILED)
        return e->err.code;
    if (eng_check_chunk(e, f) != 0)
        return e->err.code;
    struct matching *mt = rx->match;
    if (f->seq > mt->next)
        return -EAGAIN;
    if (f->seq == mt->next) {
        int rc = match_next(e, f);
        if (rc < 0)
            return rc;
    }
    const struct msg_map *m = &mt->map[f->seq % MSG_RING];
    to->copy = NULL;
    if (m->msg != f->seq || m->kind == MAP_NONE || m->kind == MAP_DONE) {
        e->stats.stale++;
        return -EALREADY;
    }
    if (m->kind == MAP_UNEXPECTED) {
        struct unexpected *s = &mt->unexpected[m->idx];
        return locate(e, f, s->total, &s->placed, s->buf, to);
    }
    const struct recv_group *g = &rx->groups[m->idx];
    const struct pvn_buffer *b = &g->buf[m->ent];
    to->copy = b->mr ? b->mr->copy : NULL;
    return locate(e, f, g->ent[m->ent].total, placed_of(rx, m->idx, m->ent), b->addr, to);
}

static int put(struct pvn_engine *e, const struct pvn_buffer *b, const void *src, size_t n)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = 0;
    if (n && b->mr && b->mr->copy)
        rc = b->mr->copy->from_host(b->mr->copy, b->addr, src, n, &err);
    else if (n)
        pvn_copy_in_order(b->addr, src, n);
    if (rc)
        pvn_engine_fail(e, &err);
    return rc;
}

/* Copies a complete unexpected message to the buffer that claimed it. */
static int deliver_unexpected(struct pvn_engine *e, struct unexpected *s)
{
    struct receiver *rx = e->rx;
    struct recv_group *g = &rx->groups[s->group];
    struct recv_ent *ent = &g->ent[s->ent];
    int rc = put(e, &g->buf[s->ent], s->buf, s->total);
    if (rc)
        return rc;
    ent->got = s->total;
    ent->seen = s->seen;
    rx->match->map[s->msg % MSG_RING].kind = MAP_DONE;
    unexpected_free(rx->match, s);
    eng_entry_arrived(e, g, ent);
    return 0;
}

static bool unexpected_complete(const struct unexpected *s)
{
    return s->got == s->total && chunk_test(&s->seen, 0);
}

int eng_match_claim(struct pvn_engine *e, struct recv_group *g)
{
    struct receiver *rx = e->rx;
    struct matching *mt = rx->match;
    mt->unmatched += g->req.sizes;
    if (mt->used == 0)
        return 0;
    for (int i = 0; i < g->req.sizes; i++) {
        struct unexpected *oldest = NULL;
        for (uint64_t left = mt->used; left; left &= left - 1) {
            struct unexpected *s = first_of(mt, left);
            if (s->group == NO_INDEX && s->tag == g->buf[i].tag &&
                (!oldest || s->msg < oldest->msg))
                oldest = s;
        }
        if (!oldest)
            continue;
        if (oldest->total > g->buf[i].size)
            return too_long(e, oldest->msg, oldest->tag, oldest->total, g->buf[i].size);
        oldest->group = (int16_t)(g - rx->groups);
        give(rx, oldest->group, i, oldest->total);
        oldest->ent = (uint8_t)i;
        if (unexpected_complete(oldest)) {
            int rc = deliver_unexpected(e, oldest);
            if (rc)
                return rc;
        }
    }
    return 0;
}

int eng_match_arrived(struct pvn_engine *e, const struct pvn_event *ev)
{
    struct receiver *rx = e->rx;
    struct msg_map *m = &rx->match->map[ev->id % MSG_RING];
    if (ev->chunk >= PVN_MAX_CHUNKS || (m->kind != MAP_ENT && m->kind != MAP_UNEXPECTED) ||
        pvn_id(m->msg) != ev->id) {
        e->stats.stale++;
        return 0;
    }
    struct recv_group *g = m->kind == MAP_ENT ? &rx->groups[m->idx] : NULL;
    struct recv_ent *ent = g ? &g->ent[m->ent] : NULL;
    struct unexpected *s = g ? NULL : &rx->match->unexpected[m->idx];
    struct chunk_set *seen = ent ? &ent->seen : &s->seen;
    uint64_t *got = ent ? &ent->got : &s->got;
    if (chunk_test(seen, ev->chunk)) {
        e->stats.dups++;
        return 0;
    }
    chunk_add(seen, ev->chunk);
    *got += ev->bytes;
    e->stats.chunks++;
    if (s) {
        if (s->group != NO_INDEX && unexpected_complete(s))
            return deliver_unexpected(e, s);
    } else if (*got == ent->total) {
        m->kind = MAP_DONE;
        eng_entry_arrived(e, g, ent);
    }
    return 0;
}

bool eng_match_has(const struct receiver *rx, uint64_t msg)
{
    const struct matching *mt = rx->match;
    const struct msg_map *m = &mt->map[msg % MSG_RING];
    if (msg >= mt->next)
        return m->kind == MAP_DONE && m->msg == msg;
    if (m->msg != msg || m->kind == MAP_NONE || m->kind == MAP_DONE)
        return true;
    return m->kind == MAP_UNEXPECTED && unexpected_complete(&mt->unexpected[m->idx]);
}

void eng_match_rewind(struct receiver *rx)
{
    for (uint64_t s = rx->oldest_slot; s < rx->next_slot; s++) {
        struct recv_group *g = rx->ring[s % SLOT_RING];
        for (int i = 0; g && i < g->req.sizes; i++) {
            struct recv_ent *ent = &g->ent[i];
            if (!ent->matched || ent->done)
                continue;
            ent->got = 0;
            forget_placed(placed_of(rx, (int)(g - rx->groups), i));
            chunk_clear(&ent->seen);
        }
    }
    for (uint64_t left = rx->match->used; left; left &= left - 1) {
        struct unexpected *s = first_of(rx->match, left);
        if (unexpected_complete(s))
            continue;
        s->got = 0;
        forget_placed(&s->placed);
        chunk_clear(&s->seen);
    }
}

void eng_match_begin(struct receiver *rx, const struct pvn_engine_answer *a)
{
    struct matching *mt = rx->match;
    /* oldest_slot has to be exact, because find_buffer starts there. If it started SLOT_RING or more behind
     * the newest groups, it would find these groups before older ones. */
    rx->oldest_slot = rx->next_slot > SLOT_RING ? rx->next_slot - SLOT_RING : 0;
    while (rx->oldest_slot < rx->next_slot && !rx->ring[rx->oldest_slot % SLOT_RING])
        rx->oldest_slot++;
    for (uint64_t s = rx->oldest_slot; s < rx->next_slot; s++) {
        const struct recv_group *g = rx->ring[s % SLOT_RING];
        for (int i = 0; g && i < g->req.sizes; i++)
            mt->unmatched += !g->ent[i].matched;
    }
    for (uint64_t k = a->first; k < a->next; k++) {
        unsigned bit = (unsigned)(k - a->first);
        if (a->done[bit / 64] >> (bit % 64) & 1)
            mt->map[k % MSG_RING] = (struct msg_map){.kind = MAP_DONE, .msg = k};
    }
    mt->next = a->first;
    skip_known(mt);
}

bool eng_match_keeps(const struct receiver *rx)
{
    for (uint64_t left = rx->match->used; left; left &= left - 1)
        if (unexpected_complete(first_of(rx->match, left)))
            return true;
    return false;
}

bool eng_match_is_held_up(const struct receiver *rx)
{
    const struct matching *mt = rx->match;
    return mt->map[mt->next % MSG_RING].kind == MAP_UNEXPECTED;
}
