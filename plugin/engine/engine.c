/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Creation, progress loop and counters of the engine; see engine.h. */
#include "engine/engine_recv.h"
#include "engine/engine_tx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL_BATCH = 32, /* events taken from a lane at once */
    POLL_ROUNDS =
        4, /* batches per lane and progress call: a busy lane must not starve its caller */
    CLOCK_EVERY = 16 /* progress calls between two readings of the clock (a power of two) */
};

static bool any_has(struct pvn_lane *const *lanes, int nlanes, unsigned cap)
{
    for (int i = 0; i < nlanes; i++)
        if (lanes[i]->caps & cap)
            return true;
    return false;
}

int eng_prepare(struct receiver *rx, struct pvn_lane *const *lanes, int nlanes)
{
    if (!any_has(lanes, nlanes, PVN_LANE_NEEDS_CTS))
        return rx->match ? 0 : eng_match_new(rx);
    return any_has(lanes, nlanes, PVN_LANE_PLACES) ? eng_place_new(rx) : 0;
}

static struct receiver *receiver_new(const struct pvn_engine *e)
{
    struct receiver *rx = aligned_alloc(_Alignof(struct receiver), sizeof(*rx));
    if (!rx)
        return NULL;
    memset(rx, 0, offsetof(struct receiver, groups));
    if (eng_prepare(rx, e->cfg.lanes, e->cfg.nlanes) < 0) {
        free(rx);
        return NULL;
    }
    return rx;
}

static struct sender *sender_new(const struct pvn_engine *e)
{
    struct sender *tx = aligned_alloc(_Alignof(struct sender), sizeof(*tx));
    if (!tx)
        return NULL;
    memset(tx, 0, offsetof(struct sender, msg));
    if (e->cfg.keeps && e->cfg.outlives_lanes && eng_keep_new(tx) < 0) {
        free(tx);
        return NULL;
    }
    return tx;
}

void eng_use_lanes(struct pvn_engine *e)
{
    const struct pvn_engine_cfg *cfg = &e->cfg;
    e->needs_cts = any_has(cfg->lanes, cfg->nlanes, PVN_LANE_NEEDS_CTS);
    e->places = e->needs_cts && any_has(cfg->lanes, cfg->nlanes, PVN_LANE_PLACES);
    e->chunk = eng_chunk(cfg);
    e->rr = 0;
    e->watch = cfg->nlanes > 1 ? &e->no_watch : &cfg->lanes[0]->watch;
    for (int i = 0; i < cfg->nlanes; i++) {
        cfg->lanes[i]->engine = e;
        cfg->lanes[i]->nlanes = cfg->nlanes;
        cfg->lanes[i]->kick_due = true;
        if (!(cfg->lanes[i]->caps & PVN_LANE_SETS_KICK_DUE))
            cfg->lanes[i]->moves |= PVN_LANE_MOVES_KICK;
        cfg->lanes[i]->place = e->needs_cts ? eng_slot_place : eng_match_place;
        cfg->lanes[i]->over = eng_is_over;
        cfg->lanes[i]->ops->join(cfg->lanes[i], cfg->lanes, cfg->nlanes);
    }
}

struct pvn_engine *pvn_engine_new(const struct pvn_engine_cfg *cfg)
{
    if (cfg->nlanes < 1 || cfg->nlanes > PVN_MAX_LANES || cfg->chunk == 0 || !cfg->now) {
        errno = EINVAL;
        return NULL;
    }
    struct pvn_engine *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->cfg = *cfg;
    if (cfg->sender)
        e->tx = sender_new(e);
    else
        e->rx = receiver_new(e);
    if (!e->tx && !e->rx) {
        free(e);
        errno = ENOMEM;
        return NULL;
    }
    eng_use_lanes(e);
    e->now = cfg->now(cfg->now_ctx);
    return e;
}

void pvn_engine_free(struct pvn_engine *e)
{
    if (!e)
        return;
    if (e->rx) {
        eng_match_free(e->rx);
        eng_place_free(e->rx);
    }
    if (e->tx)
        eng_keep_free(e->tx);
    free(e->rx);
    free(e->tx);
    free(e);
}

const struct pvn_engine_stats *pvn_engine_get_stats(const struct pvn_engine *e)
{
    return &e->stats;
}

bool pvn_engine_needs_registration(const struct pvn_engine *e)
{
    return e->needs_cts && !e->places;
}

void pvn_engine_count(const struct pvn_engine *e, struct pvn_live *out)
{
    uint64_t opened;

    /* Completed requests are read first, so that their number never exceeds that of opened ones. */
    out->msgs = __atomic_load_n(&e->stats.msgs, __ATOMIC_ACQUIRE);
    out->bytes = __atomic_load_n(&e->stats.bytes, __ATOMIC_ACQUIRE);
    out->flushes = __atomic_load_n(&e->stats.flushes, __ATOMIC_ACQUIRE);
    if (e->tx) {
        opened = __atomic_load_n(&e->tx->next, __ATOMIC_RELAXED);
    } else {
        opened = __atomic_load_n(&e->rx->earlier, __ATOMIC_ACQUIRE);
        opened += __atomic_load_n(&e->rx->flushes_opened, __ATOMIC_RELAXED);
        opened += __atomic_load_n(&e->rx->next_slot, __ATOMIC_RELAXED);
    }
    out->opened = opened;
}

uint64_t pvn_engine_next(const struct pvn_engine *e)
{
    return e->tx ? e->tx->next : e->rx->next_slot;
}

int pvn_engine_pending(const struct pvn_engine *e)
{
    return eng_pending(e);
}

/* Handles events of a lane with eng_moves(). A function of its own, like eng_posted() and
 * eng_announced(), so that its caller need not save registers for it. */
__attribute__((noinline)) static void came(struct pvn_lane *l, const struct pvn_event *ev, int n)
{
    if (eng_moved(l))
        l->profiler->came(l, ev, n);
}

static inline int take(struct pvn_engine *e, struct pvn_lane *l, const struct pvn_event *ev, int n)
{
    if (eng_moves(l))
        came(l, ev, n);
    return e->tx ? eng_tx_events(e, ev, n) : eng_rx_events(e, l, ev, n);
}

/* Takes a full batch of events of a lane, and further batches while there may be more. */
__attribute__((noinline)) static int take_more(struct pvn_engine *e, struct pvn_lane *l,
                                               struct pvn_event *ev)
{
    int rc = take(e, l, ev, POLL_BATCH);
    for (int round = 1; rc == 0 && round < POLL_ROUNDS; round++) {
        int n = l->data->poll(l, ev, POLL_BATCH);
        rc = n < 0 ? pvn_engine_fail_lane(e, l, n) : take(e, l, ev, n);
        if (n < POLL_BATCH)
            break;
    }
    return rc;
}

static inline int kick(struct pvn_engine *e, struct pvn_lane *l)
{
    l->idle = eng_pending(e) == 0;
    int rc = l->data->kick(l);
    if (__builtin_expect(rc != 0, 0)) {
        pvn_lane_watch_empty(e->watch);
        return rc == -EAGAIN ? 0 : pvn_engine_fail_lane(e, l, rc);
    }
    l->kick_due = false;
    return 0;
}

int eng_kick_all(struct pvn_engine *e)
{
    int i = 0, rc = 0;
    do {
        struct pvn_lane *l = e->cfg.lanes[i];
        rc = l->kick_due ? kick(e, l) : 0;
    } while (rc == 0 && ++i < e->cfg.nlanes);
    return rc;
}

/* Posts what the lanes had no room for before. */
static int post_again(struct pvn_engine *e)
{
    if (e->tx)
        return eng_tx_post(e);
    e->unposted = false;
    int rc = eng_flush_post(e);
    return rc < 0 ? rc : eng_rx_post(e);
}

__attribute__((noinline)) static int post_and_kick(struct pvn_engine *e)
{
    if (e->state == ENG_PAUSED)
        return 0;
    int rc = e->unposted ? post_again(e) : 0;
    return rc < 0 ? rc : eng_kick_all(e);
}

/* Polls one lane and takes its events. 0 or the engine's error. */
static inline __attribute__((always_inline)) int poll_lane(struct pvn_engine *e, struct pvn_lane *l)
{
    struct pvn_event ev[POLL_BATCH];
    pvn_lane_watch_empty(&l->watch);
    int n = l->data->poll(l, ev, POLL_BATCH);
    if (n > 0)
        return n < POLL_BATCH ? take(e, l, ev, n) : take_more(e, l, ev);
    e->stats.empty_polls += n == 0;
    return __builtin_expect(n == 0, 1) ? 0 : pvn_engine_fail_lane(e, l, n);
}

/* Polls all lanes before it kicks any, because an event of one lane may make a kick of another one due.
 * While posts wait, lanes are polled even if their watched words are unchanged, because a completion frees
 * slots in the send queue without changing these words. */
__attribute__((noinline)) static int progress_all(struct pvn_engine *e)
{
    for (int i = 0; i < e->cfg.nlanes; i++) {
        struct pvn_lane *l = e->cfg.lanes[i];
        int rc = !e->unposted && eng_watch_is_still(&l->watch) ? 0 : poll_lane(e, l);
        if (rc < 0)
            return rc;
    }
    return __builtin_expect(e->unposted, 0) ? post_and_kick(e) : eng_kick_all(e);
}

/* Ordered by frequency: a call that finds nothing stays in this function. */
int pvn_engine_progress(struct pvn_engine *e)
{
    if (__builtin_expect(e->state != ENG_RUNS, 0))
        return e->state == ENG_FAILED ? e->err.code : 0;
    if (__builtin_expect((e->ticks++ & (CLOCK_EVERY - 1)) == 0, 0))
        e->now = e->cfg.now(e->cfg.now_ctx);
    if (e->cfg.nlanes > 1)
        return progress_all(e);
    int rc = poll_lane(e, e->cfg.lanes[0]);
    if (__builtin_expect(rc < 0, 0))
        return rc;
    if (__builtin_expect(e->unposted, 0)) {
        pvn_lane_watch_empty(e->watch);
        return post_and_kick(e);
    }
    return e->cfg.lanes[0]->kick_due ? kick(e, e->cfg.lanes[0]) : 0;
}

int eng_no_slot_yet(struct pvn_engine *e)
{
    return eng_watch_is_still(e->watch) ? 0 : pvn_engine_progress(e);
}

static void older(const struct pvn_req *r, const struct pvn_req **oldest)
{
    if (r->state == REQ_OPEN && (!*oldest || r->born < (*oldest)->born))
        *oldest = r;
}

uint64_t pvn_engine_oldest(const struct pvn_engine *e, char *text, size_t cap)
{
    const struct pvn_req *oldest = NULL;
    for (uint64_t i = 0; e->tx && i < eng_used_msgs(e->tx); i++)
        older(&e->tx->msg[i].req, &oldest);
    for (int i = 0; e->rx && i < e->rx->ngroups; i++)
        older(&e->rx->groups[i].req, &oldest);
    for (int i = 0; e->rx && i < e->rx->nflush; i++)
        older(&e->rx->flush[i].req, &oldest);
    if (cap > 0)
        text[0] = '\0';
    if (!oldest)
        return 0;
    if (oldest->kind == REQ_FLUSH)
        snprintf(text, cap, "waiting for the adapter to finish a flush");
    else if (e->tx)
        eng_tx_oldest(e, oldest, text, cap);
    else
        eng_rx_oldest(e, oldest, text, cap);
    uint64_t now = e->cfg.now(e->cfg.now_ctx);
    return now > oldest->born ? now - oldest->born : 0;
}
