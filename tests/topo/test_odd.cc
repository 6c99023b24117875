// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo on machines unlike those of the collection, because its rules must hold for machines that nobody has
// sent in yet.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

const char link_local[] = "fe80:0000:0000:0000:0250:56ff:fe00:0001";

// Writes a capture of the tree and runs the tool on it.
class Odd : public ::testing::Test
{
  protected:
    TempDir dir;
    Tree t;

    Result run(const std::string &args, const std::string &env = "")
    {
        std::ofstream(dir.path + "/m.tar", std::ios::binary) << t.tar();
        return run_tool(dir.path, "--root m.tar " + args, env);
    }
    std::string out(const std::string &args, const std::string &env = "")
    {
        Result r = run(args, env);
        EXPECT_LE(0, r.status) << "killed by a signal";
        EXPECT_EQ("", r.err);
        return r.out;
    }
    std::string nic(const std::string &above, const std::string &bdf, const std::string &name,
                    Pci like = Pci::nic())
    {
        std::string path = t.pci(above, bdf, like);
        t.rdma(name, path, "InfiniBand", {{0, link_local, "IB/RoCE v1", ""}});
        return path;
    }
    std::string port(const std::string &root, const std::string &bdf, Pci like = Pci::bridge())
    {
        return t.pci(root, bdf, like);
    }
};

bool has(const std::string &text, const std::string &part)
{
    return squeeze(text).find(squeeze(part)) != std::string::npos;
}

// libpci searches for unknown ids elsewhere than in its list, and calls its log functions meanwhile.
TEST_F(Odd, IdsThatNoListOfNamesHas)
{
    t.lists();
    t.pci(port("pci0000:00", "0000:00:01.0"), "0000:01:00.0", Pci::gpu(0xfffe));
    Pci card = Pci::nic();
    card.device = 0xfffd;
    nic(port("pci0000:00", "0000:00:02.0"), "0000:02:00.0", "mlx5_0", card);
    for (const char *command : {"dump --all", "matrix", "pairs", "why GPU0 mlx5_0", "--dot dump"})
        EXPECT_TRUE(has(out(command), "GPU")) << command;
    EXPECT_TRUE(has(out("dump"), "10de:fffe"));
    EXPECT_TRUE(has(out("dump"), "15b3:fffd"));
}

// The loader searches for libpci when the first name is looked up. So a container or a wheel uses the libpci that it
// finds, or none.
TEST_F(Odd, NamesComeFromTheLibpciThatIsThere)
{
    t.pci(port("pci0000:00", "0000:00:01.0"), "0000:01:00.0", Pci::gpu(0xfffe));
    nic(port("pci0000:00", "0000:00:02.0"), "0000:02:00.0", "mlx5_0");
    std::string so = dir.path + "/libpci.so.3", path = "LD_LIBRARY_PATH=" + dir.path;
    std::ofstream(so) << "no library\n";
    std::string text = out("dump --all", path);
    EXPECT_TRUE(has(text, "10de:fffe")) << text;
    EXPECT_TRUE(has(text, "15b3:101b")) << text;

    std::ofstream(so, std::ios::binary)
        << read_file(PVN_BUILDDIR "/tests/topo/.libs/libpci_double.so");
    text = out("dump --all", path);
    EXPECT_TRUE(has(text, "a device of the double")) << text;
    EXPECT_FALSE(has(text, "10de:fffe")) << text;
    text = out("--no-names dump --all", path);
    EXPECT_TRUE(has(text, "10de:fffe")) << text;
    EXPECT_FALSE(has(text, "a device of the double")) << text;
}

// A capture may lack a file, and a kernel may not know a speed. Neither is printed as a number.
TEST_F(Odd, ALinkThatIsKnownInPart)
{
    Pci slow = Pci::nic(), narrow = Pci::nic();
    slow.speed = "8.0 GT/s PCIe";
    slow.width_max = "";
    narrow.width = "8";
    narrow.speed_max = "Unknown speed";
    t.pci(port("pci0000:00", "0000:00:01.0"), "0000:01:00.0", Pci::gpu());
    nic(port("pci0000:00", "0000:00:02.0"), "0000:02:00.0", "mlx5_0", slow);
    nic(port("pci0000:00", "0000:00:03.0"), "0000:03:00.0", "mlx5_1", narrow);
    EXPECT_TRUE(has(out("dump"), "8.0 GT/s x16 (can do 16.0 GT/s)")) << out("dump");
    EXPECT_TRUE(has(out("dump"), "16.0 GT/s x8 (can do x16)")) << out("dump");
    EXPECT_TRUE(has(out("why GPU0 mlx5_0"), "now 8.0 GT/s PCIe x16, can do 16.0 GT/s PCIe."));
    EXPECT_TRUE(has(out("why GPU0 mlx5_1"), "now 16.0 GT/s PCIe x8, can do x16."));
}

TEST_F(Odd, BehindVmdNcclPutsThemOnANodeOfTheirOwn)
{
    std::string vmd = t.pci("pci0000:10", "0000:10:05.5", Pci().no_link());
    t.pci(port(vmd + "/pci10000:00", "10000:00:02.0"), "10000:01:00.0", Pci::gpu());
    nic(port(vmd + "/pci10000:00", "10000:00:03.0"), "10000:02:00.0", "mlx5_0");
    nic(port("pci0000:20", "0000:20:01.0"), "0000:21:00.0", "mlx5_1");
    t.numa(0, "ff", "0-7", "10");
    std::string text = out("matrix");
    EXPECT_TRUE(has(text, "GPU0   10000:01:00.0  numa 0")) << text;
    EXPECT_TRUE(
        has(text, "GPU0-NIC0 is SYS to NCCL and NODE to nvidia-smi: NCCL reads only 4-digit"))
        << text;
    EXPECT_TRUE(has(out("pairs"), "Note: NCCL reads only 4-digit PCI domains")) << out("pairs");
    EXPECT_TRUE(has(out("why GPU0 mlx5_0"), "nvidia-smi: PHB")) << out("why GPU0 mlx5_0");
}

TEST_F(Odd, NoNumaFilesMeansUnknownAndNotZero)
{
    t.pci(port("pci0000:00", "0000:00:01.0"), "0000:01:00.0", Pci::gpu().with_numa(""));
    nic(port("pci0000:00", "0000:00:02.0"), "0000:02:00.0", "mlx5_0", Pci::nic().with_numa(""));
    std::string text = out("matrix");
    EXPECT_TRUE(has(text, "GPU0   0000:01:00.0   numa ?")) << text;
    EXPECT_TRUE(has(text, "NIC0   0000:02:00.0   numa ?")) << text;
    EXPECT_TRUE(has(out("--json matrix"), "\"numa\": null")) << out("--json matrix");
}

// On Azure every device has a PCI domain of its own, and GPUs have no link width.
TEST_F(Odd, AHyperVGuest)
{
    for (int i = 0; i < 2; i++) {
        std::string n = std::to_string(i + 1), v = "LNXSYSTM:00/VMBUS:00/guid-" + n;
        Pci gpu = Pci::gpu();
        gpu.width = gpu.width_max = "0";
        t.pci(v + "/pci000" + n + ":00", "000" + n + ":00:00.0", gpu);
        nic(v + "/pci010" + n + ":00", "010" + n + ":00:00.0", "mlx5_ib" + std::to_string(i));
    }
    t.cpus("AuthenticAMD", 23, 49, true);
    t.dmi("Microsoft Corporation", "Virtual Machine");
    std::string text = out("matrix");
    EXPECT_TRUE(has(text, "nvidia-smi topo -m (the full PCI tree): nothing of it is known here"));
    EXPECT_FALSE(has(text, "GPU0      X    ?"));
    text = out("check");
    EXPECT_TRUE(has(text, "the hypervisor shows no width of the link")) << text;
    EXPECT_FALSE(has(text, "reseat")) << text;
    EXPECT_TRUE(has(text, "of the NIC: there is no config space")) << text;
    EXPECT_TRUE(has(text, "NCCL_TOPO_FILE with the provider's file")) << text;
    EXPECT_FALSE(has(text, "mlxconfig")) << "on the host, which is not the user's: " << text;
    Result r = run("why GPU0 mlx5_0");
    EXPECT_EQ(2, r.status);
    EXPECT_TRUE(has(r.err, "there are: mlx5_ib0, mlx5_ib1")) << r.err;
}

TEST_F(Odd, VmwaresKeysAreNamedToVmwaresGuestsOnly)
{
    t.pci(port("pci0000:00", "0000:00:02.0"), "0000:05:00.0", Pci::gpu());
    nic(port("pci0000:00", "0000:00:03.0"), "0000:06:00.0", "mlx5_0");
    t.cpus("GenuineIntel", 6, 143, true);
    t.dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)");
    EXPECT_FALSE(has(out("why GPU0 mlx5_0"), "pciPassthru"));
    EXPECT_TRUE(has(out("why GPU0 mlx5_0"), "the host must allow peer-to-peer"));
    t.dmi("VMware, Inc.", "VMware20,1");
    EXPECT_TRUE(has(out("why GPU0 mlx5_0"), "pciPassthru.allowP2P"));
}

// On Grace, GPU and NIC are below ports of NVIDIA's own CPU. NVLink-C2C makes GPUDirect possible there and is not in
// sysfs, so the tool must not answer no.
TEST_F(Odd, OnGraceTheLinkToTheCpuIsNotKnown)
{
    Pci above = Pci::bridge(0x10de, 0x22b1);
    t.pci(port("pci0000:00", "0000:00:00.0", above), "0000:01:00.0", Pci::gpu(0x2342));
    nic(port("pci0002:00", "0002:00:00.0", above), "0002:01:00.0", "mlx5_0");
    t.file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
                            "CPU part\t: 0xd4f\n\n");
    std::string text = out("why GPU0 mlx5_0");
    EXPECT_TRUE(has(text, "5 unknown they are near enough")) << text;
    EXPECT_TRUE(has(text, "NVLink-C2C")) << text;
    EXPECT_TRUE(has(out("pairs"), "GPUDirect possible")) << out("pairs");
    EXPECT_TRUE(
        has(out("why GPU0 mlx5_0", "NCCL_NET_GDR_C2C=0"), "5 NO      they are near enough"));
}

TEST_F(Odd, NvlinkIsSaidToBeMissing)
{
    t.pci(port("pci0000:00", "0000:00:01.0"), "0000:01:00.0", Pci::gpu());
    nic(port("pci0000:00", "0000:00:02.0"), "0000:02:00.0", "mlx5_0");
    EXPECT_FALSE(has(out("matrix"), "NVLink cannot be seen"));
    t.pci(port("pci0000:00", "0000:00:03.0"), "0000:03:00.0", Pci::gpu());
    EXPECT_TRUE(has(out("matrix"), "NVLink cannot be seen"));
    EXPECT_TRUE(has(out("pairs"), "NVLink cannot be seen"));
}

TEST_F(Odd, ATreeOfManyFactsStaysNarrow)
{
    std::string deep = port("pci0000:00", "0000:00:01.0");
    for (int i = 1; i <= 4; i++)
        deep = t.pcie_switch(deep, "0000:0" + std::to_string(2 * i) + ":00.0", 2 * (unsigned)i + 1,
                             1, Pci::bridge())[1];
    Pci card = Pci::nic();
    card.speed = "2.5 GT/s PCIe";
    std::string path = nic(deep, "0000:20:00.0", "mlx5_of_a_long_name", card);
    t.net("enp32s0f0np0", path, {{"speed", "100000"}});
    t.net("enp32s0f1np1", path, {{"speed", "100000"}, {"dev_port", "1"}});
    std::istringstream lines(out("dump"));
    for (std::string line; std::getline(lines, line);)
        EXPECT_LE(line.size(), 96u) << line;
    EXPECT_TRUE(has(out("dump"), "(can do 16.0 GT/s x16)"));
}

// The plugin numbers the NICs. NCCL's tree has them in another order.
TEST_F(Odd, TheMatrixIsInTheOrderOfTheNumbers)
{
    auto top =
        t.pcie_switch(port("pci0000:80", "0000:80:01.0"), "0000:81:00.0", 0x82, 1, Pci::bridge());
    nic(top[1], "0000:83:00.0", "mlx5_0");
    nic(port("pci0000:10", "0000:10:01.0", Pci::bridge().with_numa("1")), "0000:11:00.0", "mlx5_1",
        Pci::nic().with_numa("1"));
    nic(port("pci0000:20", "0000:20:01.0"), "0000:21:00.0", "mlx5_2");
    std::string text = out("matrix");
    EXPECT_TRUE(has(text, "NIC0 NIC1 NIC2\n")) << text;
    EXPECT_TRUE(has(text, "NIC0   0000:11:00.0   numa 1  mlx5_1")) << text;
    EXPECT_TRUE(has(text, "NIC1   0000:21:00.0   numa 0  mlx5_2")) << text;
    EXPECT_TRUE(has(text, "NIC2   0000:83:00.0   numa 0  mlx5_0")) << text;
}

TEST_F(Odd, AGuestThatShowsSwitchesAndEmulatedLinks)
{
    Pci emulated = Pci::bridge(0x104c, 0x8232).with_link("2.5 GT/s PCIe", "1");
    auto ports = t.pcie_switch(port("pci0000:00", "0000:00:03.0"), "0000:01:00.0", 2, 2, emulated);
    for (int i : {1, 2}) {
        t.file("/sys/devices/" + ports[i] + "/max_link_speed", "16.0 GT/s PCIe\n");
        t.file("/sys/devices/" + ports[i] + "/max_link_width", "16\n");
    }
    t.pci(ports[1], "0000:03:00.0", Pci::gpu());
    nic(ports[2], "0000:04:00.0", "mlx5_0");
    t.cpus("GenuineIntel", 6, 143, true);
    t.dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)");
    std::string text = out("--all check");
    EXPECT_TRUE(has(text,
                    "OK guest machine: guest of KVM (DMI: QEMU, Standard PC (Q35 + ICH9, 2009)), "
                    "which shows GPUs and NICs below switches"))
        << text;
    EXPECT_TRUE(has(text, "This is a guest. What can be done:")) << text;
    EXPECT_FALSE(has(text, "hints file")) << "there is nothing to write down: " << text;
    EXPECT_FALSE(has(text, "slow-path")) << "GPU and NIC do not leave the switch";
    EXPECT_TRUE(has(out("pairs"), "NCCL mlx5_0 (PIX)")) << out("pairs");
    nic(t.pci("pci0000:00", "0000:00:04.0", emulated), "0000:05:00.0", "mlx5_1",
        Pci::nic().with_link("2.5 GT/s PCIe", "1"));
    t.remove("/sys/bus/pci/devices/0000:04:00.0");
    t.remove("/sys/class/infiniband/mlx5_0");
    text = out("check");
    EXPECT_TRUE(has(text, "slow-path GPU0 - mlx5_1: the link of")) << text;
    EXPECT_TRUE(has(text, "at 0.19 GB/s in NCCL's model")) << text;
    EXPECT_TRUE(has(text, "QEMU's ports")) << text;
    t.cpus("GenuineIntel", 6, 143, false);
    t.dmi("Supermicro", "SYS-821GE-TNHR");
    text = out("check");
    EXPECT_TRUE(has(text, "reseat the card or use another slot")) << text;
    EXPECT_FALSE(has(text, "QEMU")) << text;
}

// A NIC that NCCL_IB_HCA leaves out has no number and is not chosen.
TEST_F(Odd, NicsThatVariablesLeaveOut)
{
    t.pci(port("pci0000:00", "0000:00:01.0"), "0000:01:00.0", Pci::gpu());
    for (int i = 0; i < 3; i++) {
        std::string n = std::to_string(i), bus = std::to_string(i + 2);
        std::string path = nic(port("pci0000:00", "0000:00:0" + bus + ".0"),
                               "0000:0" + bus + ":00.0", "mlx5_" + n);
        t.net("ens" + n, path);
    }
    EXPECT_TRUE(has(out("pairs"), "NCCL mlx5_0 (PHB), mlx5_1 (PHB), mlx5_2 (PHB)")) << out("pairs");
    std::string text = out("pairs", "NCCL_IB_HCA=^=mlx5_0");
    EXPECT_TRUE(has(text, "NCCL mlx5_1 (PHB), mlx5_2 (PHB)")) << text;
    EXPECT_TRUE(has(text, "Left out by variables: mlx5_0 (NCCL_IB_HCA)")) << text;
    EXPECT_TRUE(has(out("why GPU0 NIC0", "NCCL_IB_HCA=mlx5_2:1"), "NIC0 mlx5_2"));
    EXPECT_TRUE(
        has(out("pairs", "NCCL_IB_HCA=mlx5_2:2"), "Nothing to pair: 1 GPU, 0 network devices"));
    text = out("--nics tcp pairs", "NCCL_SOCKET_IFNAME==ens1");
    EXPECT_TRUE(has(text, "ens0 (NCCL_SOCKET_IFNAME), ens2 (NCCL_SOCKET_IFNAME)")) << text;
    EXPECT_FALSE(has(out("--no-env pairs", "NCCL_IB_HCA=mlx5_1"), "Left out"));
    text = out("pairs", "NCCL_IB_HCA=mlx5_1 NCCL_PVRDMA_IB_HCA=mlx5_0,mlx5_2 "
                        "NCCL_PVRDMA_RAILS=mlx5_0=4,mlx5_2=5,mlx5_7=1");
    EXPECT_TRUE(has(text, "mlx5_1 (NCCL_PVRDMA_IB_HCA)")) << text;
    EXPECT_TRUE(has(text, "Rails: mlx5_0=4 mlx5_2=5")) << text;
    text = out("pairs", "NCCL_IB_HCA==mlx5_0::6:1,mlx5_2:1:7");
    EXPECT_TRUE(has(text, "mlx5_1 (NCCL_IB_HCA)")) << text;
    EXPECT_TRUE(has(text, "Rails: mlx5_0=6 mlx5_2=7")) << text;
    text = out("pairs", "NCCL_IB_HCA==mlx5_0::6,mlx5_2:1:7 NCCL_PVRDMA_RAILS=mlx5_2=5");
    EXPECT_TRUE(has(text, "Rails: mlx5_0=6 mlx5_2=5")) << text;
    EXPECT_TRUE(has(out("pairs", "NCCL_PVRDMA_TRANSPORT=tcp"), "NCCL ens0"));
    text = out("pairs", "NCCL_IB_DISABLE=1");
    EXPECT_TRUE(has(text, "NCCL ens0")) << text;
    EXPECT_TRUE(has(text, "RDMA devices are left alone: NCCL_IB_DISABLE is set")) << text;
    EXPECT_TRUE(
        has(out("check", "NCCL_IB_DISABLE=1"), "WARN network NCCL_IB_DISABLE: RDMA is off"));
    for (const char *on : {"NCCL_IB_DISABLE=0", "NCCL_IB_DISABLE=1 NCCL_PVRDMA_TRANSPORT=auto"}) {
        EXPECT_FALSE(has(out("pairs", on), "left alone")) << on;
        EXPECT_FALSE(has(out("check", on), "RDMA is off")) << on;
    }
    text = out("check", "NCCL_IB_FIFO_TC=46 NCCL_IB_DATA_DIRECT=0");
    EXPECT_TRUE(has(text, "WARN variable NCCL_IB_FIFO_TC: 46 has no effect on the plugin")) << text;
    EXPECT_TRUE(has(text, "traffic class of the data (NCCL_PVRDMA_TC)")) << text;
    EXPECT_FALSE(has(text, "NCCL_IB_DATA_DIRECT")) << text;
    EXPECT_FALSE(has(out("--no-env check", "NCCL_IB_FIFO_TC=46"), "FIFO_TC"));
    EXPECT_EQ(2, run("pairs", "NCCL_PVRDMA_RAILS=mlx5_0").status);
}

TEST_F(Odd, MoreVirtualFunctionsThanNcclHasNumbersFor)
{
    std::string above = port("pci0000:40", "0000:40:01.0");
    t.pci(port("pci0000:40", "0000:40:02.0"), "0000:42:00.0", Pci::gpu());
    for (int i = 0; i < 200; i++) {
        char bdf[16];
        snprintf(bdf, sizeof bdf, "0000:41:%02x.%d", i / 8, i % 8);
        std::string path = nic(above, bdf, "mlx5_" + std::to_string(i));
        if (i > 0)
            t.link("/sys/devices/" + path + "/physfn", "../0000:41:00.0");
    }
    std::string text = out("pairs");
    EXPECT_TRUE(has(text, "168 more NICs are left out: 32 are what NCCL and the plugin take"))
        << text;
    EXPECT_TRUE(has(out("pairs", "NCCL_IB_HCA==mlx5_150"), "NCCL mlx5_150"));
    EXPECT_TRUE(has(out("--json dump"), "\"mlx5_199\"")) << "the machine is shown whole";
}

// A file of version 2 is for RCCL and is checked by RCCL's rules, because NCCL does not run on AMD's GPUs.
TEST_F(Odd, AFileOfRcclStaysOne)
{
    std::ofstream(dir.path + "/rccl.xml")
        << "<system version=\"2\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
           "familyid=\"143\" modelid=\"49\" affinity=\"ff\">\n<pci busid=\"0000:01:00.0\" "
           "class=\"0x038000\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n<gpu dev=\"0\" "
           "sm=\"90\" rank=\"0\" gdr=\"1\"/>\n</pci>\n</cpu>\n</system>\n";
    EXPECT_EQ(0, run_tool(dir.path, "lint rccl.xml").status);
    ASSERT_EQ(0, run_tool(dir.path, "--root rccl.xml --xml -o made.xml dump").status);
    EXPECT_EQ(0u, read_file(dir.path + "/made.xml").find("<system version=\"2\">"));
    Result r = run_tool(dir.path, "lint made.xml");
    EXPECT_EQ(0, r.status) << r.out;
    EXPECT_TRUE(has(r.out, "judged by the rules of RCCL (AMD's GPUs)")) << r.out;
}

} // namespace
