/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/lost.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void append_node(char *list, size_t len, const char *kind, const char *name,
                        const char *busid)
{
    size_t used = strlen(list);
    if (used < len)
        snprintf(list + used, len - used, "%s%s %s%s%s%s", used ? ", " : "", kind,
                 name ? name : busid, name ? " (" : "", name ? busid : "", name ? ")" : "");
}

static int list_below(const struct pvn_topo_ndoc_node *pci, char *list, size_t len, int depth)
{
    const char *busid = pvn_topo_ndoc_get(pci, "busid");
    const struct pvn_topo_ndoc_node *nic = pvn_topo_ndoc_sub(pci, "nic");
    int n = 0;
    busid = busid ? busid : "?";
    if (pvn_topo_ndoc_sub(pci, "gpu")) {
        append_node(list, len, "GPU", NULL, busid);
        n++;
    }
    for (int i = 0; nic && i < nic->n_subs; i++) {
        if (pvn_topo_ndoc_is(nic->subs[i], "net")) {
            append_node(list, len, "NIC", pvn_topo_ndoc_get(nic->subs[i], "name"), busid);
            n++;
        }
    }
    for (int i = 0; depth < PVN_TOPO_NDOC_MAX_DEPTH && i < pci->n_subs; i++)
        if (pvn_topo_ndoc_is(pci->subs[i], "pci"))
            n += list_below(pci->subs[i], list, len, depth + 1);
    return n;
}

int pvn_topo_ndoc_lost(const struct pvn_topo_ndoc_node *pci, char *list, size_t len)
{
    int n = 0;
    list[0] = '\0';
    if (!pvn_topo_ndoc_is(pci, "pci") || !pvn_topo_ndoc_sub(pci, "nic"))
        return 0;
    for (int i = 0; i < pci->n_subs; i++)
        if (pvn_topo_ndoc_is(pci->subs[i], "pci"))
            n += list_below(pci->subs[i], list, len, 1);
    return n;
}

/* An unused bus id in domain ffff, which no machine has (as with hints). */
static void free_busid(const struct pvn_topo_ndoc *doc, char *busid, size_t len)
{
    for (unsigned n = 0; n < 0xffff; n++) {
        snprintf(busid, len, "ffff:%02x:%02x.0", n >> 5 & 0xff, n & 0x1f);
        if (!pvn_topo_ndoc_find(doc, "pci", "busid", busid))
            return;
    }
}

static int place_of(const struct pvn_topo_ndoc_node *node)
{
    int at = 0;
    while (node->parent->subs[at] != node)
        at++;
    return at;
}

/* Removes a node from its parent's list; attach puts it elsewhere. */
static void detach(struct pvn_topo_ndoc_node *node)
{
    int at = place_of(node);
    struct pvn_topo_ndoc_node *parent = node->parent;
    memmove(&parent->subs[at], &parent->subs[at + 1],
            (size_t)(parent->n_subs - at - 1) * sizeof(parent->subs[0]));
    parent->n_subs--;
    node->parent = NULL;
}

static int separate(struct pvn_topo_ndoc *doc, struct pvn_topo_ndoc_node *pci)
{
    static const char *const copied[] = {"link_speed", "link_width"};
    struct pvn_topo_ndoc_node *bridge = pvn_topo_ndoc_add(doc, NULL, "pci");
    const char *class = pvn_topo_ndoc_get(pci, "class");
    char busid[32];
    free_busid(doc, busid, sizeof(busid));
    if (!bridge || pvn_topo_ndoc_set(bridge, "busid", busid) < 0 ||
        pvn_topo_ndoc_set(bridge, "class", "0x060400") < 0)
        return -ENOMEM;
    for (int i = 0; i < 2; i++) {
        const char *value = pvn_topo_ndoc_get(pci, copied[i]);
        if (pvn_topo_ndoc_set(bridge, copied[i],
                              value    ? value
                              : i == 0 ? "16.0 GT/s PCIe"
                                       : "16") < 0)
            return -ENOMEM;
    }
    if (class && strncmp(class, "0x0604", 6) == 0 &&
        pvn_topo_ndoc_set(pci, "class", "0x020000") < 0)
        return -ENOMEM;
    struct pvn_topo_ndoc_node *parent = pci->parent;
    int at = place_of(pci);
    detach(pci);
    if (pvn_topo_ndoc_attach(parent, bridge, at) < 0 || pvn_topo_ndoc_attach(bridge, pci, 0) < 0)
        return -ENOMEM;
    for (int i = 0; i < pci->n_subs;) {
        struct pvn_topo_ndoc_node *sub = pci->subs[i];
        if (!pvn_topo_ndoc_is(sub, "pci")) {
            i++;
            continue;
        }
        detach(sub);
        if (pvn_topo_ndoc_attach(bridge, sub, bridge->n_subs) < 0)
            return -ENOMEM;
    }
    return 0;
}

void pvn_topo_ndoc_drop_foreign_gpus(struct pvn_topo_ndoc *doc)
{
    for (int i = 0; i < doc->n_nodes && !doc->rccl; i++) {
        struct pvn_topo_ndoc_node *gpu = doc->nodes[i];
        const char *class = gpu->parent ? pvn_topo_ndoc_get(gpu->parent, "class") : NULL;
        if (pvn_topo_ndoc_is(gpu, "gpu") && class && !pvn_topo_ndoc_gpu_class(doc, class))
            detach(gpu);
    }
}

int pvn_topo_ndoc_separate_nics(struct pvn_topo_ndoc *doc)
{
    for (int i = 0, n = doc->n_nodes; i < n; i++) {
        struct pvn_topo_ndoc_node *pci = doc->nodes[i];
        if (pvn_topo_ndoc_is(pci, "pci") && pci->parent && pvn_topo_ndoc_sub(pci, "nic") &&
            pvn_topo_ndoc_sub(pci, "pci") && separate(doc, pci) < 0)
            return -ENOMEM;
    }
    return 0;
}
