// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Connections that cannot be made. The error is the one that the system gave for the last attempt;
// it is not the time limit's, which guesses that a firewall is to blame. Cases in which descriptors
// run out are in test_limits.cc.
#include "abi/nccl_side.h"
#include "support/netns.h"

#include <filesystem>
#include <fstream>

using namespace nccl;
using pvn_test::in_netns;
using pvn_test::links_run;
using pvn_test::sh;

namespace
{

struct Dial {
    const char *name;
    const char *networks; // of v0, which dials, and of v1, where the listener was
    const char *meanwhile;
    const char *error;
    const char *limit = "1s";
    const char *interfaces = "v0,v1";
    const char *hint = "";
    int from = 0; // the device that dials; the listener was on the other one
};

std::ostream &operator<<(std::ostream &o, const Dial &d)
{
    return o << d.name;
}

class FailedDial : public testing::TestWithParam<Dial>
{
};

TEST_P(FailedDial, EndsWithTheSystemsError)
{
    const Dial &c = GetParam();
    setenv("NCCL_PVRDMA_CONNECT_TIMEOUT", c.limit, 1);
    setenv("NCCL_SOCKET_IFNAME", c.interfaces, 1);
    Log::get().clear();
    std::string why = in_netns([&] {
        ASSERT_TRUE(sh("ip link set lo up && ip link add v0 type veth peer name w0 && "
                       "ip link add v1 type veth peer name w1 && ip link set v0 up && "
                       "ip link set w0 up && ip link set v1 up && ip link set w1 up"));
        ASSERT_TRUE(links_run("v0 v1"));
        ASSERT_TRUE(sh(c.networks));
        Net n(12);
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *lc = nullptr, *sc = nullptr;
        ncclResult_t rc = ncclSuccess;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, !c.from, handle, &lc));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
        ASSERT_TRUE(sh(c.meanwhile));
        Log::get().clear();
        EXPECT_TRUE(eventually(
            [&] {
                rc = pvn_netdrv_connect(n.d, n.ctx, c.from, handle, &sc);
                return rc != ncclSuccess || sc;
            },
            20));
        EXPECT_NE(ncclSuccess, rc);
    });
    unsetenv("NCCL_PVRDMA_CONNECT_TIMEOUT");
    unsetenv("NCCL_SOCKET_IFNAME");
    if (!why.empty())
        GTEST_SKIP() << why;
    std::string w = Log::get().warnings();
    EXPECT_NE(std::string::npos, w.find(c.error)) << w;
    EXPECT_NE(std::string::npos, w.find(c.hint)) << w;
    EXPECT_EQ(std::string::npos, w.find("firewall")) << w;
    EXPECT_EQ(std::string::npos, w.find("timed out")) << w;
}

constexpr const char *TWO = "ip addr add 10.9.0.1/24 dev v0 && ip addr add 10.8.0.1/24 dev v1";
INSTANTIATE_TEST_SUITE_P(
    Errors, FailedDial,
    testing::Values(Dial{"NoRoute", TWO, "ip link del v1", "Network is unreachable (errno 101)"},
                    Dial{"UnreachableRoute", TWO,
                         "ip link del v1 && ip route add unreachable 10.8.0.1",
                         "No route to host (errno 113)"},
                    Dial{"NobodyThere", TWO, "ip link del v1 && ip route add 10.8.0.1 dev v0",
                         "No route to host (errno 113)", "6s"},
                    Dial{"OwnAddressGone",
                         "ip addr add 10.9.0.1/16 dev v0 && ip addr add 10.9.1.1/32 dev v1",
                         "ip link del v1 && ip addr del 10.9.0.1/16 dev v0 && ip addr add "
                         "10.7.0.1/16 dev v0 && "
                         "ip route add 10.9.0.0/16 dev v0",
                         "Cannot assign requested address (errno 99)"},
                    Dial{"Refused", TWO, "true", "Connection refused (errno 111)", "6s"},
                    Dial{"LoopbackOfAnotherHost", "ip addr add 10.9.0.1/24 dev v0", "true",
                         "(errno 111); local", "6s", "v0,lo",
                         "likely: the peer offered its loopback address", 1}),
    [](const auto &i) { return std::string(i.param.name); });

// The contents of the statistics files. Texts are stored in them unchanged.
std::string statistics(const std::string &dir)
{
    std::string all;
    for (const auto &f : std::filesystem::directory_iterator(dir)) {
        std::ifstream in(f.path(), std::ios::binary);
        all.append(std::istreambuf_iterator<char>(in), {});
    }
    return all;
}

// Connects to the listener of an interface that has been removed since, until the plugin warns.
// Adds the statistics of that moment to the warning.
std::string warned_while_dialling(const char *meanwhile, std::string *stats)
{
    char dir[] = "/tmp/pvn-dial.XXXXXX";
    EXPECT_NE(nullptr, mkdtemp(dir));
    setenv("NCCL_PVRDMA_STALL_WARN", "600ms", 1);
    setenv("NCCL_PVRDMA_STATS_DIR", dir, 1);
    setenv("NCCL_SOCKET_IFNAME", "v0,v1", 1);
    std::string why = in_netns([&] {
        ASSERT_TRUE(sh("ip link set lo up && ip link add v0 type veth peer name w0 && "
                       "ip link add v1 type veth peer name w1 && ip link set v0 up && "
                       "ip link set w0 up && ip link set v1 up && ip link set w1 up"));
        ASSERT_TRUE(links_run("v0 v1"));
        ASSERT_TRUE(sh(TWO));
        Net n(12);
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *lc = nullptr, *sc = nullptr;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 1, handle, &lc));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
        ASSERT_TRUE(sh(meanwhile));
        Log::get().clear();
        EXPECT_TRUE(eventually(
            [&] {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc));
                return !Log::get().warnings().empty();
            },
            20));
        *stats = statistics(dir);
    });
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_PVRDMA_STATS_DIR");
    unsetenv("NCCL_PVRDMA_STALL_WARN");
    std::filesystem::remove_all(dir);
    return why;
}

TEST(Dialling, WarnsOfTheLastAttemptAndNotOfThePeersProcess)
{
    std::string stats;
    const std::string why = warned_while_dialling("ip link del v1", &stats);
    if (!why.empty())
        GTEST_SKIP() << why;
    const std::string w = Log::get().warnings();
    EXPECT_NE(std::string::npos,
              w.find("still connecting to the peer's listener after 1 s: the last attempt failed: "
                     "Network is unreachable (errno 101); likely: this node has no route"))
        << w;
    EXPECT_EQ(std::string::npos, w.find("the process there")) << w;
    EXPECT_NE(std::string::npos,
              stats.find("connecting to the peer's listener: the last attempt failed: Network is "
                         "unreachable (errno 101); likely: this node has no route"));
}

TEST(Dialling, WarnsThatNothingAnswers)
{
    std::string stats;
    const std::string why =
        warned_while_dialling("ip link del v1 && ip route add 10.8.0.1 dev v0", &stats);
    if (!why.empty())
        GTEST_SKIP() << why;
    const std::string w = Log::get().warnings();
    EXPECT_NE(std::string::npos,
              w.find("still connecting to the peer's listener after 1 s: nothing "
                     "has answered at that address; likely: packets"))
        << w;
}

} // namespace
