// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The double of libcudart.so.13, as far as it can be tested without NCCL: memory, streams,
 * events, launches */
#include <gtest/gtest.h>

#ifdef PVN_HAVE_CUDART
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "tests/support/paths.h"

extern "C" void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *,
                                       void *, void *, void *, int *);

namespace
{

char add_one, unknown; /* kernels are known by the address of a host function */

class Cudart : public testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        setenv("CUDART_DOUBLE_PLAYER", PVN_BUILDDIR "/tests/nccl/.libs/libtestplayer.so", 1);
        __cudaRegisterFunction(nullptr, &add_one, nullptr, "add_one", 0, nullptr, nullptr, nullptr,
                               nullptr, nullptr);
        __cudaRegisterFunction(nullptr, &unknown, nullptr, "no_such_kernel", 0, nullptr, nullptr,
                               nullptr, nullptr, nullptr);
    }
    void SetUp() override
    {
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        ASSERT_EQ(cudaMalloc(&memory, sizeof(int)), cudaSuccess);
    }
    void TearDown() override
    {
        EXPECT_EQ(cudaFree(memory), cudaSuccess);
        EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
    /* Launches KERNEL by the driver's call that NCCL uses, with a pointer as its argument. */
    CUresult launch(void *kernel, int *argument)
    {
        typedef CUresult (*launch_t)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, CUstream, void **, void **);
        void *f = nullptr;
        cudaDriverEntryPointQueryResult found;
        EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &f, 12000, 0, &found),
                  cudaSuccess);
        size_t bytes = sizeof argument;
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &argument, CU_LAUNCH_PARAM_BUFFER_SIZE,
                         &bytes, CU_LAUNCH_PARAM_END};
        return reinterpret_cast<launch_t>(f)(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1,
                                             1, 0, stream, nullptr, extra);
    }
    /* Holds the stream until *open. */
    static void wait_until(void *open)
    {
        while (!*static_cast<std::atomic<bool> *>(open))
            usleep(100);
    }
    static void set(void *flag)
    {
        *static_cast<std::atomic<bool> *>(flag) = true;
    }
    cudaStream_t stream = nullptr;
    void *memory = nullptr;
};

using CudartDeath = Cudart;

} // namespace

TEST_F(Cudart, DeviceMemoryIsNotZeroAndIsKnown)
{
    EXPECT_EQ(*static_cast<unsigned char *>(memory), 0xd5);
    cudaPointerAttributes a;
    ASSERT_EQ(cudaPointerGetAttributes(&a, static_cast<char *>(memory) + 3), cudaSuccess);
    EXPECT_EQ(a.type, cudaMemoryTypeDevice);
    ASSERT_EQ(cudaPointerGetAttributes(&a, &a), cudaSuccess);
    EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
}

TEST_F(Cudart, FreeingByTheWrongFunctionFails)
{
    void *host = nullptr;
    ASSERT_EQ(cudaHostAlloc(&host, 4096, 0), cudaSuccess);
    EXPECT_EQ(cudaFree(host), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(host), cudaErrorInvalidValue);
}

TEST_F(Cudart, PinnedHostMemoryStaysInSmallPages)
{
    const size_t huge = size_t(2) << 20;
    const int collapse = 25; /* MADV_COLLAPSE, Linux 6.1 */
    void *host;
    setenv("CUDART_DOUBLE_PINNED", "1", 1);
    ASSERT_EQ(cudaHostAlloc(&host, huge, 0), cudaSuccess);
    unsetenv("CUDART_DOUBLE_PINNED");
    memset(host, 1, huge);
    EXPECT_EQ(madvise(host, huge, collapse), -1);
    EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(CudartDeath, FreedMemoryAndThePageBehindMemoryAreForbidden)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    long page = sysconf(_SC_PAGESIZE);
    void *p = nullptr;
    ASSERT_EQ(cudaMalloc(&p, page), cudaSuccess);
    volatile char *c = static_cast<char *>(p);
    EXPECT_DEATH(c[page] = 1, "");
    ASSERT_EQ(cudaFree(p), cudaSuccess);
    EXPECT_DEATH(c[0] = 1, "");
}

TEST_F(Cudart, AStreamExecutesInOrderAndInTheBackground)
{
    std::atomic<bool> open{false};
    int one = 1, two = 2;
    ASSERT_EQ(cudaLaunchHostFunc(stream, wait_until, &open), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(memory, &one, sizeof one, cudaMemcpyDefault, stream), cudaSuccess);
    one = 7; /* pageable memory is read at the call */
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    ASSERT_EQ(launch(&add_one, static_cast<int *>(memory)), CUDA_SUCCESS);
    open = true;
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
    EXPECT_EQ(*static_cast<int *>(memory), two);
}

TEST_F(Cudart, AnEventOrdersTwoStreams)
{
    std::atomic<bool> open{false}, reached{false};
    cudaStream_t other;
    cudaEvent_t event;
    ASSERT_EQ(cudaStreamCreate(&other), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(memory, 0, sizeof(int), stream), cudaSuccess);
    ASSERT_EQ(cudaLaunchHostFunc(stream, set, &reached), cudaSuccess);
    ASSERT_EQ(cudaLaunchHostFunc(stream, wait_until, &open), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(memory, 1, sizeof(int), other), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
    wait_until(&reached);
    EXPECT_EQ(*static_cast<volatile char *>(memory), 0);
    open = true;
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
    EXPECT_EQ(*static_cast<char *>(memory), 1);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorInvalidResourceHandle);
}

TEST_F(Cudart, AKernelThatNobodyCanPlayIsAnErrorOfItsStream)
{
    testing::internal::CaptureStderr();
    ASSERT_EQ(launch(&unknown, static_cast<int *>(memory)), CUDA_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorLaunchFailure);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("kernel no_such_kernel cannot be played"),
              std::string::npos);
}

TEST_F(Cudart, AnUnregisteredKernelIsRefusedAtTheLaunch)
{
    char never_registered;
    EXPECT_EQ(launch(&never_registered, nullptr), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
}

TEST_F(CudartDeath, WithoutAPlayerAKernelIsRefusedByName)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            setenv("CUDART_DOUBLE_PLAYER", "/nonexistent/player.so", 1);
            exit(launch(&add_one, static_cast<int *>(memory)) == CUDA_SUCCESS ? 1 : 0);
        },
        testing::ExitedWithCode(0), "kernel add_one is refused: there is no player");
}

TEST_F(Cudart, WhatIsMissingIsReportedByName)
{
    testing::internal::CaptureStderr();
    EXPECT_EQ(cudaUserObjectCreate(nullptr, nullptr, nullptr, 0, 0), cudaErrorNotSupported);
    EXPECT_NE(
        testing::internal::GetCapturedStderr().find("cudaUserObjectCreate: not in this double"),
        std::string::npos);
    void *f = &f;
    cudaDriverEntryPointQueryResult found;
    ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuMemCreate", &f, 12000, 0, &found), cudaSuccess);
    EXPECT_EQ(f, nullptr);
    EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
}

#else

TEST(Cudart, NeedsCudaHeaders)
{
    GTEST_SKIP() << "no headers of CUDA 13's runtime (configure --with-cuda=DIR)";
}

#endif
