/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-tcp/steer.h"

#include <netinet/in.h>
#include <stdio.h>

#include "base/addr.h"
#include "base/log.h"
#include "net-tcp/sockopt.h"

static int arp_ignore(const char *ifname)
{
    char path[96];
    int value = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/arp_ignore", ifname);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%d", &value) != 1)
        value = 0;
    fclose(f);
    return value;
}

/* The kernel takes the larger of the two (ip-sysctl.rst, arp_ignore). */
static bool answers_come_back(const struct pvn_tcp_own *own)
{
    return own->addr.ss_family == AF_INET6 || arp_ignore("all") > 0 || arp_ignore(own->ifname) > 0;
}

void pvn_tcp_steer(int fd, const struct pvn_iface_source *source, const struct pvn_tcp_own *own,
                   const struct sockaddr *peer)
{
    const struct sockaddr *addr = (const struct sockaddr *)&own->addr;
    char text[PVN_ADDR_TEXT_LEN], by[IF_NAMESIZE];
    struct pvn_iface_route route;
    bool neighbour;

    if (pvn_addr_is_link_local(peer) || pvn_iface_for_peer(source, peer, &route, NULL) != 0 ||
        route.ifindex == 0 || route.ifindex == own->ifindex || !if_indextoname(route.ifindex, by))
        return;
    /* The peer is on this machine. */
    if (pvn_addr_same_host((const struct sockaddr *)&route.src, peer))
        return;
    neighbour = own->shares_net && pvn_addr_same_net(addr, peer, own->prefixlen);
    if (neighbour && answers_come_back(own) && pvn_tcp_sockopt_bind_device(fd, own->ifname) == 0)
        return;
    pvn_info(
        PVN_NET, "%s: packets to %s leave by %s, for so says the routing table%s", own->ifname,
        pvn_addr_format_host(peer, text, sizeof(text)), by,
        neighbour && !answers_come_back(own)
            ? "; to use both interfaces of this network, set net.ipv4.conf.all.arp_ignore=1 and "
              "net.ipv4.conf.all.arp_announce=2 on all nodes"
            : "");
}
