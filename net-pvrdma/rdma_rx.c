/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The receiving side of record and imm mode: sends clear-to-send entries and acknowledgements. */
#include "net-pvrdma/rdma_rx.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

/* The longest time for which a lane that closes waits for its final acknowledgement. */
#define FINAL_ACK_NS (PVN_NS_PER_S / 10)

/* The lane is dead, because a buffer crosses the regions of its registration. The code is not -EFAULT, which would blame
 * the caller for bytes outside of the registration. A failover would not help, because new lanes have the same regions. */
__attribute__((noinline, cold)) static int too_large(struct rdma_lane *r)
{
    return rdma_dead(r, -EMSGSIZE,
                     "receiving into a buffer larger than half the device's largest region");
}

/* Writes the keys of one buffer for every lane of the comm; all of these are RDMA lanes. *keys has to be 0 and
 * receives the combined keys for cts_sum(). */
static inline int put_keys(struct rdma_lane *r, const struct pvn_buffer *b, struct cts_line *line,
                           uint64_t *keys)
{
    uint32_t rkey[PVN_MAX_LANES] = {0};
    if (b->mr && b->size > 0 && !rdma_within(b->mr, b->addr, b->size))
        return -EFAULT;
    for (int k = 0; k < r->l.nlanes; k++) {
        const struct pvn_rdma_mem *mem = b->mr ? b->mr->lane_mr[k] : NULL;
        const struct ibv_mr *m = mem ? pvn_rdma_mem_find(mem, (uintptr_t)b->addr, b->size) : NULL;
        if (__builtin_expect(mem && !m && b->size > 0, 0))
            return too_large(r);
        rkey[k] = m ? m->rkey : b->mr ? b->mr->rkey[k] : 0;
    }
    for (int i = 0; 2 * i < r->l.nlanes; i++) {
        uint64_t word = cts_keys(rkey[2 * i], rkey[2 * i + 1]);
        line->keys[i] = htole64(word);
        *keys = cts_more_keys(*keys, word, i);
    }
    return 0;
}

/* `gpu` of memory without a registration, which accepts no short messages, like the memory of a GPU. */
enum { NOT_REGISTERED = 1 };
/* Writes a line without its keys. */
static inline void put_line(const struct rdma_lane *r, struct cts_line *line, uint64_t slot, int n,
                            const struct pvn_buffer *b, unsigned gpu, uint64_t keys)
{
    uint64_t what = cts_what(b->tag, n, __builtin_expect(gpu == 0, 1) ? r->copies : 0),
             addr = (uintptr_t)b->addr;
    line->addr = htole64(addr);
    line->size = htole64(b->size);
    line->what = htole64(what);
    line->sum = htole32(cts_sum(addr, b->size, keys, what));
    line->stamp = htole32((uint32_t)(slot + 1));
}

static inline struct cts_line *staged_line(const struct rdma_lane *r, int i)
{
    return &r->cts[(r->rx.staged_lines + (unsigned)i) % CTS_LINES];
}

static inline void staged(struct rdma_lane *r, int n)
{
    r->rx.staged++;
    r->rx.staged_lines += (unsigned)n;
    r->l.kick_due = true;
}

__attribute__((noinline)) static int stage_any(struct rdma_lane *r, uint64_t slot, int n,
                                               const struct pvn_buffer *b)
{
    /* The staging ring is as long as the peer's ring. The engine keeps no more slots open, so this is only a
     * safeguard. */
    if (r->rx.staged - r->rx.started >= CTS_SLOTS || slot != r->rx.staged)
        return slot < r->rx.staged ? 0 : -EAGAIN;
    for (int i = 0; i < n; i++) {
        struct cts_line *line = staged_line(r, i);
        uint64_t keys = 0;
        int rc = put_keys(r, &b[i], line, &keys);
        if (rc < 0)
            return rc;
        put_line(r, line, slot, n, &b[i], b[i].mr ? b[i].mr->gpu : NOT_REGISTERED, keys);
    }
    staged(r, n);
    return 0;
}

int rdma_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b)
{
    struct rdma_lane *r = rdma_of(l);
    /* Fast path: the keys of one or two lanes are one word. The check of the staging ring is left out, because the
     * engine keeps no more than CTS_SLOTS slots open. */
    if (n != 1 || l->nlanes > 2 || slot != r->rx.staged || !b->mr || b->mr->rkey[0] == 0 ||
        b->mr->rkey[l->nlanes - 1] == 0 || !rdma_within(b->mr, b->addr, b->size))
        return stage_any(r, slot, n, b);
    struct cts_line *line = staged_line(r, 0);
    uint64_t keys = cts_keys(b->mr->rkey[0], b->mr->rkey[1]);
    line->keys[0] = htole64(keys);
    put_line(r, line, r->rx.staged, 1, b, b->mr->gpu, keys);
    staged(r, 1);
    return 0;
}

/* True if the waiting entries should be published now. They may wait while the peer has unused entries for more than
 * half of the open slots, unless CTS_BATCH_MAX of them wait. */
static bool worth_publishing(const struct rdma_lane *r)
{
    uint64_t waiting = r->rx.staged - r->rx.published;
    if (waiting == 0)
        return false;
    uint64_t unused = r->rx.published - r->rx.started, open = r->rx.staged - r->rx.started;
    return unused <= open / 2 || waiting >= CTS_BATCH_MAX;
}

/* A chain is complete if the peer has used one of its entries or a later one. */
uint32_t rdma_rx_known(struct rdma_lane *r)
{
    while (r->rx.chain_known != r->rx.chain_tail &&
           r->rx.chain[r->rx.chain_known % (CTS_SLOTS * 2)] <= r->rx.started)
        r->rx.chain_known++;
    /* A poll may have taken completions before they were known. */
    if ((int32_t)(r->rx.chain_known - r->rx.chain_head) < 0)
        r->rx.chain_known = r->rx.chain_head;
    return r->rx.chain_known - r->rx.chain_head;
}

int rdma_rx_reap_known(struct rdma_lane *r)
{
    if (r->outstanding < REAP_AT)
        return 0;
    uint32_t known = rdma_rx_known(r);
    return known >= REAP_AT ? rdma_take(r, (int)known, NULL) : 0;
}

/* Takes completions because slots of the send queue are needed. If arrivals come through the same queue, the next poll
 * has to do that, because only a poll can report an arrival. */
static int reap_now(struct rdma_lane *r)
{
    if (r->mode->rx_polls_queue) {
        r->rx.take_now = true;
        return 0;
    }
    uint32_t known = rdma_rx_known(r);
    if (known == 0 && r->outstanding > 0)
        known = 1;
    return known ? rdma_take(r, (int)known, NULL) : 0;
}

/* 0 if a chain of this many requests may be posted. Otherwise takes completions and returns -EAGAIN. */
static int make_room(struct rdma_lane *r, uint64_t requests)
{
    if (r->qp[0].slots >= requests && r->rx.chain_tail - r->rx.chain_head < CTS_SLOTS * 2)
        return 0;
    int rc = reap_now(r);
    return rc < 0 ? rc : -EAGAIN;
}

/* Posts a chain. Its last request gets a completion if enough unsignaled slots have added up. done_at: the chain is
 * known to have completed once the peer has used all slots below this one. */
static inline __attribute__((always_inline)) int ring_chain(struct rdma_lane *r,
                                                            struct ibv_send_wr *first,
                                                            struct ibv_send_wr *last,
                                                            uint32_t slots, uint64_t done_at)
{
    struct rqp *q = &r->qp[0];
    struct ibv_send_wr *bad;
    q->slots -= slots;
    q->unsignaled += slots;
    last->next = NULL;
    if (q->unsignaled >= r->signal_every) {
        last->wr_id = rdma_wr_id(WR_CHAIN, 0, q->unsignaled);
        last->send_flags |= IBV_SEND_SIGNALED;
        r->rx.chain[r->rx.chain_tail++ % (CTS_SLOTS * 2)] = done_at;
        r->outstanding++;
        q->unsignaled = 0;
    }
    r->stats.post_send++;
    r->moved = true;
    int rc = ibv_post_send(q->qp, first, &bad);
    return __builtin_expect(rc == 0, 1) ? 0 : rdma_not_posted(r, rc);
}

/* The largest number of unacknowledged chunks on one queue pair. */
static uint32_t most_unacknowledged(const struct rdma_lane *r)
{
    uint32_t most = 0;
    for (const struct rqp *q = r->qp, *end = q + r->nqps; q < end; q++)
        if (q->seen - q->acknowledged > most)
            most = q->seen - q->acknowledged;
    return most;
}

/* Number of lines of short messages that have been read and not acknowledged. */
static uint32_t unacknowledged_lines(const struct rdma_lane *r)
{
    return r->qp[0].shorts.lines - r->qp[0].shorts.acknowledged;
}

/* True if published entries should carry acknowledgements. A peer whose completion queue is cheap to poll needs these
 * only to learn which records and short messages have been read. True whenever must_acknowledge() is true, so that a call
 * that publishes need not test that as well. */
static bool worth_acknowledging(const struct rdma_lane *r)
{
    uint32_t most = most_unacknowledged(r);
    if (r->peer.needs_acks)
        return most > 0;
    return unacknowledged_lines(r) >= SHORT_LINES / 4 ||
           (r->mode->window_by_reads && most >= (1u << r->peer.window_log2) / 4);
}

/* True if worth_acknowledging is true for any lane of the comm. */
static bool any_worth_acknowledging(const struct rdma_lane *r)
{
    bool worth = worth_acknowledging(r);
    for (int i = 1; i < r->njoined && !worth; i++)
        worth = worth_acknowledging(r->joined[i]);
    return worth;
}

/* Fills in request i of the chain: writes the waiting lines up to the end of the ring. */
static void put_lines(struct rdma_lane *r, int i)
{
    uint64_t at = r->rx.published_lines % CTS_LINES;
    uint64_t n = r->rx.staged_lines - r->rx.published_lines;
    if (n > CTS_LINES - at)
        n = CTS_LINES - at;
    struct publication *p = &r->rx.publication;
    uint32_t len = (uint32_t)(n * sizeof(struct cts_line));
    p->sge[i].addr = (uintptr_t)&r->cts[at];
    p->sge[i].length = len;
    p->wr[i].send_flags = r->cfg.max_inline >= len ? IBV_SEND_INLINE : 0;
    p->wr[i].wr.rdma.remote_addr = r->peer.mem_addr + MEM_CTS + at * sizeof(struct cts_line);
    p->wr[i].next = &p->wr[i + 1];
    r->rx.published_lines += n;
}

/* Lane with several queue pairs: stores the acknowledgement of queue pair k and the age of its last chunk. */
static inline void put_seen(struct rqp *q, struct ack_line *line, ptrdiff_t k, uint64_t now)
{
    uint64_t us = (now - q->seen_ns) / PVN_NS_PER_US;
    uint16_t age = us < AGE_UNKNOWN ? (uint16_t)us : AGE_UNKNOWN;
    __atomic_store_n(&line->age[k], htole16(age), __ATOMIC_RELAXED);
    __atomic_store_n(&line->seen[k], htole32(q->seen), __ATOMIC_RELAXED);
    q->acknowledged = q->seen;
}

/* Stores the acknowledgements of all queue pairs that have new chunks. */
__attribute__((noinline)) static void put_seen_of_many(struct rdma_lane *r, struct ack_line *line)
{
    uint64_t now = r->cfg.now();
    for (struct rqp *q = r->qp, *end = q + r->nqps; q < end; q++)
        if (q->acknowledged != q->seen)
            put_seen(q, line, q - r->qp, now);
}

/* Fills in the acknowledgement line of one lane. The device may still be reading the line for an earlier request; the
 * old and the new value of each word are both correct. */
static inline __attribute__((always_inline)) void put_acks_of(struct rdma_lane *r,
                                                              struct ack_line *line)
{
    struct rqp *q = &r->qp[0];
    if (__builtin_expect(r->nqps > 1, 0)) {
        put_seen_of_many(r, line);
    } else {
        __atomic_store_n(&line->seen[0], htole32(q->seen), __ATOMIC_RELAXED);
        q->acknowledged = q->seen;
    }
    __atomic_store_n(&line->lines, htole32(q->shorts.lines), __ATOMIC_RELAXED);
    q->shorts.acknowledged = q->shorts.lines;
    __atomic_store_n(&line->turn, htole32(++r->rx.turn), __ATOMIC_RELAXED);
}

/* Fills in the lines of the comm's other lanes that have new chunks. The other lines stay unchanged, so that the
 * sender's watch of them holds. */
__attribute__((noinline)) static void put_acks_of_others(struct rdma_lane *r)
{
    for (int i = 1; i < r->njoined; i++)
        if (most_unacknowledged(r->joined[i]) > 0)
            put_acks_of(r->joined[i], &r->ack[i]);
}

static inline struct ibv_send_wr *put_acks(struct rdma_lane *r)
{
    put_acks_of(r, r->ack);
    if (r->njoined > 1)
        put_acks_of_others(r);
    struct publication *p = &r->rx.publication;
    p->wr[ACKS].send_flags = r->cfg.max_inline >= p->sge[ACKS].length ? IBV_SEND_INLINE : 0;
    return &p->wr[ACKS];
}

void rdma_rx_open(struct rdma_lane *r)
{
    struct publication *p = &r->rx.publication;
    for (int i = 0; i <= ACKS; i++) {
        p->sge[i] = (struct ibv_sge){
            .addr = (uintptr_t)r->ack, .length = sizeof(*r->ack), .lkey = r->mem_mr->lkey};
        p->wr[i] = (struct ibv_send_wr){
            .sg_list = &p->sge[i],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .wr.rdma = {.remote_addr = r->peer.mem_addr + MEM_ACK, .rkey = r->peer.mem_rkey}};
    }
}

void rdma_rx_join(struct rdma_lane *r)
{
    r->rx.publication.sge[ACKS].length = (uint32_t)(r->njoined * (int)sizeof(*r->ack));
}

/* Posts one chain: the waiting entries, in two writes if the ring wraps, then the acknowledgements if they are worth
 * sending. */
__attribute__((noinline)) static int publish(struct rdma_lane *r)
{
    int rc = make_room(r, ACKS + 1), n = 0;
    if (rc < 0)
        return rc;
    do
        put_lines(r, n++);
    while (r->rx.published_lines < r->rx.staged_lines && n < ACKS);
    struct ibv_send_wr *first = r->rx.publication.wr, *last = first + n - 1;
    bool acks = any_worth_acknowledging(r);
    if (acks)
        last = last->next = put_acks(r);
    r->stats.cts_entries += r->rx.staged - r->rx.published;
    r->rx.published = r->rx.staged;
    return ring_chain(r, first, last, (uint32_t)(n + acks), r->rx.published);
}

/*
 * True if an acknowledgement has to go out without an entry. During a long message without new receives the peer needs it
 * before its window is full. A peer whose completion queue is expensive to poll learns only from acknowledgements that its
 * last messages are delivered. It gets one when no receive is open, because the caller may then make no call for a long
 * time.
 */
static inline bool must_acknowledge(const struct rdma_lane *r, bool idle)
{
    uint32_t most = most_unacknowledged(r);
    if (unacknowledged_lines(r) >= SHORT_LINES / 2)
        return true;
    if (most == 0 || !(r->peer.needs_acks || r->mode->window_by_reads))
        return false;
    return most >= (1u << r->peer.window_log2) / 2 || (r->peer.needs_acks && idle);
}

__attribute__((noinline)) static bool others_must_acknowledge(const struct rdma_lane *r)
{
    int i = 1;
    while (i < r->njoined && !must_acknowledge(r->joined[i], r->l.idle))
        i++;
    return i < r->njoined;
}

static inline bool any_must_acknowledge(const struct rdma_lane *r)
{
    return must_acknowledge(r, r->l.idle) || (r->njoined > 1 && others_must_acknowledge(r));
}

static int acknowledge_alone(struct rdma_lane *r)
{
    int rc = make_room(r, 1);
    if (rc < 0)
        return rc;
    struct ibv_send_wr *wr = put_acks(r);
    r->stats.acks_alone++;
    /* The completion is known once the peer has used an entry published after this. */
    return ring_chain(r, wr, wr, 1, r->rx.published + 1);
}

int rdma_rx_signal_now(struct rdma_lane *r)
{
    uint32_t every = r->signal_every;
    r->signal_every = 1;
    int rc = acknowledge_alone(r);
    r->signal_every = every;
    return rc == -EAGAIN ? 0 : rc;
}

/* True if the peer may need a final acknowledgement. Its last requests may be unsignaled, and the adapter's own
 * acknowledgement may be lost and not repeated after this end has closed. */
static bool final_ack_due(const struct rdma_lane *r)
{
    bool seen = false;
    /* The first lane sends it for all lanes of the comm. */
    if (r->first != r || r->cfg.sender || !r->verified || r->errored || r->l.abandoned)
        return false;
    for (int i = 0; i < r->njoined; i++)
        for (int k = 0; k < r->joined[i]->nqps; k++)
            seen |= r->joined[i]->qp[k].seen > 0;
    return seen;
}

/* Without it the peer could take delivered data for lost, because this end no longer answers. The acknowledgement also
 * has to complete before the close, because destroying the queue pair drops it while it is in flight. */
void rdma_rx_final_ack(struct rdma_lane *r, int (*take)(struct rdma_lane *r))
{
    uint64_t until = pvn_now_ns() + FINAL_ACK_NS;
    bool posted = false;
    if (!final_ack_due(r))
        return;
    r->signal_every = 1;
    while (r->l.err.code == 0 && (!posted || r->outstanding > 0) && pvn_now_ns() < until) {
        if (!posted)
            posted = acknowledge_alone(r) == 0;
        if (r->outstanding > 0 && take(r) < 0)
            return;
    }
}

int rdma_rx_kick(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    if (worth_publishing(r))
        return publish(r);
    return r->first == r && any_must_acknowledge(r) ? acknowledge_alone(r) : 0;
}

int rdma_rx_look_around(struct rdma_lane *r)
{
    return rdma_look_around(r, rdma_rx_known(r), r->qp[0].unsignaled > 0);
}
