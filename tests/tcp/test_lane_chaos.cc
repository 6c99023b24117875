// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The TCP lane with a proxy between its ends that cuts, delays, reorders and ends its streams
#include "support/chaosproxy.h"
#include "tcp/lane_pair.h"

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace
{

using namespace std::chrono_literals;
constexpr auto kToServer = ChaosProxy::kToServer;
constexpr auto kToClient = ChaosProxy::kToClient;

// A lane pair whose connector dials the proxy. Data flows to the server.
struct ChaosPair : LanePair {
    std::unique_ptr<ChaosProxy> proxy;

    // zerocopy: chunks of at least this many bytes are sent without a copy; 0: all chunks are
    // copied
    void open_through(int streams, size_t zerocopy, size_t chunk, ChaosProxy::Plan plan = {})
    {
        ASSERT_EQ(0, pvn_poller_get());
        listen_on_loopback();
        sockaddr_storage target = {};
        memcpy(&target, &addr, sizeof(addr));
        proxy = std::make_unique<ChaosProxy>(target, std::move(plan));
        const sockaddr_storage front = proxy->address();
        memcpy(&addr, &front, sizeof(addr));
        make_lanes(streams, chunk, 0, zerocopy);
        exchange_offers();
        int vt = -EAGAIN, vr = -EAGAIN;
        ASSERT_TRUE(ChaosProxy::wait_for([&] {
            accept_some();
            if (vt == -EAGAIN)
                vt = tx->ops->verify(tx);
            if (vr == -EAGAIN)
                vr = rx->ops->verify(rx);
            return vt != -EAGAIN && vr != -EAGAIN;
        }));
        ASSERT_EQ(0, vt) << tx->err.reason[0];
        ASSERT_EQ(0, vr) << rx->err.reason[0];
        engines(chunk);
    }

    static void close_lane(pvn_lane *&lane)
    {
        if (lane)
            lane->ops->close(lane);
        lane = nullptr;
    }
};

// Messages in flight from one end to the other. Each lies between guard bytes.
class Traffic
{
  public:
    Traffic(ChaosPair &pair, int messages, size_t largest, unsigned seed) : n(messages), p(pair)
    {
        std::mt19937 r(seed);

        for (int i = 0; i < n; i++) {
            out.push_back(bytes::of(r() % 3 == 0 ? r() % (largest + 1) : r() % 300, r()));
            in.emplace_back(out.back().size() + 2 * kGuard, 0xAA);
        }
        s.resize(static_cast<size_t>(n));
        r_.resize(static_cast<size_t>(n));
    }

    Traffic(const Traffic &) = delete;
    Traffic &operator=(const Traffic &) = delete;
    ~Traffic()
    {
        for (auto *all : {&out, &in})
            for (auto &buffer : *all)
                p.kept.push_back(std::move(buffer));
    }

    // Posts and tests each message once, as NCCL's proxy thread does. Returns 0, or the first error
    // of either end.
    int turn()
    {
        if (sent_rc == 0)
            sent_rc = turn_sender();
        if (got_rc == 0)
            got_rc = turn_receiver();
        return sent_rc ? sent_rc : got_rc;
    }

    bool all_done() const
    {
        return st == n && rt == n;
    }

    // Repeats turn() until everything has arrived, or an end reports an error.
    int run()
    {
        EXPECT_TRUE(ChaosProxy::wait_for([&] {
            int rc = 0;
            for (int i = 0; i < 200 && !rc && !all_done(); i++)
                rc = turn();
            return rc || all_done();
        })) << "hangs with "
            << st << " sent, " << rt << " received of " << n;
        return sent_rc ? sent_rc : got_rc;
    }

    void expect_guards_whole() const
    {
        for (int i = 0; i < n; i++) {
            const auto &b = in[static_cast<size_t>(i)];
            for (size_t k = 0; k < kGuard; k++) {
                ASSERT_EQ(0xAA, b[k]) << "before message " << i;
                ASSERT_EQ(0xAA, b[b.size() - 1 - k]) << "behind message " << i;
            }
        }
    }

    void expect_all_right() const
    {
        ASSERT_TRUE(all_done());
        for (size_t i = 0; i < out.size(); i++)
            ASSERT_TRUE(bytes::same(out[i].data(), &in[i][kGuard], out[i].size())) << i;
        expect_guards_whole();
    }

    size_t total() const
    {
        size_t sum = 0;
        for (const auto &m : out)
            sum += m.size();
        return sum;
    }

    int sent_rc = 0, got_rc = 0;
    int rt = 0, st = 0; /* received and sent messages */
    const int n;

  private:
    static constexpr size_t kGuard = 32, kDepth = 8;

    int turn_sender()
    {
        if (sp < n && sp - st < static_cast<int>(kDepth)) {
            const auto &m = out[static_cast<size_t>(sp)];
            const int rc = pvn_engine_isend(p.etx, m.data(), m.size(), 1, nullptr,
                                            &s[static_cast<size_t>(sp)]);
            if (rc)
                return rc;
            sp += s[static_cast<size_t>(sp)] != nullptr;
        }
        int done = 0;
        const int rc = st < sp ? pvn_engine_test(s[static_cast<size_t>(st)], &done, nullptr)
                               : pvn_engine_progress(p.etx);
        st += done;
        return rc;
    }

    int turn_receiver()
    {
        if (rp < n && rp - rt < static_cast<int>(kDepth)) {
            void *buf = in[static_cast<size_t>(rp)].data() + kGuard;
            size_t cap = in[static_cast<size_t>(rp)].size() - 2 * kGuard;
            int tag = 1;
            const int rc =
                pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r_[static_cast<size_t>(rp)]);
            if (rc)
                return rc;
            rp += r_[static_cast<size_t>(rp)] != nullptr;
        }
        int done = 0;
        size_t size = 0;
        const int rc = rt < rp ? pvn_engine_test(r_[static_cast<size_t>(rt)], &done, &size)
                               : pvn_engine_progress(p.erx);
        if (done) {
            EXPECT_EQ(out[static_cast<size_t>(rt)].size(), size) << rt;
        }
        rt += done;
        return rc;
    }

    ChaosPair &p;
    int sp = 0, rp = 0;
    std::vector<std::vector<uint8_t>> out, in;
    std::vector<pvn_req *> s, r_;
};

struct Shape {
    int streams;
    size_t zerocopy;
    int workers = 0;     // threads that move every piece that is not tiny
    bool shared = false; // clear-to-send and failover: entries come between acknowledgements
    bool sealed = false;
};

class LaneChaos : public testing::TestWithParam<Shape>
{
  protected:
    ChaosPair p;
    const int streams = GetParam().streams;
    const size_t zerocopy = GetParam().zerocopy;
    void SetUp() override
    {
        p.workers = GetParam().workers;
        p.worker_min = 100;
        p.clear_to_send = p.acknowledged = GetParam().shared;
        p.sealed = GetParam().sealed;
    }

    // Opens one more pair of this shape, in which no worker threads copy.
    void open_another(ChaosPair &pair)
    {
        pair.sealed = GetParam().sealed;
        pair.open_through(streams, zerocopy, 8192);
    }

    // Runs traffic until the receiver reports the loss of its lane. Expects no write outside of
    // buffers.
    static void expect_a_loss(ChaosPair &pair, Traffic &t)
    {
        EXPECT_TRUE(ChaosProxy::wait_for([&] {
            t.turn();
            return t.got_rc != 0;
        })) << t.st
            << " sent, " << t.rt << " received";
        EXPECT_EQ(-ECONNRESET, t.got_rc) << pair.rx->err.reason[0];
        t.expect_guards_whole();
    }

    // Data that should go without a copy did so.
    void TearDown() override
    {
        if (zerocopy && p.tx) {
            EXPECT_LT(0u, pvn_tcp_lane_get_stats(p.tx)->zerocopy_bytes);
        }
        if (p.workers && p.tx) {
            EXPECT_LT(0u, pvn_tcp_lane_get_stats(p.tx)->jobs);
        }
    }
};

TEST_P(LaneChaos, StreamsThatComeByteByByteLoseNothing)
{
    p.open_through(streams, zerocopy, 4096, [](int, ChaosFault f[2]) {
        f[kToServer].max_write = 1;
        f[kToClient].max_write = 1;
    });
    Traffic t(p, 40, 3000, 1);
    ASSERT_EQ(0, t.run());
    t.expect_all_right();
    const ChaosCounters c = p.proxy->total(kToServer);
    EXPECT_LT(t.total(), c.bytes);
    EXPECT_EQ(c.bytes, c.writes);
}

TEST_P(LaneChaos, RandomPiecesAndPauses)
{
    p.open_through(streams, zerocopy, 16384, [](int conn, ChaosFault f[2]) {
        f[kToServer].seed = 77 + static_cast<unsigned>(conn);
        f[kToServer].max_write = 3000;
        f[kToServer].gap = 100us;
    });
    Traffic t(p, 200, 60000, 2);
    ASSERT_EQ(0, t.run());
    t.expect_all_right();
    EXPECT_LT(t.total() / 3000, p.proxy->total(kToServer).writes);
}

// Messages complete in order and whole, whichever stream delivers first.
TEST_P(LaneChaos, StreamsTakeTurnsInStandingStill)
{
    p.open_through(streams, zerocopy, 8192);
    Traffic t(p, 150, 100000, 3);
    ASSERT_EQ(streams, p.proxy->connections());
    for (int still = 0; still < 3 * streams; still++) {
        const int conn = still % streams;
        p.proxy->hold(conn, kToServer, true);
        if (still == 0) {
            ASSERT_TRUE(ChaosProxy::wait_for([&] {
                EXPECT_EQ(0, t.turn());
                return p.proxy->counters(conn, kToServer).holds == 1;
            })) << "no bytes came to be held back";
        }
        const auto until = std::chrono::steady_clock::now() + 5ms;
        while (std::chrono::steady_clock::now() < until && !t.all_done())
            ASSERT_EQ(0, t.turn());
        p.proxy->hold(conn, kToServer, false);
    }
    ASSERT_EQ(0, t.run());
    t.expect_all_right();
}

TEST_P(LaneChaos, StallInTheMiddle)
{
    p.open_through(streams, zerocopy, 8192);
    ChaosFault f;
    f.stall_at = 30000;
    f.stall_for = 50ms;
    p.proxy->set(-1, kToServer, f);
    Traffic t(p, 100, 200000, 4);
    ASSERT_EQ(0, t.run());
    t.expect_all_right();
    EXPECT_LT(0u, p.proxy->total(kToServer).stalls);
}

// A stream is reset at any byte of a header or payload. Both ends report it, nothing is written
// outside its buffer, and a comm beside it goes on.
TEST_P(LaneChaos, ResetAtEveryByteOfAHeaderAndBehind)
{
    ChaosPair beside;
    beside.sealed = GetParam().sealed;
    beside.open_through(1, zerocopy, 8192);
    Traffic other(beside, 400, 2000, 5);

    for (const uint64_t at : {0, 1, 4, 20, 39, 40, 63, 64, 65, 100, 5000, 50000}) {
        SCOPED_TRACE("reset after " + std::to_string(at) + " bytes");
        ChaosPair pair;
        open_another(pair);
        Traffic t(pair, 60, 200000, 6);
        ChaosFault f;
        f.reset_at = at;
        pair.proxy->set(0, kToServer, f);
        EXPECT_TRUE(ChaosProxy::wait_for([&] {
            t.turn();
            /* As a comm does, the end that gets the error first gives up the whole lane. */
            if (t.sent_rc)
                pair.close_lane(pair.tx);
            if (t.got_rc)
                pair.close_lane(pair.rx);
            return (t.sent_rc || t.st == t.n) && t.got_rc;
        })) << "one end never heard: sender "
            << t.sent_rc << ", receiver " << t.got_rc << "; " << t.st << " sent, " << t.rt
            << " received";
        EXPECT_EQ(-ECONNRESET, t.got_rc);
        EXPECT_NE(nullptr, pvn_engine_err(pair.erx));
        /* A sender is done once the kernel has taken its last byte. So it need not get the error. */
        if (t.st < t.n) {
            EXPECT_TRUE(t.sent_rc == -ECONNRESET || t.sent_rc == -EPIPE) << t.sent_rc;
            EXPECT_NE(nullptr, pvn_engine_err(pair.etx));
        }
        t.expect_guards_whole();
        EXPECT_EQ(1u, pair.proxy->counters(0, kToServer).resets);
        for (int i = 0; i < 200; i++)
            ASSERT_EQ(0, other.turn());
    }
    ASSERT_EQ(0, other.run());
    other.expect_all_right();
}

// A peer has closed: all streams end in one direction, the first at any byte of a header or
// payload.
TEST_P(LaneChaos, HalfCloseIsTheEnd)
{
    for (const uint64_t at : {0, 17, 64, 3000}) {
        /* The receiver does not read the end behind messages that cannot complete any more. The
         * control connection, which this test lacks, reports the end then. */
        if (at == 3000 && streams > 1)
            continue;
        SCOPED_TRACE("end after " + std::to_string(at) + " bytes");
        ChaosPair pair;
        open_another(pair);
        Traffic t(pair, 60, 200000, 7);
        /* Each fault is set once, because a fault at byte 0 may fire before the next call. */
        for (int i = 0; i < streams; i++) {
            ChaosFault f;
            f.half_close_at = i == 0 ? at : 0;
            pair.proxy->set(i, kToServer, f);
        }
        expect_a_loss(pair, t);
        EXPECT_EQ(static_cast<unsigned>(streams), pair.proxy->total(kToServer).half_closes);
    }
}

// One stream ends in the middle of a message or of a message's record, and the others live.
// Everything behind is lost.
TEST_P(LaneChaos, HalfCloseInTheMiddleOfAMessageIsALoss)
{
    for (const uint64_t at : {1, 5, 17, 60}) {
        SCOPED_TRACE("end after " + std::to_string(at) + " bytes");
        ChaosPair pair;
        open_another(pair);
        Traffic t(pair, 1, 200, 7);
        ChaosFault f;
        f.half_close_at = at;
        pair.proxy->set(0, kToServer, f);
        expect_a_loss(pair, t);
        EXPECT_NE(nullptr, strstr(pair.rx->err.reason[0], "in the middle of a message"))
            << pair.rx->err.reason[0];
        EXPECT_EQ(1u, pair.proxy->counters(0, kToServer).half_closes);
    }
}

// The network takes everything and delivers nothing. Calls return, nothing completes, and close
// works.
TEST_P(LaneChaos, BlackHoleBlocksNobody)
{
    p.open_through(streams, zerocopy, 8192);
    ChaosFault f;
    f.stall_at = 100;
    p.proxy->set(-1, kToServer, f);
    Traffic t(p, 60, 200000, 8);
    ASSERT_TRUE(ChaosProxy::wait_for([&] {
        EXPECT_EQ(0, t.turn());
        /* An acknowledged message is not done before it arrives. So too little is sent to reach
         * all streams. */
        return p.proxy->total(kToServer).stalls >=
               (zerocopy || GetParam().shared ? 1u : static_cast<unsigned>(streams));
    }));
    for (int i = 0; i < 2000; i++)
        ASSERT_EQ(0, t.turn());
    EXPECT_FALSE(t.all_done());
    t.expect_guards_whole();
}

// A byte of the first header is damaged. Whatever it then says, the receiver writes nowhere else.
TEST_P(LaneChaos, DamagedHeaderHarmsNothing)
{
    // The kernel ignores the first byte of a record. It has no meaning, because the true type is
    // sealed.
    for (uint64_t at = p.sealed && is_sealed_by_kernel() ? 1 : 0; at < PVN_FRAME_LEN; at++) {
        SCOPED_TRACE("byte " + std::to_string(at));
        ChaosPair pair;
        open_another(pair);
        Traffic t(pair, 10, 20000, 9);
        ChaosFault f;
        f.flip_at = at;
        pair.proxy->set(0, kToServer, f);
        EXPECT_TRUE(ChaosProxy::wait_for([&] {
            t.turn();
            return t.got_rc != 0;
        }));
        EXPECT_EQ(pair.sealed ? -ECONNRESET : -EPROTO, t.got_rc) << pair.rx->err.reason[0];
        EXPECT_EQ(pair.sealed, strstr(pair.rx->err.reason[0], "damaged or forged") != nullptr)
            << pair.rx->err.reason[0];
        EXPECT_EQ(1u, pair.proxy->counters(0, kToServer).flips);
        t.expect_guards_whole();
    }
}

INSTANTIATE_TEST_SUITE_P(Streams, LaneChaos,
                         testing::Values(Shape{1, 0}, Shape{4, 0}, Shape{1, 2000}, Shape{4, 2000},
                                         Shape{1, 0, 1}, Shape{4, 0, 2}, Shape{1, 0, 0, true},
                                         Shape{4, 0, 0,
                                               true} AND_SEALED(Shape{1, 0, 0, false, true},
                                                                Shape{4, 0, 2, false, true},
                                                                Shape{4, 0, 0, true, true})),
                         shape_name<testing::TestParamInfo<Shape>>);

} // namespace
