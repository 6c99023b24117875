/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/driver/netdrv.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/net_v4.h"
#include "nccl/net_v5.h"
#include "nccl/net_v6.h"
#include "nccl/net_v7.h"
#include "nccl/net_v8.h"
#include "nccl/net_v9.h"
#include "nccl/net_v10.h"
#include "nccl/net_v11.h"
#include "perf/driver/netdrv_v4.h"

/* The layout of properties, comm configuration and attributes shared by v11 and v12. */
static_assert(sizeof(ncclNetCommConfig_v11_t) == sizeof(ncclNetCommConfig_v12_t), "config");
static_assert(sizeof(ncclNetAttr_v11_t) == sizeof(ncclNetAttr_v12_t), "attr");

#define GROUP_MAX 8

union table {
    const void *any;
    const ncclNet_v4_t *v4;
    const ncclNet_v5_t *v5;
    const ncclNet_v6_t *v6;
    const ncclNet_v7_t *v7;
    const ncclNet_v8_t *v8;
    const ncclNet_v9_t *v9;
    const ncclNet_v10_t *v10;
    const ncclNet_v11_t *v11;
    const ncclNet_v12_t *v12;
};

struct pvn_netdrv {
    int abi;
    unsigned exported;
    void *dl;
    char *path;
    union table t;
    struct pvn_netdrv_v4 *pending; /* v4 only: blocking calls that run in threads */
    int inits;                     /* below v11: contexts that share the plugin's one init */
    /* These functions have the same arguments in every version, at different places of the
     * table. */
    const char *name;
    ncclResult_t (*devices)(int *);
    ncclResult_t (*dereg_mr)(void *, void *);
    ncclResult_t (*test)(void *, int *, int *);
    ncclResult_t (*close_send)(void *);
    ncclResult_t (*close_recv)(void *);
    ncclResult_t (*close_listen)(void *);
};

/* The context of every version below v11. connect of v10 needs the configuration from init. */
struct old_ctx {
    ncclNetCommConfig_v10_t config;
};

const char *pvn_netdrv_strerror(ncclResult_t rc)
{
    switch (rc) {
    case ncclSuccess:
        return "ncclSuccess";
    case ncclUnhandledCudaError:
        return "ncclUnhandledCudaError";
    case ncclSystemError:
        return "ncclSystemError";
    case ncclInternalError:
        return "ncclInternalError";
    case ncclInvalidArgument:
        return "ncclInvalidArgument";
    case ncclInvalidUsage:
        return "ncclInvalidUsage";
    case ncclRemoteError:
        return "ncclRemoteError";
    }
    return "an unknown result code";
}

/* Fills the functions that have the same form in every version from one version's table. */
#define TAKE_COMMON(drv, table)                                                                    \
    ((drv)->name = (table)->name, (drv)->devices = (table)->devices,                               \
     (drv)->dereg_mr = (table)->deregMr, (drv)->test = (table)->test,                              \
     (drv)->close_send = (table)->closeSend, (drv)->close_recv = (table)->closeRecv,               \
     (drv)->close_listen = (table)->closeListen)

static void take_common(struct pvn_netdrv *d)
{
    switch (d->abi) {
    case 4:
        TAKE_COMMON(d, d->t.v4);
        break;
    case 5:
        TAKE_COMMON(d, d->t.v5);
        break;
    case 6:
        TAKE_COMMON(d, d->t.v6);
        break;
    case 7:
        TAKE_COMMON(d, d->t.v7);
        break;
    case 8:
        TAKE_COMMON(d, d->t.v8);
        break;
    case 9:
        TAKE_COMMON(d, d->t.v9);
        break;
    case 10:
        TAKE_COMMON(d, d->t.v10);
        break;
    case 11:
        TAKE_COMMON(d, d->t.v11);
        break;
    default:
        TAKE_COMMON(d, d->t.v12);
        break;
    }
}

static int pick_version(struct pvn_netdrv *d, int abi, char *msg, size_t msg_len)
{
    char list[64] = "";

    for (int v = PVN_NETDRV_ABI_MIN; v <= PVN_NETDRV_ABI_MAX; v++) {
        char sym[32];
        const void *p;

        snprintf(sym, sizeof(sym), "ncclNetPlugin_v%d", v);
        p = dlsym(d->dl, sym);
        if (!p)
            continue;
        d->exported |= 1u << v;
        snprintf(list + strlen(list), sizeof(list) - strlen(list), " v%d", v);
        if (abi == 0 || abi == v) {
            d->abi = v;
            d->t.any = p;
        }
    }
    if (d->t.any)
        return 0;
    if (!d->exported)
        snprintf(msg, msg_len,
                 "%s exports none of ncclNetPlugin_v4 to _v12: it is not a NCCL net plugin",
                 d->path);
    else
        snprintf(msg, msg_len, "%s does not export ncclNetPlugin_v%d; it has%s", d->path, abi,
                 list);
    return -EPROTO;
}

/* Finds the file that was loaded: the loader has searched for a name without a path. */
static int name_file(struct pvn_netdrv *d)
{
    struct link_map *map = NULL;
    char *path;

    if (strchr(d->path, '/') || dlinfo(d->dl, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name ||
        !map->l_name[0])
        return 0;
    path = strdup(map->l_name);
    if (!path)
        return -ENOMEM;
    free(d->path);
    d->path = path;
    return 0;
}

int pvn_netdrv_open(const char *what, int abi, struct pvn_netdrv **drv, char *msg, size_t msg_len)
{
    size_t len = strlen(what);
    struct pvn_netdrv *d;
    int rc = -ENOMEM;

    if (abi != 0 && (abi < PVN_NETDRV_ABI_MIN || abi > PVN_NETDRV_ABI_MAX)) {
        snprintf(msg, msg_len, "interface version %d is not one of %d to %d", abi,
                 PVN_NETDRV_ABI_MIN, PVN_NETDRV_ABI_MAX);
        return -EINVAL;
    }
    d = calloc(1, sizeof(*d));
    if (!d)
        goto no_memory;
    if (strchr(what, '/') || (len > 3 && strcmp(what + len - 3, ".so") == 0))
        d->path = strdup(what);
    else if (asprintf(&d->path, "libnccl-net-%s.so", what) < 0)
        d->path = NULL;
    if (!d->path)
        goto no_memory;
    d->dl = dlopen(d->path, RTLD_NOW | RTLD_LOCAL);
    if (!d->dl) {
        snprintf(msg, msg_len, "cannot load %s", dlerror());
        rc = -ENOENT;
        goto fail;
    }
    rc = name_file(d);
    if (rc)
        goto no_memory;
    rc = pick_version(d, abi, msg, msg_len);
    if (rc)
        goto fail;
    take_common(d);
    if (d->abi == 4) {
        d->pending = pvn_netdrv_v4_new(d->t.v4);
        if (!d->pending) {
            rc = -ENOMEM;
            goto no_memory;
        }
    }
    *drv = d;
    return 0;

no_memory:
    snprintf(msg, msg_len, "out of memory while loading %s", what);
fail:
    pvn_netdrv_close(d);
    return rc;
}

void pvn_netdrv_close(struct pvn_netdrv *d)
{
    if (!d)
        return;
    pvn_netdrv_v4_free(d->pending);
    if (d->dl)
        dlclose(d->dl);
    free(d->path);
    free(d);
}

int pvn_netdrv_abi(const struct pvn_netdrv *d)
{
    return d->abi;
}

unsigned pvn_netdrv_exported(const struct pvn_netdrv *d)
{
    return d->exported;
}

const char *pvn_netdrv_name(const struct pvn_netdrv *d)
{
    return d->name ? d->name : "(no name)";
}

const char *pvn_netdrv_path(const struct pvn_netdrv *d)
{
    return d->path;
}

int pvn_netdrv_max_requests(const struct pvn_netdrv *d)
{
    return d->abi <= 6 ? NCCL_NET_MAX_REQUESTS_V6 : NCCL_NET_MAX_REQUESTS;
}

int pvn_netdrv_max_group(const struct pvn_netdrv *d)
{
    return d->abi == 4 ? 1 : GROUP_MAX;
}

size_t pvn_netdrv_max_bytes(const struct pvn_netdrv *d)
{
    return d->abi <= 8 ? (size_t)INT_MAX : (size_t)NCCL_MAX_NET_SIZE_BYTES;
}

size_t pvn_netdrv_handle_size(const struct pvn_netdrv *d)
{
    return d->abi == 4 ? NCCL_NET_HANDLE_MAXSIZE_V4 : NCCL_NET_HANDLE_MAXSIZE;
}

/* Calls the plugin's init of versions below v11, which has no context and is called once. */
static ncclResult_t init_once(struct pvn_netdrv *d, ncclDebugLogger_t log,
                              ncclProfilerCallback_t prof)
{
    switch (d->abi) {
    case 4:
        return d->t.v4->init(log);
    case 5:
        return d->t.v5->init(log);
    case 6:
        return d->t.v6->init(log);
    case 7:
        return d->t.v7->init(log);
    case 8:
        return d->t.v8->init(log);
    case 9:
        return d->t.v9->init(log);
    default:
        return d->t.v10->init(log, prof);
    }
}

ncclResult_t pvn_netdrv_init(struct pvn_netdrv *d, void **ctx, uint64_t comm_id,
                             const ncclNetCommConfig_v12_t *config, ncclDebugLogger_t log,
                             ncclProfilerCallback_t prof)
{
    ncclNetCommConfig_v12_t c12 = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
    struct old_ctx *old;
    ncclResult_t rc;

    if (config)
        c12 = *config;
    *ctx = NULL;
    if (d->abi == 12)
        return d->t.v12->init(ctx, comm_id, &c12, log, prof);
    if (d->abi == 11) {
        ncclNetCommConfig_v11_t c11 = {c12.trafficClass};

        return d->t.v11->init(ctx, comm_id, &c11, log, prof);
    }
    old = calloc(1, sizeof(*old));
    if (!old)
        return ncclSystemError;
    old->config.trafficClass = c12.trafficClass;
    if (d->inits == 0) {
        rc = init_once(d, log, prof);
        if (rc != ncclSuccess) {
            free(old);
            return rc;
        }
    }
    d->inits++;
    *ctx = old;
    return ncclSuccess;
}

ncclResult_t pvn_netdrv_finalize(struct pvn_netdrv *d, void *ctx)
{
    if (d->abi == 12)
        return d->t.v12->finalize(ctx);
    if (d->abi == 11)
        return d->t.v11->finalize(ctx);
    d->inits--;
    free(ctx);
    return ncclSuccess;
}

ncclResult_t pvn_netdrv_devices(struct pvn_netdrv *d, int *ndev)
{
    return d->devices(ndev);
}

/*
 * The properties that NCCL assumes for versions that do not report them (ncclNet_getProperties in
 * net_v6.cc, net_v8.cc).
 */
static void default_properties(int dev, ncclNetProperties_v12_t *p)
{
    memset(p, 0, sizeof(*p));
    p->maxRecvs = 1;
    p->netDeviceType = NCCL_NET_DEVICE_HOST;
    p->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;
    p->vProps.ndevs = 1;
    p->vProps.devs[0] = dev;
    p->maxP2pBytes = NCCL_NET_MAX_SIZE_OLD;
    p->maxCollBytes = NCCL_NET_MAX_SIZE_OLD;
    p->maxMultiRequestSize = 1;
    p->railId = NCCL_NET_ID_UNDEF;
    p->planeId = NCCL_NET_ID_UNDEF;
}

/* The fields that every version has; then those since v5, v7, v8, v9. */
#define COPY_V4(to, from)                                                                          \
    ((to)->name = (from).name, (to)->pciPath = (from).pciPath, (to)->guid = (from).guid,           \
     (to)->ptrSupport = (from).ptrSupport, (to)->speed = (from).speed, (to)->port = (from).port,   \
     (to)->maxComms = (from).maxComms)
#define COPY_V5(to, from)                                                                          \
    (COPY_V4(to, from), (to)->latency = (from).latency, (to)->maxRecvs = (from).maxRecvs)
#define COPY_V7(to, from)                                                                          \
    (COPY_V5(to, from), (to)->netDeviceType = (from).netDeviceType,                                \
     (to)->netDeviceVersion = (from).netDeviceVersion)
#define COPY_V8(to, from) (COPY_V7(to, from), (to)->regIsGlobal = (from).regIsGlobal)
#define COPY_V9(to, from)                                                                          \
    (COPY_V8(to, from), (to)->forceFlush = (from).forceFlush,                                      \
     (to)->maxP2pBytes = (from).maxP2pBytes, (to)->maxCollBytes = (from).maxCollBytes,             \
     copy_vprops(to, (from).vProps.ndevs, (from).vProps.devs))

static void copy_vprops(ncclNetProperties_v12_t *p, int ndevs, const int *devs)
{
    p->vProps.ndevs = ndevs;
    for (int i = 0; i < ndevs && i < NCCL_NET_MAX_DEVS_PER_NIC_V11; i++)
        p->vProps.devs[i] = devs[i];
}

static ncclResult_t old_properties(struct pvn_netdrv *d, int dev, ncclNetProperties_v12_t *p)
{
    union {
        ncclNetProperties_v4_t v4;
        ncclNetProperties_v6_t v6;
        ncclNetProperties_v7_t v7;
        ncclNetProperties_v8_t v8;
    } u;
    ncclResult_t rc;

    memset(&u, 0, sizeof(u));
    switch (d->abi) {
    case 4:
        rc = d->t.v4->getProperties(dev, &u.v4);
        COPY_V4(p, u.v4);
        break;
    case 5:
        rc = d->t.v5->getProperties(dev, &u.v6);
        COPY_V5(p, u.v6);
        break;
    case 6:
        rc = d->t.v6->getProperties(dev, &u.v6);
        COPY_V5(p, u.v6);
        break;
    case 7:
        rc = d->t.v7->getProperties(dev, &u.v7);
        COPY_V7(p, u.v7);
        break;
    default:
        rc = d->t.v8->getProperties(dev, &u.v8);
        COPY_V8(p, u.v8);
        break;
    }
    return rc;
}

ncclResult_t pvn_netdrv_properties(struct pvn_netdrv *d, int dev, ncclNetProperties_v12_t *p)
{
    union {
        ncclNetProperties_v9_t v9;
        ncclNetProperties_v10_t v10;
        ncclNetProperties_v11_t v11;
    } u;
    ncclResult_t rc;

    default_properties(dev, p);
    if (d->abi <= 8)
        return old_properties(d, dev, p);
    if (d->abi == 12)
        return d->t.v12->getProperties(dev, p);
    memset(&u, 0, sizeof(u));
    switch (d->abi) {
    case 9:
        rc = d->t.v9->getProperties(dev, &u.v9);
        COPY_V9(p, u.v9);
        break;
    case 10:
        rc = d->t.v10->getProperties(dev, &u.v10);
        COPY_V9(p, u.v10);
        break;
    default:
        rc = d->t.v11->getProperties(dev, &u.v11);
        COPY_V9(p, u.v11);
        p->maxMultiRequestSize = u.v11.maxMultiRequestSize;
        break;
    }
    return rc;
}

ncclResult_t pvn_netdrv_listen(struct pvn_netdrv *d, void *ctx, int dev, void *handle,
                               void **listen_comm)
{
    *listen_comm = NULL;
    switch (d->abi) {
    case 4:
        return d->t.v4->listen(dev, handle, listen_comm);
    case 5:
        return d->t.v5->listen(dev, handle, listen_comm);
    case 6:
        return d->t.v6->listen(dev, handle, listen_comm);
    case 7:
        return d->t.v7->listen(dev, handle, listen_comm);
    case 8:
        return d->t.v8->listen(dev, handle, listen_comm);
    case 9:
        return d->t.v9->listen(dev, handle, listen_comm);
    case 10:
        return d->t.v10->listen(dev, handle, listen_comm);
    case 11:
        return d->t.v11->listen(ctx, dev, handle, listen_comm);
    default:
        return d->t.v12->listen(ctx, dev, handle, listen_comm);
    }
}

ncclResult_t pvn_netdrv_connect(struct pvn_netdrv *d, void *ctx, int dev, void *handle,
                                void **send_comm)
{
    struct old_ctx *old = ctx;
    ncclNetDeviceHandle_v7_t *devcomm = NULL; /* no device offload */

    *send_comm = NULL;
    switch (d->abi) {
    case 4:
        return pvn_netdrv_v4_connect(d->pending, dev, handle, send_comm);
    case 5:
        return d->t.v5->connect(dev, handle, send_comm);
    case 6:
        return d->t.v6->connect(dev, handle, send_comm);
    case 7:
        return d->t.v7->connect(dev, handle, send_comm, &devcomm);
    case 8:
        return d->t.v8->connect(dev, handle, send_comm, &devcomm);
    case 9:
        return d->t.v9->connect(dev, handle, send_comm, &devcomm);
    case 10:
        return d->t.v10->connect(dev, old ? &old->config : NULL, handle, send_comm, &devcomm);
    case 11:
        return d->t.v11->connect(ctx, dev, handle, send_comm, &devcomm);
    default:
        return d->t.v12->connect(ctx, dev, handle, send_comm, &devcomm);
    }
}

ncclResult_t pvn_netdrv_accept(struct pvn_netdrv *d, void *listen_comm, void **recv_comm)
{
    ncclNetDeviceHandle_v7_t *devcomm = NULL;

    *recv_comm = NULL;
    switch (d->abi) {
    case 4:
        return pvn_netdrv_v4_accept(d->pending, listen_comm, recv_comm);
    case 5:
        return d->t.v5->accept(listen_comm, recv_comm);
    case 6:
        return d->t.v6->accept(listen_comm, recv_comm);
    case 7:
        return d->t.v7->accept(listen_comm, recv_comm, &devcomm);
    case 8:
        return d->t.v8->accept(listen_comm, recv_comm, &devcomm);
    case 9:
        return d->t.v9->accept(listen_comm, recv_comm, &devcomm);
    case 10:
        return d->t.v10->accept(listen_comm, recv_comm, &devcomm);
    case 11:
        return d->t.v11->accept(listen_comm, recv_comm, &devcomm);
    default:
        return d->t.v12->accept(listen_comm, recv_comm, &devcomm);
    }
}

ncclResult_t pvn_netdrv_reg_mr(struct pvn_netdrv *d, void *comm, void *data, size_t size, int type,
                               void **mhandle)
{
    *mhandle = NULL;
    if (d->abi <= 7 && size > INT_MAX)
        return ncclInvalidArgument;
    switch (d->abi) {
    case 4:
        return d->t.v4->regMr(comm, data, (int)size, type, mhandle);
    case 5:
        return d->t.v5->regMr(comm, data, (int)size, type, mhandle);
    case 6:
        return d->t.v6->regMr(comm, data, (int)size, type, mhandle);
    case 7:
        return d->t.v7->regMr(comm, data, (int)size, type, mhandle);
    case 8:
        return d->t.v8->regMr(comm, data, size, type, mhandle);
    case 9:
        return d->t.v9->regMr(comm, data, size, type, mhandle);
    case 10:
        return d->t.v10->regMr(comm, data, size, type, mhandle);
    case 11:
        return d->t.v11->regMr(comm, data, size, type, mhandle);
    default:
        return d->t.v12->regMr(comm, data, size, type, mhandle);
    }
}

ncclResult_t pvn_netdrv_reg_dmabuf(struct pvn_netdrv *d, void *comm, void *data, size_t size,
                                   int type, uint64_t offset, int fd, void **mhandle)
{
    ncclResult_t (*fn)(void *, void *, size_t, int, uint64_t, int, void **) = NULL;

    *mhandle = NULL;
    switch (d->abi) {
    case 4:
    case 5:
        break;
    case 6:
        fn = d->t.v6->regMrDmaBuf;
        break;
    case 7:
        fn = d->t.v7->regMrDmaBuf;
        break;
    case 8:
        fn = d->t.v8->regMrDmaBuf;
        break;
    case 9:
        fn = d->t.v9->regMrDmaBuf;
        break;
    case 10:
        fn = d->t.v10->regMrDmaBuf;
        break;
    case 11:
        fn = d->t.v11->regMrDmaBuf;
        break;
    default:
        fn = d->t.v12->regMrDmaBuf;
        break;
    }
    return fn ? fn(comm, data, size, type, offset, fd, mhandle) : ncclInvalidUsage;
}

ncclResult_t pvn_netdrv_dereg_mr(struct pvn_netdrv *d, void *comm, void *mhandle)
{
    return d->dereg_mr(comm, mhandle);
}

ncclResult_t pvn_netdrv_isend(struct pvn_netdrv *d, void *comm, void *data, size_t size, int tag,
                              void *mhandle, void *phandle, void **request)
{
    *request = NULL;
    if (d->abi <= 8 && size > INT_MAX)
        return ncclInvalidArgument;
    switch (d->abi) {
    case 4:
        return d->t.v4->isend(comm, data, (int)size, mhandle, request);
    case 5:
        return d->t.v5->isend(comm, data, (int)size, tag, mhandle, request);
    case 6:
        return d->t.v6->isend(comm, data, (int)size, tag, mhandle, request);
    case 7:
        return d->t.v7->isend(comm, data, (int)size, tag, mhandle, request);
    case 8:
        return d->t.v8->isend(comm, data, (int)size, tag, mhandle, request);
    case 9:
        return d->t.v9->isend(comm, data, size, tag, mhandle, request);
    case 10:
        return d->t.v10->isend(comm, data, size, tag, mhandle, phandle, request);
    case 11:
        return d->t.v11->isend(comm, data, size, tag, mhandle, phandle, request);
    default:
        return d->t.v12->isend(comm, data, size, tag, mhandle, phandle, request);
    }
}

/* irecv of v4 to v8. v5 to v8 have int sizes; v4 has one buffer and no tag. None has optional
 * completion. */
static ncclResult_t old_irecv(struct pvn_netdrv *d, void *comm, int n, void **data, size_t *sizes,
                              int *tags, void **mhandles, void **request)
{
    int isizes[GROUP_MAX];

    *request = NULL;
    for (int i = 0; i < n; i++) {
        if (sizes[i] > INT_MAX)
            return ncclInvalidArgument;
        isizes[i] = (int)sizes[i];
    }
    switch (d->abi) {
    case 4:
        return d->t.v4->irecv(comm, data[0], isizes[0], mhandles[0], request);
    case 5:
        return d->t.v5->irecv(comm, n, data, isizes, tags, mhandles, request);
    case 6:
        return d->t.v6->irecv(comm, n, data, isizes, tags, mhandles, request);
    case 7:
        return d->t.v7->irecv(comm, n, data, isizes, tags, mhandles, request);
    default:
        return d->t.v8->irecv(comm, n, data, isizes, tags, mhandles, request);
    }
}

ncclResult_t pvn_netdrv_irecv(struct pvn_netdrv *d, void *comm, int n, void **data, size_t *sizes,
                              int *tags, void **mhandles, void **phandles, void **request)
{
    static void *const no_phandles[GROUP_MAX];

    if (n < 1 || n > pvn_netdrv_max_group(d)) {
        *request = NULL;
        return ncclInvalidArgument;
    }
    if (!phandles)
        phandles = (void **)no_phandles;
    switch (d->abi) {
    case 9:
        return d->t.v9->irecv(comm, n, data, sizes, tags, mhandles, request);
    case 10:
        return d->t.v10->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
    case 11:
        return d->t.v11->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
    case 12:
        return d->t.v12->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
    default:
        return old_irecv(d, comm, n, data, sizes, tags, mhandles, request);
    }
}

ncclResult_t pvn_netdrv_iflush(struct pvn_netdrv *d, void *comm, int n, void **data, int *sizes,
                               void **mhandles, void **request)
{
    *request = NULL;
    if (n < 1 || n > pvn_netdrv_max_group(d))
        return ncclInvalidArgument;
    switch (d->abi) {
    case 4:
        return d->t.v4->iflush(comm, data[0], sizes[0], mhandles[0], request);
    case 5:
        return d->t.v5->iflush(comm, n, data, sizes, mhandles, request);
    case 6:
        return d->t.v6->iflush(comm, n, data, sizes, mhandles, request);
    case 7:
        return d->t.v7->iflush(comm, n, data, sizes, mhandles, request);
    case 8:
        return d->t.v8->iflush(comm, n, data, sizes, mhandles, request);
    case 9:
        return d->t.v9->iflush(comm, n, data, sizes, mhandles, request);
    case 10:
        return d->t.v10->iflush(comm, n, data, sizes, mhandles, request);
    case 11:
        return d->t.v11->iflush(comm, n, data, sizes, mhandles, request);
    default:
        return d->t.v12->iflush(comm, n, data, sizes, mhandles, request);
    }
}

ncclResult_t pvn_netdrv_test(struct pvn_netdrv *d, void *request, int *done, int *sizes)
{
    *done = 0;
    return d->test(request, done, sizes);
}

ncclResult_t pvn_netdrv_close_send(struct pvn_netdrv *d, void *comm)
{
    return d->close_send(comm);
}

ncclResult_t pvn_netdrv_close_recv(struct pvn_netdrv *d, void *comm)
{
    return d->close_recv(comm);
}

ncclResult_t pvn_netdrv_close_listen(struct pvn_netdrv *d, void *comm)
{
    return d->close_listen(comm);
}

ncclResult_t pvn_netdrv_make_vdevice(struct pvn_netdrv *d, int *dev,
                                     const ncclNetVDeviceProps_v12_t *props)
{
    /* v9 to v11 have the same layout, with room for fewer devices. */
    union {
        ncclNetVDeviceProps_v9_t v9;
        ncclNetVDeviceProps_v10_t v10;
        ncclNetVDeviceProps_v11_t v11;
        ncclNetVDeviceProps_v12_t v12;
    } p;

    if (d->abi <= 8)
        return ncclInvalidUsage;
    if (d->abi <= 11 && props->ndevs > NCCL_NET_MAX_DEVS_PER_NIC_V11)
        return ncclInvalidArgument;
    p.v12 = *props;
    switch (d->abi) {
    case 9:
        return d->t.v9->makeVDevice ? d->t.v9->makeVDevice(dev, &p.v9) : ncclInvalidUsage;
    case 10:
        return d->t.v10->makeVDevice ? d->t.v10->makeVDevice(dev, &p.v10) : ncclInvalidUsage;
    case 11:
        return d->t.v11->makeVDevice ? d->t.v11->makeVDevice(dev, &p.v11) : ncclInvalidUsage;
    default:
        return d->t.v12->makeVDevice ? d->t.v12->makeVDevice(dev, &p.v12) : ncclInvalidUsage;
    }
}

ncclResult_t pvn_netdrv_set_attr(struct pvn_netdrv *d, void *ctx, const ncclNetAttr_v12_t *attr)
{
    union {
        ncclNetAttr_v11_t v11;
        ncclNetAttr_v12_t v12;
    } a;

    a.v12 = *attr;
    if (d->abi == 12 && d->t.v12->setNetAttr)
        return d->t.v12->setNetAttr(ctx, &a.v12);
    if (d->abi == 11 && d->t.v11->setNetAttr)
        return d->t.v11->setNetAttr(ctx, &a.v11);
    return ncclInvalidUsage;
}
