// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// When a receiving TCP lane reads more of a large message from the kernel
#include "tcp/lane_pair.h"

#include <cerrno>
#include <vector>

namespace
{

// The kernel has only a part of a large message, which is alone or follows another one.
struct PartOfAMessage : LanePair {
    std::vector<uint8_t> first = std::vector<uint8_t>(128 << 10),
                         large = std::vector<uint8_t>(6 << 20);
    std::vector<uint8_t> first_in = first, large_in = large;
    pvn_req *s[2] = {}, *r[2] = {};

    pvn_req *receive(std::vector<uint8_t> &in)
    {
        pvn_req *q = nullptr;
        void *buf = in.data();
        size_t cap = in.size();
        int tag = 0;
        EXPECT_EQ(0, pvn_engine_irecv(erx, 1, &buf, &cap, &tag, nullptr, &q));
        return q;
    }

    void post(bool behind)
    {
        sndbuf = rcvbuf = 200 << 10; // the kernel doubles it; both messages do not fit
        open(1, 8 << 20);
        bytes::fill(first.data(), first.size(), 1);
        bytes::fill(large.data(), large.size(), 2);
        if (behind) {
            ASSERT_EQ(0, pvn_engine_isend(etx, first.data(), first.size(), 0, nullptr, &s[0]));
            r[0] = receive(first_in);
        }
        ASSERT_EQ(0, pvn_engine_isend(etx, large.data(), large.size(), 0, nullptr, &s[1]));
        r[1] = receive(large_in);
    }

    // Returns the reads in so many polls while the sender adds nothing.
    uint64_t reads_of(int polls)
    {
        int done = 0;
        uint64_t before = pvn_tcp_lane_get_stats(rx)->rx_calls;
        for (int i = 0; i < polls; i++)
            EXPECT_EQ(0, pvn_engine_test(r[1], &done, nullptr));
        EXPECT_FALSE(done);
        return pvn_tcp_lane_get_stats(rx)->rx_calls - before;
    }

    // Expects the rest to arrive, too.
    void complete()
    {
        if (r[0])
            finish(s[0], r[0], nullptr, nullptr);
        finish(s[1], r[1], nullptr, nullptr);
        EXPECT_TRUE(first_in == first || !r[0]);
        EXPECT_TRUE(large_in == large);
    }
};

void middle_is_waited_for(const char *receiver_cc)
{
    enum { POLLS = 400, LEAST_NS = 128 * 1024 / 8 };
    // The two messages may arrive apart if this thread is interrupted between them. Then the test
    // is repeated.
    for (int tries = 0; tries < 20; tries++) {
        PartOfAMessage p;
        p.receiver_cc = receiver_cc;
        p.post(true);
        uint64_t from = pvn_now_ns(), reads = p.reads_of(POLLS), ns = pvn_now_ns() - from;
        p.complete();
        if (reads <= 4 + ns / LEAST_NS && reads < POLLS / 4)
            return;
    }
    FAIL() << "each poll asks the kernel for more of a message that cannot be complete";
}

bool has_bbr()
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0;
    close(fd);
    return has;
}

TEST(TcpRead, TheMiddleOfAStreamOfLargeMessagesIsWaitedFor)
{
    middle_is_waited_for("reno");
}

// The receiver's congestion control, here and below, applies to its own data and does not matter.
TEST(TcpRead, SoItIsByAReceiverWhoseOwnConnectionsArePaced)
{
    if (!has_bbr())
        GTEST_SKIP() << "this kernel has no bbr, or does not allow it";
    middle_is_waited_for("bbr");
}

TEST(TcpRead, ALoneLargeMessageIsReadAsItComes)
{
    PartOfAMessage p;
    p.post(false);
    EXPECT_GE(p.reads_of(400), 350u);
    p.complete();
}

TEST(TcpRead, WhatASenderWithBbrSendsIsReadAsItComes)
{
    if (!has_bbr())
        GTEST_SKIP() << "this kernel has no bbr, or does not allow it";
    PartOfAMessage p;
    p.sender_cc = "bbr";
    p.post(true);
    EXPECT_GE(p.reads_of(400), 350u);
    p.complete();
}

// Returns the number of bytes that a socket must have before the kernel reports it readable.
int low_watermark(int fd)
{
    int bytes = -1;
    socklen_t len = sizeof(bytes);
    EXPECT_EQ(0, getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, &len));
    return bytes;
}

void send_and_receive(LanePair &p, size_t n)
{
    auto out = bytes::of(n, 1);
    std::vector<uint8_t> in(n);
    void *buf = in.data();
    int tag = 0;
    pvn_req *r = nullptr, *s = nullptr;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &n, &tag, nullptr, &r));
    ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), n, 0, nullptr, &s));
    finish(s, r, nullptr, nullptr);
    EXPECT_EQ(out, in);
}

TEST(TcpRead, WhatASenderWithBbrSendsIsAcknowledgedOnArrival)
{
    if (!has_bbr())
        GTEST_SKIP() << "this kernel has no bbr, or does not allow it";
    LanePair p;
    p.sender_cc = "bbr";
    p.open(1, 65536);
    int fd = p.adopted[0];
    send_and_receive(p, 1024);
    EXPECT_EQ(1, low_watermark(fd)) << "small messages are";
    send_and_receive(p, 65536);
    EXPECT_GT(low_watermark(fd), 1 << 20);
    // An idle stream is left to epoll, which must report messages shorter than the watermark.
    for (int i = 0; i < 3; i++) {
        char in[8];
        void *buf = in;
        size_t cap = sizeof(in);
        int tag = 0, done = 0;
        pvn_req *r = nullptr, *s = nullptr;
        uint64_t idle = pvn_tcp_lane_get_stats(p.rx)->idle;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
        for (int k = 0; k < 1000; k++)
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
        EXPECT_EQ(idle + 1, pvn_tcp_lane_get_stats(p.rx)->idle);
        EXPECT_EQ(1, low_watermark(fd));
        ASSERT_EQ(0, pvn_engine_isend(p.etx, "12345678", 8, 0, nullptr, &s));
        finish(s, r, nullptr, nullptr);
        EXPECT_EQ(0, memcmp(in, "12345678", 8));
        send_and_receive(p, 65536);
        EXPECT_GT(low_watermark(fd), 1 << 20) << "and on again";
    }
}

TEST(TcpRead, WhatOthersSendIsAcknowledgedWhenItIsRead)
{
    LanePair p;
    p.open(1, 65536);
    send_and_receive(p, 65536);
    EXPECT_EQ(1, low_watermark(p.adopted[0]));
}

} // namespace
