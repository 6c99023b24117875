// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-perf --baseline from the command line. The earlier run is a real one, whose figures the tests change to
// values that no machine reaches. One test is of the command line that the JSON file records.
#include <gtest/gtest.h>
#include <jansson.h>

#include <functional>
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

Json load(const std::string &path)
{
    json_error_t error;
    Json j(json_load_file(path.c_str(), 0, &error));
    EXPECT_NE(nullptr, j) << path << ": " << error.text;
    return j;
}

class Baseline : public testing::Test
{
  protected:
    Dir dir;
    const std::string p2p =
        "p2p --plugin t=" + kTestnet + " --iters 2 --warmup 1 --sizes 8,64K --json ";

    void SetUp() override
    {
        Outcome r = Perf(p2p + (dir / "base.json"));
        ASSERT_EQ(0, r.status) << r.err;
    }
    // Changes the earlier run: multiplies its medians by a factor (`latency` if the value is a time, else `bandwidth`),
    // then calls `more` with its document.
    void change(
        double latency, double bandwidth,
        const std::function<void(json_t *)> &more = [](json_t *) {})
    {
        Json j = load(dir / "base.json");
        json_t *row;
        size_t i;
        json_array_foreach(json_object_get(j.get(), "summary"), i, row)
        {
            bool time = std::string("time") == json_string_value(json_object_get(row, "value"));
            double was = json_number_value(json_object_get(row, "median"));
            json_object_set_new(row, "median", json_real(was * (time ? latency : bandwidth)));
        }
        more(j.get());
        ASSERT_EQ(0, json_dump_file(j.get(), (dir / "then.json").c_str(), 0));
    }
    Outcome compare(const std::string &more = "")
    {
        return Perf(p2p + (dir / "now.json") + " --baseline " + (dir / "then.json") + " " + more);
    }
};

TEST_F(Baseline, WorseIsStatus1)
{
    change(1e-6, 1e6);
    Outcome r = compare();
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("compared with " + (dir / "then.json"))) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("tolerance 10 %"));
    EXPECT_NE(std::string::npos, r.out.find("  WORSE\n"));
    EXPECT_NE(std::string::npos, r.out.find("WORSE: 4 figures by more than 10 % than in "));
    Json j = load(dir / "now.json");
    EXPECT_EQ(4,
              json_integer_value(json_object_get(json_object_get(j.get(), "baseline"), "worse")));
    EXPECT_EQ(1, json_integer_value(json_object_get(j.get(), "status")));
    json_t *first = json_array_get(json_object_get(j.get(), "summary"), 0);
    EXPECT_LT(0, json_number_value(json_object_get(first, "baseline_median")));
    // Only one of the four rows is better.
    change(1, 1, [](json_t *doc) {
        json_t *row;
        size_t i;
        json_array_foreach(json_object_get(doc, "summary"), i, row)
            json_object_set_new(row, "median",
                                json_real(i == 3  ? 1e15
                                          : i < 2 ? 1e12
                                                  : 1e-6));
    });
    r = compare("--quiet");
    EXPECT_EQ(1, r.status);
    EXPECT_EQ("", r.out);
}

TEST_F(Baseline, BetterIsStatus0)
{
    change(1e6, 1e-6);
    Outcome r = compare("--tolerance 50");
    EXPECT_EQ(0, r.status) << r.out << r.err;
    EXPECT_NE(std::string::npos, r.out.find("tolerance 50 %"));
    EXPECT_NE(std::string::npos, r.out.find("  better\n"));
    EXPECT_EQ(std::string::npos, r.out.find("WORSE"));
    EXPECT_EQ(std::string::npos, r.out.find("another machine"));
}

TEST_F(Baseline, WhatIsUnlikeIsSaid)
{
    change(1e6, 1e-6, [](json_t *doc) {
        json_t *rows = json_object_get(doc, "summary"), *last = json_array_get(rows, 3);
        json_object_set_new(doc, "host", json_string("elsewhere"));
        json_object_set_new(last, "via", json_string("rdma"));
        json_object_set_new(json_array_get(rows, 0), "bytes", json_integer(16));
        // A run of one plugin is comparable whatever the plugin's name was.
        for (size_t i = 0; i < 4; i++)
            json_object_set_new(json_array_get(rows, i), "plugin", json_string("before"));
    });
    Outcome r = compare();
    EXPECT_EQ(0, r.status) << r.out << r.err;
    EXPECT_NE(std::string::npos, r.out.find("it is of another machine: elsewhere ("));
    EXPECT_NE(std::string::npos, r.out.find("not in the baseline"));
    EXPECT_NE(std::string::npos, r.out.find(", then rdma)")) << r.out;
}

TEST_F(Baseline, BadFilesAreRefusedBeforeTheRun)
{
    const struct {
        const char *text, *why;
    } cases[] = {
        {"{\"tool\": ", "then.json, line 1: "},
        {"{\"tool\": \"other\"}", "is JSON, but not of pvn-perf --json"},
        {"{\"tool\": \"pvn-perf\", \"format\": 99}", "has format 99, this pvn-perf reads format 1"},
        {"{\"tool\": \"pvn-perf\", \"format\": 1, \"summary\": []}", "has no figures"},
    };
    for (const auto &c : cases) {
        std::ofstream(dir / "then.json") << c.text;
        Outcome r = compare();
        EXPECT_EQ(3, r.status) << c.text;
        EXPECT_NE(std::string::npos, r.err.find(c.why)) << r.err;
        EXPECT_EQ(std::string::npos, r.out.find("latency")) << "nothing is measured: " << r.out;
    }
    EXPECT_EQ(0, unlink((dir / "then.json").c_str()));
    Outcome r = compare();
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("then.json")) << r.err;
    // The two runs have no point in common.
    change(1, 1, [](json_t *doc) {
        for (size_t i = 0; i < 4; i++)
            json_object_set_new(json_array_get(json_object_get(doc, "summary"), i), "ranks",
                                json_integer(77));
    });
    r = compare();
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("no figure is in ")) << r.err;
    r = Perf(p2p + "x.json --tolerance 5");
    EXPECT_EQ(2, r.status);
    EXPECT_NE(std::string::npos, r.err.find("--tolerance has no effect without --baseline"));
    EXPECT_EQ(2, compare("--tolerance 100").status);
}

// Arguments may be any bytes. One that is not UTF-8 is replaced in part and keeps its index in "command".
TEST(Json, HasArgumentsThatAreNotUtf8)
{
    Outcome r = Perf("p2p --sizes 8 --iters 2 --warmup 0 --env X=$(printf 'a\\377b') --json - "
                     "--plugin t=" +
                     kTestnet);
    Json j(json_loads(r.out.c_str(), 0, nullptr));

    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_NE(j, nullptr) << r.out;
    json_t *command = json_object_get(j.get(), "command");
    EXPECT_STREQ(json_string_value(json_array_get(command, 8)), "--env");
    EXPECT_STREQ(json_string_value(json_array_get(command, 9)), "X=a?b");
    EXPECT_STREQ(json_string_value(json_array_get(command, 10)), "--json");
}

TEST(Json, HasAPluginWhosePathIsNotUtf8)
{
    char dir[] = "/tmp/pvn-perf-\377-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(dir));
    const std::string link = std::string(dir) + "/x.so";
    ASSERT_EQ(0, symlink(kTestnet.c_str(), link.c_str()));
    Outcome r = Perf("p2p --sizes 8 --iters 2 --warmup 0 --json - --plugin 't=" + link + "'");
    unlink(link.c_str());
    rmdir(dir);
    Json j(json_loads(r.out.c_str(), 0, nullptr));

    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_NE(j, nullptr) << r.out;
    json_t *plugin = json_array_get(json_object_get(j.get(), "plugins"), 0);
    EXPECT_STREQ(json_string_value(json_object_get(plugin, "plugin")), "t");
    EXPECT_TRUE(strstr(json_string_value(json_object_get(plugin, "path")), "x.so"));
}

} // namespace
