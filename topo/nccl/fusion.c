/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The nets that NCCL would fuse into one virtual device, and those that may be connected across
 * hosts (NCCL 2.30 src/graph/topo.cc ncclTopoForceMerge, ncclTopoAutoMerge, ncclTopoGetPath;
 * misc/utils.cc parseStringList; search.cc NCCL_CROSS_NIC). */
#include "topo/nccl/pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pvn_topo_nnode *net_node(const struct pvn_topo_pairs *p, int net)
{
    return &p->tree->nodes[p->tree->nets[net]];
}

static int up_from(const struct pvn_topo_ntree *t, int node, int *chain, int max)
{
    int n = 0;
    for (; node >= 0 && n < max; node = t->nodes[node].up)
        chain[n++] = node;
    return n;
}

/* The distance of two nets. NCCL measures it in its document, not in the graph: by the first
 * element above both. */
static int document_distance(const struct pvn_topo_ntree *t, int a, int b)
{
    int up_a[PVN_TOPO_NDOC_MAX_DEPTH + 8], up_b[PVN_TOPO_NDOC_MAX_DEPTH + 8];
    int n_a = up_from(t, a, up_a, PVN_TOPO_NDOC_MAX_DEPTH + 8);
    int n_b = up_from(t, b, up_b, PVN_TOPO_NDOC_MAX_DEPTH + 8);
    int common = -1;

    if (a == b)
        return PVN_TOPO_NPATH_LOC;
    while (n_a > 0 && n_b > 0 && up_a[n_a - 1] == up_b[n_b - 1]) {
        common = up_a[--n_a];
        n_b--;
    }
    if (common >= 0 && t->nodes[common].kind == PVN_TOPO_NN_NIC)
        return PVN_TOPO_MERGE_PORT;
    /* Functions of one card have bus ids that differ only in the last character. */
    if (n_a > 0 && n_b > 0) {
        const char *x = t->nodes[up_a[n_a - 1]].busid, *y = t->nodes[up_b[n_b - 1]].busid;
        size_t len = strlen(x);
        if (len > 1 && len == strlen(y) && strncmp(x, y, len - 1) == 0)
            return PVN_TOPO_MERGE_PORT;
    }
    if (common < 0)
        return PVN_TOPO_NPATH_SYS;
    if (t->nodes[common].kind == PVN_TOPO_NN_CPU)
        return PVN_TOPO_NPATH_PHB;
    /* Each hangs on a common switch with its NIC and nothing else in between. */
    return n_a <= 2 && n_b <= 2 ? PVN_TOPO_NPATH_PIX : PVN_TOPO_NPATH_PXB;
}

/* The next piece of text between separators, without empty ones, as with strtok. NULL at the
 * end. */
static const char *next_piece(const char **at, char separator, size_t *len)
{
    const char *piece;
    while (**at == separator)
        ++*at;
    piece = *at;
    while (**at != '\0' && **at != separator)
        ++*at;
    *len = (size_t)(*at - piece);
    return *len > 0 ? piece : NULL;
}

/* True if "NAME" or "NAME:PORT" matches a net. NCCL cuts at the first colon and compares the whole
 * name. */
static bool item_matches(const char *item, size_t len, const struct pvn_topo_nnode *net)
{
    const char *colon = memchr(item, ':', len);
    size_t name = colon ? (size_t)(colon - item) : len;
    int port = colon && name + 1 < len && colon[1] != ':' ? atoi(colon + 1) : -1;
    return strlen(net->net.name) == name && memcmp(net->net.name, item, name) == 0 &&
           (port == -1 || net->net.port == -1 || net->net.port == port);
}

/* Counts the names in the set; *matches: the net is one of them. NCCL reads no more names than a
 * virtual device of the newest interface can have. */
static int in_set(const char *set, size_t set_len, const struct pvn_topo_nnode *net, bool *matches)
{
    char text[1024];
    const char *at = text, *item;
    size_t len;
    int names = 0;
    snprintf(text, sizeof(text), "%.*s", (int)set_len, set);
    *matches = false;
    while (names < PVN_TOPO_FUSION_MAX && (item = next_piece(&at, ',', &len))) {
        names += item[0] != ':';
        *matches |= net && item[0] != ':' && item_matches(item, len, net);
    }
    return names;
}

/* Groups the sets of NCCL_NET_FORCE_MERGE. False, with a sentence, if the value makes NCCL's start
 * fail. */
static bool force_merge(const struct pvn_topo_pairs *p, const int *by_dev, int max_devs, int *group,
                        char *problem, size_t len)
{
    const struct pvn_topo_ntree *t = p->tree;
    const char *at = t->env.force_merge, *set;
    size_t set_len;
    while ((set = next_piece(&at, ';', &set_len))) {
        int first = -1, found = 0, names;
        bool matches;
        names = in_set(set, set_len, NULL, &matches);
        for (int i = 0; i < t->n_nets; i++) {
            in_set(set, set_len, net_node(p, by_dev[i]), &matches);
            if (!matches)
                continue;
            first = found++ == 0 ? by_dev[i] : first;
            group[by_dev[i]] = first;
        }
        if (names == 0)
            snprintf(problem, len,
                     "\"%.*s\" names no device: NCCL 2.30 hangs at start while it reads this; "
                     "remove it from NCCL_NET_FORCE_MERGE",
                     (int)set_len, set);
        else if (found != names)
            snprintf(problem, len,
                     "\"%.*s\" names %d devices and %d of them %s there: NCCL refuses to start "
                     "(whole names, apart by commas, :PORT behind; sets apart by semicolons)",
                     (int)set_len, set, names, found, found == 1 ? "is" : "are");
        else if (found > max_devs)
            snprintf(problem, len,
                     "\"%.*s\" joins %d devices and %d are possible: NCCL refuses to "
                     "start",
                     (int)set_len, set, found, max_devs);
        else
            continue;
        return false;
    }
    return true;
}

static void auto_merge(const struct pvn_topo_pairs *p, const int *by_dev, int max_devs, int *group)
{
    const struct pvn_topo_ntree *t = p->tree;
    for (int i = 0; i < t->n_nets; i++) {
        int first = by_dev[i], members = 1;
        if (group[first] >= 0)
            continue;
        group[first] = first;
        for (int j = 0; j < t->n_nets && members < max_devs; j++) {
            int other = by_dev[j];
            int rail = net_node(p, first)->net.rail;
            if (group[other] >= 0 ||
                document_distance(t, t->nets[first], t->nets[other]) > t->env.merge_level)
                continue;
            if (t->env.merge_policy == PVN_TOPO_MERGE_RAIL &&
                (rail < 0 || rail != net_node(p, other)->net.rail))
                continue;
            group[other] = first;
            members++;
        }
    }
}

int pvn_topo_pairs_fusion(const struct pvn_topo_pairs *p, int max_devs, int *group, char *problem,
                          size_t len)
{
    const struct pvn_topo_ntree *t = p->tree;
    int *by_dev = calloc((size_t)t->n_nets + 1, sizeof(*by_dev));
    if (!by_dev)
        return -ENOMEM;
    problem[0] = '\0';
    /* NCCL uses the order of the plugin's list, not of the tree. */
    for (int i = 0; i < t->n_nets; i++) {
        int at = i;
        for (; at > 0 && net_node(p, by_dev[at - 1])->net.dev > net_node(p, i)->net.dev; at--)
            by_dev[at] = by_dev[at - 1];
        by_dev[at] = i;
        group[i] = -1;
    }
    if (!t->env.force_merge || force_merge(p, by_dev, max_devs, group, problem, len))
        auto_merge(p, by_dev, max_devs, group);
    else
        for (int i = 0; i < t->n_nets; i++)
            group[i] = i;
    free(by_dev);
    return 0;
}

void pvn_topo_pairs_cross_nic(const struct pvn_topo_pairs *p, char *text, size_t len)
{
    const struct pvn_topo_ntree *t = p->tree;
    bool rails = t->n_nets > 0;
    for (int n = 0; n < t->n_nets; n++)
        rails &= net_node(p, n)->net.rail >= 0;
    const char *same = rails ? "with the same rail number"
                             : "with the same card and port (no rail numbers are set)";
    switch (t->env.cross_nic) {
    case 0:
        snprintf(text, len, "NCCL_CROSS_NIC=0: rings and trees enter and leave a host by NICs %s",
                 same);
        break;
    case 1:
        snprintf(text, len,
                 "NCCL_CROSS_NIC=1: any NIC of one host may talk to any NIC of the other");
        break;
    default:
        snprintf(
            text, len,
            "NCCL_CROSS_NIC=2 (default): NCCL first looks for rings and trees that stay on NICs "
            "%s, and crosses only when that gives more bandwidth",
            same);
    }
}
