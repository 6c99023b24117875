// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Comms of several threads that fail over at the same time, while other threads register memory with
// them, as NCCL's proxy and user threads do. ThreadSanitizer judges what they share.
#include "abi/nccl_side.h"

#include <atomic>

#include "softverbs/fixture.h"

using namespace nccl;

namespace
{

constexpr size_t SIZE = 64 << 10, DEPTH = 4;
constexpr int MESSAGES = 300, THREADS = 2;

struct Message {
    std::vector<unsigned char> src, dst;
    void *smh = nullptr, *rmh = nullptr, *s = nullptr, *r = nullptr;
    bool sent = false, received = false;

    explicit Message(Pair &p) : src(SIZE), dst(SIZE)
    {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), SIZE, NCCL_PTR_HOST, &smh));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), SIZE, NCCL_PTR_HOST, &rmh));
    }
    // One call of each that is due; an error ends the test.
    bool step(Pair &p)
    {
        void *data = dst.data();
        size_t size = SIZE;
        int tag = 0, done = 0, got = 0;
        ncclResult_t rc = ncclSuccess;
        if (!r && !received)
            rc = pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &r);
        if (rc == ncclSuccess && !s && !sent)
            rc = pvn_netdrv_isend(p.d, p.sc, src.data(), SIZE, 0, smh, nullptr, &s);
        if (rc == ncclSuccess && s && !sent) {
            rc = pvn_netdrv_test(p.d, s, &done, nullptr);
            sent = done;
        }
        if (rc == ncclSuccess && r && !received) {
            rc = pvn_netdrv_test(p.d, r, &done, &got);
            received = done;
        }
        return rc == ncclSuccess;
    }
};

// The data calls of one pair, from one thread. Messages go in rounds, each with bytes of its own.
void transfer(Pair &p)
{
    std::vector<Message> m;
    for (size_t i = 0; i < DEPTH; i++)
        m.emplace_back(p);
    for (int round = 0; round < MESSAGES; round++) {
        for (size_t i = 0; i < DEPTH; i++) {
            memset(m[i].src.data(), static_cast<int>(round * DEPTH + i) & 0xff, SIZE);
            m[i].s = m[i].r = nullptr;
            m[i].sent = m[i].received = false;
        }
        bool ok = true, all = false;
        eventually([&] {
            all = true;
            for (auto &x : m) {
                ok = ok && x.step(p);
                all = all && x.sent && x.received;
                if (!x.s || !x.r)
                    break; // in order
            }
            return !ok || all;
        });
        ASSERT_TRUE(ok && all) << Log::get().text();
        for (auto &x : m)
            ASSERT_EQ(x.src, x.dst) << "round " << round;
    }
}

TEST(Failover, ThreadsWithCommsOfTheirOwn)
{
    sv::ForPlugin softverbs;
    sv::ForPlugin::play("pvrdma", "set gid_tbl_len 8");
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    Net n(8);
    std::vector<std::unique_ptr<Pair>> pairs;
    for (int i = 0; i < 2 * THREADS; i++) {
        pairs.push_back(std::make_unique<Pair>(n));
        ASSERT_TRUE(pairs.back()->up());
    }
    ASSERT_EQ(0, sv::command("rule break status status=RETRY_EXC_ERR nth=100 every=300 count=6"));
    std::atomic<bool> stop{false};
    std::atomic<int> registered{0};
    std::thread user([&] {
        std::vector<unsigned char> memory(4096);
        for (int i = 0; !stop; i++) {
            Pair &p = *pairs[i % THREADS];
            void *mh = nullptr, *comm = i & 4 ? p.sc : p.rc;
            if (pvn_netdrv_reg_mr(p.d, comm, memory.data(), 4096, NCCL_PTR_HOST, &mh) ==
                ncclSuccess) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, comm, mh));
                registered++;
            }
        }
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back([&, i] { transfer(*pairs[i]); });
    for (auto &t : threads)
        t.join();
    stop = true;
    user.join();
    EXPECT_GT(registered, 0);
    EXPECT_GT(sv::lib().sv_rule_fired("break"), 0u);
    EXPECT_TRUE(said("connected again after"));
    EXPECT_EQ(0, sv::command("rules clear"));
}

} // namespace
