// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests how pvn-perf plans messages between pairs of ranks, without a network: rounds, channels and parts as in NCCL,
// and the message sizes of a mixture of experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

extern "C" {
#include "perf/workload/model.h"
#include "perf/patterns/moe.h"
#include "perf/workload/pairs_plan.h"
}

namespace
{

class Plan
{
  public:
    Plan(int nranks, int rank, int group = 1, int channels = 2, size_t slot = PVN_PAIRS_SLOT,
         int per_peer = 0)
    {
        EXPECT_EQ(pvn_pairs_plan_init(&p, nranks, rank, group, channels, per_peer, slot), 0);
    }
    ~Plan()
    {
        pvn_pairs_plan_free(&p);
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;
    pvn_pairs_plan p;
};

// The example that NCCL's ncclP2pSchedule gives for 16.
TEST(PairsPlan, RoundsAreThoseOfNccl)
{
    Plan a(16, 3);

    EXPECT_EQ(std::vector<int>(a.p.delta, a.p.delta + 16),
              (std::vector<int>{0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8}));
    EXPECT_EQ(pvn_pairs_round(&a.p, 6, 1), 2) << "3 ranks on";
    EXPECT_EQ(pvn_pairs_round(&a.p, 0, 0), 2) << "from 3 ranks before";
}

// Both ends place an operation in the same round, batch and channel. No rank has two operations in one round.
TEST(PairsPlan, BothEndsAgree)
{
    for (int n : {1, 2, 3, 5, 8, 13, 31}) {
        for (int from = 0; from < n; from++) {
            Plan a(n, from);
            std::set<int> rounds;

            for (int to = 0; to < n; to++) {
                Plan b(n, to);
                int round = pvn_pairs_round(&a.p, to, 1);

                EXPECT_EQ(round, pvn_pairs_round(&b.p, from, 0)) << n;
                EXPECT_EQ(pvn_pairs_batch(&a.p, round), pvn_pairs_batch(&b.p, round));
                EXPECT_EQ(pvn_pairs_channel(&a.p, round, 0), pvn_pairs_channel(&b.p, round, 0));
                rounds.insert(round);
            }
            EXPECT_EQ(rounds.size(), static_cast<size_t>(n));
        }
    }
}

// ncclP2pChannelBaseForRound; addWorkBatchToPlan: 8 operations to a batch, PXN's streams counted.
TEST(PairsPlan, ChannelsAndBatchesAreNccls)
{
    Plan a(16, 0, 1, 4), b(16, 0, 4, 4);
    std::vector<int> base;

    for (int round = 0; round < 5; round++)
        base.push_back(pvn_pairs_channel(&a.p, round, 0));
    EXPECT_EQ(base, (std::vector<int>{0, 2, 1, 3, 0}));
    EXPECT_EQ(pvn_pairs_channel(&a.p, 3, 1), 0);
    EXPECT_EQ(pvn_pairs_batch(&a.p, 7), 0);
    EXPECT_EQ(pvn_pairs_batch(&a.p, 8), 1);
    EXPECT_EQ(b.p.nodes, 4);
    EXPECT_EQ(pvn_pairs_batch(&b.p, 1), 0);
    EXPECT_EQ(pvn_pairs_batch(&b.p, 2), 1);
}

// ncclTopoComputeP2pChannels with one adapter; scheduleP2pTasksToPlan.
TEST(PairsPlan, ChannelsOfAPair)
{
    EXPECT_EQ(Plan(2, 0, 1, 1).p.per_peer, 1);
    EXPECT_EQ(Plan(4, 0, 1, 2).p.per_peer, 2);
    EXPECT_EQ(Plan(5, 0, 1, 2).p.per_peer, 1);
    EXPECT_EQ(Plan(8, 0, 1, 4).p.per_peer, 2);
    EXPECT_EQ(Plan(8, 0, 1, 16, 4096, 8).p.per_peer, 8) << "NCCL_NCHANNELS_PER_NET_PEER";
    EXPECT_EQ(Plan(4, 0, 1, 2).p.few, 1);
    EXPECT_EQ(Plan(2, 0, 1, 4).p.few, 2);
}

TEST(PairsPlan, PartsCoverEveryByte)
{
    for (int channels : {1, 2, 4})
        for (size_t slot : {16u, 4096u, 131072u}) {
            Plan a(2, 0, 1, channels, slot);

            for (uint64_t bytes : {0u, 1u, 63u, 4096u, 4097u, 65536u, 65537u, 131073u, 1000003u}) {
                int parts = pvn_pairs_parts(&a.p, bytes);
                uint64_t at = 0, from, to;

                EXPECT_EQ(parts == 0, bytes == 0);
                EXPECT_LE(parts, a.p.per_peer);
                for (int i = 0; i < a.p.per_peer; i++) {
                    pvn_pairs_part(bytes, parts, i, &from, &to);
                    EXPECT_LE(from, to);
                    if (to > from) {
                        EXPECT_EQ(from, at);
                        at = to;
                    }
                }
                EXPECT_EQ(at, bytes) << channels << " " << slot;
            }
        }
}

// addP2pToPlan: with 4 ranks on 2 channels an operation begins with one and takes the second above 128 KiB.
TEST(PairsPlan, PartsAndMessagesAreThoseOfNccl)
{
    Plan a(4, 0, 1, 2);
    uint64_t from, to;

    EXPECT_EQ(pvn_pairs_parts(&a.p, 131072), 1);
    EXPECT_EQ(pvn_pairs_parts(&a.p, 131073), 2);
    pvn_pairs_part(131073, 2, 1, &from, &to);
    EXPECT_EQ(from, 69632u) << "whole pages";
    EXPECT_EQ(to, 131073u);
    EXPECT_EQ(pvn_pairs_message(&a.p, 131071), 32768u);
    EXPECT_EQ(pvn_pairs_message(&a.p, 131072), 65536u);
    EXPECT_EQ(pvn_pairs_message(&a.p, 1 << 20), 131072u);
}

uint64_t RowSum(const std::vector<uint64_t> &m, int n, int row)
{
    return std::accumulate(m.begin() + row * n, m.begin() + (row + 1) * n, uint64_t{0});
}

TEST(Moe, EveryTokenGoesToTwoExperts)
{
    const int tokens = 4096;

    for (int layer = 0; layer < PVN_MOE_LAYERS; layer++) {
        uint64_t load[PVN_MOE_EXPERTS] = {};

        for (int src = 0; src < 8; src++) {
            uint64_t count[PVN_MOE_EXPERTS], sum = 0;

            pvn_moe_route(layer, src, tokens, count);
            for (int e = 0; e < PVN_MOE_EXPERTS; e++) {
                EXPECT_LE(count[e], static_cast<uint64_t>(tokens)) << "never twice to one";
                sum += count[e];
                load[e] += count[e];
            }
            EXPECT_EQ(sum, 2u * tokens);
        }
        // The fullest expert's load, relative to an even share, is within the range that pvn-perf(1) states.
        double most = static_cast<double>(*std::max_element(load, load + 8)) / (2.0 * tokens);
        EXPECT_GT(most, 1.1) << layer;
        EXPECT_LT(most, 2.0) << layer;
    }
}

// Results of two builds are comparable only if both route tokens alike.
TEST(Moe, RoutesAlikeInEveryBuild)
{
    uint64_t count[PVN_MOE_EXPERTS];

    pvn_moe_route(0, 0, 4096, count);
    EXPECT_EQ(std::vector<uint64_t>(count, count + 8),
              (std::vector<uint64_t>{656, 785, 1302, 693, 1075, 1586, 1122, 973}));
    pvn_moe_route(31, 7, 1, count);
    EXPECT_EQ(std::vector<uint64_t>(count, count + 8),
              (std::vector<uint64_t>{0, 0, 0, 0, 1, 0, 0, 1}));
}

TEST(Moe, ExpertsAreAmongTheNeighbours)
{
    EXPECT_EQ(pvn_moe_rank(5, 0, 2), 1);
    EXPECT_EQ(pvn_moe_rank(5, 1, 8), 5);
    EXPECT_EQ(pvn_moe_rank(5, 9, 16), 13);
    EXPECT_EQ(pvn_moe_rank(5, 9, 12), 9) << "the last 4 ranks share all experts";
}

TEST(Moe, CombineReturnsWhatDispatchSent)
{
    for (int n : {1, 2, 3, 8, 16}) {
        size_t ranks = static_cast<size_t>(n);
        std::vector<uint64_t> out(ranks * ranks), back(ranks * ranks);

        pvn_moe_bytes(3, 100, 0, n, out.data());
        pvn_moe_bytes(3, 100, 1, n, back.data());
        for (int a = 0; a < n; a++) {
            EXPECT_EQ(RowSum(out, n, a), 100u * PVN_MOE_TOP * PVN_MOE_TOKEN_BYTES);
            for (int b = 0; b < n; b++)
                EXPECT_EQ(out[static_cast<size_t>(a * n + b)],
                          back[static_cast<size_t>(b * n + a)]);
        }
        EXPECT_EQ(n > 8, out.back() != 0 && out[ranks - 1] == 0) << "none beyond the 8 neighbours";
    }
}

TEST(Moe, UnevenSizesAddUpAndSomeAreEmpty)
{
    for (int n : {1, 2, 3, 8}) {
        for (uint64_t each : {uint64_t{0}, uint64_t{1}, uint64_t{1000003}, uint64_t{1} << 40}) {
            std::vector<uint64_t> m(static_cast<size_t>(n * n));

            pvn_uneven_bytes(each, n, m.data());
            for (int a = 0; a < n; a++)
                EXPECT_EQ(RowSum(m, n, a), each);
            if (n == 8 && each > 1000) {
                EXPECT_NE(std::count(m.begin(), m.end(), 0u), 0);
                EXPECT_GT(std::set<uint64_t>(m.begin(), m.end()).size(), 30u);
            }
        }
    }
}

TEST(Moe, TheModelIsMixtralAsPublished)
{
    pvn_model m;

    ASSERT_EQ(pvn_model_load("mixtral-8x7b", &m), 0);
    EXPECT_EQ(m.count, 46702792704u) << "as published";
    EXPECT_EQ(m.nparams, 32 * 31 + 3);
    EXPECT_STREQ(m.param[1 + 5 + 3 * 7].name,
                 "model.layers.0.block_sparse_moe.experts.7.w1.weight");
    EXPECT_TRUE(pvn_model_is("mixtral-8x7b", PVN_MOE));
    pvn_model_free(&m);
}

} // namespace
