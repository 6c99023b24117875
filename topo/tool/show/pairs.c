/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo pairs and why: the NIC for each GPU, by NCCL's choice and by our advice, with the
 * reasons. */
#include "topo/tool/show/show.h"

#include <stdlib.h>
#include <string.h>

#include "topo/tool/base/json.h"
#include "topo/tool/load/load.h"

static void print_note(const struct tool *t)
{
    if (t->pairs->note[0]) {
        fprintf(t->out, "%sNote:%s ", t->yellow, t->off);
        tool_wrap(t, 6, 6, t->pairs->note);
        fputc('\n', t->out);
    }
}

/* The class of a pair, with a question mark if it is only what the hypervisor shows. A pair without
 * GPUDirect keeps the class of its path, so that classes can be compared. */
static const char *class_of(const struct tool *t, int gpu, int net, bool taken, char *buf,
                            size_t len)
{
    const struct pvn_topo_nroute *route = pvn_topo_ntree_route(t->tree, gpu, net);
    enum pvn_topo_npath path = pvn_topo_ntree_gpu_net(t->tree, gpu, net)->type;
    snprintf(buf, len, "%s%s%s", pvn_topo_npath_name(taken && !route->detour ? route->type : path),
             pvn_topo_pairs_hidden(t->pairs, gpu, net) ? "?" : "",
             taken && route->detour ? " through the CPU" : "");
    return buf;
}

static void print_verdict(const struct tool *t, const struct pvn_topo_pair *pair)
{
    struct pvn_topo_gdr gdr;
    pvn_topo_gdr_judge(t->pairs, pair->gpu, pair->advice, &gdr);
    fprintf(t->out, "  GPUDirect ");
    tool_wrap(t, 12, 10, gdr.verdict);
}

static bool is_advised(const struct pvn_topo_pair *pair, int net)
{
    bool yes = pair->advice == net;
    for (int i = 0; i < pair->n_more; i++)
        yes |= pair->more[i] == net;
    return yes;
}

static void print_pair(const struct tool *t, const struct pvn_topo_pair *pair)
{
    char gpu[16], what[128], class[48], text[128 * PVN_TOPO_PAIR_NETS] = "";
    const struct pvn_topo_nnode *node = tool_gpu(t, pair->gpu);
    fprintf(t->out, "%s%s%s %s", t->bold, tool_gpu_label(t, pair->gpu, gpu), t->off, node->busid);
    tool_gpu_what(t, pair->gpu, what, sizeof(what));
    fprintf(t->out, "%s%s\n", what[0] ? "  " : "", what);

    fprintf(t->out, "  NCCL    ");
    for (int i = 0; i < pair->n_nccl; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s (%s)", i ? ", " : "",
                 tool_net(t, pair->nccl[i])->net.name,
                 class_of(t, pair->gpu, pair->nccl[i],
                          pvn_topo_ntree_route(t->tree, pair->gpu, pair->nccl[i])->type, class,
                          sizeof(class)));
    if (pair->n_nccl == 0)
        snprintf(text, sizeof(text), "none");
    tool_wrap(t, 10, 10, text);
    fprintf(t->out, "%*s%s", 10, "", t->dim);
    tool_wrap(t, 10, 10, pair->nccl_why);
    fputs(t->off, t->out);

    bool same = pair->n_nccl == 1 + pair->n_more;
    for (int i = 0; i < pair->n_nccl; i++)
        same &= is_advised(pair, pair->nccl[i]);
    if (pair->advice < 0)
        return;
    if (same) {
        char whole[PVN_TOPO_PAIR_WHY + 16];
        snprintf(whole, sizeof(whole), "the same; %s", pair->advice_why);
        fprintf(t->out, "  advice  ");
        tool_wrap(t, 10, 10, whole);
        print_verdict(t, pair);
        return;
    }
    fprintf(t->out, "  advice  %s%s (%s)", t->green, tool_net(t, pair->advice)->net.name,
            class_of(t, pair->gpu, pair->advice, false, class, sizeof(class)));
    for (int i = 0; i < pair->n_more; i++)
        fprintf(t->out, ", %s (%s)", tool_net(t, pair->more[i])->net.name,
                class_of(t, pair->gpu, pair->more[i], false, class, sizeof(class)));
    fprintf(t->out, "%s\n", t->off);
    fprintf(t->out, "%*s%s", 10, "", t->dim);
    tool_wrap(t, 10, 10, pair->advice_why);
    fputs(t->off, t->out);
    print_verdict(t, pair);
}

/* Prints the nets that a plugin with virtual devices (ours has them since API 9) would have to
 * join. */
static void print_fusion(const struct tool *t)
{
    int n = t->tree->n_nets, *group = calloc((size_t)n + 1, sizeof(*group)), most = 0;
    char text[1200] = "", problem[512];
    if (!group ||
        pvn_topo_pairs_fusion(t->pairs, PVN_TOPO_FUSION_MAX, group, problem, sizeof(problem)) < 0) {
        free(group);
        return;
    }
    for (int first = 0; first < n; first++) {
        int members = 0, shown = 0;
        for (int i = 0; i < n; i++)
            members += group[i] == first;
        most = members > most ? members : most;
        for (int i = 0; members > 1 && i < n; i++) {
            size_t used = strlen(text);
            if (group[i] == first)
                snprintf(text + used, sizeof(text) - used, "%s%s",
                         shown++ ? "+"
                         : used  ? ", "
                                 : "",
                         tool_net(t, i)->net.name);
        }
    }
    size_t used = strlen(text);
    if (problem[0])
        snprintf(text, sizeof(text), "NCCL_NET_FORCE_MERGE: %s", problem);
    else if (used > 0)
        snprintf(text + used, sizeof(text) - used, " (%s keeps them apart%s)",
                 t->env.force_merge ? "without NCCL_NET_FORCE_MERGE, NCCL_NET_MERGE_LEVEL=LOC"
                                    : "NCCL_NET_MERGE_LEVEL=LOC",
                 most > 4 ? "; NCCL before 2.30 joins 4 at most" : "");
    if (text[0]) {
        fprintf(t->out, problem[0] ? "Fused: " : "Fused when the plugin offers it: ");
        tool_wrap(t, problem[0] ? 7 : 32, problem[0] ? 7 : 2, text);
    }
    free(group);
}

/* Prints network functions without a device. A card whose driver did not bind is the usual reason
 * for a NIC that nobody uses. */
static void print_idle_nics(const struct tool *t)
{
    char text[900] = "Network functions without a device: ", what[128];
    int n = 0;
    for (int i = 0; t->topo && i < t->topo->npci; i++) {
        const struct pvn_topo_pci *f = &t->topo->pci[i];
        size_t used = strlen(text);
        if (f->class_code == PVN_TOPO_UNKNOWN || f->class_code >> 16 != 0x02 || f->physfn >= 0 ||
            pvn_topo_net_of_pci(t->topo, i) >= 0 || pvn_topo_rdma_of_pci(t->topo, i) >= 0)
            continue;
        if (n++ < 4)
            snprintf(text + used, sizeof(text) - used, "%s%s %s", n > 1 ? ", " : "", f->bdf,
                     tool_pci_what(t, i, what, sizeof(what)));
    }
    if (n == 0)
        return;
    size_t used = strlen(text);
    if (n > 4)
        used += (size_t)snprintf(text + used, sizeof(text) - used, " and %d more", n - 4);
    snprintf(text + used, sizeof(text) - used, " (no driver, or the capture lacks it)");
    tool_wrap(t, 0, 2, text);
}

static void print_not_chosen(const struct tool *t)
{
    if (t->not_chosen[0]) {
        fputs("Left out by variables: ", t->out);
        tool_wrap(t, 23, 2, t->not_chosen);
    }
}

/* Prints the quality of the advice. It is called an optimum only if it rests on no guess. */
static void print_quality(const struct tool *t)
{
    char text[320];
    if (t->pairs->n < 2)
        return;
    if (t->pairs->unknown[0])
        snprintf(text, sizeof(text),
                 "The advice is the best by what is shown, but %s is not known.",
                 t->pairs->unknown);
    else
        snprintf(text, sizeof(text), "The advice is %s.",
                 t->pairs->exact ? "a proven optimum" : "the best found, not proven");
    fputs(t->dim, t->out);
    tool_wrap(t, 0, 0, text);
    fputs(t->off, t->out);
}

static void print_machine_lines(const struct tool *t)
{
    char text[320];
    bool rails = false;
    pvn_topo_pairs_cross_nic(t->pairs, text, sizeof(text));
    fprintf(t->out, "\nBetween hosts: ");
    tool_wrap(t, 15, 15, text);
    for (int n = 0; n < t->tree->n_nets; n++)
        rails |= tool_net(t, n)->net.rail >= 0;
    if (rails) {
        fprintf(t->out, "Rails:");
        for (int n = 0; n < t->tree->n_nets; n++)
            if (tool_net(t, n)->net.rail >= 0)
                fprintf(t->out, " %s=%d", tool_net(t, n)->net.name, tool_net(t, n)->net.rail);
        fputc('\n', t->out);
    }
    print_fusion(t);
    if (t->nics.left_out[0])
        fprintf(t->out, "Left out because they are down: %s\n", t->nics.left_out);
    tool_print_down(t);
    print_not_chosen(t);
    print_idle_nics(t);
    tool_print_nvlink_remark(t);
    print_quality(t);
}

int cmd_pairs(struct tool *t, int argc, char **argv)
{
    (void)argv;
    if (argc > 0) {
        tool_error("pairs takes no arguments; for one pair use: pvn-topo why GPU NIC");
        return TOOL_USAGE;
    }
    int status = tool_load(t);
    if (status != TOOL_OK)
        return status;
    int done = tool_devices_status(t);
    if (t->json)
        return json_pairs(t) == TOOL_OK ? done : TOOL_INPUT;
    tool_print_notes(t);
    print_note(t);
    if (t->pairs->n == 0 || t->tree->n_nets == 0) {
        fprintf(t->out, "Nothing to pair: %d GPU%s, %d network device%s.\n", t->pairs->n,
                t->pairs->n == 1 ? "" : "s", t->tree->n_nets, t->tree->n_nets == 1 ? "" : "s");
        print_not_chosen(t);
        return done;
    }
    for (int g = 0; g < t->pairs->n; g++) {
        if (g > 0)
            fputc('\n', t->out);
        print_pair(t, &t->pairs->list[t->gpu_order[g]]);
    }
    print_machine_lines(t);
    return done;
}

static void print_hop(const struct tool *t, int node, int next)
{
    const struct pvn_topo_nnode *n = &t->tree->nodes[node];
    static const char *const kinds[] = {
        [PVN_TOPO_NN_CPU] = "NUMA node", [PVN_TOPO_NN_PCI] = "switch",
        [PVN_TOPO_NN_DEV] = "GPU",       [PVN_TOPO_NN_NVS] = "NVSwitch",
        [PVN_TOPO_NN_NIC] = "NIC",       [PVN_TOPO_NN_NET] = "network device"};
    if (n->kind == PVN_TOPO_NN_GPU)
        return;
    fprintf(t->out, "    %-15s ", kinds[n->kind]);
    if (n->kind == PVN_TOPO_NN_CPU)
        fprintf(t->out, "%d", n->cpu.numa);
    else if (n->kind == PVN_TOPO_NN_NET)
        fprintf(t->out, "%s", n->net.name);
    else
        fprintf(t->out, "%s", n->busid[0] ? n->busid : "-");
    if (n->flattened)
        fprintf(t->out, " (with %d Broadcom sub-switches folded in)", n->flattened);
    for (int i = 0; next >= 0 && i < n->n_links; i++)
        if (n->links[i].to == next)
            fprintf(t->out, "%s  | %.1f GB/s%s", t->dim, n->links[i].bw, t->off);
    fputc('\n', t->out);
}

static void print_route(const struct tool *t, int gpu, int net)
{
    int hops[256];
    int n = pvn_topo_ntree_hops(t->tree, gpu, net, hops, 256);
    const struct pvn_topo_npath_info *path = pvn_topo_ntree_gpu_net(t->tree, gpu, net);
    const struct pvn_topo_nroute *route = pvn_topo_ntree_route(t->tree, gpu, net);
    struct pvn_topo_distance d;
    char text[512];

    fprintf(t->out, "  %sPath%s ", t->bold, t->off);
    snprintf(text, sizeof(text), "NCCL: %s, %s; %.1f GB/s by its model.",
             pvn_topo_npath_name(path->type), pvn_topo_npath_words(path->type), path->bw);
    tool_wrap(t, 7, 7, text);
    for (int i = 0; i < n; i++)
        print_hop(t, hops[i], i + 1 < n ? hops[i + 1] : -1);
    if (route->type == PVN_TOPO_NPATH_PXN) {
        char relay[16];
        fprintf(t->out, "       In use: PXN, %.1f GB/s: over %s to %s, which sends for it.\n",
                route->bw, tool_gpu_link(t), tool_gpu_label(t, route->via_gpu, relay));
    } else if (route->detour) {
        fprintf(t->out,
                "       In use: %s, %.1f GB/s: GPUDirect is refused, so the data goes through "
                "the CPU.\n",
                pvn_topo_npath_name(route->type), route->bw);
    } else if (route->type != path->type) {
        fprintf(t->out, "       In use: %s: %s.\n", pvn_topo_npath_name(route->type),
                pvn_topo_npath_words(route->type));
    }
    if (tool_smi(t, pvn_topo_pairs_gpu_pci(t->pairs, gpu), pvn_topo_pairs_net_pci(t->pairs, net),
                 &d) != PVN_TOPO_SMI_UNKNOWN ||
        d.reason[0]) {
        fprintf(t->out, "       ");
        snprintf(text, sizeof(text), "nvidia-smi: %s. %s%s", pvn_topo_smi_class_name(d.smi),
                 d.reason, d.trust == PVN_TOPO_TRUST_MEASURED ? "" : " (");
        if (d.trust != PVN_TOPO_TRUST_MEASURED)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s)",
                     pvn_topo_trust_text(d.trust));
        tool_wrap(t, 7, 7, text);
    }
}

static void print_links(const struct tool *t, int gpu, int net)
{
    int ends[2] = {t->topo ? pvn_topo_pairs_gpu_pci(t->pairs, gpu) : -1,
                   t->topo ? pvn_topo_pairs_net_pci(t->pairs, net) : -1};
    for (int i = 0; i < 2; i++) {
        const struct pvn_topo_pci *f = ends[i] >= 0 ? &t->topo->pci[ends[i]] : NULL;
        if (!f || f->link.speed_mts == PVN_TOPO_UNKNOWN || f->link.width == PVN_TOPO_UNKNOWN)
            continue;
        if (f->link.speed_mts < f->link.speed_max_mts || f->link.width < f->link.width_max) {
            char text[320], most[32] = "";
            if (f->link.width_max != PVN_TOPO_UNKNOWN)
                snprintf(most, sizeof(most), " x%d", f->link.width_max);
            snprintf(text, sizeof(text), "Link of %s: now %s x%d, can do %s%s. %s", f->bdf,
                     pvn_topo_link_speed_name(f->link.speed_mts), f->link.width,
                     f->link.speed_max_mts != PVN_TOPO_UNKNOWN
                         ? pvn_topo_link_speed_name(f->link.speed_max_mts)
                         : "",
                     f->link.speed_max_mts != PVN_TOPO_UNKNOWN ? most : most + 1,
                     i == 0
                         ? "An idle GPU lowers its speed; NCCL reads what it is when a job starts."
                         : "NCCL uses the maximum and does not notice.");
            fputs("       ", t->out);
            tool_wrap(t, 7, 7, text);
        }
    }
}

static void print_choice(const struct tool *t, int gpu, int net)
{
    const struct pvn_topo_pair *pair = &t->pairs->list[gpu];
    char text[PVN_TOPO_PAIR_WHY + 160], label[16];
    bool taken = false;
    for (int i = 0; i < pair->n_nccl; i++)
        taken |= pair->nccl[i] == net;
    fprintf(t->out, "  %sChoice%s ", t->bold, t->off);
    if (taken)
        snprintf(text, sizeof(text), "NCCL takes it for %s: %s.", tool_gpu_label(t, gpu, label),
                 pair->nccl_why);
    else if (pair->n_nccl > 0)
        snprintf(text, sizeof(text), "NCCL takes %s instead: %s.",
                 tool_net(t, pair->nccl[0])->net.name, pair->nccl_why);
    else
        snprintf(text, sizeof(text), "NCCL has no NIC for this GPU: %s.", pair->nccl_why);
    tool_wrap(t, 9, 9, text);
    if (pair->advice >= 0) {
        snprintf(text, sizeof(text), "We advise %s: %s.",
                 pair->advice == net ? "it" : tool_net(t, pair->advice)->net.name,
                 pair->advice_why);
        fputs("         ", t->out);
        tool_wrap(t, 9, 9, text);
    }
}

static void print_gdr(const struct tool *t, int gpu, int net)
{
    struct pvn_topo_gdr gdr;
    char text[900];
    pvn_topo_gdr_judge(t->pairs, gpu, net, &gdr);
    fprintf(t->out, "  %sGPUDirect%s ", t->bold, t->off);
    tool_wrap(t, 12, 12, gdr.verdict);
    for (int i = 0; i < PVN_TOPO_GDR_CONDITIONS; i++) {
        const struct pvn_topo_gdr_step *step = &gdr.steps[i];
        const char *shade = step->result == PVN_TOPO_GDR_NO        ? t->red
                            : step->result == PVN_TOPO_GDR_UNKNOWN ? t->yellow
                                                                   : t->green;
        fprintf(t->out, "    %d %s%-7s%s ", i + 1, shade, pvn_topo_gdr_result_name(step->result),
                t->off);
        snprintf(text, sizeof(text), "%s: %s", step->title, step->seen);
        tool_wrap(t, 14, 14, text);
        if (step->result == PVN_TOPO_GDR_YES || step->result == PVN_TOPO_GDR_LIKELY)
            continue;
        if (step->needed[0]) {
            snprintf(text, sizeof(text), "needed: %s", step->needed);
            fprintf(t->out, "%14s", "");
            tool_wrap(t, 14, 14, text);
        }
        if (step->remedy[0]) {
            snprintf(text, sizeof(text), "remedy: %s", step->remedy);
            fprintf(t->out, "%14s", "");
            tool_wrap(t, 14, 14, text);
        }
    }
}

/* Prints which speed counts, because ibv_devinfo and ethtool show different numbers. */
static void print_pvrdma_speed(const struct tool *t, const struct pvn_topo_nic *nic)
{
    char text[320], speed[48];
    if (!nic || !nic->pvrdma || nic->rdma < 0)
        return;
    const struct pvn_topo_rdma_port *port = &t->topo->rdmas[nic->rdma].ports[nic->port_index];
    if (port->rate_mbps <= 0 || port->rate_mbps == nic->speed_mbps || nic->net < 0)
        return;
    snprintf(text, sizeof(text),
             "%s: vmw_pvrdma reports the constant %s; counted is the speed of its vmxnet3 %s, "
             "whose link its traffic takes.",
             tool_speed(nic->speed_mbps, speed, sizeof(speed)), port->rate_text,
             t->topo->nets[nic->net].name);
    fprintf(t->out, "  %sSpeed%s ", t->bold, t->off);
    tool_wrap(t, 8, 8, text);
}

static int no_such(const struct tool *t, bool gpu, const char *name)
{
    int n = gpu ? t->tree->n_gpus : t->tree->n_nets;
    char list[256] = "", label[16];
    for (int i = 0; i < n && i < 8; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%.24s", i ? ", " : "",
                 gpu ? tool_gpu_label(t, i, label) : tool_net(t, i)->net.name);
    }
    tool_error("there is no %s \"%s\", %s%s%s", gpu ? "GPU" : "NIC", name,
               n ? "there are: " : "there is none at all", list,
               n > 8 ? ", ... (pvn-topo matrix lists them)" : "");
    return TOOL_USAGE;
}

int cmd_why(struct tool *t, int argc, char **argv)
{
    char gpu_name[16], net_label[16], speed[48];
    if (argc != 2) {
        tool_error("why needs a GPU and a NIC, for example: pvn-topo why GPU0 mlx5_0");
        return TOOL_USAGE;
    }
    int status = tool_load(t);
    if (status != TOOL_OK)
        return status;
    int gpu = pvn_topo_pairs_find_gpu(t->pairs, argv[0]),
        net = pvn_topo_pairs_find_net(t->pairs, argv[1]);
    struct tool_down down;
    if (gpu >= 0 && net < 0 && tool_find_down(t, gpu, argv[1], &down)) {
        if (t->json)
            return json_why_down(t, gpu, &down);
        tool_print_notes(t);
        tool_why_down(t, gpu, &down);
        return TOOL_OK;
    }
    if (gpu < 0 || net < 0)
        tool_report_notes(t->root, t->topo);
    if (gpu < 0 || net < 0)
        return no_such(t, gpu < 0, gpu < 0 ? argv[0] : argv[1]);
    if (t->json)
        return json_why(t, gpu, net);
    tool_print_notes(t);
    fprintf(t->out, "%s%s %s  -  %s %s%s%s, %s%s\n", t->bold, tool_gpu_label(t, gpu, gpu_name),
            tool_gpu(t, gpu)->busid, tool_net_label(t, net, net_label), tool_net(t, net)->net.name,
            tool_net_busid(t, net)[0] ? " " : "", tool_net_busid(t, net),
            tool_net_speed(t, net, speed, sizeof(speed)), t->off);
    print_route(t, gpu, net);
    print_links(t, gpu, net);
    print_choice(t, gpu, net);
    print_gdr(t, gpu, net);
    const struct pvn_topo_nic *nic = pvn_topo_pairs_nic(t->pairs, net);
    print_pvrdma_speed(t, nic);
    if (nic && nic->path_note[0]) {
        fprintf(t->out, "  %spciPath%s ", t->bold, t->off);
        tool_wrap(t, 10, 10, nic->path_note);
    }
    return TOOL_OK;
}
