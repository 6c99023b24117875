/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/nic.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pvn_topo_nics_free(struct pvn_topo_nics *nics)
{
    free(nics->list);
    *nics = (struct pvn_topo_nics){0};
}

int pvn_topo_nics_by_name(const struct pvn_topo_nics *nics, const char *name)
{
    for (int i = 0; i < nics->n; i++)
        if (strcmp(nics->list[i].name, name) == 0)
            return i;
    return -1;
}

/* The hex digits of a GUID or a hardware address as one number, without punctuation. */
static uint64_t hex_number(const char *text)
{
    uint64_t value = 0;
    for (const char *p = text; *p; p++) {
        const char *digits = "0123456789abcdef", *at = strchr(digits, *p | 0x20);
        if (at)
            value = value << 4 | (uint64_t)(at - digits);
    }
    return value;
}

/* A number from a device's name (FNV-1a), for a device without an address. */
static uint64_t name_number(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(1099511628211);
    return hash;
}

/* Sets the path. NCCL takes the bus id from the last component of the path and finds the device by
 * it, so only DDDD:BB:DD.F works (xml.cc checkBDFFormat, os/linux.cc ncclOsGetPciPath). */
static void set_path(const struct pvn_topo *topo, struct pvn_topo_nic *nic)
{
    if (nic->pci < 0) {
        snprintf(nic->path_note, sizeof(nic->path_note),
                 "%s is not a PCI device: NCCL attaches it to the first NUMA node it knows, and "
                 "counts it again for each further one with GPUs",
                 nic->name);
        return;
    }
    const struct pvn_topo_pci *pci = &topo->pci[nic->pci];
    nic->pci_path = pci->path;
    if (!pci->path)
        snprintf(
            nic->path_note, sizeof(nic->path_note),
            "the sysfs path of %s cannot be resolved: NCCL attaches %s to the first NUMA node it "
            "knows, and counts it again for each further one with GPUs",
            pci->bdf, nic->name);
    else if (pci->domain > 0xffff)
        snprintf(
            nic->path_note, sizeof(nic->path_note),
            "NCCL reads only 4-digit PCI domains and cannot place %s: it lands on an unknown NUMA "
            "node (-1)",
            pci->bdf);
}

static int grow(struct pvn_topo_nics *nics, struct pvn_topo_nic **slot)
{
    if ((nics->n & (nics->n - 1)) == 0) {
        size_t room = nics->n ? 2 * (size_t)nics->n : 1;
        struct pvn_topo_nic *more = realloc(nics->list, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        nics->list = more;
    }
    *slot = &nics->list[nics->n++];
    **slot = (struct pvn_topo_nic){
        .rdma = -1, .port_index = -1, .net = -1, .pci = -1, .rail = -1, .gdr = -1};
    return 0;
}

static uint64_t guid_of_rdma(const struct pvn_topo_rdma *rdma)
{
    uint64_t guid = hex_number(rdma->sys_image_guid);
    if (guid == 0)
        guid = hex_number(rdma->node_guid);
    return guid != 0 ? guid : name_number(rdma->name);
}

/* The speed of a port. vmw_pvrdma reports a constant; its traffic gets the speed of the paired
 * vmxnet3. */
static int speed_of_port(const struct pvn_topo *topo, const struct pvn_topo_rdma *rdma,
                         const struct pvn_topo_rdma_port *port)
{
    int speed = port->rate_mbps;
    if (rdma->kind == PVN_TOPO_RDMA_PVRDMA && port->netdev >= 0 &&
        topo->nets[port->netdev].speed_mbps > 0)
        speed = topo->nets[port->netdev].speed_mbps;
    return speed > 0 ? speed : 0;
}

static void fill_rdma(const struct pvn_topo *topo, struct pvn_topo_nic *nic, int index, int p)
{
    const struct pvn_topo_rdma *rdma = &topo->rdmas[index];
    const struct pvn_topo_rdma_port *port = &rdma->ports[p];
    if (rdma->nports == 1)
        snprintf(nic->name, sizeof(nic->name), "%s", rdma->name);
    else
        snprintf(nic->name, sizeof(nic->name), "%.50s:%d", rdma->name, port->num);
    nic->rdma = index;
    nic->port_index = p;
    nic->net = port->netdev;
    nic->pci = rdma->pci;
    nic->up = port->state == 4;
    nic->pvrdma = rdma->kind == PVN_TOPO_RDMA_PVRDMA;
    nic->port = port->num;
    nic->speed_mbps = speed_of_port(topo, rdma, port);
    nic->guid = guid_of_rdma(rdma);
}

static int add_rdma(const struct pvn_topo *topo, struct pvn_topo_nics *nics, int index)
{
    for (int p = 0; p < topo->rdmas[index].nports; p++) {
        struct pvn_topo_nic *nic;
        if (grow(nics, &nic) < 0)
            return -ENOMEM;
        fill_rdma(topo, nic, index, p);
        set_path(topo, nic);
    }
    return 0;
}

/* True if the interface above takes the place of this one: a bond, a team, or a hypervisor's
 * interface above its virtual function. A bridge does not count as a NIC, so the port does, and the
 * member of a VRF remains an interface. */
static bool is_member(const struct pvn_topo *topo, const struct pvn_topo_net *net)
{
    enum pvn_topo_net_kind above =
        net->master >= 0 ? topo->nets[net->master].kind : PVN_TOPO_NET_OTHER;
    return above == PVN_TOPO_NET_BOND || above == PVN_TOPO_NET_TEAM ||
           above == PVN_TOPO_NET_ETHERNET;
}

static bool carries_traffic(const struct pvn_topo *topo, const struct pvn_topo_net *net)
{
    switch (net->kind) {
    case PVN_TOPO_NET_ETHERNET:
    case PVN_TOPO_NET_IPOIB:
        return !is_member(topo, net);
    case PVN_TOPO_NET_BOND:
    case PVN_TOPO_NET_TEAM:
        return true;
    default:
        return false;
    }
}

static bool is_up(const struct pvn_topo_net *net)
{
    return net->carrier == 1 || strcmp(net->operstate, "up") == 0;
}

/* The member that a bond or team is placed at: the one that carries its traffic, else the first
 * that is up, else the first. -1 if no member has a function. */
static int member_of(const struct pvn_topo *topo, int bond)
{
    int active = topo->nets[bond].active, first = -1;
    if (active >= 0 && topo->nets[active].pci >= 0)
        return active;
    for (int i = 0; i < topo->nnets; i++) {
        if (topo->nets[i].master != bond || topo->nets[i].pci < 0)
            continue;
        if (is_up(&topo->nets[i]))
            return i;
        if (first < 0)
            first = i;
    }
    return first;
}

/* The function of a net. A bond is placed at a member, a VLAN at the interface below it. */
static int pci_of_net(const struct pvn_topo *topo, int index)
{
    int at =
        topo->nets[index].pci < 0 && topo->nets[index].lower >= 0 ? topo->nets[index].lower : index;
    int member = topo->nets[at].pci < 0 ? member_of(topo, at) : at;
    return member >= 0 ? topo->nets[member].pci : -1;
}

/* The function that owns the wire: the function itself or, for a virtual function, the physical
 * one. */
static int wire_of(const struct pvn_topo *topo, int pci)
{
    return pci >= 0 && topo->pci[pci].physfn >= 0 ? topo->pci[pci].physfn : pci;
}

/* A guid: the hardware address of the first interface of the card, which differs on other hosts. */
static uint64_t guid_of_net(const struct pvn_topo *topo, int index, int pci)
{
    int first = index, wire = wire_of(topo, pci);
    for (int i = 0; wire >= 0 && i < topo->nnets; i++) {
        int at = topo->nets[i].pci;
        if (at >= 0 && pvn_topo_same_slot(&topo->pci[at], &topo->pci[wire]) &&
            (topo->nets[first].pci < 0 || at < topo->nets[first].pci))
            first = i;
    }
    uint64_t guid = hex_number(topo->nets[first].address);
    return guid != 0 ? guid : name_number(topo->nets[index].name);
}

static void fill_net(const struct pvn_topo *topo, struct pvn_topo_nic *nic, int index)
{
    const struct pvn_topo_net *net = &topo->nets[index];
    snprintf(nic->name, sizeof(nic->name), "%s", net->name);
    nic->net = index;
    nic->pci = pci_of_net(topo, index);
    nic->up = is_up(net);
    nic->port = net->dev_port >= 0 ? net->dev_port + 1 : 1;
    nic->speed_mbps = net->speed_mbps > 0 ? net->speed_mbps : 0;
    nic->guid = guid_of_net(topo, index, nic->pci);
}

static int add_net(const struct pvn_topo *topo, struct pvn_topo_nics *nics, int index)
{
    struct pvn_topo_nic *nic;
    if (!carries_traffic(topo, &topo->nets[index]))
        return 0;
    if (grow(nics, &nic) < 0)
        return -ENOMEM;
    fill_net(topo, nic, index);
    set_path(topo, nic);
    return 0;
}

static int in_order(const void *a, const void *b)
{
    const struct pvn_topo_nic *x = a, *y = b;
    /* PCI indices are in address order. The cast sorts -1 (no PCI) last. */
    if (x->pci != y->pci)
        return (unsigned)x->pci < (unsigned)y->pci ? -1 : 1;
    if (x->port != y->port)
        return x->port < y->port ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool port_taken(const struct pvn_topo_nics *nics, int n, uint64_t guid, int port)
{
    for (int i = 0; i < n; i++)
        if (nics->list[i].guid == guid && nics->list[i].port == port)
            return true;
    return false;
}

/* Numbers the ports of a card across its functions, which each begin with port 1. The list is in
 * its final order. */
static int number_ports(const struct pvn_topo *topo, struct pvn_topo_nics *nics)
{
    int *own = calloc((size_t)nics->n + 1, sizeof(*own));
    if (!own)
        return -ENOMEM;
    for (int i = 0; i < nics->n; i++) {
        struct pvn_topo_nic *nic = &nics->list[i];
        int wire = wire_of(topo, nic->pci), j = 0;
        own[i] = nic->port;
        while (j < i && (wire < 0 || nics->list[j].guid != nic->guid || own[j] != own[i] ||
                         wire_of(topo, nics->list[j].pci) != wire))
            j++;
        if (j < i) {
            nic->port = nics->list[j].port;
            continue;
        }
        while (port_taken(nics, i, nic->guid, nic->port))
            nic->port++;
    }
    free(own);
    return 0;
}

static int finish(const struct pvn_topo *topo, struct pvn_topo_nics *nics)
{
    if (nics->n > 1)
        qsort(nics->list, (size_t)nics->n, sizeof(nics->list[0]), in_order);
    return number_ports(topo, nics);
}

static void leave_out_down(struct pvn_topo_nics *nics)
{
    int up = 0, kept = 0;
    for (int i = 0; i < nics->n; i++)
        up += nics->list[i].up;
    if (up == 0)
        return;
    for (int i = 0; i < nics->n; i++) {
        size_t used = strlen(nics->left_out);
        if (nics->list[i].up)
            nics->list[kept++] = nics->list[i];
        else if (used + PVN_TOPO_NAME_MAX + 2 < sizeof(nics->left_out))
            snprintf(nics->left_out + used, sizeof(nics->left_out) - used, "%s%s", used ? ", " : "",
                     nics->list[i].name);
    }
    nics->n = kept;
}

int pvn_topo_nics_find(const struct pvn_topo *topo, enum pvn_topo_nic_choice choice,
                       struct pvn_topo_nics *out)
{
    bool active = false;
    *out = (struct pvn_topo_nics){0};
    for (int i = 0; choice != PVN_TOPO_NICS_TCP && i < topo->nrdmas; i++) {
        /* iWARP connects only by rdma_cm, so the plugin leaves it out, too. */
        if (strcmp(topo->rdmas[i].node_type, "RNIC") == 0)
            continue;
        if (add_rdma(topo, out, i) < 0)
            goto no_memory;
    }
    for (int i = 0; i < out->n; i++)
        active |= out->list[i].up;
    if (choice == PVN_TOPO_NICS_AUTO && out->n > 0 && !active) {
        /* If all ports are down they still show the layout, unless a network card works. */
        for (int i = 0; i < topo->nnets; i++)
            active |=
                carries_traffic(topo, &topo->nets[i]) && strcmp(topo->nets[i].operstate, "up") == 0;
        if (active)
            pvn_topo_nics_free(out);
    }
    if (choice == PVN_TOPO_NICS_TCP || choice == PVN_TOPO_NICS_ALL ||
        (choice == PVN_TOPO_NICS_AUTO && out->n == 0)) {
        for (int i = 0; i < topo->nnets; i++)
            if (add_net(topo, out, i) < 0)
                goto no_memory;
    }
    if (finish(topo, out) < 0)
        goto no_memory;
    if (choice != PVN_TOPO_NICS_ALL)
        leave_out_down(out);
    return 0;
no_memory:
    pvn_topo_nics_free(out);
    return -ENOMEM;
}

/* Finds a port; "mlx4_0:2" is port 2. False if there is no such RDMA device. */
static bool find_port(const struct pvn_topo *topo, const char *name, struct pvn_topo_nic *nic)
{
    char device[PVN_TOPO_NAME_MAX];
    const char *colon = strrchr(name, ':');
    int index = pvn_topo_find_rdma(topo, name), num = 1;
    if (index < 0 && colon) {
        snprintf(device, sizeof(device), "%.*s", (int)(colon - name), name);
        index = pvn_topo_find_rdma(topo, device);
        num = atoi(colon + 1);
    }
    for (int p = 0; index >= 0 && p < topo->rdmas[index].nports; p++) {
        if (topo->rdmas[index].ports[p].num == num) {
            fill_rdma(topo, nic, index, p);
            return true;
        }
    }
    return false;
}

static bool find_interface(const struct pvn_topo *topo, const struct pvn_topo_nic_device *d,
                           struct pvn_topo_nic *nic)
{
    int index = d->ifname ? pvn_topo_find_net(topo, d->ifname) : -1;
    if (index < 0 || topo->nets[index].ifindex != d->ifindex)
        return false;
    fill_net(topo, nic, index);
    return true;
}

int pvn_topo_nics_of_devices(const struct pvn_topo *topo, const struct pvn_topo_nic_device *devices,
                             int n, struct pvn_topo_nics *out)
{
    *out = (struct pvn_topo_nics){0};
    for (int i = 0; i < n; i++) {
        const struct pvn_topo_nic_device *d = &devices[i];
        struct pvn_topo_nic *nic;
        if (grow(out, &nic) < 0)
            goto no_memory;
        nic->from = i;
        nic->port = d->port;
        nic->guid = d->guid;
        if (topo && !find_interface(topo, d, nic) && (!d->ifname || !d->ifname[0]))
            find_port(topo, d->name, nic);
        if (topo && nic->pci < 0 && d->pci_path)
            nic->pci = pvn_topo_pci_of_path(topo, d->pci_path);
        snprintf(nic->name, sizeof(nic->name), "%s", d->name);
        nic->up = true;
        nic->rail = d->rail;
        nic->gdr = d->gpu_memory;
        if (d->speed_mbps > 0)
            nic->speed_mbps = d->speed_mbps;
        if (topo)
            set_path(topo, nic);
    }
    if (!topo || finish(topo, out) == 0)
        return 0;
no_memory:
    pvn_topo_nics_free(out);
    return -ENOMEM;
}

int pvn_topo_nics_set_rails(struct pvn_topo_nics *nics, const char *text, struct pvn_topo_err *err)
{
    int *rails = calloc((size_t)nics->n + 1, sizeof(*rails));
    const char *at = text;
    int rc = 0;
    if (!rails) {
        snprintf(err->text, sizeof(err->text), "out of memory");
        return -ENOMEM;
    }
    for (int i = 0; i < nics->n; i++)
        rails[i] = nics->list[i].rail;
    while (*at) {
        size_t len = strcspn(at, ",");
        char item[PVN_TOPO_NAME_MAX + 16], *end = item;
        snprintf(item, sizeof(item), "%.*s", (int)len, at);
        char *equal = strrchr(item, '=');
        long rail = equal ? strtol(equal + 1, &end, 10) : -1;
        if (!equal || end == equal + 1 || *end || rail < 0 || rail > 32767) {
            snprintf(err->text, sizeof(err->text),
                     "rail list: \"%s\" is not NAME=NUMBER with a number from 0 to 32767", item);
            free(rails);
            return -EINVAL;
        }
        *equal = '\0';
        int nic = pvn_topo_nics_by_name(nics, item);
        if (nic >= 0) {
            rails[nic] = (int)rail;
        } else if (rc == 0) {
            snprintf(err->text, sizeof(err->text), "rail list: there is no network device \"%s\"",
                     item);
            rc = -ENOENT;
        }
        at += len + (at[len] == ',');
    }
    for (int i = 0; i < nics->n; i++)
        nics->list[i].rail = rails[i];
    free(rails);
    return rc;
}

static bool subnet_prefix(const struct pvn_topo *topo, const struct pvn_topo_nic *nic,
                          uint64_t *prefix)
{
    if (nic->rdma < 0)
        return false;
    const struct pvn_topo_rdma_port *port = &topo->rdmas[nic->rdma].ports[nic->port_index];
    if (port->layer != PVN_TOPO_LINK_INFINIBAND || port->ngids == 0)
        return false;
    *prefix = 0;
    for (int i = 0; i < 8; i++)
        *prefix = *prefix << 8 | port->gids[0].raw[i];
    return true;
}

int pvn_topo_nics_find_rails(const struct pvn_topo *topo, struct pvn_topo_nics *nics)
{
    uint64_t seen[64], prefix;
    int n = 0;
    for (int i = 0; i < nics->n; i++) {
        int j = 0;
        if (!subnet_prefix(topo, &nics->list[i], &prefix))
            return 0;
        while (j < n && seen[j] != prefix)
            j++;
        if (j == n && n < 64)
            seen[n++] = prefix;
    }
    if (n < 2)
        return 0;
    /* The number must be equal on hosts with other NICs, so it depends only on the prefix. */
    for (int i = 0; i < nics->n; i++) {
        subnet_prefix(topo, &nics->list[i], &prefix);
        uint64_t mixed = prefix * UINT64_C(0x9e3779b97f4a7c15);
        if (nics->list[i].rail < 0)
            nics->list[i].rail = (int)(mixed >> 49);
    }
    return n;
}
