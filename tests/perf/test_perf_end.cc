// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests runs of pvn-perf that end early: interrupted, with a closed output, or refused by the plugin. Each writes
// the results so far, gives the reason once, and leaves no statistics file as a crash would.
#include <gtest/gtest.h>

#include <jansson.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>

#include <algorithm>
#include <iterator>

#include "support/deadline.h"
#include "tests/perf/perf_run.h"

extern "C" {
#include "stats/stats_read.h"
}

namespace
{

class End : public testing::Test
{
  protected:
    void SetUp() override
    {
        const char *old = getenv("NCCL_PVRDMA_STATS_DIR");
        saved = old ? old : "";
        setenv("NCCL_PVRDMA_STATS_DIR", (dir / "stats").c_str(), 1);
    }
    void TearDown() override
    {
        if (pid > 0) {
            kill(-pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
        if (out >= 0)
            close(out);
        if (saved.empty())
            unsetenv("NCCL_PVRDMA_STATS_DIR");
        else
            setenv("NCCL_PVRDMA_STATS_DIR", saved.c_str(), 1);
    }
    // Starts pvn-perf in a process group of its own. Its standard output goes to the pipe `out`.
    void Start(std::vector<std::string> args)
    {
        std::vector<char *> argv{const_cast<char *>(kPerf.c_str())};
        posix_spawn_file_actions_t files;
        posix_spawnattr_t attr;
        sigset_t def;
        int p[2];

        for (auto &a : args)
            argv.push_back(a.data());
        argv.push_back(nullptr);
        if (out >= 0)
            close(out);
        ASSERT_EQ(pipe2(p, O_CLOEXEC), 0);
        sigemptyset(&def);
        for (int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
            sigaddset(&def, s);
        posix_spawnattr_init(&attr);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
        posix_spawnattr_setsigdefault(&attr, &def);
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, p[1], 1);
        posix_spawn_file_actions_addopen(&files, 2, (dir / "err").c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ASSERT_EQ(posix_spawn(&pid, kPerf.c_str(), &files, &attr, argv.data(), environ), 0);
        posix_spawnattr_destroy(&attr);
        posix_spawn_file_actions_destroy(&files);
        close(p[1]);
        out = p[0];
        printed.clear();
    }
    // Reads standard output until it contains the text or ends.
    bool ReadUntil(const std::string &text)
    {
        char buf[4096];
        ssize_t n;

        while (printed.find(text) == std::string::npos) {
            pollfd p{out, POLLIN, 0};

            if (poll(&p, 1, 60000) <= 0 || (n = read(out, buf, sizeof(buf))) <= 0)
                return false;
            printed.append(buf, static_cast<size_t>(n));
        }
        return true;
    }
    // Returns the exit status, or 128 + the signal that killed the process.
    int Wait()
    {
        int st = 0;

        if (out >= 0)
            ReadUntil("\x01"); // never printed: reads to the end
        waitpid(pid, &st, 0);
        pid = 0;
        return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    }
    int FilesLeft()
    {
        DIR *d = opendir((dir / "stats").c_str());
        int n = 0;

        while (d && readdir(d))
            n++;
        if (d)
            closedir(d);
        return n ? n - 2 : 0;
    }
    // Waits until the plugins of both ranks have moved messages, so that both ranks have begun.
    bool BothRun()
    {
        for (Deadline wait; wait.left(); usleep(20000)) {
            int n = 0;
            DIR *d = opendir((dir / "stats").c_str());

            while (dirent *f = d ? readdir(d) : nullptr) {
                pvn_stats s;

                if (f->d_name[0] == '.' ||
                    pvn_stats_read((dir / "stats/" + f->d_name).c_str(), &s, nullptr))
                    continue;
                n += std::any_of(s.row, s.row + s.nrows, [](auto &r) { return r.n.msgs > 0; });
                pvn_stats_free(&s);
            }
            if (d)
                closedir(d);
            if (n == 2)
                return true;
        }
        return false;
    }
    std::vector<pid_t> Ranks() const
    {
        std::istringstream children(
            Slurp("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));

        return {std::istream_iterator<pid_t>(children), {}};
    }
    json_t *Json()
    {
        return json_loads(Slurp(dir / "f.json").c_str(), 0, nullptr);
    }
    Dir dir;
    std::string saved, printed;
    pid_t pid = 0;
    int out = -1;
};

// A soak test of hours still prints its totals if it is interrupted or loses a rank.
TEST_F(End, ASoakThatIsInterruptedHasItsTotals)
{
    Start({"p2p", "--plugin", "t=" + kTestnet, "--duration", "60", "--interval", "0.2", "--sizes",
           "4K", "--check", "--json", dir / "f.json"});
    ASSERT_TRUE(ReadUntil("  right")) << printed << Slurp(dir / "err");
    ASSERT_EQ(kill(-pid, SIGINT), 0);
    EXPECT_EQ(Wait(), 130) << Slurp(dir / "err");
    EXPECT_EQ(Count(printed, " bytes were right"), 1) << printed;
    EXPECT_NE(printed.find("INTERRUPTED"), std::string::npos) << printed;
    json_t *j = Json();
    json_t *row = json_array_get(json_object_get(j, "results"), 0);
    ASSERT_NE(row, nullptr);
    EXPECT_STREQ(json_string_value(json_object_get(row, "test")), "soak");
    EXPECT_GT(json_integer_value(json_object_get(row, "messages")), 0);
    json_decref(j);
}

TEST_F(End, ASoakThatFailsHasItsTotals)
{
    Outcome r = Perf("p2p --plugin t=" + kTestnet +
                         " --duration 60 --interval 0.2 --sizes 4K --check --bidirectional",
                     "TESTNET_FAULT_RANK=1 TESTNET_FAULT=die:5000");

    EXPECT_EQ(r.status, 3) << r.err;
    EXPECT_NE(r.err.find("fault die fired"), std::string::npos) << r.err;
    EXPECT_EQ(Count(r.out, " bytes were right"), 1) << r.out;
}

TEST_F(End, ARingForATimeThatEndsBeforeItHasItsTotals)
{
    Outcome r = Perf("ring --ranks 3 --plugin t=" + kTestnet +
                         " --duration 60 --sizes 4K --check --json " + (dir / "f.json"),
                     "TESTNET_FAULT_RANK=1 TESTNET_FAULT=die:500");
    json_t *j = Json();
    json_t *row = json_array_get(json_object_get(j, "results"), 0);

    EXPECT_EQ(r.status, 3) << r.err;
    EXPECT_NE(r.err.find("fault die fired"), std::string::npos) << r.err;
    EXPECT_GE(json_integer_value(json_object_get(row, "iterations")), 1) << Slurp(dir / "f.json");
    json_decref(j);
}

TEST_F(End, CtrlCWritesWhatWasMeasured)
{
    for (int sig : {SIGINT, SIGTERM}) {
        Start({"ring", "--ranks", "3", "--sizes", "4K,8K,64M", "--iters", "40", "--json",
               dir / "f.json", "--csv", dir / "f.csv"});
        ASSERT_TRUE(ReadUntil("8 KiB")) << printed << Slurp(dir / "err");
        EXPECT_EQ(FilesLeft(), 3) << "they are there while it runs";
        // A terminal sends the signal to all processes of the group, too.
        ASSERT_EQ(kill(-pid, sig), 0);
        EXPECT_EQ(Wait(), 128 + sig) << Slurp(dir / "err");
        EXPECT_NE(printed.find("INTERRUPTED"), std::string::npos) << printed;
        EXPECT_EQ(Slurp(dir / "err"), "");
        EXPECT_EQ(FilesLeft(), 0);
        json_t *j = Json();
        ASSERT_NE(j, nullptr) << Slurp(dir / "f.json");
        EXPECT_TRUE(json_is_true(json_object_get(j, "interrupted")));
        EXPECT_TRUE(json_is_false(json_object_get(j, "ok")));
        EXPECT_EQ(json_array_size(json_object_get(j, "results")), 2u);
        EXPECT_EQ(Count(Slurp(dir / "f.csv"), "allreduce"), 2);
        json_decref(j);
    }
}

TEST_F(End, ASignalToTheParentAloneIsPassedOn)
{
    Start({"p2p", "--bandwidth", "--sizes", "256K", "--iters", "20000000"});
    ASSERT_TRUE(BothRun()) << Slurp(dir / "err");
    ASSERT_EQ(kill(pid, SIGTERM), 0);
    EXPECT_EQ(Wait(), 128 + SIGTERM) << Slurp(dir / "err");
    EXPECT_EQ(FilesLeft(), 0);
}

TEST_F(End, ARankStuckInThePluginIsEndedAllTheSame)
{
    setenv("TESTNET_FAULT", "stuck:1", 1);
    Start({"ring", "--ranks", "2", "--sizes", "4K", "--plugin", "t=" + kTestnet, "--json",
           dir / "f.json"});
    unsetenv("TESTNET_FAULT");
    for (Deadline wait; wait.left() && Count(Slurp(dir / "err"), "fault stuck fired") < 2;)
        usleep(10000);
    ASSERT_EQ(Count(Slurp(dir / "err"), "fault stuck fired"), 2) << Slurp(dir / "err");
    ASSERT_EQ(kill(-pid, SIGINT), 0);
    EXPECT_EQ(Wait(), 128 + SIGINT);
    EXPECT_NE(Slurp(dir / "err").find("does not return from 'isend'"), std::string::npos)
        << Slurp(dir / "err");
    json_t *j = Json();
    ASSERT_NE(j, nullptr);
    EXPECT_TRUE(json_is_true(json_object_get(j, "interrupted")));
    json_decref(j);
}

// A rank that gives up must not be the only one to say something: the plugin knows who has the next step, and says so
// before.
TEST_F(End, ThePluginSaysWhyNothingMovesBeforeARankGivesUp)
{
    Start({"p2p", "--bandwidth", "--sizes", "256K", "--iters", "20000000", "--timeout", "6"});
    ASSERT_TRUE(BothRun()) << Slurp(dir / "err");
    std::vector<pid_t> rank = Ranks();
    ASSERT_EQ(rank.size(), 2u);
    ASSERT_EQ(kill(rank[1], SIGSTOP), 0);
    EXPECT_EQ(Wait(), 3);
    std::string err = Slurp(dir / "err");
    size_t warns = err.find(": nothing has moved for "),
           fails = err.find(": nothing moved for 6 s");
    ASSERT_NE(fails, std::string::npos) << err;
    EXPECT_LT(warns, fails) << err;
    EXPECT_NE(err.find("--verbose", fails), std::string::npos) << err;
}

TEST_F(End, TheWarningOfAStallComesWithinTheLimitUnlessItIsSet)
{
    const struct {
        const char *args, *env, *value;
    } cases[] = {{"", "", "10s"},
                 {"--timeout 3", "", "1s"},
                 {"--timeout 3", "NCCL_PVRDMA_STALL_WARN=", "1s"},
                 {"--timeout 300", "", "30s"},
                 {"", "NCCL_PVRDMA_STALL_WARN=2m", "120s"},
                 {"--env NCCL_PVRDMA_STALL_WARN=0", "", "0"}};

    for (auto &c : cases) {
        Outcome r =
            Perf(std::string("p2p --latency --sizes 8 --iters 2 --json - ") + c.args, c.env);
        json_t *j = json_loads(r.out.c_str(), 0, nullptr);
        json_t *plugin = json_array_get(json_object_get(j, "plugins"), 0);
        json_t *value =
            json_object_get(json_object_get(plugin, "parameters"), "NCCL_PVRDMA_STALL_WARN");

        ASSERT_NE(value, nullptr) << r.out << r.err;
        EXPECT_STREQ(json_string_value(value), c.value) << c.args << c.env;
        json_decref(j);
    }
}

// Ctrl-Z and fg stop and continue all processes. The time in between must not count as time without progress. The
// parent continues first and rank 1, for which the others wait, last.
TEST_F(End, ARunThatIsStoppedForLongerThanItsLimitGoesOn)
{
    setenv("TESTNET_FAULT", "late:1", 1);
    setenv("TESTNET_FAULT_RANK", "1", 1);
    Start({"ring", "--ranks", "3", "--sizes", "4K,8K", "--iters", "5", "--timeout", "3", "--plugin",
           "t=" + kTestnet});
    unsetenv("TESTNET_FAULT");
    unsetenv("TESTNET_FAULT_RANK");
    ASSERT_TRUE(ReadUntil("4 KiB")) << printed << Slurp(dir / "err");
    std::vector<pid_t> rank = Ranks();
    ASSERT_EQ(rank.size(), 3u);
    ASSERT_EQ(kill(-pid, SIGSTOP), 0);
    usleep(8500000); // --timeout, and the 5 s after which the parent kills a rank
    for (pid_t p : {pid, rank[0], rank[2], rank[1]}) {
        EXPECT_EQ(kill(p, SIGCONT), 0);
        usleep(200000);
    }
    EXPECT_EQ(Wait(), 0) << Slurp(dir / "err");
    EXPECT_NE(printed.find("8 KiB"), std::string::npos) << printed;
    EXPECT_NE(Slurp(dir / "err").find("fault late fired"), std::string::npos);
}

TEST_F(End, AClosedPipeEndsTheRun)
{
    Start({"ring", "--ranks", "2", "--sizes", "4K,8K,16K,64M", "--iters", "40", "--json",
           dir / "f.json"});
    ASSERT_TRUE(ReadUntil("4 KiB")) << printed;
    close(out);
    out = -1;
    EXPECT_EQ(Wait(), 128 + SIGPIPE) << Slurp(dir / "err");
    EXPECT_EQ(Slurp(dir / "err"), "") << "as other tools after | head";
    EXPECT_EQ(FilesLeft(), 0);
    json_t *j = Json();
    ASSERT_NE(j, nullptr) << Slurp(dir / "f.json");
    EXPECT_TRUE(json_is_true(json_object_get(j, "interrupted")));
    EXPECT_GE(json_array_size(json_object_get(j, "results")), 1u);
    json_decref(j);
}

// The caller closed standard output. The next file that is opened must not become descriptor 1.
TEST_F(End, AClosedStandardOutputIsNotTheFile)
{
    Outcome r =
        Perf("p2p --sizes 8 --iters 2 --json " + (dir / "r.json") + " --plugin t=" + kTestnet, "",
             "/dev/null >&-");
    EXPECT_EQ(r.status, 3);
    EXPECT_EQ(Count(r.err, "standard output cannot be written: Bad file descriptor"), 1) << r.err;
    json_t *j = json_load_file((dir / "r.json").c_str(), 0, nullptr);
    EXPECT_NE(j, nullptr) << Slurp(dir / "r.json");
    json_decref(j);
}

TEST_F(End, ARefusalLeavesNothingAndIsSaidOnce)
{
    const struct {
        const char *args, *says;
    } refusals[] = {{"--dev nosuch0", "--dev nosuch0: "},
                    {"--sizes 1000G", "do not fit into"},
                    {"--env NCCL_PVRDMA_TCP_STREAMS=many", "init of plugin pvrdma failed"},
                    {"--plugin /nowhere/x.so", "cannot load /nowhere/x.so"}};

    for (auto &c : refusals) {
        Outcome r = Perf(std::string("ring --ranks 3 ") + c.args);

        EXPECT_EQ(r.status, 3) << c.args;
        EXPECT_EQ(Count(r.err, c.says), 1) << r.err;
        EXPECT_NE(r.err.find("all 3 ranks: "), std::string::npos) << r.err;
        EXPECT_EQ(FilesLeft(), 0) << c.args;
    }
}

std::string OneRefuses(int rank, int n)
{
    return Torchrun(rank, n) + (rank == 1 ? " NCCL_PVRDMA_TCP_STREAMS=many" : "");
}

TEST_F(End, RanksThatWereNotRefusedCloseToo)
{
    NewPort();
    auto all = Launch(3, "ring --sizes 4K", OneRefuses);

    for (auto &o : all)
        EXPECT_EQ(o.status, 3) << o.err;
    EXPECT_NE(all[0].err.find("pvn-perf: rank 1: init of plugin"), std::string::npos) << all[0].err;
    EXPECT_NE(all[0].out.find("FAILED: rank 1: init"), std::string::npos) << all[0].out;
    EXPECT_EQ(Count(all[0].err + all[1].err + all[2].err, "rank 1: init"), 1);
    EXPECT_EQ(FilesLeft(), 0);
}

// The interruption of one rank under a launcher reaches the others.
TEST_F(End, AnInterruptedRankEndsTheOthers)
{
    std::vector<std::thread> ranks;
    std::vector<Outcome> all(2);

    NewPort();
    for (int i = 0; i < 2; i++)
        ranks.emplace_back([&, i] {
            all[static_cast<size_t>(i)] =
                Perf("p2p --bandwidth --sizes 256K --iters 20000000 --json " + (dir / "f.json"),
                     Torchrun(i, 2) + " sh -c 'echo $$ >" + (dir / "pid") + std::to_string(i) +
                         "; exec \"$@\"' -");
        });
    EXPECT_TRUE(BothRun());
    // The process is timeout(1), which passes the signal on.
    EXPECT_EQ(kill(std::stoi(Slurp(dir / "pid1")), SIGTERM), 0);
    for (auto &t : ranks)
        t.join();
    EXPECT_EQ(all[0].status, 128 + SIGTERM) << all[0].err;
    EXPECT_EQ(FilesLeft(), 0);
    json_t *j = Json();
    ASSERT_NE(j, nullptr);
    EXPECT_TRUE(json_is_true(json_object_get(j, "interrupted")));
    json_decref(j);
}

} // namespace
