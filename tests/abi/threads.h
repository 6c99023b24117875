// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Several threads that move messages, each on comms of its own, while other threads register memory
// with these comms, as NCCL's proxy threads and user threads do.
#ifndef PVN_TESTS_ABI_THREADS_H
#define PVN_TESTS_ABI_THREADS_H

#include "abi/nccl_side.h"

#include <atomic>
#include <functional>
#include <thread>

namespace nccl
{

constexpr size_t SIZE = 64 << 10, DEPTH = 4;
constexpr int MESSAGES = 300, THREADS = 2;

struct Message {
    std::vector<unsigned char> src, dst;
    void *smh = nullptr, *rmh = nullptr, *s = nullptr, *r = nullptr;
    bool sent = false, received = false;

    explicit Message(Pair &p) : src(SIZE), dst(SIZE)
    {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), SIZE, NCCL_PTR_HOST, &smh));
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), SIZE, NCCL_PTR_HOST, &rmh));
    }
    // Makes one call at each end that has one to make. An error ends the test.
    bool step(Pair &p)
    {
        void *data = dst.data();
        size_t size = SIZE;
        int tag = 0, done = 0, got = 0;
        ncclResult_t rc = ncclSuccess;
        if (!r && !received)
            rc = pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &rmh, nullptr, &r);
        if (rc == ncclSuccess && !s && !sent)
            rc = pvn_netdrv_isend(p.d, p.sc, src.data(), SIZE, 0, smh, nullptr, &s);
        if (rc == ncclSuccess && s && !sent) {
            rc = pvn_netdrv_test(p.d, s, &done, nullptr);
            sent = done;
        }
        if (rc == ncclSuccess && r && !received) {
            rc = pvn_netdrv_test(p.d, r, &done, &got);
            received = done;
        }
        return rc == ncclSuccess;
    }
};

// Moves messages of one pair from one thread: each round has bytes of its own, until `enough` is
// true.
inline void transfer(Pair &p, const std::function<bool(int round)> &enough)
{
    std::vector<Message> m;
    for (size_t i = 0; i < DEPTH; i++)
        m.emplace_back(p);
    for (int round = 0; !enough(round); round++) {
        for (size_t i = 0; i < DEPTH; i++) {
            memset(m[i].src.data(), static_cast<int>(round * DEPTH + i) & 0xff, SIZE);
            m[i].s = m[i].r = nullptr;
            m[i].sent = m[i].received = false;
        }
        bool ok = true, all = false;
        eventually([&] {
            all = true;
            for (auto &x : m) {
                ok = ok && x.step(p);
                all = all && x.sent && x.received;
                if (!x.s || !x.r)
                    break; // requests complete in order
            }
            return !ok || all;
        });
        ASSERT_TRUE(ok && all) << Log::get().text();
        for (auto &x : m)
            ASSERT_EQ(x.src, x.dst) << "round " << round;
    }
}

// A thread that registers memory with the comms and deregisters it again, as users of NCCL do.
class Registrar
{
  public:
    explicit Registrar(std::vector<std::unique_ptr<Pair>> &of) : pairs(of), t([this] { run(); })
    {
    }
    ~Registrar()
    {
        stop = true;
        t.join();
        EXPECT_GT(registered, 0);
    }

  private:
    void run()
    {
        std::vector<unsigned char> memory(4096);
        for (int i = 0; !stop; i++) {
            Pair &p = *pairs[i % THREADS];
            void *mh = nullptr, *comm = i & 4 ? p.sc : p.rc;
            if (pvn_netdrv_reg_mr(p.d, comm, memory.data(), 4096, NCCL_PTR_HOST, &mh) ==
                ncclSuccess) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, comm, mh));
                registered++;
            }
        }
    }
    std::vector<std::unique_ptr<Pair>> &pairs;
    std::atomic<bool> stop{false};
    std::atomic<int> registered{0};
    std::thread t;
};

} // namespace nccl

#endif
