// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin with many comms, many rounds, many threads, and more than 4 GiB in one message.
#include "abi/nccl_side.h"

#include <climits>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>

using namespace nccl;

namespace
{

TEST(Many, AThousandRandomRounds)
{
    auto before = descriptors();
    {
        Net n(12);
        std::mt19937 rng(42);
        for (int round = 0; round < 1000; round++) {
            Pair p(n);
            ASSERT_TRUE(p.up()) << round;
            std::vector<size_t> sizes(rng() % 6);
            for (auto &s : sizes)
                s = rng() % 4 ? rng() % 2000 : rng() % 100000;
            Flow f = plain(p, sizes, rng() % 100);
            if (rng() % 4) {
                ASSERT_TRUE(f.run()) << round << Log::get().text();
                f.check();
            } else {
                for (int i = rng() % 5; i > 0 && f.step() && !f.done(); i--)
                    ;
                ASSERT_EQ(ncclSuccess, f.error) << round;
            }
            if (rng() % 2) {
                pvn_netdrv_close_recv(p.d, p.rc);
                p.rc = nullptr;
            }
        }
    }
    EXPECT_EQ(before, descriptors());
}

long resident_kib()
{
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

TEST(Many, AThousandCommsAtOnce)
{
    const int pairs = 500; // 500 sending and 500 receiving comms
    rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < 8 * pairs) {
        rlimit up = {r.rlim_max, r.rlim_max};
        if (r.rlim_max < 8 * pairs || setrlimit(RLIMIT_NOFILE, &up) != 0)
            GTEST_SKIP() << "RLIMIT_NOFILE is " << r.rlim_max;
    }
    auto before = descriptors();
    {
        Net n(12);
        long kib = resident_kib();
        std::vector<std::unique_ptr<Pair>> p;
        for (int i = 0; i < pairs; i++) {
            p.push_back(std::make_unique<Pair>(n));
            ASSERT_TRUE(p.back()->up()) << i;
        }
        long used = resident_kib() - kib;
        RecordProperty("kib_per_comm", static_cast<int>(used / (2 * pairs)));
        printf("%ld KiB resident per comm\n", used / (2 * pairs));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        EXPECT_GT(54, used / (2 * pairs)) << "a comm that has moved nothing: 38 KiB";
#endif
        std::vector<std::unique_ptr<Flow>> f;
        for (auto &x : p)
            f.push_back(std::make_unique<Flow>(plain(*x, {100, 3000, 1})));
        EXPECT_TRUE(eventually([&] {
            bool all = true;
            for (auto &x : f)
                all = (x->done() || (x->step() && x->done())) && all;
            return all;
        }));
        for (auto &x : f)
            x->check();
    }
    EXPECT_EQ(before, descriptors());
    setrlimit(RLIMIT_NOFILE, &r);
}

// One message of more than 4 GiB. Both buffers map the same few megabytes many times, so the test
// costs time but no memory.
TEST(Many, AMessageOfMoreThanFourGibibytes)
{
    const size_t window = 64u << 20, windows = 65, size = window * windows - 12345;
    int fd[2];
    unsigned char *m[2];
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (!getenv("PVN_TEST_LARGE"))
        GTEST_SKIP() << "slow with sanitizers; PVN_TEST_LARGE=1 runs it";
#endif
    for (int i = 0; i < 2; i++) {
        fd[i] = memfd_create("window", MFD_CLOEXEC);
        ASSERT_EQ(0, ftruncate(fd[i], window));
        m[i] =
            static_cast<unsigned char *>(mmap(nullptr, window * windows, PROT_NONE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        ASSERT_NE(MAP_FAILED, static_cast<void *>(m[i]));
        for (size_t w = 0; w < windows; w++)
            ASSERT_EQ(m[i] + w * window, mmap(m[i] + w * window, window, PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_FIXED, fd[i], 0));
    }
    for (size_t k = 0; k < window; k += 4096)
        m[0][k] = static_cast<unsigned char>(k >> 12) | 1;
    {
        Net n(12);
        Pair p(n);
        ASSERT_TRUE(p.up());
        void *sr = nullptr, *rr = nullptr, *data = m[1], *mh = nullptr;
        size_t room = window * windows;
        int tag = 0, sd = 0, rd = 0, got = 0;
        EXPECT_TRUE(eventually([&] {
            if (!sr) {
                EXPECT_EQ(ncclSuccess,
                          pvn_netdrv_isend(p.d, p.sc, m[0], size, 0, nullptr, nullptr, &sr));
            }
            if (!rr) {
                EXPECT_EQ(ncclSuccess,
                          pvn_netdrv_irecv(p.d, p.rc, 1, &data, &room, &tag, &mh, nullptr, &rr));
            }
            if (sr && !sd) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, sr, &sd, nullptr));
            }
            if (rr && !rd) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rr, &rd, &got));
            }
            return (sd && rd) || HasFailure();
        }));
        EXPECT_EQ(INT_MAX, got) << "test reports sizes as int";
    }
    EXPECT_EQ(0, memcmp(m[0], m[1], window - 12345));
    for (int i = 0; i < 2; i++) {
        munmap(m[i], window * windows);
        close(fd[i]);
    }
}

TEST(Many, ThreadsWithCommsOfTheirOwn)
{
    Net n(12);
    std::atomic<int> good{0};
    std::vector<std::thread> t;
    for (int i = 0; i < 4; i++)
        t.emplace_back([&] {
            for (int round = 0; round < 10; round++) {
                Pair p(n), q(n);
                Flow f = plain(p, {1, 40000, 500}), g = plain(q, {2, 300000});
                if (p.up() && q.up() && f.run() && g.run())
                    good++;
                f.check();
                g.check();
            }
        });
    for (auto &x : t)
        x.join();
    EXPECT_EQ(40, good);
}

// In version 4 accept returns before the lanes are there. The threads that use the comms of one listener make the lanes, and
// each receiver's thread takes in the data connections of all.
TEST(Many, ThreadsThatBringUpCommsOfOneListener)
{
    enum { COMMS = 4, ROUNDS = 10 };
    const std::vector<unsigned char> out(5000, 7);
    Net n(4);
    auto sends = [&](void *comm) {
        void *request = nullptr;
        int done = 0;
        return eventually([&] {
            if (!request)
                pvn_netdrv_isend(n.d, comm, const_cast<unsigned char *>(out.data()), out.size(), 0,
                                 nullptr, nullptr, &request);
            if (request)
                pvn_netdrv_test(n.d, request, &done, nullptr);
            return done != 0;
        });
    };
    auto receives = [&](void *comm) {
        std::vector<unsigned char> in(out.size());
        void *request = nullptr, *data = in.data(), *mh = nullptr;
        size_t room = in.size();
        int tag = 0, done = 0, got = 0;
        eventually([&] {
            if (!request)
                pvn_netdrv_irecv(n.d, comm, 1, &data, &room, &tag, &mh, nullptr, &request);
            if (request)
                pvn_netdrv_test(n.d, request, &done, &got);
            return done != 0;
        });
        return got == static_cast<int>(out.size()) && in == out;
    };
    for (int round = 0; round < ROUNDS; round++) {
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *listener = nullptr, *send[COMMS] = {}, *recv[COMMS] = {};
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &listener));
        for (int i = 0; i < COMMS; i++)
            ASSERT_TRUE(eventually([&] {
                if (!send[i])
                    pvn_netdrv_connect(n.d, n.ctx, 0, handle, &send[i]);
                if (!recv[i])
                    pvn_netdrv_accept(n.d, listener, &recv[i]);
                return send[i] && recv[i];
            })) << Log::get().text();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, listener));
        std::atomic<int> good{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < COMMS; i++) {
            threads.emplace_back([&, i] { good += receives(recv[i]); });
            threads.emplace_back([&, i] { good += sends(send[i]); });
        }
        for (auto &t : threads)
            t.join();
        EXPECT_EQ(2 * COMMS, good) << Log::get().text();
        for (int i = 0; i < COMMS; i++) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, send[i]));
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, recv[i]));
        }
    }
}

// The sender closes its comm before the receiver's process calls accept. That is for the receives
// to report, if there are any.
TEST(Many, ALazyCommThatIsClosedBeforeAcceptIsAccepted)
{
    Net n(4);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *listener = nullptr, *send = nullptr, *recv = nullptr;
    ncclResult_t rc = ncclSuccess;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &listener));
    ASSERT_TRUE(eventually([&] {
        rc = pvn_netdrv_connect(n.d, n.ctx, 0, handle, &send);
        return rc != ncclSuccess || send;
    }));
    ASSERT_NE(nullptr, send);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, send));
    EXPECT_TRUE(eventually([&] {
        rc = pvn_netdrv_accept(n.d, listener, &recv);
        return rc != ncclSuccess || recv;
    }));
    EXPECT_EQ(ncclSuccess, rc) << Log::get().text();
    if (recv) {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, recv));
    }
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, listener));
}

} // namespace
