/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Protection domains, completion channels and completion queues */
#include "sv_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(ctx, field, n, doorbell) sv_count(ctx, offsetof(struct sv_stats, field), n, doorbell)

SV_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    struct sv_pd *pd = NULL;
    int err = sv_ctx_check(c);
    if (!err)
        err = sv_fault_call("alloc_pd", c->dev, NULL);
    if (!err && !(pd = calloc(1, sizeof *pd)))
        err = ENOMEM;
    if (pd) {
        pd->ibv.context = context;
        pd->next = sv.pds;
        sv.pds = pd;
        c->refs++;
    }
    sv_unlock();
    if (err)
        errno = err;
    return pd ? &pd->ibv : NULL;
}

SV_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    struct sv_pd *p = (struct sv_pd *)pd;
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(pd->context);
    int rc = p->taken ? ENOENT : p->refs ? EBUSY : 0;
    if (!rc) {
        sv_take(c, SV_TAKE_PD, p);
        for (struct sv_pd **at = &sv.pds; *at; at = &(*at)->next)
            if (*at == p) {
                *at = p->next;
                break;
            }
        c->refs--;
        free(p);
    }
    sv_unlock();
    return rc;
}

/* ---- completion channels ---- */

SV_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    struct sv_channel *ch = NULL;
    int err = sv_ctx_check(c);
    if (!err)
        err = sv_fault_call("create_comp_channel", c->dev, NULL);
    if (!err && (!(ch = calloc(1, sizeof *ch)) || !sv_queue_open(&ch->queue))) {
        free(ch);
        ch = NULL;
        err = ENOMEM;
    }
    if (ch) {
        ch->ibv.context = context;
        ch->ibv.fd = ch->queue.fd;
        c->refs++;
    }
    sv_unlock();
    if (err)
        errno = err;
    return ch ? &ch->ibv : NULL;
}

SV_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct sv_channel *ch = (struct sv_channel *)channel;
    sv_lock();
    int rc = channel->refcnt ? EBUSY : 0;
    if (!rc) {
        sv_ctx_of(channel->context)->refs--;
        sv_queue_close(&ch->queue);
        free(ch);
    }
    sv_unlock();
    return rc;
}

SV_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                               void **cq_context)
{
    struct sv_channel *ch = (struct sv_channel *)channel;
    for (;;) {
        uint64_t v;
        if (read(ch->queue.fd, &v, sizeof v) != sizeof v)
            return -1;
        sv_lock();
        struct sv_event *e = ch->queue.head;
        if (e) {
            ch->queue.head = e->next;
            if (!e->next)
                ch->queue.tail = &ch->queue.head;
            e->cq->events_given++;
            *cq = &e->cq->ibv;
            *cq_context = e->cq->ibv.cq_context;
            free(e);
        }
        sv_unlock();
        if (e)
            return 0;
    }
}

SV_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    sv_lock();
    cq->comp_events_completed += n;
    pthread_cond_broadcast(&sv.acked);
    sv_unlock();
}

/* ---- completion queues ---- */

static uint32_t ring_size(long want)
{
    uint32_t n = (uint32_t)want;
    if (!sv.p.pow2)
        return n;
    uint32_t p = 1;
    while (p < n)
        p <<= 1;
    return p;
}

SV_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                       struct ibv_comp_channel *channel, int comp_vector)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    struct sv_cq *cq = NULL;
    int err = sv_ctx_check(c);
    if (!err)
        err = sv_fault_call("create_cq", c->dev, NULL);
    if (!err &&
        (cqe < 1 || cqe > sv.p.max_cqe || comp_vector < 0 || comp_vector >= sv.p.comp_vectors))
        err = EINVAL;
    if (!err && ring_size(cqe) > (uint64_t)sv.p.max_cq_ring)
        err = EFAULT; /* what vmw_pvrdma answers for a ring of too many pages */
    if (!err &&
        (!(cq = calloc(1, sizeof *cq)) || !(cq->ring = calloc(ring_size(cqe), sizeof *cq->ring)))) {
        free(cq);
        cq = NULL;
        err = ENOMEM;
    }
    if (cq) {
        cq->cap = ring_size(cqe);
        cq->ibv.context = context;
        cq->ibv.channel = channel;
        cq->ibv.cq_context = cq_context;
        cq->ibv.cqe = (int)cq->cap;
        pthread_mutex_init(&cq->ibv.mutex, NULL);
        pthread_cond_init(&cq->ibv.cond, NULL);
        if (channel)
            channel->refcnt++;
        cq->next = sv.cqs;
        sv.cqs = cq;
        c->refs++;
    }
    sv_unlock();
    if (err)
        errno = err;
    return cq ? &cq->ibv : NULL;
}

static bool event_of_cq(const struct sv_event *e, void *cq)
{
    return e->cq == cq || (e->ev.event_type == IBV_EVENT_CQ_ERR && e->ev.element.cq == cq);
}

SV_EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
    struct sv_cq *cq = (struct sv_cq *)ibcq;
    sv_lock();
    if (cq->refs || cq->taken) {
        sv_unlock();
        return cq->taken ? ENOENT : EBUSY;
    }
    struct sv_ctx *c = sv_ctx_of(ibcq->context);
    sv_take(c, SV_TAKE_CQ, cq);
    for (struct sv_cq **at = &sv.cqs; *at; at = &(*at)->next)
        if (*at == cq) {
            *at = cq->next;
            break;
        }
    sv_queue_purge(&c->async, event_of_cq, cq);
    if (ibcq->channel)
        sv_queue_purge(&((struct sv_channel *)ibcq->channel)->queue, event_of_cq, cq);
    /* As libibverbs: events that were handed out must be acknowledged first. */
    while (cq->events_given != ibcq->comp_events_completed ||
           cq->async_given != ibcq->async_events_completed)
        pthread_cond_wait(&sv.acked, &sv.lock);
    if (ibcq->channel)
        ibcq->channel->refcnt--;
    c->refs--;
    pthread_mutex_destroy(&ibcq->mutex);
    pthread_cond_destroy(&ibcq->cond);
    free(cq->ring);
    free(cq);
    sv_unlock();
    return 0;
}

SV_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    return EOPNOTSUPP; /* as vmw_pvrdma; nobody here resizes */
}

/* Fails the CQ, and every QP on it. */
void sv_cq_overrun(struct sv_cq *cq)
{
    cq->overrun = true;
    sv_raise(sv_ctx_of(cq->ibv.context), IBV_EVENT_CQ_ERR, &cq->ibv, 0);
    for (unsigned int i = 0; i < SV_QP_MAX; i++) {
        struct sv_qp *q = sv.qp[i];
        if (q && (q->ibv.send_cq == &cq->ibv || q->ibv.recv_cq == &cq->ibv) &&
            q->ibv.state != IBV_QPS_ERR) {
            sv_raise(sv_ctx_of(cq->ibv.context), IBV_EVENT_QP_FATAL, &q->ibv, 0);
            sv_qp_error(q);
        }
    }
}

void sv_cq_add(struct sv_cq *cq, struct sv_qp *qp, const struct ibv_wc *wc, bool send,
               uint64_t index, bool solicited)
{
    if (cq->overrun || cq->taken || sv_ctx_is_dead(sv_ctx_of(cq->ibv.context)))
        return;
    if (cq->count == cq->cap) {
        sv_cq_overrun(cq);
        return;
    }
    struct sv_cqe *e = &cq->ring[(cq->head + cq->count++) % cq->cap];
    *e = (struct sv_cqe){.wc = *wc, .qp = qp, .index = index, .send = send};
    cq->stats.cqe++;
    if (qp)
        qp->stats.cqe++;
    COUNT(sv_ctx_of(cq->ibv.context), cqe, 1, false);
    if (cq->armed == 1 || (cq->armed == 2 && (solicited || wc->status != IBV_WC_SUCCESS))) {
        cq->armed = 0;
        if (cq->ibv.channel)
            sv_queue_put(&((struct sv_channel *)cq->ibv.channel)->queue,
                         &(struct sv_event){.cq = cq});
    }
}

/* Drops the unpolled completions of a QP that is reset or destroyed. */
void sv_cq_forget(struct sv_cq *cq, struct sv_qp *qp)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cq->count; i++) {
        struct sv_cqe *e = &cq->ring[(cq->head + i) % cq->cap];
        if (e->qp != qp)
            cq->ring[(cq->head + kept++) % cq->cap] = *e;
    }
    cq->count = kept;
}

int sv_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
    struct sv_cq *cq = (struct sv_cq *)ibcq;
    struct sv_ctx *c = sv_ctx_of(ibcq->context);
    sv_lock();
    int got = 0, err = sv_ctx_check_data(c);
    if (err == EIO && !c->taken)
        err = 0; /* completions lie in memory, where a dead device leaves them */
    cq->stats.poll++;
    COUNT(c, poll, 1, false);
    if (err != EINVAL && sv_fault_call("poll_cq", c->dev, NULL))
        got = -1;
    while (!err && got >= 0 && got < n && cq->count) {
        struct sv_cqe *e = &cq->ring[cq->head];
        wc[got++] = e->wc;
        if (e->send)
            e->qp->sq_free = e->index + 1; /* this slot and those of unsignalled ones before it */
        else
            e->qp->rq_free = e->index + 1;
        cq->head = (cq->head + 1) % cq->cap;
        cq->count--;
    }
    if (got < n) {
        cq->stats.poll_empty++;
        cq->stats.doorbells += sv.p.doorbell_poll != 0;
        COUNT(c, poll_empty, 1, sv.p.doorbell_poll != 0);
    }
    sv_unlock_ring(got < n && sv.p.doorbell_poll);
    return err == EINVAL ? -1 : got;
}

int sv_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
    struct sv_cq *cq = (struct sv_cq *)ibcq;
    struct sv_ctx *c = sv_ctx_of(ibcq->context);
    sv_lock();
    int err = sv_ctx_check_data(c);
    if (!err)
        err = sv_fault_call("req_notify_cq", c->dev, NULL);
    if (!err) {
        if (cq->armed != 1) /* asking for all is not taken back by asking for solicited ones */
            cq->armed = solicited_only ? 2 : 1;
        cq->stats.notify++;
        cq->stats.doorbells++;
        COUNT(c, notify, 1, true);
    }
    sv_unlock_ring(!err);
    return err;
}

SV_EXPORT void sv_cq_stats(struct ibv_cq *cq, struct sv_stats *out)
{
    sv_lock();
    *out = ((struct sv_cq *)cq)->stats;
    sv_unlock();
}
