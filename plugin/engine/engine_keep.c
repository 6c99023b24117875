/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Copies of small messages that the lanes have taken but the receiver may not have. Their requests
 * complete at once, and a failover sends the copies. */
#include "engine/engine_priv.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_MAX = 64 };

/* Short copies lie side by side, indexed by message, because one in each page would miss the caches. Longer
 * copies reuse the element of `copy` that was freed last, so that no more pages are touched than messages
 * are kept at a time. */
struct keeper {
    int kept;                /* messages that have a copy */
    int nfree;               /* free elements of `copy` */
    uint8_t free[MSG_RING];  /* stack of their indices */
    uint8_t place[MSG_RING]; /* place[i]: index in `copy` of message msg[i] */
    uint8_t short_copy[MSG_RING][SHORT_MAX];
    uint8_t copy[MSG_RING][PVN_KEEP_MAX];
};
static_assert(MSG_RING <= UINT8_MAX + 1, "a place is a byte");

int eng_keep_new(struct sender *tx)
{
    struct keeper *k = calloc(1, sizeof(*k));
    if (!k)
        return -ENOMEM;
    while (k->nfree < MSG_RING) {
        k->free[k->nfree] = (uint8_t)(MSG_RING - 1 - k->nfree);
        k->nfree++;
    }
    tx->keeper = k;
    return 0;
}

void eng_keep_free(struct sender *tx)
{
    free(tx->keeper);
}

static bool is_short(const struct send_msg *m)
{
    return m->req.size <= SHORT_MAX;
}

static uint8_t *take_copy(struct keeper *k, const struct send_msg *m, uint32_t i)
{
    if (is_short(m))
        return k->short_copy[i];
    k->place[i] = k->free[--k->nfree];
    return k->copy[k->place[i]];
}

/* Lanes with clear-to-send may still read the caller's memory, through its registration, so their messages
 * are not kept. */
bool eng_may_keep(const struct pvn_engine *e, size_t size, const struct pvn_mr *mr)
{
    return !e->needs_cts && size <= PVN_KEEP_MAX && size <= e->chunk &&
           (!mr || (!mr->copy && mr->gpu == 0));
}

void eng_keep(struct pvn_engine *e, uint32_t id)
{
    struct send_msg *m = &e->tx->msg[id % MSG_RING];
    if (m->req.state != REQ_OPEN || m->w.cookie != id || !m->w.kept || m->next != 1)
        return;
    struct keeper *k = e->tx->keeper;
    uint8_t *copy = take_copy(k, m, id % MSG_RING);
    if (m->req.size > 0)
        memcpy(copy, m->w.src, m->req.size);
    m->w.src = copy;
    m->w.mr = NULL;
    m->req.after = REQ_KEPT;
    k->kept++;
    e->stats.kept++;
    eng_count_bytes(e, m->req.size);
    eng_req_done(e, &m->req);
}

void eng_unkeep(struct pvn_engine *e, struct send_msg *m)
{
    m->req.after = REQ_FREE;
    if (m->req.state == REQ_KEPT)
        m->req.state = REQ_FREE;
    struct keeper *k = e->tx->keeper;
    if (!is_short(m))
        k->free[k->nfree++] = k->place[m - e->tx->msg];
    k->kept--;
}

int pvn_engine_kept(const struct pvn_engine *e)
{
    return e->tx && e->tx->keeper ? e->tx->keeper->kept : 0;
}

uint64_t pvn_engine_delivered(const struct pvn_engine *e)
{
    return e->stats.msgs - (uint64_t)pvn_engine_kept(e);
}

int pvn_engine_undelivered(const struct pvn_engine *e)
{
    return eng_pending(e) + pvn_engine_kept(e);
}
