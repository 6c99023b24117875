// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include "support/fakecuda_fixture.h"
#include <cerrno>
#include <cstdint>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
extern "C" {
#include "memory/gpumem.h"
#include "nccl/types.h"
}

static constexpr uint64_t kMiB = 1 << 20;

/* ---- flush policy ---- */

static pvn_cuda_caps gpu_of(int cc_major, int ordering, int options = PVN_CU_FLUSH_OPT_HOST)
{
    pvn_cuda_caps g = {};
    snprintf(g.name, sizeof(g.name), "GPU");
    snprintf(g.bus_id, sizeof(g.bus_id), "0000:0b:00.0");
    g.cc_major = cc_major;
    g.gdr = g.dma_buf = 1;
    g.ordering = ordering;
    g.flush_options = options;
    g.has_flush = options >= 0;
    g.has_export = true;
    return g;
}

struct FlushCase {
    const char *name;
    pvn_flush_mode mode;
    int cc, ordering, options;
    bool can_read;
    pvn_flush_kind kind;
    bool force;
    const char *says;
};

class FlushPolicy : public ::testing::TestWithParam<FlushCase>
{
};

TEST_P(FlushPolicy, TheFlushIsWhatTheGpuNeeds)
{
    const FlushCase &c = GetParam();
    pvn_cuda_caps gpu = gpu_of(c.cc, c.ordering, c.options);
    pvn_flush_plan plan;
    pvn_flush_decide(c.mode, &gpu, c.can_read, &plan);
    EXPECT_EQ(plan.kind, c.kind) << plan.text;
    EXPECT_EQ(plan.force, c.force) << plan.text;
    EXPECT_EQ(std::string(plan.text).rfind("flush: ", 0), 0u) << plan.text;
    EXPECT_NE(std::string(plan.text).find(c.says), std::string::npos) << plan.text;
}

static const int kNone = PVN_CU_ORDER_NONE, kOwner = PVN_CU_ORDER_OWNER, kAll = PVN_CU_ORDER_ALL;
static const int kHost = PVN_CU_FLUSH_OPT_HOST, kMemops = PVN_CU_FLUSH_OPT_MEMOPS;
static const FlushCase kFlushCases[] = {
    /* Up to Ampere a flush is needed. NCCL requests it by itself. */
    {"AmpereRead", PVN_FLUSH_MODE_AUTO, 8, kNone, kHost, true, PVN_FLUSH_READ, false, "RDMA READ"},
    {"AmpereOrderedStillRead", PVN_FLUSH_MODE_AUTO, 8, kOwner, kHost, true, PVN_FLUSH_READ, false,
     "owner"},
    {"AmpereCuda", PVN_FLUSH_MODE_AUTO, 8, kNone, kHost, false, PVN_FLUSH_CUDA, false,
     "cuFlushGPUDirect"},
    {"AmpereOnlyMemops", PVN_FLUSH_MODE_AUTO, 8, kNone, kMemops, false, PVN_FLUSH_IMPOSSIBLE, false,
     "no RDMA READ"},
    {"AmpereNoMeansButOrdered", PVN_FLUSH_MODE_AUTO, 8, kAll, 0, false, PVN_FLUSH_NONE, false,
     "all devices"},
    {"VoltaOldDriver", PVN_FLUSH_MODE_AUTO, 7, -1, -1, true, PVN_FLUSH_READ, false, "not reported"},
    {"VoltaOldDriverNoRead", PVN_FLUSH_MODE_AUTO, 7, -1, -1, false, PVN_FLUSH_IMPOSSIBLE, false,
     "impossible"},
    /* From Hopper on NCCL hardly requests a flush. It is forced only if the driver says that one
     * is needed. */
    {"Hopper", PVN_FLUSH_MODE_AUTO, 9, kAll, kHost, true, PVN_FLUSH_READ, false, "all devices"},
    {"HopperNoRead", PVN_FLUSH_MODE_AUTO, 9, kAll, kHost, false, PVN_FLUSH_NONE, false,
     "flush: none"},
    {"HopperOwner", PVN_FLUSH_MODE_AUTO, 9, kOwner, kHost, true, PVN_FLUSH_READ, false, "owner"},
    {"HopperUnreported", PVN_FLUSH_MODE_AUTO, 9, -1, -1, true, PVN_FLUSH_READ, false,
     "not reported"},
    {"HopperUnordered", PVN_FLUSH_MODE_AUTO, 9, kNone, kHost, true, PVN_FLUSH_READ, true,
     "RDMA READ"},
    {"BlackwellUnorderedNoRead", PVN_FLUSH_MODE_AUTO, 10, kNone, kHost, false, PVN_FLUSH_CUDA, true,
     "cuFlush"},
    {"BlackwellNoMeans", PVN_FLUSH_MODE_AUTO, 10, kNone, 0, false, PVN_FLUSH_IMPOSSIBLE, false,
     "impossible"},
    /* The user's settings. */
    {"SetRead", PVN_FLUSH_MODE_READ, 9, kAll, kHost, true, PVN_FLUSH_READ, true,
     "NCCL_PVRDMA_FLUSH"},
    {"SetReadOnAmpere", PVN_FLUSH_MODE_READ, 8, kNone, kHost, true, PVN_FLUSH_READ, false,
     "NCCL_PVRDMA_FLUSH"},
    {"SetReadWithout", PVN_FLUSH_MODE_READ, 8, kNone, kHost, false, PVN_FLUSH_IMPOSSIBLE, false,
     "no RDMA READ"},
    {"SetCuda", PVN_FLUSH_MODE_CUDA, 8, kNone, kHost, true, PVN_FLUSH_CUDA, false,
     "cuFlushGPUDirect"},
    {"SetCudaWithout", PVN_FLUSH_MODE_CUDA, 8, kNone, -1, true, PVN_FLUSH_IMPOSSIBLE, false,
     "has no cuFlush"},
    {"SetNoneOnAmpere", PVN_FLUSH_MODE_NONE, 8, kNone, kHost, true, PVN_FLUSH_NONE, false,
     "before it has arrived"},
    {"SetNoneOnHopper", PVN_FLUSH_MODE_NONE, 9, kAll, kHost, true, PVN_FLUSH_NONE, false,
     "FLUSH=none)"},
};
INSTANTIATE_TEST_SUITE_P(Table, FlushPolicy, ::testing::ValuesIn(kFlushCases),
                         [](const auto &p) { return std::string(p.param.name); });

/* ---- capability ---- */

class Verdict : public ::testing::Test
{
  protected:
    Verdict()
    {
        f.can_write = f.can_read = true;
        f.gpu = gpu_of(8, PVN_CU_ORDER_NONE);
    }
    void worked(pvn_gpumem_trial &t)
    {
        t.done = true;
        t.rc = 0;
    }
    void failed(pvn_gpumem_trial &t, const char *why)
    {
        t.done = true;
        t.rc = -EFAULT;
        snprintf(t.why, sizeof(t.why), "%s", why);
    }
    void expect_staged(const char *says)
    {
        pvn_gpumem_decide(&f, &cap);
        EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST) << cap.text;
        EXPECT_FALSE(cap.peer || cap.dmabuf || cap.flush.force);
        EXPECT_EQ(std::string(cap.text).rfind("gpu memory: staged through host memory (", 0), 0u)
            << cap.text;
        EXPECT_NE(std::string(cap.text).find(says), std::string::npos) << cap.text;
    }
    pvn_gpumem_facts f = {};
    pvn_gpumem_cap cap = {};
};

TEST_F(Verdict, TheFirstObstacleIsNamed)
{
    worked(f.peer);
    worked(f.dmabuf);
    f.mode = PVN_GPU_MEM_OFF;
    f.can_write = false;
    f.cuda_rc = -ENOENT;
    snprintf(f.cuda_why, sizeof(f.cuda_why), "no CUDA here");
    f.gpu.gdr = 0;
    expect_staged("NCCL_PVRDMA_GPU_MEM=off");
    f.mode = PVN_GPU_MEM_AUTO;
    expect_staged("cannot write into remote memory");
    f.can_write = true;
    expect_staged("no CUDA here");
    f.cuda_rc = 0;
    expect_staged("GPU 0000:0b:00.0 (GPU) does not support GPUDirect RDMA");
    f.gpu.gdr = 1;
    pvn_gpumem_decide(&f, &cap);
    EXPECT_NE(cap.ptr_support, NCCL_PTR_HOST) << cap.text;
}

TEST_F(Verdict, BothTrialsFailed)
{
    failed(f.peer, "Bad address");
    failed(f.dmabuf, "provider has no dma-buf");
    expect_staged("dma-buf: provider has no dma-buf; peer memory: Bad address");
    f.dmabuf.done = false;
    expect_staged("(peer memory: Bad address)");
    f.peer.done = false;
    expect_staged("NCCL_DMABUF_ENABLE=0");
}

TEST_F(Verdict, PointerSupportIsWhatWasProved)
{
    worked(f.peer);
    failed(f.dmabuf, "no");
    pvn_gpumem_decide(&f, &cap);
    EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST | NCCL_PTR_CUDA);
    EXPECT_NE(std::string(cap.text).find("gpu memory: peer memory, proved on GPU 0000:0b:00.0"),
              std::string::npos)
        << cap.text;
    failed(f.peer, "no");
    worked(f.dmabuf);
    pvn_gpumem_decide(&f, &cap);
    EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF);
    EXPECT_FALSE(cap.peer);
    worked(f.peer);
    pvn_gpumem_decide(&f, &cap);
    EXPECT_TRUE(cap.peer && cap.dmabuf);
    EXPECT_NE(std::string(cap.text).find("dma-buf and peer memory"), std::string::npos) << cap.text;
    EXPECT_NE(std::string(cap.text).find("flush: RDMA READ"), std::string::npos) << cap.text;
}

TEST_F(Verdict, WhatCannotBeFlushedIsNotOffered)
{
    worked(f.peer);
    f.can_read = false;
    f.gpu.flush_options = 0;
    expect_staged("flush: impossible");
}

/* ---- cutting ---- */

static pvn_gpumem_view view_of(uint64_t base, uint64_t len, unsigned segments = 1)
{
    pvn_gpumem_view v = {};
    v.base = base;
    v.end = base + len;
    v.segments = segments;
    return v;
}

struct CutCase {
    const char *name;
    uint64_t base, size, addr, len, page;
    uint64_t want_addr, want_len;
};

class Cut : public ::testing::TestWithParam<CutCase>
{
};

TEST_P(Cut, IsAsExpected)
{
    const CutCase &c = GetParam();
    pvn_gpumem_view view = view_of(c.base, c.size);
    struct pvn_gpumem_plan plan;
    pvn_err err = {};
    ASSERT_EQ(pvn_gpumem_plan_region(c.addr, c.len, &view, c.page, &plan, &err), 0)
        << err.reason[0];
    EXPECT_EQ(plan.addr, c.want_addr);
    EXPECT_EQ(plan.len, c.want_len);
}

static const uint64_t B = UINT64_C(0x7f0000000000);
static const CutCase kCuts[] = {
    {"WholeAllocation", B, 2 * kMiB, B, 2 * kMiB, 4096, B, 2 * kMiB},
    {"SubRangeGrowsToGpuPages", B, 2 * kMiB, B + 100000, 8, 4096, B + 65536, 65536},
    {"StartsWithTheAllocationsPage", B + 4608, kMiB, B + 5000, 8, 4096, B + 4096, 61440},
    {"EndsWithTheAllocationsPage", B, 100000, B + 99990, 10, 4096, B + 65536, 36864},
    {"TinyAllocation", B + 1536, 8, B + 1536, 8, 4096, B, 4096},
    {"TinyAllocationBigHostPage", B + 1536, 8, B + 1536, 8, 65536, B, 65536},
    {"AcrossGpuPages", B, 2 * kMiB, B + 65535, 2, 4096, B, 131072},
    {"MappedGranule", B + 2 * kMiB, 2 * kMiB, B + 2 * kMiB, 2 * kMiB, 4096, B + 2 * kMiB, 2 * kMiB},
};
INSTANTIATE_TEST_SUITE_P(Table, Cut, ::testing::ValuesIn(kCuts),
                         [](const auto &p) { return std::string(p.param.name); });

TEST(CutRefuses, WhatIsNotInside)
{
    pvn_gpumem_view view = view_of(B, kMiB);
    struct pvn_gpumem_plan plan;
    pvn_err err = {};
    EXPECT_EQ(pvn_gpumem_plan_region(B, 0, &view, 4096, &plan, &err), -EINVAL);
    EXPECT_EQ(pvn_gpumem_plan_region(B - 1, 8, &view, 4096, &plan, &err), -EINVAL);
    EXPECT_EQ(pvn_gpumem_plan_region(B + kMiB - 7, 8, &view, 4096, &plan, &err), -EINVAL);
    EXPECT_EQ(pvn_gpumem_plan_region(UINT64_MAX - 3, 8, &view, 4096, &plan, &err), -EINVAL);
    EXPECT_EQ(pvn_gpumem_plan_region(B + kMiB - 8, 8, &view, 4096, &plan, &err), 0);
}

/* For any numbers: a registration covers the requested bytes, has whole pages, and does not go
 * beyond the pages of the allocation. */
TEST(CutProperty, ARegistrationCoversTheRequestInWholePages)
{
    std::mt19937_64 rng(20261121);
    for (int i = 0; i < 20000; i++) {
        uint64_t page = rng() % 2 ? 4096 : 65536;
        uint64_t base = B + rng() % (8 * kMiB) / 512 * 512, size = 1 + rng() % (4 * kMiB);
        uint64_t addr = base + rng() % size, len = 1 + rng() % (base + size - addr);
        pvn_gpumem_view view = view_of(base, size);
        struct pvn_gpumem_plan p;
        ASSERT_EQ(pvn_gpumem_plan_region(addr, len, &view, page, &p, nullptr), 0);
        ASSERT_LE(p.addr, addr);
        ASSERT_GE(p.addr + p.len, addr + len);
        ASSERT_EQ(p.addr % page, 0u);
        ASSERT_EQ(p.len % page, 0u);
        ASSERT_GT(p.addr + page, base);
        ASSERT_LT(p.addr + p.len, base + size + page);
    }
}

/* ---- with the libcuda double and a NIC double ---- */

/* A NIC double. It counts registrations, reads the bytes behind a dma-buf, and refuses the
 * registrations that the test names. */
struct FakeNic {
    pvn_gpumem_ops ops = {reg, reg_dmabuf, dereg};
    pvn_gpumem_nic nic = {"fake0 port 1", &ops, this, true, true, nullptr};
    int peer_rc = 0, dmabuf_rc = 0, dereg_rc = 0;
    int live = 0, peer_calls = 0, dmabuf_calls = 0;
    uint64_t addr = 0, len = 0, offset = 0;
    bool bytes_match = false;

    static int reg(void *self, uint64_t addr, uint64_t len, void **mr, pvn_err *err)
    {
        auto *n = static_cast<FakeNic *>(self);
        n->peer_calls++;
        if (n->peer_rc)
            return pvn_err_set(err, n->peer_rc, "ibv_reg_mr: Bad address");
        return n->keep(addr, len, 0, mr);
    }
    static int reg_dmabuf(void *self, int fd, uint64_t offset, uint64_t len, uint64_t iova,
                          void **mr, pvn_err *err)
    {
        auto *n = static_cast<FakeNic *>(self);
        n->dmabuf_calls++;
        if (n->dmabuf_rc)
            return pvn_err_set(err, n->dmabuf_rc, "ibv_reg_dmabuf_mr: Operation not supported");
        unsigned char first = 0, last = 0;
        off_t at = lseek(fd, 0, SEEK_CUR) + static_cast<off_t>(offset);
        const auto *mem = reinterpret_cast<const unsigned char *>(iova);
        n->bytes_match = pread(fd, &first, 1, at) == 1 && first == mem[0] &&
                         pread(fd, &last, 1, at + static_cast<off_t>(len) - 1) == 1 &&
                         last == mem[len - 1];
        return n->keep(iova, len, offset, mr);
    }
    static int dereg(void *self, void *mr, pvn_err *err)
    {
        auto *n = static_cast<FakeNic *>(self);
        if (n->dereg_rc)
            return pvn_err_set(err, n->dereg_rc, "ibv_dereg_mr: Device or resource busy");
        n->live--;
        EXPECT_EQ(mr, &n->addr);
        return 0;
    }
    int keep(uint64_t a, uint64_t l, uint64_t o, void **mr)
    {
        live++;
        addr = a;
        len = l;
        offset = o;
        *mr = &addr;
        return 0;
    }
};

class GpuMem : public FakeCuda
{
  protected:
    void prove(int dev = -1, bool cuda = true)
    {
        pvn_gpumem_prove(cuda ? cu : nullptr, nullptr, dev, &nic.nic, &facts, &cap);
        EXPECT_EQ(nic.live, 0) << "a trial registration is left";
        EXPECT_EQ(fake->live(), before) << "the trial's buffer is left";
        EXPECT_EQ(fake->dmabuf_open(), 0);
    }
    void fill(uint64_t addr, size_t len)
    {
        auto *p = reinterpret_cast<unsigned char *>(addr);
        for (size_t i = 0; i < len; i += 61)
            p[i] = static_cast<unsigned char>(i / 61 + 1);
    }
    int reg(uint64_t addr, uint64_t len, pvn_gpumem_mr *mr)
    {
        return pvn_gpumem_register(cu, &nic.nic, &cap, addr, len, -1, 0, mr, &why);
    }
    // The buffer id; 0: the range is not, or not wholly, allocated.
    uint64_t id_of(uint64_t addr, uint64_t len)
    {
        pvn_gpumem_view view;
        return pvn_gpumem_look(cu, addr, len, &view, nullptr) == 0 ? view.id : 0;
    }
    FakeNic nic;
    pvn_gpumem_facts facts = {};
    pvn_gpumem_cap cap = {};
    size_t before = 0;
};

TEST_F(GpuMem, ProofByDmabufAndPeerMemory)
{
    prove();
    EXPECT_TRUE(cap.peer && cap.dmabuf);
    EXPECT_EQ(nic.peer_calls, 1);
    EXPECT_EQ(nic.dmabuf_calls, 1);
    EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF);
    EXPECT_EQ(cap.flush.kind, PVN_FLUSH_READ);
    EXPECT_NE(std::string(cap.text).find("0000:0b:00.0 (Fake A100)"), std::string::npos)
        << cap.text;
}

TEST_F(GpuMem, ProofOnAnotherDeviceWithItsOwnPolicy)
{
    fake->activate_primary(1, 1);
    prove(1);
    EXPECT_NE(std::string(cap.text).find("Fake H100"), std::string::npos) << cap.text;
    EXPECT_NE(std::string(cap.flush.text).find("where NCCL requests one"), std::string::npos);
    EXPECT_FALSE(cap.flush.force);
    EXPECT_EQ(fake->current(), fake->primary(0));
}

/* As with PVRDMA: the provider has no dma-buf, and no peer-memory client reaches the driver. */
TEST_F(GpuMem, PvrdmaIsStagedAndSaysWhy)
{
    nic.peer_rc = -EFAULT;
    nic.dmabuf_rc = -EOPNOTSUPP;
    prove();
    EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST);
    EXPECT_STREQ(
        cap.text,
        "gpu memory: staged through host memory (dma-buf: ibv_reg_dmabuf_mr: Operation not "
        "supported; peer memory: ibv_reg_mr: Bad address)");
}

TEST_F(GpuMem, ModesLimitTheTrials)
{
    facts.mode = PVN_GPU_MEM_PEERMEM;
    prove();
    EXPECT_EQ(nic.dmabuf_calls, 0);
    EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST | NCCL_PTR_CUDA);
    facts.mode = PVN_GPU_MEM_DMABUF;
    prove();
    EXPECT_EQ(nic.peer_calls, 1);
    EXPECT_TRUE(cap.dmabuf && !cap.peer);
    facts.nccl_no_dmabuf = true;
    prove();
    EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST) << cap.text;
    facts.mode = PVN_GPU_MEM_OFF;
    int calls = fake->calls("cuDeviceGetAttribute");
    prove();
    EXPECT_EQ(fake->calls("cuDeviceGetAttribute"), calls) << "off means that CUDA is not called";
}

TEST_F(GpuMem, NoTrialWithoutNeed)
{
    nic.nic.can_write = false;
    prove();
    EXPECT_EQ(nic.peer_calls + nic.dmabuf_calls, 0);
    nic.nic.can_write = true;
    prove(2); /* a GPU without GPUDirect RDMA */
    EXPECT_EQ(nic.peer_calls + nic.dmabuf_calls, 0);
    EXPECT_NE(std::string(cap.text).find("Fake GTX"), std::string::npos) << cap.text;
}

TEST_F(GpuMem, WithoutCudaOrContext)
{
    prove(-1, false);
    EXPECT_NE(std::string(cap.text).find("this process does not use CUDA"), std::string::npos)
        << cap.text;
    fake->set_current(nullptr);
    prove();
    EXPECT_NE(std::string(cap.text).find("no CUDA context is current"), std::string::npos)
        << cap.text;
    prove(1);
    EXPECT_NE(std::string(cap.text).find("GPU 1 has no active CUDA context"), std::string::npos)
        << cap.text;
}

TEST_F(GpuMem, EveryDriverCallOfTheProofMayFail)
{
    for (const char *entry : {"cuCtxGetCurrent", "cuCtxGetDevice", "cuDeviceGetAttribute",
                              "cuDeviceGetName", "cuDeviceGetPCIBusId", "cuDriverGetVersion",
                              "cuMemAlloc_v2", "cuThreadExchangeStreamCaptureMode"}) {
        fake->fail(entry, 1, PVN_CU_UNKNOWN);
        prove();
        EXPECT_EQ(fake->fired(entry), 1) << entry;
        EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST) << entry << ": " << cap.text;
        EXPECT_NE(std::string(cap.text).find("CUDA_ERROR_UNKNOWN"), std::string::npos) << cap.text;
    }
    fake->fail("cuMemGetHandleForAddressRange", 1, PVN_CU_NOT_SUPPORTED);
    prove();
    EXPECT_TRUE(cap.peer && !cap.dmabuf) << cap.text;
    EXPECT_EQ(fake->fired("cuMemGetHandleForAddressRange"), 1);
}

TEST_F(GpuMem, ADeregistrationThatFailsIsNoProof)
{
    nic.dereg_rc = -EBUSY;
    pvn_gpumem_prove(cu, nullptr, -1, &nic.nic, &facts, &cap);
    EXPECT_EQ(cap.ptr_support, NCCL_PTR_HOST);
    EXPECT_NE(std::string(cap.text).find("Device or resource busy"), std::string::npos) << cap.text;
}

TEST_F(GpuMem, RegistersASubRangeByDmabuf)
{
    prove();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 3 * kMiB + 40, 512);
    fill(a, 3 * kMiB);
    pvn_gpumem_mr mr;
    ASSERT_EQ(reg(a + 70001, 123, &mr), 0) << why.reason[0];
    EXPECT_TRUE(mr.by_dmabuf);
    EXPECT_EQ(mr.dev, 0);
    EXPECT_LE(nic.addr, a + 70001);
    EXPECT_GE(nic.addr + nic.len, a + 70001 + 123);
    EXPECT_TRUE(nic.bytes_match) << "the region is not where the dma-buf says";
    EXPECT_EQ(fake->dmabuf_open(), 0) << "our own descriptor must be closed";
    EXPECT_EQ(pvn_gpumem_deregister(&nic.nic, &mr, &why), 0);
    EXPECT_EQ(nic.live, 0);
    EXPECT_EQ(pvn_gpumem_deregister(&nic.nic, &mr, &why), 0) << "twice is harmless";
}

TEST_F(GpuMem, RegistersAnUnalignedSmallAllocation)
{
    prove();
    (void)fake->alloc(FAKECUDA_DEVICE, 0, 512 * 3, 512);
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 8, 512);
    ASSERT_NE(a % 4096, 0u);
    fill(a, 8);
    pvn_gpumem_mr mr;
    ASSERT_EQ(reg(a, 8, &mr), 0) << why.reason[0];
    EXPECT_EQ(nic.addr, a & ~UINT64_C(4095));
    EXPECT_EQ(nic.offset, 0u);
    EXPECT_TRUE(nic.bytes_match);
    pvn_gpumem_deregister(&nic.nic, &mr, nullptr);
}

TEST_F(GpuMem, FallsBackToPeerMemoryWhenTheExportFails)
{
    prove();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    fake->fail("cuMemGetHandleForAddressRange", 1, PVN_CU_UNKNOWN);
    pvn_gpumem_mr mr;
    ASSERT_EQ(reg(a, kMiB, &mr), 0) << why.reason[0];
    EXPECT_EQ(fake->fired("cuMemGetHandleForAddressRange"), 1);
    EXPECT_FALSE(mr.by_dmabuf);
    EXPECT_EQ(nic.len, kMiB);
    pvn_gpumem_deregister(&nic.nic, &mr, nullptr);
}

TEST_F(GpuMem, NcclsDescriptorIsTakenAsItIs)
{
    prove();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    fill(a, kMiB);
    int fd = -1;
    ASSERT_EQ(pvn_cuda_export(cu, 0, a + 131072, 131072, false, &fd, &why), 0) << why.reason[0];
    pvn_gpumem_mr mr;
    ASSERT_EQ(pvn_gpumem_register(cu, &nic.nic, &cap, a + 131072 + 8192, 5000, fd, 8192, &mr, &why),
              0)
        << why.reason[0];
    EXPECT_EQ(nic.addr, a + 131072 + 8192);
    EXPECT_EQ(nic.len, 8192u);
    EXPECT_EQ(nic.offset, 8192u);
    EXPECT_TRUE(nic.bytes_match);
    struct stat st;
    EXPECT_EQ(fstat(fd, &st), 0) << "the descriptor is the caller's to close";
    pvn_gpumem_deregister(&nic.nic, &mr, nullptr);
    EXPECT_EQ(pvn_gpumem_register(cu, &nic.nic, &cap, a, 5000, fd, 100, &mr, &why), -EINVAL);
    cap.dmabuf = false;
    EXPECT_EQ(pvn_gpumem_register(cu, &nic.nic, &cap, a, 5000, fd, 0, &mr, &why), -EOPNOTSUPP);
    close(fd);
}

TEST_F(GpuMem, NothingIsRegisteredThatWasNotProved)
{
    nic.peer_rc = -EFAULT;
    nic.dmabuf_rc = -EOPNOTSUPP;
    prove();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    int calls = nic.peer_calls + nic.dmabuf_calls;
    pvn_gpumem_mr mr;
    EXPECT_EQ(reg(a, kMiB, &mr), -EOPNOTSUPP);
    EXPECT_EQ(nic.peer_calls + nic.dmabuf_calls, calls);
    EXPECT_NE(std::string(why.reason[0]).find("staged through host memory"), std::string::npos)
        << why.reason[0];
}

TEST_F(GpuMem, MemoryThatCannotBeRegistered)
{
    prove();
    pvn_gpumem_mr mr;
    uint64_t managed = fake->alloc(FAKECUDA_MANAGED, 0, kMiB, 65536);
    EXPECT_EQ(reg(managed, 8, &mr), -EFAULT);
    EXPECT_NE(std::string(why.reason[0]).find("cudaMallocManaged"), std::string::npos)
        << why.reason[0];
    int local = 0;
    EXPECT_EQ(reg(reinterpret_cast<uintptr_t>(&local), 4, &mr), -EFAULT);
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    EXPECT_EQ(reg(a, 2 * kMiB, &mr), -EFAULT) << "past the end of the allocation";
    EXPECT_EQ(reg(a, 0, &mr), -EINVAL);
    EXPECT_EQ(reg(a, UINT64_MAX, &mr), -EINVAL);
    EXPECT_EQ(nic.live, 0);
}

TEST_F(GpuMem, AFreedAndReusedAddressHasAnotherId)
{
    prove();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    uint64_t id = id_of(a, kMiB);
    EXPECT_NE(id, 0u);
    EXPECT_EQ(id_of(a + 100, 1000), id) << "of the allocation, not of the range";
    fake->free(a);
    EXPECT_EQ(id_of(a, kMiB), 0u) << "freed";
    ASSERT_EQ(fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536), a);
    EXPECT_NE(id_of(a, kMiB), id) << "same address, other buffer";
}

TEST_F(GpuMem, MappedSegmentsAreOneRegionWhereTheDriverAllows)
{
    prove();
    uint64_t v = fake->vmm_reserve(16 * kMiB);
    for (int i = 0; i < 3; i++)
        fake->vmm_map(v + i * 2 * kMiB, 2 * kMiB, 0);
    fill(v, 6 * kMiB);
    pvn_gpumem_view view;
    ASSERT_EQ(pvn_gpumem_look(cu, v + kMiB, 4 * kMiB, &view, &why), 0) << why.reason[0];
    EXPECT_EQ(view.segments, 3u);
    EXPECT_EQ(view.base, v);
    EXPECT_EQ(view.end, v + 6 * kMiB);
    pvn_gpumem_mr mr;
    ASSERT_EQ(reg(v + kMiB, 4 * kMiB, &mr), 0) << why.reason[0];
    EXPECT_TRUE(mr.by_dmabuf && nic.bytes_match);

    /* A segment in the middle is replaced, so the registered memory is no longer the memory at
     * that address. */
    fake->vmm_unmap(v + 2 * kMiB);
    EXPECT_EQ(id_of(v + kMiB, 4 * kMiB), 0u);
    fake->vmm_map(v + 2 * kMiB, 2 * kMiB, 0);
    EXPECT_NE(id_of(v + kMiB, 4 * kMiB), view.id);
    pvn_gpumem_deregister(&nic.nic, &mr, nullptr);

    EXPECT_EQ(reg(v + 5 * kMiB, 2 * kMiB, &mr), -EFAULT) << "reserved, not mapped";
}

TEST_F(GpuMem, MappedSegmentsThatTheDriverExportsOnlyOneByOne)
{
    prove();
    fake->set_single_segment_export(1);
    nic.peer_rc = -EFAULT;
    uint64_t v = fake->vmm_reserve(16 * kMiB);
    fake->vmm_map(v, 2 * kMiB, 0);
    fake->vmm_map(v + 2 * kMiB, 4 * kMiB, 0);
    pvn_gpumem_mr mr;
    EXPECT_NE(reg(v, 6 * kMiB, &mr), 0);
    EXPECT_NE(std::string(why.reason[1]).find("2 separate physical allocations"), std::string::npos)
        << why.reason[1];
    ASSERT_EQ(reg(v + 3 * kMiB, 3 * kMiB, &mr), 0) << why.reason[0];
    EXPECT_TRUE(nic.bytes_match);
    pvn_gpumem_deregister(&nic.nic, &mr, nullptr);
}

TEST_F(GpuMem, SegmentsOfTwoDevicesAreRefused)
{
    prove();
    uint64_t v = fake->vmm_reserve(4 * kMiB);
    fake->vmm_map(v, 2 * kMiB, 0);
    fake->vmm_map(v + 2 * kMiB, 2 * kMiB, 1);
    pvn_gpumem_mr mr;
    EXPECT_EQ(reg(v, 4 * kMiB, &mr), -EXDEV);
    EXPECT_NE(std::string(why.reason[0]).find("GPUs 0 and 1"), std::string::npos) << why.reason[0];
}

TEST_F(GpuMem, AnAllocationWithoutGpuDirectIsNamed)
{
    prove();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    fake->set_gdr_capable(a, 0);
    nic.peer_rc = -EFAULT;
    nic.dmabuf_rc = -EFAULT;
    pvn_gpumem_mr mr;
    EXPECT_EQ(reg(a, kMiB, &mr), -EFAULT);
    EXPECT_NE(std::string(why.reason[1]).find("gpuDirectRDMACapable"), std::string::npos)
        << why.reason[1];
}
