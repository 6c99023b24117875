/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sockets on which a listener waits, and their addresses. */
#ifndef PVN_CONNECT_LISTEN_SOCKETS_H
#define PVN_CONNECT_LISTEN_SOCKETS_H

#include "connect/sock.h"
#include "connect/transport.h"
#include "connect/wire.h"

enum { PVN_LISTEN_SOCKETS = PVN_MAX_LANES + PVN_MORE_ADDRS + PVN_OTHER_ADDRS };

/* The sockets are in this order: one per port, then `nmore` on further addresses of the first port,
 * then, once others_open is set, those on other interfaces. The listener's lock protects them. */
struct pvn_listen_sockets {
    int n, nports, nmore;
    int fd[PVN_LISTEN_SOCKETS];
    const struct pvn_device *dev[PVN_LISTEN_SOCKETS];
    struct sockaddr_storage addr[PVN_LISTEN_SOCKETS];
    int nothers;
    const struct pvn_device *other[PVN_OTHER_ADDRS];
    bool others_open;
};

/* Listens on one more address, which belongs to `dev`. 0 or a negative errno with *err. */
int pvn_listen_sockets_add(struct pvn_listen_sockets *s, const struct pvn_device *dev,
                           const struct sockaddr_storage *addr, struct pvn_err *err);

/* Writes up to PVN_OTHER_ADDRS addresses of other interfaces at which the listener can be reached,
 * and returns their number. The first call opens these sockets. An interface on which that fails is
 * left out. */
int pvn_listen_sockets_others(struct pvn_listen_sockets *s, struct pvn_wire_addr *out);

void pvn_listen_sockets_close(struct pvn_listen_sockets *s);

#endif
