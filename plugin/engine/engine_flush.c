/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Flushes: make the data that a receiver's lanes have written into GPU memory visible to the GPU. */
#include "engine/engine_priv.h"

#include <assert.h>
#include <errno.h>

static_assert(PVN_MAX_RECVS * PVN_MAX_LANES <= 64, "a bit for every buffer and lane of a flush");

static uint64_t bit(int target, int lane)
{
    return UINT64_C(1) << (target * PVN_MAX_LANES + lane);
}

static bool has_gpu(const struct flush_job *j, unsigned gpu)
{
    for (int i = 0; i < j->n; i++)
        if (j->mr[i]->gpu == gpu)
            return true;
    return false;
}

/* Chooses the last non-empty buffer on each GPU, because one flush covers all earlier writes of a lane to
 * that GPU. */
static void choose_targets(struct flush_job *j, int n, void *const *data, const size_t *sizes,
                           const struct pvn_mr *const *mrs)
{
    j->n = 0;
    for (int i = n - 1; i >= 0; i--) {
        const struct pvn_mr *mr = mrs ? mrs[i] : NULL;
        if (sizes[i] == 0 || !mr || mr->gpu == 0 || has_gpu(j, mr->gpu))
            continue;
        j->addr[j->n] = data[i];
        j->mr[j->n++] = mr;
    }
}

static struct flush_job *find_free(struct pvn_engine *e)
{
    struct receiver *rx = e->rx;
    for (int i = 0; i < rx->nflush; i++)
        if (rx->flush[i].req.state == REQ_FREE)
            return &rx->flush[i];
    if (rx->nflush == PVN_MAX_REQS)
        return NULL;
    struct flush_job *j = &rx->flush[rx->nflush++];
    eng_init_req(e, &j->req, REQ_FLUSH);
    return j;
}

/* A flush is a request but no message, so stats.msgs does not count it. */
static void flush_done(struct pvn_engine *e, struct flush_job *j)
{
    j->req.state = REQ_DONE;
    __atomic_store_n(&e->stats.flushes, e->stats.flushes + 1, __ATOMIC_RELEASE);
}

/* Hands the flush to the lanes that have not taken it yet. */
static int post(struct pvn_engine *e, struct flush_job *j)
{
    uint32_t id = (uint32_t)(j - e->rx->flush);
    pvn_lane_watch_empty(e->watch);
    for (int t = 0; t < j->n; t++) {
        for (int i = 0; i < e->cfg.nlanes; i++) {
            if (!(j->unposted & bit(t, i)))
                continue;
            struct pvn_lane *l = e->cfg.lanes[i];
            int rc = l->data->post_flush(l, id, j->addr[t], j->mr[t]);
            if (rc == -EAGAIN)
                continue;
            if (rc == -EOPNOTSUPP || rc == -EALREADY)
                j->waiting--;
            else if (rc < 0)
                return pvn_engine_fail_lane(e, l, rc);
            j->unposted &= ~bit(t, i);
            eng_moved(l);
        }
    }
    if (j->unposted == 0)
        e->rx->flushing--;
    else
        e->unposted = true;
    if (j->waiting == 0)
        flush_done(e, j);
    return 0;
}

int pvn_engine_iflush(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                      const struct pvn_mr *const *mrs, struct pvn_req **out)
{
    *out = NULL;
    if (e->state == ENG_FAILED)
        return e->err.code;
    if (!e->rx || n < 1 || n > PVN_MAX_RECVS)
        return -EINVAL;
    if (e->rx->visible)
        return 0;
    struct flush_job *j = find_free(e);
    if (!j)
        return -EBUSY;
    choose_targets(j, n, data, sizes, mrs);
    if (j->n == 0)
        return 0;
    eng_req_open(e, &j->req);
    eng_count(&e->rx->flushes_opened);
    if (e->state == ENG_PAUSED) { /* the flush stays open until pvn_engine_flushed */
        j->waiting = 1;
        j->unposted = 0;
        *out = &j->req;
        return 0;
    }
    j->waiting = (unsigned)(j->n * e->cfg.nlanes);
    j->unposted = 0;
    for (int t = 0; t < j->n; t++)
        for (int i = 0; i < e->cfg.nlanes; i++)
            j->unposted |= bit(t, i);
    e->rx->flushing++;
    int rc = post(e, j);
    if (rc < 0)
        return rc;
    if (j->req.state == REQ_DONE) /* the caller gets no request, since nothing is in flight */
        j->req.state = REQ_FREE;
    else
        *out = &j->req;
    return 0;
}

void eng_flush_event(struct pvn_engine *e, const struct pvn_event *ev)
{
    struct flush_job *j = e->rx && ev->id < (unsigned)e->rx->nflush ? &e->rx->flush[ev->id] : NULL;
    if (!j || j->req.state != REQ_OPEN) {
        e->stats.stale++;
        return;
    }
    if (--j->waiting == 0)
        flush_done(e, j);
}

void pvn_engine_flushed(struct pvn_engine *e)
{
    if (e->state != ENG_PAUSED)
        return;
    e->rx->visible = true;
    for (int i = 0; i < e->rx->nflush; i++) {
        struct flush_job *j = &e->rx->flush[i];
        if (j->req.state != REQ_OPEN)
            continue;
        e->rx->flushing -= j->unposted != 0;
        j->unposted = 0;
        flush_done(e, j);
    }
}

int pvn_engine_flushes(const struct pvn_engine *e)
{
    return (int)(e->rx->flushes_opened - e->stats.flushes);
}

int eng_flush_post(struct pvn_engine *e)
{
    if (e->state == ENG_PAUSED)
        return 0;
    for (int i = 0; e->rx->flushing > 0 && i < e->rx->nflush; i++) {
        struct flush_job *j = &e->rx->flush[i];
        if (j->req.state != REQ_OPEN || j->unposted == 0)
            continue;
        int rc = post(e, j);
        if (rc < 0)
            return rc;
    }
    return 0;
}
