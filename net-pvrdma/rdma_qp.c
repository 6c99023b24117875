/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The life cycle of queue pairs: create, INIT, RTR, RTS, ERR, destroy. */
#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"
#include "base/random.h"
#include "connect/retry.h"
#include "net-pvrdma/rdma_post.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    /* The most requests that a queue pair can have in flight: a full ring of chunks, two requests each. */
    SEND_SLOTS = 2 * RECORD_RING
};

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint8_t rdma_pieces_log2(const struct rdma_lane *r)
{
    uint8_t n = PIECES_LOG2;
    while (n > 2 && (r->cfg.qps << n > 1 << (PIECES_LOG2 + 1) || 1u << n > r->cfg.max_wr))
        n--;
    return n;
}

/* Length of the receive queue, enough for every mode that the ends may agree on. */
static uint32_t recv_slots(const struct rdma_lane *r)
{
    uint32_t imm = r->cfg.sender ? 1 : IMM_RECVS;
    uint32_t two = r->cfg.sender ? CREDIT_RECVS : 1u << rdma_pieces_log2(r);
    uint32_t n = r->cfg.modes >> PVN_RDMA_IMM & 1 ? imm : 1;
    if (r->cfg.modes >> PVN_RDMA_SEND & 1 && two > n)
        n = two;
    return smaller(n, r->cfg.max_wr);
}

static uint32_t send_slots(const struct rdma_lane *r)
{
    return smaller(SEND_SLOTS, r->cfg.max_wr);
}

/* Entries that the completion queue needs. If a queue pair fails, each of its outstanding requests completes, even
 * the unsignaled ones. */
static uint32_t completions(const struct rdma_lane *r)
{
    return (uint32_t)r->cfg.qps * (send_slots(r) + recv_slots(r));
}

/* Uses fewer requests in flight, then fewer queue pairs, if the device's completion queue is too small for all: a queue
 * that overruns is lost with everything that uses it. */
static int fit_completion_queue(struct rdma_lane *r)
{
    while (completions(r) > r->cfg.max_cqe)
        if (r->cfg.max_wr > SEND_SLOTS)
            r->cfg.max_wr = SEND_SLOTS;
        else if (r->cfg.max_wr > PVN_RDMA_MIN_WR)
            r->cfg.max_wr--;
        else if (r->cfg.qps > 1)
            r->cfg.qps--;
        else
            return rdma_dead(r, -ENOSPC, "sizing its completion queue");
    return 0;
}

static int create_one(struct rdma_lane *r, struct rqp *q)
{
    struct ibv_qp_init_attr a = {.qp_context = &r->lost,
                                 .send_cq = r->cq,
                                 .recv_cq = r->cq,
                                 .qp_type = IBV_QPT_RC,
                                 .cap = {.max_send_wr = send_slots(r),
                                         .max_recv_wr = recv_slots(r),
                                         .max_send_sge = 1,
                                         .max_recv_sge = 1,
                                         .max_inline_data = r->cfg.max_inline}};
    q->qp = r->cfg.v->create_qp(r->cfg.pd, &a);
    if (!q->qp && r->cfg.max_inline) {
        /* A device may announce more inline data than it grants to a queue of this length. */
        a.cap.max_inline_data = r->cfg.max_inline = 0;
        q->qp = r->cfg.v->create_qp(r->cfg.pd, &a);
    }
    if (!q->qp)
        return rdma_dead(r, -(errno ? errno : EIO), "creating a queue pair");
    r->cfg.max_inline = smaller(r->cfg.max_inline, a.cap.max_inline_data);
    rdma_chain_init(q);
    q->slots = smaller(a.cap.max_send_wr, send_slots(r));
    q->psn = (uint32_t)pvn_random64() & 0xffffff;
    return 0;
}

int rdma_qp_to_init(struct rdma_lane *r, struct ibv_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .pkey_index = r->cfg.pkey_index,
                            .port_num = r->cfg.port,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    int rc = r->cfg.v->modify_qp(
        qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return rc ? rdma_dead(r, -rc, "moving a queue pair to INIT") : 0;
}

int rdma_qps_create(struct rdma_lane *r)
{
    int fit = fit_completion_queue(r);
    if (fit < 0)
        return fit;
    r->cq = r->cfg.v->create_cq(r->cfg.ctx, (int)completions(r), &r->lost, NULL, 0);
    if (!r->cq)
        return rdma_dead(r, -(errno ? errno : EIO), "creating a completion queue");
    for (int i = 0; i < r->cfg.qps; i++) {
        int rc = create_one(r, &r->qp[i]);
        if (rc == 0)
            rc = rdma_qp_to_init(r, r->qp[i].qp);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void address(const struct rdma_lane *r, struct ibv_ah_attr *ah)
{
    ah->sl = r->cfg.sl;
    ah->port_num = r->cfg.port;
    if (!r->cfg.ethernet && r->gid.local < 0) {
        ah->dlid = r->peer.lid;
        return;
    }
    ah->is_global = 1;
    ah->dlid = r->peer.lid;
    ah->grh.hop_limit = 255;
    ah->grh.traffic_class = r->cfg.traffic_class;
    ah->grh.sgid_index = (uint8_t)r->cfg.gids[r->gid.local].index;
    memcpy(ah->grh.dgid.raw, r->peer.gids[r->gid.remote].raw, 16);
}

#define TO_RTR "moving a queue pair to RTR (is the peer's address reachable from this port?)"

/* Moves a queue pair to RTR. 0 or a negative errno, with which the lane is still alive. */
static int to_rtr(struct rdma_lane *r, struct ibv_qp *qp, const struct ibv_ah_attr *ah,
                  uint32_t dest, uint32_t psn)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = r->mtu,
                            .dest_qp_num = dest,
                            .rq_psn = psn,
                            .ah_attr = *ah,
                            .max_dest_rd_atomic = r->cfg.max_rd_atomic,
                            .min_rnr_timer = 12};
    return -r->cfg.v->modify_qp(qp, &a,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER);
}

int rdma_qp_to_rtr(struct rdma_lane *r, struct ibv_qp *qp, const struct ibv_ah_attr *ah,
                   uint32_t dest, uint32_t psn)
{
    int rc = to_rtr(r, qp, ah, dest, psn);
    return rc ? rdma_dead(r, rc, TO_RTR) : 0;
}

int rdma_qp_to_rts(struct rdma_lane *r, struct ibv_qp *qp, uint32_t psn, uint8_t rd_atomic)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .timeout = r->cfg.timeout,
                            .retry_cnt = r->cfg.retry_cnt,
                            .rnr_retry = r->cfg.rnr_retry,
                            .sq_psn = psn,
                            .max_rd_atomic = rd_atomic};
    int rc = r->cfg.v->modify_qp(qp, &a,
                                 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return rc ? rdma_dead(r, -rc, "moving a queue pair to RTS") : 0;
}

static bool is_in_init(const struct rdma_lane *r, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    return r->cfg.v->query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_INIT;
}

/* Time limit in ns for resolving the peer's address. The peer may be bound already, and waits for this end only for
 * VERIFY_TIMEOUT. */
static uint64_t resolve_limit(void)
{
    const struct pvn_params *p = pvn_params_get();
    return (p->bind_timeout < p->verify_timeout ? p->bind_timeout : p->verify_timeout) / 2;
}

/*
 * Handles ETIMEDOUT of a move to RTR. With RoCE the kernel resolves the peer's address on the link before it calls the
 * driver, for a second, and returns ETIMEDOUT on failure (Linux, drivers/infiniband/core/verbs.c, _ib_modify_qp; addr.c,
 * rdma_addr_find_l2_eth_by_grh). One lost packet is enough for that, and the queue pair is unchanged, so it is tried
 * again. A driver whose own command has timed out or was interrupted by a signal (vmw_pvrdma) returns the same errno. So
 * the device is queried if the queue pair is still in INIT.
 */
static int not_resolved(struct rdma_lane *r, struct ibv_qp *qp)
{
    struct rdma_resolve *s = &r->resolve;
    uint64_t now = pvn_now_ns();
    char doing[160];
    if (s->failures == 0)
        s->since_ns = now;
    if (r->cfg.may_block && r->cfg.ethernet && now - s->since_ns < resolve_limit() &&
        is_in_init(r, qp)) {
        if (s->failures == 0)
            pvn_info(PVN_NET, "%s: the peer's address does not answer on the link yet: tried again",
                     r->cfg.name);
        s->next_ns = now + pvn_retry_pause_ns(PVN_RETRY_RESOLVE, s->failures++);
        return -EAGAIN;
    }
    snprintf(doing, sizeof(doing), TO_RTR ", %u times", s->failures + 1);
    return rdma_dead(r, -ETIMEDOUT, s->failures ? doing : TO_RTR);
}

static int connect_one(struct rdma_lane *r, int i)
{
    struct rqp *q = &r->qp[i];
    struct ibv_ah_attr ah = {0};
    address(r, &ah);
    int rc = to_rtr(r, q->qp, &ah, r->peer.qpn[i], r->peer.psn[i]);
    if (rc == -ETIMEDOUT)
        return not_resolved(r, q->qp);
    if (rc < 0)
        return rdma_dead(r, rc, TO_RTR);
    return rdma_qp_to_rts(r, q->qp, q->psn,
                          (uint8_t)smaller(r->cfg.max_rd_atomic, r->peer.max_rd_atomic));
}

int rdma_qps_connect(struct rdma_lane *r)
{
    if (r->resolve.failures && pvn_now_ns() < r->resolve.next_ns)
        return -EAGAIN;
    for (; r->connected < r->nqps; r->connected++) {
        int rc = connect_one(r, r->connected);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Moves all queue pairs to ERR. A queue pair in ERR refuses the peer's packets, so no more data land. */
void rdma_qps_error(struct rdma_lane *r)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
    for (int i = 0; i < r->cfg.qps && !r->errored; i++)
        if (r->qp[i].qp)
            r->cfg.v->modify_qp(r->qp[i].qp, &a, IBV_QP_STATE);
    r->errored = true;
}

/* Destroys the queue pairs, then their completion queue. The queue must not be polled in between: vmw_pvrdma's library
 * cannot consume a completion whose queue pair it no longer knows, and would stop there (rdma-core 44,
 * providers/vmw_pvrdma/cq.c). */
void rdma_qps_destroy(struct rdma_lane *r)
{
    for (int i = 0; i < r->cfg.qps; i++)
        if (r->qp[i].qp)
            r->cfg.v->destroy_qp(r->qp[i].qp);
    if (r->cq)
        r->cfg.v->destroy_cq(r->cq);
}
