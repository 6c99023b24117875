/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Our own declarations of the CUDA driver's functions that lost_lane calls. They are facts of
 * cuda.h 13.0. tests/unit/test_cuda_abi.cc compares them with cuda.h if that is installed. */
#ifndef PVN_TESTS_LOST_LANE_API_H
#define PVN_TESTS_LOST_LANE_API_H

#include "memory/cuda_abi.h"

#define LL_ENTRIES(X)                                                                              \
    X(cuInit, init, (unsigned))                                                                    \
    X(cuDeviceGetCount, device_count, (int *))                                                     \
    X(cuDevicePrimaryCtxRetain, retain, (pvn_cu_context *, pvn_cu_device))                         \
    X(cuCtxSetCurrent, set, (pvn_cu_context))                                                      \
    X(cuCtxGetCurrent, current, (pvn_cu_context *))                                                \
    X(cuCtxSynchronize, sync, (void))                                                              \
    X(cuMemAlloc_v2, alloc, (pvn_cu_ptr *, size_t))                                                \
    X(cuMemcpyHtoD_v2, to_device, (pvn_cu_ptr, const void *, size_t))                              \
    X(cuMemcpyDtoH_v2, to_host, (void *, pvn_cu_ptr, size_t))                                      \
    X(cuMemsetD8_v2, set_bytes, (pvn_cu_ptr, unsigned char, size_t))                               \
    X(cuPointerGetAttribute, attribute, (void *, int, pvn_cu_ptr))                                 \
    X(cuMemGetAddressRange_v2, range, (pvn_cu_ptr *, size_t *, pvn_cu_ptr))                        \
    X(cuMemGetHandleForAddressRange, export_fd,                                                    \
      (void *, pvn_cu_ptr, size_t, int, unsigned long long))

struct ll_cuda {
#define LL_MEMBER(name, member, params) pvn_cu_result(*member) params;
    LL_ENTRIES(LL_MEMBER)
#undef LL_MEMBER
};

#endif
