// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "base/log.h"
#include "base/param.h"
#include "net-tcp/sockopt.h"
}

namespace
{

class SockOpt : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        ASSERT_LE(0, fd);
        pvn_log_set_capture(
            [](void *arg, pvn_log_level, unsigned long, const char *, int, const char *text) {
                static_cast<SockOpt *>(arg)->warnings.push_back(text);
            },
            this);
    }

    void TearDown() override
    {
        pvn_log_set_capture(nullptr, nullptr);
        close(fd);
    }

    void apply(std::vector<std::string> env)
    {
        std::vector<char *> envp;

        for (auto &e : env)
            envp.push_back(&e[0]);
        envp.push_back(nullptr);
        ASSERT_EQ(0, pvn_params_read(&params, envp.data(), nullptr));
        pvn_tcp_sockopt_data(fd, &params);
    }

    int get(int level, int option)
    {
        int value = -1;
        socklen_t len = sizeof(value);

        EXPECT_EQ(0, getsockopt(fd, level, option, &value, &len));
        return value;
    }

    std::string cc()
    {
        char buf[32];

        return pvn_tcp_sockopt_cc(fd, buf, sizeof(buf));
    }

    int fd = -1;
    pvn_params params;
    std::vector<std::string> warnings;
};

TEST_F(SockOpt, DefaultsLeaveTheKernelsBuffersAndCongestionControl)
{
    const int sndbuf = get(SOL_SOCKET, SO_SNDBUF), rcvbuf = get(SOL_SOCKET, SO_RCVBUF);
    const std::string before = cc();

    apply({});
    EXPECT_EQ(sndbuf, get(SOL_SOCKET, SO_SNDBUF));
    EXPECT_EQ(rcvbuf, get(SOL_SOCKET, SO_RCVBUF));
    EXPECT_EQ(before, cc());
    EXPECT_EQ((int)params.tcp_notsent_lowat, get(IPPROTO_TCP, TCP_NOTSENT_LOWAT));
    EXPECT_TRUE(warnings.empty());
}

TEST_F(SockOpt, ZeroLeavesTheKernelsLimitOfUnsentBytes)
{
    const int before = get(IPPROTO_TCP, TCP_NOTSENT_LOWAT);

    apply({"NCCL_PVRDMA_TCP_NOTSENT_LOWAT=0"});
    EXPECT_EQ(before, get(IPPROTO_TCP, TCP_NOTSENT_LOWAT));
}

TEST_F(SockOpt, ParametersAreApplied)
{
    const int sndbuf = get(SOL_SOCKET, SO_SNDBUF), rcvbuf = get(SOL_SOCKET, SO_RCVBUF);

    apply({"NCCL_PVRDMA_TCP_SNDBUF=64K", "NCCL_PVRDMA_TCP_RCVBUF=32K",
           "NCCL_PVRDMA_TCP_NOTSENT_LOWAT=100000"});
    EXPECT_EQ(100000, get(IPPROTO_TCP, TCP_NOTSENT_LOWAT));
    /* The kernel doubles the value for its own book-keeping (socket(7)). */
    EXPECT_EQ(2 * 65536, get(SOL_SOCKET, SO_SNDBUF)) << "was " << sndbuf;
    EXPECT_EQ(2 * 32768, get(SOL_SOCKET, SO_RCVBUF)) << "was " << rcvbuf;
}

TEST_F(SockOpt, AllowedCongestionControlIsSet)
{
    apply({"NCCL_PVRDMA_TCP_CC=reno"}); /* always available, and always allowed */
    EXPECT_EQ("reno", cc());
    EXPECT_TRUE(warnings.empty());
}

TEST_F(SockOpt, RefusedCongestionControlIsSaidOnceAndDoneWithout)
{
    const std::string before = cc();
    std::string allowed;
    std::ifstream f("/proc/sys/net/ipv4/tcp_allowed_congestion_control");

    std::getline(f, allowed);
    apply({"NCCL_PVRDMA_TCP_CC=nosuchcc"});
    apply({"NCCL_PVRDMA_TCP_CC=nosuchcc"});
    EXPECT_EQ(before, cc());
    ASSERT_EQ(1u, warnings.size());
    EXPECT_EQ(
        0u,
        warnings[0].find(
            "NCCL_PVRDMA_TCP_CC=nosuchcc is refused by the kernel (no such congestion control)"));
    EXPECT_NE(std::string::npos,
              warnings[0].find("it allows: " + (allowed.empty() ? "(not" : allowed)));
    apply({"NCCL_PVRDMA_TCP_CC=another"});
    EXPECT_EQ(2u, warnings.size());
}

TEST_F(SockOpt, AnswersHaveRoom)
{
    int bytes = 1;
    socklen_t len = sizeof(bytes);

    ASSERT_EQ(0, setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)));
    pvn_tcp_sockopt_answers(fd);
    ASSERT_EQ(0, getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len));
    EXPECT_GE(bytes, 64 * 2560);
}

TEST_F(SockOpt, ASocketIsBoundToItsDevice)
{
    const int rc = pvn_tcp_sockopt_bind_device(fd, "lo");

    if (rc == -EPERM)
        GTEST_SKIP() << "SO_BINDTODEVICE needs Linux 5.7 or CAP_NET_RAW";
    ASSERT_EQ(0, rc);
    char name[16] = "";
    socklen_t len = sizeof(name);
    ASSERT_EQ(0, getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len));
    EXPECT_STREQ("lo", name);

    const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(-ENODEV, pvn_tcp_sockopt_bind_device(other, "nosuchif"));
    close(other);
}

TEST_F(SockOpt, ClosedDescriptorHarmsNobody)
{
    ASSERT_EQ(0, pvn_params_read(&params, nullptr, nullptr));
    pvn_tcp_sockopt_data(-1, &params);
    char buf[32];
    EXPECT_STREQ("?", pvn_tcp_sockopt_cc(-1, buf, sizeof(buf)));
    EXPECT_STREQ("?", pvn_tcp_sockopt_cc(fd, buf, 1));
    EXPECT_EQ(-EBADF, pvn_tcp_sockopt_bind_device(-1, "lo"));
}

} // namespace
