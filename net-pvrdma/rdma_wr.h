/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Encodes work request ids and decodes completions. No other file knows the layout of a wr_id. */
#ifndef PVN_NET_PVRDMA_RDMA_WR_H
#define PVN_NET_PVRDMA_RDMA_WR_H

#include <endian.h>
#include <infiniband/verbs.h>
#include <stdint.h>

enum rdma_wr_kind {
    WR_DATA = 1, /* sender: stands for all chunks posted on the queue pair so far */
    WR_CHAIN,    /* receiver: stands for all entries and acknowledgements posted so far */
    WR_PLAIN,    /* stands for this request only */
    WR_RECV,     /* a receive request */
    WR_FLUSH
};

/* A wr_id is kind:8 | queue pair:8 | 0:32 | slots or flush:16. */
static inline uint64_t rdma_wr_id(enum rdma_wr_kind kind, int qp, unsigned slots)
{
    return (uint64_t)kind << 56 | (uint64_t)qp << 48 | slots;
}

struct rdma_done {
    enum rdma_wr_kind kind;
    int qp; /* index in the lane; not checked */
    union {
        uint32_t slots; /* slots of the send queue that the completion frees */
        uint32_t flush; /* WR_FLUSH: number of the flush */
        uint32_t bytes; /* WR_RECV: number of bytes received */
    };
    uint32_t imm; /* WR_RECV: the immediate data, if any */
};

/* Decodes a completion. If the request failed, only kind, qp and slots are valid. */
static inline struct rdma_done rdma_decode(const struct ibv_wc *wc)
{
    struct rdma_done d = {.kind = (enum rdma_wr_kind)(wc->wr_id >> 56),
                          .qp = (int)(wc->wr_id >> 48 & 0xff),
                          .slots = (uint32_t)(wc->wr_id & 0xffff)};
    if (d.kind == WR_RECV) {
        d.bytes = wc->byte_len;
        d.imm = be32toh(wc->imm_data);
    }
    return d;
}

#endif
