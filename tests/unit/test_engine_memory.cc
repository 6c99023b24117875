// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The engine when allocations fail: at its creation, and at a failover to lanes of another kind.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

extern "C" {
#include "base/clock.h"
#include "engine/engine.h"
#include "support/engine_calls.h"

// The C library's own functions, which remain reachable by these names.
void *__libc_calloc(size_t n, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
}

namespace
{

int refused_from = -1; // how many allocations still succeed; -1: all do

struct Refuse {
    explicit Refuse(int from)
    {
        refused_from = from;
    }
    ~Refuse()
    {
        refused_from = -1;
    }
};

} // namespace

static bool is_refused()
{
    if (refused_from == 0) {
        errno = ENOMEM;
        return true;
    }
    refused_from -= refused_from > 0;
    return false;
}

extern "C" void *calloc(size_t n, size_t size)
{
    return is_refused() ? nullptr : __libc_calloc(n, size);
}

extern "C" void *aligned_alloc(size_t alignment, size_t size) noexcept
{
    return is_refused() ? nullptr : __libc_memalign(alignment, size);
}

namespace
{

class EngineMemory : public testing::Test
{
  protected:
    pvn_lane_ops ops = {};
    pvn_lane_data_ops data_ops = {};
    // A lane with clear-to-send, one without, and one with clear-to-send that also places chunks.
    pvn_lane writes = {}, matches = {}, places = {};
    pvn_engine *e = nullptr;
    char buffer[64];

    void SetUp() override
    {
        ops.name = "scripted";
        data_ops.post_cts = [](pvn_lane *, uint64_t, int, const pvn_buffer *) { return 0; };
        pvn_lane_ops_fill(&ops);
        pvn_lane_data_ops_fill(&data_ops);
        writes.ops = matches.ops = places.ops = &ops;
        writes.data = matches.data = places.data = &data_ops;
        writes.caps = PVN_LANE_NEEDS_CTS | PVN_LANE_SENT_IS_DELIVERED;
        matches.caps = PVN_LANE_SENT_IS_DELIVERED;
        places.caps = writes.caps | PVN_LANE_PLACES;
    }
    void TearDown() override
    {
        pvn_engine_free(e);
    }
    pvn_engine *make(bool sender, pvn_lane *l)
    {
        pvn_engine_cfg c = {};
        c.sender = sender;
        c.nlanes = 1;
        c.lanes[0] = l;
        c.chunk = 1 << 20;
        c.now = [](void *) { return pvn_now_ns(); };
        c.outlives_lanes = true;
        return pvn_engine_new(&c);
    }
    pvn_req *receive()
    {
        void *data = buffer;
        size_t size = sizeof(buffer);
        int tag = 0;
        pvn_req *r = nullptr;
        EXPECT_EQ(0, pvn_engine_irecv(e, 1, &data, &size, &tag, nullptr, &r));
        return r;
    }
    // The receiver's failover from its lost lane to lane `l`. The sender has answered what it will
    // send again.
    int resume(pvn_lane *l)
    {
        pvn_err why = PVN_ERR_INIT;
        pvn_err_set(&why, -EIO, "the test says so");
        pvn_engine_pause(e, &why);
        pvn_engine_answer a = {};
        return pvn_engine_resume_receiver(e, &l, 1, &a);
    }
    // Returns the engine's answer when the first chunk of an n-byte message arrives.
    static int place(pvn_lane &l, size_t n, pvn_place *to)
    {
        pvn_frame f = {};
        f.total = f.len = static_cast<uint32_t>(n);
        return l.place(l.engine, &l, &f, to);
    }
};

TEST_F(EngineMemory, ThatCannotBeMade)
{
    for (bool sender : {false, true})
        for (pvn_lane *l : {&writes, &matches, &places})
            for (int from = 0;; from++) {
                ASSERT_LT(from, 10);
                Refuse r(from);
                errno = 0;
                e = make(sender, l);
                if (e) {
                    EXPECT_LT(1, from) << "an engine is not one piece";
                    pvn_engine_free(e);
                    e = nullptr;
                    break;
                }
                EXPECT_EQ(ENOMEM, errno);
            }
}

TEST_F(EngineMemory, GoesOnWithLanesOfTheOtherKind)
{
    e = make(false, &writes);
    ASSERT_NE(nullptr, receive());
    for (int i = 0; i < 3; i++) {
        pvn_place to = {};
        for (pvn_lane *l : {&matches, &places, &writes, &places, &matches}) {
            ASSERT_EQ(0, resume(l));
            ASSERT_EQ(0, pvn_engine_progress(e)); // announces the receive
            if (l != &writes) {
                ASSERT_EQ(0, place(*l, 8, &to));
                EXPECT_EQ(buffer, to.dst);
                EXPECT_EQ(-EALREADY, place(*l, 8, &to)) << "once";
            }
        }
        ASSERT_EQ(0, resume(&writes));
    }
    EXPECT_EQ(nullptr, pvn_engine_err(e));
    EXPECT_EQ(1, pvn_engine_pending(e));
}

TEST_F(EngineMemory, ThatIsMissingAtAFailoverEndsTheComm)
{
    e = make(false, &matches);
    ASSERT_NE(nullptr, receive());
    {
        Refuse all(0);
        EXPECT_EQ(-ENOMEM, resume(&places));
    }
    pvn_engine_free(e);
    e = make(false, &writes);
    pvn_req *r = receive();
    ASSERT_NE(nullptr, r);
    {
        Refuse all(0);
        EXPECT_EQ(-ENOMEM, resume(&matches));
    }
    const pvn_err *err = pvn_engine_err(e);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "no memory to go on with the lanes"))
        << err->reason[0];
    EXPECT_EQ(PVN_FAULT_SYSTEM, err->fault);
    int done = 0;
    EXPECT_EQ(-ENOMEM, pvn_engine_test(r, &done, nullptr));
    EXPECT_EQ(0, done);
    pvn_engine_report report;
    pvn_engine_make_report(e, &report);
    EXPECT_EQ(1, report.n);
    EXPECT_TRUE(pvn_engine_may_use_slots(e));
    EXPECT_EQ(nullptr, places.engine) << "the lane is not used";
}

// A lane that writes to addresses needs no place from the engine.
TEST_F(EngineMemory, NothingIsPlacedWhereNothingIsMatched)
{
    e = make(false, &writes);
    ASSERT_NE(nullptr, receive());
    pvn_frame f = {};
    pvn_place to = {};
    EXPECT_EQ(-EPROTO, writes.place(writes.engine, &writes, &f, &to));
}

} // namespace
