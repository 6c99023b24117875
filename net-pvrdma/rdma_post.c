/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Chains of requests, doorbells and the completion queue. */
#include "net-pvrdma/rdma_path.h"
#include "net-pvrdma/rdma_post.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

/* The longest idle time between two polls of an expensive completion queue. */
#define IDLE_WAIT_MAX_NS PVN_NS_PER_S

/* After the error state was entered, a queue that has been empty for this long gets no more completions of
 * successful requests. */
#define EMPTY_NS (2 * PVN_NS_PER_MS)

void rdma_chain_init(struct rqp *q)
{
    for (int i = 0; i < CHAIN; i++) {
        q->wr[i].sg_list = &q->sge[i];
        q->wr[i].next = i + 1 < CHAIN ? &q->wr[i + 1] : NULL;
    }
}

void rdma_signal_data(struct rdma_lane *r, struct rqp *q, struct ibv_send_wr *wr, uint32_t posted)
{
    rdma_signal(q, wr, rdma_wr_id(WR_DATA, (int)(q - r->qp), q->unsignaled));
    q->signal_at[q->signals++ % SIGNALS] = posted;
    q->unsignaled = 0;
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

static int took(struct rdma_lane *r, const struct ibv_wc *wc, struct rdma_recvs *recvs)
{
    if (wc->status != IBV_WC_SUCCESS)
        return rdma_dead_wc(r, wc);
    struct rdma_done d = rdma_decode(wc);
    if (d.qp >= r->nqps)
        return rdma_dead(r, -EPROTO, "reading a completion that is not ours");
    if (d.kind == WR_RECV) {
        if (!recvs)
            return rdma_dead(r, -EPROTO, "reading a receive completion: none is due");
        recvs->of[recvs->n++] = d;
        return 0;
    }
    struct rqp *q = &r->qp[d.qp];
    r->outstanding--;
    q->slots += d.slots;
    if (d.kind == WR_DATA) {
        if (rdma_acked(r, q, q->signal_at[q->signals_taken++ % SIGNALS]) && r->paths)
            rdma_path_acked(r, d.qp, r->cfg.now());
    } else if (d.kind == WR_CHAIN) {
        r->rx.chain_head++;
    } else {
        q->plain++;
    }
    return 0;
}

int rdma_take(struct rdma_lane *r, int max, struct rdma_recvs *recvs)
{
    struct ibv_wc wc[CQ_BATCH];
    if (recvs)
        recvs->n = 0;
    if (max > CQ_BATCH)
        max = CQ_BATCH;
    if (max <= 0)
        return 0;
    r->stats.polls++;
    int got = ibv_poll_cq(r->cq, max, wc);
    if (got < 0)
        return rdma_dead(r, -EIO, "polling the completion queue");
    if (got < max)
        r->stats.empty_polls++;
    r->moved |= got > 0;
    int rc = 0;
    for (int i = 0; i < got; i++) {
        int one = took(r, &wc[i], recvs);
        /* Completions after a failed one are taken, too: they may be arrivals on another queue pair. */
        rc = rc < 0 ? rc : one;
    }
    /* Receives are returned before the error, which a later poll returns. */
    return rc < 0 && (!recvs || recvs->n == 0) ? rc : got;
}

int rdma_take_requests(struct rdma_lane *r)
{
    int rc = rdma_take(r, CQ_BATCH, NULL);
    return rc < 0 ? rc : 0;
}

int rdma_take_last(struct rdma_lane *r, struct rdma_recvs *recvs)
{
    struct ibv_wc wc[CQ_BATCH];
    uint64_t now = pvn_now_ns();
    int got = 0;
    recvs->n = 0;
    while (recvs->n == 0 && (got = ibv_poll_cq(r->cq, CQ_BATCH, wc)) > 0) {
        r->emptied_ns = now;
        for (int i = 0; i < got; i++) {
            struct rdma_done d = rdma_decode(&wc[i]);
            if (wc[i].status == IBV_WC_SUCCESS && d.kind == WR_RECV && d.qp < r->nqps)
                recvs->of[recvs->n++] = d;
        }
    }
    /* A queue that fails (overrun) has no more completions. The failover finds out what is missing. */
    return recvs->n || got < 0 || now - r->emptied_ns >= EMPTY_NS ? 0 : -EAGAIN;
}

/* True if the queue should be polled although no completion is known to be in it. If an empty poll is expensive, the
 * queue is polled only after an idle time, which doubles with each poll: success shows in memory, so the queue is
 * needed only for errors. */
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
    int lost = atomic_load_explicit(&r->lost, memory_order_relaxed);
    if (lost)
        return rdma_dead(r, -EIO,
                         lost & PVN_RDMA_LOST_CQ
                             ? "using its completion queue, of which the device reports an error"
                             : "using a queue pair, of which the device reports a fatal error");
    return r->cfg.health ? r->cfg.health(r->cfg.health_arg, &r->l.err) : 0;
}

int rdma_look_around(struct rdma_lane *r, uint32_t known, bool unsignaled)
{
    int rc = rdma_healthy(r);
    if (rc == 0 && (r->outstanding > known || unsignaled) && rdma_time_to_poll(r))
        rc = rdma_take(r, (int)known + 1, NULL);
    return rc < 0 ? rc : 0;
}
