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

} // namespace
