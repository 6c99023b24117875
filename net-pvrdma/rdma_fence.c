/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fence: the queue pairs are taken into the error state and destroyed. An adapter that has
 * destroyed a queue pair accepts nothing for it any more, so the peer's writes, wherever they are,
 * no longer land. What did land before is still in the rings (records, short messages) or, in imm
 * mode, in the completion queue, from which destroying the queue pair would remove it.
 */
#include "net-pvrdma/rdma_qp.h"
#include "net-pvrdma/rdma_rx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* A queue that was empty for so long holds no completion of a request that had succeeded before the
 * error state. */
#define EMPTY_NS (2 * PVN_NS_PER_MS)

static int keep(struct rdma_lane *r, const struct ibv_wc *wc)
{
    if (r->nkept == r->room_kept) {
        int room = r->room_kept ? 2 * r->room_kept : 64;
        struct pvn_event *ev = realloc(r->kept, (size_t)room * sizeof(*ev));
        if (!ev)
            return -ENOMEM;
        r->kept = ev;
        r->room_kept = room;
    }
    rdma_took_recv(r, (int)(wc->wr_id >> 48 & 0xff), wc, &r->kept[r->nkept++]);
    return 0;
}

static bool is_arrival(const struct rdma_lane *r, const struct ibv_wc *wc)
{
    return wc->status == IBV_WC_SUCCESS && wc->wr_id >> 56 == WR_RECV && !r->two &&
           (int)(wc->wr_id >> 48 & 0xff) < r->nqps;
}

/* Empties the completion queue. 0, -EAGAIN: more may come, or an error. */
static int keep_arrivals(struct rdma_lane *r)
{
    struct ibv_wc wc[CQ_BATCH];
    uint64_t now = pvn_now_ns();
    int got;
    while ((got = ibv_poll_cq(r->cq, CQ_BATCH, wc)) > 0) {
        r->emptied_ns = now;
        for (int i = 0; i < got; i++)
            if (is_arrival(r, &wc[i]) && keep(r, &wc[i]) < 0)
                return -ENOMEM;
    }
    /* A queue that gives errors (overrun) gives nothing else: what is missing will show. */
    return got < 0 || now - r->emptied_ns >= EMPTY_NS ? 0 : -EAGAIN;
}

int rdma_fence(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    if (r->emptied_ns == 0) {
        rdma_qps_error(r);
        r->emptied_ns = pvn_now_ns();
    }
    int rc = r->cfg.sender || r->cfg.mode == PVN_RDMA_RECORD ? 0 : keep_arrivals(r);
    for (int k = 0; rc == 0 && k < r->cfg.qps; k++) {
        rc = r->qp[k].qp ? -r->cfg.v->destroy_qp(r->qp[k].qp) : 0;
        if (rc == 0)
            r->qp[k].qp = NULL;
    }
    if (rc == 0)
        rdma_use_fenced_ops(r);
    return rc;
}

int rdma_fenced_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct rdma_lane *r = rdma_of(l);
    int n = 0;
    if (r->cfg.sender || r->two)
        return 0;
    for (int k = 0; k < r->nqps; k++) {
        rdma_read_shorts(r, k, ev, max, &n);
        if (r->cfg.mode == PVN_RDMA_RECORD)
            rdma_read_records(r, k, ev, max, &n);
    }
    for (; n < max && r->kept_at < r->nkept; r->kept_at++)
        ev[n++] = r->kept[r->kept_at];
    return n;
}
