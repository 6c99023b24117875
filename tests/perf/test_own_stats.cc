// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests what pvn-perf reads of the plugin that it has loaded: its statistics file and the SHA-256 of its library.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/suggest.h"
#include "perf/rank/own_stats.h"
#include "tools/sha256.h"

extern "C" {
#include "base/param.h"
#include "stats/stats.h"
}

namespace
{

// A fixture whose statistics file is as the plugin writes it, with comms that are open, closed and failed.
class OwnStats : public testing::Test
{
  protected:
    void SetUp() override
    {
        char t[] = "/tmp/pvn-own-stats.XXXXXX";
        const char *old = getenv("NCCL_PVRDMA_STATS_DIR");

        saved = old ? old : "";
        dir = mkdtemp(t);
        setenv("NCCL_PVRDMA_STATS_DIR", dir.c_str(), 1);
    }
    void TearDown() override
    {
        pvn_stats_close();
        pvn_params_unload();
        if (saved.empty())
            unsetenv("NCCL_PVRDMA_STATS_DIR");
        else
            setenv("NCCL_PVRDMA_STATS_DIR", saved.c_str(), 1);
        rmdir(dir.c_str());
    }
    void Open()
    {
        pvn_err err = PVN_ERR_INIT;

        ASSERT_EQ(pvn_params_load(&err), 0);
        pvn_stats_open(12);
        ASSERT_STRNE(pvn_stats_path(), "");
    }
    static pvn_stat *Comm(bool sender, const char *lanes, bool rings)
    {
        pvn_stat_counts n{};
        pvn_stat *s = pvn_stat_new(PVN_STAT_SETUP, sender, "p0");

        pvn_stat_state(s, PVN_STAT_UP, "UP", "");
        pvn_stat_lanes(s, lanes);
        n.msgs = 100;
        n.known = rings ? PVN_STAT_KNOWS_DOORBELLS : PVN_STAT_KNOWS_RETRANSMITS;
        n.doorbells_send = 90;
        n.doorbells_recv = 10;
        n.doorbells_empty = 7;
        pvn_stat_put(s, &n, "");
        return s;
    }
    std::string dir, saved;
    pvn_own_stats own;
};

TEST_F(OwnStats, DoorbellsAndLanesOfThisProcess)
{
    char text[32];

    EXPECT_FALSE(pvn_own_stats_read(&own)) << "no file yet";
    Open();
    pvn_stat *listener = pvn_stat_new(PVN_STAT_LISTEN, false, "p0");
    pvn_stat *tcp = Comm(true, "tcp on lo, 2 streams", false);
    ASSERT_TRUE(pvn_own_stats_read(&own));
    EXPECT_EQ(own.doorbells.comms, 0u) << "TCP counts none";
    EXPECT_EQ(own.doorbells.send, 0u);
    EXPECT_STREQ(pvn_via_text(own.via, text, sizeof(text)), "tcp");
    EXPECT_STREQ(own.lanes, "tcp on lo, 2 streams");
    pvn_stat *out = Comm(true, "rdma on p0, record mode; rdma on p1, record mode", true);
    pvn_stat *in = Comm(false, "rdma on p0, record mode", true);
    ASSERT_TRUE(pvn_own_stats_read(&own));
    EXPECT_EQ(own.doorbells.comms, 2u);
    EXPECT_EQ(own.doorbells.msgs, 100u) << "its sender counts a message";
    EXPECT_EQ(own.doorbells.send, 180u);
    EXPECT_EQ(own.doorbells.recv, 20u);
    EXPECT_EQ(own.doorbells.empty, 14u);
    EXPECT_STREQ(pvn_via_text(own.via, text, sizeof(text)), "rdma+tcp");
    for (pvn_stat *s : {listener, tcp, out, in})
        pvn_stat_end(s);
    ASSERT_TRUE(pvn_own_stats_read(&own));
    EXPECT_EQ(own.doorbells.send, 180u) << "closed comms count as well";
    EXPECT_EQ(own.via, 0u) << "and carry nothing any more";
}

TEST_F(OwnStats, FilesOfOthersDoNotCount)
{
    Open();
    pvn_stat *s = Comm(true, "rdma on p0", true);
    std::string path = pvn_stats_path(), other = dir + "/1-1-0.stat";

    ASSERT_EQ(rename(path.c_str(), other.c_str()), 0);
    EXPECT_FALSE(pvn_own_stats_read(&own));
    EXPECT_EQ(own.doorbells.comms, 0u);
    ASSERT_EQ(rename(other.c_str(), path.c_str()), 0);
    EXPECT_TRUE(pvn_own_stats_read(&own));
    pvn_stat_end(s);
}

TEST_F(OwnStats, TransportsAreKnownFromTheLanesText)
{
    EXPECT_EQ(pvn_via_of_lanes(""), 0u);
    EXPECT_EQ(pvn_via_of_lanes("tcp"), static_cast<uint32_t>(PVN_VIA_TCP));
    EXPECT_EQ(pvn_via_of_lanes("tcp on rdma0; tcp on lo"), static_cast<uint32_t>(PVN_VIA_TCP));
    EXPECT_EQ(pvn_via_of_lanes("rdmax on a"), static_cast<uint32_t>(PVN_VIA_OTHER));
}

// The examples of FIPS 180-4. Lengths around the padding's boundaries are compared with sha256sum.
TEST(Sha256, SumsAreThoseOfTheStandard)
{
    char out[PVN_SHA256_TEXT];

    pvn_sha256("abc", 3, out);
    EXPECT_STREQ("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", out);
    pvn_sha256("", 0, out);
    EXPECT_STREQ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", out);
    pvn_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, out);
    EXPECT_STREQ("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1", out);
    EXPECT_EQ(-ENOENT, pvn_sha256_file("/nowhere/file", out));
    EXPECT_STREQ("", out);
    for (int n : {55, 56, 63, 64, 65, 119, 120, 128, 40000}) {
        std::string data(static_cast<size_t>(n), 'x'),
            path = "/tmp/pvn-sha256-" + std::to_string(getpid());
        char line[80] = "", by_file[PVN_SHA256_TEXT];
        FILE *f = fopen(path.c_str(), "w");
        ASSERT_EQ(data.size(), fwrite(data.data(), 1, data.size(), f));
        fclose(f);
        FILE *p = popen(("sha256sum " + path).c_str(), "r");
        ASSERT_NE(nullptr, fgets(line, 65, p));
        pclose(p);
        pvn_sha256(data.data(), data.size(), out);
        EXPECT_STREQ(line, out) << n;
        EXPECT_EQ(0, pvn_sha256_file(path.c_str(), by_file));
        EXPECT_STREQ(line, by_file) << n;
        unlink(path.c_str());
    }
}

TEST(Suggest, NearNamesOnly)
{
    auto best = [](const char *name) {
        pvn_suggest s;
        pvn_suggest_start(&s, name);
        for (const char *c : {"p2p", "ring", "scale", "boot-timeout"})
            pvn_suggest_offer(&s, c);
        return s.best ? std::string(s.best) : "";
    };
    EXPECT_EQ("ring", best("rnig")) << "swapped";
    EXPECT_EQ("scale", best("SCALES")) << "other case, one more";
    EXPECT_EQ("boot-timeout", best("boottimeout"));
    EXPECT_EQ("", best("allreduce"));
    EXPECT_EQ("", best(std::string(200, 'r').c_str()));
}

} // namespace
