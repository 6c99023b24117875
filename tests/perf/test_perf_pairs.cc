// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-perf's traffic between pairs of ranks from the command line: all-to-alls (even, uneven, and of a mixture of
// experts) and pipelines. The plugins are testnet, which misbehaves on request, and this build's own.
#include <gtest/gtest.h>

#include <jansson.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/perf/perf_run.h"

namespace
{

class PairsOf : public testing::TestWithParam<int>
{
};

// The sizes are zero, smaller than the number of ranks, odd, and larger than all slots of a channel.
TEST_P(PairsOf, EveryByteIsRight)
{
    for (const char *what : {"alltoall", "all-to-allv", "pipeline --micro-batches 5"}) {
        Outcome r = Perf(Ring("--ranks " + std::to_string(GetParam()) +
                              " --slot 4K --sizes 0,1,7,4096,32771,300007 --collective " + what));

        EXPECT_EQ(r.status, 0) << what << r.err;
        EXPECT_NE(r.out.find("all data verified"), std::string::npos) << what << r.out;
    }
}
INSTANTIATE_TEST_SUITE_P(Ranks, PairsOf, testing::Values(1, 2, 3, 4, 8));

// PXN's streams use grouped receives. Versions without grouped receives use one comm per stream.
TEST(Pairs, AllToAllVerifiesInEveryShapeAndVersion)
{
    for (const char *more :
         {"--ranks 4 --group 2", "--ranks 8 --group 4 --channels 1",
          "--ranks 4 --group 2 --steps 1 --slot 64", "--ranks 8 --group 2 --channels 4 --no-sums",
          "--ranks 4 --group 2 --abi 4", "--ranks 3 --abi 6",
          "--ranks 4 --channels 8 --slot 1K --per-peer 8", "--ranks 3 --steps 1 --channels 1",
          "--ranks 2 --no-sums"}) {
        Outcome r = Perf(Ring("--sizes 100003 --collective alltoallv ") + more);

        EXPECT_EQ(r.status, 0) << more << r.err;
        EXPECT_NE(r.out.find("all data verified"), std::string::npos) << more << r.out;
    }
    for (const char *more :
         {"--micro-batches 1", "--micro-batches 2", "--no-sums", "--abi 4", "--channels 4"}) {
        Outcome r = Perf(Ring("--ranks 4 --sizes 100003 --collective pipeline ") + more);

        EXPECT_EQ(r.status, 0) << more << r.err;
    }
}

TEST(Pairs, NodesHaveToBeWhole)
{
    for (const char *ranks : {"3", "2", "1"}) {
        Outcome r = Perf(Ring("--sizes 1K --collective alltoall --group 2 --ranks ") + ranks);

        EXPECT_EQ(r.status, 3) << r.out;
        EXPECT_NE(r.err.find("--group 2: "), std::string::npos) << r.err;
    }
}

struct Fault {
    const char *fault;
    const char *args;
    int status;
    const char *says;
    int or_status = -1; // a second correct outcome, or -1
};

class PairFaults : public testing::TestWithParam<Fault>
{
};

// Each fault fires in rank 1, and the plugin reports that it fired.
TEST_P(PairFaults, AFaultOfTheTransferIsFound)
{
    const Fault &f = GetParam();
    Outcome r = PerfWithFault(Ring(f.args), f.fault, f.says);

    EXPECT_TRUE(r.status == f.status || r.status == f.or_status) << r.status << f.args << r.err;
    EXPECT_NE(r.err.find(f.says), std::string::npos) << f.args << r.err;
    if (strchr(f.fault, ':')) {
        EXPECT_NE(r.err.find("fired"), std::string::npos) << "the fault did not happen: " << r.err;
    }
}

#define A2A  "--ranks 3 --sizes 300000 --slot 16K --collective alltoall "
#define A2AV "--ranks 4 --sizes 300000 --slot 16K --collective alltoallv "
#define PXN  "--ranks 4 --sizes 300000 --slot 16K --collective alltoall --group 2 "
#define PIPE "--ranks 3 --sizes 100000 --slot 16K --collective pipeline "
const Fault kFaults[] = {
    {"corrupt:20", A2A, 1, "WRONG DATA: byte"},
    {"corrupt:20", A2A "--no-sums", 1, "WRONG DATA: byte"},
    {"corrupt:20", A2AV, 1, "from rank 1 is wrong"},
    {"corrupt:20", PXN, 1, "WRONG DATA: byte"},
    {"corrupt:20", PIPE, 1, "WRONG DATA: byte"},
    {"corrupt:20", PIPE "--no-sums", 1, "WRONG DATA: byte"},
    {"short", A2A, 1, "test() reports"},
    {"short", PIPE, 1, "test() reports"},
    {"nosize", A2A, 0, "does not report in test() how much"},
    // The message that arrives instead of the lost one may have another size.
    {"drop:20", A2A, 1, "waits for a message from rank 1", 3},
    {"swap:20", PXN, 3, "nothing moved for 2 s: channel"},
    {"drop:20", PIPE, 1, "nothing moved for 2 s: channel", 3},
    {"stuck:20", A2A, 3, "rank 1 does not return from 'isend'"},
    {"die:20", A2A, 3, "rank 1 was killed by signal 9"},
    {"die:20", PXN, 3, "rank 1 was killed by signal 9"},
    {"die:20", PIPE, 3, "rank 1 was killed by signal 9"},
    {"die:20", "--ranks 4 --preset mixtral-8x7b --layers 1 --tokens 100", 3,
     "rank 1 was killed by signal 9"},
    {"error:20", A2AV, 3, "rank 1: isend of plugin t failed with ncclSystemError"},
};
INSTANTIATE_TEST_SUITE_P(Each, PairFaults, testing::ValuesIn(kFaults));

struct Rows {
    explicit Rows(const std::string &args) : r(Perf(args + " --json -"))
    {
        j = json_loads(r.out.c_str(), 0, nullptr);
    }
    ~Rows()
    {
        json_decref(j);
    }
    Rows(const Rows &) = delete;
    Rows &operator=(const Rows &) = delete;
    json_t *results() const
    {
        return json_object_get(j, "results");
    }
    Outcome r;
    json_t *j;
};

double Number(json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

// nccl-tests gives alltoall the factor (n-1)/n. With PXN only traffic between nodes is on the network.
TEST(Pairs, BusBandwidthIsThatOfNcclTests)
{
    struct {
        const char *args, *test;
        double factor, bytes;
    } const all[] = {
        {"--ranks 4 --collective alltoall --sizes 10003", "alltoall", 0.75, 10000},
        {"--ranks 4 --collective alltoall --group 2 --sizes 10003", "alltoall", 0.5, 10000},
        {"--ranks 3 --collective pipeline --sizes 10003", "pipeline", 1, 10003}};

    for (auto &a : all) {
        Rows rows(Ring(a.args));
        json_t *row = json_array_get(rows.results(), 0);

        ASSERT_NE(row, nullptr) << rows.r.err;
        EXPECT_STREQ(json_string_value(json_object_get(row, "test")), a.test);
        EXPECT_EQ(Number(row, "bytes"), a.bytes);
        EXPECT_NEAR(Number(row, "busbw_MBps"), a.factor * Number(row, "algbw_MBps"), 1e-3)
            << a.args;
    }
}

// A step includes the dispatch and the combine of each layer, and those of its gradients.
TEST(Pairs, AStepOfMixtralSendsAllOfItsLayers)
{
    Rows rows(Ring("--ranks 3 --preset mixtral-8x7b --layers 2 --tokens 50"));
    std::map<std::string, int> tests;
    std::map<std::string, double> bytes;
    size_t i;
    json_t *row;

    ASSERT_EQ(rows.r.status, 0) << rows.r.err;
    json_array_foreach(rows.results(), i, row)
    {
        std::string test = json_string_value(json_object_get(row, "test"));

        tests[test]++;
        bytes[test] += Number(row, "bytes");
        EXPECT_EQ(Number(row, "errors"), 0);
    }
    EXPECT_EQ(tests["bucket"], 8);
    EXPECT_EQ(tests["part"], 2);
    EXPECT_EQ(tests["step"], 1);
    EXPECT_EQ(bytes["bucket"], 8.0 * 50 * 2 * 8192);
    EXPECT_EQ(bytes["part"], bytes["bucket"]);
    EXPECT_EQ(bytes["step"], bytes["bucket"]);
    EXPECT_STREQ(json_string_value(json_object_get(json_array_get(rows.results(), 0), "item")),
                 "dispatch layer 0");
    EXPECT_STREQ(json_string_value(json_object_get(json_array_get(rows.results(), 4), "item")),
                 "dispatch layer 1 backward");
    EXPECT_STREQ(json_string_value(json_object_get(rows.j, "type")), "bfloat16");
}

TEST(Pairs, BaselineFindsTheirFigures)
{
    Dir d;
    const std::string args = Ring("--ranks 3 --collective alltoallv --sizes 10000 ");
    Outcome r = Perf(args + "--json " + (d / "then.json"));

    ASSERT_EQ(r.status, 0) << r.err;
    r = Perf(args + "--tolerance 99 --baseline " + (d / "then.json"));
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_NE(r.out.find("compared with"), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("not in the baseline"), std::string::npos) << r.out;
}

TEST(Pairs, ScaleComparesPluginsInAllToAll)
{
    Rows rows(
        "scale --ranks 3 --check --iters 2 --collective alltoall --sizes 9000 --repeat 2 --plugin a=" +
        kTestnet + " --plugin b=" + kTestnet);

    EXPECT_EQ(rows.r.status, 0) << rows.r.err;
    EXPECT_EQ(json_array_size(rows.results()), 3u * 2 * 2);
}

TEST(Pairs, RanksOfALauncher)
{
    NewPort();
    for (auto &r : Launch(3, Ring("--collective alltoallv --sizes 50001"), Torchrun))
        EXPECT_EQ(r.status, 0) << r.err;
}

TEST(OwnPlugin, MovesPairsOverTcp)
{
    for (const char *more : {"--ranks 4 --collective alltoallv --sizes 7,1000003",
                             "--ranks 8 --collective alltoall --group 4 --sizes 2000003",
                             "--ranks 3 --collective pipeline --sizes 300007",
                             "--ranks 4 --preset mixtral-8x7b --layers 1 --tokens 100"}) {
        Outcome r = Perf(std::string("ring --iters 2 --check ") + more,
                         "NCCL_PVRDMA_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo");

        EXPECT_EQ(r.status, 0) << more << r.err;
        EXPECT_NE(r.out.find("all data verified"), std::string::npos) << r.out;
        EXPECT_NE(r.out.find(" tcp "), std::string::npos) << r.out;
    }
}

} // namespace
