// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo's inputs in the forms that users give: through pipes and FIFOs, compressed, cut, and as other tools
// write them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace fs = std::filesystem;

namespace
{

class Inputs : public ::testing::Test
{
  protected:
    TempDir dir;

    void SetUp() override
    {
        put("guest.tar", vmware_guest({}).tar());
        put("server.tar", server8x8(false, false).tar());
        fs::copy(PVN_SRCDIR "/tests/topo/data/two-switches.xml", dir.path);
        fs::copy(PVN_SRCDIR "/tests/topo/data/guest.hints", dir.path);
    }
    void put(const std::string &name, const std::string &content)
    {
        std::ofstream(dir.path + "/" + name, std::ios::binary) << content;
    }
    Result run(const std::string &args, const std::string &env = "")
    {
        return run_tool(dir.path, "--no-names " + args, env);
    }
    bool shell(const std::string &command)
    {
        return std::system(("cd " + dir.path + " && " + command + " 2>/dev/null").c_str()) == 0;
    }
};

TEST_F(Inputs, StandardInputAndPipesAreReadLikeFiles)
{
    for (const char *name : {"server.tar", "two-switches.xml"}) {
        std::string want = run(std::string("--root ") + name + " pairs").out;
        ASSERT_NE("", want);
        Result r = run(std::string("--root - pairs <") + name);
        EXPECT_EQ(want, r.out) << r.err;
        // A FIFO delivers the file in two pieces.
        ASSERT_TRUE(shell("mkfifo fifo"));
        ASSERT_TRUE(
            shell(std::string("(head -c 700 ") + name + "; tail -c +701 " + name + ") >fifo &"));
        r = run("--root fifo pairs");
        EXPECT_EQ(want, r.out) << r.err;
        ASSERT_TRUE(shell("rm fifo"));
    }
    EXPECT_EQ(run("lint two-switches.xml").status, run("lint - <two-switches.xml").status);
    EXPECT_EQ(run("--root guest.tar --hints guest.hints pairs").out,
              run("--root guest.tar --hints - pairs <guest.hints").out);
    EXPECT_EQ(run("--root guest.tar --topo-file two-switches.xml pairs").out,
              run("--root guest.tar --topo-file - pairs <two-switches.xml").out);
    Result r = run("diff - - <two-switches.xml");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("can be read once")) << r.err;
}

TEST_F(Inputs, AFifoThatNobodyWritesToEndsAfterTheTimeLimit)
{
    ASSERT_TRUE(shell("mkfifo fifo"));
    for (const char *args : {"--root fifo dump", "lint fifo", "--root guest.tar --hints fifo pairs",
                             "--root guest.tar --topo-file fifo pairs",
                             "--root guest.tar --host fifo merge", "diff fifo guest.tar"}) {
        Result r = run(std::string("--timeout 1 ") + args);
        EXPECT_EQ(3, r.status) << args;
        EXPECT_NE(std::string::npos, r.err.find("fifo: nothing arrived for 1 s")) << r.err;
    }
    // The FIFO's writer keeps it open and writes nothing.
    ASSERT_TRUE(shell("sh -c 'exec 3<>fifo; sleep 5' & sleep 0.1"));
    Result r = run("--timeout 1 --root fifo dump");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("--timeout SECONDS")) << r.err;
    EXPECT_EQ(2, run("--timeout 0 dump").status);
    EXPECT_EQ(2, run("--timeout soon dump").status);
}

TEST_F(Inputs, ACutTarSaysSo)
{
    std::string whole = read_file(dir.path + "/server.tar");
    // The file is cut after an entry, inside a header, and inside an entry's content. tar's end mark has 1024 bytes.
    std::string body = whole.substr(0, whole.size() - 1024);
    for (size_t len : {body.size(), body.size() - 512 + 200, body.size() - 100}) {
        put("cut.tar", body.substr(0, len));
        Result r = run("--root cut.tar dump");
        EXPECT_EQ(3, r.status) << len << r.out.substr(0, 200);
        EXPECT_TRUE(r.err.find("tar file is cut") != std::string::npos ||
                    r.err.find("tar file ends early") != std::string::npos)
            << r.err;
    }
    put("cut.tar", body + std::string(512, '\0'));
    EXPECT_EQ(0, run("--root cut.tar dump").status);
}

struct PackRow {
    const char *program, *ending;
};

class Packed : public Inputs, public ::testing::WithParamInterface<PackRow>
{
};

TEST_P(Packed, APackedFileIsReadAsTheFileInIt)
{
    std::string program = GetParam().program, ending = GetParam().ending;
    if (!shell("command -v " + program + " >/dev/null"))
        GTEST_SKIP() << program << " is not installed";
    std::string want = run("--root server.tar pairs").out;
    ASSERT_TRUE(shell(program + " -c server.tar >server.tar" + ending));
    Result r = run("--root server.tar" + ending + " pairs");
    EXPECT_EQ(want, r.out) << r.err;
    EXPECT_EQ(want, run("--root - pairs <server.tar" + ending).out);
    // XML files may be compressed, too, also as a topology file.
    ASSERT_TRUE(shell(program + " -c two-switches.xml >x" + ending));
    EXPECT_EQ(run("--root two-switches.xml pairs").out, run("--root x" + ending + " pairs").out);
    EXPECT_EQ(0, run("lint x" + ending).status);

    std::string packed = read_file(dir.path + "/server.tar" + ending);
    put("cut" + ending, packed.substr(0, packed.size() / 2));
    r = run("--root cut" + ending + " pairs");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("cut or damaged: " + program)) << r.err;
    EXPECT_EQ("", r.out);

    r = run("--root server.tar" + ending + " pairs", "PATH=/nonexistent");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("compressed by " + program)) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("install " + program)) << r.err;
}

INSTANTIATE_TEST_SUITE_P(Programs, Packed,
                         ::testing::Values(PackRow{"gzip", ".gz"}, PackRow{"bzip2", ".bz2"},
                                           PackRow{"xz", ".xz"}, PackRow{"zstd", ".zst"}),
                         [](const auto &row) { return std::string(row.param.program); });

TEST_F(Inputs, WhatUnpacksToTooMuchIsRefused)
{
    if (!shell("command -v zstd >/dev/null"))
        GTEST_SKIP() << "zstd is not installed";
    ASSERT_TRUE(shell("head -c 300M /dev/zero | zstd -1c >bomb"));
    Result r = run("--root bomb dump");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("more than the 256 MiB")) << r.err;
}

// A file with n GPUs and n NICs below one CPU.
std::string flat(int n)
{
    std::string xml = "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" "
                      "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n";
    for (int i = 0; i < 2 * n; i++) {
        char line[400];
        snprintf(line, sizeof line,
                 "<pci busid=\"%04x:%02x:00.0\" class=\"%s\" link_speed=\"32.0 GT/s PCIe\" "
                 "link_width=\"16\">",
                 i >> 8, i & 255, i < n ? "0x030200" : "0x020000");
        xml += line;
        snprintf(line, sizeof line,
                 i < n ? "<gpu dev=\"%d\" rank=\"%d\" sm=\"90\"/></pci>\n"
                       : "<nic><net name=\"mlx5_%d\" dev=\"%d\" speed=\"400000\"/></nic></pci>\n",
                 i % n, i % n);
        xml += line;
    }
    return xml + "</cpu>\n</system>\n";
}

// The test asserts no time. When routes were decided more than once per net, 128 GPUs and 128 NICs took ten seconds,
// and 600 and 600 did not end.
TEST_F(Inputs, HundredsOfDevicesBelowOneCpuEnd)
{
    put("many.xml", flat(128));
    for (const char *command : {"pairs", "matrix", "--json dump", "--dot dump"}) {
        Result r = run(std::string("--root many.xml ") + command);
        EXPECT_EQ(0, r.status) << command << r.err;
        EXPECT_NE(std::string::npos, r.out.find("mlx5_127")) << command;
    }
    put("more.xml", flat(600));
    Result r = run("--root more.xml pairs");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("600 GPUs, 600 networks, 1 NUMA nodes: NCCL holds 256"))
        << r.err;
    EXPECT_EQ(1, run("lint more.xml").status);

    // The devices come from sysfs instead of a file.
    Tree t;
    for (int i = 0; i < 1200; i++) {
        char root[16], bdf[16];
        snprintf(root, sizeof root, "pci%04x:%02x", i >> 8, i & 255);
        snprintf(bdf, sizeof bdf, "%04x:%02x:00.0", i >> 8, i & 255);
        Pci p;
        p.cls = i < 600 ? 0x030200 : 0x020000;
        p.vendor = i < 600 ? 0x10de : 0x15b3;
        p.device = 0x1021;
        p.numa = "0";
        t.pci(root, bdf, p);
    }
    put("more.tar", t.tar());
    r = run("--root more.tar pairs");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("600 GPUs")) << r.err;
}

TEST_F(Inputs, HwlocsCapturesAreReadAsTheyLie)
{
    std::string corpus = shared_topologies() + "/sysfs";
    if (!fs::exists(corpus))
        GTEST_SKIP() << corpus << " is not there";
    if (!shell("command -v bzip2 >/dev/null"))
        GTEST_SKIP() << "bzip2 is not installed";
    int n = 0;
    for (const auto &e : fs::directory_iterator(corpus)) {
        Result r = run("--root '" + e.path().string() + "' dump");
        EXPECT_EQ(0, r.status) << e.path() << r.err;
        n++;
    }
    EXPECT_GE(n, 5);
}

// U+009B begins an escape sequence on some terminals. U+202E reverses the text after it.
TEST_F(Inputs, NamesWithControlCharactersAreShownEscapedAndLongOnesCut)
{
    std::string xml = "<system version=\"1\">\n<cpu numaid=\"0\">\n"
                      "<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" rank=\"0\"/>"
                      "</pci>\n<pci busid=\"0000:02:00.0\" class=\"0x020000\"><nic>"
                      "<net name=\"a&#x9b;31mb&#x202e;c\" dev=\"0\"/></nic></pci>\n"
                      "<pci busid=\"0000:03:00.0\" class=\"0x020000\"><nic><net name=\"" +
                      std::string(5000, 'n') +
                      "\" dev=\"1\" speed=\"1000\"/></nic></pci>\n</cpu>\n</system>\n";
    put("names.xml", xml);
    auto obeyed = [](const std::string &text) {
        for (const char *bad : {"\xc2\x9b", "\xe2\x80\xae", "\x7f", "\x1b"}) {
            if (text.find(bad) != std::string::npos)
                return true;
        }
        return false;
    };
    for (const char *lc : {"LC_ALL=C", "LC_ALL=C.UTF-8"}) {
        for (const char *args :
             {"--root names.xml dump", "--root names.xml matrix", "--root names.xml pairs",
              "--root names.xml --dot dump", "lint names.xml", "diff names.xml two-switches.xml"}) {
            Result r = run(args, lc);
            EXPECT_FALSE(obeyed(r.out + r.err)) << args;
            EXPECT_EQ(std::string::npos, r.out.find(std::string(100, 'n'))) << args;
        }
        std::string out = run("--root names.xml matrix", lc).out;
        EXPECT_NE(std::string::npos, out.find("a\\xc2\\x9b31mb\\xe2\\x80\\xaec")) << out;
        EXPECT_NE(std::string::npos, out.find("nnnn...")) << out;
        // Output for programs has the file's own name, unescaped and in full.
        EXPECT_NE(std::string::npos,
                  run("--root names.xml --xml-full dump", lc).out.find(std::string(5000, 'n')));
    }
    // Messages escape names as well: those in a file, and a file's own.
    put("element.xml", "<system version=\"1\"><cpu\xc2\x9b/></system>");
    EXPECT_FALSE(obeyed(run("--root element.xml dump", "LC_ALL=C.UTF-8").err));
    put("\x1b[31mred", "<system");
    Result r = run("--root '\x1b[31mred' dump");
    EXPECT_FALSE(obeyed(r.err));
    EXPECT_NE(std::string::npos, r.err.find("\\x1b[31mred")) << r.err;
    // Letters are not escaped.
    put("letters.xml", "<system version=\"1\"><cpu numaid=\"0\"><nic><net name=\"stra\xc3\x9f"
                       "e\"/></nic></cpu></system>");
    EXPECT_NE(std::string::npos, run("--root letters.xml dump", "LC_ALL=C.UTF-8")
                                     .out.find("stra\xc3\x9f"
                                               "e"));
}

// A sample of another tool's output, from the corpus of the fuzz target.
std::string sample(const char *name)
{
    return PVN_SRCDIR "/tests/fuzz/corpus/input/" + std::string(name);
}

std::string row(const std::string &matrix, const char *name)
{
    size_t at = matrix.find(std::string("\n") + name);
    return at == std::string::npos ? "" : matrix.substr(at + 1, matrix.find('\n', at + 1) - at - 1);
}

TEST_F(Inputs, HwlocsXmlIsAMachine)
{
    Result r = run("--root " + sample("hwloc.xml") + " matrix");
    ASSERT_EQ(0, r.status) << r.err;
    EXPECT_EQ("GPU0      X  SYS   PIX", row(r.out, "GPU0")) << r.out;
    EXPECT_EQ("GPU1    SYS    X   SYS", row(r.out, "GPU1")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("mlx5_0")) << r.out;
    r = run("--root " + sample("hwloc.xml") + " --json dump");
    for (const char *fact : {"\"link_width\": 16", "\"link_mts\": 8000", "\"state\": \"ACTIVE\"",
                             "\"name\": \"hsi0\""})
        EXPECT_NE(std::string::npos, r.out.find(fact)) << fact;
    std::string xml = read_file(sample("hwloc.xml"));
    const char *ids = "pci_type=\"";
    for (size_t at = 0; (at = xml.find(ids, at)) != std::string::npos; at++)
        xml.replace(at + strlen(ids), xml.find('"', at + strlen(ids)) - at - strlen(ids),
                    "-1 [-2:-3] [-4:-5]");
    put("minus.xml", xml);
    r = run("--root minus.xml --all --json dump");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("\"0xffff00\"")) << r.out;
    put("empty.xml", "<topology version=\"2.0\"><object type=\"Machine\"/></topology>");
    r = run("--root empty.xml dump");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("--whole-io")) << r.err;
    put("cut.xml", read_file(sample("hwloc.xml")).substr(0, 900));
    r = run("--root cut.xml dump");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("hwloc's XML:")) << r.err;
}

TEST_F(Inputs, LspcisTextIsAMachine)
{
    Result r = run("--root - matrix <" + sample("lspci.txt"));
    ASSERT_EQ(0, r.status) << r.err;
    EXPECT_EQ("GPU0      X   PIX", row(r.out, "GPU0")) << r.out;
    r = run("--root " + sample("lspci.txt") + " --json dump");
    for (const char *fact :
         {"\"acs\": \"on\"", "\"acs_control\": \"0x1d\"", "\"acs\": \"not readable\"",
          "\"link_max_mts\": 32000", "\"link_width\": 8", "\"driver\": \"nvidia\"",
          "\"subsystem_device\": \"0x16c1\"", "\"iommu_group\": 3"})
        EXPECT_NE(std::string::npos, r.out.find(fact)) << fact;
}

// Two switch ports, and a function of the switch itself beside them, which hides the kind from the tree.
const char with_ports[] = "0000:00:01.0 PCI bridge [0604]: Intel Corporation Device [8086:347a]\n"
                          "\tBus: primary=00, secondary=01, subordinate=05, sec-latency=0\n"
                          "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n"
                          "\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0\n"
                          "\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq+\n"
                          "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+\n"
                          "\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n"
                          "01:00.0 PCI bridge [0604]: PLX Technology [10b5:8796]\n"
                          "\tBus: primary=01, secondary=02, subordinate=05, sec-latency=0\n"
                          "\tCapabilities: [40] Express Upstream Port, MSI 00\n"
                          "02:01.0 PCI bridge [0604]: PLX Technology [10b5:8796]\n"
                          "\tBus: primary=02, secondary=03, subordinate=03, sec-latency=0\n"
                          "\tCapabilities: [40] Express (v2) Downstream Port (Slot+), MSI 00\n"
                          "02:02.0 PCI bridge [0604]: PLX Technology [10b5:8796]\n"
                          "\tBus: primary=02, secondary=04, subordinate=04, sec-latency=0\n"
                          "\tCapabilities: [40] Express (v2) Downstream Port (Slot-), MSI 00\n"
                          "02:1f.0 System peripheral: PLX Technology Device 87d0\n"
                          "\tCapabilities: [40] Express (v2) Endpoint, MSI 00\n"
                          "03:00.0 3D controller [0302]: NVIDIA Corporation [10de:2330]\n"
                          "\tNUMA node: 0\n"
                          "04:00.0 Infiniband controller [0207]: Mellanox [15b3:1021]\n"
                          "\tNUMA node: 0\n";

// The text with mark at the start of each line.
std::string marked(const char *text, const std::string &mark)
{
    std::string all = mark;
    for (; *text; text++)
        all += *text == '\n' && text[1] ? "\n" + mark : std::string(1, *text);
    return all;
}

TEST_F(Inputs, LspciNamesThePortsOfASwitch)
{
    put("lspci.txt", with_ports);
    std::string out = run("--root lspci.txt matrix").out;
    std::string smi = out.substr(out.find("nvidia-smi"));
    EXPECT_EQ("GPU0      X   PIX", row(smi, "GPU0")) << out;
    out = run("--root lspci.txt dump").out;
    EXPECT_NE(std::string::npos, out.find("0000:01:00.0 switch upstream port")) << out;
    EXPECT_NE(std::string::npos, out.find("0000:02:02.0 switch downstream port")) << out;
    out = run("--root lspci.txt --json dump").out;
    for (const char *fact : {"\"relaxed_ordering\": true", "\"max_payload\": 256",
                             "\"max_read_request\": 512", "\"relaxed_ordering\": null"})
        EXPECT_NE(std::string::npos, out.find(fact)) << fact << out;
    EXPECT_EQ(std::string::npos, out.find("\"relaxed_ordering\": false"))
        << "what is not printed is not known";
}

TEST_F(Inputs, AnInfinibandControllerIsNoNetworkInterface)
{
    put("lspci.txt", with_ports);
    std::string out = run("--root lspci.txt pairs").out;
    EXPECT_NE(std::string::npos, out.find("nic0 (PIX)")) << out;
    EXPECT_EQ(std::string::npos, squeeze(out).find("is a network interface")) << out;
}

TEST_F(Inputs, WhatStandsBeforeLspcisTextHidesNothing)
{
    const std::string text = with_ports;
    auto dump = [&](const std::string &content) {
        put("lspci.txt", content);
        Result r = run("--root lspci.txt --json dump");
        EXPECT_EQ(0, r.status) << content << r.err;
        return r.out;
    };
    const std::string want = dump(text);
    for (const std::string &content :
         {"\xef\xbb\xbf" + text, "[root@host ~]# " + text, "root@host:~# " + text,
          "[root@host ~]# lspci -D -vvnn\n" + text, "<pre>\n" + text, "{ as root }\n" + text,
          "pcilib: sysfs_read_vpd: read failed: Input/output error\n" + text,
          marked(with_ports, "> "), marked(with_ports, ">"), marked(with_ports, "    "),
          marked(with_ports, "> > "), marked(with_ports, "| ")})
        EXPECT_EQ(want, dump(content)) << content;
    // A shell prompt in the middle ends the block of the device before it.
    size_t gpu = text.find("03:00.0 3D");
    EXPECT_EQ(want, dump(text.substr(0, gpu) + "host$ " + text.substr(gpu)));
}

TEST_F(Inputs, RdmaToposDumpIsAMachine)
{
    Result r = run("--root " + sample("rdma_topo.json") + " matrix");
    ASSERT_EQ(0, r.status) << r.err;
    EXPECT_EQ("GPU0      X   PIX", row(r.out, "GPU0")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("mlx5_0")) << r.out;
    std::string text = read_file(sample("rdma_topo.json"));
    put("out.json", text.replace(text.find("/sys/devices"), 12, "/sys/../home"));
    r = run("--root out.json dump");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("entry 0: realpath")) << r.err;
    put("other.json", run("--root server.tar --json matrix").out);
    r = run("--root other.json dump");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("pvn-topo gather")) << r.err;
}

// A function of such a dump, with a copy of its config space, compressed by zlib and encoded in Base64.
std::string entry(const std::string &path, const std::string &ids, const std::string &config)
{
    return "{\"realpath\": \"" + path + "\", \"modalias\": \"pci:" + ids +
           "\", \"numa_node\": 0, \"iommu_group\": null, \"subsystems\": {}, \"config\": \"" +
           config + "\"}";
}

TEST_F(Inputs, RdmaToposDumpHasConfigSpace)
{
    // A root port with ACS, and a GPU: all of its config space, and 256 bytes that are stored as they are.
    const std::string port =
        "eJztz80JAkEMBeCs4FGwAcESLEFsRPP/CrFwsyqyCO5x92A+GCaHl8yEaLSnl4E+hkn95Typh9vP2HvyhTZ1n45E2+fI+3zDwna185UOa3+jtdZaW5SKC4A0AWcy3CS4pCUbYGEG5xR1iTR3VMYyNUIgmgEGe6oam2XEmNVqRVgiMrgCpvUIi4xJc9Goo641K4C192+ttdb+0QPOPTS/";
    const std::string gpu =
        "eJztz8EJA0EIBVA3kPuWkBJSwpYS9au/kBQe55ZTYCGQQ3wyMAxfZUSWXc443u7b43N2l0uXyP0mct3Wy/PUrjHGGGN8n1sYyYJRq5QBS22FUpBIgKFlHpaFCHYGVZ5pNK+kUqPcoUBlrqx3KxPFrNQOwHuJmq0kwjz7eHjPSvLX/x9jjDH+0QuidjPy";
    const std::string stored =
        "eAEBAAH//gAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAAAABYAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAgACAAAAMCAAAAUBAAAAAIQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAUkgGg";
    const std::string bridge_ids = "v00008086d00000001sv00000000sd00000000bc06sc04i00";
    const std::string gpu_ids = "v000010DEd00002330sv000010DEsd000016C1bc03sc02i00";
    const std::string root = "/sys/devices/LNXSYSTM:00/VMBUS:00/pci0000:00/0000:00:01.0";
    auto dump = [&](const std::string &a, const std::string &b, const std::string &args) {
        put("dump.json", "[" + entry(root, bridge_ids, a) + ", " +
                             entry(root + "/0000:01:00.0", gpu_ids, b) + "]");
        return run("--root dump.json " + args);
    };
    for (const std::string &copy : {gpu, stored}) {
        Result r = dump(port, copy, "--json dump");
        ASSERT_EQ(0, r.status) << r.err;
        for (const char *fact :
             {"\"kind\": \"root port\"", "\"acs_control\": \"0x1d\"", "\"relaxed_ordering\": true",
              "\"max_payload\": 256", "\"link_mts\": 16000", "\"link_max_mts\": 32000",
              "\"link_width\": 8", "\"link_max_width\": 16", "\"notes\": []"})
            EXPECT_NE(std::string::npos, squeeze(r.out).find(fact)) << fact << r.out;
    }
    // Each command reports damaged config space and uses nothing of it.
    std::string cut = gpu.substr(0, gpu.size() / 2), other = gpu;
    other[other.size() - 4] = other[other.size() - 4] == 'A' ? 'B' : 'A';
    for (const std::string &damaged :
         {cut, other, std::string("eJw"), std::string("?"), std::string()}) {
        for (const char *args : {"dump", "pairs", "--json matrix"}) {
            Result r = dump(port, damaged, args);
            EXPECT_NE(
                std::string::npos,
                squeeze(r.out + r.err).find("config space of 1 functions are missing or damaged"))
                << damaged << r.out << r.err;
        }
    }
}

// The NCCL file of a host, merged into its guest, gives the guest the path classes that NCCL sees on the host.
TEST_F(Inputs, NcclsFileIsAHost)
{
    ASSERT_EQ(0, run("--root server.tar --xml-full -o host.xml dump").status);
    Result host = run("--root server.tar matrix");
    // The guest: the same devices, all of them below root ports of one node.
    Tree t;
    std::string xml = read_file(dir.path + "/host.xml");
    int n = 0;
    for (size_t at = 0; (at = xml.find("<pci ", at)) != std::string::npos; at++) {
        std::string line = xml.substr(at, xml.find('\n', at) - at);
        auto value = [&](const char *key) {
            size_t k = line.find(std::string(key) + "=\"") + strlen(key) + 2;
            return strtoul(line.substr(k, line.find('"', k) - k).c_str(), nullptr, 16);
        };
        if (line.find("class=\"0x0604") != std::string::npos)
            continue;
        Pci p;
        p.cls = value("class");
        p.vendor = value("vendor");
        p.device = value("device");
        p.numa = "-1";
        char bdf[16];
        snprintf(bdf, sizeof bdf, "0000:%02x:00.0", 0x20 + n++);
        t.pci("pci0000:00", bdf, p);
    }
    ASSERT_GE(n, 16);
    put("flat.tar", t.tar());
    Result r = run("--root flat.tar --nics all --host host.xml --json merge");
    ASSERT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("\"invented\": true"));
    r = run("--root flat.tar --host host.xml merge");
    ASSERT_EQ(0, r.status) << r.err;
    // Every GPU is below a switch again.
    size_t switches = 0;
    for (size_t at = 0; (at = r.out.find("class=\"0x060400\"", at)) != std::string::npos; at++)
        switches++;
    EXPECT_GT(switches, 1u) << r.out;
    // Merged into the machine that it was made from, the file changes no class.
    EXPECT_EQ(
        host.out.substr(0, host.out.find("nvidia-smi")),
        run("--root server.tar --host host.xml matrix").out.substr(0, host.out.find("nvidia-smi")));
}

TEST_F(Inputs, TheCollectedFilesOfOtherToolsAreRead)
{
    std::string corpus = shared_topologies();
    if (!fs::exists(corpus + "/hwloc-xml"))
        GTEST_SKIP() << corpus << "/hwloc-xml is not there";
    int n = 0;
    for (const auto &e : fs::recursive_directory_iterator(corpus + "/hwloc-xml")) {
        if (!e.is_regular_file())
            continue;
        Result r = run("--root '" + e.path().string() + "' matrix");
        EXPECT_EQ(0, r.status) << e.path() << r.err;
        n++;
    }
    EXPECT_GE(n, 18);
    // This page quotes lspci -vv and, of the same machine, nvidia-smi topo -m.
    Result r = run("--root '" + corpus + "/lspci/asus-esc8000a-e12.md' matrix");
    ASSERT_EQ(0, r.status) << r.err;
    std::string smi = r.out.substr(r.out.find("nvidia-smi"));
    EXPECT_EQ("GPU0      X NODE  SYS  SYS  NODE  SYS", row(smi, "GPU0")) << r.out;
    EXPECT_EQ("GPU3    SYS  SYS NODE    X   SYS NODE", row(smi, "GPU3")) << r.out;
}

} // namespace
