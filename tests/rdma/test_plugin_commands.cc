// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Commands to a PVRDMA adapter, beside signals and commands of other threads
#include "rdma/plugin_route.h"
#include "support/signals.h"

#include <sys/wait.h>

#include <memory>
#include <thread>

using namespace nccl;

namespace
{

struct Commands : PluginRdma {
    static bool counts(const std::string &what)
    {
        return (stat() + " ").find(" " + what + " ") != std::string::npos;
    }
    static sigset_t blocked()
    {
        sigset_t now;
        pthread_sigmask(SIG_SETMASK, nullptr, &now);
        return now;
    }
};

// Signals come from the scan of the adapters to the end of the last comm.
TEST_F(Commands, SignalsEndNone)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    adapters("pvrdma", "set command_us 500");
    const sigset_t before = blocked();
    {
        Signals signals;
        Net n(12);
        ASSERT_EQ(ncclSuccess, n.rc) << Log::get().text();
        for (unsigned salt = 1; salt <= 10 && !HasFailure(); salt++) {
            Route r(n);
            EXPECT_TRUE(r.move(salt));
        }
        EXPECT_LT(10u, signals.handled());
    }
    EXPECT_TRUE(counts("interrupted=0")) << stat();
    const sigset_t after = blocked();
    for (int s = 1; s < NSIG; s++)
        EXPECT_EQ(sigismember(&before, s), sigismember(&after, s)) << strsignal(s);
}

// The library of vmw_pvrdma has no lock for its table of queue pairs.
TEST_F(Commands, QueuePairsAreMadeBehindTheEndOfOthers)
{
    adapters("pvrdma", "");
    Net n(12);
    auto first = std::make_unique<Route>(n);
    EXPECT_TRUE(first->move(1));
    ASSERT_EQ(0, sv::command("rule slow block call=destroy_qp ms=1000"));
    std::thread closes([&] { first.reset(); });
    EXPECT_TRUE(eventually([] { return counts("blocked=1"); })) << stat();
    Route next(n);
    EXPECT_TRUE(next.move(2));
    closes.join();
    EXPECT_EQ(1, sv::lib().sv_rule_fired("slow"));
    EXPECT_TRUE(counts("overlaps=0")) << stat();
}

TEST_F(Commands, ThreadsMakeAndCloseCommsBesideEachOther)
{
    adapters("pvrdma", "set command_us 200");
    Net n(12);
    std::vector<std::thread> threads;
    for (unsigned t = 1; t <= 4; t++)
        threads.emplace_back([&n, t] {
            for (unsigned i = 1; i <= 10 && !HasFailure(); i++) {
                Route r(n);
                EXPECT_TRUE(r.move(t * i));
            }
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_TRUE(counts("overlaps=0")) << stat();
}

// Each adapter has a table of its own.
TEST_F(Commands, AnAdapterThatHangsStopsNoOther)
{
    adapters("pvrdma", "set devices 2");
    Net n(12);
    auto sick = std::make_unique<Route>(n, 0, 0);
    EXPECT_TRUE(sick->move(1));
    ASSERT_EQ(0, sv::command("rule hang block dev=vmw_pvrdma0 call=destroy_qp ms=20000"));
    std::thread closes([&] { sick.reset(); });
    EXPECT_TRUE(eventually([] { return counts("blocked=1"); })) << stat();
    {
        Route other(n, 1, 1);
        EXPECT_TRUE(other.move(2));
    }
    EXPECT_TRUE(counts("blocked=1")) << "it went on when the adapter had let go";
    EXPECT_EQ(0, sv::command("release"));
    closes.join();
}

// The child makes queue pairs of its own while a thread of its parent destroys one.
TEST_F(Commands, AForkedChildWaitsForNoThreadOfItsParent)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a process with threads";
#endif
    adapters("pvrdma", "");
    Net n(12);
    auto route = std::make_unique<Route>(n);
    EXPECT_TRUE(route->move(1));
    ASSERT_EQ(0, sv::command("rule hang block call=destroy_qp ms=20000"));
    std::thread closes([&] { route.reset(); });
    EXPECT_TRUE(eventually([] { return counts("blocked=1"); })) << stat();
    EXPECT_TRUE(sv::threads_asleep());
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        {
            Net own(12);
            Route r(own);
            EXPECT_TRUE(r.move(2));
        }
        _exit(HasFailure());
    }
    int status = -1;
    EXPECT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_TRUE(counts("blocked=1")) << "it went on when the adapter had let go";
    EXPECT_EQ(0, sv::command("release"));
    closes.join();
}

} // namespace
