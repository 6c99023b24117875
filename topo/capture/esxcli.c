/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The text of `esxcli hardware pci list` as a host description. One block per function:
 *     0000:3b:00.0
 *        Address: 0000:3b:00.0
 *        Vendor ID: 0x10de
 *        Device Class: 0x0302
 *        Spawned Bus: 0x00
 *        Parent Device: PCI 0:58:2:0      (decimal)
 *        NUMA Node: 0                     (ESXi 7 and later)
 * Key names as printed by ESXi 5.5 to 8 (VMware community posts and the esxcli reference). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"

enum {
    TEXT_MAX = 16 << 20,
};

struct parent_of {
    bool stated;
    uint32_t domain;
    int bus, dev, fn;
};

struct esx {
    struct pvn_topo_reader r;
    struct parent_of *parents; /* parallel to the functions */
    int nparents;
    const char *name;
    int line;
};

static int refuse_value(struct esx *e, const char *what, const char *value)
{
    snprintf(e->r.err->text, sizeof(e->r.err->text), "%.200s:%d: %s \"%.80s\"", e->name, e->line,
             what, value);
    pvn_topo_clean_text(e->r.err->text);
    return -EINVAL;
}

static int new_block(struct esx *e, uint32_t domain, uint8_t bus, uint8_t dev, uint8_t fn)
{
    struct pvn_topo *t = e->r.topo;
    struct pvn_topo_pci *p;

    if (pvn_topo_find_pci_addr(t, domain, bus, dev, fn) >= 0)
        return refuse_value(e, "this function has been listed before:", "");
    if (t->npci == PVN_TOPO_MAX_PCI)
        return pvn_topo_reader_too_many(&e->r, "PCI functions", PVN_TOPO_MAX_PCI);
    p = pvn_topo_array_add((void **)&t->pci, &t->npci, sizeof(*p));
    if (!p || !pvn_topo_array_add((void **)&e->parents, &e->nparents, sizeof(*e->parents)))
        return pvn_topo_reader_nomem(&e->r);
    pvn_topo_pci_clear(p, domain, bus, dev, fn);
    return 0;
}

struct field {
    const char *key;
    size_t offset;
    int max;
};

static int number_field(struct esx *e, struct pvn_topo_pci *p, const char *key, const char *value)
{
    static const struct field fields[] = {
        {"Vendor ID", offsetof(struct pvn_topo_pci, vendor), 0xffff},
        {"Device ID", offsetof(struct pvn_topo_pci, device), 0xffff},
        {"SubVendor ID", offsetof(struct pvn_topo_pci, subvendor), 0xffff},
        {"SubDevice ID", offsetof(struct pvn_topo_pci, subdevice), 0xffff},
        {"Device Class", offsetof(struct pvn_topo_pci, class_code), 0xffff},
        {"Revision ID", offsetof(struct pvn_topo_pci, revision), 0xff},
        {"Spawned Bus", offsetof(struct pvn_topo_pci, secondary), 0xff},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(key, fields[i].key) == 0) {
            int *at = (int *)(void *)((char *)p + fields[i].offset);

            return pvn_topo_parse_int(value, 16, 0, fields[i].max, at)
                       ? 0
                       : refuse_value(e, key, value);
        }
    }
    return 0;
}

static int take_field(struct esx *e, const char *key, const char *value)
{
    struct pvn_topo_pci *p = &e->r.topo->pci[e->r.topo->npci - 1];
    struct parent_of *up = &e->parents[e->nparents - 1];

    if (strcmp(key, "NUMA Node") == 0) {
        /* If there is no node, the line holds a dash or nothing. */
        if (pvn_topo_parse_int(value, 10, -1, 65535, &p->numa))
            pvn_topo_copy_text(p->numa_text, sizeof(p->numa_text), value);
        return 0;
    }
    if (strcmp(key, "Module Name") == 0) {
        pvn_topo_copy_text(p->driver, sizeof(p->driver), value);
        return 0;
    }
    if (strcmp(key, "Parent Device") == 0) {
        up->stated =
            sscanf(value, "PCI %u:%d:%d:%d", &up->domain, &up->bus, &up->dev, &up->fn) == 4 &&
            up->bus >= 0 && up->bus < 256 && up->dev >= 0 && up->dev < 32 && up->fn >= 0 &&
            up->fn < 8;
        return 0;
    }
    return number_field(e, p, key, value);
}

static int take_line(struct esx *e, char *line)
{
    uint32_t domain;
    uint8_t bus, dev, fn;
    char *value;

    pvn_topo_clean_text(line);
    if (line[0] == '\0')
        return 0;
    if (line[0] != ' ' && line[0] != '?') {
        if (pvn_topo_bdf_parse(line, &domain, &bus, &dev, &fn) != 0) {
            return refuse_value(
                e, "expected a PCI address (the output of esxcli hardware pci list), found", line);
        }
        return new_block(e, domain, bus, dev, fn);
    }
    line += strspn(line, " ?"); /* a tab became a question mark */
    value = strstr(line, ": ");
    if (!value)
        return 0; /* "VMkernel Name:" without one */
    if (e->r.topo->npci == 0)
        return refuse_value(e, "expected a PCI address, found", line);
    *value = '\0';
    return take_field(e, line, value + 2);
}

static bool is_bridge(const struct pvn_topo_pci *p)
{
    return p->class_code == 0x0604;
}

/* Finds the bridge above: the one that spawned this bus, else the parent that the block names. */
static int find_parent(const struct esx *e, int i)
{
    const struct pvn_topo *t = e->r.topo;
    const struct pvn_topo_pci *p = &t->pci[i];
    const struct parent_of *up = &e->parents[i];
    int parent;

    for (int b = 0; b < t->npci; b++)
        if (b != i && is_bridge(&t->pci[b]) && t->pci[b].domain == p->domain &&
            t->pci[b].secondary == p->bus && t->pci[b].bus < p->bus)
            return b;
    parent = up->stated ? pvn_topo_find_pci_addr(t, up->domain, up->bus, up->dev, up->fn) : -1;
    /* Bus numbers rise from the root downwards. This check also keeps a damaged list from forming a
     * loop. */
    return parent >= 0 && is_bridge(&t->pci[parent]) && t->pci[parent].bus < p->bus ? parent : -1;
}

static int find_root(struct esx *e, const struct pvn_topo_pci *p)
{
    struct pvn_topo *t = e->r.topo;
    struct pvn_topo_root *root;

    for (int i = 0; i < t->nroots; i++)
        if (t->roots[i].domain == p->domain && t->roots[i].bus == p->bus)
            return i;
    if (t->nroots == PVN_TOPO_MAX_ROOTS)
        return pvn_topo_reader_too_many(&e->r, "PCI root buses", PVN_TOPO_MAX_ROOTS);
    root = pvn_topo_array_add((void **)&t->roots, &t->nroots, sizeof(*root));
    if (!root)
        return pvn_topo_reader_nomem(&e->r);
    snprintf(root->name, sizeof(root->name), "pci%04x:%02x", p->domain, p->bus);
    root->domain = p->domain;
    root->bus = p->bus;
    root->via = -1;
    root->numa = p->numa;
    return t->nroots - 1;
}

static int build_tree(struct esx *e)
{
    struct pvn_topo *t = e->r.topo;

    for (int i = 0; i < t->npci; i++)
        t->pci[i].parent = t->pci[i].seen_parent = find_parent(e, i);
    for (int i = 0; i < t->npci; i++) {
        int top = i, root;

        while (t->pci[top].parent >= 0) {
            top = t->pci[top].parent;
            t->pci[i].depth++;
        }
        root = find_root(e, &t->pci[top]);
        if (root < 0)
            return root;
        t->pci[i].root = root;
    }
    for (int i = 0; i < t->npci; i++) {
        if (t->pci[i].class_code != PVN_TOPO_UNKNOWN)
            t->pci[i].class_code <<= 8; /* ESXi prints class and subclass only */
        if (t->pci[i].secondary == 0)
            t->pci[i].secondary = PVN_TOPO_UNKNOWN;
    }
    pvn_topo_pci_kinds(t);
    return 0;
}

int pvn_topo_load_esxcli(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                         struct pvn_topo_err *err)
{
    struct esx e = {.r = {.err = err}, .name = name};
    char *copy = NULL, *next;
    int rc = 0;

    if (len > TEXT_MAX) {
        snprintf(err->text, sizeof(err->text), "%.200s: %zu bytes are more than such a list has",
                 name, len);
        return -EINVAL;
    }
    e.r.topo = calloc(1, sizeof(*e.r.topo));
    copy = malloc(len + 1);
    if (!e.r.topo || !copy || !(e.r.topo->source = strdup(name))) {
        rc = pvn_topo_reader_nomem(&e.r);
        goto out;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    for (char *line = copy; rc == 0 && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        e.line++;
        rc = take_line(&e, line);
    }
    if (rc == 0 && e.r.topo->npci == 0)
        rc = refuse_value(&e, "no PCI function in this text", "");
    if (rc == 0)
        rc = build_tree(&e);
    if (rc == 0)
        rc = pvn_topo_read_gpus(&e.r);
out:
    free(copy);
    free(e.parents);
    if (rc != 0)
        pvn_topo_free(e.r.topo);
    else
        *topo = e.r.topo;
    return rc;
}
