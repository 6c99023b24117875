/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Fixture: the whole plugin over softverbs' adapters in one process, and comms with registered
// buffers
#ifndef TESTS_RDMA_PLUGIN_ROUTE_H
#define TESTS_RDMA_PLUGIN_ROUTE_H

#include "abi/nccl_side.h"
#include "softverbs/fixture.h"

namespace nccl
{

class PluginRdma : public testing::Test
{
  protected:
    sv::ForPlugin softverbs;

    void SetUp() override
    {
        setenv("NCCL_PVRDMA_RDMA_POLL", "1ms", 1);
        Log::get().clear();
    }

    void TearDown() override
    {
        for (const char *name : {"NCCL_PVRDMA_RDMA_POLL", "NCCL_PVRDMA_RDMA_MODE",
                                 "NCCL_PVRDMA_RDMA_SHORT", "NCCL_PVRDMA_TRANSPORT",
                                 "NCCL_PVRDMA_VDEVICE", "NCCL_PVRDMA_FAILOVER", "NCCL_PVRDMA_QPS"})
            unsetenv(name);
    }

    // Disables failover, for tests of a lane's loss. Call it before a Net is made.
    static void without_failover()
    {
        setenv("NCCL_PVRDMA_FAILOVER", "0", 1);
    }

    // Sets the adapters that softverbs plays. Call it before a Net is made. The GID tables are
    // short, because sysfs has a file per row.
    static void adapters(const char *profile, const std::string &set)
    {
        sv::ForPlugin::play(profile, set + ";set gid_tbl_len 8");
        setenv("NCCL_PVRDMA_VDEVICE", "1", 1); // NCCL cannot place softverbs' adapters
    }

    static std::string stat()
    {
        char text[512] = "";
        EXPECT_EQ(0, sv::lib().sv_command("stat", text, sizeof(text)));
        return text;
    }
};

// Joins all adapters into one device, and returns its number.
inline int joined(Net &n, int adapters)
{
    ncclNetVDeviceProps_v12_t join = {};
    int all = 0;
    join.ndevs = adapters;
    for (int i = 0; i < adapters; i++)
        join.devs[i] = i;
    if (adapters > 1) {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &all, &join));
    }
    return all;
}

// A comm pair with a registered buffer at each end
struct Route {
    enum { SIZE = 5000 };
    Pair p;
    void *smh = nullptr, *rmh = nullptr;
    std::vector<unsigned char> src, dst;
    size_t size = SIZE; // of a message
    ncclResult_t send_rc = ncclSuccess, recv_rc = ncclSuccess;

    explicit Route(Net &n, int sdev = 0, int rdev = 0,
                   const std::function<void(char *handle)> &redirect = {})
        : p(n, sdev, rdev, redirect), src(SIZE), dst(SIZE)
    {
        // A comm that is accepted lazily takes registrations before it is up.
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), SIZE, NCCL_PTR_HOST, &smh));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), SIZE, NCCL_PTR_HOST, &rmh));
    }
    ~Route()
    {
        close_send();
        close_recv();
    }
    void close_send()
    {
        if (p.sc && smh)
            pvn_netdrv_dereg_mr(p.d, p.sc, smh);
        p.close_send();
    }
    void close_recv()
    {
        if (p.rc && rmh)
            pvn_netdrv_dereg_mr(p.d, p.rc, rmh);
        p.close_recv();
    }
    // Moves one message. Returns false if an end fails. If `both`, the other end is called until it
    // fails, too, or is done.
    bool move(unsigned salt, bool both = false)
    {
        void *sr = nullptr, *rr = nullptr, *data = dst.data();
        size_t n = size;
        int tag = 0, sd = 0, rd = 0, got = -1;
        bytes::fill(src.data(), n, salt);
        memset(dst.data(), 0, dst.size());
        bool ok = eventually([&] {
            if (!rr && !recv_rc)
                recv_rc = pvn_netdrv_irecv(p.d, p.rc, 1, &data, &n, &tag, &rmh, nullptr, &rr);
            if (!sr && !send_rc)
                send_rc = pvn_netdrv_isend(p.d, p.sc, src.data(), n, 0, smh, nullptr, &sr);
            if (sr && !sd && !send_rc)
                send_rc = pvn_netdrv_test(p.d, sr, &sd, nullptr);
            if (rr && !rd && !recv_rc)
                recv_rc = pvn_netdrv_test(p.d, rr, &rd, &got);
            if (!both && (send_rc || recv_rc))
                return true;
            return (sd || send_rc) && (rd || recv_rc);
        });
        EXPECT_TRUE(ok) << "neither done nor failed";
        return !send_rc && !recv_rc && sd && rd && bytes::same(dst.data(), src.data(), n);
    }
};

} // namespace nccl

#endif
