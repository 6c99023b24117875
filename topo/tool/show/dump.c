/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo dump: the machine as text, in the full PCI tree or in NCCL's. */
#include "topo/tool/show/show.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topo/nccl/lost.h"
#include "topo/tool/base/json.h"
#include "topo/tool/load/load.h"

/* The prefix of a line of the tree: the lines of its ancestors, then the branch. */
struct branch {
    char text[512];
};

static struct branch grow(const struct tool *t, const struct branch *above, bool last)
{
    struct branch b;
    snprintf(b.text, sizeof(b.text), "%.480s%s", above->text,
             last      ? "   "
             : t->utf8 ? "\u2502  "
                       : "|  ");
    return b;
}

static void start_line(const struct tool *t, const struct branch *b, bool last)
{
    fprintf(t->out, "%s%s", b->text,
            t->utf8 ? (last ? "\u2514\u2500 " : "\u251c\u2500 ") : (last ? "`- " : "|- "));
}

static int columns(const char *text, size_t len)
{
    int n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\033') {
            while (i < len && text[i] != 'm')
                i++;
            continue;
        }
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return n;
}

/* Prints a node's text at column `at`. Parts separated by two spaces may move to a line of their
 * own if the line is full; these lines begin with the node's prefix. */
static void emit(const struct tool *t, const char *left, int at, const char *text)
{
    bool fresh = true;
    while (*text) {
        const char *end = strstr(text + 2, "  ");
        size_t len = end ? (size_t)(end - text) : strlen(text);
        if (!fresh && at + columns(text, len) > t->width) {
            size_t gap = strspn(text, " ");
            fprintf(t->out, "\n%s    ", left);
            at = columns(left, strlen(left)) + 4;
            text += gap;
            len -= gap;
        }
        fprintf(t->out, "%.*s", (int)len, text);
        at += columns(text, len);
        text += len;
        fresh = false;
    }
}

/* One node of a tree on lines of its own. */
static void print_line(const struct tool *t, const struct branch *left, int at,
                       void (*print)(const struct tool *t, int node), int node)
{
    struct tool sub = *t;
    char *text = NULL;
    size_t len;
    if (!(sub.out = open_memstream(&text, &len)))
        return;
    print(&sub, node);
    if (fclose(sub.out) == 0)
        emit(t, left->text, at, text);
    fputc('\n', t->out);
    free(text);
}

/* ---- full tree ---- */

static bool is_interesting(const struct pvn_topo *topo, int pci)
{
    return pvn_topo_gpu_of_pci(topo, pci) >= 0 || pvn_topo_rdma_of_pci(topo, pci) >= 0 ||
           pvn_topo_net_of_pci(topo, pci) >= 0 || topo->pci[pci].class_code >> 16 == 0x02;
}

static bool *mark_shown(const struct tool *t)
{
    const struct pvn_topo *topo = t->topo;
    bool *shown = calloc((size_t)topo->npci + 1, sizeof(*shown));
    for (int i = 0; shown && i < topo->npci; i++) {
        if (!t->all && !is_interesting(topo, i))
            continue;
        for (int up = i, steps = 0; up >= 0 && steps <= topo->npci;
             up = topo->pci[up].parent, steps++)
            shown[up] = true;
    }
    return shown;
}

static void print_link(const struct tool *t, const struct pvn_topo_pci *f)
{
    const struct pvn_topo_pci_link *l = &f->link;
    if (l->speed_max_mts == PVN_TOPO_UNKNOWN && l->speed_mts == PVN_TOPO_UNKNOWN)
        return;
    int speed = l->speed_mts != PVN_TOPO_UNKNOWN ? l->speed_mts : l->speed_max_mts;
    int width = l->width != PVN_TOPO_UNKNOWN ? l->width : l->width_max;
    fprintf(t->out, "  %s%.1f GT/s", t->dim, speed / 1000.0);
    if (width != PVN_TOPO_UNKNOWN)
        fprintf(t->out, " x%d", width);
    fputs(t->off, t->out);
    bool slow = l->speed_max_mts != PVN_TOPO_UNKNOWN && l->speed_mts != PVN_TOPO_UNKNOWN &&
                l->speed_mts < l->speed_max_mts;
    bool narrow =
        l->width_max != PVN_TOPO_UNKNOWN && l->width != PVN_TOPO_UNKNOWN && l->width < l->width_max;
    if (!slow && !narrow)
        return;
    /* Speed or width may be unknown. */
    fprintf(t->out, " %s(can do", t->yellow);
    if (l->speed_max_mts != PVN_TOPO_UNKNOWN)
        fprintf(t->out, " %.1f GT/s", l->speed_max_mts / 1000.0);
    if (l->width_max != PVN_TOPO_UNKNOWN)
        fprintf(t->out, " x%d", l->width_max);
    fprintf(t->out, ")%s", t->off);
}

static void print_rdma(const struct tool *t, int index)
{
    const struct pvn_topo_rdma *r = &t->topo->rdmas[index];
    fprintf(t->out, "  %s%s%s", t->green, r->name, t->off);
    for (int p = 0; p < r->nports; p++) {
        const struct pvn_topo_rdma_port *port = &r->ports[p];
        char speed[32];
        fprintf(t->out, "%s port %d %s %s", p ? "," : "", port->num,
                port->state == 4      ? "active"
                : port->state_text[0] ? port->state_text
                                      : "state unknown",
                tool_speed(port->rate_mbps, speed, sizeof(speed)));
        if (port->netdev >= 0)
            fprintf(t->out, " (%s)", t->topo->nets[port->netdev].name);
    }
}

static void print_function(const struct tool *t, int index)
{
    const struct pvn_topo *topo = t->topo;
    const struct pvn_topo_pci *f = &topo->pci[index];
    int gpu = pvn_topo_gpu_of_pci(topo, index), rdma = pvn_topo_rdma_of_pci(topo, index);
    char what[160];
    fprintf(t->out, "%s%s%s", gpu >= 0 || rdma >= 0 ? t->bold : "", f->bdf, t->off);
    if (f->flags & PVN_TOPO_PCI_INVENTED)
        fprintf(t->out, " %s[from hints]%s", t->blue, t->off);
    if (f->kind != PVN_TOPO_PCI_ENDPOINT)
        fprintf(t->out, " %s", pvn_topo_pci_kind_name(f->kind));
    if (gpu >= 0)
        fprintf(t->out, " %sGPU%s %s", t->green, t->off, topo->gpus[gpu].model);
    if (f->kind == PVN_TOPO_PCI_ENDPOINT && !(gpu >= 0 && topo->gpus[gpu].model[0]))
        fprintf(t->out, " %s", tool_pci_what(t, index, what, sizeof(what)));
    if (rdma >= 0)
        print_rdma(t, rdma);
    for (int i = 0; i < topo->nnets; i++) {
        char speed[32];
        const struct pvn_topo_net *net = &topo->nets[i];
        if (net->pci == index)
            fprintf(t->out, "  %s %s%s%s", net->name, net->operstate[0] ? net->operstate : "?",
                    net->speed_mbps > 0 ? " " : "",
                    net->speed_mbps > 0 ? tool_speed(net->speed_mbps, speed, sizeof(speed)) : "");
    }
    if (f->driver_bound == PVN_TOPO_TRI_NO && (gpu >= 0 || f->class_code >> 16 == 0x02))
        fprintf(t->out, " %sno driver%s", t->yellow, t->off);
    if (f->physfn >= 0)
        fprintf(t->out, " VF of %s", topo->pci[f->physfn].bdf);
    print_link(t, f);
}

static void print_below(const struct tool *t, const bool *shown, int parent, int root,
                        const struct branch *b, int level)
{
    const struct pvn_topo *topo = t->topo;
    int last = -1;
    for (int i = 0; i < topo->npci; i++)
        if (shown[i] && topo->pci[i].parent == parent && topo->pci[i].root == root)
            last = i;
    for (int i = 0; level < PVN_TOPO_NDOC_MAX_DEPTH && i <= last; i++) {
        if (!shown[i] || topo->pci[i].parent != parent || topo->pci[i].root != root)
            continue;
        struct branch below = grow(t, b, i == last);
        start_line(t, b, i == last);
        print_line(t, &below, columns(below.text, strlen(below.text)), print_function, i);
        print_below(t, shown, i, root, &below, level + 1);
    }
}

static bool root_shown(const struct tool *t, const bool *shown, int root)
{
    for (int i = 0; i < t->topo->npci; i++)
        if (shown[i] && t->topo->pci[i].root == root)
            return true;
    return false;
}

void dump_header(const struct tool *t)
{
    const struct pvn_topo *topo = t->topo;
    const struct pvn_topo_guest *g = &topo->guest;
    fprintf(t->out, "%s%s%s", t->bold, topo->live ? "this machine" : topo->source, t->off);
    if (g->product_name[0])
        fprintf(t->out, ", %s%s%s", g->sys_vendor, g->sys_vendor[0] ? " " : "", g->product_name);
    if (topo->cpu.model_name[0])
        fprintf(t->out, ", %s", topo->cpu.model_name);
    fputc('\n', t->out);
    if (pvn_topo_is_guest(topo))
        fprintf(t->out, "%sguest of %s%s (%s)\n", t->yellow,
                pvn_topo_hypervisor_name(g->hypervisor), t->off, g->evidence);
    if (topo->nvidia.loaded == PVN_TOPO_TRI_YES)
        fprintf(t->out, "NVIDIA driver %s%s, nvidia_peermem %s\n",
                topo->nvidia.version[0] ? topo->nvidia.version : "of unknown version",
                topo->nvidia.open_modules == PVN_TOPO_TRI_YES ? " (open modules)" : "",
                topo->nvidia.peermem == PVN_TOPO_TRI_YES ? "loaded" : "not loaded");
    for (int i = 0; i < topo->nnumas; i++)
        fprintf(t->out, "NUMA node %d: %s\n", topo->numas[i].id,
                topo->numas[i].has_cpus ? topo->numas[i].cpulist : "memory only");
}

/* Prints devices that have no place in the tree. */
static void print_rest(const struct tool *t)
{
    const struct pvn_topo *topo = t->topo;
    for (int i = 0; i < topo->nrdmas; i++) {
        if (topo->rdmas[i].pci < 0) {
            fprintf(t->out, "no PCI:");
            print_rdma(t, i);
            fputc('\n', t->out);
        }
    }
    for (int i = 0; i < topo->npvrdma; i++)
        if (topo->pvrdma[i].problem[0])
            fprintf(t->out, "%sPVRDMA:%s %s\n", t->yellow, t->off, topo->pvrdma[i].problem);
    if (topo->nnotes > 0)
        fprintf(t->out, "\n%sNot read as it should be:%s\n", t->yellow, t->off);
    for (int i = 0; i < topo->nnotes; i++) {
        char text[520];
        snprintf(text, sizeof(text), "%s: %s", topo->notes[i].where, topo->notes[i].text);
        fputs("  ", t->out);
        tool_wrap(t, 2, 4, text);
    }
    if (topo->notes_dropped > 0)
        fprintf(t->out, "  and %d more\n", topo->notes_dropped);
}

static int dump_text(const struct tool *t)
{
    const struct pvn_topo *topo = t->topo;
    const struct branch none = {""};
    bool *shown = mark_shown(t);
    int hidden = 0;
    if (!shown)
        return TOOL_INPUT;
    dump_header(t);
    for (int r = 0; r < topo->nroots; r++) {
        if (!root_shown(t, shown, r))
            continue;
        fprintf(t->out, "%s%s%s", t->bold, topo->roots[r].name, t->off);
        if (topo->roots[r].numa == PVN_TOPO_UNKNOWN)
            fprintf(t->out, "  numa unknown\n");
        else
            fprintf(t->out, "  numa %d\n", topo->roots[r].numa);
        print_below(t, shown, -1, r, &none, 0);
    }
    for (int i = 0; i < topo->npci; i++) {
        if (topo->pci[i].root < 0 && shown[i]) {
            fprintf(t->out, "%splace unknown:%s ", t->yellow, t->off);
            print_line(t, &none, 15, print_function, i);
        }
        hidden += !shown[i];
    }
    print_rest(t);
    if (hidden > 0)
        fprintf(t->out, "%s%d other PCI functions; --all shows them%s\n", t->dim, hidden, t->off);
    free(shown);
    return TOOL_OK;
}

/* ---- NCCL's tree ---- */

static void print_nccl_node(const struct tool *t, int index)
{
    const struct pvn_topo_nnode *n = &t->tree->nodes[index];
    char speed[48], label[16];
    switch (n->kind) {
    case PVN_TOPO_NN_CPU:
        fprintf(t->out, "%sNUMA node %d%s", t->bold, n->cpu.numa, t->off);
        if (t->tree->n_cpus > 1 && n->cpu.inter_bw >= 4999)
            fprintf(t->out, "  %slink to the others not known (no CPU vendor)%s", t->dim, t->off);
        else if (t->tree->n_cpus > 1)
            fprintf(t->out, "  %s%.0f GB/s to the others%s", t->dim, n->cpu.inter_bw, t->off);
        break;
    case PVN_TOPO_NN_PCI:
        fprintf(t->out, "%s %s", n->busid,
                tool_class_stated(t, index) ? "switch" : "function without a class");
        if (n->flattened)
            fprintf(t->out, " (+%d Broadcom sub-switches)", n->flattened);
        break;
    case PVN_TOPO_NN_DEV:
        fprintf(t->out, "%s%s GPU%s", t->green, n->busid, t->off);
        break;
    case PVN_TOPO_NN_GPU:
        for (int g = 0; g < t->tree->n_gpus; g++)
            if (t->tree->gpus[g] == index)
                fputs(tool_gpu_label(t, g, speed), t->out);
        if (n->gpu.sm > 0)
            fprintf(t->out, " sm %d", n->gpu.sm);
        break;
    case PVN_TOPO_NN_NIC:
        fprintf(t->out, "%s%s NIC%s", t->green, n->busid[0] ? n->busid : "(no PCI)", t->off);
        break;
    case PVN_TOPO_NN_NET:
        for (int i = 0; i < t->tree->n_nets; i++) {
            if (t->tree->nets[i] == index)
                fprintf(t->out, "%s %s %s", tool_net_label(t, i, label), n->net.name,
                        tool_net_speed(t, i, speed, sizeof(speed)));
        }
        if (n->net.rail >= 0)
            fprintf(t->out, " rail %d", n->net.rail);
        break;
    case PVN_TOPO_NN_NVS:
        fprintf(t->out, "NVSwitch");
        break;
    }
    if (n->kind != PVN_TOPO_NN_CPU && n->kind != PVN_TOPO_NN_GPU && n->kind != PVN_TOPO_NN_NET &&
        n->up >= 0 && n->up_bw < 4999 && tool_link_stated(t, index))
        fprintf(t->out, "  %s%.1f GB/s%s", t->dim, n->up_bw, t->off);
    for (int i = 0; i < n->n_links; i++) {
        const struct pvn_topo_nnode *to = &t->tree->nodes[n->links[i].to];
        if (n->kind != PVN_TOPO_NN_DEV || n->links[i].kind == PVN_TOPO_NL_PCI ||
            n->links[i].kind == PVN_TOPO_NL_LOC)
            continue;
        fprintf(t->out, "  %s%s %.0f GB/s %s%s", t->dim,
                n->links[i].kind == PVN_TOPO_NL_C2C ? "C2C" : tool_gpu_link(t), n->links[i].bw,
                to->kind == PVN_TOPO_NN_NVS   ? "NVSwitch"
                : to->kind == PVN_TOPO_NN_CPU ? "CPU"
                                              : to->busid,
                t->off);
    }
}

static void print_nccl_below(const struct tool *t, int up, const struct branch *b, int level)
{
    int last = -1;
    for (int i = 0; i < t->tree->n_nodes; i++)
        if (t->tree->nodes[i].up == up)
            last = i;
    for (int i = 0; level < PVN_TOPO_NDOC_MAX_DEPTH && i <= last; i++) {
        if (t->tree->nodes[i].up != up)
            continue;
        struct branch below = grow(t, b, i == last);
        start_line(t, b, i == last);
        print_line(t, &below, columns(below.text, strlen(below.text)), print_nccl_node, i);
        print_nccl_below(t, i, &below, level + 1);
    }
}

static int dump_nccl_text(const struct tool *t)
{
    char root[256];
    const struct branch none = {""};
    fprintf(t->out, "%sNCCL's tree%s of %s%s\n", t->bold, t->off,
            strcmp(t->root, "/") == 0 ? "this machine" : tool_escape(t->root, root, sizeof(root)),
            t->tree->doc->rccl ? " (written by RCCL)" : "");
    for (int c = 0; c < t->tree->n_cpus; c++) {
        print_line(t, &none, 0, print_nccl_node, t->tree->cpus[c]);
        print_nccl_below(t, t->tree->cpus[c], &none, 0);
    }
    return TOOL_OK;
}

int dump_xml(const struct tool *t, bool full, FILE *out)
{
    const struct pvn_topo_ndoc_node *bad = NULL;
    struct pvn_topo_ndoc *doc = pvn_topo_ndoc_clone(t->tree->doc);
    char *text = NULL;
    size_t len = 0;
    FILE *memory = doc ? open_memstream(&text, &len) : NULL;
    int err = !memory ? -1 : 0;
    if (err == 0 && !full)
        err = pvn_topo_ndoc_make_topo_file(doc);
    else if (err == 0 && (err = pvn_topo_ndoc_separate_nics(doc)) == 0)
        pvn_topo_ndoc_drop_foreign_gpus(doc);
    if (err == 0 && (err = pvn_topo_ndoc_write(doc, memory, &bad)) < 0 && bad)
        tool_error("a value of <%s> cannot be written in NCCL's file format", bad->name);
    if (memory && fclose(memory) != 0)
        err = -1;
    if (err == 0 && (err = tool_report_missing(t, text, len)) == 0)
        fwrite(text, 1, len, out);
    if (err < 0 && !bad)
        tool_error("out of memory");
    free(text);
    pvn_topo_ndoc_free(doc);
    return err < 0 ? TOOL_INPUT : TOOL_OK;
}

static int dump_svg(const struct tool *t)
{
    int to_dot[2], status;
    fflush(t->out);
    /* If dot is missing, the writes below fail; its exit status says why. */
    signal(SIGPIPE, SIG_IGN);
    if (pipe(to_dot) < 0)
        goto cannot;
    pid_t child = fork();
    if (child < 0)
        goto cannot;
    if (child == 0) {
        dup2(to_dot[0], STDIN_FILENO);
        dup2(fileno(t->out), STDOUT_FILENO);
        close(to_dot[0]);
        close(to_dot[1]);
        execlp("dot", "dot", "-Tsvg", (char *)NULL);
        _exit(127);
    }
    close(to_dot[0]);
    FILE *out = fdopen(to_dot[1], "w");
    if (out) {
        dump_dot(t, out);
        fclose(out);
    }
    waitpid(child, &status, 0);
    if (out && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return TOOL_OK;
    tool_error(WIFEXITED(status) && WEXITSTATUS(status) == 127
                   ? "the program dot is not installed: install graphviz, or use --dot"
                   : "dot failed");
    return TOOL_INPUT;
cannot:
    tool_error("cannot start dot: %m");
    return TOOL_INPUT;
}

int cmd_dump(struct tool *t, int argc, char **argv)
{
    (void)argv;
    if (argc > 0) {
        tool_error("dump takes no arguments; another machine is named by --root");
        return TOOL_USAGE;
    }
    int status = tool_load(t);
    if (status != TOOL_OK)
        return status;
    if (t->json)
        return json_machine(t);
    if (t->format != TOOL_TEXT)
        tool_report_notes(t->root, t->topo);
    else if (t->nccl_tree)
        tool_print_notes(t);
    switch (t->format) {
    case TOOL_XML:
    case TOOL_XML_FULL:
        return dump_xml(t, t->format == TOOL_XML_FULL, t->out);
    case TOOL_DOT:
        return dump_dot(t, t->out);
    case TOOL_SVG:
        return dump_svg(t);
    default:
        return !t->topo || t->nccl_tree ? dump_nccl_text(t) : dump_text(t);
    }
}
