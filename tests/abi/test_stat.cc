// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The statistics of real processes, which pvn-topo stat reads from outside: ranks that run, are
// stopped or killed, connections that do not come up, and files that remain at the end.
#include "abi/nccl_side.h"
#include "stats/stat_layout.h"
#include "tests/topo/cli.h"
#include "tests/support/paths.h"

#include <jansson.h>

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <spawn.h>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace nccl;

namespace
{

struct JsonFree {
    void operator()(json_t *j) const
    {
        json_decref(j);
    }
};

// A comm in the output of --json, with its process.
struct Comm {
    json_t *process, *comm;
    std::string text(const char *key) const
    {
        const char *s = json_string_value(json_object_get(comm, key));
        return s ? s : "";
    }
    double number(const char *key) const
    {
        return json_number_value(json_object_get(comm, key));
    }
    bool has(const char *key) const
    {
        return !json_is_null(json_object_get(comm, key));
    }
    pid_t pid() const
    {
        return static_cast<pid_t>(json_integer_value(json_object_get(process, "pid")));
    }
    std::string of_process(const char *key) const
    {
        const char *s = json_string_value(json_object_get(process, key));
        return s ? s : "";
    }
};

class Stat : public testing::Test
{
  protected:
    std::string dir;
    std::unique_ptr<json_t, JsonFree> doc;
    int status = -1;
    pid_t perf = 0;

    void SetUp() override
    {
        char t[] = "/tmp/pvn-stat-test.XXXXXX";
        dir = mkdtemp(t);
        setenv("NCCL_PVRDMA_STATS_DIR", (dir + "/d").c_str(), 1);
    }
    void TearDown() override
    {
        if (perf > 0) {
            kill(-perf, SIGKILL);
            waitpid(perf, nullptr, 0);
        }
        unsetenv("NCCL_PVRDMA_STATS_DIR");
        EXPECT_EQ(0, system(("rm -rf " + dir).c_str()));
    }
    Result tool(const std::string &args)
    {
        return run_tool(dir, args, "NCCL_PVRDMA_STATS_DIR='" + dir + "/d'");
    }
    // All comms that are connected, were connected, or wait to be.
    std::vector<Comm> comms()
    {
        Result r = tool("--json stat");
        json_error_t error;
        status = r.status;
        doc.reset(json_loads(r.out.c_str(), 0, &error));
        EXPECT_NE(nullptr, doc) << error.text << "\n" << r.out << r.err;
        std::vector<Comm> all;
        size_t i, k;
        json_t *process, *comm;
        json_array_foreach(json_object_get(doc.get(), "processes"), i, process)
            json_array_foreach(json_object_get(process, "comms"), k, comm)
                all.push_back({process, comm});
        return all;
    }
    // Waits for a comm that fits, and returns the first one.
    Comm wait_for(const std::function<bool(const Comm &)> &fits)
    {
        Comm found = {};
        EXPECT_TRUE(eventually([&] {
            for (auto &c : comms())
                if (fits(c)) {
                    found = c;
                    return true;
                }
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return false;
        })) << tool("--all stat").out;
        return found;
    }
    // Starts two ranks that send until they are stopped, in a process group of their own.
    void start_perf()
    {
        std::string exe = PVN_BUILDDIR "/pvn-perf";
        const char *argv[] = {exe.c_str(), "p2p",     "--bandwidth", "--plugin", plugin_path(),
                              "--sizes",   "256K",    "--time",      "100",      "--timeout",
                              "90",        "--quiet", nullptr};
        posix_spawnattr_t attr;
        posix_spawn_file_actions_t files;
        posix_spawnattr_init(&attr);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&files, 1, 2);
        unsetenv("RANK");
        ASSERT_EQ(0, posix_spawn(&perf, exe.c_str(), &files, &attr, const_cast<char *const *>(argv),
                                 environ));
        posix_spawnattr_destroy(&attr);
        posix_spawn_file_actions_destroy(&files);
    }
    // Expects that the first line blames this process, both live and from a saved file.
    void expect_blamed(pid_t pid)
    {
        EXPECT_EQ(1, tool("-o saved.json --json stat").status);
        for (const char *args : {"stat", "stat saved.json"}) {
            Result r = tool(args);
            std::string first = squeeze(r.out.substr(0, r.out.find("\n\n")));
            EXPECT_EQ(0u, first.find("1 of 2 processes waits for ")) << r.out << r.err;
            EXPECT_NE(std::string::npos, first.find("pid " + std::to_string(pid) + " on "))
                << first;
            EXPECT_NE(std::string::npos, first.find(": it is stopped, by a signal")) << first;
        }
    }
    // The number of files that processes have left behind.
    int files_left()
    {
        std::string ls = "ls " + dir + "/d >" + dir + "/names", line;
        EXPECT_EQ(0, system(ls.c_str()));
        int n = 0;
        for (std::ifstream f(dir + "/names"); std::getline(f, line);)
            n++;
        return n;
    }
};

bool carries(const Comm &c)
{
    return c.text("state") == "UP" && c.number("bytes") > 1000000;
}

TEST_F(Stat, AKilledRankAndTheOneThatOutlivesIt)
{
    start_perf();
    Comm c = wait_for([](const Comm &x) { return carries(x) && x.text("kind") == "recv"; });
    ASSERT_NE(nullptr, c.comm);
    pid_t victim = c.pid();
    EXPECT_EQ("alive", c.of_process("life"));
    EXPECT_EQ("pvn-perf", c.of_process("command"));
    EXPECT_NE(std::string::npos, c.text("lanes").find("tcp on lo"));
    EXPECT_TRUE(c.has("tcp_retransmits"));
    ASSERT_EQ(0, kill(victim, SIGKILL));
    c = wait_for([&](const Comm &x) {
        return x.pid() == victim && carries(x) && x.of_process("life") == "dead";
    });
    EXPECT_EQ("lost", c.text("trouble"));
    EXPECT_EQ(1, status);
    // The other rank notices, ends too, and its reason can still be read.
    c = wait_for([&](const Comm &x) {
        return x.pid() != victim && x.text("trouble") == "failed" && x.number("peer_pid") == victim;
    });
    EXPECT_NE("", c.text("text"));
    waitpid(perf, nullptr, 0);
    perf = 0;
    Result r = tool("stat " + std::to_string(victim));
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.out.find("pid " + std::to_string(victim))) << r.out;
    EXPECT_NE(std::string::npos, r.out.find(": dead; began ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("it ended without closing its comms")) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("FAILED"))
        << "only one process was requested: " << r.out;
    r = tool("stat");
    EXPECT_NE(std::string::npos, r.out.find("FAILED")) << r.out;
    r = tool("--prom stat");
    EXPECT_EQ(0, r.status);
    EXPECT_NE(std::string::npos, r.out.find("nccl_pvrdma_process_up{")) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("nccl_pvrdma_bytes_total{")) << "their series end";
    EXPECT_EQ(2, files_left());
    r = tool("--clean stat");
    EXPECT_EQ("2 files of dead processes removed\n", r.out);
    EXPECT_EQ(0, files_left());
    EXPECT_EQ(3, tool("stat " + std::to_string(victim)).status);
    EXPECT_EQ(0, tool("stat").status);
}

TEST_F(Stat, AStoppedRankIsNamedByTheOther)
{
    start_perf();
    for (std::string kind : {"recv", "send"}) {
        Comm c = wait_for([&](const Comm &x) { return carries(x) && x.text("kind") == kind; });
        ASSERT_NE(nullptr, c.comm);
        pid_t stopped = c.pid();
        ASSERT_EQ(0, kill(stopped, SIGSTOP));
        c = wait_for(
            [&](const Comm &x) { return x.pid() != stopped && carries(x) && x.has("stalled_s"); });
        EXPECT_EQ(stopped, static_cast<pid_t>(c.number("peer_pid")));
        EXPECT_NE(kind, c.text("kind"));
        EXPECT_NE(std::string::npos, c.text("text").find("peer")) << c.text("text");
        EXPECT_GT(c.number("requests_open"), 0);
        EXPECT_GT(c.number("moved_s_ago"), 0.5);
        EXPECT_LT(c.number("last_call_s_ago"), c.number("moved_s_ago")) << "NCCL goes on asking";
        for (auto &x : comms())
            if (x.pid() == stopped) {
                EXPECT_EQ("stopped", x.of_process("state"));
            }
        EXPECT_NE(std::string::npos, tool("stat").out.find("alive, stopped")) << tool("stat").out;
        c = wait_for([&](const Comm &x) {
            return x.pid() != stopped && carries(x) && x.text("trouble") == "stalled";
        });
        expect_blamed(stopped);
        ASSERT_EQ(0, kill(stopped, SIGCONT));
        wait_for(
            [&](const Comm &x) { return x.pid() != stopped && carries(x) && !x.has("stalled_s"); });
    }
}

// Completed messages show up soon, and so do open requests, although nobody calls any more.
TEST_F(Stat, AFewQuickMessagesAndSilence)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow first = plain(p, {1});
    ASSERT_TRUE(first.run());
    comms(); // now the rows have been published for the last time
    Flow f = plain(p, std::vector<size_t>(10, 3000));
    ASSERT_TRUE(f.run());
    auto expect = [&](const char *kind, uint64_t messages, uint64_t bytes, uint64_t open) {
        int found = 0;
        auto shown = [&] {
            for (auto &c : comms())
                if (c.text("kind") == kind && c.number("messages") == messages &&
                    c.number("requests_open") == open)
                    return true;
            return false;
        };
        for (Deadline wait; wait.left() && !shown();)
            usleep(10000);
        for (auto &c : comms()) {
            if (c.text("kind") != kind)
                continue;
            found++;
            EXPECT_EQ(messages, c.number("messages")) << kind;
            EXPECT_EQ(bytes, c.number("bytes")) << kind;
            EXPECT_EQ(open, c.number("requests_open")) << kind;
            EXPECT_TRUE(c.has("moved_s_ago")) << kind;
        }
        EXPECT_EQ(1, found) << kind;
    };
    expect("send", 11, 30001, 0);
    expect("recv", 11, 30001, 0);
    EXPECT_TRUE(std::regex_search(tool("stat").out, std::regex("UP +11 +(30001 B|29.3 KiB) +0 ")))
        << tool("stat").out;
    // A receive that no message arrives for, and that nobody tests.
    Buffer b(100);
    void *data = b.data(), *mh = nullptr, *handle = nullptr, *request = nullptr;
    size_t size = 100;
    int tag = 0;
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, &handle, &request));
    ASSERT_NE(nullptr, request);
    expect("send", 11, 30001, 0);
    expect("recv", 11, 30001, 1);
}

// Output has to follow the text exposition format, version 0.0.4.
TEST_F(Stat, MetricsFollowPrometheusGrammar)
{
    const std::string name = "nccl_pvrdma_[a-z_]+", value = R"re("([^"\\]|\\["\\n])*")re";
    std::regex comment("# (HELP|TYPE) (" + name + ") (.+)");
    std::regex sample("(" + name + R"(\{([a-z_]+=)" + value + R"((,[a-z_]+=)" + value +
                      R"()*)?\}) (-?[0-9.]+(e[+-][0-9]+)?))");
    start_perf();
    setenv("RANK", "odd\"\\rank\n", 1);
    {
        Net n(12);
        unsetenv("RANK");
        Pair p(n);
        ASSERT_TRUE(p.up());
        Flow f = plain(p, {5, 100000});
        EXPECT_TRUE(f.run());
        wait_for(carries);
        Result r = tool("--prom --per-comm stat");
        EXPECT_EQ(0, r.status) << r.err;
        std::istringstream lines(r.out);
        std::string line, family;
        std::set<std::string> families, series;
        while (std::getline(lines, line)) {
            std::smatch m;
            if (std::regex_match(line, m, comment)) {
                family = m[2];
                if (m[1] == "HELP") {
                    EXPECT_TRUE(families.insert(family).second) << "twice: " << family;
                } else {
                    EXPECT_TRUE(m[3] == "counter" || m[3] == "gauge") << line;
                    EXPECT_EQ(m[3] == "counter", family.rfind("_total") == family.size() - 6);
                }
                continue;
            }
            ASSERT_TRUE(std::regex_match(line, m, sample)) << line;
            EXPECT_EQ(0u, line.find(family + "{")) << line << " is not in " << family;
            EXPECT_TRUE(series.insert(m[1]).second) << "twice: " << line;
        }
        EXPECT_NE(std::string::npos, r.out.find("rank=\"odd\\\"\\\\rank?\"")) << r.out;
        EXPECT_TRUE(families.count("nccl_pvrdma_comm_bytes_total"));
        EXPECT_EQ(std::string::npos, r.out.find("127.0.0.1")) << "no addresses, no ports in labels";
        EXPECT_FALSE(std::regex_search(r.out, std::regex("peer=\"[^\"]*(:[0-9]|pid)"))) << r.out;
        EXPECT_EQ(std::string::npos, tool("--prom stat").out.find("comm=\"")) << "only on request";
        EXPECT_TRUE(families.count("nccl_pvrdma_stalled_seconds"));
        EXPECT_GT(series.size(), 40u);
    }
}

// A device's counters outlive its comms, so that a rate over an hour is correct.
TEST_F(Stat, PrometheusTotalsOutliveComms)
{
    std::regex bytes("nccl_pvrdma_bytes_total\\{[^}]*direction=\"send\",device=\"lo\","
                     "transport=\"tcp\"\\} ([0-9]+)");
    Net n(12);
    for (int i = 1; i <= 2; i++) {
        Pair p(n);
        ASSERT_TRUE(p.up());
        Flow f = plain(p, {5, 100000});
        EXPECT_TRUE(f.run());
        p.close();
        std::string out = tool("--prom stat").out;
        std::smatch m;
        ASSERT_TRUE(std::regex_search(out, m, bytes)) << out;
        EXPECT_EQ(std::to_string(100005 * i), m[1]);
        EXPECT_NE(std::string::npos, out.find("nccl_pvrdma_stalled_seconds{")) << out;
    }
}

TEST_F(Stat, RanksOfPerfHaveTheirNumber)
{
    start_perf();
    std::set<std::string> ranks;
    EXPECT_TRUE(eventually([&] {
        for (auto &c : comms())
            ranks.insert(c.of_process("rank") + " from " + c.of_process("rank_from"));
        return ranks.size() == 2;
    }));
    EXPECT_EQ((std::set<std::string>{"0 from PVN_PERF_RANK", "1 from PVN_PERF_RANK"}), ranks);
    // A comm has a transport once it is connected.
    Result r;
    std::regex connected("send +tcp +lo");
    EXPECT_TRUE(eventually([&] { return std::regex_search((r = tool("stat")).out, connected); }))
        << r.out;
    EXPECT_NE(std::string::npos, r.out.find("rank 1, pvn-perf pid")) << r.out;
    EXPECT_TRUE(std::regex_search(
        r.out,
        std::regex("comm +dir +via +device +state +messages +bytes +open +moved +last call")))
        << r.out;
}

// If ten connections wait for the same thing, one remark names them all.
TEST_F(Stat, EqualReasonsAreOneRemark)
{
    Net n(12);
    std::vector<void *> listeners;
    for (int i = 0; i < 10; i++) {
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *lc = nullptr, *rc = nullptr;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, lc, &rc));
        listeners.push_back(lc);
    }
    Result r = tool("stat");
    const std::string reason = "waiting for a peer to connect to";
    size_t at = r.out.find(reason);
    ASSERT_NE(std::string::npos, at) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find(reason, at + 1)) << r.out;
    EXPECT_TRUE(std::regex_search(
        r.out, std::regex("\\(also comm 2, 3, 4, 5, 6, 7\\s+and\\s+3\\s+more\\)")))
        << r.out;
    for (void *lc : listeners)
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
}

TEST_F(Stat, OtherUsersDirectoriesAreNamed)
{
    const uid_t me = 48111, other = 48112;
    std::string mine = "/dev/shm/nccl-net-pvrdma-" + std::to_string(me),
                theirs = "/dev/shm/nccl-net-pvrdma-" + std::to_string(other);
    if (geteuid() != 0)
        GTEST_SKIP() << "root is needed to be two other users";
    mkdir(theirs.c_str(), 0700);
    ASSERT_EQ(0, chown(theirs.c_str(), other, other));
    std::string cmd = "cd / && env -u NCCL_PVRDMA_STATS_DIR setpriv --reuid " + std::to_string(me) +
                      " --clear-groups " PVN_BUILDDIR "/topo/pvn-topo stat >" + dir + "/out 2>&1";
    int rc = system(cmd.c_str());
    std::string out = read_file(dir + "/out");
    rmdir(theirs.c_str());
    if (out.find("ermission denied") != std::string::npos)
        GTEST_SKIP() << "the build tree is not for other users: " << out;
    EXPECT_EQ(3, WEXITSTATUS(rc)) << out;
    EXPECT_NE(std::string::npos, squeeze(out).find("not readable: " + theirs +
                                                   ", of user 48112: only that user and root"))
        << out;
    EXPECT_NE(std::string::npos, out.find("no process of this user has used the plugin")) << out;
}

TEST_F(Stat, ConnectionsThatDoNotComeUp)
{
    Net n(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *sc = nullptr, *rc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, lc, &rc));
    Comm c = wait_for([](const Comm &x) { return x.text("state") == "ACCEPT"; });
    EXPECT_NE(std::string::npos, c.text("text").find("waiting for a peer to connect to 127.0.0.1:"))
        << c.text("text");
    EXPECT_NE(std::string::npos, tool("stat").out.find("waiting for a peer to connect to"));
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc));
    ASSERT_EQ(nullptr, sc);
    c = wait_for([](const Comm &x) { return x.text("state") == "HELLO"; });
    EXPECT_EQ("waiting for the peer's process to call accept", c.text("text"));
    EXPECT_EQ("send", c.text("kind"));
    EXPECT_EQ(0, status) << "nothing is wrong yet";
    // A copy of the file as it would be half a minute later.
    std::string image = read_file(c.of_process("file")), later = dir + "/later.stat";
    for (size_t at = sizeof(pvn_stat_head); at < image.size(); at += sizeof(pvn_stat_row))
        reinterpret_cast<pvn_stat_row *>(image.data() + at)->state_ns -= UINT64_C(31000000000);
    std::ofstream(later, std::ios::binary) << image;
    Result r = tool("stat " + later);
    EXPECT_EQ(1, r.status) << r.out;
    for (const char *what : {"call accept", "to connect to"})
        EXPECT_TRUE(std::regex_search(r.out, std::regex(std::string("STALLED for 3[0-9.]+ s: "
                                                                    "waiting[^;]*") +
                                                        what)))
            << r.out;
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
}

TEST_F(Stat, NothingIsLeftWhenAllWentWell)
{
    {
        Net n(12);
        Pair p(n);
        ASSERT_TRUE(p.up());
        Flow f = plain(p, {5, 100000});
        EXPECT_TRUE(f.run());
        EXPECT_EQ(1, files_left());
        EXPECT_NE(std::string::npos,
                  Log::get().text().find("statistics for pvn-topo stat: " + dir));
        p.close();
        auto all = comms();
        ASSERT_EQ(2u, all.size()) << "closed comms stay to be seen";
        for (auto &c : all) {
            EXPECT_TRUE(json_is_true(json_object_get(c.comm, "closed")));
            EXPECT_EQ(2, c.number("messages"));
            EXPECT_EQ(100005, c.number("bytes"));
        }
        EXPECT_EQ(0, status);
    }
    EXPECT_EQ(0, files_left());
}

TEST_F(Stat, OptionsThatDoNotFitAreRefused)
{
    EXPECT_EQ(2, tool("--prom --json stat").status);
    EXPECT_EQ(2, tool("--clean stat 1").status);
    EXPECT_EQ(2, tool("--prom pairs").status);
    EXPECT_EQ(2, tool("--per-comm stat").status);
    Result r = tool("stat /nonexistent");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("/nonexistent: ")) << r.err;
    r = tool("stat");
    EXPECT_EQ(0, r.status);
    EXPECT_EQ(0u, r.out.find("no statistics files")) << r.out;
}

// The output shows the connections' adapters with their counters, and no other adapters. In the
// metrics, a stopped rank has the value 1.
TEST_F(Stat, CountersOfTheAdaptersInUse)
{
    start_perf();
    Comm c = wait_for([](const Comm &o) { return o.text("state") == "UP"; });
    const std::string device = c.text("device"), net = dir + "/host/sys/class/net/";
    pid_t pid = c.pid();
    ASSERT_EQ(0, system(("mkdir -p " + net + device + "/statistics " + net + "other0/statistics " +
                         dir + "/host/proc && echo 7 >" + net + device +
                         "/statistics/rx_crc_errors && echo 9 >" + net +
                         "other0/statistics/rx_crc_errors")
                            .c_str()));
    Result r = tool("--root host stat");
    EXPECT_NE(std::string::npos, r.out.find("  " + device + ": rx_crc_errors 7\n"))
        << r.out << r.err;
    EXPECT_EQ(std::string::npos, r.out.find("other0")) << r.out;
    r = tool("--root host --json stat");
    EXPECT_NE(std::string::npos, squeeze(r.out).find("\"counter\": \"rx_crc_errors\", \"source\": "
                                                     "\"statistics\", \"kind\": \"error\", "
                                                     "\"value\": 7, \"grew\": null"))
        << r.out;
    const std::string stopped = "nccl_pvrdma_process_stopped{pid=\"" + std::to_string(pid) + "\",";
    auto value = [&](const std::string &out) {
        size_t at = out.find(stopped);
        at = at == std::string::npos ? at : out.find("} ", at);
        return at == std::string::npos ? '?' : out[at + 2];
    };
    r = tool("--root host --prom stat");
    EXPECT_NE(std::string::npos,
              r.out.find("nccl_pvrdma_adapter_events_total{device=\"" + device +
                         "\",port=\"\",counter=\"rx_crc_errors\",source=\"statistics\","
                         "kind=\"error\"} 7\n"))
        << r.out;
    EXPECT_NE(std::string::npos, r.out.find("nccl_pvrdma_device_info{device=\"" + device +
                                            "\",kind=\"interface\"} 1\n"))
        << r.out;
    EXPECT_EQ('0', value(r.out)) << r.out;
    // Rates: the file grows all the time, so any two reads differ.
    std::atomic<bool> done{false};
    std::thread grows([&] {
        for (int n = 8; !done; n += 1000) {
            std::ofstream(net + device + "/statistics/new") << n << "\n";
            rename((net + device + "/statistics/new").c_str(),
                   (net + device + "/statistics/rx_crc_errors").c_str());
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    });
    r = tool("--root host --watch=0.5 --count 2 stat");
    done = true;
    grows.join();
    EXPECT_NE(std::string::npos, r.out.find("Counters of adapters that grew, per second:\n  " +
                                            device + ": rx_crc_errors "))
        << r.out << r.err;
    ASSERT_EQ(0, kill(pid, SIGSTOP));
    EXPECT_TRUE(eventually([&] { return value(tool("--prom stat").out) == '1'; }));
    EXPECT_EQ(0, kill(pid, SIGCONT));
}

} // namespace
