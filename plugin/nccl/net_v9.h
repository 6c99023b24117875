/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL net plugin interface, version 9: NCCL 2.24 and 2.25.
 * New since v8: sizes of isend and irecv are size_t (those that test reports stay int);
 * NCCL_NET_OPTIONAL_RECV_COMPLETION; virtual devices; the properties forceFlush, vProps,
 * maxP2pBytes and maxCollBytes. Source: src/include/plugin/net/net_v9.h of NCCL 2.30.7.
 */
#ifndef PVN_NCCL_NET_V9_H
#define PVN_NCCL_NET_V9_H

#include "nccl/types.h"

typedef struct {
    int ndevs;
    int devs[NCCL_NET_MAX_DEVS_PER_NIC_V9];
} ncclNetVDeviceProps_v9_t;

typedef struct {
    char *name;                      /* name of the device, for logs; plugin's own */
    char *pciPath;                   /* /sys path of the PCI function or NULL; plugin's own */
    uint64_t guid;                   /* the same for all ports and functions of one adapter */
    int ptrSupport;                  /* NCCL_PTR_ bits */
    int regIsGlobal;                 /* 1: a registration serves every comm of this device */
    int forceFlush;                  /* 1: flush even where NCCL thinks it needless */
    int speed;                       /* Mbit/s */
    int port;                        /* port number, from 1 where ports are numbered */
    float latency;                   /* microseconds; 0 lets NCCL's tuner use its own value */
    int maxComms;                    /* comms that may exist at a time */
    int maxRecvs;                    /* buffers in one grouped receive, 1 to 8 */
    ncclNetDeviceType netDeviceType; /* NCCL_NET_DEVICE_HOST without offload */
    int netDeviceVersion;            /* NCCL_NET_DEVICE_INVALID_VERSION without offload */
    ncclNetVDeviceProps_v9_t vProps; /* member devices; a physical device has only itself */
    size_t maxP2pBytes;              /* largest message of send/recv; <= NCCL_MAX_NET_SIZE_BYTES */
    size_t maxCollBytes;             /* largest message of a collective; same bound */
} ncclNetProperties_v9_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm,
                            ncclNetDeviceHandle_v9_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm,
                           ncclNetDeviceHandle_v9_t **recvDevComm);
    ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                                int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                          void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                          void **mhandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                           void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
    ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props);
} ncclNet_v9_t;

static_assert(sizeof(ncclNetVDeviceProps_v9_t) == 20, "ncclNetVDeviceProps_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, guid) == 16, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, ptrSupport) == 24, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, regIsGlobal) == 28, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, forceFlush) == 32, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, speed) == 36, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, port) == 40, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, latency) == 44, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, maxComms) == 48, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, maxRecvs) == 52, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, netDeviceType) == 56, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, netDeviceVersion) == 60, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, vProps) == 64, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, maxP2pBytes) == 88, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNetProperties_v9_t, maxCollBytes) == 96, "ncclNetProperties_v9_t");
static_assert(sizeof(ncclNetProperties_v9_t) == 104, "ncclNetProperties_v9_t");
static_assert(offsetof(ncclNet_v9_t, init) == 8, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, devices) == 16, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, getProperties) == 24, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, listen) == 32, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, connect) == 40, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, accept) == 48, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, regMr) == 56, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, regMrDmaBuf) == 64, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, deregMr) == 72, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, isend) == 80, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, irecv) == 88, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, iflush) == 96, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, test) == 104, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, closeSend) == 112, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, closeRecv) == 120, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, closeListen) == 128, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, getDeviceMr) == 136, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, irecvConsumed) == 144, "ncclNet_v9_t");
static_assert(offsetof(ncclNet_v9_t, makeVDevice) == 152, "ncclNet_v9_t");
static_assert(sizeof(ncclNet_v9_t) == 160, "ncclNet_v9_t");

#endif
