// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo check of this machine: whether the plugin would start with the given settings, and on which devices.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

#include "support/key_file.h"
#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

class CheckStart : public testing::Test
{
  protected:
    TempDir dir;

    // Neither other processes nor a home directory influence the result.
    std::string env(const std::string &more) const
    {
        return "NCCL_PVRDMA_STATS_DIR=" + dir.path + "/none NCCL_CONF_FILE=" + dir.path + "/none " +
               more;
    }
    Result check(const std::string &more, const std::string &args = "--interval 0 check")
    {
        return run_tool(dir.path, args, env(more));
    }
    // Runs check in a network namespace that the commands have set up.
    Result check_in(const std::string &setup, const std::string &more = "")
    {
        std::ofstream(dir.path + "/go")
            << "set -e\n"
            << setup << "\ncd '" << dir.path << "'\nexec env -i PATH=\"$PATH\" "
            << "ASAN_OPTIONS=\"$ASAN_OPTIONS\" LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" " << env(more)
            << " '" PVN_BUILDDIR "/topo/pvn-topo' --interval 0 --all check >stdout 2>stderr\n";
        int rc = std::system(("unshare -n sh " + dir.path + "/go").c_str());
        return {WIFEXITED(rc) ? WEXITSTATUS(rc) : -1, read_file(dir.path + "/stdout"),
                read_file(dir.path + "/stderr")};
    }
    static bool no_namespaces()
    {
        return std::system("unshare -n ip link >/dev/null 2>&1") != 0;
    }
};

struct Row {
    const char *env;
    int status;
    const char *says;
};

TEST_F(CheckStart, SettingsThatThePluginRefusesOrDoesNotKnow)
{
    const Row rows[] = {
        {"NCCL_PVRDMA_TRANSPORT=udp", 1,
         "FAIL settings environment: the plugin refuses to start: NCCL_PVRDMA_TRANSPORT=udp "},
        {"NCCL_PVRDMA_ENCRYPT=all", 1,
         "FAIL settings environment: no connection is made: NCCL_PVRDMA_ENCRYPT needs a key"},
        {"NCCL_PVRDMA_ENCRYPT=all NCCL_PVRDMA_TRANSPORT=rdma NCCL_PVRDMA_KEY_FILE=key", 1,
         "FAIL settings environment: no connection is made: NCCL_PVRDMA_ENCRYPT=all excludes"},
        {"NCCL_PVRDMA_FAILOVR=1", -1,
         "WARN settings environment: NCCL_PVRDMA_FAILOVR is not a parameter; did you mean "
         "NCCL_PVRDMA_FAILOVER?"},
        {"NCCL_IB_ADDR_RANGE=foo", -1,
         "WARN settings environment: NCCL_IB_ADDR_RANGE=foo is not a network; this plugin takes "
         "ADDRESS/PREFIX, such as 10.1.0.0/16 or fd00::/64 there and uses its default, empty; "
         "NCCL_PVRDMA_ADDR_RANGE overrides it"},
        {"NCCL_PVRDMA_ADDR_RANGE=10.1.0.0", 1,
         "the plugin refuses to start: NCCL_PVRDMA_ADDR_RANGE=10.1.0.0 is not a network; it takes "},
        {"NCCL_SOCKET_FAMILY=AF_INET", -1,
         "OK settings environment: 2 of the plugin's parameters are set"},
    };
    write_file(dir.path + "/key", std::string(40, 'k'));
    for (const Row &row : rows) {
        Result r = check(row.env, "--interval 0 --all check");
        EXPECT_SAYS(squeeze(r.out), row.says);
        EXPECT_TRUE(row.status < 0 || row.status == r.status) << row.env << ": " << r.status;
        EXPECT_EQ(std::string::npos, r.out.find("kkkk"));
    }
    EXPECT_SAYS(
        squeeze(check("NCCL_PVRDMA_TRANSPORT=udp", "--interval 0 --all --no-env check").out),
        "OK settings environment: 0 of the plugin's parameters are set");
    EXPECT_SAYS(check("NCCL_PVRDMA_TRANSPORT=udp", "--interval 0 --json check").out,
                "\"check\": \"settings\"");
}

TEST_F(CheckStart, ParamsNamesAKeyThatIsMissing)
{
    Result r = check("NCCL_PVRDMA_ENCRYPT=all", "params");
    EXPECT_SAYS(r.err, "the plugin would make no connection: NCCL_PVRDMA_ENCRYPT needs a key");
    EXPECT_SAYS(r.out, "NCCL_PVRDMA_ENCRYPT");
    EXPECT_EQ(1, r.status);
    EXPECT_EQ(0, check("", "params").status);
}

TEST_F(CheckStart, NoDeviceIsAFailure)
{
    const Row rows[] = {
        {"NCCL_SOCKET_IFNAME=eth9x", 1,
         "no interface matches NCCL_SOCKET_IFNAME=eth9x; there are: lo"},
        {"NCCL_PVRDMA_TRANSPORT=rdma NCCL_PVRDMA_VERBS_LIB=/nowhere/libibverbs.so", 1,
         "/nowhere/libibverbs.so"},
        {"NCCL_PVRDMA_STRICT=1 NCCL_SOCKET_IFNAME=eth9x", 1, "the plugin refuses to start: "},
    };
    for (const Row &row : rows) {
        Result r = check(row.env);
        EXPECT_SAYS(squeeze(r.out), "FAIL interfaces devices: the plugin ");
        EXPECT_SAYS(squeeze(r.out), row.says);
        EXPECT_EQ(row.status, r.status) << row.env;
        EXPECT_EQ("", r.err);
    }
    // If the RDMA library that is named does not exist the plugin uses TCP.
    Result r = check("NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_VERBS_LIB=/nowhere/libibverbs.so");
    EXPECT_SAYS(squeeze(r.out), "WARN interfaces devices: ");
    EXPECT_SAYS(squeeze(r.out), "/nowhere/libibverbs.so");
}

TEST_F(CheckStart, AdaptersAreOpenedInAProcessOfTheirOwn)
{
    std::string sys = dir.path + "/sys",
                adapters = "NCCL_PVRDMA_VERBS_LIB=" PVN_BUILDDIR
                           "/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=pvrdma "
                           "PVN_SOFTVERBS_SYSFS=" +
                           sys + " NCCL_PVRDMA_SYSFS_ROOT=" + sys + " NCCL_SOCKET_IFNAME=lo ";
    ASSERT_EQ(0, mkdir(sys.c_str(), 0755));
    Result r = check(adapters, "--interval 0 --all check");
    EXPECT_SAYS(squeeze(r.out), "OK interfaces vmw_pvrdma0: the plugin uses it");
    // NCCL ignores such a range, and so does the plugin.
    for (const char *range : {"10.1.0.0/255.255.0.0", "10.1.0.0/99", "10.1.0.0"}) {
        r = check(adapters + "NCCL_IB_ADDR_RANGE=" + range, "--interval 0 --all check");
        EXPECT_SAYS(squeeze(r.out), "WARN settings environment: NCCL_IB_ADDR_RANGE=");
        EXPECT_SAYS(squeeze(r.out), "OK interfaces vmw_pvrdma0: the plugin uses it");
    }
    // Each of these settings leaves no port.
    const Row rows[] = {
        {"NCCL_IB_GID_INDEX=3", 0, "vmw_pvrdma0:1 (no GID fits NCCL_IB_GID_INDEX=3: 0 "},
        {"NCCL_PVRDMA_GID_INDEX=300", 0,
         "vmw_pvrdma0:1 (NCCL_PVRDMA_GID_INDEX=300 is outside its GID table of 255 rows"},
        {"NCCL_IB_ROCE_VERSION_NUM=1 NCCL_PVRDMA_ADDR_FAMILY=ipv4", 0,
         "no GID fits NCCL_IB_ROCE_VERSION_NUM=1, NCCL_PVRDMA_ADDR_FAMILY=AF_INET: 0 "},
        {"NCCL_IB_ADDR_RANGE=10.1.0.0/16", 0, "no GID fits NCCL_IB_ADDR_RANGE=10.1.0.0/16: 0 "},
        {"NCCL_IB_PKEY=5", 0, "(NCCL_IB_PKEY=5 is no row of its table of 1 partition key: "},
        {"NCCL_PVRDMA_PKEY=0x8001", 0, "(NCCL_PVRDMA_PKEY=32769 (0x8001) is no row of its table"},
        {"NCCL_IB_HCA=vmw_pvrdma0:2", 0, "vmw_pvrdma0:1 (not in NCCL_IB_HCA=vmw_pvrdma0:2)"},
    };
    std::string no_port = "settings leave no RDMA port, so RDMA is not used; correct or unset "
                          "them, or set NCCL_PVRDMA_TRANSPORT=tcp: ";
    for (const Row &row : rows) {
        r = check(adapters + row.env);
        EXPECT_SAYS(squeeze(r.out), "WARN interfaces devices: " + no_port);
        EXPECT_SAYS(squeeze(r.out), row.says);
        EXPECT_EQ(std::string::npos, r.out.find("although there are RDMA")) << "said twice";
        r = check(adapters + row.env + " NCCL_PVRDMA_STRICT=1");
        EXPECT_SAYS(squeeze(r.out), "the plugin refuses to start: " + no_port);
        EXPECT_EQ(1, r.status);
    }
    for (const Row &row : {Row{"PVN_SOFTVERBS_SET='port * 1 down'", 0, "(port is down)"},
                           Row{"NCCL_IB_HCA=^vmw_pvrdma0", 0, "(excluded by NCCL_IB_HCA="}}) {
        r = check(adapters + row.env, "--interval 0 --all check");
        EXPECT_SAYS(squeeze(r.out), row.says);
        EXPECT_EQ(std::string::npos, squeeze(r.out).find("settings leave")) << row.env;
    }
    // softverbs ends its process if this variable is wrong.
    r = check(adapters + "PVN_SOFTVERBS_SET=nonsense");
    EXPECT_SAYS(squeeze(r.out), "FAIL interfaces devices: the process that looked for devices was "
                                "ended by ");
    EXPECT_SAYS(squeeze(r.out), "not readable");
    EXPECT_EQ(1, r.status);
}

TEST_F(CheckStart, AFileThatNcclsReaderRefuses)
{
    std::string file = PVN_SRCDIR "/tests/topo/data/traps.xml";
    Result r = check("NCCL_TOPO_FILE=" + file);
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_SAYS(squeeze(r.out),
                "FAIL topo-file NCCL_TOPO_FILE: line 1: NCCL's reader stops here: an XML "
                "declaration (<?xml ...?>)");
    EXPECT_SAYS(squeeze(r.out), "-> remove that line: the first tag is <system>");
    EXPECT_EQ(std::string::npos,
              check("NCCL_TOPO_FILE=" + file, "--interval 0 --no-env check").out.find("topo-file"));
    EXPECT_EQ(std::string::npos,
              check("NCCL_TOPO_FILE=" PVN_SRCDIR "/tests/topo/data/two-switches.xml")
                  .out.find("topo-file"));
}

TEST_F(CheckStart, InterfacesAreThoseOfTheNamespace)
{
    if (no_namespaces())
        GTEST_SKIP() << "no network namespaces here: unshare -n";
    Result r = check_in("ip link set lo up");
    EXPECT_SAYS(squeeze(r.out),
                "WARN interfaces lo: only loopback is used, so no other machine can be reached");
    r = check_in("ip link set lo up", "NCCL_SOCKET_IFNAME=lo");
    EXPECT_SAYS(squeeze(r.out), "OK interfaces lo: the plugin uses ");
    r = check_in("");
    EXPECT_EQ(1, r.status);
    EXPECT_SAYS(squeeze(r.out), "FAIL interfaces devices: the plugin has no device here");
    EXPECT_SAYS(squeeze(r.out), "lo (down)");
    std::string pair = "ip link add a0 type veth peer name b0\nip addr add 10.77.0.1/24 dev a0\n";
    r = check_in("ip link set lo up\n" + pair);
    EXPECT_SAYS(squeeze(r.out), "WARN interfaces lo: only loopback is used");
    EXPECT_SAYS(squeeze(r.out), "a0 (down)");
    r = check_in(pair + "ip link set a0 up\nip link set b0 up\n");
    EXPECT_SAYS(squeeze(r.out), "OK interfaces a0: the plugin uses it; not used: ");
    EXPECT_EQ(std::string::npos, squeeze(r.out).find("WARN interfaces")) << r.out;
}

} // namespace
