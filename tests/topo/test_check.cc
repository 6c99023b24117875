// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests every row of pvn-topo check: the conditions for OK, WARN, FAIL and UNKNOWN.
#include "tests/topo/tree.h"

#include <cstring>

#include <gtest/gtest.h>

class Checks
{
  public:
    explicit Checks(const Topo &t)
    {
        EXPECT_EQ(pvn_topo_run_checks(t.get(), nullptr, 0, &rows), 0);
        for (int i = 0; i < rows.n; i++) {
            // Each FAIL has a remedy.
            if (rows.rows[i].level == PVN_TOPO_LEVEL_FAIL) {
                EXPECT_STRNE(rows.rows[i].remedy, "")
                    << rows.rows[i].id << ": " << rows.rows[i].text;
            }
            if (rows.rows[i].level == PVN_TOPO_LEVEL_OK) {
                EXPECT_STREQ(rows.rows[i].remedy, "") << rows.rows[i].id;
            }
            EXPECT_STRNE(rows.rows[i].text, "");
            EXPECT_LT(strlen(rows.rows[i].text), sizeof rows.rows[i].text - 1) << "cut off";
            EXPECT_LT(strlen(rows.rows[i].remedy), sizeof rows.rows[i].remedy - 1) << "cut off";
        }
    }
    ~Checks()
    {
        pvn_topo_checks_free(&rows);
    }
    // The first row with this id whose subject contains the text, or NULL.
    const pvn_topo_check *find(const char *id, const char *subject = "") const
    {
        for (int i = 0; i < rows.n; i++) {
            if (strcmp(rows.rows[i].id, id) == 0 &&
                strstr(rows.rows[i].subject, subject) != nullptr) {
                return &rows.rows[i];
            }
        }
        return nullptr;
    }
    void expect(const char *id, const char *subject, pvn_topo_level level, const char *text) const
    {
        const pvn_topo_check *c = find(id, subject);

        ASSERT_NE(c, nullptr) << "no row " << id << " for " << subject;
        EXPECT_EQ(c->level, level) << id << " " << subject << ": " << c->text;
        EXPECT_NE(strstr(c->text, text), nullptr) << c->text;
    }

    pvn_topo_checks rows;
};

// A server with a GPU and a NIC below one switch. The tests change any field of each one's config space.
struct Server {
    Config gpu, nic, port, up, down;
    std::string group_type = "identity";
    std::string nic_speed = "16.0 GT/s PCIe", nic_width = "16", gpu_speed = "16.0 GT/s PCIe";
    std::string gpu_numa = "0", nic_numa = "0";
    bool config = true;

    Server()
    {
        port.port_type = 4;
        up.port_type = 5;
        down.port_type = 6;
        down.acs = true;
    }
    Tree tree() const
    {
        Tree t;
        auto with = [&](Pci p, const Config &c) {
            p.config = config ? c.build() : "";
            return p;
        };
        std::string rp = t.pci("pci0000:17", "0000:17:00.0", with(Pci::bridge(), port));
        std::string sw = t.pci(rp, "0000:18:00.0", with(Pci::bridge(0x1000, 0xc010), up));
        std::string d0 = t.pci(sw, "0000:19:00.0", with(Pci::bridge(0x1000, 0xc010), down));
        std::string d1 = t.pci(sw, "0000:19:04.0", with(Pci::bridge(0x1000, 0xc010), down));
        Pci g = with(Pci::gpu().with_numa(gpu_numa), gpu),
            n = with(Pci::nic().with_numa(nic_numa), nic);

        g.speed = gpu_speed;
        n.speed = nic_speed;
        n.width = nic_width;
        g.group = 10;
        n.group = 11;
        t.pci(d0, "0000:1a:00.0", g);
        std::string np = t.pci(d1, "0000:1b:00.0", n);
        t.net("eth0", np, {{"mtu", "9000"}});
        t.rdma("mlx5_0", np, "Ethernet",
               {{0, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "IB/RoCE v1", "eth0"},
                {1, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "RoCE v2", "eth0"},
                {2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "eth0"},
                {3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0"}});
        if (!group_type.empty()) {
            t.file("/sys/kernel/iommu_groups/10/type", group_type + "\n");
            t.file("/sys/kernel/iommu_groups/11/type", group_type + "\n");
        }
        t.numa(0, "000f", "0-3", "10 21");
        t.numa(1, "00f0", "4-7", "21 10");
        t.cpus("AuthenticAMD", 25, 17, false);
        t.module("nvidia", "550.54.15");
        t.file("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n");
        t.file("/proc/version", "Linux version 5.15.0-91-generic (build@host)\n");
        t.file("/proc/self/limits",
               "Limit  Soft Limit  Hard Limit  Units\n"
               "Max open files            1048576              1048576     files\n"
               "Max locked memory         unlimited            unlimited   bytes\n");
        return t;
    }
    Topo topo() const
    {
        return load(tree());
    }
};

TEST(Check, AHealthyServerHasNothingToReport)
{
    Checks c{Server().topo()};

    c.expect("guest", "machine", PVN_TOPO_LEVEL_OK, "bare metal");
    c.expect("link", "1a:00.0", PVN_TOPO_LEVEL_OK, "16.0 GT/s PCIe x16");
    c.expect("link", "1b:00.0", PVN_TOPO_LEVEL_OK, "x16");
    c.expect("link", "18:00.0", PVN_TOPO_LEVEL_OK, "x16");
    EXPECT_EQ(c.find("link", "19:00.0"), nullptr) << "a downstream port's link is its device's";
    c.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_OK, "no port between them");
    c.expect("iommu", "mlx5_0", PVN_TOPO_LEVEL_OK, "the IOMMU passes addresses through");
    c.expect("ats", "mlx5_0", PVN_TOPO_LEVEL_OK, "not needed");
    c.expect("relaxed-ordering", "mlx5_0", PVN_TOPO_LEVEL_OK, "DevCtl");
    c.expect("numa", "1a:00.0", PVN_TOPO_LEVEL_OK, "NUMA node 0");
    c.expect("port", "mlx5_0 port 1", PVN_TOPO_LEVEL_OK, "100 Gb/sec");
    c.expect("gid", "mlx5_0 port 1", PVN_TOPO_LEVEL_OK, "index 3: IPv4 10.0.0.1, RoCE v2, eth0");
    c.expect("mtu", "mlx5_0 port 1", PVN_TOPO_LEVEL_OK, "4096");
    c.expect("memlock", "process", PVN_TOPO_LEVEL_OK, "not limited");
    c.expect("nvidia-driver", "", PVN_TOPO_LEVEL_OK, "550.54.15");
    EXPECT_EQ(c.find("pvrdma"), nullptr);
}

TEST(Check, ANarrowOrSlowLinkIsAWarning)
{
    Server s;

    s.nic_width = "8";
    s.gpu_speed = "2.5 GT/s PCIe";
    Checks narrow{s.topo()};
    narrow.expect("link", "1b:00.0", PVN_TOPO_LEVEL_WARN, "x8 of x16");
    narrow.expect("link", "1a:00.0", PVN_TOPO_LEVEL_OK, "lowers its speed while idle");

    s.nic_width = "16";
    s.nic_speed = "8.0 GT/s PCIe";
    Checks slow{s.topo()};
    slow.expect("link", "1b:00.0", PVN_TOPO_LEVEL_WARN, "8.0 GT/s PCIe of 16.0 GT/s PCIe");

    s.nic_width = "0";
    Checks down{s.topo()};
    down.expect("link", "1b:00.0", PVN_TOPO_LEVEL_WARN, "down");

    Tree t = s.tree();
    t.remove("/sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:04.0/0000:1b:00.0/"
             "current_link_width");
    Checks unknown{load(t)};
    unknown.expect("link", "1b:00.0", PVN_TOPO_LEVEL_UNKNOWN, "present speed and width");
}

TEST(Check, SlotOfALowerGenerationIsNoFault)
{
    Server s;
    Tree t = s.tree();
    std::string base = "/sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:04.0/";

    t.file(base + "max_link_speed", "8.0 GT/s PCIe\n");
    t.file(base + "0000:1b:00.0/current_link_speed", "8.0 GT/s PCIe\n");
    Checks c{load(t)};
    c.expect("link", "1b:00.0", PVN_TOPO_LEVEL_OK, "8.0 GT/s PCIe x16, the most both ends can");
}

TEST(Check, ARedirectedPeerPathIsAWarning)
{
    Server s;

    s.down.acs_cap = 0x5f;
    s.down.acs_ctl = PVN_TOPO_ACS_SV | PVN_TOPO_ACS_RR | PVN_TOPO_ACS_CR | PVN_TOPO_ACS_UF;
    Checks on{s.topo()};
    on.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_WARN, "0000:19:00.0 redirects peer traffic");

    s.down.acs_ctl |= PVN_TOPO_ACS_DT;
    s.nic.ats = s.nic.ats_enabled = true;
    Checks direct{s.topo()};
    direct.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_OK, "translated ones (ATS) go straight");

    s.nic.ats_enabled = false;
    Checks no_ats{s.topo()};
    no_ats.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_WARN, "redirects");

    s.down.acs_ctl = PVN_TOPO_ACS_SV;
    Checks only_sv{s.topo()};
    only_sv.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_OK, "no port between them");

    s.down.bytes = s.nic.bytes = s.gpu.bytes = 64;
    Checks user{s.topo()};
    user.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "not readable without root");
    user.expect("relaxed-ordering", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "not readable without root");

    s.down.bytes = 256;
    Checks standard{s.topo()};
    standard.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN,
                    "extended config space is not reachable");

    s.config = false;
    Checks none{s.topo()};
    none.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "no config space");
}

TEST(Check, AcsOfTheRootPortDoesNotMatterBelowASwitch)
{
    Server s;

    s.port.acs = true;
    s.port.acs_ctl = PVN_TOPO_ACS_RR | PVN_TOPO_ACS_CR;
    Checks c{s.topo()};
    c.expect("acs", "mlx5_0", PVN_TOPO_LEVEL_OK, "no port between them");
}

TEST(Check, AnIommuThatTranslatesAndAtsAreReported)
{
    Server s;

    s.group_type = "DMA-FQ";
    Checks on{s.topo()};
    on.expect("iommu", "mlx5_0", PVN_TOPO_LEVEL_WARN, "translates for 0000:1b:00.0");
    on.expect("ats", "mlx5_0", PVN_TOPO_LEVEL_WARN, "not offered");

    s.nic.ats = true;
    Checks off{s.topo()};
    off.expect("ats", "mlx5_0", PVN_TOPO_LEVEL_WARN, "off for 0000:1b:00.0");

    s.nic.ats_enabled = true;
    Checks ats{s.topo()};
    ats.expect("ats", "mlx5_0", PVN_TOPO_LEVEL_OK, "on for");

    s.nic.bytes = 64;
    Checks user{s.topo()};
    user.expect("ats", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "not readable without root");

    s.group_type = "";
    Checks old_kernel{s.topo()};
    old_kernel.expect("iommu", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "not shown");

    s.nic = Config();
    Checks unsure{s.topo()};
    unsure.expect("ats", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "depends on the IOMMU");

    Tree t = s.tree();
    t.file("/proc/cmdline", "quiet intel_iommu=on iommu=pt\n");
    Checks pt{load(t)};
    pt.expect("iommu", "mlx5_0", PVN_TOPO_LEVEL_OK, "");
}

TEST(Check, RelaxedOrderingAndPayload)
{
    Server s;

    s.nic.relaxed = false;
    s.up.mps_code = 0;
    Checks c{s.topo()};
    c.expect("relaxed-ordering", "mlx5_0", PVN_TOPO_LEVEL_WARN, "DevCtl bit 4 is off");
    c.expect("payload", "mlx5_0", PVN_TOPO_LEVEL_WARN,
             "128 bytes, but all on the path support 512");

    Server full;
    for (Config *k : {&full.gpu, &full.nic, &full.up, &full.down}) {
        k->mps_code = 2;
    }
    Checks ok{full.topo()};
    ok.expect("payload", "mlx5_0", PVN_TOPO_LEVEL_OK, "512 bytes");
    full.config = false;
    Checks unknown{full.topo()};
    unknown.expect("payload", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "cannot be read");
}

TEST(Check, VirtualFunctionsGoByTheirPhysicalOne)
{
    Server s;
    Tree t = s.tree();
    Config zero;
    Pci vf = Pci::nic();

    zero.relaxed = false;
    zero.mps_code = zero.mrrs_code = 0;
    vf.config = zero.build();
    std::string port = "pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:04.0";
    std::string path = t.pci(port, "0000:1b:00.1", vf);
    t.link("/sys/devices/" + path + "/physfn", "../0000:1b:00.0");
    t.rdma("mlx5_vf", path, "Ethernet", {});
    Topo topo = load(t);
    Checks c{topo};
    c.expect("relaxed-ordering", "mlx5_vf", PVN_TOPO_LEVEL_OK, "allowed to 0000:1b:00.0");
    EXPECT_EQ(c.find("link", "1b:00.1"), nullptr);

    pvn_topo_check_pair pair = {topo->gpus[0].pci, pvn_topo_find_pci(topo.get(), "1b:00.1")};
    pvn_topo_checks rows;
    ASSERT_EQ(pvn_topo_run_checks(topo.get(), &pair, 1, &rows), 0);
    for (int i = 0; i < rows.n; i++) {
        if (strcmp(rows.rows[i].id, "payload") == 0) {
            EXPECT_NE(strstr(rows.rows[i].text, "max payload size 256 bytes"), nullptr)
                << rows.rows[i].text;
        }
    }
    pvn_topo_checks_free(&rows);

    s.nic.relaxed = false;
    Tree guest = s.tree();
    guest.dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)");
    Checks in_guest{load(guest)};
    in_guest.expect("relaxed-ordering", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN,
                    "the host's setting counts");
}

TEST(Check, UnknownAndDistantNodesAreWarnings)
{
    Server s;

    s.nic_numa = "-1";
    Checks mixed{s.topo()};
    mixed.expect("numa", "0000:1b:00.0", PVN_TOPO_LEVEL_WARN, "-1 on a machine of 2 nodes");
    mixed.expect("numa", "mlx5_0", PVN_TOPO_LEVEL_WARN, "devices of two CPUs");

    s.nic_numa = "1";
    Checks far{s.topo()};
    far.expect("numa", "mlx5_0", PVN_TOPO_LEVEL_WARN, "NIC is on NUMA node 1, the GPU on node 0");

    s.nic_numa = "7";
    Checks none{s.topo()};
    none.expect("numa", "0000:1b:00.0", PVN_TOPO_LEVEL_WARN, "no such node");

    s.nic_numa = "";
    Checks missing{s.topo()};
    missing.expect("numa", "0000:1b:00.0", PVN_TOPO_LEVEL_UNKNOWN, "not shown");

    Tree t = s.tree();
    t.remove("/sys/devices/system/node/node1");
    Checks single{load(t)};
    single.expect("numa", "0000:1a:00.0", PVN_TOPO_LEVEL_OK, "NUMA node 0");
}

static pvn_topo_rdma_port port_with(std::vector<pvn_topo_gid> &gids,
                                    pvn_topo_link_layer layer = PVN_TOPO_LINK_ETHERNET)
{
    pvn_topo_rdma_port p = {};

    p.layer = layer;
    p.gids = gids.data();
    p.ngids = (int)gids.size();
    p.gid_table_len = 16;
    return p;
}

static pvn_topo_gid gid(int index, const char *kind, pvn_topo_gid_type type)
{
    pvn_topo_gid g = {};

    g.index = index;
    g.type = type;
    if (strcmp(kind, "v4") == 0) {
        memcpy(g.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1", 16);
    } else if (strcmp(kind, "ll") == 0) {
        memcpy(g.raw, "\xfe\x80\0\0\0\0\0\0\2\2\xc9\xff\xfe\0\0\1", 16);
    } else {
        memcpy(g.raw, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1", 16);
    }
    return g;
}

TEST(Gid, TheGidIsTheOneThatNcclTakes)
{
    struct {
        std::vector<pvn_topo_gid> gids;
        int index;
        bool usable;
    } cases[] = {
        {{gid(0, "ll", PVN_TOPO_GID_ROCE_V1), gid(1, "ll", PVN_TOPO_GID_ROCE_V2),
          gid(2, "v4", PVN_TOPO_GID_ROCE_V1), gid(3, "v4", PVN_TOPO_GID_ROCE_V2)},
         3,
         true},
        {{gid(0, "ll", PVN_TOPO_GID_ROCE_V1), gid(1, "ll", PVN_TOPO_GID_ROCE_V2)}, 0, false},
        {{gid(0, "v4", PVN_TOPO_GID_ROCE_V2)}, 0, true}, // NCCL#1131: only 0 works
        {{gid(0, "v4", PVN_TOPO_GID_ROCE_V1), gid(1, "v4", PVN_TOPO_GID_ROCE_V2)}, 1, true},
        {{gid(0, "ll", PVN_TOPO_GID_ROCE_V1), gid(2, "v4", PVN_TOPO_GID_ROCE_V1)},
         2,
         false}, // v1 only
        {{gid(0, "v6", PVN_TOPO_GID_ROCE_V2), gid(1, "ll", PVN_TOPO_GID_ROCE_V2)}, 0, true},
        {{gid(1, "v6", PVN_TOPO_GID_ROCE_V2)}, 0, false}, // uccl#803: index 0 is empty
        {{gid(0, "ll", PVN_TOPO_GID_ROCE_V2), gid(5, "v4", PVN_TOPO_GID_ROCE_V2),
          gid(9, "v4", PVN_TOPO_GID_ROCE_V2)},
         5,
         true},
        {{}, -1, false},
    };

    for (auto &c : cases) {
        pvn_topo_rdma_port p = port_with(c.gids);
        char why[256];
        bool usable = !c.usable;

        EXPECT_EQ(pvn_topo_gid_pick(&p, &usable, why, sizeof why), c.index) << why;
        EXPECT_EQ(usable, c.usable) << why;
    }
    std::vector<pvn_topo_gid> ib = {gid(0, "ll", PVN_TOPO_GID_IB)};
    pvn_topo_rdma_port p = port_with(ib, PVN_TOPO_LINK_INFINIBAND);
    char why[256];
    bool usable = false;
    EXPECT_EQ(pvn_topo_gid_pick(&p, &usable, why, sizeof why), 0);
    EXPECT_TRUE(usable);
}

TEST(Check, APortWithoutARoutableGidFails)
{
    Server s;
    Tree t = s.tree();
    std::string gids =
        "/sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:04.0/0000:1b:00.0/"
        "infiniband/mlx5_0/ports/1/gids/";

    t.remove(gids + "2");
    t.remove(gids + "3");
    Checks c{load(t)};
    c.expect("gid", "mlx5_0", PVN_TOPO_LEVEL_FAIL, "link-local");

    t = s.tree();
    t.remove(gids + "3");
    Checks v1{load(t)};
    v1.expect("gid", "mlx5_0", PVN_TOPO_LEVEL_WARN, "RoCE v1");

    Checks unread{load(s.tree(), PVN_TOPO_NO_GIDS)};
    unread.expect("gid", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "not read");
}

TEST(Check, APortThatIsDownAndASmallMtuAreReported)
{
    Server s;
    Tree t = s.tree();
    std::string nic =
        "/sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:04.0/0000:1b:00.0/";

    t.file(nic + "infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    t.file(nic + "net/eth0/mtu", "1500\n");
    Checks c{load(t)};
    c.expect("port", "mlx5_0", PVN_TOPO_LEVEL_WARN, "DOWN (LinkUp)");
    c.expect("mtu", "mlx5_0", PVN_TOPO_LEVEL_WARN, "RDMA MTU 1024 because eth0 has MTU 1500");
    EXPECT_EQ(c.find("gid"), nullptr);

    for (int mtu : {4191, 4192}) {
        t.file(nic + "net/eth0/mtu", std::to_string(mtu) + "\n");
        Checks edge{load(t)};
        edge.expect("mtu", "mlx5_0", mtu == 4192 ? PVN_TOPO_LEVEL_OK : PVN_TOPO_LEVEL_WARN, "");
    }

    t.remove(nic + "net/eth0/mtu");
    Checks none{load(t)};
    none.expect("mtu", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "not shown");

    Topo stale = load(s.tree());
    stale->rdmas[0].ports[0].active_mtu = 1024;
    Checks differ{stale};
    differ.expect("mtu", "mlx5_0", PVN_TOPO_LEVEL_WARN, "RDMA MTU 1024, but eth0 has MTU 9000");
}

TEST(Check, ALowMemlockFailsWhereThereIsRdma)
{
    Server s;
    Tree t = s.tree();
    auto limits = [&](const char *soft) {
        t.file("/proc/self/limits",
               std::string("Max locked memory  ") + soft + "  unlimited  bytes\n");
    };

    limits("65536");
    Checks small{load(t)};
    small.expect("memlock", "process", PVN_TOPO_LEVEL_FAIL, "64 KiB (hard limit unlimited)");
    limits("17179869184");
    Checks large{load(t)};
    large.expect("memlock", "process", PVN_TOPO_LEVEL_WARN, "16777216 KiB");
    t.remove("/proc/self/limits");
    Checks unknown{load(t)};
    unknown.expect("memlock", "process", PVN_TOPO_LEVEL_UNKNOWN, "not shown");
    t.remove("/sys/class/infiniband");
    limits("65536");
    Checks hidden{load(t)};
    hidden.expect("memlock", "process", PVN_TOPO_LEVEL_UNKNOWN, "if there is some is not known");
    for (const std::string &dir : t.dirs()) {
        if (dir.size() > 11 && dir.compare(dir.size() - 11, 11, "/infiniband") == 0) {
            t.remove(dir);
        }
    }
    Checks no_rdma{load(t)};
    no_rdma.expect("memlock", "process", PVN_TOPO_LEVEL_OK, "matters only for RDMA");
}

TEST(Check, FewOpenFilesAreAWarning)
{
    Server s;
    Tree t = s.tree();
    auto limits = [&](const char *soft) {
        t.file("/proc/self/limits",
               std::string("Max open files  ") + soft + "  unlimited  files\n");
    };

    limits("1024");
    Checks usual{load(t)};
    usual.expect("open-files", "process", PVN_TOPO_LEVEL_OK,
                 "1024 open files, for some 256 connections");
    limits("512");
    Checks small{load(t)};
    small.expect("open-files", "process", PVN_TOPO_LEVEL_WARN, "some 85 connections");
    limits("64");
    Checks none{load(t)};
    none.expect("open-files", "process", PVN_TOPO_LEVEL_WARN,
                "64 open files are too few for a training process");
    limits("unlimited");
    Checks all{load(t)};
    all.expect("open-files", "process", PVN_TOPO_LEVEL_OK, "not limited");
    t.remove("/proc/self/limits");
    Checks unknown{load(t)};
    unknown.expect("open-files", "process", PVN_TOPO_LEVEL_UNKNOWN, "not shown");
}

TEST(Check, NvidiaAndGpuDirect)
{
    Server s;
    Tree t = s.tree();

    Checks closed{load(t)};
    closed.expect("gpudirect", "mlx5_0", PVN_TOPO_LEVEL_WARN,
                  "dma-buf needs the open kernel modules");

    t.file("/proc/driver/nvidia/version",
           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release\n");
    Checks open{load(t)};
    open.expect("gpudirect", "mlx5_0", PVN_TOPO_LEVEL_OK, "dma-buf should work");

    t.file("/proc/version", "Linux version 4.18.0-553.el8_10.x86_64 (mockbuild@host)\n");
    Checks old{load(t)};
    old.expect("gpudirect", "mlx5_0", PVN_TOPO_LEVEL_WARN, "Linux 5.12 or later");

    t.module("nvidia_peermem", "550.54.15");
    Checks peermem{load(t)};
    peermem.expect("gpudirect", "mlx5_0", PVN_TOPO_LEVEL_OK, "nvidia_peermem 550.54.15 is loaded");

    t.remove("/sys/module/nvidia");
    t.remove("/proc/driver");
    Checks missing{load(t)};
    missing.expect("nvidia-driver", "nvidia", PVN_TOPO_LEVEL_FAIL, "not loaded");

    t.remove("/sys/module");
    Checks unknown{load(t)};
    unknown.expect("nvidia-driver", "nvidia", PVN_TOPO_LEVEL_UNKNOWN, "can be seen");
    unknown.expect("gpudirect", "mlx5_0", PVN_TOPO_LEVEL_UNKNOWN, "not known");
}

TEST(Check, AVmwareGuestIsSeenWithItsPairs)
{
    Checks c{load(vmware_guest({}))};

    c.expect("guest", "machine", PVN_TOPO_LEVEL_WARN, "guest of VMware");
    c.expect("pvrdma", "vmw_pvrdma0", PVN_TOPO_LEVEL_OK,
             "paired with vmxnet3 0000:0b:00.0 (ens192)");
    c.expect("gpudirect", "vmw_pvrdma0", PVN_TOPO_LEVEL_WARN, "host memory only");
    for (const char *id : {"acs", "iommu", "ats"})
        c.expect(id, "0000:03:00.0", PVN_TOPO_LEVEL_OK, "paravirtual");
    c.expect("memlock", "process", PVN_TOPO_LEVEL_FAIL, "64 KiB");
    c.expect("gid", "vmw_pvrdma0", PVN_TOPO_LEVEL_OK, "index 1");
    c.expect("numa", "0000:03:00.0", PVN_TOPO_LEVEL_OK, "one NUMA node");
    EXPECT_EQ(c.find("relaxed-ordering"), nullptr);

    GuestVariant v;
    v.vmxnet3 = false;
    Checks broken{load(vmware_guest(v))};
    broken.expect("pvrdma", "0000:0b:00.1", PVN_TOPO_LEVEL_FAIL, "no vmxnet3");

    v = {};
    v.rdma_bound = false;
    Checks unbound{load(vmware_guest(v))};
    unbound.expect("pvrdma", "0000:0b:00.1", PVN_TOPO_LEVEL_FAIL,
                   "no RDMA device (driver not bound)");

    Tree no_gpu = vmware_guest({});
    no_gpu.remove("/sys/bus/pci/devices/0000:03:00.0");
    no_gpu.remove("/sys/bus/pci/devices/0000:1b:00.0");
    Checks plain{load(no_gpu)};
    plain.expect("guest", "machine", PVN_TOPO_LEVEL_OK, "no GPU whose place would matter");

    v = {};
    v.two_nodes = true;
    v.gpu_numa = "-1";
    Checks vnuma{load(vmware_guest(v))};
    vnuma.expect("numa", "0000:1b:00.0", PVN_TOPO_LEVEL_OK, "NUMA node 1");
}

TEST(Check, GivenPairsAndJunkIndexes)
{
    Topo t = load(server8x8(false, false));
    pvn_topo_check_pair pairs[] = {{t->gpus[0].pci, t->rdmas[7].pci}, {-5, 3}, {99999, 0}};
    pvn_topo_checks rows;

    ASSERT_EQ(pvn_topo_run_checks(t.get(), pairs, 3, &rows), 0);
    int acs = 0;
    for (int i = 0; i < rows.n; i++) {
        acs += strcmp(rows.rows[i].id, "acs") == 0;
    }
    EXPECT_EQ(acs, 1);
    pvn_topo_checks_free(&rows);
    EXPECT_EQ(rows.n, 0);
}
