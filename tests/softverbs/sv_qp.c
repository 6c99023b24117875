/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: creation, the state machine, posting. */
#include "sv_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(ctx, field, n, doorbell) sv_count(ctx, offsetof(struct sv_stats, field), n, doorbell)

struct sv_qp *sv_qp_find(uint32_t qpn)
{
    return (qpn >> SV_QP_BITS) == sv.slot ? sv.qp[qpn & (SV_QP_MAX - 1)] : NULL;
}

static uint32_t pow2(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p <<= 1;
    return p;
}

/* Rounds the requested limits to those that the device grants. Returns an errno if it cannot. */
static int grant(struct ibv_qp_cap *cap)
{
    const struct sv_profile *p = &sv.p;
    if (cap->max_send_wr > (uint64_t)p->max_qp_wr || cap->max_recv_wr > (uint64_t)p->max_qp_wr ||
        cap->max_send_sge > (uint64_t)p->max_sge || cap->max_recv_sge > (uint64_t)p->max_sge)
        return EINVAL;
    if (p->max_inline && cap->max_inline_data > (uint64_t)p->max_inline)
        return EINVAL;
    if (!p->max_inline)
        cap->max_inline_data = 0; /* vmw_pvrdma grants 0 instead of refusing */
    if (!cap->max_send_wr)
        cap->max_send_wr = 1;
    if (!cap->max_recv_wr)
        cap->max_recv_wr = 1;
    if (!cap->max_send_sge)
        cap->max_send_sge = 1;
    if (!cap->max_recv_sge)
        cap->max_recv_sge = 1;
    if (p->pow2) {
        cap->max_send_wr = pow2(cap->max_send_wr);
        cap->max_recv_wr = pow2(cap->max_recv_wr);
        /* vmw_pvrdma: a 72-byte header and 16 bytes per element,
         * rounded up, in at most 128 pages */
        uint64_t wqe = pow2(72 + 16 * cap->max_send_sge);
        if (p->sq_ring_bytes && wqe * cap->max_send_wr > (uint64_t)p->sq_ring_bytes)
            return EFAULT;
    }
    return 0;
}

static int alloc_queues(struct sv_qp *qp)
{
    const struct ibv_qp_cap *cap = &qp->init.cap;
    size_t s = cap->max_send_wr, r = cap->max_recv_wr;
    size_t inl = (cap->max_inline_data + 15u) & ~(size_t)15;
    size_t sge = sizeof(struct ibv_sge);
    qp->sq = calloc(s, sizeof *qp->sq);
    qp->rq = calloc(r, sizeof *qp->rq);
    qp->slab = calloc(1, s * (cap->max_send_sge * sge + inl) + r * cap->max_recv_sge * sge);
    if (!qp->sq || !qp->rq || !qp->slab)
        return ENOMEM;
    char *at = qp->slab;
    for (size_t i = 0; i < s; i++, at += cap->max_send_sge * sge)
        qp->sq[i].sge = (struct ibv_sge *)(void *)at;
    for (size_t i = 0; i < r; i++, at += cap->max_recv_sge * sge)
        qp->rq[i].sge = (struct ibv_sge *)(void *)at;
    qp->sq_cap = cap->max_send_wr;
    qp->rq_cap = cap->max_recv_wr;
    return 0;
}

static void free_queues(struct sv_qp *qp)
{
    free(qp->sq);
    free(qp->rq);
    free(qp->slab);
    free(qp);
}

static char *inline_room(struct sv_qp *qp, uint64_t n)
{
    const struct ibv_qp_cap *cap = &qp->init.cap;
    size_t inl = (cap->max_inline_data + 15u) & ~(size_t)15;
    return qp->slab +
           sizeof(struct ibv_sge) *
               (qp->sq_cap * (size_t)cap->max_send_sge + qp->rq_cap * (size_t)cap->max_recv_sge) +
           (n % qp->sq_cap) * inl;
}

static int qp_slot(struct sv_qp *qp)
{
    if (sv.qp_count >= SV_QP_MAX - 2 || sv.qp_count >= (uint64_t)sv.p.max_qp)
        return ENOMEM;
    do
        sv.qp_next = (sv.qp_next + 1) % SV_QP_MAX;
    while (sv.qp_next < 2 || sv.qp[sv.qp_next]); /* 0 and 1 are for management */
    sv.qp[sv.qp_next] = qp;
    sv.qp_count++;
    qp->ibv.qp_num = sv.slot << SV_QP_BITS | sv.qp_next;
    qp->ibv.handle = sv.qp_next;
    return 0;
}

SV_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(pd->context);
    struct sv_qp *qp = NULL;
    struct ibv_qp_cap cap = init->cap;
    int err = sv_ctx_check(c);
    c->creating++;
    sv.overlaps += c->destroying > 0;
    if (!err)
        err = sv_fault_call("create_qp", c->dev, NULL);
    c->creating--;
    bool there = init->qp_type == IBV_QPT_RC || (init->qp_type == IBV_QPT_UC && sv.p.uc);
    if (!err && (!there || init->srq))
        err = EOPNOTSUPP;
    if (!err && (!init->send_cq || !init->recv_cq || ((struct sv_cq *)init->send_cq)->taken ||
                 ((struct sv_cq *)init->recv_cq)->taken || ((struct sv_pd *)pd)->taken))
        err = EINVAL;
    if (!err)
        err = grant(&cap);
    if (!err && !(qp = calloc(1, sizeof *qp)))
        err = ENOMEM;
    if (qp) {
        qp->init = *init;
        qp->init.cap = cap;
        err = alloc_queues(qp);
        if (!err)
            err = qp_slot(qp);
        if (err) {
            free_queues(qp);
            qp = NULL;
        }
    }
    if (qp) {
        init->cap = cap;
        struct ibv_qp *q = &qp->ibv;
        q->context = pd->context;
        q->qp_context = init->qp_context;
        q->pd = pd;
        q->send_cq = init->send_cq;
        q->recv_cq = init->recv_cq;
        q->state = IBV_QPS_RESET;
        q->qp_type = init->qp_type;
        pthread_mutex_init(&q->mutex, NULL);
        pthread_cond_init(&q->cond, NULL);
        qp->serial = sv.qp_serial++;
        qp->born = ++sv.born;
        ((struct sv_cq *)q->send_cq)->refs++;
        ((struct sv_cq *)q->recv_cq)->refs++;
        ((struct sv_pd *)pd)->refs++;
        c->refs++;
    }
    sv_unlock();
    if (err)
        errno = err;
    return qp ? &qp->ibv : NULL;
}

static bool event_of_qp(const struct sv_event *e, void *qp)
{
    return e->ev.event_type != IBV_EVENT_CQ_ERR && e->ev.event_type <= IBV_EVENT_PATH_MIG_ERR &&
           e->ev.element.qp == qp;
}

static void forget_completions(struct sv_qp *qp)
{
    sv_cq_forget((struct sv_cq *)qp->ibv.send_cq, qp);
    if (qp->ibv.recv_cq != qp->ibv.send_cq)
        sv_cq_forget((struct sv_cq *)qp->ibv.recv_cq, qp);
}

SV_EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
    struct sv_qp *qp = (struct sv_qp *)ibqp;
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(ibqp->context);
    c->destroying++;
    sv.overlaps += c->creating > 0;
    int err = qp->taken ? ENOENT : sv_fault_call("destroy_qp", c->dev, NULL);
    c->destroying--;
    /* An old kernel returns this for any call, and libibverbs keeps the object (libibverbs/cmd.h,
     * verbs_is_destroy_err, without RDMAV_ALLOW_DISASSOC_DESTROY). Newer kernels destroy it. */
    if (!err && (c->gone || c->leaving))
        err = EIO;
    if (err) {
        sv_unlock();
        return err;
    }
    sv_take(c, SV_TAKE_QP, qp);
    sv_relaxed_qp_ends(qp);
    ibqp->state = IBV_QPS_RESET;     /* from here on nothing reaches it */
    if (sv.qp[ibqp->handle] == qp) { /* else: a parent's */
        sv.qp[ibqp->handle] = NULL;
        sv.qp_count--;
    }
    sv_queue_purge(&c->async, event_of_qp, ibqp);
    while (qp->events_given != ibqp->events_completed)
        pthread_cond_wait(&sv.acked, &sv.lock);
    forget_completions(qp);
    ((struct sv_cq *)ibqp->send_cq)->refs--;
    ((struct sv_cq *)ibqp->recv_cq)->refs--;
    ((struct sv_pd *)ibqp->pd)->refs--;
    c->refs--;
    pthread_mutex_destroy(&ibqp->mutex);
    pthread_cond_destroy(&ibqp->cond);
    free_queues(qp);
    sv_unlock();
    return 0;
}

/* ---- state machine ---- */

/* Required and optional attributes of each step for RC: the table of IBTA 11.2.5.2,
 * as the kernel has it (drivers/infiniband/core/verbs.c, qp_state_table). To RESET
 * and ERR nothing but the state. */
static const struct {
    enum ibv_qp_state from, to;
    int required, optional;
} steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
};

/* Attributes that UC does not have */
enum {
    RELIABLE = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
               IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
};

static int check_step(const struct sv_qp *qp, const struct ibv_qp_attr *a, int mask)
{
    enum ibv_qp_state from = qp->ibv.state;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : from;
    if ((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != from)
        return EINVAL;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE) ? EINVAL : 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (steps[i].from != from || steps[i].to != to)
            continue;
        int not_there = qp->ibv.qp_type == IBV_QPT_UC ? RELIABLE : 0;
        int required = steps[i].required & ~not_there;
        int all = required | (steps[i].optional & ~not_there) | IBV_QP_STATE;
        return (mask & required) != required || (mask & ~all) ? EINVAL : 0;
    }
    return EINVAL;
}

static int check_address(struct sv_qp *qp, const struct ibv_ah_attr *ah, int port)
{
    if (!ah->is_global)
        return sv.p.ethernet ? EINVAL : 0; /* RoCE has no local addresses */
    if (ah->grh.sgid_index >= sv.p.gid_tbl_len)
        return EINVAL;
    const struct sv_gid *g =
        &sv_ctx_of(qp->ibv.context)->dev->port[port - 1].gid[ah->grh.sgid_index];
    if (!g->valid)
        return EINVAL;
    /* No route between the families: the kernel's address resolution refuses. */
    if (sv.p.ethernet && sv_gid_v4(&g->gid) != sv_gid_v4(&ah->grh.dgid))
        return ENETUNREACH;
    return 0;
}

static int check_values(struct sv_qp *qp, const struct ibv_qp_attr *a, int mask)
{
    int port = mask & IBV_QP_PORT ? a->port_num : qp->attr.port_num;
    if ((mask & IBV_QP_PORT) && (port < 1 || port > sv.p.ports))
        return EINVAL;
    if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index)
        return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) &&
        (a->path_mtu < IBV_MTU_256 || a->path_mtu > (enum ibv_mtu)IBV_MTU_4096 ||
         (sv.p.check_mtu && a->path_mtu > (enum ibv_mtu)sv.p.mtu)))
        return EINVAL;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > sv.p.rd_atom)
        return EINVAL;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > sv.p.rd_atom)
        return EINVAL;
    if (((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7) ||
        ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7) ||
        ((mask & IBV_QP_TIMEOUT) && a->timeout > 31) ||
        ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31))
        return EINVAL;
    /* No connection of rdma_cm belongs to it (irdma, siw). */
    if (sv.p.iwarp && (mask & IBV_QP_STATE) && a->qp_state == IBV_QPS_RTS)
        return EINVAL;
    return mask & IBV_QP_AV ? check_address(qp, &a->ah_attr, port) : 0;
}

static void take_values(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
#define TAKE(bit, field)                                                                           \
    if (mask & (bit))                                                                              \
    to->field = a->field
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
#undef TAKE
}

static void qp_reset(struct sv_qp *qp)
{
    sv_relaxed_qp_ends(qp);
    forget_completions(qp);
    qp->sq_free = qp->sq_una = qp->sq_next = qp->sq_off = qp->sq_tail = 0;
    qp->rq_head = qp->rq_tail = qp->rq_free = 0;
    qp->r_msn = qp->r_off = 0;
    qp->in_flight = 0;
    qp->rd_out = 0;
    qp->timer = qp->rnr_until = qp->hold_until = qp->hold_msgs = 0;
    qp->r_cur = NULL;
    qp->r_nak_sent = qp->r_est = false;
    qp->dead = 0;
    memset(qp->atomic_log, 0, sizeof qp->atomic_log);
    memset(&qp->attr, 0, sizeof qp->attr);
}

SV_EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *a, int mask)
{
    struct sv_qp *qp = (struct sv_qp *)ibqp;
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(ibqp->context);
    bool ends =
        (mask & IBV_QP_STATE) && (a->qp_state == IBV_QPS_ERR || a->qp_state == IBV_QPS_RESET);
    if (sv_inherited(c) && ends) {
        sv_take(c, SV_TAKE_QP_STATE, qp);
        ibqp->state = a->qp_state;
        sv_unlock();
        return 0;
    }
    int rc = qp->taken ? ENOENT : sv_ctx_check(c);
    if (!rc)
        rc = sv_fault_call("modify_qp", c->dev, qp);
    if (!rc)
        rc = check_step(qp, a, mask);
    if (!rc)
        rc = check_values(qp, a, mask);
    if (!rc) {
        take_values(&qp->attr, a, mask);
        enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : ibqp->state;
        if (to == IBV_QPS_ERR && ibqp->state != IBV_QPS_ERR) {
            sv_qp_error(qp);
        } else if (to == IBV_QPS_RESET) {
            qp_reset(qp);
            ibqp->state = to;
        } else {
            ibqp->state = to;
            if (mask & (IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY)) {
                qp->retry_left = qp->attr.retry_cnt;
                qp->rnr_left = qp->attr.rnr_retry;
            }
        }
    }
    sv_unlock();
    if (rc)
        errno = rc;
    return rc;
}

SV_EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
                           struct ibv_qp_init_attr *init)
{
    struct sv_qp *qp = (struct sv_qp *)ibqp;
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(ibqp->context);
    int rc = c->gone ? EIO : sv_ctx_check(c);
    if (!rc)
        rc = sv_fault_call("query_qp", c->dev, qp);
    if (!rc) {
        *attr = qp->attr;
        attr->qp_state = attr->cur_qp_state = ibqp->state;
        attr->cap = qp->init.cap;
        *init = qp->init;
    }
    sv_unlock();
    return rc;
}

void sv_qp_error(struct sv_qp *qp)
{
    bool had_state = qp->ibv.state != IBV_QPS_RESET && qp->ibv.state != IBV_QPS_ERR;
    qp->ibv.state = IBV_QPS_ERR;
    qp->timer = qp->rnr_until = qp->hold_until = 0;
    qp->hold_msgs = 0;
    if (!had_state)
        return;
    sv_relaxed_qp_ends(qp);
    while (qp->sq_una < qp->sq_tail)
        sv_send_complete(qp, IBV_WC_WR_FLUSH_ERR);
    qp->sq_next = qp->sq_tail;
    qp->sq_off = 0;
    qp->in_flight = 0;
    qp->rd_out = 0;
    struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};
    if (qp->r_cur)
        sv_recv_complete(qp, qp->r_cur, qp->r_cur_index, &wc, false);
    qp->r_cur = NULL;
    while (qp->rq_head < qp->rq_tail) {
        uint64_t n = qp->rq_head++;
        sv_recv_complete(qp, &qp->rq[n % qp->rq_cap], n, &wc, false);
    }
}

/* ---- posting ---- */

static int take_send(struct sv_qp *qp, const struct ibv_send_wr *wr)
{
    bool rd = wr->opcode == IBV_WR_RDMA_READ;
    bool atomic =
        wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (wr->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD || (atomic && !sv.p.atomics) || wr->num_sge < 0 ||
        (uint32_t)wr->num_sge > qp->init.cap.max_send_sge ||
        ((rd || atomic) && !qp->attr.max_rd_atomic))
        return EINVAL;
    bool write = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (write && sv.p.no_write == 1)
        return EINVAL;
    if (qp->sq_tail - qp->sq_free >= qp->sq_cap)
        return ENOMEM;
    uint64_t n = qp->sq_tail, len = 0;
    struct sv_wqe *w = &qp->sq[n % qp->sq_cap];
    for (int i = 0; i < wr->num_sge; i++)
        len += wr->sg_list[i].length;
    /* max_inline 0 and an inline request: vmw_pvrdma takes the element as an ordinary one. */
    bool inl = (wr->send_flags & IBV_SEND_INLINE) && sv.p.max_inline;
    if (inl && (rd || atomic))
        return EINVAL;
    if (inl && len > qp->init.cap.max_inline_data)
        return ENOMEM; /* as mlx5 */
    if (atomic && len != 8)
        return EINVAL;
    bool send = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
    if (qp->ibv.qp_type == IBV_QPT_UC && (!send || len > SV_SEG))
        return EINVAL;
    struct ibv_sge *sge = w->sge;
    *w = (struct sv_wqe){.wr_id = wr->wr_id,
                         .len = len,
                         .opcode = wr->opcode,
                         .flags = wr->send_flags,
                         .imm = wr->imm_data,
                         .num_sge = wr->num_sge,
                         .sge = sge};
    if (write && sv.p.no_write == 3) { /* as QEMU 7.2's pvrdma device */
        w->opcode = IBV_WR_SEND;
        w->flags |= IBV_SEND_SIGNALED;
    }
    if (wr->num_sge)
        memcpy(sge, wr->sg_list, (size_t)wr->num_sge * sizeof *sge);
    if (atomic) {
        w->raddr = wr->wr.atomic.remote_addr;
        w->rkey = wr->wr.atomic.rkey;
        w->compare = wr->wr.atomic.compare_add;
        w->swap = wr->wr.atomic.swap;
    } else if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) {
        w->raddr = wr->wr.rdma.remote_addr;
        w->rkey = wr->wr.rdma.rkey;
    }
    if (inl) {
        char *at = w->inl = inline_room(qp, n);
        for (int i = 0; i < wr->num_sge; i++) {
            memcpy(at, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
            at += wr->sg_list[i].length;
        }
    }
    qp->sq_tail++;
    return 0;
}

int sv_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct sv_qp *qp = (struct sv_qp *)ibqp;
    struct sv_ctx *c = sv_ctx_of(ibqp->context);
    unsigned int n = 0;
    sv_lock();
    int rc = sv_ctx_check_data(c);
    if (!rc)
        rc = sv_fault_call("post_send", c->dev, qp);
    if (!rc && ibqp->state != IBV_QPS_RTS && ibqp->state != IBV_QPS_ERR &&
        ibqp->state != IBV_QPS_SQE && ibqp->state != IBV_QPS_SQD)
        rc = EINVAL;
    for (; !rc && wr; wr = wr->next, n++)
        if ((rc = take_send(qp, wr)))
            break;
    if (rc)
        *bad = wr;
    if (n) {
        qp->stats.post_send++;
        qp->stats.send_wr += n;
        qp->stats.doorbells++;
        COUNT(c, post_send, 1, true);
        COUNT(c, send_wr, n, false);
        if (ibqp->state == IBV_QPS_ERR) {
            while (qp->sq_una < qp->sq_tail)
                sv_send_complete(qp, IBV_WC_WR_FLUSH_ERR);
            qp->sq_next = qp->sq_tail;
        } else if (sv.p.async) {
            sv_wake(0);
        } else {
            sv_qp_transmit(qp);
            sv_run();
        }
    }
    sv_unlock_ring(n > 0);
    return rc;
}

static int take_recv(struct sv_qp *qp, const struct ibv_recv_wr *wr)
{
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_recv_sge)
        return EINVAL;
    if (qp->rq_tail - qp->rq_free >= qp->rq_cap)
        return ENOMEM;
    uint64_t n = qp->rq_tail++;
    struct sv_rwqe *r = &qp->rq[n % qp->rq_cap];
    r->wr_id = wr->wr_id;
    r->num_sge = wr->num_sge;
    if (wr->num_sge)
        memcpy(r->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *r->sge);
    if (qp->ibv.state == IBV_QPS_ERR) {
        struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};
        qp->rq_head = qp->rq_tail;
        sv_recv_complete(qp, r, n, &wc, false);
    }
    return 0;
}

int sv_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct sv_qp *qp = (struct sv_qp *)ibqp;
    struct sv_ctx *c = sv_ctx_of(ibqp->context);
    unsigned int n = 0;
    sv_lock();
    int rc = sv_ctx_check_data(c);
    if (!rc)
        rc = sv_fault_call("post_recv", c->dev, qp);
    if (!rc && ibqp->state == IBV_QPS_RESET)
        rc = EINVAL;
    for (; !rc && wr; wr = wr->next, n++)
        if ((rc = take_recv(qp, wr)))
            break;
    if (rc)
        *bad = wr;
    if (n) {
        qp->stats.post_recv++;
        qp->stats.recv_wr += n;
        qp->stats.doorbells++;
        COUNT(c, post_recv, 1, true);
        COUNT(c, recv_wr, n, false);
    }
    sv_unlock_ring(n > 0);
    return rc;
}

SV_EXPORT void sv_qp_stats(struct ibv_qp *qp, struct sv_stats *out)
{
    sv_lock();
    *out = ((struct sv_qp *)qp)->stats;
    sv_unlock();
}
