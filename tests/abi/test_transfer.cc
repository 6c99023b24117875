// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The interface's promises about data, with every version of it.
#include "abi/nccl_side.h"

#include <algorithm>
#include <random>

using namespace nccl;

namespace
{

std::string version_name(const testing::TestParamInfo<int> &i)
{
    return "v" + std::to_string(i.param);
}

class Abi : public testing::TestWithParam<int>
{
};
INSTANTIATE_TEST_SUITE_P(Versions, Abi, testing::Range(4, 13), version_name);
// Grouped receives and tags came with v5, NCCL_NET_OPTIONAL_RECV_COMPLETION with v9.
class AbiGroups : public Abi
{
};
INSTANTIATE_TEST_SUITE_P(Versions, AbiGroups, testing::Range(5, 13), version_name);
class AbiOptional : public Abi
{
};
INSTANTIATE_TEST_SUITE_P(Versions, AbiOptional, testing::Range(9, 13), version_name);

TEST_P(Abi, ItsNameDevicesAndPropertiesAreReported)
{
    Net n(GetParam());
    ASSERT_EQ(ncclSuccess, n.rc);
    EXPECT_STREQ("pvrdma", pvn_netdrv_name(n.d));
    int ndev = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
    ASSERT_EQ(1, ndev) << "loopback only, by NCCL_SOCKET_IFNAME";
    ncclNetProperties_v12_t p;
    memset(&p, 0x5a, sizeof(p));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, 0, &p));
    EXPECT_STREQ("lo", p.name);
    EXPECT_EQ(nullptr, p.pciPath);
    EXPECT_EQ(NCCL_PTR_HOST, p.ptrSupport);
    EXPECT_GT(p.speed, 0);
    EXPECT_GT(p.maxComms, 1000);
    EXPECT_EQ(1, p.maxRecvs);
    EXPECT_EQ(NCCL_NET_DEVICE_HOST, p.netDeviceType);
    if (GetParam() >= 9) {
        EXPECT_EQ(1, p.vProps.ndevs);
        EXPECT_EQ(0, p.vProps.devs[0]);
        EXPECT_GT(p.maxP2pBytes, size_t{1} << 32);
        EXPECT_LE(p.maxP2pBytes, size_t{NCCL_MAX_NET_SIZE_BYTES});
    }
    if (GetParam() == 12) {
        EXPECT_EQ(NCCL_NET_ID_UNDEF, p.railId);
    }
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_properties(n.d, 1, &p));
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_properties(n.d, -1, &p));
}

TEST_P(Abi, SizesFromNothingToMegabytes)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<size_t> sizes = {
        0,    1,     7,      8,      100,     255,           256,          4095, 4096,
        0,    65535, 65537,  131072, 524288,  524289,        999999,       0,    3,
        1000, 17,    262144, 500000, 1 << 20, (1 << 20) + 1, (3 << 20) + 5};
    Flow f = plain(p, sizes);
    f.window = std::min<size_t>(8, pvn_netdrv_max_requests(n.d));
    ASSERT_TRUE(f.run());
    f.check();
}

TEST_P(Abi, ReceivesLongerThanSends)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, {0, 1, 1000, 70000, 600000, 0, 5}, 4321);
    f.window = 4;
    ASSERT_TRUE(f.run());
    f.check();
}

TEST_P(Abi, AllRequestsInFlight)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<size_t> sizes;
    std::mt19937 rng(GetParam());
    for (int i = 0; i < 300; i++)
        sizes.push_back(rng() % 3 ? rng() % 3000 : rng() % 200000);
    Flow f = plain(p, sizes);
    f.window = pvn_netdrv_max_requests(n.d);
    ASSERT_TRUE(f.run());
    f.check();
}

TEST_P(AbiGroups, GroupedReceivesWithTagsInAnyOrder)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::mt19937 rng(7 * GetParam());
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    std::vector<std::vector<int>> expect;
    for (int round = 0; round < 6; round++)
        for (int g = 1; g <= 8; g++) {
            std::vector<int> order(g);
            Recv r;
            std::vector<int> e(g);
            for (int i = 0; i < g; i++)
                order[i] = i;
            std::shuffle(order.begin(), order.end(), rng);
            for (int i = 0; i < g; i++) {
                r.sizes.push_back(round % 2 ? 100000 : 600);
                r.tags.push_back(1000 + i);
            }
            for (int i = 0; i < g; i++) {
                e[order[i]] = static_cast<int>(sends.size());
                sends.push_back({rng() % (round % 2 ? 100001 : 601), 1000 + order[i]});
            }
            recvs.push_back(r);
            expect.push_back(e);
        }
    Flow f(p, sends, recvs, expect);
    ASSERT_TRUE(f.run());
    f.check();
}

TEST_P(AbiOptional, OptionalCompletionIsAHintOnly)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, {10, 0, 5000, 100000});
    f.optional = reinterpret_cast<void *>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
    ASSERT_TRUE(f.run());
    f.check();
}

TEST_P(Abi, RegistrationsAreChecked)
{
    Net n(GetParam());
    Pair p(n), q(n);
    ASSERT_TRUE(p.up() && q.up());
    Buffer b(4096);
    void *mh = nullptr, *other = nullptr, *req = nullptr;
    Log::get().clear();
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, b.data(), 4096, NCCL_PTR_HOST, &mh));
    ASSERT_NE(nullptr, mh);
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(q.d, q.sc, b.data(), 4096, NCCL_PTR_HOST, &other));
    EXPECT_EQ("", Log::get().warnings());

    void *gpu = nullptr;
    EXPECT_EQ(ncclInvalidUsage, pvn_netdrv_reg_mr(p.d, p.sc, b.data(), 4096, NCCL_PTR_CUDA, &gpu));
    EXPECT_EQ(nullptr, gpu);
    EXPECT_NE(std::string::npos, Log::get().warnings().find("cannot reach GPU memory"));
    if (GetParam() >= 6) {
        EXPECT_EQ(ncclInvalidUsage,
                  pvn_netdrv_reg_dmabuf(p.d, p.sc, b.data(), 4096, NCCL_PTR_CUDA, 0, 0, &gpu));
        EXPECT_NE(std::string::npos, Log::get().warnings().find("dma-buf"));
    }
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_reg_mr(p.d, p.sc, b.data(), 4096, 77, &gpu));
    EXPECT_EQ(ncclInvalidArgument,
              pvn_netdrv_reg_mr(p.d, p.sc, nullptr, 4096, NCCL_PTR_HOST, &gpu));

    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_dereg_mr(p.d, p.sc, other)) << "another comm's";
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, mh));
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_dereg_mr(p.d, p.sc, mh)) << "twice";
    if (GetParam() > 4) { // v4's comms are not up yet and take nothing
        EXPECT_EQ(ncclInvalidArgument,
                  pvn_netdrv_isend(p.d, p.sc, b.data(), 10, 0, other, nullptr, &req));
        EXPECT_EQ(nullptr, req);
    }
    // None of these errors has harmed the comm. Closing it removes registrations that are left.
    Flow f = plain(p, {100, 5000});
    EXPECT_TRUE(f.run());
    f.check();
}

TEST_P(Abi, FlushOfHostMemoryIsNothing)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, {1000});
    ASSERT_TRUE(f.run());
    Buffer b(1000);
    void *mh = nullptr, *req = &mh, *data = b.data();
    int size = 1000;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, data, 1000, NCCL_PTR_HOST, &mh));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_iflush(p.d, p.rc, 1, &data, &size, &mh, &req));
    EXPECT_EQ(nullptr, req);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, mh));
}

// A request that was reported complete no longer exists. Another test of it is the caller's error,
// which is reported.
TEST_P(Abi, TestOfAFinishedRequest)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Buffer a(100, 5), b(100);
    void *sr = nullptr, *rr = nullptr, *data = b.data(), *mh = nullptr;
    size_t size = 100;
    int tag = 0, sd = 0, rd = 0;
    ASSERT_TRUE(eventually([&] {
        if (!rr)
            pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, &rr);
        if (!sr)
            pvn_netdrv_isend(p.d, p.sc, a.data(), 100, 0, nullptr, nullptr, &sr);
        if (sr && !sd)
            pvn_netdrv_test(p.d, sr, &sd, nullptr);
        if (rr && !rd)
            pvn_netdrv_test(p.d, rr, &rd, nullptr);
        return sd && rd;
    }));
    Log::get().clear();
    int d = 1;
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_test(p.d, sr, &d, nullptr));
    EXPECT_EQ(0, d);
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_test(p.d, rr, &d, nullptr));
    EXPECT_NE(std::string::npos, Log::get().warnings().find("not in use"));
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_test(p.d, nullptr, &d, nullptr));
    Flow f = plain(p, {100});
    EXPECT_TRUE(f.run()) << "the comm goes on";
    f.check();
}

TEST_P(Abi, WrongArgumentsAreRefused)
{
    Net n(GetParam());
    ASSERT_EQ(ncclSuccess, n.rc);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *sc = nullptr;
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_listen(n.d, n.ctx, 99, handle, &lc));
    EXPECT_EQ(nullptr, lc);
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_listen(n.d, n.ctx, -1, handle, &lc));
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, {1});
    ASSERT_TRUE(f.run()); // v4's comms are up by now
    Buffer b(64);
    void *data[9], *mh[9] = {}, *req = nullptr;
    size_t sizes[9];
    int tags[9] = {};
    for (int i = 0; i < 9; i++) {
        data[i] = b.data();
        sizes[i] = 1;
    }
    EXPECT_EQ(ncclInvalidArgument,
              pvn_netdrv_irecv(p.d, p.rc, 9, data, sizes, tags, mh, nullptr, &req));
    EXPECT_EQ(ncclInvalidArgument,
              pvn_netdrv_irecv(p.d, p.rc, 0, data, sizes, tags, mh, nullptr, &req));
    EXPECT_EQ(ncclInvalidArgument,
              pvn_netdrv_irecv(p.d, p.sc, 1, data, sizes, tags, mh, nullptr, &req))
        << "receiving on the sending end";
    EXPECT_EQ(ncclInvalidArgument,
              pvn_netdrv_isend(p.d, p.rc, b.data(), 1, 0, nullptr, nullptr, &req));
    EXPECT_EQ(ncclInvalidArgument,
              pvn_netdrv_isend(p.d, p.sc, nullptr, 1, 0, nullptr, nullptr, &req));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, nullptr));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, nullptr));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, nullptr));
    (void)sc;
    Flow g = plain(p, {1, 2, 3});
    EXPECT_TRUE(g.run());
    g.check();
}

TEST_P(Abi, SendLongerThanItsReceive)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Log::get().clear();
    Flow f(p, {{5000, 0}}, {{{100}, {0}}}, {{0}});
    // The receiver notices the failure. Small sends may be complete by then, but the comm's next
    // call reports it.
    EXPECT_FALSE(f.run(20));
    EXPECT_EQ(ncclRemoteError, f.error) << Log::get().text();
    std::string w = Log::get().warnings();
    EXPECT_NE(std::string::npos, w.find("5000")) << w;
    EXPECT_NE(std::string::npos, w.find("takes 100")) << w;
    // The sender gets the same text.
    Buffer b(10);
    ncclResult_t rc = ncclSuccess;
    EXPECT_TRUE(eventually([&] {
        void *req = nullptr;
        int d;
        rc = pvn_netdrv_isend(p.d, p.sc, b.data(), 10, 0, nullptr, nullptr, &req);
        if (rc == ncclSuccess && req)
            rc = pvn_netdrv_test(p.d, req, &d, nullptr);
        return rc != ncclSuccess;
    }));
    EXPECT_EQ(ncclRemoteError, rc);
    EXPECT_NE(std::string::npos, Log::get().warnings().find("the peer gave up"));
}

// If isend took a message and test reported it complete, it reaches a receiver that posts only
// after the sender's close.
TEST_P(Abi, DoneSendsOutliveTheSender)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow warm = plain(p, {1});
    ASSERT_TRUE(warm.run());
    std::vector<Buffer> src;
    std::vector<size_t> sizes = {100, 0, 3000, 20000, 7};
    for (size_t i = 0; i < sizes.size(); i++) {
        src.emplace_back(sizes[i], 50 + i);
        void *req = nullptr;
        int d = 0;
        ASSERT_TRUE(eventually([&] {
            if (!req) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_isend(p.d, p.sc, src[i].data(), sizes[i], 0,
                                                        nullptr, nullptr, &req));
            }
            if (req) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &d, nullptr));
            }
            return d != 0;
        }));
    }
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(p.d, p.sc));
    p.sc = nullptr;
    for (size_t i = 0; i < sizes.size(); i++) {
        Buffer dst(20000);
        void *req = nullptr, *data = dst.data(), *mh = nullptr;
        size_t cap = 20000;
        int tag = 0, d = 0, got = -1;
        ASSERT_TRUE(eventually([&] {
            if (!req) {
                EXPECT_EQ(ncclSuccess,
                          pvn_netdrv_irecv(p.d, p.rc, 1, &data, &cap, &tag, &mh, nullptr, &req));
            }
            if (req) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &d, &got));
            }
            return d != 0 || testing::Test::HasFailure();
        })) << i;
        EXPECT_EQ(static_cast<int>(sizes[i]), got);
        EXPECT_TRUE(dst.holds(sizes[i], 50 + i)) << i;
    }
    // The next receive after these reports that the peer is gone, and does not wait without end.
    Buffer dst(10);
    void *req = nullptr, *data = dst.data(), *mh = nullptr;
    size_t cap = 10;
    int tag = 0, d = 0;
    ncclResult_t rc = ncclSuccess;
    EXPECT_TRUE(eventually([&] {
        if (!req)
            rc = pvn_netdrv_irecv(p.d, p.rc, 1, &data, &cap, &tag, &mh, nullptr, &req);
        if (req)
            rc = pvn_netdrv_test(p.d, req, &d, nullptr);
        return rc != ncclSuccess;
    }));
    EXPECT_EQ(ncclRemoteError, rc);
}

TEST_P(Abi, CloseWithTrafficInFlight)
{
    Net n(GetParam());
    for (int round = 0; round < 6; round++) {
        Pair p(n);
        ASSERT_TRUE(p.up());
        std::vector<size_t> sizes(40, round % 2 ? 300000 : 2000);
        Flow f = plain(p, sizes);
        f.window = std::min(8, pvn_netdrv_max_requests(n.d));
        for (int i = 0; i < 2 + 7 * round && f.step(); i++)
            ;
        EXPECT_EQ(ncclSuccess, f.error) << Log::get().text();
        if (round < 3) { // either the sender closes first, or the receiver
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(p.d, p.sc));
            p.sc = nullptr;
        } else {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(p.d, p.rc));
            p.rc = nullptr;
        }
    }
    Pair q(n);
    ASSERT_TRUE(q.up()) << "other comms are unharmed";
    Flow f = plain(q, {5, 100000});
    EXPECT_TRUE(f.run());
    f.check();
}

// A user's thread registers memory while NCCL's thread uses the comm. Each gets the result of its
// own call. ThreadSanitizer judges what they share.
TEST(Registrations, RefusalsOfTwoThreadsAreTheirOwn)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Buffer b(64);
    std::atomic<int> wrong{0};
    std::thread user([&] {
        for (int i = 0; i < 20000; i++) {
            void *mh = nullptr;
            wrong +=
                pvn_netdrv_reg_mr(n.d, p.rc, b.data(), b.n, NCCL_PTR_CUDA, &mh) != ncclInvalidUsage;
        }
    });
    for (int i = 0; i < 20000; i++) {
        void *req = nullptr;
        wrong += pvn_netdrv_isend(n.d, p.rc, b.data(), b.n, 0, nullptr, nullptr, &req) !=
                 ncclInvalidArgument;
    }
    user.join();
    EXPECT_EQ(0, wrong);
    p.close();
}

} // namespace
