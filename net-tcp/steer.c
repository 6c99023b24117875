/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-tcp/steer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/addr.h"
#include "base/dev_list.h"
#include "base/log.h"
#include "base/param.h"
#include "base/read_line.h"
#include "connect/route.h"
#include "net-tcp/sockopt.h"

static int arp_ignore(const char *ifname)
{
    char path[96], text[32];

    snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/arp_ignore", ifname);
    return pvn_read_line(path, text, sizeof(text)) ? (int)strtol(text, NULL, 10) : 0;
}

/* The kernel uses the larger of the values for "all" and for the interface (ip-sysctl.rst,
 * arp_ignore). */
static bool answers_come_back(const struct pvn_tcp_own *own)
{
    return own->addr.ss_family == AF_INET6 || arp_ignore("all") > 0 || arp_ignore(own->ifname) > 0;
}

bool pvn_tcp_steer(int fd, const struct pvn_iface_source *source, const struct pvn_tcp_own *own,
                   const struct sockaddr *peer)
{
    const struct sockaddr *addr = (const struct sockaddr *)&own->addr;
    char text[PVN_ADDR_TEXT_LEN], by[IF_NAMESIZE];
    struct pvn_iface_route route;
    const char *remedy;
    bool neighbour;

    /* The usual case is cheap: one query to the kernel, which honours policy rules for the source
     * address. The next query, pvn_iface_for_peer, reads all interfaces. */
    if (pvn_addr_is_link_local(peer))
        return false;
    if (pvn_addr_same_host(addr, peer) || pvn_route_leaves_by(addr, peer) == own->ifindex)
        return true;
    if (pvn_iface_for_peer(source, peer, &route, NULL) != 0 || route.ifindex == 0 ||
        route.ifindex == own->ifindex || !if_indextoname(route.ifindex, by))
        return false;
    /* The peer is on this machine. */
    if (pvn_addr_same_host((const struct sockaddr *)&route.src, peer))
        return false;
    neighbour = own->shares_net && pvn_addr_same_net(addr, peer, own->prefixlen);
    if (neighbour && answers_come_back(own) && pvn_tcp_sockopt_bind_device(fd, own->ifname) == 0)
        return true;
    pvn_addr_format_host(peer, text, sizeof(text));
    remedy =
        neighbour && !answers_come_back(own)
            ? "; to use both interfaces of this network, set net.ipv4.conf.all.arp_ignore=1 and "
              "net.ipv4.conf.all.arp_announce=2 on all nodes"
            : "";
    if (own->named && neighbour && !pvn_dev_list_matches(pvn_params_get()->socket_ifname, by, 0))
        pvn_warn(
            "%s, which NCCL_SOCKET_IFNAME names, does not carry the data: packets to %s leave by %s, "
            "for so says the routing table%s",
            own->ifname, text, by,
            *remedy ? remedy
                    : "; the kernel does not let a socket of this user be bound to an interface "
                      "(Linux before 5.7): give it a network of its own");
    else
        pvn_info(PVN_NET, "%s: packets to %s leave by %s, for so says the routing table%s",
                 own->ifname, text, by, remedy);
    return false;
}
