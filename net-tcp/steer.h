/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which interface a lane's packets really leave by. */
#ifndef PVN_NET_TCP_STEER_H
#define PVN_NET_TCP_STEER_H

#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "net-tcp/iface.h"

/* This end of a lane. */
struct pvn_tcp_own {
    char ifname[IF_NAMESIZE];
    unsigned ifindex;
    struct sockaddr_storage addr;
    unsigned prefixlen;
    bool shares_net; /* with another interface that is up */
    bool named;      /* by the user, who so says that it is to carry the data */
};

/* Before connect: where two interfaces are in one network, routing sends everything for it by
 * one of them, whatever the source address. A connection to a neighbour is tied to the lane's own
 * interface if answers will come back there as well: always with IPv6; with IPv4 only if the
 * interface answers ARP for no other's address (net.ipv4.conf.*.arp_ignore), for otherwise the
 * neighbour may learn the wrong one's hardware address, and what comes in there would not reach a
 * tied socket. A decision of the routing table otherwise is left as it is and said: with a warning where the
 * user has named this interface, and not the one that carries the data. True: they leave by this one. */
bool pvn_tcp_steer(int fd, const struct pvn_iface_source *source, const struct pvn_tcp_own *own,
                   const struct sockaddr *peer);

#endif
