/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sending side of record and imm mode: reads clear-to-send entries and acknowledgements, chooses queue pairs. */
#include "net-pvrdma/rdma_tx.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

/* A slow path gets a chunk as a probe after it has been idle for this many times the time of a chunk. */
enum { PROBE_AFTER = 50 };

/* The time at which a slow path is expected to have delivered a chunk that is posted now, in ns. 0: the path gets the next
 * chunk in any case. */
static uint64_t slow_finish(const struct rdma_path *p, uint32_t bytes, uint64_t now)
{
    uint64_t ns = rdma_path_weight(bytes, 1) * p->cost / 1024;
    if (!rdma_path_is_busy(p) && now - p->posted_ns > PROBE_AFTER * ns)
        return 0;
    return (p->free_ns > now ? p->free_ns : now) + ns;
}

/* The path that is expected to deliver the chunk first; equal paths take turns. full: a bit for each path that has no room.
 * -1: no path has room. */
static inline int soonest(const struct rdma_lane *r, uint32_t bytes, uint64_t now, unsigned full)
{
    uint64_t fast_ns = rdma_path_weight(bytes, 1) * r->tx.least_cost / 1024, least = UINT64_MAX;
    int best = -1;
    /* The search stops at a fast path that is free now, because no path is better. */
    for (int i = 0, k = r->next_qp; i < r->nqps && least > now + fast_ns;
         i++, k = k + 1 == r->nqps ? 0 : k + 1) {
        const struct rdma_path *p = &r->paths[k];
        uint64_t at = rdma_path_is_slow(r, p) ? slow_finish(p, bytes, now)
                                              : (p->free_ns > now ? p->free_ns : now) + fast_ns;
        if (at < least && !(full >> k & 1)) {
            least = at;
            best = k;
        }
    }
    return best;
}

/* Picks a path with room, or -1. A slow path is used only if it is expected to deliver first, not because the other paths are
 * full at the moment. */
int rdma_pick_path(struct rdma_lane *r, uint32_t bytes)
{
    uint64_t now = r->tx.picked_ns = r->cfg.now();
    for (unsigned full = 0;;) {
        int k = soonest(r, bytes, now, full);
        if (k < 0 || (full && rdma_path_is_slow(r, &r->paths[k])))
            return -1;
        if (rdma_has_room(r, &r->qp[k])) {
            r->next_qp = k + 1 == r->nqps ? 0 : k + 1;
            return k;
        }
        r->tx.starved |= r->qp[k].slots < PER_CHUNK;
        full |= 1u << k;
    }
}

__attribute__((noinline, cold)) int rdma_not_registered(struct rdma_lane *r,
                                                        const struct pvn_rdma_mem *mem)
{
    return rdma_dead(r, -EFAULT,
                     mem ? "sending bytes outside the registration given with them"
                         : "sending from memory that is not registered");
}

int rdma_tx_kick(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    for (int k = 0; k < r->nqps; k++) {
        int rc = rdma_ring(r, k);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads the keys of a line for three lanes or more. Returns them combined for cts_sum(). */
__attribute__((noinline)) static uint64_t
read_more_keys(const struct rdma_lane *r, const struct cts_line *line, struct pvn_cts_entry *e)
{
    uint64_t keys = 0;
    for (int i = 0; 2 * i < r->l.nlanes; i++) {
        uint64_t word = rdma_word(&line->keys[i]);
        e->rkey[2 * i] = (uint32_t)word;
        e->rkey[2 * i + 1] = word >> 32;
        keys = cts_more_keys(keys, word, i);
    }
    return keys;
}

/* Reads a line whose stamp is visible. Returns the slot's number of lines, or 0 if the rest of the line is not visible
 * yet. */
static inline int read_line(const struct rdma_lane *r, const struct cts_line *line,
                            struct pvn_cts_entry *e)
{
    uint64_t keys = rdma_word(&line->keys[0]), what = rdma_word(&line->what);
    e->addr = rdma_word(&line->addr);
    e->size = rdma_word(&line->size);
    e->tag = (int32_t)what;
    e->copies = cts_copies(what);
    e->rkey[0] = (uint32_t)keys;
    e->rkey[1] = keys >> 32;
    if (__builtin_expect(r->l.nlanes > 2, 0))
        keys = read_more_keys(r, line, e);
    return le32toh(line->sum) == cts_sum(e->addr, e->size, keys, what) ? cts_n(what) : 0;
}

/* Reads the other lines of a slot of n lines. 1: done, 0: a line is not complete yet, or the lane is dead. */
__attribute__((noinline)) static int read_more_lines(struct rdma_lane *r, struct pvn_cts *c, int n)
{
    if (n == 0)
        return rdma_partial(r, 0, r->tx.next_cts, PARTIAL_CTS);
    if (n > PVN_MAX_RECVS)
        return rdma_dead(r, -EPROTO,
                         "reading a clear-to-send entry: its number of buffers is impossible");
    for (int i = 1; i < n; i++) {
        const struct cts_line *line = &r->cts[(r->tx.next_line + (unsigned)i) % CTS_LINES];
        if (__atomic_load_n(&line->stamp, __ATOMIC_ACQUIRE) !=
            htole32((uint32_t)r->tx.next_cts + 1))
            return 0;
        if (!read_line(r, line, &c->e[i]))
            return rdma_partial(r, 0, r->tx.next_cts, PARTIAL_CTS);
    }
    return 1;
}

/* next_slot: returns the next slot once all of its lines are complete. */
int rdma_next_slot(struct pvn_lane *l, const struct pvn_cts **cts)
{
    struct rdma_lane *r = rdma_of(l);
    const struct cts_line *line = r->tx.line;
    if (__atomic_load_n(&line->stamp, __ATOMIC_ACQUIRE) != htole32((uint32_t)r->tx.next_cts + 1))
        return 0;
    /* The assumed alignment saves gcc instructions, as in eng_next_msg(). */
    struct pvn_cts *c = __builtin_assume_aligned(&r->cts_seen[r->tx.next_cts % CTS_SLOTS], 8);
    int n = read_line(r, line, &c->e[0]);
    if (__builtin_expect(n != 1, 0)) {
        int rc = read_more_lines(r, c, n);
        if (rc <= 0)
            return rc;
    }
    c->n = n;
    r->tx.next_cts++;
    r->tx.next_line += (unsigned)n;
    r->tx.line = &r->cts[r->tx.next_line % CTS_LINES];
    *cts = c;
    return 1;
}

static inline uint32_t ack_of(const struct rdma_lane *r, int k)
{
    return le32toh(__atomic_load_n(&r->tx.acks->seen[k], __ATOMIC_ACQUIRE));
}

/* The time at which the receiver saw the last acknowledged chunk; 0: not known. */
static uint64_t arrival_of(const struct rdma_lane *r, int k)
{
    uint16_t age = le16toh(__atomic_load_n(&r->tx.acks->age[k], __ATOMIC_ACQUIRE));
    return age == AGE_UNKNOWN ? 0 : r->cfg.now() - age * PVN_NS_PER_US;
}

static inline int read_ack(struct rdma_lane *r, int k)
{
    struct rqp *q = &r->qp[k];
    uint32_t seen = ack_of(r, k);
    if ((int32_t)(seen - q->consumed) <= 0)
        return 0;
    if (__builtin_expect(seen - q->consumed > q->posted - q->consumed, 0))
        return rdma_dead(r, -EPROTO, "reading acknowledgements: more than was sent");
    q->consumed = seen;
    rdma_acked(r, q, seen);
    if (r->paths && rdma_path_is_busy(&r->paths[k]))
        rdma_path_acked(r, k, arrival_of(r, k));
    r->moved = true;
    return 0;
}

/* Number of signaled requests whose chunks are acknowledged, so that their completions are in the queue or will be at
 * once. */
static inline uint32_t tx_known_completions(struct rdma_lane *r)
{
    uint32_t known = 0;
    for (int k = 0; k < r->nqps; k++) {
        struct rqp *q = &r->qp[k];
        /* A poll may have taken completions before they were known. */
        if ((int32_t)(q->signals_known - q->signals_taken) < 0)
            q->signals_known = q->signals_taken;
        while (q->signals_known != q->signals &&
               (int32_t)(q->acked - q->signal_at[q->signals_known % SIGNALS]) >= 0)
            q->signals_known++;
        known += q->signals_known - q->signals_taken;
    }
    return known;
}

/* Takes the completions that are known to be in the queue. */
static int reap(struct rdma_lane *r, uint32_t known)
{
    int rc = rdma_take(r, (int)known, NULL);
    if (rc < 0)
        return rc;
    /* A device may show an acknowledgement before the completions. Then the next poll waits for more of them. */
    bool early = rc < (known < CQ_BATCH ? (int)known : CQ_BATCH);
    r->tx.reap_at = REAP_AT + (early ? known - (uint32_t)rc : 0);
    r->tx.starved = false;
    return 0;
}

/* Takes acknowledgements and completions. */
static inline int tx_take_events(struct rdma_lane *r)
{
    for (int k = 0; k < r->nqps; k++) {
        int rc = read_ack(r, k);
        if (rc < 0)
            return rc;
    }
    if (!r->cfg.costly_poll)
        return r->outstanding ? rdma_take(r, CQ_BATCH, NULL) : 0;
    if (r->outstanding < r->tx.reap_at && !r->tx.starved)
        return 0;
    uint32_t known = tx_known_completions(r);
    return known >= r->tx.reap_at || (known && r->tx.starved) ? reap(r, known) : 0;
}

static inline void report_sent(struct rdma_lane *r, struct rqp *q, struct pvn_event *ev, int max,
                               int *n)
{
    uint32_t count = q->acked - q->reported;
    if (count > (uint32_t)(max - *n))
        count = (uint32_t)(max - *n);
    uint32_t at = q->reported, end = at + count;
    while (at != end) {
        struct pvn_event *e = &ev[(*n)++];
        uint32_t note = q->note[at++ % RECORD_RING], id = rdma_note_id(note), more = 0;
        e->kind = PVN_EV_SENT;
        e->id = id;
        e->chunk = rdma_note_chunk(note);
        /* Consecutive messages of one chunk go into the same event. */
        while (at != end && q->note[at % RECORD_RING] == rdma_note_make(pvn_id(++id), 0)) {
            at++;
            more++;
        }
        e->more = more;
    }
    q->reported = end;
    r->tx.unreported -= count;
    r->chunks_done += count;
}

static inline void report_all(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    for (struct rqp *q = r->qp, *end = q + r->nqps; q < end; q++)
        if (q->acked != q->reported)
            report_sent(r, q, ev, max, n);
}

/* True if memory shows that a poll would find something. */
static inline bool tx_has_events(const struct rdma_lane *r)
{
    if (r->tx.starved || r->tx.unreported || (!r->cfg.costly_poll && r->outstanding))
        return true;
    for (int k = 0; k < r->nqps; k++)
        if ((int32_t)(ack_of(r, k) - r->qp[k].consumed) > 0)
            return true;
    return false;
}

/* True if the last chunks in flight are unsignaled. They may get neither an acknowledgement nor a completion. */
static bool may_lack_completion(const struct rqp *q)
{
    return q->unsignaled > 0 && q->nwr == 0 && q->acked != q->posted;
}

/* Posts an empty signaled request after unsignaled chunks. If the send queue has no free slot, takes the completions of
 * earlier requests instead. */
static int post_signaled_empty(struct rdma_lane *r, struct rqp *q)
{
    if (q->slots == 0)
        return rdma_take_requests(r);
    struct ibv_send_wr *wr = rdma_wr(q, NULL, 0, 0, r->peer.mem_addr, r->peer.mem_rkey);
    q->shorts.room = 0;
    q->unsignaled++;
    rdma_signal_data(r, q, wr, q->posted);
    return rdma_ring_chain(r, q);
}

/* Watches the counter of the peer's acknowledgements. */
static inline void watch_memory(struct rdma_lane *r)
{
    if (!r->cfg.costly_poll)
        return;
    const uint32_t *turn = &r->tx.acks->turn;
    uint32_t at_turn = __atomic_load_n(turn, __ATOMIC_ACQUIRE);
    for (int k = 0; k < r->nqps; k++)
        if (ack_of(r, k) != r->qp[k].consumed)
            return;
    rdma_watch(r, turn, at_turn, turn, at_turn);
}

/* Checks the lane's health after empty polls. Unsignaled requests are usually acknowledged with the peer's next
 * clear-to-send entries. If no entry comes, an empty signaled request is posted after an idle time, because its completion
 * shows the result of the unsignaled ones. */
static int tx_empty_poll(struct rdma_lane *r)
{
    bool unsignaled = false;
    for (int k = 0; k < r->nqps; k++)
        unsignaled |= may_lack_completion(&r->qp[k]);
    if (!unsignaled)
        return rdma_look_around(r, tx_known_completions(r), false);
    int rc = rdma_healthy(r);
    if (rc < 0 || !rdma_time_to_poll(r))
        return rc;
    for (int k = 0; rc == 0 && k < r->nqps; k++)
        if (may_lack_completion(&r->qp[k]))
            rc = post_signaled_empty(r, &r->qp[k]);
    /* The completion of the empty request comes within a round trip, so the queue is polled soon. */
    r->moved = false;
    r->idle_wait_ns = r->cfg.idle_poll_ns / 16;
    return rc;
}

__attribute__((noinline)) static int tx_take_all(struct rdma_lane *r, struct pvn_event *ev, int max)
{
    int n = 0, rc = tx_take_events(r);
    if (r->tx.unreported)
        report_all(r, ev, max, &n);
    r->fresh = n > 0;
    if (rc == 0 && n == 0 && rdma_due_to_look(r))
        rc = tx_empty_poll(r);
    return rc < 0 && n == 0 ? rc : n;
}

int rdma_tx_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct rdma_lane *r = rdma_of(l);
    if (tx_has_events(r))
        return tx_take_all(r, ev, max);
    if (!r->fresh)
        watch_memory(r);
    r->fresh = false;
    return rdma_due_to_look(r) ? tx_empty_poll(r) : 0;
}
