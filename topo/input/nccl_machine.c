/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads NCCL's XML as a machine, for --host. NCCL's reduced tree lacks root ports and the
 * downstream ports of switches. This reader adds them again, so that NCCL's walk over the result,
 * which skips every second bridge, gives the file's tree. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/input/input.h"
#include "topo/input/synth.h"
#include "topo/nccl/nccl_xml.h"
#include "topo/reader.h"

struct host {
    struct pvn_topo_synth synth;
    int cpus, ports;
    int domain; /* domain of invented ports */
};

static int hex(const struct pvn_topo_ndoc_node *node, const char *key, long max)
{
    const char *text = pvn_topo_ndoc_get(node, key);
    long value = text && text[0] ? strtol(text, NULL, 16) : -1;
    return value >= 0 && value <= max ? (int)value : PVN_TOPO_UNKNOWN;
}

static void set_link(struct pvn_topo_synth_fn *f, const struct pvn_topo_ndoc_node *pci)
{
    const char *speed = pvn_topo_ndoc_get(pci, "link_speed");
    long width = pvn_topo_ndoc_get_int(pci, "link_width", 0);
    double gt;
    if (speed && sscanf(speed, "%lf GT/s", &gt) == 1 && gt > 0 && gt < 1000)
        f->speed_mts = f->speed_max_mts = (int)(gt * 1000);
    if (width > 0 && width <= 32)
        f->width = f->width_max = (int)width;
}

/* Adds a port that the file does not show, with an address that no machine has. */
static int add_port(struct host *h, int up, int numa, const char *root)
{
    int n = h->ports++;
    int at = pvn_topo_synth_add(&h->synth, (uint32_t)(h->domain - (n >> 16)), n >> 8 & 255,
                                n >> 3 & 31, n & 7);
    if (at < 0)
        return at;
    h->synth.fns[at].class_code = 0x060400;
    h->synth.fns[at].numa = numa;
    h->synth.fns[at].up = up;
    snprintf(h->synth.fns[at].root, sizeof(h->synth.fns[at].root), "%s", root);
    return at;
}

static int add_pci(struct host *h, const struct pvn_topo_ndoc_node *pci, int up, int numa,
                   const char *root)
{
    const char *busid = pvn_topo_ndoc_get(pci, "busid");
    uint32_t domain;
    uint8_t bus, dev, fn;
    /* A bus id that is repeated or invalid has no place in a machine; NCCL finds only the first. */
    if (pvn_topo_bdf_parse(busid, &domain, &bus, &dev, &fn) != 0)
        return 0;
    for (int i = 0; i < h->synth.n_fns; i++) {
        const struct pvn_topo_synth_fn *f = &h->synth.fns[i];
        if (f->domain == domain && f->bus == bus && f->dev == dev && f->fn == fn)
            return 0;
    }
    int port = add_port(h, up, numa, root);
    int at = port < 0 ? port : pvn_topo_synth_add(&h->synth, domain, bus, dev, fn);
    if (at < 0)
        return at;
    struct pvn_topo_synth_fn *f = &h->synth.fns[at];
    f->up = port;
    f->class_code = hex(pci, "class", 0xffffff);
    f->vendor = hex(pci, "vendor", 0xffff);
    f->device = hex(pci, "device", 0xffff);
    f->subvendor = hex(pci, "subsystem_vendor", 0xffff);
    f->subdevice = hex(pci, "subsystem_device", 0xffff);
    f->numa = numa;
    set_link(f, pci);
    for (int i = 0; i < pci->n_subs; i++) {
        int code =
            pvn_topo_ndoc_is(pci->subs[i], "pci") ? add_pci(h, pci->subs[i], at, numa, "") : 0;
        if (code < 0)
            return code;
    }
    const struct pvn_topo_ndoc_node *nic = pvn_topo_ndoc_sub(pci, "nic");
    for (int i = 0; nic && i < nic->n_subs; i++) {
        const char *name = pvn_topo_ndoc_get(nic->subs[i], "name");
        if (pvn_topo_ndoc_is(nic->subs[i], "net") && name)
            pvn_topo_synth_dev(&h->synth, at, true, name);
    }
    return 0;
}

/* Finds a domain for invented ports that the file does not use. */
static int free_domain(const struct pvn_topo_ndoc *doc)
{
    int domain = 0xfffe;
    for (int i = 0; i < doc->n_nodes; i++) {
        const char *busid = pvn_topo_ndoc_get(doc->nodes[i], "busid");
        if (busid && strtol(busid, NULL, 16) == domain && domain > 0x100) {
            domain--;
            i = -1;
        }
    }
    return domain;
}

int pvn_topo_load_nccl(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                       struct pvn_topo_err *err)
{
    struct pvn_topo_xml_error why;
    struct pvn_topo_ndoc *doc = NULL;
    struct host h = {.ports = 0};
    int code = pvn_topo_nccl_xml_parse(text, len, &doc, &why);
    *topo = NULL;
    if (code < 0) {
        snprintf(err->text, sizeof(err->text), "%.150s:%d: %.300s", name, why.line, why.text);
        return code;
    }
    h.domain = free_domain(doc);
    for (int i = 0; i < doc->n_nodes && code == 0; i++) {
        const struct pvn_topo_ndoc_node *cpu = doc->nodes[i];
        char root[PVN_TOPO_NAME_MAX];
        if (!pvn_topo_ndoc_is(cpu, "cpu"))
            continue;
        long numa = pvn_topo_ndoc_get_int(cpu, "numaid", -1);
        snprintf(root, sizeof(root), "pci%04x:%02x", (unsigned)h.domain & 0xffff, h.cpus++ & 255);
        for (int s = 0; s < cpu->n_subs && code == 0; s++) {
            if (pvn_topo_ndoc_is(cpu->subs[s], "pci"))
                code =
                    add_pci(&h, cpu->subs[s], -1, numa < -1 || numa > 65535 ? -1 : (int)numa, root);
        }
    }
    pvn_topo_ndoc_free(doc);
    if (code < 0 || h.synth.n_fns == 0) {
        snprintf(err->text, sizeof(err->text), "%.200s: %s", name,
                 code < 0 ? "more functions than one machine has" : "it names no PCI function");
        pvn_topo_synth_free(&h.synth);
        return code < 0 ? code : -EINVAL;
    }
    return pvn_topo_synth_load(&h.synth, name, topo, err);
}
