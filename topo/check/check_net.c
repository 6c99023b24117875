/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Checks on RDMA ports: state, GID table, MTU, PVRDMA and its partner. */
#include "topo/check/check.h"

#include <stdio.h>
#include <string.h>

static void port_name(const struct pvn_topo_rdma *dev, const struct pvn_topo_rdma_port *port,
                      char *out, size_t cap)
{
    snprintf(out, cap, "%.50s port %d", dev->name, port->num);
}

/* ---- which GID */

static const struct pvn_topo_gid *gid_at(const struct pvn_topo_rdma_port *port, int index)
{
    for (int i = 0; i < port->ngids; i++)
        if (port->gids[i].index == index)
            return &port->gids[i];
    return NULL; /* an entry of zeros */
}

static bool is_ipv4(const struct pvn_topo_gid *g)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t multicast[12] = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    return g && (memcmp(g->raw, mapped, 12) == 0 || memcmp(g->raw, multicast, 12) == 0);
}

static bool is_link_local(const struct pvn_topo_gid *g)
{
    static const uint8_t prefix[8] = {0xfe, 0x80};

    return g && memcmp(g->raw, prefix, 8) == 0;
}

/* NCCL calls an entry valid when it is neither empty nor link-local. */
static bool is_valid(const struct pvn_topo_gid *g)
{
    return g && !is_link_local(g);
}

static int roce_version(const struct pvn_topo_gid *g)
{
    if (!g || g->type == PVN_TOPO_GID_UNKNOWN)
        return -1;
    return g->type == PVN_TOPO_GID_ROCE_V2 ? 2 : 1;
}

/* True if the candidate replaces the entry chosen so far. */
static bool replaces(const struct pvn_topo_gid *now, const struct pvn_topo_gid *candidate)
{
    if (!is_ipv4(candidate))
        return false;
    if (!is_ipv4(now))
        return true;
    return is_valid(candidate) && roce_version(candidate) == 2 &&
           (roce_version(now) != 2 || !is_valid(now));
}

static const char *version_text(const struct pvn_topo_gid *g)
{
    switch (roce_version(g)) {
    case 2:
        return "RoCE v2";
    case 1:
        return "RoCE v1";
    default:
        return "of unknown RoCE version";
    }
}

int pvn_topo_gid_pick(const struct pvn_topo_rdma_port *port, bool *usable, char *why, size_t whylen)
{
    const struct pvn_topo_gid *g;
    int index = 0;

    *usable = false;
    if (port->ngids == 0) {
        snprintf(why, whylen, "the GID table is empty");
        return -1;
    }
    if (port->layer == PVN_TOPO_LINK_INFINIBAND) {
        *usable = true;
        snprintf(why, whylen, "index 0, the port's own GID (InfiniBand)");
        return 0;
    }
    for (int i = 0; i < port->ngids; i++)
        if (port->gids[i].index > 0 && replaces(gid_at(port, index), &port->gids[i]))
            index = port->gids[i].index;
    g = gid_at(port, index);
    if (!g) {
        snprintf(why, whylen, "index 0, which is empty: no entry holds an IPv4 address");
    } else if (is_ipv4(g)) {
        *usable = roce_version(g) == 2;
        snprintf(why, whylen, "index %d: IPv4 %d.%d.%d.%d, %s%s%s", index, g->raw[12], g->raw[13],
                 g->raw[14], g->raw[15], version_text(g), g->ndev[0] != '\0' ? ", " : "", g->ndev);
    } else {
        *usable = roce_version(g) == 2 && is_valid(g);
        snprintf(why, whylen, "index 0 because no entry holds an IPv4 address; it is %s, %s",
                 is_link_local(g) ? "link-local IPv6" : "IPv6", version_text(g));
    }
    return index;
}

static void gid_row(struct pvn_topo_check_run *run, const struct pvn_topo_rdma *dev,
                    const struct pvn_topo_rdma_port *port)
{
    char subject[64], why[160];
    bool usable;
    int index = pvn_topo_gid_pick(port, &usable, why, sizeof(why));
    const struct pvn_topo_gid *g = index >= 0 ? gid_at(port, index) : NULL;

    port_name(dev, port, subject, sizeof(subject));
    if (port->gid_table_len == 0) {
        pvn_topo_check_row(run, "gid", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
                           "the GID table was not read");
    } else if (usable) {
        pvn_topo_check_row(run, "gid", PVN_TOPO_LEVEL_OK, subject, "", "would be picked: %s", why);
    } else if (g && is_valid(g) && roce_version(g) < 0) {
        pvn_topo_check_row(run, "gid", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
                           "would be picked: %s; NCCL needs RoCE v2", why);
    } else if (index < 0 || (g && is_link_local(g)) || !g) {
        pvn_topo_check_row(
            run, "gid", PVN_TOPO_LEVEL_FAIL, subject,
            "give the interface an IPv4 address that the other hosts can reach, or set "
            "NCCL_IB_ADDR_FAMILY=AF_INET6 and a routable IPv6 address",
            "would be picked: %s; such an address does not reach other hosts reliably", why);
    } else {
        pvn_topo_check_row(run, "gid", PVN_TOPO_LEVEL_WARN, subject,
                           "enable RoCE v2 for the device, or set NCCL_IB_ROCE_VERSION_NUM and "
                           "NCCL_IB_GID_INDEX alike on all hosts",
                           "would be picked: %s; NCCL needs RoCE v2", why);
    }
}

void pvn_topo_check_gids(struct pvn_topo_check_run *run)
{
    for (int i = 0; i < run->t->nrdmas; i++) {
        for (int p = 0; p < run->t->rdmas[i].nports; p++) {
            /* A port that is down gets its addresses later; the port check reports it. */
            if (run->t->rdmas[i].ports[p].state == 4)
                gid_row(run, &run->t->rdmas[i], &run->t->rdmas[i].ports[p]);
        }
    }
}

/* ---- ports */

void pvn_topo_check_ports(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;

    for (int i = 0; i < t->nrdmas; i++) {
        for (int p = 0; p < t->rdmas[i].nports; p++) {
            const struct pvn_topo_rdma_port *port = &t->rdmas[i].ports[p];
            char subject[64];

            port_name(&t->rdmas[i], port, subject, sizeof(subject));
            if (port->state == 4 && t->rdmas[i].kind == PVN_TOPO_RDMA_PVRDMA && port->netdev >= 0 &&
                t->nets[port->netdev].speed_mbps > 0 && port->rate_mbps > 0 &&
                port->rate_mbps != t->nets[port->netdev].speed_mbps) {
                pvn_topo_check_row(run, "port", PVN_TOPO_LEVEL_OK, subject, "",
                                   "active; vmw_pvrdma always reports %s, what counts is the %d "
                                   "Gb/s of its vmxnet3 %s",
                                   port->rate_text, t->nets[port->netdev].speed_mbps / 1000,
                                   t->nets[port->netdev].name);
            } else if (port->state == 4) {
                pvn_topo_check_row(run, "port", PVN_TOPO_LEVEL_OK, subject, "", "active, %s",
                                   port->rate_text[0] != '\0' ? port->rate_text : "rate unknown");
            } else if (port->state == PVN_TOPO_UNKNOWN) {
                pvn_topo_check_row(run, "port", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
                                   "its state is not shown");
            } else {
                pvn_topo_check_row(run, "port", PVN_TOPO_LEVEL_WARN, subject,
                                   "check the cable and switch port, and that the interface is up",
                                   "%s (%s): it carries no traffic", port->state_text,
                                   port->phys_state_text[0] != '\0' ? port->phys_state_text
                                                                    : "physical state unknown");
            }
        }
    }
}

/* Largest RDMA MTU that fits in an interface MTU: linux/include/rdma/ib_addr.h iboe_get_mtu takes
 * 96 bytes off for GRH, UDP, BTH, the longest extended headers and ICRC. */
static int rdma_mtu_of(int netdev_mtu)
{
    static const int sizes[] = {4096, 2048, 1024, 512, 256};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i] <= netdev_mtu - 96)
            return sizes[i];
    return 0;
}

static void mtu_row(struct pvn_topo_check_run *run, const struct pvn_topo_rdma *dev,
                    const struct pvn_topo_rdma_port *port)
{
    const struct pvn_topo_net *net = port->netdev >= 0 ? &run->t->nets[port->netdev] : NULL;
    char subject[64];
    int fits;

    port_name(dev, port, subject, sizeof(subject));
    if (!net || net->mtu == PVN_TOPO_UNKNOWN) {
        pvn_topo_check_row(run, "mtu", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
                           !net ? "no interface belongs to the port"
                                : "the MTU of its interface is not shown");
        return;
    }
    fits = rdma_mtu_of(net->mtu);
    if (port->active_mtu != PVN_TOPO_UNKNOWN && port->active_mtu != fits) {
        pvn_topo_check_row(
            run, "mtu", PVN_TOPO_LEVEL_WARN, subject,
            "set the interface down and up again, or reload the driver, so that the port takes "
            "the new MTU over",
            "RDMA MTU %d, but %s has MTU %d, in which %d fits", port->active_mtu, net->name,
            net->mtu, fits);
    } else if (fits < 4096) {
        pvn_topo_check_row(
            run, "mtu", PVN_TOPO_LEVEL_WARN, subject,
            "set MTU 9000 (at least 4200) on the interface, its peers and every switch port "
            "between them",
            "RDMA MTU %d because %s has MTU %d; 4096 is usual and costs less per byte", fits,
            net->name, net->mtu);
    } else {
        pvn_topo_check_row(run, "mtu", PVN_TOPO_LEVEL_OK, subject, "",
                           "RDMA MTU 4096 fits in %s (MTU %d)", net->name, net->mtu);
    }
}

void pvn_topo_check_mtu(struct pvn_topo_check_run *run)
{
    for (int i = 0; i < run->t->nrdmas; i++) {
        for (int p = 0; p < run->t->rdmas[i].nports; p++) {
            const struct pvn_topo_rdma_port *port = &run->t->rdmas[i].ports[p];

            /* An InfiniBand port's MTU comes from the subnet manager, not from IPoIB. */
            if (port->layer == PVN_TOPO_LINK_ETHERNET)
                mtu_row(run, &run->t->rdmas[i], port);
        }
    }
}

void pvn_topo_check_pvrdma(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;

    for (int i = 0; i < t->npvrdma; i++) {
        const struct pvn_topo_pvrdma_pair *pair = &t->pvrdma[i];

        if (pair->problem[0] == '\0') {
            pvn_topo_check_row(run, "pvrdma", PVN_TOPO_LEVEL_OK, t->rdmas[pair->rdma].name, "",
                               "function %s is paired with vmxnet3 %s (%s)", t->pci[pair->pci].bdf,
                               t->pci[pair->vmxnet3].bdf, t->nets[pair->netdev].name);
        } else if (pair->vmxnet3 < 0) {
            pvn_topo_check_row(
                run, "pvrdma", PVN_TOPO_LEVEL_FAIL, t->pci[pair->pci].bdf,
                "in vCenter give the VM a PVRDMA adapter on a distributed switch (it brings its "
                "vmxnet3 as function 0); do not pass one of the two functions alone",
                "%s", pair->problem);
        } else {
            pvn_topo_check_row(
                run, "pvrdma", PVN_TOPO_LEVEL_FAIL, t->pci[pair->pci].bdf,
                "load vmxnet3 and vmw_pvrdma (modprobe vmw_pvrdma) and read dmesg; virtual "
                "hardware 13 or later and RoCE on the host are needed",
                "%s", pair->problem);
        }
    }
}
