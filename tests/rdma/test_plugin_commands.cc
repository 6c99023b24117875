// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Commands of a PVRDMA adapter, while signals come to their thread and beside those of other threads.
#include "rdma/plugin_route.h"
#include "support/signals.h"

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

// From the scan of the adapters to the end of the last comm.
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

} // namespace
