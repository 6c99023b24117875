/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Interfaces, addresses and routes by netlink. */
#include "config.h"
#include "net-tcp/iface.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <netinet/in.h>
#include <netlink/errno.h>
#include <stdio.h>
#include <string.h>

#include "base/addr.h"
#include "net-tcp/iface_priv.h"
#include "net-tcp/nl.h"

static const struct pvn_nl *nl;

/* libnl has error numbers of its own. */
static int errno_of(int nl_error)
{
    switch (nl_error < 0 ? -nl_error : nl_error) {
    case NLE_NOMEM:
        return -ENOMEM;
    case NLE_PERM:
    case NLE_NOACCESS:
        return -EPERM;
    case NLE_OBJ_NOTFOUND:
        return -ENETUNREACH;
    case NLE_AF_NOSUPPORT:
        return -EAFNOSUPPORT;
    default:
        return -EIO;
    }
}

static int open_socket(struct nl_sock **out, struct pvn_err *err)
{
    struct nl_sock *sock = nl->nl_socket_alloc();
    int rc;

    if (!sock)
        return pvn_err_set(err, -ENOMEM, "a netlink socket");
    rc = nl->nl_connect(sock, NETLINK_ROUTE);
    if (rc) {
        nl->nl_socket_free(sock);
        return pvn_err_set(err, errno_of(rc), "connecting to netlink: %s", nl->nl_geterror(rc));
    }
    *out = sock;
    return 0;
}

static void close_socket(struct nl_sock *sock)
{
    nl->nl_close(sock);
    nl->nl_socket_free(sock);
}

/* False if the address is neither IPv4 nor IPv6. */
static bool to_sockaddr(const struct nl_addr *addr, struct sockaddr_storage *out)
{
    struct sockaddr_in *a4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)(void *)out;
    const void *bytes;

    memset(out, 0, sizeof(*out));
    if (!addr)
        return false;
    bytes = nl->nl_addr_get_binary_addr(addr);
    if (nl->nl_addr_get_family(addr) == AF_INET && nl->nl_addr_get_len(addr) == 4) {
        a4->sin_family = AF_INET;
        memcpy(&a4->sin_addr, bytes, 4);
        return true;
    }
    if (nl->nl_addr_get_family(addr) == AF_INET6 && nl->nl_addr_get_len(addr) == 16) {
        a6->sin6_family = AF_INET6;
        memcpy(&a6->sin6_addr, bytes, 16);
        return true;
    }
    return false;
}

static void nl_find_kind(struct pvn_iface *iface, const char *word, unsigned arp_type)
{
    iface->kind = PVN_IFACE_PHYSICAL;
    if (arp_type == ARPHRD_LOOPBACK) {
        iface->kind = PVN_IFACE_LOOPBACK;
    } else if (word) {
        /* A driver with a kind that is not in the list is something virtual. */
        if (!pvn_iface_kind_from_name(word, &iface->kind))
            iface->kind = PVN_IFACE_OTHER;
        snprintf(iface->kind_name, sizeof(iface->kind_name), "%.23s", word);
    }
}

static int nl_add_link(struct pvn_iface_table *table, struct rtnl_link *link)
{
    const char *name = nl->rtnl_link_get_name(link);
    struct pvn_iface *iface;
    struct nl_addr *hw;
    unsigned flags;

    if (!name)
        return 0;
    iface = pvn_iface_append(table);
    if (!iface)
        return -ENOMEM;
    snprintf(iface->name, sizeof(iface->name), "%s", name);
    iface->ifindex = (unsigned)nl->rtnl_link_get_ifindex(link);
    iface->master = (unsigned)nl->rtnl_link_get_master(link);
    flags = nl->rtnl_link_get_flags(link);
    iface->up = (flags & IFF_UP) != 0;
    iface->running = (flags & IFF_RUNNING) != 0;
    nl_find_kind(iface, nl->rtnl_link_get_type(link), nl->rtnl_link_get_arptype(link));
    hw = nl->rtnl_link_get_addr(link);
    if (hw && nl->nl_addr_get_len(hw) <= sizeof(iface->hwaddr)) {
        iface->hwaddr_len = (uint8_t)nl->nl_addr_get_len(hw);
        memcpy(iface->hwaddr, nl->nl_addr_get_binary_addr(hw), iface->hwaddr_len);
    }
    return 0;
}

static int load_links(struct nl_sock *sock, struct pvn_iface_table *table, struct pvn_err *err)
{
    struct nl_cache *cache;
    struct nl_object *o;
    int rc = nl->rtnl_link_alloc_cache(sock, AF_UNSPEC, &cache);

    if (rc)
        return pvn_err_set(err, errno_of(rc), "listing interfaces: %s", nl->nl_geterror(rc));
    for (o = nl->nl_cache_get_first(cache); o && rc == 0; o = nl->nl_cache_get_next(o))
        rc = nl_add_link(table, (struct rtnl_link *)o);
    nl->nl_cache_free(cache);
    return rc ? pvn_err_set(err, rc, "listing interfaces") : 0;
}

static void nl_add_addr(struct pvn_iface_table *table, struct rtnl_addr *addr)
{
    unsigned ifindex = (unsigned)nl->rtnl_addr_get_ifindex(addr);
    unsigned flags = nl->rtnl_addr_get_flags(addr);
    const char *label = nl->rtnl_addr_get_label(addr);
    struct pvn_iface_addr *a;
    struct sockaddr_storage ss;
    size_t i;

    if (!to_sockaddr(nl->rtnl_addr_get_local(addr), &ss))
        return;
    for (i = 0; i < table->n && table->v[i].ifindex != ifindex; i++)
        ;
    if (i == table->n)
        return;
    /* For IPv4 the bit of IFA_F_TEMPORARY means "secondary", which is no defect. */
    a = pvn_iface_add_addr(
        &table->v[i], (struct sockaddr *)&ss, (unsigned)nl->rtnl_addr_get_prefixlen(addr),
        (flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) && !(flags & IFA_F_OPTIMISTIC),
        (flags & IFA_F_DEPRECATED) || (ss.ss_family == AF_INET6 && (flags & IFA_F_TEMPORARY)));
    if (a && label)
        snprintf(a->label, sizeof(a->label), "%s", label);
}

static int load_addrs(struct nl_sock *sock, struct pvn_iface_table *table, struct pvn_err *err)
{
    struct nl_cache *cache;
    struct nl_object *o;
    int rc = nl->rtnl_addr_alloc_cache(sock, &cache);

    if (rc)
        return pvn_err_set(err, errno_of(rc), "listing addresses: %s", nl->nl_geterror(rc));
    for (o = nl->nl_cache_get_first(cache); o; o = nl->nl_cache_get_next(o))
        nl_add_addr(table, (struct rtnl_addr *)o);
    nl->nl_cache_free(cache);
    return 0;
}

static int netlink_load(void *ctx, struct pvn_iface_table *table, struct pvn_err *err)
{
    struct nl_sock *sock;
    int rc = open_socket(&sock, err);

    if (rc)
        return rc;
    rc = load_links(sock, table, err);
    if (rc == 0)
        rc = load_addrs(sock, table, err);
    close_socket(sock);
    if (rc == 0)
        pvn_iface_add_details(table);
    return rc;
}

static bool can_look_up(void)
{
    return nl->rtnl_route_lookup && nl->rtnl_route_put && nl->rtnl_route_get_pref_src &&
           nl->rtnl_route_nexthop_n && nl->rtnl_route_nh_get_ifindex &&
           nl->rtnl_route_nh_get_gateway;
}

static int look_up(struct nl_sock *sock, const struct sockaddr *dst, struct pvn_iface_route *out)
{
    const void *bytes =
        dst->sa_family == AF_INET
            ? (const void *)&((const struct sockaddr_in *)(const void *)dst)->sin_addr
            : &((const struct sockaddr_in6 *)(const void *)dst)->sin6_addr;
    struct nl_addr *addr =
        nl->nl_addr_build(dst->sa_family, bytes, dst->sa_family == AF_INET ? 4 : 16);
    struct rtnl_route *route = NULL;
    struct rtnl_nexthop *hop;
    int rc;

    if (!addr)
        return -ENOMEM;
    rc = nl->rtnl_route_lookup(sock, addr, &route);
    nl->nl_addr_put(addr);
    if (rc)
        return errno_of(rc);
    hop = nl->rtnl_route_nexthop_n(route, 0);
    if (hop) {
        out->ifindex = (unsigned)nl->rtnl_route_nh_get_ifindex(hop);
        to_sockaddr(nl->rtnl_route_nh_get_gateway(hop), &out->gateway);
    }
    to_sockaddr(nl->rtnl_route_get_pref_src(route), &out->src);
    nl->rtnl_route_put(route);
    return 0;
}

/* The plain source finds out, as connect() would, whether the kernel would send and from which
 * address, so the result always agrees with connect(). Netlink adds the interface and the
 * gateway. */
static int netlink_route(void *ctx, const struct sockaddr *dst, struct pvn_iface_route *out,
                         struct pvn_err *err)
{
    struct pvn_iface_route seen;
    struct nl_sock *sock;
    int rc = pvn_iface_source_plain.route(NULL, dst, out, err);

    /* The scope of a link-local destination names the interface already. */
    if (rc || pvn_addr_is_link_local(dst) || !can_look_up())
        return rc;
    memset(&seen, 0, sizeof(seen));
    if (open_socket(&sock, NULL))
        return 0;
    if (look_up(sock, dst, &seen) == 0) {
        if (seen.ifindex)
            out->ifindex = seen.ifindex;
        out->gateway = seen.gateway;
    }
    close_socket(sock);
    return 0;
}

static const struct pvn_iface_source source = {netlink_load, netlink_route, NULL};

const struct pvn_iface_source *pvn_iface_source_netlink(const char *nl_lib, char *why, size_t size)
{
    const struct pvn_nl *table = pvn_nl_load(nl_lib, why, size);

    if (!table)
        return NULL;
    __atomic_store_n(&nl, table, __ATOMIC_RELEASE);
    return &source;
}

void pvn_iface_after_fork(void)
{
    pvn_nl_after_fork();
}
