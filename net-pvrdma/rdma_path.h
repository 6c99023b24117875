/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue pairs of a sending lane as paths. A network that spreads flows over links (ECMP) puts
 * each of them on one, by its UDP source port, so one may be much slower than the others. A chunk
 * goes to the path that is expected to deliver it first: behind what the path was given before, and
 * by the time that it took for what it has delivered. That time is the receiver's to say, for
 * acknowledgements come in batches: with each of them goes how long ago the queue pair's last chunk
 * was seen. And what is not acknowledged yet may have been delivered, so it does not count here, but
 * the time at which it is expected.
 *
 * Only lanes with several queue pairs in record or imm mode have paths; in the thread of the lane.
 */
#ifndef PVN_NET_PVRDMA_RDMA_PATH_H
#define PVN_NET_PVRDMA_RDMA_PATH_H

#include "net-pvrdma/rdma_lane_priv.h"

/* One queue pair. */
struct rdma_path {
    struct rdma_flight {
        uint64_t posted_ns;
        uint32_t chunk; /* rqp.posted behind it: acknowledged when rqp.acked is as far */
        uint32_t bytes;
    } flight[RECORD_RING]; /* chunks that are not acknowledged */
    uint32_t head, tail;   /* of these, free-running */
    uint64_t outstanding;  /* bytes of them */
    uint64_t sent;         /* bytes of all so far */
    uint64_t posted_ns;    /* when the last one was posted */
    uint64_t arrived_ns;   /* when the last one that is acknowledged was seen by the receiver */
    uint64_t free_ns;      /* when it is expected to have delivered all of them */
    uint64_t cost;         /* ns per KiB of rdma_path_weight(), smoothed; 0: not known yet */
};

/* A path that takes less than so many times as long as the fastest is taken for as fast: what is
 * measured varies as much. */
enum { PATH_SLOW = 2 };

/* True if it takes so much longer than the fastest that it is better to wait for one of those. */
static inline bool rdma_path_is_slow(const struct rdma_lane *r, const struct rdma_path *p)
{
    return p->cost >= PATH_SLOW * r->tx.least_cost;
}

/* True if it has chunks that are not acknowledged. */
static inline bool rdma_path_is_busy(const struct rdma_path *p)
{
    return p->head != p->tail;
}

/* The cost of a chunk on top of its bytes, in bytes: a path's latency is about the time that 64 KiB
 * take. So paths are not taken for unlike because one had small chunks. */
static inline uint64_t rdma_path_weight(uint64_t bytes, uint32_t chunks)
{
    return bytes + chunks * UINT64_C(65536);
}

/* ns for so much on a path. */
static inline uint64_t rdma_path_takes(const struct rdma_lane *r, const struct rdma_path *p,
                                       uint64_t bytes, uint32_t chunks)
{
    uint64_t cost = rdma_path_is_slow(r, p) ? p->cost : r->tx.least_cost;
    return rdma_path_weight(bytes, chunks) * cost / 1024;
}

int rdma_paths_open(struct rdma_lane *r); /* 0, or the lane is dead */
/* The chunk last counted in qp[k].posted, for which path k was picked at tx.picked_ns. */
void rdma_path_posted(struct rdma_lane *r, int k, uint32_t bytes);
/* qp[k].acked has grown. arrived_ns: when the receiver saw the last of these, 0: not known. */
void rdma_path_acked(struct rdma_lane *r, int k, uint64_t arrived_ns);
/* Adds each path's share of the bytes, and what is outstanding, to a description of len bytes in a
 * buffer of cap. Returns the length that the whole has, as snprintf. */
int rdma_paths_describe(const struct rdma_lane *r, char *buf, size_t cap, int len);

#endif
