// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A sender closes its end. Everything that it sent arrives, whichever stream or lane ends first. A
// receive for which nothing can come any more fails.
#include "tcp/lane_pair.h"

namespace
{

struct Receive {
    std::vector<uint8_t> in;
    pvn_req *req = nullptr;
    size_t size = 99;

    void post(pvn_engine *e, size_t room, int tag = 0)
    {
        in.assign(room, 0xAA);
        void *data = in.data();
        ASSERT_EQ(0, pvn_engine_irecv(e, 1, &data, &room, &tag, nullptr, &req));
        ASSERT_TRUE(req);
    }
    // Returns 1 if the receive is done, 0 if it is still open, or the error.
    int test(int calls = 20000)
    {
        int rc = 0, done = 0;
        for (int i = 0; i < calls && rc == 0 && !done; i++)
            rc = pvn_engine_test(req, &done, &size);
        return done ? 1 : rc;
    }
};

// Sends the bytes from offset to offset + len of a message of `total` bytes. Each byte is the
// message's number.
void send_chunk(int fd, uint64_t seq, uint64_t total, uint16_t chunk, uint64_t offset, uint32_t len,
                int tag = 0)
{
    pvn_frame f = {};
    f.seq = seq;
    f.total = total;
    f.chunk = chunk;
    f.offset = offset;
    f.len = len;
    f.tag = tag;
    std::vector<uint8_t> b(PVN_FRAME_LEN + len, static_cast<uint8_t>(seq));
    pvn_frame_encode(&f, 0, b.data());
    ASSERT_EQ(static_cast<ssize_t>(b.size()), send(fd, b.data(), b.size(), MSG_NOSIGNAL));
}

void close_sender(LanePair &p)
{
    pvn_engine_free(p.etx);
    p.etx = nullptr;
    p.tx->ops->close(p.tx);
    p.tx = nullptr;
}

class TcpEnd : public testing::Test
{
  protected:
    LanePair p;
    Receive first, second;
    void SetUp() override
    {
        p.open(2);
    }
    void fails(Receive &r)
    {
        EXPECT_EQ(-ECONNRESET, r.test());
        EXPECT_TRUE(strstr(p.rx->err.reason[0], "the peer has closed the connection"))
            << p.rx->err.reason[0];
    }
};

// The message before the one that arrived was never sent.
TEST_F(TcpEnd, BeforeAMessageThatOthersAreBehind)
{
    first.post(p.erx, 100);
    second.post(p.erx, 100);
    send_chunk(p.dialed[1], 1, 10, 0, 0, 10);
    close_sender(p);
    fails(first);
}

// Half of the first message was never sent, and the message that arrived has no receive.
TEST_F(TcpEnd, InAMessageThatOthersAreBehind)
{
    first.post(p.erx, 100);
    send_chunk(p.dialed[0], 0, 100, 0, 0, 50);
    send_chunk(p.dialed[1], 1, 10, 0, 0, 10);
    close_sender(p);
    fails(first);
}

// Both messages have arrived, and their receives come later.
TEST_F(TcpEnd, AnEndBeforeTheReceivesLosesNothing)
{
    send_chunk(p.dialed[0], 0, 10, 0, 0, 10);
    send_chunk(p.dialed[1], 1, 10, 0, 0, 10);
    close_sender(p);
    first.post(p.erx, 100);
    EXPECT_EQ(1, first.test());
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, pvn_engine_progress(p.erx)) << "nobody waits";
    second.post(p.erx, 100);
    EXPECT_EQ(1, second.test());
    EXPECT_EQ(10u, second.size);
    EXPECT_EQ(1, second.in[9]);
    first.post(p.erx, 100);
    fails(first);
}

// One message is in the unexpected-message queue. Its receive comes after all streams have ended.
TEST_F(TcpEnd, BehindAMessageWithoutAReceive)
{
    send_chunk(p.dialed[0], 0, 10, 0, 0, 10, 9);
    send_chunk(p.dialed[1], 1, 10, 0, 0, 10);
    first.post(p.erx, 10);
    ASSERT_EQ(1, first.test());
    close_sender(p);
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, pvn_engine_progress(p.erx)) << "nobody waits";
    second.post(p.erx, 10, 9);
    EXPECT_EQ(1, second.test());
    first.post(p.erx, 10);
    fails(first);
}

// Puts a message without a receive into the unexpected-message queue, and lets 255 others overtake
// it. The next message waits until the first is received.
static void keep_one_aside(pvn_engine *e, int fd, Receive &others)
{
    send_chunk(fd, 0, 10, 0, 0, 10, 9);
    for (uint64_t seq = 1; seq < PVN_MAX_SENDS; seq++) {
        send_chunk(fd, seq, 10, 0, 0, 10);
        others.post(e, 10);
        ASSERT_EQ(1, others.test());
    }
}

TEST_F(TcpEnd, OfAMessageThatIsKeptAside)
{
    keep_one_aside(p.erx, p.dialed[1], first);
    close_sender(p);
    first.post(p.erx, 10);
    fails(first);
}

TEST_F(TcpEnd, BehindAMessageThatIsKeptAside)
{
    keep_one_aside(p.erx, p.dialed[1], first);
    send_chunk(p.dialed[1], PVN_MAX_SENDS, 10, 0, 0, 10);
    close_sender(p);
    first.post(p.erx, 10);
    EXPECT_EQ(0, first.test()) << p.rx->err.reason[0];
    second.post(p.erx, 10, 9);
    EXPECT_EQ(1, second.test());
    EXPECT_EQ(1, first.test());
}

// The queue has room for 64 messages.
TEST_F(TcpEnd, OfAFullQueueLosesNothing)
{
    first.post(p.erx, 10, 9);
    for (uint64_t seq = 0; seq < 64; seq++)
        send_chunk(p.dialed[1], seq, 10, 0, 0, 10, 5);
    send_chunk(p.dialed[1], 64, 10, 0, 0, 10, 9);
    ASSERT_EQ(1, first.test()) << p.rx->err.reason[0];
    EXPECT_EQ(64, first.in[9]);
    for (uint64_t seq = 0; seq < 64; seq++) {
        second.post(p.erx, 10, 5);
        ASSERT_EQ(1, second.test());
        EXPECT_EQ(seq, second.in[9]);
    }
}

TEST_F(TcpEnd, AMessageBehindAFullQueueEndsTheComm)
{
    first.post(p.erx, 10, 9);
    for (uint64_t seq = 0; seq < 65; seq++)
        send_chunk(p.dialed[1], seq, 10, 0, 0, 10, 5);
    EXPECT_EQ(-ENOBUFS, first.test());
    const char *why = pvn_engine_err(p.erx)->reason[0];
    EXPECT_TRUE(strstr(why, "64 messages of 640 bytes are kept aside")) << why;
}

// One of two lanes has ended, and the streams of the other may be slower.
class TcpEndOfLanes : public testing::Test
{
  protected:
    LanePair p, q;
    pvn_engine *e = nullptr;
    Receive r, behind;
    void SetUp() override
    {
        p.open(1);
        q.open(2);
        pvn_engine_cfg c = {};
        c.nlanes = 2;
        c.lanes[0] = p.rx;
        c.lanes[1] = q.rx;
        q.rx->idx = 1;
        c.chunk = 1 << 20;
        c.unexpected_max = 64 << 20;
        c.now = lane_pair_now;
        e = pvn_engine_new(&c);
        ASSERT_TRUE(e);
    }
    void TearDown() override
    {
        pvn_engine_free(e);
    }
};

TEST_F(TcpEndOfLanes, WhatTheSlowerOneBringsArrives)
{
    r.post(e, 100);
    send_chunk(p.dialed[0], 0, 100, 0, 0, 50);
    close_sender(p);
    EXPECT_EQ(0, r.test()) << pvn_engine_err(e)->reason[0];
    send_chunk(q.dialed[0], 0, 100, 1, 50, 50);
    close_sender(q);
    EXPECT_EQ(1, r.test());
    EXPECT_EQ(100u, r.size);
    behind.post(e, 100);
    EXPECT_EQ(-ECONNRESET, behind.test());
}

// The first message arrives on the lane that ends last.
TEST_F(TcpEndOfLanes, WhatWaitsForTheSlowerOneArrives)
{
    r.post(e, 100);
    behind.post(e, 100);
    send_chunk(p.dialed[0], 1, 10, 0, 0, 10);
    close_sender(p);
    EXPECT_EQ(0, r.test());
    send_chunk(q.dialed[0], 0, 10, 0, 0, 10);
    close_sender(q);
    EXPECT_EQ(1, r.test());
    EXPECT_EQ(1, behind.test());
    EXPECT_EQ(1, behind.in[9]);
}

// A message waits in the second lane after the first lane has ended. The engine takes it when
// another receive comes.
TEST_F(TcpEndOfLanes, WhatWaitsBehindAMessageThatIsKeptAsideArrives)
{
    keep_one_aside(e, q.dialed[1], r);
    send_chunk(q.dialed[1], PVN_MAX_SENDS, 10, 0, 0, 10);
    close_sender(p);
    close_sender(q);
    r.post(e, 10);
    EXPECT_EQ(0, r.test()) << pvn_engine_err(e)->reason[0];
    behind.post(e, 10, 9);
    EXPECT_EQ(1, r.test());
    EXPECT_EQ(1, behind.test());
}

// The sender closes while its small messages are done but not acknowledged. Acknowledgements of the
// first ones make its kernel reset the connection. All messages arrive nevertheless.
TEST(TcpEndKept, BeforeItsAcknowledgements)
{
    LanePair p;
    Receive r;
    p.acknowledged = p.keeps = true;
    p.open(1);
    std::vector<uint8_t> out = bytes::of(8, 1);
    for (int i = 0; i < 60; i++) {
        pvn_req *s;
        int done = 0;
        ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), 8, 0, nullptr, &s));
        while (!done)
            ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
    }
    EXPECT_EQ(60, pvn_engine_kept(p.etx));
    close_sender(p);
    for (int i = 0; i < 60; i++) {
        r.post(p.erx, 8);
        ASSERT_EQ(1, r.test()) << i << ": " << p.rx->err.reason[0];
        EXPECT_EQ(out, r.in);
    }
    EXPECT_GE(pvn_tcp_lane_get_stats(p.rx)->ack_calls, 1u) << "it has acknowledged some";
    r.post(p.erx, 8);
    EXPECT_EQ(-ECONNRESET, r.test());
}

} // namespace
