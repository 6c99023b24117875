// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Small messages, of which the plugin keeps a copy: their sends are complete before the peer has
// them. Then the lanes are lost, and the caller sleeps or closes the comm.
#include "fail/failover_peer.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>

using namespace nccl;

namespace
{

constexpr size_t kSmall = 1000;

struct SendingSmall : Sending {
    SendingSmall()
    {
        b.n = kSmall;
        memset(b.data(), 3, kSmall);
    }
    // The send completes although the peer reads and acknowledges nothing.
    void send_one()
    {
        int before = sent;
        EXPECT_TRUE(eventually([&] { return call() != ncclSuccess || sent > before; }));
        EXPECT_EQ(before + 1, sent) << Log::get().text();
    }
    // Reads a message and gives its number; -1: the stream has ended.
    static int64_t take_number(raw::Sock &stream, size_t bytes = kSmall)
    {
        raw::Bytes head = stream.recv(PVN_FRAME_LEN);
        pvn_frame f = {};
        unsigned flags = 0;
        if (head.size() < PVN_FRAME_LEN)
            return -1;
        EXPECT_EQ(0, pvn_frame_decode(head.data(), &f, &flags));
        EXPECT_EQ(unsigned(PVN_FRAME_NEEDS_ACK | PVN_FRAME_ACK_LATER | PVN_FRAME_COPIED),
                  flags & ~unsigned(PVN_FRAME_PACED));
        EXPECT_TRUE(raw::Bytes(bytes, 3) == stream.recv(bytes)) << "overwritten since";
        return static_cast<int64_t>(f.seq);
    }
    // The lanes are lost, and the sender has begun its failover.
    void begin_failover()
    {
        lose();
        EXPECT_TRUE(eventually([&] {
            others.use(); // drives the idle comms, too
            return said("the connection is made again");
        }));
    }
    // Plays the peer's part in a failover, for a peer that has no message yet.
    void take_over()
    {
        int type = 0;
        accept_again();
        next.ctrl.send(report_frame(nothing_yet()));
        next.ctrl.recv_frame(&type);
        EXPECT_EQ(PVN_FRAME_ANSWER, type);
    }
};

// Nobody calls the sender any more, so the plugin's own thread sends the copies again.
TEST(FailoverKept, TheCallerSleeps)
{
    alone([] {
        SendingSmall s;
        s.send_one();
        s.send_one();
        memset(s.b.data(), 0, kSmall);
        s.lose();
        s.take_over();
        EXPECT_EQ(0, SendingSmall::take_number(s.next.stream));
        EXPECT_EQ(1, SendingSmall::take_number(s.next.stream));
        EXPECT_TRUE(eventually([] { return said("connected again after"); }));
    });
}

// The peer's stream is reset; nothing comes on the control connection.
TEST(FailoverKept, TheCallerSleepsAndTheStreamIsReset)
{
    alone([] {
        SendingSmall s;
        s.send_one();
        memset(s.b.data(), 0, kSmall);
        s.stream.reset();
        s.take_over();
        EXPECT_EQ(0, SendingSmall::take_number(s.next.stream));
    });
}

// Messages whose sends are complete when the comm is closed still arrive, although the peer reads
// them later and acknowledges one of them then.
TEST(FailoverKept, TheCommIsClosed)
{
    alone([] {
        SendingSmall s;
        s.send_one();
        s.send_one();
        s.close();
        EXPECT_EQ(0, SendingSmall::take_number(s.stream));
        s.stream.send({1});
        EXPECT_EQ(1, SendingSmall::take_number(s.stream));
        EXPECT_FALSE(Log::get().warned({"may not have reached"})) << Log::get().text();
    });
}

// A receiver that has everything closes: the end of its stream, before its GOODBYE, is no loss of the lanes.
TEST(FailoverKept, ThePeerCloses)
{
    alone([] {
        SendingSmall s;
        raw::Bytes has_one(8);
        s.send_one();
        EXPECT_EQ(0, SendingSmall::take_number(s.stream));
        s.stream.close();
        for (int i = 0; i < 50; i++) {
            s.others.use(); // drives the idle comms, too
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        EXPECT_EQ(8, pvn_goodbye_encode(has_one.data(), 8, 1));
        s.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, has_one));
        s.close();
        EXPECT_FALSE(said("failover:")) << Log::get().text();
        EXPECT_FALSE(Log::get().warned({""})) << Log::get().text();
    });
}

// The lanes are lost, and the comm is closed before it has new ones.
TEST(FailoverKept, TheCommIsClosedInAFailover)
{
    alone([] {
        SendingSmall s;
        s.send_one();
        s.begin_failover();
        std::thread peer([&] {
            s.take_over();
            EXPECT_EQ(0, SendingSmall::take_number(s.next.stream));
        });
        s.close();
        peer.join();
        EXPECT_FALSE(Log::get().warned({"may not have reached"})) << Log::get().text();
    });
}

// Nobody accepts the new connection. The close ends nevertheless, and warns of messages that may be
// lost.
TEST(FailoverKept, TheCommIsClosedWithoutAPeer)
{
    alone([] {
        SendingSmall s;
        s.send_one();
        s.begin_failover();
        s.close();
        EXPECT_TRUE(
            Log::get().warned({"closed while 1 small message", "may not have reached the peer",
                               "no new connection was made within 3 s"}))
            << Log::get().text();
    });
}

// A peer that acknowledges nothing stops the sender when PVN_MAX_SENDS messages have a copy. The
// sender goes on when they are acknowledged.
TEST(FailoverKept, APeerThatAcknowledgesNothing)
{
    alone([] {
        SendingSmall s;
        for (int i = 0; i < PVN_MAX_SENDS; i++)
            s.send_one();
        for (int i = 0; i < 1000; i++)
            EXPECT_EQ(ncclSuccess, s.call());
        EXPECT_EQ(PVN_MAX_SENDS, s.sent);
        for (int i = 0; i < PVN_MAX_SENDS; i++)
            EXPECT_EQ(i, SendingSmall::take_number(s.stream));
        s.stream.send({200});
        s.stream.send({56});
        s.send_one();
    });
}

// NCCL closes a comm on another thread than the one that makes the data calls. That one drives the
// comm meanwhile, beside others.
TEST(FailoverKept, TheCommIsClosedByAnotherThread)
{
    alone([] {
        for (int i = 0; i < 3; i++) {
            SendingSmall s;
            s.send_one();
            s.begin_failover();
            std::thread peer([&] {
                s.take_over();
                EXPECT_EQ(0, SendingSmall::take_number(s.next.stream));
            });
            std::atomic<bool> closed{false};
            std::thread closing([&] {
                s.close();
                closed = true;
            });
            while (!closed)
                s.others.use();
            closing.join();
            peer.join();
        }
    });
}

// The peer reports that its lanes are lost, and drops messages that its kernel had acknowledged.
// The close is the first call after that. It has to read the peer's report before it takes those
// acknowledgements as proof of arrival.
TEST(FailoverKept, TheCommIsClosedAsItsLanesAreLost)
{
    alone([] {
        SendingSmall s;
        s.send_one();
        int now = 1;
        setsockopt(s.stream.fd, IPPROTO_TCP, TCP_QUICKACK, &now, sizeof(now));
        s.lose();
        // LANE_DOWN is in the plugin's kernel now. The close reads it, whatever the poller has seen
        // so far.
        EXPECT_TRUE(eventually([&] {
            int left = -1;
            return ioctl(s.ctrl.fd, SIOCOUTQ, &left) == 0 && left == 0;
        }));
        std::thread peer([&] {
            s.take_over();
            EXPECT_EQ(0, SendingSmall::take_number(s.next.stream));
        });
        s.close();
        peer.join();
        EXPECT_FALSE(Log::get().warned({"may not have reached"})) << Log::get().text();
    });
}

// Closes a comm whose peer's kernel has no room for all messages at first. The peer has sent an
// acknowledgement by then.
void close_while_the_peer_reads()
{
    constexpr int kMessages = 31; // too few for a call to look for acknowledgements
    SendingSmall s;
    s.b.n = PVN_KEEP_MAX;
    memset(s.b.data(), 3, s.b.n);
    int waiting = 0;
    for (int i = 0; i < kMessages; i++)
        s.send_one();
    EXPECT_EQ(0, ioctl(s.stream.fd, FIONREAD, &waiting));
    EXPECT_LT(waiting, kMessages * int(PVN_FRAME_LEN + PVN_KEEP_MAX))
        << "the peer's machine has all";
    s.stream.send({1});
    std::thread peer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (int i = 0; i < kMessages; i++)
            if (SendingSmall::take_number(s.stream, PVN_KEEP_MAX) != i) {
                ADD_FAILURE() << "message " << i << " of " << kMessages << " is lost";
                break;
            }
    });
    s.close();
    peer.join();
    EXPECT_FALSE(Log::get().warned({"may not have reached"})) << Log::get().text();
}

// A close that waited successfully does not shorten the wait of a close seconds later.
TEST(FailoverKept, ACloseThatFollowsAnotherOneWaitsAsWell)
{
    alone([] {
        Net keeps_the_plugin_loaded{12};
        close_while_the_peer_reads();
        std::this_thread::sleep_for(std::chrono::milliseconds(1200));
        close_while_the_peer_reads();
    });
}

// NCCL aborts: the buffers of open sends have other contents when the comm is closed. No byte of
// them is sent.
TEST(FailoverKept, TheCommIsClosedWithAnOpenSend)
{
    alone([] {
        SendingSmall s;
        Buffer large(64 << 20, 3);
        void *open = nullptr;
        int now = 0;
        s.send_one();
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_isend(s.n.d, s.sc, large.data(), large.n, 0, nullptr, nullptr, &open));
        for (int i = 0; i < 1000; i++)
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(s.n.d, open, &now, nullptr));
        EXPECT_EQ(0, now);
        memset(large.data(), 0xA5, large.n);
        std::thread peer([&] {
            const raw::Bytes others(64, 0xA5);
            raw::Bytes b;
            do {
                b = s.stream.recv(1 << 20);
                EXPECT_TRUE(std::search(b.begin(), b.end(), others.begin(), others.end()) ==
                            b.end());
            } while (b.size() == 1 << 20);
        });
        s.close();
        peer.join();
    });
}

// NCCL aborts during a failover: the plugin's thread sends no byte of memory that has another owner
// by then.
TEST(FailoverKept, AnOpenSendLosesItsMemoryInAFailover)
{
    alone([] {
        SendingSmall s;
        Buffer large(1 << 20, 3);
        void *open = nullptr, *mh = nullptr;
        int now = 0;
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(s.n.d, s.sc, large.data(), large.n, NCCL_PTR_HOST, &mh));
        s.send_one();
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_isend(s.n.d, s.sc, large.data(), large.n, 0, mh, nullptr, &open));
        s.lose();
        EXPECT_TRUE(eventually([&] {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(s.n.d, open, &now, nullptr));
            return said("the connection is made again");
        }));
        // NCCL uses another thread for this, too.
        std::thread([&] {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(s.n.d, s.sc, mh));
            memset(large.data(), 0xA5, large.n);
        }).join();
        EXPECT_NE(ncclSuccess, pvn_netdrv_test(s.n.d, open, &now, nullptr));
        EXPECT_TRUE(Log::get().warned({"deregMr has taken back the memory"})) << Log::get().text();
        s.close();
    });
}

} // namespace
