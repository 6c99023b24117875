/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo matrix: every distance, in NCCL's classes and in nvidia-smi's. */
#include "topo/tool/show/show.h"

#include <string.h>

#include "topo/tool/base/json.h"
#include "topo/tool/load/load.h"

/* Rows and columns are the GPUs, then the nets in the order of their numbers. */
static int count(const struct tool *t)
{
    return t->tree->n_gpus + t->tree->n_nets;
}

/* Index in the tree's GPUs for a row. */
static int gpu_of(const struct tool *t, int row)
{
    return t->gpu_order[row];
}

/* Index in the tree's nets for a row after the GPUs. */
static int net_of(const struct tool *t, int row)
{
    return t->net_order[row - t->tree->n_gpus];
}

static const char *label(const struct tool *t, int i, char *buf)
{
    return i < t->tree->n_gpus ? tool_gpu_label(t, gpu_of(t, i), buf)
                               : tool_net_label(t, net_of(t, i), buf);
}

static int pci_of(const struct tool *t, int i)
{
    return i < t->tree->n_gpus ? pvn_topo_pairs_gpu_pci(t->pairs, gpu_of(t, i))
                               : pvn_topo_pairs_net_pci(t->pairs, net_of(t, i));
}

static enum pvn_topo_npath nccl_class(const struct tool *t, int row, int col)
{
    int n_gpus = t->tree->n_gpus;
    if (row < n_gpus && col < n_gpus)
        return pvn_topo_ntree_gpu_gpu(t->tree, gpu_of(t, row), gpu_of(t, col))->type;
    if (row < n_gpus)
        return pvn_topo_ntree_gpu_net(t->tree, gpu_of(t, row), net_of(t, col))->type;
    if (col < n_gpus)
        return pvn_topo_ntree_gpu_net(t->tree, gpu_of(t, col), net_of(t, row))->type;
    return pvn_topo_ntree_net_net(t->tree, net_of(t, row), net_of(t, col))->type;
}

static bool is_hidden(const struct tool *t, int row, int col)
{
    struct pvn_topo_distance d;
    tool_smi(t, pci_of(t, row), pci_of(t, col), &d);
    return d.trust == PVN_TOPO_TRUST_HIDDEN;
}

/* nvidia-smi's class. It has none for NVLink hops, so a GPU pair with NVLink is NV. */
static const char *smi_class(const struct tool *t, int row, int col)
{
    struct pvn_topo_distance d;
    if (row < t->tree->n_gpus && col < t->tree->n_gpus &&
        nccl_class(t, row, col) <= PVN_TOPO_NPATH_NVB &&
        nccl_class(t, row, col) > PVN_TOPO_NPATH_LOC)
        return "NV";
    return pvn_topo_smi_class_name(tool_smi(t, pci_of(t, row), pci_of(t, col), &d));
}

/* The width of the longest column name and a blank. */
static int cell_width(const struct tool *t)
{
    char buf[16];
    int width = 4;
    for (int i = 0; i < count(t); i++) {
        int len = (int)strlen(label(t, i, buf));
        width = len > width ? len : width;
    }
    return width + 1;
}

static void print_table(const struct tool *t, bool smi)
{
    char buf[16];
    int n = count(t), cell = cell_width(t), head = cell > 5 ? cell + 1 : 6;
    fprintf(t->out, "%s%-*s%s", t->bold, head, "", t->off);
    for (int c = 0; c < n; c++)
        fprintf(t->out, "%s%*s%s", t->bold, cell + (c == t->tree->n_gpus), label(t, c, buf),
                t->off);
    fputc('\n', t->out);
    for (int r = 0; r < n; r++) {
        fprintf(t->out, "%s%-*s%s", t->bold, head, label(t, r, buf), t->off);
        for (int c = 0; c < n; c++) {
            const char *text = r == c ? "X"
                               : smi  ? smi_class(t, r, c)
                                      : pvn_topo_npath_name(nccl_class(t, r, c));
            enum pvn_topo_npath type = nccl_class(t, r, c);
            const char *shade = r == c || smi                ? ""
                                : type <= PVN_TOPO_NPATH_PXB ? t->green
                                : type >= PVN_TOPO_NPATH_SYS ? t->red
                                                             : t->yellow;
            fprintf(t->out, "%*s%s%s%s", cell + (c == t->tree->n_gpus) - (int)strlen(text), "",
                    shade, text, t->off);
        }
        fputc('\n', t->out);
    }
}

static bool far_domain(const struct tool *t, int i)
{
    int pci = pci_of(t, i);
    return pci >= 0 && t->topo->pci[pci].domain > 0xffff;
}

/* The reason why the two classes of a pair differ; NULL if they agree. */
static const char *difference(const struct tool *t, int row, int col, enum pvn_topo_smi_class smi)
{
    enum pvn_topo_npath type = nccl_class(t, row, col);
    static const enum pvn_topo_npath same[] = {
        [PVN_TOPO_SMI_SELF] = PVN_TOPO_NPATH_LOC, [PVN_TOPO_SMI_PIX] = PVN_TOPO_NPATH_PIX,
        [PVN_TOPO_SMI_PXB] = PVN_TOPO_NPATH_PXB,  [PVN_TOPO_SMI_PHB] = PVN_TOPO_NPATH_PHB,
        [PVN_TOPO_SMI_NODE] = PVN_TOPO_NPATH_DIS, [PVN_TOPO_SMI_SYS] = PVN_TOPO_NPATH_SYS,
    };
    if (smi == PVN_TOPO_SMI_UNKNOWN || type <= PVN_TOPO_NPATH_C2C || same[smi] == type)
        return NULL;
    if (smi == PVN_TOPO_SMI_NODE && type == PVN_TOPO_NPATH_PHB)
        return "NCCL has no NODE: to it, all host bridges of a NUMA node are one CPU";
    if (smi == PVN_TOPO_SMI_SELF || type == PVN_TOPO_NPATH_LOC)
        return "two ports of one card are one device to NCCL's tree";
    if (type == PVN_TOPO_NPATH_SYS && (far_domain(t, row) || far_domain(t, col)))
        return "NCCL reads only 4-digit PCI domains and puts what is in others on a NUMA node -1";
    if (type == PVN_TOPO_NPATH_SYS)
        return "NCCL compares the text of numa_node: it differs (-1 beside 0, say), so it sees two "
               "CPUs where the PCI tree shows one";
    if (smi == PVN_TOPO_SMI_SYS)
        return "the devices have the same numa_node text, which is all that NCCL looks at";
    if (type == PVN_TOPO_NPATH_PIX)
        return "NCCL keeps every second bridge and folds Broadcom's two-level switches into one, "
               "so several bridges can count as one switch";
    if (type == PVN_TOPO_NPATH_PXB)
        return "NCCL counts two switch nodes on the path, nvidia-smi one bridge";
    if (smi == PVN_TOPO_SMI_PIX || smi == PVN_TOPO_SMI_PXB)
        return "the bridge they share is not one that NCCL visits (it goes up two bridges at a "
               "time), so their paths meet at the CPU";
    return "NCCL's reduced tree joins them at another place than the full PCI tree";
}

static void print_differences(const struct tool *t)
{
    const char *printed[8];
    int n = count(t), n_printed = 0;
    for (int r = 0; r < n; r++) {
        for (int c = r + 1; c < n; c++) {
            struct pvn_topo_distance d;
            char a[16], b[16], text[320];
            enum pvn_topo_smi_class smi = tool_smi(t, pci_of(t, r), pci_of(t, c), &d);
            const char *why = difference(t, r, c, smi);
            int i = 0;
            while (i < n_printed && printed[i] != why)
                i++;
            if (!why || i < n_printed || n_printed == 8)
                continue;
            printed[n_printed++] = why;
            if (n_printed == 1)
                fprintf(t->out, "\n%sWhere they differ%s (first pair of each kind)\n", t->bold,
                        t->off);
            snprintf(text, sizeof(text), "%s-%s is %s to NCCL and %s to nvidia-smi: %s.",
                     label(t, r, a), label(t, c, b), pvn_topo_npath_name(nccl_class(t, r, c)),
                     pvn_topo_smi_class_name(smi), why);
            fputs("  ", t->out);
            tool_wrap(t, 2, 4, text);
        }
    }
}

static void print_legend(const struct tool *t)
{
    char buf[16], speed[48], what[128], numa[16];
    fputc('\n', t->out);
    for (int i = 0; i < count(t); i++) {
        bool gpu = i < t->tree->n_gpus;
        int n = gpu ? gpu_of(t, i) : net_of(t, i);
        int node = tool_numa(t, pci_of(t, i), gpu ? t->tree->gpus[n] : t->tree->nets[n]);
        const char *busid = gpu ? tool_gpu(t, n)->busid : tool_net_busid(t, n);
        snprintf(numa, sizeof(numa), node == PVN_TOPO_UNKNOWN ? "?" : "%d", node);
        fprintf(t->out, "%-6s %-14s numa %s", label(t, i, buf), busid[0] ? busid : "no PCI", numa);
        if (!gpu)
            fprintf(t->out, "  %s, %s", tool_net(t, n)->net.name,
                    tool_net_speed(t, n, speed, sizeof(speed)));
        else if (tool_gpu_what(t, n, what, sizeof(what))[0])
            fprintf(t->out, "  %s", what);
        fputc('\n', t->out);
    }
}

int cmd_matrix(struct tool *t, int argc, char **argv)
{
    (void)argv;
    if (argc > 0) {
        tool_error("matrix takes no arguments; another machine is named by --root");
        return TOOL_USAGE;
    }
    int status = tool_load(t);
    if (status != TOOL_OK)
        return status;
    int done = tool_devices_status(t);
    if (t->json)
        return json_matrix(t) == TOOL_OK ? done : TOOL_INPUT;
    tool_print_notes(t);
    if (count(t) == 0) {
        fprintf(t->out, "No GPU and no network device was found.\n");
        return done;
    }
    fprintf(t->out, "%sNCCL%s (the path in its tree, before PXN)\n", t->bold, t->off);
    print_table(t, false);
    bool hidden = false, known = false;
    for (int r = 0; r < count(t); r++) {
        for (int c = r + 1; c < count(t); c++) {
            hidden |= is_hidden(t, r, c);
            known |= strcmp(smi_class(t, r, c), "?") != 0;
        }
    }
    if (t->topo) {
        fprintf(t->out, "\n%snvidia-smi topo -m%s (the full PCI tree)%s\n", t->bold, t->off,
                known || count(t) == 1 ? "" : ": nothing of it is known here");
        if (known || count(t) == 1)
            print_table(t, true);
    }
    print_legend(t);
    if (hidden) {
        fputc('\n', t->out);
        tool_wrap(t, 0, 0,
                  "This is a guest whose hypervisor hides the PCIe tree. NCCL's classes above are "
                  "what it will believe, not how the hardware is wired; ? is not known.");
    }
    print_differences(t);
    fputc('\n', t->out);
    tool_print_nvlink_remark(t);
    fprintf(t->out,
            "Best first: NVL %s, PIX one PCIe switch, PXB several switches, PHB the CPU,\n"
            "NODE host bridges of one NUMA node (nvidia-smi only), SYS between NUMA nodes.\n",
            tool_gpu_link(t));
    return done;
}
