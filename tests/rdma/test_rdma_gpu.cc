// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// GPU memory on the RDMA lane: the double of the CUDA driver provides the memory, softverbs
// registers and writes it.
#include "rdma/lane_pair.h"
#include "support/fakecuda_fixture.h"

#include <algorithm>
#include <cstring>

extern "C" {
#include "net-pvrdma/gpu.h"
#include "nccl/types.h"
#include "softverbs/softverbs.h"
}

namespace
{

constexpr size_t kMiB = 1 << 20;

// The address range of the double's memory, one mapping of 256 MiB. A NIC without a peer-memory
// client refuses these GPU addresses.
uint64_t gpu_first, gpu_last;
int refuse_gpu(void *addr, size_t len, int)
{
    auto a = reinterpret_cast<uintptr_t>(addr);
    return a < gpu_last && a + len > gpu_first ? EFAULT : 0;
}

// Registers host memory directly with the device, and counts.
struct HostRegistrar {
    const pvn_verbs *v;
    ibv_pd *pd;
    int live = 0;
    static int reg(void *arg, const pvn_mr *mr, bool, int, uint64_t, pvn_rdma_mem **out, pvn_err *)
    {
        auto *h = static_cast<HostRegistrar *>(arg);
        auto *mem =
            static_cast<pvn_rdma_mem *>(calloc(1, sizeof(pvn_rdma_mem) + 2 * sizeof(void *)));
        mem->addr = reinterpret_cast<uintptr_t>(mr->addr);
        mem->count = 1;
        mem->part[0].mr = h->v->reg_mr(h->pd, mr->addr, mr->len, IBV_ACCESS_LOCAL_WRITE);
        mem->part[0].owner = mem;
        *out = mem;
        h->live++;
        return 0;
    }
    static void dereg(void *arg, pvn_rdma_mem *mem)
    {
        auto *h = static_cast<HostRegistrar *>(arg);
        h->live--;
        h->v->dereg_mr(mem->part[0].mr);
        free(mem);
    }
};

class RdmaGpu : public FakeCuda
{
  protected:
    RdmaPair pair;
    pvn_rdma_gpu *gpu = nullptr;
    HostRegistrar host = {};
    pvn_rdma_registrar registrar = {};
    pvn_rdma_gpu_cfg cfg = {};
    pvn_verbs table = {};
    struct sv_hooks *hooks = nullptr;
    int (*pin)(void *, size_t, int) = nullptr;

    // The lane exists before it is known how the device registers GPU memory. So it registers
    // through these functions.
    static int lane_reg(void *arg, const pvn_mr *mr, bool relaxed, int fd, uint64_t offset,
                        pvn_rdma_mem **out, pvn_err *err)
    {
        auto &r = static_cast<RdmaGpu *>(arg)->registrar;
        return r.reg(r.arg, mr, relaxed, fd, offset, out, err);
    }
    static void lane_dereg(void *arg, pvn_rdma_mem *mem)
    {
        auto &r = static_cast<RdmaGpu *>(arg)->registrar;
        r.dereg(r.arg, mem);
    }
    static int lane_flush(void *arg, const pvn_rdma_mem *mem, pvn_err *err)
    {
        auto &r = static_cast<RdmaGpu *>(arg)->registrar;
        return r.flush(r.arg, mem, err);
    }

    void open(const char *profile, bool peer_memory, pvn_flush_kind flush = PVN_FLUSH_NONE)
    {
        RdmaOptions o;
        o.profile = profile;
        o.flush = flush;
        o.registrar = {lane_reg, lane_dereg, lane_flush, this};
        pair.open(o);
        hooks = static_cast<struct sv_hooks *>(dlsym(sv::lib().handle, "sv_hooks"));
        ASSERT_NE(nullptr, hooks);
        pin = hooks->pin;
        gpu_first = fake->alloc(FAKECUDA_DEVICE, 0, 512, 512) & ~UINT64_C(4095);
        fake->free(gpu_first);
        gpu_last = gpu_first + 256 * kMiB;
        if (!peer_memory)
            hooks->pin = refuse_gpu;
        table = *pair.rx.v;
        cfg.v = &table;
        cfg.pd = pair.rx.pd;
        cfg.name = "soft0";
        cfg.can_write = cfg.can_read = true;
        cfg.cuda_lib = "libcuda.so.1";
        reopen();
    }

    void reopen()
    {
        pvn_rdma_gpu_close(gpu);
        host.v = cfg.v;
        host.pd = cfg.pd;
        cfg.host = {HostRegistrar::reg, HostRegistrar::dereg, nullptr, &host};
        gpu = pvn_rdma_gpu_open(&cfg, &why);
        ASSERT_NE(nullptr, gpu);
        pvn_rdma_gpu_registrar(gpu, &registrar);
        EXPECT_EQ(fake->live(), 0u);
    }

    void TearDown() override
    {
        pvn_rdma_gpu_close(gpu);
        if (hooks)
            hooks->pin = pin;
        EXPECT_EQ(host.live, 0);
        FakeCuda::TearDown();
    }

    std::string text() const
    {
        return pvn_rdma_gpu_cap(gpu)->text;
    }

    pvn_mr region(uint64_t addr, size_t len, int type)
    {
        pvn_mr mr = {};
        mr.addr = reinterpret_cast<void *>(addr);
        mr.len = len;
        mr.ptr_type = type;
        return mr;
    }

    // Sends n bytes of host memory into registered GPU memory at `to` and compares.
    void deliver(uint64_t to, size_t n)
    {
        pvn_mr mr = region(to, n, NCCL_PTR_CUDA);
        pvn_lane *lane = pair.rx.lane;
        ASSERT_EQ(0, lane->ops->mem_reg(lane, &mr, -1, 0, nullptr)) << lane->err.reason[0];
        ASSERT_NE(nullptr, pvn_rdma_mem_find(static_cast<pvn_rdma_mem *>(mr.lane_mr[0]), to, n));
        EXPECT_EQ(mr.gpu, 1u);
        std::vector<uint8_t> out(n);
        for (size_t i = 0; i < n; i++)
            out[i] = static_cast<uint8_t>(i * 7 + i / 255);
        pvn_mr *smr = pair.tx.reg(out.data(), n);
        void *dst = mr.addr;
        const pvn_mr *rmr = &mr;
        int tag = 1, done_s = 0, done_r = 0;
        size_t got = 0, sent = 0;
        pvn_req *s = nullptr, *r = nullptr;
        ASSERT_EQ(0, pvn_engine_irecv(pair.rx.e, 1, &dst, &n, &tag, &rmr, &r));
        for (Deadline wait; wait.left() && !(done_s && done_r);) {
            if (!s) {
                ASSERT_EQ(0, pvn_engine_isend(pair.tx.e, out.data(), n, tag, smr, &s));
            } else if (!done_s) {
                ASSERT_EQ(0, pvn_engine_test(s, &done_s, &sent)) << pair.tx.lane->err.reason[0];
            }
            if (!done_r) {
                ASSERT_EQ(0, pvn_engine_test(r, &done_r, &got)) << pair.rx.lane->err.reason[0];
            }
        }
        ASSERT_TRUE(done_s && done_r);
        EXPECT_EQ(got, n);
        EXPECT_EQ(0, memcmp(reinterpret_cast<void *>(to), out.data(), n));
        flush_one(dst, n, rmr);
        lane->ops->mem_dereg(lane, &mr);
    }

    // Flushes as NCCL does after a receive, and counts the flushes that were not done at once.
    int waited = 0;
    void flush_one(void *p, size_t n, const pvn_mr *mr)
    {
        pvn_req *req = nullptr;
        int done = 0;
        ASSERT_EQ(0, pvn_engine_iflush(pair.rx.e, 1, &p, &n, &mr, &req))
            << pair.rx.lane->err.reason[0];
        waited += req != nullptr;
        for (long i = 0; req && !done; i++) {
            ASSERT_LT(i, 10000000L);
            ASSERT_EQ(0, pvn_engine_test(req, &done, nullptr)) << pair.rx.lane->err.reason[0];
        }
    }
};

TEST_F(RdmaGpu, DataArriveInGpuMemoryByDmabuf)
{
    open("roce", false);
    EXPECT_EQ(pvn_rdma_gpu_cap(gpu)->ptr_support, NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF)
        << text();
    EXPECT_FALSE(pvn_rdma_gpu_cap(gpu)->peer) << text();
    EXPECT_NE(text().find("gpu memory: dma-buf, proved on GPU 0000:0b:00.0"), std::string::npos)
        << text();
    (void)fake->alloc(FAKECUDA_DEVICE, 0, 5 * 512, 512);
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 3 * kMiB, 512);
    ASSERT_NE(a % 4096, 0u);
    deliver(a, 3 * kMiB);
    deliver(a + kMiB + 1001, 70000);
    deliver(a + 3 * kMiB - 8, 8);
}

TEST_F(RdmaGpu, DataArriveInGpuMemoryByPeerMemory)
{
    open("pvrdma", true);
    EXPECT_EQ(pvn_rdma_gpu_cap(gpu)->ptr_support, NCCL_PTR_HOST | NCCL_PTR_CUDA) << text();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512);
    deliver(a + 99, 100000);
}

TEST_F(RdmaGpu, PvrdmaWithoutPeerMemoryStages)
{
    open("pvrdma", false);
    EXPECT_EQ(pvn_rdma_gpu_cap(gpu)->ptr_support, NCCL_PTR_HOST);
    EXPECT_NE(text().find("dma-buf: soft0: ibv_reg_dmabuf_mr: Operation not supported; peer "
                          "memory: soft0: ibv_reg_mr: "
                          "Bad address"),
              std::string::npos)
        << text();
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512);
    pvn_mr mr = region(a, kMiB, NCCL_PTR_CUDA);
    pvn_rdma_mem *mem = nullptr;
    EXPECT_EQ(registrar.reg(registrar.arg, &mr, false, -1, 0, &mem, &why), -EOPNOTSUPP);
    EXPECT_EQ(mem, nullptr);
}

TEST_F(RdmaGpu, OldLibibverbsHasNoDmabuf)
{
    open("roce", false);
    table.reg_dmabuf_mr = nullptr;
    reopen();
    EXPECT_EQ(pvn_rdma_gpu_cap(gpu)->ptr_support, NCCL_PTR_HOST);
    EXPECT_NE(text().find("no ibv_reg_dmabuf_mr (rdma-core 34"), std::string::npos) << text();
}

TEST_F(RdmaGpu, NcclsDescriptorIsUsedForGpuMemoryAndNoneForHostMemory)
{
    open("roce", true);
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    int fd = -1;
    ASSERT_EQ(pvn_cuda_export(cu, 0, a, kMiB, false, &fd, &why), 0) << why.reason[0];
    pvn_mr mr = region(a, kMiB, NCCL_PTR_CUDA);
    pvn_rdma_mem *gmem = nullptr, *hmem = nullptr;
    ASSERT_EQ(registrar.reg(registrar.arg, &mr, false, fd, 0, &gmem, &why), 0) << why.reason[0];
    close(fd);
    EXPECT_EQ(host.live, 0);
    std::vector<uint8_t> buf(5000);
    pvn_mr hmr = region(reinterpret_cast<uintptr_t>(buf.data()), buf.size(), NCCL_PTR_HOST);
    ASSERT_EQ(registrar.reg(registrar.arg, &hmr, false, -1, 0, &hmem, &why), 0);
    EXPECT_EQ(host.live, 1);

    EXPECT_EQ(registrar.flush(registrar.arg, gmem, &why), 0) << why.reason[0];
    EXPECT_EQ(fake->calls("cuFlushGPUDirectRDMAWrites"), 1);
    EXPECT_EQ(registrar.flush(registrar.arg, hmem, &why), -EINVAL);
    registrar.dereg(registrar.arg, hmem);
    registrar.dereg(registrar.arg, gmem);
}

uint64_t reads_seen()
{
    return static_cast<uint64_t>(sv::lib().sv_rule_seen("reads"));
}

TEST_F(RdmaGpu, FlushByReadIsOneReadOfTheBuffer)
{
    open("roce", false, PVN_FLUSH_READ);
    ASSERT_EQ(0, sv::command("rule reads delay ms=1 op=READ nth=1000000"));
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    deliver(a, kMiB);
    deliver(a + 1001, 1);
    EXPECT_EQ(reads_seen(), 2u);
    EXPECT_EQ(waited, 2);
    EXPECT_EQ(fake->calls("cuFlushGPUDirectRDMAWrites"), 0);
}

TEST_F(RdmaGpu, FlushThatFailsFailsTheReceiver)
{
    open("roce", false, PVN_FLUSH_READ);
    ASSERT_EQ(0, sv::command("rule broken status status=REM_ACCESS_ERR op=READ"));
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    pvn_mr mr = region(a, kMiB, NCCL_PTR_CUDA);
    pvn_lane *lane = pair.rx.lane;
    ASSERT_EQ(0, lane->ops->mem_reg(lane, &mr, -1, 0, nullptr));
    void *p = mr.addr;
    size_t n = kMiB;
    const pvn_mr *m = &mr;
    pvn_req *req = nullptr;
    int done = 0, rc = 0;
    ASSERT_EQ(0, pvn_engine_iflush(pair.rx.e, 1, &p, &n, &m, &req));
    ASSERT_NE(nullptr, req);
    for (Deadline wait; wait.left() && rc == 0 && !done;)
        rc = pvn_engine_test(req, &done, nullptr);
    EXPECT_EQ(rc, -EIO);
    EXPECT_FALSE(done) << "a flush that failed must not look done";
    EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
    EXPECT_NE(nullptr, strstr(pvn_engine_err(pair.rx.e)->reason[0], "GPU memory to flush it"))
        << pvn_engine_err(pair.rx.e)->reason[0];
    lane->ops->mem_dereg(lane, &mr);
}

TEST_F(RdmaGpu, FlushByTheDriver)
{
    open("roce", false, PVN_FLUSH_CUDA);
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    deliver(a, 5000);
    EXPECT_EQ(fake->calls("cuFlushGPUDirectRDMAWrites"), 1);
    EXPECT_EQ(waited, 0) << "done when the call returns";
    fake->fail("cuFlushGPUDirectRDMAWrites", 1, PVN_CU_UNKNOWN);
    pvn_mr mr = region(a, kMiB, NCCL_PTR_CUDA);
    pvn_lane *lane = pair.rx.lane;
    ASSERT_EQ(0, lane->ops->mem_reg(lane, &mr, -1, 0, nullptr));
    void *p = mr.addr;
    size_t n = kMiB;
    const pvn_mr *m = &mr;
    pvn_req *req = nullptr;
    EXPECT_EQ(pvn_engine_iflush(pair.rx.e, 1, &p, &n, &m, &req), -EIO);
    EXPECT_EQ(req, nullptr);
    EXPECT_EQ(fake->fired("cuFlushGPUDirectRDMAWrites"), 1);
    lane->ops->mem_dereg(lane, &mr);
}

// One flush covers all buffers of one GPU. Buffers of another GPU need a flush of their own, and
// host memory needs none.
TEST_F(RdmaGpu, FlushOfAGroupIsOnePerGpu)
{
    open("roce", false, PVN_FLUSH_READ);
    ASSERT_EQ(0, sv::command("rule reads delay ms=1 op=READ nth=1000000"));
    fake->activate_primary(1, 1);
    std::vector<uint8_t> host_memory(4096);
    uint64_t where[] = {fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
                        fake->alloc(FAKECUDA_DEVICE, 1, kMiB, 65536),
                        fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536),
                        reinterpret_cast<uintptr_t>(host_memory.data())};
    pvn_mr mr[4];
    const pvn_mr *mrs[4];
    void *p[4];
    size_t n[4];
    pvn_lane *lane = pair.rx.lane;
    for (int i = 0; i < 4; i++) {
        mr[i] = region(where[i], 4096, i < 3 ? NCCL_PTR_CUDA : NCCL_PTR_HOST);
        ASSERT_EQ(0, lane->ops->mem_reg(lane, &mr[i], -1, 0, nullptr)) << lane->err.reason[0];
        mrs[i] = &mr[i];
        p[i] = mr[i].addr;
        n[i] = 4096;
    }
    auto flush = [&](int count) {
        pvn_req *req = nullptr;
        int done = 0;
        uint64_t before = reads_seen();
        EXPECT_EQ(0, pvn_engine_iflush(pair.rx.e, count, p, n, mrs, &req));
        for (Deadline wait; wait.left() && req && !done;)
            EXPECT_EQ(0, pvn_engine_test(req, &done, nullptr));
        EXPECT_TRUE(!req || done);
        return reads_seen() - before;
    };
    EXPECT_EQ(flush(4), 2u);
    EXPECT_EQ(flush(1), 1u);
    n[0] = n[2] = 0;
    EXPECT_EQ(flush(4), 1u) << "GPU 0 got nothing";
    n[1] = 0;
    EXPECT_EQ(flush(4), 0u) << "host memory is not flushed";
    for (auto &m : mr)
        lane->ops->mem_dereg(lane, &m);
}

// The region stays for its second user. If an address is given out again, its new buffer is not
// mistaken for the first one.
TEST_F(RdmaGpu, RegionsAreSharedByBufferIdNotByAddress)
{
    open("roce", false);
    uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    pvn_mr mr = region(a, kMiB, NCCL_PTR_CUDA), part = region(a + 5000, 1000, NCCL_PTR_CUDA);
    pvn_rdma_mem *first = nullptr, *second = nullptr, *fresh = nullptr;
    ASSERT_EQ(registrar.reg(registrar.arg, &mr, false, -1, 0, &first, &why), 0);
    ASSERT_EQ(registrar.reg(registrar.arg, &part, false, -1, 0, &second, &why), 0);
    EXPECT_EQ(first->part[0].mr, second->part[0].mr);
    registrar.dereg(registrar.arg, first);
    fake->free(a);
    ASSERT_EQ(a, fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536))
        << "the double gives the address out again";
    ASSERT_EQ(registrar.reg(registrar.arg, &mr, false, -1, 0, &fresh, &why), 0);
    EXPECT_NE(second->part[0].mr, fresh->part[0].mr) << "the region of freed memory";
    registrar.dereg(registrar.arg, second);
    registrar.dereg(registrar.arg, fresh);
}

TEST_F(RdmaGpu, SwitchedOffMakesNoCallOfCuda)
{
    open("roce", true);
    cfg.mode = PVN_GPU_MEM_OFF;
    int calls = fake->calls("cuCtxGetCurrent");
    reopen();
    EXPECT_EQ(fake->calls("cuCtxGetCurrent"), calls);
    EXPECT_NE(text().find("NCCL_PVRDMA_GPU_MEM=off"), std::string::npos) << text();
}

} // namespace
