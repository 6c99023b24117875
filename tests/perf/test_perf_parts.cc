// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the parts of pvn-perf that need no second process: options, models and their buckets, exact values, the
// environments of launchers, and the plugin driver.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/deadline.h"
#include "perf/workload/model.h"
#include "perf/driver/netdrv.h"
#include "perf/options/opts.h"
#include "perf/rank/pin.h"
#include "perf/workload/values.h"
#include "tools/launch_env.h"
#include "tools/pmix.h"
#include "tests/support/paths.h"

namespace
{

int Parse(std::vector<std::string> args, pvn_perf_opts *o, std::string *err)
{
    std::vector<char *> argv{const_cast<char *>("pvn-perf")};

    for (auto &a : args)
        argv.push_back(a.data());
    argv.push_back(nullptr);
    testing::internal::CaptureStderr();
    int rc = pvn_perf_opts_parse(o, static_cast<int>(argv.size()) - 1, argv.data());
    *err = testing::internal::GetCapturedStderr();
    return rc;
}

struct BadArgs {
    std::vector<std::string> args;
    const char *says;
};

class BadArguments : public testing::TestWithParam<BadArgs>
{
};

TEST_P(BadArguments, NameTheValueAndTheRemedy)
{
    pvn_perf_opts o;
    std::string err;

    EXPECT_EQ(Parse(GetParam().args, &o, &err), PVN_PERF_USAGE);
    EXPECT_NE(err.find(GetParam().says), std::string::npos) << err;
}

const BadArgs kBad[] = {
    {{}, "usage:"},
    {{"fly"}, "'fly' is not a mode; the modes are p2p, ring, scale, mesh and serve"},
    {{"rng"}, "'rng' is not a mode; did you mean ring?"},
    {{"P2P"}, "did you mean p2p?"},
    {{"ring", "p2p"}, "expected one mode, got 'ring' and 'p2p'"},
    {{"ring", "--ranks", "0"}, "--ranks 0"},
    {{"ring", "--ranks", "257"}, "1 to 256"},
    {{"ring", "--ranks", "two"}, "--ranks two"},
    {{"p2p", "--ranks", "3"}, "ring takes any number"},
    {{"p2p", "--sizes", "1Q"}, "'1Q' is not a size"},
    {{"p2p", "--sizes", "8-4"}, "'8-4' is not a size"},
    {{"p2p", "--sizes", "0-4"}, "'0-4' is not a size"},
    {{"p2p", "--sizes", "8*2"}, "'8*2' is not a size"},
    {{"p2p", "--sizes", "1-2*1"}, "is not a size"},
    {{"p2p", "--sizes", ","}, "the list of sizes is empty"},
    {{"p2p", "--sizes", "1,2,3,4,1-1G,1-1G,1-1G"}, "more sizes"},
    {{"ring", "--sizes", "10"}, "10 is not a multiple of 4"},
    {{"ring", "--type", "bfloat16", "--sizes", "7"},
     "7 is not a multiple of 2, the size of a bfloat16"},
    {{"ring", "--type", "int8"}, "--type int8: expected float32 or bfloat16"},
    {{"ring", "--collective", "gather"}, "--collective gather: expected allreduce, allgather"},
    {{"ring", "--preset", "gpt2", "--collective", "broadcast"}, "the model has its own"},
    {{"ring", "--preset", "gpt2", "--layers", "2"},
     "--layers 2 has no effect without --preset llama2-7b or mixtral-8x7b"},
    {{"ring", "--tokens", "9"}, "--tokens 9 has no effect without --preset mixtral-8x7b"},
    {{"ring", "--tokens", "0", "--preset", "mixtral-8x7b"}, "--tokens 0"},
    {{"ring", "--micro-batches", "4", "--collective", "alltoall"},
     "--micro-batches 4 has no effect without --collective pipeline"},
    {{"ring", "--group", "2"}, "--group 2 has no effect here"},
    {{"ring", "--collective", "pipeline", "--group", "2"}, "--group 2 has no effect here"},
    {{"ring", "--collective", "alltoall", "--group", "3"}, "expected 1, 2, 4 or 8 ranks"},
    {{"scale", "--collective", "alltoall", "--group", "2"}, "use ring"},
    {{"ring", "--collective", "alltoall", "--type", "bfloat16"}, "--type has no effect"},
    {{"ring", "--per-peer", "2"}, "--per-peer 2 has no effect here"},
    {{"ring", "--collective", "alltoall", "--per-peer", "4"}, "up to --channels 2"},
    {{"ring", "--collective", "alltoallv", "--slices", "2"}, "--slices has no effect"},
    {{"ring", "--collective", "pipeline", "--channels", "3"}, "--channels 3: NCCL has 1, 2, 4"},
    {{"p2p", "--collective", "allgather"}, "--collective has no effect in p2p"},
    {{"ring", "--preset", "bert"}, "did you mean bert-large?"},
    {{"ring", "--preset", "resnet5"}, "did you mean resnet50?"},
    {{"ring", "--preset", "alexnet"},
     "there are resnet50, bert-large, gpt2, llama2-7b and mixtral-8x7b"},
    {{"ring", "--preset", "gpt2", "--sizes", "4"}, "exclude each other"},
    {{"p2p", "--preset", "gpt2"}, "--preset has no effect in p2p: it is for ring and scale"},
    {{"p2p", "--slot", "64"}, "--slot has no effect in p2p"},
    {{"p2p", "--steps", "2"}, "--steps has no effect in p2p"},
    {{"p2p", "--slices", "2"}, "--slices has no effect in p2p"},
    {{"p2p", "--no-sums"}, "--no-sums has no effect in p2p: it is for ring and scale"},
    {{"ring", "--depth", "8"}, "--depth has no effect in ring: it is for p2p"},
    {{"scale", "--latency"}, "--latency has no effect in scale"},
    {{"ring", "--bandwidth"}, "--bandwidth has no effect in ring"},
    {{"ring", "--idle", "1"}, "--idle has no effect in ring"},
    {{"p2p", "[::1]:x"}, "p2p [::1]:x: expected a port"},
    {{"p2p", "--idle", "1", "--sizes", "8"}, "--sizes has no effect with --idle"},
    {{"p2p", "--idle", "1", "--latency"}, "--latency has no effect with --idle"},
    {{"p2p", "--idle", "1", "--check"}, "--check has no effect with --idle"},
    {{"p2p", "--idle", "1", "--iters", "1"}, "--iters has no effect with --idle"},
    {{"p2p", "--idle", "1", "--plot", "f"}, "--plot has no effect with --idle"},
    {{"p2p", "--iters", "1", "--time", "1"}, "--time has no effect with --iters"},
    {{"ring", "--preset", "gpt2", "--time", "1"}, "--time has no effect with --preset"},
    {{"ring", "--ranks", "2", "--master", "h"}, "--master has no effect with --ranks"},
    {{"ring", "--ranks", "2", "--boot-timeout", "1"}, "--boot-timeout has no effect with --ranks"},
    {{"ring", "--quiet", "--verbose"}, "--verbose has no effect with --quiet"},
    {{"ring", "--abi", "9", "--traffic-class", "1"}, "from version 10 on"},
    {{"ring", "--dev", "0,1,2"}, "names 3 devices but there are 2 channels"},
    {{"ring", "--json", "-", "--csv", "-"}, "only one of --json, --csv and --plot can be '-'"},
    {{"ring", "--plot", "f", "--csv", "f"}, "f is given for two kinds of output"},
    {{"ring", "--params"}, "remove 'ring'"},
    {{"--params", "--json", "f"}, "remove the other options"},
    {{"--make-key", "f", "--json", "f"}, "only makes a key"},
    {{"p2p", "--make-key", "f"}, "only makes a key"},
    {{"p2p", "--group", "9"}, "1 to 8"},
    {{"p2p", "--abi", "4", "--group", "2"}, "no grouped receives"},
    {{"p2p", "--abi", "3"}, "4 to 12"},
    {{"p2p", "--abi", "13"}, "4 to 12"},
    {{"p2p", "--depth", "33"}, "1 to 32"},
    {{"ring", "--slot", "24"}, "multiple of 16"},
    {{"ring", "--timeout", "0"}, "expected a time from 0.001s to 1d, as 90 (seconds), 10m"},
    {{"ring", "--timeout", "5x"}, "--timeout 5x: expected a time"},
    {{"ring", "--b"}, "--b is the beginning of --bandwidth, --bidirectional, "},
    {{"ring", "--time", "x"}, "seconds"},
    {{"ring", "--env", "NOVALUE"}, "KEY=VALUE"},
    {{"ring", "--env", "other:A=1"}, "no --plugin has the name other"},
    {{"ring", "--plugin", "=x"}, "empty or too long"},
    {{"ring", "--plugin", "a,b=x"}, "letters"},
    {{"ring", "--plugin", "a=x", "--plugin", "a=y"}, "two plugins have the name a"},
    {{"ring", "--netns", "a,,b"}, "an item of 'a,,b' is empty"},
    {{"ring", "--master", "host:0"}, "1 to 65535"},
    {{"ring", "--master", "[::1"}, "[ADDRESS]:PORT"},
    {{"ring", "--json", ""}, "empty"},
    {{"ring", "--nonsense"}, "--nonsense is not an option (see pvn-perf --help)"},
    {{"ring", "--chanels", "2"}, "--chanels is not an option; did you mean --channels?"},
    {{"ring", "--json"}, "--json needs a value"},
    {{"ring", "--memory", "pined"}, "--memory pined: expected gpu, pinned or host"},
    {{"ring", "--check=1"}, "--check takes no value"},
    {{"ring", "-x"}, "-x is not an option"},
};
INSTANTIATE_TEST_SUITE_P(Each, BadArguments, testing::ValuesIn(kBad));

TEST(Options, DefaultsAndListsOfSizesAreTaken)
{
    pvn_perf_opts o;
    std::string err;

    ASSERT_EQ(Parse({"p2p", "--sizes", "8,1K,64K-256K,1M-16M*4,1.5k"}, &o, &err), PVN_PERF_OK)
        << err;
    std::vector<uint64_t> want{8, 1024, 65536, 131072, 262144, 1u << 20, 4u << 20, 16u << 20, 1536};
    EXPECT_EQ(std::vector<uint64_t>(o.size, o.size + o.nsizes), want);
    EXPECT_EQ(o.channels, 1);
    EXPECT_TRUE(o.latency && o.bandwidth);
    EXPECT_FALSE(o.spin);
    ASSERT_EQ(Parse({"p2p", "--spin"}, &o, &err), PVN_PERF_OK) << err;
    EXPECT_TRUE(o.spin);
    ASSERT_EQ(Parse({"p2p", "--timeout", "5m", "--bidir", "--memory=movable"}, &o, &err),
              PVN_PERF_OK)
        << err;
    EXPECT_EQ(o.timeout, 300);
    EXPECT_TRUE(o.bidirectional);
    EXPECT_EQ(o.memory, PVN_PERF_MOVABLE);
    ASSERT_EQ(Parse({"ring", "--plugin", "/x/libnccl-net-foo.so", "--plugin", "b=/y=z.so", "--env",
                     "b:K=a=b:c", "--netns", "n1,n2", "--master", "[::1]:77"},
                    &o, &err),
              PVN_PERF_OK)
        << err;
    EXPECT_STREQ(o.plugin[0].name, "foo");
    EXPECT_STREQ(o.plugin[1].name, "b");
    EXPECT_STREQ(o.plugin[1].what, "/y=z.so");
    EXPECT_STREQ(o.env[0].plugin, "b");
    EXPECT_STREQ(o.env[0].key, "K");
    EXPECT_STREQ(o.env[0].value, "a=b:c");
    EXPECT_EQ(o.nnetns, 2);
    EXPECT_STREQ(o.master, "::1");
    EXPECT_EQ(o.port, 77);
    EXPECT_EQ(o.channels, 2);
}

TEST(Options, TokenDiffersBetweenMeasurements)
{
    pvn_perf_opts a, b;
    std::string err;

    ASSERT_EQ(Parse({"ring", "--sizes", "4K"}, &a, &err), PVN_PERF_OK);
    ASSERT_EQ(Parse({"ring", "--sizes", "4K", "--json", "f"}, &b, &err), PVN_PERF_OK);
    EXPECT_EQ(pvn_perf_opts_token(&a), pvn_perf_opts_token(&b));
    ASSERT_EQ(Parse({"ring", "--sizes", "8K"}, &b, &err), PVN_PERF_OK);
    EXPECT_NE(pvn_perf_opts_token(&a), pvn_perf_opts_token(&b));
}

// Totals as the frameworks count them (sum of numel over parameters()).
TEST(Models, HaveTheirRealSizes)
{
    const std::map<std::string, std::pair<uint64_t, int>> want{{"resnet50", {25557032, 161}},
                                                               {"bert-large", {336226108, 398}},
                                                               {"gpt2", {124439808, 148}}};

    for (auto &[name, w] : want) {
        pvn_model m;
        uint64_t sum = 0;

        ASSERT_EQ(pvn_model_load(name.c_str(), &m), 0);
        EXPECT_EQ(m.count, w.first) << name;
        EXPECT_EQ(m.nparams, w.second) << name;
        for (int i = 0; i < m.nparams; i++)
            sum += m.param[i].count;
        EXPECT_EQ(sum, m.count);
        pvn_model_free(&m);
    }
    pvn_model none;
    EXPECT_EQ(pvn_model_load("alexnet", &none), -ENOENT);
}

TEST(Models, ShapesOfKnownParameters)
{
    pvn_model m;

    ASSERT_EQ(pvn_model_load("resnet50", &m), 0);
    EXPECT_STREQ(m.param[0].name, "conv1.weight");
    EXPECT_EQ(m.param[0].count, 64u * 3 * 7 * 7);
    EXPECT_STREQ(m.param[m.nparams - 2].name, "fc.weight");
    EXPECT_EQ(m.param[m.nparams - 2].count, 1000u * 2048);
    pvn_model_free(&m);
}

std::vector<std::pair<uint64_t, int>> Buckets(std::vector<uint64_t> count, uint64_t first,
                                              uint64_t cap)
{
    std::vector<pvn_bucket> b(count.size());
    int n = pvn_ddp_buckets(count.data(), static_cast<int>(count.size()), first, cap, b.data());
    std::vector<std::pair<uint64_t, int>> out;

    for (int i = 0; i < n; i++)
        out.push_back({b[i].count, b[i].nparams});
    return out;
}

using List = std::vector<std::pair<uint64_t, int>>;

// The expected buckets were worked out by hand from the rule: the last parameter comes first, and a bucket closes once
// it has reached its cap.
TEST(DdpBuckets, BucketsCloseAtTheirCapFromTheLastParameterOn)
{
    // 4 bytes each: caps of 40 and 100 bytes are 10 and 25 elements.
    EXPECT_EQ(Buckets({5, 20, 4, 9, 3}, 40, 100), (List{{12, 2}, {29, 3}}));
    EXPECT_EQ(Buckets({10}, 40, 100), (List{{10, 1}}));
    EXPECT_EQ(Buckets({9}, 40, 100), (List{{9, 1}}));
    EXPECT_EQ(Buckets({1000, 10}, 40, 100), (List{{10, 1}, {1000, 1}}));
    EXPECT_EQ(Buckets({24, 1, 25, 10}, 40, 100), (List{{10, 1}, {25, 1}, {25, 2}}));
    EXPECT_EQ(Buckets({}, 40, 100), (List{}));
}

// The first buckets of two models, worked out from their last layers.
TEST(DdpBuckets, BucketsOfRealModelsAreAsWorkedOut)
{
    pvn_model m;
    pvn_bucket *b;

    ASSERT_EQ(pvn_model_load("resnet50", &m), 0);
    int n = pvn_model_buckets(&m, &b);
    // fc.bias (1000) is below 1 MiB; with fc.weight (2,048,000) it is above.
    EXPECT_EQ(b[0].count, 2049000u);
    EXPECT_EQ(b[0].nparams, 2);
    // layer4.2 (4,462,592), then layer4.1's bn3, conv3 and bn2 (22.1 MB) and conv2 (31.5 MB): past
    // 25 MiB.
    EXPECT_EQ(b[1].count, 4462592u + 2 * 2048 + 2048 * 512 + 2 * 512 + 512 * 512 * 9);
    EXPECT_GT(b[1].count * 4, PVN_DDP_CAP);
    uint64_t sum = 0;
    int params = 0;
    for (int i = 0; i < n; i++) {
        sum += b[i].count;
        params += b[i].nparams;
        if (i > 0 && i + 1 < n) {
            EXPECT_GE(b[i].count * 4, PVN_DDP_CAP) << i;
        }
    }
    EXPECT_EQ(sum, m.count);
    EXPECT_EQ(params, m.nparams);
    free(b);
    pvn_model_free(&m);

    ASSERT_EQ(pvn_model_load("bert-large", &m), 0);
    n = pvn_model_buckets(&m, &b);
    // seq_relationship (2,050) + transform.LayerNorm (2,048) + transform.dense (bias, weight).
    EXPECT_EQ(b[0].count, 2050u + 2048 + 1024 + 1048576);
    // The word embeddings alone are 119 MiB. The bucket also has the parameters after them in the model.
    EXPECT_GE(b[n - 1].count, 30522u * 1024);
    free(b);
    pvn_model_free(&m);
}

TEST(Values, SumIsExactAndWrongOnesAreFound)
{
    for (int nranks : {1, 2, 3, 7, 64, 4096}) {
        const uint64_t n = 1003;
        std::vector<float> sum(n, 0.0f), one(n);
        pvn_whose all = {PVN_FLOAT32, PVN_SUM, nranks, 5},
                  stale = {PVN_FLOAT32, PVN_SUM, nranks, 6};

        for (int r = 0; r < nranks; r++) {
            pvn_whose w = {PVN_FLOAT32, r, nranks, 5};

            pvn_values_fill(one.data(), 0, n, &w);
            pvn_values_add(PVN_FLOAT32, sum.data(), nullptr, sum.data(), one.data(), n);
        }
        uint64_t first = 0;
        EXPECT_EQ(pvn_values_check(sum.data(), 0, n, &all, &first), 0u) << nranks;
        EXPECT_LT(pvn_values_expected(n - 1, &all), 16777216.0);
        EXPECT_GT(pvn_values_check(sum.data(), 0, n, &stale, &first), n * 9 / 10) << "stale data";
        EXPECT_GT(pvn_values_check(sum.data(), 1, n, &all, &first), n * 9 / 10) << "misplaced";
        sum[1001] += 1;
        sum[17] += 1;
        EXPECT_EQ(pvn_values_check(sum.data(), 0, n, &all, &first), 2u);
        EXPECT_EQ(first, 17u);
    }
}

// bfloat16 holds every partial sum around the ring exactly, whichever rank is the first.
TEST(Values, BfloatSumsAreExactAroundTheRing)
{
    for (int nranks : {1, 2, 3, 8, 300}) {
        const uint64_t n = 1003, at = 77;
        pvn_whose all = {PVN_BFLOAT16, PVN_SUM, nranks, 5};
        uint64_t first = 0;

        for (int start = 0; start < nranks; start += 1 + nranks / 3) {
            std::vector<uint16_t> sum(n, 0), one(n), before;

            for (int k = 0; k < nranks; k++) {
                pvn_whose w = {PVN_BFLOAT16, (start + k) % nranks, nranks, 5};

                pvn_values_fill(one.data(), at, n, &w);
                EXPECT_EQ(pvn_values_check(one.data(), at, n, &w, &first), 0u);
                before = sum;
                pvn_values_add(PVN_BFLOAT16, sum.data(), nullptr, before.data(), one.data(), n);
                for (uint64_t i = 0; i < n; i++)
                    ASSERT_EQ(pvn_values_get(PVN_BFLOAT16, sum.data(), i),
                              pvn_values_get(PVN_BFLOAT16, before.data(), i) +
                                  pvn_values_get(PVN_BFLOAT16, one.data(), i));
            }
            EXPECT_EQ(pvn_values_check(sum.data(), at, n, &all, &first), 0u) << nranks;
            EXPECT_GT(pvn_values_check(sum.data(), at + 1, n, &all, &first), n * 9 / 10);
            if (nranks > 1) {
                EXPECT_GT(pvn_values_check(before.data(), at, n, &all, &first), n * 9 / 10)
                    << "without the last rank";
            }
            sum[17] ^= 1;
            EXPECT_EQ(pvn_values_check(sum.data(), at, n, &all, &first), 1u);
            EXPECT_EQ(first, 17u);
        }
    }
}

TEST(Values, TwoPlacesAtAnyAddressAndLength)
{
    std::vector<float> a(80), b(80);

    for (int i = 0; i < 80; i++) {
        a[static_cast<size_t>(i)] = static_cast<float>(i);
        b[static_cast<size_t>(i)] = static_cast<float>(1000 * i);
    }
    for (size_t at = 0; at < 5; at++) {
        for (size_t n = 0; n < 70; n++) {
            std::vector<float> dst(80, -1), out(80, -1), want_sum(80, -1), want_copy(80, -1);

            for (size_t i = 0; i < n; i++) {
                want_sum[at + i] = 1001 * static_cast<float>(i);
                want_copy[at + i] = static_cast<float>(i);
            }
            pvn_values_add(PVN_FLOAT32, &dst[at], &out[at], a.data(), b.data(), n);
            EXPECT_EQ(want_sum, dst) << at << ", " << n;
            EXPECT_EQ(want_sum, out) << at << ", " << n;
            dst = out = std::vector<float>(80, -1);
            pvn_bytes_copy(&dst[at], &out[at], a.data(), n * sizeof(float));
            EXPECT_EQ(want_copy, dst) << at << ", " << n;
            EXPECT_EQ(want_copy, out) << at << ", " << n;
            out = std::vector<float>(80, -1);
            pvn_bytes_copy(nullptr, &out[at], a.data(), n * sizeof(float));
            EXPECT_EQ(want_copy, out) << at << ", " << n;
            out = std::vector<float>(80, -1);
            pvn_values_add(PVN_FLOAT32, nullptr, &out[at], a.data(), b.data(), n);
            EXPECT_EQ(want_sum, out) << at << ", " << n;
        }
    }
}

TEST(Values, EveryWrongByteIsFound)
{
    for (size_t len : {0, 1, 7, 8, 9, 100}) {
        std::vector<unsigned char> b(len);
        size_t first = 0;

        pvn_bytes_fill(b.data(), len, 42);
        EXPECT_EQ(pvn_bytes_check(b.data(), len, 42, &first), 0u);
        for (size_t i = 0; i < len; i++) {
            b[i] ^= 1;
            EXPECT_EQ(pvn_bytes_check(b.data(), len, 42, &first), 1u);
            EXPECT_EQ(first, i);
            b[i] ^= 1;
        }
        if (len > 8) {
            EXPECT_GT(pvn_bytes_check(b.data(), len, 43, &first), len / 2);
        }
    }
}

class LauncherEnv : public testing::Test
{
  protected:
    void SetUp() override
    {
        for (const char *v : {"RANK",
                              "WORLD_SIZE",
                              "LOCAL_RANK",
                              "MASTER_ADDR",
                              "MASTER_PORT",
                              "TORCHELASTIC_RUN_ID",
                              "TORCHELASTIC_USE_AGENT_STORE",
                              "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK",
                              "OMPI_COMM_WORLD_LOCAL_SIZE",
                              "PMIX_NAMESPACE",
                              "PMI_RANK",
                              "PMI_SIZE",
                              "PMI_JOBID",
                              "MPI_LOCALNRANKS",
                              "SLURM_PROCID",
                              "SLURM_NTASKS",
                              "SLURM_STEP_NUM_TASKS",
                              "SLURM_LOCALID",
                              "SLURM_JOB_ID",
                              "SLURM_STEP_ID",
                              "SLURM_DISTRIBUTION",
                              "FAKEPMIX_HOST",
                              "SLURM_STEP_NODELIST"})
            unsetenv(v);
    }
    void TearDown() override
    {
        SetUp();
    }
    int Read(std::map<std::string, std::string> env)
    {
        SetUp();
        for (auto &[k, v] : env)
            setenv(k.c_str(), v.c_str(), 1);
        return pvn_launch_env_read(&le, why, sizeof(why));
    }
    pvn_launch_env le;
    char why[256] = "";
};

TEST_F(LauncherEnv, NoLauncherIsSeenWithoutAStep)
{
    ASSERT_EQ(Read({}), 0);
    EXPECT_EQ(le.launcher, nullptr);
    // The batch script has these variables, too, and is not a step.
    ASSERT_EQ(Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), 0);
    EXPECT_EQ(le.launcher, nullptr);
}

TEST_F(LauncherEnv, TorchrunSaysRankAndMeetingPlace)
{
    ASSERT_EQ(Read({{"RANK", "3"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"MASTER_ADDR", "node7"},
                    {"MASTER_PORT", "29500"}}),
              0);
    EXPECT_STREQ(le.launcher, "torchrun");
    EXPECT_EQ(le.rank, 3);
    EXPECT_EQ(le.nranks, 8);
    EXPECT_STREQ(le.master, "node7");
    EXPECT_EQ(le.port, 29500);
    // Here torchrun's agent already listens on MASTER_PORT.
    ASSERT_EQ(Read({{"RANK", "0"},
                    {"WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "h"},
                    {"MASTER_PORT", "29500"},
                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
              0);
    EXPECT_EQ(le.port, 29501);
}

TEST_F(LauncherEnv, MpirunOnOneMachineMeetsOnLoopback)
{
    ASSERT_EQ(Read({{"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                    {"PMIX_NAMESPACE", "job-17"}}),
              0);
    EXPECT_STREQ(le.launcher, "mpirun");
    EXPECT_STREQ(le.master, "127.0.0.1") << "all ranks are on one machine";
    int port = le.port;
    EXPECT_GE(port, 1024);
    ASSERT_EQ(Read({{"OMPI_COMM_WORLD_RANK", "2"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                    {"PMIX_NAMESPACE", "job-17"}}),
              0);
    EXPECT_EQ(le.port, port) << "the same in all ranks";
    EXPECT_STREQ(le.master, "") << "nothing says where rank 0 is";
}

TEST_F(LauncherEnv, PmiAndSrunAreUnderstood)
{
    ASSERT_EQ(Read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}}), 0);
    EXPECT_STREQ(le.launcher, "PMI");
    ASSERT_EQ(Read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}), 0);
    EXPECT_STREQ(le.master, "127.0.0.1");
    ASSERT_EQ(Read({{"SLURM_PROCID", "5"},
                    {"SLURM_STEP_NUM_TASKS", "16"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_STEP_NODELIST", "gpu[003-010,12],login"},
                    {"SLURM_JOB_ID", "9"},
                    {"SLURM_STEP_ID", "0"}}),
              0);
    EXPECT_STREQ(le.launcher, "srun");
    EXPECT_STREQ(le.master, "gpu003");
    EXPECT_EQ(le.rank, 5);
}

// srun -m arbitrary may put rank 0 on any host of the list of nodes, whose order differs. PMIx has rank 0's host.
TEST_F(LauncherEnv, PmixComesBeforeTheListOfNodes)
{
    std::map<std::string, std::string> step{{"SLURM_PROCID", "0"},
                                            {"SLURM_STEP_NUM_TASKS", "2"},
                                            {"SLURM_STEP_NODELIST", "a[1-2]"},
                                            {"SLURM_JOB_ID", "9"}};
    void *pmix = dlopen(PVN_BUILDDIR "/tests/support/.libs/libpmix.so.2", RTLD_NOW);

    ASSERT_NE(pmix, nullptr) << dlerror();
    ASSERT_EQ(Read(step), 0);
    EXPECT_EQ(pvn_pmix_find_master(&le), 0);
    EXPECT_STREQ(le.master, "a1") << "there is no PMIx";
    step["SLURM_DISTRIBUTION"] = "arbitrary";
    ASSERT_EQ(Read(step), 0);
    EXPECT_EQ(pvn_pmix_find_master(&le), -ENOENT) << "the list does not say it: " << le.master;
    step["PMIX_NAMESPACE"] = "slurm.pmix.9.0";
    step["FAKEPMIX_HOST"] = "a2";
    ASSERT_EQ(Read(step), 0);
    EXPECT_EQ(pvn_pmix_find_master(&le), 0);
    EXPECT_STREQ(le.master, "a2");
    step.erase("SLURM_DISTRIBUTION");
    ASSERT_EQ(Read(step), 0);
    EXPECT_EQ(pvn_pmix_find_master(&le), 0);
    EXPECT_STREQ(le.master, "a2");
    // MASTER_ADDR comes from the user and has precedence.
    step["MASTER_ADDR"] = "a3";
    ASSERT_EQ(Read(step), 0);
    EXPECT_EQ(pvn_pmix_find_master(&le), 0);
    EXPECT_STREQ(le.master, "a3");
    dlclose(pmix);
}

TEST_F(LauncherEnv, ABadValueIsNamed)
{
    EXPECT_EQ(Read({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), -EINVAL);
    EXPECT_NE(strstr(why, "RANK=x"), nullptr) << why;
    EXPECT_EQ(Read({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), -EINVAL);
    EXPECT_NE(strstr(why, "not below"), nullptr) << why;
    EXPECT_EQ(Read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "99999"}}), -EINVAL);
    EXPECT_NE(strstr(why, "MASTER_PORT=99999"), nullptr) << why;
}

TEST(FirstHost, TheFirstHostOfANodeListIsFound)
{
    const std::map<std::string, std::string> want{
        {"a", "a"},
        {"a,b", "a"},
        {"n[1-3]", "n1"},
        {"n[07,09]", "n07"},
        {"n[1-2]-ib,x", "n1-ib"},
        {"n1,n[2-3]", "n1"},
    };
    char host[64];

    for (auto &[list, first] : want) {
        ASSERT_EQ(pvn_launch_first_host(list.c_str(), host, sizeof(host)), 0) << list;
        EXPECT_EQ(host, first);
    }
    EXPECT_EQ(pvn_launch_first_host("n[", host, sizeof(host)), -EINVAL);
    EXPECT_EQ(pvn_launch_first_host("n[1", host, sizeof(host)), -EINVAL);
    EXPECT_EQ(pvn_launch_first_host("", host, sizeof(host)), -EINVAL);
}

std::string Testnet()
{
    return PVN_BUILDDIR "/tests/support/.libs/testnet.so";
}

TEST(Driver, PicksTheRequestedVersion)
{
    pvn_netdrv *d;
    char why[512];

    ASSERT_EQ(pvn_netdrv_open(Testnet().c_str(), 0, &d, why, sizeof(why)), 0) << why;
    EXPECT_EQ(pvn_netdrv_abi(d), 12);
    EXPECT_EQ(pvn_netdrv_exported(d), 1u << 4 | 1u << 6 | 1u << 12);
    EXPECT_EQ(pvn_netdrv_max_requests(d), 32);
    pvn_netdrv_close(d);
    ASSERT_EQ(pvn_netdrv_open(Testnet().c_str(), 4, &d, why, sizeof(why)), 0) << why;
    EXPECT_EQ(pvn_netdrv_abi(d), 4);
    EXPECT_EQ(pvn_netdrv_max_requests(d), 8);
    EXPECT_EQ(pvn_netdrv_max_group(d), 1);
    EXPECT_EQ(pvn_netdrv_handle_size(d), 64u);
    pvn_netdrv_close(d);
    EXPECT_EQ(pvn_netdrv_open(Testnet().c_str(), 9, &d, why, sizeof(why)), -EPROTO);
    EXPECT_NE(strstr(why, "it has v4 v6 v12"), nullptr) << why;
    EXPECT_EQ(pvn_netdrv_open("/nowhere/x.so", 0, &d, why, sizeof(why)), -ENOENT);
    EXPECT_NE(strstr(why, "/nowhere/x.so"), nullptr) << why;
    EXPECT_EQ(pvn_netdrv_open("libc.so.6", 0, &d, why, sizeof(why)), -ENOENT)
        << "a name, not a file";
    EXPECT_EQ(pvn_netdrv_open("x", 3, &d, why, sizeof(why)), -EINVAL);
}

void QuietLog(ncclDebugLogLevel, unsigned long, const char *, int, const char *, ...)
{
}

// Both ends are in one thread. The blocking accept of v4 would hang there without the driver.
class DriverVersions : public testing::TestWithParam<int>
{
};

TEST_P(DriverVersions, CarryAMessage)
{
    pvn_netdrv *d;
    char why[512], handle[NCCL_NET_HANDLE_MAXSIZE] = "";
    void *ctx, *lcomm, *scomm = nullptr, *rcomm = nullptr, *smh, *rmh, *sreq = nullptr,
                       *rreq = nullptr;
    char out[1000], in[2000];
    int tag = 3, done = 0, size = -1;
    size_t room = sizeof(in);
    void *data = in;

    ASSERT_EQ(pvn_netdrv_open(Testnet().c_str(), GetParam(), &d, why, sizeof(why)), 0) << why;
    ASSERT_EQ(pvn_netdrv_init(d, &ctx, 1, nullptr, QuietLog, nullptr), ncclSuccess);
    ASSERT_EQ(pvn_netdrv_listen(d, ctx, 0, handle, &lcomm), ncclSuccess);
    for (Deadline wait; wait.left() && (!scomm || !rcomm);) {
        if (!rcomm) {
            ASSERT_EQ(pvn_netdrv_accept(d, lcomm, &rcomm), ncclSuccess);
        }
        if (!scomm) {
            ASSERT_EQ(pvn_netdrv_connect(d, ctx, 0, handle, &scomm), ncclSuccess);
        }
        usleep(1000);
    }
    ASSERT_TRUE(scomm && rcomm);
    ASSERT_EQ(pvn_netdrv_reg_mr(d, scomm, out, sizeof(out), NCCL_PTR_HOST, &smh), ncclSuccess);
    ASSERT_EQ(pvn_netdrv_reg_mr(d, rcomm, in, sizeof(in), NCCL_PTR_HOST, &rmh), ncclSuccess);
    pvn_bytes_fill(out, sizeof(out), 9);
    ASSERT_EQ(pvn_netdrv_irecv(d, rcomm, 1, &data, &room, &tag, &rmh, nullptr, &rreq), ncclSuccess);
    ASSERT_EQ(pvn_netdrv_isend(d, scomm, out, sizeof(out), tag, smh, nullptr, &sreq), ncclSuccess);
    for (Deadline wait; wait.left() && !done;) {
        if (sreq) {
            ASSERT_EQ(pvn_netdrv_test(d, sreq, &done, nullptr), ncclSuccess);
            sreq = done ? nullptr : sreq;
        }
        ASSERT_EQ(pvn_netdrv_test(d, rreq, &done, &size), ncclSuccess);
    }
    EXPECT_EQ(size, static_cast<int>(sizeof(out)));
    EXPECT_EQ(memcmp(in, out, sizeof(out)), 0);
    ASSERT_EQ(pvn_netdrv_dereg_mr(d, scomm, smh), ncclSuccess);
    ASSERT_EQ(pvn_netdrv_dereg_mr(d, rcomm, rmh), ncclSuccess);
    EXPECT_EQ(pvn_netdrv_close_send(d, scomm), ncclSuccess);
    EXPECT_EQ(pvn_netdrv_close_recv(d, rcomm), ncclSuccess);
    EXPECT_EQ(pvn_netdrv_close_listen(d, lcomm), ncclSuccess);
    EXPECT_EQ(pvn_netdrv_finalize(d, ctx), ncclSuccess);
    pvn_netdrv_close(d);
}
INSTANTIATE_TEST_SUITE_P(All, DriverVersions, testing::Values(4, 6, 12));

TEST(Driver, WhatAVersionCannotExpressIsNotPassedOn)
{
    pvn_netdrv *d;
    char why[512];
    void *req = nullptr, *mh = nullptr, *data[2] = {nullptr, nullptr}, *mhs[2] = {nullptr, nullptr};
    size_t sizes[2] = {1, 1};
    int tags[2] = {0, 0};
    ncclNetVDeviceProps_v12_t v{};
    int dev;

    ASSERT_EQ(pvn_netdrv_open(Testnet().c_str(), 4, &d, why, sizeof(why)), 0) << why;
    EXPECT_EQ(pvn_netdrv_irecv(d, nullptr, 2, data, sizes, tags, mhs, nullptr, &req),
              ncclInvalidArgument);
    EXPECT_EQ(pvn_netdrv_isend(d, nullptr, nullptr, 3ul << 30, 0, nullptr, nullptr, &req),
              ncclInvalidArgument);
    EXPECT_EQ(pvn_netdrv_reg_mr(d, nullptr, nullptr, 3ul << 30, NCCL_PTR_HOST, &mh),
              ncclInvalidArgument);
    EXPECT_EQ(pvn_netdrv_reg_dmabuf(d, nullptr, nullptr, 1, NCCL_PTR_CUDA, 0, 0, &mh),
              ncclInvalidUsage);
    EXPECT_EQ(pvn_netdrv_make_vdevice(d, &dev, &v), ncclInvalidUsage);
    pvn_netdrv_close(d);
}

} // namespace

// ---- memory ----

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 // Linux 6.1
#endif

TEST(Memory, PinnedPagesStayWhereTheyAreUntilReleased)
{
    const size_t len = 8 << 20;
    void *p = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char why[160] = "";
    ASSERT_NE(p, MAP_FAILED);
    int fd = pvn_pin(p, len, why, sizeof(why));
    if (fd < 0) {
        munmap(p, len);
        GTEST_SKIP() << "memory cannot be pinned here: " << why;
    }
    memset(p, 1, len);
    EXPECT_EQ(madvise(p, len, MADV_HUGEPAGE), 0);
    auto first = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(p) + (2 << 20) - 1) &
                                          ~uintptr_t((2 << 20) - 1));
    EXPECT_NE(madvise(first, 2 << 20, MADV_COLLAPSE), 0);
    close(fd);
    munmap(p, len);
}

TEST(Memory, TheOptionChoosesItAndAllRanksHaveToAgree)
{
    pvn_perf_opts o, other;
    std::string err;
    ASSERT_EQ(Parse({"p2p", "--comms", "16"}, &o, &err), PVN_PERF_OK) << err;
    EXPECT_EQ(o.memory, PVN_PERF_PINNED_IF_POSSIBLE);
    EXPECT_EQ(o.channels, 16);
    ASSERT_EQ(Parse({"p2p", "--comms", "16", "--memory", "movable"}, &other, &err), PVN_PERF_OK);
    EXPECT_EQ(other.memory, PVN_PERF_MOVABLE);
    EXPECT_NE(pvn_perf_opts_token(&o), pvn_perf_opts_token(&other));
}
