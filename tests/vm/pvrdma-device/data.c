/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* data.c: the data path of libibverbs: posting, polling, completions. */
#define _GNU_SOURCE
#include "pvstand.h"

#include <errno.h>
#include <rdma/vmw_pvrdma-abi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__thread struct fix stand_polled[2];
__thread int stand_polled_n, stand_polled_next;

static bool is_pull(uint32_t op) /* the response carries data */
{
    return op == IBV_WR_RDMA_READ || op == IBV_WR_ATOMIC_CMP_AND_SWP ||
           op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Locked. */
static void raise_cq_event(struct cq *cq)
{
    uint64_t one = 1;

    if (!cq->armed || cq->dead)
        return;
    cq->armed = false;
    if (cq->event_queued)
        return;
    cq->event_queued = true;
    cq->event_next = NULL;
    *stand_event_tail = cq;
    stand_event_tail = &cq->event_next;
    if (write(stand_channel.fd, &one, sizeof one) < 0)
        stand_say("completion event lost: %m");
}

static void complete(struct ibv_cq *v, const struct ibv_wc *wc, const struct fix *fix)
{
    struct cq *cq = (struct cq *)v;
    struct cqe *e = stand_alloc(sizeof *e);

    e->wc = *wc;
    e->fix = *fix;
    *cq->tail = e;
    cq->tail = &e->next;
    raise_cq_event(cq);
}

static enum ibv_wc_opcode completed_opcode(uint32_t op)
{
    switch (op) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    default:
        return IBV_WC_SEND;
    }
}

void stand_send_done(struct qp *q, struct send_request *w, enum ibv_wc_status status)
{
    struct ibv_wc wc = {.wr_id = w->id,
                        .status = status,
                        .opcode = completed_opcode(w->op),
                        .qp_num = q->v.qp_num,
                        .byte_len = w->len};
    struct fix fix = {.guest_wr_id = w->guest_id,
                      .opcode = wc.opcode,
                      .silent = stand_hooks && !w->signaled && status == IBV_WC_SUCCESS};

    complete(q->v.send_cq, &wc, &fix);
    free(w);
}

void stand_recv_done(struct qp *q, struct recv_request *r, enum ibv_wc_status status,
                     const struct frame *f, uint32_t len, uint32_t flags)
{
    struct ibv_wc wc = {.wr_id = r->id,
                        .status = status,
                        .opcode = IBV_WC_RECV,
                        .byte_len = len,
                        .qp_num = q->v.qp_num,
                        .src_qp = f ? f->src_qpn : 0,
                        .wc_flags = flags};
    struct fix fix = {.guest_wr_id = r->guest_id, .opcode = IBV_WC_RECV, .wc_flags = flags};

    if (f && (f->op == IBV_WR_SEND_WITH_IMM || f->op == IBV_WR_RDMA_WRITE_WITH_IMM)) {
        fix.imm = f->imm;
        fix.wc_flags |= IBV_WC_WITH_IMM;
        if (stand_hooks)
            wc.wc_flags |= IBV_WC_WITH_IMM;
        if (f->op == IBV_WR_RDMA_WRITE_WITH_IMM)
            fix.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    }
    complete(q->v.recv_cq, &wc, &fix);
    free(r);
}

struct send_request *stand_take_pending(struct qp *q)
{
    struct send_request *w = q->pending;

    if (w) {
        q->pending = w->next;
        if (!q->pending)
            q->pending_tail = &q->pending;
    }
    return w;
}

void stand_flush(struct qp *q)
{
    struct send_request *w;
    struct recv_request *r;
    struct message *m;

    q->state = q->v.state = IBV_QPS_ERR;
    while ((w = stand_take_pending(q))) {
        w->signaled = true;
        stand_send_done(q, w, IBV_WC_WR_FLUSH_ERR);
    }
    while (!q->srq && (r = q->recvs.head)) {
        q->recvs.head = r->next;
        stand_recv_done(q, r, IBV_WC_WR_FLUSH_ERR, NULL, 0, 0);
    }
    q->recvs.tail = &q->recvs.head;
    while ((m = q->in)) {
        q->in = m->next;
        free(m);
    }
    q->in_tail = &q->in;
}

void stand_scatter(struct segment *s, int n, const void *data, size_t len)
{
    const char *from = data;

    for (int i = 0; i < n && len; i++) {
        size_t k = len < s[i].len ? len : s[i].len;

        memcpy(s[i].p, from, k);
        from += k;
        len -= k;
    }
}

static int arm_cq(struct ibv_cq *v, int solicited_only)
{
    struct cq *cq = (struct cq *)v;

    (void)solicited_only;
    pthread_mutex_lock(&stand_lock);
    cq->armed = true;
    if (cq->head)
        raise_cq_event(cq);
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

static int poll_cq(struct ibv_cq *v, int n, struct ibv_wc *wc)
{
    struct cq *cq = (struct cq *)v;
    struct cqe *e;
    int k = 0;

    stand_polled_n = stand_polled_next = 0;
    pthread_mutex_lock(&stand_lock);
    while (k < n && (e = cq->head) && !cq->dead) {
        cq->head = e->next;
        if (!cq->head)
            cq->tail = &cq->head;
        wc[k] = e->wc;
        if (stand_hooks && k < 2) {
            stand_polled[k] = e->fix;
            stand_polled_n = k + 1;
        }
        k++;
        free(e);
    }
    pthread_mutex_unlock(&stand_lock);
    return k;
}

/* QEMU passes a pointer to the scatter list inside the guest's queue entry. The entry's header precedes it. */
static const struct pvrdma_sq_wqe_hdr *guest_send_entry(const struct ibv_send_wr *wr)
{
    return stand_hooks
               ? (const void *)((const char *)wr->sg_list - sizeof(struct pvrdma_sq_wqe_hdr))
               : NULL;
}

static void fill_frame(struct frame *f, const struct pvrdma_sq_wqe_hdr *entry)
{
    f->imm = entry->ex.imm_data;
    if (f->op == IBV_WR_ATOMIC_CMP_AND_SWP || f->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        f->remote_addr = entry->wr.atomic.remote_addr;
        f->rkey = entry->wr.atomic.rkey;
        f->compare_add = entry->wr.atomic.compare_add;
        f->swap = entry->wr.atomic.swap;
    } else {
        f->remote_addr = entry->wr.rdma.remote_addr;
        f->rkey = entry->wr.rdma.rkey;
    }
}

/* A datagram is complete as soon as it is copied. */
static void send_datagram(struct qp *q, struct send_request *w, struct outgoing *t,
                          const struct ibv_send_wr *wr)
{
    const struct ah *ah = (const struct ah *)wr->wr.ud.ah;
    uint8_t source = ah->attr.grh.sgid_index;
    char *copy = stand_alloc(w->len + 1);
    size_t at = 0;

    t->frame.type = FRAME_UD;
    t->frame.dst_qpn = wr->wr.ud.remote_qpn;
    t->frame.rkey = wr->wr.ud.remote_qkey;
    t->gid = ah->attr.grh.dgid;
    if (source)
        memcpy(t->frame.sgid, &stand_gids[source - 1], sizeof t->frame.sgid);
    for (int i = 0; i < w->n; i++) {
        memcpy(copy + at, w->segments[i].p, w->segments[i].len);
        at += w->segments[i].len;
    }
    t->own = copy;
    t->n = 1;
    t->segments[0] = (struct segment){copy, w->len};
    stand_push(t);
    stand_send_done(q, w, IBV_WC_SUCCESS);
}

static enum ibv_wc_status check_request(struct qp *q, struct send_request *w,
                                        const struct ibv_send_wr *wr)
{
    if (q->state != IBV_QPS_RTS)
        return IBV_WC_WR_FLUSH_ERR;
    if (stand_translate_list(q->v.pd, wr->sg_list, wr->num_sge,
                             is_pull(w->op) ? IBV_ACCESS_LOCAL_WRITE : 0, w->segments, &w->len))
        return IBV_WC_LOC_PROT_ERR;
    return w->op > IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS;
}

static void post_one(struct qp *q, const struct ibv_send_wr *wr)
{
    static uint64_t serial;
    const struct pvrdma_sq_wqe_hdr *entry = guest_send_entry(wr);
    struct send_request *w = stand_alloc(sizeof *w);
    struct outgoing *t;
    enum ibv_wc_status status;

    w->id = wr->wr_id;
    w->op = entry ? entry->opcode : wr->opcode;
    w->guest_id = entry ? entry->wr_id : 0;
    w->signaled = entry ? entry->send_flags & IBV_SEND_SIGNALED : true;
    w->n = wr->num_sge;
    stand_count_request(q->v.qp_num, w->op);
    status = check_request(q, w, wr);
    if (status != IBV_WC_SUCCESS) {
        w->signaled = true;
        stand_send_done(q, w, status);
        if (status != IBV_WC_WR_FLUSH_ERR)
            stand_flush(q);
        return;
    }
    t = stand_alloc(sizeof *t);
    t->frame = (struct frame){
        .type = FRAME_REQUEST, .op = w->op, .src_qpn = q->v.qp_num, .dst_qpn = q->dest_qpn};
    t->gid = q->dgid;
    t->qp = q;
    t->qpn = q->v.qp_num;
    if (entry)
        fill_frame(&t->frame, entry);
    if (is_pull(w->op)) {
        t->frame.want = w->len;
    } else {
        t->frame.len = w->len;
        t->n = w->n;
        memcpy(t->segments, w->segments, sizeof w->segments);
    }
    if (q->v.qp_type == IBV_QPT_UD) {
        send_datagram(q, w, t, wr);
        return;
    }
    w->serial = t->frame.serial = ++serial;
    *q->pending_tail = w;
    q->pending_tail = &w->next;
    stand_push(t);
}

static int post_send(struct ibv_qp *v, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    if (wr->num_sge > MAX_SGE) {
        *bad = wr;
        return EINVAL;
    }
    pthread_mutex_lock(&stand_lock);
    post_one((struct qp *)v, wr);
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

static struct recv_request *make_recv(const struct ibv_recv_wr *wr)
{
    struct recv_request *r = stand_alloc(sizeof *r);

    if (stand_hooks) {
        const struct pvrdma_rq_wqe_hdr *entry =
            (const void *)((const char *)wr->sg_list - sizeof *entry);

        r->guest_id = entry->wr_id;
    }
    r->id = wr->wr_id;
    r->n = wr->num_sge;
    memcpy(r->sge, wr->sg_list, wr->num_sge * sizeof *wr->sg_list);
    return r;
}

static void queue_recv(struct recv_queue *queue, struct recv_request *r)
{
    *queue->tail = r;
    queue->tail = &r->next;
}

static int post_recv(struct ibv_qp *v, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct qp *q = (struct qp *)v;
    struct recv_request *r;

    if (wr->num_sge > MAX_SGE) {
        *bad = wr;
        return EINVAL;
    }
    pthread_mutex_lock(&stand_lock);
    r = make_recv(wr);
    if (q->state == IBV_QPS_ERR) {
        stand_recv_done(q, r, IBV_WC_WR_FLUSH_ERR, NULL, 0, 0);
    } else {
        queue_recv(&q->recvs, r);
        stand_progress(q);
    }
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

static int post_srq_recv(struct ibv_srq *v, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct srq *s = (struct srq *)v;

    if (wr->num_sge > MAX_SGE) {
        *bad = wr;
        return EINVAL;
    }
    pthread_mutex_lock(&stand_lock);
    queue_recv(&s->queue, make_recv(wr));
    for (int i = 0; i < MAX_QPN && s->queue.head; i++)
        if (stand_qps[i] && stand_qps[i]->srq == s && stand_qps[i]->in)
            stand_progress(stand_qps[i]);
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

void stand_set_ops(struct ibv_context *ctx)
{
    ctx->ops.poll_cq = poll_cq;
    ctx->ops.req_notify_cq = arm_cq;
    ctx->ops.post_send = post_send;
    ctx->ops.post_recv = post_recv;
    ctx->ops.post_srq_recv = post_srq_recv;
}
