/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Types that all versions of NCCL's network plugin interface share: result codes, log levels, pointer
 * kinds, limits and the callbacks NCCL hands to a plugin.
 *
 * Our own declarations of a binary interface. Names are NCCL's, so that its documentation and
 * sources can be searched for them; values and layouts were taken from NCCL 2.30.7
 * (src/include/nccl_common.h, src/include/plugin/nccl_net.h, plugins/net/example/nccl/) and, where
 * a limit changed over time, from the release named beside it. Each net_vN.h pins its layouts with
 * static assertions; they hold for every LP64 machine, the only kind NCCL is built for.
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

/* Bits of the logger's `flags`; NCCL drops INFO lines whose bits are not in NCCL_DEBUG_SUBSYS. */
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
 * NCCL's logger, valid until the process ends. `file` is a function or file name, `line` its line;
 * no newline at the end of `fmt`. It may be called from any thread. NCCL stores the text of the
 * last WARN as ncclGetLastError()'s answer.
 */
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                  int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Kinds of memory: of the `type` argument of regMr, and as bits of the property ptrSupport. */
#define NCCL_PTR_HOST   0x1
#define NCCL_PTR_CUDA   0x2
#define NCCL_PTR_DMABUF 0x4

/*
 * Bytes of the handle that listen fills and NCCL carries to the other rank. 64 up to NCCL 2.11, the
 * last release whose newest version was v4; 128 since 2.12 (v5). A newer NCCL gives an old plugin
 * the larger room, so 64 is what fits everywhere.
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
/* NCCL's assumption for a plugin below v9, which cannot say (nccl_net.h of 2.30.7). */
#define NCCL_NET_MAX_SIZE_OLD (1024L * 1024 * 1024)

/*
 * Value of *request on entry to irecv (v9 on): NCCL needs no completion of this receive, since the
 * data carries its own flags (protocols LL and LL128). It will still test the request; the plugin
 * may answer as soon as it likes (src/transport/net.cc of 2.30.7, recvProxyProgress).
 */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1
/* Flag of isend and irecv (v12): the call is one of a group that NCCL posts together. A hint,
 * which changes nothing in what the call has to do. */
#define NCCL_NET_MULTI_REQUEST 0x2

/* Device offload (v7 on). A plugin without it says HOST with the invalid version. */
typedef enum {
    NCCL_NET_DEVICE_HOST = 0,
    NCCL_NET_DEVICE_UNPACK = 1,
    NCCL_NET_DEVICE_GIN_PROXY = 2,
    NCCL_NET_DEVICE_GIN_GDAKI = 3,
    NCCL_NET_DEVICE_GIN_GPI = 4
} ncclNetDeviceType;

#define NCCL_NET_DEVICE_INVALID_VERSION 0x0

/* Filled by connect and accept of a plugin with device offload; the same in v7 to v12. */
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
 * NCCL's profiler callback (v10 on); NULL when no profiler is loaded. `phandle` is what isend or
 * irecv was given; `pluginId` names the layout of `extData` (kind << 16 | version; NCCL's profilers
 * know 1 = InfiniBand and 2 = sockets); *eHandle ties Update and Stop to their Start.
 */
typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *phandle,
                                               int64_t pluginId, void *extData);

/* NCCL_NET_TRAFFIC_CLASS_UNDEF: the user chose no traffic class for this communicator (v10 on). */
#define NCCL_NET_TRAFFIC_CLASS_UNDEF -1
/* NCCL_NET_ATTR_UNDEF: this field of setNetAttr says nothing (v11 on). */
#define NCCL_NET_ATTR_UNDEF -1
/* NCCL_NET_ID_UNDEF: railId or planeId is not known (v12). */
#define NCCL_NET_ID_UNDEF -1

/* Devices that one virtual device may join. */
#define NCCL_NET_MAX_DEVS_PER_NIC_V9  4
#define NCCL_NET_MAX_DEVS_PER_NIC_V10 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V11 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V12 8

#endif
