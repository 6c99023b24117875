/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages through slots of registered memory, as NCCL's proxy moves them (src/transport/net.cc,
 * sendProxyProgress and recvProxyProgress, of NCCL 2.30.7). Slots are filled, sent and completed in
 * order. Receives are posted as far ahead as there are slots. A pass makes one post, and one test
 * of the oldest request. The caller fills and reads the slots.
 */
#ifndef PVN_PERF_SLOTS_H
#define PVN_PERF_SLOTS_H

#include "perf/rank/rank.h"

#define PVN_SLOTS_MAX   NCCL_NET_MAX_REQUESTS
#define PVN_STREAMS_MAX 8            /* of a grouped receive */
#define PVN_SIZE_UNSAID ((size_t)-1) /* test() did not set the size */

/* The sends of one stream on a comm. */
struct pvn_out {
    void *comm, *mh;
    char *buf; /* slot k is at buf + k * stride */
    size_t stride;
    uint64_t steps; /* slots */
    int tag;
    uint64_t filled, posted, done; /* slots since the start of a run */
    void *req[PVN_SLOTS_MAX];
    size_t size[PVN_SLOTS_MAX]; /* set by the function that fills the slot */
};

/* The receives of a comm: one stream, or several in grouped receives, where stream i has the tag
 * tag + i. A stream without further messages takes no part in a step. */
struct pvn_in {
    void *comm, *mh;
    char *buf; /* stream i's slot k is at buf + k * stride + i * slot */
    size_t stride, slot;
    uint64_t steps;
    int tag, streams;
    uint64_t total[PVN_STREAMS_MAX]; /* slots of this run */
    uint64_t used[PVN_STREAMS_MAX];
    uint64_t posted, arrived, done; /* done: arrived, and visible after its flush, if any */
    void *req[PVN_SLOTS_MAX];       /* the receive; once arrived, its flush or NULL */
    size_t size[PVN_SLOTS_MAX][PVN_STREAMS_MAX];
};

/* 1: something moved; 0; -1 after pvn_rank_fail. */
int pvn_out_progress(struct pvn_rank *r, struct pvn_out *o);
int pvn_in_progress(struct pvn_rank *r, struct pvn_in *in);

/* The next slot to fill, NULL while all are in use; pvn_out_fill queues it for sending. */
static inline char *pvn_out_slot(const struct pvn_out *o)
{
    return o->filled - o->done == o->steps ? NULL : o->buf + o->stride * (o->filled % o->steps);
}
static inline void pvn_out_fill(struct pvn_out *o, size_t size)
{
    o->size[o->filled++ % o->steps] = size;
}

/* The next received slot of stream i, NULL while there is none; pvn_in_use frees it and returns its
 * size from test(). */
static inline char *pvn_in_slot(const struct pvn_in *in, int i)
{
    uint64_t k = in->used[i];

    if (k == in->done || k == in->total[i])
        return NULL;
    return in->buf + in->stride * (k % in->steps) + in->slot * (size_t)i;
}
static inline size_t pvn_in_use(struct pvn_in *in, int i)
{
    return in->size[in->used[i]++ % in->steps][i];
}

/* Slots of the longest stream. */
uint64_t pvn_in_steps(const struct pvn_in *in);
void pvn_out_start(struct pvn_out *o);
void pvn_in_start(struct pvn_in *in); /* leaves total as it is */

#endif
