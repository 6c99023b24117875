/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The RDMA lane: reliable queue pairs between one pair of ports.
 *
 * Receiver-driven. The receiver writes clear-to-send entries into a ring in the sender's memory by
 * RDMA WRITE. The sender writes the data straight into the posted buffers. The mode says how the
 * receiver learns that data have arrived:
 * - record: the sender writes a 32-byte record after the data, on the same queue pair, into a ring in
 *   the receiver's memory. The receiver polls this ring. It needs no receive requests, no completion
 *   queue and no doorbell. Data and record have to become visible in order, so memory is registered
 *   without relaxed ordering, and data in the memory of another device cannot use this mode.
 * - imm: RDMA WRITE with immediate, with one receive request and one completion per chunk. A message of
 *   one chunk is a single request. A GPU's memory is the memory of another device, so a receiver whose
 *   data may go there requests this mode. If the receiver's polls are expensive, the sender also writes
 *   a count of its chunks into the receiver's memory, and the receiver polls only for that many.
 * - send: two-sided, for devices without RDMA WRITE (QEMU's PVRDMA), without clear-to-send: see
 *   rdma_two.c.
 * - auto: the mode that the peer requests. If neither end requests one, record mode if an empty poll of
 *   either end's completion queue is expensive, else imm mode.
 * In record and imm mode a short message into host memory is one write. Payload and record go together
 * into a ring in the receiver's memory, and the receiver copies the payload from there.
 *
 * On a paravirtual device a doorbell is an exit to the hypervisor. So requests are chained and posted
 * once per kick. Clear-to-send entries wait while the sender still has unused ones. Acknowledgements (the
 * number of chunks seen on each queue pair) follow the entries into the sender's memory, so that the
 * sender polls its completion queue only for entries that are known to be there.
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
    PVN_RDMA_MIN_WR = 64,    /* smallest length of a send queue */
    PVN_RDMA_MAX_QPS = 8,    /* queue pairs of a lane; the upper limit of the parameter QPS */
    PVN_RDMA_MAX_GIDS = 32,  /* rows of the GID table that are offered to the peer */
    PVN_RDMA_SHORT_MAX = 292 /* bytes of a short message */
};

enum pvn_rdma_mode { PVN_RDMA_AUTO, PVN_RDMA_RECORD, PVN_RDMA_IMM, PVN_RDMA_SEND };
#define PVN_RDMA_ANY_MODE (1u << PVN_RDMA_RECORD | 1u << PVN_RDMA_IMM | 1u << PVN_RDMA_SEND)

/* A registration on the lane's device; pvn_mr.lane_mr points to it. It is usually one region. A range that
 * is too large for one region of the device has several overlapping regions, which begin `stride` bytes
 * apart. */
struct pvn_rdma_mem {
    uintptr_t addr;
    uint64_t stride;
    uint64_t len; /* bytes of all regions together; used by the registrar */
    unsigned count;
    unsigned gpu; /* ordinal of the memory's GPU plus one; 0: host memory */
    struct {
        struct ibv_mr *mr;
        void *owner; /* private to the registrar */
    } part[];
};

/* The region that holds [addr, addr + len); NULL if there is none. */
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

/* Registers memory for the lanes of one device, perhaps with a cache. May be called from any thread. */
struct pvn_rdma_registrar {
    /* dmabuf_fd: a dma-buf, which stays the caller's. -1: host memory, or GPU memory, which is registered
     * through a peer-memory client or a dma-buf that the registrar exports. relaxed: writes may reach the
     * memory in any order before their completion (ordering.h). Returns 0 and *out, or a negative errno
     * and *err. */
    int (*reg)(void *arg, const struct pvn_mr *mr, bool relaxed, int dmabuf_fd,
               uint64_t dmabuf_offset, struct pvn_rdma_mem **out, struct pvn_err *err);
    void (*dereg)(void *arg, struct pvn_rdma_mem *mem);
    /* PVN_FLUSH_CUDA for the GPU of a registration. 0, or a negative errno with *err. NULL: the registrar
     * takes no GPU memory. */
    int (*flush)(void *arg, const struct pvn_rdma_mem *mem, struct pvn_err *err);
    void *arg;
};

/* The context of a lane's completion queues and queue pairs points to an atomic_int. Whoever reads the device's events
 * sets these bits there when the device has reported an error of the queue. */
enum { PVN_RDMA_LOST_CQ = 1, PVN_RDMA_LOST_QP = 2 };

/* The lane copies this. It borrows verbs, context and domain, which must outlive it. */
struct pvn_rdma_lane_cfg {
    const struct pvn_verbs *v;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    char name[64]; /* "vmw_pvrdma0:1", for messages */
    bool sender;
    /* The requested mode; AUTO follows the peer's request. Both ends have to agree on one mode. */
    enum pvn_rdma_mode mode;
    unsigned modes;    /* acceptable modes, a bit each; 0: only `mode`, or all if it is AUTO */
    bool acknowledged; /* in every mode a send is reported only when the peer has its bytes */
    unsigned gpu_caps; /* PVN_LANE_GPU_*: access to GPU memory that a trial has shown to work */
    enum pvn_flush_kind flush; /* kind of flush for received GPU memory */
    /* Messages of up to this many bytes are sent as short ones if the peer accepts these; at most
     * PVN_RDMA_SHORT_MAX. 0: the lane neither sends nor accepts short messages. */
    uint32_t short_max;
    /* Chunk size in bytes if the lane has one queue pair and the comm no other lane, and if this is larger
     * than max_chunk. */
    size_t lone_chunk;
    bool large; /* verify the lane with full-size packets as well */
    /* No message waits for bind, so it may resolve the peer's address several times */
    bool may_block;
    int qps;          /* requested, 1 .. PVN_RDMA_MAX_QPS; the smaller value of both ends is used */
    size_t max_chunk; /* chunk size in bytes */
    bool software;    /* a processor copies the data: rdma_rxe, or a hypervisor's device */
    bool costly_poll; /* an empty poll of a completion queue is a doorbell */
    /* Used with costly_poll: time without progress after which the completion queue is polled although nothing
     * is known to be in it, because only the queue shows an error. It doubles after each empty poll. */
    uint64_t idle_poll_ns;
    /* Monotonic clock in ns, which measures the time of chunks on several queue pairs; NULL: pvn_now_ns */
    uint64_t (*now)(void);

    /* the port */
    uint8_t port;
    bool ethernet; /* RoCE, addressed by GID; else InfiniBand, addressed by LID */
    uint16_t lid;
    enum ibv_mtu mtu;                           /* active; the smaller value of both ends is used */
    struct pvn_gid_row gids[PVN_RDMA_MAX_GIDS]; /* usable rows, see pvn_gid_filter */
    int ngids;

    /* the device's limits */
    uint32_t max_wr, max_cqe, max_inline;

    /* connection parameters, as ibv_modify_qp takes them */
    uint8_t timeout, retry_cnt, rnr_retry, sl, traffic_class;
    uint16_t pkey_index;
    uint8_t max_rd_atomic;

    /* Checks if the device or the port has failed. Polls call it often, so it must be cheap. 0, or a
     * negative errno with *err. NULL: no check. */
    int (*health)(void *ctx_arg, struct pvn_err *err);
    /* Called when the ends have agreed on a row of gids, whose presence `health` then checks, too. NULL:
     * `health` does not check it. */
    void (*sends_from)(void *health_arg, const struct pvn_gid_row *own);
    void *health_arg;
    /* Called at the end of close, when the lane no longer uses verbs. Not called if lane_new fails. NULL:
     * no call. */
    void (*closed)(void *health_arg);

    struct pvn_rdma_registrar registrar; /* reg NULL: the lane's caller fills in pvn_mr itself */
};

/* Returns NULL with *err on failure. ops->close frees the lane. */
struct pvn_lane *pvn_rdma_lane_new(const struct pvn_rdma_lane_cfg *cfg, struct pvn_err *err);

/* The lane's doorbells and their causes. Only the lane's thread may read them. */
struct pvn_rdma_lane_stats {
    uint64_t post_send, post_recv; /* calls; each is a doorbell */
    /* Calls of poll_cq that found the queue empty; doorbells with costly_poll */
    uint64_t empty_polls;
    uint64_t polls;       /* all calls of poll_cq */
    uint64_t chunks;      /* data chunks posted or seen */
    uint64_t shorts;      /* short messages among the chunks */
    uint64_t cts_entries; /* entries written to the peer */
    uint64_t acks_alone;  /* acknowledgements sent without a clear-to-send entry */
    uint64_t partial;     /* reads of an entry or message whose stamp was visible before the rest */
};
void pvn_rdma_lane_get_stats(const struct pvn_lane *l, struct pvn_rdma_lane_stats *out);

/* "record", "imm", "send", "auto" */
const char *pvn_rdma_mode_name(enum pvn_rdma_mode mode);

#endif
