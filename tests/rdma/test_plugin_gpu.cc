// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// GPU memory through the whole plugin: it is offered, registered and flushed.
#include "rdma/plugin_gpu.h"

extern "C" {
#include "stats/stats_read.h"
}

using namespace nccl;

namespace
{

// ---- what is offered ----

TEST_F(PluginGpu, EveryVersionSaysWhatWasProved)
{
    alone([&] {
        for (int abi = 4; abi <= 12; abi++) {
            Log::get().clear();
            Net n(abi);
            ASSERT_EQ(ncclSuccess, n.rc);
            ncclNetProperties_v12_t p = properties(n);
            EXPECT_STREQ("mlx5_0", p.name);
            int all = NCCL_PTR_HOST | NCCL_PTR_CUDA | (abi >= 6 ? NCCL_PTR_DMABUF : 0);
            EXPECT_EQ(all, p.ptrSupport) << "v" << abi;
            EXPECT_EQ(0, p.forceFlush) << "NCCL requests a flush on this GPU by itself";
            EXPECT_TRUE(said("mlx5_0: gpu memory: dma-buf, proved on GPU 0000:0b:00.0 (Fake A100); "
                             "flush: RDMA READ"))
                << Log::get().text();
        }
    });
}

// Up to v8 the interface has no forceFlush, and NCCL flushes the memory of such a GPU only on
// demand.
TEST_F(PluginGpu, OldVersionsGetNoMemoryThatTheyWouldNotFlush)
{
    gpu(9, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_NONE);
    alone([&] {
        for (int abi = 4; abi <= 12; abi++)
            for (const char *forced : {"0", "1"}) {
                setenv("NCCL_NET_FORCE_FLUSH", forced, 1);
                Log::get().clear();
                Net n(abi);
                const bool flushes = abi >= 9 || *forced == '1';
                const int support = properties(n).ptrSupport;
                EXPECT_EQ(flushes, (support & NCCL_PTR_CUDA) != 0) << "v" << abi << " " << forced;
                EXPECT_TRUE(support & NCCL_PTR_HOST);
                EXPECT_EQ(!flushes, Log::get().warned({"NCCL_NET_FORCE_FLUSH=1"})) << "v" << abi;
            }
        unsetenv("NCCL_NET_FORCE_FLUSH");
    });
}

TEST_F(PluginGpu, NothingIsOfferedThatWasNotProved)
{
    struct {
        const char *profile, *cuda, *mem, *says;
        bool peer;
        int support;
    } cases[] = {
        {"roce", "/no-such/libcuda.so.1", "auto", "gpu memory: staged through host memory", true,
         NCCL_PTR_HOST},
        {"roce", nullptr, "off", "NCCL_PVRDMA_GPU_MEM=off", true, NCCL_PTR_HOST},
        {"roce", nullptr, "peermem", "ibv_reg_mr: Bad address", false, NCCL_PTR_HOST},
        {"roce", nullptr, "peermem", "gpu memory: peer memory, proved", true,
         NCCL_PTR_HOST | NCCL_PTR_CUDA},
        {"pvrdma", nullptr, "auto", "PVRDMA has neither peer memory nor dma-buf", false,
         NCCL_PTR_HOST},
        {"rxe", nullptr, "auto", "ibv_reg_dmabuf_mr", false, NCCL_PTR_HOST},
    };
    for (auto &c : cases) {
        adapter(c.profile, c.peer);
        setenv("NCCL_PVRDMA_CUDA_LIB", c.cuda ? c.cuda : fakecuda_path().c_str(), 1);
        setenv("NCCL_PVRDMA_GPU_MEM", c.mem, 1);
        Log::get().clear();
        Net n(12);
        ASSERT_EQ(ncclSuccess, n.rc);
        EXPECT_EQ(c.support, properties(n).ptrSupport) << c.says;
        EXPECT_TRUE(said(c.says)) << c.says << "\n" << Log::get().text();
    }
    EXPECT_EQ(0u, fake->live()) << "the trial's buffers";
}

TEST_F(PluginGpu, NcclsSwitchForDmabufCounts)
{
    setenv("NCCL_DMABUF_ENABLE", "0", 1);
    adapter("roce", true);
    Net n(12);
    EXPECT_EQ(NCCL_PTR_HOST | NCCL_PTR_CUDA, properties(n).ptrSupport);
    EXPECT_EQ(0, seen("dmabufs"));
}

TEST_F(PluginGpu, AWrongValueIsRefused)
{
    setenv("NCCL_PVRDMA_FLUSH", "always", 1);
    Net n(12);
    EXPECT_EQ(ncclInvalidUsage, n.rc);
    EXPECT_TRUE(said("NCCL_PVRDMA_FLUSH")) << Log::get().text();
}

TEST_F(PluginGpu, FailingCallsOfTheDriverTakeGpuMemoryAway)
{
    for (const char *call :
         {"cuCtxGetDevice", "cuMemAlloc_v2", "cuMemGetHandleForAddressRange", "cuMemFree_v2"}) {
        fake->fail(call, 0, PVN_CU_UNKNOWN);
        Log::get().clear();
        {
            Net n(12);
            ASSERT_EQ(ncclSuccess, n.rc) << call;
            EXPECT_EQ(NCCL_PTR_HOST, properties(n).ptrSupport) << call;
            EXPECT_TRUE(said("gpu memory: staged through host memory")) << call;
        }
        EXPECT_GT(fake->fired(call), 0) << call;
        fake->fail(call, -1, 0);
    }
}

// ---- bytes ----

class PluginGpuAbi : public PluginGpu, public testing::WithParamInterface<int>
{
};
INSTANTIATE_TEST_SUITE_P(Versions, PluginGpuAbi, testing::Values(4, 5, 8, 12),
                         [](const testing::TestParamInfo<int> &i) {
                             return "v" + std::to_string(i.param);
                         });

TEST_P(PluginGpuAbi, DeviceMemoryToDeviceMemory)
{
    alone([&] {
        Net n(GetParam());
        Pair p(n);
        ASSERT_TRUE(p.up());
        uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 3 * kMiB, 512),
                 b = fake->alloc(FAKECUDA_DEVICE, 0, 3 * kMiB, 512);
        void *smh = nullptr, *rmh = nullptr;
        int64_t reads = seen("reads");
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), 3 * kMiB, NCCL_PTR_CUDA, &smh));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(b), 3 * kMiB, NCCL_PTR_CUDA, &rmh));
        EXPECT_TRUE(move(p, a, smh, b, rmh, 3 * kMiB, true));
        EXPECT_TRUE(move(p, a + 70001, smh, b + 1001, rmh, kMiB, true));
        EXPECT_TRUE(move(p, a + 3 * kMiB - 8, smh, b, rmh, 8, true));
        // v4 sets its lanes up, and tries their flush, with the first transfer.
        EXPECT_EQ(GetParam() == 4 ? 4 : 3, seen("reads") - reads);
        EXPECT_EQ(3, waited_);
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, smh));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, rmh));
        EXPECT_EQ("", Log::get().warnings());
    });
}

TEST_F(PluginGpu, DmabufsWithOffsetsAndSubRanges)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 8 * kMiB, 65536),
             b = fake->alloc(FAKECUDA_DEVICE, 0, 8 * kMiB, 65536);
    size_t files = descriptors().size();
    // 64 KiB and 2 MiB pieces, and odd ones
    size_t spots[][2] = {{0, 8 * kMiB},           {65536, 65536},        {2 * kMiB, 2 * kMiB},
                         {3 * kMiB + 512, 40000}, {5 * kMiB + 4097, 77}, {8 * kMiB - 4096, 4096}};
    for (auto &s : spots) {
        void *smh = nullptr, *rmh = nullptr;
        ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.sc, a + s[0], s[1], &smh))
            << Log::get().warnings();
        ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, b + s[0], s[1], &rmh))
            << Log::get().warnings();
        EXPECT_TRUE(move(p, a + s[0], smh, b + s[0], rmh, s[1], true)) << s[0];
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, smh));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, rmh));
    }
    EXPECT_EQ(files, descriptors().size());
}

TEST_F(PluginGpu, MappedSegmentsWithOneOfThemExchanged)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t v[2];
    void *mh[2] = {};
    for (uint64_t &r : v) {
        r = fake->vmm_reserve(16 * kMiB);
        for (int i = 0; i < 3; i++)
            fake->vmm_map(r + i * 2 * kMiB, 2 * kMiB, 0);
    }
    auto reg = [&] {
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.sc, ptr(v[0] + kMiB), 4 * kMiB, NCCL_PTR_CUDA, &mh[0]));
        EXPECT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, v[1] + kMiB, 4 * kMiB, &mh[1]));
    };
    reg();
    EXPECT_TRUE(move(p, v[0] + kMiB, mh[0], v[1] + kMiB, mh[1], 4 * kMiB, true));
    int64_t before = seen("dmabufs");
    void *keep[2] = {mh[0], mh[1]};
    fake->vmm_unmap(v[1] + 2 * kMiB);
    fake->vmm_map(v[1] + 2 * kMiB, 2 * kMiB, 0);
    reg(); // the sender's range is unchanged, the receiver's is a new one
    EXPECT_EQ(1, seen("dmabufs") - before);
    EXPECT_TRUE(move(p, v[0] + kMiB, mh[0], v[1] + kMiB, mh[1], 4 * kMiB, true));
    for (void *m : {keep[0], mh[0]})
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, m));
    for (void *m : {keep[1], mh[1]})
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, m));
    EXPECT_EQ("", Log::get().warnings());
    void *none = nullptr;
    EXPECT_NE(ncclSuccess,
              pvn_netdrv_reg_mr(p.d, p.sc, ptr(v[0] + 5 * kMiB), 2 * kMiB, NCCL_PTR_CUDA, &none));
    EXPECT_EQ(nullptr, none);
    EXPECT_TRUE(said("of a GPU buffer of 2097152")) << Log::get().warnings();
}

// The address of freed memory is given out again as another buffer, while the old registration is
// still in use.
TEST_F(PluginGpu, AnAddressThatIsGivenOutAgainIsRegisteredAgain)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
             b = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    void *smh = nullptr, *same = nullptr, *rmh = nullptr, *fresh = nullptr;
    int64_t before = seen("dmabufs");
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kMiB, NCCL_PTR_CUDA, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a + 100), 1000, NCCL_PTR_CUDA, &same));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(b), kMiB, NCCL_PTR_CUDA, &rmh));
    EXPECT_EQ(2, seen("dmabufs") - before)
        << "a part of a registered buffer is not registered again";
    fake->free(a);
    ASSERT_EQ(a, fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kMiB, NCCL_PTR_CUDA, &fresh));
    EXPECT_EQ(3, seen("dmabufs") - before);
    EXPECT_TRUE(move(p, a, fresh, b, rmh, kMiB, true));
    for (void *m : {smh, same, fresh})
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, m));
}

// v4's comms come up with the first transfers. By then regMr has returned and NCCL has closed its
// descriptor.
TEST_F(PluginGpu, NoDescriptorIsKeptUntilTheLanesAreThere)
{
    alone([&] {
        Net lazy(4), newer(6);
        Pair p(lazy);
        ASSERT_TRUE(p.up());
        uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
                 b = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
        void *smh = nullptr, *rmh = nullptr, *unused = nullptr;
        size_t files = descriptors().size();
        int64_t registered = seen("dmabufs");
        ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.sc, a, kMiB, &smh));
        ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.rc, b, kMiB, &rmh));
        ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.rc, b, 4096, &unused));
        EXPECT_EQ(registered, seen("dmabufs")) << "there are no lanes yet";
        EXPECT_EQ(files, descriptors().size());
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, unused));
        EXPECT_TRUE(move(p, a, smh, b, rmh, kMiB, true));
        EXPECT_EQ(2, seen("dmabufs") - registered);
        EXPECT_EQ(0, fake->dmabuf_open());
    });
}

// A request to a queue pair that is not connected yet is retransmitted only after seconds. So there
// must be none.
TEST_F(PluginGpu, ConnectingTransmitsEveryRequestOnce)
{
    setenv("NCCL_PVRDMA_GPU_MEM", "off", 1);
    Net n(12);
    for (int i = 0; i < 5; i++) {
        int64_t before = seen("writes");
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_EQ(2, seen("writes") - before) << "one of each end";
    }
}

// Host memory takes part, too: the adapter reads the sender's buffer and writes the receiver's.
struct {
    uintptr_t from, to;
    size_t len, got, put;
    void (*real_get)(void *, const void *, size_t);
    void (*real_put)(void *, const void *, size_t);
} spy;

TEST_F(PluginGpu, HostBuffersAreReadAndWrittenInPlace)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<unsigned char> src(4 * kMiB), dst(4 * kMiB);
    void *smh = nullptr, *rmh = nullptr;
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_reg_mr(p.d, p.sc, src.data(), src.size(), NCCL_PTR_HOST, &smh));
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.size(), NCCL_PTR_HOST, &rmh));
    auto a = reinterpret_cast<uintptr_t>(src.data()), b = reinterpret_cast<uintptr_t>(dst.data());
    spy = {a, b, src.size(), 0, 0, hooks->get, hooks->put};
    hooks->get = [](void *to, const void *from, size_t len) {
        auto at = reinterpret_cast<uintptr_t>(from);
        spy.got += at >= spy.from && at + len <= spy.from + spy.len ? len : 0;
        spy.real_get(to, from, len);
    };
    hooks->put = [](void *to, const void *from, size_t len) {
        auto at = reinterpret_cast<uintptr_t>(to);
        spy.put += at >= spy.to && at + len <= spy.to + spy.len ? len : 0;
        spy.real_put(to, from, len);
    };
    EXPECT_TRUE(move(p, a, smh, b, rmh, src.size(), true));
    hooks->get = spy.real_get;
    hooks->put = spy.real_put;
    EXPECT_EQ(src.size(), spy.got);
    EXPECT_EQ(src.size(), spy.put);
    EXPECT_EQ(0, waited_) << "host memory needs no flush";
}

// ---- flush ----

// Neither the log nor the statistics count a flush as a message.
TEST_F(PluginGpu, AReceiverCountsMessagesWithoutTheirFlushes)
{
    Net n(12);
    const std::string before = "statistics for pvn-topo stat: ";
    std::string log = Log::get().text();
    size_t at = log.find(before);
    ASSERT_NE(std::string::npos, at) << log;
    std::string path = log.substr(at + before.size(), log.find('\n', at) - at - before.size());
    {
        Pair p(n);
        ASSERT_TRUE(p.up());
        const Buffers b = buffers(p);
        for (int i = 0; i < 3; i++)
            ASSERT_TRUE(move(p, b, 9000, true));
        EXPECT_EQ(3, waited_) << "each was flushed";
    }
    EXPECT_TRUE(said("closed after sending 3 messages, 27000 bytes")) << Log::get().text();
    EXPECT_TRUE(said("closed after receiving 3 messages, 27000 bytes")) << Log::get().text();
    pvn_stats s;
    ASSERT_EQ(0, pvn_stats_read(path.c_str(), &s, nullptr));
    int comms = 0;
    for (int i = 0; i < s.nrows; i++) {
        const pvn_stat_row &r = s.row[i];
        if (r.phase != PVN_STAT_CLOSED || r.n.bytes == 0)
            continue;
        comms++;
        EXPECT_EQ(3u, r.n.msgs) << (r.sender ? "sender" : "receiver");
        EXPECT_EQ(0u, r.n.open);
    }
    EXPECT_EQ(2, comms);
    pvn_stats_free(&s);
}

// A message has arrived, and its flush meets the loss of the lane. The sender has nothing more to do:
// its thread sleeps, or it has closed its comm.
class PluginGpuLostFlush : public PluginGpu, public testing::WithParamInterface<const char *>
{
};
INSTANTIATE_TEST_SUITE_P(Sender, PluginGpuLostFlush, testing::Values("Sleeps", "HasClosed"),
                         [](const auto &i) { return std::string(i.param); });

TEST_P(PluginGpuLostFlush, NeedsNothingOfThePeer)
{
    const bool closes = std::string(GetParam()) == "HasClosed";
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    const Buffers b = buffers(p);
    ASSERT_TRUE(move(p, b, 9000, true));
    ASSERT_TRUE(move(p, b, 9000, false));
    if (closes) {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, b.smh));
        p.close_send();
    }
    ASSERT_EQ(0, sv::command("rule lost status op=READ status=RETRY_EXC_ERR"));
    flush(p, ptr(b.to), 9000, b.rmh);
    EXPECT_EQ(2, waited_);
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("lost"));
    if (!closes) {
        EXPECT_TRUE(said("failover: ")) << Log::get().text();
        EXPECT_FALSE(said("connected again")) << Log::get().text();
        EXPECT_TRUE(move(p, b, 9000, true)) << Log::get().text();
        EXPECT_TRUE(said("connected again")) << Log::get().text();
    }
}

TEST_F(PluginGpu, TheFlushFollowsSettingAndDevice)
{
    struct {
        const char *flush;
        int cc, options, ordering;
        int reads, calls, waited, force;
        const char *says;
    } cases[] = {
        {"auto", 8, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_NONE, 1, 0, 1, 0, "flush: RDMA READ"},
        {"cuda", 8, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_NONE, 0, 1, 0, 0,
         "flush: cuFlushGPUDirectRDMAWrites"},
        {"none", 8, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_NONE, 0, 0, 0, 0,
         "flush: none (NCCL_PVRDMA_FLUSH=none"},
        {"auto", 9, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_ALL, 1, 0, 1, 0,
         "flush: RDMA READ by the adapter, where NCCL requests one (compute capability 9.0"},
        {"auto", 9, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_NONE, 1, 0, 1, 1, "flush: RDMA READ"},
        {"read", 10, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_ALL, 1, 0, 1, 1, "flush: RDMA READ"},
    };
    for (auto &c : cases) {
        gpu(c.cc, c.options, c.ordering);
        setenv("NCCL_PVRDMA_FLUSH", c.flush, 1);
        adapter("roce", false);
        Log::get().clear();
        waited_ = 0;
        Net n(12);
        EXPECT_EQ(c.force, properties(n).forceFlush) << c.says;
        EXPECT_TRUE(said(c.says)) << Log::get().text();
        Pair p(n);
        ASSERT_TRUE(p.up());
        uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
                 b = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
        void *smh = nullptr, *rmh = nullptr;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kMiB, NCCL_PTR_CUDA, &smh));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(b), kMiB, NCCL_PTR_CUDA, &rmh));
        int64_t reads = seen("reads");
        EXPECT_TRUE(move(p, a, smh, b, rmh, kMiB, true)) << c.says;
        EXPECT_EQ(c.reads, seen("reads") - reads) << c.says;
        EXPECT_EQ(c.calls, fake->calls("cuFlushGPUDirectRDMAWrites")) << c.says;
        EXPECT_EQ(c.waited, waited_) << c.says;
    }
}

// The trial at the start fails: its WRITE and its SEND. So would a READ that flushes.
TEST_F(PluginGpu, AnAdapterThatCannotTalkToItselfFlushesNothing)
{
    gpu(8, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_NONE);
    adapter("roce", false);
    ASSERT_EQ(0, sv::command("rule trial status status=RETRY_EXC_ERR every=1 count=2"));
    Net n(12);
    EXPECT_EQ(2u, sv::lib().sv_rule_fired("trial"));
    EXPECT_TRUE(said("cannot talk to itself")) << Log::get().text();
    EXPECT_TRUE(said("flush: cuFlushGPUDirectRDMAWrites")) << Log::get().text();
    int64_t reads = seen("reads");
    Pair p(n);
    ASSERT_TRUE(p.up());
    EXPECT_TRUE(move(p, buffers(p), 9000, true));
    EXPECT_EQ(1, fake->calls("cuFlushGPUDirectRDMAWrites"));
    EXPECT_EQ(reads, seen("reads"));
}

// The adapter needs a flush for this GPU, and the driver cannot flush. GPU memory is not offered,
// because its data could be stale.
TEST_F(PluginGpu, WithoutAFlushGpuMemoryIsStaged)
{
    gpu(8, 0, PVN_CU_ORDER_NONE);
    setenv("NCCL_PVRDMA_FLUSH", "cuda", 1);
    Net n(12);
    EXPECT_EQ(NCCL_PTR_HOST, properties(n).ptrSupport);
    EXPECT_TRUE(said("flush: impossible")) << Log::get().text();
}

// ---- what fails ----

TEST_F(PluginGpu, ARefusedBufferHurtsNobodyElse)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
             b = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    size_t files = descriptors().size();
    void *mh = nullptr;
    const char *calls[] = {"cuMemGetHandleForAddressRange", "cuPointerGetAttribute",
                           "cuMemGetAddressRange_v2"};
    for (const char *call : calls) {
        fake->fail(call, 0, PVN_CU_UNKNOWN);
        EXPECT_NE(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kMiB, NCCL_PTR_CUDA, &mh))
            << call;
        EXPECT_EQ(nullptr, mh);
        EXPECT_GT(fake->fired(call), 0) << call;
        fake->fail(call, -1, 0);
    }
    ASSERT_EQ(0, sv::command("rule full fail call=reg_dmabuf_mr errno=ENOMEM"));
    EXPECT_NE(ncclSuccess, reg_dmabuf(p.d, p.sc, a, kMiB, &mh));
    EXPECT_EQ(1, sv::lib().sv_rule_fired("full"));
    EXPECT_TRUE(said("registering 1048576 bytes of GPU memory")) << Log::get().warnings();
    EXPECT_EQ(files, descriptors().size());
    void *smh = nullptr, *rmh = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), kMiB, NCCL_PTR_CUDA, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(b), kMiB, NCCL_PTR_CUDA, &rmh));
    EXPECT_TRUE(move(p, a, smh, b, rmh, kMiB, true));
}

TEST_F(PluginGpu, HostMemoryIsNotTakenForGpuMemory)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<char> host(4096);
    void *mh = nullptr;
    EXPECT_NE(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, host.data(), 4096, NCCL_PTR_CUDA, &mh));
    EXPECT_EQ(nullptr, mh);
    EXPECT_TRUE(said("is not device memory")) << Log::get().text();
}

// softverbs copies by the driver, as tests/gpu/run uses it beside real NCCL.
TEST_F(PluginGpu, CopiedByTheDriver)
{
    setenv("PVN_SOFTVERBS_CUDA_LIB", fakecuda_path().c_str(), 1);
    adapter("cuda", true);
    Net n(12);
    EXPECT_EQ(NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF, properties(n).ptrSupport);
    EXPECT_TRUE(said("gpu memory: dma-buf, proved")) << Log::get().text();
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 3 * kMiB, 512),
             b = fake->alloc(FAKECUDA_DEVICE, 0, 3 * kMiB, 512);
    void *smh = nullptr, *rmh = nullptr;
    ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.sc, a, 3 * kMiB, &smh));
    ASSERT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, b, 3 * kMiB, &rmh));
    int in = fake->calls("cuMemcpyHtoDAsync_v2"), out = fake->calls("cuMemcpyDtoHAsync_v2");
    EXPECT_TRUE(move(p, a + 999, smh, b + 4097, rmh, 2 * kMiB, true));
    EXPECT_GE(fake->calls("cuMemcpyHtoDAsync_v2") - in, 8) << "256 KiB at a time";
    EXPECT_GE(fake->calls("cuMemcpyDtoHAsync_v2") - out, 9) << "and the flush";
    EXPECT_EQ(1, waited_);
}

} // namespace
