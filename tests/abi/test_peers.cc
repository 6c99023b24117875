// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Several processes: a forked child that has its parent's comms, two ranks, a rank that is killed,
// a rank that waits.
#include "abi/nccl_side.h"
#include "abi/orphan.h"

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nccl;

namespace
{

#if defined(__SANITIZE_THREAD__)
// Statistics start a thread. ThreadSanitizer ends a forked child that starts a thread if its parent
// had threads.
[[maybe_unused]] const int no_statistics = setenv("NCCL_PVRDMA_STATS_DIR", "none", 1);
#endif

TEST(Fork, AChildGetsErrorsAndDoesNoHarm)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    Buffer in(10);
    void *rreq = nullptr, *data = in.data(), *mh = nullptr;
    size_t size = 10;
    int tag = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, &rreq));
    ASSERT_NE(nullptr, rreq);
    pid_t pid = fork();
    if (pid == 0) {
        unsigned bad = 0;
        char b[10] = {};
        void *req = nullptr, *rc = nullptr;
        int d = 0, ndev = 0;
        auto must = [&](int bit, bool ok) { bad |= ok ? 0u : 1u << bit; };
        must(0, pvn_netdrv_isend(p.d, p.sc, b, 10, 0, nullptr, nullptr, &req) == ncclInvalidUsage);
        must(0, pvn_netdrv_test(p.d, rreq, &d, nullptr) == ncclInvalidUsage);
        must(1, pvn_netdrv_accept(n.d, lc, &rc) == ncclInvalidUsage);
        must(1, pvn_netdrv_devices(n.d, &ndev) == ncclInvalidUsage);
        must(2, Log::get().warnings().find("forked child") != std::string::npos);
        must(3, pvn_netdrv_close_send(p.d, p.sc) == ncclSuccess);
        must(3, pvn_netdrv_close_recv(p.d, p.rc) == ncclSuccess);
        must(3, pvn_netdrv_close_listen(n.d, lc) == ncclSuccess);
        must(4, pvn_netdrv_finalize(n.d, n.ctx) == ncclSuccess);
        // The child may initialise the plugin for itself.
        ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
        must(5, pvn_netdrv_init(n.d, &n.ctx, 1, &config, logger, nullptr) == ncclSuccess);
        {
            Pair q(n);
            Flow f = plain(q, {3, 70000});
            must(6, q.up() && f.run());
        }
        must(6, pvn_netdrv_isend(p.d, p.sc, b, 10, 0, nullptr, nullptr, &req) == ncclInvalidUsage);
        must(7, pvn_netdrv_finalize(n.d, n.ctx) == ncclSuccess);
        _exit(static_cast<int>(bad));
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(0, WEXITSTATUS(status)) << "bits name the step";
    // The parent's connections, and a receive that it posted before the fork, are unchanged.
    Buffer out(10, 9);
    void *sreq = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_isend(p.d, p.sc, out.data(), 10, 0, nullptr, nullptr, &sreq));
    int sd = 0, rd = 0;
    EXPECT_TRUE(eventually([&] {
        if (!sd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, sreq, &sd, nullptr));
        }
        if (!rd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq, &rd, nullptr));
        }
        return sd && rd;
    }));
    EXPECT_TRUE(in.holds(10, 9));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
}

#if !defined(__SANITIZE_THREAD__)
// Forks while another thread is in an init and holds the locks of what it loads. The child must be
// able to start the plugin.
void expect_a_child_starts_during(const std::function<void()> &init,
                                  const std::function<bool()> &stands,
                                  const std::function<void()> &goes_on)
{
    std::thread loads(init);
    EXPECT_TRUE(eventually(stands));
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        {
            unsetenv("NCCL_PVRDMA_STREEMS");
            unsetenv("NCCL_PVRDMA_NL_LIB");
            Net own(12);
            Pair p(own);
            Flow f = plain(p, {1, 100000});
            EXPECT_TRUE(p.up() && f.run());
        }
        _exit(testing::Test::HasFailure());
    }
    int status = -1;
    EXPECT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_TRUE(stands()) << "nothing was held any more";
    goes_on();
    loads.join();
}

// NCCL's logger, called while the plugin reads its parameters.
std::atomic<int> in_logger{0}; // 1: the next call is to wait; 2: it waits

void waiting_logger(ncclDebugLogLevel, unsigned long, const char *, int, const char *, ...)
{
    int want = 1;
    in_logger.compare_exchange_strong(want, 2);
    while (in_logger == 2)
        usleep(1000);
}

TEST(Fork, AChildStartsWhileAThreadOfItsParentReadsParameters)
{
    setenv("NCCL_PVRDMA_STREEMS", "1", 1);
    in_logger = 1;
    expect_a_child_starts_during(
        [] {
            char why[512] = "";
            void *ctx = nullptr;
            pvn_netdrv *d = nullptr;
            ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
            ASSERT_EQ(0, pvn_netdrv_open(plugin_path(), 12, &d, why, sizeof(why))) << why;
            EXPECT_EQ(ncclSuccess, pvn_netdrv_init(d, &ctx, 1, &config, waiting_logger, nullptr));
            EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(d, ctx));
            pvn_netdrv_close(d);
        },
        [] { return in_logger == 2; }, [] { in_logger = 0; });
    unsetenv("NCCL_PVRDMA_STREEMS");
}

// The library's name is a FIFO, so the loader blocks until somebody writes to it.
TEST(Fork, AChildStartsWhileAThreadOfItsParentLoadsLibnl)
{
    const std::string pipe = "/tmp/pvn-nl." + std::to_string(getpid());
    ASSERT_EQ(0, mkfifo(pipe.c_str(), 0600));
    setenv("NCCL_PVRDMA_NL_LIB", pipe.c_str(), 1);
    std::atomic<pid_t> thread{0};
    expect_a_child_starts_during(
        [&] {
            thread = gettid();
            Net n(12);
            EXPECT_EQ(ncclSuccess, n.rc);
        },
        [&] {
            std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/syscall");
            long number = -1;
            in >> number;
            return number == SYS_openat;
        },
        [&] { close(open(pipe.c_str(), O_WRONLY | O_CLOEXEC)); });
    unsetenv("NCCL_PVRDMA_NL_LIB");
    unlink(pipe.c_str());
}
#endif

// A child made without fork handlers. It has every descriptor of its parent and uses none.
struct Bystander {
    pid_t pid = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    Bystander()
    {
        while (pid == 0)
            pause();
    }
    ~Bystander()
    {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
};

// Repeats a call until the comm returns an error.
ncclResult_t until_it_fails(const std::function<ncclResult_t()> &call)
{
    ncclResult_t rc = ncclSuccess;
    EXPECT_TRUE(eventually([&] { return (rc = call()) != ncclSuccess; }, 10)) << "it waits on";
    return rc;
}

TEST(Fork, TheReceiverHearsOfTheEndDespiteAChild)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Bystander child;
    Buffer in(10);
    void *req = nullptr, *data = in.data(), *mh = nullptr;
    size_t size = 10;
    int tag = 0, done = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, &req));
    p.close_send();
    EXPECT_EQ(ncclRemoteError,
              until_it_fails([&] { return pvn_netdrv_test(p.d, req, &done, nullptr); }));
}

TEST(Fork, TheSenderHearsOfTheEndDespiteAChild)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Bystander child;
    Buffer out(32 << 20); // more than the socket buffers hold
    void *req = nullptr;
    int done = 0;
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_isend(p.d, p.sc, out.data(), out.n, 0, nullptr, nullptr, &req));
    p.close_recv();
    EXPECT_EQ(ncclRemoteError,
              until_it_fails([&] { return pvn_netdrv_test(p.d, req, &done, nullptr); }));
}

TEST(Fork, AClosedListenerTakesNobodyInDespiteAChild)
{
    setenv("NCCL_PVRDMA_ACCEPT_TIMEOUT", "60s", 1);
    Net n(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *sc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    Bystander child;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
    EXPECT_EQ(ncclRemoteError,
              until_it_fails([&] { return pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc); }));
    unsetenv("NCCL_PVRDMA_ACCEPT_TIMEOUT");
}

// Forks a process that runs `child` on a comm connected to this handle. Returns its pid.
pid_t with_child(const char *handle, int abi, void (*child)(Net &, void *sc))
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that fails leaves nobody behind
    {
        alignas(8) char h[NCCL_NET_HANDLE_MAXSIZE];
        memcpy(h, handle, sizeof(h));
        Net n(abi);
        void *sc = nullptr;
        if (!eventually(
                [&] { return pvn_netdrv_connect(n.d, n.ctx, 0, h, &sc) != ncclSuccess || sc; }) ||
            !sc)
            _exit(2);
        child(n, sc);
        pvn_netdrv_close_send(n.d, sc);
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
}

class Processes : public testing::TestWithParam<int>
{
};
INSTANTIATE_TEST_SUITE_P(Versions, Processes, testing::Range(4, 13),
                         [](const auto &i) { return "v" + std::to_string(i.param); });

enum { MESSAGES = 200 };

TEST_P(Processes, DataGoBetweenTwo)
{
    Net n(GetParam());
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *rc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    pid_t pid = with_child(handle, GetParam(), [](Net &c, void *sc) {
        for (unsigned i = 0; i < MESSAGES; i++) {
            Buffer b(i * 977 % 70000, i + 1);
            void *req = nullptr;
            int d = 0;
            EXPECT_TRUE(eventually([&] {
                if (!req && pvn_netdrv_isend(c.d, sc, b.data(), b.n, 0, nullptr, nullptr, &req))
                    return true;
                return req && (pvn_netdrv_test(c.d, req, &d, nullptr) != ncclSuccess || d);
            }));
            EXPECT_EQ(1, d);
        }
    });
    ASSERT_TRUE(eventually([&] { return pvn_netdrv_accept(n.d, lc, &rc) != ncclSuccess || rc; }));
    ASSERT_NE(nullptr, rc) << Log::get().text();
    pvn_netdrv_close_listen(n.d, lc);
    for (unsigned i = 0; i < MESSAGES; i++) {
        Buffer b(70000);
        void *req = nullptr, *data = b.data(), *mh = nullptr;
        size_t size = b.n;
        int tag = 0, d = 0, got = -1;
        ASSERT_TRUE(eventually([&] {
            if (!req) {
                EXPECT_EQ(ncclSuccess,
                          pvn_netdrv_irecv(n.d, rc, 1, &data, &size, &tag, &mh, nullptr, &req));
            }
            if (req) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(n.d, req, &d, &got));
            }
            return d || HasFailure();
        })) << i;
        ASSERT_EQ(static_cast<int>(i * 977 % 70000), got);
        ASSERT_TRUE(b.holds(got, i + 1)) << i;
    }
    pvn_netdrv_close_recv(n.d, rc);
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
}

TEST(Death, AKilledPeerIsReportedAtOnceAndOthersLive)
{
    Net n(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *rc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    // The other comm comes after the fork. It starts a thread, and gcc 12's AddressSanitizer
    // leaves a child without end in a lock of its allocator that a thread of the parent held.
    pid_t pid = with_child(handle, 12, [](Net &, void *) {
        for (;;)
            pause();
    });
    Pair other(n);
    ASSERT_TRUE(other.up());
    ASSERT_TRUE(eventually([&] { return pvn_netdrv_accept(n.d, lc, &rc) != ncclSuccess || rc; }));
    ASSERT_NE(nullptr, rc) << Log::get().text();
    Buffer b(100);
    void *req = nullptr, *data = b.data(), *mh = nullptr;
    size_t size = 100;
    int tag = 0, d = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(n.d, rc, 1, &data, &size, &tag, &mh, nullptr, &req));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_test(n.d, req, &d, nullptr));
    Log::get().clear();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    ncclResult_t r = ncclSuccess;
    EXPECT_TRUE(eventually([&] {
        r = pvn_netdrv_test(n.d, req, &d, nullptr);
        return r != ncclSuccess || d;
    }));
    EXPECT_EQ(ncclRemoteError, r);
    std::string w = Log::get().warnings();
    EXPECT_NE(std::string::npos, w.find("pid " + std::to_string(pid))) << "who: " << w;
    EXPECT_EQ(r, pvn_netdrv_test(n.d, req, &d, nullptr)) << "latched";
    void *again = nullptr;
    EXPECT_EQ(r, pvn_netdrv_irecv(n.d, rc, 1, &data, &size, &tag, &mh, nullptr, &again));
    EXPECT_EQ(w, Log::get().warnings()) << "said once";
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, rc));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
    Flow f = plain(other, {1, 50000});
    EXPECT_TRUE(f.run());
    f.check();
}

// A listener that the child still has counts, too, if failover is on: the peer would take it as
// proof that the rank is alive and only late.
class LeftChild : public testing::TestWithParam<const char *>
{
};
INSTANTIATE_TEST_SUITE_P(Failover, LeftChild, testing::Values("0", "1"),
                         [](const auto &i) { return std::string("is") + i.param; });

Orphan *left_child;

TEST_P(LeftChild, DoesNotStandForAKilledRank)
{
    setenv("NCCL_PVRDMA_FAILOVER", GetParam(), 1);
    {
        Net n(12);
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *lc = nullptr, *rc = nullptr;
        left_child = Orphan::shared();
        ASSERT_NE(nullptr, left_child);
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
        const pid_t pid = with_child(handle, 12, [](Net &, void *) { left_child->be_left(); });
        ASSERT_TRUE(
            eventually([&] { return pvn_netdrv_accept(n.d, lc, &rc) != ncclSuccess || rc; }));
        ASSERT_NE(nullptr, rc) << Log::get().text();
        Log::get().clear();
        expect_loss_of(n, rc, pid, *left_child);
        EXPECT_LT(1, left_child->connections) << "control connection and streams";
        EXPECT_EQ(0, left_child->others_closed);
        left_child->free();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, rc));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
    }
    unsetenv("NCCL_PVRDMA_FAILOVER");
}

TEST(Death, AStallIsReportedWithTheEndThatHasToActNext)
{
    setenv("NCCL_PVRDMA_STALL_WARN", "800ms", 1);
    {
        Net n(12);
        Pair p(n);
        ASSERT_TRUE(p.up());
        Buffer b(100);
        void *req = nullptr, *data = b.data(), *mh = nullptr;
        size_t size = 100;
        int tag = 0, d = 0;
        Flow warm = plain(p, std::vector<size_t>(64, 10));
        ASSERT_TRUE(warm.run());
        std::this_thread::sleep_for(std::chrono::milliseconds(1000));
        Log::get().clear();
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, &req));
        for (int i = 0; i < 32; i++)
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &d, nullptr));
        EXPECT_EQ("", Log::get().warnings()) << "idle until now is no stall";
        EXPECT_TRUE(eventually([&] {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &d, nullptr));
            return !Log::get().warnings().empty();
        }));
        std::string w = Log::get().warnings();
        EXPECT_NE(std::string::npos, w.find("nothing has moved")) << w;
        EXPECT_NE(std::string::npos, w.find("waiting for the peer")) << w;
        EXPECT_NE(std::string::npos, w.find("pid " + std::to_string(getpid()))) << w;
        for (int i = 0; i < 1000; i++)
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &d, nullptr));
        EXPECT_EQ(w, Log::get().warnings()) << "once, and the comm goes on";
        void *sreq = nullptr;
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_isend(p.d, p.sc, b.data(), 100, 0, nullptr, nullptr, &sreq));
        EXPECT_TRUE(eventually([&] {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &d, nullptr));
            return d != 0;
        }));
    }
    unsetenv("NCCL_PVRDMA_STALL_WARN");
}

} // namespace
