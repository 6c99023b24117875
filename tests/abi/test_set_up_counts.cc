// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Counts sockets, options, messages and system calls per set-up of a comm over TCP. The counted calls
// do not depend on how long an end waits, but for a BEAT of one that waits for 250 ms: calls that look
// for what has not come (poll, recv without bytes) are left out.
// tests/bench/README.md has the times, beside those of NCCL's sockets.
#include <gtest/gtest.h>

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdarg>

#include "abi/nccl_side.h"
#include "support/next_symbol.h"

using namespace nccl;

namespace
{

std::atomic<int> sockets, accepted, options, sends, queries; // queries: of the kernel, by netlink
std::atomic<int> calls;                                      // all system calls that are counted

} // namespace

// The plugin's calls arrive here, because the program comes before the C library in symbol lookup.
extern "C" {
__attribute__((visibility("default"))) int socket(int domain, int type, int protocol) __THROW
{
    static auto real = next_symbol<decltype(&socket)>("socket");
    sockets += domain == AF_INET;
    calls++;
    return real(domain, type, protocol);
}
__attribute__((visibility("default"))) int accept4(int fd, sockaddr *addr, socklen_t *len,
                                                   int flags)
{
    static auto real = next_symbol<decltype(&accept4)>("accept4");
    int got = real(fd, addr, len, flags);
    accepted += got >= 0;
    calls += got >= 0;
    return got;
}
__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name,
                                                      const void *value, socklen_t len) __THROW
{
    static auto real = next_symbol<decltype(&setsockopt)>("setsockopt");
    options++;
    calls++;
    return real(fd, level, name, value, len);
}
__attribute__((visibility("default"))) int getsockopt(int fd, int level, int name, void *value,
                                                      socklen_t *len) __THROW
{
    static auto real = next_symbol<decltype(&getsockopt)>("getsockopt");
    calls++;
    return real(fd, level, name, value, len);
}
__attribute__((visibility("default"))) int getsockname(int fd, sockaddr *addr,
                                                       socklen_t *len) __THROW
{
    static auto real = next_symbol<decltype(&getsockname)>("getsockname");
    calls++;
    return real(fd, addr, len);
}
__attribute__((visibility("default"))) int bind(int fd, const sockaddr *addr, socklen_t len) __THROW
{
    static auto real = next_symbol<decltype(&bind)>("bind");
    calls++;
    return real(fd, addr, len);
}
__attribute__((visibility("default"))) int connect(int fd, const sockaddr *addr, socklen_t len)
{
    static auto real = next_symbol<decltype(&connect)>("connect");
    calls++;
    return real(fd, addr, len);
}
__attribute__((visibility("default"))) int listen(int fd, int backlog) __THROW
{
    static auto real = next_symbol<decltype(&listen)>("listen");
    calls++;
    return real(fd, backlog);
}
__attribute__((visibility("default"))) int epoll_ctl(int epfd, int op, int fd,
                                                     epoll_event *event) __THROW
{
    static auto real = next_symbol<decltype(&epoll_ctl)>("epoll_ctl");
    calls++;
    return real(epfd, op, fd, event);
}
__attribute__((visibility("default"))) ssize_t getrandom(void *data, size_t len, unsigned flags)
{
    static auto real = next_symbol<decltype(&getrandom)>("getrandom");
    calls++;
    return real(data, len, flags);
}
__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) __THROW
{
    static auto real = next_symbol<int (*)(int, unsigned long, void *)>("ioctl");
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    calls++;
    return real(fd, request, arg);
}
__attribute__((visibility("default"))) ssize_t recv(int fd, void *data, size_t len, int flags)
{
    static auto real = next_symbol<decltype(&recv)>("recv");
    ssize_t n = real(fd, data, len, flags);
    calls += n > 0;
    return n;
}
__attribute__((visibility("default"))) ssize_t send(int fd, const void *data, size_t len, int flags)
{
    static auto real = next_symbol<decltype(&send)>("send");
    ssize_t n = real(fd, data, len, flags);
    static auto option = next_symbol<decltype(&getsockopt)>("getsockopt");
    int domain = 0;
    socklen_t size = sizeof(domain);
    option(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    (domain == AF_NETLINK ? queries : sends) += n > 0;
    calls++;
    return n;
}
}

namespace
{

// Tests both settings of failover, which is on by default where a host has two interfaces.
struct SetUpCounts : testing::TestWithParam<const char *> {
    void TearDown() override
    {
        unsetenv("NCCL_PVRDMA_FAILOVER");
    }
};
INSTANTIATE_TEST_SUITE_P(Failover, SetUpCounts, testing::Values("0", "1"),
                         [](const auto &i) { return std::string("is") + i.param; });

TEST_P(SetUpCounts, OfACommOverTcp)
{
    constexpr int kComms = 8, kCalls = 72;
    setenv("NCCL_PVRDMA_FAILOVER", GetParam(), 1);
    Net n(12);
    Pair first(n); // includes what a process does once
    ASSERT_TRUE(first.up()) << Log::get().text();
    sockets = accepted = options = sends = queries = calls = 0;
    std::vector<std::unique_ptr<Pair>> pairs;
    for (int i = 0; i < kComms; i++) {
        pairs.push_back(std::make_unique<Pair>(n));
        ASSERT_TRUE(pairs.back()->up()) << Log::get().text();
    }
    printf(
        "a comm, both ends: %g sockets, %g of them accepted, %g options, %g messages, %g calls\n",
        (double)(sockets + accepted) / kComms, (double)accepted / kComms, (double)options / kComms,
        (double)sends / kComms, (double)calls / kComms);
    // The listener, a control connection and a data connection.
    EXPECT_EQ(3 * kComms, sockets);
    EXPECT_EQ(2 * kComms, accepted);
    // HELLO with OFFER, and READY, of each end, the data connection's preamble and its answer; on a
    // busy machine a BEAT here and there.
    EXPECT_LE(6 * kComms, sends);
    EXPECT_GE(7 * kComms, sends);
    EXPECT_EQ(0, queries) << "for the route to the device's own address";
    EXPECT_GE(27 * kComms, options);
    EXPECT_LT(0, options);
    EXPECT_GE(kCalls * kComms, calls);
    EXPECT_LT(50 * kComms, calls) << "they are counted";
}

} // namespace
