/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-tcp/iface.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/addr.h"
#include "base/dev_list.h"
#include "base/param.h"

/* True if the list accepts this address (NULL: the interface itself). A label selects the addresses
 * that have it, a name all addresses of its interface. */
static bool passes(const struct pvn_dev_list *f, const struct pvn_iface *iface,
                   const struct pvn_iface_addr *a)
{
    const char *at = f->items, *item;
    size_t len;

    while (pvn_dev_list_next(&at, &item, &len))
        if (memchr(item, ':', len) ? a && strlen(a->label) == len && !memcmp(a->label, item, len)
                                   : pvn_dev_list_item_matches(f, item, len, iface->name, 0))
            return !f->exclude;
    return f->empty || f->exclude;
}

static bool iface_passes(const struct pvn_dev_list *f, const struct pvn_iface *iface)
{
    bool any = passes(f, iface, NULL);

    for (int i = 0; i < iface->naddrs && !any; i++)
        any = passes(f, iface, &iface->addrs[i]);
    return any;
}

/* True for an address without a network. It may be a virtual one (keepalived, kube-vip) that moves
 * to another machine while the job runs. */
static bool is_alone(const struct pvn_iface_addr *a)
{
    return a->prefixlen == (a->ss.ss_family == AF_INET ? 32 : 128);
}

/* How good an address is for the requested family: 0 best, higher worse, -1 not usable. */
static int addr_rank(const struct pvn_iface_addr *a, int family)
{
    const struct sockaddr *sa = (const struct sockaddr *)&a->ss;
    int rank;

    if (a->tentative || (family != AF_UNSPEC && sa->sa_family != family))
        return -1;
    rank = is_alone(a) ? 1 : 0;
    if (sa->sa_family != AF_INET)
        rank += 2;
    if (a->deprecated)
        rank += 4;
    if (pvn_addr_is_link_local(sa))
        rank += 8;
    if (pvn_addr_is_loopback(sa))
        rank += 16;
    return rank;
}

/* The best address that the list f accepts (f NULL: of all); NULL if there is none. */
static const struct pvn_iface_addr *best_addr(const struct pvn_iface *iface, int family,
                                              const struct pvn_dev_list *f)
{
    const struct pvn_iface_addr *best = NULL;
    int i, best_rank = 0;

    for (i = 0; i < iface->naddrs; i++) {
        int rank = addr_rank(&iface->addrs[i], family);

        if (rank >= 0 && (!best || rank < best_rank) &&
            (!f || passes(f, iface, &iface->addrs[i]))) {
            best = &iface->addrs[i];
            best_rank = rank;
        }
    }
    return best;
}

/* The reason that makes an interface unusable; NULL if it is usable. */
static const char *defect(const struct pvn_iface *iface, int family, const struct pvn_dev_list *f)
{
    if (!iface->up)
        return "down";
    if (!iface->running)
        return "no link";
    if (best_addr(iface, family, f))
        return NULL;
    if (best_addr(iface, family, NULL))
        return "its address is excluded by NCCL_SOCKET_IFNAME";
    if (family == AF_INET)
        return iface->naddrs ? "no IPv4 address" : "no address";
    if (family == AF_INET6)
        return iface->naddrs ? "no usable IPv6 address" : "no address";
    return iface->naddrs ? "its addresses are still tentative" : "no address";
}

/* Classes of the automatic choice, best first. Only the best class that has members is used. */
enum { CLASS_REAL = 0, CLASS_VETH, CLASS_TUNNEL, CLASS_INNER, CLASS_LOOPBACK, CLASSES };

static int class_of(const struct pvn_iface *iface)
{
    switch (iface->kind) {
    case PVN_IFACE_PHYSICAL:
    case PVN_IFACE_BOND:
    case PVN_IFACE_VLAN:
    case PVN_IFACE_MACVLAN:
        return CLASS_REAL;
    case PVN_IFACE_BRIDGE:
        return iface->has_uplink || iface->default_route ? CLASS_REAL : CLASS_INNER;
    case PVN_IFACE_VETH:
        return CLASS_VETH;
    case PVN_IFACE_TUNNEL:
        return CLASS_TUNNEL;
    case PVN_IFACE_LOOPBACK:
        return CLASS_LOOPBACK;
    default:
        return CLASS_INNER;
    }
}

static const char *class_reason(const struct pvn_iface *iface)
{
    switch (class_of(iface)) {
    case CLASS_VETH:
        return "veth";
    case CLASS_TUNNEL:
        return "tunnel";
    case CLASS_INNER:
        return iface->kind == PVN_IFACE_BRIDGE ? "bridge without uplink" : "virtual, leads nowhere";
    default:
        return "loopback";
    }
}

static bool only_link_local(const struct pvn_iface *iface, int family, const struct pvn_dev_list *f)
{
    const struct pvn_iface_addr *a = best_addr(iface, family, f);

    return a && pvn_addr_is_link_local((const struct sockaddr *)&a->ss) &&
           iface->kind != PVN_IFACE_LOOPBACK;
}

/* A routable address of loopback, or NULL. Hosts that BGP routes to have their address on loopback,
 * and only link-local addresses on their links. */
static const struct pvn_iface_addr *host_addr(const struct pvn_iface_table *table, int family)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct pvn_iface_addr *a = table->v[i].kind == PVN_IFACE_LOOPBACK && table->v[i].up
                                             ? best_addr(&table->v[i], family, NULL)
                                             : NULL;
        if (a && !pvn_addr_is_loopback((const struct sockaddr *)&a->ss) &&
            !pvn_addr_is_link_local((const struct sockaddr *)&a->ss))
            return a;
    }
    return NULL;
}

static void leave_out(char *buf, size_t size, const struct pvn_iface *iface, const char *why)
{
    if (buf)
        pvn_str_append(buf, size, "%s%s (%s)", *buf ? ", " : "", iface->name, why);
}

static void store(struct pvn_iface_pick *pick, const struct pvn_iface *iface,
                  const struct pvn_iface_addr *a, const char *reason)
{
    size_t size = sizeof(pick->why);

    memset(pick, 0, sizeof(*pick));
    pick->iface = iface;
    pick->addr = a->ss;
    pick->prefixlen = a->prefixlen;
    pvn_str_append(pick->why, size, "%s%s", reason, iface->default_route ? ", default route" : "");
    if (!iface->speed_known)
        pvn_str_append(pick->why, size, ", speed unknown (%d Mb/s assumed)", iface->speed_mbps);
}

static bool has_network(const struct pvn_iface_pick *pick, const struct pvn_iface_addr *a)
{
    const struct sockaddr *sa = (const struct sockaddr *)&a->ss;

    if (pvn_addr_same_net((const struct sockaddr *)&pick->addr, sa, pick->prefixlen))
        return true;
    for (int i = 0; i < pick->nmore; i++)
        if (pvn_addr_same_net((const struct sockaddr *)&pick->more[i]->ss, sa,
                              pick->more[i]->prefixlen))
            return true;
    return false;
}

static void add_more(struct pvn_iface_pick *pick, const struct pvn_dev_list *f)
{
    for (int i = 0; i < pick->iface->naddrs && pick->nmore < PVN_IFACE_MORE_ADDRS; i++) {
        const struct pvn_iface_addr *a = &pick->iface->addrs[i];

        /* The best rank of its family: in a network, routable and permanent. */
        if (addr_rank(a, pick->addr.ss_family) == (a->ss.ss_family == AF_INET ? 0 : 2) &&
            passes(f, pick->iface, a) && !has_network(pick, a))
            pick->more[pick->nmore++] = a;
    }
}

/* Adds a pick and returns the new number of picks. */
static size_t add_pick(const struct pvn_iface_table *table, struct pvn_iface_pick *picks, size_t n,
                       const struct pvn_iface *iface, int family, const struct pvn_dev_list *f,
                       const char *reason, char *left_out, size_t size)
{
    const struct pvn_iface_addr *host =
        only_link_local(iface, family, f) ? host_addr(table, family) : NULL;

    for (size_t i = 0; host && i < n; i++)
        if (pvn_addr_same_host((const struct sockaddr *)&picks[i].addr,
                               (const struct sockaddr *)&host->ss)) {
            leave_out(left_out, size, iface, "the host's address, on lo, is in use already");
            return n;
        }
    store(&picks[n], iface, host ? host : best_addr(iface, family, f), reason);
    if (host)
        pvn_str_append(picks[n].why, sizeof(picks[n].why), ", by the address of lo");
    else
        add_more(&picks[n], f);
    return n + 1;
}

static bool has_in_net(const struct pvn_iface *iface, const struct pvn_iface_pick *pick)
{
    for (int i = 0; i < iface->naddrs; i++)
        if (pvn_addr_same_net((const struct sockaddr *)&pick->addr,
                              (const struct sockaddr *)&iface->addrs[i].ss, pick->prefixlen))
            return true;
    return false;
}

/* Marks picks that share their network with another interface, chosen or not. The kernel's routing
 * sends by only one of the two unless sockets are bound to the interface. Somebody who reads
 * counters should know this. */
static void mark_shared_nets(const struct pvn_iface_table *table, struct pvn_iface_pick *picks,
                             int n)
{
    for (int i = 0; i < n; i++)
        for (size_t j = 0; j < table->n && !picks[i].shares_net; j++) {
            const struct pvn_iface *other = &table->v[j];

            if (other == picks[i].iface || other->kind == PVN_IFACE_LOOPBACK || !other->up ||
                !other->running || !has_in_net(other, &picks[i]))
                continue;
            picks[i].shares_net = true;
            pvn_str_append(picks[i].why, sizeof(picks[i].why), ", same network as %s", other->name);
        }
}

/* Lists the labels of an interface's addresses that differ from its name. */
static void list_labels(const struct pvn_iface *iface, char *buf, size_t size)
{
    for (int i = 0; i < iface->naddrs; i++)
        if (strchr(iface->addrs[i].label, ':') && strlen(buf) + 40 < size)
            pvn_str_append(buf, size, ", %s", iface->addrs[i].label);
}

static void list_all(const struct pvn_iface_table *table, char *buf, size_t size)
{
    size_t i;

    buf[0] = '\0';
    for (i = 0; i < table->n; i++) {
        if (strlen(buf) + 40 > size) {
            pvn_str_append(buf, size, " and %zu more", table->n - i);
            return;
        }
        pvn_str_append(buf, size, "%s%s", i ? ", " : "", table->v[i].name);
        list_labels(&table->v[i], buf, size);
    }
}

static int nothing_matches(const struct pvn_iface_table *table, const char *ifname,
                           struct pvn_err *err)
{
    char have[220];

    list_all(table, have, sizeof(have));
    pvn_err_set(err, -ENODEV, "no interface matches NCCL_SOCKET_IFNAME=%.48s; there are: %s%s",
                ifname, *have ? have : "none",
                strchr(ifname, ':') ? " (a name with a colon is the label of an address)" : "");
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return -ENODEV;
}

static int nothing_usable(const char *ifname, int family, const char *reasons, struct pvn_err *err)
{
    const char *which = family == AF_INET    ? " with an IPv4 address"
                        : family == AF_INET6 ? " with an IPv6 address"
                                             : "";

    if (*ifname)
        pvn_err_set(err, -ENODEV, "no interface of NCCL_SOCKET_IFNAME=%.48s is usable%s: %.180s",
                    ifname, which, *reasons ? reasons : "there is none");
    else
        pvn_err_set(err, -ENODEV, "no usable network interface%s: %.220s", which,
                    *reasons ? reasons : "there is none");
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return -ENODEV;
}

/* Chooses all usable interfaces that the user has named, whatever their kind. */
static int choose_named(const struct pvn_iface_table *table, const struct pvn_dev_list *f,
                        int family, struct pvn_iface_pick *picks, size_t max, char *left_out,
                        size_t size)
{
    size_t i, n = 0;

    for (i = 0; i < table->n; i++) {
        const struct pvn_iface *iface = &table->v[i];
        const char *why = defect(iface, family, f);

        if (!iface_passes(f, iface))
            continue;
        if (!why && n == max)
            why = "too many";
        if (why)
            leave_out(left_out, size, iface, why);
        else
            n = add_pick(table, picks, n, iface, family, f, "named by NCCL_SOCKET_IFNAME", left_out,
                         size);
    }
    return (int)n;
}

/* A port of a bond or bridge carries its master's traffic; a VRF's member remains an interface. */
static bool is_port(const struct pvn_iface_table *table, const struct pvn_iface *iface)
{
    const struct pvn_iface *master =
        iface->master ? pvn_iface_by_index(table, iface->master) : NULL;

    return master && (master->kind == PVN_IFACE_BOND || master->kind == PVN_IFACE_BRIDGE);
}

/* Facts that the automatic choice derives from the table before it picks. */
struct auto_rule {
    const struct pvn_dev_list *f;
    int family;
    bool routable; /* an interface that leads out has more than a link-local address */
    int best;      /* the class to take */
};

/* The reason why the automatic choice leaves an interface out, apart from its class; NULL if it
 * does not. */
static const char *auto_defect(const struct pvn_iface_table *table, const struct auto_rule *rule,
                               const struct pvn_iface *iface)
{
    const char *why = defect(iface, rule->family, rule->f);

    if (!iface_passes(rule->f, iface))
        return "excluded by NCCL_SOCKET_IFNAME";
    if (is_port(table, iface))
        return "port of a bond or bridge";
    /* For example a management controller's USB link, or an interface that gets no answer from
     * DHCP. */
    if (!why && rule->routable && only_link_local(iface, rule->family, rule->f))
        return "only a link-local address";
    return why;
}

static struct auto_rule make_rule(const struct pvn_iface_table *table, const struct pvn_dev_list *f,
                                  int family)
{
    struct auto_rule rule = {f, family, false, CLASSES};
    size_t i;

    for (i = 0; i < table->n; i++)
        if (!auto_defect(table, &rule, &table->v[i]) && class_of(&table->v[i]) < CLASS_INNER &&
            !only_link_local(&table->v[i], family, f))
            rule.routable = true;
    for (i = 0; i < table->n; i++)
        if (!auto_defect(table, &rule, &table->v[i]) && class_of(&table->v[i]) < rule.best)
            rule.best = class_of(&table->v[i]);
    return rule;
}

static int choose_auto(const struct pvn_iface_table *table, const struct pvn_dev_list *f,
                       int family, struct pvn_iface_pick *picks, size_t max, char *left_out,
                       size_t size)
{
    struct auto_rule rule = make_rule(table, f, family);
    size_t i, n = 0;
    int kind;

    for (kind = 0; kind < PVN_IFACE_KINDS; kind++) {
        for (i = 0; i < table->n; i++) {
            const struct pvn_iface *iface = &table->v[i];
            const char *why;

            if ((int)iface->kind != kind)
                continue;
            why = auto_defect(table, &rule, iface);
            if (!why && class_of(iface) != rule.best)
                why = class_reason(iface);
            if (!why && n == max)
                why = "too many";
            if (why)
                leave_out(left_out, size, iface, why);
            else
                n = add_pick(table, picks, n, iface, family, f, pvn_iface_kind_name(iface->kind),
                             left_out, size);
        }
    }
    return (int)n;
}

int pvn_iface_choose(const struct pvn_iface_table *table, const char *ifname, int family,
                     struct pvn_iface_pick *picks, size_t max, char *left_out, size_t left_out_size,
                     struct pvn_err *err)
{
    struct pvn_dev_list f = pvn_dev_list_parse(ifname);
    char reasons[512] = "";
    bool matched = false;
    size_t i;
    int n;

    for (i = 0; i < table->n && !matched; i++)
        matched = iface_passes(&f, &table->v[i]);
    if (!f.empty && !matched)
        return nothing_matches(table, ifname, err);
    if (f.empty || f.exclude)
        n = choose_auto(table, &f, family, picks, max, reasons, sizeof(reasons));
    else
        n = choose_named(table, &f, family, picks, max, reasons, sizeof(reasons));
    if (left_out && left_out_size)
        snprintf(left_out, left_out_size, "%s", reasons);
    if (n == 0)
        return nothing_usable(f.empty ? "" : ifname, family, reasons, err);
    mark_shared_nets(table, picks, n);
    return n;
}
