// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Calls with invalid arguments are refused before they reach a lane. The comm goes on, without a
// failover. An error that only a lane can find ends the comm, because other lanes would find it,
// too.
#include "rdma/plugin_route.h"

#include <sys/mman.h>

using namespace nccl;

namespace
{

struct PluginArgs : PluginRdma {
};

constexpr size_t huge = size_t(0) - 1; // a negative size that was converted to 64 bits

// The log takes four warnings of one kind in ten seconds. So the text is checked only where the
// warnings come first.
void refused(ncclResult_t rc, void *req, const char *call)
{
    EXPECT_EQ(ncclInvalidArgument, rc) << call;
    EXPECT_EQ(nullptr, req) << call;
}

TEST_F(PluginArgs, WhatCannotBeRightIsRefused)
{
    for (const char *mode : {"record", "imm"}) {
        SCOPED_TRACE(mode);
        setenv("NCCL_PVRDMA_RDMA_MODE", mode, 1);
        adapters("pvrdma", "");
        Net n(12);
        Route r(n);
        ASSERT_TRUE(r.move(1));
        void *req = nullptr, *data = r.dst.data(), *none = nullptr;
        size_t size = 8;
        int tag = 0, bytes = 8;
        auto send = [&](const void *from, size_t len, void *mh) {
            return pvn_netdrv_isend(r.p.d, r.p.sc, const_cast<void *>(from), len, 0, mh, nullptr,
                                    &req);
        };
        auto receive = [&](void *to, size_t len, void *mh) {
            size = len;
            return pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &to, &size, &tag, &mh, nullptr, &req);
        };
        for (size_t len : {size_t(8), size_t(5000)}) {
            refused(send(r.src.data(), len, nullptr), req, "isend");
            refused(receive(data, len, nullptr), req, "irecv");
        }
        EXPECT_TRUE(said("isend: 8 bytes without a memory handle")) << Log::get().text();
        EXPECT_TRUE(said("irecv: 8 bytes without a memory handle")) << Log::get().text();
        refused(
            pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &(size = 8), &tag, nullptr, nullptr, &req),
            req, "irecv");
        refused(send(nullptr, 8, r.smh), req, "isend");
        refused(receive(nullptr, 8, r.rmh), req, "irecv");
        refused(send(r.src.data(), huge, r.smh), req, "isend");
        refused(receive(data, huge, r.rmh), req, "irecv");
        refused(pvn_netdrv_iflush(r.p.d, r.p.rc, 1, &data, &bytes, &none, &req), req, "iflush");
        refused(pvn_netdrv_iflush(r.p.d, r.p.rc, 1, &none, &bytes, &r.rmh, &req), req, "iflush");
        bytes = -1;
        refused(pvn_netdrv_iflush(r.p.d, r.p.rc, 1, &data, &bytes, &r.rmh, &req), req, "iflush");
        // An empty message needs no memory.
        void *rr = nullptr, *sr = nullptr;
        int sd = 0, rd = 0;
        size = 0;
        EXPECT_TRUE(eventually([&] {
            if (!rr)
                pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &none, &size, &tag, nullptr, nullptr, &rr);
            if (!sr)
                pvn_netdrv_isend(r.p.d, r.p.sc, nullptr, 0, 0, nullptr, nullptr, &sr);
            if (sr && !sd)
                pvn_netdrv_test(r.p.d, sr, &sd, nullptr);
            if (rr && !rd)
                pvn_netdrv_test(r.p.d, rr, &rd, nullptr);
            return sd && rd;
        })) << Log::get().text();
        EXPECT_TRUE(r.move(2));
        EXPECT_FALSE(said("failover")) << Log::get().text();
    }
}

// TCP sends from unmapped memory, which needs no registration. A failover would meet the same
// error.
TEST_F(PluginArgs, MemoryThatIsNotThereIsNoLostLane)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "tcp", 1);
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    const size_t len = 1 << 20;
    void *gone = mmap(nullptr, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, gone);
    std::vector<char> here(len);
    void *sr = nullptr, *rr = nullptr, *mh = nullptr, *to = here.data();
    size_t size = huge;
    int tag = 0, done = 0;
    refused(pvn_netdrv_isend(p.d, p.sc, here.data(), huge, 0, nullptr, nullptr, &sr), sr, "isend");
    EXPECT_TRUE(said("isend: a message may have 2^40 bytes")) << Log::get().text();
    refused(pvn_netdrv_irecv(p.d, p.rc, 1, &to, &size, &tag, &mh, nullptr, &rr), rr, "irecv");
    size = len;
    ncclResult_t send_rc = ncclSuccess, recv_rc = ncclSuccess;
    EXPECT_TRUE(eventually([&] {
        if (!rr && !recv_rc)
            recv_rc = pvn_netdrv_irecv(p.d, p.rc, 1, &to, &size, &tag, &mh, nullptr, &rr);
        if (!sr && !send_rc)
            send_rc = pvn_netdrv_isend(p.d, p.sc, gone, len, 0, nullptr, nullptr, &sr);
        if (sr && !send_rc)
            send_rc = pvn_netdrv_test(p.d, sr, &done, nullptr);
        if (rr && !recv_rc)
            recv_rc = pvn_netdrv_test(p.d, rr, &done, nullptr);
        return send_rc && recv_rc;
    })) << Log::get().text();
    EXPECT_TRUE(said("Bad address")) << Log::get().text();
    EXPECT_FALSE(said("failover")) << Log::get().text();
    munmap(gone, len);
}

// NCCL 2.12 and 2.13 post receives whose size is that of the whole message, which may reach beyond
// the end of the shared buffers; one slot of them arrives.
TEST_F(PluginArgs, AReceiveMayReachBeyondItsRegistration)
{
    adapters("pvrdma", "");
    Net n(6);
    Route r(n);
    const size_t slot = 1000;
    void *data[2] = {r.dst.data() + 1000, r.dst.data() + Route::SIZE - slot},
         *mh[] = {r.rmh, r.rmh};
    int tags[2] = {1, 2}, done = 0, sent = 0, got[2] = {};
    size_t sizes[2] = {slot, Route::SIZE};
    void *rr = nullptr, *sr[2] = {};
    bytes::fill(r.src.data(), Route::SIZE, 9);
    EXPECT_TRUE(eventually([&] {
        if (!rr) {
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_irecv(r.p.d, r.p.rc, 2, data, sizes, tags, mh, nullptr, &rr));
        } else if (!done) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(r.p.d, rr, &done, got));
        }
        if (sent < 2 && !sr[sent]) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), slot, tags[sent],
                                                    r.smh, nullptr, &sr[sent]));
        } else if (sent < 2) {
            int d = 0;
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(r.p.d, sr[sent], &d, nullptr));
            sent += d;
        }
        return HasFailure() || (done && sent == 2);
    })) << Log::get().warnings();
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(static_cast<int>(slot), got[i]);
        EXPECT_TRUE(bytes::same(data[i], r.src.data(), slot));
    }
    // A message that is longer than what is registered ends the comm.
    void *rest = data[1], *req = nullptr;
    rr = nullptr;
    EXPECT_TRUE(eventually([&] {
        ncclResult_t rc = ncclSuccess;
        if (!rr)
            rc = pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &rest, &sizes[1], tags, mh, nullptr, &rr);
        if (rc == ncclSuccess && rr)
            rc = pvn_netdrv_test(r.p.d, rr, &done, nullptr);
        if (rc == ncclSuccess && req)
            rc = pvn_netdrv_test(r.p.d, req, &done, nullptr);
        else if (rc == ncclSuccess)
            rc = pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), slot + 1, 1, r.smh, nullptr, &req);
        return rc != ncclSuccess;
    }));
    EXPECT_TRUE(Log::get().warned({"1001", "1000"})) << Log::get().warnings();
}

// A wrong setting may be found after the adapters have been opened.
TEST_F(PluginArgs, AnInitThatFailsClosesTheAdapters)
{
    adapters("pvrdma", "");
    setenv("NCCL_PVRDMA_RAILS", "vmw_pvrdma0", 1);
    const auto before = descriptors();
    for (int i = 0; i < 2; i++) {
        Net n(12);
        EXPECT_EQ(ncclInvalidUsage, n.rc);
        EXPECT_EQ(before, descriptors());
    }
    unsetenv("NCCL_PVRDMA_RAILS");
    Net n(12);
    EXPECT_TRUE(Route(n).move(1));
}

} // namespace
