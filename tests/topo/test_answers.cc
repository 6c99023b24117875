// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo's answers in cases where an earlier version was silent or wrong: differences of two machines, NICs
// that are down, devices that NCCL never visits, and guests.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "tests/topo/cli.h"
#include "tests/topo/shared.h"
#include "tests/topo/tree.h"

namespace
{

#define EXPECT_HAS(text, part)                                                                     \
    EXPECT_NE(std::string::npos, squeeze(text).find(squeeze(part))) << (text)
#define EXPECT_HAS_NOT(text, part)                                                                 \
    EXPECT_EQ(std::string::npos, squeeze(text).find(squeeze(part))) << (text)

class Answers : public ::testing::Test
{
  protected:
    TempDir dir;
    Tree t;

    void put(const std::string &name, const std::string &content)
    {
        std::ofstream(dir.path + "/" + name, std::ios::binary) << content;
    }
    // Runs the tool on the tree.
    std::string out(const std::string &args, const std::string &env = "")
    {
        put("m.tar", t.tar());
        Result r = run_tool(dir.path, "--root m.tar " + args, env);
        EXPECT_LE(0, r.status) << "killed by a signal";
        return r.out + r.err;
    }
    std::string tool(const std::string &args)
    {
        Result r = run_tool(dir.path, args);
        EXPECT_LE(0, r.status) << "killed by a signal";
        return r.out + r.err;
    }
};

// ---- diff ----

std::string two_gpus(const std::string &links0, const std::string &links1, const std::string &gdr)
{
    auto gpu = [&](int n, const std::string &links) {
        std::string i = std::to_string(n);
        return "<pci busid=\"0000:0" + i +
               ":00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
               "<gpu dev=\"" +
               i + "\" sm=\"90\" rank=\"" + i + "\"" + gdr + ">" + links + "</gpu></pci>\n";
    };
    return "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
           "familyid=\"25\" modelid=\"1\" affinity=\"ff\">\n" +
           gpu(1, links0) + gpu(2, links1) + "</cpu></system>\n";
}

std::string nvlink(const std::string &target, int count)
{
    return "<nvlink target=\"" + target + "\" count=\"" + std::to_string(count) +
           "\" tclass=\"0x030200\"/>";
}

TEST_F(Answers, DiffSeesNvlinksThatAreGone)
{
    put("a.xml", two_gpus(nvlink("0000:02:00.0", 8), nvlink("0000:01:00.0", 8), ""));
    put("b.xml", two_gpus("", "", ""));
    std::string text = tool("diff a.xml b.xml");
    EXPECT_HAS(text, "gpu 0000:01:00.0: NVLinks 8 -> 0; to 0000:02:00.0 8 -> 0");
    EXPECT_HAS(text, "path 0000:01:00.0 - 0000:02:00.0: NVL 164.8 GB/s -> PHB");
    EXPECT_HAS_NOT(text, "no difference");
    EXPECT_HAS(tool("diff b.xml a.xml"),
               "gpu 0000:02:00.0: NVLinks 0 -> 8; to 0000:01:00.0 0 -> 8");
    EXPECT_HAS(tool("diff a.xml a.xml"), "no difference");
}

TEST_F(Answers, DiffSeesTheNumberOfNvlinks)
{
    put("a.xml", two_gpus(nvlink("0000:02:00.0", 8), nvlink("0000:01:00.0", 8), ""));
    put("b.xml", two_gpus(nvlink("0000:02:00.0", 56), nvlink("0000:01:00.0", 56), ""));
    EXPECT_HAS(tool("diff a.xml b.xml"), "NVLinks 8 -> 56");
}

// The count of NVLinks in a damaged file is cut to an int, as in NCCL, and then added up.
TEST_F(Answers, DiffAddsUpAnyNumberOfNvlinks)
{
    const std::string link = nvlink("0000:02:00.0", 2147483647),
                      most = "<nvlink target=\"0000:02:00.0\" count=\"9223372036854775807\"/>";
    put("a.xml", two_gpus(link + link + most, "", ""));
    put("b.xml", two_gpus("", "", ""));
    EXPECT_HAS(tool("diff a.xml b.xml"), "NVLinks 4294967293 -> 0");
}

TEST_F(Answers, DiffSeesAttributesThatOneSideLacks)
{
    put("a.xml", two_gpus("", "", " gdr=\"1\""));
    put("b.xml", two_gpus("", "", ""));
    EXPECT_HAS(tool("diff a.xml b.xml"), "gpu 0000:01:00.0: stated only in the first: gdr \"1\"");
    EXPECT_HAS(tool("diff b.xml a.xml"), "gpu 0000:01:00.0: stated only in the second: gdr \"1\"");
}

// NCCL's model computes a negative bandwidth from this width, so the link counts as having no bandwidth.
TEST_F(Answers, ALinkOfNegativeWidthIsNobodysAdvice)
{
    auto pci = [](const char *bus, const char *width, const std::string &below) {
        return std::string("<pci busid=\"0000:") + bus +
               ":00.0\" link_speed=\"16.0 GT/s PCIe\" link_width=\"" + width + "\">" + below +
               "</pci>";
    };
    auto nic = [](const char *name, const char *dev) {
        return std::string("<nic><net name=\"") + name + "\" dev=\"" + dev +
               "\" speed=\"100000\" port=\"1\" guid=\"" + dev + "\"/></nic>";
    };
    put("m.xml", "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
                 "familyid=\"25\" modelid=\"1\" affinity=\"ff\">" +
                     pci("01", "16", "<gpu dev=\"0\" sm=\"90\" rank=\"0\"/>") +
                     pci("02", "-2147483000", nic("broken", "0")) +
                     pci("03", "16", nic("whole", "1")) + "</cpu></system>");
    EXPECT_HAS(tool("--root m.xml pairs"), "advice the same; nearest: PHB");
    EXPECT_HAS(tool("--root m.xml pairs"), "NCCL whole (PHB)");
}

// Compares a real machine's dump with a copy that has no NVLink lines.
TEST_F(Answers, DiffOfARealDumpWithoutItsNvlinks)
{
    std::string whole =
        read_file(shared_topologies() + "/nccl-xml/dumps/timez-2xA100-dualport.xml");
    if (whole.empty())
        GTEST_SKIP() << "the collected machine descriptions are not here";
    put("a.xml", whole);
    put("b.xml", std::regex_replace(whole, std::regex("<nvlink[^>]*/>"), ""));
    EXPECT_HAS(tool("diff a.xml b.xml"), "NVLinks");
    EXPECT_HAS(tool("diff a.xml a.xml"), "no difference");
}

// ---- NICs that are down ----

class Down : public Answers
{
  protected:
    void SetUp() override
    {
        // The GPU and one NIC are below one switch. The other NIC is on the other socket.
        auto near = t.pcie_switch(t.pci("pci0000:10", "0000:10:01.0", Pci::bridge()),
                                  "0000:11:00.0", 0x12, 2, Pci::bridge());
        t.pci(near[1], "0000:13:00.0", Pci::gpu());
        std::string a = t.pci(near[2], "0000:14:00.0", Pci::nic());
        std::string b = t.pci(t.pci("pci0000:80", "0000:80:01.0", Pci::bridge().with_numa("1")),
                              "0000:81:00.0", Pci::nic().with_numa("1"));
        t.rdma("mlx5_0", a, "InfiniBand", {}, "1: DOWN");
        t.rdma("mlx5_1", b, "InfiniBand", {});
        t.numa(0, "0f", "0-3", "10 21");
        t.numa(1, "f0", "4-7", "21 10");
        t.cpus("GenuineIntel", 6, 143, false);
    }
};

TEST_F(Down, WhySaysSoAndHowFarItIs)
{
    std::string text = out("why GPU0 mlx5_0");
    EXPECT_HAS(text,
               "mlx5_0 is down, so NCCL and the plugin leave it out. Its distance from GPU0 is "
               "PIX (nvidia-smi's name); up, it would be the nearest: of those that are up, "
               "mlx5_1 is SYS.");
    EXPECT_HAS_NOT(text, "there is no NIC");
    EXPECT_HAS(out("why GPU0 mlx5_9"), "there is no NIC \"mlx5_9\"");
}

TEST_F(Down, PairsSaysThatItWouldBeTheNearest)
{
    EXPECT_HAS(out("pairs"), "mlx5_0 is down; up, it would be the nearest to GPU0 (PIX).");
}

TEST_F(Down, JsonNamesIt)
{
    std::string text = out("--json why GPU0 mlx5_0");
    EXPECT_HAS(text, "\"nic_down\": true");
    EXPECT_HAS(text, "\"nvidia_smi\": \"PIX\"");
    EXPECT_HAS(text, "\"nearest_if_up\": true");
    text = out("--json pairs");
    EXPECT_HAS(text.substr(std::min(text.size(), text.find("\"down\""))), "\"nic\": \"mlx5_0\"");
    EXPECT_HAS(text.substr(std::min(text.size(), text.find("\"nearest_to\""))), "\"GPU0\"");
}

TEST_F(Down, CheckAdvisesToBringItUpAndNotToMoveACard)
{
    std::string text = out("check");
    EXPECT_HAS(text, "up, it would be the nearest to GPU0 (PIX)");
    EXPECT_HAS(text, "bring up mlx5_0, which is on the GPU's node and down");
    EXPECT_HAS_NOT(text, "move a card");
}

// ---- what NCCL never visits ----

const char siblings[] =
    "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
    "familyid=\"25\" modelid=\"1\" affinity=\"ff\">\n"
    "<pci busid=\"0000:50:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\"><nic><net name=\"mlx5_0\" dev=\"0\" speed=\"200000\" port=\"1\" "
    "guid=\"0x1\"/></nic>\n"
    "<pci busid=\"0000:53:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\"><gpu dev=\"0\" sm=\"80\" rank=\"0\"/></pci>\n"
    "<pci busid=\"0000:54:00.0\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\"><nic><net name=\"mlx5_1\" dev=\"1\" speed=\"200000\" port=\"1\" "
    "guid=\"0x2\"/></nic></pci>\n"
    "</pci></cpu></system>\n";

TEST_F(Answers, PairsSaysWhatIsLostBesideANic)
{
    put("s.xml", siblings);
    EXPECT_HAS(tool("--root s.xml pairs"),
               "NCCL never visits GPU 0000:53:00.0, NIC mlx5_1 (0000:54:00.0): 0000:50:00.0, "
               "above, holds a <nic>");
    EXPECT_HAS(tool("--root s.xml --json pairs"), "NCCL never visits GPU 0000:53:00.0");
}

TEST_F(Answers, LintCallsItAnErrorAndNamesThem)
{
    put("s.xml", siblings);
    Result r = run_tool(dir.path, "lint s.xml");
    EXPECT_EQ(1, r.status);
    EXPECT_HAS(r.out, "ERROR [nic-in-bridge]");
    EXPECT_HAS(r.out, "never visits the rest of it: GPU 0000:53:00.0, NIC mlx5_1 (0000:54:00.0)");
}

TEST_F(Answers, TheFileThatIsWrittenLosesNothing)
{
    put("s.xml", siblings);
    ASSERT_EQ(0, run_tool(dir.path, "--root s.xml --xml-full -o full.xml dump").status);
    EXPECT_EQ(0, run_tool(dir.path, "lint full.xml").status) << tool("lint full.xml");
    EXPECT_HAS(tool("--root full.xml pairs"), "mlx5_0 (PIX), mlx5_1 (PIX)");
    EXPECT_HAS_NOT(tool("--root full.xml pairs"), "never visits");
    ASSERT_EQ(0, run_tool(dir.path, "--root s.xml --xml -o made.xml dump").status);
    EXPECT_EQ(0, run_tool(dir.path, "lint made.xml").status) << tool("lint made.xml");
}

// The NCCL_TOPO_FILE of a cloud provider has bus ids and nothing else.
TEST_F(Answers, AFileOfBusIdsInventsNothing)
{
    std::string cpus;
    for (int c = 0; c < 2; c++) {
        std::string n = std::to_string(c + 5);
        cpus += "<cpu numaid=\"" + std::to_string(c) + "\"><pci busid=\"0000:" + n +
                "1:00.0\"><pci busid=\"0000:" + n + "3:00.0\"/></pci></cpu>";
    }
    put("bare.xml", "<system version=\"1\">" + cpus + "</system>");
    std::string text = tool("--root bare.xml dump");
    EXPECT_HAS(text, "0000:53:00.0 function without a class");
    EXPECT_HAS(text, "link to the others not known (no CPU vendor)");
    EXPECT_HAS_NOT(text, "5000 GB/s");
    EXPECT_HAS_NOT(text, "12.0 GB/s");
    EXPECT_HAS(tool("--root bare.xml pairs"),
               "2 of the 2 devices in this file have no class and 4 of 4 no link");
}

// ---- guests, and what is easily misread ----

TEST_F(Answers, APvrdmaGuestGetsNoOptimumAndNoGdrLevel)
{
    t = vmware_guest({});
    EXPECT_HAS_NOT(out("pairs"), "proven optimum");
    for (const char *command : {"pairs", "why GPU0 vmw_pvrdma0", "check", "--json pairs"})
        EXPECT_HAS_NOT(out(command), "NCCL_NET_GDR_LEVEL=") << command;
}

TEST_F(Answers, TheTwoSpeedsOfAPvrdmaDeviceAreExplained)
{
    t = vmware_guest({});
    std::string pci = "/sys/devices/pci0000:00/0000:00:16.0/0000:0b:00.1";
    std::string rate = pci + "/infiniband/vmw_pvrdma0/ports/1/rate";
    ASSERT_TRUE(t.has(rate));
    t.file(rate, "40 Gb/sec (4X QDR)\n");
    EXPECT_HAS(out("why GPU0 vmw_pvrdma0"),
               "Speed 10 Gb/s: vmw_pvrdma reports the constant 40 Gb/sec (4X QDR); counted is the "
               "speed of its vmxnet3");
    EXPECT_HAS(out("--all check"), "vmw_pvrdma always reports 40 Gb/sec (4X QDR), what counts is "
                                   "the 10 Gb/s of its vmxnet3");
}

TEST_F(Answers, MergeNamesWhatItDidNotPlace)
{
    t = vmware_guest({});
    put("part.hints", "pvn-topo-hints 1\nswitch s0\ndevice 0000:03:00.0 in s0\n"
                      "device vmw_pvrdma0 in s0\n");
    std::string text = out("--hints part.hints merge");
    EXPECT_HAS(text, "not placed, because neither the host's tree nor the hints have them: GPU1 "
                     "(0000:1b:00.0), vmw_pvrdma1 (0000:13:00.1)");
    EXPECT_HAS_NOT(text, "GPU0 (0000:03:00.0)");
}

TEST_F(Answers, NumaIsNotCalledOkBesideAWarning)
{
    GuestVariant v;
    v.nic_numa = "0";
    t = vmware_guest(v);
    std::string text = out("check");
    EXPECT_HAS(text, "numa_node is -1 while others have a node");
    EXPECT_HAS_NOT(text, "numa (");
}

TEST_F(Answers, MatrixColumnsStayApartAndGpusAreInOrder)
{
    std::string inner;
    for (int i = 0; i < 12; i++) {
        char bus[3];
        snprintf(bus, sizeof bus, "%02x", 0x20 + i);
        std::string n = std::to_string(i);
        inner += "<pci busid=\"0000:" + std::string(bus) +
                 ":00.0\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
                 "<nic><net name=\"n" +
                 n + "\" dev=\"" + n + "\" speed=\"100000\" port=\"1\" guid=\"0x" + n +
                 "1\"/></nic></pci>";
    }
    for (int i = 0; i < 2; i++)
        inner += "<pci busid=\"0000:0" + std::to_string(i + 1) +
                 ":00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
                 "<gpu dev=\"" +
                 std::to_string(1 - i) + "\" rank=\"" + std::to_string(1 - i) +
                 "\" sm=\"80\"/></pci>";
    put("many.xml", "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" "
                    "vendor=\"AuthenticAMD\" familyid=\"25\" modelid=\"1\">" +
                        inner + "</cpu></system>");
    std::string text = tool("--root many.xml matrix");
    EXPECT_HAS(text, "GPU0 GPU1 NIC0");
    EXPECT_HAS(text, "NIC9 NIC10 NIC11");
    std::string pairs = tool("--root many.xml pairs");
    EXPECT_LT(pairs.find("GPU0 0000:02"), pairs.find("GPU1 0000:01")) << pairs;
    EXPECT_HAS(pairs, "NCCL goes round them by the number of the GPU");
}

TEST_F(Answers, AmdGpusAreJoinedByXgmi)
{
    for (int i = 0; i < 2; i++) {
        std::string n = std::to_string(i + 1);
        Pci gpu = Pci::gpu(0x74a1);
        gpu.vendor = 0x1002;
        gpu.cls = 0x038000;
        gpu.driver = "amdgpu";
        t.pci(t.pci("pci0000:00", "0000:00:0" + n + ".0", Pci::bridge()), "0000:0" + n + ":00.0",
              gpu);
    }
    t.numa(0, "ff", "0-7", "10");
    std::string text = out("matrix");
    EXPECT_HAS(text, "XGMI cannot be seen in sysfs: pairs of AMD's GPUs");
    EXPECT_HAS_NOT(text, "NVLink");
}

} // namespace
