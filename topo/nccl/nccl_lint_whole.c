/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Findings that need the whole topology file: several hosts in it, and a GPU that differs from the
 * others. */
#include "topo/nccl/nccl_xml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Reports a file of several hosts. NCCL writes such a file if NVLink joins hosts: ncclTopoFuseXml
 * keeps a <cpu> of each. */
static int check_hosts(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint)
{
    const struct pvn_topo_ndoc_node *first = NULL, *second = NULL;
    int hosts = 0;
    for (int i = 0; i < doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *cpu = doc->nodes[i];
        bool seen = false;
        if (!pvn_topo_ndoc_is(cpu, "cpu") || !pvn_topo_ndoc_get(cpu, "host_hash"))
            continue;
        for (int j = 0; j < i && !seen; j++)
            seen = pvn_topo_ndoc_is(doc->nodes[j], "cpu") &&
                   strcmp(pvn_topo_lint_host(doc->nodes[j]), pvn_topo_lint_host(cpu)) == 0;
        if (seen)
            continue;
        hosts++;
        if (!first)
            first = cpu;
        else if (!second)
            second = cpu;
    }
    if (!second)
        return 0;
    return pvn_topo_lint_add(
        lint, PVN_TOPO_LINT_WARN, "several-hosts", second->line, 0,
        "make a file for each host: leave the <cpu> elements of its host_hash; lint looks at each "
        "host by itself",
        "this is a dump of %d hosts that %s joins (host_hash %.20s in line %d, %.20s here): as "
        "NCCL_TOPO_FILE all of it counts as one host",
        hosts, doc->rccl ? "a fabric of GPUs" : "NVLink", pvn_topo_lint_host(first), first->line,
        pvn_topo_lint_host(second));
}

/* ---- equal GPUs ---- */

#define MOST_GPUS 512

struct gpu {
    const struct pvn_topo_ndoc_node *pci;
    const char *device;
    long nvlinks; /* -1: no <gpu>, so the number is not stated */
    char link[64];
};

static const char *text_of(const struct pvn_topo_ndoc_node *node, const char *key)
{
    const char *value = pvn_topo_ndoc_get(node, key);
    return value ? value : "";
}

static bool is_gpu(const struct pvn_topo_ndoc *doc, const struct pvn_topo_ndoc_node *node)
{
    return pvn_topo_ndoc_is(node, "pci") &&
           (pvn_topo_ndoc_sub(node, "gpu") ||
            pvn_topo_ndoc_gpu_class(doc, pvn_topo_ndoc_get(node, "class")));
}

static void read_gpu(struct gpu *g, const struct pvn_topo_ndoc_node *pci)
{
    const struct pvn_topo_ndoc_node *gpu = pvn_topo_ndoc_sub(pci, "gpu");
    const char *speed = text_of(pci, "link_speed"), *width = text_of(pci, "link_width");
    *g = (struct gpu){.pci = pci, .device = text_of(pci, "device"), .nvlinks = gpu ? 0 : -1};
    if (speed[0] && width[0])
        snprintf(g->link, sizeof(g->link), "%.40s x%.16s", speed, width);
    for (int i = 0; gpu && i < gpu->n_subs; i++)
        if (pvn_topo_ndoc_is(gpu->subs[i], "nvlink") || pvn_topo_ndoc_is(gpu->subs[i], "xgmi"))
            g->nvlinks += pvn_topo_ndoc_get_int(gpu->subs[i], "count", 0);
}

static bool comparable(const struct gpu *a, const struct gpu *b)
{
    return a->device[0] && strcmp(a->device, b->device) == 0 &&
           strcmp(text_of(a->pci, "vendor"), text_of(b->pci, "vendor")) == 0;
}

/* The text of one of the two values: the PCIe link, or the number of links between GPUs (of the
 * given kind). "" if the file does not state it. */
static const char *link_text(const struct gpu *g, const char *kind, char *buf, size_t len)
{
    if (!kind)
        snprintf(buf, len, "%s", g->link);
    else if (g->nvlinks < 0)
        buf[0] = '\0';
    else
        snprintf(buf, len, "%ld %s%s", g->nvlinks, kind, g->nvlinks == 1 ? "" : "s");
    return buf;
}

/* Reports a GPU that differs from its equals, which all agree. */
static int check_gpu(struct pvn_topo_lint *lint, const struct gpu *gpus, int n, int at, bool nvlink)
{
    const bool amd = lint->reader == pvn_topo_nreader_of(true);
    const char *kind = !nvlink ? NULL : amd ? "xGMI link" : "NVLink";
    char own[64], usual[64] = "", text[64];
    int others = 0;
    if (!link_text(&gpus[at], kind, own, sizeof(own))[0])
        return 0;
    for (int i = 0; i < n; i++) {
        if (i == at || !comparable(&gpus[at], &gpus[i]) ||
            !link_text(&gpus[i], kind, text, sizeof(text))[0])
            continue;
        if (others > 0 && strcmp(text, usual) != 0)
            return 0;
        memcpy(usual, text, sizeof(usual));
        others++;
    }
    if (others < 2 || strcmp(own, usual) == 0)
        return 0;
    return pvn_topo_lint_add(
        lint, PVN_TOPO_LINT_WARN, nvlink ? "odd-nvlinks" : "odd-link", gpus[at].pci->line, 0,
        amd && nvlink ? "look at rocm-smi --showtopo on that host; where the file was written by "
                        "hand, write them all"
        : nvlink      ? "look at nvidia-smi nvlink -s on that host; where the file was written by "
                        "hand, write them all"
                 : "look at LnkSta in lspci -vv and reseat the card; where it is wired like that, "
                   "there is nothing to do",
        "GPU %.20s has %.50s, the %d others of device %.20s have %.50s",
        text_of(gpus[at].pci, "busid"), own, others, gpus[at].device, usual);
}

static int check_gpus(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint)
{
    struct gpu *gpus = calloc((size_t)doc->n_nodes + 1, sizeof(*gpus));
    int n = 0, err = 0;
    if (!gpus)
        return -ENOMEM;
    /* Each GPU is compared with all others. No machine has more than this. */
    for (int i = 0; i < doc->n_nodes && n < MOST_GPUS; i++)
        if (is_gpu(doc, doc->nodes[i]))
            read_gpu(&gpus[n++], doc->nodes[i]);
    for (int i = 0; i < n; i++) {
        err |= check_gpu(lint, gpus, n, i, false);
        err |= check_gpu(lint, gpus, n, i, true);
    }
    free(gpus);
    return err ? -ENOMEM : 0;
}

int pvn_topo_lint_whole(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint)
{
    int err = check_hosts(doc, lint);
    return err | check_gpus(doc, lint) ? -ENOMEM : 0;
}
