// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/topo/tree.h"
#include "tests/support/paths.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

namespace fs = std::filesystem;

static std::string hex(unsigned v, int digits)
{
    char buf[32];

    snprintf(buf, sizeof buf, "0x%0*x\n", digits, v);
    return buf;
}

// A GUID that is unique per card, because NCCL treats NICs with equal GUIDs as one wire.
static std::string guid(const std::string &name, unsigned last)
{
    unsigned card = 0;
    char buf[32];

    for (unsigned char c : name) {
        card = card * 31 + c;
    }
    snprintf(buf, sizeof buf, "0011:2233:44%02x:%02x%02x\n", card >> 8 & 0xff, card & 0xff, last);
    return buf;
}

static void put16(std::string &s, size_t at, unsigned v)
{
    if (at + 2 <= s.size()) {
        s[at] = (char)(v & 0xff);
        s[at + 1] = (char)(v >> 8 & 0xff);
    }
}

static void put32(std::string &s, size_t at, uint32_t v)
{
    put16(s, at, v & 0xffff);
    put16(s, at + 2, v >> 16);
}

std::string Config::build() const
{
    std::string s(4096, '\0');
    size_t ext = 0x100;
    std::vector<unsigned> ids;

    put16(s, 0, 0x10de);
    put16(s, 2, 0x20b2);
    put16(s, 6, 0x10);
    s[0x34] = 0x50;
    s[0x50] = 0x01; // power management first, so that the list is walked
    s[0x51] = 0x60;
    s[0x60] = 0x10;
    put16(s, 0x62, (unsigned)port_type << 4 | 2);
    put32(s, 0x64, (uint32_t)mps_max_code);
    put16(s, 0x68, (relaxed ? 0x10u : 0u) | (unsigned)mps_code << 5 | (unsigned)mrrs_code << 12);
    put16(s, 0x72, (unsigned)speed_code | (unsigned)width << 4);
    if (acs) {
        ids.push_back(0x0d);
    }
    if (ats) {
        ids.push_back(0x0f);
    }
    if (dsn) {
        ids.push_back(0x03);
    }
    for (size_t i = 0; i < ids.size(); i++) {
        unsigned next = i + 1 < ids.size() ? (unsigned)ext + 0x20 : 0;

        put32(s, ext, ids[i] | 1u << 16 | next << 20);
        if (ids[i] == 0x0d) {
            put16(s, ext + 4, acs_cap);
            put16(s, ext + 6, acs_ctl);
        } else if (ids[i] == 0x0f) {
            put16(s, ext + 6, ats_enabled ? 0x8000 : 0);
        } else {
            put32(s, ext + 4, (uint32_t)serial);
            put32(s, ext + 8, (uint32_t)(serial >> 32));
        }
        ext += 0x20;
    }
    s.resize(bytes);
    return s;
}

void Tree::file(const std::string &path, const std::string &content)
{
    nodes[path] = {false, content, false};
}

void Tree::link(const std::string &path, const std::string &target)
{
    nodes[path] = {true, target, false};
}

void Tree::dir(const std::string &path)
{
    nodes[path] = {false, "", true};
}

void Tree::remove(const std::string &path)
{
    for (auto it = nodes.begin(); it != nodes.end();) {
        bool below = it->first == path || it->first.compare(0, path.size() + 1, path + "/") == 0;

        it = below ? nodes.erase(it) : std::next(it);
    }
}

std::vector<std::string> Tree::dirs() const
{
    std::set<std::string> all;

    for (const auto &n : nodes) {
        for (size_t at = n.first.rfind('/'); at > 0; at = n.first.rfind('/', at - 1)) {
            all.insert(n.first.substr(0, at));
        }
    }
    return {all.begin(), all.end()};
}

std::string Tree::pci(const std::string &dir, const std::string &bdf, const Pci &p)
{
    std::string path = dir + "/" + bdf, d = "/sys/devices/" + path + "/";

    link("/sys/bus/pci/devices/" + bdf, "../../../devices/" + path);
    file(d + "class", hex(p.cls, 6));
    file(d + "vendor", hex(p.vendor, 4));
    file(d + "device", hex(p.device, 4));
    file(d + "subsystem_vendor", hex(p.subvendor, 4));
    file(d + "subsystem_device", hex(p.subdevice, 4));
    if (!p.numa.empty()) {
        file(d + "numa_node", p.numa + "\n");
    }
    if (!p.driver.empty()) {
        link(d + "driver", "/sys/bus/pci/drivers/" + p.driver);
    }
    if (!p.speed.empty()) {
        file(d + "current_link_speed", p.speed + "\n");
    }
    if (!p.speed_max.empty()) {
        file(d + "max_link_speed", p.speed_max + "\n");
    }
    if (!p.width.empty()) {
        file(d + "current_link_width", p.width + "\n");
    }
    if (!p.width_max.empty()) {
        file(d + "max_link_width", p.width_max + "\n");
    }
    if (!p.config.empty()) {
        file(d + "config", p.config);
    }
    if (p.group >= 0) {
        link(d + "iommu_group", "/sys/kernel/iommu_groups/" + std::to_string(p.group));
    }
    return path;
}

std::vector<std::string> Tree::pcie_switch(const std::string &above, const std::string &up_bdf,
                                           unsigned inner_bus, int ports, const Pci &like)
{
    std::vector<std::string> out;
    std::string domain = up_bdf.substr(0, up_bdf.find(':'));

    out.push_back(pci(above, up_bdf, like));
    for (int i = 0; i < ports; i++) {
        char bdf[32];

        snprintf(bdf, sizeof bdf, "%s:%02x:%02x.0", domain.c_str(), inner_bus, 4 * i);
        out.push_back(pci(out[0], bdf, like));
    }
    return out;
}

void Tree::net(const std::string &name, const std::string &pci_path,
               const std::map<std::string, std::string> &files)
{
    bool hw = !pci_path.empty();
    std::string path = hw ? pci_path + "/net/" + name : "virtual/net/" + name;
    std::map<std::string, std::string> all = {
        {"type", "1"}, {"mtu", "1500"}, {"operstate", "up"}, {"carrier", "1"}, {"dev_port", "0"},
    };

    link("/sys/class/net/" + name, "../../devices/" + path);
    if (hw) {
        link("/sys/devices/" + path + "/device",
             "../../../" + pci_path.substr(pci_path.rfind('/') + 1));
    }
    for (const auto &f : files) {
        all[f.first] = f.second;
    }
    for (const auto &f : all) {
        if (!f.second.empty()) {
            file("/sys/devices/" + path + "/" + f.first, f.second + "\n");
        }
    }
}

void Tree::rdma(const std::string &name, const std::string &pci_path, const std::string &link_layer,
                const std::vector<Gid> &gids, const std::string &state, const std::string &rate)
{
    bool hw = !pci_path.empty();
    std::string path = hw ? pci_path + "/infiniband/" + name : "virtual/infiniband/" + name;
    std::string d = "/sys/devices/" + path + "/", port = d + "ports/1/";

    link("/sys/class/infiniband/" + name, "../../devices/" + path);
    if (hw) {
        link(d + "device", "../../../" + pci_path.substr(pci_path.rfind('/') + 1));
    }
    file(d + "node_type", "1: CA\n");
    file(d + "node_guid", guid(name, 0x77));
    file(d + "sys_image_guid", guid(name, 0x00));
    file(d + "fw_ver", "22.31.1014\n");
    file(port + "state", state + "\n");
    file(port + "phys_state", "5: LinkUp\n");
    file(port + "rate", rate + "\n");
    file(port + "link_layer", link_layer + "\n");
    file(port + "lid", "0x0\n");
    for (const Gid &g : gids) {
        std::string i = std::to_string(g.index);

        file(port + "gids/" + i, g.raw + "\n");
        if (!g.type.empty()) {
            file(port + "gid_attrs/types/" + i, g.type + "\n");
        }
        if (!g.ndev.empty()) {
            file(port + "gid_attrs/ndevs/" + i, g.ndev + "\n");
        }
    }
}

void Tree::numa(int id, const std::string &cpumap, const std::string &cpulist,
                const std::string &distance)
{
    std::string d = "/sys/devices/system/node/node" + std::to_string(id) + "/";

    file(d + "cpumap", cpumap + "\n");
    file(d + "cpulist", cpulist + "\n");
    file(d + "distance", distance + "\n");
}

void Tree::cpus(const std::string &vendor, int family, int model, bool hypervisor, int sockets,
                int per_socket)
{
    std::string text;

    for (int i = 0; i < sockets * per_socket; i++) {
        text += "processor\t: " + std::to_string(i) + "\nvendor_id\t: " + vendor +
                "\ncpu family\t: " + std::to_string(family) +
                "\nmodel\t\t: " + std::to_string(model) +
                "\nmodel name\t: Test CPU\nphysical id\t: " + std::to_string(i / per_socket) +
                "\nflags\t\t: fpu vme de pse" + (hypervisor ? " hypervisor" : "") + " lahf_lm\n\n";
    }
    file("/proc/cpuinfo", text);
}

void Tree::dmi(const std::string &vendor, const std::string &product)
{
    link("/sys/class/dmi/id", "../../devices/virtual/dmi/id");
    file("/sys/devices/virtual/dmi/id/sys_vendor", vendor + "\n");
    file("/sys/devices/virtual/dmi/id/product_name", product + "\n");
    file("/sys/devices/virtual/dmi/id/product_serial", "SECRET-SERIAL\n");
}

void Tree::lists(bool node)
{
    file("/sys/class/net/bonding_masters", "\n");
    file("/sys/module/printk/parameters/time", "Y\n");
    if (node) {
        file("/sys/devices/system/node/node0/cpulist", "0\n");
    }
    file("/proc/version", "Linux version 6.1.0\n");
}

void Tree::module(const std::string &name, const std::string &version)
{
    file("/sys/module/" + name + "/refcnt", "0\n");
    if (!version.empty()) {
        file("/sys/module/" + name + "/version", version + "\n");
    }
}

static void tar_entry(std::string &out, char type, const std::string &name,
                      const std::string &target, const std::string &content)
{
    char h[512] = {};
    unsigned sum = 0;

    if (name.size() > 99) {
        tar_entry(out, 'L', "././@LongLink", "", name + std::string(1, '\0'));
    }
    if (target.size() > 99) {
        tar_entry(out, 'K', "././@LongLink", "", target + std::string(1, '\0'));
    }
    memcpy(h, name.data(), std::min<size_t>(name.size(), 99));
    snprintf(h + 100, 8, "%07o", 0644);
    snprintf(h + 124, 12, "%011zo", content.size());
    snprintf(h + 136, 12, "%011o", 0);
    h[156] = type;
    memcpy(h + 157, target.data(), std::min<size_t>(target.size(), 99));
    memcpy(h + 257, "ustar\00000", 8);
    memset(h + 148, ' ', 8);
    for (unsigned char c : h) {
        sum += c;
    }
    snprintf(h + 148, 8, "%06o", sum);
    out.append(h, sizeof h);
    out += content;
    out.append((512 - content.size() % 512) % 512, '\0');
}

std::string Tree::tar() const
{
    std::string out;

    for (const auto &n : nodes) {
        std::string name = n.first.substr(1);

        if (n.second.is_link) {
            tar_entry(out, '2', name, n.second.content, "");
        } else if (n.second.is_dir) {
            tar_entry(out, '5', name, "", "");
        } else {
            tar_entry(out, '0', name, "", n.second.content);
        }
    }
    out.append(1024, '\0');
    return out;
}

void Tree::write_dir(const std::string &dir) const
{
    for (const auto &n : nodes) {
        fs::path p = dir + n.first;

        fs::create_directories(p.parent_path());
        if (n.second.is_link) {
            fs::create_symlink(n.second.content, p);
        } else if (n.second.is_dir) {
            fs::create_directories(p);
        } else {
            std::ofstream(p, std::ios::binary) << n.second.content;
        }
    }
}

Topo load(const Tree &tree, unsigned flags)
{
    pvn_topo_options options = {flags, nullptr};
    pvn_topo_err err = {""};
    pvn_topo *t = nullptr;
    std::string image = tree.tar();
    int rc = pvn_topo_load_tar(image.data(), image.size(), &options, &t, &err);

    EXPECT_EQ(rc, 0) << err.text;
    return Topo(t);
}

Topo load_dir(const std::string &dir)
{
    pvn_topo_err err = {""};
    pvn_topo *t = nullptr;
    int rc = pvn_topo_load(dir.c_str(), nullptr, &t, &err);

    EXPECT_EQ(rc, 0) << err.text;
    return Topo(t);
}

std::string load_error(const std::string &image, int *rc)
{
    pvn_topo_err err = {""};
    pvn_topo *t = nullptr;

    *rc = pvn_topo_load_tar(image.data(), image.size(), nullptr, &t, &err);
    if (*rc == 0) {
        pvn_topo_free(t);
    }
    return err.text;
}

TempDir::TempDir()
{
    // Trees have thousands of small files, so they are written to memory if /dev/shm is writable.
    std::string name = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    name += "/pvn-topo-test-XXXXXX";
    path = mkdtemp(&name[0]) != nullptr ? name : "";
    EXPECT_NE(path, "");
}

TempDir::~TempDir()
{
    std::error_code ignored;

    if (!path.empty()) {
        fs::remove_all(path, ignored);
    }
}

std::string shared_dir()
{
    const char *env = getenv("PVN_SHARED");
    std::string dir = env != nullptr ? env : PVN_SRCDIR "/../shared";

    return fs::is_directory(dir) ? dir : "";
}

static const char ipv4_gid[] = "0000:0000:0000:0000:0000:ffff:0a00:0001";
static const char link_local_gid[] = "fe80:0000:0000:0000:0250:56ff:fe00:0001";

static void guest_nic(Tree &t, const GuestVariant &v, const std::string &port,
                      const std::string &slot, const std::string &net, const std::string &ib,
                      const std::string &numa)
{
    Pci vmxnet3, pvrdma;
    std::string path;

    vmxnet3.vendor = pvrdma.vendor = 0x15ad;
    vmxnet3.device = 0x07b0;
    vmxnet3.driver = "vmxnet3";
    vmxnet3.with_numa(numa).with_link("5.0 GT/s PCIe", "32");
    pvrdma.cls = 0x020700;
    pvrdma.device = 0x0820;
    pvrdma.driver = v.vmxnet3 && v.rdma_bound ? "vmw_pvrdma" : "";
    pvrdma.with_numa(numa).with_link("5.0 GT/s PCIe", "32");
    if (v.mellanox) {
        path = t.pci(port, slot + ".0", Pci::nic().with_numa(numa));
        t.net(net, path, {{"mtu", "9000"}, {"speed", "100000"}});
        t.rdma(ib, path, "Ethernet", {{0, link_local_gid, "IB/RoCE v1", net}});
        return;
    }
    if (v.vmxnet3) {
        path = t.pci(port, slot + ".0", vmxnet3);
        t.net(net, path, {{"mtu", "9000"}, {"speed", "10000"}});
    }
    if (v.pvrdma) {
        path = t.pci(port, slot + ".1", pvrdma);
        if (v.vmxnet3 && v.rdma_bound) {
            t.rdma(ib, path, "Ethernet",
                   {{0, link_local_gid, "IB/RoCE v1", net}, {1, ipv4_gid, "RoCE v2", net}},
                   "4: ACTIVE", "10 Gb/sec (4X SDR)");
        }
    }
}

Tree vmware_guest(const GuestVariant &v)
{
    Tree t;
    Pci host, agp, legacy, port = Pci::bridge(0x15ad, 0x07a0);
    std::map<std::string, std::string> port_path; // by "15.0"
    auto numa = [&](const std::string &text, int node) {
        return v.two_nodes ? std::to_string(node) : text;
    };

    host.cls = 0x060000;
    host.vendor = agp.vendor = 0x8086;
    host.device = 0x7190;
    host.with_numa("-1").no_link();
    agp.cls = 0x060400;
    agp.device = 0x7191;
    agp.with_numa("-1").no_link();
    legacy.cls = 0x060401;
    legacy.vendor = 0x15ad;
    legacy.device = 0x0790;
    legacy.with_numa("-1").no_link();
    t.pci("pci0000:00", "0000:00:00.0", host);
    t.pci("pci0000:00", "0000:00:01.0", agp);
    t.pci("pci0000:00", "0000:00:11.0", legacy);
    port.with_numa("-1").with_link("5.0 GT/s PCIe", "32");
    for (int dev = 0x15; dev <= 0x18; dev++) {
        for (int fn = 0; fn < 8; fn++) {
            char bdf[32];

            snprintf(bdf, sizeof bdf, "0000:00:%02x.%d", dev, fn);
            port_path[bdf + 8] = t.pci("pci0000:00", bdf, port);
        }
    }
    t.pci(port_path["15.0"], "0000:03:00.0", Pci::gpu().with_numa(numa(v.gpu_numa, 0)));
    t.pci(port_path["18.0"], "0000:1b:00.0", Pci::gpu().with_numa(numa(v.gpu_numa, 1)));
    guest_nic(t, v, port_path["16.0"], "0000:0b:00", "ens192",
              v.mellanox ? "mlx5_0" : "vmw_pvrdma0", numa(v.nic_numa, 0));
    guest_nic(t, v, port_path["17.0"], "0000:13:00", "ens224",
              v.mellanox ? "mlx5_1" : "vmw_pvrdma1", numa(v.nic_numa, 1));
    t.numa(0, v.two_nodes ? "000f" : "00ff", v.two_nodes ? "0-3" : "0-7",
           v.two_nodes ? "10 20" : "10");
    if (v.two_nodes) {
        t.numa(1, "00f0", "4-7", "20 10");
    }
    t.cpus("GenuineIntel", 6, 106, true);
    t.dmi("VMware, Inc.", "VMware20,1");
    t.module("vmxnet3", "1.7.0.0-k-NAPI");
    if (v.pvrdma) {
        t.module("vmw_pvrdma");
        t.module("ib_core");
        t.module("ib_uverbs");
    }
    if (v.pvrdma && !v.rdma_bound) {
        t.dir("/sys/class/infiniband");
    }
    t.module("nvidia", "535.104.05");
    t.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 "
                                          " 535.104.05  Release Build  (root)\n");
    t.file("/proc/version", "Linux version 5.15.0-91-generic (build@host) (gcc) #101-Ubuntu SMP\n");
    t.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=secret iommu=pt quiet\n");
    t.file("/proc/self/limits",
           "Limit                     Soft Limit           Hard Limit           Units\n"
           "Max open files            1024                 1048576              files\n"
           "Max locked memory         65536                65536                bytes\n");
    return t;
}

Tree server8x8(bool vmd, bool sriov)
{
    Tree t;
    Pci port = Pci::bridge(), sw = Pci::bridge(0x1000, 0xc010);
    int nic = 0;

    for (int socket = 0; socket < 2; socket++) {
        std::string numa = std::to_string(socket);

        port.with_numa(numa);
        sw.with_numa(numa);
        for (int rp = 0; rp < 2; rp++) {
            unsigned base = 0x10 + (unsigned)(socket * 2 + rp) * 0x30;
            char root[32], bdf[32];
            std::string above;

            snprintf(root, sizeof root, "pci0000:%02x", base);
            snprintf(bdf, sizeof bdf, "0000:%02x:01.0", base);
            above = t.pci(root, bdf, port);
            snprintf(bdf, sizeof bdf, "0000:%02x:00.0", base + 1);
            std::vector<std::string> top = t.pcie_switch(above, bdf, base + 2, 2, sw);
            for (unsigned leaf = 0; leaf < 2; leaf++) {
                unsigned up = base + 3 + leaf * 8;

                snprintf(bdf, sizeof bdf, "0000:%02x:00.0", up);
                std::vector<std::string> low = t.pcie_switch(top[1 + leaf], bdf, up + 1, 2, sw);
                snprintf(bdf, sizeof bdf, "0000:%02x:00.0", up + 2);
                t.pci(low[1], bdf, Pci::gpu().with_numa(numa));
                snprintf(bdf, sizeof bdf, "0000:%02x:00.0", up + 3);
                std::string pf = t.pci(low[2], bdf, Pci::nic().with_numa(numa));
                std::string ib = "mlx5_" + std::to_string(nic), net = "ib" + std::to_string(nic);
                t.net(net, pf, {{"type", "32"}, {"mtu", "4092"}});
                t.rdma(ib, pf, "InfiniBand", {{0, link_local_gid, "IB/RoCE v1", ""}}, "4: ACTIVE",
                       "200 Gb/sec (4X HDR)");
                nic++;
                for (int vf = 1; sriov && vf <= 4; vf++) {
                    snprintf(bdf, sizeof bdf, "0000:%02x:00.%d", up + 3, vf);
                    std::string vp = t.pci(low[2], bdf, Pci::nic().with_numa(numa));
                    t.link("/sys/devices/" + vp + "/physfn", "../" + pf.substr(pf.rfind('/') + 1));
                }
                if (sriov) {
                    t.file("/sys/devices/" + pf + "/sriov_totalvfs", "16\n");
                    t.file("/sys/devices/" + pf + "/sriov_numvfs", "4\n");
                }
            }
        }
    }
    if (vmd) {
        Pci ctl, drive;

        ctl.cls = 0x010400;
        ctl.vendor = 0x8086;
        ctl.device = 0x28c0;
        ctl.driver = "vmd";
        ctl.no_link();
        drive.cls = 0x010802;
        drive.vendor = 0x144d;
        drive.device = 0xa80a;
        drive.driver = "nvme";
        std::string v = t.pci("pci0000:10", "0000:10:05.5", ctl);
        std::string rp = t.pci(v + "/pci10000:00", "10000:00:02.0", Pci::bridge().with_numa("0"));
        t.pci(rp, "10000:01:00.0", drive);
    }
    t.numa(0, "000f", "0-3", "10 21");
    t.numa(1, "00f0", "4-7", "21 10");
    t.cpus("GenuineIntel", 6, 143, false);
    t.dmi("Supermicro", "SYS-821GE-TNHR");
    t.module("nvidia", "550.54.15");
    t.module("nvidia_peermem", "550.54.15");
    return t;
}
