// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* Executes NCCL's kernels on the CPU. It plays the GPU's part of NCCL's protocols with the proxy
 * thread: SIMPLE for ncclSend, ncclRecv and the ring algorithms of AllReduce, ReduceScatter and
 * Reduce (sums of float32), AllGather and Broadcast, and LL for ncclSend, ncclRecv and AllReduce.
 * It is compiled against the headers of the NCCL for which it executes, and with the table of
 * functions that NCCL's build generated (functable.h). See README.md. */
#include "nccl/player.h"

#include "collectives.h"
#include "device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#if NCCL_VERSION_CODE < 22800
typedef ncclDevComm ncclKernelComm;
typedef ncclDevCommAndChannels ncclKernelCommAndChannels;
#endif

namespace
{

struct Row {
    int id;
    const char *name;
};
const Row functions[] = {
#include "functable.h"
    {-1, nullptr}};

const char *function_name(int id)
{
    for (const Row *r = functions; r->name; r++)
        if (r->id == id)
            return r->name;
    return nullptr;
}

/* ---- fibers: one per channel, and one per transfer of a group of sends and receives ---- */

struct Fiber {
    ucontext_t context;
    void *stack = nullptr;
    std::function<void()> body;
    bool done = false;
    int *done_count = nullptr;
};

constexpr size_t kStack = 128 << 10;

thread_local std::vector<void *> free_stacks;

struct Play {
    std::vector<std::unique_ptr<Fiber>> fibers;
    ucontext_t scheduler;
    Fiber *current = nullptr;
    bool moved = false;
    volatile uint32_t *abort_flag = nullptr;
    bool aborted = false;

    static void enter(unsigned hi, unsigned lo)
    {
        auto *me = reinterpret_cast<Play *>(uint64_t(hi) << 32 | lo);
        Fiber *f = me->current;
        f->body();
        f->done = true;
        if (f->done_count)
            ++*f->done_count;
        me->moved = true;
        swapcontext(&f->context, &me->scheduler);
    }
    void spawn(std::function<void()> body, int *done_count)
    {
        auto f = std::make_unique<Fiber>();
        if (!free_stacks.empty()) {
            f->stack = free_stacks.back();
            free_stacks.pop_back();
        } else
            f->stack =
                mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        f->body = std::move(body);
        f->done_count = done_count;
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack;
        f->context.uc_stack.ss_size = kStack;
        f->context.uc_link = nullptr;
        auto at = reinterpret_cast<uint64_t>(this);
        makecontext(&f->context, reinterpret_cast<void (*)()>(enter), 2, unsigned(at >> 32),
                    unsigned(at));
        fibers.push_back(std::move(f));
        moved = true;
    }
    void yield()
    {
        Fiber *f = current;
        swapcontext(&f->context, &scheduler);
    }
    /* Returns false if NCCL set the abort flag. */
    bool wait_for(const std::function<bool()> &ready)
    {
        while (!ready()) {
            if (aborted)
                return false;
            yield();
        }
        moved = true;
        return true;
    }
    void run()
    {
        static thread_local bool slack = (prctl(PR_SET_TIMERSLACK, 1000UL), true);
        (void)slack;
        unsigned idle = 0;
        while (!fibers.empty()) {
            moved = false;
            for (size_t i = 0; i < fibers.size(); i++) {
                current = fibers[i].get();
                if (!current->done)
                    swapcontext(&scheduler, &current->context);
            }
            for (size_t i = 0; i < fibers.size();)
                if (fibers[i]->done) {
                    free_stacks.push_back(fibers[i]->stack);
                    fibers.erase(fibers.begin() + i);
                } else
                    i++;
            if (moved) {
                idle = 0;
                continue;
            }
            if (abort_flag && *abort_flag)
                aborted = true;
            if (++idle < 64)
                sched_yield();
            else {
                timespec t = {0, 10000};
                nanosleep(&t, nullptr);
            }
        }
    }
};

/* ---- one channel ("block") ---- */

struct Channel {
    Play *play;
    const ncclDevKernelArgs *args;
    ncclKernelComm *comm;
    ncclDevChannel *channel;
    int id;
    uint64_t counter;
};

void add_floats(void *out, const void *a, const void *b, size_t bytes)
{
    auto *o = static_cast<float *>(out);
    auto *x = static_cast<const float *>(a), *y = static_cast<const float *>(b);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        o[i] = x[i] + y[i];
}

uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
void store(uint64_t *p, uint64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

enum From { kNone, kInput, kOutput };

/* The SIMPLE protocol, in bytes instead of elements. */
class Simple
{
  public:
    Simple(Channel &c, int recv_peer, int send_peer, int conn_index, const void *in, void *out,
           int slices, int steps, size_t step_bytes, size_t elt, bool recv_reg, bool send_reg,
           bool offload)
        : c_(c), in_(const_cast<char *>(static_cast<const char *>(in))),
          out_(static_cast<char *>(out)), slices_(slices), steps_(steps),
          step_bytes_(step_bytes ? step_bytes
                                 : size_t(c.comm->buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS)),
          elt_(elt), offload_(offload)
    {
        uint64_t round = uint64_t(slices) * steps;
        if (recv_peer >= 0) {
            rc_ = &c.channel->peers[recv_peer]->recv[conn_index];
            rstep_ = (rc_->step + round - 1) / round * round;
            store(rc_->head, rstep_);
            rreg_ = recv_reg && (rc_->flags & NCCL_DIRECT_NIC);
            if (rreg_)
                rc_->connFifo[rstep_ % NCCL_STEPS].size = 0;
        }
        if (send_peer >= 0) {
            sc_ = &c.channel->peers[send_peer]->send[conn_index];
            sstep_ = (sc_->step + round - 1) / round * round;
            sreg_ = send_reg && (sc_->flags & NCCL_DIRECT_NIC);
        }
    }
    ~Simple()
    {
        if (rc_)
            rc_->step = rstep_;
        if (sc_)
            sc_->step = sstep_;
        if (sc_ && sreg_) {
            volatile ssize_t *size = &sc_->connFifo[(sstep_ - steps_) % NCCL_STEPS].size;
            c_.play->wait_for([=] { return *size == -1; });
        }
    }
    /* Offsets are in bytes. P2P: the proxy alone moves a registered buffer. */
    void go(bool recv, bool send, From src, From dst, size_t src_at, size_t dst_at, ssize_t bytes,
            bool p2p = false)
    {
        if (bytes < 0)
            bytes = 0;
        const size_t grain = 16 * elt_;
        size_t slice_size = step_bytes_ * steps_;
        const size_t per = 16 * slices_ * elt_;
        slice_size = std::max((bytes + per - 1) / per * grain, slice_size / 32);
        size_t at = 0;
        for (int s = 0; s < slices_; s++) {
            size_t n = std::min(slice_size, size_t(bytes) - at);
            char *from = nullptr, *to = nullptr;
            if (recv) {
                c_.play->wait_for([&] { return load(rc_->tail) >= rstep_ + steps_; });
                if (rreg_)
                    from = p2p ? nullptr : out_ + dst_at + at;
                else
                    from = slot(rc_, rstep_);
            }
            if (send) {
                c_.play->wait_for([&] { return load(sc_->head) + NCCL_STEPS >= sstep_ + steps_; });
                if (sc_->connFifo)
                    __atomic_store_n(&sc_->connFifo[sstep_ % NCCL_STEPS].size, ssize_t(n),
                                     __ATOMIC_RELAXED);
                if (!sreg_)
                    to = slot(sc_, sstep_);
                else
                    to = recv && !p2p ? out_ + dst_at + at : nullptr;
            }
            if (n && !c_.play->aborted && !offload_)
                copy(recv, send, src, dst, src_at + at, dst_at + at, n, from, to);
            if (recv)
                store(rc_->head, rstep_ += steps_);
            if (send) {
                __atomic_thread_fence(__ATOMIC_SEQ_CST);
                store(sc_->tail, sstep_ += steps_);
            }
            at += n;
        }
    }

  private:
    static char *slot(ncclConnInfo *conn, uint64_t step)
    {
        char *base = conn->buffs[NCCL_PROTO_SIMPLE];
        if (conn->connFifo && conn->connFifo[step % NCCL_STEPS].mode == NCCL_MODE_OFFSET)
            return base +
                   __atomic_load_n(&conn->connFifo[step % NCCL_STEPS].offset, __ATOMIC_RELAXED);
        return base + (step % NCCL_STEPS) * conn->stepSize;
    }
    void copy(bool recv, bool send, From src, From dst, size_t src_at, size_t dst_at, size_t n,
              char *from, char *to)
    {
        const char *mine = src == kInput ? in_ + src_at : src == kOutput ? out_ + src_at : nullptr;
        char *here = dst == kOutput ? out_ + dst_at : nullptr;
        if ((recv && !from && !mine) || (send && !to && !here))
            return; /* a registered buffer */
        char *first = here ? here : to;
        if (recv && from && mine)
            add_floats(first, mine, from, n);
        else if (const char *what = mine ? mine : from; what != first)
            memcpy(first, what, n);
        if (here && send && to && to != here)
            memcpy(to, here, n);
    }
    Channel &c_;
    char *in_, *out_;
    int slices_, steps_;
    size_t step_bytes_, elt_;
    bool offload_ = false, rreg_ = false, sreg_ = false;
    ncclConnInfo *rc_ = nullptr, *sc_ = nullptr;
    uint64_t rstep_ = 0, sstep_ = 0;
};

/* The LL protocol has lines of two 4-byte words with a flag each. The receiver reads the lines
 * while the network writes them, 8 bytes at a time as a GPU does. So this also finds a network
 * that stores a flag before its word. */
class Ll
{
  public:
    Ll(Channel &c, int recv_peer, int send_peer, int conn_index, const void *in, void *out,
       bool floats)
        : c_(c), in_(const_cast<char *>(static_cast<const char *>(in))),
          out_(static_cast<char *>(out)),
          lines_(c.comm->buffSizes[NCCL_PROTO_LL] / NCCL_STEPS / sizeof(ncclLLFifoLine)),
          floats_(floats)
    {
        if (recv_peer >= 0) {
            rc_ = &c.channel->peers[recv_peer]->recv[conn_index];
            rstep_ = rc_->step;
        }
        if (send_peer >= 0) {
            sc_ = &c.channel->peers[send_peer]->send[conn_index];
            sstep_ = sc_->step;
        }
    }
    ~Ll()
    {
        if (rc_)
            rc_->step = rstep_;
        if (sc_)
            sc_->step = sstep_;
    }
    void go(bool recv, bool send, From src, From dst, size_t src_at, size_t dst_at, ssize_t bytes,
            bool = false)
    {
        if (bytes < 0)
            bytes = 0;
        const size_t n = (bytes + 7) / 8;
        const bool clean = send && (sstep_ & NCCL_LL_CLEAN_MASK) == NCCL_LL_CLEAN_MASK;
        if (send) {
            c_.play->wait_for([&] { return load(sc_->head) + NCCL_STEPS >= sstep_ + 1; });
            if (sc_->connFifo)
                __atomic_store_n(&sc_->connFifo[sstep_ % NCCL_STEPS].size,
                                 ssize_t((clean ? lines_ : n) * sizeof(ncclLLFifoLine)),
                                 __ATOMIC_RELEASE);
        }
        auto *from = recv ? line(rc_, rstep_) : nullptr;
        auto *to = send ? line(sc_, sstep_) : nullptr;
        const uint32_t rflag = NCCL_LL_FLAG(rstep_ + 1), sflag = NCCL_LL_FLAG(sstep_ + 1);
        const char *mine = src == kInput ? in_ + src_at : src == kOutput ? out_ + src_at : nullptr;
        char *here = dst == kOutput ? out_ + dst_at : nullptr;
        for (size_t i = 0; i < n; i++) {
            const size_t part = std::min<size_t>(8, bytes - i * 8);
            uint64_t data = 0, own = 0;
            if (recv) {
                uint64_t a = 0, b = 0;
                auto ready = [&] {
                    a = __atomic_load_n(&from[i].v[0], __ATOMIC_ACQUIRE);
                    b = __atomic_load_n(&from[i].v[1], __ATOMIC_ACQUIRE);
                    return uint32_t(a >> 32) == rflag && uint32_t(b >> 32) == rflag;
                };
                if (!ready() && !c_.play->wait_for(ready))
                    break;
                data = uint32_t(a) | b << 32;
            }
            if (mine) {
                memcpy(&own, mine + i * 8, part);
                data = recv ? add(own, data) : own;
            }
            if (send) {
                __atomic_store_n(&to[i].v[0], uint32_t(data) | uint64_t(sflag) << 32,
                                 __ATOMIC_RELEASE);
                __atomic_store_n(&to[i].v[1], data >> 32 | uint64_t(sflag) << 32, __ATOMIC_RELEASE);
            }
            if (here)
                memcpy(here + i * 8, &data, part);
        }
        if (recv)
            store(rc_->head, ++rstep_);
        if (send) {
            for (size_t i = n; clean && i < lines_; i++)
                to[i].v[0] = to[i].v[1] = uint64_t(sflag) << 32;
            ++sstep_;
        }
        c_.play->moved = true;
    }

  private:
    ncclLLFifoLine *line(ncclConnInfo *conn, uint64_t step)
    {
        return reinterpret_cast<ncclLLFifoLine *>(conn->buffs[NCCL_PROTO_LL]) +
               step % NCCL_STEPS * lines_;
    }
    uint64_t add(uint64_t a, uint64_t b)
    {
        if (!floats_)
            return b;
        float x[2], y[2];
        memcpy(x, &a, 8);
        memcpy(y, &b, 8);
        x[0] += y[0];
        x[1] += y[1];
        memcpy(&a, x, 8);
        return a;
    }
    Channel &c_;
    char *in_, *out_;
    size_t lines_;
    bool floats_;
    ncclConnInfo *rc_ = nullptr, *sc_ = nullptr;
    uint64_t rstep_ = 0, sstep_ = 0;
};

/* ---- ncclSend, ncclRecv ---- */

void play_send(Channel &c, ncclDevWorkP2p w)
{
    bool large = (w.sendIpcReg && c.comm->isAllNvlink) || w.sendNetReg;
    size_t chunk = large ? NCCL_MAX_NET_SIZE : u32fp8Decode(w.sendChunkSize_u32fp8);
    size_t step = large ? NCCL_MAX_NET_SIZE : c.comm->p2pChunkSize;
    auto all = [&](auto &&p) {
        size_t at = 0;
        do {
            size_t n = std::min(chunk, w.sendBytes - at);
            p.go(false, true, kInput, kNone, at, at, n, true);
            at += n;
        } while (at < w.sendBytes);
    };
    if (w.sendProtoLL)
        all(Ll(c, -1, w.sendRank, 1, w.sendAddr, nullptr, false));
    else
        all(Simple(c, -1, w.sendRank, 1, w.sendAddr, nullptr, 1, 1, step, 1, false, w.sendNetReg,
                   false));
}

void play_recv(Channel &c, ncclDevWorkP2p w)
{
    bool large = (w.recvIpcReg && c.comm->isAllNvlink) || w.recvNetReg;
    size_t chunk = large ? NCCL_MAX_NET_SIZE : u32fp8Decode(w.recvChunkSize_u32fp8);
    size_t step = large ? NCCL_MAX_NET_SIZE : c.comm->p2pChunkSize;
    auto all = [&](auto &&p) {
        size_t at = 0;
        do {
            size_t n = std::min(chunk, w.recvBytes - at);
            p.go(true, false, kNone, kOutput, at, at, n, true);
            at += n;
        } while (at < w.recvBytes);
    };
    if (w.recvProtoLL)
        all(Ll(c, w.recvRank, -1, 1, nullptr, w.recvAddr, false));
    else
        all(Simple(c, w.recvRank, -1, 1, nullptr, w.recvAddr, 1, 1, step, 1, w.recvNetReg, false,
                   false));
}

int play_p2p(Channel &c, std::vector<ncclDevWorkP2p> &works)
{
    int started = 0, ended = 0;
    for (ncclDevWorkP2p &w : works) {
        bool has[2];
        for (int send = 0; send < 2; send++) {
            int parts = send ? w.nSendChannels : w.nRecvChannels;
            int part = ncclP2pChannelToPart(w.nP2pChannels, w.channelBase, c.id);
            has[send] = part < parts;
            if (parts) {
                size_t begin, end;
                ncclP2pPartBounds(parts, part, send ? w.sendBytes : w.recvBytes, &begin, &end);
                (send ? w.sendAddr : w.recvAddr) =
                    static_cast<char *>(send ? w.sendAddr : w.recvAddr) + begin;
                (send ? w.sendBytes : w.recvBytes) = end - begin;
            }
        }
        if (w.sendRank == c.comm->rank) {
            if (w.sendBytes && w.sendAddr != w.recvAddr && has[1])
                memmove(w.recvAddr, w.sendAddr, w.sendBytes);
            continue;
        }
        if (has[1]) {
            started++;
            c.play->spawn([&c, w] { play_send(c, w); }, &ended);
        }
        if (has[0]) {
            started++;
            c.play->spawn([&c, w] { play_recv(c, w); }, &ended);
        }
    }
    while (ended < started)
        c.play->yield();
    return 0;
}

/* ---- rings ---- */

template <class P> void ring_all_reduce(Channel &c, ncclDevWorkColl *w, int proto, P &&p)
{
    const ncclRing &ring = c.channel->ring;
    const int n = c.comm->nRanks;
    const size_t elt = sizeof(float);
    ssize_t grid, count, chunk;
    ncclCollCbdPart(w, c.id, proto, elt, static_cast<ssize_t *>(nullptr), &grid, &count, &chunk);
    const ssize_t loop = n * chunk;
    for (ssize_t at = 0; at < count; at += loop) {
        ssize_t rest = count - at;
        if (rest < loop)
            chunk = ((rest + n - 1) / n + 3) / 4 * 4;
        auto step = [&](int which, bool recv, bool send, From src, From dst) {
            ssize_t in = ssize_t(which % n) * chunk;
            size_t off = (grid + at + in) * elt;
            ssize_t elts = std::min(chunk, rest - in);
            p.go(recv, send, src, dst, off, off, elts * ssize_t(elt));
        };
        step(ring.index + n - 1, false, true, kInput, kNone);
        for (int j = 2; j < n; j++)
            step(ring.index + n - j, true, true, kInput, kNone);
        step(ring.index, true, true, kInput, kOutput);
        for (int j = 1; j < n - 1; j++)
            step(ring.index + n - j, true, true, kNone, kOutput);
        step(ring.index + 1, true, false, kNone, kOutput);
    }
}

void ring_all_gather(Channel &c, ncclDevWorkColl *w)
{
    const ncclRing &ring = c.channel->ring;
    const int n = c.comm->nRanks;
    ssize_t total, part, count, chunk;
    ncclCollCbdPart(w, c.id, NCCL_PROTO_SIMPLE, 1, &total, &part, &count, &chunk);
    const bool offload = w->isOneRPN && w->netRegUsed;
    if (offload)
        chunk = NCCL_MAX_NET_SIZE;
    char *in = static_cast<char *>(w->sendbuff), *out = static_cast<char *>(w->recvbuff);
    const int slice_steps = offload ? 1 : ALLGATHER_SLICESTEPS,
              slices = offload ? 1 : ALLGATHER_CHUNKSTEPS / ALLGATHER_SLICESTEPS;
    Simple p(c, ring.prev, ring.next, 0, in, out, slices, slice_steps,
             offload ? NCCL_MAX_NET_SIZE : 0, 1, w->netRegUsed, w->netRegUsed, offload);
    if (offload && in != out + ring.userRanks[0] * total)
        memcpy(out + ring.userRanks[0] * total + part, in + part, count);
    for (ssize_t at = 0; at < count; at += chunk) {
        ssize_t bytes = std::min(chunk, count - at);
        ssize_t data = part + at, off = data + ring.userRanks[0] * total;
        bool in_place = in + data == out + off || offload;
        p.go(false, true, kInput, in_place ? kNone : kOutput, data, off, bytes);
        for (int j = 1; j < n - 1; j++) {
            off = data + ring.userRanks[n - j] * total;
            p.go(true, true, kNone, kOutput, off, off, bytes);
        }
        off = data + ring.userRanks[1] * total;
        p.go(true, false, kNone, kOutput, off, off, bytes);
    }
}

void ring_reduce_scatter(Channel &c, ncclDevWorkColl *w)
{
    const ncclRing &ring = c.channel->ring;
    const int n = c.comm->nRanks;
    const size_t elt = sizeof(float);
    size_t total, grid, count, chunk;
    ncclCollCbdPart(w, c.id, NCCL_PROTO_SIMPLE, elt, &total, &grid, &count, &chunk);
    Simple p(c, ring.prev, ring.next, 0, w->sendbuff, w->recvbuff,
             REDUCESCATTER_CHUNKSTEPS / REDUCESCATTER_SLICESTEPS, REDUCESCATTER_SLICESTEPS, 0, elt,
             false, false, false);
    for (size_t at = 0; at < count; at += chunk) {
        ssize_t bytes = std::min(chunk, count - at) * elt;
        size_t data = grid + at;
        p.go(false, true, kInput, kNone, (data + ring.userRanks[n - 1] * total) * elt, 0, bytes);
        for (int j = 2; j < n; j++)
            p.go(true, true, kInput, kNone, (data + ring.userRanks[n - j] * total) * elt, 0, bytes);
        p.go(true, false, kInput, kOutput, (data + ring.userRanks[0] * total) * elt, data * elt,
             bytes);
    }
}

void ring_broadcast(Channel &c, ncclDevWorkColl *w)
{
    const ncclRing &ring = c.channel->ring;
    const int rank = ring.userRanks[0], next = ring.userRanks[1], root = static_cast<int>(w->root);
    ssize_t grid, count, chunk;
    ncclCollCbdPart(w, c.id, NCCL_PROTO_SIMPLE, 1, static_cast<ssize_t *>(nullptr), &grid, &count,
                    &chunk);
    const bool offload = w->isOneRPN && w->netRegUsed;
    Simple p(c, ring.prev, ring.next, 0, w->sendbuff, w->recvbuff,
             BROADCAST_CHUNKSTEPS / BROADCAST_SLICESTEPS, BROADCAST_SLICESTEPS, 0, 1, w->netRegUsed,
             w->netRegUsed, false);
    if (offload && rank == root && w->sendbuff != w->recvbuff)
        memcpy(static_cast<char *>(w->recvbuff) + grid, static_cast<char *>(w->sendbuff) + grid,
               count);
    for (ssize_t at = 0; at < count; at += chunk) {
        size_t off = grid + at;
        ssize_t bytes = std::min(chunk, count - at);
        if (rank == root)
            p.go(false, true, kInput, w->sendbuff == w->recvbuff || offload ? kNone : kOutput, off,
                 off, bytes);
        else if (next == root)
            p.go(true, false, kNone, kOutput, off, off, bytes);
        else
            p.go(true, true, kNone, kOutput, off, off, bytes);
    }
}

void ring_reduce(Channel &c, ncclDevWorkColl *w)
{
    const ncclRing &ring = c.channel->ring;
    const int rank = ring.userRanks[0], prev = ring.userRanks[c.comm->nRanks - 1];
    const int root = static_cast<int>(w->root);
    const size_t elt = sizeof(float);
    ssize_t grid, count, chunk;
    ncclCollCbdPart(w, c.id, NCCL_PROTO_SIMPLE, elt, static_cast<ssize_t *>(nullptr), &grid, &count,
                    &chunk);
    Simple p(c, ring.prev, ring.next, 0, w->sendbuff, w->recvbuff,
             REDUCE_CHUNKSTEPS / REDUCE_SLICESTEPS, REDUCE_SLICESTEPS, 0, elt, false, false, false);
    for (ssize_t at = 0; at < count; at += chunk) {
        size_t off = (grid + at) * elt;
        ssize_t bytes = std::min(chunk, count - at) * ssize_t(elt);
        if (prev == root)
            p.go(false, true, kInput, kNone, off, off, bytes);
        else if (rank == root)
            p.go(true, false, kInput, kOutput, off, off, bytes);
        else
            p.go(true, true, kInput, kNone, off, off, bytes);
    }
}

/* ---- the kernel ---- */

const void *work_at(const ncclDevKernelArgs *args, uint32_t offset)
{
    if (args->workStorageType == ncclDevWorkStorageTypeArgs)
        return reinterpret_cast<const char *>(args) + offset;
    return static_cast<const char *>(args->workBuf) + (offset & args->workMask);
}

uint64_t clock_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void profile(ncclDevProfiler *at, Channel &c, uint64_t n)
{
    auto &d = at[c.id].data[n % MAX_PROFILER_EVENTS_PER_CHANNEL];
    d.timestamp = clock_ns();
    __atomic_store_n(&d.counter, n, __ATOMIC_RELEASE);
}

int play_channel(Channel &c, int batch_at)
{
    auto *batches = reinterpret_cast<const ncclDevWorkBatch *>(c.args + 1);
    while (!c.play->aborted) {
        std::vector<const void *> works;
        ncclDevWorkBatch b;
        while (true) {
            b = batches[batch_at];
            size_t size = ncclDevWorkSize(static_cast<ncclDevWorkType>(b.workType));
            for (int i = 0; i < 64; i++)
                if (b.offsetBitset >> i & 1)
                    works.push_back(work_at(c.args, b.offsetBase + i * size));
            if (!b.nextExtends)
                break;
            batch_at += b.nextJump;
        }
        const char *name = function_name(b.funcId);
        if (!name) {
            fprintf(stderr, "player: function %d is not in the table\n", int(b.funcId));
            return 1;
        }
        if (b.workType == ncclDevWorkTypeP2p) {
            std::vector<ncclDevWorkP2p> all;
            for (const void *w : works) {
                all.push_back(*static_cast<const ncclDevWorkP2p *>(w));
                if (all.back().profilerEnabled)
                    profile(c.comm->workStarted, c, c.counter + all.size());
            }
            auto played = all;
            if (play_p2p(c, played))
                return 1;
            for (size_t i = 0; i < all.size(); i++)
                if (all[i].profilerEnabled)
                    profile(c.comm->workCompleted, c, c.counter + i + 1);
        } else {
            for (size_t i = 0; i < works.size(); i++) {
                ncclDevWorkColl w = *static_cast<const ncclDevWorkColl *>(works[i]);
                if (w.profilerEnabled)
                    profile(c.comm->workStarted, c, c.counter + i + 1);
                if (!strcmp(name, "AllReduce Sum f32 RING SIMPLE"))
                    ring_all_reduce(c, &w, NCCL_PROTO_SIMPLE,
                                    Simple(c, c.channel->ring.prev, c.channel->ring.next, 0,
                                           w.sendbuff, w.recvbuff,
                                           ALLREDUCE_CHUNKSTEPS / ALLREDUCE_SLICESTEPS,
                                           ALLREDUCE_SLICESTEPS, 0, sizeof(float), w.netRegUsed,
                                           w.netRegUsed, false));
                else if (!strcmp(name, "AllReduce Sum f32 RING LL"))
                    ring_all_reduce(c, &w, NCCL_PROTO_LL,
                                    Ll(c, c.channel->ring.prev, c.channel->ring.next, 0, w.sendbuff,
                                       w.recvbuff, true));
                else if (!strcmp(name, "AllGather RING SIMPLE"))
                    ring_all_gather(c, &w);
                else if (!strcmp(name, "ReduceScatter Sum f32 RING SIMPLE"))
                    ring_reduce_scatter(c, &w);
                else if (!strcmp(name, "Broadcast RING SIMPLE"))
                    ring_broadcast(c, &w);
                else if (!strcmp(name, "Reduce Sum f32 RING SIMPLE"))
                    ring_reduce(c, &w);
                else {
                    fprintf(stderr, "player: %s is not played\n", name);
                    return 1;
                }
                if (w.profilerEnabled)
                    profile(c.comm->workCompleted, c, c.counter + i + 1);
            }
        }
        c.counter += works.size();
        if (b.nextJump == 0)
            break;
        batch_at += b.nextJump;
    }
    reinterpret_cast<ncclKernelCommAndChannels *>(c.comm)->channels[c.id].workCounter = c.counter;
    return 0;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int
play_kernel(const char *name, unsigned grid, unsigned, const void *packed, size_t)
{
    if (!strstr(name, "ncclDevKernel_"))
        return 1;
    auto *args = static_cast<const ncclDevKernelArgs *>(packed);
    auto *all = reinterpret_cast<ncclKernelCommAndChannels *>(args->comm);
    Play play;
    play.abort_flag = args->comm->abortFlag;
    std::vector<std::unique_ptr<Channel>> channels;
    int bad = 0;
    unsigned block = 0;
    for (int id = 0; id < MAXCHANNELS; id++)
        if (args->channelMask >> id & 1) {
            auto c = std::make_unique<Channel>();
            *c = Channel{
                &play, args, args->comm, &all->channels[id], id, all->channels[id].workCounter};
            Channel *p = c.get();
            int at = static_cast<int>(block++);
            channels.push_back(std::move(c));
            play.spawn([p, at, &bad] { bad |= play_channel(*p, at); }, nullptr);
        }
    if (block != grid) {
        fprintf(stderr, "player: %u channels but %u blocks\n", block, grid);
        return 1;
    }
    play.run();
    return bad;
}
