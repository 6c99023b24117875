// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The engine's flushes on scripted lanes, which have no room, complete at once, complete later, or
// fail.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

extern "C" {
#include "base/clock.h"
#include "engine/engine.h"
#include "support/engine_calls.h"
}

namespace
{

// A lane whose post_flush returns these answers, call by call, and whose poll returns these events.
struct Lane {
    pvn_lane l = {}; // first, so that a pvn_lane can be cast to Lane
    std::vector<int> answers;
    std::vector<const void *> calls;
    std::vector<uint32_t> ids;
    std::vector<pvn_event> events;

    static int post_flush(pvn_lane *l, uint32_t id, const void *addr, const pvn_mr *)
    {
        auto *me = reinterpret_cast<Lane *>(l);
        int rc = 0;
        if (!me->answers.empty()) {
            rc = me->answers.front();
            me->answers.erase(me->answers.begin());
        }
        if (rc != -EAGAIN) {
            me->calls.push_back(addr);
            me->ids.push_back(id);
        }
        if (rc == -EIO)
            pvn_err_set(&l->err, -EIO, "the script says so");
        return rc;
    }
    static int poll(pvn_lane *l, pvn_event *ev, int max)
    {
        auto *me = reinterpret_cast<Lane *>(l);
        int n = 0;
        for (; n < max && !me->events.empty(); n++) {
            ev[n] = me->events.front();
            me->events.erase(me->events.begin());
        }
        return n;
    }
    void finish(uint32_t id)
    {
        pvn_event ev = {};
        ev.kind = PVN_EV_FLUSHED;
        ev.id = id;
        events.push_back(ev);
    }
};

class EngineFlush : public testing::Test
{
  protected:
    pvn_lane_ops ops = {};
    pvn_lane_data_ops data_ops = {};
    Lane lane[2];
    pvn_engine *e = nullptr;
    pvn_mr gpu0 = {}, gpu1 = {}, host = {};
    char bytes[64];

    void SetUp() override
    {
        ops.name = "scripted";
        data_ops.post_flush = Lane::post_flush;
        data_ops.poll = Lane::poll;
        pvn_lane_ops_fill(&ops);
        pvn_lane_data_ops_fill(&data_ops);
        gpu0.gpu = 1;
        gpu1.gpu = 2;
        pvn_engine_cfg c = {};
        c.nlanes = 2;
        for (int i = 0; i < 2; i++) {
            lane[i].l.ops = &ops;
            lane[i].l.data = &data_ops;
            lane[i].l.idx = i;
            lane[i].l.caps = PVN_LANE_NEEDS_CTS;
            c.lanes[i] = &lane[i].l;
        }
        c.chunk = 4096;
        c.now = [](void *) { return pvn_now_ns(); };
        e = pvn_engine_new(&c);
        ASSERT_NE(nullptr, e);
    }
    void TearDown() override
    {
        pvn_engine_free(e);
    }
    int flush(std::vector<const pvn_mr *> mrs, pvn_req **req)
    {
        std::vector<void *> data;
        std::vector<size_t> sizes(mrs.size(), 8);
        for (size_t i = 0; i < mrs.size(); i++)
            data.push_back(bytes + 8 * i);
        return pvn_engine_iflush(e, static_cast<int>(mrs.size()), data.data(), sizes.data(),
                                 mrs.data(), req);
    }
    bool done(pvn_req *req)
    {
        int d = 0;
        EXPECT_EQ(0, pvn_engine_test(req, &d, nullptr));
        return d != 0;
    }
};

TEST_F(EngineFlush, EveryLaneMustAnswer)
{
    pvn_req *req = nullptr;
    ASSERT_EQ(0, flush({&gpu0}, &req));
    ASSERT_NE(nullptr, req);
    EXPECT_FALSE(done(req));
    lane[1].finish(lane[1].ids[0]);
    EXPECT_FALSE(done(req));
    lane[0].finish(lane[0].ids[0]);
    EXPECT_TRUE(done(req));
    EXPECT_EQ(0, pvn_engine_pending(e));
}

// A flush is a request, but no message: what the comm reports counts it apart.
TEST_F(EngineFlush, AFlushIsNotCountedAsAMessage)
{
    pvn_req *req = nullptr;
    pvn_live live = {};
    ASSERT_EQ(0, flush({&gpu0}, &req));
    pvn_engine_count(e, &live);
    EXPECT_EQ(1u, live.opened);
    EXPECT_EQ(0u, live.msgs + live.flushes);
    EXPECT_EQ(1, pvn_engine_pending(e));
    for (Lane &l : lane)
        l.finish(l.ids[0]);
    EXPECT_TRUE(done(req));
    EXPECT_EQ(0, pvn_engine_pending(e));
    EXPECT_EQ(0u, pvn_engine_get_stats(e)->msgs);
    EXPECT_EQ(1u, pvn_engine_get_stats(e)->flushes);
    EXPECT_EQ(0u, pvn_engine_received(e));
    pvn_engine_count(e, &live);
    EXPECT_EQ(1u, live.opened);
    EXPECT_EQ(0u, live.msgs);
    EXPECT_EQ(1u, live.flushes);
}

TEST_F(EngineFlush, ALaneWithoutRoomIsTriedAgain)
{
    pvn_req *req = nullptr;
    lane[0].answers = {-EAGAIN, -EAGAIN};
    ASSERT_EQ(0, flush({&gpu0}, &req));
    lane[1].finish(lane[1].ids[0]);
    EXPECT_FALSE(done(req)) << "one lane has answered, the other has not even been called";
    EXPECT_FALSE(done(req));
    ASSERT_EQ(1u, lane[0].calls.size());
    EXPECT_EQ(1u, lane[1].calls.size()) << "and that one only once";
    lane[0].finish(lane[0].ids[0]);
    EXPECT_TRUE(done(req));
}

TEST_F(EngineFlush, NothingToWaitForIsNoRequest)
{
    pvn_req *req = reinterpret_cast<pvn_req *>(this);
    lane[0].answers = {-EALREADY};
    lane[1].answers = {-EOPNOTSUPP};
    EXPECT_EQ(0, flush({&gpu0}, &req));
    EXPECT_EQ(nullptr, req);
    req = reinterpret_cast<pvn_req *>(this);
    EXPECT_EQ(0, flush({&host}, &req));
    EXPECT_EQ(nullptr, req);
    EXPECT_EQ(1u, lane[0].calls.size()) << "host memory is not flushed";
    EXPECT_EQ(0, pvn_engine_pending(e));
}

TEST_F(EngineFlush, TheLastBufferOfEachGpu)
{
    pvn_req *req = nullptr;
    lane[1].answers = {-EALREADY, -EALREADY};
    ASSERT_EQ(0, flush({&gpu0, &gpu1, &gpu0, &host}, &req));
    ASSERT_EQ(2u, lane[0].calls.size());
    EXPECT_EQ(bytes + 16, lane[0].calls[0]);
    EXPECT_EQ(bytes + 8, lane[0].calls[1]);
    lane[0].finish(lane[0].ids[0]);
    EXPECT_FALSE(done(req));
    lane[0].finish(lane[0].ids[1]);
    EXPECT_TRUE(done(req));
}

TEST_F(EngineFlush, LateAndForeignEventsAreDropped)
{
    pvn_req *req = nullptr;
    lane[1].answers = {-EALREADY};
    ASSERT_EQ(0, flush({&gpu0}, &req));
    uint32_t id = lane[0].ids[0];
    lane[0].finish(id + 1);
    lane[0].finish(100000);
    EXPECT_FALSE(done(req));
    lane[0].finish(id);
    lane[0].finish(id); // reported twice
    EXPECT_TRUE(done(req));
    EXPECT_EQ(3u, pvn_engine_get_stats(e)->stale);
}

TEST_F(EngineFlush, MoreThanFitAreAnErrorNotAFlushThatLooksDone)
{
    std::vector<pvn_req *> open;
    pvn_req *req = nullptr;
    for (int i = 0; i < PVN_MAX_REQS; i++) {
        ASSERT_EQ(0, flush({&gpu0}, &req));
        open.push_back(req);
    }
    EXPECT_EQ(-EBUSY, flush({&gpu0}, &req));
    EXPECT_EQ(nullptr, req);
    EXPECT_EQ(nullptr, pvn_engine_err(e)) << "the comm lives on";
    for (Lane &l : lane)
        for (uint32_t id : l.ids)
            l.finish(id);
    for (pvn_req *r : open)
        EXPECT_TRUE(done(r));
    EXPECT_EQ(0, flush({&gpu0}, &req));
    EXPECT_NE(nullptr, req);
}

// They need nothing of the peer, which may have nothing more to do on this comm.
TEST_F(EngineFlush, OpenOnesEndWithTheFenceOfLostLanes)
{
    pvn_req *req = nullptr, *late = nullptr;
    pvn_err why = {};
    ASSERT_EQ(0, flush({&gpu0}, &req));
    pvn_err_set(&why, -ENETDOWN, "a cable was pulled");
    pvn_engine_pause(e, &why);
    EXPECT_FALSE(done(req));
    ASSERT_EQ(0, flush({&gpu0}, &late));
    ASSERT_NE(nullptr, late) << "before the fence";
    EXPECT_EQ(2, pvn_engine_flushes(e));
    ASSERT_EQ(0, pvn_engine_drain(e));
    pvn_engine_flushed(e);
    EXPECT_EQ(0, pvn_engine_flushes(e));
    EXPECT_TRUE(done(req));
    EXPECT_TRUE(done(late));
    ASSERT_EQ(0, flush({&gpu0}, &req));
    EXPECT_EQ(nullptr, req) << "all that has come is visible, and nothing comes now";
}

TEST_F(EngineFlush, ALaneThatFailsFailsTheComm)
{
    pvn_req *req = nullptr;
    lane[0].answers = {-EAGAIN, -EIO};
    ASSERT_EQ(0, flush({&gpu0}, &req));
    int d = 0;
    EXPECT_EQ(-EIO, pvn_engine_test(req, &d, nullptr));
    EXPECT_EQ(0, d);
    ASSERT_NE(nullptr, pvn_engine_err(e));
    EXPECT_STREQ("the script says so", pvn_engine_err(e)->reason[0]);
}

} // namespace
