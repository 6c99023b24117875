/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* TCP as a transport (connect/transport.h): interfaces become devices, and each lane is a set of
 * TCP streams. */
#ifndef PVN_NET_TCP_TRANSPORT_H
#define PVN_NET_TCP_TRANSPORT_H

#include "connect/transport.h"

extern const struct pvn_transport_ops pvn_tcp_transport;

#endif
