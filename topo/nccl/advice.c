/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The NIC that we advise for each GPU, beside the one that NCCL takes. The criteria in order: a
 * bandwidth that differs by more than a factor of two, the path's class, little sharing, the
 * remaining difference in bandwidth, NUMA distance, and NCCL's own choice. A GPU then moves to
 * another NIC if that gives it more than its share of the advised one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/nccl/assign.h"
#include "topo/nccl/pair_priv.h"

/* Larger than any class, so that each halving of the bandwidth outweighs every class. */
#define HALVING 16

static bool virtual_kind(enum pvn_topo_net_kind kind)
{
    switch (kind) {
    case PVN_TOPO_NET_LOOPBACK:
    case PVN_TOPO_NET_BRIDGE:
    case PVN_TOPO_NET_TUNNEL:
    case PVN_TOPO_NET_VIRTUAL:
        return true;
    default:
        return false;
    }
}

/* A file has only the name. These prefixes are reserved by the makers of virtual interfaces. */
static bool virtual_name(const char *name)
{
    static const char *const prefixes[] = {"virbr", "veth", "docker", "br-",     "vnet", "tap",
                                           "tun",   "cni",  "cali",   "flannel", "lxc",  "lxdbr"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return strcmp(name, "lo") == 0;
}

/* True for bridges and other interfaces that end inside this host or in a CPU and have no wire. */
static bool is_virtual(const struct pvn_topo_pairs *p, int net)
{
    if (pvn_topo_pairs_net_pci(p, net) >= 0 ||
        p->tree->nodes[net_node(p, net)->up].busid[0] != '\0')
        return false;
    const struct pvn_topo_nic *nic = pvn_topo_pairs_nic(p, net);
    if (p->topo && nic && nic->net >= 0)
        return virtual_kind(p->topo->nets[nic->net].kind);
    return virtual_name(net_name(p, net));
}

/* The class of the graph's path. If the hypervisor hides the tree, the class is equal for all
 * pairs, except those that the hypervisor itself puts on different NUMA nodes. */
static int class_distance(const struct pvn_topo_pairs *p, int gpu, int net)
{
    const struct pvn_topo_ntree *t = p->tree;
    int type = (int)pvn_topo_ntree_gpu_net(t, gpu, net)->type;
    if (type >= PVN_TOPO_NPATH_DIS || is_virtual(p, net))
        return PVN_TOPO_ASSIGN_NEVER;
    if (!pvn_topo_pairs_hidden(p, gpu, net))
        return type;
    int a = pvn_topo_ntree_numa(t, t->gpus[gpu]), b = pvn_topo_ntree_numa(t, t->nets[net]);
    return a >= 0 && b >= 0 && a != b ? PVN_TOPO_NPATH_SYS : PVN_TOPO_NPATH_PHB;
}

/* Bandwidth of the narrowest link of the path, including the NIC's wire. */
static float path_bw(const struct pvn_topo_pairs *p, int gpu, int net)
{
    return pvn_topo_ntree_gpu_net(p->tree, gpu, net)->bw;
}

static float best_bw(const struct pvn_topo_pairs *p, int gpu)
{
    float best = 0;
    for (int n = 0; n < p->tree->n_nets; n++)
        if (class_distance(p, gpu, n) < PVN_TOPO_ASSIGN_NEVER && path_bw(p, gpu, n) > best)
            best = path_bw(p, gpu, n);
    return best;
}

/* How many times the bandwidth is halved compared with the best one. A factor of two is ignored. */
static int halvings(float best, float bw)
{
    int n = 0;
    while (n < 30 && bw * 2.01F < best) {
        best /= 2;
        n++;
    }
    return n;
}

/* SLIT distance if the machine has it, else 10 inside a node and 20 between nodes. */
static int numa_distance(const struct pvn_topo_pairs *p, int gpu, int net)
{
    const struct pvn_topo_ntree *t = p->tree;
    int a = pvn_topo_ntree_numa(t, t->gpus[gpu]), b = pvn_topo_ntree_numa(t, t->nets[net]);
    int i = p->topo ? pvn_topo_find_numa(p->topo, a) : -1;
    int j = p->topo ? pvn_topo_find_numa(p->topo, b) : -1;
    if (i >= 0 && j >= 0 && p->topo->numas[i].distance && j < p->topo->numas[i].ndistance) {
        int slit = p->topo->numas[i].distance[j];
        return slit < 0 ? 20 : slit > 1000 ? 1000 : slit;
    }
    return a == b ? 10 : 20;
}

static int place_in_nccl(const struct pvn_topo_pair *pair, int net)
{
    for (int i = 0; i < pair->n_nccl; i++)
        if (pair->nccl[i] == net)
            return i == 0 ? 0 : 1;
    return 2;
}

/* Tie breaker among equals: missing bandwidth in percent of the best, NUMA distance, NCCL's choice.
 * A file may state a negative bandwidth; then all of it is missing. */
static int tie_breaker(const struct pvn_topo_pairs *p, int gpu, int net, float best)
{
    float bw = path_bw(p, gpu, net);
    int missing = !(best > 0 && bw < best) ? 0 : bw > 0 ? (int)(100 * (best - bw) / best) : 100;
    return missing * 4096 + numa_distance(p, gpu, net) * 4 + place_in_nccl(&p->list[gpu], net);
}

static bool same_wire(const struct pvn_topo_nnode *a, const struct pvn_topo_nnode *b)
{
    return a->net.has_guid && b->net.has_guid && a->net.guid == b->net.guid &&
           a->net.port == b->net.port && a->net.guid != 0;
}

/* Lists the links of the path, without those of the two ends: the edges of the tree by the node
 * below them, and the wire, which nets with equal guid and port share. Links between CPUs are not
 * counted, because the data's path there is unknown. */
static int *links_of(const struct pvn_topo_pairs *p, int gpu, int net)
{
    const struct pvn_topo_ntree *t = p->tree;
    int hops[PVN_TOPO_NDOC_MAX_DEPTH * 3];
    int n = pvn_topo_ntree_hops(t, gpu, net, hops, PVN_TOPO_NDOC_MAX_DEPTH * 3), used = 0;
    int *links = calloc((size_t)n + 2, sizeof(*links));
    if (!links)
        return NULL;
    for (int i = 1; i < n; i++) {
        int below = t->nodes[hops[i]].up == hops[i - 1]   ? hops[i]
                    : t->nodes[hops[i - 1]].up == hops[i] ? hops[i - 1]
                                                          : -1;
        if (below < 0 || t->nodes[below].kind == PVN_TOPO_NN_GPU)
            continue;
        if (t->nodes[below].kind == PVN_TOPO_NN_NET) {
            /* The first net on a wire stands for the wire. */
            for (int m = 0; m < t->n_nets; m++) {
                if (m == net || same_wire(&t->nodes[t->nets[m]], &t->nodes[below])) {
                    below = t->nets[m];
                    break;
                }
            }
        }
        links[used++] = below;
    }
    links[used] = -1;
    return links;
}

static bool same_card(const struct pvn_topo_pairs *p, int a, int b)
{
    const struct pvn_topo_nnode *x = net_node(p, a), *y = net_node(p, b);
    if (same_wire(x, y))
        return false;
    return (x->net.has_guid && y->net.has_guid && x->net.guid != 0 && x->net.guid == y->net.guid) ||
           (x->up == y->up && p->tree->nodes[x->up].busid[0] != '\0');
}

static bool is_given(const struct pvn_topo_pairs *p, int net)
{
    for (int g = 0; g < p->n; g++)
        if (p->list[g].advice >= 0 && (p->list[g].advice == net ||
                                       same_wire(net_node(p, p->list[g].advice), net_node(p, net))))
            return true;
    return false;
}

/* Gives each unused port to the GPU that has another port of its card at the same distance and has
 * the fewest ports. */
static void give_idle_ports(struct pvn_topo_pairs *p, const int *distance)
{
    size_t cols = (size_t)p->tree->n_nets;
    for (int n = 0; n < p->tree->n_nets; n++) {
        struct pvn_topo_pair *to = NULL;
        for (int g = 0; g < p->n && !is_given(p, n); g++) {
            struct pvn_topo_pair *pair = &p->list[g];
            if (pair->advice >= 0 && same_card(p, pair->advice, n) &&
                distance[(size_t)g * cols + (size_t)n] ==
                    distance[(size_t)g * cols + (size_t)pair->advice] &&
                pair->n_more < PVN_TOPO_PAIR_NETS && (!to || pair->n_more < to->n_more))
                to = pair;
        }
        if (to)
            to->more[to->n_more++] = n;
    }
}

static int wire_of(const struct pvn_topo_pairs *p, int net)
{
    int n = 0;
    while (n < net && !same_wire(net_node(p, n), net_node(p, net)))
        n++;
    return n;
}

/* Finds the NIC, of a class that is no worse, that gives this GPU the most bandwidth, if that is
 * more than its share of the advised NIC; else -1. `wire` has the wire of each NIC, `users` counts
 * the GPUs on each wire. */
static int better_than_share(const struct pvn_topo_pairs *p, int g, const int *distance,
                             const int *wire, const int *users)
{
    const int *row = distance + (size_t)g * (size_t)p->tree->n_nets;
    int at = p->list[g].advice, to = -1;
    float most = 1.05F * path_bw(p, g, at) / (float)users[wire[at]];
    for (int n = 0; n < p->tree->n_nets; n++) {
        float bw = path_bw(p, g, n) / (float)(users[wire[n]] + 1);
        if (row[n] >= PVN_TOPO_ASSIGN_NEVER || wire[n] == wire[at] ||
            row[n] % HALVING > row[at] % HALVING || bw <= most)
            continue;
        most = bw;
        to = n;
    }
    return to;
}

/* Moves GPUs away from shared NICs: the assignment prefers a NIC that is fast for one GPU, however
 * many share it. */
static int spread(struct pvn_topo_pairs *p, const int *distance)
{
    int nets = p->tree->n_nets, *wire = calloc((size_t)nets * 2 + 1, sizeof(*wire));
    if (!wire)
        return -ENOMEM;
    int *users = wire + nets,
        left = 4 * p->n; /* a limit, because GPUs with different preferences may never settle */
    for (int n = 0; n < nets; n++)
        wire[n] = wire_of(p, n);
    for (int g = 0; g < p->n; g++)
        if (p->list[g].advice >= 0)
            users[wire[p->list[g].advice]]++;
    for (int g = 0; g < p->n && left > 0; g++) {
        struct pvn_topo_pair *pair = &p->list[g];
        int to = pair->advice >= 0 && users[wire[pair->advice]] > 1
                     ? better_than_share(p, g, distance, wire, users)
                     : -1;
        if (to < 0)
            continue;
        users[wire[pair->advice]]--;
        users[wire[to]]++;
        pair->advice = to;
        pair->moved = true;
        p->exact = false;
        left--;
        g = -1; /* start again, because other GPUs may gain by the move */
    }
    free(wire);
    return 0;
}

/* Explains why a nearer NIC with less bandwidth was not advised, because this surprises people. */
static void explain_slower(const struct pvn_topo_pairs *p, struct pvn_topo_pair *pair)
{
    float bw = path_bw(p, pair->gpu, pair->advice);
    enum pvn_topo_npath type = pvn_topo_ntree_gpu_net(p->tree, pair->gpu, pair->advice)->type;
    for (int n = 0; n < p->tree->n_nets; n++) {
        const struct pvn_topo_npath_info *other = pvn_topo_ntree_gpu_net(p->tree, pair->gpu, n);
        if (!is_virtual(p, n) && other->type < type && halvings(bw, other->bw) > 0) {
            pvn_topo_append(pair->advice_why, PVN_TOPO_PAIR_WHY,
                            "; %s is nearer (%s) but has %.1f GB/s instead of %.1f", net_name(p, n),
                            pvn_topo_npath_name(other->type), other->bw, bw);
            return;
        }
    }
}

static void explain_none(const struct pvn_topo_pairs *p, char *why)
{
    for (int n = 0; n < p->tree->n_nets; n++) {
        if (is_virtual(p, n)) {
            snprintf(why, PVN_TOPO_PAIR_WHY,
                     "%s is a virtual interface; no NIC with a wire of its own can be reached",
                     net_name(p, n));
            return;
        }
    }
    snprintf(why, PVN_TOPO_PAIR_WHY, "no NIC can be reached from this GPU");
}

static void explain(struct pvn_topo_pairs *p, int g)
{
    struct pvn_topo_pair *pair = &p->list[g];
    int net = pair->advice, sharers = 0;
    char *why = pair->advice_why;
    if (net < 0) {
        explain_none(p, why);
        return;
    }
    enum pvn_topo_npath type = pvn_topo_ntree_gpu_net(p->tree, g, net)->type;
    pair->hidden = pvn_topo_pairs_hidden(p, g, net);
    if (pair->hidden)
        snprintf(why, PVN_TOPO_PAIR_WHY, "the hypervisor hides the distance; spread evenly");
    else
        snprintf(why, PVN_TOPO_PAIR_WHY, "%s: %s (%s)",
                 halvings(best_bw(p, g), path_bw(p, g, net)) > 0 ? "best left" : "nearest",
                 pvn_topo_npath_name(type), pvn_topo_npath_words(type));
    explain_slower(p, pair);
    for (int o = 0; o < p->n; o++)
        sharers += o != g && p->list[o].advice == net;
    if (sharers == 0)
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, "; no other GPU uses it");
    else
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, "; shared with %d other GPU%s%s", sharers,
                        sharers == 1 ? "" : "s", p->exact ? ", the least possible" : "");
    if (pair->moved)
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, "; more than its share of a faster one would be");
    for (int i = 0; i < pair->n_more; i++)
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, "%s%s", i ? ", " : "; with it the card's port ",
                        net_name(p, pair->more[i]));
    if (place_in_nccl(pair, net) == 2 && pair->n_nccl > 0)
        pvn_topo_append(why, PVN_TOPO_PAIR_WHY, "; NCCL will not take it by itself");
}

static bool link_stated(const struct pvn_topo_nnode *node)
{
    const char *speed = node->doc ? pvn_topo_ndoc_get(node->doc, "link_speed") : "";
    const char *width = node->doc ? pvn_topo_ndoc_get(node->doc, "link_width") : "";
    return speed && speed[0] && width && width[0] && strcmp(width, "0") != 0;
}

/* Notes facts that are unknown, so that an optimum cannot be proven. */
static void find_unknown(struct pvn_topo_pairs *p)
{
    const struct pvn_topo_ntree *t = p->tree;
    struct pvn_topo_distance d;
    for (int n = 0; n < t->n_nets && !p->unknown[0]; n++) {
        const struct pvn_topo_nic *nic = pvn_topo_pairs_nic(p, n);
        int pci = pvn_topo_pairs_net_pci(p, n);
        if (is_virtual(p, n))
            continue;
        if (nic ? nic->speed_mbps <= 0
                : pvn_topo_ndoc_get_int(net_node(p, n)->doc, "speed", 0) <= 0)
            snprintf(p->unknown, sizeof(p->unknown), "the speed of %.64s", net_name(p, n));
        for (int g = 0; g < p->n && !p->unknown[0]; g++) {
            int gpu = pvn_topo_pairs_gpu_pci(p, g);
            if (p->topo && gpu >= 0 && pci >= 0)
                pvn_topo_find_distance(p->topo, gpu, pci, &d);
            else
                d.smi = p->topo ? PVN_TOPO_SMI_UNKNOWN : PVN_TOPO_SMI_PIX;
            if (pvn_topo_pairs_hidden(p, g, n))
                snprintf(p->unknown, sizeof(p->unknown),
                         "the distance of GPUs and NICs, which the hypervisor hides,");
            else if (d.smi == PVN_TOPO_SMI_UNKNOWN)
                snprintf(p->unknown, sizeof(p->unknown), "the distance from %.32s to %.64s",
                         gpu_node(p, g)->busid, net_name(p, n));
        }
    }
    for (int i = 0; !p->topo && i < t->n_nodes && !p->unknown[0]; i++) {
        const struct pvn_topo_nnode *node = &t->nodes[i];
        if ((node->kind == PVN_TOPO_NN_PCI || node->kind == PVN_TOPO_NN_DEV ||
             (node->kind == PVN_TOPO_NN_NIC && node->busid[0])) &&
            !link_stated(node))
            snprintf(p->unknown, sizeof(p->unknown), "the link of %.32s", node->busid);
    }
}

int pvn_topo_pairs_advise(struct pvn_topo_pairs *p)
{
    const struct pvn_topo_ntree *t = p->tree;
    size_t cells = (size_t)p->n * (size_t)t->n_nets;
    int *distance = calloc(cells + 1, sizeof(int)), *second = calloc(cells + 1, sizeof(int));
    int **links = calloc(cells + 1, sizeof(*links)), *out = calloc((size_t)p->n + 1, sizeof(int));
    int err = -ENOMEM;
    if (!distance || !second || !links || !out)
        goto out;
    for (int g = 0; g < p->n; g++) {
        float best = best_bw(p, g);
        for (int n = 0; n < t->n_nets; n++) {
            size_t at = (size_t)g * (size_t)t->n_nets + (size_t)n;
            distance[at] = class_distance(p, g, n);
            if (distance[at] < PVN_TOPO_ASSIGN_NEVER)
                distance[at] += HALVING * halvings(best, path_bw(p, g, n));
            second[at] = tie_breaker(p, g, n, best);
            if (!(links[at] = links_of(p, g, n)))
                goto out;
        }
    }
    const struct pvn_topo_assign problem = {.rows = p->n,
                                            .cols = t->n_nets,
                                            .links = t->n_nodes,
                                            .distance = distance,
                                            .second = second,
                                            .uses = (const int *const *)links};
    if ((err = pvn_topo_assign_solve(&problem, out, &p->exact)) < 0)
        goto out;
    for (int g = 0; g < p->n; g++)
        p->list[g].advice = out[g];
    if ((err = spread(p, distance)) < 0)
        goto out;
    give_idle_ports(p, distance);
    for (int g = 0; g < p->n; g++)
        explain(p, g);
    find_unknown(p);
    p->exact = p->exact && !p->unknown[0];
out:
    for (size_t i = 0; links && i < cells; i++)
        free(links[i]);
    free(distance);
    free(second);
    free(links);
    free(out);
    return err;
}
