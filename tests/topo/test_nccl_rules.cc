// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests NCCL's rules one by one: from document to graph, bandwidth model, path types, choice of NIC. Every expected
// value was worked out by hand from NCCL 2.30's source.
#include <algorithm>

#include "tests/topo/nccl_file.h"

namespace
{

// ---- bandwidth of a PCIe link ----

struct LinkRow {
    const char *speed, *width;
    float gbytes;
    bool speed_known, width_known;
};

class PcieLink : public ::testing::TestWithParam<LinkRow>
{
};

TEST_P(PcieLink, IsWidthTimesSpeedAsNcclReadsTheTexts)
{
    const LinkRow &row = GetParam();
    bool speed, width;
    EXPECT_FLOAT_EQ(row.gbytes, pvn_topo_npci_bw(row.speed, row.width, &speed, &width));
    EXPECT_EQ(row.speed_known, speed);
    EXPECT_EQ(row.width_known, width);
}

INSTANTIATE_TEST_SUITE_P(Texts, PcieLink,
                         ::testing::Values(LinkRow{"2.5 GT/s PCIe", "16", 3, true, true},
                                           LinkRow{"5.0 GT/s PCIe", "16", 6, true, true},
                                           LinkRow{"8.0 GT/s PCIe", "16", 12, true, true},
                                           LinkRow{"16.0 GT/s PCIe", "16", 24, true, true},
                                           LinkRow{"32.0 GT/s PCIe", "16", 48, true, true},
                                           LinkRow{"64.0 GT/s PCIe", "16", 96, true, true},
                                           LinkRow{"5.0 GT/s PCIe", "32", 12, true, true},
                                           // kernels to 5.6
                                           LinkRow{"8 GT/s", "8", 6, true, true},
                                           LinkRow{"16 GT/s", "16", 24, true, true},
                                           LinkRow{"2.5 GT/s", "1", 0.1875, true, true},
                                           // NVML's fallback: unknown to NCCL, so gen3
                                           LinkRow{"16.0 GT/s", "16", 12, false, true},
                                           LinkRow{"5.0 GT/s", "16", 12, false, true},
                                           LinkRow{"Unknown", "4", 3, false, true},
                                           LinkRow{"", "16", 12, false, true},
                                           LinkRow{nullptr, nullptr, 12, false, false},
                                           LinkRow{"16.0 GT/s PCIe", "0", 24, true, false},
                                           LinkRow{"16.0 GT/s PCIe", "", 24, true, false},
                                           LinkRow{"8.0 GT/s PCIe", "0x8", 6, true, true}));

// ---- bandwidth between NUMA nodes ----

struct CpuRow {
    const char *attrs;
    float gbytes;
};

class InterCpu : public ::testing::TestWithParam<CpuRow>
{
};

TEST_P(InterCpu, DependsOnMakeAndModel)
{
    std::string a = GetParam().attrs;
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0), a) + cpu(1, nic("0000:81:00.0", "n", 0), a)));
    EXPECT_FLOAT_EQ(GetParam().gbytes, m.tree->nodes[m.tree->cpus[0]].cpu.inter_bw);
    EXPECT_EQ("SYS", m.type(0, 0));
    EXPECT_FLOAT_EQ(std::min(GetParam().gbytes, 24.0f), m.bw(0, 0))
        << "200 Gb/s is 25, the slot 24";
}

INSTANTIATE_TEST_SUITE_P(
    Makes, InterCpu,
    ::testing::Values(
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"79\"",
               6}, // Broadwell
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"84\"", 6},
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\"",
               10}, // 0x55 Skylake
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"142\"", 10},
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\"",
               22}, // 0x8f
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"206\"", 22},
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"207\"",
               40}, // 0xcf
        CpuRow{"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"15\" modelid=\"207\"", 6},
        CpuRow{"arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\"", 16},
        CpuRow{"arch=\"x86_64\" vendor=\"CentaurHauls\" familyid=\"7\" modelid=\"91\"", 9},
        CpuRow{"arch=\"x86_64\" vendor=\"  Shanghai  \" familyid=\"7\" modelid=\"11\"", 6},
        CpuRow{"arch=\"x86_64\" vendor=\"HygonGenuine\" familyid=\"24\" modelid=\"1\"", 5000},
        CpuRow{"arch=\"arm64\"", 6}, CpuRow{"arch=\"ppc64\"", 32}, CpuRow{"", 5000}));

// ---- path types ----

TEST(PathType, OneSwitchIsPix)
{
    NcclFile m(sys(
        cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + nic("0000:12:00.0", "mlx5_0", 0)))));
    EXPECT_EQ("PIX", m.type(0, 0));
    EXPECT_FLOAT_EQ(24, m.bw(0, 0));
}

TEST(PathType, TwoSwitchNodesArePxb)
{
    NcclFile m(sys(cpu(0, bridge("0000:10:00.0", bridge("0000:11:00.0", gpu("0000:12:00.0", 0)) +
                                                     nic("0000:13:00.0", "mlx5_0", 0)))));
    EXPECT_EQ("PXB", m.type(0, 0));
}

TEST(PathType, ThroughTheCpuIsPhbEvenWhenBothHangOnIt)
{
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) + nic("0000:02:00.0", "mlx5_0", 0))));
    EXPECT_EQ("PHB", m.type(0, 0));
}

TEST(PathType, OtherNumaNodeIsSys)
{
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0)) + cpu(1, nic("0000:81:00.0", "mlx5_0", 0))));
    EXPECT_EQ("SYS", m.type(0, 0));
    EXPECT_FLOAT_EQ(22, m.bw(0, 0));
}

TEST(PathType, NumaMinusOneIsACpuOfItsOwn)
{
    NcclFile m(
        sys(cpu(0, gpu("0000:03:00.0", 0)) + cpu(-1, nic("0000:0b:00.1", "vmw_pvrdma0", 0))));
    EXPECT_EQ(2, m.tree->n_cpus);
    EXPECT_EQ("SYS", m.type(0, 0));
}

TEST(PathType, NvlinkBetweenGpusAndThroughOneMore)
{
    std::string to1 = "<nvlink target=\"0000:02:00.0\" count=\"4\" tclass=\"0x030200\"/>";
    std::string to0 = "<nvlink target=\"0000:01:00.0\" count=\"4\" tclass=\"0x030200\"/>";
    std::string to2 = "<nvlink target=\"0000:03:00.0\" count=\"4\" tclass=\"0x030200\"/>";
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0, to1) + gpu("0000:02:00.0", 1, to0 + to2) +
                              gpu("0000:03:00.0", 2, to1))));
    EXPECT_EQ("NVL", m.gpus(0, 1));
    EXPECT_FLOAT_EQ(4 * 20.6f, pvn_topo_ntree_gpu_gpu(m.tree, 0, 1)->bw);
    EXPECT_EQ("NVB", m.gpus(0, 2));
    NcclFile without(sys(cpu(0, gpu("0000:01:00.0", 0, to1) + gpu("0000:02:00.0", 1, to0 + to2) +
                                    gpu("0000:03:00.0", 2, to1))),
                     {{"NCCL_NVB_DISABLE", "1"}});
    EXPECT_EQ("PHB", without.gpus(0, 2));
}

TEST(PathType, NvSwitchIsNvlAndChipsAreOneFabric)
{
    std::string sw1 = "<nvlink target=\"fffffff:ffff:ff\" count=\"18\" tclass=\"0x068000\"/>";
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0, sw1)) + cpu(1, gpu("0000:81:00.0", 1, sw1))));
    EXPECT_EQ("NVL", m.gpus(0, 1));
    EXPECT_EQ(1, m.count(PVN_TOPO_NN_NVS));
    EXPECT_FLOAT_EQ(18 * 20.6f, pvn_topo_ntree_gpu_gpu(m.tree, 0, 1)->bw);
}

TEST(PathType, PerLinkNvlinkBandwidthGoesByGeneration)
{
    const std::pair<int, float> rows[] = {{60, 18.0f}, {70, 20.0f},  {80, 20.0f}, {86, 12.0f},
                                          {90, 20.6f}, {100, 40.1f}, {50, 20.0f}};
    for (auto [sm, bw] : rows) {
        std::string link = "<nvlink target=\"x\" count=\"1\" tclass=\"0x068000\"/>";
        std::string attrs = "sm=\"" + std::to_string(sm) + "\"";
        NcclFile m(
            sys(cpu(0, gpu("0000:01:00.0", 0, link, attrs) + gpu("0000:02:00.0", 1, link, attrs))));
        EXPECT_FLOAT_EQ(bw, pvn_topo_ntree_gpu_gpu(m.tree, 0, 1)->bw) << sm;
    }
}

TEST(PathType, C2cMakesThePathToALocalNicP2c)
{
    std::string c2c = "<c2c bw=\"44712\" count=\"10\"/>";
    NcclFile m(
        sys(cpu(0, gpu("0000:01:00.0", 0, c2c) + nic("0000:02:00.0", "near", 0), "arch=\"arm64\"") +
            cpu(1, gpu("0000:81:00.0", 1, c2c) + nic("0000:82:00.0", "far", 1), "arch=\"arm64\"")));
    EXPECT_EQ("PHB", m.type(0, 0)) << "the graph's path";
    EXPECT_EQ("P2C", m.used(0, 0)) << "what NCCL makes of it";
    EXPECT_EQ("SYS", m.used(0, 1));
    EXPECT_EQ("C2C", std::string(pvn_topo_npath_name(pvn_topo_ntree_gpu_cpu(m.tree, 0, 0)->type)));
    EXPECT_FLOAT_EQ(447.12f, pvn_topo_ntree_gpu_cpu(m.tree, 0, 0)->bw);
}

TEST(PathType, NothingInCommonIsDis)
{
    // The machine has a GPU and no net, so there is no path.
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0))));
    EXPECT_EQ(0, m.tree->n_nets);
    EXPECT_EQ("none", m.pick(0));
}

TEST(PathType, HostsMeetOnlyInTheNvlinkFabric)
{
    std::string fabric = "<nvlink target=\"x\" count=\"18\" tclass=\"0x068000\"/>";
    std::string a = "arch=\"arm64\" host_hash=\"0xa\"", b = "arch=\"arm64\" host_hash=\"0xb\"";
    NcclFile m(sys(cpu(0, gpu("0000:11:00.0", 0, fabric) + nic("0000:12:00.0", "a", 0), a) +
                   cpu(0, gpu("0000:11:00.0", 1, fabric) + nic("0000:12:00.0", "b", 1), b)));
    EXPECT_EQ("NVL", m.gpus(0, 1));
    EXPECT_EQ("PHB", m.type(0, 0));
    EXPECT_EQ("DIS", m.type(0, 1)) << "no relaying through the other host's GPU";
    EXPECT_EQ("DIS", m.used(0, 1));
    EXPECT_EQ(2, m.count(PVN_TOPO_NN_NIC)) << "equal bus ids of two hosts are two NICs";
}

// ---- what becomes a node ----

TEST(Graph, ANicEndsItsBranchAndHidesWhatIsBelow)
{
    NcclFile m(
        sys(cpu(0, "<pci busid=\"0000:10:00.0\" class=\"0x060400\"><nic><net name=\"a\" dev=\"0\"/>"
                   "</nic>" +
                       gpu("0000:11:00.0", 0) + "</pci>")));
    EXPECT_EQ(0, m.tree->n_gpus);
    EXPECT_EQ(1, m.tree->n_nets);
}

TEST(Graph, AGpuWithoutRankEndsItsBranch)
{
    NcclFile m(sys(cpu(0, "<pci busid=\"0000:11:00.0\" class=\"0x030200\"><gpu dev=\"0\"/></pci>")),
               {}, false);
    EXPECT_EQ(0, m.tree->n_gpus);
}

TEST(Graph, ANetWithoutDevIsNotInTheGraph)
{
    NcclFile m(
        sys(cpu(0, "<pci busid=\"0000:12:00.0\" class=\"0x020000\"><nic><net name=\"a\"/>"
                   "<net name=\"b\" dev=\"3\"/><net name=\"c\" dev=\"4\" net=\"0\" gin=\"1\"/>"
                   "</nic></pci>")),
        {}, false);
    ASSERT_EQ(1, m.tree->n_nets);
    EXPECT_EQ("b", m.net_name(0));
}

TEST(Graph, NoSpeedCountsAsTenGigabit)
{
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) + nic("0000:02:00.0", "a", 0, -1))));
    EXPECT_EQ(10000, m.tree->nodes[m.tree->nets[0]].net.speed);
    EXPECT_FLOAT_EQ(1.25, m.bw(0, 0));
}

TEST(Graph, ANicRightBelowTheCpuHasAFreeLink)
{
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) +
                              "<nic><net name=\"eth0\" dev=\"0\" speed=\"100000\"/></nic>")));
    EXPECT_EQ("PHB", m.type(0, 0));
    EXPECT_FLOAT_EQ(12.5, m.bw(0, 0));
}

// NCCL identifies a NIC by its bus id without the NUMA node. All nets with one bus id, or with none, belong to the
// first such NIC.
TEST(Graph, NicsOfOneBusIdAreOneWhereverTheyStand)
{
    auto bare = [](const char *name, int dev) {
        return std::string("<nic><net name=\"") + name + "\" dev=\"" + std::to_string(dev) +
               "\" speed=\"100000\"/></nic>";
    };
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0) + nic("0000:02:00.0", "a", 0) + bare("b", 1)) +
                   cpu(1, gpu("0000:81:00.0", 1) + nic("0000:02:00.0", "c", 2) + bare("d", 3))));
    EXPECT_EQ(2, m.count(PVN_TOPO_NN_NIC));
    for (int n = 0; n < 4; n++) {
        EXPECT_EQ("PHB", m.type(0, n)) << m.net_name(n);
        EXPECT_EQ("SYS", m.type(1, n)) << m.net_name(n);
    }
}

TEST(Graph, UnknownClassesAreSwitches)
{
    for (const char *cls : {"0x060400", "0x080100", "0x0b4000", "0x120000", "0x060000", "0x0604"}) {
        NcclFile m(
            sys(cpu(0, "<pci busid=\"0000:10:00.0\" class=\"" + std::string(cls) + "\">" +
                           gpu("0000:11:00.0", 0) + nic("0000:12:00.0", "a", 0) + "</pci>")));
        EXPECT_EQ("PIX", m.type(0, 0)) << cls;
    }
}

TEST(Graph, SeveralRanksOnAGpuShareItsHardware)
{
    NcclFile m(sys(cpu(
        0, "<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" rank=\"0\" sm=\"90\"/>"
           "<gpu dev=\"0\" rank=\"1\" sm=\"90\"/></pci>" +
               nic("0000:02:00.0", "a", 0))));
    EXPECT_EQ(2, m.tree->n_gpus);
    EXPECT_EQ(1, m.count(PVN_TOPO_NN_DEV));
    EXPECT_EQ("LOC", m.gpus(0, 1));
    EXPECT_EQ("PHB", m.type(1, 0));
}

// ---- Broadcom's two-level switches ----

std::string broadcom(const std::string &busid, const std::string &dev, const std::string &sub,
                     const std::string &inner, const std::string &subvendor = "0x1000")
{
    return bridge(busid, inner,
                  "vendor=\"0x1000\" device=\"" + dev + "\" subsystem_vendor=\"" + subvendor +
                      "\" subsystem_device=\"" + sub +
                      "\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"");
}

struct BroadcomRow {
    const char *name, *dev, *top_sub, *low_sub, *subvendor, *type;
    int switches;
};

class Broadcom : public ::testing::TestWithParam<BroadcomRow>
{
};

TEST_P(Broadcom, SubSwitchesAreFoldedIntoTheirParent)
{
    const BroadcomRow &r = GetParam();
    NcclFile m(sys(cpu(0, broadcom("0000:20:00.0", r.dev, r.top_sub,
                                   broadcom("0000:22:00.0", r.dev, r.low_sub,
                                            gpu("0000:23:00.0", 0), r.subvendor) +
                                       broadcom("0000:25:00.0", r.dev, r.low_sub,
                                                nic("0000:26:00.0", "a", 0), r.subvendor),
                                   r.subvendor))));
    EXPECT_EQ(r.type, m.type(0, 0));
    EXPECT_EQ(r.switches, m.count(PVN_TOPO_NN_PCI));
}

INSTANTIATE_TEST_SUITE_P(
    Ids, Broadcom,
    ::testing::Values(
        BroadcomRow{"gen4", "0xc010", "0xa096", "0xa064", "0x1000", "PIX", 1},
        BroadcomRow{"gen5", "0xc030", "0x0096", "0x1064", "0x1000", "PIX", 1},
        BroadcomRow{"gen5 two tops", "0xc030", "0x0096", "0x0064", "0x1000", "PXB", 3},
        BroadcomRow{"gen5 two lows", "0xc030", "0x1096", "0x1064", "0x1000", "PXB", 3},
        BroadcomRow{"gen4 other sub", "0xc010", "0xb096", "0xb064", "0x1000", "PXB", 3},
        BroadcomRow{"maker's own id", "0xc010", "0xa096", "0xa064", "0x1028", "PXB", 3}));

TEST(BroadcomDepth, ThreeLevelsFoldIntoTwo)
{
    // NCCL merges the first level into the top switch and does not look at it again, so the third level stays.
    NcclFile m(sys(cpu(
        0, broadcom("0000:20:00.0", "0xc010", "0xa000",
                    broadcom("0000:22:00.0", "0xc010", "0xa000",
                             broadcom("0000:24:00.0", "0xc010", "0xa000", gpu("0000:25:00.0", 0)) +
                                 nic("0000:26:00.0", "a", 0))))));
    EXPECT_EQ(2, m.count(PVN_TOPO_NN_PCI));
    EXPECT_EQ("PXB", m.type(0, 0));
}

TEST(BroadcomDepth, APcilinkJoinsTwoSwitches)
{
    NcclFile m(sys(cpu(
        0, bridge("0000:20:00.0", "<pcilink target=\"0000:30:00.0\"/>" + gpu("0000:21:00.0", 0)) +
               bridge("0000:30:00.0",
                      "<pcilink target=\"0000:20:00.0\"/>" + nic("0000:31:00.0", "a", 0)))));
    EXPECT_EQ("PXB", m.type(0, 0)) << "between two pci nodes, but not through the CPU";
}

TEST(Reverse, ALinkWithoutItIsNoted)
{
    std::string to1 = "<nvlink target=\"0000:02:00.0\" count=\"4\" tclass=\"0x030200\"/>";
    std::string to0 = "<nvlink target=\"0000:01:00.0\" count=\"4\" tclass=\"0x030200\"/>";
    auto note = [&](const std::string &back) {
        return std::string(
            NcclFile(sys(cpu(0, gpu("0000:01:00.0", 0, to1) + gpu("0000:02:00.0", 1, back))))
                .pairs->note);
    };
    EXPECT_EQ("NCCL does not start: 0000:01:00.0 has a link to 0000:02:00.0 and none "
              "leads back.",
              note(""));
    EXPECT_EQ("", note(to0));
}

// ---- PXN and the detour ----

std::string nvl(int n)
{
    return "<nvlink target=\"fffffff:ffff:ff\" count=\"" + std::to_string(n) +
           "\" tclass=\"0x068000\"/>";
}

std::string two_switches(const std::string &more = "")
{
    return sys(cpu(
        0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0, nvl(18)) +
                                      nic("0000:12:00.0", "mlx5_0", 0, 400000, more,
                                          "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"")) +
               bridge("0000:20:00.0", gpu("0000:21:00.0", 1, nvl(18)) +
                                          nic("0000:22:00.0", "mlx5_1", 1, 400000, more,
                                              "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\""))));
}

TEST(Pxn, AGpuBesideTheNicRelaysOverNvlink)
{
    NcclFile m(two_switches());
    EXPECT_EQ("PIX", m.used(0, 0));
    EXPECT_EQ("PXN", m.used(0, 1));
    EXPECT_EQ(1, pvn_topo_ntree_route(m.tree, 0, 1)->via_gpu);
    EXPECT_FLOAT_EQ(48, pvn_topo_ntree_route(m.tree, 0, 1)->bw) << "400 Gb/s is 50, the slot 48";
}

TEST(Pxn, CanBeSwitchedOff)
{
    NcclFile m(two_switches(), {{"NCCL_PXN_DISABLE", "1"}});
    EXPECT_EQ("PHB", m.used(0, 1));
}

TEST(Pxn, NeedsGpuDirectAtTheRelay)
{
    NcclFile m(two_switches("gdr=\"0\""));
    EXPECT_EQ("PHB", m.used(0, 1));
    EXPECT_EQ("PHB", m.used(0, 0))
        << "and without GPUDirect the near pair goes through the CPU as well";
    EXPECT_TRUE(pvn_topo_ntree_route(m.tree, 0, 0)->detour);
    EXPECT_EQ("PIX", m.type(0, 0));
}

TEST(Detour, ALevelThatIsTooLowRefusesANearPair)
{
    NcclFile m(two_switches(), {{"NCCL_NET_GDR_LEVEL", "LOC"}});
    EXPECT_EQ("PHB", m.used(0, 0));
}

// ---- GPU pairs ----

TEST(Detour, AMemoryLocalityPartitionIsRefusedUnlessAVariableAllowsIt)
{
    auto machine = [](const char *part) {
        return sys(
            cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0, "",
                                              std::string("sm=\"90\" mlopart=\"") + part + "\"") +
                                              nic("0000:12:00.0", "mlx5_0", 0))));
    };
    EXPECT_EQ("PIX", NcclFile(machine("-1")).used(0, 0)) << "what NCCL writes of a whole GPU";
    EXPECT_EQ("PHB", NcclFile(machine("1")).used(0, 0));
    EXPECT_EQ("PIX", NcclFile(machine("1"), {{"NCCL_NET_GDR_MLOPART", "1"}}).used(0, 0));
}

TEST(GpuPairs, GoThroughTheCpuBeyondTheP2pLevel)
{
    std::string xml =
        sys(cpu(0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + gpu("0000:12:00.0", 1))));
    EXPECT_EQ("PIX", NcclFile(xml).gpus(0, 1));
    EXPECT_EQ("PHB", NcclFile(xml, {{"NCCL_P2P_DISABLE", "1"}}).gpus(0, 1));
    EXPECT_EQ("PHB", NcclFile(xml, {{"NCCL_P2P_LEVEL", "NVL"}}).gpus(0, 1));
}

// ---- choice ----

TEST(Choice, EightGpusAndFourEqualNicsGiveTheReversedPattern)
{
    std::string inner;
    for (int i = 0; i < 8; i++)
        inner += gpu("0000:0" + std::to_string(i + 1) + ":00.0", i);
    for (int i = 0; i < 4; i++)
        inner += nic("0000:2" + std::to_string(i) + ":00.0", "n" + std::to_string(i), i);
    NcclFile m(sys(cpu(0, inner)));
    const char *expected[] = {"n0", "n2", "n1", "n3", "n0", "n2", "n1", "n3"};
    for (int g = 0; g < 8; g++)
        EXPECT_EQ(expected[g], m.pick(g)) << g;
}

TEST(Choice, WithoutAPowerOfTwoThereIsNoReversal)
{
    std::string inner;
    for (int i = 0; i < 4; i++)
        inner += gpu("0000:0" + std::to_string(i + 1) + ":00.0", i);
    for (int i = 0; i < 3; i++)
        inner += nic("0000:2" + std::to_string(i) + ":00.0", "n" + std::to_string(i), i);
    NcclFile m(sys(cpu(0, inner)));
    const char *expected[] = {"n0", "n1", "n2", "n0"};
    for (int g = 0; g < 4; g++)
        EXPECT_EQ(expected[g], m.pick(g)) << g;
}

// NCCL's dump for two interfaces without a PCI path and GPUs on two NUMA nodes. NCCL finds four networks in it, so that
// each GPU of the first node has two of them.
TEST(Choice, ANetBelowTwoCpusIsListedTwice)
{
    const char nics[] = "<nic><net name=\"eth0\" dev=\"0\" speed=\"50000\"/>"
                        "<net name=\"eth1\" dev=\"1\" speed=\"50000\"/></nic>";
    NcclFile m(sys(cpu(0, gpu("0001:00:00.0", 0) + nics + gpu("0002:00:00.0", 1)) +
                   cpu(1, gpu("0003:00:00.0", 2) + nics + gpu("0004:00:00.0", 3))));
    ASSERT_EQ(2, m.tree->n_nets);
    EXPECT_EQ((std::vector<int>{0, 1, 0, 1}),
              std::vector<int>(m.tree->net_list, m.tree->net_list + m.tree->n_net_list));
    EXPECT_EQ(2, m.count(PVN_TOPO_NN_NET));
    for (int g = 0; g < 4; g++) {
        EXPECT_EQ(g < 2 ? "PHB" : "SYS", m.type(g, 0)) << g;
        EXPECT_EQ("eth0", m.pick(g, 0)) << g;
        EXPECT_EQ("eth1", m.pick(g, 1)) << g;
        EXPECT_EQ("eth0", m.pick(g, 2)) << g;
    }
    // Two nets of one name below one cpu are two nets.
    const char twice[] = "<nic><net name=\"a\" dev=\"0\"/><net name=\"a\" dev=\"0\"/></nic>";
    EXPECT_EQ(2, NcclFile(sys(cpu(0, gpu("0001:00:00.0", 0) + twice))).tree->n_nets);
}

TEST(Choice, BandwidthComesBeforeNearness)
{
    NcclFile m(sys(cpu(
        0, bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + nic("0000:12:00.0", "near", 0, 25000)) +
               nic("0000:20:00.0", "fast", 1, 200000))));
    EXPECT_EQ("PIX", m.type(0, 0));
    EXPECT_EQ("PHB", m.type(0, 1));
    EXPECT_EQ("fast", m.pick(0));
    EXPECT_NE(nullptr, strstr(m.pairs->list[0].nccl_why, "near is nearer (PIX)"))
        << m.pairs->list[0].nccl_why;
}

TEST(Choice, AmongEqualBandwidthTheNearerWins)
{
    NcclFile m(sys(cpu(
        0, nic("0000:05:00.0", "far", 0) +
               bridge("0000:10:00.0", gpu("0000:11:00.0", 0) + nic("0000:12:00.0", "near", 1)))));
    EXPECT_EQ("near", m.pick(0));
}

TEST(Choice, PolicySaysHowManyNicsAGpuUses)
{
    std::string inner = gpu("0000:01:00.0", 0) + gpu("0000:02:00.0", 1);
    for (int i = 0; i < 4; i++)
        inner += nic("0000:2" + std::to_string(i) + ":00.0", "n" + std::to_string(i), i);
    auto channels = [&](const Env &env) {
        NcclFile m(sys(cpu(0, inner)), env);
        std::string text;
        for (int c = 0; c < 5; c++)
            text += m.pick(0, c);
        return text;
    };
    EXPECT_EQ("n0n1n0n1n0", channels({})); // 4 NICs for 2 GPUs: two each
    EXPECT_EQ("n0n1n2n3n0", channels({{"NCCL_NETDEVS_POLICY", "all"}}));
    EXPECT_EQ("n0n0n0n0n0", channels({{"NCCL_NETDEVS_POLICY", "MAX:1"}}));
    EXPECT_EQ("n0n1n2n0n1", channels({{"NCCL_NETDEVS_POLICY", "MAX:3"}}));
    EXPECT_EQ("n0n1n2n3n0", channels({{"NCCL_NETDEVS_POLICY", "MAX:9"}}));
    EXPECT_EQ("n0n1n0n1n0", channels({{"NCCL_NETDEVS_POLICY", "MAX:0"}})) << "not understood: AUTO";
}

TEST(Choice, AGraphWithoutNicsHasNone)
{
    NcclFile m(sys(cpu(0, gpu("0000:01:00.0", 0))));
    EXPECT_EQ("none", m.pick(0));
    EXPECT_EQ(-1, m.pairs->list[0].advice);
    EXPECT_STREQ("no path leads from this GPU to any NIC", m.pairs->list[0].nccl_why);
}

// ---- NCCL's variables ----

TEST(Env, DefaultsAreNccls)
{
    pvn_topo_nccl_env env = nccl_env({});
    EXPECT_EQ(-1, env.p2p_level);
    EXPECT_EQ(-1, env.gdr_level);
    EXPECT_EQ(-1, env.gdr_read);
    EXPECT_EQ(2, env.cross_nic);
    EXPECT_TRUE(env.gdr_c2c && env.pxn_c2c && env.dmabuf);
    EXPECT_FALSE(env.pxn_disable || env.nvb_disable);
    EXPECT_EQ(PVN_TOPO_MERGE_PORT, env.merge_level);
    EXPECT_STREQ("", env.bad);
}

TEST(Env, LevelsAreNamesOrTheOldDigits)
{
    const std::pair<const char *, int> rows[] = {
        {"LOC", PVN_TOPO_NPATH_LOC}, {"NVL", PVN_TOPO_NPATH_NVL}, {"PIX", PVN_TOPO_NPATH_PIX},
        {"PXB", PVN_TOPO_NPATH_PXB}, {"P2C", PVN_TOPO_NPATH_P2C}, {"PHB", PVN_TOPO_NPATH_PHB},
        {"SYS", PVN_TOPO_NPATH_SYS}, {"0", PVN_TOPO_NPATH_LOC},   {"1", PVN_TOPO_NPATH_PIX},
        {"2", PVN_TOPO_NPATH_PXB},   {"3", PVN_TOPO_NPATH_PHB},   {"4", PVN_TOPO_NPATH_SYS},
        {"5", PVN_TOPO_NPATH_SYS},   {"9", PVN_TOPO_NPATH_SYS},
    };
    for (auto [text, level] : rows)
        EXPECT_EQ(level, nccl_env({{"NCCL_NET_GDR_LEVEL", text}}).gdr_level) << text;
}

TEST(Env, WhatIsEmptyOrTooLargeIsUnset)
{
    for (const char *text : {"", "99999999999999999999"}) {
        pvn_topo_nccl_env env = nccl_env({{"NCCL_NET_GDR_READ", text},
                                          {"NCCL_NET_GDR_C2C", text},
                                          {"NCCL_NET_GDR_MLOPART", text},
                                          {"NCCL_DMABUF_ENABLE", text},
                                          {"NCCL_PXN_DISABLE", text},
                                          {"NCCL_PXN_C2C", text},
                                          {"NCCL_NVB_DISABLE", text},
                                          {"NCCL_CROSS_NIC", text}});
        EXPECT_EQ(-1, env.gdr_read);
        EXPECT_TRUE(env.gdr_c2c && env.dmabuf && env.pxn_c2c);
        EXPECT_FALSE(env.gdr_mlopart || env.pxn_disable || env.nvb_disable);
        EXPECT_EQ(2, env.cross_nic);
    }
    EXPECT_STREQ("", nccl_env({{"NCCL_P2P_LEVEL", ""}, {"NCCL_NET_GDR_LEVEL", ""}}).bad);
    EXPECT_EQ(-1, nccl_env({{"NCCL_NET_GDR_READ", "-2"}}).gdr_read) << "NCCL's default";
    EXPECT_EQ(1, nccl_env({{"NCCL_NET_GDR_READ", "1"}}).gdr_read);
}

TEST(Env, WhatNcclDoesNotUnderstandIsReported)
{
    for (auto [name, value] : {std::pair<const char *, const char *>{"NCCL_NET_GDR_LEVEL", "phb"},
                               {"NCCL_P2P_LEVEL", "NODE"},
                               {"NCCL_NETDEVS_POLICY", "SOME"},
                               {"NCCL_NET_MERGE_LEVEL", "NODE"},
                               {"NCCL_NET_MERGE_POLICY", "ANY"}}) {
        pvn_topo_nccl_env env = nccl_env({{name, value}});
        EXPECT_NE(nullptr, strstr(env.bad, name)) << env.bad;
        EXPECT_NE(nullptr, strstr(env.bad, value)) << env.bad;
    }
    EXPECT_EQ(-1, nccl_env({{"NCCL_NET_GDR_LEVEL", "phb"}}).gdr_level);
    EXPECT_EQ(PVN_TOPO_NPATH_LOC, nccl_env({{"NCCL_NET_MERGE_LEVEL", "NODE"}}).merge_level);
}

// ---- fusion ----

std::string fused(const NcclFile &m, int max = 4)
{
    std::vector<int> group(m.tree->n_nets);
    std::string text;
    char problem[512];
    EXPECT_EQ(0, pvn_topo_pairs_fusion(m.pairs, max, group.data(), problem, sizeof problem));
    if (problem[0])
        return problem;
    for (int g : group)
        text += m.net_name(g) + " ";
    return text;
}

TEST(Fusion, ByDefaultThePortsOfOneCard)
{
    std::string xml = sys(cpu(0, gpu("0000:01:00.0", 0) + nic("0000:20:00.0", "a", 0) +
                                     nic("0000:20:00.1", "b", 1) + nic("0000:21:00.0", "c", 2)));
    EXPECT_EQ("a a c ", fused(NcclFile(xml)));
    EXPECT_EQ("a b c ", fused(NcclFile(xml, {{"NCCL_NET_MERGE_LEVEL", "LOC"}})));
    EXPECT_EQ("a a a ", fused(NcclFile(xml, {{"NCCL_NET_MERGE_LEVEL", "PHB"}})));
    EXPECT_EQ("a a c ", fused(NcclFile(xml, {{"NCCL_NET_MERGE_LEVEL", "PHB"}}), 2))
        << "two at most";
}

TEST(Fusion, ByRailOnlyEqualRails)
{
    Env env = {{"NCCL_NET_MERGE_LEVEL", "PHB"}, {"NCCL_NET_MERGE_POLICY", "RAIL"}};
    std::string xml = sys(cpu(0, nic("0000:20:00.0", "a", 0, 1000, "rail=\"1\"") +
                                     nic("0000:21:00.0", "b", 1, 1000, "rail=\"2\"") +
                                     nic("0000:22:00.0", "c", 2, 1000, "rail=\"1\"") +
                                     nic("0000:23:00.0", "d", 3)));
    EXPECT_EQ("a b a d ", fused(NcclFile(xml, env)));
}

TEST(Fusion, ForcedSetsComeBeforeTheAutomaticOnes)
{
    std::string xml = sys(cpu(0, nic("0000:20:00.0", "a", 0) + nic("0000:20:00.1", "b", 1) +
                                     nic("0000:21:00.0", "c", 2) + nic("0000:22:00.0", "d", 3)));
    auto with = [&](const char *force, int max = 4) {
        return fused(NcclFile(xml, {{"NCCL_NET_FORCE_MERGE", force}}), max);
    };
    EXPECT_EQ("a b a b ", with("c,a;b,d"));
    EXPECT_EQ("a a c c ", with("c,d")) << "the rest as ever";
    EXPECT_EQ("a b c d ", with("a")) << "one alone stays alone";
    EXPECT_EQ("a a c c ", with(";;d,,c;"));
    EXPECT_EQ("a a c c ", with("c:1,d")) << "by port";
    EXPECT_NE(std::string::npos, with("c:2,d").find("names 2 devices and 1 of them is there"));
    EXPECT_NE(std::string::npos, with("a,bb").find("names 2 devices and 1 of them is there"));
    EXPECT_NE(std::string::npos, with("a,b;x,y").find("\"x,y\" names 2 devices and 0 of them are"));
    EXPECT_NE(std::string::npos, with("a,b,c", 2).find("joins 3 devices and 2 are possible"));
    EXPECT_NE(std::string::npos, with("a,b;,").find("hangs at start"));
}

TEST(CrossNic, EachValueIsExplained)
{
    char text[320];
    std::string xml = sys(cpu(0, nic("0000:20:00.0", "a", 0, 1000, "rail=\"1\"")));
    pvn_topo_pairs_cross_nic(NcclFile(xml, {{"NCCL_CROSS_NIC", "0"}}).pairs, text, sizeof text);
    EXPECT_NE(nullptr, strstr(text, "same rail number")) << text;
    pvn_topo_pairs_cross_nic(NcclFile(xml, {{"NCCL_CROSS_NIC", "1"}}).pairs, text, sizeof text);
    EXPECT_NE(nullptr, strstr(text, "any NIC")) << text;
    pvn_topo_pairs_cross_nic(NcclFile(xml).pairs, text, sizeof text);
    EXPECT_NE(nullptr, strstr(text, "default")) << text;
}

} // namespace
