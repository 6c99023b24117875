// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-perf p2p from the command line: the distribution of latencies, both directions at once, and runs of a
// given duration (of a ring, too).
#include <gtest/gtest.h>

#include <jansson.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tests/perf/perf_run.h"

namespace
{

struct Free {
    void operator()(json_t *j) const
    {
        json_decref(j);
    }
};
using Json = std::unique_ptr<json_t, Free>;

Json Parse(const std::string &text)
{
    json_error_t error;
    Json j(json_loads(text.c_str(), 0, &error));
    EXPECT_NE(nullptr, j) << error.text << "\n" << text;
    return j;
}

double Number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    EXPECT_TRUE(json_is_number(v)) << key;
    return json_number_value(v);
}

std::string P2p(const std::string &more)
{
    return "p2p --plugin t=" + kTestnet + " " + more;
}

// The lines of a CSV as maps from names to values. No field of testnet has a comma.
std::vector<std::map<std::string, std::string>> Csv(const std::string &text)
{
    std::istringstream lines(text);
    std::vector<std::map<std::string, std::string>> rows;
    std::vector<std::string> names;

    for (std::string line; std::getline(lines, line);) {
        std::map<std::string, std::string> row;
        std::istringstream fields(line + ",end");
        size_t n = 0;

        for (std::string f; std::getline(fields, f, ','); n++) {
            if (rows.empty() && row.empty() && names.size() == n && line.rfind("plugin,", 0) == 0)
                names.push_back(f);
            else if (n < names.size())
                row[names[n]] = f;
        }
        EXPECT_EQ(n, names.size()) << line;
        if (!row.empty())
            rows.push_back(row);
    }
    return rows;
}

TEST(Distribution, IsInJsonAsAWhole)
{
    Outcome r = Perf(P2p("--latency --sizes 8,4K --iters 500 --json -"));
    Json j = Parse(r.out);
    json_t *row, *bin;
    size_t i, k;

    ASSERT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("    p99.9 ")) << r.err;
    json_array_foreach(json_object_get(j.get(), "results"), i, row)
    {
        double last = 0, sum = 0, below = 0;

        EXPECT_LE(Number(row, "min_us"), Number(row, "p50_us"));
        EXPECT_LE(Number(row, "p50_us"), Number(row, "p90_us"));
        EXPECT_LE(Number(row, "p90_us"), Number(row, "p99_us"));
        EXPECT_LE(Number(row, "p99_us"), Number(row, "p999_us"));
        EXPECT_LE(Number(row, "p999_us"), Number(row, "max_us"));
        EXPECT_EQ(Number(row, "p50_us"), Number(row, "time_us"));
        json_array_foreach(json_object_get(row, "histogram"), k, bin)
        {
            double from = Number(bin, "from_us"), to = Number(bin, "to_us");

            EXPECT_GE(from, last);
            EXPECT_GT(to, from);
            EXPECT_LE(to - from, from / 16 + 0.008 + 1e-6);
            EXPECT_GT(Number(bin, "count"), 0);
            last = to;
            sum += Number(bin, "count");
            below += to <= Number(row, "p90_us") ? Number(bin, "count") : 0;
        }
        EXPECT_EQ(500, sum) << "every round trip is in one bin";
        EXPECT_LE(below, 450) << "bins below p90 hold no more than 90 %";
        EXPECT_GE(last, Number(row, "max_us") * 0.999);
    }
    EXPECT_EQ(2u, i);
}

TEST(Distribution, IsInCsvAndTheChart)
{
    Dir d;
    Outcome r = Perf(P2p("--sizes 8 --iters 200 --repeat 2 --csv - --plot ") + (d / "p.svg"));
    std::string svg = Slurp(d / "p.svg");
    int sum = 0, latency = 0, bandwidth = 0;

    ASSERT_EQ(0, r.status) << r.err;
    for (auto &row : Csv(r.out)) {
        if (row["test"] == "histogram") {
            sum += std::stoi(row["iterations"]);
            EXPECT_LT(std::stod(row["min_us"]), std::stod(row["max_us"]));
            EXPECT_EQ("", row["p99_us"] + row["algbw_MBps"] + row["busbw_Gbps"] + row["memory"]);
        } else if (row["test"] == "latency") {
            latency++;
            EXPECT_LE(std::stod(row["p90_us"]), std::stod(row["p999_us"]));
            EXPECT_LE(std::stod(row["p999_us"]), std::stod(row["max_us"]));
            EXPECT_EQ("", row["busbw_Gbps"]);
            EXPECT_NE("", row["memory"]);
        } else if (row["test"] == "bandwidth") {
            bandwidth++;
            EXPECT_EQ("", row["p999_us"]);
            EXPECT_NEAR(std::stod(row["busbw_MBps"]) * 8 / 1000, std::stod(row["busbw_Gbps"]),
                        1e-3);
            EXPECT_NEAR(std::stod(row["algbw_MBps"]) * 8 / 1000, std::stod(row["algbw_Gbps"]),
                        1e-3);
        }
    }
    EXPECT_EQ(400, sum);
    EXPECT_EQ(2, latency);
    EXPECT_EQ(2, bandwidth);
    EXPECT_NE(std::string::npos, svg.find("class=\"dist\"")) << svg;
    EXPECT_NE(std::string::npos, svg.find(">99 %<")) << svg;
    // More sizes than the legend has room for.
    r = Perf(P2p("--latency --iters 20 --sizes 8-128K --plot -"));
    EXPECT_NE(std::string::npos, r.out.find("(8 of 15 lines)")) << r.out;
    // Without latencies there is no plot.
    r = Perf(P2p("--bandwidth --iters 20 --sizes 8 --plot -"));
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ(std::string::npos, r.out.find("share of the round trips"));
}

TEST(Bandwidth, IsInGbitToo)
{
    Outcome r = Perf(P2p("--bandwidth --sizes 64K --iters 50 --json -"));
    Json j = Parse(r.out);
    json_t *row = json_array_get(json_object_get(j.get(), "results"), 0);

    ASSERT_EQ(0, r.status) << r.err;
    EXPECT_NEAR(Number(row, "busbw_MBps") * 8e-3, Number(row, "busbw_Gbps"), 1e-4);
    EXPECT_NEAR(Number(row, "algbw_MBps") * 8e-3, Number(row, "algbw_Gbps"), 1e-4);
    EXPECT_NE(std::string::npos, r.err.find(" Gbit/s ")) << r.err;
    EXPECT_EQ(nullptr, json_object_get(row, "histogram"));
    r = Perf(Ring("--ranks 1 --sizes 4K --json -"));
    j = Parse(r.out);
    row = json_array_get(json_object_get(j.get(), "results"), 0);
    EXPECT_TRUE(json_is_null(json_object_get(row, "busbw_Gbps")));
    EXPECT_GT(Number(row, "algbw_Gbps"), 0);
}

TEST(Bidirectional, IsTheSumAndEach)
{
    Outcome r = Perf(P2p("--bidirectional --bandwidth --check --channels 2 --group 2 --sizes 4K "
                         "--iters 100 --json -"));
    Json j = Parse(r.out);
    json_t *rows = json_object_get(j.get(), "results"), *row;
    double value[3];
    size_t i;

    ASSERT_EQ(0, r.status) << r.err;
    ASSERT_EQ(3u, json_array_size(rows));
    json_array_foreach(rows, i, row)
    {
        EXPECT_STREQ("bidir", json_string_value(json_object_get(row, "test")));
        EXPECT_EQ(0, Number(row, "errors"));
        value[i] = Number(row, "busbw_MBps");
    }
    EXPECT_STREQ("", json_string_value(json_object_get(json_array_get(rows, 0), "item")));
    EXPECT_STREQ("0 to 1", json_string_value(json_object_get(json_array_get(rows, 1), "item")));
    EXPECT_STREQ("1 to 0", json_string_value(json_object_get(json_array_get(rows, 2), "item")));
    EXPECT_GT(value[1], 0);
    EXPECT_GT(value[2], 0);
    EXPECT_LE(value[0], (value[1] + value[2]) * 1.001) << "over the time of the slower one";
    EXPECT_GE(value[0], 2 * std::min(value[1], value[2]) * 0.5);
}

// A wrong byte is found whichever rank receives it.
TEST(Bidirectional, BothDirectionsAreVerified)
{
    for (const char *rank : {"0", "1"}) {
        Outcome r = Perf(P2p("--bidirectional --bandwidth --check --sizes 4K --iters 10"),
                         std::string("TESTNET_FAULT=corrupt:9 TESTNET_FAULT_RANK=") + rank);

        EXPECT_EQ(1, r.status) << rank << r.err;
        EXPECT_NE(std::string::npos, r.err.find("WRONG DATA")) << r.err;
    }
    Outcome r = Perf("ring --bidirectional");
    EXPECT_EQ(2, r.status);
    EXPECT_NE(std::string::npos, r.err.find("it is for p2p")) << r.err;
}

// Runs `args` for 0.7 s, and for longer if only one interval was printed because the machine stood still.
Outcome RunOfSeveralIntervals(const std::string &args)
{
    Outcome r = Perf(args + " --duration 0.7");

    for (const char *longer : {"5", "20", "60"})
        if (r.status == 0 && Count(r.out, "\n") < 2)
            r = Perf(args + " --duration " + longer);
    return r;
}

TEST(Duration, EveryByteIsVerifiedAndCounted)
{
    Dir d;
    Outcome r = RunOfSeveralIntervals(
        P2p("--interval 0.2 --check --sizes 8K --group 2 --json-lines - --json ") + (d / "f.json"));
    std::istringstream lines(r.out);
    double messages = 0, bytes = 0, at = 0;
    int n = 0;

    ASSERT_EQ(0, r.status) << r.err;
    for (std::string line; std::getline(lines, line); n++) {
        Json j = Parse(line);
        EXPECT_GE(Number(j.get(), "from_s"), at - 1e-6);
        EXPECT_GT(Number(j.get(), "to_s"), Number(j.get(), "from_s"));
        EXPECT_EQ(0, Number(j.get(), "errors"));
        EXPECT_EQ(0, Number(j.get(), "failovers"));
        at = Number(j.get(), "to_s");
        messages += Number(j.get(), "messages");
        bytes += Number(j.get(), "message_bytes");
    }
    EXPECT_GE(n, 2);
    EXPECT_GE(at, 0.69);
    Json j = Parse(Slurp(d / "f.json"));
    json_t *row = json_array_get(json_object_get(j.get(), "results"), 0);
    EXPECT_STREQ("soak", json_string_value(json_object_get(row, "test")));
    EXPECT_EQ(messages, Number(row, "messages")) << "the lines are the whole";
    EXPECT_EQ(bytes, Number(row, "message_bytes"));
    EXPECT_EQ(2 * Number(row, "iterations"), messages) << "of each group both";
    EXPECT_LT(bytes, 8192 * messages) << "lengths vary";
    EXPECT_NE(std::string::npos, r.err.find(" bytes were right")) << r.err;
}

TEST(Duration, WrongDataIsInTheLine)
{
    Outcome r = Perf(P2p("--duration 0.5 --interval 0.5 --check --sizes 4K"),
                     "TESTNET_FAULT=corrupt:9 TESTNET_FAULT_RANK=0");

    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find(" 1 WRONG")) << r.out;
    EXPECT_NE(std::string::npos, r.err.find("WRONG DATA")) << r.err;
    EXPECT_EQ(0, Perf(P2p("--duration 0.3 --interval 0.1 --bidirectional --sizes 8,4K")).status);
}

TEST(Duration, OptionsAreChecked)
{
    const struct {
        const char *args, *why;
    } cases[] = {
        {"p2p --duration 0",
         "--duration 0: expected a time from 0.1s to 30d, as 90 (seconds), 10m, 8h or 2d"},
        {"p2p --duration 31d", "--duration 31d: expected"},
        {"p2p --duration 5x", "--duration 5x: expected"},
        {"p2p --duration 5 --iters 3", "--iters has no effect with --duration"},
        {"p2p --duration 5 --latency", "--latency has no effect with --duration"},
        {"p2p --interval 5", "--interval has no effect without --duration"},
        {"p2p --json-lines x", "--json-lines has no effect without --duration"},
        {"scale --duration 5", "--duration has no effect in scale: it is for p2p and ring"},
        {"mesh --duration 5", "--duration has no effect in mesh: it is for p2p and ring"},
        {"ring --duration 5 --iters 3", "--iters has no effect with --duration"},
        {"ring --duration 5 --interval 1", "--interval has no effect in ring: it is for p2p"},
        {"ring --duration 5 --preset mixtral-8x7b",
         "--duration has no effect with --preset mixtral"},
    };

    for (auto &c : cases) {
        Outcome r = Perf(c.args);
        EXPECT_EQ(2, r.status) << c.args;
        EXPECT_NE(std::string::npos, r.err.find(c.why)) << c.args << ": " << r.err;
    }
}

// The only result of a ring that ran for a given duration.
Json Row(const Dir &d, const std::string &args, const std::string &env = "")
{
    Outcome r = Perf("ring --plugin t=" + kTestnet + " --json " + (d / "f.json") + " " + args, env);

    EXPECT_EQ(0, r.status) << args << r.err;
    Json j = Parse(Slurp(d / "f.json"));
    json_t *rows = json_object_get(j.get(), "results");
    EXPECT_GE(json_array_size(rows), 1u) << args;
    return Json(json_incref(json_array_get(rows, json_array_size(rows) - 1)));
}

TEST(RingDuration, EveryIterationIsVerified)
{
    for (const char *what : {"allreduce", "sendrecv", "alltoall", "pipeline"}) {
        Dir d;
        Json row = Row(
            d, std::string("--ranks 3 --check --sizes 24K --duration 0.6 --collective ") + what);

        EXPECT_STREQ(what, json_string_value(json_object_get(row.get(), "test")));
        EXPECT_GE(Number(row.get(), "iterations"), 1) << what;
        EXPECT_EQ(0, Number(row.get(), "errors")) << what;
    }
}

TEST(RingDuration, UncheckedIterationsRunInBatches)
{
    Dir d;
    double iterations = 0;

    // If the machine stands still for the whole duration the run ends after its first batch, which is one iteration.
    for (const char *duration : {"0.6", "5", "20"}) {
        Json row = Row(d, std::string("--ranks 3 --sizes 4K --duration ") + duration);

        EXPECT_EQ(nullptr, json_object_get(row.get(), "errors"));
        iterations = Number(row.get(), "iterations");
        if (iterations >= 2)
            break;
    }
    EXPECT_GE(iterations, 2);
    EXPECT_GE(Number(Row(d, "--ranks 1 --sizes 4K --duration 0.1").get(), "iterations"), 1);
}

TEST(RingDuration, APresetRunsWholeSteps)
{
    Dir d;
    Json row = Row(d, "--ranks 2 --check --preset resnet50 --duration 0.1");

    EXPECT_STREQ("step", json_string_value(json_object_get(row.get(), "test")));
    EXPECT_GE(Number(row.get(), "iterations"), 1);
    EXPECT_EQ(0, Number(row.get(), "errors"));
}

// A number of iterations derived from the fast beginning would take minutes.
TEST(RingDuration, EndsByTheClockWhereARankBecomesSlow)
{
    for (const char *rank : {"0", "2"}) {
        Dir d;
        Outcome r =
            Perf("ring --plugin t=" + kTestnet +
                     " --ranks 3 --check --sizes 4K --duration 1.5 --json " + (d / "f.json"),
                 std::string("TESTNET_FAULT=late:400 TESTNET_FAULT_RANK=") + rank);

        EXPECT_EQ(0, r.status) << rank << r.err;
        EXPECT_NE(std::string::npos, r.err.find("fault late fired")) << r.err;
        EXPECT_TRUE(json_is_true(json_object_get(Parse(Slurp(d / "f.json")).get(), "ok")));
    }
}

TEST(RingDuration, WrongDataOfOneIterationIsCounted)
{
    Dir d;
    Outcome r = Perf("ring --plugin t=" + kTestnet + " --ranks 2 --check --sizes 4K --duration 0.5",
                     "TESTNET_FAULT=corrupt:9 TESTNET_FAULT_RANK=0");

    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("WRONG DATA")) << r.err;
}

// NCCL puts the variables of its files into the environment of a job, so a measurement has them, too.
TEST(P2p, NcclsFilesCountAsTheEnvironment)
{
    Dir d;
    std::ofstream(d / "conf") << "NCCL_PVRDMA_TCP_STREAMS=3\nNCCL_IB_TC=104\n"
                              << "NCCL_PVRDMA_TRANSPORT=udp\n";
    const std::string env = "NCCL_PVRDMA_TRANSPORT=tcp NCCL_CONF_FILE=" + (d / "conf"),
                      says = "pvn-perf: " + (d / "conf") +
                             " sets NCCL_PVRDMA_TCP_STREAMS, NCCL_IB_TC, as for NCCL\n";
    Outcome r = Perf("--params", env);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err, says);
    for (const char *line : {"NCCL_PVRDMA_TCP_STREAMS=3 ", "NCCL_PVRDMA_TC=104 "})
        EXPECT_NE(r.out.find(line), std::string::npos) << r.out;
    r = Perf("p2p --time 0.1 --sizes 8 --verbose", env + " NCCL_SOCKET_IFNAME=lo");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(Count(r.err, says), 1) << r.err;
    EXPECT_NE((r.out + r.err).find("3 streams"), std::string::npos) << r.out << r.err;
}

} // namespace
