/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A comm of the plugin with failover. Its peer is made by hand: it loses the connection and makes
// another one. The plugin receives (struct Receiving) or sends (struct Sending).
#ifndef TESTS_FAIL_FAILOVER_PEER_H
#define TESTS_FAIL_FAILOVER_PEER_H

#include "fail/raw_comm.h"

#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <functional>

extern "C" {
#include "engine/engine.h"
#include "stats/stats_read.h"
}

namespace nccl
{

// The features that the peer announces in its HELLO.
inline uint64_t features = PVN_FEATURE_FAILOVER | PVN_FEATURE_FAILBACK | PVN_FEATURE_ALIVE;

// Sets the parameters before the plugin reads them, because it reads them once.
inline const bool configured = [] {
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "3s", 1);
    return true;
}();

inline pvn_hello with_features(uint64_t session)
{
    pvn_hello h = raw::plain_hello(session);
    h.features = features;
    return h;
}

// The peer's HELLO with features, which also names another address of the peer: that of listener
// `l`.
inline pvn_hello that_names(const raw::Listener &l)
{
    pvn_hello h = with_features(77);
    h.nothers = 1;
    h.other[0].family = 4;
    h.other[0].port = l.port;
    h.other[0].bytes[0] = 127;
    h.other[0].bytes[3] = 1;
    return h;
}

inline raw::Bytes lane_down()
{
    return raw::text_frame(PVN_FRAME_LANE_DOWN, "a cable was pulled");
}

inline raw::Bytes report_frame(const pvn_engine_report &r)
{
    raw::Bytes b(512);
    b.resize(pvn_report_encode(b.data(), b.size(), &r));
    return raw::frame(PVN_FRAME_REPORT, b);
}

inline raw::Bytes answer_frame(uint64_t first, uint64_t next)
{
    pvn_engine_answer a = {first, next, {}};
    raw::Bytes b(64);
    b.resize(pvn_answer_encode(b.data(), b.size(), &a));
    return raw::frame(PVN_FRAME_ANSWER, b);
}

// A comm of the same process whose peers both keep the rules. It shows that a malformed peer
// disturbs no other comm.
class Others
{
  public:
    explicit Others(Net &n) : p(n)
    {
    }
    ~Others()
    {
        use();
        p.close();
    }
    void use()
    {
        Flow f = plain(p, {1, 1000, 100000});
        EXPECT_TRUE(f.run()) << "the peer of another comm has disturbed this one";
    }

  private:
    Pair p;
};

// Pause between two calls of the plugin, since most of a test is waiting. 0: no pause, like an NCCL
// thread that has a processor of its own.
inline std::chrono::microseconds between_calls{200};

// Runs `peer` in a thread of its own and repeats `call` meanwhile. Then repeats `call` until
// `enough` is true or a call fails. Returns the result of the last call.
inline ncclResult_t during(const std::function<void()> &peer,
                           const std::function<ncclResult_t()> &call,
                           const std::function<bool()> &enough)
{
    std::atomic<bool> over{false};
    ncclResult_t rc = ncclSuccess;
    std::thread t([&] {
        peer();
        over = true;
    });
    EXPECT_TRUE(eventually([&] {
        rc = rc == ncclSuccess ? call() : rc;
        if (between_calls.count() > 0)
            std::this_thread::sleep_for(between_calls);
        return over && (rc != ncclSuccess || enough());
    })) << Log::get().text();
    t.join();
    return rc;
}

// Runs `body` in a process of its own, because the plugin folds log lines that repeat within
// seconds.
inline void alone(const std::function<void()> &body)
{
    fflush(nullptr);
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        body();
        fflush(nullptr);
        _exit(testing::Test::HasFailure());
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status) << "see above";
}

// True if this process's statistics in `dir` have a row that fits, as pvn-topo stat would see it.
inline bool has_row(const std::string &dir, const std::function<bool(const pvn_stat_row &)> &fits)
{
    bool found = false;
    for (const auto &file : std::filesystem::directory_iterator(dir)) {
        pvn_stats s = {};
        if (pvn_stats_read(file.path().c_str(), &s, nullptr) != 0)
            continue;
        for (int i = 0; i < s.nrows; i++)
            found |= fits(s.row[i]);
        pvn_stats_free(&s);
    }
    return found;
}

// Runs `body` in a process of its own whose statistics are in a new directory.
inline void alone_with_statistics(const std::function<void(const std::string &dir)> &body)
{
    char dir[] = "/tmp/pvn-failover-stat.XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(dir));
    alone([&] {
        setenv("NCCL_PVRDMA_STATS_DIR", dir, 1);
        body(dir);
    });
    std::filesystem::remove_all(dir);
}

inline bool never()
{
    return false;
}

// ---- the plugin receives ----

struct Receiving : Receiver {
    Others others{n};
    RawEnd next;
    bool done = false;
    explicit Receiving(const raw::Listener *seen_at = nullptr) : Receiver(features, seen_at)
    {
    }
    ncclResult_t call()
    {
        void *data = b.data(), *mh = nullptr;
        size_t room = b.n;
        int tag = 0, now = 0;
        ncclResult_t r = ncclSuccess;
        if (!req && !done)
            r = pvn_netdrv_irecv(n.d, rc, 1, &data, &room, &tag, &mh, nullptr, &req);
        if (req && r == ncclSuccess)
            r = pvn_netdrv_test(n.d, req, &now, &size);
        if (now) {
            done = true;
            req = nullptr;
        }
        return r;
    }
    // The peer connects again, and reads the plugin's report.
    void connect_again(uint64_t nonce, uint64_t resumes = 9)
    {
        pvn_hello mine = with_features(h.session);
        mine.resumes = resumes;
        next = dial_plugin(h.addr.port, nonce, mine);
        int type = 0;
        raw::Bytes body = next.ctrl.recv_frame(&type);
        EXPECT_EQ(PVN_FRAME_REPORT, type);
        pvn_engine_report r = {};
        EXPECT_EQ(0, pvn_report_decode(body.data(), body.size(), &r, nullptr));
    }
    ncclResult_t with(const std::function<void()> &peer, const std::function<bool()> &enough)
    {
        return during(
            peer, [&] { return call(); }, enough);
    }
    // The peer does `lie`, then answers properly and sends message 0. The plugin has to receive it.
    void goes_on(const std::function<void()> &lie)
    {
        EXPECT_EQ(ncclSuccess, with(
                                   [&] {
                                       lie();
                                       next.ctrl.send(answer_frame(0, 0));
                                       next.stream.send(message(0, {1, 2, 3}, 3));
                                   },
                                   [&] { return done; }))
            << Log::get().text();
        EXPECT_EQ(3, size);
        EXPECT_TRUE(said("connected again after")) << Log::get().text();
    }
    void ends(const std::function<void()> &lie, const char *why)
    {
        EXPECT_NE(ncclSuccess, with(lie, never));
        EXPECT_TRUE(Log::get().warned({why})) << Log::get().text();
        EXPECT_NE(ncclSuccess, call()) << "the request is open, though its lanes may be gone";
    }
};

// ---- the plugin sends ----

struct Sending : Sender {
    // Messages are too long for the plugin to keep a copy, so a send is open until it is
    // acknowledged.
    static constexpr size_t kBytes = PVN_KEEP_MAX + 1000;
    Others others{n};
    RawEnd next;
    int sent = 0;
    explicit Sending(const pvn_hello &mine = with_features(77)) : Sender(0, mine)
    {
        b.n = kBytes;
    }
    ncclResult_t call()
    {
        int now = 0;
        ncclResult_t r = ncclSuccess;
        if (!req)
            r = pvn_netdrv_isend(n.d, sc, b.data(), b.n, 0, nullptr, nullptr, &req);
        if (req && r == ncclSuccess)
            r = pvn_netdrv_test(n.d, req, &now, nullptr);
        if (now) {
            sent++;
            req = nullptr;
        }
        return r;
    }
    // Reads a message from a stream and acknowledges it.
    static void take(raw::Sock &stream)
    {
        EXPECT_EQ(PVN_FRAME_LEN + kBytes, stream.recv(PVN_FRAME_LEN + kBytes).size());
        stream.send({1});
    }
    void lose()
    {
        ctrl.send(lane_down());
    }
    void accept_again(uint64_t received = 0)
    {
        accept_again_at(l, received);
    }
    void accept_again_at(raw::Listener &at, uint64_t received = 0)
    {
        pvn_hello mine = with_features(77), again = {};
        mine.received = received;
        next = accept_plugin(at, mine, 0, &again);
        EXPECT_EQ(nonce, again.resumes);
    }
    ncclResult_t with(const std::function<void()> &peer, const std::function<bool()> &enough)
    {
        return during(
            peer, [&] { return call(); }, enough);
    }
    void goes_on(const std::function<void()> &lie, int messages)
    {
        EXPECT_EQ(ncclSuccess, with(
                                   [&] {
                                       lie();
                                       take(next.stream);
                                   },
                                   [&] { return sent >= messages; }))
            << Log::get().text();
        EXPECT_TRUE(said("connected again after"));
    }
    void ends(const std::function<void()> &lie, const char *why)
    {
        EXPECT_NE(ncclSuccess, with(lie, never));
        EXPECT_TRUE(Log::get().warned({why})) << Log::get().text();
        EXPECT_NE(ncclSuccess, call()) << "the request is open, though its lanes may be gone";
    }
};

// The report of a peer that has received nothing: message 0 is open.
inline pvn_engine_report nothing_yet()
{
    return {};
}

} // namespace nccl

#endif
