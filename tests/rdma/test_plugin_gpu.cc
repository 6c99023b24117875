// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// GPU memory through the whole plugin: NCCL's calls, softverbs as the adapter, the double of the
// CUDA driver as the GPU.
#include "abi/nccl_side.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "softverbs/fixture.h"
#include "support/fakecuda_fixture.h"

using namespace nccl;

namespace
{

constexpr size_t kMiB = 1 << 20;

uint64_t gpu_first, gpu_last;
int refuse_gpu(void *addr, size_t len, int)
{
    auto a = reinterpret_cast<uintptr_t>(addr);
    return a < gpu_last && a + len > gpu_first ? EFAULT : 0;
}

// What fails when: softverbs' rules that only count.
const char *const kCounters = "set timeout_cap_ms 100;"
                              "rule reads delay ms=1 op=READ nth=1000000;"
                              "rule writes delay ms=1 op=WRITE nth=1000000;"
                              "rule dmabufs fail call=reg_dmabuf_mr errno=EIO nth=1000000";

class PluginGpu : public FakeCuda
{
  protected:
    sv::ForPlugin softverbs;
    struct sv_hooks *hooks = nullptr;
    int (*pin)(void *, size_t, int) = nullptr;

    void SetUp() override
    {
        FakeCuda::SetUp();
        setenv("NCCL_PVRDMA_CUDA_LIB", fakecuda_path().c_str(), 1);
        hooks = static_cast<struct sv_hooks *>(dlsym(sv::lib().handle, "sv_hooks"));
        pin = hooks->pin;
        gpu_first = fake->alloc(FAKECUDA_DEVICE, 0, 512, 512) & ~UINT64_C(4095);
        fake->free(gpu_first);
        gpu_last = gpu_first + 256 * kMiB;
        adapter("roce", false);
        Log::get().clear();
    }

    // In a process of its own: up to v10 the interface has no finalize, so what the plugin has
    // found stays.
    void alone(const std::function<void()> &body)
    {
        testing::FLAGS_gtest_death_test_style = "threadsafe";
        EXPECT_EXIT(
            {
                body();
                softverbs.remove();
                const testing::TestResult *r =
                    testing::UnitTest::GetInstance()->current_test_info()->result();
                for (int i = 0; i < r->total_part_count(); i++)
                    fprintf(stderr, "%s:%d: %s\n", r->GetTestPartResult(i).file_name(),
                            r->GetTestPartResult(i).line_number(),
                            r->GetTestPartResult(i).message());
                _exit(HasFailure() ? 1 : 0);
            },
            testing::ExitedWithCode(0), "");
    }

    void TearDown() override
    {
        hooks->pin = pin;
        for (const char *name : {"NCCL_PVRDMA_CUDA_LIB", "NCCL_PVRDMA_GPU_MEM", "NCCL_PVRDMA_FLUSH",
                                 "NCCL_DMABUF_ENABLE", "NCCL_PVRDMA_FAILOVER"})
            unsetenv(name);
        FakeCuda::TearDown();
    }

    // Before a Net is made: what softverbs plays.
    void adapter(const char *profile, bool peer_memory)
    {
        hooks->pin = peer_memory ? pin : refuse_gpu;
        sv::ForPlugin::play(profile, kCounters);
    }

    // One GPU of this generation: what the flush policy goes by.
    void gpu(int cc_major, int flush_options, int ordering)
    {
        fakecuda_device d = {"0000:0B:00.0", "Fake GPU", cc_major, 0, 1, 1, 1,
                             flush_options,  ordering};
        fake->reset(&d, 1);
        fake->init();
        fake->activate_primary(0, 1);
        fake->set_current(fake->primary(0));
    }

    static ncclNetProperties_v12_t properties(Net &n)
    {
        ncclNetProperties_v12_t p = {};
        EXPECT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, 0, &p));
        return p;
    }

    static int64_t seen(const char *rule)
    {
        return sv::lib().sv_rule_seen(rule);
    }

    static void *ptr(uint64_t a)
    {
        return reinterpret_cast<void *>(a);
    }

    // regMrDmaBuf as NCCL calls it: the descriptor is of whole pages and closed as soon as the call
    // is back.
    ncclResult_t reg_dmabuf(pvn_netdrv *d, void *comm, uint64_t addr, size_t len, void **mh)
    {
        uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), first = addr & -page;
        uint64_t span = ((addr + len + page - 1) & -page) - first;
        int fd = -1;
        EXPECT_EQ(0, pvn_cuda_export(cu, first, span, false, &fd, &why)) << why.reason[0];
        ncclResult_t rc =
            pvn_netdrv_reg_dmabuf(d, comm, ptr(addr), len, NCCL_PTR_CUDA, addr - first, fd, mh);
        close(fd);
        return rc;
    }

    // n bytes of one registered buffer into another. True when they have come; flushes, if NCCL
    // would.
    bool move(Pair &p, uint64_t from, void *smh, uint64_t to, void *rmh, size_t n, bool flush)
    {
        auto *src = static_cast<unsigned char *>(ptr(from)),
             *dst = static_cast<unsigned char *>(ptr(to));
        bytes::fill(src, n, salt_);
        memset(dst, 0, n);
        salt_++;
        fake->hide(hidden_);
        void *sr = nullptr, *rr = nullptr, *data = dst;
        int tag = 0, sd = 0, rd = 0, got = -1;
        bool ok = eventually([&] {
            if (!rr &&
                pvn_netdrv_irecv(p.d, p.rc, 1, &data, &n, &tag, &rmh, nullptr, &rr) != ncclSuccess)
                return true;
            if (!sr && pvn_netdrv_isend(p.d, p.sc, src, n, 0, smh, nullptr, &sr) != ncclSuccess)
                return true;
            if (sr && !sd && pvn_netdrv_test(p.d, sr, &sd, nullptr) != ncclSuccess)
                return true;
            if (rr && !rd && pvn_netdrv_test(p.d, rr, &rd, &got) != ncclSuccess)
                return true;
            return sd && rd;
        });
        fake->hide(false);
        EXPECT_TRUE(ok && sd && rd) << Log::get().warnings();
        if (flush)
            this->flush(p, data, n, rmh);
        return sd && rd && got == static_cast<int>(n) && memcmp(src, dst, n) == 0;
    }

    void flush(Pair &p, void *data, size_t n, void *mh)
    {
        void *req = nullptr;
        int size = static_cast<int>(n), done = 0;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_iflush(p.d, p.rc, 1, &data, &size, &mh, &req));
        if (!req)
            return;
        waited_++;
        ASSERT_TRUE(eventually([&] {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &done, nullptr));
            return done != 0 || HasFailure();
        }));
    }

    unsigned salt_ = 1;
    int waited_ = 0;
    bool hidden_ = false; // device memory from the processor, while a message moves
};

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
        // v4 brings its lanes up, and tries their flush, with the first transfer.
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
    reg(); // the sender's range is as it was, the receiver's is another one now
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

// While somebody still holds the registration of freed memory, its address comes back as another
// buffer.
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

// v4's comms come up with the first transfers, after regMr has returned and NCCL has closed its
// descriptor.
TEST_F(PluginGpu, ADescriptorIsKeptUntilTheLanesAreThere)
{
    alone([&] {
        Net lazy(4), newer(6);
        Pair p(lazy);
        ASSERT_TRUE(p.up());
        uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
                 b = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
        void *smh = nullptr, *rmh = nullptr, *unused = nullptr;
        int open_before = fake->dmabuf_open();
        ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.sc, a, kMiB, &smh));
        ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.rc, b, kMiB, &rmh));
        ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.rc, b, 4096, &unused));
        size_t files = descriptors().size();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, unused));
        EXPECT_EQ(files - 1, descriptors().size()) << "given back before it was used";
        EXPECT_TRUE(move(p, a, smh, b, rmh, kMiB, true));
        EXPECT_EQ(open_before, fake->dmabuf_open());
        void *more = nullptr;
        files = descriptors().size();
        ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.rc, b + 4096, 4096, &more));
        EXPECT_EQ(files, descriptors().size()) << "with lanes there is nothing to keep";
    });
}

TEST_F(PluginGpu, AKeptDescriptorIsClosedWithItsComm)
{
    alone([&] {
        Net lazy(4), newer(6);
        size_t files = descriptors().size();
        {
            Pair p(lazy);
            ASSERT_TRUE(p.up());
            uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
            void *mh = nullptr;
            ASSERT_EQ(ncclSuccess, reg_dmabuf(newer.d, p.sc, a, kMiB, &mh));
        }
        EXPECT_EQ(files, descriptors().size());
        EXPECT_EQ(0, fake->dmabuf_open());
    });
}

// A request to a queue pair that is not connected yet is repeated after seconds, so there must be
// none.
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

// With host memory too: the adapter reads from the caller's buffer and writes into the other's.
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

TEST_F(PluginGpu, FlushPolicies)
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
        {"auto", 9, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_ALL, 0, 0, 0, 0,
         "flush: none (compute capability 9.0"},
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

// A GPU that needs flushing by an adapter and a driver that cannot: not offered rather than wrong.
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

// softverbs that copies by the driver, as tests/gpu/run uses it beside real NCCL.
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

// The device can reach GPU memory, this connection cannot: the driver copies, and the processor, which
// faults on such memory, is kept out of it.
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
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{216}, size_t{5000}, kMiB + 3, kAll - 64}) {
        int in = fake->calls("cuMemcpyHtoDAsync_v2"), out = fake->calls("cuMemcpyDtoHAsync_v2");
        hidden_ = true;
        EXPECT_TRUE(move(p, a + 13, smh, b + 57, rmh, bytes, true)) << bytes;
        EXPECT_EQ(bytes > 0, fake->calls("cuMemcpyHtoDAsync_v2") > in) << bytes;
        EXPECT_EQ(bytes > 0, fake->calls("cuMemcpyDtoHAsync_v2") > out) << bytes;
    }
    EXPECT_EQ(0, waited_) << "for a flush: what a copy has brought needs none";
    Flow f = plain(p, {100, 5000});
    EXPECT_TRUE(f.run()) << "host memory goes on";
    f.check();
}

// A message that comes before its receive is kept in host memory, and copied later.
TEST_F(PluginGpu, UnexpectedMessagesAreCopiedToGpuMemory)
{
    Net n(12);
    ASSERT_EQ(0, sv::command("rule dead status status=RETRY_EXC_ERR op=WRITE count=0"));
    setenv("NCCL_PVRDMA_FAILOVER", "0", 1);
    Pair p(n);
    ASSERT_TRUE(p.up());
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    void *mh = nullptr, *sr[2] = {}, *rr[2] = {};
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, ptr(a), kMiB, NCCL_PTR_CUDA, &mh));
    std::vector<unsigned char> src(3000, 0x5a);
    int in = fake->calls("cuMemcpyHtoDAsync_v2");
    size_t size = src.size();
    auto receive = [&](int tag, void **req) {
        void *data = ptr(a + static_cast<uint64_t>(tag) * 4096);
        return pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, req);
    };
    ASSERT_EQ(ncclSuccess, receive(1, &rr[1]));
    for (int tag : {0, 1})
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_isend(p.d, p.sc, src.data(), size, tag, nullptr, nullptr, &sr[tag]));
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

// A copy that fails ends the comm with the driver's reason, at both ends.
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

} // namespace
