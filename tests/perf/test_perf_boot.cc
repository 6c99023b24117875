// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// How the ranks of pvn-perf find each other, and how the failure of one reaches the others.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tools/boot_tcp.h"

namespace
{

int FreePort()
{
    sockaddr_in sa{};
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&sa), sizeof(sa)), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr *>(&sa), &len), 0);
    close(fd);
    return ntohs(sa.sin_port);
}

int Dial(int port)
{
    sockaddr_in sa{};
    int fd = -1;

    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons(static_cast<uint16_t>(port));
    for (int i = 0; i < 200; i++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, reinterpret_cast<sockaddr *>(&sa), sizeof(sa)) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    return -1;
}

pvn_boot_tcp Meeting(int rank, int nranks, int port, double timeout, uint64_t token = 1)
{
    pvn_boot_tcp t{};

    t.rank = rank;
    t.nranks = nranks;
    t.master = "127.0.0.1";
    t.port = port;
    t.token = token;
    t.meet_timeout = timeout;
    t.timeout = timeout;
    return t;
}

TEST(MeetingOverTcp, ConnectionsOfOthersDoNotDisturb)
{
    const int n = 4, port = FreePort();
    std::vector<std::thread> ranks;
    std::vector<int> rc(n, -1), sum(n, 0);

    // A scanner that says nothing, one that leaves at once, and one that sends noise.
    ranks.emplace_back([&] {
        int silent = Dial(port);
        close(Dial(port));
        int noise = Dial(port);
        char junk[64];
        memset(junk, 'x', sizeof(junk));
        (void)!write(noise, junk, sizeof(junk));
        usleep(100000);
        close(noise);
        usleep(300000);
        close(silent);
    });
    for (int i = 0; i < n; i++) {
        ranks.emplace_back([&, i] {
            pvn_boot b;
            char why[512];
            auto t = Meeting(i, n, port, 20);
            int all[n];

            usleep(static_cast<useconds_t>(i == 0 ? 0 : 50000 * i));
            rc[i] = pvn_boot_tcp_meet(&b, &t, why, sizeof(why));
            ASSERT_EQ(rc[i], 0) << why;
            int mine = 10 + i;
            ASSERT_EQ(pvn_boot_allgather(&b, &mine, all, sizeof(mine)), 0) << b.why;
            for (int v : all)
                sum[i] += v;
            pvn_boot_close(&b);
        });
    }
    for (auto &t : ranks)
        t.join();
    EXPECT_EQ(sum, std::vector<int>(n, 10 + 11 + 12 + 13));
}

TEST(MeetingOverTcp, MissingRanksAreNamed)
{
    pvn_boot b;
    char why[512];
    auto t = Meeting(0, 3, FreePort(), 0.3);

    EXPECT_EQ(pvn_boot_tcp_meet(&b, &t, why, sizeof(why)), -ETIMEDOUT);
    EXPECT_NE(strstr(why, "2 of 3 ranks had not reached rank 0"), nullptr) << why;
    EXPECT_NE(strstr(why, "1, 2"), nullptr) << why;
    auto u = Meeting(1, 3, t.port, 0.3);
    EXPECT_EQ(pvn_boot_tcp_meet(&b, &u, why, sizeof(why)), -ETIMEDOUT);
    EXPECT_NE(strstr(why, "rank 1 could not reach rank 0"), nullptr) << why;
    u.master = "host.invalid";
    EXPECT_EQ(pvn_boot_tcp_meet(&b, &u, why, sizeof(why)), -EHOSTUNREACH);
    EXPECT_NE(strstr(why, "host.invalid"), nullptr) << why;
}

TEST(MeetingOverTcp, OtherJobsAndDoublesAreTurnedAway)
{
    const int port = FreePort();
    char why0[512] = "", why1[512] = "", why2[512] = "";
    pvn_boot b0{}, b1{}, b2{};
    int rc0 = -1;

    std::thread host([&] {
        auto t = Meeting(0, 3, port, 2);
        rc0 = pvn_boot_tcp_meet(&b0, &t, why0, sizeof(why0));
    });
    auto other = Meeting(1, 3, port, 5, 99);
    EXPECT_EQ(pvn_boot_tcp_meet(&b2, &other, why2, sizeof(why2)), -EPERM);
    EXPECT_NE(strstr(why2, "another job"), nullptr) << why2;
    auto one = Meeting(1, 3, port, 5);
    ASSERT_EQ(pvn_boot_tcp_meet(&b1, &one, why1, sizeof(why1)), 0) << why1;
    EXPECT_EQ(pvn_boot_tcp_meet(&b2, &one, why2, sizeof(why2)), -EPERM);
    EXPECT_NE(strstr(why2, "rank 1 has already connected"), nullptr) << why2;
    host.join();
    EXPECT_EQ(rc0, -ETIMEDOUT) << "rank 2 never came";
    EXPECT_NE(strstr(why0, ": 2"), nullptr) << why0;
    pvn_boot_close(&b1);
}

TEST(Boot, ReasonsAndDeathsReachTheOthers)
{
    int *pairs;
    char why[256];
    pvn_boot b[3];

    // All three ranks in one process: each takes its ends by hand.
    ASSERT_EQ(pvn_boot_pairs(3, &pairs, why, sizeof(why)), 0);
    int fd0[3] = {-1, pairs[2], pairs[4]}, fd1[1] = {pairs[3]}, fd2[1] = {pairs[5]};
    for (int i = 0; i < 3; i++) {
        b[i] = pvn_boot{};
        b[i].rank = i;
        b[i].nranks = 3;
        b[i].timeout = 0.2;
        b[i].fd = i == 0 ? fd0 : i == 1 ? fd1 : fd2;
    }
    EXPECT_EQ(pvn_boot_check(&b[0]), 0);
    pvn_boot_abort(&b[1], "rank 1: no light");
    EXPECT_EQ(pvn_boot_check(&b[0]), -ECONNABORTED);
    EXPECT_STREQ(b[0].why, "rank 1: no light");
    EXPECT_TRUE(b[0].heard);
    close(fd2[0]);
    b[0].heard = 0;
    EXPECT_EQ(pvn_boot_barrier(&b[0]), -ECONNABORTED);
    EXPECT_NE(strstr(b[0].why, "rank 1 did not answer"), nullptr) << b[0].why;
    EXPECT_EQ(pvn_boot_check(&b[0]), -ECONNABORTED);
    EXPECT_NE(strstr(b[0].why, "rank 2 ended without giving a reason"), nullptr) << b[0].why;
    for (int fd : {fd0[1], fd0[2], fd1[0]})
        close(fd);
    free(pairs);
}

} // namespace
