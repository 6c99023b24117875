// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The scan for RDMA adapters: filter, port states, GID tables, interfaces, limits, and the reasons
// for adapters that are left out
#include "softverbs/fixture.h"

extern "C" {
#include "base/dev_list.h"
#include "base/log.h"
#include "net-pvrdma/hca.h"
#include "tests/support/paths.h"
}

#include <netinet/in.h>

namespace
{

using namespace sv;

// The plugin's own declarations are those of <infiniband/verbs.h>.
static_assert(sizeof(pvn_verbs_gid_entry) == sizeof(ibv_gid_entry));
static_assert(offsetof(pvn_verbs_gid_entry, gid_index) == offsetof(ibv_gid_entry, gid_index));
static_assert(offsetof(pvn_verbs_gid_entry, port_num) == offsetof(ibv_gid_entry, port_num));
static_assert(offsetof(pvn_verbs_gid_entry, gid_type) == offsetof(ibv_gid_entry, gid_type));
static_assert(int(PVN_VERBS_FORK_DISABLED) == int(IBV_FORK_DISABLED));

// A sysfs tree, and a scan of the adapters that softverbs plays
class Hca : public testing::Test
{
  protected:
    char root[64] = "/tmp/pvn-hca-XXXXXX";
    const pvn_verbs *v = nullptr;
    pvn_hca_table t{};
    pvn_err err{};
    pvn_hca_options o{};
    int rows = 16;

    void SetUp() override
    {
        ASSERT_NE(mkdtemp(root), nullptr);
        v = pvn_verbs_get(library().c_str(), &err);
        ASSERT_NE(v, nullptr) << err.reason[0];
        o.sys_root = root;
        o.hca = "";
        o.gids.index = -1;
        o.prefix = [](void *, const char *, const uint8_t *) { return uint8_t(96 + 16); };
    }
    void TearDown() override
    {
        pvn_hca_close(v, &t);
        pvn_verbs_put();
        EXPECT_EQ(lib().sv_configure(""), 0);
        EXPECT_EQ(system(("rm -r " + std::string(root)).c_str()), 0);
    }
    int scan(const std::string &config)
    {
        pvn_hca_close(v, &t);
        pvn_err_clear(&err);
        // The GID tables are short, because the tree has a file per row.
        EXPECT_EQ(
            lib().sv_configure((config + "\nset gid_tbl_len " + std::to_string(rows)).c_str()), 0);
        EXPECT_EQ(system(("rm -rf " + std::string(root) + "/*").c_str()), 0);
        EXPECT_EQ(lib().sv_write_sysfs(root), 0);
        return pvn_hca_scan(v, &o, &t, &err);
    }
    bool left_out(const char *text)
    {
        return strstr(t.left_out, text) != nullptr;
    }
    // Scans, and returns the warnings, one a line.
    std::string warnings(const std::string &config)
    {
        std::string all;
        pvn_log_set_capture(
            [](void *to, pvn_log_level level, unsigned long, const char *, int, const char *text) {
                if (level == PVN_LOG_WARN)
                    *static_cast<std::string *>(to) += std::string(text) + "\n";
            },
            &all);
        EXPECT_EQ(scan(config), 0) << err.reason[0];
        pvn_log_set_capture(nullptr, nullptr);
        return all;
    }
};

TEST_F(Hca, PvrdmaWithItsInterfaceAndItsRealLimits)
{
    ASSERT_EQ(scan("profile pvrdma"), 0);
    ASSERT_EQ(t.nports, 1);
    const pvn_hca &h = t.hcas[0];
    const pvn_hca_port &p = t.ports[0];
    EXPECT_EQ(h.kind, PVN_HCA_PVRDMA);
    EXPECT_STREQ(h.driver, "vmw_pvrdma");
    EXPECT_NE(strstr(h.pci_path, "/bus/pci/devices/0000:03:00.1"), nullptr) << h.pci_path;
    EXPECT_EQ(h.max_cqe, 4096u) << "28672 is announced";
    EXPECT_EQ(h.max_wr, 2048u) << "10467 is announced";
    EXPECT_EQ(h.max_inline, 0u);
    EXPECT_EQ(h.max_mr, 1u << 30);
    EXPECT_EQ(h.max_rd_atomic, 16);
    EXPECT_TRUE(h.costly_poll);
    EXPECT_STREQ(p.name, "vmw_pvrdma0:1");
    EXPECT_STREQ(p.ifname, "sveth0");
    EXPECT_TRUE(p.ethernet);
    EXPECT_FALSE(p.speed_known) << "2.5 Gb/s is a constant of the driver";
    EXPECT_EQ(p.max_msg, UINT64_C(1) << 31) << "1024 is announced, and untrue";
    ASSERT_EQ(p.ngids, 2);
    EXPECT_EQ(p.gids[1].type, PVN_GID_ROCE_V2);
    EXPECT_EQ(p.gids[1].index, 1);
    EXPECT_EQ(p.gids[1].prefix, 112);
    EXPECT_NE(strstr(p.why, "PVRDMA on sveth0"), nullptr) << p.why;
    // A queue and a queue pair of the stated limits can be created.
    ibv_cq *cq = v->create_cq(h.ctx, int(h.max_cqe), nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr a{};
    a.send_cq = a.recv_cq = cq;
    a.qp_type = IBV_QPT_RC;
    a.cap = {h.max_wr, h.max_wr, 4, 4, h.max_inline};
    ibv_qp *qp = v->create_qp(h.pd, &a);
    EXPECT_NE(qp, nullptr) << strerror(errno);
    EXPECT_EQ(v->destroy_qp(qp), 0);
    EXPECT_EQ(v->destroy_cq(cq), 0);
}

TEST_F(Hca, QemusVendorIdOfZeroIsStillPvrdma)
{
    ASSERT_EQ(scan("profile pvrdma\nset vendor_id 0"),
              0); // sysfs then says 0 as well, the driver does not
    ASSERT_EQ(t.nports, 1);
    EXPECT_EQ(t.hcas[0].kind, PVN_HCA_PVRDMA);
}

TEST_F(Hca, RoceWithPortsAndBothVersions)
{
    ASSERT_EQ(scan("profile roce\nset devices 2\nset ports 2\nport mlx5_1 1 down"), 0);
    EXPECT_EQ(t.nhcas, 2);
    ASSERT_EQ(t.nports, 3);
    EXPECT_STREQ(t.ports[2].name, "mlx5_1:2");
    EXPECT_EQ(t.ports[2].hca, 1);
    EXPECT_STREQ(t.ports[2].ifname, "sveth5");
    EXPECT_EQ(t.ports[0].speed_mbps, 200000);
    EXPECT_TRUE(t.ports[0].speed_known);
    EXPECT_EQ(t.ports[0].ngids, 4);
    EXPECT_EQ(t.hcas[0].kind, PVN_HCA_OTHER);
    EXPECT_FALSE(t.hcas[0].costly_poll);
    EXPECT_TRUE(left_out("mlx5_1:1 (port is down)")) << t.left_out;
}

TEST_F(Hca, InfinibandNeedsALidButNoInterface)
{
    ASSERT_EQ(scan("profile ib"), 0);
    ASSERT_EQ(t.nports, 1);
    EXPECT_FALSE(t.ports[0].ethernet);
    EXPECT_NE(t.ports[0].lid, 0);
    pvn_hca_port before = t.ports[0], now = before;
    now.lid++;
    now.mtu = IBV_MTU_256;
    EXPECT_LE(0, pvn_hca_current_port(v, &t.hcas[0], &now));
    EXPECT_EQ(before.lid, now.lid) << "a subnet manager may have given another one";
    EXPECT_EQ(before.mtu, now.mtu);
    EXPECT_EQ(t.ports[0].speed_mbps, 400000);
}

TEST_F(Hca, GidPolicyAndItsReasons)
{
    o.gids.roce_version = 2;
    o.gids.family = AF_INET;
    ASSERT_EQ(scan("profile roce"), 0);
    ASSERT_EQ(t.nports, 1);
    ASSERT_EQ(t.ports[0].ngids, 1);
    EXPECT_EQ(t.ports[0].gids[0].index, 3);
    o.gids.index = 12;
    snprintf(o.gid_settings, sizeof o.gid_settings, "NCCL_IB_GID_INDEX=12");
    ASSERT_EQ(scan("profile roce"), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_TRUE(left_out("mlx5_0:1 (no GID fits NCCL_IB_GID_INDEX=12: 0 fe80:")) << t.left_out;
    EXPECT_TRUE(t.by_setting);
    o.gids.index = 16;
    snprintf(o.gid_settings, sizeof o.gid_settings, "NCCL_PVRDMA_GID_INDEX=16");
    ASSERT_EQ(scan("profile roce"), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_TRUE(left_out("(NCCL_PVRDMA_GID_INDEX=16 is outside its GID table of 16 rows, 0 to 15)"))
        << t.left_out;
    EXPECT_TRUE(t.by_setting);
    o.gids.index = -1;
    ASSERT_EQ(scan("profile roce\ngid * 1 clear all"), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_EQ(t.nhcas, 0) << "a device without a usable port is closed again";
    EXPECT_TRUE(left_out("mlx5_0:1 (its GID table is empty: give sveth0 an address)"))
        << t.left_out;
    EXPECT_FALSE(t.by_setting);
}

// As in NCCL, the settings of GIDs are those of RoCE.
TEST_F(Hca, InfinibandIgnoresTheGidPolicy)
{
    for (int index : {3, 600}) {
        o.gids.index = index;
        ASSERT_EQ(scan("profile ib"), 0);
        ASSERT_EQ(t.nports, 1) << t.left_out;
        EXPECT_EQ(t.ports[0].ngids, 1);
        EXPECT_EQ(strstr(t.ports[0].why, "not:"), nullptr) << t.ports[0].why;
    }
}

// A wrong row would fail each queue pair. Operators give the key in its place.
TEST_F(Hca, APortWithoutTheRowOfThePartitionKeyIsLeftOut)
{
    o.pkey = 5;
    snprintf(o.pkey_setting, sizeof o.pkey_setting, "NCCL_IB_PKEY=5");
    ASSERT_EQ(scan("profile ib"), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_TRUE(left_out("mlx5_0:1 (NCCL_IB_PKEY=5 is no row of its table of 1 partition key: give "
                         "the number of a row in /sys/class/infiniband/mlx5_0/ports/1/pkeys, not a "
                         "key such as 0x8001)"))
        << t.left_out;
    EXPECT_TRUE(t.by_setting);
    static const pvn_verbs *real;
    static uint16_t length;
    real = v;
    pvn_verbs other = *v;
    other.query_port = [](ibv_context *c, uint8_t port, ibv_port_attr *a) {
        int rc = real->query_port(c, port, a);
        a->pkey_tbl_len = length;
        return rc;
    };
    for (uint16_t n : {uint16_t(0), uint16_t(5), uint16_t(6)}) {
        length = n;
        pvn_hca_close(v, &t);
        ASSERT_EQ(pvn_hca_scan(&other, &o, &t, &err), 0);
        EXPECT_EQ(t.nports, n == 5 ? 0 : 1) << n << ": " << t.left_out;
    }
}

// A port that is down is left out for that, whatever the settings are, and an exclusion is the user's intention.
TEST_F(Hca, SettingsThatLeaveOutAnActivePortAreKnown)
{
    struct {
        const char *hca, *down, *says;
        bool by_setting;
    } const cases[] = {
        {"mlx5_0:3", "", "mlx5_0:1 (not in NCCL_IB_HCA=mlx5_0:3)", true},
        {"mlx5_0:3", "\nport * 1 down\nport * 2 down", "mlx5_0:2 (port is down)", false},
        {"mlx5_0:1", "\nport * 1 down", "mlx5_0:2 (not in NCCL_IB_HCA=mlx5_0:1)", false},
        {"mlx5_0:1", "\nport * 2 down", "mlx5_0:2 (port is down)", false},
        {"", "\nport * 1 down\nport * 2 down", "mlx5_0:1 (port is down)", false},
        {"^mlx5_0", "", "mlx5_0:2 (excluded by NCCL_IB_HCA=^mlx5_0)", false},
    };
    for (auto &c : cases) {
        o.hca = c.hca;
        ASSERT_EQ(scan(std::string("profile roce\nset ports 2") + c.down), 0) << err.reason[0];
        EXPECT_TRUE(left_out(c.says)) << t.left_out;
        EXPECT_EQ(t.by_setting, c.by_setting) << t.left_out;
    }
}

// Old libraries have no call for the whole table. It is read row by row, with the types from sysfs.
TEST_F(Hca, GidTableRowByRowIsTheSame)
{
    ASSERT_EQ(scan("profile roce\ngid * 1 9 2001:db8::9 v2 sveth0"), 0);
    ASSERT_EQ(t.nports, 1);
    pvn_hca_port whole = t.ports[0];
    pvn_hca_close(v, &t);
    pvn_verbs old = *v;
    old.query_gid_table = nullptr;
    ASSERT_EQ(pvn_hca_scan(&old, &o, &t, &err), 0);
    ASSERT_EQ(t.nports, 1);
    ASSERT_EQ(t.ports[0].ngids, 5);
    EXPECT_EQ(memcmp(t.ports[0].gids, whole.gids, sizeof whole.gids), 0);
}

TEST_F(Hca, MoreRowsThanCanBeOffered)
{
    std::string config = "profile roce";
    rows = 64;
    for (int i = 10; i < 60; i++)
        config += "\ngid * 1 " + std::to_string(i) + " 10.1.0." + std::to_string(i) + " v2";
    ASSERT_EQ(scan(config), 0);
    ASSERT_EQ(t.nports, 1);
    EXPECT_EQ(t.ports[0].ngids, int(PVN_RDMA_MAX_GIDS));
    EXPECT_NE(strstr(t.ports[0].why, "32 GIDs of 54"), nullptr) << t.ports[0].why;
}

// A lane reads the table again, and finds the rows that the scan found.
TEST_F(Hca, ARowBehindThoseThatCanBeOfferedIsFoundAgain)
{
    std::string config = "profile roce";
    rows = 64;
    for (int i = 10; i < 60; i++)
        config += "\ngid * 1 " + std::to_string(i) + " 10.1.0." + std::to_string(i) + " v2";
    o.gids.index = 50;
    ASSERT_EQ(scan(config), 0);
    ASSERT_EQ(t.nports, 1) << t.left_out;
    EXPECT_EQ(t.ports[0].ngids, 1);
    pvn_gid_row now[PVN_RDMA_MAX_GIDS];
    bool whole = false;
    ASSERT_EQ(pvn_hca_current_gids(v, &o, &t.hcas[0], &t.ports[0], now, PVN_RDMA_MAX_GIDS, &whole),
              1);
    EXPECT_EQ(now[0].index, 50);
    o.gids.index = -1;
    EXPECT_EQ(pvn_hca_current_gids(v, &o, &t.hcas[0], &t.ports[0], now, PVN_RDMA_MAX_GIDS, &whole),
              int(PVN_RDMA_MAX_GIDS));
    EXPECT_TRUE(whole);
}

TEST_F(Hca, IwarpIsOfNoUse)
{
    ASSERT_EQ(scan("profile roce\nset iwarp 1"), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_EQ(t.nhcas, 0);
    EXPECT_TRUE(left_out("mlx5_0 (iWARP, not RoCE")) << t.left_out;
}

TEST_F(Hca, WithoutAnInterfaceRoceIsOfNoUse)
{
    ASSERT_EQ(scan("profile pvrdma"), 0);
    pvn_hca_close(v, &t);
    ASSERT_EQ(
        system(("rm -r " + std::string(root) + "/class/infiniband/vmw_pvrdma0/ports").c_str()), 0);
    ASSERT_EQ(pvn_hca_scan(v, &o, &t, &err), 0);
    ASSERT_EQ(t.nports, 1) << "function 0's interface is found by the PCI address: " << t.left_out;
    EXPECT_STREQ(t.ports[0].ifname, "sveth0");
    pvn_hca_close(v, &t);
    ASSERT_EQ(system(("rm -r " + std::string(root) + "/class/net").c_str()), 0);
    ASSERT_EQ(pvn_hca_scan(v, &o, &t, &err), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_TRUE(left_out("is vmxnet3 bound to function 0")) << t.left_out;
}

TEST_F(Hca, FilterNamesWhatExists)
{
    o.hca = "mlx5_1:2,mlx5_2";
    ASSERT_EQ(scan("profile roce\nset devices 3\nset ports 2"), 0) << err.reason[0];
    ASSERT_EQ(t.nports, 3);
    EXPECT_STREQ(t.ports[0].name, "mlx5_1:2");
    EXPECT_STREQ(t.ports[1].name, "mlx5_2:1");
    EXPECT_TRUE(left_out("mlx5_0 (not in NCCL_IB_HCA=mlx5_1:2,mlx5_2)")) << t.left_out;
    EXPECT_FALSE(t.by_setting) << "others are in the list";
    o.hca = "mlx5_1";
    ASSERT_EQ(scan("profile roce\nset devices 2\nport mlx5_1 1 down"), 0) << err.reason[0];
    EXPECT_TRUE(left_out("mlx5_0 (not in NCCL_IB_HCA=mlx5_1)")) << t.left_out;
    EXPECT_FALSE(t.by_setting) << "the list is right, and its port is down";
    o.hca = "mlx5_1:2";
    ASSERT_EQ(scan("profile roce\nset devices 2"), 0) << err.reason[0];
    EXPECT_TRUE(t.by_setting) << "it has no such port";
    o.hca = "^mlx5_1";
    ASSERT_EQ(scan("profile roce\nset devices 3"), 0);
    EXPECT_EQ(t.nports, 2);
    o.hca = "=mlx5";
    EXPECT_EQ(scan("profile roce\nset devices 3"), -ENODEV);
    EXPECT_EQ(err.fault, PVN_FAULT_USAGE);
    EXPECT_STREQ("NCCL_IB_HCA==mlx5 names no RDMA device of this host, so RDMA is not used; there "
                 "are: mlx5_0, mlx5_1, mlx5_2; correct it, or unset it to take all",
                 err.reason[0]);
    o.hca = "mlx5";
    EXPECT_EQ(scan("set devices 0"), -ENODEV);
    EXPECT_NE(strstr(err.reason[0], "there is none"), nullptr) << err.reason[0];
    o.hca = "";
    EXPECT_EQ(scan("set devices 0"), 0);
    EXPECT_EQ(t.nports, 0);
}

// A list for all hosts of a site may name devices that this one lacks. NCCL uses those that it has.
TEST_F(Hca, TheDevicesThatExistAreUsedAndTheOthersReported)
{
    o.hca = "hfi1,mlx5_1,mlx5_9:1";
    EXPECT_EQ(
        warnings("profile roce\nset devices 2"),
        "NCCL_IB_HCA=hfi1,mlx5_1,mlx5_9:1: no RDMA device is called \"hfi1\", \"mlx5_9:1\"; "
        "there are: mlx5_0, mlx5_1; the rest of the list is used; correct the list, unless it "
        "is one for hosts of several kinds\n");
    ASSERT_EQ(t.nports, 1);
    EXPECT_STREQ(t.ports[0].name, "mlx5_1:1");
    o.hca_from = "NCCL_PVRDMA_IB_HCA";
    EXPECT_EQ(warnings("profile roce\nset devices 2").find("NCCL_PVRDMA_IB_HCA="), 0u);
    EXPECT_TRUE(left_out("mlx5_0 (not in NCCL_PVRDMA_IB_HCA=hfi1,mlx5_1,mlx5_9:1)")) << t.left_out;
    for (const char *list : {"", "mlx5_1", "^hfi1"}) {
        o.hca = list;
        EXPECT_EQ(warnings("profile roce\nset devices 2"), "") << list;
    }
    o.hca = "mlx5_1,hfi1";
    o.every_name = true;
    EXPECT_EQ(scan("profile roce\nset devices 2"), -ENODEV);
    EXPECT_NE(strstr(err.reason[0], "called \"hfi1\", and NCCL_PVRDMA_STRICT is set"), nullptr)
        << err.reason[0];
}

// A kernel without RDMA returns an error instead of an empty list.
TEST_F(Hca, NamesAreMissedWithoutRdmaAsWell)
{
    for (int code : {ENOSYS, ENODEV}) {
        pvn_verbs without = *v;
        static int answer;
        answer = code;
        without.get_device_list = [](int *n) -> ibv_device ** {
            *n = -1;
            errno = answer;
            return nullptr;
        };
        o.hca = "mlx5";
        o.hca_from = "NCCL_PVRDMA_IB_HCA";
        o.may_lack_rdma = false;
        EXPECT_EQ(pvn_hca_scan(&without, &o, &t, &err), -ENODEV);
        EXPECT_STREQ("NCCL_PVRDMA_IB_HCA=mlx5 names no RDMA device of this host, so RDMA is not "
                     "used; there is none",
                     err.reason[0]);
        pvn_err_clear(&err);
        o.hca_from = nullptr;
        o.may_lack_rdma = true;
        EXPECT_EQ(pvn_hca_scan(&without, &o, &t, &err), 0) << err.reason[0];
        EXPECT_TRUE(left_out("NCCL_IB_HCA=mlx5 names no RDMA device of this host")) << t.left_out;
        EXPECT_EQ(scan("profile roce\nset devices 0"), 0) << err.reason[0];
        o.hca = "hfi1";
        EXPECT_EQ(scan("profile roce"), -ENODEV) << "there are others";
        o.may_lack_rdma = false;
        for (const char *list : {"", "^mlx5"}) {
            o.hca = list;
            EXPECT_EQ(pvn_hca_scan(&without, &o, &t, &err), 0) << err.reason[0];
            EXPECT_FALSE(left_out("names no RDMA device")) << t.left_out;
        }
        o.hca = "mlx5";
        o.may_lack_rdma = true;
        EXPECT_EQ(pvn_hca_scan(&without, &o, &t, &err), -ENODEV) << "the kernel has one";
        EXPECT_NE(strstr(err.reason[0],
                         "there is none: mlx5_0 (the kernel has it, libibverbs does not: "
                         "install its provider"),
                  nullptr)
            << err.reason[0];
        EXPECT_EQ(system(("rm -r " + std::string(root) + "/class").c_str()), 0);
    }
}

TEST(HcaFilter, TheFilterTakesWhatNcclsTakes)
{
    struct {
        const char *filter, *name;
        int port;
        bool yes;
    } const cases[] = {
        {"", "mlx5_0", 1, true},
        {nullptr, "mlx5_0", 1, true},
        {"mlx5", "mlx5_0", 1, true},
        {"mlx5_0", "mlx5_01", 1, true},
        {"=mlx5_0", "mlx5_01", 1, false},
        {"=mlx5_0", "mlx5_0", 2, true},
        {"mlx5_0:1", "mlx5_0", 2, false},
        {"mlx5_0:2", "mlx5_0", 2, true},
        {"^mlx5_0:2", "mlx5_0", 2, false},
        {"^mlx5_0:2", "mlx5_0", 1, true},
        {"^=mlx5_0,mlx5_1", "mlx5_1", 1, false},
        {"^=mlx5_0", "mlx5_00", 1, true},
        {"a, mlx5_0", "mlx5_0", 1, true},
        {"^", "mlx5_0", 1, true},
        {"=", "mlx5_0", 1, true},
        {",,", "mlx5_0", 1, true},
        {":1", "mlx5_0", 2, true},
        {"rxe", "mlx5_0", 1, false},
        {"mlx5_0:1,mlx5_0:2", "mlx5_0", 2, true},
        {"mlx5_0:", "mlx5_0", 2, true},
        {"=mlx5_0::0:1,mlx5_1::0:1", "mlx5_0", 2, true},
        {"=mlx5_0:1:0:1", "mlx5_0", 1, true},
        {"=mlx5_0:1:2:2", "mlx5_0", 2, false},
    };
    for (auto &c : cases)
        EXPECT_EQ(pvn_dev_list_matches(c.filter, c.name, c.port), c.yes)
            << (c.filter ? c.filter : "NULL") << " against " << c.name << ":" << c.port;
}

TEST(HcaSpeed, SpeedAndWidthCodesGiveTheRate)
{
    EXPECT_EQ(pvn_hca_speed_mbps(1, 1), 2500);
    EXPECT_EQ(pvn_hca_speed_mbps(32, 2), 100000);
    EXPECT_EQ(pvn_hca_speed_mbps(128, 2), 400000);
    EXPECT_EQ(pvn_hca_speed_mbps(32, 16), 50000);
    EXPECT_EQ(pvn_hca_speed_mbps(3, 2), 0);
    EXPECT_EQ(pvn_hca_speed_mbps(32, 3), 0);
}

TEST_F(Hca, WhatFailsIsSaidAndLeaksNothing)
{
    struct {
        const char *rule, *says;
    } const cases[] = {
        {"rule x fail call=open_device errno=EACCES", "cannot be opened: Permission denied"},
        {"rule x fail call=query_device errno=EIO", "does not answer"},
        {"rule x fail call=query_port errno=EIO", "its state cannot be read"},
        {"rule x fail call=alloc_pd errno=ENOMEM", "no protection domain"},
    };
    for (auto &c : cases) {
        ASSERT_EQ(scan(std::string("profile roce\nset devices 2\n") + c.rule), 0);
        EXPECT_EQ(lib().sv_rule_fired("x"), 1) << c.rule;
        EXPECT_EQ(t.nports, 1) << "the other device is not harmed: " << t.left_out;
        EXPECT_TRUE(left_out(c.says)) << t.left_out;
        EXPECT_TRUE(left_out("mlx5_0")) << t.left_out;
        pvn_hca_close(v, &t);
        char text[512];
        ASSERT_EQ(lib().sv_command("stat", text, sizeof text), 0);
        EXPECT_NE(strstr(text, "leaked=0"), nullptr) << text;
    }
    EXPECT_EQ(scan("rule x fail call=get_device_list errno=EIO"), -EIO);
    EXPECT_EQ(lib().sv_rule_fired("x"), 1);
    EXPECT_EQ(scan("rule x fail call=query_gid_table errno=EIO"), 0);
    EXPECT_EQ(t.nports, 1) << "the table is then read row by row";
    EXPECT_EQ(lib().sv_rule_fired("x"), 1);
}

// The speed codes of ibv_query_port end with NDR.
TEST_F(Hca, APortOfXdrHasItsOwnSpeed)
{
    ASSERT_EQ(scan("profile ib\nset speed 256"), 0);
    ASSERT_EQ(t.nports, 1) << t.left_out;
    EXPECT_EQ(t.ports[0].speed_mbps, 800000);
    EXPECT_TRUE(t.ports[0].speed_known);
}

TEST_F(Hca, APortThatIsNotSupportedIsLeftOutWithTheReason)
{
    ASSERT_EQ(scan("profile ib\nset grh_required 1"), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_TRUE(left_out("global route header")) << t.left_out;
    pvn_hca_close(v, &t);
    ASSERT_EQ(scan("profile roce\nset ethernet 0\nset no_link_layer 1"), 0);
    EXPECT_EQ(t.nports, 0);
    EXPECT_TRUE(left_out("neither InfiniBand nor RoCE")) << t.left_out;
}

TEST_F(Hca, ADeviceWithoutAProviderIsNamed)
{
    ASSERT_EQ(scan("profile roce"), 0);
    EXPECT_FALSE(left_out("provider")) << t.left_out;
    pvn_hca_close(v, &t);
    ASSERT_EQ(system(("mkdir " + std::string(root) + "/class/infiniband/vmw_pvrdma7").c_str()), 0);
    ASSERT_EQ(pvn_hca_scan(v, &o, &t, &err), 0);
    EXPECT_EQ(t.nports, 1);
    EXPECT_TRUE(left_out("vmw_pvrdma7 (the kernel has it, libibverbs does not")) << t.left_out;
    EXPECT_TRUE(left_out("ibverbs-providers")) << t.left_out;
}

// ---- the library itself ----

TEST(Verbs, UselessLibrariesAreNamed)
{
    pvn_err err;
    pvn_err_clear(&err);
    EXPECT_EQ(pvn_verbs_get("/nonexistent/libibverbs.so.1", &err), nullptr);
    EXPECT_NE(strstr(err.reason[0], "/nonexistent/libibverbs.so.1"), nullptr) << err.reason[0];
    EXPECT_EQ(strstr(err.reason[0], "install"), nullptr)
        << "the usual one is no help: " << err.reason[0];
    pvn_err_clear(&err);
    EXPECT_EQ(pvn_verbs_get(PVN_BUILDDIR "/tests/softverbs/.libs/libsvpartial.so", &err), nullptr);
    EXPECT_NE(strstr(err.reason[0], "ibv_get_device_name"), nullptr) << err.reason[0];
    pvn_err_clear(&err);
    EXPECT_EQ(pvn_verbs_get(PVN_BUILDDIR "/tests/softverbs/.libs/libsvancient.so", &err), nullptr);
    EXPECT_NE(strstr(err.reason[0], "of version IBVERBS_1.1"), nullptr) << err.reason[0];
    pvn_err_clear(&err);
    const pvn_verbs *v = pvn_verbs_get(library().c_str(), &err);
    ASSERT_NE(v, nullptr) << "a later attempt with another library is not harmed: "
                          << err.reason[0];
    EXPECT_EQ(pvn_verbs_get("anything", &err), v) << "one table per process";
    pvn_verbs_put();
    pvn_verbs_put();
}

} // namespace
