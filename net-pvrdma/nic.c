/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "net-pvrdma/nic.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/poller.h"

enum { MAX_PORTS = 256 };

struct pvn_rdma_nic {
    const struct pvn_verbs *v;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    char name[64];
    struct pvn_memcache *cache;
    uint64_t max_mr; /* bytes of one region */
    struct pvn_rdma_ordering *ordering;
    /* the state that the device's events have reported */
    pthread_mutex_t lock; /* held while events are read */
    struct pvn_watch *watch;
    _Atomic int fatal; /* event that ended the device, plus one; 0: none */
    _Atomic int down;  /* number of ports that are down */
    _Atomic uint64_t down_since[MAX_PORTS];
    _Atomic uint64_t
        gids_changed[MAX_PORTS]; /* time of the last change of the GID table; 0: none */
};

static int nic_cache_reg(void *arg, int dev, uintptr_t addr, size_t len,
                         const struct pvn_mem_kind *kind, const void *extra, void **handle,
                         struct pvn_err *err)
{
    struct pvn_rdma_nic *n = arg;
    struct ibv_mr *mr =
        pvn_rdma_reg_mr(n->ordering, n->v, n->pd, (void *)addr, len, (int)kind->access);
    if (!mr) {
        int e = errno ? errno : EIO;
        pvn_err_set(err, -e, "%s: the device refused to register %zu bytes", n->name, len);
        pvn_err_set_hint(err, pvn_hint_id_find(PVN_HINT_ERRNO, e, PVN_PHASE_REG, PVN_PAST_ANY));
        return -e;
    }
    *handle = mr;
    return 0;
}

static void nic_cache_dereg(void *arg, int dev, void *handle)
{
    struct pvn_rdma_nic *n = arg;
    n->v->dereg_mr(handle);
}

static const struct pvn_memcache_ops cache_ops = {.reg = nic_cache_reg, .dereg = nic_cache_dereg};

static int watch_events(struct pvn_rdma_nic *n)
{
    int flags = fcntl(n->ctx->async_fd, F_GETFL);
    if (flags < 0 || fcntl(n->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    n->watch = pvn_poller_add(n->ctx->async_fd);
    return n->watch ? 0 : -errno;
}

struct pvn_rdma_nic *pvn_rdma_nic_new(const struct pvn_verbs *v, struct ibv_context *ctx,
                                      struct ibv_pd *pd, const char *name, uint64_t max_mr,
                                      struct pvn_rdma_ordering *ordering, struct pvn_err *err)
{
    struct pvn_rdma_nic *n = calloc(1, sizeof(*n));
    if (n)
        n->cache = pvn_memcache_new(&cache_ops, n, (size_t)sysconf(_SC_PAGESIZE));
    if (!n || !n->cache) {
        free(n);
        pvn_err_set(err, -ENOMEM, "%s: no memory for the registration cache", name);
        return NULL;
    }
    n->v = v;
    n->ctx = ctx;
    n->pd = pd;
    n->max_mr = max_mr;
    n->ordering = ordering;
    pvn_str_append(n->name, sizeof(n->name), "%s", name);
    pthread_mutex_init(&n->lock, NULL);
    if (watch_events(n) < 0)
        pvn_info(PVN_NET, "%s: its events cannot be watched, errors will show as failed requests",
                 n->name);
    return n;
}

void pvn_rdma_nic_free(struct pvn_rdma_nic *n)
{
    if (!n)
        return;
    pvn_poller_remove(n->watch);
    size_t left = pvn_memcache_free(n->cache);
    if (left)
        pvn_info(PVN_NET, "%s: %zu registrations were never given back", n->name, left);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

/* ---- memory ---- */

/* The longest range that goes into one region. The cache may round it up by a page at each end. */
static uint64_t piece_limit(const struct pvn_rdma_nic *n)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return n->max_mr == UINT64_MAX ? UINT64_MAX : (n->max_mr - 2 * page) & ~(page - 1);
}

static uint64_t part_len(const struct pvn_rdma_nic *n, const struct pvn_rdma_mem *mem, unsigned i)
{
    uint64_t left = mem->len - i * mem->stride, limit = piece_limit(n);
    return left < limit ? left : limit;
}

static void mem_free(struct pvn_rdma_nic *n, struct pvn_rdma_mem *mem, unsigned count)
{
    while (count-- > 0)
        pvn_memcache_put(n->cache, mem->part[count].owner, mem->addr + count * mem->stride,
                         part_len(n, mem, count));
    free(mem);
}

static int nic_reg(void *arg, const struct pvn_mr *mr, bool relaxed, int dmabuf_fd,
                   uint64_t dmabuf_offset, struct pvn_rdma_mem **out, struct pvn_err *err)
{
    struct pvn_rdma_nic *n = arg;
    if (dmabuf_fd >= 0)
        return pvn_err_set(err, -EOPNOTSUPP, "%s takes no dma-buf memory", n->name);
    struct pvn_mem_kind kind = {.ptr_type = mr->ptr_type,
                                .access = (unsigned)pvn_rdma_ordering_access(n->ordering, relaxed)};
    uint64_t limit = piece_limit(n);
    uint64_t stride = limit == UINT64_MAX ? mr->len : limit / 2;
    unsigned count = mr->len <= limit ? 1 : (unsigned)((mr->len - limit + stride - 1) / stride) + 1;
    struct pvn_rdma_mem *mem = calloc(1, sizeof(*mem) + count * sizeof(mem->part[0]));
    if (!mem)
        return pvn_err_set(err, -ENOMEM, "no memory for a registration");
    mem->addr = (uintptr_t)mr->addr;
    mem->stride = stride;
    mem->len = mr->len;
    mem->count = count;
    for (unsigned i = 0; i < count; i++) {
        struct pvn_mem *m = NULL;
        int rc = pvn_memcache_get(n->cache, mem->addr + i * stride, part_len(n, mem, i), &kind, 1,
                                  NULL, &m, err);
        if (rc < 0) {
            mem_free(n, mem, i);
            return rc;
        }
        mem->part[i].mr = m->handle[0];
        mem->part[i].owner = m;
    }
    *out = mem;
    return 0;
}

static void nic_dereg(void *arg, struct pvn_rdma_mem *mem)
{
    mem_free(arg, mem, mem->count);
}

void pvn_rdma_nic_registrar(struct pvn_rdma_nic *n, struct pvn_rdma_registrar *out)
{
    *out = (struct pvn_rdma_registrar){.reg = nic_reg, .dereg = nic_dereg, .arg = n};
}

/* ---- state ---- */

/* down_since: 0 if the port is up. */
static void port_event(struct pvn_rdma_nic *n, int port, uint64_t down_since)
{
    if (port < 0 || port >= MAX_PORTS)
        return;
    uint64_t was = atomic_load(&n->down_since[port]);
    if (down_since && was == 0) {
        atomic_store(&n->down_since[port], down_since);
        atomic_fetch_add(&n->down, 1);
    } else if (!down_since && was != 0) {
        atomic_store(&n->down_since[port], 0);
        atomic_fetch_sub(&n->down, 1);
    }
}

void pvn_rdma_nic_port_is_down(struct pvn_rdma_nic *n, int port)
{
    port_event(n, port, pvn_now_ns() - PVN_RDMA_GRACE_NS);
}

static void note_lost(void *context, int what)
{
    if (context)
        atomic_fetch_or((atomic_int *)context, what);
}

static void take_event(struct pvn_rdma_nic *n, const struct ibv_async_event *ev)
{
    const char *name = n->v->event_type_str(ev->event_type);
    switch (ev->event_type) {
    case IBV_EVENT_CQ_ERR:
        /* Only the lane that owns the queue fails. The queue, and so its context, lives until the event is
         * acknowledged. */
        pvn_warn("%s: the device reports %s", n->name, name);
        if (ev->element.cq)
            note_lost(ev->element.cq->cq_context, PVN_RDMA_LOST_CQ);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        pvn_warn("%s: the device reports %s", n->name, name);
        atomic_store(&n->fatal, (int)ev->event_type + 1);
        break;
    case IBV_EVENT_PORT_ERR:
        pvn_warn("%s port %d went down", n->name, ev->element.port_num);
        port_event(n, ev->element.port_num, pvn_now_ns());
        break;
    case IBV_EVENT_PORT_ACTIVE:
        pvn_info(PVN_NET, "%s port %d is up again", n->name, ev->element.port_num);
        port_event(n, ev->element.port_num, 0);
        break;
    case IBV_EVENT_GID_CHANGE:
        /* Stored before the log is written, so that meanwhile no lane uses rows that were read before the
         * change. */
        if (ev->element.port_num >= 0 && ev->element.port_num < MAX_PORTS)
            atomic_store(&n->gids_changed[ev->element.port_num], pvn_now_ns());
        pvn_info(PVN_NET, "%s port %d: its table of GIDs has changed", n->name,
                 ev->element.port_num);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        pvn_warn("%s: %s on QPN 0x%x", n->name, name, ev->element.qp ? ev->element.qp->qp_num : 0);
        /* The queue pair may have no requests that fail, and its peer would retry for long. The others refuse a
         * request of the peer, which learns of that at once and knows best what was wrong. */
        if (ev->event_type == IBV_EVENT_QP_FATAL && ev->element.qp)
            note_lost(ev->element.qp->qp_context, PVN_RDMA_LOST_QP);
        break;
    default:
        pvn_info(PVN_NET, "%s: event %s", n->name, name);
    }
}

static void read_events(struct pvn_rdma_nic *n)
{
    struct ibv_async_event ev;
    if (pthread_mutex_trylock(&n->lock) != 0)
        return; /* another thread reads them */
    if (pvn_poller_ready(n->watch)) {
        while (n->v->get_async_event(n->ctx, &ev) == 0) {
            take_event(n, &ev);
            n->v->ack_async_event(&ev);
        }
        if (errno != EAGAIN && errno != EINTR)
            atomic_store(&n->fatal, (int)IBV_EVENT_DEVICE_FATAL + 1);
        else
            pvn_poller_arm(n->watch);
    }
    pthread_mutex_unlock(&n->lock);
}

int pvn_rdma_nic_health(struct pvn_rdma_nic *n, int port, uint64_t grace_ns, struct pvn_err *err)
{
    if (n->watch && pvn_poller_ready(n->watch))
        read_events(n);
    int fatal = atomic_load_explicit(&n->fatal, memory_order_relaxed);
    if (fatal) {
        pvn_err_set(err, -ENODEV, "%s has failed: the device reported %s", n->name,
                    n->v->event_type_str((enum ibv_event_type)(fatal - 1)));
        pvn_err_set_fault(err, PVN_FAULT_SYSTEM);
        return -ENODEV;
    }
    if (atomic_load_explicit(&n->down, memory_order_relaxed) == 0)
        return 0;
    uint64_t since = atomic_load(&n->down_since[port]);
    uint64_t now = pvn_now_ns();
    if (since == 0 || now - since < grace_ns)
        return 0;
    pvn_err_set(err, -ENETDOWN, "%s port %d has been down for %.1f s", n->name, port,
                (double)(now - since) / 1e9);
    pvn_err_set_fault(err, PVN_FAULT_SYSTEM);
    return -ENETDOWN;
}

const _Atomic uint64_t *pvn_rdma_nic_gids_changed(const struct pvn_rdma_nic *n, int port)
{
    return &n->gids_changed[port];
}
