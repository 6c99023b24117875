// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The answer to the question if the peer's machine is reachable, in each state of a connection. The
// path is the loopback interface of a network namespace, which the test takes down.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/netns.h"

extern "C" {
#include "base/clock.h"
#include "base/param.h"
#include "connect/path_watch.h"
}

namespace
{

struct Connection {
    const char *name;
    int near = -1, far = -1;
    pvn_path_watch watch = {};
    uint64_t longest = 0;

    explicit Connection(const char *n) : name(n)
    {
        const int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in addr = {};
        socklen_t len = sizeof(addr);
        const int small = 8192;

        addr.sin_family = AF_INET;
        addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        EXPECT_EQ(0, bind(l, reinterpret_cast<sockaddr *>(&addr), len));
        EXPECT_EQ(0, listen(l, 1));
        EXPECT_EQ(0, getsockname(l, reinterpret_cast<sockaddr *>(&addr), &len));
        EXPECT_EQ(0, connect(near, reinterpret_cast<sockaddr *>(&addr), len));
        far = accept(l, nullptr, nullptr);
        EXPECT_LE(0, far);
        close(l);
    }
    ~Connection()
    {
        close(near);
        close(far);
    }
    void close_far()
    {
        close(far);
        far = -1;
    }
    void fill() const
    {
        const std::vector<char> bytes(65536);

        while (send(near, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            ;
        EXPECT_EQ(EAGAIN, errno) << name;
    }
    uint64_t look()
    {
        const uint64_t silent = pvn_path_silent(&watch, near, pvn_now_ns());

        longest = std::max(longest, silent);
        return silent;
    }
};

void pause_for(int ms)
{
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// One namespace has a connection in each state, because each has to wait for the kernel's timers.
TEST(PathWatch, OnlyWhatThePeersKernelDoesNotAnswerCounts)
{
    const std::string why = pvn_test::in_netns([] {
        ASSERT_TRUE(pvn_test::sh("ip link set lo up"));
        Connection closed("window closed"), idle("idle"), flight("data in flight"),
            probed("keepalive");
        const int one = 1;

        setsockopt(probed.near, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        setsockopt(probed.near, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
        setsockopt(probed.near, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
        closed.fill();
        // Long enough for several probes of the window and of the idle connection. All are
        // answered.
        for (int i = 0; i < 15; i++) {
            pause_for(100);
            for (Connection *c : {&closed, &idle, &flight, &probed})
                EXPECT_EQ(0u, c->look()) << c->name;
        }
        EXPECT_TRUE(pvn_path_answers(probed.near));
        EXPECT_TRUE(pvn_path_repeats_nothing(probed.near));
        tcp_info info = {};
        socklen_t len = sizeof(info);
        ASSERT_EQ(0, getsockopt(closed.near, IPPROTO_TCP, TCP_INFO, &info, &len));
        EXPECT_LT(0, info.tcpi_backoff) << "the window is closed, and is probed";

        ASSERT_TRUE(pvn_test::sh("ip link set lo down"));
        ASSERT_EQ(1, send(flight.near, "x", 1, MSG_NOSIGNAL));
        EXPECT_FALSE(pvn_path_answers(flight.near));
        const uint64_t limit = PVN_NS_PER_S;
        uint64_t until = pvn_now_ns() + 60 * PVN_NS_PER_S;
        while (std::min({closed.longest, flight.longest, probed.longest}) < limit &&
               pvn_now_ns() < until) {
            pause_for(20);
            for (Connection *c : {&closed, &flight, &probed})
                c->look();
        }
        for (Connection *c : {&closed, &flight, &probed})
            EXPECT_LE(limit, c->longest) << c->name << ": the path is dead";
        EXPECT_FALSE(pvn_path_repeats_nothing(probed.near));
        EXPECT_EQ(0u, idle.look()) << "nothing was sent";

        // The test did not look for an hour. That time does not count against the peer.
        const uint64_t before = flight.look();
        EXPECT_GT(before + 10 * PVN_NS_PER_S,
                  pvn_path_silent(&flight.watch, flight.near, pvn_now_ns() + 3600 * PVN_NS_PER_S));
        ASSERT_TRUE(pvn_test::sh("ip link set lo up"));
        flight.watch = {};
        until = pvn_now_ns() + 60 * PVN_NS_PER_S;
        while (!pvn_path_answers(flight.near) && pvn_now_ns() < until)
            pause_for(20);
        EXPECT_TRUE(pvn_path_answers(flight.near));
        EXPECT_TRUE(pvn_path_repeats_nothing(flight.near));
        EXPECT_EQ(0u, flight.look()) << "all is answered again";
        flight.close_far();
        EXPECT_FALSE(pvn_path_repeats_nothing(flight.near)) << "closed";
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

// An idle connection was last looked at long ago. Data that were just sent are not late because of
// that.
TEST(PathWatch, ThePastBeforeTheFirstUnansweredSegmentDoesNotCount)
{
    const std::string why = pvn_test::in_netns([] {
        ASSERT_TRUE(pvn_test::sh("ip link set lo up"));
        Connection c("idle, then busy");

        EXPECT_EQ(0u, c.look());
        pause_for(1500);
        ASSERT_TRUE(pvn_test::sh("ip link set lo down"));
        ASSERT_EQ(1, send(c.near, "x", 1, MSG_NOSIGNAL));
        EXPECT_EQ(0u, c.look());

        // An answer that came while nobody looked counts, too, although the next segment is
        // unanswered again.
        ASSERT_TRUE(pvn_test::sh("ip link set lo up"));
        const uint64_t until = pvn_now_ns() + 60 * PVN_NS_PER_S;
        while (!pvn_path_answers(c.near) && pvn_now_ns() < until)
            pause_for(20);
        ASSERT_TRUE(pvn_path_answers(c.near));
        ASSERT_TRUE(pvn_test::sh("ip link set lo down"));
        ASSERT_EQ(1, send(c.near, "x", 1, MSG_NOSIGNAL));
        pause_for(3000);
        EXPECT_EQ(0u, c.look());
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

// The limits by this setting: of a comm that outlives the path, and of one that does not.
std::pair<uint64_t, uint64_t> limits_by(std::string setting)
{
    char *const envp[] = {&setting[0], nullptr};
    static pvn_params params;

    EXPECT_EQ(0, pvn_params_read(&params, envp, nullptr));
    pvn_params_override(&params);
    const std::pair<uint64_t, uint64_t> both = {pvn_path_limit(true), pvn_path_limit(false)};
    pvn_params_override(nullptr);
    return both;
}

// A virtual machine may stand still for more than a minute. A job that would end with the path waits as long as one that
// dials for FAILOVER_TIMEOUT after the path's end, and until the kernel's next attempt after that.
TEST(PathWatch, WaitsLongerWhereTheJobWouldEnd)
{
    const uint64_t s = PVN_NS_PER_S;
    const pvn_params *p = pvn_params_get();

    EXPECT_EQ(std::make_pair(60 * s, 240 * s), limits_by("NCCL_PVRDMA_TCP_USER_TIMEOUT=auto"));
    EXPECT_EQ(60 * s, pvn_path_limit(true)) << "by default, too";
    // The kernel sends again after 0.2 s, and doubles the pause each time.
    double sent_s = 0;
    for (double pause_s = 0.2; sent_s <= 60 + static_cast<double>(p->failover_timeout / s);
         pause_s *= 2)
        sent_s += pause_s;
    EXPECT_LT(sent_s + 10, static_cast<double>(pvn_path_limit(false) / s));
    EXPECT_EQ(pvn_path_limit(false),
              p->keepalive_idle + static_cast<uint64_t>(p->keepalive_cnt) * p->keepalive_intvl)
        << "idle connections, by the kernel";
    EXPECT_EQ(std::make_pair(7 * s, 7 * s), limits_by("NCCL_PVRDMA_TCP_USER_TIMEOUT=7s"));
    EXPECT_EQ(std::make_pair(uint64_t{0}, uint64_t{0}),
              limits_by("NCCL_PVRDMA_TCP_USER_TIMEOUT=0"));
}

TEST(PathWatch, WhatIsNoTcpSocketIsNotJudged)
{
    int fd[2];
    pvn_path_watch w = {};

    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd));
    EXPECT_EQ(0u, pvn_path_silent(&w, fd[0], pvn_now_ns()));
    EXPECT_FALSE(pvn_path_answers(fd[0]));
    close(fd[0]);
    close(fd[1]);
}

} // namespace
