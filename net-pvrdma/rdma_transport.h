/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* RDMA as a transport (connect/transport.h). Each RDMA port is a device, with the TCP lane of its interface
 * as a spare. */
#ifndef PVN_NET_PVRDMA_RDMA_TRANSPORT_H
#define PVN_NET_PVRDMA_RDMA_TRANSPORT_H

#include "connect/transport.h"

extern const struct pvn_transport_ops pvn_rdma_transport;

#endif
