/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The part of the CUDA driver API that the shim uses, in our own declarations, because the plugin must
 * build without the CUDA Toolkit. Numbers and types are those of cuda.h (CUDA 13.0). A version beside a
 * number is the first one that has it. tests/unit/test_cuda_abi.cc compares all of them with cuda.h if it
 * is installed.
 *
 * Entry points are looked up by their exported, versioned names (cuMemAlloc_v2, not cuMemAlloc). A versioned
 * name of libcuda.so.1 never changes its parameters, so nothing here depends on the CUDA version that the
 * process was built with. */
#ifndef PVN_MEMORY_CUDA_ABI_H
#define PVN_MEMORY_CUDA_ABI_H

#include <stddef.h>

typedef int pvn_cu_result;             /* CUresult */
typedef int pvn_cu_device;             /* CUdevice: an ordinal after CUDA_VISIBLE_DEVICES */
typedef void *pvn_cu_context;          /* CUcontext */
typedef void *pvn_cu_stream;           /* CUstream */
typedef unsigned long long pvn_cu_ptr; /* CUdeviceptr on 64-bit machines */

enum {
    PVN_CU_SUCCESS = 0,
    PVN_CU_INVALID_VALUE = 1,
    PVN_CU_OUT_OF_MEMORY = 2,
    PVN_CU_NOT_INITIALIZED = 3,
    PVN_CU_DEINITIALIZED = 4,
    PVN_CU_STUB_LIBRARY = 34,
    PVN_CU_NO_DEVICE = 100,
    PVN_CU_INVALID_DEVICE = 101,
    PVN_CU_INVALID_CONTEXT = 201,
    PVN_CU_CONTEXT_IS_DESTROYED = 709,
    PVN_CU_NOT_PERMITTED = 800,
    PVN_CU_NOT_SUPPORTED = 801,
    PVN_CU_UNKNOWN = 999,
};

/* CUdevice_attribute */
enum {
    PVN_CU_DEV_CC_MAJOR = 75,
    PVN_CU_DEV_CC_MINOR = 76,
    PVN_CU_DEV_GDR_WITH_VMM = 110,   /* 11.0 */
    PVN_CU_DEV_GDR_SUPPORTED = 116,  /* 11.3 */
    PVN_CU_DEV_GDR_FLUSH_OPTS = 117, /* 11.3 */
    PVN_CU_DEV_GDR_ORDERING = 118,   /* 11.3 */
    PVN_CU_DEV_DMA_BUF = 124,        /* 11.7 */
};

/* CUpointer_attribute */
enum {
    PVN_CU_PTR_MEMORY_TYPE = 2,
    PVN_CU_PTR_BUFFER_ID = 7,
    PVN_CU_PTR_IS_MANAGED = 8,
    PVN_CU_PTR_DEVICE_ORDINAL = 9,
    /* An older driver may return INVALID_VALUE for these two. */
    PVN_CU_PTR_GDR_CAPABLE = 15,
    PVN_CU_PTR_BLOCK_ID = 20,
};

enum { PVN_CU_MEM_HOST = 1, PVN_CU_MEM_DEVICE = 2 }; /* CUmemorytype */
/* CUflushGPUDirectRDMAWritesOptions */
enum { PVN_CU_FLUSH_OPT_HOST = 1, PVN_CU_FLUSH_OPT_MEMOPS = 2 };
/* CUGPUDirectRDMAWritesOrdering */
enum { PVN_CU_ORDER_NONE = 0, PVN_CU_ORDER_OWNER = 100, PVN_CU_ORDER_ALL = 200 };
enum { PVN_CU_FLUSH_TARGET_CURRENT_CTX = 0, PVN_CU_FLUSH_TO_OWNER = 100 };
enum { PVN_CU_RANGE_DMA_BUF_FD = 1, PVN_CU_RANGE_FLAG_PCIE = 1 }; /* 11.7; the flag 12.8 */
enum { PVN_CU_CAPTURE_RELAXED = 2 };                              /* CUstreamCaptureMode */
enum { PVN_CU_STREAM_NON_BLOCKING = 1 };                          /* CUstream_flags */
enum { PVN_CU_HOST_PORTABLE = 1 }; /* CU_MEMHOSTALLOC_PORTABLE: pinned for every context */

/* One row per entry point: exported name, member, 1 if an older driver may lack it, parameters. The first
 * versions of those: cuFlushGPUDirectRDMAWrites 11.3, cuMemGetHandleForAddressRange 11.7. */
#define PVN_CU_ENTRIES(X)                                                                          \
    X(cuDriverGetVersion, driver_version, 0, (int *))                                              \
    X(cuGetErrorName, error_name, 0, (pvn_cu_result, const char **))                               \
    X(cuDeviceGetCount, device_count, 0, (int *))                                                  \
    X(cuDeviceGetAttribute, device_attr, 0, (int *, int, pvn_cu_device))                           \
    X(cuDeviceGetName, device_name, 0, (char *, int, pvn_cu_device))                               \
    X(cuDeviceGetPCIBusId, bus_id, 0, (char *, int, pvn_cu_device))                                \
    X(cuCtxGetCurrent, ctx_current, 0, (pvn_cu_context *))                                         \
    X(cuCtxGetDevice, ctx_device, 0, (pvn_cu_device *))                                            \
    X(cuCtxPushCurrent_v2, ctx_push, 0, (pvn_cu_context))                                          \
    X(cuCtxPopCurrent_v2, ctx_pop, 0, (pvn_cu_context *))                                          \
    X(cuDevicePrimaryCtxGetState, primary_state, 0, (pvn_cu_device, unsigned *, int *))            \
    X(cuDevicePrimaryCtxRetain, primary_retain, 0, (pvn_cu_context *, pvn_cu_device))              \
    X(cuDevicePrimaryCtxRelease_v2, primary_release, 0, (pvn_cu_device))                           \
    X(cuPointerGetAttribute, pointer_attr, 0, (void *, int, pvn_cu_ptr))                           \
    X(cuPointerGetAttributes, pointer_attrs, 0, (unsigned, int *, void **, pvn_cu_ptr))            \
    X(cuMemGetAddressRange_v2, address_range, 0, (pvn_cu_ptr *, size_t *, pvn_cu_ptr))             \
    X(cuMemAlloc_v2, mem_alloc, 0, (pvn_cu_ptr *, size_t))                                         \
    X(cuMemFree_v2, mem_free, 0, (pvn_cu_ptr))                                                     \
    X(cuMemHostAlloc, host_alloc, 0, (void **, size_t, unsigned))                                  \
    X(cuMemFreeHost, host_free, 0, (void *))                                                       \
    X(cuThreadExchangeStreamCaptureMode, capture_mode, 0, (int *))                                 \
    X(cuStreamCreate, stream_create, 0, (pvn_cu_stream *, unsigned))                               \
    X(cuStreamDestroy_v2, stream_destroy, 0, (pvn_cu_stream))                                      \
    X(cuStreamSynchronize, stream_wait, 0, (pvn_cu_stream))                                        \
    X(cuMemcpyHtoDAsync_v2, copy_in, 0, (pvn_cu_ptr, const void *, size_t, pvn_cu_stream))         \
    X(cuMemcpyDtoHAsync_v2, copy_out, 0, (void *, pvn_cu_ptr, size_t, pvn_cu_stream))              \
    X(cuFlushGPUDirectRDMAWrites, flush_writes, 1, (int, int))                                     \
    X(cuMemGetHandleForAddressRange, range_handle, 1,                                              \
      (void *, pvn_cu_ptr, size_t, int, unsigned long long))

struct pvn_cu_api {
#define PVN_CU_MEMBER(name, member, optional, params) pvn_cu_result(*member) params;
    PVN_CU_ENTRIES(PVN_CU_MEMBER)
#undef PVN_CU_MEMBER
};

#endif
