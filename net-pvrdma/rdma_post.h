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

/* Requests a completion for a sender's request. The completion acknowledges all chunks up to `posted` and frees
 * the slots of all unsignaled requests before it. */
void rdma_signal_data(struct rdma_lane *r, struct rqp *q, struct ibv_send_wr *wr, uint32_t posted);

/* Ends a sender's chunk, which has taken `slots` slots. Its last request gets a completion if enough unsignaled
 * slots have added up. */
static inline void rdma_end_chunk(struct rdma_lane *r, struct rqp *q, struct ibv_send_wr *wr,
                                  uint32_t slots)
{
    q->unsignaled += slots;
    if (__builtin_expect(q->unsignaled >= r->signal_every, 0))
        rdma_signal_data(r, q, wr, q->posted + 1);
}

void rdma_chain_init(struct rqp *q);
/* Posts a chain that is not empty, with one doorbell. 0, or the lane is dead. */
int rdma_ring_chain(struct rdma_lane *r, struct rqp *q);
static inline int rdma_ring(struct rdma_lane *r, int qp)
{
    return r->qp[qp].nwr ? rdma_ring_chain(r, &r->qp[qp]) : 0;
}
/* The lane is dead, because ibv_post_send has returned rc. Returns the lane's error. */
int rdma_not_posted(struct rdma_lane *r, int rc);
/* Takes up to max completions, CQ_BATCH at most, and returns those of receives in *recvs. recvs NULL: a receive
 * completion is an error. Returns the number of completions, or the lane is dead. Receives that came together with
 * an error are returned first, and a later poll returns the error. */
int rdma_take(struct rdma_lane *r, int max, struct rdma_recvs *recvs);
/* rdma_take while no receive is due. 0, or the lane is dead. */
int rdma_take_requests(struct rdma_lane *r);
/* Takes receives that had completed before the queue pairs went to the error state. 0: recvs has some, or the
 * queue is empty for good; -EAGAIN: more may come. */
int rdma_take_last(struct rdma_lane *r, struct rdma_recvs *recvs);
bool rdma_time_to_poll(struct rdma_lane *r);
/* Checks if the device has failed. Called only after empty polls, because progress shows that the device works.
 * 0, or the lane is dead. */
int rdma_healthy(struct rdma_lane *r);
/* Checks the device's health. Then polls the queue if a poll is due and more than `known` completions are
 * outstanding. unsignaled: unsignaled requests are in flight, which complete only if they fail. */
int rdma_look_around(struct rdma_lane *r, uint32_t known, bool unsignaled);

#endif
