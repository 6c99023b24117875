// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo stat --hosts and --watch with a script in place of ssh: for host H it runs H.sh or prints H.json.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <regex>
#include <thread>
#include <utility>

extern "C" {
#include "plugin/base/param.h"
#include "plugin/stats/stats.h"
}

#include "support/deadline.h"
#include "tests/topo/stat_saved.h"

namespace
{

class StatHosts : public StatJob
{
  protected:
    void SetUp() override
    {
        script("play", "echo \"$*\" >>calls\n[ -f $1.sh ] && exec sh $1.sh\ncat $1.json\n");
    }
    void script(const std::string &name, const std::string &text)
    {
        std::ofstream(dir.path + "/" + name) << "#!/bin/sh\n" << text;
        chmod((dir.path + "/" + name).c_str(), 0755);
    }
    Result run_hosts(const std::string &hosts, const std::string &more = "stat")
    {
        return run("--ssh ./play --hosts '" + hosts + "' " + more);
    }
    std::vector<std::string> called()
    {
        std::vector<std::string> hosts;
        std::istringstream in(read_file(dir.path + "/calls"));
        for (std::string line; std::getline(in, line);)
            hosts.push_back(line.substr(0, line.find(' ')));
        std::sort(hosts.begin(), hosts.end());
        std::ofstream(dir.path + "/calls", std::ios::trunc);
        return hosts;
    }
};

using Names = std::vector<std::string>;

TEST_F(StatHosts, FormsOfTheList)
{
    script("play", "echo \"$*\" >>calls\necho '{\"kind\": \"stat\", \"processes\": []}'\n");
    const struct {
        const char *list;
        Names hosts;
    } lists[] = {
        {"a,b,a,c.example", {"a", "b", "c.example"}},
        {"n[01-03,7]", {"n01", "n02", "n03", "n7"}},
        {"r[1-2]n[8-9]-ib,x", {"r1n8-ib", "r1n9-ib", "r2n8-ib", "r2n9-ib", "x"}},
        {"a:8,b:4", {"a", "b"}},
        {"fe80::1:2,u@h", {"fe80::1:2", "u@h"}},
    };
    for (const auto &l : lists) {
        Result r = run_hosts(l.list);
        EXPECT_EQ(0, r.status) << l.list << r.err;
        EXPECT_EQ(l.hosts, called()) << l.list;
    }
    std::ofstream(dir.path + "/hosts") << "# ours\nn1 slots=8 max_slots=8\n\n  n2:8  # second\nn1\n"
                                          "n[3-4] slots=1\r\n";
    EXPECT_EQ(0, run_hosts("hosts").status);
    EXPECT_EQ((Names{"n1", "n2", "n3", "n4"}), called());
    EXPECT_EQ(0, run("--ssh ./play --hosts - stat <hosts").status);
    EXPECT_EQ((Names{"n1", "n2", "n3", "n4"}), called());
}

TEST_F(StatHosts, ListsThatAreNone)
{
    std::ofstream(dir.path + "/bad") << "a\nb;reboot\n";
    const struct {
        const char *list, *says;
    } rows[] = {
        {"-oProxyCommand=x", "\"-oProxyCommand=x\" is not a host"},
        {"a b", "is not a host"},
        {"n[1-3", "has a [ without its ]"},
        {"n[3-1]", "a range that ends before it begins"},
        {"n[x]", "a range that is not like [01-04,7]"},
        {"n[1-999999999]", "makes more than 4096 hosts"},
        {"n[1-99]m[1-99]", "makes more than 4096 hosts"},
        {",", "names no host"},
        {"/no/such", "/no/such: cannot be read: No such file"},
        {"bad", "bad:2: \"b;reboot\" is not a host"},
    };
    for (const auto &row : rows) {
        Result r = run_hosts(row.list);
        EXPECT_EQ(2, r.status) << row.list;
        EXPECT_NE(std::string::npos, r.err.find(row.says)) << row.list << ": " << r.err;
    }
    for (const char *args : {"--hosts a stat b.json", "--hosts a --prom stat", "--hosts a pairs",
                             "--ssh x stat", "--parallel 0 --hosts a stat", "--watch=0 stat",
                             "--watch --prom stat", "--count 2 stat", "--count 2 check"})
        EXPECT_EQ(2, run(args).status) << args;
    EXPECT_EQ("", read_file(dir.path + "/calls")) << "no host was contacted";
}

TEST_F(StatHosts, TheFirstLineAnswersAndEachTroubleHasItsReasonAndRemedy)
{
    ring(-1, "stopped", 20);
    std::string whole = read_file(dir.path + "/1.json");
    for (int r = 0; r < 4; r++)
        std::ofstream(dir.path + "/n" + std::to_string(r) + ".json")
            << read_file(dir.path + "/" + std::to_string(r) + ".json");
    Result r = run_hosts("n[0-3]");
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_EQ(
        "3 of 4 processes wait for rank 2, python pid 102 on n2: it is stopped, by a signal or "
        "a debugger",
        first_line(r));

    script("down.sh", "echo 'ssh: connect to host down port 22: Connection refused' >&2; exit 255");
    script("key.sh", "echo 'Permission denied (publickey).' >&2; exit 255");
    script("none.sh", "echo 'sh: 1: pvn-topo: not found' >&2; exit 127");
    script("old.sh", "echo \"pvn-topo: unrecognized option '--json'\" >&2; exit 2");
    script("late.sh", "sleep 600");
    script("half.sh", "head -c 300 n1.json");
    script("other.sh", "echo '{\"kind\": \"pairs\"}'");
    script("new.sh", "echo '{\"kind\": \"stat\", \"format_version\": 2, \"tool_version\": \"9.1\", "
                     "\"processes\": []}'");
    script("part.sh", "cat n3.json; echo 'pvn-topo: x.stat: the header is damaged' >&2; exit 3");
    script("shy.sh", "echo Welcome to shy; cat n0.json");
    r = run_hosts("n1,n2,down,down2,key,none,old,late,half,other,new,part,shy", "--timeout 1 stat");
    EXPECT_EQ(3, r.status) << r.err;
    EXPECT_EQ(0u, first_line(r).find("3 of 4 processes wait for rank 2, python pid 102 on n2"))
        << r.out;
    std::string all = squeeze(r.out);
    for (
        const char *says :
        {"down: not reached: ssh: connect to host down port 22: Connection refused -> look whether "
         "it is up and lets you in: ssh down true",
         "key: not reached: Permission denied (publickey). -> make ssh work there without a "
         "password: ssh-copy-id key",
         "none: pvn-topo cannot be run there: sh: 1: pvn-topo: not found -> install it there, or "
         "give its path by --remote PATH",
         "old: its pvn-topo is of another version: pvn-topo: unrecognized option '--json' -> "
         "install the same version",
         "late: no answer within 1 s -> look whether ssh late hangs",
         "half: only a part of the document came: 300 bytes",
         "other: JSON, but not of pvn-topo --json stat",
         "new: format 2 of pvn-topo 9.1, which this pvn-topo",
         "part: a part is missing: pvn-topo: x.stat: the header is damaged"})
        EXPECT_NE(std::string::npos, all.find(says)) << says << "\n" << r.out;
    EXPECT_NE(std::string::npos, r.out.find("rank 3, python pid 103 on n3")) << "of part";
    EXPECT_NE(std::string::npos, r.out.find("rank 0, python pid 100 on n0")) << "of shy";
}

TEST_F(StatHosts, EqualReasonsAreOneLineAndAHostWithoutAnswerIsNamedInTheFirst)
{
    ring(-1, "stopped", 20);
    for (const char *r : {"0", "1", "3"})
        std::ofstream(dir.path + "/n" + r + ".json") << read_file(dir.path + "/" + r + ".json");
    script("play", "[ -f $1.json ] && exec cat $1.json\n"
                   "echo \"ssh: connect to host $1 port 22: No route to host\" >&2; exit 255\n");
    Result r = run_hosts("n[0-3],m[08-11],x");
    EXPECT_EQ(3, r.status);
    EXPECT_EQ(0u, first_line(r).find("3 of 3 processes wait for pid 102 on n2: its host gave no "
                                     "answer: not reached: ssh: connect to host n2 port 22: No "
                                     "route to host"))
        << r.out;
    EXPECT_NE(std::string::npos, r.out.find("\nm[08-11], n2, x: not reached: ")) << r.out;
    // JSON has the same.
    r = run_hosts("n[0-3]", "--json stat");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("n2: not reached")) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("\"answered\": false")) << r.out;
    std::ofstream(dir.path + "/doc.json") << r.out;
    int rc = std::system(("python3 " PVN_SRCDIR "/tests/topo/schema_check.py " PVN_SRCDIR
                          "/topo/pvn-topo.schema.json " +
                          dir.path + "/doc.json")
                             .c_str());
    EXPECT_TRUE(WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 77) << rc;
}

// A host that gave no answer is not counted, because it may run any processes, even the ones that others wait for.
TEST_F(StatHosts, AHostWithoutAnswerIsNotCountedAsLookedAt)
{
    script("play", "[ -f $1.json ] && exec cat $1.json\necho 'No route to host' >&2; exit 255\n");
    save("a.json", {process(0, {}), process(1, {}), process(2, {})});
    save("idle.json", {});
    const struct {
        const char *hosts, *first;
    } cases[] = {
        {"a,b", "no process waits for another: 3 processes on 1 of 2 hosts; b gave no answer\n"},
        {"n[1-2],a,idle",
         "no process waits for another: 3 processes on 2 of 4 hosts; n[1-2] gave no answer\n"},
        {"a,idle", "no process waits for another: 3 processes on 2 hosts\n"},
        {"b,c", "no host answered\n"},
    };
    for (const auto &c : cases) {
        Result r = run_hosts(c.hosts);
        EXPECT_EQ(0u, r.out.find(c.first)) << r.out;
    }
}

// A program named ssh gets options that keep it from prompting for a password. Other programs get none.
TEST_F(StatHosts, SshIsRunWithoutAskingForAPassword)
{
    script("ssh", "echo \"$*\" >>calls\necho '{\"kind\": \"stat\", \"processes\": []}'\n");
    Result r = run("--hosts a --ssh './ssh -p 23' --remote /opt/pvn-topo stat");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ("-p 23 -o BatchMode=yes -o ConnectTimeout=10 a /opt/pvn-topo --json stat\n",
              read_file(dir.path + "/calls"));
    EXPECT_EQ(0u, r.out.find("no process waits for another: 0 processes on 1 host\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("no process uses the plugin on a\n"));
    std::remove((dir.path + "/calls").c_str());
    r = run_tool(dir.path, "--hosts a,b --parallel 1 stat", "PVN_TOPO_SSH='./ssh x'");
    EXPECT_EQ("x -o BatchMode=yes -o ConnectTimeout=10 a pvn-topo --json stat\n"
              "x -o BatchMode=yes -o ConnectTimeout=10 b pvn-topo --json stat\n",
              read_file(dir.path + "/calls"))
        << r.err;
    r = run("--hosts a --ssh ./missing stat");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.out.find("a: not reached: ./missing: No such file")) << r.out;
}

// In a directory that hosts share every host sees the process. Only the host where it runs knows its state.
TEST_F(StatHosts, AProcessIsShownOnce)
{
    std::string p = process(0, {{true, 1, 0}}), far = p;
    far.replace(far.find("\"alive\""), 7, "\"on another host\"");
    save("n1.json", {far});
    save("n0.json", {p});
    Result r = run_hosts("n1,n0");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ("", r.err);
    EXPECT_EQ(0u, r.out.find("no process waits for another: 1 process on 2 hosts"));
    EXPECT_NE(std::string::npos, r.out.find("pid 100 on n0: alive")) << r.out;
}

// The rank was restarted and has its old pid, as the first process of a container does.
TEST_F(StatHosts, APidThatIsUsedAgain)
{
    std::string now = process(1, {}), old = process(1, {{true, 0, 0}}, "", 90, "dead");
    now.replace(now.find("101.stat"), 8, "101-900-0.stat");
    now.replace(now.find("\"began_s_ago\": 100.0"), 20, "\"began_s_ago\": 4.0");
    old.replace(old.find("101.stat"), 8, "101-100-0.stat");
    std::string peer = process(0, {{false, 1, 30}});
    peer.replace(peer.find("\"in_state_s\""), 0, "\"born_s_ago\": 95.0, ");
    for (bool first : {true, false}) {
        save("n1.json", {first ? now : old, first ? old : now});
        save("n0.json", {peer});
        Result r = run_hosts("n0,n1");
        EXPECT_EQ(
            "1 of 3 processes waits for rank 1, python pid 101 on n1: it was started again 4 s "
            "ago under the same pid; the connections that wait lead to the process before, "
            "which is gone: start the whole job again",
            first_line(r).substr(0, first_line(r).find(" rank 0, ")))
            << r.out;
        EXPECT_NE(
            std::string::npos,
            squeeze(r.out).find("rank 1, python pid 101 on n1 began 4 s ago with the pid of an "
                                "earlier process, which began 100 s ago and is dead"))
            << r.out;
    }
}

// Between the two samples 4 s pass by the process's own clock, which counts instead of this host's.
TEST_F(StatHosts, RatesComeFromTheProcesssOwnClock)
{
    std::string p = process(0, {{true, 1, 0, 1000}}), later = process(0, {{true, 1, 9, 3000}});
    auto counts = [](std::string text, const std::string &bytes, const std::string &more) {
        return text.replace(text.find("\"messages\""), 0, "\"bytes\": " + bytes + ", " + more);
    };
    later.replace(later.find("100.0"), 5, "104.0");
    std::string tcp = "\"tcp_retransmits\": ", rang = "\"doorbells\": {\"send\": ";
    save("1.json", {counts(p, "1000000", tcp + "10, \"empty_polls\": 100, "), process(1, {})});
    save("2.json", {counts(later, "9000000",
                           tcp + "18, \"empty_polls\": 60100, " + rang +
                               "40, \"recv\": 2, \"empty_poll\": 2}, ")});
    script("play", "echo x >>calls\nexec cat $(wc -l <calls).json\n");
    Result r = run_hosts("n0", "--watch=0.1 --count 2 stat");
    EXPECT_EQ(1, r.status) << r.err;
    size_t second = r.out.rfind("sent B/s");
    ASSERT_NE(std::string::npos, second);
    EXPECT_NE(r.out.find("sent B/s"), second);
    EXPECT_NE(std::string::npos,
              squeeze(r.out.substr(0, second)).find("- - - - - - 0 0 rank 0, python pid 100 on n0"))
        << r.out;
    EXPECT_NE(std::string::npos,
              squeeze(r.out.substr(second))
                  .find("2000k 0 500 2.0 11.0 15.0k 0 1 rank 0, python pid 100 on n0"))
        << r.out;
}

TEST_F(StatHosts, WatchIsALineOfJsonForEachLook)
{
    std::string p = process(0, {{true, 1, 0, 1000}}), later = process(0, {{true, 1, 9, 3000}});
    auto counts = [](std::string text, const std::string &bytes) {
        return text.replace(text.find("\"messages\""), 0,
                            "\"bytes\": " + bytes + ", \"tcp_retransmits\": 10, ");
    };
    later.replace(later.find("100.0"), 5, "104.0");
    save("1.json", {counts(p, "1000000")});
    save("2.json", {counts(later, "9000000")});
    script("play", "echo x >>calls\nexec cat $(wc -l <calls).json\n");
    Result r = run_hosts("n0", "--watch=0.1 --count 2 --json stat");
    EXPECT_EQ(1, r.status) << r.err;
    std::istringstream lines(r.out);
    std::string first, second, third;
    ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second)) << r.out;
    EXPECT_FALSE(std::getline(lines, third)) << third;
    EXPECT_NE(std::string::npos, first.find("\"rates\":null")) << first;
    EXPECT_NE(std::string::npos,
              second.find("\"rates\":{\"seconds\":4.0,\"bytes_sent\":2000000.0,"
                          "\"bytes_received\":0.0,\"messages\":500.0,\"tcp_retransmits\":0.0,"
                          "\"doorbells\":null,\"empty_polls\":"))
        << second;
    std::ofstream(dir.path + "/first.json") << first;
    std::ofstream(dir.path + "/second.json") << second;
    std::string validate = "cd " + dir.path +
                           " && python3 " PVN_SRCDIR "/tests/topo/schema_check.py " PVN_SRCDIR
                           "/topo/pvn-topo.schema.json first.json second.json >valid.txt 2>&1";
    int rc = std::system(validate.c_str());
    EXPECT_TRUE(WIFEXITED(rc) && (WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 77))
        << read_file(dir.path + "/valid.txt");
}

// ---- adapters of other hosts ----

// The document with an adapter added. counters is a list "name value name value ...".
std::string with_adapter(const std::string &doc, const std::string &counters,
                         const std::string &device = "mlx5_0")
{
    std::string text = doc, list;
    std::istringstream in(counters);
    for (std::string name, value; in >> name >> value;)
        list += (list.empty() ? "" : ", ") + ("{\"counter\": \"" + name) +
                "\", \"source\": \"hw_counters\", \"kind\": \"error\", \"value\": " + value +
                ", \"grew\": null}";
    return text.replace(text.rfind('}'), 1,
                        ", \"adapters\": [{\"device\": \"" + device +
                            "\", \"port\": 1, \"interface\": \"eth0\", \"counters\": [" + list +
                            "]}]}");
}

class StatAdapters : public StatHosts
{
  protected:
    // Sets host h's output for its first call, its second call, ...
    void answers(const std::string &h, const std::vector<std::string> &counters)
    {
        save("plain.json", {process(static_cast<int>(h.back() - '0'), {})});
        std::string plain = read_file(dir.path + "/plain.json");
        for (size_t i = 0; i < counters.size(); i++)
            std::ofstream(dir.path + "/" + h + "." + std::to_string(i + 1))
                << (counters[i].empty() ? plain : with_adapter(plain, counters[i]));
        script(h + ".sh", "echo x >>" + h + ".n; exec cat " + h + ".$(($(wc -l <" + h + ".n)))\n");
    }
};

TEST_F(StatAdapters, CountersThatGrewBetweenTwoLooksAreNamedWithTheirHost)
{
    answers("n0", {"out_of_sequence 5 packet_seq_err 7", "out_of_sequence 17 packet_seq_err 7"});
    answers("n1", {"out_of_sequence 40", "out_of_sequence 40"});
    answers("n2", {""});
    Result r = run_hosts("n[0-2]", "--interval 0.1 stat");
    EXPECT_EQ(0, r.status) << r.err;
    std::string all = squeeze(r.out);
    EXPECT_NE(std::string::npos, all.find("Counters of faults that grew within ")) << r.out;
    EXPECT_NE(std::string::npos, all.find("n0 mlx5_0 port 1: out_of_sequence 12 (")) << r.out;
    EXPECT_EQ(std::string::npos, all.find("packet_seq_err")) << r.out;
    EXPECT_EQ(std::string::npos, all.find("n1 mlx5_0")) << r.out;
    EXPECT_EQ((Names{"n0", "n0", "n1", "n1", "n2"}), called()) << "n2 has no adapter to look at";
}

TEST_F(StatAdapters, ThatNothingGrewIsSaidAndOneLookShowsNoGrowth)
{
    answers("n0", {"out_of_sequence 5", "out_of_sequence 5"});
    answers("n1", {"out_of_sequence 9", "out_of_sequence 2"}); // the driver was reloaded
    Result r = run_hosts("n[0-1]", "--interval 0.1 stat");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("No counter of faults grew within ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("on the 2 adapters")) << r.out;
    called();
    answers("n0", {"out_of_sequence 5", "", "out_of_sequence 5"});
    r = run_hosts("n0", "--interval 0 stat");
    EXPECT_EQ(std::string::npos, r.out.find("ounter")) << r.out;
    EXPECT_EQ(Names{"n0"}, called());
    for (const char *args : {"--interval 1 stat", "--interval 1 --hosts a --watch stat"}) {
        r = run(args);
        EXPECT_EQ(2, r.status) << args;
        EXPECT_NE(std::string::npos, r.err.find("--interval is for check and for one look of stat "
                                                "--hosts"))
            << r.err;
    }
}

TEST_F(StatAdapters, ASecondLookThatFailsOrMakesNoSenseLeavesTheFirst)
{
    answers("n0", {"out_of_sequence 5", "out_of_sequence 8"});
    std::ofstream(dir.path + "/n0.2") << "{\"kind\": ";
    Result r = run_hosts("n0", "--interval 0.1 stat");
    EXPECT_EQ(0, r.status);
    EXPECT_NE(std::string::npos, r.err.find("n0: no second look at its adapters' counters: only a "
                                            "part of the document came"))
        << r.err;
    EXPECT_NE(std::string::npos, r.out.find("pid 100 on n0")) << r.out;
    for (const char *adapters :
         {"3", "[3]", "[{}]", "[{\"counters\": 3}]", "[{\"counters\": [3, {}]}]",
          "[{\"counters\": [{\"counter\": 1, \"source\": \"hw_counters\", \"value\": \"x\"}]}]",
          "[{\"device\": 7, \"counters\": [{\"counter\": \"a\\u001b\", \"value\": -3, "
          "\"grew\": 4}]}]"}) {
        std::ofstream(dir.path + "/odd.json") << "{\"kind\": \"stat\", \"processes\": [], "
                                                 "\"adapters\": "
                                              << adapters << "}";
        r = run_hosts("odd", "--interval 0.1 stat");
        EXPECT_EQ(0, r.status) << adapters << r.err;
        EXPECT_EQ(std::string::npos, r.out.find('\x1b')) << adapters;
    }
}

TEST_F(StatAdapters, WatchShowsWhatGrowsPerSecondAndJsonWhatGrew)
{
    answers("n0", {"out_of_sequence 5", "out_of_sequence 1000005", "out_of_sequence 1000005"});
    Result r = run_hosts("n0", "--watch=0.1 --count 3 stat");
    EXPECT_EQ(0, r.status) << r.err;
    const std::string head = "Counters of adapters that grew, per second:";
    size_t first = r.out.find(head);
    ASSERT_NE(std::string::npos, first) << r.out;
    EXPECT_EQ(first, r.out.rfind(head)) << "nothing grew before the third look";
    EXPECT_NE(std::string::npos, squeeze(r.out).find("n0 mlx5_0 port 1: out_of_sequence "))
        << r.out;
    answers("n1", {"out_of_sequence 5", "out_of_sequence 8"});
    r = run_hosts("n1", "--interval 0.1 --json stat");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, squeeze(r.out).find("\"value\": 8, \"grew\": 3")) << r.out;
}

// The statistics file of a process, with the given number of comms over the device.
std::string statistics(const std::string &dir, const char *device = nullptr, int comms = 1)
{
    std::string image;
    pvn_params params = *pvn_params_get();
    snprintf(params.stats_dir, sizeof(params.stats_dir), "%s", dir.c_str());
    pvn_params_override(&params);
    pvn_stats_open(12);
    std::vector<pvn_stat *> rows;
    for (int i = 0; device && i < comms; i++)
        rows.push_back(pvn_stat_new(PVN_STAT_UP, true, device));
    for (const auto &e : std::filesystem::directory_iterator(dir))
        image = read_file(e.path());
    for (pvn_stat *row : rows)
        pvn_stat_end(row);
    pvn_stats_close();
    pvn_params_override(nullptr);
    return image;
}

// The sentence is about the saved files, not about this host's directory, which is not read.
TEST_F(StatHosts, SavedFilesWithoutAProcess)
{
    save("n0.json", {});
    save("n1.json", {});
    EXPECT_EQ("no process in n0.json: none used the plugin there when that was saved, or all had "
              "finished well\n",
              run("stat n0.json").out);
    EXPECT_EQ(0u, run("stat n0.json n1.json").out.find("no process in 2 files: none used"));
}

// The process was killed while it wrote, or the file system was full.
TEST_F(StatHosts, AFileThatIsHalfWritten)
{
    std::string image = statistics(dir.path + "/stats");
    for (size_t part : {size_t{0}, size_t{100}, image.size() - 1}) {
        std::ofstream(dir.path + "/half.stat", std::ios::binary) << image.substr(0, part);
        Result r = run("stat half.stat");
        EXPECT_EQ(3, r.status) << part;
        EXPECT_NE(std::string::npos,
                  r.err.find(part > 1000
                                 ? "half.stat: the file ends in row"
                                 : "half.stat: not a statistics file, or not a complete one"))
            << part << ": " << r.err;
    }
}

// No process can write a file there, so its absence does not show that no process uses the plugin.
TEST_F(StatHosts, NoFileCanBeMade)
{
    const std::string dir_of = dir.path + "/stats of it", fill = "head -c 5M /dev/zero >";
    const struct {
        std::string where, mount, why, remedy;
    } cases[] = {
        {dir_of, "mount -t tmpfs -o size=4k none \"$D\"; " + fill + "\"$D\"/fill || true",
         "the file system of " + dir_of + " is full", "with room"},
        // The few free pages do not suffice for a file.
        {dir_of, "mount -t tmpfs -o size=64k none \"$D\"; head -c 56K /dev/zero >\"$D\"/fill",
         "the file system of " + dir_of + " is full", "with room"},
        {dir_of, "mount -t tmpfs -o nr_inodes=1 none \"$D\"",
         "the file system of " + dir_of + " is full", "with room"},
        {dir_of, "mount -t tmpfs -o ro none \"$D\"",
         "the file system of " + dir_of + " is read-only", "may write"},
        {dir_of, "rmdir \"$D\"; touch \"$D\"", dir_of + " is no directory", "may write"},
        {dir_of, "chmod 777 \"$D\"", dir_of + " is writable by others", "may write"},
        {dir_of + "/a/b", "true", dir_of + "/a: No such file or directory", "may write"},
        // No directory is set, and no user has the default one.
        {"", "mount -t tmpfs -o size=4k none /dev/shm; " + fill + "/dev/shm/fill || true",
         "the file system of /dev/shm is full", "with room"},
        {"", "mount -t tmpfs -o ro none /dev/shm", "the file system of /dev/shm is read-only",
         "may write"},
    };
    std::filesystem::create_directory(dir_of);
    for (const auto &c : cases) {
        for (bool json : {false, true}) {
            Result r = run_tool(dir.path, json ? "--json stat" : "stat",
                                "NCCL_PVRDMA_STATS_DIR='" + c.where + "' D='" + dir_of +
                                    "' unshare -m sh -ec 'rm -rf \"$D\"; mkdir \"$D\"; " + c.mount +
                                    "; exec \"$0\" \"$@\"'");
            if (r.err.find("unshare") != std::string::npos ||
                r.err.find("mount:") != std::string::npos)
                GTEST_SKIP() << "nothing can be mounted here (run as root): " << r.err;
            std::string all = squeeze(r.out);
            EXPECT_EQ(3, r.status) << c.mount << r.out;
            EXPECT_NE(std::string::npos, all.find(c.why)) << c.mount << r.out;
            EXPECT_NE(std::string::npos, all.find(c.remedy)) << c.mount << r.out;
            EXPECT_EQ(std::string::npos, r.out.find("no process of")) << r.out;
        }
    }
    Result r = run_tool(dir.path, "stat", "NCCL_PVRDMA_STATS_DIR='" + dir.path + "/there'");
    EXPECT_EQ(0, r.status) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("no process of")) << r.out;
}

TEST_F(StatHosts, HostsOnWhichNoFileCanBeMade)
{
    const std::string room =
        R"({"kind": "stat", "processes": [], "unreadable": [{"directory": "/dev/shm/x-0", "user": "root",
        "problem": "the file system of /dev/shm is full", "remedy": "free some of it"}]})";
    for (const char *host : {"n1.json", "n2.json"})
        std::ofstream(dir.path + "/" + host) << room;
    save("n3.json", {});
    Result r = run_hosts("n[1-3]");
    std::string all = squeeze(r.out);
    EXPECT_EQ(3, r.status) << r.out << r.err;
    EXPECT_NE(
        std::string::npos,
        all.find(
            "no process uses the plugin on n3 "
            "no statistics file can be made on n[1-2]: the file system of /dev/shm is full, so a "
            "process that uses the plugin is not seen there -> free some of it"))
        << r.out;
    EXPECT_EQ(std::string::npos, all.find("not readable")) << r.out;
}

// The directory is shared with another host, whose file it has. That host's calendar clock is an hour ahead or behind;
// the host was booted a minute or a day ago.
TEST_F(StatHosts, ClocksOfTwoHostsThatDiffer)
{
    std::string image = statistics(dir.path + "/stats");
    pvn_stat_head h;
    ASSERT_LE(sizeof(h), image.size());
    memcpy(&h, image.data(), sizeof(h));
    snprintf(h.id.boot_id, sizeof(h.id.boot_id), "another-boot");
    snprintf(h.id.host, sizeof(h.id.host), "other");
    const int64_t second = INT64_C(1000000000);
    for (auto [hours, up] : {std::pair{1, 60}, {1, 86400}, {0, 60}, {-1, 60}}) {
        pvn_stat_head there = h;
        there.real_ns += static_cast<uint64_t>(hours * 3600 * second);
        there.touched_ns = there.mono_ns = static_cast<uint64_t>(up * second);
        image.replace(0, sizeof(there), reinterpret_cast<const char *>(&there), sizeof(there));
        std::ofstream(dir.path + "/x.stat", std::ios::binary) << image;
        Result r = run("stat x.stat");
        std::string all = squeeze(r.out);
        EXPECT_EQ(0, r.status) << r.err;
        EXPECT_TRUE(std::regex_search(
            all, std::regex("on other: on another host; began " +
                            std::string(hours < 0 ? "60 min" : "[0-9]\\.[0-9] s ago"))))
            << hours << r.out;
        EXPECT_NE(std::string::npos,
                  all.find("its ages are by the calendar clocks of two hosts, which may differ: "
                           "pvn-topo stat on other, or --hosts, has the true ones"))
            << r.out;
        EXPECT_EQ(hours > 0,
                  all.find("that host's clock is ahead of this one's, by 60 min or more") !=
                      std::string::npos)
            << r.out;
    }
}

// A root for --root with one interface, whose error counter grows all the time.
class GrowingInterface
{
  public:
    GrowingInterface(const std::string &root, const std::string &name)
    {
        std::string dir = root + "/sys/class/net/" + name + "/statistics";
        std::filesystem::create_directories(root + "/proc");
        std::filesystem::create_directories(dir);
        write(dir, 7);
        grows = std::thread([this, dir] {
            for (int n = 8; !done; n++) {
                write(dir, n);
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        });
    }
    ~GrowingInterface()
    {
        done = true;
        grows.join();
    }

  private:
    // Writes the file by a rename, so that a reader sees a complete one.
    static void write(const std::string &dir, int n)
    {
        std::ofstream(dir + "/new") << n << "\n";
        std::filesystem::rename(dir + "/new", dir + "/rx_crc_errors");
    }
    std::atomic<bool> done{false};
    std::thread grows;
};

// mpirun starts two copies in two containers of one host. Each sees only its own adapter.
TEST_F(StatHosts, CopiesOfALauncherSendTheCountersOfTheirAdapters)
{
    std::string job = std::to_string(getpid());
    GrowingInterface grows0(dir.path + "/root0", "eth0"), grows1(dir.path + "/root1", "eth1");
    for (const char *device : {"eth0", "eth1"}) {
        std::string image = statistics(dir.path + "/stats", device);
        std::filesystem::create_directory(dir.path + "/of-" + device);
        std::ofstream(dir.path + "/of-" + device + "/x.stat", std::ios::binary) << image;
    }
    auto env = [&](const std::string &rank) {
        return "NCCL_PVRDMA_STATS_DIR='" + dir.path + "/of-eth" + rank +
               "' OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=" + job +
               " MASTER_ADDR=127.0.0.1 OMPI_COMM_WORLD_RANK=" + rank;
    };
    const struct {
        const char *args, *says, *says_not;
    } looks[] = {
        {"stat", "Counters of faults that grew within 0.3 s", "\"grew\""},
        {"--json stat", "\"counter\": \"rx_crc_errors\"", "\"grew\": null"},
    };
    for (const auto &look : looks) {
        std::string args = std::string("--timeout 20 --interval 0.3 ") + look.args;
        std::string other = "( cd '" + dir.path + "'; env -i PATH=\"$PATH\" " + env("1") + " '" +
                            PVN_BUILDDIR + "/topo/pvn-topo' --root root1 " + args +
                            " >other 2>&1 & )";
        // On a busy machine the thread that increments the counters may be idle for an interval, so the test repeats.
        Result r;
        for (Deadline wait; wait.left();) {
            ASSERT_EQ(0, std::system(other.c_str()));
            r = run_tool(dir.path, "--root root0 " + args, env("0"));
            if (r.out.find("eth0") != std::string::npos && r.out.find("eth1") != std::string::npos)
                break;
        }
        EXPECT_EQ(0, r.status) << r.err;
        EXPECT_EQ("", r.err);
        EXPECT_NE(std::string::npos, squeeze(r.out).find(look.says)) << r.out;
        EXPECT_EQ(std::string::npos, squeeze(r.out).find(look.says_not)) << r.out;
        for (const char *name : {"eth0", "eth1"})
            EXPECT_NE(std::string::npos, r.out.find(name)) << r.out;
    }
}

// Rank 0 reads only after its second sample. Until then a document larger than the socket buffers has to wait.
TEST_F(StatHosts, ALongIntervalIsNoReasonToGiveUp)
{
    GrowingInterface grows(dir.path + "/root0", "eth0");
    std::filesystem::create_directory(dir.path + "/few");
    std::filesystem::create_directory(dir.path + "/many");
    std::ofstream(dir.path + "/few/x.stat", std::ios::binary)
        << statistics(dir.path + "/stats", "eth0");
    std::string image = statistics(dir.path + "/stats", "", 400);
    for (int i = 0; i < 60; i++)
        std::ofstream(dir.path + "/many/" + std::to_string(i) + ".stat", std::ios::binary) << image;
    auto env = [&](const std::string &rank, const std::string &files) {
        return "NCCL_PVRDMA_STATS_DIR='" + dir.path + "/" + files +
               "' OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 OMPI_COMM_WORLD_RANK=" + rank +
               " PMIX_NAMESPACE=long" + std::to_string(getpid());
    };
    std::string args = " --timeout 4 --interval 7 stat";
    ASSERT_EQ(0, std::system(("( cd '" + dir.path + "'; env -i PATH=\"$PATH\" " + env("1", "many") +
                              " '" PVN_BUILDDIR "/topo/pvn-topo'" + args + " >other 2>&1 & )")
                                 .c_str()));
    Result r = run_tool(dir.path, "--root root0" + args, env("0", "few"));
    EXPECT_NE(std::string::npos, r.out.find("61 processes on 1 host"))
        << r.out.substr(0, 2000) << r.err;
    EXPECT_EQ("", read_file(dir.path + "/other"));
}

// srun starts three copies, which see the same files.
TEST_F(StatHosts, CopiesOfALauncherMeet)
{
    std::string job = std::to_string(getpid()), stats = dir.path + "/stats";
    pvn_params params = *pvn_params_get();
    snprintf(params.stats_dir, sizeof(params.stats_dir), "%s", stats.c_str());
    pvn_params_override(&params);
    pvn_stats_open(12);
    auto env = [&](int rank, int of) {
        return "NCCL_PVRDMA_STATS_DIR=" + stats + " SLURM_JOB_ID=" + job +
               " SLURM_STEP_ID=1 SLURM_PROCID=" + std::to_string(rank) +
               " SLURM_STEP_NUM_TASKS=" + std::to_string(of) +
               " SLURM_STEP_NODELIST=127.0.0.1 MASTER_PORT=1";
    };
    std::string others;
    std::ofstream(dir.path + "/report1") << "rank 0's";
    for (int r = 1; r < 3; r++)
        others += "env -i PATH=\"$PATH\" LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" " + env(r, 3) +
                  " '" PVN_BUILDDIR "/topo/pvn-topo' -o '" + dir.path + "/report" +
                  std::to_string(r) + "' stat >'" + dir.path + "/other" + std::to_string(r) +
                  "' 2>&1 & ";
    ASSERT_EQ(0, std::system(("( " + others + ") ").c_str()));
    Result r = run_tool(dir.path, "--timeout 20 stat", env(0, 3));
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ("", r.err);
    EXPECT_EQ(0u, r.out.find("no process waits for another: 1 process on 1 host\n")) << r.out;
    EXPECT_EQ(r.out.find(" pid " + job + " "), r.out.rfind(" pid " + job + " ")) << "shown once";
    for (const char *name : {"/other1", "/other2"})
        EXPECT_EQ("", read_file(dir.path + name));
    EXPECT_EQ("rank 0's", read_file(dir.path + "/report1")) << "all ranks may have one file";
    EXPECT_FALSE(std::filesystem::exists(dir.path + "/report2"));
    // One copy does not connect. The others are shown.
    r = run_tool(dir.path, "--timeout 1 stat", env(0, 2));
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.out.find("rank 1 of the launcher: it did not come within 1 s"))
        << r.out;
    EXPECT_NE(std::string::npos, r.out.find(" pid " + job + " "));
    // Rank 0 is missing. The copy shows its own host.
    r = run_tool(dir.path, "--timeout 1 stat", env(1, 2));
    EXPECT_EQ(0, r.status);
    EXPECT_NE(std::string::npos, r.err.find("rank 1 could not reach rank 0 at 127.0.0.1:"))
        << r.err;
    EXPECT_NE(std::string::npos, r.out.find(" pid " + job + " ")) << r.out;
    pvn_stats_close();
    pvn_params_override(nullptr);
}

} // namespace
