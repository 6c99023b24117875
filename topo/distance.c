/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Distance between two functions in the full tree, with nvidia-smi's names (its legend: PIX at most
 * one bridge, PXB several without the host bridge, PHB through a host bridge, NODE between host
 * bridges of one NUMA node, SYS between nodes). */
#include "topo/pvn_topo.h"

#include <stdio.h>
#include <string.h>

/* Switch ports come in pairs; the upstream one stands for the switch. */
static bool counts_as_switch(const struct pvn_topo_pci *p)
{
    return p->kind == PVN_TOPO_PCI_SWITCH_UP || p->kind == PVN_TOPO_PCI_BRIDGE ||
           p->kind == PVN_TOPO_PCI_UNKNOWN;
}

bool pvn_topo_same_slot(const struct pvn_topo_pci *a, const struct pvn_topo_pci *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->dev == b->dev;
}

static int common_ancestor(const struct pvn_topo *t, int a, int b)
{
    while (a >= 0 && b >= 0 && a != b)
        if (t->pci[a].depth >= t->pci[b].depth)
            a = t->pci[a].parent;
        else
            b = t->pci[b].parent;
    return a == b ? a : -1;
}

/* Counts switches and hops from a function up to stop, which is not included. */
static void walk_up(const struct pvn_topo *t, int from, int stop, struct pvn_topo_distance *out)
{
    for (int i = from; i >= 0 && i != stop; i = t->pci[i].parent) {
        /* Functions on the path that are no bridge are its two ends. */
        if (i != from && counts_as_switch(&t->pci[i]))
            out->switches++;
        if (t->pci[i].parent >= 0)
            out->hops++;
    }
}

/* The root bus that a domain hangs on physically: domains made by VMD are behind a function of
 * another root bus. */
static int physical_root(const struct pvn_topo *t, int root)
{
    for (int guard = 0; root >= 0 && t->roots[root].via >= 0 && guard < t->nroots; guard++) {
        int up = t->pci[t->roots[root].via].root;

        if (up < 0 || up == root)
            break;
        root = up;
    }
    return root;
}

/* The NUMA node of a function or of the nearest object above that has one; negative if none is
 * known. */
static int numa_of(const struct pvn_topo *t, int i)
{
    int root = t->pci[i].root;

    for (; i >= 0; i = t->pci[i].parent)
        if (t->pci[i].numa >= 0)
            return t->pci[i].numa;
    return root >= 0 && t->roots[root].numa >= 0 ? t->roots[root].numa : -1;
}

static void below_common(const struct pvn_topo *t, const struct pvn_topo_pci *a,
                         const struct pvn_topo_pci *b, struct pvn_topo_distance *out)
{
    const struct pvn_topo_pci *c = &t->pci[out->common];

    out->seen = out->switches <= 1 ? PVN_TOPO_SMI_PIX : PVN_TOPO_SMI_PXB;
    if (pvn_topo_same_slot(a, b)) {
        snprintf(out->reason, sizeof(out->reason), "two functions of one device");
    } else if (out->switches == 0) {
        snprintf(out->reason, sizeof(out->reason), "both on the bus below %s %s",
                 pvn_topo_pci_kind_name(c->kind), c->bdf);
    } else if (out->switches == 1) {
        snprintf(out->reason, sizeof(out->reason), "one switch between them, they meet at %s %s",
                 pvn_topo_pci_kind_name(c->kind), c->bdf);
    } else {
        snprintf(out->reason, sizeof(out->reason), "%d switches between them, they meet at %s %s",
                 out->switches, pvn_topo_pci_kind_name(c->kind), c->bdf);
    }
}

static void across_roots(const struct pvn_topo *t, int ia, int ib, struct pvn_topo_distance *out)
{
    const struct pvn_topo_pci *a = &t->pci[ia], *b = &t->pci[ib];
    int ra = physical_root(t, a->root), rb = physical_root(t, b->root);
    int na = numa_of(t, ia), nb = numa_of(t, ib);

    if (ra == rb) {
        out->seen = PVN_TOPO_SMI_PHB;
        snprintf(out->reason, sizeof(out->reason), "they meet at host bridge %s%s",
                 t->roots[ra].name, a->root != b->root ? " (one of them behind VMD)" : "");
    } else if (na >= 0 && nb >= 0) {
        out->seen = na == nb ? PVN_TOPO_SMI_NODE : PVN_TOPO_SMI_SYS;
        if (na == nb) {
            snprintf(out->reason, sizeof(out->reason), "host bridges %s and %s of NUMA node %d",
                     t->roots[ra].name, t->roots[rb].name, na);
        } else {
            snprintf(out->reason, sizeof(out->reason), "NUMA node %d and NUMA node %d", na, nb);
        }
    } else if (t->nnumas == 1) {
        out->seen = PVN_TOPO_SMI_NODE;
        snprintf(out->reason, sizeof(out->reason),
                 "host bridges %s and %s of the machine's only NUMA node", t->roots[ra].name,
                 t->roots[rb].name);
    } else {
        out->seen = PVN_TOPO_SMI_UNKNOWN;
        snprintf(out->reason, sizeof(out->reason),
                 "different host bridges, and %s does not report its NUMA node (numa_node \"%s\")",
                 na < 0 ? a->bdf : b->bdf, na < 0 ? a->numa_text : b->numa_text);
    }
}

static bool hinted(const struct pvn_topo *t, int i)
{
    for (; i >= 0; i = t->pci[i].parent)
        if ((t->pci[i].flags &
             (PVN_TOPO_PCI_MOVED | PVN_TOPO_PCI_NUMA_HINTED | PVN_TOPO_PCI_INVENTED)) != 0)
            return true;
    return false;
}

static void set_trust(const struct pvn_topo *t, int a, int b, struct pvn_topo_distance *out)
{
    size_t used;

    if (pvn_topo_same_slot(&t->pci[a], &t->pci[b]))
        out->trust = pvn_topo_is_guest(t) ? PVN_TOPO_TRUST_PRESENTED : PVN_TOPO_TRUST_MEASURED;
    else if (hinted(t, a) && hinted(t, b))
        out->trust = PVN_TOPO_TRUST_HINTED;
    else if (!pvn_topo_is_guest(t))
        out->trust = PVN_TOPO_TRUST_MEASURED;
    else if (out->common >= 0)
        out->trust = PVN_TOPO_TRUST_PRESENTED;
    else
        out->trust = PVN_TOPO_TRUST_HIDDEN;
    out->smi = out->trust == PVN_TOPO_TRUST_HIDDEN ? PVN_TOPO_SMI_UNKNOWN : out->seen;
    if (out->trust == PVN_TOPO_TRUST_HIDDEN) {
        used = strlen(out->reason);
        snprintf(out->reason + used, sizeof(out->reason) - used,
                 "%sas this %s guest shows it; the real place of both is hidden",
                 used > 0 ? ", " : "", pvn_topo_hypervisor_name(t->guest.hypervisor));
    }
}

void pvn_topo_find_distance(const struct pvn_topo *t, int a, int b, struct pvn_topo_distance *out)
{
    *out = (struct pvn_topo_distance){
        .smi = PVN_TOPO_SMI_UNKNOWN, .seen = PVN_TOPO_SMI_UNKNOWN, .common = -1};
    if (a < 0 || b < 0 || a >= t->npci || b >= t->npci) {
        snprintf(out->reason, sizeof(out->reason), "no such PCI function");
        return;
    }
    if (a == b) {
        out->smi = out->seen = PVN_TOPO_SMI_SELF;
        snprintf(out->reason, sizeof(out->reason), "the same function");
        return;
    }
    if (((t->pci[a].flags | t->pci[b].flags) & PVN_TOPO_PCI_NO_PATH) != 0) {
        snprintf(out->reason, sizeof(out->reason), "the place of %s in the PCI tree is unknown",
                 (t->pci[a].flags & PVN_TOPO_PCI_NO_PATH) != 0 ? t->pci[a].bdf : t->pci[b].bdf);
        return;
    }
    out->common = common_ancestor(t, a, b);
    walk_up(t, a, out->common, out);
    walk_up(t, b, out->common, out);
    if (out->common >= 0) {
        if (counts_as_switch(&t->pci[out->common]))
            out->switches++;
        below_common(t, &t->pci[a], &t->pci[b], out);
    } else if (pvn_topo_same_slot(&t->pci[a], &t->pci[b])) {
        out->seen = PVN_TOPO_SMI_PIX;
        snprintf(out->reason, sizeof(out->reason), "two functions of one device");
    } else {
        across_roots(t, a, b, out);
    }
    set_trust(t, a, b, out);
}

bool pvn_topo_layout_hidden(const struct pvn_topo *t)
{
    struct pvn_topo_distance d;

    for (int g = 0; g < t->ngpus; g++) {
        for (int i = 0; i < t->npci; i++) {
            if (pvn_topo_rdma_of_pci(t, i) < 0 && pvn_topo_net_of_pci(t, i) < 0)
                continue;
            pvn_topo_find_distance(t, t->gpus[g].pci, i, &d);
            if (d.trust == PVN_TOPO_TRUST_HIDDEN)
                return true;
        }
    }
    return false;
}
