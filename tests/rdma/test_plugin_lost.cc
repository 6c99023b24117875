// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Adapters of softverbs that are lost, and there again.
#include "rdma/plugin_route.h"

#include <chrono>
#include <thread>

using namespace nccl;

namespace
{

struct PluginLost : PluginRdma {
};

// A device that dies takes its comms with it, each end with a sentence, and nobody else's.
TEST_F(PluginLost, ADeadDeviceHurtsOnlyItsComms)
{
    without_failover();
    adapters("roce", "set devices 2");
    Net n(12);
    Route dead(n, 0, 0), alive(n, 1, 1);
    ASSERT_TRUE(dead.move(1));
    ASSERT_TRUE(alive.move(2));
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    EXPECT_FALSE(dead.move(3, true));
    EXPECT_NE(ncclSuccess, dead.send_rc);
    EXPECT_NE(ncclSuccess, dead.recv_rc);
    // Whichever shows first, a post that fails or the event.
    EXPECT_TRUE(said("mlx5_0 has failed: the device reported") ||
                said("mlx5_0:1, posting to the send queue"))
        << Log::get().warnings();
    EXPECT_TRUE(alive.move(4));
}

// A device that has failed before a connection is made is not used for it.
TEST_F(PluginLost, ADeadDeviceIsNotConnectedOver)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "");
    Net n(12);
    Route before(n);
    ASSERT_TRUE(before.move(1));
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    ASSERT_EQ(0, sv::command("rule made do call=create_qp count=0 nth=1000000 : release"));
    Route after(n);
    ASSERT_TRUE(after.p.up());
    EXPECT_TRUE(after.move(2)) << "over TCP";
    EXPECT_EQ(0, sv::lib().sv_rule_seen("made")) << "nothing is made on the failed device";
    // It is there again: a connection opens it, beside the lanes that are left on the lost context.
    ASSERT_EQ(0, sv::command("renew mlx5_0"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    Route again(n);
    ASSERT_TRUE(again.p.up());
    EXPECT_TRUE(again.move(3));
    EXPECT_LT(0, sv::lib().sv_rule_seen("made")) << "over RDMA";
    EXPECT_TRUE(said("mlx5_0 has been opened again")) << Log::get().text();
}

// Another device that has taken the name is not used.
TEST_F(PluginLost, AnotherDeviceOfTheSameNameIsNotTheLostOne)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "");
    Net n(12);
    {
        Route before(n);
        ASSERT_TRUE(before.move(1));
    }
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    ASSERT_EQ(0, sv::command("renew mlx5_0 other"));
    Route after(n);
    ASSERT_TRUE(after.p.up());
    EXPECT_TRUE(after.move(2)) << "over TCP";
    EXPECT_TRUE(said("mlx5_0 is another device now, of node GUID")) << Log::get().text();
}

} // namespace
