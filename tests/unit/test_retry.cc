// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The policy for repeated attempts to connect. Each kind's pauses double up to a limit of its own,
// as in ARCHITECTURE's table.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

extern "C" {
#include "base/clock.h"
#include "connect/retry.h"
}

namespace
{

const std::vector<pvn_retry> kinds = {PVN_RETRY_DIAL,   PVN_RETRY_FAILOVER, PVN_RETRY_LOSSES,
                                      PVN_RETRY_RETURN, PVN_RETRY_HOME,     PVN_RETRY_CONTROL,
                                      PVN_RETRY_PROBE,  PVN_RETRY_RESOLVE};

TEST(Retry, EachPauseIsTwiceTheOneBeforeUpToTheLongest)
{
    ASSERT_EQ(size_t(PVN_RETRIES), kinds.size());
    for (pvn_retry kind : kinds) {
        uint64_t pause = pvn_retry_next_ns(kind, 0);
        ASSERT_LT(0u, pause) << kind;
        for (unsigned failures = 0; failures < 40; failures++) {
            EXPECT_EQ(pause, pvn_retry_pause_ns(kind, failures)) << kind << ", " << failures;
            EXPECT_GE(pvn_retry_longest_ns(kind), pause) << kind;
            const uint64_t next = pvn_retry_next_ns(kind, pause);
            EXPECT_EQ(std::min(2 * pause, pvn_retry_longest_ns(kind)), next) << kind;
            pause = next;
        }
        EXPECT_EQ(pvn_retry_longest_ns(kind), pause) << kind;
        EXPECT_EQ(pause, pvn_retry_pause_ns(kind, UINT32_MAX)) << "at once";
    }
}

TEST(Retry, ItsLimitsAreThoseOfArchitecture)
{
    std::ifstream file(PVN_SRCDIR "/plugin/ARCHITECTURE.md");
    std::string line;
    size_t at = 0;
    bool in_it = false;
    while (std::getline(file, line) && at < kinds.size()) {
        if (line.rfind("| attempt | first pause |", 0) == 0) {
            in_it = true;
            std::getline(file, line);
            continue;
        }
        if (!in_it)
            continue;
        // | what | 10 ms | 1 s | 2 s |
        std::vector<std::string> cell;
        std::istringstream cut(line);
        for (std::string c; std::getline(cut, c, '|');)
            cell.push_back(c);
        ASSERT_LE(5u, cell.size()) << line;
        auto ns = [&](const std::string &text) {
            std::istringstream in(text);
            double value = 0;
            std::string unit;
            in >> value >> unit;
            return static_cast<uint64_t>(
                llround(value * (unit == "ms" ? PVN_NS_PER_MS : PVN_NS_PER_S)));
        };
        const pvn_retry kind = kinds[at++];
        EXPECT_EQ(ns(cell[2]), pvn_retry_next_ns(kind, 0)) << line;
        EXPECT_EQ(ns(cell[3]), pvn_retry_longest_ns(kind)) << line;
        EXPECT_EQ(ns(cell[4]), pvn_retry_answer_ns(kind)) << line;
    }
    EXPECT_EQ(kinds.size(), at) << "a row for each kind";
}

} // namespace
