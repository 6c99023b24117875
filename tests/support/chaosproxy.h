/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A TCP proxy that misbehaves on purpose, for tests of everything that speaks over sockets: it
// stands on a loopback address before a real listener and forwards every connection, with the
// faults that the test requested. Every fault has a counter, so that a test can assert that it
// fired.
//
//     ChaosProxy proxy(listener_address, [](int conn, ChaosFault fault[2]) {
//         fault[ChaosProxy::kToServer].max_write = 1;               // byte by byte
//         if (conn == 2) fault[ChaosProxy::kToClient].reset_at = 100;
//     });
//     ... the client dials proxy.address() ...
//     EXPECT_EQ(1u, proxy.counters(2, ChaosProxy::kToClient).resets);
//
// One thread serves all connections; the destructor ends it and resets what is still open. All
// methods may be called by any thread.
#ifndef PVN_TESTS_SUPPORT_CHAOSPROXY_H
#define PVN_TESTS_SUPPORT_CHAOSPROXY_H

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

// The fault of one direction of one connection. Positions count the bytes of that direction from 0:
// exactly that many are delivered before the fault.
struct ChaosFault {
    static constexpr uint64_t kNever = UINT64_MAX;

    size_t max_write = 0;             // bytes per write to the destination; 0: as they come
    std::chrono::microseconds gap{0}; // pause after each write
    unsigned seed = 0; // not 0: sizes of writes (1 .. max_write or 4096) and gaps (0 .. gap)
                       // are random, so that streams overtake each other

    uint64_t stall_at = kNever;             // stop reading and writing there ...
    std::chrono::milliseconds stall_for{0}; // ... for this long; 0: without end (a black hole)
    uint64_t swallow_at = kNever;    // read and acknowledge, but deliver nothing from there on
    uint64_t half_close_at = kNever; // end of stream for the destination; what follows is swallowed
    uint64_t reset_at = kNever;      // RST to both ends
    uint64_t flip_at = kNever;       // the lowest bit of this byte is inverted
};

struct ChaosCounters {
    uint64_t bytes = 0;  // delivered to the destination
    uint64_t writes = 0; // in how many writes
    uint64_t swallowed = 0;
    unsigned stalls = 0, half_closes = 0, resets = 0, flips = 0;
    unsigned holds = 0; // times that hold() stopped bytes that were there
};

class ChaosProxy
{
  public:
    enum Direction { kToServer = 0, kToClient = 1 };
    using Plan = std::function<void(int conn, ChaosFault fault[2])>;

    // Listens at a free port of the target's loopback family (127.0.0.1 or ::1). The plan is called
    // once per connection, in the order in which they come (conn counts from 0), by the proxy's
    // thread; it must not call the proxy.
    explicit ChaosProxy(const sockaddr_storage &target, Plan plan = {});
    ~ChaosProxy();
    ChaosProxy(const ChaosProxy &) = delete;
    ChaosProxy &operator=(const ChaosProxy &) = delete;

    sockaddr_storage address() const;
    uint16_t port() const;

    int connections() const; // accepted so far
    int open() const;        // of these, not yet closed
    ChaosCounters counters(int conn, Direction dir) const;
    ChaosCounters total(Direction dir) const;

    // Other faults from now on; positions count from the bytes that have been delivered so far.
    // conn -1: all there are.
    void set(int conn, Direction dir, const ChaosFault &fault);
    // Stops one direction of a connection, or lets it go on. conn -1: of all there are and will be.
    void hold(int conn, Direction dir, bool on);
    // Now, instead of at a byte. conn -1: all there are.
    void reset(int conn);
    void half_close(int conn, Direction dir);
    // New connections are accepted and reset at once, as by a server that has died.
    void refuse(bool on);
    unsigned refused() const;
    // Later connections go there.
    void retarget(const sockaddr_storage &target);

    // Waits until `done` is true, looking often; false when it did not become so in `timeout`.
    static bool wait_for(const std::function<bool()> &done,
                         std::chrono::milliseconds timeout = std::chrono::seconds(20));

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

#endif
