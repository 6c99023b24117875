// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Sealed streams over socket pairs. A relay between the two ends damages, repeats, drops and
// exchanges bytes.
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "unit/seal_ends.h"

extern "C" {
#include "seal/seal.h"
#include "seal/ssl_dl.h"
}

namespace
{

#define EXPECT_SAYS(text, part)                                                                    \
    EXPECT_NE(std::string::npos, std::string(text).find(part)) << "it says: " << (text)

// This test comes first, because a library stays loaded.
TEST(Library, OneThatIsMissingOrAnotherIsNamedWithItsVariable)
{
    pvn_err err = PVN_ERR_INIT;
    ASSERT_EQ(nullptr, pvn_ssl_get()) << "loaded by an earlier test";
    EXPECT_EQ(nullptr, pvn_ssl_load("libssl.so.0.no-such", &err));
    EXPECT_STREQ("NCCL_PVRDMA_SSL_LIB=libssl.so.0.no-such: cannot open shared object file: No such "
                 "file or directory; correct it or unset it",
                 err.reason[0]);
    EXPECT_EQ(-ELIBACC, err.code);
    EXPECT_EQ(PVN_FAULT_USAGE, err.fault);
    EXPECT_EQ(nullptr, pvn_ssl_load("libm.so.6", &err));
    EXPECT_SAYS(err.reason[0], "NCCL_PVRDMA_SSL_LIB=libm.so.6 has no function");
    EXPECT_SAYS(err.reason[0], "too old or not OpenSSL; correct it or unset it");
    EXPECT_EQ(nullptr, pvn_ssl_get());
    ASSERT_NE(nullptr, pvn_ssl_load("libssl.so.3", &err)) << err.reason[0];
    EXPECT_EQ(pvn_ssl_get(), pvn_ssl_load("whatever", &err)) << "it is loaded once";
}

long without_x25519(SSL_CTX *c, int cmd, long n, void *p)
{
    if (cmd == SSL_CTRL_SET_GROUPS_LIST && strstr(static_cast<char *>(p), "X25519"))
        return 0;
    return SSL_CTX_ctrl(c, cmd, n, p);
}

// ---- what works ----

TEST(Seal, BothEndsWithTheSecretCarryBytes)
{
    Ends e;
    ASSERT_TRUE(e.shake()) << e.err[0].reason[0] << e.err[1].reason[0];
    for (int from = 0; from < 2; from++) {
        EXPECT_EQ(text("hello"), e.carry(from, text("hello")));
        EXPECT_EQ(many(3000000), e.carry(from, many(3000000)));
    }
    EXPECT_EQ(std::string::npos, std::string(e.sent[0].begin(), e.sent[0].end()).find("hello"))
        << "it is on the wire as it is";
    std::string suite = pvn_seal_suite(e.s[0]);
    EXPECT_TRUE(suite == "TLS_AES_128_GCM_SHA256" || suite == "TLS_CHACHA20_POLY1305_SHA256")
        << suite;
    EXPECT_EQ(suite, pvn_seal_suite(e.s[1]));
}

TEST(Seal, ARestThatWasTakenFromTheSocketIsKnown)
{
    Ends e;
    uint8_t b[2];
    ASSERT_TRUE(e.shake());
    ASSERT_EQ(4, pvn_seal_send(e.s[0], "1234", 4));
    e.pass();
    EXPECT_FALSE(pvn_seal_has_pending(e.s[1])) << "nothing was read yet";
    ASSERT_EQ(2, pvn_seal_recv(e.s[1], b, 2));
    EXPECT_TRUE(pvn_seal_has_pending(e.s[1]));
    ASSERT_EQ(2, pvn_seal_recv(e.s[1], b, 2));
    EXPECT_FALSE(pvn_seal_has_pending(e.s[1]));
    EXPECT_EQ(-EAGAIN, pvn_seal_recv(e.s[1], b, 2));
    EXPECT_FALSE(pvn_seal_has_pending(e.s[1]));
    // The first bytes of a record count as pending, too, even if the rest never arrives.
    ASSERT_EQ(2, pvn_seal_send(e.s[0], "12", 2));
    Bytes record = e.take(0);
    for (size_t at = 0; at + 1 < record.size(); at++) {
        e.give(1, Bytes(record.begin() + static_cast<long>(at),
                        record.begin() + static_cast<long>(at) + 1));
        EXPECT_EQ(-EAGAIN, pvn_seal_recv(e.s[1], b, 2));
        EXPECT_TRUE(pvn_seal_has_pending(e.s[1])) << at + 1 << " bytes";
    }
    e.give(1, Bytes(record.end() - 1, record.end()));
    EXPECT_EQ(2, pvn_seal_recv(e.s[1], b, 2));
    EXPECT_FALSE(pvn_seal_has_pending(e.s[1]));
    for (size_t len : {1, 5, 20}) {
        Ends f;
        ASSERT_TRUE(f.shake());
        ASSERT_EQ(2, pvn_seal_send(f.s[0], "12", 2));
        record = f.take(0);
        f.give(1, Bytes(record.begin(), record.begin() + static_cast<long>(len)));
        f.hang_up(1);
        EXPECT_EQ(0, pvn_seal_recv(f.s[1], b, 2));
        EXPECT_TRUE(pvn_seal_has_pending(f.s[1])) << len << " bytes";
    }
}

TEST(Seal, ShortPiecesShareARecord)
{
    enum { OF_A_RECORD = 5 + 1 + 16 }; // header, type and tag
    Ends e;
    Bytes head = many(32), body = many(40000), got(40064);
    ASSERT_TRUE(e.shake());
    iovec small[] = {{head.data(), 32}, {body.data(), 8}, {head.data(), 32}};
    ASSERT_EQ(72, pvn_seal_sendv(e.s[0], small, 3));
    EXPECT_EQ(72u + OF_A_RECORD, e.take(0).size()) << "which the other end never gets";
    Ends f;
    ASSERT_TRUE(f.shake());
    iovec large[] = {{head.data(), 32}, {body.data(), body.size()}, {head.data(), 32}};
    ASSERT_EQ(40064, pvn_seal_sendv(f.s[0], large, 3));
    Bytes sent = f.take(0);
    EXPECT_EQ(40064u + 3 * OF_A_RECORD, sent.size());
    f.give(1, sent);
    iovec in[] = {{got.data(), 100}, {got.data() + 100, 0}, {got.data() + 100, got.size() - 100}};
    ASSERT_EQ(40064, pvn_seal_recvv(f.s[1], in, 3)) << "all that has come, over records";
    Bytes expected = head;
    expected.insert(expected.end(), body.begin(), body.end());
    expected.insert(expected.end(), head.begin(), head.end());
    EXPECT_EQ(expected, got);
    EXPECT_EQ(-EAGAIN, pvn_seal_recvv(f.s[1], in, 3));
}

TEST(Seal, OneHandshakesExportIsNoOthers)
{
    std::vector<Bytes> all;
    for (int i = 0; i < 2; i++) {
        Ends e;
        pvn_err err = PVN_ERR_INIT;
        ASSERT_TRUE(e.shake());
        for (const char *label : {"one", "two"}) {
            Bytes a(32), b(32);
            ASSERT_EQ(0, pvn_seal_export(e.s[0], label, a.data(), a.size(), &err));
            ASSERT_EQ(0, pvn_seal_export(e.s[1], label, b.data(), b.size(), &err));
            EXPECT_EQ(a, b) << "both ends have the same";
            EXPECT_EQ(0, std::count(all.begin(), all.end(), a));
            all.push_back(a);
        }
    }
}

// Otherwise anybody who records a handshake, and gets the key later, can read everything.
TEST(Seal, NoHandshakeGoesWithoutAnEphemeralKey)
{
    Ends e;
    ASSERT_TRUE(e.shake());
    // psk_key_exchange_modes: psk_dhe_ke alone; key_share: of X25519 from both ends.
    const Bytes modes = {0, 45, 0, 2, 1, 1}, share = {0, 29, 0, 32}, extension = {0, 51};
    auto has = [&](int end, const Bytes &what) {
        return std::search(e.sent[end].begin(), e.sent[end].end(), what.begin(), what.end()) !=
               e.sent[end].end();
    };
    EXPECT_TRUE(has(0, modes));
    for (int end = 0; end < 2; end++) {
        EXPECT_TRUE(has(end, extension)) << end;
        EXPECT_TRUE(has(end, share)) << end;
    }
}

TEST(Seal, TheFirstBytesAreJudgedBeforeAnythingIsDone)
{
    Ends e;
    e.step();
    Bytes first = e.take(0);
    ASSERT_GT(first.size(), 64u);
    for (size_t n = 0; n < PVN_SEAL_FIRST_BYTES; n++)
        EXPECT_EQ(0, pvn_seal_is_first(first.data(), n)) << n;
    EXPECT_EQ(1, pvn_seal_is_first(first.data(), PVN_SEAL_FIRST_BYTES));
    EXPECT_EQ(-1, pvn_seal_is_first(reinterpret_cast<const uint8_t *>("G"), 1));
    EXPECT_EQ(-1,
              pvn_seal_is_first(reinterpret_cast<const uint8_t *>("\x16\x03\x01\xff\xff\x01"), 6));
    EXPECT_EQ(-1, pvn_seal_is_first(reinterpret_cast<const uint8_t *>("\x16\x03\x01\x00\x01"), 5));
    EXPECT_EQ(-1,
              pvn_seal_is_first(reinterpret_cast<const uint8_t *>("\x16\x03\x01\x00\xc0\x02"), 6));
}

// A libssl with FIPS's providers alone forbids X25519. Each case runs in a process of its own,
// because the settings are made once.
[[noreturn]] void shake_without_x25519()
{
    pvn_err err = PVN_ERR_INIT;
    const_cast<pvn_ssl *>(pvn_ssl_load("libssl.so.3", &err))->SSL_CTX_ctrl = without_x25519;
    if (pvn_seal_check(&err) != 0) {
        fprintf(stderr, "%s\n", err.reason[0]);
        exit(1);
    }
    bool right;
    {
        Ends e;
        right = e.shake() && e.carry(0, text("right")) == text("right");
    }
    exit(right ? 0 : 2);
}
TEST(Seal, WorksWhereX25519IsForbidden)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(shake_without_x25519(), testing::ExitedWithCode(0), "");
}

// Does the handshake of one end without X25519. The other end starts with X25519 and has to start
// again.
bool shake_alone(int fd, bool acceptor)
{
    uint8_t secret[PVN_SEAL_SECRET] = {};
    pvn_err err = PVN_ERR_INIT;
    pvn_seal *s = pvn_seal_new(fd, acceptor, secret, &err);
    int rc = s ? -EAGAIN : err.code;
    for (int i = 0; i < 600 && rc == -EAGAIN; i++) {
        pollfd p = {fd, POLLIN, 0};
        rc = pvn_seal_handshake(s, &err);
        if (rc == -EAGAIN)
            poll(&p, 1, 100);
    }
    pvn_seal_free(s);
    return rc == 0;
}
[[noreturn]] void shake_with_one_without_x25519(bool acceptor)
{
    int sv[2], status = -1;
    pvn_err err = PVN_ERR_INIT;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) != 0)
        exit(3);
    pid_t pid = fork();
    auto *ssl = const_cast<pvn_ssl *>(pvn_ssl_load("libssl.so.3", &err));
    if (pid == 0)
        _exit(shake_alone(sv[0], !acceptor) ? 0 : 1);
    ssl->SSL_CTX_ctrl = without_x25519;
    bool right = shake_alone(sv[1], acceptor);
    exit(waitpid(pid, &status, 0) == pid && status == 0 && right ? 0 : 1);
}
TEST(Seal, OneEndWithoutX25519AndOneWithItMeet)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    for (bool acceptor : {false, true})
        EXPECT_EXIT(shake_with_one_without_x25519(acceptor), testing::ExitedWithCode(0), "");
}

long without_tls13(SSL_CTX *c, int cmd, long n, void *p)
{
    return cmd == SSL_CTRL_SET_MIN_PROTO_VERSION ? 0 : SSL_CTX_ctrl(c, cmd, n, p);
}
[[noreturn]] void check_without_tls13()
{
    pvn_err err = PVN_ERR_INIT;
    const_cast<pvn_ssl *>(pvn_ssl_load("libssl.so.3", &err))->SSL_CTX_ctrl = without_tls13;
    int rc = pvn_seal_check(&err);
    fprintf(stderr, "%s\n", err.reason[0]);
    exit(rc == -ELIBACC && err.fault == PVN_FAULT_USAGE && ERR_peek_error() == 0 ? 0 : 1);
}
TEST(Seal, WhatALibraryCannotDoShowsBeforeTheFirstConnection)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(check_without_tls13(), testing::ExitedWithCode(0), "OpenSSL 3.* cannot do TLS 1.3");
}

// ---- ends that do not have the secret ----

TEST(Seal, AnotherSecretIsRefusedAtBothEnds)
{
    Ends e(Ends::secret(1), Ends::secret(2));
    EXPECT_FALSE(e.shake());
    EXPECT_EQ(-EKEYREJECTED, e.rc[0]);
    EXPECT_EQ(-EKEYREJECTED, e.rc[1]);
    EXPECT_SAYS(e.err[0].reason[0], "does not accept the key");
    EXPECT_SAYS(e.err[1].reason[0], "another key");
}

TEST(Seal, EveryBitOfTheSecretCounts)
{
    for (size_t i = 0; i < PVN_SEAL_SECRET; i++) {
        Bytes other = Ends::secret(1);
        other[i] ^= 1;
        Ends e(Ends::secret(1), other);
        EXPECT_FALSE(e.shake()) << i;
    }
}

// A program that speaks TLS without the secret, and has a certificate of its own, like an impostor.
struct Impostor {
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    EVP_PKEY *pkey = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
    X509 *cert = X509_new();
    SSL *ssl;
    explicit Impostor(int fd, bool acceptor)
    {
        X509_gmtime_adj(X509_getm_notBefore(cert), 0);
        X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
        X509_set_pubkey(cert, pkey);
        X509_sign(cert, pkey, EVP_sha256());
        EXPECT_EQ(1, SSL_CTX_use_certificate(ctx, cert));
        EXPECT_EQ(1, SSL_CTX_use_PrivateKey(ctx, pkey));
        ssl = SSL_new(ctx);
        SSL_set_fd(ssl, fd);
        acceptor ? SSL_set_accept_state(ssl) : SSL_set_connect_state(ssl);
    }
    ~Impostor()
    {
        SSL_free(ssl);
        X509_free(cert);
        EVP_PKEY_free(pkey);
        SSL_CTX_free(ctx);
    }
};

TEST(Seal, ACertificateProvesNothing)
{
    for (int end = 0; end < 2; end++) {
        Ends e;
        Impostor i(e.near[!end], end == 0);
        int other = 0;
        for (int n = 0; n < 20 && (e.rc[end] == -EAGAIN || other != 1); n++) {
            if (other != 1)
                other = SSL_do_handshake(i.ssl);
            e.pass();
            if (e.rc[end] == -EAGAIN)
                e.rc[end] = pvn_seal_handshake(e.s[end], &e.err[end]);
            e.pass();
        }
        EXPECT_EQ(-EKEYREJECTED, e.rc[end]) << end << ' ' << e.err[end].reason[0];
        EXPECT_SAYS(e.err[end].reason[0], "does not prove the key");
        ERR_clear_error();
    }
}

TEST(Seal, AnEndThatSaysNothingOrGoesIsNoPeer)
{
    for (bool bytes : {false, true}) {
        Ends e;
        e.step();
        e.take(0);
        if (bytes)
            e.give(1, text("GET / HTTP/1.0\r\n\r\n"));
        EXPECT_EQ(bytes ? -ENOMSG : -EAGAIN, e.rc[1] = pvn_seal_handshake(e.s[1], &e.err[1]));
        e.hang_up(0);
        EXPECT_EQ(-ECONNRESET, e.rc[0] = pvn_seal_handshake(e.s[0], &e.err[0]));
        EXPECT_SAYS(e.err[0].reason[0], "closed the connection within its handshake");
    }
}

// ---- between the two ends ----

// Flips a bit of each byte of the handshake. The ends never come up with different bytes. A byte
// that no end checks (the version in the first record's header) may change.
TEST(Relay, EveryFlippedByteOfTheHandshakeEndsIt)
{
    size_t len[2];
    {
        Ends e;
        ASSERT_TRUE(e.shake());
        len[0] = e.sent[0].size();
        len[1] = e.sent[1].size();
    }
    for (int direction = 0; direction < 2; direction++) {
        size_t harmless = 0;
        for (size_t at = 0; at < len[direction]; at++) {
            Ends e;
            size_t passed = 0;
            bool fired = false;
            e.filter = [&](int from, Bytes b) {
                if (from == direction && at >= passed && at < passed + b.size()) {
                    b[at - passed] ^= static_cast<uint8_t>(1 << at % 8);
                    fired = true;
                }
                passed += from == direction ? b.size() : 0;
                return b;
            };
            bool up = e.shake();
            ASSERT_TRUE(fired) << direction << ' ' << at;
            harmless += up;
            if (up) {
                EXPECT_EQ(text("right"), e.carry(0, text("right"))) << direction << ' ' << at;
                EXPECT_EQ(text("right"), e.carry(1, text("right"))) << direction << ' ' << at;
            }
            for (int i = 0; i < 2; i++) {
                EXPECT_NE(-EAGAIN, e.rc[i]) << direction << ' ' << at;
                EXPECT_TRUE(e.rc[i] == 0 || e.err[i].reason[0][0]) << "without a reason";
            }
        }
        EXPECT_LE(harmless, 2u) << "of " << len[direction] << " bytes, direction " << direction;
    }
}

TEST(Relay, AHandshakeThatIsCutEndsIt)
{
    Ends whole;
    ASSERT_TRUE(whole.shake());
    for (int direction = 0; direction < 2; direction++)
        for (size_t at = 0; at < whole.sent[direction].size(); at++) {
            Ends e;
            size_t passed = 0;
            e.filter = [&](int from, Bytes b) {
                if (from == direction) {
                    size_t n = at > passed ? std::min(b.size(), at - passed) : 0;
                    passed += b.size();
                    b.resize(n);
                }
                return b;
            };
            EXPECT_FALSE(e.shake(false)) << direction << ' ' << at;
        }
}

TEST(Relay, AHandshakeOfBeforeProvesNothing)
{
    Ends e;
    ASSERT_TRUE(e.shake());
    e.carry(0, text("secret"));
    Bytes again = e.sent[0];
    {
        Ends victim; // reuses the secret, for once
        victim.give(1, again);
        for (int i = 0; i < 3; i++)
            victim.rc[1] = pvn_seal_handshake(victim.s[1], &victim.err[1]);
        EXPECT_EQ(-EKEYREJECTED, victim.rc[1]);
    }
    Ends victim;
    victim.step();
    victim.take(0);
    victim.give(0, e.sent[1]);
    EXPECT_EQ(-EKEYREJECTED, pvn_seal_handshake(victim.s[0], &victim.err[0]));
}

// An end is connected to itself, or to another end of its kind.
TEST(Relay, AReflectionProvesNothing)
{
    Ends e;
    e.step();
    e.give(0, e.take(0));
    EXPECT_EQ(-EKEYREJECTED, pvn_seal_handshake(e.s[0], &e.err[0]));
}

// The streams of two connections are exchanged. Their secrets differ, so neither connection comes
// up.
TEST(Relay, ExchangedConnectionsDoNotComeUp)
{
    Ends a(Ends::secret(1), Ends::secret(1)), b(Ends::secret(2), Ends::secret(2));
    for (int i = 0; i < 10; i++) {
        a.step();
        b.step();
        for (int from = 0; from < 2; from++) {
            Bytes of_a = a.take(from), of_b = b.take(from);
            a.give(!from, of_b);
            b.give(!from, of_a);
        }
    }
    for (int end = 0; end < 2; end++) {
        EXPECT_EQ(-EKEYREJECTED, a.rc[end]);
        EXPECT_EQ(-EKEYREJECTED, b.rc[end]);
    }
}

TEST(Relay, EveryFlippedByteOfARecordIsNoticed)
{
    size_t len = 0;
    for (size_t at = 0; at <= len; at++) {
        Ends e;
        Bytes got(100);
        ASSERT_TRUE(e.shake());
        ASSERT_EQ(9, pvn_seal_send(e.s[0], "gradients", 9));
        Bytes record = e.take(0);
        len = record.size() - 1;
        record[at] ^= 0x40;
        e.give(1, record);
        ssize_t n = pvn_seal_recv(e.s[1], got.data(), got.size());
        /* The length became larger, so the end waits for the rest, which never arrives. */
        EXPECT_TRUE(n == -EBADMSG || n == -EAGAIN) << at << ": " << n;
        if (n == -EBADMSG) { // the other end is notified; it received nothing forged
            e.pass();
            EXPECT_EQ(-ECONNRESET, pvn_seal_recv(e.s[0], got.data(), got.size())) << at;
        }
        e.hang_up(1);
        n = pvn_seal_recv(e.s[1], got.data(), got.size());
        EXPECT_TRUE(n == -EBADMSG || n == 0) << at << ": " << n;
    }
    EXPECT_GT(len, 20u);
}

// Somebody who damages a record may also end the connection behind it, so that no alert can be
// sent.
TEST(Relay, ADamagedRecordBeforeTheEndIsNoticed)
{
    Ends e;
    Bytes got(100);
    ASSERT_TRUE(e.shake());
    ASSERT_EQ(9, pvn_seal_send(e.s[0], "gradients", 9));
    Bytes record = e.take(0);
    record[10] ^= 0x40;
    e.give(1, record);
    e.hang_up(1);
    EXPECT_EQ(-EBADMSG, pvn_seal_recv(e.s[1], got.data(), got.size()));
    EXPECT_EQ(-EBADMSG, pvn_seal_recv(e.s[1], got.data(), got.size())) << "and stays so";
}

TEST(Relay, RecordsThatAreRepeatedDroppedOrExchangedAreNoticed)
{
    for (int kind = 0; kind < 4; kind++) {
        Ends e;
        Bytes got(100);
        ASSERT_TRUE(e.shake());
        ASSERT_EQ(3, pvn_seal_send(e.s[0], "one", 3));
        Bytes one = e.take(0);
        ASSERT_EQ(3, pvn_seal_send(e.s[0], "two", 3));
        Bytes two = e.take(0);
        ssize_t n = 0;
        if (kind == 0 || kind == 3) { // repeated, or sent back
            e.give(kind == 0, one);
            if (kind == 0) {
                EXPECT_EQ(3, pvn_seal_recv(e.s[1], got.data(), got.size()));
                e.give(1, one);
            }
            n = pvn_seal_recv(e.s[kind == 0], got.data(), got.size());
        } else { // dropped, exchanged
            e.give(1, two);
            if (kind == 2)
                e.give(1, one);
            n = pvn_seal_recv(e.s[1], got.data(), got.size());
        }
        EXPECT_EQ(-EBADMSG, n) << kind;
    }
}

TEST(Relay, AnEndIsAnEndAndNotMore)
{
    Ends e;
    uint8_t b[8];
    ASSERT_TRUE(e.shake());
    ASSERT_EQ(3, pvn_seal_send(e.s[0], "one", 3));
    e.pass();
    e.hang_up(1);
    EXPECT_EQ(3, pvn_seal_recv(e.s[1], b, sizeof(b)));
    EXPECT_EQ(0, pvn_seal_recv(e.s[1], b, sizeof(b)));
    EXPECT_EQ(0, pvn_seal_recv(e.s[1], b, sizeof(b))) << "and stays one";
    EXPECT_EQ(-EPIPE, pvn_seal_send(e.s[1], b, 1)) << "without SIGPIPE";
}

// Many handshakes that fail leave nothing behind; AddressSanitizer checks it.
TEST(Relay, ManyThatFail)
{
    for (int i = 0; i < 300; i++) {
        Ends e(Ends::secret(1), Ends::secret(i % 2 ? 1 : 2));
        if (i % 2)
            e.step();
        else
            EXPECT_FALSE(e.shake());
    }
    EXPECT_EQ(0u, ERR_peek_error()) << "an error is left for the host process";
}

// The host process may use OpenSSL itself, which cleans up at exit. NCCL's comms may be destroyed
// after that.
TEST(Process, StreamsEndBehindOpensslsOwnCleanUp)
{
    pid_t pid = fork();
    ASSERT_NE(-1, pid);
    if (pid == 0) {
        {
            Ends e;
            if (!e.shake())
                _exit(1);
            OPENSSL_cleanup();
        }
        pvn_seal_forget();
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
}

} // namespace
