// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests two parts of pvn-perf mesh without a network: the schedule of its rounds, and the findings that it derives
// from a matrix of results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perf/results/mesh_find.h"
#include "perf/patterns/mesh_rounds.h"

namespace
{

// ---- Rounds ----

// Checks that every pair is measured once, and that no round uses a rank or an adapter twice. Returns the number of
// rounds.
int CheckRounds(const std::vector<uint64_t> &place)
{
    const int n = static_cast<int>(place.size());
    struct pvn_mesh_rounds m;
    std::set<std::pair<int, int>> pairs;

    EXPECT_EQ(pvn_mesh_rounds_make(&m, place.data(), n), 0);
    for (int k = 0; k < m.n; k++) {
        std::multiset<uint64_t> busy;
        for (int i = 0; i < n; i++) {
            const int p = m.partner[k * n + i];
            if (p < 0)
                continue;
            EXPECT_NE(p, i);
            EXPECT_EQ(m.partner[k * n + p], i) << "round " << k << " is not mutual for " << i;
            if (p < i)
                continue;
            EXPECT_TRUE(pairs.insert({i, p}).second) << i << " and " << p << " meet twice";
            busy.insert(place[static_cast<size_t>(i)]);
            if (place[static_cast<size_t>(p)] != place[static_cast<size_t>(i)])
                busy.insert(place[static_cast<size_t>(p)]);
        }
        EXPECT_EQ(busy.size(), std::set<uint64_t>(busy.begin(), busy.end()).size())
            << "an adapter is in two pairs of round " << k;
        EXPECT_FALSE(busy.empty()) << "round " << k << " has no pair";
    }
    EXPECT_EQ(pairs.size(), static_cast<size_t>(n) * static_cast<size_t>(n - 1) / 2);
    int rounds = m.n;
    pvn_mesh_rounds_free(&m);
    return rounds;
}

TEST(Rounds, EveryPairOnceForEveryNumberOfRanks)
{
    for (int n = 1; n <= 33; n++) {
        std::vector<uint64_t> place;
        for (int i = 0; i < n; i++)
            place.push_back(1000u + static_cast<uint64_t>(i) * 77u);
        EXPECT_EQ(CheckRounds(place), n == 1 ? 0 : n - 1 + n % 2) << n;
    }
}

TEST(Rounds, RanksThatShareAnAdapterTakeTurns)
{
    for (int hosts = 1; hosts <= 7; hosts++) {
        for (int each = 1; each <= 4; each++) {
            std::vector<uint64_t> blocks, turns;
            for (int i = 0; i < hosts * each; i++) {
                blocks.push_back(static_cast<uint64_t>(i / each));
                turns.push_back(static_cast<uint64_t>(i % hosts));
            }
            const int between = hosts > 1 ? (hosts - 1 + hosts % 2) * each * each : 0;
            EXPECT_EQ(CheckRounds(blocks), between + each * (each - 1) / 2);
            EXPECT_EQ(CheckRounds(turns), between + each * (each - 1) / 2);
        }
    }
    CheckRounds({5, 5, 5, 5, 9, 7, 7}); // unequal numbers
    CheckRounds({1, 2, 2});
}

// ---- What is found ----

struct Matrix {
    explicit Matrix(const std::vector<int> &hosts, bool latency = false) : host(hosts)
    {
        m.n = static_cast<int>(hosts.size());
        m.less_is_better = latency;
        m.slow = latency ? PVN_MESH_SLOW_TIME : PVN_MESH_SLOW_BW;
        value.assign(hosts.size() * hosts.size(), latency ? 10.0 : 1000.0);
        rank.resize(hosts.size());
        for (size_t i = 0; i < hosts.size(); i++) {
            std::string h = "host c" + std::to_string(hosts[i]);
            std::string r = std::count(hosts.begin(), hosts.end(), hosts[i]) == 1
                                ? h
                                : "rank " + std::to_string(i) + " on c" + std::to_string(hosts[i]);
            snprintf(rank[i].data(), 96, "%s", r.c_str());
        }
        names.resize(hosts.size());
        for (size_t i = 0; i < hosts.size(); i++)
            snprintf(names[i].data(), 96, "host c%zu", i);
    }
    double &At(int from, int to)
    {
        return value[static_cast<size_t>(from * m.n + to)];
    }
    void Noise(double by, unsigned seed)
    {
        std::mt19937 rng(seed);
        std::uniform_real_distribution<double> d(1 - by, 1 + by);
        for (double &v : value)
            v *= v > 0 ? d(rng) : 1;
    }
    // The findings as sentences; a finding of both directions is one sentence.
    std::vector<std::string> Say()
    {
        struct pvn_mesh_finding *f = nullptr;
        struct pvn_mesh_names n = {reinterpret_cast<char(*)[96]>(rank.data()),
                                   reinterpret_cast<char(*)[96]>(names.data())};
        std::vector<std::string> out;
        char text[512];

        ratio.resize(value.size());
        group.resize(host.size());
        m.group = group.data();
        m.host = host.data();
        m.value = value.data();
        m.best = best.empty() ? nullptr : best.data();
        m.ratio = ratio.data();
        EXPECT_EQ(pvn_mesh_ratios(&m), 0);
        int count = pvn_mesh_find(&m, &f);
        for (int i = 0; i < count; i++) {
            const struct pvn_mesh_finding *also = pvn_mesh_other(f, count, i);
            if (also && also < &f[i])
                continue;
            pvn_mesh_sentence(&m, &n, &f[i], also, text, sizeof(text));
            out.emplace_back(text);
        }
        if (count == 0) {
            pvn_mesh_alike(&m, &n, text, sizeof(text));
            out.emplace_back(text);
        }
        if (pvn_mesh_unsteady(&m, text, sizeof(text)))
            out.emplace_back(text);
        free(f);
        return out;
    }
    std::vector<int> host, group;
    std::vector<double> value, best, ratio;
    std::vector<std::array<char, 96>> rank, names;
    struct pvn_mesh_matrix m = {};
};

std::vector<int> Hosts(int n, int each = 1)
{
    std::vector<int> h;
    for (int i = 0; i < n * each; i++)
        h.push_back(i / each);
    return h;
}

using Said = std::vector<std::string>;

TEST(Find, AColumnIsTheReceiver)
{
    for (int n : {4, 5, 8, 16}) {
        Matrix x(Hosts(n));
        for (int i = 0; i < n; i++)
            x.At(i, 3) = 410;
        EXPECT_EQ(x.Say(), Said{"host c3 receives at 0.41 of the median from everybody: its side"});
    }
}

TEST(Find, ARowIsTheSender)
{
    for (int n : {3, 4, 9}) {
        Matrix x(Hosts(n));
        for (int i = 0; i < n; i++)
            x.At(2, i) = 300;
        EXPECT_EQ(x.Say(), Said{"host c2 sends at 0.30 of the median to everybody: its side"});
    }
}

TEST(Find, BothDirectionsAreOneSentence)
{
    for (int n : {3, 4, 12}) {
        Matrix x(Hosts(n));
        for (int i = 0; i < n; i++) {
            x.At(1, i) = 500;
            x.At(i, 1) = 200;
        }
        EXPECT_EQ(x.Say(), Said{"host c1 sends at 0.50 of the median to everybody and receives at "
                                "0.20 of the median from everybody: its side"})
            << n;
    }
}

TEST(Find, MostOfARowIsEnough)
{
    Matrix x(Hosts(8));
    for (int i = 0; i < 6; i++)
        x.At(7, i) = 300;
    EXPECT_EQ(x.Say(), Said{"host c7 sends at 0.30 of the median to 6 of 7: its side"});
}

TEST(Find, ASingleLinkIsNobodysSide)
{
    for (int n : {2, 4, 16}) {
        Matrix x(Hosts(n));
        x.At(0, 1) = 320;
        EXPECT_EQ(x.Say(), Said{"the path from host c0 to host c1 is at 0.32 of the median"}) << n;
    }
    Matrix x(Hosts(5));
    x.At(0, 1) = 320;
    x.At(1, 0) = 330;
    EXPECT_EQ(x.Say(), Said{"the path between host c0 and host c1: 0.32 of the median from the "
                            "first to the second, 0.33 of the median back"});
}

TEST(Find, TwoFaultsAreTwoSentences)
{
    Matrix x(Hosts(8));
    for (int i = 0; i < 8; i++) {
        x.At(i, 2) = 400;
        x.At(5, i) = 200;
    }
    x.At(0, 1) = 600;
    EXPECT_EQ(x.Say(), (Said{"host c5 sends at 0.20 of the median to everybody: its side",
                             "host c2 receives at 0.40 of the median from everybody: its side",
                             "the path from host c0 to host c1 is at 0.60 of the median"}));
}

TEST(Find, NoiseIsNotNamed)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        Matrix x(Hosts(12));
        x.Noise(0.12, seed);
        Said said = x.Say();
        ASSERT_EQ(said.size(), 1u);
        EXPECT_EQ(said[0].rfind("all alike: the slowest path, from host c", 0), 0u) << said[0];
    }
}

TEST(Find, TheSlowHostShowsThroughNoise)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        Matrix x(Hosts(12));
        for (int i = 0; i < 12; i++)
            x.At(i, 7) = 450;
        x.Noise(0.12, seed);
        Said said = x.Say();
        ASSERT_EQ(said.size(), 1u) << seed << said[1];
        EXPECT_EQ(said[0].rfind("host c7 receives at 0.", 0), 0u) << said[0];
    }
}

TEST(Find, PathsNearTheMedianAreAllAlike)
{
    Matrix x(Hosts(4));
    x.At(1, 2) = 930;
    EXPECT_EQ(x.Say(), Said{"all alike: the slowest path, from host c1 to host c2, is at 0.93 of "
                            "the median"});
}

// A busy host disturbs only some parts of a measurement. A slow path is slow in all of them.
TEST(Find, APathThatIsSlowInPartAloneIsNotCalledSlow)
{
    const std::string unsteady = "2 of 12 paths were slow for a part of their time and not for all "
                                 "of it: their hosts were busy; measure again, or longer (--time, "
                                 "--repeat)";
    Matrix x(Hosts(4));
    x.best = x.value;
    x.At(1, 2) = x.At(3, 0) = 200;
    EXPECT_EQ(x.Say(), (Said{"all alike: the slowest path, from host c0 to host c1, is at 1.00 of "
                             "the median",
                             unsteady}));
    x.At(2, 0) = x.best[2 * 4 + 0] = 410;
    EXPECT_EQ(x.Say(),
              (Said{"the path from host c2 to host c0 is at 0.41 of the median", unsteady}));

    Matrix y(Hosts(4), true);
    y.best = y.value;
    y.At(1, 2) = y.At(3, 0) = 90;
    y.At(2, 0) = 40;
    y.best[2 * 4 + 0] = 30;
    EXPECT_EQ(y.Say(),
              (Said{"the path from host c2 to host c0: 4.0 times the median latency", unsteady}));
}

// Paths within a host, here ten times as fast, are judged apart, so that paths between hosts do not count as slow.
TEST(Find, HostsWithSeveralRanks)
{
    Matrix x(Hosts(4, 3));
    for (int f = 0; f < 12; f++) {
        for (int t = 0; t < 12; t++)
            x.At(f, t) = f / 3 == t / 3 ? 10000 : 1000;
    }
    EXPECT_EQ(x.Say()[0].rfind("all alike", 0), 0u);
    for (int f = 0; f < 12; f++) {
        for (int t = 6; t < 9; t++)
            x.At(f, t) = f / 3 == 2 ? 10000 : 350;
    }
    EXPECT_EQ(x.Say(), Said{"host c2 receives at 0.35 of the median from everybody: its side"});
}

TEST(Find, OneRankOfAHost)
{
    Matrix x(Hosts(3, 2));
    for (int t = 0; t < 6; t++)
        x.At(3, t) = 250;
    x.At(3, 2) = 1000; // within the host
    EXPECT_EQ(x.Say(), Said{"rank 3 on c1 sends at 0.25 of the median to everybody: its side"});
}

// Results of two hosts alone cannot show which host is slow.
TEST(Find, TwoHostsAloneShowTheirPathsOnly)
{
    Matrix x(Hosts(2, 4));
    for (int f = 0; f < 4; f++) {
        for (int t = 4; t < 8; t++)
            x.At(f, t) = 400;
    }
    EXPECT_EQ(x.Say(), Said{"the paths from host c0 to host c1 are at 0.40 of the median"});
}

TEST(Find, AllRanksOnOneHost)
{
    Matrix x({0, 0, 0, 0});
    for (int i = 0; i < 4; i++)
        x.At(i, 1) = 100;
    EXPECT_EQ(x.Say(),
              Said{"rank 1 on c0 receives at 0.10 of the median from everybody: its side"});
}

TEST(Find, HighLatencyIsFoundAsLowBandwidthIs)
{
    Matrix x(Hosts(6), true);
    for (int i = 0; i < 6; i++)
        x.At(i, 4) = x.At(4, i) = 31;
    EXPECT_EQ(x.Say(), Said{"host c4 has 3.1 times the median latency with everybody: its side"});
    Matrix y(Hosts(6), true);
    y.At(1, 2) = 19; // not yet twice the median
    EXPECT_EQ(y.Say(), Said{"all alike: the slowest path, from host c1 to host c2, has 1.9 times "
                            "the median latency"});
    y.At(1, 2) = 40;
    EXPECT_EQ(y.Say(), Said{"the path from host c1 to host c2: 4.0 times the median latency"});
}

// A matrix of racks with the given numbers of hosts, and `each` ranks per host. Paths between racks have the value
// `between`.
Matrix Racks(const std::vector<int> &sizes, double between, int each = 1, bool latency = false)
{
    int hosts = std::accumulate(sizes.begin(), sizes.end(), 0), rack = 0, until = sizes[0];
    std::vector<int> of;
    for (int h = 0; h < hosts; h++) {
        if (h == until)
            until += sizes[static_cast<size_t>(++rack)];
        of.push_back(rack);
    }
    Matrix x(Hosts(hosts, each), latency);
    for (int f = 0; f < x.m.n; f++) {
        for (int t = 0; t < x.m.n; t++) {
            if (of[static_cast<size_t>(f / each)] != of[static_cast<size_t>(t / each)])
                x.At(f, t) = between;
        }
    }
    return x;
}

// Most paths cross the slow trunk if the racks are equal, so the median of all paths would be the trunk's.
TEST(Find, RacksThatASlowTrunkJoins)
{
    const std::string tail = " within each group: look at what joins them";
    EXPECT_EQ(Racks({4, 4}, 310).Say(), Said{"hosts c0, c1, c2, c3 and hosts c4, c5, c6, c7 reach "
                                             "each other at 0.31 of the median" +
                                             tail});
    EXPECT_EQ(Racks({2, 2}, 310).Say(),
              Said{"hosts c0, c1 and hosts c2, c3 reach each other at 0.31 of the median" + tail});
    EXPECT_EQ(Racks({2, 6}, 740).Say(), Said{"hosts c0, c1 and hosts c2, c3, c4, c5, c6, c7 reach "
                                             "each other at 0.74 of the median" +
                                             tail});
    EXPECT_EQ(
        Racks({10, 26}, 500).Say(),
        Said{"hosts c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 and hosts c10, c11, c12, c13, "
             "c14, c15, c16, c17, c18, c19, c20, c21, c22 and 13 more reach each other at 0.50 of "
             "the median" +
             tail});
    EXPECT_EQ(Racks({3, 3}, 200, 2).Say(), Said{"hosts c0, c1, c2 and hosts c3, c4, c5 reach each "
                                                "other at 0.20 of the median" +
                                                tail});
    EXPECT_EQ(Racks({3, 3}, 31, 1, true).Say(), Said{"hosts c0, c1, c2 and hosts c3, c4, c5 reach "
                                                     "each other at 3.1 times the median latency" +
                                                     tail});
    EXPECT_EQ(Racks({3, 3}, PVN_MESH_FAILED).Say(),
              Said{"hosts c0, c1, c2 and hosts c3, c4, c5 do not reach each other: look at what "
                   "joins them"});
    EXPECT_EQ(Racks({2, 2, 2}, 250).Say().size(), 3u) << "each pair of racks";
}

TEST(Find, WhatIsSlowWithinARackIsNamedBesideTheTrunk)
{
    Matrix x = Racks({4, 5}, 310);
    for (int i = 4; i < 8; i++)
        x.At(8, i) = 400;
    x.At(0, 1) = 600;
    EXPECT_EQ(x.Say(), (Said{"hosts c0, c1, c2, c3 and hosts c4, c5, c6, c7, c8 reach each other "
                             "at 0.31 of the median within each group: look at what joins them",
                             "host c8 sends at 0.40 of the median to everybody: its side",
                             "the path from host c0 to host c1 is at 0.60 of the median"}));
}

// Hosts are no groups if one path between them is fast or was not measured. One slow host is no group either.
TEST(Find, WhatIsNoGroup)
{
    for (double v : {760.0, static_cast<double>(NAN)}) {
        Matrix x = Racks({5, 11}, 310);
        x.At(2, 9) = v;
        for (const std::string &said : x.Say())
            EXPECT_EQ(said.find("hosts c"), std::string::npos) << said;
    }
    EXPECT_EQ(Racks({1, 5}, 310).Say(), Said{"host c0 sends at 0.31 of the median to everybody and "
                                             "receives at 0.31 of the median from everybody: its "
                                             "side"});
}

TEST(Find, FailedPathsShowTheSideOfTheirHost)
{
    Matrix x(Hosts(5));
    for (int i = 0; i < 5; i++)
        x.At(i, 2) = x.At(2, i) = PVN_MESH_FAILED;
    EXPECT_EQ(x.Say(), Said{"host c2 failed with everybody: its side"});
    // A slow host, one of whose paths failed.
    Matrix z(Hosts(5));
    for (int i = 0; i < 5; i++)
        z.At(2, i) = 370;
    z.At(2, 4) = PVN_MESH_FAILED;
    EXPECT_EQ(z.Say(), Said{"host c2 sends at 0.37 of the median to everybody: its side; 1 of "
                            "these paths failed"});
    Matrix y(Hosts(5));
    y.At(1, 2) = y.At(2, 1) = PVN_MESH_FAILED;
    EXPECT_EQ(y.Say(), Said{"the path between host c1 and host c2 failed"});
}

TEST(Find, WhatWasNotMeasured)
{
    Matrix x(Hosts(3));
    for (double &v : x.value)
        v = NAN;
    EXPECT_EQ(x.Say(), Said{"nothing was measured"});
    for (double &v : x.value)
        v = PVN_MESH_FAILED;
    EXPECT_EQ(x.Say().size(), 3u) << "every host fails with everybody";
}

} // namespace
