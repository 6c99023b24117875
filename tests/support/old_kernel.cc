// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Simulates a kernel without MADV_WIPEONFORK (before 4.14) in a program that exports its symbols.
// Such a process recognises a fork by its pid alone (base/fork.h).
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace
{

std::atomic<int> refused;

struct OldKernel : testing::Environment {
    void TearDown() override
    {
        EXPECT_GT(refused, 0) << "the plugin did without MADV_WIPEONFORK";
    }
};

const testing::Environment *const environment = testing::AddGlobalTestEnvironment(new OldKernel);

} // namespace

extern "C" __attribute__((visibility("default"))) int madvise(void *addr, size_t len,
                                                              int advice) __THROW
{
    if (advice != MADV_WIPEONFORK)
        return (int)syscall(SYS_madvise, addr, len, advice);
    refused++;
    errno = EINVAL;
    return -1;
}
