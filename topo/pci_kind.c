/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The kind of each function: root port, switch port, bridge or endpoint. */
#include "topo/reader.h"

#include <stdlib.h>

/* Device/port types of the PCI Express capability (linux/pci_regs.h, PCI_EXP_TYPE_*). */
static enum pvn_topo_pci_kind kind_of_port_type(int type)
{
    switch (type) {
    case 4:
        return PVN_TOPO_PCI_ROOT_PORT;
    case 5:
        return PVN_TOPO_PCI_SWITCH_UP;
    case 6:
        return PVN_TOPO_PCI_SWITCH_DOWN;
    case 7:
    case 8:
        return PVN_TOPO_PCI_BRIDGE;
    default:
        return PVN_TOPO_PCI_ENDPOINT;
    }
}

struct children {
    int bridges, others;
};

/* A gap has no class. It is a bridge if other functions are below it. */
static bool is_bridge(const struct pvn_topo_pci *p, const struct children *c)
{
    if (p->class_code == PVN_TOPO_UNKNOWN)
        return c->bridges + c->others > 0;
    return p->class_code >> 8 == 0x0604;
}

static bool has_link_files(const struct pvn_topo_pci *p)
{
    return p->link.speed_max_text[0] != '\0' || p->link.width_max != PVN_TOPO_UNKNOWN;
}

/* any_links: this kernel shows link files for some function, so a bridge without them is no PCIe
 * port. */
static enum pvn_topo_pci_kind kind_by_place(const struct pvn_topo *t, const struct pvn_topo_pci *p,
                                            const struct children *c, bool any_links)
{
    bool conventional = p->class_code == 0x060401 ||
                        (any_links && !has_link_files(p) && p->class_code != PVN_TOPO_UNKNOWN);

    if (!is_bridge(p, c)) {
        if (p->class_code == PVN_TOPO_UNKNOWN)
            return PVN_TOPO_PCI_UNKNOWN;
        return p->class_code >> 8 == 0x0600 ? PVN_TOPO_PCI_HOST_BRIDGE : PVN_TOPO_PCI_ENDPOINT;
    }
    if (conventional)
        return PVN_TOPO_PCI_BRIDGE;
    if (p->parent < 0) {
        return (p->flags & PVN_TOPO_PCI_NO_PATH) != 0 ? PVN_TOPO_PCI_BRIDGE
                                                      : PVN_TOPO_PCI_ROOT_PORT;
    }
    switch (t->pci[p->parent].kind) {
    case PVN_TOPO_PCI_ROOT_PORT:
    case PVN_TOPO_PCI_SWITCH_DOWN:
        /* A switch has only bridges on its inner bus; a PCIe-to-PCI bridge has devices there. */
        return c->others == 0 ? PVN_TOPO_PCI_SWITCH_UP : PVN_TOPO_PCI_BRIDGE;
    case PVN_TOPO_PCI_SWITCH_UP:
        return PVN_TOPO_PCI_SWITCH_DOWN;
    default:
        return PVN_TOPO_PCI_BRIDGE;
    }
}

static void set_kind(struct pvn_topo *t, struct pvn_topo_pci *p, const struct children *c,
                     bool any_links)
{
    /* The class identifies endpoints and host bridges, whatever the port type. */
    p->kind_from_config = p->config.pcie == PVN_TOPO_CAP_PRESENT && is_bridge(p, c) &&
                          kind_of_port_type(p->config.port_type) != PVN_TOPO_PCI_ENDPOINT;
    p->kind = p->kind_from_config ? kind_of_port_type(p->config.port_type)
                                  : kind_by_place(t, p, c, any_links);
}

void pvn_topo_pci_kinds(struct pvn_topo *t)
{
    struct children *children = calloc((size_t)t->npci + 1, sizeof(*children));
    bool any_links = false;
    int deepest = 0;

    if (!children)
        return; /* without memory, kinds stay unknown */
    for (int i = 0; i < t->npci; i++) {
        any_links |= has_link_files(&t->pci[i]);
        deepest = t->pci[i].depth > deepest ? t->pci[i].depth : deepest;
    }
    /* Children before parents for the counts, parents before children for the kinds. */
    for (int d = deepest; d >= 0; d--) {
        for (int i = 0; i < t->npci; i++) {
            const struct pvn_topo_pci *p = &t->pci[i];

            if (p->depth != d || p->parent < 0)
                continue;
            if (is_bridge(p, &children[i]))
                children[p->parent].bridges++;
            else
                children[p->parent].others++;
        }
    }
    for (int d = 0; d <= deepest; d++) {
        for (int i = 0; i < t->npci; i++)
            if (t->pci[i].depth == d)
                set_kind(t, &t->pci[i], &children[i], any_links);
    }
    free(children);
}
