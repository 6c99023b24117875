// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A peer with two addresses: the order in which the plugin dials them, and how long it takes.
#include "fail/failover_peer.h"

#include <poll.h>

#include <fstream>
#include <set>

using namespace nccl;

namespace
{

struct TwoAddresses {
    raw::Listener other;
    Sending s{that_names(other)};
    // The lanes deliver a message, so the plugin takes their path as good.
    void deliver_one()
    {
        Sending::take(s.stream);
        s.stream.recv(PVN_FRAME_LEN); // the header of the next one
    }
    static raw::Bytes has_one()
    {
        pvn_engine_report r = nothing_yet();
        r.next = 1;
        r.have[(PVN_MAX_SENDS - 1) / 64] |= UINT64_C(1) << ((PVN_MAX_SENDS - 1) % 64);
        return report_frame(r);
    }
    // The listener at the address that the plugin dials first.
    raw::Listener &dialled()
    {
        pollfd p[] = {{s.l.s.fd, POLLIN, 0}, {other.s.fd, POLLIN, 0}};
        EXPECT_LT(0, poll(p, 2, 30000)) << "nobody has dialled";
        return p[1].revents ? other : s.l;
    }
};

// The first address refuses, as behind a firewall that rejects packets.
TEST(FailoverSending, OneOfTwoAddressesRefuses)
{
    alone([] {
        TwoAddresses t;
        t.s.goes_on(
            [&] {
                t.deliver_one();
                t.s.l.s.close();
                t.s.lose();
                t.s.ctrl.reset();
                t.s.accept_again_at(t.other);
                t.s.next.ctrl.send(t.has_one());
            },
            2);
        EXPECT_TRUE(said("the connection is refused; other paths are tried")) << "the fault fired";
    });
}

// The old control connection shows that the process has not ended.
TEST(FailoverSending, EveryAddressRefusesForATime)
{
    alone_with_statistics([](const std::string &dir) {
        TwoAddresses t;
        t.s.goes_on(
            [&] {
                uint16_t port = t.other.port;
                t.s.l.s.close();
                t.other.s.close();
                t.s.lose();
                EXPECT_TRUE(eventually([&] {
                    std::this_thread::sleep_for(std::chrono::milliseconds(20));
                    EXPECT_FALSE(said("does not listen any more"));
                    return has_row(dir, [](const pvn_stat_row &row) {
                        return row.n.stuck_ns && strstr(row.text, "connecting failed");
                    });
                }));
                t.other = raw::Listener(port);
                t.s.accept_again_at(t.other);
                t.s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
    });
}

// The local ports of all connections to this port that nothing has answered.
std::set<std::string> unanswered(uint16_t port)
{
    std::ifstream in("/proc/net/tcp");
    std::string slot, local, peer, state, rest;
    std::set<std::string> found;
    char hex[8];
    snprintf(hex, sizeof(hex), ":%04X", port);
    std::getline(in, rest);
    while (in >> slot >> local >> peer >> state && std::getline(in, rest))
        if (state == "02" && peer.find(hex) != std::string::npos)
            found.insert(local);
    return found;
}

// Nothing answers on the only path, as while the peer's machine stands still. The kernel sends a SYN again after ever
// longer pauses, so new attempts are made.
TEST(FailoverSending, TheOnlyPathIsDialledAgainAndAgain)
{
    alone([] {
        Sending s;
        s.goes_on(
            [&] {
                std::set<std::string> attempts;
                EXPECT_EQ(0, listen(s.l.s.fd, 0));
                raw::Sock waits = raw::dial(s.l.port); // the listener's only place
                s.lose();
                EXPECT_TRUE(eventually(
                    [&] {
                        std::this_thread::sleep_for(std::chrono::milliseconds(20));
                        attempts.merge(unanswered(s.l.port));
                        return attempts.size() >= 2;
                    },
                    20));
                EXPECT_EQ(0, listen(s.l.s.fd, 16));
                s.l.accept();
                s.accept_again();
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
    });
}

// The handshake passes this path, but larger packets are lost.
TEST(FailoverSending, APathThatDeliversNothingIsRemembered)
{
    alone([] {
        TwoAddresses t;
        t.s.goes_on(
            [&] {
                t.s.stream.close();
                raw::Listener &first = t.dialled();
                EXPECT_EQ(&t.other, &first)
                    << "the path that has delivered nothing is dialled again";
                t.s.accept_again_at(first);
                t.s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
        EXPECT_TRUE(said("large packets are lost on the path"));
    });
}

// Small packets are lost, too: this says nothing of large ones.
TEST(FailoverSending, APathThatLosesEverythingDoesNotLoseLargePackets)
{
    alone([] {
        Sending s;
        s.goes_on(
            [&] {
                s.ctrl.reset();
                s.stream.reset();
                s.accept_again();
                s.next.ctrl.send(report_frame(nothing_yet()));
            },
            1);
        EXPECT_FALSE(said("large packets are lost on the path")) << Log::get().text();
    });
}

TEST(FailoverSending, APathThatHasDeliveredIsDialledFirst)
{
    alone([] {
        TwoAddresses t;
        t.s.goes_on(
            [&] {
                t.deliver_one();
                t.s.lose();
                raw::Listener &first = t.dialled();
                EXPECT_EQ(&t.s.l, &first);
                t.s.accept_again_at(first);
                t.s.next.ctrl.send(t.has_one());
            },
            2);
        EXPECT_FALSE(said("large packets are lost on the path")) << Log::get().text();
    });
}

// The test asserts a minimum time, which a slow machine cannot break.
TEST(FailoverSending, LossesOneAfterTheOtherTakeLonger)
{
    alone([] {
        Sending s;
        s.goes_on(
            [&] {
                for (uint32_t i = 0; i < 4; i++) {
                    auto before = std::chrono::steady_clock::now();
                    s.lose();
                    s.accept_again();
                    auto pause = std::chrono::steady_clock::now() - before;
                    EXPECT_LE(i == 0 ? 0 : 50 << i, pause / std::chrono::milliseconds(1)) << i;
                    pvn_engine_report r = nothing_yet();
                    r.epoch = i;
                    s.next.ctrl.send(report_frame(r));
                    if (i == 3)
                        break;
                    int type = 0;
                    s.next.ctrl.recv_frame(&type);
                    EXPECT_EQ(PVN_FRAME_ANSWER, type) << i;
                    std::swap(s.ctrl, s.next.ctrl);
                    std::swap(s.stream, s.next.stream);
                }
            },
            1);
    });
}

} // namespace
