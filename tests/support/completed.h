// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Bash completions by a tool's script, which is built from the tool's table of options.
#ifndef PVN_TESTS_SUPPORT_COMPLETED_H
#define PVN_TESTS_SUPPORT_COMPLETED_H

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/paths.h"

// The completions of the last of these words. The first word is "pvn-perf" or "pvn-topo".
inline std::set<std::string> Completed(const std::string &words)
{
    const bool perf = words.rfind("pvn-perf", 0) == 0;
    const std::string cmd =
        "bash -c 'source " PVN_BUILDDIR +
        std::string(perf ? "/plugin/perf/pvn-perf.bash" : "/topo/pvn-topo.bash") +
        "; COMP_WORDS=(" + words + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _pvn_" +
        (perf ? "perf" : "topo") + "; printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
    std::set<std::string> all;
    char line[256];
    FILE *out = popen(cmd.c_str(), "r");

    while (out && fgets(line, sizeof(line), out))
        all.insert(std::string(line, strcspn(line, "\n")));
    EXPECT_TRUE(out && pclose(out) == 0) << cmd;
    return all;
}

// The options in the output of --help=all: those that are completed if no mode or command precedes.
inline std::set<std::string> Documented(const std::string &help)
{
    std::set<std::string> all = {"--help=all"};
    std::istringstream words(help);

    for (std::string w; words >> w;)
        if (w.rfind("--", 0) == 0)
            all.insert(w.substr(0, w.find_first_not_of("abcdefghijklmnopqrstuvwxyz-")));
    return all;
}

#endif
