// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-perf from the command line, mostly on testnet: correct data, wrong data, every kind of failure, launchers,
// and the files that it writes.
#include <gtest/gtest.h>

#include <expat.h>
#include <jansson.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/perf/perf_run.h"

namespace
{

class RingOf : public testing::TestWithParam<int>
{
};

// The sizes are around every boundary: less than a rank's chunk, odd, a slot more or less, several loops.
TEST_P(RingOf, VerifiesAtEverySize)
{
    Outcome r = Perf(Ring("--ranks " + std::to_string(GetParam()) +
                          " --slot 4K --sizes 0,4,12,100,4092,4096,16384,32772,262144,1000000"));

    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("all data verified"), std::string::npos) << r.out;
}
INSTANTIATE_TEST_SUITE_P(Ranks, RingOf, testing::Values(1, 2, 3, 4, 5));

TEST(Run, RingShapesAndVersions)
{
    for (const char *more :
         {"--channels 1 --steps 1", "--channels 3 --steps 2 --slices 3", "--channels 5 --slot 64",
          "--no-sums --channels 2", "--abi 6", "--abi 4", "--slices 2 --slot 1K"}) {
        Outcome r = Perf(Ring("--ranks 3 --sizes 20000 ") + more);

        EXPECT_EQ(r.status, 0) << more << r.err;
    }
}

// Runs each collective with both types at the same sizes, if the size is a whole number of elements.
TEST_P(RingOf, VerifiesEveryCollective)
{
    for (const char *what : {"allgather", "reduce-scatter", "broadcast", "sendrecv", "all_reduce"})
        for (const char *type : {"float32", "bfloat16"}) {
            Outcome r = Perf(Ring("--ranks " + std::to_string(GetParam()) +
                                  " --slot 4K --sizes 0,4,12,100,4096,32772,262144 --collective " +
                                  what + " --type " + type));

            EXPECT_EQ(r.status, 0) << what << type << r.err;
            EXPECT_NE(r.out.find("all data verified"), std::string::npos) << r.out;
        }
}

TEST(Run, AWrongByteShowsInEveryCollective)
{
    for (const char *what : {"allgather", "reducescatter", "broadcast", "sendrecv"}) {
        Outcome r =
            Perf(Ring("--ranks 3 --sizes 40000 --collective ") + what, "TESTNET_FAULT=corrupt:3");

        EXPECT_EQ(r.status, 1) << what << r.out << r.err;
    }
}

// A root and two layers: each is gathered (the layers twice), and each is reduced and scattered.
TEST(Run, AStepOfFsdp)
{
    Outcome r =
        Perf("ring --ranks 2 --no-sums --warmup 0 --preset llama2-7b --layers 1 --iters 1 --json - "
             "--plugin t=" +
             kTestnet);
    json_t *j = json_loads(r.out.c_str(), 0, nullptr);

    EXPECT_EQ(r.status, 0) << r.err;
    ASSERT_NE(j, nullptr) << r.out;
    std::map<std::string, int> tests;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(j, "results"), i, row)
        tests[json_string_value(json_object_get(row, "test"))]++;
    EXPECT_EQ(tests["bucket"], 5);
    EXPECT_EQ(tests["part"], 2);
    EXPECT_EQ(tests["step"], 1);
    EXPECT_STREQ(json_string_value(json_object_get(j, "type")), "bfloat16");
    json_decref(j);
}

TEST(Run, PointToPointVerifiesWithEveryOption)
{
    for (const char *more : {"", "--depth 1", "--group 8 --depth 4", "--channels 3", "--abi 6",
                             "--abi 4", "--latency", "--bandwidth", "--spin"}) {
        Outcome r = Perf("p2p --check --iters 30 --sizes 0,1,8,5000,100000 --plugin t=" + kTestnet +
                         " " + more);

        EXPECT_EQ(r.status, 0) << more << r.err;
        EXPECT_EQ(r.out.find("latency") != std::string::npos, std::string(more) != "--bandwidth");
    }
}

TEST(Run, ManyIdleCommsArePolled)
{
    Outcome r = Perf("p2p --idle 0.2 --channels 300 --json - --plugin t=" + kTestnet);
    json_t *j = json_loads(r.out.c_str(), 0, nullptr);

    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_NE(j, nullptr) << r.out;
    json_t *one = json_array_get(json_object_get(j, "results"), 0);
    EXPECT_STREQ(json_string_value(json_object_get(one, "test")), "idle");
    EXPECT_GT(json_integer_value(json_object_get(one, "iterations")), 0);
    EXPECT_GT(json_number_value(json_object_get(one, "rss_KiB_per_comm")), 0);
    json_decref(j);
}

TEST(Run, ScaleComparesPlugins)
{
    Outcome r =
        Perf("scale --ranks 3 --check --iters 2 --sizes 40000 --repeat 2 --plugin a=" + kTestnet +
             " --plugin b=" + kTestnet + " --csv -");
    std::istringstream lines(r.out);
    std::string line;
    std::set<std::string> points;

    ASSERT_EQ(r.status, 0) << r.err;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        std::istringstream f(line);
        std::vector<std::string> col;
        std::string c;

        while (std::getline(f, c, ','))
            col.push_back(c);
        ASSERT_EQ(col.size(), 29u) << line;
        EXPECT_EQ(col[12] + col[13], "") << "latencies were not measured: " << line;
        EXPECT_EQ(col[15] == "", col[5] == "1") << "one rank has no bus: " << line;
        EXPECT_EQ(col[16] + col[18], "") << line;
        EXPECT_EQ(col[19], "0");
        EXPECT_EQ(col[21] + col[22], "") << "testnet has no statistics to say it";
        EXPECT_TRUE(col.back() == "pinned" || col.back() == "movable") << line;
        points.insert(col[0] + col[2] + col[5]);
    }
    EXPECT_EQ(points.size(), 2u * 2 * 3) << "plugins, repeats, ranks";
    EXPECT_NE(r.err.find("ratio to a"), std::string::npos) << r.err;
}

struct Fault {
    const char *fault;
    const char *args;
    int status;
    const char *says;
    int or_status = -1; // a second correct outcome, or -1
};

class Faults : public testing::TestWithParam<Fault>
{
};

// Each fault fires in rank 1 only, and the plugin reports that it fired.
TEST_P(Faults, AFaultOfThePluginIsFound)
{
    const Fault &f = GetParam();
    Outcome r = PerfWithFault(std::string(f.args) + " --plugin t=" + kTestnet, f.fault, f.says);

    EXPECT_TRUE(r.status == f.status || r.status == f.or_status) << r.status << ": " << r.err;
    EXPECT_NE(r.err.find(f.says), std::string::npos) << r.err;
    if (strchr(f.fault, ':')) {
        EXPECT_NE(r.err.find("fired"), std::string::npos) << "the fault did not happen: " << r.err;
    }
}

#define RING3 "ring --ranks 3 --sizes 300000 --slot 16K --iters 2 --check"
#define P2P   "p2p --sizes 5000 --iters 20 --check"
const Fault kFaults[] = {
    {"corrupt:30", RING3, 1, "WRONG DATA: element"},
    {"corrupt:30", RING3 " --no-sums", 1, "WRONG DATA: byte"},
    {"short", RING3, 1, "test() reports"},
    // The message that arrives instead of the lost one is found to be wrong if it is checked before the
    // timeout.
    {"drop:30", RING3, 1, "nothing moved for 2 s", 3},
    {"swap:30", RING3, 3, "waits for a message from the previous rank"},
    {"stuck:30", RING3, 3, "rank 1 does not return from 'isend'"},
    {"die:30", RING3, 3, "rank 1 was killed by signal 9"},
    {"error:30", RING3, 3, "rank 1: isend of plugin t failed with ncclSystemError"},
    {"init", RING3, 3, "rank 1: init of plugin t failed"},
    {"nosize", RING3, 0, "does not report in test() how much"},
    {"overrun", P2P, 1, "outside the message were written"},
    {"short", P2P, 1, "test() reports"},
    {"nosize", P2P, 0, "does not report"},
    {"die:10", P2P, 3, "rank 1 was killed by signal 9"},
};
INSTANTIATE_TEST_SUITE_P(Each, Faults, testing::ValuesIn(kFaults));

TEST(Run, P2pCorruptionInTheSender)
{
    Outcome r = Perf(P2P " --plugin t=" + kTestnet, "TESTNET_FAULT_RANK=0 TESTNET_FAULT=corrupt:6");

    EXPECT_EQ(r.status, 1) << r.err;
    EXPECT_NE(r.err.find("bytes differ"), std::string::npos) << r.err;
}

TEST(Run, OfSeveralPluginsTheOneThatFailedIsNamed)
{
    Outcome r = Perf(P2P " --timeout 1.5 --plugin t=" + kTestnet + " --plugin u=" + kTestnet +
                         " --env u:TESTNET_FAULT=drop:10",
                     "TESTNET_FAULT_RANK=1");

    EXPECT_NE(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("plugin u: nothing moved for 2 s"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("fired"), std::string::npos) << "the fault did not happen: " << r.err;
}

// Two ranks wait for 3 s each and use less than half of that processor time: a rank that waits leaves the processor to
// those it waits for.
TEST(Run, RanksThatWaitLongLeaveTheProcessor)
{
    auto used = [] {
        rusage u{};
        getrusage(RUSAGE_CHILDREN, &u);
        return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               double(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
    };
    const double before = used();
    Outcome r = Perf(P2P " --timeout 3 --plugin t=" + kTestnet + " --env t:TESTNET_FAULT=drop:10",
                     "TESTNET_FAULT_RANK=1");

    EXPECT_NE(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("nothing moved for 3 s"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("fired"), std::string::npos) << "the fault did not happen: " << r.err;
    EXPECT_LT(used() - before, 3) << "seconds of processor time";
}

// A rank that hangs in a call from the start: every rank waits for it, so the parent must find it.
TEST(Run, AllRanksStuckInACallAreEnded)
{
    Outcome r = Perf("ring --ranks 2 --sizes 1000 --timeout 1 --plugin t=" + kTestnet,
                     "TESTNET_FAULT=stuck:1");

    EXPECT_EQ(r.status, 3) << r.err;
    EXPECT_NE(r.err.find("has not returned from 'isend'"), std::string::npos) << r.err;
}

TEST(Run, PluginsThatCannotBeLoaded)
{
    Outcome r = Perf("ring --plugin /nowhere/x.so");

    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("/nowhere/x.so"), std::string::npos) << r.err;
    r = Perf("ring --plugin nosuch", "LD_LIBRARY_PATH=/nowhere/lib");
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("libnccl-net-nosuch.so"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("looked in LD_LIBRARY_PATH=/nowhere/lib"), std::string::npos) << r.err;
    r = Perf("ring --abi 9 --plugin " + kTestnet);
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("it has v4 v6 v12"), std::string::npos) << r.err;
    r = Perf("ring --dev eth9 --plugin " + kTestnet);
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("0=testnet0"), std::string::npos) << r.err;
    r = Perf("ring --steps 9 --abi 6 --plugin " + kTestnet);
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("allows 8 requests"), std::string::npos) << r.err;
    r = Perf("ring --ranks 2 --netns no-such-namespace --plugin " + kTestnet);
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("ip netns add no-such-namespace"), std::string::npos) << r.err;
}

// An installation may be copied elsewhere, into a container image or by tar.
TEST(Run, ACopiedInstallationFindsItsPlugin)
{
    Dir d;
    std::string perf = d / "opt/bin/pvn-perf",
                cmd = "mkdir -p " + (d / "opt/bin") + " " + (d / "opt/lib");
    auto run = [&](const std::string &env) {
        int st = system((env + " " + perf + " p2p --latency --sizes 8 --iters 20 >" + (d / "out") +
                         " 2>" + (d / "err") + " </dev/null")
                            .c_str());
        return WEXITSTATUS(st);
    };

    ASSERT_EQ(system((cmd + " && cp " + kPerf + " " + (d / "opt/bin")).c_str()), 0);
    if (access("/usr/local/lib/libnccl-net-pvrdma.so", F_OK) != 0) {
        EXPECT_EQ(run("env -u RANK LD_LIBRARY_PATH=/nowhere/at/all"), 3);
        for (std::string dir : {d / "opt/bin/.libs", d / "opt/lib", std::string("/usr/local/lib"),
                                std::string("LD_LIBRARY_PATH=/nowhere/at/all")})
            EXPECT_NE(Slurp(d / "err").find(dir), std::string::npos) << dir << Slurp(d / "err");
    }
    ASSERT_EQ(
        system(("cp " PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so " + (d / "opt/lib")).c_str()), 0);
    EXPECT_EQ(run("env -u RANK"), 0) << Slurp(d / "err");
    EXPECT_NE(Slurp(d / "out").find(d / "opt/lib/libnccl-net-pvrdma.so"), std::string::npos)
        << Slurp(d / "out");
}

TEST(Run, ParamsAreListedAndChecked)
{
    Outcome r = Perf("--params", "NCCL_PVRDMA_TCP_STREAMS=3");

    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("NCCL_PVRDMA_TCP_STREAMS"), std::string::npos) << r.out;
    r = Perf("--params", "NCCL_PVRDMA_TCP_STREAMS=many");
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("many"), std::string::npos) << r.err;
}

TEST(Run, AKeyIsMadeOnceAndForItsOwner)
{
    Dir d;
    struct stat st;
    Outcome r = Perf("--make-key " + (d / "key"));

    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, "");
    ASSERT_EQ(stat((d / "key").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
    EXPECT_EQ(st.st_size, 65);
    r = Perf("--make-key " + (d / "key"));
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("is not overwritten"), std::string::npos) << r.err;
}

// ---- This build's own plugin, found without being named ----

TEST(OwnPlugin, VerifiesOnTheDefaultInterface)
{
    Outcome r = Perf("ring --ranks 4 --sizes 4,100000,5000000 --iters 2 --check");

    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find(PVN_BUILDDIR), std::string::npos) << r.out;
    r = Perf("p2p --sizes 0,8,70000 --iters 20 --check --group 4 --channels 2");
    EXPECT_EQ(r.status, 0) << r.err;
}

// Two namespaces joined by a veth pair, removed at the end.
class Namespaces : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (geteuid() != 0)
            GTEST_SKIP() << "network namespaces need root";
        if (!Sh("ip netns add " + a) || !Sh("ip netns add " + b))
            GTEST_SKIP() << "this machine lets nobody make network namespaces";
        if (!Sh("ip netns exec " + a + " true"))
            GTEST_SKIP() << "no commands in network namespaces here (in a chroot whose / is no "
                            "mount point, for example)";
        ASSERT_TRUE(Sh("ip link add pt0 netns " + a + " type veth peer name pt0 netns " + b));
        ASSERT_TRUE(Sh("ip -n " + a + " addr add 198.18.7.1/30 dev pt0"));
        ASSERT_TRUE(Sh("ip -n " + b + " addr add 198.18.7.2/30 dev pt0"));
        ASSERT_TRUE(Sh("ip -n " + a + " link set pt0 up"));
        ASSERT_TRUE(Sh("ip -n " + b + " link set pt0 up"));
        // The kernel reports a new link with some delay; until then it counts as unplugged.
        for (const std::string &n : {a, b})
            ASSERT_TRUE(
                Sh("for i in $(seq 100); do ip -n " + n +
                   " -br link show pt0 | grep -q ' UP ' && exit 0; sleep 0.05; done; exit 1"));
    }
    void TearDown() override
    {
        Sh("ip netns del " + a);
        Sh("ip netns del " + b);
    }
    static bool Sh(const std::string &cmd)
    {
        return system((cmd + " 2>/dev/null").c_str()) == 0;
    }
    const std::string a = "pvnta" + std::to_string(getpid()),
                      b = "pvntb" + std::to_string(getpid());
};

TEST_F(Namespaces, RanksTalkAcrossThem)
{
    Outcome r = Perf("ring --ranks 4 --netns " + a + "," + b +
                     " --sizes 1000000 --iters 2 --check --json -");
    json_t *j = json_loads(r.out.c_str(), 0, nullptr);

    ASSERT_EQ(r.status, 0) << r.err;
    json_t *devices = json_object_get(j, "devices");
    ASSERT_EQ(json_array_size(devices), 4u);
    for (size_t i = 0; i < 4; i++) {
        json_t *d = json_array_get(devices, i);
        EXPECT_STREQ(json_string_value(json_object_get(d, "name")), "pt0");
        EXPECT_EQ(json_string_value(json_object_get(d, "netns")), i % 2 ? b : a);
    }
    json_decref(j);
}

// ---- Files ----

json_t *Member(json_t *j, std::initializer_list<const char *> path)
{
    for (const char *p : path)
        j = *p >= '0' && *p <= '9' ? json_array_get(j, static_cast<size_t>(atoi(p)))
                                   : json_object_get(j, p);
    return j;
}

std::string Text(json_t *j, std::initializer_list<const char *> path)
{
    const char *s = json_string_value(Member(j, path));
    return s ? s : "(none)";
}

TEST(Output, JsonSaysUnderWhichCircumstances)
{
    Outcome r = Perf("p2p --sizes 8,4K --iters 20 --json - --plugin own=pvrdma "
                     "--plugin t=" +
                     kTestnet + " --env own:NCCL_PVRDMA_TCP_STREAMS=3");
    json_t *j = json_loads(r.out.c_str(), 0, nullptr);
    std::string own = PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so";
    Dir d;

    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_NE(j, nullptr) << r.out;
    EXPECT_EQ(json_integer_value(Member(j, {"format"})), 1);
    EXPECT_EQ(Text(j, {"schema"}), "pvn-perf.schema.json");
    EXPECT_EQ(Text(j, {"command", "0"}), kPerf);
    EXPECT_EQ(Text(j, {"command", "1"}), "p2p") << "in the order in which they were given";
    EXPECT_EQ(Text(j, {"started"}).size(), strlen("2026-01-31T12:00:00Z"));
    EXPECT_GT(json_real_value(Member(j, {"seconds"})), 0);
    EXPECT_EQ(Text(j, {"kernel"}).find("Linux "), 0u);
    EXPECT_GT(json_integer_value(Member(j, {"cpus"})), 0);
    EXPECT_NE(Member(j, {"cpu"}), nullptr);
    EXPECT_TRUE(json_is_false(Member(j, {"interrupted"})));
    EXPECT_TRUE(json_is_null(Member(j, {"error"})));
    EXPECT_EQ(Text(j, {"plugins", "0", "path"}), own);
    ASSERT_EQ(system(("sha256sum " + own + " >" + (d / "sum")).c_str()), 0);
    EXPECT_EQ(Text(j, {"plugins", "0", "sha256"}), Slurp(d / "sum").substr(0, 64));
    EXPECT_EQ(Text(j, {"plugins", "0", "parameters", "NCCL_PVRDMA_TCP_STREAMS"}), "3");
    EXPECT_TRUE(json_is_null(Member(j, {"plugins", "1", "parameters"}))) << "not ours";
    // Every row says by which lanes it went.
    EXPECT_EQ(Text(j, {"results", "0", "via"}), "tcp");
    EXPECT_EQ(Text(j, {"results", "0", "lanes"}).find("tcp on "), 0u);
    EXPECT_NE(Text(j, {"results", "0", "lanes"}).find("3 streams"), std::string::npos);
    EXPECT_TRUE(json_is_null(Member(j, {"results", "4", "via"}))) << "testnet does not say it";
    EXPECT_EQ(Text(j, {"summary", "0", "via"}), "tcp");
    json_decref(j);
    // The table and the CSV name them as well.
    r = Perf("ring --sizes 4K --iters 2 --csv -");
    EXPECT_NE(r.err.find(" via "), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("4 KiB     2 tcp "), std::string::npos) << r.err;
    EXPECT_NE(r.out.find(",tcp,\"tcp on "), std::string::npos) << r.out;
}

// A real validator checks the output if one is installed.
TEST(Output, JsonFitsItsSchema)
{
    Dir d;

    if (system("python3 -c 'import jsonschema' 2>/dev/null") != 0)
        GTEST_SKIP() << "no jsonschema for python3 (package python3-jsonschema)";
    for (const std::string &args :
         {std::string("p2p --sizes 8,4K --iters 20 --check --repeat 2"),
          "p2p --sizes 8 --iters 20 --baseline " + (d / "f.json"),
          std::string("ring --sizes 4K --iters 1 --ranks 1"), std::string("p2p --idle 0.1"),
          std::string("p2p --bidirectional --sizes 8 --iters 20"),
          std::string("p2p --duration 0.2 --check"),
          std::string("ring --ranks 2 --preset resnet50 --iters 1"),
          std::string("ring --ranks 2 --collective alltoallv --sizes 1,5000 --iters 1"),
          std::string("ring --ranks 2 --preset mixtral-8x7b --tokens 10 --layers 1 --iters 1"),
          std::string("p2p --dev nosuch0")}) {
        Perf(args + " --json " + (d / "f.json"));
        std::string cmd =
            "python3 -c 'import json, jsonschema, sys; "
            "s = json.load(open(sys.argv[1])); "
            "jsonschema.Draft202012Validator.check_schema(s); "
            "jsonschema.Draft202012Validator(s).validate(json.load(open(sys.argv[2])))' " PVN_SRCDIR
            "/plugin/perf/pvn-perf.schema.json " +
            (d / "f.json") + " 2>" + (d / "err");
        EXPECT_EQ(system(cmd.c_str()), 0) << args << Slurp(d / "err") << Slurp(d / "f.json");
    }
}

TEST(Output, SizesHaveOneKindOfUnit)
{
    Outcome r = Perf(Ring("--ranks 2 --sizes 1000,1024,10000,1500000,2M"));

    for (const char *size : {" 1000 B ", " 1 KiB ", " 9.77 KiB ", " 1.43 MiB ", " 2 MiB "})
        EXPECT_NE(r.out.find(size), std::string::npos) << size << r.out;
    r = Perf(Ring("--ranks 1 --sizes 4K"));
    EXPECT_NE(r.out.find("4 KiB     1 -  "), std::string::npos) << "no lanes: " << r.out;
}

TEST(Output, JsonHasTheResults)
{
    Outcome r = Perf(Ring("--ranks 2 --sizes 4000,8000 --repeat 2 --json -"));
    json_error_t e;
    json_t *j = json_loads(r.out.c_str(), 0, &e);

    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_NE(j, nullptr) << e.text << r.out;
    EXPECT_TRUE(json_is_true(json_object_get(j, "ok")));
    EXPECT_EQ(json_array_size(json_object_get(j, "results")), 4u);
    EXPECT_EQ(json_array_size(json_object_get(j, "summary")), 2u);
    EXPECT_EQ(json_array_size(json_object_get(j, "devices")), 4u);
    EXPECT_EQ(json_array_size(json_object_get(j, "doorbells")), 0u) << "testnet counts none";
    json_t *one = json_array_get(json_object_get(j, "results"), 0);
    double t = json_number_value(json_object_get(one, "time_us"));
    double alg = json_number_value(json_object_get(one, "algbw_MBps"));
    EXPECT_EQ(json_integer_value(json_object_get(one, "bytes")), 4000);
    EXPECT_EQ(json_integer_value(json_object_get(one, "errors")), 0);
    EXPECT_NEAR(alg, 4000 / t, alg * 0.01) << "bytes per microsecond are MB/s";
    EXPECT_NEAR(json_number_value(json_object_get(one, "busbw_MBps")), alg, alg * 0.01)
        << "2 (n - 1) / n is 1 for two ranks";
    json_decref(j);
}

TEST(Output, JsonSaysWhenDataWasWrong)
{
    Outcome r = Perf(Ring("--ranks 2 --sizes 40000 --json -"), "TESTNET_FAULT=corrupt:3");
    json_t *j = json_loads(r.out.c_str(), 0, nullptr);

    EXPECT_EQ(r.status, 1);
    ASSERT_NE(j, nullptr);
    EXPECT_TRUE(json_is_false(json_object_get(j, "ok")));
    EXPECT_EQ(json_integer_value(json_object_get(j, "status")), 1);
    json_decref(j);
}

TEST(Output, PresetIsBucketedAndAddsUp)
{
    Outcome r =
        Perf("ring --ranks 2 --preset resnet50 --iters 1 --check --csv - --plugin t=" + kTestnet);
    std::istringstream lines(r.out);
    std::string line;
    uint64_t buckets = 0, step = 0;

    ASSERT_EQ(r.status, 0) << r.err;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        std::vector<std::string> col;
        std::istringstream f(line);
        std::string c;

        while (std::getline(f, c, ','))
            col.push_back(c);
        ASSERT_EQ(col.size(), 29u) << line;
        (col[3] == "bucket" ? buckets : step) += std::stoull(col[9]);
    }
    EXPECT_EQ(buckets, 25557032u * 4);
    EXPECT_EQ(step, buckets);
}

struct Svg {
    int lines = 0, points = 0, spreads = 0;
    std::string text;
};

void OnStart(void *arg, const XML_Char *name, const XML_Char **attr)
{
    auto *s = static_cast<Svg *>(arg);
    bool distribution = false;

    for (; attr[0]; attr += 2) {
        s->spreads += std::string(attr[0]) == "class" && std::string(attr[1]) == "spread";
        distribution |= std::string(attr[0]) == "class" && std::string(attr[1]) == "dist";
    }
    s->lines += std::string(name) == "polyline" && !distribution;
    s->points += std::string(name) == "circle";
}

void OnText(void *arg, const XML_Char *t, int n)
{
    static_cast<Svg *>(arg)->text.append(t, static_cast<size_t>(n));
}

Svg ParseSvg(const std::string &s)
{
    Svg svg;
    XML_Parser p = XML_ParserCreate(nullptr);

    XML_SetUserData(p, &svg);
    XML_SetElementHandler(p, OnStart, nullptr);
    XML_SetCharacterDataHandler(p, OnText);
    EXPECT_EQ(XML_Parse(p, s.data(), static_cast<int>(s.size()), 1), XML_STATUS_OK)
        << XML_ErrorString(XML_GetErrorCode(p)) << s;
    XML_ParserFree(p);
    return svg;
}

TEST(Output, SvgIsWellFormedAndComplete)
{
    Outcome r = Perf("p2p --iters 20 --sizes 8,64,4096 --plot - --plugin one=" + kTestnet +
                     " --plugin two=" + kTestnet);
    Svg svg = ParseSvg(r.out);

    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(svg.lines, 4) << "latency and bandwidth of two plugins";
    EXPECT_EQ(svg.points, 12);
    EXPECT_NE(svg.text.find("two"), std::string::npos);
    r = Perf("scale --ranks 3 --iters 1 --sizes 4000 --plot - --plugin t=" + kTestnet);
    svg = ParseSvg(r.out);
    EXPECT_EQ(svg.points, 2) << "one rank alone uses no network";
    EXPECT_NE(svg.text.find("ranks"), std::string::npos);
}

TEST(Output, SvgSaysWhatWasMeasuredWhereAndWhen)
{
    char host[256] = "";
    Outcome r = Perf("p2p --iters 20 --sizes 8,64 --repeat 3 --plot - --plugin t=" + kTestnet);
    Svg svg = ParseSvg(r.out);

    gethostname(host, sizeof(host) - 1);
    ASSERT_EQ(r.status, 0) << r.err;
    for (std::string s :
         {std::string("pvn-perf: p2p between two ranks; medians"), std::string(host),
          std::string("Z, Linux "), std::string("bandwidth of the messages, MB/s"),
          std::string("half a round trip"), std::string("in 3 repeats")})
        EXPECT_NE(svg.text.find(s), std::string::npos) << s << svg.text;
    EXPECT_EQ(svg.spreads, 4) << "two sizes, latency and bandwidth";
    r = Perf("ring --ranks 2 --preset resnet50 --iters 1 --plot - --plugin t=" + kTestnet);
    svg = ParseSvg(r.out);
    EXPECT_NE(svg.text.find("ring all-reduce, resnet50"), std::string::npos) << svg.text;
    EXPECT_NE(svg.text.find("bus bandwidth, MB/s"), std::string::npos) << svg.text;
    EXPECT_EQ(svg.lines, 0) << "buckets are points";
    EXPECT_GT(svg.points, 3);
    EXPECT_EQ(svg.spreads, 0);
    r = Perf("ring --ranks 1 --sizes 4K --plot - --plugin t=" + kTestnet);
    EXPECT_NE(r.out.find("algorithm bandwidth of one rank"), std::string::npos) << r.out;
}

TEST(Output, FilesThatCannotBeWritten)
{
    Outcome r = Perf(Ring("--ranks 1 --sizes 4 --json /nowhere/f.json"));

    EXPECT_EQ(r.status, 3);
    EXPECT_EQ(r.err, "pvn-perf: cannot write /nowhere/f.json: No such file or directory\n");
    EXPECT_EQ(r.out, "") << "nothing was measured";
    for (const char *o : {"--json", "--csv", "--plot"}) {
        r = Perf(Ring("--ranks 1 --sizes 4 ") + o + " /dev/full");
        EXPECT_EQ(r.status, 3) << o;
        EXPECT_NE(r.err.find("cannot write /dev/full: No space left on device"), std::string::npos)
            << r.err;
    }
}

TEST(Output, StandardOutputThatIsFull)
{
    for (const std::string &args :
         {Ring("--ranks 1 --sizes 4"), Ring("--ranks 1 --sizes 4 --json -"),
          std::string("--params"), std::string("--help")}) {
        Outcome r = Perf(args, "", "/dev/full");

        EXPECT_EQ(r.status, 3) << args;
        EXPECT_NE(r.err.find("standard output cannot be written"), std::string::npos) << r.err;
    }
}

// pvn-perf refuses sizes that exceed the free memory, which would harm the machine's other processes.
TEST(Run, MoreMemoryThanThereIs)
{
    for (const char *args : {"p2p --sizes 1000G --depth 32", "ring --sizes 1000G"}) {
        Outcome r = Perf(args + (" --plugin t=" + kTestnet));

        EXPECT_EQ(r.status, 3);
        EXPECT_NE(r.err.find("do not fit into what is free"), std::string::npos) << r.err;
    }
}

// ---- Launchers ----

std::string Mpirun(int rank, int n)
{
    return "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) +
           " OMPI_COMM_WORLD_SIZE=" + std::to_string(n) +
           " OMPI_COMM_WORLD_LOCAL_SIZE=" + std::to_string(n) + " PMIX_NAMESPACE=prte-" +
           std::to_string(getpid());
}

std::string Srun(int rank, int n)
{
    return "SLURM_PROCID=" + std::to_string(rank) + " SLURM_STEP_NUM_TASKS=" + std::to_string(n) +
           " SLURM_STEP_NODELIST=127.0.0.1 SLURM_JOB_ID=" + std::to_string(getpid());
}

TEST(Launchers, RanksMeetUnderTorchrunMpirunAndSrun)
{
    std::string (*const all[])(int, int) = {Torchrun, Mpirun, Srun};

    for (auto env : all) {
        NewPort();
        auto out = Launch(3, Ring("--sizes 40000,400"), env);

        for (size_t i = 0; i < out.size(); i++)
            EXPECT_EQ(out[i].status, 0) << i << out[i].err;
        EXPECT_NE(out[0].out.find("all data verified"), std::string::npos);
        EXPECT_EQ(out[1].out, "") << "only rank 0 prints";
    }
}

// Open MPI's launcher with two nodes, both of which are this machine. PMIx has rank 0's host.
TEST(Launchers, RealMpirunOnTwoNodes)
{
    Dir d;
    std::string mpirun = "mpirun --allow-run-as-root --mca plm_rsh_agent " + (d / "agent") +
                         " -H $(hostname):1,pvn-test-node:1 -n 2 -N 1 ";
    auto run = [&](const std::string &cmd) {
        return system(("env -u RANK -u WORLD_SIZE -u MASTER_ADDR ASAN_OPTIONS=detect_leaks=0 "
                       "timeout -k 5 60 " +
                       cmd + " >" + (d / "out") + " 2>" + (d / "err") + " </dev/null")
                          .c_str());
    };

    std::ofstream(d / "agent") << "#!/bin/sh\nshift\nexec sh -c \"$*\"\n";
    ASSERT_EQ(system(("chmod +x " + (d / "agent")).c_str()), 0);
    if (system("command -v mpirun >/dev/null") != 0)
        GTEST_SKIP() << "no mpirun (package openmpi-bin)";
    if (run(mpirun + "true") != 0)
        GTEST_SKIP() << "mpirun does not work here: " << Slurp(d / "err");
    EXPECT_EQ(run(mpirun + kPerf + " " + Ring("--sizes 40000,400")), 0) << Slurp(d / "err");
    EXPECT_NE(Slurp(d / "out").find("all data verified"), std::string::npos) << Slurp(d / "out");
}

TEST(Launchers, ScaleLeavesRanksOut)
{
    NewPort();
    auto out = Launch(3, "scale --sizes 4000 --iters 2 --check --plugin t=" + kTestnet, Torchrun);

    for (auto &o : out)
        EXPECT_EQ(o.status, 0) << o.err;
}

std::string TorchrunDying(int rank, int n)
{
    return Torchrun(rank, n) + " TESTNET_FAULT_RANK=1 TESTNET_FAULT=die:10";
}

std::string TorchrunCorrupt(int rank, int n)
{
    return Torchrun(rank, n) + " TESTNET_FAULT_RANK=1 TESTNET_FAULT=corrupt:5";
}

TEST(Launchers, FailuresReachEveryRank)
{
    NewPort();
    auto out = Launch(3, Ring("--sizes 400000 --slot 16K --timeout 5"), TorchrunDying);

    for (auto &o : out)
        EXPECT_EQ(o.status, 3) << o.err;
    EXPECT_NE(out[1].err.find("killed by signal 9"), std::string::npos) << out[1].err;
    NewPort();
    out = Launch(3, Ring("--sizes 400000 --slot 16K"), TorchrunCorrupt);
    for (auto &o : out)
        EXPECT_EQ(o.status, 1) << o.err;
}

TEST(Launchers, ErrorsAreClear)
{
    Outcome r = Perf(Ring("--sizes 4"), "RANK=0 WORLD_SIZE=2");

    EXPECT_EQ(r.status, 2);
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    EXPECT_NE(r.err.find("add --master " + std::string(host) + ", or set MASTER_ADDR=" + host),
              std::string::npos)
        << r.err;
    EXPECT_EQ(Perf(Ring("--sizes 4"), "RANK=1 WORLD_SIZE=2").err, "") << "rank 0 says it";
    r = Perf("p2p", "RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1");
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("torchrun started 3"), std::string::npos) << r.err;
    NewPort();
    r = Perf(Ring("--sizes 4 --boot-timeout 0.5"), Torchrun(0, 2));
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("1 of 2 ranks had not reached rank 0"), std::string::npos) << r.err;
    r = Perf(Ring("--sizes 4"), "RANK=zero WORLD_SIZE=2");
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("RANK=zero"), std::string::npos) << r.err;
    // --ranks starts local ranks even if the environment of a pod describes a job.
    EXPECT_EQ(Perf(Ring("--ranks 2 --sizes 4"), "RANK=0 WORLD_SIZE=64").status, 0);
}

} // namespace
