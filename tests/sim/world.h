/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A simulated network for the message engine: a virtual clock, one seed, and a checker.
//
// Two engines, one sending and one receiving, are joined by 1 to 4 simulated lanes. A lane delays
// packets, reorders them between its streams and between lanes, refuses posts, repeats events,
// invents stale ones, and can die. The simulated adapter reads a sender's bytes late, and writes a
// receiver's bytes in two halves with time between them. So a buffer that is released too early
// shows up as damage.
#ifndef PVN_TESTS_SIM_WORLD_H
#define PVN_TESTS_SIM_WORLD_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "engine/engine.h"
}

namespace sim
{

// SplitMix64, because a world draws some thousand numbers. A generator with a large state would
// take a third of its run time.
class Random
{
    uint64_t at;

  public:
    using result_type = uint64_t;
    explicit Random(uint64_t seed) : at(seed * 0xd1342543de82ef95u)
    {
    }
    static constexpr result_type min()
    {
        return 0;
    }
    static constexpr result_type max()
    {
        return UINT64_MAX;
    }
    result_type operator()()
    {
        uint64_t z = at += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
};

struct World;

// A posted buffer with guards on both sides. It counts how often each of its bytes was written.
struct Buffer {
    static constexpr size_t guard = 16;
    static constexpr uint8_t fill = 0xC3;
    std::vector<uint8_t> mem;
    std::vector<uint16_t> count;
    size_t size;
    uint32_t key;
    bool open = false;

    Buffer(size_t n, uint32_t k)
        : mem(n + 2 * guard, fill), count(n + 2 * guard, 0), size(n), key(k)
    {
    }
    uint8_t *data()
    {
        return mem.data() + guard;
    }
};

// A seed's decisions about the network.
struct Knobs {
    bool cts = false;
    bool places = false;   // with cts: the receiver's lane finds the buffers, as a TCP lane does
    bool own_kick = false; // lanes set kick_due by themselves, as RDMA lanes do
    int lanes = 1, streams = 1;
    int capacity = 8;      // posts a lane holds
    int refuse_pct = 0;    // posts refused at random
    int repeat_pct = 0;    // events repeated
    int stale_pct = 0;     // polls that invent an event
    int dup_frame_pct = 0; // lanes that place: a chunk sent twice on its stream
    // percentage of sends that are reported much later than they are delivered
    int late_ack_pct = 0;
    // chunks of at least this size are lost, and the lane dies of it; 0: none
    size_t lost_from = 0;
    bool lost_forth = false, lost_back = false; // data; entries and acknowledgements
    uint64_t max_delay = 1000;
    uint64_t death_at = 0; // virtual time at which one of the next lanes dies; 0: never
    int death_lane = 0;
    size_t chunk = 256;
    bool delivered = false; // a send completes when the receiver has the bytes; lanes are replaced
    bool keeps = false;     // with delivered: small messages complete when a lane has read them
    bool outlives = false;  // the engine must outlive its lanes, which it can only if delivered
};

// A packet on the wire, or half written at the receiver.
struct Packet {
    uint64_t arrive = 0;
    pvn_frame f = {};
    std::vector<uint8_t> bytes;
    uint64_t raddr = 0;
    uint32_t rkey = 0;
    bool is_cts = false;
    pvn_cts cts = {};
    uint64_t slot = 0;
    uint8_t *dst = nullptr;
    bool placed = false, half = false;
    uint32_t cookie = 0; // the sender's
};

// A post whose bytes the adapter has not read yet.
struct Pending {
    uint64_t at = 0;
    pvn_write w = {};
    size_t stream = 0;
};

struct Lane {
    pvn_lane base = {}; // first: what the engine sees
    World *world = nullptr;
    Lane *peer = nullptr;
    std::deque<Pending> pending;
    std::vector<std::deque<Packet>> wire;              // arriving here, by stream
    std::deque<std::pair<uint64_t, pvn_event>> events; // to be reported here, by time
    std::vector<uint64_t> last; // arrival time of the last packet sent from here, per stream
    std::deque<pvn_cts> cts_store;
    std::deque<const pvn_cts *> cts_held;                    // arrived, but not taken
    uint64_t next_slot = 0;                                  // the slot whose entry arrives next
    uint32_t changes = 0;                                    // changes while events are waiting
    std::vector<std::pair<uint32_t, const void *>> flushing; // at the receiver, not reported yet
    uint64_t death_at = 0;                                   // 0: never
    bool fenced = false; // no more data land; data that landed are still reported
};

struct World {
    Random rnd;
    uint64_t clock = 1;
    Knobs k;
    std::vector<std::unique_ptr<Lane>> tx, rx, old; // old: lanes that were replaced
    pvn_engine *etx = nullptr, *erx = nullptr;
    std::map<uintptr_t, Buffer *> buffers; // posted buffers, by the address of their first byte
    std::string violation;                 // the first broken promise
    uint64_t repeats = 0, stales = 0, dups = 0, refusals = 0, deaths = 0; // faults that fired
    // slots that the engine took; SENT events that report several ends
    uint64_t slots = 0, runs = 0;
    uint64_t taken = 0;       // TAKEN events
    uint64_t watches = 0;     // polls that found nothing and said what they watch
    uint64_t flushes = 0;     // flushes that lanes took
    uint64_t lost_chunks = 0; // including entries and acknowledgements

    explicit World(uint64_t seed) : rnd(seed)
    {
    }
    ~World();
    World(const World &) = delete;

    void open(); // after k is set
    void fence(std::vector<std::unique_ptr<Lane>> &end);
    void replace(); // replaces lanes, after k was set again; the engines go on when resumed
    // Closes an end with its lanes. The lanes of the other end die within `after`.
    void close(bool sender, uint64_t after);
    bool is_flushing(const void *addr) const; // some lane has not reported it
    static std::vector<pvn_lane *> bases(const std::vector<std::unique_ptr<Lane>> &end);
    void tick(); // time passes, and adapters read due posts
    // The only function that writes a simulated byte to memory. It checks that the byte lies in an
    // open buffer and that the key matches, and counts it.
    void write(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key);
    void broken(const std::string &what);
    uint64_t pick(uint64_t n); // 0 .. n-1
    bool chance(int pct);

  private:
    void new_lanes();
    void check_live(const pvn_engine *e);
};

} // namespace sim

#endif
