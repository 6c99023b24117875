// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The TCP lane under the engine, over loopback sockets.
#include "support/next_symbol.h"
#include "support/whole_table.h"
#include "tcp/lane_pair.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace
{

int reads_that_fail; // the next calls of recvmsg

} // namespace

// The lane's calls arrive here: the program comes before the C library.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr *m, int flags)
{
    static auto real = next_symbol<decltype(&recvmsg)>("recvmsg");
    if (reads_that_fail == 0)
        return real(fd, m, flags);
    reads_that_fail--;
    errno = EAGAIN;
    return -1;
}

namespace
{

struct Shape {
    int streams;
    size_t chunk;
    bool batch;
    size_t zc;
    int buf;
    bool sealed = false;
};

class TcpLane : public testing::TestWithParam<Shape>
{
  protected:
    LanePair p;
    void SetUp() override
    {
        p.rcvbuf = p.sndbuf = GetParam().buf;
        p.sealed = GetParam().sealed;
        p.open(GetParam().streams, GetParam().chunk, GetParam().batch, GetParam().zc);
    }
};

TEST_P(TcpLane, EverySizeArrivesWhole)
{
    for (size_t n :
         {size_t(0), size_t(1), size_t(8), size_t(191), size_t(192), size_t(193), size_t(4096),
          size_t(65536), size_t(100003), size_t(1) << 20, (size_t(5) << 20) + 7}) {
        auto out = bytes::of(n, static_cast<unsigned>(n));
        std::vector<uint8_t> in(n + 64, 0xAA);
        void *buf = in.data();
        size_t cap = n + 32, got = 99, sent = 99;
        int tag = 3;
        pvn_req *r = nullptr, *s = nullptr;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
        ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), n, 3, nullptr, &s));
        ASSERT_TRUE(r && s);
        finish(s, r, &sent, &got);
        EXPECT_EQ(n, sent);
        EXPECT_EQ(n, got);
        EXPECT_TRUE(bytes::same(out.data(), in.data(), n)) << n;
        for (size_t i = n; i < in.size(); i++)
            ASSERT_EQ(0xAA, in[i]) << "wrote behind a message of " << n;
    }
}

TEST_P(TcpLane, SendsBeforeReceivesWait)
{
    std::vector<uint8_t> out = bytes::of(3000, 1), in(3000);
    pvn_req *s = nullptr, *r = nullptr;
    ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), out.size(), 0, nullptr, &s));
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, pvn_engine_progress(p.erx));
    void *buf = in.data();
    size_t cap = in.size();
    int tag = 0;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
    finish(s, r, nullptr, nullptr);
    EXPECT_EQ(out, in);
}

// 8 messages of random sizes in flight, as NCCL's proxy has
TEST_P(TcpLane, PipelineOfRandomSizes)
{
    const int total = messages(600), depth = 8;
    std::mt19937 rnd(7);
    std::vector<std::vector<uint8_t>> out(total), in(total);
    for (int i = 0; i < total; i++) {
        size_t n = rnd() % 4 == 0 ? rnd() % 300000 : rnd() % 500;
        out[i] = bytes::of(n, static_cast<unsigned>(i));
        in[i].resize(n + 5);
    }
    std::vector<pvn_req *> s(total), r(total);
    int sp = 0, st = 0, rp = 0, rt = 0;
    for (Deadline wait; wait.left() && (st < total || rt < total);) {
        if (sp < total && sp - st < depth) {
            ASSERT_EQ(0,
                      pvn_engine_isend(p.etx, out[sp].data(), out[sp].size(), 1, nullptr, &s[sp]));
            sp += s[sp] != nullptr;
        }
        if (rp < total && rp - rt < depth) {
            void *buf = in[rp].data();
            size_t cap = in[rp].size();
            int tag = 1;
            ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r[rp]));
            rp += r[rp] != nullptr;
        }
        int d = 0;
        size_t n = 0;
        if (st < sp) {
            ASSERT_EQ(0, pvn_engine_test(s[st], &d, &n));
            st += d;
        }
        if (rt < rp) {
            ASSERT_EQ(0, pvn_engine_test(r[rt], &d, &n));
            if (d) {
                ASSERT_EQ(out[rt].size(), n);
                in[rt].resize(n);
                ASSERT_EQ(out[rt], in[rt]) << rt;
                rt++;
            }
        }
    }
    EXPECT_EQ(total, st);
    EXPECT_EQ(total, rt);
}

TEST_P(TcpLane, GroupedReceivesByTag)
{
    const int n = 8;
    std::vector<std::vector<uint8_t>> out(n), in(n);
    void *buf[n];
    size_t cap[n], got[n] = {};
    int tags[n];
    for (int i = 0; i < n; i++) {
        out[i] = bytes::of(1000 * static_cast<size_t>(i), static_cast<unsigned>(i));
        in[i].resize(9000);
        buf[i] = in[i].data();
        cap[i] = 9000;
        tags[i] = 100 + i;
    }
    pvn_req *r = nullptr, *s[n] = {};
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, n, buf, cap, tags, nullptr, &r));
    for (int i = n - 1; i >= 0; i--)
        ASSERT_EQ(0,
                  pvn_engine_isend(p.etx, out[i].data(), out[i].size(), 100 + i, nullptr, &s[i]));
    int done = 0;
    for (int i = 0; i < n; i++)
        for (done = 0; !done;) {
            int ignored;
            ASSERT_EQ(0, pvn_engine_test(s[i], &done, nullptr));
            ignored = pvn_engine_progress(p.erx);
            ASSERT_EQ(0, ignored);
        }
    for (done = 0; !done;)
        ASSERT_EQ(0, pvn_engine_test(r, &done, got));
    for (int i = 0; i < n; i++) {
        EXPECT_EQ(out[i].size(), got[i]);
        in[i].resize(got[i]);
        EXPECT_EQ(out[i], in[i]);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TcpLane,
    testing::Values(Shape{1, 1 << 20, false, 0, 0}, Shape{1, 1 << 20, true, 0, 0},
                    Shape{3, 64 << 10, false, 0, 0}, Shape{4, 5000, true, 0, 32768},
                    Shape{16, 1 << 16, false, 0, 32768}, Shape{1, 256 << 10, false, 64 << 10, 0},
                    Shape{3, 32 << 10, true, 16 << 10,
                          65536} AND_SEALED(Shape{1, 1 << 20, false, 0, 0, true},
                                            Shape{1, 1 << 20, true, 64 << 10, 0, true},
                                            Shape{4, 5000, true, 0, 32768, true},
                                            Shape{2, 64 << 10, false, 0, 4096, true})),
    shape_name<testing::TestParamInfo<Shape>>);

TEST(TcpLaneErrors, TooLongForTheReceive)
{
    LanePair p;
    p.open();
    std::vector<uint8_t> out(100), in(50);
    pvn_req *r = nullptr, *s = nullptr;
    void *buf = in.data();
    size_t cap = in.size();
    int tag = 5;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
    ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), out.size(), 5, nullptr, &s));
    int rc = 0, done = 0;
    for (Deadline wait; wait.left() && rc == 0;) {
        if (pvn_engine_err(p.etx) == nullptr && pvn_engine_pending(p.etx))
            pvn_engine_progress(p.etx);
        rc = pvn_engine_test(r, &done, nullptr);
    }
    EXPECT_EQ(-EMSGSIZE, rc);
    ASSERT_NE(nullptr, pvn_engine_err(p.erx));
    EXPECT_NE(nullptr, strstr(pvn_engine_err(p.erx)->reason[0], "100 bytes"));
    EXPECT_NE(nullptr, strstr(pvn_engine_err(p.erx)->reason[0], "takes 50"));
    for (uint8_t b : in)
        EXPECT_EQ(0, b);
}

// The bytes of a message's chunks exceed the message. The last chunk would be written after its
// receive is done, or into freed memory of the unexpected-message queue.
TEST(TcpLaneErrors, ChunksOfMoreBytesThanTheirMessage)
{
    for (int tag : {5, 6}) { // of the receive: that of the message, or another one
        LanePair p;
        p.open();
        std::vector<uint8_t> in(100), behind(100), all;
        const auto receive = [&](std::vector<uint8_t> &to, int with, pvn_req **r) {
            void *buf = to.data();
            size_t cap = to.size();
            return pvn_engine_irecv(p.erx, 1, &buf, &cap, &with, nullptr, r);
        };
        const auto send_part = [&](size_t from, size_t n) {
            ASSERT_EQ(static_cast<ssize_t>(n),
                      send(p.dialed[0], all.data() + from, n, MSG_NOSIGNAL));
        };
        pvn_req *first = nullptr, *second = nullptr;
        ASSERT_EQ(0, receive(in, tag, &first));
        pvn_frame f = {};
        f.total = f.len = 100;
        f.tag = 5;
        for (f.chunk = 0; f.chunk < 2; f.chunk++) {
            uint8_t head[PVN_FRAME_LEN];
            pvn_frame_encode(&f, 0, head);
            all.insert(all.end(), head, head + sizeof(head));
            all.insert(all.end(), 100, 0x55);
        }
        const size_t part = all.size() - 60;
        int done = 0, rc = 0;
        send_part(0, part);
        for (int i = 0; i < 1000 && rc == 0 && !done; i++)
            rc = pvn_engine_test(first, &done, nullptr);
        std::fill(in.begin(), in.end(), 0xAA);
        if (rc == 0)
            rc = receive(behind, 5, &second);
        send_part(part, all.size() - part);
        for (int i = 0; i < 1000 && rc == 0; i++)
            rc = pvn_engine_progress(p.erx);
        EXPECT_EQ(-EPROTO, rc) << tag;
        ASSERT_NE(nullptr, pvn_engine_err(p.erx)) << tag;
        EXPECT_NE(nullptr, strstr(pvn_engine_err(p.erx)->reason[0], "overlap"));
        EXPECT_EQ(std::vector<uint8_t>(100, 0xAA), in);
    }
}

TEST(TcpLaneErrors, PeerGoneInMidMessage)
{
    LanePair p;
    p.rcvbuf = p.sndbuf = 4096;
    p.open();
    std::vector<uint8_t> out(4 << 20), in(4 << 20);
    pvn_req *r = nullptr, *s = nullptr;
    void *buf = in.data();
    size_t cap = in.size();
    int tag = 0, done = 0;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
    ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), out.size(), 0, nullptr, &s));
    ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    ASSERT_FALSE(done) << "the message must not fit the socket buffers, or nothing is tested";
    pvn_engine_free(p.etx);
    p.etx = nullptr;
    p.tx->ops->close(p.tx);
    p.tx = nullptr;
    int rc = 0;
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_test(r, &done, nullptr);
    EXPECT_EQ(-ECONNRESET, rc);
    EXPECT_NE(nullptr, strstr(pvn_engine_err(p.erx)->reason[0], "middle of a message"));
}

TEST(TcpLaneErrors, PeerGoneWhileWeWait)
{
    LanePair p;
    p.open(3, 65536);
    char in[8];
    pvn_req *r = nullptr;
    void *buf = in;
    size_t cap = sizeof(in);
    int tag = 0, done = 0, rc = 0;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
    p.tx->ops->close(p.tx);
    p.tx = nullptr;
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_test(r, &done, nullptr);
    EXPECT_EQ(-ECONNRESET, rc);
}

TEST(TcpLaneErrors, ASendToAClosedReceiverFails)
{
    LanePair p;
    p.rcvbuf = p.sndbuf = 4096;
    p.open();
    std::vector<uint8_t> out(4 << 20);
    pvn_req *s = nullptr;
    ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), out.size(), 0, nullptr, &s));
    p.rx->ops->close(p.rx);
    p.rx = nullptr;
    int rc = 0, done = 0;
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_test(s, &done, nullptr);
    EXPECT_TRUE(rc == -ECONNRESET || rc == -EPIPE) << rc;
}

TEST(TcpLaneTable, NoOperationIsMissing)
{
    LanePair p;
    p.open();
    expect_no_holes(p.tx);
    expect_no_holes(p.rx);
}

TEST(TcpLaneIdle, CostsNoSystemCall)
{
    LanePair p;
    p.open(2, 65536);
    char in[8];
    pvn_req *r = nullptr, *s = nullptr;
    void *buf = in;
    size_t cap = sizeof(in);
    int tag = 0, done = 0;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    uint64_t before = pvn_tcp_lane_get_stats(p.rx)->rx_calls;
    EXPECT_EQ(2u, pvn_tcp_lane_get_stats(p.rx)->idle);
    for (int i = 0; i < 100000; i++)
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    EXPECT_EQ(before, pvn_tcp_lane_get_stats(p.rx)->rx_calls);
    ASSERT_EQ(0, pvn_engine_isend(p.etx, "12345678", 8, 0, nullptr, &s));
    finish(s, r, nullptr, nullptr);
    EXPECT_EQ(0, memcmp(in, "12345678", 8));
}

// Makes one pass over idle comms as NCCL's proxy does. Returns how many of the lanes were polled.
static int pass(const std::vector<pvn_req *> &requests)
{
    int polls = 0, done = 0;
    for (pvn_req *r : requests) {
        if (pvn_engine_is_still(r))
            continue;
        polls++;
        EXPECT_EQ(0, pvn_engine_test(r, &done, nullptr));
        EXPECT_EQ(0, done);
    }
    return polls;
}

TEST(TcpLaneIdle, OneOfManyCommsIsPolledInAPass)
{
    enum { COMMS = 64, PASSES = 2000 };
    std::vector<LanePair> p(COMMS);
    std::vector<pvn_req *> r(COMMS);
    std::vector<std::array<char, 8>> in(COMMS);
    for (int i = 0; i < COMMS; i++) {
        p[i].open(1, 65536);
        void *buf = in[i].data();
        size_t cap = 8;
        int tag = 0;
        ASSERT_EQ(0, pvn_engine_irecv(p[i].erx, 1, &buf, &cap, &tag, nullptr, &r[i]));
    }
    for (int i = 0; i < 100; i++)
        pass(r);
    uint64_t reads = 0;
    for (LanePair &pair : p)
        reads += pvn_tcp_lane_get_stats(pair.rx)->rx_calls;
    EXPECT_LE(reads, COMMS * 80u) << "fewer empty reads make one of many comms idle";
    int polls = 0, without = 0, longest = 0;
    for (int i = 0; i < PASSES; i++) {
        int now = pass(r);
        polls += now;
        without = now ? 0 : without + 1;
        longest = std::max(longest, without);
    }
    EXPECT_GE(polls, PASSES / 2) << "the kernel is queried";
    EXPECT_LE(polls, PASSES * 2);
    EXPECT_LE(longest, COMMS / 4) << "passes in which nobody queried the kernel";
    // A message on any comm is found in the pass in which the kernel is queried.
    for (int i = 0; i < COMMS; i++) {
        pvn_req *s;
        ASSERT_EQ(0, pvn_engine_isend(p[i].etx, "12345678", 8, 0, nullptr, &s));
        for (int sent = 0; !sent;)
            ASSERT_EQ(0, pvn_engine_test(s, &sent, nullptr));
    }
    for (int left = COMMS, tries = 0; left > 0; tries++) {
        ASSERT_LT(tries, 1000000);
        for (pvn_req *&q : r) {
            int done = 0;
            if (!q || pvn_engine_is_still(q))
                continue;
            ASSERT_EQ(0, pvn_engine_test(q, &done, nullptr));
            if (done) {
                q = nullptr;
                left--;
            }
        }
    }
    for (auto &bytes : in)
        EXPECT_EQ(0, memcmp(bytes.data(), "12345678", 8));
}

// A comm that is alone, or whose neighbours are no longer called, is polled in each test.
TEST(TcpLaneIdle, ACommOnItsOwnIsPolledAtEachTest)
{
    LanePair p;
    p.open(1, 65536);
    char in[8];
    void *buf = in;
    size_t cap = 8;
    int tag = 0;
    pvn_req *r;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
    tcp_empty_polls += 1000; // other receivers, long ago
    int polls = 0;
    for (int i = 0; i < 1000; i++)
        polls += pass({r});
    EXPECT_GE(polls, 990);
}

TEST(TcpLaneBatch, SmallMessagesShareCalls)
{
    LanePair p;
    p.open(1, 65536, true);
    char in[8][8];
    pvn_req *r[8], *s[8];
    for (int i = 0; i < 8; i++) {
        void *buf = in[i];
        size_t cap = 8;
        int tag = 0;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r[i]));
    }
    for (int i = 0; i < 8; i++)
        ASSERT_EQ(0, pvn_engine_isend(p.etx, "abcdefgh", 8, 0, nullptr, &s[i]));
    EXPECT_EQ(1u, pvn_tcp_lane_get_stats(p.tx)->tx_calls)
        << "the first goes at once, the rest wait for company";
    int done = 0;
    ASSERT_EQ(0, pvn_engine_test(s[7], &done, nullptr));
    EXPECT_EQ(1u, pvn_tcp_lane_get_stats(p.tx)->tx_calls) << "one test follows each message anyway";
    ASSERT_EQ(0, pvn_engine_test(s[7], &done, nullptr));
    EXPECT_EQ(2u, pvn_tcp_lane_get_stats(p.tx)->tx_calls)
        << "nothing more is coming: all in one call";
    EXPECT_TRUE(done);
    finish(s[6], r[7], nullptr, nullptr);
    EXPECT_EQ(0, memcmp(in[7], "abcdefgh", 8));
}

// Polls a receive for which nothing arrives. So the calling thread counts as idle.
static void be_idle(pvn_req *r)
{
    int done = 0;
    ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
}

TEST(TcpLaneBatch, MessagesOfAnIdleThreadDoNotWait)
{
    LanePair p;
    p.open(1, 65536, true);
    for (uint64_t i = 1; i <= 3; i++) {
        char in[8];
        void *buf = in;
        size_t cap = 8;
        int tag = 0;
        pvn_req *r, *s;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
        be_idle(r);
        ASSERT_EQ(0, pvn_engine_isend(p.etx, "abcdefgh", 8, 0, nullptr, &s));
        EXPECT_EQ(i, pvn_tcp_lane_get_stats(p.tx)->tx_calls);
        finish(s, r, nullptr, nullptr);
    }
}

// Sends two messages of n bytes. Returns the sender's system calls for the second. idle: the thread
// was idle between them.
static uint64_t calls_for_second(bool batch, size_t n, bool idle)
{
    LanePair p;
    p.open(1, 512 << 10, batch);
    auto out = bytes::of(n, 2);
    uint64_t before = 0;
    unsigned polls = tcp_empty_polls;
    for (int i = 0; i < 2; i++) {
        std::vector<uint8_t> in(n);
        void *buf = in.data();
        int tag = 0;
        pvn_req *r, *s;
        before = pvn_tcp_lane_get_stats(p.tx)->tx_calls;
        EXPECT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &n, &tag, nullptr, &r));
        if (idle)
            be_idle(r);
        else
            tcp_empty_polls = polls;
        EXPECT_EQ(0, pvn_engine_isend(p.etx, out.data(), n, 0, nullptr, &s));
        finish(s, r, nullptr, nullptr);
        EXPECT_EQ(out, in);
    }
    return pvn_tcp_lane_get_stats(p.tx)->tx_calls - before;
}

TEST(TcpLaneBatch, ALoneMessageThatIsALittleMoreThanAPacketGoesInHalves)
{
    EXPECT_EQ(2u, calls_for_second(true, 64 << 10, true));
    EXPECT_EQ(2u, calls_for_second(true, 96 << 10, true));
    EXPECT_EQ(1u, calls_for_second(true, 48 << 10, true)) << "one packet";
    EXPECT_EQ(1u, calls_for_second(true, 128 << 10, true)) << "two packets as it is";
    EXPECT_EQ(1u, calls_for_second(true, 64 << 10, false)) << "one of many";
    EXPECT_EQ(1u, calls_for_second(false, 64 << 10, true)) << "it is not known which are lone";
}

// Moves streams of messages over several comms as NCCL's proxy does: every pass posts one message
// on each comm and tests the oldest, with 8 in flight. Returns the system calls that sent
// something, per message.
static double calls_per_message(int comms, size_t n, int messages)
{
    enum { DEPTH = 8 };
    std::vector<LanePair> p(comms);
    for (LanePair &pair : p)
        pair.open(1, 512 << 10, true);
    std::thread receiver([&] {
        struct Flow {
            pvn_req *req[DEPTH];
            int posted = 0, done = 0;
        };
        std::vector<Flow> flow(comms);
        std::vector<uint8_t> in(n);
        void *buf = in.data();
        int tag = 0;
        for (int left = comms; left > 0;)
            for (int c = 0; c < comms; c++) {
                Flow &f = flow[c];
                if (f.done == messages)
                    continue;
                if (f.posted < messages && f.posted - f.done < DEPTH) {
                    ASSERT_EQ(0, pvn_engine_irecv(p[c].erx, 1, &buf, &n, &tag, nullptr,
                                                  &f.req[f.posted % DEPTH]));
                    f.posted++;
                }
                int done = 0;
                ASSERT_EQ(0, pvn_engine_test(f.req[f.done % DEPTH], &done, nullptr));
                f.done += done;
                left -= done && f.done == messages;
            }
    });
    std::vector<uint8_t> out(n);
    std::vector<std::array<pvn_req *, DEPTH>> req(comms);
    std::vector<int> posted(comms), finished(comms);
    for (int left = comms; left > 0;)
        for (int c = 0; c < comms; c++) {
            if (finished[c] == messages)
                continue;
            if (posted[c] < messages && posted[c] - finished[c] < DEPTH) {
                EXPECT_EQ(0, pvn_engine_isend(p[c].etx, out.data(), n, 0, nullptr,
                                              &req[c][posted[c] % DEPTH]));
                posted[c]++;
            }
            int done = 0;
            EXPECT_EQ(0, pvn_engine_test(req[c][finished[c] % DEPTH], &done, nullptr));
            finished[c] += done;
            left -= done && finished[c] == messages;
        }
    receiver.join();
    uint64_t calls = 0;
    for (LanePair &pair : p) {
        const pvn_tcp_lane_stats *s = pvn_tcp_lane_get_stats(pair.tx);
        calls +=
            s->tx_calls - s->tx_full; /* how often a full socket is tried depends on the host */
    }
    return (double)calls / comms / messages;
}

TEST(TcpLaneBatch, StreamsOverSeveralCommsShareCallsAsOneDoes)
{
    for (int comms : {1, 2, 16, 64}) {
        EXPECT_LT(calls_per_message(comms, 8, 4000 / comms), 0.25) << comms << " comms";
        EXPECT_LT(calls_per_message(comms, 16 << 10, 1600 / comms + 40), 0.35) << comms << " comms";
        EXPECT_LT(calls_per_message(comms, 64 << 10, 400 / comms + 10), 0.9) << comms << " comms";
    }
}

TEST(TcpLaneStreams, SmallMessagesKeepToOne)
{
    LanePair p;
    p.open(2, 65536);
    for (int i = 0; i < 1000; i++) {
        char in[8];
        void *buf = in;
        size_t cap = 8;
        int tag = 0;
        pvn_req *r, *s;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
        ASSERT_EQ(0, pvn_engine_isend(p.etx, "abcdefgh", 8, 0, nullptr, &s));
        finish(s, r, nullptr, nullptr);
    }
    EXPECT_EQ(1u, pvn_tcp_lane_get_stats(p.rx)->idle) << "the other stream is left to the poller";
}

TEST(TcpLaneStreams, ALoneOneSharesWithNobody)
{
    for (int streams : {1, 2}) {
        LanePair p;
        p.lone_chunk = 512 << 10;
        p.open(streams, 64 << 10);
        auto out = bytes::of(1 << 20, 1);
        std::vector<uint8_t> in(out.size());
        void *buf = in.data();
        size_t cap = in.size();
        int tag = 0;
        pvn_req *r, *s;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
        ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), out.size(), 0, nullptr, &s));
        finish(s, r, nullptr, nullptr);
        EXPECT_EQ(out, in);
        EXPECT_EQ(streams == 1 ? 2u : 16u, pvn_engine_get_stats(p.etx)->chunks);
    }
}

// A lone small message stays in the kernel's queue until the next call. Callers must not notice
// that.
class TcpLanePeek : public testing::Test
{
  protected:
    LanePair p;
    char in[3][8192] = {};
    pvn_req *r[3];
    void SetUp() override
    {
        p.open(1, 65536);
        for (int i = 0; i < 3; i++) {
            void *buf = in[i];
            size_t cap = sizeof(in[i]);
            int tag = 0;
            ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r[i]));
        }
        look_in_vain(0);
    }
    // The receiver waits, so the next message is a lone one.
    void look_in_vain(int i)
    {
        int done = 0;
        ASSERT_EQ(0, pvn_engine_test(r[i], &done, nullptr));
        ASSERT_FALSE(done);
    }
    void send_one(const std::string &text)
    {
        pvn_req *s = nullptr;
        int done = 0;
        ASSERT_EQ(0, pvn_engine_isend(p.etx, text.data(), text.size(), 0, nullptr, &s));
        for (int i = 0; i < 1000 && !done; i++)
            ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
        ASSERT_TRUE(done);
    }
    void receive_one(int i, const std::string &text)
    {
        int done = 0;
        size_t got = 0;
        for (Deadline wait; wait.left() && !done;)
            ASSERT_EQ(0, pvn_engine_test(r[i], &done, &got));
        ASSERT_TRUE(done);
        ASSERT_EQ(text.size(), got);
        EXPECT_EQ(0, memcmp(in[i], text.data(), got));
    }
};

TEST_F(TcpLanePeek, EveryMessageArrivesOnce)
{
    send_one("first");
    receive_one(0, "first");
    EXPECT_EQ(1u, pvn_tcp_lane_get_stats(p.rx)->rx_peeks);
    send_one("second, behind one that is still queued");
    receive_one(1, "second, behind one that is still queued");
    send_one("third");
    receive_one(2, "third");
    uint64_t sent = pvn_tcp_lane_get_stats(p.tx)->tx_bytes;
    EXPECT_EQ(sent, pvn_tcp_lane_get_stats(p.rx)->rx_bytes);
}

// A read of what has been peeked at finds nothing, as when it is interrupted. The next read has to get it.
TEST_F(TcpLanePeek, EveryMessageArrivesOnceIfAReadFails)
{
    send_one("first");
    receive_one(0, "first");
    ASSERT_EQ(1u, pvn_tcp_lane_get_stats(p.rx)->rx_peeks);
    reads_that_fail = 1;
    look_in_vain(1);
    ASSERT_EQ(0, reads_that_fail);
    look_in_vain(1);
    send_one("second");
    receive_one(1, "second");
    send_one("third");
    receive_one(2, "third");
    EXPECT_EQ(pvn_tcp_lane_get_stats(p.tx)->tx_bytes, pvn_tcp_lane_get_stats(p.rx)->rx_bytes);
}

TEST_F(TcpLanePeek, MessagesOfAnySmallSize)
{
    std::string text(8000, ' ');
    for (size_t i = 0; i < text.size(); i++)
        text[i] = static_cast<char>('a' + i % 23);
    size_t sizes[] = {text.size(), 1, text.size() / 2};
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            look_in_vain(i);
        send_one(text.substr(0, sizes[i]));
        receive_one(i, text.substr(0, sizes[i]));
        EXPECT_GE(pvn_tcp_lane_get_stats(p.rx)->rx_peeks, static_cast<uint64_t>(i) + 1);
    }
    EXPECT_EQ(pvn_tcp_lane_get_stats(p.tx)->tx_bytes, pvn_tcp_lane_get_stats(p.rx)->rx_bytes);
}

TEST_F(TcpLanePeek, TheReaderAcknowledges)
{
    send_one("first");
    receive_one(0, "first");
    int quick = 0;
    socklen_t len = sizeof(quick);
    ASSERT_EQ(1u, p.adopted.size());
    ASSERT_EQ(0, getsockopt(p.adopted[0], IPPROTO_TCP, TCP_QUICKACK, &quick, &len));
    EXPECT_EQ(1, quick) << "the socket passes for interactive";
}

TEST_F(TcpLanePeek, ClosingBehindItIsNoReset)
{
    send_one("first");
    receive_one(0, "first");
    ASSERT_EQ(1u, pvn_tcp_lane_get_stats(p.rx)->rx_peeks);
    pvn_engine_free(p.erx);
    p.erx = nullptr;
    p.rx->ops->close(p.rx);
    p.rx = nullptr;
    ASSERT_TRUE(sees_the_end(p.dialed[0]));
    send_one("the kernel takes it: the peer has only said that it reads no more");
}

TEST(TcpFrame, RoundTripAndDamage)
{
    pvn_frame f = {}, g = {};
    f.seq = 0x0123456789abcdefull;
    f.total = 1ull << 39;
    f.offset = 77;
    f.len = 0xfffffff0u;
    f.chunk = 511;
    f.recv = 7;
    f.tag = -5;
    uint8_t b[PVN_FRAME_LEN];
    unsigned flags = 0;
    for (unsigned each = 0; each <= PVN_FRAME_FLAGS; each++) {
        pvn_frame_encode(&f, each, b);
        ASSERT_EQ(0, pvn_frame_decode(b, &g, &flags));
        EXPECT_EQ(each, flags);
    }
    EXPECT_EQ(f.seq, g.seq);
    EXPECT_EQ(f.total, g.total);
    EXPECT_EQ(f.offset, g.offset);
    EXPECT_EQ(f.len, g.len);
    EXPECT_EQ(f.chunk, g.chunk);
    EXPECT_EQ(f.recv, g.recv);
    EXPECT_EQ(f.tag, g.tag);
    for (int i = 0; i < PVN_FRAME_LEN * 8; i++) {
        b[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
        EXPECT_EQ(-EPROTO, pvn_frame_decode(b, &g, &flags)) << "bit " << i;
        b[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
    }
}

} // namespace
