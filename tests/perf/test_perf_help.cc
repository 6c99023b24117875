// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the help of pvn-perf, a command line without a mode, and bash completion.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "tests/perf/perf_run.h"
#include "tests/support/completed.h"

namespace
{

TEST(Help, FitsOneScreenAndBeginsWithExamples)
{
    Outcome help = Perf("--help");
    std::istringstream lines(help.out);
    std::string line;
    int n = 0, first_example = 0, examples = 0;

    EXPECT_EQ(help.status, 0);
    while (std::getline(lines, line)) {
        n++;
        EXPECT_LE(line.size(), 80u) << line;
        if (line.rfind("  pvn-perf ", 0) != 0 && line.rfind("  srun ", 0) != 0)
            continue;
        examples++;
        first_example = first_example ? first_example : n;
    }
    EXPECT_LE(n, 24);
    EXPECT_LE(first_example, 5);
    EXPECT_GE(examples, 6);
    for (const char *mode : {"p2p", "ring", "scale", "mesh", "serve"})
        EXPECT_NE(help.out.find(std::string("pvn-perf ") + mode), std::string::npos) << mode;
}

TEST(Help, OptionsWithoutAModeAreNoRiddle)
{
    Outcome r = Perf("--ranks 4");

    EXPECT_EQ(r.status, 2);
    EXPECT_EQ(r.err, "pvn-perf: the options name no mode, which says what is measured: one of p2p, "
                     "ring, scale, mesh and serve, as in pvn-perf ring --ranks 4 (see pvn-perf "
                     "--help)\n");
    EXPECT_NE(Perf("--check").err.find("as in pvn-perf ring (see"), std::string::npos);
}

TEST(Help, HelpVersionAndUsage)
{
    EXPECT_EQ(Perf("--help=all").status, 0);
    EXPECT_NE(Perf("--help=all").out.find("Exit status"), std::string::npos);
    EXPECT_EQ(Perf("-h").out, Perf("--help").out);
    EXPECT_NE(Perf("--help=none").err.find("expected --help or --help=all"), std::string::npos);
    EXPECT_EQ(Perf("--version").out.find("pvn-perf "), 0u);
    EXPECT_EQ(Perf("-V").out, Perf("--version").out);
    EXPECT_EQ(Perf("").status, 2);
    EXPECT_EQ(Perf("").err, Perf("--help").out);
    EXPECT_EQ(Perf("ring --ranks many").status, 2);
}

TEST(Help, BashCompletesModesOptionsAndValues)
{
    EXPECT_EQ(Completed("pvn-perf r"), (std::set<std::string>{"ring"}));
    EXPECT_EQ(Completed("pvn-perf ring --preset g"), (std::set<std::string>{"gpt2"}));
    EXPECT_EQ(Completed("pvn-perf ring --collective allt"),
              (std::set<std::string>{"alltoall", "alltoallv"}));
    EXPECT_EQ(Completed("pvn-perf p2p --pl"), (std::set<std::string>{"--plot", "--plugin"}));
    EXPECT_EQ(Completed("pvn-perf p2p --slo"), (std::set<std::string>{""})) << "not for p2p";
    EXPECT_EQ(Completed("pvn-perf m"), (std::set<std::string>{"mesh"}));
    EXPECT_EQ(Completed("pvn-perf mesh --d"), (std::set<std::string>{"--depth", "--dev"}));
    EXPECT_EQ(Completed("pvn-perf serve --max"),
              (std::set<std::string>{"--max-memory", "--max-time"}));
    EXPECT_EQ(Completed("pvn-perf p2p --max"), (std::set<std::string>{""})) << "not for p2p";
    EXPECT_EQ(Completed("pvn-perf ring --memory \"\""),
              (std::set<std::string>{"gpu", "host", "pinned"}));
    EXPECT_EQ(Completed("pvn-perf --"), Documented(Perf("--help=all").out));
}

} // namespace
