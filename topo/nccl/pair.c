/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/nccl/nccl_detect.h"
#include "topo/nccl/nccl_graph.h"
#include "topo/nccl/pair_priv.h"

static bool is_in(const int *list, int n, int net)
{
    int i = 0;
    while (i < n && list[i] != net)
        i++;
    return i < n;
}

/* Explains NCCL's choice. The order matters: bandwidth, type, index rule. */
static void explain_nccl(struct pvn_topo_pairs *p, struct pvn_topo_pair *pair, const int *locals,
                         int n_locals)
{
    const struct pvn_topo_ntree *t = p->tree;
    char *why = pair->nccl_why;
    if (n_locals == 0) {
        snprintf(why, PVN_TOPO_PAIR_WHY, "no path leads from this GPU to any NIC");
        return;
    }
    const struct pvn_topo_nroute *best = pvn_topo_ntree_route(t, pair->gpu, locals[0]);
    snprintf(why, PVN_TOPO_PAIR_WHY, "best bandwidth %.1f GB/s at %s (%s)", best->bw,
             pvn_topo_npath_name(best->type), pvn_topo_npath_words(best->type));
    if (best->via_gpu >= 0)
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, " through GPU%d",
                        gpu_node(p, best->via_gpu)->gpu.dev);
    if (best->detour)
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, ", through the CPU because GPUDirect is refused");
    /* A nearer NIC with less bandwidth is not chosen, which surprises people. */
    for (int n = 0; n < t->n_nets; n++) {
        const struct pvn_topo_nroute *other = pvn_topo_ntree_route(t, pair->gpu, n);
        if (other->type < best->type && other->bw < best->bw) {
            pvn_topo_append(
                why, PVN_TOPO_PAIR_WHY,
                "; %s is nearer (%s) but has only %.1f GB/s, and NCCL looks at bandwidth first",
                net_name(p, n), pvn_topo_npath_name(other->type), other->bw);
            break;
        }
    }
    int n_nics = 0, place = 0;
    for (int i = 0; i < n_locals; i++) {
        if (is_in(locals, i, locals[i]))
            continue;
        if (locals[i] == pair->nccl[0])
            place = n_nics;
        n_nics++;
    }
    if (n_nics == 1) {
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, "; no other NIC equals it");
        return;
    }
    pvn_topo_append(why, PVN_TOPO_PAIR_WHY, "; %d NICs are equal", n_nics);
    if (n_locals > n_nics)
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY,
                        " (NCCL counts %d: one without a PCI path once for each NUMA node with "
                        "GPUs)",
                        n_locals);
    pvn_topo_append(
        why, PVN_TOPO_PAIR_WHY,
        ", and NCCL goes round them by the number of the GPU%s: GPU%d starts with the %d%s of them",
        n_locals > 2 && (n_locals & (n_locals - 1)) == 0 ? ", far apart first" : "",
        gpu_node(p, pair->gpu)->gpu.dev, place + 1,
        place == 0   ? "st"
        : place == 1 ? "nd"
        : place == 2 ? "rd"
                     : "th");
}

static int choose_nccl(struct pvn_topo_pairs *p)
{
    const struct pvn_topo_ntree *t = p->tree;
    int *locals = calloc((size_t)t->n_net_list + 1, sizeof(*locals));
    if (!locals)
        return -ENOMEM;
    for (int g = 0; g < t->n_gpus; g++) {
        struct pvn_topo_pair *pair = &p->list[g];
        int n_locals = pvn_topo_ntree_local_nets(t, g, locals);
        for (int c = 0; c < n_locals; c++) {
            int net = pvn_topo_ntree_pick(t, g, c);
            if (net < 0 || (c > 0 && net == pair->nccl[0]))
                break;
            if (pair->n_nccl < PVN_TOPO_PAIR_NETS && !is_in(pair->nccl, pair->n_nccl, net))
                pair->nccl[pair->n_nccl++] = net;
        }
        explain_nccl(p, pair, locals, n_locals);
    }
    free(locals);
    return 0;
}

/* Appends "Left out: N GPUs WHY. ". */
static void left_out(struct pvn_topo_pairs *p, int n, const char *why, const char *driver)
{
    if (n > 0)
        pvn_topo_append(p->note, sizeof(p->note), "Left out: %d GPU%s %s%.20s. ", n,
                        n == 1 ? "" : "s", why, driver);
}

static void explain_left_out(struct pvn_topo_pairs *p)
{
    int count[PVN_TOPO_GPU_NOT_LISTED + 1] = {0};
    const char *driver = "";
    for (int i = 0; p->topo && i < p->topo->ngpus; i++) {
        enum pvn_topo_gpu_use use = pvn_topo_ndoc_gpu_use(p->topo, i);
        count[use]++;
        if (use == PVN_TOPO_GPU_OTHER_DRIVER)
            driver = p->topo->pci[p->topo->gpus[i].pci].driver;
    }
    int vfs = count[PVN_TOPO_GPU_FOR_GUESTS];
    if (vfs > 0)
        pvn_topo_append(p->note, sizeof(p->note),
                        "Left out: %d virtual function%s of GPUs, for guests. ", vfs,
                        vfs == 1 ? "" : "s");
    left_out(p, count[PVN_TOPO_GPU_OTHER_DRIVER], "on the driver ", driver);
    left_out(p, count[PVN_TOPO_GPU_NO_DRIVER], "without a driver", "");
    left_out(p, count[PVN_TOPO_GPU_NOT_LISTED], "not among the GPUs of the NVIDIA driver", "");
}

static bool links_back(const struct pvn_topo_nnode *node, const struct pvn_topo_nlink *link,
                       int from)
{
    for (int i = 0; i < node->n_links; i++)
        if (node->links[i].to == from && node->links[i].kind == link->kind)
            return true;
    return false;
}

static void explain_one_way(struct pvn_topo_pairs *p)
{
    for (int i = 0; i < p->tree->n_nodes; i++) {
        const struct pvn_topo_nnode *node = &p->tree->nodes[i];
        for (int l = 0; l < node->n_links; l++) {
            const struct pvn_topo_nnode *other = &p->tree->nodes[node->links[l].to];
            if (links_back(other, &node->links[l], i))
                continue;
            pvn_topo_append(p->note, sizeof(p->note),
                            "NCCL does not start: %s has a link to %s and none leads "
                            "back. ",
                            node->busid, other->busid);
            return;
        }
    }
}

static void explain_machine(struct pvn_topo_pairs *p)
{
    bool hidden = false, odd_numa = false, lost = false;
    for (int g = 0; g < p->n; g++)
        hidden |= p->list[g].hidden;
    for (int i = 0; i < p->n + p->tree->n_nets; i++) {
        int pci = i < p->n ? pvn_topo_pairs_gpu_pci(p, i) : pvn_topo_pairs_net_pci(p, i - p->n);
        lost |= pci >= 0 && p->topo->pci[pci].domain > 0xffff;
    }
    for (int c = 0; c < p->tree->n_cpus; c++)
        odd_numa |= p->tree->nodes[p->tree->cpus[c]].cpu.numa < 0;
    if (p->tree->env.bad[0])
        pvn_topo_append(p->note, sizeof(p->note), "%s. ", p->tree->env.bad);
    explain_one_way(p);
    explain_left_out(p);
    if (hidden)
        pvn_topo_append(
            p->note, sizeof(p->note),
            "This is a guest whose hypervisor hides the PCIe tree: the classes are what NCCL will "
            "believe, not the hardware. ");
    if (lost)
        pvn_topo_append(
            p->note, sizeof(p->note),
            "NCCL reads only 4-digit PCI domains: devices in others (Intel VMD, some hypervisors) "
            "land on a NUMA node of their own, -1, wherever they are. ");
    if (odd_numa && !lost && p->tree->n_cpus > 1)
        pvn_topo_append(
            p->note, sizeof(p->note),
            "Some devices have numa_node -1: NCCL makes a NUMA node of its own for them, and SYS "
            "(through the CPU interconnect) of every path to the others. ");
    size_t used = strlen(p->note);
    if (used > 0)
        p->note[used - 1] = '\0';
}

int pvn_topo_pairs_of_tree(const struct pvn_topo *topo, const struct pvn_topo_nics *nics,
                           struct pvn_topo_ntree *tree, struct pvn_topo_pairs **out)
{
    struct pvn_topo_pairs *p = calloc(1, sizeof(*p));
    *out = NULL;
    if (!p)
        return -ENOMEM;
    p->topo = topo;
    p->nics = nics;
    p->tree = tree;
    p->n = tree->n_gpus;
    p->list = calloc((size_t)p->n + 1, sizeof(*p->list));
    for (int g = 0; p->list && g < p->n; g++)
        p->list[g] = (struct pvn_topo_pair){.gpu = g, .advice = -1};
    if (!p->list || choose_nccl(p) < 0 || pvn_topo_pairs_advise(p) < 0) {
        pvn_topo_pairs_free(p);
        return -ENOMEM;
    }
    explain_machine(p);
    *out = p;
    return 0;
}

int pvn_topo_pairs_new(const struct pvn_topo *topo, const struct pvn_topo_nics *nics,
                       const struct pvn_topo_ndoc *file, const struct pvn_topo_nccl_env *env,
                       struct pvn_topo_pairs **out, char *why, size_t why_len)
{
    const struct pvn_topo_ndetect in = {.topo = topo, .nics = nics, .file = file, .net_gdr = -1};
    struct pvn_topo_ndoc *doc = NULL;
    struct pvn_topo_ntree *tree = NULL;
    *out = NULL;
    int err = pvn_topo_ndoc_detect(&in, &doc, why, why_len);
    if (err == 0)
        err = pvn_topo_ntree_new(doc, env, &tree, why, why_len);
    if (err == 0 && (err = pvn_topo_pairs_of_tree(topo, nics, tree, out)) < 0)
        snprintf(why, why_len, "out of memory");
    if (err < 0) {
        pvn_topo_ntree_free(tree);
        pvn_topo_ndoc_free(doc);
        return err;
    }
    (*out)->doc = doc;
    (*out)->owns = true;
    return 0;
}

void pvn_topo_pairs_free(struct pvn_topo_pairs *pairs)
{
    if (!pairs)
        return;
    if (pairs->owns) {
        pvn_topo_ntree_free(pairs->tree);
        pvn_topo_ndoc_free(pairs->doc);
    }
    free(pairs->list);
    free(pairs);
}

void pvn_topo_pairs_line(const struct pvn_topo_pairs *p, int gpu, char *text, size_t len)
{
    const struct pvn_topo_pair *pair = &p->list[gpu];
    snprintf(text, len, "GPU%d %s: NCCL takes ", gpu_node(p, gpu)->gpu.dev,
             gpu_node(p, gpu)->busid);
    if (pair->n_nccl == 0)
        pvn_topo_append(text, len, "no NIC");
    for (int i = 0; i < pair->n_nccl; i++)
        pvn_topo_append(text, len, "%s%s", i ? ", " : "", net_name(p, pair->nccl[i]));
    pvn_topo_append(text, len, ": %s", pair->nccl_why);
    if (pair->advice >= 0 && (pair->n_nccl == 0 || pair->advice != pair->nccl[0]))
        pvn_topo_append(text, len, ". Advised: %s, %s", net_name(p, pair->advice),
                        pair->advice_why);
}
