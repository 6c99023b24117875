/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A forked child that survives its rank, as a data loader's worker can when the rank is killed.
#ifndef TESTS_ABI_ORPHAN_H
#define TESTS_ABI_ORPHAN_H

#include "abi/nccl_side.h"

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <netinet/in.h>
#include <new>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nccl
{

inline bool is_tcp(int fd)
{
    int protocol = 0;
    socklen_t len = sizeof(protocol);
    return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == IPPROTO_TCP;
}

inline bool is_epoll(int fd)
{
    char path[64], target[64] = "";
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "eventpoll");
}

inline bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

// Which of the rank's descriptors the child still has. The rank, its child and the test share this
// memory.
struct Orphan {
    std::atomic<pid_t> pid{0}; // set after the other members
    int connections = 0;       // the rank's TCP sockets, made by the plugin
    int kept = 0;              // how many of them and of its epoll descriptors the child still has
    int others_closed = 0;     // other descriptors of the rank that the child lacks
    bool application = false;  // the child has the application's own socket

    static Orphan *shared()
    {
        void *m = mmap(nullptr, sizeof(Orphan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0);
        return m == MAP_FAILED ? nullptr : new (m) Orphan;
    }
    void free()
    {
        if (pid)
            kill(pid, SIGKILL);
        munmap(this, sizeof(*this));
    }
    // Runs in the rank: opens a TCP socket of its own, forks, and waits until it is killed.
    [[noreturn]] void be_left()
    {
        const std::set<int> before = descriptors();
        const int own = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        std::vector<int> tcp, epoll, others;
        for (int fd : before)
            (is_tcp(fd) ? tcp : is_epoll(fd) ? epoll : others).push_back(fd);
        if (fork() == 0) {
            connections = static_cast<int>(tcp.size());
            for (int fd : tcp)
                kept += is_open(fd);
            for (int fd : epoll)
                kept += is_open(fd);
            for (int fd : others)
                others_closed += !is_open(fd);
            application = is_tcp(own);
            pid = getpid();
        }
        for (;;)
            pause();
    }
    bool is_alive() const
    {
        return kill(pid, 0) == 0;
    }
};

// Posts a receive, kills the rank that was to send, and expects an error that names the rank
// although its child lives.
inline void expect_loss_of(Net &n, void *rc, pid_t rank, const Orphan &child)
{
    Buffer b(100);
    void *req = nullptr, *data = b.data(), *mh = nullptr;
    size_t size = 100;
    int tag = 0, d = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(n.d, rc, data, size, NCCL_PTR_HOST, &mh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(n.d, rc, 1, &data, &size, &tag, &mh, nullptr, &req));
    ASSERT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_test(n.d, req, &d, nullptr));
        return child.pid || testing::Test::HasFailure();
    }));
    kill(rank, SIGKILL);
    EXPECT_EQ(rank, waitpid(rank, nullptr, 0));
    ncclResult_t r = ncclSuccess;
    EXPECT_TRUE(
        eventually([&] { return (r = pvn_netdrv_test(n.d, req, &d, nullptr)) != ncclSuccess; }, 20))
        << "the peer waits on";
    EXPECT_EQ(ncclRemoteError, r);
    EXPECT_TRUE(Log::get().warned({"pid " + std::to_string(rank)})) << Log::get().warnings();
    EXPECT_TRUE(child.is_alive());
    EXPECT_LT(0, child.connections);
    EXPECT_EQ(0, child.kept);
    EXPECT_TRUE(child.application);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(n.d, rc, mh));
}

} // namespace nccl

#endif
