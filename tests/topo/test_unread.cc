// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests a machine of which a part cannot be read: no row about that part is OK, and the gap is reported.
#include <cstring>
#include <fstream>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

// A healthy server that has one of everything that the checks read.
Tree server()
{
    Tree t;
    Config port, up, down, end;
    auto with = [](Pci p, const Config &c, int group) {
        p.config = c.build();
        p.group = group;
        return p;
    };

    port.port_type = 4;
    up.port_type = 5;
    down.port_type = 6;
    down.acs = true;
    end.ats = end.dsn = true;
    std::string rp = t.pci("pci0000:17", "0000:17:00.0", with(Pci::bridge(), port, 1));
    std::string sw = t.pci(rp, "0000:18:00.0", with(Pci::bridge(0x1000, 0xc010), up, 2));
    std::string d0 = t.pci(sw, "0000:19:00.0", with(Pci::bridge(0x1000, 0xc010), down, 3));
    std::string d1 = t.pci(sw, "0000:19:04.0", with(Pci::bridge(0x1000, 0xc010), down, 4));
    std::string gpu = t.pci(d0, "0000:1a:00.0", with(Pci::gpu(), end, 10));
    std::string nic = t.pci(d1, "0000:1b:00.0", with(Pci::nic(), end, 11));
    t.net("eth0", nic, {{"mtu", "9000"}, {"speed", "100000"}});
    t.file("/sys/devices/" + nic + "/net/eth0/statistics/rx_dropped", "0\n");
    t.rdma("mlx5_0", nic, "Ethernet",
           {{0, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "IB/RoCE v1", "eth0"},
            {1, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "RoCE v2", "eth0"},
            {2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "eth0"},
            {3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0"}});
    t.net("lo", "", {{"type", "772"}});
    for (int group : {1, 2, 3, 4, 10, 11}) {
        t.file("/sys/kernel/iommu_groups/" + std::to_string(group) + "/type", "identity\n");
    }
    t.file("/sys/class/iommu/dmar0/uevent", "");
    t.numa(0, "000f", "0-3", "10 21");
    t.numa(1, "00f0", "4-7", "21 10");
    t.cpus("AuthenticAMD", 25, 17, false);
    t.dmi("Supermicro", "SYS-821GE-TNHR");
    t.module("nvidia", "550.54.15");
    t.module("nvidia_peermem", "550.54.15");
    t.module("mlx5_ib");
    t.module("ib_core");
    t.file("/proc/driver/nvidia/version",
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n");
    t.file("/proc/driver/nvidia/gpus/0000:1a:00.0/information", "Model: NVIDIA A100\n");
    t.file("/proc/version", "Linux version 5.15.0-91-generic (build@host)\n");
    t.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt\n");
    t.file("/proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\n"
                                "Max open files            1024                 4096     files\n"
                                "Max locked memory         65536                65536    bytes\n");
    t.file("/sys/kernel/mm/memory_peers/nv_mem/version", "1\n");
    return t;
}

using Set = std::set<std::string>;

struct Rows {
    Set good, bad, unknown;

    explicit Rows(const Topo &t)
    {
        pvn_topo_checks rows;
        EXPECT_EQ(pvn_topo_run_checks(t.get(), nullptr, 0, &rows), 0);
        for (int i = 0; i < rows.n; i++) {
            const pvn_topo_check &c = rows.rows[i];
            Set &set = c.level == PVN_TOPO_LEVEL_OK        ? good
                       : c.level == PVN_TOPO_LEVEL_UNKNOWN ? unknown
                                                           : bad;
            // The NIC of a pair may appear under any of its names.
            std::string subject = std::regex_replace(
                c.subject, std::regex(" - (mlx5_0|eth0|0000:1b:00.0)$"), " - NIC");
            // These parts of a good row may be missing.
            std::string text =
                std::regex_replace(c.text, std::regex(", version [^,]*| 550.54.15|, eth0$"), "");
            set.insert(std::string(c.id) + " " + subject + ": " + text);
        }
        pvn_topo_checks_free(&rows);
    }
};

// The elements of a set that the other one lacks, one per line.
std::string without(const Set &set, const Set &other)
{
    std::string out;
    for (const std::string &row : set)
        out += other.count(row) == 0 ? row + "\n" : "";
    return out;
}

TEST(Unread, EachDirectoryThatIsTakenAway)
{
    const Tree whole = server();
    const Rows before(load(whole));
    int taken = 0;

    for (const std::string &dir : whole.dirs()) {
        Tree t = whole;
        t.remove(dir);
        Rows after(load(t));
        taken++;
        EXPECT_EQ("", without(after.good, before.good)) << "called good without " << dir;
        EXPECT_EQ("", without(after.bad, before.bad)) << "called bad without " << dir;
        if (after.good != before.good || after.bad != before.bad) {
            EXPECT_NE("", without(after.unknown, before.unknown)) << "not said: no " << dir;
        }
    }
    EXPECT_GT(taken, 50);
}

// A machine without /sys, like a container without sysfs.
class NoSys : public ::testing::Test
{
  protected:
    TempDir dir;

    NoSys()
    {
        Tree t;
        t.cpus("GenuineIntel", 6, 106, false);
        t.write_dir(dir.path + "/root");
    }
    Result run(const std::string &args)
    {
        return run_tool(dir.path, "--root root " + args);
    }
};

#define EXPECT_HAS(text, part) EXPECT_NE(std::string::npos, squeeze(text).find(part)) << (text)

TEST_F(NoSys, CheckHasARowForEachList)
{
    Result r = run("check");
    EXPECT_EQ(r.status, 3) << r.err;
    for (const char *list : {"/sys/bus/pci/devices", "/sys/class/net", "/sys/class/infiniband"})
        EXPECT_HAS(r.out, "UNKNOWN read " + std::string(list) + ": cannot be listed");
    EXPECT_HAS(r.out, "6 not readable");
    r = run("--json check");
    EXPECT_EQ(r.status, 3);
    EXPECT_HAS(r.out, "\"level\": \"UNKNOWN\", \"subject\": \"/sys/bus/pci/devices\"");
    EXPECT_HAS(r.out, "\"fact\": \"gpus\", \"subject\": null, \"value\": null");
    EXPECT_HAS(r.out, "\"fact\": \"rdma-devices\", \"subject\": null, \"value\": null");
    EXPECT_HAS(r.err, "/sys/bus/pci/devices: cannot be listed");
}

TEST_F(NoSys, EachCommandSaysIt)
{
    const std::string said = "/sys/bus/pci/devices: cannot be listed (No such file or directory): "
                             "no PCI function is known";
    for (const char *args :
         {"pairs", "matrix", "dump", "--nccl dump", "--json pairs", "--json matrix", "--json dump",
          "--xml dump", "--dot dump", "why GPU0 NIC0", "gather x.tar", "diff root"}) {
        Result r = run(args);
        bool answers = strstr(args, "pairs") != nullptr || strstr(args, "matrix") != nullptr ||
                       strstr(args, "diff") != nullptr;
        if (answers) {
            EXPECT_EQ(r.status, 3) << args;
        }
        if (strncmp(args, "--json", 6) == 0) {
            EXPECT_HAS(r.out, "\"notes\": [ { \"where\": \"/sys/module\"");
        } else {
            EXPECT_HAS(r.out + r.err, said) << args;
        }
        if (strncmp(args, "--xml", 5) == 0) {
            EXPECT_HAS(r.err, said) << "not in the document";
        }
    }
}

TEST_F(NoSys, AsTheHostOfAGuest)
{
    std::ofstream(dir.path + "/guest.tar", std::ios::binary) << vmware_guest({}).tar();
    Result r = run_tool(dir.path, "--root guest.tar --host root merge");
    EXPECT_HAS(r.err, "pvn-topo: root: not read as it should be: /sys/bus/pci/devices: cannot be");
    EXPECT_EQ(std::string::npos, r.err.find("guest.tar: not read")) << r.err;
}

TEST_F(NoSys, AWholeMachineHasNoNote)
{
    server().write_dir(dir.path + "/whole");
    for (const char *args : {"pairs", "matrix", "--xml dump", "--interval 0 check"}) {
        Result r = run_tool(dir.path, std::string("--root whole ") + args);
        EXPECT_EQ(std::string::npos, (r.out + r.err).find("not read as")) << r.out << r.err;
        EXPECT_EQ(std::string::npos, r.out.find("Not read as")) << r.out;
        EXPECT_LE(r.status, 1) << r.err;
    }
}

} // namespace
