// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Parses a line of hwloc's XML, which has one element per line.
#ifndef PVN_TESTS_TOPO_HWLOC_LINE_H
#define PVN_TESTS_TOPO_HWLOC_LINE_H

#include <string>

// The value of an attribute; "" if the line does not have it.
inline std::string attribute(const std::string &line, const std::string &key)
{
    size_t at = line.find(" " + key + "=\"");

    if (at == std::string::npos) {
        return "";
    }
    at += key.size() + 3;
    return line.substr(at, line.find('"', at) - at);
}

#endif
