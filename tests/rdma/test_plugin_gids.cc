// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// New comms read the adapters' tables of GIDs.
#include "rdma/plugin_route.h"

#include <chrono>
#include <string>

using namespace nccl;

namespace
{

struct PluginGids : PluginRdma {
};

// Comms read an adapter's table of GIDs at most every 100 ms and after each change, however many
// are made.
TEST_F(PluginGids, TheTableIsNotReadForEachLane)
{
    enum { PAIRS = 40, MS = 100 };
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    adapters("pvrdma", "set devices 2");
    Net n(12);
    EXPECT_EQ(0, sv::command("rule table fail call=query_gid_table errno=EIO nth=1000000"));
    const auto reads = [] { return sv::lib().sv_rule_seen("table"); };
    const auto pair = [&](int device, const char *gid) {
        Log::get().clear();
        Pair p(n, device);
        EXPECT_TRUE(p.up());
        EXPECT_TRUE(said(gid)) << Log::get().text();
    };
    for (int device = 0; device < 2 && !HasFailure(); device++) {
        const std::string own = std::string(": GID 1 ::ffff:10.10") + (device ? "4.0.1" : "0.0.1");
        const int64_t before = reads();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < PAIRS && !HasFailure(); i++)
            pair(device, own.c_str());
        const long ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - begin)
                            .count();
        EXPECT_LE(1, reads() - before) << "it is another adapter";
        EXPECT_GE(1 + ms / MS, reads() - before) << ms << " ms";
    }
    // The device reports the change by an event.
    for (const char *to : {"10.100.0.99", "10.100.0.1"}) {
        const int64_t before = reads();
        pair(0, ": GID 1 ::ffff:10.100.0.");
        EXPECT_EQ(0, sv::command(std::string("gid * 1 1 ") + to + " v2"));
        pair(0, (std::string(": GID 1 ::ffff:") + to + " ").c_str());
        EXPECT_LT(before, reads());
    }
    EXPECT_EQ(0, sv::lib().sv_rule_fired("table"));
}

// If a call fails, the rows that it left out are missing for one lane only.
TEST_F(PluginGids, APoorLookIsNotKept)
{
    adapters("pvrdma", "");
    Net n(12);
    EXPECT_EQ(0, sv::command("rule table fail call=query_gid_table errno=EIO count=1"));
    EXPECT_EQ(0, sv::command("rule row fail call=query_gid errno=EIO count=8"));
    for (bool poor : {true, false}) {
        Log::get().clear();
        Pair p(n);
        EXPECT_TRUE(p.up());
        EXPECT_NE(poor, said("1 lane: rdma on")) << Log::get().text();
    }
    EXPECT_EQ(1, sv::lib().sv_rule_fired("table"));
    EXPECT_EQ(8, sv::lib().sv_rule_fired("row"));
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
