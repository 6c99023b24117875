// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The poller reports once per arm, forgets removed descriptors, and does not touch the descriptors
// of a parent process.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
#include "base/fork.h"
#include "base/poller.h"
}

namespace
{

struct Poller : testing::Test {
    int sv[2] = {-1, -1};
    void SetUp() override
    {
        ASSERT_EQ(0, pvn_poller_get());
        ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv));
    }
    void TearDown() override
    {
        for (int fd : sv)
            if (fd >= 0)
                close(fd);
        pvn_poller_put();
        EXPECT_EQ(0, pvn_poller_watches());
    }
};

TEST_F(Poller, ReportsOncePerArm)
{
    char c;
    pvn_watch *w = pvn_poller_add(sv[0]);
    ASSERT_NE(nullptr, w);
    EXPECT_TRUE(pvn_poller_armed(w)) << "from the beginning";
    EXPECT_EQ(0, pvn_poller_poll_now());
    EXPECT_FALSE(pvn_poller_ready(w));
    ASSERT_EQ(1, write(sv[1], "x", 1));
    EXPECT_EQ(1, pvn_poller_poll_now());
    EXPECT_FALSE(pvn_poller_armed(w));
    ASSERT_EQ(0, pvn_poller_arm(w));
    EXPECT_EQ(1, pvn_poller_poll_now()) << "bytes that were there before arm count";
    EXPECT_TRUE(pvn_poller_ready(w));
    EXPECT_EQ(0, pvn_poller_poll_now()) << "once";
    EXPECT_TRUE(pvn_poller_ready(w)) << "until the next arm";
    ASSERT_EQ(1, read(sv[0], &c, 1));
    ASSERT_EQ(0, pvn_poller_arm(w));
    EXPECT_EQ(0, pvn_poller_poll_now());
    EXPECT_FALSE(pvn_poller_ready(w));
    close(sv[1]);
    sv[1] = -1;
    EXPECT_EQ(1, pvn_poller_poll_now()) << "end of stream";
    EXPECT_TRUE(pvn_poller_ready(w));
    pvn_poller_remove(w);
}

TEST_F(Poller, RemovedWatchIsSilentAndReused)
{
    pvn_watch *w = pvn_poller_add(sv[0]);
    ASSERT_NE(nullptr, w);
    ASSERT_EQ(1, write(sv[1], "x", 1));
    pvn_poller_remove(w);
    EXPECT_EQ(0, pvn_poller_poll_now());
    pvn_watch *v = pvn_poller_add(sv[1]);
    EXPECT_EQ(w, v) << "the free list gives the last one back";
    EXPECT_FALSE(pvn_poller_ready(v));
    EXPECT_TRUE(pvn_poller_armed(v));
    pvn_poller_remove(v);
    pvn_poller_remove(nullptr);
}

TEST_F(Poller, BadDescriptorIsRefused)
{
    int before = pvn_poller_watches();
    EXPECT_EQ(nullptr, pvn_poller_add(-1));
    EXPECT_EQ(EBADF, errno);
    EXPECT_EQ(before, pvn_poller_watches());
}

// Number of the process's epoll descriptors. Each has to be close-on-exec.
int descriptors()
{
    int found = 0;
    for (int fd = 0; fd < 256; fd++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof(target) - 1) > 0 &&
            std::string(target).find("eventpoll") != std::string::npos) {
            found++;
            EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        }
    }
    return found;
}

TEST_F(Poller, DescriptorIsCloseOnExec)
{
    EXPECT_EQ(1, descriptors());
}

// Owners add a watch, arm it, wait for their byte and remove it, while other threads poll. No event
// is lost. An event of a watch's earlier owner never looks like lost readiness to the next owner.
TEST_F(Poller, NothingIsLostBetweenOwnersAndPollers)
{
    std::atomic<bool> stop{false};
    std::atomic<int> lost{0};
    std::vector<std::thread> owners, pollers;
    for (int i = 0; i < 2; i++)
        pollers.emplace_back([&] {
            while (!stop) {
                pvn_poller_poll_now();
                std::this_thread::yield();
            }
        });
    for (int i = 0; i < 3; i++)
        owners.emplace_back([&] {
            for (int round = 0; round < 300; round++) {
                int s[2];
                char c;
                if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s))
                    abort();
                pvn_watch *w = pvn_poller_add(s[0]);
                if (!w || write(s[1], "x", 1) != 1)
                    abort();
                int spins = 0;
                while (!pvn_poller_ready(w) && spins++ < 2000000)
                    std::this_thread::yield();
                if (!pvn_poller_ready(w) || read(s[0], &c, 1) != 1)
                    lost++;
                if (round % 2)
                    pvn_poller_arm(w);
                pvn_poller_remove(w);
                close(s[0]);
                close(s[1]);
            }
        });
    for (auto &t : owners)
        t.join();
    stop = true;
    for (auto &t : pollers)
        t.join();
    EXPECT_EQ(0, lost);
}

TEST_F(Poller, AForkedChildTouchesNothing)
{
    ASSERT_EQ(0, pvn_fork_mark());
    unsigned epoch = pvn_fork_epoch();
    EXPECT_FALSE(pvn_fork_in_child(epoch));
    pvn_watch *w = pvn_poller_add(sv[0]);
    ASSERT_NE(nullptr, w);
    pid_t pid = fork();
    if (pid == 0) {
        int bad = 0;
        bad |= !pvn_forked() << 0;
        bad |= !pvn_fork_in_child(epoch) << 1;
        bad |= (pvn_poller_add(sv[1]) != nullptr) << 2;
        pvn_poller_remove(w);
        // The child starts afresh: a process of its own with its own descriptor.
        bad |= (pvn_fork_mark() != 0) << 3;
        pvn_poller_after_fork();
        bad |= (pvn_poller_get() != 0) << 4;
        pvn_watch *mine = pvn_poller_add(sv[1]);
        bad |= (mine == nullptr || pvn_poller_arm(mine) != 0) << 5;
        bad |= !pvn_fork_in_child(epoch) << 6;
        pvn_poller_remove(mine);
        pvn_poller_put();
        _exit(bad);
    }
    int status;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, WEXITSTATUS(status)) << "bits name the step";
    ASSERT_EQ(1, write(sv[1], "x", 1));
    EXPECT_EQ(1, pvn_poller_poll_now()) << "the child's remove left the parent's watch alone";
    EXPECT_TRUE(pvn_poller_ready(w));
    pvn_poller_remove(w);
}

// A daemon closes what it has inherited and opens files of its own, before it initialises the plugin.
TEST_F(Poller, AForkedChildClosesNoDescriptorOfItsOwn)
{
    ASSERT_EQ(0, pvn_fork_mark());
    pid_t pid = fork();
    if (pid == 0) {
        enum { FDS = 64 };
        int lost = 0;
        for (int fd = 3; fd < FDS; fd++)
            close(fd);
        while (open("/dev/null", O_RDONLY | O_CLOEXEC) < FDS)
            ;
        pvn_poller_after_fork();
        for (int fd = 3; fd < FDS; fd++)
            lost += fcntl(fd, F_GETFD) < 0;
        _exit(lost);
    }
    int status;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
}

TEST_F(Poller, AForkedChildHasNoCopyOfTheDescriptor)
{
    ASSERT_EQ(1, descriptors());
    pid_t pid = fork();
    if (pid == 0)
        _exit(descriptors());
    int status;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ(1, descriptors()) << "the parent keeps its own";
}

} // namespace
