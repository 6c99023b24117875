/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL net plugin interface, version 4: NCCL 2.8 to 2.11; loaded up to 2.18.
 * Differs from all later ones: connect and accept may block until the peer is there, one buffer per
 * receive, no tags, a handle of NCCL_NET_HANDLE_MAXSIZE_V4 bytes.
 * Source: src/include/nccl_net.h of NCCL 2.10.3; plugins/net/example/nccl/net_v4.h of 2.30.7.
 */
#ifndef PVN_NCCL_NET_V4_H
#define PVN_NCCL_NET_V4_H

#include "nccl/types.h"

typedef struct {
    char *name;     /* name of the device, for logs; plugin's own */
    char *pciPath;  /* /sys path of the PCI function or NULL; plugin's own */
    uint64_t guid;  /* the same for all ports and functions of one adapter */
    int ptrSupport; /* NCCL_PTR_ bits */
    int speed;      /* Mbit/s */
    int port;       /* port number, from 1 where ports are numbered */
    int maxComms;   /* comms that may exist at a time */
} ncclNetProperties_v4_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v4_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm);
    ncclResult_t (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, int size, void *mhandle, void **request);
    ncclResult_t (*irecv)(void *recvComm, void *data, int size, void *mhandle, void **request);
    ncclResult_t (*iflush)(void *recvComm, void *data, int size, void *mhandle, void **request);
    ncclResult_t (*test)(void *request, int *done, int *size);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v4_t;

static_assert(offsetof(ncclNetProperties_v4_t, guid) == 16, "ncclNetProperties_v4_t");
static_assert(offsetof(ncclNetProperties_v4_t, ptrSupport) == 24, "ncclNetProperties_v4_t");
static_assert(offsetof(ncclNetProperties_v4_t, speed) == 28, "ncclNetProperties_v4_t");
static_assert(offsetof(ncclNetProperties_v4_t, port) == 32, "ncclNetProperties_v4_t");
static_assert(offsetof(ncclNetProperties_v4_t, maxComms) == 36, "ncclNetProperties_v4_t");
static_assert(sizeof(ncclNetProperties_v4_t) == 40, "ncclNetProperties_v4_t");
static_assert(offsetof(ncclNet_v4_t, init) == 8, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, devices) == 16, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, getProperties) == 24, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, listen) == 32, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, connect) == 40, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, accept) == 48, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, regMr) == 56, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, deregMr) == 64, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, isend) == 72, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, irecv) == 80, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, iflush) == 88, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, test) == 96, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, closeSend) == 104, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, closeRecv) == 112, "ncclNet_v4_t");
static_assert(offsetof(ncclNet_v4_t, closeListen) == 120, "ncclNet_v4_t");
static_assert(sizeof(ncclNet_v4_t) == 128, "ncclNet_v4_t");

#endif
