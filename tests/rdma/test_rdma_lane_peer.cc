// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The RDMA lane on softverbs: malformed peers, doorbells, and the memory and queues that a poll
// reads
#include "rdma/lane_traffic.h"

namespace
{

// A malformed peer writes into the ring that it may write to.
class RdmaMalformedPeer : public testing::Test
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
    // Writes a message of n bytes for a buffer of a slot, and calls the receiver. Returns the
    // receiver's error.
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

TEST_F(RdmaMalformedPeer, LongerThanAShortMessageCanBe)
{
    receive();
    const pvn_err *err = appears(0, 0, SHORT_MAX + 1);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "longer than any can be")) << err->reason[0];
}

TEST_F(RdmaMalformedPeer, LongerThanTheReceive)
{
    receive();
    const pvn_err *err = appears(0, 0, 9);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "for a receive of 8 bytes")) << err->reason[0];
}

TEST_F(RdmaMalformedPeer, IntoAGpusBuffer)
{
    mr->gpu = 1;
    receive();
    const pvn_err *err = appears(0, 0, 8);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "on a GPU")) << err->reason[0];
    EXPECT_EQ(0xAA, in[0]);
    int done = 0;
    EXPECT_NE(0, pvn_engine_test(r, &done, nullptr));
    EXPECT_EQ(0, done) << "there is nothing in the buffer";
}

TEST_F(RdmaMalformedPeer, ForABufferThatNobodyPosted)
{
    receive();
    EXPECT_EQ(nullptr, appears(0, 1, 8));
    EXPECT_EQ(0xAA, in[0]);
    EXPECT_EQ(1u, pvn_engine_get_stats(p.rx.e)->stale);
}

TEST_F(RdmaMalformedPeer, ForASlotThatNobodyPosted)
{
    receive();
    EXPECT_EQ(nullptr, appears(1, 0, 8));
    EXPECT_EQ(0xAA, in[0]);
    EXPECT_EQ(1u, pvn_engine_get_stats(p.rx.e)->stale);
}

// No slot is announced while the send queue is full. A peer that completes slots nevertheless makes
// more of them wait than the ring of their lines can hold. Announcements that follow stay in the
// ring.
TEST_F(RdmaMalformedPeer, ForMoreSlotsThanWereAnnounced)
{
    const uint32_t slots = wrap_slots(p.rx.e, 0), n = 4 * CTS_LINES;
    for (uint32_t i = 0; i < n; i++) {
        int done = 0;
        short_head *h = head + i % SHORT_LINES;
        receive();
        ASSERT_NE(nullptr, r) << i;
        h->imm = imm_make(i, 0, 0);
        h->bytes = 8;
        __atomic_store_n(&h->stamp, i + 1, __ATOMIC_RELEASE);
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
        ASSERT_EQ(1, done) << i;
    }
    EXPECT_EQ(0u, lane_stats(p.rx.lane).cts_entries);
    wrap_slots(p.rx.e, slots);
    for (int i = 0; i < 100; i++) {
        receive();
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    }
    EXPECT_EQ(nullptr, pvn_engine_err(p.rx.e));
    EXPECT_LE(n, lane_stats(p.rx.lane).cts_entries);
}

// Lines become visible in any order. A message that lacks one has not arrived.
TEST_F(RdmaMalformedPeer, AMessageIsWholeWhenItsLastLineIs)
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
        ASSERT_EQ(0, pvn_engine_test(r, &done, &got));
    EXPECT_EQ(0, done);
    EXPECT_EQ(0xAA, in[0]);
    // A stamp may become visible before the bytes in front of it.
    more->data[7] = 0;
    __atomic_store_n(&more->stamp, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(0, pvn_engine_test(r, &done, &got));
    EXPECT_EQ(0, done);
    EXPECT_LT(0u, lane_stats(p.rx.lane).partial);
    more->data[7] = 0x55;
    for (int i = 0; i < 100 && !done; i++)
        ASSERT_EQ(0, pvn_engine_test(r, &done, &got));
    EXPECT_EQ(1, done);
    EXPECT_EQ(60u, got);
    for (size_t i = 0; i < sizeof(in); i++)
        EXPECT_EQ(i < 60 ? 0x55 : 0xAA, in[i]) << i;
}

TEST_F(RdmaMalformedPeer, AMessageWithAWrongSum)
{
    ASSERT_EQ(0, irecv(p, in, 60, 0, mr, &r));
    auto *more = reinterpret_cast<short_more *>(head + 1);
    head->imm = imm_make(0, 0, 0);
    head->bytes = 60;
    head->stamp = more->stamp = 1;
    head->sum = static_cast<uint16_t>(short_sum(head, 2) + 1);
    const double from = pvn_now_s();
    for (Deadline deadline; deadline.left() && !pvn_engine_err(p.rx.e);)
        pvn_engine_progress(p.rx.e);
    EXPECT_LT(0.9, pvn_now_s() - from) << "it may still come";
    const pvn_err *err = pvn_engine_err(p.rx.e);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr,
              strstr(err->reason[0], "reading a short message: its checksum has been wrong"))
        << err->reason[0];
    EXPECT_EQ(0xAA, in[0]);
}

// Each partially visible write has its own time limit. A record gets a full second, not the rest of
// the time of the short message with the same number.
TEST_F(RdmaMalformedPeer, ARecordIsNotTheShortMessageOfItsNumber)
{
    ASSERT_EQ(0, irecv(p, in, 60, 0, mr, &r));
    auto *more = reinterpret_cast<short_more *>(head + 1);
    head->imm = imm_make(0, 0, 0);
    head->bytes = 60;
    head->sum = static_cast<uint16_t>(short_sum(head, 2) + 1);
    head->stamp = more->stamp = 1;
    int done = 0;
    ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    EXPECT_EQ(0, done);
    EXPECT_EQ(1u, lane_stats(p.rx.lane).partial);
    head->sum = short_sum(head, 2);
    ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    ASSERT_EQ(1, done);
    usleep(1100000);
    const rdma_offer o = offer_of(p.rx.lane);
    auto *rec = reinterpret_cast<record *>(o.mem_addr + MEM_RECORD);
    receive();
    rec->total = rec->bytes = 8;
    rec->imm = imm_make(1, 0, 0);
    rec->sum = record_sum(8, rec->imm, 8) + 1;
    __atomic_store_n(&rec->stamp, 1, __ATOMIC_RELEASE);
    ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr)) << p.rx.lane->err.reason[0];
    EXPECT_EQ(2u, lane_stats(p.rx.lane).partial);
    rec->sum = record_sum(8, rec->imm, 8);
    ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    EXPECT_EQ(1, done);
}

// Each queue pair's record has its own time limit of a second. Polls of the other queue pair do not
// restart it.
TEST(RdmaMalformedPeers, RecordsWithAWrongSumOnTwoQueuePairs)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 2, 1 << 20, true));
    if (testing::Test::HasFatalFailure())
        return;
    const rdma_offer o = offer_of(p.rx.lane);
    auto *rec = reinterpret_cast<record *>(o.mem_addr + MEM_RECORD);
    for (record *one : {rec, rec + RECORD_RING})
        __atomic_store_n(&one->stamp, 1, __ATOMIC_RELEASE);
    rec[0].sum = rec[RECORD_RING].sum = record_sum(0, 0, 0) + 1;
    const double until = pvn_now_s() + 10;
    while (!pvn_engine_err(p.rx.e) && pvn_now_s() < until)
        pvn_engine_progress(p.rx.e);
    ASSERT_NE(nullptr, pvn_engine_err(p.rx.e));
    EXPECT_NE(nullptr, strstr(pvn_engine_err(p.rx.e)->reason[0], "reading a record"));
}

TEST_F(RdmaMalformedPeer, AnEntryWithAWrongSum)
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
    ASSERT_EQ(0, pvn_engine_isend(p.tx.e, in, 8, 0, smr, &s));
    EXPECT_EQ(nullptr, s) << "it is not there";
    const double from = pvn_now_s();
    for (Deadline deadline; deadline.left() && !s && !pvn_engine_err(p.tx.e);)
        pvn_engine_isend(p.tx.e, in, 8, 0, smr, &s);
    EXPECT_EQ(nullptr, s);
    EXPECT_LT(0.9, pvn_now_s() - from) << "it may still come";
    const pvn_err *err = pvn_engine_err(p.tx.e);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "entry: its checksum has been wrong"))
        << err->reason[0];
}

// Each bit of an entry, a record and a short message changes the checksum.
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
    uint64_t total = 65536;
    uint32_t part[2] = {imm_make(17, 3, 300), 4096};
    const auto record = [&] { return record_sum(total, part[0], part[1]); };
    const uint32_t kept = record();
    for (int bit = 0; bit < 64; bit++) {
        total ^= UINT64_C(1) << bit;
        EXPECT_NE(kept, record()) << bit;
        total ^= UINT64_C(1) << bit;
        part[bit / 32] ^= 1u << bit % 32;
        EXPECT_NE(kept, record()) << bit;
        part[bit / 32] ^= 1u << bit % 32;
    }
    short_head one;
    bytes::fill(&one, sizeof(one), 7);
    for (uint32_t n = 0; n <= SHORT_HEAD_BYTES; n++) {
        const uint16_t line = short_line_sum(&one, n);
        uint8_t *at = reinterpret_cast<uint8_t *>(&one);
        const size_t from = short_sum_from(n);
        EXPECT_LE(from, short_skip(n));
        for (size_t bit = 0; bit < offsetof(short_head, bytes) * 8; bit++) {
            at[bit / 8] ^= 1 << bit % 8;
            EXPECT_EQ(bit / 8 < from, line == short_line_sum(&one, n)) << n << " " << bit;
            at[bit / 8] ^= 1 << bit % 8;
        }
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

// softverbs here copies as a processor does: stamps become visible before the bytes that they stand
// for. Both ends notice that and wait, and every byte is right. Imm mode is left out, because
// polling a queue of softverbs waits for writes in progress.
TEST(RdmaPartialWrite, IsWaitedFor)
{
    RdmaPair p;
    p.open(shape("pvrdma\nset descend 2\nset async 1", PVN_RDMA_RECORD, 1, 65536, true));
    if (testing::Test::HasFatalFailure())
        return;
    for (Deadline deadline;
         deadline.left() && !testing::Test::HasFailure() &&
         (lane_stats(p.tx.lane).partial == 0 || lane_stats(p.rx.lane).partial == 0);)
        grouped(p, 100);
    EXPECT_LT(0u, lane_stats(p.tx.lane).partial) << "entries";
    EXPECT_LT(0u, lane_stats(p.rx.lane).partial) << "messages";
}

// Partially visible writes of at most one line are waited for, too: records, and short messages
// between two software devices.
TEST(RdmaPartialWrite, OfALineIsWaitedFor)
{
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP()
        << "a word that is stored with the value it had may be read before that: the sum is "
           "right, the bytes too, and ThreadSanitizer sees no order";
#endif
    for (size_t most : {52, 1000}) {
        SCOPED_TRACE(most);
        RdmaPair p;
        RdmaOptions o =
            shape("pvrdma\nset descend 3\nset async 1", PVN_RDMA_RECORD, 1, 65536, true);
        o.software = true;
        o.short_max = most > 52 ? 0 : PVN_RDMA_SHORT_MAX; // records only
        p.open(o);
        for (Deadline deadline;
             deadline.left() && !testing::Test::HasFailure() && lane_stats(p.rx.lane).partial == 0;)
            pipeline(p, 400, 8, most);
        EXPECT_LT(0u, lane_stats(p.rx.lane).partial);
    }
}

class RdmaDoorbells : public testing::TestWithParam<pvn_rdma_mode>
{
};

// At depth 8 a message costs at most 1.5 doorbells, both ends together. The lane exists for that.
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
    // The lane's own count must equal that of softverbs.
    EXPECT_EQ(after[0].doorbells - before[0].doorbells, t1.post_send + t1.post_recv +
                                                            t1.empty_polls - t0.post_send -
                                                            t0.post_recv - t0.empty_polls);
    EXPECT_EQ(after[1].doorbells - before[1].doorbells, r1.post_send + r1.post_recv +
                                                            r1.empty_polls - r0.post_send -
                                                            r0.post_recv - r0.empty_polls);
}

INSTANTIATE_TEST_SUITE_P(Modes, RdmaDoorbells, testing::Values(PVN_RDMA_RECORD, PVN_RDMA_SEND));

// However long a request takes, its end shows in memory. The queue is polled only for completions
// that are known to be in it.
TEST_P(RdmaDoorbells, ASlowDeviceSeesNoEmptyPoll)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset async 1", GetParam(), 1, 1 << 20, true);
    o.idle_ns = UINT64_MAX / 4;
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

// A receiver that has found nothing reads only memory from then on. Its engine does so without a
// call into the lane.
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
    // Sends a message of n bytes after `before` unsuccessful tests. It must arrive within `after`
    // further ones. *polls gets the number of polls of the queue during the unsuccessful tests.
    void message(size_t n, int before, int after, uint64_t *polls)
    {
        pvn_req *r = nullptr, *s = nullptr;
        int done = 0;
        ASSERT_EQ(0, irecv(p, in, sizeof(in), 0, rmr, &r));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        const uint64_t polled = lane_stats(p.rx.lane).polls;
        for (int i = 0; i < before; i++) {
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
            ASSERT_EQ(0, done);
        }
        *polls = lane_stats(p.rx.lane).polls - polled;
        for (Deadline deadline; !s && deadline.left();)
            ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out, n, 0, smr, &s));
        ASSERT_NE(nullptr, s);
        for (int i = 0; i <= after && !done; i++)
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
        EXPECT_EQ(1, done) << n << " bytes: " << stuck(p);
        EXPECT_EQ(0, memcmp(out, in, n));
        for (Deadline deadline; !s_done(s) && deadline.left();)
            ;
    }
    bool s_done(pvn_req *s)
    {
        int done = 0;
        EXPECT_EQ(0, pvn_engine_test(s, &done, nullptr));
        EXPECT_EQ(0, pvn_engine_progress(p.rx.e));
        return done;
    }
};

TEST(RdmaWatch, RecordsAndShortMessagesEndIt)
{
    RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.idle_ns = UINT64_MAX / 4;
    Watched w(o);
    uint64_t polls;
    for (size_t n : {8u, 4096u, 8u, 200u, 4096u}) {
        ASSERT_NO_FATAL_FAILURE(w.message(n, 100, 0, &polls));
        EXPECT_EQ(0u, polls);
    }
    pvn_req *r = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
    for (int i = 0; i < 100 && w.p.rx.lane->watch.polls == 0; i++)
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    EXPECT_GT(w.p.rx.lane->watch.polls, 0) << "the fault of this test: nothing was ever watched";
}

// Soft-RoCE computes a checksum of every packet's bytes. So a short message is sent without the
// words of its line that its own sum does not cover.
TEST(RdmaShort, OfSoftwareIsNoLongerThanItsSum)
{
    for (uint32_t n : {0, 1, 8, 12, 13, 52}) {
        SCOPED_TRACE(n);
        RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 65536, true);
        o.software = true;
        Watched w(o);
        const rdma_offer offer = offer_of(w.p.rx.lane);
        auto *head = reinterpret_cast<short_head *>(offer.mem_addr + mem_short(offer.nqps));
        memset(head->data, 0xAA, sizeof(head->data));
        uint64_t polls;
        ASSERT_NO_FATAL_FAILURE(w.message(n, 0, 0, &polls));
        EXPECT_EQ(1u, lane_stats(w.p.tx.lane).shorts);
        for (uint32_t i = 0; i < short_sum_from(n); i++)
            EXPECT_EQ(0xAA, head->data[i]) << i;
    }
}

// In imm mode a long message shows in the queue. While long messages arrive, the queue is polled in
// each test. While short ones arrive, it is polled now and then.
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

// Imm mode on a device whose empty polls are expensive. The parameter is the number of queue pairs.
class RdmaCounted : public testing::TestWithParam<int>
{
  protected:
    RdmaOptions options(uint64_t idle_ns, const char *profile = "pvrdma")
    {
        RdmaOptions o = shape(profile, PVN_RDMA_IMM, GetParam(), 4096, true);
        o.idle_ns = idle_ns;
        return o;
    }
    static uint64_t empty_polls(const RdmaPair &p)
    {
        sv_stats s;
        sv::lib().sv_ctx_stats(p.rx.ctx, &s);
        return s.poll_empty;
    }
};
INSTANTIATE_TEST_SUITE_P(QueuePairs, RdmaCounted, testing::Values(1, 3));

// Nothing is polled while nothing arrives, and a message is found in the first test after it
// arrived.
TEST_P(RdmaCounted, NothingIsPolledWhileNothingComes)
{
    Watched w(options(UINT64_MAX / 4));
    for (size_t n : {8u, 4096u, 4096u, 8u, 200u, 4096u, 0u, 300u}) {
        uint64_t polls;
        const uint64_t empty = empty_polls(w.p);
        ASSERT_NO_FATAL_FAILURE(w.message(n, 900, 0, &polls));
        EXPECT_EQ(0u, polls) << n;
        EXPECT_EQ(empty, empty_polls(w.p)) << n;
    }
}

TEST_P(RdmaCounted, AtMostOneEmptyPollInTheTimeBetweenTwo)
{
    const uint64_t idle_ns = 200000;
    Watched w(options(idle_ns));
    uint64_t polls;
    ASSERT_NO_FATAL_FAILURE(w.message(4096, 0, 0, &polls));
    pvn_req *r = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
    const uint64_t from = pvn_now_ns(), before = empty_polls(w.p);
    uint64_t empty = 0;
    for (Deadline wait; wait.left() && empty < 5; empty = empty_polls(w.p) - before) {
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
        ASSERT_EQ(0, done);
        ASSERT_LE(empty, (pvn_now_ns() - from) / idle_ns);
    }
    EXPECT_EQ(5u, empty) << "the queue is polled now and then, or no error would show";
}

// Only the queue shows the error.
TEST_P(RdmaCounted, AnErrorShows)
{
    Watched w(options(200000));
    pvn_req *r = nullptr;
    int done = 0, rc = 0;
    ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
    const rdma_offer o = offer_of(w.p.rx.lane);
    ASSERT_EQ(0, sv::command(("qp " + std::to_string(o.qpn[GetParam() - 1]) + " error").c_str()));
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_test(r, &done, nullptr);
    EXPECT_EQ(-EIO, rc);
    EXPECT_EQ(0, done);
}

// The device announces the next messages only after it has placed the current one.
TEST_P(RdmaCounted, ASlowDeviceSeesNoEmptyPoll)
{
    RdmaPair p;
    p.open(options(UINT64_MAX / 4, "pvrdma\nset async 1"));
    ASSERT_EQ(0, sv::command("rule slow delay ms=1 op=WRITE_IMM count=0"));
    pipeline(p, 100, 8, 9000);
    EXPECT_GT(sv::lib().sv_rule_fired("slow"), 100);
    EXPECT_EQ(0u, lane_stats(p.rx.lane).empty_polls);
}

// There are more messages than the queues have slots. Their completions are polled when slots are
// needed.
TEST_P(RdmaCounted, ShortMessagesAloneFillNoQueue)
{
    RdmaPair p;
    RdmaOptions o = options(UINT64_MAX / 4);
    o.max_wr = PVN_RDMA_MIN_WR;
    p.open(o);
    pipeline(p, 3000, 1, 8);
    pipeline(p, 3000, 32, 8);
    EXPECT_LE(5000u, lane_stats(p.rx.lane).shorts) << "some find no room and take the other path";
    EXPECT_EQ(0u, lane_stats(p.rx.lane).empty_polls);
}

// A peer that does not support counts writes none. The queue is polled for its messages.
TEST_P(RdmaCounted, NotWithAPeerThatKnowsNoCounts)
{
    RdmaOptions o = options(UINT64_MAX / 4);
    o.edit_offer = [](uint8_t *offer) {
        rdma_offer peer;
        pvn_err err = PVN_ERR_INIT;
        // The offer's length follows from its rows.
        const size_t len = 24u + 8u * offer[2] + 20u * offer[7];
        ASSERT_EQ(0, pvn_rdma_offer_decode(offer, len, &peer, &err));
        ASSERT_TRUE(peer.counts);
        peer.counts = false;
        ASSERT_EQ(static_cast<int>(len), pvn_rdma_offer_encode(&peer, offer, len));
    };
    Watched w(o);
    uint64_t polls;
    for (size_t n : {8u, 4096u, 4096u})
        ASSERT_NO_FATAL_FAILURE(w.message(n, 100, 9, &polls));
    EXPECT_EQ(100u, polls);
}

// A count from the peer, right or wrong, only makes the receiver poll.
TEST_P(RdmaCounted, AWrongCountIsNotBelieved)
{
    Watched w(options(UINT64_MAX / 4));
    const rdma_offer o = offer_of(w.p.rx.lane);
    auto *counts = reinterpret_cast<uint32_t *>(o.mem_addr + MEM_COUNTS);
    uint64_t polls;
    ASSERT_NO_FATAL_FAILURE(w.message(4096, 0, 0, &polls));
    for (uint32_t wrong : {1000000u, 0x7fffffffu, 0xffffffffu, 0u}) {
        for (int k = 0; k < GetParam(); k++)
            __atomic_store_n(&counts[k], htole32(wrong), __ATOMIC_RELAXED);
        pvn_req *r = nullptr;
        int done = 0;
        ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
        for (int i = 0; i < 100; i++)
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr)) << w.p.rx.lane->err.reason[0];
        EXPECT_EQ(0, done);
        pvn_req *s = nullptr;
        for (Deadline wait; !s && wait.left();)
            ASSERT_EQ(0, pvn_engine_isend(w.p.tx.e, w.out, 4096, 0, w.smr, &s));
        for (Deadline wait; wait.left() && !done;)
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr)) << w.p.rx.lane->err.reason[0];
        EXPECT_EQ(1, done);
        for (Deadline wait; wait.left() && !w.s_done(s);)
            ;
    }
}

// One watch word for the record of each queue pair would be too many.
TEST(RdmaWatch, NotWithRecordsOfSeveralQueuePairs)
{
    for (int qps : {1, 2}) {
        RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, qps, 1 << 20, true);
        o.idle_ns = UINT64_MAX / 4;
        Watched w(o);
        pvn_req *r = nullptr;
        int done = 0, watched = 0;
        ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
        for (int i = 0; i < 100; i++) {
            ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
            watched += w.p.rx.lane->watch.polls > 0;
        }
        if (qps == 1) {
            EXPECT_GT(watched, 0);
        } else {
            EXPECT_EQ(0, watched);
        }
    }
}

// The sender watches for the acknowledgement, which ends the watch.
TEST(RdmaWatch, AnAcknowledgementEndsIt)
{
    RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.idle_ns = UINT64_MAX / 4;
    Watched w(o);
    pvn_req *r = nullptr, *s = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(w.p, w.in, sizeof(w.in), 0, w.rmr, &r));
    ASSERT_EQ(0, pvn_engine_progress(w.p.rx.e));
    for (Deadline deadline; !s && deadline.left();)
        ASSERT_EQ(0, pvn_engine_isend(w.p.tx.e, w.out, 8, 0, w.smr, &s));
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
        ASSERT_EQ(0, done);
    }
    for (int i = 0; i < 9 && w.p.tx.lane->watch.polls == 0; i++)
        ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
    EXPECT_GT(w.p.tx.lane->watch.polls, 0);
    ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    ASSERT_EQ(1, done);
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(0, pvn_engine_progress(w.p.rx.e));
    done = 0;
    ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
    EXPECT_EQ(1, done) << stuck(w.p);
}

// A message is sent while its receiver has announced eight buffers. So the receiver need not
// acknowledge it soon.
struct OneOfEight {
    uint8_t out[1000] = {1, 2, 3}, in[8][1000] = {};
    pvn_req *s = nullptr, *r[8] = {};

    void start(RdmaPair &p, size_t bytes = 8)
    {
        pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
        for (int i = 0; i < 8; i++) {
            ASSERT_EQ(0, irecv(p, in[i], sizeof(in[i]), 0, rmr, &r[i]));
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        }
        for (Deadline deadline; !s && deadline.left();)
            ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out, bytes, 0, smr, &s));
        ASSERT_NE(nullptr, s);
    }
};

// Few requests have a completion, and a receiver with enough announced buffers does not acknowledge
// a message by itself. So after a silence the sender learns of the arrival by one request more.
TEST(RdmaDoorbells, TheLastMessageIsNotForgotten)
{
    for (size_t bytes : {8, 1000})
        for (int before : {0, 1, 3, 14, 15, 16, 40}) {
            RdmaPair p;
            RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
            o.idle_ns = 2000000;
            p.open(o);
            if (before > 0)
                pipeline(p, before, 8, 8);
            OneOfEight one;
            const uint64_t acks = lane_stats(p.rx.lane).acks_alone;
            ASSERT_NO_FATAL_FAILURE(one.start(p, bytes));
            int done = 0;
            for (Deadline deadline; !done && deadline.left();) {
                ASSERT_EQ(0, pvn_engine_test(one.s, &done, nullptr));
                ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            }
            EXPECT_EQ(1, done) << "after " << before << ": " << stuck(p);
            EXPECT_EQ(0, memcmp(one.out, one.in[0], bytes));
            EXPECT_EQ(acks, lane_stats(p.rx.lane).acks_alone);
        }
}

// A message of several requests has a completion as rarely as a short one. The device counts
// completions of both ends. The receiver's are those of its chains.
TEST(RdmaDoorbells, FewLongMessagesHaveACompletion)
{
    for (auto mode : {PVN_RDMA_RECORD, PVN_RDMA_IMM}) {
        const unsigned messages = 400, arrivals = mode == PVN_RDMA_IMM ? messages : 0;
        RdmaPair p;
        RdmaOptions o = shape("pvrdma", mode, 1, 1 << 20, true);
        o.idle_ns = UINT64_MAX / 4;
        p.open(o);
        sv_stats before, after;
        sv::lib().sv_total_stats(&before);
        pipeline(p, messages, 8, 1000);
        sv::lib().sv_total_stats(&after);
        EXPECT_LT(after.cqe - before.cqe, arrivals + messages / 4) << pvn_rdma_mode_name(mode);
    }
}

// A receiver that closes has not always acknowledged its last message. The sender, whose request
// had no completion, must not take the end of the connection for the loss of the message.
TEST(RdmaDoorbells, WhatHasArrivedIsSentAlthoughTheReceiverCloses)
{
    for (int qps : {1, 2}) {
        RdmaPair p;
        RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_RECORD, qps, 1 << 20, true);
        o.idle_ns = 2000000;
        o.retry = 2;
        p.open(o);
        OneOfEight one;
        ASSERT_NO_FATAL_FAILURE(one.start(p));
        int done = 0;
        for (Deadline deadline; !done && deadline.left();)
            ASSERT_EQ(0, pvn_engine_test(one.r[0], &done, nullptr));
        ASSERT_EQ(1, done);
        pvn_engine_free(p.rx.e);
        p.rx.e = nullptr;
        p.rx.lane->ops->close(p.rx.lane);
        p.rx.lane = nullptr;
        done = 0;
        int rc = 0;
        for (Deadline deadline; rc == 0 && !done && deadline.left();)
            rc = pvn_engine_test(one.s, &done, nullptr);
        EXPECT_EQ(0, rc) << p.tx.lane->err.reason[0];
        EXPECT_EQ(1, done);
    }
}

} // namespace
