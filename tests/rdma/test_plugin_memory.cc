// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The memory of this process that a comm takes, over RDMA without the device's own queues, which
// softverbs allocates. It is counted by the callers of malloc and mmap, not by time or resident
// pages.
#include "rdma/plugin_route.h"

#include <memory>

#include "tests/support/count_memory.h"

using namespace nccl;

namespace
{

struct Bound {
    const char *mode; // of RDMA; "tcp": a comm over TCP
    size_t bytes;     // per comm, in one direction
};

struct Memory : PluginRdma, testing::WithParamInterface<Bound> {
};

void Add(Net &n, std::vector<std::unique_ptr<Route>> &routes, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        routes.push_back(std::make_unique<Route>(n));
        ASSERT_TRUE(routes.back()->p.up());
        for (unsigned m = 0; m < 3; m++)
            ASSERT_TRUE(routes.back()->move(m));
    }
}

TEST_P(Memory, OfACommIsBounded)
{
    const bool tcp = strcmp(GetParam().mode, "tcp") == 0;
    setenv(tcp ? "NCCL_PVRDMA_TRANSPORT" : "NCCL_PVRDMA_RDMA_MODE", GetParam().mode, 1);
    adapters("pvrdma", "");
    Net n(12);
    std::vector<std::unique_ptr<Route>> routes;

    ASSERT_EQ(0, count_memory_of("libnccl-net-pvrdma.so"));
    Add(n, routes, 4); // gives tables their first size
    size_t some = counted_memory();
    EXPECT_GT(some, 0u) << "nothing is counted";
    const int pairs = 64;
    Add(n, routes, pairs);
    size_t each = (counted_memory() - some) / (2 * pairs);
    printf("%s mode: %zu bytes of a comm, beside the device's queues\n", GetParam().mode, each);
    EXPECT_LE(each, GetParam().bytes);
    EXPECT_GT(each, 1000u) << "a comm has an engine, at least";
    routes.clear();
    EXPECT_LT(counted_memory(), some) << "what comms took is given back";
}
// The two-sided mode has a buffer for each message that may arrive.
INSTANTIATE_TEST_SUITE_P(Modes, Memory,
                         testing::Values(Bound{"record", 128 * 1024}, Bound{"imm", 128 * 1024},
                                         Bound{"send", 1192 * 1024}, Bound{"tcp", 104 * 1024}));

} // namespace
