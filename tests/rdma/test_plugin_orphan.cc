// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A rank over RDMA is killed while its child lives, in a process and with an adapter of its own.
#include "abi/orphan.h"
#include "rdma/plugin_route.h"

#include <sys/wait.h>

using namespace nccl;

namespace
{

// Many drivers map pages of the adapter that a child inherits. The queue pairs then stay as long as
// the child.
void let_children_keep_queue_pairs()
{
    for (int fd : descriptors()) {
        int domain = 0;
        socklen_t len = sizeof(domain);
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX)
            dup(fd);
    }
}

// Connects to a listener whose handle arrives through the pipe `from`.
[[noreturn]] void be_rank(int from, Orphan *child)
{
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE];
    void *sc = nullptr;
    if (read(from, handle, sizeof(handle)) != sizeof(handle))
        _exit(2);
    Net n(12);
    if (!eventually(
            [&] { return pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc) != ncclSuccess || sc; }) ||
        !sc)
        _exit(3);
    let_children_keep_queue_pairs();
    child->be_left();
}

class LeftChild : public testing::TestWithParam<const char *>
{
};
INSTANTIATE_TEST_SUITE_P(Failover, LeftChild, testing::Values("0", "1"),
                         [](const auto &i) { return std::string("is") + i.param; });

TEST_P(LeftChild, HasNoControlConnectionOfAKilledRank)
{
    char fabric[] = "/tmp/pvn-fabric.XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(fabric));
    setenv("PVN_SOFTVERBS_DIR", fabric, 1);
    setenv("NCCL_PVRDMA_FAILOVER", GetParam(), 1);
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    {
        sv::ForPlugin softverbs;
        sv::ForPlugin::play("pvrdma", "set gid_tbl_len 8");
        Orphan *child = Orphan::shared();
        int handles[2];
        ASSERT_NE(nullptr, child);
        ASSERT_EQ(0, pipe(handles));
        const pid_t rank = fork();
        if (rank == 0)
            be_rank(handles[0], child);
        Net n(12);
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *lc = nullptr, *rc = nullptr;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
        ASSERT_EQ(ssize_t(sizeof(handle)), write(handles[1], handle, sizeof(handle)));
        ASSERT_TRUE(
            eventually([&] { return pvn_netdrv_accept(n.d, lc, &rc) != ncclSuccess || rc; }));
        ASSERT_NE(nullptr, rc) << Log::get().text();
        ASSERT_TRUE(said("rdma")) << Log::get().text();
        expect_loss_of(n, rc, rank, *child);
        child->free();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, rc));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
        close(handles[0]);
        close(handles[1]);
    }
    for (const char *name : {"PVN_SOFTVERBS_DIR", "PVN_SOFTVERBS_PROFILE", "NCCL_PVRDMA_FAILOVER",
                             "NCCL_PVRDMA_TRANSPORT"})
        unsetenv(name);
    EXPECT_EQ(0, system((std::string("rm -rf ") + fabric).c_str()));
}

bool is_eventfd(int fd)
{
    char at[64] = "";
    return readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), at, sizeof(at) - 1) > 0 &&
           std::string(at) == "anon_inode:[eventfd]";
}

// PVRDMA's queue pairs, and the memory that they pin, would stay with the descriptor.
TEST_F(PluginRdma, AChildHasNoDescriptorOfTheAdapter)
{
    adapters("pvrdma", "");
    const std::set<int> before = descriptors();
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    std::vector<int> events;
    for (int fd : descriptors())
        if (!before.count(fd) && is_eventfd(fd))
            events.push_back(fd);
    ASSERT_LT(0u, events.size()) << "what softverbs has of an adapter";
    ASSERT_TRUE(sv::threads_asleep());
    const pid_t pid = fork();
    if (pid == 0)
        _exit(std::any_of(events.begin(), events.end(), is_open));
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_TRUE(std::all_of(events.begin(), events.end(), is_open));
    EXPECT_TRUE(r.move(2));
}

} // namespace
