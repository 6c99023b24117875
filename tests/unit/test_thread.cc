// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin's own threads leave signals to the application, but not the crashes that they cause themselves.
#include <gtest/gtest.h>

#include <csignal>

extern "C" {
#include "base/thread.h"
}

namespace
{

sigset_t mask_of_a_thread()
{
    sigset_t mask;
    pthread_t thread;

    sigemptyset(&mask);
    auto look = [](void *arg) -> void * {
        pthread_sigmask(SIG_BLOCK, nullptr, static_cast<sigset_t *>(arg));
        return nullptr;
    };
    EXPECT_EQ(0, pvn_thread_start(&thread, look, &mask, "pvn-test"));
    EXPECT_EQ(0, pthread_join(thread, nullptr));
    return mask;
}

TEST(Thread, TakesNoSignalsButThoseOfItsOwnInstructions)
{
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, nullptr, &before);
    const sigset_t mask = mask_of_a_thread();
    pthread_sigmask(SIG_BLOCK, nullptr, &after);
    for (int s : {SIGTERM, SIGINT, SIGCHLD, SIGUSR1, SIGALRM, SIGPIPE, SIGPROF, SIGRTMIN}) {
        EXPECT_TRUE(sigismember(&mask, s)) << strsignal(s);
        EXPECT_EQ(sigismember(&before, s), sigismember(&after, s)) << strsignal(s);
    }
    for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
        EXPECT_FALSE(sigismember(&mask, s)) << strsignal(s);
}

} // namespace
