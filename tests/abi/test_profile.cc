// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The profiler's callback: for which events it is called, when, and with which arguments.
#include "abi/nccl_side.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <map>

#include "plugin/nccl/profiler.h"
#include "softverbs/fixture.h"

using namespace nccl;

namespace
{

// NCCL's side of the callback. It keeps every event.
struct Event {
    void *parent;
    int64_t plugin;
    ncclProfilerNetIbDescr_v1_t ib;
    ncclProfilerNetSockDescr_v1_t sock;
    bool stopped;
};
struct Profiler {
    std::vector<std::unique_ptr<Event>> events;
    bool interested = true;
    int calls = 0;
    std::string wrong;
};
Profiler *profiler;

ncclResult_t callback(void **event, int type, void *handle, int64_t plugin, void *data)
{
    profiler->calls++;
    if (type == ncclProfilerNetEventStop) {
        auto *e = static_cast<Event *>(*event);
        if (!e || e->stopped)
            profiler->wrong += "a stop without a start; ";
        else
            e->stopped = true;
        return ncclSuccess;
    }
    if (type != ncclProfilerNetEventStart || *event || !handle || !data)
        profiler->wrong += "not a start; ";
    if (!profiler->interested)
        return ncclSuccess;
    auto e = std::make_unique<Event>();
    e->parent = handle;
    e->plugin = plugin;
    e->stopped = false;
    if (plugin == (NCCL_PROFILER_NET_TYPE_IB | 1))
        memcpy(&e->ib, data, sizeof(e->ib));
    else if (plugin == (NCCL_PROFILER_NET_TYPE_SOCK | 1))
        memcpy(&e->sock, data, sizeof(e->sock));
    else
        profiler->wrong += "an unknown layout; ";
    *event = e.get();
    profiler->events.push_back(std::move(e));
    return ncclSuccess;
}

class Profile : public testing::TestWithParam<int>
{
  protected:
    Profiler own;
    void *library = nullptr;
    char send_parent[64], recv_parent[64][8];

    void SetUp() override
    {
        profiler = &own;
        Log::get().clear();
    }
    void TearDown() override
    {
        if (library)
            dlclose(library);
        unsetenv("NCCL_PVRDMA_TRANSPORT");
        unsetenv("NCCL_PVRDMA_RDMA_MODE");
    }
    void load()
    {
        library = dlopen(PVN_BUILDDIR "/tests/abi/.libs/profiler.so", RTLD_NOW);
        ASSERT_NE(nullptr, library) << dlerror();
    }
    void with_handles(Flow &f)
    {
        f.send_handle = [this](size_t i) { return &send_parent[i]; };
        f.recv_handle = [this](size_t i, size_t k) { return &recv_parent[i][k]; };
    }
    std::vector<const Event *> of(const void *parent)
    {
        std::vector<const Event *> found;
        for (auto &e : own.events)
            if (e->parent == parent)
                found.push_back(e.get());
        return found;
    }
    void expect_order()
    {
        EXPECT_EQ("", own.wrong);
        for (auto &e : own.events)
            EXPECT_TRUE(e->stopped);
    }
};
INSTANTIATE_TEST_SUITE_P(Versions, Profile, testing::Range(10, 13),
                         [](const testing::TestParamInfo<int> &i) {
                             return "v" + std::to_string(i.param);
                         });

const std::vector<size_t> sizes = {1, 100, 5000, 70000, 3000001};

TEST_P(Profile, NobodyIsCalledWithoutAProfiler)
{
    Net n(GetParam(), NCCL_NET_TRAFFIC_CLASS_UNDEF, callback);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, sizes);
    with_handles(f);
    ASSERT_TRUE(f.run());
    EXPECT_EQ(0, own.calls);
}

TEST_P(Profile, EveryChunkOnASocket)
{
    load();
    Net n(GetParam(), NCCL_NET_TRAFFIC_CLASS_UNDEF, callback);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, sizes);
    with_handles(f);
    ASSERT_TRUE(f.run());
    f.check();
    p.close();
    expect_order();
    for (size_t i = 0; i < sizes.size(); i++) {
        size_t sent = 0, received = 0;
        for (const Event *e : of(&send_parent[i])) {
            EXPECT_EQ(ncclProfileSocket, e->sock.type);
            EXPECT_EQ(NCCL_SOCKET_SEND, e->sock.sock.op);
            EXPECT_GT(e->sock.sock.fd, 2);
            sent += e->sock.sock.length;
        }
        for (const Event *e : of(&recv_parent[i][0])) {
            EXPECT_EQ(NCCL_SOCKET_RECV, e->sock.sock.op);
            EXPECT_GT(e->sock.sock.fd, 2);
            received += e->sock.sock.length;
        }
        EXPECT_EQ(sizes[i], sent);
        EXPECT_EQ(sizes[i], received);
    }
}

TEST_P(Profile, GroupedReceivesKeepTheirHandlesApart)
{
    load();
    Net n(GetParam(), NCCL_NET_TRAFFIC_CLASS_UNDEF, callback);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f(p, {{10, 2}, {20, 1}, {30000, 3}}, {{{100, 100, 40000}, {1, 2, 3}}}, {{1, 0, 2}});
    with_handles(f);
    ASSERT_TRUE(f.run());
    f.check();
    expect_order();
    const size_t want[] = {20, 10, 30000};
    for (size_t k = 0; k < 3; k++) {
        auto events = of(&recv_parent[0][k]);
        ASSERT_EQ(1u, events.size());
        EXPECT_EQ(want[k], events[0]->sock.sock.length);
    }
}

TEST_P(Profile, AProfilerWithoutHandlesGetsNoStops)
{
    load();
    own.interested = false;
    Net n(GetParam(), NCCL_NET_TRAFFIC_CLASS_UNDEF, callback);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, sizes);
    with_handles(f);
    ASSERT_TRUE(f.run());
    f.check();
    EXPECT_GT(own.calls, 0);
    EXPECT_EQ("", own.wrong);
}

TEST_P(Profile, RequestsWithoutAHandleAreNotReported)
{
    load();
    Net n(GetParam(), NCCL_NET_TRAFFIC_CLASS_UNDEF, callback);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, sizes);
    ASSERT_TRUE(f.run());
    f.check();
    EXPECT_EQ(0, own.calls);
}

class ProfileRdma : public Profile
{
  protected:
    sv::ForPlugin softverbs;
    // Sends messages one after the other, from and to registered memory.
    void transfer(const char *profile, const char *mode, int opcode)
    {
        load();
        sv::ForPlugin::play(profile, "set gid_tbl_len 8");
        setenv("NCCL_PVRDMA_RDMA_MODE", mode, 1);
        setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
        Net n(GetParam(), NCCL_NET_TRAFFIC_CLASS_UNDEF, callback);
        Pair p(n);
        ASSERT_TRUE(p.up());
        std::vector<unsigned char> src(sizes.back(), 7), dst(sizes.back());
        void *smh = nullptr, *rmh = nullptr;
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.sc, src.data(), src.size(), NCCL_PTR_HOST, &smh));
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.size(), NCCL_PTR_HOST, &rmh));
        for (size_t i = 0; i < sizes.size(); i++) {
            void *s = nullptr, *r = nullptr, *data = dst.data(), *handle = &recv_parent[i][0];
            size_t size = sizes[i];
            int tag = 0, send_done = 0, recv_done = 0, got = 0;
            ASSERT_TRUE(eventually([&] {
                if (!r && !recv_done) {
                    EXPECT_EQ(ncclSuccess, pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh,
                                                            &handle, &r));
                }
                if (!s && !send_done) {
                    EXPECT_EQ(ncclSuccess, pvn_netdrv_isend(p.d, p.sc, src.data(), size, 0, smh,
                                                            &send_parent[i], &s));
                }
                if (s && !send_done) {
                    EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, s, &send_done, nullptr));
                }
                if (r && !recv_done) {
                    EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, r, &recv_done, &got));
                }
                return send_done && recv_done;
            }));
            EXPECT_EQ(static_cast<int>(size), got);
            size_t sent = 0;
            for (const Event *e : of(&send_parent[i])) {
                EXPECT_EQ(NCCL_PROFILER_NET_TYPE_IB | 1, e->plugin);
                EXPECT_EQ(ncclProfileQp, e->ib.type);
                EXPECT_EQ(0, e->ib.qp.device);
                EXPECT_EQ(opcode, e->ib.qp.opcode);
                EXPECT_NE(0, e->ib.qp.qpNum);
                sent += e->ib.qp.length;
            }
            EXPECT_EQ(size, sent);
            auto received = of(&recv_parent[i][0]);
            if (opcode ==
                IBV_WR_SEND) // pieces are placed as they come, no request stands for a buffer
                continue;
            ASSERT_EQ(1u, received.size());
            EXPECT_EQ(static_cast<int>(IBV_WC_RECV), received[0]->ib.qp.opcode);
            EXPECT_EQ(size, received[0]->ib.qp.length);
        }
        expect_order();
        pvn_netdrv_dereg_mr(p.d, p.sc, smh);
        pvn_netdrv_dereg_mr(p.d, p.rc, rmh);
    }
};
// Before v11 nothing closes the adapters, so a later test could not choose its own.
INSTANTIATE_TEST_SUITE_P(Versions, ProfileRdma, testing::Range(11, 13),
                         [](const testing::TestParamInfo<int> &i) {
                             return "v" + std::to_string(i.param);
                         });

TEST_P(ProfileRdma, EveryWorkRequestOfRecordMode)
{
    transfer("pvrdma", "record", IBV_WR_RDMA_WRITE);
}

TEST_P(ProfileRdma, EveryWorkRequestOfImmediateMode)
{
    transfer("roce", "imm", IBV_WR_RDMA_WRITE_WITH_IMM);
}

TEST_P(ProfileRdma, EveryWorkRequestOfTheTwoSidedMode)
{
    transfer("pvrdma", "send", IBV_WR_SEND);
}

// A profiler keeps a record of each event until the event stops, so events that are open at a loss
// must stop, too.
TEST_P(ProfileRdma, EventsThatAreOpenAtALossStop)
{
    load();
    sv::ForPlugin::play("pvrdma", "set gid_tbl_len 8");
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    Net n(GetParam(), NCCL_NET_TRAFFIC_CLASS_UNDEF, callback);
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<unsigned char> src(sizes.back(), 7), dst(sizes.back());
    void *smh = nullptr, *rmh = nullptr, *handle = &recv_parent[0][0];
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_reg_mr(p.d, p.sc, src.data(), src.size(), NCCL_PTR_HOST, &smh));
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.size(), NCCL_PTR_HOST, &rmh));
    ASSERT_EQ(0, sv::command("rule break status status=RETRY_EXC_ERR op=WRITE nth=2"));
    void *s = nullptr, *r = nullptr, *data = dst.data();
    size_t size = src.size(), open_at_the_loss = 0;
    int tag = 0, send_done = 0, recv_done = 0;
    ASSERT_TRUE(eventually([&] {
        if (!r)
            pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, &handle, &r);
        if (!s)
            pvn_netdrv_isend(p.d, p.sc, src.data(), size, 0, smh, &send_parent[0], &s);
        if (open_at_the_loss == 0)
            open_at_the_loss = own.events.size();
        if (s && !send_done) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, s, &send_done, nullptr));
        }
        if (r && !recv_done) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, r, &recv_done, nullptr));
        }
        return send_done && recv_done;
    })) << Log::get().text();
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("break"));
    EXPECT_LT(0u, open_at_the_loss);
    expect_order();
    pvn_netdrv_dereg_mr(p.d, p.sc, smh);
    pvn_netdrv_dereg_mr(p.d, p.rc, rmh);
}

} // namespace
