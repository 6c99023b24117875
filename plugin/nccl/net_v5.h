/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL net plugin interface, version 5: NCCL 2.12; loaded up to 2.25.
 * New since v4: connect and accept return with a NULL comm until the peer is there and are called
 * again; receives of n buffers with tags; the properties latency and maxRecvs.
 * Source: src/include/nccl_net.h of NCCL 2.12.10; plugins/net/example/nccl/net_v5.h of 2.30.7.
 */
#ifndef PVN_NCCL_NET_V5_H
#define PVN_NCCL_NET_V5_H

#include "nccl/net_v6.h"

typedef ncclNetProperties_v6_t ncclNetProperties_v5_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v5_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm);
    ncclResult_t (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle,
                          void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags,
                          void **mhandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                           void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v5_t;

static_assert(sizeof(ncclNetProperties_v5_t) == 48, "ncclNetProperties_v5_t");
static_assert(offsetof(ncclNet_v5_t, init) == 8, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, devices) == 16, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, getProperties) == 24, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, listen) == 32, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, connect) == 40, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, accept) == 48, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, regMr) == 56, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, deregMr) == 64, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, isend) == 72, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, irecv) == 80, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, iflush) == 88, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, test) == 96, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, closeSend) == 104, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, closeRecv) == 112, "ncclNet_v5_t");
static_assert(offsetof(ncclNet_v5_t, closeListen) == 120, "ncclNet_v5_t");
static_assert(sizeof(ncclNet_v5_t) == 128, "ncclNet_v5_t");

#endif
