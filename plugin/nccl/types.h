/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Types that all versions of NCCL's network plugin interface share: result codes, log levels, pointer
 * kinds, limits and the callbacks that NCCL passes to a plugin.
 *
 * These are the plugin's own declarations of a binary interface. Names are NCCL's, so that its documentation
 * and sources can be searched for them. Values and layouts are those of NCCL 2.30.7
 * (src/include/nccl_common.h, src/include/plugin/nccl_net.h, plugins/net/example/nccl/). If a limit has changed
 * over time, the release is named beside it. Each net_vN.h checks its layouts with static assertions, which
 * hold for every LP64 machine; NCCL is built for no other kind.
 */
#ifndef PVN_NCCL_TYPES_H
#define PVN_NCCL_TYPES_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

static_assert(sizeof(void *) == 8 && sizeof(int) == 4 && sizeof(float) == 4,
              "NCCL's plugin interface is defined for LP64 machines only");

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6
} ncclResult_t;

typedef enum {
    NCCL_LOG_NONE = 0,
    NCCL_LOG_VERSION = 1,
    NCCL_LOG_WARN = 2,
    NCCL_LOG_INFO = 3,
    NCCL_LOG_ABORT = 4,
    NCCL_LOG_TRACE = 5
} ncclDebugLogLevel;

/* Bits of the logger's `flags`. NCCL drops INFO lines whose bits are not in NCCL_DEBUG_SUBSYS. */
typedef enum {
    NCCL_INIT = 0x1,
    NCCL_COLL = 0x2,
    NCCL_P2P = 0x4,
    NCCL_SHM = 0x8,
    NCCL_NET = 0x10,
    NCCL_GRAPH = 0x20,
    NCCL_TUNING = 0x40,
    NCCL_ENV = 0x80,
    NCCL_ALLOC = 0x100,
    NCCL_CALL = 0x200,
    NCCL_PROXY = 0x400,
    NCCL_NVLS = 0x800,
    NCCL_BOOTSTRAP = 0x1000,
    NCCL_REG = 0x2000,
    NCCL_PROFILE = 0x4000,
    NCCL_RAS = 0x8000,
    NCCL_DESTROY = 0x10000,
    NCCL_ALLOC_HOST = 0x20000,
    NCCL_ALL = ~0
} ncclDebugLogSubSys;

/*
 * NCCL's logger, valid until the process ends. It may be called from any thread. `file` is the name of a function
 * or file, `line` a line number. `fmt` has no newline at its end. ncclGetLastError() returns the text of the last
 * WARN.
 */
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                  int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Kinds of memory: values of regMr's argument `type`, and bits of the property ptrSupport. */
#define NCCL_PTR_HOST   0x1
#define NCCL_PTR_CUDA   0x2
#define NCCL_PTR_DMABUF 0x4

/*
 * Bytes of the handle that listen fills in and NCCL passes to the other rank: 64 up to NCCL 2.11, the last release
 * whose newest version was v4, and 128 since 2.12 (v5). A newer NCCL passes the larger buffer to an old plugin,
 * too, so a handle of 64 bytes fits everywhere.
 */
#define NCCL_NET_HANDLE_MAXSIZE    128
#define NCCL_NET_HANDLE_MAXSIZE_V4 64

/*
 * Requests in flight per comm. 8 in v4 to v6, 32 since v7 (NCCL 2.19). Since v5 one request may be
 * a grouped receive of up to maxRecvs buffers; NCCL's own InfiniBand transport offers 8 of them.
 */
#define NCCL_NET_MAX_REQUESTS    32
#define NCCL_NET_MAX_REQUESTS_V6 8

/* Upper bound of the properties maxP2pBytes and maxCollBytes (v9 on): 1 TiB. */
#define NCCL_MAX_NET_SIZE_BYTES (1024L * 1024 * 1024 * 1024)
/* NCCL's assumption for a plugin below v9, which has no such properties (nccl_net.h of 2.30.7). */
#define NCCL_NET_MAX_SIZE_OLD (1024L * 1024 * 1024)

/*
 * Value of *request on entry to irecv (since v9): NCCL needs no completion of this receive, because the data contain
 * flags (protocols LL and LL128). NCCL still tests the request, which the plugin may complete at any time
 * (src/transport/net.cc of 2.30.7, recvProxyProgress).
 */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1
/* Flag of isend and irecv (v12): the call belongs to a group that NCCL posts together. It is only a hint and does not
 * change what the call has to do. */
#define NCCL_NET_MULTI_REQUEST 0x2

/* Device offload (since v7). A plugin without it returns HOST with the invalid version. */
typedef enum {
    NCCL_NET_DEVICE_HOST = 0,
    NCCL_NET_DEVICE_UNPACK = 1,
    NCCL_NET_DEVICE_GIN_PROXY = 2,
    NCCL_NET_DEVICE_GIN_GDAKI = 3,
    NCCL_NET_DEVICE_GIN_GPI = 4
} ncclNetDeviceType;

#define NCCL_NET_DEVICE_INVALID_VERSION 0x0

/* Filled in by connect and accept of a plugin with device offload; v7 to v12 have the same layout. */
typedef struct {
    ncclNetDeviceType netDeviceType;
    int netDeviceVersion;
    void *handle;
    size_t size;
    int needsProxyProgress;
} ncclNetDeviceHandle_v7_t;

typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v8_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v9_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v10_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v11_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v12_t;

static_assert(sizeof(ncclNetDeviceHandle_v7_t) == 32, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(ncclNetDeviceHandle_v7_t, handle) == 8, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(ncclNetDeviceHandle_v7_t, size) == 16, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(ncclNetDeviceHandle_v7_t, needsProxyProgress) == 24,
              "ncclNetDeviceHandle_v7_t");

/* `type` of the profiler callback. */
enum {
    ncclProfilerNetEventStart = 0,
    ncclProfilerNetEventStop = 1,
    ncclProfilerNetEventUpdate = 2,
    ncclProfilerNetEventUpdateAndStop = 3
};

/*
 * NCCL's profiler callback (since v10); NULL if no profiler is loaded. `phandle` is the argument of isend or irecv.
 * `pluginId` identifies the layout of `extData` (kind << 16 | version; NCCL's profilers know the kinds 1, InfiniBand,
 * and 2, sockets). Start sets *eHandle, which Update and Stop of the same event pass again.
 */
typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *phandle,
                                               int64_t pluginId, void *extData);

/* The user has chosen no traffic class for this communicator (since v10). */
#define NCCL_NET_TRAFFIC_CLASS_UNDEF -1
/* This field of setNetAttr has no value (since v11). */
#define NCCL_NET_ATTR_UNDEF -1
/* railId or planeId is not known (v12). */
#define NCCL_NET_ID_UNDEF -1

/* Maximum of devices in one virtual device. */
#define NCCL_NET_MAX_DEVS_PER_NIC_V9  4
#define NCCL_NET_MAX_DEVS_PER_NIC_V10 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V11 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V12 8

#endif
