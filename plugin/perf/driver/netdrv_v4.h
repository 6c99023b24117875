/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Version 4 of NCCL's net plugin interface has connect and accept calls that may block until the
 * peer is there. These two run such a call in a thread of its own and answer as the later versions
 * do: ncclSuccess with a NULL comm until the call has returned.
 */
#ifndef PVN_PERF_NETDRV_V4_H
#define PVN_PERF_NETDRV_V4_H

#include "nccl/net_v4.h"

struct pvn_netdrv_v4;

/* NULL when out of memory. free waits for the calls still in progress; NULL is allowed. */
struct pvn_netdrv_v4 *pvn_netdrv_v4_new(const ncclNet_v4_t *net);
void pvn_netdrv_v4_free(struct pvn_netdrv_v4 *p);

/* A call is recognised by the address of its handle, or by its listen comm. Any thread. */
ncclResult_t pvn_netdrv_v4_connect(struct pvn_netdrv_v4 *p, int dev, void *handle,
                                   void **send_comm);
ncclResult_t pvn_netdrv_v4_accept(struct pvn_netdrv_v4 *p, void *listen_comm, void **recv_comm);

#endif
