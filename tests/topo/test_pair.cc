// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pairs of GPUs and NICs: the assignment against brute force, the sentences, the verdicts on GPUDirect, and path
// classes against a naive path finder on random machines.
#include "tests/topo/nccl_file.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <random>

#include "topo/nccl/assign.h"

namespace
{

// ---- the assignment ----

struct Problem {
    int rows, cols, links;
    std::vector<int> distance, second;
    std::vector<std::vector<int>> uses; // ended by -1
    std::vector<const int *> pointers;
    pvn_topo_assign view()
    {
        pointers.clear();
        for (auto &u : uses)
            pointers.push_back(u.data());
        return {rows, cols, links, distance.data(), second.data(), pointers.data()};
    }
};

Problem random_problem(std::mt19937 &rng, int rows, int cols)
{
    auto upto = [&](int n) { return (int)(rng() % (unsigned)n); };
    Problem p{rows, cols, 6 + cols, {}, {}, {}, {}};
    for (int i = 0; i < rows * cols; i++) {
        p.distance.push_back(upto(8) == 0 ? PVN_TOPO_ASSIGN_NEVER : 4 + upto(2));
        p.second.push_back(10 + 11 * upto(2));
        std::vector<int> links = {6 + i % cols};
        for (int l = 0; l < 6; l++) {
            if (upto(3) == 0)
                links.push_back(l);
        }
        links.push_back(-1);
        p.uses.push_back(links);
    }
    return p;
}

std::vector<long> cost(const pvn_topo_assign &p, const std::vector<int> &out)
{
    long c[3];
    pvn_topo_assign_cost(&p, out.data(), c);
    return {c[0], c[1], c[2]};
}

std::vector<long> brute_force(const pvn_topo_assign &p)
{
    std::vector<int> now(p.rows);
    std::vector<long> best;
    std::function<void(int)> place = [&](int row) {
        if (row == p.rows) {
            std::vector<long> c = cost(p, now);
            if (best.empty() || c < best)
                best = c;
            return;
        }
        bool any = false;
        for (int col = 0; col < p.cols; col++) {
            if (p.distance[row * p.cols + col] >= PVN_TOPO_ASSIGN_NEVER)
                continue;
            any = true;
            now[row] = col;
            place(row + 1);
        }
        if (!any) {
            now[row] = -1;
            place(row + 1);
        }
    };
    place(0);
    return best;
}

TEST(Assign, IsTheOptimumOfSmallProblems)
{
    std::mt19937 rng(4);
    for (int round = 0; round < 200; round++) {
        Problem problem = random_problem(rng, 1 + (int)(rng() % 5), 1 + (int)(rng() % 4));
        pvn_topo_assign p = problem.view();
        std::vector<int> out(p.rows);
        bool exact = false;
        ASSERT_EQ(0, pvn_topo_assign_solve(&p, out.data(), &exact));
        EXPECT_TRUE(exact);
        ASSERT_EQ(brute_force(p), cost(p, out)) << "round " << round;
    }
}

TEST(Assign, ALargeFlatMachineIsSpreadEvenly)
{
    Problem problem{64, 16, 16, {}, {}, {}, {}};
    for (int i = 0; i < 64 * 16; i++) {
        problem.distance.push_back(8);
        problem.second.push_back(10);
        problem.uses.push_back({i % 16, -1});
    }
    pvn_topo_assign p = problem.view();
    std::vector<int> out(64), users(16);
    ASSERT_EQ(0, pvn_topo_assign_solve(&p, out.data(), nullptr));
    for (int col : out)
        users[(size_t)col]++;
    for (int n : users)
        EXPECT_EQ(4, n);
}

TEST(Assign, ARowWithNothingGetsNothing)
{
    Problem problem{2, 1, 1, {PVN_TOPO_ASSIGN_NEVER, 4}, {10, 10}, {{0, -1}, {0, -1}}, {}};
    pvn_topo_assign p = problem.view();
    std::vector<int> out(2);
    ASSERT_EQ(0, pvn_topo_assign_solve(&p, out.data(), nullptr));
    EXPECT_EQ((std::vector<int>{-1, 0}), out);
}

// ---- advice ----

std::string advice(const NcclFile &m, int g)
{
    int net = m.pairs->list[g].advice;
    return net < 0 ? "none" : m.net_name(net);
}

TEST(Advice, EachGpuGetsTheNicOfItsSwitch)
{
    std::string inner;
    for (int i = 0; i < 4; i++) {
        std::string n = std::to_string(i + 1);
        inner += bridge("0000:" + n + "0:00.0", nic("0000:" + n + "2:00.0", "n" + n, i) +
                                                    gpu("0000:" + n + "1:00.0", 3 - i));
    }
    NcclFile m(sys(cpu(0, inner)));
    for (int g = 0; g < 4; g++)
        EXPECT_EQ("n" + std::to_string(g + 1), advice(m, g));
    EXPECT_TRUE(m.pairs->exact);
}

TEST(Advice, EqualNicsAreSpreadWhereNcclPutsTwoGpusOnOne)
{
    // Two GPUs numbered 0 and 2 (another job has 1): NCCL's rule takes 0 mod 2 = 0 for both.
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) + gpu("0000:03:00.0", 2) +
                              nic("0000:21:00.0", "a", 0) + nic("0000:22:00.0", "b", 1))));
    EXPECT_EQ("a", m.pick(0));
    EXPECT_EQ("a", m.pick(1));
    EXPECT_NE(advice(m, 0), advice(m, 1));
    EXPECT_NE(nullptr, strstr(m.pairs->list[1].advice_why, "NCCL will not take it by itself"))
        << m.pairs->list[1].advice_why;
}

TEST(Advice, ASlowNicIsNotAdvisedHoweverNear)
{
    NcclFile m(sys(cpu(
        0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + nic("0000:12:00.0", "mgmt", 0, 1000)) +
               nic("0000:20:00.0", "fast", 1, 200000))));
    EXPECT_EQ("fast", advice(m, 0));
}

TEST(Advice, UplinksAreNotShared)
{
    // Both far NICs of each GPU are PHB. Behind switch 30 sit two NICs with one uplink, behind 40
    // one.
    NcclFile m(sys(cpu(
        0, gpu("0000:01:00.0", 0) + gpu("0000:02:00.0", 1) +
               bridge("0000:30:00.0", nic("0000:31:00.0", "a", 0) + nic("0000:32:00.0", "b", 1)) +
               bridge("0000:40:00.0", nic("0000:41:00.0", "c", 2)))));
    std::string both = advice(m, 0) + advice(m, 1);
    EXPECT_NE(std::string::npos, both.find('c')) << both;
}

TEST(Advice, PortsOfOneWireAreOneNic)
{
    // Two functions with the same guid and port share one cable. The third NIC is free.
    std::string wire =
        "<pci busid=\"0000:2%:00.0\" class=\"0x020000\"><nic><net name=\"v%\" dev=\"%\" "
        "speed=\"100000\" guid=\"0xabc\" port=\"1\"/></nic></pci>";
    auto at = [&](const char *n) {
        std::string s = wire;
        for (size_t i; (i = s.find('%')) != std::string::npos;)
            s.replace(i, 1, n);
        return s;
    };
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) + gpu("0000:02:00.0", 1) + at("0") + at("1") +
                              nic("0000:25:00.0", "free", 2, 100000))));
    EXPECT_TRUE(advice(m, 0) == "free" || advice(m, 1) == "free") << advice(m, 0) << advice(m, 1);
}

const std::string gen5 = "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"";

TEST(Advice, FasterNicsOfAClassComeFirst)
{
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) + gpu("0000:02:00.0", 1) +
                              nic("0000:21:00.0", "slow0", 0, 100000, "", gen5) +
                              nic("0000:22:00.0", "slow1", 1, 100000, "", gen5) +
                              nic("0000:23:00.0", "fast0", 2, 400000, "", gen5) +
                              nic("0000:24:00.0", "fast1", 3, 400000, "", gen5))));
    std::string both = advice(m, 0) + " " + advice(m, 1);
    EXPECT_TRUE(both == "fast0 fast1" || both == "fast1 fast0") << both;
}

TEST(Advice, ANearLinkOfOneLaneIsPassedOver)
{
    NcclFile m(sys(
        cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + gpu("0000:12:00.0", 1) +
                                          nic("0000:13:00.0", "narrow", 0, 200000, "",
                                              "link_speed=\"2.5 GT/s PCIe\" link_width=\"1\"")) +
                   nic("0000:20:00.0", "wide", 1))));
    EXPECT_EQ("PIX", m.type(0, 0));
    for (int g = 0; g < 2; g++) {
        EXPECT_EQ("wide", advice(m, g));
        EXPECT_NE(nullptr,
                  strstr(m.pairs->list[g].advice_why, "narrow is nearer (PIX) but has 0.2"))
            << m.pairs->list[g].advice_why;
    }
}

// Two GPUs that share 400 Gb/s get more than 150 Gb/s each, which they could have alone; four get less.
TEST(Advice, AShareOfAFastNicIsWeighedAgainstASlowerOneAlone)
{
    for (int gpus : {2, 4}) {
        std::string inner = nic("0000:20:00.0", "fast", 0, 400000, "", gen5);
        for (int i = 0; i < 4; i++) {
            const std::string n = std::to_string(i);
            inner += nic("0000:3" + n + ":00.0", "slow" + n, i + 1, 150000, "", gen5);
            if (i < gpus)
                inner += gpu("0000:0" + std::to_string(i + 1) + ":00.0", i);
        }
        NcclFile m(sys(cpu(0, inner)));
        std::multiset<std::string> used;
        for (int g = 0; g < gpus; g++)
            used.insert(advice(m, g));
        EXPECT_EQ(2u, used.count("fast")) << gpus;
        EXPECT_EQ(used.size() - 1, std::set<std::string>(used.begin(), used.end()).size())
            << "no slow one has two";
        EXPECT_EQ(gpus == 2, m.pairs->exact);
    }
}

TEST(Advice, AFactorOfTwoDoesNotOutweighTheClass)
{
    NcclFile m(sys(cpu(
        0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + nic("0000:13:00.0", "near", 0, 100000)) +
               nic("0000:20:00.0", "far", 1, 200000))));
    EXPECT_EQ("near", advice(m, 0));
}

TEST(Advice, AmongEqualsItIsNcclsOwnChoice)
{
    std::string inner;
    for (int i = 0; i < 4; i++) {
        std::string n = std::to_string(i);
        inner += gpu("0000:0" + n + ":00.0", i) + nic("0000:2" + n + ":00.0", "n" + n, i);
    }
    NcclFile m(sys(cpu(0, inner)));
    EXPECT_EQ("n2", m.pick(1)) << "the index rule reverses bits";
    for (int g = 0; g < 4; g++)
        EXPECT_EQ(m.pick(g), advice(m, g)) << g;
}

TEST(Advice, AllPortsOfACardAreUsed)
{
    std::string card, wires;
    for (int i = 0; i < 2; i++) {
        std::string n = std::to_string(i);
        card += "<pci busid=\"0000:12:00." + n + "\" class=\"0x020700\" " + gen5 +
                "><nic><net name=\"p" + n + "\" dev=\"" + n +
                "\" speed=\"200000\" guid=\"0xabc\" port=\"" + std::to_string(i + 1) +
                "\"/></nic></pci>";
    }
    NcclFile one(sys(cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + card))));
    ASSERT_EQ(1, one.pairs->list[0].n_more);
    EXPECT_NE(advice(one, 0), one.net_name(one.pairs->list[0].more[0]));
    EXPECT_NE(nullptr, strstr(one.pairs->list[0].advice_why, "with it the card's port p"))
        << one.pairs->list[0].advice_why;

    NcclFile two(sys(
        cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + gpu("0000:13:00.0", 1) + card))));
    EXPECT_NE(advice(two, 0), advice(two, 1));
    EXPECT_EQ(0, two.pairs->list[0].n_more + two.pairs->list[1].n_more);
}

TEST(Advice, AVirtualInterfaceNever)
{
    std::string virbr = "<nic><net name=\"virbr0\" dev=\"0\" speed=\"400000\"/></nic>";
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) + virbr + nic("0000:20:00.0", "real", 1, 10000))));
    EXPECT_EQ("real", advice(m, 0));
    NcclFile alone(sys(cpu(0, gpu("0000:01:00.0", 0) + virbr)));
    EXPECT_EQ("none", advice(alone, 0));
    EXPECT_NE(nullptr, strstr(alone.pairs->list[0].advice_why, "virbr0 is a virtual interface"))
        << alone.pairs->list[0].advice_why;
}

TEST(Advice, IsNoOptimumWhereSomethingIsNotKnown)
{
    auto machine = [](const std::string &link, int speed) {
        return sys(cpu(0, gpu("0000:01:00.0", 0) + gpu("0000:02:00.0", 1) +
                              nic("0000:21:00.0", "a", 0, speed, "", link) +
                              nic("0000:22:00.0", "b", 1, 100000)));
    };
    EXPECT_TRUE(NcclFile(machine(gen5, 100000)).pairs->exact);
    NcclFile speed(machine(gen5, 0)), link(machine("link_width=\"16\"", 100000), {}, false);
    EXPECT_FALSE(speed.pairs->exact);
    EXPECT_STREQ("the speed of a", speed.pairs->unknown);
    EXPECT_FALSE(link.pairs->exact);
    EXPECT_STREQ("the link of 0000:21:00.0", link.pairs->unknown);
}

TEST(Lines, OneGpuOneSentence)
{
    NcclFile m(sys(
        cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + nic("0000:12:00.0", "mlx5_0", 0)))));
    char text[600];
    pvn_topo_pairs_line(m.pairs, 0, text, sizeof text);
    EXPECT_STREQ("GPU0 0000:11:00.0: NCCL takes mlx5_0: best bandwidth 24.0 GB/s at PIX (one PCIe "
                 "switch); no "
                 "other NIC equals it",
                 text);
    char cut[20];
    pvn_topo_pairs_line(m.pairs, 0, cut, sizeof cut);
    EXPECT_STREQ("GPU0 0000:11:00.0: ", cut);
}

TEST(Finding, GpusAndNicsByEveryName)
{
    NcclFile m(sys(cpu(0, gpu("0000:0a:00.0", 5) + nic("0000:1b:00.0", "mlx5_7", 3))));
    for (const char *name :
         {"GPU5", "gpu5", "5", "0000:0a:00.0", "0000:0A:00.0", "0a:00.0", "00000000:0a:00.0"})
        EXPECT_EQ(0, pvn_topo_pairs_find_gpu(m.pairs, name)) << name;
    for (const char *name : {"GPU0", "0", "x", "", "0000:0b:00.0", "GPU", "5x"})
        EXPECT_EQ(-1, pvn_topo_pairs_find_gpu(m.pairs, name)) << name;
    for (const char *name : {"mlx5_7", "NIC3", "nic3", "NET3", "3", "0000:1b:00.0", "1b:00.0"})
        EXPECT_EQ(0, pvn_topo_pairs_find_net(m.pairs, name)) << name;
    for (const char *name : {"mlx5_0", "NET0", "", "0000:1c:00.0"})
        EXPECT_EQ(-1, pvn_topo_pairs_find_net(m.pairs, name)) << name;
}

// ---- GPUDirect ----

pvn_topo_gdr judge(const NcclFile &m, int g = 0, int n = 0)
{
    pvn_topo_gdr out;
    pvn_topo_gdr_judge(m.pairs, g, n, &out);
    return out;
}

std::string near_pair(const std::string &gpu_attrs, const std::string &net_attrs)
{
    return sys(
        cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0, "", gpu_attrs) +
                                          nic("0000:12:00.0", "mlx5_0", 0, 200000, net_attrs))));
}

struct GdrRow {
    const char *name;
    std::string xml;
    Env env;
    int first_no;
    const char *verdict;
};

class Gdr : public ::testing::TestWithParam<GdrRow>
{
};

TEST_P(Gdr, NamesTheFirstConditionThatFails)
{
    const GdrRow &row = GetParam();
    NcclFile m(row.xml, row.env);
    pvn_topo_gdr g = judge(m);
    EXPECT_EQ(row.first_no, g.first_no) << g.verdict;
    EXPECT_NE(nullptr, strstr(g.verdict, row.verdict)) << g.verdict;
    if (g.first_no >= 0) {
        EXPECT_EQ(PVN_TOPO_GDR_NO, g.steps[g.first_no].result);
        EXPECT_STRNE("", g.steps[g.first_no].seen);
    }
}

const std::string phb = sys(cpu(0, gpu("0000:01:00.0", 0, "", "sm=\"90\" gdr=\"1\"") +
                                       nic("0000:02:00.0", "mlx5_0", 0, 200000, "gdr=\"1\"")));

INSTANTIATE_TEST_SUITE_P(
    Conditions, Gdr,
    ::testing::Values(
        GdrRow{"all", near_pair("sm=\"90\" gdr=\"1\"", "gdr=\"1\""), {}, -1, "yes"},
        GdrRow{"nic",
               near_pair("sm=\"90\" gdr=\"1\"", "gdr=\"0\""),
               {},
               PVN_TOPO_GDR_NIC,
               "gdr=\"0\" for mlx5_0"},
        GdrRow{"gpu",
               near_pair("sm=\"90\" gdr=\"0\"", "gdr=\"1\""),
               {},
               PVN_TOPO_GDR_GPU,
               "for the GPU"},
        GdrRow{"nic before gpu",
               near_pair("sm=\"90\" gdr=\"0\"", "gdr=\"0\""),
               {},
               PVN_TOPO_GDR_NIC,
               "mlx5_0"},
        GdrRow{"partition",
               near_pair("sm=\"90\" gdr=\"1\" mlopart=\"1\"", "gdr=\"1\""),
               {},
               PVN_TOPO_GDR_PARTITION,
               "mlopart"},
        GdrRow{"whole by its own word",
               near_pair("sm=\"90\" gdr=\"1\" mlopart=\"-1\"", "gdr=\"1\""),
               {},
               -1,
               "yes"},
        GdrRow{"partition allowed",
               near_pair("sm=\"90\" gdr=\"1\" mlopart=\"1\"", "gdr=\"1\""),
               {{"NCCL_NET_GDR_MLOPART", "1"}},
               -1,
               "yes"},
        GdrRow{"distance", phb, {}, PVN_TOPO_GDR_DISTANCE, "needs P2C or nearer (NCCL's default)"},
        GdrRow{"level raised", phb, {{"NCCL_NET_GDR_LEVEL", "PHB"}}, -1, "yes"},
        GdrRow{"old digit", phb, {{"NCCL_NET_GDR_LEVEL", "3"}}, -1, "yes"},
        GdrRow{"level lowered",
               near_pair("sm=\"90\" gdr=\"1\"", "gdr=\"1\""),
               {{"NCCL_NET_GDR_LEVEL", "LOC"}},
               PVN_TOPO_GDR_DISTANCE,
               "needs LOC or nearer (NCCL_NET_GDR_LEVEL)"},
        GdrRow{"read off",
               near_pair("sm=\"90\" gdr=\"1\"", "gdr=\"1\""),
               {{"NCCL_NET_GDR_READ", "0"}},
               -1,
               "yes, for receiving only"},
        GdrRow{"not stated",
               near_pair("sm=\"90\"", ""),
               {},
               -1,
               "not known: whether the NIC can reach"}),
    [](const auto &row) {
        std::string name = row.param.name;
        for (char &c : name) {
            c = c == ' ' ? '_' : c;
        }
        return name;
    });

TEST(GdrSend, BeforeAmpereOnlyWithNvlinkOrAlone)
{
    auto two = [](const std::string &sm, const std::string &link) {
        return sys(cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0, link, sm) +
                                                     gpu("0000:13:00.0", 1, link, sm) +
                                                     nic("0000:12:00.0", "n", 0))));
    };
    std::string nvlink = "<nvlink target=\"x\" count=\"2\" tclass=\"0x068000\"/>";
    EXPECT_EQ(PVN_TOPO_GDR_NO,
              judge(NcclFile(two("sm=\"70\"", ""))).steps[PVN_TOPO_GDR_SEND].result);
    EXPECT_EQ(PVN_TOPO_GDR_YES,
              judge(NcclFile(two("sm=\"70\"", nvlink))).steps[PVN_TOPO_GDR_SEND].result);
    EXPECT_EQ(PVN_TOPO_GDR_YES,
              judge(NcclFile(two("sm=\"80\"", ""))).steps[PVN_TOPO_GDR_SEND].result);
    EXPECT_EQ(PVN_TOPO_GDR_YES, judge(NcclFile(two("sm=\"70\"", ""), {{"NCCL_NET_GDR_READ", "1"}}))
                                    .steps[PVN_TOPO_GDR_SEND]
                                    .result);
    EXPECT_EQ(PVN_TOPO_GDR_UNKNOWN, judge(NcclFile(two("", ""))).steps[PVN_TOPO_GDR_SEND].result);
    EXPECT_EQ(PVN_TOPO_GDR_YES,
              judge(NcclFile(near_pair("sm=\"70\"", ""))).steps[PVN_TOPO_GDR_SEND].result);
}

TEST(GdrPxn, TheRelaysDistanceCounts)
{
    std::string nvlink = "<nvlink target=\"x\" count=\"18\" tclass=\"0x068000\"/>";
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0, nvlink) +
                              bridge("0000:10:00.0", gpu("0000:11:00.0", 1, nvlink) +
                                                         nic("0000:12:00.0", "n", 0)))));
    ASSERT_EQ("PXN", m.used(0, 0));
    pvn_topo_gdr g = judge(m);
    EXPECT_EQ(PVN_TOPO_GDR_YES, g.steps[PVN_TOPO_GDR_DISTANCE].result);
    EXPECT_NE(nullptr, strstr(g.steps[PVN_TOPO_GDR_DISTANCE].seen, "GPU1, which is at PIX"))
        << g.steps[PVN_TOPO_GDR_DISTANCE].seen;
}

TEST(GdrC2c, ThroughTheCpuIsAllowedThereAndCanBeSwitchedOff)
{
    std::string c2c = "<c2c bw=\"44712\" count=\"10\"/>";
    std::string xml =
        sys(cpu(0, gpu("0000:01:00.0", 0, c2c) + nic("0000:02:00.0", "n", 0), "arch=\"arm64\""));
    EXPECT_EQ(PVN_TOPO_GDR_YES, judge(NcclFile(xml)).steps[PVN_TOPO_GDR_DISTANCE].result);
    EXPECT_EQ(
        PVN_TOPO_GDR_NO,
        judge(NcclFile(xml, {{"NCCL_NET_GDR_C2C", "0"}})).steps[PVN_TOPO_GDR_DISTANCE].result);
}

// ---- classes against a naive path finder ----

// A random tree that PCIe allows, as XML and as a list of parents.
struct RandomMachine {
    struct Node {
        int parent; // -1: on the cpu
        int cpu;
        char kind; // 's' switch, 'g' GPU, 'n' NIC
        float bw;
    };
    std::vector<Node> nodes;
    int cpus;
    std::vector<int> gpus, nics; // in document order
    std::string xml;

    explicit RandomMachine(std::mt19937 &rng)
    {
        auto upto = [&](int n) { return (int)(rng() % (unsigned)n); };
        static const char *const speeds[] = {"8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe"};
        static const float rates[] = {12, 24, 48};
        cpus = 1 + upto(3);
        std::function<std::string(int, int, int)> below = [&](int parent, int c, int depth) {
            std::string text;
            for (int i = 0, n = 1 + upto(3); i < n && nodes.size() < 60; i++) {
                int speed = upto(3), at = (int)nodes.size();
                char kind = depth < 4 && upto(2) ? 's' : upto(2) ? 'g' : 'n';
                char busid[32];
                snprintf(busid, sizeof busid, "0000:%02x:00.0", at);
                std::string link =
                    std::string("link_speed=\"") + speeds[speed] + "\" link_width=\"16\"";
                nodes.push_back({parent, c, kind, rates[speed]});
                if (kind == 's') {
                    text += bridge(busid, below(at, c, depth + 1), link);
                } else if (kind == 'g') {
                    text += gpu(busid, (int)gpus.size(), "", "sm=\"90\"", link);
                    gpus.push_back(at);
                } else {
                    text += nic(busid, "n" + std::to_string(nics.size()), (int)nics.size(), 1000000,
                                "", link);
                    nics.push_back(at);
                }
            }
            return text;
        };
        std::string all;
        for (int c = 0; c < cpus; c++)
            all += cpu(c, below(-1, c, 0));
        xml = sys(all);
    }

    std::vector<int> up(int node) const
    {
        std::vector<int> chain;
        for (; node >= 0; node = nodes[(size_t)node].parent)
            chain.push_back(node);
        return chain;
    }

    // The class and bandwidth by the tree alone: where the two paths up meet, and the narrowest link on them.
    std::pair<std::string, float> naive(int g, int n) const
    {
        std::vector<int> a = up(g), b = up(n);
        float bw = 5000;
        if (nodes[(size_t)g].cpu != nodes[(size_t)n].cpu) {
            for (auto chain : {a, b}) {
                for (int i : chain)
                    bw = std::min(bw, nodes[(size_t)i].bw);
            }
            return {"SYS", std::min(std::min(bw, 22.0f), 125.0f)};
        }
        int switches = 0;
        while (!a.empty() && !b.empty() && a.back() == b.back()) {
            switches = 1;
            a.pop_back();
            b.pop_back();
        }
        for (auto chain : {a, b}) {
            for (int i : chain)
                bw = std::min(bw, nodes[(size_t)i].bw);
        }
        bw = std::min(bw, 125.0f);
        if (switches == 0)
            return {"PHB", bw};
        return {a.size() == 1 && b.size() == 1 ? "PIX" : "PXB", bw};
    }
};

TEST(Property, ClassesAndBandwidthsAreThoseOfANaivePathFinder)
{
    std::mt19937 rng(20);
    std::map<std::string, int> seen;
    for (int round = 0; round < 300; round++) {
        RandomMachine machine(rng);
        NcclFile m(machine.xml);
        ASSERT_EQ(machine.gpus.size(), (size_t)m.tree->n_gpus);
        ASSERT_EQ(machine.nics.size(), (size_t)m.tree->n_nets);
        for (size_t g = 0; g < machine.gpus.size(); g++) {
            for (size_t n = 0; n < machine.nics.size(); n++) {
                auto [type, bw] = machine.naive(machine.gpus[g], machine.nics[n]);
                seen[type]++;
                ASSERT_EQ(type, m.type((int)g, (int)n)) << machine.xml;
                ASSERT_FLOAT_EQ(bw, m.bw((int)g, (int)n)) << machine.xml;
            }
        }
    }
    for (const char *type : {"PIX", "PXB", "PHB", "SYS"})
        EXPECT_GT(seen[type], 50) << type << " hardly occurs in the random machines";
}

TEST(Property, EveryPathIsMadeOfLinksThatExist)
{
    std::mt19937 rng(21);
    for (int round = 0; round < 100; round++) {
        RandomMachine machine(rng);
        NcclFile m(machine.xml);
        for (int g = 0; g < m.tree->n_gpus; g++) {
            for (int n = 0; n < m.tree->n_nets; n++) {
                int hops[64];
                int count = pvn_topo_ntree_hops(m.tree, g, n, hops, 64);
                ASSERT_EQ(pvn_topo_ntree_gpu_net(m.tree, g, n)->hops + 1, count);
                ASSERT_EQ(m.tree->gpus[g], hops[0]);
                ASSERT_EQ(m.tree->nets[n], hops[count - 1]);
                for (int i = 0; i + 1 < count; i++) {
                    const pvn_topo_nnode &node = m.tree->nodes[hops[i]];
                    bool linked =
                        std::any_of(node.links, node.links + node.n_links,
                                    [&](const pvn_topo_nlink &l) { return l.to == hops[i + 1]; });
                    ASSERT_TRUE(linked);
                }
            }
        }
    }
}

} // namespace
