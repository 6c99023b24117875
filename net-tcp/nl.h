/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* libnl-3 and libnl-route-3, loaded at run time: the functions that the plugin uses, in one
 * table. */
#ifndef PVN_NET_TCP_NL_H
#define PVN_NET_TCP_NL_H

#include <netlink/addr.h>
#include <netlink/cache.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/nexthop.h>
#include <netlink/route/route.h>
#include <netlink/socket.h>

/* Name and type of each come from libnl's own headers, so that a changed prototype does not
 * compile. */
#define PVN_NL_FUNCTIONS(F)                                                                        \
    F(nl_socket_alloc)                                                                             \
    F(nl_socket_free)                                                                              \
    F(nl_connect)                                                                                  \
    F(nl_close)                                                                                    \
    F(nl_geterror)                                                                                 \
    F(nl_cache_free)                                                                               \
    F(nl_cache_get_first)                                                                          \
    F(nl_cache_get_next)                                                                           \
    F(nl_addr_build)                                                                               \
    F(nl_addr_put)                                                                                 \
    F(nl_addr_get_family)                                                                          \
    F(nl_addr_get_len)                                                                             \
    F(nl_addr_get_binary_addr)                                                                     \
    F(rtnl_link_alloc_cache)                                                                       \
    F(rtnl_link_get_name)                                                                          \
    F(rtnl_link_get_ifindex)                                                                       \
    F(rtnl_link_get_flags)                                                                         \
    F(rtnl_link_get_arptype)                                                                       \
    F(rtnl_link_get_master)                                                                        \
    F(rtnl_link_get_type)                                                                          \
    F(rtnl_link_get_addr)                                                                          \
    F(rtnl_addr_alloc_cache)                                                                       \
    F(rtnl_addr_get_label)                                                                         \
    F(rtnl_addr_get_ifindex)                                                                       \
    F(rtnl_addr_get_local)                                                                         \
    F(rtnl_addr_get_prefixlen)                                                                     \
    F(rtnl_addr_get_flags)

/* Functions since libnl 3.5. If they are absent, the pointers are NULL and the plain source answers
 * instead. */
#define PVN_NL_NEWER_FUNCTIONS(F)                                                                  \
    F(rtnl_route_lookup)                                                                           \
    F(rtnl_route_put)                                                                              \
    F(rtnl_route_get_pref_src)                                                                     \
    F(rtnl_route_nexthop_n)                                                                        \
    F(rtnl_route_nh_get_ifindex)                                                                   \
    F(rtnl_route_nh_get_gateway)

/* Headers of libnl before 3.5 declare the others of these, and lack this one. */
int rtnl_route_lookup(struct nl_sock *sk, struct nl_addr *dst, struct rtnl_route **result);

struct pvn_nl {
#define PVN_NL_MEMBER(name) __typeof__(&name) name;
    PVN_NL_FUNCTIONS(PVN_NL_MEMBER)
    PVN_NL_NEWER_FUNCTIONS(PVN_NL_MEMBER)
#undef PVN_NL_MEMBER
};

/* Loads `library` (libnl-route, which brings libnl with it) once per process. Never unloads it,
 * because libnl-route registers itself with libnl. NULL with the loader's reason in `why`. Any
 * thread. */
const struct pvn_nl *pvn_nl_load(const char *library, char *why, size_t size);

/* Called in a forked child, because another thread of the parent may have been loading the
 * library. */
void pvn_nl_after_fork(void);

#endif
