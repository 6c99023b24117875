// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* nccl_check's declarations of NCCL's and of the CUDA driver's API against nccl.h and cuda.h, where
 * they are installed. */
#include <gtest/gtest.h>
extern "C" {
#include "gpu/nccl_api.h"
}

#if __has_include(<nccl.h>) && __has_include(<cuda.h>) && __has_include(<cuda_runtime.h>)
#include <cuda.h>
#include <nccl.h>

#include "tests/support/same_shape.h"

TEST(NcclAbi, ValuesAreThoseOfTheHeader)
{
    SAME(NC_SUCCESS, ncclSuccess);
    SAME(NC_SYSTEM_ERROR, ncclSystemError);
    SAME(NC_REMOTE_ERROR, ncclRemoteError);
    SAME(NC_IN_PROGRESS, ncclInProgress);
    SAME(NC_SUM, ncclSum);
    SAME(NC_FLOAT32, ncclFloat32);
    SAME(NC_BFLOAT16, ncclBfloat16);
    SAME(NC_CU_NOT_READY, CUDA_ERROR_NOT_READY);
    SAME(NC_CU_SCHED_BLOCKING, CU_CTX_SCHED_BLOCKING_SYNC);
    EXPECT_EQ(sizeof(nc_id), sizeof(ncclUniqueId));
}

TEST(NcclAbi, FunctionsHaveTheShapesOfTheHeader)
{
#define CHECK_NC(name, member, params)                                                             \
    EXPECT_TRUE((SameShape<decltype(nc_nccl::member), decltype(&name)>::value)) << #name;
    NC_NCCL_ENTRIES(CHECK_NC)
#define CHECK_CU(name, member, params)                                                             \
    EXPECT_TRUE((SameShape<decltype(nc_cuda::member), decltype(&name)>::value)) << #name;
    NC_CUDA_ENTRIES(CHECK_CU)
}

#else

TEST(NcclAbi, AgainstNcclHeader)
{
    GTEST_SKIP() << "nccl.h, cuda.h or cuda_runtime.h is not installed (configure --with-cuda=DIR)";
}

#endif
