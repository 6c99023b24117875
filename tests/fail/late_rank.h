/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A rank in a case of test_late_rank.cc: a process that sends or receives, checks each byte, and
// stops itself.
#ifndef TESTS_FAIL_LATE_RANK_H
#define TESTS_FAIL_LATE_RANK_H

#include "abi/nccl_side.h"
#include "softverbs/softverbs.h"
#include "support/netns.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>

#include <atomic>
#include <thread>

namespace nccl
{

// How long an RDMA rank is away: longer than the device's timeouts, as the plugin computes them,
// and its margin.
constexpr int DEVICE_AWAY_MS = 9000;
// The plugin logs this at the end that waits while the other one is away. A case that expects it
// goes on only after that.
constexpr const char *STALLED = "nothing has moved for";
#define SOFTVERBS PVN_BUILDDIR "/tests/softverbs/.libs/libsoftverbs.so"
using Seen = std::atomic<bool>; // shared by the processes of a case

inline void wait_until(const Seen *seen)
{
    for (int ms = 0; seen && !*seen && ms < 30000; ms += 10)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// One end of the comm. If something fails, its process ends.
struct Rank {
    bool receives, rdma = false;
    int in, out;                   // pipes to the other end, for the handle and to keep in step
    Seen *stalled = nullptr;       // nullptr: not expected
    const char *away_at = nullptr; // away once, when the plugin has said this
    Net net{8};
    void *comm = nullptr, *listens = nullptr;
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    unsigned seq = 0;

    Rank(bool r, int i, int o) : receives(r), in(i), out(o)
    {
        check(net.d && net.rc == ncclSuccess, "init");
    }
    static void too_late(int)
    {
        end(false, "not done in time");
    }
    [[noreturn]] static void end(bool good, const char *what)
    {
        printf("%s %s\n%s", good ? "good:" : "FAILED:", what, Log::get().text().c_str());
        fflush(stdout);
        _exit(!good);
    }
    static bool ends; // with an error
    static void check(bool good, const char *what)
    {
        if (!good)
            end(ends, what);
    }
    // Takes the path down for good, and waits until the other end has noticed.
    void die()
    {
        ends = true;
        check(pvn_test::sh("ip link set v0 down"), "ip link");
        hear();
    }
    // The rank makes no call for a while: over TCP its process is stopped, over RDMA its thread
    // sleeps.
    void away() const
    {
        if (!rdma) {
            raise(SIGSTOP);
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(DEVICE_AWAY_MS));
        wait_until(stalled);
    }
    void tell(char c = 'x') const
    {
        check(write(out, &c, 1) == 1, "the other end has gone");
    }
    char hear() const
    {
        char c;
        check(read(in, &c, 1) == 1, "the other end has gone");
        return c;
    }
    // Takes the link in use, or this adapter's port, down for a while. A link comes back even while
    // this process is stopped.
    void lose_link(const std::string &seconds) const
    {
        if (!rdma) {
            check(
                pvn_test::sh("ip link set v0 down && (sleep " + seconds + "; ip link set v0 up) &"),
                "ip link");
            return;
        }
        set_port("down");
        std::thread([seconds] {
            std::this_thread::sleep_for(std::chrono::duration<double>(std::stod(seconds)));
            set_port("up");
        }).detach();
    }
    static void set_port(const std::string &to)
    {
        void *lib = dlopen(SOFTVERBS, RTLD_NOW | RTLD_NOLOAD);
        auto *give =
            lib ? reinterpret_cast<decltype(&sv_command)>(dlsym(lib, "sv_command")) : nullptr;
        check(give && give(("port * 1 " + to).c_str(), nullptr, 0) == 0, "softverbs' port");
    }
    // Calls accept or connect once. True: there is a connection.
    bool call()
    {
        const ncclResult_t rc = receives ? pvn_netdrv_accept(net.d, listens, &comm)
                                         : pvn_netdrv_connect(net.d, net.ctx, 0, handle, &comm);
        check(rc == ncclSuccess, "connect or accept");
        return comm != nullptr;
    }
    void begin()
    {
        if (receives) {
            check(pvn_netdrv_listen(net.d, net.ctx, 0, handle, &listens) == ncclSuccess, "listen");
            check(write(out, handle, sizeof(handle)) == ssize_t(sizeof(handle)), "handle");
        } else {
            check(read(in, handle, sizeof(handle)) == ssize_t(sizeof(handle)), "handle");
        }
    }
    // Sets the comm up, and is away after each of the calls with these numbers, counted from 0.
    void up(const std::set<int> &away_behind = {})
    {
        bool done = false, was_away = false;
        begin();
        for (int i = 0; !done; i++) {
            done = call();
            if (!done && away_behind.count(i)) {
                away();
                was_away = true;
            }
            // A hundred processes wait at once.
            if (!done && i >= 1000)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        check(was_away || away_behind.empty(), "it was up before it could be away");
    }
    // Moves n messages of this size, up to 8 at once, and verifies each receive. Calls `posted`
    // when the first ones are posted.
    void transfer(int n, size_t size, const std::function<void()> &posted = nullptr)
    {
        constexpr int DEPTH = 8;
        std::vector<std::vector<uint8_t>> buf(DEPTH, std::vector<uint8_t>(size));
        std::vector<void *> mr(DEPTH, nullptr), req(DEPTH, nullptr);
        int begun = 0, ended = 0, waits = 0;
        bool called = false;
        for (int i = 0; i < DEPTH; i++)
            check(pvn_netdrv_reg_mr(net.d, comm, buf[i].data(), size, NCCL_PTR_HOST, &mr[i]) ==
                      ncclSuccess,
                  "regMr");
        while (ended < n) {
            while (begun < n && begun - ended < DEPTH &&
                   post(buf[begun % DEPTH], mr[begun % DEPTH], begun, &req[begun % DEPTH]))
                begun++;
            if (posted && !called && begun == std::min(n, DEPTH)) {
                called = true;
                posted();
            }
            const int k = ended % DEPTH;
            int done = 0, got = -1;
            if (ended < begun)
                check(pvn_netdrv_test(net.d, req[k], &done, &got) == ncclSuccess, "test");
            if (!done) {
                if (stalled && !*stalled && said(STALLED))
                    *stalled = true;
                if (away_at && said(away_at)) {
                    away_at = nullptr;
                    away();
                }
                // A hundred processes wait at once: those for which nothing has come for long look less often.
                waits++;
                std::this_thread::sleep_for(std::chrono::microseconds(waits < 1000 ? 50 : 1000));
                continue;
            }
            waits = 0;
            check(got == int(size), "a message of another size");
            check(!receives || bytes::are(buf[k].data(), size, seq + unsigned(ended)),
                  "wrong bytes");
            ended++;
        }
        seq += unsigned(n);
        for (int i = 0; i < DEPTH; i++)
            check(pvn_netdrv_dereg_mr(net.d, comm, mr[i]) == ncclSuccess, "deregMr");
    }
    bool post(std::vector<uint8_t> &b, void *mr, int i, void **req)
    {
        void *data = b.data();
        size_t size = b.size();
        int tag = 0;
        *req = nullptr;
        if (!receives)
            bytes::fill(data, size, seq + unsigned(i));
        const ncclResult_t rc =
            receives ? pvn_netdrv_irecv(net.d, comm, 1, &data, &size, &tag, &mr, nullptr, req)
                     : pvn_netdrv_isend(net.d, comm, data, size, tag, mr, nullptr, req);
        check(rc == ncclSuccess, "isend or irecv");
        return *req != nullptr;
    }
    void close()
    {
        const ncclResult_t rc =
            receives ? pvn_netdrv_close_recv(net.d, comm) : pvn_netdrv_close_send(net.d, comm);
        check(rc == ncclSuccess, "close");
        if (listens)
            check(pvn_netdrv_close_listen(net.d, listens) == ncclSuccess, "closeListen");
    }
};

inline bool Rank::ends;

} // namespace nccl

#endif
