/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Makes a lane's packets leave by the lane's own interface, if the network allows that. */
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
    bool shares_net; /* another interface that is up is in the same network */
    bool named;      /* the user has named it, so it should carry the data */
};

/* Called before connect. If two interfaces are in one network, routing sends all packets for that
 * network by one of them, whatever their source address. So this binds a connection to a neighbour
 * to the lane's own interface if answers will return there as well. They do with IPv6. With IPv4
 * they do only if the interface does not answer ARP for addresses of other interfaces
 * (net.ipv4.conf.*.arp_ignore). Otherwise the neighbour may learn the other interface's hardware
 * address, and a bound socket does not receive what arrives there.
 *
 * Any other decision of the routing table stands and is logged: with a warning if the user has
 * named this interface and not the one that carries the data. True if packets leave by the lane's
 * own interface, or if the peer has the same address, which the kernel reaches by loopback. */
bool pvn_tcp_steer(int fd, const struct pvn_iface_source *source, const struct pvn_tcp_own *own,
                   const struct sockaddr *peer);

#endif
