/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/route.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/addr.h"
#include "connect/sock.h"

struct request {
    struct nlmsghdr head;
    struct rtmsg route;
    char attributes[128];
};

static void put(struct request *q, unsigned short type, const void *data, unsigned short len)
{
    struct rtattr *a = (struct rtattr *)((char *)q + NLMSG_ALIGN(q->head.nlmsg_len));

    a->rta_type = type;
    a->rta_len = (unsigned short)RTA_LENGTH(len);
    memcpy(RTA_DATA(a), data, len);
    q->head.nlmsg_len = NLMSG_ALIGN(q->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static void put_address(struct request *q, unsigned short type, const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        put(q, type, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    else
        put(q, type, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
}

static unsigned interface_of(const struct nlmsghdr *head, size_t len)
{
    const struct rtmsg *route = NLMSG_DATA(head);
    unsigned ifindex = 0;
    int left;

    if (!NLMSG_OK(head, len) || head->nlmsg_type != RTM_NEWROUTE)
        return 0;
    left = (int)RTM_PAYLOAD(head);
    for (const struct rtattr *a = RTM_RTA(route); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) >= sizeof(ifindex))
            memcpy(&ifindex, RTA_DATA(a), sizeof(ifindex));
    return ifindex;
}

unsigned pvn_route_leaves_by(const struct sockaddr *local, const struct sockaddr *peer)
{
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    struct request q = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(q.route)),
                                 .nlmsg_type = RTM_GETROUTE,
                                 .nlmsg_flags = NLM_F_REQUEST}};
    int fd;
    ssize_t n = -1;

    if (local->sa_family != peer->sa_family || !pvn_addr_len(peer) || pvn_addr_is_link_local(peer))
        return 0;
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return 0;
    q.route.rtm_family = (unsigned char)peer->sa_family;
    q.route.rtm_dst_len = q.route.rtm_src_len = peer->sa_family == AF_INET ? 32 : 128;
    put_address(&q, RTA_DST, peer);
    put_address(&q, RTA_SRC, local);
    /* The kernel has queued its answer when send returns. */
    if (send(fd, &q, q.head.nlmsg_len, 0) == (ssize_t)q.head.nlmsg_len)
        n = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);
    close(fd);
    return n < 0 ? 0 : interface_of(&answer.head, (size_t)n);
}

/* Returns the interface by which an accepted connection came in; 0: not known. The kernel
 * records it for TCP as it does for datagrams, and reports it only while packet information is
 * requested. */
static unsigned came_in_by(int fd, bool v6)
{
    int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, request = v6 ? IPV6_RECVPKTINFO : IP_PKTINFO;
    union {
        struct cmsghdr head;
        char bytes[256];
    } answer;
    struct msghdr m = {.msg_control = &answer};
    socklen_t len = sizeof(answer);
    unsigned ifindex = 0;
    int on = 1, off = 0;

    if (setsockopt(fd, level, request, &on, sizeof(on)) != 0)
        return 0;
    if (getsockopt(fd, level, v6 ? IPV6_2292PKTOPTIONS : IP_PKTOPTIONS, &answer, &len) == 0)
        m.msg_controllen = len;
    setsockopt(fd, level, request, &off, sizeof(off));
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
        if (v6 && h->cmsg_type == IPV6_PKTINFO &&
            h->cmsg_len >= CMSG_LEN(sizeof(struct in6_pktinfo)))
            memcpy(&ifindex, CMSG_DATA(h) + offsetof(struct in6_pktinfo, ipi6_ifindex),
                   sizeof(ifindex));
        else if (!v6 && h->cmsg_type == IP_PKTINFO &&
                 h->cmsg_len >= CMSG_LEN(sizeof(struct in_pktinfo)))
            memcpy(&ifindex, CMSG_DATA(h) + offsetof(struct in_pktinfo, ipi_ifindex),
                   sizeof(ifindex));
    return ifindex;
}

unsigned pvn_route_of_socket(int fd, bool accepted)
{
    struct sockaddr_storage local, peer;
    socklen_t llen = sizeof(local), plen = sizeof(peer), nlen = IF_NAMESIZE;
    char bound[IF_NAMESIZE] = "";

    if (getsockname(fd, (struct sockaddr *)&local, &llen) != 0)
        return 0;
    if (accepted)
        return came_in_by(fd, local.ss_family == AF_INET6);
    if (getpeername(fd, (struct sockaddr *)&peer, &plen) != 0)
        return 0;
    if (getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, bound, &nlen) == 0 && bound[0])
        return if_nametoindex(bound);
    return pvn_route_leaves_by((struct sockaddr *)&local, (struct sockaddr *)&peer);
}

static const struct sockaddr *host(const struct sockaddr_storage *ss)
{
    return (const struct sockaddr *)ss;
}

/* The device's address in whose network the peer lies; NULL: there is none. */
static const struct sockaddr_storage *near_to(const struct pvn_device *dev,
                                              const struct sockaddr *peer)
{
    if (pvn_addr_same_net(host(&dev->addr), peer, dev->prefixlen))
        return &dev->addr;
    for (int i = 0; i < dev->nmore; i++)
        if (pvn_addr_same_net(host(&dev->more[i].addr), peer, dev->more[i].prefixlen))
            return &dev->more[i].addr;
    return NULL;
}

/* The device's further address from which the kernel would send to the peer; NULL: it would use
 * none of them. */
static const struct sockaddr_storage *preferred(const struct pvn_device *dev,
                                                const struct sockaddr *peer)
{
    struct sockaddr_storage to = {0}, from;

    if (dev->nmore == 0)
        return NULL;
    memcpy(&to, peer, pvn_addr_len(peer));
    if (pvn_sock_route(&to, pvn_addr_len(peer), &from) != 0)
        return NULL;
    for (int i = 0; i < dev->nmore; i++)
        if (pvn_addr_same_host(host(&dev->more[i].addr), host(&from)))
            return &dev->more[i].addr;
    return NULL;
}

const struct sockaddr_storage *pvn_route_source(const struct pvn_device *dev,
                                                const struct sockaddr *peer)
{
    const struct sockaddr_storage *from = near_to(dev, peer);
    unsigned by;

    if (!from)
        from = preferred(dev, peer);
    if (from)
        return from;
    by = pvn_route_leaves_by(host(&dev->addr), peer);
    return by == 0 || by == dev->ifindex || by == if_nametoindex("lo") ||
                   pvn_addr_is_loopback(host(&dev->addr))
               ? &dev->addr
               : NULL;
}

bool pvn_route_is_near(const struct pvn_device *dev, const struct sockaddr *peer)
{
    return near_to(dev, peer) != NULL;
}

bool pvn_route_is_own(const struct pvn_device *dev, const struct sockaddr *addr)
{
    bool own = pvn_addr_same_host(host(&dev->addr), addr);

    for (int i = 0; i < dev->nmore && !own; i++)
        own = pvn_addr_same_host(host(&dev->more[i].addr), addr);
    return own;
}
