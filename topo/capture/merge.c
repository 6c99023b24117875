/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Places the guest's devices below the host's tree. */
#include "topo/capture/edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"

struct merge {
    struct pvn_topo_edit edit;
    const struct pvn_topo *guest, *host;
    int *match;       /* by guest function: host function, or -1 */
    bool *taken;      /* by host function */
    int *copy;        /* by host function: index of its invented copy in the edit, or -1 */
    int *root_copy;   /* by host root */
    uint32_t *domain; /* by host function's domain: the invented one; parallel to host->pci */
    unsigned flags;
};

/* True for functions that are worth placing: GPUs, and functions with an interface or an RDMA
 * device. */
static bool is_device(const struct pvn_topo *t, int i)
{
    int base = t->pci[i].class_code == PVN_TOPO_UNKNOWN ? 0 : t->pci[i].class_code >> 16;

    return pvn_topo_gpu_of_pci(t, i) >= 0 || base == 0x02;
}

static bool same_ids(const struct pvn_topo_pci *a, const struct pvn_topo_pci *b)
{
    return a->vendor != PVN_TOPO_UNKNOWN && a->vendor == b->vendor && a->device == b->device &&
           (a->subvendor == b->subvendor || a->subvendor == PVN_TOPO_UNKNOWN ||
            b->subvendor == PVN_TOPO_UNKNOWN) &&
           (a->subdevice == b->subdevice || a->subdevice == PVN_TOPO_UNKNOWN ||
            b->subdevice == PVN_TOPO_UNKNOWN);
}

static void set_match(struct merge *m, int g, int h)
{
    m->match[g] = h;
    m->taken[h] = true;
}

static int match_named(struct merge *m, const struct pvn_topo_hints *hints, const char *name,
                       struct pvn_topo_err *err)
{
    for (int i = 0; i < hints->ndevices; i++) {
        const struct pvn_topo_hint_device *d = &hints->devices[i];
        int g = pvn_topo_hints_find(m->guest, d->name), h;

        if (d->host[0] == '\0') {
            snprintf(err->text, sizeof(err->text),
                     "%.150s:%d: with --host a hints file may only have lines \"device ADDRESS "
                     "host ADDRESS\"; the layout comes from the host",
                     name, d->line);
            return -EINVAL;
        }
        h = pvn_topo_find_pci(m->host, d->host);
        if (g < 0 || h < 0) {
            snprintf(err->text, sizeof(err->text), "%.150s:%d: no device %.80s in the %s", name,
                     d->line, g < 0 ? d->name : d->host, g < 0 ? "guest" : "host's dump");
            return -EINVAL;
        }
        set_match(m, g, h);
    }
    if (hints->nswitches > 0) {
        snprintf(
            err->text, sizeof(err->text),
            "%.150s:%d: with --host a hints file may not have switches; the layout comes from the "
            "host",
            name, hints->switches[0].line);
        return -EINVAL;
    }
    return 0;
}

/* The hardware address of the function's interface; "" if there is none that identifies it. */
static const char *address_of(const struct pvn_topo *t, int pci)
{
    int net = pvn_topo_net_of_pci(t, pci);

    if (net < 0 || strcmp(t->nets[net].address, "00:00:00:00:00:00") == 0)
        return "";
    return t->nets[net].address;
}

static const char *uuid_of(const struct pvn_topo *t, int pci)
{
    int gpu = pvn_topo_gpu_of_pci(t, pci);

    return gpu >= 0 ? t->gpus[gpu].uuid : "";
}

static bool same_device(const struct merge *m, int g, int h)
{
    const struct pvn_topo_pci_config *a = &m->guest->pci[g].config, *b = &m->host->pci[h].config;
    const char *text = address_of(m->guest, g);

    if (a->dsn == PVN_TOPO_CAP_PRESENT && b->dsn == PVN_TOPO_CAP_PRESENT && a->serial != 0 &&
        a->serial == b->serial && m->guest->pci[g].fn == m->host->pci[h].fn)
        return true;
    if (text[0] != '\0' && strcmp(text, address_of(m->host, h)) == 0)
        return true;
    text = uuid_of(m->guest, g);
    return text[0] != '\0' && strcmp(text, uuid_of(m->host, h)) == 0;
}

static void match_unique_marks(struct merge *m)
{
    for (int g = 0; g < m->guest->npci; g++) {
        for (int h = 0; m->match[g] < 0 && is_device(m->guest, g) && h < m->host->npci; h++)
            if (!m->taken[h] && same_ids(&m->guest->pci[g], &m->host->pci[h]) &&
                same_device(m, g, h))
                set_match(m, g, h);
    }
}

static bool open_guest(const struct merge *m, int g, const struct pvn_topo_pci *like)
{
    return m->match[g] < 0 && is_device(m->guest, g) && same_ids(&m->guest->pci[g], like);
}

static bool open_host(const struct merge *m, int h, const struct pvn_topo_pci *like)
{
    return !m->taken[h] && same_ids(&m->host->pci[h], like);
}

/* Matches the remaining devices of one kind: a single one on both sides is certain, equal counts
 * match in order. */
static void match_kind(struct merge *m, int first)
{
    const struct pvn_topo_pci *like = &m->guest->pci[first];
    int ng = 0, nh = 0, h = 0;

    for (int g = 0; g < m->guest->npci; g++)
        ng += open_guest(m, g, like);
    for (int i = 0; i < m->host->npci; i++)
        nh += open_host(m, i, like);
    if (ng != nh)
        return;
    if (ng > 1)
        m->flags |= PVN_TOPO_MERGED_ORDER;
    for (int g = first; g < m->guest->npci; g++) {
        if (open_guest(m, g, like)) {
            while (!open_host(m, h, like))
                h++;
            set_match(m, g, h);
        }
    }
}

static int copy_root(struct merge *m, int h, uint32_t domain)
{
    int r = m->host->pci[h].root;
    const struct pvn_topo_root *root;
    char name[PVN_TOPO_NAME_MAX];

    if (r < 0)
        return -1;
    if (m->root_copy[r] < 0) {
        root = &m->host->roots[r];
        snprintf(name, sizeof(name), "host:%.50s", root->name);
        m->root_copy[r] = pvn_topo_edit_add_root(&m->edit, name, domain, root->bus, root->numa);
    }
    return m->root_copy[r];
}

/* The guest's invented domain for a domain of the host: each has one. */
static uint32_t domain_for(struct merge *m, int h)
{
    for (int i = 0; i < m->host->npci; i++) {
        if (m->host->pci[i].domain == m->host->pci[h].domain && m->domain[i] != 0) {
            m->domain[h] = m->domain[i];
            return m->domain[h];
        }
    }
    m->domain[h] = 0xffff;
    for (bool again = true; again;) {
        again = false;
        m->domain[h] = pvn_topo_edit_free_domain(&m->edit, m->domain[h]);
        for (int i = 0; i < m->host->npci; i++) {
            if (i != h && m->domain[i] == m->domain[h]) {
                m->domain[h]--;
                again = true;
                break;
            }
        }
    }
    return m->domain[h];
}

/* Copies bridge h and all bridges above it. Index of the copy; -1 for h = -1; -ENOMEM. */
static int copy_bridge(struct merge *m, int h, int root)
{
    int chain[PVN_TOPO_MAX_CHAIN], n = 0, parent = -1;

    for (int i = h; i >= 0 && n < PVN_TOPO_MAX_CHAIN; i = m->host->pci[i].parent)
        chain[n++] = i;
    while (n > 0) {
        const struct pvn_topo_pci *p = &m->host->pci[chain[--n]];

        if (m->copy[chain[n]] < 0) {
            int made = pvn_topo_edit_add_bridge(&m->edit, domain_for(m, chain[n]), p->bus, p->dev,
                                                p->fn, p->kind, parent, root, p->numa, &p->link);

            if (made < 0)
                return made;
            m->edit.pci[made].vendor = p->vendor;
            m->edit.pci[made].device = p->device;
            m->edit.pci[made].subvendor = p->subvendor;
            m->edit.pci[made].subdevice = p->subdevice;
            m->edit.pci[made].config = p->config;
            m->copy[chain[n]] = made;
        }
        parent = m->copy[chain[n]];
    }
    return parent;
}

static int place_matched(struct merge *m, int *placed)
{
    *placed = 0;
    for (int g = 0; g < m->guest->npci; g++) {
        int h = m->match[g], root, parent;

        /* The functions of a slot move with the first of them. */
        if (h < 0 || (m->edit.pci[g].flags & PVN_TOPO_PCI_MOVED) != 0)
            continue;
        root = copy_root(m, h, domain_for(m, h));
        parent = root < 0 ? root : copy_bridge(m, m->host->pci[h].parent, root);
        if (root == -ENOMEM || parent == -ENOMEM)
            return -ENOMEM;
        if (root < 0)
            continue; /* the host does not know its place either */
        pvn_topo_edit_move_slot(&m->edit, g, parent, root);
        if (m->host->pci[h].numa != PVN_TOPO_UNKNOWN)
            pvn_topo_edit_set_numa(&m->edit, g, m->host->pci[h].numa);
        (*placed)++;
    }
    return 0;
}

static int merge_init(struct merge *m, struct pvn_topo *guest, const struct pvn_topo *host)
{
    size_t ng = (size_t)guest->npci + 1, nh = (size_t)host->npci + 1, nr = (size_t)host->nroots + 1;

    *m = (struct merge){.guest = guest, .host = host, .flags = PVN_TOPO_MERGED_HOST};
    m->match = malloc(ng * sizeof(*m->match));
    m->taken = calloc(nh, sizeof(*m->taken));
    m->copy = malloc(nh * sizeof(*m->copy));
    m->root_copy = malloc(nr * sizeof(*m->root_copy));
    m->domain = calloc(nh, sizeof(*m->domain));
    if (!m->match || !m->taken || !m->copy || !m->root_copy || !m->domain)
        return -ENOMEM;
    memset(m->match, -1, ng * sizeof(*m->match));
    memset(m->copy, -1, nh * sizeof(*m->copy));
    memset(m->root_copy, -1, nr * sizeof(*m->root_copy));
    return pvn_topo_edit_begin(&m->edit, guest);
}

static void merge_free(struct merge *m)
{
    free(m->match);
    free(m->taken);
    free(m->copy);
    free(m->root_copy);
    free(m->domain);
}

static int match_all(struct merge *m, const struct pvn_topo_hints *hints, const char *name,
                     struct pvn_topo_err *err)
{
    int rc = match_named(m, hints, name, err);

    if (rc != 0)
        return rc;
    match_unique_marks(m);
    for (int g = 0; g < m->guest->npci; g++) {
        /* A paravirtual function has no device on the host, so only a hint can place it. */
        if (m->match[g] < 0 && is_device(m->guest, g) && m->guest->pci[g].vendor != 0x15ad &&
            m->guest->pci[g].vendor != 0x1af4)
            match_kind(m, g);
    }
    return 0;
}

int pvn_topo_merge_host(struct pvn_topo *guest, const struct pvn_topo *host, const char *hints,
                        size_t hints_len, const char *hints_name, struct pvn_topo_err *err)
{
    struct pvn_topo_hints h = {0};
    struct merge m;
    int rc = 0, placed = 0;

    if (hints) {
        rc = pvn_topo_hints_parse(&h, hints, hints_len, hints_name, err);
        if (rc != 0) {
            pvn_topo_hints_free(&h);
            return rc;
        }
    }
    rc = merge_init(&m, guest, host);
    if (rc == 0)
        rc = match_all(&m, &h, hints_name, err);
    if (rc == 0)
        rc = place_matched(&m, &placed);
    if (rc == 0 && placed == 0) {
        snprintf(
            err->text, sizeof(err->text),
            "no device of the guest could be matched with a device of the host; match them in a "
            "hints file by lines \"device ADDRESS host ADDRESS\"");
        rc = -ENOENT;
    }
    if (rc == -ENOMEM)
        snprintf(err->text, sizeof(err->text), "out of memory");
    if (rc == 0)
        pvn_topo_edit_commit(&m.edit, m.flags);
    else
        pvn_topo_edit_abort(&m.edit);
    merge_free(&m);
    pvn_topo_hints_free(&h);
    return rc;
}
