/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The RDMA lane: reliable queue pairs between one pair of ports.
 *
 * Receiver-driven. The receiver writes clear-to-send entries into a ring in the sender's memory by
 * RDMA WRITE; the sender writes the data straight into the posted buffers. How the receiver learns
 * of it is the mode:
 * - record: a 32-byte record is written behind the data on the same queue pair into a ring in the
 *   receiver's memory, which is polled there. No receive requests, no completion queue, no doorbell
 *   on the receiving side. It needs data and record to become visible in order, so the memory is
 *   registered without relaxed ordering, and not for memory on another device.
 * - imm: RDMA WRITE with immediate, one receive request and one completion per chunk; a message of
 *   one chunk is a single request. GPU memory is another device, so where received data may
 *   go there the receiver requests this mode. Where the receiver's polls are expensive the sender counts its chunks in the
 *   receiver's memory, too, and the queue is polled for no more than that.
 * - send: two-sided, for devices without RDMA WRITE (QEMU's PVRDMA). No clear-to-send: see rdma_two.c.
 * - auto: what the peer requests; with nothing requested, record where an empty poll of either
 *   end's completion queue is expensive, else imm.
 * A short message into host memory is one write in record and imm mode: it lies with its record in
 * a ring in the receiver's memory and is copied from there.
 *
 * Doorbells cost an exit to the hypervisor on a paravirtual device, so: requests are chained and
 * posted once per kick; clear-to-send entries wait while the sender still holds unused ones;
 * acknowledgements (how many chunks of each queue pair have been seen) ride behind the entries into
 * the sender's memory, so that the sender's completion queue is polled only for as many entries as
 * are known to be there.
 */
#ifndef PVN_NET_PVRDMA_RDMA_LANE_H
#define PVN_NET_PVRDMA_RDMA_LANE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "memory/gpumem.h"
#include "engine/lane.h"
#include "net-pvrdma/gid.h"
#include "net-pvrdma/verbs.h"

enum {
    PVN_RDMA_MIN_WR = 64,    /* requests that a queue has to hold at least */
    PVN_RDMA_MAX_QPS = 8,    /* queue pairs of a lane; the parameter allows no more */
    PVN_RDMA_MAX_GIDS = 32,  /* rows of the GID table that are offered to the peer */
    PVN_RDMA_SHORT_MAX = 292 /* bytes of a short message */
};

enum pvn_rdma_mode { PVN_RDMA_AUTO, PVN_RDMA_RECORD, PVN_RDMA_IMM, PVN_RDMA_SEND };
#define PVN_RDMA_ANY_MODE (1u << PVN_RDMA_RECORD | 1u << PVN_RDMA_IMM | 1u << PVN_RDMA_SEND)

/* A registration on the lane's device: what pvn_mr.lane_mr points to. Usually one region; a range
 * that the device does not take in one piece has several, each `stride` bytes behind the one before
 * and overlapping it. */
struct pvn_rdma_mem {
    uintptr_t addr;
    uint64_t stride;
    uint64_t len; /* of all, for the registrar */
    unsigned count;
    unsigned gpu; /* ordinal of the GPU the memory is on plus one, 0: host memory */
    struct {
        struct ibv_mr *mr;
        void *owner; /* the registrar's own */
    } part[];
};

/* The region that holds [addr, addr + len), NULL when none does. */
static inline struct ibv_mr *pvn_rdma_mem_find(const struct pvn_rdma_mem *mem, uintptr_t addr,
                                               uint64_t len)
{
    uint64_t i = mem->count > 1 ? (addr - mem->addr) / mem->stride : 0;
    if (i >= mem->count)
        i = mem->count - 1;
    struct ibv_mr *mr = mem->part[i].mr;
    uintptr_t at = addr - (uintptr_t)mr->addr;
    return at <= mr->length && len <= mr->length - at ? mr : NULL;
}

/* Who registers memory for lanes of one device: it may keep a cache. Any thread. */
struct pvn_rdma_registrar {
    /* dmabuf_fd -1: host memory, or GPU memory by a peer-memory client or a dma-buf that is exported here; it stays the
     * caller's. relaxed: what is written there may reach it in any order before its completion (ordering.h). 0 and *out, or
     * a negative errno with *err. */
    int (*reg)(void *arg, const struct pvn_mr *mr, bool relaxed, int dmabuf_fd,
               uint64_t dmabuf_offset, struct pvn_rdma_mem **out, struct pvn_err *err);
    void (*dereg)(void *arg, struct pvn_rdma_mem *mem);
    /* PVN_FLUSH_CUDA of a GPU registration: 0 or a negative errno
     * with *err. NULL: no GPU memory. */
    int (*flush)(void *arg, const struct pvn_rdma_mem *mem, struct pvn_err *err);
    void *arg;
};

/* Everything is copied; verbs, context and domain are borrowed and outlive the lane. */
struct pvn_rdma_lane_cfg {
    const struct pvn_verbs *v;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    char name[64]; /* "vmw_pvrdma0:1", for messages */
    bool sender;
    /* AUTO takes the mode of the other end; record and imm do not meet. */
    enum pvn_rdma_mode mode;
    unsigned modes;            /* those that will do, a bit each; 0: the one named, of AUTO all */
    bool acknowledged;         /* a send is reported when the peer has its bytes, in every mode */
    unsigned gpu_caps;         /* PVN_LANE_GPU_*: what of GPU memory has been proved */
    enum pvn_flush_kind flush; /* of GPU memory that this end has received */
    /* Messages of no more bytes than this are sent as short ones, to a peer that takes them; 0:
     * none are, and none are taken. PVN_RDMA_SHORT_MAX at most. */
    uint32_t short_max;
    /* bytes that messages are cut into where there is one queue pair and no other lane, if more */
    size_t lone_chunk;
    bool large;       /* the lane is verified with full-size packets as well */
    bool may_block;   /* no message waits for bind: it looks for the peer's address again */
    int qps;          /* wished, 1 .. PVN_RDMA_MAX_QPS; the smaller of both ends' is used */
    size_t max_chunk; /* bytes that messages are cut into */
    bool software;    /* the device copies by processor: rdma_rxe, or a hypervisor's */
    bool costly_poll; /* an empty poll of a completion queue is a doorbell */
    /* costly_poll: with nothing known to be in the queue it is polled only after
     * this long without any movement, and after twice that when it was empty, and
     * so on: that is how an error shows. */
    uint64_t idle_poll_ns;
    /* ns, never going back: how long the chunks of several queue pairs take; NULL: pvn_now_ns */
    uint64_t (*now)(void);

    /* the port */
    uint8_t port;
    bool ethernet; /* RoCE: addressed by GID; else InfiniBand: by LID */
    uint16_t lid;
    enum ibv_mtu mtu;                           /* active; the smaller of both ends' is used */
    struct pvn_gid_row gids[PVN_RDMA_MAX_GIDS]; /* those that may be used, see pvn_gid_filter */
    int ngids;

    /* the device's limits */
    uint32_t max_wr, max_cqe, max_inline;

    /* connection parameters, as ibv_modify_qp takes them */
    uint8_t timeout, retry_cnt, rnr_retry, sl, traffic_class;
    uint16_t pkey_index;
    uint8_t max_rd_atomic;

    /* Looks if the device or port has reported its end; called by every poll, must be cheap. 0 or a
     * negative errno with *err. NULL: nobody watches. */
    int (*health)(void *ctx_arg, struct pvn_err *err);
    /* Called when the ends have agreed on a row of gids, for which health looks as well; NULL: it
     * does not. */
    void (*sends_from)(void *health_arg, const struct pvn_gid_row *own);
    void *health_arg;
    /* The lane does not use verbs any more: the last that close does. Not called where lane_new
     * fails. NULL: nobody counts. */
    void (*closed)(void *health_arg);

    struct pvn_rdma_registrar registrar; /* reg NULL: the lane's caller fills pvn_mr itself */
};

/* NULL with *err. Freed by ops->close. */
struct pvn_lane *pvn_rdma_lane_new(const struct pvn_rdma_lane_cfg *cfg, struct pvn_err *err);

/* Every doorbell the lane knows of, and what it was spent on; the calling thread's lane only. */
struct pvn_rdma_lane_stats {
    uint64_t post_send, post_recv; /* calls: a doorbell each */
    /* Calls of poll_cq that met an empty ring: a doorbell each where costly */
    uint64_t empty_polls;
    uint64_t polls;                  /* all of them */
    uint64_t chunks;                 /* data chunks posted or seen */
    uint64_t shorts;                 /* of them, short messages */
    uint64_t cts_entries, cts_rings; /* entries published, and the post_send calls for them */
    uint64_t acks_alone;             /* acknowledgements that no entry carried */
    uint64_t partial; /* looks at an entry or a message whose stamp was visible before the rest */
};
void pvn_rdma_lane_get_stats(const struct pvn_lane *l, struct pvn_rdma_lane_stats *out);

/* "record", "imm", "send", "auto" */
const char *pvn_rdma_mode_name(enum pvn_rdma_mode mode);

#endif
