// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the choice of a pair of GIDs: a table of situations, and properties on which both ends must
// agree in every situation.
#include <gtest/gtest.h>

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "net-pvrdma/gid.h"
}

namespace
{

// Parses "v2 10.0.0.1/24": type, address, and the network's prefix length if it is known.
pvn_gid_row row(const std::string &text, int index)
{
    pvn_gid_row r{};
    char type[8] = "", addr[64] = "";
    int bits = 0;
    EXPECT_GE(sscanf(text.c_str(), "%7s %63[^/]/%d", type, addr, &bits), 2) << text;
    r.type = !strcmp(type, "v2")   ? PVN_GID_ROCE_V2
             : !strcmp(type, "v1") ? PVN_GID_ROCE_V1
                                   : PVN_GID_IB;
    r.index = uint8_t(index);
    in_addr v4;
    if (inet_pton(AF_INET, addr, &v4) == 1) {
        r.raw[10] = r.raw[11] = 0xff;
        memcpy(r.raw + 12, &v4, 4);
        r.prefix = uint8_t(bits ? 96 + bits : 0);
    } else {
        EXPECT_EQ(inet_pton(AF_INET6, addr, r.raw), 1) << text;
        r.prefix = uint8_t(bits);
    }
    return r;
}

std::vector<pvn_gid_row> table(const std::vector<std::string> &rows)
{
    std::vector<pvn_gid_row> t;
    for (auto &s : rows)
        t.push_back(row(s, int(t.size())));
    return t;
}

int choose(const std::vector<pvn_gid_row> &a, const std::vector<pvn_gid_row> &b, bool connector,
           pvn_gid_choice *c, pvn_err *err = nullptr)
{
    return pvn_gid_choose(a.data(), int(a.size()), b.data(), int(b.size()), connector, c, err);
}

struct Case {
    const char *name;
    std::vector<std::string> mine, theirs;
    int local, remote; // -1: no pair
    const char *says;  // part of the text, or of the error
};

const Case cases[] = {
    {"the usual",
     {"v1 fe80::1", "v2 fe80::1", "v1 10.0.0.1/24", "v2 10.0.0.1/24"},
     {"v1 fe80::2", "v2 fe80::2", "v1 10.0.0.2/24", "v2 10.0.0.2/24"},
     3,
     3,
     "IPv4, same subnet"},
    {"pvrdma, one version",
     {"v1 fe80::1", "v1 10.9.0.1/24"},
     {"v1 fe80::2", "v1 10.9.0.2/24"},
     1,
     1,
     "same subnet"},
    {"rows at different places",
     {"v2 10.0.0.1/24"},
     {"v1 fe80::2", "v2 fe80::2", "v2 10.0.0.2/24"},
     0,
     2,
     "GID 0"},
    {"version 2 before a better route of version 1",
     {"v1 10.0.0.1/24", "v2 10.1.0.1/24"},
     {"v1 10.0.0.2/24", "v2 10.2.0.2/24"},
     1,
     1,
     "IPv4, routed"},
    {"only version 1 is common",
     {"v1 10.0.0.1/24", "v2 10.0.0.1/24"},
     {"v1 10.0.0.2/24"},
     0,
     0,
     "RoCE v1"},
    {"version 1 does not cross routers",
     {"v1 10.0.1.1/24"},
     {"v1 10.0.2.2/24"},
     -1,
     -1,
     "does not cross routers"},
    {"version 2 does", {"v2 10.0.1.1/24"}, {"v2 10.0.2.2/24"}, 0, 0, "routed"},
    {"version 1 against version 2",
     {"v1 10.0.0.1/24"},
     {"v2 10.0.0.2/24"},
     -1,
     -1,
     "different RoCE versions"},
    {"same subnet before routed",
     {"v2 10.0.1.1/24", "v2 10.0.2.1/24"},
     {"v2 10.0.9.9/24", "v2 10.0.2.2/24"},
     1,
     1,
     "same subnet"},
    {"the longer network counts", {"v2 10.0.1.1/16"}, {"v2 10.0.2.2/24"}, 0, 0, "IPv4, routed"},
    {"IPv4 before IPv6",
     {"v2 2001:db8::1/64", "v2 10.0.0.1/24"},
     {"v2 2001:db8::2/64", "v2 10.0.0.2/24"},
     1,
     1,
     "IPv4"},
    {"IPv6 where IPv4 is one-sided",
     {"v2 2001:db8::1/64", "v2 10.0.0.1/24"},
     {"v2 2001:db8::2/64"},
     0,
     0,
     "IPv6, same subnet"},
    {"families do not mix", {"v2 10.0.0.1/24"}, {"v2 2001:db8::2/64"}, -1, -1, "IPv4 against IPv6"},
    {"link-local only when there is nothing else",
     {"v2 fe80::1", "v2 2001:db8:1::1/64"},
     {"v2 fe80::2", "v2 2001:db8:2::2/64"},
     1,
     1,
     "IPv6, routed"},
    {"link-local version 2 does not beat version 1 in one subnet",
     {"v2 fe80::1", "v1 10.0.0.1/24"},
     {"v2 fe80::2", "v1 10.0.0.2/24"},
     1,
     1,
     "same subnet"},
    {"link-local as the last resort",
     {"v2 fe80::1", "v2 10.0.0.1/24"},
     {"v2 fe80::2"},
     0,
     0,
     "last resort"},
    {"link-local does not reach routable",
     {"v2 fe80::1"},
     {"v2 2001:db8::2/64"},
     -1,
     -1,
     "link-local against"},
    {"IPv4 link-local counts as such",
     {"v2 169.254.1.1/16"},
     {"v2 10.0.0.2/24"},
     -1,
     -1,
     "link-local against"},
    {"InfiniBand", {"ib fe80::1"}, {"ib fe80::2"}, 0, 0, "GID 0"},
    {"nothing here", {}, {"v2 10.0.0.2/24"}, -1, -1, "a table is empty"},
    {"nothing there", {"v2 10.0.0.1/24"}, {}, -1, -1, "a table is empty"},
};

class Gid : public testing::TestWithParam<Case>
{
};

TEST_P(Gid, ChosenAsItShould)
{
    const Case &k = GetParam();
    auto mine = table(k.mine), theirs = table(k.theirs);
    for (bool connector : {true, false}) {
        pvn_gid_choice c{};
        pvn_err err{};
        int rc = choose(mine, theirs, connector, &c, &err);
        EXPECT_EQ(rc, k.local < 0 ? -EADDRNOTAVAIL : 0);
        EXPECT_EQ(c.local, k.local);
        EXPECT_EQ(c.remote, k.remote);
        char text[PVN_ERR_TEXT_LEN];
        pvn_err_format(&err, text, sizeof text);
        const char *said = rc ? text : c.text;
        EXPECT_NE(strstr(said, k.says), nullptr) << said;
        for (auto &r : k.mine) // a failure prints both tables
            if (rc) {
                EXPECT_NE(strstr(text, r.substr(3, r.find('/') - 3).c_str()), nullptr) << text;
            }
    }
}

INSTANTIATE_TEST_SUITE_P(Situations, Gid, testing::ValuesIn(cases),
                         [](const testing::TestParamInfo<Case> &i) {
                             std::string n = i.param.name;
                             for (char &c : n)
                                 if (!isalnum(static_cast<unsigned char>(c)))
                                     c = '_';
                             return n;
                         });

// Both ends choose the same pair from any tables, and the pair can work.
TEST(GidProperties, BothEndsAgree)
{
    const char *pool[] = {"v1 fe80::1",        "v2 fe80::1",     "v1 10.0.0.1/24",
                          "v2 10.0.0.1/24",    "v2 10.0.1.7/24", "v1 10.0.1.7/24",
                          "v2 fd00::1/64",     "v1 fd00::1/64",  "v2 fd00:1::1/64",
                          "v2 169.254.3.4",    "v2 10.0.0.9",    "v2 192.168.1.1/28",
                          "v2 192.168.1.19/28"};
    std::mt19937 rng(3);
    int found = 0;
    for (int i = 0; i < 5000; i++) {
        std::vector<pvn_gid_row> a, b;
        for (auto *t : {&a, &b})
            for (unsigned n = rng() % 6; n; n--)
                t->push_back(row(pool[rng() % (sizeof pool / sizeof *pool)], int(t->size())));
        pvn_gid_choice x{}, y{};
        int rx = choose(a, b, true, &x), ry = choose(b, a, false, &y);
        ASSERT_EQ(rx, ry);
        ASSERT_EQ(x.local, y.remote);
        ASSERT_EQ(x.remote, y.local);
        if (rx)
            continue;
        found++;
        const pvn_gid_row &p = a[size_t(x.local)], &q = b[size_t(x.remote)];
        ASSERT_EQ(p.type, q.type);
        auto link_local = [](const pvn_gid_row &r) {
            return (r.raw[0] == 0xfe && r.raw[1] == 0x80) ||
                   (r.raw[11] == 0xff && r.raw[12] == 169);
        };
        ASSERT_EQ(link_local(p), link_local(q));
        if (!link_local(p))
            continue;
        for (auto &m : a) { // link-local is chosen only if no other pair can work
            for (auto &n : b) {
                bool both_v2 = m.type == PVN_GID_ROCE_V2 && n.type == PVN_GID_ROCE_V2;
                bool same_family = (m.raw[11] == 0xff) == (n.raw[11] == 0xff);
                ASSERT_FALSE(both_v2 && same_family && !link_local(m) && !link_local(n));
            }
        }
    }
    EXPECT_GT(found, 2000) << "the tables are not all hopeless";
}

struct Policy {
    const char *name;
    pvn_gid_policy p;
    std::vector<int> kept;
    const char *says;
};

class GidPolicy : public testing::TestWithParam<Policy>
{
};

TEST_P(GidPolicy, KeepsWhatIsConfigured)
{
    auto t = table(
        {"v1 fe80::1", "v2 fe80::1", "v1 10.0.0.1/24", "v2 10.0.0.1/24", "v2 fd00::7/64", "v2 ::"});
    char text[512];
    int n = pvn_gid_filter(t.data(), int(t.size()), &GetParam().p, text, sizeof text);
    std::vector<int> kept;
    for (int i = 0; i < n; i++)
        kept.push_back(t[size_t(i)].index);
    EXPECT_EQ(kept, GetParam().kept);
    EXPECT_NE(strstr(text, GetParam().says), nullptr) << text;
    EXPECT_EQ(strstr(text, "5 ::"), nullptr) << "free rows are not worth a word: " << text;
}

INSTANTIATE_TEST_SUITE_P(
    All, GidPolicy,
    testing::Values(
        Policy{"nothing", {-1, 0, AF_UNSPEC, ""}, {0, 1, 2, 3, 4}, ""},
        Policy{"index", {3, 0, AF_UNSPEC, ""}, {3}, "another GID index"},
        Policy{"index_over_all_else", {2, 2, AF_INET6, "fd00::/16"}, {2}, "another GID index"},
        Policy{"index_of_a_free_row", {5, 0, AF_UNSPEC, ""}, {}, "another GID index"},
        Policy{"version", {-1, 2, AF_UNSPEC, ""}, {1, 3, 4}, "another RoCE version"},
        Policy{"ipv4", {-1, 0, AF_INET, ""}, {2, 3}, "not IPv4"},
        Policy{"ipv6", {-1, 0, AF_INET6, ""}, {0, 1, 4}, "not IPv6"},
        Policy{"range4",
               {-1, 0, AF_UNSPEC, "10.0.0.0/8"},
               {2, 3},
               "outside the requested address range"},
        Policy{
            "range6", {-1, 0, AF_UNSPEC, "fd00::/16"}, {4}, "outside the requested address range"},
        Policy{"exact_address", {-1, 0, AF_UNSPEC, "10.0.0.1/32"}, {2, 3}, "outside"},
        Policy{"both", {-1, 1, AF_INET, "10.0.0.0/24"}, {2}, "RoCE v2"}),
    [](const testing::TestParamInfo<Policy> &i) { return i.param.name; });

} // namespace
