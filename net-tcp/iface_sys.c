/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Interfaces without netlink: getifaddrs, ioctls and /sys. */
#include "config.h"
#include "net-tcp/iface.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/read_line.h"
#include "net-tcp/iface_priv.h"

/* One line of a file below /sys/class/net/NAME. */
static bool sys_read(const char *name, const char *file, char *buf, size_t size)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, file);
    return pvn_read_line(path, buf, size);
}

/* /sys may belong to another network namespace than this thread, and then show other interfaces of
 * the same names. Believe it only if the index and the hardware address agree. */
static bool sys_is_ours(const struct pvn_iface *iface)
{
    char text[128], hex[3 * sizeof(iface->hwaddr) + 1] = "";
    int i;

    if (!sys_read(iface->name, "ifindex", text, sizeof(text)) ||
        strtoul(text, NULL, 10) != iface->ifindex)
        return false;
    for (i = 0; i < iface->hwaddr_len; i++)
        pvn_str_append(hex, sizeof(hex), "%s%02x", i ? ":" : "", iface->hwaddr[i]);
    return iface->hwaddr_len == 0 ||
           (sys_read(iface->name, "address", text, sizeof(text)) && strcmp(text, hex) == 0);
}

/* "0000:3b:00.1" */
static bool is_pci_name(const char *s)
{
    int dots = 0, colons = 0;
    const char *p;

    for (p = s; *p; p++)
        if (*p == ':')
            colons++;
        else if (*p == '.')
            dots++;
        else if (!isxdigit((unsigned char)*p))
            return false;
    return colons == 2 && dots == 1 && p - s >= 12;
}

/* The first "lower_NAME" link of a bond, VLAN or macvlan. */
static bool first_lower(const char *name, char *lower, size_t size)
{
    char path[PATH_MAX];
    struct dirent *e;
    DIR *dir;

    snprintf(path, sizeof(path), "/sys/class/net/%s", name);
    dir = opendir(path);
    if (!dir)
        return false;
    while ((e = readdir(dir)) && strncmp(e->d_name, "lower_", 6) != 0)
        ;
    if (e)
        snprintf(lower, size, "%s", e->d_name + 6);
    closedir(dir);
    return e;
}

/* Real path of the PCI function behind an interface: its device, or a parent of it (a virtio device
 * sits below its function), or that of the interface underneath. */
static void find_pci_path(const char *name, char *out, size_t size)
{
    char current[IF_NAMESIZE], path[PATH_MAX], real[PATH_MAX], *slash;
    int depth;

    snprintf(current, sizeof(current), "%s", name);
    for (depth = 0; depth < 4; depth++) {
        snprintf(path, sizeof(path), "/sys/class/net/%s/device", current);
        if (realpath(path, real)) {
            while ((slash = strrchr(real, '/')) && slash != real && !is_pci_name(slash + 1))
                *slash = '\0';
            if (slash && slash != real && strlen(real) < size)
                snprintf(out, size, "%.*s", (int)size - 1, real);
            return;
        }
        if (!first_lower(current, current, sizeof(current)))
            return;
    }
}

static int ethtool(int fd, const char *name, void *cmd)
{
    struct ifreq ifr;

    memset(&ifr, 0, sizeof(ifr));
    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
    ifr.ifr_data = cmd;
    return ioctl(fd, SIOCETHTOOL, &ifr) ? -errno : 0;
}

static void read_driver(int fd, struct pvn_iface *iface)
{
    struct ethtool_drvinfo info;

    memset(&info, 0, sizeof(info));
    info.cmd = ETHTOOL_GDRVINFO;
    if (ethtool(fd, iface->name, &info) == 0)
        snprintf(iface->driver, sizeof(iface->driver), "%.*s", (int)sizeof(info.driver) - 1,
                 info.driver);
}

/* Mb/s as the driver reports, or 0. */
static unsigned ethtool_speed(int fd, const char *name)
{
    /* Three bit maps follow the answer. The first call returns their length. */
    union {
        struct ethtool_link_settings head;
        char room[sizeof(struct ethtool_link_settings) + 3 * 127 * sizeof(uint32_t)];
    } req;
    int words;

    memset(&req, 0, sizeof(req));
    req.head.cmd = ETHTOOL_GLINKSETTINGS;
    if (ethtool(fd, name, &req) || req.head.link_mode_masks_nwords >= 0)
        return 0;
    words = -req.head.link_mode_masks_nwords;
    memset(&req, 0, sizeof(req));
    req.head.cmd = ETHTOOL_GLINKSETTINGS;
    req.head.link_mode_masks_nwords = (int8_t)words;
    if (ethtool(fd, name, &req))
        return 0;
    return req.head.speed;
}

/* False for veth, tun and similar ones, which report a meaningless constant (10 Gb/s, 10 Mb/s). */
static bool speed_means_something(enum pvn_iface_kind kind)
{
    return kind <= PVN_IFACE_MACVLAN || kind == PVN_IFACE_BRIDGE;
}

static void read_speed(int fd, struct pvn_iface *iface, bool sys)
{
    unsigned long speed;
    char text[32];

    if (!speed_means_something(iface->kind))
        return;
    speed = fd >= 0 ? ethtool_speed(fd, iface->name) : 0;
    if ((speed == 0 || speed > INT32_MAX) && sys &&
        sys_read(iface->name, "speed", text, sizeof(text)))
        speed = strtoul(text, NULL, 10);
    if (speed == 0 || speed > 100000000) /* -1 is "unknown"; 100 Tb/s is nonsense */
        return;
    iface->speed_mbps = (int)speed;
    iface->speed_known = true;
}

/* True if the interface leads out of the machine. Without netlink, kinds and masters come from
 * drivers and /sys. */
static bool leads_out(const struct pvn_iface *iface)
{
    return iface->kind == PVN_IFACE_PHYSICAL || iface->kind == PVN_IFACE_BOND ||
           iface->kind == PVN_IFACE_VLAN;
}

void pvn_iface_add_details(struct pvn_iface_table *table)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    size_t i, k;

    if (fd < 0)
        fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (i = 0; i < table->n; i++) {
        struct pvn_iface *iface = &table->v[i];
        bool sys = sys_is_ours(iface);

        if (fd >= 0 && !iface->driver[0])
            read_driver(fd, iface);
        read_speed(fd, iface, sys);
        if (sys)
            find_pci_path(iface->name, iface->pci_path, sizeof(iface->pci_path));
        for (k = 0; k < table->n && iface->master && leads_out(iface); k++)
            if (table->v[k].ifindex == iface->master && table->v[k].kind == PVN_IFACE_BRIDGE)
                table->v[k].has_uplink = true;
    }
    if (fd >= 0)
        close(fd);
}

static unsigned prefix_length(const struct sockaddr *mask)
{
    const uint8_t *bytes;
    unsigned n = 0;
    size_t len, i;

    if (!mask)
        return 128;
    if (mask->sa_family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
        len = 4;
    } else {
        bytes = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
        len = 16;
    }
    for (i = 0; i < len; i++)
        n += (unsigned)__builtin_popcount(bytes[i]);
    return n;
}

static bool sys_has(const char *name, const char *entry)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, entry);
    return access(path, F_OK) == 0;
}

/* The kernel's word for the kind: DEVTYPE of the uevent file, or an entry that only one kind
 * has. */
static bool sys_word(const char *name, char *word, size_t size)
{
    static const char key[] = "DEVTYPE=";
    enum pvn_iface_kind kind;
    char path[PATH_MAX], line[128];
    FILE *f;

    word[0] = '\0';
    snprintf(path, sizeof(path), "/sys/class/net/%s/uevent", name);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, key, sizeof(key) - 1) == 0)
            snprintf(word, size, "%.*s", (int)strcspn(line + sizeof(key) - 1, "\n"),
                     line + sizeof(key) - 1);
    if (f)
        fclose(f);
    if (pvn_iface_kind_from_name(word, &kind))
        return true;
    snprintf(word, size, "%s",
             sys_has(name, "bridge")      ? "bridge"
             : sys_has(name, "bonding")   ? "bond"
             : sys_has(name, "tun_flags") ? "tun"
                                          : "");
    return word[0] != '\0';
}

/* Names that virtual interfaces usually have. */
static const char *word_of_name(const char *name)
{
    static const struct {
        const char *prefix, *word;
    } names[] = {
        {"docker", "bridge"}, {"br-", "bridge"},     {"br0", "bridge"}, {"virbr", "bridge"},
        {"lxcbr", "bridge"},  {"lxdbr", "bridge"},   {"cni", "bridge"}, {"podman", "bridge"},
        {"veth", "veth"},     {"cali", "veth"},      {"lxc", "veth"},   {"tun", "tun"},
        {"tap", "tun"},       {"wg", "wireguard"},   {"ppp", "ppp"},    {"flannel", "vxlan"},
        {"vxlan", "vxlan"},   {"bond", "bond"},      {"team", "team"},  {"dummy", "dummy"},
        {"ifb", "ifb"},       {"kube-ipvs", "dummy"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(name, names[i].prefix, strlen(names[i].prefix)) == 0)
            return names[i].word;
    return NULL;
}

/* Guesses the kind if no driver is named (some sandboxes refuse ethtool): from sysfs or, as a last
 * resort, from the interface's name. */
static void guess_kind(struct pvn_iface *iface)
{
    bool sys = sys_is_ours(iface);
    char word[24] = "", text[32];
    const char *of_name;

    if (sys && !sys_word(iface->name, word, sizeof(word))) {
        if (sys_has(iface->name, "device"))
            return;
        /* The iflink of a veth is its other end, that of a macvlan the interface below. */
        if (sys_read(iface->name, "iflink", text, sizeof(text)) &&
            strtoul(text, NULL, 10) != iface->ifindex)
            snprintf(word, sizeof(word), "veth");
    }
    of_name = word[0] ? NULL : word_of_name(iface->name);
    if (of_name)
        snprintf(word, sizeof(word), "%s", of_name);
    if (!pvn_iface_kind_from_name(word, &iface->kind) && sys)
        iface->kind = PVN_IFACE_OTHER;
    snprintf(iface->kind_name, sizeof(iface->kind_name), "%s", word);
}

/* The driver's name gives the kind of most virtual interfaces. An interface with a driver that is
 * not in the list is physical. */
static void sys_find_kind(int fd, struct pvn_iface *iface, int arp_type)
{
    read_driver(fd, iface);
    iface->kind = PVN_IFACE_PHYSICAL;
    if (arp_type == ARPHRD_LOOPBACK)
        iface->kind = PVN_IFACE_LOOPBACK;
    else if (pvn_iface_kind_from_name(iface->driver, &iface->kind))
        snprintf(iface->kind_name, sizeof(iface->kind_name), "%.23s", iface->driver);
    else if (arp_type == ARPHRD_TUNNEL || arp_type == ARPHRD_TUNNEL6 || arp_type == ARPHRD_SIT ||
             arp_type == ARPHRD_IPGRE || arp_type == ARPHRD_NONE || arp_type == ARPHRD_PPP)
        iface->kind = PVN_IFACE_TUNNEL;
    else if (!iface->driver[0])
        guess_kind(iface);
}

static int sys_add_link(struct pvn_iface_table *table, int fd, const struct ifaddrs *ifa)
{
    const struct sockaddr_ll *ll = (const struct sockaddr_ll *)(const void *)ifa->ifa_addr;
    struct pvn_iface *iface = pvn_iface_append(table);
    char text[PATH_MAX];

    if (!iface)
        return -ENOMEM;
    snprintf(iface->name, sizeof(iface->name), "%s", ifa->ifa_name);
    iface->ifindex = (unsigned)ll->sll_ifindex;
    iface->up = (ifa->ifa_flags & IFF_UP) != 0;
    iface->running = (ifa->ifa_flags & IFF_RUNNING) != 0;
    if (ll->sll_halen <= sizeof(iface->hwaddr)) {
        iface->hwaddr_len = ll->sll_halen;
        memcpy(iface->hwaddr, ll->sll_addr, ll->sll_halen);
    }
    sys_find_kind(fd, iface, ll->sll_hatype);
    if (sys_is_ours(iface) && sys_read(iface->name, "master/ifindex", text, sizeof(text)))
        iface->master = (unsigned)strtoul(text, NULL, 10);
    return 0;
}

/* IFA_F_ flags of an IPv6 address (the lower eight, as hexadecimal), which getifaddrs does not pass
 * on. One line: address, index, prefix length, scope, flags, name. */
static unsigned inet6_flags(const struct sockaddr *sa, unsigned ifindex)
{
    const uint8_t *bytes =
        (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
    FILE *f = fopen("/proc/thread-self/net/if_inet6", "re");
    unsigned index, flags, found = 0;
    char want[33] = "", have[33];
    int i;

    if (!f)
        return 0;
    for (i = 0; i < 16; i++)
        pvn_str_append(want, sizeof(want), "%02x", bytes[i]);
    while (!found && fscanf(f, "%32s %x %*x %*x %x %*s", have, &index, &flags) == 3)
        if (index == ifindex && strcmp(have, want) == 0)
            found = flags;
    fclose(f);
    return found;
}

static void sys_add_addr(struct pvn_iface *iface, const struct ifaddrs *ifa)
{
    struct pvn_iface_addr *a;
    unsigned flags = 0;

    if (ifa->ifa_addr->sa_family == AF_INET6)
        flags = inet6_flags(ifa->ifa_addr, iface->ifindex);
    a = pvn_iface_add_addr(iface, ifa->ifa_addr, prefix_length(ifa->ifa_netmask),
                           (flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) &&
                               !(flags & IFA_F_OPTIMISTIC),
                           flags & (IFA_F_DEPRECATED | IFA_F_TEMPORARY));
    if (a)
        snprintf(a->label, sizeof(a->label), "%s", ifa->ifa_name);
}

static int plain_load(void *ctx, struct pvn_iface_table *table, struct pvn_err *err)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifaddrs *list = NULL, *ifa;
    int rc = 0;

    if (fd < 0)
        fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || getifaddrs(&list)) {
        rc = pvn_err_set(err, -errno, "listing the network interfaces");
        goto out;
    }
    for (ifa = list; ifa && rc == 0; ifa = ifa->ifa_next)
        if (ifa->ifa_addr && ifa->ifa_addr->sa_family == AF_PACKET)
            rc = sys_add_link(table, fd, ifa);
    if (rc) {
        pvn_err_set(err, rc, "listing the network interfaces");
        goto out;
    }
    for (ifa = list; ifa; ifa = ifa->ifa_next) {
        char name[IF_NAMESIZE];
        struct pvn_iface *iface;

        if (!ifa->ifa_addr || !pvn_addr_len(ifa->ifa_addr))
            continue;
        /* An address with a label ("eth0:1") belongs to the interface before the colon. */
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(ifa->ifa_name, ":"), ifa->ifa_name);
        iface = (struct pvn_iface *)pvn_iface_by_name(table, name);
        if (iface)
            sys_add_addr(iface, ifa);
    }
    pvn_iface_add_details(table);
out:
    freeifaddrs(list);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Connecting a datagram socket sends nothing, but the kernel looks up the route and fixes the
 * source address. The interface is the one that has this address. */
static int plain_route(void *ctx, const struct sockaddr *dst, struct pvn_iface_route *out,
                       struct pvn_err *err)
{
    int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage to;
    socklen_t len = sizeof(out->src);
    struct ifaddrs *list, *ifa;
    int rc = 0;

    if (fd < 0)
        return -errno;
    memset(&to, 0, sizeof(to));
    memcpy(&to, dst, pvn_addr_len(dst));
    pvn_addr_set_port((struct sockaddr *)&to, 9);
    if (connect(fd, (struct sockaddr *)&to, pvn_addr_len(dst)) ||
        getsockname(fd, (struct sockaddr *)&out->src, &len))
        rc = -errno;
    close(fd);
    if (rc)
        return rc;
    pvn_addr_set_port((struct sockaddr *)&out->src, 0);
    if (dst->sa_family == AF_INET6)
        out->ifindex = ((const struct sockaddr_in6 *)(const void *)dst)->sin6_scope_id;
    if (out->ifindex || getifaddrs(&list))
        return 0;
    for (ifa = list; ifa && !out->ifindex; ifa = ifa->ifa_next) {
        char name[IF_NAMESIZE];

        if (!ifa->ifa_addr || !pvn_addr_same_host(ifa->ifa_addr, (struct sockaddr *)&out->src))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(ifa->ifa_name, ":"), ifa->ifa_name);
        out->ifindex = if_nametoindex(name);
    }
    freeifaddrs(list);
    return 0;
}

const struct pvn_iface_source pvn_iface_source_plain = {plain_load, plain_route, NULL};
