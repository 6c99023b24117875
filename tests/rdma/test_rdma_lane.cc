// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The RDMA lane under the engine, on softverbs: messages of every size, depth, mode and option
#include "rdma/lane_traffic.h"
#include "support/whole_table.h"

namespace
{

class RdmaLane : public testing::TestWithParam<RdmaOptions>
{
  protected:
    RdmaPair p;
    void SetUp() override
    {
        // Nothing fails here. So an expensive queue must see no empty poll, however long a request
        // takes.
        RdmaOptions o = GetParam();
        o.idle_ns = UINT64_MAX / 4;
        p.open(o);
    }
    void TearDown() override
    {
        // A real device may show an acknowledgement before the completion of the acknowledged
        // request.
        if (!GetParam().costly || real_verbs())
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
        for (Deadline wait; wait.left() && (!sd || !rd);) {
            if (!s) {
                ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), n, 3, smr, &s));
            } else if (!sd) {
                ASSERT_EQ(0, pvn_engine_test(s, &sd, &sent)) << p.tx.lane->err.reason[0];
            }
            if (!rd) {
                ASSERT_EQ(0, pvn_engine_test(r, &rd, &got)) << p.rx.lane->err.reason[0];
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

// A lane has no data operations until it is bound. Then it keeps them until its end.
TEST_P(RdmaLane, NoOperationIsMissingOrReplaced)
{
    RdmaEnd unbound;
    unbound.open(GetParam(), true);
    EXPECT_EQ(nullptr, unbound.lane->data);
    for (pvn_lane *l : {p.tx.lane, p.rx.lane, unbound.lane}) {
        const pvn_lane_ops *ops = l->ops;
        const pvn_lane_data_ops *data = l->data;
        EXPECT_EQ(p.tx.lane->ops, ops);
        if (l != unbound.lane)
            expect_no_holes(l);
        int rc = -EAGAIN;
        for (Deadline wait; wait.left() && rc == -EAGAIN;)
            rc = l->ops->fence(l);
        ASSERT_EQ(0, rc);
        EXPECT_EQ(ops, l->ops);
        EXPECT_EQ(data, l->data);
        pvn_event ev[4];
        EXPECT_EQ(0, l->ops->fence(l)) << "again";
        EXPECT_EQ(0, l->ops->drain(l, ev, 4)) << "nothing has come";
        EXPECT_EQ(0, l->ops->overdue(l, pvn_now_ns(), 0));
    }
}

TEST_P(RdmaLane, EverySizeArrivesWhole)
{
    for (size_t n : {size_t(0), size_t(1), size_t(8), size_t(4096), size_t(65536), size_t(100003),
                     size_t(1) << 20, (size_t(5) << 20) + 7})
        one(n);
}

// Sizes lie around each number of lines that a short message can have. Each is sent often enough
// for the ring to wrap in the middle of a message.
TEST_P(RdmaLane, EveryShortSizeArrivesWhole)
{
    for (size_t n = 0; n < size_t(SHORT_MAX) + 10; n++)
        one(n);
    const pvn_rdma_lane_stats t = lane_stats(p.tx.lane), r = lane_stats(p.rx.lane);
    EXPECT_EQ(uint64_t(SHORT_MAX) + 10, t.chunks);
    EXPECT_EQ(GetParam().mode == PVN_RDMA_SEND ? 0 : uint64_t(SHORT_MAX) + 1, t.shorts);
    EXPECT_EQ(t.shorts, r.shorts);
}

// The lane writes the peer's memory only after a clear-to-send. In the two-sided mode early
// messages wait at the receiver, as many as there are credits.
TEST_P(RdmaLane, SendsBeforeAReceive)
{
    static int out[400], in[400];
    pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
    pvn_req *s[400] = {};
    int taken = 0, done = 0, ended = 0;
    for (int i = 0; i < 400; i++) {
        out[i] = i;
        in[i] = -1;
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, &out[i], sizeof(int), 0, smr, &s[i]));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        if (!s[i])
            break;
        taken++;
        for (; ended < taken && pvn_engine_test(s[ended], &done, nullptr) == 0 && done;)
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
        for (Deadline wait; wait.left() && !done;) {
            ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
        }
        ASSERT_TRUE(done) << i << stuck(p);
        ASSERT_EQ(i, in[i]);
    }
}

TEST_P(RdmaLane, PipelineOfRandomSizes)
{
    // An interpreted kernel, and ThreadSanitizer, need milliseconds for what takes microseconds
    // elsewhere.
#ifdef __SANITIZE_THREAD__
    const bool slow = true;
#else
    const bool slow = real_verbs();
#endif
    pipeline(p, slow ? 1000 : 3000, 8, 20000);
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

// There are enough groups for one to lie across the end of the ring of entries.
TEST_P(RdmaLane, GroupedReceivesByTag)
{
    grouped(p, 250);
}

// A random mixture: receives of one and of several buffers, sizes on both sides of every limit,
// tags in any order, memory of every kind, ends that pause, inline calls, and calls of the slow
// path.
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
            mr->rkey[0] = 0; // as if the memory had several regions
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
        ASSERT_EQ(0, pvn_engine_irecv(p.rx.e, static_cast<int>(g.msgs.size()), buf, cap, tags, mrs,
                                      &g.r));
        next_group += g.r != nullptr;
        open_groups += g.r != nullptr;
    }
    void send()
    {
        Message &m = msgs[order[next_send]];
        ASSERT_EQ(
            0, pvn_engine_isend(p.tx.e, m.out.data(), m.size, m.tag, smr[order[next_send]], &m.s));
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
            ASSERT_EQ(0, pvn_engine_test(m.s, &done, &size)) << p.tx.lane->err.reason[0];
            if (!done)
                continue;
            m.sent = true;
            ASSERT_EQ(m.size, size);
            // The caller may reuse the memory now. If the lane still reads it, the message arrives
            // wrong.
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
            ASSERT_EQ(0, pvn_engine_test(g.r, &done, size)) << p.rx.lane->err.reason[0];
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
    // Runs one end for a while, then the other. The seed decides for how long.
    void go()
    {
        const size_t slots = PVN_MAX_REQS, depth = pick(2) ? slots : 1 + pick(slots),
                     most = pick(2) ? 300 : 1 + pick(10);
        Deadline wait;
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

// PVN_MIX_SEEDS is the number of seeds. Each registers some hundred buffers, which takes a real
// device a while.
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

INSTANTIATE_TEST_SUITE_P(
    Shapes, RdmaLane,
    testing::Values(shape("pvrdma", PVN_RDMA_RECORD, 1, 5 << 16, true),
                    shape("pvrdma", PVN_RDMA_RECORD, 4, 4096, true),
                    shape("pvrdma\nset async 1", PVN_RDMA_RECORD, 2, 65536, true),
                    shape("pvrdma\nset descend 2\nset async 1", PVN_RDMA_RECORD, 1, 65536, true),
                    shape("pvrdma\nset descend 2\nset async 1", PVN_RDMA_IMM, 1, 65536, true),
                    shape("pvrdma", PVN_RDMA_IMM, 1, 5 << 16, true),
                    shape("pvrdma", PVN_RDMA_IMM, 4, 4096, true),
                    shape("pvrdma\nset async 1", PVN_RDMA_IMM, 2, 65536, true),
                    shape("roce", PVN_RDMA_IMM, 3, 8192, false),
                    shape("roce\nset async 1", PVN_RDMA_RECORD, 8, 4096, false),
                    shape("roce", PVN_RDMA_AUTO, 2, 65536, false),
                    shape("rxe", PVN_RDMA_RECORD, 1, 65536, false),
                    shape("pvrdma", PVN_RDMA_SEND, 1, 100000, true),
                    shape("pvrdma\nset async 1", PVN_RDMA_SEND, 3, 50000, true),
                    shape("roce", PVN_RDMA_SEND, 2, 4096, false),
                    shape("roce\nset async 1", PVN_RDMA_SEND, 8, 150000, false)));

// The mixture over the shortest queues, over queues that are always polled, and with other limits
// of short messages
TEST(RdmaMixture, EveryOptionCarriesTheMixture)
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
        o.idle_ns = one_of({0, 1000, 100000});
        o.short_max = static_cast<int>(one_of({0, 10, 60, SHORT_MAX}));
        o.rx_short_max = static_cast<int>(one_of({0, 10, SHORT_MAX, SHORT_MAX}));
        RdmaPair p;
        p.open(o);
        if (HasFatalFailure())
            return;
        Mixture(p, seed, 60, o.mode == PVN_RDMA_IMM).go();
    }
}

// Message numbers have 20 bits on the wire, numbers of chunks and lines 32. The rings wrap once
// before these numbers wrap to 0.
class RdmaCounters : public RdmaLane
{
};

TEST_P(RdmaCounters, CountersThatWrapAroundLoseNothing)
{
    const uint64_t first = (UINT64_C(1) << PVN_ID_BITS) - 2000;
    for (pvn_engine *e : {p.tx.e, p.rx.e})
        wrap_start_at(e, first, UINT32_MAX - 600);
    const uint64_t before = lane_stats(p.tx.lane).chunks;
    pipeline(p, 3000, 8, 400);
    pipeline(p, 3000, 32, SHORT_MAX);
    one(GetParam().chunk * 400 + 1);
    // The counters of the statistics do not wrap.
    for (const pvn_lane *l : {p.tx.lane, p.rx.lane})
        EXPECT_EQ(before + 6401, lane_stats(l).chunks);
    EXPECT_EQ(lane_stats(p.tx.lane).shorts, lane_stats(p.rx.lane).shorts);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RdmaCounters,
                         testing::Values(shape("pvrdma", PVN_RDMA_RECORD, 1, 65536, true),
                                         shape("pvrdma", PVN_RDMA_RECORD, 3, 4096, true),
                                         shape("pvrdma", PVN_RDMA_IMM, 1, 65536, true),
                                         shape("pvrdma", PVN_RDMA_IMM, 3, 4096, true),
                                         shape("roce\nset async 1", PVN_RDMA_RECORD, 2, 4096,
                                               false),
                                         shape("roce", PVN_RDMA_IMM, 2, 4096, false)));

// An end that can use both modes follows one that cannot. Two such ends use records unless polls
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

// An end that does not support short messages neither receives nor sends any.
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

// The sender keeps to its own limit. The receiver accepts longer ones.
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
        // Sizes are random, and some are the longest.
        pipeline(p, 3000, 8, size + 1);
        EXPECT_EQ(3300u, lane_stats(p.tx.lane).chunks) << max;
        EXPECT_LT(lane_stats(p.tx.lane).shorts, 3300u) << max;
        EXPECT_GT(lane_stats(p.tx.lane).shorts, 300u) << max;
    }
}

// Calls irecv of one buffer and isend until both are posted.
void post_pair(RdmaPair &p, void *in, const pvn_mr *rmr, const void *out, size_t size,
               const pvn_mr *smr, pvn_req **r, pvn_req **s)
{
    ASSERT_EQ(0, irecv(p, in, size, 0, rmr, r));
    for (Deadline wait; wait.left() && !*s;) {
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out, size, 0, smr, s));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    }
    ASSERT_NE(nullptr, *s);
}

// The processor cannot access GPU memory, at either end. So such messages are not sent as short
// ones.
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
        for (Deadline wait; wait.left() && !done;)
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
        EXPECT_EQ(5u, in);
        EXPECT_EQ(0u, lane_stats(p.tx.lane).shorts);
    }
}

// There are more short messages than their ring holds, and the receiving end makes no call. The
// rest take the other path.
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
            // All announced messages are sent before the receiver polls for the first time.
            int sent = 0;
            for (int misses = 0; sent < groups * each && misses < 1000;) {
                ASSERT_EQ(0, pvn_engine_isend(p.tx.e, &out[static_cast<size_t>(sent) * size], size,
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
                for (Deadline wait; wait.left() && !done;) {
                    ASSERT_EQ(0, pvn_engine_test(r[g], &done, nullptr)) << p.rx.lane->err.reason[0];
                    if (sent < groups * each) {
                        ASSERT_EQ(0,
                                  pvn_engine_isend(p.tx.e, &out[static_cast<size_t>(sent) * size],
                                                   size, sent % each, smr, &s[sent]));
                        sent += s[sent] != nullptr;
                    } else {
                        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
                    }
                }
            EXPECT_EQ(out, in);
        }
}

} // namespace
