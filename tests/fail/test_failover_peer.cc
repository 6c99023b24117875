// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A peer that agreed on failover and breaks its rules: frames that are impossible, in the wrong
// order, or without end. Its comm fails with a reason, or goes on unharmed. No other comm of the
// process notices.
#include "fail/failover_peer.h"

using namespace nccl;

namespace
{

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

// The peer connects again, and this end refuses the connection.
TEST(FailoverReceiving, WhyTheNewConnectionFailsIsInTheStatistics)
{
    alone_with_statistics([](const std::string &dir) {
        Receiving r;
        r.goes_on([&] {
            pvn_hello mine = with_features(r.h.session);
            int type = 0;
            bool closed = false;
            mine.resumes = 9;
            r.ctrl.send(lane_down());
            raw::Sock s = raw::dial(r.h.addr.port);
            s.send(raw::preamble(PVN_PREAMBLE_CTRL, r.h.session, 100));
            s.send(raw::hello(mine));
            s.recv_frame(&type);
            s.send(raw::offer(raw::tcp_blob(0), "pigeons"));
            std::string why = s.last_words(&closed);
            EXPECT_NE("", why);
            EXPECT_TRUE(eventually([&] {
                return has_row(dir, [](const pvn_stat_row &row) {
                    return row.n.stuck_ns &&
                           strstr(row.text, "the peer has pigeons on raw0, this end tcp on lo");
                });
            })) << why;
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

// The reason stays, however often the caller tests its open requests after the error.
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

TEST(FailoverReceiving, AnImpossibleAnswerEndsTheComm)
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

// The plugin gives the new connection up and takes another one, as after any loss.
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

// The plugin sends no GOODBYE on it: the peer may use the connection already, and would take a
// GOODBYE as the end of the comm.
TEST(FailoverReceiving, AConnectionThatItGivesUpHasNoGoodbye)
{
    alone([] {
        Receiving r;
        r.goes_on([&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
            r.next.ctrl.send(raw::frame(PVN_FRAME_READY, {1, 0, 0, 0}));
            for (int type = -1; type != 0;) {
                r.next.ctrl.recv_frame(&type);
                EXPECT_NE(PVN_FRAME_GOODBYE, type);
            }
            r.connect_again(11);
        });
    });
}

// The plugin sends no ERROR on it either, because the peer may wait for the report already.
TEST(FailoverReceiving, AConnectionThatIsNotReadyInTimeHasNoError)
{
    alone([] {
        setenv("NCCL_PVRDMA_VERIFY_TIMEOUT", "1s", 1);
        setenv("NCCL_PVRDMA_READY_TIMEOUT", "1s", 1);
        Receiving r;
        r.goes_on([&] {
            r.ctrl.send(lane_down());
            pvn_hello mine = with_features(r.h.session);
            mine.resumes = 9;
            RawEnd late = dial_lanes(r.h.addr.port, 10, mine);
            bool closed = false;
            EXPECT_EQ("", late.ctrl.last_words(&closed));
            EXPECT_TRUE(closed) << "the fault fired";
            r.connect_again(11);
        });
    });
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

// Both ends must have failover, so a user who has set it at one end does not have it.
TEST(FailoverReceiving, APeerWithoutItIsNamed)
{
    const std::string says = "no failover with rawhost pid 4711, where it is off";
    alone([&] {
        EXPECT_NE(std::string::npos, Receiver().log.find(says));
        EXPECT_NE(std::string::npos, Sender().log.find(says));
        EXPECT_EQ(std::string::npos, Receiving().log.find(says));
        setenv("NCCL_PVRDMA_FAILOVER", "auto", 1);
        EXPECT_EQ(std::string::npos, Receiver().log.find(says));
    });
}

// The peer's process is alive, but cannot be reached any more.
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

// The limit counts also for a caller that comes by so rarely that 64 of its calls take longer than a second.
TEST(FailoverReceiving, ALimitOfAReceiverThatIsCalledRarely)
{
    alone([] {
        setenv("NCCL_PVRDMA_STALL_ABORT", "2s", 1);
        between_calls = std::chrono::milliseconds(20);
        Receiving r;
        r.ends([] {}, "the limit of NCCL_PVRDMA_STALL_ABORT");
    });
}

// The peer has lost a connection that still looks open to the plugin. The new connection is the
// first sign of that.
TEST(FailoverReceiving, AConnectionInPlaceOfOneThatIsOpen)
{
    alone([] {
        Receiving r;
        r.goes_on([&] { r.connect_again(10); });
    });
}

// A new connection that is closed at once does not replace the one in use.
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

// The plugin does not take a connection that resumes a comm which does not exist.
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

TEST(FailoverSending, AnImpossibleReportEndsTheComm)
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

// The peer had acknowledged the message, so the sender's buffer may have other contents by now.
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
    many[PVN_FRAME_HEADER_BYTES + 5] = 33; // 32 open receives at most are possible
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

// The plugin does not believe a peer that says it has received more messages than were sent.
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

// Only a connector may send SWITCH.
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
                raw::Sock c = s.l.accept_ctrl();
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

// The peer connects again correctly, 12 times, but no message ever moves.
TEST(FailoverSending, LossesWithoutEnd)
{
    alone([] {
        Sending s;
        s.ends(
            [&] {
                for (uint32_t i = 0; i < 12; i++) {
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
            "the lanes were lost 12 times, and no message was delivered meanwhile");
    });
}

} // namespace
