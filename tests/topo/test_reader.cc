// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the readers of sysfs on made-up machines: PCI, config space, interfaces, RDMA, GPUs, system, guest.
#include "tests/topo/tree.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "topo/reader.h"

static const pvn_topo_pci &fn(const Topo &t, const char *bdf)
{
    int i = pvn_topo_find_pci(t.get(), bdf);

    EXPECT_GE(i, 0) << bdf;
    return t->pci[i >= 0 ? i : 0];
}

TEST(Bdf, ParsesFourToEightDomainDigits)
{
    uint32_t domain;
    uint8_t bus, dev, f;

    ASSERT_EQ(pvn_topo_bdf_parse("0000:3b:1f.7", &domain, &bus, &dev, &f), 0);
    EXPECT_EQ(domain, 0u);
    EXPECT_EQ(bus, 0x3b);
    EXPECT_EQ(dev, 0x1f);
    EXPECT_EQ(f, 7);
    ASSERT_EQ(pvn_topo_bdf_parse("DeadBeef:00:00.0", &domain, &bus, &dev, &f), 0);
    EXPECT_EQ(domain, 0xdeadbeefu);
    ASSERT_EQ(pvn_topo_bdf_parse("3b:00.1", &domain, &bus, &dev, &f), 0);
    EXPECT_EQ(domain, 0u);
    for (const char *bad : {"", ":", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:3bb:00.0",
                            "123456789:00:00.0", "0000:3b:00.0 ", "0000:3b:00.0x", "xyz:00:00.0"}) {
        EXPECT_EQ(pvn_topo_bdf_parse(bad, &domain, &bus, &dev, &f), -EINVAL) << bad;
    }
}

TEST(Pci, KeepsWhatIsWritten)
{
    Tree tree;

    tree.lists();
    std::string port = tree.pci("pci0000:17", "0000:17:00.0", Pci::bridge());
    Pci nic = Pci::nic().with_numa("-1");

    nic.speed = "8.0 GT/s PCIe";
    nic.width = "8";
    nic.group = 33;
    std::string path = tree.pci(port, "0000:18:00.0", nic);
    tree.file("/sys/devices/" + path + "/resource",
              "0x0000201000000000 0x0000201001ffffff 0x000000000014220c\n"
              "0x0000000000000000 0x0000000000000000 0x0000000000000000\n");
    tree.file("/sys/kernel/iommu_groups/33/type", "DMA-FQ\n");
    Topo t = load(tree);
    const pvn_topo_pci &p = fn(t, "18:00.0");

    EXPECT_EQ(p.class_code, 0x020700);
    EXPECT_EQ(p.vendor, 0x15b3);
    EXPECT_EQ(p.device, 0x101b);
    EXPECT_EQ(p.numa, -1);
    EXPECT_STREQ(p.numa_text, "-1");
    EXPECT_STREQ(p.driver, "mlx5_core");
    EXPECT_EQ(p.driver_bound, PVN_TOPO_TRI_YES);
    EXPECT_EQ(p.link.speed_mts, 8000);
    EXPECT_EQ(p.link.speed_max_mts, 16000);
    EXPECT_STREQ(p.link.speed_max_text, "16.0 GT/s PCIe");
    EXPECT_EQ(p.link.width, 8);
    EXPECT_EQ(p.link.width_max, 16);
    EXPECT_EQ(p.iommu_group, 33);
    EXPECT_EQ(p.bar_size[0], 0x2000000u);
    EXPECT_EQ(p.bar_size[1], 0u);
    EXPECT_EQ(p.kind, PVN_TOPO_PCI_ENDPOINT);
    EXPECT_EQ(p.parent, pvn_topo_find_pci(t.get(), "17:00.0"));
    EXPECT_EQ(p.depth, 1);
    EXPECT_STREQ(t->roots[p.root].name, "pci0000:17");
    EXPECT_EQ(fn(t, "17:00.0").kind, PVN_TOPO_PCI_ROOT_PORT);
    ASSERT_EQ(t->niommu_groups, 1);
    EXPECT_STREQ(t->iommu_groups[0].type, "DMA-FQ");
    EXPECT_EQ(t->nnotes, 0);
}

TEST(Pci, MissingFilesAreUnknownNotZero)
{
    Tree tree;

    tree.link("/sys/bus/pci/devices/0000:00:02.0", "../../../devices/pci0000:00/0000:00:02.0");
    tree.file("/sys/devices/pci0000:00/0000:00:02.0/uevent", "");
    Topo t = load(tree);
    const pvn_topo_pci &p = fn(t, "00:02.0");

    EXPECT_EQ(p.class_code, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.vendor, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.numa, PVN_TOPO_UNKNOWN);
    EXPECT_STREQ(p.numa_text, "");
    EXPECT_EQ(p.link.speed_mts, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.link.width_max, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.iommu_group, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.driver_bound, PVN_TOPO_TRI_UNKNOWN);
    EXPECT_EQ(p.config.acs, PVN_TOPO_CAP_UNKNOWN);
    EXPECT_EQ(p.total_vfs, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.kind, PVN_TOPO_PCI_UNKNOWN);
    EXPECT_EQ(p.flags, 0u);
}

TEST(Pci, SpeedsOfOldAndNewKernels)
{
    struct {
        const char *text;
        int mts;
    } cases[] = {{"2.5 GT/s", 2500},
                 {"8 GT/s", 8000},
                 {"16 GT/s", 16000},
                 {"32.0 GT/s PCIe", 32000},
                 {"64.0 GT/s PCIe", 64000},
                 {"Unknown speed", PVN_TOPO_UNKNOWN},
                 {"Unknown", PVN_TOPO_UNKNOWN},
                 {"-8 GT/s", PVN_TOPO_UNKNOWN},
                 {"0 GT/s", PVN_TOPO_UNKNOWN},
                 {"99999999999 GT/s", PVN_TOPO_UNKNOWN}};

    for (const auto &c : cases) {
        Tree tree;

        tree.pci("pci0000:00", "0000:00:02.0", Pci::nic().with_link(c.text, "16"));
        EXPECT_EQ(fn(load(tree), "00:02.0").link.speed_max_mts, c.mts) << c.text;
    }
}

TEST(Pci, JunkNumbersAreUnknownWithANote)
{
    Tree tree;

    tree.lists();
    std::string path = tree.pci("pci0000:00", "0000:00:02.0", Pci::nic());

    tree.file("/sys/devices/" + path + "/numa_node", "99999999999999999999\n");
    tree.file("/sys/devices/" + path + "/vendor", std::string("\x00\xff\x01junk", 7));
    tree.file("/sys/devices/" + path + "/current_link_width", "255\n");
    Topo t = load(tree);
    const pvn_topo_pci &p = fn(t, "00:02.0");

    EXPECT_EQ(p.numa, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.vendor, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.link.width, PVN_TOPO_UNKNOWN);
    ASSERT_EQ(t->nnotes, 2);
    EXPECT_NE(strstr(t->notes[0].text, "???junk"), nullptr) << t->notes[0].text;
    for (int i = 0; i < t->nnotes; i++) {
        for (const char *c = t->notes[i].text; *c != '\0'; c++) {
            EXPECT_TRUE(*c >= 0x20 && *c <= 0x7e);
        }
    }
}

TEST(Pci, VmdDomainsHangBehindTheirController)
{
    Topo t = load(server8x8(true, false));
    const pvn_topo_pci &drive = fn(t, "10000:01:00.0");

    EXPECT_EQ(drive.domain, 0x10000u);
    EXPECT_STREQ(drive.bdf, "10000:01:00.0");
    EXPECT_EQ(drive.depth, 1);
    EXPECT_EQ(fn(t, "10000:00:02.0").kind, PVN_TOPO_PCI_ROOT_PORT);
    const pvn_topo_root &root = t->roots[drive.root];
    EXPECT_STREQ(root.name, "pci10000:00");
    EXPECT_EQ(root.via, pvn_topo_find_pci(t.get(), "0000:10:05.5"));
    EXPECT_EQ(t->nnotes, 0);
}

TEST(Pci, SriovFunctionsKnowTheirParent)
{
    Topo t = load(server8x8(false, true));
    int pf = pvn_topo_find_pci(t.get(), "0000:16:00.0");

    ASSERT_GE(pf, 0);
    EXPECT_EQ(t->pci[pf].physfn, -1);
    EXPECT_EQ(t->pci[pf].total_vfs, 16);
    EXPECT_EQ(t->pci[pf].num_vfs, 4);
    EXPECT_EQ(fn(t, "16:00.3").physfn, pf);
    EXPECT_EQ(fn(t, "16:00.3").total_vfs, PVN_TOPO_UNKNOWN);
}

TEST(Pci, KindsByPlaceInTwoSwitchLevels)
{
    Topo t = load(server8x8(false, false));

    EXPECT_EQ(fn(t, "10:01.0").kind, PVN_TOPO_PCI_ROOT_PORT);
    EXPECT_EQ(fn(t, "11:00.0").kind, PVN_TOPO_PCI_SWITCH_UP);
    EXPECT_EQ(fn(t, "12:00.0").kind, PVN_TOPO_PCI_SWITCH_DOWN);
    EXPECT_EQ(fn(t, "13:00.0").kind, PVN_TOPO_PCI_SWITCH_UP);
    EXPECT_EQ(fn(t, "14:04.0").kind, PVN_TOPO_PCI_SWITCH_DOWN);
    EXPECT_EQ(fn(t, "15:00.0").kind, PVN_TOPO_PCI_ENDPOINT);
    EXPECT_EQ(fn(t, "15:00.0").depth, 5);
    EXPECT_EQ(t->ngpus, 8);
    EXPECT_EQ(t->nrdmas, 8);
}

TEST(Pci, ConfigSpaceDecidesTheKind)
{
    Tree tree;
    Pci b = Pci::bridge();
    Config c;

    c.port_type = 7; // PCIe-to-PCI bridge, though nothing but a bridge is below
    b.config = c.build();
    std::string port = tree.pci("pci0000:00", "0000:00:1c.0", Pci::bridge());
    std::string up = tree.pci(port, "0000:01:00.0", b);
    tree.pci(up, "0000:02:00.0", Pci::bridge());
    Topo t = load(tree);

    EXPECT_EQ(fn(t, "01:00.0").kind, PVN_TOPO_PCI_BRIDGE);
    EXPECT_TRUE(fn(t, "01:00.0").kind_from_config);
    EXPECT_FALSE(fn(t, "00:1c.0").kind_from_config);
}

TEST(Pci, BridgeWithDevicesBelowIsNoSwitch)
{
    Tree tree;
    std::string port = tree.pci("pci0000:00", "0000:00:1c.0", Pci::bridge());
    std::string bmc = tree.pci(port, "0000:01:00.0", Pci::bridge(0x1a03, 0x1150));
    Pci vga;

    vga.cls = 0x030000;
    vga.vendor = 0x1a03;
    tree.pci(bmc, "0000:02:00.0", vga);
    Topo t = load(tree);

    EXPECT_EQ(fn(t, "01:00.0").kind, PVN_TOPO_PCI_BRIDGE);
    EXPECT_EQ(t->ngpus, 0) << "a management controller's display is no GPU";
}

// ---- config space

struct Bytes {
    std::string data;
    size_t readable;
};

static ssize_t read_bytes(void *ctx, size_t at, void *buf, size_t len)
{
    const Bytes *b = static_cast<Bytes *>(ctx);
    size_t end = std::min(b->readable, b->data.size());
    size_t n = at < end ? std::min(len, end - at) : 0;

    memcpy(buf, b->data.data() + (n > 0 ? at : 0), n);
    return (ssize_t)n;
}

static pvn_topo_pci_config decode(const std::string &data, size_t readable, bool *damaged = nullptr)
{
    Bytes b = {data, readable};
    pvn_topo_config_source src = {read_bytes, &b};
    pvn_topo_pci_config c = {};
    bool d;

    pvn_topo_decode_config(&c, &src, &d);
    if (damaged != nullptr) {
        *damaged = d;
    }
    return c;
}

TEST(ConfigSpace, DecodesExpressAcsAtsAndSerial)
{
    Config c;

    c.port_type = 6;
    c.mps_code = 1;
    c.mps_max_code = 2;
    c.mrrs_code = 5;
    c.speed_code = 5;
    c.width = 8;
    c.acs = c.ats = c.ats_enabled = c.dsn = true;
    c.acs_cap = 0x5f;
    c.acs_ctl = PVN_TOPO_ACS_SV | PVN_TOPO_ACS_RR | PVN_TOPO_ACS_CR | PVN_TOPO_ACS_UF;
    c.serial = 0x0123456789abcdef;
    pvn_topo_pci_config d = decode(c.build(), 4096);

    EXPECT_EQ(d.bytes, 4096);
    EXPECT_EQ(d.pcie, PVN_TOPO_CAP_PRESENT);
    EXPECT_EQ(d.port_type, 6);
    EXPECT_EQ(d.mps, 256);
    EXPECT_EQ(d.mps_max, 512);
    EXPECT_EQ(d.mrrs, 4096);
    EXPECT_TRUE(d.relaxed_ordering);
    EXPECT_EQ(d.lnk_speed_mts, 32000);
    EXPECT_EQ(d.lnk_width, 8);
    EXPECT_EQ(d.acs, PVN_TOPO_CAP_PRESENT);
    EXPECT_EQ(d.acs_cap, 0x5f);
    EXPECT_EQ(d.acs_ctl, 0x1d);
    EXPECT_EQ(d.ats, PVN_TOPO_CAP_PRESENT);
    EXPECT_TRUE(d.ats_enabled);
    EXPECT_EQ(d.dsn, PVN_TOPO_CAP_PRESENT);
    EXPECT_EQ(d.serial, 0x0123456789abcdefu);
}

TEST(ConfigSpace, WithoutRootIsNotAbsent)
{
    Config c;

    c.acs = true;
    pvn_topo_pci_config d = decode(c.build(), 64);
    EXPECT_EQ(d.bytes, 64);
    EXPECT_EQ(d.pcie, PVN_TOPO_CAP_NOT_READABLE);
    EXPECT_EQ(d.acs, PVN_TOPO_CAP_NOT_READABLE);
    EXPECT_EQ(d.ats, PVN_TOPO_CAP_NOT_READABLE);

    d = decode(c.build(), 256);
    EXPECT_EQ(d.pcie, PVN_TOPO_CAP_PRESENT);
    EXPECT_EQ(d.bytes, 256);
    EXPECT_EQ(d.acs, PVN_TOPO_CAP_NOT_READABLE);

    d = decode(c.build(), 4096);
    EXPECT_EQ(d.acs, PVN_TOPO_CAP_PRESENT);
    EXPECT_EQ(d.ats, PVN_TOPO_CAP_ABSENT);

    std::string none = c.build();
    none[6] = 0; // no capability list at all: the first 64 bytes say so
    d = decode(none, 64);
    EXPECT_EQ(d.pcie, PVN_TOPO_CAP_ABSENT);
    EXPECT_EQ(d.acs, PVN_TOPO_CAP_ABSENT);

    EXPECT_EQ(decode(c.build(), 40).acs, PVN_TOPO_CAP_UNKNOWN);
    EXPECT_EQ(decode("", 0).bytes, 0);
}

TEST(ConfigSpace, ExtendedSpaceBehindABridgeThatHidesIt)
{
    std::string s = Config().build();

    memset(&s[256], 0xff, 4096 - 256);
    EXPECT_EQ(decode(s, 4096).acs, PVN_TOPO_CAP_NOT_READABLE);
    EXPECT_TRUE(decode(std::string(4096, '\xff'), 4096).all_ones);
}

TEST(ConfigSpace, ALoopOfCapabilitiesEnds)
{
    Config c;
    bool damaged;

    c.acs = true;
    std::string s = c.build();
    s[0x51] = 0x50; // first capability points at itself
    pvn_topo_pci_config d = decode(s, 4096, &damaged);
    EXPECT_TRUE(damaged);
    EXPECT_EQ(d.pcie, PVN_TOPO_CAP_UNKNOWN);

    s = c.build();
    s[0x51] = 0x20; // into the header
    decode(s, 4096, &damaged);
    EXPECT_TRUE(damaged);

    s = c.build();
    s[0x102] = 0x01;
    s[0x103] = 0x10; // ACS at 0x100 points at 0x100
    d = decode(s, 4096, &damaged);
    EXPECT_TRUE(damaged);
    EXPECT_EQ(d.acs, PVN_TOPO_CAP_PRESENT) << "what was found before the loop stays";
    EXPECT_EQ(d.ats, PVN_TOPO_CAP_UNKNOWN);
}

TEST(ConfigSpace, EveryByteValueIsSurvived)
{
    std::string s = Config().build();

    for (size_t at : {0x06, 0x34, 0x50, 0x51, 0x60, 0x61, 0x62, 0x100, 0x101, 0x102, 0x103}) {
        for (int v = 0; v < 256; v++) {
            std::string m = s;

            m[at] = (char)v;
            pvn_topo_pci_config d = decode(m, 4096);
            EXPECT_LE(d.bytes, 4096);
        }
    }
}

// ---- interfaces and RDMA

TEST(Net, KindsAndLinksAreRead)
{
    Tree tree;

    tree.lists();
    std::string port = tree.pci("pci0000:17", "0000:17:00.0", Pci::bridge());
    std::string nic = tree.pci(port, "0000:18:00.0", Pci::nic());
    Pci virtio;

    tree.net("eth0", nic, {{"mtu", "9000"}, {"speed", "100000"}, {"address", "02:00:00:00:00:01"}});
    tree.net("eth1", nic,
             {{"dev_port", "1"}, {"speed", "-1"}, {"operstate", "down"}, {"carrier", ""}});
    tree.net("lo", "", {{"type", "772"}});
    tree.net("bond0", "", {{"uevent", "INTERFACE=bond0\nDEVTYPE=bond"}});
    tree.link("/sys/devices/" + nic + "/net/eth0/master", "../../../../../virtual/net/bond0");
    tree.net("eth0.100", "", {{"uevent", "DEVTYPE=vlan"}});
    tree.link("/sys/devices/virtual/net/eth0.100/lower_eth0", "/sys/class/net/eth0");
    tree.net("tap0", "", {{"tun_flags", "0x1002"}});
    tree.net("veth0", "");
    tree.net("team0", "");
    tree.link("/sys/devices/" + nic + "/net/eth1/master", "../../../../../virtual/net/team0");
    tree.net("ib0", nic, {{"type", "32"}});
    virtio.vendor = 0x1af4;
    std::string v = tree.pci("pci0000:00", "0000:00:03.0", virtio);
    tree.link("/sys/class/net/ens3", "../../devices/" + v + "/virtio2/net/ens3");
    tree.file("/sys/devices/" + v + "/virtio2/net/ens3/type", "1\n");
    tree.link("/sys/devices/" + v + "/virtio2/net/ens3/device", "../../../virtio2");
    tree.file("/sys/devices/" + v + "/virtio2/status", "0x0000000f\n");
    tree.link("/sys/devices/" + v + "/virtio2/driver", "/sys/bus/virtio/drivers/virtio_net");
    tree.file("/sys/class/net/bonding_masters", "bond0\n");
    tree.link("/sys/class/net/gone", "../../devices/virtual/net/gone");
    Topo t = load(tree);
    auto net = [&](const char *name) -> const pvn_topo_net & {
        int i = pvn_topo_find_net(t.get(), name);
        EXPECT_GE(i, 0) << name;
        return t->nets[i >= 0 ? i : 0];
    };

    EXPECT_EQ(t->nnets, 10);
    EXPECT_EQ(net("eth0").kind, PVN_TOPO_NET_ETHERNET);
    EXPECT_EQ(net("eth0").mtu, 9000);
    EXPECT_EQ(net("eth0").speed_mbps, 100000);
    EXPECT_EQ(net("eth0").pci, pvn_topo_find_pci(t.get(), "18:00.0"));
    EXPECT_STREQ(net("eth0").driver, "mlx5_core");
    EXPECT_EQ(net("eth0").master, pvn_topo_find_net(t.get(), "bond0"));
    EXPECT_EQ(net("eth1").speed_mbps, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(net("eth1").carrier, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(net("eth1").dev_port, 1);
    EXPECT_EQ(net("lo").kind, PVN_TOPO_NET_LOOPBACK);
    EXPECT_EQ(net("lo").pci, -1);
    EXPECT_EQ(net("bond0").kind, PVN_TOPO_NET_BOND);
    EXPECT_EQ(net("eth0.100").kind, PVN_TOPO_NET_VLAN);
    EXPECT_EQ(net("eth0.100").lower, pvn_topo_find_net(t.get(), "eth0"));
    EXPECT_EQ(net("tap0").kind, PVN_TOPO_NET_TUNNEL);
    EXPECT_EQ(net("veth0").kind, PVN_TOPO_NET_VIRTUAL);
    EXPECT_EQ(net("team0").kind, PVN_TOPO_NET_TEAM);
    EXPECT_EQ(net("ib0").kind, PVN_TOPO_NET_IPOIB);
    EXPECT_EQ(net("ens3").kind, PVN_TOPO_NET_ETHERNET);
    EXPECT_EQ(net("ens3").pci, pvn_topo_find_pci(t.get(), "00:03.0"));
    EXPECT_STREQ(net("ens3").driver, "virtio_net");
    ASSERT_EQ(t->nnotes, 1);
    EXPECT_NE(strstr(t->notes[0].where, "/sys/class/net/gone"), nullptr);
}

TEST(Rdma, PortsAndGidsAreRead)
{
    Tree tree;

    tree.lists();
    std::string port = tree.pci("pci0000:17", "0000:17:00.0", Pci::bridge());
    std::string nic = tree.pci(port, "0000:18:00.0", Pci::nic());

    tree.net("eth0", nic, {{"mtu", "9000"}});
    tree.net("eth0.7", "", {{"uevent", "DEVTYPE=vlan"}});
    tree.rdma("mlx5_0", nic, "Ethernet",
              {{0, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "IB/RoCE v1", "eth0.7"},
               {1, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "RoCE v2", "eth0"},
               {2, "0000:0000:0000:0000:0000:0000:0000:0000", "", ""},
               {10, "0000:0000:0000:0000:0000:ffff:c0a8:0101", "RoCE v2", "eth0"},
               {11, "not a gid", "RoCE v2", "eth0"}});
    Topo t = load(tree);

    ASSERT_EQ(t->nrdmas, 1);
    const pvn_topo_rdma &d = t->rdmas[0];
    EXPECT_EQ(d.kind, PVN_TOPO_RDMA_HW);
    EXPECT_STREQ(d.node_type, "CA");
    EXPECT_STREQ(d.driver, "mlx5_core");
    EXPECT_EQ(d.pci, pvn_topo_find_pci(t.get(), "18:00.0"));
    ASSERT_EQ(d.nports, 1);
    const pvn_topo_rdma_port &p = d.ports[0];
    EXPECT_EQ(p.num, 1);
    EXPECT_EQ(p.state, 4);
    EXPECT_STREQ(p.state_text, "ACTIVE");
    EXPECT_EQ(p.rate_mbps, 100000);
    EXPECT_EQ(p.layer, PVN_TOPO_LINK_ETHERNET);
    EXPECT_EQ(p.active_mtu, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(p.netdev, pvn_topo_find_net(t.get(), "eth0")) << "the device, not its VLAN";
    ASSERT_EQ(p.ngids, 3);
    EXPECT_EQ(p.gid_table_len, 12);
    EXPECT_EQ(p.gids[0].type, PVN_TOPO_GID_ROCE_V1);
    EXPECT_EQ(p.gids[1].type, PVN_TOPO_GID_ROCE_V2);
    EXPECT_EQ(p.gids[2].index, 10);
    EXPECT_EQ(p.gids[2].raw[12], 0xc0);
    EXPECT_STREQ(p.gids[2].ndev, "eth0");
    EXPECT_EQ(t->nnotes, 1);

    Topo without = load(tree, PVN_TOPO_NO_GIDS);
    EXPECT_EQ(without->rdmas[0].ports[0].ngids, 0);
    EXPECT_EQ(without->rdmas[0].ports[0].netdev, 0) << "then by the function";
}

// In a container a GID may name an interface of the host, and the container may have another one of that name.
TEST(Rdma, AGidsInterfaceOfAnotherFunctionIsNotThePorts)
{
    const std::string gid = "0000:0000:0000:0000:0000:ffff:c0a8:0101";
    Tree tree;
    std::string nic = tree.pci("pci0000:00", "0000:01:00.0", Pci::nic()),
                other = tree.pci("pci0000:00", "0000:02:00.0", Pci());
    tree.net("eth0", other);
    tree.rdma("mlx5_0", nic, "Ethernet", {{0, gid, "RoCE v2", "eth0"}});
    Topo t = load(tree);
    ASSERT_EQ(t->nrdmas, 1);
    EXPECT_EQ(t->rdmas[0].ports[0].netdev, -1);

    // A second function of an ordinary adapter is another port.
    tree.net("eth1", tree.pci("pci0000:00", "0000:01:00.1", Pci::nic()));
    tree.rdma("mlx5_0", nic, "Ethernet", {{0, gid, "RoCE v2", "eth1"}});
    t = load(tree);
    EXPECT_EQ(t->rdmas[0].ports[0].netdev, -1);

    tree.net("eth2", nic);
    t = load(tree);
    EXPECT_EQ(t->rdmas[0].ports[0].netdev, pvn_topo_find_net(t.get(), "eth2")) << "by function";
    tree.rdma("mlx5_0", nic, "Ethernet", {{0, gid, "RoCE v2", "eth2"}});
    t = load(tree);
    EXPECT_EQ(t->rdmas[0].ports[0].netdev, pvn_topo_find_net(t.get(), "eth2"));
}

TEST(Rdma, SoftDevicesHaveAParentInterface)
{
    Tree tree;

    tree.net("veth0", "");
    tree.rdma("rxe0", "", "Ethernet", {});
    tree.file("/sys/devices/virtual/infiniband/rxe0/parent", "veth0\n");
    tree.file("/sys/bus/pci/devices/.keep", "");
    Topo t = load(tree);

    ASSERT_EQ(t->nrdmas, 1);
    EXPECT_EQ(t->rdmas[0].kind, PVN_TOPO_RDMA_SOFT);
    EXPECT_EQ(t->rdmas[0].pci, -1);
    EXPECT_EQ(t->rdmas[0].ports[0].netdev, pvn_topo_find_net(t.get(), "veth0"));
}

TEST(Rdma, RatesOfAllShapes)
{
    struct {
        const char *text;
        int mbps;
    } cases[] = {{"2.5 Gb/sec (1X SDR)", 2500},      {"400 Gb/sec (4X NDR)", 400000},
                 {"nan Gb/sec", PVN_TOPO_UNKNOWN},   {"-5 Gb/sec", PVN_TOPO_UNKNOWN},
                 {"1e300 Gb/sec", PVN_TOPO_UNKNOWN}, {"", PVN_TOPO_UNKNOWN},
                 {"100", PVN_TOPO_UNKNOWN}};

    for (const auto &c : cases) {
        Tree tree;
        std::string nic = tree.pci("pci0000:17", "0000:17:00.0", Pci::nic());

        tree.rdma("mlx5_0", nic, "InfiniBand", {}, "4: ACTIVE", c.text);
        EXPECT_EQ(load(tree)->rdmas[0].ports[0].rate_mbps, c.mbps) << c.text;
    }
}

// ---- guest, system

TEST(Guest, AVmwareGuestWithPvrdmaIsRead)
{
    Topo t = load(vmware_guest({}));

    EXPECT_EQ(t->guest.hypervisor, PVN_TOPO_HV_VMWARE);
    EXPECT_TRUE(pvn_topo_is_guest(t.get()));
    EXPECT_EQ(t->ngpus, 2);
    ASSERT_EQ(t->npvrdma, 2);
    EXPECT_STREQ(t->pvrdma[0].problem, "");
    EXPECT_EQ(t->pvrdma[0].vmxnet3, pvn_topo_find_pci(t.get(), "0b:00.0"));
    EXPECT_EQ(t->pvrdma[0].netdev, pvn_topo_find_net(t.get(), "ens192"));
    EXPECT_EQ(t->pvrdma[0].rdma, pvn_topo_find_rdma(t.get(), "vmw_pvrdma0"));
    EXPECT_EQ(t->rdmas[0].kind, PVN_TOPO_RDMA_PVRDMA);
    EXPECT_EQ(fn(t, "00:15.0").kind, PVN_TOPO_PCI_ROOT_PORT);
    EXPECT_EQ(fn(t, "00:01.0").kind, PVN_TOPO_PCI_BRIDGE) << "the AGP bridge has no link files";
    EXPECT_EQ(fn(t, "00:11.0").kind, PVN_TOPO_PCI_BRIDGE);
    EXPECT_EQ(fn(t, "00:00.0").kind, PVN_TOPO_PCI_HOST_BRIDGE);
    EXPECT_EQ(t->nvidia.loaded, PVN_TOPO_TRI_YES);
    EXPECT_EQ(t->nvidia.open_modules, PVN_TOPO_TRI_YES);
    EXPECT_STREQ(t->nvidia.version, "535.104.05");
    EXPECT_EQ(t->nvidia.peermem, PVN_TOPO_TRI_NO);
    EXPECT_STREQ(t->kernel, "5.15.0-91-generic");
    EXPECT_STREQ(t->cmdline, "iommu=pt");
    EXPECT_TRUE(t->memlock_known);
    EXPECT_EQ(t->memlock_soft, 65536u);
    EXPECT_EQ(t->nnotes, 0);
}

TEST(Guest, PvrdmaPairsThatAreNotComplete)
{
    GuestVariant v;

    v.vmxnet3 = false;
    Topo t = load(vmware_guest(v));
    ASSERT_EQ(t->npvrdma, 2);
    EXPECT_EQ(t->pvrdma[0].vmxnet3, -1);
    EXPECT_NE(strstr(t->pvrdma[0].problem, "no vmxnet3"), nullptr) << t->pvrdma[0].problem;

    v.vmxnet3 = true;
    v.rdma_bound = false;
    t = load(vmware_guest(v));
    EXPECT_NE(strstr(t->pvrdma[0].problem, "no RDMA device"), nullptr) << t->pvrdma[0].problem;

    Tree tree = vmware_guest({});
    tree.remove("/sys/class/net/ens192");
    t = load(tree);
    EXPECT_NE(strstr(t->pvrdma[0].problem, "has no interface"), nullptr) << t->pvrdma[0].problem;
    EXPECT_STREQ(t->pvrdma[1].problem, "");
}

struct HvCase {
    const char *vendor, *product;
    int flag; // 0 no, 1 yes, -1 no /proc/cpuinfo
    pvn_topo_hypervisor want;
};

TEST(Guest, HypervisorsByDmiAndCpu)
{
    const HvCase cases[] = {
        {"VMware, Inc.", "VMware Virtual Platform", 1, PVN_TOPO_HV_VMWARE},
        {"VMware, Inc.", "VMware7,1", 0, PVN_TOPO_HV_VMWARE}, // hypervisor.cpuid.v0 = FALSE
        {"QEMU", "Standard PC (Q35 + ICH9, 2009)", 1, PVN_TOPO_HV_KVM},
        {"Red Hat", "KVM", 1, PVN_TOPO_HV_KVM},
        {"Microsoft Corporation", "Virtual Machine", 1, PVN_TOPO_HV_HYPERV},
        {"Microsoft Corporation", "Surface", 0, PVN_TOPO_HV_NONE},
        {"Amazon EC2", "p4d.24xlarge", 1, PVN_TOPO_HV_NITRO},
        {"Amazon EC2", "g4dn.metal", 0, PVN_TOPO_HV_NONE},
        {"Google", "Google Compute Engine", 1, PVN_TOPO_HV_GOOGLE},
        {"Google", "Google Compute Engine", 0, PVN_TOPO_HV_NONE}, // rented whole
        {"Google", "Google Compute Engine", -1, PVN_TOPO_HV_GOOGLE},
        {"Alibaba Cloud", "Alibaba Cloud ECS", 1, PVN_TOPO_HV_KVM},
        {"Alibaba Cloud", "Alibaba Cloud ECS", 0, PVN_TOPO_HV_NONE},
        {"Xen", "HVM domU", 1, PVN_TOPO_HV_XEN},
        {"innotek GmbH", "VirtualBox", 1, PVN_TOPO_HV_OTHER},
        {"Dell Inc.", "PowerEdge XE9680", 0, PVN_TOPO_HV_NONE},
        {"Dell Inc.", "PowerEdge XE9680", -1, PVN_TOPO_HV_NONE},
        {"", "", 1, PVN_TOPO_HV_OTHER},
        {"", "", 0, PVN_TOPO_HV_NONE},
        {"", "", -1, PVN_TOPO_HV_UNKNOWN},
    };

    for (const HvCase &c : cases) {
        Tree tree;

        tree.file("/sys/bus/pci/devices/.keep", "");
        if (c.vendor[0] != '\0') {
            tree.dmi(c.vendor, c.product);
        }
        if (c.flag >= 0) {
            tree.cpus("GenuineIntel", 6, 143, c.flag == 1);
        }
        Topo t = load(tree);
        EXPECT_EQ(t->guest.hypervisor, c.want)
            << c.vendor << "/" << c.product << " flag " << c.flag << ": " << t->guest.evidence;
    }
}

TEST(Guest, AGuestIsKnownByItsDevicesAlone)
{
    Tree tree = vmware_guest({});

    tree.remove("/sys/class/dmi");
    tree.remove("/sys/devices/virtual/dmi");
    tree.remove("/proc/cpuinfo");
    Topo t = load(tree);
    EXPECT_EQ(t->guest.hypervisor, PVN_TOPO_HV_VMWARE) << t->guest.evidence;

    Tree dpu; // a SmartNIC's virtio function on bare metal
    Pci virtio;
    virtio.vendor = 0x1af4;
    dpu.pci("pci0000:17", "0000:17:00.0", virtio);
    dpu.cpus("AuthenticAMD", 25, 17, false);
    EXPECT_EQ(load(dpu)->guest.hypervisor, PVN_TOPO_HV_NONE);

    // Processors without that bit (arm64): DMI's maker decides, unless there are QEMU's own devices.
    dpu.remove("/proc/cpuinfo");
    EXPECT_EQ(load(dpu)->guest.hypervisor, PVN_TOPO_HV_KVM);
    dpu.dmi("Supermicro", "ARS-221GL-NR");
    EXPECT_EQ(load(dpu)->guest.hypervisor, PVN_TOPO_HV_NONE);
    dpu.pci("pci0000:17", "0000:17:01.0", Pci::bridge(0x1b36, 0x000c));
    EXPECT_EQ(load(dpu)->guest.hypervisor, PVN_TOPO_HV_KVM);
}

TEST(System, CpusAndNodesAreRead)
{
    Topo t = load(server8x8(false, false));

    EXPECT_EQ(t->cpu.arch, PVN_TOPO_ARCH_X86_64);
    EXPECT_STREQ(t->cpu.vendor, "GenuineIntel");
    EXPECT_EQ(t->cpu.family, 6);
    EXPECT_EQ(t->cpu.model, 143);
    EXPECT_EQ(t->cpu.sockets, 2);
    EXPECT_EQ(t->cpu.logical, 8);
    ASSERT_EQ(t->nnumas, 2);
    EXPECT_STREQ(t->numas[1].cpumap, "00f0");
    EXPECT_TRUE(t->numas[1].has_cpus);
    ASSERT_EQ(t->numas[0].ndistance, 2);
    EXPECT_EQ(t->numas[0].distance[1], 21);
    EXPECT_EQ(t->roots[0].numa, 0);
    EXPECT_EQ(t->roots[t->nroots - 1].numa, 1);
    EXPECT_EQ(t->nvidia.peermem, PVN_TOPO_TRI_YES);
    EXPECT_STREQ(t->nvidia.peermem_version, "550.54.15");
    EXPECT_FALSE(t->memlock_known);
}

TEST(System, MemoryOnlyNodesAndSparseIds)
{
    Tree tree;

    tree.numa(0, "000f", "0-3", "10 40 80");
    tree.numa(8, "00f0", "4-7", "40 10 80");
    tree.numa(252, "0000", "", "80 80 10");
    Topo t = load(tree);

    ASSERT_EQ(t->nnumas, 3);
    EXPECT_EQ(t->numas[2].id, 252);
    EXPECT_FALSE(t->numas[2].has_cpus);
    EXPECT_EQ(pvn_topo_find_numa(t.get(), 8), 1);
}

TEST(System, ArmAndPowerAreKnown)
{
    Tree arm, power;

    arm.file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n");
    power.file("/proc/cpuinfo", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n");
    EXPECT_EQ(load(arm)->cpu.arch, PVN_TOPO_ARCH_ARM64);
    EXPECT_STREQ(load(arm)->cpu.vendor, "ARM");
    EXPECT_EQ(load(power)->cpu.arch, PVN_TOPO_ARCH_PPC64);
    EXPECT_EQ(load(power)->cpu.family, PVN_TOPO_UNKNOWN);
}

TEST(Links, SpeedAndWidthGiveTheBandwidth)
{
    EXPECT_EQ(pvn_topo_link_mbytes(2500, 1), 250);
    EXPECT_EQ(pvn_topo_link_mbytes(5000, 32), 16000);
    EXPECT_EQ(pvn_topo_link_mbytes(16000, 16), 31520);
    EXPECT_EQ(pvn_topo_link_mbytes(16000, PVN_TOPO_UNKNOWN), PVN_TOPO_UNKNOWN);
    EXPECT_EQ(pvn_topo_link_mbytes(PVN_TOPO_UNKNOWN, 16), PVN_TOPO_UNKNOWN);
    EXPECT_EQ(pvn_topo_link_mbytes(7777, 16), PVN_TOPO_UNKNOWN);
    EXPECT_STREQ(pvn_topo_link_speed_name(64000), "64.0 GT/s PCIe");
    EXPECT_STREQ(pvn_topo_link_speed_name(PVN_TOPO_UNKNOWN), "unknown");
}

// Prints the time that loading takes at the plugin's start, so that a change is visible.
TEST(LoadTime, SixtyFourFunctionsAreLoaded)
{
    Tree tree = server8x8(false, true);
    TempDir dir;
    Config c;
    int functions = 0;

    c.acs = c.ats = c.dsn = true;
    tree.write_dir(dir.path);
    for (const auto &e : std::filesystem::directory_iterator(dir.path + "/sys/bus/pci/devices")) {
        std::string target = std::filesystem::canonical(e.path());

        std::ofstream(target + "/config", std::ios::binary) << c.build();
        if (++functions > 64) {
            std::filesystem::remove(e.path());
        }
    }
    for (unsigned flags : {0u, (unsigned)(PVN_TOPO_NO_CONFIG | PVN_TOPO_NO_GIDS)}) {
        pvn_topo_options options = {flags, nullptr};
        pvn_topo_err err = {""};
        pvn_topo *t = nullptr;
        auto start = std::chrono::steady_clock::now();
        clock_t cpu = clock();
        int rc = pvn_topo_load(dir.path.c_str(), &options, &t, &err);
        std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
        double cpu_ms = (double)(clock() - cpu) * 1000 / CLOCKS_PER_SEC;

        ASSERT_EQ(rc, 0) << err.text;
        EXPECT_GE(t->npci, 64);
        printf("loaded %d PCI functions, %d RDMA devices %s config space and GIDs in %.1f ms "
               "(%.1f ms of CPU)\n",
               t->npci, t->nrdmas, flags == 0 ? "with" : "without", ms.count(), cpu_ms);
        pvn_topo_free(t);
    }
}
