// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// What pvn-topo answers where it once said nothing or the wrong thing: differences of two machines,
// NICs that are down, devices that NCCL never visits, guests.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "tests/topo/cli.h"
#include "tests/topo/shared.h"
#include "tests/topo/tree.h"

namespace
{

// Sentences are wrapped: any white space counts as one space.
std::string squeeze(const std::string &text)
{
    std::istringstream in(text);
    std::string all;
    for (std::string word; in >> word;)
        all += (all.empty() ? "" : " ") + word;
    return all;
}

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
    // The tool on the tree.
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

TEST_F(Answers, DiffSeesAttributesThatOneSideLacks)
{
    put("a.xml", two_gpus("", "", " gdr=\"1\""));
    put("b.xml", two_gpus("", "", ""));
    EXPECT_HAS(tool("diff a.xml b.xml"), "gpu 0000:01:00.0: stated only in the first: gdr \"1\"");
    EXPECT_HAS(tool("diff b.xml a.xml"), "gpu 0000:01:00.0: stated only in the second: gdr \"1\"");
}

// A real machine's dump against itself without its NVLink lines.
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

} // namespace
