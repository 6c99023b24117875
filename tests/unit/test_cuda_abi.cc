// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* Our declarations of the CUDA driver API against cuda.h, where the CUDA Toolkit is installed. */
#include <gtest/gtest.h>
extern "C" {
#include "memory/cuda_abi.h"
#include "tests/gpu/lost_lane_api.h"
#include "tests/gpu/staging_api.h"
}

#if __has_include(<cuda.h>)
#include <cuda.h>

#include "tests/support/same_shape.h"

TEST(CudaAbi, ResultsAreThoseOfTheHeader)
{
    SAME(PVN_CU_SUCCESS, CUDA_SUCCESS);
    SAME(PVN_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
    SAME(PVN_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
    SAME(PVN_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
    SAME(PVN_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
    SAME(PVN_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
    SAME(PVN_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
    SAME(PVN_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
    SAME(PVN_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
    SAME(PVN_CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    SAME(PVN_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
    SAME(PVN_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
    SAME(PVN_CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
}

TEST(CudaAbi, AttributesAreThoseOfTheHeader)
{
    SAME(PVN_CU_DEV_CC_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    SAME(PVN_CU_DEV_CC_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    SAME(PVN_CU_DEV_GDR_WITH_VMM, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    SAME(PVN_CU_DEV_GDR_SUPPORTED, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
    SAME(PVN_CU_DEV_GDR_FLUSH_OPTS, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
    SAME(PVN_CU_DEV_GDR_ORDERING, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
    SAME(PVN_CU_DEV_DMA_BUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
    SAME(PVN_CU_PTR_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    SAME(PVN_CU_PTR_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    SAME(PVN_CU_PTR_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
    SAME(PVN_CU_PTR_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
    SAME(PVN_CU_PTR_GDR_CAPABLE, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE);
#if CUDA_VERSION >= 12000
    SAME(PVN_CU_PTR_BLOCK_ID, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
#endif
}

TEST(CudaAbi, SmallEnumsAreThoseOfTheHeader)
{
    SAME(PVN_CU_MEM_HOST, CU_MEMORYTYPE_HOST);
    SAME(PVN_CU_MEM_DEVICE, CU_MEMORYTYPE_DEVICE);
    SAME(PVN_CU_FLUSH_OPT_HOST, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
    SAME(PVN_CU_FLUSH_OPT_MEMOPS, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS);
    SAME(PVN_CU_ORDER_NONE, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE);
    SAME(PVN_CU_ORDER_OWNER, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
    SAME(PVN_CU_ORDER_ALL, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES);
    SAME(PVN_CU_FLUSH_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
    SAME(PVN_CU_FLUSH_TO_OWNER, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    SAME(PVN_CU_RANGE_DMA_BUF_FD, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
#if CUDA_VERSION >= 12080
    SAME(PVN_CU_RANGE_FLAG_PCIE, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);
#endif
    SAME(PVN_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
    SAME(PVN_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(sizeof(pvn_cu_ptr), sizeof(CUdeviceptr));
}

/* cuda.h names every function's newest version by a macro. If the plain name and a row's
 * versioned name are one function with the same shape, this compiles, and the row is right. */
TEST(CudaAbi, FunctionsHaveTheShapesOfTheHeader)
{
#define CHECK(name, member, optional, params)                                                      \
    EXPECT_TRUE((SameShape<decltype(pvn_cu_api::member), decltype(&name)>::value)) << #name;
    PVN_CU_ENTRIES(CHECK)
#undef CHECK
#define CHECK(name, member, optional, params)                                                      \
    EXPECT_TRUE((SameShape<decltype(st_cuda::member), decltype(&name)>::value)) << #name;
    ST_ENTRIES(CHECK)
#undef CHECK
#define CHECK(name, member, params)                                                                \
    EXPECT_TRUE((SameShape<decltype(ll_cuda::member), decltype(&name)>::value)) << #name;
    LL_ENTRIES(CHECK)
#undef CHECK
    EXPECT_TRUE(
        (std::is_same<decltype(&cuMemHostRegister), decltype(&cuMemHostRegister_v2)>::value));
}

TEST(CudaAbi, StagingMemorysConstantsAreThoseOfTheHeader)
{
    SAME(ST_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
    SAME(ST_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
    SAME(ST_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
    SAME(ST_HOST_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
    SAME(ST_MEM_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
    SAME(ST_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    SAME(ST_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    SAME(ST_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    SAME(ST_AT_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
#if CUDA_VERSION >= 12020
    SAME(ST_AT_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    SAME(ST_DEV_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
#endif
    EXPECT_EQ(sizeof(st_mem_prop), sizeof(CUmemAllocationProp));
    EXPECT_EQ(offsetof(st_mem_prop, location), offsetof(CUmemAllocationProp, location));
    EXPECT_EQ(offsetof(st_mem_prop, win32), offsetof(CUmemAllocationProp, win32HandleMetaData));
    EXPECT_EQ(offsetof(st_mem_prop, gdr_capable),
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
    EXPECT_EQ(sizeof(st_mem_access), sizeof(CUmemAccessDesc));
    EXPECT_EQ(offsetof(st_mem_access, flags), offsetof(CUmemAccessDesc, flags));
    EXPECT_EQ(sizeof(st_mem_handle), sizeof(CUmemGenericAllocationHandle));
}

TEST(CudaAbi, VersionedNamesAreTheNewest)
{
    EXPECT_TRUE((std::is_same<decltype(&cuMemAlloc), decltype(&cuMemAlloc_v2)>::value));
    EXPECT_TRUE(
        (std::is_same<decltype(&cuMemcpyHtoDAsync), decltype(&cuMemcpyHtoDAsync_v2)>::value));
    EXPECT_TRUE(
        (std::is_same<decltype(&cuMemcpyDtoHAsync), decltype(&cuMemcpyDtoHAsync_v2)>::value));
    EXPECT_TRUE((std::is_same<decltype(&cuStreamDestroy), decltype(&cuStreamDestroy_v2)>::value));
    EXPECT_TRUE((std::is_same<decltype(&cuMemFree), decltype(&cuMemFree_v2)>::value));
    EXPECT_TRUE(
        (std::is_same<decltype(&cuMemGetAddressRange), decltype(&cuMemGetAddressRange_v2)>::value));
    EXPECT_TRUE((std::is_same<decltype(&cuCtxPushCurrent), decltype(&cuCtxPushCurrent_v2)>::value));
    EXPECT_TRUE((std::is_same<decltype(&cuDevicePrimaryCtxRelease),
                              decltype(&cuDevicePrimaryCtxRelease_v2)>::value));
}

#else

TEST(CudaAbi, AgainstCudaHeader)
{
    GTEST_SKIP() << "cuda.h is not installed (CUDA Toolkit; configure --with-cuda=DIR)";
}

#endif
