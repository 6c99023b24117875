/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-pvrdma/rdma_adapter.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net-pvrdma/rdma_lane.h"

/* Pause between two attempts to open the adapter again, because every new connection may request one. */
#define AGAIN_NS PVN_NS_PER_S
/* Further lanes use a GID table that was read for this long: many lanes are created at the same time, and each reading asks
 * the kernel for the addresses of all interfaces. */
#define GIDS_NS (100 * PVN_NS_PER_MS)

/* A copy of a port's GID table. */
struct gid_table {
    uint8_t port;     /* 0: none */
    uint64_t read_ns; /* time of the copy */
    uint64_t changed; /* value of *gids_changed at the time of the copy */
    uint16_t lid;     /* the port's, then */
    enum ibv_mtu mtu;
    int n;
    struct pvn_gid_row row[PVN_RDMA_MAX_GIDS];
};

/* One context of the adapter, and the objects that depend on it. */
struct pvn_rdma_opened {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct pvn_rdma_nic *nic;
    struct pvn_rdma_gpu *gpu;
    int lanes;
    struct gid_table gids[2]; /* one for even ports, one for odd ports; under the adapter's lock */
};

struct pvn_rdma_adapter {
    const struct pvn_verbs *v;
    const struct pvn_hca_options *options;
    struct pvn_hca_table *table;
    int hca;
    struct pvn_rdma_gpu_cfg gpu; /* points to name, gpu_cap and ordering below */
    char name[IBV_SYSFS_NAME_MAX];
    struct pvn_gpumem_cap gpu_cap;
    struct pvn_rdma_ordering ordering;

    /* Protects the following members and the table's entries; not held while a device is opened or closed. */
    pthread_mutex_t lock;
    /* NULL: closed. The last lane of an earlier context closes that context. */
    struct pvn_rdma_opened *now;
    bool opening;      /* a thread is opening the adapter */
    uint64_t again_ns; /* the adapter is not opened again before this time */
};

static struct pvn_hca *entry(const struct pvn_rdma_adapter *a)
{
    return &a->table->hcas[a->hca];
}

/* Takes over the context of h. On failure returns NULL with *err, and the context stays the caller's. */
static struct pvn_rdma_opened *use_context(struct pvn_rdma_adapter *a, const struct pvn_hca *h,
                                           struct pvn_err *err)
{
    struct pvn_rdma_opened *o = calloc(1, sizeof(*o));
    if (!o) {
        pvn_err_set(err, -ENOMEM, "no memory for the RDMA device %s", h->name);
        return NULL;
    }
    o->ctx = h->ctx;
    o->pd = h->pd;
    o->nic = pvn_rdma_nic_new(a->v, h->ctx, h->pd, h->name, h->max_mr, &a->ordering, err);
    if (o->nic) {
        a->gpu.pd = h->pd;
        pvn_rdma_nic_registrar(o->nic, &a->gpu.host);
        o->gpu = pvn_rdma_gpu_open(&a->gpu, err);
    }
    if (o->gpu)
        return o;
    pvn_rdma_nic_free(o->nic);
    free(o);
    return NULL;
}

/* Frees everything but context and domain, which belong to the table. */
static void free_opened(struct pvn_rdma_opened *o)
{
    pvn_rdma_gpu_close(o->gpu);
    pvn_rdma_nic_free(o->nic);
    free(o);
}

/* Frees everything, with context and domain, which the table no longer has. */
static void close_opened(const struct pvn_rdma_adapter *a, struct pvn_rdma_opened *o)
{
    struct ibv_context *ctx = o->ctx;
    struct ibv_pd *pd = o->pd;
    free_opened(o);
    a->v->dealloc_pd(pd);
    a->v->close_device(ctx);
}

struct pvn_rdma_adapter *
pvn_rdma_adapter_new(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                     struct pvn_hca_table *table, int hca, const struct pvn_rdma_gpu_cfg *gpu,
                     const struct pvn_rdma_ordering_cfg *ordering, struct pvn_err *err)
{
    struct pvn_rdma_adapter *a = calloc(1, sizeof(*a));
    if (!a) {
        pvn_err_set(err, -ENOMEM, "no memory for the RDMA device %s", table->hcas[hca].name);
        return NULL;
    }
    a->v = v;
    a->options = o;
    a->table = table;
    a->hca = hca;
    a->gpu = *gpu;
    pvn_str_append(a->name, sizeof(a->name), "%s", table->hcas[hca].name);
    a->gpu.name = a->name;
    pvn_rdma_ordering_init(&a->ordering, v, a->name, ordering, table->hcas[hca].pd);
    a->gpu.ordering = &a->ordering;
    a->now = use_context(a, &table->hcas[hca], err);
    if (!a->now) {
        free(a);
        return NULL;
    }
    a->gpu_cap = *pvn_rdma_gpu_cap(a->now->gpu);
    a->gpu.known = &a->gpu_cap;
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

void pvn_rdma_adapter_free(struct pvn_rdma_adapter *a)
{
    if (!a)
        return;
    if (a->now)
        free_opened(a->now);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* Marks the adapter's ports as down that a new table of it has left out. */
static void note_ports(const struct pvn_rdma_adapter *a, const struct pvn_hca_table *now,
                       struct pvn_rdma_nic *nic)
{
    for (int i = 0; i < a->table->nports; i++) {
        bool there = a->table->ports[i].hca != a->hca;
        for (int k = 0; k < now->nports; k++)
            there |= now->ports[k].port == a->table->ports[i].port;
        if (!there)
            pvn_rdma_nic_port_is_down(nic, a->table->ports[i].port);
    }
}

/* Opens the device again and puts it into its entry of the table, which is closed. One of several ports is enough for
 * that. */
static struct pvn_rdma_opened *open_device(struct pvn_rdma_adapter *a, struct pvn_err *err)
{
    struct pvn_hca_table now;
    if (pvn_hca_scan_again(a->v, a->options, entry(a), &now, err) != 0)
        return NULL;
    struct pvn_rdma_opened *o = use_context(a, &now.hcas[0], err);
    pthread_mutex_lock(&a->lock);
    if (o) {
        note_ports(a, &now, o->nic);
        pvn_hca_take_over(a->table, a->hca, &now);
    }
    pthread_mutex_unlock(&a->lock);
    pvn_hca_close(a->v, &now);
    if (o)
        pvn_info(PVN_NET, "%s has been opened again", a->name);
    return o;
}

/* Closes the lost context, unless lanes are left on it, the last of which then closes it. Opens the device again. The
 * caller holds the lock, which is released meanwhile. */
static int open_again(struct pvn_rdma_adapter *a, struct pvn_err *err)
{
    struct pvn_rdma_opened *lost = a->now;
    if (lost && lost->lanes > 0)
        lost = NULL;
    a->now = NULL;
    a->opening = true;
    entry(a)->ctx = NULL;
    entry(a)->pd = NULL;
    pthread_mutex_unlock(&a->lock);
    if (lost) {
        close_opened(a, lost);
        pvn_info(PVN_NET,
                 "%s is closed, because it has failed or its port is down, and no "
                 "connection uses it; it is opened again when it is back",
                 a->name);
    }
    pvn_err_clear(err);
    struct pvn_rdma_opened *o = open_device(a, err);
    pthread_mutex_lock(&a->lock);
    a->now = o;
    a->opening = false;
    a->again_ns = pvn_now_ns() + AGAIN_NS;
    return o ? 0 : err->code;
}

/* The caller holds the lock. */
static int usable(const struct pvn_rdma_adapter *a, int port, bool spare, struct pvn_err *err)
{
    if (a->now)
        return pvn_rdma_nic_health(a->now->nic, port, spare ? 0 : PVN_RDMA_GRACE_NS, err);
    pvn_err_set(err, -ENODEV, "%s is closed, because it had failed or its port was down", a->name);
    pvn_err_set_fault(err, PVN_FAULT_SYSTEM);
    return -ENODEV;
}

/* A lost device may be opened again. If only a port is down, the adapter is opened again only without lanes, because the
 * port may come up again for the lanes. The caller holds the lock. */
static bool may_open_again(const struct pvn_rdma_adapter *a, int why)
{
    return !a->opening && pvn_now_ns() >= a->again_ns &&
           (why == -ENODEV || (a->now && a->now->lanes == 0));
}

/* The caller holds the lock. */
static void fill_hold(struct pvn_rdma_adapter *a, int port, struct pvn_rdma_hold *h)
{
    h->adapter = a;
    h->opened = a->now;
    h->hca = *entry(a);
    h->port = a->table->ports[port];
    pvn_rdma_gpu_registrar(a->now->gpu, &h->registrar);
    h->gids_changed = pvn_rdma_nic_gids_changed(a->now->nic, h->port.port);
    h->gids_seen = atomic_load(h->gids_changed);
    a->now->lanes++;
}

int pvn_rdma_adapter_hold(struct pvn_rdma_adapter *a, int port, bool may_block, bool spare,
                          struct pvn_rdma_hold **out, struct pvn_err *err)
{
    struct pvn_rdma_hold *h = calloc(1, sizeof(*h));
    if (!h)
        return pvn_err_set(err, -ENOMEM, "no memory for a lane");
    pthread_mutex_lock(&a->lock);
    int rc = usable(a, a->table->ports[port].port, spare, err);
    if (rc < 0 && may_block && may_open_again(a, rc))
        rc = open_again(a, err) < 0 ? err->code : usable(a, a->table->ports[port].port, spare, err);
    if (rc == 0)
        fill_hold(a, port, h);
    pthread_mutex_unlock(&a->lock);
    if (rc < 0)
        free(h);
    else
        *out = h;
    return rc;
}

void pvn_rdma_adapter_release(struct pvn_rdma_hold *hold)
{
    struct pvn_rdma_adapter *a = hold->adapter;
    struct pvn_rdma_opened *o = hold->opened;
    pthread_mutex_lock(&a->lock);
    bool last = --o->lanes == 0 && o != a->now;
    pthread_mutex_unlock(&a->lock);
    if (last)
        close_opened(a, o);
    free(hold);
}

int pvn_rdma_adapter_gids(struct pvn_rdma_hold *h, struct pvn_gid_row *rows)
{
    struct pvn_rdma_adapter *a = h->adapter;
    struct gid_table *kept = &h->opened->gids[h->port.port & 1];
    uint64_t changed = atomic_load(h->gids_changed);
    struct gid_table t = {.port = h->port.port, .read_ns = pvn_now_ns(), .changed = changed};
    bool serves, whole = true;

    pthread_mutex_lock(&a->lock);
    serves =
        kept->port == t.port && kept->changed == t.changed && t.read_ns - kept->read_ns < GIDS_NS;
    if (serves)
        t = *kept;
    pthread_mutex_unlock(&a->lock);
    if (!serves) {
        t.n = pvn_hca_current_gids(a->v, a->options, &h->hca, &h->port, t.row, PVN_RDMA_MAX_GIDS,
                                   &whole);
        t.lid = h->port.lid;
        t.mtu = h->port.mtu;
    }
    if (t.n < 0)
        return t.n;
    h->port.lid = t.lid;
    h->port.mtu = t.mtu;
    /* An incomplete table is not kept, so that only this lane misses rows. */
    if (!serves && whole && t.n > 0) {
        pthread_mutex_lock(&a->lock);
        *kept = t;
        pthread_mutex_unlock(&a->lock);
    }
    memcpy(rows, t.row, (size_t)t.n * sizeof(*rows));
    return t.n;
}

void pvn_rdma_adapter_send_from(struct pvn_rdma_hold *hold, const struct pvn_gid_row *own)
{
    hold->own = *own;
    hold->has_own = true;
}

/* Checks if the lane's source GID is still in its row of the table, PVN_RDMA_GRACE_NS after the table's last change at
 * `changed`. An address that was removed and has come back is in another row, because queue pairs keep the old one taken,
 * which the driver has emptied in the adapter (del_gid in Linux, drivers/infiniband/core/cache.c). */
static int look_for_own(struct pvn_rdma_hold *h, uint64_t changed, struct pvn_err *err)
{
    const struct pvn_rdma_adapter *a = h->adapter;
    struct pvn_gid_row rows[UINT8_MAX + 1]; /* all rows: many new ones may come before the lane's */
    uint64_t away = pvn_now_ns() - changed;
    char gid[80];

    if (!h->has_own || away < PVN_RDMA_GRACE_NS)
        return 0;
    h->gids_seen = changed;
    int n = pvn_hca_current_gids(a->v, a->options, &h->hca, &h->port, rows, UINT8_MAX + 1, NULL);
    if (n < 0)
        return 0; /* a failed device is noticed elsewhere */
    for (int i = 0; i < n; i++)
        if (rows[i].index == h->own.index && rows[i].type == h->own.type &&
            memcmp(rows[i].raw, h->own.raw, sizeof(rows[i].raw)) == 0)
            return 0;
    pvn_err_set(
        err, -ENETDOWN,
        "%s port %d has not had its GID %s in row %d for %.1f s: the address of its interface was changed or removed",
        h->hca.name, h->port.port, pvn_gid_text(&h->own, gid, sizeof(gid)), h->own.index,
        (double)away / PVN_NS_PER_S);
    pvn_err_set_fault(err, PVN_FAULT_SYSTEM);
    return -ENETDOWN;
}

int pvn_rdma_adapter_health(struct pvn_rdma_hold *hold, struct pvn_err *err)
{
    int rc = pvn_rdma_nic_health(hold->opened->nic, hold->port.port, PVN_RDMA_GRACE_NS, err);
    uint64_t changed = atomic_load_explicit(hold->gids_changed, memory_order_relaxed);
    return rc || changed == hold->gids_seen ? rc : look_for_own(hold, changed, err);
}

const struct pvn_gpumem_cap *pvn_rdma_adapter_gpu_cap(const struct pvn_rdma_adapter *a)
{
    return &a->gpu_cap;
}

const struct pvn_rdma_ordering *pvn_rdma_adapter_ordering(const struct pvn_rdma_adapter *a)
{
    return &a->ordering;
}
