/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue pairs of a sending lane as paths. A network that spreads flows over links (ECMP) maps each
 * queue pair to one link, by its UDP source port, so one queue pair may be much slower than the others. A
 * chunk goes to the path that is expected to deliver it first. This estimate uses the bytes that the path
 * still has to deliver and its cost, measured on delivered chunks.
 *
 * The receiver measures the arrival, because acknowledgements come in batches: each one says how long ago
 * the queue pair's last chunk was seen. A chunk that is not acknowledged may have been delivered already, so
 * the estimate uses the time at which the path is expected to be free, not its unacknowledged bytes.
 *
 * Only lanes with several queue pairs in record or imm mode have paths. Only the lane's thread uses them.
 */
#ifndef PVN_NET_PVRDMA_RDMA_PATH_H
#define PVN_NET_PVRDMA_RDMA_PATH_H

#include "net-pvrdma/rdma_lane_priv.h"

/* The path of one queue pair. */
struct rdma_path {
    struct rdma_flight {
        uint64_t posted_ns;
        /* rqp.posted after this chunk; acknowledged once rqp.acked has reached it */
        uint32_t chunk;
        uint32_t bytes;
    } flight[RECORD_RING]; /* chunks in flight: not acknowledged */
    uint32_t head, tail;   /* of flight, free-running */
    uint64_t outstanding;  /* bytes in flight */
    uint64_t sent;         /* total bytes */
    uint64_t posted_ns;    /* when the last chunk was posted */
    uint64_t arrived_ns;   /* when the receiver saw the last acknowledged chunk */
    uint64_t free_ns;      /* when the path is expected to have delivered all chunks in flight */
    uint64_t cost;         /* ns per KiB of rdma_path_weight(), smoothed; 0: not known yet */
};

/* A path counts as slow from this many times the cost of the fastest path. Smaller differences are within
 * the variation of the measurement, so such a path counts as fast. */
enum { PATH_SLOW = 2 };

/* True if the path is so much slower than the fastest that it may be better to wait for a fast one. */
static inline bool rdma_path_is_slow(const struct rdma_lane *r, const struct rdma_path *p)
{
    return p->cost >= PATH_SLOW * r->tx.least_cost;
}

/* True if the path has chunks in flight. */
static inline bool rdma_path_is_busy(const struct rdma_path *p)
{
    return p->head != p->tail;
}

/* Bytes and a fixed overhead of 64 KiB per chunk, because a path's latency is about the time of 64 KiB.
 * Without it a path that carried small chunks would look slow. */
static inline uint64_t rdma_path_weight(uint64_t bytes, uint32_t chunks)
{
    return bytes + chunks * UINT64_C(65536);
}

/* The time that the path needs for these chunks, in ns. */
static inline uint64_t rdma_path_takes(const struct rdma_lane *r, const struct rdma_path *p,
                                       uint64_t bytes, uint32_t chunks)
{
    uint64_t cost = rdma_path_is_slow(r, p) ? p->cost : r->tx.least_cost;
    return rdma_path_weight(bytes, chunks) * cost / 1024;
}

int rdma_paths_open(struct rdma_lane *r); /* 0, or the lane is dead */
/* Notes a chunk on path k, which was picked at tx.picked_ns; qp[k].posted counts the chunk already. */
void rdma_path_posted(struct rdma_lane *r, int k, uint32_t bytes);
/* Called when qp[k].acked has grown. arrived_ns: when the receiver saw the last acknowledged chunk; 0: not
 * known. */
void rdma_path_acked(struct rdma_lane *r, int k, uint64_t arrived_ns);
/* Appends each path's share of the bytes and its bytes in flight to a description of len bytes in a buffer of
 * cap bytes. Returns the full length, as snprintf does. */
int rdma_paths_describe(const struct rdma_lane *r, char *buf, size_t cap, int len);

#endif
