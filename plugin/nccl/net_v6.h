/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL net plugin interface, version 6: NCCL 2.13 to 2.18; the oldest one that NCCL 2.30.7 loads.
 * New since v5: regMrDmaBuf.
 * Source: src/include/plugin/net/net_v6.h of NCCL 2.30.7.
 */
#ifndef PVN_NCCL_NET_V6_H
#define PVN_NCCL_NET_V6_H

#include "nccl/types.h"

typedef struct {
    char *name;     /* name of the device, for logs; plugin's own */
    char *pciPath;  /* /sys path of the PCI function or NULL; plugin's own */
    uint64_t guid;  /* the same for all ports and functions of one adapter */
    int ptrSupport; /* NCCL_PTR_ bits */
    int speed;      /* Mbit/s */
    int port;       /* port number, from 1 where ports are numbered */
    float latency;  /* microseconds; 0 lets NCCL's tuner use its own value */
    int maxComms;   /* comms that may exist at a time */
    int maxRecvs;   /* buffers in one grouped receive, 1 to 8 */
} ncclNetProperties_v6_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v6_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm);
    ncclResult_t (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                                int fd, void **mhandle);
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
} ncclNet_v6_t;

static_assert(offsetof(ncclNetProperties_v6_t, guid) == 16, "ncclNetProperties_v6_t");
static_assert(offsetof(ncclNetProperties_v6_t, ptrSupport) == 24, "ncclNetProperties_v6_t");
static_assert(offsetof(ncclNetProperties_v6_t, speed) == 28, "ncclNetProperties_v6_t");
static_assert(offsetof(ncclNetProperties_v6_t, port) == 32, "ncclNetProperties_v6_t");
static_assert(offsetof(ncclNetProperties_v6_t, latency) == 36, "ncclNetProperties_v6_t");
static_assert(offsetof(ncclNetProperties_v6_t, maxComms) == 40, "ncclNetProperties_v6_t");
static_assert(offsetof(ncclNetProperties_v6_t, maxRecvs) == 44, "ncclNetProperties_v6_t");
static_assert(sizeof(ncclNetProperties_v6_t) == 48, "ncclNetProperties_v6_t");
static_assert(offsetof(ncclNet_v6_t, init) == 8, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, devices) == 16, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, getProperties) == 24, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, listen) == 32, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, connect) == 40, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, accept) == 48, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, regMr) == 56, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, regMrDmaBuf) == 64, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, deregMr) == 72, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, isend) == 80, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, irecv) == 88, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, iflush) == 96, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, test) == 104, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, closeSend) == 112, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, closeRecv) == 120, "ncclNet_v6_t");
static_assert(offsetof(ncclNet_v6_t, closeListen) == 128, "ncclNet_v6_t");
static_assert(sizeof(ncclNet_v6_t) == 136, "ncclNet_v6_t");

#endif
