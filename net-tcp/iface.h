/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces: those that this machine (or container) has, those that may carry NCCL's
 * traffic, and the one that reaches a given peer.
 *
 * The table comes from a source: the kernel's netlink through libnl if that library can be loaded,
 * else getifaddrs and ioctls (which know less of links and nothing of gateways), or a made-up
 * source in tests. The choice is a pure function of the table. */
#ifndef PVN_NET_TCP_IFACE_H
#define PVN_NET_TCP_IFACE_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

/* Kinds of links; the order is that of preference in the automatic choice. */
enum pvn_iface_kind {
    PVN_IFACE_PHYSICAL = 0, /* has a driver of its own: PCI, virtio, vmbus, SR-IOV, USB, IPoIB */
    PVN_IFACE_BOND,         /* bonding, team */
    PVN_IFACE_VLAN,         /* 802.1Q/ad on another one */
    PVN_IFACE_MACVLAN,      /* macvlan, ipvlan: connects a container to a physical one */
    PVN_IFACE_BRIDGE,
    PVN_IFACE_VETH,   /* veth, netkit: the usual interface of a container */
    PVN_IFACE_TUNNEL, /* vxlan, gre, wireguard, tun ... */
    PVN_IFACE_OTHER,  /* dummy, ifb and others that reach no other host */
    PVN_IFACE_LOOPBACK,
    PVN_IFACE_KINDS
};

#define PVN_IFACE_MAX_ADDRS    16    /* kept per interface */
#define PVN_IFACE_MORE_ADDRS   2     /* of a pick, in addition to its first */
#define PVN_IFACE_DEFAULT_MBPS 10000 /* assumed if the speed is unknown; NCCL assumes the same */

struct pvn_iface_addr {
    struct sockaddr_storage ss; /* port 0; the scope is set for link-local IPv6 */
    char label[IF_NAMESIZE];    /* "eth0:1"; "" or the interface's name: the address has no label */
    uint8_t prefixlen;
    bool tentative;  /* not usable: duplicate detection runs or has failed */
    bool deprecated; /* or temporary (IPv6 privacy): usable, but not for long */
};

struct pvn_iface {
    char name[IF_NAMESIZE];
    unsigned ifindex;
    unsigned master; /* ifindex of its bond, bridge or VRF; 0: none */
    enum pvn_iface_kind kind;
    char kind_name[24]; /* the kernel's word, "veth", "802.1q"; "" for a physical one */
    bool up;            /* IFF_UP: administratively up */
    bool running;       /* IFF_RUNNING: the link has a carrier */
    bool has_uplink;    /* a bridge with a physical member */
    bool default_route; /* the default route, of IPv4 or IPv6, leaves by it */
    int speed_mbps;     /* Mbit/s where speed_known, else PVN_IFACE_DEFAULT_MBPS */
    bool speed_known;
    char driver[32];    /* as ethtool reports it; may be empty */
    char pci_path[256]; /* real path of the PCI function below /sys; "": none or not visible */
    uint8_t hwaddr[20]; /* Ethernet has 6 bytes, IPoIB 20 */
    uint8_t hwaddr_len;
    int naddrs;
    struct pvn_iface_addr addrs[PVN_IFACE_MAX_ADDRS]; /* in the kernel's order */
};

struct pvn_iface_table {
    struct pvn_iface *v; /* n entries by ascending ifindex, owned by the table */
    size_t n;
};

/* The path to a destination. */
struct pvn_iface_route {
    unsigned ifindex; /* of the outgoing interface; 0: unknown to the source */
    /* The source address that the kernel would choose; port 0 */
    struct sockaddr_storage src;
    struct sockaddr_storage
        gateway; /* next hop; family AF_UNSPEC: the destination is on link, or unknown */
};

/* A source of tables and routes; ctx is the first argument of both functions. Both return 0 or a negative errno with
 * *err. load fills an empty table; route gives -ENETUNREACH or -EHOSTUNREACH if there is no route. */
struct pvn_iface_source {
    int (*load)(void *ctx, struct pvn_iface_table *table, struct pvn_err *err);
    int (*route)(void *ctx, const struct sockaddr *dst, struct pvn_iface_route *out,
                 struct pvn_err *err);
    void *ctx;
};

/* The netlink source if the library `nl_lib` (NCCL_PVRDMA_NL_LIB) can be loaded, else pvn_iface_source_plain. Logs at
 * INFO which one it is and why netlink is not used. Any thread. */
const struct pvn_iface_source *pvn_iface_source_default(const char *nl_lib);

/* getifaddrs, ioctls and /sys; a route is found by connecting a datagram socket and reading its local address. */
extern const struct pvn_iface_source pvn_iface_source_plain;

/* Fills the table, which pvn_iface_free empties. 0, or a negative errno with *err and an empty table. */
int pvn_iface_load(const struct pvn_iface_source *source, struct pvn_iface_table *table,
                   struct pvn_err *err);
void pvn_iface_free(struct pvn_iface_table *table);

/* An entry of the table, or NULL if there is none. */
const struct pvn_iface *pvn_iface_by_index(const struct pvn_iface_table *table, unsigned ifindex);
const struct pvn_iface *pvn_iface_by_name(const struct pvn_iface_table *table, const char *name);

const char *pvn_iface_kind_name(enum pvn_iface_kind kind);

/* One interface of the choice. */
struct pvn_iface_pick {
    const struct pvn_iface *iface; /* in the table */
    struct sockaddr_storage addr;  /* the address to bind and to announce; port 0 */
    unsigned prefixlen;            /* of addr */
    /* Further addresses of the interface that may be used: one in each other network of addr's family. */
    const struct pvn_iface_addr *more[PVN_IFACE_MORE_ADDRS];
    int nmore;
    bool shares_net; /* another interface that is up has an address in that network */
    char why[160];   /* the reason of the choice, for the log */
};

/* The interfaces to use, best kind first, each with one address.
 *   ifname  NCCL_SOCKET_IFNAME: "" for the automatic choice. Otherwise exactly as NCCL (2.30.7,
 *           src/os/linux.cc and src/misc/utils.cc) reads it: an optional '^' (all but these), then
 *           an optional '=' (whole names instead of prefixes), then names separated by commas. A name
 *           with a ':' is the label of an address, and stands for the addresses that have it; NCCL ignores
 *           what follows the ':'.
 *   family  AF_UNSPEC, AF_INET or AF_INET6 (NCCL_SOCKET_FAMILY).
 * The automatic choice takes the usable interfaces of the best class that has any: physical ones,
 * bonds, VLANs, macvlans and bridges with an uplink or the default route; then veths; then tunnels;
 * then other bridges; loopback only if nothing else has an address. It leaves out members of bonds
 * and bridges, links that are down, tentative addresses, and interfaces with only a link-local
 * address if others have a better one. If the list excludes names, this choice applies to the
 * remaining interfaces; NCCL would take all of them, docker0 and loopback included. If the list has
 * names to use, all of these are used, whatever their kind.
 *
 * Returns how many picks were stored (at most max), or -ENODEV with *err: no interface has these
 * names (with a list of those that exist), or none is usable (with the reason for each).
 * `left_out`, which may be NULL, gets "docker0 (bridge without uplink), eth1 (down)". */
int pvn_iface_choose(const struct pvn_iface_table *table, const char *ifname, int family,
                     struct pvn_iface_pick *picks, size_t max, char *left_out, size_t left_out_size,
                     struct pvn_err *err);

/* Finds the interface and the source address by which the kernel sends to `peer`. 0, or negative
 * with *err, which names the peer and what to try. Every call queries the kernel again. */
int pvn_iface_for_peer(const struct pvn_iface_source *source, const struct sockaddr *peer,
                       struct pvn_iface_route *out, struct pvn_err *err);

/* Called in a forked child, because another thread of the parent may have been loading libnl. */
void pvn_iface_after_fork(void);

#endif
