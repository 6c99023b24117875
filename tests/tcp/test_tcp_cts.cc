// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The TCP lane with clear-to-send, for comms that ranks may share, over loopback sockets
#include "tcp/lane_pair.h"

#include <algorithm>
#include <linux/sockios.h>
#include <random>
#include <string>
#include <sys/ioctl.h>
#include <vector>

namespace
{

struct Shape {
    int streams;
    bool acknowledged;
    size_t zerocopy;
    bool sealed = false;
};

class TcpCts : public testing::TestWithParam<Shape>
{
  protected:
    LanePair p;
    void SetUp() override
    {
        p.clear_to_send = true;
        p.acknowledged = GetParam().acknowledged;
        p.sealed = GetParam().sealed;
        p.open(GetParam().streams, 65536, false, GetParam().zerocopy);
    }
};
INSTANTIATE_TEST_SUITE_P(Shapes, TcpCts,
                         testing::Values(Shape{1, false, 0}, Shape{4, false, 0}, Shape{1, true, 0},
                                         Shape{3, true, 0},
                                         Shape{2, false, 4096} AND_SEALED(Shape{1, false, 0, true},
                                                                          Shape{3, true, 0, true})),
                         [](const auto &i) {
                             return "streams_" + std::to_string(i.param.streams) +
                                    (i.param.acknowledged ? "_acknowledged" : "") +
                                    (i.param.zerocopy ? "_zero_copy" : "") +
                                    (i.param.sealed ? "_sealed" : "");
                         });

struct Receive {
    std::vector<std::vector<uint8_t>> in;
    pvn_req *req = nullptr;

    // Posts a receive with a buffer for each tag.
    void post(LanePair &p, const std::vector<int> &tags, size_t size)
    {
        void *data[PVN_MAX_RECVS];
        size_t sizes[PVN_MAX_RECVS];
        in.assign(tags.size(), std::vector<uint8_t>(size, 0xAA));
        for (size_t i = 0; i < tags.size(); i++) {
            data[i] = in[i].data();
            sizes[i] = size;
        }
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, static_cast<int>(tags.size()), data, sizes,
                                      tags.data(), nullptr, &req));
        ASSERT_TRUE(req);
    }
};

// Repeats isend until it is posted or the comm has failed. The receiver is called, too, as NCCL
// does.
pvn_req *send_once(LanePair &p, const std::vector<uint8_t> &m, int tag)
{
    pvn_req *s = nullptr;
    for (Deadline wait; wait.left() && !s;) {
        pvn_engine_progress(p.erx);
        if (pvn_engine_isend(p.etx, m.data(), m.size(), tag, nullptr, &s) < 0)
            break;
    }
    return s;
}

// Tests a request until it is done, while both ends are called.
void end(LanePair &p, pvn_req *req, size_t *sizes)
{
    int done = 0;
    for (Deadline wait; wait.left() && !done;) {
        ASSERT_EQ(0, pvn_engine_progress(p.erx));
        ASSERT_EQ(0, pvn_engine_progress(p.etx));
        ASSERT_EQ(0, pvn_engine_test(req, &done, sizes));
    }
    ASSERT_TRUE(done);
}

TEST_P(TcpCts, ASendWaitsForAReceiveWithItsTag)
{
    std::vector<uint8_t> m = bytes::of(3000, 1);
    pvn_req *s = nullptr;
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(0, pvn_engine_isend(p.etx, m.data(), m.size(), 2, nullptr, &s));
        ASSERT_FALSE(s) << "nothing was posted";
    }
    Receive first, second;
    first.post(p, {1, 2}, 3000);
    second.post(p, {2}, 3000);
    s = send_once(p, m, 2);
    ASSERT_TRUE(s);
    pvn_req *other = nullptr;
    for (int i = 0; i < 100; i++) {
        pvn_engine_progress(p.erx);
        ASSERT_EQ(0, pvn_engine_isend(p.etx, m.data(), m.size(), 2, nullptr, &other));
        ASSERT_FALSE(other) << "the oldest receive has no buffer for it";
    }
    pvn_req *one = send_once(p, m, 1);
    other = send_once(p, m, 2);
    ASSERT_TRUE(one && other);
    size_t sizes[2] = {};
    for (pvn_req *q : {s, one, other, second.req, first.req})
        end(p, q, sizes);
    EXPECT_EQ(3000u, sizes[0]);
    EXPECT_EQ(3000u, sizes[1]);
    EXPECT_EQ(m, first.in[0]);
    EXPECT_EQ(m, first.in[1]);
    EXPECT_EQ(m, second.in[0]);
    EXPECT_EQ(0u, pvn_engine_get_stats(p.erx)->unexpected);
}

// Ranks send in any order within the posted receives. Sizes are of one chunk and of many.
TEST_P(TcpCts, GroupsInAnyOrderArriveWhole)
{
    constexpr int DEPTH = 20;
    const int GROUPS = messages(400);
    std::mt19937 rnd(7);
    std::vector<Receive> r(GROUPS);
    std::vector<std::vector<std::vector<uint8_t>>> out(GROUPS);
    std::vector<std::vector<pvn_req *>> s(GROUPS);
    std::vector<pvn_req *> open;
    std::vector<bool> done(GROUPS);
    for (auto &g : out) {
        g.resize(1 + rnd() % PVN_MAX_RECVS);
        for (auto &m : g)
            m = bytes::of(rnd() % 5 == 0 ? rnd() % 300000 : rnd() % 300, rnd());
    }
    int posted = 0, received = 0, sent = 0;
    for (Deadline wait; wait.left() && received < GROUPS;) {
        if (posted < GROUPS && posted - received < DEPTH) {
            std::vector<int> tags(out[posted].size());
            for (size_t i = 0; i < tags.size(); i++)
                tags[i] = static_cast<int>(10 * i);
            r[posted++].post(p, tags, 300000);
        }
        for (int g = sent; g < GROUPS && g < sent + 3; g++) {
            s[g].resize(out[g].size());
            size_t i = rnd() % out[g].size();
            bool free = true;
            for (int before = sent; before < g; before++)
                free &= i >= out[before].size() || s[before][i];
            if (free && !s[g][i]) {
                ASSERT_EQ(0, pvn_engine_isend(p.etx, out[g][i].data(), out[g][i].size(),
                                              static_cast<int>(10 * i), nullptr, &s[g][i]));
                if (s[g][i])
                    open.push_back(s[g][i]);
            }
        }
        for (size_t i = open.size(); i-- > 0;) {
            int gone = 0;
            ASSERT_EQ(0, pvn_engine_test(open[i], &gone, nullptr)) << p.tx->err.reason[0];
            if (gone)
                open.erase(open.begin() + static_cast<long>(i));
        }
        while (sent < GROUPS && !s[sent].empty() &&
               std::find(s[sent].begin(), s[sent].end(), nullptr) == s[sent].end())
            sent++;
        ASSERT_EQ(0, pvn_engine_progress(p.etx)) << p.tx->err.reason[0];
        for (int g = received; g < posted; g++) {
            int got = 0;
            size_t sizes[PVN_MAX_RECVS] = {};
            if (!done[g]) {
                ASSERT_EQ(0, pvn_engine_test(r[g].req, &got, sizes)) << p.rx->err.reason[0];
            }
            for (size_t i = 0; got && i < out[g].size(); i++) {
                ASSERT_EQ(out[g][i].size(), sizes[i]);
                ASSERT_TRUE(bytes::same(out[g][i].data(), r[g].in[i].data(), sizes[i]));
            }
            done[g] = done[g] || got;
        }
        while (received < GROUPS && done[received])
            received++;
    }
    EXPECT_EQ(GROUPS, received) << "hangs with " << sent << " groups sent";
    for (pvn_req *q : open)
        end(p, q, nullptr);
}

// The sender reads entries together. The receiver sends the entries after the first one together.
TEST(TcpCtsCost, ReceivesOfOnePassShareCalls)
{
    enum { ROUNDS = 100, N = 16 };
    LanePair p;
    p.clear_to_send = true;
    p.open();
    std::vector<uint8_t> m(100);
    for (int round = 0; round < ROUNDS; round++) {
        Receive r[N];
        pvn_req *s[N];
        for (auto &x : r)
            x.post(p, {0}, 100);
        for (auto &x : s)
            ASSERT_TRUE((x = send_once(p, m, 0)));
        for (int i = 0; i < N; i++)
            finish(s[i], r[i].req, nullptr, nullptr);
    }
    EXPECT_LE(pvn_tcp_lane_get_stats(p.rx)->cts_calls, 2u * ROUNDS);
    // One read may come too early for all but the first entry. Another finds the others.
    EXPECT_LE(pvn_tcp_lane_get_stats(p.tx)->cts_calls, 5u * ROUNDS);
}

TEST(TcpCtsCost, CommsWithoutItSendNoEntries)
{
    LanePair p;
    p.open();
    std::vector<uint8_t> m(100);
    Receive r;
    r.post(p, {0}, 100);
    pvn_req *s = send_once(p, m, 0);
    ASSERT_TRUE(s);
    finish(s, r.req, nullptr, nullptr);
    EXPECT_EQ(0u, pvn_tcp_lane_get_stats(p.tx)->cts_calls);
    EXPECT_EQ(0u, pvn_tcp_lane_get_stats(p.rx)->cts_calls);
    EXPECT_EQ(size_t{PVN_FRAME_LEN + 100}, pvn_tcp_lane_get_stats(p.tx)->tx_bytes);
    EXPECT_EQ(-EOPNOTSUPP, p.rx->data->post_cts(p.rx, 0, 0, nullptr));
}

// Posts n entries one at a time. Returns how many reach a sender that uses none.
int entries_of(int n, int lanes)
{
    LanePair p;
    p.clear_to_send = true;
    p.open();
    pvn_buffer b = {};
    b.size = 1;
    p.rx->nlanes = lanes;
    int come = 0;
    for (int slot = 0; slot < n; slot++) {
        EXPECT_EQ(0, p.rx->data->post_cts(p.rx, static_cast<uint64_t>(slot), 1, &b));
        EXPECT_EQ(0, p.rx->data->kick(p.rx));
        const pvn_cts *cts = nullptr;
        for (int rc; (rc = p.tx->data->next_slot(p.tx, &cts)) != 0; come++) {
            EXPECT_EQ(1, rc);
            EXPECT_EQ(1, cts->n);
            if (rc != 1)
                return -1;
        }
    }
    return come;
}

// Entries are held back while the sender has unused ones, but not with several lanes, where another
// one may have brought the messages that this lane lacks.
TEST(TcpCtsCost, HeldBackWhileTheSenderHasMore)
{
    EXPECT_EQ(20, entries_of(20, 2));
    EXPECT_LT(entries_of(20, 1), 20);
    EXPECT_LE(10, entries_of(20, 1));
}

// A sender that waits for long makes no system call for entries.
TEST(TcpCtsCost, AWaitingSenderIsIdle)
{
    LanePair p;
    p.clear_to_send = true;
    p.open();
    std::vector<uint8_t> m(100, 5);
    pvn_req *s = nullptr;
    for (int i = 0; i < 2000; i++)
        ASSERT_EQ(0, pvn_engine_isend(p.etx, m.data(), m.size(), 0, nullptr, &s));
    ASSERT_FALSE(s);
    EXPECT_EQ(1u, pvn_tcp_lane_get_stats(p.tx)->idle);
    uint64_t before = pvn_tcp_lane_get_stats(p.tx)->cts_calls;
    for (int i = 0; i < 2000; i++)
        ASSERT_EQ(0, pvn_engine_isend(p.etx, m.data(), m.size(), 0, nullptr, &s));
    EXPECT_EQ(before, pvn_tcp_lane_get_stats(p.tx)->cts_calls);
    Receive r;
    r.post(p, {0}, 100);
    ASSERT_TRUE((s = send_once(p, m, 0)));
    finish(s, r.req, nullptr, nullptr);
    EXPECT_EQ(m, r.in[0]);
}

// A sender closes with entries unread. Everything that it sent before arrives.
TEST(TcpCtsEnd, ClosingWithEntriesUnread)
{
    LanePair p;
    p.clear_to_send = true;
    p.open();
    std::vector<uint8_t> m = bytes::of(1 << 20, 3);
    Receive r, more;
    r.post(p, {0}, 1 << 20);
    pvn_req *s = send_once(p, m, 0);
    ASSERT_TRUE(s);
    more.post(p, {0}, 100);
    int sent = 0, got = 0, rc = 0;
    for (Deadline wait; wait.left() && !sent;) {
        ASSERT_EQ(0, pvn_engine_progress(p.erx));
        ASSERT_EQ(0, pvn_engine_test(s, &sent, nullptr));
    }
    pvn_engine_free(p.etx);
    p.etx = nullptr;
    p.tx->ops->close(p.tx);
    p.tx = nullptr;
    for (Deadline wait; wait.left() && !got && rc == 0;)
        rc = pvn_engine_test(r.req, &got, nullptr);
    EXPECT_EQ(1, got) << p.rx->err.reason[0];
    EXPECT_EQ(m, r.in[0]);
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_test(more.req, &got, nullptr);
    EXPECT_EQ(-ECONNRESET, rc);
}

// A receive without a send is posted after the sender has closed. Its entry reaches a socket that
// is gone, and the reset in return discards data in flight. Data that have arrived stay. If chunks
// are acknowledged, so does everything that was reported sent.
class TcpCtsLate : public testing::TestWithParam<bool>
{
};
INSTANTIATE_TEST_SUITE_P(Acknowledged, TcpCtsLate, testing::Bool());

TEST_P(TcpCtsLate, AReceiveBehindTheEnd)
{
    LanePair p;
    p.clear_to_send = true;
    p.acknowledged = GetParam();
    if (p.acknowledged)
        p.rcvbuf = 64 << 10; // most of the message would be in flight
    p.open();
    std::vector<uint8_t> m = bytes::of(p.acknowledged ? 1 << 20 : 1000, 3);
    Receive r, more;
    r.post(p, {0}, m.size());
    pvn_req *s = send_once(p, m, 0);
    ASSERT_TRUE(s);
    int sent = 0, got = 0, rc = 0;
    for (Deadline wait; wait.left() && !sent;) {
        ASSERT_EQ(0, pvn_engine_test(s, &sent, nullptr));
        if (p.acknowledged) {
            ASSERT_EQ(0, pvn_engine_progress(p.erx));
        }
    }
    ASSERT_TRUE(sent);
    pvn_engine_free(p.etx);
    p.etx = nullptr;
    p.tx->ops->close(p.tx);
    p.tx = nullptr;
    more.post(p, {0}, 100);
    for (Deadline wait; wait.left() && !got && rc == 0;)
        rc = pvn_engine_test(r.req, &got, nullptr);
    EXPECT_EQ(1, got) << p.rx->err.reason[0];
    EXPECT_EQ(m, r.in[0]);
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_test(more.req, &got, nullptr);
    EXPECT_EQ(-ECONNRESET, rc);
    EXPECT_TRUE(strstr(p.rx->err.reason[0], "the peer has closed the connection"))
        << p.rx->err.reason[0];
}

// A send came too early and found no buffer. By now everything is sent and received, and no message
// waits for an entry.
class TcpCtsClosed : public testing::TestWithParam<bool>
{
};
INSTANTIATE_TEST_SUITE_P(Acknowledged, TcpCtsClosed, testing::Bool());

TEST_P(TcpCtsClosed, AReceiverThatClosesWhenItHasAll)
{
    LanePair p;
    p.clear_to_send = true;
    p.acknowledged = GetParam();
    p.open();
    std::vector<uint8_t> m = bytes::of(100, 1);
    Receive a, b;
    a.post(p, {1}, 100);
    b.post(p, {2}, 100);
    pvn_req *early = nullptr, *sa, *sb;
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(0, pvn_engine_progress(p.erx));
        ASSERT_EQ(0, pvn_engine_isend(p.etx, m.data(), m.size(), 2, nullptr, &early));
        ASSERT_FALSE(early) << "the oldest receive has another tag";
    }
    sa = send_once(p, m, 1);
    sb = send_once(p, m, 2);
    ASSERT_TRUE(sa && sb);
    int done[2] = {};
    for (Deadline wait; wait.left() && !(done[0] && done[1]);) {
        if (!done[0]) {
            ASSERT_EQ(0, pvn_engine_test(a.req, &done[0], nullptr));
        }
        if (!done[1]) {
            ASSERT_EQ(0, pvn_engine_test(b.req, &done[1], nullptr));
        }
    }
    ASSERT_TRUE(done[0] && done[1]);
    pvn_engine_progress(p.erx);
    p.rx->ops->close(p.rx);
    p.rx = nullptr;
    ASSERT_TRUE(sees_the_end(p.dialed[0]));
    int sent[2] = {};
    for (int i = 0; i < 1000 && !(sent[0] && sent[1]); i++) {
        if (!sent[0]) {
            ASSERT_EQ(0, pvn_engine_test(sa, &sent[0], nullptr)) << p.tx->err.reason[0];
        }
        if (!sent[1]) {
            ASSERT_EQ(0, pvn_engine_test(sb, &sent[1], nullptr)) << p.tx->err.reason[0];
        }
    }
    EXPECT_TRUE(sent[0] && sent[1]);
}

// The entries' stream is reset, and the others live. Only the call that sends an entry gets the
// error.
TEST(TcpCtsEnd, AResetThatAnEntryMeets)
{
    LanePair p;
    p.clear_to_send = true;
    p.open(2);
    linger at_once = {1, 0};
    ASSERT_EQ(0, setsockopt(p.dialed[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(p.dialed[0], dup2(other, p.dialed[0]));
    close(other);
    ASSERT_TRUE(sees_the_end(p.adopted[0]));
    Receive r;
    r.post(p, {0}, 100);
    int rc = 0, done = 0;
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_test(r.req, &done, nullptr);
    EXPECT_EQ(-ECONNRESET, rc);
    EXPECT_TRUE(strstr(pvn_engine_err(p.erx)->reason[0], "announcing receives"));
}

TEST(TcpCtsEnd, AReceiverThatHasGone)
{
    LanePair p;
    p.clear_to_send = true;
    p.open();
    p.rx->ops->close(p.rx);
    p.rx = nullptr;
    std::vector<uint8_t> m(10);
    pvn_req *s = nullptr;
    int rc = 0;
    for (Deadline wait; wait.left() && rc == 0 && !s;)
        rc = pvn_engine_isend(p.etx, m.data(), m.size(), 0, nullptr, &s);
    EXPECT_EQ(-ECONNRESET, rc);
    EXPECT_TRUE(strstr(pvn_engine_err(p.etx)->reason[0], "waiting for the peer's receives"));
}

// ---- peers that break the rules ----

// True if no byte is on its path from the receiver's end, or unread in the sender's socket.
bool all_is_read(const LanePair &p)
{
    int unread = -1, unsent = -1;
    EXPECT_EQ(0, ioctl(p.adopted[0], SIOCOUTQ, &unsent));
    EXPECT_EQ(0, ioctl(p.dialed[0], FIONREAD, &unread));
    return unread == 0 && unsent == 0;
}

// Returns the sender's error after its peer has sent these bytes; "" if it accepts them all.
std::string answer(const std::vector<uint8_t> &b)
{
    LanePair p;
    p.clear_to_send = true;
    p.open();
    for (size_t i = 0; i < b.size(); i += 500)
        EXPECT_LT(0, send(p.adopted[0], &b[i], std::min<size_t>(500, b.size() - i), MSG_NOSIGNAL));
    std::vector<uint8_t> m(1);
    int rc = 0;
    bool more = true;
    for (Deadline wait; wait.left() && rc == 0 && more;) {
        pvn_req *s = nullptr;
        more = !all_is_read(p);
        rc = pvn_engine_isend(p.etx, m.data(), m.size(), 77, nullptr, &s);
        EXPECT_FALSE(s);
    }
    EXPECT_TRUE(rc || !more) << "not all was read";
    return rc ? pvn_engine_err(p.etx)->reason[0] : "";
}

std::vector<uint8_t> entry(int n, int tag)
{
    pvn_buffer b[PVN_MAX_RECVS] = {};
    for (auto &x : b)
        x.tag = tag;
    std::vector<uint8_t> e(PVN_CTS_MAX);
    e.resize(pvn_cts_encode(n, b, e.data()));
    return e;
}

TEST(TcpCtsPeer, EntriesThatAreNone)
{
    const std::string none = "these bytes are not one";
    EXPECT_NE(std::string::npos, answer({0, 0}).find(none));
    EXPECT_NE(std::string::npos, answer({0, 9}).find(none));
    EXPECT_NE(std::string::npos, answer({0, 255}).find(none));
    EXPECT_NE(std::string::npos, answer({1}).find("for more than was sent"))
        << "an acknowledgement of nothing";
}

TEST(TcpCtsPeer, MoreEntriesThanReceivesMayBeOpen)
{
    std::vector<uint8_t> all, one = entry(8, 5);
    for (int i = 0; i < PVN_SLOT_SPAN; i++)
        all.insert(all.end(), one.begin(), one.end());
    EXPECT_EQ("", answer(all)) << "so many could be";
    all.insert(all.end(), one.begin(), one.end());
    EXPECT_NE(std::string::npos, answer(all).find("may be"));
    for (int i = 0; i < 10 * PVN_SLOT_SPAN; i++)
        all.insert(all.end(), one.begin(), one.end());
    EXPECT_NE(std::string::npos, answer(all).find("may be"));
}

class TcpCtsSender : public testing::Test
{
  protected:
    LanePair p;
    Receive r, behind;
    pvn_frame f = {};
    int done = 0;

    void SetUp() override
    {
        p.clear_to_send = true;
        p.open();
        r.post(p, {3, 4}, 100);
        behind.post(p, {3}, 100);
        f.total = f.len = 10;
        f.tag = 3;
    }
    void frame(const pvn_frame &x)
    {
        std::vector<uint8_t> b(PVN_FRAME_LEN + x.len, 0x55);
        pvn_frame_encode(&x, 0, b.data());
        ASSERT_EQ(static_cast<ssize_t>(b.size()),
                  send(p.dialed[0], b.data(), b.size(), MSG_NOSIGNAL));
    }
    // Returns the receiver's error once it has read everything.
    std::string error()
    {
        int rc = 0;
        for (int i = 0; i < 3000 && rc == 0 && !done; i++)
            rc = pvn_engine_test(r.req, &done, nullptr);
        return rc ? pvn_engine_err(p.erx)->reason[0] : "";
    }
    void expect(const char *what)
    {
        frame(f);
        std::string e = error();
        EXPECT_NE(std::string::npos, e.find(what)) << e;
        for (const auto &b : {r.in[0], r.in[1], behind.in[0]})
            EXPECT_EQ(std::vector<uint8_t>(100, 0xAA), b);
    }
};

TEST_F(TcpCtsSender, ToAReceiveThatWasNotAnnounced)
{
    f.seq = 2;
    expect("receive 2, which has not been announced");
}

TEST_F(TcpCtsSender, ToAReceiveFarAhead)
{
    f.seq = UINT64_MAX;
    expect("which has not been announced");
}

TEST_F(TcpCtsSender, ToABufferThatIsNotThere)
{
    f.recv = 2;
    expect("to buffer 3 of receive 0, which has 2");
}

TEST_F(TcpCtsSender, ToABufferBehindThemAll)
{
    f.recv = 127;
    expect("to buffer 128 of receive 0, which has 2");
}

TEST_F(TcpCtsSender, AnotherTagThanTheReceivesIsRefused)
{
    f.tag = 4;
    expect("with tag 4 to a buffer of receive 0 with tag 3");
}

TEST_F(TcpCtsSender, WithMoreBytesThanItTakes)
{
    f.total = f.len = 101;
    expect("has 101 bytes, the receive posted for it takes 100");
}

TEST_F(TcpCtsSender, OutsideOfItsMessage)
{
    f.offset = 1;
    expect("impossible chunk");
}

TEST_F(TcpCtsSender, WithChunksThatOverlap)
{
    f.total = 100;
    f.len = 60;
    frame(f);
    f.chunk = 1;
    f.offset = 30;
    frame(f);
    EXPECT_NE(std::string::npos, error().find("do not fit together"));
}

TEST_F(TcpCtsSender, AMessageWithTwoSizesIsRefused)
{
    f.total = 100;
    frame(f);
    f.chunk = 1;
    f.offset = 10;
    f.total = 90;
    frame(f);
    EXPECT_NE(std::string::npos, error().find("do not fit together"));
}

// A duplicate of a chunk is dropped, also after the end of its receive.
TEST_F(TcpCtsSender, AChunkThatComesAgainIsDropped)
{
    frame(f);
    frame(f);
    f.recv = 1;
    f.tag = 4;
    frame(f);
    EXPECT_EQ("", error());
    ASSERT_TRUE(done);
    frame(f);
    f.seq = 1;
    f.recv = 0;
    f.tag = 3;
    frame(f);
    size_t size = 0;
    int got = 0;
    for (Deadline wait; wait.left() && !got;)
        ASSERT_EQ(0, pvn_engine_test(behind.req, &got, &size));
    EXPECT_EQ(10u, size);
    EXPECT_EQ(1u, pvn_engine_get_stats(p.erx)->dups);
    EXPECT_EQ(1u, pvn_engine_get_stats(p.erx)->stale);
}

TEST(TcpCtsEntry, RoundTripAndPieces)
{
    pvn_buffer b[PVN_MAX_RECVS] = {};
    for (int i = 0; i < PVN_MAX_RECVS; i++) {
        b[i].size = 0x0102030405060708u + static_cast<unsigned>(i);
        b[i].tag = INT32_MIN + i;
    }
    for (int n = 1; n <= PVN_MAX_RECVS; n++) {
        uint8_t e[PVN_CTS_MAX];
        pvn_cts c = {};
        size_t len = pvn_cts_encode(n, b, e);
        for (size_t k = 0; k < len; k++) {
            std::vector<uint8_t> part(e, e + k); // exact size for AddressSanitizer
            ASSERT_EQ(0, pvn_cts_decode(part.data(), k, &c));
        }
        ASSERT_EQ(static_cast<int>(len), pvn_cts_decode(e, sizeof(e), &c));
        ASSERT_EQ(n, c.n);
        for (int i = 0; i < n; i++) {
            EXPECT_EQ(b[i].size, c.e[i].size);
            EXPECT_EQ(b[i].tag, c.e[i].tag);
        }
    }
}

// Any bytes that the decoder accepts are an entry of the length that they state.
TEST(TcpCtsEntry, AnyBytesThatAreTakenAreAnEntryOfTheirLength)
{
    std::mt19937 rnd(3);
    int taken = 0;
    for (int i = 0; i < 200000; i++) {
        std::vector<uint8_t> b(rnd() % (PVN_CTS_MAX + 2));
        for (auto &x : b)
            x = static_cast<uint8_t>(rnd());
        if (!b.empty() && rnd() % 4)
            b[0] = 0;
        if (b.size() > 1 && rnd() % 4)
            b[1] = static_cast<uint8_t>(rnd() % 10);
        pvn_cts c = {};
        int n = pvn_cts_decode(b.data(), b.size(), &c);
        if (n > 0) {
            taken++;
            ASSERT_LE(static_cast<size_t>(n), b.size());
            ASSERT_TRUE(c.n >= 1 && c.n <= PVN_MAX_RECVS);
            ASSERT_EQ(PVN_CTS_HEAD + c.n * PVN_CTS_BUFFER, n);
        } else {
            ASSERT_TRUE(n == 0 || n == -EPROTO);
        }
    }
    EXPECT_LT(1000, taken);
}

} // namespace
