/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The receiving half of the engine: grouped receives, clear-to-send entries, arrivals. */
#include "engine/engine_recv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void eng_open_more(struct recv_group *g, int n, void *const *data, const size_t *sizes,
                   const int *tags, const struct pvn_mr *const *mrs)
{
    for (int i = 1; i < n; i++)
        eng_open_entry(g, i, data[i], sizes[i], tags[i], mrs ? mrs[i] : NULL);
}

__attribute__((cold)) int eng_recv_refused(const struct pvn_engine *e)
{
    return e->state == ENG_FAILED ? e->err.code : !e->rx ? -EINVAL : 0;
}

/* Unused groups are taken in the order of their addresses, and only when no used one is free, so that a
 * shallow pipeline touches few pages and cache lines. */
__attribute__((noinline)) struct recv_group *eng_more_groups(struct pvn_engine *e)
{
    struct receiver *rx = e->rx;
    if (rx->ngroups == PVN_MAX_REQS)
        return NULL;
    rx->free = &rx->groups[rx->ngroups++];
    rx->free->next_free = NULL;
    eng_init_req(e, &rx->free->req, REQ_RECV);
    return rx->free;
}

__attribute__((cold)) int eng_not_announced(struct pvn_engine *e, int rc)
{
    if (rc != -EAGAIN)
        rc = pvn_engine_fail_lane(e, e->cfg.lanes[0], rc);
    else
        e->stats.again++;
    if (rc == 0 || rc == -EAGAIN)
        e->unposted = true;
    return rc ? rc : -EAGAIN;
}

void eng_announced(struct pvn_lane *l, const struct recv_group *g)
{
    if (eng_moved(l))
        l->profiler->announced(l, g->slot, g->req.sizes, g->buf);
}

/* Senders send chunks in message order, so no chunk of an earlier message follows a chunk that is held up
 * in a lane. So an open receive can get nothing more if all lanes are at their end and one has a chunk held
 * up. One exception: an unexpected message, which waits for a receive that is not posted yet, may hold up
 * the chunk. */
bool eng_is_over(void *engine)
{
    struct pvn_engine *e = engine;
    const struct receiver *rx = e->rx;
    bool halted = false, waited_for = eng_pending(e) > 0;
    for (int i = 0; i < e->cfg.nlanes; i++) {
        if (e->cfg.lanes[i]->end == PVN_LANE_GOES_ON)
            return false;
        halted |= e->cfg.lanes[i]->end == PVN_LANE_HALTED;
    }
    if (!halted)
        return waited_for || !(rx->match && eng_match_keeps(rx));
    if (waited_for && !(rx->match && eng_match_is_held_up(rx)))
        return true;
    /* Each lane has to check again, because the next receive may be the buffer for its chunk. */
    for (int i = 0; i < e->cfg.nlanes; i++)
        e->cfg.lanes[i]->end = PVN_LANE_GOES_ON;
    return false;
}

int eng_rx_post(struct pvn_engine *e)
{
    struct receiver *rx = e->rx;
    int rc = 0;
    while (rc == 0 && rx->unpublished > 0 && e->state == ENG_RUNS) {
        rc = eng_announce_to_lane(e, rx->ring[(rx->next_slot - rx->unpublished) % SLOT_RING]);
        rx->unpublished -= rc == 0;
    }
    return rc == -EAGAIN ? 0 : rc;
}

__attribute__((noinline, cold)) static int
impossible_chunk(struct pvn_engine *e, const struct recv_group *g, const struct pvn_event *ev)
{
    const struct recv_ent *ent = &g->ent[ev->recv];
    return eng_fail(
        e, -EPROTO, PVN_FAULT_REMOTE,
        "the peer reports chunk %u of %u bytes of a message of %llu bytes for a receive of %zu "
        "bytes, of which %llu have arrived",
        ev->chunk, ev->bytes, (unsigned long long)ev->total, g->buf[ev->recv].size,
        (unsigned long long)(ent->total_known ? ent->got : 0));
}

__attribute__((noinline, cold)) static int
cannot_be_copied(struct pvn_engine *e, const struct recv_group *g, const struct pvn_event *ev)
{
    const struct pvn_mr *mr = g->buf[ev->recv].mr;
    return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                    "the peer sent %u of %llu bytes to be copied into a buffer %s", ev->bytes,
                    (unsigned long long)ev->total,
                    mr && mr->gpu ? "on a GPU, where they cannot be"
                                  : "that takes only whole messages then");
}

/* Counts one chunk of a message of several chunks. 1: the message is complete, 0: it is not, or the engine's
 * error. */
static int one_of_many(struct pvn_engine *e, struct recv_group *g, const struct pvn_event *ev)
{
    struct recv_ent *ent = &g->ent[ev->recv];
    if (ent->done) {
        e->stats.dups++;
        return 0;
    }
    if (ev->data)
        return cannot_be_copied(e, g, ev);
    if (!ent->total_known) {
        ent->got = 0;
        chunk_clear(&ent->seen);
    }
    if (chunk_test(&ent->seen, ev->chunk)) {
        e->stats.dups++;
        return 0;
    }
    if (ev->bytes > ev->total - ent->got || (ent->total_known && ent->total != ev->total))
        return impossible_chunk(e, g, ev);
    chunk_add(&ent->seen, ev->chunk);
    e->stats.chunks++;
    ent->total = ev->total;
    ent->total_known = true;
    ent->matched = true;
    ent->got += ev->bytes;
    return ent->got == ent->total;
}

/* True if the event's bytes would have to be copied into GPU memory, which the processor cannot access. */
static inline bool out_of_reach(const struct pvn_buffer *b, const struct pvn_event *ev)
{
    return __builtin_expect(ev->data && b->mr && b->mr->gpu, 0);
}

/* Handles a chunk of a message of several chunks, or of a message for a group of several buffers. */
__attribute__((noinline)) static int arrived_in_part(struct pvn_engine *e, const struct pvn_lane *l,
                                                     struct recv_group *g,
                                                     const struct pvn_event *ev)
{
    struct recv_ent *ent = &g->ent[ev->recv];
    if (ev->recv >= g->req.sizes || ev->chunk >= PVN_MAX_CHUNKS) {
        e->stats.stale++;
        return 0;
    }
    if (ev->total > g->buf[ev->recv].size && !ent->done)
        return impossible_chunk(e, g, ev);
    if (ev->bytes != ev->total || ent->matched || ent->done) {
        int rc = one_of_many(e, g, ev);
        if (rc <= 0)
            return rc;
    } else {
        if (out_of_reach(&g->buf[ev->recv], ev))
            return cannot_be_copied(e, g, ev);
        if (ev->data)
            l->data->copy_out(ev, g->buf[ev->recv].addr);
        ent->total = ev->total;
        e->stats.chunks++;
    }
    eng_entry_arrived(e, g, ent);
    return 0;
}

/* Handles the usual arrival: a message of one chunk for a receive of one buffer. */
static inline int arrived_whole(struct pvn_engine *e, const struct pvn_lane *l,
                                struct recv_group *g, const struct pvn_event *ev)
{
    uint64_t total = ev->total;
    if (__builtin_expect(total > g->buf[0].size, 0))
        return impossible_chunk(e, g, ev);
    if (out_of_reach(&g->buf[0], ev))
        return cannot_be_copied(e, g, ev);
    e->rx->ring[ev->id % SLOT_RING] = NULL;
    g->req.size = total;
    e->stats.chunks++;
    eng_count_bytes(e, total);
    eng_req_done(e, &g->req);
    if (ev->data)
        l->data->copy_out(ev, g->buf[0].addr);
    return 0;
}

static inline bool has_begun(const struct recv_ent *ent)
{
    return ent->matched || ent->done;
}

static inline int slot_arrived(struct pvn_engine *e, const struct pvn_lane *l,
                               const struct pvn_event *ev)
{
    struct receiver *rx = e->rx;
    struct recv_group *g = rx->ring[ev->id % SLOT_RING];
    if (__builtin_expect(!g || pvn_id(g->slot) != ev->id, 0)) {
        e->stats.stale++;
        return 0;
    }
    if (__builtin_expect(ev->bytes == ev->total && ev->recv == 0 && ev->chunk == 0 &&
                             g->req.sizes == 1 && !has_begun(&g->ent[0]),
                         1))
        return arrived_whole(e, l, g, ev);
    return arrived_in_part(e, l, g, ev);
}

/* Handles any event but an arrival in a slot. */
__attribute__((noinline)) static int other_event(struct pvn_engine *e, const struct pvn_event *ev)
{
    if (ev->kind == PVN_EV_ARRIVED)
        return eng_match_arrived(e, ev);
    if (ev->kind == PVN_EV_FLUSHED)
        eng_flush_event(e, ev);
    else
        e->stats.stale++;
    return 0;
}

int eng_rx_events(struct pvn_engine *e, const struct pvn_lane *l, const struct pvn_event *ev, int n)
{
    const enum pvn_ev_kind slot = e->needs_cts ? PVN_EV_ARRIVED : PVN_EV_NONE;
    for (const struct pvn_event *end = ev + n; ev < end; ev++) {
        int rc = ev->kind == slot ? slot_arrived(e, l, ev) : other_event(e, ev);
        if (__builtin_expect(rc < 0, 0))
            return rc;
    }
    return 0;
}

void eng_rx_oldest(const struct pvn_engine *e, const struct pvn_req *req, char *text, size_t cap)
{
    const struct recv_group *g = (const struct recv_group *)req;
    for (int i = 0; i < g->req.sizes; i++) {
        const struct recv_ent *ent = &g->ent[i];
        const struct pvn_buffer *b = &g->buf[i];
        if (ent->done)
            continue;
        if (!ent->matched)
            snprintf(text, cap, "receive %llu, buffer %d of %d (%zu bytes, tag %d): %s",
                     (unsigned long long)g->slot, i + 1, g->req.sizes, b->size, b->tag,
                     g->slot >= e->rx->next_slot - e->rx->unpublished
                         ? "not announced to the peer yet, the lanes have no room"
                         : "waiting for the peer's send");
        else
            snprintf(text, cap,
                     "receive %llu, buffer %d of %d (tag %d): %llu of %llu bytes are here, "
                     "waiting for the rest from the peer",
                     (unsigned long long)g->slot, i + 1, g->req.sizes, b->tag,
                     (unsigned long long)ent->got, (unsigned long long)ent->total);
        return;
    }
}
