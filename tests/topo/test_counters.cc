// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the counters of adapters: which ones are read, which grew between two samples, and the sentence about each.
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <net/if.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "topo/check/check.h"
#include "topo/counters/counters.h"
#include "tests/support/netns.h"
#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

struct Look : pvn_topo_look {
    Look() : pvn_topo_look{}
    {
    }
    ~Look()
    {
        pvn_topo_look_free(this);
    }
};

struct Rows : pvn_topo_checks {
    Rows() : pvn_topo_checks{}
    {
    }
    ~Rows()
    {
        pvn_topo_checks_free(this);
    }
    const pvn_topo_check *find(const std::string &subject, pvn_topo_level level,
                               const std::string &text) const
    {
        for (int i = 0; i < n; i++)
            if (subject == rows[i].subject && rows[i].level == level &&
                strstr(rows[i].text, text.c_str()))
                return &rows[i];
        return nullptr;
    }
    std::string all() const
    {
        std::string s;
        for (int i = 0; i < n; i++)
            s += std::string(pvn_topo_level_name(rows[i].level)) + " " + rows[i].subject + ": " +
                 rows[i].text + " -> " + rows[i].remedy + "\n";
        return s;
    }
};

// A network driver that reports the statistics of a test.
struct FakeDriver {
    std::vector<std::pair<std::string, uint64_t>> stats;
    std::string ifname = "eth0";
    size_t shown_names = SIZE_MAX; // differs from the count if a queue went away
    int calls = 0;
    pvn_topo_ethtool ethtool{call, this};

    static int call(void *ctx, const char *name, void *data)
    {
        auto *d = static_cast<FakeDriver *>(ctx);
        uint32_t cmd;
        memcpy(&cmd, data, sizeof cmd);
        if (name != d->ifname)
            return -ENODEV;
        d->calls++;
        if (cmd == ETHTOOL_GSSET_INFO) {
            auto *info = static_cast<ethtool_sset_info *>(data);
            info->sset_mask = d->stats.empty() ? 0 : info->sset_mask;
            info->data[0] = static_cast<uint32_t>(d->stats.size());
        } else if (cmd == ETHTOOL_GSTRINGS) {
            auto *names = static_cast<ethtool_gstrings *>(data);
            names->len = static_cast<uint32_t>(std::min(d->stats.size(), d->shown_names));
            for (size_t i = 0; i < names->len; i++)
                strncpy(reinterpret_cast<char *>(names->data) + i * ETH_GSTRING_LEN,
                        d->stats[i].first.c_str(), ETH_GSTRING_LEN);
        } else {
            auto *values = static_cast<ethtool_stats *>(data);
            EXPECT_EQ(ETHTOOL_GSTATS, cmd);
            values->n_stats = static_cast<uint32_t>(d->stats.size());
            for (size_t i = 0; i < d->stats.size(); i++)
                values->data[i] = d->stats[i].second;
        }
        return 0;
    }
};

// A machine on disk whose counters the tests change between two samples.
class Counters : public ::testing::Test
{
  protected:
    TempDir dir;
    Tree tree;
    Topo topo;
    const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";

    void SetUp() override
    {
        std::string nic = tree.pci("pci0000:17", "0000:17:00.0", Pci::nic());
        tree.net("eth0", nic, {{"mtu", "9000"}});
        tree.rdma("mlx5_0", nic, "Ethernet",
                  {{0, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0"}});
        tree.file("/proc/version", "Linux version 6.1.0 (build@host)\n");
    }
    // Writes the machine to disk. set() changes files only after this call.
    void ready()
    {
        tree.write_dir(dir.path);
        topo = load_dir(dir.path);
    }
    void set(const std::string &path, const std::string &value)
    {
        // The path leads through the links of the class directories.
        std::string full = dir.path + path;
        ASSERT_EQ(0, std::system(("mkdir -p \"$(dirname '" + full + "')\"").c_str()));
        std::ofstream(full) << value << "\n";
    }
    void look(Look &out, const FakeDriver *driver = nullptr,
              const std::vector<const char *> &names = {})
    {
        pvn_topo_fs *fs = nullptr;
        ASSERT_EQ(0, pvn_topo_fs_open_dir(dir.path.c_str(), nullptr, &fs));
        EXPECT_EQ(0,
                  pvn_topo_look_read(fs, topo.get(), names.data(), static_cast<int>(names.size()),
                                     driver ? &driver->ethtool : nullptr, &out));
        pvn_topo_fs_close(fs);
    }
    void check(const Look &first, const Look *second, Rows &rows)
    {
        ASSERT_EQ(0, pvn_topo_check_counters(topo.get(), &first, second, 1.0, &rows));
        for (int i = 0; i < rows.n; i++) {
            EXPECT_LT(strlen(rows.rows[i].text), sizeof rows.rows[i].text - 1) << "cut off";
            EXPECT_EQ(rows.rows[i].level == PVN_TOPO_LEVEL_WARN,
                      rows.rows[i].remedy[0] != '\0' &&
                          rows.rows[i].level != PVN_TOPO_LEVEL_UNKNOWN);
        }
    }
    std::string names(const Look &l)
    {
        std::string all;
        char name[64];
        for (int i = 0; i < l.n; i++)
            all += std::string(i ? " " : "") +
                   pvn_topo_counted_name(topo.get(), &l.list[i], name, sizeof name);
        return all;
    }
};

TEST(CounterTable, EveryRowIsWholeAndFound)
{
    std::set<std::pair<int, std::string>> seen;
    int n;
    const pvn_topo_counter_info *t = pvn_topo_counter_table(&n);
    ASSERT_GT(n, 100);
    for (int i = 0; i < n; i++) {
        std::string name = t[i].name;
        EXPECT_TRUE(seen.insert({t[i].source, name}).second) << name << " is there twice";
        EXPECT_GT(strlen(t[i].meaning), 10u) << name;
        EXPECT_GT(strlen(t[i].remedy), 20u) << name;
        EXPECT_LT(strlen(t[i].remedy), sizeof(pvn_topo_check::remedy)) << name;
        EXPECT_LT(name.size(), static_cast<size_t>(ETH_GSTRING_LEN)) << name;
        // No earlier row matches the name, too.
        for (char &c : name)
            c = c == '#' || c == '*' ? '7' : c;
        EXPECT_EQ(&t[i], pvn_topo_counter_find(t[i].source, name.c_str())) << name;
    }
}

// The kernel's other counters are of traffic or objects, not of faults.
TEST(CounterTable, TrafficIsNoFault)
{
    for (const char *name : {"lifespan", "port_xmit_data", "rx_write_requests", "active_qps",
                             "sent_pkts", "ip4InOctets", "out_of_sequence2", "", "rx_prio_pause"})
        for (int s = 0; s < 4; s++)
            EXPECT_EQ(nullptr, pvn_topo_counter_find(static_cast<pvn_topo_counter_source>(s), name))
                << name;
    EXPECT_EQ(nullptr, pvn_topo_counter_find(PVN_TOPO_COUNTER_NET, "out_of_sequence"))
        << "a name belongs to its directory";
}

TEST_F(Counters, WhatGrowsIsNamedWithItsMeaningAndRemedy)
{
    // A few counters of each driver, under the driver's names. rxe's come from its rxe_hw_counters.
    const struct {
        const char *dir, *name, *means, *remedy;
    } all[] = {
        {"hw_counters/", "local_ack_timeout_err", "acknowledgement did not come", "PFC or ECN"},
        {"hw_counters/", "out_of_sequence", "one before them is lost", "transceivers"},
        {"hw_counters/", "packet_seq_err", "a gap", "PFC or ECN"},
        {"hw_counters/", "rnr_nak_retry_err", "no receive buffer", "too late"},
        {"hw_counters/", "implied_nak_seq_err", "one is lost", "PFC or ECN"},
        {"hw_counters/", "np_cnp_sent", "CNP sent", "incast"},
        {"hw_counters/", "rp_cnp_handled", "CNP received", "incast"},
        {"hw_counters/", "np_ecn_marked_roce_packets", "ECN", "incast"},
        {"hw_counters/", "rcvd_seq_err", "a gap", "PFC or ECN"},
        {"hw_counters/", "completer_retry_err", "sent again", "PFC or ECN"},
        {"hw_counters/", "to_retransmits", "sent again", "PFC or ECN"},
        {"hw_counters/", "Nak Sequence Error", "a gap", "PFC or ECN"},
        {"hw_counters/", "RxECNMrkd", "ECN", "incast"},
        {"counters/", "symbol_error", "damaged on the wire", "cable first"},
        {"counters/", "port_xmit_wait", "no credits", "incast"},
        {"counters/", "link_downed", "went down", "cable first"},
        {"counters/", "port_rcv_errors", "damaged", "cable first"},
    };
    for (const auto &c : all)
        tree.file(std::string("/sys/devices/pci0000:17/0000:17:00.0/infiniband/mlx5_0/ports/1/") +
                      c.dir + c.name,
                  "5\n");
    ready();
    for (const auto &c : all) {
        Look first, second;
        Rows rows;
        look(first);
        set(port + c.dir + c.name, "12");
        look(second);
        check(first, &second, rows);
        const pvn_topo_check *row = rows.find("mlx5_0 port 1", PVN_TOPO_LEVEL_WARN, c.name);
        ASSERT_NE(nullptr, row) << c.name << "\n" << rows.all();
        EXPECT_NE(nullptr, strstr(row->text, " grew by 7 in 1.0 s, to 12: ")) << row->text;
        EXPECT_NE(nullptr, strstr(row->text, c.means)) << row->text;
        EXPECT_NE(nullptr, strstr(row->remedy, c.remedy)) << row->remedy;
        int warnings = 0;
        for (int i = 0; i < rows.n; i++)
            warnings += rows.rows[i].level == PVN_TOPO_LEVEL_WARN;
        EXPECT_EQ(1, warnings) << rows.all();
        EXPECT_NE(nullptr, rows.find("mlx5_0 port 1", PVN_TOPO_LEVEL_OK, "16 of 17 did not grow"))
            << rows.all();
    }
}

TEST_F(Counters, WhatWasCountedBeforeIsOnlyMentioned)
{
    ready();
    set(port + "hw_counters/out_of_sequence", "31");
    set(port + "hw_counters/packet_seq_err", "0");
    set("/sys/class/net/eth0/statistics/rx_crc_errors", "4");
    set("/sys/class/net/eth0/statistics/rx_packets", "4711");
    Look first, second;
    Rows rows, once;
    look(first);
    look(second);
    check(first, &second, rows);
    EXPECT_NE(nullptr, rows.find("mlx5_0 port 1", PVN_TOPO_LEVEL_OK,
                                 "2 of 2 did not grow in 1.0 s; since it was loaded: "
                                 "out_of_sequence 31"))
        << rows.all();
    EXPECT_NE(nullptr, rows.find("eth0", PVN_TOPO_LEVEL_OK, "1 of 1 did not grow")) << rows.all();
    EXPECT_EQ(2, rows.n) << rows.all();
    check(first, nullptr, once);
    EXPECT_NE(nullptr, once.find("eth0", PVN_TOPO_LEVEL_OK, "1 read once, so growth was not"))
        << once.all();
}

// Between the samples the driver was reloaded, and a counter appeared.
TEST_F(Counters, ANewStartIsNoGrowth)
{
    ready();
    set(port + "hw_counters/out_of_sequence", "31");
    Look first, second;
    Rows rows;
    look(first);
    set(port + "hw_counters/out_of_sequence", "2");
    set(port + "hw_counters/duplicate_request", "9");
    look(second);
    check(first, &second, rows);
    EXPECT_NE(nullptr, rows.find("mlx5_0 port 1", PVN_TOPO_LEVEL_OK, "2 of 2 did not grow"))
        << rows.all();
}

TEST_F(Counters, OneThatStandsAtItsEndIsUnknown)
{
    ready();
    set(port + "counters/symbol_error", "65535");
    set(port + "counters/link_downed", "1");
    Look first, second;
    Rows rows;
    look(first);
    look(second);
    check(first, &second, rows);
    const pvn_topo_check *row =
        rows.find("mlx5_0 port 1", PVN_TOPO_LEVEL_UNKNOWN, "symbol_error stands at 65535");
    ASSERT_NE(nullptr, row) << rows.all();
    EXPECT_NE(nullptr, strstr(row->remedy, "perfquery -R"));
    EXPECT_NE(nullptr, rows.find("mlx5_0 port 1", PVN_TOPO_LEVEL_OK, "1 of 2")) << rows.all();
}

TEST_F(Counters, WithoutAnyItIsUnknown)
{
    ready();
    // The values are of an old kernel without a performance agent, junk, and a number beyond 64 bits.
    set(port + "counters/symbol_error", "N/A (no PMA)");
    set(port + "counters/link_downed", "-1");
    set(port + "hw_counters/out_of_sequence", "99999999999999999999999");
    set(port + "hw_counters/packet_seq_err", "12x");
    set(port + "hw_counters/duplicate_request", "");
    Look first, second;
    Rows rows;
    look(first);
    look(second);
    EXPECT_EQ(0, pvn_topo_look_counters(&first));
    check(first, &second, rows);
    EXPECT_NE(nullptr, rows.find("mlx5_0 port 1", PVN_TOPO_LEVEL_UNKNOWN, "no counters"))
        << rows.all();
    EXPECT_NE(nullptr, rows.find("eth0", PVN_TOPO_LEVEL_UNKNOWN, "no counters")) << rows.all();
}

TEST_F(Counters, PvrdmaHasNoneItsVmxnet3Has)
{
    GuestVariant one;
    Tree guest = vmware_guest(one);
    guest.write_dir(dir.path);
    topo = load_dir(dir.path);
    FakeDriver driver;
    driver.ifname = topo->nets[pvn_topo_find_net(topo.get(), "ens192") >= 0
                                   ? pvn_topo_find_net(topo.get(), "ens192")
                                   : 0]
                        .name;
    // vmxnet3 indents the names and repeats them for each queue.
    driver.stats = {{"Rx Queue#", 0},           {"  ucast pkts rx", 900}, {"  pkts rx OOB", 3},
                    {"Rx Queue#", 1},           {"  pkts rx OOB", 4},     {"     err", 1},
                    {"  rx buf alloc fail", 0}, {"tx timeout count", 0}};
    Look first, second;
    Rows rows;
    look(first, &driver);
    driver.stats[2].second = 10;
    driver.stats[4].second = 5;
    look(second, &driver);
    check(first, &second, rows);
    const pvn_topo_check *row =
        rows.find("vmw_pvrdma0 port 1", PVN_TOPO_LEVEL_UNKNOWN, "they are the host's");
    ASSERT_NE(nullptr, row) << rows.all();
    EXPECT_NE(nullptr, strstr(row->remedy, "esxcli rdma device stats get"));
    row = rows.find(driver.ifname, PVN_TOPO_LEVEL_WARN, "pkts rx OOB (ethtool) grew by 8 in");
    ASSERT_NE(nullptr, row) << rows.all();
    EXPECT_NE(nullptr, strstr(row->remedy, "ethtool -G")) << row->remedy;
    EXPECT_NE(nullptr, rows.find(driver.ifname, PVN_TOPO_LEVEL_OK, "2 of 3 did not grow"))
        << rows.all();
}

TEST_F(Counters, PrioritiesAreKeptApartAndQueuesAddedUp)
{
    ready();
    FakeDriver driver;
    driver.stats = {{"rx_prio0_pause", 1},
                    {"rx_prio3_pause", 40},
                    {"rx_prio3_bytes", 9},
                    {"rx_queue_0_drops", 5},
                    {"rx_queue_11_drops", 6},
                    {"rx_discards_phy", 2},
                    {"rx_prio_pause", 1},
                    // A name that fills its field has no terminating zero.
                    {"a_name_of_just_thirty-two_bytes_", 1}};
    Look first, second;
    Rows rows;
    look(first, &driver);
    driver.stats[1].second = 41;
    driver.stats[4].second = 8;
    look(second, &driver);
    check(first, &second, rows);
    EXPECT_NE(nullptr, rows.find("eth0", PVN_TOPO_LEVEL_WARN,
                                 "rx_prio3_pause (ethtool) grew by 1 in 1.0 s, to 41"))
        << rows.all();
    EXPECT_NE(nullptr, rows.find("eth0", PVN_TOPO_LEVEL_WARN,
                                 "rx_queue_*_drops (ethtool) grew by 2 in 1.0 s, to 13"))
        << rows.all();
    EXPECT_NE(nullptr, rows.find("eth0", PVN_TOPO_LEVEL_OK,
                                 "2 of 4 did not grow in 1.0 s; since it was loaded: "
                                 "rx_prio0_pause 1, rx_prio3_pause 41, rx_queue_*_drops 13, "
                                 "rx_discards_phy 2"))
        << rows.all();
}

TEST_F(Counters, NamesAndValuesThatDoNotBelongTogetherAreNotRead)
{
    ready();
    set("/sys/class/net/eth0/statistics/rx_crc_errors", "4");
    FakeDriver driver;
    driver.stats = {{"rx_discards_phy", 2}, {"rx_out_of_buffer", 7}};
    driver.shown_names = 1;
    Look l;
    look(l, &driver);
    EXPECT_EQ(3, driver.calls);
    EXPECT_EQ(1, pvn_topo_look_counters(&l)) << "the rest is still read";
    driver.stats.clear();
    Look none;
    look(none, &driver);
    EXPECT_EQ(4, driver.calls) << "without statistics nothing more is requested";
}

TEST_F(Counters, OnlyWhatIsNamed)
{
    tree.net("eth1", tree.pci("pci0000:17", "0000:18:00.0", Pci::nic()), {});
    tree.net("bond0", "", {{"uevent", "DEVTYPE=bond\n"}});
    tree.link("/sys/devices/pci0000:17/0000:18:00.0/net/eth1/master",
              "../../../../virtual/net/bond0");
    tree.net("vlan5", "", {{"uevent", "DEVTYPE=vlan\n"}});
    tree.link("/sys/devices/virtual/net/vlan5/lower_eth1",
              "../../../pci0000:17/0000:18:00.0/net/eth1");
    tree.net("lo", "", {{"type", "772"}});
    // A card with two ports, each of which has counters of its own.
    std::string two = tree.pci("pci0000:17", "0000:19:00.0", Pci::nic());
    tree.rdma("mlx4_0", two, "InfiniBand", {});
    tree.file("/sys/devices/" + two + "/infiniband/mlx4_0/ports/2/state", "4: ACTIVE\n");
    ready();
    const struct {
        std::vector<const char *> names;
        const char *expected;
    } cases[] = {
        {{}, "mlx4_0 port 1 mlx4_0 port 2 mlx5_0 port 1 eth0 eth1"},
        {{"mlx5_0"}, "mlx5_0 port 1 eth0"},
        {{"eth1"}, "eth1"},
        {{"eth0"}, "eth0"},
        {{"bond0"}, "bond0 eth1"},
        {{"vlan5"}, "eth1 vlan5"},
        {{"mlx4_0:2", "lo"}, "mlx4_0 port 2 lo"},
        {{"mlx4_0"}, "mlx4_0 port 1 mlx4_0 port 2"},
        {{"nothing"}, ""},
    };
    for (const auto &c : cases) {
        Look l;
        look(l, nullptr, c.names);
        EXPECT_EQ(c.expected, names(l));
    }
}

// Chelsio and older drivers count per device, not per port. If both are shown they have the same numbers, so the
// device's are ignored.
TEST_F(Counters, OfTheDeviceWhereThePortHasNone)
{
    ready();
    set("/sys/class/infiniband/mlx5_0/hw_counters/ip4InDiscards", "3");
    Look device, both;
    look(device);
    EXPECT_EQ(1, pvn_topo_look_counters(&device));
    set(port + "hw_counters/ip6InDiscards", "8");
    look(both);
    ASSERT_EQ(1, pvn_topo_look_counters(&both));
    EXPECT_STREQ("ip6InDiscards", both.list[0].counters[0].name);
}

// Reads the running kernel: a veth interface has the index of its peer among its statistics.
TEST(Ethtool, ReadsWhatTheKernelHas)
{
    std::string why = pvn_test::in_netns([] {
        ASSERT_TRUE(pvn_test::sh("ip link add va type veth peer name vb"));
        const pvn_topo_ethtool *e = pvn_topo_ethtool_open();
        ASSERT_NE(nullptr, e);
        std::map<std::string, uint64_t> seen;
        auto keep = [](void *ctx, const char *name, uint64_t value) {
            (*static_cast<std::map<std::string, uint64_t> *>(ctx))[name] = value;
            return 0;
        };
        EXPECT_EQ(0, pvn_topo_ethtool_stats(e, "va", keep, &seen));
        EXPECT_EQ(if_nametoindex("vb"), seen["peer_ifindex"]);
        EXPECT_GT(seen.size(), 1u);
        EXPECT_EQ(-EOPNOTSUPP, pvn_topo_ethtool_stats(e, "lo", keep, &seen));
        EXPECT_EQ(-ENODEV, pvn_topo_ethtool_stats(e, "nothing", keep, &seen));
        EXPECT_EQ(-ENODEV,
                  pvn_topo_ethtool_stats(e, "a-name-longer-than-any-interface", keep, &seen));
        pvn_topo_ethtool_close(e);
    });
    if (!why.empty())
        GTEST_SKIP() << why;
}

// The command takes two samples. The test changes the counter as soon as the first has been read.
TEST_F(Counters, TheCommandSeesItGrow)
{
    ready();
    set(port + "hw_counters/local_ack_timeout_err", "100");
    std::string file = dir.path + port + "hw_counters/local_ack_timeout_err";
    int fd = inotify_init1(IN_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_GE(inotify_add_watch(fd, file.c_str(), IN_CLOSE_NOWRITE), 0);
    bool seen = false;
    std::thread other([&] {
        pollfd p = {fd, POLLIN, 0};
        seen = poll(&p, 1, 20000) == 1;
        std::ofstream(file) << "112\n";
    });
    Result r = run_tool(dir.path, "--root . --interval 2 check");
    other.join();
    close(fd);
    ASSERT_TRUE(seen) << r.err;
    std::string all = squeeze(r.out);
    EXPECT_NE(std::string::npos, all.find("WARN counters mlx5_0 port 1: local_ack_timeout_err "
                                          "(hw_counters) grew by 12 in "))
        << r.out;
    EXPECT_NE(std::string::npos, all.find(", to 112: an acknowledgement did not come in time"))
        << r.out;
    EXPECT_NE(std::string::npos, all.find("-> packets are lost between the hosts: make PFC or ECN"))
        << r.out;
    EXPECT_NE(std::string::npos, all.find("only what grows matters now: mlx5_0 port 1: "
                                          "local_ack_timeout_err 112"))
        << r.out;
}

TEST_F(Counters, TheCommandLooksOnceWhereNothingCanChange)
{
    ready();
    set(port + "hw_counters/out_of_sequence", "31");
    set("/sys/class/net/eth0/statistics/rx_crc_errors", "0");
    Result once = run_tool(dir.path, "--root . --all --interval 0 check");
    EXPECT_NE(std::string::npos,
              squeeze(once.out).find("mlx5_0 port 1: 1 read once, so growth was not looked for; "
                                     "since it was loaded: out_of_sequence 31"))
        << once.out << once.err;
    // A capture has one sample of the counters and no second one.
    ASSERT_EQ(0, run_tool(dir.path, "--root . gather machine.tar").status);
    Result tar = run_tool(dir.path, "--root machine.tar --all --interval 60 check");
    EXPECT_NE(std::string::npos, squeeze(tar.out).find("eth0: 1 read once")) << tar.out << tar.err;
    EXPECT_NE(std::string::npos, squeeze(tar.out).find("out_of_sequence 31")) << tar.out;
    Result json = run_tool(dir.path, "--root machine.tar --json check");
    EXPECT_NE(std::string::npos, squeeze(json.out).find("\"counter\": \"out_of_sequence\", "
                                                        "\"source\": \"hw_counters\", \"kind\": "
                                                        "\"error\", \"value\": 31, \"grew\": null"))
        << json.out;
}

TEST_F(Counters, AnIntervalOutOfRangeIsRefused)
{
    for (const char *bad : {"-1", "61", "nan", "", "1x", "inf", "2m"}) {
        Result r = run_tool(dir.path, std::string("--interval '") + bad + "' check");
        EXPECT_EQ(2, r.status) << bad;
        EXPECT_NE(std::string::npos, r.err.find("expected a time from 0s to 1m, as 90 (seconds)"))
            << r.err;
    }
    Result r = run_tool(dir.path, "--interval 1 pairs");
    EXPECT_EQ(2, r.status);
    EXPECT_NE(std::string::npos,
              r.err.find("--interval has no effect in pairs: it is for check and stat"))
        << r.err;
}

} // namespace
