// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo gather: the file that it writes reads like the machine and contains nothing that identifies it.
#include "tests/topo/tree.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

static std::string slurp(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream s;

    s << in.rdbuf();
    return s.str();
}

static std::string gather(const std::string &root, unsigned flags, int want = 0)
{
    TempDir dir;
    std::string path = dir.path + "/out.tar";
    FILE *f = fopen(path.c_str(), "w+b");
    pvn_topo_err err = {""};

    EXPECT_NE(f, nullptr);
    EXPECT_EQ(pvn_topo_gather(root.c_str(), fileno(f), flags, &err), want) << err.text;
    fclose(f);
    return slurp(path);
}

static Topo load_image(const std::string &image)
{
    pvn_topo_err err = {""};
    pvn_topo *t = nullptr;

    EXPECT_EQ(pvn_topo_load_tar(image.data(), image.size(), nullptr, &t, &err), 0) << err.text;
    return Topo(t);
}

// Writes the tree as one tar file, which is cheaper than a directory of thousands of files.
static std::string as_tar(const Tree &tree, const TempDir &dir)
{
    std::string path = dir.path + "/in.tar";

    std::ofstream(path, std::ios::binary) << tree.tar();
    return path;
}

// The whole model as text, one fact per line. Identifying facts are left out if addresses is false.
static std::string describe(const Topo &t, bool addresses)
{
    std::ostringstream o;
    auto limit = [](int v) { return v == PVN_TOPO_UNKNOWN ? std::string("?") : std::to_string(v); };

    for (int i = 0; i < t->npci; i++) {
        const pvn_topo_pci &p = t->pci[i];

        o << "pci " << p.bdf << " " << (p.path != nullptr ? p.path : "-") << " f" << p.flags << " k"
          << p.kind << p.kind_from_config << " p" << p.parent << " r" << p.root << " d" << p.depth
          << " " << limit(p.class_code) << " " << limit(p.vendor) << " " << limit(p.device) << " "
          << limit(p.subvendor) << " " << limit(p.subdevice) << " " << limit(p.revision) << " "
          << p.driver << p.driver_bound << " " << limit(p.numa) << " '" << p.numa_text << "' "
          << p.local_cpulist << " " << limit(p.iommu_group) << " " << p.link.speed_text
          << limit(p.link.width) << "/" << p.link.speed_max_text << limit(p.link.width_max) << " vf"
          << p.physfn << limit(p.num_vfs) << limit(p.total_vfs) << " bus" << limit(p.secondary)
          << limit(p.subordinate) << " cfg" << p.config.bytes << p.config.pcie << p.config.acs
          << p.config.acs_ctl << p.config.ats << p.config.ats_enabled << p.config.dsn
          << p.config.mps << p.config.relaxed_ordering;
        for (uint64_t bar : p.bar_size) {
            o << " " << bar;
        }
        if (addresses) {
            o << " " << p.config.serial;
        }
        o << "\n";
    }
    for (int i = 0; i < t->nroots; i++) {
        o << "root " << t->roots[i].name << " " << t->roots[i].via << " " << limit(t->roots[i].numa)
          << "\n";
    }
    for (int i = 0; i < t->nswitch_links; i++) {
        o << "link " << t->switch_links[i].from << " " << t->switch_links[i].to << "\n";
    }
    for (int i = 0; i < t->nnets; i++) {
        const pvn_topo_net &n = t->nets[i];

        o << "net " << n.name << n.kind << n.driver << n.pci << " " << limit(n.mtu) << n.operstate
          << limit(n.carrier) << limit(n.speed_mbps) << limit(n.dev_port) << n.master << n.lower
          << n.active << (addresses ? n.address : "") << "\n";
    }
    for (int i = 0; i < t->nrdmas; i++) {
        const pvn_topo_rdma &d = t->rdmas[i];

        o << "rdma " << d.name << d.kind << d.driver << d.pci << d.fw_ver << d.node_type
          << (addresses ? d.node_guid : "") << "\n";
        for (int p = 0; p < d.nports; p++) {
            const pvn_topo_rdma_port &port = d.ports[p];

            o << " port " << port.num << port.state_text << port.rate_text << port.layer
              << port.netdev << " " << port.ngids << "/" << port.gid_table_len;
            for (int g = 0; g < port.ngids; g++) {
                o << " " << port.gids[g].index << port.gids[g].type << port.gids[g].ndev;
                if (addresses) {
                    o << std::string((const char *)port.gids[g].raw, 16);
                }
            }
            o << "\n";
        }
    }
    for (int i = 0; i < t->npvrdma; i++) {
        o << "pvrdma " << t->pvrdma[i].pci << " " << t->pvrdma[i].vmxnet3 << " "
          << t->pvrdma[i].netdev << " " << t->pvrdma[i].rdma << " " << t->pvrdma[i].problem << "\n";
    }
    for (int i = 0; i < t->ngpus; i++) {
        o << "gpu " << t->gpus[i].pci << t->gpus[i].kind << t->gpus[i].model
          << limit(t->gpus[i].minor) << (addresses ? t->gpus[i].uuid : "") << "\n";
    }
    for (int i = 0; i < t->nnumas; i++) {
        o << "numa " << t->numas[i].id << t->numas[i].cpumap << t->numas[i].cpulist
          << t->numas[i].has_cpus;
        for (int d = 0; d < t->numas[i].ndistance; d++) {
            o << " " << t->numas[i].distance[d];
        }
        o << "\n";
    }
    for (int i = 0; i < t->nmodules; i++) {
        o << "module " << t->modules[i].name << " " << t->modules[i].version << "\n";
    }
    for (int i = 0; i < t->niommu_groups; i++) {
        o << "group " << t->iommu_groups[i].id << " " << t->iommu_groups[i].type << "\n";
    }
    o << "iommu " << t->iommu.present << t->iommu.names << limit(t->iommu.ngroups) << "\nnvidia "
      << t->nvidia.loaded << t->nvidia.version << t->nvidia.open_modules << t->nvidia.peermem
      << t->nvidia.memory_peers << limit(t->nvidia.topo_check_override) << "\nguest "
      << t->guest.hypervisor << t->guest.evidence << t->guest.cpu_flag << t->guest.sys_vendor
      << t->guest.product_name << "\ncpu " << t->cpu.arch << t->cpu.vendor << limit(t->cpu.family)
      << limit(t->cpu.model) << t->cpu.model_name << limit(t->cpu.sockets) << limit(t->cpu.logical)
      << "\nkernel " << t->kernel << " " << t->cmdline << "\nmemlock " << t->memlock_known << " "
      << t->memlock_soft << " " << t->memlock_hard << "\nmodules " << t->modules_known << "\n";
    for (int i = 0; i < t->nnotes; i++) {
        o << "note " << t->notes[i].where << ": " << t->notes[i].text << "\n";
    }
    return o.str();
}

static Tree rich_machine()
{
    Tree t = server8x8(true, true);
    std::string nic = "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0/0000:14:04.0/"
                      "0000:16:00.0";
    std::string gpu = "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0/"
                      "0000:14:00.0/0000:15:00.0";
    Config c;

    c.acs = c.ats = c.ats_enabled = c.dsn = true;
    c.acs_ctl = 0x1d;
    c.serial = 0xfeedfacecafebeef;
    t.file(gpu + "/config", c.build());
    t.link(gpu + "/iommu_group", "/sys/kernel/iommu_groups/7");
    t.file("/sys/kernel/iommu_groups/7/type", "DMA\n");
    t.net("ens1", nic, {{"address", "b8:ce:f6:12:34:56"}});
    t.net("ens2", nic, {{"address", "b8:ce:f6:12:34:56"}, {"dev_port", "1"}});
    t.rdma("mlx5_8", nic, "Ethernet",
           {{0, "fe80:0000:0000:0000:bace:f6ff:fe12:3456", "IB/RoCE v1", "ens1"},
            {1, "0000:0000:0000:0000:0000:ffff:c0a8:2a17", "RoCE v2", "ens1"},
            {2, "2a00:1450:0000:0000:0000:0000:0000:200e", "RoCE v2", "ens1"},
            {3, "fe80:0000:0000:0000:bace:f6ff:fe12:3456", "RoCE v2", "ens1"}});
    t.file("/sys/devices/" + nic + "/infiniband/mlx5_8/node_guid", "b8ce:f603:0012:3456\n");
    t.file("/sys/devices/" + nic + "/infiniband/mlx5_8/node_desc", "secrethost HCA-1\n");
    t.file("/proc/driver/nvidia/gpus/0000:15:00.0/information",
           "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 512\n"
           "GPU UUID: \t GPU-8c0e2d1c-aaaa-bbbb-cccc-0123456789ab\nDevice Minor: \t 3\n");
    t.file("/proc/version", "Linux version 6.8.0-40-generic (buildd@secrethost) (gcc) #40 SMP\n");
    t.file("/proc/cmdline",
           "BOOT_IMAGE=/boot/vmlinuz root=UUID=5ec2e7 iommu=pt pci=noacs hostname=secrethost\n");
    t.file("/proc/sys/kernel/hostname", "secrethost\n");
    t.file("/proc/self/limits",
           "Max locked memory         8388608              unlimited            bytes\n");
    return t;
}

TEST(Gather, SameModelWithAddressesKept)
{
    for (bool as_dir : {false, true}) {
        TempDir dir;
        std::string root = dir.path;
        Tree tree = rich_machine();

        if (as_dir) {
            tree.write_dir(root);
        } else {
            root += "/in.tar";
            std::ofstream(root, std::ios::binary) << tree.tar();
        }
        Topo before = load_dir(root);
        std::string image = gather(root, PVN_TOPO_GATHER_KEEP_ADDRESSES);
        EXPECT_EQ(describe(load_image(image), true), describe(before, true));
    }
}

// NCCL reads only the names of the entries, so entries of any type that Broadcom's driver makes are kept.
TEST(Gather, LinksOfSwitchesAreKeptWhateverTheirEntriesAre)
{
    const std::string links = "/sys/kernel/pci_switch_link/virtual_switch_links/0000:0";
    for (bool as_dir : {false, true}) {
        TempDir dir;
        Tree tree;
        for (const char *bdf : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"})
            tree.pci("pci0000:00", bdf, Pci::bridge(0x1000, 0xc030));
        tree.file(links + "1:00.0/0000:02:00.0", "");
        tree.link(links + "1:00.0/0000:03:00.0", "../../../../devices/pci0000:00/0000:03:00.0");
        tree.file(links + "1:00.0/0000:04:00.0/state", "1\n");
        tree.file(links + "2:00.0/0000:01:00.0", "up\n");
        std::string root = dir.path;
        if (as_dir)
            tree.write_dir(root);
        else
            root = as_tar(tree, dir);
        Topo before = load_dir(root), after = load_image(gather(root, 0));
        EXPECT_EQ(4, before->nswitch_links);
        EXPECT_EQ(describe(before, false), describe(after, false));
    }
}

TEST(Gather, SameModelWithoutAddresses)
{
    TempDir dir;
    std::string root = as_tar(rich_machine(), dir);
    Topo before = load_dir(root), after = load_image(gather(root, 0));
    EXPECT_EQ(describe(after, false), describe(before, false));

    // Replacements keep the properties that the checks use: equality and kind.
    int a = pvn_topo_find_net(after.get(), "ens1"), b = pvn_topo_find_net(after.get(), "ens2");
    EXPECT_STREQ(after->nets[a].address, after->nets[b].address);
    EXPECT_STRNE(after->nets[a].address, "b8:ce:f6:12:34:56");
    const pvn_topo_rdma_port &port =
        after->rdmas[pvn_topo_find_rdma(after.get(), "mlx5_8")].ports[0];
    ASSERT_EQ(port.ngids, 4);
    EXPECT_EQ(memcmp(port.gids[0].raw, port.gids[3].raw, 16), 0);
    EXPECT_EQ(port.gids[0].raw[0], 0xfe);
    EXPECT_EQ(port.gids[1].raw[10], 0xff);
    EXPECT_EQ(port.gids[1].raw[12], 10);
    EXPECT_EQ(port.gids[2].raw[0], 0x20);
    char why[256];
    bool usable;
    EXPECT_EQ(pvn_topo_gid_pick(&port, &usable, why, sizeof why), 1);
    EXPECT_TRUE(usable);
}

TEST(Gather, ShowsNoNames)
{
    TempDir dir;
    std::string image = gather(as_tar(rich_machine(), dir), 0);
    for (const char *secret : {"secrethost", "SECRET-SERIAL", "5ec2e7", "8c0e2d1c", "0123456789ab",
                               "b8:ce:f6", "b8ce:f6", "bace:f6ff", "c0a8:2a17", "2a00:1450",
                               "BOOT_IMAGE", "product_serial", "node_desc"}) {
        EXPECT_EQ(image.find(secret), std::string::npos) << secret;
    }
    EXPECT_EQ(image.find(std::string("\xef\xbe\xfe\xca\xce\xfa\xed\xfe", 8)), std::string::npos)
        << "the serial number in config space";
    EXPECT_NE(image.find("NVIDIA H100"), std::string::npos);
    EXPECT_NE(image.find("iommu=pt pci=noacs"), std::string::npos);
}

TEST(Gather, IsSmallAndAPlainTarFile)
{
    TempDir dir;
    Tree tree = rich_machine();
    std::string path = dir.path + "/g.tar", image, cpus;

    for (int i = 0; i < 256; i++) {
        cpus += "processor\t: " + std::to_string(i) +
                "\nvendor_id\t: GenuineIntel\nflags\t\t: " + std::string(1000, 'x') +
                "\nphysical id\t: " + std::to_string(i / 128) + "\n\n";
    }
    tree.file("/proc/cpuinfo", cpus);
    image = gather(as_tar(tree, dir), 0);
    EXPECT_LT(image.size(), 2u << 20) << "of 95 functions";
    Topo t = load_image(image);
    EXPECT_EQ(t->cpu.logical, 256);
    EXPECT_EQ(t->cpu.sockets, 2);
    std::ofstream(path, std::ios::binary) << image;
    std::string command = "tar -tf " + path + " >" + path + ".list 2>" + path + ".err";
    int rc = system(command.c_str());
    if (WIFEXITED(rc) && WEXITSTATUS(rc) == 127) {
        GTEST_SKIP() << "no tar command";
    }
    EXPECT_EQ(rc, 0) << slurp(path + ".err");
    EXPECT_EQ(slurp(path + ".err"), "");
    EXPECT_NE(slurp(path + ".list").find("pvn-topo-gather/sys/bus/pci/devices/10000:01:00.0"),
              std::string::npos);

    // The files that tar unpacks are the same machine.
    command = "mkdir " + dir.path + "/x && tar -C " + dir.path + "/x -xf " + path;
    ASSERT_EQ(system(command.c_str()), 0);
    EXPECT_EQ(describe(load_dir(dir.path + "/x/pvn-topo-gather"), true), describe(t, true));
}

TEST(Gather, GatheringTwiceChangesNothing)
{
    TempDir dir;

    std::string once = gather(as_tar(rich_machine(), dir), 0);
    std::ofstream(dir.path + "/once.tar", std::ios::binary) << once;
    EXPECT_EQ(gather(dir.path + "/once.tar", 0), once);
}

TEST(Gather, GuestsAndThisMachine)
{
    TempDir dir;

    std::string root = as_tar(vmware_guest({}), dir);
    EXPECT_EQ(describe(load_image(gather(root, PVN_TOPO_GATHER_KEEP_ADDRESSES)), true),
              describe(load_dir(root), true));

    Topo live = load_dir("/"), again = load_image(gather("/", 0));
    ASSERT_TRUE(live && again);
    EXPECT_EQ(again->npci, live->npci);
    EXPECT_EQ(again->nnets, live->nnets);
    EXPECT_EQ(again->cpu.logical, live->cpu.logical);
    EXPECT_EQ(again->memlock_soft, live->memlock_soft);
    EXPECT_TRUE(live->live);
    EXPECT_FALSE(again->live);
}

TEST(Gather, ARootThatCannotBeGatheredIsNamed)
{
    pvn_topo_err err = {""};
    TempDir dir;

    EXPECT_EQ(pvn_topo_gather("/nonexistent/root", 1, 0, &err), -ENOENT);
    EXPECT_NE(strstr(err.text, "/nonexistent/root"), nullptr);
    EXPECT_EQ(pvn_topo_gather(as_tar(vmware_guest({}), dir).c_str(), -1, 0, &err), -EBADF);
    EXPECT_NE(strstr(err.text, "cannot gather"), nullptr) << err.text;
}
