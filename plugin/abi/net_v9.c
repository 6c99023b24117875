/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's net plugin interface, version 9: see nccl/net_v9.h for what is new in it. */
#include "config.h"
#include "abi/common.h"
#include "comm/plugin.h"
#include "nccl/net_v9.h"

static ncclResult_t init_v9(ncclDebugLogger_t logFunction)
{
    return abi_init(9, NULL, NCCL_NET_TRAFFIC_CLASS_UNDEF, logFunction, NULL);
}

static ncclResult_t getProperties_v9(int dev, ncclNetProperties_v9_t *p)
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
    for (i = 0; i < d->nmembers && i < NCCL_NET_MAX_DEVS_PER_NIC_V9; i++)
        p->vProps.devs[p->vProps.ndevs++] = d->members[i];
    p->maxP2pBytes = ABI_MAX_BYTES;
    p->maxCollBytes = ABI_MAX_BYTES;
    return ncclSuccess;
}

static ncclResult_t makeVDevice_v9(int *d, ncclNetVDeviceProps_v9_t *props)
{
    ncclResult_t rc = abi_make_vdevice(d, props->devs, props->ndevs, NCCL_NET_MAX_DEVS_PER_NIC_V9);

    if (rc == ncclSuccess && props->ndevs > 1)
        pvn_plugin_stay_mapped();
    return rc;
}

extern const ncclNet_v9_t ncclNetPlugin_v9;
__attribute__((visibility("default"))) const ncclNet_v9_t ncclNetPlugin_v9 = {
    .name = "pvrdma",
    .init = init_v9,
    .devices = abi_devices,
    .getProperties = getProperties_v9,
    .listen = listen_v5,
    .connect = connect_v7,
    .accept = accept_v7,
    .regMr = regMr_v8,
    .regMrDmaBuf = regMrDmaBuf_v6,
    .deregMr = deregMr_v4,
    .isend = isend_v9,
    .irecv = irecv_v9,
    .iflush = iflush_v5,
    .test = test_v4,
    .closeSend = closeSend_v4,
    .closeRecv = closeRecv_v4,
    .closeListen = closeListen_v4,
    .getDeviceMr = NULL,
    .irecvConsumed = NULL,
    .makeVDevice = makeVDevice_v9,
};
