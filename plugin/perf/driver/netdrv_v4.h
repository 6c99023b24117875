/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * connect and accept of version 4 of NCCL's net plugin interface may block until the peer calls its
 * counterpart. These functions run such a call in a thread and return as later versions do:
 * ncclSuccess with a NULL comm until the call has returned.
 */
#ifndef PVN_PERF_NETDRV_V4_H
#define PVN_PERF_NETDRV_V4_H

#include "nccl/net_v4.h"

struct pvn_netdrv_v4;

/* NULL if memory is short. free waits for the calls in progress; NULL is allowed. */
struct pvn_netdrv_v4 *pvn_netdrv_v4_new(const ncclNet_v4_t *net);
void pvn_netdrv_v4_free(struct pvn_netdrv_v4 *p);

/* The key of a call is the address of its handle, or its listen comm. Any thread. */
ncclResult_t pvn_netdrv_v4_connect(struct pvn_netdrv_v4 *p, int dev, void *handle,
                                   void **send_comm);
ncclResult_t pvn_netdrv_v4_accept(struct pvn_netdrv_v4 *p, void *listen_comm, void **recv_comm);

#endif
