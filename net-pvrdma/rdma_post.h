/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Chains of requests, doorbells and the completion queue. */
#ifndef PVN_NET_PVRDMA_RDMA_POST_H
#define PVN_NET_PVRDMA_RDMA_POST_H

#include "net-pvrdma/rdma_lane_priv.h"

/* Completions of receives. */
struct rdma_recvs {
    int n;
    struct rdma_done of[CQ_BATCH];
};

/* Gives a sender's request a completion, which stands for all chunks up to `posted`, and for the slots of all
 * requests that have none. */
void rdma_signal_data(struct rdma_lane *r, struct rqp *q, struct ibv_send_wr *wr, uint32_t posted);

/* The last request of a sender's chunk, which has taken so many slots: it has a completion where enough slots
 * would be without one. */
static inline void rdma_end_chunk(struct rdma_lane *r, struct rqp *q, struct ibv_send_wr *wr,
                                  uint32_t slots)
{
    q->unsignaled += slots;
    if (__builtin_expect(q->unsignaled >= r->signal_every, 0))
        rdma_signal_data(r, q, wr, q->posted + 1);
}

void rdma_chain_init(struct rqp *q);
int rdma_ring_chain(struct rdma_lane *r, struct rqp *q); /* the doorbell, of a chain not empty */
static inline int rdma_ring(struct rdma_lane *r, int qp)
{
    return r->qp[qp].nwr ? rdma_ring_chain(r, &r->qp[qp]) : 0;
}
int rdma_not_posted(struct rdma_lane *r, int rc); /* ibv_post_send's answer: the lane is dead */
/* Takes up to max completions, CQ_BATCH at most, and gives out those of receives; NULL: none is due.
 * Their number, or the lane is dead: not before those of receives that came with the error are taken. */
int rdma_take(struct rdma_lane *r, int max, struct rdma_recvs *recvs);
int rdma_take_requests(struct rdma_lane *r); /* where no receive is due. 0, or the lane is dead */
/* Queue pairs in the error state: the next receives that had completed before. 0: some, or with none the
 * queue is empty; -EAGAIN: more may come. */
int rdma_take_last(struct rdma_lane *r, struct rdma_recvs *recvs);
bool rdma_time_to_poll(struct rdma_lane *r);
/* Looks if the device has failed. A lane that moves needs no other sign of life. 0 or the lane is dead. */
int rdma_healthy(struct rdma_lane *r);
/* Checks that and polls the queue, where it is due and more than `known` completions are
 * outstanding. unsignaled: there are requests without a completion, whose errors have one. */
int rdma_look_around(struct rdma_lane *r, uint32_t known, bool unsignaled);

#endif
