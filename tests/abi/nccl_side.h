/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// NCCL's side, for tests: loads the built plugin at any version of the interface and drives it as
// NCCL's proxy does.
#ifndef TESTS_ABI_NCCL_SIDE_H
#define TESTS_ABI_NCCL_SIDE_H

#include <gtest/gtest.h>

#include <dirent.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "plugin/perf/driver/netdrv.h"
#include "support/bytes.h"
#include "support/deadline.h"
#include "tests/support/paths.h"

namespace nccl
{

// Limits tests to loopback and drops the caller's settings, before the first test.
struct Environment : testing::Environment {
    void SetUp() override
    {
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
        unsetenv("NCCL_SOCKET_FAMILY");
        unsetenv("NCCL_IB_TC");
    }
};
static testing::Environment *const environment = testing::AddGlobalTestEnvironment(new Environment);

// The built plugin, unless tests/fail/mutations.sh names another one.
inline const char *plugin_path()
{
    const char *other = getenv("PVN_TEST_PLUGIN");
    return other ? other : PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so";
}

// The plugin's log lines, for tests that look for a message.
struct Log {
    std::mutex m;
    std::string warn, all;
    static Log &get()
    {
        static Log l;
        return l;
    }
    void clear()
    {
        std::lock_guard<std::mutex> g(m);
        warn.clear();
        all.clear();
    }
    std::string warnings()
    {
        std::lock_guard<std::mutex> g(m);
        return warn;
    }
    std::string text()
    {
        std::lock_guard<std::mutex> g(m);
        return all;
    }
    // True if a single warning holds all of these.
    bool warned(const std::vector<std::string> &words)
    {
        std::istringstream lines(warnings());
        for (std::string line; std::getline(lines, line);)
            if (std::all_of(words.begin(), words.end(), [&](const std::string &w) {
                    return line.find(w) != std::string::npos;
                }))
                return true;
        return false;
    }
};

// True if the plugin has logged this, at any level.
inline bool said(const std::string &what)
{
    return Log::get().text().find(what) != std::string::npos;
}

// This process's open descriptors, without that of a statistics file on overlayfs, which is open as
// long as the file (stats.c).
inline std::set<int> descriptors()
{
    std::set<int> fds;
    DIR *d = opendir("/proc/self/fd");
    while (dirent *e = readdir(d)) {
        const int fd = atoi(e->d_name);
        char file[4096] = "";
        struct statfs fs = {};
        if (e->d_name[0] == '.' || fd == dirfd(d))
            continue;
        if (readlinkat(dirfd(d), e->d_name, file, sizeof(file) - 1) > 0 && strstr(file, ".stat") &&
            fstatfs(fd, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC)
            continue;
        fds.insert(fd);
    }
    closedir(d);
    return fds;
}

// This host's name as the plugin's messages show it.
inline std::string host_name()
{
    char name[51] = "";
    gethostname(name, sizeof(name) - 1);
    return name;
}

inline void logger(ncclDebugLogLevel level, unsigned long, const char *, int, const char *fmt, ...)
{
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    static const bool show = getenv("PVN_TEST_VERBOSE") != nullptr;
    if (show)
        fprintf(stderr, "[%d] %s\n", static_cast<int>(level), line);
    std::lock_guard<std::mutex> g(Log::get().m);
    if (level == NCCL_LOG_TRACE)
        return;
    Log::get().all += std::string(line) + "\n";
    if (level == NCCL_LOG_WARN)
        Log::get().warn += std::string(line) + "\n";
}

// Repeats f until it returns true, for `seconds` at most. The limit only ends a hang; no result
// depends on it. NCCL yields between its calls. If f has returned false for long, the pause is a
// thousandth of that time, so that others get the processor.
inline bool eventually(const std::function<bool()> &f, int seconds = 60)
{
    using std::chrono::milliseconds;
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
        const auto waited = std::chrono::steady_clock::now() - start;
        if (waited >= std::chrono::seconds(seconds))
            return f();
        if (f())
            return true;
        if (waited < milliseconds(20))
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(
                std::min<std::chrono::nanoseconds>(waited / 1000, milliseconds(1)));
    }
}

// One plugin at one version, initialised.
struct Net {
    pvn_netdrv *d = nullptr;
    void *ctx = nullptr;
    char msg[512] = "";

    explicit Net(int abi, int traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF,
                 ncclProfilerCallback_t profiler = nullptr)
    {
        ncclNetCommConfig_v12_t config = {traffic_class};
        if (pvn_netdrv_open(plugin_path(), abi, &d, msg, sizeof(msg)) != 0)
            ADD_FAILURE() << msg;
        else
            rc = pvn_netdrv_init(d, &ctx, 0x1234, &config, logger, profiler);
    }
    Net(const Net &) = delete;
    Net &operator=(const Net &) = delete;
    ~Net()
    {
        if (d && rc == ncclSuccess) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(d, ctx));
        }
        pvn_netdrv_close(d);
    }
    ncclResult_t rc = ncclSuccess;
};

// Two comms in one process, connected to each other.
struct Pair {
    pvn_netdrv *d;
    void *lc = nullptr, *sc = nullptr, *rc = nullptr;
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};

    // redirect: lets the handle lead elsewhere, before the connector has it.
    explicit Pair(Net &n, int dev = 0, int listen_dev = -1,
                  const std::function<void(char *handle)> &redirect = {})
        : d(n.d)
    {
        if (listen_dev < 0)
            listen_dev = dev;
        EXPECT_EQ(ncclSuccess, pvn_netdrv_listen(d, n.ctx, listen_dev, handle, &lc));
        EXPECT_NE(nullptr, lc);
        if (!lc)
            return;
        if (redirect)
            redirect(handle);
        bool ok = eventually([&] {
            if (!sc && pvn_netdrv_connect(d, n.ctx, dev, handle, &sc) != ncclSuccess)
                return true;
            if (!rc && pvn_netdrv_accept(d, lc, &rc) != ncclSuccess)
                return true;
            return sc && rc;
        });
        EXPECT_TRUE(ok && sc && rc) << "no connection\n" << Log::get().text();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(d, lc));
    }
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;
    bool up() const
    {
        return sc && rc;
    }
    void close_send()
    {
        if (sc) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(d, sc));
        }
        sc = nullptr;
    }
    void close_recv()
    {
        if (rc) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(d, rc));
        }
        rc = nullptr;
    }
    void close()
    {
        close_send();
        close_recv();
    }
    ~Pair()
    {
        close();
    }
};

// A buffer with guard bytes on both sides.
struct Buffer {
    std::vector<unsigned char> v;
    size_t n;
    explicit Buffer(size_t count, unsigned seed = 0) : v(count + 128, 0xee), n(count)
    {
        if (seed)
            bytes::fill(data(), n, seed);
    }
    unsigned char *data()
    {
        return v.data() + 64;
    }
    // True if the first `count` bytes are the pattern of `seed`, and no other byte was written.
    bool holds(size_t count, unsigned seed) const
    {
        return bytes::all(v.data(), 64, 0xee) && bytes::are(&v[64], count, seed) &&
               bytes::all(&v[64 + count], v.size() - 64 - count, 0xee);
    }
};

struct Send {
    size_t size;
    int tag;
};
struct Recv {
    std::vector<size_t> sizes;
    std::vector<int> tags;
};

// Drives sends and grouped receives of one comm pair as NCCL does: it posts as many as the plugin
// takes and tests the oldest first. Every message carries its own pattern. `expect` says for each
// buffer of a receive which send, by index, must land in it.
class Flow
{
  public:
    Flow(Pair &pair, std::vector<Send> sends, std::vector<Recv> recvs,
         std::vector<std::vector<int>> expect)
        : p(pair), sends_(std::move(sends)), recvs_(std::move(recvs)), expect_(std::move(expect))
    {
        for (size_t i = 0; i < sends_.size(); i++)
            src_.emplace_back(sends_[i].size, seed(i));
        for (auto &r : recvs_) {
            dst_.emplace_back();
            for (size_t n : r.sizes)
                dst_.back().emplace_back(n);
        }
    }
    size_t window = 32;       // requests in flight at each end
    void *optional = nullptr; // initial value of irecv's request
    // The profiler's handles of send i and of buffer k of receive i.
    std::function<void *(size_t i)> send_handle = [](size_t) { return nullptr; };
    std::function<void *(size_t i, size_t k)> recv_handle = [](size_t, size_t) { return nullptr; };
    ncclResult_t error = ncclSuccess;

    bool run(int seconds = 60)
    {
        bool ok = eventually([&] { return !step() || done(); }, seconds);
        return ok && error == ncclSuccess && done();
    }
    bool done() const
    {
        return sent_ == sends_.size() && received_ == recvs_.size();
    }
    // Posts and tests once at each end. False after an error.
    bool step()
    {
        return post_sends() && post_recvs() && test_sends() && test_recvs();
    }
    size_t sent() const
    {
        return sent_;
    }
    void check()
    {
        for (size_t g = 0; g < recvs_.size(); g++)
            for (size_t i = 0; i < recvs_[g].sizes.size(); i++) {
                int k = expect_[g][i];
                EXPECT_EQ(static_cast<int>(sends_[k].size), sizes_[g][i])
                    << "receive " << g << " buffer " << i;
                EXPECT_TRUE(dst_[g][i].holds(sends_[k].size, seed(k)))
                    << "receive " << g << " buffer " << i << " message " << k;
            }
    }

  private:
    static unsigned seed(size_t i)
    {
        return static_cast<unsigned>(i * 37 + 11);
    }
    bool ok(ncclResult_t rc)
    {
        if (rc != ncclSuccess)
            error = rc;
        return rc == ncclSuccess;
    }
    bool post_sends()
    {
        while (posted_sends_ < sends_.size() && sreq_.size() < window) {
            auto &s = sends_[posted_sends_];
            void *r = nullptr;
            if (!ok(pvn_netdrv_isend(p.d, p.sc, src_[posted_sends_].data(), s.size, s.tag, nullptr,
                                     send_handle(posted_sends_), &r)))
                return false;
            if (!r)
                break;
            sreq_.push_back(r);
            posted_sends_++;
        }
        return true;
    }
    bool post_recvs()
    {
        while (posted_recvs_ < recvs_.size() && rreq_.size() < window) {
            auto &g = recvs_[posted_recvs_];
            std::vector<void *> data, handles, mh(g.sizes.size(), nullptr);
            for (size_t k = 0; k < g.sizes.size(); k++)
                handles.push_back(recv_handle(posted_recvs_, k));
            for (auto &b : dst_[posted_recvs_])
                data.push_back(b.data());
            void *r = optional;
            if (!ok(pvn_netdrv_irecv(p.d, p.rc, static_cast<int>(g.sizes.size()), data.data(),
                                     g.sizes.data(), g.tags.data(), mh.data(), handles.data(), &r)))
                return false;
            if (!r)
                break;
            rreq_.push_back(r);
            posted_recvs_++;
        }
        return true;
    }
    bool test_sends()
    {
        while (!sreq_.empty()) {
            int d = 0, size = -1;
            if (!ok(pvn_netdrv_test(p.d, sreq_.front(), &d, &size)))
                return false;
            if (!d)
                break;
            EXPECT_EQ(static_cast<int>(sends_[sent_].size), size);
            sreq_.erase(sreq_.begin());
            sent_++;
        }
        return true;
    }
    bool test_recvs()
    {
        while (!rreq_.empty()) {
            int d = 0;
            std::vector<int> sizes(recvs_[received_].sizes.size() + 1, -77);
            if (!ok(pvn_netdrv_test(p.d, rreq_.front(), &d, sizes.data())))
                return false;
            if (!d)
                break;
            EXPECT_EQ(-77, sizes.back()) << "written past the caller's sizes";
            sizes.pop_back();
            sizes_.push_back(sizes);
            rreq_.erase(rreq_.begin());
            received_++;
        }
        return true;
    }

    Pair &p;
    std::vector<Send> sends_;
    std::vector<Recv> recvs_;
    std::vector<std::vector<int>> expect_;
    std::vector<Buffer> src_;
    std::vector<std::vector<Buffer>> dst_;
    std::vector<void *> sreq_, rreq_;
    std::vector<std::vector<int>> sizes_;
    size_t posted_sends_ = 0, posted_recvs_ = 0, sent_ = 0, received_ = 0;
};

// `n` plain messages of these sizes. Each has a receive of its own that is `more` bytes longer.
inline Flow plain(Pair &p, const std::vector<size_t> &sizes, size_t more = 0)
{
    std::vector<Send> s;
    std::vector<Recv> r;
    std::vector<std::vector<int>> e;
    for (size_t i = 0; i < sizes.size(); i++) {
        s.push_back({sizes[i], 0});
        r.push_back({{sizes[i] + more}, {0}});
        e.push_back({static_cast<int>(i)});
    }
    return Flow(p, s, r, e);
}

} // namespace nccl

#endif
