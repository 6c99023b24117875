// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the steps of ring collectives without a network, with queues between the ranks, and the collectives that FSDP
// derives from a model.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "perf/workload/model.h"
#include "perf/patterns/ring_steps.h"

namespace
{

using Message = std::vector<long>;

// Rank r's input at index i.
long Input(int r, uint64_t i)
{
    return 1000003L * (r + 1) + static_cast<long>(i);
}

struct Rank {
    pvn_ring_shape s;
    pvn_ring_pos side[2];
    bool busy[2];
    std::vector<long> in, out;
    std::deque<Message> *from, *to;
    uint64_t received = 0;
};

// Does one step of a side if its message has arrived; false if it has not.
bool Step(Rank *k, int side)
{
    pvn_ring_pos *pos = &k->side[side];
    pvn_move m = pvn_ring_move(&k->s, pos);
    Message msg(m.count, 0);

    if (m.uses & PVN_RECEIVED) {
        if (k->from->empty())
            return false;
        msg = k->from->front();
        k->from->pop_front();
        k->received++;
        EXPECT_EQ(msg.size(), m.count) << "both ends know the size";
        msg.resize(m.count);
    }
    EXPECT_LE(m.count, k->s.slot);
    for (uint64_t i = 0; i < m.count; i++) {
        if (m.uses & PVN_IN)
            msg[i] += k->in.at(m.in + i);
        if (m.uses & PVN_OUT)
            k->out.at(m.out + i) = msg[i];
    }
    if (m.uses & PVN_SENT)
        k->to->push_back(msg);
    k->busy[side] = pvn_ring_next(&k->s, pos) != 0;
    return true;
}

class Collective
    : public testing::TestWithParam<std::tuple<pvn_collective, int, uint64_t, uint64_t, int>>
{
};

TEST_P(Collective, EveryElementArrives)
{
    auto [what, n, count, slot, slices] = GetParam();
    const int kChannels = 3;
    std::vector<Rank> rank(static_cast<size_t>(n));

    for (int r = 0; r < n; r++) {
        Rank &k = rank[static_cast<size_t>(r)];
        k.s = {what, n, r, count, slot, 4, slices};
        k.in.resize(pvn_ring_in(&k.s));
        k.out.assign(pvn_ring_out(&k.s), -1);
        for (uint64_t i = 0; i < k.in.size(); i++)
            k.in[i] = Input(r, i);
    }
    uint64_t messages = 0;
    for (int c = 0; c < kChannels; c++) {
        std::vector<std::deque<Message>> wire(static_cast<size_t>(n));
        std::vector<uint64_t> due(static_cast<size_t>(n));

        for (int r = 0; r < n; r++) {
            Rank &k = rank[static_cast<size_t>(r)];
            k.from = &wire[static_cast<size_t>(r)];
            k.to = &wire[static_cast<size_t>((r + 1) % n)];
            k.received = 0;
            k.busy[1] = false;
            for (int i = 0; i < pvn_ring_sides(&k.s); i++) {
                k.side[i] = pvn_ring_pos();
                k.side[i].side = i;
                pvn_ring_share(&k.s, c, kChannels, &k.side[i]);
                due[static_cast<size_t>(r)] = pvn_ring_receives(&k.s, &k.side[i]);
                k.busy[i] = pvn_ring_start(&k.s, &k.side[i]) != 0;
            }
        }
        for (bool moved = true; moved;) {
            moved = false;
            for (Rank &k : rank) {
                for (int i = 0; i < 2; i++)
                    while (k.busy[i] && Step(&k, i))
                        moved = true;
            }
        }
        for (int r = 0; r < n; r++) {
            EXPECT_FALSE(rank[static_cast<size_t>(r)].busy[0]) << "stuck";
            EXPECT_FALSE(rank[static_cast<size_t>(r)].busy[1]) << "stuck";
            EXPECT_TRUE(wire[static_cast<size_t>(r)].empty());
            EXPECT_EQ(rank[static_cast<size_t>(r)].received, due[static_cast<size_t>(r)]);
            messages += due[static_cast<size_t>(r)];
        }
    }
    if (count) {
        EXPECT_GT(messages, 0u);
    }
    for (int r = 0; r < n; r++) {
        const Rank &k = rank[static_cast<size_t>(r)];
        for (uint64_t i = 0; i < k.out.size(); i++) {
            long want = 0;
            if (what == PVN_BROADCAST) {
                want = Input(0, i);
            } else if (what == PVN_SENDRECV) {
                want = Input((r + n - 1) % n, i);
            } else if (what == PVN_ALLGATHER) {
                want = Input(static_cast<int>(i / count), i % count);
            } else {
                uint64_t at = what == PVN_REDUCESCATTER ? i + count * static_cast<uint64_t>(r) : i;
                for (int j = 0; j < n; j++)
                    want += Input(j, at);
            }
            ASSERT_EQ(k.out[i], want) << "rank " << r << ", element " << i;
        }
    }
}
INSTANTIATE_TEST_SUITE_P(
    All, Collective,
    testing::Combine(testing::Values(PVN_ALLREDUCE, PVN_ALLGATHER, PVN_REDUCESCATTER, PVN_BROADCAST,
                                     PVN_SENDRECV),
                     testing::Values(2, 3, 5),
                     testing::Values(uint64_t{0}, uint64_t{1}, uint64_t{11}, uint64_t{16},
                                     uint64_t{100}, uint64_t{1001}),
                     testing::Values(uint64_t{16}, uint64_t{64}), testing::Values(1, 3)));

// In NCCL's Simple protocol a chunk of two slots is two slices; those of a short chunk have equal lengths.
TEST(RingSteps, SlicesAreThoseOfNccl)
{
    pvn_ring_shape s = {PVN_ALLGATHER, 4, 0, 70, 64, 4, 2};
    pvn_ring_pos p = {};
    std::vector<uint64_t> sent;

    pvn_ring_share(&s, 0, 1, &p);
    ASSERT_TRUE(pvn_ring_start(&s, &p));
    do {
        sent.push_back(pvn_ring_move(&s, &p).count);
    } while (pvn_ring_next(&s, &p) && p.phase == 0);
    EXPECT_EQ(sent, (std::vector<uint64_t>{48, 22}));
}

// nccl-tests: doc/PERFORMANCE.md.
TEST(RingSteps, BusBandwidthIsThatOfNcclTests)
{
    EXPECT_DOUBLE_EQ(pvn_ring_factor(PVN_ALLREDUCE, 4), 1.5);
    EXPECT_DOUBLE_EQ(pvn_ring_factor(PVN_ALLGATHER, 4), 0.75);
    EXPECT_DOUBLE_EQ(pvn_ring_factor(PVN_REDUCESCATTER, 4), 0.75);
    EXPECT_DOUBLE_EQ(pvn_ring_factor(PVN_BROADCAST, 4), 1);
    EXPECT_DOUBLE_EQ(pvn_ring_factor(PVN_ALLGATHER, 1), 0);
    EXPECT_DOUBLE_EQ(pvn_ring_sent(PVN_ALLREDUCE, 4), 6);
    EXPECT_DOUBLE_EQ(pvn_ring_sent(PVN_BROADCAST, 4), 3);
    EXPECT_DOUBLE_EQ(pvn_ring_factor(PVN_SENDRECV, 4), 1);
    EXPECT_DOUBLE_EQ(pvn_ring_sent(PVN_SENDRECV, 4), 4);
}

TEST(Fsdp, AStepOfLlama2MovesAllOfItsLayers)
{
    const uint64_t layer = 4ull * 4096 * 4096 + 3ull * 4096 * 11008 + 2 * 4096;
    const uint64_t root = 2ull * 32000 * 4096 + 4096;
    pvn_model m;
    pvn_fsdp_op *op = nullptr;

    ASSERT_EQ(pvn_model_load("llama2-7b", &m), 0);
    EXPECT_EQ(m.count, 6738415616u);
    EXPECT_EQ(m.traffic, PVN_FSDP);
    EXPECT_TRUE(pvn_model_is("llama2-7b", PVN_FSDP));
    EXPECT_FALSE(pvn_model_is("gpt2", PVN_FSDP));
    int n = pvn_fsdp_step(&m, 0, &op);
    ASSERT_EQ(n, 33 + 2 * 32 + 1);
    EXPECT_EQ(op[0].count, root);
    EXPECT_EQ(op[1].count, layer);
    uint64_t gathered = 0, scattered = 0;
    for (int i = 0; i < n; i++)
        (op[i].reduce ? scattered : gathered) += op[i].count;
    EXPECT_EQ(scattered, m.count) << "each gradient once";
    EXPECT_EQ(gathered, 2 * m.count - root) << "each parameter twice, but for the root's";
    free(op);
    n = pvn_fsdp_step(&m, 2, &op);
    ASSERT_EQ(n, 3 + 4 + 1);
    EXPECT_EQ(op[3].unit, 2) << "backward begins with the last layer";
    EXPECT_TRUE(op[3].backward && !op[3].reduce);
    EXPECT_TRUE(op[4].reduce);
    EXPECT_EQ(op[7].count, root);
    free(op);
    pvn_model_free(&m);
}

} // namespace
