// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Connections to a listener that no comm takes. They come from somebody who guesses the session,
// name comms that do not exist, or were given up by a peer without a word.
#include "fail/failover_peer.h"

#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>

using namespace nccl;

// True: this process and the plugin read a wall clock that is an hour ahead.
static std::atomic<bool> hour_ahead{false};
// Holds this thread up once, after it has read the monotonic clock, until `may_go`, but for a
// second at most.
static thread_local bool dawdles = false;
static std::atomic<bool> held_up{false}, may_go{false};

// Makes accept4 slow on threads with `accepts_slowly`, so that they hold the listener's lock nearly
// all the time.
static std::atomic<bool> slow_accepts{false};
static thread_local bool accepts_slowly = false;

extern "C" int accept4(int fd, sockaddr *addr, socklen_t *len, int flags)
{
    if (slow_accepts && accepts_slowly)
        usleep(1000);
    return static_cast<int>(syscall(SYS_accept4, fd, addr, len, flags));
}

static void dawdle()
{
    dawdles = false;
    held_up = true;
    for (int i = 0; i < 1000 && !may_go; i++)
        usleep(1000);
}

extern "C" int clock_gettime(clockid_t id, timespec *ts) noexcept
{
    long rc = syscall(SYS_clock_gettime, id, ts);
    if (id == CLOCK_MONOTONIC && dawdles)
        dawdle();
    if (id == CLOCK_REALTIME && hour_ahead)
        ts->tv_sec += 3600;
    return static_cast<int>(rc);
}

namespace
{

// A listener of the plugin, to which a test connects by hand.
struct Listening {
    Net n{12};
    pvn_handle h = {};
    void *lc = nullptr, *rc = nullptr;

    Listening()
    {
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        EXPECT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
        EXPECT_EQ(0, pvn_handle_decode(reinterpret_cast<uint8_t *>(handle), PVN_HANDLE_BYTES, &h,
                                       nullptr));
    }
    ~Listening()
    {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
    }
    ncclResult_t accept()
    {
        return pvn_netdrv_accept(n.d, lc, &rc);
    }
    // Calls accept until there is a comm, or an error, which it returns.
    ncclResult_t accept_one()
    {
        ncclResult_t result = ncclSuccess;
        EXPECT_TRUE(eventually([&] {
            result = accept();
            return rc || result != ncclSuccess;
        }));
        return result;
    }
};

// Nobody can find the session byte by byte: the listener keeps silent after a guess of its first
// bytes, right or wrong, and closes the connection of a whole wrong guess late.
TEST(Unauthenticated, APartOfTheSessionIsNoAnswer)
{
    Listening l;
    std::vector<raw::Sock> guesses;
    auto silent = [](const raw::Sock &s) {
        char c;
        return ::recv(s.fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
    };
    Log::get().clear();
    for (size_t known = 1; known <= 8; known++)
        for (uint64_t wrong : {0ull, 1ull << (8 * known - 1)}) {
            guesses.push_back(raw::dial(l.h.addr.port));
            raw::Bytes b = raw::preamble(PVN_PREAMBLE_CTRL, l.h.session ^ wrong, known);
            ASSERT_TRUE(guesses.back().send(b, 16 + known));
        }
    raw::Sock whole = raw::dial(l.h.addr.port);
    ASSERT_TRUE(whole.send(raw::preamble(PVN_PREAMBLE_CTRL, l.h.session ^ 1, 99)));
    ASSERT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess, l.accept());
        return said("its session id is not ours");
    })) << "the fault fired";
    EXPECT_TRUE(silent(whole)) << "refused at once";
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess, l.accept());
        return !silent(whole);
    })) << "refused, and still open";
    for (const raw::Sock &s : guesses)
        EXPECT_TRUE(silent(s)) << "a guess was answered";
}

// While one call of accept is held up, another call accepts the connection, with a later timestamp.
// The connection still gets its whole time.
TEST(Unauthenticated, OneThatComesInDuringAnotherCallHasItsTime)
{
    Listening l;
    void *slow_rc = nullptr;
    Log::get().clear();
    std::thread slow([&] {
        dawdles = true;
        EXPECT_EQ(ncclSuccess, pvn_netdrv_accept(l.n.d, l.lc, &slow_rc));
    });
    ASSERT_TRUE(eventually([] { return held_up.load(); })) << "the fault fired";
    raw::Sock s = raw::dial(l.h.addr.port);
    EXPECT_EQ(ncclSuccess, l.accept());
    may_go = true;
    slow.join();
    EXPECT_FALSE(said("it did not identify itself")) << Log::get().text();
    char c;
    EXPECT_EQ(-1, ::recv(s.fd, &c, 1, MSG_DONTWAIT)) << "it was closed";
}

int open_files()
{
    int n = 0;
    for (const auto &f : std::filesystem::directory_iterator("/proc/self/fd"))
        n += !f.path().empty();
    return n;
}

// Makes control connections that resume comms number `resumes` and following, and reads the answer
// to each HELLO.
std::vector<raw::Sock> half_made(const Receiver &r, int number, uint64_t resumes,
                                 uint64_t more_features = 0)
{
    std::vector<raw::Sock> made;
    pvn_hello mine = with_features(r.h.session);
    mine.features |= more_features;
    int type = 0;
    for (int i = 0; i < number; i++) {
        mine.resumes = resumes + static_cast<uint64_t>(i);
        made.push_back(raw::dial(r.h.addr.port));
        made.back().send(raw::preamble(PVN_PREAMBLE_CTRL, r.h.session, 100 + mine.resumes));
        made.back().send(raw::hello(mine));
    }
    for (raw::Sock &s : made) {
        s.recv_frame(&type);
        EXPECT_EQ(PVN_FRAME_HELLO, type);
    }
    return made;
}

// The connector's end is up when it has the plugin's READY. Its own is lost with the connection, so accept fails. The
// connector would connect again for as long as something listens.
TEST(Listener, IsClosedAfterASetUpThatHasFailed)
{
    alone([] {
        Listening l;
        raw::Sock early;
        std::thread connector([&] {
            RawEnd e = dial_lanes(l.h.addr.port, 9, with_features(l.h.session));
            // It connects again before accept is called.
            early = raw::dial(l.h.addr.port);
            early.send(raw::preamble(PVN_PREAMBLE_CTRL, l.h.session, 10));
            pvn_hello again = with_features(l.h.session);
            again.resumes = 9;
            early.send(raw::hello(again));
            e.ctrl.reset();
        });
        EXPECT_NE(ncclSuccess, l.accept_one()) << "the fault fired";
        connector.join();
        EXPECT_EQ(nullptr, l.rc);
        char byte;
        EXPECT_TRUE(eventually([&] {
            const ssize_t got = ::recv(early.fd, &byte, 1, MSG_DONTWAIT);
            return got == 0 || (got < 0 && errno == ECONNRESET);
        })) << "it is left open";
        EXPECT_GT(0, raw::dial(l.h.addr.port).fd) << "something listens";
        EXPECT_NE(ncclSuccess, l.accept());
        EXPECT_TRUE(said("this listener was closed when a set-up at it failed"))
            << Log::get().text();
    });
}

// A set-up fails long before its connector could be up. Another connector comes to the same listener.
TEST(Listener, GoesOnAfterASetUpThatHasFailedEarly)
{
    alone([] {
        Listening l;
        {
            raw::Sock s = raw::dial(l.h.addr.port);
            s.send(raw::preamble(PVN_PREAMBLE_CTRL, l.h.session, 9));
            s.send(raw::hello(with_features(l.h.session)));
        }
        EXPECT_NE(ncclSuccess, l.accept_one()) << "the fault has not fired";
        ASSERT_EQ(nullptr, l.rc);
        RawEnd e;
        std::thread connector(
            [&] { e = dial_plugin(l.h.addr.port, 10, with_features(l.h.session)); });
        EXPECT_EQ(ncclSuccess, l.accept_one());
        connector.join();
        ASSERT_NE(nullptr, l.rc) << Log::get().text();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(l.n.d, l.rc));
    });
}

TEST(Listener, ConnectionsForUnknownCommsThatAreClosedAgainAreNotKept)
{
    alone([] {
        // longer than the test, since this timeout would also close them
        setenv("NCCL_PVRDMA_HELLO_TIMEOUT", "300s", 1);
        Receiving r;
        int before = open_files(), most = 0;
        auto come_and_go = [&] {
            for (uint64_t i = 0; i < 3; i++) {
                std::vector<raw::Sock> made = half_made(r, 40, 1000 + 100 * i);
                most = std::max(most, open_files());
            }
        };
        auto closed = [&] {
            // a pause, because counting is expensive
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            return open_files() < before + 10;
        };
        EXPECT_EQ(ncclSuccess, r.with(come_and_go, closed))
            << "from " << before << " to " << open_files();
        EXPECT_GT(most, before + 70) << "the connections were made";
    });
}

TEST(Listener, ConnectionsForUnknownCommsThatStayOpenAreClosedInTime)
{
    alone([] {
        setenv("NCCL_PVRDMA_HELLO_TIMEOUT", "1s", 1);
        Receiving r;
        auto come_and_stay = [&] {
            for (raw::Sock &s : half_made(r, 20, 1000)) {
                bool closed = false;
                EXPECT_NE(std::string::npos, s.last_words(&closed).find("no comm is waiting"));
                EXPECT_TRUE(closed);
            }
        };
        EXPECT_EQ(ncclSuccess, r.with(come_and_stay, [] { return true; }));
        EXPECT_FALSE(said("failover:")) << Log::get().text();
    });
}

// A comm in a failover looks for a new connection all the time, so the thread that takes control
// connections does not get the listener's lock. The plugin must not refuse the control connection
// because of that.
TEST(Listener, AControlConnectionIsKeptWhileItsCommHasTheLock)
{
    alone([] {
        setenv("NCCL_PVRDMA_HELLO_TIMEOUT", "1s", 1);
        setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "60s", 1);
        features |= PVN_FEATURE_KEEPS;
        Receiving r;
        r.goes_on([&] {
            r.ctrl.send(lane_down());
            r.connect_again(10);
        });
        r.done = false;
        between_calls = {};
        accepts_slowly = true; // on this thread, which calls the plugin
        auto lose_again = [&] {
            int type = 0;
            Log::get().clear();
            r.next.ctrl.reset();
            EXPECT_TRUE(eventually([] { return said("failover: "); }));
            raw::Sock s = std::move(half_made(r, 1, 10, PVN_FEATURE_CONTROL)[0]);
            slow_accepts = true;
            s.send(raw::frame(PVN_FRAME_BEAT, {}));
            std::this_thread::sleep_for(std::chrono::milliseconds(2500));
            slow_accepts = false;
            s.recv_frame(&type);
            EXPECT_EQ(PVN_FRAME_LANE_DOWN, type) << Log::get().text();
        };
        EXPECT_EQ(ncclSuccess, r.with(lose_again, [] { return true; })) << Log::get().text();
    });
}

// The path of the older connection died after its HELLO, so the listener sees no end of it. The
// next connection takes over and stays.
void left_behind(bool messages)
{
    Receiving r;
    std::vector<raw::Sock> old;
    auto lose_once = [&] {
        old = half_made(r, 1, 9);
        r.ctrl.send(lane_down());
        r.connect_again(10);
        r.next.ctrl.send(answer_frame(0, 0));
        if (messages)
            r.next.stream.send(message(0, {1, 2, 3}, 3));
        int type = 0;
        r.next.ctrl.timeout(1); // expires, because nothing comes on a connection that stays
        r.next.ctrl.recv_frame(&type);
        EXPECT_NE(PVN_FRAME_LANE_DOWN, type) << "given up for the one that came before it";
        if (!messages)
            r.next.stream.send(message(0, {1, 2, 3}, 3));
    };
    EXPECT_EQ(ncclSuccess, r.with(lose_once, [&] { return r.done; })) << Log::get().text();
    EXPECT_EQ(3, r.size);
    EXPECT_TRUE(said("connected again after"));
    bool closed = false;
    ASSERT_EQ(1u, old.size());
    old[0].timeout(5);
    old[0].last_words(&closed);
    EXPECT_TRUE(closed) << "the old one is still open";
}

TEST(Listener, AConnectionLeftBehindReplacesNothing)
{
    alone([] { left_behind(false); });
}

TEST(Listener, AConnectionLeftBehindReplacesNothingWhileDataFlow)
{
    alone([] { left_behind(true); });
}

// The thread that answers HELLOs must not wait by the wall clock: after the clock was set back, it
// would wait for an hour.
TEST(Clock, AWallClockThatIsSetBackStopsNoAnswer)
{
    alone([] {
        Receiver r(features); // nobody calls its comm
        half_made(r, 1, 1000);
        hour_ahead = true;
        timespec now = {}, real = {};
        clock_gettime(CLOCK_REALTIME, &now);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        hour_ahead = false;
        clock_gettime(CLOCK_REALTIME, &real);
        EXPECT_GT(now.tv_sec, real.tv_sec + 1800) << "it was set back";
        half_made(r, 1, 1001);
    });
}

} // namespace
