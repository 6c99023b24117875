// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Fixture for GPU memory through the whole plugin: NCCL's calls, softverbs as the adapter, and the
// double of the CUDA driver as the GPU
#ifndef PVN_TESTS_RDMA_PLUGIN_GPU_H
#define PVN_TESTS_RDMA_PLUGIN_GPU_H

#include "abi/nccl_side.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "softverbs/fixture.h"
#include "support/fakecuda_fixture.h"

namespace nccl
{

constexpr size_t kMiB = 1 << 20;

inline uint64_t gpu_first, gpu_last;
inline int refuse_gpu(void *addr, size_t len, int)
{
    auto a = reinterpret_cast<uintptr_t>(addr);
    return a < gpu_last && a + len > gpu_first ? EFAULT : 0;
}

// Rules of softverbs that only count
constexpr const char *kCounters = "set timeout_cap_ms 100;"
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

    // Runs the body in a process of its own, because up to v10 the interface has no finalize, so
    // the plugin keeps the devices that it found.
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

    // Selects the adapter that softverbs plays. Call it before a Net is made.
    void adapter(const char *profile, bool peer_memory)
    {
        hooks->pin = peer_memory ? pin : refuse_gpu;
        sv::ForPlugin::play(profile, kCounters);
    }

    // Makes one GPU of this generation, by which the plugin chooses how to flush.
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

    // Calls regMrDmaBuf as NCCL does: the descriptor covers whole pages, and is closed as soon as
    // the call returns.
    ncclResult_t reg_dmabuf(pvn_netdrv *d, void *comm, uint64_t addr, size_t len, void **mh)
    {
        uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), first = addr & -page;
        uint64_t span = ((addr + len + page - 1) & -page) - first;
        int fd = -1;
        EXPECT_EQ(0, pvn_cuda_export(cu, 0, first, span, false, &fd, &why)) << why.reason[0];
        ncclResult_t rc =
            pvn_netdrv_reg_dmabuf(d, comm, ptr(addr), len, NCCL_PTR_CUDA, addr - first, fd, mh);
        close(fd);
        return rc;
    }

    // Moves n bytes from one registered buffer into another. Flushes if `flush`, as NCCL would.
    // True if the bytes have arrived.
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

    // A registered buffer in GPU memory at each end of a comm.
    struct Buffers {
        uint64_t from, to;
        void *smh = nullptr, *rmh = nullptr;
    };
    Buffers buffers(Pair &p)
    {
        Buffers b = {fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512),
                     fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512)};
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.sc, ptr(b.from), kMiB, NCCL_PTR_CUDA, &b.smh));
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.rc, ptr(b.to), kMiB, NCCL_PTR_CUDA, &b.rmh));
        return b;
    }
    bool move(Pair &p, const Buffers &b, size_t n, bool flush)
    {
        return move(p, b.from, b.smh, b.to, b.rmh, n, flush);
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
    bool hidden_ = false; // the processor cannot reach device memory while a message moves
};

} // namespace nccl

#endif
