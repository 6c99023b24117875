// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the plugin's use of the topology library: the order, place, card and port, speed and rails of the devices that
// it offers NCCL, and its log lines about the layout at the start. softverbs makes the RDMA devices; the machine around
// them is a made-up /sys.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "nccl/net_v12.h"
#include "topo/nccl/nic.h"
#include "topo/tree.h"
#include "tests/support/paths.h"

namespace
{

using Env = std::vector<std::pair<std::string, std::string>>;

std::string said;

void logger(ncclDebugLogLevel, unsigned long, const char *, int, const char *fmt, ...)
{
    char line[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    said += std::string(line) + "\n";
}

struct Device {
    std::string name, path;
    uint64_t guid;
    int port, speed, rail;
};

struct Started {
    int rc = -1;
    std::vector<Device> devices;
    std::string log;
    bool says(const std::string &text) const
    {
        return log.find(text) != std::string::npos;
    }
};

// Runs in the child process: prints the plugin's devices as lines, then its log.
std::string start_here()
{
    std::ostringstream out;
    void *lib = dlopen(PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so", RTLD_NOW | RTLD_LOCAL);
    if (lib == nullptr)
        return std::string("-1 0\n") + dlerror();
    auto *net = static_cast<ncclNet_v12_t *>(dlsym(lib, "ncclNetPlugin_v12"));
    ncclNetCommConfig_v12_t config = {};
    void *ctx = nullptr;
    int rc = net->init(&ctx, 1, &config, logger, nullptr), n = 0;
    if (rc == ncclSuccess)
        net->devices(&n);
    out << rc << " " << n << "\n";
    for (int i = 0; i < n; i++) {
        ncclNetProperties_v12_t p = {};
        net->getProperties(i, &p);
        out << p.name << " " << (p.pciPath ? p.pciPath : "none") << " " << p.guid << " " << p.port
            << " " << p.speed << " " << p.railId << "\n";
    }
    if (rc == ncclSuccess)
        net->finalize(ctx);
    out << said;
    return out.str();
}

// Starts the plugin in a process of its own, because softverbs and the plugin read their environment only once.
Started start(const Env &env)
{
    Started s;
    std::string text;
    char buf[4096];
    int fd[2];
    if (pipe(fd) != 0)
        return s;
    pid_t child = fork();
    if (child == 0) {
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
        setenv("NCCL_DEBUG", "INFO", 1);
        for (auto &e : env)
            setenv(e.first.c_str(), e.second.c_str(), 1);
        text = start_here();
        for (size_t at = 0; at < text.size();) {
            ssize_t n = write(fd[1], text.data() + at, text.size() - at);
            if (n <= 0)
                break;
            at += (size_t)n;
        }
        _exit(0);
    }
    close(fd[1]);
    for (ssize_t n; (n = read(fd[0], buf, sizeof buf)) > 0;)
        text.append(buf, (size_t)n);
    close(fd[0]);
    waitpid(child, nullptr, 0);
    std::istringstream in(text);
    int n = 0;
    in >> s.rc >> n;
    for (int i = 0; i < n; i++) {
        Device d;
        in >> d.name >> d.path >> d.guid >> d.port >> d.speed >> d.rail;
        s.devices.push_back(d);
    }
    std::getline(in, s.log, '\0');
    return s;
}

// A machine in a directory of its own, with softverbs' devices of the given profile.
struct Machine {
    TempDir dir;
    std::string sys;
    Env env;
    Machine(const Tree &tree, const std::string &profile, int devices)
    {
        tree.write_dir(dir.path);
        sys = dir.path + "/sys";
        env = {{"NCCL_PVRDMA_VERBS_LIB", PVN_BUILDDIR "/tests/softverbs/.libs/libsoftverbs.so"},
               {"NCCL_PVRDMA_SYSFS_ROOT", sys},
               {"PVN_SOFTVERBS_PROFILE", profile},
               {"PVN_SOFTVERBS_DEVICES", std::to_string(devices)}};
    }
    Started run(const Env &more = {}) const
    {
        Env all = env;
        all.insert(all.end(), more.begin(), more.end());
        return start(all);
    }
};

std::string gid(const std::string &prefix)
{
    return prefix + ":0000:0000:0000:0250:56ff:fe00:0001";
}

// A machine whose order by PCI address differs from that by name: mlx5_0 is on the second socket. mlx5_1 and mlx5_2
// are the functions of one card beside the GPU.
Tree machine(const std::string &layer, const std::string &rate = "800 Gb/sec (4X XDR)")
{
    Tree t;
    Pci port = Pci::bridge(), sw = Pci::bridge(0x10b5, 0x9797);
    const std::string prefixes[] = {"fec0", "fec0", "fec1"};
    std::string path[3];
    auto left =
        t.pcie_switch(t.pci("pci0000:40", "0000:40:01.0", port), "0000:41:00.0", 0x42, 2, sw);
    t.pci(left[1], "0000:43:00.0", Pci::gpu());
    path[1] = t.pci(left[2], "0000:44:00.0", Pci::nic());
    path[2] = t.pci(left[2], "0000:44:00.1", Pci::nic());
    port.with_numa("1");
    path[0] =
        t.pci(t.pci("pci0000:c0", "0000:c0:01.0", port), "0000:c1:00.0", Pci::nic().with_numa("1"));
    for (int i = 0; i < 3; i++) {
        std::string net = "net" + std::to_string(i), rdma = "mlx5_" + std::to_string(i);
        t.net(net, path[i]);
        t.rdma(rdma, path[i], layer, {{0, gid(prefixes[i]), "RoCE v2", net}}, "4: ACTIVE", rate);
    }
    t.file("/sys/devices/" + path[1] + "/infiniband/mlx5_1/sys_image_guid",
           "0011:2233:4455:6600\n");
    t.file("/sys/devices/" + path[2] + "/infiniband/mlx5_2/sys_image_guid",
           "0011:2233:4455:6600\n");
    t.numa(0, "0f", "0-3", "10 21");
    t.numa(1, "f0", "4-7", "21 10");
    return t;
}

TEST(Layout, DevicesComeInPciOrderWithTheirPlace)
{
    Machine m(machine("Ethernet"), "roce", 3);
    Started s = m.run();
    ASSERT_EQ(3u, s.devices.size()) << s.log;
    EXPECT_EQ("mlx5_1", s.devices[0].name);
    EXPECT_EQ("mlx5_2", s.devices[1].name);
    EXPECT_EQ("mlx5_0", s.devices[2].name);
    EXPECT_EQ(m.sys + "/devices/pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:04.0/0000:44:00.0",
              s.devices[0].path);
    EXPECT_EQ(m.sys + "/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0", s.devices[2].path);
}

TEST(Layout, FunctionsOfACardHaveOneGuidAndPortsOfTheirOwn)
{
    Started s = Machine(machine("Ethernet"), "roce", 3).run();
    ASSERT_EQ(3u, s.devices.size()) << s.log;
    EXPECT_EQ(0x0011223344556600u, s.devices[0].guid);
    EXPECT_EQ(s.devices[0].guid, s.devices[1].guid);
    EXPECT_NE(s.devices[0].guid, s.devices[2].guid);
    EXPECT_EQ(1, s.devices[0].port);
    EXPECT_EQ(2, s.devices[1].port);
    EXPECT_EQ(1, s.devices[2].port);
}

TEST(Layout, ASpeedThatTheLibraryDoesNotKnowIsReadFromSysfs)
{
    // libibverbs' speed codes end with NDR, and 99 is none of them. So the speed that it gives for such a port is too low.
    Machine m(machine("Ethernet"), "roce", 3);
    EXPECT_EQ(800000, m.run().devices.at(0).speed);
    Started s = m.run({{"PVN_SOFTVERBS_SET", "set speed 99"}});
    ASSERT_EQ(3u, s.devices.size()) << s.log;
    EXPECT_EQ(800000, s.devices[0].speed);
}

TEST(Layout, ASpeedThatTheLibraryKnowsIsKept)
{
    // softverbs reports speed code 64 and width code 2, which is 4 x 50 Gb/s.
    Machine m(machine("Ethernet", "100 Gb/sec (4X EDR)"), "roce", 3);
    EXPECT_EQ(200000, m.run().devices.at(0).speed);
}

TEST(Layout, RailsFollowTheSubnetsOfInfiniBandPorts)
{
    Started s =
        Machine(machine("InfiniBand"), "ib", 3).run({{"PVN_SOFTVERBS_SET", "set link_local 0"}});
    ASSERT_EQ(3u, s.devices.size()) << s.log;
    // mlx5_0 and mlx5_1 are in subnet fec0, mlx5_2 is in fec1.
    EXPECT_GE(s.devices[0].rail, 0);
    EXPECT_EQ(s.devices[0].rail, s.devices[2].rail);
    EXPECT_GE(s.devices[1].rail, 0);
    EXPECT_NE(s.devices[0].rail, s.devices[1].rail);
}

TEST(Layout, RailsAreUnknownOnEthernetAndTheUserMaySetThem)
{
    Machine m(machine("Ethernet"), "roce", 3);
    Started plain = m.run();
    ASSERT_EQ(3u, plain.devices.size()) << plain.log;
    for (auto &d : plain.devices)
        EXPECT_EQ(NCCL_NET_ID_UNDEF, d.rail) << d.name;
    Started s = m.run({{"NCCL_PVRDMA_RAILS", "mlx5_0=7,mlx5_1=2,mlx5_9=3"}});
    ASSERT_EQ(3u, s.devices.size()) << s.log;
    EXPECT_EQ(2, s.devices[0].rail);
    EXPECT_EQ(NCCL_NET_ID_UNDEF, s.devices[1].rail);
    EXPECT_EQ(7, s.devices[2].rail);
    EXPECT_TRUE(s.says("there is no network device \"mlx5_9\" here")) << s.log;
}

TEST(Layout, RailsThatCannotBeUnderstoodAreRefused)
{
    Started s = Machine(machine("Ethernet"), "roce", 3).run({{"NCCL_PVRDMA_RAILS", "mlx5_0:7"}});
    EXPECT_EQ(ncclInvalidUsage, s.rc) << "as for any wrong setting";
    EXPECT_TRUE(s.says("NCCL_PVRDMA_RAILS=mlx5_0:7")) << s.log;
    EXPECT_TRUE(s.says("NAME=NUMBER")) << s.log;
}

TEST(Layout, ReportsWhichNicNcclTakesForEachGpuAndWhy)
{
    Started s = Machine(machine("Ethernet"), "roce", 3).run();
    EXPECT_TRUE(s.says("topology: 1 GPU and 3 network devices, read in ")) << s.log;
    // The path goes through the CPU although the switch is the GPU's own, because the plugin offers host memory only.
    EXPECT_TRUE(s.says("GPU0 0000:43:00.0: NCCL takes mlx5_1, mlx5_2: best bandwidth 24.0 GB/s at "
                       "PHB (the CPU's PCIe host bridges), through the CPU because GPUDirect is "
                       "refused"))
        << s.log;
}

TEST(Layout, ADeviceWithoutPciFunctionHasNoPathAndThatIsSaid)
{
    Tree t = machine("Ethernet");
    t.rdma("rxe0", "", "Ethernet", {{0, gid("fe80"), "RoCE v2", "net0"}});
    Started s = Machine(t, "rxe", 1).run();
    ASSERT_EQ(1u, s.devices.size()) << s.log;
    EXPECT_EQ("none", s.devices[0].path);
    EXPECT_TRUE(s.says("rxe0 is not a PCI device")) << s.log;
}

TEST(Layout, WithoutAMachineTheScanStandsAndThatIsSaid)
{
    Machine m(machine("Ethernet"), "roce", 3);
    // There is no /sys, so the facts about ports are missing, too.
    Started s = start({{"NCCL_PVRDMA_TRANSPORT", "tcp"},
                       {"NCCL_PVRDMA_SYSFS_ROOT", m.dir.path + "/nowhere"},
                       {"NCCL_PVRDMA_RAILS", "lo=4"}});
    ASSERT_EQ(1u, s.devices.size()) << s.log;
    EXPECT_EQ("lo", s.devices[0].name);
    EXPECT_EQ(4, s.devices[0].rail);
    EXPECT_TRUE(s.says("topology: not known")) << s.log;
    EXPECT_TRUE(s.says("keep the order and the facts of the scan")) << s.log;
}

TEST(Layout, IsReportedAtInfoOnly)
{
    Env tcp = {{"NCCL_PVRDMA_TRANSPORT", "tcp"}};
    EXPECT_TRUE(start(tcp).says("1 network device, read in "));
    tcp.push_back({"NCCL_DEBUG", "WARN"});
    EXPECT_FALSE(start(tcp).says("topology: "));
}

// A host with virtual functions has more devices than NCCL can number.
TEST(Layout, OfTooManyDevicesTheFirstInPciOrderAreTaken)
{
    Tree t;
    std::string above = t.pci("pci0000:40", "0000:40:01.0", Pci::bridge());
    for (int i = 0; i < 10; i++) {
        std::string name = "mlx5_" + std::to_string(i), net = "net" + std::to_string(i);
        std::string path = t.pci(above, "0000:41:0" + std::to_string(9 - i) + ".0", Pci::nic());
        t.net(net, path);
        t.rdma(name, path, "Ethernet", {{0, gid("fe80"), "RoCE v2", net}});
        for (int p = 2; p <= 4; p++) {
            std::string dir =
                "/sys/devices/" + path + "/infiniband/" + name + "/ports/" + std::to_string(p);
            t.file(dir + "/state", "4: ACTIVE\n");
            t.file(dir + "/gid_attrs/ndevs/0", net + "\n");
        }
    }
    Started s = Machine(t, "roce", 10).run({{"PVN_SOFTVERBS_PORTS", "4"}});
    ASSERT_EQ(32u, s.devices.size()) << s.log;
    EXPECT_EQ("mlx5_9:1", s.devices[0].name);
    EXPECT_EQ("mlx5_2:4", s.devices[31].name);
    EXPECT_EQ(4, s.devices[31].port);
    EXPECT_TRUE(s.says("8 more rdma devices (32 are taken; choose by NCCL_IB_HCA)")) << s.log;
}

// No limit is asserted, because timings on a shared machine mean little. tests/bench/README.md has figures.
TEST(Layout, WhatStartingCostsIsReported)
{
    Tree t = server8x8(false, true);
    int functions = load(t)->npci;
    Started s = Machine(t, "ib", 8).run();
    size_t at = s.log.find("topology: 8 GPUs and 8 network devices, read in ");
    ASSERT_NE(std::string::npos, at) << s.log;
    EXPECT_GE(functions, 64);
    printf("%d functions, %s\n", functions, s.log.substr(at, s.log.find('\n', at) - at).c_str());
    for (int g = 0; g < 8; g++)
        EXPECT_TRUE(s.says("GPU" + std::to_string(g) + " 0000:")) << g;
}

// ---- the library's part ----

struct Nics {
    Topo topo;
    pvn_topo_nics nics = {};
    Nics(const Tree &tree, const std::vector<pvn_topo_nic_device> &given)
        : topo(load(tree, PVN_TOPO_FIRST_GID))
    {
        EXPECT_EQ(0, pvn_topo_nics_of_devices(topo.get(), given.data(), (int)given.size(), &nics));
    }
    ~Nics()
    {
        pvn_topo_nics_free(&nics);
    }
};

pvn_topo_nic_device interface(const char *name, int ifindex, const char *path = "")
{
    return {name, path, name, ifindex, 1, 1, 0, -1, false};
}

TEST(LayoutNics, AnInterfaceOfAnotherNetworkNamespaceIsNotTheSame)
{
    Tree t = machine("Ethernet");
    t.file("/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0/net/net0/ifindex", "7\n");
    EXPECT_GE(Nics(t, {interface("net0", 7)}).nics.list[0].pci, 0);
    EXPECT_EQ(-1, Nics(t, {interface("net0", 8)}).nics.list[0].pci);
}

TEST(LayoutNics, APathLeadsToTheFunctionAboveAVirtioDevice)
{
    Tree t;
    t.pci("pci0000:00", "0000:00:03.0", Pci());
    Nics n(t, {interface("eth9", 3, "/sys/devices/pci0000:00/0000:00:03.0/virtio0")});
    ASSERT_GE(n.nics.list[0].pci, 0);
    EXPECT_STREQ("/sys/devices/pci0000:00/0000:00:03.0", n.nics.list[0].pci_path);
}

TEST(LayoutNics, PortsOfOneInterfaceCardShareItsGuidAndAreCountedOn)
{
    Tree t;
    std::string a = t.pci("pci0000:00", "0000:05:00.0", Pci());
    std::string b = t.pci("pci0000:00", "0000:05:00.1", Pci());
    std::string c = t.pci("pci0000:00", "0000:06:00.0", Pci());
    t.net("a0", a, {{"address", "02:00:00:00:00:01"}, {"ifindex", "2"}});
    t.net("b0", b, {{"address", "02:00:00:00:00:02"}, {"ifindex", "3"}});
    t.net("c0", c, {{"address", "02:00:00:00:00:03"}, {"ifindex", "4"}});
    Nics n(t, {interface("c0", 4), interface("b0", 3), interface("a0", 2)});
    ASSERT_EQ(3, n.nics.n);
    EXPECT_STREQ("a0", n.nics.list[0].name);
    EXPECT_EQ(2, n.nics.list[0].from);
    EXPECT_EQ(n.nics.list[0].guid, n.nics.list[1].guid);
    EXPECT_NE(n.nics.list[0].guid, n.nics.list[2].guid);
    EXPECT_EQ(1, n.nics.list[0].port);
    EXPECT_EQ(2, n.nics.list[1].port);
    EXPECT_EQ(1, n.nics.list[2].port);
}

// NCCL treats NICs with equal guid and port as one wire. The virtual functions of a port have both in common.
TEST(LayoutNics, VirtualFunctionsShareTheWireOfThePhysicalOne)
{
    Tree t;
    std::string pf = t.pci("pci0000:00", "0000:05:00.0", Pci::nic());
    t.rdma("mlx5_0", pf, "Ethernet", {{0, gid("fe80"), "RoCE v2", ""}});
    for (int vf = 1; vf <= 2; vf++) {
        std::string n = std::to_string(vf), name = "mlx5_" + n;
        std::string path = t.pci("pci0000:00", "0000:05:00." + n, Pci::nic());
        t.link("/sys/devices/" + path + "/physfn", "../0000:05:00.0");
        t.rdma(name, path, "Ethernet", {{0, gid("fe80"), "RoCE v2", ""}});
    }
    Topo topo = load(t);
    ASSERT_EQ(3, topo->nrdmas);
    for (int i = 0; i < 3; i++)
        snprintf(topo->rdmas[i].sys_image_guid, sizeof topo->rdmas[i].sys_image_guid,
                 "0001:0000:0000:0005");
    pvn_topo_nics nics = {};
    ASSERT_EQ(0, pvn_topo_nics_find(topo.get(), PVN_TOPO_NICS_ALL, &nics));
    ASSERT_EQ(3, nics.n);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(1, nics.list[i].port) << nics.list[i].name;
    pvn_topo_nics_free(&nics);
}

TEST(LayoutNics, PvrdmaHasTheSpeedOfItsVmxnet3)
{
    Topo topo = load(vmware_guest({}));
    pvn_topo_nics nics = {};
    for (int i = 0; i < topo->nrdmas; i++)
        topo->rdmas[i].ports[0].rate_mbps = 2500;
    ASSERT_EQ(0, pvn_topo_nics_find(topo.get(), PVN_TOPO_NICS_RDMA, &nics));
    ASSERT_EQ(2, nics.n);
    EXPECT_EQ(10000, nics.list[0].speed_mbps);
    pvn_topo_nics_free(&nics);
}

} // namespace
