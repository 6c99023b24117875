/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Path types and bandwidths between the nodes of NCCL's graph, and their consequences: PXN, the
 * detour for a refused GPUDirect, local nets (NCCL 2.30 src/graph/paths.cc, topo.cc). */
#include "topo/nccl/nccl_graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOC_BW 5000.0f

/* NCCL tries this many channels to find the GPU that a net belongs to (device.h MAXCHANNELS). */
#define CHANNELS 64

static float lesser(float a, float b)
{
    return a < b ? a : b;
}

static struct pvn_topo_npath_info *path_row(const struct pvn_topo_ntree *t, int base)
{
    return t->paths + (size_t)base * (size_t)t->n_nodes;
}

static const struct pvn_topo_npath_info *to_cpu(const struct pvn_topo_ntree *t, int cpu, int node)
{
    return &path_row(t, cpu)[node];
}

static struct pvn_topo_npath_info *to_gpu(const struct pvn_topo_ntree *t, int gpu, int node)
{
    return &path_row(t, t->n_cpus + gpu)[node];
}

static struct pvn_topo_npath_info *to_net(const struct pvn_topo_ntree *t, int net, int node)
{
    return &path_row(t, t->n_cpus + t->n_gpus + net)[node];
}

const struct pvn_topo_npath_info *pvn_topo_ntree_gpu_net(const struct pvn_topo_ntree *t, int gpu,
                                                         int net)
{
    return to_net(t, net, t->gpus[gpu]);
}

const struct pvn_topo_npath_info *pvn_topo_ntree_gpu_gpu(const struct pvn_topo_ntree *t, int from,
                                                         int to)
{
    return to_gpu(t, to, t->gpus[from]);
}

const struct pvn_topo_npath_info *pvn_topo_ntree_gpu_cpu(const struct pvn_topo_ntree *t, int gpu,
                                                         int cpu)
{
    return to_cpu(t, cpu, t->gpus[gpu]);
}

const struct pvn_topo_npath_info *pvn_topo_ntree_net_cpu(const struct pvn_topo_ntree *t, int net,
                                                         int cpu)
{
    return to_cpu(t, cpu, t->nets[net]);
}

const struct pvn_topo_npath_info *pvn_topo_ntree_net_net(const struct pvn_topo_ntree *t, int from,
                                                         int to)
{
    return to_net(t, to, t->nets[from]);
}

/* The route from GPU to net. Each direction has its own route, because PXN changes only this
 * one. */
static struct pvn_topo_nroute *forward(const struct pvn_topo_ntree *t, int gpu, int net)
{
    return &t->routes[(size_t)gpu * (size_t)t->n_nets + (size_t)net];
}

static struct pvn_topo_nroute *backward(const struct pvn_topo_ntree *t, int net, int gpu)
{
    return forward(t, t->n_gpus + gpu, net);
}

const struct pvn_topo_nroute *pvn_topo_ntree_route(const struct pvn_topo_ntree *t, int gpu, int net)
{
    return forward(t, gpu, net);
}

/* The type of a path that is extended by a link from node `at`, away from the base. *allowed is
 * false if NCCL does not extend it: through a GPU, except to reach a GPU on the same device or,
 * over NVLink, one more device. */
static int step_type(const struct pvn_topo_ntree *t, int base, int at,
                     const struct pvn_topo_nlink *link, const struct pvn_topo_npath_info *path,
                     bool *allowed)
{
    const struct pvn_topo_nnode *node = &t->nodes[at], *next = &t->nodes[link->to];
    bool from_gpu = t->nodes[base].kind == PVN_TOPO_NN_GPU;
    int base_dev = from_gpu ? t->nodes[base].up : base;
    int longest = from_gpu ? 2 : 1;
    int type = link->kind == PVN_TOPO_NL_NET ? PVN_TOPO_NPATH_LOC : (int)link->kind;

    *allowed = true;
    if (at != base_dev && node->kind == PVN_TOPO_NN_DEV &&
        (link->kind != PVN_TOPO_NL_LOC || next->kind != PVN_TOPO_NN_GPU) &&
        (t->env.nvb_disable || link->kind != PVN_TOPO_NL_NVL || next->kind != PVN_TOPO_NN_DEV ||
         path->hops > longest))
        *allowed = false;
    if (node->kind == PVN_TOPO_NN_PCI && next->kind == PVN_TOPO_NN_PCI)
        type = PVN_TOPO_NPATH_PXB;
    if (link->kind == PVN_TOPO_NL_PCI &&
        (node->kind == PVN_TOPO_NN_CPU || next->kind == PVN_TOPO_NN_CPU))
        type = PVN_TOPO_NPATH_PHB;
    if (node->kind == PVN_TOPO_NN_DEV && path->type == PVN_TOPO_NPATH_NVL &&
        type == PVN_TOPO_NPATH_NVL && path->hops == longest)
        type = PVN_TOPO_NPATH_NVB;
    return type > (int)path->type ? type : (int)path->type;
}

/* Finds all paths to one base, breadth first. A node is visited again whenever its path has
 * improved. */
static void walk_from(struct pvn_topo_ntree *t, int base, struct pvn_topo_npath_info *row, int *now,
                      int *later)
{
    int n_now = 1, n_later;
    for (int i = 0; i < t->n_nodes; i++)
        row[i] = (struct pvn_topo_npath_info){.type = PVN_TOPO_NPATH_DIS, .next = -1};
    row[base] = (struct pvn_topo_npath_info){.type = PVN_TOPO_NPATH_LOC, .bw = LOC_BW, .next = -1};
    now[0] = base;
    while (n_now > 0) {
        n_later = 0;
        for (int i = 0; i < n_now; i++) {
            const struct pvn_topo_nnode *node = &t->nodes[now[i]];
            for (int l = 0; l < node->n_links; l++) {
                const struct pvn_topo_nlink *link = &node->links[l];
                struct pvn_topo_npath_info path = row[now[i]], *best = &row[link->to];
                bool allowed;
                int type = step_type(t, base, now[i], link, &path, &allowed);
                float bw = lesser(path.bw, link->bw);
                if (!allowed || type > (int)best->type ||
                    (type == (int)best->type &&
                     !(best->bw < bw || (best->bw == bw && best->hops > path.hops + 1))))
                    continue;
                *best = (struct pvn_topo_npath_info){
                    .type = type, .bw = bw, .hops = (short)(path.hops + 1), .next = (short)now[i]};
                int j = 0;
                while (j < n_later && later[j] != link->to)
                    j++;
                if (j == n_later)
                    later[n_later++] = link->to;
            }
        }
        int *swap = now;
        now = later;
        later = swap;
        n_now = n_later;
    }
}

int pvn_topo_ntree_gpu_local_cpu(const struct pvn_topo_ntree *t, int gpu)
{
    int best = -1;
    const struct pvn_topo_npath_info *best_path = NULL;
    for (int c = 0; c < t->n_cpus; c++) {
        const struct pvn_topo_npath_info *path = pvn_topo_ntree_gpu_cpu(t, gpu, c);
        if (path->bw <= 0)
            continue;
        if (best < 0 || path->bw > best_path->bw ||
            (path->bw == best_path->bw &&
             (path->type < best_path->type ||
              (path->type == best_path->type && path->hops < best_path->hops)))) {
            best = c;
            best_path = path;
        }
    }
    return best;
}

/* Lists the local nodes: those with the highest bandwidth and, among equals, the best type (topo.cc
 * ncclTopoGetLocal). of: the indices of the n nodes, or NULL for 0 to n - 1. */
static int local(const int *of, int n,
                 struct pvn_topo_nroute *(*at)(const struct pvn_topo_ntree *, int, int),
                 const struct pvn_topo_ntree *t, int self, int *list)
{
    int count = 0;
    float best_bw = 0;
    enum pvn_topo_npath best_type = PVN_TOPO_NPATH_DIS;
    for (int i = 0; i < n; i++) {
        int node = of ? of[i] : i;
        const struct pvn_topo_nroute *r = at(t, self, node);
        if (r->bw > best_bw || (r->bw == best_bw && r->type < best_type)) {
            best_bw = r->bw;
            best_type = r->type;
            count = 0;
        }
        if (r->bw == best_bw && r->type == best_type)
            list[count++] = node;
    }
    return count;
}

int pvn_topo_ntree_local_nets(const struct pvn_topo_ntree *t, int gpu, int *list)
{
    return local(t->net_list, t->n_net_list, forward, t, gpu, list);
}

int pvn_topo_ntree_local_gpus(const struct pvn_topo_ntree *t, int net, int *list)
{
    return local(NULL, t->n_gpus, backward, t, net, list);
}

static int mirror_bits(int value, int size)
{
    int mirrored = 0;
    for (int bit = 1, other = size >> 1; bit < size; bit <<= 1, other >>= 1)
        if (value & bit)
            mirrored |= other;
    return mirrored;
}

int pvn_topo_ntree_pick(const struct pvn_topo_ntree *t, int gpu, int channel)
{
    int most = t->n_net_list > t->n_gpus ? t->n_net_list : t->n_gpus;
    int *nets = calloc(2 * (size_t)most + 1, sizeof(*nets)), *gpus = nets + most;
    int picked = -1;
    if (!nets)
        return -1;
    int n_nets = pvn_topo_ntree_local_nets(t, gpu, nets);
    int n_gpus = n_nets ? pvn_topo_ntree_local_gpus(t, nets[0], gpus) : 0;
    if (n_gpus > 0) {
        int per_gpu = t->env.netdevs == PVN_TOPO_NETDEVS_ALL ? n_nets
                      : t->env.netdevs == PVN_TOPO_NETDEVS_MAX
                          ? (t->env.netdevs_max < n_nets ? t->env.netdevs_max : n_nets)
                          : (n_nets + n_gpus - 1) / n_gpus;
        int start = t->nodes[t->gpus[gpu]].gpu.dev % n_gpus;
        if ((n_nets & (n_nets - 1)) == 0)
            start = mirror_bits(start, n_nets);
        start += channel % per_gpu;
        picked = nets[(start % n_nets + n_nets) % n_nets];
    }
    free(nets);
    return picked;
}

/* The GPU that NCCL calls local to a net: the first one that would use it on some channel. */
static int local_gpu(const struct pvn_topo_ntree *t, int net, int *list)
{
    int n = pvn_topo_ntree_local_gpus(t, net, list);
    for (int c = 0; c < CHANNELS; c++) {
        for (int i = 0; i < n; i++)
            if (pvn_topo_ntree_pick(t, list[i], c) == net)
                return list[i];
    }
    return -1;
}

/* Merges two path types. PCIe through the CPU with NVLink-C2C on the GPU's side is P2C. */
static enum pvn_topo_npath merge_types(enum pvn_topo_npath a, enum pvn_topo_npath b)
{
    enum pvn_topo_npath worse = a > b ? a : b, better = a > b ? b : a;
    return worse == PVN_TOPO_NPATH_PHB && better == PVN_TOPO_NPATH_C2C ? PVN_TOPO_NPATH_P2C : worse;
}

/* The part of ncclTopoCheckGdr that the tree decides; gdr.c has the rest. A missing gdr attribute
 * counts as yes here, because the question is what the layout allows. */
static bool gdr_allowed(const struct pvn_topo_ntree *t, int gpu, int net, bool read)
{
    const struct pvn_topo_nnode *g = &t->nodes[t->gpus[gpu]], *n = &t->nodes[t->nets[net]];
    int limit = t->env.gdr_level >= 0 ? t->env.gdr_level
                : t->env.gdr_c2c      ? PVN_TOPO_NPATH_P2C
                                      : PVN_TOPO_NPATH_PXB;
    if (n->net.gdr == 0 || g->gpu.gdr == 0 || (g->gpu.mlopart != -1 && !t->env.gdr_mlopart))
        return false;
    if (read && t->env.gdr_read == 0)
        return false;
    if (read && t->env.gdr_read < 0 && g->gpu.sm > 0 && g->gpu.sm < 80 && t->n_gpus > 1) {
        bool nvlink = false;
        for (int p = 0; p < t->n_gpus; p++)
            nvlink |= p != gpu && pvn_topo_ntree_gpu_gpu(t, gpu, p)->type == PVN_TOPO_NPATH_NVL;
        if (!nvlink)
            return false;
    }
    const struct pvn_topo_nroute *route = pvn_topo_ntree_route(t, gpu, net);
    if (route->type == PVN_TOPO_NPATH_PXN)
        route = pvn_topo_ntree_route(t, route->via_gpu, net);
    return (int)route->type <= limit;
}

static void set_both(struct pvn_topo_ntree *t, int gpu, int net, struct pvn_topo_nroute route)
{
    *forward(t, gpu, net) = route;
    *backward(t, net, gpu) = route;
}

static void use_c2c(struct pvn_topo_ntree *t, int gpu, int *list)
{
    int cpu = pvn_topo_ntree_gpu_local_cpu(t, gpu);
    int n = cpu < 0 ? 0 : pvn_topo_ntree_local_nets(t, gpu, list);
    for (int i = 0; i < n; i++) {
        struct pvn_topo_nroute route = *pvn_topo_ntree_route(t, gpu, list[i]);
        if (merge_types(pvn_topo_ntree_gpu_cpu(t, gpu, cpu)->type,
                        pvn_topo_ntree_net_cpu(t, list[i], cpu)->type) == PVN_TOPO_NPATH_P2C &&
            route.type > PVN_TOPO_NPATH_P2C) {
            route.type = PVN_TOPO_NPATH_P2C;
            set_both(t, gpu, list[i], route);
        }
    }
}

/* Uses PXN if another GPU with NVLink to this one has a path to the net that is so much better that
 * a relay pays. True if the route changed. */
static bool use_pxn(struct pvn_topo_ntree *t, int gpu, int net, int relay)
{
    struct pvn_topo_nroute *mine = forward(t, gpu, net);
    if (relay < 0 || relay == gpu || !pvn_topo_ngraph_same_host(t, t->gpus[relay], t->gpus[gpu]))
        return false;
    const struct pvn_topo_nroute *theirs = pvn_topo_ntree_route(t, relay, net);
    const struct pvn_topo_npath_info *link = pvn_topo_ntree_gpu_gpu(t, relay, gpu);
    enum pvn_topo_npath limit = t->env.pxn_c2c ? PVN_TOPO_NPATH_P2C : PVN_TOPO_NPATH_PXB;
    if (theirs->type > limit || !gdr_allowed(t, relay, net, true) ||
        link->type > PVN_TOPO_NPATH_NVL ||
        !(theirs->bw > mine->bw || mine->type > PVN_TOPO_NPATH_PXN))
        return false;
    *mine = (struct pvn_topo_nroute){
        .type = PVN_TOPO_NPATH_PXN,
        .bw = lesser(pvn_topo_ntree_gpu_gpu(t, gpu, relay)->bw, theirs->bw),
        .via_gpu = relay};
    return true;
}

static bool use_detour(struct pvn_topo_ntree *t, int gpu, int net)
{
    int cpu = pvn_topo_ntree_gpu_local_cpu(t, gpu);
    if (cpu < 0 || pvn_topo_ntree_route(t, gpu, net)->type >= PVN_TOPO_NPATH_PHB ||
        gdr_allowed(t, gpu, net, false))
        return false;
    const struct pvn_topo_npath_info *up = pvn_topo_ntree_gpu_cpu(t, gpu, cpu);
    const struct pvn_topo_npath_info *down = pvn_topo_ntree_net_cpu(t, net, cpu);
    set_both(t, gpu, net,
             (struct pvn_topo_nroute){.type = merge_types(up->type, down->type),
                                      .bw = lesser(up->bw, down->bw),
                                      .via_gpu = -1,
                                      .detour = true});
    return true;
}

static int decide_routes(struct pvn_topo_ntree *t)
{
    int most = t->n_net_list > t->n_gpus ? t->n_net_list : t->n_gpus;
    int *list = calloc((size_t)most + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    for (int g = 0; g < t->n_gpus; g++) {
        for (int n = 0; n < t->n_nets; n++) {
            const struct pvn_topo_npath_info *path = pvn_topo_ntree_gpu_net(t, g, n);
            set_both(t, g, n,
                     (struct pvn_topo_nroute){.type = path->type, .bw = path->bw, .via_gpu = -1});
        }
    }
    for (int g = 0; g < t->n_gpus; g++)
        use_c2c(t, g, list);
    for (int n = 0; n < t->n_nets; n++) {
        /* NCCL computes the relay for each pair; its result changes only if the routes change. */
        bool changed = true;
        int relay = -1;
        for (int g = 0; g < t->n_gpus; g++) {
            if (!t->env.pxn_disable && changed)
                relay = local_gpu(t, n, list);
            changed = !t->env.pxn_disable && use_pxn(t, g, n, relay);
            changed |= use_detour(t, g, n);
        }
    }
    free(list);
    return 0;
}

/* Routes GPU pairs through the CPU if they may not communicate directly (ncclTopoCheckP2p). */
static void divert_gpu_pairs(struct pvn_topo_ntree *t)
{
    int devs = 0;
    for (int i = 0; i < t->n_nodes; i++)
        devs += t->nodes[i].kind == PVN_TOPO_NN_DEV;
    const struct pvn_topo_nnode *cpu0 = t->n_cpus ? &t->nodes[t->cpus[0]] : NULL;
    int limit = PVN_TOPO_NPATH_PXB;
    if (cpu0 && cpu0->cpu.arch == PVN_TOPO_NARCH_X86 && cpu0->cpu.vendor == PVN_TOPO_NCPU_AMD &&
        devs <= 2)
        limit = PVN_TOPO_NPATH_SYS;
    if (t->env.p2p_level >= 0)
        limit = t->env.p2p_level;
    for (int g = 0; g < t->n_gpus; g++) {
        int cpu = pvn_topo_ntree_gpu_local_cpu(t, g);
        for (int p = 0; p < t->n_gpus; p++) {
            struct pvn_topo_npath_info *path = to_gpu(t, g, t->gpus[p]);
            if ((int)path->type <= limit || cpu < 0)
                continue;
            const struct pvn_topo_npath_info *up = to_cpu(t, cpu, t->gpus[p]);
            const struct pvn_topo_npath_info *down = to_gpu(t, g, t->cpus[cpu]);
            path->type = merge_types(up->type, down->type);
            path->bw = lesser(up->bw, down->bw);
            path->hops = (short)(up->hops + down->hops);
        }
    }
}

int pvn_topo_ntree_hops(const struct pvn_topo_ntree *t, int gpu, int net, int *hops, int max)
{
    int n = 0, at = t->gpus[gpu];
    if (pvn_topo_ntree_gpu_net(t, gpu, net)->type >= PVN_TOPO_NPATH_DIS)
        return 0;
    while (at >= 0 && n < max) {
        hops[n++] = at;
        at = to_net(t, net, at)->next;
    }
    return n;
}

void pvn_topo_ntree_free(struct pvn_topo_ntree *tree)
{
    if (!tree)
        return;
    for (int i = 0; i < tree->n_nodes; i++)
        free(tree->nodes[i].links);
    free(tree->nodes);
    free(tree->gpus);
    free(tree->nets);
    free(tree->net_list);
    free(tree->cpus);
    free(tree->paths);
    free(tree->routes);
    free(tree);
}

static int compute_paths(struct pvn_topo_ntree *t)
{
    int bases = t->n_cpus + t->n_gpus + t->n_nets;
    size_t pairs = (size_t)t->n_gpus * (size_t)t->n_nets;
    int *work = calloc(2 * (size_t)t->n_nodes + 2, sizeof(*work));
    t->paths = calloc((size_t)bases * (size_t)t->n_nodes + 1, sizeof(*t->paths));
    t->routes = calloc(2 * pairs + 1, sizeof(*t->routes));
    if (!work || !t->paths || !t->routes) {
        free(work);
        return -ENOMEM;
    }
    for (int b = 0; b < bases; b++) {
        int node = b < t->n_cpus               ? t->cpus[b]
                   : b < t->n_cpus + t->n_gpus ? t->gpus[b - t->n_cpus]
                                               : t->nets[b - t->n_cpus - t->n_gpus];
        walk_from(t, node, path_row(t, b), work, work + t->n_nodes + 1);
    }
    free(work);
    divert_gpu_pairs(t);
    return decide_routes(t);
}

int pvn_topo_ntree_new(const struct pvn_topo_ndoc *doc, const struct pvn_topo_nccl_env *env,
                       struct pvn_topo_ntree **tree, char *why, size_t why_len)
{
    struct pvn_topo_ntree *t = calloc(1, sizeof(*t));
    *tree = NULL;
    if (!t) {
        snprintf(why, why_len, "out of memory");
        return -ENOMEM;
    }
    t->doc = doc;
    if (env)
        t->env = *env;
    else
        pvn_topo_nccl_env_load(&t->env, NULL, NULL);
    int err = pvn_topo_ngraph_build(t, why, why_len);
    if (err == 0 && (err = compute_paths(t)) < 0)
        snprintf(why, why_len, "out of memory");
    if (err < 0) {
        pvn_topo_ntree_free(t);
        return err;
    }
    *tree = t;
    return 0;
}
