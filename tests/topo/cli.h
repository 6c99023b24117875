/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Functions that run the program pvn-topo and return its exit status and output.
#ifndef PVN_TESTS_TOPO_CLI_H
#define PVN_TESTS_TOPO_CLI_H

#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/topo/shared.h"
#include "tests/support/paths.h"

struct Result {
    int status; // -1: killed by a signal
    std::string out, err;
};

// Runs pvn-topo in the directory dir. Its environment has only a few variables and env ("NAME=VALUE ...").
inline Result run_tool(const std::string &dir, const std::string &args, const std::string &env = "")
{
    std::string out = dir + "/stdout", err = dir + "/stderr";
    std::string command = "cd '" + dir + "' && env -i PATH=\"$PATH\" LC_ALL=C " +
                          "ASAN_OPTIONS=\"$ASAN_OPTIONS\" LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" " +
                          env + " '" PVN_BUILDDIR "/topo/pvn-topo' </dev/null " + args + " >'" +
                          out + "' 2>'" + err + "'";
    int rc = std::system(command.c_str());
    return {WIFEXITED(rc) && WEXITSTATUS(rc) < 128 ? WEXITSTATUS(rc) : -1, read_file(out),
            read_file(err)};
}

// Replaces each run of white space by one space, because pvn-topo wraps its sentences.
inline std::string squeeze(const std::string &text)
{
    std::istringstream in(text);
    std::string all;
    for (std::string word; in >> word;)
        all += (all.empty() ? "" : " ") + word;
    return all;
}

#endif
