// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The RDMA lane under the engine, on softverbs.
#include "rdma/lane_pair.h"
#include "support/bytes.h"

#include <algorithm>
#include <fcntl.h>
#include <random>

extern "C" {
#include "net-pvrdma/rdma_wire.h"
#include "rdma/wrap.h"
#include "support/hot.h"
}

namespace
{

// For loops that end by themselves unless something hangs: false once a minute has passed.
class Patience
{
    long n = 0;
    double until = sv::now() + 60;

  public:
    bool left()
    {
        return (++n & 1023) || sv::now() < until;
    }
};

// What both ends wait for, for the message of a test that did not finish.
std::string stuck(RdmaPair &p)
{
    char a[256], b[256], c[400], d[400];
    pvn_engine_oldest(p.tx.e, a, sizeof(a));
    pvn_engine_oldest(p.rx.e, b, sizeof(b));
    p.tx.lane->ops->describe(p.tx.lane, c, sizeof(c));
    p.rx.lane->ops->describe(p.rx.lane, d, sizeof(d));
    return std::string("sender: ") + a + "; " + c + "\nreceiver: " + b + "; " + d;
}

// Posts a grouped receive of one buffer.
int irecv(RdmaPair &p, void *buf, size_t cap, int tag, const pvn_mr *mr, pvn_req **req)
{
    return hot_irecv(p.rx.e, 1, &buf, &cap, &tag, &mr, req);
}

class RdmaLane : public testing::TestWithParam<RdmaOptions>
{
  protected:
    RdmaPair p;
    void SetUp() override
    {
        // Nothing here fails, so an expensive queue is never to be asked in vain, however long
        // something takes.
        RdmaOptions o = GetParam();
        o.quiet_ns = UINT64_MAX / 4;
        p.open(o);
    }
    void TearDown() override
    {
        // A real device may show an acknowledgement before the completion that it stands for.
        if (!GetParam().costly || GetParam().mode == PVN_RDMA_IMM || real_verbs())
            return;
        EXPECT_EQ(0u, lane_stats(p.tx.lane).empty_polls);
        EXPECT_EQ(0u, lane_stats(p.rx.lane).empty_polls);
    }

    // Sends one message into one receive and checks it.
    void one(size_t n)
    {
        auto out = bytes::of(n + 1, static_cast<unsigned>(n));
        std::vector<uint8_t> in(n + 64, 0xAA);
        pvn_mr *smr = p.tx.reg(out.data(), n + 1), *rmr = p.rx.reg(in.data(), in.size());
        pvn_req *r = nullptr, *s = nullptr;
        ASSERT_EQ(0, irecv(p, in.data(), n + 32, 3, rmr, &r));
        ASSERT_NE(nullptr, r);
        size_t got = 99, sent = 99;
        int sd = 0, rd = 0;
        for (Patience wait; wait.left() && (!sd || !rd);) {
            if (!s) {
                ASSERT_EQ(0, hot_isend(p.tx.e, out.data(), n, 3, smr, &s));
            } else if (!sd) {
                ASSERT_EQ(0, hot_test(s, &sd, &sent)) << p.tx.lane->err.reason[0];
            }
            if (!rd) {
                ASSERT_EQ(0, hot_test(r, &rd, &got)) << p.rx.lane->err.reason[0];
            }
        }
        ASSERT_TRUE(sd && rd) << stuck(p);
        EXPECT_EQ(n, sent);
        EXPECT_EQ(n, got);
        EXPECT_TRUE(bytes::same(out.data(), in.data(), n)) << n;
        EXPECT_TRUE(bytes::all(&in[n], in.size() - n, 0xAA)) << n;
        p.tx.unreg_last();
        p.rx.unreg_last();
    }
};

TEST_P(RdmaLane, EverySizeArrivesWhole)
{
    for (size_t n : {size_t(0), size_t(1), size_t(8), size_t(4096), size_t(65536), size_t(100003),
                     size_t(1) << 20, (size_t(5) << 20) + 7})
        one(n);
}

// Around each number of lines that a short message can have, and often enough for the ring to begin
// anew in the middle of one.
TEST_P(RdmaLane, EveryShortSizeArrivesWhole)
{
    for (size_t n = 0; n < size_t(SHORT_MAX) + 10; n++)
        one(n);
    const pvn_rdma_lane_stats t = lane_stats(p.tx.lane), r = lane_stats(p.rx.lane);
    EXPECT_EQ(uint64_t(SHORT_MAX) + 10, t.chunks);
    EXPECT_EQ(GetParam().mode == PVN_RDMA_SEND ? 0 : uint64_t(SHORT_MAX) + 1, t.shorts);
    EXPECT_EQ(t.shorts, r.shorts);
}

// Memory of the peer is written only where it has said so; in the two-sided mode what comes early
// waits, as much of it as there are credits.
TEST_P(RdmaLane, SendsBeforeAReceive)
{
    static int out[400], in[400];
    pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
    pvn_req *s[400] = {};
    int taken = 0, done = 0, ended = 0;
    for (int i = 0; i < 400; i++) {
        out[i] = i;
        in[i] = -1;
        ASSERT_EQ(0, hot_isend(p.tx.e, &out[i], sizeof(int), 0, smr, &s[i]));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        if (!s[i])
            break;
        taken++;
        for (; ended < taken && hot_test(s[ended], &done, nullptr) == 0 && done;)
            ended++;
    }
    if (GetParam().mode != PVN_RDMA_SEND) {
        ASSERT_EQ(0, taken);
        return;
    }
    EXPECT_GT(taken, 8);
    EXPECT_GT(ended, 8);
    EXPECT_LT(ended, 399);
    for (int i = 0; i < taken; i++) {
        pvn_req *r = nullptr;
        ASSERT_EQ(0, irecv(p, &in[i], sizeof(int), 0, rmr, &r));
        done = 0;
        for (Patience wait; wait.left() && !done;) {
            ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
            ASSERT_EQ(0, hot_test(r, &done, nullptr));
        }
        ASSERT_TRUE(done) << i << stuck(p);
        ASSERT_EQ(i, in[i]);
    }
}

// What NCCL's proxy does: up to `depth` in flight, the oldest tested.
void pipeline(RdmaPair &p, int total, int depth, size_t max_size)
{
    std::mt19937 rnd(11);
    std::vector<uint8_t> out(static_cast<size_t>(depth) * max_size), in(out.size());
    bytes::fill(out.data(), out.size(), 11);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    std::vector<pvn_req *> s(static_cast<size_t>(total)), r(static_cast<size_t>(total));
    std::vector<size_t> size(static_cast<size_t>(total));
    for (auto &n : size)
        n = rnd() % (max_size + 1);
    int sp = 0, st = 0, rp = 0, rt = 0;
    for (Patience wait; wait.left() && (st < total || rt < total);) {
        size_t at;
        // Receives are posted ahead, as a proxy does whose network takes longer than its pass.
        while (rp < total && rp - rt < depth) {
            at = static_cast<size_t>(rp % depth) * max_size;
            ASSERT_EQ(0, irecv(p, &in[at], max_size, 1, rmr, &r[static_cast<size_t>(rp)]));
            ASSERT_NE(nullptr, r[static_cast<size_t>(rp)]);
            rp++;
        }
        if (sp < total && sp - st < depth) {
            at = static_cast<size_t>(sp % depth) * max_size;
            ASSERT_EQ(0, hot_isend(p.tx.e, &out[at], size[static_cast<size_t>(sp)], 1, smr,
                                   &s[static_cast<size_t>(sp)]));
            sp += s[static_cast<size_t>(sp)] != nullptr;
        }
        int d = 0;
        size_t n = 0;
        if (st < sp) {
            ASSERT_EQ(0, hot_test(s[static_cast<size_t>(st)], &d, &n)) << p.tx.lane->err.reason[0];
            st += d;
        }
        if (rt < rp) {
            ASSERT_EQ(0, hot_test(r[static_cast<size_t>(rt)], &d, &n)) << p.rx.lane->err.reason[0];
            if (d) {
                at = static_cast<size_t>(rt % depth) * max_size;
                ASSERT_EQ(size[static_cast<size_t>(rt)], n);
                ASSERT_EQ(0, memcmp(&out[at], &in[at], n)) << rt;
                rt++;
            }
        }
    }
    ASSERT_EQ(total, st) << stuck(p);
    ASSERT_EQ(total, rt) << stuck(p);
}

TEST_P(RdmaLane, PipelineOfRandomSizes)
{
    // An interpreted kernel takes milliseconds for what takes microseconds elsewhere.
    pipeline(p, real_verbs() ? 1000 : 3000, 8, 20000);
}

TEST_P(RdmaLane, PipelinesOfEveryDepth)
{
    for (int depth : {1, 2, 3, 4, 16, 32})
        pipeline(p, 300, depth, 100);
}

TEST_P(RdmaLane, MoreChunksThanTheRingHolds)
{
    one(GetParam().chunk * 400 + 1);
}

// Groups of two sizes, one after the other.
void grouped(RdmaPair &p, int rounds)
{
    const int most = 8;
    std::vector<uint8_t> out = bytes::of(most * 1000, 5), in(most * 1000);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    for (int round = 0; round < rounds; round++) {
        const int n = round % 2 ? most : 3;
        void *buf[most];
        size_t cap[most], got[most] = {};
        int tags[most];
        const pvn_mr *mrs[most];
        for (int i = 0; i < n; i++) {
            buf[i] = &in[static_cast<size_t>(i) * 1000];
            cap[i] = 1000;
            tags[i] = 100 + i;
            mrs[i] = rmr;
        }
        pvn_req *r = nullptr, *s[most] = {};
        ASSERT_EQ(0, pvn_engine_irecv(p.rx.e, n, buf, cap, tags, mrs, &r));
        for (int i = n - 1; i >= 0; i--) {
            for (Patience patience; !s[i] && patience.left();) {
                ASSERT_EQ(0, hot_isend(p.tx.e, &out[static_cast<size_t>(i) * 1000],
                                       static_cast<size_t>(100 * i), 100 + i, smr, &s[i]));
                ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            }
            ASSERT_NE(nullptr, s[i]);
        }
        int done = 0;
        for (int i = 0; i < n; i++)
            for (done = 0; !done;) {
                ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
                ASSERT_EQ(0, hot_test(s[i], &done, nullptr));
            }
        for (done = 0; !done;)
            ASSERT_EQ(0, hot_test(r, &done, got));
        for (int i = 0; i < n; i++) {
            ASSERT_EQ(static_cast<size_t>(100 * i), got[i]);
            ASSERT_EQ(0, memcmp(&out[static_cast<size_t>(i) * 1000],
                                &in[static_cast<size_t>(i) * 1000], got[i]));
        }
    }
    p.tx.unreg_last();
    p.rx.unreg_last();
}

// Often enough for a group to lie across the end of the ring of entries.
TEST_P(RdmaLane, GroupedReceivesByTag)
{
    grouped(p, 250);
}

// Receives of one and of several buffers, sizes on both sides of every limit, tags in any order,
// memory of every kind, ends that do not look for a while, inline calls and general ones.
class Mixture
{
    struct Message {
        std::vector<uint8_t> out, in;
        size_t size;
        int tag;
        pvn_req *s = nullptr;
        bool sent = false;
    };
    struct Group {
        std::vector<size_t> msgs;
        pvn_req *r = nullptr;
        bool done = false;
    };
    enum { GUARD = 8 };
    RdmaPair &p;
    std::mt19937 rnd;
    std::vector<Message> msgs;
    std::vector<Group> groups;
    std::vector<size_t> order;
    std::vector<const pvn_mr *> smr, rmr;
    size_t next_group = 0, next_send = 0, open_groups = 0, first_group = 0, first_send = 0;

    size_t pick(size_t n)
    {
        return rnd() % n;
    }
    const pvn_mr *reg(RdmaEnd &e, std::vector<uint8_t> &v, bool gpu)
    {
        pvn_mr *mr = e.reg(v.data(), v.size());
        mr->gpu = gpu && pick(10) == 0;
        if (pick(10) == 0)
            mr->rkey[0] = 0; // as if it had several regions
        return mr;
    }
    void receive()
    {
        Group &g = groups[next_group];
        void *buf[PVN_MAX_RECVS];
        size_t cap[PVN_MAX_RECVS];
        int tags[PVN_MAX_RECVS];
        const pvn_mr *mrs[PVN_MAX_RECVS];
        for (size_t i = 0; i < g.msgs.size(); i++) {
            Message &m = msgs[g.msgs[i]];
            buf[i] = m.in.data();
            cap[i] = m.in.size() - GUARD;
            tags[i] = m.tag;
            mrs[i] = rmr[g.msgs[i]];
        }
        auto call = pick(2) ? hot_irecv : pvn_engine_irecv;
        ASSERT_EQ(0, call(p.rx.e, static_cast<int>(g.msgs.size()), buf, cap, tags, mrs, &g.r));
        next_group += g.r != nullptr;
        open_groups += g.r != nullptr;
    }
    void send()
    {
        Message &m = msgs[order[next_send]];
        auto call = pick(8) ? hot_isend : pvn_engine_isend;
        ASSERT_EQ(0, call(p.tx.e, m.out.data(), m.size, m.tag, smr[order[next_send]], &m.s));
        next_send += m.s != nullptr;
    }
    void look_at_sender()
    {
        for (size_t i = first_send; i < next_send; i++) {
            Message &m = msgs[order[i]];
            int done = 0;
            size_t size = 0;
            if (m.sent || pick(2))
                continue;
            ASSERT_EQ(0, (pick(2) ? hot_test : pvn_engine_test)(m.s, &done, &size))
                << p.tx.lane->err.reason[0];
            if (!done)
                continue;
            m.sent = true;
            ASSERT_EQ(m.size, size);
            // The memory is the caller's again: what is still read of it arrives wrong.
            std::fill(m.out.begin(), m.out.end(), uint8_t(0xEE));
        }
        while (first_send < next_send && msgs[order[first_send]].sent)
            first_send++;
    }
    void look_at_receiver()
    {
        for (size_t k = first_group; k < next_group; k++) {
            Group &g = groups[k];
            int done = 0;
            size_t size[PVN_MAX_RECVS] = {};
            if (g.done || pick(2))
                continue;
            ASSERT_EQ(0, (pick(2) ? hot_test : pvn_engine_test)(g.r, &done, size))
                << p.rx.lane->err.reason[0];
            if (!done)
                continue;
            g.done = true;
            open_groups--;
            for (size_t i = 0; i < g.msgs.size(); i++) {
                Message &m = msgs[g.msgs[i]];
                ASSERT_EQ(m.size, size[i]);
                ASSERT_TRUE(bytes::are(m.in.data(), m.size, g.msgs[i])) << m.size;
                ASSERT_TRUE(bytes::all(&m.in[m.size], m.in.size() - m.size, 0xAA)) << m.size;
            }
        }
        while (first_group < next_group && groups[first_group].done)
            first_group++;
    }

  public:
    Mixture(RdmaPair &pair, unsigned seed, size_t n, bool gpus) : p(pair), rnd(seed)
    {
        const size_t limits[] = {0, 1, 52, 53, 112, 113, SHORT_MAX, SHORT_MAX + 1, 4096, 9000};
        const size_t usual = pick(2) ? 4 : 1, many_lines = pick(2);
        for (size_t g = 0; g < n; g++) {
            groups.emplace_back();
            size_t width = pick(usual) == 0 ? 1 : 1 + pick(PVN_MAX_RECVS);
            std::vector<size_t> o;
            for (size_t i = 0; i < width; i++) {
                Message m;
                m.tag = width > 1 ? static_cast<int>(i) : static_cast<int>(pick(2));
                m.size = many_lines == 0 ? 240 + pick(60) : pick(3) ? pick(60) : limits[pick(10)];
                m.out = bytes::of(m.size, static_cast<unsigned>(msgs.size()));
                m.out.resize(m.size + 1);
                m.in.assign(m.size + (pick(2) ? 0 : pick(100)) + GUARD, 0xAA);
                groups.back().msgs.push_back(msgs.size());
                o.push_back(msgs.size());
                msgs.push_back(std::move(m));
            }
            std::shuffle(o.begin(), o.end(), rnd);
            order.insert(order.end(), o.begin(), o.end());
        }
        for (auto &m : msgs) {
            smr.push_back(reg(p.tx, m.out, gpus));
            rmr.push_back(reg(p.rx, m.in, gpus));
        }
    }
    // One end does its part for a while, then another one; how long is each seed's own.
    void go()
    {
        const size_t slots = PVN_MAX_REQS, depth = pick(2) ? slots : 1 + pick(slots),
                     most = pick(2) ? 300 : 1 + pick(10);
        Patience wait;
        while (wait.left() && (first_send < order.size() || first_group < groups.size())) {
            const size_t what = pick(4), end = 1 + pick(most);
            for (size_t i = 0; i < end && !testing::Test::HasFailure(); i++) {
                if (what == 0 && next_group < groups.size() && open_groups < depth)
                    receive();
                else if (what == 1 && next_send < order.size())
                    send();
                else if (what == 2)
                    look_at_sender(), i += 20;
                else if (what == 3)
                    look_at_receiver(), i += 20;
            }
            if (what == 0) {
                ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            }
            if (testing::Test::HasFailure())
                return;
        }
        ASSERT_EQ(order.size(), first_send) << stuck(p);
        ASSERT_EQ(groups.size(), first_group) << stuck(p);
    }
    ~Mixture()
    {
        for (size_t i = 0; i < msgs.size(); i++) {
            p.tx.unreg_last();
            p.rx.unreg_last();
        }
    }
};

// PVN_MIX_SEEDS: how many. Each registers some hundred buffers, which takes a real device its time.
unsigned mix_seeds()
{
    const char *n = getenv("PVN_MIX_SEEDS");
    return n ? static_cast<unsigned>(atoi(n)) : real_verbs() ? 1 : 10;
}

TEST_P(RdmaLane, EveryKindOfCallMixed)
{
    for (unsigned seed = 1; seed <= mix_seeds() && !HasFailure(); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Mixture(p, seed, 60, GetParam().mode == PVN_RDMA_IMM).go();
    }
}

RdmaOptions shape(const char *profile, pvn_rdma_mode mode, int qps, size_t chunk, bool costly)
{
    RdmaOptions o;
    o.profile = profile;
    o.mode = mode;
    o.qps = qps;
    o.chunk = chunk;
    o.costly = costly;
    return o;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RdmaLane,
    testing::Values(shape("pvrdma", PVN_RDMA_RECORD, 1, 5 << 16, true),
                    shape("pvrdma", PVN_RDMA_RECORD, 4, 4096, true),
                    shape("pvrdma\nset async 1", PVN_RDMA_RECORD, 2, 65536, true),
                    shape("pvrdma\nset descend 2\nset async 1", PVN_RDMA_RECORD, 1, 65536, true),
                    shape("pvrdma\nset descend 2\nset async 1", PVN_RDMA_IMM, 1, 65536, true),
                    shape("pvrdma", PVN_RDMA_IMM, 1, 5 << 16, true),
                    shape("roce", PVN_RDMA_IMM, 3, 8192, false),
                    shape("roce\nset async 1", PVN_RDMA_RECORD, 8, 4096, false),
                    shape("roce", PVN_RDMA_AUTO, 2, 65536, false),
                    shape("rxe", PVN_RDMA_RECORD, 1, 65536, false),
                    shape("pvrdma", PVN_RDMA_SEND, 1, 100000, true),
                    shape("pvrdma\nset async 1", PVN_RDMA_SEND, 3, 50000, true),
                    shape("roce", PVN_RDMA_SEND, 2, 4096, false),
                    shape("roce\nset async 1", PVN_RDMA_SEND, 8, 150000, false)));

// Queues of the fewest places, queues that are asked all the time, other limits of what is short.
TEST(RdmaMixture, WithEveryOption)
{
    for (unsigned seed = 1; seed <= 5 * mix_seeds() && !HasFailure(); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937 rnd(seed);
        auto one_of = [&](std::initializer_list<unsigned> v) {
            return v.begin()[rnd() % v.size()];
        };
        RdmaOptions o;
        o.profile = rnd() % 2 ? "pvrdma\nset async 1" : "pvrdma";
        o.mode =
            static_cast<pvn_rdma_mode>(one_of({PVN_RDMA_RECORD, PVN_RDMA_RECORD, PVN_RDMA_IMM}));
        o.qps = static_cast<int>(one_of({1, 1, 2, 8}));
        o.chunk = one_of({256, 4096, 65536});
        o.costly = rnd() % 4 != 0;
        o.rx_costly = rnd() % 2;
        o.max_wr = one_of({0, 64, 100});
        o.quiet_ns = one_of({0, 1000, 100000});
        o.short_max = static_cast<int>(one_of({0, 10, 60, SHORT_MAX}));
        o.rx_short_max = static_cast<int>(one_of({0, 10, SHORT_MAX, SHORT_MAX}));
        RdmaPair p;
        p.open(o);
        if (HasFatalFailure())
            return;
        Mixture(p, seed, 60, o.mode == PVN_RDMA_IMM).go();
    }
}

// Messages have numbers of 20 bits on the wire, chunks and lines of 32; the rings are filled anew
// once before these begin again at 0.
class RdmaCounters : public RdmaLane
{
};

TEST_P(RdmaCounters, BeginAgain)
{
    const uint64_t first = (UINT64_C(1) << PVN_ID_BITS) - 2000;
    for (pvn_engine *e : {p.tx.e, p.rx.e})
        wrap_start_at(e, first, UINT32_MAX - 600);
    pipeline(p, 3000, 8, 400);
    pipeline(p, 3000, 32, SHORT_MAX);
    one(GetParam().chunk * 400 + 1);
    // What is counted for a person does not.
    for (const pvn_lane *l : {p.tx.lane, p.rx.lane})
        EXPECT_EQ(6401u, lane_stats(l).chunks);
    EXPECT_EQ(lane_stats(p.tx.lane).shorts, lane_stats(p.rx.lane).shorts);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RdmaCounters,
                         testing::Values(shape("pvrdma", PVN_RDMA_RECORD, 1, 65536, true),
                                         shape("pvrdma", PVN_RDMA_RECORD, 3, 4096, true),
                                         shape("pvrdma", PVN_RDMA_IMM, 1, 65536, true),
                                         shape("roce\nset async 1", PVN_RDMA_RECORD, 2, 4096,
                                               false),
                                         shape("roce", PVN_RDMA_IMM, 2, 4096, false)));

// The end that could do either follows the one that cannot; two of them use records unless polls
// are cheap for both.
TEST(RdmaModes, AutoFollowsThePeer)
{
    struct {
        pvn_rdma_mode tx, rx;
        bool tx_costly, rx_costly;
        const char *agreed;
    } cases[] = {{PVN_RDMA_AUTO, PVN_RDMA_AUTO, true, true, "record mode"},
                 {PVN_RDMA_AUTO, PVN_RDMA_AUTO, true, false, "record mode"},
                 {PVN_RDMA_AUTO, PVN_RDMA_AUTO, false, true, "record mode"},
                 {PVN_RDMA_AUTO, PVN_RDMA_AUTO, false, false, "imm mode"},
                 {PVN_RDMA_AUTO, PVN_RDMA_IMM, true, true, "imm mode"},
                 {PVN_RDMA_IMM, PVN_RDMA_AUTO, true, true, "imm mode"},
                 {PVN_RDMA_RECORD, PVN_RDMA_AUTO, true, true, "record mode"},
                 {PVN_RDMA_AUTO, PVN_RDMA_RECORD, false, false, "record mode"}};
    for (auto &c : cases) {
        RdmaPair p;
        RdmaOptions o = shape("pvrdma", c.tx, 2, 65536, c.tx_costly);
        o.rx_mode = c.rx;
        o.rx_costly = c.rx_costly;
        p.open(o);
        if (HasFatalFailure())
            return;
        pipeline(p, 300, 8, 4096);
        for (const pvn_lane *l : {p.tx.lane, p.rx.lane}) {
            char text[256];
            l->ops->describe(l, text, sizeof(text));
            EXPECT_NE(nullptr, strstr(text, c.agreed)) << text;
        }
    }
}

// An end that does not know short messages neither gets nor sends any.
TEST(RdmaShort, OnlyWhereBothEndsKnowThem)
{
    for (pvn_rdma_mode mode : {PVN_RDMA_RECORD, PVN_RDMA_IMM})
        for (int known = 0; known < 4; known++) {
            RdmaPair p;
            RdmaOptions o = shape("pvrdma", mode, 2, 65536, true);
            o.short_max = known & 1 ? PVN_RDMA_SHORT_MAX : 0;
            o.rx_short_max = known >> 1 ? PVN_RDMA_SHORT_MAX : 0;
            p.open(o);
            if (HasFatalFailure())
                return;
            pipeline(p, 300, 8, SHORT_MAX);
            EXPECT_EQ(known == 3 ? 300u : 0u, lane_stats(p.tx.lane).shorts);
        }
}

// The sender keeps to its own limit; the receiver takes what it is sent.
TEST(RdmaShort, NoLongerThanTheSenderMaySend)
{
    for (int max : {1, 52, 53, 200, static_cast<int>(SHORT_MAX)}) {
        RdmaPair p;
        RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 65536, true);
        o.short_max = max;
        o.rx_short_max = 1;
        p.open(o);
        if (HasFatalFailure())
            return;
        const size_t size = static_cast<size_t>(max);
        pipeline(p, 300, 8, size);
        EXPECT_EQ(300u, lane_stats(p.tx.lane).shorts) << max;
        EXPECT_EQ(300u, lane_stats(p.rx.lane).shorts) << max;
        // Sizes are random; some are the longest.
        pipeline(p, 3000, 8, size + 1);
        EXPECT_EQ(3300u, lane_stats(p.tx.lane).chunks) << max;
        EXPECT_LT(lane_stats(p.tx.lane).shorts, 3300u) << max;
        EXPECT_GT(lane_stats(p.tx.lane).shorts, 300u) << max;
    }
}

// A receive of one buffer and a send, until both have been posted.
void post_pair(RdmaPair &p, void *in, const pvn_mr *rmr, const void *out, size_t size,
               const pvn_mr *smr, pvn_req **r, pvn_req **s)
{
    ASSERT_EQ(0, irecv(p, in, size, 0, rmr, r));
    for (Patience wait; wait.left() && !*s;) {
        ASSERT_EQ(0, hot_isend(p.tx.e, out, size, 0, smr, s));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    }
    ASSERT_NE(nullptr, *s);
}

// The processor reaches no GPU memory, at neither end.
TEST(RdmaShort, GpuMemoryTakesNone)
{
    for (int end = 0; end < 2; end++) {
        RdmaPair p;
        p.open(shape("roce", PVN_RDMA_IMM, 1, 65536, false));
        uint64_t out = 5, in = 0;
        pvn_mr *smr = p.tx.reg(&out, sizeof(out)), *rmr = p.rx.reg(&in, sizeof(in));
        (end ? rmr : smr)->gpu = 1;
        pvn_req *r = nullptr, *s = nullptr;
        post_pair(p, &in, rmr, &out, sizeof(out), smr, &r, &s);
        int done = 0;
        for (Patience wait; wait.left() && !done;)
            ASSERT_EQ(0, hot_test(r, &done, nullptr));
        EXPECT_EQ(5u, in);
        EXPECT_EQ(0u, lane_stats(p.tx.lane).shorts);
    }
}

// More of them than their ring holds, and nobody looks at the receiving end: the rest go the other
// way.
TEST(RdmaShort, ALateReceiversAreNotOverwritten)
{
    for (pvn_rdma_mode mode : {PVN_RDMA_RECORD, PVN_RDMA_IMM})
        for (bool costly : {false, true}) {
            RdmaPair p;
            p.open(shape(costly ? "pvrdma" : "roce", mode, 1, 65536, costly));
            const int groups = 32, each = 8;
            const size_t size = SHORT_MAX;
            std::vector<uint8_t> out = bytes::of(groups * each * size, 3), in(out.size());
            pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
            pvn_req *r[groups] = {}, *s[groups * each] = {};
            for (int g = 0; g < groups; g++) {
                void *buf[each];
                size_t cap[each];
                int tags[each];
                const pvn_mr *mrs[each];
                for (int i = 0; i < each; i++) {
                    buf[i] = &in[static_cast<size_t>(g * each + i) * size];
                    cap[i] = size;
                    tags[i] = i;
                    mrs[i] = rmr;
                }
                ASSERT_EQ(0, pvn_engine_irecv(p.rx.e, each, buf, cap, tags, mrs, &r[g]));
                ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            }
            // All that has been announced is sent before the receiver looks for the first time.
            int sent = 0;
            for (int misses = 0; sent < groups * each && misses < 1000;) {
                ASSERT_EQ(0, hot_isend(p.tx.e, &out[static_cast<size_t>(sent) * size], size,
                                       sent % each, smr, &s[sent]));
                misses = s[sent] ? 0 : misses + 1;
                sent += s[sent] != nullptr;
            }
            const pvn_rdma_lane_stats t = lane_stats(p.tx.lane);
            EXPECT_GT(t.shorts, 40u);
            EXPECT_LE(t.shorts * SHORT_MAX_LINES, uint64_t(SHORT_LINES));
            EXPECT_GT(sent, static_cast<int>(t.shorts));
            int done = 0;
            for (int g = 0; g < groups; g++, done = 0)
                for (Patience wait; wait.left() && !done;) {
                    ASSERT_EQ(0, hot_test(r[g], &done, nullptr)) << p.rx.lane->err.reason[0];
                    if (sent < groups * each) {
                        ASSERT_EQ(0, hot_isend(p.tx.e, &out[static_cast<size_t>(sent) * size], size,
                                               sent % each, smr, &s[sent]));
                        sent += s[sent] != nullptr;
                    } else {
                        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
                    }
                }
            EXPECT_EQ(out, in);
        }
}

// Where a lane's memory is, and what it takes, as its peer is told.
rdma_offer offer_of(pvn_lane *l)
{
    uint8_t text[2048];
    rdma_offer o = {};
    pvn_err err = PVN_ERR_INIT;
    int n = l->ops->offer(l, text, sizeof(text));
    EXPECT_GT(n, 0);
    EXPECT_EQ(0, pvn_rdma_offer_decode(text, static_cast<size_t>(std::max(n, 0)), &o, &err));
    return o;
}

// What a peer could write into the ring that it may write to.
class RdmaLies : public testing::Test
{
  protected:
    RdmaPair p;
    uint8_t in[128] = {};
    pvn_mr *mr = nullptr;
    pvn_req *r = nullptr;
    short_head *head = nullptr;

    void SetUp() override
    {
        p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
        const rdma_offer o = offer_of(p.rx.lane);
        ASSERT_TRUE(o.shorts);
        head = reinterpret_cast<short_head *>(o.mem_addr + mem_short(o.nqps));
        memset(in, 0xAA, sizeof(in));
        mr = p.rx.reg(in, sizeof(in));
    }
    // A message of n bytes for a buffer of a slot appears; the receiver looks. Its error.
    const pvn_err *appears(uint64_t slot, unsigned buffer, uint32_t n)
    {
        memset(head->data, 0x55, sizeof(head->data));
        head->imm = imm_make(slot, buffer, 0);
        head->bytes = static_cast<uint16_t>(n);
        __atomic_store_n(&head->stamp, 1, __ATOMIC_RELEASE);
        pvn_engine_progress(p.rx.e);
        for (size_t i = 8; i < sizeof(in); i++)
            EXPECT_EQ(0xAA, in[i]) << i;
        return pvn_engine_err(p.rx.e);
    }
    void receive()
    {
        ASSERT_EQ(0, irecv(p, in, 8, 0, mr, &r));
    }
};

TEST_F(RdmaLies, LongerThanAShortMessageCanBe)
{
    receive();
    const pvn_err *err = appears(0, 0, SHORT_MAX + 1);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "longer than any can be")) << err->reason[0];
}

TEST_F(RdmaLies, LongerThanTheReceive)
{
    receive();
    const pvn_err *err = appears(0, 0, 9);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "for a receive of 8 bytes")) << err->reason[0];
}

TEST_F(RdmaLies, IntoAGpusBuffer)
{
    mr->gpu = 1;
    receive();
    const pvn_err *err = appears(0, 0, 8);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "on a GPU")) << err->reason[0];
    EXPECT_EQ(0xAA, in[0]);
    int done = 0;
    EXPECT_NE(0, hot_test(r, &done, nullptr));
    EXPECT_EQ(0, done) << "there is nothing in the buffer";
}

TEST_F(RdmaLies, ForABufferThatNobodyPosted)
{
    receive();
    EXPECT_EQ(nullptr, appears(0, 1, 8));
    EXPECT_EQ(0xAA, in[0]);
    EXPECT_EQ(1u, pvn_engine_get_stats(p.rx.e)->stale);
}

TEST_F(RdmaLies, ForASlotThatNobodyPosted)
{
    receive();
    EXPECT_EQ(nullptr, appears(1, 0, 8));
    EXPECT_EQ(0xAA, in[0]);
    EXPECT_EQ(1u, pvn_engine_get_stats(p.rx.e)->stale);
}

// Lines become visible in any order: what lacks one has not arrived.
TEST_F(RdmaLies, AMessageIsWholeWhenItsLastLineIs)
{
    ASSERT_EQ(0, irecv(p, in, 60, 0, mr, &r));
    auto *more = reinterpret_cast<short_more *>(head + 1);
    memset(more->data, 0x55, 8);
    head->imm = imm_make(0, 0, 0);
    head->bytes = 60;
    memset(head->data, 0x55, sizeof(head->data));
    head->stamp = more->stamp = 1;
    head->sum = short_sum(head, 2);
    more->stamp = 0;
    int done = 0;
    size_t got = 0;
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(0, hot_test(r, &done, &got));
    EXPECT_EQ(0, done);
    EXPECT_EQ(0xAA, in[0]);
    // A stamp may be there before what is in front of it.
    more->data[7] = 0;
    __atomic_store_n(&more->stamp, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(0, hot_test(r, &done, &got));
    EXPECT_EQ(0, done);
    EXPECT_LT(0u, lane_stats(p.rx.lane).torn);
    more->data[7] = 0x55;
    for (int i = 0; i < 100 && !done; i++)
        ASSERT_EQ(0, hot_test(r, &done, &got));
    EXPECT_EQ(1, done);
    EXPECT_EQ(60u, got);
    for (size_t i = 0; i < sizeof(in); i++)
        EXPECT_EQ(i < 60 ? 0x55 : 0xAA, in[i]) << i;
}

TEST_F(RdmaLies, AMessageThatNeverAddsUp)
{
    ASSERT_EQ(0, irecv(p, in, 60, 0, mr, &r));
    auto *more = reinterpret_cast<short_more *>(head + 1);
    head->imm = imm_make(0, 0, 0);
    head->bytes = 60;
    head->stamp = more->stamp = 1;
    head->sum = static_cast<uint16_t>(short_sum(head, 2) + 1);
    const double from = sv::now();
    for (Patience patience; patience.left() && !pvn_engine_err(p.rx.e);)
        pvn_engine_progress(p.rx.e);
    EXPECT_LT(0.9, sv::now() - from) << "it may still come";
    const pvn_err *err = pvn_engine_err(p.rx.e);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "reading a short message: what has come does not"))
        << err->reason[0];
    EXPECT_EQ(0xAA, in[0]);
}

TEST_F(RdmaLies, AnEntryThatNeverAddsUp)
{
    const rdma_offer o = offer_of(p.tx.lane);
    auto *line = reinterpret_cast<cts_line *>(o.mem_addr + MEM_CTS);
    line->addr = o.mem_addr;
    line->size = 8;
    line->what = cts_what(0, 1, CTS_COPIES);
    line->sum = cts_sum(o.mem_addr + 64, 8, 0, line->what);
    __atomic_store_n(&line->stamp, 1, __ATOMIC_RELEASE);
    pvn_mr *smr = p.tx.reg(in, sizeof(in));
    pvn_req *s = nullptr;
    ASSERT_EQ(0, hot_isend(p.tx.e, in, 8, 0, smr, &s));
    EXPECT_EQ(nullptr, s) << "it is not there";
    const double from = sv::now();
    for (Patience patience; patience.left() && !s && !pvn_engine_err(p.tx.e);)
        hot_isend(p.tx.e, in, 8, 0, smr, &s);
    EXPECT_EQ(nullptr, s);
    EXPECT_LT(0.9, sv::now() - from) << "it may still come";
    const pvn_err *err = pvn_engine_err(p.tx.e);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "entry: what has come does not add up"))
        << err->reason[0];
}

// Each bit of an entry takes part in its sum, and each of a message of several lines.
TEST(RdmaSums, EveryBitCounts)
{
    uint64_t v[4] = {0x7f0012345000, 65536, 0x80001234, cts_what(-7, 3, CTS_COPIES)};
    const auto sum = [&] { return cts_sum(v[0], v[1], v[2], v[3]); };
    const uint32_t right = sum();
    for (int bit = 0; bit < 4 * 64; bit++) {
        v[bit / 64] ^= UINT64_C(1) << bit % 64;
        EXPECT_EQ(bit > 60 && bit < 64, right == sum()) << bit;
        v[bit / 64] ^= UINT64_C(1) << bit % 64;
    }
    std::vector<short_head> m(SHORT_MAX_LINES);
    bytes::fill(m.data(), m.size() * 64, 5);
    uint8_t *b = reinterpret_cast<uint8_t *>(m.data());
    const uint16_t good = short_sum(m.data(), SHORT_MAX_LINES);
    for (size_t bit = 0; bit < m.size() * 512; bit++) {
        b[bit / 8] ^= 1 << bit % 8;
        const bool own = bit / 16 == offsetof(short_head, sum) / 2;
        EXPECT_EQ(own, short_sum(m.data(), SHORT_MAX_LINES) == good) << bit;
        b[bit / 8] ^= 1 << bit % 8;
    }
}

// A copy by processor shows stamps before what they stand for, as softverbs does here: that is
// seen at both ends, waited for, and every byte is right. Not in imm mode: who asks a queue of
// softverbs waits for what is being placed.
TEST(RdmaTorn, IsWaitedFor)
{
    RdmaPair p;
    p.open(shape("pvrdma\nset descend 2\nset async 1", PVN_RDMA_RECORD, 1, 65536, true));
    if (testing::Test::HasFatalFailure())
        return;
    for (Patience patience; patience.left() && !testing::Test::HasFailure() &&
                            (lane_stats(p.tx.lane).torn == 0 || lane_stats(p.rx.lane).torn == 0);)
        grouped(p, 100);
    EXPECT_LT(0u, lane_stats(p.tx.lane).torn) << "entries";
    EXPECT_LT(0u, lane_stats(p.rx.lane).torn) << "messages";
}

class RdmaDoorbells : public testing::TestWithParam<pvn_rdma_mode>
{
};

// The economy that the lane exists for: at depth 8, everything counted, both ends.
TEST_P(RdmaDoorbells, PerMessageAtDepth8)
{
    RdmaPair p;
    p.open(shape("pvrdma", GetParam(), 1, 1 << 20, true));
    sv_stats before[2], after[2];
    pipeline(p, 200, 8, 64);
    sv::lib().sv_ctx_stats(p.tx.ctx, &before[0]);
    sv::lib().sv_ctx_stats(p.rx.ctx, &before[1]);
    const pvn_rdma_lane_stats t0 = lane_stats(p.tx.lane), r0 = lane_stats(p.rx.lane);
    const int n = 4000;
    pipeline(p, n, 8, 64);
    sv::lib().sv_ctx_stats(p.tx.ctx, &after[0]);
    sv::lib().sv_ctx_stats(p.rx.ctx, &after[1]);
    const pvn_rdma_lane_stats t1 = lane_stats(p.tx.lane), r1 = lane_stats(p.rx.lane);
    double sender = static_cast<double>(after[0].doorbells - before[0].doorbells) / n;
    double receiver = static_cast<double>(after[1].doorbells - before[1].doorbells) / n;
    printf("doorbells per message at depth 8: sender %.3f, receiver %.3f, together %.3f\n", sender,
           receiver, sender + receiver);
    EXPECT_LE(sender + receiver, 1.5);
    // The lane's own count is what softverbs saw.
    EXPECT_EQ(after[0].doorbells - before[0].doorbells, t1.post_send + t1.post_recv +
                                                            t1.empty_polls - t0.post_send -
                                                            t0.post_recv - t0.empty_polls);
    EXPECT_EQ(after[1].doorbells - before[1].doorbells, r1.post_send + r1.post_recv +
                                                            r1.empty_polls - r0.post_send -
                                                            r0.post_recv - r0.empty_polls);
}

INSTANTIATE_TEST_SUITE_P(Modes, RdmaDoorbells, testing::Values(PVN_RDMA_RECORD, PVN_RDMA_SEND));

// However long a request takes: its end shows in memory, and the queue is asked only for what is
// known to be in it.
TEST_P(RdmaDoorbells, SlowDeviceIsNotAskedInVain)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset async 1", GetParam(), 1, 1 << 20, true);
    o.quiet_ns = UINT64_MAX / 4;
    p.open(o);
    ASSERT_EQ(0, sv::command("rule slow delay ms=1 count=0"));
    for (int depth : {1, 8})
        pipeline(p, 100, depth, 64);
    EXPECT_GT(sv::lib().sv_rule_fired("slow"), 200);
    const pvn_rdma_lane_stats t = lane_stats(p.tx.lane), r = lane_stats(p.rx.lane);
    EXPECT_GT(t.polls, 0u);
    EXPECT_EQ(0u, t.empty_polls);
    EXPECT_EQ(0u, r.empty_polls);
}

// A receiver that has found nothing looks at memory only, and its engine does that without a call.
struct Watched {
    RdmaPair p;
    uint8_t out[4096] = {7}, in[4096] = {};
    pvn_mr *smr = nullptr, *rmr = nullptr;

    explicit Watched(const RdmaOptions &o)
    {
        p.open(o);
        smr = p.tx.reg(out, sizeof(out));
        rmr = p.rx.reg(in, sizeof(in));
    }
    // How many tests in vain there were before a message of n bytes was sent and at most how many
    // after it, while the queue was polled so many times.
    void message(size_t n, int before, int after, uint64_t *polls)
    {
        pvn_req *r = nullptr, *s = nullptr;
        int done = 0;
        ASSERT_EQ(0, irecv(p, in, sizeof(in), 0, rmr, &r));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        const uint64_t polled = lane_stats(p.rx.lane).polls;
        for (int i = 0; i < before; i++) {
            ASSERT_EQ(0, hot_test(r, &done, nullptr));
            ASSERT_EQ(0, done);
        }
        *polls = lane_stats(p.rx.lane).polls - polled;
        for (Patience patience; !s && patience.left();)
            ASSERT_EQ(0, hot_isend(p.tx.e, out, n, 0, smr, &s));
        ASSERT_NE(nullptr, s);
        for (int i = 0; i <= after && !done; i++)
            ASSERT_EQ(0, hot_test(r, &done, nullptr));
        EXPECT_EQ(1, done) << n << " bytes: " << stuck(p);
        EXPECT_EQ(0, memcmp(out, in, n));
        for (Patience patience; !s_done(s) && patience.left();)
            ;
    }
    bool s_done(pvn_req *s)
    {
        int done = 0;
        EXPECT_EQ(0, hot_test(s, &done, nullptr));
        EXPECT_EQ(0, pvn_engine_progress(p.rx.e));
        return done;
    }
};

TEST(RdmaWatch, RecordsAndShortMessagesEndIt)
{
    RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.quiet_ns = UINT64_MAX / 4;
    Watched w(o);
    uint64_t polls;
    for (size_t n : {8u, 4096u, 8u, 200u, 4096u}) {
        ASSERT_NO_FATAL_FAILURE(w.message(n, 100, 0, &polls));
        EXPECT_EQ(0u, polls);
    }
    pvn_req *r = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
    for (int i = 0; i < 100 && w.p.rx.lane->fast.watch.polls == 0; i++)
        ASSERT_EQ(0, hot_test(r, &done, nullptr));
    EXPECT_GT(w.p.rx.lane->fast.watch.polls, 0) << "the fault of this test: nothing was ever watched";
}

// In imm mode a long message shows in the queue: while such ones come it is polled each time, while
// short ones come now and then.
TEST(RdmaWatch, AQueueIsPolledLessWhereShortMessagesCome)
{
    Watched w(shape("roce", PVN_RDMA_IMM, 1, 1 << 20, false));
    uint64_t polls;
    ASSERT_NO_FATAL_FAILURE(w.message(8, 0, 0, &polls));
    ASSERT_NO_FATAL_FAILURE(w.message(8, 900, 0, &polls));
    EXPECT_GE(polls, 900u / 9);
    EXPECT_LE(polls, 900u / 9 + 4);
    ASSERT_NO_FATAL_FAILURE(w.message(4096, 900, 9, &polls)) << "the first long one may be late";
    EXPECT_LE(polls, 900u / 9 + 4);
    ASSERT_NO_FATAL_FAILURE(w.message(4096, 900, 0, &polls));
    EXPECT_EQ(900u, polls);
    ASSERT_NO_FATAL_FAILURE(w.message(8, 900, 0, &polls));
    EXPECT_EQ(900u, polls);
    ASSERT_NO_FATAL_FAILURE(w.message(8, 900, 0, &polls));
    EXPECT_LE(polls, 900u / 9 + 4);
}

// A word for each queue pair would be too many.
TEST(RdmaWatch, NotWithSeveralQueuePairs)
{
    Watched w(shape("roce", PVN_RDMA_IMM, 2, 1 << 20, false));
    uint64_t polls;
    ASSERT_NO_FATAL_FAILURE(w.message(8, 0, 0, &polls));
    ASSERT_NO_FATAL_FAILURE(w.message(8, 100, 0, &polls));
    EXPECT_EQ(100u, polls);
}

// What a sender waits for is the acknowledgement.
TEST(RdmaWatch, AnAcknowledgementEndsIt)
{
    RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.quiet_ns = UINT64_MAX / 4;
    Watched w(o);
    pvn_req *r = nullptr, *s = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
    ASSERT_EQ(0, pvn_engine_progress(w.p.rx.e));
    for (Patience patience; !s && patience.left();)
        ASSERT_EQ(0, hot_isend(w.p.tx.e, w.out, 8, 0, w.smr, &s));
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(0, hot_test(s, &done, nullptr));
        ASSERT_EQ(0, done);
    }
    for (int i = 0; i < 9 && w.p.tx.lane->fast.watch.polls == 0; i++)
        ASSERT_EQ(0, hot_test(s, &done, nullptr));
    EXPECT_GT(w.p.tx.lane->fast.watch.polls, 0);
    ASSERT_EQ(0, hot_test(r, &done, nullptr));
    ASSERT_EQ(1, done);
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(0, pvn_engine_progress(w.p.rx.e));
    done = 0;
    ASSERT_EQ(0, hot_test(s, &done, nullptr));
    EXPECT_EQ(1, done) << stuck(w.p);
}

// A message that is sent while its receiver has announced eight buffers: it need not say soon that
// it has got it.
struct OneOfEight {
    uint8_t out[8] = {1, 2, 3}, in[8][8] = {};
    pvn_req *s = nullptr, *r[8] = {};

    void start(RdmaPair &p)
    {
        pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
        for (int i = 0; i < 8; i++) {
            ASSERT_EQ(0, irecv(p, in[i], sizeof(in[i]), 0, rmr, &r[i]));
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        }
        for (Patience patience; !s && patience.left();)
            ASSERT_EQ(0, hot_isend(p.tx.e, out, sizeof(out), 0, smr, &s));
        ASSERT_NE(nullptr, s);
    }
};

// Few requests have a completion, and a receiver that holds enough entries ready says nothing of a
// message that it has got: the sender learns of it after a silence, by one request more.
TEST(RdmaDoorbells, TheLastMessageIsNotForgotten)
{
    for (int before : {0, 1, 3, 14, 15, 16, 40}) {
        RdmaPair p;
        RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
        o.quiet_ns = 2000000;
        p.open(o);
        if (before > 0)
            pipeline(p, before, 8, 8);
        OneOfEight one;
        const uint64_t acks = lane_stats(p.rx.lane).acks_alone;
        ASSERT_NO_FATAL_FAILURE(one.start(p));
        int done = 0;
        for (Patience patience; !done && patience.left();) {
            ASSERT_EQ(0, hot_test(one.s, &done, nullptr));
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        }
        EXPECT_EQ(1, done) << "after " << before << ": " << stuck(p);
        EXPECT_EQ(0, memcmp(one.out, one.in[0], sizeof(one.out)));
        EXPECT_EQ(acks, lane_stats(p.rx.lane).acks_alone);
    }
}

// A receiver that has got a message and closes has not always told of it before: the sender, whose
// request had no completion, must not take the end of the connection for the loss of the message.
TEST(RdmaDoorbells, WhatHasArrivedIsSentAlthoughTheReceiverCloses)
{
    for (int qps : {1, 2}) {
        RdmaPair p;
        RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_RECORD, qps, 1 << 20, true);
        o.quiet_ns = 2000000;
        o.retry = 2;
        p.open(o);
        OneOfEight one;
        ASSERT_NO_FATAL_FAILURE(one.start(p));
        int done = 0;
        for (Patience patience; !done && patience.left();)
            ASSERT_EQ(0, hot_test(one.r[0], &done, nullptr));
        ASSERT_EQ(1, done);
        pvn_engine_free(p.rx.e);
        p.rx.e = nullptr;
        p.rx.lane->ops->close(p.rx.lane);
        p.rx.lane = nullptr;
        done = 0;
        int rc = 0;
        for (Patience patience; rc == 0 && !done && patience.left();)
            rc = hot_test(one.s, &done, nullptr);
        EXPECT_EQ(0, rc) << p.tx.lane->err.reason[0];
        EXPECT_EQ(1, done);
    }
}

// Runs a sender until it fails and returns its error.
const pvn_err *until_failed(RdmaPair &p)
{
    static uint8_t out[4096], in[4096];
    pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
    pvn_req *r = nullptr, *s = nullptr;
    int done = 0;
    double limit = 0; // the sender may never hear of it when the receiver has failed
    for (long i = 0; i < 20000000L && !pvn_engine_err(p.tx.e); i++) {
        if (pvn_engine_err(p.rx.e) && limit == 0)
            limit = sv::now() + 1;
        if (limit != 0 && sv::now() > limit)
            break;
        if (!r)
            irecv(p, in, sizeof(in), 0, rmr, &r);
        if (!s)
            hot_isend(p.tx.e, out, sizeof(out), 0, smr, &s);
        if (s && hot_test(s, &done, nullptr) == 0 && done)
            s = nullptr;
        if (r && hot_test(r, &done, nullptr) == 0 && done)
            r = nullptr;
    }
    return pvn_engine_err(p.tx.e);
}

TEST(RdmaFaults, CompletionErrorSaysEverything)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
    ASSERT_EQ(0,
              sv::command("rule broken status status=RETRY_EXC_ERR op=WRITE min_len=4096 nth=6"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
    char text[PVN_ERR_TEXT_LEN];
    pvn_err_format(err, text, sizeof(text));
    for (const char *want :
         {"soft0:1", "status 12", "QPN 0x", "GID ", "vendor error", "path that has worked"})
        EXPECT_NE(nullptr, strstr(text, want)) << want << " is missing in: " << text;
    EXPECT_EQ(nullptr, strstr(text, "never carried data")) << text;
}

// The number of a lane's first queue pair.
uint32_t qpn_of(pvn_lane *l)
{
    uint8_t offer[2048];
    rdma_offer o;
    pvn_err err = PVN_ERR_INIT;
    int n = l->ops->offer(l, offer, sizeof(offer));
    return n > 0 && pvn_rdma_offer_decode(offer, static_cast<size_t>(n), &o, &err) == 0 ? o.qpn[0]
                                                                                        : 0;
}

// A short message's request, of which only the error has a completion, to a peer that is silent.
TEST(RdmaFaults, AShortMessageFails)
{
    for (bool costly : {true, false})
        for (int nth : {1, 2, 15, 16, 17}) {
            RdmaPair p;
            RdmaOptions o = shape(costly ? "pvrdma" : "roce", PVN_RDMA_RECORD, 1, 1 << 20, costly);
            o.quiet_ns = 2000000;
            p.open(o);
            uint8_t out[8] = {1, 2, 3}, in[32][8] = {};
            pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
            pvn_req *s[32] = {}, *r[32] = {};
            for (int i = 0; i < 32; i++)
                ASSERT_EQ(0, irecv(p, in[i], sizeof(in[i]), 0, rmr, &r[i]));
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            ASSERT_EQ(0, sv::command("rule broken status status=REM_OP_ERR qpn=" +
                                     std::to_string(qpn_of(p.tx.lane)) +
                                     " op=WRITE nth=" + std::to_string(nth)));
            for (int i = 0; i < 20; i++) {
                ASSERT_EQ(0, hot_isend(p.tx.e, out, sizeof(out), 0, smr, &s[i])) << i;
                ASSERT_NE(nullptr, s[i]) << i;
            }
            int done = 0, rc = 0;
            for (Patience wait; wait.left() && rc == 0;)
                rc = hot_test(s[19], &done, nullptr);
            EXPECT_NE(0, rc) << nth;
            EXPECT_EQ(0, done);
            ASSERT_NE(nullptr, pvn_engine_err(p.tx.e));
            EXPECT_NE(nullptr, strstr(pvn_engine_err(p.tx.e)->reason[0], "status 11"))
                << pvn_engine_err(p.tx.e)->reason[0];
            EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
        }
}

// No place is left in the send queue for the request that would ask what has come of them.
TEST(RdmaFaults, MessagesThatFillTheSendQueueFail)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.quiet_ns = 2000000;
    o.max_wr = 64;
    o.retry = 2;
    p.open(o);
    const int half = 32, all = 63;
    std::vector<uint8_t> out = bytes::of(1000, 4), in(1000);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s[all] = {}, *r[all] = {};
    int sent = 0, done = 0;
    auto post = [&](int end) {
        for (int i = end == half ? 0 : half; i < end; i++)
            ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[i]));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    };
    // The first one is long and has two places, the others have one each.
    auto send = [&](int end) {
        for (Patience wait; sent < end && wait.left(); sent += s[sent] != nullptr)
            ASSERT_EQ(0, hot_isend(p.tx.e, out.data(), sent ? 8 : 1000, 0, smr, &s[sent]));
        ASSERT_EQ(end, sent);
    };
    post(half);
    send(half);
    // The receiver says that it has these; of their completions too few are known to be worth a
    // look.
    for (int i = 0; i < half; i++)
        for (done = 0; !done;)
            ASSERT_EQ(0, hot_test(r[i], &done, nullptr));
    for (done = 0; !done;)
        ASSERT_EQ(0, hot_test(s[0], &done, nullptr));
    post(all);
    ASSERT_EQ(0, sv::command("rule gone die mode=1"));
    send(all);
    EXPECT_EQ(0u, lane_stats(p.tx.lane).polls);
    int rc = 0;
    done = 0;
    for (double until = sv::now() + 5; sv::now() < until && rc == 0;)
        rc = hot_test(s[all - 1], &done, nullptr);
    EXPECT_NE(0, rc) << stuck(p);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("gone"));
}

// When queue pairs fail, every outstanding request completes, unsignaled ones too. The completion
// queue has to hold them all: one that overruns is an error of the device.
static void every_request_fails(const RdmaOptions &o)
{
    RdmaPair p;
    p.open(o);
    const int messages = 4;
    const size_t size = 1 << 20;
    std::vector<uint8_t> out(size, 1), in(size * messages);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s[messages] = {}, *r[messages] = {};
    for (int i = 0; i < messages; i++)
        ASSERT_EQ(0, irecv(p, in.data() + size * static_cast<size_t>(i), size, 0, rmr, &r[i]));
    ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    for (int i = 0; i < 10000; i++)
        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
    sv_stats before, after;
    sv::lib().sv_total_stats(&before);
    ASSERT_EQ(0, sv::command("rule gone die mode=2 count=0"));
    for (pvn_req *&one : s)
        ASSERT_EQ(0, hot_isend(p.tx.e, out.data(), size, 0, smr, &one));
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
    sv::lib().sv_total_stats(&after);
    EXPECT_GT(after.send_wr - before.send_wr, 128u) << "the fault of this test: too few requests";
    EXPECT_GT(sv::lib().sv_rule_fired("gone"), 0);
    uint32_t first = qpn_of(p.tx.lane);
    for (uint32_t q = first; q < first + static_cast<uint32_t>(o.qps); q++)
        ASSERT_EQ(0, sv::command("qp " + std::to_string(q) + " error"));
    int flags = fcntl(p.tx.ctx->async_fd, F_GETFL);
    ASSERT_EQ(0, fcntl(p.tx.ctx->async_fd, F_SETFL, flags | O_NONBLOCK));
    ibv_async_event ev;
    while (p.tx.v->get_async_event(p.tx.ctx, &ev) == 0) {
        EXPECT_NE(IBV_EVENT_CQ_ERR, ev.event_type);
        p.tx.v->ack_async_event(&ev);
    }
    int rc = 0;
    for (Patience wait; wait.left() && rc == 0;)
        rc = pvn_engine_progress(p.tx.e);
    EXPECT_NE(0, rc);
}

TEST(RdmaFaults, EveryOutstandingRequestHasACompletion)
{
    for (int qps : {1, 3})
        for (pvn_rdma_mode mode : {PVN_RDMA_RECORD, PVN_RDMA_IMM}) {
            SCOPED_TRACE(qps);
            RdmaOptions o = shape("roce", mode, qps, 2048, true);
            o.quiet_ns = 2000000;
            every_request_fails(o);
        }
}

// A device with small completion queues has fewer requests in flight.
TEST(RdmaFaults, ASmallCompletionQueueHoldsEveryRequest)
{
    RdmaOptions o = shape("roce\nset max_cqe 500", PVN_RDMA_RECORD, 3, 2048, true);
    o.quiet_ns = 2000000;
    every_request_fails(o);
}

TEST(RdmaFaults, PostFails)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
    ASSERT_EQ(0, sv::command("rule full fail call=post_send errno=ENOMEM nth=9"));
    const pvn_err *err = until_failed(p);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("full"));
    // Which end posts the ninth time is the pipeline's affair; the failed one knows why.
    if (!err)
        err = pvn_engine_err(p.rx.e);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "posting to the send queue")) << err->reason[0];
}

TEST(RdmaFaults, PeerDiesSilently)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.retry = 2;
    p.open(o);
    ASSERT_EQ(0, sv::command("rule gone die mode=1 nth=12"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("gone"));
    EXPECT_NE(nullptr, strstr(err->reason[0], "status 12")) << err->reason[0];
}

// A message of 400 chunks whose receiver does not look while the sender does.
class RdmaLateReceiver : public testing::Test
{
  protected:
    RdmaPair p;
    int sd = 0, rd = 0;

    // The receive is posted and announced; the sender tries for a while.
    void start(const char *profile, pvn_rdma_mode mode, bool costly)
    {
        p.open(shape(profile, mode, 1, 4096, costly));
        pvn_mr *smr = p.tx.reg(out.data(), size), *rmr = p.rx.reg(in.data(), size);
        ASSERT_EQ(0, irecv(p, in.data(), size, 0, rmr, &r));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        for (Patience wait; wait.left() && !s;)
            ASSERT_EQ(0, hot_isend(p.tx.e, out.data(), size, 0, smr, &s));
        ASSERT_NE(nullptr, s);
        for (double until = sv::now() + 0.2; sv::now() < until && !sd;)
            ASSERT_EQ(0, hot_test(s, &sd, nullptr));
    }
    // The receiver looks, and has everything.
    void finish()
    {
        for (Patience wait; wait.left() && (!sd || !rd);) {
            if (!sd) {
                ASSERT_EQ(0, hot_test(s, &sd, nullptr)) << p.tx.lane->err.reason[0];
            }
            if (!rd) {
                ASSERT_EQ(0, hot_test(r, &rd, nullptr)) << p.rx.lane->err.reason[0];
            }
        }
        ASSERT_TRUE(sd && rd) << stuck(p);
        EXPECT_EQ(out, in);
    }

  private:
    static constexpr size_t size = 4096 * 400;
    std::vector<uint8_t> out = bytes::of(size, 9), in = std::vector<uint8_t>(size);
    pvn_req *s = nullptr, *r = nullptr;
};

// More chunks than there are receive requests, and nobody looks at the receiving end: the device
// answers "not ready", and the sender's waits, which is no error.
TEST_F(RdmaLateReceiver, IsWaitedFor)
{
    ASSERT_NO_FATAL_FAILURE(start("roce", PVN_RDMA_IMM, false));
    EXPECT_EQ(0, sd) << "there were receive requests for all chunks";
    finish();
}

// In record mode no device knows how far the ring has been read: the sender must not take its
// completions for that.
class RdmaLateReader : public RdmaLateReceiver, public testing::WithParamInterface<bool>
{
};

TEST_P(RdmaLateReader, RecordsAreNotOverwritten)
{
    ASSERT_NO_FATAL_FAILURE(start(GetParam() ? "pvrdma" : "roce", PVN_RDMA_RECORD, GetParam()));
    EXPECT_LE(lane_stats(p.tx.lane).chunks, uint64_t(RECORD_RING));
    finish();
}

INSTANTIATE_TEST_SUITE_P(CostlyPolls, RdmaLateReader, testing::Bool());

TEST(RdmaFaults, TwoSidedPeerDies)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_SEND, 1, 1 << 20, true);
    o.retry = 2;
    p.open(o);
    ASSERT_EQ(0, sv::command("rule gone die mode=1 nth=12"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("gone"));
    EXPECT_NE(nullptr, strstr(err->reason[0], "status 12")) << err->reason[0];
}

TEST(RdmaFaults, TwoSidedRequestFails)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_SEND, 1, 1 << 20, true));
    ASSERT_EQ(0, sv::command("rule broken status status=REM_OP_ERR op=SEND min_len=4096 nth=6"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
    EXPECT_NE(nullptr, strstr(err->reason[0], "status 11")) << err->reason[0];
}

// What was reported as sent arrives, although its copy was still on its way when the sender closed.
TEST(RdmaTwoSided, ClosingLosesNothing)
{
    RdmaPair p;
    p.open(shape("pvrdma\nset async 1", PVN_RDMA_SEND, 2, 1 << 20, true));
    ASSERT_EQ(0, sv::command("rule slow delay ms=5 count=0"));
    const size_t size = 100000;
    std::vector<uint8_t> out = bytes::of(size, 1), in(size);
    pvn_mr *smr = p.tx.reg(out.data(), size), *rmr = p.rx.reg(in.data(), size);
    pvn_req *s = nullptr, *r = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(p, in.data(), size, 0, rmr, &r));
    ASSERT_EQ(0, hot_isend(p.tx.e, out.data(), size, 0, smr, &s));
    ASSERT_NE(nullptr, s);
    for (Patience wait; wait.left() && !done;)
        ASSERT_EQ(0, hot_test(s, &done, nullptr));
    ASSERT_TRUE(done);
    pvn_engine_free(p.tx.e);
    p.tx.e = nullptr;
    p.tx.lane->ops->close(p.tx.lane);
    p.tx.lane = nullptr;
    EXPECT_GT(sv::lib().sv_rule_fired("slow"), 0);
    done = 0;
    for (Patience wait; wait.left() && !done;)
        ASSERT_EQ(0, hot_test(r, &done, nullptr));
    ASSERT_TRUE(done);
    EXPECT_EQ(out, in);
}

TEST(RdmaFaults, RegistrationOfItsRingsFails)
{
    ASSERT_EQ(0, sv::lib().sv_configure(
                     "profile pvrdma\nrule nomem fail call=reg_mr errno=ENOMEM nth=1\n"));
    RdmaEnd e;
    RdmaOptions o;
    pvn_err err = PVN_ERR_INIT;
    e.v = pvn_verbs_get(sv::library().c_str(), &err);
    int n = 0;
    ibv_device **list = e.v->get_device_list(&n);
    e.ctx = e.v->open_device(list[0]);
    e.v->free_device_list(list);
    e.pd = e.v->alloc_pd(e.ctx);
    pvn_rdma_lane_cfg c = {};
    e.config(o, true, &c);
    EXPECT_EQ(nullptr, pvn_rdma_lane_new(&c, &err));
    EXPECT_EQ(-ENOMEM, err.code);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("nomem"));
}

TEST(RdmaFence, NothingLandsAfterIt)
{
    RdmaPair p;
    p.open(shape("pvrdma\nset async 1", PVN_RDMA_RECORD, 1, 1 << 20, true));
    std::vector<uint8_t> out(1 << 20, 1), in(1 << 20, 0);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *r = nullptr, *s = nullptr;
    ASSERT_EQ(0, sv::command("rule slow delay ms=50 min_len=100000 count=0"));
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r));
    for (int i = 0; i < 10000000 && !s; i++) {
        ASSERT_EQ(0, hot_isend(p.tx.e, out.data(), out.size(), 0, smr, &s));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    }
    ASSERT_NE(nullptr, s);
    int rc = -EAGAIN;
    for (int i = 0; i < 100000000 && rc == -EAGAIN; i++)
        rc = p.rx.lane->ops->fence(p.rx.lane);
    ASSERT_EQ(0, rc);
    std::vector<uint8_t> snapshot = in;
    usleep(200000);
    EXPECT_GT(sv::lib().sv_rule_fired("slow"), 0);
    EXPECT_EQ(snapshot, in);
}

// Lies that no range check can find: the first round trip does, before any data.
TEST(RdmaOffer, AWrongKeyOrAddressIsFoundAtVerify)
{
    for (size_t at : {12, 21}) { // of the key, of the address
        RdmaPair p;
        RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
        ASSERT_EQ(0, sv::lib().sv_configure("profile pvrdma"));
        p.tx.open(o, true);
        p.rx.open(o, false);
        uint8_t a[2048], b[2048];
        auto na = static_cast<size_t>(p.tx.lane->ops->offer(p.tx.lane, a, sizeof(a)));
        auto nb = static_cast<size_t>(p.rx.lane->ops->offer(p.rx.lane, b, sizeof(b)));
        b[at] ^= 0x55;
        ASSERT_EQ(0, p.rx.lane->ops->bind(p.rx.lane, a, na));
        ASSERT_EQ(0, p.tx.lane->ops->bind(p.tx.lane, b, nb));
        int rc = -EAGAIN;
        for (Patience wait; wait.left() && rc == -EAGAIN;)
            rc = p.tx.lane->ops->verify(p.tx.lane);
        EXPECT_EQ(-EIO, rc);
        EXPECT_NE(nullptr, strstr(p.tx.lane->err.reason[0], "status 10"))
            << p.tx.lane->err.reason[0];
        EXPECT_NE(nullptr, strstr(p.tx.lane->err.reason[0], "never carried data"));
        EXPECT_EQ(-EAGAIN, p.rx.lane->ops->verify(p.rx.lane));
    }
}

// Arrivals and what a receiver has written end in one completion queue. A receiver that wants a
// place for its entries leaves the arrivals to the poll that reports them.
TEST(RdmaImm, AFullSendQueueTakesNoArrival)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_IMM, 1, 1 << 20, true));
    std::vector<uint8_t> out = bytes::of(1000, 1), in(1000);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s = nullptr, *r[10] = {};
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[0]));
    ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    for (Patience wait; wait.left() && !s;)
        ASSERT_EQ(0, hot_isend(p.tx.e, out.data(), out.size(), 0, smr, &s));
    ASSERT_NE(nullptr, s);
    const uint32_t places = wrap_slots(p.rx.e, 100);
    // One more chain, whose completion is behind the arrival; then enough entries for another one.
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[1]));
    ASSERT_EQ(0, p.rx.lane->ops->kick(p.rx.lane));
    wrap_slots(p.rx.e, 0);
    for (int i = 2; i < 10; i++)
        ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[i]));
    EXPECT_EQ(-EAGAIN, p.rx.lane->ops->kick(p.rx.lane)) << p.rx.lane->err.reason[0];
    wrap_slots(p.rx.e, places);
    int done = 0;
    for (Patience wait; wait.left() && !done;)
        ASSERT_EQ(0, hot_test(r[0], &done, nullptr)) << p.rx.lane->err.reason[0];
    EXPECT_EQ(out, in);
}

TEST(RdmaOffer, TheSmallerMtuIsUsedByBoth)
{
    RdmaPair p;
    RdmaOptions o = shape("roce", PVN_RDMA_RECORD, 1, 1 << 20, false);
    o.rx_mtu = IBV_MTU_512;
    p.open(o);
    for (RdmaEnd *e : {&p.tx, &p.rx}) {
        char text[400];
        e->lane->ops->describe(e->lane, text, sizeof(text));
        EXPECT_NE(nullptr, strstr(text, "MTU 512")) << text;
    }
    pipeline(p, 100, 8, 5000);
}

TEST(RdmaOffer, LiesAreRefused)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 2, 1 << 20, true));
    uint8_t good[2048];
    rdma_offer o;
    pvn_err err = PVN_ERR_INIT;
    int n = p.tx.lane->ops->offer(p.tx.lane, good, sizeof(good));
    ASSERT_GT(n, 24);
    ASSERT_EQ(0, pvn_rdma_offer_decode(good, static_cast<size_t>(n), &o, &err));
    for (int len = 0; len < n; len++)
        EXPECT_EQ(-EPROTO, pvn_rdma_offer_decode(good, static_cast<size_t>(len), &o, &err)) << len;
    // version, mode, queue pairs, flags, MTU, window, GIDs, modes, pieces
    for (int at : {0, 1, 2, 3, 4, 6, 7, 8, 9}) {
        uint8_t bad[2048];
        memcpy(bad, good, sizeof(bad));
        bad[at] = 0xee;
        EXPECT_EQ(-EPROTO, pvn_rdma_offer_decode(bad, static_cast<size_t>(n), &o, &err)) << at;
        EXPECT_NE('\0', err.reason[0][0]);
    }
}

} // namespace
