// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The adapters' tables of GIDs, as comms that are made find them.
#include "rdma/plugin_route.h"

#include <unistd.h>

#include <functional>

using namespace nccl;

namespace
{

struct PluginGids : PluginRdma {
};

// Many comms that are made at once look at the adapter's table of GIDs once in a while, and behind each change of it.
TEST_F(PluginGids, TheTableOfGidsIsNotReadForEachLane)
{
    adapters("pvrdma", "");
    Net n(12);
    EXPECT_EQ(0, sv::command("rule table fail call=query_gid_table errno=EIO nth=1000000"));
    const auto reads = [&](const std::function<void()> &before = [] {}) {
        const int64_t seen = sv::lib().sv_rule_seen("table");
        before();
        Pair p(n);
        EXPECT_TRUE(p.up()) << Log::get().text();
        return sv::lib().sv_rule_seen("table") - seen;
    };
    EXPECT_GE(reads(), 1);
    EXPECT_TRUE(eventually([&] { return reads() == 0; })) << "on a slow machine it is read, too";
    EXPECT_GE(reads([] { usleep(150000); }), 1) << "it is old";
    EXPECT_TRUE(eventually([&] { return reads() == 0; }));
    // There is an event when an address comes or goes, and it is seen at once.
    EXPECT_GE(reads([] { EXPECT_EQ(0, sv::command("gid * 1 7 10.100.0.77 v2")); }), 1);
    EXPECT_GE(reads([] { EXPECT_EQ(0, sv::command("gid * 1 7 none")); }), 1);
    EXPECT_EQ(0, sv::lib().sv_rule_fired("table"));
}

TEST_F(PluginGids, OnlyLinkLocalAddressesDoOnOneLink)
{
    adapters("roce", "set ipv4 0");
    Net n(12);
    Route r(n);
    EXPECT_TRUE(r.move(1));
    EXPECT_TRUE(said("1 lane: rdma on")) << Log::get().text();
}

} // namespace
