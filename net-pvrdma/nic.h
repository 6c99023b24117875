/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that all lanes on one opened RDMA device share beside its context: registrations, and the
 * device's health.
 *
 * Threads: new and free are called by one thread at a time per device. All other functions may be called
 * from any thread.
 */
#ifndef PVN_NET_PVRDMA_NIC_H
#define PVN_NET_PVRDMA_NIC_H

#include <stdatomic.h>

#include "memory/memcache.h"
#include "net-pvrdma/ordering.h"
#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/verbs.h"

/* A port may be down, or a GID missing, for this long. The queue pairs' retransmission covers such a flap. */
#define PVN_RDMA_GRACE_NS (3 * PVN_NS_PER_S)

struct pvn_rdma_nic;

/* Context and domain stay the caller's. They, the verbs table, the ordering and the caller's reference to the
 * poller must outlive the result. max_mr: maximum of bytes of one region. Returns NULL with *err on failure. */
struct pvn_rdma_nic *pvn_rdma_nic_new(const struct pvn_verbs *v, struct ibv_context *ctx,
                                      struct ibv_pd *pd, const char *name, uint64_t max_mr,
                                      struct pvn_rdma_ordering *ordering, struct pvn_err *err);
/* No lane and no registration may be left. The log says how many registrations are left. */
void pvn_rdma_nic_free(struct pvn_rdma_nic *n);

/* Fills in a registrar that uses the cache. A range larger than max_mr becomes several regions, each of which
 * overlaps the next one by half, so that any part of up to half a region lies in one region. */
void pvn_rdma_nic_registrar(struct pvn_rdma_nic *n, struct pvn_rdma_registrar *out);

/*
 * The device's health according to its events: 0, or with *err -ENODEV (device lost or fatal error) or
 * -ENETDOWN (the port has been down for longer than grace_ns). Costs a few loads while there is no event.
 */
int pvn_rdma_nic_health(struct pvn_rdma_nic *n, int port, uint64_t grace_ns, struct pvn_err *err);

/* Says that a port was down when the device was opened, of which there is no event. It has no grace. Called before
 * lanes use the device. */
void pvn_rdma_nic_port_is_down(struct pvn_rdma_nic *n, int port);

/* Points to the time (pvn_now_ns) of the last change of the port's GID table, as of the events that
 * pvn_rdma_nic_health has read; 0: no change. Valid as long as n. */
const _Atomic uint64_t *pvn_rdma_nic_gids_changed(const struct pvn_rdma_nic *n, int port);

#endif
