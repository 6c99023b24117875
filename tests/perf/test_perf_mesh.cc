// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-perf mesh from the command line: its output, and ranks that are slow, fail, or die.
#include <gtest/gtest.h>

#include <expat.h>
#include <jansson.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "tests/perf/perf_run.h"

namespace
{

std::string Mesh(const std::string &more)
{
    return "mesh --plugin t=" + kTestnet + " --iters 20 --warmup 2 --sizes 8,64K " + more;
}

bool Has(const std::string &text, const std::string &what)
{
    return text.find(what) != std::string::npos;
}

struct Json {
    explicit Json(const std::string &text) : j(json_loads(text.c_str(), 0, nullptr))
    {
    }
    ~Json()
    {
        json_decref(j);
    }
    Json(const Json &) = delete;
    Json &operator=(const Json &) = delete;
    json_t *Panel(const char *what) const
    {
        return json_object_get(json_array_get(json_object_get(j, "mesh"), 0), what);
    }
    json_t *Cell(const char *what, size_t from, size_t to) const
    {
        return json_array_get(json_array_get(json_object_get(Panel(what), "matrix"), from), to);
    }
    std::string Verdict(const char *what) const
    {
        std::string all;
        size_t i;
        json_t *s;

        json_array_foreach(json_object_get(Panel(what), "verdict"), i, s) all +=
            std::string(json_string_value(s)) + "\n";
        return all;
    }
    json_t *j;
};

// ---- What comes out ----

// Every pair is measured in each direction, for even and odd numbers of ranks. No rank is paired with itself.
TEST(Mesh, EveryPathOnce)
{
    for (size_t n : {2u, 3u, 4u, 5u}) {
        Dir d;
        Outcome r = Perf(Mesh("--ranks " + std::to_string(n) + " --json " + (d / "j")));
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_TRUE(Has(r.out, "all data verified")) << r.out;
        Json j(Slurp(d / "j"));
        EXPECT_EQ(json_array_size(json_object_get(j.j, "results")), 2 * n * (n - 1));
        for (const char *what : {"latency", "bandwidth"}) {
            for (size_t from = 0; from < n; from++) {
                for (size_t to = 0; to < n; to++)
                    EXPECT_EQ(json_is_real(j.Cell(what, from, to)), from != to)
                        << what << from << to;
            }
            EXPECT_FALSE(j.Verdict(what).empty());
        }
    }
}

TEST(Mesh, TheBestPartStandsBesideTheWhole)
{
    Dir d;
    Outcome r = Perf(Mesh("--ranks 2 --iters 600 --json " + (d / "j")));

    ASSERT_EQ(r.status, 0) << r.err;
    Json j(Slurp(d / "j"));
    for (const char *what : {"latency", "bandwidth"}) {
        double all = json_real_value(j.Cell(what, 0, 1)),
               best = json_real_value(
                   json_array_get(json_array_get(json_object_get(j.Panel(what), "best"), 0), 1));
        EXPECT_GT(best, 0) << what;
        // Latency is a median, whose buckets are 0.4 % wide.
        EXPECT_TRUE(*what == 'l' ? best <= all * 1.01 : best >= all * 0.999)
            << what << ": " << best << " of " << all;
    }
}

TEST(Mesh, OnlyOneOfTheTwo)
{
    Dir d;
    Outcome r = Perf(Mesh("--ranks 3 --latency --json " + (d / "j")));

    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(Has(r.out, "latency, us")) << r.out;
    EXPECT_FALSE(Has(r.out, "bandwidth")) << r.out;
    EXPECT_TRUE(json_is_null(Json(Slurp(d / "j")).Panel("bandwidth")));
}

// The matrix has the median of the repeats; the results have each repeat.
TEST(Mesh, RepeatsAndPluginsAndChannels)
{
    Dir d;
    Outcome r = Perf(
        Mesh("--ranks 3 --channels 2 --repeat 3 --plugin u=" + kTestnet + " --json " + (d / "j")));

    ASSERT_EQ(r.status, 0) << r.err;
    Json j(Slurp(d / "j"));
    ASSERT_EQ(json_array_size(json_object_get(j.j, "mesh")), 2u);
    EXPECT_EQ(json_array_size(json_object_get(j.j, "results")), 2u * 3u * 2u * 6u);
    std::multiset<double> seen;
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(j.j, "results"), i, x)
    {
        if (json_integer_value(json_object_get(x, "from")) == 2 &&
            json_integer_value(json_object_get(x, "to")) == 1 &&
            !strcmp(json_string_value(json_object_get(x, "plugin")), "t") &&
            !strcmp(json_string_value(json_object_get(x, "test")), "bandwidth"))
            seen.insert(json_real_value(json_object_get(x, "busbw_MBps")));
    }
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_DOUBLE_EQ(json_real_value(j.Cell("bandwidth", 2, 1)), *std::next(seen.begin()));
}

using Cells = std::map<std::tuple<std::string, int, int>, std::string>;

void OnStart(void *arg, const char *name, const char **attr)
{
    std::map<std::string, std::string> a;

    for (; *attr; attr += 2)
        a[attr[0]] = attr[1];
    if (strcmp(name, "rect") == 0 && a.count("data-from"))
        (*static_cast<Cells *>(
            arg))[{a["data-test"], atoi(a["data-from"].c_str()), atoi(a["data-to"].c_str())}] =
            a["data-value"];
}

Cells ParseSvg(const std::string &svg)
{
    Cells cells;
    XML_Parser p = XML_ParserCreate(nullptr);

    XML_SetUserData(p, &cells);
    XML_SetElementHandler(p, OnStart, nullptr);
    EXPECT_EQ(XML_Parse(p, svg.data(), static_cast<int>(svg.size()), 1), XML_STATUS_OK)
        << XML_ErrorString(XML_GetErrorCode(p)) << svg;
    XML_ParserFree(p);
    return cells;
}

TEST(Mesh, TheHeatMapHasTheCellsOfTheMatrix)
{
    Dir d;
    Outcome r = Perf(Mesh("--ranks 4 --json " + (d / "j") + " --plot " + (d / "s")));
    ASSERT_EQ(r.status, 0) << r.err;
    Json j(Slurp(d / "j"));
    Cells cells = ParseSvg(Slurp(d / "s"));

    EXPECT_EQ(cells.size(), 2u * 12u);
    for (const auto &[key, value] : cells) {
        const auto &[test, from, to] = key;
        double want = json_real_value(
            j.Cell(test.c_str(), static_cast<size_t>(from), static_cast<size_t>(to)));
        EXPECT_NE(from, to);
        EXPECT_NEAR(atof(value.c_str()), want, test == "latency" ? 0.0051 : 0.051) << test;
    }
}

TEST(Mesh, CsvHasALinePerPath)
{
    Outcome r = Perf(Mesh("--ranks 3 --csv -"));

    ASSERT_EQ(r.status, 0) << r.err;
    for (const char *path : {"0 to 1", "1 to 0", "0 to 2", "2 to 0", "1 to 2", "2 to 1"}) {
        EXPECT_TRUE(Has(r.out, std::string(",latency,") + path + ",3,")) << r.out;
        EXPECT_TRUE(Has(r.out, std::string(",bandwidth,") + path + ",3,")) << r.out;
    }
}

TEST(Mesh, JsonFitsItsSchema)
{
    Dir d;

    if (system("python3 -c 'import jsonschema' 2>/dev/null") != 0)
        GTEST_SKIP() << "no jsonschema for python3 (package python3-jsonschema)";
    for (const char *fault : {"none", "slow:2000", "error:30"}) {
        Perf(Mesh("--ranks 4 --timeout 4 --json " + (d / "j")),
             std::string("TESTNET_FAULT_RANK=1 TESTNET_FAULT=") + fault);
        EXPECT_EQ(system(("python3 -c 'import json, jsonschema, sys; "
                          "jsonschema.Draft202012Validator(json.load(open(sys.argv[1])))."
                          "validate(json.load(open(sys.argv[2])))' " PVN_SRCDIR
                          "/plugin/perf/pvn-perf.schema.json " +
                          (d / "j") + " 2>" + (d / "err"))
                             .c_str()),
                  0)
            << fault << Slurp(d / "err") << Slurp(d / "j");
    }
}

TEST(Mesh, BadArgumentsNameTheRemedy)
{
    for (const auto &[args, want] : std::map<std::string, std::string>{
             {"--ranks 1", "at least 2 ranks"},
             {"--sizes 8,1K,1M", "for latency and that for bandwidth"},
             {"--bidirectional", "has no effect in mesh"},
             {"--collective broadcast", "has no effect in mesh"},
             {"--duration 3", "has no effect in mesh"},
             {"--group 2", "has no effect in mesh"}}) {
        Outcome r = Perf("mesh " + args);
        EXPECT_EQ(r.status, 2) << args;
        EXPECT_TRUE(Has(r.err, want)) << args << r.err;
    }
}

// ---- Ranks that are not well ----

TEST(Mesh, NamesTheSlowRank)
{
    Dir d;
    Outcome r = Perf(Mesh("--ranks 5 --bandwidth --json " + (d / "j")),
                     "TESTNET_FAULT_RANK=3 TESTNET_FAULT=slow:4000");

    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(Has(r.err, "fault slow fired")) << r.err;
    std::string said = Json(Slurp(d / "j")).Verdict("bandwidth");
    EXPECT_EQ(said.rfind("rank 3 on ", 0), 0u) << said;
    EXPECT_TRUE(Has(said, " sends at 0.0")) << said;
    // On a busy machine the sentence may be longer.
    EXPECT_TRUE(Has(said, "of the median to everybody")) << said;
    EXPECT_TRUE(Has(said, ": its side")) << said;
    EXPECT_TRUE(Has(r.out, "bandwidth: rank 3 on ")) << r.out;
}

TEST(Mesh, WrongBytesAreFound)
{
    Outcome r = Perf(Mesh("--ranks 3"), "TESTNET_FAULT_RANK=1 TESTNET_FAULT=corrupt:7");

    EXPECT_EQ(r.status, 1) << r.err;
    EXPECT_TRUE(Has(r.err, "fault corrupt fired")) << r.err;
    EXPECT_TRUE(Has(r.err, "WRONG DATA")) << r.err;
}

// One pair fails, by an error or because nothing moves. The others are still measured.
TEST(Mesh, AFailedPairIsOneCell)
{
    for (const char *fault : {"error", "drop"}) {
        Dir d;
        Outcome r = Perf(Mesh("--ranks 4 --timeout 6 --json " + (d / "j")),
                         std::string("TESTNET_FAULT_RANK=1 TESTNET_FAULT=") + fault + ":150");
        ASSERT_EQ(r.status, 3) << fault << r.err;
        EXPECT_TRUE(Has(r.err, std::string("fault ") + fault + " fired")) << r.err;
        EXPECT_TRUE(Has(r.out, "FAILED: 1 of 6 pairs of ranks failed")) << r.out;
        Json j(Slurp(d / "j"));
        json_t *f = json_object_get(json_array_get(json_object_get(j.j, "mesh"), 0), "failures");
        ASSERT_EQ(json_array_size(f), 1u);
        json_t *ranks = json_object_get(json_array_get(f, 0), "ranks");
        auto a = static_cast<size_t>(json_integer_value(json_array_get(ranks, 0)));
        auto b = static_cast<size_t>(json_integer_value(json_array_get(ranks, 1)));
        EXPECT_TRUE(a == 1 || b == 1) << a << b;
        for (size_t from = 0; from < 4; from++) {
            for (size_t to = 0; to < 4; to++)
                EXPECT_EQ(json_is_real(j.Cell("bandwidth", from, to)),
                          from != to && !(from == a && to == b) && !(from == b && to == a))
                    << fault << from << to;
        }
        EXPECT_TRUE(Has(j.Verdict("bandwidth"), " failed")) << j.Verdict("bandwidth");
        EXPECT_TRUE(Has(r.out, "FAILED\n") || Has(r.out, "FAILED ")) << r.out;
    }
}

// After some failures of a rank its other pairs are skipped, because each may cost a timeout.
TEST(Mesh, ARankThatNobodyReaches)
{
    Dir d;
    Outcome r = Perf(Mesh("--ranks 6 --timeout 4 --json " + (d / "j")),
                     "TESTNET_FAULT_RANK=2 TESTNET_FAULT=deaf");

    ASSERT_EQ(r.status, 3) << r.err;
    EXPECT_TRUE(Has(r.err, "fault deaf fired")) << r.err;
    EXPECT_TRUE(Has(r.err, "not tried, because rank 2 had failed")) << r.err;
    EXPECT_TRUE(Has(r.out, "FAILED: 5 of 15 pairs of ranks failed")) << r.out;
    std::string said = Json(Slurp(d / "j")).Verdict("bandwidth");
    EXPECT_TRUE(Has(said, " failed with everybody: its side")) << said;
    EXPECT_EQ(said.rfind("rank 2 on ", 0), 0u) << said;
}

TEST(Mesh, ADeadRankEndsAll)
{
    Outcome r = Perf(Mesh("--ranks 4 --timeout 40"), "TESTNET_FAULT_RANK=2 TESTNET_FAULT=die:100");

    EXPECT_EQ(r.status, 3) << r.err;
    EXPECT_TRUE(Has(r.err, "fault die fired")) << r.err;
    EXPECT_TRUE(Has(r.err, "rank 2 was killed by signal 9")) << r.err;
    EXPECT_TRUE(Has(r.out, "FAILED: ")) << r.out;
}

TEST(Mesh, ARankThatStaysInACallIsNamed)
{
    Outcome r = Perf(Mesh("--ranks 3 --timeout 1"), "TESTNET_FAULT_RANK=1 TESTNET_FAULT=stuck:30");

    EXPECT_EQ(r.status, 3) << r.err;
    EXPECT_TRUE(Has(r.err, "fault stuck fired")) << r.err;
    EXPECT_TRUE(Has(r.err, "rank 1 has not returned from 'isend'")) << r.err;
}

// ---- Launchers ----

TEST(Mesh, RanksOfALauncher)
{
    NewPort();
    std::vector<Outcome> r = Launch(3, Mesh(""), Torchrun);

    for (const Outcome &o : r)
        EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_TRUE(Has(r[0].out, "all data verified")) << r[0].out;
    EXPECT_TRUE(Has(r[0].out, "bandwidth: median")) << r[0].out;
    NewPort();
    r = Launch(3, Mesh("--timeout 4"), [](int rank, int n) {
        return Torchrun(rank, n) + " TESTNET_FAULT_RANK=1 TESTNET_FAULT=error:150";
    });
    for (const Outcome &o : r)
        EXPECT_EQ(o.status, 3) << o.err;
    EXPECT_TRUE(Has(r[0].out, "FAILED: 1 of 3 pairs of ranks failed")) << r[0].out;
    NewPort();
    r = Launch(3, Mesh("--timeout 5"), [](int rank, int n) {
        return Torchrun(rank, n) + " TESTNET_FAULT_RANK=1 TESTNET_FAULT=die:100";
    });
    for (const Outcome &o : r)
        EXPECT_EQ(o.status, 3) << o.err;
    EXPECT_TRUE(Has(r[1].err, "rank 1 was killed by signal 9")) << r[1].err;
    EXPECT_TRUE(Has(r[0].out, "FAILED: rank 1 ")) << r[0].out << r[0].err;
}

// ---- A slow link for real ----

// Network namespaces on a bridge, each with its own limit on its sending rate.
class Shaped : public testing::Test
{
  protected:
    static constexpr int kHosts = 4, kSlow = 2;

    static bool Sh(const std::string &cmd)
    {
        return system(("{ " + cmd + "; } >/dev/null 2>&1").c_str()) == 0;
    }
    std::string Name(int i) const
    {
        return "pvnm" + std::to_string(getpid()) + "h" + std::to_string(i);
    }
    void SetUp() override
    {
        if (geteuid() != 0)
            GTEST_SKIP() << "network namespaces need root";
        if (!Sh("ip netns add " + bridge + " && ip netns exec " + bridge + " true"))
            GTEST_SKIP() << "this machine lets nobody use network namespaces";
        ASSERT_TRUE(Sh("ip -n " + bridge + " link add br0 type bridge && ip -n " + bridge +
                       " link set br0 up"));
        for (int i = 0; i < kHosts; i++) {
            const std::string n = Name(i), port = "p" + std::to_string(i);
            ASSERT_TRUE(Sh("ip netns add " + n + " && ip -n " + n +
                           " link set lo up && ip link add " + "pm0 netns " + n +
                           " type veth peer name " + port + " netns " + bridge + " && ip -n " +
                           bridge + " link set " + port + " master br0 up && ip -n " + n +
                           " addr add 198.18.9." + std::to_string(i + 1) + "/24 dev pm0 && ip -n " +
                           n + " link set pm0 up"));
            if (!Sh("tc -n " + n + " qdisc add dev pm0 root tbf rate " +
                    (i == kSlow ? "60mbit" : "600mbit") + " burst 128kb latency 50ms"))
                GTEST_SKIP() << "tc cannot limit a rate here (no sch_tbf)";
            ASSERT_TRUE(Sh("for i in $(seq 100); do ip -n " + n +
                           " -br link show pm0 | grep -q ' UP ' && exit 0; sleep 0.05; done; "
                           "exit 1"));
        }
    }
    void TearDown() override
    {
        for (int i = 0; i < kHosts; i++)
            Sh("ip netns del " + Name(i));
        Sh("ip netns del " + bridge);
    }
    const std::string bridge = "pvnm" + std::to_string(getpid()) + "br";
};

TEST_F(Shaped, TheSlowHostIsNamed)
{
    Dir d;
    std::string names;
    for (int i = 0; i < kHosts; i++)
        names += (i ? "," : "") + Name(i);
    Outcome r = Perf("mesh --ranks " + std::to_string(kHosts) + " --netns " + names +
                     " --bandwidth --sizes 256K --time 0.2 --json " + (d / "j"));

    ASSERT_EQ(r.status, 0) << r.err;
    Json j(Slurp(d / "j"));
    std::string said = j.Verdict("bandwidth");
    EXPECT_TRUE(Has(said, "namespace " + Name(kSlow) + " sends at 0.")) << said << r.out;
    EXPECT_TRUE(Has(said, "of the median to everybody")) << said << r.out;
    EXPECT_TRUE(Has(said, ": its side")) << said << r.out;
    EXPECT_TRUE(json_is_real(json_object_get(j.Panel("bandwidth"), "median_between_hosts")));
}

} // namespace
