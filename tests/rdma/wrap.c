/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "rdma/wrap.h"

#include "engine/engine_tx.h"
#include "net-pvrdma/rdma_lane_priv.h"

static void start_queue_pair(struct rdma_lane *r, int k, uint32_t n)
{
    struct rqp *q = &r->qp[k];
    q->posted = q->acked = q->reported = q->consumed = q->plain = n;
    q->seen = q->acknowledged = q->records = n;
    q->next_record = &r->record[(size_t)k * RECORD_RING + n % RECORD_RING];
    q->longs = n;
    r->counts[k] = htole32(n);
    r->chunks_done += n;
    q->signals = q->signals_known = q->signals_taken = n;
    q->shorts.lines = q->shorts.acknowledged = q->shorts.free_from = n;
    r->ack->seen[k] = htole32(n); /* of both ends */
    r->ack->lines = htole32(n);
}

void wrap_start_at(struct pvn_engine *e, uint64_t messages, uint32_t chunks)
{
    struct rdma_lane *r = rdma_of(e->cfg.lanes[0]);
    for (int k = 0; k < r->nqps; k++)
        start_queue_pair(r, k, chunks);
    r->rx.chain_head = r->rx.chain_known = r->rx.chain_tail = chunks;
    r->rx.staged = r->rx.published = r->rx.started = r->tx.next_cts = messages;
    e->stats.msgs = messages;
    if (e->tx) {
        while (e->tx->fresh < MSG_RING) /* as after so many messages */
            eng_first_use(e);
        e->tx->next = e->tx->slot_head = messages;
    } else {
        e->rx->next_slot = e->rx->oldest_slot = messages;
    }
}

uint32_t wrap_slots(struct pvn_engine *e, uint32_t slots)
{
    struct rdma_lane *r = rdma_of(e->cfg.lanes[0]);
    uint32_t before = r->qp[0].slots;
    r->qp[0].slots = slots;
    r->signal_every = 1;
    return before;
}
