// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Many connections, many threads, and memory that the plugin's cache registers
#include "softverbs/fixture.h"

#include <memory>
#include <thread>

extern "C" {
#include "memory/memcache.h"
}

namespace
{

using namespace sv;

bool stat_says(const char *text)
{
    char all[512];
    EXPECT_EQ(lib().sv_command("stat", all, sizeof all), 0);
    if (!strstr(all, text))
        fprintf(stderr, "stat: %s\n", all);
    return strstr(all, text) != nullptr;
}

TEST(Scale, AThousandConnectionsLeaveNothing)
{
    enum { N = 1000 };
    ASSERT_EQ(lib().sv_configure("set max_qp 4000"), 0);
    {
        End home; // device, PD, CQ and buffer for all connections
        home.drop();
        std::vector<ibv_qp *> qps;
        auto make = [&] {
            home.qp = nullptr;
            home.cap = {64, 64, 4, 4, 0};
            home.create();
            ASSERT_NE(home.qp, nullptr) << strerror(errno);
            qps.push_back(home.qp);
        };
        for (int i = 0; i < 2 * N; i++)
            make();
        for (int i = 0; i < 2 * N; i++) {
            home.qp = qps[size_t(i ^ 1)];
            Address peer = home.address();
            home.qp = qps[size_t(i)];
            ASSERT_EQ(home.connect(peer), 0);
        }
        EXPECT_TRUE(stat_says("qps=2000"));
        for (int i = 0; i < N; i++) {
            home.qp = qps[size_t(2 * i)];
            home.buf[i] = char(i);
            ASSERT_EQ(home.post(IBV_WR_RDMA_WRITE, size_t(i), 1, uint64_t(i),
                                home.addr(size_t(i) + N), home.mr->rkey),
                      0);
            ibv_wc wc = home.wait();
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
            ASSERT_EQ(wc.wr_id, uint64_t(i));
            ASSERT_EQ(wc.qp_num, home.qp->qp_num);
        }
        EXPECT_EQ(memcmp(home.buf, home.buf + N, N), 0);
        for (ibv_qp *q : qps)
            ASSERT_EQ(lib().ibv_destroy_qp(q), 0);
        home.qp = nullptr;
        EXPECT_TRUE(stat_says("qps=0"));
    }
    EXPECT_TRUE(stat_says("qps=0 mrs=0"));
    EXPECT_TRUE(stat_says("leaked=0"));
}

TEST(Scale, QpnsAreNotUsedAgainSoon)
{
    ASSERT_EQ(lib().sv_configure(""), 0);
    End e;
    uint32_t last = 0;
    for (int i = 0; i < 100; i++) {
        e.create();
        ASSERT_NE(e.qp->qp_num, last);
        last = e.qp->qp_num;
        e.drop();
    }
}

TEST(Scale, ThreadsWithTheirOwnConnections)
{
    for (const char *mode : {"profile pvrdma", "profile roce\nset async 1"}) {
        ASSERT_EQ(lib().sv_configure(mode), 0);
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++)
            threads.emplace_back([t] {
                End a, b;
                a.create();
                b.create();
                ASSERT_EQ(a.connect(b.address()), 0);
                ASSERT_EQ(b.connect(a.address()), 0);
                for (unsigned i = 0; i < 200; i++) {
                    size_t len = 1 + (i * 977u) % 60000;
                    a.fill(i + unsigned(t), len);
                    ASSERT_EQ(b.recv(0, 0, i), 0);
                    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, len, i, b.addr(), b.mr->rkey),
                              0);
                    ASSERT_EQ(a.wait().status, IBV_WC_SUCCESS);
                    ASSERT_EQ(b.wait().byte_len, len);
                    ASSERT_EQ(memcmp(a.buf, b.buf, len), 0);
                }
            });
        for (auto &t : threads)
            t.join();
        EXPECT_TRUE(stat_says("qps=0 mrs=0"));
    }
}

// ---- the registration cache on two devices ----

struct Cache {
    End *end[2];
    pvn_memcache *c;

    static int reg(void *arg, int dev, uintptr_t addr, size_t len, const pvn_mem_kind *kind,
                   const void *, void **handle, pvn_err *err)
    {
        auto *self = static_cast<Cache *>(arg);
        ibv_mr *m = self->end[dev]->reg(reinterpret_cast<void *>(addr), len, int(kind->access));
        if (!m)
            return pvn_err_set(err, -errno, "device %d", dev);
        *handle = m;
        return 0;
    }
    static void dereg(void *, int, void *handle)
    {
        EXPECT_EQ(lib().ibv_dereg_mr(static_cast<ibv_mr *>(handle)), 0);
    }
    explicit Cache(End *a, End *b) : end{a, b}
    {
        static const pvn_memcache_ops ops = {reg, dereg};
        c = pvn_memcache_new(&ops, this, 4096);
    }
    ~Cache()
    {
        EXPECT_EQ(pvn_memcache_free(c), 0u);
    }
    pvn_mem *get(void *p, size_t n, pvn_err *err, int *rc)
    {
        pvn_mem *m = nullptr;
        pvn_mem_kind s{1, unsigned(kAll), 0};
        *rc = pvn_memcache_get(c, reinterpret_cast<uintptr_t>(p), n, &s, 3, nullptr, &m, err);
        return m;
    }
    void put(pvn_mem *m, void *p, size_t n)
    {
        pvn_memcache_put(c, m, reinterpret_cast<uintptr_t>(p), n);
    }
};

TEST(Memcache, KeysOfSharedRegionsWorkUntilTheLastIsGivenBack)
{
    ASSERT_EQ(lib().sv_configure("set devices 2\nset timeout_cap_ms 2"), 0);
    End a(0), b(1);
    a.create();
    b.create();
    ASSERT_EQ(a.connect(b.address()), 0);
    ASSERT_EQ(b.connect(a.address()), 0);
    Cache cache(&a, &b);
    std::unique_ptr<char, void (*)(void *)> mem(static_cast<char *>(aligned_alloc(4096, 1 << 16)),
                                                free);
    memset(mem.get(), 0, 1 << 16);
    pvn_err err{};
    int rc;
    pvn_mem *whole = cache.get(mem.get(), 1 << 16, &err, &rc);
    ASSERT_EQ(rc, 0) << err.reason[0];
    pvn_mem *part = cache.get(mem.get() + 5000, 100, &err, &rc);
    ASSERT_EQ(part, whole);
    EXPECT_TRUE(stat_says("mrs=4")) << "two buffers of the ends, one region on two devices";
    auto *mr = static_cast<ibv_mr *>(part->handle[1]);
    uint32_t rkey = mr->rkey;
    cache.put(whole, mem.get(), 1 << 16);
    memcpy(a.buf, "still registered", 17);
    ASSERT_EQ(
        a.post(IBV_WR_RDMA_WRITE, 0, 17, 1, reinterpret_cast<uintptr_t>(mem.get()) + 5000, rkey),
        0);
    EXPECT_EQ(a.wait().status, IBV_WC_SUCCESS);
    EXPECT_STREQ(mem.get() + 5000, "still registered");
    cache.put(part, mem.get() + 5000, 100);
    EXPECT_TRUE(stat_says("mrs=2"));
    ASSERT_EQ(
        a.post(IBV_WR_RDMA_WRITE, 0, 17, 2, reinterpret_cast<uintptr_t>(mem.get()) + 5000, rkey),
        0);
    EXPECT_EQ(a.wait().status, IBV_WC_REM_ACCESS_ERR)
        << "nothing is left that a late write could meet";
}

TEST(Memcache, ADeviceThatRefusesUndoesTheOther)
{
    ASSERT_EQ(lib().sv_configure(
                  "set devices 2\nrule full fail call=reg_mr errno=ENOMEM dev=vmw_pvrdma1 nth=2"),
              0);
    End a(0), b(1);
    Cache cache(&a, &b);
    pvn_err err{};
    int rc;
    EXPECT_EQ(cache.get(a.buf, 8192, &err, &rc), nullptr);
    EXPECT_EQ(rc, -ENOMEM);
    EXPECT_STREQ(err.reason[0], "device 1");
    EXPECT_EQ(lib().sv_rule_fired("full"), 1);
    EXPECT_TRUE(stat_says("mrs=2")) << "only the ends' own buffers";
    pvn_mem *m = cache.get(a.buf, 8192, &err, &rc);
    EXPECT_EQ(rc, 0) << "the next attempt works";
    cache.put(m, a.buf, 8192);
    EXPECT_TRUE(stat_says("mrs=2"));
}

} // namespace
