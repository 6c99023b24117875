// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// How the engine splits messages into chunks, up to the longest possible message. No byte of the
// messages is accessed.
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

struct Lane {
    pvn_lane l = {}; // first, so that a pvn_lane can be cast to Lane
    std::vector<pvn_frame> posted;
};

class EnginePlan : public testing::Test
{
  protected:
    enum { CHUNK = 1 << 20 };
    pvn_lane_ops ops = {};
    pvn_lane_data_ops data_ops = {};
    Lane lane;
    pvn_engine *e = nullptr;

    void SetUp() override
    {
        ops.name = "scripted";
        data_ops.post_write = [](pvn_lane *l, const pvn_write *w) {
            reinterpret_cast<Lane *>(l)->posted.push_back(w->f);
            return 0;
        };
        pvn_lane_ops_fill(&ops);
        pvn_lane_data_ops_fill(&data_ops);
        lane.l.ops = &ops;
        lane.l.data = &data_ops;
        pvn_engine_cfg c = {};
        c.sender = true;
        c.nlanes = 1;
        c.lanes[0] = &lane.l;
        c.chunk = CHUNK;
        c.now = [](void *) { return pvn_now_ns(); };
        e = pvn_engine_new(&c);
        ASSERT_NE(nullptr, e);
    }
    void TearDown() override
    {
        pvn_engine_free(e);
    }
    int send(size_t size)
    {
        pvn_req *r = nullptr;
        lane.posted.clear();
        return pvn_engine_isend(e, nullptr, size, 0, nullptr, &r);
    }
    // Expects that the posted chunks cover a message of `size` bytes without gaps, all of one
    // length but the last.
    void covers(size_t size)
    {
        size_t at = 0, usual = lane.posted[0].len;
        for (size_t i = 0; i < lane.posted.size(); i++) {
            const pvn_frame &f = lane.posted[i];
            ASSERT_EQ(at, f.offset) << i;
            ASSERT_EQ(i, f.chunk);
            ASSERT_EQ(size, f.total);
            const bool last = i + 1 == lane.posted.size();
            ASSERT_TRUE(f.len == usual || (last && f.len < usual)) << i;
            at += f.len;
        }
        EXPECT_EQ(size, at);
    }
};

TEST_F(EnginePlan, ChunksAreOfThePreferredSize)
{
    const size_t all = size_t(PVN_MAX_CHUNKS) * CHUNK;
    for (size_t size : {size_t(0), size_t(1), size_t(CHUNK), size_t(CHUNK) + 1, all - 1, all}) {
        SCOPED_TRACE(size);
        ASSERT_EQ(0, send(size));
        ASSERT_EQ(size ? (size + CHUNK - 1) / CHUNK : 1, lane.posted.size());
        covers(size);
        EXPECT_LE(lane.posted[0].len, size_t(CHUNK));
    }
}

TEST_F(EnginePlan, OrLargerWhereTheyWouldBeTooMany)
{
    const size_t all = size_t(PVN_MAX_CHUNKS) * CHUNK, longest = (size_t(1) << 40) - 1;
    for (size_t size : {all + 1, 3 * all + 12345, longest / 2 + 1, longest}) {
        SCOPED_TRACE(size);
        ASSERT_EQ(0, send(size));
        EXPECT_LE(lane.posted.size(), size_t(PVN_MAX_CHUNKS));
        covers(size);
        EXPECT_EQ(0u, lane.posted[0].len % 4096) << "no page is written by two lanes";
    }
}

// The limit is that of NCCL's properties from v9 on; this plugin offers half of it.
TEST_F(EnginePlan, NoMessageIsLonger)
{
    EXPECT_EQ(-EMSGSIZE, send(size_t(1) << 40));
    EXPECT_EQ(-EMSGSIZE, send(SIZE_MAX));
    EXPECT_TRUE(lane.posted.empty());
    EXPECT_EQ(nullptr, pvn_engine_err(e));
}

} // namespace
