// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Connection set-up with a key. Both ends run in one thread over real sockets. A relay between them
// reads, damages, repeats and holds back bytes.
#include <gtest/gtest.h>

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"
#include "base/poller.h"
#include "connect/handshake.h"
#include "connect/listener.h"
#include "connect/token.h"
#include "seal/key.h"
#include "seal/seal_begin.h"
#include "seal/ssl_dl.h"
}
#include "fail/raw_peer.h"
#include "support/key_file.h"
#include "support/memlane.h"

namespace
{

using raw::Bytes;

std::string warnings, infos;
void capture(void *, pvn_log_level level, unsigned long, const char *, int, const char *text)
{
    (level == PVN_LOG_WARN ? warnings : infos) += std::string(text) + "\n";
}

size_t count(const std::string &text, const char *part)
{
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        n++;
    return n;
}

// Stands between connector and listener and forwards bytes when the test steps it.
struct Relay {
    struct Link {
        int fd[2]; // to the connector and to the listener
        Bytes passed[2];
    };
    raw::Listener l;
    uint16_t to;
    std::list<Link> links;
    // Gets the sender (0: connector), the offset of the first byte and the bytes. Returns the bytes
    // to forward.
    std::function<Bytes(int, size_t, Bytes)> filter = [](int, size_t, Bytes b) { return b; };

    explicit Relay(uint16_t port) : to(port)
    {
        fcntl(l.s.fd, F_SETFL, O_NONBLOCK);
    }
    ~Relay()
    {
        for (Link &k : links)
            for (int fd : k.fd)
                close(fd);
    }
    void step()
    {
        int fd = accept4(l.s.fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0) {
            raw::Sock on = raw::dial(to);
            links.push_back({{fd, on.fd}, {}});
            on.fd = -1;
        }
        for (Link &k : links)
            for (int from = 0; from < 2; from++) {
                Bytes b(65536);
                ssize_t n = recv(k.fd[from], b.data(), b.size(), MSG_DONTWAIT);
                if (n == 0)
                    shutdown(k.fd[!from], SHUT_WR);
                if (n <= 0)
                    continue;
                b.resize(static_cast<size_t>(n));
                Bytes out = filter(from, k.passed[from].size(), b);
                k.passed[from].insert(k.passed[from].end(), b.begin(), b.end());
                if (!out.empty())
                    send(k.fd[!from], out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            }
    }
    std::string text(int from) const
    {
        std::string t;
        for (const Link &k : links)
            t.append(k.passed[from].begin(), k.passed[from].end());
        return t;
    }
};

struct Key : testing::Test {
    Folder f;
    pvn_params params = *pvn_params_get();
    pvn_device dev = {};
    pvn_key *one = nullptr, *other = nullptr;
    pvn_listener *l = nullptr;
    pvn_handle h = {};
    pvn_conn *a = nullptr, *s = nullptr; // acceptor, sender
    std::unique_ptr<Relay> relay;
    pvn_err accept_err = {};
    pvn_err why = {}; // why a connection for an established comm failed
    int ra = -EAGAIN, rs = -EAGAIN;

    void SetUp() override
    {
        pvn_err err = PVN_ERR_INIT;
        ASSERT_NE(nullptr, pvn_ssl_load("libssl.so.3", &err)) << err.reason[0];
        ASSERT_EQ(0, pvn_key_read(write_file(f / "1", std::string(32, '1')).c_str(), &one, &err));
        ASSERT_EQ(0, pvn_key_read(write_file(f / "2", std::string(32, '1') + "\n").c_str(), &other,
                                  &err));
        pvn_memlane_reset();
        warnings.clear();
        infos.clear();
        pvn_log_set_capture(capture, nullptr);
        ASSERT_EQ(0, pvn_poller_get());
        pvn_memlane_device(&dev, "mem0-of-the-test");
        dev.nvia = 1;
        dev.via[0].ops = &pvn_mem_transport;
        pvn_params_override(&params);
    }
    void TearDown() override
    {
        hang_up();
        if (l)
            pvn_listener_close(l);
        EXPECT_EQ(0, pvn_memlane_open) << "a lane was left";
        EXPECT_EQ(0, pvn_poller_watches()) << "a watch was left";
        pvn_poller_put();
        pvn_seal_end();
        pvn_params_override(nullptr);
        pvn_log_set_capture(nullptr, nullptr);
        pvn_key_free(one);
        pvn_key_free(other);
    }
    void listen(const pvn_key *key)
    {
        pvn_listener_cfg lc = {};
        pvn_err err = {};
        uint8_t handle[PVN_HANDLE_BYTES];
        lc.dev = lc.port[0] = &dev;
        lc.nports = 1;
        lc.traffic_class = -1;
        lc.key = key;
        ASSERT_EQ(0, pvn_listener_open(&lc, handle, &l, &err)) << err.reason[0];
        ASSERT_EQ(0, pvn_handle_decode(handle, sizeof(handle), &h, &err));
        EXPECT_EQ(key != nullptr, h.has_key);
    }
    void connect(const pvn_key *key)
    {
        pvn_conn_cfg cc = {};
        pvn_handle at = h;
        if (relay)
            at.addr.port = relay->l.port;
        cc.sender = true;
        cc.dev = cc.port[0] = &dev;
        cc.nports = 1;
        cc.session = h.session;
        cc.traffic_class = -1;
        cc.peer_len = pvn_wire_addr_to_sockaddr(&at.addr, 0, &cc.peer);
        cc.key = key;
        cc.peer_has_key = h.has_key;
        cc.peer_features = h.features;
        s = pvn_conn_new(&cc);
        ASSERT_NE(nullptr, s);
        rs = -EAGAIN;
    }
    void hang_up()
    {
        pvn_conn_close(a, nullptr);
        pvn_conn_close(s, nullptr);
        a = s = nullptr;
        ra = rs = -EAGAIN;
    }
    void step()
    {
        if (s && rs == -EAGAIN)
            rs = pvn_conn_step(s);
        if (relay)
            relay->step();
        if (!a && ra == -EAGAIN) {
            int rc = pvn_listener_accept(l, &a, &accept_err);
            if (a || rc)
                ra = rc;
        }
    }
    bool until(const std::function<bool()> &what)
    {
        uint64_t end = pvn_now_ns() + 60 * PVN_NS_PER_S;
        while (!what()) {
            if (pvn_now_ns() > end)
                return false;
            step();
            std::this_thread::yield();
        }
        return true;
    }
    bool comes_up()
    {
        return until([&] { return (ra == 0 && rs == 0) || (rs != -EAGAIN && rs); }) && ra == 0 &&
               rs == 0;
    }
    // Expects that the connector is refused, and that the listener has logged it, too.
    void is_refused(const char *connector, const char *listener, const char *added = "")
    {
        size_t before = count(warnings, listener);
        ASSERT_TRUE(until([&] { return rs != -EAGAIN && (before || count(warnings, listener)); }))
            << warnings << infos << (s ? s->err.reason[0] : "");
        EXPECT_NE(0, rs);
        EXPECT_EQ(PVN_FAULT_REMOTE, s->err.fault);
        EXPECT_SAYS(s->err.reason[0], connector);
        EXPECT_SAYS(s->err.reason[2], added);
        EXPECT_EQ(-EAGAIN, ra) << "accept has ended: " << accept_err.reason[0];
        EXPECT_EQ(nullptr, a);
        hang_up();
    }
    void a_right_one_comes_up()
    {
        connect(one);
        ASSERT_TRUE(comes_up()) << s->err.reason[0] << accept_err.reason[0];
        EXPECT_NE(nullptr, s->ctrl.seal);
        EXPECT_NE(nullptr, a->ctrl.seal);
    }
    pvn_listener_stats stats()
    {
        pvn_listener_stats st;
        pvn_listener_get_stats(l, &st);
        return st;
    }
};

TEST_F(Key, TheSameAtBothEndsSealsTheControlConnection)
{
    listen(one);
    relay = std::make_unique<Relay>(h.addr.port);
    a_right_one_comes_up();
    EXPECT_EQ(0, memcmp(a->streams, s->streams, sizeof(a->streams)));
    EXPECT_SAYS(infos, "control connection sealed");
    EXPECT_EQ("", warnings);
    // Frames in both directions while the connection is up.
    pvn_conn_ask(s);
    ASSERT_TRUE(until([&] {
        pvn_err err = PVN_ERR_INIT;
        EXPECT_EQ(0, pvn_conn_listen(a, &err)) << err.reason[0];
        return a->peer_asks;
    }));
    pvn_conn_answer(a, 3);
    ASSERT_TRUE(until([&] {
        pvn_err err = PVN_ERR_INIT;
        EXPECT_EQ(0, pvn_conn_listen(s, &err)) << err.reason[0];
        return s->answered;
    }));
    EXPECT_EQ(3u, s->peer_open);
    for (int from = 0; from < 2; from++) {
        EXPECT_GT(relay->text(from).size(), 300u);
        for (const std::string &part :
             {std::string(dev.name), std::string("mem0"), std::string("0.1.0")})
            EXPECT_EQ(std::string::npos, relay->text(from).find(part))
                << part << " is on the wire as it is, from " << from;
    }
    // At the end, a GOODBYE.
    pvn_conn_close(s, nullptr);
    s = nullptr;
    ASSERT_TRUE(until([&] {
        pvn_err err = PVN_ERR_INIT;
        return pvn_conn_listen(a, &err) == 1;
    }));
    EXPECT_TRUE(a->goodbye);
}

// The counterpart, which shows that the test above can fail.
TEST_F(Key, WithoutOneTheWireIsAsBefore)
{
    listen(nullptr);
    relay = std::make_unique<Relay>(h.addr.port);
    connect(nullptr);
    ASSERT_TRUE(comes_up()) << s->err.reason[0] << accept_err.reason[0];
    EXPECT_EQ(nullptr, s->ctrl.seal);
    EXPECT_EQ(nullptr, a->ctrl.seal);
    for (int from = 0; from < 2; from++)
        EXPECT_NE(std::string::npos, relay->text(from).find(dev.name));
    EXPECT_EQ(std::string::npos, infos.find("sealed"));
}

TEST_F(Key, AnotherOneIsRefusedAtBothEndsAndARightOneIsTaken)
{
    listen(one);
    char text[2][PVN_KEY_TEXT];
    for (int i = 0; i < 3; i++) {
        connect(other);
        is_refused("the listener refuses this end: it has another key", "it has another key",
                   (std::string("this end's key has ") + pvn_key_describe(other, text[0])).c_str());
    }
    // The two descriptions show which ranks differ, and that the copies differ by a newline.
    EXPECT_SAYS(text[0], "33 bytes, label ");
    EXPECT_SAYS(pvn_key_describe(one, text[1]), "32 bytes, label ");
    EXPECT_SAYS(warnings, std::string("the listener's key has ") + text[1]);
    EXPECT_EQ(1u, count(warnings, "\n")) << "one warning: " << warnings;
    EXPECT_SAYS(warnings, "127.0.0.1:");
    EXPECT_SAYS(warnings, "NCCL_PVRDMA_KEY_FILE");
    EXPECT_EQ(3u, stats().unproved);
    a_right_one_comes_up();
}

// The refusal arrives after the connector's first flight. The connector must not take it for a part
// of the handshake.
TEST_F(Key, ARefusalThatComesLateIsOne)
{
    listen(one);
    relay = std::make_unique<Relay>(h.addr.port);
    Bytes held;
    bool hold = true;
    relay->filter = [&](int from, size_t, Bytes b) {
        if (from == 0 || !hold)
            return b;
        held.insert(held.end(), b.begin(), b.end());
        return Bytes();
    };
    connect(other);
    ASSERT_TRUE(until([&] { return !held.empty() && relay->text(0).size() > 48 + 200; }));
    EXPECT_EQ(-EAGAIN, rs);
    // The refusal arrives after the connector has looked at the socket, so only the handshake reads
    // it.
    int fd = relay->links.front().fd[0];
    ASSERT_EQ(static_cast<ssize_t>(held.size()), send(fd, held.data(), held.size(), MSG_NOSIGNAL));
    pvn_err err = PVN_ERR_INIT;
    ASSERT_TRUE(
        until([&] { return pvn_seal_handshake(s->ctrl.seal, &err) != -EAGAIN || rs != -EAGAIN; }));
    is_refused("the listener refuses this end: it has another key", "it has another key");
}

TEST_F(Key, AConnectorWithoutOneIsRefusedAtBothEnds)
{
    listen(one);
    connect(nullptr);
    is_refused("the peer's listener has a key (NCCL_PVRDMA_KEY_FILE), and this process has none",
               "it has no key, or is of a release without keys");
    a_right_one_comes_up();
}

TEST_F(Key, AListenerWithoutOneIsRefusedAtBothEnds)
{
    listen(nullptr);
    connect(one);
    is_refused("this process has a key (NCCL_PVRDMA_KEY_FILE), and the peer's listener has none",
               "this process has a key (NCCL_PVRDMA_KEY_FILE), and the peer's listener has none");
    connect(nullptr);
    ASSERT_TRUE(comes_up()) << s->err.reason[0];
}

// An old connector does not read the handle's key bit, and sends what it has always sent.
TEST_F(Key, AnOldConnectorIsRefusedWithTheReason)
{
    listen(one);
    raw::Sock old = raw::dial(h.addr.port);
    old.send(raw::preamble(PVN_PREAMBLE_CTRL, h.session, 7));
    old.send(raw::hello(h.session));
    ASSERT_TRUE(until([&] { return count(warnings, "it has no key") > 0; })) << infos;
    std::atomic<bool> over = false;
    std::thread t([&] { // the listener closes the connection a second after its reason
        bool closed = false;
        std::string words = old.last_words(&closed);
        EXPECT_TRUE(closed);
        EXPECT_SAYS(words, "it has no key, or is of a release without keys");
        over = true;
    });
    EXPECT_TRUE(until([&] { return over.load(); }));
    t.join();
    a_right_one_comes_up();
}

// An old listener closes connections of an unknown kind. The connector knows from the handle,
// before it dials.
TEST_F(Key, AnOldListenerIsRefusedWithTheReason)
{
    listen(nullptr);
    relay = std::make_unique<Relay>(h.addr.port);
    connect(one);
    is_refused("the peer's listener has none, or is of a release without keys",
               "this process has a key");
    pvn_preamble p;
    std::string sent = relay->text(0);
    ASSERT_GT(sent.size(), 32u);
    ASSERT_EQ(1, pvn_preamble_decode(reinterpret_cast<const uint8_t *>(sent.data()), 32, h.session,
                                     &p, nullptr));
    EXPECT_EQ(PVN_PREAMBLE_CTRL, p.kind) << "which it knows, with an ERROR frame behind it";
    EXPECT_EQ(PVN_FRAME_ERROR, sent[32]);
}

// ---- between the two ends ----

TEST_F(Key, AHandleThatWasChangedIsNoReasonToGoOnInTheClear)
{
    listen(one);
    h.has_key = false;
    connect(one);
    is_refused("the peer's listener has none", "it has no key");
    h.has_key = true;
    h.session ^= 1;
    connect(one);
    ASSERT_TRUE(until([&] { return rs != -EAGAIN; }));
    EXPECT_NE(0, rs);
    EXPECT_SAYS(infos, "its session id is not ours");
}

// A rank may be late repeatedly, and its handshake may time out each time.
TEST_F(Key, AConnectorThatIsAwayAgainAndAgainComesUp)
{
    params.seal_timeout = 50 * PVN_NS_PER_MS;
    listen(one);
    connect(one);
    for (int i = 0; i < 5; i++) {
        uint64_t before = stats().rejected;
        ASSERT_TRUE(until([&] { return s->ctrl.seal || rs != -EAGAIN; })) << i;
        ASSERT_EQ(-EAGAIN, rs) << i << ' ' << s->err.reason[0];
        uint64_t began = pvn_now_ns(), end = began + 60 * PVN_NS_PER_S;
        while ((stats().rejected == before || pvn_now_ns() - began <= PVN_AWAY_NS) &&
               pvn_now_ns() < end) {
            ASSERT_EQ(0, pvn_listener_accept(l, &a, &accept_err)) << accept_err.reason[0];
            ASSERT_EQ(nullptr, a);
            std::this_thread::yield();
        }
        ASSERT_LT(before, stats().rejected) << "its time was not over";
        // The connector comes back and sees the end of the connection behind the listener's part of
        // the handshake.
        ASSERT_TRUE(until([&] { return s->state == PVN_CONN_DIAL || rs != -EAGAIN; })) << i;
        ASSERT_EQ(-EAGAIN, rs) << i << ' ' << s->err.reason[0];
    }
    params.seal_timeout = 60 * PVN_NS_PER_S;
    ASSERT_TRUE(comes_up()) << s->err.reason[0];
}

struct Flip {
    size_t at;
    uint8_t bits;
    const char *listener; // the listener logs this
};

TEST_F(Key, APreambleThatWasChangedIsRefused)
{
    listen(one);
    for (Flip flip :
         {Flip{6, 2, "it has no key, or is of"}, // announces no key: not accepted in the clear
          Flip{24, 1, "it has another key"}, Flip{32, 1, "it has another key"},
          Flip{47, 0x80, "it has another key"}}) {
        warnings.clear();
        pvn_listener_close(l);
        listen(one);
        relay = std::make_unique<Relay>(h.addr.port);
        size_t fired = 0;
        relay->filter = [&](int from, size_t begin, Bytes b) {
            if (from == 0 && flip.at >= begin && flip.at - begin < b.size()) {
                b[flip.at - begin] ^= flip.bits;
                fired++;
            }
            return b;
        };
        connect(one);
        is_refused("the listener refuses this end", flip.listener);
        EXPECT_GT(fired, 0u);
    }
}

// Changes every third byte behind the preamble, from either end, up to the end of the set-up. The
// set-up fails with a reason, or comes up on another connection.
TEST_F(Key, EveryByteOfTheSetUpThatWasChangedIsNoticed)
{
    params.seal_timeout = params.hello_timeout = params.offer_timeout = params.bind_timeout =
        params.ready_timeout = PVN_NS_PER_S;
    params.accept_timeout = PVN_NS_PER_S;
    size_t len[2] = {0, 0}, tried = 0, changed = 0;
    listen(one);
    relay = std::make_unique<Relay>(h.addr.port);
    a_right_one_comes_up();
    for (int from = 0; from < 2; from++)
        len[from] = relay->text(from).size();
    ASSERT_GT(len[0], 400u);
    ASSERT_GT(len[1], 300u);
    hang_up();
    for (int direction = 0; direction < 2; direction++)
        for (size_t at = direction ? 0 : 48; at < len[direction]; at += 3) {
            pvn_listener_close(l);
            listen(one);
            relay = std::make_unique<Relay>(h.addr.port);
            bool fired = false;
            relay->filter = [&](int from, size_t begin, Bytes b) {
                if (from == direction && at >= begin && at - begin < b.size()) {
                    b[at - begin] ^= 0x10;
                    fired = true;
                }
                return b;
            };
            connect(one);
            EXPECT_TRUE(until([&] { return rs != -EAGAIN || (ra != -EAGAIN && a); })) << at;
            tried++;
            changed += fired;
            if (rs == 0) { // it came up before that byte, or on another connection
                EXPECT_STREQ("mem", s->lane[0]->ops->name);
            } else if (rs != -EAGAIN) {
                EXPECT_NE('\0', s->err.reason[0][0]);
            }
            hang_up();
        }
    EXPECT_GE(changed, tried * 9 / 10) << "of a slow one the end may come before that byte";
}

// The end that notices the new key refuses the connection, and its peer gets the reason. If the
// file is replaced after the connector has looked, that end is the listener.
TEST_F(Key, NoConnectionReplacesAnotherOnceTheFileWasReplaced)
{
    pvn_err err = PVN_ERR_INIT;
    auto file_has = [&](char c) { write_file(f / "1", std::string(32, c)); };
    snprintf(params.key_file, sizeof(params.key_file), "%s", (f / "1").c_str());
    ASSERT_EQ(0, pvn_seal_begin(&params, &err)) << err.reason[0];
    if (!pvn_seal_is_file_watched())
        GTEST_SKIP() << f.path << " is on a file system that may block";
    file_has('3');
    listen(one);
    pvn_listener_keep(l);
    a_right_one_comes_up(); // the comm's first connection
    hang_up();
    ra = 0; // no more calls of accept
    auto again = [&] {
        connect(one);
        s->cfg.resumes = s->mine.resumes = 77;
    };
    auto refused = [&] {
        return until([&] {
            pvn_conn *none = pvn_listener_resumed(l, 77, false, &why);
            EXPECT_EQ(nullptr, none);
            return rs != -EAGAIN;
        });
    };
    again();
    ASSERT_TRUE(refused());
    EXPECT_EQ(-EKEYREVOKED, rs);
    EXPECT_SAYS(s->err.reason[0], "was replaced while the job ran");

    pvn_conn_close(s, nullptr);
    file_has('1');
    again();
    ASSERT_TRUE(until([&] {
        bool sent = s->state == PVN_CONN_HELLO && s->frame_sent;
        pvn_conn *none = sent ? nullptr : pvn_listener_resumed(l, 77, false, &why);
        EXPECT_EQ(nullptr, none);
        return sent;
    }));
    file_has('3');
    ASSERT_TRUE(refused());
    EXPECT_EQ(-EREMOTEIO, rs);
    EXPECT_SAYS(s->err.reason[0], "the peer gave up: ");
    EXPECT_SAYS(s->err.reason[0], "was replaced while the job ran");
    EXPECT_EQ(-EKEYREVOKED, why.code);
    EXPECT_EQ(1u, count(warnings, "was replaced while the job ran")) << warnings;

    pvn_conn_close(s, nullptr);
    file_has('1');
    again();
    ASSERT_TRUE(until([&] {
        a = a ? a : pvn_listener_resumed(l, 77, false, &why);
        return a && rs == 0;
    })) << s->err.reason[0];
    pvn_listener_let_go(l);
}

TEST_F(Key, WhatWasRecordedComesUpNeverAgain)
{
    params.seal_timeout = 200 * PVN_NS_PER_MS;
    listen(one);
    relay = std::make_unique<Relay>(h.addr.port);
    a_right_one_comes_up();
    std::string all = relay->text(0);
    hang_up();
    relay.reset();
    raw::Sock again = raw::dial(h.addr.port);
    again.send(Bytes(all.begin(), all.end()));
    ASSERT_TRUE(until([&] { return count(warnings, "does not prove the key") > 0; })) << infos;
    EXPECT_EQ(-EAGAIN, ra);
    EXPECT_EQ(nullptr, a);
    // A copy that is cut after the preamble, or in the handshake, stays open until it times out.
    for (size_t n : {48u, 50u, 200u}) {
        raw::Sock part = raw::dial(h.addr.port);
        uint64_t before = stats().rejected;
        infos.clear();
        part.send(Bytes(all.begin(), all.begin() + static_cast<ptrdiff_t>(n)));
        ASSERT_TRUE(until([&] { return stats().rejected > before; })) << n;
        EXPECT_SAYS(infos, "NCCL_PVRDMA_SEAL_TIMEOUT");
    }
    a_right_one_comes_up();
}

// Somebody repeats recorded preambles. Each of these connections stays open until it times out.
TEST_F(Key, BeginningsWithoutAHandshakeTakeNoRoomFromARightOne)
{
    listen(one);
    std::vector<raw::Sock> made;
    for (int i = 0; i < PVN_LISTENER_UNPROVED + 10; i++) {
        pvn_preamble p = {};
        Bytes b(PVN_PREAMBLE_MOST);
        p.version = PVN_WIRE_VERSION;
        p.kind = PVN_PREAMBLE_CTRL_KEY;
        p.session = h.session;
        p.nonce = static_cast<uint64_t>(1000 + i);
        ASSERT_EQ(0, pvn_token_of_control(one, p.session, p.nonce, p.token, nullptr));
        pvn_preamble_encode(b.data(), &p);
        made.push_back(raw::dial(h.addr.port));
        made.back().send(b);
        step();
    }
    EXPECT_TRUE(until([&] { return stats().crowded >= 10; })) << stats().crowded;
    a_right_one_comes_up();
}

size_t descriptors()
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

// Peers that know the session, or have recorded bytes, but not the key. Each one costs a descriptor
// for a while, and leaves nothing.
TEST_F(Key, ManyThatDoNotProveItLeaveNothing)
{
    size_t before = descriptors();
    listen(one);
    for (int i = 0; i < 1200; i++) {
        pvn_preamble p = {};
        p.version = PVN_WIRE_VERSION;
        p.kind = i % 4 == 3 ? PVN_PREAMBLE_STREAM_KEY : PVN_PREAMBLE_CTRL_KEY;
        p.session = h.session;
        p.nonce = static_cast<uint64_t>(1000 + i);
        ASSERT_EQ(0,
                  pvn_token_of_control(i % 4 ? one : other, p.session, p.nonce, p.token, nullptr));
        Bytes b(PVN_PREAMBLE_MOST);
        pvn_preamble_encode(b.data(), &p);
        // In turn: another key, no handshake, the start of a handshake, a stream connection without
        // bytes.
        for (uint8_t add : {0x16, 3, 1, 1, 0, 1})
            if (i % 4 == 1)
                b.push_back('G');
            else if (i % 4 == 2)
                b.push_back(add);
        raw::Sock knock = raw::dial(h.addr.port);
        knock.send(b);
        step();
        ASSERT_LT(descriptors(), before + 20 + PVN_LISTENER_UNDECIDED + PVN_LISTENER_UNPROVED) << i;
    }
    EXPECT_EQ(1u, count(warnings, "\n")) << warnings;
    a_right_one_comes_up();
    hang_up();
    pvn_listener_close(l);
    l = nullptr;
    EXPECT_EQ(before, descriptors());
}

// While the lanes are made, a data connection needs a token for this connection, lane and stream.
TEST_F(Key, DataConnectionsNeedTheirToken)
{
    listen(one);
    connect(one);
    pvn_memlane_plan[1][0].verify = -EAGAIN;
    ASSERT_TRUE(until([&] { return s->state == PVN_CONN_VERIFY || rs != -EAGAIN; }))
        << s->err.reason[0];
    auto preamble = [&](int kind, int lane, int stream, int token_lane, int token_stream) {
        pvn_preamble p = {};
        Bytes b(PVN_PREAMBLE_MOST);
        p.version = PVN_WIRE_VERSION;
        p.kind = static_cast<uint8_t>(kind);
        p.lane = static_cast<uint8_t>(lane);
        p.stream = static_cast<uint16_t>(stream);
        p.session = h.session;
        p.nonce = s->cfg.nonce;
        EXPECT_EQ(0, pvn_token_of_stream(s->streams, token_lane, token_stream, p.token, nullptr));
        b.resize(static_cast<size_t>(pvn_preamble_encode(b.data(), &p)));
        return b;
    };
    std::vector<Bytes> wrong = {preamble(PVN_PREAMBLE_STREAM, 0, 0, 0, 0),
                                preamble(PVN_PREAMBLE_STREAM_KEY, 0, 1, 0, 0),
                                preamble(PVN_PREAMBLE_STREAM_KEY, 1, 0, 0, 0),
                                preamble(PVN_PREAMBLE_STREAM_KEY, 0, 256, 0, 0)};
    wrong.push_back(preamble(PVN_PREAMBLE_STREAM_KEY, 0, 0, 0, 0));
    wrong.back()[47] ^= 1;
    std::list<raw::Sock> made;
    for (const Bytes &b : wrong) {
        uint64_t before = stats().rejected;
        made.push_back(raw::dial(h.addr.port));
        made.back().send(b);
        ASSERT_TRUE(until([&] { return stats().rejected > before; }));
        EXPECT_EQ(0u, stats().streams);
    }
    made.push_back(raw::dial(h.addr.port));
    made.back().send(preamble(PVN_PREAMBLE_STREAM_KEY, 0, 0, 0, 0));
    ASSERT_TRUE(until([&] { return stats().streams == 1; }));
    // Somebody who reads the network may repeat a token. That takes no room from other streams.
    for (int i = 0; i < PVN_CONN_INBOX; i++) {
        raw::Sock again = raw::dial(h.addr.port);
        again.send(preamble(PVN_PREAMBLE_STREAM_KEY, 7, 1, 7, 1));
        pvn_listener_take_in(l);
    }
    ASSERT_TRUE(until([&] { return stats().streams == 1u + PVN_CONN_INBOX; })) << stats().streams;
    EXPECT_EQ(0u, count(infos, "too late")) << infos;
    EXPECT_EQ("", warnings);
    pvn_memlane_plan[1][0].verify = 0;
    ASSERT_TRUE(comes_up()) << s->err.reason[0];
}

// A listener made by hand, which the connector takes for the real one.
struct Fake : Key {
    raw::Listener by_hand;
    raw::Sock c;
    void SetUp() override
    {
        Key::SetUp();
        listen(one);
        h.addr.port = by_hand.port;
        fcntl(by_hand.s.fd, F_SETFL, O_NONBLOCK);
    }
    void greet()
    {
        connect(one);
        ASSERT_TRUE(until([&] {
            if (c.fd < 0)
                c = by_hand.accept();
            return c.fd >= 0;
        }));
        until([&] { return recv(c.fd, nullptr, 0, MSG_PEEK | MSG_DONTWAIT) == 0; });
    }
};

TEST_F(Fake, OnlyAnErrorFrameIsTakenInTheClear)
{
    for (const Bytes &answer :
         {raw::hello(h.session), raw::ready(1),
          raw::frame(PVN_FRAME_GOODBYE, {7, 0, 0, 0, 0, 0, 0, 0}), Bytes(100, 0)}) {
        greet();
        c.send(answer);
        ASSERT_TRUE(until([&] { return rs != -EAGAIN; }));
        EXPECT_NE(0, rs);
        EXPECT_FALSE(s->hello_seen);
        EXPECT_FALSE(s->goodbye) << "a failover would take the peer for closed";
        EXPECT_EQ(0u, s->has_received) << "and messages for delivered";
        EXPECT_NE('\0', s->err.reason[0][0]);
        c.close();
        hang_up();
    }
    greet();
    c.send(raw::text_frame(PVN_FRAME_ERROR, "out of\norder"));
    ASSERT_TRUE(until([&] { return rs != -EAGAIN; }));
    EXPECT_EQ(-EREMOTEIO, rs);
    EXPECT_SAYS(s->err.reason[0], "the peer gave up: out of?order");
}

TEST_F(Fake, OneThatSaysNothingHasItsTimeAndNoMore)
{
    params.accept_timeout = 200 * PVN_NS_PER_MS;
    params.seal_timeout = 100 * PVN_NS_PER_MS;
    greet();
    ASSERT_TRUE(until([&] { return rs != -EAGAIN; }));
    EXPECT_EQ(-ETIMEDOUT, rs);
    EXPECT_SAYS(s->err.reason[0],
                "to call accept took longer than 0.2 s (NCCL_PVRDMA_ACCEPT_TIMEOUT)");
    c.close();
    hang_up();
    greet();
    c.send({0x16, 3, 3, 0, 122, 2});
    ASSERT_TRUE(until([&] { return rs != -EAGAIN; }));
    EXPECT_EQ(-ETIMEDOUT, rs);
    EXPECT_SAYS(s->err.reason[0],
                "prove the key took longer than 0.1 s (NCCL_PVRDMA_SEAL_TIMEOUT)");
}

} // namespace
