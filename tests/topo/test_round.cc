// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the files that dump writes of every machine of the tests and every description of the collection. Each passes
// pvn-topo lint and has the GPUs and NICs that pairs shows; dump names each one that is left out, with the reason.
#include <gtest/gtest.h>
#include <jansson.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

struct Counts {
    size_t gpus = 0, nics = 0;
};

class Round : public ::testing::Test
{
  protected:
    TempDir dir;
    int machines = 0;

    Result run(const std::string &args)
    {
        return run_tool(dir.path, "--no-env " + args);
    }
    void put(const std::string &name, const std::string &content)
    {
        std::ofstream(dir.path + "/" + name, std::ios::binary) << content;
    }

    Counts count(const std::string &args)
    {
        Counts c;
        Result r = run(args + " --json pairs");
        json_t *doc = json_loads(r.out.c_str(), 0, nullptr);
        EXPECT_TRUE(doc) << args << r.err;
        c.gpus = json_array_size(json_object_get(doc, "gpus"));
        c.nics = json_array_size(json_object_get(doc, "nics"));
        json_decref(doc);
        return c;
    }

    // Counts the devices of a kind in lines like "pvn-topo: not in the file: NIC a (0000:01:00.0), b: why".
    size_t named(const std::string &err, const std::string &kind)
    {
        const std::string start = "pvn-topo: not in the file: " + kind + " ";
        size_t n = 0;
        std::istringstream in(err);
        for (std::string line; std::getline(in, line);) {
            if (line.rfind(start, 0) != 0)
                continue;
            size_t end = line.find(": ", start.size());
            EXPECT_NE(std::string::npos, end) << line;
            EXPECT_GT(line.size(), end + 10) << "no reason: " << line;
            n++;
            for (size_t at = start.size(); (at = line.find(", ", at)) < end; at++)
                n++;
        }
        return n;
    }

    // Writes the machine that the options choose and reads the file again. broken: the machine has errors, which
    // --xml-full keeps and reports.
    void go_round(const std::string &options, bool broken = false)
    {
        SCOPED_TRACE(options);
        Counts before = count(options);
        for (const char *format : {"--xml", "--xml-full"}) {
            SCOPED_TRACE(format);
            Result dump = run(options + " " + format + " -o made.xml dump");
            ASSERT_EQ(0, dump.status) << dump.err;
            Result lint = run("lint made.xml");
            bool refused = dump.err.find("will refuse this file") != std::string::npos;
            EXPECT_EQ(lint.status == 1, refused) << lint.out << dump.err;
            if (!broken || strcmp(format, "--xml") == 0) {
                EXPECT_EQ(0, lint.status) << lint.out;
            }
            Counts after = count("--root made.xml");
            size_t gpus = named(dump.err, "GPU"), nics = named(dump.err, "NIC");
            EXPECT_EQ(before.gpus, std::min(before.gpus, after.gpus) + gpus) << dump.err;
            EXPECT_EQ(before.nics, std::min(before.nics, after.nics) + nics) << dump.err;
        }
        machines++;
    }
    void put_and_go(const std::string &name, const Tree &t)
    {
        put(name, t.tar());
        for (const char *nics : {"", " --nics all"})
            go_round("--root " + name + nics);
    }
};

TEST_F(Round, TheTestsOwnMachines)
{
    put_and_go("guest.tar", vmware_guest({}));
    GuestVariant idle;
    idle.rdma_bound = false;
    put_and_go("idle.tar", vmware_guest(idle));
    put_and_go("server.tar", server8x8(false, false));
    put_and_go("functions.tar", server8x8(true, true));
    std::string amd = server8x8(false, false).tar();
    for (size_t at; (at = amd.find("0x10de\n")) != std::string::npos;)
        amd.replace(at, 7, "0x1002\n");
    put("amd.tar", amd);
    go_round("--root amd.tar");
    for (size_t at; (at = amd.find("0x030200\n")) != std::string::npos;)
        amd.replace(at, 9, "0x120000\n");
    put("accelerators.tar", amd);
    go_round("--root accelerators.tar");
    EXPECT_EQ(8u, count("--root accelerators.tar").gpus);
}

TEST_F(Round, TheTestsOwnFiles)
{
    for (const auto &entry : std::filesystem::directory_iterator(PVN_SRCDIR "/tests/topo/data")) {
        if (entry.path().extension() == ".xml")
            go_round("--root " + entry.path().string(), entry.path().stem() == "traps");
    }
    EXPECT_EQ(3, machines);
}

TEST_F(Round, TheWholeCollectionGoesRound)
{
    if (!std::filesystem::is_directory(shared_topologies()))
        GTEST_SKIP() << "no " << shared_topologies() << " (set PVN_SHARED)";
    for (const auto &entry : std::filesystem::recursive_directory_iterator(shared_topologies())) {
        std::string ending = entry.path().extension(), name = entry.path().string();
        if (!entry.is_regular_file() || entry.path().filename() == "INDEX.md" ||
            entry.path().filename() == "ncv4-graph.xml")
            continue;
        if (ending != ".xml" && ending != ".bz2" && ending != ".md")
            continue;
        go_round("--root '" + name + "'");
        if (name.find("/nccl-xml/") == std::string::npos)
            go_round("--nics all --root '" + name + "'");
    }
    EXPECT_LE(84, machines);
}

// Names of the kernel have up to 63 characters. Maps of CPUs have a word for each 32 possible CPUs.
TEST_F(Round, EveryFieldAtItsLargest)
{
    Tree t = server8x8(false, false);
    std::string map = "ffffffff", name(63, 'n');
    for (int i = 1; i < 256; i++)
        map += ",ffffffff";
    t.numa(0, map, "0-8191", "10 21");
    t.numa(1, map, "0-8191", "21 10");
    std::string up = t.pci("pciffff:ff", "ffff:ff:1f.6", Pci::bridge(0xffff, 0xffff));
    Pci card = Pci::nic();
    card.device = card.subvendor = card.subdevice = 0xffff;
    card.with_link("64.0 GT/s PCIe", "32");
    t.rdma(name, t.pci(up, "ffff:fe:1f.7", card), "InfiniBand",
           {{0, "fe80:0000:0000:0000:ffff:ffff:ffff:ffff", "IB/RoCE v1", ""}}, "4: ACTIVE",
           "2147483 Gb/sec (12X)");
    put_and_go("largest.tar", t);
    EXPECT_NE(std::string::npos, run("--root largest.tar --json pairs").out.find(name));
}

// Many NICs belong to one cpu, or to one function.
TEST_F(Round, ManyNicsOfOnePlace)
{
    for (int n : {13, 61}) {
        std::string nets, start = "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" "
                                  "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n";
        for (int i = 0; i < n; i++)
            nets += "<net name=\"n" + std::to_string(i) + "\" dev=\"" + std::to_string(i) +
                    "\" speed=\"100000\"/>\n";
        put("cpu.xml", start + "<nic>\n" + nets + "</nic>\n</cpu>\n</system>\n");
        go_round("--root cpu.xml");
        EXPECT_EQ(static_cast<size_t>(n), count("--root cpu.xml").nics);
        put("function.xml", start + "<pci busid=\"0000:03:00.0\" class=\"0x020000\">\n<nic>\n" +
                                nets + "</nic>\n</pci>\n</cpu>\n</system>\n");
        go_round("--root function.xml");
        Result r = run("--root function.xml --xml dump");
        EXPECT_EQ(static_cast<size_t>(n - 1), named(r.err, "NIC"));
    }
}

// Each cause for leaving a device out has a sentence of its own.
TEST_F(Round, EachThatIsMissingHasItsReason)
{
    put("file.xml",
        "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
        "familyid=\"175\" modelid=\"1\">\n"
        "<pci busid=\"0000:01:00.0\" class=\"0x0b4000\">\n<gpu dev=\"0\" rank=\"0\"/>\n</pci>\n"
        "<pci busid=\"0000:02:00.0\" class=\"0x030200\">\n<gpu dev=\"1\" rank=\"1\"/>\n"
        "<gpu dev=\"1\" rank=\"2\"/>\n</pci>\n"
        "<pci busid=\"0000:03:00.0\" class=\"0x020700\">\n<nic>\n<net name=\"a\" dev=\"0\"/>\n"
        "<net name=\"b\" dev=\"1\"/>\n</nic>\n</pci>\n"
        "<pci busid=\"0000:04:00.0\" class=\"0x0c0600\">\n<nic>\n<net name=\"c\" dev=\"2\"/>\n"
        "</nic>\n</pci>\n"
        "<pci busid=\"0000:05:00.0\" class=\"0x010700\">\n<nic>\n<net name=\"d\" dev=\"3\"/>\n"
        "</nic>\n</pci>\n"
        "<nic>\n<net name=\"e\" dev=\"4\" speed=\"1000\"/>\n</nic>\n</cpu>\n</system>\n");
    go_round("--root file.xml", true);
    Result r = run("--root file.xml --xml dump");
    EXPECT_EQ(
        "pvn-topo: not in the file: GPU 0000:01:00.0: its function has a class that NCCL takes "
        "for no GPU\n"
        "pvn-topo: not in the file: GPU 0000:02:00.0: another rank has the same function, and "
        "the file names functions; NCCL finds it by itself\n"
        "pvn-topo: not in the file: NIC d (0000:05:00.0): its function has no NIC's class, by "
        "which a reader of the file would know it; NCCL finds it by itself\n"
        "pvn-topo: not in the file: NIC b (0000:03:00.0): another NIC has the same function, and "
        "the file names functions; NCCL finds it by itself\n",
        r.err);
    EXPECT_NE(std::string::npos, r.out.find("<net name=\"e\"/>")) << r.out;
    // A machine's NIC without a PCI function is written where NCCL would add it.
    Tree t = vmware_guest({});
    t.net("plain0", "", {{"speed", "10000\n"}, {"operstate", "up\n"}});
    put("plain.tar", t.tar());
    go_round("--root plain.tar --nics tcp");
}

} // namespace
