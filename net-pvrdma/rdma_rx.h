/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The receiving side: takes records and short messages, sends clear-to-send entries. */
#ifndef PVN_NET_PVRDMA_RDMA_RX_H
#define PVN_NET_PVRDMA_RDMA_RX_H

#include "net-pvrdma/rdma_post.h"

/* rdma_short.c: the receiving half */
int rdma_read_shorts(struct rdma_lane *r, struct pvn_event *ev, int max, int *n);
void rdma_copy_out(const struct pvn_event *ev, void *dst);
static inline bool rdma_short_is_there(const struct rdma_lane *r)
{
    const struct short_ring *s = &r->qp[0].shorts;
    return __atomic_load_n(&s->next->stamp, __ATOMIC_ACQUIRE) == htole32(s->lines + 1);
}

/* Receiver: a chunk of slot `id` has arrived. The peer uses slots in order, so it has started all slots up to
 * this one. */
static inline void rdma_started(struct rdma_lane *r, uint32_t id)
{
    struct rdma_rx_state *rx = &r->first->rx;
    uint32_t ahead = (id - pvn_id(rx->started)) & ((1u << PVN_ID_BITS) - 1);
    if (ahead < rx->published - rx->started)
        rx->started += ahead + 1;
}

/* Receiver: chunks of a queue pair have arrived; notes the time, see rdma_path.h. */
static inline void rdma_seen(const struct rdma_lane *r, struct rqp *q)
{
    if (r->nqps > 1)
        q->seen_ns = r->cfg.now();
}

/* rdma_rx.c */
int rdma_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
void rdma_rx_open(struct rdma_lane *r); /* called once the peer's offer is known */
void rdma_rx_join(struct rdma_lane *r); /* called once the comm's lanes are known */
int rdma_rx_kick(struct pvn_lane *l);
/* Sends the last acknowledgement before a close and waits for its completion, 100 ms at most. take: takes
 * completions, including those of receives. */
void rdma_rx_final_ack(struct rdma_lane *r, int (*take)(struct rdma_lane *r));
/* Posts an acknowledgement with a completion, which shows the result of all earlier requests, too. */
int rdma_rx_signal_now(struct rdma_lane *r);
uint32_t
rdma_rx_known(struct rdma_lane *r); /* chains whose completion is known to be in the queue */
int rdma_rx_reap_known(struct rdma_lane *r); /* takes these completions if there are many */
int rdma_rx_look_around(struct rdma_lane *r);

/* A poll has taken n arrivals. */
static inline void rdma_rx_took(struct rdma_lane *r, int n)
{
    r->chunks_done += (unsigned)n;
    r->fresh = r->moved = r->first->l.kick_due = true;
}

/* A poll was empty. The last arrivals may have to be acknowledged now, so a kick is due if the previous poll had
 * some. True if this poll also has to check the device's health. */
static inline bool rdma_rx_empty_poll(struct rdma_lane *r)
{
    r->first->l.kick_due |= r->fresh;
    r->fresh = false;
    return rdma_due_to_look(r);
}

#endif
