// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <infiniband/verbs.h>

#include <cctype>
#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "base/hints.h"
#include "base/param.h"
}

namespace
{

std::vector<pvn_hint> all_rows()
{
    size_t count;
    const pvn_hint *table = pvn_hint_table(&count);

    return {table, table + count};
}

/* Each row of the table has a text, and some situation selects it, so no earlier row hides it. */
class HintRow : public ::testing::TestWithParam<pvn_hint>
{
};

TEST_P(HintRow, IsReachableAndComplete)
{
    const pvn_hint &row = GetParam();
    bool reached = false;

    for (int phase = PVN_PHASE_LOAD; phase < PVN_PHASE_COUNT; phase++) {
        if (row.phase != PVN_PHASE_ANY && row.phase != phase)
            continue;
        for (int past = PVN_PAST_NEVER_WORKED; past < PVN_PAST_COUNT; past++) {
            if (row.past != PVN_PAST_ANY && row.past != past)
                continue;
            const pvn_hint *found =
                pvn_hint_find(row.space, -row.code, (pvn_phase)phase, (pvn_past)past);
            ASSERT_NE(nullptr, found);
            reached = reached || found->id == row.id;
        }
    }
    EXPECT_TRUE(reached) << "an earlier row answers in every case";
    EXPECT_EQ(row.id, pvn_hint_get(row.id)->id);
    for (const char *text : {row.likely, row.todo}) {
        const std::string s = text;
        ASSERT_GT(s.size(), 10u);
        EXPECT_NE('.', s.back());
        EXPECT_FALSE(isspace((unsigned char)s.back()));
    }
    // The message puts "; try: " before it.
    EXPECT_NE(0u, std::string(row.todo).find("try"));
}

INSTANTIATE_TEST_SUITE_P(Table, HintRow, ::testing::ValuesIn(all_rows()),
                         [](const auto &row) { return "id" + std::to_string(row.param.id); });

TEST(Hints, EveryIdHasExactlyOneRow)
{
    std::map<int, int> seen;

    for (const auto &row : all_rows())
        seen[row.id]++;
    for (int id = PVN_HINT_NONE + 1; id < PVN_HINT_COUNT; id++)
        EXPECT_EQ(1, seen[id]) << "id " << id;
    EXPECT_EQ((size_t)PVN_HINT_COUNT - 1, seen.size());
}

/* Each variable that a hint names must exist: ours in the table of parameters, NCCL's as aliases
 * in it. */
TEST(Hints, NameOnlyRealVariables)
{
    std::set<std::string> known = {"NCCL_DEBUG", "NCCL_NET_PLUGIN", "NCCL_NET_GDR_LEVEL", "NCCL_"};
    size_t count;
    const pvn_param_def *table = pvn_param_table(&count);

    for (size_t i = 0; i < count; i++) {
        known.insert(std::string(PVN_PARAM_PREFIX) + table[i].name);
        if (table[i].alias)
            known.insert(table[i].alias);
    }
    for (const auto &row : all_rows()) {
        const std::string s = std::string(row.likely) + " " + row.todo;
        for (size_t at = s.find("NCCL_"); at != std::string::npos; at = s.find("NCCL_", at + 1)) {
            size_t end = at;
            while (end < s.size() && (isupper((unsigned char)s[end]) ||
                                      isdigit((unsigned char)s[end]) || s[end] == '_'))
                end++;
            EXPECT_TRUE(known.count(s.substr(at, end - at))) << s.substr(at, end - at);
        }
    }
}

struct Case {
    pvn_hint_space space;
    int code;
    pvn_phase phase;
    pvn_past past;
    pvn_hint_id want;
};

// A firewall drops connections that were idle for long, not one that is 0.4 s old.
TEST(Hints, FirewallsAreBlamedForIdleConnectionsOnly)
{
    const pvn_hint *young =
        pvn_hint_find(PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_TRANSFER, PVN_PAST_WORKED);
    const pvn_hint *idle =
        pvn_hint_find(PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_TRANSFER, PVN_PAST_IDLE);

    ASSERT_NE(nullptr, young);
    ASSERT_NE(nullptr, idle);
    EXPECT_EQ(nullptr, strstr(young->likely, "firewall")) << young->likely;
    EXPECT_NE(nullptr, strstr(idle->likely, "firewall")) << idle->likely;
}

TEST(Hints, PastAndPhaseDecide)
{
    const Case cases[] = {
        {PVN_HINT_WC, IBV_WC_RETRY_EXC_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED,
         PVN_HINT_WC_RETRY_WORKED},
        {PVN_HINT_WC, IBV_WC_RETRY_EXC_ERR, PVN_PHASE_VERIFY, PVN_PAST_NEVER_WORKED,
         PVN_HINT_WC_RETRY_NEVER},
        {PVN_HINT_WC, IBV_WC_RNR_RETRY_EXC_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED,
         PVN_HINT_WC_RNR},
        {PVN_HINT_WC, IBV_WC_LOC_PROT_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED,
         PVN_HINT_WC_LOC_PROT},
        {PVN_HINT_WC, IBV_WC_LOC_LEN_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED, PVN_HINT_WC_LOC_LEN},
        {PVN_HINT_WC, IBV_WC_WR_FLUSH_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED, PVN_HINT_WC_FLUSH},
        {PVN_HINT_WC, IBV_WC_REM_ACCESS_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED,
         PVN_HINT_WC_REM_ACCESS},
        {PVN_HINT_WC, IBV_WC_REM_INV_REQ_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED,
         PVN_HINT_WC_REM_INV_REQ},
        {PVN_HINT_WC, IBV_WC_REM_OP_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED, PVN_HINT_WC_REM_OP},
        {PVN_HINT_WC, IBV_WC_FATAL_ERR, PVN_PHASE_TRANSFER, PVN_PAST_WORKED, PVN_HINT_WC_FATAL},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_DIAL, PVN_PAST_NEVER_WORKED, PVN_HINT_DIAL_TIMEOUT},
        {PVN_HINT_ERRNO, ECONNREFUSED, PVN_PHASE_DIAL, PVN_PAST_ELSEWHERE,
         PVN_HINT_REFUSED_LOOPBACK},
        {PVN_HINT_ERRNO, ECONNREFUSED, PVN_PHASE_DIAL, PVN_PAST_NEVER_WORKED, PVN_HINT_REFUSED},
        {PVN_HINT_ERRNO, EINVAL, PVN_PHASE_DIAL, PVN_PAST_NEVER_WORKED, PVN_HINT_WRONG_SOURCE},
        {PVN_HINT_ERRNO, EINVAL, PVN_PHASE_SCAN, PVN_PAST_ANY, PVN_HINT_NONE},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_ACCEPT, PVN_PAST_NEVER_WORKED, PVN_HINT_NO_PEER},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_VERIFY, PVN_PAST_NEVER_WORKED,
         PVN_HINT_VERIFY_TIMEOUT},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_VERIFY, PVN_PAST_ANSWERS, PVN_HINT_NOT_TAKEN},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_HELLO, PVN_PAST_NEVER_WORKED,
         PVN_HINT_SILENT_HANDSHAKE},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_TRANSFER, PVN_PAST_WORKED,
         PVN_HINT_LOST_AFTER_WORKING},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_TRANSFER, PVN_PAST_ANSWERS,
         PVN_HINT_LARGE_PACKETS_LOST},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_TRANSFER, PVN_PAST_STALLED, PVN_HINT_PEER_IS_LATE},
        {PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_HELLO, PVN_PAST_NEVER_WORKED,
         PVN_HINT_RESET_HANDSHAKE},
        {PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_TRANSFER, PVN_PAST_WORKED, PVN_HINT_RESET_WORKING},
        {PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_TRANSFER, PVN_PAST_IDLE, PVN_HINT_RESET_IDLE},
        {PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_TRANSFER, PVN_PAST_IDLE, PVN_HINT_LOST_AFTER_WORKING},
        {PVN_HINT_ERRNO, ENOMEM, PVN_PHASE_REG, PVN_PAST_WORKED, PVN_HINT_REG_MEMLOCK},
        {PVN_HINT_ERRNO, ENOMEM, PVN_PHASE_DIAL, PVN_PAST_WORKED, PVN_HINT_NO_MEMORY},
        {PVN_HINT_ERRNO, EPERM, PVN_PHASE_REG, PVN_PAST_ANY, PVN_HINT_FORBIDDEN_REG},
        {PVN_HINT_ERRNO, EPERM, PVN_PHASE_DIAL, PVN_PAST_ANY, PVN_HINT_FIREWALL},
        /* Completion statuses and errno values share numbers, and must not be mixed up. */
        {PVN_HINT_WC, ECONNREFUSED, PVN_PHASE_DIAL, PVN_PAST_ANY, PVN_HINT_NONE},
        {PVN_HINT_ERRNO, ENOSPC, PVN_PHASE_DIAL, PVN_PAST_ANY, PVN_HINT_NONE},
    };

    for (const auto &c : cases)
        EXPECT_EQ(c.want, pvn_hint_id_find(c.space, c.code, c.phase, c.past))
            << "space " << c.space << " code " << c.code << " phase " << pvn_phase_name(c.phase);
}

TEST(Hints, NoRowForNoHint)
{
    EXPECT_EQ(nullptr, pvn_hint_get(PVN_HINT_NONE));
    EXPECT_EQ(nullptr, pvn_hint_get(PVN_HINT_COUNT));
    EXPECT_EQ(nullptr, pvn_hint_get(-1));
}

TEST(Hints, PhasesHaveDistinctNames)
{
    std::set<std::string> names;

    for (int phase = 0; phase < PVN_PHASE_COUNT; phase++) {
        ASSERT_NE(nullptr, pvn_phase_name((pvn_phase)phase));
        names.insert(pvn_phase_name((pvn_phase)phase));
    }
    EXPECT_EQ((size_t)PVN_PHASE_COUNT, names.size());
    EXPECT_STREQ("?", pvn_phase_name(PVN_PHASE_COUNT));
}

} // namespace
