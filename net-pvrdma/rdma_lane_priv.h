/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The state of an RDMA lane, and the functions that its files share. */
#ifndef PVN_NET_PVRDMA_RDMA_LANE_PRIV_H
#define PVN_NET_PVRDMA_RDMA_LANE_PRIV_H

#include <endian.h>
#include <stdatomic.h>

#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/rdma_mode.h"
#include "net-pvrdma/rdma_qp.h"
#include "net-pvrdma/rdma_wire.h"

/* State of a sending lane only. */
struct rdma_tx_state {
    uint32_t window;      /* limit of unacknowledged chunks per queue pair */
    bool window_by_reads; /* copy of rdma_mode.window_by_reads */
    uint64_t next_cts;    /* number of the next slot */
    uint32_t reap_at;     /* number of known completions from which on a poll is worthwhile */
    uint64_t next_line;   /* first line of the next slot, free-running */
    const struct cts_line *line; /* that line in the ring */
    bool starved;                /* a chunk found no free slot in a send queue */
    const struct ack_line *acks; /* the peer writes this lane's acknowledgements here */
    /* Chunks of all queue pairs that are acknowledged but not reported; unused in the two-sided mode. */
    uint32_t unreported;
    /* see rdma_path.h */
    uint64_t picked_ns;  /* time of the last choice of a path */
    uint64_t least_cost; /* cost of the fastest path; 1: no path's cost is known yet */
};

/* Receiver: the requests that write a chain of entries, with their constant fields filled in. Two write
 * lines, because the ring may wrap between them, and one writes the acknowledgements. */
enum { ACKS = 2 };
struct publication {
    struct ibv_send_wr wr[ACKS + 1];
    struct ibv_sge sge[ACKS + 1];
};

/* State of a receiving lane only. */
struct rdma_rx_state {
    uint64_t staged;    /* slots taken by post_cts */
    uint64_t published; /* slots written to the peer */
    uint64_t staged_lines, published_lines;
    uint64_t started; /* the peer is known to have used all slots below this one */
    struct publication publication;
    /* For each chain with a completion: the chain has completed once `started` has reached this value. */
    uint64_t chain[CTS_SLOTS * 2];
    /* Numbers of chains whose completion is taken, is known to have come, or was requested. */
    uint32_t chain_head, chain_known, chain_tail;
    uint32_t turn; /* number of acknowledgement writes */
    /* Imm: the last arrivals were short messages, so the queue is polled less often */
    bool idle_queue;
    bool take_now; /* imm with counts: the next poll also takes the completions of chains */
};

/* PVN_FLUSH_READ: see rdma_flush.c. */
struct flush_qp {
    struct ibv_qp *qp; /* NULL: this lane does not flush by RDMA READ */
    /* A queue of its own, so that it is polled only while a flush is in flight */
    struct ibv_cq *cq;
    uint32_t psn;
    unsigned pending; /* READs that have not completed */
    bool proved;      /* a READ has worked */
    uint8_t *spot;    /* destination of the READs, in the lane's block */
};

/* A partially visible ring entry, and the time by which it has to be complete; 0: there is none. */
struct rdma_partial {
    uint64_t number, until_ns;
};

/* State of bind while the peer's address does not answer on the link: see rdma_qp.c. */
struct rdma_resolve {
    unsigned failures;
    uint64_t since_ns, next_ns; /* time of the first failure and of the next attempt */
};

/* State of rdma_overdue.c. */
struct rdma_silence {
    uint64_t looked_ns, since_ns; /* last check; last time at which a request had ended */
    uint64_t ended;               /* value of ended() at since_ns */
};

struct rdma_lane {
    struct pvn_lane l;
    struct pvn_rdma_lane_cfg cfg;
    const struct rdma_mode *mode; /* NULL until the ends have agreed on a mode */
    int nqps;                     /* queue pairs in use, as agreed */
    struct ibv_cq *cq;
    /* Bits of PVN_RDMA_LOST_*. The contexts of the lane's queues point here. */
    atomic_int lost;
    struct rqp *qp; /* array of cfg.qps */
    struct rdma_offer peer;
    struct pvn_gid_choice gid;
    enum ibv_mtu mtu;
    int next_qp;
    bool bound, probed, verified, errored, fenced;
    bool sums;       /* short messages of one line have a checksum, see rdma_wire.h */
    uint64_t copies; /* CTS_COPIES if short messages are accepted, else 0 */
    /* Longest short message that takes one line, in bytes; 0 if short messages are not used. */
    uint32_t line_max;
    uint32_t signal_every; /* slots of the send queue between two requests with a completion */
    /* State of rdma_time_to_poll, which decides on polls of a queue that is not known to have entries. */
    bool moved; /* the lane has made progress (posted chunks also count, see posted_then) */
    uint32_t posted_then; /* number of posted chunks at the last check */
    unsigned empty_polls; /* empty polls since the last one that checked the device's health */
    uint64_t idle_from_ns, idle_wait_ns;
    uint64_t chunks_done;

    /* One registered block, see MEM_CTS in rdma_wire.h. */
    uint8_t *mem;
    struct ibv_mr *mem_mr;
    struct cts_line *cts; /* sender: ring that the peer writes; receiver: staging */
    struct ack_line *ack; /* sender: lines that the peer writes; receiver: staging */
    uint64_t *hello;      /* see MEM_HELLO */
    /* Receiver: rings that the peer writes; sender: staging; RECORD_RING per QP */
    struct record *record;
    uint64_t *totals; /* imm mode, TOTALS message sizes, both ends */
    uint32_t *counts; /* receiver: see MEM_COUNTS */

    /* The comm's first lane, perhaps this one. It carries the entries and acknowledgements of all lanes of
     * the comm; its `joined` lists these lanes, itself first. */
    struct rdma_lane *first, *joined[PVN_MAX_LANES];
    int njoined;
    /* Sender: one per queue pair; NULL: only one queue pair, or not used */
    struct rdma_path *paths;

    struct rdma_tx_state tx;
    struct rdma_rx_state rx;

    bool fresh;           /* the last poll returned an event */
    uint32_t outstanding; /* posted requests whose completion was requested and is not taken yet */
    struct flush_qp flush;
    struct two_sided *two; /* two-sided mode */

    /* fence */
    uint64_t emptied_ns; /* time since which the completion queue is empty; 0: fence not called */
    uint64_t removed_ns; /* time of the first EIO of a removed device; 0: none */
    uint64_t lost_ns;    /* time at which an event reported the removal; 0: none */
    struct pvn_event *kept; /* arrivals from the completion queue */
    int nkept, room_kept, kept_at;

    struct pvn_rdma_lane_stats stats;
    struct rdma_silence silence;
    int connected; /* queue pairs that bind has connected so far */
    struct rdma_resolve resolve;
    struct rdma_partial partial[1 + PVN_RDMA_MAX_QPS]; /* by `ring` of rdma_partial() */

    /* Sender only: the entries returned to the engine, at slot % CTS_SLOTS. */
    struct pvn_cts cts_seen[];
};

static inline struct rdma_lane *rdma_of(struct pvn_lane *l)
{
    return (struct rdma_lane *)l;
}

/* Sender, not in the two-sided mode: notes that the queue pair's chunks up to `acked` are acknowledged. True
 * if these are more than before. */
static inline bool rdma_acked(struct rdma_lane *r, struct rqp *q, uint32_t acked)
{
    uint32_t more = acked - q->acked;
    if ((int32_t)more <= 0)
        return false;
    q->acked = acked;
    r->tx.unreported += more;
    return true;
}

/* rdma_err.c: records the first reason of the lane's death. Returns its negative code. */
int rdma_dead(struct rdma_lane *r, int code, const char *doing);
int rdma_dead_wc(struct rdma_lane *r, const struct ibv_wc *wc);
void rdma_locate(const struct pvn_lane *l, struct pvn_err *err);

/* rdma_err.c: called if the stamp of entry or message `number` is visible but its checksum is wrong. 0: the
 * rest may still become visible; otherwise the lane is dead. ring: 1 + the queue pair of a record, or 0 for
 * entries (at a sender) and short messages (at a receiver). */
#define PARTIAL_CTS    "reading a clear-to-send entry"
#define PARTIAL_RECORD "reading a record"
#define PARTIAL_SHORT  "reading a short message"
int rdma_partial(struct rdma_lane *r, int ring, uint64_t number, const char *doing);

/* rdma_setup.c */
int rdma_offer(struct pvn_lane *l, void *buf, size_t cap);
int rdma_bind(struct pvn_lane *l, const void *peer, size_t len);
int rdma_verify(struct pvn_lane *l);

/* Reads a word that the peer writes and that may become visible after its entry's stamp. */
static inline uint64_t rdma_word(const uint64_t *word)
{
    return le64toh(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}
/* rdma_overdue.c */
int rdma_overdue(struct pvn_lane *l, uint64_t now, uint64_t peer_ready_ns);
/* rdma_fence.c */
int rdma_fence(struct pvn_lane *l);
int rdma_drain(struct pvn_lane *l, struct pvn_event *ev, int max);

/* Counts an empty poll. True if this one also has to check the device's health. */
static inline bool rdma_due_to_look(struct rdma_lane *r)
{
    if (__builtin_expect(++r->empty_polls < LOOK_EVERY, 1))
        return false;
    r->empty_polls = 0;
    return true;
}
/* Sets the lane's watch after an empty poll: the next polls find nothing while these two words are
 * unchanged. */
static inline void rdma_watch(struct rdma_lane *r, const uint32_t *a, uint32_t same_a,
                              const uint32_t *b, uint32_t same_b)
{
    r->l.watch = (struct pvn_lane_watch){{a, b}, {same_a, same_b}, WATCH_POLLS, WATCH_POLLS};
    r->empty_polls += WATCH_POLLS;
}

/* Appends an RDMA WRITE of len bytes to the queue pair's chain; len 0 writes nothing. The caller has checked
 * that the chain and the send queue have room. */
static inline struct ibv_send_wr *rdma_wr(struct rqp *q, const void *src, uint32_t len,
                                          uint32_t lkey, uint64_t raddr, uint32_t rkey)
{
    struct ibv_send_wr *wr = &q->wr[q->nwr];
    struct ibv_sge *sge = &q->sge[q->nwr];
    sge->addr = (uintptr_t)src;
    sge->length = len;
    sge->lkey = lkey;
    /* The other fields are always zero. */
    wr->wr_id = 0;
    wr->send_flags = 0;
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->num_sge = len ? 1 : 0;
    wr->wr.rdma.remote_addr = raddr;
    wr->wr.rdma.rkey = rkey;
    q->nwr++;
    q->slots--;
    return wr;
}

/* Requests a completion for a request of the chain. */
static inline void rdma_signal(struct rqp *q, struct ibv_send_wr *wr, uint64_t id)
{
    wr->wr_id = id;
    wr->send_flags |= IBV_SEND_SIGNALED;
    q->signalled++;
}

/* True if the bytes lie in the registration. */
static inline bool rdma_within(const struct pvn_mr *mr, const void *addr, size_t len)
{
    uintptr_t at = (uintptr_t)addr - (uintptr_t)mr->addr;
    return at <= mr->len && len <= mr->len - at;
}

/* rdma_flush.c: the queue pair that reads GPU memory, on receivers with PVN_FLUSH_READ */
int rdma_flush_create(struct rdma_lane *r);
int rdma_flush_connect(struct rdma_lane *r);
int rdma_flush_verify(struct rdma_lane *r); /* 0, -EAGAIN, or the lane is dead */
void rdma_flush_destroy(struct rdma_lane *r);
int rdma_post_flush(struct pvn_lane *l, uint32_t id, const void *addr, const struct pvn_mr *mr);
int rdma_flush_poll(struct rdma_lane *r, struct pvn_event *ev, int max, int *n);

/* rdma_two.c: the two-sided mode. */
void rdma_two_free(struct rdma_lane *r);

#endif
