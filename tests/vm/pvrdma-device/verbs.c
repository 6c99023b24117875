/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* verbs.c: the control path of libibverbs that QEMU's backend uses, with one device and one port. */
#define _GNU_SOURCE
#include "pvstand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ibv_comp_channel stand_channel;
struct cq *stand_event_head, **stand_event_tail = &stand_event_head;
__thread uint64_t stand_guest_start;
__thread uint32_t stand_last_key;

static struct ibv_context context;
static struct ibv_device device;
static struct mr *regions;

/* -- device ------------------------------------------------------------------------------------ */

EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
    struct ibv_device **list = stand_alloc(2 * sizeof *list);

    strcpy(device.name, "pvstand0");
    strcpy(device.dev_name, "uverbs0");
    device.node_type = IBV_NODE_CA;
    list[0] = &device;
    if (n)
        *n = 1;
    return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *d)
{
    return d->name;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d)
{
    context.device = d;
    context.num_comp_vectors = 1;
    context.abi_compat = NULL; /* the inline wrappers then use the plain functions */
    stand_set_ops(&context);
    stand_say("opened, hooks %d", stand_hooks);
    return &context;
}

EXPORT int ibv_close_device(struct ibv_context *c)
{
    char link[160];

    (void)c;
    for (int i = 0; i < NGID; i++) {
        stand_gid_link(&stand_gids[i], link, sizeof link);
        unlink(link);
    }
    unlink(stand_self);
    return 0;
}

EXPORT int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
    (void)c;
    *a = (struct ibv_device_attr){.max_mr_size = 1ull << 40,
                                  .page_size_cap = 0xfffff000,
                                  .max_qp = MAX_QPN,
                                  .max_qp_wr = 16384,
                                  .max_sge = MAX_SGE,
                                  .max_cq = 65536,
                                  .max_cqe = 1 << 20,
                                  .max_mr = 65536,
                                  .max_pd = 65536,
                                  .max_qp_rd_atom = 16,
                                  .max_qp_init_rd_atom = 16,
                                  .max_ah = 65536,
                                  .max_srq = 65536,
                                  .max_srq_wr = 16384,
                                  .max_srq_sge = MAX_SGE,
                                  .phys_port_cnt = 1,
                                  .max_pkeys = 1,
                                  .atomic_cap = IBV_ATOMIC_HCA};
    return 0;
}

EXPORT int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    struct ibv_port_attr *a = (struct ibv_port_attr *)attr;

    (void)c;
    (void)port;
    a->state = IBV_PORT_ACTIVE;
    a->max_mtu = IBV_MTU_4096;
    a->active_mtu = IBV_MTU_1024;
    a->gid_tbl_len = NGID + 1;
    a->max_msg_sz = 1u << 31;
    a->pkey_tbl_len = 1;
    a->active_width = 2;
    a->active_speed = 16;
    a->phys_state = 5;
    a->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *c, uint8_t port, int i, union ibv_gid *gid)
{
    (void)c;
    (void)port;
    if (i < 0 || i > NGID)
        return -1;
    pthread_mutex_lock(&stand_lock);
    if (i == 0)
        memset(gid, 0xee, sizeof *gid); /* a GID of nobody: QEMU treats index 0 as an error */
    else
        *gid = stand_gids[i - 1];
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status s)
{
    static __thread char text[24];

    snprintf(text, sizeof text, "status %d", s);
    return text;
}

/* -- memory ------------------------------------------------------------------------------------ */

void *stand_translate(const struct lookup *how, uint64_t addr, uint64_t len, bool *bad)
{
    for (struct mr *m = regions; m; m = m->next) {
        uint64_t base = how->remote ? m->guest : m->iova;

        if (m->v.pd != how->pd || (!how->any_key && m->v.lkey != how->key))
            continue;
        if (addr >= base && addr + len <= base + m->v.length &&
            (m->access & how->need) == how->need)
            return (char *)m->v.addr + (addr - base);
        if (!how->any_key)
            break;
    }
    if (len)
        *bad = true;
    return NULL;
}

bool stand_translate_list(struct ibv_pd *pd, const struct ibv_sge *sge, int n, int need,
                          struct segment *out, uint32_t *total)
{
    struct lookup how = {.pd = pd, .need = need};
    bool bad = false;

    *total = 0;
    for (int i = 0; i < n; i++) {
        how.key = sge[i].lkey;
        out[i].p = stand_translate(&how, sge[i].addr, sge[i].length, &bad);
        out[i].len = sge[i].length;
        *total += sge[i].length;
    }
    return bad;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
    struct ibv_pd *pd = stand_alloc(sizeof *pd);

    pd->context = c;
    return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                       unsigned access)
{
    static uint32_t serial = 1;
    struct mr *m = stand_alloc(sizeof *m);

    m->v = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = len};
    m->iova = iova;
    m->guest = stand_guest_start ? stand_guest_start : iova;
    m->access = access;
    pthread_mutex_lock(&stand_lock);
    stand_last_key = m->v.lkey = m->v.rkey = (serial++ & 0xffffff) << 8 | 0x5a;
    m->next = regions;
    regions = m;
    pthread_mutex_unlock(&stand_lock);
    stand_say("region key %x iova %llx guest %llx length %zu access %x", m->v.lkey,
              (unsigned long long)iova, (unsigned long long)m->guest, len, access);
    return &m->v;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr, access);
}

/* A late response must not be written into memory that is no longer registered. */
static void forget_answers(const struct ibv_mr *v)
{
    const char *start = v->addr;

    for (int i = 0; i < MAX_QPN; i++) {
        if (!stand_qps[i])
            continue;
        for (struct send_request *w = stand_qps[i]->pending; w; w = w->next)
            for (int j = 0; j < w->n; j++)
                if ((char *)w->segments[j].p >= start &&
                    (char *)w->segments[j].p < start + v->length)
                    w->n = 0;
    }
}

EXPORT int ibv_dereg_mr(struct ibv_mr *v)
{
    pthread_mutex_lock(&stand_lock);
    for (struct mr **link = &regions; *link; link = &(*link)->next) {
        if (&(*link)->v != v)
            continue;
        *link = (*link)->next;
        forget_answers(v);
        free(v);
        break;
    }
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

/* -- completion queues ------------------------------------------------------------------------- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
    stand_channel.context = c;
    stand_channel.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    return &stand_channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
    close(c->fd);
    return 0;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector)
{
    struct cq *cq = stand_alloc(sizeof *cq);

    (void)vector;
    cq->v.context = c;
    cq->v.channel = channel;
    cq->v.cq_context = cq_context;
    cq->v.cqe = cqe;
    cq->tail = &cq->head;
    return &cq->v;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *v)
{
    pthread_mutex_lock(&stand_lock);
    ((struct cq *)v)->dead = true;
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

/* QEMU's event thread must take the big lock before QEMU's resource lock. QEMU's own order (resource lock, then the big
 * lock in msix_notify) deadlocks with a virtual CPU that polls. So this function takes the big lock, and the
 * acknowledgement of the event releases it. */
EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    struct cq *first;
    uint64_t x;

    if (read(channel->fd, &x, sizeof x) != sizeof x)
        return -1;
    if (stand_bql_lock && !stand_bql_held())
        stand_bql_lock(__FILE__, __LINE__);
    pthread_mutex_lock(&stand_lock);
    first = stand_event_head;
    stand_event_head = first->event_next;
    if (!stand_event_head)
        stand_event_tail = &stand_event_head;
    first->event_queued = false;
    *cq = &first->v;
    *cq_context = first->v.cq_context;
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
    (void)cq;
    (void)n;
    if (stand_bql_unlock && stand_bql_held())
        stand_bql_unlock();
}

/* -- queue pairs ------------------------------------------------------------------------------- */

static void drop_completions(struct cq *cq, uint32_t qpn)
{
    struct cqe **link = &cq->head, *e;

    while ((e = *link)) {
        if (e->wc.qp_num == qpn) {
            *link = e->next;
            free(e);
        } else {
            link = &e->next;
        }
    }
    cq->tail = link;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *v)
{
    struct qp *q = (struct qp *)v;

    pthread_mutex_lock(&stand_lock);
    drop_completions((struct cq *)v->send_cq, v->qp_num);
    drop_completions((struct cq *)v->recv_cq, v->qp_num);
    stand_free_queues(q);
    stand_qps[v->qp_num] = NULL;
    pthread_mutex_unlock(&stand_lock);
    free(q);
    return 0;
}

/* Numbers are reused as late as possible, so that a late message does not reach the next queue pair. Returns 0 if no
 * number is free. Locked. */
static uint32_t free_qpn(void)
{
    static uint32_t next = FIRST_QPN;

    for (int i = 0; i < MAX_QPN; i++) {
        uint32_t n = next;

        next = n + 1 < MAX_QPN ? n + 1 : FIRST_QPN;
        if (!stand_qps[n])
            return n;
    }
    return 0;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
    struct qp *q = stand_alloc(sizeof *q);
    uint32_t n;

    pthread_mutex_lock(&stand_lock);
    n = free_qpn();
    if (n) {
        stand_qps[n] = q;
        q->v = (struct ibv_qp){.context = pd->context,
                               .pd = pd,
                               .send_cq = a->send_cq,
                               .recv_cq = a->recv_cq,
                               .srq = a->srq,
                               .qp_num = n,
                               .qp_type = a->qp_type};
        q->srq = (struct srq *)a->srq;
        q->recvs.tail = &q->recvs.head;
        q->pending_tail = &q->pending;
        q->in_tail = &q->in;
        q->state = IBV_QPS_RESET;
    }
    pthread_mutex_unlock(&stand_lock);
    if (!n) {
        free(q);
        errno = ENOMEM;
        return NULL;
    }
    stand_say("queue pair %u type %d", n, a->qp_type);
    return &q->v;
}

EXPORT int ibv_modify_qp(struct ibv_qp *v, struct ibv_qp_attr *a, int mask)
{
    struct qp *q = (struct qp *)v;

    pthread_mutex_lock(&stand_lock);
    if (mask & IBV_QP_QKEY)
        q->qkey = a->qkey;
    if (mask & IBV_QP_AV)
        q->dgid = a->ah_attr.grh.dgid;
    if (mask & IBV_QP_DEST_QPN)
        q->dest_qpn = a->dest_qp_num;
    if (mask & IBV_QP_PATH_MTU)
        q->attr.path_mtu = a->path_mtu;
    if (mask & IBV_QP_RQ_PSN)
        q->attr.rq_psn = a->rq_psn;
    if (mask & IBV_QP_SQ_PSN)
        q->attr.sq_psn = a->sq_psn;
    if (mask & IBV_QP_STATE) {
        if (a->qp_state == IBV_QPS_ERR)
            stand_flush(q);
        q->state = v->state = a->qp_state;
        stand_progress(q);
    }
    pthread_mutex_unlock(&stand_lock);
    return 0;
}

/* QEMU passes its own, shorter structures, so only the common head of attr may be written. */
EXPORT int ibv_query_qp(struct ibv_qp *v, struct ibv_qp_attr *a, int mask,
                        struct ibv_qp_init_attr *init)
{
    struct qp *q = (struct qp *)v;

    (void)mask;
    (void)init;
    a->qp_state = a->cur_qp_state = q->state;
    a->path_mtu = q->attr.path_mtu;
    a->path_mig_state = 0;
    a->qkey = q->qkey;
    a->rq_psn = q->attr.rq_psn;
    a->sq_psn = q->attr.sq_psn;
    a->dest_qp_num = q->dest_qpn;
    a->qp_access_flags = 7;
    return 0;
}

/* -- shared receive queues and address handles ------------------------------------------------- */

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
    static uint32_t handle;
    struct srq *s = stand_alloc(sizeof *s);

    s->v.context = pd->context;
    s->v.pd = pd;
    s->v.handle = handle++;
    s->attr = a->attr;
    s->queue.tail = &s->queue.head;
    return &s->v;
}

EXPORT int ibv_query_srq(struct ibv_srq *v, struct ibv_srq_attr *a)
{
    *a = ((struct srq *)v)->attr;
    return 0;
}

EXPORT int ibv_modify_srq(struct ibv_srq *v, struct ibv_srq_attr *a, int mask)
{
    if (mask & IBV_SRQ_LIMIT)
        ((struct srq *)v)->attr.srq_limit = a->srq_limit;
    return 0;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *v)
{
    free(v);
    return 0;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
    struct ah *h = stand_alloc(sizeof *h);

    h->v.context = pd->context;
    h->v.pd = pd;
    h->attr = *a;
    return &h->v;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *h)
{
    free(h);
    return 0;
}
