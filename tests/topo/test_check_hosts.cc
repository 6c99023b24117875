// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo check --hosts, and check of saved files: both report the hosts that differ from the others.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

using Facts = std::map<std::pair<std::string, std::string>, std::string>; // "?" is not readable

class CheckHosts : public testing::Test
{
  protected:
    TempDir dir;
    Facts usual = {{{"kernel", ""}, "6.1.0"},          {{"mtu", "mlx5_0 port 1"}, "9000"},
                   {{"mtu", "mlx5_1 port 1"}, "9000"}, {{"memlock", ""}, "unlimited"},
                   {{"plugin-sha256", ""}, "aa11"},    {{"environment", "NCCL_IB_TC"}, "106"}};

    void SetUp() override
    {
        std::ofstream(dir.path + "/play") << "#!/bin/sh\n"
                                             "[ \"$2\" = 'pvn-topo --json check' ] || exit 9\n"
                                             "[ -f $1.json ] && exec cat $1.json\n"
                                             "echo \"ssh: No route to host\" >&2; exit 255\n";
        chmod((dir.path + "/play").c_str(), 0755);
    }
    void put(const std::string &host, const Facts &facts, const std::string &checks = "",
             const std::string &name = "")
    {
        std::ofstream f(dir.path + "/" + (name.empty() ? host : name) + ".json");
        f << "{\"format\": \"pvn-topo\", \"format_version\": 1, \"tool_version\": \"x\", \"kind\": "
             "\"check\", \"host\": \""
          << host << "\", \"checks\": [" << checks << "], \"facts\": [";
        bool first = true;
        for (const auto &[key, value] : facts) {
            f << (first ? "" : ", ") << "{\"fact\": \"" << key.first
              << "\", \"subject\": " << (key.second.empty() ? "null" : "\"" + key.second + "\"")
              << ", \"value\": " << (value == "?" ? "null" : "\"" + value + "\"") << "}";
            first = false;
        }
        f << "]}";
    }
    void put_all(int n)
    {
        for (int i = 0; i < n; i++)
            put("c" + std::to_string(i), usual);
    }
    Facts with(const std::string &fact, const std::string &subject, const std::string &value) const
    {
        Facts f = usual;
        f[{fact, subject}] = value;
        return f;
    }
    Result run(const std::string &args)
    {
        return run_tool(dir.path, "--ssh ./play --hosts " + args + " check");
    }
    static bool says(const Result &r, const std::string &text)
    {
        return squeeze(r.out).find(text) != std::string::npos;
    }
};

TEST_F(CheckHosts, HostsThatAreAlikeAreOneLine)
{
    put_all(4);
    Result r = run("c[0-3]");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ(0u, r.out.find("4 hosts are alike in all 6 facts\n")) << r.out;
}

TEST_F(CheckHosts, TheOddOneIsNamedOnceForAllItsDevices)
{
    put_all(16);
    Facts odd = with("mtu", "mlx5_0 port 1", "1500");
    odd[{"mtu", "mlx5_1 port 1"}] = "1500";
    put("c7", odd);
    put("c9", with("plugin-sha256", "", "bb22"));
    Result r = run("c[0-15]");
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_EQ(0u, r.out.find("16 hosts differ in 2 facts and are alike in 3\n")) << r.out;
    EXPECT_TRUE(says(r, "ODD MTU of mlx5_0 port 1, mlx5_1 port 1: c7: 1500; the 15 others: 9000 -> "
                        "set the same MTU"))
        << r.out;
    EXPECT_TRUE(says(r, "ODD plugin's file: c9: bb22; the 15 others: aa11 -> install the same"))
        << r.out;
    EXPECT_TRUE(says(r, " 2 facts differ; 0 kinds of failures, 0 to look at")) << r.out;
}

TEST_F(CheckHosts, GroupsWhereThereIsNoMajority)
{
    put_all(4);
    put("c2", with("kernel", "", "6.6.1"));
    put("c3", with("kernel", "", "6.6.1"));
    Result r = run("c[0-3]");
    EXPECT_EQ(1, r.status);
    EXPECT_TRUE(says(r, "ODD kernel: no majority: c[0-1]: 6.1.0; c[2-3]: 6.6.1 -> boot the same"))
        << r.out;
    EXPECT_TRUE(says(r, " 1 fact differs; 0 kinds of failures, 0 to look at")) << r.out;
    r = run("x,y");
    EXPECT_EQ(3, r.status);
    EXPECT_TRUE(says(r, " 2 of 2 hosts gave no facts; 0 kinds of failures")) << r.out;
}

TEST_F(CheckHosts, WhatCouldNotBeComparedIsSaid)
{
    put_all(4);
    put("c1", with("memlock", "", "?"));
    Facts idle = usual;
    idle.erase({"environment", "NCCL_IB_TC"});
    put("c2", idle);
    std::ofstream(dir.path + "/c3.json") << "{\"kind\": \"check\", \"checks\": []}";
    Result r = run("c[0-4]");
    EXPECT_EQ(3, r.status) << "c4 is not there";
    EXPECT_EQ(0u, r.out.find("3 hosts are alike in all 6 facts\n")) << r.out;
    EXPECT_TRUE(says(r, "c4: not reached: ssh: No route to host -> look whether")) << r.out;
    EXPECT_TRUE(says(r, "not compared: limit of locked memory: not readable on c1")) << r.out;
    EXPECT_TRUE(says(r, "NCCL's variables of processes: none uses the plugin, or it is another "
                        "user's, on c2"))
        << r.out;
    EXPECT_TRUE(says(r, "c3: its pvn-topo is of a version whose check has no facts")) << r.out;
    EXPECT_TRUE(says(r, " 2 of 5 hosts gave no facts; 0 kinds of failures, 0 to look at")) << r.out;
    r = run("c0");
    EXPECT_EQ(0u, r.out.find("only one host gave its facts: there is nothing to compare")) << r.out;
}

TEST_F(CheckHosts, AnInterfaceThatNotAllHaveAndThoseLeftOutAreNamed)
{
    put_all(4);
    Facts more = usual;
    more[{"mtu", "bond0"}] = "9000";
    more[{"left-out", ""}] = "docker0 wg0";
    put("c1", more);
    put("c2", more);
    Result r = run("c[0-3]");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_TRUE(says(r, "not compared: MTU of bond0: it is only on c[1-2]")) << r.out;
    EXPECT_TRUE(says(r, "interfaces that the plugin does not take by itself (NCCL_SOCKET_IFNAME): "
                        "docker0 wg0 on c[1-2]"))
        << r.out;
}

// Interfaces of pods and containers have no PCI function, like bonds and VLANs. The hosts are four network
// namespaces, one of them with a small MTU.
TEST_F(CheckHosts, InterfacesWithoutAPciFunctionAreCompared)
{
    const std::string id = "pvnt" + std::to_string(getpid()) + "n";
    std::string up = "set -e\n", down;
    for (int i = 0; i < 4; i++) {
        std::string ns = id + std::to_string(i), in = "ip -n " + ns + " ";
        up += "ip netns add " + ns + "\n" + in + "link add eth0 type veth peer name other\n" + in +
              "link set other up\n" + in + "link set eth0 up mtu " + (i == 2 ? "1400" : "1500") +
              "\n" + in + "link add br0 type bridge\n" + in + "link set other master br0\n";
        down += "ip netns del " + ns + " 2>/dev/null\n";
    }
    std::ofstream(dir.path + "/up") << up;
    std::ofstream(dir.path + "/down") << down;
    std::ofstream(dir.path + "/enter") << "#!/bin/sh\nexec ip netns exec $1 $2\n";
    chmod((dir.path + "/enter").c_str(), 0755);
    if (std::system(("sh " + dir.path + "/up 2>" + dir.path + "/why").c_str()) != 0) {
        (void)!std::system(("sh " + dir.path + "/down").c_str());
        GTEST_SKIP() << "no network namespaces with these interfaces: "
                     << read_file(dir.path + "/why");
    }
    Result r = run_tool(dir.path, "--interval 0 --ssh ./enter --remote " PVN_BUILDDIR
                                  "/topo/pvn-topo --hosts '" +
                                      id + "[0-3]' check");
    EXPECT_EQ(0, std::system(("sh " + dir.path + "/down").c_str()));
    EXPECT_NE(0, r.status) << r.err;
    EXPECT_TRUE(says(r, "ODD MTU of eth0: " + id + "2: 1400; the 3 others: 1500 -> set the same"))
        << r.out << r.err;
    EXPECT_TRUE(says(r, "(NCCL_SOCKET_IFNAME): br0 other on " + id + "[0-3]")) << r.out;
}

TEST_F(CheckHosts, AVariableThatOneHostDoesNotSet)
{
    put_all(4);
    Facts without = usual;
    without.erase({"environment", "NCCL_IB_TC"});
    without[{"environment", "NCCL_DEBUG"}] = "INFO";
    put("c1", without);
    Result r = run("c[0-3]");
    EXPECT_EQ(1, r.status);
    EXPECT_TRUE(says(r, "environment of the processes of NCCL_IB_TC: c1: not set; the 3 others: "
                        "106"))
        << r.out;
    EXPECT_TRUE(says(r, "NCCL_DEBUG: c1: INFO; the 3 others: not set")) << r.out;
}

TEST_F(CheckHosts, EachHostsOwnFailuresAreSummedUp)
{
    std::string fail = "{\"check\": \"memlock\", \"level\": \"FAIL\", \"subject\": \"process\", "
                       "\"text\": \"limited to 64 KiB\", \"remedy\": \"ulimit -l unlimited\"}",
                warn = "{\"check\": \"mtu\", \"level\": \"WARN\", \"subject\": \"mlx5_0 port 1\", "
                       "\"text\": \"too small\", \"remedy\": \"raise it\"}",
                ok = "{\"check\": \"acs\", \"level\": \"OK\", \"subject\": \"x\", \"text\": "
                     "\"fine\", \"remedy\": null}";
    put("c0", usual, fail + "," + ok);
    put("c1", usual, fail + "," + warn);
    put("c2", usual, ok);
    Result r = run("c[0-2]");
    EXPECT_EQ(1, r.status);
    EXPECT_TRUE(says(r, "FAIL memlock c[0-1]: process: limited to 64 KiB -> ulimit -l unlimited"))
        << r.out;
    EXPECT_TRUE(says(r, "WARN mtu c1: mlx5_0 port 1: too small -> raise it")) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("fine"));
    EXPECT_TRUE(says(r, "1 kind of failures, 1 to look at")) << r.out;
}

TEST_F(CheckHosts, SavedFilesAndJson)
{
    put("c0", usual, "", "a");
    put("c1", usual, "", "b");
    put("c2", with("kernel", "", "6.6.1"), "", "c");
    Result r = run_tool(dir.path, "check a.json b.json c.json");
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_TRUE(says(r, "ODD kernel: c2: 6.6.1; the 2 others: 6.1.0")) << r.out;
    std::string whole = read_file(dir.path + "/b.json");
    std::ofstream(dir.path + "/b.json") << whole.substr(0, whole.size() / 2);
    r = run_tool(dir.path, "check a.json b.json c.json no.json");
    EXPECT_EQ(3, r.status);
    EXPECT_TRUE(says(r, "b.json: only a part of the document came")) << r.out;
    EXPECT_NE(std::string::npos, r.err.find("no.json")) << r.err;
    EXPECT_TRUE(says(r, "kernel: no majority: c0: 6.1.0; c2: 6.6.1")) << r.out;
    r = run_tool(dir.path, "--json check a.json c.json");
    EXPECT_EQ(1, r.status);
    std::ofstream(dir.path + "/doc.json") << r.out;
    int rc = std::system(("python3 " PVN_SRCDIR "/tests/topo/schema_check.py " PVN_SRCDIR
                          "/topo/pvn-topo.schema.json " +
                          dir.path + "/doc.json")
                             .c_str());
    EXPECT_TRUE(WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 77) << r.out;
    EXPECT_EQ(2, run_tool(dir.path, "--hosts a check a.json").status);
}

// Compares two machines by the files that check itself writes.
TEST_F(CheckHosts, MachinesAsTheyAreRead)
{
    GuestVariant two;
    two.two_nodes = true;
    std::ofstream(dir.path + "/a.tar", std::ios::binary) << vmware_guest({}).tar();
    std::ofstream(dir.path + "/b.tar", std::ios::binary) << vmware_guest(two).tar();
    std::string files;
    for (const char *m : {"a", "b"}) {
        Result r = run_tool(dir.path, std::string("--no-names -o ") + m + ".json --json --root " +
                                          m + ".tar check");
        EXPECT_NE(3, r.status) << r.err;
        files += std::string(" ") + m + ".json";
    }
    std::string doc = read_file(dir.path + "/a.json");
    for (const char *fact : {"kernel", "rdma-devices", "nic-driver", "mtu", "gid-index", "gid-type",
                             "memlock", "topology", "gpus", "nvidia-driver"})
        EXPECT_NE(std::string::npos, doc.find(std::string("\"fact\": \"") + fact + "\"")) << fact;
    Result r = run_tool(dir.path, "check" + files);
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_TRUE(says(r, "ODD topology of GPU")) << r.out;
}

/* Tests of nccl.conf. They use an empty statistics directory, because check also reads the environment of processes
 * that use the plugin, and another test may run some. */
class Conf : public CheckHosts
{
  protected:
    const std::string nobody = "NCCL_PVRDMA_STATS_DIR=/nonexistent ";

    // The names and values of the facts that come from configuration files.
    std::map<std::string, std::string> facts(const std::string &doc)
    {
        std::map<std::string, std::string> all;
        const std::string fact = "\"fact\": \"nccl.conf\"";
        auto text = [&](size_t at, const char *key) {
            size_t from = doc.find('"', doc.find(key, at) + strlen(key)) + 1, to = from;
            while (doc[to] != '"')
                to += doc[to] == '\\' ? 2 : 1;
            return doc.substr(from, to - from);
        };
        for (size_t at = 0; (at = doc.find(fact, at)) != std::string::npos; at++)
            all[text(at, "\"subject\":")] = text(at, "\"value\":");
        return all;
    }
};

TEST_F(Conf, ValuesAreWhatNcclTakesThemFor)
{
    const std::string longest(1023, 'v');
    std::ofstream(dir.path + "/own.conf") << "#NCCL_C=1\n"
                                             " #NCCL_C=1\n"
                                             "NCCL_HASH=a#b\n"
                                             "NCCL_REMARK=a # b\n"
                                             "NCCL_DOS=a\r\n"
                                             "NCCL_SPACE= a\n"
                                             "NCCL_QUOTE=\"a\"\n"
                                             "NCCL_EQUALS=a=b\n"
                                             "NCCL_EMPTY=\n"
                                             "NCCL_TWICE=first\n"
                                             "NCCL_TWICE=second\n"
                                             "NCCL_SET=file\n"
                                             "NCCL_TRAILING =a\n"
                                             "nccl_case=a\n"
                                             "no sign\n"
                                             "=a\n"
                                             "OTHER=a\n"
                                             "NCCL_LONG="
                                          << longest << "w\n"
                                          << "NCCL_LAST=a"; // no end of line
    Result r = run_tool(dir.path, "--interval 0 --json check",
                        nobody + "NCCL_CONF_FILE=own.conf NCCL_SET=shell");
    auto all = facts(r.out);
    const std::string part = " as part of the value)",
                      none = " (without effect: spaces, quotes and case are part of this name)";
    const std::map<std::string, std::string> want = {
        {"\\\" #NCCL_C\\\"", "1" + none},
        {"NCCL_HASH", "a#b"},
        {"NCCL_REMARK", "a # b (NCCL takes the # and what follows it" + part},
        {"NCCL_DOS", "a\\r (NCCL before 2.30 takes the CR at its end (a DOS file)" + part},
        {"NCCL_SPACE", " a (NCCL takes the spaces around it" + part},
        {"NCCL_QUOTE", "\\\"a\\\" (NCCL takes the quotes" + part},
        {"NCCL_EQUALS", "a=b"},
        {"NCCL_EMPTY", "(empty)"},
        {"NCCL_TWICE", "first"},
        {"\\\"NCCL_TRAILING \\\"", "a" + none},
        {"\\\"nccl_case\\\"", "a" + none},
        {"OTHER", "a"},
        {"NCCL_LONG", longest},
        {"NCCL_LAST", "a"},
    };
    for (const auto &[name, value] : want)
        EXPECT_EQ(value, all[name]) << name;
    EXPECT_EQ(0u, all.count("NCCL_SET")) << "the environment has it already";
    EXPECT_EQ(0u, all.count("no sign") + all.count("") + all.count("NCCL_C"));
}

// NCCL copies the files' variables into the environment, except those already set. The commands do the same.
TEST_F(Conf, CommandsGoByThem)
{
    std::ofstream(dir.path + "/own.conf") << "NCCL_NET=misspelt\nNCCL_IB_DISABLE=1\n"
                                             "NCCL_SOCKET_IFNAME=no-such\nOTHER=a\n"
                                             "NCCL_PVRDMA_TC=8\r\n";
    const std::string conf = nobody + "NCCL_CONF_FILE=own.conf ";
    std::string out = run_tool(dir.path, "check", conf).out;
    EXPECT_NE(std::string::npos, out.find("misspelt")) << out;
    EXPECT_EQ(std::string::npos,
              run_tool(dir.path, "check", conf + "NCCL_NET=").out.find("misspelt"));
    EXPECT_EQ(std::string::npos, run_tool(dir.path, "--no-env check", conf).out.find("misspelt"));
    EXPECT_EQ("pvn-topo: own.conf sets NCCL_NET, NCCL_IB_DISABLE, NCCL_SOCKET_IFNAME, "
              "NCCL_PVRDMA_TC, as for NCCL\n",
              run_tool(dir.path, "params", conf).err);
    out = run_tool(dir.path, "params", conf).out;
    EXPECT_NE(std::string::npos, out.find("NCCL_PVRDMA_SOCKET_IFNAME=no-such")) << out;
    EXPECT_NE(std::string::npos, out.find("NCCL_PVRDMA_TC=8 "))
        << "NCCL 2.30 drops the CR: " << out;
    EXPECT_NE(std::string::npos, out.find("NCCL_PVRDMA_TRANSPORT=tcp")) << out;
    std::ofstream(dir.path + "/guest.tar", std::ios::binary) << vmware_guest({}).tar();
    out = run_tool(dir.path, "--root guest.tar pairs", conf).out;
    EXPECT_NE(std::string::npos, out.find("NCCL_IB_DISABLE is set")) << out;
    // The variables of files are not listed as variables of the shell.
    out = run_tool(dir.path, "--interval 0 --json check", conf).out;
    EXPECT_EQ("misspelt", facts(out)["NCCL_NET"]);
    EXPECT_EQ(1u, facts(out).count("OTHER"));
    const size_t shell = out.find("\"fact\": \"shell\"");
    EXPECT_NE(std::string::npos, shell);
    EXPECT_EQ(std::string::npos, out.substr(shell, 100).find("NCCL_NET\"")) << out;
}

// The test needs a mount namespace to replace /etc.
TEST_F(Conf, TheUsersFileComesBeforeTheSystems)
{
    if (std::system("unshare -m sh -c 'mount -t tmpfs pvn-conf /etc' 2>/dev/null") != 0)
        GTEST_SKIP() << "mounting takes root";
    std::ofstream(dir.path + "/.nccl.conf") << "NCCL_A=home\nNCCL_B=home\n";
    ASSERT_EQ(0, mkdir((dir.path + "/other").c_str(), 0700));
    std::ofstream(dir.path + "/other/.nccl.conf") << "NCCL_A=database\n";
    std::ofstream(dir.path + "/own.conf") << "NCCL_A=own\nNCCL_B=own\n";
    std::ofstream(dir.path + "/all.sh")
        << "mount -t tmpfs pvn-conf /etc\n"
           "echo root:x:0:0::"
        << dir.path
        << "/other:/bin/sh >/etc/passwd\n"
           "printf 'NCCL_B=etc\\nNCCL_C=etc\\n' >/etc/nccl.conf\n"
           "export HOME="
        << dir.path << " " << nobody
        << "\n"
           "$PVN_TOPO params >/dev/null 2>homes.txt\n"
           "$PVN_TOPO --interval 0 check >rows.txt\n"
           "HOME=/nonexistent $PVN_TOPO --interval 0 --json check >nowhere.json\n"
           "$PVN_TOPO --interval 0 --json check >home.json\n"
           "NCCL_CONF_FILE= $PVN_TOPO --interval 0 --json check >empty.json\n"
           "NCCL_CONF_FILE=own.conf $PVN_TOPO --interval 0 --json check >own.json\n"
           "NCCL_CONF_FILE=missing $PVN_TOPO --interval 0 --json check >missing.json\n";
    std::system(
        ("cd " + dir.path + " && PVN_TOPO=" PVN_BUILDDIR "/topo/pvn-topo unshare -m sh " + "all.sh")
            .c_str());
    using Map = std::map<std::string, std::string>;
    const Map home = {{"NCCL_A", "home"}, {"NCCL_B", "home"}, {"NCCL_C", "etc"}};
    EXPECT_EQ(home, facts(read_file(dir.path + "/home.json")));
    EXPECT_EQ(home, facts(read_file(dir.path + "/empty.json")));
    EXPECT_EQ((Map{{"NCCL_B", "etc"}, {"NCCL_C", "etc"}}),
              facts(read_file(dir.path + "/nowhere.json")));
    const std::string homes = "NCCL before 2.30 reads " + dir.path +
                              "/other/.nccl.conf (the home directory of the password database), "
                              "from 2.30 on " +
                              dir.path + "/.nccl.conf (HOME)";
    EXPECT_EQ("pvn-topo: " + dir.path +
                  "/.nccl.conf sets NCCL_A, NCCL_B; /etc/nccl.conf sets NCCL_C, as for NCCL\n"
                  "pvn-topo: " +
                  homes + "; NCCL_CONF_FILE names a file for both\n",
              read_file(dir.path + "/homes.txt"));
    const std::string rows = squeeze(read_file(dir.path + "/rows.txt"));
    EXPECT_NE(std::string::npos, rows.find("WARN settings nccl.conf: " + homes)) << rows;
    EXPECT_EQ((Map{{"NCCL_A", "own"}, {"NCCL_B", "own"}, {"NCCL_C", "etc"}}),
              facts(read_file(dir.path + "/own.json")));
    EXPECT_EQ((Map{{"NCCL_B", "etc"}, {"NCCL_C", "etc"}}),
              facts(read_file(dir.path + "/missing.json")));
}

} // namespace
