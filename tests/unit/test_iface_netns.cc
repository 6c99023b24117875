// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The sources of interfaces against real kernel interfaces, in network namespaces of their own. */
#include <gtest/gtest.h>

#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "support/netns.h"

extern "C" {
#include "base/addr.h"
#include "net-tcp/iface.h"
#include "net-tcp/iface_priv.h"
}

namespace
{

using pvn_test::in_netns;
using pvn_test::links_run;
using pvn_test::sh;

const char *const nl_lib = "libnl-route-3.so.200";

class IfaceNetns : public ::testing::TestWithParam<const char *>
{
  protected:
    ~IfaceNetns() override
    {
        pvn_iface_free(&table);
    }

    void SetUp() override
    {
        char why[256] = "";

        source = strcmp(GetParam(), "netlink") == 0
                     ? pvn_iface_source_netlink(nl_lib, why, sizeof(why))
                     : &pvn_iface_source_plain;
        if (!source)
            GTEST_SKIP() << why;
    }

    void load()
    {
        pvn_err err = PVN_ERR_INIT;

        pvn_iface_free(&table);
        ASSERT_EQ(0, pvn_iface_load(source, &table, &err)) << err.reason[0];
    }

    const pvn_iface *get(const char *name)
    {
        const pvn_iface *iface = pvn_iface_by_name(&table, name);

        EXPECT_NE(nullptr, iface) << name;
        return iface;
    }

    /* Returns the interfaces and addresses that are chosen, by `ifname` or automatically. */
    std::string choose(const char *ifname = "", int family = AF_UNSPEC)
    {
        pvn_iface_pick picks[16];
        pvn_err err = PVN_ERR_INIT;
        std::string out;
        const int n = pvn_iface_choose(&table, ifname, family, picks, 16, nullptr, 0, &err);

        if (n < 0)
            return err.reason[0];
        for (int i = 0; i < n; i++) {
            char text[PVN_ADDR_TEXT_LEN];
            out += std::string(i ? " " : "") + picks[i].iface->name + "=" +
                   pvn_addr_format_host((sockaddr *)&picks[i].addr, text, sizeof(text));
        }
        return out;
    }

    int route(const char *to, pvn_iface_route *out)
    {
        sockaddr_storage ss;

        EXPECT_EQ(0, pvn_addr_parse(to, &ss, nullptr)) << to;
        return pvn_iface_for_peer(source, (sockaddr *)&ss, out, nullptr);
    }

    static std::string host(const sockaddr_storage &ss)
    {
        char text[PVN_ADDR_TEXT_LEN];

        return pvn_addr_format_host((const sockaddr *)&ss, text, sizeof(text));
    }

    const pvn_iface_source *source = nullptr;
    pvn_iface_table table = {};
};

/* Switches links on without the link-local addresses that the kernel would generate. */
bool up(const std::string &names)
{
    return sh("for i in " + names +
              "; do ip link set $i addrgenmode none && ip link set $i up || exit 1; done");
}

bool up_and_running(const std::string &names)
{
    return up(names) && links_run(names);
}

/* Makes a link. That is the only means to find out if the kernel supports its type. */
bool make(const std::string &what)
{
    return sh("ip link add " + what + " 2>/dev/null");
}

#define RUN_IN_NETNS(...)                                                                          \
    do {                                                                                           \
        const std::string no_netns = in_netns([&] { __VA_ARGS__ });                                \
        if (!no_netns.empty())                                                                     \
            GTEST_SKIP() << no_netns;                                                              \
    } while (0)

TEST_P(IfaceNetns, LoopbackAloneIsTakenOnceItIsUp)
{
    RUN_IN_NETNS({
        load();
        EXPECT_EQ(PVN_IFACE_LOOPBACK, get("lo")->kind);
        EXPECT_FALSE(get("lo")->up);
        EXPECT_NE(std::string::npos, choose().find("lo (down)"));
        ASSERT_TRUE(sh("ip link set lo up"));
        load();
        EXPECT_EQ("lo=127.0.0.1", choose());
        EXPECT_EQ("lo=::1", choose("", AF_INET6));
    });
}

/* A veth is the only interface, as in benchmarks and plain containers. */
TEST_P(IfaceNetns, AVethIsTakenOnceBothEndsAreUp)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(sh("ip link set lo up"));
        ASSERT_TRUE(make("veth0 type veth peer name veth1"));
        ASSERT_TRUE(sh("ip addr add 10.7.0.1/24 dev veth0"));
        ASSERT_TRUE(sh("ip -6 addr add fd07::1/64 dev veth0 nodad"));
        load();
        EXPECT_FALSE(get("veth0")->up);
        EXPECT_EQ("lo=127.0.0.1", choose());
        ASSERT_TRUE(up("veth0") && links_run("veth0", false));
        load();
        EXPECT_FALSE(get("veth0")->running) << "the other end is down";
        ASSERT_TRUE(up("veth1") && links_run("veth0 veth1"));
        load();
        const pvn_iface *veth = get("veth0");
        EXPECT_TRUE(veth->up && veth->running);
        EXPECT_EQ(PVN_IFACE_VETH, veth->kind);
        EXPECT_STREQ("veth", veth->kind_name);
        EXPECT_FALSE(veth->speed_known) << "the driver's constant is no speed";
        EXPECT_EQ(PVN_IFACE_DEFAULT_MBPS, veth->speed_mbps);
        EXPECT_EQ(6, veth->hwaddr_len);
        EXPECT_STREQ("", veth->pci_path);
        EXPECT_EQ(24, veth->addrs[0].prefixlen);
        EXPECT_EQ("veth0=10.7.0.1", choose());
        EXPECT_EQ("veth0=fd07::1", choose("", AF_INET6));
        EXPECT_EQ("veth0=10.7.0.1", choose("veth"));
    });
}

TEST_P(IfaceNetns, KindsAndMastersAreFound)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(make("veth0 type veth peer name veth1"));
        const bool bridge = make("br0 type bridge") && sh("ip link set veth1 master br0");
        const bool vlan = make("link veth0 name veth0.5 type vlan id 5");
        const bool macvlan = make("link veth0 name mv0 type macvlan");
        const bool ipvlan = make("link veth1 name iv0 type ipvlan");
        const bool dummy = make("dum0 type dummy");
        const bool bond = make("bond7 type bond");
        const bool vxlan = make("vx0 type vxlan id 7 dstport 4789");
        const bool tun = sh("ip tuntap add dev tap0 mode tap 2>/dev/null");
        const bool ifb = make("ifb7 type ifb");
        load();
        EXPECT_EQ(PVN_IFACE_VETH, get("veth0")->kind);
        if (bridge) {
            EXPECT_EQ(PVN_IFACE_BRIDGE, get("br0")->kind);
            EXPECT_FALSE(get("br0")->has_uplink);
            /* /sys shows another namespace here, so only netlink has the answer. */
            if (source != &pvn_iface_source_plain) {
                EXPECT_EQ(get("br0")->ifindex, get("veth1")->master);
            }
        }
        const struct {
            bool there;
            const char *name;
            pvn_iface_kind kind;
        } links[] = {{vlan, "veth0.5", PVN_IFACE_VLAN},  {macvlan, "mv0", PVN_IFACE_MACVLAN},
                     {ipvlan, "iv0", PVN_IFACE_MACVLAN}, {dummy, "dum0", PVN_IFACE_OTHER},
                     {bond, "bond7", PVN_IFACE_BOND},    {vxlan, "vx0", PVN_IFACE_TUNNEL},
                     {tun, "tap0", PVN_IFACE_TUNNEL},    {ifb, "ifb7", PVN_IFACE_OTHER}};
        if (bridge && bond && source != &pvn_iface_source_plain) {
            ASSERT_TRUE(sh("ip link set bond7 master br0"));
            load();
            EXPECT_TRUE(get("br0")->has_uplink);
        }
        int seen = 0;
        for (const auto &l : links) {
            if (!l.there)
                continue;
            seen++;
            EXPECT_EQ(l.kind, get(l.name)->kind) << l.name << " " << get(l.name)->driver;
        }
        EXPECT_LE(1, seen) << "the kernel made none of the links";
    });
}

/* Makes ethtool's ioctl fail, as in a container's sandbox. */
bool refuse_ethtool()
{
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIOCETHTOOL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool ethtool_is_refused()
{
    ethtool_drvinfo info = {};
    ifreq ifr = {};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    info.cmd = ETHTOOL_GDRVINFO;
    strcpy(ifr.ifr_name, "lo");
    ifr.ifr_data = (char *)&info;
    const bool refused = ioctl(fd, SIOCETHTOOL, &ifr) != 0 && errno == EPERM;
    close(fd);
    return refused;
}

/* Mounts this namespace's /sys, for this process alone. */
bool own_sys()
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
}

/* A regression: docker0 was taken for physical, and became device 0. */
TEST_P(IfaceNetns, KindsAreFoundWithoutEthtool)
{
    for (bool sys : {true, false})
        RUN_IN_NETNS({
            SCOPED_TRACE(sys ? "with /sys" : "by name");
            ASSERT_TRUE(make("veth0 type veth peer name door7"));
            const bool bridge = make("docker0 type bridge");
            const bool other_bridge = sys && make("lan7 type bridge");
            const bool vlan = sys && make("link veth0 name v5 type vlan id 5");
            const bool dummy = make("dummy7 type dummy");
            const bool bond = make("bond7 type bond");
            const bool odd = sys && make("odd7 type dummy");
            if (sys && !own_sys()) {
                printf("no /sys of its own: only names count here\n");
                return;
            }
            ASSERT_TRUE(sh("ip addr add 172.17.0.1/16 dev veth0"));
            ASSERT_TRUE(up("veth0 door7") && links_run("veth0 door7"));
            ASSERT_TRUE(refuse_ethtool());
            ASSERT_TRUE(ethtool_is_refused());
            load();
            EXPECT_EQ(PVN_IFACE_VETH, get("veth0")->kind);
            if (sys) {
                EXPECT_EQ(PVN_IFACE_VETH, get("door7")->kind);
            }
            const struct {
                bool there;
                const char *name;
                pvn_iface_kind kind;
            } links[] = {
                {bridge, "docker0", PVN_IFACE_BRIDGE}, {other_bridge, "lan7", PVN_IFACE_BRIDGE},
                {vlan, "v5", PVN_IFACE_VLAN},          {dummy, "dummy7", PVN_IFACE_OTHER},
                {odd, "odd7", PVN_IFACE_OTHER},        {bond, "bond7", PVN_IFACE_BOND}};
            for (const auto &l : links) {
                if (l.there) {
                    EXPECT_EQ(l.kind, get(l.name)->kind) << l.name;
                }
            }
            EXPECT_TRUE(bridge || dummy) << "the kernel made none of the links";
        });
}

TEST_P(IfaceNetns, RouteNamesInterfaceSourceAndGateway)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(sh("ip link set lo up"));
        ASSERT_TRUE(make("a0 type veth peer name a1") && make("b0 type veth peer name b1"));
        ASSERT_TRUE(up_and_running("a0 a1 b0 b1"));
        ASSERT_TRUE(sh("ip addr add 10.7.0.1/24 dev a0; ip addr add 10.8.0.1/24 dev b0"));
        ASSERT_TRUE(
            sh("ip -6 addr add fd07::1/64 dev a0 nodad; ip -6 addr add fe80::b/64 dev b0 nodad"));
        ASSERT_TRUE(sh("ip route add 10.99.0.0/16 via 10.8.0.254"));

        pvn_iface_route r;
        ASSERT_EQ(0, route("10.7.0.2", &r));
        EXPECT_EQ(if_nametoindex("a0"), r.ifindex);
        EXPECT_EQ("10.7.0.1", host(r.src));
        EXPECT_EQ(AF_UNSPEC, r.gateway.ss_family);

        ASSERT_EQ(0, route("10.99.1.2", &r));
        EXPECT_EQ(if_nametoindex("b0"), r.ifindex);
        EXPECT_EQ("10.8.0.1", host(r.src));
        if (source != &pvn_iface_source_plain) {
            EXPECT_EQ("10.8.0.254", host(r.gateway));
        }

        ASSERT_EQ(0, route("fd07::2", &r));
        EXPECT_EQ(if_nametoindex("a0"), r.ifindex);
        EXPECT_EQ("fd07::1", host(r.src));

        ASSERT_EQ(0, route("fe80::2%b0", &r)) << "the scope says which";
        EXPECT_EQ(if_nametoindex("b0"), r.ifindex);

        EXPECT_EQ(-ENETUNREACH, route("10.200.0.1", &r));
        EXPECT_EQ(0u, r.ifindex);
        ASSERT_TRUE(sh("ip route add unreachable 10.201.0.0/16"));
        EXPECT_EQ(-EHOSTUNREACH, route("10.201.0.1", &r));

        load();
        EXPECT_FALSE(get("a0")->default_route || get("b0")->default_route);
        ASSERT_TRUE(sh("ip route add default via 10.7.0.254"));
        load();
        EXPECT_TRUE(get("a0")->default_route);
        EXPECT_FALSE(get("b0")->default_route);
        EXPECT_EQ("a0=10.7.0.1 b0=10.8.0.1", choose());
    });
}

/* Two interfaces have the same prefix. The kernel routes by one of them, which must be the
 * answer. */
TEST_P(IfaceNetns, OfTwoInterfacesWithOnePrefixTheKernelsIsTaken)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(make("a0 type veth peer name a1") && make("b0 type veth peer name b1"));
        ASSERT_TRUE(up_and_running("a0 a1 b0 b1"));
        ASSERT_TRUE(sh("ip addr add 10.7.0.1/24 dev a0; ip addr add 10.7.0.2/24 dev b0"));
        pvn_iface_route r;
        ASSERT_EQ(0, route("10.7.0.9", &r));
        EXPECT_EQ(if_nametoindex("a0"), r.ifindex);
        EXPECT_EQ("10.7.0.1", host(r.src));
    });
}

TEST_P(IfaceNetns, PointToPointUsesOurOwnAddress)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(make("a0 type veth peer name a1"));
        ASSERT_TRUE(sh("ip addr add 10.7.0.1 peer 10.7.0.2 dev a0") && up_and_running("a0 a1"));
        load();
        EXPECT_EQ("a0=10.7.0.1", choose());
        pvn_iface_route r;
        ASSERT_EQ(0, route("10.7.0.2", &r));
        EXPECT_EQ("10.7.0.1", host(r.src));
    });
}

TEST_P(IfaceNetns, LabelSelectsTheAddress)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(make("a0 type veth peer name a1") && up_and_running("a0 a1"));
        ASSERT_TRUE(sh("ip addr add 10.7.0.1/24 dev a0"));
        ASSERT_TRUE(sh("ip addr add 10.8.0.1/24 dev a0 label a0:1"));
        load();
        EXPECT_EQ("a0=10.7.0.1", choose("a0"));
        EXPECT_EQ("a0=10.8.0.1", choose("a0:1"));
        EXPECT_EQ(0u, choose("a0:2").find("no interface matches")) << choose("a0:2");
    });
}

/* An address cannot be bound during duplicate address detection, which takes a second. */
TEST_P(IfaceNetns, TentativeAddressIsLeftOut)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(make("a0 type veth peer name a1") && up_and_running("a0 a1"));
        ASSERT_TRUE(sh("echo 60 >/proc/sys/net/ipv6/conf/a0/dad_transmits"));
        ASSERT_TRUE(sh("ip -6 addr add fd07::1/64 dev a0"));
        load();
        ASSERT_EQ(1, get("a0")->naddrs);
        EXPECT_TRUE(get("a0")->addrs[0].tentative);
        EXPECT_NE(std::string::npos, choose("a0").find("tentative")) << choose("a0");
        ASSERT_TRUE(sh("ip -6 addr add fd07::2/64 dev a0 nodad"));
        load();
        EXPECT_EQ("a0=fd07::2", choose("a0"));
    });
}

TEST_P(IfaceNetns, LinkLocalHasItsScope)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(make("a0 type veth peer name a1"));
        ASSERT_TRUE(up_and_running("a0 a1"));
        ASSERT_TRUE(sh("ip -6 addr add fe80::77/64 dev a0 nodad"));
        load();
        EXPECT_EQ("a0=fe80::77%a0", choose());
    });
}

/* If a namespace has no /sys of its own, the machine's real eth0 must not give its PCI path to
 * ours. */
TEST_P(IfaceNetns, ForeignSysIsNotBelieved)
{
    struct if_nameindex *list = if_nameindex();
    std::string name;
    unsigned index = 0;

    for (struct if_nameindex *i = list; i && i->if_index; i++) {
        const std::string device = std::string("/sys/class/net/") + i->if_name + "/device";
        if (access(device.c_str(), F_OK) == 0) {
            name = i->if_name;
            index = i->if_index;
        }
    }
    if_freenameindex(list);
    if (name.empty())
        GTEST_SKIP() << "no interface with a device in /sys here";
    RUN_IN_NETNS({
        ASSERT_TRUE(make(name + " index " + std::to_string(index) + " type veth peer name other"));
        load();
        EXPECT_EQ(index, get(name.c_str())->ifindex) << "not the trap that was meant";
        EXPECT_STREQ("", get(name.c_str())->pci_path);
    });
}

TEST_P(IfaceNetns, FiveHundredPairsAreRead)
{
    RUN_IN_NETNS({
        ASSERT_TRUE(sh("for i in $(seq 500); do echo link add v$i type veth peer name p$i; "
                       "echo addr add 10.$((i / 250)).$((i % 250)).1/24 dev v$i; "
                       "echo link set v$i up; echo link set p$i up; done | ip -batch -"));
        // The kernel may report the links of a thousand interfaces late.
        ASSERT_TRUE(
            sh("for t in $(seq 300); do ip -o link show v500 | grep -q 'state UP' && exit 0; "
               "sleep 0.1; done; exit 1"));
        load();
        EXPECT_LE(1001u, table.n);
        EXPECT_EQ("v500=10.2.0.1", choose("=v500"));
        EXPECT_NE(std::string::npos, choose("nothing").find(" more"));
        for (size_t i = 1; i < table.n; i++)
            ASSERT_LT(table.v[i - 1].ifindex, table.v[i].ifindex);
    });
}

TEST_P(IfaceNetns, BothSourcesAgreeOnThisMachine)
{
    pvn_iface_table other;

    load();
    ASSERT_EQ(0, pvn_iface_load(&pvn_iface_source_plain, &other, nullptr));
    ASSERT_EQ(other.n, table.n);
    for (size_t i = 0; i < other.n; i++) {
        SCOPED_TRACE(other.v[i].name);
        EXPECT_STREQ(other.v[i].name, table.v[i].name);
        EXPECT_EQ(other.v[i].ifindex, table.v[i].ifindex);
        EXPECT_EQ(other.v[i].kind, table.v[i].kind);
        EXPECT_EQ(other.v[i].master, table.v[i].master);
        EXPECT_EQ(other.v[i].up, table.v[i].up);
        EXPECT_EQ(other.v[i].running, table.v[i].running);
        EXPECT_EQ(other.v[i].speed_known, table.v[i].speed_known);
        EXPECT_STREQ(other.v[i].pci_path, table.v[i].pci_path);
        EXPECT_EQ(other.v[i].default_route, table.v[i].default_route);
        EXPECT_EQ(other.v[i].naddrs, table.v[i].naddrs);
    }
    pvn_iface_free(&other);
}

INSTANTIATE_TEST_SUITE_P(Sources, IfaceNetns, ::testing::Values("netlink", "getifaddrs"),
                         [](const auto &which) { return std::string(which.param); });

} // namespace
