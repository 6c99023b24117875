// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Comms of several threads that return to better lanes at the same time. ThreadSanitizer judges
// what they share with the plugin's own thread. tests/rdma/failback.sh does the same with processes
// and faults.
#include "abi/threads.h"
#include "softverbs/fixture.h"

#include <dirent.h>

#include <chrono>
#include <fstream>

using namespace nccl;

static int times(const char *what)
{
    int n = 0;
    std::string text = Log::get().text();
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
        n++;
    return n;
}

// How often the thread of this name has waited; -1: this process has no such thread.
static long waits(const std::string &name)
{
    long n = -1;
    DIR *tasks = opendir("/proc/self/task");
    for (dirent *e; tasks && (e = readdir(tasks));) {
        const std::string task = std::string("/proc/self/task/") + e->d_name;
        std::string comm, line;
        std::ifstream(task + "/comm") >> comm;
        std::ifstream status(task + "/status");
        while (comm == name && std::getline(status, line))
            if (sscanf(line.c_str(), "voluntary_ctxt_switches: %ld", &n) == 1)
                break;
    }
    if (tasks)
        closedir(tasks);
    return n;
}

// Comms that come up give the plugin's threads no work, so these wake only by their own timers,
// whose period is at least 50 ms. A wake-up for each comm would make them look at every comm there
// is.
TEST(Failback, CommsThatComeUpWakeNoThread)
{
    enum { COMMS = 100, SLOW_MS = 1000 };
    struct Cleared {
        ~Cleared()
        {
            for (const char *name :
                 {"NCCL_PVRDMA_TRANSPORT", "NCCL_PVRDMA_FAILOVER", "NCCL_SOCKET_IFNAME"})
                unsetenv(name);
            Log::get().clear();
        }
    } cleared;
    setenv("NCCL_PVRDMA_TRANSPORT", "tcp", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    {
        Net n(8);
        std::vector<std::unique_ptr<Pair>> pairs;
        pairs.push_back(std::make_unique<Pair>(n));
        const auto begin = std::chrono::steady_clock::now();
        const long answers = waits("pvn-answer"), tries = waits("pvn-failback");
        ASSERT_LE(0, answers);
        ASSERT_LE(0, tries);
        for (int i = 0; i < COMMS; i++)
            pairs.push_back(std::make_unique<Pair>(n));
        const long answered = waits("pvn-answer") - answers, tried = waits("pvn-failback") - tries;
        const long ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - begin)
                            .count();
        if (ms > SLOW_MS)
            GTEST_SKIP() << "a slow machine: " << COMMS << " comms in " << ms << " ms";
        // The kernel counts waits for locks, too.
        EXPECT_GT(COMMS / 2 + ms / 25, answered);
        EXPECT_GT(COMMS / 2 + ms / 25, tried);
    }
}

// The port goes down, and both comms fail over to TCP. The port comes up, and they return to RDMA
// while messages flow: one thread makes the new connections while the comms' own threads use the
// old ones.
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
