/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A TCP proxy that misbehaves on purpose, for tests of everything that uses sockets. It listens on
// a loopback address in front of a real listener and forwards every connection, with the faults
// that the test requests. Every fault has a counter, so that a test can assert that it occurred.
//
//     ChaosProxy proxy(listener_address, [](int conn, ChaosFault fault[2]) {
//         fault[ChaosProxy::kToServer].max_write = 1;               // byte by byte
//         if (conn == 2) fault[ChaosProxy::kToClient].reset_at = 100;
//     });
//     ... the client dials proxy.address() ...
//     EXPECT_EQ(1u, proxy.counters(2, ChaosProxy::kToClient).resets);
//
// One thread serves all connections. The destructor ends it and resets connections that are still
// open. Any thread may call any method.
#ifndef PVN_TESTS_SUPPORT_CHAOSPROXY_H
#define PVN_TESTS_SUPPORT_CHAOSPROXY_H

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

// The faults of one direction of one connection. Positions count the bytes of that direction from
// 0. Exactly that many bytes are delivered before the fault.
struct ChaosFault {
    static constexpr uint64_t kNever = UINT64_MAX;

    size_t max_write = 0;             // bytes per write to the destination; 0: as they come
    std::chrono::microseconds gap{0}; // pause after each write
    unsigned seed = 0; // not 0: sizes of writes (1 .. max_write or 4096) and gaps (0 .. gap)
                       // are random, so that streams overtake each other

    uint64_t stall_at = kNever;             // stop reading and writing there ...
    std::chrono::milliseconds stall_for{0}; // ... for this long; 0: without end (a black hole)
    uint64_t swallow_at = kNever;    // from here on, read and acknowledge, but deliver nothing
    uint64_t half_close_at = kNever; // end of stream for the destination; what follows is swallowed
    uint64_t reset_at = kNever;      // RST to both ends
    uint64_t flip_at = kNever;       // the lowest bit of this byte is inverted
};

struct ChaosCounters {
    uint64_t bytes = 0;  // delivered to the destination
    uint64_t writes = 0; // number of writes
    uint64_t swallowed = 0;
    unsigned stalls = 0, half_closes = 0, resets = 0, flips = 0;
    unsigned holds = 0; // times that hold() stopped waiting bytes
};

class ChaosProxy
{
  public:
    enum Direction { kToServer = 0, kToClient = 1 };
    using Plan = std::function<void(int conn, ChaosFault fault[2])>;
    // Sees bytes that have come and are not delivered yet. They begin at position `at` of their
    // direction. It may set faults, whose positions count from the connection's first byte.
    using Look = std::function<void(int conn, Direction dir, uint64_t at, const char *bytes,
                                    size_t n, ChaosFault *fault[2])>;

    // Listens on a free port of the target's loopback family (127.0.0.1 or ::1). The proxy's thread
    // calls the plan once per connection, in the order in which they arrive (conn counts from 0).
    // It calls `look` for all that comes. Neither may call the proxy.
    explicit ChaosProxy(const sockaddr_storage &target, Plan plan = {}, Look look = {});
    ~ChaosProxy();
    ChaosProxy(const ChaosProxy &) = delete;
    ChaosProxy &operator=(const ChaosProxy &) = delete;

    sockaddr_storage address() const;
    uint16_t port() const;

    int connections() const; // accepted so far
    int open() const;        // of these, not yet closed
    ChaosCounters counters(int conn, Direction dir) const;
    ChaosCounters total(Direction dir) const;

    // Replaces the faults. Positions count from the bytes delivered so far. conn -1: all present
    // connections.
    void set(int conn, Direction dir, const ChaosFault &fault);
    // Stops one direction of a connection, or lets it go on. conn -1: all present and future
    // connections.
    void hold(int conn, Direction dir, bool on);
    // Resets a connection now, not at a byte. conn -1: all present connections.
    void reset(int conn);
    void half_close(int conn, Direction dir);
    // Accepts new connections and resets them at once, like a server whose process has died.
    void refuse(bool on);
    unsigned refused() const;
    // Forwards later connections to this target.
    void retarget(const sockaddr_storage &target);

    // Polls `done` until it is true. False if it did not become true within `timeout`.
    static bool wait_for(const std::function<bool()> &done,
                         std::chrono::milliseconds timeout = std::chrono::seconds(20));

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

#endif
