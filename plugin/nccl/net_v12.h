/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL net plugin interface, version 12: NCCL 2.30.
 * New since v11: eight instead of four devices in a virtual one; the properties railId and
 * planeId. Source: src/include/plugin/net/net_v12.h of NCCL 2.30.7.
 */
#ifndef PVN_NCCL_NET_V12_H
#define PVN_NCCL_NET_V12_H

#include "nccl/types.h"

typedef struct {
    int ndevs;
    int devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
} ncclNetVDeviceProps_v12_t;

/* trafficClass: chosen by the user (ncclConfig_t), or NCCL_NET_TRAFFIC_CLASS_UNDEF. */
typedef struct {
    int trafficClass;
} ncclNetCommConfig_v12_t;

typedef struct {
    char *name;                       /* name of the device, for logs; plugin's own */
    char *pciPath;                    /* /sys path of the PCI function or NULL; plugin's own */
    uint64_t guid;                    /* the same for all ports and functions of one adapter */
    int ptrSupport;                   /* NCCL_PTR_ bits */
    int regIsGlobal;                  /* 1: a registration serves every comm of this device */
    int forceFlush;                   /* 1: flush even where NCCL thinks it needless */
    int speed;                        /* Mbit/s */
    int port;                         /* port number, from 1 where ports are numbered */
    float latency;                    /* microseconds; 0 lets NCCL's tuner use its own value */
    int maxComms;                     /* comms that may exist at a time */
    int maxRecvs;                     /* buffers in one grouped receive, 1 to 8 */
    ncclNetDeviceType netDeviceType;  /* NCCL_NET_DEVICE_HOST without offload */
    int netDeviceVersion;             /* NCCL_NET_DEVICE_INVALID_VERSION without offload */
    ncclNetVDeviceProps_v12_t vProps; /* member devices; a physical device has only itself */
    size_t maxP2pBytes;               /* largest message of send/recv; <= NCCL_MAX_NET_SIZE_BYTES */
    size_t maxCollBytes;              /* largest message of a collective; same bound */
    int maxMultiRequestSize;          /* 1: no multi-requests */
    int16_t railId;                   /* rail, or NCCL_NET_ID_UNDEF */
    int16_t planeId;                  /* plane, or NCCL_NET_ID_UNDEF */
} ncclNetProperties_v12_t;

typedef struct {
    int32_t maxConcurrentPeers;
    int32_t minConcurrentPeers;
    int32_t maxFlowsPerPeer;
    int32_t minFlowsPerPeer;
} ncclNetCommAttr_v12_t;

/*
 * Hints on the traffic to come; every field may be NCCL_NET_ATTR_UNDEF. op, algo and proto are
 * masks of 1 << (NCCL's ncclFunc_t, NCCL_ALGO_*, NCCL_PROTO_*).
 */
typedef struct {
    ncclNetCommAttr_v12_t sendCommAttr;
    ncclNetCommAttr_v12_t recvCommAttr;
    uint32_t op;
    uint32_t algo;
    uint32_t proto;
} ncclNetAttr_v12_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_v12_t *config,
                         ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
    ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm,
                            ncclNetDeviceHandle_v12_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm,
                           ncclNetDeviceHandle_v12_t **recvDevComm);
    ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                                int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                          void *phandle, void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                          void **mhandles, void **phandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                           void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
    ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props);
    ncclResult_t (*finalize)(void *ctx);
    ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_v12_t *netAttr);
} ncclNet_v12_t;

static_assert(sizeof(ncclNetVDeviceProps_v12_t) == 36, "ncclNetVDeviceProps_v12_t");
static_assert(sizeof(ncclNetCommConfig_v12_t) == 4, "ncclNetCommConfig_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, guid) == 16, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, ptrSupport) == 24, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, regIsGlobal) == 28, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, forceFlush) == 32, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, speed) == 36, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, port) == 40, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, latency) == 44, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, maxComms) == 48, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, maxRecvs) == 52, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, netDeviceType) == 56, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, netDeviceVersion) == 60, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, vProps) == 64, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, maxP2pBytes) == 104, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, maxCollBytes) == 112, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, maxMultiRequestSize) == 120,
              "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, railId) == 124, "ncclNetProperties_v12_t");
static_assert(offsetof(ncclNetProperties_v12_t, planeId) == 126, "ncclNetProperties_v12_t");
static_assert(sizeof(ncclNetProperties_v12_t) == 128, "ncclNetProperties_v12_t");
static_assert(sizeof(ncclNetCommAttr_v12_t) == 16, "ncclNetCommAttr_v12_t");
static_assert(offsetof(ncclNetAttr_v12_t, op) == 32, "ncclNetAttr_v12_t");
static_assert(sizeof(ncclNetAttr_v12_t) == 44, "ncclNetAttr_v12_t");
static_assert(offsetof(ncclNet_v12_t, init) == 8, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, devices) == 16, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, getProperties) == 24, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, listen) == 32, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, connect) == 40, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, accept) == 48, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, regMr) == 56, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, regMrDmaBuf) == 64, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, deregMr) == 72, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, isend) == 80, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, irecv) == 88, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, iflush) == 96, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, test) == 104, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, closeSend) == 112, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, closeRecv) == 120, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, closeListen) == 128, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, getDeviceMr) == 136, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, irecvConsumed) == 144, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, makeVDevice) == 152, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, finalize) == 160, "ncclNet_v12_t");
static_assert(offsetof(ncclNet_v12_t, setNetAttr) == 168, "ncclNet_v12_t");
static_assert(sizeof(ncclNet_v12_t) == 176, "ncclNet_v12_t");

#endif
