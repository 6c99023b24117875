// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the rendezvous of pvn-perf's ranks: how they find each other, and how the failure of one reaches the others.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/deadline.h"
#include "tools/boot_accept.h"
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
    for (Deadline wait; wait.left();) {
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
    t.release = "1.2.3";
    return t;
}

TEST(MeetingOverTcp, ConnectionsOfOthersDoNotDisturb)
{
    const int n = 4, port = FreePort();
    std::vector<std::thread> ranks;
    std::vector<int> rc(n, -1), sum(n, 0);

    // Port scanners: one that sends nothing, one that disconnects at once, and one that sends noise.
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

TEST(MeetingOverTcp, RanksOfOtherJobsAreTurnedAway)
{
    const int port = FreePort();
    char why0[512] = "", why1[512] = "", why2[512] = "";
    pvn_boot b0{}, b1{}, b2{};
    int rc0 = -1;

    std::thread host([&] {
        auto t = Meeting(0, 3, port, 2);
        t.job = 6;
        rc0 = pvn_boot_tcp_meet(&b0, &t, why0, sizeof(why0));
    });
    auto other = Meeting(1, 3, port, 5, 99);
    other.job = 7;
    EXPECT_EQ(pvn_boot_tcp_meet(&b2, &other, why2, sizeof(why2)), -EPERM);
    EXPECT_NE(strstr(why2, "another job"), nullptr) << why2;
    auto one = Meeting(1, 3, port, 5);
    one.job = 6;
    ASSERT_EQ(pvn_boot_tcp_meet(&b1, &one, why1, sizeof(why1)), 0) << why1;
    host.join();
    EXPECT_EQ(rc0, -ETIMEDOUT) << "rank 2 never came";
    EXPECT_NE(strstr(why0, ": 2; rank 1 on "), nullptr) << why0;
    EXPECT_NE(strstr(why0, "was refused: rank 0 is of another job"), nullptr) << why0;
    pvn_boot_close(&b1);
}

// Before the fix rank 0 waited a minute for a rank that it had refused.
TEST(MeetingOverTcp, ARefusedRankOfTheJobEndsTheMeeting)
{
    struct {
        int rank, nranks;
        uint64_t token;
        const char *reason, *release;
    } const wrong[] = {{2, 3, 99, "it has other options than rank 0", "1.2.3"},
                       {2, 3, 1, "it runs pvn-perf 1.2.2, rank 0 1.2.3", "1.2.2"},
                       {2, 4, 1, "it is one of 4 ranks, rank 0 one of 3", "1.2.3"},
                       {1, 3, 1, "rank 1 has already connected, on ", "1.2.3"}};
    char name[64] = "";

    gethostname(name, sizeof(name) - 1);
    for (auto &w : wrong) {
        const int port = FreePort();
        char why0[512] = "", why1[512] = "", why2[512] = "";
        pvn_boot b0{}, b1{}, b2{};
        int rc0 = -1;

        std::thread host([&] {
            auto t = Meeting(0, 3, port, 600);
            rc0 = pvn_boot_tcp_meet(&b0, &t, why0, sizeof(why0));
        });
        auto one = Meeting(1, 3, port, 600);
        ASSERT_EQ(pvn_boot_tcp_meet(&b1, &one, why1, sizeof(why1)), 0) << why1;
        auto t = Meeting(w.rank, w.nranks, port, 600, w.token);
        t.release = w.release;
        EXPECT_EQ(pvn_boot_tcp_meet(&b2, &t, why2, sizeof(why2)), -EPERM);
        EXPECT_NE(strstr(why2, w.reason), nullptr) << why2;
        host.join();
        EXPECT_EQ(rc0, -EPERM);
        std::string says = "rank " + std::to_string(w.rank) + " on " + name +
                           " (127.0.0.1) was refused: " + w.reason;
        EXPECT_NE(strstr(why0, says.c_str()), nullptr) << why0;
        // Rank 1, which had joined before, reports the reason as well.
        EXPECT_NE(pvn_boot_barrier(&b1), 0);
        EXPECT_NE(strstr(b1.why, says.c_str()), nullptr) << b1.why;
        pvn_boot_close(&b1);
    }
}

// Rank 0 refuses another version before its hello is complete.
TEST(MeetingOverTcp, AnotherVersionOfTheProgramIsRefusedAtOnce)
{
    const int port = FreePort();
    char why[512] = "";
    pvn_boot b{};
    int rc = -1;

    std::thread host([&] {
        auto t = Meeting(0, 2, port, 600);
        rc = pvn_boot_tcp_meet(&b, &t, why, sizeof(why));
    });
    uint64_t old[5] = {0x70766e68656c6c6full, 1 | (2ull << 32), 1, 1};
    int fd = Dial(port);
    ASSERT_EQ(write(fd, old, sizeof(old)), static_cast<ssize_t>(sizeof(old)));
    host.join();
    close(fd);
    EXPECT_EQ(rc, -EPERM);
    EXPECT_NE(strstr(why, "another version of pvn-perf"), nullptr) << why;
}

// The launcher restarts a rank whose first process connected and died.
TEST(MeetingOverTcp, ARankThatWasStartedAgainTakesItsSeat)
{
    const int port = FreePort();
    char why0[512] = "", why1[512] = "", why2[512] = "";
    pvn_boot b0{}, b1{}, b2{};
    int rc0 = -1;

    std::thread host([&] {
        auto t = Meeting(0, 3, port, 60);
        rc0 = pvn_boot_tcp_meet(&b0, &t, why0, sizeof(why0));
    });
    auto one = Meeting(1, 3, port, 60), two = Meeting(2, 3, port, 60);
    ASSERT_EQ(pvn_boot_tcp_meet(&b1, &one, why1, sizeof(why1)), 0) << why1;
    pvn_boot_close(&b1);
    ASSERT_EQ(pvn_boot_tcp_meet(&b1, &one, why1, sizeof(why1)), 0) << why1;
    ASSERT_EQ(pvn_boot_tcp_meet(&b2, &two, why2, sizeof(why2)), 0) << why2;
    host.join();
    EXPECT_EQ(rc0, 0) << why0;
    for (pvn_boot *b : {&b0, &b1, &b2})
        pvn_boot_close(b);
}

TEST(Boot, ReasonsAndDeathsReachTheOthers)
{
    int *pairs;
    char why[256];
    pvn_boot b[3];

    // All three ranks are in this process, so the test picks each rank's sockets itself.
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

// A message's first character is its length as a digit. '!' makes it invalid.
long Length(void *, const pvn_boot_newcomer *n)
{
    return n->got == 0 ? 1 : n->text[0] == '!' ? -1 : n->text[0] - '0';
}

void Enter(void *arg, pvn_boot_newcomer *n)
{
    auto *entered = static_cast<std::vector<std::pair<std::string, int>> *>(arg);

    entered->emplace_back(std::string(n->text, n->got), n->fd);
    n->fd = -1;
}

TEST(Accept, TakesWholeMessagesAndKeepsNoOther)
{
    std::vector<std::pair<std::string, int>> entered;
    const int port = FreePort();
    addrinfo hints{}, *ai = nullptr;
    pvn_boot_accept a{};
    char c;

    hints.ai_socktype = SOCK_STREAM;
    ASSERT_EQ(getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &ai), 0);
    a.lfd = pvn_boot_listen(ai);
    ASSERT_GE(a.lfd, 0);
    a.max = 2;
    a.length = Length;
    a.enter = Enter;
    a.arg = &entered;
    pvn_boot_accept_init(&a);
    auto passes = [&] {
        for (int i = 0; i < 6; i++)
            ASSERT_EQ(pvn_boot_accept_pass(&a, 0.01), 0);
    };
    int oldest = pvn_boot_dial(ai, pvn_now_s() + 5);
    passes();
    int slow = pvn_boot_dial(ai, pvn_now_s() + 5);
    ASSERT_EQ(write(slow, "4ab", 3), 3);
    passes();
    EXPECT_EQ(a.dropped, 0);
    int noise = pvn_boot_dial(ai, pvn_now_s() + 5);
    ASSERT_EQ(write(noise, "!", 1), 1);
    passes();
    EXPECT_EQ(a.dropped, 2) << "the oldest made room, and the noise is nobody's";
    EXPECT_EQ(recv(oldest, &c, 1, 0), 0);
    EXPECT_TRUE(entered.empty());
    ASSERT_EQ(write(slow, "c next", 6), 6);
    passes();
    ASSERT_EQ(entered.size(), 1u);
    EXPECT_EQ(entered[0].first, "4abc");
    EXPECT_EQ(recv(entered[0].second, &c, 1, 0), 1) << "what follows the message is left";
    EXPECT_EQ(c, ' ');
    for (int fd : {oldest, slow, noise, entered[0].second})
        close(fd);
    freeaddrinfo(ai);
    pvn_boot_accept_close(&a);
}

// A soft limit of open files, until the end of the scope.
class FileLimit
{
  public:
    explicit FileLimit(rlim_t files)
    {
        getrlimit(RLIMIT_NOFILE, &before);
        rlimit now{files, before.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
    }
    ~FileLimit()
    {
        setrlimit(RLIMIT_NOFILE, &before);
    }

  private:
    rlimit before{};
};

TEST(MeetingOverTcp, NeedsDescriptorsForItsRanksAlone)
{
    FileLimit few(256);
    const int port = FreePort();
    pvn_boot b0, b1;
    char why0[512] = "", why1[512] = "";
    int rc1 = -1;
    std::thread other([&] {
        auto t = Meeting(1, 2, port, 60);
        rc1 = pvn_boot_tcp_meet(&b1, &t, why1, sizeof(why1));
    });
    auto t = Meeting(0, 2, port, 60);
    int rc0 = pvn_boot_tcp_meet(&b0, &t, why0, sizeof(why0));

    other.join();
    ASSERT_EQ(rc0, 0) << why0;
    ASSERT_EQ(rc1, 0) << why1;
    pvn_boot_close(&b0);
    pvn_boot_close(&b1);
}

// A newcomer makes room for the next one, and only then the pass fails, with the remedy. It must not return at once
// without an error as long as a connection waits in the queue.
TEST(Accept, WithoutADescriptorSaysWhatToRaise)
{
    FileLimit few(128);
    const int port = FreePort();
    addrinfo hints{}, *ai = nullptr;
    pvn_boot_accept a{};
    std::vector<int> taken;
    char why[256], c;

    hints.ai_socktype = SOCK_STREAM;
    ASSERT_EQ(getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &ai), 0);
    a.lfd = pvn_boot_listen(ai);
    ASSERT_GE(a.lfd, 0);
    a.max = PVN_BOOT_MAX_NEWCOMERS;
    a.length = Length;
    pvn_boot_accept_init(&a);
    int first = pvn_boot_dial(ai, pvn_now_s() + 5);
    ASSERT_EQ(pvn_boot_accept_pass(&a, 5), 0);
    EXPECT_GE(a.n[0].fd, 0);
    int second = pvn_boot_dial(ai, pvn_now_s() + 5);
    for (int fd; (fd = dup(second)) >= 0;)
        taken.push_back(fd);
    ASSERT_EQ(pvn_boot_accept_pass(&a, 5), 0);
    EXPECT_EQ(a.dropped, 1);
    EXPECT_EQ(recv(first, &c, 1, 0), 0) << "it made room";
    ASSERT_EQ(pvn_boot_accept_pass(&a, 5), 0);
    EXPECT_GE(a.n[0].fd, 0);
    // Without a newcomer to close there is no room for the next one.
    close(first);
    first = pvn_boot_dial(ai, pvn_now_s() + 5);
    taken.push_back(a.n[0].fd);
    a.n[0].fd = -1;
    ASSERT_EQ(pvn_boot_accept_pass(&a, 5), -EMFILE);
    EXPECT_STREQ(pvn_boot_accept_why(-EMFILE, why, sizeof(why)),
                 "Too many open files: this process may open 128: raise that (`ulimit -n`)");
    for (int fd : taken)
        close(fd);
    ASSERT_EQ(pvn_boot_accept_pass(&a, 5), 0);
    EXPECT_GE(a.n[0].fd, 0) << "it had stayed in the queue";
    for (int fd : {first, second})
        close(fd);
    freeaddrinfo(ai);
    pvn_boot_accept_close(&a);
}

} // namespace
