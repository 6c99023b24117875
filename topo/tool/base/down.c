/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NICs that are down. NCCL and the plugin leave them out, so they are in no tree; their distance is
 * printed separately. */
#include "topo/tool/base/tool.h"

#include <string.h>

/* True for the interface of an RDMA port, which is the same device. */
static bool belongs_to_port(const struct pvn_topo *topo, const struct pvn_topo_nic *nic)
{
    for (int i = 0; nic->rdma < 0 && i < topo->nrdmas; i++) {
        for (int p = 0; p < topo->rdmas[i].nports; p++)
            if (nic->net >= 0 && topo->rdmas[i].ports[p].netdev == nic->net)
                return true;
    }
    return false;
}

static bool is_listed(const struct tool *t, const char *name)
{
    return pvn_topo_nics_by_name(&t->nics, name) >= 0;
}

/* Lists the NICs that are down and that NCCL would take if they were up; free with
 * pvn_topo_nics_free. */
static int list_down(const struct tool *t, struct pvn_topo_nics *out)
{
    int kept = 0;
    *out = (struct pvn_topo_nics){0};
    if (!t->topo)
        return 0;
    if (pvn_topo_nics_find(t->topo, PVN_TOPO_NICS_ALL, out) < 0)
        return -1;
    for (int i = 0; i < out->n; i++) {
        const struct pvn_topo_nic *nic = &out->list[i];
        if (!nic->up && nic->pci >= 0 && !is_listed(t, nic->name) && !belongs_to_port(t->topo, nic))
            out->list[kept++] = *nic;
    }
    out->n = kept;
    return 0;
}

static enum pvn_topo_smi_class class_to(const struct tool *t, int gpu, int pci)
{
    struct pvn_topo_distance d;
    if (gpu < 0 || pci < 0)
        return PVN_TOPO_SMI_UNKNOWN;
    pvn_topo_find_distance(t->topo, gpu, pci, &d);
    return d.smi;
}

/* Finds the nearest NIC that is up, and its class; UNKNOWN if there is none. */
static enum pvn_topo_smi_class nearest_up(const struct tool *t, int gpu, int *net)
{
    enum pvn_topo_smi_class best = PVN_TOPO_SMI_UNKNOWN;
    *net = -1;
    for (int n = 0; n < t->tree->n_nets; n++) {
        enum pvn_topo_smi_class c = class_to(t, gpu, pvn_topo_pairs_net_pci(t->pairs, n));
        if (c < best) {
            best = c;
            *net = n;
        }
    }
    return best;
}

/* Lists the GPUs that have no other NIC as near, "GPU0 (PIX), GPU1 (PIX)"; "" if there is none. */
static void nearest_to(const struct tool *t, const struct pvn_topo_nic *nic, char *text, size_t len)
{
    char label[16];
    int net;
    text[0] = '\0';
    for (int g = 0; g < t->pairs->n; g++) {
        int gpu = pvn_topo_pairs_gpu_pci(t->pairs, g);
        enum pvn_topo_smi_class mine = class_to(t, gpu, nic->pci);
        size_t used = strlen(text);
        if (mine < nearest_up(t, gpu, &net))
            snprintf(text + used, len - used, "%s%s (%s)", used ? ", " : "",
                     tool_gpu_label(t, g, label), pvn_topo_smi_class_name(mine));
    }
}

void tool_print_down(const struct tool *t)
{
    struct pvn_topo_nics down;
    char near[256], text[400];
    if (list_down(t, &down) < 0)
        return;
    for (int i = 0; i < down.n; i++) {
        nearest_to(t, &down.list[i], near, sizeof(near));
        if (!near[0])
            continue;
        snprintf(text, sizeof(text), "%s is down; up, it would be the nearest to %s.",
                 down.list[i].name, near);
        tool_wrap(t, 0, 2, text);
    }
    pvn_topo_nics_free(&down);
}

int tool_check_down(const struct tool *t, struct pvn_topo_checks *checks)
{
    struct pvn_topo_nics down;
    char near[256], text[384];
    int err = list_down(t, &down);
    for (int i = 0; i < down.n && err == 0; i++) {
        nearest_to(t, &down.list[i], near, sizeof(near));
        if (!near[0])
            continue;
        snprintf(text, sizeof(text),
                 "down, so NCCL leaves it out; up, it would be the nearest to %s", near);
        err = pvn_topo_checks_add(checks, "nic-down", PVN_TOPO_LEVEL_WARN, down.list[i].name, text,
                                  "check the cable and the switch port, and bring its interface "
                                  "up (ip link set ... up)");
    }
    pvn_topo_nics_free(&down);
    return err;
}

int tool_list_down(const struct tool *t, struct pvn_topo_nics *out)
{
    return list_down(t, out);
}

bool tool_find_down(const struct tool *t, int gpu, const char *name, struct tool_down *out)
{
    struct pvn_topo_nics down;
    bool found = false;
    if (list_down(t, &down) < 0)
        return false;
    for (int i = 0; i < down.n && !found; i++) {
        const struct pvn_topo_nic *n = &down.list[i];
        if (strcmp(n->name, name) != 0 && strcmp(t->topo->pci[n->pci].bdf, name) != 0 &&
            !(n->net >= 0 && strcmp(t->topo->nets[n->net].name, name) == 0))
            continue;
        snprintf(out->name, sizeof(out->name), "%s", n->name);
        out->distance = class_to(t, pvn_topo_pairs_gpu_pci(t->pairs, gpu), n->pci);
        out->best_up = nearest_up(t, pvn_topo_pairs_gpu_pci(t->pairs, gpu), &out->best_up_net);
        out->nearest = out->distance < out->best_up;
        found = true;
    }
    pvn_topo_nics_free(&down);
    return found;
}

void tool_why_down(const struct tool *t, int gpu, const struct tool_down *nic)
{
    char text[640], label[16];
    int used = snprintf(
        text, sizeof(text),
        "%s is down, so NCCL and the plugin leave it out. Its distance from %s is %s (nvidia-smi's "
        "name)",
        nic->name, tool_gpu_label(t, gpu, label),
        nic->distance == PVN_TOPO_SMI_UNKNOWN ? "not known"
                                              : pvn_topo_smi_class_name(nic->distance));
    if (nic->best_up_net < 0)
        snprintf(text + used, sizeof(text) - (size_t)used, "; no other NIC is up.");
    else
        snprintf(text + used, sizeof(text) - (size_t)used, "; %s%s is %s.",
                 nic->nearest ? "up, it would be the nearest: of those that are up, " : "",
                 tool_net(t, nic->best_up_net)->net.name, pvn_topo_smi_class_name(nic->best_up));
    tool_wrap(t, 0, 2, text);
}
