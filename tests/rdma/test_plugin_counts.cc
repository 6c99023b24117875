// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Single messages need few requests and doorbells of an adapter. softverbs counts them.
#include "rdma/plugin_route.h"

extern "C" {
#include "net-pvrdma/rdma_lane.h"
}

using namespace nccl;

namespace
{

struct Counts {
    uint64_t requests, doorbells; // of both ends
};
// Moves this many messages one at a time, after the route's first one.
Counts lone(Route &r, uint64_t messages)
{
    sv_stats before, after;
    EXPECT_TRUE(r.move(1));
    sv::lib().sv_total_stats(&before);
    for (uint64_t m = 0; m < messages; m++)
        EXPECT_TRUE(r.move(static_cast<unsigned>(m)));
    sv::lib().sv_total_stats(&after);
    return {after.send_wr - before.send_wr, after.doorbells - before.doorbells};
}

// A message up to the parameter's bound is sent with its record in one request, a longer one in
// two.
TEST_F(PluginRdma, ShortMessagesAreBoundedByAParameter)
{
    setenv("NCCL_PVRDMA_RDMA_MODE", "record", 1);
    adapters("pvrdma", "");
    uint64_t requests[3] = {};
    const char *const limit[3] = {nullptr, "100", "0"};
    const uint64_t messages = 50;
    for (int i = 0; i < 3; i++) {
        if (limit[i])
            setenv("NCCL_PVRDMA_RDMA_SHORT", limit[i], 1);
        Net n(12);
        Route r(n);
        r.size = 101;
        requests[i] = lone(r, messages).requests;
    }
    EXPECT_GE(requests[1], requests[0] + messages);
    EXPECT_GE(requests[2], requests[0] + messages);
}

// The entry for the next message does not repeat the acknowledgement of the previous one.
TEST_F(PluginRdma, ALoneMessageIsAnEntryItsBytesAndAnAcknowledgement)
{
    adapters("pvrdma", "");
    Net net(12);
    const uint64_t messages = 100;
    for (uint64_t size : {8u, 4096u}) {
        Route r(net);
        r.size = size;
        const Counts n = lone(r, messages);
        // A long message has a record, too.
        const uint64_t needed = messages * (size > PVN_RDMA_SHORT_MAX ? 4 : 3);
        // Requests that depend on time may add a few.
        EXPECT_GE(n.requests, needed) << size << " B";
        EXPECT_LE(n.requests, needed + messages / 10) << size << " B";
        EXPECT_LE(n.doorbells, 3 * messages + messages / 10) << size << " B";
    }
}

} // namespace
