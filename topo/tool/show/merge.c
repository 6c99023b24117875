/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo merge, and remedies if a guest's layout is hidden. */
#include "topo/tool/show/show.h"

#include <string.h>

#include "topo/tool/base/json.h"
#include "topo/tool/load/load.h"

void tool_print_remedies(const struct tool *t)
{
    struct pvn_topo_remedy remedies[16];
    int n = pvn_topo_guest_remedies(t->topo, remedies, 16);
    if (n > 0)
        fprintf(t->out, "\n%sThis is a guest. What can be done%s:%s\n", t->bold,
                pvn_topo_layout_hidden(t->topo) ? " about the hidden layout" : "", t->off);
    for (int i = 0; i < n && i < 16; i++) {
        char text[900];
        fprintf(t->out, "  on the %-6s ", remedies[i].where);
        snprintf(text, sizeof(text), "%s", remedies[i].text);
        tool_wrap(t, 16, 16, text);
        if (remedies[i].why[0]) {
            fprintf(t->out, "%16s%s", "", t->dim);
            tool_wrap(t, 16, 16, remedies[i].why);
            fputs(t->off, t->out);
        }
    }
}

/* Prints devices that stay where the hypervisor shows them, because neither the host's tree nor the
 * hints place them. */
static void print_unplaced(const struct tool *t)
{
    char list[400] = "", label[16];
    int n = 0;
    for (int i = 0; i < t->tree->n_gpus + t->tree->n_nets; i++) {
        bool gpu = i < t->tree->n_gpus;
        int net = i - t->tree->n_gpus;
        int pci = gpu ? pvn_topo_pairs_gpu_pci(t->pairs, i) : pvn_topo_pairs_net_pci(t->pairs, net);
        size_t used = strlen(list);
        if (pci < 0 || (t->topo->pci[pci].flags & PVN_TOPO_PCI_MOVED))
            continue;
        n++;
        snprintf(list + used, sizeof(list) - used, "%s%s (%s)", used ? ", " : "",
                 gpu ? tool_gpu_label(t, i, label) : tool_net(t, net)->net.name,
                 t->topo->pci[pci].bdf);
    }
    if (n > 0)
        tool_error("not placed, because neither the host's tree nor the hints have them: %s; name "
                   "them in --hints (device GUEST-ADDRESS host HOST-ADDRESS, or in SWITCH)",
                   list);
}

int cmd_merge(struct tool *t, int argc, char **argv)
{
    (void)argv;
    if (argc > 0 || (!t->host && !t->hints)) {
        tool_error("merge needs the host's tree or hints: pvn-topo --root GUEST --host HOST merge");
        return TOOL_USAGE;
    }
    int status = tool_load(t);
    if (status == TOOL_OK)
        status = tool_need_machine(t, "merge");
    if (status != TOOL_OK)
        return status;
    if (t->topo->merged & PVN_TOPO_MERGED_ORDER)
        tool_error(
            "some devices were matched by their order alone; say which is which with --hints "
            "(device GUEST-ADDRESS host HOST-ADDRESS)");
    print_unplaced(t);
    if (!t->json)
        tool_report_notes(t->root, t->topo);
    return t->json ? json_machine(t) : dump_xml(t, t->format == TOOL_XML_FULL, t->out);
}
