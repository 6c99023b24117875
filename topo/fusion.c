/* Which nets NCCL would fuse into one virtual device, and which may face each other across hosts
 * (NCCL 2.30 src/graph/topo.cc ncclTopoAutoMerge, ncclTopoGetPath; search.cc NCCL_CROSS_NIC). */
#include "topo/pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct pvn_nnode *net_node(const struct pvn_pairs *p, int net)
{
    return &p->tree->nodes[p->tree->nets[net]];
}

static int up_from(const struct pvn_ntree *t, int node, int *chain, int max)
{
    int n = 0;
    for (; node >= 0 && n < max; node = t->nodes[node].up)
        chain[n++] = node;
    return n;
}

/* NCCL measures this distance in its document, not in the graph: by the first element above both.
 */
static int document_distance(const struct pvn_ntree *t, int a, int b)
{
    int up_a[PVN_NDOC_MAX_DEPTH + 8], up_b[PVN_NDOC_MAX_DEPTH + 8];
    int n_a = up_from(t, a, up_a, PVN_NDOC_MAX_DEPTH + 8);
    int n_b = up_from(t, b, up_b, PVN_NDOC_MAX_DEPTH + 8);
    int common = -1;

    if (a == b)
        return PVN_NPATH_LOC;
    while (n_a > 0 && n_b > 0 && up_a[n_a - 1] == up_b[n_b - 1]) {
        common = up_a[--n_a];
        n_b--;
    }
    if (common >= 0 && t->nodes[common].kind == PVN_NN_NIC)
        return PVN_MERGE_PORT;
    /* Functions of one card: bus ids equal but for the last character. */
    if (n_a > 0 && n_b > 0) {
        const char *x = t->nodes[up_a[n_a - 1]].busid, *y = t->nodes[up_b[n_b - 1]].busid;
        size_t len = strlen(x);
        if (len > 1 && len == strlen(y) && strncmp(x, y, len - 1) == 0)
            return PVN_MERGE_PORT;
    }
    if (common < 0)
        return PVN_NPATH_SYS;
    if (t->nodes[common].kind == PVN_NN_CPU)
        return PVN_NPATH_PHB;
    /* One switch between them: each hangs on it with its NIC and nothing else. */
    return n_a <= 2 && n_b <= 2 ? PVN_NPATH_PIX : PVN_NPATH_PXB;
}

int pvn_pairs_fusion(const struct pvn_pairs *p, int max_devs, int *group)
{
    const struct pvn_ntree *t = p->tree;
    int *by_dev = calloc((size_t)t->n_nets + 1, sizeof(*by_dev));
    if (by_dev == NULL)
        return -ENOMEM;
    /* NCCL goes through the plugin's list, not the tree's. */
    for (int i = 0; i < t->n_nets; i++) {
        int at = i;
        for (; at > 0 && net_node(p, by_dev[at - 1])->net.dev > net_node(p, i)->net.dev; at--)
            by_dev[at] = by_dev[at - 1];
        by_dev[at] = i;
        group[i] = -1;
    }
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
            if (t->env.merge_policy == PVN_MERGE_RAIL &&
                (rail < 0 || rail != net_node(p, other)->net.rail))
                continue;
            group[other] = first;
            members++;
        }
    }
    free(by_dev);
    return 0;
}

void pvn_pairs_cross_nic(const struct pvn_pairs *p, char *text, size_t len)
{
    const struct pvn_ntree *t = p->tree;
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
