/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Copies of small messages that the lanes have taken and the receiver may not have: their callers go on,
 * and a failover sends the copies. */
#include "engine/engine_priv.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_MAX = 64 };

/* Copies of msg[i]. Those of short messages lie together: one in each page would miss the caches. */
struct keeper {
    int kept; /* messages that have a copy */
    uint8_t copy_of_short[MSG_RING][SHORT_MAX];
    uint8_t copy[MSG_RING][PVN_KEEP_MAX];
};

/* Pages are in memory once they have been used. */
int eng_keep_new(struct sender *tx)
{
    tx->keeper = calloc(1, sizeof(*tx->keeper));
    return tx->keeper ? 0 : -ENOMEM;
}

void eng_keep_free(struct sender *tx)
{
    free(tx->keeper);
}

/* Lanes with clear-to-send may read the memory itself, and through its registration. */
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
    uint8_t *copy =
        m->req.size <= SHORT_MAX ? k->copy_of_short[id % MSG_RING] : k->copy[id % MSG_RING];
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
    e->tx->keeper->kept--;
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
