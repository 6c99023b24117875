// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The whole plugin over RDMA in one process: NCCL's calls, softverbs as the adapters.
#include "rdma/plugin_route.h"

#include <atomic>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

extern "C" {
#include "stats/stats_read.h"
}

using namespace nccl;

namespace
{

long resident_kib()
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

TEST_F(PluginRdma, AThousandCommsLeaveNothing)
{
    const int pairs = 500; // 500 sending and 500 receiving comms
    rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < 8 * pairs) {
        rlimit up = {r.rlim_max, r.rlim_max};
        if (r.rlim_max < 8 * pairs || setrlimit(RLIMIT_NOFILE, &up) != 0)
            GTEST_SKIP() << "RLIMIT_NOFILE is " << r.rlim_max;
    }
    adapters("pvrdma", "set max_qp 4000;set max_cq 4000;set max_mr 8000");
    auto files = descriptors();
    {
        Net n(12);
        long kib = resident_kib();
        std::vector<std::unique_ptr<Route>> routes;
        for (int i = 0; i < pairs; i++) {
            routes.push_back(std::make_unique<Route>(n));
            ASSERT_TRUE(routes.back()->p.up()) << i;
        }
        for (int i = 0; i < pairs; i++)
            ASSERT_TRUE(routes[static_cast<size_t>(i)]->move(static_cast<unsigned>(i))) << i;
        printf("%ld KiB resident per comm, softverbs' own queues included\n",
               (resident_kib() - kib) / (2 * pairs));
        EXPECT_NE(std::string::npos, stat().find("qps=1000 ")) << stat();
    }
    EXPECT_EQ(files, descriptors());
    EXPECT_NE(std::string::npos, stat().find("qps=0 mrs=0")) << stat();
    EXPECT_NE(std::string::npos, stat().find("leaked=0")) << stat();
    setrlimit(RLIMIT_NOFILE, &r);
}

// The statistics file has the counters of an adapter's lane, and the reason of a comm's failure.
TEST_F(PluginRdma, DoorbellsAndFailuresAreInTheStatistics)
{
    without_failover();
    adapters("pvrdma", "");
    std::string path;
    pvn_stats s;
    {
        Net n(12);
        const std::string before = "statistics for pvn-topo stat: ";
        std::string log = Log::get().text();
        size_t at = log.find(before);
        ASSERT_NE(std::string::npos, at) << log;
        path = log.substr(at + before.size(), log.find('\n', at) - at - before.size());
        Route good(n), bad(n);
        ASSERT_TRUE(good.p.up() && bad.p.up() && good.move(1) && good.move(2) && bad.move(3));
        good.close_send();
        good.close_recv();
        ASSERT_EQ(0, sv::command("fatal vmw_pvrdma0"));
        EXPECT_FALSE(bad.move(4, true));
    }
    ASSERT_EQ(0, pvn_stats_read(path.c_str(), &s, nullptr)) << "a failure keeps the file";
    EXPECT_NE(nullptr, strstr(s.head.addrs, " 127.0.0.1")) << s.head.addrs;
    ASSERT_EQ(4, s.nrows);
    int failed = 0;
    for (int i = 0; i < s.nrows; i++) {
        const pvn_stat_row &r = s.row[i];
        EXPECT_EQ(0, strncmp("rdma on vmw_pvrdma0:1", r.lanes, 21)) << r.lanes;
        EXPECT_EQ(static_cast<uint64_t>(PVN_STAT_KNOWS_DOORBELLS), r.n.known);
        EXPECT_GT(r.n.doorbells_send, 0u);
        failed += r.phase == PVN_STAT_FAILED && strstr(r.text, "pid ");
        if (r.phase == PVN_STAT_CLOSED) {
            EXPECT_EQ(2u, r.n.msgs);
            EXPECT_EQ(2u * Route::SIZE, r.n.bytes);
        }
    }
    EXPECT_EQ(2, failed);
    pvn_stats_free(&s);
    EXPECT_EQ(0, unlink(path.c_str()));
}

// An error of a completion queue ends the lane that owns it, and no other lane of the device.
TEST_F(PluginRdma, ALostCompletionQueueHurtsOnlyItsComm)
{
    without_failover();
    adapters("roce", "");
    Net n(12);
    Route dead(n), alive(n);
    ASSERT_TRUE(dead.move(1));
    ASSERT_TRUE(alive.move(2));
    bool lost = false;
    for (int i = 0; i < 100 && !lost; i++)
        lost = sv::command("qp #" + std::to_string(i) + " overrun") == 0;
    ASSERT_TRUE(lost);
    EXPECT_FALSE(dead.move(3, true));
    // The other comm makes empty polls for long enough to query its adapter's health.
    void *data = alive.dst.data(), *request = nullptr;
    size_t size = alive.size;
    int tag = 0, done = 0;
    ASSERT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_irecv(alive.p.d, alive.p.rc, 1, &data, &size, &tag,
                                                &alive.rmh, nullptr, &request));
        return request != nullptr;
    }));
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(ncclSuccess, pvn_netdrv_test(alive.p.d, request, &done, nullptr)) << i;
    void *sent = nullptr;
    EXPECT_TRUE(eventually([&] {
        if (!sent) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_isend(alive.p.d, alive.p.sc, alive.src.data(), size,
                                                    0, alive.smh, nullptr, &sent));
        }
        return pvn_netdrv_test(alive.p.d, request, &done, nullptr) != ncclSuccess || done;
    }));
    EXPECT_TRUE(done);
    ASSERT_EQ(0, sv::command("rule made do call=create_qp count=0 nth=1000000 : release"));
    Route later(n);
    EXPECT_TRUE(later.move(5));
    EXPECT_GT(sv::lib().sv_rule_seen("made"), 0) << "the device goes on";
}

// A queue pair is lost that may have no requests, so none fails. The peer would retry its own for
// half a minute.
TEST_F(PluginRdma, ALostQueuePairWithoutRequestsIsNoticed)
{
    without_failover();
    setenv("NCCL_PVRDMA_QPS", "2", 1);
    adapters("pvrdma", "");
    Net n(12);
    int noticed = 0;
    for (int k = 0; k < 4; k++) {
        Log::get().clear();
        Route r(n);
        ASSERT_TRUE(r.move(1));
        ASSERT_TRUE(r.move(2));
        bool lost = false;
        for (int i = 0, pairs = 0; i < 100 && !lost; i++) {
            std::string pair = "#" + std::to_string(i);
            if (sv::command("path " + pair) == 0 && pairs++ == k)
                lost = sv::command("qp " + pair + " fatal") == 0;
        }
        ASSERT_TRUE(lost) << k;
        for (unsigned salt = 3; salt < 1000 && r.move(salt, true) && !HasFailure(); salt++)
            ;
        EXPECT_TRUE(r.send_rc != ncclSuccess || r.recv_rc != ncclSuccess) << k;
        EXPECT_FALSE(said("retry counter exceeded")) << k << Log::get().warnings();
        noticed += said("a queue pair, of which the device reports a fatal error");
    }
    EXPECT_LT(0, noticed) << "each queue pair had requests";
}

// A link that stays down ends the comm in bounded time, although the device would retry its
// requests for longer.
TEST_F(PluginRdma, APortThatStaysDownEndsItsComms)
{
    without_failover();
    adapters("roce", "set devices 2");
    Net n(12);
    Route down(n, 0, 0), up(n, 1, 1);
    ASSERT_TRUE(down.move(1));
    ASSERT_EQ(0, sv::command("port mlx5_0 1 down"));
    EXPECT_FALSE(down.move(2, true));
    EXPECT_TRUE(said("mlx5_0 port 1 has been down for")) << Log::get().warnings();
    EXPECT_TRUE(up.move(3));
}

TEST_F(PluginRdma, AQueueThatCannotBePolled)
{
    without_failover();
    adapters("roce", "rule poll fail call=poll_cq errno=EIO nth=1000000");
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    ASSERT_EQ(0, sv::command("rule broken fail call=poll_cq errno=EIO nth=1 count=0"));
    EXPECT_FALSE(r.move(2, true));
    EXPECT_GT(sv::lib().sv_rule_fired("broken"), 0);
    EXPECT_TRUE(said("polling the completion queue")) << Log::get().warnings();
}

// A request of one end fails. The other end learns of it over the control connection.
TEST_F(PluginRdma, BothEndsHearOfAFailedRequest)
{
    without_failover();
    adapters("roce", "set timeout_cap_ms 20");
    Net n(12);
    Route r(n), other(n);
    ASSERT_TRUE(r.move(1));
    ASSERT_TRUE(other.move(1));
    ASSERT_EQ(0, sv::command("rule broken status status=REM_ACCESS_ERR op=WRITE_IMM min_len=5000"));
    EXPECT_FALSE(r.move(2, true));
    EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
    EXPECT_NE(ncclSuccess, r.send_rc);
    EXPECT_NE(ncclSuccess, r.recv_rc);
    const std::string ends[] = {"local " + host_name() + " mlx5_0:1 QPN 0x",
                                "peer " + host_name() + " pid "};
    EXPECT_TRUE(Log::get().warned({"status 10 (remote access error)", "the comm had worked for",
                                   "(1 message, 5000 bytes)", ends[0], ends[1], " QPN 0x",
                                   " GID ::ffff:", "; likely: ", "; try: "}))
        << Log::get().warnings();
    EXPECT_TRUE(Log::get().warned(
        {"the peer gave up: ", "status 10", "(1 message, 5000 bytes)", ends[0], ends[1]}))
        << Log::get().warnings();
    EXPECT_TRUE(other.move(3));
}

// A sender in two-sided mode that closes waits for copies that are still in flight, but not for
// copies that nobody needs any more. It then does not poll the queue again and again.
TEST_F(PluginRdma, ASenderThatClosesWaitsForNobodyWhoIsGone)
{
    without_failover();
    setenv("NCCL_PVRDMA_RDMA_MODE", "send", 1);
    adapters("roce", "set async 1");
    Net n(12);
    uint64_t polls[2] = {};
    for (bool gone : {false, true}) {
        Route r(n);
        ASSERT_TRUE(r.move(1));
        ASSERT_EQ(0, sv::command("rule slow delay ms=200 op=SEND min_len=5000"));
        void *req = nullptr;
        int done = 0;
        ASSERT_TRUE(eventually([&] {
            return (req ? pvn_netdrv_test(r.p.d, req, &done, nullptr)
                        : pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), Route::SIZE, 0, r.smh,
                                           nullptr, &req)) != ncclSuccess ||
                   done;
        }));
        EXPECT_EQ(1, done) << Log::get().warnings();
        if (gone)
            r.close_recv();
        struct sv_stats before, after;
        sv::lib().sv_total_stats(&before);
        r.close_send();
        sv::lib().sv_total_stats(&after);
        polls[gone] = after.poll - before.poll;
        EXPECT_EQ(1, sv::lib().sv_rule_fired("slow"));
    }
    EXPECT_GT(polls[0], 20U) << "nothing was in flight";
    EXPECT_LE(polls[1], 4U);
}

// RDMA_CHUNK sets the size of chunks over RDMA. If it is not set, the older TCP_CHUNK applies with
// several queue pairs, and a lone queue pair takes whole messages. A chunk of 5000 bytes would end in
// the middle of a line of NCCL's protocol LL128.
TEST_F(PluginRdma, ChunksHaveTheirOwnSize)
{
    const struct {
        const char *qps, *chunk;
        uint64_t chunks; // of a message of 5000 bytes
    } cases[] = {{"2", "0", 2}, {"2", "8K", 1}, {"1", "0", 1}, {"1", "4K", 2}, {"2", "5000", 2}};
    setenv("NCCL_PVRDMA_TCP_CHUNK", "4K", 1);
    for (auto &c : cases) {
        setenv("NCCL_PVRDMA_QPS", c.qps, 1);
        setenv("NCCL_PVRDMA_RDMA_CHUNK", c.chunk, 1);
        adapters("roce", "");
        Net n(12);
        Route r(n);
        ASSERT_TRUE(r.move(1));
        struct sv_stats before, after;
        sv::lib().sv_total_stats(&before);
        ASSERT_TRUE(r.move(2));
        sv::lib().sv_total_stats(&after);
        // There is one completion at each end.
        EXPECT_EQ(2 * c.chunks, after.cqe - before.cqe) << c.qps << ", " << c.chunk;
    }
    unsetenv("NCCL_PVRDMA_TCP_CHUNK");
    unsetenv("NCCL_PVRDMA_RDMA_CHUNK");
    unsetenv("NCCL_PVRDMA_QPS");
}

// NCCL aborts: it deregisters the memory while part of a message still waits for room in the send
// queue, and then closes the comm.
TEST_F(PluginRdma, ARegistrationGivenBackWithRequestsOpen)
{
    setenv("NCCL_PVRDMA_RDMA_CHUNK", "64K", 1);
    adapters("pvrdma", "set max_qp_wr 64");
    Net n(12);
    unsetenv("NCCL_PVRDMA_RDMA_CHUNK");
    for (bool sender : {true, false}) {
        Pair p(n);
        ASSERT_TRUE(p.up());
        std::vector<unsigned char> src(16 << 20), dst(16 << 20);
        void *smh = nullptr, *rmh = nullptr, *sreq = nullptr, *rreq = nullptr, *data = dst.data();
        size_t size = dst.size();
        int tag = 0;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), size, NCCL_PTR_HOST, &smh));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), size, NCCL_PTR_HOST, &rmh));
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rreq));
        int done = 0;
        ASSERT_TRUE(eventually([&] {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq, &done, nullptr));
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_isend(p.d, p.sc, src.data(), size, 0, smh, nullptr, &sreq));
            return sreq != nullptr;
        }));
        if (sender) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, smh));
            p.close_send();
        } else {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, rmh));
            p.close_recv();
        }
        EXPECT_EQ(0, done);
    }
}

// A range outside its registration is refused at either end, and the comm goes on.
TEST_F(PluginRdma, BytesOutsideTheirRegistrationAreRefused)
{
    adapters("pvrdma", "");
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<unsigned char> src(1 << 20, 7), dst(1 << 20);
    void *smh = nullptr, *rmh = nullptr, *sreq = nullptr, *rreq = nullptr;
    const size_t len = 1 << 19;
    int tag = 0, done = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), len, NCCL_PTR_HOST, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), len, NCCL_PTR_HOST, &rmh));
    for (size_t size : {size_t{8}, size_t{100000}}) {
        void *data = dst.data();
        done = 0;
        sreq = rreq = nullptr;
        auto receive = [&](size_t at) {
            data = dst.data() + at;
            return pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rreq);
        };
        EXPECT_NE(ncclSuccess, receive(len));
        EXPECT_EQ(nullptr, rreq);
        EXPECT_TRUE(Log::get().warned({"irecv", "are not in the registration given with them"}))
            << Log::get().warnings();
        ASSERT_EQ(ncclSuccess, receive(len - size)) << Log::get().warnings();
        ASSERT_NE(nullptr, rreq);
        ncclResult_t rc = ncclSuccess;
        ASSERT_TRUE(eventually([&] {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq, &done, nullptr));
            rc = pvn_netdrv_isend(p.d, p.sc, src.data() + len - size + 1, size, 0, smh, nullptr,
                                  &sreq);
            return rc != ncclSuccess || sreq;
        }));
        EXPECT_NE(ncclSuccess, rc);
        EXPECT_TRUE(Log::get().warned({"isend", "are not in the registration given with them"}))
            << Log::get().warnings();
        ASSERT_TRUE(eventually([&] {
            if (!sreq) {
                EXPECT_EQ(ncclSuccess,
                          pvn_netdrv_isend(p.d, p.sc, src.data(), size, 0, smh, nullptr, &sreq));
            }
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq, &done, nullptr));
            return done != 0;
        })) << Log::get().warnings();
        EXPECT_EQ(7, dst[len - 1]);
        done = 0;
        EXPECT_TRUE(eventually(
            [&] { return pvn_netdrv_test(p.d, sreq, &done, nullptr) != ncclSuccess || done; }));
        EXPECT_EQ(1, done);
    }
}

// Repeats the call, which tests or posts, until it fails.
ncclResult_t until_it_fails(const std::function<ncclResult_t()> &call)
{
    ncclResult_t rc = ncclSuccess;
    EXPECT_TRUE(eventually([&] { return (rc = call()) != ncclSuccess; }, 10)) << "it waits on";
    return rc;
}

// A buffer that no region of the device holds ends the comm. The error does not say that it lies
// outside its registration, and the plugin does not retry it over new lanes.
TEST_F(PluginRdma, AReceiveThatNoRegionHoldsEndsItsComm)
{
    adapters("roce", "set max_mr_size 262144");
    Net n(12);
    for (int buffers : {1, 2}) {
        SCOPED_TRACE(buffers);
        Log::get().clear();
        Pair p(n);
        ASSERT_TRUE(p.up());
        std::vector<unsigned char> dst(1 << 20);
        void *mh = nullptr, *mhs[2], *r = nullptr, *data[2];
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.size(), NCCL_PTR_HOST, &mh));
        size_t sizes[2] = {200000, 8};
        int tags[2] = {0, 1};
        mhs[0] = mhs[1] = mh;
        data[0] = dst.data() + 100000;
        data[1] = dst.data();
        EXPECT_NE(ncclSuccess,
                  pvn_netdrv_irecv(p.d, p.rc, buffers, data, sizes, tags, mhs, nullptr, &r));
        EXPECT_TRUE(said("larger than half the device's largest region")) << Log::get().text();
        EXPECT_FALSE(said("failover:")) << Log::get().text();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, mh));
    }
}

class Goodbye : public PluginRdma, public testing::WithParamInterface<const char *>
{
  protected:
    void SetUp() override
    {
        PluginRdma::SetUp();
        setenv("NCCL_PVRDMA_RDMA_MODE", GetParam(), 1);
        adapters("pvrdma", "");
    }
};
INSTANTIATE_TEST_SUITE_P(Modes, Goodbye, testing::Values("record", "imm", "send"),
                         [](const auto &i) { return std::string(i.param); });

// An adapter does not report that the other end's queue pair is gone.
TEST_P(Goodbye, TheSenderHearsIt)
{
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    r.close_recv();
    void *req = nullptr;
    EXPECT_EQ(ncclRemoteError, until_it_fails([&] {
                  int done = 0;
                  ncclResult_t rc = req ? pvn_netdrv_test(r.p.d, req, &done, nullptr)
                                        : pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), Route::SIZE,
                                                           0, r.smh, nullptr, &req);
                  if (done)
                      req = nullptr;
                  return rc;
              }));
    EXPECT_TRUE(Log::get().warned({"closed its end"})) << Log::get().warnings();
}

TEST_P(Goodbye, TheReceiverHearsIt)
{
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    r.close_send();
    void *req = nullptr, *data = r.dst.data();
    size_t size = Route::SIZE;
    int tag = 0, done = 0;
    EXPECT_EQ(ncclRemoteError, until_it_fails([&] {
                  return req ? pvn_netdrv_test(r.p.d, req, &done, nullptr)
                             : pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &size, &tag, &r.rmh,
                                                nullptr, &req);
              }));
    EXPECT_EQ(0, done);
    EXPECT_TRUE(Log::get().warned({"closed its end"})) << Log::get().warnings();
}

// NCCL registers users' buffers in one thread while another moves data on the same comm. It goes on
// without a buffer whose registration is refused.
TEST_F(PluginRdma, ARefusedRegistrationLeavesTheTrafficAlone)
{
    adapters("pvrdma", "set memlock_kb 4096");
    Net n(12);
    Route r(n);
    std::vector<char> big(32 << 20);
    std::atomic<bool> stop{false};
    std::atomic<int> refused{0};
    std::thread other([&] {
        while (!stop) {
            void *mh = nullptr;
            refused +=
                pvn_netdrv_reg_mr(r.p.d, r.p.sc, big.data(), big.size(), NCCL_PTR_HOST, &mh) != 0;
            refused +=
                pvn_netdrv_reg_mr(r.p.d, r.p.rc, big.data(), big.size(), NCCL_PTR_HOST, &mh) != 0;
        }
    });
    // A waiting comm checks the health of its lane.
    void *req = nullptr, *data = r.dst.data();
    size_t size = Route::SIZE;
    int tag = 0, done = 0;
    ncclResult_t rc = pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &size, &tag, &r.rmh, nullptr, &req);
    EXPECT_EQ(ncclSuccess, rc);
    eventually([&] { return (rc = pvn_netdrv_test(r.p.d, req, &done, nullptr)) != ncclSuccess; },
               3);
    EXPECT_EQ(ncclSuccess, rc);
    stop = true;
    other.join();
    EXPECT_GT(refused, 100);
}

TEST_F(PluginRdma, RegistrationsComeAndGoBesideTheTraffic)
{
    for (const char *transport : {"rdma", "tcp"}) {
        setenv("NCCL_PVRDMA_TRANSPORT", transport, 1);
        adapters("pvrdma", "");
        Net n(12);
        Route r(n);
        std::vector<char> more(2 << 20);
        std::atomic<bool> stop{false};
        std::atomic<int> refused{0}, made{0};
        std::thread other([&] {
            while (!stop)
                for (void *comm : {r.p.sc, r.p.rc}) {
                    void *mh = nullptr;
                    refused += pvn_netdrv_reg_mr(r.p.d, comm, more.data(), more.size(),
                                                 NCCL_PTR_HOST, &mh) != ncclSuccess;
                    refused += pvn_netdrv_dereg_mr(r.p.d, comm, mh) != ncclSuccess;
                    made++;
                }
        });
        bool ok = true;
        for (unsigned i = 1; ok && (i < 200 || made < 200); i++)
            ok = r.move(i);
        stop = true;
        other.join();
        EXPECT_TRUE(ok) << transport << ": " << r.send_rc << " " << r.recv_rc;
        EXPECT_EQ(0, refused) << transport;
    }
}

TEST_F(PluginRdma, MemlockTooSmallIsNamed)
{
    adapters("roce", "set memlock_kb 2048");
    Net n(12);
    Pair p(n);
    std::vector<char> big(8 << 20);
    void *mh = nullptr;
    EXPECT_NE(ncclSuccess,
              pvn_netdrv_reg_mr(p.d, p.sc, big.data(), big.size(), NCCL_PTR_HOST, &mh));
    EXPECT_TRUE(said("RLIMIT_MEMLOCK")) << Log::get().warnings();
    EXPECT_TRUE(said("ulimit -l unlimited")) << Log::get().warnings();
}

// Two joined devices at one end and a single one at the other use one lane. Two at both ends use
// two lanes.
TEST_F(PluginRdma, DifferentNumbersOfDevices)
{
    adapters("roce", "set devices 2");
    Net n(12);
    ncclNetVDeviceProps_v12_t join = {};
    join.ndevs = 2;
    join.devs[0] = 0;
    join.devs[1] = 1;
    int both = -1;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &both, &join));
    Log::get().clear();
    Route r(n, both, 0), same(n, both, both);
    EXPECT_TRUE(r.move(1));
    EXPECT_TRUE(said("1 lane: rdma on")) << Log::get().text();
    EXPECT_TRUE(same.move(2));
    EXPECT_TRUE(same.move(3));
    EXPECT_TRUE(said("2 lanes: rdma on")) << Log::get().text();
}

// Their PCI paths lie in softverbs' own tree, where NCCL does not look.
TEST_F(PluginRdma, DevicesOutsideTheRealSysfsAreNotJoined)
{
    adapters("roce", "set devices 2");
    unsetenv("NCCL_PVRDMA_VDEVICE");
    Net n(12);
    ncclNetVDeviceProps_v12_t join = {};
    join.ndevs = 2;
    join.devs[1] = 1;
    int both = -1;
    EXPECT_EQ(ncclInvalidUsage, pvn_netdrv_make_vdevice(n.d, &both, &join));
    EXPECT_TRUE(said("has a PCI path outside /sys")) << Log::get().text();
}

// Receives are posted one at a time. Entries use one lane, and most messages use others.
TEST_F(PluginRdma, ManyDevicesAndOneReceiveAtATime)
{
    for (const char *profile : {"pvrdma", "roce"}) {
        adapters(profile, "set devices 4");
        Net n(12);
        const int all = joined(n, 4);
        Log::get().clear();
        Route r(n, all, all);
        for (unsigned i = 0; i < 200; i++) {
            r.size = i % 3 ? 100 : Route::SIZE;
            ASSERT_TRUE(r.move(i)) << profile << " message " << i;
        }
        EXPECT_TRUE(said("4 lanes: rdma on")) << Log::get().text();
    }
}

// A time without calls is not a stall of later requests. The connection is checked in every 64th
// test, which here is the test that ends the last message. From then on nothing moves.
TEST_F(PluginRdma, AReceiveAfterAnIdleTimeIsNotStalled)
{
    setenv("NCCL_PVRDMA_STALL_WARN", "1s", 1);
    adapters("pvrdma", "");
    {
        Net n(12);
        Route r(n);
        ASSERT_TRUE(r.p.up());
        void *req[3] = {}, *sent[2] = {}, *data = r.dst.data();
        int tag = 0, done = 0;
        auto receive = [&](int i) {
            ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &r.size, &tag, &r.rmh,
                                                    nullptr, &req[i]));
            ASSERT_NE(nullptr, req[i]);
        };
        receive(0);
        receive(1);
        for (int i = 0; i < 63; i++)
            ASSERT_EQ(ncclSuccess, pvn_netdrv_test(r.p.d, req[0], &done, nullptr));
        for (auto &s : sent)
            ASSERT_TRUE(eventually([&] {
                return pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), 8, 0, r.smh, nullptr, &s) !=
                           ncclSuccess ||
                       s;
            }));
        for (int i = 0; i < 2; i++) {
            ASSERT_EQ(ncclSuccess, pvn_netdrv_test(r.p.d, req[i], &done, nullptr));
            ASSERT_EQ(1, done);
            usleep(i == 0 ? 150000 : 1300000);
        }
        receive(2);
        for (int i = 0; i < 200; i++)
            ASSERT_EQ(ncclSuccess, pvn_netdrv_test(r.p.d, req[2], &done, nullptr));
        EXPECT_FALSE(said("nothing has moved")) << Log::get().warnings();
        // From now on it is stalled.
        EXPECT_TRUE(eventually([&] {
            pvn_netdrv_test(r.p.d, req[2], &done, nullptr);
            return said("nothing has moved");
        }));
    }
    unsetenv("NCCL_PVRDMA_STALL_WARN");
}

// The two ends of a comm run in two threads, as on two machines, with several messages in flight.
// Each buffer must have the message that it was posted for.
struct InTwoThreads {
    enum { DEPTH = 4 };
    Route r;
    size_t most; // bytes of a message
    unsigned rounds;
    std::thread sends, receives;
    bool good = true;

    InTwoThreads(Net &n, int dev, size_t bytes, unsigned count)
        : r(n, dev, dev), most(bytes), rounds(count)
    {
        EXPECT_TRUE(r.p.up());
    }
    size_t size_of(unsigned i) const
    {
        return i * 7 % (most + 1);
    }
    // Calls post(i, request) and look(i, size) until one fails or `done` messages have gone.
    void run(ncclResult_t *rc, const std::function<ncclResult_t(unsigned, void **)> &post,
             const std::function<void(unsigned, int)> &look)
    {
        void *req[DEPTH] = {};
        unsigned posted = 0, done = 0;
        *rc = ncclSuccess;
        while (done < rounds && *rc == ncclSuccess) {
            if (posted < rounds && posted - done < DEPTH) {
                *rc = post(posted, &req[posted % DEPTH]);
                posted += req[posted % DEPTH] != nullptr;
            }
            int got = 0, ended = 0;
            if (*rc == ncclSuccess && done < posted)
                *rc = pvn_netdrv_test(r.p.d, req[done % DEPTH], &ended, &got);
            if (!ended) {
                std::this_thread::yield();
                continue;
            }
            look(done, got);
            req[done++ % DEPTH] = nullptr;
        }
    }
    void start()
    {
        sends = std::thread([this] {
            run(
                &r.send_rc,
                [this](unsigned i, void **req) {
                    unsigned char *at = &r.src[i % DEPTH * most];
                    if (size_of(i))
                        memset(at, static_cast<int>(i & 0xff), size_of(i));
                    return pvn_netdrv_isend(r.p.d, r.p.sc, at, size_of(i), 0, r.smh, nullptr, req);
                },
                [](unsigned, int) {});
        });
        receives = std::thread([this] {
            run(
                &r.recv_rc,
                [this](unsigned i, void **req) {
                    void *at = &r.dst[i % DEPTH * most];
                    int tag = 0;
                    return pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &at, &most, &tag, &r.rmh, nullptr,
                                            req);
                },
                [this](unsigned i, int got) {
                    const unsigned char *at = &r.dst[i % DEPTH * most];
                    good = good && static_cast<size_t>(got) == size_of(i);
                    for (size_t b = 0; good && b < size_of(i); b++)
                        good = at[b] == (i & 0xff);
                });
        });
    }
};

TEST_F(PluginRdma, EveryEndInAThreadOfItsOwn)
{
    for (const char *mode : {"record", "imm"})
        for (const char *profile : {"pvrdma", "roce"})
            for (const char *set : {"set async 0", "set async 1"})
                for (int devices : {1, 3}) {
                    SCOPED_TRACE(std::string(mode) + " " + profile + " " + set);
                    setenv("NCCL_PVRDMA_RDMA_MODE", mode, 1);
                    adapters(profile, std::string(set) + ";set devices " + std::to_string(devices));
                    Net n(12);
                    const int dev = joined(n, devices);
                    const size_t large = Route::SIZE / InTwoThreads::DEPTH;
                    std::vector<std::unique_ptr<InTwoThreads>> all;
                    for (size_t most : {size_t(8), size_t(300), large})
                        all.push_back(std::make_unique<InTwoThreads>(n, dev, most, 500));
                    for (auto &t : all)
                        t->start();
                    for (auto &t : all) {
                        t->sends.join();
                        t->receives.join();
                        EXPECT_EQ(ncclSuccess, t->r.send_rc) << Log::get().warnings();
                        EXPECT_EQ(ncclSuccess, t->r.recv_rc) << Log::get().warnings();
                        EXPECT_TRUE(t->good) << "up to " << t->most;
                    }
                }
}

// The inherited objects are behind descriptors that the child shares with its parent. If the child
// destroyed them, the parent would lose them.
TEST_F(PluginRdma, AForkedChildThatCallsInitTakesNothingFromItsParent)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a process with threads";
#endif
    adapters("pvrdma", "");
    Net n(12);
    Route before(n);
    ASSERT_TRUE(before.move(1));
    ASSERT_TRUE(sv::threads_asleep());
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
        ncclNetProperties_v12_t props;
        void *ctx = nullptr;
        int devices = 0;
        if (pvn_netdrv_init(n.d, &ctx, 1, &config, logger, nullptr) != ncclSuccess ||
            pvn_netdrv_devices(n.d, &devices) != ncclSuccess || devices < 1 ||
            pvn_netdrv_properties(n.d, 0, &props) != ncclSuccess ||
            strcmp(props.name, "vmw_pvrdma0") != 0 || pvn_netdrv_finalize(n.d, ctx) != ncclSuccess)
            _exit(1);
        pvn_netdrv_close(n.d); // unmaps the library
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status) << "the child has adapters of its own";
    EXPECT_NE(std::string::npos, stat().find("inherited=0")) << stat();
    EXPECT_TRUE(before.move(2));
    Route after(n); // uses the parent's protection domain and completion queues
    EXPECT_TRUE(after.move(3));
}

} // namespace
