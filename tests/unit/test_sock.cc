// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The sockets of connection set-up: their options, and the errors when something is refused. */
#include <gtest/gtest.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

extern "C" {
#include "base/addr.h"
#include "base/param.h"
#include "connect/sock.h"
}

namespace
{

sockaddr_storage address(const std::string &text)
{
    sockaddr_storage ss;

    EXPECT_EQ(0, pvn_addr_parse(text.c_str(), &ss, nullptr)) << text;
    return ss;
}

sockaddr *sa(sockaddr_storage &ss)
{
    return reinterpret_cast<sockaddr *>(&ss);
}

std::string text_of(const pvn_err &err)
{
    char buf[PVN_ERR_TEXT_LEN];

    pvn_err_format(&err, buf, sizeof(buf));
    return buf;
}

class Sock : public ::testing::TestWithParam<const char *>
{
  protected:
    void SetUp() override
    {
        here = address(GetParam());
        listen();
        if (here.ss_family == AF_INET6 && (listener == -EADDRNOTAVAIL || listener == -EAFNOSUPPORT))
            GTEST_SKIP() << "no IPv6 here";
        ASSERT_LE(0, listener) << text_of(err);
        ASSERT_NE(0, pvn_addr_port(sa(listen_addr)));
    }

    void TearDown() override
    {
        for (int fd : fds)
            close(fd);
        if (listener >= 0)
            close(listener);
        pvn_params_override(nullptr);
    }

    void listen()
    {
        listen_addr = here;
        listener = pvn_sock_listen(&listen_addr, pvn_addr_len(sa(here)), &err);
    }

    // Sets parameters for later sockets. They also apply to a new listener.
    void with_params(std::vector<std::string> vars)
    {
        std::vector<char *> envp;

        for (auto &v : vars)
            envp.push_back(&v[0]);
        envp.push_back(nullptr);
        ASSERT_EQ(0, pvn_params_read(&params, envp.data(), nullptr));
        pvn_params_override(&params);
        close(listener);
        listen();
        ASSERT_LE(0, listener) << text_of(err);
    }

    int dial(int traffic_class = -1)
    {
        const int fd = pvn_sock_dial(&here, pvn_addr_len(sa(here)), &listen_addr,
                                     pvn_addr_len(sa(listen_addr)), traffic_class, &err);

        EXPECT_LE(0, fd) << text_of(err);
        fds.push_back(fd);
        return fd;
    }

    int accept_one()
    {
        pollfd p = {listener, POLLIN, 0};
        sockaddr_storage peer;

        EXPECT_EQ(1, poll(&p, 1, 20000));
        const int fd = pvn_sock_accept(listener, &peer, &err);
        EXPECT_LE(0, fd) << text_of(err);
        EXPECT_TRUE(pvn_addr_same_host(sa(peer), sa(here))) << "the source address was not bound";
        fds.push_back(fd);
        return fd;
    }

    static int outcome(int fd)
    {
        pollfd p = {fd, POLLOUT, 0};

        poll(&p, 1, 20000);
        return pvn_sock_connected(fd);
    }

    static int get(int fd, int level, int option)
    {
        int value = -1;
        socklen_t len = sizeof(value);

        EXPECT_EQ(0, getsockopt(fd, level, option, &value, &len));
        return value;
    }

    pvn_params params;
    sockaddr_storage here, listen_addr;
    int listener = -1;
    std::vector<int> fds;
    pvn_err err = PVN_ERR_INIT;
};

TEST_P(Sock, EverySocketIsNonBlockingAndClosedOnExec)
{
    const int client = dial();
    ASSERT_EQ(0, outcome(client));
    const int server = accept_one();

    for (const int fd : {listener, client, server}) {
        EXPECT_TRUE(fcntl(fd, F_GETFL) & O_NONBLOCK);
        EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    sockaddr_storage peer;
    EXPECT_EQ(-EAGAIN, pvn_sock_accept(listener, &peer, &err));
}

TEST_P(Sock, KeepaliveAndTimeoutsComeFromTheParameters)
{
    with_params({"NCCL_PVRDMA_KEEPALIVE_IDLE=1500ms", "NCCL_PVRDMA_KEEPALIVE_INTVL=3s",
                 "NCCL_PVRDMA_KEEPALIVE_CNT=4", "NCCL_PVRDMA_TCP_USER_TIMEOUT=2500ms"});
    const int fd = dial();
    EXPECT_EQ(2500, get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT)) << "while it is dialled";
    ASSERT_EQ(0, outcome(fd));
    // An accepted socket inherits all options from the listening one, so nobody sets them.
    for (const int end : {fd, accept_one()}) {
        EXPECT_EQ(1, get(end, SOL_SOCKET, SO_KEEPALIVE));
        EXPECT_EQ(2, get(end, IPPROTO_TCP, TCP_KEEPIDLE)) << "rounded up to whole seconds";
        EXPECT_EQ(3, get(end, IPPROTO_TCP, TCP_KEEPINTVL));
        EXPECT_EQ(4, get(end, IPPROTO_TCP, TCP_KEEPCNT));
        EXPECT_EQ(0, get(end, IPPROTO_TCP, TCP_USER_TIMEOUT)) << "closed windows have no limit";
        EXPECT_EQ(1, get(end, IPPROTO_TCP, TCP_NODELAY));
    }
}

TEST_P(Sock, KeepaliveCanBeSwitchedOff)
{
    with_params({"NCCL_PVRDMA_KEEPALIVE_IDLE=0", "NCCL_PVRDMA_TCP_USER_TIMEOUT=0"});
    const int fd = dial();
    EXPECT_EQ(0, get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT));
    ASSERT_EQ(0, outcome(fd));
    for (const int end : {fd, accept_one()})
        EXPECT_EQ(0, get(end, SOL_SOCKET, SO_KEEPALIVE));
}

TEST_P(Sock, TrafficClassIsSetBeforeTheFirstPacket)
{
    const bool v6 = here.ss_family == AF_INET6;
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, option = v6 ? IPV6_TCLASS : IP_TOS;

    EXPECT_EQ(0x68, get(dial(0x68), level, option));
    EXPECT_EQ(0, get(dial(0), level, option));
    EXPECT_EQ(0, get(dial(-1), level, option));
}

TEST_P(Sock, ClosedPortIsRefused)
{
    close(listener);
    listener = -1;
    const int fd = pvn_sock_dial(&here, pvn_addr_len(sa(here)), &listen_addr,
                                 pvn_addr_len(sa(listen_addr)), -1, &err);
    if (fd >= 0) {
        EXPECT_EQ(-ECONNREFUSED, outcome(fd));
        close(fd);
    } else {
        EXPECT_EQ(-ECONNREFUSED, fd);
    }
}

TEST_P(Sock, AddressOfAnotherMachineCannotBeBound)
{
    sockaddr_storage foreign = address(here.ss_family == AF_INET6 ? "2001:db8::77" : "192.0.2.77");
    char name[PVN_ADDR_TEXT_LEN];

    pvn_addr_format_host(sa(foreign), name, sizeof(name));
    EXPECT_EQ(-EADDRNOTAVAIL, pvn_sock_listen(&foreign, pvn_addr_len(sa(foreign)), &err));
    EXPECT_NE(std::string::npos, text_of(err).find(name)) << text_of(err);
    EXPECT_NE(std::string::npos, text_of(err).find("; try: ")) << text_of(err);
    EXPECT_EQ(-EADDRNOTAVAIL, pvn_sock_dial(&foreign, pvn_addr_len(sa(foreign)), &listen_addr,
                                            pvn_addr_len(sa(listen_addr)), -1, &err));
}

/* Runs `body` while the process has no free descriptor. The result says which check failed. */
int without_descriptors(const std::function<int()> &body)
{
    rlimit before = {};

    EXPECT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    const rlimit none = {0, before.rlim_max};
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
    const int failed = body();
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    return failed;
}

TEST_P(Sock, WithoutDescriptorsListeningSaysWhatToRaise)
{
    EXPECT_EQ(0, without_descriptors([&] {
                  sockaddr_storage ss = here;
                  if (pvn_sock_listen(&ss, pvn_addr_len(sa(here)), &err) != -EMFILE)
                      return 1;
                  return text_of(err).find("ulimit -n") == std::string::npos ? 2 : 0;
              }));
}

TEST_P(Sock, WithoutDescriptorsDiallingSaysWhatToRaise)
{
    EXPECT_EQ(0, without_descriptors([&] {
                  if (pvn_sock_dial(&here, pvn_addr_len(sa(here)), &listen_addr,
                                    pvn_addr_len(sa(listen_addr)), -1, &err) != -EMFILE)
                      return 1;
                  return text_of(err).find("ulimit -n") == std::string::npos ? 2 : 0;
              }));
}

TEST_P(Sock, WithoutDescriptorsAcceptingFailsAndTheConnectionWaits)
{
    ASSERT_EQ(0, outcome(dial()));
    pollfd p = {listener, POLLIN, 0};
    ASSERT_EQ(1, poll(&p, 1, 20000));
    EXPECT_EQ(0, without_descriptors([&] {
                  sockaddr_storage peer;
                  if (pvn_sock_accept(listener, &peer, &err) != -EMFILE)
                      return 1;
                  return text_of(err).find("ulimit -n") == std::string::npos ? 2 : 0;
              }));
    accept_one();
}

INSTANTIATE_TEST_SUITE_P(Families, Sock, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto &which) {
                             return std::string(strchr(which.param, '.') ? "ipv4" : "ipv6");
                         });

} // namespace
