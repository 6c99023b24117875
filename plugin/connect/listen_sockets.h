/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sockets on which a listener waits, and their addresses. */
#ifndef PVN_CONNECT_LISTEN_SOCKETS_H
#define PVN_CONNECT_LISTEN_SOCKETS_H

#include "connect/sock.h"
#include "connect/transport.h"
#include "connect/wire.h"

enum { PVN_LISTEN_SOCKETS = PVN_MAX_LANES + PVN_MORE_ADDRS + PVN_OTHER_ADDRS };

/* One per port, nmore on the first one's further addresses, then those on other interfaces, once there are
 * any. The listener's lock is for this, too. */
struct pvn_listen_sockets {
    int n, nports, nmore;
    int fd[PVN_LISTEN_SOCKETS];
    const struct pvn_device *dev[PVN_LISTEN_SOCKETS];
    struct sockaddr_storage addr[PVN_LISTEN_SOCKETS];
    int nothers;
    const struct pvn_device *other[PVN_OTHER_ADDRS];
    bool others_open;
};

/* Listens on one more address, of a device. 0 or a negative errno with *err. */
int pvn_listen_sockets_add(struct pvn_listen_sockets *s, const struct pvn_device *dev,
                           const struct sockaddr_storage *addr, struct pvn_err *err);

/* Gives up to PVN_OTHER_ADDRS addresses of other interfaces where the listener can be reached, and returns
 * their number. The first call listens there: an interface that cannot be listened on is none by which the
 * comm could be reached. */
int pvn_listen_sockets_others(struct pvn_listen_sockets *s, struct pvn_wire_addr *out);

void pvn_listen_sockets_close(struct pvn_listen_sockets *s);

#endif
