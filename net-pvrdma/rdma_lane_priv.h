/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The RDMA lane itself and what its files call of one another. */
#ifndef PVN_NET_PVRDMA_RDMA_LANE_PRIV_H
#define PVN_NET_PVRDMA_RDMA_LANE_PRIV_H

#include <endian.h>
#include <stdatomic.h>

#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/rdma_mode.h"
#include "net-pvrdma/rdma_qp.h"
#include "net-pvrdma/rdma_wire.h"

/* State of a sending lane alone. */
struct rdma_tx_state {
    uint32_t window;             /* chunks of a queue pair that may be unacknowledged */
    bool window_by_reads;        /* as the mode's table says */
    uint64_t next_cts;           /* slot number looked for */
    uint32_t reap_at;            /* known completions that are worth a poll now */
    uint64_t next_line;          /* of that slot, free-running */
    const struct cts_line *line; /* that one */
    bool starved;                /* a chunk found no free slot in a send queue */
    const struct ack_line *acks; /* this lane's, where the peer writes them */
    /* Chunks of all queue pairs that are acked, but not reported; not in the two-sided mode. */
    uint32_t unreported;
    /* see rdma_path.h */
    uint64_t picked_ns;  /* when a path was last looked for */
    uint64_t least_cost; /* that of the fastest path; 1: no path's is known yet */
};

/* Receiver: the requests of a chain of entries, filled in as far as they are always the same. Two
 * of lines, for the ring may wrap between them, and one of the acknowledgements. */
enum { ACKS = 2 };
struct publication {
    struct ibv_send_wr wr[ACKS + 1];
    struct ibv_sge sge[ACKS + 1];
};

/* State of a receiving lane alone. */
struct rdma_rx_state {
    uint64_t staged;    /* slots given to post_cts */
    uint64_t published; /* of them with the peer */
    uint64_t staged_lines, published_lines;
    uint64_t started; /* slots below it have been used by the peer, as far as seen */
    struct publication publication;
    /* each chain with a completion: it has completed once `started` is as far as this */
    uint64_t chain[CTS_SLOTS * 2];
    uint32_t chain_head, chain_known, chain_tail; /* taken, known to have completed, posted */
    uint32_t turn;                                /* writes of acknowledgements */
    /* imm: what came last was not in the queue, which is then polled less often */
    bool idle_queue;
    bool take_now; /* imm with counts: the next poll takes what has completed of the chains, too */
};

/* PVN_FLUSH_READ: see rdma_flush.c. */
struct flush_qp {
    struct ibv_qp *qp; /* NULL: this lane does not flush by reading */
    struct ibv_cq
        *cq; /* its own, so that nobody polls it without a result while nothing is flushed */
    uint32_t psn;
    unsigned pending; /* READs posted and not completed */
    bool proved;      /* one has worked */
    uint8_t *spot;    /* where they put their byte, in the lane's block */
};

/* A ring's entry that is not whole yet, and by when it has to be; 0: none. */
struct rdma_partial {
    uint64_t number, until_ns;
};

/* bind, of a peer whose address does not answer on the link: see rdma_qp.c. */
struct rdma_resolve {
    unsigned failures;
    uint64_t since_ns, next_ns; /* the first of them, and the next attempt */
};

/* See rdma_overdue.c. */
struct rdma_silence {
    uint64_t looked_ns, since_ns; /* last look; since when nothing has ended */
    uint64_t ended;               /* what had then */
};

struct rdma_lane {
    struct pvn_lane l;
    struct pvn_rdma_lane_cfg cfg;
    const struct rdma_mode *mode; /* as the ends have agreed; NULL until then */
    int nqps;
    struct ibv_cq *cq;
    /* The device has reported an error of one of the lane's completion queues, see nic.c. They have
     * it as their context. */
    atomic_int cq_lost;
    struct rqp *qp; /* cfg.qps */
    struct rdma_offer peer;
    struct pvn_gid_choice gid;
    enum ibv_mtu mtu;
    int next_qp;
    bool bound, probed, verified, errored, fenced;
    bool sums;       /* messages of one line have one, see rdma_wire.h */
    uint64_t copies; /* CTS_COPIES where short messages are taken */
    /* bytes of a short message (l.short_max, for both ends must know them) that takes one line */
    uint32_t line_max;
    uint32_t signal_every; /* slots of the send queue, of which the last one has a completion */
    /* when to poll the completion queue with nothing known to be in it, see rdma_time_to_poll */
    bool moved;           /* something has, or see posted_then */
    uint32_t posted_then; /* chunks that had been posted when last looked at */
    unsigned empty_polls; /* polls that found nothing, since one looked around */
    uint64_t idle_from_ns, idle_wait_ns;
    uint64_t chunks_done;

    /* One registered block: what the peer writes into, then what we write from; see mem_layout. */
    uint8_t *mem;
    struct ibv_mr *mem_mr;
    struct cts_line *cts;  /* sender: ring the peer fills; receiver: staging */
    struct ack_line *ack;  /* sender: the peer fills them; receiver: staging */
    uint64_t *hello;       /* see MEM_HELLO */
    struct record *record; /* receiver: rings the peer fills; sender: staging; RECORD_RING per QP */
    uint64_t *totals;      /* imm mode, TOTALS message sizes, both ends */
    uint32_t *counts;      /* receiver: see MEM_COUNTS */

    /* The comm's first lane, perhaps this one. It carries the entries and acknowledgements of all of
     * the comm's lanes, which it has in `joined`, itself first. */
    struct rdma_lane *first, *joined[PVN_MAX_LANES];
    int njoined;
    struct rdma_path *paths; /* sender: one of each queue pair; NULL: there is no choice */

    struct rdma_tx_state tx;
    struct rdma_rx_state rx;

    bool fresh; /* the last poll found something */
    /* posted requests that have a completion, which has not been taken */
    uint32_t outstanding;
    struct flush_qp flush;
    struct two_sided *two; /* two-sided mode */

    /* fence: since when the completion queue has been empty, 0: not fenced; arrivals from it */
    uint64_t emptied_ns;
    uint64_t removed_ns; /* since when the device has been taken away, 0: it has not */
    uint64_t lost_ns;    /* and since when that is known from its event, 0: it is not */
    struct pvn_event *kept;
    int nkept, room_kept, kept_at;

    struct pvn_rdma_lane_stats stats;
    struct rdma_silence silence;
    int connected; /* queue pairs, while they are bound */
    struct rdma_resolve resolve;
    struct rdma_partial partial[1 + PVN_RDMA_MAX_QPS]; /* by `ring` of rdma_partial() */

    /* Slot % CTS_SLOTS: what was reported to the engine. A receiver has none of them. */
    struct pvn_cts cts_seen[];
};

static inline struct rdma_lane *rdma_of(struct pvn_lane *l)
{
    return (struct rdma_lane *)l;
}

/* Sender, not in the two-sided mode: chunks of the queue pair up to `acked` are acknowledged. Whether these
 * are more than before. */
static inline bool rdma_acked(struct rdma_lane *r, struct rqp *q, uint32_t acked)
{
    uint32_t more = acked - q->acked;
    if ((int32_t)more <= 0)
        return false;
    q->acked = acked;
    r->tx.unreported += more;
    return true;
}

/* rdma_err.c: records why the lane died, once; returns the negative code. */
int rdma_dead(struct rdma_lane *r, int code, const char *doing);
int rdma_dead_wc(struct rdma_lane *r, const struct ibv_wc *wc);
void rdma_locate(const struct pvn_lane *l, struct pvn_err *err);

/* rdma_err.c: the stamp of entry or message `number` is visible, and its checksum is wrong. 0: the
 * rest of it may still become visible, or the lane is dead. ring: whose number it is, 0 for entries or
 * short messages, of which an end reads one kind, or 1 + the queue pair of a record. */
#define PARTIAL_CTS    "reading a clear-to-send entry"
#define PARTIAL_RECORD "reading a record"
#define PARTIAL_SHORT  "reading a short message"
int rdma_partial(struct rdma_lane *r, int ring, uint64_t number, const char *doing);

/* rdma_setup.c */
int rdma_offer(struct pvn_lane *l, void *buf, size_t cap);
int rdma_bind(struct pvn_lane *l, const void *peer, size_t len);
int rdma_verify(struct pvn_lane *l);

/* A word that the peer writes, which may become visible after its stamp. */
static inline uint64_t rdma_word(const uint64_t *word)
{
    return le64toh(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}
/* rdma_overdue.c */
int rdma_overdue(struct pvn_lane *l, uint64_t now, uint64_t peer_ready_ns);
/* rdma_fence.c */
int rdma_fence(struct pvn_lane *l);
int rdma_drain(struct pvn_lane *l, struct pvn_event *ev, int max);

/* True if an empty poll looks at the device's health as well. */
static inline bool rdma_due_to_look(struct rdma_lane *r)
{
    if (__builtin_expect(++r->empty_polls < LOOK_EVERY, 1))
        return false;
    r->empty_polls = 0;
    return true;
}
/* A poll has found nothing, and so will the next ones while these two words are as they were. */
static inline void rdma_watch(struct rdma_lane *r, const uint32_t *a, uint32_t same_a,
                              const uint32_t *b, uint32_t same_b)
{
    r->l.watch = (struct pvn_lane_watch){{a, b}, {same_a, same_b}, WATCH_POLLS, WATCH_POLLS};
    r->empty_polls += WATCH_POLLS;
}

/* One more request for the chain of a queue pair: an RDMA WRITE of one piece. The chain and the send queue have
 * room for it. len 0: a request without a piece. */
static inline struct ibv_send_wr *rdma_wr(struct rqp *q, const void *src, uint32_t len,
                                          uint32_t lkey, uint64_t raddr, uint32_t rkey)
{
    struct ibv_send_wr *wr = &q->wr[q->nwr];
    struct ibv_sge *sge = &q->sge[q->nwr];
    sge->addr = (uintptr_t)src;
    sge->length = len;
    sge->lkey = lkey;
    /* The rest is zero from the start. */
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

/* Gives a request of the chain a completion. */
static inline void rdma_signal(struct rqp *q, struct ibv_send_wr *wr, uint64_t id)
{
    wr->wr_id = id;
    wr->send_flags |= IBV_SEND_SIGNALED;
    q->signalled++;
}

/* True if the bytes are in the registration. */
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
