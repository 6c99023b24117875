// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Comms of several threads that come back to better lanes at the same time. ThreadSanitizer judges what
// they share with the plugin's own thread. tests/rdma/failback.sh has the same with processes and faults.
#include "abi/threads.h"
#include "softverbs/fixture.h"

using namespace nccl;

static int times(const char *what)
{
    int n = 0;
    std::string text = Log::get().text();
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
        n++;
    return n;
}

// The port goes down, both comms go on over TCP; it comes up, and they return to RDMA while messages
// flow, with the thread that makes the new connections beside those that use the old ones.
TEST(Failback, ThreadsWithCommsOfTheirOwn)
{
    sv::ForPlugin softverbs;
    sv::ForPlugin::play("pvrdma", "set gid_tbl_len 8");
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    Net n(8);
    std::vector<std::unique_ptr<Pair>> pairs;
    for (int i = 0; i < THREADS; i++) {
        pairs.push_back(std::make_unique<Pair>(n));
        ASSERT_TRUE(pairs.back()->up());
    }
    {
        Registrar user(pairs);
        std::atomic<bool> enough{false};
        std::vector<std::thread> threads;
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back(
                [&, i] { transfer(*pairs[i], [&](int) { return enough.load(); }); });
        EXPECT_EQ(0, sv::command("port * 1 down"));
        EXPECT_TRUE(eventually([&] { return times("s: tcp") >= 2 * THREADS; }));
        EXPECT_EQ(0, sv::command("port * 1 up"));
        EXPECT_TRUE(eventually([&] { return times("failback: ") >= 2 * THREADS; }));
        enough = true;
        for (auto &t : threads)
            t.join();
    }
    EXPECT_GE(times("on worse lanes: rdma"), 2 * THREADS) << Log::get().text();
}
