// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The order in which a connector tries the paths to its peer, and how it remembers lanes that
// delivered nothing. All addresses are loopback's, which the kernel always routes.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "base/addr.h"
#include "base/clock.h"
#include "connect/paths.h"
}

namespace
{

// A connector on 127.0.0.1 whose device has RDMA and TCP. The peer has a number of other addresses,
// from 127.0.0.2 on.
class Paths : public testing::Test
{
  protected:
    Paths()
    {
        tcp.is_fallback = true;
        EXPECT_EQ(0, pvn_addr_parse("127.0.0.1", &dev.addr, nullptr));
        dev.addr_len = pvn_addr_len(reinterpret_cast<sockaddr *>(&dev.addr));
        dev.via[0].ops = &rdma;
        dev.via[1].ops = &tcp;
        dev.nvia = 2;
        first.cfg.sender = true;
        first.cfg.dev = first.cfg.port[0] = &dev;
        first.cfg.nports = 1;
        first.cfg.peer = dev.addr;
        first.cfg.peer_len = dev.addr_len;
        first.cfg.nonce = 5;
    }
    ~Paths() override
    {
        pvn_paths_free(&p);
    }
    void init(int others, const pvn_device *beside = nullptr)
    {
        first.theirs.nothers = static_cast<uint8_t>(others);
        for (int i = 0; i < others; i++) {
            pvn_wire_addr &a = first.theirs.other[i];
            a.family = 4;
            a.bytes[0] = 127;
            a.bytes[3] = static_cast<uint8_t>(2 + i);
        }
        pvn_paths_init(&p, &first, 7, &beside, beside != nullptr);
    }
    // The paths of a failover's first n attempts. R, T or RT behind a path's number are the kinds
    // of lanes: RDMA, TCP.
    std::string tries(int n)
    {
        std::string all;
        unsigned attempt = 0;
        for (int i = 0; i < n; i++, attempt++) {
            const pvn_conn_cfg cfg = pvn_paths_choose(&p, &attempt);
            EXPECT_EQ(7u, cfg.resumes);
            EXPECT_EQ(0u, cfg.nonce);
            all += (i ? " " : "") + std::to_string(pvn_paths_index(&p, attempt)) +
                   (cfg.fallback_only ? "" : "R") + (cfg.no_fallback ? "" : "T");
        }
        return all;
    }
    bool lose(unsigned path, bool fast)
    {
        return pvn_path_memory_lost(&p.memory, path, fast, true, 0, 1);
    }
    pvn_transport_ops rdma = {}, tcp = {};
    pvn_device dev = {};
    pvn_conn first = {};
    pvn_paths p = {};
};

// A comm ends if its lanes are lost again and again without a message in between, but not because
// its peer is late.
TEST_F(Paths, LossesInARowAreCounted)
{
    init(0);
    uint64_t now = p.since_ns;
    for (int i = 0; i < PVN_LOSSES_MAX; i++)
        EXPECT_FALSE(pvn_paths_count_loss(&p, 0, true, now)) << i;
    EXPECT_FALSE(pvn_paths_count_loss(&p, 0, false, now)) << "nothing is open";
    EXPECT_TRUE(pvn_paths_count_loss(&p, 0, true, now + 59 * PVN_NS_PER_S));
    EXPECT_FALSE(pvn_paths_count_loss(&p, 1, true, now)) << "a message came through";
    for (int i = 0; i < 3 * PVN_LOSSES_MAX; i++) {
        now += 60 * PVN_NS_PER_S;
        EXPECT_FALSE(pvn_paths_count_loss(&p, 1, true, now)) << i << ": they lived for a minute";
        p.since_ns = now;
    }
    EXPECT_EQ(1u, p.losses);
}

// Path 1 would be the first address by another device, but there is no other device.
TEST_F(Paths, AreTakenInTurnWithoutThoseThatLeadNowhere)
{
    init(2);
    EXPECT_EQ("0RT 2RT 3RT 0RT 2RT", tries(5));
}

TEST_F(Paths, AnotherDeviceOnTheRouteIsAPath)
{
    pvn_device beside = dev;
    dev.addr = {};
    init(0, &beside);
    EXPECT_TRUE(pvn_paths_more(&p));
    EXPECT_EQ("0RT 1RT 0RT", tries(3));
    unsigned attempt = 1;
    const pvn_conn_cfg cfg = pvn_paths_next(&p, &attempt);
    EXPECT_EQ(&beside, cfg.dev);
    EXPECT_TRUE(cfg.away);
}

TEST_F(Paths, OneAddressAndOneDeviceAreOnePath)
{
    init(0);
    EXPECT_FALSE(pvn_paths_more(&p));
    EXPECT_EQ("0RT 0RT", tries(2));
    EXPECT_TRUE(pvn_paths_are_all(&p, 1));
}

TEST_F(Paths, AllAreThoseThatLeadAnywhere)
{
    init(1);
    EXPECT_FALSE(pvn_paths_are_all(&p, 1));
    EXPECT_FALSE(pvn_paths_are_all(&p, 4));
    EXPECT_TRUE(pvn_paths_are_all(&p, 5)) << "path 1 leads nowhere";
}

TEST_F(Paths, LanesThatDeliveredNothingAreLeftOutInTheFirstRound)
{
    init(1);
    EXPECT_TRUE(lose(0, true));
    EXPECT_FALSE(lose(0, true)) << "remembered already";
    EXPECT_EQ("0T 2RT 0RT 2RT", tries(4));
    EXPECT_TRUE(lose(0, false));
    EXPECT_EQ("2RT 0RT 2RT", tries(3));
}

TEST_F(Paths, WhereAllDeliveredNothingNoneIsWorse)
{
    init(1);
    for (unsigned path : {0, 2}) {
        lose(path, true);
        lose(path, false);
    }
    EXPECT_EQ("0RT 2RT", tries(2));
    EXPECT_EQ("0RT 2RT", tries(2)) << "forgotten";
}

TEST_F(Paths, LanesThatDeliveredForLongAreForgiven)
{
    init(1);
    EXPECT_TRUE(lose(0, true));
    EXPECT_FALSE(pvn_path_memory_lost(&p.memory, 0, true, false, PVN_NS_PER_S, 1));
    EXPECT_EQ("0T", tries(1)) << "small messages pass where large ones are lost";
    EXPECT_FALSE(pvn_path_memory_lost(&p.memory, 0, true, false, 3600 * PVN_NS_PER_S, 1));
    EXPECT_EQ("0RT", tries(1));
}

TEST_F(Paths, EachLossOnTheFirstPathDoublesThePauseBeforeTheReturn)
{
    init(0);
    lose(0, true);
    const uint64_t once = p.memory.home_ns - 1;
    lose(0, true);
    EXPECT_EQ(2 * once, p.memory.home_ns - 1);
    lose(2, true);
    EXPECT_EQ(2 * once, p.memory.home_ns - 1) << "it is not a loss there";
}

} // namespace
