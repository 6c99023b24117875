// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Injects errors into each call of the C library that the plugin makes during a comm's life. Each
// call fails once with each error that it can have on a machine short of some resource, or on a
// network that loses connections.
#include "abi/life.h"
#include "support/next_symbol.h"

#include <cerrno>
#include <cstdarg>
#include <map>
#include <initializer_list>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

using namespace nccl;

namespace
{

enum { SHORT = -1 }; // no error: the call moves one byte

// Counts the calls of the thread that drives a comm; call number `nth` fails.
thread_local bool armed;
struct {
    long nth, seen;
    size_t which; // index into the errors that this call can have
    bool last;    // true: the call has no further error
    std::string call;
    int error;
} fault;

// From this connection on, counted from 0, connections of the same thread have no route. -1: all
// have one. With `silent` the first of them has none, and nothing answers the later ones.
int no_route_from = -1, connections;
const sockaddr_in *silent;

// True for an address in the plugin itself, but not in a library that it uses.
bool is_plugins(const void *address)
{
    Dl_info of;
    return dladdr(address, &of) && strstr(of.dli_fname, "nccl-net-pvrdma");
}

// The error with which this call fails now; 0: the call is made.
int fault_of(const char *call, std::initializer_list<int> errors,
             const void *from = __builtin_return_address(0))
{
    if (!armed || !is_plugins(from) || ++fault.seen != fault.nth || fault.which >= errors.size())
        return 0;
    fault.last = fault.which + 1 == errors.size();
    fault.call = call;
    fault.error = errors.begin()[fault.which];
    return errno = fault.error;
}

} // namespace

#define VISIBLE __attribute__((visibility("default")))
// The plugin's calls arrive here: the program comes before the C library.
extern "C" {
VISIBLE int socket(int domain, int type, int protocol) __THROW
{
    static auto real = next_symbol<decltype(&socket)>("socket");
    return fault_of("socket", {EMFILE, ENOBUFS}) ? -1 : real(domain, type, protocol);
}
VISIBLE int accept4(int fd, sockaddr *addr, socklen_t *len, int flags)
{
    static auto real = next_symbol<decltype(&accept4)>("accept4");
    return fault_of("accept4", {EMFILE, ECONNABORTED, EINTR, EAGAIN}) ? -1
                                                                      : real(fd, addr, len, flags);
}
VISIBLE int bind(int fd, const sockaddr *addr, socklen_t len) __THROW
{
    static auto real = next_symbol<decltype(&bind)>("bind");
    return fault_of("bind", {EADDRINUSE, EADDRNOTAVAIL}) ? -1 : real(fd, addr, len);
}
VISIBLE int listen(int fd, int backlog) __THROW
{
    static auto real = next_symbol<decltype(&listen)>("listen");
    return fault_of("listen", {EADDRINUSE}) ? -1 : real(fd, backlog);
}
VISIBLE int connect(int fd, const sockaddr *addr, socklen_t len)
{
    static auto real = next_symbol<decltype(&connect)>("connect");
    int e = fault_of("connect", {ENETUNREACH, ECONNREFUSED, EADDRNOTAVAIL, EINTR, ETIMEDOUT});
    if (armed && no_route_from >= 0 && connections++ >= no_route_from) {
        if (silent && connections > no_route_from + 1)
            return real(fd, reinterpret_cast<const sockaddr *>(silent), sizeof(*silent));
        errno = EHOSTUNREACH;
        return -1;
    }
    if (e == EINTR) { // connect() goes on after EINTR
        real(fd, addr, len);
        errno = e;
    }
    return e ? -1 : real(fd, addr, len);
}
VISIBLE int setsockopt(int fd, int level, int name, const void *value, socklen_t len) __THROW
{
    static auto real = next_symbol<decltype(&setsockopt)>("setsockopt");
    return fault_of("setsockopt", {ENOPROTOOPT, ENOBUFS}) ? -1 : real(fd, level, name, value, len);
}
VISIBLE int getsockopt(int fd, int level, int name, void *value, socklen_t *len) __THROW
{
    static auto real = next_symbol<decltype(&getsockopt)>("getsockopt");
    return fault_of("getsockopt", {ENOPROTOOPT}) ? -1 : real(fd, level, name, value, len);
}
VISIBLE int getsockname(int fd, sockaddr *addr, socklen_t *len) __THROW
{
    static auto real = next_symbol<decltype(&getsockname)>("getsockname");
    return fault_of("getsockname", {ENOBUFS}) ? -1 : real(fd, addr, len);
}
VISIBLE int getpeername(int fd, sockaddr *addr, socklen_t *len) __THROW
{
    static auto real = next_symbol<decltype(&getpeername)>("getpeername");
    return fault_of("getpeername", {ENOTCONN}) ? -1 : real(fd, addr, len);
}
VISIBLE int poll(pollfd *fds, nfds_t n, int timeout)
{
    static auto real = next_symbol<decltype(&poll)>("poll");
    return fault_of("poll", {EINTR, ENOMEM}) ? -1 : real(fds, n, timeout);
}
VISIBLE int __poll_chk(pollfd *fds, nfds_t n, int timeout, size_t)
{
    static auto real = next_symbol<decltype(&poll)>("poll");
    return fault_of("poll", {EINTR, ENOMEM}) ? -1 : real(fds, n, timeout);
}
VISIBLE int epoll_create1(int flags) __THROW
{
    static auto real = next_symbol<decltype(&epoll_create1)>("epoll_create1");
    return fault_of("epoll_create1", {EMFILE}) ? -1 : real(flags);
}
VISIBLE int epoll_ctl(int epfd, int op, int fd, epoll_event *event) __THROW
{
    static auto real = next_symbol<decltype(&epoll_ctl)>("epoll_ctl");
    return fault_of("epoll_ctl", {ENOSPC, ENOMEM}) ? -1 : real(epfd, op, fd, event);
}
VISIBLE int epoll_wait(int epfd, epoll_event *events, int n, int timeout)
{
    static auto real = next_symbol<decltype(&epoll_wait)>("epoll_wait");
    return fault_of("epoll_wait", {EINTR}) ? -1 : real(epfd, events, n, timeout);
}
VISIBLE int eventfd(unsigned n, int flags) __THROW
{
    static auto real = next_symbol<decltype(&eventfd)>("eventfd");
    return fault_of("eventfd", {EMFILE}) ? -1 : real(n, flags);
}
VISIBLE ssize_t send(int fd, const void *data, size_t len, int flags)
{
    static auto real = next_symbol<decltype(&send)>("send");
    int e = fault_of("send", {SHORT, EAGAIN, EINTR, ECONNRESET});
    return e > 0 ? -1 : real(fd, data, e ? 1 : len, flags);
}
VISIBLE ssize_t recv(int fd, void *data, size_t len, int flags)
{
    static auto real = next_symbol<decltype(&recv)>("recv");
    int e = fault_of("recv", {SHORT, EAGAIN, EINTR, ECONNRESET});
    return e > 0 ? -1 : real(fd, data, e ? 1 : len, flags);
}
VISIBLE ssize_t sendmsg(int fd, const msghdr *m, int flags)
{
    static auto real = next_symbol<decltype(&sendmsg)>("sendmsg");
    int e = fault_of("sendmsg", {SHORT, EAGAIN, EINTR, ECONNRESET});
    iovec one = m->msg_iovlen ? iovec{m->msg_iov[0].iov_base, 1} : iovec{};
    msghdr less = *m;
    less.msg_iov = &one;
    less.msg_iovlen = 1;
    return e > 0 ? -1 : real(fd, e && m->msg_iovlen && m->msg_iov[0].iov_len ? &less : m, flags);
}
VISIBLE ssize_t recvmsg(int fd, msghdr *m, int flags)
{
    static auto real = next_symbol<decltype(&recvmsg)>("recvmsg");
    return fault_of("recvmsg", {EAGAIN, EINTR, ECONNRESET}) ? -1 : real(fd, m, flags);
}
VISIBLE int ioctl(int fd, unsigned long request, ...) __THROW
{
    static auto real = next_symbol<int (*)(int, unsigned long, void *)>("ioctl");
    va_list ap;
    va_start(ap, request);
    void *p = va_arg(ap, void *);
    va_end(ap);
    return fault_of("ioctl", {ENODEV}) ? -1 : real(fd, request, p);
}
VISIBLE int shutdown(int fd, int how) __THROW
{
    static auto real = next_symbol<decltype(&shutdown)>("shutdown");
    return fault_of("shutdown", {ENOTCONN}) ? -1 : real(fd, how);
}
VISIBLE void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) __THROW
{
    static auto real = next_symbol<decltype(&mmap)>("mmap");
    return fault_of("mmap", {ENOMEM}) ? MAP_FAILED : real(at, len, prot, flags, fd, offset);
}
VISIBLE ssize_t getrandom(void *data, size_t len, unsigned flags)
{
    static auto real = next_symbol<decltype(&getrandom)>("getrandom");
    return fault_of("getrandom", {ENOSYS, EINTR}) ? -1 : real(data, len, flags);
}
VISIBLE int open(const char *path, int flags, ...)
{
    static auto real = next_symbol<int (*)(const char *, int, mode_t)>("open");
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fault_of("open", {EMFILE}) ? -1 : real(path, flags, mode);
}
VISIBLE int openat(int dir, const char *path, int flags, ...)
{
    static auto real = next_symbol<int (*)(int, const char *, int, mode_t)>("openat");
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fault_of("openat", {EACCES}) ? -1 : real(dir, path, flags, mode);
}
VISIBLE FILE *fopen(const char *path, const char *mode)
{
    static auto real = next_symbol<decltype(&fopen)>("fopen");
    return fault_of("fopen", {ENOENT}) ? nullptr : real(path, mode);
}
VISIBLE ssize_t pread(int fd, void *data, size_t len, off_t offset)
{
    static auto real = next_symbol<decltype(&pread)>("pread");
    int e = fault_of("pread", {SHORT, EIO});
    return e > 0 ? -1 : real(fd, data, e && len ? 1 : len, offset);
}
VISIBLE ssize_t readlink(const char *path, char *data, size_t len) __THROW
{
    static auto real = next_symbol<decltype(&readlink)>("readlink");
    return fault_of("readlink", {ENOENT}) ? -1 : real(path, data, len);
}
VISIBLE ssize_t readlinkat(int dir, const char *path, char *data, size_t len) __THROW
{
    static auto real = next_symbol<decltype(&readlinkat)>("readlinkat");
    return fault_of("readlinkat", {ENOENT}) ? -1 : real(dir, path, data, len);
}
VISIBLE int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *),
                           void *arg) __THROW
{
    static auto real = next_symbol<decltype(&pthread_create)>("pthread_create");
    return fault_of("pthread_create", {EAGAIN}) ? EAGAIN : real(t, a, f, arg);
}
VISIBLE int getifaddrs(ifaddrs **list) __THROW
{
    static auto real = next_symbol<decltype(&getifaddrs)>("getifaddrs");
    return fault_of("getifaddrs", {ENOMEM}) ? -1 : real(list);
}
VISIBLE void *dlopen(const char *name, int flags) __THROW
{
    static auto real = next_symbol<decltype(&dlopen)>("dlopen");
    return fault_of("dlopen", {ENOENT}) ? real("/none", flags) : real(name, flags);
}
VISIBLE int madvise(void *at, size_t len, int advice) __THROW
{
    static auto real = next_symbol<decltype(&madvise)>("madvise");
    return fault_of("madvise", {EINVAL}) ? -1 : real(at, len, advice);
}
VISIBLE int posix_fallocate(int fd, off_t offset, off_t len)
{
    static auto real = next_symbol<decltype(&posix_fallocate)>("posix_fallocate");
    int e = fault_of("posix_fallocate", {ENOSPC, EINTR});
    return e ? e : real(fd, offset, len);
}
}

namespace
{

// Long enough for a busy machine, but short where an end waits for nobody.
const std::pair<const char *, const char *> kTimeouts[] = {
    {"NCCL_PVRDMA_CONNECT_TIMEOUT", "1s"},
    {"NCCL_PVRDMA_ACCEPT_TIMEOUT", "1s"},
    {"NCCL_PVRDMA_VERIFY_TIMEOUT", "4s"},
    {"NCCL_PVRDMA_READY_TIMEOUT", "4s"},
};

// Runs a comm's life. Only calls of this thread fail, which drives both ends of the comm.
Life faulty_life(Net &n)
{
    armed = true;
    Life life(n);
    armed = false;
    return life;
}

// Tests both settings of failover, which is on by default where a host has two interfaces.
struct Calls : testing::TestWithParam<const char *> {
    void SetUp() override
    {
        setenv("NCCL_PVRDMA_FAILOVER", GetParam(), 1);
        for (const auto &t : kTimeouts)
            setenv(t.first, t.second, 1);
    }
    void TearDown() override
    {
        unsetenv("NCCL_PVRDMA_FAILOVER");
        for (const auto &t : kTimeouts)
            unsetenv(t.first);
    }
    static bool is_reset()
    {
        return fault.error == ECONNRESET;
    }
    // True if the job has to survive this fault.
    static bool is_survived(const Life &life)
    {
        // the network is sound, so attempts are repeated; but NCCL's listen has only one
        if (!is_reset())
            return strcmp(life.failed_in, "listen") != 0 && fault.error != ECONNREFUSED;
        return life.up && *GetParam() == '1';
    }
};
INSTANTIATE_TEST_SUITE_P(Failover, Calls, testing::Values("0", "1"),
                         [](const auto &i) { return std::string("is") + i.param; });

std::string fault_text()
{
    return fault.call + " " + (fault.error == SHORT ? "one byte" : strerror(fault.error));
}

// Runs `round` for each error of each of the first `calls` calls. A round must leave no descriptor open.
void each_fault(long calls, const std::function<void()> &round)
{
    for (long nth = 1; nth <= calls; nth++) {
        fault = {};
        for (size_t which = 0; !fault.last; which++) {
            fault = {nth, 0, which, true, "", 0};
            const auto before = descriptors();
            Log::get().clear();
            round();
            EXPECT_EQ(before, descriptors()) << "after call " << nth << ", " << fault_text();
        }
    }
}

TEST_P(Calls, EachFailsOnce)
{
    // rounds that survived, and rounds that did not
    std::map<std::string, std::pair<int, int>> rounds;
    fault = {};
    {
        Net n(12);
        ASSERT_TRUE(faulty_life(n).done) << Log::get().text();
    }
    const long calls = fault.seen;
    each_fault(calls, [&] {
        // loaded for each fault, because one library does not repeat its warnings
        Net n(12);
        const Life life = faulty_life(n);
        if (fault.call.empty())
            return; // this call has no error to inject, or the life had fewer calls
        const std::string what = fault_text();
        SCOPED_TRACE("call " + std::to_string(fault.nth) + ", " + what);
        (life.done ? rounds[what].first : rounds[what].second)++;
        EXPECT_TRUE(life.done || !is_survived(life)) << life.failed_in << "\n" << Log::get().text();
        EXPECT_TRUE(life.done || *life.failed_in) << "it stood still, or the bytes are wrong";
        EXPECT_TRUE(life.done || !Log::get().warnings().empty()) << "it failed without a reason";
        EXPECT_TRUE(fault.call != "pthread_create" || said("thread")) << "what is lost without it";
    });
    for (const auto &r : rounds)
        printf("%s: survived %d times, not %d\n", r.first.c_str(), r.second.first, r.second.second);
    EXPECT_LT(100, calls);
    EXPECT_LT(30u, rounds.size()) << "faults fired";
    fault = {};
    Net n(12);
    EXPECT_TRUE(faulty_life(n).done);
}

// Starts the plugin. The calls that init makes are counted, and call number `nth` fails.
struct Start {
    pvn_netdrv *d = nullptr;
    void *ctx = nullptr;
    ncclResult_t rc = ncclInternalError;
    int devices = 0;

    Start()
    {
        ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
        char why[256];
        if (pvn_netdrv_open(plugin_path(), 12, &d, why, sizeof(why)) != 0) {
            ADD_FAILURE() << why;
            return;
        }
        armed = true;
        rc = pvn_netdrv_init(d, &ctx, 1, &config, logger, nullptr);
        armed = false;
        if (rc == ncclSuccess) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_devices(d, &devices));
        }
    }
    ~Start()
    {
        if (rc == ncclSuccess) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(d, ctx));
        }
        pvn_netdrv_close(d);
    }
};

// If files cannot be read or interfaces do not answer, the plugin lacks what they would have said,
// but keeps its device.
TEST(Start, SurvivesEachCallThatFails)
{
    int refused = 0, fired = 0;
    fault = {};
    EXPECT_EQ(1, Start().devices);
    each_fault(fault.seen, [&] {
        const Start start;
        SCOPED_TRACE("call " + std::to_string(fault.nth) + ", " + fault_text());
        fired += !fault.call.empty();
        if (start.rc != ncclSuccess) {
            refused++;
            EXPECT_EQ("mmap", fault.call);
            EXPECT_TRUE(Log::get().warned({"Cannot allocate memory"})) << Log::get().text();
        } else {
            EXPECT_EQ(1, start.devices) << Log::get().text();
        }
    });
    printf("%d faults fired, and %d starts were refused\n", fired, refused);
    EXPECT_LT(300, fired);
    EXPECT_GE(1, refused);
}

// The control connection comes up, but the only lane's data connection cannot be made.
TEST_P(Calls, ASoleLaneIsDialledUntilItsTimeIsOver)
{
    Net n(12);
    connections = 0;
    no_route_from = 1;
    EXPECT_FALSE(faulty_life(n).up);
    no_route_from = -1;
    EXPECT_LT(3, connections) << "the fault fired, and the attempt was repeated";
    EXPECT_TRUE(Log::get().warned({"No route to host", "NCCL_PVRDMA_VERIFY_TIMEOUT"}))
        << Log::get().text();
    EXPECT_TRUE(faulty_life(n).done);
}

// A full accept queue: the kernel drops what asks for a connection.
struct Silent {
    sockaddr_in address = {};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::vector<int> waiting;

    Silent()
    {
        socklen_t len = sizeof(address);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        auto *a = reinterpret_cast<sockaddr *>(&address);
        EXPECT_EQ(0, bind(listener, a, len));
        EXPECT_EQ(0, listen(listener, 0));
        EXPECT_EQ(0, getsockname(listener, a, &len));
        for (int i = 0; i < 4; i++) {
            waiting.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            connect(waiting.back(), a, len);
        }
    }
    ~Silent()
    {
        for (int fd : waiting)
            close(fd);
        close(listener);
    }
};

// The limit is over while the second attempt waits: the reason is that of the first one.
TEST_P(Calls, ASoleLaneThatIsNotAnsweredSaysWhatWasWrong)
{
    Net n(12);
    const Silent nobody;
    connections = 0;
    no_route_from = 1;
    silent = &nobody.address;
    EXPECT_FALSE(faulty_life(n).up);
    no_route_from = -1;
    silent = nullptr;
    EXPECT_EQ(3, connections)
        << "control, the one without a route, and the one that nothing answers";
    EXPECT_TRUE(Log::get().warned({"No route to host", "tried 2 times"})) << Log::get().text();
}

} // namespace
