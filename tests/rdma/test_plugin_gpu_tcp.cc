// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// GPU memory on connections whose RDMA lanes do not work, or are lost: over TCP, it is copied
// through host memory.
#include "rdma/plugin_gpu.h"

using namespace nccl;

namespace
{

// The device can reach GPU memory, but this connection cannot. The driver copies. The processor
// must not touch such memory, where it would fault.
TEST_F(PluginGpu, AConnectionThatFellBackToTcpCopiesGpuMemory)
{
    Net n(12);
    ASSERT_NE(0, properties(n).ptrSupport & NCCL_PTR_CUDA);
    ASSERT_EQ(0, sv::command("rule dead status status=RETRY_EXC_ERR op=WRITE count=0"));
    Pair p(n);
    ASSERT_TRUE(p.up());
    EXPECT_GT(sv::lib().sv_rule_fired("dead"), 0);
    constexpr size_t kAll = 24 * kMiB;
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kAll, 65536);
    uint64_t b = fake->alloc(FAKECUDA_DEVICE, 0, kAll, 65536);
    void *smh = nullptr, *rmh = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kAll, NCCL_PTR_CUDA, &smh));
    ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, b, kAll, &rmh));
    EXPECT_TRUE(said("it is copied through host memory")) << Log::get().warnings();
    EXPECT_EQ(1, fake->calls("cuMemHostAlloc")) << "a pool for the GPU, not one for each buffer";
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{216}, size_t{5000}, kMiB + 3, kAll - 64}) {
        int in = fake->calls("cuMemcpyHtoDAsync_v2"), out = fake->calls("cuMemcpyDtoHAsync_v2");
        hidden_ = true;
        EXPECT_TRUE(move(p, a + 13, smh, b + 57, rmh, bytes, true)) << bytes;
        EXPECT_EQ(bytes > 0, fake->calls("cuMemcpyHtoDAsync_v2") > in) << bytes;
        EXPECT_EQ(bytes > 0, fake->calls("cuMemcpyDtoHAsync_v2") > out) << bytes;
    }
    EXPECT_EQ(0, waited_) << "for a flush: what a copy has brought needs none";
    std::vector<unsigned char> src(5000), dst(5000);
    void *shost = nullptr, *rhost = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), 5000, NCCL_PTR_HOST, &shost));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), 5000, NCCL_PTR_HOST, &rhost));
    hidden_ = false;
    for (size_t bytes : {size_t{100}, size_t{5000}})
        EXPECT_TRUE(move(p, reinterpret_cast<uintptr_t>(src.data()), shost,
                         reinterpret_cast<uintptr_t>(dst.data()), rhost, bytes, true))
            << "host memory goes on";
}

// Without pinned memory the copies are slower, but right.
TEST_F(PluginGpu, WithoutPinnedMemoryItIsCopiedThroughOrdinaryMemory)
{
    Net n(12);
    ASSERT_EQ(0, sv::command("rule dead status status=RETRY_EXC_ERR op=WRITE count=0"));
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 2 * kMiB, 65536);
    void *smh = nullptr, *rmh = nullptr;
    fake->fail("cuMemHostAlloc", 1, 2);
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kMiB, NCCL_PTR_CUDA, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(a + kMiB), kMiB, NCCL_PTR_CUDA, &rmh));
    EXPECT_EQ(1, fake->fired("cuMemHostAlloc"));
    fake->fail("cuMemHostAlloc", -1, 0);
    hidden_ = true;
    EXPECT_TRUE(move(p, a, smh, a + kMiB, rmh, kMiB, true));
}

// A message that arrives before its receive is kept in host memory and copied later. The test turns
// NCCL's shared comms off, because with them no message arrives early.
TEST_F(PluginGpu, UnexpectedMessagesAreCopiedToGpuMemory)
{
    setenv("NCCL_NET_SHARED_COMMS", "0", 1);
    Net n(12);
    unsetenv("NCCL_NET_SHARED_COMMS");
    ASSERT_EQ(0, sv::command("rule dead status status=RETRY_EXC_ERR op=WRITE count=0"));
    setenv("NCCL_PVRDMA_FAILOVER", "0", 1);
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    void *mh = nullptr, *sr[2] = {}, *rr[2] = {};
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(a), kMiB, NCCL_PTR_CUDA, &mh));
    std::vector<unsigned char> src(3000, 0x5a);
    void *smh = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), 3000, NCCL_PTR_HOST, &smh));
    int in = fake->calls("cuMemcpyHtoDAsync_v2");
    size_t size = src.size();
    auto receive = [&](int tag, void **req) {
        void *data = ptr(a + static_cast<uint64_t>(tag) * 4096);
        return pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, req);
    };
    ASSERT_EQ(ncclSuccess, receive(1, &rr[1]));
    for (int tag : {0, 1})
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_isend(p.d, p.sc, src.data(), size, tag, smh, nullptr, &sr[tag]));
    fake->hide(1);
    for (int tag : {1, 0}) {
        int done = 0, got = 0;
        if (tag == 0) {
            ASSERT_EQ(ncclSuccess, receive(0, &rr[0]));
        }
        EXPECT_TRUE(eventually([&] {
            int d = 0;
            for (void *&s : sr)
                if (s && pvn_netdrv_test(p.d, s, &d, nullptr) == ncclSuccess && d)
                    s = nullptr;
            return pvn_netdrv_test(p.d, rr[tag], &done, &got) != ncclSuccess || done;
        }));
        EXPECT_EQ(1, done);
        EXPECT_EQ(3000, got);
    }
    fake->hide(0);
    EXPECT_EQ(2, fake->calls("cuMemcpyHtoDAsync_v2") - in);
    for (int tag : {0, 1})
        EXPECT_EQ(0, memcmp(ptr(a + static_cast<uint64_t>(tag) * 4096), src.data(), size)) << tag;
}

// A failed copy ends the comm, and both ends report the driver's reason.
TEST_F(PluginGpu, ACopyThatFailsEndsTheComm)
{
    for (const char *call :
         {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"}) {
        Net n(12);
        ASSERT_EQ(0, sv::command("rule dead status status=RETRY_EXC_ERR op=WRITE count=0"));
        Pair p(n);
        ASSERT_TRUE(p.up());
        uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
        void *smh = nullptr, *rmh = nullptr, *sr = nullptr, *rr = nullptr, *data = ptr(a + 65536);
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kMiB, NCCL_PTR_CUDA, &smh));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(a), kMiB, NCCL_PTR_CUDA, &rmh));
        fake->fail(call, 1, 700);
        size_t size = 5000;
        int tag = 0, d = 0;
        EXPECT_TRUE(eventually([&] {
            ncclResult_t s = sr ? pvn_netdrv_test(p.d, sr, &d, nullptr)
                                : pvn_netdrv_isend(p.d, p.sc, ptr(a), size, 0, smh, nullptr, &sr);
            ncclResult_t r =
                rr ? pvn_netdrv_test(p.d, rr, &d, nullptr)
                   : pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rr);
            return s != ncclSuccess || r != ncclSuccess;
        })) << call;
        EXPECT_EQ(1, fake->fired(call));
        fake->fail(call, -1, 0);
        EXPECT_TRUE(said("(700)")) << Log::get().warnings();
        fake->free(a);
        ASSERT_EQ(0, sv::command("rules clear"));
        Log::get().clear();
    }
}

// ---- failover ----

// A pair of comms, each with a buffer of device memory that is registered as NCCL does it
struct GpuFailover : PluginGpu {
    uint64_t a = 0, b = 0;
    void *smh = nullptr, *rmh = nullptr;

    void open(Pair &p)
    {
        ASSERT_TRUE(p.up());
        a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
        b = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
        ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.sc, a, kMiB, &smh));
        ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, b, kMiB, &rmh));
        ASSERT_TRUE(move(p, a, smh, b, rmh, 5000, true));
    }
    // Makes the queue pair of the next message fail.
    static void lose_one()
    {
        for (const char *op : {"WRITE", "WRITE_IMM"}) {
            std::string lost = std::string("rule lost_") + op +
                               " status status=RETRY_EXC_ERR min_len=1000 nth=1 count=1 op=" + op;
            ASSERT_EQ(0, sv::command(lost.c_str()));
        }
    }
};

TEST_F(GpuFailover, ToNewQueuePairs)
{
    Net n(12);
    Pair p(n);
    open(p);
    int64_t registered = seen("dmabufs");
    int flushed = fake->calls("cuFlushGPUDirectRDMAWrites");
    ASSERT_EQ(
        0, sv::command("rule break status status=RETRY_EXC_ERR op=WRITE nth=5 every=15 count=3"));
    for (size_t i = 1; i <= 20; i++)
        ASSERT_TRUE(move(p, a + i, smh, b + i, rmh, 20000 * i, true)) << i;
    EXPECT_GE(sv::lib().sv_rule_fired("break"), 2u);
    EXPECT_TRUE(said("connected again after")) << Log::get().text();
    EXPECT_GE(fake->calls("cuFlushGPUDirectRDMAWrites") - flushed, 1);
    EXPECT_GE(seen("dmabufs") - registered, 2) << "NCCL has closed its descriptors";
    EXPECT_EQ(0, fake->calls("cuMemcpyHtoDAsync_v2")) << "no copies over RDMA";
}

// NCCL's thread may have no current context before CUDA 12, where cudaSetDevice makes none current.
// No thread of the plugin takes these steps over RDMA.
TEST_F(GpuFailover, OnAThreadWithoutAContext)
{
    Net n(12);
    Pair p(n);
    open(p);
    int64_t registered = seen("dmabufs");
    fake->set_current(nullptr);
    lose_one();
    for (size_t i = 1; i <= 3; i++)
        ASSERT_TRUE(move(p, a + i, smh, b + i, rmh, 20000 * i, true)) << Log::get().warnings();
    EXPECT_TRUE(said("connected again after")) << Log::get().text();
    EXPECT_GE(seen("dmabufs") - registered, 2);
    EXPECT_EQ(0, fake->calls("cuMemcpyHtoDAsync_v2")) << "no copies over RDMA";
    fake->set_current(fake->primary(0));
}

// 64 buffers, as many as NCCL registers if users register their own. None keeps a descriptor open,
// and each still works after a failover.
TEST_F(GpuFailover, NoBufferKeepsADescriptor)
{
    constexpr size_t kBuffers = 64, kLen = 65536;
    Net n(12);
    Pair p(n);
    open(p);
    size_t files = descriptors().size();
    uint64_t from = fake->alloc(FAKECUDA_DEVICE, 0, kBuffers * kLen, kLen),
             to = fake->alloc(FAKECUDA_DEVICE, 0, kBuffers * kLen, kLen);
    void *mh[kBuffers][2];
    for (size_t i = 0; i < kBuffers; i++) {
        ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.sc, from + i * kLen, kLen, &mh[i][0]));
        ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, to + i * kLen, kLen, &mh[i][1]));
    }
    EXPECT_EQ(files, descriptors().size());
    lose_one();
    for (size_t i = 0; i < kBuffers; i++)
        ASSERT_TRUE(move(p, from + i * kLen, mh[i][0], to + i * kLen, mh[i][1], kLen, true)) << i;
    EXPECT_TRUE(said("connected again after")) << Log::get().text();
    EXPECT_EQ(0, fake->calls("cuMemcpyHtoDAsync_v2")) << "no copies over RDMA";
    EXPECT_EQ(files, descriptors().size());
    for (auto &m : mh) {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, m[0]));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, m[1]));
    }
}

// NCCL closes its descriptor before any lane exists that could register the buffer.
TEST_F(GpuFailover, ABufferIsRegisteredWithinAFailover)
{
    Net n(12);
    Pair p(n);
    open(p);
    void *sr = nullptr, *rr = nullptr, *data = ptr(b), *mh[2] = {};
    size_t size = 20000;
    int tag = 0, sd = 0, rd = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rr));
    lose_one();
    auto both = [&] {
        if (!rd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rr, &rd, nullptr));
        }
        if (!sr) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_isend(p.d, p.sc, ptr(a), size, 0, smh, nullptr, &sr));
        } else if (!sd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, sr, &sd, nullptr));
        }
        return (rd && sd) || HasFailure();
    };
    EXPECT_TRUE(eventually([&] { return both() || said("the connection is made again"); }));
    EXPECT_FALSE(rd) << "the fault fired";
    size_t files = descriptors().size();
    uint64_t c = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
             d = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.sc, c, kMiB, &mh[0]));
    ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, d, kMiB, &mh[1]));
    EXPECT_EQ(files, descriptors().size());
    EXPECT_TRUE(eventually(both)) << Log::get().text();
    EXPECT_TRUE(move(p, c, mh[0], d, mh[1], kMiB, true));
    EXPECT_EQ(0, fake->calls("cuMemcpyHtoDAsync_v2")) << "no copies over RDMA";
}

TEST_F(GpuFailover, GpuMemoryIsCopiedAfterAFailoverToTcp)
{
    Net n(12);
    Pair p(n);
    open(p);
    ASSERT_EQ(0, sv::command("fatal *"));
    for (size_t i = 1; i <= 10; i++) {
        hidden_ = i > 1; // the adapter's double writes by the processor
        ASSERT_TRUE(move(p, a + i, smh, b + i, rmh, 40000 * i, true)) << i;
    }
    EXPECT_TRUE(said("connected again after")) << Log::get().text();
    EXPECT_TRUE(said("it is copied through host memory")) << Log::get().text();
    EXPECT_GT(fake->calls("cuMemcpyHtoDAsync_v2"), 0);
    EXPECT_GT(fake->calls("cuMemcpyDtoHAsync_v2"), 0);
    EXPECT_EQ(1, fake->calls("cuMemHostAlloc")) << "before, when no kernel could be waited for";
}

// The READ that flushes the received data is lost with its queue pair.
TEST_F(GpuFailover, AFlushThatIsLost)
{
    Net n(12);
    Pair p(n);
    open(p);
    ASSERT_TRUE(move(p, a, smh, b, rmh, 9000, false));
    int flushed = fake->calls("cuFlushGPUDirectRDMAWrites");
    ASSERT_EQ(0, sv::command("rule lost status status=RETRY_EXC_ERR op=READ"));
    ASSERT_TRUE(move(p, a, smh, b, rmh, 9000, true));
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("lost"));
    EXPECT_TRUE(move(p, a, smh, b, rmh, 9000, true));
    EXPECT_TRUE(said("connected again after")) << Log::get().text();
    EXPECT_EQ(1, fake->calls("cuFlushGPUDirectRDMAWrites") - flushed);
}

// The plugin cannot know whether the GPU sees the data that the lost adapter has written.
TEST_F(GpuFailover, WithoutTheDriversFlushItEnds)
{
    gpu(8, 0, PVN_CU_ORDER_NONE);
    Net n(12);
    Pair p(n);
    open(p);
    ASSERT_EQ(0, sv::command("fatal *"));
    void *sr = nullptr, *rr = nullptr, *data = ptr(b);
    size_t size = 5000;
    int tag = 0, d = 0;
    EXPECT_TRUE(eventually([&] {
        ncclResult_t s = sr ? pvn_netdrv_test(p.d, sr, &d, nullptr)
                            : pvn_netdrv_isend(p.d, p.sc, ptr(a), size, 0, smh, nullptr, &sr);
        ncclResult_t r =
            rr ? pvn_netdrv_test(p.d, rr, &d, nullptr)
               : pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rr);
        return r != ncclSuccess && s != ncclSuccess;
    }));
    EXPECT_TRUE(said("cannot be made visible to the GPU")) << Log::get().text();
}

// The adapter refuses the registrations, at both ends or at one, when the lanes are made again. TCP
// is left, and copies.
class GpuRefusal : public GpuFailover
{
  protected:
    void goes_on(const char *rule)
    {
        goes_on([&] { ASSERT_EQ(0, sv::command(rule)); },
                [] { return sv::lib().sv_rule_fired("full"); });
    }
    void goes_on(const std::function<void()> &refuse, const std::function<uint64_t()> &refused)
    {
        Net n(12);
        Pair p(n);
        open(p);
        refuse();
        lose_one();
        for (size_t i = 1; i <= 3; i++)
            ASSERT_TRUE(move(p, a + i, smh, b + i, rmh, 40000 * i, true)) << i << Log::get().text();
        EXPECT_GE(refused(), 1u);
        EXPECT_TRUE(said("do not take the memory")) << Log::get().text();
        EXPECT_TRUE(said("connected again after")) << Log::get().text();
    }
};

TEST_F(GpuRefusal, ARefusalByBothEndsIsNoEnd)
{
    goes_on("rule full fail call=reg_dmabuf_mr errno=ENOMEM nth=1 every=1 count=0");
}

TEST_F(GpuRefusal, ByTheFirstEndToTry)
{
    goes_on("rule full fail call=reg_dmabuf_mr errno=ENOMEM nth=1 count=1");
}

TEST_F(GpuRefusal, ByTheSecondEndToTry)
{
    goes_on("rule full fail call=reg_dmabuf_mr errno=ENOMEM nth=2 count=1");
}

// The comms also go on if the driver refuses to export the memory again.
TEST_F(GpuRefusal, OfTheExport)
{
    const char *call = "cuMemGetHandleForAddressRange";
    for (int nth : {0, 1}) { // both ends, or the first to try
        goes_on([&] { fake->fail(call, nth, PVN_CU_UNKNOWN); },
                [&] { return static_cast<uint64_t>(fake->fired(call)); });
        fake->fail(call, -1, 0);
        EXPECT_TRUE(said(call)) << Log::get().text();
        Log::get().clear();
        ASSERT_EQ(0, sv::command("rules clear"));
    }
}

} // namespace
