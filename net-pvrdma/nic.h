/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that all lanes on one opened RDMA device share beside its context: registrations, and the
 * device's health.
 *
 * Threads: new and free from one thread at a time per device; everything else from any thread.
 */
#ifndef PVN_NET_PVRDMA_NIC_H
#define PVN_NET_PVRDMA_NIC_H

#include <stdatomic.h>

#include "memory/memcache.h"
#include "net-pvrdma/ordering.h"
#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/verbs.h"

/* Longer than a flap, which is left to the queue pairs' own retransmission. */
#define PVN_RDMA_GRACE_NS (3 * PVN_NS_PER_S)

struct pvn_rdma_nic;

/* Context and domain are the caller's and outlive it, as do the verbs table, the ordering and the
 * poller's reference. max_mr: bytes of one region. NULL with *err. */
struct pvn_rdma_nic *pvn_rdma_nic_new(const struct pvn_verbs *v, struct ibv_context *ctx,
                                      struct ibv_pd *pd, const char *name, uint64_t max_mr,
                                      struct pvn_rdma_ordering *ordering, struct pvn_err *err);
/* No lane and no registration is left; a registration that is left is counted in the log. */
void pvn_rdma_nic_free(struct pvn_rdma_nic *n);

/* Registers through the cache. A range above max_mr becomes overlapping regions, each
 * reaching half a region into the next, so that every piece of up to half a region lies in one. */
void pvn_rdma_nic_registrar(struct pvn_rdma_nic *n, struct pvn_rdma_registrar *out);

/*
 * Returns the device's health as its events report it: 0, or -ENODEV (device lost or fatal error) or
 * -ENETDOWN (the port has been down for longer than grace_ns) with *err. Cheap while nothing
 * happened: a few loads.
 */
int pvn_rdma_nic_health(struct pvn_rdma_nic *n, int port, uint64_t grace_ns, struct pvn_err *err);

/* When the port's table of GIDs changed last (pvn_now_ns), as far as health has read the device's
 * events; 0: never. Lives as long as n. */
const _Atomic uint64_t *pvn_rdma_nic_gids_changed(const struct pvn_rdma_nic *n, int port);

#endif
