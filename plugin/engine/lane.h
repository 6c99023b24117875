/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The lane interface: what the message engine needs of a transport.
 *
 * A comm is one direction to one peer. Its bytes travel over lanes: the TCP streams of one
 * interface pair, the queue pairs of one RDMA port pair, or the simulated lane of the tests. A lane
 * moves chunks and reports what happened as plain values; it never sees a request, and the engine
 * never looks inside a lane. Matching, sizes, chunk plans, clear-to-send and completion live in the
 * engine only.
 *
 * Threads: every call for one comm's lanes comes from one thread at a time (NCCL's proxy progress
 * thread of that comm), so a lane has no lock of its own. What lanes of several comms share must be
 * safe by itself. No operation blocks.
 *
 * Return values of every operation: 0 (or a count) done, -EAGAIN call again, any other negative
 * errno: the lane is dead and lane->err says why.
 */
#ifndef PVN_ENGINE_LANE_H
#define PVN_ENGINE_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem_copy.h"

enum {
    PVN_MAX_LANES = 8,   /* lanes of one comm; NCCL 2.30 fuses at most 8 devices (net_v12.h) */
    PVN_MAX_RECVS = 8,   /* buffers of one grouped receive: NCCL's IB transport and plugins use 8 */
    PVN_MAX_REQS = 32,   /* receive requests in flight per comm: NCCL_NET_MAX_REQUESTS */
    PVN_MAX_SENDS = 256, /* PVN_MAX_REQS grouped receives, each fed by PVN_MAX_RECVS sends */
    PVN_SLOT_SPAN = 64,  /* a receiver opens no slot so many behind one that is open */
    /* Chunks of one message: 9 bits of the RDMA immediate, of which one value means "whole". Both
     * ends have a bit for each of every message that may be open, in words of 64. */
    PVN_MAX_CHUNKS = 448
};

/*
 * Low bits of a 64-bit sequence number that identify a slot and its generation in events and in the
 * RDMA immediate (slot:8 | gen:12). At most PVN_MAX_SENDS messages are open at once, so an id that
 * is 4096 rounds old or less is always distinguished from the live one.
 */
enum { PVN_ID_BITS = 20 };
static inline uint32_t pvn_id(uint64_t seq)
{
    return (uint32_t)(seq & ((1u << PVN_ID_BITS) - 1));
}

/* A registered buffer. Owned by the registration (regMr ..
 * deregMr); lanes fill their own columns. */
struct pvn_mr {
    void *addr;                      /* start of the registered range */
    size_t len;                      /* bytes */
    int ptr_type;                    /* NCCL_PTR_HOST, NCCL_PTR_CUDA or NCCL_PTR_DMABUF */
    const struct pvn_mem_copy *copy; /* NULL: the processor reaches it, or lanes do by themselves */
    unsigned gpu;                 /* ordinal of the memory's GPU plus one, by the lanes; 0: host */
    uint32_t rkey[PVN_MAX_LANES]; /* what the peer needs to write through lane i; 0 where unused */
    void *lane_mr[PVN_MAX_LANES]; /* the lane's own handle, NULL where the lane needs none */
};

/* One chunk of one message, as both ends describe it. */
struct pvn_frame {
    uint64_t seq; /* message number (matched comms) or slot number (clear-to-send comms), from 0 */
    uint64_t total;  /* bytes of the whole message */
    uint64_t offset; /* of this chunk in the message */
    uint32_t len;    /* bytes of this chunk; 0 only for a zero-byte message */
    uint16_t chunk;  /* index of this chunk, below PVN_MAX_CHUNKS */
    uint8_t recv;    /* which buffer of a grouped receive (clear-to-send comms), else 0 */
    int32_t tag;
};

/* A posted buffer of a grouped receive. */
struct pvn_buffer {
    void *addr;
    size_t size; /* bytes it takes */
    const struct pvn_mr *mr;
    int32_t tag;
};

/* A buffer of a slot, as the receiver has announced it. */
struct pvn_cts_entry {
    uint64_t addr; /* in the peer's memory; not of PVN_LANE_PLACES, nor the keys */
    uint64_t size; /* bytes the receiver can take */
    int32_t tag;
    bool copies;                  /* the receiver takes a short message by copy, too */
    uint32_t rkey[PVN_MAX_LANES]; /* by the lane's index, as many as the comm has lanes */
};

/* A clear-to-send entry: the receiver's slot with up to PVN_MAX_RECVS buffers. */
struct pvn_cts {
    int n; /* buffers, 1 to PVN_MAX_RECVS: the engine checks it */
    struct pvn_cts_entry e[PVN_MAX_RECVS];
};

/* A chunk to be sent. Valid during the call only; the bytes at src must stay until PVN_EV_SENT. */
struct pvn_write {
    struct pvn_frame f;
    uint32_t cookie; /* comes back in PVN_EV_SENT: pvn_id() of the sender's own message number */
    bool more;       /* the message's next chunk follows in the next call */
    bool
        kept; /* a whole message, whose PVN_EV_TAKEN the engine can use; PVN_EV_SENT may be late then */
    const void *src;         /* the chunk's first byte */
    const struct pvn_mr *mr; /* registration that covers src; NULL where the lane needs none */
    /* Clear-to-send comms: the message's buffer, in an entry of next_slot; the chunk goes to its address
     * plus f.offset. NULL elsewhere. */
    const struct pvn_cts_entry *to;
};

enum pvn_ev_kind {
    PVN_EV_SENT, /* sender: chunk `chunk` of message `id` (the write's cookie) needs its source no
                    longer. And chunk 0 of the next `more` messages behind it, too */
    PVN_EV_ARRIVED, /* receiver: chunk `chunk` of `id`/`recv` is complete in memory */
    PVN_EV_FLUSHED, /* receiver: flush `id` is done */
    /* sender, PVN_LANE_SENT_IS_DELIVERED: the lane does not read the payload of message `id`, whose write was `kept`, any
     * more; PVN_EV_SENT follows */
    PVN_EV_TAKEN,
    PVN_EV_NONE /* no event has this kind */
};

/* An event. It has values only, so that a late or repeated one can be recognised and dropped. */
struct pvn_event {
    enum pvn_ev_kind kind;
    uint32_t id; /* see pvn_id() */
    uint8_t recv;
    uint16_t chunk;
    union {
        uint32_t bytes; /* ARRIVED: of this chunk */
        uint32_t more;  /* SENT */
    };
    uint64_t total; /* ARRIVED: bytes of the whole message */
    /* ARRIVED, of a message that lies whole in the lane until the next kick: where, for copy_out.
     * NULL: it is in its buffer. */
    const void *data;
};

/* Counters of lanes for the statistics, summed up over a comm. */
struct pvn_lane_counters {
    bool doorbells_known, retransmits_known;
    uint64_t doorbells_send, doorbells_recv, doorbells_empty; /* doorbells by what rang them */
    uint64_t retransmits;                                     /* TCP segments */
};

struct pvn_lane;

/*
 * Words in memory that change when something arrives. While both still have the values in `same`,
 * each of the next `polls` calls of poll would return 0, so the engine leaves them out and counts
 * polls down. The lane fills this in when poll has found nothing several times in a row. The engine
 * empties it before each poll, and when there is something to do that the words do not show.
 */
struct pvn_lane_watch {
    const uint32_t *at[2];
    uint32_t same[2];
    int polls;
    int granted; /* polls when the lane filled it in */
};

static inline void pvn_lane_watch_empty(struct pvn_lane_watch *w)
{
    w->polls = w->granted = 0;
}

/* Polls that were left out since the lane filled it in. */
static inline int pvn_lane_watch_left_out(const struct pvn_lane_watch *w)
{
    return w->granted - w->polls;
}

/* One transfer of a chunk, for profilers. */
struct pvn_transfer {
    uint32_t id;     /* a sender's cookie; of a receiver the message's or slot's pvn_id() */
    uint16_t chunk;  /* of that message */
    uint8_t recv;    /* receiver: buffer of a grouped receive */
    size_t len;      /* bytes of the chunk */
    const void *dst; /* receiver: where its bytes go; NULL: this end sends */
    int fd;          /* lanes of streams: the socket */
    /* Lanes of queue pairs: */
    uint32_t qpn;
    int opcode;     /* enum ibv_wr_opcode */
    uint64_t wr_id; /* distinguishes it from the queue pair's other requests */
};
/* A stream begins to transfer a chunk; valid during the call only. */
typedef void (*pvn_trace_fn)(struct pvn_lane *l, const struct pvn_transfer *t);

/* A profiler, to which the engine shows a lane's writes and clear-to-send entries after they were taken, and its events before
 * the engine takes them. By the thread that makes the lane's calls. */
struct pvn_lane_profiler {
    void (*posted)(struct pvn_lane *l, const struct pvn_write *w);
    void (*announced)(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
    void (*came)(struct pvn_lane *l, const struct pvn_event *ev, int n);
};

/* The place of a chunk in memory. */
struct pvn_place {
    void *dst;
    const struct pvn_mem_copy *copy; /* by which it gets there; NULL: the processor writes it */
};

/*
 * Finds the place of an arriving chunk: called by lanes that place payloads themselves (TCP), provided by
 * the engine. The frames of a clear-to-send comm name slot and buffer. 0: write f->len bytes at
 * to->dst, then report PVN_EV_ARRIVED. -EAGAIN, but with clear-to-send: nothing posted yet, leave the
 * bytes where they are and call again at the next poll. -EALREADY: known or stale, read and drop them.
 * Anything else: the peer broke the protocol; the lane reports the error and dies.
 */
typedef int (*pvn_place_fn)(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                            struct pvn_place *to);

/*
 * True if no message that the receiver waits for can come any more: called by a lane that has been at its end
 * (pvn_lane.end) in two polls in a row, provided by the engine. False while another lane may bring
 * something. While no receive is open, bytes that lie in a lane until there is one are left there.
 */
typedef bool (*pvn_over_fn)(void *engine);
enum pvn_lane_end {
    PVN_LANE_GOES_ON,
    PVN_LANE_HALTED, /* the peer has closed, and what it has sent waits for a receive or for other chunks */
    PVN_LANE_ENDED /* the peer has closed, and all is taken */
};

/* Capabilities, fixed once the lane is bound. */
enum {
    PVN_LANE_NEEDS_CTS = 1 << 0,         /* nothing is sent before a CTS entry */
    PVN_LANE_GPU_PEER = 1 << 1,          /* GPU memory by a peer-memory client, proved */
    PVN_LANE_GPU_DMABUF = 1 << 2,        /* GPU memory by dma-buf, proved */
    PVN_LANE_SENT_IS_DELIVERED = 1 << 3, /* PVN_EV_SENT means the peer has the bytes */
    PVN_LANE_CONNECTOR_FIRST = 1 << 4,   /* what verify sends is lost while the peer is not bound */
    PVN_LANE_SETS_KICK_DUE = 1 << 5,     /* the lane sets kick_due by itself, the engine does not */
    /* PVN_EV_SENT means that the lane has a copy: what fails after that shows in poll only */
    PVN_LANE_SENT_IS_COPIED = 1 << 8,
    PVN_LANE_GPU_COPIED = 1 << 9, /* GPU memory by struct pvn_mem_copy */
    PVN_LANE_ENDS = 1 << 7, /* a receiver's poll fails when the peer has closed, see pvn_over_fn */
    /* Only together with NEEDS_CTS: a receiver's lane finds the buffer by `place`, so that the entries need
     * no address and no key. All lanes of a comm have it or none. */
    PVN_LANE_PLACES = 1 << 10,
    PVN_LANE_SEALED = 1 << 11, /* what it carries is encrypted, for statistics */
};

/* Bits of pvn_lane.moves. */
enum pvn_lane_moves {
    PVN_LANE_MOVES_KICK = 1 << 0, /* the lane has no PVN_LANE_SETS_KICK_DUE; the engine's to set */
    PVN_LANE_MOVES_PROFILED = 1 << 1 /* the lane has a profiler; the comm's to set */
};

/* Operations that the engine calls for messages, while it runs: not before the lane is verified, nor after its fence. */
struct pvn_lane_data_ops {
    /* post_* may hold requests back until kick; -EAGAIN: no room, nothing was taken. post_cts,
     * -EFAULT: a buffer is not in its registration; nothing was taken, and the lane lives on. */
    int (*post_cts)(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
    int (*post_write)(struct pvn_lane *l, const struct pvn_write *w);
    /* Sender, first lane of a clear-to-send comm: takes the next slot that the peer has announced, the
     * one after that which the last call took; the first call takes slot 0. 1: *cts is its entry, which
     * the lane keeps until PVN_MAX_REQS more have been taken: messages are posted in order, and no peer
     * announces so many slots behind one that is not full. 0: it has not come. Called when a message has
     * no slot, as often as its caller tries. */
    int (*next_slot)(struct pvn_lane *l, const struct pvn_cts **cts);
    /* Makes what has arrived in the GPU memory at addr visible to the GPU. 0: PVN_EV_FLUSHED
     * follows; -EALREADY: nothing has to be waited for; -EOPNOTSUPP: this lane never writes such
     * memory. */
    int (*post_flush)(struct pvn_lane *l, uint32_t id, const void *addr, const struct pvn_mr *mr);
    /* Called while kick_due: lets go what was held back. -EAGAIN: some of it has to wait. */
    int (*kick)(struct pvn_lane *l);
    /* Number of events. Those that came before an error are reported before it. */
    int (*poll)(struct pvn_lane *l, struct pvn_event *ev, int max);
    /* Brings the bytes of an event with data, all of them, to dst; after the fence, too. */
    void (*copy_out)(const struct pvn_event *ev, void *dst);
};

/* All other operations. */
struct pvn_lane_ops {
    const char *name; /* the kind, as logs and the peer's offer say it: "tcp", "rdma", "sim" */
    /* This kind works between any two ends. A connection keeps such lanes only where no lane of
     * another kind has come up at both ends. */
    bool is_fallback;

    /* Connection set-up, in this order. The acceptor's listener hands incoming data sockets to
     * adopt. */
    int (*offer)(struct pvn_lane *l, void *buf, size_t cap); /* bytes written for the peer's bind */
    int (*bind)(struct pvn_lane *l, const void *peer, size_t len);
    int (*adopt)(struct pvn_lane *l, int stream,
                 int fd);              /* takes fd on 0; else the caller closes it */
    int (*verify)(struct pvn_lane *l); /* zero-byte round trip */

    /* The comm's engine begins with these lanes, of which this is one, or goes on with them after a
     * failover; called once in a lane's life, of every lane. Both ends have them in the same order.
     * All stay until the last of them is no longer polled, and they are closed in this order.
     * Clear-to-send entries go over the first one alone. */
    void (*join)(struct pvn_lane *l, struct pvn_lane *const *lanes, int nlanes);

    /* Memory. idx is the lane's index in its comm; fills mr->lane_mr[idx] and mr->rkey[idx].
     * Of all that is here only these may be called while another thread uses the lane, so a refusal
     * leaves the lane as it was, its err, too. */
    int (*mem_reg)(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                   struct pvn_err *err);
    int (*mem_dereg)(struct pvn_lane *l, struct pvn_mr *mr);
    /* len > 0 bytes at addr, which are in no registration any more, whether or not this lane needs one. When it returns no thread
     * of the lane's own touches them. A message that has still to move some of them is lost, and the lane with it. */
    void (*mem_revoke)(struct pvn_lane *l, const void *addr, size_t len);

    /* The work request of the chunk that was last posted: its qpn, opcode and wr_id. -EOPNOTSUPP: a
     * lane of streams, which reports transfers by `trace` as they begin. */
    int (*last_post)(const struct pvn_lane *l, struct pvn_transfer *t);
    /*
     * Called about ten times a second in the thread of the comm, also while no request is open,
     * since the peer may wait for an acknowledgement: whether what was posted has neither ended nor
     * failed for longer than the device may take. 0: no, or nothing is outstanding; -EAGAIN: it may
     * wait for the peer, which is to be queried whether it is alive and takes what comes; else the
     * lane is dead. peer_ready_ns: when the peer has said so since, 0: it has not.
     */
    int (*overdue)(struct pvn_lane *l, uint64_t now_ns, uint64_t peer_ready_ns);

    /* Sender: bytes written that the peer's machine has not acknowledged, about; 0 where that is not known. */
    size_t (*left)(const struct pvn_lane *l);

    /* End. fence: 0 when no earlier remote write can land any more. drain: then, the events from before the
     * fence, as poll. stop: the comm is closed; gives the peer, unless the lane is abandoned, what it still
     * waits for, and ends what was posted, so that memory may be deregistered. Takes a second at most. close
     * frees the lane; it follows stop where the lane was up. */
    int (*fence)(struct pvn_lane *l);
    int (*drain)(struct pvn_lane *l, struct pvn_event *ev, int max);
    void (*stop)(struct pvn_lane *l);
    void (*close)(struct pvn_lane *l);
    /* Sets where and who of *err to the lane's two ends, where it knows more than the connection:
     * addresses, QPNs, GIDs. Without host names. */
    void (*locate)(const struct pvn_lane *l, struct pvn_err *err);
    /* One line for a person: what it is and how it is set up. Returns its length. */
    int (*describe)(const struct pvn_lane *l, char *buf, size_t cap);
    /* Adds this lane's counters to *sum. May make system calls: about once a second. */
    void (*count)(const struct pvn_lane *l, struct pvn_lane_counters *sum);
};

/* Every transport's lane begins with this. */
struct pvn_lane {
    /* Constant tables without a NULL member. Both stay to the lane's end: what a stage of its life does otherwise has an
     * operation of its own, called by who knows the stage. data may be NULL until bind, where the ends agree on it. */
    const struct pvn_lane_ops *ops;
    const struct pvn_lane_data_ops *data;
    unsigned caps;
    int idx;    /* index in the comm, the same at both ends once paired */
    int sender; /* 1: this end sends data, 0: receives */
    int nlanes; /* of the comm; the engine's to set */
    bool lone;  /* bind, verify: no other lane can stand in for this one; the connection's to set */
    bool idle;  /* kick: no request of the comm is open; the engine's to set */
    int abandoned; /* stop, close: 1 when nobody waits for what was posted; the connection's to set */
    /* kick has something to do: set by the engine with every post and event unless the lane has
     * PVN_LANE_SETS_KICK_DUE, by the lane when it holds something back that the engine does not
     * know of; cleared when kick has returned 0 */
    bool kick_due;
    uint8_t moves; /* what a post or an event has to cause: enum pvn_lane_moves, usually nothing */
    struct pvn_lane_watch watch; /* the lane's to fill in; empty in a lane that has no such words */
    size_t
        short_max; /* bytes; the first lane's: messages up to this size keep to it; 0: none does */
    /* bytes; the plan does not exceed it unless PVN_MAX_CHUNKS forces it; 0: none */
    size_t max_chunk;
    size_t lone_chunk;  /* bytes; in place of a smaller max_chunk where this is the only lane */
    pvn_trace_fn trace; /* NULL: no trace; lanes of streams only */
    const struct pvn_lane_profiler *profiler; /* with PVN_LANE_MOVES_PROFILED; the comm's to set */
    void *profile;                            /* the profiler's own */
    pvn_place_fn place;
    pvn_over_fn over;
    void *engine; /* first argument of both */
    /* PVN_LANE_ENDS, receiver: as of its last poll; the engine has it look again by PVN_LANE_GOES_ON */
    enum pvn_lane_end end;
    struct pvn_err err;
    bool wrong; /* err: it died of a request that other lanes would refuse as well, not of a loss */
    /* err: it died of memory that was not there, which is wrong as well, or was lost with an adapter that is being
     * removed; the next lanes show which of the two */
    bool unclear;
};

/* Fill the holes of a table, as lanes of tests have them, with defaults that answer -EOPNOTSUPP (poll, drain: 0
 * events, kick, overdue, fence: 0). */
void pvn_lane_ops_fill(struct pvn_lane_ops *ops);
void pvn_lane_data_ops_fill(struct pvn_lane_data_ops *ops);

/* These defaults, for tables that are constant. nothing: of stop and close. */
void pvn_lane_nothing(struct pvn_lane *l);
int pvn_lane_ok_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                    struct pvn_err *err);
int pvn_lane_ok_dereg(struct pvn_lane *l, struct pvn_mr *mr);
void pvn_lane_no_revoke(struct pvn_lane *l, const void *addr, size_t len);
int pvn_lane_no_last_post(const struct pvn_lane *l, struct pvn_transfer *t);
void pvn_lane_no_join(struct pvn_lane *l, struct pvn_lane *const *lanes, int nlanes);
int pvn_lane_no_adopt(struct pvn_lane *l, int stream, int fd);
int pvn_lane_no_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
int pvn_lane_no_post_write(struct pvn_lane *l, const struct pvn_write *w);
int pvn_lane_no_next_slot(struct pvn_lane *l, const struct pvn_cts **cts);
int pvn_lane_no_post_flush(struct pvn_lane *l, uint32_t id, const void *addr,
                           const struct pvn_mr *mr);
size_t pvn_lane_nothing_left(const struct pvn_lane *l);
void pvn_lane_no_copy(const struct pvn_event *ev, void *dst);

#endif
