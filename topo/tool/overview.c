/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* An overview for new users: what pvn-topo sees, and which commands come next. */
#include "config.h"

#include <string.h>

#include "topo/tool/load/load.h"
#include "topo/tool/overview.h"
#include "topo/tool/show/show.h"
#include "topo/tool/stat/stat_look.h"

static void print_devices(const struct tool *t)
{
    enum { SHOWN = 8 };
    const struct pvn_topo_ntree *tree = t->tree;
    char label[16], what[160], speed[48];
    for (int i = 0; i < tree->n_gpus && i < SHOWN; i++) {
        int gpu = t->gpu_order[i];
        int pci = t->topo ? pvn_topo_pairs_gpu_pci(t->pairs, gpu) : -1;
        fprintf(t->out, "  %-6s %s%s%s\n", tool_gpu_label(t, gpu, label),
                pci >= 0 ? t->topo->pci[pci].bdf : t->tree->nodes[tool_gpu(t, gpu)->up].busid,
                pci >= 0 ? " " : "", tool_gpu_what(t, gpu, what, sizeof(what)));
    }
    if (tree->n_gpus > SHOWN)
        fprintf(t->out, "  and %d more GPUs\n", tree->n_gpus - SHOWN);
    for (int i = 0; i < tree->n_nets && i < SHOWN; i++) {
        int net = t->net_order[i];
        fprintf(t->out, "  %-6s %s, %s\n", tool_net_label(t, net, label),
                tool_net(t, net)->net.name, tool_net_speed(t, net, speed, sizeof(speed)));
    }
    if (tree->n_nets > SHOWN)
        fprintf(t->out, "  and %d more NICs\n", tree->n_nets - SHOWN);
}

/* Prints the plugin's processes on this machine. */
static void print_processes(const struct tool *t)
{
    struct stat_list list = {0};
    int alive = 0;
    stat_read(&list);
    for (int i = 0; i < list.n; i++)
        alive += list.file[i].life == PVN_STATS_ALIVE;
    stat_list_free(&list);
    if (alive > 0)
        fprintf(t->out, "  %d running process%s the plugin\n", alive,
                alive == 1 ? " uses" : "es use");
}

static void print_next(const struct tool *t, const char *command, const char *what)
{
    char root[200];
    bool here = strcmp(t->root, "/") == 0;
    fprintf(t->out, "  pvn-topo%s%s %-7s  %s\n", here ? "" : " --root ",
            here ? "" : tool_escape(t->root, root, sizeof(root)), command, what);
}

int cmd_overview(struct tool *t, int argc, char **argv)
{
    char root[200];
    int status = tool_load(t);
    (void)argc;
    (void)argv;
    if (status != TOOL_OK)
        return status;
    if (t->topo)
        dump_header(t);
    else
        fprintf(t->out, "%s, an NCCL topology file\n", tool_escape(t->root, root, sizeof(root)));
    print_devices(t);
    if (t->tree->n_gpus == 0 || t->tree->n_nets == 0)
        fprintf(t->out, "  no %s\n",
                t->tree->n_nets > 0   ? "GPU: pairs and why have nothing to say here"
                : t->tree->n_gpus > 0 ? "NIC that NCCL would take"
                                      : "GPU, and no NIC that NCCL would take");
    bool here = strcmp(t->root, "/") == 0;
    if (here)
        print_processes(t);
    fputs("\nWhat helps most:\n", t->out);
    if (t->topo)
        print_next(t, "check", "what is wrong, with the remedy of each fault");
    if (t->tree->n_gpus > 0)
        print_next(t, "pairs", "the NIC that NCCL takes for each GPU, and a better one");
    else
        print_next(t, "dump", "how the machine is wired");
    if (here)
        print_next(t, "stat", "what jobs do, and which rank the others wait for");
    else
        print_next(t, "matrix", "how far each device is from each other one");
    fputs("pvn-topo --help has the rest, by task\n", t->out);
    return TOOL_OK;
}
