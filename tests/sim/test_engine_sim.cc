// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The engine on the simulated network, seed by seed.
//
// PVN_SIM_SEEDS=N   how many seeds (default 100000; 4000 under a sanitizer)
// PVN_SIM_FIRST=N   first seed (default 1)
// PVN_SIM_SEED=N    this seed alone, to repeat a failure
#include "sim/shares.h"
#include "sim/totals.h"
#include "sim/world.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>

extern "C" {
#include "support/engine_calls.h"
}

using sim::Buffer;
using sim::from_env;
using sim::Share;
using sim::Totals;
using sim::World;

namespace
{

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t default_seeds = 4000;
#else
constexpr uint64_t default_seeds = 100000;
#endif
constexpr long max_steps = 200000;

struct Message {
    std::vector<uint8_t> bytes;  // what the sender's buffer holds; wiped when its send completes
    std::vector<uint8_t> expect; // what must arrive
    int tag = 0;
    size_t window = 0; // messages of one window may be sent in any order
    pvn_req *req = nullptr;
    bool posted = false, done = false;
};

struct Group {
    std::vector<size_t> msgs; // by buffer
    std::vector<std::unique_ptr<Buffer>> buf;
    std::vector<pvn_mr> mr;
    pvn_req *req = nullptr, *flush = nullptr;
    bool posted = false, done = false, to_flush = false;
};

class Trial
{
  public:
    explicit Trial(uint64_t seed) : w(seed)
    {
        choose_network();
        choose_traffic();
        w.open();
    }
    std::string go(); // "" or the broken promise
    void add(Totals &t) const;

  private:
    void choose_network();
    void choose_lanes();
    void choose_death();
    void drive_failover();
    void fence_ends();
    void acknowledge();
    void bring_lanes();
    void resume_sender();
    void resume_receiver();
    void choose_traffic();
    void choose_group(size_t n);
    void choose_send_order(const std::vector<size_t> &group);
    void post_receive();
    void post_send();
    void let_another_rank_send();
    void choose_sleep();
    bool is_awake(bool sender) const;
    void close_with_everything();
    void pause(bool sender);
    void test_receives();
    void test_sends();
    void help_sender();
    void end_of_copies();
    void flush(Group &g);
    void test_flush(Group &g);
    void close_an_end();
    std::string after_close();
    void complete(Group &g, const size_t *sizes);
    bool finished() const;
    std::string verdict(long steps) const;

    World w;
    std::vector<Message> msgs;
    std::vector<Group> groups;
    std::vector<size_t> order; // in which messages are sent
    size_t next_send = 0, next_group = 0;
    bool tx_failed = false, rx_failed = false;
    int receive_pct = 60;    // percentage of steps that post a receive
    size_t depth = SIZE_MAX; // receives that are open at once at most
    bool many = false;
    int gpu_pct = 0;      // percentage of buffers in GPU memory, whose receives are flushed
    long close_at = 0;    // the step at which an end is closed; 0: none
    int close_stage = -1; // or the stage of a failover at which it is closed
    bool closes_early = false, closed = false;

    // An end that is away makes no call; adapters and the network go on.
    int sleep_pct = 0;
    long step = 0, away[2] = {}; // sender, receiver: the step at which it is back

    // Progress of a failover. engine.h has the steps.
    enum { RUNNING, REPORTED_DEAD, FENCING, CONNECTED, REPORTED, ANSWERED } stage = RUNNING;
    bool tx_fenced = false, rx_fenced = false;
    int losses_left = 0;
    pvn_engine_report report = {};
    pvn_engine_answer answer = {};
    uint64_t failovers = 0, switches = 0, lost_answers = 0, acknowledged = 0;
    uint64_t helped = 0;
    uint64_t sleeps = 0, overtakes = 0, farther = 0;
};

// Chooses the lanes, at the start and after each failover.
void Trial::choose_lanes()
{
    auto &k = w.k;
    k.cts = w.chance(50);
    k.lanes = 1 + static_cast<int>(w.pick(w.chance(50) ? 1 : 4));
    k.places = k.cts && w.chance(35);
    k.own_kick = k.cts && !k.places && w.chance(60);
    k.streams = k.cts && !k.places ? 1 : 1 + static_cast<int>(w.pick(w.chance(50) ? 1 : 4));
    k.capacity = 1 + static_cast<int>(w.pick(16));
    k.chunk = w.chance(50) ? 64 : 1 + w.pick(512);
    if (k.own_kick && w.chance(70))
        k.chunk = 4096;
    // A path that loses large messages, or everything in one direction. Its lanes die of the first
    // loss.
    bool loses = k.delivered && losses_left > 0 && w.chance(20);
    k.lost_from = loses && w.chance(50) ? 1 + w.pick(200) : 0;
    k.lost_forth = loses && !k.lost_from && w.chance(50);
    k.lost_back = loses && !k.lost_from && !k.lost_forth;
    losses_left -= loses;
}

void Trial::choose_death()
{
    auto &k = w.k;
    k.death_at = w.clock + 1 + w.pick(k.max_delay * 20);
    k.death_lane = static_cast<int>(w.pick(static_cast<uint64_t>(k.lanes)));
}

void Trial::choose_network()
{
    auto &k = w.k;
    k.delivered = w.chance(50);
    k.keeps = k.delivered && w.chance(50);
    losses_left = k.delivered ? static_cast<int>(w.pick(5)) : 0;
    k.max_delay = 1 + w.pick(w.chance(50) ? 20 : 2000);
    choose_lanes();
    k.refuse_pct = w.chance(30) ? static_cast<int>(w.pick(60)) : 0;
    k.repeat_pct = w.chance(50) ? static_cast<int>(w.pick(30)) : 0;
    k.stale_pct = w.chance(50) ? static_cast<int>(w.pick(30)) : 0;
    k.dup_frame_pct = w.chance(40) ? static_cast<int>(w.pick(30)) : 0;
    if (k.chunk == 4096)
        k.refuse_pct /= 8;
    k.late_ack_pct = k.delivered && w.chance(20) ? static_cast<int>(w.pick(30)) : 0;
    // So many messages that a ring index is needed again while its message is kept.
    many = k.keeps && !k.cts && w.chance(10);
    if (many)
        k.late_ack_pct = 100;
    k.outlives = k.delivered || w.chance(30);
    if (losses_left > 0 || w.chance(15))
        choose_death();
    gpu_pct = w.chance(30) ? 50 : 0;
    close_at = w.chance(10) ? 1 + static_cast<long>(w.pick(300)) : 0;
    close_stage = k.delivered && w.chance(8) ? REPORTED_DEAD + static_cast<int>(w.pick(5)) : -1;
    closes_early = k.delivered && w.chance(20);
    sleep_pct = w.chance(30) ? 1 + static_cast<int>(w.pick(5)) : 0;
}

void Trial::choose_group(size_t n)
{
    groups.emplace_back();
    for (size_t i = 0; i < n; i++) {
        Message m;
        m.tag = w.chance(70) ? static_cast<int>(i) : static_cast<int>(w.pick(3));
        m.bytes.resize(w.chance(10) ? 0 : w.pick(w.chance(20) ? 3000 : 200));
        for (auto &b : m.bytes)
            b = static_cast<uint8_t>(w.rnd());
        m.expect = m.bytes;
        groups.back().msgs.push_back(msgs.size());
        groups.back().buf.push_back(std::make_unique<Buffer>(
            m.bytes.size() + (w.chance(30) ? w.pick(50) : 0), static_cast<uint32_t>(w.rnd()) | 1));
        msgs.push_back(std::move(m));
    }
}

// Within a window of receives, the sender may send in any order. Messages with equal tags keep
// their order, because it pairs them with receives. The window is one group. On matched comms it
// may be several groups; then messages may arrive before a receive with their tag is posted.
void Trial::choose_send_order(const std::vector<size_t> &window)
{
    std::vector<size_t> o = window;
    std::shuffle(o.begin(), o.end(), w.rnd);
    for (int tag = 0; tag < PVN_MAX_RECVS; tag++) {
        std::vector<size_t> same, at;
        for (size_t i = 0; i < o.size(); i++) {
            if (msgs[o[i]].tag == tag) {
                same.push_back(o[i]);
                at.push_back(i);
            }
        }
        std::sort(same.begin(), same.end());
        for (size_t i = 0; i < at.size(); i++)
            o[at[i]] = same[i];
    }
    order.insert(order.end(), o.begin(), o.end());
}

void Trial::choose_traffic()
{
    // Some trials have so many messages that the rings of slots and of messages wrap around.
    size_t n = many ? PVN_MAX_SENDS + w.pick(100) : 1 + w.pick(w.chance(3) ? 160 : 40),
           width = !w.k.cts && w.chance(30) ? 1 + w.pick(4) : 1;
    bool grouped = w.chance(w.k.own_kick ? 20 : 50);
    // A sender that is ahead of the receiver takes a slot the moment it is announced.
    if (w.chance(30))
        receive_pct = 15;
    if (w.chance(20))
        depth = 1 + w.pick(3);
    std::vector<size_t> window;
    for (size_t g = 0; g < n; g++) {
        size_t first = msgs.size();
        choose_group(grouped ? 1 + w.pick(PVN_MAX_RECVS) : 1);
        for (; first < msgs.size(); first++)
            msgs[first].window = g / width;
        window.insert(window.end(), groups.back().msgs.begin(), groups.back().msgs.end());
        if ((g + 1) % width == 0 || g + 1 == n) {
            choose_send_order(window);
            window.clear();
        }
    }
}

void Trial::post_receive()
{
    size_t open = 0;
    for (size_t i = next_group; depth < SIZE_MAX && i-- > 0;)
        open += !groups[i].done;
    if (open >= depth)
        return;
    Group &g = groups[next_group];
    size_t n = g.msgs.size();
    void *data[PVN_MAX_RECVS];
    size_t sizes[PVN_MAX_RECVS];
    int tags[PVN_MAX_RECVS];
    const pvn_mr *mrs[PVN_MAX_RECVS];
    g.mr.assign(n, pvn_mr());
    for (size_t i = 0; i < n; i++) {
        Buffer *b = g.buf[i].get();
        data[i] = b->data();
        sizes[i] = b->size;
        tags[i] = msgs[g.msgs[i]].tag;
        std::fill(std::begin(g.mr[i].rkey), std::end(g.mr[i].rkey), b->key);
        g.mr[i].gpu = w.chance(gpu_pct) ? 1 + static_cast<unsigned>(w.pick(2)) : 0;
        mrs[i] = &g.mr[i];
        b->open = true;
        w.buffers[reinterpret_cast<uintptr_t>(b->data())] = b;
    }
    if (pvn_engine_irecv(w.erx, static_cast<int>(n), data, sizes, tags, mrs, &g.req) < 0)
        rx_failed = true;
    else if (g.req) {
        g.posted = true;
        next_group++;
    }
}

void Trial::post_send()
{
    Message &m = msgs[order[next_send]];
    if (pvn_engine_isend(w.etx, m.bytes.data(), m.bytes.size(), m.tag, nullptr, &m.req) < 0)
        tx_failed = true;
    else if (m.req) {
        m.posted = true;
        next_send++;
    } else {
        let_another_rank_send();
    }
}

// Each tag belongs to another rank. A rank that has to wait does not block the others.
void Trial::let_another_rank_send()
{
    size_t end = next_send, to;
    while (end < order.size() && msgs[order[end]].window == msgs[order[next_send]].window)
        end++;
    to = next_send + w.pick(end - next_send);
    for (size_t i = next_send; i < to; i++)
        if (msgs[order[i]].tag == msgs[order[to]].tag)
            return;
    overtakes += to != next_send;
    std::rotate(order.begin() + static_cast<long>(next_send), order.begin() + static_cast<long>(to),
                order.begin() + static_cast<long>(to) + 1);
}

bool Trial::is_awake(bool sender) const
{
    return step >= away[!sender];
}

// Puts one end to sleep, or both. In some cases one of the two wakes up later.
void Trial::choose_sleep()
{
    if (step < std::max(away[0], away[1]) || !w.chance(sleep_pct))
        return;
    long n = 1 + static_cast<long>(w.pick(w.chance(80) ? 30 : 400));
    int who = static_cast<int>(w.pick(3));
    sleeps++;
    if (who < 2)
        away[who] = step + n;
    else
        away[0] = away[1] = step + n;
    if (who < 2 && w.chance(20))
        away[!who] = step + n + n;
}

void Trial::flush(Group &g)
{
    size_t n = g.msgs.size(), sizes[PVN_MAX_RECVS];
    void *data[PVN_MAX_RECVS];
    const pvn_mr *mrs[PVN_MAX_RECVS];
    for (size_t i = 0; i < n; i++) {
        data[i] = g.buf[i]->data();
        sizes[i] = msgs[g.msgs[i]].expect.size();
        mrs[i] = &g.mr[i];
    }
    int rc = pvn_engine_iflush(w.erx, static_cast<int>(n), data, sizes, mrs, &g.flush);
    rx_failed |= rc < 0 && rc != -EBUSY;
    g.to_flush = rc == -EBUSY;
}

void Trial::test_flush(Group &g)
{
    int done = 0;
    if (pvn_engine_test(g.flush, &done, nullptr) < 0) {
        rx_failed = true;
    } else if (done) {
        g.flush = nullptr;
        for (const auto &b : g.buf)
            if (w.is_flushing(b->data()))
                w.broken("a flush completed before every lane had done it");
    }
}

void Trial::complete(Group &g, const size_t *sizes)
{
    g.done = g.to_flush = true;
    for (size_t i = 0; i < g.msgs.size(); i++) {
        const Message &m = msgs[g.msgs[i]];
        Buffer *b = g.buf[i].get();
        b->open = false;
        if (!m.posted)
            w.broken("a receive completed before its send was posted");
        if (sizes[i] != m.expect.size())
            return w.broken("a receive reports another size than was sent");
        if (!m.expect.empty() && memcmp(b->data(), m.expect.data(), sizes[i]) != 0)
            w.broken("a receive holds other bytes than were sent");
        for (size_t k = 0; k < b->mem.size(); k++) {
            bool inside = k >= Buffer::guard && k < Buffer::guard + sizes[i];
            if (!inside && b->mem[k] != Buffer::fill)
                w.broken("bytes outside a message were written");
            if (inside && b->count[k] > 1 && failovers == 0)
                w.broken("a byte was written twice");
        }
    }
}

void Trial::test_receives()
{
    for (auto &g : groups) {
        if (!g.posted || rx_failed || !w.chance(50))
            continue;
        if (g.to_flush)
            flush(g);
        else if (g.flush)
            test_flush(g);
        if (g.done)
            continue;
        int done = 0, again = 0;
        size_t sizes[PVN_MAX_RECVS] = {};
        if (pvn_engine_test(g.req, &done, sizes) < 0) {
            rx_failed = true;
        } else if (done) {
            complete(g, sizes);
            if (pvn_engine_test(g.req, &again, nullptr) != -EINVAL || again)
                w.broken("testing a freed request was not refused");
        }
    }
}

void Trial::test_sends()
{
    for (auto &m : msgs) {
        if (!m.posted || m.done || tx_failed || !w.chance(50))
            continue;
        int done = 0;
        size_t size = ~size_t(0);
        if (pvn_engine_test(m.req, &done, &size) < 0) {
            tx_failed = true;
        } else if (done) {
            m.done = true;
            if (size != m.bytes.size())
                w.broken("a send reports another size than was requested");
            // The caller owns the source again, so a later read by the network shows up as damage.
            std::fill(m.bytes.begin(), m.bytes.end(), uint8_t(0));
        }
    }
}

// The caller makes no more calls once all its sends are complete. The plugin's own thread drives
// the kept messages.
void Trial::help_sender()
{
    bool kept = w.etx && pvn_engine_kept(w.etx) > 0;
    if (kept && !tx_failed && w.chance(30)) {
        helped++;
        tx_failed = pvn_engine_progress(w.etx) < 0;
    }
}

bool Trial::finished() const
{
    return std::all_of(groups.begin(), groups.end(),
                       [](const Group &g) { return g.done && !g.to_flush && !g.flush; }) &&
           std::all_of(msgs.begin(), msgs.end(), [](const Message &m) { return m.done; });
}

std::string Trial::verdict(long steps) const
{
    if (!w.violation.empty())
        return w.violation;
    if (!w.k.delivered && (pvn_engine_paused(w.etx) || pvn_engine_paused(w.erx) || failovers > 0))
        return "lanes were replaced that report sends before they are delivered";
    for (const pvn_engine *e : {w.etx, w.erx}) {
        const pvn_err *err = pvn_engine_err(e);
        if (err && (w.deaths == 0 || err->n == 0 || w.k.delivered))
            return std::string("failed without a dead lane, or in spite of failover: ") +
                   err->reason[0];
    }
    if (w.deaths > 0 && !w.k.delivered)
        return tx_failed || rx_failed || finished() ? "" : "a dead lane was not reported";
    if (finished())
        return "";
    char r[256], s[256];
    pvn_engine_oldest(w.erx, r, sizeof(r));
    pvn_engine_oldest(w.etx, s, sizeof(s));
    return "not finished after " + std::to_string(steps) + " steps; receiver: " + r +
           "; sender: " + s;
}

void Trial::pause(bool sender)
{
    static const pvn_err why = {-ENETDOWN, PVN_FAULT_REMOTE,       0, 1, 0, "",
                                "",        {"by the test", "", ""}};
    pvn_engine_pause(sender ? w.etx : w.erx, &why);
}

// Both ends are fenced, in any order. Data that landed before are still reported, and none land
// after that.
void Trial::fence_ends()
{
    if (!rx_fenced && is_awake(false) && w.chance(50)) {
        pause(false);
        w.fence(w.rx);
        rx_failed |= pvn_engine_drain(w.erx) < 0;
        pvn_engine_flushed(w.erx);
        rx_fenced = true;
    } else if (!tx_fenced && is_awake(true)) {
        pause(true);
        w.fence(w.tx);
        tx_failed |= pvn_engine_drain(w.etx) < 0;
        tx_fenced = true;
    }
    if (tx_fenced && rx_fenced)
        stage = CONNECTED;
}

// The receiver's HELLO says how many messages it has, perhaps all of them.
void Trial::acknowledge()
{
    int open = pvn_engine_pending(w.etx);
    pvn_engine_acknowledge(w.etx, pvn_engine_received(w.erx));
    acknowledged += static_cast<uint64_t>(open - pvn_engine_pending(w.etx));
}

// The new lanes may be of any kind and may die at any time.
void Trial::bring_lanes()
{
    bool cts = w.k.cts;
    do
        choose_lanes();
    while (w.k.cts && !pvn_engine_may_use_slots(w.erx));
    switches += w.k.cts != cts;
    w.k.death_at = 0;
    if (losses_left > 0 && losses_left--)
        choose_death();
    w.replace();
    pvn_engine_make_report(w.erx, &report);
    stage = REPORTED;
}

void Trial::resume_sender()
{
    auto lanes = World::bases(w.tx);
    tx_failed |= pvn_engine_resume_sender(w.etx, lanes.data(), static_cast<int>(lanes.size()),
                                          &report, &answer) < 0;
    stage = ANSWERED;
}

void Trial::resume_receiver()
{
    auto lanes = World::bases(w.rx);
    rx_failed |= pvn_engine_resume_receiver(w.erx, lanes.data(), static_cast<int>(lanes.size()),
                                            &answer) < 0;
    failovers++;
    stage = RUNNING;
}

void Trial::drive_failover()
{
    if (stage == RUNNING && !pvn_engine_paused(w.etx) && !pvn_engine_paused(w.erx)) {
        // A failover without the loss of a lane, as when a better lane is available again.
        if (w.k.delivered && losses_left > 0 && w.chance(1)) {
            losses_left--;
            pause(w.chance(50));
        }
        return;
    }
    if (!w.chance(20))
        return;
    bool lost = losses_left > 0 && w.chance(20);
    // The plugin's own thread sends this number for a receiver that is away.
    if ((stage == FENCING ? tx_fenced : stage == CONNECTED || stage == REPORTED) && is_awake(true))
        acknowledge();
    switch (stage) {
    case RUNNING:
        stage = REPORTED_DEAD;
        break;
    case REPORTED_DEAD:
        tx_fenced = rx_fenced = false;
        stage = FENCING;
        break;
    case FENCING:
        fence_ends();
        break;
    case CONNECTED:
        if (is_awake(true) && is_awake(false))
            bring_lanes();
        break;
    case REPORTED:
        if (!is_awake(true))
            break;
        losses_left -= lost;
        if (lost)
            bring_lanes();
        else
            resume_sender();
        break;
    case ANSWERED:
        if (!is_awake(false))
            break;
        if (!lost) {
            resume_receiver();
            break;
        }
        // The receiver has not got the answer, and its old lanes are still fenced.
        losses_left--;
        lost_answers++;
        pause(true);
        w.fence(w.tx);
        w.fence(w.rx);
        tx_failed |= pvn_engine_drain(w.etx) < 0;
        bring_lanes();
        break;
    }
}

// Closes an end at any moment, perhaps during a failover. The caller owns the memory of its
// requests again.
void Trial::close_an_end()
{
    bool sender = w.chance(50);
    w.close(sender, w.k.max_delay * 5);
    closed = true;
    (sender ? tx_failed : rx_failed) = true;
    for (auto &m : msgs)
        if (sender && m.posted && !m.done)
            std::fill(m.bytes.begin(), m.bytes.end(), uint8_t(0));
    for (auto &g : groups)
        for (auto &b : g.buf)
            b->open &= sender;
}

// Drives the other end after a close. Its lanes die, so its requests fail, or it waits for a
// failover. Data in flight have no other effect.
std::string Trial::after_close()
{
    const pvn_engine *left = w.etx ? w.etx : w.erx;
    for (int i = 0; i < 400 && w.violation.empty() && !(tx_failed && rx_failed); i++) {
        w.tick();
        test_receives();
        test_sends();
    }
    if (!w.violation.empty())
        return w.violation;
    return (tx_failed && rx_failed) || pvn_engine_paused(left) || pvn_engine_pending(left) == 0
               ? ""
               : "an end whose peer has closed waits for it";
}

// The receiver has every message and closes, while acknowledgements are late. The number in its
// GOODBYE completes the sender's open sends.
void Trial::close_with_everything()
{
    uint64_t received = pvn_engine_received(w.erx);
    size_t held = static_cast<size_t>(std::count_if(
        msgs.begin(), msgs.end(), [](const Message &m) { return m.posted && !m.done; }));
    if (received != pvn_engine_next(w.etx))
        w.broken("a receiver that has everything reports another number of messages");
    w.close(false, w.k.max_delay * 5);
    closed = true;
    pause(true);
    w.fence(w.tx);
    tx_failed |= pvn_engine_drain(w.etx) < 0;
    pvn_engine_acknowledge(w.etx, received);
    for (int i = 0; i < 100; i++)
        test_sends();
    farther += held;
    for (const auto &m : msgs)
        if (!m.done)
            return w.broken("a message was received and its send does not end");
}

// All requests are complete at both ends. The sender gets the acknowledgements of its kept
// messages, unless a lane is lost meanwhile.
void Trial::end_of_copies()
{
    auto waits = [&] {
        return stage == RUNNING && pvn_engine_kept(w.etx) > 0 && !pvn_engine_paused(w.etx) &&
               !pvn_engine_paused(w.erx);
    };
    for (long i = 0; i < max_steps && waits(); i++) {
        w.tick();
        if (pvn_engine_progress(w.erx) < 0 || pvn_engine_progress(w.etx) < 0)
            return;
    }
    if (waits())
        w.broken("a message that the receiver has is always kept");
}

std::string Trial::go()
{
    while (step < max_steps && !finished() && w.violation.empty() && !tx_failed && !rx_failed) {
        if (close_at && step == close_at) {
            close_an_end();
            return after_close();
        }
        if (close_stage >= 0 && stage == close_stage) {
            close_an_end();
            return after_close();
        }
        bool all = next_send == order.size() &&
                   std::all_of(groups.begin(), groups.end(),
                               [](const Group &g) { return g.done && !g.to_flush && !g.flush; });
        if (closes_early && all && stage == RUNNING && !finished()) {
            close_with_everything();
            return w.violation;
        }
        choose_sleep();
        if (next_group < groups.size() && is_awake(false) && w.chance(receive_pct))
            post_receive();
        if (next_send < order.size() && is_awake(true) && w.chance(70))
            post_send();
        w.tick();
        if (is_awake(false))
            test_receives();
        if (is_awake(true))
            test_sends();
        help_sender();
        drive_failover();
        step++;
    }
    if (finished() && w.violation.empty() && !tx_failed && !rx_failed)
        end_of_copies();
    return verdict(step);
}

void Trial::add(Totals &t) const
{
    t.flushes += w.flushes;
    t.closes += closed;
    t.sleeps += sleeps;
    t.overtakes += overtakes;
    t.farther += farther;
    t.lost_chunks += w.lost_chunks;
    if (closed)
        return;
    const pvn_engine_stats *a = pvn_engine_get_stats(w.etx), *b = pvn_engine_get_stats(w.erx);
    t.sends += a->msgs;
    t.receives += b->msgs;
    t.chunks += b->chunks;
    t.unexpected += b->unexpected;
    t.dropped_stale += a->stale + b->stale;
    t.dropped_dup += a->dups + b->dups;
    t.repeats += w.repeats;
    t.stales += w.stales;
    t.dups += w.dups;
    t.refusals += w.refusals;
    t.deaths += w.deaths;
    t.slots += w.slots;
    t.runs += w.runs;
    t.watches += w.watches;
    t.failovers += failovers;
    t.switches += switches;
    t.lost_answers += lost_answers;
    t.acknowledged += acknowledged;
    t.replayed += a->replayed;
    t.kept += a->kept;
    t.kept_again += a->kept_again;
    t.helped += helped;
}

TEST(EngineSimulation, ExactlyOnceForEverySeed)
{
    uint64_t first = from_env("PVN_SIM_FIRST", 1), n = from_env("PVN_SIM_SEEDS", default_seeds);
    if (getenv("PVN_SIM_SEED")) {
        first = from_env("PVN_SIM_SEED", 1);
        n = 1;
    }
    Totals t;
    for (const Share &s : sim::run_seeds<Trial>(first, n)) {
        EXPECT_STREQ("", s.bad) << "seed " << s.bad_seed
                                << "; replay it with PVN_SIM_SEED=" << s.bad_seed;
        t += s.t;
    }
    if (HasFailure())
        return;
    report(n, t);
    if (n < 1000)
        return;
    // Each kind of fault must have occurred, and the engine must have met it.
    for (uint64_t fired :
         {t.repeats,    t.stales,        t.dups,        t.refusals,     t.deaths,
          t.unexpected, t.dropped_stale, t.dropped_dup, t.slots,        t.runs,
          t.watches,    t.failovers,     t.switches,    t.lost_answers, t.acknowledged,
          t.replayed,   t.flushes,       t.closes,      t.farther,      t.sleeps,
          t.overtakes,  t.lost_chunks,   t.kept,        t.kept_again,   t.helped})
        EXPECT_GT(fired, 0u);
}

} // namespace
