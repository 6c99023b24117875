// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo check of a job's key: whether this host can use it, and whether all hosts have the same one.
#include <gtest/gtest.h>

#include "config.h"
#include "support/key_file.h"
#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace
{

class CheckKey : public testing::Test
{
  protected:
    TempDir dir;

    void SetUp() override
    {
        write_file(dir.path + "/right", std::string(40, 'r'));
        write_file(dir.path + "/other", std::string(41, 'o'));
        write_file(dir.path + "/loose", std::string(40, 'r'), 0640);
        write_file(dir.path + "/short", "r");
    }
    // Neither other processes nor a home directory influence the result.
    std::string env(const std::string &key)
    {
        return "NCCL_PVRDMA_STATS_DIR=" + dir.path + "/none NCCL_CONF_FILE=" + dir.path + "/none" +
               (key.empty() ? "" : " NCCL_PVRDMA_KEY_FILE=" + dir.path + "/" + key);
    }
    Result check(const std::string &args, const std::string &env)
    {
        Result r = run_tool(dir.path, "--interval 0 " + args, env);
        // The output contains neither the keys nor parts of them.
        for (const char *part : {"rrrr", "oooo"})
            EXPECT_EQ(std::string::npos, (r.out + r.err).find(part));
        return r;
    }
    // The row about the key; "" if there is none.
    std::string row(const std::string &args, const std::string &env)
    {
        std::string text = squeeze(check(args, env).out);
        size_t at = text.find("key NCCL_PVRDMA_KEY_FILE: ");
        return at == std::string::npos ? "" : text.substr(at < 8 ? 0 : at - 8, 500);
    }
};

TEST_F(CheckKey, NothingIsSaidWithoutOne)
{
    EXPECT_EQ("", row("--all check", env("")));
    EXPECT_EQ("", row("--all --no-env check", env("right")));
    EXPECT_EQ(std::string::npos, check("--json check", env("")).out.find("\"key\""));
}

#ifdef HAVE_OPENSSL

TEST_F(CheckKey, ARowSaysWhetherThisHostCanUseIt)
{
    EXPECT_SAYS(row("--all check", env("right")), "its owner alone may use it: 40 bytes, label ");
    const struct {
        std::string env;
        const char *says, *remedy;
    } cases[] = {
        {env("loose"), "others than its owner may use ", "`chmod 600` it"},
        {env("missing"), "cannot be opened: ", "every rank needs it"},
        {env("short"), "has 1 bytes, a key has 32 to 4096", "`pvn-perf --make-key FILE`"},
        {env("right") + " NCCL_PVRDMA_SSL_LIB=/nowhere/libssl.so.3", "/nowhere/libssl.so.3",
         "correct it or unset it"},
    };
    for (const auto &c : cases) {
        std::string text = row("check", c.env);
        EXPECT_SAYS(text, "FAIL");
        EXPECT_SAYS(text, "no connection is made: ");
        EXPECT_SAYS(text, c.says);
        EXPECT_SAYS(text, c.remedy);
        EXPECT_EQ(text.find(c.remedy), text.rfind(c.remedy)) << "it says so twice: " << text;
        EXPECT_EQ(1, check("check", c.env).status);
    }
}

TEST_F(CheckKey, HostsAreComparedByLengthAndLabel)
{
    for (const char *key : {"right", "other", "loose"})
        for (const char *host : {"1", "2"})
            std::ofstream(dir.path + "/" + key + host + ".json")
                << check("--json check", env(key)).out;
    EXPECT_SAYS(read_file(dir.path + "/right1.json"), "\"fact\": \"key\"");
    std::string same = squeeze(check("check right1.json right2.json", env("")).out);
    EXPECT_EQ(std::string::npos, same.find("the job's key")) << same;
    std::string text = squeeze(check("check right1.json right2.json other1.json", env("")).out);
    EXPECT_SAYS(text, "ODD the job's key: ");
    EXPECT_SAYS(text, ": 41 bytes, label ");
    EXPECT_SAYS(text, "the 2 others: 40 bytes, label ");
    text = squeeze(check("check right1.json right2.json loose1.json", env("")).out);
    EXPECT_SAYS(text, ": cannot be used: others than its owner may use ");
}

#else

TEST_F(CheckKey, ABuildWithoutOpenSslSaysSo)
{
    EXPECT_SAYS(row("check", env("right")), "this build of the plugin has no OpenSSL");
}

#endif

} // namespace
