// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Sealed comms, and bytes that somebody injects into one of their connections: into any socket and
// in either direction. The comm makes a new connection and goes on with the right bytes. Another
// comm beside it does not notice.
#include "abi/nccl_side.h"
#include "support/key_file.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <memory>
#include <random>

using namespace nccl;

namespace
{

class Forged : public testing::Test
{
  protected:
    enum { MESSAGES = 200 };
    Folder folder;
    void SetUp() override
    {
        setenv("NCCL_PVRDMA_TRANSPORT", "tcp", 1);
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
        setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
        setenv("NCCL_PVRDMA_KEY_FILE",
               write_file(folder / "key", "0123456789abcdef0123456789abcdef").c_str(), 1);
        Log::get().clear();
    }
    void TearDown() override
    {
        for (const char *name :
             {"NCCL_PVRDMA_TRANSPORT", "NCCL_SOCKET_IFNAME", "NCCL_PVRDMA_FAILOVER",
              "NCCL_PVRDMA_KEY_FILE", "NCCL_PVRDMA_TCP_STREAMS", "NCCL_PVRDMA_SEAL_TIMEOUT",
              "NCCL_PVRDMA_FAILOVER_TIMEOUT"})
            unsetenv(name);
    }
    // This process's connected TCP sockets, without those in `before`.
    static std::vector<int> connections(const std::set<int> &before)
    {
        std::vector<int> found;
        for (int fd : descriptors()) {
            sockaddr_storage peer;
            socklen_t len = sizeof(peer);
            if (before.count(fd) == 0 &&
                getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &len) == 0 &&
                peer.ss_family == AF_INET)
                found.push_back(fd);
        }
        return found;
    }
    static Flow flow(Pair &p)
    {
        std::vector<Send> s;
        std::vector<Recv> r;
        std::vector<std::vector<int>> expect;
        for (int i = 0; i < MESSAGES; i++) {
            size_t size = i % 3 ? static_cast<size_t>(i) : 70000;
            s.push_back({size, 0});
            r.push_back({{size}, {0}});
            expect.push_back({i});
        }
        return Flow(p, s, r, expect);
    }
    static void pass(Pair &p)
    {
        Flow f = flow(p);
        EXPECT_TRUE(f.run()) << Log::get().warnings();
        f.check();
    }
};

TEST_F(Forged, BytesInAnyConnectionHarmNoMessageAndNoOtherComm)
{
    std::mt19937 random(1);
    size_t sockets = 1;
    int control = 0;
    setenv("NCCL_PVRDMA_TCP_STREAMS", "2", 1);
    for (size_t i = 0; i < sockets; i++) {
        SCOPED_TRACE("socket " + std::to_string(i));
        Log::get().clear();
        Net n(12);
        Pair other(n);
        std::set<int> before = descriptors();
        Pair p(n);
        ASSERT_TRUE(p.up() && other.up());
        std::vector<int> fds = connections(before);
        sockets = fds.size();
        ASSERT_EQ(6u, sockets) << "two ends of a control connection and of two streams";
        Flow f = flow(p), beside = flow(other);
        // Injects the bytes in the middle of traffic.
        ASSERT_TRUE(eventually([&] { return !f.step() || f.sent() > MESSAGES / 3; }));
        uint8_t junk[100];
        for (uint8_t &b : junk)
            b = static_cast<uint8_t>(random());
        ssize_t put = -1;
        ASSERT_TRUE(eventually([&] {
            put = send(fds[i], junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL);
            return put > 0 || errno != EAGAIN || !f.step();
        }));
        ASSERT_EQ(static_cast<ssize_t>(sizeof(junk)), put) << strerror(errno);
        bool ok = eventually([&] {
            bool goes_on = (f.done() || f.step()) && (beside.done() || beside.step());
            return !goes_on || (f.done() && beside.done());
        });
        EXPECT_TRUE(ok && f.error == ncclSuccess && beside.error == ncclSuccess)
            << Log::get().warnings();
        f.check();
        beside.check();
        // A stream is read only when its turn comes. Either end may notice first; it then resets
        // the stream, so the other end may report the loss earlier.
        EXPECT_TRUE(eventually([&] {
            pass(p);
            return HasFailure() || said("connected again after");
        })) << "nobody has noticed them";
        control += said("what came on the control connection is not what the peer sent");
        pass(other);
    }
    EXPECT_EQ(2, control);
}

// Both ends are in this process. They lose all connections in the middle of traffic, and the key
// file changes.
struct Replaced : Forged {
    const std::string key = folder / "key";
    std::set<int> before;
    std::unique_ptr<Net> n;
    std::unique_ptr<Pair> p;
    std::unique_ptr<Flow> f;
    void TearDown() override
    {
        f.reset();
        p.reset();
        n.reset();
        Forged::TearDown();
    }
    void up()
    {
        n = std::make_unique<Net>(12);
        before = descriptors();
        p = std::make_unique<Pair>(*n);
        ASSERT_TRUE(p->up());
        if (said("read once, for its file system may block"))
            GTEST_SKIP() << key << " is not read again: " << Log::get().text();
    }
    void lose(const std::function<void()> &just_before = [] {})
    {
        f = std::make_unique<Flow>(flow(*p));
        ASSERT_TRUE(eventually([&] { return !f->step() || f->sent() > MESSAGES / 3; }));
        const std::vector<int> fds = connections(before);
        just_before();
        for (int fd : fds)
            shutdown(fd, SHUT_RDWR);
    }
    // Puts other sockets in place of this process's listening ones. The old ones stay open, so the
    // kernel still accepts connections for them, but nobody reads them. Returns the old ones.
    std::vector<int> stop_listening() const
    {
        std::vector<int> kept;
        for (int fd : descriptors()) {
            int listens = 0;
            socklen_t len = sizeof(listens);
            if (before.count(fd) ||
                getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) != 0 || !listens)
                continue;
            const int deaf = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            EXPECT_EQ(0, listen(deaf, 1));
            kept.push_back(dup(fd));
            EXPECT_EQ(fd, dup2(deaf, fd));
            close(deaf);
        }
        return kept;
    }
    ncclResult_t end()
    {
        EXPECT_TRUE(eventually([&] { return f->done() || !f->step(); }))
            << "neither done nor ended";
        return f->error;
    }
    void is_refused()
    {
        EXPECT_NE(ncclSuccess, end());
        EXPECT_TRUE(said("was replaced while the job ran (it had 32 bytes, label "));
        EXPECT_TRUE(said("start the job again, with the same file at all ranks"));
        EXPECT_FALSE(said("connected again after"));
    }
};

TEST_F(Replaced, AFileThatIsGoneHindersNoFailover)
{
    up();
    if (IsSkipped() || HasFatalFailure())
        return;
    ASSERT_EQ(0, remove(key.c_str()));
    lose();
    EXPECT_EQ(ncclSuccess, end()) << Log::get().warnings();
    f->check();
    EXPECT_TRUE(said("connected again after"));
    EXPECT_FALSE(said("was replaced while the job ran"));
}

TEST_F(Replaced, AnotherKeyInTheFileEndsAFailover)
{
    up();
    if (IsSkipped() || HasFatalFailure())
        return;
    write_file(key, "another key of another job, later");
    lose();
    is_refused();
}

// The failover makes no connection at first, because the process has no free descriptor.
TEST_F(Replaced, AnotherKeyEndsAFailoverThatHasBegun)
{
    rlimit limit, none;
    up();
    if (IsSkipped() || HasFatalFailure())
        return;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
    none = limit;
    none.rlim_cur = 3;
    lose([&] { ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none)); });
    EXPECT_FALSE(eventually([&] { return !f->step() || f->done(); }, 1));
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    EXPECT_TRUE(said("the connection is made again"));
    EXPECT_FALSE(said("connected again after"));
    write_file(key, "another key of another job, later");
    is_refused();
}

// The peer's kernel accepts the connection, but its process never answers. So the attempt would not
// end by itself.
TEST_F(Replaced, AnotherKeyEndsAnAttemptThatThePeerDoesNotAnswer)
{
    setenv("NCCL_PVRDMA_SEAL_TIMEOUT", "10min", 1);
    setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "10min", 1);
    up();
    if (IsSkipped() || HasFatalFailure())
        return;
    const std::vector<int> deaf = stop_listening();
    ASSERT_FALSE(deaf.empty());
    // The test calls the sender only. The message is larger than the socket buffers, so it stays
    // open.
    std::vector<uint8_t> data(16 << 20);
    void *req = nullptr;
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_isend(p->d, p->sc, data.data(), data.size(), 0, nullptr, nullptr, &req));
    ASSERT_NE(nullptr, req);
    for (int fd : connections(before))
        shutdown(fd, SHUT_RDWR);
    int done = 0;
    ncclResult_t rc = ncclSuccess;
    auto ends = [&] {
        rc = pvn_netdrv_test(p->d, req, &done, nullptr);
        return rc != ncclSuccess || done;
    };
    // The plugin looks at the key file once a second. It waits longer than that for a peer whose
    // connections have ended.
    ASSERT_TRUE(eventually([&] { return ends() || said("the connection is made again"); }));
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (!ends() && std::chrono::steady_clock::now() < until)
        ;
    EXPECT_EQ(ncclSuccess, rc) << Log::get().warnings();
    write_file(key, "another key of another job, later");
    EXPECT_TRUE(eventually(ends));
    EXPECT_NE(ncclSuccess, rc);
    EXPECT_TRUE(said("was replaced while the job ran (it had 32 bytes, label "));
    EXPECT_FALSE(said("connected again after"));
    for (int fd : deaf)
        close(fd);
}

// A forked child, such as a data loader's worker, uses the plugin itself. Its parent's comm has
// sealed connections.
TEST_F(Forged, AForkedChildSealsConnectionsOfItsOwn)
{
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a process with threads";
#endif
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    pass(p);
    pid_t pid = fork();
    ASSERT_NE(-1, pid);
    if (pid == 0) {
        Log::get().clear();
        {
            Net own(12);
            Pair mine(own);
            if (mine.up())
                pass(mine);
        }
        _exit(HasFailure() || !said("sealed (TLS_") ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
    pass(p);
}

} // namespace
