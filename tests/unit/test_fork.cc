// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// How a forked child knows that it is one: on this kernel, on a kernel without MADV_WIPEONFORK, and
// under an emulator that accepts each madvise call and does nothing.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

extern "C" {
#include "base/fork.h"
}

namespace
{

enum class Kernel { ITS_OWN, TOO_OLD, EMULATED };
Kernel kernel;
int madvised;    // calls of madvise, which the program replaces below
bool numberless; // each process takes itself for number 1, as the first of a namespace does

} // namespace

extern "C" int madvise(void *addr, size_t len, int advice) __THROW
{
    madvised++;
    if (kernel == Kernel::EMULATED)
        return 0;
    if (kernel == Kernel::TOO_OLD) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, addr, len, advice);
}

extern "C" pid_t getpid() __THROW
{
    return numberless ? 1 : (pid_t)syscall(SYS_getpid);
}

namespace
{

struct Fork : testing::TestWithParam<Kernel> {
};

// Runs each case in a process of its own, which has no fork mark yet.
int in_child(int (*run)())
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(run());
    int status = -1;
    EXPECT_EQ(pid, waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int child_of_a_marked_process()
{
    if (!pvn_forked() || !pvn_fork_in_child(pvn_fork_epoch()))
        return 1;
    unsigned epoch = pvn_fork_epoch();
    if (pvn_fork_mark() != 0 || pvn_forked() || !pvn_fork_in_child(epoch))
        return 2;
    return pvn_fork_in_child(pvn_fork_epoch()) ? 3 : 0;
}

int marked_process()
{
    if (pvn_forked() || pvn_fork_mark() != 0 || pvn_forked() ||
        pvn_fork_in_child(pvn_fork_epoch()) || madvised == 0)
        return 10;
    int of_child = in_child(child_of_a_marked_process);
    return of_child ? of_child : pvn_forked() ? 11 : 0;
}

TEST_P(Fork, AChildKnowsThatItIsOneAndMayStartAfresh)
{
    kernel = GetParam();
    EXPECT_EQ(0, in_child(marked_process));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Fork,
                         testing::Values(Kernel::ITS_OWN, Kernel::TOO_OLD, Kernel::EMULATED));

// A rank may be process 1 of a container, and its child process 1 of a sandbox. Numbers of processes that
// have ended are used again, too.
TEST(SameNumber, AChildMayHaveItsParentsNumber)
{
    kernel = Kernel::ITS_OWN;
    numberless = true;
    EXPECT_EQ(0, in_child(marked_process));
    numberless = false;
}

} // namespace
