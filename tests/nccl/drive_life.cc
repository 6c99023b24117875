// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* nccldrive: lifetimes of communicators: split, several at once, recreated, aborted, and with
 * peers that die or stop */
#include "nccl/drive.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <thread>

using namespace drive;

namespace drive
{

Holdings holdings()
{
    Holdings h = {};
    for (int i = 0; i < 65536; i++)
        h.fds += fcntl(i, F_GETFD) != -1;
    char text[512];
    if (FILE *f = fopen("/proc/self/status", "r")) {
        while (fgets(text, sizeof text, f)) {
            sscanf(text, "Threads: %ld", &h.threads);
            sscanf(text, "VmRSS: %ld", &h.rss_kb);
        }
        fclose(f);
    }
    const char *dir = getenv("NCCL_PVRDMA_STATS_DIR");
    if (!dir || !*dir)
        return h;
    if (FILE *f = fopen("/proc/self/maps", "r")) {
        while (fgets(text, sizeof text, f))
            h.stats_maps += strstr(text, dir) != nullptr;
        fclose(f);
    }
    if (DIR *d = opendir(dir)) {
        std::string mine = std::to_string(getpid());
        while (dirent *e = readdir(d))
            h.stats_files += strstr(e->d_name, mine.c_str()) != nullptr;
        closedir(d);
    }
    return h;
}

} // namespace drive

namespace
{

/* Aborts this rank's communicator and prints how long that took. */
void abort_comm(const char *after)
{
    double t = now();
    ncclResult_t r = ncclCommAbort(me.comm);
    Holdings h = holdings();
    line("%s %s: ncclCommAbort: %s after %.3f s; fds %ld threads %ld rss_kb %ld",
         r == ncclSuccess ? "ok" : "FAIL", after, ncclGetErrorString(r), now() - t, h.fds,
         h.threads, h.rss_kb);
    me.comm = nullptr;
    if (r != ncclSuccess)
        _exit(3);
}

void one_round()
{
    int iters = me.iters;
    me.iters = 1;
    test_allreduce(false);
    test_sendrecv();
    me.iters = iters;
}

/* Halves by parity all-reduce separately, and then all ranks together again. */
void test_split()
{
    Rank whole = me;
    NC(ncclCommSplit(whole.comm, whole.rank % 2, whole.rank, &me.comm, nullptr));
    NC(ncclCommCount(me.comm, &me.ranks));
    NC(ncclCommUserRank(me.comm, &me.rank));
    test_allreduce(false);
    if (me.ranks > 1)
        test_sendrecv();
    NC(ncclCommDestroy(me.comm));
    me.comm = whole.comm;
    me.rank = whole.rank;
    me.ranks = whole.ranks;
    test_allreduce(false);
}

/* Four communicators at the same time, each on a stream of its own. */
void test_comms()
{
    struct One {
        ncclComm_t comm;
        cudaStream_t stream;
        float *in, *out;
    } all[4];
    for (One &c : all) {
        c.comm = init_comm();
        CU(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
    }
    for (size_t bytes : opt.sizes) {
        size_t n = bytes / sizeof(float) ? bytes / sizeof(float) : 1;
        for (One &c : all) {
            CU(cudaMalloc(reinterpret_cast<void **>(&c.in), n * sizeof(float)));
            CU(cudaMalloc(reinterpret_cast<void **>(&c.out), n * sizeof(float)));
        }
        measure(
            "comms4", n * sizeof(float), 2.0 * (me.ranks - 1) / me.ranks,
            [&](int k) {
                for (int c = 0; c < 4; c++)
                    for (size_t i = 0; i < n; i++)
                        all[c].in[i] = value(me.rank, i, k + c);
            },
            [&](int) {
                for (One &c : all)
                    NC(ncclAllReduce(c.in, c.out, n, ncclFloat, ncclSum, c.comm, c.stream));
                for (One &c : all)
                    CU(cudaStreamSynchronize(c.stream));
            },
            [&](int k) {
                for (int c = 0; c < 4; c++)
                    for (size_t i = 0; i < n; i++) {
                        float sum = 0;
                        for (int r = 0; r < me.ranks; r++)
                            sum += value(r, i, k + c);
                        if (all[c].out[i] != sum)
                            return i;
                    }
                return kRight;
            });
        for (One &c : all) {
            CU(cudaFree(c.in));
            CU(cudaFree(c.out));
        }
    }
    for (One &c : all) {
        NC(ncclCommFinalize(c.comm));
        NC(ncclCommDestroy(c.comm));
        CU(cudaStreamDestroy(c.stream));
    }
}

bool more_than(const Holdings &h, const Holdings &first)
{
    return h.fds > first.fds || h.threads > first.threads || h.stats_maps > first.stats_maps ||
           h.stats_files > first.stats_files;
}

/* Returns the resources after ending threads have ended, which may take a moment. */
Holdings settled(const Holdings &first)
{
    Holdings h = holdings();
    for (double start = now(); more_than(h, first) && now() - start < 5; usleep(10000))
        h = holdings();
    return h;
}

/* Communicators are destroyed and recreated. The process holds after the last destruction what it
 * held after the first. */
void test_reinit()
{
    Holdings first = {1L << 30, 1L << 30, 1L << 30, 1L << 30, 0};
    one_round(); /* objects of the first use stay */
    for (int i = 0; i < me.iters; i++) {
        NC(ncclCommFinalize(me.comm));
        NC(ncclCommDestroy(me.comm));
        Holdings h = settled(first);
        line("reinit %d: after destroy fds %ld threads %ld stats maps %ld files %ld rss_kb %ld", i,
             h.fds, h.threads, h.stats_maps, h.stats_files, h.rss_kb);
        if (i == 0)
            first = h;
        bool more = more_than(h, first);
        if (i == me.iters - 1) {
            line("%s reinit: %d times", more ? "FAIL more is held than at first:" : "ok", me.iters);
            if (more)
                _exit(6);
        }
        me.comm = init_comm();
        one_round();
    }
}

/* The others begin an all-reduce that rank 0 never joins. All ranks abort, and a new communicator
 * works. */
void test_abort()
{
    size_t n = size_t(4) << 20;
    auto *in = static_cast<float *>(buffer(n * sizeof(float)));
    auto *out = static_cast<float *>(buffer(n * sizeof(float)));
    memset(in, 0, n * sizeof(float));
    for (int i = 0; i < me.iters; i++) {
        NC(ncclAllReduce(in, out, n, ncclFloat, ncclSum, me.comm, me.stream));
        CU(cudaStreamSynchronize(me.stream));
        if (me.rank)
            NC(ncclAllReduce(in, out, n, ncclFloat, ncclSum, me.comm, me.stream));
        usleep(200000 + 3000 * me.rank);
        abort_comm("abort");
        CU(cudaStreamSynchronize(me.stream));
        me.comm = init_comm();
        one_round();
    }
    CU(cudaFree(in));
    CU(cudaFree(out));
}

/* Waits until NCCL reports an error, or SECONDS have passed. True if there was an error. */
bool error_within(double seconds)
{
    double start = now();
    ncclResult_t async = ncclSuccess;
    for (; now() - start < seconds; usleep(1000)) {
        NC(ncclCommGetAsyncError(me.comm, &async));
        if (async == ncclSuccess || async == ncclInProgress)
            continue;
        line("error after %.3f s: %s; last error: %s", now() - start, ncclGetErrorString(async),
             ncclGetLastError(me.comm));
        return true;
    }
    return false;
}

/* Waits for the stream. False if NCCL reports an error first: on a busy machine the peer that
 * dies in the next operation may do so while others are still in this one. */
bool ends_well()
{
    while (cudaStreamQuery(me.stream) == cudaErrorNotReady)
        if (error_within(0.001))
            return false;
    return true;
}

/* The last rank is killed, or stops, in the middle of an all-reduce (IDLE: before it). All others
 * return by ncclCommAbort, and so does a stopped rank that continues. */
void test_dead(bool stop, bool idle)
{
    size_t n = size_t(16) << 20;
    auto *in = static_cast<float *>(buffer(n * sizeof(float)));
    auto *out = static_cast<float *>(buffer(n * sizeof(float)));
    memset(in, 0, n * sizeof(float));
    NC(ncclAllReduce(in, out, n, ncclFloat, ncclSum, me.comm, me.stream));
    bool error = !ends_well();
    bool victim = me.rank == me.ranks - 1;
    if (!victim && idle)
        usleep(300000);
    if (!error && (!victim || !idle))
        NC(ncclAllReduce(in, out, n, ncclFloat, ncclSum, me.comm, me.stream));
    if (victim) {
        usleep(8000);
        line("%s now", stop ? "stops" : "dies");
        kill(getpid(), stop ? SIGSTOP : SIGKILL);
        error_within(10);
    } else {
        error = error || error_within(stop ? 4 : 90);
        if (!stop && !error) {
            line("FAIL no error within 90 s of a peer's death");
            _exit(6);
        }
    }
    abort_comm(stop ? "stopped" : "killed");
    CU(cudaStreamSynchronize(me.stream));
}

/* The last rank stops while communicators are being created. The others abort theirs. */
void test_stopped_init()
{
    NC(ncclCommDestroy(me.comm));
    ncclConfig_t config = comm_config();
    config.blocking = 0;
    ncclUniqueId id = share_id();
    if (me.rank == me.ranks - 1)
        std::thread([] {
            usleep(opt.stop_ms * 1000);
            kill(getpid(), SIGSTOP);
        }).detach();
    ncclResult_t r = ncclCommInitRankConfig(&me.comm, me.ranks, id, me.rank, &config);
    if (r != ncclSuccess && r != ncclInProgress)
        NC(r);
    double start = now();
    ncclResult_t state = ncclInProgress;
    for (; now() - start < 3 && state == ncclInProgress; usleep(1000))
        NC(ncclCommGetAsyncError(me.comm, &state));
    line("after %.3f s of initialisation: %s", now() - start, ncclGetErrorString(state));
    abort_comm("stopped_init");
}

} // namespace

namespace drive
{

bool run_life(const std::string &name)
{
    static const std::map<std::string, std::function<void()>> tests = {
        {"init", [] {}},
        {"split", test_split},
        {"comms", test_comms},
        {"reinit", test_reinit},
        {"abort", test_abort},
        {"killed", [] { test_dead(false, false); }},
        {"killed_idle", [] { test_dead(false, true); }},
        {"stopped", [] { test_dead(true, false); }},
        {"stopped_init", test_stopped_init},
    };
    auto it = tests.find(name);
    if (it == tests.end())
        return false;
    it->second();
    return true;
}

} // namespace drive
