/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Lookups in the kernel's routes, for choosing where to dial from. */
#ifndef PVN_CONNECT_ROUTE_H
#define PVN_CONNECT_ROUTE_H

#include <stdbool.h>
#include <sys/socket.h>

#include "connect/transport.h"

/* Returns the index of the interface by which packets from `local` to `peer` would leave now,
 * policy rules for the source address included. 0: there is no route, or the kernel does not say.
 * Any thread. Sends nothing to the network. */
unsigned pvn_route_leaves_by(const struct sockaddr *local, const struct sockaddr *peer);

/*
 * Returns the index of the interface that carries an established connection. For an accepted socket
 * it is the interface by which the peer's first packet came. For a dialled socket it is the
 * interface that the socket is bound to, or else the one by which packets from its local address
 * leave. 0: not known, as with link-local addresses. Slow path; any thread that owns the socket.
 */
unsigned pvn_route_of_socket(int fd, bool accepted);

/*
 * Chooses the address of the device from which to connect to `peer`: the one whose network contains
 * the peer; else the further address that the kernel would take; else the first address, if packets
 * leave by its interface or the peer is on this machine.
 *
 * NULL if the route leads over another interface. The kernel has to choose the address then,
 * because a strict reverse-path filter (rp_filter=1) or a cloud's check of addresses drops packets
 * whose source address does not belong to the interface that they leave by. The lengths are all
 * dev->addr_len.
 */
const struct sockaddr_storage *pvn_route_source(const struct pvn_device *dev,
                                                const struct sockaddr *peer);

/* True if one of the device's networks contains the peer. */
bool pvn_route_is_near(const struct pvn_device *dev, const struct sockaddr *peer);
/* True if `addr` is one of the device's addresses. */
bool pvn_route_is_own(const struct pvn_device *dev, const struct sockaddr *addr);

#endif
