/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The kernel's routes, as far as dialling needs them. */
#ifndef PVN_CONNECT_ROUTE_H
#define PVN_CONNECT_ROUTE_H

#include <stdbool.h>
#include <sys/socket.h>

#include "connect/transport.h"

/* The interface by which packets from `local` to `peer` would leave now, policy rules for the source
 * address included. 0: there is no route, or the kernel does not say. Any thread; sends nothing. */
unsigned pvn_route_leaves_by(const struct sockaddr *local, const struct sockaddr *peer);

/*
 * The interface that carries a connection which is established: of one that was accepted, that by which the
 * peer's first packet came; else that which the socket is bound to, or by which packets from its local
 * address leave. 0: not known, as with link-local addresses. Slow path; any thread that owns the socket.
 */
unsigned pvn_route_of_socket(int fd, bool accepted);

/*
 * From which of the device's addresses a connection to `peer` is to be made: the one in whose network the
 * peer lies, or which the kernel would take, else the first if packets leave by its interface or the peer is
 * this machine. NULL where the route leads over another interface: a strict reverse-path filter (rp_filter=1)
 * or a cloud's check of addresses would drop packets that come from an address which does not belong there,
 * so the kernel chooses. The lengths are all dev->addr_len.
 */
const struct sockaddr_storage *pvn_route_source(const struct pvn_device *dev,
                                                const struct sockaddr *peer);

/* True if the peer lies in a network of the device. */
bool pvn_route_is_near(const struct pvn_device *dev, const struct sockaddr *peer);
/* True if it is one of the device's addresses. */
bool pvn_route_is_own(const struct pvn_device *dev, const struct sockaddr *addr);

#endif
