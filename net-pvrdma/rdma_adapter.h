/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * An adapter in use: opened once, shared by all lanes on its ports, and opened again after it was
 * lost.
 *
 * If a device is removed from the system or resets itself, its contexts are lost. The device is then
 * opened again for the next lane, while older lanes keep the lost context. Some drivers (vmw_pvrdma,
 * Linux 6.1) cannot remove a device before its contexts are closed, and report only that its port went
 * down. So an adapter whose port is down is closed once it has no lane left.
 *
 * All functions but new and free may be called from any thread.
 */
#ifndef PVN_NET_PVRDMA_RDMA_ADAPTER_H
#define PVN_NET_PVRDMA_RDMA_ADAPTER_H

#include "net-pvrdma/gpu.h"
#include "net-pvrdma/hca.h"
#include "net-pvrdma/nic.h"
#include "net-pvrdma/ordering.h"

struct pvn_rdma_adapter;
struct pvn_rdma_opened;

/* One lane's use of an adapter, from before the lane is created until it is closed. */
struct pvn_rdma_hold {
    struct pvn_rdma_adapter *adapter;
    struct pvn_rdma_opened *opened;
    struct pvn_hca hca; /* copies of the table's entries at the time of the hold */
    struct pvn_hca_port port;
    struct pvn_rdma_registrar registrar;
    struct pvn_gid_row own; /* source GID of the lane's queue pairs */
    bool has_own;
    const _Atomic uint64_t *gids_changed; /* see pvn_rdma_nic_gids_changed */
    uint64_t gids_seen;                   /* value of *gids_changed when the table was last read */
};

/* Creates an adapter for entry `hca` of the table, whose context is open. Tries relaxed ordering and GPU memory. The
 * caller fills in gpu but for pd, host, known and ordering. gpu and ordering are copied; the other arguments are
 * borrowed. Returns NULL with *err on failure. */
struct pvn_rdma_adapter *
pvn_rdma_adapter_new(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                     struct pvn_hca_table *table, int hca, const struct pvn_rdma_gpu_cfg *gpu,
                     const struct pvn_rdma_ordering_cfg *ordering, struct pvn_err *err);
/* The adapter must have no lane left; the table must still be open. NULL is allowed. */
void pvn_rdma_adapter_free(struct pvn_rdma_adapter *a);

/* Takes a hold for a lane on the port with this index in the table. may_block: the call may open the adapter again,
 * which takes as long as the device takes. spare: a port that is down is refused at once, not after a grace time.
 * Returns 0 and *out, which release ends, or a negative errno with *err. */
int pvn_rdma_adapter_hold(struct pvn_rdma_adapter *a, int port, bool may_block, bool spare,
                          struct pvn_rdma_hold **out, struct pvn_err *err);
/* Ends a hold after its lane has been closed or could not be created. */
void pvn_rdma_adapter_release(struct pvn_rdma_hold *hold);
/* Reads the usable rows of the port's GID table for a new lane, and the port's LID and MTU into the hold. Returns the
 * number of rows, at most PVN_RDMA_MAX_GIDS (rdma_lane.h), or a negative errno. All are at most 100 ms old. They are
 * read again after each event that reports a change of the table, because a link that went down and up may have
 * renumbered it. */
int pvn_rdma_adapter_gids(struct pvn_rdma_hold *hold, struct pvn_gid_row *rows);
/* From now on the lane's queue pairs send from this row of the port's GID table. */
void pvn_rdma_adapter_send_from(struct pvn_rdma_hold *hold, const struct pvn_gid_row *own);
/* The health of the held context, see pvn_rdma_nic_health. Also -ENETDOWN if the lane's source GID has been missing
 * for PVN_RDMA_GRACE_NS: then no packet leaves, or none with an address that the peer accepts, and without this check
 * only the end of all retransmissions would show it (33 s with InfiniBand's usual time-outs). Only the lane itself may
 * call this. */
int pvn_rdma_adapter_health(struct pvn_rdma_hold *hold, struct pvn_err *err);

/* The results of the trials in pvn_rdma_adapter_new. */
const struct pvn_gpumem_cap *pvn_rdma_adapter_gpu_cap(const struct pvn_rdma_adapter *a);
const struct pvn_rdma_ordering *pvn_rdma_adapter_ordering(const struct pvn_rdma_adapter *a);

#endif
