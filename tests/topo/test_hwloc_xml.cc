// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The machines that hwloc's users collected (../shared/topologies/hwloc-xml), rebuilt as sysfs
// trees: hwloc's nesting of objects is a second opinion on every GPU-NIC pair.
#include "tests/topo/hwloc_line.h"
#include "tests/topo/tree.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

namespace fs = std::filesystem;

// An object that is open while the file is read, and its place among the others.
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

// The sysfs tree with the same functions below the same bridges.
static Tree rebuild(const Machine &m)
{
    std::map<std::string, std::string> path;
    Tree t;

    for (const auto &f : m.functions) {
        std::string above, root = "pci0000:00";
        Pci p;

        for (const Object &o : f.second.above) {
            if (o.type == "Bridge" && o.bdf.empty()) {
                // Root buses are distinguished by the number of the object.
                char name[32];

                snprintf(name, sizeof name, "pci%04x:%02x", 0x4000 + o.number / 256,
                         o.number % 256);
                root = name;
            }
        }
        // Without a host bridge (a guest that shows none) every function is a root bus of its own.
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

// The class by hwloc's objects alone: what is the innermost object that both hang on, and how many
// switches are on the two paths up to it. A bridge is a port; the ports of a switch come in pairs.
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

            // Ends of traffic: GPUs and NICs.
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
                // One of them hangs above all nodes.
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
