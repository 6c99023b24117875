/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf p2p and mesh: the exchange of messages between two ranks. They have a pair of comms per
 * channel; each direction has a window of requests. One thread.
 */
#ifndef PVN_PERF_P2P_FLOW_H
#define PVN_PERF_P2P_FLOW_H

#include "perf/rank/hist.h"
#include "perf/rank/rank.h"

#define PVN_P2P_GUARD      64 /* bytes before and after every buffer */
#define PVN_P2P_GROUP      8  /* limit of buffers in a receive */
#define PVN_P2P_MAX_WINDOW (NCCL_NET_MAX_REQUESTS * 8)

/* One direction of one channel: a window over `total` units. A unit is one request: a message on
 * the sending side, a group of them on the receiving side. */
struct pvn_flow {
    void *comm, *mhandle;
    char *base;
    uint64_t total, posted, done;
    uint64_t arrived; /* receives whose data a flush may still have to make visible */
    uint64_t window;
    /* sizes of the arrived receives, by request; NULL: no flush follows receives */
    int (*got)[PVN_P2P_GROUP];
    void *req[PVN_P2P_MAX_WINDOW];
};

struct pvn_p2p {
    struct pvn_rank *r;
    int side; /* 0 begins round trips and sends in pvn_p2p_stream, 1 answers */
    int channels, depth, group;
    size_t max_size, stride, region;
    char *mem;
    /* for copies into GPU memory and out of it; NULL: the processor accesses the memory */
    char *bounce;
    struct pvn_flow *out, *in; /* per channel */
    int check;
    uint64_t size;
    uint64_t round; /* makes the bytes of every pass different */
    int64_t errors;
    uint64_t got_messages, got_bytes; /* received; with checks, only the right ones */
};

/* Bytes of the largest message, and of the buffers of all flows of one rank. */
uint64_t pvn_p2p_max_size(const struct pvn_perf_opts *o);
uint64_t pvn_p2p_bytes(const struct pvn_perf_opts *o);

/* The functions that move data return -1 after pvn_rank_fail or an interruption. */

void pvn_p2p_start(struct pvn_p2p *p, struct pvn_flow *f, uint64_t units, int is_send);
/* 1 if a request was posted, 0 if the plugin took none. */
int pvn_p2p_post_recv(struct pvn_p2p *p, struct pvn_flow *f);
/* Tests the oldest request: 1 if it was complete (or had arrived, and its flush was posted), 0, or
 * -1. */
int pvn_p2p_complete(struct pvn_p2p *p, int c, struct pvn_flow *f, int is_send);
/* Works on the started flows of all channels until each is complete. */
int pvn_p2p_drain(struct pvn_p2p *p, struct pvn_flow *flows, int is_send);
/* Sends `units` groups from side 0 to side 1 on every channel, with `depth` in flight. 0 or -1. */
int pvn_p2p_stream(struct pvn_p2p *p, uint64_t units);
/* Sends `units` groups in both directions at once on every channel. in_seconds: time until this
 * rank had received everything. */
int pvn_p2p_both(struct pvn_p2p *p, uint64_t units, double *in_seconds);
/* Sends n messages back and forth on channel 0. Up to p->depth receives are posted ahead, as NCCL's
 * proxy posts those of the next steps while it waits for the current one. As many sends may be
 * incomplete, because the answer does not depend on them. half: gets half of each round trip, on
 * side 0; may be NULL. */
int pvn_p2p_ping_pong(struct pvn_p2p *p, uint64_t n, struct pvn_hist *half);

#endif
