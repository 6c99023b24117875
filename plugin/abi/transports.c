/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The plugin's transports, the preferred one first. */
#include "config.h"
#include "connect/transport.h"
#include "net-pvrdma/rdma_transport.h"
#include "net-tcp/tcp_transport.h"

const struct pvn_transport_ops *const pvn_transports[] = {&pvn_rdma_transport, &pvn_tcp_transport,
                                                          NULL};
