/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A queue pair: its chain of requests, the slots of its send queue and its chunks in flight. */
#ifndef PVN_NET_PVRDMA_RDMA_QP_H
#define PVN_NET_PVRDMA_RDMA_QP_H

#include <infiniband/verbs.h>

#include "engine/lane.h"
#include "net-pvrdma/rdma_wire.h"
#include "net-pvrdma/rdma_wr.h"

enum {
    CHAIN = 32,                /* maximum of requests posted with one doorbell */
    CQ_BATCH = 16,             /* maximum of completions taken by one poll */
    CTS_BATCH_MAX = 8,         /* this many waiting entries are published in any case */
    SIGNAL_EVERY = 16,         /* of this many slots only the last one's request has a completion */
    REAP_AT = 4,               /* known completions from which on a poll is worthwhile */
    SIGNALS = 2 * RECORD_RING, /* ring of completions to come; no send queue has more slots */
    WATCH_POLLS = 8,           /* polls that the watched words replace, see pvn_lane_watch */
    LOOK_EVERY = 16            /* empty polls between two health checks, replaced polls included */
};

/* Imm mode: a receiver always has at least as many receives posted as the sender may have chunks in flight. */
enum { IMM_RECVS = RECORD_RING + CHAIN };

/* The note of an unacknowledged chunk, chunk:9 | cookie:20. In this layout consecutive messages of one chunk
 * have consecutive notes. */
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

/* The ring of the lane's short messages, all on its first queue pair. At a receiver the peer writes the ring;
 * a sender sends from it. */
struct short_ring {
    struct short_head *base, *end; /* messages may begin from base up to end */
    struct short_head *next;       /* first line of the next message */
    uint32_t lines;                /* total of lines, free-running */
    uint32_t acknowledged;         /* receiver: lines whose reading is acknowledged to the peer */
    /* sender */
    uint32_t free_from; /* lines that the peer has read */
    int32_t room;       /* lines that may be sent without a check; -1 means 0 */
    uint64_t to_remote; /* difference between an address of the peer's ring and the one here */
    struct ibv_sge sge;
    struct ibv_send_wr wr;
};

struct rqp {
    struct ibv_qp *qp;
    uint32_t slots; /* free slots of the send queue */
    uint32_t psn;
    uint32_t unsignaled; /* slots used since the last request that has a completion */
    /* Requests chained but not posted. The elements of wr stay linked, see rdma_ring_chain. */
    int nwr;
    uint32_t signalled; /* requests of the chain that have a completion */
    struct ibv_send_wr wr[CHAIN];
    struct ibv_sge sge[CHAIN];
    /* sender: chunks of this queue pair, free-running */
    uint32_t posted, acked, reported;
    uint64_t longs;    /* chunks posted or seen, without short messages */
    uint32_t consumed; /* chunks that the peer has read, so that its record ring has room again */
    /* Requests with a completion: value of `posted` at each one; number of these requests posted, known to
     * have completed, and taken from the queue. */
    uint32_t signal_at[SIGNALS];
    uint32_t signals, signals_known, signals_taken;
    uint32_t plain;             /* WR_PLAIN requests that have completed */
    uint32_t note[RECORD_RING]; /* rdma_note_make() of the chunks not reported */
    uint32_t records;           /* records written or read */
    struct record *next_record; /* next record in the ring */
    struct short_ring shorts;
    /* receiver */
    uint32_t seen;         /* records, short messages or completions taken */
    uint32_t acknowledged; /* value of `seen` in the last acknowledgement */
    uint32_t recv_lack;    /* imm: receive requests that have to be posted again */
    uint64_t seen_ns;      /* several queue pairs: when the last long chunk was seen */
};

struct rdma_lane;

/* rdma_qp.c */
int rdma_qp_to_init(struct rdma_lane *r, struct ibv_qp *qp);
int rdma_qp_to_rtr(struct rdma_lane *r, struct ibv_qp *qp, const struct ibv_ah_attr *ah,
                   uint32_t dest, uint32_t psn);
int rdma_qp_to_rts(struct rdma_lane *r, struct ibv_qp *qp, uint32_t psn, uint8_t rd_atomic);
int rdma_qps_create(struct rdma_lane *r);
int rdma_qps_connect(struct rdma_lane *r); /* 0, -EAGAIN, or the lane is dead */
void rdma_qps_error(struct rdma_lane *r);
void rdma_qps_destroy(struct rdma_lane *r);
/* log2 of the receives on each queue pair of a receiver in the two-sided mode. */
uint8_t rdma_pieces_log2(const struct rdma_lane *r);

#endif
