/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the engine's files. Only engine*.c, engine_tx.h, engine_recv.h and, through engine_calls.h,
 * comm.c include it. */
#ifndef PVN_ENGINE_ENGINE_PRIV_H
#define PVN_ENGINE_ENGINE_PRIV_H

#include <assert.h>
#include <errno.h>

#include "engine/engine.h"

enum {
    CHUNK_WORDS = (PVN_MAX_CHUNKS + 63) / 64,
    SLOT_RING = PVN_SLOT_SPAN, /* open slots of a clear-to-send comm, both ends */
    MSG_RING = 256,            /* PVN_MAX_SENDS: open messages, both ends */
    UNEXPECTED_SLOTS = 64,     /* unexpected messages that wait for a buffer with their tag */
    NO_INDEX = -1,
    MAX_TOTAL_LOG2 = 40 /* a message has less than 1 TiB; bounds sizes that the peer sends */
};

/* The chunks that have been seen, a bit each. It makes sure that each chunk counts only once. */
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

/* How a message is cut into chunks. The ends need not agree on it, because every chunk carries its
 * offset. */
struct plan {
    size_t chunk;   /* bytes of every chunk but the last */
    unsigned count; /* 1 .. PVN_MAX_CHUNKS */
};

enum req_kind { REQ_SEND, REQ_RECV, REQ_FLUSH };
/* KEPT: the request has been tested, but a copy of its message is still kept, see engine_keep.c. */
enum req_state { REQ_FREE, REQ_OPEN, REQ_DONE, REQ_KEPT };

/* A request, to which the caller has a pointer: the first member of a message, a group or a flush. It
 * lives until test has reported it done. */
struct pvn_req {
    void *owner; /* see pvn_req_owner */
    struct pvn_engine *e;
    uint64_t born; /* ns */
    size_t size;   /* bytes: of a send; of a completed receive its first buffer; of a flush 0 */
    uint8_t state; /* enum req_state */
    uint8_t sizes; /* number of sizes that test returns: buffers of a receive, else 1 */
    uint8_t kind;  /* enum req_kind; constant */
    uint8_t left;  /* receive: buffers that are not done */
    uint8_t after; /* state after the final test: REQ_KEPT while a copy is kept, else REQ_FREE */
};

static_assert(offsetof(struct pvn_req, owner) == 0, "pvn_req_owner looks there");

/* One message at its sender, in msg[message number % MSG_RING]; two cache lines. */
struct send_msg {
    struct pvn_req req;
    uint16_t count;  /* chunks; 1 while the entry is free */
    uint16_t next;   /* first chunk not posted yet; 1 while the entry is free */
    uint16_t ndone;  /* if the message has several chunks: those whose PVN_EV_SENT came */
    bool unassigned; /* has to be sent again after a failover, and has no buffer yet */
    /* The first chunk, with offset 0 and number 0. The others are derived from it; all but the last
     * have the same length. */
    struct pvn_write w;
} __attribute__((aligned(64)));
static_assert(sizeof(struct send_msg) == 128, "a message is two cache lines");

/* The state of one buffer of a grouped receive. */
struct recv_ent {
    bool matched; /* the buffer has a message, or a message for it has begun to arrive */
    bool done;
    bool total_known;
    uint64_t total; /* bytes of the message */
    /* Valid only with total_known. */
    uint64_t got;
    struct chunk_set seen; /* chunks that are complete */
};

/* One grouped receive. */
struct recv_group {
    struct pvn_req req;
    struct recv_group *next_free; /* in the list of groups without a request */
    uint64_t slot;
    struct pvn_buffer buf[PVN_MAX_RECVS];
    struct recv_ent ent[PVN_MAX_RECVS];
};

/* One flush: one buffer of each GPU, flushed by every lane. */
struct flush_job {
    struct pvn_req req;
    int n;
    const void *addr[PVN_MAX_RECVS];
    const struct pvn_mr *mr[PVN_MAX_RECVS];
    uint64_t unposted; /* a bit per buffer and lane: the lane has not taken the flush yet */
    unsigned waiting;  /* pairs of buffer and lane whose flush is not finished */
};

/* The part of one buffer's message whose destination lanes have requested (`place`). `bytes` never
 * exceeds the message's size, so no lane still writes to the buffer when the message is complete. */
struct placed {
    uint64_t bytes;
    struct chunk_set chunks; /* chunks that a lane is writing or has written */
    /* Only in clear-to-send comms. In matched comms struct recv_ent has the message's size. */
    bool begun;
    uint64_t total;
};

/* An unexpected message, which arrived before a buffer with its tag was posted. */
struct unexpected {
    uint64_t msg, total, got;
    int tag;
    uint8_t *buf;
    struct placed placed;
    struct chunk_set seen;
    int16_t group; /* the group whose buffer has claimed the message; NO_INDEX: none yet */
    uint8_t ent;   /* that buffer */
};

/* The place of message k of a matched comm, in map[k % MSG_RING]. */
enum map_kind { MAP_NONE, MAP_ENT, MAP_UNEXPECTED, MAP_DONE };
struct msg_map {
    uint8_t kind; /* enum map_kind */
    uint8_t ent;  /* MAP_ENT: buffer of the group */
    int16_t idx;  /* MAP_ENT: group; MAP_UNEXPECTED: index in `unexpected` */
    uint64_t msg;
};

/* State of the receiver of a matched comm. */
struct matching {
    uint64_t next; /* first message that has neither a buffer nor an entry in `unexpected` */
    int unmatched; /* posted buffers without a message */
    uint64_t used; /* a bit for each entry of `unexpected` that has a message */
    size_t unexpected_bytes;
    struct msg_map map[MSG_RING];
    /* Members from here on are initialised at their first use. */
    struct unexpected unexpected[UNEXPECTED_SLOTS];
    struct placed placed[PVN_MAX_REQS][PVN_MAX_RECVS]; /* for each buffer of each group */
};

static_assert(UNEXPECTED_SLOTS == 64, "`used` has a bit for each entry");

struct keeper;

struct sender {
    struct keeper *keeper;     /* NULL: no message is kept */
    uint64_t next;             /* number of the next message */
    uint64_t fresh;            /* first entry of msg that is not initialised; UINT64_MAX: all are */
    uint64_t unposted;         /* valid with e->unposted: first message that has chunks to post */
    uint64_t slot_head;        /* oldest slot with free buffers */
    const struct pvn_cts *cts; /* entry of that slot; NULL: not requested from the lane yet */
    int unassigned; /* number of `unassigned` messages; new messages with their tags wait for them */
    /* taken[slot number % SLOT_RING] has a bit for each buffer to which a send has been matched, perhaps
     * before a failover. */
    uint8_t taken[SLOT_RING];
    /* Members from here on are initialised at their first use, because most comms have few messages in
     * flight and untouched pages cost no memory. */
    struct send_msg msg[MSG_RING];
    /* For messages of several chunks: the chunks that send_msg.ndone counts. */
    struct chunk_set done[MSG_RING];
};
static_assert(PVN_MAX_RECVS <= 8, "a byte has a bit for each buffer");

struct receiver {
    uint64_t next_slot; /* number of the next group */
    uint64_t earlier;   /* groups of earlier lanes that next_slot no longer counts, see failover */
    uint64_t early;     /* total of buffers that were full before the last one of their group */
    uint64_t oldest_slot;                   /* lower bound of the open groups' slots */
    unsigned unpublished;                   /* newest slots, for which the first lane had no room */
    struct matching *match;                 /* NULL: a clear-to-send comm */
    struct placed (*placed)[PVN_MAX_RECVS]; /* for each group; NULL without PVN_LANE_PLACES */
    struct recv_group *free;                /* groups without a request, the last one used first */
    struct recv_group *ring[SLOT_RING];     /* slot % SLOT_RING -> group not full yet, or NULL */
    int flushing;                           /* flushes that some lane has not taken */
    bool visible;                           /* paused: no data need a flush */
    uint64_t flushes_opened;                /* total; stats.flushes of them have completed */
    int ngroups, nflush;                    /* elements of groups and flush that have been used */
    /* Members from here on are initialised at their first use, as in struct sender. */
    struct recv_group groups[PVN_MAX_REQS];
    struct flush_job flush[PVN_MAX_REQS];
};

/* The engine calls the lanes only in ENG_RUNS; a failover drains them in ENG_PAUSED. */
enum eng_state {
    ENG_RUNS,
    ENG_PAUSED, /* until there are new lanes; pausing also sets `unposted` */
    ENG_FAILED  /* permanent; err says why */
};

struct pvn_engine {
    struct pvn_engine_cfg cfg;
    enum eng_state state;
    bool unposted; /* posts wait because the lanes had no room for them */
    bool needs_cts;
    bool places; /* needs_cts, and the receiver's lanes have PVN_LANE_PLACES */
    int rr;      /* round robin: the lane that gets the next chunk */
    unsigned ticks;
    uint64_t now; /* ns; read every CLOCK_EVERY progress calls */
    size_t chunk; /* chunk size of long messages: the preferred size within the lanes' limits */
    struct sender *tx; /* cfg.sender: tx is set, else rx */
    struct receiver *rx;
    /* The watched words of the only lane; no_watch with several lanes and while the engine does not run.
     * Unchanged words mean no work, so code that creates work which they do not show must empty the
     * watch. */
    struct pvn_lane_watch *watch;
    struct pvn_lane_watch no_watch; /* never filled in */
    uint32_t epoch; /* generation of the lanes: incremented each time both ends have resumed */
    struct pvn_engine_stats stats;
    struct pvn_err err;
    struct pvn_err pause_err;
    /* An `unclear` lane has died, and doubted_at messages had been delivered then; see engine_error.c. */
    bool doubted;
    uint64_t doubted_at;
};

/* Initialises the request of an entry that is used for the first time. */
static inline void eng_init_req(struct pvn_engine *e, struct pvn_req *req, enum req_kind kind)
{
    *req = (struct pvn_req){.owner = e->cfg.owner, .e = e, .kind = (uint8_t)kind, .sizes = 1};
}

static inline void eng_req_open(struct pvn_engine *e, struct pvn_req *req)
{
    req->born = e->now;
    req->state = REQ_OPEN;
}

/* Sets a counter that other threads read (pvn_engine_received, pvn_engine_count). Only the comm's thread
 * writes it. */
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

/* Number of requests that are not done. Completed flushes are subtracted apart, because stats.msgs does not
 * count them. */
static inline int eng_pending(const struct pvn_engine *e)
{
    const struct receiver *rx = e->rx;
    uint64_t opened =
        e->tx ? e->tx->next : rx->earlier + rx->next_slot + rx->flushes_opened - e->stats.flushes;
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

/* Opens the request of the first free group, whose buffers are filled in, and gives the group its slot. */
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

/* A buffer is full. Completes it, and completes the group's request if all buffers are full. */
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
    /* Only matching uses oldest_slot. */
    while (!e->needs_cts && rx->oldest_slot < rx->next_slot &&
           !rx->ring[rx->oldest_slot % SLOT_RING])
        rx->oldest_slot++;
    eng_req_done(e, &g->req);
}

/* True if a post to this lane or an event of it needs further action. The caller then calls eng_moved().
 * One test of a byte covers all actions and replaces the store to kick_due. */
static inline bool eng_moves(const struct pvn_lane *l)
{
    return __builtin_expect(l->moves != 0, 0);
}

/* Sets kick_due unless the lane does that itself. Returns true if the lane has a profiler, to which the
 * caller then shows the post or event. */
static inline bool eng_moved(struct pvn_lane *l)
{
    l->kick_due |= l->moves & PVN_LANE_MOVES_KICK;
    return l->moves & PVN_LANE_MOVES_PROFILED;
}

/* True if the watched words show that a poll would be empty. The caller then skips the poll. */
static inline bool eng_watch_is_still(struct pvn_lane_watch *w)
{
    if (w->polls == 0 || __atomic_load_n(w->at[0], __ATOMIC_RELAXED) != w->same[0] ||
        __atomic_load_n(w->at[1], __ATOMIC_RELAXED) != w->same[1])
        return false;
    w->polls--;
    return true;
}

/* engine_error.c */
/* Fails the engine with this code, fault and text, unless it has failed already. Returns the code of its
 * first error. */
int eng_fail(struct pvn_engine *e, int code, enum pvn_fault fault, const char *fmt, ...)
    PVN_PRINTF(4, 5);

/* engine.c */
int eng_kick_all(struct pvn_engine *e); /* kicks the lanes with kick_due */
/* Allocates what a receiver needs for these lanes and does not have yet. 0 or -ENOMEM. */
int eng_prepare(struct receiver *rx, struct pvn_lane *const *lanes, int nlanes);
/* Sets up the engine for the lanes of cfg, and the lanes for the engine. */
void eng_use_lanes(struct pvn_engine *e);

/* engine_plan.c */
size_t eng_chunk(const struct pvn_engine_cfg *cfg);
struct plan eng_cut(size_t size, size_t chunk); /* size > chunk */

static inline struct plan eng_plan(const struct pvn_engine *e, size_t size)
{
    return size <= e->chunk ? (struct plan){.chunk = size, .count = 1} : eng_cut(size, e->chunk);
}

/* Number of entries of msg that are initialised. */
static inline uint64_t eng_used_msgs(const struct sender *tx)
{
    return tx->fresh < MSG_RING ? tx->fresh : MSG_RING;
}

static inline struct chunk_set *eng_done_chunks(struct sender *tx, const struct send_msg *m)
{
    return &tx->done[m - tx->msg];
}

/* engine_tx.c */
/* Handles a batch of events. 0 or the engine's error. */
int eng_tx_events(struct pvn_engine *e, const struct pvn_event *ev, int n);
/* Posts the messages for which the lanes had no room before. 0 or the engine's error. */
int eng_tx_post(struct pvn_engine *e);
void eng_tx_oldest(const struct pvn_engine *e, const struct pvn_req *req, char *text, size_t cap);

/* engine_keep.c */
int eng_keep_new(struct sender *tx); /* 0 or -ENOMEM */
void eng_keep_free(struct sender *tx);
/* True if a sender with a keeper may keep a copy of a message of this size and memory. */
bool eng_may_keep(const struct pvn_engine *e, size_t size, const struct pvn_mr *mr);
/* A lane has taken message `id`. If the message may be kept, copies it and completes its request. */
void eng_keep(struct pvn_engine *e, uint32_t id);
/* A kept message is delivered: frees its copy. */
void eng_unkeep(struct pvn_engine *e, struct send_msg *m);
static inline bool eng_is_kept(const struct send_msg *m)
{
    return m->req.after == REQ_KEPT;
}

/* engine_flush.c */
void eng_flush_event(struct pvn_engine *e, const struct pvn_event *ev);
int eng_flush_post(struct pvn_engine *e); /* posts the flushes that lanes had no room for */

/* engine_place.c: receiving side of clear-to-send comms with PVN_LANE_PLACES */
/* Checks that a chunk's numbers are consistent. 0 or the engine's error. */
int eng_check_chunk(struct pvn_engine *e, const struct pvn_frame *f);
int eng_slot_place(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                   struct pvn_place *to);
/* Allocates or clears rx->placed. 0 or -ENOMEM. */
int eng_place_new(struct receiver *rx);
void eng_place_free(struct receiver *rx);
/* Clears the group's part of rx->placed when the group is opened. */
void eng_place_open(struct receiver *rx, const struct recv_group *g);

/* engine_match.c: matched comms, receiving side */
int eng_match_place(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                    struct pvn_place *to);
int eng_match_arrived(struct pvn_engine *e, const struct pvn_event *ev);
/* Gives unexpected messages to the buffers of a newly posted group. */
int eng_match_claim(struct pvn_engine *e, struct recv_group *g);
/* 0 or -ENOMEM. */
int eng_match_new(struct receiver *rx);
void eng_match_free(struct receiver *rx);
/* Failover, receiver: true if the receiver has the whole message number `msg`. */
bool eng_match_has(const struct receiver *rx, uint64_t msg);
/* Failover, receiver: forgets the chunks of incomplete messages. */
void eng_match_rewind(struct receiver *rx);
/* Failover, receiver: starts to count messages, from a sender's answer, where slots were counted before. */
void eng_match_begin(struct receiver *rx, const struct pvn_engine_answer *a);
/* True if the receiver holds a complete unexpected message. */
bool eng_match_keeps(const struct receiver *rx);
/* True if the next message waits because an unexpected message occupies its entry in the ring. */
bool eng_match_is_held_up(const struct receiver *rx);

#endif
