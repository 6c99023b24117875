// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests how files, drivers and modules of a machine change NCCL's view of it in pvn-topo's answers.
#include <gtest/gtest.h>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

const char closed_modules[] =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n";
const char open_modules[] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n";

class Machine : public ::testing::Test
{
  protected:
    TempDir dir;
    Tree t;

    std::string out(const std::string &args, const std::string &env = "")
    {
        std::ofstream(dir.path + "/m.tar", std::ios::binary) << t.tar();
        Result r = run_tool(dir.path, "--root m.tar " + args, env);
        EXPECT_LE(0, r.status) << "killed by a signal";
        EXPECT_EQ("", r.err);
        return squeeze(r.out);
    }
    // Adds one GPU and places for two NICs: near shares the GPU's switch, far is below another root port.
    struct Places {
        std::string near, far;
    };
    Places switch_and_root(const Pci &card)
    {
        std::string above = t.pci("pci0000:00", "0000:00:01.0", Pci::bridge());
        std::vector<std::string> sw = t.pcie_switch(above, "0000:10:00.0", 0x11, 2, Pci::bridge());
        t.cpus("GenuineIntel", 6, 143, false);
        t.numa(0, "ff", "0-7", "10");
        t.module("nvidia");
        t.pci(sw[1], "0000:12:00.0", Pci::gpu());
        return {t.pci(sw[2], "0000:13:00.0", card),
                t.pci(t.pci("pci0000:00", "0000:00:02.0", Pci::bridge()), "0000:20:00.0", card)};
    }
};

// The cpus of a document with what is below them, as "cpu 0: gpu eth0 cpu 1: gpu".
std::string places(const std::string &xml)
{
    std::string all;
    for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
        char name[32];
        if (sscanf(xml.c_str() + at, "<cpu numaid=\"%31[^\"]", name) == 1)
            all += std::string(all.empty() ? "" : " ") + "cpu " + name + ":";
        else if (sscanf(xml.c_str() + at, "<net name=\"%31[^\"]", name) == 1)
            all += std::string(" ") + name;
        else if (xml.compare(at, 5, "<gpu ") == 0)
            all += " gpu";
    }
    return all;
}

bool has(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

// NCCL routes the paths of a NIC without GPUDirect through the CPU before it chooses.
TEST_F(Machine, InterfacesAreEquallyFarAsTcpCopiesThroughTheHost)
{
    Places at = switch_and_root(Pci::nic());
    t.net("eth0", at.near, {{"speed", "10000"}, {"address", "02:00:00:00:00:01"}});
    t.net("eth1", at.far, {{"speed", "10000"}, {"address", "02:00:00:00:00:02"}});
    std::string text = out("pairs");
    EXPECT_TRUE(has(text, "NCCL eth0 (PIX through the CPU), eth1 (PHB)")) << text;
    EXPECT_TRUE(has(text, "TCP copies through host memory")) << text;
}

TEST_F(Machine, RdmaIsNearOnlyWithPeermemOrDmabuf)
{
    Places at = switch_and_root(Pci::nic());
    t.rdma("mlx5_0", at.near, "InfiniBand", {});
    t.rdma("mlx5_1", at.far, "InfiniBand", {});
    t.file("/proc/driver/nvidia/version", closed_modules);
    std::string text = out("pairs");
    EXPECT_TRUE(has(text, "NCCL mlx5_0 (PIX through the CPU), mlx5_1 (PHB)")) << text;
    text = out("why GPU0 mlx5_0");
    EXPECT_TRUE(has(text, "the NVIDIA modules are not the open ones")) << text;
    EXPECT_TRUE(has(text, "modprobe nvidia_peermem")) << text;

    t.file("/proc/driver/nvidia/version", open_modules);
    EXPECT_TRUE(has(out("pairs"), "NCCL mlx5_0 (PIX)")) << out("pairs");
    text = out("pairs", "NCCL_DMABUF_ENABLE=0");
    EXPECT_TRUE(has(text, "NCCL mlx5_0 (PIX through the CPU), mlx5_1 (PHB)")) << text;
    t.module("nvidia_peermem");
    EXPECT_TRUE(has(out("pairs", "NCCL_DMABUF_ENABLE=0"), "NCCL mlx5_0 (PIX)")) << text;
}

// sysfs has the driver of the PCI function, which is not the RDMA device's driver.
TEST_F(Machine, IntelsAdaptersHaveDmabuf)
{
    Pci card;
    card.vendor = 0x8086;
    card.driver = "ice";
    t.rdma("irdma0", switch_and_root(card).near, "Ethernet", {});
    t.file("/proc/driver/nvidia/version", open_modules);
    std::string text = out("why GPU0 irdma0");
    EXPECT_TRUE(has(text, "driver ice has dma-buf")) << text;
    EXPECT_FALSE(has(text, "the NIC's driver has none")) << text;
}

// A rank puts an interface without a PCI path on the NUMA node of its own GPU, so NCCL counts it once for each such
// node. It stays one interface, at the first of its places.
TEST_F(Machine, AnInterfaceWithoutAPathIsBelowEachNodeWithGpus)
{
    for (int i = 0; i < 4; i++) {
        std::string n = std::to_string(i + 1);
        t.pci("LNXSYSTM:00/VMBUS:00/gpu-" + n + "/pci000" + n + ":00", "000" + n + ":00:00.0",
              Pci::gpu().with_numa(i < 2 ? "0" : "1"));
    }
    for (std::string n : {"0", "1"})
        t.net("eth" + n, "LNXSYSTM:00/VMBUS:00/nic-" + n,
              {{"speed", "50000"}, {"address", "02:00:00:00:00:0" + n}});
    t.cpus("AuthenticAMD", 25, 17, true);
    t.numa(0, "0f", "0-3", "10 21");
    t.numa(1, "f0", "4-7", "21 10");
    t.module("nvidia");
    t.lists();
    EXPECT_EQ("cpu 0: gpu eth0 eth1 gpu cpu 1: gpu eth0 eth1 gpu", places(out("--xml-full dump")));
    std::string text = out("pairs");
    for (const char *part :
         {"GPU1 0002:00:00.0", "NCCL eth0 (PHB), eth1 (PHB)", "NCCL eth0 (SYS), eth1 (SYS)",
          "2 NICs are equal (NCCL counts 4: one without a PCI path once for each NUMA node with "
          "GPUs), and NCCL goes round them by the number of the GPU, far apart first: GPU3 starts "
          "with the 1st of them",
          "Fused when the plugin offers it: eth0+eth1 ("})
        EXPECT_TRUE(has(text, part)) << part << "\n" << text;
    EXPECT_FALSE(has(out("matrix"), "#2")) << "listed twice";
    EXPECT_TRUE(has(out("diff m.tar m.tar"), "no difference"));
    // The cpus of a file are the first that every rank knows.
    std::ofstream(dir.path + "/one.xml") << "<system version=\"1\"><cpu numaid=\"1\"/></system>\n";
    text = out("--topo-file one.xml pairs");
    EXPECT_TRUE(has(text, "NCCL eth1 (PHB)")) << "node 1: " << text;
    EXPECT_FALSE(has(text, "NCCL counts")) << text;
}

} // namespace
