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
 * thread of that comm), so a lane has no lock of its own. State that lanes of several comms share
 * needs its own synchronisation. No operation blocks.
 *
 * Every operation returns 0 (or a count) when it is done and -EAGAIN when it has to be called again.
 * Any other negative errno means that the lane is dead; lane->err says why.
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
    PVN_SLOT_SPAN = 64,  /* a receiver opens slot n only after slot n - 64 is complete */
    /* Chunks of one message. The RDMA immediate has 9 bits for the chunk, of which one value means
     * "whole". Both ends keep a bitmap of chunks per open message, in words of 64 bits. */
    PVN_MAX_CHUNKS = 448
};

/*
 * Rounds a chunk size down to whole lines. With NCCL's protocols LL and LL128 a GPU polls flags in the
 * receive buffer, in lines of up to 128 bytes, and chunks may land in any order. So no line may be in
 * two chunks (NCCL 2.30, net_ib/p2p.cc, aligns its parts alike).
 */
enum { PVN_CHUNK_LINE = 128 };
static inline size_t pvn_chunk_lines(size_t bytes)
{
    return bytes > PVN_CHUNK_LINE ? bytes & ~(size_t)(PVN_CHUNK_LINE - 1) : bytes;
}

/*
 * The low bits of a 64-bit sequence number, which identify a message or slot in events and in the
 * RDMA immediate: its index in a ring of PVN_MAX_SENDS (8 bits) and its generation (12 bits). At most
 * PVN_MAX_SENDS messages are open at once, so a late id is confused with a live one only after the
 * ring has wrapped 4096 times.
 */
enum { PVN_ID_BITS = 20 };
static inline uint32_t pvn_id(uint64_t seq)
{
    return (uint32_t)(seq & ((1u << PVN_ID_BITS) - 1));
}

/* A registered buffer. It lives from regMr to deregMr. Each lane fills in its own element of the arrays. */
struct pvn_mr {
    void *addr;   /* start of the registered range */
    size_t len;   /* bytes */
    int ptr_type; /* NCCL_PTR_HOST, NCCL_PTR_CUDA or NCCL_PTR_DMABUF */
    /* NULL: the processor or the lane accesses the memory itself. */
    const struct pvn_mem_copy *copy;
    unsigned gpu;                 /* ordinal of the GPU plus one, set by mem_reg; 0: host memory */
    uint32_t rkey[PVN_MAX_LANES]; /* the peer's key to write through lane i; 0 where unused */
    void *lane_mr[PVN_MAX_LANES]; /* lane i's own handle; NULL where the lane needs none */
};

/* One chunk of one message, as both ends describe it. */
struct pvn_frame {
    uint64_t seq; /* message number (matched comms) or slot number (clear-to-send comms), from 0 */
    uint64_t total;  /* bytes of the whole message */
    uint64_t offset; /* of this chunk in the message */
    uint32_t len;    /* bytes of this chunk; 0 only for a zero-byte message */
    uint16_t chunk;  /* index of this chunk, below PVN_MAX_CHUNKS */
    uint8_t recv;    /* index of the buffer in a grouped receive (clear-to-send comms), else 0 */
    int32_t tag;
};

/* A posted buffer of a grouped receive. */
struct pvn_buffer {
    void *addr;
    size_t size; /* capacity in bytes */
    const struct pvn_mr *mr;
    int32_t tag;
};

/* A buffer of a slot, as the receiver has announced it. With PVN_LANE_PLACES addr and rkey are unused. */
struct pvn_cts_entry {
    uint64_t addr; /* in the peer's memory */
    uint64_t size; /* capacity in bytes */
    int32_t tag;
    bool copies;                  /* the receiver also takes a short message by copy */
    uint32_t rkey[PVN_MAX_LANES]; /* one per lane of the comm, by the lane's index */
};

/* A clear-to-send entry: the receiver's slot with up to PVN_MAX_RECVS buffers. */
struct pvn_cts {
    int n; /* buffers, 1 to PVN_MAX_RECVS: the engine checks it */
    struct pvn_cts_entry e[PVN_MAX_RECVS];
};

/* A chunk to be sent. The struct is valid during the call only; the bytes at src must stay until
 * PVN_EV_SENT. */
struct pvn_write {
    struct pvn_frame f;
    uint32_t cookie; /* pvn_id() of the sender's own message number; PVN_EV_SENT returns it */
    bool more;       /* the message's next chunk follows in the next call */
    /* The write is a whole message and the engine can use PVN_EV_TAKEN; PVN_EV_SENT may be late then. */
    bool kept;
    const void *src;         /* the chunk's first byte */
    const struct pvn_mr *mr; /* registration that covers src; NULL where the lane needs none */
    /* Clear-to-send comms: the receiver's buffer for this message, from next_slot. The chunk goes to
     * to->addr + f.offset. NULL in other comms. */
    const struct pvn_cts_entry *to;
};

enum pvn_ev_kind {
    /* Sender: the lane no longer reads the source of chunk `chunk` of message `id` (the write's
     * cookie), nor that of chunk 0 of each of the `more` messages after it. */
    PVN_EV_SENT,
    PVN_EV_ARRIVED, /* receiver: chunk `chunk` of `id`/`recv` is complete in memory */
    PVN_EV_FLUSHED, /* receiver: flush `id` is done */
    /* Sender, lanes with PVN_LANE_SENT_IS_DELIVERED: the lane no longer reads the payload of message
     * `id`, whose write was `kept`. PVN_EV_SENT follows. */
    PVN_EV_TAKEN,
    PVN_EV_NONE /* no event has this kind */
};

/* An event. It holds values and no pointer to a request, so a late or repeated event can be recognised
 * and dropped. */
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
    /* ARRIVED: NULL if the bytes are in the message's buffer. Otherwise the whole message lies in the
     * lane, here, until the next kick, and copy_out brings it to the buffer. */
    const void *data;
};

/* Counters of lanes for the statistics, summed up over a comm. */
struct pvn_lane_counters {
    bool doorbells_known, retransmits_known;
    uint64_t doorbells_send, doorbells_recv, doorbells_empty; /* doorbells by their cause */
    uint64_t retransmits;                                     /* TCP segments */
};

struct pvn_lane;

/*
 * Words in memory that change when something arrives. While both words still have the values in
 * `same`, each of the next `polls` calls of poll would return 0, so the engine skips these calls and
 * counts `polls` down. The lane fills in the watch after several empty polls in a row. The engine
 * empties the watch before each poll, and when there is work that the words do not show.
 */
struct pvn_lane_watch {
    const uint32_t *at[2];
    uint32_t same[2];
    int polls;
    int granted; /* value of `polls` when the lane filled in the watch */
};

static inline void pvn_lane_watch_empty(struct pvn_lane_watch *w)
{
    w->polls = w->granted = 0;
}

/* Polls that the engine has skipped since the lane filled in the watch. */
static inline int pvn_lane_watch_left_out(const struct pvn_lane_watch *w)
{
    return w->granted - w->polls;
}

/* One transfer of a chunk, for profilers. */
struct pvn_transfer {
    uint32_t id;     /* sender: the write's cookie; receiver: pvn_id() of the message or slot */
    uint16_t chunk;  /* index of the chunk in the message */
    uint8_t recv;    /* receiver: buffer of a grouped receive */
    size_t len;      /* bytes of the chunk */
    const void *dst; /* receiver: destination of the bytes; NULL at the sender */
    int fd;          /* lanes of streams: the socket */
    /* Lanes of queue pairs: */
    uint32_t qpn;
    int opcode;     /* enum ibv_wr_opcode */
    uint64_t wr_id; /* distinguishes the request from others of the queue pair */
};
/* Called when a stream begins to transfer a chunk. *t is valid during the call only. */
typedef void (*pvn_trace_fn)(struct pvn_lane *l, const struct pvn_transfer *t);

/* A profiler. The engine calls `posted` and `announced` after the lane has taken a write or a
 * clear-to-send entry, and `came` before the engine handles a lane's events. All calls come from the
 * thread that makes the lane's calls. */
struct pvn_lane_profiler {
    void (*posted)(struct pvn_lane *l, const struct pvn_write *w);
    void (*announced)(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
    void (*came)(struct pvn_lane *l, const struct pvn_event *ev, int n);
};

/* The destination of a chunk in memory. */
struct pvn_place {
    void *dst;
    /* copies the chunk to dst; NULL: the processor can write to dst */
    const struct pvn_mem_copy *copy;
};

/*
 * Finds the destination of an arriving chunk. The engine provides this function for lanes that write
 * payloads to memory themselves (TCP). In a clear-to-send comm the frame names slot and buffer.
 * 0: the lane writes f->len bytes at to->dst, then reports PVN_EV_ARRIVED.
 * -EAGAIN (only without clear-to-send): no receive is posted for the chunk yet. The lane leaves the
 *   bytes where they are and calls again at the next poll.
 * -EALREADY: the chunk is a duplicate or stale. The lane reads its bytes and drops them.
 * Any other value: the peer broke the protocol. The lane reports the error and dies.
 */
typedef int (*pvn_place_fn)(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                            struct pvn_place *to);

/*
 * True if no message that the receiver waits for can arrive any more; false while another lane may
 * still deliver one, or while no receive is open and unread bytes wait in a lane for one. The engine
 * provides this function. A lane calls it after two polls in a row at the end of its streams
 * (pvn_lane.end).
 */
typedef bool (*pvn_over_fn)(void *engine);
/* The state of a receiving lane's streams after its last poll. */
enum pvn_lane_end {
    PVN_LANE_GOES_ON,
    PVN_LANE_HALTED, /* the peer has closed; unread chunks wait for a receive or for other chunks */
    PVN_LANE_ENDED   /* the peer has closed, and everything is read */
};

/* Capabilities, fixed once the lane is bound. */
enum {
    PVN_LANE_NEEDS_CTS = 1 << 0,         /* a message is sent only after its clear-to-send entry */
    PVN_LANE_GPU_PEER = 1 << 1,          /* GPU memory by a peer-memory client; a trial worked */
    PVN_LANE_GPU_DMABUF = 1 << 2,        /* GPU memory by dma-buf; a trial worked */
    PVN_LANE_SENT_IS_DELIVERED = 1 << 3, /* PVN_EV_SENT means the peer has the bytes */
    /* The first packet of verify is lost if the peer has not bound its lane yet. So the connector, which
     * knows that the acceptor has bound its lanes, verifies first. */
    PVN_LANE_CONNECTOR_FIRST = 1 << 4,
    PVN_LANE_SETS_KICK_DUE = 1 << 5, /* the lane sets kick_due by itself, the engine does not */
    /* PVN_EV_SENT means that the lane has copied the bytes; only poll reports a later failure. */
    PVN_LANE_SENT_IS_COPIED = 1 << 8,
    PVN_LANE_GPU_COPIED = 1 << 9, /* GPU memory by struct pvn_mem_copy */
    PVN_LANE_ENDS = 1 << 7, /* a receiver's poll fails when the peer has closed, see pvn_over_fn */
    /* Only with NEEDS_CTS: the receiver's lane finds the buffer with `place`, so entries need no
     * address and no key. Either all lanes of a comm have this capability or none has it. */
    PVN_LANE_PLACES = 1 << 10,
    PVN_LANE_SEALED = 1 << 11, /* the payload is encrypted on the wire; for statistics */
};

/* Bits of pvn_lane.moves. */
enum pvn_lane_moves {
    PVN_LANE_MOVES_KICK = 1 << 0,    /* the lane has no PVN_LANE_SETS_KICK_DUE; set by the engine */
    PVN_LANE_MOVES_PROFILED = 1 << 1 /* the lane has a profiler; set by the comm */
};

/* Operations for messages. The engine calls them from the lane's verification to its fence. */
struct pvn_lane_data_ops {
    /* post_* may queue requests until kick. -EAGAIN: the queue is full, and nothing was queued.
     * -EFAULT (post_cts): a buffer is outside its registration. Nothing was queued, and the lane still
     * works. */
    int (*post_cts)(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
    int (*post_write)(struct pvn_lane *l, const struct pvn_write *w);
    /* Sender, first lane of a clear-to-send comm: takes the next slot in order, beginning with slot 0.
     * 1: *cts is the slot's entry. 0: the peer has not announced the slot yet. The engine calls this for
     * each attempt to send a message that has no slot.
     * The entry stays valid until PVN_MAX_REQS more slots have been taken. That is long enough: messages
     * are posted in order, so while one waits to be posted, the slots after its own are not full either,
     * and a peer has at most PVN_MAX_REQS open receives. */
    int (*next_slot)(struct pvn_lane *l, const struct pvn_cts **cts);
    /* Makes arrived data in the GPU memory at addr visible to the GPU. 0: PVN_EV_FLUSHED follows.
     * -EALREADY: the data are visible already. -EOPNOTSUPP: this lane never writes such memory. */
    int (*post_flush)(struct pvn_lane *l, uint32_t id, const void *addr, const struct pvn_mr *mr);
    /* Called while kick_due: posts the queued requests. -EAGAIN: some of them have to wait. */
    int (*kick)(struct pvn_lane *l);
    /* Returns the number of events. Events from before an error are returned before the error is. */
    int (*poll)(struct pvn_lane *l, struct pvn_event *ev, int max);
    /* Copies all bytes of an event with `data` to dst. Also works after the fence. */
    void (*copy_out)(const struct pvn_event *ev, void *dst);
};

/* All other operations. */
struct pvn_lane_ops {
    const char *name; /* the kind in logs and in offers: "tcp", "rdma", "sim" */
    /* This kind works between any two ends. A connection keeps such lanes only if no lane of another
     * kind has come up at both ends. */
    bool is_fallback;

    /* Connection set-up, in this order. offer returns the bytes that it wrote for the peer's bind. The
     * acceptor's listener hands incoming data sockets to adopt. */
    int (*offer)(struct pvn_lane *l, void *buf, size_t cap);
    int (*bind)(struct pvn_lane *l, const void *peer, size_t len);
    int (*adopt)(struct pvn_lane *l, int stream,
                 int fd);              /* takes fd on 0; else the caller closes it */
    int (*verify)(struct pvn_lane *l); /* zero-byte round trip */

    /* Called once for every lane, when the comm's engine starts with these lanes or goes on with them
     * after a failover. `l` is one of `lanes`, which have the same order at both ends. All lanes stay
     * until none of them is polled any more; then they are closed in this order. Clear-to-send entries
     * use the first lane only. */
    void (*join)(struct pvn_lane *l, struct pvn_lane *const *lanes, int nlanes);

    /* Memory. mem_reg fills in mr->lane_mr[idx] and mr->rkey[idx], where idx is the lane's index in its
     * comm. Only these operations may be called while another thread uses the lane, so a failure
     * reports in *err and leaves the lane and its err unchanged. */
    int (*mem_reg)(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                   struct pvn_err *err);
    int (*mem_dereg)(struct pvn_lane *l, struct pvn_mr *mr);
    /* Withdraws len > 0 bytes at addr, which no registration covers any more; called for lanes that need
     * no registration, too. When it returns, no thread of the lane accesses these bytes. A message that
     * still had to move some of them is lost, and so is the lane. */
    void (*mem_revoke)(struct pvn_lane *l, const void *addr, size_t len);

    /* The work request of the last posted chunk: its qpn, opcode and wr_id. -EOPNOTSUPP: a lane of
     * streams, which reports transfers to `trace` as they begin. */
    int (*last_post)(const struct pvn_lane *l, struct pvn_transfer *t);
    /*
     * Checks whether a posted request has neither completed nor failed for longer than the device may
     * take. The comm's thread calls this about ten times a second, also while no request is open,
     * because the peer may wait for an acknowledgement.
     * 0: no request is overdue. -EAGAIN: a request may wait for the peer; the caller has to query whether
     * the peer is alive and receives. Any other value: the lane is dead.
     * peer_ready_ns: the time of the peer's answer that it is ready; 0 if there was none.
     */
    int (*overdue)(struct pvn_lane *l, uint64_t now_ns, uint64_t peer_ready_ns);

    /* Sender: written bytes that the peer's machine has not acknowledged, approximately; 0 if unknown. */
    size_t (*left)(const struct pvn_lane *l);

    /* End.
     * fence: 0 when no earlier remote write can land any more.
     * drain: called after the fence; returns the events from before it, as poll does.
     * stop: the comm is closed. Unless the lane is abandoned, sends the peer what it still waits for.
     *   Ends all posted requests, so that memory may be deregistered. Takes a second at most.
     * close: frees the lane. stop comes first if the lane was up. */
    int (*fence)(struct pvn_lane *l);
    int (*drain)(struct pvn_lane *l, struct pvn_event *ev, int max);
    void (*stop)(struct pvn_lane *l);
    void (*close)(struct pvn_lane *l);
    /* Sets `where` and `who` of *err to the lane's two ends if the lane knows more about them than the
     * connection: addresses, QPNs, GIDs. No host names. */
    void (*locate)(const struct pvn_lane *l, struct pvn_err *err);
    /* Describes the lane and its settings in one line for people. Returns the length of the line. */
    int (*describe)(const struct pvn_lane *l, char *buf, size_t cap);
    /* Adds this lane's counters to *sum. Called about once a second, so it may make system calls. */
    void (*count)(const struct pvn_lane *l, struct pvn_lane_counters *sum);
};

/* Every transport's lane begins with this. */
struct pvn_lane {
    /* Constant tables without a NULL member. Neither is replaced during the lane's life: a stage that
     * behaves differently has an operation of its own. `data` may be NULL until bind, in which the two
     * ends agree on a mode. */
    const struct pvn_lane_ops *ops;
    const struct pvn_lane_data_ops *data;
    unsigned caps;
    int idx;       /* index in the comm, the same at both ends once paired */
    int sender;    /* 1: this end sends data, 0: it receives */
    int nlanes;    /* of the comm; set by the engine */
    bool idle;     /* no request of the comm is open; set by the engine before kick */
    int abandoned; /* 1: nobody waits for the posted requests; set by the connection before stop */
    /* The next kick has work to do. The engine sets this with every post and event unless the lane has
     * PVN_LANE_SETS_KICK_DUE. The lane sets it when it holds back something that the engine does not
     * know of. The engine clears it when kick has returned 0. */
    bool kick_due;
    uint8_t moves; /* actions due with each post or event: enum pvn_lane_moves, usually none */
    struct pvn_lane_watch watch; /* filled in by the lane; empty in a lane without such words */
    /* First lane: messages up to this size (bytes) all use this lane; 0: no message does. */
    size_t short_max;
    /* Upper limit of a chunk in bytes, exceeded only where PVN_MAX_CHUNKS forces it; 0: no limit. */
    size_t max_chunk;
    size_t lone_chunk;  /* bytes; replaces a smaller max_chunk if this is the only lane */
    pvn_trace_fn trace; /* lanes of streams only; NULL: no trace */
    const struct pvn_lane_profiler *profiler; /* with PVN_LANE_MOVES_PROFILED; set by the comm */
    void *profile;                            /* the profiler's own */
    pvn_place_fn place;
    pvn_over_fn over;
    void *engine; /* first argument of both */
    /* Receiver with PVN_LANE_ENDS: set by each poll; the engine resets it to PVN_LANE_GOES_ON to have the
     * lane check again. */
    enum pvn_lane_end end;
    struct pvn_err err;
    /* The lane died of a request that other lanes would refuse as well, not of a loss */
    bool wrong;
    /* The lane died because memory was not accessible. Either the request was wrong, or an adapter that
     * is being removed has lost the memory. The next lanes show which of the two it was. */
    bool unclear;
    /* Bind and verify repeat until this time what may succeed later; 0: nothing. Set by the connection
     * before each of these calls. */
    uint64_t retry_until_ns;
};

/* Replace the NULL members of a table, as lanes of tests have them, by defaults that return -EOPNOTSUPP (poll
 * and drain: 0 events; kick, overdue and fence: 0). */
void pvn_lane_ops_fill(struct pvn_lane_ops *ops);
void pvn_lane_data_ops_fill(struct pvn_lane_data_ops *ops);

/* These defaults, for constant tables. pvn_lane_nothing is the default of stop and close. */
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
