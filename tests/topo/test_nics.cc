// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests which interfaces of a made-up machine count as NICs, and at which PCI function each of them is.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/topo/tree.h"
#include "topo/nccl/nic.h"

namespace
{

using Files = std::map<std::string, std::string>;

std::string ethernet(Tree &t, const std::string &name, const std::string &bdf,
                     const std::string &state)
{
    std::string path = t.pci("pci0000:00", bdf, Pci());
    t.net(name, path, {{"operstate", state}, {"carrier", state == "up" ? "1" : "0"}});
    return "/sys/devices/" + path + "/net/" + name;
}

// Makes a machine with eth0 at 01:00.0 and eth1 at 02:00.0, both members of an interface of the given name and files.
Tree two_members(const std::string &state0, const std::string &state1, const std::string &name,
                 const Files &files)
{
    Tree t;
    t.net(name, "", files);
    for (const std::string &member :
         {ethernet(t, "eth0", "0000:01:00.0", state0), ethernet(t, "eth1", "0000:02:00.0", state1)})
        t.link(member + "/master", "/sys/class/net/" + name);
    return t;
}

// The NICs without an RDMA device, each as "name bdf", in NCCL's order.
std::string nics(const Tree &tree)
{
    Topo t = load(tree);
    pvn_topo_nics list = {};
    std::string text;
    if (t == nullptr)
        return "not loaded";
    EXPECT_EQ(0, pvn_topo_nics_find(t.get(), PVN_TOPO_NICS_AUTO, &list));
    for (int i = 0; i < list.n; i++)
        text += std::string(i ? ", " : "") + list.list[i].name + " " +
                (list.list[i].pci >= 0 ? t->pci[list.list[i].pci].bdf : "nowhere");
    pvn_topo_nics_free(&list);
    return text;
}

TEST(Bond, IsAtTheMemberThatCarriesItsTraffic)
{
    const Files bond = {{"uevent", "DEVTYPE=bond"}};
    Files backup = {{"uevent", "DEVTYPE=bond"}, {"bonding/active_slave", "eth1"}};
    EXPECT_EQ("bond0 0000:02:00.0", nics(two_members("down", "up", "bond0", backup)));
    EXPECT_EQ("bond0 0000:02:00.0", nics(two_members("up", "up", "bond0", backup)));
    EXPECT_EQ("bond0 0000:02:00.0", nics(two_members("down", "up", "bond0", bond)));
    EXPECT_EQ("bond0 0000:01:00.0", nics(two_members("up", "up", "bond0", bond)));
    EXPECT_EQ("bond0 0000:01:00.0", nics(two_members("down", "down", "bond0", bond)));
    EXPECT_EQ("team0 0000:02:00.0", nics(two_members("down", "up", "team0", {})));
    backup["bonding/active_slave"] = "gone";
    EXPECT_EQ("bond0 0000:01:00.0", nics(two_members("up", "up", "bond0", backup)));
}

TEST(Bond, AVlanOnItIsAtTheSameMember)
{
    Tree t = two_members("up", "up", "bond0",
                         {{"uevent", "DEVTYPE=bond"}, {"bonding/active_slave", "eth1"}});
    t.net("bond0.7", "", {{"uevent", "DEVTYPE=vlan"}, {"ifindex", "9"}});
    t.link("/sys/devices/virtual/net/bond0.7/lower_bond0", "/sys/class/net/bond0");
    Topo topo = load(t);
    const pvn_topo_nic_device device = [] {
        pvn_topo_nic_device d = {};
        d.name = d.ifname = "bond0.7";
        d.ifindex = 9;
        return d;
    }();
    pvn_topo_nics list = {};
    ASSERT_EQ(0, pvn_topo_nics_of_devices(topo.get(), &device, 1, &list));
    ASSERT_EQ(1, list.n);
    EXPECT_EQ(pvn_topo_find_pci(topo.get(), "0000:02:00.0"), list.list[0].pci);
    pvn_topo_nics_free(&list);
}

// Only a bond or team takes its members' place. Members of a bridge, of Open vSwitch and of a VRF remain NICs.
TEST(Masters, OthersThanBondsLeaveTheirMembers)
{
    const std::string both = "eth0 0000:01:00.0, eth1 0000:02:00.0";
    const Files vrf = {{"flags", "0x4c1"}}, team = {{"flags", "0x1003"}};
    EXPECT_EQ(both, nics(two_members("up", "up", "ovs-system", {{"operstate", "down"}})));
    EXPECT_EQ(both, nics(two_members("up", "up", "blue", vrf)));
    EXPECT_EQ(both, nics(two_members("up", "up", "blue", {{"uevent", "DEVTYPE=vrf"}})));
    EXPECT_EQ(both, nics(two_members("up", "up", "br0", {{"uevent", "DEVTYPE=bridge"}})));
    EXPECT_EQ("team0 0000:01:00.0", nics(two_members("up", "up", "team0", team)));
}

// Hyper-V's interface is the master of the virtual function that carries its traffic.
TEST(Masters, AnInterfaceAboveItsVirtualFunctionTakesItsPlace)
{
    Tree t;
    std::string synthetic = "/sys/devices/vmbus/1/net/eth0";
    t.link("/sys/class/net/eth0", synthetic);
    t.link(synthetic + "/device", "/sys/devices/vmbus/1");
    for (const char *file : {"type", "carrier"})
        t.file(synthetic + "/" + file, "1\n");
    t.link(ethernet(t, "vf0", "0000:02:00.0", "up") + "/master", synthetic);
    EXPECT_EQ("eth0 0000:02:00.0", nics(t));
}

} // namespace
