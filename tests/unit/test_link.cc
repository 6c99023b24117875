// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The state machine of a comm's link. Its table equals the one in ARCHITECTURE, and no other
// transition is possible.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

extern "C" {
#include "base/param.h"
#include "connect/link_failover.h"
}

namespace
{

using Row = std::map<std::string, std::string>; // next state by event; absent: refused

pvn_link in(int state)
{
    pvn_link l = {};
    l.state = static_cast<pvn_link_state>(state);
    l.since_ns = 5;
    return l;
}

std::vector<std::string> cells(const std::string &line)
{
    std::vector<std::string> all;
    std::istringstream in(line.substr(1));
    std::string cell;
    while (std::getline(in, cell, '|')) {
        const size_t from = cell.find_first_not_of(' '), to = cell.find_last_not_of(' ');
        all.push_back(from == std::string::npos ? "" : cell.substr(from, to - from + 1));
    }
    return all;
}

std::map<std::string, Row> documented()
{
    std::ifstream file(PVN_SRCDIR "/plugin/ARCHITECTURE.md");
    std::map<std::string, Row> rows;
    std::vector<std::string> head;
    std::string line;
    while (std::getline(file, line)) {
        if (line.rfind("| state | CAME_UP |", 0) == 0) {
            head = cells(line);
            continue;
        }
        if (head.empty() || line.rfind("|---", 0) == 0)
            continue;
        if (line.empty() || line[0] != '|')
            break;
        const std::vector<std::string> row = cells(line);
        EXPECT_EQ(head.size(), row.size()) << line;
        rows[row[0]]; // also if no event is possible in it
        for (size_t i = 1; i < row.size() && i < head.size(); i++)
            if (!row[i].empty())
                rows[row[0]][head[i]] = row[i];
    }
    EXPECT_EQ(size_t(PVN_LINK_EVENTS) + 1, head.size()) << "a column for each event";
    return rows;
}

TEST(Link, ItsTableIsTheOneOfArchitecture)
{
    std::map<std::string, Row> rows;

    for (int s = 0; s < PVN_LINK_STATES; s++) {
        Row &row = rows[pvn_link_state_name(static_cast<pvn_link_state>(s))];
        for (int e = 0; e < PVN_LINK_EVENTS; e++) {
            const auto event = static_cast<pvn_link_event>(e);
            pvn_link l = in(s);
            if (pvn_link_on(&l, event, 6))
                row[pvn_link_event_name(event)] = pvn_link_state_name(l.state);
        }
    }
    EXPECT_EQ(documented(), rows);
}

TEST(Link, AnEventThatMayNotComeChangesNothing)
{
    int refused = 0;

    for (int s = 0; s < PVN_LINK_STATES; s++)
        for (int e = 0; e < PVN_LINK_EVENTS; e++) {
            pvn_link l = in(s);
            if (pvn_link_on(&l, static_cast<pvn_link_event>(e), 6))
                continue;
            refused++;
            EXPECT_EQ(s, l.state);
            EXPECT_EQ(5u, l.since_ns);
        }
    EXPECT_LT(0, refused);
}

TEST(Link, TheTimeIsThatOfTheLastChange)
{
    pvn_link l = {};

    EXPECT_EQ(PVN_LINK_SETUP, l.state);
    ASSERT_TRUE(pvn_link_on(&l, PVN_LINK_CAME_UP, 10));
    EXPECT_EQ(10u, l.since_ns);
    ASSERT_TRUE(pvn_link_on(&l, PVN_LINK_CTRL_LOST, 20));
    ASSERT_TRUE(pvn_link_on(&l, PVN_LINK_CTRL_LOST, 30));
    EXPECT_EQ(20u, l.since_ns) << "since when the control connection is lost";
    ASSERT_TRUE(pvn_link_on(&l, PVN_LINK_CTRL_BACK, 40));
    EXPECT_EQ(40u, l.since_ns);
}

TEST(Link, EachStateIsReachedAndEndsFromEach)
{
    std::set<int> reached = {PVN_LINK_SETUP};

    for (size_t before = 0; before != reached.size();) {
        before = reached.size();
        for (int s : std::set<int>(reached))
            for (int e = 0; e < PVN_LINK_EVENTS; e++) {
                pvn_link l = in(s);
                pvn_link_on(&l, static_cast<pvn_link_event>(e), 6);
                reached.insert(l.state);
            }
    }
    EXPECT_EQ(size_t(PVN_LINK_STATES), reached.size());
    for (int s = 0; s < PVN_LINK_STATES; s++) {
        pvn_link l = in(s);
        EXPECT_TRUE(pvn_link_on(&l, PVN_LINK_END, 6));
        EXPECT_EQ(PVN_LINK_ENDED, l.state);
    }
}

class LinkLimit : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "40", 1);
        pvn_err err = {};
        ASSERT_EQ(0, pvn_params_load(&err));
        link.conn = &conn;
    }
    void TearDown() override
    {
        pvn_params_unload();
        unsetenv("NCCL_PVRDMA_FAILOVER_TIMEOUT");
    }
    uint64_t seconds(pvn_link_state state)
    {
        link.state = state;
        return pvn_link_limit_ns(&link) / PVN_NS_PER_S;
    }
    void peer_replaces_control_connections()
    {
        conn.hello_seen = true;
        conn.mine.features = conn.theirs.features = PVN_FEATURE_FAILOVER | PVN_FEATURE_KEEPS;
    }

    pvn_link link = {};
    pvn_conn conn = {};
};

TEST_F(LinkLimit, OnlyWaitingForThePeerIsLimited)
{
    for (auto state : {PVN_LINK_SETUP, PVN_LINK_UP, PVN_LINK_ENDED}) {
        link.state = state;
        EXPECT_EQ(UINT64_MAX, pvn_link_limit_ns(&link)) << pvn_link_state_name(state);
    }
    link.state = PVN_LINK_DRAINS;
    EXPECT_EQ(PVN_NS_PER_S / 10, pvn_link_limit_ns(&link));
}

TEST_F(LinkLimit, OfALostControlConnectionIsShorterWhereThePeerMayBeElsewhere)
{
    EXPECT_EQ(40u, seconds(PVN_LINK_ALONE));
    link.paths.nothers = 1;
    EXPECT_EQ(40u, seconds(PVN_LINK_ALONE)) << "the acceptor has no paths";
    link.sender = true;
    EXPECT_EQ(10u, seconds(PVN_LINK_ALONE));
    link.ctrl_err.code = -ECONNRESET;
    EXPECT_EQ(3u, seconds(PVN_LINK_ALONE)) << "the process may have been killed";
}

TEST_F(LinkLimit, OfAPeerThatIsGoneIsLongerWhereItMayComeBack)
{
    link.ctrl_err.code = -EPIPE;
    EXPECT_EQ(1u, seconds(PVN_LINK_GONE));
    peer_replaces_control_connections();
    EXPECT_EQ(3u, seconds(PVN_LINK_GONE));
    link.ctrl_err.code = -ECONNRESET;
    EXPECT_EQ(1u, seconds(PVN_LINK_GONE)) << "it has closed";
}

TEST_F(LinkLimit, OfAFailoverIsShorterWhereTheProcessSeemsToHaveEnded)
{
    pvn_link_failover failover = {};
    link.failover = &failover;
    for (auto state : {PVN_LINK_FENCE, PVN_LINK_CONNECT, PVN_LINK_EXCHANGE})
        EXPECT_EQ(40u, seconds(state));
    failover.hung_up = true;
    EXPECT_EQ(3u, seconds(PVN_LINK_CONNECT));
}

// The limit starts again when something moves, or when there is an excuse.
TEST_F(LinkLimit, BeginsAgainWhenSomethingMoves)
{
    link.state = PVN_LINK_GONE;
    pvn_link_moved(&link, 7, 100);
    EXPECT_FALSE(pvn_link_is_over(&link, 7, false, 100 + PVN_NS_PER_S - 1));
    EXPECT_TRUE(pvn_link_is_over(&link, 7, false, 100 + PVN_NS_PER_S));
    EXPECT_FALSE(pvn_link_is_over(&link, 8, false, 100 + PVN_NS_PER_S));
    EXPECT_FALSE(pvn_link_is_over(&link, 8, true, 100 + 2 * PVN_NS_PER_S));
    EXPECT_TRUE(pvn_link_is_over(&link, 8, false, 100 + 3 * PVN_NS_PER_S));
}

// Only its own steps lead out of a failover, because a byte range is written again only after a
// fence.
TEST(Link, OnlyAFenceLeadsToANewConnection)
{
    for (int s = 0; s < PVN_LINK_STATES; s++)
        for (int e = 0; e < PVN_LINK_EVENTS; e++) {
            pvn_link l = in(s);
            pvn_link_on(&l, static_cast<pvn_link_event>(e), 6);
            if (l.state == PVN_LINK_CONNECT) {
                EXPECT_TRUE(s == PVN_LINK_FENCE || s == PVN_LINK_CONNECT || s == PVN_LINK_EXCHANGE);
            }
            if (l.state == PVN_LINK_EXCHANGE) {
                EXPECT_TRUE(s == PVN_LINK_CONNECT || s == PVN_LINK_EXCHANGE);
            }
        }
}

} // namespace
