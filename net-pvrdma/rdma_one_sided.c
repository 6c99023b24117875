/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The common part of record and imm mode outside of the message path: opening, verification and counters. */
#include "net-pvrdma/rdma_one_sided.h"
#include "net-pvrdma/rdma_rx.h"

#include <endian.h>
#include <errno.h>

int rdma_one_sided_open(struct rdma_lane *r)
{
    rdma_short_open(r);
    rdma_rx_open(r);
    return rdma_paths_open(r);
}

/* Verification with large packets: a fabric may carry small packets and lose large ones. It writes a part of this
 * end's ring of short messages over the peer's. Both rings hold only zeros until the lane is up at both ends. */
enum { LARGE_BYTES = 2 * 4096 }; /* two packets of the largest MTU */
static_assert((int)LARGE_BYTES <= (int)SHORT_RING_BYTES, "they fit the ring of short messages");

static uint32_t probe_large(struct rdma_lane *r, struct rqp *q)
{
    if (!r->cfg.large)
        return 0;
    rdma_wr(q, r->mem + mem_short(r->cfg.qps), LARGE_BYTES, r->mem_mr->lkey,
            r->peer.mem_addr + mem_short(r->peer.nqps), r->peer.mem_rkey);
    return 1;
}

/* Posts a queue pair's verification: a large write if requested, then a small one. On the sender's first queue pair the
 * small write carries a word for the receiver; all others are empty. */
int rdma_probe_by_write(struct rdma_lane *r, int k)
{
    bool word = r->cfg.sender && k == 0;
    struct rqp *q = &r->qp[k];
    uint32_t before = probe_large(r, q);
    if (word)
        *r->hello = htole64(1);
    struct ibv_send_wr *wr = rdma_wr(q, r->hello, word ? sizeof(*r->hello) : 0, r->mem_mr->lkey,
                                     r->peer.mem_addr + MEM_HELLO, r->peer.mem_rkey);
    rdma_signal(q, wr, rdma_wr_id(WR_PLAIN, k, 1 + before));
    return rdma_ring(r, k);
}

int rdma_peer_has_written(struct rdma_lane *r)
{
    return __atomic_load_n(r->hello, __ATOMIC_ACQUIRE) ? 0 : -EAGAIN;
}

void rdma_one_sided_stats(const struct rdma_lane *r, struct pvn_rdma_lane_stats *out)
{
    /* The totals do not come from the queue pairs' 32-bit counts, which wrap. */
    uint64_t longs = 0;
    out->chunks = r->chunks_done;
    for (int k = 0; k < r->nqps; k++) {
        longs += r->qp[k].longs;
        out->chunks += r->l.sender ? r->qp[k].posted - r->qp[k].reported : 0;
    }
    out->shorts = out->chunks - longs;
    out->post_send += r->l.sender ? out->shorts : 0;
}
