/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Chains of requests, doorbells and the completion queue. */
#include "net-pvrdma/rdma_path.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

/* The longest idle time before an expensive completion queue is polled. */
#define IDLE_WAIT_MAX_NS PVN_NS_PER_S

void rdma_chain_init(struct rqp *q)
{
    for (int i = 0; i < CHAIN; i++) {
        q->wr[i].sg_list = &q->sge[i];
        q->wr[i].next = i + 1 < CHAIN ? &q->wr[i + 1] : NULL;
    }
}

int rdma_not_posted(struct rdma_lane *r, int rc)
{
    return rdma_dead(r, -(rc < 0 ? EIO : rc), "posting to the send queue");
}

int rdma_ring_chain(struct rdma_lane *r, struct rqp *q)
{
    struct ibv_send_wr *bad = NULL;
    int n = q->nwr;
    q->nwr = 0;
    r->stats.post_send++;
    r->moved = true;
    struct ibv_send_wr *last = &q->wr[n - 1], *after = last->next;
    last->next = NULL;
    int rc = ibv_post_send(q->qp, &q->wr[0], &bad);
    last->next = after;
    if (__builtin_expect(rc != 0, 0))
        return rdma_not_posted(r, rc);
    r->outstanding += q->signalled;
    q->signalled = 0;
    return 0;
}

static int took(struct rdma_lane *r, const struct ibv_wc *wc, struct pvn_event *ev, int *n)
{
    enum wr_kind kind = (enum wr_kind)(wc->wr_id >> 56);
    int qp = (int)(wc->wr_id >> 48 & 0xff);
    if (wc->status != IBV_WC_SUCCESS)
        return rdma_dead_wc(r, wc);
    if (qp >= r->nqps)
        return rdma_dead(r, -EPROTO, "reading a completion that is not ours");
    if (kind == WR_RECV)
        return r->mode->took_recv(r, qp, wc, ev, n);
    struct rqp *q = &r->qp[qp];
    r->outstanding--;
    q->slots += (uint32_t)(wc->wr_id & 0xffff);
    if (kind == WR_DATA) {
        q->completed = q->signal_at[q->signals_taken++ % SIGNALS];
        if (rdma_acked(r, q, q->completed) && r->paths)
            rdma_path_acked(r, qp, r->cfg.now());
    } else if (kind == WR_PIECE) {
        q->completed++;
    } else if (kind == WR_CHAIN) {
        r->rx.chain_head++;
    }
    return 0;
}

int rdma_take(struct rdma_lane *r, int max, struct pvn_event *ev, int room, int *n)
{
    struct ibv_wc wc[CQ_BATCH];
    if (max > CQ_BATCH)
        max = CQ_BATCH;
    if (ev && max > room - *n)
        max = room - *n;
    if (max <= 0)
        return 0;
    r->stats.polls++;
    int got = ibv_poll_cq(r->cq, max, wc);
    if (got < 0)
        return rdma_dead(r, -EIO, "polling the completion queue");
    if (got < max)
        r->stats.empty_polls++;
    r->moved |= got > 0;
    int before = n ? *n : 0, rc = 0;
    for (int i = 0; i < got; i++) {
        int one = took(r, &wc[i], ev, n);
        /* What is behind an error counts, too: of another queue pair it may be what has arrived. */
        rc = rc < 0 ? rc : one;
    }
    /* The next call has the error. */
    return rc < 0 && (!n || *n == before) ? rc : got;
}

/* Whether to poll the queue although nothing is known to be in it. Where an empty poll costs, only
 * after an idle time, and after a longer one each time that the queue was empty: success shows in
 * memory, only an error needs the queue. */
bool rdma_time_to_poll(struct rdma_lane *r)
{
    if (!r->cfg.costly_poll)
        return true;
    uint64_t now = pvn_now_ns();
    uint32_t posted = 0;
    for (int k = 0; k < r->nqps; k++)
        posted += r->qp[k].posted;
    if (r->moved || posted != r->posted_then) {
        r->moved = false;
        r->posted_then = posted;
        r->idle_from_ns = now;
        r->idle_wait_ns = r->cfg.idle_poll_ns;
        return false;
    }
    if (now - r->idle_from_ns < r->idle_wait_ns)
        return false;
    r->idle_from_ns = now;
    if (r->idle_wait_ns < IDLE_WAIT_MAX_NS)
        r->idle_wait_ns *= 2;
    return true;
}

int rdma_healthy(struct rdma_lane *r)
{
    if (r->l.err.code)
        return r->l.err.code;
    if (atomic_load_explicit(&r->cq_lost, memory_order_relaxed))
        return rdma_dead(r, -EIO,
                         "using its completion queue, of which the device reports an error");
    return r->cfg.health ? r->cfg.health(r->cfg.health_arg, &r->l.err) : 0;
}

int rdma_look_around(struct rdma_lane *r, uint32_t known, bool unsignaled)
{
    int rc = rdma_healthy(r);
    if (rc == 0 && (r->outstanding > known || unsignaled) && rdma_time_to_poll(r))
        rc = rdma_take(r, (int)known + 1, NULL, 0, NULL);
    return rc < 0 ? rc : 0;
}

void rdma_one_sided_stats(const struct rdma_lane *r, struct pvn_rdma_lane_stats *out)
{
    /* Those of the queue pairs begin again after 2^32. */
    uint64_t longs = 0;
    out->chunks = r->chunks_done;
    for (int k = 0; k < r->nqps; k++) {
        longs += r->qp[k].longs;
        out->chunks += r->l.sender ? r->qp[k].posted - r->qp[k].reported : 0;
    }
    out->shorts = out->chunks - longs;
    out->post_send += r->l.sender ? out->shorts : 0;
}
