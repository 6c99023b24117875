/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "net-pvrdma/probe.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/pages.h"

enum { SPOT = 64, PSN = 1 };
/* Far longer than a round trip within one adapter, retries included. */
#define WAIT_NS  (PVN_NS_PER_S / 2)
#define PAUSE_NS (20 * PVN_NS_PER_US)

/* A queue pair connected to itself. */
struct loop {
    const struct pvn_verbs *v;
    uint8_t *mem; /* three spots: source, target of a write, receive buffer */
    struct ibv_mr *mr;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

static void loop_close(struct loop *l)
{
    if (l->qp)
        l->v->destroy_qp(l->qp);
    if (l->cq)
        l->v->destroy_cq(l->cq);
    if (l->mr)
        l->v->dereg_mr(l->mr);
    free(l->mem);
}

static int loop_connect(struct loop *l, const struct pvn_hca *h, const struct pvn_hca_port *p,
                        int pkey)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .pkey_index = (uint16_t)pkey,
                            .port_num = p->port,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int rc = l->v->modify_qp(l->qp, &a,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (rc)
        return rc;
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                             .path_mtu = p->mtu,
                             .dest_qp_num = l->qp->qp_num,
                             .rq_psn = PSN,
                             .max_dest_rd_atomic = h->max_rd_atomic,
                             .min_rnr_timer = 1,
                             .ah_attr = {.dlid = p->lid, .port_num = p->port}};
    if (p->ngids > 0) {
        a.ah_attr.is_global = 1;
        a.ah_attr.grh.hop_limit = 1;
        a.ah_attr.grh.sgid_index = (uint8_t)p->gids[0].index;
        memcpy(a.ah_attr.grh.dgid.raw, p->gids[0].raw, sizeof(p->gids[0].raw));
    }
    rc = l->v->modify_qp(l->qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (rc)
        return rc;
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = 14, /* 67 ms */
                             .retry_cnt = 1,
                             .rnr_retry = 1,
                             .sq_psn = PSN,
                             .max_rd_atomic = h->max_rd_atomic};
    return l->v->modify_qp(l->qp, &a,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static bool loop_open(struct loop *l, const struct pvn_verbs *v, const struct pvn_hca *h,
                      const struct pvn_hca_port *p, int pkey)
{
    size_t len = 3 * SPOT;
    *l = (struct loop){.v = v};
    l->mem = pvn_pages_new(&len);
    if (!l->mem)
        return false;
    l->mr = v->reg_mr(h->pd, l->mem, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    l->cq = v->create_cq(h->ctx, 8, NULL, NULL, 0);
    if (!l->mr || !l->cq)
        return false;
    struct ibv_qp_init_attr a = {
        .send_cq = l->cq,
        .recv_cq = l->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    l->qp = v->create_qp(h->pd, &a);
    return l->qp && loop_connect(l, h, p, pkey) == 0;
}

/* Waits for n completions. True if all were successful; *failed: one was not. */
static bool wait_for(struct loop *l, int n, bool *failed)
{
    const struct timespec pause = {.tv_nsec = (long)PAUSE_NS};
    uint64_t until = pvn_now_ns() + WAIT_NS;
    while (n > 0) {
        struct ibv_wc wc;
        bool over = pvn_now_ns() >
                    until; /* before the last look: this process may be stopped between the two */
        int got = ibv_poll_cq(l->cq, 1, &wc);
        *failed = got > 0 && wc.status != IBV_WC_SUCCESS;
        if (got < 0 || *failed || (got == 0 && over))
            return false;
        n -= got;
        if (got == 0)
            nanosleep(&pause, NULL);
    }
    return true;
}

/* True if the bytes arrive at the opcode's destination; *failed: the adapter reports that they do not. A receive is posted for a WRITE, too, because a device
 * that turns a WRITE into a SEND would wait for one. */
static bool try_it(const struct pvn_verbs *v, const struct pvn_hca *h, const struct pvn_hca_port *p,
                   int pkey, enum ibv_wr_opcode op, bool *failed)
{
    struct loop l;
    bool works = loop_open(&l, v, h, p, pkey);
    *failed = false;
    if (works) {
        uint8_t *source = l.mem, *target = l.mem + SPOT, *receive = l.mem + 2 * SPOT;
        struct ibv_sge from = {.addr = (uintptr_t)source, .length = SPOT, .lkey = l.mr->lkey};
        struct ibv_sge to = {.addr = (uintptr_t)receive, .length = SPOT, .lkey = l.mr->lkey};
        struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv = NULL;
        struct ibv_send_wr send = {
            .sg_list = &from,
            .num_sge = 1,
            .opcode = op,
            .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = {.remote_addr = (uintptr_t)target, .rkey = l.mr->rkey}};
        struct ibv_send_wr *bad = NULL;
        memset(source, 0x5a, SPOT);
        works = ibv_post_recv(l.qp, &recv, &bad_recv) == 0 &&
                ibv_post_send(l.qp, &send, &bad) == 0 &&
                wait_for(&l, op == IBV_WR_SEND ? 2 : 1, failed) &&
                memcmp(source, op == IBV_WR_SEND ? receive : target, SPOT) == 0;
    }
    loop_close(&l);
    return works;
}

enum pvn_probe pvn_probe_write(const struct pvn_verbs *v, const struct pvn_hca *h,
                               const struct pvn_hca_port *p, int pkey)
{
    bool failed;
    if (try_it(v, h, p, pkey, IBV_WR_RDMA_WRITE, &failed))
        return PVN_PROBE_WORKS;
    if (try_it(v, h, p, pkey, IBV_WR_SEND, &failed))
        return PVN_PROBE_FAILS;
    return failed ? PVN_PROBE_NO_LOOP : PVN_PROBE_UNKNOWN;
}
