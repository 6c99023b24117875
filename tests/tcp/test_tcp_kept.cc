// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Small messages are done when the kernel has them, and are acknowledged later, many at a time.
#include "tcp/lane_pair.h"

namespace
{

// Sends and tests without any call of the receiver. True if the send is done within 1000 tests.
static bool is_done_alone(LanePair *p, const std::vector<uint8_t> &m, pvn_req **s)
{
    int done = 0;
    EXPECT_EQ(0, pvn_engine_isend(p->etx, m.data(), m.size(), 0, nullptr, s));
    for (int i = 0; i < 1000 && !done; i++)
        EXPECT_EQ(0, pvn_engine_test(*s, &done, nullptr));
    return done;
}

// Calls both ends until all kept messages are acknowledged. overdue() is the periodic check that
// comms make ten times a second. It acknowledges the rest.
static void settle(LanePair *p)
{
    int turns = 0;
    for (Deadline wait; wait.left() && pvn_engine_kept(p->etx) > 0;) {
        ASSERT_EQ(0, pvn_engine_progress(p->etx));
        ASSERT_EQ(0, pvn_engine_progress(p->erx));
        if (++turns % 1000 == 0) {
            ASSERT_EQ(0, p->rx->ops->overdue(p->rx, 1, 0));
            ASSERT_EQ(0, p->tx->ops->overdue(p->tx, 1, 0));
        }
    }
    EXPECT_EQ(0, pvn_engine_kept(p->etx));
}

// A small message is done when the kernel has it, whatever the receiver does. A larger one is
// acknowledged first.
TEST(TcpLaneKeeps, ASmallSendIsDoneBeforeItsReceiverCalls)
{
    for (int streams : {1, 3}) {
        for (size_t n : {size_t(0), size_t(8), size_t(4096), size_t(4097)}) {
            LanePair p;
            p.acknowledged = p.keeps = true;
            p.open(streams, 65536, true);
            std::vector<uint8_t> m = bytes::of(n, 7), sent = m, in(n);
            void *buf = in.data();
            int tag = 0, done = 0;
            pvn_req *r, *s;
            bool small = n <= PVN_KEEP_MAX;
            ASSERT_EQ(small, is_done_alone(&p, m, &s)) << n;
            EXPECT_EQ(small, pvn_engine_kept(p.etx));
            if (small)
                std::fill(m.begin(), m.end(), uint8_t(0));
            ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &n, &tag, nullptr, &r));
            for (Deadline wait; wait.left() && !done;)
                ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
            ASSERT_EQ(sent, in);
            settle(&p);
        }
    }
}

// Messages of 8 bytes, eight at a time. Nobody waits for their acknowledgements, which share system
// calls at both ends.
TEST(TcpLaneKeeps, AcknowledgementsShareACall)
{
    LanePair p;
    p.acknowledged = p.keeps = true;
    p.open(1, 65536, true);
    const uint64_t rounds = 40, depth = 8;
    std::vector<uint8_t> out = bytes::of(8, 1), in(8);
    for (uint64_t i = 0; i < rounds; i++) {
        pvn_req *s[depth], *r[depth];
        for (uint64_t k = 0; k < depth; k++) {
            void *buf = in.data();
            size_t n = 8;
            int tag = 0;
            ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &n, &tag, nullptr, &r[k]));
            ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), 8, 0, nullptr, &s[k]));
            ASSERT_TRUE(r[k] && s[k]);
        }
        for (uint64_t k = 0; k < depth; k++)
            for (int sent = 0, received = 0; !sent || !received;) {
                ASSERT_EQ(0, sent ? 0 : pvn_engine_test(s[k], &sent, nullptr));
                ASSERT_EQ(0, received ? 0 : pvn_engine_test(r[k], &received, nullptr));
            }
    }
    EXPECT_EQ(rounds * depth, pvn_engine_get_stats(p.etx)->kept);
    EXPECT_LE(pvn_tcp_lane_get_stats(p.rx)->ack_calls, rounds * depth / 32 + 1);
    EXPECT_GE(pvn_tcp_lane_get_stats(p.rx)->ack_calls, rounds * depth / 32);
    EXPECT_LE(pvn_tcp_lane_get_stats(p.tx)->ack_calls, rounds * depth / 8);
    settle(&p);
}

// A small message is followed by large ones on other streams. Its copy is freed nevertheless.
TEST(TcpLaneKeeps, OneThatIsLeftBehindIsAcknowledged)
{
    LanePair p;
    p.acknowledged = p.keeps = true;
    p.open(4, 65536);
    std::vector<uint8_t> out = bytes::of(20000, 1), in(20000);
    for (int i = 0; i < 100; i++) {
        pvn_req *s, *r;
        void *buf = in.data();
        size_t n = 20000;
        int tag = 0, sent = 0, received = 0;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &n, &tag, nullptr, &r));
        ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), i ? 20000 : 8, 0, nullptr, &s));
        while (!sent || !received) {
            ASSERT_EQ(0, sent ? 0 : pvn_engine_test(s, &sent, nullptr));
            ASSERT_EQ(0, received ? 0 : pvn_engine_test(r, &received, nullptr));
        }
    }
    EXPECT_EQ(0, pvn_engine_kept(p.etx));
}

// Posts `receives` receives and sends one large message into the first. Returns the receiver's
// system calls for acknowledgements by the time that the message is reported, and after the next
// poll.
struct AckCalls {
    uint64_t reported, polled;
};
static AckCalls calls_to_acknowledge(int receives, size_t zerocopy)
{
    LanePair p;
    p.acknowledged = true;
    p.open(1, 1 << 20, false, zerocopy);
    std::vector<uint8_t> out = bytes::of(100000, 1), in(100000);
    const pvn_tcp_lane_stats *stats = pvn_tcp_lane_get_stats(p.rx);
    pvn_req *s, *r, *first = nullptr;
    AckCalls calls = {};
    int done = 0;
    for (int i = 0; i < receives; i++) {
        void *buf = in.data();
        size_t n = in.size();
        int tag = 0;
        EXPECT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &n, &tag, nullptr, &r));
        first = first ? first : r;
    }
    EXPECT_EQ(0, pvn_engine_isend(p.etx, out.data(), out.size(), 0, nullptr, &s));
    for (Deadline wait; wait.left() && !done;) {
        EXPECT_EQ(0, pvn_engine_progress(p.etx));
        EXPECT_EQ(0, pvn_engine_test(first, &done, nullptr));
    }
    EXPECT_TRUE(done && in == out);
    EXPECT_EQ(zerocopy > 0, pvn_tcp_lane_get_stats(p.tx)->zerocopy_bytes > 0);
    calls.reported = stats->ack_calls;
    EXPECT_EQ(0, pvn_engine_progress(p.erx));
    calls.polled = stats->ack_calls;
    for (done = 0; !done;)
        EXPECT_EQ(0, pvn_engine_test(s, &done, nullptr));
    return calls;
}

// A large message is reported before it is acknowledged, except in two cases. Its pages may be
// overwritten after a reset, or the receiver waits for nothing else and may make no further call.
TEST(TcpLaneAcknowledges, WhatWasCopiedWithTheNextPoll)
{
    AckCalls calls = calls_to_acknowledge(2, 0);
    EXPECT_EQ(0u, calls.reported);
    EXPECT_EQ(1u, calls.polled);
    for (auto at_once : {calls_to_acknowledge(1, 0), calls_to_acknowledge(2, 65536)}) {
        EXPECT_EQ(1u, at_once.reported);
        EXPECT_EQ(1u, at_once.polled);
    }
}

} // namespace
