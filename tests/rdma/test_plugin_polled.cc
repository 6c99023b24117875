// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A receive buffer that is polled, as a GPU polls it with NCCL's protocol LL128: the flag of a line
// of 128 bytes is its last word, and whoever sees the new flag takes the other 15 words. A thread
// stands for the GPU.
#include "rdma/plugin_route.h"

#include "config.h"
#include "support/key_file.h"

#include <atomic>
#include <thread>

using namespace nccl;

namespace
{

constexpr size_t kWords = 16;   // of a line
constexpr size_t kSlice = 2048; // bytes; LL128 sends multiples of it
constexpr uint64_t kMessages = 400;

alignas(128) uint64_t src[kSlice / 8], dst[kSlice / 8];

// The GPU's side: counts the lines whose flag it saw before their data.
class Poller
{
  public:
    explicit Poller(const uint64_t *line) : line_(line), thread_([this] { poll(); })
    {
    }
    Poller(const Poller &) = delete;
    Poller &operator=(const Poller &) = delete;
    ~Poller()
    {
        stop_ = true;
        thread_.join();
    }
    bool has_seen(uint64_t step) const
    {
        return seen_ >= step;
    }
    uint64_t early() const
    {
        return early_;
    }

  private:
    uint64_t word(size_t i) const
    {
        return __atomic_load_n(line_ + i, __ATOMIC_ACQUIRE);
    }
    void poll()
    {
        while (!stop_) {
            const uint64_t step = seen_ + 1;
            if (word(kWords - 1) != step)
                continue;
            bool whole = true;
            for (size_t i = 0; i < kWords - 1; i++)
                whole &= word(i) == step;
            early_ += !whole;
            seen_ = step;
        }
    }

    const uint64_t *line_;
    std::atomic<uint64_t> seen_{0}, early_{0};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

struct Arrival {
    const char *name, *transport, *key;
    bool early; // the message arrives before its receive is posted
};

class Polled : public PluginRdma, public testing::WithParamInterface<Arrival>
{
  protected:
    Folder folder;

    void SetUp() override
    {
#ifndef HAVE_OPENSSL
        if (GetParam().key)
            GTEST_SKIP() << "built without OpenSSL, so there is no key";
#endif
        PluginRdma::SetUp();
        setenv("NCCL_PVRDMA_TRANSPORT", GetParam().transport, 1);
        setenv("NCCL_PVRDMA_RDMA_MODE", "send", 1);
        if (GetParam().key)
            setenv("NCCL_PVRDMA_KEY_FILE", write_file(folder / "key", GetParam().key).c_str(), 1);
        adapters("roce", "");
    }
    void TearDown() override
    {
        unsetenv("NCCL_PVRDMA_KEY_FILE");
        PluginRdma::TearDown();
    }
};

TEST_P(Polled, NoFlagIsSeenBeforeItsData)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    void *smh = nullptr, *rmh = nullptr;
    EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src, kSlice, NCCL_PTR_HOST, &smh));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst, kSlice, NCCL_PTR_HOST, &rmh));
    std::fill_n(dst, kSlice / 8, 0);
    Poller gpu(dst);
    for (uint64_t step = 1; step <= kMessages && !HasFailure(); step++) {
        void *sr = nullptr, *rr = nullptr, *data = dst;
        size_t size = kSlice;
        int tag = 0, sd = 0, rd = 0, calls = 0;
        std::fill_n(src, kSlice / 8, step);
        EXPECT_TRUE(eventually([&] {
            ncclResult_t rc = ncclSuccess;
            if (!sr)
                rc = pvn_netdrv_isend(p.d, p.sc, src, kSlice, 0, smh, nullptr, &sr);
            else if (!sd)
                rc = pvn_netdrv_test(p.d, sr, &sd, nullptr);
            if (rc == ncclSuccess && !rr && (!GetParam().early || calls++ > 20))
                rc = pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rr);
            else if (rc == ncclSuccess && rr && !rd)
                rc = pvn_netdrv_test(p.d, rr, &rd, nullptr);
            EXPECT_EQ(ncclSuccess, rc) << Log::get().warnings();
            return rc != ncclSuccess || (sd && rd && gpu.has_seen(step));
        }));
    }
    EXPECT_EQ(0U, gpu.early()) << "of " << kMessages << " lines";
    EXPECT_TRUE(bytes::same(dst, src, kSlice));
    pvn_netdrv_dereg_mr(p.d, p.sc, smh);
    pvn_netdrv_dereg_mr(p.d, p.rc, rmh);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Polled,
                         testing::Values(Arrival{"tcp", "tcp", nullptr, false},
                                         Arrival{"tcp_early", "tcp", nullptr, true},
                                         Arrival{"tcp_with_a_key", "tcp",
                                                 "0123456789abcdef0123456789abcdef", false},
                                         Arrival{"rdma_two_sided", "rdma", nullptr, false}),
                         [](const testing::TestParamInfo<Arrival> &i) { return i.param.name; });

} // namespace
