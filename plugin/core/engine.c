/* The engine's life, its requests and its progress loop; see engine.h. */
#include "core/engine_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL_BATCH = 32, /* events taken from a lane at once */
    POLL_ROUNDS =
        4, /* batches per lane and progress call: a busy lane must not starve its caller */
    CLOCK_EVERY = 16 /* progress calls between two readings of the clock (a power of two) */
};

static bool any_needs_cts(const struct pvn_engine_cfg *cfg)
{
    for (int i = 0; i < cfg->nlanes; i++)
        if (cfg->lanes[i]->caps & PVN_LANE_NEEDS_CTS)
            return true;
    return false;
}

static struct receiver *receiver_new(void)
{
    struct receiver *rx = calloc(1, sizeof(*rx));
    if (!rx)
        return NULL;
    for (int i = PVN_MAX_REQS - 1; i >= 0; i--)
        rx->freed[rx->nfree++] = (int16_t)i;
    return rx;
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
    e->needs_cts = any_needs_cts(cfg);
    e->chunk = eng_chunk(cfg);
    if (cfg->sender)
        e->tx = calloc(1, sizeof(*e->tx));
    else
        e->rx = receiver_new();
    if (!e->tx && !e->rx) {
        free(e);
        errno = ENOMEM;
        return NULL;
    }
    /* Lowest addresses are handed out first, so that a shallow pipeline stays in few cache lines.
     */
    for (int i = PVN_MAX_SENDS - 1; i >= 0; i--) {
        e->reqs[i].owner = cfg->owner;
        e->reqs[i].e = e;
        e->freed[e->nfree++] = &e->reqs[i];
    }
    for (int i = 0; i < cfg->nlanes; i++) {
        cfg->lanes[i]->engine = e;
        cfg->lanes[i]->nlanes = cfg->nlanes;
        cfg->lanes[i]->kick_due = true;
        cfg->lanes[i]->place = eng_match_place;
    }
    e->now = cfg->now(cfg->now_ctx);
    return e;
}

void pvn_engine_free(struct pvn_engine *e)
{
    if (!e)
        return;
    if (e->rx)
        eng_match_free(e);
    free(e->rx);
    free(e->tx);
    free(e);
}

int eng_fail(struct pvn_engine *e, int code, enum pvn_fault fault, const char *fmt, ...)
{
    if (e->failed)
        return e->err.code;
    char text[PVN_ERR_REASON_LEN];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    e->failed = true;
    pvn_err_set(&e->err, code, "%s", text);
    pvn_err_set_fault(&e->err, fault);
    return code;
}

int eng_fail_lane(struct pvn_engine *e, struct pvn_lane *l, int code)
{
    if (l->err.code == 0)
        return eng_fail(e, code, PVN_FAULT_INTERNAL, "lane %d (%s) failed without a reason", l->idx,
                        l->ops->name);
    pvn_engine_fail(e, &l->err);
    return e->err.code;
}

void pvn_engine_fail(struct pvn_engine *e, const struct pvn_err *err)
{
    if (e->failed)
        return;
    e->failed = true;
    e->err = *err;
    if (e->err.code >= 0)
        e->err.code = -EIO;
}

const struct pvn_err *pvn_engine_err(const struct pvn_engine *e)
{
    return e->failed ? &e->err : NULL;
}

const struct pvn_engine_stats *pvn_engine_get_stats(const struct pvn_engine *e)
{
    return &e->stats;
}

int pvn_engine_pending(const struct pvn_engine *e)
{
    return e->pending;
}

static inline int take_event(struct pvn_engine *e, const struct pvn_event *ev)
{
    switch (ev->kind) {
    case PVN_EV_FLUSHED:
        eng_flush_event(e, ev);
        return 0;
    case PVN_EV_ARRIVED:
        if (e->rx)
            return eng_rx_event(e, ev);
        break;
    case PVN_EV_CTS:
    case PVN_EV_SENT:
        if (e->tx) {
            eng_tx_event(e, ev);
            return e->failed ? e->err.code : 0;
        }
        break;
    }
    e->stats.stale++;
    return 0;
}

/* Takes n events of a lane, and while there may be more the next ones. */
__attribute__((noinline)) static int take_events(struct pvn_engine *e, struct pvn_lane *l,
                                                 struct pvn_event *ev, int n)
{
    l->kick_due = true;
    for (int round = 1;; round++) {
        for (int i = 0; i < n; i++) {
            int rc = take_event(e, &ev[i]);
            if (rc < 0)
                return rc;
        }
        if (n < POLL_BATCH || round == POLL_ROUNDS)
            return 0;
        n = l->ops->poll(l, ev, POLL_BATCH);
        if (n < 0)
            return eng_fail_lane(e, l, n);
    }
}

/* Whether there is something that the lanes had no room for. */
static inline bool unposted(const struct pvn_engine *e)
{
    if (e->tx)
        return e->tx->unposted < e->tx->next;
    return e->rx->flushing > 0 || (e->needs_cts && e->rx->cts_next < e->rx->next_slot);
}

int eng_kick(struct pvn_engine *e)
{
    for (int i = 0; i < e->cfg.nlanes; i++) {
        struct pvn_lane *l = e->cfg.lanes[i];
        if (!l->kick_due)
            continue;
        l->idle = e->pending == 0;
        int rc = l->ops->kick(l);
        if (rc == 0)
            l->kick_due = false;
        else if (rc != -EAGAIN)
            return eng_fail_lane(e, l, rc);
    }
    return 0;
}

__attribute__((noinline)) static int post_and_kick(struct pvn_engine *e)
{
    int rc = e->tx ? eng_tx_post(e) : eng_flush_post(e);
    if (rc == 0 && e->rx)
        rc = eng_rx_post(e);
    return rc < 0 ? rc : eng_kick(e);
}

/* What nobody waits for costs little: a call that finds nothing is this far and no further. */
int pvn_engine_progress(struct pvn_engine *e)
{
    struct pvn_event ev[POLL_BATCH];
    bool due = false;
    if (__builtin_expect(e->failed, 0))
        return e->err.code;
    if ((e->ticks++ & (CLOCK_EVERY - 1)) == 0)
        e->now = e->cfg.now(e->cfg.now_ctx);
    for (int i = 0; i < e->cfg.nlanes; i++) {
        struct pvn_lane *l = e->cfg.lanes[i];
        int n = l->ops->poll(l, ev, POLL_BATCH);
        int rc = n > 0 ? take_events(e, l, ev, n) : n < 0 ? eng_fail_lane(e, l, n) : 0;
        if (rc < 0)
            return rc;
        e->stats.empty_polls += n == 0;
        due |= l->kick_due;
    }
    return due || unposted(e) ? post_and_kick(e) : 0;
}

/* Fills in the sizes of a completed request and frees it. */
static inline int finish(struct pvn_engine *e, struct pvn_req *req, size_t *sizes)
{
    int n = 1;
    if (req->kind == REQ_RECV) {
        const struct recv_group *g = &e->rx->groups[req->group];
        n = g->n;
        for (int i = 0; sizes && i < n; i++)
            sizes[i] = g->ent[i].total;
        e->rx->freed[e->rx->nfree++] = req->group;
    } else {
        if (sizes)
            sizes[0] = req->size;
        if (req->kind == REQ_FLUSH)
            eng_flush_free(e, req);
    }
    eng_req_put(req);
    return n;
}

int pvn_engine_test(struct pvn_req *req, int *done, size_t *sizes)
{
    *done = 0;
    if (__builtin_expect(req->kind == REQ_FREE, 0))
        return -EINVAL;
    /* What completed before the comm failed did complete: report it. */
    if (!req->done) {
        int rc = pvn_engine_progress(req->e);
        if (!req->done)
            return rc;
    }
    *done = finish(req->e, req, sizes);
    return 0;
}

uint64_t pvn_engine_oldest(const struct pvn_engine *e, char *text, size_t cap)
{
    const struct pvn_req *oldest = NULL;
    for (int i = 0; i < PVN_MAX_SENDS; i++) {
        const struct pvn_req *r = &e->reqs[i];
        if (r->kind != REQ_FREE && !r->done && (!oldest || r->born < oldest->born))
            oldest = r;
    }
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
