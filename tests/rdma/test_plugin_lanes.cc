// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Comms over several ports and queue pairs: doorbells per message, and the share of each lane; the
// service level of queue pairs
#include "rdma/plugin_route.h"

#include <memory>
#include <set>
#include <tuple>

using namespace nccl;

namespace
{

// Parameters: the number of joined ports, and of queue pairs per port
class PluginLanes : public PluginRdma, public testing::WithParamInterface<std::tuple<int, int>>
{
  protected:
    enum { DEPTH = 8, MESSAGES = 400 };
    int ports = std::get<0>(GetParam());

    // The poll interval is long, because an idle poll of the completion queue is a doorbell, too,
    // and its time depends on the clock.
    std::unique_ptr<Net> start(const char *poll = "1s")
    {
        setenv("NCCL_PVRDMA_QPS", std::to_string(std::get<1>(GetParam())).c_str(), 1);
        setenv("NCCL_PVRDMA_RDMA_POLL", poll, 1);
        adapters("pvrdma", "set devices " + std::to_string(ports));
        auto n = std::make_unique<Net>(12);
        dev = joined(*n, ports);
        return n;
    }

    void TearDown() override
    {
        unsetenv("NCCL_PVRDMA_QPS");
        PluginRdma::TearDown();
    }

    // Moves messages of `size` bytes with DEPTH in flight and receives posted ahead. Returns the
    // doorbells per message.
    double stream(Pair &p, size_t size)
    {
        std::vector<unsigned char> src = bytes::of(DEPTH * size, 9), dst(DEPTH * size);
        void *smh = nullptr, *rmh = nullptr, *s[DEPTH] = {}, *r[DEPTH] = {};
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.sc, src.data(), src.size(), NCCL_PTR_HOST, &smh));
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.size(), NCCL_PTR_HOST, &rmh));
        long sp = 0, st = 0, rp = 0, rt = 0;
        sv_stats before, after;
        sv::lib().sv_total_stats(&before);
        EXPECT_TRUE(eventually([&] {
            int done = 0, got = -1, tag = 0;
            while (rp < MESSAGES && rp - rt < DEPTH) {
                void *data = &dst[static_cast<size_t>(rp % DEPTH) * size];
                EXPECT_EQ(ncclSuccess, pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh,
                                                        nullptr, &r[rp % DEPTH]));
                if (!r[rp % DEPTH])
                    break;
                rp++;
            }
            while (sp < MESSAGES && sp - st < DEPTH) {
                EXPECT_EQ(ncclSuccess,
                          pvn_netdrv_isend(p.d, p.sc, &src[static_cast<size_t>(sp % DEPTH) * size],
                                           size, 0, smh, nullptr, &s[sp % DEPTH]));
                if (!s[sp % DEPTH])
                    break;
                sp++;
            }
            if (st < sp) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, s[st % DEPTH], &done, nullptr));
                st += done;
            }
            done = 0;
            if (rt < rp) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, r[rt % DEPTH], &done, &got));
                rt += done;
            }
            return HasFailure() || (st == MESSAGES && rt == MESSAGES);
        }));
        sv::lib().sv_total_stats(&after);
        EXPECT_EQ(src, dst);
        pvn_netdrv_dereg_mr(p.d, p.sc, smh);
        pvn_netdrv_dereg_mr(p.d, p.rc, rmh);
        return static_cast<double>(after.doorbells - before.doorbells) / MESSAGES;
    }

    void bound_doorbells()
    {
        auto n = start();
        Pair p(*n, dev, dev);
        for (size_t size : {8, 4096, 65536}) {
            double doorbells = stream(p, size);
            printf("%d ports, %d queue pairs, %zu bytes: %.3f doorbells per message\n", ports,
                   std::get<1>(GetParam()), size, doorbells);
            EXPECT_LE(doorbells, 1.35) << size;
        }
    }

    int dev = 0;
};

// Entries are batched, and acknowledgements of every port travel with them.
TEST_P(PluginLanes, DoorbellsPerMessageAtDepth8)
{
    bound_doorbells();
}

// In imm mode the completion queue has the arrivals, too. It is not polled while nothing arrives.
TEST_P(PluginLanes, DoorbellsPerMessageInImmMode)
{
    setenv("NCCL_PVRDMA_RDMA_MODE", "imm", 1);
    bound_doorbells();
}

TEST_P(PluginLanes, AReceiverThatWaitsInImmModePollsOnceInTheTimeBetweenTwo)
{
    setenv("NCCL_PVRDMA_RDMA_MODE", "imm", 1);
    auto n = start("200us");
    Pair p(*n, dev, dev);
    stream(p, 4096);
    std::vector<unsigned char> in(4096);
    void *mh = nullptr, *req = nullptr, *data = in.data();
    size_t size = in.size();
    int tag = 0, done = 0, got = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, data, size, NCCL_PTR_HOST, &mh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, &req));
    ASSERT_NE(nullptr, req);
    const double from = pvn_now_s();
    sv_stats before, now;
    sv::lib().sv_total_stats(&before);
    uint64_t empty = 0;
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &done, &got));
        EXPECT_EQ(0, done);
        sv::lib().sv_total_stats(&now);
        empty = now.poll_empty - before.poll_empty;
        EXPECT_LE(static_cast<double>(empty), (pvn_now_s() - from) / 200e-6);
        return HasFailure() || empty >= static_cast<uint64_t>(3 * ports);
    }));
    pvn_netdrv_dereg_mr(p.d, p.rc, mh);
}

// A short message uses the first port. Longer ones are spread over all ports.
TEST_P(PluginLanes, AShortMessageTakesOneLane)
{
    auto n = start();
    Pair p(*n, dev, dev);
    stream(p, 8); // connects
    // The rule counts requests of the last port, and never acts.
    const std::string last = "vmw_pvrdma" + std::to_string(ports - 1);
    ASSERT_EQ(0, sv::command(
                     ("rule last do dev=" + last + " op=WRITE nth=1000000000 : release").c_str()));
    stream(p, 8);
    const int64_t of_short = sv::lib().sv_rule_seen("last");
    stream(p, 4096);
    const int64_t of_long = sv::lib().sv_rule_seen("last") - of_short;
    EXPECT_GE(of_long, 2 * MESSAGES / ports) << "data and record of each";
    if (ports > 1) {
        EXPECT_EQ(0, of_short);
    } else {
        EXPECT_LE(MESSAGES, of_short);
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PluginLanes,
                         testing::Values(std::make_tuple(1, 1), std::make_tuple(1, 4),
                                         std::make_tuple(2, 1), std::make_tuple(2, 4),
                                         std::make_tuple(3, 1)));

// There are as many ports as a comm has lanes. TCP gets one lane, and the ports get the others.
TEST_F(PluginRdma, PortsComeBeforeTheTransportBehindThem)
{
    adapters("roce", "set devices 8");
    Net n(12);
    int all = joined(n, 8);
    Log::get().clear();
    Route r(n, all, all);
    EXPECT_TRUE(r.move(1));
    EXPECT_TRUE(said("7 lanes: rdma on")) << Log::get().text();
    EXPECT_TRUE(said("mlx5_7 is not used: a comm has 8 lanes at most")) << Log::get().text();
}

// The fabric drops everything from the second port. The adapter retransmits for longer than the
// set-up waits.
TEST_F(PluginRdma, ADeadPortOfTwoIsLeftOut)
{
    setenv("NCCL_PVRDMA_VERIFY_TIMEOUT", "300ms", 1);
    adapters("roce", "set devices 2");
    Net n(12);
    const int both = joined(n, 2);
    ASSERT_EQ(0, sv::command("rule dead drop dev=mlx5_1 count=0"));
    Route r(n, both, both);
    unsetenv("NCCL_PVRDMA_VERIFY_TIMEOUT");
    EXPECT_LT(0, sv::lib().sv_rule_fired("dead"));
    EXPECT_TRUE(r.move(1)) << Log::get().warnings();
    EXPECT_TRUE(said("1 lane: rdma on")) << Log::get().text();
}

// The second port has no partner. The comm keeps the first one, and that is no reason for a warning.
TEST_F(PluginRdma, APortWithoutAPartnerLeavesTheOthers)
{
    adapters("roce", "set devices 3");
    Net n(12);
    const int both = joined(n, 2);
    Log::get().clear();
    Route r(n, both, 2);
    EXPECT_TRUE(r.move(1)) << Log::get().warnings();
    EXPECT_TRUE(said("1 lane: rdma on")) << Log::get().text();
    EXPECT_EQ("", Log::get().warnings());
}

// The service levels of a comm's queue pairs, at both ends
std::set<std::string> levels(int abi, int traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF)
{
    std::set<std::string> found;
    Net n(abi, traffic_class);
    Route r(n);
    EXPECT_TRUE(r.move(1));
    for (int i = 0; i < 100; i++) {
        char text[80] = "";
        if (sv::lib().sv_command(("path #" + std::to_string(i)).c_str(), text, sizeof(text)) == 0)
            found.insert(text);
    }
    return found;
}

// NCCL's own transport takes the communicator's traffic class as the service level, too, unless
// NCCL_IB_SL is set, and the acceptor takes the connector's.
TEST_F(PluginRdma, TheServiceLevelIsThatOfNccl)
{
    using set = std::set<std::string>;
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    for (const char *profile : {"roce", "ib"}) {
        const std::string level = strcmp(profile, "ib") == 0 ? "sl=14" : "sl=6";
        adapters(profile, "");
        EXPECT_EQ(set{level}, levels(12, 110)) << profile;
        EXPECT_EQ(set{level}, levels(10, 110)) << profile << ": v10 passes it to connect only";
        setenv("NCCL_IB_TC", "104", 1);
        EXPECT_EQ(set{"sl=0"}, levels(10)) << profile;
        EXPECT_EQ(set{level}, levels(10, 110)) << profile;
        setenv("NCCL_IB_SL", "3", 1);
        EXPECT_EQ(set{"sl=3"}, levels(12, 110)) << profile;
        unsetenv("NCCL_IB_SL");
        unsetenv("NCCL_IB_TC");
    }
}

} // namespace
