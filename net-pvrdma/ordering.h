/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Registrations with PCI Express relaxed ordering: an adapter's writes may then reach memory in any order. NCCL's user guide
 * (2.30.7, NCCL_IB_PCI_RELAXED_ORDERING) says that it can help much in virtual machines. What it gains this plugin has not
 * been measured.
 *
 * It is right for memory whose bytes are announced by completions: a completion makes visible all that its queue
 * pair has written before, relaxed or not. It is wrong for memory that is polled (the rings and records of a
 * lane), and for data that are announced by a record behind them. So a lane says at each registration if its
 * mode allows it (rdma_mode.h). A lane never changes its mode, and a registration is that lane's alone: a failover
 * registers with the lanes that follow, and the caches have a region for each kind (pvn_mem_kind.access).
 * A failover's fence is as safe as without: an adapter reports the end of a queue pair by a write, or by the answer to
 * a read, and neither passes a write before it, relaxed or not.
 *
 * NCCL's own InfiniBand transport registers the same buffers so, also those in which a GPU polls for flags among the
 * data (LL, LL128): there a flag lies in one write with its data. NCCL cannot request strict order of a net plugin:
 * regMr has no flags up to v12, and NCCL_NET_MR_FLAG_FORCE_SO is an argument of GIN and RMA plugins alone.
 */
#ifndef PVN_NET_PVRDMA_ORDERING_H
#define PVN_NET_PVRDMA_ORDERING_H

#include <stdbool.h>

#include "net-pvrdma/verbs.h"

/* NCCL_PVRDMA_RELAXED_ORDERING, with NCCL's numbers. */
enum pvn_ordering_mode { PVN_ORDERING_STRICT, PVN_ORDERING_RELAXED, PVN_ORDERING_AUTO };

struct pvn_rdma_ordering_cfg {
    enum pvn_ordering_mode mode;
    const char *from;     /* the variable that the mode is from */
    const char *not_here; /* why this device or process has no use for it; NULL: it has */
};

/* The state of one device. Its name and the library outlive it. */
struct pvn_rdma_ordering {
    const struct pvn_verbs *v;
    const char *name;
    struct pvn_rdma_ordering_cfg cfg;
    bool on;
    char why[160]; /* why it is not */
    /* Atomic. True once a registration, or one of a dma-buf, has failed with the attribute and worked without.
     * libibverbs leaves it out for a kernel that does not know it, but not for dma-bufs. */
    bool refused, refused_dmabuf;
};

/* Decides, and tries a registration in the domain. A mode of RELAXED that cannot be had is a warning. */
void pvn_rdma_ordering_init(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                            const char *name, const struct pvn_rdma_ordering_cfg *cfg,
                            struct ibv_pd *pd);

/* PVN_RDMA_ACCESS, with the attribute if the memory may have it and the device has it: for the next two calls, and for
 * pvn_mem_kind. o NULL: never. Any thread, as the others. */
int pvn_rdma_ordering_access(const struct pvn_rdma_ordering *o, bool relaxed);

/* As ibv_reg_mr and ibv_reg_dmabuf_mr. Where the device refuses the attribute the memory is registered without
 * it, then and from then on; the log has that once. */
struct ibv_mr *pvn_rdma_reg_mr(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                               struct ibv_pd *pd, void *addr, size_t len, int access);
struct ibv_mr *pvn_rdma_reg_dmabuf_mr(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                                      struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                      int fd, int access);

/* "on in imm mode", "off (WHY)" */
const char *pvn_rdma_ordering_text(const struct pvn_rdma_ordering *o, char *buf, size_t size);

#endif
