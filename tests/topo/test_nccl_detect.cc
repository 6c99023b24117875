// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the document that NCCL makes of a machine (the walk over parents, the attributes, the order) on machines that
// are made up for it.
#include "tests/topo/nccl_file.h"
#include "tests/topo/tree.h"

#include <algorithm>
#include <cstdio>

#include "topo/nccl/nccl_detect.h"
#include "topo/nccl/report.h"

namespace
{

struct Detected {
    Topo topo;
    pvn_topo_nics nics = {};
    pvn_topo_ndoc *file = nullptr;
    pvn_topo_pairs *pairs = nullptr;
    char why[256] = "";

    explicit Detected(const Tree &tree, pvn_topo_nic_choice choice = PVN_TOPO_NICS_AUTO,
                      const std::string &xml = "", const Env &vars = {})
        : topo(load(tree))
    {
        pvn_topo_xml_error err;
        pvn_topo_nccl_env env = nccl_env(vars);
        if (topo == nullptr)
            return;
        EXPECT_EQ(0, pvn_topo_nics_find(topo.get(), choice, &nics));
        if (!xml.empty()) {
            EXPECT_EQ(0, pvn_topo_nccl_xml_parse(xml.data(), xml.size(), &file, &err)) << err.text;
        }
        EXPECT_EQ(0, pvn_topo_pairs_new(topo.get(), &nics, file, &env, &pairs, why, sizeof why))
            << why;
    }
    ~Detected()
    {
        pvn_topo_pairs_free(pairs);
        pvn_topo_ndoc_free(file);
        pvn_topo_nics_free(&nics);
    }
    Detected(const Detected &) = delete;
    Detected &operator=(const Detected &) = delete;

    std::string type(int gpu, int net) const
    {
        return pvn_topo_npath_name(pvn_topo_ntree_gpu_net(pairs->tree, gpu, net)->type);
    }
    // The structure of the document, as "cpu 0(pci A(pci B(gpu)))".
    std::string shape() const
    {
        return shape(pvn_topo_ndoc_find(pairs->doc, "system", nullptr, nullptr));
    }
    const char *attr(const char *busid, const char *key) const
    {
        const pvn_topo_ndoc_node *node = pvn_topo_ndoc_find(pairs->doc, "pci", "busid", busid);
        return node ? pvn_topo_ndoc_get(node, key) : nullptr;
    }

  private:
    static std::string shape(const pvn_topo_ndoc_node *node)
    {
        std::string text;
        for (int i = 0; i < node->n_subs; i++) {
            const pvn_topo_ndoc_node *sub = node->subs[i];
            const char *key = pvn_topo_ndoc_get(sub, pvn_topo_ndoc_is(sub, "cpu")   ? "numaid"
                                                     : pvn_topo_ndoc_is(sub, "pci") ? "busid"
                                                                                    : "name");
            std::string inner = shape(sub);
            text += (text.empty() ? "" : " ") + std::string(sub->name) +
                    (key ? std::string(" ") + key : "") + (inner.empty() ? "" : "(" + inner + ")");
        }
        return text;
    }
};

Tree one_gpu_one_nic(const std::string &gpu_above, const std::string &nic_above)
{
    Tree t;
    std::string nic = t.pci(nic_above, "0000:02:00.0", Pci::nic());
    t.pci(gpu_above, "0000:01:00.0", Pci::gpu());
    t.rdma("mlx5_0", nic, "InfiniBand", {});
    t.numa(0, "ff", "0-7", "10");
    t.cpus("AuthenticAMD", 25, 1, false);
    return t;
}

TEST(Walk, RootPortsDoNotShow)
{
    Tree t;
    std::string port1 = t.pci("pci0000:00", "0000:00:01.0", Pci::bridge());
    std::string port2 = t.pci("pci0000:00", "0000:00:02.0", Pci::bridge());
    t.pci(port1, "0000:01:00.0", Pci::gpu());
    t.rdma("mlx5_0", t.pci(port2, "0000:02:00.0", Pci::nic()), "InfiniBand", {});
    EXPECT_EQ("cpu 0(pci 0000:01:00.0(gpu) pci 0000:02:00.0(nic(net mlx5_0)))",
              Detected(t).shape());
}

TEST(Walk, ASwitchIsItsUpstreamPort)
{
    Tree t;
    std::string port = t.pci("pci0000:00", "0000:00:01.0", Pci::bridge());
    std::vector<std::string> sw = t.pcie_switch(port, "0000:10:00.0", 0x11, 2, Pci::bridge());
    t.pci(sw[1], "0000:12:00.0", Pci::gpu());
    t.rdma("mlx5_0", t.pci(sw[2], "0000:13:00.0", Pci::nic()), "InfiniBand", {});
    Detected m(t);
    EXPECT_EQ("cpu 0(pci 0000:10:00.0(pci 0000:12:00.0(gpu) pci 0000:13:00.0(nic(net mlx5_0))))",
              m.shape());
    EXPECT_EQ("PIX", m.type(0, 0));
}

TEST(Walk, ADeviceOnTheRootBusHangsOnTheCpu)
{
    EXPECT_EQ("cpu 0(pci 0000:01:00.0(gpu) pci 0000:02:00.0(nic(net mlx5_0)))",
              Detected(one_gpu_one_nic("pci0000:00", "pci0000:00")).shape());
}

TEST(Walk, IwarpIsLeftOutAsByThePlugin)
{
    Tree t = one_gpu_one_nic("pci0000:00", "pci0000:00");
    t.rdma("siw_lo", "", "Ethernet", {});
    t.file("/sys/devices/virtual/infiniband/siw_lo/node_type", "4: RNIC\n");
    EXPECT_EQ(1, Detected(t).nics.n);
    t.file("/sys/devices/virtual/infiniband/siw_lo/node_type", "1: CA\n");
    EXPECT_EQ(2, Detected(t).nics.n);
}

TEST(Walk, AnOddBridgeShiftsThePattern)
{
    // Root port, one PCI-to-PCI bridge, switch: the walk lands on the downstream port and the
    // bridge.
    Tree t;
    std::string port = t.pci("pci0000:00", "0000:00:01.0", Pci::bridge());
    std::string odd = t.pci(port, "0000:08:00.0", Pci::bridge());
    std::vector<std::string> sw = t.pcie_switch(odd, "0000:10:00.0", 0x11, 2, Pci::bridge());
    t.pci(sw[1], "0000:12:00.0", Pci::gpu());
    t.rdma("mlx5_0", t.pci(sw[2], "0000:13:00.0", Pci::nic()), "InfiniBand", {});
    Detected m(t);
    // 12:00.0 -> two up is 10:00.0 -> two up is 00:01.0 on the root bus, a bridge this time.
    EXPECT_EQ(
        "cpu 0(pci 0000:00:01.0(pci 0000:10:00.0(pci 0000:12:00.0(gpu) pci 0000:13:00.0(nic(net "
        "mlx5_0)))))",
        m.shape());
}

TEST(Walk, TheTopmostVisitedDeviceDecidesTheNode)
{
    Tree t;
    std::string port = t.pci("pci0000:00", "0000:00:01.0", Pci::bridge().with_numa("0"));
    std::vector<std::string> sw =
        t.pcie_switch(port, "0000:10:00.0", 0x11, 1, Pci::bridge().with_numa("1"));
    t.pci(sw[1], "0000:12:00.0", Pci::gpu().with_numa("0"));
    EXPECT_EQ("cpu 1(pci 0000:10:00.0(pci 0000:12:00.0(gpu)))", Detected(t).shape());
}

TEST(Walk, TwoTextsAreTwoCpus)
{
    Tree t;
    t.pci(t.pci("pci0000:00", "0000:00:01.0", Pci::bridge()), "0000:01:00.0",
          Pci::gpu().with_numa("0"));
    t.rdma("mlx5_0",
           t.pci(t.pci("pci0000:00", "0000:00:02.0", Pci::bridge()), "0000:02:00.0",
                 Pci::nic().with_numa("-1")),
           "InfiniBand", {});
    Detected m(t);
    EXPECT_EQ("cpu 0(pci 0000:01:00.0(gpu)) cpu -1(pci 0000:02:00.0(nic(net mlx5_0)))", m.shape());
    EXPECT_EQ("SYS", m.type(0, 0));
}

TEST(Walk, AFiveDigitDomainCannotBePlaced)
{
    Tree t;
    t.pci(t.pci("pci0000:00", "0000:00:01.0", Pci::bridge()), "0000:01:00.0", Pci::gpu());
    std::string vmd = t.pci("pci0000:00", "0000:00:05.5", Pci::bridge());
    std::string nic = t.pci(t.pci(vmd + "/pci10000:00", "10000:00:02.0", Pci::bridge()),
                            "10000:01:00.0", Pci::nic());
    t.rdma("mlx5_0", nic, "InfiniBand", {});
    Detected m(t);
    EXPECT_EQ("cpu 0(pci 0000:01:00.0(gpu)) cpu -1(pci 10000:01:00.0(nic(net mlx5_0)))", m.shape());
    ASSERT_EQ(1, m.nics.n);
    EXPECT_NE(nullptr, strstr(m.nics.list[0].path_note, "4-digit")) << m.nics.list[0].path_note;
}

TEST(Walk, ANetWithoutPciGoesToTheFirstCpu)
{
    Tree t;
    t.pci(t.pci("pci0000:00", "0000:00:01.0", Pci::bridge()), "0000:01:00.0",
          Pci::gpu().with_numa("1"));
    t.rdma("rxe0", "", "Ethernet", {});
    t.numa(0, "0f", "0-3", "10 20");
    t.numa(1, "f0", "4-7", "20 10");
    Detected m(t);
    EXPECT_EQ("cpu 1(pci 0000:01:00.0(gpu) nic(net rxe0))", m.shape());
    EXPECT_EQ(nullptr, m.nics.list[0].pci_path);
    EXPECT_NE(nullptr, strstr(m.nics.list[0].path_note, "first NUMA node"))
        << m.nics.list[0].path_note;
}

TEST(Attributes, ANicsLinkIsTheSmallerMaximumOfItAndItsPort)
{
    Tree t;
    std::string port =
        t.pci("pci0000:00", "0000:00:01.0", Pci::bridge().with_link("8.0 GT/s PCIe", "8"));
    Pci nic = Pci::nic().with_link("16.0 GT/s PCIe", "16");
    nic.speed = "2.5 GT/s PCIe"; // trained down: NCCL does not see it
    nic.width = "1";
    t.rdma("mlx5_0", t.pci(port, "0000:02:00.0", nic), "InfiniBand", {});
    Detected m(t);
    EXPECT_STREQ("8.0 GT/s PCIe", m.attr("0000:02:00.0", "link_speed"));
    EXPECT_STREQ("8", m.attr("0000:02:00.0", "link_width"));
}

TEST(Attributes, UnreadableWidthIsZeroAndSpeedIsTheOthers)
{
    Tree t;
    Pci port = Pci::bridge(), nic = Pci::nic();
    port.width_max = nic.speed_max = "";
    t.rdma("mlx5_0", t.pci(t.pci("pci0000:00", "0000:00:01.0", port), "0000:02:00.0", nic),
           "InfiniBand", {});
    Detected m(t);
    EXPECT_STREQ("16.0 GT/s PCIe", m.attr("0000:02:00.0", "link_speed"));
    EXPECT_STREQ("0", m.attr("0000:02:00.0", "link_width"));
}

// Virtual functions and paravirtual NICs have no link of their own, so the port's link counts.
TEST(Attributes, AnUnknownWidthIsTheKernels255AndSoThePorts)
{
    Tree t;
    std::string port =
        t.pci("pci0000:00", "0000:00:01.0", Pci::bridge().with_link("8.0 GT/s PCIe", "8"));
    t.rdma("mlx5_0", t.pci(port, "0000:02:00.1", Pci::nic().with_link("Unknown", "255")),
           "InfiniBand", {});
    Detected m(t);
    EXPECT_STREQ("8.0 GT/s PCIe", m.attr("0000:02:00.1", "link_speed"));
    EXPECT_STREQ("8", m.attr("0000:02:00.1", "link_width"));
    int vf = pvn_topo_find_pci(m.topo.get(), "0000:02:00.1");
    EXPECT_EQ(PVN_TOPO_UNKNOWN, m.topo->pci[vf].link.width_max);
}

TEST(Attributes, AGpuHasItsMaximumSpeedAndPresentWidth)
{
    Tree t;
    Pci gpu = Pci::gpu();
    gpu.speed = "2.5 GT/s PCIe"; // idle
    gpu.width = "8";
    t.pci(t.pci("pci0000:00", "0000:00:01.0", Pci::bridge()), "0000:01:00.0", gpu);
    Detected m(t);
    EXPECT_STREQ("16.0 GT/s PCIe", m.attr("0000:01:00.0", "link_speed"));
    EXPECT_STREQ("8", m.attr("0000:01:00.0", "link_width"));
}

TEST(Attributes, AGpuInASlowerSlotIsAsFastAsTheSlotAndPassthroughAsItself)
{
    Tree t;
    std::string port =
        t.pci("pci0000:00", "0000:00:01.0", Pci::bridge().with_link("8.0 GT/s PCIe", "16"));
    Pci idle = Pci::gpu(), passed = Pci::gpu();
    idle.speed = "2.5 GT/s PCIe";
    t.pci(port, "0000:01:00.0", idle);
    t.pci(port, "0000:01:01.0", passed); // 16.0 GT/s now, which such a port cannot do
    Detected m(t);
    EXPECT_STREQ("8.0 GT/s PCIe", m.attr("0000:01:00.0", "link_speed"));
    EXPECT_STREQ("16.0 GT/s PCIe", m.attr("0000:01:01.0", "link_speed"));
}

// The speed is NVML's answer in a running job, because the port's link is made up by the hypervisor.
TEST(Attributes, AnIdleGpuBelowAnEmulatedPortIsAsFastAsItself)
{
    auto speed = [](unsigned vendor, unsigned device, bool guest) {
        Tree t;
        Pci port = Pci::bridge(vendor, device).with_link("5.0 GT/s PCIe", "32"), idle = Pci::gpu();
        idle.speed = "2.5 GT/s PCIe";
        t.cpus("GenuineIntel", 6, 143, guest);
        t.pci(t.pci("pci0000:00", "0000:00:15.0", port), "0000:03:00.0", idle);
        return std::string(Detected(t).attr("0000:03:00.0", "link_speed"));
    };
    EXPECT_EQ("16.0 GT/s PCIe", speed(0x15ad, 0x07a0, true));
    EXPECT_EQ("16.0 GT/s PCIe", speed(0x15ad, 0x07a0, false))
        << "a capture without its CPU's flags";
    EXPECT_EQ("16.0 GT/s PCIe", speed(0x1b36, 0x000c, false));
    EXPECT_EQ("16.0 GT/s PCIe", speed(0x8086, 0x2030, true)) << "any port of a guest";
    EXPECT_EQ("5.0 GT/s PCIe", speed(0x8086, 0x2030, false)) << "a slow slot";
}

TEST(Attributes, IdsClassAndCpuAreWrittenAsNcclWritesThem)
{
    Detected m(one_gpu_one_nic("pci0000:00", "pci0000:00"));
    EXPECT_STREQ("0x030200", m.attr("0000:01:00.0", "class"));
    EXPECT_STREQ("0x10de", m.attr("0000:01:00.0", "vendor"));
    EXPECT_STREQ("0x20b2", m.attr("0000:01:00.0", "device"));
    const pvn_topo_ndoc_node *cpu = pvn_topo_ndoc_find(m.pairs->doc, "cpu", nullptr, nullptr);
    EXPECT_STREQ("ff", pvn_topo_ndoc_get(cpu, "affinity"));
    EXPECT_STREQ("x86_64", pvn_topo_ndoc_get(cpu, "arch"));
    EXPECT_STREQ("AuthenticAMD", pvn_topo_ndoc_get(cpu, "vendor"));
    EXPECT_STREQ("175", pvn_topo_ndoc_get(cpu, "familyid"))
        << "15 + (10 << 4), where the kernel says 25";
}

TEST(Attributes, BroadcomsSwitchLinksAreThoseOfSysfs)
{
    const std::string links = "/sys/kernel/pci_switch_link/virtual_switch_links/";
    for (unsigned maker : {0x1000u, 0x10b5u}) {
        Tree t;
        std::string one = t.pci("pci0000:00", "0000:00:01.0", Pci::bridge());
        std::string two = t.pci("pci0000:00", "0000:00:02.0", Pci::bridge());
        Pci port = Pci::bridge(maker, 0xc030);
        t.pci(t.pcie_switch(one, "0000:10:00.0", 0x11, 1, port)[1], "0000:12:00.0", Pci::gpu());
        t.rdma(
            "mlx5_0",
            t.pci(t.pcie_switch(two, "0000:20:00.0", 0x21, 1, port)[1], "0000:22:00.0", Pci::nic()),
            "InfiniBand", {});
        t.file(links + "0000:10:00.0/0000:20:00.0", "");
        t.file(links + "0000:10:00.0/0000:99:00.0", "");
        t.file(links + "0000:20:00.0/0000:10:00.0", "");
        Detected m(t);
        EXPECT_EQ(maker == 0x1000 ? "PXB" : "PHB", m.type(0, 0));
        EXPECT_STREQ("", m.pairs->note);
    }
}

TEST(File, GivenAttributesWinExceptTheClass)
{
    Detected m(
        one_gpu_one_nic("pci0000:00", "pci0000:00"), PVN_TOPO_NICS_AUTO,
        sys("<cpu numaid=\"3\"><pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"8.0 "
            "GT/s PCIe\" "
            "link_width=\"16\"><pci busid=\"0000:01:00.0\" class=\"0x020000\" link_width=\"4\"/>"
            "<pci busid=\"0000:02:00.0\"/></pci></cpu><cpu numaid=\"5\"><pci "
            "busid=\"0000:99:00.0\"/></cpu>"));
    EXPECT_EQ("cpu 3(pci ffff:ff:01.0(pci 0000:01:00.0(gpu) pci 0000:02:00.0(nic(net mlx5_0))))",
              m.shape())
        << "what the job does not use is cut off";
    EXPECT_STREQ("0x030200", m.attr("0000:01:00.0", "class"));
    EXPECT_STREQ("4", m.attr("0000:01:00.0", "link_width"));
    EXPECT_EQ("PIX", m.type(0, 0));
}

// Files that cloud providers install have bus ids alone.
TEST(File, WhatItLeavesOutOfCpusAndBridgesIsFilledIn)
{
    Tree t;
    std::string port = t.pci("pci0000:00", "0000:00:01.0", Pci::bridge());
    std::vector<std::string> sw =
        t.pcie_switch(port, "0000:10:00.0", 0x11, 2, Pci::bridge().with_link("8.0 GT/s PCIe", "8"));
    t.pci(sw[1], "0000:12:00.0", Pci::gpu());
    t.rdma("mlx5_0", t.pci(sw[2], "0000:13:00.0", Pci::nic()), "InfiniBand", {});
    t.rdma("mlx5_1", t.pci("pci0000:80", "0000:81:00.0", Pci::nic()), "InfiniBand", {});
    t.numa(0, "0f", "0-3", "10 20");
    t.numa(1, "f0", "4-7", "20 10");
    t.cpus("GenuineIntel", 6, 143, false);
    Detected m(t, PVN_TOPO_NICS_AUTO,
               sys("<cpu numaid=\"0\"><pci busid=\"0000:10:00.0\"><pci busid=\"0000:12:00.0\"/>"
                   "<pci busid=\"0000:13:00.0\"/></pci></cpu>"
                   "<cpu numaid=\"1\"><pci busid=\"0000:81:00.0\"/></cpu>"));
    EXPECT_STREQ("0x060400", m.attr("0000:10:00.0", "class"));
    EXPECT_STREQ("8.0 GT/s PCIe", m.attr("0000:10:00.0", "link_speed"));
    EXPECT_STREQ("8", m.attr("0000:10:00.0", "link_width"));
    EXPECT_EQ("PIX", m.type(0, 0));
    EXPECT_EQ("SYS", m.type(0, 1));
    const pvn_topo_ndoc_node *cpu = pvn_topo_ndoc_find(m.pairs->doc, "cpu", "numaid", "1");
    EXPECT_STREQ("f0", pvn_topo_ndoc_get(cpu, "affinity"));
    EXPECT_STREQ("143", pvn_topo_ndoc_get(cpu, "modelid"));
    EXPECT_FLOAT_EQ(22, m.pairs->tree->nodes[m.pairs->tree->cpus[1]].cpu.inter_bw);
}

TEST(File, GpusAndNetsThatOnlyTheFileKnowsAreCutOff)
{
    Detected m(
        one_gpu_one_nic("pci0000:00", "pci0000:00"), PVN_TOPO_NICS_AUTO,
        sys("<cpu numaid=\"0\"><pci busid=\"0000:01:00.0\"><gpu dev=\"6\" sm=\"90\"/></pci>"
            "<pci busid=\"0000:55:00.0\" class=\"0x020000\"><nic><net name=\"other\" dev=\"-7\"/>"
            "</nic></pci><pci busid=\"0000:66:00.0\" class=\"0x030000\"><gpu dev=\"1\" rank=\"1\"/>"
            "</pci></cpu>"));
    EXPECT_EQ("cpu 0(pci 0000:01:00.0(gpu) pci 0000:02:00.0(nic(net mlx5_0)))", m.shape());
    const pvn_topo_nnode &gpu = m.pairs->tree->nodes[m.pairs->tree->gpus[0]];
    EXPECT_EQ(6, gpu.gpu.dev) << "the file's";
    EXPECT_STREQ("0", pvn_topo_ndoc_get(gpu.doc, "rank")) << "the job's";
}

TEST(File, ANetOfTheSameNameIsUsedWhereItStands)
{
    Detected m(one_gpu_one_nic("pci0000:00", "pci0000:00"), PVN_TOPO_NICS_AUTO,
               sys("<cpu numaid=\"0\"><pci busid=\"0000:55:00.0\" class=\"0x020000\"><nic><net "
                   "name=\"mlx5_0\" "
                   "speed=\"5000\" dev=\"9\"/></nic></pci></cpu>"));
    EXPECT_EQ("cpu 0(pci 0000:01:00.0(gpu) pci 0000:55:00.0(nic(net mlx5_0)))", m.shape());
    EXPECT_EQ(5000, m.pairs->tree->nodes[m.pairs->tree->nets[0]].net.speed) << "the file's speed";
    EXPECT_EQ(0, m.pairs->tree->nodes[m.pairs->tree->nets[0]].net.dev) << "the plugin's number";
}

TEST(Order, FirstGpuAndAllNicsAreSortedLaterGpusFollow)
{
    Tree t;
    std::string bus = "pci0000:00";
    for (const char *bdf : {"0000:01:00.0", "0000:04:00.0", "0000:06:00.0"})
        t.pci(bus, bdf, Pci::gpu());
    t.rdma("b", t.pci(bus, "0000:05:00.0", Pci::nic()), "InfiniBand", {});
    t.rdma("a", t.pci(bus, "0000:00:1f.0", Pci::nic()), "InfiniBand", {});
    EXPECT_EQ(
        "cpu 0(pci 0000:00:1f.0(nic(net a)) pci 0000:01:00.0(gpu) pci 0000:05:00.0(nic(net b)) "
        "pci 0000:04:00.0(gpu) pci 0000:06:00.0(gpu))",
        Detected(t).shape());
}

// CUDA numbers only GPUs on the driver nvidia, and NCCL uses these numbers.
TEST(Gpus, WhatIsForGuestsHasNoNumber)
{
    Tree t;
    std::string bus = "pci0000:00";
    t.pci(bus, "0000:01:00.0", Pci::gpu());
    for (const char *bdf : {"0000:01:00.4", "0000:01:00.5"})
        t.link("/sys/devices/" + t.pci(bus, bdf, Pci::gpu()) + "/physfn", "../0000:01:00.0");
    Pci passed = Pci::gpu();
    passed.driver = "vfio-pci";
    t.pci(bus, "0000:02:00.0", passed);
    t.pci(bus, "0000:03:00.0", Pci::gpu());
    {
        Detected m(t);
        EXPECT_EQ("cpu 0(pci 0000:01:00.0(gpu) pci 0000:03:00.0(gpu))", m.shape());
        EXPECT_EQ(1, m.pairs->tree->nodes[m.pairs->tree->gpus[1]].gpu.dev);
        EXPECT_STREQ("Left out: 2 virtual functions of GPUs, for guests. Left out: 1 GPU on the "
                     "driver vfio-pci.",
                     m.pairs->note);
    }
    // A host that gives all its GPUs to guests is still shown whole.
    t = Tree();
    t.pci(bus, "0000:02:00.0", passed);
    Detected m(t);
    EXPECT_EQ("cpu 0(pci 0000:02:00.0(gpu))", m.shape());
    EXPECT_STREQ("", m.pairs->note);
}

// The shape and the note of a machine with GPUs on the drivers ("": none). "0000:02:00.0" is the second one's.
std::string gpus_on(const std::vector<std::string> &drivers, const std::string &listed = "")
{
    Tree t;
    for (size_t i = 0; i < drivers.size(); i++) {
        Pci gpu = Pci::gpu();
        gpu.driver = drivers[i];
        t.pci("pci0000:00", "0000:0" + std::to_string(i + 1) + ":00.0", gpu);
    }
    if (!listed.empty())
        t.file("/proc/driver/nvidia/gpus/" + listed + "/information", "Model: H100\n");
    Detected m(t);
    return m.shape() + " " + m.pairs->note;
}

TEST(Gpus, WithoutADriverOrNotListedByItIsNotUsed)
{
    const std::string both = "cpu 0(pci 0000:01:00.0(gpu) pci 0000:02:00.0(gpu)) ",
                      second = "cpu 0(pci 0000:02:00.0(gpu)) Left out: 1 GPU ";
    EXPECT_EQ(both, gpus_on({"nvidia", "nvidia"}));
    EXPECT_EQ(both, gpus_on({"", ""})) << "as if the driver were loaded";
    EXPECT_EQ(second + "without a driver.", gpus_on({"", "nvidia"}));
    EXPECT_EQ(second + "not among the GPUs of the NVIDIA driver.",
              gpus_on({"nvidia", "nvidia"}, "0000:02:00.0"));
    EXPECT_EQ(second + "not among the GPUs of the NVIDIA driver.",
              gpus_on({"", ""}, "0000:02:00.0"));
    EXPECT_EQ(both, gpus_on({"nvidia", "nvidia"}, "0000:09:00.0")) << "lists none of them";
}

TEST(Nics, DevicesThatAreDownAreLeftOutUnlessAllAre)
{
    Tree t;
    t.rdma("up", t.pci("pci0000:00", "0000:01:00.0", Pci::nic()), "InfiniBand", {});
    t.rdma("down", t.pci("pci0000:00", "0000:02:00.0", Pci::nic()), "InfiniBand", {}, "1: DOWN");
    Detected m(t);
    ASSERT_EQ(1, m.nics.n);
    EXPECT_STREQ("up", m.nics.list[0].name);
    EXPECT_STREQ("down", m.nics.left_out);
    EXPECT_EQ(2, Detected(t, PVN_TOPO_NICS_ALL).nics.n);
    Tree d;
    d.rdma("down", d.pci("pci0000:00", "0000:02:00.0", Pci::nic()), "InfiniBand", {}, "1: DOWN");
    EXPECT_EQ(1, Detected(d).nics.n);
}

TEST(Nics, FallBackToInterfacesWithoutRdma)
{
    Tree t;
    t.net("eth0", t.pci("pci0000:00", "0000:01:00.0", Pci::nic()),
          {{"speed", "25000"}, {"address", "00:11:22:33:44:55"}});
    t.net("lo", "", {{"type", "772"}});
    t.net("veth1", "");
    Detected m(t);
    ASSERT_EQ(1, m.nics.n);
    EXPECT_STREQ("eth0", m.nics.list[0].name);
    EXPECT_EQ(25000, m.nics.list[0].speed_mbps);
    EXPECT_EQ(0x001122334455u, m.nics.list[0].guid);
    EXPECT_NE(nullptr, strstr(m.nics.list[0].pci_path, "0000:01:00.0"));
}

TEST(Nics, RailsFromTheUsersList)
{
    Tree t;
    t.rdma("a", t.pci("pci0000:00", "0000:01:00.0", Pci::nic()), "InfiniBand", {});
    t.rdma("b", t.pci("pci0000:00", "0000:02:00.0", Pci::nic()), "InfiniBand", {});
    Detected m(t);
    pvn_topo_err err;
    EXPECT_EQ(0, pvn_topo_nics_set_rails(&m.nics, "b=7,a=0", &err));
    EXPECT_EQ(0, m.nics.list[0].rail);
    EXPECT_EQ(7, m.nics.list[1].rail);
    for (auto [text, says] : {std::pair<const char *, const char *>{"a", "\"a\""},
                              {"a=x", "a=x"},
                              {"a=-1", "a=-1"},
                              {"a=40000", "a=40000"},
                              {"a=1,,", "\"\""}}) {
        EXPECT_EQ(-EINVAL, pvn_topo_nics_set_rails(&m.nics, text, &err)) << text;
        EXPECT_NE(nullptr, strstr(err.text, says)) << err.text;
        EXPECT_EQ(0, m.nics.list[0].rail) << "unchanged";
    }
    EXPECT_EQ(-ENOENT, pvn_topo_nics_set_rails(&m.nics, "c=1,a=5", &err));
    EXPECT_NE(nullptr, strstr(err.text, "\"c\"")) << err.text;
    EXPECT_EQ(5, m.nics.list[0].rail) << "one list serves hosts with other devices";
}

TEST(Nics, RailsFromSubnetPrefixes)
{
    auto gid = [](const char *prefix) {
        return Tree::Gid{0, std::string(prefix) + ":0000:0000:0000:0001", "IB/RoCE v1", ""};
    };
    Tree t;
    t.rdma("a", t.pci("pci0000:00", "0000:01:00.0", Pci::nic()), "InfiniBand",
           {gid("fe80:0000:0000:0001")});
    t.rdma("b", t.pci("pci0000:00", "0000:02:00.0", Pci::nic()), "InfiniBand",
           {gid("fe80:0000:0000:0002")});
    t.rdma("c", t.pci("pci0000:00", "0000:03:00.0", Pci::nic()), "InfiniBand",
           {gid("fe80:0000:0000:0001")});
    Detected m(t);
    EXPECT_EQ(2, pvn_topo_nics_find_rails(m.topo.get(), &m.nics));
    EXPECT_EQ(m.nics.list[0].rail, m.nics.list[2].rail);
    EXPECT_NE(m.nics.list[0].rail, m.nics.list[1].rail);
    EXPECT_GE(m.nics.list[0].rail, 0);
    EXPECT_LE(m.nics.list[0].rail, 32767);
    m.nics.list[0].rail = 3; // a rail that the user has set stays
    EXPECT_EQ(2, pvn_topo_nics_find_rails(m.topo.get(), &m.nics));
    EXPECT_EQ(3, m.nics.list[0].rail);
}

// ---- whole machines ----

TEST(Machines, AVmwareGuestIsFlat)
{
    Detected m(vmware_guest({}));
    EXPECT_EQ("cpu -1(pci 0000:03:00.0(gpu) pci 0000:0b:00.1(nic(net vmw_pvrdma0)) "
              "pci 0000:13:00.1(nic(net vmw_pvrdma1)) pci 0000:1b:00.0(gpu))",
              m.shape());
    for (int g = 0; g < 2; g++) {
        for (int n = 0; n < 2; n++) {
            EXPECT_EQ("PHB", m.type(g, n));
            EXPECT_TRUE(pvn_topo_pairs_hidden(m.pairs, g, n));
        }
    }
    EXPECT_NE(m.pairs->list[0].advice, m.pairs->list[1].advice);
    EXPECT_NE(nullptr, strstr(m.pairs->list[0].advice_why, "hypervisor hides"))
        << m.pairs->list[0].advice_why;
    EXPECT_FLOAT_EQ(12, m.pairs->tree->nodes[m.pairs->tree->nodes[m.pairs->tree->nets[0]].up].up_bw)
        << "5.0 GT/s x32";
}

TEST(Machines, PvrdmaIsHostMemoryOnlyWhateverIsLoaded)
{
    Tree t = vmware_guest({});
    t.module("nvidia_peermem", "535.104.05");
    Detected m(t, PVN_TOPO_NICS_AUTO, "", {{"NCCL_NET_GDR_LEVEL", "SYS"}});
    pvn_topo_gdr gdr;
    pvn_topo_gdr_judge(m.pairs, 0, 0, &gdr);
    EXPECT_EQ(PVN_TOPO_GDR_NIC, gdr.first_no);
    EXPECT_NE(nullptr, strstr(gdr.verdict, "PVRDMA")) << gdr.verdict;
    EXPECT_NE(nullptr, strstr(gdr.steps[PVN_TOPO_GDR_NIC].remedy, "passthrough"));
}

TEST(Machines, AGuestWithMixedNodesIsSysToNccl)
{
    GuestVariant v;
    v.gpu_numa = "0";
    Detected m(vmware_guest(v));
    EXPECT_EQ("SYS", m.type(0, 0));
    EXPECT_NE(nullptr, strstr(m.pairs->note, "numa_node -1")) << m.pairs->note;
}

TEST(Machines, AGuestWithTwoNodesPairsByNode)
{
    GuestVariant v;
    v.two_nodes = true;
    Detected m(vmware_guest(v));
    EXPECT_EQ("PHB", m.type(0, 0));
    EXPECT_EQ("SYS", m.type(0, 1));
    EXPECT_EQ(0, m.pairs->list[0].advice);
    EXPECT_EQ(1, m.pairs->list[1].advice);
}

TEST(Machines, APassthroughNicIsRefusedByDistanceWithARemedy)
{
    GuestVariant v;
    v.mellanox = true;
    Tree t = vmware_guest(v);
    t.module("nvidia_peermem", "535.104.05");
    Detected m(t);
    pvn_topo_gdr gdr;
    pvn_topo_gdr_judge(m.pairs, 0, 0, &gdr);
    EXPECT_EQ(PVN_TOPO_GDR_DISTANCE, gdr.first_no) << gdr.verdict;
    EXPECT_NE(nullptr, strstr(gdr.steps[PVN_TOPO_GDR_DISTANCE].remedy, "RelaxACSforP2P"))
        << gdr.steps[PVN_TOPO_GDR_DISTANCE].remedy;
}

TEST(Machines, AServerWithTwoSwitchLevels)
{
    Detected m(server8x8(true, true));
    ASSERT_EQ(8, m.pairs->tree->n_gpus);
    ASSERT_EQ(8, m.pairs->tree->n_nets);
    for (int g = 0; g < 8; g++) {
        for (int n = 0; n < 8; n++)
            EXPECT_EQ(g == n           ? "PIX"
                      : g / 2 == n / 2 ? "PXB"
                      : g / 4 == n / 4 ? "PHB"
                                       : "SYS",
                      m.type(g, n))
                << g << " " << n;
        EXPECT_EQ(g, m.pairs->list[g].advice);
        EXPECT_EQ(g, m.pairs->list[g].nccl[0]);
    }
}

// ---- what the plugin says ----

const char *no_env(const char *, void *)
{
    return nullptr;
}

const char *with_topo_file(const char *name, void *)
{
    return strcmp(name, "NCCL_TOPO_FILE") == 0 ? "/etc/topo.xml" : nullptr;
}

void collect(const char *text, void *user)
{
    *static_cast<std::string *>(user) += std::string(text) + "\n";
}

std::string report(const std::string &root, const std::vector<pvn_topo_nic_device> &devices,
                   const char *(*get)(const char *, void *) = no_env)
{
    pvn_topo_placement placed;
    char why[512];
    std::string text;
    EXPECT_EQ(0, pvn_topo_placement_make(root.c_str(), nullptr, devices.data(), (int)devices.size(),
                                         "", &placed, why, sizeof why))
        << why;
    pvn_topo_placement_report(&placed, get, collect, &text);
    pvn_topo_placement_free(&placed);
    return text;
}

TEST(Report, OneLinePerGpuInThePluginsOrder)
{
    TempDir dir;
    server8x8(false, false).write_dir(dir.path);
    std::vector<pvn_topo_nic_device> devices;
    std::vector<std::string> names, paths;
    for (int i = 7; i >= 0; i--)
        names.push_back("mlx5_" + std::to_string(i));
    for (const char *bus : {"ae", "a6", "7e", "76", "4e", "46", "1e", "16"})
        paths.push_back("/sys/devices/somewhere/0000:" + std::string(bus) + ":00.0");
    for (size_t i = 0; i < names.size(); i++)
        devices.push_back(
            {names[i].c_str(), paths[i].c_str(), nullptr, 0, 100 + i, 1, 200000, -1, true});
    std::string text = report(dir.path, devices);
    EXPECT_EQ(0u, text.find("topology: 8 GPUs and 8 network devices, read in ")) << text;
    for (int g = 0; g < 8; g++) {
        std::string expected = "GPU" + std::to_string(g);
        size_t at = text.find("\n" + expected + " ");
        ASSERT_NE(std::string::npos, at) << text;
        EXPECT_EQ("NCCL takes mlx5_" + std::to_string(g) + ": best",
                  text.substr(text.find("NCCL takes", at), 23))
            << text;
    }
    EXPECT_EQ(std::string::npos, text.find("refused")) << "GPU memory is offered";
    for (pvn_topo_nic_device &d : devices)
        d.gpu_memory = false;
    text = report(dir.path, devices, with_topo_file);
    EXPECT_NE(std::string::npos, text.find("because GPUDirect is refused")) << text;
    EXPECT_NE(std::string::npos, text.find("NCCL_TOPO_FILE=/etc/topo.xml may change")) << text;
}

TEST(Report, WithoutGpusOrDevicesOrAMachine)
{
    TempDir dir;
    Tree t;
    t.net("eth0", t.pci("pci0000:00", "0000:01:00.0", Pci::nic()));
    t.write_dir(dir.path);
    pvn_topo_nic_device eth0 = {"eth0", "/sys/x/0000:01:00.0", "eth0", 2, 1, 1, 0, -1, false};
    std::string text = report(dir.path, {eth0});
    EXPECT_EQ(0u, text.find("topology: 0 GPUs and 1 network device, read in ")) << text;
    EXPECT_EQ(1, std::count(text.begin(), text.end(), '\n')) << text;
    EXPECT_EQ(0u, report("/nonexistent", {eth0}).find("topology: not known, "));
}

TEST(TopoFile, HasNoGpuOrNicAndExplicitLinks)
{
    Detected m(vmware_guest({}));
    const char hints[] =
        "pvn-topo-hints 1\nswitch S node 0\ndevice 0000:03:00.0 in S\ndevice 0000:0b:00.0 in S\n";
    pvn_topo_err err = {""};
    Topo guest = load(vmware_guest({}));
    ASSERT_EQ(0, pvn_topo_apply_hints(guest.get(), hints, sizeof hints - 1, "hints", &err))
        << err.text;
    pvn_topo_nics nics;
    pvn_topo_pairs *pairs = nullptr;
    char why[256];
    ASSERT_EQ(0, pvn_topo_nics_find(guest.get(), PVN_TOPO_NICS_AUTO, &nics));
    ASSERT_EQ(0, pvn_topo_pairs_new(guest.get(), &nics, nullptr, nullptr, &pairs, why, sizeof why))
        << why;
    int net = pvn_topo_pairs_find_net(pairs, "vmw_pvrdma0");
    EXPECT_STREQ("PIX", pvn_topo_npath_name(pvn_topo_ntree_gpu_net(pairs->tree, 0, net)->type));
    EXPECT_EQ(net, pairs->list[0].advice);
    ASSERT_EQ(0, pvn_topo_ndoc_make_topo_file(pairs->doc));
    char *text = nullptr;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    const pvn_topo_ndoc_node *bad;
    EXPECT_EQ(0, pvn_topo_ndoc_write(pairs->doc, out, &bad));
    fclose(out);
    std::string xml(text, len);
    free(text);
    EXPECT_EQ(std::string::npos, xml.find("<gpu"));
    EXPECT_EQ(std::string::npos, xml.find("<nic"));
    pvn_topo_lint lint;
    ASSERT_EQ(0, pvn_topo_nccl_lint(xml.data(), xml.size(), &lint));
    for (int i = 0; i < lint.n; i++)
        EXPECT_EQ(PVN_TOPO_LINT_NOTE, lint.findings[i].level) << lint.findings[i].what << "\n"
                                                              << xml;
    pvn_topo_lint_free(&lint);
    // and NCCL, given that file in the guest as it is, sees the pair
    Detected with_file(vmware_guest({}), PVN_TOPO_NICS_AUTO, xml);
    int again = pvn_topo_pairs_find_net(with_file.pairs, "vmw_pvrdma0");
    EXPECT_EQ("PIX", with_file.type(0, again)) << xml;
    pvn_topo_pairs_free(pairs);
    pvn_topo_nics_free(&nics);
}

// The kernel prints a word for each 32 possible CPUs. A value in NCCL's files has at most 253 characters.
TEST(Walk, TheMapOfManyCpusFitsIntoAValue)
{
    auto words = [](const std::string &highest, int others, const std::string &word) {
        std::string map = highest;
        for (int i = 0; i < others; i++)
            map += "," + word;
        return map;
    };
    const std::string zero = "00000000", full = "ffffffff";
    struct {
        std::string map;
        const char *affinity; // null: left out, NCCL looks itself
    } rows[] = {
        {words(zero, 27, full), nullptr}, // 896 CPUs: as it is
        {words(zero, 28, zero), "0"},
        {words(zero, 27, zero) + ",0000ffff", "ffff"},
        {words(zero, 62, zero) + ",00000001,00f00000", "1,f00000"},
        {words(zero, 26, zero) + ",ffffffff,00000000", "ffffffff,0"},
        {words("00000001", 31, zero),
         "1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"},
        {words("00000001", 32, zero), nullptr}, // CPU 1024, which NCCL has no bit for
        {words("000000ff", 28, full), nullptr},
    };
    for (const auto &row : rows) {
        SCOPED_TRACE(row.map);
        Tree t = one_gpu_one_nic("pci0000:00", "pci0000:00");
        t.numa(0, row.map, "0-7", "10");
        Detected m(t);
        const pvn_topo_ndoc_node *cpu = pvn_topo_ndoc_find(m.pairs->doc, "cpu", "numaid", "0");
        ASSERT_TRUE(cpu);
        const char *affinity = pvn_topo_ndoc_get(cpu, "affinity");
        EXPECT_STREQ(row.map.size() <= 253 ? row.map.c_str() : row.affinity, affinity);
        char *text = nullptr;
        size_t len = 0;
        FILE *out = open_memstream(&text, &len);
        const pvn_topo_ndoc_node *bad;
        EXPECT_EQ(0, pvn_topo_ndoc_write(m.pairs->doc, out, &bad));
        fclose(out);
        pvn_topo_lint lint;
        ASSERT_EQ(0, pvn_topo_nccl_lint(text, len, &lint));
        for (int i = 0; i < lint.n; i++)
            EXPECT_NE(PVN_TOPO_LINT_ERROR, lint.findings[i].level) << lint.findings[i].what;
        pvn_topo_lint_free(&lint);
        free(text);
    }
}

} // namespace
