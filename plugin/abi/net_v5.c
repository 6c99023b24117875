/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's net plugin interface, version 5: see nccl/net_v5.h for what is new in it. */
#include "config.h"
#include "abi/common.h"
#include "nccl/net_v5.h"

static ncclResult_t init_v5(ncclDebugLogger_t logFunction)
{
    return abi_init(5, NULL, NCCL_NET_TRAFFIC_CLASS_UNDEF, logFunction, NULL);
}

static ncclResult_t getProperties_v5(int dev, ncclNetProperties_v5_t *p)
{
    ncclResult_t rc;
    const struct pvn_device *d = abi_device(dev, &rc);

    if (!d)
        return rc;
    p->name = (char *)d->name;
    p->pciPath = abi_pci_path(d);
    p->guid = d->guid;
    p->ptrSupport =
        abi_ptr_support_unforced(d) & (NCCL_PTR_HOST | NCCL_PTR_CUDA); /* dma-buf came with v6 */
    p->speed = d->speed_mbps;
    p->port = d->port;
    p->latency = d->latency_us;
    p->maxComms = d->max_comms;
    p->maxRecvs = d->max_recvs;
    return ncclSuccess;
}

extern const ncclNet_v5_t ncclNetPlugin_v5;
__attribute__((visibility("default"))) const ncclNet_v5_t ncclNetPlugin_v5 = {
    .name = "pvrdma",
    .init = init_v5,
    .devices = abi_devices,
    .getProperties = getProperties_v5,
    .listen = listen_v5,
    .connect = connect_v5,
    .accept = accept_v5,
    .regMr = regMr_v4,
    .deregMr = deregMr_v4,
    .isend = isend_v5,
    .irecv = irecv_v5,
    .iflush = iflush_v5,
    .test = test_v4,
    .closeSend = closeSend_v4,
    .closeRecv = closeRecv_v4,
    .closeListen = closeListen_v4,
};
