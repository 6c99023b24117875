// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The registration cache compared with a naive list. The devices count registrations and sometimes
// refuse them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

extern "C" {
#include "memory/memcache.h"
}

namespace
{

// Devices that remember their registrations.
struct Devices {
    std::set<uintptr_t> live; // handles
    uintptr_t next = 1;
    int regs = 0, deregs = 0, refuse_dev = -1, refuse_rc = 0;
    const void *last_extra = nullptr;

    static int reg(void *arg, int dev, uintptr_t, size_t, const pvn_mem_kind *, const void *extra,
                   void **handle, pvn_err *err)
    {
        auto *d = static_cast<Devices *>(arg);
        d->last_extra = extra;
        if (dev == d->refuse_dev)
            return pvn_err_set(err, d->refuse_rc, "device %d refuses", dev);
        d->regs++;
        *handle = reinterpret_cast<void *>(d->next);
        d->live.insert(d->next++);
        return 0;
    }
    static void dereg(void *arg, int, void *handle)
    {
        auto *d = static_cast<Devices *>(arg);
        d->deregs++;
        EXPECT_EQ(d->live.erase(reinterpret_cast<uintptr_t>(handle)), 1u) << "taken away twice";
    }
};

const pvn_memcache_ops ops = {Devices::reg, Devices::dereg};

class Memcache : public testing::Test
{
  protected:
    Devices d;
    pvn_memcache *c = pvn_memcache_new(&ops, &d, 4096);
    pvn_err err{};
    pvn_mem_kind host{1, 7, 0};

    ~Memcache() override
    {
        if (c) {
            EXPECT_EQ(pvn_memcache_free(c), 0u);
        }
        EXPECT_TRUE(d.live.empty());
    }
    pvn_mem *get(uintptr_t addr, size_t len, uint32_t devs = 1)
    {
        pvn_mem *m = nullptr;
        EXPECT_EQ(pvn_memcache_get(c, addr, len, &host, devs, nullptr, &m, &err), 0)
            << err.reason[0];
        return m;
    }
    pvn_memcache_stats stats()
    {
        pvn_memcache_stats s;
        pvn_memcache_get_stats(c, &s);
        return s;
    }
};

TEST_F(Memcache, PartsShareTheWhole)
{
    pvn_mem *whole = get(0x10000, 0x8000);
    EXPECT_EQ(whole->addr, 0x10000u);
    EXPECT_EQ(whole->len, 0x8000u);
    pvn_mem *part = get(0x11000, 100), *last = get(0x17fff, 1);
    EXPECT_EQ(part, whole);
    EXPECT_EQ(last, whole);
    EXPECT_EQ(d.regs, 1);
    pvn_mem *over = get(0x17fff, 2);
    EXPECT_NE(over, whole) << "one byte beyond";
    EXPECT_EQ(over->addr, 0x17000u) << "widened to pages";
    EXPECT_EQ(over->len, 0x2000u);
    pvn_memcache_put(c, part, 0x11000, 100);
    pvn_memcache_put(c, whole, 0x10000, 0x8000);
    EXPECT_EQ(d.deregs, 0);
    pvn_memcache_put(c, last, 0x17fff, 1);
    EXPECT_EQ(d.deregs, 1) << "the last reference takes it away";
    pvn_memcache_put(c, over, 0x17fff, 2);
}

// Two neighbours in an allocator's arena. The pages of the larger one are unmapped, and other pages
// get their addresses.
TEST_F(Memcache, ARegionWhosePagesMayBeOthersIsNotOffered)
{
    pvn_mem *large = get(0x10000, 4196), *small = get(0x11388, 200);
    EXPECT_EQ(small, large);
    pvn_memcache_put(c, large, 0x10000, 4196);
    EXPECT_EQ(d.deregs, 0) << "the small one uses it";
    pvn_mem *again = get(0x10000, 4096);
    EXPECT_EQ(d.regs, 2) << "the region of old pages was given out";
    EXPECT_NE(again, small);
    EXPECT_EQ(again->len, 0x1000u);
    pvn_mem *neighbour = get(0x11388, 200);
    EXPECT_NE(neighbour, small);
    EXPECT_EQ(neighbour->addr, 0x11000u);
    EXPECT_EQ(stats().regions, 3u);
    pvn_memcache_put(c, small, 0x11388, 200);
    EXPECT_EQ(d.deregs, 1);
    pvn_memcache_put(c, again, 0x10000, 4096);
    pvn_memcache_put(c, neighbour, 0x11388, 200);
}

// A region stays available while any user holds all of it. That user need not be the one that
// registered it.
TEST_F(Memcache, ARegionIsOfferedWhileAnyoneHasAllOfIt)
{
    pvn_mem *first = get(0x10000, 0x2000), *other = get(0x10001, 0x1ffe), *part = get(0x11000, 8);
    EXPECT_EQ(d.regs, 1) << "the pages are the same";
    pvn_memcache_put(c, first, 0x10000, 0x2000);
    pvn_mem *more = get(0x10000, 0x1000);
    EXPECT_EQ(d.regs, 1);
    pvn_memcache_put(c, other, 0x10001, 0x1ffe);
    pvn_memcache_put(c, more, 0x10000, 0x1000);
    pvn_memcache_put(c, part, 0x11000, 8);
    EXPECT_EQ(d.deregs, 1);
}

// Some pages of a region are gone. No device is added to it, because the device could not register
// it.
TEST_F(Memcache, WhatIsRetiredIsCountedAndTakenAway)
{
    pvn_mem *a = get(0x10000, 0x2000), *b = get(0x30000, 0x2000);
    get(0x11000, 8);
    get(0x31000, 8);
    pvn_memcache_put(c, a, 0x10000, 0x2000);
    pvn_memcache_put(c, b, 0x30000, 0x2000);
    get(0x11000, 8, 2);
    EXPECT_EQ(stats().regions, 3u);
    EXPECT_EQ(pvn_memcache_free(c), 3u);
    c = nullptr;
    EXPECT_EQ(d.deregs, 3);
}

TEST_F(Memcache, KindsDoNotMix)
{
    pvn_mem_kind kinds[] = {{1, 7, 0}, {2, 7, 0}, {1, 3, 0}, {2, 7, 99}};
    std::vector<pvn_mem *> all;
    for (auto &s : kinds) {
        pvn_mem *m;
        ASSERT_EQ(pvn_memcache_get(c, 0x4000, 0x1000, &s, 1, nullptr, &m, &err), 0);
        EXPECT_EQ(std::count(all.begin(), all.end(), m), 0);
        EXPECT_EQ(m->kind.buffer_id, s.buffer_id);
        all.push_back(m);
    }
    for (auto *m : all)
        pvn_memcache_put(c, m, 0x4000, 0x1000);
}

TEST_F(Memcache, AllDevicesOrNone)
{
    d.refuse_dev = 2;
    d.refuse_rc = -ENOMEM;
    pvn_mem *m = nullptr;
    EXPECT_EQ(pvn_memcache_get(c, 0x4000, 100, &host, 0xf, nullptr, &m, &err), -ENOMEM);
    EXPECT_EQ(m, nullptr);
    EXPECT_STREQ(err.reason[0], "device 2 refuses");
    EXPECT_TRUE(d.live.empty()) << "devices 0 and 1 were undone";
    EXPECT_EQ(stats().regions, 0u);
    m = get(0x4000, 100, 0x3);
    EXPECT_NE(m->handle[0], nullptr);
    EXPECT_EQ(m->handle[2], nullptr);
    pvn_mem *more = nullptr;
    EXPECT_EQ(pvn_memcache_get(c, 0x4000, 100, &host, 0xe, nullptr, &more, &err), -ENOMEM);
    EXPECT_EQ(d.live.size(), 2u) << "what was there before stays, what the call added is gone";
    d.refuse_dev = -1;
    int extra = 0;
    EXPECT_EQ(pvn_memcache_get(c, 0x4000, 100, &host, 0xe, &extra, &more, &err), 0);
    EXPECT_EQ(d.last_extra, &extra);
    EXPECT_EQ(more, m);
    EXPECT_EQ(d.live.size(), 4u);
    pvn_memcache_put(c, m, 0x4000, 100);
    EXPECT_EQ(d.live.size(), 4u);
    pvn_memcache_put(c, more, 0x4000, 100);
}

TEST_F(Memcache, ImpossibleRangesAreRefused)
{
    pvn_mem *m;
    EXPECT_EQ(pvn_memcache_get(c, 0x4000, 0, &host, 1, nullptr, &m, &err), -EINVAL);
    EXPECT_EQ(pvn_memcache_get(c, UINTPTR_MAX - 10, 100, &host, 1, nullptr, &m, &err), -EINVAL);
    EXPECT_EQ(pvn_memcache_get(c, UINTPTR_MAX - 10, 5, &host, 1, nullptr, &m, &err), -EINVAL)
        << "its last page ends beyond the address space";
    EXPECT_EQ(pvn_memcache_get(c, 0x4000, 10, &host, 0, nullptr, &m, &err), -EINVAL);
    EXPECT_EQ(d.regs, 0);
}

TEST_F(Memcache, WhatIsLeftIsCountedAndTakenAway)
{
    get(0x1000, 10);
    get(0x9000, 10, 0x80000001u);
    EXPECT_EQ(pvn_memcache_free(c), 2u);
    c = nullptr;
    EXPECT_EQ(d.deregs, 3);
}

// An entry of the naive list, for each region that the cache must hold.
struct Entry {
    uintptr_t from, to;
    std::tuple<int, unsigned, uint64_t> kind;
    uint64_t refs, whole;
    uint32_t devs;
};

struct Held {
    pvn_mem *m;
    uintptr_t addr;
    size_t len;
    bool whole;
};

TEST_F(Memcache, BehavesLikeANaiveList)
{
    for (unsigned seed = 1; seed <= 40; seed++) {
        std::mt19937 rng(seed);
        auto pick = [&](unsigned n) { return unsigned(rng() % n); };
        std::map<pvn_mem *, Entry> model;
        std::vector<Held> held;
        const unsigned span =
            seed % 4 == 0 ? 12 : 400; // pages: few, so that regions overlap, or many
        for (int step = 0; step < 1500; step++) {
            d.refuse_dev = pick(20) ? -1 : int(pick(4));
            d.refuse_rc = -EIO;
            if (!held.empty() && pick(100) < (step < 1000 ? 40u : 70u)) {
                size_t i = pick(unsigned(held.size()));
                Held h = held[i];
                held[i] = held.back();
                held.pop_back();
                pvn_memcache_put(c, h.m, h.addr, h.len);
                model.at(h.m).whole -= h.whole;
                if (--model.at(h.m).refs == 0)
                    model.erase(h.m);
            } else {
                uintptr_t addr = 0x100000 + pick(span) * 4096 + pick(4096);
                size_t len = 1 + pick(pick(2) ? 8192 : span * 2048);
                pvn_mem_kind s{int(1 + pick(2)), 7, pick(2)};
                uint32_t devs = 1 + pick(15);
                uintptr_t from = addr & ~uintptr_t(4095),
                          to = (addr + len + 4095) & ~uintptr_t(4095);
                auto kind = std::make_tuple(s.ptr_type, s.access, s.buffer_id);
                bool hit = std::any_of(model.begin(), model.end(), [&](auto &e) {
                    return e.second.kind == kind && e.second.from <= from && e.second.to >= to &&
                           e.second.whole > 0;
                });
                pvn_mem *m = nullptr;
                int rc = pvn_memcache_get(c, addr, len, &s, devs, nullptr, &m, &err);
                if (rc) {
                    ASSERT_EQ(rc, -EIO);
                    ASSERT_GE(d.refuse_dev, 0) << "nothing refused";
                    ASSERT_TRUE(devs & 1u << d.refuse_dev);
                } else {
                    ASSERT_EQ(model.count(m) == 1, hit) << "seed " << seed << " step " << step;
                    Entry &e = model[m];
                    if (!hit)
                        e = {from, to, kind, 0, 0, 0};
                    ASSERT_TRUE(e.kind == kind && e.from <= from && e.to >= to)
                        << "not the requested region";
                    ASSERT_EQ(m->addr, e.from);
                    ASSERT_EQ(m->len, e.to - e.from);
                    e.refs++;
                    bool whole = e.from == from && e.to == to;
                    e.whole += whole;
                    ASSERT_GT(e.whole, 0u) << "nobody has all of it";
                    e.devs |= devs;
                    for (int i = 0; i < 4; i++)
                        ASSERT_EQ(m->handle[i] != nullptr, (e.devs >> i & 1) != 0);
                    held.push_back({m, addr, len, whole});
                }
            }
            if (step % 100 == 0) {
                pvn_memcache_stats st = stats();
                ASSERT_EQ(st.regions, model.size());
                ASSERT_EQ(st.refs, held.size());
                size_t handles = 0, bytes = 0;
                for (auto &e : model) {
                    handles += size_t(__builtin_popcount(e.second.devs));
                    bytes += e.second.to - e.second.from;
                }
                ASSERT_EQ(d.live.size(), handles);
                ASSERT_EQ(st.bytes, bytes);
            }
        }
        for (auto &h : held)
            pvn_memcache_put(c, h.m, h.addr, h.len);
        ASSERT_TRUE(d.live.empty());
    }
}

// A lookup visits a number of nodes that grows with the logarithm of their number, for any layout
// of the regions.
TEST_F(Memcache, LookupIsLogarithmic)
{
    enum { N = 10000 };
    for (int shape = 0; shape < 3; shape++) {
        std::vector<pvn_mem *> all;
        std::mt19937 rng(7);
        for (uintptr_t i = 0; i < N; i++) {
            // regions side by side, each overlapping the next, or all around one point
            uintptr_t at = shape == 2 ? 0x100000000 - i * 8192 : 0x100000000 + i * 65536;
            all.push_back(get(at, shape == 0 ? 65536 : shape == 1 ? 100000 : 8192 * (2 * i + 1)));
        }
        ASSERT_EQ(stats().regions, unsigned(N));
        uint64_t before = stats().steps, worst = 0;
        for (int k = 0; k < N; k++) {
            pvn_mem *m = all[rng() % N];
            uint64_t s = stats().steps;
            pvn_mem *found = get(m->addr + 100, 1);
            worst = std::max(worst, stats().steps - s);
            pvn_memcache_put(c, found, m->addr + 100, 1);
        }
        EXPECT_LT((stats().steps - before) / N, 30u) << "on average, shape " << shape;
        EXPECT_LT(worst, 60u) << "shape " << shape;
        for (auto *m : all)
            pvn_memcache_put(c, m, m->addr, m->len);
    }
}

TEST_F(Memcache, ManyThreadsShareOneRegion)
{
    pvn_mem *keep = get(0x100000, 0x10000);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 2000; i++) {
                pvn_mem *m = nullptr;
                pvn_err e{};
                ASSERT_EQ(pvn_memcache_get(c, 0x101000, 64, &host, 1, nullptr, &m, &e), 0);
                ASSERT_EQ(m, keep);
                pvn_memcache_put(c, m, 0x101000, 64);
            }
        });
    for (auto &t : threads)
        t.join();
    EXPECT_EQ(stats().hits, 8000u);
    EXPECT_EQ(d.regs, 1);
    pvn_memcache_put(c, keep, 0x100000, 0x10000);
}

} // namespace
