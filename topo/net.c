/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces, from /sys/class/net. */
#include "topo/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char class_dir[] = "/sys/class/net";

/* linux/if_arp.h */
enum {
    ARP_ETHER = 1,
    ARP_INFINIBAND = 32,
    ARP_TUNNEL = 768,
    ARP_TUNNEL6 = 769,
    ARP_LOOPBACK = 772,
    ARP_SIT = 776,
    ARP_IPGRE = 778,
    ARP_IP6GRE = 823,
    ARP_NONE = 0xfffe,
};

/* linux/if.h: the flags of a VRF, which has no other mark */
enum { VRF_FLAGS = 0x80 | 0x400 }; /* IFF_NOARP, IFF_MASTER */

/* DEVTYPE= of the uevent file, "" if there is none. */
static void read_devtype(struct pvn_topo_reader *r, const char *dir, char *out, size_t cap)
{
    char text[1024];
    ssize_t got = pvn_topo_fs_read_at(r->fs, dir, "uevent", text, sizeof(text) - 1);
    const char *at;

    out[0] = '\0';
    text[got > 0 ? got : 0] = '\0';
    at = strstr(text, "DEVTYPE=");
    if (at && (at == text || at[-1] == '\n')) {
        at += strlen("DEVTYPE=");
        snprintf(out, cap, "%.*s", (int)strcspn(at, "\n"), at);
        pvn_topo_clean_text(out);
    }
}

static bool has_dir(struct pvn_topo_reader *r, const char *dir, const char *name)
{
    char real[PVN_TOPO_FS_PATH_MAX];

    return pvn_topo_real_below(r, dir, name, real);
}

/* Kind of an interface without a device, file or type of its own. A team is one of these, too: see
 * mark_teams. */
static enum pvn_topo_net_kind kind_of_plain(struct pvn_topo_reader *r, const char *dir,
                                            const struct pvn_topo_net *net)
{
    int flags = pvn_topo_read_int(r, dir, "flags", 16, 0, INT_MAX);

    if (net->arphrd != ARP_ETHER || (flags != PVN_TOPO_UNKNOWN && (flags & VRF_FLAGS) == VRF_FLAGS))
        return PVN_TOPO_NET_OTHER;
    /* Open vSwitch gives this name to the interface that is the master of its ports. */
    return strcmp(net->name, "ovs-system") == 0 ? PVN_TOPO_NET_BRIDGE : PVN_TOPO_NET_VIRTUAL;
}

static enum pvn_topo_net_kind kind_of(struct pvn_topo_reader *r, const char *dir,
                                      const struct pvn_topo_net *net, bool has_device)
{
    static const struct {
        const char *devtype;
        enum pvn_topo_net_kind kind;
    } types[] = {
        {"bond", PVN_TOPO_NET_BOND},        {"bridge", PVN_TOPO_NET_BRIDGE},
        {"vlan", PVN_TOPO_NET_VLAN},        {"wlan", PVN_TOPO_NET_WIRELESS},
        {"vxlan", PVN_TOPO_NET_TUNNEL},     {"geneve", PVN_TOPO_NET_TUNNEL},
        {"gre", PVN_TOPO_NET_TUNNEL},       {"vrf", PVN_TOPO_NET_OTHER},
        {"wireguard", PVN_TOPO_NET_TUNNEL},
    };
    char devtype[PVN_TOPO_NAME_MAX];

    switch (net->arphrd) {
    case ARP_LOOPBACK:
        return PVN_TOPO_NET_LOOPBACK;
    case ARP_INFINIBAND:
        return PVN_TOPO_NET_IPOIB;
    case ARP_TUNNEL:
    case ARP_TUNNEL6:
    case ARP_SIT:
    case ARP_IPGRE:
    case ARP_IP6GRE:
    case ARP_NONE:
        return PVN_TOPO_NET_TUNNEL;
    default:
        break;
    }
    read_devtype(r, dir, devtype, sizeof(devtype));
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(devtype, types[i].devtype) == 0)
            return types[i].kind;
    if (has_device)
        return PVN_TOPO_NET_ETHERNET;
    if (has_dir(r, dir, "bonding"))
        return PVN_TOPO_NET_BOND;
    if (has_dir(r, dir, "bridge"))
        return PVN_TOPO_NET_BRIDGE;
    if (pvn_topo_read_text(r, dir, "tun_flags", devtype, sizeof(devtype)))
        return PVN_TOPO_NET_TUNNEL; /* a tap looks like Ethernet otherwise */
    return kind_of_plain(r, dir, net);
}

static void read_net(struct pvn_topo_reader *r, const char *dir, struct pvn_topo_net *net)
{
    char dev[PVN_TOPO_FS_PATH_MAX];
    bool has_device = pvn_topo_real_below(r, dir, "device", dev);

    net->pci = pvn_topo_pci_of_path(r->topo, has_device ? dev : dir);
    if (has_device)
        pvn_topo_read_link_name(r, dev, "driver", net->driver, sizeof(net->driver));
    pvn_topo_fs_enter(r->fs, dir);
    net->arphrd = pvn_topo_read_int(r, dir, "type", 10, 0, 65535);
    net->ifindex = pvn_topo_read_int(r, dir, "ifindex", 10, 0, INT_MAX);
    net->mtu = pvn_topo_read_int(r, dir, "mtu", 10, 0, INT_MAX);
    pvn_topo_read_text(r, dir, "operstate", net->operstate, sizeof(net->operstate));
    net->carrier = pvn_topo_read_int(r, dir, "carrier", 10, 0, 1);
    net->speed_mbps = pvn_topo_read_int(r, dir, "speed", 10, INT_MIN + 1, INT_MAX);
    if (net->speed_mbps <= 0)
        net->speed_mbps = PVN_TOPO_UNKNOWN; /* -1: SPEED_UNKNOWN of linux/ethtool.h */
    net->dev_port = pvn_topo_read_int(r, dir, "dev_port", 10, 0, 65535);
    pvn_topo_read_text(r, dir, "address", net->address, sizeof(net->address));
    net->kind = kind_of(r, dir, net, has_device);
    net->master = net->lower = net->active = -1;
}

/* Finds the bond above and, for a VLAN, the interface below; both are links named after interfaces.
 * A bond names the member in use in a file, which is empty if it uses all of them. */
static int link_net(struct pvn_topo_reader *r, struct pvn_topo_net *net)
{
    char dir[PVN_TOPO_FS_PATH_MAX], path[PVN_TOPO_FS_PATH_MAX], name[PVN_TOPO_NAME_MAX];
    struct pvn_topo_fs_names names;
    int rc;

    snprintf(path, sizeof(path), "%s/%s", class_dir, net->name);
    if (pvn_topo_fs_resolve(r->fs, path, dir) != 0)
        return 0;
    if (pvn_topo_read_link_name(r, dir, "master", name, sizeof(name)))
        net->master = pvn_topo_find_net(r->topo, name);
    if (net->kind == PVN_TOPO_NET_BOND &&
        pvn_topo_read_text(r, dir, "bonding/active_slave", name, sizeof(name)))
        net->active = pvn_topo_find_net(r->topo, name);
    if (net->kind != PVN_TOPO_NET_VLAN)
        return 0;
    rc = pvn_topo_fs_list(r->fs, dir, &names);
    if (rc == -ENOMEM)
        return pvn_topo_reader_nomem(r);
    for (int i = 0; i < names.n; i++)
        if (strncmp(names.name[i], "lower_", 6) == 0 &&
            pvn_topo_read_link_name(r, dir, names.name[i], name, sizeof(name)))
            net->lower = pvn_topo_find_net(r->topo, name);
    pvn_topo_fs_names_free(&names);
    return 0;
}

static int add_net(struct pvn_topo_reader *r, const char *name)
{
    char path[PVN_TOPO_FS_PATH_MAX], dir[PVN_TOPO_FS_PATH_MAX];
    struct pvn_topo_net *net;
    int rc;

    if (strlen(name) >= PVN_TOPO_NAME_MAX) {
        pvn_topo_leave_note(r, class_dir, "\"%.100s\" is too long for an interface; passed over",
                            name);
        return 0;
    }
    snprintf(path, sizeof(path), "%s/%s", class_dir, name);
    rc = pvn_topo_fs_resolve(r->fs, path, dir);
    if (rc != 0) {
        r->topo->unread |= PVN_TOPO_UNREAD_NETS;
        pvn_topo_leave_note(r, path, "link cannot be followed: %s", strerror(-rc));
        return 0;
    }
    if (pvn_topo_fs_type(r->fs, dir) != PVN_TOPO_FS_DIR)
        return 0; /* bonding_masters is a file */
    if (r->topo->nnets == PVN_TOPO_MAX_NETS)
        return pvn_topo_reader_too_many(r, "network interfaces", PVN_TOPO_MAX_NETS);
    net = pvn_topo_array_add((void **)&r->topo->nets, &r->topo->nnets, sizeof(*net));
    if (!net)
        return pvn_topo_reader_nomem(r);
    pvn_topo_copy_text(net->name, sizeof(net->name), name);
    pvn_topo_clean_text(net->name);
    read_net(r, dir, net);
    return 0;
}

/* Marks teams. A team has no file of its own; it is recognised by interfaces that name it as their
 * master. Other masters have another kind by now. */
static void mark_teams(struct pvn_topo *t)
{
    for (int i = 0; i < t->nnets; i++) {
        int master = t->nets[i].master;

        if (master >= 0 && t->nets[master].kind == PVN_TOPO_NET_VIRTUAL)
            t->nets[master].kind = PVN_TOPO_NET_TEAM;
    }
}

int pvn_topo_read_nets(struct pvn_topo_reader *r)
{
    struct pvn_topo_fs_names names;
    int rc = pvn_topo_fs_list(r->fs, class_dir, &names);

    if (rc == -ENOMEM)
        return pvn_topo_reader_nomem(r);
    if (rc == -E2BIG)
        return pvn_topo_reader_too_many(r, "network interfaces", PVN_TOPO_MAX_NETS);
    if (rc != 0) {
        pvn_topo_leave_unread(r, PVN_TOPO_UNREAD_NETS, class_dir, rc, "no interface is known");
        return 0;
    }
    for (int i = 0; rc == 0 && i < names.n; i++)
        rc = add_net(r, names.name[i]);
    pvn_topo_fs_names_free(&names);
    for (int i = 0; rc == 0 && i < r->topo->nnets; i++)
        rc = link_net(r, &r->topo->nets[i]);
    mark_teams(r->topo);
    return rc;
}
