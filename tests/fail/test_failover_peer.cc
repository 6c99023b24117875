// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A peer that agreed on failover and breaks its rules: frames that are not possible, in the wrong order, without end. Its
// comm ends with a reason, or goes on unharmed, and no other comm of the process notices.
#include "fail/raw_comm.h"

#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <functional>

extern "C" {
#include "engine/engine.h"
#include "stats/stats_read.h"
}

using namespace nccl;

namespace
{

constexpr uint64_t FEATURES = PVN_FEATURE_FAILOVER | PVN_FEATURE_FAILBACK | PVN_FEATURE_ALIVE;

// Before the plugin reads its parameters, which it does once.
const bool configured = [] {
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "3s", 1);
    return true;
}();

pvn_hello with_features(uint64_t session)
{
    pvn_hello h = raw::plain_hello(session);
    h.features = FEATURES;
    return h;
}

raw::Bytes lane_down()
{
    return raw::text_frame(PVN_FRAME_LANE_DOWN, "a cable was pulled");
}

raw::Bytes report_frame(const pvn_engine_report &r)
{
    raw::Bytes b(512);
    b.resize(pvn_report_encode(b.data(), b.size(), &r));
    return raw::frame(PVN_FRAME_REPORT, b);
}

raw::Bytes answer_frame(uint64_t first, uint64_t next)
{
    pvn_engine_answer a = {first, next, {}};
    raw::Bytes b(64);
    b.resize(pvn_answer_encode(b.data(), b.size(), &a));
    return raw::frame(PVN_FRAME_ANSWER, b);
}

// A comm whose peers keep the rules, in the same process.
class Others
{
  public:
    explicit Others(Net &n) : p(n)
    {
    }
    ~Others()
    {
        Flow f = plain(p, {1, 1000, 100000});
        EXPECT_TRUE(f.run()) << "the peer of another comm has disturbed this one";
        p.close();
    }

  private:
    Pair p;
};

// The plugin's calls, while the peer does something in a thread of its own; then until `enough`, or an error.
ncclResult_t during(const std::function<void()> &peer, const std::function<ncclResult_t()> &call,
                    const std::function<bool()> &enough)
{
    std::atomic<bool> over{false};
    ncclResult_t rc = ncclSuccess;
    std::thread t([&] {
        peer();
        over = true;
    });
    EXPECT_TRUE(eventually([&] {
        rc = rc == ncclSuccess ? call() : rc;
        return over && (rc != ncclSuccess || enough());
    })) << Log::get().text();
    t.join();
    return rc;
}

// In a process of its own: the plugin folds lines that come again within seconds.
void alone(const std::function<void()> &body)
{
    fflush(nullptr);
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        body();
        fflush(nullptr);
        _exit(testing::Test::HasFailure());
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status) << "see above";
}

bool never()
{
    return false;
}

// ---- the plugin receives ----

struct Receiving : Receiver {
    Others others{n};
    RawEnd next;
    bool done = false;
    Receiving() : Receiver(FEATURES)
    {
    }
    ncclResult_t call()
    {
        void *data = b.data(), *mh = nullptr;
        size_t room = b.n;
        int tag = 0, now = 0;
        ncclResult_t r = ncclSuccess;
        if (!req && !done)
            r = pvn_netdrv_irecv(n.d, rc, 1, &data, &room, &tag, &mh, nullptr, &req);
        if (req && r == ncclSuccess)
            r = pvn_netdrv_test(n.d, req, &now, &size);
        if (now) {
            done = true;
            req = nullptr;
        }
        return r;
    }
    // The peer connects again, and reads the plugin's report.
    void connect_again(uint64_t nonce, uint64_t resumes = 9)
    {
        pvn_hello mine = with_features(h.session);
        mine.resumes = resumes;
        next = dial_plugin(h.addr.port, nonce, mine);
        int type = 0;
        raw::Bytes body = next.ctrl.recv_frame(&type);
        EXPECT_EQ(PVN_FRAME_REPORT, type);
        pvn_engine_report r = {};
        EXPECT_EQ(0, pvn_report_decode(body.data(), body.size(), &r, nullptr));
    }
    ncclResult_t with(const std::function<void()> &peer, const std::function<bool()> &enough)
    {
        return during(
            peer, [&] { return call(); }, enough);
    }
    // After a proper answer the message of this number arrives.
    void goes_on(const std::function<void()> &lie)
    {
        EXPECT_EQ(ncclSuccess, with(
                                   [&] {
                                       lie();
                                       next.ctrl.send(answer_frame(0, 0));
                                       next.stream.send(message(0, {1, 2, 3}, 3));
                                   },
                                   [&] { return done; }))
            << Log::get().text();
        EXPECT_EQ(3, size);
        EXPECT_TRUE(said("connected again after")) << Log::get().text();
    }
    void ends(const std::function<void()> &lie, const char *why)
    {
        EXPECT_NE(ncclSuccess, with(lie, never));
        EXPECT_TRUE(Log::get().warned({why})) << Log::get().text();
        EXPECT_NE(ncclSuccess, call()) << "the request is open, though its lanes may be gone";
    }
};

TEST(FailoverReceiving, AProperPeer)
{
    alone([] {
        Receiving r;
        r.goes_on([&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
        });
    });
}

// Whether the statistics of this process have such a comm, as pvn-topo stat would see it.
bool has_row(const std::string &dir, const std::function<bool(const pvn_stat_row &)> &fits)
{
    bool found = false;
    for (const auto &file : std::filesystem::directory_iterator(dir)) {
        pvn_stats s = {};
        if (pvn_stats_read(file.path().c_str(), &s, nullptr) != 0)
            continue;
        for (int i = 0; i < s.nrows; i++)
            found |= fits(s.row[i]);
        pvn_stats_free(&s);
    }
    return found;
}

// In a process of its own that has its statistics there.
void alone_with_statistics(const std::function<void(const std::string &dir)> &body)
{
    char dir[] = "/tmp/pvn-failover-stat.XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(dir));
    alone([&] {
        setenv("NCCL_PVRDMA_STATS_DIR", dir, 1);
        body(dir);
    });
    std::filesystem::remove_all(dir);
}

TEST(FailoverReceiving, WhatItWaitsForIsInTheStatistics)
{
    alone_with_statistics([](const std::string &dir) {
        Receiving r;
        r.goes_on([&] {
            r.ctrl.send(lane_down());
            EXPECT_TRUE(eventually([&] {
                return has_row(dir, [](const pvn_stat_row &row) {
                    return row.n.stuck_ns &&
                           row.text == std::string("failover: the peer did not connect; the peer's "
                                                   "process is alive and is waited for");
                });
            }));
            r.connect_again(10);
        });
    });
}

static void ends_by_a_peer_that_gives_up(Receiving &r)
{
    r.ends(
        [&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
            r.next.ctrl.send(reason("its GPU fell off the bus"));
        },
        "the peer gave up: its GPU fell off the bus");
}

// However often the caller tests its open requests after the error.
TEST(FailoverReceiving, TheReasonOfItsEndStaysInTheStatistics)
{
    alone_with_statistics([](const std::string &dir) {
        Receiving r;
        ends_by_a_peer_that_gives_up(r);
        auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
        while (std::chrono::steady_clock::now() < until)
            EXPECT_NE(ncclSuccess, r.call());
        EXPECT_TRUE(has_row(dir, [](const pvn_stat_row &row) {
            return row.phase == PVN_STAT_FAILED && strstr(row.text, "its GPU fell off the bus");
        }));
    });
}

TEST(FailoverReceiving, ImpossibleAnswers)
{
    for (auto &lie : std::vector<std::pair<uint64_t, uint64_t>>{
             {5, 1}, {0, 257}, {UINT64_MAX, 0}, {0, UINT64_MAX}}) {
        alone([&] {
            Receiving r;
            r.ends(
                [&] {
                    r.ctrl.send(lane_down());
                    r.connect_again(10);
                    r.next.ctrl.send(answer_frame(lie.first, lie.second));
                },
                "the peer goes on from message");
        });
    }
}

// The connection is made again, as after any loss.
TEST(FailoverReceiving, AnotherFrameOrHalfAnAnswer)
{
    const raw::Bytes half = [] {
        raw::Bytes b = answer_frame(0, 0);
        b.resize(b.size() / 2);
        return b;
    }();
    for (const raw::Bytes &lie :
         {raw::frame(PVN_FRAME_READY, {1, 0, 0, 0}), report_frame(pvn_engine_report{}), half}) {
        alone([&] {
            Receiving r;
            r.goes_on([&] {
                r.ctrl.send(lane_down());
                r.connect_again(10);
                r.next.ctrl.send(lie);
                shutdown(r.next.ctrl.fd, SHUT_WR);
                r.connect_again(11);
            });
        });
    }
}

TEST(FailoverReceiving, APeerThatGivesUpBeforeItsAnswer)
{
    alone([] {
        Receiving r;
        ends_by_a_peer_that_gives_up(r);
    });
}

TEST(FailoverReceiving, TheSameLossManyTimes)
{
    alone([] {
        Receiving r;
        r.goes_on([&] {
            for (int i = 0; i < 1000; i++)
                r.ctrl.send(lane_down());
            r.connect_again(10);
        });
    });
}

TEST(FailoverReceiving, ASwitchToNothing)
{
    alone([] {
        Receiving r;
        r.goes_on([&] {
            r.ctrl.send(raw::text_frame(PVN_FRAME_SWITCH, "better lanes"));
            r.connect_again(10);
        });
    });
}

TEST(FailoverReceiving, FramesOfAFailoverWithoutOne)
{
    for (const raw::Bytes &lie : {answer_frame(0, 0), report_frame(pvn_engine_report{}),
                                  raw::frame(PVN_FRAME_ALIVE, {0, 0, 0, 0})}) {
        alone([&] {
            Receiving r;
            r.ends([&] { r.ctrl.send(lie); }, "frame on a connection that is up");
        });
    }
}

// It is alive, but cannot be reached any more.
TEST(FailoverReceiving, APeerThatDoesNotComeBack)
{
    alone([] {
        Receiving r;
        r.ends(
            [&] {
                r.ctrl.send(lane_down());
                r.ctrl.reset();
            },
            "no new connection within 3 s");
    });
}

TEST(FailoverReceiving, APeerThatIsAliveAndDoesNotComeBack)
{
    alone([] {
        setenv("NCCL_PVRDMA_STALL_WARN", "1s", 1);
        setenv("NCCL_PVRDMA_STALL_ABORT", "2s", 1);
        Receiving r;
        r.ends([&] { r.ctrl.send(lane_down()); },
               "the peer did not connect: no new connection within 2 s (NCCL_PVRDMA_STALL_ABORT)");
        EXPECT_TRUE(said("the peer's process is alive and is waited for")) << Log::get().text();
    });
}

// The peer has lost what the plugin still has: nothing has said so but the new connection.
TEST(FailoverReceiving, AConnectionInPlaceOfOneThatIsOpen)
{
    alone([] {
        Receiving r;
        r.goes_on([&] { r.connect_again(10); });
    });
}

// One that was closed again is none.
TEST(FailoverReceiving, AConnectionInPlaceThatIsClosedAgain)
{
    alone([] {
        Receiving r;
        auto hang_up = [&] {
            pvn_hello mine = with_features(r.h.session);
            mine.resumes = 9;
            {
                raw::Sock s = raw::dial(r.h.addr.port);
                s.send(raw::preamble(PVN_PREAMBLE_CTRL, r.h.session, 100));
                s.send(raw::hello(mine));
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(600));
            r.stream.send(message(0, {1, 2, 3}, 3));
        };
        EXPECT_EQ(ncclSuccess, r.with(hang_up, [&] { return r.done; })) << Log::get().text();
        EXPECT_FALSE(said("failover"));
    });
}

// A connection for a comm that does not exist is not taken.
TEST(FailoverReceiving, ConnectionsThatReplaceNothing)
{
    alone([] {
        Receiving r;
        std::vector<raw::Sock> made;
        auto connect = [&] {
            for (uint64_t i = 0; i < 20; i++) {
                pvn_hello mine = with_features(r.h.session);
                mine.resumes = 1000 + i;
                made.push_back(raw::dial(r.h.addr.port));
                made.back().send(raw::preamble(PVN_PREAMBLE_CTRL, r.h.session, 100 + i));
                made.back().send(raw::hello(mine));
            }
            r.stream.send(message(0, {1, 2, 3}, 3));
        };
        auto lose = [&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
            r.next.ctrl.send(answer_frame(1, 1));
            r.next.stream.send(message(1, {4, 5}, 2));
        };
        auto arrived = [&] { return r.done; };
        EXPECT_EQ(ncclSuccess, r.with(connect, arrived));
        EXPECT_EQ(3, r.size);
        EXPECT_FALSE(said("connected again"));
        r.done = false;
        EXPECT_EQ(ncclSuccess, r.with(lose, arrived)) << Log::get().text();
        EXPECT_EQ(2, r.size);
    });
}

// ---- the plugin sends ----

struct Sending : Sender {
    Others others{n};
    RawEnd next;
    int sent = 0;
    Sending() : Sender(0, with_features(77))
    {
        b.n = 1000;
    }
    ncclResult_t call()
    {
        int now = 0;
        ncclResult_t r = ncclSuccess;
        if (!req)
            r = pvn_netdrv_isend(n.d, sc, b.data(), b.n, 0, nullptr, nullptr, &req);
        if (req && r == ncclSuccess)
            r = pvn_netdrv_test(n.d, req, &now, nullptr);
        if (now) {
            sent++;
            req = nullptr;
        }
        return r;
    }
    // Acknowledges a message on a stream.
    static void take(raw::Sock &stream)
    {
        EXPECT_EQ(PVN_FRAME_LEN + 1000u, stream.recv(PVN_FRAME_LEN + 1000).size());
        stream.send({1});
    }
    void lose()
    {
        ctrl.send(lane_down());
    }
    void accept_again(uint64_t received = 0)
    {
        pvn_hello mine = with_features(77), theirs = {};
        mine.received = received;
        next = accept_plugin(l, mine, 0, &theirs);
        EXPECT_EQ(nonce, theirs.resumes);
    }
    ncclResult_t with(const std::function<void()> &peer, const std::function<bool()> &enough)
    {
        return during(
            peer, [&] { return call(); }, enough);
    }
    void goes_on(const std::function<void()> &lie, int messages)
    {
        EXPECT_EQ(ncclSuccess, with(
                                   [&] {
                                       lie();
                                       take(next.stream);
                                   },
                                   [&] { return sent >= messages; }))
            << Log::get().text();
        EXPECT_TRUE(said("connected again after"));
    }
    void ends(const std::function<void()> &lie, const char *why)
    {
        EXPECT_NE(ncclSuccess, with(lie, never));
        EXPECT_TRUE(Log::get().warned({why})) << Log::get().text();
        EXPECT_NE(ncclSuccess, call()) << "the request is open, though its lanes may be gone";
    }
};

// Of message 0, which is open.
pvn_engine_report nothing_yet()
{
    return {};
}

TEST(FailoverSending, AProperPeer)
{
    alone([] {
        Sending s;
        s.goes_on(
            [&] {
                s.lose();
                s.accept_again();
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
    });
}

TEST(FailoverSending, ImpossibleReports)
{
    std::vector<pvn_engine_report> lies;
    auto lie = [&](const std::function<void(pvn_engine_report &)> &change) {
        pvn_engine_report r = nothing_yet();
        change(r);
        lies.push_back(r);
    };
    lie([](auto &r) { r.epoch = 5; });
    lie([](auto &r) { r.epoch = UINT32_MAX - 1; });
    lie([](auto &r) { r.by_slot = true; });
    lie([](auto &r) { r.next = 7; });
    lie([](auto &r) { r.next = UINT64_MAX; });
    lie([](auto &r) { r.n = 1; });
    lie([](auto &r) {
        r.n = 1;
        r.open[0].buffers = 9;
    });
    lie([](auto &r) {
        r.n = 1;
        r.open[0].buffers = 2;
        r.open[0].done = 3;
    });
    lie([](auto &r) {
        r.n = 2;
        r.open[0].buffers = r.open[1].buffers = 1;
    });
    for (const pvn_engine_report &r : lies) {
        alone([&] {
            Sending s;
            s.ends(
                [&] {
                    s.lose();
                    s.accept_again();
                    s.next.ctrl.send(report_frame(r));
                },
                "the peer's report of what it has received is not possible");
        });
    }
}

TEST(FailoverSending, APeerThatGivesUpBeforeItsReport)
{
    alone([] {
        Sending s;
        s.ends(
            [&] {
                s.lose();
                s.accept_again();
                s.next.ctrl.send(reason("its GPU fell off the bus"));
            },
            "the peer gave up: its GPU fell off the bus");
    });
}

// It had acknowledged the message, so the sender's buffer may hold something else by now.
TEST(FailoverSending, AReportThatTakesBackAnAcknowledgement)
{
    alone([] {
        Sending s;
        s.ends(
            [&] {
                Sending::take(s.stream);
                s.stream.recv(PVN_FRAME_LEN);
                s.lose();
                s.accept_again();
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            "a message that this end has completed is missing at the peer");
    });
}

TEST(FailoverSending, AnotherFrameOrHalfAReport)
{
    raw::Bytes half = report_frame(nothing_yet());
    half.resize(half.size() / 2);
    raw::Bytes many = report_frame(nothing_yet());
    many[PVN_FRAME_HEADER_BYTES + 5] = 33; // open receives
    for (const raw::Bytes &lie :
         {raw::frame(PVN_FRAME_READY, {1, 0, 0, 0}), answer_frame(0, 0), half, many}) {
        alone([&] {
            Sending s;
            s.goes_on(
                [&] {
                    s.lose();
                    s.accept_again();
                    s.next.ctrl.send(lie);
                    shutdown(s.next.ctrl.fd, SHUT_WR);
                    s.accept_again();
                    s.next.ctrl.send(report_frame(nothing_yet()));
                },
                1);
        });
    }
}

// More than was ever sent is not believed.
TEST(FailoverSending, AHelloThatHasReceivedTooMuch)
{
    for (uint64_t received : {UINT64_C(2), UINT64_MAX}) {
        alone([&] {
            Sending s;
            s.goes_on(
                [&] {
                    s.lose();
                    s.accept_again(received);
                    s.next.ctrl.send(report_frame(nothing_yet()));
                },
                1);
        });
    }
}

// Only a connector switches to other lanes.
TEST(FailoverSending, ASwitchFromTheWrongEnd)
{
    alone([] {
        Sending s;
        s.ends([&] { s.ctrl.send(raw::text_frame(PVN_FRAME_SWITCH, "better lanes")); },
               "SWITCH frame on a connection that is up");
    });
}

TEST(FailoverSending, LanesThatDoNotExist)
{
    alone([] {
        Sending s;
        s.goes_on(
            [&] {
                s.lose();
                int type;
                raw::Sock c = s.l.accept();
                c.recv(PVN_PREAMBLE_BYTES);
                c.recv_frame(&type);
                c.send(raw::hello(with_features(77)));
                c.recv_frame(&type);
                c.send(raw::offer(raw::tcp_blob(s.l.port), "tcp", 3));
                bool closed = false;
                c.last_words(&closed);
                EXPECT_TRUE(closed);
                s.accept_again();
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
    });
}

TEST(FailoverSending, ANewConnectionThatNeverGetsFurther)
{
    alone([] {
        Sending s;
        raw::Sock c;
        s.ends(
            [&] {
                s.lose();
                c = s.l.accept();
                s.ctrl.reset();
            },
            "no new connection within 3 s");
    });
}

// It connects again as it should, 64 times, and nothing ever moves.
TEST(FailoverSending, LossesWithoutEnd)
{
    alone([] {
        Sending s;
        s.ends(
            [&] {
                for (uint32_t i = 0; i < 64; i++) {
                    s.lose();
                    s.accept_again();
                    pvn_engine_report r = nothing_yet();
                    r.epoch = i;
                    int type = 0;
                    s.next.ctrl.send(report_frame(r));
                    s.next.ctrl.recv_frame(&type);
                    EXPECT_EQ(PVN_FRAME_ANSWER, type) << i;
                    std::swap(s.ctrl, s.next.ctrl);
                    std::swap(s.stream, s.next.stream);
                }
                s.lose();
            },
            "the lanes were lost 64 times within 60 s");
    });
}

} // namespace
