// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* nccldrive: drives NCCL through its public interface and checks every byte.
 *   nccldrive [-n RANKS] [-t RANKS_PER_PROCESS] [--rank R --id FILE] [--sizes A,B,..] [--iters N] [--warmup N]
 *             [--queued N] [--register 1] [--traffic-class N] [--stop-ms N] [--pause-ms N] TEST...
 * --queued N: a collective is put on its stream N times before the first one may begin, and the
 * reported time is one's share. The time of a single one includes that of NCCL's own launch.
 * nccldrive starts its ranks itself, each process with its own NCCL_HOSTID, so that NCCL takes
 * them for different hosts. With --rank it is one process of several (in network namespaces, for
 * instance). {rank} in the value of any environment variable becomes the rank's number. */
#include "nccl/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

using namespace drive;

namespace drive
{

Options opt;
thread_local Rank me;

double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

void line(const char *format, ...)
{
    char t[1024];
    va_list ap;
    va_start(ap, format);
    int n = snprintf(t, sizeof t, "[%d] ", me.rank);
    n += vsnprintf(t + n, sizeof t - n - 1, format, ap);
    va_end(ap);
    if (n > int(sizeof t) - 2)
        n = sizeof t - 2;
    t[n++] = '\n';
    if (write(1, t, n) < 0)
        _exit(9);
}

void check_nccl(ncclResult_t r, const char *what, const char *file, int at)
{
    if (r == ncclSuccess)
        return;
    line("FAIL %s:%d %s: %s (%s)", file, at, what, ncclGetErrorString(r),
         ncclGetLastError(nullptr));
    _exit(3);
}

void check_cuda(cudaError_t e, const char *what, const char *file, int at)
{
    if (e == cudaSuccess)
        return;
    line("FAIL %s:%d %s: %d", file, at, what, int(e));
    _exit(4);
}

ncclUniqueId share_id()
{
    ncclUniqueId id;
    std::string at = opt.id_file + "." + std::to_string(me.ids_shared++);
    if (me.rank == 0) {
        NC(ncclGetUniqueId(&id));
        std::string part = at + ".part";
        int fd = open(part.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        if (fd < 0 || write(fd, &id, sizeof id) != sizeof id)
            _exit(5);
        close(fd);
        rename(part.c_str(), at.c_str());
        return id;
    }
    for (double start = now(); now() - start < 60; usleep(10000)) {
        int fd = open(at.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        bool whole = read(fd, &id, sizeof id) == sizeof id;
        close(fd);
        if (whole)
            return id;
    }
    line("FAIL: rank 0 left no unique id within 60 s");
    _exit(5);
}

ncclConfig_t comm_config()
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
#if NCCL_VERSION_CODE >= 22700
    if (opt.traffic_class >= 0)
        config.trafficClass = opt.traffic_class;
#endif
    return config;
}

ncclComm_t init_comm()
{
    ncclComm_t c;
    ncclUniqueId id = share_id();
    ncclConfig_t config = comm_config();
    double start = now();
    NC(ncclCommInitRankConfig(&c, me.ranks, id, me.rank, &config));
    line("made       ranks %d time_us %10.1f", me.ranks, (now() - start) * 1e6);
    return c;
}

void finish()
{
    double start = now();
    for (int i = 0; cudaStreamQuery(me.stream) == cudaErrorNotReady; i++) {
        if (i < 200)
            sched_yield();
        else
            usleep(20);
        if (i % 64 != 63)
            continue;
        ncclResult_t async = ncclSuccess;
        NC(ncclCommGetAsyncError(me.comm, &async));
        if (async == ncclSuccess)
            continue;
        line("FAIL error after %.3f s: %s; last error: %s", now() - start,
             ncclGetErrorString(async), ncclGetLastError(me.comm));
        ncclResult_t r = ncclCommAbort(me.comm);
        line("ncclCommAbort: %s", ncclGetErrorString(r));
        _exit(7);
    }
    CU(cudaStreamSynchronize(me.stream));
}

void *buffer(size_t bytes)
{
    void *p;
    CU(cudaMalloc(&p, bytes));
    if (opt.registered)
        NC(ncclCommRegister(me.comm, p, bytes, &me.handles[p]));
    return p;
}

void release(void *p)
{
    auto it = me.handles.find(p);
    if (it != me.handles.end()) {
        NC(ncclCommDeregister(me.comm, it->second));
        me.handles.erase(it);
    }
    CU(cudaFree(p));
}

float value(int rank, size_t i, int seed)
{
    return float((rank * 31 + i % 1021 + seed * 7) % 512);
}

unsigned char byte_of(int from, int to, size_t i, int seed)
{
    return (unsigned char)(i * 131 + (i >> 9) * 7 + from * 17 + to * 29 + seed * 3);
}

/* Blocks later work on a stream until the gate opens. */
void wait_at_gate(void *gate)
{
    while (!static_cast<std::atomic<bool> *>(gate)->load())
        sched_yield();
}

void measure(const char *name, size_t bytes, double factor, const std::function<void(int)> &fill,
             const std::function<void(int)> &go, const std::function<size_t(int)> &check)
{
    double best = 1e9;
    for (int k = 0; k < me.iters + me.warmup; k++) {
        fill(k);
        std::atomic<bool> gate(false);
        if (opt.queued > 1)
            CU(cudaLaunchHostFunc(me.stream, wait_at_gate, &gate));
        double t = now();
        for (int i = 0; i < opt.queued; i++)
            go(k);
        if (opt.queued > 1)
            t = now();
        gate = true;
        finish();
        t = (now() - t) / opt.queued;
        if (k >= me.warmup && t < best)
            best = t;
        size_t wrong = check(k);
        if (wrong == kRight)
            continue;
        line("FAIL %s %zu bytes, round %d: element %zu is wrong", name, bytes, k, wrong);
        _exit(6);
    }
    if (me.rank == 0)
        line("ok %-13s ranks %d bytes %9zu time_us %10.1f algbw_GBs %.3f busbw_GBs %.3f", name,
             me.ranks, bytes, best * 1e6, bytes / best / 1e9, bytes * factor / best / 1e9);
}

} // namespace drive

namespace
{

void expand_rank_in_environment()
{
    std::map<std::string, std::string> expanded;
    for (char **e = environ; *e; e++) {
        std::string v = *e;
        size_t eq = v.find('='), at = v.find("{rank}", eq);
        if (eq == std::string::npos || at == std::string::npos)
            continue;
        for (; at != std::string::npos; at = v.find("{rank}", eq))
            v.replace(at, 6, std::to_string(opt.rank));
        expanded[v.substr(0, eq)] = v.substr(eq + 1);
    }
    for (auto &kv : expanded)
        setenv(kv.first.c_str(), kv.second.c_str(), 1);
}

int run_rank(int rank, const std::vector<std::string> &tests)
{
    me.rank = rank;
    me.ranks = opt.ranks;
    me.iters = opt.iters;
    me.warmup = opt.warmup;
    CU(cudaSetDevice(rank % opt.threads));
    CU(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
    me.comm = init_comm();
    for (const std::string &t : tests) {
        if (!run_collective(t) && !run_life(t)) {
            line("FAIL: unknown test %s", t.c_str());
            return 2;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(opt.pause_ms));
    }
    if (me.comm) {
        NC(ncclCommFinalize(me.comm));
        NC(ncclCommDestroy(me.comm));
    }
    CU(cudaStreamDestroy(me.stream));
    return 0;
}

int run_process(const std::vector<std::string> &tests)
{
    setenv("NCCL_HOSTID", ("host" + std::to_string(opt.rank / opt.threads)).c_str(), 0);
    expand_rank_in_environment();
    if (opt.threads == 1)
        return run_rank(opt.rank, tests);
    std::vector<std::thread> ranks;
    std::atomic<int> bad{0};
    for (int k = 0; k < opt.threads; k++)
        ranks.emplace_back([&, k] { bad |= run_rank(opt.rank + k, tests); });
    for (auto &r : ranks)
        r.join();
    return bad;
}

/* Waits for the ranks. The last one may be killed if a test kills it. If a test stopped it, it
 * continues after all others have ended. */
int wait_for(std::vector<pid_t> &pids, bool last_dies)
{
    int bad = 0;
    size_t left = pids.size();
    while (left) {
        int st;
        pid_t p = waitpid(-1, &st, WUNTRACED);
        if (p < 0)
            return 9;
        for (size_t k = 0; k < pids.size(); k++) {
            if (pids[k] != p || WIFSTOPPED(st))
                continue;
            left--;
            pids[k] = 0;
            bool last = k + 1 == pids.size();
            if (last_dies && last && WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL)
                continue;
            if (WIFEXITED(st) && WEXITSTATUS(st) == 0)
                continue;
            printf("FAIL rank %zu ended: %s %d\n", k, WIFEXITED(st) ? "exit" : "signal",
                   WIFEXITED(st) ? WEXITSTATUS(st) : WTERMSIG(st));
            fflush(stdout);
            bad = 1;
        }
        if (left == 1 && pids.back())
            kill(pids.back(), SIGCONT);
    }
    return bad;
}

int run_children(const std::vector<std::string> &tests)
{
    const char *where = getenv("TMPDIR");
    std::string dir = std::string(where ? where : "/dev/shm") + "/nccldrive.XXXXXX";
    if (!mkdtemp(&dir[0]))
        return 2;
    opt.id_file = dir + "/id";
    std::vector<pid_t> pids;
    for (int r = 0; r < opt.ranks; r += opt.threads) {
        pid_t p = fork();
        if (p == 0) {
            opt.rank = r;
            exit(run_process(tests));
        }
        pids.push_back(p);
    }
    bool last_dies = false;
    for (const std::string &t : tests)
        last_dies |= t.rfind("killed", 0) == 0;
    int bad = wait_for(pids, last_dies);
    std::string clean = std::string("rm -rf ") + dir;
    return system(clean.c_str()) ? 2 : bad;
}

void set_sizes(const char *list)
{
    std::string text = list;
    for (char *p = strtok(&text[0], ","); p; p = strtok(nullptr, ",")) {
        char *end;
        size_t n = strtoull(p, &end, 0);
        opt.sizes.push_back(*end == 'K' ? n << 10 : *end == 'M' ? n << 20 : n);
    }
}

bool set_option(const std::string &name, const char *v)
{
    static const std::map<std::string, int *> numbers = {
        {"-n", &opt.ranks},
        {"-t", &opt.threads},
        {"--rank", &opt.rank},
        {"--iters", &opt.iters},
        {"--warmup", &opt.warmup},
        {"--traffic-class", &opt.traffic_class},
        {"--stop-ms", &opt.stop_ms},
        {"--queued", &opt.queued},
        {"--pause-ms", &opt.pause_ms},
    };
    auto it = numbers.find(name);
    if (it != numbers.end())
        *it->second = atoi(v);
    else if (name == "--register")
        opt.registered = atoi(v) != 0;
    else if (name == "--id")
        opt.id_file = v;
    else if (name == "--sizes")
        set_sizes(v);
    else
        return false;
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    setlinebuf(stdout); /* NCCL's log goes there, and a failure ends the process by _exit */
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2)
        if (!set_option(argv[i], argv[i + 1])) {
            fprintf(stderr, "nccldrive: unknown option %s\n", argv[i]);
            return 2;
        }
    std::vector<std::string> tests(argv + i, argv + argc);
    if (opt.sizes.empty())
        for (size_t s = 4; s <= size_t(64) << 20; s *= 4)
            opt.sizes.push_back(s);
    return opt.rank >= 0 ? run_process(tests) : run_children(tests);
}
