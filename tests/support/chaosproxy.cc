// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include "support/chaosproxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

namespace
{

using Clock = std::chrono::steady_clock;

constexpr size_t kBuffer = 256 * 1024;
constexpr Clock::time_point kNoTime = Clock::time_point::max();

[[noreturn]] void fail(const char *what)
{
    throw std::system_error(errno, std::generic_category(), what);
}

socklen_t length(const sockaddr_storage &ss)
{
    return ss.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

void no_delay(int fd)
{
    const int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Closes with a RST instead of a FIN. */
void close_hard(int fd)
{
    const linger hard = {1, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(fd);
}

/* One direction of a connection. Bytes from src wait in `buffer` until they may go to dst. */
struct Pipe {
    int src = -1, dst = -1;
    ChaosFault fault;
    ChaosCounters count;
    std::minstd_rand random;
    std::vector<char> buffer;
    size_t first = 0; /* unsent bytes are buffer[first ..] */
    Clock::time_point not_before = Clock::time_point::min();
    bool held = false;
    bool hold_counted = false;
    bool stalled = false; /* without end */
    bool swallowing = false;
    bool src_ended = false; /* read to the end */
    bool dst_ended = false; /* FIN passed on */
    bool reset_due = false; /* as soon as the destination has acknowledged the delivered bytes */

    size_t waiting() const
    {
        return buffer.size() - first;
    }

    bool stopped() const
    {
        return held || stalled || reset_due;
    }

    bool may_read(Clock::time_point now) const
    {
        return !src_ended && !stopped() && now >= not_before && (swallowing || waiting() < kBuffer);
    }

    bool may_write(Clock::time_point now) const
    {
        return waiting() && !stopped() && now >= not_before && !swallowing && !dst_ended;
    }

    bool finished() const
    {
        return src_ended && (dst_ended || swallowing) && !stopped();
    }
};

struct Connection {
    int number = 0;
    int client = -1, server = -1;
    bool connecting = false;
    bool closed = false;
    Pipe pipe[2];
};

} // namespace

struct ChaosProxy::Impl {
    mutable std::mutex mutex; /* guards all members below but the thread */
    sockaddr_storage target, address;
    Plan plan;
    Look look;
    int listener = -1, wake = -1;
    bool stop = false, refusing = false, hold_new[2] = {false, false};
    unsigned refused = 0;
    std::vector<std::unique_ptr<Connection>> conns;
    std::thread thread;

    void run();
    Clock::time_point next_time(Clock::time_point now) const;
    void accept_all();
    void serve(Connection &c, Clock::time_point now);
    void finish_connect(Connection &c);
    void pump(Connection &c, Pipe &p, Clock::time_point now);
    bool read_some(Connection &c, Pipe &p);
    bool write_some(Connection &c, Pipe &p, Clock::time_point now);
    bool fire(Connection &c, Pipe &p, Clock::time_point now);
    static void try_reset(Connection &c);
    static void drop(Connection &c, bool hard);
    static void end_stream(Pipe &p);
    void poke() const;

    void each(int conn, const std::function<void(Connection &)> &what)
    {
        for (size_t i = 0; i < conns.size(); i++)
            if (conn < 0 || (size_t)conn == i)
                what(*conns[i]);
    }
};

void ChaosProxy::Impl::poke() const
{
    const uint64_t one = 1;

    if (write(wake, &one, sizeof(one)) < 0 && errno != EAGAIN)
        abort(); /* it is an eventfd of our own */
}

void ChaosProxy::Impl::drop(Connection &c, bool hard)
{
    if (c.closed)
        return;
    c.closed = true;
    for (int fd : {c.client, c.server}) {
        if (fd < 0)
            continue;
        if (hard)
            close_hard(fd);
        else
            close(fd);
    }
}

void ChaosProxy::Impl::end_stream(Pipe &p)
{
    if (!p.dst_ended)
        shutdown(p.dst, SHUT_WR);
    p.dst_ended = true;
}

/* A hard close drops bytes that the kernel has not delivered yet, but the bytes before the fault
 * have to arrive. So it waits for their acknowledgement. */
void ChaosProxy::Impl::try_reset(Connection &c)
{
    int queued = 0;

    for (const Pipe &p : c.pipe)
        if (ioctl(p.dst, SIOCOUTQ, &queued) == 0 && queued > 0 && p.reset_due)
            return;
    for (Pipe &p : c.pipe)
        p.count.resets += p.reset_due;
    drop(c, true);
}

void ChaosProxy::Impl::accept_all()
{
    for (;;) {
        const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return;
        if (refusing) {
            refused++;
            close_hard(fd);
            continue;
        }
        auto c = std::make_unique<Connection>();
        ChaosFault faults[2];
        c->number = (int)conns.size();
        c->client = fd;
        c->server = socket(target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (c->server < 0) {
            refused++;
            close_hard(fd);
            continue;
        }
        no_delay(c->client);
        no_delay(c->server);
        if (plan)
            plan((int)conns.size(), faults);
        c->connecting = connect(c->server, (const sockaddr *)&target, length(target)) != 0;
        if (c->connecting && errno != EINPROGRESS)
            drop(*c, true);
        for (int d = 0; d < 2; d++) {
            Pipe &p = c->pipe[d];
            p.src = d == kToServer ? c->client : c->server;
            p.dst = d == kToServer ? c->server : c->client;
            p.fault = faults[d];
            p.held = hold_new[d];
            p.random.seed(faults[d].seed);
        }
        conns.push_back(std::move(c));
    }
}

void ChaosProxy::Impl::finish_connect(Connection &c)
{
    int error = 0;
    socklen_t len = sizeof(error);

    getsockopt(c.server, SOL_SOCKET, SO_ERROR, &error, &len);
    c.connecting = false;
    if (error)
        drop(c, true);
}

/* Starts the faults that are due at this byte. True if the direction must pause now. */
bool ChaosProxy::Impl::fire(Connection &c, Pipe &p, Clock::time_point now)
{
    const uint64_t at = p.count.bytes;

    if (at == p.fault.reset_at) {
        p.fault.reset_at = ChaosFault::kNever;
        p.reset_due = true;
        try_reset(c);
        return true;
    }
    if (at == p.fault.half_close_at) {
        p.fault.half_close_at = ChaosFault::kNever;
        p.count.half_closes++;
        p.swallowing = true;
        end_stream(p);
    }
    if (at == p.fault.swallow_at)
        p.swallowing = true;
    if (at == p.fault.stall_at) {
        p.fault.stall_at = ChaosFault::kNever;
        p.count.stalls++;
        if (p.fault.stall_for.count() == 0)
            p.stalled = true;
        else
            p.not_before = now + p.fault.stall_for;
        return true;
    }
    return false;
}

/* False: there is nothing more to read now. */
bool ChaosProxy::Impl::read_some(Connection &c, Pipe &p)
{
    char chunk[65536];
    const ssize_t n = recv(p.src, chunk, sizeof(chunk), 0);

    if (n > 0) {
        if (p.first == p.buffer.size()) {
            p.buffer.clear();
            p.first = 0;
        }
        const uint64_t at = p.count.bytes + p.count.swallowed + p.waiting();
        p.buffer.insert(p.buffer.end(), chunk, chunk + n);
        if (look) {
            ChaosFault *fault[2] = {&c.pipe[kToServer].fault, &c.pipe[kToClient].fault};
            look(c.number, &p == &c.pipe[kToServer] ? kToServer : kToClient, at, chunk, (size_t)n,
                 fault);
        }
        return true;
    }
    if (n == 0) {
        p.src_ended = true;
    } else if (errno != EAGAIN && errno != EINTR) {
        drop(c, true); /* the source was reset, so the destination is reset, too */
    }
    return false;
}

bool ChaosProxy::Impl::write_some(Connection &c, Pipe &p, Clock::time_point now)
{
    size_t n = p.waiting();
    const uint64_t at = p.count.bytes;
    const size_t bound = p.fault.max_write ? p.fault.max_write : 4096;

    if (p.fault.seed)
        n = std::min<size_t>(n, 1 + p.random() % bound);
    else if (p.fault.max_write)
        n = std::min(n, p.fault.max_write);
    for (const uint64_t mark :
         {p.fault.reset_at, p.fault.half_close_at, p.fault.swallow_at, p.fault.stall_at})
        if (mark > at)
            n = (size_t)std::min<uint64_t>(n, mark - at);
    if (p.fault.flip_at >= at && p.fault.flip_at < at + n) {
        p.buffer[p.first + (size_t)(p.fault.flip_at - at)] ^= 1;
        p.fault.flip_at = ChaosFault::kNever;
        p.count.flips++;
    }
    const ssize_t sent = send(p.dst, p.buffer.data() + p.first, n, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR)
            drop(c, true);
        return false;
    }
    p.first += (size_t)sent;
    p.count.bytes += (uint64_t)sent;
    p.count.writes++;
    if (p.fault.gap.count()) {
        auto gap = p.fault.gap;
        if (p.fault.seed)
            gap = std::chrono::microseconds(p.random() % (unsigned)(gap.count() + 1));
        p.not_before = now + gap;
    }
    return p.not_before <= now;
}

void ChaosProxy::Impl::pump(Connection &c, Pipe &p, Clock::time_point now)
{
    if (p.reset_due) {
        try_reset(c);
        return;
    }
    if (p.held && !p.hold_counted) {
        int waiting = 0;
        if (p.waiting() || (ioctl(p.src, FIONREAD, &waiting) == 0 && waiting > 0)) {
            p.hold_counted = true;
            p.count.holds++;
        }
    }
    while (!c.closed && p.may_read(now) && read_some(c, p))
        if (p.swallowing) {
            p.count.swallowed += p.waiting();
            p.first = p.buffer.size();
        }
    while (!c.closed && p.may_write(now)) {
        if (fire(c, p, now) || (!p.swallowing && !write_some(c, p, now)))
            break;
        if (p.swallowing) {
            p.count.swallowed += p.waiting();
            p.first = p.buffer.size();
        }
    }
    /* A fault after the last byte starts here, because no further byte comes. */
    if (!c.closed && !p.waiting() && !p.stopped() && now >= p.not_before)
        fire(c, p, now);
    if (!c.closed && p.src_ended && !p.waiting() && !p.stopped() && now >= p.not_before &&
        !p.swallowing)
        end_stream(p);
}

void ChaosProxy::Impl::serve(Connection &c, Clock::time_point now)
{
    if (c.closed)
        return;
    for (Pipe &p : c.pipe)
        if (!c.closed)
            pump(c, p, now);
    if (!c.closed && c.pipe[0].finished() && c.pipe[1].finished())
        drop(c, false);
}

Clock::time_point ChaosProxy::Impl::next_time(Clock::time_point now) const
{
    Clock::time_point next = kNoTime;

    for (const auto &c : conns) {
        if (c->closed || c->connecting)
            continue;
        for (const Pipe &p : c->pipe) {
            if (p.not_before > now && !p.held && !p.stalled)
                next = std::min(next, p.not_before);
            /* No event reports an empty send queue, or bytes at a source that is not polled. */
            if (p.reset_due || (p.held && !p.hold_counted))
                next = std::min(next, now + std::chrono::milliseconds(1));
        }
    }
    return next;
}

void ChaosProxy::Impl::run()
{
    std::unique_lock<std::mutex> lock(mutex);

    while (!stop) {
        auto now = Clock::now();
        std::vector<pollfd> fds = {{listener, POLLIN, 0}, {wake, POLLIN, 0}};
        std::vector<Connection *> who = {nullptr, nullptr};

        for (const auto &c : conns) {
            if (c->closed)
                continue;
            if (c->connecting) {
                fds.push_back({c->server, POLLOUT, 0});
                who.push_back(c.get());
                continue;
            }
            for (const Pipe &p : c->pipe) {
                if (p.may_read(now)) {
                    fds.push_back({p.src, POLLIN, 0});
                    who.push_back(c.get());
                }
                if (p.may_write(now)) {
                    fds.push_back({p.dst, POLLOUT, 0});
                    who.push_back(c.get());
                }
            }
        }
        const auto next = next_time(now);
        timespec wait = {0, 0};
        if (next != kNoTime) {
            const auto ns =
                std::chrono::duration_cast<std::chrono::nanoseconds>(next - now).count();
            wait.tv_sec = (time_t)(ns / 1000000000);
            wait.tv_nsec = (long)(ns % 1000000000);
        }
        lock.unlock();
        ppoll(fds.data(), fds.size(), next == kNoTime ? nullptr : &wait, nullptr);
        lock.lock();

        uint64_t pokes;
        while (read(wake, &pokes, sizeof(pokes)) > 0)
            ;
        for (size_t i = 2; i < fds.size(); i++)
            if (who[i]->connecting && !who[i]->closed && fds[i].revents)
                finish_connect(*who[i]);
        now = Clock::now();
        for (size_t i = 0; i < conns.size(); i++)
            if (!conns[i]->connecting)
                serve(*conns[i], now);
        accept_all();
    }
    for (const auto &c : conns)
        drop(*c, true);
}

ChaosProxy::ChaosProxy(const sockaddr_storage &target, Plan plan, Look look) : impl_(new Impl)
{
    sockaddr_storage ss = {};
    socklen_t len = sizeof(ss);

    impl_->target = target;
    impl_->plan = std::move(plan);
    impl_->look = std::move(look);
    ss.ss_family = target.ss_family;
    if (target.ss_family == AF_INET6)
        reinterpret_cast<sockaddr_in6 *>(&ss)->sin6_addr = in6addr_loopback;
    else
        reinterpret_cast<sockaddr_in *>(&ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    impl_->listener = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    impl_->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (impl_->listener < 0 || impl_->wake < 0 ||
        bind(impl_->listener, reinterpret_cast<sockaddr *>(&ss), length(ss)) != 0 ||
        listen(impl_->listener, 4096) != 0 ||
        getsockname(impl_->listener, reinterpret_cast<sockaddr *>(&impl_->address), &len) != 0)
        fail("a listener for the proxy");
    impl_->thread = std::thread([this] { impl_->run(); });
}

ChaosProxy::~ChaosProxy()
{
    {
        std::lock_guard<std::mutex> lock(impl_->mutex);
        impl_->stop = true;
    }
    impl_->poke();
    impl_->thread.join();
    close(impl_->listener);
    close(impl_->wake);
}

sockaddr_storage ChaosProxy::address() const
{
    return impl_->address;
}

uint16_t ChaosProxy::port() const
{
    /* The port is at the same offset in both families. */
    return ntohs(reinterpret_cast<const sockaddr_in *>(&impl_->address)->sin_port);
}

int ChaosProxy::connections() const
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    return (int)impl_->conns.size();
}

int ChaosProxy::open() const
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    return (int)std::count_if(impl_->conns.begin(), impl_->conns.end(),
                              [](const auto &c) { return !c->closed; });
}

ChaosCounters ChaosProxy::counters(int conn, Direction dir) const
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    return (size_t)conn < impl_->conns.size() ? impl_->conns[(size_t)conn]->pipe[dir].count
                                              : ChaosCounters();
}

ChaosCounters ChaosProxy::total(Direction dir) const
{
    std::lock_guard<std::mutex> lock(impl_->mutex);
    ChaosCounters sum;

    for (const auto &c : impl_->conns) {
        const ChaosCounters &one = c->pipe[dir].count;
        sum.bytes += one.bytes;
        sum.writes += one.writes;
        sum.swallowed += one.swallowed;
        sum.stalls += one.stalls;
        sum.half_closes += one.half_closes;
        sum.resets += one.resets;
        sum.flips += one.flips;
        sum.holds += one.holds;
    }
    return sum;
}

void ChaosProxy::set(int conn, Direction dir, const ChaosFault &fault)
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    impl_->each(conn, [&](Connection &c) {
        Pipe &p = c.pipe[dir];
        p.fault = fault;
        p.random.seed(fault.seed);
        for (uint64_t *at : {&p.fault.stall_at, &p.fault.swallow_at, &p.fault.half_close_at,
                             &p.fault.reset_at, &p.fault.flip_at})
            if (*at != ChaosFault::kNever)
                *at += p.count.bytes;
    });
    impl_->poke();
}

void ChaosProxy::hold(int conn, Direction dir, bool on)
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    if (conn < 0)
        impl_->hold_new[dir] = on;
    impl_->each(conn, [&](Connection &c) {
        c.pipe[dir].held = on;
        c.pipe[dir].hold_counted = false;
    });
    impl_->poke();
}

void ChaosProxy::reset(int conn)
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    impl_->each(conn, [&](Connection &c) {
        if (c.closed)
            return;
        c.pipe[kToServer].count.resets++;
        c.pipe[kToClient].count.resets++;
        Impl::drop(c, true);
    });
    impl_->poke();
}

void ChaosProxy::half_close(int conn, Direction dir)
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    impl_->each(conn, [&](Connection &c) {
        if (!c.closed)
            c.pipe[dir].fault.half_close_at = c.pipe[dir].count.bytes;
    });
    impl_->poke();
}

void ChaosProxy::refuse(bool on)
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    impl_->refusing = on;
}

unsigned ChaosProxy::refused() const
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    return impl_->refused;
}

void ChaosProxy::retarget(const sockaddr_storage &target)
{
    std::lock_guard<std::mutex> lock(impl_->mutex);

    impl_->target = target;
}

bool ChaosProxy::wait_for(const std::function<bool()> &done, std::chrono::milliseconds timeout)
{
    const auto end = Clock::now() + timeout;

    while (!done()) {
        if (Clock::now() >= end)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}
