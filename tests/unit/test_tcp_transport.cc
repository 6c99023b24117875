// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* TCP interfaces as devices, and the sockets that their lanes dial. */
#include <gtest/gtest.h>

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "support/netns.h"

extern "C" {
#include "base/addr.h"
#include "base/log.h"
#include "base/param.h"
#include "base/poller.h"
#include "connect/sock.h"
#include "connect/transport.h"
#include "net-tcp/tcp_transport.h"
}

namespace
{

class TcpTransport : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(0, pvn_poller_get());
    }

    void TearDown() override
    {
        pvn_params_override(nullptr);
        pvn_poller_put();
    }

    void params(std::vector<std::string> env)
    {
        std::vector<char *> envp;

        for (auto &e : env)
            envp.push_back(&e[0]);
        envp.push_back(nullptr);
        ASSERT_EQ(0, pvn_params_read(&params_, envp.data(), nullptr));
        pvn_params_override(&params_);
    }

    int scan()
    {
        pvn_err_clear(&err);
        return pvn_tcp_transport.scan(devices, 8, left_out, sizeof(left_out), &err);
    }

    /* Makes both lanes of a pair on device 0, lets the sender dial, and returns the sender's
     * sockets. */
    std::vector<int> dialled(size_t want)
    {
        pvn_lane_args args = {};
        uint8_t offer[2][1024];

        args.dev = &devices[0];
        args.traffic_class = -1;
        sockaddr_storage listen_addr = devices[0].addr;
        args.listen_addr = &listen_addr;
        listener = pvn_sock_listen(&listen_addr, devices[0].addr_len, &err);
        EXPECT_LE(0, listener) << err.reason[0];
        EXPECT_EQ(0, pvn_tcp_transport.lane_new(0, &args, &acceptor, &err)) << err.reason[0];
        sender_args = args;
        sender_args.sender = true;
        EXPECT_EQ(0, pvn_tcp_transport.lane_new(0, &sender_args, &sender, &err)) << err.reason[0];
        const int a = acceptor->ops->offer(acceptor, offer[0], sizeof(offer[0]));
        const int s = sender->ops->offer(sender, offer[1], sizeof(offer[1]));
        EXPECT_LT(0, a);
        EXPECT_LT(0, s);
        EXPECT_EQ(0, acceptor->ops->bind(acceptor, offer[1], (size_t)s));
        EXPECT_EQ(0, sender->ops->bind(sender, offer[0], (size_t)a));

        std::vector<int> fds;
        for (int tries = 0; tries < 1000 && fds.size() < want; tries++) {
            EXPECT_EQ(-EAGAIN, sender->ops->verify(sender)) << sender->err.reason[0];
            pollfd p = {listener, POLLIN, 0};
            poll(&p, 1, 10);
            fds = connected_to((const sockaddr *)&listen_addr);
        }
        EXPECT_EQ(want, fds.size());
        return fds;
    }

    /* Lets a sender on this device start to dial an address that may not exist. */
    void dial_only(int device, const char *peer)
    {
        pvn_lane_args args = {};
        uint8_t offer[2][1024];

        args.dev = &devices[device];
        args.traffic_class = -1;
        sockaddr_storage listen_addr;
        ASSERT_EQ(0, pvn_addr_parse(peer, &listen_addr, nullptr));
        args.listen_addr = &listen_addr;
        ASSERT_EQ(0, pvn_tcp_transport.lane_new(device, &args, &acceptor, &err)) << err.reason[0];
        sender_args = args;
        sender_args.sender = true;
        ASSERT_EQ(0, pvn_tcp_transport.lane_new(device, &sender_args, &sender, &err))
            << err.reason[0];
        const int a = acceptor->ops->offer(acceptor, offer[0], sizeof(offer[0]));
        ASSERT_EQ(0, sender->ops->bind(sender, offer[0], (size_t)a));
        sender->ops->verify(sender);
    }

    static std::vector<int> connected_to(const sockaddr *peer)
    {
        std::vector<int> fds;

        for (int fd = 0; fd < 256; fd++) {
            sockaddr_storage ss = {};
            socklen_t len = sizeof(ss);
            if (getpeername(fd, (sockaddr *)&ss, &len) == 0 && pvn_addr_len((sockaddr *)&ss) &&
                pvn_addr_same_host((sockaddr *)&ss, peer) &&
                pvn_addr_port((sockaddr *)&ss) == pvn_addr_port(peer))
                fds.push_back(fd);
        }
        return fds;
    }

    std::string described() const
    {
        char text[256];

        sender->ops->describe(sender, text, sizeof(text));
        return text;
    }

    void end()
    {
        sender->ops->close(sender);
        acceptor->ops->close(acceptor);
        if (listener >= 0)
            close(listener);
        listener = -1;
    }

    static int get(int fd, int level, int option)
    {
        int value = -1;
        socklen_t len = sizeof(value);

        EXPECT_EQ(0, getsockopt(fd, level, option, &value, &len));
        return value;
    }

    pvn_params params_;
    pvn_device devices[8] = {};
    char left_out[512] = "";
    pvn_err err = PVN_ERR_INIT;
    pvn_lane *sender = nullptr, *acceptor = nullptr;
    pvn_lane_args sender_args = {};
    int listener = -1;
};

TEST_F(TcpTransport, ScanFillsDevices)
{
    params({"NCCL_SOCKET_IFNAME==lo"});
    ASSERT_EQ(1, scan()) << err.reason[0];
    EXPECT_STREQ("lo", devices[0].name);
    EXPECT_STREQ("lo", devices[0].ifname);
    EXPECT_TRUE(pvn_addr_is_loopback((sockaddr *)&devices[0].addr));
    EXPECT_EQ(10000, devices[0].speed_mbps);
    EXPECT_FALSE(devices[0].speed_known);
    EXPECT_STREQ("", devices[0].pci_path);
    EXPECT_LT(0, devices[0].max_comms);
    EXPECT_NE(nullptr, strstr(devices[0].why, "named by NCCL_SOCKET_IFNAME"));
}

TEST_F(TcpTransport, ScanRefusesANameThatNothingHas)
{
    params({"NCCL_SOCKET_IFNAME=nosuchif"});
    EXPECT_EQ(-ENODEV, scan());
    EXPECT_NE(nullptr, strstr(err.reason[0], "NCCL_SOCKET_IFNAME=nosuchif; there are: lo"))
        << err.reason[0];
}

TEST_F(TcpTransport, ScanTakesNoMoreThanThereIsRoomFor)
{
    const std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(pvn_test::sh(
            "for i in $(seq 12); do ip link add v$i type veth peer name p$i; "
            "ip addr add 10.$i.0.1/24 dev v$i; ip link set v$i up; ip link set p$i up; done"));
        ASSERT_TRUE(pvn_test::links_run("v1 v2 v3 v4 v5 v6 v7 v8 v9 v10 v11 v12"));
        params({});
        EXPECT_EQ(8, scan());
        EXPECT_NE(nullptr, strstr(left_out, "v9 (too many)")) << left_out;
        EXPECT_NE(devices[0].guid, devices[1].guid);
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

TEST_F(TcpTransport, DialledSocketsHaveTheRequestedOptions)
{
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_STREAMS=3", "NCCL_PVRDMA_TCP_CC=reno",
            "NCCL_PVRDMA_TCP_NOTSENT_LOWAT=77777", "NCCL_PVRDMA_TCP_SNDBUF=100000",
            "NCCL_PVRDMA_KEEPALIVE_IDLE=7s", "NCCL_PVRDMA_TCP_USER_TIMEOUT=9s"});
    ASSERT_EQ(1, scan());
    for (const int fd : dialled(3)) {
        char cc[16] = "";
        socklen_t len = sizeof(cc);
        EXPECT_EQ(0, getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, &len));
        EXPECT_STREQ("reno", cc);
        EXPECT_EQ(77777, get(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT));
        EXPECT_EQ(200000, get(fd, SOL_SOCKET, SO_SNDBUF));
        EXPECT_EQ(7, get(fd, IPPROTO_TCP, TCP_KEEPIDLE));
        EXPECT_EQ(0, get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT)) << "closed windows have no limit";
        EXPECT_EQ(1, get(fd, IPPROTO_TCP, TCP_NODELAY));
    }
    end();
}

TEST_F(TcpTransport, OneStreamOnLoopbackWhereItIsPacedToo)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool allowed = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0;

    close(fd);
    if (!allowed)
        GTEST_SKIP() << "this kernel does not allow bbr";
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_CC=bbr"});
    ASSERT_EQ(1, scan());
    EXPECT_EQ(1u, dialled(1).size());
    EXPECT_EQ("tcp on lo, 1 stream, chunks of 4194304 bytes", described())
        << "bbr is slower without copies";
    end();
}

// A route's congestion control takes effect when a socket is connected, not before.
TEST_F(TcpTransport, TheRoutesCongestionControlCounts)
{
    const struct {
        const char *system, *route, *lane;
    } rows[] = {
        {"reno", "bbr", "tcp on lo, 1 stream, chunks of 4194304 bytes"},
        {"bbr", "reno",
         "tcp on lo, 1 stream, chunks of 4194304 bytes, zero-copy from 262144 bytes on (on trial)"},
    };
    std::string skip;
    const std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(pvn_test::sh("ip link set lo up; ip addr add 10.9.0.1/32 dev lo"));
        for (const auto &row : rows) {
            SCOPED_TRACE(row.route);
            if (!pvn_test::sh(std::string("echo ") + row.system +
                              " >/proc/sys/net/ipv4/tcp_congestion_control && ip route change "
                              "local 10.9.0.1 dev lo table local congctl " +
                              row.route)) {
                skip = std::string("this kernel has no ") + row.system + " beside " + row.route;
                return;
            }
            params({"NCCL_SOCKET_IFNAME==lo"});
            ASSERT_EQ(1, scan());
            ASSERT_EQ(0, pvn_addr_parse("10.9.0.1:0", &devices[0].addr, nullptr));
            dialled(1);
            EXPECT_EQ(row.lane, described());
            end();
        }
    });
    if (!why.empty() || !skip.empty())
        GTEST_SKIP() << why << skip;
}

TEST_F(TcpTransport, LoneStreamOnLoopbackHasTheLimitOfUnsentBytes)
{
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_CC=reno"});
    ASSERT_EQ(1, scan());
    for (const int fd : dialled(1))
        EXPECT_EQ(256 << 10, get(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT));
    end();
}

TEST_F(TcpTransport, SizesOfChunksAndZeroCopy)
{
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_CC=reno"});
    ASSERT_EQ(1, scan());
    dialled(1);
    EXPECT_EQ(
        "tcp on lo, 1 stream, chunks of 4194304 bytes, zero-copy from 262144 bytes on (on trial)",
        described());
    end();
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_CC=reno", "NCCL_PVRDMA_TCP_STREAMS=2",
            "NCCL_PVRDMA_TCP_ZEROCOPY_MIN=0"});
    ASSERT_EQ(1, scan());
    dialled(2);
    EXPECT_EQ("tcp on lo, 2 streams, chunks of 524288 bytes", described());
    end();
    // No line of NCCL's protocol LL128 is in two chunks.
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_CC=reno", "NCCL_PVRDMA_TCP_STREAMS=2",
            "NCCL_PVRDMA_TCP_ZEROCOPY_MIN=0", "NCCL_PVRDMA_TCP_CHUNK=5000"});
    ASSERT_EQ(1, scan());
    dialled(2);
    EXPECT_EQ("tcp on lo, 2 streams, chunks of 4992 bytes", described());
    end();
    // A receiver may report shorter chunks before their data are acknowledged, so 8192 is the least.
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_CC=reno", "NCCL_PVRDMA_TCP_ZEROCOPY_MIN=1"});
    ASSERT_EQ(1, scan());
    dialled(1);
    EXPECT_EQ(
        "tcp on lo, 1 stream, chunks of 4194304 bytes, zero-copy from 8192 bytes on (on trial)",
        described());
    end();
}

TEST_F(TcpTransport, ReceiveBufferIsSetBeforeListening)
{
    params({"NCCL_SOCKET_IFNAME==lo", "NCCL_PVRDMA_TCP_STREAMS=1", "NCCL_PVRDMA_TCP_RCVBUF=50000"});
    ASSERT_EQ(1, scan());
    dialled(1);
    sockaddr_storage peer;
    const int fd = pvn_sock_accept(listener, &peer, &err);
    ASSERT_LE(0, fd);
    EXPECT_EQ(100000, get(fd, SOL_SOCKET, SO_RCVBUF));
    close(fd);
    end();
}

/* This process's sockets that are bound to an interface. */
std::vector<std::string> tied()
{
    std::vector<std::string> names;

    for (int fd = 0; fd < 256; fd++) {
        char name[IF_NAMESIZE] = "";
        socklen_t len = sizeof(name);
        if (getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len) == 0 && *name)
            names.push_back(name);
    }
    return names;
}

/* One of two interfaces in a network is named, but routing sends everything by the other one. */
TEST_F(TcpTransport, TheNamedInterfaceCarriesTheDataOrAWarningSaysNot)
{
    const std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(
            pvn_test::sh("for i in a b; do ip link add ${i}0 type veth peer name ${i}1; "
                         "ip link set ${i}0 up; ip link set ${i}1 up; done; ip link set lo up; "
                         "ip addr add 10.7.0.1/24 dev a0; ip addr add 10.7.0.2/24 dev b0"));
        ASSERT_TRUE(pvn_test::links_run("a0 b0"));
        params({"NCCL_SOCKET_IFNAME==b0", "NCCL_PVRDMA_TCP_STREAMS=1"});
        ASSERT_EQ(1, scan()) << err.reason[0];
        std::vector<std::string> lines;
        pvn_log_set_capture(
            [](void *arg, pvn_log_level level, unsigned long, const char *, int, const char *text) {
                if (level == PVN_LOG_WARN)
                    static_cast<std::vector<std::string> *>(arg)->push_back(text);
            },
            &lines);
        dial_only(0, "10.7.0.9:4000");
        end();
        EXPECT_TRUE(tied().empty());
        ASSERT_EQ(1u, lines.size());
        EXPECT_EQ(0u, lines[0].find("b0, which NCCL_SOCKET_IFNAME names, does not carry the data: "
                                    "packets to 10.7.0.9 leave by a0"))
            << lines[0];
        EXPECT_NE(std::string::npos, lines[0].find("arp_ignore=1"));
        ASSERT_TRUE(pvn_test::sh("echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore"));
        dial_only(0, "10.7.0.9:4000");
        EXPECT_EQ(std::vector<std::string>{"b0"}, tied());
        end();
        pvn_log_set_capture(nullptr, nullptr);
        EXPECT_EQ(1u, lines.size());
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

/* If no other address can be used, the plugin waits for an IPv6 address whose duplicate check is
 * running. */
TEST_F(TcpTransport, TentativeAddressesAreWaitedFor)
{
    const std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(pvn_test::sh(
            "ip link add a0 type veth peer name a1; ip link set lo up; "
            "ip link set a1 addrgenmode none; ip link set a1 up; ip link set a0 up; ip addr add fd00::1/64 dev a0"));
        ASSERT_TRUE(pvn_test::links_run("a0"));
        params({"NCCL_SOCKET_IFNAME="});
        ASSERT_EQ(1, scan()) << err.reason[0];
        EXPECT_STREQ("a0", devices[0].ifname);
        EXPECT_EQ(AF_INET6, devices[0].addr.ss_family);
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

/* A link gets its carrier a little after it was switched on. */
TEST_F(TcpTransport, ALinkThatComesUpIsWaitedFor)
{
    const std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(
            pvn_test::sh("ip link add a0 type veth peer name a1; ip link set lo up; "
                         "ip link set a0 addrgenmode none; ip link set a1 addrgenmode none; "
                         "ip addr add 10.7.0.1/24 dev a0; ip link set a0 up"));
        ASSERT_TRUE(pvn_test::links_run("a0", false));
        for (const char *names : {"NCCL_SOCKET_IFNAME=", "NCCL_SOCKET_IFNAME=a0"}) {
            params({names});
            ASSERT_TRUE(pvn_test::sh("(sleep 0.3; ip link set a1 up) &"));
            EXPECT_EQ(1, scan()) << err.reason[0];
            EXPECT_STREQ("a0", devices[0].ifname) << names;
            ASSERT_TRUE(pvn_test::links_run("a0"));
            ASSERT_TRUE(pvn_test::sh("ip link set a1 down"));
            ASSERT_TRUE(pvn_test::links_run("a0", false));
        }
        // The wait has a limit. If loopback is named, there is no wait.
        params({"NCCL_SOCKET_IFNAME="});
        EXPECT_EQ(1, scan());
        EXPECT_STREQ("lo", devices[0].ifname);
        params({"NCCL_SOCKET_IFNAME=lo"});
        EXPECT_EQ(1, scan());
        EXPECT_STREQ("lo", devices[0].ifname);
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

TEST_F(TcpTransport, LoopbackBesideAnInterfaceThatIsUpIsAWarning)
{
    const std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(pvn_test::sh(
            "ip link add a0 type veth peer name a1; ip link set lo up; "
            "ip link set a1 addrgenmode none; ip link set a1 up; ip link set a0 up; ip addr add 10.7.0.1/24 dev a0"));
        ASSERT_TRUE(pvn_test::links_run("a0"));
        std::vector<std::string> lines;
        pvn_log_set_capture(
            [](void *arg, pvn_log_level level, unsigned long, const char *, int, const char *text) {
                if (level == PVN_LOG_WARN)
                    static_cast<std::vector<std::string> *>(arg)->push_back(text);
            },
            &lines);
        params({"NCCL_SOCKET_IFNAME=^a0,^b0"});
        ASSERT_EQ(1, scan()) << err.reason[0];
        pvn_log_set_capture(nullptr, nullptr);
        EXPECT_STREQ("lo", devices[0].ifname);
        ASSERT_EQ(2u, lines.size());
        EXPECT_NE(std::string::npos, lines[0].find("Probably meant: ^a0,b0")) << lines[0];
        EXPECT_EQ(0u,
                  lines[1].find("only loopback is used, so no other machine can be reached; not "
                                "used: a1 (no address), a0 (excluded by NCCL_SOCKET_IFNAME)"))
            << lines[1];
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

/* Somebody gave the interface an address, so the job was probably to use it. */
TEST_F(TcpTransport, LoopbackBesideAnAddressThatIsDownIsAWarning)
{
    struct {
        const char *links;
        std::string want; // "": no warning
    } const cases[] = {
        {"ip link add a0 type veth peer name a1; ip addr add 10.7.0.1/24 dev a0",
         "a1 (down), a0 (down)"},
        {"ip link add a0 type veth peer name a1; ip addr add 10.7.0.1/24 dev a0; ip link set a0 up",
         "a1 (down), a0 (no link)"},
        {"true", ""},
        {"ip link add a0 type veth peer name a1", ""}, // without an address
        {"ip link add a0 type bridge; ip addr add 172.17.0.1/16 dev a0", ""},
    };
    for (const auto &c : cases) {
        std::vector<std::string> lines;
        const std::string why = pvn_test::in_netns([&] {
            ASSERT_TRUE(pvn_test::sh("ip link set lo up"));
            ASSERT_TRUE(pvn_test::sh(c.links));
            pvn_log_set_capture(
                [](void *arg, pvn_log_level level, unsigned long, const char *, int,
                   const char *text) {
                    if (level == PVN_LOG_WARN)
                        static_cast<std::vector<std::string> *>(arg)->push_back(text);
                },
                &lines);
            params({"NCCL_SOCKET_IFNAME="});
            EXPECT_EQ(1, scan()) << err.reason[0];
            pvn_log_set_capture(nullptr, nullptr);
            EXPECT_STREQ("lo", devices[0].ifname);
        });
        if (!why.empty())
            GTEST_SKIP() << why;
        ASSERT_EQ(c.want.empty() ? 0u : 1u, lines.size()) << c.links;
        const std::string want =
            "only loopback is used, so no other machine can be reached; not used: ";
        EXPECT_EQ(c.want.empty() ? "" : want + c.want, lines.empty() ? "" : lines[0]);
    }
}

/* Two interfaces in one network: routing would send everything by the first one. */
TEST_F(TcpTransport, SharedNetworkIsSteered)
{
    const std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(pvn_test::sh(
            "for i in a b; do ip link add ${i}0 type veth peer name ${i}1; "
            "ip link set ${i}0 up; ip link set ${i}1 up; done; ip link set lo up; "
            "ip addr add 10.7.0.1/24 dev a0; ip addr add 10.7.0.2/24 dev b0; "
            "ip link add c0 type veth peer name c1; ip link set c0 up; ip link set c1 up; "
            "ip addr add 10.8.0.1/24 dev c0"));
        ASSERT_TRUE(pvn_test::links_run("a0 b0 c0"));
        params({"NCCL_SOCKET_IFNAME==a0,b0,c0", "NCCL_PVRDMA_TCP_STREAMS=1"});
        ASSERT_EQ(3, scan()) << err.reason[0];
        EXPECT_NE(nullptr, strstr(devices[1].why, "same network as a0"));
        const struct {
            int device;
            const char *peer;
            std::vector<std::string> want;
        } cases[] = {
            {0, "10.7.0.9:4000", {}},     /* the kernel takes that interface by itself */
            {1, "10.7.0.9:4000", {"b0"}}, /* a neighbour */
            {1, "10.8.0.9:4000", {}},     /* an unknown network: left to the routing table */
            {1, "10.7.0.1:4000", {}},     /* this machine itself */
            {2, "10.8.0.9:4000", {}},
        };
        /* If any interface answers ARP for any address, binding would cut the path back. */
        std::vector<std::string> lines;
        pvn_log_set_capture(
            [](void *arg, pvn_log_level, unsigned long, const char *, int, const char *text) {
                static_cast<std::vector<std::string> *>(arg)->push_back(text);
            },
            &lines);
        dial_only(1, "10.7.0.9:4000");
        EXPECT_TRUE(tied().empty());
        end();
        pvn_log_set_capture(nullptr, nullptr);
        ASSERT_EQ(1u, lines.size());
        EXPECT_EQ(0u, lines[0].find("b0: packets to 10.7.0.9 leave by a0")) << lines[0];
        EXPECT_NE(std::string::npos, lines[0].find("arp_ignore=1"));

        ASSERT_TRUE(pvn_test::sh("echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore"));
        for (const auto &c : cases) {
            SCOPED_TRACE(std::string(devices[c.device].name) + " to " + c.peer);
            dial_only(c.device, c.peer);
            EXPECT_EQ(c.want, tied());
            end();
        }
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

} // namespace
