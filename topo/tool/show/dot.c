/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A picture of NCCL's tree for Graphviz, with the pairs drawn in. */
#include "topo/tool/show/show.h"

#include <string.h>

static const char *const colours[] = {"#1b7837", "#2166ac", "#b2182b", "#762a83",
                                      "#8c510a", "#01665e", "#c51b7d", "#4d4d4d"};

static const char *colour(int i)
{
    return colours[i % (int)(sizeof(colours) / sizeof(colours[0]))];
}

static void quoted(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if ((unsigned char)*text >= 0x20)
            fputc(*text, out);
    }
}

/* The box of a node: a GPU and its hardware share one, and so do a NIC and its nets. */
static int box_of(const struct pvn_topo_ntree *tree, int node)
{
    enum pvn_topo_nnode_kind kind = tree->nodes[node].kind;
    return kind == PVN_TOPO_NN_GPU || kind == PVN_TOPO_NN_NET ? tree->nodes[node].up : node;
}

static void draw_gpu(const struct tool *t, int dev, FILE *out)
{
    const struct pvn_topo_ntree *tree = t->tree;
    char label[16], what[64] = "";
    fprintf(out, "  n%d [shape=box, style=\"filled,rounded\", fillcolor=\"#d9f0d3\", label=\"",
            dev);
    for (int g = 0; g < tree->n_gpus; g++) {
        if (tree->nodes[tree->gpus[g]].up == dev) {
            fprintf(out, "%s ", tool_gpu_label(t, g, label));
            if (t->topo)
                tool_gpu_what(t, g, what, sizeof(what));
        }
    }
    fprintf(out, "\\n%s", tree->nodes[dev].busid);
    if (what[0]) {
        fputs("\\n", out);
        quoted(out, what);
    }
    fputs("\"];\n", out);
}

static void draw_nic(const struct tool *t, int nic, FILE *out)
{
    const struct pvn_topo_ntree *tree = t->tree;
    char label[16], speed[48];
    fprintf(out, "  n%d [shape=box, style=filled, fillcolor=\"#d1e5f0\", label=\"", nic);
    for (int n = 0; n < tree->n_nets; n++) {
        if (tree->nodes[tree->nets[n]].up != nic)
            continue;
        fprintf(out, "%s ", tool_net_label(t, n, label));
        quoted(out, tool_net(t, n)->net.name);
        fprintf(out, "\\n%s\\n", tool_net_speed(t, n, speed, sizeof(speed)));
    }
    fprintf(out, "%s\"];\n", tree->nodes[nic].busid[0] ? tree->nodes[nic].busid : "no PCI");
}

/* Draws a NUMA node as one block, a subgraph headed by the PVN_TOPO_NN_CPU node. */
static void draw_block(const struct tool *t, int cpu, FILE *out)
{
    const struct pvn_topo_ntree *tree = t->tree;
    fprintf(out,
            " subgraph cluster_%d {\n  style=rounded; color=\"#bbbbbb\"; bgcolor=\"#fafafa\";\n"
            "  label=\"NUMA node %d\"; labelloc=t; labeljust=l; fontname=\"Helvetica\"; "
            "fontsize=11;\n"
            "  n%d [shape=ellipse, style=filled, fillcolor=\"#fee0b6\", label=\"CPU",
            cpu, tree->nodes[cpu].cpu.numa, cpu);
    /* The link of two NUMA nodes has a label. With more, each node states its bandwidth to all
     * others. */
    if (tree->n_cpus > 2)
        fprintf(out, "\\n%.4g to each other", tree->nodes[cpu].cpu.inter_bw);
    fputs("\"];\n", out);
    for (int i = 0; i < tree->n_nodes; i++) {
        const struct pvn_topo_nnode *n = &tree->nodes[i];
        int top = i;
        while (tree->nodes[top].up >= 0)
            top = tree->nodes[top].up;
        if (top != cpu || i == cpu)
            continue;
        if (n->kind == PVN_TOPO_NN_DEV)
            draw_gpu(t, i, out);
        else if (n->kind == PVN_TOPO_NN_NIC)
            draw_nic(t, i, out);
        else if (n->kind == PVN_TOPO_NN_PCI)
            fprintf(out,
                    "  n%d [shape=hexagon, style=filled, fillcolor=\"#e0e0e0\", "
                    "label=\"%s\\n%s\"];\n",
                    i, tool_class_stated(t, i) ? "switch" : "no class", n->busid);
    }
    fputs(" }\n", out);
}

/* Uses xlabel, because Graphviz 2.43 fails ("trouble in init_rank") on labels of edges that do not
 * rank. */
static void draw_cpu_link(const struct tool *t, int from, const struct pvn_topo_nlink *link,
                          FILE *out)
{
    char label[32] = "";
    if (t->tree->n_cpus == 2)
        snprintf(label, sizeof(label), "%.4g", link->bw);
    fprintf(out, " n%d -- n%d [xlabel=\"%s\", style=bold, color=\"#e08214\", constraint=false];\n",
            from, link->to, label);
}

static void draw_tree_links(const struct tool *t, FILE *out)
{
    const struct pvn_topo_ntree *tree = t->tree;
    for (int i = 0; i < tree->n_nodes; i++) {
        const struct pvn_topo_nnode *n = &tree->nodes[i];
        if (n->up >= 0 && n->kind != PVN_TOPO_NN_GPU && n->kind != PVN_TOPO_NN_NET)
            fprintf(out, " n%d -- n%d [label=\"%.4g\", color=\"#555555\", penwidth=%.1f];\n", n->up,
                    i, n->up_bw,
                    n->up_bw >= 48   ? 3.0
                    : n->up_bw >= 24 ? 2.2
                    : n->up_bw >= 12 ? 1.5
                                     : 0.8);
        for (int l = 0; l < n->n_links; l++) {
            int to = n->links[l].to;
            bool once = to > i || tree->nodes[to].kind == PVN_TOPO_NN_NVS;
            if (n->links[l].kind == PVN_TOPO_NL_SYS && to > i)
                draw_cpu_link(t, i, &n->links[l], out);
            if (n->links[l].kind == PVN_TOPO_NL_NVL && n->kind == PVN_TOPO_NN_DEV && once)
                fprintf(out,
                        " n%d -- n%d [color=\"#7fbf7b\", penwidth=2, constraint=false, "
                        "xlabel=\"NVLink %.4g\", fontcolor=\"#7fbf7b\"];\n",
                        i, to, n->links[l].bw);
            if (n->links[l].kind == PVN_TOPO_NL_C2C && to > i)
                fprintf(out, " n%d -- n%d [color=\"#7fbf7b\", penwidth=3, label=\"C2C %.4g\"];\n",
                        i, to, n->links[l].bw);
        }
    }
    for (int i = 0; i < tree->n_nodes; i++) {
        if (tree->nodes[i].kind == PVN_TOPO_NN_NVS)
            fprintf(out,
                    " n%d [shape=hexagon, style=filled, fillcolor=\"#a6dba0\", "
                    "label=\"NVSwitch\"];\n",
                    i);
    }
}

/* Draws a pair as a small node of its own below the GPU and the NIC. Straight lines across the
 * picture would cross everything between the two. */
static void draw_pair(const struct tool *t, int gpu, int net, bool taken, FILE *out)
{
    const struct pvn_topo_ntree *tree = t->tree;
    const struct pvn_topo_nroute *route = pvn_topo_ntree_route(tree, gpu, net);
    bool by_cpu = taken && route->detour;
    enum pvn_topo_npath type =
        taken && !by_cpu ? route->type : pvn_topo_ntree_gpu_net(tree, gpu, net)->type;
    int ends[2] = {box_of(tree, tree->gpus[gpu]), box_of(tree, tree->nets[net])};
    fprintf(out,
            " p%d_%d [shape=plaintext, margin=0.02, width=0, height=0, fontcolor=\"%s\", "
            "label=\"%s%s%s\"];\n",
            gpu, net, colour(gpu), pvn_topo_npath_name(type),
            pvn_topo_pairs_hidden(t->pairs, gpu, net) ? "?" : "", by_cpu ? " through the CPU" : "");
    for (int i = 0; i < 2; i++)
        fprintf(out, " n%d -- p%d_%d [color=\"%s\", style=%s, penwidth=2.2, weight=%d];\n", ends[i],
                gpu, net, colour(gpu), taken ? "solid" : "dashed", i == 0 ? 3 : 1);
}

/* Draws NCCL's choice as a solid line and our advice, if it differs, as a dashed one. */
static void draw_pairs(const struct tool *t, FILE *out)
{
    for (int g = 0; g < t->pairs->n; g++) {
        const struct pvn_topo_pair *pair = &t->pairs->list[g];
        bool taken = false;
        for (int i = 0; i < pair->n_nccl; i++) {
            draw_pair(t, g, pair->nccl[i], true, out);
            taken |= pair->nccl[i] == pair->advice;
        }
        if (!taken && pair->advice >= 0)
            draw_pair(t, g, pair->advice, false, out);
    }
}

int dump_dot(const struct tool *t, FILE *out)
{
    fputs("graph pvn_topo {\n rankdir=TB; nodesep=0.25; ranksep=0.55; splines=true;\n"
          " node [fontname=\"Helvetica\", fontsize=10, margin=\"0.08,0.05\"];\n"
          " edge [fontname=\"Helvetica\", fontsize=9];\n"
          " labelloc=b; fontname=\"Helvetica\"; fontsize=10;\n label=\"",
          out);
    quoted(out, strcmp(t->root, "/") == 0 ? "this machine" : t->root);
    fputs("\\nnumbers: GB/s in NCCL's model.  coloured: the NIC NCCL takes for a GPU; dashed: the "
          "one we advise instead",
          out);
    if (t->pairs->note[0])
        fputs("\\n? : hidden by the hypervisor, or see pvn-topo pairs", out);
    fputs("\";\n", out);
    for (int c = 0; c < t->tree->n_cpus; c++)
        draw_block(t, t->tree->cpus[c], out);
    draw_tree_links(t, out);
    draw_pairs(t, out);
    fputs("}\n", out);
    return TOOL_OK;
}
