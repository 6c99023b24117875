// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A peer whose process is there, but which nobody calls: a control connection in place of the lost one shows that, and no time
// limit of a failover (3 s here) runs out.
#include "fail/failover_peer.h"

#include <poll.h>

using namespace nccl;

namespace
{

constexpr auto LONGER = std::chrono::milliseconds(4500);

void keeps()
{
    features |= PVN_FEATURE_KEEPS;
}

// The connector's part, as its plugin's thread does it.
raw::Sock dial_control(const Receiving &r, uint64_t nonce, uint64_t resumes)
{
    pvn_hello mine = with_features(r.h.session);
    mine.features |= PVN_FEATURE_CONTROL;
    mine.resumes = resumes;
    raw::Sock s = raw::dial(r.h.addr.port);
    s.send(raw::preamble(PVN_PREAMBLE_CTRL, r.h.session, nonce));
    s.send(raw::hello(mine));
    int type = 0;
    s.recv_frame(&type);
    EXPECT_EQ(PVN_FRAME_HELLO, type);
    return s;
}

raw::Bytes beat()
{
    return raw::frame(PVN_FRAME_BEAT, {});
}

TEST(FailoverControl, OfAConnectorThatNobodyCalls)
{
    alone([] {
        keeps();
        Receiving r;
        r.goes_on([&] {
            r.ctrl.reset();
            EXPECT_TRUE(eventually([] { return said("failover: "); }));
            raw::Sock s = dial_control(r, 20, 9);
            s.send(beat());
            int type = 0;
            s.recv_frame(&type);
            EXPECT_EQ(PVN_FRAME_LANE_DOWN, type) << "the peer may not know of the failover";
            std::this_thread::sleep_for(LONGER);
            EXPECT_FALSE(said("no new connection within"));
            r.connect_again(10);
        });
    });
}

// The connector may have lost it in the same moment.
TEST(FailoverControl, IsNotUsedBeforeItIsConfirmed)
{
    alone([] {
        keeps();
        Receiving r;
        raw::Sock s;
        r.ends(
            [&] {
                r.ctrl.reset();
                s = dial_control(r, 20, 9);
            },
            "no new connection within 3 s");
    });
}

// It belongs to lanes that have been replaced since.
TEST(FailoverControl, OfAnEarlierConnection)
{
    alone([] {
        keeps();
        Receiving r;
        raw::Sock s;
        r.goes_on([&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
        });
        r.done = false;
        auto late = [&] {
            s = dial_control(r, 20, 9);
            s.send(beat());
            std::this_thread::sleep_for(std::chrono::milliseconds(700));
            char c;
            ssize_t n;
            while ((n = ::recv(r.next.ctrl.fd, &c, 1, MSG_DONTWAIT)) > 0)
                continue;
            EXPECT_EQ(-1, n) << "the control connection in use was replaced";
            s.close();
            r.next.stream.send(message(1, {4, 5}, 2));
        };
        EXPECT_EQ(ncclSuccess, r.with(late, [&] { return r.done; })) << Log::get().text();
        EXPECT_EQ(2, r.size);
    });
}

// The connector goes on with a connection as soon as it has sent its answer there, which is lost with that.
TEST(FailoverControl, OfAConnectionWhoseAnswerIsLost)
{
    alone([] {
        keeps();
        setenv("NCCL_PVRDMA_HELLO_TIMEOUT", "1s", 1);
        Receiving r;
        r.goes_on([&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
            r.ctrl.close();
            r.next.ctrl.close();
            raw::Sock s = dial_control(r, 20, 10);
            s.send(beat());
            int type = 0;
            s.recv_frame(&type);
            EXPECT_EQ(PVN_FRAME_LANE_DOWN, type) << "there is no such connection";
            r.connect_again(11);
        });
    });
}

// Nobody calls the acceptor, so it does not know yet that the new connection is lost, whose lanes the connector has
// taken.
TEST(FailoverControl, OfAConnectionWhoseLossNobodyHasSeen)
{
    alone([] {
        keeps();
        setenv("NCCL_PVRDMA_HELLO_TIMEOUT", "1s", 1);
        Receiving r;
        std::atomic<bool> awake{true};
        auto peer = [&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
            awake = false;
            std::this_thread::sleep_for(std::chrono::milliseconds(50)); // for a call in progress
            r.next.ctrl.close();
            raw::Sock s = dial_control(r, 20, 10);
            s.send(beat());
            std::this_thread::sleep_for(std::chrono::milliseconds(2500));
            char c;
            EXPECT_EQ(-1, ::recv(s.fd, &c, 1, MSG_DONTWAIT)) << "it was closed with a reason";
            awake = true;
            r.connect_again(11);
            r.next.ctrl.send(answer_frame(0, 0));
            r.next.stream.send(message(0, {1, 2, 3}, 3));
        };
        EXPECT_EQ(ncclSuccess,
                  during(
                      peer, [&] { return awake ? r.call() : ncclSuccess; }, [&] { return r.done; }))
            << Log::get().text();
        EXPECT_EQ(3, r.size);
    });
}

// Its process is stopped: its machine takes connections, and nobody reads them.
TEST(FailoverControl, OfAnAcceptorThatIsStopped)
{
    alone([] {
        keeps();
        Sending s;
        s.goes_on(
            [&] {
                s.lose();
                s.ctrl.reset();
                std::this_thread::sleep_for(LONGER);
                raw::Sock next = s.l.accept(), control = s.l.accept();
                next.close();
                s.accept_again();
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
    });
}

// The connector's process is stopped, and none of its connections is left. It dials nobody, but its kernel accepts.
TEST(FailoverControl, OfAConnectorThatIsStopped)
{
    alone([] {
        keeps();
        raw::Listener seen;
        Receiving r(&seen);
        r.goes_on([&] {
            r.ctrl.reset();
            EXPECT_TRUE(eventually([] { return said("failover: "); }));
            std::this_thread::sleep_for(LONGER);
            EXPECT_FALSE(said("no new connection within"));
            raw::Sock stands = seen.accept();
            EXPECT_EQ(1u, stands.recv(1).size())
                << "so that the machine has something to acknowledge";
            r.connect_again(10);
        });
    });
}

// It was killed with unread bytes, so its machine resets the control connection, and nobody listens where it did.
TEST(FailoverControl, OfAConnectorThatHasEndedWithAReset)
{
    alone([] {
        keeps();
        setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "1h", 1);
        raw::Listener seen;
        Receiving r(&seen);
        r.ends(
            [&] {
                EXPECT_EQ(0, shutdown(seen.s.fd, SHUT_RD)); // keeps the port, and refuses
                r.ctrl.reset();
            },
            "the peer's process has ended or was killed");
    });
}

// It runs, since it closes the connections, and it does not connect again: the limit counts.
TEST(FailoverControl, OfAConnectorThatRunsAndDoesNotComeBack)
{
    alone([] {
        keeps();
        raw::Listener seen;
        Receiving r(&seen);
        std::atomic<bool> over{false};
        std::atomic<int> closed{0};
        std::thread runs([&] {
            while (!over) {
                pollfd p = {seen.s.fd, POLLIN, 0};
                if (poll(&p, 1, 100) > 0) {
                    seen.accept().close();
                    closed++;
                }
            }
        });
        r.ends([&] { r.ctrl.reset(); }, "no new connection within 3 s");
        over = true;
        runs.join();
        EXPECT_LT(0, closed) << "the plugin has looked";
    });
}

// A comm that has failed and is not closed: its process runs, also where nothing else needs the answering thread.
TEST(FailoverControl, OfACommThatHasFailed)
{
    alone([] {
        keeps();
        setenv("NCCL_PVRDMA_STATS_DIR", "none", 1);
        Sender s(0, with_features(77));
        ASSERT_LT(0, s.theirs.nothers);
        s.ctrl.send(reason("made up"));
        EXPECT_NE(ncclSuccess, s.until_error());
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        raw::Sock probe = raw::dial(s.theirs.other[0].port);
        pollfd p = {probe.fd, POLLIN, 0};
        EXPECT_EQ(1, poll(&p, 1, 60000)) << "it would be waited for";
        EXPECT_EQ(0u, probe.recv(1).size());
    });
}

// A proxy has closed the idle connection. The connector's own thread makes another one; the lanes are not given up.
TEST(FailoverControl, ThatEndsInOrderForTheAcceptor)
{
    alone([] {
        keeps();
        Receiving r;
        raw::Sock s;
        auto hang_up = [&] {
            shutdown(r.ctrl.fd, SHUT_WR);
            std::this_thread::sleep_for(std::chrono::milliseconds(1500));
            s = dial_control(r, 20, 9);
            s.send(beat());
            std::this_thread::sleep_for(LONGER);
            r.stream.send(message(0, {1, 2, 3}, 3));
        };
        EXPECT_EQ(ncclSuccess, r.with(hang_up, [&] { return r.done; })) << Log::get().text();
        EXPECT_EQ(3, r.size);
        EXPECT_FALSE(said("failover")) << Log::get().text();
    });
}

TEST(FailoverControl, ThatEndsInOrderForTheConnector)
{
    alone([] {
        keeps();
        Sending s;
        s.goes_on(
            [&] {
                shutdown(s.ctrl.fd, SHUT_WR);
                s.accept_again();
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
    });
}

// The peer ends the old one as soon as it knows the new one, while the connector is still setting that up.
TEST(FailoverControl, ThatEndsInOrderWhileTheNextOneIsSetUp)
{
    alone([] {
        keeps();
        Sending s;
        s.goes_on(
            [&] {
                s.lose();
                s.next = greet_plugin(s.l, with_features(77));
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
                shutdown(s.ctrl.fd, SHUT_WR);
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
                give_lanes(s.next, s.l);
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
    });
}

// A failover later, another one is away for longer than one that has ended in order may be.
TEST(FailoverControl, ThatEndedInOrderBeforeAnEarlierFailover)
{
    alone([] {
        keeps();
        setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "60s", 1);
        Receiving r;
        r.goes_on([&] {
            shutdown(r.ctrl.fd, SHUT_WR);
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
            r.stream.reset();
            r.connect_again(10);
        });
        r.done = false;
        auto later = [&] {
            int type = 0;
            r.next.stream.reset();
            r.next.ctrl.recv_frame(&type);
            EXPECT_EQ(PVN_FRAME_LANE_DOWN, type) << "the fault fired";
            r.next.ctrl.reset();
            std::this_thread::sleep_for(LONGER);
            if (said("the peer's process has ended"))
                return;
            r.connect_again(11);
            r.next.ctrl.send(answer_frame(1, 1));
            r.next.stream.send(message(1, {4, 5}, 2));
        };
        EXPECT_EQ(ncclSuccess, r.with(later, [&] { return r.done; })) << Log::get().text();
        EXPECT_EQ(2, r.size);
    });
}

// Nobody makes another one, or listens.
TEST(FailoverControl, ThatEndsWithTheProcess)
{
    alone([] {
        keeps();
        Receiving r;
        r.ends([&] { shutdown(r.ctrl.fd, SHUT_WR); }, "peer closed the control connection");
    });
    alone([] {
        keeps();
        Sending s;
        s.ends(
            [&] {
                s.l.s.close();
                shutdown(s.ctrl.fd, SHUT_WR);
            },
            "the peer's process has ended or was killed");
    });
}

} // namespace
