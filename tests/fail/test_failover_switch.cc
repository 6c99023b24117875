// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A sender on a worse path that goes over to a better connection (SWITCH), while the peer has lost the lanes in use and has
// given that connection up.
#include "fail/failover_peer.h"

#include <poll.h>

using namespace nccl;

namespace
{

constexpr size_t kSmall = 1000;

struct Returning {
    raw::Listener other; // on the worse path
    Sending s{that_names(other)};
    uint16_t home = s.l.port;
    RawEnd better;
    std::atomic<int> wanted{2}; // messages of the caller; the third is a small one

    // The receiver has all messages up to here; failovers so far.
    static raw::Bytes has(uint64_t messages, uint32_t failovers)
    {
        pvn_engine_report r = nothing_yet();
        r.epoch = failovers;
        r.next = messages;
        for (uint64_t i = PVN_MAX_SENDS - messages; i < PVN_MAX_SENDS; i++)
            r.have[i / 64] |= UINT64_C(1) << (i % 64);
        return report_frame(r);
    }
    void answered()
    {
        int type = 0;
        s.next.ctrl.recv_frame(&type);
        EXPECT_EQ(PVN_FRAME_ANSWER, type);
    }
    // Message 2, which the peer reads, and does not acknowledge.
    static void take_small(raw::Sock &stream)
    {
        raw::Bytes head = stream.recv(PVN_FRAME_LEN);
        pvn_frame f = {};
        unsigned flags = 0;
        EXPECT_EQ(PVN_FRAME_LEN, head.size());
        EXPECT_EQ(0, pvn_frame_decode(head.data(), &f, &flags));
        EXPECT_EQ(2u, f.seq);
        EXPECT_EQ(kSmall, stream.recv(kSmall).size());
    }
    // One message, and a failover to the other address, from where the sender looks for its first one.
    void lose_home()
    {
        Sending::take(s.stream);
        s.stream.recv(PVN_FRAME_LEN);
        s.l.s.close();
        s.lose();
        s.ctrl.reset();
        s.accept_again_at(other);
        s.next.ctrl.send(has(1, 0));
        answered();
        std::swap(s.ctrl, s.next.ctrl);
        std::swap(s.stream, s.next.stream);
        Sending::take(s.stream);
    }
    // The first address is there again. Returns when the sender has sent SWITCH.
    void offer_better()
    {
        pvn_hello theirs = {};
        int type = 0;
        s.l = raw::Listener(home);
        better = accept_plugin(s.l, with_features(77), 0, &theirs);
        EXPECT_TRUE(theirs.features & PVN_FEATURE_BESIDE);
        s.ctrl.recv_frame(&type);
        EXPECT_EQ(PVN_FRAME_SWITCH, type) << "the fault comes in time";
    }
    // Takes the sender's new connection, as after any loss, while the better one stands. False: there is none.
    bool accept_the_next()
    {
        pollfd p[] = {{s.l.s.fd, POLLIN, 0}, {other.s.fd, POLLIN, 0}};
        int n = poll(p, 2, 10000);
        EXPECT_LT(0, n) << "the sender waits for the better connection";
        EXPECT_EQ(0, p[1].revents) << "no better lanes were lost, so they are tried first";
        if (n <= 0 || p[1].revents)
            return false;
        s.accept_again();
        s.next.ctrl.send(has(2, 1));
        answered();
        return true;
    }
    // The sender has left the better connection, which is not the end of the comm.
    void expect_left()
    {
        int type = -1;
        while (type != 0) {
            better.ctrl.recv_frame(&type);
            EXPECT_NE(PVN_FRAME_GOODBYE, type);
            EXPECT_NE(PVN_FRAME_ERROR, type);
        }
    }
    // The steps of an idle comm are taken beside those of others.
    ncclResult_t call()
    {
        s.b.n = s.sent == 2 ? kSmall : Sending::kBytes;
        if (s.sent < wanted)
            return s.call();
        s.others.use();
        return ncclSuccess;
    }
    ncclResult_t with(const std::function<void()> &peer)
    {
        return during(
            peer, [&] { return call(); }, [&] { return s.sent >= wanted; });
    }
    // All goes on over the connection that was made last.
    void goes_on()
    {
        if (testing::Test::HasFailure())
            return;
        bool small = s.sent < 3;
        EXPECT_TRUE(said("connected again after")) << Log::get().text();
        EXPECT_FALSE(said("failback: returned")) << Log::get().text();
        wanted = 4;
        EXPECT_EQ(ncclSuccess, with([&] {
                      if (small)
                          take_small(s.next.stream);
                      s.next.stream.recv(PVN_FRAME_LEN + Sending::kBytes);
                      s.next.stream.send({2}); // and the small one
                  }))
            << Log::get().text();
    }
};

TEST(FailoverSwitch, ThePeerHasLostALaneBefore)
{
    alone([] {
        Returning r;
        EXPECT_EQ(ncclSuccess, r.with([&] {
            r.lose_home();
            r.offer_better();
            r.s.lose();
            if (r.accept_the_next())
                r.expect_left();
        })) << Log::get().text();
        r.goes_on();
        EXPECT_TRUE(said("a cable was pulled")) << Log::get().text();
    });
}

// The peer's LANE_DOWN is late, or lost with the old connection.
TEST(FailoverSwitch, ThePeerHasGivenUpTheBetterConnection)
{
    alone([] {
        Returning r;
        EXPECT_EQ(ncclSuccess, r.with([&] {
            r.lose_home();
            r.offer_better();
            r.better.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, {}));
            if (r.accept_the_next())
                r.expect_left();
        })) << Log::get().text();
        r.goes_on();
    });
}

// SWITCH is lost together with the control connection: the connector says it again on the next one.
TEST(FailoverSwitch, IsLostWithTheControlConnection)
{
    alone([] {
        features |= PVN_FEATURE_KEEPS;
        Returning r;
        EXPECT_EQ(ncclSuccess, r.with([&] {
            r.lose_home();
            r.offer_better();
            r.s.ctrl.reset();
            pvn_hello theirs = {};
            int type = 0;
            RawEnd control = greet_plugin(r.s.l, with_features(77), &theirs);
            EXPECT_TRUE(theirs.features & PVN_FEATURE_CONTROL);
            control.ctrl.recv_frame(&type);
            EXPECT_EQ(PVN_FRAME_BEAT, type);
            control.ctrl.recv_frame(&type);
            EXPECT_EQ(PVN_FRAME_SWITCH, type);
            if (type != PVN_FRAME_SWITCH)
                return;
            r.better.ctrl.send(Returning::has(2, 1));
            r.better.ctrl.recv_frame(&type);
            EXPECT_EQ(PVN_FRAME_ANSWER, type);
        })) << Log::get().text();
        if (testing::Test::HasFailure())
            return;
        EXPECT_TRUE(eventually([&] {
            EXPECT_EQ(ncclSuccess, r.call());
            return said("failback: ");
        })) << Log::get().text();
        r.wanted = 4;
        EXPECT_EQ(ncclSuccess, r.with([&] {
            Returning::take_small(r.better.stream);
            r.better.stream.recv(PVN_FRAME_LEN + Sending::kBytes);
            r.better.stream.send({2});
        })) << Log::get().text();
    });
}

// A receiver alone has noticed a loss on a worse path, and is not called while its peer, which knows nothing of that, makes a
// better connection. The peer closes that when it hears of the failover instead of a switch.
TEST(FailoverSwitch, AReceiversPeerGivesUpTheBetterConnection)
{
    alone([] {
        Receiving r;
        auto dial = [&](uint64_t nonce, uint64_t feature) {
            pvn_hello mine = with_features(r.h.session);
            mine.features |= feature;
            mine.resumes = 9;
            return dial_plugin(r.h.addr.port, nonce, mine);
        };
        auto report = [](RawEnd &e) {
            int type = 0;
            e.ctrl.recv_frame(&type);
            return type == PVN_FRAME_REPORT;
        };
        RawEnd away;
        auto lose_both = [&] {
            r.ctrl.send(lane_down());
            away = dial(10, PVN_FEATURE_AWAY);
            EXPECT_TRUE(report(away));
            away.ctrl.send(answer_frame(0, 0));
            EXPECT_TRUE(eventually([] { return said("connected again after"); }));
            away.ctrl.send(raw::text_frame(PVN_FRAME_LANE_DOWN, "another cable was pulled"));
            EXPECT_TRUE(eventually([] { return said("another cable was pulled"); }));
        };
        EXPECT_EQ(ncclSuccess, r.with(lose_both, [] { return true; })) << Log::get().text();
        Log::get().clear();
        RawEnd better = dial(11, PVN_FEATURE_BESIDE);
        EXPECT_TRUE(eventually([] { return said("receives from rawhost"); }))
            << "the plugin's thread has not made it: " << Log::get().text();
        std::this_thread::sleep_for(
            std::chrono::milliseconds(300)); // until that thread gives it away
        r.goes_on([&] {
            EXPECT_TRUE(report(better)) << "the receiver has not taken it: " << Log::get().text();
            better.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, {}));
            r.connect_again(12);
        });
        EXPECT_FALSE(said("failback: returned")) << Log::get().text();
    });
}

// A small message is done for the caller before the peer has it.
TEST(FailoverSwitch, ThePeerHasLostALaneAndAMessage)
{
    alone([] {
        Returning r;
        EXPECT_EQ(ncclSuccess, r.with([&] {
            r.lose_home();
            r.wanted = 3;
            Returning::take_small(r.s.stream);
            r.offer_better();
            r.s.lose();
            if (r.accept_the_next())
                Returning::take_small(r.s.next.stream);
        })) << Log::get().text();
        r.goes_on();
    });
}

} // namespace
