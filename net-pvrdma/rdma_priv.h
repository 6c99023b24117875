/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What the RDMA lane's files share. */
#ifndef PVN_NET_PVRDMA_RDMA_PRIV_H
#define PVN_NET_PVRDMA_RDMA_PRIV_H

#include <endian.h>

#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/rdma_wire.h"

enum {
    CHAIN = 32,                /* requests that one doorbell rings at most */
    CQ_BATCH = 16,             /* completions taken by one poll where empty polls are free */
    CTS_BATCH_MAX = 8,         /* entries that wait at most */
    SIGNAL_EVERY = 16,         /* requests of which only the last one has a completion */
    REAP_AT = 4,               /* known completions that are worth a poll, then */
    SIGNALS = 2 * RECORD_RING, /* that are not taken yet; more places no send queue has */
    WATCH_POLLS = 8,           /* polls for which a look at memory stands, see pvn_lane_watch */
    LOOK_EVERY = 16            /* polls in vain, those among them, between two that look around */
};

/* What a completion stands for, in wr_id: kind, queue pair, send-queue places it frees. */
enum wr_kind { WR_DATA = 1, WR_CHAIN, WR_VERIFY, WR_RECV, WR_FLUSH, WR_PIECE, WR_CREDIT };

static inline uint64_t wr_id_make(enum wr_kind kind, int qp, unsigned places)
{
    return (uint64_t)kind << 56 | (uint64_t)qp << 48 | places;
}

/* A chunk that the peer has not acknowledged, chunk:9 | cookie:20, so that whole messages in a row
 * have numbers in a row. */
static inline uint32_t rdma_note_make(uint32_t cookie, uint32_t chunk)
{
    return chunk << PVN_ID_BITS | cookie;
}
static inline uint32_t rdma_note_id(uint32_t note)
{
    return pvn_id(note);
}
static inline uint16_t rdma_note_chunk(uint32_t note)
{
    return (uint16_t)(note >> PVN_ID_BITS);
}

/* A queue pair's short messages: the ring that the peer fills, or where they are sent from. */
struct short_ring {
    struct short_head *base, *end; /* between them a message may begin */
    struct short_head *next;       /* where the next one does */
    uint32_t lines;                /* of all messages, counted for ever */
    uint32_t told;                 /* receiver: lines of which the peer knows that they are read */
    /* sender */
    uint32_t free_from; /* lines that the peer has read */
    int32_t room;       /* lines that may go out with nothing else to be asked; -1: as 0 */
    uint64_t to_remote; /* from an address here to the same one in the peer's ring */
    struct ibv_sge sge;
    struct ibv_send_wr wr;
};

struct rqp {
    struct ibv_qp *qp;
    uint32_t places; /* free places of the send queue */
    uint32_t psn;
    uint32_t quiet; /* places of requests behind the last one that has a completion */
    /* requests chained but not rung; each is linked to the next one for good, see rdma_ring */
    int nwr;
    uint32_t signalled; /* of them */
    struct ibv_send_wr wr[CHAIN];
    struct ibv_sge sge[CHAIN];
    /* sender: chunks of this queue pair, counted for ever */
    uint32_t posted, acked, reported;
    uint64_t longs;     /* of those posted or seen, not short messages */
    uint32_t consumed;  /* seen by the peer, whose record ring has room again */
    uint32_t completed; /* known by data completions that were taken from the queue */
    /* Chunks that had been posted with each request that has a completion, and how many such
     * requests there have been, are known to have completed, and were taken from the queue. */
    uint32_t signal_at[SIGNALS];
    uint32_t signals, signals_known, signals_taken;
    uint32_t note[RECORD_RING]; /* rdma_note_make() of those not reported */
    uint32_t records;           /* of the chunks, written or taken */
    struct short_ring shorts;
    /* receiver */
    uint32_t seen;      /* records, short messages or completions taken */
    uint32_t told;      /* of them the peer has been told */
    uint32_t recv_lack; /* imm: receive requests to be posted again */
};

/* Receiver: the requests of a chain of entries, filled in as far as they are always the same. Two
 * of lines, for the ring may begin anew between them, and the acknowledgements. */
enum { ACKS = 2 };
struct publication {
    struct ibv_send_wr wr[ACKS + 1];
    struct ibv_sge sge[ACKS + 1];
};

/* PVN_FLUSH_READ: see rdma_flush.c. */
struct flush_qp {
    struct ibv_qp *qp; /* NULL: this lane flushes in no such way */
    struct ibv_cq *cq; /* its own, so that nobody polls it in vain while nothing is flushed */
    uint32_t psn;
    unsigned pending; /* READs posted and not completed */
    bool proved;      /* one has worked */
    uint8_t *spot;    /* where they put their byte, in the lane's block */
};

struct rdma_lane {
    struct pvn_lane l;
    struct pvn_rdma_lane_cfg cfg;
    int nqps;
    struct ibv_cq *cq;
    struct rqp *qp; /* PVN_RDMA_MAX_QPS */
    struct rdma_offer peer;
    uint32_t window; /* sender: chunks of a queue pair that may be unacknowledged */
    struct pvn_gid_choice gid;
    enum ibv_mtu mtu;
    int next_qp;
    bool bound, probed, verified, errored;
    uint64_t copies; /* CTS_COPIES where short messages are taken */
    /* bytes of a message that goes as a short one, and of one that takes one line; 0: none does,
     * for both ends must know them */
    uint32_t short_max, line_max;
    uint32_t signal_every; /* of short messages' requests, or of chains', one has a completion */
    /* when to ask the completion queue with nothing known, see rdma_time_to_ask */
    bool moved;           /* something has, or see posted_then */
    uint32_t posted_then; /* chunks that had been posted when last looked at */
    unsigned vain;        /* polls that found nothing, since one looked around */
    uint64_t ask_from_ns, ask_wait_ns;
    uint64_t chunks_done;
    uint64_t torn, torn_until_ns; /* what is not whole yet, and by when it has to be; 0: nothing */

    /* One registered block: what the peer writes into, then what we write from; see mem_layout. */
    uint8_t *mem;
    struct ibv_mr *mem_mr;
    struct cts_line *cts;  /* sender: ring the peer fills; receiver: staging */
    struct ack_line *ack;  /* sender: the peer fills it; receiver: staging */
    uint64_t *hello;       /* see MEM_HELLO */
    struct record *record; /* receiver: rings the peer fills; sender: staging; RECORD_RING per QP */
    uint64_t *totals;      /* imm mode, CTS_SLOTS * PVN_MAX_RECVS message sizes, both ends */

    /* sender */
    uint64_t next_cts;                  /* slot number looked for */
    uint32_t reap_at;                   /* known completions that are worth a poll now */
    uint64_t next_line;                 /* of that slot, counted for ever */
    const struct cts_line *line;        /* that one */
    bool starved;                       /* a chunk found no place in a send queue */
    struct pvn_cts cts_seen[CTS_SLOTS]; /* slot % CTS_SLOTS: what the engine was told of */
    /* receiver */
    uint64_t staged;    /* slots given to post_cts */
    uint64_t published; /* of them with the peer */
    uint64_t staged_lines, published_lines;
    uint64_t started; /* slots below it have been used by the peer, as far as seen */
    struct publication publication;
    /* each chain with a completion: it has completed once `started` is as far as this */
    uint64_t chain[CTS_SLOTS * 2];
    uint32_t chain_head, chain_known, chain_tail; /* taken, known to have completed, rung */
    /* imm: what came last was not in the queue, which is then asked less often */
    bool quiet_queue;
    /* both */
    bool fresh; /* the last poll found something */
    /* send-side completions: rung and signalled, not taken */
    uint32_t owed;
    struct flush_qp flush;
    struct two_sided *two; /* two-sided mode */

    struct pvn_rdma_lane_stats stats;
};

static inline struct rdma_lane *rdma_of(struct pvn_lane *l)
{
    return (struct rdma_lane *)l;
}

/* rdma_err.c: records why the lane died, once; returns the negative code. */
int rdma_dead(struct rdma_lane *r, int code, const char *doing);
int rdma_dead_wc(struct rdma_lane *r, const struct ibv_wc *wc);
void rdma_locate(const struct pvn_lane *l, struct pvn_err *err);

/* rdma_qp.c */
int rdma_qp_to_init(struct rdma_lane *r, struct ibv_qp *qp);
int rdma_qp_to_rtr(struct rdma_lane *r, struct ibv_qp *qp, const struct ibv_ah_attr *ah,
                   uint32_t dest, uint32_t psn);
int rdma_qp_to_rts(struct rdma_lane *r, struct ibv_qp *qp, uint32_t psn, uint8_t rd_atomic);
int rdma_qps_create(struct rdma_lane *r);
int rdma_qps_connect(struct rdma_lane *r);
void rdma_qps_error(struct rdma_lane *r);
void rdma_qps_destroy(struct rdma_lane *r);

/* rdma_setup.c */
void rdma_two_sided(struct rdma_lane *r); /* rdma_lane.c: takes the two-sided table */
int rdma_offer(struct pvn_lane *l, void *buf, size_t cap);
int rdma_bind(struct pvn_lane *l, const void *peer, size_t len);
int rdma_verify(struct pvn_lane *l);

/* rdma_post.c: chains and the completion queue */
void rdma_chain_init(struct rqp *q);
int rdma_ring_chain(struct rdma_lane *r, struct rqp *q); /* the doorbell, of a chain not empty */
static inline int rdma_ring(struct rdma_lane *r, int qp)
{
    return r->qp[qp].nwr ? rdma_ring_chain(r, &r->qp[qp]) : 0;
}
int rdma_refill(struct rdma_lane *r, int qp);
int rdma_not_posted(struct rdma_lane *r, int rc); /* ibv_post_send's answer: the lane is dead */
/* Takes up to max completions. ev/n: events of receives, may be NULL on the sending side. */
int rdma_take(struct rdma_lane *r, int max, struct pvn_event *ev, int room, int *n);
bool rdma_time_to_ask(struct rdma_lane *r);
/* Whether the device has failed. What moves needs no other sign of life. 0 or the lane is dead. */
int rdma_healthy(struct rdma_lane *r);
/* Asks that and, where `known` completions are not all that is owed, the queue if it is time.
 * quiet: there are requests without a completion, whose errors have one. */
int rdma_look_around(struct rdma_lane *r, uint32_t known, bool quiet);
/* Whether a poll that found nothing looks around. */
static inline bool rdma_vain_enough(struct rdma_lane *r)
{
    if (__builtin_expect(++r->vain < LOOK_EVERY, 1))
        return false;
    r->vain = 0;
    return true;
}
/* A poll has found nothing, and so will the next ones while these two words are as they were. */
static inline void rdma_watch(struct rdma_lane *r, const uint32_t *a, uint32_t same_a,
                              const uint32_t *b, uint32_t same_b)
{
    r->l.watch = (struct pvn_lane_watch){{a, b}, {same_a, same_b}, WATCH_POLLS};
    r->vain += WATCH_POLLS;
}

/* One more request for the chain of a queue pair: an RDMA WRITE of one piece. NULL when the chain
 * or the send queue is full. len 0: a request without a piece. */
static inline struct ibv_send_wr *rdma_wr(struct rdma_lane *r, int qp, const void *src,
                                          uint32_t len, uint32_t lkey, uint64_t raddr,
                                          uint32_t rkey)
{
    struct rqp *q = &r->qp[qp];
    if (q->nwr == CHAIN || q->places == 0)
        return NULL;
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
    q->places--;
    r->l.kick_due = true;
    return wr;
}

/* Of a request of the chain: it is to have a completion. */
static inline void rdma_signal(struct rqp *q, struct ibv_send_wr *wr, uint64_t id)
{
    wr->wr_id = id;
    wr->send_flags |= IBV_SEND_SIGNALED;
    q->signalled++;
}

/* Of a request of a sender: it is to have a completion, which stands for all chunks up to `posted`,
 * and for its places and those of all before that have none. */
static inline void rdma_signal_data(struct rqp *q, struct ibv_send_wr *wr, int qp, uint32_t places,
                                    uint32_t posted)
{
    rdma_signal(q, wr, wr_id_make(WR_DATA, qp, q->quiet + places));
    q->signal_at[q->signals++ % SIGNALS] = posted;
    q->quiet = 0;
}

/* What a completion or an acknowledgement of the chunk will stand for. */
static inline void rdma_note(struct rqp *q, uint32_t cookie, uint32_t chunk)
{
    q->note[q->posted++ % RECORD_RING] = rdma_note_make(cookie, chunk);
}

/* Requests of one chunk at most: its data, and its record or (imm) its message's size before it. */
enum { PER_CHUNK = 2 };

/* Chunks from whose number on a queue pair's window is counted. A completion says that a record is
 * in the peer's ring, not that the peer has read it. An immediate that comes too early finds no
 * receive request, and the device waits. */
static inline uint32_t rdma_window_from(const struct rdma_lane *r, const struct rqp *q)
{
    return r->cfg.mode == PVN_RDMA_RECORD ? q->consumed : q->acked;
}
static inline bool rdma_has_room(const struct rdma_lane *r, const struct rqp *q)
{
    return q->posted - rdma_window_from(r, q) < r->window &&
           q->posted - q->reported < RECORD_RING && q->places >= PER_CHUNK;
}

/* Whether the bytes are in the registration. */
static inline bool rdma_within(const struct pvn_mr *mr, const void *addr, size_t len)
{
    uintptr_t at = (uintptr_t)addr - (uintptr_t)mr->addr;
    return at <= mr->len && len <= mr->len - at;
}

int rdma_pick_of_many(struct rdma_lane *r);
/* A queue pair that has room for a chunk, -1: none has. */
static inline int rdma_pick_qp(struct rdma_lane *r)
{
    return r->nqps == 1 && rdma_has_room(r, &r->qp[0]) ? 0 : rdma_pick_of_many(r);
}

/* rdma_short.c */
void rdma_short_open(struct rdma_lane *r); /* once the peer's offer is known and the mode agreed */
int rdma_post_short(struct rdma_lane *r, const struct pvn_write *w);
int rdma_send_next(struct pvn_lane *l, const void *src, size_t size, int32_t tag,
                   const struct pvn_mr *mr, uint32_t cookie);
int rdma_read_shorts(struct rdma_lane *r, int k, struct pvn_event *ev, int max, int *n);
void rdma_copy_out(const struct pvn_event *ev, void *dst);
static inline bool rdma_short_is_there(const struct rqp *q)
{
    return __atomic_load_n(&q->shorts.next->stamp, __ATOMIC_ACQUIRE) ==
           htole32(q->shorts.lines + 1);
}

/* A word that the peer writes, which may be under way behind its stamp. */
static inline uint64_t rdma_word(const uint64_t *word)
{
    return le64toh(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}
/* Sender: whether the next clear-to-send line is there, at least the first of its slot. */
static inline bool rdma_cts_is_there(const struct rdma_lane *r)
{
    return __atomic_load_n(&r->line->stamp, __ATOMIC_ACQUIRE) == htole32((uint32_t)r->next_cts + 1);
}
/* Goes on to the next slot, behind one of n lines, whose number is returned. */
static inline uint64_t rdma_take_slot(struct rdma_lane *r, int n)
{
    r->next_line += (unsigned)n;
    r->line = &r->cts[r->next_line % CTS_LINES];
    return r->next_cts++;
}

/* rdma_flush.c: the queue pair that reads GPU memory, on receivers with PVN_FLUSH_READ */
int rdma_flush_create(struct rdma_lane *r);
int rdma_flush_connect(struct rdma_lane *r);
int rdma_flush_verify(struct rdma_lane *r); /* 0, -EAGAIN, or the lane is dead */
void rdma_flush_destroy(struct rdma_lane *r);
int rdma_post_flush(struct pvn_lane *l, uint32_t id, const void *addr, const struct pvn_mr *mr);
int rdma_flush_poll(struct rdma_lane *r, struct pvn_event *ev, int max, int *n);

/* rdma_two.c: the two-sided mode. open allocates, once the mode has been agreed; the first receives
 * are posted before the queue pairs can send. */
uint8_t rdma_two_depth_log2(const struct rdma_lane *r);
uint32_t rdma_two_recvs(const struct rdma_lane *r); /* places of the receive queue it needs */
int rdma_two_open(struct rdma_lane *r);
int rdma_two_post_first(struct rdma_lane *r, int qp);
int rdma_two_probe(struct rdma_lane *r, int qp);
bool rdma_two_heard(const struct rdma_lane *r); /* something has come from the peer */
int rdma_two_took_recv(struct rdma_lane *r, int qp, const struct ibv_wc *wc);
int rdma_two_post_write(struct pvn_lane *l, const struct pvn_write *w);
int rdma_two_poll(struct pvn_lane *l, struct pvn_event *ev, int max);
int rdma_two_mem_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                     struct pvn_err *err);
void rdma_two_drain(struct rdma_lane *r); /* blocks for a second at most, where the peer lives */
void rdma_two_close(struct rdma_lane *r);

/* Receiver: a chunk of this slot has come. The peer uses slots in order, so all before it are in
 * use. */
static inline void rdma_started(struct rdma_lane *r, uint32_t id)
{
    uint32_t ahead = (id - pvn_id(r->started)) & ((1u << PVN_ID_BITS) - 1);
    if (ahead < r->published - r->started)
        r->started += ahead + 1;
}

/* rdma_err.c: what is numbered so has its stamp, and does not add up to its sum. 0: it may still
 * do, or the lane is dead. */
#define TORN_CTS   "reading a clear-to-send entry"
#define TORN_SHORT "reading a short message"
int rdma_torn(struct rdma_lane *r, uint64_t number, const char *doing);

/* rdma_tx.c, rdma_rx.c */
int rdma_post_write(struct pvn_lane *l, const struct pvn_write *w);
int rdma_post_long(struct rdma_lane *r, const struct pvn_write *w); /* not as a short message */
int rdma_tx_kick(struct pvn_lane *l);
int rdma_tx_poll(struct pvn_lane *l, struct pvn_event *ev, int max);
int rdma_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
void rdma_rx_open(struct rdma_lane *r); /* once the peer's offer is known */
int rdma_rx_kick(struct pvn_lane *l);
void rdma_rx_farewell(struct rdma_lane *r); /* blocks for a moment at most, where the peer lives */
int rdma_rx_poll(struct pvn_lane *l, struct pvn_event *ev, int max);

#endif
