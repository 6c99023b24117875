/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Our own declarations of the CUDA driver's functions that tests/gpu/staging.c calls, beside the
 * plugin's (memory/cuda_abi.h). They are facts of cuda.h 13.0. tests/unit/test_cuda_abi.cc
 * compares them with cuda.h if that is installed. */
#ifndef PVN_TESTS_STAGING_API_H
#define PVN_TESTS_STAGING_API_H

#include "memory/cuda_abi.h"

enum { ST_HOST_PORTABLE = 1, ST_HOST_MAPPED = 2 }; /* of cuMemHostAlloc and of cuMemHostRegister */
enum { ST_DEV_HOST_NUMA_ID = 134 };
enum { ST_MEM_PINNED = 1, ST_HANDLE_FD = 1, ST_ACCESS_READ_WRITE = 3, ST_GRANULARITY_MINIMUM = 0 };
enum { ST_AT_DEVICE = 1, ST_AT_HOST_NUMA = 3 };

struct st_location {
    int type, id;
};
struct st_mem_prop { /* CUmemAllocationProp */
    int type, handle_types;
    struct st_location location;
    void *win32;
    unsigned char compression, gdr_capable;
    unsigned short usage;
    unsigned char reserved[4];
};
struct st_mem_access { /* CUmemAccessDesc */
    struct st_location location;
    int flags;
};
typedef unsigned long long st_mem_handle;

/* Functions that staging needs, and functions without which it leaves out one kind of memory */
#define ST_ENTRIES(X)                                                                              \
    X(cuInit, init, 0, (unsigned))                                                                 \
    X(cuDeviceGetCount, device_count, 0, (int *))                                                  \
    X(cuDeviceGetAttribute, device_attr, 0, (int *, int, pvn_cu_device))                           \
    X(cuDevicePrimaryCtxRetain, primary_retain, 0, (pvn_cu_context *, pvn_cu_device))              \
    X(cuCtxSetCurrent, ctx_set, 0, (pvn_cu_context))                                               \
    X(cuMemHostAlloc, host_alloc, 0, (void **, size_t, unsigned))                                  \
    X(cuMemHostRegister_v2, host_register, 1, (void *, size_t, unsigned))                          \
    X(cuMemGetAllocationGranularity, granularity, 1, (size_t *, const struct st_mem_prop *, int))  \
    X(cuMemCreate, mem_create, 1,                                                                  \
      (st_mem_handle *, size_t, const struct st_mem_prop *, unsigned long long))                   \
    X(cuMemAddressReserve, reserve, 1,                                                             \
      (pvn_cu_ptr *, size_t, size_t, pvn_cu_ptr, unsigned long long))                              \
    X(cuMemMap, mem_map, 1, (pvn_cu_ptr, size_t, size_t, st_mem_handle, unsigned long long))       \
    X(cuMemSetAccess, set_access, 1, (pvn_cu_ptr, size_t, const struct st_mem_access *, size_t))

struct st_cuda {
#define ST_MEMBER(name, member, optional, params) pvn_cu_result(*member) params;
    ST_ENTRIES(ST_MEMBER)
#undef ST_MEMBER
};

#endif
