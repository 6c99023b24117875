/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reports devices that a written topology file lacks. The file is read again, as any reader would,
 * and each GPU and NIC that pairs shows and the file lacks is named with the reason. */
#include "topo/tool/show/show.h"

#include <string.h>

enum why { FOUND, WRONG_CLASS, SHARED, NO_FUNCTION, NOT_VISITED, WHYS };

/* The reasons; %s is NCCL or RCCL. */
static const char *const gpu_why[WHYS] = {
    [WRONG_CLASS] = "its function has a class that %s takes for no GPU",
    [SHARED] = "another rank has the same function, and the file names functions; %s finds it by "
               "itself",
    [NOT_VISITED] = "%s looks for no GPU at its place",
};

static const char *const nic_why[WHYS] = {
    [WRONG_CLASS] =
        "its function has no NIC's class, by which a reader of the file would know it; %s "
        "finds it by itself",
    [SHARED] = "another NIC has the same function, and the file names functions; %s finds it by "
               "itself",
    [NO_FUNCTION] = "it has no PCI function; %s puts it on the first NUMA node by itself",
    [NOT_VISITED] = "%s looks for no NIC at its place",
};

static const char *busid_of(const struct pvn_topo_ntree *tree, bool gpu, int i)
{
    return gpu ? tree->nodes[tree->gpus[i]].busid
               : tree->nodes[tree->nodes[tree->nets[i]].up].busid;
}

static const char *name_of(const struct pvn_topo_ntree *tree, bool gpu, int i)
{
    return gpu ? "" : tree->nodes[tree->nets[i]].net.name;
}

/* Counts the first n devices with the same function or, if they have none, the same name. */
static int count_like(const struct pvn_topo_ntree *tree, bool gpu, int n, const char *busid,
                      const char *name)
{
    int like = 0;
    for (int i = 0; i < n; i++)
        like += strcmp(busid_of(tree, gpu, i), busid) == 0 &&
                (busid[0] || strcmp(name_of(tree, gpu, i), name) == 0);
    return like;
}

static enum why look(const struct pvn_topo_ntree *tree, const struct pvn_topo_ntree *again,
                     bool gpu, int i)
{
    const char *busid = busid_of(tree, gpu, i), *name = name_of(tree, gpu, i);
    int before = count_like(tree, gpu, i, busid, name);
    int kept = count_like(again, gpu, gpu ? again->n_gpus : again->n_nets, busid, name);
    if (before < kept)
        return FOUND;
    if (!busid[0])
        return NO_FUNCTION;
    if (before > 0)
        return SHARED;
    const struct pvn_topo_ndoc_node *pci = pvn_topo_ndoc_find(tree->doc, "pci", "busid", busid);
    const char *class = pci ? pvn_topo_ndoc_get(pci, "class") : NULL;
    bool fits = gpu ? pvn_topo_ndoc_gpu_class(tree->doc, class) : pvn_topo_ndoc_nic_class(class);
    return fits ? NOT_VISITED : WRONG_CLASS;
}

static void say(const struct pvn_topo_ntree *tree, bool gpu, enum why why, const char *list)
{
    const char *reason = gpu ? gpu_why[why] : nic_why[why], *at = strstr(reason, "%s");
    tool_error("not in the file: %s %s: %.*s%s%s", gpu ? "GPU" : "NIC", list, (int)(at - reason),
               reason, pvn_topo_nreader_of(tree->doc->rccl)->name, at + 2);
}

static void report_kind(const struct pvn_topo_ntree *tree, const struct pvn_topo_ntree *again,
                        bool gpu)
{
    for (enum why why = FOUND + 1; why < WHYS; why++) {
        char list[700] = "";
        for (int i = 0; i < (gpu ? tree->n_gpus : tree->n_nets); i++) {
            size_t used = strlen(list);
            if (look(tree, again, gpu, i) != why)
                continue;
            const char *busid = busid_of(tree, gpu, i), *name = name_of(tree, gpu, i);
            if (used > sizeof(list) - 100) {
                say(tree, gpu, why, list);
                used = 0;
            }
            snprintf(list + used, sizeof(list) - used, "%s%.60s%s%s%s", used ? ", " : "",
                     name[0] ? name : busid, name[0] && busid[0] ? " (" : "", name[0] ? busid : "",
                     name[0] && busid[0] ? ")" : "");
        }
        if (list[0])
            say(tree, gpu, why, list);
    }
}

int tool_report_missing(const struct tool *t, const char *text, size_t len)
{
    struct pvn_topo_xml_error err;
    struct pvn_topo_ndoc *doc = NULL;
    struct pvn_topo_ntree *again = NULL;
    struct pvn_topo_lint lint;
    char why[256];
    int code = pvn_topo_nccl_xml_parse(text, len, &doc, &err);
    if (code == 0 && (code = pvn_topo_ndoc_complete(doc)) == 0)
        code = pvn_topo_ntree_new(doc, &t->env, &again, why, sizeof(why));
    if (code == 0) {
        report_kind(t->tree, again, true);
        report_kind(t->tree, again, false);
    }
    pvn_topo_ntree_free(again);
    pvn_topo_ndoc_free(doc);
    if (pvn_topo_nccl_lint(text, len, &lint) < 0)
        return -1;
    for (int i = 0; i < lint.n; i++) {
        if (lint.findings[i].level == PVN_TOPO_LINT_ERROR)
            tool_error("%s will refuse this file: %s; %s", lint.reader->name, lint.findings[i].what,
                       lint.findings[i].remedy);
    }
    pvn_topo_lint_free(&lint);
    return 0;
}
