// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin on a system that has no descriptors or no memory left.
#include "abi/nccl_side.h"
#include "fail/raw_peer.h"

#include <cerrno>
#include <dlfcn.h>
#include <fcntl.h>
#include <set>
#include <sys/resource.h>
#include <unistd.h>

using namespace nccl;

namespace
{

// While it exists, the process can open no new descriptor.
class NoFiles
{
  public:
    explicit NoFiles(int spare = 0)
    {
        getrlimit(RLIMIT_NOFILE, &old_);
        int next = open("/dev/null", O_RDONLY | O_CLOEXEC); // the lowest free one
        close(next);
        rlimit r = {static_cast<rlim_t>(next + spare), old_.rlim_max};
        setrlimit(RLIMIT_NOFILE, &r);
    }
    ~NoFiles()
    {
        setrlimit(RLIMIT_NOFILE, &old_);
    }

  private:
    rlimit old_;
};

int times(const std::string &text, const char *what)
{
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
        n++;
    return n;
}

struct Ends {
    Net &n;
    void *lc = nullptr, *sc = nullptr, *rc = nullptr;
    ncclResult_t rs = ncclSuccess, rr = ncclSuccess;
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    explicit Ends(Net &net) : n(net)
    {
    }
    void listen()
    {
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    }
    void step()
    {
        if (!sc && rs == ncclSuccess)
            rs = pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc);
        if (!rc && rr == ncclSuccess)
            rr = pvn_netdrv_accept(n.d, lc, &rc);
    }
    bool up()
    {
        return eventually([&] {
                   step();
                   return (sc || rs != ncclSuccess) && (rc || rr != ncclSuccess);
               }) &&
               sc && rc;
    }
    ~Ends()
    {
        pvn_netdrv_close_send(n.d, sc);
        pvn_netdrv_close_recv(n.d, rc);
        pvn_netdrv_close_listen(n.d, lc);
    }
};

TEST(Descriptors, NoneForAccept)
{
    Net n(12);
    Ends e(n);
    e.listen();
    e.rs = pvn_netdrv_connect(n.d, n.ctx, 0, e.handle, &e.sc);
    Log::get().clear();
    {
        NoFiles limit;
        for (int i = 0; i < 50; i++)
            e.step();
        EXPECT_EQ(nullptr, e.rc);
        EXPECT_EQ(ncclSuccess, e.rr) << "it keeps trying";
        EXPECT_EQ(1, times(Log::get().warnings(), "Too many open files"))
            << "the fault fired, said once";
        EXPECT_TRUE(said("ulimit")) << "what to do: " << Log::get().text();
    }
    EXPECT_TRUE(e.up()) << Log::get().text();
}

TEST(Descriptors, NoneForAcceptUntilTheDeadline)
{
    setenv("NCCL_PVRDMA_ACCEPT_TIMEOUT", "150ms", 1);
    {
        Net n(12);
        Ends e(n);
        e.listen();
        raw::Sock peer = raw::dial([&] {
            pvn_handle h;
            pvn_handle_decode(reinterpret_cast<uint8_t *>(e.handle), PVN_HANDLE_BYTES, &h, nullptr);
            return h.addr.port;
        }());
        NoFiles limit;
        Log::get().clear();
        EXPECT_TRUE(eventually([&] {
            e.rr = pvn_netdrv_accept(n.d, e.lc, &e.rc);
            return e.rr != ncclSuccess;
        }));
        EXPECT_TRUE(said("could not be accepted: Too many open files")) << Log::get().text();
    }
    unsetenv("NCCL_PVRDMA_ACCEPT_TIMEOUT");
}

TEST(Descriptors, NoneForConnect)
{
    setenv("NCCL_PVRDMA_CONNECT_TIMEOUT", "300ms", 1);
    {
        Net n(12);
        Ends e(n);
        e.listen();
        Log::get().clear();
        {
            NoFiles limit;
            for (int i = 0; i < 50; i++)
                e.step();
            EXPECT_EQ(ncclSuccess, e.rs);
            EXPECT_EQ(nullptr, e.sc);
            EXPECT_TRUE(said("Too many open files")) << "the fault fired";
        }
        EXPECT_TRUE(e.up()) << Log::get().text();

        Ends f(n);
        f.listen();
        NoFiles limit;
        Log::get().clear();
        EXPECT_TRUE(eventually([&] {
            f.step();
            return f.rs != ncclSuccess;
        }));
        EXPECT_TRUE(said("NCCL_PVRDMA_CONNECT_TIMEOUT")) << Log::get().text();
        EXPECT_EQ(1, times(Log::get().warnings(), "a socket for 127.0.0.1")) << Log::get().text();
        EXPECT_EQ(1, times(Log::get().warnings(), "Too many open files (errno 24)"))
            << "the system's error, not that of the time limit: " << Log::get().text();
        EXPECT_EQ(0, times(Log::get().warnings(), "firewall"));
    }
    unsetenv("NCCL_PVRDMA_CONNECT_TIMEOUT");
}

TEST(Descriptors, ListenWithoutDescriptorsFails)
{
    Net n(12);
    Ends e(n);
    Log::get().clear();
    for (int spare = 0; spare < 2; spare++) { // the epoll descriptor, the socket
        NoFiles limit(spare);
        EXPECT_EQ(ncclSystemError, pvn_netdrv_listen(n.d, n.ctx, 0, e.handle, &e.lc));
        EXPECT_EQ(nullptr, e.lc);
    }
    EXPECT_EQ(2, times(Log::get().warnings(), "Too many open files")) << Log::get().text();
    e.listen();
    EXPECT_TRUE(e.up());
}

// Descriptors run out at each step of a set-up. Both ends come up or get a reason, and leave
// nothing behind.
TEST(Descriptors, RunningOutAtEveryStep)
{
    setenv("NCCL_PVRDMA_CONNECT_TIMEOUT", "200ms", 1);
    setenv("NCCL_PVRDMA_ACCEPT_TIMEOUT", "400ms", 1);
    setenv("NCCL_PVRDMA_VERIFY_TIMEOUT", "200ms", 1);
    setenv("NCCL_PVRDMA_READY_TIMEOUT", "400ms", 1);
    {
        Net n(12);
        int came_up = 0, failed = 0;
        // On a busy machine the short timeouts may expire even where there are enough descriptors.
        for (int spare = 0; spare < 8 || (came_up == 0 && spare < 40); spare++) {
            int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
            close(lowest);
            {
                Ends e(n);
                e.listen();
                NoFiles limit(spare);
                bool up = e.up();
                came_up += up;
                failed += !up;
                EXPECT_TRUE(up || e.rs != ncclSuccess || e.rr != ncclSuccess) << "spare " << spare;
            }
            int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
            close(after);
            EXPECT_EQ(lowest, after) << "a descriptor was left behind, spare " << spare;
        }
        EXPECT_GT(failed, 2) << "the fault fired";
        EXPECT_GT(came_up, 0) << "and at last there were enough";
    }
    for (const char *v : {"CONNECT", "ACCEPT", "VERIFY", "READY"})
        unsetenv((std::string("NCCL_PVRDMA_") + v + "_TIMEOUT").c_str());
}

} // namespace

// ---- memory ----

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

TEST(Memory, RunsOutAtEveryAllocation)
{
    GTEST_SKIP() << "the sanitizer owns the allocator";
}

#else

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_memalign(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
}

namespace
{
// Counts allocations while armed and lets the chosen one fail. Also counts allocations that are not
// freed.
thread_local bool armed;
long countdown, failed_allocations, live;

bool fails()
{
    if (!armed || --countdown != 0)
        return false;
    failed_allocations++;
    errno = ENOMEM;
    return true;
}

void *counted(void *p)
{
    if (armed && p)
        live++;
    return p;
}
} // namespace

extern "C" {
void *malloc(size_t n)
{
    return fails() ? nullptr : counted(__libc_malloc(n));
}
void *calloc(size_t n, size_t m)
{
    return fails() ? nullptr : counted(__libc_calloc(n, m));
}
void *aligned_alloc(size_t alignment, size_t n) noexcept
{
    return fails() ? nullptr : counted(__libc_memalign(alignment, n));
}
void *realloc(void *p, size_t n)
{
    if (fails())
        return nullptr;
    void *q = __libc_realloc(p, n);
    return p ? q : counted(q);
}
void free(void *p)
{
    if (armed && p)
        live--;
    __libc_free(p);
}
}

namespace
{

void silent(ncclDebugLogLevel, unsigned long, const char *, int, const char *, ...)
{
}

// Does everything that a communicator does, in one thread and without a gtest macro. True if all of
// it worked.
bool whole_life(pvn_netdrv *d)
{
    ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *ctx = nullptr, *lc = nullptr, *sc = nullptr, *rc = nullptr, *mh = nullptr;
    static char a[3000], b[3000];
    bool ok = false;

    if (pvn_netdrv_init(d, &ctx, 1, &config, silent, nullptr) != ncclSuccess)
        return false;
    if (pvn_netdrv_listen(d, ctx, 0, handle, &lc) != ncclSuccess)
        goto out;
    for (Deadline wait; wait.left() && !(sc && rc);) {
        if (!sc && pvn_netdrv_connect(d, ctx, 0, handle, &sc) != ncclSuccess)
            goto out;
        if (!rc && pvn_netdrv_accept(d, lc, &rc) != ncclSuccess)
            goto out;
    }
    if (!sc || !rc || pvn_netdrv_reg_mr(d, sc, a, sizeof(a), NCCL_PTR_HOST, &mh) != ncclSuccess)
        goto out;
    for (int m = 0; m < 3; m++) {
        void *sr = nullptr, *rr = nullptr, *data = b, *none = nullptr;
        size_t size = sizeof(b);
        int tag = 0, sd = 0, rd = 0;
        for (Deadline wait; wait.left() && !(sd && rd);) {
            if (!sr && pvn_netdrv_isend(d, sc, a, sizeof(a), 0, mh, nullptr, &sr) != ncclSuccess)
                goto out;
            if (!rr &&
                pvn_netdrv_irecv(d, rc, 1, &data, &size, &tag, &none, nullptr, &rr) != ncclSuccess)
                goto out;
            if (sr && !sd && pvn_netdrv_test(d, sr, &sd, nullptr) != ncclSuccess)
                goto out;
            if (rr && !rd && pvn_netdrv_test(d, rr, &rd, nullptr) != ncclSuccess)
                goto out;
        }
        if (!sd || !rd)
            goto out;
    }
    ok = true;
out:
    pvn_netdrv_close_send(d, sc);
    pvn_netdrv_close_recv(d, rc);
    pvn_netdrv_close_listen(d, lc);
    pvn_netdrv_finalize(d, ctx);
    return ok;
}

// The C library keeps a thread's last loading error until it has been read twice. A round that
// fails inside dlopen() would return an earlier error, or leave its own for the next round.
void forget_loading_error()
{
    dlerror();
    dlerror();
}

TEST(Memory, RunsOutAtEveryAllocation)
{
    setenv("NCCL_PVRDMA_CONNECT_TIMEOUT", "100ms", 1);
    setenv("NCCL_PVRDMA_ACCEPT_TIMEOUT", "200ms", 1);
    // libnl 3.7 itself crashes in rtnl_route_lookup without memory.
    setenv("NCCL_PVRDMA_NL_LIB", "/nonexistent/libnl-route.so", 1);
    pvn_netdrv *d;
    char msg[256];
    ASSERT_EQ(0, pvn_netdrv_open(plugin_path(), 12, &d, msg, sizeof(msg))) << msg;
    countdown = 0;
    ASSERT_TRUE(whole_life(d)) << "libraries take what they keep";
    long tried = 0;
    bool ok = false;
    // Ends with the first round in which nothing failed: by then each allocation has failed once.
    for (long n = 1; n < 20000; n++) {
        failed_allocations = live = 0;
        countdown = n;
        forget_loading_error();
        armed = true;
        ok = whole_life(d);
        forget_loading_error();
        armed = false;
        EXPECT_EQ(0, live) << "allocation " << n << " failed, others were not given back";
        if (failed_allocations == 0)
            break;
        tried++;
    }
    EXPECT_TRUE(ok);
    EXPECT_GT(tried, 20) << "the fault fired";
    RecordProperty("allocations", static_cast<int>(tried));
    pvn_netdrv_close(d);
    unsetenv("NCCL_PVRDMA_NL_LIB");
    unsetenv("NCCL_PVRDMA_CONNECT_TIMEOUT");
    unsetenv("NCCL_PVRDMA_ACCEPT_TIMEOUT");
}

} // namespace

#endif
