// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// hwloc's XML has one element a line.
#ifndef PVN_TESTS_TOPO_HWLOC_LINE_H
#define PVN_TESTS_TOPO_HWLOC_LINE_H

#include <string>

// The value of an attribute, "" without it.
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
