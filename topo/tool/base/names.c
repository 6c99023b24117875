/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Labels and wrapped sentences. */
#include "topo/tool/base/tool.h"

#include <string.h>

void tool_wrap(const struct tool *t, int at, int indent, const char *text)
{
    bool fresh = true;
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (!fresh && at + 1 + len > t->width) {
            fprintf(t->out, "\n%*s", indent, "");
            at = indent;
            fresh = true;
        }
        at += fprintf(t->out, "%s%.*s", fresh ? "" : " ", len, text);
        fresh = false;
        text += len;
        while (*text == ' ')
            text++;
    }
    fputc('\n', t->out);
}

const struct pvn_topo_nnode *tool_gpu(const struct tool *t, int gpu)
{
    return &t->tree->nodes[t->tree->gpus[gpu]];
}

const struct pvn_topo_nnode *tool_net(const struct tool *t, int net)
{
    return &t->tree->nodes[t->tree->nets[net]];
}

const char *tool_gpu_label(const struct tool *t, int gpu, char *buf)
{
    int repeat = pvn_topo_pairs_gpu_repeat(t->pairs, gpu);
    snprintf(buf, 16, repeat ? "GPU%d#%d" : "GPU%d", tool_gpu(t, gpu)->gpu.dev, repeat + 1);
    return buf;
}

const char *tool_net_label(const struct tool *t, int net, char *buf)
{
    int repeat = pvn_topo_pairs_net_repeat(t->pairs, net);
    snprintf(buf, 16, repeat ? "NIC%d#%d" : "NIC%d", tool_net(t, net)->net.dev, repeat + 1);
    return buf;
}

const char *tool_net_busid(const struct tool *t, int net)
{
    return t->tree->nodes[tool_net(t, net)->up].busid;
}

const char *tool_gpu_what(const struct tool *t, int gpu, char *buf, size_t len)
{
    int pci = t->topo ? pvn_topo_pairs_gpu_pci(t->pairs, gpu) : -1;
    int index = pci >= 0 ? pvn_topo_gpu_of_pci(t->topo, pci) : -1;
    buf[0] = '\0';
    if (index >= 0 && t->topo->gpus[index].model[0])
        snprintf(buf, len, "%s", t->topo->gpus[index].model);
    else if (pci >= 0)
        tool_pci_what(t, pci, buf, len);
    return buf;
}

const char *tool_speed(int mbps, char *buf, size_t len)
{
    if (mbps <= 0)
        snprintf(buf, len, "speed unknown");
    else if (mbps % 1000 == 0)
        snprintf(buf, len, "%d Gb/s", mbps / 1000);
    else
        snprintf(buf, len, "%d Mb/s", mbps);
    return buf;
}

int tool_net_mbps(const struct tool *t, int net)
{
    const struct pvn_topo_nnode *node = tool_net(t, net);
    return pvn_topo_ndoc_get_int(node->doc, "speed", 0) > 0 ? node->net.speed : 0;
}

const char *tool_net_speed(const struct tool *t, int net, char *buf, size_t len)
{
    if (tool_net_mbps(t, net) > 0)
        return tool_speed(tool_net_mbps(t, net), buf, len);
    snprintf(buf, len, "speed unknown (NCCL counts 10 Gb/s)");
    return buf;
}

int tool_numa(const struct tool *t, int pci, int node)
{
    return t->topo && pci >= 0 ? t->topo->pci[pci].numa : pvn_topo_ntree_numa(t->tree, node);
}

const char *tool_gpu_link(const struct tool *t)
{
    int amd = 0, nvidia = 0;
    for (int i = 0; t->topo && i < t->topo->ngpus; i++) {
        amd += t->topo->gpus[i].kind == PVN_TOPO_GPU_AMD;
        nvidia += t->topo->gpus[i].kind == PVN_TOPO_GPU_NVIDIA;
    }
    return t->tree->doc->rccl || (amd > 0 && nvidia == 0) ? "XGMI" : "NVLink";
}

void tool_print_nvlink_remark(const struct tool *t)
{
    int nvidia = 0, amd = 0;
    for (int i = 0; t->topo && i < t->topo->ngpus; i++)
        nvidia += t->topo->gpus[i].kind == PVN_TOPO_GPU_NVIDIA;
    for (int i = 0; t->topo && i < t->topo->ngpus; i++)
        amd += t->topo->gpus[i].kind == PVN_TOPO_GPU_AMD;
    for (int g = 0; g < t->tree->n_gpus; g++) {
        const struct pvn_topo_nnode *dev = &t->tree->nodes[tool_gpu(t, g)->up];
        for (int l = 0; l < dev->n_links; l++)
            if (dev->links[l].kind == PVN_TOPO_NL_NVL)
                return;
    }
    if (amd > 1 && nvidia == 0)
        tool_wrap(
            t, 0, 0,
            "XGMI cannot be seen in sysfs: pairs of AMD's GPUs are shown by their PCIe path.");
    if (nvidia > 1)
        tool_wrap(
            t, 0, 0,
            "NVLink cannot be seen in sysfs: GPU pairs are shown by their PCIe path, and where "
            "there is NVLink NCCL may also send through the GPU beside a NIC (PXN).");
}

enum pvn_topo_smi_class tool_smi(const struct tool *t, int pci_a, int pci_b,
                                 struct pvn_topo_distance *d)
{
    *d = (struct pvn_topo_distance){.smi = PVN_TOPO_SMI_UNKNOWN, .common = -1};
    if (!t->topo || pci_a < 0 || pci_b < 0)
        return PVN_TOPO_SMI_UNKNOWN;
    pvn_topo_find_distance(t->topo, pci_a, pci_b, d);
    return d->smi;
}

/* A node with functions below it is a bridge, whatever class is written. */
bool tool_class_stated(const struct tool *t, int node)
{
    const struct pvn_topo_ndoc_node *doc = t->tree->nodes[node].doc;
    return !t->doc || !doc || pvn_topo_ndoc_get(doc, "class") || pvn_topo_ndoc_sub(doc, "pci");
}

bool tool_link_stated(const struct tool *t, int node)
{
    const struct pvn_topo_ndoc_node *doc = t->tree->nodes[node].doc;
    return !t->doc || !doc ||
           (pvn_topo_ndoc_get(doc, "link_speed") && pvn_topo_ndoc_get(doc, "link_width"));
}
