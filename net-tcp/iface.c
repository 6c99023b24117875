/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The table of interfaces. */
#include "config.h"
#include "net-tcp/iface.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "net-tcp/iface_priv.h"

struct pvn_iface *pvn_iface_append(struct pvn_iface_table *table)
{
    struct pvn_iface *v;

    /* Room doubles whenever n reaches a power of two. */
    if ((table->n & (table->n - 1)) == 0) {
        v = realloc(table->v, (table->n ? 2 * table->n : 1) * sizeof(*v));
        if (!v)
            return NULL;
        table->v = v;
    }
    v = &table->v[table->n++];
    memset(v, 0, sizeof(*v));
    v->speed_mbps = PVN_IFACE_DEFAULT_MBPS;
    return v;
}

struct pvn_iface_addr *pvn_iface_add_addr(struct pvn_iface *iface, const struct sockaddr *sa,
                                          unsigned prefixlen, bool tentative, bool deprecated)
{
    struct pvn_iface_addr *a;
    int i;

    if (!pvn_addr_len(sa) || iface->naddrs == PVN_IFACE_MAX_ADDRS)
        return NULL;
    for (i = 0; i < iface->naddrs; i++)
        if (pvn_addr_same_host((const struct sockaddr *)&iface->addrs[i].ss, sa))
            return NULL;
    a = &iface->addrs[iface->naddrs++];
    memset(a, 0, sizeof(*a));
    memcpy(&a->ss, sa, pvn_addr_len(sa));
    pvn_addr_set_port((struct sockaddr *)&a->ss, 0);
    if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&a->ss;

        in6->sin6_flowinfo = 0;
        in6->sin6_scope_id = pvn_addr_is_link_local(sa) ? iface->ifindex : 0;
    }
    a->prefixlen = (uint8_t)prefixlen;
    a->tentative = tentative;
    a->deprecated = deprecated;
    return a;
}

/* The words are those of IFLA_INFO_KIND (drivers' rtnl_link_ops.kind) and of ETHTOOL_GDRVINFO,
 * Linux 6.18; they differ for a few. */
bool pvn_iface_kind_from_name(const char *word, enum pvn_iface_kind *kind)
{
    static const struct {
        const char *word;
        enum pvn_iface_kind kind;
    } words[] = {
        {"bond", PVN_IFACE_BOND},
        {"bonding", PVN_IFACE_BOND},
        {"team", PVN_IFACE_BOND},
        {"vlan", PVN_IFACE_VLAN},
        {"802.1Q VLAN Support", PVN_IFACE_VLAN},
        {"macvlan", PVN_IFACE_MACVLAN},
        {"macvtap", PVN_IFACE_MACVLAN},
        {"ipvlan", PVN_IFACE_MACVLAN},
        {"ipvtap", PVN_IFACE_MACVLAN},
        {"ipoib", PVN_IFACE_PHYSICAL},
        {"bridge", PVN_IFACE_BRIDGE},
        {"openvswitch", PVN_IFACE_BRIDGE},
        {"veth", PVN_IFACE_VETH},
        {"netkit", PVN_IFACE_VETH},
        {"vxlan", PVN_IFACE_TUNNEL},
        {"geneve", PVN_IFACE_TUNNEL},
        {"gre", PVN_IFACE_TUNNEL},
        {"gretap", PVN_IFACE_TUNNEL},
        {"erspan", PVN_IFACE_TUNNEL},
        {"ip6gre", PVN_IFACE_TUNNEL},
        {"ip6gretap", PVN_IFACE_TUNNEL},
        {"ip6erspan", PVN_IFACE_TUNNEL},
        {"ipip", PVN_IFACE_TUNNEL},
        {"sit", PVN_IFACE_TUNNEL},
        {"ip6tnl", PVN_IFACE_TUNNEL},
        {"vti", PVN_IFACE_TUNNEL},
        {"vti6", PVN_IFACE_TUNNEL},
        {"xfrm", PVN_IFACE_TUNNEL},
        {"wireguard", PVN_IFACE_TUNNEL},
        {"tun", PVN_IFACE_TUNNEL},
        {"ppp", PVN_IFACE_TUNNEL},
        {"bareudp", PVN_IFACE_TUNNEL},
        {"gtp", PVN_IFACE_TUNNEL},
        {"amt", PVN_IFACE_TUNNEL},
        {"dummy", PVN_IFACE_OTHER},
        {"ifb", PVN_IFACE_OTHER},
        {"nlmon", PVN_IFACE_OTHER},
        {"vrf", PVN_IFACE_OTHER},
        {"netdevsim", PVN_IFACE_OTHER},
        {"vsockmon", PVN_IFACE_OTHER},
    };
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i].word) == 0) {
            *kind = words[i].kind;
            return true;
        }
    }
    return false;
}

const char *pvn_iface_kind_name(enum pvn_iface_kind kind)
{
    static const char *const names[PVN_IFACE_KINDS] = {
        "physical", "bond", "VLAN", "macvlan", "bridge", "veth", "tunnel", "virtual", "loopback"};

    return (unsigned)kind < PVN_IFACE_KINDS ? names[kind] : "?";
}

void pvn_iface_free(struct pvn_iface_table *table)
{
    free(table->v);
    memset(table, 0, sizeof(*table));
}

const struct pvn_iface *pvn_iface_by_index(const struct pvn_iface_table *table, unsigned ifindex)
{
    size_t i;

    for (i = 0; i < table->n; i++)
        if (table->v[i].ifindex == ifindex)
            return &table->v[i];
    return NULL;
}

const struct pvn_iface *pvn_iface_by_name(const struct pvn_iface_table *table, const char *name)
{
    size_t i;

    for (i = 0; i < table->n; i++)
        if (strcmp(table->v[i].name, name) == 0)
            return &table->v[i];
    return NULL;
}
