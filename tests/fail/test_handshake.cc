// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Connection set-up while the other end is absent, late, malformed or dies at any point.
#include "abi/nccl_side.h"
#include "fail/raw_comm.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>

using namespace nccl;

namespace
{

// Sets variables for one test; the plugin reads them at its next init.
struct Env {
    std::vector<std::string> names;
    Env(std::initializer_list<std::pair<const char *, const char *>> vars)
    {
        for (auto &v : vars) {
            std::string name = std::string("NCCL_PVRDMA_") + v.first;
            setenv(name.c_str(), v.second, 1);
            names.push_back(name);
        }
    }
    ~Env()
    {
        for (auto &n : names)
            unsetenv(n.c_str());
    }
};

struct Listen {
    pvn_netdrv *d;
    void *lc = nullptr;
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    pvn_handle h = {};
    explicit Listen(Net &n) : d(n.d)
    {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
        EXPECT_EQ(0, pvn_handle_decode(reinterpret_cast<uint8_t *>(handle), PVN_HANDLE_BYTES, &h,
                                       nullptr));
    }
    ~Listen()
    {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(d, lc));
    }
    uint16_t port() const
    {
        return h.addr.port;
    }
};

// Calls accept until it gives a comm or an error.
ncclResult_t accept_until(Net &n, void *lc, void **rc, int seconds = 20)
{
    ncclResult_t r = ncclSuccess;
    *rc = nullptr;
    EXPECT_TRUE(eventually(
        [&] {
            r = pvn_netdrv_accept(n.d, lc, rc);
            return r != ncclSuccess || *rc;
        },
        seconds));
    return r;
}

ncclResult_t connect_until(Net &n, void *handle, void **sc, int seconds = 20)
{
    ncclResult_t r = ncclSuccess;
    *sc = nullptr;
    EXPECT_TRUE(eventually(
        [&] {
            r = pvn_netdrv_connect(n.d, n.ctx, 0, handle, sc);
            return r != ncclSuccess || *sc;
        },
        seconds));
    return r;
}

// Calls both ends until both have a comm.
bool both_come_up(Net &n, void *handle, void *lc, void **sc, void **rc)
{
    return eventually([&] {
        if (!*sc) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, handle, sc));
        }
        if (!*rc) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, lc, rc));
        }
        return *sc && *rc;
    });
}

void expect_working_pair(Net &n)
{
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, {1, 5000, 0});
    ASSERT_TRUE(f.run());
    f.check();
}

// ---- handles ----

TEST(Handle, DamagedOnesAreRefusedAtOnce)
{
    Net n(12);
    Listen l(n);
    for (int kind = 0; kind < 4; kind++) {
        alignas(8) char h[NCCL_NET_HANDLE_MAXSIZE];
        memcpy(h, l.handle, sizeof(h));
        const char *text = "";
        switch (kind) {
        case 0:
            memset(h + 20, 0, sizeof(h) - 20);
            text = "damaged or truncated";
            break;
        case 1:
            h[33] ^= 1;
            text = "damaged or truncated";
            break;
        case 2:
            memset(h, 0x11, sizeof(h));
            text = "another network plugin";
            break;
        case 3: {
            pvn_handle old = l.h;
            old.version = 0;
            pvn_handle_encode(reinterpret_cast<uint8_t *>(h), &old);
            text = "wire version 0";
            break;
        }
        }
        void *sc = nullptr;
        Log::get().clear();
        EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_connect(n.d, n.ctx, 0, h, &sc)) << kind;
        EXPECT_EQ(nullptr, sc);
        EXPECT_NE(std::string::npos, Log::get().warnings().find(text)) << Log::get().text();
    }
    // The plugin must not use a cookie from a handle as a pointer if it never issued that cookie.
    // It simply begins a connection.
    alignas(8) char h[NCCL_NET_HANDLE_MAXSIZE];
    memcpy(h, l.handle, sizeof(h));
    pvn_handle_set_cookie(reinterpret_cast<uint8_t *>(h), 0xdeadbeefdeadbeefull);
    void *sc = nullptr, *rc = nullptr;
    EXPECT_TRUE(both_come_up(n, h, l.lc, &sc, &rc));
    pvn_netdrv_close_send(n.d, sc);
    pvn_netdrv_close_recv(n.d, rc);
}

// ---- nobody there ----

TEST(Absent, APeerThatNeverConnectsEndsAccept)
{
    Env e({{"ACCEPT_TIMEOUT", "150ms"}});
    Net n(12);
    Listen l(n);
    void *rc;
    Log::get().clear();
    EXPECT_EQ(ncclRemoteError, accept_until(n, l.lc, &rc));
    EXPECT_TRUE(said("no peer has connected")) << Log::get().text();
    EXPECT_TRUE(said("NCCL_PVRDMA_ACCEPT_TIMEOUT"));
}

TEST(Absent, AListenerThatIsGoneEndsConnect)
{
    Env e({{"CONNECT_TIMEOUT", "300ms"}});
    Net n(12);
    alignas(8) char h[NCCL_NET_HANDLE_MAXSIZE];
    {
        Listen l(n);
        memcpy(h, l.handle, sizeof(h));
    }
    void *sc;
    Log::get().clear();
    EXPECT_EQ(ncclRemoteError, connect_until(n, h, &sc));
    EXPECT_TRUE(said("NCCL_PVRDMA_CONNECT_TIMEOUT")) << Log::get().text();
    EXPECT_TRUE(said("Connection refused") || said("connecting failed")) << Log::get().text();
    EXPECT_TRUE(said("127.0.0.1:")) << "the peer's address";
}

TEST(Absent, APeerThatNeverCallsAcceptEndsConnect)
{
    Env e({{"ACCEPT_TIMEOUT", "150ms"}});
    Net n(12);
    Listen l(n);
    void *sc;
    Log::get().clear();
    EXPECT_EQ(ncclRemoteError, connect_until(n, l.handle, &sc));
    EXPECT_TRUE(said("to call accept")) << Log::get().text();
    EXPECT_TRUE(said("NCCL_PVRDMA_ACCEPT_TIMEOUT"));
}

// Calls one end `calls` times and then not for longer than every limit, like a proxy thread that is
// busy elsewhere. The other end goes on. False: the set-up was complete before the pause, because
// the peer's answers came before a call.
bool comes_up_over_a_pause(Net &n, bool accepts, int calls)
{
    Listen l(n);
    void *sc = nullptr, *rc = nullptr;
    std::atomic<bool> over{false};
    auto connect = [&] {
        return sc || pvn_netdrv_connect(n.d, n.ctx, 0, l.handle, &sc) != ncclSuccess || sc;
    };
    auto accept = [&] { return rc || pvn_netdrv_accept(n.d, l.lc, &rc) != ncclSuccess || rc; };
    auto call = [&](bool acceptor) { return acceptor ? accept() : connect(); };
    std::thread t([&] {
        EXPECT_TRUE(eventually([&] { return call(!accepts); }));
        over = true;
    });
    bool done = false;
    for (int i = 0; i < calls; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        done = call(accepts);
    }
    if (!done)
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const bool paused = !done && !over;
    EXPECT_TRUE(eventually([&] { return call(accepts); }));
    t.join();
    EXPECT_TRUE(sc && rc) << Log::get().text();
    EXPECT_TRUE(!sc || pvn_netdrv_close_send(n.d, sc) == ncclSuccess);
    EXPECT_TRUE(!rc || pvn_netdrv_close_recv(n.d, rc) == ncclSuccess);
    return paused;
}

void expect_to_come_up(Net &n, bool accepts, int calls)
{
    bool paused = false;
    for (int i = 0; i < 20 && !paused && !testing::Test::HasFailure(); i++)
        paused = comes_up_over_a_pause(n, accepts, calls);
    EXPECT_TRUE(paused) << Log::get().text();
}

TEST(Absent, APauseBetweenTwoCallsIsWaitedFor)
{
    Env e({{"OFFER_TIMEOUT", "1s"},
           {"BIND_TIMEOUT", "1s"},
           {"VERIFY_TIMEOUT", "1s"},
           {"READY_TIMEOUT", "1s"}});
    Log::get().clear();
    Net n(12);
    std::vector<std::thread> all;
    for (int calls : {1, 2})
        all.emplace_back([&n, calls] { expect_to_come_up(n, false, calls); });
    /* After the second call of accept the connector is up without another one. */
    all.emplace_back([&n] { expect_to_come_up(n, true, 1); });
    for (auto &t : all)
        t.join();
}

// The pause has a limit, too.
TEST(Absent, APeerThatCallsNoMoreEndsTheSetUp)
{
    Env e({{"ACCEPT_TIMEOUT", "1500ms"}, {"OFFER_TIMEOUT", "60s"}});
    Net n(12);
    RawPeer p;
    raw::Sock s;
    std::thread peer([&] {
        s = p.l.accept_ctrl();
        pvn_hello mine = raw::plain_hello(77);
        mine.features = PVN_FEATURE_BEATS;
        s.send(raw::hello(mine));
    });
    void *sc;
    Log::get().clear();
    EXPECT_EQ(ncclRemoteError, connect_until(n, p.handle, &sc));
    EXPECT_TRUE(said("has not driven the set-up for 1.5 s (NCCL_PVRDMA_ACCEPT_TIMEOUT)"))
        << Log::get().text();
    peer.join();
}

// Any frame shows as much as a BEAT, so a BEAT right after a frame would be a useless packet in
// every set-up.
TEST(Present, ABeatIsSentOnlyWhereNoFrameWas)
{
    Env e({{"ACCEPT_TIMEOUT", "1500ms"}, {"OFFER_TIMEOUT", "60s"}});
    Net n(12);
    alignas(8) char h[NCCL_NET_HANDLE_MAXSIZE];
    raw::Listener l;
    raw::make_handle(h, l.port, 7);
    int types[2] = {};
    std::chrono::steady_clock::duration took = {};
    /* Over TCP the offer travels with the HELLO, so the last frame before the BEAT may have been
     * sent before this end has read anything. */
    auto began = std::chrono::steady_clock::now();
    std::thread peer([&] {
        int type;
        raw::Sock s = l.accept();
        s.recv(PVN_PREAMBLE_BYTES);
        s.recv_frame(&type);
        pvn_hello mine = raw::plain_hello(7);
        mine.features = PVN_FEATURE_BEATS;
        s.send(raw::hello(mine));
        for (int &t : types)
            s.recv_frame(&t);
        took = std::chrono::steady_clock::now() - began;
    });
    void *sc;
    EXPECT_EQ(ncclRemoteError, connect_until(n, h, &sc));
    peer.join();
    EXPECT_EQ(PVN_FRAME_OFFER, types[0]);
    EXPECT_EQ(PVN_FRAME_BEAT, types[1]);
    EXPECT_GE(took, std::chrono::milliseconds(250));
}

TEST(Absent, ConnectGivenUpByFinalize)
{
    RawPeer p;
    {
        Net n(12);
        void *sc = nullptr;
        for (int i = 0; i < 5; i++)
            EXPECT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, p.handle, &sc));
        EXPECT_EQ(nullptr, sc);
    }
    raw::Sock s = p.l.accept();
    bool closed = false;
    EXPECT_EQ(size_t{PVN_PREAMBLE_BYTES}, s.recv(PVN_PREAMBLE_BYTES).size());
    EXPECT_NE(std::string::npos, s.last_words(&closed).find("finalized"));
    EXPECT_TRUE(closed);
}

// ---- stalls and deaths at every byte ----

enum class End { Stall, Close, Reset };

std::string name_of(const testing::TestParamInfo<End> &i)
{
    return i.param == End::Stall ? "Stall" : i.param == End::Close ? "Close" : "Reset";
}

// Ends a connection in the manner of `end`. Returns the last words of the other end if they can
// still be read. *closed: true if that end has closed the connection.
std::string end_as(raw::Sock &s, End end, bool *closed)
{
    if (end == End::Stall)
        return s.last_words(closed);
    if (end == End::Close)
        s.close();
    else
        s.reset();
    return "";
}

// Plays the connector up to byte `cut` of what it sends on the control connection, then ends as
// end_as().
std::string play_connector(uint16_t port, uint64_t session, size_t cut, End end, bool *closed)
{
    raw::Sock ctrl = raw::dial(port), stream;
    uint64_t nonce = 1000 + cut;
    raw::Bytes first = raw::preamble(PVN_PREAMBLE_CTRL, session, nonce), h = raw::hello(session);
    raw::Bytes parts[] = {first, raw::offer(raw::tcp_blob(0)), raw::ready(1)};
    parts[0].insert(parts[0].end(), h.begin(), h.end());
    int type = 0;
    for (int i = 0; i < 3; i++) {
        size_t n = std::min(cut, parts[i].size());
        if (!ctrl.send(parts[i], n))
            break;
        cut -= n;
        if (n < parts[i].size() || i == 2)
            break;
        ctrl.recv_frame(&type); // HELLO, then OFFER
        if (i == 1) {
            stream = raw::dial(port);
            stream.send(raw::preamble(PVN_PREAMBLE_STREAM, session, nonce));
        }
    }
    return end_as(ctrl, end, closed);
}

size_t connector_bytes(uint64_t session, size_t *until_hello)
{
    *until_hello = PVN_PREAMBLE_BYTES + raw::hello(session).size();
    return *until_hello + raw::offer(raw::tcp_blob(0)).size() + raw::ready(1).size();
}

// Expects that each text was in the last words of some case.
template <typename Cases> void expect_heard(const Cases &cases, std::vector<const char *> texts)
{
    for (const char *t : texts) {
        bool heard = false;
        for (auto &c : cases)
            heard = heard || c->words.find(t) != std::string::npos;
        EXPECT_TRUE(heard) << t;
    }
}

class AcceptorMeets : public testing::TestWithParam<End>
{
};
INSTANTIATE_TEST_SUITE_P(All, AcceptorMeets, testing::Values(End::Stall, End::Close, End::Reset),
                         name_of);

TEST_P(AcceptorMeets, AtEveryByte)
{
    Env e({{"HELLO_TIMEOUT", "300ms"},
           {"OFFER_TIMEOUT", "300ms"},
           {"BIND_TIMEOUT", "300ms"},
           {"VERIFY_TIMEOUT", "300ms"},
           {"READY_TIMEOUT", "300ms"}});
    Net n(12);
    size_t until_hello, total = connector_bytes(1, &until_hello);
    struct Case {
        std::unique_ptr<Listen> l;
        std::thread t;
        std::atomic<bool> over{false};
        bool closed = false;
        std::string words;
        ncclResult_t r = ncclSuccess;
        void *rc = nullptr;
    };
    Log::get().clear();
    std::vector<std::unique_ptr<Case>> cases;
    for (size_t cut = 0; cut < total; cut++) {
        cases.push_back(std::make_unique<Case>());
        Case *c = cases.back().get();
        c->l = std::make_unique<Listen>(n);
        c->t = std::thread([c, cut] {
            c->words = play_connector(c->l->port(), c->l->h.session, cut, GetParam(), &c->closed);
            c->over = true;
        });
    }
    // accept ignores an unauthenticated connection, but reports the failure of a peer that has sent
    // HELLO.
    auto verdict = [&](size_t cut) {
        Case *c = cases[cut].get();
        if (c->r == ncclSuccess && !c->rc)
            c->r = pvn_netdrv_accept(n.d, c->l->lc, &c->rc);
        return c->over && (cut < until_hello || c->r != ncclSuccess);
    };
    EXPECT_TRUE(eventually([&] {
        bool all = true;
        for (size_t cut = 0; cut < total; cut++)
            all = verdict(cut) && all;
        return all;
    }));
    for (size_t cut = 0; cut < total; cut++) {
        Case *c = cases[cut].get();
        c->t.join();
        EXPECT_EQ(nullptr, c->rc) << cut;
        EXPECT_EQ(cut < until_hello ? ncclSuccess : ncclRemoteError, c->r) << cut;
        if (GetParam() == End::Stall) {
            EXPECT_TRUE(c->closed) << "byte " << cut << ": the acceptor holds on";
            if (cut > until_hello) {
                EXPECT_NE(std::string::npos, c->words.find("_TIMEOUT")) << cut << ": " << c->words;
            }
        }
    }
    if (GetParam() == End::Stall) {
        expect_heard(cases, {"OFFER_TIMEOUT", "READY_TIMEOUT", "rawhost pid 4711"});
    }
    cases.clear();
    expect_working_pair(n);
}

// Plays the acceptor likewise.
std::string play_acceptor(raw::Listener *l, size_t cut, End end, bool *closed)
{
    raw::Bytes parts[] = {raw::hello(77), raw::offer(raw::tcp_blob(l->port)), raw::ready(1)};
    raw::Sock ctrl = l->accept_ctrl(), stream;
    int type;
    for (int i = 0; i < 3; i++) {
        size_t n = std::min(cut, parts[i].size());
        if (!ctrl.send(parts[i], n))
            break;
        cut -= n;
        if (n < parts[i].size() || i == 2)
            break;
        if (i == 0) {
            ctrl.recv_frame(&type); // OFFER
        } else {
            stream = l->accept_stream();
        }
    }
    return end_as(ctrl, end, closed);
}

class ConnectorMeets : public testing::TestWithParam<End>
{
};
INSTANTIATE_TEST_SUITE_P(All, ConnectorMeets, testing::Values(End::Stall, End::Close, End::Reset),
                         name_of);

TEST_P(ConnectorMeets, AtEveryByte)
{
    Env e({{"CONNECT_TIMEOUT", "1s"},
           {"ACCEPT_TIMEOUT", "300ms"},
           {"HELLO_TIMEOUT", "300ms"},
           {"OFFER_TIMEOUT", "300ms"},
           {"BIND_TIMEOUT", "300ms"},
           {"VERIFY_TIMEOUT", "300ms"},
           {"READY_TIMEOUT", "300ms"}});
    Net n(12);
    size_t total =
        raw::hello(77).size() + raw::offer(raw::tcp_blob(9)).size() + raw::ready(1).size();
    struct Case : RawPeer {
        std::thread t;
        bool closed = false;
        std::string words;
        ncclResult_t r = ncclSuccess;
        void *sc = nullptr;
    };
    Log::get().clear();
    std::vector<std::unique_ptr<Case>> cases;
    for (size_t cut = 0; cut < total; cut++) {
        cases.push_back(std::make_unique<Case>());
        Case *c = cases.back().get();
        c->t = std::thread([c, cut] {
            c->words = play_acceptor(&c->l, cut, GetParam(), &c->closed);
            // nobody listens any more, and a redial must find that out
            if (GetParam() != End::Stall)
                c->l.s.close();
        });
    }
    EXPECT_TRUE(eventually([&] {
        bool all = true;
        for (auto &c : cases) {
            if (c->r == ncclSuccess && !c->sc)
                c->r = pvn_netdrv_connect(n.d, n.ctx, 0, c->handle, &c->sc);
            all = all && (c->r != ncclSuccess || c->sc);
        }
        return all;
    }));
    for (size_t cut = 0; cut < total; cut++) {
        Case *c = cases[cut].get();
        EXPECT_EQ(ncclRemoteError, c->r) << cut;
        EXPECT_EQ(nullptr, c->sc) << cut;
        c->t.join();
        if (GetParam() == End::Stall) {
            EXPECT_TRUE(c->closed) << "byte " << cut << ": the connector holds on";
            EXPECT_NE(std::string::npos, c->words.find("_TIMEOUT")) << cut << ": " << c->words;
        }
    }
    if (GetParam() == End::Stall) {
        expect_heard(cases, {"ACCEPT_TIMEOUT", "HELLO_TIMEOUT", "OFFER_TIMEOUT", "READY_TIMEOUT"});
    }
    cases.clear();
    expect_working_pair(n);
}

TEST(Lanes, PeerWhoseDataSocketsNeverAnswer)
{
    Env e({{"VERIFY_TIMEOUT", "200ms"}});
    Net n(12);
    RawPeer p;
    std::string words;
    bool closed = false;
    std::thread t([&] {
        int type;
        raw::Sock ctrl = p.l.accept_ctrl();
        ctrl.send(raw::hello(77));
        ctrl.recv_frame(&type);
        ctrl.send(raw::offer(raw::tcp_blob(p.l.port)));
        raw::Sock stream = p.l.accept(); // closed without an echo
        words = ctrl.last_words(&closed);
    });
    void *sc;
    Log::get().clear();
    EXPECT_EQ(ncclRemoteError, connect_until(n, p.handle, &sc));
    t.join();
    EXPECT_TRUE(said("NCCL_PVRDMA_VERIFY_TIMEOUT")) << Log::get().text();
    EXPECT_TRUE(said("no other is left"));
    EXPECT_TRUE(said("ulimit -n") && !said("GID")) << "a lane over TCP has no GID";
    EXPECT_NE(std::string::npos, words.find("VERIFY_TIMEOUT")) << "the peer hears the reason";
    EXPECT_TRUE(closed);
}

// ---- malformed peers ----

TEST(Versions, ConnectorFromAnotherWorld)
{
    Net n(12);
    Listen l(n);
    raw::Sock s = raw::dial(l.port());
    s.send(raw::preamble(PVN_PREAMBLE_CTRL, l.h.session, 5));
    s.send(raw::hello(l.h.session, 7, 9));
    void *rc;
    Log::get().clear();
    EXPECT_EQ(ncclRemoteError, accept_until(n, l.lc, &rc));
    EXPECT_TRUE(said("7 to 9")) << Log::get().text();
    EXPECT_TRUE(said("9.9.9 on rawhost"));
    bool closed;
    EXPECT_NE(std::string::npos, s.last_words(&closed).find("7 to 9"))
        << "both ends hear the reason";
    expect_working_pair(n);
}

TEST(Versions, AcceptorFromAnotherWorld)
{
    Net n(12);
    RawPeer p;
    std::string words;
    std::thread t([&] {
        bool closed;
        raw::Sock s = p.l.accept();
        s.recv(PVN_PREAMBLE_BYTES);
        s.send(raw::hello(77, 7, 9));
        words = s.last_words(&closed);
    });
    void *sc;
    Log::get().clear();
    EXPECT_EQ(ncclRemoteError, connect_until(n, p.handle, &sc));
    t.join();
    EXPECT_TRUE(said("7 to 9")) << Log::get().text();
    EXPECT_NE(std::string::npos, words.find("7 to 9"));
}

TEST(MalformedPeer, WrongAnswersEndTheConnectionWithAReason)
{
    Net n(12);
    struct Malformed {
        const char *name;
        raw::Bytes hello, second;
        const char *text;
    };
    raw::Bytes huge = {PVN_FRAME_HELLO, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f};
    raw::Bytes bad_type = {99, 0, 0, 0, 0, 0, 0, 0};
    pvn_hello fails_over = raw::plain_hello(77);
    fails_over.features = PVN_FEATURE_FAILOVER;
    std::vector<Malformed> cases = {
        {"a feature that its handle has not", raw::hello(fails_over), {}, "its listener had 0"},
        {"wrong session", raw::hello(78), {}, "another session"},
        {"a frame of 2 GiB", huge, {}, "allowed are"},
        {"unknown frame", bad_type, {}, "unknown type 99"},
        {"READY instead of HELLO", raw::ready(1), {}, "READY frame from the peer in state HELLO"},
        {"no common lane", raw::hello(77), raw::offer({}, "warp"), "paired its warp lane"},
        {"no lane at all", raw::hello(77), raw::offer({}, "tcp", 0), "chose no lane"},
        {"a lane we have not", raw::hello(77), raw::offer({}, "tcp", 8), "paired its tcp lane"},
        {"malformed lane", raw::hello(77), raw::offer({1, 2, 3}), "malformed"},
        {"lane without address", raw::hello(77), raw::offer(raw::tcp_blob(0)), "names no address"},
    };
    for (auto &c : cases) {
        RawPeer p;
        std::string words;
        bool closed = false;
        std::thread t([&] {
            raw::Sock s = p.l.accept_ctrl();
            int type;
            s.send(c.hello);
            if (!c.second.empty()) {
                s.recv_frame(&type);
                s.send(c.second);
            }
            words = s.last_words(&closed);
        });
        void *sc;
        Log::get().clear();
        EXPECT_EQ(ncclRemoteError, connect_until(n, p.handle, &sc)) << c.name;
        t.join();
        // Both ends get the reason. The test judges by what the peer reads, because the plugin's
        // own log folds repeated lines.
        EXPECT_NE(std::string::npos, words.find(c.text)) << c.name << ": " << words;
        EXPECT_TRUE(closed) << c.name;
    }
}

TEST(MalformedPeer, AcceptorMeetsAConnectorWithOtherLanes)
{
    Net n(12);
    Listen l(n);
    raw::Sock s = raw::dial(l.port());
    s.send(raw::preamble(PVN_PREAMBLE_CTRL, l.h.session, 5));
    s.send(raw::hello(l.h.session));
    s.send(raw::offer({}, "warp"));
    void *rc;
    Log::get().clear();
    EXPECT_NE(ncclSuccess, accept_until(n, l.lc, &rc));
    EXPECT_TRUE(said("no kind of lane in common")) << Log::get().text();
    EXPECT_TRUE(said("warp on raw0"));
    bool closed;
    int type;
    s.recv_frame(&type); // HELLO
    EXPECT_NE(std::string::npos, s.last_words(&closed).find("in common"));
}

// ---- unauthenticated connections ----

TEST(Unauthenticated, ScannersAndNoiseWhileAPeerConnects)
{
    Net n(12);
    Listen l(n);
    std::mt19937 rng(1);
    std::vector<raw::Sock> noise;
    void *sc = nullptr, *rc = nullptr;
    Log::get().clear();
    for (int i = 0; i < 150; i++) {
        raw::Sock s = raw::dial(l.port());
        ASSERT_GE(s.fd, 0);
        raw::Bytes b(1 + rng() % 300);
        for (auto &x : b)
            x = static_cast<uint8_t>(rng());
        switch (i % 6) {
        case 0: // a port scan: gone at once
            s.close();
            break;
        case 1:
            s.reset();
            break;
        case 2:
            s.send({'G', 'E', 'T', ' ', '/', ' '});
            break;
        case 3: // correct start, but another session
            s.send(raw::preamble(PVN_PREAMBLE_CTRL, l.h.session + 1, 3));
            break;
        case 4: // data for a connection that does not exist
            s.send(raw::preamble(PVN_PREAMBLE_STREAM, l.h.session, 12345 + i));
            break;
        default:
            s.send(b);
        }
        noise.push_back(std::move(s));
        if (i == 75) { // in the middle of the unauthenticated connections
            EXPECT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, l.handle, &sc));
        }
        EXPECT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, l.lc, &rc));
    }
    ASSERT_TRUE(both_come_up(n, l.handle, l.lc, &sc, &rc)) << Log::get().text();
    EXPECT_TRUE(said("not from a peer")) << "the fault fired";
    EXPECT_EQ("", Log::get().warnings()) << "unauthenticated connections are no reason to warn";
    for (auto &s : noise) {
        if (s.fd < 0)
            continue;
        EXPECT_TRUE(eventually([&] {
            char c;
            void *none = nullptr;
            EXPECT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, l.lc, &none));
            ssize_t r = ::recv(s.fd, &c, 1, MSG_DONTWAIT);
            return r == 0 || (r < 0 && errno != EAGAIN);
        })) << "an unauthenticated connection is still open";
    }
    pvn_netdrv_close_send(n.d, sc);
    pvn_netdrv_close_recv(n.d, rc);
}

TEST(Unauthenticated, ACrowdOfSilentOnesDoesNotKeepAPeerOut)
{
    Net n(12); // HELLO_TIMEOUT keeps its default of 20 s, so only the bound on their number helps
    Listen l(n);
    std::vector<raw::Sock> crowd;
    void *rc = nullptr, *sc = nullptr;
    Log::get().clear();
    for (int i = 0; i < 200; i++) {
        crowd.push_back(raw::dial(l.port()));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, l.lc, &rc));
    }
    ASSERT_TRUE(both_come_up(n, l.handle, l.lc, &sc, &rc));
    EXPECT_TRUE(said("too many unauthenticated connections"));
    char c;
    crowd[0].timeout(5);
    EXPECT_EQ(0, crowd[0].take(&c, 1)) << "the oldest was closed";
    EXPECT_EQ(-1, ::recv(crowd[199].fd, &c, 1, MSG_DONTWAIT)) << "the youngest may still speak";
    EXPECT_EQ(EAGAIN, errno);
    pvn_netdrv_close_send(n.d, sc);
    pvn_netdrv_close_recv(n.d, rc);
}

// A peer is slow, but not unauthenticated, if each of its bytes comes in a packet of its own.
TEST(Unauthenticated, ASlowPeerIsNone)
{
    Net n(12);
    Listen l(n);
    raw::Sock s = raw::dial(l.port()), stream;
    raw::Bytes all = raw::preamble(PVN_PREAMBLE_CTRL, l.h.session, 5),
               more = raw::hello(l.h.session);
    void *rc = nullptr;
    all.insert(all.end(), more.begin(), more.end());
    more = raw::offer(raw::tcp_blob(0));
    all.insert(all.end(), more.begin(), more.end());
    for (uint8_t b : all) {
        ASSERT_TRUE(s.send({b}));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, l.lc, &rc)) << Log::get().text();
    }
    stream = raw::dial(l.port());
    for (uint8_t b : raw::preamble(PVN_PREAMBLE_STREAM, l.h.session, 5)) {
        ASSERT_TRUE(stream.send({b}));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, l.lc, &rc)) << Log::get().text();
    }
    for (uint8_t b : raw::ready(1)) {
        ASSERT_TRUE(s.send({b}));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, l.lc, &rc)) << Log::get().text();
    }
    EXPECT_EQ(ncclSuccess, accept_until(n, l.lc, &rc));
    EXPECT_NE(nullptr, rc);
    pvn_netdrv_close_recv(n.d, rc);
}

} // namespace
