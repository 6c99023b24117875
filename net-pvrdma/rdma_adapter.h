/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * An adapter in use: opened once, shared by all lanes on its ports, and opened again when it was
 * lost.
 *
 * A device that is removed from the system, or resets itself, takes its contexts with it. It is
 * opened again for the next lane; lanes that are still on the lost context keep it. Some drivers
 * (vmw_pvrdma, Linux 6.1) cannot remove a device before its contexts are closed, and say only that
 * its port went down: an adapter whose port is down is closed once no lane is left on it.
 *
 * Threads: any, but for new and free.
 */
#ifndef PVN_NET_PVRDMA_RDMA_ADAPTER_H
#define PVN_NET_PVRDMA_RDMA_ADAPTER_H

#include "net-pvrdma/gpu.h"
#include "net-pvrdma/hca.h"
#include "net-pvrdma/nic.h"
#include "net-pvrdma/ordering.h"

struct pvn_rdma_adapter;
struct pvn_rdma_opened;

/* A lane is made with this, and keeps it until it is closed. */
struct pvn_rdma_hold {
    struct pvn_rdma_adapter *adapter;
    struct pvn_rdma_opened *opened;
    struct pvn_hca hca; /* copies of the table's entries when this was made */
    struct pvn_hca_port port;
    struct pvn_rdma_registrar registrar;
    struct pvn_gid_row own; /* the row that the lane's queue pairs send from */
    bool has_own;
    const _Atomic uint64_t *gids_changed; /* see pvn_rdma_nic_gids_changed */
    uint64_t gids_seen;                   /* its value when the table was last read */
};

/* Adapter number `hca` of the table, which is open. gpu: with all but pd, host, known and ordering; copied, as is
 * ordering, the rest is borrowed. Tries what it can do with relaxed ordering and GPU memory. NULL with *err. */
struct pvn_rdma_adapter *
pvn_rdma_adapter_new(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                     struct pvn_hca_table *table, int hca, const struct pvn_rdma_gpu_cfg *gpu,
                     const struct pvn_rdma_ordering_cfg *ordering, struct pvn_err *err);
/* No lane is left. NULL is allowed. The table is closed after it. */
void pvn_rdma_adapter_free(struct pvn_rdma_adapter *a);

/* For a lane on the port of this index in the table. may_block: the adapter may be opened again,
 * which takes as long as the device takes. spare: the port is not waited for if it is down. 0 and
 * *out for release, or a negative errno with *err. */
int pvn_rdma_adapter_hold(struct pvn_rdma_adapter *a, int port, bool may_block, bool spare,
                          struct pvn_rdma_hold **out, struct pvn_err *err);
/* The lane has been closed, or was not made. */
void pvn_rdma_adapter_release(struct pvn_rdma_hold *hold);
/* The port's table of GIDs for a lane that is being made: its rows that may be used, PVN_RDMA_MAX_GIDS at most (rdma_lane.h), or
 * a negative errno. At most 100 ms old when this returns, and read again behind each event of a change that has been taken: a
 * link that went down and up may have renumbered its table. */
int pvn_rdma_adapter_gids(struct pvn_rdma_hold *hold, struct pvn_gid_row *rows);
/* The lane's queue pairs send from this row of the port's table of GIDs from now on. */
void pvn_rdma_adapter_send_from(struct pvn_rdma_hold *hold, const struct pvn_gid_row *own);
/* The health of the context that is held: see pvn_rdma_nic_health. -ENETDOWN also when the GID that
 * the lane sends from has been away for as long: no packet leaves then, or none with an address that
 * the peer takes, which shows only when all retransmissions are over (33 s with InfiniBand's usual
 * time-outs). Called by the lane alone. */
int pvn_rdma_adapter_health(struct pvn_rdma_hold *hold, struct pvn_err *err);

/* The verdict of the start. */
const struct pvn_gpumem_cap *pvn_rdma_adapter_gpu_cap(const struct pvn_rdma_adapter *a);
const struct pvn_rdma_ordering *pvn_rdma_adapter_ordering(const struct pvn_rdma_adapter *a);

#endif
