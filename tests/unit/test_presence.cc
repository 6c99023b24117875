// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Proof that a process exists: the connector's process listens at a port, and the acceptor connects
// to it. A "stopped" process is one whose answering thread does not run.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/netns.h"

extern "C" {
#include "base/addr.h"
#include "base/clock.h"
#include "connect/presence.h"
}

namespace
{

pvn_device device(const std::string &address)
{
    pvn_device d = {};

    strcpy(d.name, "test");
    EXPECT_EQ(0, pvn_addr_parse(address.c_str(), &d.addr, nullptr)) << address;
    d.addr_len = pvn_addr_len(reinterpret_cast<sockaddr *>(&d.addr));
    return d;
}

struct Held {
    std::vector<pvn_device> devices;
    std::vector<const pvn_device *> pointers;
    pvn_wire_addr addr[PVN_OTHER_ADDRS] = {};
    int n = 0;

    explicit Held(const std::vector<std::string> &addresses)
    {
        for (const std::string &a : addresses)
            devices.push_back(device(a));
        for (const pvn_device &d : devices)
            pointers.push_back(&d);
        n = pvn_presence_hold(pointers.data(), static_cast<int>(pointers.size()), addr);
    }
    ~Held()
    {
        pvn_presence_release();
    }
};

// An acceptor that looks repeatedly, after short pauses.
struct Probe {
    pvn_presence_probe p = {};
    const pvn_wire_addr *addr;
    int n;

    Probe(const pvn_wire_addr *a, int count) : addr(a), n(count)
    {
    }
    ~Probe()
    {
        pvn_presence_probe_end(&p);
    }
    bool look()
    {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return pvn_presence_stands(&p, addr, n, pvn_now_ns());
    }
    // True if the answer becomes `stands` in time.
    bool becomes(bool stands)
    {
        const uint64_t until = pvn_now_ns() + 60 * PVN_NS_PER_S;
        bool now = look();

        while (now != stands && pvn_now_ns() < until)
            now = look();
        return now == stands;
    }
    // True if the answer remains `stands` while several connections are made and closed.
    bool stays(bool stands)
    {
        const uint64_t until = pvn_now_ns() + 3 * PVN_NS_PER_S;
        bool stayed = true;

        while (pvn_now_ns() < until)
            stayed &= look() == stands;
        return stayed;
    }
};

// Binds a port without listening, so that the kernel gives it to no other program.
struct Reserved {
    int fd;
    explicit Reserved(const pvn_wire_addr &a)
    {
        sockaddr_storage at;
        const socklen_t len = pvn_wire_addr_to_sockaddr(&a, 0, &at);
        fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(0, bind(fd, reinterpret_cast<sockaddr *>(&at), len)) << strerror(errno);
    }
    Reserved(const Reserved &) = delete;
    Reserved &operator=(const Reserved &) = delete;
    ~Reserved()
    {
        close(fd);
    }
};

bool is_refused(const pvn_wire_addr &a)
{
    sockaddr_storage peer;
    const socklen_t len = pvn_wire_addr_to_sockaddr(&a, 0, &peer);
    const int fd = socket(peer.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool refused =
        connect(fd, reinterpret_cast<sockaddr *>(&peer), len) != 0 && errno == ECONNREFUSED;

    close(fd);
    return refused;
}

TEST(Presence, OfAStoppedProcessTheConnectionStands)
{
    Held h({"127.0.0.1"});
    ASSERT_EQ(1, h.n);
    Probe p(h.addr, h.n);

    EXPECT_TRUE(p.becomes(true));
    EXPECT_TRUE(p.stays(true));
    EXPECT_LT(0u, p.p.sent_ns) << "its machine has something to acknowledge";
}

TEST(Presence, AProcessThatRunsClosesIt)
{
    Held h({"127.0.0.1"});
    Probe p(h.addr, h.n);
    unsigned stood = 0, closed = 0;

    ASSERT_EQ(1, h.n);
    for (int i = 0; i < 1000 && closed < 3; i++) {
        pvn_presence_answer();
        if (p.look())
            stood++;
        closed = p.p.next;
    }
    EXPECT_EQ(3u, closed);
    EXPECT_GE(3u, stood) << "at most one look finds it open";
}

TEST(Presence, AProcessThatGoesOnIsNoLongerStopped)
{
    Held h({"127.0.0.1"});
    Probe p(h.addr, h.n);

    ASSERT_TRUE(p.becomes(true));
    pvn_presence_answer();
    EXPECT_TRUE(p.becomes(false));
}

TEST(Presence, AProcessThatHasEndedRefusesIt)
{
    pvn_wire_addr addr = {};
    {
        Held h({"127.0.0.1"});
        ASSERT_EQ(1, h.n);
        addr = h.addr[0];
    }
    Reserved port(addr);
    Probe p(&addr, 1);

    EXPECT_TRUE(is_refused(addr));
    EXPECT_FALSE(pvn_presence_is_refused(&p.p, 1)) << "nobody has looked";
    EXPECT_TRUE(p.stays(false));
    EXPECT_LT(1u, p.p.next) << "it was dialled again";
    EXPECT_TRUE(pvn_presence_is_refused(&p.p, 1));
    pvn_presence_probe_end(&p.p);
    EXPECT_FALSE(pvn_presence_is_refused(&p.p, 1)) << "of the next look";
}

TEST(Presence, TheLastHolderClosesTheSockets)
{
    pvn_wire_addr addr = {};
    {
        Held first({"127.0.0.1"});
        addr = first.addr[0];
        {
            const pvn_device *same = &first.devices[0];
            pvn_wire_addr again[PVN_OTHER_ADDRS];

            ASSERT_EQ(1, pvn_presence_hold(&same, 1, again));
            EXPECT_EQ(addr.port, again[0].port) << "one socket for all";
            pvn_presence_release();
        }
        EXPECT_FALSE(is_refused(addr));
        EXPECT_TRUE(pvn_presence_any());
    }
    EXPECT_TRUE(is_refused(addr));
    EXPECT_FALSE(pvn_presence_any());
}

TEST(Presence, AnotherAddressIsTriedWhereOneRefuses)
{
    Held h({"127.0.0.1", "127.0.0.2"});
    pvn_wire_addr addr[2] = {h.addr[0], h.addr[1]};

    ASSERT_EQ(2, h.n);
    addr[0].bytes[3] = 77; // nobody listens there
    Probe p(addr, 2);
    EXPECT_TRUE(p.becomes(true));
    EXPECT_EQ(1u, p.p.next);
    EXPECT_TRUE(p.stays(true));
    EXPECT_FALSE(pvn_presence_is_refused(&p.p, 2));
}

TEST(Presence, AllAddressesHaveToRefuse)
{
    pvn_wire_addr addr[2];
    {
        Held h({"127.0.0.1", "127.0.0.2"});
        ASSERT_EQ(2, h.n);
        std::copy(h.addr, h.addr + 2, addr);
    }
    Reserved first(addr[0]), second(addr[1]);
    Probe p(addr, 2);
    const uint64_t until = pvn_now_ns() + 60 * PVN_NS_PER_S;

    while (p.p.next < 1 && pvn_now_ns() < until)
        EXPECT_FALSE(p.look());
    EXPECT_FALSE(pvn_presence_is_refused(&p.p, 2)) << "one has";
    while (p.p.next < 2 && pvn_now_ns() < until)
        EXPECT_FALSE(p.look());
    EXPECT_TRUE(pvn_presence_is_refused(&p.p, 2));
    EXPECT_EQ(0, listen(first.fd, 1));
    EXPECT_TRUE(p.becomes(true));
    EXPECT_FALSE(pvn_presence_is_refused(&p.p, 2));
}

TEST(Presence, NoMoreAddressesThanAHelloHasRoomFor)
{
    Held h({"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"});

    ASSERT_EQ(PVN_OTHER_ADDRS, h.n);
    for (int i = 0; i < h.n; i++)
        EXPECT_EQ(i + 1, h.addr[i].bytes[3]) << "in the order of the devices";
    Held later({"127.0.0.9"});
    EXPECT_EQ(1, later.n) << "another comm's device";
    EXPECT_EQ(9, later.addr[0].bytes[3]);
}

TEST(Presence, WhereNothingCanBeListenedOnNothingIsProved)
{
    Held h({"192.0.2.1", "fe80::1"});
    Probe p(h.addr, h.n);

    EXPECT_EQ(0, h.n);
    EXPECT_TRUE(pvn_presence_any()) << "it is released all the same";
    EXPECT_FALSE(p.look());
}

TEST(Presence, OverIPv6)
{
    Held h({"::1"});
    if (h.n == 0)
        GTEST_SKIP() << "no IPv6 here";
    Probe p(h.addr, h.n);

    EXPECT_TRUE(p.becomes(true));
}

// A forked child survives its parent, as a data loader's worker may.
TEST(Presence, AChildDoesNotStandForItsParent)
{
    pvn_wire_addr addr = {};
    int to_parent[2];
    pid_t child;

    ASSERT_EQ(0, pipe(to_parent));
    {
        Held h({"127.0.0.1"});
        addr = h.addr[0];
        child = fork();
        ASSERT_LE(0, child);
        if (child == 0) {
            pvn_presence_after_fork();
            const bool any = pvn_presence_any();
            EXPECT_EQ(1, write(to_parent[1], any ? "a" : "n", 1));
            pause();
            _exit(0);
        }
        char c = 0;
        ASSERT_EQ(1, read(to_parent[0], &c, 1));
        EXPECT_EQ('n', c);
        EXPECT_FALSE(is_refused(addr)) << "the child has ended its parent's listening";
    }
    EXPECT_TRUE(is_refused(addr));
    kill(child, SIGKILL);
    EXPECT_EQ(child, waitpid(child, nullptr, 0));
    close(to_parent[0]);
    close(to_parent[1]);
}

TEST(Presence, AFloodIsAnsweredInParts)
{
    Held h({"127.0.0.1"});
    std::vector<int> fds;
    sockaddr_storage peer;
    const socklen_t len = pvn_wire_addr_to_sockaddr(&h.addr[0], 0, &peer);

    for (int i = 0; i < 100; i++) {
        fds.push_back(socket(peer.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(0, connect(fds.back(), reinterpret_cast<sockaddr *>(&peer), len));
    }
    auto closed = [&] {
        int n = 0;
        for (int fd : fds) {
            char c;
            n += recv(fd, &c, 1, MSG_DONTWAIT) == 0;
        }
        return n;
    };
    pvn_presence_answer();
    EXPECT_LT(0, closed());
    EXPECT_GT(100, closed());
    pvn_presence_answer();
    const uint64_t until = pvn_now_ns() + 60 * PVN_NS_PER_S;
    while (closed() < 100 && pvn_now_ns() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(100, closed());
    for (int fd : fds)
        close(fd);
}

// A process whose machine sends no acknowledgements counts as gone, because a machine that is gone
// sends none.
TEST(Presence, AConnectionThatIsNotAcknowledgedProvesNothing)
{
    const std::string why = pvn_test::in_netns([] {
        ASSERT_TRUE(pvn_test::sh("ip link set lo up"));
        Held h({"127.0.0.1"});
        ASSERT_EQ(1, h.n);
        Probe p(h.addr, h.n);

        ASSERT_TRUE(p.becomes(true));
        ASSERT_TRUE(pvn_test::sh("ip link set lo down"));
        EXPECT_TRUE(p.becomes(false));
        ASSERT_TRUE(pvn_test::sh("ip link set lo up"));
        EXPECT_TRUE(p.becomes(true)) << "by this connection or the next one";
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

} // namespace
