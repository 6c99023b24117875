// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The help of pvn-perf, a command line without a mode, and what bash completes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "tests/perf/perf_run.h"

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

// bash's completions of a command line, sorted.
std::set<std::string> Completed(const std::string &words)
{
    Dir d;
    std::string cmd = "bash -c 'source " PVN_SRCDIR "/plugin/perf/pvn-perf.bash; COMP_WORDS=(" +
                      words +
                      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _pvn_perf; "
                      "printf \"%s\\n\" \"${COMPREPLY[@]}\"' >" +
                      (d / "out");
    std::set<std::string> all;
    std::string line;

    EXPECT_EQ(system(cmd.c_str()), 0) << cmd;
    for (std::ifstream f(d / "out"); std::getline(f, line);)
        all.insert(line);
    return all;
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
    // Every option of --help=all is offered, and nothing else.
    std::istringstream words(Perf("--help=all").out);
    std::set<std::string> documented;
    for (std::string w; words >> w;)
        if (w.rfind("--", 0) == 0)
            documented.insert(w.substr(0, w.find_first_not_of("abcdefghijklmnopqrstuvwxyz-")));
    documented.insert("--help=all");
    EXPECT_EQ(Completed("pvn-perf --"), documented);
}

} // namespace
