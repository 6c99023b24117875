// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo stat under a launcher with a job's key: which copies can meet, and the output about sealed
// connections.
#include <gtest/gtest.h>

#include <unistd.h>

extern "C" {
#include "plugin/base/param.h"
#include "plugin/stats/stats.h"
}

#include "config.h"
#include "support/deadline.h"
#include "support/key_file.h"
#include "tests/topo/stat_saved.h"

namespace
{

class StatKey : public StatJob
{
  protected:
    void SetUp() override
    {
        pvn_params params = *pvn_params_get();

        write_file(dir.path + "/right", std::string(40, 'r'));
        write_file(dir.path + "/other", std::string(40, 'o'));
        write_file(dir.path + "/loose", std::string(40, 'r'), 0640);
        snprintf(params.stats_dir, sizeof(params.stats_dir), "%s/stats", dir.path.c_str());
        pvn_params_override(&params);
        pvn_stats_open(12);
    }
    void TearDown() override
    {
        pvn_stats_close();
        pvn_params_override(nullptr);
    }
    std::string env(int rank, const std::string &key)
    {
        return "NCCL_PVRDMA_STATS_DIR='" + dir.path + "/stats' OMPI_COMM_WORLD_SIZE=2 " +
               "PMIX_NAMESPACE=key" + std::to_string(getpid()) + "x" + std::to_string(meetings) +
               " MASTER_ADDR=127.0.0.1 OMPI_COMM_WORLD_RANK=" + std::to_string(rank) +
               (key.empty() ? "" : " NCCL_PVRDMA_KEY_FILE='" + dir.path + "/" + key + "'");
    }
    // Runs both ranks. Returns rank 0's result; rank 1's output is in `printed`.
    Result meet(const std::string &key0, const std::string &key1, const std::string &limit)
    {
        meetings++;
        EXPECT_EQ(
            0, std::system(("( cd '" + dir.path + "'; rm -f printed done; (env -i PATH=\"$PATH\" " +
                            "LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" " + env(1, key1) +
                            " '" PVN_BUILDDIR "/topo/pvn-topo' --timeout 20 stat >printed 2>&1; "
                            "touch done) & )")
                               .c_str()));
        Result r = run_tool(dir.path, "--timeout " + limit + " stat", env(0, key0));
        for (Deadline wait; wait.left() && access((dir.path + "/done").c_str(), F_OK) != 0;)
            usleep(10000);
        printed = squeeze(read_file(dir.path + "/printed"));
        return r;
    }
    int meetings = 0;
    std::string printed;
};

// The process of a job with a key is shown live and from a saved file, as text and as JSON.
TEST_F(StatKey, AColumnSaysWhatIsSealed)
{
    auto stat = [&](const std::string &args) {
        return run_tool(dir.path, args, "NCCL_PVRDMA_STATS_DIR='" + dir.path + "/stats'").out;
    };
    pvn_stat *comm[3];

    for (auto &c : comm)
        c = pvn_stat_new(PVN_STAT_SETUP, true, "eth0");
    pvn_stat_state(comm[0], PVN_STAT_UP, "UP", "");
    EXPECT_EQ(std::string::npos, stat("stat").find("sealed")) << "no key";
    EXPECT_SAYS(stat("--json stat"), "\"sealed\": \"none\"");
    pvn_stat_seal(comm[1], PVN_STAT_SEALED_CONTROL);
    pvn_stat_seal(comm[2], PVN_STAT_SEALED_DATA);
    for (pvn_stat *c : {comm[1], comm[2]})
        pvn_stat_state(c, PVN_STAT_UP, "UP", "");
    std::ofstream(dir.path + "/saved") << stat("--json stat");
    for (const char *of : {"stat", "stat saved"}) {
        std::string text = squeeze(stat(of));
        EXPECT_SAYS(text, "comm dir via sealed device state messages");
        EXPECT_SAYS(text, "1 send none eth0 UP");
        EXPECT_SAYS(text, "2 send control eth0 UP");
        EXPECT_SAYS(text, "3 send data eth0 UP");
    }
    // A file of an older release has no such field.
    std::ofstream(dir.path + "/old")
        << "{\"kind\": \"stat\", \"processes\": [" << process(1, {{true, 2, 0}}) << "]}";
    EXPECT_SAYS(stat("stat old"), "comm dir    via      device");
    EXPECT_SAYS(stat("--json stat old"), "\"sealed\": \"none\"");
    for (pvn_stat *c : comm)
        pvn_stat_end(c);
}

#ifdef HAVE_OPENSSL

TEST_F(StatKey, CopiesWithTheKeyMeet)
{
    Result r = meet("right", "right", "60");

    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ("", r.err);
    EXPECT_EQ("", printed);
    EXPECT_EQ(0u, r.out.find("no process waits for another: 1 process on 1 host\n")) << r.out;
}

// Each copy shows its own host, and both give the reason.
TEST_F(StatKey, ACopyWithAnotherKeyOrNoneIsRefusedAtBothEnds)
{
    const struct {
        const char *key0, *key1, *says0, *says1;
    } cases[] = {
        {"right", "other", "was refused: it has another key than rank 0 (40 bytes, label ",
         "refused this rank (1), which has a key (40 bytes, label "},
        {"right", "", "was refused: it has no key, rank 0 has one (40 bytes, label ",
         "refused this rank (1): it has no key, rank 0 has one (40 bytes, label "},
        {"", "right", "was refused: it has a key, rank 0 has none: set NCCL_PVRDMA_KEY_FILE",
         "it has a key, rank 0 has none: set NCCL_PVRDMA_KEY_FILE for all or for none"},
    };
    for (const auto &c : cases) {
        Result r = meet(c.key0, c.key1, "5");

        EXPECT_EQ(3, r.status);
        EXPECT_SAYS(squeeze(r.err), c.says0);
        EXPECT_SAYS(r.out, "rank 1 of the launcher: it did not come within 5 s");
        EXPECT_SAYS(printed, c.says1);
        EXPECT_SAYS(printed, "what this host has is shown");
        EXPECT_SAYS(printed, "test_stat_key pid ");
    }
}

TEST_F(StatKey, AKeyThatCannotBeUsedIsSaidAndNothingIsSent)
{
    Result r = run_tool(dir.path, "--timeout 1 stat", env(1, "loose"));

    EXPECT_SAYS(squeeze(r.err), "others than its owner may use ");
    EXPECT_SAYS(squeeze(r.err), "what this host has is shown");
    EXPECT_SAYS(r.out, "test_stat_key pid ");
    r = run_tool(dir.path, "--timeout 1 stat",
                 env(1, "right") + " NCCL_PVRDMA_SSL_LIB=/nowhere/libssl.so.3");
    EXPECT_SAYS(squeeze(r.err), "NCCL_PVRDMA_SSL_LIB=/nowhere/libssl.so.3: cannot open ");
}

#else

TEST_F(StatKey, ABuildWithoutOpenSslSaysSo)
{
    Result r = run_tool(dir.path, "--timeout 1 stat", env(1, "right"));

    EXPECT_SAYS(squeeze(r.err), "this build of the plugin has no OpenSSL");
    EXPECT_SAYS(r.out, "test_stat_key pid ");
}

#endif

} // namespace
