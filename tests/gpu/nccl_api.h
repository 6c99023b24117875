/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Our own declarations of the parts of NCCL's and the CUDA driver's API that nccl_check calls. It
 * is built where neither is installed, and finds both at run time. They are facts of nccl.h
 * 2.28.9 (unchanged since 2.10) and cuda.h 13.0. tests/unit/test_nccl_abi.cc compares them with
 * the headers if nccl.h, cuda.h and cuda_runtime.h are installed. */
#ifndef PVN_TESTS_NCCL_API_H
#define PVN_TESTS_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

#include "memory/cuda_abi.h"

typedef int nc_result; /* ncclResult_t */
typedef void *nc_comm; /* ncclComm_t */
typedef void *nc_stream;
typedef struct {
    char bytes[128];
} nc_id; /* ncclUniqueId, passed by value */

enum { NC_SUCCESS = 0, NC_SYSTEM_ERROR = 2, NC_REMOTE_ERROR = 6, NC_IN_PROGRESS = 7 };
enum { NC_SUM = 0 };
enum { NC_FLOAT32 = 7, NC_BFLOAT16 = 9 };
enum { NC_CU_NOT_READY = 600, NC_CU_SCHED_BLOCKING = 4 };

#define NC_CUDA_ENTRIES(X)                                                                         \
    X(cuInit, init, (unsigned))                                                                    \
    X(cuGetErrorName, error_name, (pvn_cu_result, const char **))                                  \
    X(cuDriverGetVersion, driver_version, (int *))                                                 \
    X(cuDeviceGetCount, device_count, (int *))                                                     \
    X(cuDeviceGetName, device_name, (char *, int, pvn_cu_device))                                  \
    X(cuDevicePrimaryCtxSetFlags_v2, primary_flags, (pvn_cu_device, unsigned))                     \
    X(cuDevicePrimaryCtxRetain, primary_retain, (pvn_cu_context *, pvn_cu_device))                 \
    X(cuCtxSetCurrent, ctx_set, (pvn_cu_context))                                                  \
    X(cuMemAlloc_v2, mem_alloc, (pvn_cu_ptr *, size_t))                                            \
    X(cuMemFree_v2, mem_free, (pvn_cu_ptr))                                                        \
    X(cuMemAllocHost_v2, host_alloc, (void **, size_t))                                            \
    X(cuMemcpyHtoD_v2, copy_in, (pvn_cu_ptr, const void *, size_t))                                \
    X(cuMemcpyDtoH_v2, copy_out, (void *, pvn_cu_ptr, size_t))                                     \
    X(cuMemsetD8_v2, set_bytes, (pvn_cu_ptr, unsigned char, size_t))                               \
    X(cuCtxSynchronize, ctx_sync, (void))                                                          \
    X(cuStreamCreate, stream_create, (nc_stream *, unsigned))                                      \
    X(cuStreamQuery, stream_query, (nc_stream))                                                    \
    X(cuStreamSynchronize, stream_sync, (nc_stream))

#define NC_NCCL_ENTRIES(X)                                                                         \
    X(ncclGetVersion, version, (int *))                                                            \
    X(ncclGetUniqueId, get_id, (nc_id *))                                                          \
    X(ncclCommInitRank, comm_init, (nc_comm *, int, nc_id, int))                                   \
    X(ncclCommDestroy, comm_destroy, (nc_comm))                                                    \
    X(ncclCommAbort, comm_abort, (nc_comm))                                                        \
    X(ncclCommGetAsyncError, async_error, (nc_comm, nc_result *))                                  \
    X(ncclAllReduce, all_reduce, (const void *, void *, size_t, int, int, nc_comm, nc_stream))     \
    X(ncclBroadcast, broadcast, (const void *, void *, size_t, int, int, nc_comm, nc_stream))      \
    X(ncclReduceScatter, reduce_scatter,                                                           \
      (const void *, void *, size_t, int, int, nc_comm, nc_stream))                                \
    X(ncclAllGather, all_gather, (const void *, void *, size_t, int, nc_comm, nc_stream))          \
    X(ncclSend, send, (const void *, size_t, int, int, nc_comm, nc_stream))                        \
    X(ncclRecv, recv, (void *, size_t, int, int, nc_comm, nc_stream))                              \
    X(ncclGroupStart, group_start, (void))                                                         \
    X(ncclGroupEnd, group_end, (void))

struct nc_cuda {
#define NC_MEMBER(name, member, params) pvn_cu_result(*member) params;
    NC_CUDA_ENTRIES(NC_MEMBER)
#undef NC_MEMBER
};

struct nc_nccl {
#define NC_MEMBER(name, member, params) nc_result(*member) params;
    NC_NCCL_ENTRIES(NC_MEMBER)
#undef NC_MEMBER
    const char *(*error_string)(nc_result);
};

#endif
