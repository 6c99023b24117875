// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the rendezvous of pvn-perf's ranks with a job's key: which bytes are readable on the wire, which peers are
// refused with which reason at both ends, and that failures end the ranks as they do without a key.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>

#include "config.h"
#include "perf/jobs/serve_proto.h"
#include "support/deadline.h"
#include "tests/perf/perf_run.h"

namespace
{

int Socket(int port, bool listens)
{
    sockaddr_in sa{};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons(static_cast<uint16_t>(port));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    auto *a = reinterpret_cast<sockaddr *>(&sa);
    if ((listens ? bind(fd, a, sizeof(sa)) || listen(fd, 8) : connect(fd, a, sizeof(sa))) == 0)
        return fd;
    close(fd);
    return -1;
}

// Connects to the port; repeats until somebody listens there.
[[maybe_unused]] int Dial(int port)
{
    for (Deadline wait; wait.left(); usleep(20000)) {
        int fd = Socket(port, false);

        if (fd >= 0)
            return fd;
    }
    ADD_FAILURE() << "nobody listens";
    return -1;
}

[[maybe_unused]] std::string Host()
{
    char name[64] = "";

    gethostname(name, sizeof(name) - 1);
    return name;
}

// A proxy for one connection, which records the bytes of both directions. If `damage` is not 0 it changes one byte from
// the listener: the last one of the first read that ends beyond that offset.
class Tap
{
  public:
    Tap(int port, int to, size_t damage = 0) : lfd(Socket(port, true))
    {
        EXPECT_GE(lfd, 0);
        thread = std::thread([this, to, damage] { Run(to, damage); });
    }
    ~Tap()
    {
        over = true;
        thread.join();
        close(lfd);
    }
    std::string passed[2]; // from the connecting side, and to it
    std::atomic<bool> damaged{false};

  private:
    void Run(int to, size_t damage)
    {
        int fd[2] = {-1, -1};

        while (!over) {
            pollfd p[3] = {
                {fd[0] < 0 ? lfd : -1, POLLIN, 0}, {fd[0], POLLIN, 0}, {fd[1], POLLIN, 0}};

            poll(p, 3, 50);
            if (p[0].revents) {
                fd[1] = Socket(to, false);
                fd[0] = accept4(lfd, nullptr, nullptr, SOCK_CLOEXEC);
                if (fd[1] < 0) {
                    close(fd[0]);
                    fd[0] = -1;
                }
            }
            for (int i = 0; i < 2; i++) {
                if (fd[0] >= 0 && p[i + 1].revents && !Pass(i, fd[i], fd[!i], damage)) {
                    shutdown(fd[0], SHUT_RDWR);
                    shutdown(fd[1], SHUT_RDWR);
                    close(fd[0]);
                    close(fd[1]);
                    fd[0] = fd[1] = -1;
                }
            }
        }
        for (int f : fd)
            if (f >= 0)
                close(f);
    }
    bool Pass(int i, int from, int to, size_t damage)
    {
        char buf[4096];
        ssize_t n = recv(from, buf, sizeof(buf), MSG_DONTWAIT);

        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        passed[i].append(buf, static_cast<size_t>(n));
        if (i == 1 && damage && passed[1].size() > damage && !damaged.exchange(true))
            buf[n - 1] ^= 1;
        return send(to, buf, static_cast<size_t>(n), MSG_NOSIGNAL) == n;
    }
    int lfd;
    std::atomic<bool> over{false};
    std::thread thread;
};

class Key : public testing::Test
{
  protected:
    void SetUp() override
    {
        NewPort();
        for (const char *name : {"right", "other"})
            ASSERT_EQ(0, Perf("--make-key " + (dir / name)).status);
    }
    std::string With(const std::string &key) const
    {
        return key.empty() ? "" : " NCCL_PVRDMA_KEY_FILE=" + (dir / key);
    }
    // Runs two ranks. The second connects to the port `at`.
    std::vector<Outcome> Two(const std::string &args, const std::string &key0,
                             const std::string &key1, int port1 = 0)
    {
        std::vector<Outcome> r(2);
        std::thread one([&] {
            std::string env = Torchrun(1, 2) + With(key1);
            if (port1)
                env += " MASTER_PORT=" + std::to_string(port1);
            r[1] = Perf(args, env);
        });
        r[0] = Perf(args, Torchrun(0, 2) + With(key0));
        one.join();
        return r;
    }
    // Runs `pvn-perf serve` and one client.
    std::vector<Outcome> Served(const std::string &key0, const std::string &key1, int port1 = 0)
    {
        std::vector<Outcome> r(2);
        std::string port = std::to_string(g_port), to = std::to_string(port1 ? port1 : g_port),
                    serve = "timeout -k 5 60 " + kPerf + " serve 127.0.0.1:" + port +
                            " --once --plugin t=" + kTestnet;
        FILE *server =
            popen(("env " + With(key0) + " sh -c 'echo $$; exec " + serve + "' 2>&1").c_str(), "r");
        char line[1024];

        EXPECT_NE(nullptr, fgets(line, sizeof(line), server));
        pid_t pid = atoi(line);
        // The server's first line.
        EXPECT_NE(nullptr, fgets(line, sizeof(line), server));
        r[0].out = line;
        r[1] = Perf("p2p 127.0.0.1:" + to + " --plugin t=" + kTestnet + " --sizes 8,64K --iters 5",
                    With(key1));
        if (r[1].status != 0)
            kill(pid, SIGINT);
        while (fgets(line, sizeof(line), server))
            r[0].out += line;
        pclose(server);
        return r;
    }
    Dir dir;
};

#define SAYS(text, part) EXPECT_NE(std::string::npos, (text).find(part)) << "it says: " << (text)

#ifndef HAVE_OPENSSL

TEST_F(Key, ABuildWithoutOpenSslRefusesIt)
{
    Outcome r = Perf("p2p 127.0.0.1", With("right"));

    EXPECT_EQ(3, r.status);
    SAYS(r.err, "this build of the plugin has no OpenSSL");
    r = Perf("serve 127.0.0.1", With("right"));
    EXPECT_EQ(3, r.status);
    SAYS(r.err, "this build of the plugin has no OpenSSL");
}

#else

// Without a key all bytes are readable on the wire. With one only the knock (the first message) is.
TEST_F(Key, RanksMeetAndNothingIsReadBetweenThem)
{
    for (const char *key : {"", "right"}) {
        int at = g_port + 1;
        Tap tap(at, g_port);
        auto r = Two(Ring("--sizes 8,64K"), key, key, at);

        EXPECT_EQ(0, r[0].status) << r[0].err;
        EXPECT_EQ(0, r[1].status) << r[1].err;
        EXPECT_EQ("", r[0].err + r[1].err);
        // The rank sends its host name and its results.
        EXPECT_GT(tap.passed[0].size(), 500u);
        // The search includes zeros of the host name's field, because encrypted bytes contain a name of two bytes
        // by chance now and then.
        EXPECT_EQ(*key == '\0',
                  tap.passed[0].find(Host() + std::string(6, '\0')) != std::string::npos);
        EXPECT_EQ(*key == '\0', tap.passed[0].find("bnvp") != std::string::npos) << "frames";
        NewPort();
    }
}

TEST_F(Key, ServeAndItsClientMeetAndNothingIsReadBetweenThem)
{
    for (const char *key : {"", "right"}) {
        int at = g_port + 1;
        Tap tap(at, g_port);
        auto r = Served(key, key, at);

        EXPECT_EQ(0, r[1].status) << r[1].err;
        SAYS(r[0].out, "ended, all is well");
        SAYS(r[0].out, *key ? "; with a key, 65 bytes, label " : "; unauthenticated, for private");
        EXPECT_EQ(*key == '\0', tap.passed[0].find("\"sizes\":[8,65536]") != std::string::npos);
        EXPECT_EQ(*key == '\0', tap.passed[0].find("\"host\":\"" + Host()) != std::string::npos);
        EXPECT_EQ(*key == '\0', tap.passed[1].find("\"host\":\"" + Host()) != std::string::npos);
        NewPort();
    }
}

TEST_F(Key, ChangedBytesEndTheMeetingOfRanks)
{
    int at = g_port + 1;
    Tap tap(at, g_port, 1500);
    auto r = Two(Ring("--sizes 8,64K --iters 50 --timeout 20"), "right", "right", at);

    EXPECT_TRUE(tap.damaged) << tap.passed[1].size();
    EXPECT_EQ(3, r[1].status) << r[1].out;
    EXPECT_NE(0, r[0].status);
    SAYS(r[1].err, "bytes of the sealed connection of two ranks were changed between them");
}

TEST_F(Key, WhoHasAnotherKeyOrNoneIsRefusedAtBothEnds)
{
    const struct {
        const char *key0, *key1, *says0, *says1;
    } cases[] = {
        {"right", "other", "was refused: it has another key than rank 0 (65 bytes, label ",
         "refused this rank (1), which has a key (65 bytes, label "},
        {"right", "", "was refused: it has no key, rank 0 has one (65 bytes, label ",
         "refused this rank (1): it has no key, rank 0 has one (65 bytes, label "},
        {"", "right", "was refused: it has a key, rank 0 has none: set NCCL_PVRDMA_KEY_FILE",
         "it has a key, rank 0 has none: set NCCL_PVRDMA_KEY_FILE for all or for none"},
    };
    for (auto &c : cases) {
        auto r = Two(Ring("--boot-timeout 3"), c.key0, c.key1);

        EXPECT_EQ(3, r[0].status);
        EXPECT_EQ(3, r[1].status);
        SAYS(r[0].err, c.says0);
        SAYS(r[1].err, c.says1);
        NewPort();
    }
}

TEST_F(Key, ServeRefusesAnotherKeyOrNoneAndSoDoesItsClient)
{
    const struct {
        const char *key0, *key1, *says0, *says1;
    } cases[] = {
        {"right", "other", "refused: the client has another key than the server (65 bytes, label ",
         "which has a key (65 bytes, label "},
        {"right", "", "refused: the client has no key, the server has one (65 bytes, label ",
         "the client has no key, the server has one (65 bytes, label "},
        {"", "right", "refused: the client has a key, the server has none: set NCCL_PVRDMA",
         "the client has a key, the server has none: set NCCL_PVRDMA_KEY_FILE for all or"},
    };
    for (auto &c : cases) {
        auto r = Served(c.key0, c.key1);

        EXPECT_EQ(3, r[1].status);
        SAYS(r[0].out, c.says0);
        SAYS(r[1].err, c.says1);
        NewPort();
    }
}

// Older builds refuse a knock. The client then does not continue unencrypted.
TEST_F(Key, AnOlderServerRefusesAKnockByTheOptionThatItDoesNotKnow)
{
    pvn_boot_knock knock{};
    size_t len = 0;
    char *text = pvn_serve_write_knock(&knock, &len);
    static pvn_perf_opts o;
    char who[200] = "", why[384] = "";

    EXPECT_EQ(-EINVAL,
              pvn_serve_read_request(text + sizeof(pvn_serve_head), len - sizeof(pvn_serve_head),
                                     &o, who, sizeof(who), why, sizeof(why)));
    SAYS(std::string(why), "does not know the option key");
    free(text);
}

TEST_F(Key, AnOlderRankZeroRefusesAKnockAsAnotherVersion)
{
    struct {
        uint64_t magic = 0x70766e77656c636full;
        uint32_t version = 2, refused = 1;
        char reason[112] = "rank 0 runs another version of pvn-perf\033";
    } answer;
    int lfd = Socket(g_port, true);
    uint32_t version = 0;
    std::thread old([&] {
        int fd = accept4(lfd, nullptr, nullptr, SOCK_CLOEXEC);
        char first[512];
        ssize_t n = recv(fd, first, sizeof(first), 0);

        if (n >= 12)
            memcpy(&version, first + 8, 4);
        (void)!send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
        close(fd);
    });
    Outcome r = Perf(Ring(""), Torchrun(1, 2) + With("right"));

    old.join();
    close(lfd);
    EXPECT_EQ(3u, version);
    EXPECT_EQ(3, r.status);
    SAYS(r.err, "refused this rank (1), which has a key (65 bytes, label ");
    SAYS(r.err, "): rank 0 runs another version of pvn-perf?");
}

// Other connections and ranks without the key neither delay the job nor end it.
TEST_F(Key, OthersAndRanksWithoutTheKeyDoNotDisturb)
{
    std::atomic<bool> over{false};
    std::thread others([&] {
        struct {
            uint64_t magic = 0x70766e68656c6c6full;
            uint32_t version = 3, pad = 0;
            uint8_t knock[32] = {1, 2, 3};
        } knock;
        std::vector<int> fds;
        char answer[128];

        fds.push_back(Dial(g_port));
        for (int i = 0; i < 20; i++) {
            int fd = Dial(g_port);
            if (i % 2)
                knock.version = i % 4 == 1 ? 2 : 3;
            (void)!send(fd, &knock, i % 3 ? sizeof(knock) : 5, MSG_NOSIGNAL);
            fds.push_back(fd);
        }
        // This knock is refused with a reason, and the answer proves nothing about the token.
        int fd = Dial(g_port);
        knock.version = 3;
        (void)!send(fd, &knock, sizeof(knock), MSG_NOSIGNAL);
        EXPECT_EQ(128, recv(fd, answer, sizeof(answer), MSG_WAITALL));
        EXPECT_EQ(1, answer[12]);
        fds.push_back(fd);
        over = true;
        for (int f : fds)
            close(f);
    });
    std::vector<Outcome> r(2);
    std::thread zero(
        [&] { r[0] = Perf(Ring("--boot-timeout 60"), Torchrun(0, 2) + With("right")); });

    for (Deadline wait; wait.left() && !over;)
        usleep(10000);
    r[1] = Perf(Ring("--boot-timeout 60"), Torchrun(1, 2) + With("right"));
    zero.join();
    others.join();
    EXPECT_EQ(0, r[0].status) << r[0].err;
    EXPECT_EQ(0, r[1].status) << r[1].err;
    SAYS(r[0].err, "a rank at 127.0.0.1 was refused: it has another key than rank 0");
    EXPECT_LE(Count(r[0].err, "was refused"), 8) << "a line for each of the first";
}

// A replayed knock does not make its sender a rank of the job.
TEST_F(Key, AKnockThatIsRepeatedProvesNothing)
{
    int at = g_port + 1;
    std::string knock;
    {
        Tap tap(at, g_port);
        auto r = Two(Ring(""), "right", "right", at);

        ASSERT_EQ(0, r[1].status) << r[1].err;
        knock = tap.passed[0].substr(0, 900); // and the beginning of the handshake
    }
    NewPort();
    std::vector<Outcome> r(2);
    std::thread zero(
        [&] { r[0] = Perf(Ring("--boot-timeout 60"), Torchrun(0, 2) + With("right")); });
    int fd = Dial(g_port);
    char answer[4096];
    EXPECT_EQ(static_cast<ssize_t>(knock.size()), send(fd, knock.data(), knock.size(), 0));
    EXPECT_EQ(128, recv(fd, answer, 128, MSG_WAITALL));
    EXPECT_EQ(0, answer[12]) << "the token is right";
    while (recv(fd, answer, sizeof(answer), 0) > 0)
        ;
    close(fd);
    r[1] = Perf(Ring("--boot-timeout 60"), Torchrun(1, 2) + With("right"));
    zero.join();
    EXPECT_EQ(0, r[0].status) << r[0].err;
    EXPECT_EQ(0, r[1].status) << r[1].err;
    SAYS(r[0].err, "a rank at 127.0.0.1 was refused: the peer ");
}

TEST_F(Key, AKeyThatCannotBeUsedEndsTheStartWithTheRemedy)
{
    ASSERT_EQ(0, chmod((dir / "other").c_str(), 0640));
    const struct {
        std::string env, says;
    } cases[] = {
        {With("other"), "others than its owner may use "},
        {With("missing"), "cannot be opened: No such file or directory; every rank needs it"},
        {With("right") + " NCCL_PVRDMA_SSL_LIB=/nowhere/libssl.so.3", "correct it or unset it"},
        {" NCCL_PVRDMA_ENCRYPT=control", "NCCL_PVRDMA_ENCRYPT needs a key"},
        {With("right") + " NCCL_PVRDMA_SEAL_TIMEOUT=soon", "NCCL_PVRDMA_SEAL_TIMEOUT"},
    };
    for (auto &c : cases) {
        for (auto &[args, env] : {std::pair<std::string, std::string>{"serve 127.0.0.1:1", ""},
                                  {"p2p 127.0.0.1:1", ""},
                                  {Ring(""), Torchrun(1, 2)}}) {
            Outcome r = Perf(args, env + c.env);
            EXPECT_EQ(3, r.status) << args;
            SAYS(r.err, c.says);
        }
    }
}

std::string Stops(int rank, int n)
{
    return Torchrun(rank, n) + " TESTNET_FAULT=error:5 TESTNET_FAULT_RANK=1";
}

// A rank's reason reaches the others, and they notice a killed rank, as without a key.
TEST_F(Key, FailuresAndDeathsReachTheOthers)
{
    setenv("NCCL_PVRDMA_KEY_FILE", (dir / "right").c_str(), 1);
    auto r = Launch(3, Ring("--iters 50"), Stops);

    for (auto &one : r)
        EXPECT_EQ(3, one.status) << one.err;
    SAYS(r[1].err, "rank 1");
    EXPECT_EQ(std::string::npos, (r[0].err + r[2].err).find("without giving a reason"));
    NewPort();
    // The relay must end with its rank: the loop that reads `dies` ends when no process of the rank holds the pipe.
    FILE *dies = popen((Torchrun(1, 2) + " sh -c 'echo $$; exec " + kPerf + " " +
                        Ring("--iters 100000000 --timeout 30") + "' 2>&1")
                           .c_str(),
                       "r");
    std::thread zero([&] { r[0] = Perf(Ring("--iters 100000000"), Torchrun(0, 2)); });
    char line[512];
    ASSERT_NE(nullptr, fgets(line, sizeof(line), dies));
    pid_t pid = atoi(line);
    // The process has a second child, the rank, once the rendezvous is complete.
    auto children = [&] {
        return Count(
            Slurp("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"),
            " ");
    };
    for (Deadline wait; wait.left() && children() < 2;)
        usleep(10000);
    EXPECT_EQ(2, children());
    kill(pid, SIGKILL);
    while (fgets(line, sizeof(line), dies))
        ;
    pclose(dies);
    zero.join();
    EXPECT_EQ(3, r[0].status);
    SAYS(r[0].err, "rank 1 ended without giving a reason");
    unsetenv("NCCL_PVRDMA_KEY_FILE");
}

// Ctrl-C reaches all processes of the group. The relay must survive it, because the ranks agree to stop through it.
TEST_F(Key, AnInterruptionIsAgreedOn)
{
    std::vector<FILE *> ranks;
    std::string args = Ring("--iters 100000000");
    std::vector<pid_t> pid;
    char line[512];

    for (int i = 0; i < 2; i++) {
        std::string env = Torchrun(i, 2) + With("right");
        ranks.push_back(popen(("env " + env + " setsid sh -c 'echo $$; exec " + kPerf + " " + args +
                               "' 2>&1; echo status $?")
                                  .c_str(),
                              "r"));
        ASSERT_NE(nullptr, fgets(line, sizeof(line), ranks.back()));
        pid.push_back(atoi(line));
    }
    auto children = [&](pid_t p) {
        return Count(
            Slurp("/proc/" + std::to_string(p) + "/task/" + std::to_string(p) + "/children"), " ");
    };
    for (Deadline wait; wait.left() && (children(pid[0]) < 2 || children(pid[1]) < 2);)
        usleep(10000);
    usleep(300000); // the ranks have begun, or are about to
    kill(-pid[1], SIGINT);
    for (FILE *f : ranks) {
        std::string all;
        while (fgets(line, sizeof(line), f))
            all += line;
        pclose(f);
        EXPECT_TRUE(all.find("status 130") != std::string::npos ||
                    all.find("status 143") != std::string::npos)
            << all;
        EXPECT_EQ(std::string::npos, all.find("ended without giving a reason")) << all;
    }
}

#endif

} // namespace
