// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Comms on softverbs that are closed while requests are in flight.
#include "rdma/plugin_route.h"

#include <chrono>
#include <thread>

using namespace nccl;

namespace
{

struct Close : PluginRdma {
};

// The receiver waits for the completion of its last acknowledgement while the peer's next message
// is in flight. That message must find its memory registered, or no queue pair.
TEST_F(Close, MemoryStaysRegisteredWhileQueuePairsLive)
{
    setenv("NCCL_PVRDMA_RDMA_MODE", "record", 1);
    adapters("pvrdma", "set async 1");
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    // The buffers lie far apart, because neighbours would share a registration.
    std::vector<unsigned char> src(1 << 20, 7), dst(1 << 20);
    void *smh = nullptr, *rmh = nullptr, *data = dst.data();
    size_t size = dst.size();
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), size, NCCL_PTR_HOST, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), size, NCCL_PTR_HOST, &rmh));
    int tag = 0, taken = 0;
    void *sreq[2] = {}, *rreq[2] = {};
    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            ASSERT_EQ(0, sv::command("rule slow delay ms=40 op=WRITE min_len=100000"));
        }
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rreq[i]));
        ASSERT_TRUE(eventually([&] {
            int d = 0;
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq[i], &d, nullptr));
            taken += d;
            if (d)
                return false;
            return pvn_netdrv_isend(p.d, p.sc, src.data(), size, 0, smh, nullptr, &sreq[i]) ||
                   sreq[i];
        }));
        ASSERT_TRUE(i == 1 || eventually([&] {
                        int d = 0;
                        EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq[0], &d, nullptr));
                        return d != 0;
                    }));
    }
    EXPECT_EQ(0, taken);
    ASSERT_EQ(0, sv::command("rule ack delay ms=80 op=WRITE"));
    p.close_recv();
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("slow"));
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("ack"));
    ncclResult_t rc = ncclSuccess;
    int d = 0;
    EXPECT_TRUE(eventually([&] {
        rc = pvn_netdrv_test(p.d, sreq[1], &d, nullptr);
        return rc != ncclSuccess || d;
    }));
    EXPECT_EQ(std::string::npos, Log::get().text().find("remote access")) << Log::get().text();
}

// A source is deregistered before the adapter has read it.
TEST_F(Close, ASourceStaysRegisteredUntilItHasBeenRead)
{
    adapters("pvrdma", "set async 1");
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<unsigned char> src(1 << 20, 7), dst(1 << 20);
    void *smh = nullptr, *rmh = nullptr, *data = dst.data(), *sreq = nullptr, *rreq = nullptr;
    size_t size = dst.size();
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), size, NCCL_PTR_HOST, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), size, NCCL_PTR_HOST, &rmh));
    ASSERT_EQ(0, sv::command("rule slow delay ms=20 op=WRITE min_len=100000"));
    int tag = 0;
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &rreq));
    ASSERT_TRUE(eventually([&] {
        int d = 0;
        EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq, &d, nullptr));
        return pvn_netdrv_isend(p.d, p.sc, src.data(), size, 0, smh, nullptr, &sreq) || sreq;
    }));
    ASSERT_NE(nullptr, sreq);
    int early = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_test(p.d, sreq, &early, nullptr));
    ASSERT_EQ(0, early);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, smh));
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("slow"));
    for (void *req : {sreq, rreq}) {
        ncclResult_t rc = ncclSuccess;
        int d = 0;
        EXPECT_TRUE(eventually([&] {
            rc = pvn_netdrv_test(p.d, req, &d, nullptr);
            return rc != ncclSuccess || d;
        }));
        EXPECT_EQ(ncclSuccess, rc) << Log::get().text();
    }
    EXPECT_TRUE(src == dst);
}

} // namespace
