// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The wire format: encoded values decode to the same values, and damaged bytes are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "base/random.h"
#include "connect/wire.h"
#include "engine/engine.h"
}

namespace
{

pvn_handle sample_handle()
{
    pvn_handle h = {};
    h.version = PVN_WIRE_VERSION;
    h.session = 0x1122334455667788ull;
    h.addr.family = 4;
    h.addr.port = 4711;
    h.addr.bytes[0] = 192;
    h.addr.bytes[3] = 7;
    for (h.nmore = 0; h.nmore < PVN_MORE_ADDRS; h.nmore++) {
        pvn_wire_addr &a = h.more[h.nmore];
        a.family = 4;
        a.port = static_cast<uint16_t>(0xabc0 + h.nmore);
        a.bytes[0] = 10;
        a.bytes[3] = static_cast<uint8_t>(200 + h.nmore);
    }
    return h;
}

TEST(Handle, AHandleGoesRound)
{
    uint8_t b[PVN_HANDLE_BYTES];
    pvn_handle h = sample_handle(), g;
    pvn_err err = {};
    pvn_handle_encode(b, &h);
    ASSERT_EQ(0, pvn_handle_decode(b, sizeof(b), &g, &err)) << err.reason[0];
    EXPECT_EQ(h.session, g.session);
    EXPECT_EQ(h.addr.port, g.addr.port);
    EXPECT_EQ(0, memcmp(h.addr.bytes, g.addr.bytes, 16));
    EXPECT_EQ(0u, pvn_handle_cookie(b));
    ASSERT_EQ(int{PVN_MORE_ADDRS}, g.nmore);
    EXPECT_EQ(0, memcmp(h.more, g.more, sizeof(h.more)));
}

// Builds that knew only one address wrote zeros to bytes 7 and 34 to 47, and did not read them.
TEST(Handle, OfBuildsWithOneAddress)
{
    uint8_t b[PVN_HANDLE_BYTES];
    pvn_handle h = sample_handle(), g;
    h.nmore = 0;
    pvn_handle_encode(b, &h);
    EXPECT_EQ(0, b[7]);
    EXPECT_EQ(std::vector<uint8_t>(14), std::vector<uint8_t>(b + 34, b + 48));
    ASSERT_EQ(0, pvn_handle_decode(b, sizeof(b), &g, nullptr));
    EXPECT_EQ(0, g.nmore);
    // A further address with an impossible port is left out.
    h = sample_handle();
    h.more[0].port = 0;
    pvn_handle_encode(b, &h);
    ASSERT_EQ(0, pvn_handle_decode(b, sizeof(b), &g, nullptr));
    EXPECT_EQ(1, g.nmore);
}

TEST(Handle, AFurtherAddressOfIpv6)
{
    uint8_t b[PVN_HANDLE_BYTES];
    pvn_handle h = sample_handle(), g;
    h.addr.family = h.more[0].family = 6;
    EXPECT_EQ(h.nmore = 1, pvn_handle_room(&h.addr));
    for (int i = 0; i < 16; i++)
        h.more[0].bytes[i] = static_cast<uint8_t>(0xd0 + i);
    pvn_handle_encode(b, &h);
    pvn_handle_set_cookie(b, ~uint64_t{0});
    ASSERT_EQ(0, pvn_handle_decode(b, sizeof(b), &g, nullptr));
    ASSERT_EQ(1, g.nmore);
    EXPECT_EQ(0, memcmp(&h.more[0], &g.more[0], sizeof(h.more[0])));
    // The last bytes of that address are outside the checksum. The first address stays valid,
    // whatever they contain.
    memset(b + 52, 0, 4);
    ASSERT_EQ(0, pvn_handle_decode(b, sizeof(b), &g, nullptr));
    EXPECT_EQ(0, g.nmore);
    EXPECT_EQ(0, memcmp(&h.addr, &g.addr, sizeof(h.addr)));
}

TEST(Handle, CookieIsOutsideTheChecksum)
{
    uint8_t b[PVN_HANDLE_BYTES];
    pvn_handle h = sample_handle(), g;
    pvn_handle_encode(b, &h);
    pvn_handle_set_cookie(b, 0xfeedfacecafebeefull);
    ASSERT_EQ(0, pvn_handle_decode(b, sizeof(b), &g, nullptr));
    EXPECT_EQ(0xfeedfacecafebeefull, g.cookie);
    EXPECT_EQ(0xfeedfacecafebeefull, pvn_handle_cookie(b));
}

TEST(Handle, EveryFlippedBitIsNoticed)
{
    uint8_t b[PVN_HANDLE_BYTES];
    pvn_handle h = sample_handle(), g;
    pvn_handle_encode(b, &h);
    for (int bit = 0; bit < 52 * 8; bit++) {
        pvn_err err = {};
        b[bit / 8] ^= 1 << bit % 8;
        EXPECT_NE(0, pvn_handle_decode(b, sizeof(b), &g, &err)) << "bit " << bit;
        EXPECT_STRNE("", err.reason[0]);
        b[bit / 8] ^= 1 << bit % 8;
    }
}

TEST(Handle, TruncatedSaysSo)
{
    uint8_t b[PVN_HANDLE_BYTES];
    pvn_handle h = sample_handle(), g;
    pvn_err err = {};
    pvn_handle_encode(b, &h);
    for (size_t n = 0; n < sizeof(b); n++) {
        EXPECT_EQ(-EINVAL, pvn_handle_decode(b, n, &g, &err));
        EXPECT_NE(nullptr, strstr(err.reason[0], "truncated"));
    }
    // NCCL always passes the full size, so bytes that were cut off read as zeros.
    for (size_t n = 4; n < 52; n++) {
        uint8_t c[PVN_HANDLE_BYTES] = {};
        memcpy(c, b, n);
        if (memcmp(c, b, sizeof(c)) != 0) {
            EXPECT_NE(0, pvn_handle_decode(c, sizeof(c), &g, &err)) << n;
        }
    }
}

TEST(Handle, OtherVersionAndOtherPlugin)
{
    uint8_t b[PVN_HANDLE_BYTES];
    pvn_handle h = sample_handle(), g;
    pvn_err err = {};
    h.version = 0;
    pvn_handle_encode(b, &h);
    EXPECT_EQ(-EPROTONOSUPPORT, pvn_handle_decode(b, sizeof(b), &g, &err));
    EXPECT_NE(nullptr, strstr(err.reason[0], "version 0"));
    memset(b, 0x42, sizeof(b));
    EXPECT_EQ(-EINVAL, pvn_handle_decode(b, sizeof(b), &g, &err));
    EXPECT_NE(nullptr, strstr(err.reason[0], "other rank uses another network plugin"));
    // A newer listener may still speak this version, which HELLO decides.
    h.version = 7;
    pvn_handle_encode(b, &h);
    EXPECT_EQ(0, pvn_handle_decode(b, sizeof(b), &g, &err));
}

TEST(Addr, AnAddressOfEitherFamilyGoesRound)
{
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(99);
    inet_pton(AF_INET, "127.0.0.9", &in.sin_addr);
    pvn_wire_addr a;
    sockaddr_storage ss;
    ASSERT_EQ(0, pvn_wire_addr_from_sockaddr(&a, reinterpret_cast<sockaddr *>(&in)));
    ASSERT_EQ(sizeof(in), pvn_wire_addr_to_sockaddr(&a, 3, &ss));
    EXPECT_EQ(0, memcmp(&in, &ss, sizeof(in)));

    sockaddr_in6 in6 = {};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(98);
    in6.sin6_scope_id = 77;
    inet_pton(AF_INET6, "fe80::1", &in6.sin6_addr);
    ASSERT_EQ(0, pvn_wire_addr_from_sockaddr(&a, reinterpret_cast<sockaddr *>(&in6)));
    ASSERT_EQ(sizeof(in6), pvn_wire_addr_to_sockaddr(&a, 3, &ss));
    EXPECT_EQ(3u, reinterpret_cast<sockaddr_in6 *>(&ss)->sin6_scope_id) << "the reader's own scope";

    sockaddr un = {};
    un.sa_family = AF_UNIX;
    EXPECT_EQ(-EAFNOSUPPORT, pvn_wire_addr_from_sockaddr(&a, &un));
}

pvn_preamble some_preamble(int kind)
{
    pvn_preamble p = {};
    p.version = PVN_WIRE_VERSION;
    p.kind = static_cast<uint8_t>(kind);
    p.session = 0x1234567890ull;
    p.nonce = 42;
    for (int i = 0; i < PVN_TOKEN_BYTES; i++)
        p.token[i] = static_cast<uint8_t>(i + 1);
    return p;
}

const int preamble_kinds[] = {PVN_PREAMBLE_CTRL, PVN_PREAMBLE_STREAM, PVN_PREAMBLE_CTRL_KEY,
                              PVN_PREAMBLE_STREAM_KEY};

TEST(Preamble, AnyPrefixIsUndecidedAndTheWholeValid)
{
    for (int kind : preamble_kinds) {
        uint8_t b[PVN_PREAMBLE_MOST];
        pvn_preamble p = some_preamble(kind), q;
        p.lane = 3;
        p.stream = 5;
        const size_t whole = pvn_preamble_encode(b, &p);
        EXPECT_EQ(pvn_preamble_has_token(kind) ? 48u : 32u, whole);
        for (size_t n = 0; n < whole; n++) {
            EXPECT_EQ(0, pvn_preamble_decode(b, n, p.session, &q, nullptr)) << n;
            EXPECT_EQ(n <= 6 ? 32u : whole, pvn_preamble_bytes(b, n)) << n;
        }
        ASSERT_EQ(1, pvn_preamble_decode(b, whole, p.session, &q, nullptr));
        EXPECT_EQ(3, q.lane);
        EXPECT_EQ(5, q.stream);
        EXPECT_EQ(42u, q.nonce);
        EXPECT_EQ(kind, q.kind);
        EXPECT_EQ(pvn_preamble_has_token(kind), memcmp(p.token, q.token, sizeof(p.token)) == 0);
    }
}

TEST(Preamble, NoPeerIsKnownAtTheFirstWrongByte)
{
    uint8_t b[PVN_PREAMBLE_MOST];
    pvn_preamble p = some_preamble(PVN_PREAMBLE_CTRL), q;
    pvn_err err = {};
    pvn_preamble_encode(b, &p);
    EXPECT_GT(0,
              pvn_preamble_decode(reinterpret_cast<const uint8_t *>("G"), 1, p.session, &q, &err));
    for (size_t i = 0; i < 4; i++) {
        b[i] ^= 0x80;
        EXPECT_GT(0, pvn_preamble_decode(b, i + 1, p.session, &q, &err)) << i;
        b[i] ^= 0x80;
    }
    b[6] = 9;
    EXPECT_GT(0, pvn_preamble_decode(b, sizeof(b), p.session, &q, &err));
    b[6] = PVN_PREAMBLE_STREAM;
    b[7] = PVN_MAX_LANES;
    EXPECT_GT(0, pvn_preamble_decode(b, sizeof(b), p.session, &q, &err));
}

// The session is a secret. Nobody may find it byte by byte, so a wrong one is refused only when it
// is complete.
TEST(Preamble, AnotherSessionIsKnownAtTheEnd)
{
    for (int kind : preamble_kinds)
        for (unsigned bit = 0; bit < 64; bit++) {
            uint8_t b[PVN_PREAMBLE_MOST];
            pvn_preamble p = some_preamble(kind), other = p, q;
            pvn_err err = {};
            other.session ^= 1ull << bit;
            const size_t whole = pvn_preamble_encode(b, &other);
            for (size_t n = 0; n < whole; n++)
                EXPECT_EQ(0, pvn_preamble_decode(b, n, p.session, &q, &err)) << bit << ' ' << n;
            EXPECT_EQ(-EACCES, pvn_preamble_decode(b, whole, p.session, &q, &err)) << bit;
            EXPECT_NE(nullptr, strstr(err.reason[0], "another listener"));
        }
}

// Byte 7 has all of them.
TEST(Handle, ItSaysWhetherTheListenerHasAKeyAndItsFeatures)
{
    const uint64_t sets[] = {0, PVN_FEATURE_FAILOVER, PVN_FEATURE_SHARED, PVN_FEATURE_SEALS_DATA,
                             PVN_FEATURES_IN_HANDLE};
    for (int family : {4, 6})
        for (int more = 0; more <= (family == 4 ? 2 : 1); more++)
            for (uint64_t features : sets)
                for (bool key : {false, true}) {
                    pvn_handle h = {}, q;
                    uint8_t b[PVN_HANDLE_BYTES];
                    h.version = PVN_WIRE_VERSION;
                    h.session = 1;
                    h.addr.family = static_cast<uint8_t>(family);
                    h.addr.port = 7;
                    h.nmore = more;
                    for (int i = 0; i < more; i++) {
                        h.more[i].family = h.addr.family;
                        h.more[i].port = 8;
                    }
                    h.has_key = key;
                    h.features = features | PVN_FEATURE_ALIVE; // which has no bit
                    pvn_handle_encode(b, &h);
                    ASSERT_EQ(0, pvn_handle_decode(b, sizeof(b), &q, nullptr));
                    EXPECT_EQ(key, q.has_key);
                    EXPECT_EQ(features, q.features);
                    EXPECT_EQ(more, q.nmore);
                }
}

TEST(Frame, AFrameOutOfItsBoundsIsRefused)
{
    uint8_t b[PVN_FRAME_HEADER_BYTES];
    pvn_frame_header h = {PVN_FRAME_READY, 4}, g;
    pvn_err err = {};
    pvn_frame_header_encode(b, &h);
    EXPECT_EQ(0, pvn_frame_header_decode(b, &g, &err));
    EXPECT_EQ(4u, g.len);
    for (uint32_t len : {0u, 3u, 65u, 0x7fffffffu, 0xffffffffu}) {
        h.len = len;
        pvn_frame_header_encode(b, &h);
        EXPECT_EQ(-EPROTO, pvn_frame_header_decode(b, &g, &err)) << len;
    }
    for (int type : {0, static_cast<int>(PVN_FRAME_TYPES), 255}) {
        h = {static_cast<uint8_t>(type), 4};
        pvn_frame_header_encode(b, &h);
        EXPECT_EQ(-EPROTO, pvn_frame_header_decode(b, &g, &err)) << type;
    }
}

pvn_hello sample_hello()
{
    pvn_hello h = {};
    h.version_min = 1;
    h.version_max = 3;
    h.pid = 4711;
    h.session = 99;
    h.features = 5;
    h.traffic_class = -1;
    h.service_level = 104;
    strcpy(h.plugin_version, "0.1.0");
    strcpy(h.host, "node7");
    strcpy(h.device, "eth2");
    return h;
}

TEST(Hello, RoundTripAndTruncation)
{
    uint8_t b[512];
    pvn_hello h = sample_hello(), g;
    int n = pvn_hello_encode(b, sizeof(b), &h);
    ASSERT_GT(n, 0);
    ASSERT_EQ(0, pvn_hello_decode(b, n, &g, nullptr));
    EXPECT_STREQ("node7", g.host);
    EXPECT_EQ(-1, g.traffic_class);
    EXPECT_EQ(104, g.service_level);
    EXPECT_EQ(3, g.version_max);
    for (int i = 0; i < n; i++) {
        std::vector<uint8_t> cut(b,
                                 b + i); // of its own size, so that ASan sees a read past the end
        // ends before the last fields, as in an older version
        bool older = i == n - 1 || i == n - 9 || i == n - 17;
        EXPECT_EQ(older ? 0 : -EPROTO, pvn_hello_decode(cut.data(), i, &g, nullptr)) << i;
        EXPECT_EQ(-ENOSPC, pvn_hello_encode(b + 256, i, &h));
    }
    // A later version may append fields. This one skips them.
    EXPECT_EQ(0, pvn_hello_decode(b, n + 20, &g, nullptr));
}

TEST(Hello, NamesAreCutAndCleaned)
{
    uint8_t b[512];
    pvn_hello h = sample_hello(), g;
    memset(h.host, 'x', sizeof(h.host)); // no terminator
    strcpy(h.device, "a\x1b[31m\nb");
    int n = pvn_hello_encode(b, sizeof(b), &h);
    ASSERT_EQ(0, pvn_hello_decode(b, n, &g, nullptr));
    EXPECT_EQ(size_t{PVN_NAME_MAX - 1}, strlen(g.host));
    EXPECT_STREQ("a?[31m?b", g.device);
}

TEST(Hello, RangesAreChecked)
{
    uint8_t b[512];
    pvn_hello h = sample_hello(), g;
    h.version_min = 4;
    int n = pvn_hello_encode(b, sizeof(b), &h);
    EXPECT_EQ(-EPROTO, pvn_hello_decode(b, n, &g, nullptr));
    h = sample_hello();
    h.traffic_class = 256;
    n = pvn_hello_encode(b, sizeof(b), &h);
    EXPECT_EQ(-EPROTO, pvn_hello_decode(b, n, &g, nullptr));
}

TEST(Hello, VersionsMeetOrSayWhyNot)
{
    pvn_hello a = sample_hello(), b = sample_hello();
    pvn_err err = {};
    EXPECT_EQ(3, pvn_wire_agree(&a, &b, &err));
    b.version_max = 2;
    EXPECT_EQ(2, pvn_wire_agree(&a, &b, &err));
    b.version_min = 4;
    b.version_max = 6;
    strcpy(b.host, "node9");
    EXPECT_EQ(-EPROTONOSUPPORT, pvn_wire_agree(&a, &b, &err));
    EXPECT_NE(nullptr, strstr(err.reason[0], "node9"));
    EXPECT_NE(nullptr, strstr(err.reason[0], "1 to 3"));
    EXPECT_NE(nullptr, strstr(err.reason[0], "4 to 6"));
}

TEST(Offer, RoundTripAndTruncation)
{
    uint8_t b[4096], blob[300];
    pvn_offer o = {}, p;
    memset(blob, 0x5a, sizeof(blob));
    o.n = 2;
    o.lane[0].index = 1;
    o.lane[0].rail = -1;
    o.lane[1].rail = 32767;
    strcpy(o.lane[0].kind, "tcp");
    strcpy(o.lane[0].name, "eth0");
    o.lane[0].len = sizeof(blob);
    o.lane[0].blob = blob;
    o.lane[1].index = 0;
    strcpy(o.lane[1].kind, "rdma");
    int n = pvn_offer_encode(b, sizeof(b), &o);
    ASSERT_GT(n, 300);
    ASSERT_EQ(0, pvn_offer_decode(b, n, &p, nullptr));
    EXPECT_EQ(2, p.n);
    EXPECT_EQ(1, p.lane[0].index);
    EXPECT_EQ(300, p.lane[0].len);
    EXPECT_EQ(0, memcmp(blob, p.lane[0].blob, 300));
    EXPECT_STREQ("rdma", p.lane[1].kind);
    EXPECT_EQ(-1, p.lane[0].rail);
    EXPECT_EQ(32767, p.lane[1].rail);
    for (int i = 0; i < n; i++) {
        std::vector<uint8_t> cut(b, b + i);
        EXPECT_EQ(-EPROTO, pvn_offer_decode(cut.data(), i, &p, nullptr)) << i;
    }
    EXPECT_EQ(-EPROTO, pvn_offer_decode(b, n + 1, &p, nullptr)) << "trailing bytes";
    o.lane[1].index = 1;
    n = pvn_offer_encode(b, sizeof(b), &o);
    EXPECT_EQ(-EPROTO, pvn_offer_decode(b, n, &p, nullptr)) << "a lane twice";
    o.lane[1].rail = -2;
    EXPECT_EQ(-EINVAL, pvn_offer_encode(b, sizeof(b), &o));
    o.n = PVN_MAX_LANES + 1;
    EXPECT_EQ(-EINVAL, pvn_offer_encode(b, sizeof(b), &o));
    b[0] = PVN_MAX_LANES + 1;
    EXPECT_EQ(-EPROTO, pvn_offer_decode(b, n, &p, nullptr));
}

TEST(Bodies, ReadyAliveGoodbyeAndReasonGoRound)
{
    uint8_t b[2048];
    uint32_t lanes;
    char text[PVN_REASON_MAX];
    ASSERT_EQ(4, pvn_ready_encode(b, sizeof(b), 0x81));
    ASSERT_EQ(0, pvn_ready_decode(b, 4, &lanes, nullptr));
    EXPECT_EQ(0x81u, lanes);
    pvn_ready_encode(b, sizeof(b), 0x100);
    EXPECT_EQ(-EPROTO, pvn_ready_decode(b, 4, &lanes, nullptr));
    EXPECT_EQ(-EPROTO, pvn_ready_decode(b, 3, &lanes, nullptr));

    uint32_t open;
    ASSERT_EQ(4, pvn_alive_encode(b, sizeof(b), PVN_MAX_SENDS));
    ASSERT_EQ(0, pvn_alive_decode(b, 4, &open, nullptr));
    EXPECT_EQ(uint32_t(PVN_MAX_SENDS), open);
    EXPECT_EQ(-EPROTO, pvn_alive_decode(b, 3, &open, nullptr));
    pvn_alive_encode(b, sizeof(b), PVN_MAX_SENDS + 1);
    EXPECT_EQ(-EPROTO, pvn_alive_decode(b, 4, &open, nullptr)) << "more than can be open";

    ASSERT_EQ(8, pvn_goodbye_encode(b, sizeof(b), UINT64_MAX - 1));
    EXPECT_EQ(UINT64_MAX - 1, pvn_goodbye_decode(b, 8));
    EXPECT_EQ(0u, pvn_goodbye_decode(b, 7)) << "of an older build";

    int n = pvn_reason_encode(b, sizeof(b), "no\nroute");
    ASSERT_EQ(0, pvn_reason_decode(b, n, text, nullptr));
    EXPECT_STREQ("no?route", text);
    EXPECT_EQ(-EPROTO, pvn_reason_decode(b, n - 1, text, nullptr));
    std::string lengthy(5000, 'y');
    n = pvn_reason_encode(b, sizeof(b), lengthy.c_str());
    ASSERT_EQ(0, pvn_reason_decode(b, n, text, nullptr));
    EXPECT_EQ(size_t{PVN_REASON_MAX - 1}, strlen(text));
}

TEST(Bodies, ReportAndAnswerOfAFailover)
{
    uint8_t b[512];
    pvn_engine_report r = {}, s;
    r.epoch = 3;
    r.n = PVN_MAX_REQS;
    r.next = 1ull << 40;
    for (int i = 0; i < r.n; i++) {
        r.open[i].slot = 100 + i;
        r.open[i].buffers = PVN_MAX_RECVS;
        r.open[i].done = 0x7f;
    }
    for (int i = 0; i < PVN_REPORT_WORDS; i++)
        r.have[i] = ~0ull - i;
    int n = pvn_report_encode(b, sizeof(b), &r);
    ASSERT_GT(n, 0);
    ASSERT_EQ(0, pvn_report_decode(b, n, &s, nullptr));
    EXPECT_EQ(0, memcmp(&r, &s, sizeof(r)));
    for (int cut = 0; cut < n; cut++)
        EXPECT_EQ(-EPROTO, pvn_report_decode(b, cut, &s, nullptr)) << cut;
    b[5] = PVN_MAX_REQS + 1;
    EXPECT_EQ(-EPROTO, pvn_report_decode(b, n, &s, nullptr));

    pvn_engine_answer a = {7, 9, {1, 2, 3, 4}}, c;
    n = pvn_answer_encode(b, sizeof(b), &a);
    ASSERT_GT(n, 0);
    ASSERT_EQ(0, pvn_answer_decode(b, n, &c, nullptr));
    EXPECT_EQ(0, memcmp(&a, &c, sizeof(a)));
    for (int cut = 0; cut < n; cut++)
        EXPECT_EQ(-EPROTO, pvn_answer_decode(b, cut, &c, nullptr)) << cut;
}

TEST(Bodies, HelloOfAnOlderBuildResumesNothing)
{
    uint8_t b[512];
    pvn_hello h = {}, g;
    h.version_min = h.version_max = 1;
    h.resumes = 0x1234;
    h.received = 0x5678;
    int n = pvn_hello_encode(b, sizeof(b), &h);
    ASSERT_EQ(0, pvn_hello_decode(b, n, &g, nullptr));
    EXPECT_EQ(0x1234u, g.resumes);
    EXPECT_EQ(0x5678u, g.received);
    ASSERT_EQ(0, pvn_hello_decode(b, n - 9, &g, nullptr));
    EXPECT_EQ(0x1234u, g.resumes);
    EXPECT_EQ(0u, g.received);
    ASSERT_EQ(0, pvn_hello_decode(b, n - 17, &g, nullptr));
    EXPECT_EQ(0u, g.resumes);
}

TEST(Hello, OtherAddressesGoRoundInAHello)
{
    uint8_t b[512];
    pvn_hello h = sample_hello(), g;
    int none = pvn_hello_encode(b, sizeof(b), &h);
    for (h.nothers = 0; h.nothers < PVN_OTHER_ADDRS; h.nothers++) {
        pvn_wire_addr &a = h.other[h.nothers];
        a.family = h.nothers % 2 ? 6 : 4;
        a.port = static_cast<uint16_t>(1000 + h.nothers);
        a.bytes[0] = static_cast<uint8_t>(10 + h.nothers);
    }
    int n = pvn_hello_encode(b, sizeof(b), &h);
    ASSERT_EQ(none + 19 * PVN_OTHER_ADDRS, n);
    ASSERT_EQ(0, pvn_hello_decode(b, n, &g, nullptr));
    ASSERT_EQ(int{PVN_OTHER_ADDRS}, g.nothers);
    EXPECT_EQ(0, memcmp(h.other, g.other, sizeof(h.other)));
    for (int i = none; i < n; i++)
        EXPECT_EQ(-EPROTO, pvn_hello_decode(b, i, &g, nullptr)) << i;
    // A later version may send more of them than this build accepts.
    b[none - 1] = PVN_OTHER_ADDRS + 1;
    memcpy(b + n, b + none, 19);
    ASSERT_EQ(0, pvn_hello_decode(b, n + 19, &g, nullptr));
    EXPECT_EQ(int{PVN_OTHER_ADDRS}, g.nothers);
    b[none - 1] = PVN_OTHER_ADDRS;
    b[none] = 5; // an unknown address family
    EXPECT_EQ(-EPROTO, pvn_hello_decode(b, n, &g, nullptr));
    b[none] = 4;
    b[none + 1] = b[none + 2] = 0; // port 0
    EXPECT_EQ(-EPROTO, pvn_hello_decode(b, n, &g, nullptr));
}

using Bytes = std::vector<uint8_t>;

Bytes written(const pvn_hello &h)
{
    Bytes b(PVN_FRAME_BODY_MAX);
    b.resize(static_cast<size_t>(std::max(0, pvn_hello_encode(b.data(), b.size(), &h))));
    return b;
}

Bytes written(const pvn_offer &o)
{
    Bytes b(PVN_FRAME_BODY_MAX);
    b.resize(static_cast<size_t>(std::max(0, pvn_offer_encode(b.data(), b.size(), &o))));
    return b;
}

Bytes written(const pvn_handle &h)
{
    Bytes b(PVN_HANDLE_BYTES);
    pvn_handle_encode(b.data(), &h);
    return b;
}

// Decodes v, encodes the result, and decodes that again: both results are equal. False: v was
// refused.
template <typename T>
bool reads_back(const Bytes &v, int (*decode)(const uint8_t *, size_t, T *, pvn_err *))
{
    auto first = std::make_unique<T>(), second = std::make_unique<T>();
    if (decode(v.data(), v.size(), first.get(), nullptr) != 0)
        return false;
    Bytes b = written(*first);
    EXPECT_EQ(0, decode(b.data(), b.size(), second.get(), nullptr));
    EXPECT_EQ(b, written(*second));
    return true;
}

// Decoders get whole bodies. Some have changed bytes, and some are cut.
TEST(Bodies, WhatIsTakenOfDamagedBytesReadsBack)
{
    std::mt19937 rng(20260101);
    pvn_hello hello = sample_hello();
    hello.nothers = 2;
    hello.other[0] = hello.other[1] = sample_handle().addr;
    pvn_offer offer = {};
    uint8_t blob[20] = {1, 2, 3};
    offer.n = 2;
    for (uint8_t i = 0; i < 2; i++) {
        offer.lane[i].index = i;
        offer.lane[i].rail = -1;
        strcpy(offer.lane[i].kind, "tcp");
        offer.lane[i].len = sizeof(blob);
        offer.lane[i].blob = blob;
    }
    const Bytes whole[] = {written(hello), written(offer), written(sample_handle())};
    bool (*const reads[])(const Bytes &) = {
        [](const Bytes &b) { return reads_back(b, pvn_hello_decode); },
        [](const Bytes &b) { return reads_back(b, pvn_offer_decode); },
        [](const Bytes &b) { return reads_back(b, pvn_handle_decode); }};
    for (int k = 0; k < 3; k++) {
        int taken = 0, refused = 0;
        for (int i = 0; i < 10000; i++) {
            Bytes v = whole[k];
            for (unsigned damages = rng() % 4; damages > 0; damages--)
                v[rng() % v.size()] = static_cast<uint8_t>(rng() % 4 ? rng() : rng() % 9);
            if (rng() % 8 == 0)
                v.resize(rng() % v.size());
            (reads[k](v) ? taken : refused)++;
        }
        EXPECT_TRUE(taken > 100 && refused > 100) << k << ": " << taken << " taken";
    }
}

TEST(Random, TwoRandomNumbersDiffer)
{
    uint64_t a = pvn_random64(), b = pvn_random64();
    EXPECT_NE(0u, a);
    EXPECT_NE(a, b);
}

} // namespace
