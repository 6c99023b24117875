// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The TCP lane with worker threads: they move large pieces whole, and no small ones. However a lane
// ends, it takes back a worker's job. The threads sleep while idle, and end with the last lane.
#include "tcp/lane_pair.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <dirent.h>
#include <fstream>
#include <functional>
#include <poll.h>
#include <random>
#include <signal.h>
#include <string>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <thread>
#include <vector>

extern "C" {
#include "net-tcp/tcp_workers.h"
}

// If `refuse` is set, the kernel refuses epoll_ctl calls for data sockets, as if the user had too
// many watches (fs.epoll.max_user_watches).
static std::atomic<int> refuse{0}, refused{0};

extern "C" int epoll_ctl(int epfd, int op, int fd, epoll_event *ev) noexcept
{
    if (op == EPOLL_CTL_ADD && refuse && ev && ev->events & EPOLLONESHOT) {
        refused++;
        errno = ENOSPC;
        return -1;
    }
    return static_cast<int>(syscall(SYS_epoll_ctl, epfd, op, fd, ev));
}

namespace
{

// Returns the numbers of the process's threads that have the workers' name.
std::vector<std::string> workers()
{
    std::vector<std::string> found;
    DIR *d = opendir("/proc/self/task");
    while (dirent *e = d ? readdir(d) : nullptr) {
        std::string dir = std::string("/proc/self/task/") + e->d_name, name;
        std::ifstream(dir + "/comm") >> name;
        if (name == "pvn-tcp")
            found.push_back(dir);
    }
    if (d)
        closedir(d);
    return found;
}

std::string status_of(const std::string &task, const std::string &key)
{
    std::ifstream f(task + "/status");
    for (std::string line; std::getline(f, line);)
        if (line.rfind(key + ":", 0) == 0)
            return line.substr(key.size() + 1);
    return "";
}

bool soon(const std::function<bool()> &is_so)
{
    for (Deadline wait; wait.left() && !is_so();)
        usleep(1000);
    return is_so();
}

struct Shape {
    int workers, streams;
    size_t chunk;
    int buf;
    bool acknowledged = false, clear_to_send = false, sealed = false;
};

class TcpWorkers : public testing::TestWithParam<Shape>
{
  protected:
    LanePair p;
    void SetUp() override
    {
        p.workers = GetParam().workers;
        p.rcvbuf = p.sndbuf = GetParam().buf;
        p.acknowledged = GetParam().acknowledged;
        p.clear_to_send = GetParam().clear_to_send;
        p.sealed = GetParam().sealed;
        p.open(GetParam().streams, GetParam().chunk, true);
    }
    // Sends a message. With clear-to-send it first waits until the receive has been announced.
    pvn_req *send(const std::vector<uint8_t> &out, int tag)
    {
        pvn_req *s = nullptr;
        for (Deadline wait; wait.left() && !s;) {
            EXPECT_EQ(0, pvn_engine_progress(p.erx)) << p.rx->err.reason[0];
            if (pvn_engine_isend(p.etx, out.data(), out.size(), tag, nullptr, &s) < 0)
                break;
        }
        EXPECT_TRUE(s) << p.tx->err.reason[0];
        return s;
    }
    uint64_t jobs(const pvn_lane *l)
    {
        return pvn_tcp_lane_get_stats(l)->jobs;
    }
};

TEST_P(TcpWorkers, LargeMessagesGoThroughThem)
{
    const size_t sizes[] = {0, 8, 4096, 100000, 128 * 1024, 1000003, (size_t(5) << 20) + 7};
    for (size_t n : sizes) {
        auto out = bytes::of(n, static_cast<unsigned>(n));
        std::vector<uint8_t> in(n + 64, 0xAA);
        void *buf = in.data();
        size_t cap = n + 32, got = 99, sent = 99;
        int tag = 3;
        uint64_t before = jobs(p.tx) + jobs(p.rx);
        pvn_req *r = nullptr, *s = nullptr;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
        ASSERT_TRUE((s = send(out, 3)));
        finish(s, r, &sent, &got);
        EXPECT_EQ(n, got);
        EXPECT_TRUE(bytes::same(out.data(), in.data(), n)) << n;
        for (size_t i = n; i < in.size(); i++)
            ASSERT_EQ(0xAA, in[i]) << "wrote behind a message of " << n;
        if (n < 128 * 1024)
            EXPECT_EQ(before, jobs(p.tx) + jobs(p.rx)) << n;
        else
            EXPECT_LT(before, jobs(p.tx) + jobs(p.rx)) << n;
    }
    EXPECT_LT(0u, jobs(p.tx));
    if (GetParam().chunk > p.worker_min) {
        EXPECT_LT(0u, jobs(p.rx));
    }
}

// Eight messages of any size are in flight. They arrive in order and whole.
TEST_P(TcpWorkers, PipelineOfRandomSizes)
{
    constexpr int kDepth = 8;
    const int kMessages = messages(300);
    std::mt19937 rng(7);
    struct Open {
        std::vector<uint8_t> out, in;
        pvn_req *s = nullptr, *r = nullptr;
        bool sent = false, received = false;
    };
    std::array<Open, kDepth> open;
    int posted = 0, completed = 0;
    for (long turns = 0; completed < kMessages; turns++) {
        ASSERT_LT(turns, 500000000L);
        if (posted < kMessages && posted - completed < kDepth) {
            Open &o = open[static_cast<size_t>(posted % kDepth)];
            size_t n = rng() % 4 ? rng() % 1500000 : rng() % 300;
            o = Open();
            o.out = bytes::of(n, static_cast<unsigned>(posted));
            o.in.assign(n, 0);
            void *buf = o.in.data();
            int tag = 0;
            ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &n, &tag, nullptr, &o.r));
            ASSERT_TRUE((o.s = send(o.out, 0)));
            posted++;
        }
        for (int i = completed; i < posted; i++) {
            Open &o = open[static_cast<size_t>(i % kDepth)];
            int done = 0;
            if (!o.sent) {
                ASSERT_EQ(0, pvn_engine_test(o.s, &done, nullptr)) << p.tx->err.reason[0];
                o.sent = done;
            }
            done = 0;
            if (!o.received) {
                ASSERT_EQ(0, pvn_engine_test(o.r, &done, nullptr));
                o.received = done;
            }
        }
        while (completed < posted && open[static_cast<size_t>(completed % kDepth)].sent &&
               open[static_cast<size_t>(completed % kDepth)].received) {
            Open &o = open[static_cast<size_t>(completed % kDepth)];
            ASSERT_TRUE(bytes::same(o.out.data(), o.in.data(), o.in.size())) << completed;
            completed++;
        }
    }
    EXPECT_LT(static_cast<uint64_t>(kMessages) / 4,
              jobs(GetParam().chunk > p.worker_min ? p.rx : p.tx));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TcpWorkers,
    testing::Values(Shape{1, 1, 1 << 20, 0}, Shape{1, 3, 256 << 10, 0}, Shape{2, 4, 512 << 10, 0},
                    Shape{3, 2, 1 << 20, 16 << 10}, Shape{2, 2, 192 << 10, 0, true},
                    Shape{1, 1, 64 << 10, 64 << 10, true},
                    Shape{2, 2, 192 << 10, 0, true,
                          true} AND_SEALED(Shape{1, 1, 1 << 20, 0, false, false, true},
                                           Shape{2, 4, 512 << 10, 0, true, false, true},
                                           Shape{1, 1, 64 << 10, 64 << 10, true, false, true},
                                           Shape{2, 2, 192 << 10, 4096, true, true, true})),
    shape_name<testing::TestParamInfo<Shape>>);

// A lane with a message that cannot complete, because only one end is called
struct Stuck {
    std::vector<uint8_t> out = bytes::of(16 << 20, 1), in = std::vector<uint8_t>(16 << 20);
    LanePair p; // closed before the buffers are freed
    pvn_req *s = nullptr, *r = nullptr;
    explicit Stuck(int streams = 1)
    {
        p.workers = 2;
        p.rcvbuf = p.sndbuf = 64 << 10;
        p.open(streams, 4 << 20);
    }
    void send()
    {
        ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), out.size(), 0, nullptr, &s));
        int done = 0;
        // Waits until the worker has filled the socket and waits for room.
        ASSERT_TRUE(soon([&] {
            EXPECT_EQ(0, pvn_engine_test(s, &done, nullptr));
            pollfd f = {p.dialed[0], POLLOUT, 0};
            return poll(&f, 1, 0) == 0;
        }));
    }
    // Waits until the receiver's worker has part of the message. The rest never comes, because the
    // sender is not called.
    void receive()
    {
        void *buf = in.data();
        size_t cap = in.size();
        int tag = 0, done = 0;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
        ASSERT_TRUE(soon([&] {
            EXPECT_EQ(0, pvn_engine_test(r, &done, nullptr));
            return in[0] == out[0] && in[1000] == out[1000];
        }));
    }
};

TEST(TcpWorkersEnd, ASenderIsFencedInMidChunk)
{
    Stuck t;
    t.send();
    std::vector<uint8_t> sent = t.out;
    t.p.fence(t.p.etx, t.p.tx);
    // Nothing reads the buffer any more. So the data that arrive are those from before.
    memset(t.out.data(), 0xEE, t.out.size());
    void *buf = t.in.data();
    size_t cap = t.in.size();
    int tag = 0, done = 0;
    ASSERT_EQ(0, pvn_engine_irecv(t.p.erx, 1, &buf, &cap, &tag, nullptr, &t.r));
    EXPECT_TRUE(soon([&] { return pvn_engine_test(t.r, &done, nullptr) != 0; }));
    EXPECT_EQ(sent[0], t.in[0]);
    // memcmp decides for most pages, since a loop over 16 MiB costs seconds under a sanitizer.
    constexpr size_t kPage = 4096;
    for (size_t at = 0; at < sent.size(); at += kPage) {
        if (bytes::same(&t.in[at], &sent[at], kPage) || bytes::all(&t.in[at], kPage, 0))
            continue;
        for (size_t i = at; i < at + kPage; i++)
            ASSERT_TRUE(t.in[i] == sent[i] || t.in[i] == 0) << i;
    }
}

TEST(TcpWorkersEnd, AReceiverIsFencedInMidChunk)
{
    Stuck t;
    t.send();
    t.receive();
    t.p.fence(t.p.erx, t.p.rx);
    memset(t.in.data(), 0x55, t.in.size());
    int done = 0;
    for (int i = 0; i < 1000; i++)
        pvn_engine_test(t.s, &done, nullptr);
    // Now a worker that still had the job would write what was sent.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_TRUE(bytes::all(t.in.data(), t.in.size(), 0x55)) << "a worker wrote after the fence";
}

TEST(TcpWorkersEnd, LanesAreClosedInMidChunk)
{
    for (int streams = 1; streams < 4; streams++) {
        Stuck t(streams);
        t.send();
        t.receive();
    }
    EXPECT_TRUE(soon([] { return workers().empty(); }));
}

TEST(TcpWorkersEnd, APeerThatGoesAwayIsAnError)
{
    Stuck t;
    t.send();
    t.receive();
    // The reset comes in the middle of the worker's piece.
    linger l = {1, 0};
    setsockopt(t.p.dialed[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l));
    t.p.tx->ops->close(t.p.tx);
    t.p.tx = nullptr;
    int rc = 0, done = 0;
    EXPECT_TRUE(soon([&] { return (rc = pvn_engine_test(t.r, &done, nullptr)) != 0; }));
    EXPECT_NE(0, rc);
    ASSERT_NE(nullptr, pvn_engine_err(t.p.erx));
    EXPECT_NE(nullptr, strstr(pvn_engine_err(t.p.erx)->reason[0], "receiving"))
        << pvn_engine_err(t.p.erx)->reason[0];
}

TEST(TcpWorkersEnd, AReceiverThatGoesAwayIsAnError)
{
    Stuck t;
    t.send();
    t.p.rx->ops->close(t.p.rx);
    t.p.rx = nullptr;
    int rc = 0, done = 0;
    EXPECT_TRUE(soon([&] { return (rc = pvn_engine_test(t.s, &done, nullptr)) != 0; }));
    EXPECT_NE(0, rc);
}

TEST(TcpWorkersLife, ThreadsBlockEverySignalSleepAndEnd)
{
    ASSERT_TRUE(workers().empty());
    {
        LanePair p, q;
        p.workers = q.workers = 2;
        p.open(2, 512 << 10);
        q.open(2, 512 << 10);
        std::vector<std::string> w = workers();
        ASSERT_EQ(2u, w.size()) << "one pool for all lanes";
        for (const std::string &task : w) {
            uint64_t blocked = std::stoull(status_of(task, "SigBlk"), nullptr, 16);
            for (int sig : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGUSR1, SIGALRM})
                EXPECT_TRUE(blocked >> (sig - 1) & 1) << sig;
            // A sleeping thread uses no processor, and the kernel no longer switches to it.
            EXPECT_TRUE(soon([&] {
                std::string before = status_of(task, "voluntary_ctxt_switches");
                usleep(20000);
                return before == status_of(task, "voluntary_ctxt_switches") &&
                       status_of(task, "State").find('S') != std::string::npos;
            }));
        }
    }
    EXPECT_TRUE(soon([] { return workers().empty(); }));
}

// A worker cannot wait for sockets without a watch. It makes more calls, and the comm works.
TEST(TcpWorkersLife, WithoutRoomForAWatch)
{
    const size_t n = 8 << 20;
    std::vector<uint8_t> out = bytes::of(n, 5), in(n);
    LanePair p; // closed before the buffers are freed
    p.workers = 1;
    p.rcvbuf = p.sndbuf = 64 << 10;
    p.open(2, 1 << 20);
    refuse = 1;
    void *buf = in.data();
    size_t cap = n, sent = 0, got = 0;
    int tag = 0;
    pvn_req *r = nullptr, *s = nullptr;
    ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &buf, &cap, &tag, nullptr, &r));
    ASSERT_EQ(0, pvn_engine_isend(p.etx, out.data(), n, 0, nullptr, &s));
    finish(s, r, &sent, &got);
    refuse = 0;
    EXPECT_EQ(n, got);
    EXPECT_TRUE(bytes::same(out.data(), in.data(), n));
    EXPECT_LT(0, refused);
}

// Makes a job on the first of two connected sockets.
tcp_job *job_of_a_pair(int (&fd)[2], bool sends)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) != 0)
        return nullptr;
    tcp_job *j = tcp_job_new();
    if (j) {
        j->fd = fd[0];
        j->sends = sends;
    }
    return j;
}

// A job is cancelled before its worker has started it, many times over.
TEST(TcpWorkersLife, PostAndCancelRace)
{
    ASSERT_EQ(0, tcp_workers_get(1));
    std::vector<uint8_t> buf(1 << 20);
    for (int i = 0; i < 300; i++) {
        int fd[2];
        tcp_job *j = job_of_a_pair(fd, i % 2);
        ASSERT_NE(nullptr, j);
        j->need = buf.size();
        j->npieces = 1;
        j->piece[0] = {buf.data(), buf.size()};
        tcp_job_post(j);
        for (int k = 0; k < i % 7; k++)
            sched_yield();
        tcp_job_cancel(j);
        EXPECT_FALSE(tcp_job_busy(j));
        EXPECT_LT(j->moved, buf.size());
        tcp_job_free(j);
        close(fd[0]);
        close(fd[1]);
    }
    tcp_workers_put();
    EXPECT_TRUE(soon([] { return workers().empty(); }));
}

// Another thread revokes a job while its worker moves bytes, many times over. The worker then no
// longer touches the job's memory. A job whose memory is not in the revoked range goes on.
TEST(TcpWorkersLife, PostAndRevokeRace)
{
    ASSERT_EQ(0, tcp_workers_get(1));
    constexpr size_t N = 1 << 20;
    std::vector<uint8_t> buf(N), apart(4096), some(64 << 10, 7);
    int revoked = 0;
    for (int i = 0; i < 300; i++) {
        int fd[2];
        tcp_job *j = job_of_a_pair(fd, i % 2);
        ASSERT_NE(nullptr, j);
        j->need = N;
        j->npieces = 2;
        j->piece[0] = {buf.data(), N / 2};
        j->piece[1] = {buf.data() + N / 2, N / 2};
        tcp_job_post(j);
        std::thread owner([&] {
            for (int k = 0; k < i % 7; k++)
                sched_yield();
            tcp_job_revoke(j, apart.data(), apart.size());
            tcp_job_revoke(j, buf.data() + (i % 3) * N / 3, N / 3);
            // The last bytes have not been moved yet. In the first cases the job has gone on until
            // here.
            tcp_job_revoke(j, buf.data() + N - 1, 1);
            std::fill(buf.begin(), buf.end(), 0);
        });
        for (int k = 0; k < 8; k++)
            if (j->sends ? recv(fd[1], some.data(), some.size(), 0) < 0
                         : send(fd[1], some.data(), some.size(), MSG_NOSIGNAL) < 0)
                sched_yield();
        owner.join();
        EXPECT_FALSE(tcp_job_busy(j));
        revoked += j->revoked;
        ASSERT_TRUE(bytes::all(buf.data(), N, 0)) << i;
        tcp_job_cancel(j);
        tcp_job_free(j);
        close(fd[0]);
        close(fd[1]);
    }
    EXPECT_EQ(300, revoked);
    tcp_workers_put();
}

// All users share the threads that one of them started. The last user ends them.
TEST(TcpWorkersLife, WorkersLiveUntilTheirLastUser)
{
    ASSERT_EQ(0, tcp_workers_get(3));
    ASSERT_EQ(0, tcp_workers_get(1));
    EXPECT_EQ(3u, workers().size());
    tcp_workers_put();
    EXPECT_EQ(3u, workers().size());
    tcp_workers_put();
    EXPECT_TRUE(soon([] { return workers().empty(); }));
}

} // namespace
