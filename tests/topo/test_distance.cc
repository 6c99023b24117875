// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests distances: the classes on known machines, and random trees against a path finder that does not use the
// library's representation.
#include "tests/topo/tree.h"

#include <cstring>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

static pvn_topo_distance distance(const Topo &t, const char *a, const char *b)
{
    pvn_topo_distance d;

    pvn_topo_find_distance(t.get(), pvn_topo_find_pci(t.get(), a), pvn_topo_find_pci(t.get(), b),
                           &d);
    return d;
}

TEST(Distance, TwoLevelsOfSwitchesAreDistinguished)
{
    Topo t = load(server8x8(true, true));

    EXPECT_EQ(distance(t, "15:00.0", "16:00.0").smi, PVN_TOPO_SMI_PIX); // one leaf switch
    EXPECT_EQ(distance(t, "15:00.0", "1e:00.0").smi, PVN_TOPO_SMI_PXB); // leaf, top, leaf
    EXPECT_EQ(distance(t, "15:00.0", "1e:00.0").switches, 3);
    EXPECT_EQ(distance(t, "15:00.0", "46:00.0").smi, PVN_TOPO_SMI_NODE);
    EXPECT_EQ(distance(t, "15:00.0", "76:00.0").smi, PVN_TOPO_SMI_SYS);
    EXPECT_EQ(distance(t, "16:00.0", "16:00.2").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(distance(t, "15:00.0", "15:00.0").smi, PVN_TOPO_SMI_SELF);
    EXPECT_EQ(distance(t, "15:00.0", "10000:01:00.0").smi, PVN_TOPO_SMI_PHB)
        << "VMD is behind pci0000:10";
    EXPECT_EQ(distance(t, "15:00.0", "16:00.0").trust, PVN_TOPO_TRUST_MEASURED);
    EXPECT_STREQ(distance(t, "15:00.0", "16:00.0").reason,
                 "one switch between them, they meet at switch upstream port 0000:13:00.0");
}

TEST(Distance, AHypervisorHidesDistancesBetweenItsDevices)
{
    GuestVariant v;
    Topo t = load(vmware_guest(v));
    pvn_topo_distance d = distance(t, "03:00.0", "0b:00.1");

    EXPECT_EQ(d.seen, PVN_TOPO_SMI_PHB);
    EXPECT_EQ(d.smi, PVN_TOPO_SMI_UNKNOWN);
    EXPECT_EQ(d.trust, PVN_TOPO_TRUST_HIDDEN);
    EXPECT_NE(strstr(d.reason, "VMware"), nullptr) << d.reason;
    EXPECT_STREQ(pvn_topo_trust_text(d.trust), "hidden by the hypervisor");
    d = distance(t, "0b:00.0", "0b:00.1");
    EXPECT_EQ(d.smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(d.trust, PVN_TOPO_TRUST_PRESENTED);

    // In a KVM guest that shows a switch the distance is marked as presented by the hypervisor.
    Tree kvm = server8x8(false, false);
    kvm.dmi("QEMU", "Standard PC");
    kvm.cpus("GenuineIntel", 6, 143, true);
    t = load(kvm);
    EXPECT_EQ(distance(t, "15:00.0", "16:00.0").trust, PVN_TOPO_TRUST_PRESENTED);
    EXPECT_EQ(distance(t, "15:00.0", "16:00.0").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(distance(t, "15:00.0", "76:00.0").trust, PVN_TOPO_TRUST_HIDDEN);
}

TEST(Distance, ADistanceBetweenUnknownNodesIsUnknown)
{
    Tree tree;

    tree.pci(tree.pci("pci0000:17", "0000:17:00.0", Pci::bridge().with_numa("")), "0000:18:00.0",
             Pci::nic().with_numa("-1"));
    tree.pci(tree.pci("pci0000:3a", "0000:3a:00.0", Pci::bridge()), "0000:3b:00.0", Pci::gpu());
    Topo t = load(tree);
    EXPECT_EQ(distance(t, "18:00.0", "3b:00.0").smi, PVN_TOPO_SMI_UNKNOWN);
    EXPECT_NE(strstr(distance(t, "18:00.0", "3b:00.0").reason, "numa_node \"-1\""), nullptr);

    tree.numa(0, "ff", "0-7", "10");
    t = load(tree);
    EXPECT_EQ(distance(t, "18:00.0", "3b:00.0").smi, PVN_TOPO_SMI_NODE) << "there is only one node";
    tree.numa(1, "ff00", "8-15", "20");
    t = load(tree);
    EXPECT_EQ(distance(t, "18:00.0", "3b:00.0").smi, PVN_TOPO_SMI_UNKNOWN);
}

TEST(Distance, NoPlaceAndNoIndex)
{
    Tree tree;
    pvn_topo_distance d;

    tree.pci("pci0000:17", "0000:17:00.0", Pci::nic());
    tree.file("/sys/bus/pci/devices/0000:99:00.0/class", "0x020000\n");
    Topo t = load(tree);
    EXPECT_EQ(distance(t, "17:00.0", "99:00.0").smi, PVN_TOPO_SMI_UNKNOWN);
    pvn_topo_find_distance(t.get(), -1, 0, &d);
    EXPECT_EQ(d.smi, PVN_TOPO_SMI_UNKNOWN);
    pvn_topo_find_distance(t.get(), 0, 1000, &d);
    EXPECT_EQ(d.smi, PVN_TOPO_SMI_UNKNOWN);
}

// ---- random trees

// A component of the reference model, which is a graph with unlabelled edges. A switch is one component, whatever
// the number of its ports.
struct Box {
    enum { Root, Port, Switch, Device } what;
    int above; // -1 for a root
    int numa = -2;
};

struct Random {
    std::mt19937 rng;
    Tree tree;
    std::vector<Box> boxes;
    std::map<std::string, int> box_of; // bdf to box
    unsigned next_bus = 1;
    unsigned domain = 0;

    explicit Random(unsigned seed) : rng(seed)
    {
    }
    unsigned pick(unsigned n)
    {
        return (unsigned)(rng() % n);
    }
    std::string bdf(unsigned bus, unsigned dev, unsigned f = 0)
    {
        char buf[32];

        snprintf(buf, sizeof buf, "%04x:%02x:%02x.%x", domain, bus, dev, f);
        return buf;
    }
    int add(Box b)
    {
        boxes.push_back(b);
        return (int)boxes.size() - 1;
    }
    // Adds one thing behind the port at path: a device, a device with two functions, or a switch.
    void fill(const std::string &path, int above, int depth, int numa)
    {
        unsigned bus = next_bus++;
        std::string n = std::to_string(numa);

        if (next_bus > 250 || depth > 4 || pick(3) != 0) {
            int dev = add({Box::Device, above, numa});
            unsigned functions = 1 + pick(2);

            for (unsigned f = 0; f < functions; f++) {
                tree.pci(path, bdf(bus, 0, f),
                         (pick(2) != 0 ? Pci::gpu() : Pci::nic()).with_numa(n));
                box_of[bdf(bus, 0, f)] = dev;
            }
            return;
        }
        int sw = add({Box::Switch, above, numa});
        std::string up = tree.pci(path, bdf(bus, 0), Pci::bridge().with_numa(n));
        unsigned inner = next_bus++, ports = 1 + pick(4);

        for (unsigned p = 0; p < ports && next_bus < 250; p++) {
            std::string down = tree.pci(up, bdf(inner, p), Pci::bridge().with_numa(n));

            fill(down, sw, depth + 1, numa);
        }
    }
    void build()
    {
        int nodes = 1 + (int)pick(3);

        domain = pick(3) == 0 ? 0x10000 + pick(100) : pick(3);
        tree.lists(false);
        for (int i = 0; i < nodes; i++) {
            tree.numa(i, "f", "0-3", std::string("10 20 20").substr(0, (size_t)nodes * 3));
        }
        unsigned roots = 1 + pick(4);
        for (unsigned r = 0; r < roots && next_bus < 200; r++) {
            int numa = (int)pick((unsigned)nodes);
            unsigned bus = next_bus++, ports = 1 + pick(3);
            char name[32];
            int root = add({Box::Root, -1, numa});

            snprintf(name, sizeof name, "pci%04x:%02x", domain, bus);
            for (unsigned p = 0; p < ports; p++) {
                int port = add({Box::Port, root, numa});

                fill(tree.pci(name, bdf(bus, 1 + p), Pci::bridge().with_numa(std::to_string(numa))),
                     port, 0, numa);
            }
        }
    }
    // The boxes on the path from a box up to its root.
    std::vector<int> chain(int b)
    {
        std::vector<int> out;

        for (; b >= 0; b = boxes[(size_t)b].above) {
            out.push_back(b);
        }
        return out;
    }
    pvn_topo_smi_class expected(const std::string &a, const std::string &b, int *switches)
    {
        int x = box_of[a], y = box_of[b];
        std::vector<int> cx = chain(x), cy = chain(y);
        std::set<int> in_y(cy.begin(), cy.end());
        std::set<int> path;

        *switches = 0;
        if (a == b) {
            return PVN_TOPO_SMI_SELF;
        }
        if (cx.back() != cy.back()) {
            return boxes[(size_t)x].numa == boxes[(size_t)y].numa ? PVN_TOPO_SMI_NODE
                                                                  : PVN_TOPO_SMI_SYS;
        }
        int meet = -1;
        for (int i : cx) {
            if (in_y.count(i) != 0) {
                meet = i;
                break;
            }
            path.insert(i);
        }
        for (int i : cy) {
            if (i == meet) {
                break;
            }
            path.insert(i);
        }
        path.insert(meet);
        for (int i : path) {
            *switches += boxes[(size_t)i].what == Box::Switch;
        }
        if (boxes[(size_t)meet].what == Box::Root) {
            return PVN_TOPO_SMI_PHB;
        }
        return *switches <= 1 ? PVN_TOPO_SMI_PIX : PVN_TOPO_SMI_PXB;
    }
};

TEST(Distance, RandomTreesAgreeWithAPathFinder)
{
    std::map<pvn_topo_smi_class, int> seen;

    for (unsigned seed = 1; seed <= 150; seed++) {
        Random r(seed);

        r.build();
        Topo t = load(r.tree);
        ASSERT_TRUE(t);
        ASSERT_EQ(t->nnotes, 0) << t->notes[0].text;
        for (const auto &a : r.box_of) {
            for (const auto &b : r.box_of) {
                int switches;
                pvn_topo_smi_class want = r.expected(a.first, b.first, &switches);
                pvn_topo_distance d = distance(t, a.first.c_str(), b.first.c_str());
                pvn_topo_distance back = distance(t, b.first.c_str(), a.first.c_str());

                ASSERT_EQ(d.smi, want)
                    << "seed " << seed << " " << a.first << " " << b.first << ": " << d.reason;
                if (want == PVN_TOPO_SMI_PIX || want == PVN_TOPO_SMI_PXB) {
                    ASSERT_EQ(d.switches, switches) << "seed " << seed;
                }
                ASSERT_EQ(back.smi, d.smi);
                ASSERT_EQ(back.hops, d.hops);
                ASSERT_EQ(back.common, d.common);
                ASSERT_STRNE(d.reason, "");
                seen[d.smi]++;
            }
        }
    }
    for (pvn_topo_smi_class c : {PVN_TOPO_SMI_SELF, PVN_TOPO_SMI_PIX, PVN_TOPO_SMI_PXB,
                                 PVN_TOPO_SMI_PHB, PVN_TOPO_SMI_NODE, PVN_TOPO_SMI_SYS}) {
        EXPECT_GT(seen[c], 100) << pvn_topo_smi_class_name(c) << " was hardly tried";
    }
}
