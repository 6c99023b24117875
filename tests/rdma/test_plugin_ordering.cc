// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Relaxed ordering through the whole plugin, on an adapter that makes full use of it (sv_relaxed.c).
#include "rdma/plugin_gpu.h"

using namespace nccl;

namespace
{

struct PluginOrdering : PluginGpu {
    void TearDown() override
    {
        for (const char *name : {"NCCL_PVRDMA_RELAXED_ORDERING", "NCCL_IB_PCI_RELAXED_ORDERING",
                                 "NCCL_PVRDMA_RDMA_MODE", "NCCL_PVRDMA_QPS"})
            unsetenv(name);
        PluginGpu::TearDown();
    }

    // Call it before a Net is made. use: value of softverbs' relaxed_ordering.
    static void adapter_with(const char *profile, int use)
    {
        sv::ForPlugin::play(profile, std::string(kCounters) +
                                         ";set gid_tbl_len 8;set relaxed_ordering " +
                                         std::to_string(use));
        Log::get().clear();
    }

    // Moves messages of many sizes between two buffers. True if all have arrived.
    bool messages(Pair &p, uint64_t a, void *smh, uint64_t b, void *rmh, bool flush = true)
    {
        bool all = true;
        for (size_t n : {size_t(1), size_t(8), size_t(292), size_t(293), size_t(4096),
                         size_t(70001), 2 * kMiB, 6 * kMiB - 4})
            all = move(p, a + 3, smh, b + 1, rmh, n, flush) && all;
        return all;
    }

    bool host_messages(Net &n)
    {
        std::vector<unsigned char> src(6 * kMiB), dst(6 * kMiB);
        void *smh = nullptr, *rmh = nullptr;
        Pair p(n);
        EXPECT_TRUE(p.up());
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.sc, src.data(), src.size(), NCCL_PTR_HOST, &smh));
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.size(), NCCL_PTR_HOST, &rmh));
        return messages(p, reinterpret_cast<uintptr_t>(src.data()), smh,
                        reinterpret_cast<uintptr_t>(dst.data()), rmh);
    }

    bool gpu_messages(Net &n, bool flush = true)
    {
        uint64_t a = fake->alloc(FAKECUDA_DEVICE, 0, 6 * kMiB, 65536),
                 b = fake->alloc(FAKECUDA_DEVICE, 0, 6 * kMiB, 65536);
        void *smh = nullptr, *rmh = nullptr;
        Pair p(n);
        EXPECT_TRUE(p.up());
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, ptr(a), 6 * kMiB, NCCL_PTR_CUDA, &smh));
        EXPECT_EQ(ncclSuccess, reg_dmabuf(p.d, p.rc, b, 6 * kMiB, &rmh));
        return messages(p, a, smh, b, rmh, flush);
    }
};

TEST_F(PluginOrdering, BytesAreRightInImmMode)
{
    for (const char *qps : {"1", "3"}) {
        setenv("NCCL_PVRDMA_QPS", qps, 1);
        adapter_with("roce", 2);
        Net n(12);
        EXPECT_TRUE(said("mlx5_0: relaxed ordering: on in imm mode")) << Log::get().text();
        EXPECT_TRUE(host_messages(n)) << qps;
        uint64_t host = sv::relaxed_held();
        EXPECT_GT(host, 6u);
        EXPECT_TRUE(gpu_messages(n)) << qps;
        EXPECT_GT(sv::relaxed_held(), host + 6);
        EXPECT_EQ("", Log::get().warnings());
    }
}

// The completion may be there before the data have reached the GPU. The flush waits for the data.
TEST_F(PluginOrdering, WithoutTheFlushGpuMemoryIsNotThereYet)
{
    adapter_with("roce", 2);
    setenv("NCCL_PVRDMA_FLUSH", "read", 1);
    Net n(12);
    EXPECT_FALSE(gpu_messages(n, false));
    EXPECT_GT(sv::relaxed_held(), 0u);
    EXPECT_TRUE(gpu_messages(n, true));
}

TEST_F(PluginOrdering, NoneInRecordModeNorWhereItIsOff)
{
    struct {
        const char *variable, *value, *says;
    } cases[] = {
        {"NCCL_PVRDMA_RDMA_MODE", "record",
         "off (NCCL_PVRDMA_RDMA_MODE=record needs strict order)"},
        {"NCCL_PVRDMA_RDMA_MODE", "send", "off (the two-sided mode registers no buffers)"},
        {"NCCL_PVRDMA_RELAXED_ORDERING", "0", "off (NCCL_PVRDMA_RELAXED_ORDERING=0)"},
        {"NCCL_IB_PCI_RELAXED_ORDERING", "0", "off (NCCL_IB_PCI_RELAXED_ORDERING=0)"},
    };
    for (auto &c : cases) {
        SCOPED_TRACE(c.says);
        setenv(c.variable, c.value, 1);
        adapter_with("roce", 2);
        Net n(12);
        EXPECT_TRUE(said(std::string("mlx5_0: relaxed ordering: ") + c.says)) << Log::get().text();
        EXPECT_TRUE(host_messages(n));
        if (strcmp(c.value, "send") != 0) {
            EXPECT_TRUE(gpu_messages(n));
        }
        EXPECT_EQ(0u, sv::relaxed_held());
        EXPECT_FALSE(said("but there is no relaxed ordering"));
        unsetenv(c.variable);
    }
}

TEST_F(PluginOrdering, ADeviceThatRefusesItWorksWithoutIt)
{
    for (int how : {3, 4}) {
        SCOPED_TRACE(how);
        adapter_with("roce", how);
        Net n(12);
        EXPECT_TRUE(said(how == 3 ? "mlx5_0: the device refuses relaxed ordering "
                                    "(ibv_reg_mr_iova2: Invalid argument"
                                  : "mlx5_0: the device refuses relaxed ordering "
                                    "(ibv_reg_dmabuf_mr: Invalid argument"))
            << Log::get().text();
        EXPECT_TRUE(said(how == 3
                             ? "relaxed ordering: off (the device refuses it)"
                             : "relaxed ordering: on in imm mode, but for GPU memory by dma-buf"))
            << Log::get().text();
        Log::get().clear();
        EXPECT_TRUE(host_messages(n));
        EXPECT_TRUE(gpu_messages(n));
        EXPECT_FALSE(said("refuses relaxed ordering")) << "once is enough";
        EXPECT_EQ("", Log::get().warnings());
    }
}

// A user who requests relaxed ordering is warned if it cannot be had, with the reason.
TEST_F(PluginOrdering, WhereItIsRequestedAndCannotBeHadThatIsAWarning)
{
    struct {
        const char *profile;
        int use;
        const char *variable, *mode, *says;
    } cases[] = {
        {"roce", 3, "NCCL_PVRDMA_RELAXED_ORDERING", "auto",
         "NCCL_PVRDMA_RELAXED_ORDERING=1, but the device refuses relaxed ordering"},
        {"pvrdma", 0, "NCCL_IB_PCI_RELAXED_ORDERING", "auto",
         "vmw_pvrdma0: NCCL_IB_PCI_RELAXED_ORDERING=1, but there is no relaxed ordering: the "
         "hypervisor"},
        {"roce", 2, "NCCL_PVRDMA_RELAXED_ORDERING", "record",
         "but there is no relaxed ordering: NCCL_PVRDMA_RDMA_MODE=record needs strict order; unset "
         "NCCL_PVRDMA_RELAXED_ORDERING"},
        {"roce", 2, "NCCL_PVRDMA_RELAXED_ORDERING", "imm", nullptr},
    };
    for (auto &c : cases) {
        SCOPED_TRACE(c.says ? c.says : "as requested");
        setenv(c.variable, "1", 1);
        setenv("NCCL_PVRDMA_RDMA_MODE", c.mode, 1);
        adapter_with(c.profile, c.use);
        Net n(12);
        ASSERT_EQ(ncclSuccess, n.rc);
        if (c.says) {
            EXPECT_NE(std::string::npos, Log::get().warnings().find(c.says))
                << Log::get().warnings();
        } else {
            EXPECT_EQ("", Log::get().warnings());
        }
        unsetenv(c.variable);
    }
}

// After a failover, messages are sent again over new queue pairs, into memory that was registered
// again.
TEST_F(PluginOrdering, BytesAreRightBehindAFailover)
{
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    adapter_with("roce", 2);
    Net n(12);
    for (bool gpu : {false, true}) {
        SCOPED_TRACE(gpu);
        ASSERT_EQ(0,
                  sv::command(
                      "rule lost status status=RETRY_EXC_ERR op=WRITE_IMM nth=3 every=4 count=2"));
        uint64_t before = sv::relaxed_held();
        EXPECT_TRUE(gpu ? gpu_messages(n) : host_messages(n));
        EXPECT_EQ(2, sv::lib().sv_rule_fired("lost"));
        EXPECT_TRUE(said("connected again")) << Log::get().text();
        EXPECT_GT(sv::relaxed_held(), before);
        ASSERT_EQ(0, sv::command("rules clear"));
    }
}

} // namespace
