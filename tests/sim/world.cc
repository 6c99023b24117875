// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sim
{

namespace
{

Lane *lane_of(pvn_lane *l)
{
    return reinterpret_cast<Lane *>(l);
}

// Returns the lane of a data operation. The engine must not use a lane after its fence.
Lane *in_use(pvn_lane *base)
{
    Lane *l = lane_of(base);
    if (l->fenced)
        l->world->broken("a lane was used after its fence");
    return l;
}

bool is_dead(const Lane *l)
{
    return l->death_at && l->world->clock >= l->death_at;
}

int die(Lane *l)
{
    if (l->base.err.code == 0) {
        pvn_err_set(&l->base.err, -EIO, "simulated lane %d died", l->base.idx);
        l->world->deaths++;
    }
    return -EIO;
}

// An arrival time after that of every earlier packet on this stream.
uint64_t arrival(Lane *from, size_t stream)
{
    World *w = from->world;
    uint64_t t = w->clock + 1 + w->pick(w->k.max_delay);
    if (t <= from->last[stream])
        t = from->last[stream] + 1;
    from->last[stream] = t;
    return t;
}

bool refuses(World *w)
{
    if (!w->chance(w->k.refuse_pct))
        return false;
    w->refusals++;
    return true;
}

// Queues a post if there is room.
int post(Lane *l, const pvn_write &post)
{
    World *w = l->world;
    if (l->pending.size() >= static_cast<size_t>(w->k.capacity) || refuses(w))
        return -EAGAIN;
    Pending p;
    p.at = w->clock + w->pick(w->k.max_delay / 4 + 1);
    // Chunks are assigned to the streams in the order of the posts.
    if (!l->pending.empty() && p.at < l->pending.back().at)
        p.at = l->pending.back().at;
    p.w = post;
    p.stream = w->pick(static_cast<uint64_t>(w->k.streams));
    l->pending.push_back(p);
    return 0;
}

// Lanes with PVN_LANE_SETS_KICK_DUE sometimes set kick_due when they have taken a post.
void hold(Lane *l)
{
    l->base.kick_due |= (l->base.caps & PVN_LANE_SETS_KICK_DUE) && l->world->chance(50);
}

int sim_kick(pvn_lane *base)
{
    return refuses(in_use(base)->world) ? -EAGAIN : 0;
}

int sim_post_write(pvn_lane *base, const pvn_write *w)
{
    Lane *l = in_use(base);
    return is_dead(l) ? die(l) : post(l, *w);
}

int deliver(Lane *l);

int sim_next_slot(pvn_lane *base, const pvn_cts **cts)
{
    Lane *l = in_use(base);
    if (is_dead(l))
        return die(l);
    int rc = deliver(l);
    if (rc < 0)
        return pvn_err_set(&base->err, rc, "simulated lane %d could not place a chunk", base->idx);
    if (l->cts_held.empty())
        return 0;
    *cts = l->cts_held.front();
    l->cts_held.pop_front();
    l->world->slots++;
    return 1;
}

// If the packet is lost, the adapter that waits for its acknowledgement gives the lane up. Both
// ends see that if the other one gets to know.
bool loses(Lane *sender, bool lost)
{
    World *w = sender->world;
    if (!lost)
        return false;
    w->lost_chunks++;
    if (sender->death_at == 0)
        sender->death_at = w->clock + 1 + w->pick(w->k.max_delay * 8);
    return true;
}

int sim_post_cts(pvn_lane *base, uint64_t slot, int n, const pvn_buffer *b)
{
    Lane *l = in_use(base);
    World *w = l->world;
    if (is_dead(l))
        return die(l);
    if (refuses(w))
        return -EAGAIN;
    int copies = 1;
    if (w->chance(w->k.repeat_pct)) {
        copies = 2;
        w->repeats++;
    }
    if (loses(l, w->k.lost_back))
        copies = 0;
    for (int i = 0; i < copies; i++) {
        Packet p;
        p.is_cts = true;
        p.slot = slot;
        p.cts.n = n;
        for (int k = 0; k < n; k++) {
            p.cts.e[k].addr = reinterpret_cast<uint64_t>(b[k].addr);
            p.cts.e[k].size = b[k].size;
            p.cts.e[k].tag = b[k].tag;
            for (int lane = 0; lane < base->nlanes; lane++)
                p.cts.e[k].rkey[lane] = b[k].mr ? b[k].mr->rkey[lane] : 0;
        }
        p.arrive = arrival(l, 0);
        l->peer->wire[0].push_back(p);
    }
    hold(l);
    return 0;
}

void insert_event(Lane *l, uint64_t t, const pvn_event &ev)
{
    auto it = l->events.end();
    while (it != l->events.begin() && std::prev(it)->first > t)
        --it;
    l->events.insert(it, {t, ev});
}

void event_at(Lane *l, uint64_t t, const pvn_event &ev)
{
    World *w = l->world;
    insert_event(l, t, ev);
    if (w->chance(w->k.repeat_pct)) {
        w->repeats++;
        insert_event(l, t + 1 + w->pick(w->k.max_delay), ev);
    }
}

int sim_post_flush(pvn_lane *base, uint32_t id, const void *addr, const pvn_mr *)
{
    Lane *l = in_use(base);
    World *w = l->world;
    if (is_dead(l))
        return die(l);
    if (refuses(w))
        return -EAGAIN;
    if (w->chance(10))
        return -EALREADY;
    pvn_event ev = {};
    ev.kind = PVN_EV_FLUSHED;
    ev.id = id;
    insert_event(l, w->clock + 1 + w->pick(w->k.max_delay), ev);
    l->flushing.push_back({id, addr});
    w->flushes++;
    hold(l);
    return 0;
}

void report_sent(Lane *l, uint32_t cookie, uint16_t chunk)
{
    World *w = l->world;
    pvn_event ev = {};
    ev.kind = PVN_EV_SENT;
    ev.id = cookie;
    ev.chunk = chunk;
    uint64_t late = w->chance(w->k.late_ack_pct) ? w->k.max_delay * 20 : 0;
    event_at(l, w->clock + late + w->pick(w->k.max_delay / 4 + 1), ev);
}

void report_taken(Lane *l, const pvn_write &post)
{
    if (!post.kept)
        return;
    pvn_event ev = {};
    ev.kind = PVN_EV_TAKEN;
    ev.id = post.cookie;
    event_at(l, l->world->clock + 1, ev);
    l->world->taken++;
}

// True if the receiving lane, when polled, gets a chunk's buffer from the engine.
bool places(const Lane *l)
{
    return !(l->base.caps & PVN_LANE_NEEDS_CTS) || l->base.caps & PVN_LANE_PLACES;
}

// The sending adapter reads the bytes of due posts and puts them on the wire.
void transmit(Lane *l)
{
    World *w = l->world;
    while (!l->pending.empty() && l->pending.front().at <= w->clock) {
        Pending p = l->pending.front();
        l->pending.pop_front();
        Packet pk;
        pk.f = p.w.f;
        const auto *src = static_cast<const uint8_t *>(p.w.src);
        pk.bytes.assign(src, src + p.w.f.len);
        report_taken(l, p.w);
        pk.raddr = w->k.cts ? p.w.to->addr + p.w.f.offset : 0;
        pk.rkey = w->k.cts ? p.w.to->rkey[l->base.idx] : 0;
        pk.cookie = p.w.cookie;
        int copies = 1;
        if (places(l) && w->chance(w->k.dup_frame_pct)) {
            copies = 2;
            w->dups++;
        }
        size_t from = w->k.lost_from;
        if (loses(l, w->k.lost_forth || (from && p.w.f.len >= from)))
            continue;
        for (int i = 0; i < copies; i++) {
            pk.arrive = arrival(l, p.stream);
            l->peer->wire[p.stream].push_back(pk);
        }
        if (!w->k.delivered)
            report_sent(l, p.w.cookie, p.w.f.chunk);
    }
}

int place(Lane *l, Packet &p)
{
    pvn_place to = {};
    if (!places(l)) {
        to.dst = reinterpret_cast<void *>(p.raddr);
    } else {
        int rc = l->base.place(l->base.engine, &l->base, &p.f, &to);
        if (rc < 0)
            return rc;
    }
    p.dst = static_cast<uint8_t *>(to.dst);
    p.placed = true;
    return 0;
}

// Returns 0 if the head of the stream is done, -EAGAIN if it must wait, or an error.
int receive_head(Lane *l, Packet &p)
{
    World *w = l->world;
    if (p.is_cts) {
        // A repeated clear-to-send entry is no further slot.
        if (p.slot == l->next_slot) {
            l->cts_store.push_back(p.cts);
            l->cts_held.push_back(&l->cts_store.back());
            l->next_slot++;
        }
        return 0;
    }
    if (!p.placed) {
        int rc = place(l, p);
        if (rc < 0)
            return rc == -EALREADY ? 0 : rc;
    }
    size_t half = p.bytes.size() / 2;
    if (!p.half) {
        w->write(p.dst, p.bytes.data(), half, p.rkey);
        p.half = true;
        p.arrive = w->clock + w->pick(w->k.max_delay / 8 + 1);
        if (p.arrive > w->clock)
            return -EAGAIN;
    }
    w->write(p.dst + half, p.bytes.data() + half, p.bytes.size() - half, p.rkey);
    pvn_event ev = {};
    ev.kind = PVN_EV_ARRIVED;
    ev.id = pvn_id(p.f.seq);
    ev.recv = p.f.recv;
    ev.chunk = p.f.chunk;
    ev.bytes = p.f.len;
    ev.total = p.f.total;
    event_at(l, w->clock, ev);
    if (w->k.delivered && !l->peer->fenced && !loses(l->peer, w->k.lost_back))
        report_sent(l->peer, p.cookie, p.f.chunk);
    return 0;
}

int deliver(Lane *l)
{
    if (l->fenced)
        return 0;
    for (auto &stream : l->wire) {
        while (!stream.empty() && stream.front().arrive <= l->world->clock) {
            int rc = receive_head(l, stream.front());
            if (rc == -EAGAIN)
                break;
            if (rc < 0)
                return rc;
            stream.pop_front();
        }
    }
    return 0;
}

// An event whose generation no slot of this run has.
pvn_event stale_event(World *w)
{
    pvn_event ev = {};
    ev.kind = w->chance(50) ? PVN_EV_SENT : w->chance(30) ? PVN_EV_TAKEN : PVN_EV_ARRIVED;
    uint32_t slot = static_cast<uint32_t>(w->pick(256)),
             gen = 8 + static_cast<uint32_t>(w->pick(4000));
    ev.id = slot | gen << 8;
    ev.chunk = static_cast<uint16_t>(w->pick(PVN_MAX_CHUNKS));
    ev.recv = static_cast<uint8_t>(w->pick(PVN_MAX_RECVS));
    if (ev.kind == PVN_EV_SENT)
        ev.more = static_cast<uint32_t>(w->pick(4));
    else if (ev.kind == PVN_EV_ARRIVED)
        ev.total = ev.bytes = static_cast<uint32_t>(w->pick(1000));
    return ev;
}

// True if both events report ends of messages that follow each other, so that one event can report
// both.
bool follows(const pvn_event &a, const pvn_event &b)
{
    return a.kind == PVN_EV_SENT && b.kind == PVN_EV_SENT && b.chunk == 0 && b.more == 0 &&
           b.id == pvn_id(a.id + a.more + 1);
}

// True if a poll would report something now.
bool has_events(const Lane *l)
{
    uint64_t now = l->world->clock;
    bool found = !l->events.empty() && l->events.front().first <= now;
    for (const auto &stream : l->wire)
        found |= !stream.empty() && stream.front().arrive <= now;
    return found;
}

// After some polls that find nothing, the engine may leave out the next polls, as on a lane whose
// events are in memory.
void watch(Lane *l)
{
    World *w = l->world;
    if (!w->chance(w->k.own_kick ? 80 : 30) || has_events(l))
        return;
    int polls = static_cast<int>(1 + w->pick(8));
    l->base.watch = {{&l->changes, &l->changes}, {l->changes, l->changes}, polls, polls};
    w->watches++;
}

// A reported flush is no longer outstanding.
void forget_flush(Lane *l, const pvn_event &ev)
{
    if (ev.kind != PVN_EV_FLUSHED)
        return;
    l->flushing.erase(std::find_if(l->flushing.begin(), l->flushing.end(),
                                   [&](const auto &f) { return f.first == ev.id; }));
}

// Reports data that landed before the fence.
int sim_drain(pvn_lane *base, pvn_event *ev, int max)
{
    Lane *l = lane_of(base);
    int n = 0;
    for (; n < max && !l->events.empty(); l->events.pop_front()) {
        ev[n++] = l->events.front().second;
        forget_flush(l, ev[n - 1]);
    }
    return n;
}

int sim_poll(pvn_lane *base, pvn_event *ev, int max)
{
    Lane *l = in_use(base);
    World *w = l->world;
    if (is_dead(l))
        return die(l);
    int rc = deliver(l);
    if (rc < 0)
        return pvn_err_set(&base->err, rc, "simulated lane %d could not place a chunk", base->idx);
    int n = 0;
    if (w->chance(w->k.stale_pct)) {
        w->stales++;
        ev[n++] = stale_event(w);
    }
    while (n < max && !l->events.empty() && l->events.front().first <= w->clock) {
        const pvn_event &next = l->events.front().second;
        if (n > 0 && follows(ev[n - 1], next) && w->chance(80)) {
            ev[n - 1].more++;
            w->runs++;
        } else {
            ev[n++] = next;
            forget_flush(l, next);
        }
        l->events.pop_front();
    }
    if (n == 0)
        watch(l);
    return n;
}

uint64_t virtual_now(void *ctx)
{
    return static_cast<World *>(ctx)->clock;
}

const pvn_lane_ops *sim_ops()
{
    static pvn_lane_ops ops = [] {
        pvn_lane_ops o = {};
        o.name = "sim";
        o.drain = sim_drain;
        pvn_lane_ops_fill(&o);
        return o;
    }();
    return &ops;
}

const pvn_lane_data_ops *sim_data_ops()
{
    static pvn_lane_data_ops ops = [] {
        pvn_lane_data_ops o = {};
        o.post_cts = sim_post_cts;
        o.post_write = sim_post_write;
        o.post_flush = sim_post_flush;
        o.next_slot = sim_next_slot;
        o.poll = sim_poll;
        o.kick = sim_kick;
        pvn_lane_data_ops_fill(&o);
        return o;
    }();
    return &ops;
}

std::unique_ptr<Lane> new_lane(World *w, int idx)
{
    auto l = std::make_unique<Lane>();
    l->base.ops = sim_ops();
    l->base.data = sim_data_ops();
    l->base.idx = idx;
    l->base.caps = w->k.cts ? PVN_LANE_NEEDS_CTS : 0;
    if (w->k.places)
        l->base.caps |= PVN_LANE_PLACES;
    if (w->k.delivered)
        l->base.caps |= PVN_LANE_SENT_IS_DELIVERED;
    if (w->k.own_kick)
        l->base.caps |= PVN_LANE_SETS_KICK_DUE;
    l->world = w;
    l->death_at = idx == w->k.death_lane ? w->k.death_at : 0;
    l->wire.resize(static_cast<size_t>(w->k.streams));
    l->last.resize(static_cast<size_t>(w->k.streams));
    return l;
}

pvn_engine *new_engine(World *w, const std::vector<std::unique_ptr<Lane>> &lanes, bool sender)
{
    pvn_engine_cfg c = {};
    c.sender = sender;
    c.nlanes = w->k.lanes;
    for (size_t i = 0; i < lanes.size(); i++)
        c.lanes[i] = &lanes[i]->base;
    c.chunk = w->k.chunk;
    c.unexpected_max = 1 << 20;
    c.now = virtual_now;
    c.now_ctx = w;
    c.outlives_lanes = w->k.outlives;
    c.keeps = w->k.keeps;
    return pvn_engine_new(&c);
}

} // namespace

World::~World()
{
    pvn_engine_free(etx);
    pvn_engine_free(erx);
}

uint64_t World::pick(uint64_t n)
{
    return n ? rnd() % n : 0;
}

bool World::chance(int pct)
{
    return pct > 0 && static_cast<int>(rnd() % 100) < pct;
}

void World::broken(const std::string &what)
{
    if (violation.empty())
        violation = what;
}

void World::open()
{
    new_lanes();
    etx = new_engine(this, tx, true);
    erx = new_engine(this, rx, false);
}

void World::fence(std::vector<std::unique_ptr<Lane>> &end)
{
    for (auto &l : end) {
        l->fenced = true;
        l->pending.clear();
        for (auto &stream : l->wire)
            stream.clear();
    }
}

std::vector<pvn_lane *> World::bases(const std::vector<std::unique_ptr<Lane>> &end)
{
    std::vector<pvn_lane *> b;
    for (auto &l : end)
        b.push_back(&l->base);
    return b;
}

void World::replace()
{
    for (auto *end : {&tx, &rx}) {
        fence(*end);
        for (auto &l : *end)
            old.push_back(std::move(l));
        end->clear();
    }
    new_lanes();
}

void World::close(bool sender, uint64_t after)
{
    fence(sender ? tx : rx);
    for (auto &l : sender ? rx : tx)
        l->death_at = clock + 1 + pick(after);
    pvn_engine_free(sender ? etx : erx);
    (sender ? etx : erx) = nullptr;
}

bool World::is_flushing(const void *addr) const
{
    for (const auto &l : rx)
        for (const auto &f : l->flushing)
            if (f.second == addr)
                return true;
    return false;
}

void World::new_lanes()
{
    for (int i = 0; i < k.lanes; i++) {
        tx.push_back(new_lane(this, i));
        rx.push_back(new_lane(this, i));
        tx.back()->peer = rx.back().get();
        rx.back()->peer = tx.back().get();
    }
}

// The live counters must match the engine's own at any time, because others read them.
void World::check_live(const pvn_engine *e)
{
    if (!e)
        return;
    pvn_live live;
    pvn_engine_count(e, &live);
    const pvn_engine_stats *s = pvn_engine_get_stats(e);
    if (live.msgs != s->msgs || live.bytes != s->bytes || live.flushes != s->flushes ||
        live.opened - live.msgs - live.flushes != static_cast<uint64_t>(pvn_engine_pending(e)))
        broken("the live counters are not those of the engine");
}

void World::tick()
{
    check_live(etx);
    check_live(erx);
    clock += 1 + pick(k.max_delay / 4 + 1);
    for (auto &l : tx)
        if (!is_dead(l.get()))
            transmit(l.get());
    // Data in flight land whether or not anybody polls, and whatever happened to the sender's end,
    // until the lane is fenced. Data on a replaced lane would land, too, if it were not fenced.
    for (auto &l : rx)
        if (!places(l.get()))
            deliver(l.get());
    for (auto &l : old) {
        if (l->fenced || places(l.get()))
            continue;
        transmit(l.get());
        deliver(l.get());
    }
    for (auto *end : {&tx, &rx})
        for (auto &l : *end)
            l->changes += l->base.watch.polls > 0 && has_events(l.get());
}

void World::write(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key)
{
    if (n == 0)
        return;
    auto it = buffers.upper_bound(reinterpret_cast<uintptr_t>(dst));
    Buffer *b = it == buffers.begin() ? nullptr : std::prev(it)->second;
    if (b && dst + n <= b->data() + b->size) {
        if (!b->open)
            return broken("a write landed in a buffer whose receive had completed");
        if (k.cts && key != b->key)
            return broken("a write came with another buffer's key");
        for (size_t i = 0; i < n; i++)
            b->count[static_cast<size_t>(dst - b->mem.data()) + i]++;
    } else if (k.cts) {
        return broken("a write outside every posted buffer");
    }
    // The only other memory of a matched comm holds unexpected messages. AddressSanitizer guards
    // it.
    memcpy(dst, src, n);
}

} // namespace sim
