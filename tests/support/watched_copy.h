// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A copy that is watched after every instruction, as a GPU may see it.
#ifndef TESTS_SUPPORT_WATCHED_COPY_H
#define TESTS_SUPPORT_WATCHED_COPY_H

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <functional>

// Memory that a child process shares.
template <typename T> class Shared
{
  public:
    Shared()
        : mem_(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
    {
        EXPECT_NE(MAP_FAILED, mem_);
    }
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;
    ~Shared()
    {
        munmap(mem_, sizeof(T));
    }
    T *operator->() const
    {
        return static_cast<T *>(mem_);
    }

  private:
    void *mem_;
};

// Runs copy in a child process, whose stores go to Shared memory, one instruction at a time. look
// is called after each one; it returns false if it has seen enough. Returns false if this process
// may not trace its children. copy must not call what has to be bound by the dynamic linker yet.
inline bool watch_copy(const std::function<void()> &copy, const std::function<bool()> &look)
{
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
            _exit(2);
        raise(SIGSTOP);
        copy();
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
        if (!look() || ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0)
            kill(child, SIGKILL);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

#endif
