// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests guests whose layout comes from another source (hints, a host's dump, esxcli), and the remedies to apply on the
// host.
#include "tests/topo/tree.h"

#include <cerrno>
#include <cstring>

#include <gtest/gtest.h>

static int apply_hints(const Topo &t, const std::string &text, std::string *error = nullptr)
{
    pvn_topo_err err = {""};
    int rc = pvn_topo_apply_hints(t.get(), text.data(), text.size(), "my.hints", &err);

    if (error != nullptr) {
        *error = err.text;
    } else {
        EXPECT_EQ(rc, 0) << err.text;
    }
    return rc;
}

static pvn_topo_distance distance(const Topo &t, const char *a, const char *b)
{
    pvn_topo_distance d;

    pvn_topo_find_distance(t.get(), pvn_topo_find_pci(t.get(), a), pvn_topo_find_pci(t.get(), b),
                           &d);
    return d;
}

static const char two_switches[] = "pvn-topo-hints 1\n"
                                   "# the host has two switches\n"
                                   "switch a node 0 speed \"32.0 GT/s PCIe\" width 16\n"
                                   "switch b node 1\n"
                                   "device 0000:03:00.0 in a   # GPU\n"
                                   "device vmw_pvrdma0 in a\n"
                                   "device 0000:1b:00.0 in b\n"
                                   "device ens224 in b\n";

TEST(Hints, PlaceDevicesBelowInventedSwitches)
{
    Topo t = load(vmware_guest({}));
    int before = t->npci;

    EXPECT_EQ(distance(t, "03:00.0", "0b:00.1").trust, PVN_TOPO_TRUST_HIDDEN);
    EXPECT_EQ(distance(t, "03:00.0", "0b:00.1").smi, PVN_TOPO_SMI_UNKNOWN);
    EXPECT_EQ(distance(t, "03:00.0", "0b:00.1").seen, PVN_TOPO_SMI_PHB);
    apply_hints(t, two_switches);
    EXPECT_EQ(t->merged, (unsigned)PVN_TOPO_MERGED_HINTS);
    EXPECT_EQ(t->npci, before + 4 + 4)
        << "per switch a root port and an upstream port, per device a port";

    pvn_topo_distance d = distance(t, "03:00.0", "0b:00.1");
    EXPECT_EQ(d.smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(d.trust, PVN_TOPO_TRUST_HINTED);
    EXPECT_EQ(distance(t, "03:00.0", "0b:00.0").smi, PVN_TOPO_SMI_PIX)
        << "vmxnet3 moves with its PVRDMA";
    EXPECT_EQ(distance(t, "03:00.0", "13:00.1").smi, PVN_TOPO_SMI_SYS);
    EXPECT_EQ(distance(t, "1b:00.0", "13:00.1").smi, PVN_TOPO_SMI_PIX);

    const pvn_topo_pci &gpu = t->pci[pvn_topo_find_pci(t.get(), "03:00.0")];
    EXPECT_TRUE(gpu.flags & PVN_TOPO_PCI_MOVED);
    EXPECT_TRUE(gpu.flags & PVN_TOPO_PCI_NUMA_HINTED);
    EXPECT_EQ(gpu.numa, 0);
    EXPECT_STREQ(gpu.numa_text, "-1") << "what the guest said is kept";
    EXPECT_EQ(gpu.depth, 3);
    EXPECT_STREQ(t->pci[gpu.seen_parent].bdf, "0000:00:15.0");
    const pvn_topo_pci &port = t->pci[gpu.parent];
    EXPECT_EQ(port.kind, PVN_TOPO_PCI_SWITCH_DOWN);
    EXPECT_EQ(port.domain, 0xffffu);
    EXPECT_EQ(port.flags, (unsigned)PVN_TOPO_PCI_INVENTED);
    const pvn_topo_pci &up = t->pci[port.parent];
    EXPECT_EQ(up.kind, PVN_TOPO_PCI_SWITCH_UP);
    EXPECT_STREQ(up.link.speed_max_text, "32.0 GT/s PCIe");
    EXPECT_EQ(up.link.width_max, 16);
    EXPECT_EQ(t->pci[up.parent].kind, PVN_TOPO_PCI_ROOT_PORT);
    for (int i = before; i < t->npci; i++) {
        EXPECT_GT(pvn_topo_link_mbytes(t->pci[i].link.speed_max_mts, t->pci[i].link.width_max),
                  3000)
            << "an invented bridge must not narrow a pair";
        for (int k = 0; k < i; k++) {
            EXPECT_STRNE(t->pci[i].bdf, t->pci[k].bdf);
        }
    }
}

TEST(Hints, NestedSwitchesAndNodesAlone)
{
    Topo t = load(vmware_guest({}));

    apply_hints(
        t,
        "pvn-topo-hints 1\r\nswitch top node 0\nswitch leaf1 in top\nswitch leaf2 in top\n"
        "device 0000:03:00.0 in leaf1\ndevice 0000:0b:00.1 in leaf1\ndevice 0000:13:00.1 in leaf2\n"
        "device 0000:1b:00.0 node 1\n");
    EXPECT_EQ(distance(t, "03:00.0", "0b:00.1").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(distance(t, "03:00.0", "13:00.1").smi, PVN_TOPO_SMI_PXB);
    EXPECT_EQ(distance(t, "03:00.0", "13:00.1").switches, 3);
    EXPECT_EQ(distance(t, "03:00.0", "1b:00.0").smi, PVN_TOPO_SMI_SYS);
    EXPECT_EQ(t->pci[pvn_topo_find_pci(t.get(), "13:00.1")].numa, 0) << "from the switch above";
}

TEST(Hints, PartOfTheDevicesStaysHidden)
{
    Topo t = load(vmware_guest({}));

    apply_hints(t, "pvn-topo-hints 1\nswitch a\ndevice 0000:03:00.0 in a\ndevice ens192 in a\n");
    EXPECT_EQ(distance(t, "03:00.0", "0b:00.1").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(distance(t, "03:00.0", "13:00.1").trust, PVN_TOPO_TRUST_HIDDEN);
    EXPECT_EQ(distance(t, "1b:00.0", "13:00.1").trust, PVN_TOPO_TRUST_HIDDEN);
}

TEST(Hints, UnknownLinksTakeTheFastestBelow)
{
    Topo t = load(vmware_guest({}));

    apply_hints(t, "pvn-topo-hints 1\nswitch a\ndevice 0000:03:00.0 in a\ndevice ens192 in a\n");
    const pvn_topo_pci &gpu = t->pci[pvn_topo_find_pci(t.get(), "03:00.0")];
    EXPECT_STREQ(t->pci[gpu.parent].link.speed_max_text, "16.0 GT/s PCIe");
    EXPECT_EQ(t->pci[gpu.parent].link.width_max, 16);
}

TEST(Hints, OccupiedDomainIsAvoided)
{
    Tree tree = vmware_guest({});

    tree.pci("pciffff:01", "ffff:01:00.0", Pci::nic());
    Topo t = load(tree);
    apply_hints(t, two_switches);
    EXPECT_EQ(t->pci[t->npci - 1].domain, 0xfffeu);
}

TEST(Hints, ErrorsNameLineAndRemedyAndChangeNothing)
{
    struct {
        const char *text, *want;
    } cases[] = {
        {"", "my.hints:1: a hints file starts with the line \"pvn-topo-hints 1\""},
        {"switch a\n", "my.hints:1: a hints file starts"},
        {"\n# x\npvn-topo-hints 2\n", "my.hints:3: version \"2\" is not supported"},
        {"pvn-topo-hints 1\nbridge a\n",
         "my.hints:2: \"bridge\": expected \"switch\" or \"device\""},
        {"pvn-topo-hints 1\nswitch\n", "my.hints:2: expected a name"},
        {"pvn-topo-hints 1\nswitch a in\n", ":2: \"in\" needs a value"},
        {"pvn-topo-hints 1\nswitch a in b\nswitch b in a\n",
         ":2: no switch \"b\" is defined above"},
        {"pvn-topo-hints 1\nswitch a in a\n", ":2: no switch \"a\" is defined above"},
        {"pvn-topo-hints 1\nswitch a\nswitch a\n", ":3: switch \"a\" is already defined"},
        {"pvn-topo-hints 1\nswitch a colour red\n", "\"colour\" is not an option of a switch"},
        {"pvn-topo-hints 1\nswitch a node -1\n", "node \"-1\": expected a number"},
        {"pvn-topo-hints 1\nswitch a node 99999999999999999999\n", "expected a number"},
        {"pvn-topo-hints 1\nswitch a speed 16\n", "speed \"16\": expected one of"},
        {"pvn-topo-hints 1\nswitch a width 3\n", "width \"3\": expected"},
        {"pvn-topo-hints 1\nswitch a speed \"16.0 GT/s PCIe\n", "quote (\") is not closed"},
        {"pvn-topo-hints 1\nswitch a node 0\nswitch b in a node 1\n",
         ":3: switch \"b\" is on node 1"},
        {"pvn-topo-hints 1\nswitch a node 0\ndevice ens192 in a node 1\n",
         "but its switch on node 0"},
        {"pvn-topo-hints 1\nswitch a\ndevice 0000:99:00.0 in a\n",
         ":3: device \"0000:99:00.0\" is not in this machine"},
        {"pvn-topo-hints 1\nswitch a\ndevice ens192\n", "device \"ens192\" has no place"},
        {"pvn-topo-hints 1\nswitch a\ndevice ens192 in a\ndevice vmw_pvrdma0 in a\n",
         ":4: device \"vmw_pvrdma0\" (0000:0b:00.1) was already placed"},
        {"pvn-topo-hints 1\nswitch a\ndevice 0000:00:15.0 in a\n", "is a bridge"},
        {"pvn-topo-hints 1\ndevice ens192 host 0000:3b:00.0\n", "needs the host's tree"},
        {"pvn-topo-hints 1\ndevice ens192 host here\n", "\"here\" is not a PCI address"},
        {"pvn-topo-hints 1\nswitch a b c d e f g h i j k l m n o\n", "more than 12 words"},
    };
    Topo t = load(vmware_guest({}));
    int before = t->npci;

    for (const auto &c : cases) {
        std::string error;

        EXPECT_EQ(apply_hints(t, c.text, &error), -EINVAL) << c.text;
        EXPECT_NE(error.find(c.want), std::string::npos) << error;
        EXPECT_EQ(t->npci, before);
        EXPECT_EQ(t->merged, 0u);
    }
    std::string error, zero("pvn-topo-hints 1\n\0switch a\n", 27);
    EXPECT_EQ(apply_hints(t, zero, &error), -EINVAL);
    EXPECT_NE(error.find("zero bytes"), std::string::npos);

    EXPECT_EQ(apply_hints(t, "pvn-topo-hints 1\nswitch " + std::string(70, 'a') + "\n", &error),
              -EINVAL);
    EXPECT_NE(error.find("of a switch is too long"), std::string::npos) << error;

    std::string many = "pvn-topo-hints 1\n";
    for (int i = 0; i < 256; i++) {
        many += "switch s" + std::to_string(i) + "\n";
    }
    EXPECT_EQ(apply_hints(t, many, &error), -EINVAL);
    EXPECT_NE(error.find("my.hints:257: the file has more than 255 switches"), std::string::npos)
        << error;
}

// ---- the host's dump

static Tree kvm_guest(int gpus, bool serials)
{
    Tree t;
    Pci port = Pci::bridge(0x1b36, 0x000c);

    port.with_numa("-1").with_link("16 GT/s PCIe", "32");
    for (int i = 0; i < gpus; i++) {
        char a[32], b[32], c[32], d[32];
        Pci g = Pci::gpu().with_numa("-1"), n = Pci::nic().with_numa("-1");

        snprintf(a, sizeof a, "0000:00:02.%d", i);
        snprintf(b, sizeof b, "0000:%02x:00.0", 1 + i);
        snprintf(c, sizeof c, "0000:00:03.%d", i);
        snprintf(d, sizeof d, "0000:%02x:00.0", 0x11 + i);
        if (serials) {
            Config cfg;

            cfg.dsn = true;
            cfg.serial = 0x1000u + (unsigned)(gpus - 1 - i); // in reverse order
            g.config = cfg.build();
        }
        t.pci(t.pci("pci0000:00", a, port), b, g);
        std::string np = t.pci(t.pci("pci0000:00", c, port), d, n);
        t.net("eth" + std::to_string(i), np,
              {{"address", "02:00:00:00:00:0" + std::to_string(gpus - 1 - i)}});
    }
    t.dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)");
    t.cpus("GenuineIntel", 6, 143, true);
    t.numa(0, "ff", "0-7", "10");
    return t;
}

static Tree kvm_host(int gpus, bool serials)
{
    Tree t;

    for (int i = 0; i < gpus; i++) {
        unsigned base = 0x20 + (unsigned)i * 0x10;
        std::string numa = std::to_string(i / 2);
        char root[32], bdf[32];
        Pci g = Pci::gpu().with_numa(numa), n = Pci::nic().with_numa(numa);

        if (serials) {
            Config cfg;

            cfg.dsn = true;
            cfg.serial = 0x1000u + (unsigned)i;
            g.config = cfg.build();
        }
        snprintf(root, sizeof root, "pci0000:%02x", base);
        snprintf(bdf, sizeof bdf, "0000:%02x:01.0", base);
        std::string rp = t.pci(root, bdf, Pci::bridge().with_numa(numa));
        snprintf(bdf, sizeof bdf, "0000:%02x:00.0", base + 1);
        auto sw = t.pcie_switch(rp, bdf, base + 2, 2, Pci::bridge(0x1000, 0xc010).with_numa(numa));
        snprintf(bdf, sizeof bdf, "0000:%02x:00.0", base + 3);
        t.pci(sw[1], bdf, g);
        snprintf(bdf, sizeof bdf, "0000:%02x:00.0", base + 4);
        std::string np = t.pci(sw[2], bdf, n);
        t.net("eth" + std::to_string(i), np, {{"address", "02:00:00:00:00:0" + std::to_string(i)}});
    }
    return t;
}

static int merge(const Topo &guest, const Topo &host, std::string *error,
                 const char *hints = nullptr)
{
    pvn_topo_err err = {""};
    int rc = pvn_topo_merge_host(guest.get(), host.get(), hints,
                                 hints != nullptr ? strlen(hints) : 0, "pairs", &err);

    *error = err.text;
    return rc;
}

TEST(Merge, BySerialNumberAndAddress)
{
    Topo g = load(kvm_guest(4, true)), h = load(kvm_host(4, true));
    std::string error;

    ASSERT_EQ(merge(g, h, &error), 0) << error;
    EXPECT_EQ(g->merged, (unsigned)PVN_TOPO_MERGED_HOST) << "nothing was matched by order";
    // GPU i of the guest is GPU 3 - i of the host. NICs have the same order.
    const pvn_topo_pci &gpu0 = g->pci[pvn_topo_find_pci(g.get(), "01:00.0")];
    EXPECT_EQ(gpu0.numa, 1);
    EXPECT_STREQ(g->pci[gpu0.parent].bdf, "ffff:52:00.0") << "a copy of the host's 0000:52:00.0";
    EXPECT_EQ(g->pci[gpu0.parent].vendor, 0x1000);
    EXPECT_STREQ(g->roots[gpu0.root].name, "host:pci0000:50");
    EXPECT_EQ(distance(g, "01:00.0", "11:00.0").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(distance(g, "01:00.0", "11:00.0").trust, PVN_TOPO_TRUST_HINTED);
    EXPECT_EQ(distance(g, "01:00.0", "12:00.0").smi, PVN_TOPO_SMI_NODE);
    EXPECT_EQ(distance(g, "01:00.0", "14:00.0").smi, PVN_TOPO_SMI_SYS);
}

TEST(Merge, ByOrderIsMarked)
{
    Tree gt = kvm_guest(2, false), ht = kvm_host(2, false);
    std::string error;

    gt.remove("/sys/class/net");
    Topo g = load(gt), h = load(ht);
    ASSERT_EQ(merge(g, h, &error), 0) << error;
    EXPECT_EQ(g->merged, (unsigned)(PVN_TOPO_MERGED_HOST | PVN_TOPO_MERGED_ORDER));
    EXPECT_EQ(distance(g, "01:00.0", "11:00.0").smi, PVN_TOPO_SMI_PIX);
}

TEST(Merge, OneOfAKindIsSure)
{
    Tree gt = kvm_guest(1, false), ht = kvm_host(1, false);
    std::string error;

    gt.remove("/sys/class/net");
    Topo g = load(gt);
    ASSERT_EQ(merge(g, load(ht), &error), 0) << error;
    EXPECT_EQ(g->merged, (unsigned)PVN_TOPO_MERGED_HOST);
}

TEST(Merge, TooManyCandidatesNeedNames)
{
    Tree gt = kvm_guest(2, false), ht = kvm_host(4, false);
    std::string error;

    gt.remove("/sys/class/net");
    Topo g = load(gt), h = load(ht);
    int before = g->npci;
    EXPECT_EQ(merge(g, h, &error), -ENOENT);
    EXPECT_NE(error.find("device ADDRESS host ADDRESS"), std::string::npos) << error;
    EXPECT_EQ(g->npci, before);

    ASSERT_EQ(merge(g, h, &error,
                    "pvn-topo-hints 1\ndevice 0000:01:00.0 host 0000:43:00.0\n"
                    "device 0000:11:00.0 host 0000:44:00.0\n"),
              0)
        << error;
    EXPECT_EQ(distance(g, "01:00.0", "11:00.0").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(distance(g, "02:00.0", "12:00.0").trust, PVN_TOPO_TRUST_HIDDEN);
}

TEST(Merge, ParavirtualNicGoesToItsUplink)
{
    Topo g = load(vmware_guest({})), h = load(kvm_host(2, false));
    std::string error;

    ASSERT_EQ(merge(g, h, &error, "pvn-topo-hints 1\ndevice vmw_pvrdma0 host 0000:24:00.0\n"), 0)
        << error;
    EXPECT_EQ(distance(g, "03:00.0", "0b:00.1").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(distance(g, "1b:00.0", "13:00.1").trust, PVN_TOPO_TRUST_HIDDEN)
        << "virtual NICs match nothing";
}

TEST(Merge, HintsThatFitNothingAreRefused)
{
    Topo g = load(kvm_guest(2, true)), h = load(kvm_host(2, true));
    std::string error;

    EXPECT_EQ(merge(g, h, &error, "pvn-topo-hints 1\nswitch a\n"), -EINVAL);
    EXPECT_NE(error.find("pairs:2"), std::string::npos);
    EXPECT_EQ(merge(g, h, &error, "pvn-topo-hints 1\ndevice eth0 node 1\n"), -EINVAL);
    EXPECT_EQ(merge(g, h, &error, "pvn-topo-hints 1\ndevice eth0 host 0000:ff:00.0\n"), -EINVAL);
    EXPECT_NE(error.find("host's dump"), std::string::npos) << error;
    EXPECT_EQ(g->merged, 0u);
}

// ---- esxcli

static std::string esx_block(const char *bdf, const char *cls, const char *vendor,
                             const char *device, int spawned, const char *parent, const char *numa)
{
    char text[1024];

    snprintf(
        text, sizeof text,
        "%s\n   Address: %s\n   Segment: 0x0000\n   Bus: 0x3b\n   Slot: 0x00\n   Function: 0x0\n"
        "   VMkernel Name:\n   Vendor Name: Some: Corp\n   Device Name: Thing\n"
        "   Configured Owner: VM Passthru\n   Vendor ID: %s\n   Device ID: %s\n"
        "   SubVendor ID: 0x15b3\n   SubDevice ID: 0x0001\n   Device Class: %s\n"
        "   Device Class Name: Class\n   Revision ID: 0xa1\n   Spawned Bus: 0x%02x\n   Flags: "
        "0x3219\n"
        "   Module ID: 57\n   Module Name: pciPassthru\n   Passthru Capable: true\n"
        "   Parent Device: %s\n   Reset Method: Function reset\n   NUMA Node: %s\n\n",
        bdf, bdf, vendor, device, cls, spawned, parent, numa);
    return text;
}

static std::string esx_host()
{
    return esx_block("0000:3a:02.0", "0x0604", "0x8086", "0x2030", 0x3b, "PCI 0:0:0:0", "0") +
           esx_block("0000:3b:00.0", "0x0604", "0x1000", "0xc010", 0x3c, "PCI 0:58:2:0", "0") +
           esx_block("0000:3c:00.0", "0x0604", "0x1000", "0xc010", 0x3d, "PCI 0:59:0:0", "0") +
           esx_block("0000:3c:04.0", "0x0604", "0x1000", "0xc010", 0, "PCI 0:59:0:0", "0") +
           esx_block("0000:3d:00.0", "0x0302", "0x10de", "0x20b2", 0, "PCI 0:60:0:0", "0") +
           esx_block("0000:3e:00.0", "0x0207", "0x15b3", "0x101b", 0, "PCI 0:60:4:0", "0") +
           esx_block("0000:af:00.0", "0x0200", "0x8086", "0x1528", 0, "None", "-");
}

static Topo load_esx(const std::string &text, int *rc, std::string *error)
{
    pvn_topo_err err = {""};
    pvn_topo *t = nullptr;

    *rc = pvn_topo_load_esxcli(text.data(), text.size(), "esx.txt", &t, &err);
    *error = err.text;
    return Topo(*rc == 0 ? t : nullptr);
}

TEST(Esxcli, TreeFromSpawnedBusesAndParents)
{
    std::string error;
    int rc;
    Topo t = load_esx(esx_host(), &rc, &error);

    ASSERT_EQ(rc, 0) << error;
    ASSERT_EQ(t->npci, 7);
    EXPECT_EQ(t->ngpus, 1);
    const pvn_topo_pci &gpu = t->pci[pvn_topo_find_pci(t.get(), "3d:00.0")];
    EXPECT_EQ(gpu.depth, 3);
    EXPECT_EQ(gpu.numa, 0);
    EXPECT_EQ(gpu.class_code, 0x030200);
    EXPECT_STREQ(gpu.driver, "pciPassthru");
    EXPECT_EQ(t->pci[pvn_topo_find_pci(t.get(), "3b:00.0")].kind, PVN_TOPO_PCI_SWITCH_UP);
    const pvn_topo_pci &nic = t->pci[pvn_topo_find_pci(t.get(), "3e:00.0")];
    EXPECT_STREQ(t->pci[nic.parent].bdf, "0000:3c:04.0") << "by Parent Device: nothing spawned 3e";
    EXPECT_EQ(distance(t, "3d:00.0", "3e:00.0").smi, PVN_TOPO_SMI_PIX);
    EXPECT_EQ(t->pci[pvn_topo_find_pci(t.get(), "af:00.0")].numa, PVN_TOPO_UNKNOWN);
}

TEST(Esxcli, MergesIntoItsGuest)
{
    GuestVariant v;
    std::string error;
    int rc;

    v.mellanox = true;
    Tree tree = vmware_guest(v);
    tree.remove("/sys/bus/pci/devices/0000:1b:00.0");
    tree.remove("/sys/bus/pci/devices/0000:13:00.0");
    Topo g = load(tree), h = load_esx(esx_host(), &rc, &error);
    ASSERT_EQ(rc, 0) << error;
    ASSERT_EQ(merge(g, h, &error), 0) << error;
    EXPECT_EQ(distance(g, "03:00.0", "0b:00.0").smi, PVN_TOPO_SMI_PIX);
    const pvn_topo_pci &gpu = g->pci[pvn_topo_find_pci(g.get(), "03:00.0")];
    EXPECT_EQ(g->pci[gpu.parent].link.speed_max_mts, 16000)
        << "esxcli reports no link; the device does";
}

TEST(Esxcli, OutputThatIsNotEsxclisIsRefusedWithItsLine)
{
    std::string error;
    int rc;

    load_esx("", &rc, &error);
    EXPECT_EQ(rc, -EINVAL);
    load_esx("hello world\n", &rc, &error);
    EXPECT_NE(error.find("esx.txt:1: expected a PCI address"), std::string::npos) << error;
    load_esx("   Vendor ID: 0x10de\n", &rc, &error);
    EXPECT_EQ(rc, -EINVAL);
    load_esx("0000:3d:00.0\n   Vendor ID: 0x10de999\n", &rc, &error);
    EXPECT_NE(error.find("esx.txt:2: Vendor ID"), std::string::npos) << error;
    load_esx(esx_host() + esx_host(), &rc, &error);
    EXPECT_NE(error.find("listed before"), std::string::npos) << error;
    // Two bridges that claim each other's bus must not become a loop.
    Topo t = load_esx(esx_block("0000:01:00.0", "0x0604", "0x1", "0x1", 2, "PCI 0:2:0:0", "0") +
                          esx_block("0000:02:00.0", "0x0604", "0x1", "0x1", 1, "PCI 0:1:0:0", "0"),
                      &rc, &error);
    ASSERT_EQ(rc, 0);
    EXPECT_EQ(t->pci[0].parent, -1);
}

// ---- remedies

static std::string remedies(const Topo &t)
{
    pvn_topo_remedy r[32];
    int n = pvn_topo_guest_remedies(t.get(), r, 32);
    std::string ids;

    EXPECT_LE(n, 32);
    for (int i = 0; i < n; i++) {
        EXPECT_STRNE(r[i].text, "");
        EXPECT_STRNE(r[i].why, "");
        EXPECT_LT(strlen(r[i].why), sizeof r[i].why - 1);
        EXPECT_TRUE(strcmp(r[i].where, "host") == 0 || strcmp(r[i].where, "guest") == 0);
        ids += std::string(i > 0 ? " " : "") + r[i].id;
    }
    EXPECT_EQ(pvn_topo_guest_remedies(t.get(), r, 0), n) << "counts without room";
    return ids;
}

TEST(Remedies, FitWhatWasFound)
{
    GuestVariant pvrdma, passthrough, vnuma;

    EXPECT_EQ(remedies(load(vmware_guest(pvrdma))), "hints allow-p2p vnuma real-nic");
    passthrough.mellanox = true;
    EXPECT_EQ(remedies(load(vmware_guest(passthrough))),
              "hints device-group allow-p2p vnuma ats topo-check gdr-level");
    passthrough.two_nodes = true;
    EXPECT_EQ(remedies(load(vmware_guest(passthrough))),
              "hints device-group allow-p2p ats topo-check gdr-level");
    Topo hinted = load(vmware_guest(pvrdma));
    apply_hints(hinted, two_switches);
    EXPECT_EQ(remedies(hinted), "allow-p2p real-nic") << "nodes and layout are known now";
    EXPECT_EQ(remedies(load(server8x8(false, false))), "") << "bare metal";
    EXPECT_EQ(remedies(load(kvm_guest(2, false))), "hints pxb-numa");
}
