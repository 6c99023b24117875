// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The proxy is the basis of other tests. So each of its faults is checked here, and that a fault
 * occurs only if it was requested. */
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/chaosproxy.h"

namespace
{

using namespace std::chrono_literals;
constexpr auto kToServer = ChaosProxy::kToServer;
constexpr auto kToClient = ChaosProxy::kToClient;

/* A listener, and the two ends of connections through the proxy. All reads have a time limit. */
class Chaos : public ::testing::TestWithParam<int>
{
  protected:
    void SetUp() override
    {
        sockaddr_storage ss = {};
        socklen_t len = sizeof(ss);

        ss.ss_family = (sa_family_t)GetParam();
        if (GetParam() == AF_INET6)
            reinterpret_cast<sockaddr_in6 *>(&ss)->sin6_addr = in6addr_loopback;
        else
            reinterpret_cast<sockaddr_in *>(&ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listener = socket(GetParam(), SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (sockaddr *)&ss, len_of(ss)) != 0 && GetParam() == AF_INET6)
            GTEST_SKIP() << "no IPv6 here: " << strerror(errno);
        ASSERT_EQ(0, listen(listener, 64));
        ASSERT_EQ(0, getsockname(listener, (sockaddr *)&ss, &len));
        target = ss;
    }

    void TearDown() override
    {
        proxy.reset();
        for (int fd : fds)
            close(fd);
        close(listener);
    }

    static socklen_t len_of(const sockaddr_storage &ss)
    {
        return ss.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    }

    void start(ChaosProxy::Plan plan = {})
    {
        proxy = std::make_unique<ChaosProxy>(target, std::move(plan));
    }

    int dial()
    {
        const sockaddr_storage ss = proxy->address();
        const int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

        EXPECT_EQ(0, connect(fd, (const sockaddr *)&ss, len_of(ss))) << strerror(errno);
        fds.push_back(fd);
        return fd;
    }

    int accept_one()
    {
        pollfd p = {listener, POLLIN, 0};

        if (poll(&p, 1, 20000) != 1) {
            ADD_FAILURE() << "no connection came";
            return -1;
        }
        const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        fds.push_back(fd);
        return fd;
    }

    void connect_pair()
    {
        client = dial();
        server = accept_one();
    }

    /* Sends all bytes. Returns 0, or the errno of the send that failed. */
    static int put(int fd, const std::string &bytes)
    {
        size_t done = 0;

        while (done < bytes.size()) {
            const ssize_t n = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
            if (n < 0)
                return errno;
            done += (size_t)n;
        }
        return 0;
    }

    struct Got {
        std::string bytes;
        int end = -1; /* 0: end of stream; > 0: an errno; -1: neither */
        unsigned reads = 0;
    };

    /* Reads until it has `want` bytes, the stream ends, a read fails, or nothing arrives for
     * `idle`. */
    static Got get(int fd, size_t want, std::chrono::milliseconds idle = 20000ms)
    {
        Got got;
        char buf[65536];

        while (got.bytes.size() < want) {
            pollfd p = {fd, POLLIN, 0};
            if (poll(&p, 1, (int)idle.count()) <= 0)
                return got;
            const ssize_t n = recv(fd, buf, std::min(sizeof(buf), want - got.bytes.size()), 0);
            if (n <= 0) {
                got.end = n == 0 ? 0 : errno;
                return got;
            }
            got.bytes.append(buf, (size_t)n);
            got.reads++;
        }
        return got;
    }

    static std::string text(size_t n)
    {
        std::string s(n, '\0');

        for (size_t i = 0; i < n; i++)
            s[i] = (char)(i * 7 + i / 251);
        return s;
    }

    int listener = -1, client = -1, server = -1;
    sockaddr_storage target = {};
    std::vector<int> fds;
    std::unique_ptr<ChaosProxy> proxy;
};

TEST_P(Chaos, WithoutFaultsItForwardsAndCounts)
{
    start();
    connect_pair();
    const std::string there = text(3000000), back = text(1000);
    std::thread writer([&] { put(client, there); });
    EXPECT_EQ(there, get(server, there.size()).bytes);
    writer.join();
    put(server, back);
    EXPECT_EQ(back, get(client, back.size()).bytes);
    EXPECT_EQ(there.size(), proxy->counters(0, kToServer).bytes);
    EXPECT_EQ(back.size(), proxy->counters(0, kToClient).bytes);

    shutdown(client, SHUT_WR);
    EXPECT_EQ(0, get(server, 1).end);
    put(server, back);
    EXPECT_EQ(back, get(client, back.size()).bytes)
        << "a half-closed connection still carries the rest";
    shutdown(server, SHUT_WR);
    EXPECT_EQ(0, get(client, 1).end);
    EXPECT_TRUE(ChaosProxy::wait_for([&] { return proxy->open() == 0; }));
    const ChaosCounters c = proxy->total(kToServer);
    EXPECT_EQ(0u, c.stalls + c.half_closes + c.resets + c.flips + c.holds + c.swallowed);
}

TEST_P(Chaos, EachByteIsAWriteOfItsOwn)
{
    start([](int, ChaosFault f[2]) { f[kToServer].max_write = 1; });
    connect_pair();
    put(client, text(500));
    EXPECT_EQ(text(500), get(server, 500).bytes);
    EXPECT_EQ(500u, proxy->counters(0, kToServer).writes);
}

TEST_P(Chaos, GapsMakeReadsPartial)
{
    start([](int, ChaosFault f[2]) {
        f[kToServer].max_write = 10;
        f[kToServer].gap = 500us;
    });
    connect_pair();
    put(client, text(200));
    const Got got = get(server, 200);
    EXPECT_EQ(text(200), got.bytes);
    EXPECT_LT(1u, got.reads);
    EXPECT_EQ(20u, proxy->counters(0, kToServer).writes);
}

TEST_P(Chaos, RandomPiecesKeepTheBytes)
{
    start([](int conn, ChaosFault f[2]) {
        f[kToServer].seed = 1234 + (unsigned)conn;
        f[kToServer].max_write = 5000;
        f[kToServer].gap = 50us;
    });
    connect_pair();
    const std::string there = text(300000);
    std::thread writer([&] { put(client, there); });
    EXPECT_EQ(there, get(server, there.size()).bytes);
    writer.join();
    EXPECT_LT(there.size() / 5000, proxy->counters(0, kToServer).writes);
}

TEST_P(Chaos, StallIsAtItsByteAndEnds)
{
    start([](int, ChaosFault f[2]) {
        f[kToServer].stall_at = 100;
        f[kToServer].stall_for = 200ms;
    });
    connect_pair();
    put(client, text(300));
    EXPECT_EQ(text(100), get(server, 100).bytes);
    ASSERT_TRUE(ChaosProxy::wait_for([&] { return proxy->counters(0, kToServer).stalls == 1; }));
    EXPECT_EQ(text(300).substr(100), get(server, 200).bytes);
    EXPECT_EQ(1u, proxy->counters(0, kToServer).stalls);
}

TEST_P(Chaos, BlackHoleStopsTheSenderToo)
{
    start([](int, ChaosFault f[2]) { f[kToServer].stall_at = 10; });
    connect_pair();
    put(client, text(50));
    EXPECT_EQ(text(10), get(server, 50, 100ms).bytes);
    EXPECT_EQ(1u, proxy->counters(0, kToServer).stalls);
    /* Nobody reads any more, so the sender's buffers fill up. */
    const std::string big = text(1 << 20);
    int full = 0;
    for (int i = 0; i < 200 && !full; i++)
        full = send(client, big.data(), big.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
    EXPECT_EQ(EAGAIN, full);
    put(server, "back");
    EXPECT_EQ("back", get(client, 4).bytes) << "the other direction is not affected";
}

TEST_P(Chaos, SwallowAcknowledgesAndDeliversNothing)
{
    start([](int, ChaosFault f[2]) { f[kToServer].swallow_at = 10; });
    connect_pair();
    put(client, text(3000000)); /* more than any buffer: the send returns only if somebody reads */
    EXPECT_EQ(text(10), get(server, 50, 100ms).bytes);
    EXPECT_TRUE(ChaosProxy::wait_for(
        [&] { return proxy->counters(0, kToServer).swallowed == 3000000 - 10; }));
}

TEST_P(Chaos, ResetComesAfterExactlySoManyBytes)
{
    for (const uint64_t at : {0, 1, 100, 70000}) {
        start([at](int, ChaosFault f[2]) { f[kToServer].reset_at = at; });
        connect_pair();
        int sent = 0;
        std::thread writer([&] { sent = put(client, text(200000)); });
        const Got got = get(server, 200000);
        writer.join();
        EXPECT_EQ(text(200000).substr(0, at), got.bytes) << "at " << at;
        EXPECT_EQ(ECONNRESET, got.end) << "at " << at;
        EXPECT_EQ(1u, proxy->counters(0, kToServer).resets);
        EXPECT_EQ(0u, proxy->counters(0, kToClient).resets);
        /* The kernel reports an error once: to the send, if that was still running. */
        EXPECT_EQ(ECONNRESET, sent ? sent : get(client, 1).end);
        EXPECT_EQ(0, proxy->open());
    }
}

TEST_P(Chaos, HalfCloseEndsOneDirection)
{
    start([](int, ChaosFault f[2]) { f[kToServer].half_close_at = 20; });
    connect_pair();
    put(client, text(100));
    const Got got = get(server, 100);
    EXPECT_EQ(text(20), got.bytes);
    EXPECT_EQ(0, got.end);
    put(server, "answer");
    EXPECT_EQ("answer", get(client, 6).bytes);
    EXPECT_EQ(1u, proxy->counters(0, kToServer).half_closes);
    EXPECT_TRUE(
        ChaosProxy::wait_for([&] { return proxy->counters(0, kToServer).swallowed == 80; }));
}

TEST_P(Chaos, FlipChangesOneBit)
{
    start([](int, ChaosFault f[2]) {
        f[kToServer].flip_at = 7;
        f[kToServer].max_write = 3;
    });
    connect_pair();
    put(client, text(30));
    std::string want = text(30);
    want[7] ^= 1;
    EXPECT_EQ(want, get(server, 30).bytes);
    EXPECT_EQ(1u, proxy->counters(0, kToServer).flips);
}

/* Bytes of the second stream arrive first, as a lane with several streams may see. */
TEST_P(Chaos, HoldReversesTheOrderOfStreams)
{
    start();
    proxy->hold(-1, kToServer, true);
    const int a = dial(), sa = accept_one();
    const int b = dial(), sb = accept_one();
    put(a, "first");
    put(b, "second");
    ASSERT_TRUE(ChaosProxy::wait_for([&] {
        return proxy->counters(0, kToServer).holds == 1 && proxy->counters(1, kToServer).holds == 1;
    }));
    proxy->hold(1, kToServer, false);
    EXPECT_EQ("second", get(sb, 6).bytes);
    EXPECT_EQ("", get(sa, 5, 50ms).bytes);
    proxy->hold(-1, kToServer, false);
    EXPECT_EQ("first", get(sa, 5).bytes);
}

TEST_P(Chaos, FaultsComeOnCommand)
{
    start();
    connect_pair();
    put(client, "abc");
    EXPECT_EQ("abc", get(server, 3).bytes);
    proxy->half_close(0, kToServer);
    EXPECT_EQ(0, get(server, 1).end);
    EXPECT_EQ(1u, proxy->counters(0, kToServer).half_closes);
    proxy->reset(-1);
    EXPECT_EQ(ECONNRESET, get(client, 1).end);
    EXPECT_EQ(1u, proxy->counters(0, kToClient).resets);
}

TEST_P(Chaos, FaultsSetLaterCountFromThere)
{
    start();
    connect_pair();
    put(client, text(100));
    EXPECT_EQ(text(100), get(server, 100).bytes);
    ChaosFault fault;
    fault.reset_at = 10;
    proxy->set(0, kToServer, fault);
    put(client, text(50));
    const Got got = get(server, 50);
    EXPECT_EQ(text(10), got.bytes);
    EXPECT_EQ(ECONNRESET, got.end);
}

TEST_P(Chaos, RefusedConnectionsAreResetAtOnce)
{
    start();
    proxy->refuse(true);
    const int fd = dial();
    EXPECT_EQ(ECONNRESET, get(fd, 1).end);
    EXPECT_EQ(1u, proxy->refused());
    proxy->refuse(false);
    connect_pair();
    put(client, "x");
    EXPECT_EQ("x", get(server, 1).bytes);
    EXPECT_EQ(1, proxy->connections());
}

TEST_P(Chaos, DeadTargetResetsTheClient)
{
    start();
    close(listener);
    const int fd = dial();
    EXPECT_EQ(ECONNRESET, get(fd, 1).end);
    listener = socket(GetParam(), SOCK_STREAM | SOCK_CLOEXEC, 0);
}

TEST_P(Chaos, ResetOfOneEndReachesTheOther)
{
    start();
    connect_pair();
    put(client, "x");
    EXPECT_EQ("x", get(server, 1).bytes);
    const linger hard = {1, 0};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(client);
    fds.erase(std::find(fds.begin(), fds.end(), client));
    EXPECT_EQ(ECONNRESET, get(server, 1).end);
}

TEST_P(Chaos, DestructorEndsOpenConnections)
{
    start();
    connect_pair();
    put(client, "x");
    EXPECT_EQ("x", get(server, 1).bytes);
    proxy.reset();
    EXPECT_EQ(ECONNRESET, get(client, 1).end);
    EXPECT_EQ(ECONNRESET, get(server, 1).end);
}

INSTANTIATE_TEST_SUITE_P(Families, Chaos, ::testing::Values(AF_INET, AF_INET6),
                         [](const auto &family) {
                             return std::string(family.param == AF_INET ? "ipv4" : "ipv6");
                         });

} // namespace
