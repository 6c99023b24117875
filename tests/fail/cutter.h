/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A proxy for the control connections of one comm, which cuts them at chosen messages.
#ifndef TESTS_FAIL_CUTTER_H
#define TESTS_FAIL_CUTTER_H

#include "support/handle_proxy.h"

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace nccl
{

enum Form {
    LOST_RESET,  // the message is lost, and both ends are reset
    LOST_CLOSED, // it is lost, and both ends see the end of the stream
    LOST_LATER,  // it and all that follows are lost, in both directions, and a reset comes later
    PART_RESET,  // half of it comes, and both ends are reset
    READ_RESET,  // it comes, and both ends are reset
    READ_CLOSED, // it comes, and both ends see the end of the stream
    FORMS
};

// A cut at message number `at` of direction `dir`. A second cut counts the messages on connections
// that began after the first one.
struct Cut {
    int dir = 0;
    int at = -1; // -1: none
    int form = LOST_RESET;
};

class Cutter
{
  public:
    struct Message {
        int conn = -1, dir = 0, type = 0;
    };
    enum { CUTS = 2 };

    // handle: the listener's; it leads to the proxy from now on.
    Cutter(char *handle, const std::array<Cut, CUTS> &cuts) : cuts_(cuts)
    {
        pvn_handle h = {};
        pvn_handle_decode(reinterpret_cast<uint8_t *>(handle), PVN_HANDLE_BYTES, &h, nullptr);
        port_ = h.addr.port;
        proxy_ = proxy_of_handle(handle, [this](int conn, ChaosProxy::Direction dir, uint64_t,
                                                const char *more, size_t n, ChaosFault *fault[2]) {
            look(conn, dir, {more, n}, fault);
        });
    }
    uint16_t listener_port() const
    {
        return port_;
    }
    // Resets what is to be reset later. Called again and again.
    void step()
    {
        std::unique_lock<std::mutex> lock(m_);
        for (int i = 0; i < done_; i++)
            if (cuts_[i].form == LOST_LATER && !reset_[i] &&
                std::chrono::steady_clock::now() > since_[i] + kLater) {
                reset_[i] = true;
                lock.unlock(); // look() is called with the proxy's lock held
                proxy_->reset(fired_[i].conn);
                lock.lock();
            }
    }
    std::vector<Message> messages()
    {
        std::lock_guard<std::mutex> lock(m_);
        return seen_;
    }
    // The message of cut number i; its conn is -1 if the fault has not fired. An end may close the
    // connection itself as soon as it has a message that comes.
    Message fired(int i)
    {
        Message at;
        uint64_t end = 0;
        {
            std::lock_guard<std::mutex> lock(m_);
            at = i < done_ ? fired_[i] : Message();
            end = end_[i];
        }
        const ChaosCounters c =
            proxy_->counters(at.conn, static_cast<ChaosProxy::Direction>(at.dir));
        const bool has_come = cuts_[i].form >= READ_RESET && c.bytes == end;
        return at.conn >= 0 && (c.resets + c.half_closes + c.swallowed > 0 || has_come) ? at
                                                                                        : Message();
    }
    // True if the first cut was made less than this time ago.
    bool has_cut_within(std::chrono::milliseconds time)
    {
        std::lock_guard<std::mutex> lock(m_);
        return done_ > 0 && std::chrono::steady_clock::now() < since_[0] + time;
    }
    // Number of connections that had begun when the first cut was made.
    int before_the_cut()
    {
        std::lock_guard<std::mutex> lock(m_);
        return begun_;
    }

  private:
    static constexpr std::chrono::milliseconds kLater{400};
    // One direction of a connection
    struct Stream {
        std::string part;   // bytes of the message that is coming in
        uint64_t begin = 0; // its position
        bool counted = false;
        uint64_t features = 0; // of the HELLO
        uint64_t end() const
        {
            return begin + part.size();
        }
    };

    // True if this is made to become a control connection, and nothing else.
    bool replaces_control(int conn) const
    {
        return streams_[conn][ChaosProxy::kToServer].features & PVN_FEATURE_CONTROL;
    }
    void look(int conn, int dir, const std::string &more, ChaosFault *fault[2])
    {
        std::lock_guard<std::mutex> lock(m_);
        if (streams_.size() <= static_cast<size_t>(conn))
            streams_.resize(conn + 1);
        Stream &s = streams_[conn][dir];
        s.part += more;
        for (;;) {
            const size_t preamble =
                dir == ChaosProxy::kToServer && s.begin == 0 ? PVN_PREAMBLE_BYTES : 0;
            const auto *header = reinterpret_cast<const uint8_t *>(s.part.data()) + preamble;
            pvn_frame_header h = {};
            if (s.part.size() < preamble + PVN_FRAME_HEADER_BYTES ||
                pvn_frame_header_decode(header, &h, nullptr) != 0)
                return;
            const size_t size = preamble + PVN_FRAME_HEADER_BYTES + h.len;
            // Other BEATs only say that the set-up is slow. An ERROR comes where an attempt took too long.
            if (!s.counted && h.type != PVN_FRAME_ERROR &&
                (h.type != PVN_FRAME_BEAT || replaces_control(conn)))
                count({conn, dir, h.type}, size, fault);
            s.counted = s.part.size() < size;
            if (s.counted)
                return;
            pvn_hello hello = {};
            if (h.type == PVN_FRAME_HELLO &&
                pvn_hello_decode(header + PVN_FRAME_HEADER_BYTES, h.len, &hello, nullptr) == 0)
                s.features = hello.features;
            s.part.erase(0, size);
            s.begin += size;
        }
    }
    void count(const Message &m, size_t size, ChaosFault *fault[2])
    {
        seen_.push_back(m);
        if (done_ == CUTS || cuts_[done_].at < 0 || cuts_[done_].dir != m.dir ||
            (done_ > 0 && m.conn < begun_) || numbers_[m.dir]++ != cuts_[done_].at)
            return;
        const Stream &s = streams_[m.conn][m.dir], &back = streams_[m.conn][!m.dir];
        ChaosFault &f = *fault[m.dir], &other = *fault[!m.dir];
        switch (cuts_[done_].form) {
        case LOST_RESET:
            f.reset_at = s.begin;
            break;
        case LOST_CLOSED:
            f.half_close_at = s.begin;
            other.half_close_at = back.end();
            break;
        case LOST_LATER:
            f.swallow_at = s.begin;
            other.swallow_at = back.end();
            break;
        case PART_RESET:
            f.reset_at = s.begin + size / 2;
            break;
        case READ_RESET:
            f.reset_at = s.begin + size;
            break;
        default: // READ_CLOSED
            f.half_close_at = s.begin + size;
            other.half_close_at = back.end();
        }
        fired_[done_] = m;
        end_[done_] = s.begin + size;
        since_[done_] = std::chrono::steady_clock::now();
        if (done_ == 0)
            begun_ = static_cast<int>(streams_.size());
        numbers_ = {};
        done_++;
    }

    const std::array<Cut, CUTS> cuts_;
    uint16_t port_ = 0;
    std::mutex m_; // guards the members below but the proxy
    std::vector<std::array<Stream, 2>> streams_;
    std::vector<Message> seen_;
    std::array<int, 2> numbers_{}; // of the next message, by direction
    int done_ = 0, begun_ = 0;
    std::array<Message, CUTS> fired_;
    std::array<uint64_t, CUTS> end_{}; // of that message
    std::array<std::chrono::steady_clock::time_point, CUTS> since_;
    std::array<bool, CUTS> reset_{};
    std::unique_ptr<ChaosProxy> proxy_;
};

} // namespace nccl

#endif
