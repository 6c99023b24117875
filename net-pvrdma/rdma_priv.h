/* What the RDMA lane's files share. */
#ifndef PVN_NET_PVRDMA_RDMA_PRIV_H
#define PVN_NET_PVRDMA_RDMA_PRIV_H

#include <endian.h>

#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/rdma_wire.h"

enum {
    CHAIN = 32,        /* requests that one doorbell rings at most */
    CQ_BATCH = 16,     /* completions taken by one poll where empty polls are free */
    CTS_BATCH_MAX = 8, /* entries that wait at most */
    REAP_AT = 16,      /* known completions that are worth a poll */
    LOOK_EVERY = 16    /* polls in vain between two that look around (a power of two) */
};

/* What a completion stands for, in wr_id: kind, queue pair, send-queue places it frees. */
enum wr_kind { WR_DATA = 1, WR_CHAIN, WR_VERIFY, WR_RECV, WR_FLUSH, WR_PIECE, WR_CREDIT };

static inline uint64_t wr_id_make(enum wr_kind kind, int qp, unsigned places)
{
    return (uint64_t)kind << 56 | (uint64_t)qp << 48 | places;
}

/* A chunk that the peer has not acknowledged. */
struct note {
    uint32_t cookie;
    uint16_t chunk;
};

/* A queue pair's short messages: the ring that the peer fills, or where they are sent from. */
struct short_ring {
    uint8_t *base;
    const struct short_head *next; /* the one at `at` */
    uint32_t count, lines;         /* messages, and their lines, counted for ever */
    uint32_t at;                   /* line at which the next one begins */
    uint32_t told;                 /* receiver: lines of which the peer knows that they are read */
    uint32_t free_from;            /* sender: lines that the peer has read */
    uint64_t remote;               /* sender: the ring at the peer */
    struct ibv_sge sge;
    struct ibv_send_wr wr;
};

struct rqp {
    struct ibv_qp *qp;
    uint32_t psn;
    uint32_t places; /* free places of the send queue */
    /* requests chained but not rung; each is linked to the next one for good, see rdma_ring */
    int nwr;
    uint32_t signalled; /* of them */
    struct ibv_send_wr wr[CHAIN];
    struct ibv_sge sge[CHAIN];
    /* sender: chunks of this queue pair, counted for ever */
    uint32_t posted, acked, reported;
    uint32_t consumed;  /* seen by the peer, whose record ring has room again */
    uint32_t completed; /* data completions taken from the queue */
    struct note note[RECORD_RING];
    uint32_t records; /* of the chunks, written or taken */
    struct short_ring shorts;
    /* receiver */
    uint32_t seen;      /* records, short messages or completions taken */
    uint32_t told;      /* of them the peer has been told */
    uint32_t recv_lack; /* imm: receive requests to be posted again */
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
    bool shorts; /* both ends know short messages */
    /* when to ask the completion queue with nothing known, see rdma_time_to_ask */
    bool moved;
    unsigned vain; /* polls that found nothing */
    uint64_t ask_from_ns, ask_wait_ns;
    uint64_t chunks_done;

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
    uint64_t next_line;                 /* of it, counted for ever */
    uint32_t reap_at;                   /* known completions that are worth a poll now */
    bool starved;                       /* a chunk found no place in a send queue */
    struct pvn_cts cts_seen[CTS_SLOTS]; /* slot % CTS_SLOTS: what the engine was told of */
    /* receiver */
    uint64_t staged;    /* slots given to post_cts */
    uint64_t published; /* of them with the peer */
    uint64_t staged_lines, published_lines;
    uint64_t started; /* slots below it have been used by the peer, as far as seen */
    uint64_t chain[CTS_SLOTS *
                   2]; /* each chain rung: it has completed once `started` is as far as this */
    uint32_t chain_head, chain_known, chain_tail; /* taken, known to have completed, rung */
    bool fresh;                                   /* the last poll found something */
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
/* Asks that and, where `known` completions are not all that is owed, the queue if it is time. */
int rdma_look_around(struct rdma_lane *r, uint32_t known);
/* Whether a poll that found nothing looks around. */
static inline bool rdma_vain_enough(struct rdma_lane *r)
{
    return __builtin_expect((++r->vain & (LOOK_EVERY - 1)) == 0, 0);
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

/* What a completion or an acknowledgement of the chunk will stand for. */
static inline void rdma_note(struct rdma_lane *r, struct rqp *q, const struct pvn_write *w)
{
    struct note *note = &q->note[q->posted++ % RECORD_RING];
    note->cookie = w->cookie;
    note->chunk = w->f.chunk;
    r->stats.chunks++;
}

/* Requests of one chunk at most: its data, and its record or (imm) its message's size before it. */
enum { PER_CHUNK = 2 };

/* A completion says that a record is in the peer's ring, not that the peer has read it. An
 * immediate that comes too early finds no receive request, and the device waits. */
static inline bool rdma_has_room(const struct rdma_lane *r, const struct rqp *q)
{
    uint32_t free_from = r->cfg.mode == PVN_RDMA_RECORD ? q->consumed : q->acked;
    return q->posted - free_from < r->window && q->posted - q->reported < RECORD_RING &&
           q->places >= PER_CHUNK;
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
int rdma_read_shorts(struct rdma_lane *r, int k, struct pvn_event *ev, int max, int *n);
void rdma_copy_out(const struct pvn_event *ev, void *dst);
static inline bool rdma_short_is_there(const struct rqp *q)
{
    return __atomic_load_n(&q->shorts.next->stamp, __ATOMIC_ACQUIRE) ==
           htole32(q->shorts.count + 1);
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
int rdma_two_mem_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset);
void rdma_two_drain(struct rdma_lane *r); /* blocks for a second at most, where the peer lives */
void rdma_two_close(struct rdma_lane *r);

/* rdma_tx.c, rdma_rx.c */
int rdma_post_write(struct pvn_lane *l, const struct pvn_write *w);
int rdma_post_long(struct rdma_lane *r, const struct pvn_write *w); /* not as a short message */
int rdma_tx_kick(struct pvn_lane *l);
int rdma_tx_poll(struct pvn_lane *l, struct pvn_event *ev, int max);
int rdma_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
int rdma_rx_kick(struct pvn_lane *l);
int rdma_rx_poll(struct pvn_lane *l, struct pvn_event *ev, int max);

#endif
