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

// The plugin's own thread keeps the library mapped, and ends with the last comm that needs it.
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
