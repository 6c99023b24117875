// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the machines that hwloc's users collected (../shared/topologies/hwloc-xml), rebuilt as sysfs trees: hwloc's
// nesting of objects must agree with the distance of every GPU-NIC pair. Tests small files in the forms that hwloc
// exports, too: pvn-topo reports everything that such a file lacks.
#include "tests/topo/cli.h"
#include "tests/topo/hwloc_line.h"
#include "tests/topo/tree.h"

extern "C" {
#include "topo/input/input.h"
}

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

namespace fs = std::filesystem;

// An object of the file whose end has not been read yet.
struct Object {
    std::string type;
    std::string bdf; // of a PCI bridge or device
    int number;      // of this object, counted over the file
    int node;        // NUMA node, when it is one node
};

struct Function {
    std::vector<Object> above; // outermost first, itself last
    unsigned cls = 0, vendor = 0, device = 0;
    int node = -1;
};

struct Machine {
    std::map<std::string, Function> functions;
    int nodes = 0;
};

static Machine parse(const std::string &path)
{
    std::ifstream in(path);
    std::string line;
    std::vector<Object> stack;
    int number = 0;
    Machine m;

    while (std::getline(in, line)) {
        if (line.find("</object>") != std::string::npos) {
            stack.pop_back();
            continue;
        }
        if (line.find("<object ") == std::string::npos) {
            continue;
        }
        Object o = {attribute(line, "type"), attribute(line, "pci_busid"), number++,
                    stack.empty() ? -1 : stack.back().node};
        unsigned long nodes = strtoul(attribute(line, "nodeset").c_str(), nullptr, 16);

        if (nodes != 0) {
            o.node = (nodes & (nodes - 1)) == 0 ? __builtin_ctzl(nodes) : -1;
        }
        m.nodes += o.type == "NUMANode";
        stack.push_back(o);
        if (!o.bdf.empty()) {
            Function f;

            sscanf(attribute(line, "pci_type").c_str(), "%4x [%4x:%4x]", &f.cls, &f.vendor,
                   &f.device);
            f.above = stack;
            // The objects of the PCI tree carry no nodeset of their own.
            f.node = o.node;
            m.functions[o.bdf] = f;
        }
        if (line.find("/>") != std::string::npos) {
            stack.pop_back();
        }
    }
    return m;
}

// Builds the sysfs tree with the same functions below the same bridges.
static Tree rebuild(const Machine &m)
{
    std::map<std::string, std::string> path;
    Tree t;

    t.lists(false);
    for (const auto &f : m.functions) {
        std::string above, root = "pci0000:00";
        Pci p;

        for (const Object &o : f.second.above) {
            if (o.type == "Bridge" && o.bdf.empty()) {
                // The number of the host bridge's object makes the root bus unique.
                char name[32];

                snprintf(name, sizeof name, "pci%04x:%02x", 0x4000 + o.number / 256,
                         o.number % 256);
                root = name;
            }
        }
        // If a guest shows no host bridge every function gets a root bus of its own.
        if (root == "pci0000:00") {
            root = "pci" + f.first.substr(0, f.first.find(':') + 3);
        }
        above = root;
        for (const Object &o : f.second.above) {
            above += !o.bdf.empty() && o.bdf != f.first ? "/" + o.bdf : "";
        }
        p.cls = f.second.cls << 8;
        p.vendor = f.second.vendor;
        p.device = f.second.device;
        p.numa = std::to_string(f.second.node);
        p.no_link();
        t.pci(above, f.first, p);
    }
    for (int i = 0; i < m.nodes; i++) {
        t.numa(i, "1", "0", "10");
    }
    t.cpus("GenuineIntel", 6, 85, false);
    return t;
}

// The class by hwloc's objects alone: the type of the innermost object that contains both functions.
static pvn_topo_smi_class by_nesting(const Function &a, const Function &b)
{
    const Object *common = nullptr;
    size_t depth = 0;

    while (depth < a.above.size() && depth < b.above.size() &&
           a.above[depth].number == b.above[depth].number) {
        common = &a.above[depth++];
    }
    if (common == nullptr || common->type != "Bridge") {
        if (a.node < 0 || b.node < 0) {
            return PVN_TOPO_SMI_UNKNOWN;
        }
        return a.node == b.node ? PVN_TOPO_SMI_NODE : PVN_TOPO_SMI_SYS;
    }
    return common->bdf.empty() ? PVN_TOPO_SMI_PHB
                               : PVN_TOPO_SMI_PIX; // or PXB: the nesting shows no switches
}

static bool is_nic(const Function &f)
{
    return f.cls >> 8 == 0x02;
}

class HwlocXml : public testing::TestWithParam<const char *>
{
};

TEST_P(HwlocXml, NestingAgreesWithDistances)
{
    std::string shared = shared_dir();
    std::string path = shared + "/topologies/hwloc-xml/" + GetParam() + ".xml";

    if (shared.empty() || !fs::exists(path)) {
        GTEST_SKIP() << "no " << GetParam() << ".xml in ../shared/topologies/hwloc-xml";
    }
    Machine m = parse(path);
    ASSERT_FALSE(m.functions.empty());
    Topo t = load(rebuild(m));
    ASSERT_TRUE(t);
    EXPECT_EQ(t->npci, (int)m.functions.size());
    EXPECT_EQ(t->nnotes, 0) << t->notes[0].where << ": " << t->notes[0].text;

    std::map<pvn_topo_smi_class, int> expected;
    for (const auto &a : m.functions) {
        int ia = pvn_topo_find_pci(t.get(), a.first.c_str());

        for (const auto &b : m.functions) {
            int ib = pvn_topo_find_pci(t.get(), b.first.c_str());
            pvn_topo_smi_class want = by_nesting(a.second, b.second);
            pvn_topo_distance d;

            // Only pairs of a GPU or NIC with a NIC are compared.
            if (a.first == b.first || !is_nic(b.second) ||
                (!is_nic(a.second) && pvn_topo_gpu_of_pci(t.get(), ia) < 0)) {
                continue;
            }
            pvn_topo_find_distance(t.get(), ia, ib, &d);
            expected[want]++;
            if (want == PVN_TOPO_SMI_PIX) {
                EXPECT_TRUE(d.smi == PVN_TOPO_SMI_PIX || d.smi == PVN_TOPO_SMI_PXB)
                    << a.first << " " << b.first << ": " << d.reason;
            } else if (want == PVN_TOPO_SMI_UNKNOWN) {
                // One of them is not below a single NUMA node.
                EXPECT_TRUE(d.smi == PVN_TOPO_SMI_UNKNOWN ||
                            (m.nodes == 1 && d.smi == PVN_TOPO_SMI_NODE) ||
                            d.smi == PVN_TOPO_SMI_PIX)
                    << a.first << " " << b.first << ": " << d.reason;
            } else if (a.first.substr(0, a.first.rfind('.')) !=
                       b.first.substr(0, b.first.rfind('.'))) {
                EXPECT_EQ(d.smi, want) << a.first << " " << b.first << ": " << d.reason;
            }
        }
    }
    printf("%s: %d functions; by hwloc below one bridge %d, host bridge %d, node %d, between nodes "
           "%d, "
           "untold %d\n",
           GetParam(), t->npci, expected[PVN_TOPO_SMI_PIX], expected[PVN_TOPO_SMI_PHB],
           expected[PVN_TOPO_SMI_NODE], expected[PVN_TOPO_SMI_SYS], expected[PVN_TOPO_SMI_UNKNOWN]);
}

INSTANTIATE_TEST_SUITE_P(
    Corpus, HwlocXml,
    testing::Values("flux-core/tuo.SPX", "flux-sched/chimera", "hwloc/16intel64-manyVFs",
                    "hwloc/24em64t-2n6c2t-pci", "hwloc/32em64t-2n8c+dax+nvme+mic+dimms",
                    "hwloc/32em64t-2n8c2t-pci-wholeio", "hwloc/40intel64-2g2n4c+pcilocality",
                    "hwloc/96em64t-4n4d3ca2co-pci", "hwloc/cxlmem+dax.v3",
                    "hwloc/fakepcilocalities", "hwloc/irregulargroups-disallowed",
                    "hwloc/power8gpudistances", "mpibind/coral-butte-hwloc1",
                    "mpibind/coral-ea-hwloc1", "mpibind/cts1-pascal", "mpibind/cts1-quartz-smt1",
                    "mpibind/epyc-corona-p2", "mpibind/epyc-corona", "mpibind/g4dnmetal",
                    "prrte/test-topo"));

namespace
{

// A file of hwloc for a machine with CPUs 0 to 7 and these objects.
std::string hwloc(const std::string &objects, const std::string &version = "2.0",
                  const std::string &behind = "")
{
    return "<topology version=\"" + version +
           "\">\n<object type=\"Machine\" os_index=\"0\" cpuset=\"0x000000ff\" "
           "complete_cpuset=\"0x000000ff\" nodeset=\"0x00000003\" "
           "complete_nodeset=\"0x00000003\">\n" +
           objects + "</object>\n" + behind + "</topology>\n";
}

std::string node(int id, const std::string &cpus, const std::string &more = "")
{
    return "<object type=\"NUMANode\" os_index=\"" + std::to_string(id) + "\" cpuset=\"" + cpus +
           "\" nodeset=\"" + (id ? "0x00000002" : "0x00000001") + "\" " + more + "/>\n";
}

// A host bridge with one function, which has these OS devices.
std::string function(const std::string &bdf, const std::string &type, const std::string &devices,
                     const std::string &link = "15.753846", bool bridge = true)
{
    std::string dev = "<object type=\"PCIDev\" pci_busid=\"" + bdf + "\" pci_type=\"" + type +
                      "\" pci_link_speed=\"" + link + "\">\n" + devices + "</object>\n";
    return bridge ? "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"" + bdf.substr(0, 4) +
                        ":[" + bdf.substr(5, 2) + "-" + bdf.substr(5, 2) + "]\">\n" + dev +
                        "</object>\n"
                  : dev;
}

std::string device(const std::string &name, const std::string &type,
                   const std::vector<std::pair<std::string, std::string>> &infos)
{
    std::string out = "<object type=\"OSDev\" name=\"" + name + "\" osdev_type=\"" + type + "\">\n";
    for (const auto &i : infos)
        out += "<info name=\"" + i.first + "\" value=\"" + i.second + "\"/>\n";
    return out + "</object>\n";
}

const char gpu_ids[] = "0302 [10de:20b0] [10de:144e] a1",
           nic_ids[] = "0200 [15b3:1017] [15b3:0003] 00";
const char both_nodes[] = "cpuset=\"0x000000ff\" nodeset=\"0x00000003\"";

class HwlocFile : public testing::Test
{
  protected:
    TempDir dir;

    Result run(const std::string &xml, const std::string &args)
    {
        std::ofstream(dir.path + "/m.xml") << xml;
        return run_tool(dir.path, "--no-names --root m.xml " + args);
    }
};

#define EXPECT_HAS(text, part)    EXPECT_NE(std::string::npos, squeeze(text).find(part)) << (text)
#define EXPECT_HAS_NO(text, part) EXPECT_EQ(std::string::npos, squeeze(text).find(part)) << (text)

TEST_F(HwlocFile, NodesHaveTheirCpus)
{
    std::string xml = hwloc(
        "<object type=\"Package\" cpuset=\"0x0000000f,,0x00000007\" nodeset=\"0x00000001\">\n" +
        node(0, "0x0000000f,,0x00000007") + function("0000:01:00.0", gpu_ids, "") + "</object>\n" +
        "<object type=\"Package\" cpuset=\"0xf0000000\" nodeset=\"0x00000002\">\n" +
        node(1, "0xf0000000") + function("0000:02:00.0", nic_ids, device("eth0", "2", {})) +
        "</object>\n");
    Result r = run(xml, "dump");
    EXPECT_HAS(r.out, "NUMA node 0: 0-2,64-67");
    EXPECT_HAS(r.out, "NUMA node 1: 28-31");
    r = run(xml, "--xml dump");
    EXPECT_HAS(r.out, "affinity=\"0000000f,00000000,00000007\"");
}

// HBM and GPU memory are NUMA nodes of their own, other than the node that the kernel gives the devices.
TEST_F(HwlocFile, MemoryBesideANodeIsNotTheNodeOfDevices)
{
    std::string nic = function("0000:02:00.0", nic_ids, device("eth0", "2", {}));
    for (const char *subtype : {"HBM", "GPUMemory"}) {
        std::string xml = hwloc("<object type=\"Package\" " + std::string(both_nodes) + ">\n" +
                                node(0, "0x000000ff") +
                                node(1, "0x000000ff", "subtype=\"" + std::string(subtype) + "\"") +
                                nic + "</object>\n");
        Result r = run(xml, "dump");
        EXPECT_HAS(r.out, "NUMA node 0: 0-7");
        EXPECT_HAS(r.out, "NUMA node 1: memory only");
        EXPECT_HAS(r.out, "numa 0");
    }
    // Each of two nodes is half a package, and the device is near both.
    std::string xml =
        hwloc("<object type=\"Package\" " + std::string(both_nodes) + ">\n" +
              "<object type=\"Group\" cpuset=\"0x0000000f\" nodeset=\"0x00000001\">\n" +
              node(0, "0x0000000f") + "</object>\n" +
              "<object type=\"Group\" cpuset=\"0x000000f0\" nodeset=\"0x00000002\">\n" +
              node(1, "0x000000f0") + "</object>\n" + nic + "</object>\n");
    EXPECT_HAS(run(xml, "dump").out, "numa -1");
}

TEST_F(HwlocFile, EachPortAndItsAddresses)
{
    std::string hca = device("mlx5_0", "3",
                             {{"NodeGUID", "0002:c903:00f9:bfa0"},
                              {"SysImageGUID", "0002:c903:00f9:bfa3"},
                              {"Port1State", "4"},
                              {"Port1LID", "0x3a4"},
                              {"Port1GID0", "fe80:0000:0000:0000:0002:c903:00f9:bfa1"},
                              {"Port2State", "2"},
                              {"Port2LID", "0x0"}});
    std::string ipoib =
        device("ib0", "2",
               {{"Address", "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:f9:bf:a1"},
                {"Port", "1"}});
    std::string xml = hwloc(node(0, "0x000000ff") + function("0000:02:00.0", nic_ids, hca + ipoib));
    Result r = run(xml, "--json dump");
    EXPECT_HAS(r.out, "\"port\": 1, \"state\": \"ACTIVE\", \"rate_mbits\": null, \"link_layer\": "
                      "\"InfiniBand\", \"interface\": \"ib0\"");
    EXPECT_HAS(r.out, "\"gid\": \"fe80:0000:0000:0000:0002:c903:00f9:bfa1\"");
    EXPECT_HAS(r.out,
               "\"port\": 2, \"state\": \"INIT\", \"rate_mbits\": null, \"link_layer\": null");

    pvn_topo_input in = {PVN_TOPO_INPUT_HWLOC_XML, const_cast<char *>(xml.data()), xml.size()};
    pvn_topo *t = nullptr;
    pvn_topo_err err;
    ASSERT_EQ(0, pvn_topo_input_machine(&in, "m.xml", &t, &err)) << err.text;
    Topo owner(t);
    ASSERT_EQ(1, t->nrdmas);
    EXPECT_STREQ("0002:c903:00f9:bfa0", t->rdmas[0].node_guid);
    EXPECT_STREQ("0002:c903:00f9:bfa3", t->rdmas[0].sys_image_guid);
    EXPECT_EQ(0x3a4, t->rdmas[0].ports[0].lid);
    ASSERT_EQ(1, t->nnets);
    EXPECT_EQ(PVN_TOPO_NET_IPOIB, t->nets[0].kind);
    EXPECT_EQ(0, t->nets[0].dev_port);
    EXPECT_EQ(0, strncmp(t->nets[0].address, "80:00:02:08", 11));
}

TEST_F(HwlocFile, NamesOfGpusAndKindsOfCpus)
{
    std::string gpu = device("nvml0", "1", {{"GPUModel", "NVIDIA A100"}, {"NVIDIAUUID", "GPU-1"}}) +
                      device("cuda0", "5", {{"GPUModel", "NVIDIA A100"}});
    std::string cpus = "<info name=\"CPUImplementer\" value=\"0x41\"/>\n"
                       "<info name=\"CPUModel\" value=\"Neoverse-V2\"/>\n";
    std::string all = cpus + node(0, "0x000000ff") + function("0000:01:00.0", gpu_ids, gpu);
    EXPECT_HAS(run(hwloc(all), "dump").out, "GPU NVIDIA A100");
    EXPECT_HAS(run(hwloc(all), "--json dump").out, "\"cpu\": \"Neoverse-V2\"");
    EXPECT_HAS(run(hwloc(all), "--xml dump").out, "arch=\"arm64\"");
    // Version 3 has the architecture at the file's end. For some machines nothing else is known of the CPU.
    std::string bare = node(0, "0x000000ff") + function("0000:01:00.0", gpu_ids, "");
    for (const char *arch : {"aarch64", "x86_64"}) {
        std::string info = "<info name=\"Architecture\" value=\"" + std::string(arch) + "\"/>\n";
        EXPECT_HAS(run(hwloc(bare, "3.0", info), "--xml dump").out,
                   arch[0] == 'a' ? "arch=\"arm64\"" : "arch=\"x86_64\"");
    }
    std::string power = "<info name=\"CPUModel\" value=\"POWER9, altivec supported\"/>\n";
    EXPECT_HAS(run(hwloc(power + bare), "--xml dump").out, "arch=\"ppc64\"");
}

TEST_F(HwlocFile, WhatIsNotReadIsSaidByEachCommand)
{
    std::string gpu = function("0000:01:00.0", gpu_ids, "", "0.000000");
    std::string nic = function("0000:02:00.0", nic_ids,
                               device("eth0", "2", {}) + device("cxi0", "3", {}), "0.000000");
    std::string n = node(0, "0x0000000f") + node(1, "0x000000f0");
    const struct {
        std::string xml, said;
    } rows[] = {
        {hwloc(n + gpu + nic, "2.0",
               "<distances2hetero nbobjs=\"2\" kind=\"25\" name=\"NVLinkBandwidth\"/>\n"),
         "its tables of the links between GPUs (NVLinkBandwidth) are not read"},
        {hwloc(n + gpu + nic), "cxi0: a fabric without verbs"},
        {hwloc(n + gpu + function("0000:02:00.0", nic_ids, "")), "it has each link's bandwidth"},
        {hwloc(n + gpu + function("0000:02:00.0", nic_ids, "", "0.000000", false)),
         "1 PCI functions lie below no bridge"},
        {hwloc(node(0, "0x000000ff") + gpu + nic), "it leaves out CPUs or NUMA nodes"},
    };
    for (const auto &row : rows) {
        for (const char *args :
             {"dump", "pairs", "matrix", "--json matrix", "--xml dump", "check"}) {
            Result r = run(row.xml, args);
            EXPECT_HAS(r.out + r.err, row.said) << args << r.err;
        }
    }
    // A complete file leaves no note.
    nic = function("0000:02:00.0", nic_ids, device("eth0", "2", {}), "0.000000");
    Result r = run(hwloc(n + gpu + nic), "--json dump");
    EXPECT_HAS(r.out, "\"notes\": []");
    EXPECT_HAS_NO(r.out, "cxi0");
}

// The file has no drivers, and of links only the current speed.
TEST_F(HwlocFile, WhatIsNotThereIsUnknown)
{
    std::string xml = hwloc(node(0, "0x000000ff") + function("0000:01:00.0", gpu_ids, "") +
                            function("0000:02:00.0", nic_ids, device("eth0", "2", {})));
    EXPECT_HAS_NO(run(xml, "dump").out, "no driver");
    Result r = run(xml, "--all check");
    EXPECT_HAS(r.out, "UNKNOWN link");
    EXPECT_HAS_NO(r.out, "OK link");
}

} // namespace
