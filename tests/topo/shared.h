/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Finds the folder of collected machine descriptions: $PVN_SHARED, else ../shared beside the source tree.
#ifndef PVN_TESTS_TOPO_SHARED_H
#define PVN_TESTS_TOPO_SHARED_H

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/paths.h"

inline std::string shared_topologies()
{
    const char *env = std::getenv("PVN_SHARED");
    return (env ? std::string(env) : std::string(PVN_SRCDIR "/../shared")) + "/topologies";
}

inline std::string read_file(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

#endif
