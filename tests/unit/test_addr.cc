// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <string>

extern "C" {
#include "base/addr.h"
}

namespace
{

sockaddr_storage parse(const std::string &text)
{
    sockaddr_storage ss;
    pvn_err err = PVN_ERR_INIT;

    EXPECT_EQ(0, pvn_addr_parse(text.c_str(), &ss, &err)) << text << ": " << err.reason[0];
    return ss;
}

const sockaddr *sa(const sockaddr_storage &ss)
{
    return reinterpret_cast<const sockaddr *>(&ss);
}

std::string format(const sockaddr_storage &ss)
{
    char buf[PVN_ADDR_TEXT_LEN];

    return pvn_addr_format(sa(ss), buf, sizeof(buf));
}

class AddrText : public ::testing::TestWithParam<std::pair<const char *, const char *>>
{
};

TEST_P(AddrText, IsReadAndPrinted)
{
    const sockaddr_storage ss = parse(GetParam().first);

    EXPECT_EQ(GetParam().second, format(ss));
    EXPECT_EQ(GetParam().second, format(parse(GetParam().second)));
    EXPECT_NE(0u, pvn_addr_len(sa(ss)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, AddrText,
    ::testing::Values(std::make_pair("192.0.2.1:4000", "192.0.2.1:4000"),
                      std::make_pair("192.0.2.1", "192.0.2.1"),
                      std::make_pair("192.0.2.1:0", "192.0.2.1"),
                      std::make_pair("[2001:DB8:0::1]:65535", "[2001:db8::1]:65535"),
                      std::make_pair("2001:db8::1", "2001:db8::1"),
                      std::make_pair("[2001:db8::1]", "2001:db8::1"),
                      std::make_pair("[fe80::1%lo]:7", "[fe80::1%lo]:7"),
                      std::make_pair("fe80::1%1", "fe80::1%lo"),
                      std::make_pair("[fe80::1%4000000]:7", "[fe80::1%4000000]:7"),
                      std::make_pair("::ffff:192.0.2.1", "::ffff:192.0.2.1")));

class AddrBad : public ::testing::TestWithParam<std::pair<const char *, const char *>>
{
};

TEST_P(AddrBad, IsRefusedWithAReason)
{
    sockaddr_storage ss;
    pvn_err err = PVN_ERR_INIT;

    EXPECT_GT(0, pvn_addr_parse(GetParam().first, &ss, &err));
    EXPECT_NE(nullptr, strstr(err.reason[0], GetParam().second)) << err.reason[0];
    EXPECT_EQ(0, ss.ss_family) << "nothing half-read is left";
    EXPECT_GT(0, pvn_addr_parse(GetParam().first, &ss, nullptr));
}

INSTANTIATE_TEST_SUITE_P(
    Table, AddrBad,
    ::testing::Values(
        std::make_pair("", "neither"), std::make_pair("node7:4000", "neither"),
        std::make_pair("192.0.2.1:65536", "port"), std::make_pair("192.0.2.1:", "port"),
        std::make_pair("192.0.2.1:-1", "port"), std::make_pair("192.0.2:1", "neither"),
        std::make_pair("192.0.2.256:1", "neither"), std::make_pair("[::1", "bracket"),
        std::make_pair("[::1]4000", "bracket"), std::make_pair("[::1]:x", "port"),
        std::make_pair("fe80::1%nosuchif", "there is no interface 'nosuchif'"),
        std::make_pair("fe80::1%", "there is no interface"),
        std::make_pair("fe80::1%99999999999", "there is no interface"),
        std::make_pair(
            "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd:eeee:ffff:00001",
            "too long")));

TEST(Addr, ThePortIsReadAndSet)
{
    for (const char *text : {"192.0.2.1:80", "[::1]:80"}) {
        sockaddr_storage ss = parse(text);
        EXPECT_EQ(80, pvn_addr_port(sa(ss)));
        pvn_addr_set_port(reinterpret_cast<sockaddr *>(&ss), 65535);
        EXPECT_EQ(65535, pvn_addr_port(sa(ss)));
    }
    sockaddr_storage other = {};
    other.ss_family = AF_UNIX;
    pvn_addr_set_port(reinterpret_cast<sockaddr *>(&other), 1);
    EXPECT_EQ(0, pvn_addr_port(sa(other)));
    EXPECT_EQ(0u, pvn_addr_len(sa(other)));
    EXPECT_EQ("family 1", format(other));
}

bool same(const char *a, const char *b)
{
    const sockaddr_storage x = parse(a), y = parse(b);

    return pvn_addr_same_host(sa(x), sa(y));
}

TEST(Addr, AddressesOfOneHostAreTheSame)
{
    EXPECT_TRUE(same("192.0.2.1:1", "192.0.2.1:2"));
    EXPECT_FALSE(same("192.0.2.1", "192.0.2.2"));
    EXPECT_TRUE(same("192.0.2.1", "::ffff:192.0.2.1"));
    EXPECT_TRUE(same("2001:db8::1", "2001:db8:0::1"));
    EXPECT_FALSE(same("fe80::1%1", "fe80::1%2"));
    EXPECT_TRUE(same("fe80::1%1", "fe80::1%lo"));
}

bool net(const char *a, const char *b, unsigned bits)
{
    const sockaddr_storage x = parse(a), y = parse(b);

    return pvn_addr_same_net(sa(x), sa(y), bits);
}

TEST(Addr, AddressesOfOneNetworkShareItsPrefix)
{
    EXPECT_TRUE(net("192.0.2.1", "192.0.2.200", 24));
    EXPECT_FALSE(net("192.0.2.1", "192.0.3.1", 24));
    EXPECT_TRUE(net("192.0.2.1", "192.0.3.1", 23));
    EXPECT_FALSE(net("192.0.2.1", "192.0.2.3", 31));
    EXPECT_TRUE(net("192.0.2.2", "192.0.2.3", 31));
    EXPECT_TRUE(net("1.2.3.4", "200.2.3.4", 0));
    EXPECT_FALSE(net("192.0.2.1", "192.0.2.2", 32));
    EXPECT_FALSE(net("192.0.2.1", "192.0.2.2", 4000)) << "an impossible length counts as all bits";
    EXPECT_TRUE(net("2001:db8::1", "2001:db8::ffff", 64));
    EXPECT_FALSE(net("2001:db8::1", "2001:db8:0:1::1", 64));
    EXPECT_FALSE(net("fe80::1%1", "fe80::2%2", 64)) << "the same prefix on another link";
    EXPECT_FALSE(net("192.0.2.1", "::ffff:192.0.2.1", 0));
}

TEST(Addr, ANetworkIsAnAddressAndThePrefixsLength)
{
    uint8_t raw[16];
    unsigned bits;

    for (const char *bad : {"", "nonsense", "10.0.0.0", "fd00::", "10.0.0.0/33", "10.0.0.0/",
                            "10.0.0.0/x", "10.0.0.0/+8", "10.0.0.0/ 8", "10.0.0.0/0008", "/8",
                            "fd00::/129", "10.0.0/8", "10.0.0.0/8/9", "10.0.0.0/255.0.0.0"})
        EXPECT_FALSE(pvn_addr_parse_network(bad, raw, &bits)) << bad;
    EXPECT_FALSE(pvn_addr_parse_network((std::string(400, '1') + "/8").c_str(), raw, &bits));
    EXPECT_TRUE(pvn_addr_parse_network("fd00:1::/64", raw, &bits));
    EXPECT_EQ(64u, bits);
    EXPECT_EQ(0, memcmp(raw, "\xfd\0\0\1\0\0\0\0\0\0\0\0\0\0\0", sizeof(raw)));
    EXPECT_TRUE(pvn_addr_parse_network("10.1.0.0/16", raw, &bits));
    EXPECT_EQ(96u + 16, bits);
    EXPECT_EQ(0, memcmp(raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\n\1\0", sizeof(raw)));
    EXPECT_TRUE(pvn_addr_parse_network("::/0", raw, &bits));
    EXPECT_EQ(0u, bits);
    EXPECT_TRUE(pvn_addr_parse_network("10.0.0.1/32", raw, &bits));
    EXPECT_EQ(128u, bits);
}

TEST(Addr, LoopbackAndLinkLocalAreRecognised)
{
    const struct {
        const char *text;
        bool loopback, link_local;
    } cases[] = {
        {"0.0.0.0", false, false},     {"::", false, false},     {"127.0.0.1", true, false},
        {"127.9.9.9", true, false},    {"::1", true, false},     {"::ffff:127.0.0.1", true, false},
        {"169.254.1.1", false, true},  {"fe80::1", false, true}, {"10.0.0.1", false, false},
        {"2001:db8::1", false, false},
    };

    for (const auto &c : cases) {
        const sockaddr_storage ss = parse(c.text);
        EXPECT_EQ(c.loopback, pvn_addr_is_loopback(sa(ss))) << c.text;
        EXPECT_EQ(c.link_local, pvn_addr_is_link_local(sa(ss))) << c.text;
    }
}

} // namespace
