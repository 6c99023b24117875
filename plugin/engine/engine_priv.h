/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the engine's files. Only engine*.c, engine_tx.h and, by engine_calls.h, comm.c include it. */
#ifndef PVN_ENGINE_ENGINE_PRIV_H
#define PVN_ENGINE_ENGINE_PRIV_H

#include <assert.h>
#include <errno.h>

#include "engine/engine.h"

enum {
    CHUNK_WORDS = (PVN_MAX_CHUNKS + 63) / 64,
    SLOT_RING = PVN_SLOT_SPAN, /* open slots of a clear-to-send comm, both ends */
    MSG_RING = 256,            /* PVN_MAX_SENDS: open messages, both ends */
    UNEXPECTED_SLOTS = 64,     /* messages kept aside for a buffer with their tag */
    NO_INDEX = -1,
    MAX_TOTAL_LOG2 = 40 /* 1 TiB: no message is longer; bounds what the wire can make us compute */
};

/* Which chunks have been seen. One bit each: the whole cost of exactly-once on the healthy path. */
struct chunk_set {
    uint64_t w[CHUNK_WORDS];
};

static inline bool chunk_test(const struct chunk_set *s, unsigned c)
{
    return s->w[c / 64] >> (c % 64) & 1;
}

static inline void chunk_clear(struct chunk_set *s)
{
    *s = (struct chunk_set){{0}};
}

static inline void chunk_add(struct chunk_set *s, unsigned c)
{
    s->w[c / 64] |= UINT64_C(1) << (c % 64);
}

/* How a message is cut. Both ends never need to agree on it: every chunk carries its offset. */
struct plan {
    size_t chunk;   /* bytes of every chunk but the last */
    unsigned count; /* 1 .. PVN_MAX_CHUNKS */
};

enum req_kind { REQ_SEND, REQ_RECV, REQ_FLUSH };
/* KEPT: no request any more, but its message has to stay, see engine_keep.c. */
enum req_state { REQ_FREE, REQ_OPEN, REQ_DONE, REQ_KEPT };

/* A request, which the caller holds: the first member of a message, a group or a flush. It lives until
 * test has reported it done. */
struct pvn_req {
    void *owner; /* see pvn_req_owner */
    struct pvn_engine *e;
    uint64_t born; /* ns */
    size_t size;   /* of a send; of a receive of one buffer, once it is done; of a flush 0 */
    uint8_t state;
    uint8_t sizes; /* that test gives: buffers of a receive, else 1 */
    uint8_t kind;  /* fixed */
    uint8_t left;  /* of a receive: buffers not done */
    uint8_t
        after; /* its state once it is tested: REQ_FREE, or REQ_KEPT while a copy of it is kept */
};

static_assert(offsetof(struct pvn_req, owner) == 0, "pvn_req_owner looks there");

/* One message at its sender, in msg[its number % MSG_RING]; two cache lines. */
struct send_msg {
    struct pvn_req req;
    uint16_t count;  /* chunks; 1 while it is free */
    uint16_t next;   /* first chunk not posted yet; 1 while it is free */
    uint16_t ndone;  /* of a message that is cut: chunks whose PVN_EV_SENT came */
    bool unassigned; /* sent again after a failover, and no buffer has been found for it yet */
    /* The first chunk; the others are made of it, and all but the last are as long. Its offset and
     * number stay 0. */
    struct pvn_write w;
} __attribute__((aligned(64)));
static_assert(sizeof(struct send_msg) == 128, "a message is two cache lines");

/* The state of one buffer of a grouped receive. */
struct recv_ent {
    bool matched; /* a message has been given to it, or has begun to arrive */
    bool done;
    bool total_known;
    uint64_t total;
    /* Valid once the total is known. */
    uint64_t got;
    struct chunk_set seen; /* chunks that are complete */
};

/* One grouped receive. */
struct recv_group {
    struct pvn_req req;
    struct recv_group *next_free; /* behind it in the list of those without a request */
    uint64_t slot;
    struct pvn_buffer buf[PVN_MAX_RECVS];
    struct recv_ent ent[PVN_MAX_RECVS];
};

/* One flush: a buffer of each GPU, with every lane. */
struct flush_job {
    struct pvn_req req;
    int n;
    const void *addr[PVN_MAX_RECVS];
    const struct pvn_mr *mr[PVN_MAX_RECVS];
    uint64_t unposted; /* a bit per buffer and lane: that lane has not taken it yet */
    unsigned waiting;  /* answers that are still to come */
};

/* The part of one buffer's message that lanes have placed (PVN_LANE_PLACES). It is never more than the
 * message has, so when the message is complete no lane writes to the buffer any more. */
struct placed {
    uint64_t bytes;
    struct chunk_set chunks; /* that some lane is writing or has written */
    /* Clear-to-send comms only; struct recv_ent has the size of a matched message. */
    bool begun;
    uint64_t total;
};

/* An unexpected message: it came before a buffer with its tag was posted. */
struct unexpected {
    bool used;
    uint64_t msg, total, got;
    int tag;
    uint8_t *buf;
    struct placed placed;
    struct chunk_set seen;
    int16_t group; /* once claimed: the buffer that waits for it, else NO_INDEX */
    uint8_t ent;
};

/* The place of message k of a matched comm, in map[k % MSG_RING]. */
enum map_kind { MAP_NONE, MAP_ENT, MAP_UNEXPECTED, MAP_DONE };
struct msg_map {
    enum map_kind kind;
    int16_t idx; /* group or unexpected message */
    uint8_t ent;
    uint64_t msg;
};

/* State of the receiver of a matched comm. */
struct matching {
    uint64_t next; /* first message not given to a buffer */
    int unmatched; /* posted buffers without a message */
    int nunexpected;
    size_t unexpected_bytes;
    struct msg_map map[MSG_RING];
    struct unexpected unexpected[UNEXPECTED_SLOTS];
    /* From here on nothing is set until it is used. */
    struct placed placed[PVN_MAX_REQS][PVN_MAX_RECVS]; /* of each buffer of each group */
};

struct keeper;

struct sender {
    struct keeper *keeper; /* NULL: no message is kept */
    uint64_t next;         /* number of the next message */
    uint64_t fresh;        /* the first message whose place is not set yet; UINT64_MAX: all are */
    uint64_t unposted;     /* where e->unposted: first message that has chunks to post */
    uint64_t slot_head;    /* oldest slot with free buffers */
    const struct pvn_cts *cts; /* its entry; NULL: it has not been taken from the lane yet */
    int unassigned;            /* messages with that mark; new ones wait behind them */
    /* taken[slot number % SLOT_RING] has a bit for each buffer to which a send has been matched, perhaps
     * before a failover. */
    uint8_t taken[SLOT_RING];
    /* From here on nothing is set until it is used: most comms never have so many messages at a time, and the
     * pages that nobody touches cost nothing. */
    struct send_msg msg[MSG_RING];
    /* The chunks that ndone counts, of messages that are cut. */
    struct chunk_set done[MSG_RING];
};
static_assert(PVN_MAX_RECVS <= 8, "a byte has a bit for each buffer");

struct receiver {
    uint64_t next_slot;   /* number of the next group */
    uint64_t earlier;     /* groups that were counted before the last failover, and are not now */
    uint64_t early;       /* buffers that were full before the others of their group, ever */
    uint64_t oldest_slot; /* no open group is older */
    unsigned unpublished; /* newest slots, for which no lane has had room */
    /* NULL: this is no matched comm. */
    struct matching *match;
    struct placed (*placed)[PVN_MAX_RECVS]; /* of each group; NULL: not by lanes that place */
    struct recv_group *free;                /* groups without a request, the last one used first */
    struct recv_group *ring[SLOT_RING];     /* slot % SLOT_RING -> group not full yet, or NULL */
    int flushing;                           /* flushes that some lane has not taken */
    uint64_t flushes;                       /* ever */
    uint64_t flushed;    /* of them, those that are done; counted before stats.msgs */
    int ngroups, nflush; /* those that have been used */
    /* From here on nothing is set until it is used, as in struct sender. */
    struct recv_group groups[PVN_MAX_REQS];
    struct flush_job flush[PVN_MAX_REQS];
};

/* Unless it runs, the lanes are left alone. */
enum eng_state {
    ENG_RUNS,
    ENG_PAUSED, /* until there are other lanes; `unposted` is set with it */
    ENG_FAILED  /* for good, and err says why */
};

struct pvn_engine {
    struct pvn_engine_cfg cfg;
    enum eng_state state;
    bool unposted; /* there is something that the lanes had no room for */
    bool needs_cts;
    bool places; /* with it: the receiver's lanes find the buffer, PVN_LANE_PLACES */
    int rr;      /* lane that gets the next chunk first */
    unsigned ticks;
    uint64_t now; /* sampled every few progress calls */
    size_t chunk; /* what messages are cut into: the preferred size as far as the lanes allow it */
    struct sender *tx; /* one of the two, by cfg.sender */
    struct receiver *rx;
    /* The only lane's words; no_watch with several lanes and while the engine does not run. Unchanged words
     * mean no work: code that creates work which they do not reflect must empty the watch. */
    struct pvn_lane_watch *watch;
    struct pvn_lane_watch no_watch; /* never filled in */
    uint32_t epoch; /* failover: of the lanes in use; one more each time both ends have resumed */
    struct pvn_engine_stats stats;
    struct pvn_err err;
    struct pvn_err pause_err;
    /* see engine_error.c: a lane has ended `unclear`, and so many messages had been delivered then */
    bool doubted;
    uint64_t doubted_at;
};

/* The request of a place that is used for the first time. */
static inline void eng_init_req(struct pvn_engine *e, struct pvn_req *req, enum req_kind kind)
{
    *req = (struct pvn_req){.owner = e->cfg.owner, .e = e, .kind = (uint8_t)kind, .sizes = 1};
}

static inline void eng_req_open(struct pvn_engine *e, struct pvn_req *req)
{
    req->born = e->now;
    req->state = REQ_OPEN;
}

/* A counter that other threads read (pvn_engine_received, pvn_engine_count) and one writes. */
static inline void eng_set(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline void eng_count(uint64_t *counter)
{
    eng_set(counter, *counter + 1);
}

static inline void eng_count_bytes(struct pvn_engine *e, uint64_t n)
{
    eng_set(&e->stats.bytes, e->stats.bytes + n);
}

static inline void eng_req_done(struct pvn_engine *e, struct pvn_req *req)
{
    req->state = REQ_DONE;
    eng_count(&e->stats.msgs);
}

/* Requests not done. */
static inline int eng_pending(const struct pvn_engine *e)
{
    uint64_t opened = e->tx ? e->tx->next : e->rx->earlier + e->rx->next_slot + e->rx->flushes;
    return (int)(opened - e->stats.msgs);
}

/* Fills in buffer i of a group that has no request yet. */
static inline void eng_open_entry(struct recv_group *g, int i, void *data, size_t size, int tag,
                                  const struct pvn_mr *mr)
{
    struct pvn_buffer *b = &g->buf[i];
    struct recv_ent *ent = &g->ent[i];
    b->addr = data;
    b->size = size;
    b->mr = mr;
    b->tag = tag;
    ent->matched = ent->done = ent->total_known = false;
}

/* The first group without a request, whose buffers are known, gets one, and the next slot. */
static inline void eng_open_group(struct pvn_engine *e, struct recv_group *g, uint64_t slot, int n)
{
    struct receiver *rx = e->rx;
    rx->free = g->next_free;
    g->slot = slot;
    rx->ring[slot % SLOT_RING] = g;
    eng_set(&rx->next_slot, slot + 1);
    eng_req_open(e, &g->req);
    g->req.sizes = g->req.left = (uint8_t)n;
}

static inline void eng_free_group(struct recv_group *g)
{
    struct receiver *rx = g->req.e->rx;
    g->next_free = rx->free;
    rx->free = g;
}

/* One buffer is full: close it, its group and the request when it was the last. */
static inline void eng_entry_arrived(struct pvn_engine *e, struct recv_group *g,
                                     struct recv_ent *ent)
{
    struct receiver *rx = e->rx;
    ent->done = true;
    eng_count_bytes(e, ent->total);
    if (--g->req.left > 0) {
        eng_count(&rx->early);
        return;
    }
    rx->ring[g->slot % SLOT_RING] = NULL;
    g->req.size = g->ent[0].total;
    /* Only matching looks for it. */
    while (!e->needs_cts && rx->oldest_slot < rx->next_slot &&
           !rx->ring[rx->oldest_slot % SLOT_RING])
        rx->oldest_slot++;
    eng_req_done(e, &g->req);
}

/* True if a post to this lane, or an event of it, has to cause something: the caller calls eng_moved() then. One test
 * of a byte for all, in place of the store of a due kick. */
static inline bool eng_moves(const struct pvn_lane *l)
{
    return __builtin_expect(l->moves != 0, 0);
}

/* Makes a kick due where the lane does not; true if the lane has a profiler, which is to see the post or event. */
static inline bool eng_moved(struct pvn_lane *l)
{
    l->kick_due |= l->moves & PVN_LANE_MOVES_KICK;
    return l->moves & PVN_LANE_MOVES_PROFILED;
}

/* True if the watched words show that a poll would be empty; it is left out then. */
static inline bool eng_watch_is_still(struct pvn_lane_watch *w)
{
    if (w->polls == 0 || __atomic_load_n(w->at[0], __ATOMIC_RELAXED) != w->same[0] ||
        __atomic_load_n(w->at[1], __ATOMIC_RELAXED) != w->same[1])
        return false;
    w->polls--;
    return true;
}

/* engine_error.c */
/* Latches err->code with a text; returns the code. */
int eng_fail(struct pvn_engine *e, int code, enum pvn_fault fault, const char *fmt, ...)
    PVN_PRINTF(4, 5);

/* engine.c */
int eng_kick_all(struct pvn_engine *e); /* the lanes that are due */
/* True if one of these lanes has the capability. A comm with PVN_LANE_NEEDS_CTS is not a matched one. */
bool eng_have(struct pvn_lane *const *lanes, int nlanes, unsigned cap);
/* Gets what a receiver needs for these lanes, unless it has that. 0 or -ENOMEM. */
int eng_prepare(struct receiver *rx, struct pvn_lane *const *lanes, int nlanes);
/* Sets up the engine for the lanes of cfg, and these for the engine. */
void eng_use_lanes(struct pvn_engine *e);

/* engine_plan.c */
size_t eng_chunk(const struct pvn_engine_cfg *cfg);
struct plan eng_cut(size_t size, size_t chunk); /* size > chunk */

static inline struct plan eng_plan(const struct pvn_engine *e, size_t size)
{
    return size <= e->chunk ? (struct plan){.chunk = size, .count = 1} : eng_cut(size, e->chunk);
}

/* Places of msg that are set. */
static inline uint64_t eng_used_msgs(const struct sender *tx)
{
    return tx->fresh < MSG_RING ? tx->fresh : MSG_RING;
}

static inline struct chunk_set *eng_done_chunks(struct sender *tx, const struct send_msg *m)
{
    return &tx->done[m - tx->msg];
}

/* engine_tx.c */
/* A batch of events. 0 or the engine's error. */
int eng_tx_events(struct pvn_engine *e, const struct pvn_event *ev, int n);
int eng_tx_post(struct pvn_engine *e); /* what lanes had no room for */
void eng_tx_oldest(const struct pvn_engine *e, const struct pvn_req *req, char *text, size_t cap);

/* engine_keep.c */
int eng_keep_new(struct sender *tx); /* 0 or -ENOMEM */
void eng_keep_free(struct sender *tx);
/* True if a copy of such a message may be kept; the sender has a keeper. */
bool eng_may_keep(const struct pvn_engine *e, size_t size, const struct pvn_mr *mr);
/* A lane has taken message `id`, which is done if a copy of it may be kept. */
void eng_keep(struct pvn_engine *e, uint32_t id);
/* A kept message is delivered. */
void eng_unkeep(struct pvn_engine *e, struct send_msg *m);
static inline bool eng_is_kept(const struct send_msg *m)
{
    return m->req.after == REQ_KEPT;
}

/* engine_flush.c */
void eng_flush_event(struct pvn_engine *e, const struct pvn_event *ev);
void eng_flush_end(struct pvn_engine *e); /* the open ones: the lanes were lost */
int eng_flush_post(struct pvn_engine *e); /* what lanes had no room for */

/* engine_place.c: clear-to-send comms whose lanes place, receiving side */
/* Checks a chunk's numbers against each other. 0, or the engine's error if they contradict. */
int eng_check_chunk(struct pvn_engine *e, const struct pvn_frame *f);
int eng_slot_place(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                   struct pvn_place *to);
/* 0 or -ENOMEM; nothing has been placed then. */
int eng_place_new(struct receiver *rx);
void eng_place_free(struct receiver *rx);
/* A group has been opened. */
void eng_place_open(struct receiver *rx, const struct recv_group *g);

/* engine_match.c: matched comms, receiving side */
int eng_match_place(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                    struct pvn_place *to);
int eng_match_arrived(struct pvn_engine *e, const struct pvn_event *ev);
/* A group has been posted: gives unexpected messages to its buffers. */
int eng_match_claim(struct pvn_engine *e, struct recv_group *g);
/* 0 or -ENOMEM. */
int eng_match_new(struct receiver *rx);
void eng_match_free(struct receiver *rx);
/* Receiver, failover: whether message number is complete; forgets what has come of those that are
 * not; goes on from an answer where slots were counted before. */
bool eng_match_has(const struct receiver *rx, uint64_t msg);
void eng_match_rewind(struct receiver *rx);
void eng_match_begin(struct receiver *rx, const struct pvn_engine_answer *a);
/* True if a whole message waits for a buffer with its tag. */
bool eng_match_keeps(const struct receiver *rx);
/* True if the next message waits because an unexpected one has its place in the ring. */
bool eng_match_is_held_up(const struct receiver *rx);

#endif
