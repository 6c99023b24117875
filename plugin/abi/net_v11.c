/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's net plugin interface, version 11: see nccl/net_v11.h for what is new in it. */
#include "config.h"
#include "abi/common.h"
#include "nccl/net_v11.h"

static ncclResult_t init_v11(void **ctx, uint64_t commId, ncclNetCommConfig_v11_t *config,
                             ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction)
{
    return abi_init(11, ctx, config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF,
                    logFunction, profFunction);
}

static ncclResult_t getProperties_v11(int dev, ncclNetProperties_v11_t *p)
{
    ncclResult_t rc;
    const struct pvn_device *d = abi_device(dev, &rc);
    int i;

    if (!d)
        return rc;
    p->name = (char *)d->name;
    p->pciPath = abi_pci_path(d);
    p->guid = d->guid;
    p->ptrSupport = d->ptr_support;
    p->regIsGlobal = d->reg_is_global;
    p->forceFlush = d->force_flush;
    p->speed = d->speed_mbps;
    p->port = d->port;
    p->latency = d->latency_us;
    p->maxComms = d->max_comms;
    p->maxRecvs = d->max_recvs;
    p->netDeviceType = NCCL_NET_DEVICE_HOST;
    p->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;
    p->vProps.ndevs = 0;
    for (i = 0; i < d->nmembers && i < NCCL_NET_MAX_DEVS_PER_NIC_V11; i++)
        p->vProps.devs[p->vProps.ndevs++] = d->members[i];
    p->maxP2pBytes = ABI_MAX_BYTES;
    p->maxCollBytes = ABI_MAX_BYTES;
    p->maxMultiRequestSize = 1;
    return ncclSuccess;
}

static ncclResult_t makeVDevice_v11(int *d, ncclNetVDeviceProps_v11_t *props)
{
    return abi_make_vdevice(d, props->devs, props->ndevs, NCCL_NET_MAX_DEVS_PER_NIC_V11);
}

/* NCCL hints at the use of a communicator's next connections: the number of concurrent peers and flows. The plugin
 * ignores it. Both ends have to agree on the number of queue pairs and streams before either end has the hint, and NCCL
 * may change the hint between two connections to the same peer. */
static ncclResult_t setNetAttr_v11(void *ctx, ncclNetAttr_v11_t *netAttr)
{
    (void)ctx;
    (void)netAttr;
    return ncclSuccess;
}

extern const ncclNet_v11_t ncclNetPlugin_v11;
__attribute__((visibility("default"))) const ncclNet_v11_t ncclNetPlugin_v11 = {
    .name = "pvrdma",
    .init = init_v11,
    .devices = abi_devices,
    .getProperties = getProperties_v11,
    .listen = listen_v11,
    .connect = connect_v11,
    .accept = accept_v7,
    .regMr = regMr_v8,
    .regMrDmaBuf = regMrDmaBuf_v6,
    .deregMr = deregMr_v4,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .iflush = iflush_v5,
    .test = test_v4,
    .closeSend = closeSend_v4,
    .closeRecv = closeRecv_v4,
    .closeListen = closeListen_v4,
    .getDeviceMr = NULL,
    .irecvConsumed = NULL,
    .makeVDevice = makeVDevice_v11,
    .finalize = finalize_v11,
    .setNetAttr = setNetAttr_v11,
};
