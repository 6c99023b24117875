// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin's own memory that an adapter writes into shares no page with other data, even if a
// page has 64 KiB. This program sets the page size, and intercepts the calls that allocate.
#include "rdma/plugin_route.h"
#include "support/next_symbol.h"

#include <unistd.h>

using namespace nccl;

namespace
{

const long PAGE = 65536;

struct Allocation {
    size_t alignment, size;
};
std::vector<Allocation> seen;
bool watching;

} // namespace

// The plugin's calls arrive here, because the program comes before the C library.
extern "C" {
__attribute__((visibility("default"))) long sysconf(int name)
{
    static auto real = next_symbol<decltype(&sysconf)>("sysconf");
    return name == _SC_PAGESIZE && watching ? PAGE : real(name);
}
__attribute__((visibility("default"))) int posix_memalign(void **p, size_t alignment, size_t size)
{
    static auto real = next_symbol<decltype(&posix_memalign)>("posix_memalign");
    if (watching)
        seen.push_back({alignment, size});
    return real(p, alignment, size);
}
}

namespace
{

struct Pages : PluginRdma {
    // Records the allocations while both ends of a connection come up and are closed.
    static void connect(const char *mode)
    {
        setenv("NCCL_PVRDMA_RDMA_MODE", mode, 1);
        adapters("pvrdma", "");
        seen.clear();
        watching = true;
        {
            Net n(12);
            Pair p(n);
            EXPECT_TRUE(p.up()) << Log::get().text();
        }
        watching = false;
        for (const Allocation &a : seen) {
            EXPECT_EQ(size_t(PAGE), a.alignment);
            EXPECT_EQ(0u, a.size % PAGE) << a.size;
        }
    }
};

TEST_F(Pages, OfRings)
{
    connect("record");
    EXPECT_LE(3u, seen.size()) << "those of the trial of RDMA WRITE and of each end";
}

TEST_F(Pages, OfBuffersOfTheTwoSidedMode)
{
    connect("send");
    EXPECT_LE(4u, seen.size()) << "the rings and the buffers of each end";
}

} // namespace
