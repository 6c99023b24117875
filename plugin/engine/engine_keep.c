/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Copies of small messages that the lanes have taken and the receiver may not have: their callers go on,
 * and a failover sends the copies. */
#include "engine/engine_priv.h"

#include <stdlib.h>
#include <string.h>

struct keeper {
    int kept;                             /* messages that have a copy */
    uint8_t copy[MSG_RING][PVN_KEEP_MAX]; /* of msg[i] */
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

static bool is_host_memory(const struct pvn_mr *mr)
{
    return !mr || (!mr->copy && mr->gpu == 0);
}

/* Lanes with clear-to-send may read the memory itself, and through its registration. */
static bool may_keep(const struct pvn_engine *e, const struct send_msg *m)
{
    return e->tx->keeper && !e->needs_cts && m->req.size <= PVN_KEEP_MAX && m->count == 1 &&
           m->next == 1 && is_host_memory(m->w.mr);
}

void eng_keep(struct pvn_engine *e, uint32_t id)
{
    struct send_msg *m = &e->tx->msg[id % MSG_RING];
    if (m->req.state != REQ_OPEN || m->w.cookie != id || !may_keep(e, m))
        return;
    uint8_t *copy = e->tx->keeper->copy[id % MSG_RING];
    if (m->req.size > 0)
        memcpy(copy, m->w.src, m->req.size);
    m->w.src = copy;
    m->w.mr = NULL;
    m->req.after = REQ_KEPT;
    e->tx->keeper->kept++;
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
