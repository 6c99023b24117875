// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include "support/fakecuda_fixture.h"
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <map>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

static constexpr size_t kMiB = 1 << 20;

/* ---- finding the library ---- */

TEST(CudaOpen, ProcessWithoutCudaIsLeftAlone)
{
    pvn_cuda *cu = reinterpret_cast<pvn_cuda *>(1);
    pvn_err why = {};
    EXPECT_EQ(pvn_cuda_open(&cu, nullptr, &why), -ENOENT);
    EXPECT_EQ(cu, nullptr);
    EXPECT_STREQ(why.reason[0], "libcuda.so.1 is not loaded: this process does not use CUDA");
    EXPECT_EQ(pvn_cuda_open(&cu, "libcuda.so.1", &why), -ENOENT);
    EXPECT_EQ(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr) << "asking has loaded it";
    pvn_cuda_close(nullptr);
}

TEST(CudaOpen, AbsentFileIsNamed)
{
    pvn_cuda *cu = nullptr;
    pvn_err why = {};
    EXPECT_EQ(pvn_cuda_open(&cu, "/nonexistent/libcuda.so.1", &why), -ENOENT);
    EXPECT_NE(std::string(why.reason[0]).find("cannot load /nonexistent/libcuda.so.1"),
              std::string::npos)
        << why.reason[0];
    EXPECT_EQ(pvn_cuda_open(&cu, "/nonexistent/libcuda.so.1", nullptr), -ENOENT);
}

TEST(CudaOpen, MissingEntryPointIsNamed)
{
    pvn_cuda *cu = nullptr;
    pvn_err why = {};
    EXPECT_EQ(pvn_cuda_open(&cu, fakecuda_path("libcuda-broken").c_str(), &why), -ENOSYS);
    EXPECT_EQ(cu, nullptr);
    EXPECT_NE(std::string(why.reason[0]).find("lacks cuMemAlloc_v2"), std::string::npos)
        << why.reason[0];
    EXPECT_EQ(dlopen(fakecuda_path("libcuda-broken").c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr)
        << "left open";
}

TEST(CudaOpen, OldDriverLacksOnlyTheNewFunctions)
{
    pvn_cuda *cu = nullptr;
    pvn_err why = {};
    void *lib = dlopen(fakecuda_path("libcuda-old").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(lib, nullptr) << dlerror();
    auto fake = static_cast<const fakecuda_control *>(dlsym(lib, "fakecuda_control"));
    fake->init();
    fake->activate_primary(0, 1);
    fake->set_current(fake->primary(0));
    ASSERT_EQ(pvn_cuda_open(&cu, fakecuda_path("libcuda-old").c_str(), &why), 0) << why.reason[0];
    EXPECT_EQ(pvn_cuda_flush(cu, 0, &why), -EOPNOTSUPP);
    EXPECT_NE(std::string(why.reason[0]).find("11.3"), std::string::npos) << why.reason[0];
    int fd = 7;
    EXPECT_EQ(pvn_cuda_export(cu, 0, 0x10000, 0x10000, false, &fd, &why), -EOPNOTSUPP);
    EXPECT_NE(std::string(why.reason[0]).find("11.7"), std::string::npos) << why.reason[0];
    EXPECT_EQ(fd, -1);
    pvn_cuda_caps caps;
    ASSERT_EQ(pvn_cuda_query(cu, 0, &caps, &why), 0) << why.reason[0];
    EXPECT_FALSE(caps.has_flush);
    EXPECT_FALSE(caps.has_export);
    pvn_cuda_close(cu);
    dlclose(lib);
}

TEST_F(FakeCuda, FoundWithoutPathOnceTheProcessHasLoadedIt)
{
    pvn_cuda *second = nullptr;
    ASSERT_EQ(pvn_cuda_open(&second, nullptr, &why), 0) << why.reason[0];
    int n = 0;
    EXPECT_EQ(pvn_cuda_ready(second, &n, &why), 0) << why.reason[0];
    EXPECT_EQ(n, 3);
    pvn_cuda_close(second);
}

/* ---- a process that has not initialised CUDA ---- */

TEST_F(FakeCuda, NeverInitialisesCuda)
{
    fake->reset(nullptr, 0);
    int v = 0;
    EXPECT_EQ(pvn_cuda_driver_version(cu, &v, &why), 0);
    EXPECT_EQ(v, 13000);
    EXPECT_EQ(pvn_cuda_ready(cu, nullptr, &why), -ENODEV);
    EXPECT_STREQ(why.reason[0], "cuDeviceGetCount: CUDA is not initialised in this process");
    pvn_cuda_ptr p;
    EXPECT_EQ(pvn_cuda_pointer(cu, 0x1000, &p, &why), -ENODEV);
    EXPECT_EQ(pvn_cuda_flush(cu, 0, &why), -ENODEV);
    uint64_t addr, len;
    EXPECT_EQ(pvn_cuda_alloc(cu, 0, 65536, &addr, &why), -ENODEV);
    EXPECT_EQ(pvn_cuda_range(cu, 0, 0x1000, &addr, &len, &why), -ENODEV);
    EXPECT_EQ(fake->calls("cuInit"), 0);
}

TEST_F(FakeCuda, NoDeviceIsSaid)
{
    fake->reset(nullptr, 0);
    fake->init();
    EXPECT_EQ(pvn_cuda_ready(cu, nullptr, &why), -ENODEV);
    EXPECT_NE(std::string(why.reason[0]).find("CUDA_VISIBLE_DEVICES"), std::string::npos)
        << why.reason[0];
}

/* ---- devices ---- */

TEST_F(FakeCuda, BusIdsAreAsSysfsWritesThem)
{
    char id[PVN_CUDA_BUS_ID_LEN];
    ASSERT_EQ(pvn_cuda_bus_id(cu, 0, id, &why), 0) << why.reason[0];
    EXPECT_STREQ(id, "0000:0b:00.0");
    ASSERT_EQ(pvn_cuda_bus_id(cu, 2, id, &why), 0) << why.reason[0];
    EXPECT_STREQ(id, "0001:c3:00.0");
    EXPECT_EQ(pvn_cuda_bus_id(cu, 17, id, &why), -ENODEV);
}

TEST_F(FakeCuda, NonsenseBusIdIsAnError)
{
    const fakecuda_device odd = {"garbage", "Odd", 8, 0, 1, 1, 1, 1, 0};
    fake->reset(&odd, 1);
    fake->init();
    char id[PVN_CUDA_BUS_ID_LEN];
    EXPECT_EQ(pvn_cuda_bus_id(cu, 0, id, &why), -EIO);
    EXPECT_NE(std::string(why.reason[0]).find("garbage"), std::string::npos) << why.reason[0];
}

TEST_F(FakeCuda, CapsDistinguishUnknownFromNo)
{
    pvn_cuda_caps caps;
    ASSERT_EQ(pvn_cuda_query(cu, 0, &caps, &why), 0) << why.reason[0];
    EXPECT_STREQ(caps.name, "Fake A100");
    EXPECT_EQ(caps.cc_major, 8);
    EXPECT_EQ(caps.gdr, 1);
    EXPECT_EQ(caps.dma_buf, 1);
    EXPECT_EQ(caps.ordering, PVN_CU_ORDER_NONE);
    EXPECT_TRUE(caps.has_flush && caps.has_export);
    EXPECT_EQ(caps.driver, 13000);
    ASSERT_EQ(pvn_cuda_query(cu, 2, &caps, &why), 0);
    EXPECT_EQ(caps.gdr, 0);

    const fakecuda_device old = {"0000:0B:00.0", "Old", 7, 0, -1, -1, -1, -1, -1};
    fake->reset(&old, 1);
    fake->init();
    ASSERT_EQ(pvn_cuda_query(cu, 0, &caps, &why), 0);
    EXPECT_EQ(caps.gdr, -1);
    EXPECT_EQ(caps.gdr_vmm, -1);
    EXPECT_EQ(caps.dma_buf, -1);
    EXPECT_EQ(caps.flush_options, -1);
    EXPECT_EQ(caps.ordering, -1);
}

TEST_F(FakeCuda, CurrentDeviceNeedsAContext)
{
    int dev = -1;
    ASSERT_EQ(pvn_cuda_current_device(cu, &dev, &why), 0);
    EXPECT_EQ(dev, 0);
    fake->set_current(nullptr);
    EXPECT_EQ(pvn_cuda_current_device(cu, &dev, &why), -ENOTCONN);
}

/* ---- pointers and buffer ids ---- */

TEST_F(FakeCuda, KindsOfMemoryAreDistinguished)
{
    pvn_cuda_ptr p;
    uint64_t dev = fake->alloc(FAKECUDA_DEVICE, 1, kMiB, 512);
    ASSERT_EQ(pvn_cuda_pointer(cu, dev + 4097, &p, &why), 0) << why.reason[0];
    EXPECT_EQ(p.mem, PVN_CUDA_MEM_DEVICE);
    EXPECT_EQ(p.dev, 1);
    EXPECT_NE(p.buffer_id, 0u);
    EXPECT_NE(p.block_id, 0u);
    EXPECT_EQ(p.gdr_capable, 1);
    fake->set_gdr_capable(dev, 0);
    ASSERT_EQ(pvn_cuda_pointer(cu, dev, &p, &why), 0);
    EXPECT_EQ(p.gdr_capable, 0);

    uint64_t host = fake->alloc(FAKECUDA_HOST, 0, kMiB, 4096);
    ASSERT_EQ(pvn_cuda_pointer(cu, host, &p, &why), 0);
    EXPECT_EQ(p.mem, PVN_CUDA_MEM_HOST);
    uint64_t managed = fake->alloc(FAKECUDA_MANAGED, 0, kMiB, 4096);
    ASSERT_EQ(pvn_cuda_pointer(cu, managed, &p, &why), 0);
    EXPECT_EQ(p.mem, PVN_CUDA_MEM_MANAGED);
    int local = 0;
    ASSERT_EQ(pvn_cuda_pointer(cu, reinterpret_cast<uintptr_t>(&local), &p, &why), 0);
    EXPECT_EQ(p.mem, PVN_CUDA_MEM_UNKNOWN);
    EXPECT_EQ(p.dev, -1);
}

TEST_F(FakeCuda, OldDriverDoesNotSayBlockOrCapability)
{
    fake->set_driver_version(10020);
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512);
    pvn_cuda_ptr p;
    ASSERT_EQ(pvn_cuda_pointer(cu, a, &p, &why), 0) << why.reason[0];
    EXPECT_EQ(p.mem, PVN_CUDA_MEM_DEVICE);
    EXPECT_EQ(p.block_id, 0u);
    EXPECT_EQ(p.gdr_capable, -1);
}

TEST_F(FakeCuda, AReusedAddressHasAnotherBufferId)
{
    pvn_cuda_ptr before, after;
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512);
    ASSERT_EQ(pvn_cuda_pointer(cu, a, &before, &why), 0);
    fake->free(a);
    ASSERT_EQ(pvn_cuda_pointer(cu, a, &after, &why), 0);
    EXPECT_EQ(after.mem, PVN_CUDA_MEM_UNKNOWN);
    uint64_t b = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512);
    ASSERT_EQ(a, b) << "the double must give the address out again, or this test shows nothing";
    ASSERT_EQ(pvn_cuda_pointer(cu, b, &after, &why), 0);
    EXPECT_NE(before.buffer_id, after.buffer_id);
}

TEST_F(FakeCuda, PointerWithoutAContextIsRefused)
{
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512);
    fake->fail("cuPointerGetAttributes", 0, PVN_CU_INVALID_CONTEXT);
    pvn_cuda_ptr p;
    EXPECT_EQ(pvn_cuda_pointer(cu, a, &p, &why), -ENOTCONN);
    EXPECT_NE(std::string(why.reason[0]).find("no usable CUDA context"), std::string::npos)
        << why.reason[0];
}

TEST_F(FakeCuda, RangeOfAllocationAndOfSegment)
{
    uint64_t base, len;
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 3 * kMiB + 5, 512);
    ASSERT_EQ(pvn_cuda_range(cu, 0, a + kMiB, &base, &len, &why), 0) << why.reason[0];
    EXPECT_EQ(base, a);
    EXPECT_EQ(len, 3 * kMiB + 5);
    EXPECT_EQ(pvn_cuda_range(cu, 0, a + len, &base, &len, &why), -EFAULT);

    uint64_t v = fake->vmm_reserve(8 * kMiB);
    fake->vmm_map(v + 2 * kMiB, 4 * kMiB, 0);
    EXPECT_EQ(pvn_cuda_range(cu, 0, v, &base, &len, &why), -EFAULT) << "reserved but not mapped";
    ASSERT_EQ(pvn_cuda_range(cu, 0, v + 3 * kMiB, &base, &len, &why), 0) << why.reason[0];
    EXPECT_EQ(base, v + 2 * kMiB);
    EXPECT_EQ(len, 4 * kMiB);
}

TEST_F(FakeCuda, AThreadWithoutAContextUsesThePrimaryOne)
{
    uint64_t base = 0, len = 0, a = fake->alloc(FAKECUDA_DEVICE, 1, kMiB, 65536);
    int fd = -1;
    fake->activate_primary(1, 1);
    fake->set_current(nullptr);
    ASSERT_EQ(pvn_cuda_range(cu, 1, a + 5, &base, &len, &why), 0) << why.reason[0];
    EXPECT_EQ(base, a);
    ASSERT_EQ(pvn_cuda_export(cu, 1, a, kMiB, false, &fd, &why), 0) << why.reason[0];
    close(fd);
    EXPECT_EQ(fake->current(), nullptr);

    fake->activate_primary(1, 0);
    EXPECT_EQ(pvn_cuda_range(cu, 1, a + 5, &base, &len, &why), -ENOTCONN);
    EXPECT_EQ(pvn_cuda_export(cu, 1, a, kMiB, false, &fd, &why), -ENOTCONN);
    EXPECT_EQ(fd, -1);
}

TEST_F(FakeCuda, ARemappedSegmentHasAnotherIdAtTheSameAddress)
{
    uint64_t v = fake->vmm_reserve(4 * kMiB);
    pvn_cuda_ptr before, after;
    fake->vmm_map(v, 2 * kMiB, 0);
    ASSERT_EQ(pvn_cuda_pointer(cu, v, &before, &why), 0);
    fake->vmm_unmap(v);
    ASSERT_EQ(pvn_cuda_pointer(cu, v, &after, &why), 0);
    EXPECT_EQ(after.mem, PVN_CUDA_MEM_UNKNOWN);
    fake->vmm_map(v, 2 * kMiB, 0);
    ASSERT_EQ(pvn_cuda_pointer(cu, v, &after, &why), 0);
    EXPECT_NE(before.buffer_id, after.buffer_id);
    EXPECT_NE(before.block_id, after.block_id);
}

/* ---- dma-buf ---- */

TEST_F(FakeCuda, ExportGivesACloseOnExecDescriptorOfThoseBytes)
{
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    memset(reinterpret_cast<void *>(a), 0x11, kMiB);
    memset(reinterpret_cast<void *>(a + 65536), 0x22, 65536);
    int fd = -1;
    ASSERT_EQ(pvn_cuda_export(cu, 0, a + 65536, 65536, false, &fd, &why), 0) << why.reason[0];
    EXPECT_EQ(fake->dmabuf_len(fd), 65536u);
    EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    unsigned char first = 0;
    EXPECT_EQ(pread(fd, &first, 1, lseek(fd, 0, SEEK_CUR)), 1);
    EXPECT_EQ(first, 0x22);
    close(fd);
}

TEST_F(FakeCuda, AnExportThatCannotBeIsRefused)
{
    int fd = -1;
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    EXPECT_EQ(pvn_cuda_export(cu, 0, a + 1, 65536, false, &fd, &why), -EINVAL);
    EXPECT_EQ(pvn_cuda_export(cu, 0, a, 100, false, &fd, &why), -EINVAL);
    EXPECT_EQ(pvn_cuda_export(cu, 0, a, 0, false, &fd, &why), -EINVAL);
    EXPECT_EQ(fake->calls("cuMemGetHandleForAddressRange"), 0);
    EXPECT_EQ(pvn_cuda_export(cu, 0, a, 2 * kMiB, false, &fd, &why), -EIO)
        << "beyond the allocation";
    uint64_t b = fake->alloc(FAKECUDA_DEVICE, 2, kMiB, 65536);
    EXPECT_EQ(pvn_cuda_export(cu, 2, b, kMiB, false, &fd, &why), -EOPNOTSUPP)
        << "a device without dma-buf";
    EXPECT_EQ(fd, -1);
    fake->set_driver_version(12000);
    EXPECT_EQ(pvn_cuda_export(cu, 0, a, 65536, true, &fd, &why), -EIO) << "flag of a later driver";
}

/* ---- contexts ---- */

TEST_F(FakeCuda, FlushInTheCallersContextTouchesNothing)
{
    void *own = fake->ctx_create(0);
    fake->set_current(own);
    ASSERT_EQ(pvn_cuda_flush(cu, 0, &why), 0) << why.reason[0];
    EXPECT_EQ(fake->current(), own);
    EXPECT_EQ(fake->calls("cuCtxPushCurrent_v2"), 0);
    EXPECT_EQ(fake->calls("cuDevicePrimaryCtxRetain"), 0);
}

TEST_F(FakeCuda, FlushOfAnotherDeviceBorrowsItsActivePrimaryContext)
{
    fake->activate_primary(1, 1);
    ASSERT_EQ(pvn_cuda_flush(cu, 1, &why), 0) << why.reason[0];
    EXPECT_EQ(fake->calls("cuCtxPushCurrent_v2"), 1);
    EXPECT_EQ(fake->calls("cuCtxPopCurrent_v2"), 1);
    EXPECT_EQ(fake->current(), fake->primary(0));
    EXPECT_EQ(fake->stack_depth(), 1);
}

TEST_F(FakeCuda, CopiesByAStreamOfOurOwn)
{
    fake->activate_primary(1, 1);
    uint64_t gpu = fake->alloc(FAKECUDA_DEVICE, 1, 65536, 512);
    std::vector<unsigned char> there(65536), back(65536);
    for (size_t i = 0; i < there.size(); i++)
        there[i] = static_cast<unsigned char>(i * 7);
    void *stream = nullptr;
    ASSERT_EQ(pvn_cuda_stream_open(cu, 1, &stream, &why), 0) << why.reason[0];
    fake->hide(1);
    EXPECT_EQ(pvn_cuda_copy_in(cu, 1, stream, gpu, there.data(), 65536, &why), 0) << why.reason[0];
    EXPECT_EQ(pvn_cuda_copy_out(cu, 1, stream, back.data(), gpu, 65536, &why), 0) << why.reason[0];
    fake->hide(0);
    EXPECT_EQ(there, back);
    EXPECT_EQ(fake->calls("cuStreamSynchronize"), 2);
    EXPECT_EQ(pvn_cuda_copy_out(cu, 1, stream, back.data(), gpu, 65537, &why), -EIO)
        << "more than the allocation has";
    EXPECT_NE(std::string(why.reason[0]).find("cuMemcpyDtoHAsync"), std::string::npos);
    fake->fail("cuStreamSynchronize", 1, 700);
    EXPECT_EQ(pvn_cuda_copy_in(cu, 1, stream, gpu, there.data(), 1, &why), -EIO);
    EXPECT_EQ(fake->current(), fake->primary(0));
    EXPECT_EQ(fake->stack_depth(), 1);
    EXPECT_EQ(pvn_cuda_stream_close(cu, 1, stream, &why), 0);
    EXPECT_EQ(fake->calls("cuStreamDestroy_v2"), 1);
    EXPECT_EQ(pvn_cuda_stream_open(cu, 2, &stream, &why), -ENOTCONN) << "no context of its own";
}

TEST_F(FakeCuda, NoContextIsEverCreated)
{
    /* Device 1's primary context is inactive; the double aborts if it is retained. */
    EXPECT_EQ(pvn_cuda_flush(cu, 1, &why), -ENOTCONN);
    EXPECT_NE(std::string(why.reason[0]).find("GPU 1 has no active CUDA context"),
              std::string::npos)
        << why.reason[0];
    uint64_t addr;
    EXPECT_EQ(pvn_cuda_alloc(cu, 1, 65536, &addr, &why), -ENOTCONN);
}

TEST_F(FakeCuda, ThreadWithoutAContextCanFlushAndAllocate)
{
    std::thread([&] {
        EXPECT_EQ(fake->current(), nullptr);
        EXPECT_EQ(pvn_cuda_flush(cu, 0, &why), 0) << why.reason[0];
        uint64_t addr = 0;
        EXPECT_EQ(pvn_cuda_alloc(cu, 0, 65536, &addr, &why), 0) << why.reason[0];
        EXPECT_EQ(pvn_cuda_free(cu, 0, addr, &why), 0) << why.reason[0];
        EXPECT_EQ(fake->stack_depth(), 0);
    }).join();
    EXPECT_EQ(fake->live(), 0u);
}

TEST_F(FakeCuda, AllocLeavesTheCaptureModeAsItWas)
{
    uint64_t addr = 0;
    ASSERT_EQ(pvn_cuda_alloc(cu, 0, 65536, &addr, &why), 0) << why.reason[0];
    EXPECT_EQ(fake->calls("cuThreadExchangeStreamCaptureMode"), 2);
    ASSERT_EQ(pvn_cuda_free(cu, 0, addr, &why), 0);
    EXPECT_EQ(fake->calls("cuThreadExchangeStreamCaptureMode"), 4);
    fake->fail("cuMemAlloc_v2", 1, PVN_CU_OUT_OF_MEMORY);
    EXPECT_EQ(pvn_cuda_alloc(cu, 0, 65536, &addr, &why), -ENOMEM);
    EXPECT_EQ(addr, 0u);
    EXPECT_EQ(fake->calls("cuThreadExchangeStreamCaptureMode"), 6);
}

/* ---- every call fails once ---- */

class FailingCall : public FakeCuda, public ::testing::WithParamInterface<const char *>
{
};

/* Maps each driver call to a function of the shim that makes it. Device 1's primary context is
 * active, because some functions have to borrow one. */
TEST_P(FailingCall, IsReportedWithItsNameAndNothingIsLeft)
{
    const std::string entry = GetParam();
    fake->activate_primary(1, 1);
    uint64_t mem = fake->alloc(FAKECUDA_DEVICE, 1, kMiB, 65536), base = 0, len = 0, addr = 0;
    pvn_cuda_ptr ptr;
    pvn_cuda_caps caps;
    char id[PVN_CUDA_BUS_ID_LEN];
    int n = 0, fd = -1;
    void *stream = nullptr, *another = nullptr, *pinned = nullptr, *more = nullptr;
    unsigned char bytes[16] = {};
    ASSERT_EQ(pvn_cuda_stream_open(cu, 1, &stream, &why), 0);
    const std::map<std::string, std::function<int()>> uses = {
        {"cuDriverGetVersion", [&] { return pvn_cuda_driver_version(cu, &n, &why); }},
        {"cuDeviceGetCount", [&] { return pvn_cuda_ready(cu, &n, &why); }},
        {"cuDeviceGetAttribute", [&] { return pvn_cuda_query(cu, 0, &caps, &why); }},
        {"cuDeviceGetName", [&] { return pvn_cuda_query(cu, 0, &caps, &why); }},
        {"cuDeviceGetPCIBusId", [&] { return pvn_cuda_bus_id(cu, 0, id, &why); }},
        {"cuCtxGetCurrent", [&] { return pvn_cuda_flush(cu, 1, &why); }},
        {"cuCtxGetDevice", [&] { return pvn_cuda_current_device(cu, &n, &why); }},
        {"cuCtxPushCurrent_v2", [&] { return pvn_cuda_flush(cu, 1, &why); }},
        {"cuCtxPopCurrent_v2", [&] { return pvn_cuda_flush(cu, 1, &why); }},
        {"cuDevicePrimaryCtxGetState", [&] { return pvn_cuda_flush(cu, 1, &why); }},
        {"cuDevicePrimaryCtxRetain", [&] { return pvn_cuda_flush(cu, 1, &why); }},
        {"cuDevicePrimaryCtxRelease_v2", [&] { return pvn_cuda_flush(cu, 1, &why); }},
        {"cuPointerGetAttribute", [&] { return pvn_cuda_pointer(cu, mem, &ptr, &why); }},
        {"cuPointerGetAttributes", [&] { return pvn_cuda_pointer(cu, mem, &ptr, &why); }},
        {"cuMemGetAddressRange_v2", [&] { return pvn_cuda_range(cu, 1, mem, &base, &len, &why); }},
        {"cuMemAlloc_v2", [&] { return pvn_cuda_alloc(cu, 1, 65536, &addr, &why); }},
        {"cuMemFree_v2", [&] { return pvn_cuda_free(cu, 1, mem, &why); }},
        {"cuMemHostAlloc", [&] { return pvn_cuda_host_alloc(cu, 1, 4096, &more, &why); }},
        {"cuMemFreeHost", [&] { return pvn_cuda_host_free(cu, 1, pinned, &why); }},
        {"cuThreadExchangeStreamCaptureMode",
         [&] { return pvn_cuda_alloc(cu, 1, 65536, &addr, &why); }},
        {"cuStreamCreate", [&] { return pvn_cuda_stream_open(cu, 1, &another, &why); }},
        {"cuStreamDestroy_v2", [&] { return pvn_cuda_stream_close(cu, 1, stream, &why); }},
        {"cuStreamSynchronize",
         [&] { return pvn_cuda_copy_in(cu, 1, stream, mem, bytes, 16, &why); }},
        {"cuMemcpyHtoDAsync_v2",
         [&] { return pvn_cuda_copy_in(cu, 1, stream, mem, bytes, 16, &why); }},
        {"cuMemcpyDtoHAsync_v2",
         [&] { return pvn_cuda_copy_out(cu, 1, stream, bytes, mem, 16, &why); }},
        {"cuFlushGPUDirectRDMAWrites", [&] { return pvn_cuda_flush(cu, 1, &why); }},
        {"cuMemGetHandleForAddressRange",
         [&] { return pvn_cuda_export(cu, 1, mem, 65536, false, &fd, &why); }},
    };
    if (entry == "cuGetErrorName") {
        /* The function that names errors may fail, too: the message must still have the number. */
        fake->fail("cuGetErrorName", 0, PVN_CU_INVALID_VALUE);
        fake->fail("cuDeviceGetCount", 1, PVN_CU_UNKNOWN);
        EXPECT_EQ(pvn_cuda_ready(cu, &n, &why), -EIO);
        EXPECT_STREQ(why.reason[0], "cuDeviceGetCount: unknown error (999)");
        EXPECT_EQ(fake->fired("cuGetErrorName"), 1);
        return;
    }
    ASSERT_EQ(uses.count(entry), 1u) << "a new entry point needs a row here";
    ASSERT_EQ(pvn_cuda_host_alloc(cu, 1, 4096, &pinned, &why), 0);
    const struct {
        int code, rc;
    } codes[] = {{PVN_CU_UNKNOWN, -EIO},
                 {PVN_CU_NOT_INITIALIZED, -ENODEV},
                 {PVN_CU_DEINITIALIZED, -ENODEV},
                 {PVN_CU_STUB_LIBRARY, -ENODEV},
                 {PVN_CU_CONTEXT_IS_DESTROYED, -ENOTCONN},
                 {PVN_CU_NOT_PERMITTED, -EOPNOTSUPP},
                 {PVN_CU_OUT_OF_MEMORY, -ENOMEM}};
    for (const auto &c : codes) {
        int before = fake->fired(entry.c_str());
        fake->fail(entry.c_str(), 1, c.code);
        why.reason[0][0] = '\0';
        EXPECT_EQ(uses.at(entry)(), c.rc) << entry << " with " << c.code;
        EXPECT_EQ(fake->fired(entry.c_str()), before + 1) << "the fault did not fire";
        std::string plain = entry.substr(0, entry.find("_v2"));
        EXPECT_EQ(std::string(why.reason[0]).rfind(plain, 0), 0u) << why.reason[0];
        if (entry == "cuCtxPopCurrent_v2")
            fake->set_current(fake->primary(0)); /* the injected failure left it on the stack */
        if (entry == "cuDevicePrimaryCtxRelease_v2")
            reinterpret_cast<int (*)(int)>(dlsym(lib, "cuDevicePrimaryCtxRelease_v2"))(1);
        EXPECT_EQ(addr, 0u);
        EXPECT_EQ(more, nullptr);
    }
    EXPECT_EQ(pvn_cuda_host_free(cu, 1, pinned, &why), 0);
    EXPECT_EQ(fake->live(), 1u);
}

static const char *const kEntries[] = {
#define NAME(name, member, optional, params) #name,
    PVN_CU_ENTRIES(NAME)
#undef NAME
};
INSTANTIATE_TEST_SUITE_P(EveryEntryPoint, FailingCall, ::testing::ValuesIn(kEntries),
                         [](const auto &param_info) { return std::string(param_info.param); });

TEST_F(FakeCuda, StubLibraryHasAHint)
{
    fake->fail("cuDeviceGetCount", 1, PVN_CU_STUB_LIBRARY);
    EXPECT_EQ(pvn_cuda_ready(cu, nullptr, &why), -ENODEV);
    EXPECT_NE(std::string(why.reason[0]).find("LD_LIBRARY_PATH"), std::string::npos)
        << why.reason[0];
}

/* ---- fork ---- */

TEST_F(FakeCuda, ChildOfForkMustNotUseTheParentsHandle)
{
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        int n = 0, bad = 0;
        pvn_err w = {};
        int before = fake->calls("cuDeviceGetCount");
        bad += pvn_cuda_ready(cu, &n, &w) != -ECHILD;
        bad += strstr(w.reason[0], "child of fork()") == nullptr;
        bad += pvn_cuda_flush(cu, 0, &w) != -ECHILD;
        bad += fake->calls("cuDeviceGetCount") != before; /* the driver must not be called */
        pvn_cuda_close(cu);
        /* The child may open a handle of its own. The driver then reports that CUDA is not
         * initialised in this process. */
        pvn_cuda *own = nullptr;
        bad += pvn_cuda_open(&own, fakecuda_path().c_str(), &w) != 0;
        bad += own && pvn_cuda_ready(own, &n, &w) != -ENODEV;
        pvn_cuda_close(own);
        _exit(bad);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "checks failed in the child: " << WEXITSTATUS(status);
    int n = 0;
    EXPECT_EQ(pvn_cuda_ready(cu, &n, &why), 0) << "the parent goes on";
}
