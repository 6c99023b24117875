// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the histogram of pvn-perf's latencies: every figure read from it is within the stated error of the
// figure computed from the sorted values, for every distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "perf/rank/hist.h"

namespace
{

std::unique_ptr<pvn_hist> Of(const std::vector<uint64_t> &values)
{
    auto h = std::make_unique<pvn_hist>();

    pvn_hist_clear(h.get());
    for (uint64_t v : values)
        pvn_hist_add(h.get(), v);
    return h;
}

// Computes the percentile as pvn_hist_percentile defines it, from the values themselves.
uint64_t Exact(std::vector<uint64_t> v, double q)
{
    size_t rank = static_cast<size_t>(std::ceil(q * static_cast<double>(v.size())));

    std::sort(v.begin(), v.end());
    return v[std::max<size_t>(rank, 1) - 1];
}

TEST(Hist, BucketsFollowEachOther)
{
    uint64_t next = 0, low = 0, high = 0;

    for (unsigned i = 0; i < PVN_HIST_BUCKETS; i++) {
        pvn_hist_range(i, &low, &high);
        ASSERT_EQ(low, next) << i;
        ASSERT_GE(high, low);
        ASSERT_EQ(pvn_hist_index(low), i);
        ASSERT_EQ(pvn_hist_index(high), i);
        // A bucket's midpoint is within the stated error of both ends.
        ASSERT_LE(static_cast<double>(high - low) / 2, PVN_HIST_ERROR * static_cast<double>(low))
            << i;
        next = high + 1;
    }
    EXPECT_EQ(high, PVN_HIST_MAX);
}

TEST(Hist, PercentilesAreWithinTheError)
{
    std::mt19937_64 rng(7);
    const double shares[] = {0, 0.001, 0.5, 0.9, 0.99, 0.999, 0.99999, 1};

    for (int shape = 0; shape < 4; shape++) {
        for (size_t n : {1u, 2u, 3u, 10u, 999u, 1000u, 20000u}) {
            std::vector<uint64_t> v;

            for (size_t i = 0; i < n; i++) {
                double u = static_cast<double>(rng() >> 11) / 9007199254740992.0;

                v.push_back(shape == 0      ? rng() % 300 // the linear part
                            : shape == 1    ? 1000 + rng() % 2000
                            : shape == 2    ? static_cast<uint64_t>(std::exp2(u * 39)) // all of it
                            : i % 1000 == 0 ? 50000000 + rng() % 1000000
                                            : 3000);
            }
            auto h = Of(v);
            EXPECT_EQ(h->min, *std::min_element(v.begin(), v.end()));
            EXPECT_EQ(h->max, *std::max_element(v.begin(), v.end()));
            for (double q : shares) {
                double want = static_cast<double>(Exact(v, q)),
                       got = pvn_hist_percentile(h.get(), q);

                EXPECT_LE(std::fabs(got - want), want * PVN_HIST_ERROR)
                    << "shape " << shape << ", " << n << " values, share " << q;
            }
        }
    }
}

TEST(Hist, NothingIsZero)
{
    auto h = Of({});

    EXPECT_EQ(pvn_hist_percentile(h.get(), 0.5), 0);
    EXPECT_EQ(h->min, 0u);
    EXPECT_EQ(h->max, 0u);
}

TEST(Hist, MergedIsAsIfAddedToOne)
{
    std::mt19937_64 rng(11);
    std::vector<uint64_t> a, b, all;

    for (int i = 0; i < 5000; i++) {
        a.push_back(500 + rng() % 10000);
        b.push_back(rng() % 90000000);
    }
    b.push_back(PVN_HIST_MAX + 5);
    all = a;
    all.insert(all.end(), b.begin(), b.end());
    auto h = Of(a), one = Of(all);
    pvn_hist_merge(h.get(), Of(b).get());
    EXPECT_EQ(h->count, one->count);
    EXPECT_EQ(h->over, 1u);
    EXPECT_EQ(h->min, one->min);
    EXPECT_EQ(h->max, one->max);
    EXPECT_TRUE(std::equal(h->bucket, h->bucket + PVN_HIST_BUCKETS, one->bucket));
    // Merging an empty histogram changes nothing: its minimum of 0 is ignored. An empty one takes all values over.
    pvn_hist_merge(h.get(), Of({}).get());
    EXPECT_EQ(h->min, one->min);
    auto empty = Of({});
    pvn_hist_merge(empty.get(), Of(a).get());
    EXPECT_EQ(empty->min, *std::min_element(a.begin(), a.end()));
    EXPECT_EQ(empty->count, a.size());
}

TEST(Hist, WhatIsTooLongIsCountedAndNotMisplaced)
{
    auto h = Of({10, 20, PVN_HIST_MAX, PVN_HIST_MAX + 1, UINT64_MAX});
    uint64_t in_buckets = 0;

    for (uint64_t n : h->bucket)
        in_buckets += n;
    EXPECT_EQ(h->count, 5u);
    EXPECT_EQ(h->over, 2u);
    EXPECT_EQ(in_buckets, 3u);
    EXPECT_EQ(h->bucket[PVN_HIST_BUCKETS - 1], 1u);
    EXPECT_EQ(pvn_hist_percentile(h.get(), 0.2), 10);
    EXPECT_NEAR(pvn_hist_percentile(h.get(), 0.6), static_cast<double>(PVN_HIST_MAX),
                static_cast<double>(PVN_HIST_MAX) * PVN_HIST_ERROR);
    EXPECT_EQ(pvn_hist_percentile(h.get(), 0.8), static_cast<double>(UINT64_MAX))
        << "of what is in no bucket only the largest is known";
    EXPECT_EQ(pvn_hist_percentile(h.get(), 1), static_cast<double>(UINT64_MAX));
}

} // namespace
