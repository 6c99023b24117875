/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Registrations with PCI Express relaxed ordering: an adapter's writes may then reach memory in any order. NCCL's user guide
 * (2.30.7, NCCL_IB_PCI_RELAXED_ORDERING) says that it can help much in virtual machines. Its gain in this plugin has not been
 * measured.
 *
 * Relaxed ordering is safe for memory whose data are announced by completions, because a completion makes all earlier writes
 * of its queue pair visible, relaxed or not. It is unsafe for memory that is polled (the rings and records of a lane), and
 * for data that are announced by a record after them. So a lane says at each registration if its mode allows relaxed
 * ordering (rdma_mode.h). A lane never changes its mode, and a registration belongs to one lane: after a failover the new
 * lanes register the memory again, and the caches have a region for each kind (pvn_mem_kind.access).
 * Relaxed ordering does not weaken the fence of a failover. An adapter reports the end of a queue pair by a write or by the
 * answer to a read, and neither passes an earlier write, relaxed or not.
 *
 * NCCL's own InfiniBand transport also registers these buffers with relaxed ordering, including those in which a GPU polls
 * for flags among the data (LL, LL128); a flag and its data lie in one write there. NCCL cannot request strict ordering from
 * a net plugin: regMr has no flags up to v12, and only GIN and RMA plugins have the argument NCCL_NET_MR_FLAG_FORCE_SO.
 */
#ifndef PVN_NET_PVRDMA_ORDERING_H
#define PVN_NET_PVRDMA_ORDERING_H

#include <stdbool.h>

#include "net-pvrdma/verbs.h"

/* NCCL_PVRDMA_RELAXED_ORDERING, with NCCL's numbers. */
enum pvn_ordering_mode { PVN_ORDERING_STRICT, PVN_ORDERING_RELAXED, PVN_ORDERING_AUTO };

struct pvn_rdma_ordering_cfg {
    enum pvn_ordering_mode mode;
    const char *from;     /* name of the variable that set the mode */
    const char *not_here; /* why this device or process cannot use it; NULL: it can */
};

/* The state of one device. The name and the verbs table must outlive it. */
struct pvn_rdma_ordering {
    const struct pvn_verbs *v;
    const char *name;
    struct pvn_rdma_ordering_cfg cfg;
    bool on;
    char why[160]; /* the reason if it is off */
    /* Atomic. True once a registration (of any memory, of a dma-buf) has failed with the attribute and worked
     * without it. If the kernel does not know the attribute, libibverbs omits it, but not for dma-bufs. */
    bool refused, refused_dmabuf;
};

/* Decides if the device uses relaxed ordering, and tries a registration in the domain. Warns if the mode is RELAXED but
 * relaxed ordering cannot be used. */
void pvn_rdma_ordering_init(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                            const char *name, const struct pvn_rdma_ordering_cfg *cfg,
                            struct ibv_pd *pd);

/* Access rights for the next two functions and for pvn_mem_kind: PVN_RDMA_ACCESS, and the attribute if `relaxed` is set
 * and the device supports it. o NULL: without the attribute. This and the next functions may be called from any thread. */
int pvn_rdma_ordering_access(const struct pvn_rdma_ordering *o, bool relaxed);

/* Like ibv_reg_mr and ibv_reg_dmabuf_mr. If the device refuses the attribute, this and all later registrations are made
 * without it, which is logged once. */
struct ibv_mr *pvn_rdma_reg_mr(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                               struct ibv_pd *pd, void *addr, size_t len, int access);
struct ibv_mr *pvn_rdma_reg_dmabuf_mr(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                                      struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                      int fd, int access);

/* Describes the state, "on in imm mode" or "off (WHY)", and returns buf. */
const char *pvn_rdma_ordering_text(const struct pvn_rdma_ordering *o, char *buf, size_t size);

#endif
