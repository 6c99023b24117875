/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/capture/edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"

static size_t room(int n)
{
    size_t cap = 1;

    while (cap < (size_t)n)
        cap *= 2;
    return cap;
}

int pvn_topo_edit_begin(struct pvn_topo_edit *e, struct pvn_topo *t)
{
    /* pvn_topo_array_add needs arrays whose capacity is the next power of two. */
    *e = (struct pvn_topo_edit){.t = t, .npci = t->npci, .nroots = t->nroots};
    e->pci = malloc(room(t->npci) * sizeof(*e->pci));
    e->roots = malloc(room(t->nroots) * sizeof(*e->roots));
    if (!e->pci || !e->roots) {
        pvn_topo_edit_abort(e);
        return -ENOMEM;
    }
    if (t->npci > 0)
        memcpy(e->pci, t->pci, (size_t)t->npci * sizeof(*e->pci));
    if (t->nroots > 0)
        memcpy(e->roots, t->roots, (size_t)t->nroots * sizeof(*e->roots));
    return 0;
}

void pvn_topo_edit_abort(struct pvn_topo_edit *e)
{
    /* The model still owns the paths. */
    free(e->pci);
    free(e->roots);
    *e = (struct pvn_topo_edit){0};
}

static bool invented_bridge(const struct pvn_topo_pci *p)
{
    return (p->flags & PVN_TOPO_PCI_INVENTED) != 0;
}

/* Gives a bridge without a stated link the fastest link below it, so that it never limits a pair;
 * 16 GT/s x16 if no link below is stated either. */
static void fill_links(struct pvn_topo_edit *e)
{
    int *best = malloc(((size_t)e->npci + 1) * sizeof(*best));

    if (!best)
        return; /* without memory, links stay unknown */
    for (int i = 0; i < e->npci; i++)
        best[i] = -1;
    for (int i = 0; i < e->npci; i++) {
        int rate = pvn_topo_link_mbytes(e->pci[i].link.speed_max_mts, e->pci[i].link.width_max);

        if (rate == PVN_TOPO_UNKNOWN || rate == 0 || invented_bridge(&e->pci[i]))
            continue;
        for (int up = e->pci[i].parent; up >= 0; up = e->pci[up].parent) {
            const struct pvn_topo_pci_link *l = best[up] >= 0 ? &e->pci[best[up]].link : NULL;

            if (!l || pvn_topo_link_mbytes(l->speed_max_mts, l->width_max) < rate)
                best[up] = i;
        }
    }
    for (int i = 0; i < e->npci; i++) {
        struct pvn_topo_pci_link *l = &e->pci[i].link;

        if (!invented_bridge(&e->pci[i]) ||
            (l->speed_max_mts != PVN_TOPO_UNKNOWN && l->width_max != PVN_TOPO_UNKNOWN))
            continue;
        *l = best[i] >= 0 ? pvn_topo_edit_link(e->pci[best[i]].link.speed_max_mts,
                                               e->pci[best[i]].link.width_max)
                          : pvn_topo_edit_link(16000, 16);
    }
    free(best);
}

void pvn_topo_edit_commit(struct pvn_topo_edit *e, unsigned flags)
{
    for (int i = 0; i < e->npci; i++) {
        e->pci[i].depth = 0;
        for (int up = e->pci[i].parent; up >= 0; up = e->pci[up].parent)
            e->pci[i].depth++;
    }
    fill_links(e);
    free(e->t->pci);
    free(e->t->roots);
    e->t->pci = e->pci;
    e->t->npci = e->npci;
    e->t->roots = e->roots;
    e->t->nroots = e->nroots;
    e->t->merged |= flags;
    *e = (struct pvn_topo_edit){0};
}

int pvn_topo_edit_add_root(struct pvn_topo_edit *e, const char *name, uint32_t domain, uint8_t bus,
                           int numa)
{
    struct pvn_topo_root *root = pvn_topo_array_add((void **)&e->roots, &e->nroots, sizeof(*root));

    if (!root)
        return -ENOMEM;
    pvn_topo_copy_text(root->name, sizeof(root->name), name);
    root->domain = domain;
    root->bus = bus;
    root->via = -1;
    root->numa = numa;
    return e->nroots - 1;
}

static void set_numa_text(struct pvn_topo_pci *p)
{
    if (p->numa != PVN_TOPO_UNKNOWN)
        snprintf(p->numa_text, sizeof(p->numa_text), "%d", p->numa);
}

int pvn_topo_edit_add_bridge(struct pvn_topo_edit *e, uint32_t domain, int bus, int dev, int fn,
                             enum pvn_topo_pci_kind kind, int parent, int root, int numa,
                             const struct pvn_topo_pci_link *link)
{
    struct pvn_topo_pci *p = pvn_topo_array_add((void **)&e->pci, &e->npci, sizeof(*p));

    if (!p)
        return -ENOMEM;
    pvn_topo_pci_clear(p, domain, bus, dev, fn);
    p->flags = PVN_TOPO_PCI_INVENTED;
    p->kind = kind;
    p->parent = parent;
    p->root = root;
    p->class_code = 0x060400;
    p->numa = numa;
    if (link)
        p->link = *link;
    set_numa_text(p);
    return e->npci - 1;
}

void pvn_topo_edit_move_slot(struct pvn_topo_edit *e, int pci, int parent, int root)
{
    for (int i = 0; i < e->npci; i++) {
        struct pvn_topo_pci *p = &e->pci[i];

        if (pvn_topo_same_slot(p, &e->pci[pci])) {
            p->parent = parent;
            p->root = root;
            p->flags = (p->flags & ~(unsigned)PVN_TOPO_PCI_NO_PATH) | PVN_TOPO_PCI_MOVED;
        }
    }
}

void pvn_topo_edit_set_numa(struct pvn_topo_edit *e, int pci, int node)
{
    for (int i = 0; i < e->npci; i++) {
        if (pvn_topo_same_slot(&e->pci[i], &e->pci[pci])) {
            e->pci[i].numa = node;
            e->pci[i].flags |= PVN_TOPO_PCI_NUMA_HINTED;
        }
    }
}

uint32_t pvn_topo_edit_free_domain(const struct pvn_topo_edit *e, uint32_t from)
{
    for (uint32_t domain = from; domain > 0; domain--) {
        bool taken = false;

        for (int i = 0; i < e->npci && !taken; i++)
            taken = e->pci[i].domain == domain;
        if (!taken)
            return domain;
    }
    return 0;
}

struct pvn_topo_pci_link pvn_topo_edit_link(int speed_mts, int width)
{
    struct pvn_topo_pci_link l = {speed_mts, speed_mts, width, width, "", "", width};

    pvn_topo_copy_text(l.speed_text, sizeof(l.speed_text), pvn_topo_link_speed_name(speed_mts));
    pvn_topo_copy_text(l.speed_max_text, sizeof(l.speed_max_text), l.speed_text);
    return l;
}
