/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's net plugin interface, version 4: see nccl/net_v4.h for what is new in it. */
#include "config.h"
#include "abi/common.h"
#include "nccl/net_v4.h"

static ncclResult_t init_v4(ncclDebugLogger_t logFunction)
{
    return abi_init(4, NULL, NCCL_NET_TRAFFIC_CLASS_UNDEF, logFunction, NULL);
}

static ncclResult_t getProperties_v4(int dev, ncclNetProperties_v4_t *p)
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
    p->maxComms = d->max_comms;
    return ncclSuccess;
}

extern const ncclNet_v4_t ncclNetPlugin_v4;
__attribute__((visibility("default"))) const ncclNet_v4_t ncclNetPlugin_v4 = {
    .name = "pvrdma",
    .init = init_v4,
    .devices = abi_devices,
    .getProperties = getProperties_v4,
    .listen = listen_v4,
    .connect = connect_v4,
    .accept = accept_v4,
    .regMr = regMr_v4,
    .deregMr = deregMr_v4,
    .isend = isend_v4,
    .irecv = irecv_v4,
    .iflush = iflush_v4,
    .test = test_v4,
    .closeSend = closeSend_v4,
    .closeRecv = closeRecv_v4,
    .closeListen = closeListen_v4,
};
