/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A queue pair: its chain of requests, its send queue's slots and what it has in flight. */
#ifndef PVN_NET_PVRDMA_RDMA_QP_H
#define PVN_NET_PVRDMA_RDMA_QP_H

#include <infiniband/verbs.h>

#include "engine/lane.h"
#include "net-pvrdma/rdma_wire.h"
#include "net-pvrdma/rdma_wr.h"

enum {
    CHAIN = 32,                /* requests that are posted by one doorbell at most */
    CQ_BATCH = 16,             /* completions taken by one poll where empty polls are free */
    CTS_BATCH_MAX = 8,         /* entries that wait at most */
    SIGNAL_EVERY = 16,         /* requests of which only the last one has a completion */
    REAP_AT = 4,               /* known completions that are worth a poll, then */
    SIGNALS = 2 * RECORD_RING, /* that are not taken yet; more slots no send queue has */
    WATCH_POLLS = 8,           /* polls that a look at memory replaces, see pvn_lane_watch */
    LOOK_EVERY = 16 /* polls without a result, those among them, between two that look around */
};

/* Imm mode: a receiver never has fewer receives posted than the sender may have chunks in flight. */
enum { IMM_RECVS = RECORD_RING + CHAIN };

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

/* The lane's short messages, all on its first queue pair: the ring that the peer fills, or where they
 * are sent from. */
struct short_ring {
    struct short_head *base, *end; /* between them a message may begin */
    struct short_head *next;       /* where the next one does */
    uint32_t lines;                /* of all messages, free-running */
    uint32_t acknowledged;         /* receiver: lines that the peer knows to be read */
    /* sender */
    uint32_t free_from; /* lines that the peer has read */
    int32_t room;       /* lines that may go out without another check; -1: as 0 */
    uint64_t to_remote; /* from an address here to the same one in the peer's ring */
    struct ibv_sge sge;
    struct ibv_send_wr wr;
};

struct rqp {
    struct ibv_qp *qp;
    uint32_t slots; /* free slots of the send queue */
    uint32_t psn;
    uint32_t unsignaled; /* slots of requests behind the last one that has a completion */
    /* requests chained but not posted; each stays linked to the next one, see rdma_ring */
    int nwr;
    uint32_t signalled; /* of them */
    struct ibv_send_wr wr[CHAIN];
    struct ibv_sge sge[CHAIN];
    /* sender: chunks of this queue pair, free-running */
    uint32_t posted, acked, reported;
    uint64_t longs;    /* of those posted or seen, not short messages */
    uint32_t consumed; /* seen by the peer, whose record ring has room again */
    /* Chunks that had been posted with each request that has a completion, and how many such
     * requests there have been, are known to have completed, and were taken from the queue. */
    uint32_t signal_at[SIGNALS];
    uint32_t signals, signals_known, signals_taken;
    uint32_t plain;             /* requests of WR_PLAIN that have completed */
    uint32_t note[RECORD_RING]; /* rdma_note_make() of those not reported */
    uint32_t records;           /* of the chunks, written or taken */
    struct record *next_record; /* where the next one will be */
    struct short_ring shorts;
    /* receiver */
    uint32_t seen;         /* records, short messages or completions taken */
    uint32_t acknowledged; /* of them acknowledged to the peer */
    uint32_t recv_lack;    /* imm: receive requests to be posted again */
    uint64_t seen_ns; /* several queue pairs: when the last chunk was, but for short messages */
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
