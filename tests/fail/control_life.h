/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A comm's life whose control connections are cut: set-up, messages, the loss of a lane, its return,
// and the end. Each end has its thread, as in two processes, but only one of them runs at a time. A
// thread always calls another comm as well, which drives an end that nobody waits for.
#ifndef TESTS_FAIL_CONTROL_LIFE_H
#define TESTS_FAIL_CONTROL_LIFE_H

#include "abi/nccl_side.h"
#include "fail/cutter.h"
#include "rdma/plugin_route.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

extern "C" {
#include "stats/stats_read.h"
}

namespace nccl
{

// The lanes, and the loss
enum Lanes {
    TWO_ADAPTERS, // of two adapters one is lost, and comes back
    ONE_ADAPTER,  // its port goes down and up, with TCP in between
    TCP_ALONE,    // two streams of TCP; they are closed
    TCP_OUTAGE,   // the same, and they are closed together with the first cut
    LANES
};
// The requests that are open while a lane is lost or comes back
enum Open { MESSAGES, RECEIVES, SENDS, NOTHING, OPENS };
enum Closes { SENDER_FIRST, RECEIVER_FIRST, CLOSES };
// The end whose thread calls nothing for a time after the first cut
enum Asleep { NOBODY, THE_SENDER, THE_RECEIVER, ASLEEPS };

struct Plan {
    int lanes, open, closes, asleep;
    std::array<Cut, Cutter::CUTS> cut;
};

// A thread that runs a function while the caller waits for it.
class Thread
{
  public:
    Thread() : thread_([this] { loop(); })
    {
    }
    ~Thread()
    {
        run({});
        thread_.join();
    }
    void run(const std::function<void()> &job)
    {
        std::unique_lock<std::mutex> lock(m_);
        job_ = &job;
        changed_.notify_all();
        changed_.wait(lock, [&] { return !job_; });
    }

  private:
    std::mutex m_;
    std::condition_variable changed_;
    const std::function<void()> *job_ = nullptr;
    std::thread thread_;

    void loop()
    {
        std::unique_lock<std::mutex> lock(m_);
        for (bool more = true; more;) {
            changed_.wait(lock, [&] { return job_; });
            more = *job_ != nullptr;
            if (more)
                (*job_)();
            job_ = nullptr;
            changed_.notify_all();
        }
    }
};

class ControlLife
{
  public:
    std::string wrong;  // why this is no proper life; empty: it is one
    bool ended = false; // both ends have ended with an error
    std::unique_ptr<Cutter> cutter;

    explicit ControlLife(const Plan &p) : plan_(p)
    {
        switch (p.lanes) {
        case TWO_ADAPTERS:
            configure("auto", "roce", "set devices 3;set gid_tbl_len 8");
            break;
        case ONE_ADAPTER:
            configure("auto", "pvrdma", "set devices 2;set gid_tbl_len 8");
            break;
        default:
            configure("tcp", "pvrdma", "set gid_tbl_len 8");
            setenv("NCCL_PVRDMA_TCP_STREAMS", "2", 1);
        }
        if (!mkdtemp(stats_))
            abort();
        setenv("NCCL_PVRDMA_STATS_DIR", stats_, 1);
        net_ = std::make_unique<Net>(12);
        live();
        std::filesystem::remove_all(stats_);
        if (!wrong.empty())
            return;
        if (ended && Log::get().warnings().empty())
            wrong = "it ended without a reason";
        for (Side *x : {&s_, &r_})
            x->other.reset();
        net_.reset();
    }

  private:
    static constexpr int WINDOW = 4; // messages that are open at once
    static constexpr size_t LARGEST = 40000;
    static constexpr int DEADLINE_S =
        45; // a path that is avoided is tried again after 10 s, then 20 s

    static constexpr std::chrono::milliseconds LATELY{2500};

    struct Side {
        explicit Side(bool is_sender) : sends(is_sender)
        {
        }
        const bool sends;
        void *comm = nullptr, *mh = nullptr;
        bool failed = false;
        std::vector<unsigned char> memory = std::vector<unsigned char>(WINDOW * LARGEST);
        int posted = 0, done = 0, limit = 0; // messages
        std::array<void *, WINDOW> request{};
        std::unique_ptr<Route> other; // its receive waits all the time
        void *other_request = nullptr;
        Thread thread;

        unsigned char *buffer(int message)
        {
            return &memory[message % WINDOW * LARGEST];
        }
        bool is_over() const
        {
            return failed || done == limit;
        }
    };

    const Plan plan_;
    sv::ForPlugin softverbs_;
    char stats_[32] = "/tmp/pvn-control-life.XXXXXX";
    std::unique_ptr<Net> net_;
    void *listener_ = nullptr;
    alignas(8) char handle_[NCCL_NET_HANDLE_MAXSIZE] = {};
    Side s_{true}, r_{false};
    bool up_ = false;     // both ends are, or have been
    bool outage_ = false; // it has been

    static void configure(const char *transport, const char *profile, const char *set)
    {
        setenv("NCCL_PVRDMA_TRANSPORT", transport, 1);
        sv::ForPlugin::play(profile, set);
    }
    static size_t size_of(int message)
    {
        static const size_t sizes[] = {8, LARGEST, 5000, 0, 64, 1, 20000};
        return sizes[message % 7];
    }
    void take(Side &x, ncclResult_t rc)
    {
        x.failed |= rc != ncclSuccess;
    }
    bool is_awake(const Side &x) const
    {
        return !up_ || plan_.asleep != (x.sends ? THE_SENDER : THE_RECEIVER) ||
               !cutter->has_cut_within(LATELY);
    }
    // Makes both ends' calls until `enough`, or until it is clear that something hangs.
    void until(const char *step, const std::function<void(Side &)> &calls,
               const std::function<bool()> &enough)
    {
        if (!wrong.empty())
            return;
        const bool ok = eventually(
            [&] {
                const int moved = s_.done + r_.done;
                if (enough() || !wrong.empty())
                    return true;
                for (Side *x : {&s_, &r_})
                    if (is_awake(*x))
                        x->thread.run([&] {
                            calls(*x);
                            call_other(*x);
                        });
                cutter->step();
                if (plan_.lanes == TCP_OUTAGE && cutter->has_cut_within(LATELY) && !outage_) {
                    outage_ = true;
                    close_streams();
                }
                // Most of a life is waiting.
                std::this_thread::sleep_for(
                    std::chrono::microseconds(moved == s_.done + r_.done ? 2000 : 100));
                return false;
            },
            DEADLINE_S);
        if (!ok)
            wrong = std::string("it hangs: ") + step + "; sent " + std::to_string(s_.done) +
                    " of " + std::to_string(s_.posted) + (s_.failed ? " and failed" : "") +
                    ", received " + std::to_string(r_.done) + " of " + std::to_string(r_.posted) +
                    (r_.failed ? " and failed" : "");
    }
    void begin_other(Side &x)
    {
        const int last[LANES] = {2, 1, 0, 0}; // adapters that are not lost
        x.other = std::make_unique<Route>(*net_, last[plan_.lanes], last[plan_.lanes]);
        void *data = x.other->dst.data();
        size_t size = x.other->size;
        int tag = 0;
        eventually([&] {
            pvn_netdrv_irecv(net_->d, x.other->p.rc, 1, &data, &size, &tag, &x.other->rmh, nullptr,
                             &x.other_request);
            return x.other_request != nullptr;
        });
    }
    void call_other(Side &x)
    {
        int done = 0;
        if (!x.other_request ||
            pvn_netdrv_test(net_->d, x.other_request, &done, nullptr) != ncclSuccess || done)
            wrong = "another comm is disturbed";
    }
    void set_up()
    {
        const int dev = plan_.lanes == TWO_ADAPTERS ? joined(*net_, 2) : 0;
        if (pvn_netdrv_listen(net_->d, net_->ctx, dev, handle_, &listener_) != ncclSuccess) {
            wrong = "it does not listen";
            return;
        }
        cutter = std::make_unique<Cutter>(handle_, plan_.cut);
        until(
            "set-up",
            [&](Side &x) {
                if (!x.comm && !x.failed)
                    take(x, x.sends ? pvn_netdrv_connect(net_->d, net_->ctx, dev, handle_, &x.comm)
                                    : pvn_netdrv_accept(net_->d, listener_, &x.comm));
            },
            [&] { return (s_.comm || s_.failed) && (r_.comm || r_.failed); });
        up_ = s_.comm && r_.comm;
        for (Side *x : {&s_, &r_})
            if (x->comm)
                take(*x, pvn_netdrv_reg_mr(net_->d, x->comm, x->memory.data(), x->memory.size(),
                                           NCCL_PTR_HOST, &x->mh));
    }
    void post(Side &x)
    {
        void **request = &x.request[x.posted % WINDOW], *data = x.buffer(x.posted);
        size_t size = size_of(x.posted), room = LARGEST;
        int tag = 0;
        *request = nullptr;
        if (x.sends) {
            bytes::fill(data, size, x.posted + 1);
            take(x, pvn_netdrv_isend(net_->d, x.comm, data, size, 0, x.mh, nullptr, request));
        } else {
            memset(data, 0xee, LARGEST);
            take(x,
                 pvn_netdrv_irecv(net_->d, x.comm, 1, &data, &room, &tag, &x.mh, nullptr, request));
        }
        x.posted += *request != nullptr;
    }
    void test(Side &x)
    {
        int now = 0, size = -1;
        take(x, pvn_netdrv_test(net_->d, x.request[x.done % WINDOW], &now, &size));
        if (!now)
            return;
        const int m = x.done++;
        if (static_cast<size_t>(size) != size_of(m) ||
            (!x.sends && (!bytes::are(x.buffer(m), size, m + 1) ||
                          !bytes::all(x.buffer(m) + size, LARGEST - size, 0xee))))
            wrong = "message " + std::to_string(m) + " is wrong";
    }
    void call(Side &x)
    {
        if (!x.failed && x.comm && x.posted < x.limit && x.posted - x.done < WINDOW)
            post(x);
        if (!x.failed && x.comm && x.done < x.posted)
            test(x);
    }
    bool both_over() const
    {
        return s_.is_over() && r_.is_over();
    }
    // Moves messages, so that each end has had `limit` of them in the end.
    void move(const char *step, int limit)
    {
        s_.limit = r_.limit = limit;
        until(
            step, [&](Side &x) { call(x); }, [&] { return both_over(); });
        ended = s_.failed && r_.failed;
        if (wrong.empty() && s_.failed != r_.failed)
            wrong = std::string(step) + ": one end failed, and the other did not";
    }
    // True if this end has had other lanes since then, and has those with all of these words now. The statistics say so;
    // the log folds lines that repeat.
    bool has_lanes(const Side &x, uint64_t since, const std::vector<const char *> &words) const
    {
        bool found = false;
        for (const auto &file : std::filesystem::directory_iterator(stats_)) {
            pvn_stats all = {};
            if (pvn_stats_read(file.path().c_str(), &all, nullptr) != 0)
                continue;
            for (int i = 0; i < all.nrows; i++) {
                const pvn_stat_row &r = all.row[i];
                const std::string lanes = r.lanes;
                found |= r.phase == PVN_STAT_UP && r.sender == x.sends && r.n.changed_ns > since &&
                         std::all_of(words.begin(), words.end(), [&](const char *w) {
                             return lanes.find(w) != std::string::npos;
                         });
            }
            pvn_stats_free(&all);
        }
        return found;
    }
    // Waits until both ends have other lanes. The requests that the plan names are open meanwhile.
    // most: for so many seconds at most, since lanes that are lost may not be in use after a cut.
    void change_lanes(const char *step, const std::function<void()> &change,
                      const std::vector<const char *> &words, int most = 0)
    {
        const int begin = s_.done;
        const Deadline wait(most);
        uint64_t since = 0, looks = 0;
        if (!wrong.empty() || ended)
            return;
        s_.limit = begin + (plan_.open == SENDS ? WINDOW / 2 : 0);
        r_.limit = begin + (plan_.open == RECEIVES ? WINDOW / 2 : 0);
        int calls = 0;
        until(
            step, [&](Side &x) { call(x); }, [&] { return calls++ == 20; });
        since = pvn_now_ns();
        change();
        until(
            step,
            [&](Side &x) {
                if (plan_.open == MESSAGES && s_.done == s_.limit && r_.done == r_.limit)
                    r_.limit = s_.limit += 2;
                call(x);
            },
            [&] {
                return s_.failed || r_.failed || (most && !wait.left()) ||
                       (++looks % 8 == 0 && has_lanes(s_, since, words) &&
                        has_lanes(r_, since, words));
            });
        move(step, std::max(s_.limit, r_.limit));
    }
    // Closes the data sockets: those of the plugin that lead to the listener itself.
    void close_streams() const
    {
        for (int fd : descriptors()) {
            sockaddr_in peer = {};
            socklen_t len = sizeof(peer), n = sizeof(int);
            int alive = 0; // the proxy's sockets are not kept alive
            if (getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &len) == 0 &&
                ntohs(peer.sin_port) == cutter->listener_port() &&
                getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &alive, &n) == 0 && alive)
                shutdown(fd, SHUT_RDWR);
        }
    }
    void command(const char *text)
    {
        if (sv::command(text) != 0)
            wrong = std::string("softverbs refuses: ") + text;
    }
    void lose()
    {
        if (plan_.lanes >= TCP_ALONE)
            close_streams();
        else
            command(plan_.lanes == TWO_ADAPTERS ? "fatal mlx5_1" : "port vmw_pvrdma0 1 down");
    }
    void bring_back()
    {
        command(plan_.lanes == TWO_ADAPTERS ? "renew mlx5_1" : "port vmw_pvrdma0 1 up");
    }
    void close(Side &x)
    {
        if (!x.comm)
            return;
        if (x.mh)
            take(x, pvn_netdrv_dereg_mr(net_->d, x.comm, x.mh));
        take(x, x.sends ? pvn_netdrv_close_send(net_->d, x.comm)
                        : pvn_netdrv_close_recv(net_->d, x.comm));
        x.comm = nullptr;
    }
    // One end closes as soon as it is done, from another thread, and the other one finishes.
    void finish()
    {
        Side &first = plan_.closes == SENDER_FIRST ? s_ : r_;
        Side &last = plan_.closes == SENDER_FIRST ? r_ : s_;
        s_.limit = r_.limit = s_.done + 3;
        until(
            "last messages",
            [&](Side &x) {
                if (!first.is_over())
                    call(x);
            },
            [&] { return first.is_over() || last.failed; });
        std::atomic<bool> closed{false};
        std::thread closer([&] {
            close(first);
            closed = true;
        });
        until(
            "last messages", [&](Side &x) { x.sends == last.sends ? call(x) : (void)0; },
            [&] { return last.is_over(); });
        if (!eventually([&] { return closed.load(); }, DEADLINE_S)) {
            wrong += " it hangs: close";
            closer.detach(); // the process ends
            return;
        }
        closer.join();
        // The proxy is to see one GOODBYE after the other.
        eventually([&] { return cutter->messages().back().type == PVN_FRAME_GOODBYE; }, 2);
        close(last);
        if (wrong.empty() && (s_.failed || r_.failed))
            wrong = "the end: an end failed";
    }
    void live()
    {
        for (Side *x : {&s_, &r_})
            x->thread.run([&] { begin_other(*x); });
        set_up();
        move("first messages", 6);
        change_lanes(
            "a lane is lost", [&] { lose(); }, {}, 8);
        if (plan_.lanes == TWO_ADAPTERS)
            change_lanes("it comes back", [&] { bring_back(); }, {"mlx5_0", "mlx5_1"});
        if (plan_.lanes == ONE_ADAPTER)
            change_lanes("it comes back", [&] { bring_back(); }, {"rdma on"});
        if (wrong.empty() && !ended)
            finish();
        else if (wrong.empty())
            for (Side *x : {&s_, &r_})
                close(*x);
        if (wrong.empty() && pvn_netdrv_close_listen(net_->d, listener_) != ncclSuccess)
            wrong = "the listener is not closed";
    }
};

} // namespace nccl

#endif
