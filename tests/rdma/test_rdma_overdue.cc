// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Requests that neither complete nor fail: the lane is dead once the device should have reported
// them long ago, and not before. The test sets the lane's time, so nothing here waits.
#include "rdma/lane_traffic.h"

namespace
{

constexpr uint64_t second = 1000000000;
// Timeout 14 and 7 retries, each up to four times as long, and the margin
constexpr uint64_t bound = 4 * (UINT64_C(4096) << 14) * 8 + 5 * second;

class Overdue : public testing::Test
{
  protected:
    RdmaPair p;
    uint64_t now = 1000 * second;

    void post()
    {
        mr_out = p.tx.reg(out.data(), out.size());
        mr_in = p.rx.reg(in.data(), in.size());
        ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, mr_in, &r));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    }
    void send()
    {
        for (Deadline wait; wait.left() && !s;) {
            ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), out.size(), 0, mr_out, &s));
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        }
        ASSERT_NE(nullptr, s);
    }
    // Does what a comm does: progress, and the periodic check for overdue requests. Returns the
    // check's 0 or -EAGAIN, or the lane's error.
    int look(RdmaEnd &end, uint64_t step, uint64_t ready = 0)
    {
        for (int i = 0; i < 64; i++)
            if (pvn_engine_progress(end.e) != 0)
                return end.lane->err.code;
        now += step;
        return end.lane->ops->overdue(end.lane, now, ready);
    }
    // Calls look() until the lane is dead, for twice the bound at most. Returns the time until
    // then; 0: it is alive.
    uint64_t dies_after(RdmaEnd &end, uint64_t ready = 0)
    {
        uint64_t from = now;
        look(end, second / 10, ready);
        while (now - from < 2 * bound && !end.lane->err.code)
            look(end, second / 2, ready);
        return end.lane->err.code ? now - from : 0;
    }
    void expect_dead(RdmaEnd &end, uint64_t after)
    {
        EXPECT_GE(after, bound);
        EXPECT_LE(after, bound + 2 * second);
        EXPECT_EQ(-ETIMEDOUT, end.lane->err.code);
        EXPECT_NE(nullptr, strstr(end.lane->err.reason[0], "neither success nor an error for "))
            << end.lane->err.reason[0];
        EXPECT_FALSE(end.lane->wrong);
    }

    std::vector<uint8_t> out = bytes::of(100000, 9), in = std::vector<uint8_t>(100000);
    pvn_mr *mr_out = nullptr, *mr_in = nullptr;
    pvn_req *s = nullptr, *r = nullptr;
};

class OverdueMode : public Overdue, public testing::WithParamInterface<pvn_rdma_mode>
{
  protected:
    bool costly() const
    {
        return GetParam() != PVN_RDMA_IMM;
    }
};

TEST_P(OverdueMode, ASendThatNeitherCompletesNorFails)
{
    p.open(shape(costly() ? "pvrdma" : "roce", GetParam(), 1, 1 << 20, costly()));
    post();
    ASSERT_EQ(0, sv::command("rule silent die mode=2 qp=0 min_len=64"));
    send();
    // In imm mode a receiver without posted receives would look the same.
    expect_dead(p.tx, dies_after(p.tx, GetParam() == PVN_RDMA_IMM ? now : 0));
    EXPECT_EQ(1, sv::lib().sv_rule_fired("silent"));
}

TEST_P(OverdueMode, ManyThatCompleteAreNeverOverdue)
{
    p.open(shape(costly() ? "pvrdma" : "roce", GetParam(), 1, 1 << 20, costly()));
    post();
    send();
    // The receiver waits for longer than the bound, and its announcement is known to have arrived.
    pvn_req *more = nullptr;
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, mr_in, &more));
    for (uint64_t until = now + 3 * bound; now < until;) {
        ASSERT_EQ(0, look(p.tx, second / 2)) << p.tx.lane->err.reason[0];
        ASSERT_EQ(0, look(p.rx, 0)) << p.rx.lane->err.reason[0];
    }
    int done = 0;
    ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
    EXPECT_EQ(1, done);
}

INSTANTIATE_TEST_SUITE_P(Modes, OverdueMode,
                         testing::Values(PVN_RDMA_RECORD, PVN_RDMA_IMM, PVN_RDMA_SEND));

// The receiver's announcements have no completion of their own while there are few.
TEST_F(Overdue, AnAnnouncementThatNeverArrives)
{
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
    ASSERT_EQ(0, sv::command("rule silent die mode=2 qp=1"));
    post();
    EXPECT_EQ(1, sv::lib().sv_rule_fired("silent"));
    uint64_t after = dies_after(p.rx);
    EXPECT_GE(after, bound);
    EXPECT_EQ(-ETIMEDOUT, p.rx.lane->err.code) << p.rx.lane->err.reason[0];
}

TEST_F(Overdue, AnImmediateWaitsForAReceiverWithoutReceives)
{
    out.resize(4096 * 400);
    in.resize(out.size());
    p.open(shape("roce", PVN_RDMA_IMM, 1, 4096, false));
    post();
    for (Deadline wait; wait.left() && !s;)
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), out.size(), 0, mr_out, &s));
    // The receiver makes no call, and its receives run out.
    int rc = 0;
    for (uint64_t until = now + 5 * bound; now < until; rc = look(p.tx, second / 2))
        ASSERT_TRUE(rc == 0 || rc == -EAGAIN) << p.tx.lane->err.reason[0];
    EXPECT_EQ(-EAGAIN, rc) << "the peer is to be queried";
    // The receiver is alive after all.
    for (Deadline wait; wait.left() && pvn_engine_pending(p.rx.e);)
        for (RdmaEnd *end : {&p.rx, &p.tx})
            ASSERT_EQ(0, pvn_engine_progress(end->e));
    EXPECT_EQ(0, pvn_engine_pending(p.rx.e));
    EXPECT_EQ(0, look(p.tx, second / 2, now));
}

TEST_F(Overdue, NotWhileNobodyCalls)
{
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
    post();
    ASSERT_EQ(0, sv::command("rule silent die mode=2 qp=0 min_len=64"));
    send();
    for (int i = 0; i < 10; i++)
        ASSERT_EQ(0, look(p.tx, bound));
    EXPECT_EQ(1, sv::lib().sv_rule_fired("silent"));
    expect_dead(p.tx, dies_after(p.tx));
}

// The calls pause as on an overloaded machine.
TEST_P(OverdueMode, AlsoWhereTheCallsPauseAgainAndAgain)
{
    p.open(shape(costly() ? "pvrdma" : "roce", GetParam(), 1, 1 << 20, costly()));
    post();
    ASSERT_EQ(0, sv::command("rule silent die mode=2 qp=0 min_len=64"));
    send();
    const uint64_t ready = GetParam() == PVN_RDMA_IMM ? now : 0;
    uint64_t called = 0;
    for (look(p.tx, second / 10, ready); called < 2 * bound && !p.tx.lane->err.code;
         called += second / 2) {
        now += 3 * second;
        ASSERT_EQ(0, p.tx.lane->ops->overdue(p.tx.lane, now, ready));
        look(p.tx, second / 2, ready);
    }
    EXPECT_EQ(1, sv::lib().sv_rule_fired("silent"));
    expect_dead(p.tx, called);
}

} // namespace
