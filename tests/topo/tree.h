/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Builds machines for tests. A machine is a set of files and links, which is written as a tar image or a directory.
#ifndef PVN_TESTS_TOPO_TREE_H
#define PVN_TESTS_TOPO_TREE_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "topo/pvn_topo.h"

// The files of one PCI function. If a text is empty the file does not exist.
struct Pci {
    unsigned cls = 0x020000;
    unsigned vendor = 0x15b3, device = 0x101b;
    unsigned subvendor = 0x15b3, subdevice = 0x0001;
    std::string numa = "0";
    std::string driver;
    std::string speed = "16.0 GT/s PCIe", speed_max = "16.0 GT/s PCIe";
    std::string width = "16", width_max = "16";
    std::string config; // bytes of config space
    int group = -1;

    static Pci bridge(unsigned vendor = 0x8086, unsigned device = 0x2030)
    {
        Pci p;
        p.cls = 0x060400;
        p.vendor = vendor;
        p.device = device;
        p.driver = "pcieport";
        return p;
    }
    static Pci gpu(unsigned device = 0x20b2)
    {
        Pci p;
        p.cls = 0x030200;
        p.vendor = 0x10de;
        p.device = device;
        p.driver = "nvidia";
        return p;
    }
    static Pci nic()
    {
        Pci p;
        p.cls = 0x020700;
        p.driver = "mlx5_core";
        return p;
    }
    Pci &with_numa(const std::string &n)
    {
        numa = n;
        return *this;
    }
    Pci &with_link(const std::string &s, const std::string &w)
    {
        speed = speed_max = s;
        width = width_max = w;
        return *this;
    }
    Pci &no_link()
    {
        speed = speed_max = width = width_max = "";
        return *this;
    }
};

// Config space with an Express capability and, if it has 4096 bytes, ACS and ATS.
struct Config {
    int port_type = 0;
    bool relaxed = true;
    int mps_code = 1, mps_max_code = 2, mrrs_code = 2;
    int speed_code = 4, width = 16;
    bool acs = false, ats = false, ats_enabled = false, dsn = false;
    unsigned acs_cap = 0, acs_ctl = 0;
    uint64_t serial = 0;
    size_t bytes = 4096;

    std::string build() const;
};

class Tree
{
  public:
    void file(const std::string &path, const std::string &content);
    void link(const std::string &path, const std::string &target);
    void dir(const std::string &path);     // an empty directory
    void remove(const std::string &path);  // and everything below it
    std::vector<std::string> dirs() const; // all directories that have entries
    bool has(const std::string &path) const
    {
        return nodes.count(path) != 0;
    }

    // Adds a function below dir ("pci0000:17" or the path of the function above, both without
    // "/sys/devices/"). Returns its own path in the same form.
    std::string pci(const std::string &dir, const std::string &bdf, const Pci &p);
    // Adds a switch below the port `above`: an upstream port and `ports` downstream ports. Returns the upstream
    // port's path first, then those of the downstream ports.
    std::vector<std::string> pcie_switch(const std::string &above, const std::string &up_bdf,
                                         unsigned inner_bus, int ports, const Pci &like);
    void net(const std::string &name, const std::string &pci_path,
             const std::map<std::string, std::string> &files = {});
    struct Gid {
        int index;
        std::string raw, type, ndev;
    };
    void rdma(const std::string &name, const std::string &pci_path, const std::string &link_layer,
              const std::vector<Gid> &gids, const std::string &state = "4: ACTIVE",
              const std::string &rate = "100 Gb/sec (4X EDR)");
    void numa(int id, const std::string &cpumap, const std::string &cpulist,
              const std::string &distance);
    void cpus(const std::string &vendor, int family, int model, bool hypervisor, int sockets = 2,
              int per_socket = 4);
    void dmi(const std::string &vendor, const std::string &product);
    // Adds the files besides PCI that every machine has. Each one that is missing would leave a note.
    void lists(bool node = true);
    void module(const std::string &name, const std::string &version = "");

    std::string tar() const;
    void write_dir(const std::string &dir) const;

  private:
    struct Node {
        bool is_link;
        std::string content;
        bool is_dir = false;
    };
    std::map<std::string, Node> nodes; // by path
};

struct TopoDeleter {
    void operator()(pvn_topo *t) const
    {
        pvn_topo_free(t);
    }
};
using Topo = std::unique_ptr<pvn_topo, TopoDeleter>;

// Loads the tree through the tar store. A failure to load fails the test.
Topo load(const Tree &tree, unsigned flags = 0);
Topo load_dir(const std::string &dir);
std::string load_error(const std::string &tar_image, int *rc);

// A temporary directory, which is removed with the object.
class TempDir
{
  public:
    TempDir();
    ~TempDir();
    std::string path;
};

// $PVN_SHARED, else ../shared beside the source tree; "" if there is none.
std::string shared_dir();

// The machines of the tests.
struct GuestVariant {
    std::string nic_numa = "-1", gpu_numa = "-1";
    bool two_nodes = false; // vNUMA: devices at 03/0b on node 0, at 13/1b on node 1
    bool vmxnet3 = true;    // false: the PVRDMA function without its vmxnet3 partner
    bool pvrdma = true;
    bool mellanox = false;  // a passthrough NIC replaces PVRDMA
    bool rdma_bound = true; // the driver has made RDMA devices
};
Tree vmware_guest(const GuestVariant &v);
// A server with 8 GPUs and 8 NICs. It has 2 sockets with 2 root ports each. A switch is below each root port, and below
// that are two switches with one GPU and one NIC each. vmd adds NVMe drives in a 5-digit domain; sriov adds 4 virtual
// functions per NIC.
Tree server8x8(bool vmd, bool sriov);

#endif
