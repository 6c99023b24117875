// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Comms of several threads that fail over at the same time. ThreadSanitizer judges what they share.
#include "abi/threads.h"
#include "softverbs/fixture.h"

#include <dlfcn.h>

using namespace nccl;

TEST(Failover, ThreadsWithCommsOfTheirOwn)
{
    sv::ForPlugin softverbs;
    sv::ForPlugin::play("pvrdma", "set gid_tbl_len 8");
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    Net n(8);
    std::vector<std::unique_ptr<Pair>> pairs;
    for (int i = 0; i < 2 * THREADS; i++) {
        pairs.push_back(std::make_unique<Pair>(n));
        ASSERT_TRUE(pairs.back()->up());
    }
    ASSERT_EQ(0, sv::command("rule break status status=RETRY_EXC_ERR nth=100 every=300 count=6"));
    {
        Registrar user(pairs);
        std::vector<std::thread> threads;
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back(
                [&, i] { transfer(*pairs[i], [](int round) { return round == MESSAGES; }); });
        for (auto &t : threads)
            t.join();
    }
    EXPECT_GT(sv::lib().sv_rule_fired("break"), 0u);
    EXPECT_TRUE(said("connected again after"));
    EXPECT_EQ(0, sv::command("rules clear"));
}

// The plugin's own thread keeps the library mapped. It ends with the last comm that needs it, so
// the library can be unloaded.
TEST(Failover, LeavesTheLibraryToItsOwner)
{
    sv::ForPlugin softverbs;
    sv::ForPlugin::play("pvrdma", "set gid_tbl_len 8");
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    for (int abi : {8, 12}) {
        {
            Net n(abi);
            Pair a(n), b(n);
            ASSERT_TRUE(a.up() && b.up());
            transfer(a, [](int round) { return round == 3; });
        }
        EXPECT_EQ(nullptr, dlopen(plugin_path(), RTLD_LAZY | RTLD_NOLOAD)) << "v" << abi;
    }
}

// Over TCP a send is complete when the receiver has acknowledged it. Nobody calls a receiver whose
// requests are complete, nor other comms of its thread. So the receiver has to acknowledge before
// it reports completion.
TEST(Failover, AReceiverThatIsNotCalledAgainHasAcknowledged)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "tcp", 1);
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    for (size_t bytes : {0, 1, 5000, 100000, 3 << 20}) {
        Buffer src(bytes, 5), dst(bytes);
        std::thread receiver([&] {
            void *req = nullptr, *data = dst.data();
            int tag = 0, done = 0;
            size_t size = bytes;
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, nullptr, nullptr, &req));
            EXPECT_TRUE(eventually(
                [&] { return pvn_netdrv_test(p.d, req, &done, nullptr) != ncclSuccess || done; }));
            EXPECT_EQ(1, done) << bytes;
        });
        void *req = nullptr;
        int done = 0;
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_isend(p.d, p.sc, src.data(), bytes, 0, nullptr, nullptr, &req));
        EXPECT_TRUE(eventually(
            [&] { return pvn_netdrv_test(p.d, req, &done, nullptr) != ncclSuccess || done; }, 10));
        EXPECT_EQ(1, done) << bytes;
        receiver.join();
    }
}
