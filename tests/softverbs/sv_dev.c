/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, ports, GID tables and asynchronous events */
#include "sv_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sv_ctx *sv_ctx_of(struct ibv_context *ctx)
{
    return (struct sv_ctx *)((char *)ctx - offsetof(struct sv_ctx, v.context));
}

int sv_ctx_check_data(struct sv_ctx *c)
{
    sv_take(c, SV_TAKE_NOTHING, NULL);
    return sv_inherited(c) ? EINVAL : sv_ctx_is_dead(c) || c->taken ? EIO : 0;
}

int sv_ctx_check(struct sv_ctx *c)
{
    int err = sv_ctx_check_data(c);
    return !err && c->leaving ? EIO : err;
}

/* A child starts again with devices of its own. sv_fork.c has the effects of its calls on
 * inherited objects. */
static void fork_child(void)
{
    pthread_cond_init(&sv.acked, NULL);
    pthread_cond_init(&sv.released, NULL);
    sv.blocked = 0;
    sv.ready = false;
    sv.service_waits = false; /* that thread is not here */
    sv.ctxs = NULL;
    sv.pds = NULL;
    sv.cqs = NULL;
    memset(sv.qp, 0, sizeof sv.qp);
    sv.qp_count = 0;
    sv.mr = NULL;
    sv.mr_cap = sv.mr_next = sv.mr_count = 0;
    sv.pinned = 0;
    sv_link_forked();
    sv_shared_forked();
    pthread_mutex_unlock(&sv.lock); /* held by the forking thread, of which this one is the copy */
    sv_life_unlock();
}

static void fork_prepare(void)
{
    sv_life_lock();
    pthread_mutex_lock(&sv.lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&sv.lock);
    sv_life_unlock();
}

__attribute__((constructor)) static void sv_load(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

bool sv_gid_v4(const union ibv_gid *gid)
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return !memcmp(gid->raw, prefix, sizeof prefix);
}

static void default_gids(struct sv_dev *d, unsigned int port)
{
    union ibv_gid addr[2] = {{{0}}};
    bool have[2] = {sv.p.link_local != 0, sv.p.ipv4 != 0};
    uint8_t rail = (uint8_t)(d->index * SV_PORT_MAX + port);
    uint8_t host = (uint8_t)sv.p.host;
    memcpy(addr[0].raw,
           (uint8_t[16]){0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, host, 0xff, 0xfe, 0, rail, host},
           16);
    if (!sv.p.ethernet) /* InfiniBand: the subnet prefix and the port's GUID */
        addr[0].raw[11] = addr[0].raw[12] = 0;
    memcpy(
        addr[1].raw,
        (uint8_t[16]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, (uint8_t)(100 + rail), 0, host},
        16);
    struct sv_gid *g = d->port[port].gid;
    for (int a = 0; a < 2; a++) {
        for (uint32_t type = 0; have[a] && type <= 2; type++) {
            if ((type == 0 && sv.p.ethernet) || (type == 1 && !(sv.p.gid_v1 && sv.p.ethernet)) ||
                (type == 2 && !(sv.p.gid_v2 && sv.p.ethernet)))
                continue;
            g->gid = addr[a];
            g->type = type;
            g->valid = true;
            if (sv.p.ethernet)
                snprintf(g->ndev, sizeof g->ndev, "sveth%u", rail);
            g++;
        }
    }
}

void sv_devices_build(void)
{
    char root[sizeof sv.sysfs];
    strcpy(root, sv.sysfs[0] ? sv.sysfs : "/sys");
    memset(sv.dev, 0, sizeof sv.dev);
    for (unsigned int i = 0; i < (unsigned int)sv.p.devices; i++) {
        struct sv_dev *d = &sv.dev[i];
        d->index = i;
        d->ibv.node_type = sv.p.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
        d->ibv.transport_type = sv.p.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
        char name[IBV_SYSFS_NAME_MAX];
        snprintf(name, sizeof name, "%s%u", sv.p.dev_name, i);
        strcpy(d->ibv.name, name);
        snprintf(d->ibv.dev_name, sizeof d->ibv.dev_name, "uverbs%u", i);
        snprintf(d->ibv.dev_path, sizeof d->ibv.dev_path, "%s/class/infiniband_verbs/uverbs%u",
                 root, i);
        snprintf(d->ibv.ibdev_path, sizeof d->ibv.ibdev_path, "%s/class/infiniband/%s", root, name);
        for (unsigned int p = 0; p < (unsigned int)sv.p.ports; p++) {
            d->port[p].state = IBV_PORT_ACTIVE;
            default_gids(d, p);
        }
    }
}

struct sv_dev *sv_dev_by_name(const char *name)
{
    for (long i = 0; i < sv.p.devices; i++)
        if (!strcmp(sv.dev[i].ibv.name, name) || !strcmp(name, "*"))
            return &sv.dev[i];
    return NULL;
}

/* ---- events ---- */

void sv_raise(struct sv_ctx *ctx, enum ibv_event_type type, void *element, int port)
{
    struct sv_event e = {.ev = {.event_type = type}};
    if (type == IBV_EVENT_CQ_ERR)
        e.ev.element.cq = element;
    else if (element)
        e.ev.element.qp = element;
    else
        e.ev.element.port_num = port;
    sv_queue_put(&ctx->async, &e);
}

void sv_raise_dev(struct sv_dev *dev, enum ibv_event_type type, int port)
{
    for (struct sv_ctx *c = sv.ctxs; c; c = c->next)
        if (c->dev == dev)
            sv_raise(c, type, NULL, port);
}

void sv_port_set(struct sv_dev *dev, int port, bool up)
{
    struct sv_port *p = &dev->port[port - 1];
    enum ibv_port_state to = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    if (p->state == to)
        return;
    p->state = to;
    sv_raise_dev(dev, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, port);
    sv_sysfs_refresh(NULL, 0, 0);
}

void sv_gid_set(struct sv_dev *dev, int port, int index, const struct sv_gid *gid)
{
    dev->port[port - 1].gid[index] = *gid;
    sv_raise_dev(dev, IBV_EVENT_GID_CHANGE, port);
    sv_sysfs_refresh(dev, port, index);
}

/* The worst failure of a device: it raises one event, and never completes anything again. gone:
 * the kernel also removes the device, and has destroyed the objects of its contexts. */
void sv_dev_fatal(struct sv_dev *dev, bool gone)
{
    for (struct sv_ctx *c = sv.ctxs; c; c = c->next)
        c->gone |= c->dev == dev && gone;
    if (dev->fatal)
        return;
    dev->fatal = true;
    sv_raise_dev(dev, IBV_EVENT_DEVICE_FATAL, 0);
}

static void lose_memory(const struct sv_ctx *c)
{
    uint64_t newest = 0;
    for (unsigned int i = 0; i < SV_QP_MAX; i++)
        if (sv.qp[i] && sv_ctx_of(sv.qp[i]->ibv.context) == c && sv.qp[i]->born > newest)
            newest = sv.qp[i]->born;
    for (unsigned int i = 0; i < sv.mr_cap; i++)
        if (sv.mr[i] && sv_ctx_of(sv.mr[i]->ibv.context) == c)
            sv.mr[i]->lost |= sv.mr[i]->born > newest;
}

/* The device's driver is unbound or reset. The kernel destroys each context's objects from the
 * newest to the oldest (__uverbs_cleanup_ufile in drivers/infiniband/core/rdma_core.c). Meanwhile
 * it refuses the context's calls. It reports the removal last, by the file of events. Here the
 * removal takes `ns` from the newest queue pair on. */
void sv_dev_remove(struct sv_dev *dev, uint64_t ns)
{
    if (dev->fatal)
        return;
    for (struct sv_ctx *c = sv.ctxs; c; c = c->next)
        if (c->dev == dev) {
            c->leaving = true;
            lose_memory(c);
        }
    dev->gone_at = sv_now() + ns;
    sv_wake(dev->gone_at);
}

uint64_t sv_dev_timers(uint64_t now)
{
    uint64_t next = 0;
    for (long i = 0; i < sv.p.devices; i++) {
        struct sv_dev *d = &sv.dev[i];
        if (d->gone_at && d->gone_at <= now) {
            d->gone_at = 0;
            sv_dev_fatal(d, true);
        } else if (d->gone_at && (!next || d->gone_at < next)) {
            next = d->gone_at;
        }
    }
    return next;
}

void sv_dev_renew(struct sv_dev *dev, bool other)
{
    if (dev->gone_at)
        sv_dev_fatal(dev, true);
    dev->gone_at = 0;
    for (struct sv_ctx *c = sv.ctxs; c; c = c->next)
        c->dead |= c->dev == dev && dev->fatal;
    dev->fatal = false;
    dev->other |= other;
}

bool sv_ctx_is_dead(const struct sv_ctx *c)
{
    return c->dead || c->dev->fatal;
}

SV_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct sv_ctx *ctx = sv_ctx_of(context);
    for (;;) {
        uint64_t v;
        if (read(ctx->async.fd, &v, sizeof v) != sizeof v)
            return -1;
        sv_lock();
        struct sv_event *e = ctx->async.head;
        if (e) {
            ctx->async.head = e->next;
            if (!e->next)
                ctx->async.tail = &ctx->async.head;
            *event = e->ev;
            free(e);
            if (event->event_type == IBV_EVENT_CQ_ERR)
                ((struct sv_cq *)event->element.cq)->async_given++;
            else if (event->event_type <= IBV_EVENT_PATH_MIG_ERR)
                ((struct sv_qp *)event->element.qp)->events_given++;
        }
        sv_unlock();
        if (e)
            return 0;
    }
}

SV_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    sv_lock();
    if (event->event_type == IBV_EVENT_CQ_ERR)
        event->element.cq->async_events_completed++;
    else if (event->event_type <= IBV_EVENT_PATH_MIG_ERR)
        event->element.qp->events_completed++;
    pthread_cond_broadcast(&sv.acked);
    sv_unlock();
}

/* ---- devices ---- */

SV_EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
    sv_lock();
    struct ibv_device **list = NULL;
    int err = sv_fault_call("get_device_list", NULL, NULL);
    if (!err && !(list = calloc((size_t)sv.p.devices + 1, sizeof *list)))
        err = ENOMEM;
    for (long i = 0; list && i < sv.p.devices; i++)
        list[i] = &sv.dev[i].ibv;
    if (num)
        *num = list ? (int)sv.p.devices : 0;
    sv_unlock();
    if (err)
        errno = err;
    return list;
}

SV_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

SV_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

SV_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    return (int)((struct sv_dev *)device)->index + 1;
}

SV_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
    struct sv_dev *d = (struct sv_dev *)device;
    uint8_t b[8] = {0x50, 0x54, (uint8_t)sv.p.host, 0, 0, 0, (uint8_t)d->index, d->other ? 2 : 1};
    __be64 guid;
    memcpy(&guid, b, sizeof guid);
    return guid;
}

static void fill_device(struct sv_ctx *c, struct ibv_device_attr *a)
{
    const struct sv_profile *p = &sv.p;
    memset(a, 0, sizeof *a);
    snprintf(a->fw_ver, sizeof a->fw_ver, "%s", p->fw_ver);
    a->node_guid = a->sys_image_guid = ibv_get_device_guid(&c->dev->ibv);
    a->max_mr_size = (uint64_t)p->max_mr_size;
    a->page_size_cap = 0xfffff000;
    a->vendor_id = (uint32_t)p->vendor_id;
    a->vendor_part_id = (uint32_t)p->part_id;
    a->max_qp = (int)p->max_qp;
    a->max_qp_wr = (int)p->max_qp_wr;
    a->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_RC_RNR_NAK_GEN;
    a->max_sge = a->max_sge_rd = (int)p->max_sge;
    a->max_cq = (int)p->max_cq;
    a->max_cqe = (int)p->max_cqe;
    a->max_mr = (int)p->max_mr;
    a->max_pd = (int)p->max_pd;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = (int)p->rd_atom;
    a->atomic_cap = p->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
    a->max_pkeys = 1;
    a->phys_port_cnt = (uint8_t)p->ports;
}

SV_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    int rc = sv_ctx_is_dead(c) || c->leaving ? EIO : sv_fault_call("query_device", c->dev, NULL);
    if (!rc)
        fill_device(c, attr);
    sv_unlock();
    return rc;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    memset(attr, 0, size);
    attr->phys_port_cnt_ex = (uint32_t)sv.p.ports;
    return ibv_query_device(context, &attr->orig_attr);
}

enum { SPEED_NDR = 128 };

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *out,
                      size_t size)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    const struct sv_profile *p = &sv.p;
    int rc = sv_ctx_is_dead(c) || c->leaving ? EIO : sv_fault_call("query_port", c->dev, NULL);
    if (!rc && (port < 1 || port > p->ports))
        rc = EINVAL;
    if (!rc) {
        struct ibv_port_attr a = {
            .state = c->dev->port[port - 1].state,
            .max_mtu = IBV_MTU_4096,
            .active_mtu = (enum ibv_mtu)p->mtu,
            .gid_tbl_len = (int)p->gid_tbl_len,
            .port_cap_flags = 0x04010000,
            .max_msg_sz = (uint32_t)p->max_msg_sz,
            .pkey_tbl_len = 1,
            .lid = p->ethernet ? 0 : (uint16_t)(p->host * 64 + c->dev->index * SV_PORT_MAX + port),
            .active_width = (uint8_t)p->width,
            /* The kernel does not report faster speeds here. */
            .active_speed = (uint8_t)(p->speed > SPEED_NDR ? SPEED_NDR : p->speed),
            .link_layer = p->no_link_layer ? IBV_LINK_LAYER_UNSPECIFIED
                          : p->ethernet    ? IBV_LINK_LAYER_ETHERNET
                                           : IBV_LINK_LAYER_INFINIBAND,
            .flags = p->grh_required ? IBV_QPF_GRH_REQUIRED : 0,
        };
        a.phys_state = a.state == IBV_PORT_ACTIVE ? 5 : 3;
        memset(out, 0, size);
        memcpy(out, &a, size < sizeof a ? size : sizeof a);
    }
    sv_unlock();
    return rc;
}

/* The entry of programs that were built against an old rdma-core, whose struct ended before
 * link_layer's flags */
SV_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                             struct _compat_ibv_port_attr *attr)
{
    return query_port(context, port, (struct ibv_port_attr *)attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

SV_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    if (port < 1 || port > sv.p.ports || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htons(0xffff);
    return 0;
}

SV_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    return port >= 1 && port <= sv.p.ports && pkey == htons(0xffff) ? 0 : -1;
}

/* ---- GID tables ---- */

/* A free row within the table reads as zeros by ibv_query_gid, and as ENODATA by the newer calls
 * (rdma-core 44, libibverbs/verbs.c and cmd_device.c). */
SV_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                            union ibv_gid *gid)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    int rc = sv_fault_call("query_gid", c->dev, NULL);
    if (!rc && (port < 1 || port > sv.p.ports || index < 0 || index >= sv.p.gid_tbl_len))
        rc = EINVAL;
    if (!rc) {
        const struct sv_gid *g = &c->dev->port[port - 1].gid[index];
        memset(gid, 0, sizeof *gid);
        if (g->valid)
            *gid = g->gid;
    }
    sv_unlock();
    if (!rc)
        return 0;
    errno = rc;
    return -1;
}

static void fill_entry(struct ibv_gid_entry *e, const struct sv_gid *g, uint32_t port,
                       uint32_t index)
{
    e->gid = g->gid;
    e->gid_index = index;
    e->port_num = port;
    e->gid_type = g->type;
    e->ndev_ifindex = g->ndev[0] ? if_nametoindex(g->ndev) : 0;
}

SV_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                                struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    int rc = sv_fault_call("query_gid_ex", c->dev, NULL);
    if (!rc && (flags || size < sizeof *entry || port < 1 || port > (uint32_t)sv.p.ports ||
                index >= (uint32_t)sv.p.gid_tbl_len))
        rc = EINVAL;
    if (!rc && !c->dev->port[port - 1].gid[index].valid)
        rc = ENODATA;
    if (!rc)
        fill_entry(entry, &c->dev->port[port - 1].gid[index], port, index);
    sv_unlock();
    return rc;
}

SV_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                       size_t max, uint32_t flags, size_t size)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(context);
    ssize_t n = 0;
    int rc = sv_fault_call("query_gid_table", c->dev, NULL);
    if (!rc && (flags || size < sizeof *entries))
        rc = EINVAL;
    for (uint32_t p = 1; !rc && p <= (uint32_t)sv.p.ports; p++) {
        for (uint32_t i = 0; i < (uint32_t)sv.p.gid_tbl_len; i++) {
            if (!c->dev->port[p - 1].gid[i].valid)
                continue;
            if ((size_t)n == max) {
                rc = EINVAL;
                break;
            }
            fill_entry((struct ibv_gid_entry *)((char *)entries + (size_t)n++ * size),
                       &c->dev->port[p - 1].gid[i], p, i);
        }
    }
    sv_unlock();
    return rc ? -rc : n;
}

/* The private call from before the table: 0 is InfiniBand or RoCE v1, 1 is RoCE v2. */
SV_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
                                 int *type);
SV_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
                                 int *type)
{
    struct ibv_gid_entry e;
    int rc = _ibv_query_gid_ex(context, port, index, &e, 0, sizeof e);
    if (rc) {
        errno = rc;
        return -1;
    }
    *type = e.gid_type == IBV_GID_TYPE_ROCE_V2;
    return 0;
}

/* ---- contexts ---- */

SV_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    sv_life_lock();
    sv_lock();
    struct sv_dev *d = (struct sv_dev *)device;
    struct sv_ctx *c = NULL;
    int err = sv_fault_call("open_device", d, NULL);
    if (!err && (d->fatal || d->gone_at))
        err = EIO;
    if (!err && (!(c = calloc(1, sizeof *c)) || !sv_queue_open(&c->async)))
        err = ENOMEM;
    if (!err && (err = sv_link_start()))
        sv_queue_close(&c->async);
    if (!err) {
        c->dev = d;
        c->shared = sv_shared_own();
        c->next = sv.ctxs;
        sv.ctxs = c;
        c->v.sz = sizeof c->v;
        c->v.query_port = query_port;
        c->v.query_device_ex = query_device_ex;
        struct ibv_context *x = &c->v.context;
        x->device = device;
        x->ops.post_send = sv_post_send;
        x->ops.post_recv = sv_post_recv;
        x->ops.poll_cq = sv_poll_cq;
        x->ops.req_notify_cq = sv_req_notify_cq;
        x->cmd_fd = -1;
        x->async_fd = c->async.fd;
        x->num_comp_vectors = (int)sv.p.comp_vectors;
        pthread_mutex_init(&x->mutex, NULL);
        x->abi_compat = __VERBS_ABI_IS_EXTENDED;
    } else {
        free(c);
    }
    sv_unlock();
    sv_life_unlock();
    if (!err)
        return &c->v.context;
    errno = err;
    return NULL;
}

/* Handles objects that are alive when their device is closed. The kernel removes them, and the
 * program's memory for them is lost. They are logged and counted, because a test of the plugin
 * may check that. */
static void abandon(struct sv_ctx *c)
{
    fprintf(stderr, "softverbs: %s closed with %u objects alive\n", c->dev->ibv.name, c->refs);
    sv.leaked += c->refs;
    for (unsigned int i = 0; i < SV_QP_MAX; i++)
        if (sv.qp[i] && sv_ctx_of(sv.qp[i]->ibv.context) == c) {
            if (c->gone) {
                sv.qp[i]->lost = sv.lost;
                sv.lost = sv.qp[i];
            }
            sv.qp[i] = NULL;
            sv.qp_count--;
        }
    for (unsigned int i = 0; i < sv.mr_cap; i++)
        if (sv.mr[i] && sv_ctx_of(sv.mr[i]->ibv.context) == c) {
            sv.mr[i] = NULL;
            sv.mr_count--;
        }
}

SV_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct sv_ctx *c = sv_ctx_of(context);
    sv_life_lock();
    sv_lock();
    bool clean = !c->refs, inherited = sv_inherited(c);
    sv_take(c, SV_TAKE_CTX, c);
    if (!clean && !inherited)
        abandon(c);
    struct sv_ctx **at = &sv.ctxs;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    sv_unlock();
    if (!inherited)
        sv_link_stop();
    sv_life_unlock();
    sv_queue_close(&c->async);
    pthread_mutex_destroy(&context->mutex);
    if (clean) /* else objects point to it */
        free(c);
    return 0;
}

SV_EXPORT int ibv_fork_init(void)
{
    sv_lock();
    int rc = sv_fault_call("fork_init", NULL, NULL);
    sv_unlock();
    return rc;
}

SV_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return sv.p.fork_safe ? IBV_FORK_UNNEEDED : IBV_FORK_DISABLED;
}

SV_EXPORT void sv_ctx_stats(struct ibv_context *ctx, struct sv_stats *out)
{
    sv_lock();
    *out = sv_ctx_of(ctx)->stats;
    sv_unlock();
}

SV_EXPORT void sv_total_stats(struct sv_stats *out)
{
    sv_lock();
    *out = sv.total;
    sv_unlock();
}
