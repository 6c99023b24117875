// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Several queue pairs are paths, of which one is slow. Time is simulated: it advances when nothing
// more happens at the present time. So the counts do not depend on the machine.
#include "rdma/lane_traffic.h"

#include <algorithm>
#include <atomic>
#include <dlfcn.h>

namespace
{

std::atomic<uint64_t> time_ns{1000000};
uint64_t now_ns()
{
    return time_ns.load();
}

struct Shape {
    pvn_rdma_mode mode;
    bool costly;
    size_t message;
};

class Paths : public testing::TestWithParam<Shape>
{
  protected:
    enum { QPS = 4, DEPTH = 8, CHUNK = 8192, TICK_US = 100 };
    const int messages = GetParam().message > CHUNK ? 300 : 2400;
    struct sv_hooks *hooks = nullptr;
    RdmaPair p;

    void SetUp() override
    {
        if (real_verbs())
            GTEST_SKIP() << "softverbs delays, and has the test's clock";
#ifdef __SANITIZE_THREAD__
        GTEST_SKIP()
            << "the clock goes on before softverbs' thread, which is slow here, has done its work";
#endif
        hooks = static_cast<struct sv_hooks *>(dlsym(sv::lib().handle, "sv_hooks"));
        ASSERT_NE(nullptr, hooks);
        hooks->now = now_ns;
        RdmaOptions o;
        o.profile = GetParam().costly ? "pvrdma" : "roce";
        o.mode = GetParam().mode;
        o.costly = GetParam().costly;
        o.qps = QPS;
        o.chunk = CHUNK;
        o.now = now_ns;
        p.open(o);
    }

    void TearDown() override
    {
        if (hooks)
            hooks->now = nullptr;
    }

    // Makes each chunk on queue pair k take ms[k].
    void delays(const int (&ms)[QPS])
    {
        const rdma_offer o = offer_of(p.tx.lane);
        ASSERT_EQ(0, sv::command("rules clear"));
        for (int k = 0; k < QPS; k++) {
            const std::string name = "path" + std::to_string(k);
            ASSERT_EQ(0, sv::command(("rule " + name + " delay ms=" + std::to_string(ms[k]) +
                                      " qpn=" + std::to_string(o.qpn[k]) +
                                      " min_len=" + std::to_string(CHUNK) + " count=0")
                                         .c_str()));
        }
    }

    int64_t chunks(int k)
    {
        return sv::lib().sv_rule_fired(("path" + std::to_string(k)).c_str());
    }

    // Sends `messages` messages, with DEPTH in flight and tested in order. Returns the ticks that
    // it took.
    int ticks()
    {
        const size_t size = GetParam().message;
        std::vector<uint8_t> out = bytes::of(DEPTH * size, 3), in(out.size());
        pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
        pvn_req *s[DEPTH] = {}, *r[DEPTH] = {};
        int sp = 0, st = 0, rp = 0, rt = 0, n = 0, still = 0;
        for (Deadline wait; wait.left() && (st < messages || rt < messages);) {
            bool moved = false;
            int d = 0;
            for (; rp < messages && rp - rt < DEPTH; rp++, moved = true)
                EXPECT_EQ(0, irecv(p, &in[rp % DEPTH * size], size, 1, rmr, &r[rp % DEPTH]));
            if (sp < messages && sp - st < DEPTH) {
                EXPECT_EQ(0, pvn_engine_isend(p.tx.e, &out[sp % DEPTH * size], size, 1, smr,
                                              &s[sp % DEPTH]));
                moved |= s[sp % DEPTH] != nullptr;
                sp += s[sp % DEPTH] != nullptr;
            }
            if (st < sp) {
                EXPECT_EQ(0, pvn_engine_test(s[st % DEPTH], &d, nullptr))
                    << p.tx.lane->err.reason[0];
                moved |= d;
                st += d;
            }
            d = 0;
            if (rt < rp) {
                EXPECT_EQ(0, pvn_engine_test(r[rt % DEPTH], &d, nullptr))
                    << p.rx.lane->err.reason[0];
                moved |= d;
                rt += d;
            }
            // Some polls may only read memory.
            still = moved ? 0 : still + 1;
            if (still < 20)
                continue;
            time_ns += TICK_US * 1000;
            EXPECT_EQ(0, sv::command("timers"));
            still = 0;
            n++;
        }
        EXPECT_EQ(messages, st) << stuck(p);
        EXPECT_EQ(messages, rt) << stuck(p);
        EXPECT_EQ(out, in);
        p.tx.unreg_last();
        p.rx.unreg_last();
        return n;
    }
};

// One of four paths is ten times slower. The rate is at least 0.7 of that of four equal paths, and
// the slow path is retried now and then.
TEST_P(Paths, ASlowOneIsAvoided)
{
    delays({1, 1, 1, 1});
    const int alike = ticks();
    int64_t least = chunks(0), most = chunks(0);
    for (int k = 1; k < QPS; k++) {
        least = std::min(least, chunks(k));
        most = std::max(most, chunks(k));
    }
    EXPECT_GT(least, most / 2) << "paths that are alike share";
    delays({1, 1, 10, 1});
    ticks(); // the lane learns the delays
    delays({1, 1, 10, 1});
    const int one_slow = ticks();
    printf("%d ticks, with a slow path %d: %.2f of the rate; chunks %lld %lld %lld %lld\n", alike,
           one_slow, static_cast<double>(alike) / one_slow, static_cast<long long>(chunks(0)),
           static_cast<long long>(chunks(1)), static_cast<long long>(chunks(2)),
           static_cast<long long>(chunks(3)));
    EXPECT_LE(0.7 * one_slow, alike);
    EXPECT_GT(chunks(2), 0) << "the slow path is to be tried again now and then";
    EXPECT_LT(chunks(2), chunks(0) / 2);
    char text[256];
    p.tx.lane->ops->describe(p.tx.lane, text, sizeof(text));
    EXPECT_NE(nullptr, strstr(text, "outstanding bytes 0/0/0/0")) << text;
    EXPECT_NE(nullptr, strstr(text, ", shares ")) << text;
}

// A path that has become as fast as the others gets its share again.
TEST_P(Paths, OneThatIsNoLongerSlowIsUsed)
{
    delays({1, 1, 10, 1});
    ticks();
    for (int round = 0; round < 30; round++) {
        delays({1, 1, 1, 1});
        ticks();
        if (chunks(2) > chunks(0) / 2)
            return;
    }
    FAIL() << "it is still avoided";
}

INSTANTIATE_TEST_SUITE_P(Shapes, Paths,
                         testing::Values(Shape{PVN_RDMA_RECORD, true, 8192},
                                         Shape{PVN_RDMA_RECORD, true, 16 * 8192},
                                         Shape{PVN_RDMA_RECORD, false, 8192},
                                         Shape{PVN_RDMA_IMM, true, 8192},
                                         Shape{PVN_RDMA_IMM, false, 16 * 8192}));

} // namespace
