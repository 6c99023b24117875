// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "base/addr.h"
#include "base/dev_list.h"
#include "base/result.h"
#include "net-tcp/iface.h"
#include "net-tcp/iface_priv.h"
}

namespace
{

/* A simulated machine; add() gives it an interface. */
class Machine
{
  public:
    ~Machine()
    {
        pvn_iface_free(&table);
    }

    pvn_iface &add(const std::string &name, pvn_iface_kind kind,
                   const std::vector<std::string> &addrs)
    {
        pvn_iface *iface = pvn_iface_append(&table);

        snprintf(iface->name, sizeof(iface->name), "%s", name.c_str());
        iface->ifindex = 1000000 + (unsigned)table.n; /* above the index of any real interface */
        iface->kind = kind;
        iface->up = iface->running = true;
        iface->speed_known = true;
        iface->speed_mbps = 25000;
        for (const auto &text : addrs)
            add_addr(*iface, text);
        return *iface;
    }

    static void add_labelled(pvn_iface &iface, const std::string &text, const char *label)
    {
        add_addr(iface, text);
        snprintf(iface.addrs[iface.naddrs - 1].label, IF_NAMESIZE, "%s", label);
    }

    static void add_addr(pvn_iface &iface, const std::string &text, bool tentative = false,
                         bool deprecated = false)
    {
        const size_t slash = text.find('/');
        sockaddr_storage ss;

        ASSERT_EQ(0, pvn_addr_parse(text.substr(0, slash).c_str(), &ss, nullptr)) << text;
        pvn_iface_add_addr(&iface, (sockaddr *)&ss,
                           slash == std::string::npos ? 24
                                                      : (unsigned)atoi(text.c_str() + slash + 1),
                           tentative, deprecated);
    }

    /* Returns "eth0=192.0.2.1 eth1=...", or the error's text. */
    std::string choose(const char *ifname = "", int family = AF_UNSPEC, size_t max = 16)
    {
        std::vector<pvn_iface_pick> picks(max);
        char left[512] = "";
        char text[PVN_ADDR_TEXT_LEN];
        std::string out;

        pvn_err_clear(&err);
        why.clear();
        const int n =
            pvn_iface_choose(&table, ifname, family, picks.data(), max, left, sizeof(left), &err);
        left_out = left;
        if (n < 0) {
            EXPECT_EQ(-ENODEV, n);
            EXPECT_EQ(PVN_RESULT_INVALID_USAGE, pvn_result_of(n, &err));
            return err.reason[0];
        }
        EXPECT_LT(0, n);
        for (int i = 0; i < n; i++) {
            out += std::string(i ? " " : "") + picks[i].iface->name + "=" +
                   pvn_addr_format_host((sockaddr *)&picks[i].addr, text, sizeof(text));
            why[picks[i].iface->name] = picks[i].why;
            more[picks[i].iface->name].clear();
            for (int k = 0; k < picks[i].nmore; k++)
                more[picks[i].iface->name] +=
                    (k ? " " : "") +
                    std::string(pvn_addr_format_host((const sockaddr *)&picks[i].more[k]->ss, text,
                                                     sizeof(text)));
        }
        return out;
    }

    pvn_iface_table table = {};
    pvn_err err = PVN_ERR_INIT;
    std::string left_out;
    std::map<std::string, std::string> why, more;
};

class Iface : public ::testing::Test
{
  protected:
    Machine m;
};

TEST_F(Iface, PhysicalBeatsEverything)
{
    m.add("lo", PVN_IFACE_LOOPBACK, {"127.0.0.1/8", "::1/128"});
    m.add("docker0", PVN_IFACE_BRIDGE, {"172.17.0.1/16"});
    m.add("veth12ab", PVN_IFACE_VETH, {"fe80::1"});
    m.add("tun0", PVN_IFACE_TUNNEL, {"10.8.0.2/24"});
    m.add("dummy0", PVN_IFACE_OTHER, {"10.9.0.1/24"});
    m.add("ens192", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"}).default_route = true;
    EXPECT_EQ("ens192=192.0.2.1", m.choose());
    EXPECT_EQ("physical, default route", m.why["ens192"]);
    EXPECT_EQ(
        "docker0 (bridge without uplink), veth12ab (only a link-local address), tun0 (tunnel), "
        "dummy0 (virtual, leads nowhere), lo (loopback)",
        m.left_out);
}

TEST_F(Iface, NamesDoNotMatterKindsDo)
{
    m.add("docker7", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"});
    m.add("eth0", PVN_IFACE_TUNNEL, {"10.8.0.1/24"});
    EXPECT_EQ("docker7=192.0.2.1", m.choose());
}

TEST_F(Iface, ContainerWhoseOnlyInterfaceIsVeth)
{
    m.add("lo", PVN_IFACE_LOOPBACK, {"127.0.0.1/8"});
    m.add("eth0", PVN_IFACE_VETH, {"10.244.1.7/24"}).default_route = true;
    EXPECT_EQ("eth0=10.244.1.7", m.choose());
    EXPECT_EQ("veth, default route", m.why["eth0"]);
}

TEST_F(Iface, ContainerWithSecondaryNetworkUsesThat)
{
    m.add("eth0", PVN_IFACE_VETH, {"10.244.1.7/24"}).default_route = true;
    m.add("net1", PVN_IFACE_MACVLAN, {"192.0.2.9/24"});
    EXPECT_EQ("net1=192.0.2.9", m.choose());
}

TEST_F(Iface, BridgeWithUplinkIsTheHostsInterface)
{
    pvn_iface &bridge = m.add("br0", PVN_IFACE_BRIDGE, {"192.0.2.1/24"});
    bridge.has_uplink = true;
    m.add("eth0", PVN_IFACE_PHYSICAL, {}).master = 1000001;
    m.add("virbr0", PVN_IFACE_BRIDGE, {"192.168.122.1/24"});
    EXPECT_EQ("br0=192.0.2.1", m.choose());
    EXPECT_EQ("eth0 (port of a bond or bridge), virbr0 (bridge without uplink)", m.left_out);
}

TEST_F(Iface, PortsOfABondAreNotOfferedBesideIt)
{
    m.add("bond0", PVN_IFACE_BOND, {"192.0.2.1/24"});
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.2/24"}).master = 1000001;
    EXPECT_EQ("bond0=192.0.2.1", m.choose());
}

TEST_F(Iface, MemberOfAVrfRemainsAnInterface)
{
    m.add("vrf-blue", PVN_IFACE_OTHER, {});
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.2/24"}).master = 1000001;
    EXPECT_EQ("eth0=192.0.2.2", m.choose());
}

TEST_F(Iface, LoopbackOnlyWhenNothingElse)
{
    m.add("lo", PVN_IFACE_LOOPBACK, {"127.0.0.1/8", "::1/128"});
    EXPECT_EQ("lo=127.0.0.1", m.choose());
    EXPECT_EQ("lo=::1", m.choose("", AF_INET6));
    m.add("docker0", PVN_IFACE_BRIDGE, {"172.17.0.1/16"});
    EXPECT_EQ("docker0=172.17.0.1", m.choose());
    EXPECT_EQ("lo=127.0.0.1", m.choose("lo"));
}

TEST_F(Iface, DownAndUnpluggedAndAddresslessAreLeftOut)
{
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"}).up = false;
    m.add("eth1", PVN_IFACE_PHYSICAL, {"192.0.2.2/24"}).running = false;
    m.add("eth2", PVN_IFACE_PHYSICAL, {});
    pvn_iface &eth3 = m.add("eth3", PVN_IFACE_PHYSICAL, {});
    Machine::add_addr(eth3, "2001:db8::3/64", true);
    EXPECT_EQ("no usable network interface: eth0 (down), eth1 (no link), eth2 (no address), "
              "eth3 (its addresses are still tentative)",
              m.choose());
    m.add("eth4", PVN_IFACE_PHYSICAL, {"192.0.2.4/24"});
    EXPECT_EQ("eth4=192.0.2.4", m.choose());
}

TEST_F(Iface, AMachineWithoutInterfacesIsSaid)
{
    EXPECT_EQ("no usable network interface: there is none", m.choose());
    EXPECT_EQ("no interface matches NCCL_SOCKET_IFNAME=eth0; there are: none", m.choose("eth0"));
}

TEST_F(Iface, LinkLocalOnlyWhereNobodyHasBetter)
{
    m.add("usb0", PVN_IFACE_PHYSICAL, {"169.254.0.2/16"});
    m.add("eth0", PVN_IFACE_PHYSICAL, {"fe80::7"});
    EXPECT_EQ("usb0=169.254.0.2 eth0=fe80::7%1000002", m.choose());
    m.add("eth1", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"});
    EXPECT_EQ("eth1=192.0.2.1", m.choose());
    m.table.v[2].kind =
        PVN_IFACE_BRIDGE; /* docker0 leads nowhere: no reason to give up a real link */
    EXPECT_EQ("usb0=169.254.0.2 eth0=fe80::7%1000002", m.choose());
}

TEST_F(Iface, TheBestAddressOfAnInterfaceIsTaken)
{
    pvn_iface &eth0 = m.add("eth0", PVN_IFACE_PHYSICAL, {"fe80::7"});
    Machine::add_addr(eth0, "169.254.9.9/16");
    EXPECT_EQ("eth0=169.254.9.9", m.choose());
    Machine::add_addr(eth0, "2001:db8::1/64", false, true);
    EXPECT_EQ("eth0=2001:db8::1", m.choose());
    Machine::add_addr(eth0, "2001:db8::2/64");
    EXPECT_EQ("eth0=2001:db8::2", m.choose());
    Machine::add_addr(eth0, "192.0.2.1/24");
    Machine::add_addr(eth0, "192.0.2.2/24");
    EXPECT_EQ("eth0=192.0.2.1", m.choose()) << "the primary one";
    EXPECT_EQ("eth0=2001:db8::2", m.choose("", AF_INET6));
}

TEST_F(Iface, FamilyIsBinding)
{
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"});
    EXPECT_EQ("no usable network interface with an IPv6 address: eth0 (no usable IPv6 address)",
              m.choose("", AF_INET6));
    EXPECT_EQ("no interface of NCCL_SOCKET_IFNAME=eth0 is usable with an IPv6 address: "
              "eth0 (no usable IPv6 address)",
              m.choose("eth0", AF_INET6));
    m.add("eth1", PVN_IFACE_PHYSICAL, {"2001:db8::1/64"});
    EXPECT_EQ("eth1=2001:db8::1", m.choose("", AF_INET6));
    EXPECT_EQ("eth0=192.0.2.1", m.choose("", AF_INET));
    EXPECT_EQ("eth0=192.0.2.1 eth1=2001:db8::1", m.choose());
}

TEST_F(Iface, TentativeIsNotUsedDuplicateIsStoredOnce)
{
    pvn_iface &eth0 = m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.1/24", "192.0.2.1/24"});
    Machine::add_addr(eth0, "2001:db8::1/64", true);
    EXPECT_EQ(2, eth0.naddrs);
    EXPECT_EQ("no usable network interface with an IPv6 address: eth0 (no usable IPv6 address)",
              m.choose("", AF_INET6));
}

TEST_F(Iface, MoreAddressesThanRoom)
{
    pvn_iface &eth0 = m.add("eth0", PVN_IFACE_PHYSICAL, {});
    for (int i = 1; i < 200; i++)
        Machine::add_addr(eth0, "10.0.0." + std::to_string(i));
    EXPECT_EQ(PVN_IFACE_MAX_ADDRS, eth0.naddrs);
    EXPECT_EQ("eth0=10.0.0.1", m.choose());
}

TEST_F(Iface, SharedNetworkIsSaid)
{
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"});
    m.add("eth1", PVN_IFACE_PHYSICAL, {"192.0.2.2/24"});
    m.add("eth2", PVN_IFACE_PHYSICAL, {"198.51.100.1/24"});
    m.choose();
    EXPECT_EQ("physical, same network as eth1", m.why["eth0"]);
    EXPECT_EQ("physical, same network as eth0", m.why["eth1"]);
    EXPECT_EQ("physical", m.why["eth2"]);
}

// One of two interfaces in a network is not chosen. The kernel may still send by it.
TEST_F(Iface, SharedNetworkOfOneThatIsNotChosen)
{
    m.add("eno1", PVN_IFACE_PHYSICAL, {"192.168.3.1/20"});
    m.add("ten0", PVN_IFACE_PHYSICAL, {"192.168.5.1/20"});
    EXPECT_EQ("ten0=192.168.5.1", m.choose("ten0"));
    EXPECT_EQ("named by NCCL_SOCKET_IFNAME, same network as eno1", m.why["ten0"]);
    m.table.v[0].running = false;
    m.choose("ten0");
    EXPECT_EQ("named by NCCL_SOCKET_IFNAME", m.why["ten0"]);
}

// Addresses of keepalived and kube-vip may move to another machine.
TEST_F(Iface, VirtualAddressesComeBehindThoseOfNetworks)
{
    m.add("eth0", PVN_IFACE_PHYSICAL, {"203.0.113.7/32", "10.0.0.1/24", "2001:db8::100/128"});
    m.add("eth1", PVN_IFACE_PHYSICAL, {"2001:db8:99::100/128", "2001:db8:5::1/64"});
    m.add("eth2", PVN_IFACE_PHYSICAL, {"203.0.113.8/32", "2001:db8:6::1/64"});
    m.add("eth3", PVN_IFACE_PHYSICAL, {"203.0.113.9/32"});
    EXPECT_EQ("eth0=10.0.0.1 eth1=2001:db8:5::1 eth2=203.0.113.8 eth3=203.0.113.9", m.choose());
}

TEST_F(Iface, OtherNetworksOfAnInterface)
{
    m.add("eth0", PVN_IFACE_PHYSICAL,
          {"203.0.113.7/32", "203.0.113.1/24", "2001:db8::1/64", "203.0.113.2/24", "10.0.0.1/24",
           "169.254.7.7/16", "10.0.0.2/24", "10.0.1.1/24", "10.0.2.1/24"});
    m.add("eth1", PVN_IFACE_PHYSICAL, {"2001:db8:1::1/64", "fe80::1/64", "fd00::1/64"});
    EXPECT_EQ("eth0=203.0.113.1 eth1=2001:db8:1::1", m.choose());
    EXPECT_EQ("10.0.0.1 10.0.1.1", m.more["eth0"]);
    EXPECT_EQ("fd00::1", m.more["eth1"]);
    snprintf(m.table.v[0].addrs[7].label, IF_NAMESIZE, "eth0:1");
    EXPECT_EQ("eth0=10.0.1.1", m.choose("eth0:1"));
    EXPECT_EQ("", m.more["eth0"]);
}

// The host uses BGP, so its address is on loopback.
TEST_F(Iface, TheHostsAddressIsOnLoopback)
{
    m.add("lo", PVN_IFACE_LOOPBACK, {"127.0.0.1/8", "10.255.0.1/32", "::1/128"});
    m.add("lan0", PVN_IFACE_PHYSICAL, {"fe80::1/64"});
    m.add("lan1", PVN_IFACE_PHYSICAL, {"fe80::2/64"});
    EXPECT_EQ("lan0=10.255.0.1", m.choose());
    EXPECT_EQ("lan1 (the host's address, on lo, is in use already), lo (loopback)", m.left_out);
    EXPECT_EQ("physical, by the address of lo", m.why["lan0"]);
    EXPECT_EQ("lan1=10.255.0.1", m.choose("lan1"));
    EXPECT_EQ("lo=10.255.0.1", m.choose("lo"));
    EXPECT_EQ("lan0=fe80::1%1000002 lan1=fe80::2%1000003", m.choose("", AF_INET6));
    m.add("usb0", PVN_IFACE_PHYSICAL, {"fe80::3/64"});
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"});
    EXPECT_EQ("eth0=192.0.2.1", m.choose());
}

TEST_F(Iface, ALabelNamesItsAddress)
{
    m.add("lo", PVN_IFACE_LOOPBACK, {"127.0.0.1/8"});
    pvn_iface &eth0 = m.add("eth0", PVN_IFACE_PHYSICAL, {});
    Machine::add_labelled(eth0, "203.0.113.1/24", "eth0");
    Machine::add_labelled(eth0, "10.0.0.1/24", "eth0:1");
    Machine::add_labelled(eth0, "10.0.1.1/24", "eth0:12");
    m.add("eth1", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"});
    EXPECT_EQ("eth0=203.0.113.1", m.choose("eth0"));
    EXPECT_EQ("eth0=10.0.0.1", m.choose("eth0:1"));
    EXPECT_EQ("eth0=10.0.1.1", m.choose("=eth0:12"));
    EXPECT_EQ("eth0=10.0.0.1 eth1=192.0.2.1", m.choose("eth1,eth0:1"));
    EXPECT_EQ("eth0=203.0.113.1 eth1=192.0.2.1", m.choose("^eth0:1"));
    EXPECT_EQ(
        "no interface matches NCCL_SOCKET_IFNAME=eth0:2; there are: lo, eth0, eth0:1, eth0:12, eth1 "
        "(a name with a colon is the label of an address)",
        m.choose("eth0:2"));
    EXPECT_EQ(0u, m.choose("eth1:1").find("no interface matches"));
    m.table.v[1].naddrs = 0;
    Machine::add_labelled(m.table.v[1], "10.0.0.1/24", "eth0:1");
    EXPECT_EQ("eth1=192.0.2.1", m.choose("^eth0:1"));
    EXPECT_EQ("eth0 (its address is excluded by NCCL_SOCKET_IFNAME), lo (loopback)", m.left_out);
}

TEST(DevList, MarkersBehindACommaAreFound)
{
    size_t len = 0;
    EXPECT_EQ(nullptr, pvn_dev_list_misplaced("", &len));
    EXPECT_EQ(nullptr, pvn_dev_list_misplaced("^=docker0,lo", &len));
    const char *item = pvn_dev_list_misplaced("^docker0, ^lo,eth0", &len);
    ASSERT_NE(nullptr, item);
    EXPECT_EQ("^lo", std::string(item, len));
    item = pvn_dev_list_misplaced("eth0,=eth1", &len);
    ASSERT_NE(nullptr, item);
    EXPECT_EQ("=eth1", std::string(item, len));
}

TEST_F(Iface, UnknownSpeedIsSaid)
{
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"}).speed_known = false;
    m.table.v[0].speed_mbps = PVN_IFACE_DEFAULT_MBPS;
    m.choose();
    EXPECT_EQ("physical, speed unknown (10000 Mb/s assumed)", m.why["eth0"]);
}

struct Names {
    const char *ifname;
    const char *want; /* of eth0 eth1 eth10 ib0 docker0 lo; or the start of an error */
};

class IfaceNames : public Iface, public ::testing::WithParamInterface<Names>
{
};

TEST_P(IfaceNames, AsNcclReadsThemButLabels)
{
    m.add("lo", PVN_IFACE_LOOPBACK, {"127.0.0.1/8"});
    m.add("eth0", PVN_IFACE_PHYSICAL, {"10.0.0.1"});
    m.add("eth1", PVN_IFACE_PHYSICAL, {"10.0.1.1"});
    m.add("eth10", PVN_IFACE_PHYSICAL, {"10.0.10.1"});
    m.add("ib0", PVN_IFACE_PHYSICAL, {"10.1.0.1"});
    m.add("docker0", PVN_IFACE_BRIDGE, {"172.17.0.1"});

    std::string names;
    const std::string got = m.choose(GetParam().ifname);
    if (m.err.code) {
        EXPECT_EQ(0u, got.find(GetParam().want)) << got;
        return;
    }
    for (size_t at = 0; at < got.size();) {
        names += (names.empty() ? "" : " ") + got.substr(at, got.find('=', at) - at);
        const size_t space = got.find(' ', at);
        at = space == std::string::npos ? got.size() : space + 1;
    }
    EXPECT_EQ(GetParam().want, names);
    for (const char *name : {"eth0", "eth1", "eth10", "ib0"})
        EXPECT_EQ((" " + names + " ").find(std::string(" ") + name + " ") != std::string::npos,
                  pvn_dev_list_matches(GetParam().ifname, name, 0))
            << name;
}

INSTANTIATE_TEST_SUITE_P(
    Table, IfaceNames,
    ::testing::Values(
        Names{"eth", "eth0 eth1 eth10"}, Names{"eth1", "eth1 eth10"}, Names{"=eth1", "eth1"},
        Names{"=eth1,eth0", "eth0 eth1"}, Names{"eth0,ib", "eth0 ib0"}, Names{"^eth", "ib0"},
        Names{"^eth1", "eth0 ib0"}, Names{"^=eth1", "eth0 eth10 ib0"},
        Names{"^docker,lo", "eth0 eth1 eth10 ib0"}, Names{"docker", "docker0"}, Names{"lo", "lo"},
        Names{"^docker", "eth0 eth1 eth10 ib0"}, Names{"^eth,ib,docker", "lo"},
        Names{" eth0 , ib0 ", "eth0 ib0"}, Names{"eth0:1", "no interface matches"},
        Names{"eth0,,", "eth0"}, Names{",", "eth0 eth1 eth10 ib0"},
        Names{"", "eth0 eth1 eth10 ib0"}, Names{"^", "eth0 eth1 eth10 ib0"},
        Names{"=", "eth0 eth1 eth10 ib0"}, Names{"^=", "eth0 eth1 eth10 ib0"},
        Names{"eth0,nothere", "eth0"},
        Names{"=eth", "no interface matches NCCL_SOCKET_IFNAME==eth; there are: lo, eth0, eth1, "
                      "eth10, ib0, docker0"},
        Names{"=^eth0", "no interface matches"},
        Names{"ens", "no interface matches NCCL_SOCKET_IFNAME=ens; there are: lo, eth0"},
        Names{"^eth,ib,docker,lo", "no interface matches"},
        Names{"a_name_that_is_far_longer_than_any_interface_name_could_ever_be_in_linux_or_"
              "elsewhere_and_then_some_more_of_it",
              "no interface matches"}));

TEST_F(Iface, NamedButDownSaysSo)
{
    m.add("eth0", PVN_IFACE_PHYSICAL, {"10.0.0.1"}).up = false;
    m.add("eth1", PVN_IFACE_PHYSICAL, {"10.0.1.1"});
    EXPECT_EQ("no interface of NCCL_SOCKET_IFNAME=eth0 is usable: eth0 (down)", m.choose("eth0"));
}

TEST_F(Iface, AThousandInterfacesAreCutInTheText)
{
    m.add("lo", PVN_IFACE_LOOPBACK, {"127.0.0.1/8"});
    for (int i = 0; i < 1000; i++)
        m.add("veth" + std::to_string(i), PVN_IFACE_VETH,
              {"10." + std::to_string(i / 250) + "." + std::to_string(i % 250) + ".1/24"});
    m.add("eth0", PVN_IFACE_PHYSICAL, {"192.0.2.1/24"});
    EXPECT_EQ("eth0=192.0.2.1", m.choose());
    EXPECT_EQ(511u, m.left_out.size()) << "cut, not overrun";
    EXPECT_EQ("veth3=10.0.3.1", m.choose("=veth3"));
    const std::string error = m.choose("nope");
    EXPECT_NE(std::string::npos, error.find(" more")) << error;

    m.table.v[1001].up = false;
    const std::string picks = m.choose("", AF_UNSPEC, 4);
    EXPECT_EQ("veth0=10.0.0.1 veth1=10.0.1.1 veth2=10.0.2.1 veth3=10.0.3.1", picks);
    EXPECT_NE(std::string::npos, m.left_out.find("veth4 (too many)"));
}

TEST_F(Iface, InterfacesAreFoundByIndexAndName)
{
    m.add("eth0", PVN_IFACE_PHYSICAL, {});
    m.add("eth1", PVN_IFACE_BOND, {});
    EXPECT_STREQ("eth1", pvn_iface_by_index(&m.table, 1000002)->name);
    EXPECT_EQ(1000002u, pvn_iface_by_name(&m.table, "eth1")->ifindex);
    EXPECT_EQ(nullptr, pvn_iface_by_index(&m.table, 1000003));
    EXPECT_EQ(nullptr, pvn_iface_by_name(&m.table, "eth"));
}

TEST(IfaceKind, WordsOfNetlinkAndEthtool)
{
    pvn_iface_kind kind;

    ASSERT_TRUE(pvn_iface_kind_from_name("bonding", &kind));
    EXPECT_EQ(PVN_IFACE_BOND, kind);
    ASSERT_TRUE(pvn_iface_kind_from_name("netkit", &kind));
    EXPECT_EQ(PVN_IFACE_VETH, kind);
    EXPECT_FALSE(pvn_iface_kind_from_name("vmxnet3", &kind));
    EXPECT_FALSE(pvn_iface_kind_from_name("", &kind));
    for (int k = 0; k < PVN_IFACE_KINDS; k++)
        EXPECT_STRNE("?", pvn_iface_kind_name((pvn_iface_kind)k));
}

/* If a source fails, it leaves no table behind, and its reason is passed on. */
TEST(IfaceSource, FailureIsPassedOn)
{
    const pvn_iface_source failing = {
        [](void *, pvn_iface_table *table, pvn_err *err) {
            EXPECT_NE(nullptr, pvn_iface_append(table));
            return pvn_err_set(err, -EMFILE, "made up");
        },
        [](void *, const sockaddr *, pvn_iface_route *, pvn_err *) { return -ENETUNREACH; },
        nullptr};
    pvn_iface_table table;
    pvn_err err = PVN_ERR_INIT;

    EXPECT_EQ(-EMFILE, pvn_iface_load(&failing, &table, &err));
    EXPECT_EQ(nullptr, table.v);
    EXPECT_STREQ("made up", err.reason[0]);

    sockaddr_storage peer;
    pvn_iface_route route;
    ASSERT_EQ(0, pvn_addr_parse("192.0.2.7:4000", &peer, nullptr));
    EXPECT_EQ(-ENETUNREACH, pvn_iface_for_peer(&failing, (sockaddr *)&peer, &route, &err));
    char text[PVN_ERR_TEXT_LEN];
    pvn_err_format(&err, text, sizeof(text));
    EXPECT_EQ(0u, std::string(text).find("no route to 192.0.2.7: Network is unreachable")) << text;
    EXPECT_NE(nullptr, strstr(text, "ip route get")) << text;

    peer.ss_family = AF_UNIX;
    EXPECT_EQ(-EAFNOSUPPORT, pvn_iface_for_peer(&failing, (sockaddr *)&peer, &route, &err));
}

TEST(IfaceSource, WithoutLibnlThePlainOneServes)
{
    char why[256] = "";

    EXPECT_EQ(nullptr, pvn_iface_source_netlink("libnothing.so.0", why, sizeof(why)));
    EXPECT_NE(nullptr, strstr(why, "libnothing.so.0")) << why;
}

} // namespace
