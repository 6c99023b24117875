/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The comms between pairs of ranks. */
#include "config.h"

#include "perf/patterns/pairs.h"

#include <stdlib.h>
#include <string.h>

typedef char handle_t[NCCL_NET_HANDLE_MAXSIZE];

/* 1 if this rank has comms with the node. */
static int talks(const struct pvn_pairs *p, int node)
{
    int away = abs(node - p->plan.node);

    return p->r->o->collective == PVN_PIPELINE ? away == 1 : away > 0;
}

/* Comms of this rank with one node. */
static int comms_each(const struct pvn_pairs *p)
{
    return p->plan.per_peer * p->lanes;
}

static int learn_groups(struct pvn_pairs *p)
{
    ncclNetProperties_v12_t props;
    ncclResult_t rc;

    pvn_rank_at(p->r, "getProperties");
    rc = pvn_netdrv_properties(p->r->drv, p->r->link[0].dev, &props);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(p->r, "getProperties", rc);
    p->max_recvs = props.maxRecvs < 1 ? 1 : props.maxRecvs;
    if (p->max_recvs > pvn_netdrv_max_group(p->r->drv))
        p->max_recvs = pvn_netdrv_max_group(p->r->drv);
    if (pvn_boot_share(&p->r->boot, &p->max_recvs, sizeof(p->max_recvs)))
        return pvn_rank_fail_boot(p->r);
    return 0;
}

static int listen_all(struct pvn_pairs *p, handle_t *mine)
{
    for (int i = 0; i < p->plan.nodes * comms_each(p); i++) {
        struct pvn_pair_comm *c = &p->comm[i];
        int part = i / p->lanes % p->plan.per_peer, node = i / comms_each(p);
        ncclResult_t rc;

        if (!talks(p, node))
            continue;
        c->dev =
            p->r->link[pvn_pairs_channel(&p->plan, pvn_pairs_round(&p->plan, node, 1), part)].dev;
        pvn_rank_at(p->r, "listen");
        rc = pvn_netdrv_listen(
            p->r->drv, p->r->ctx,
            p->r->link[pvn_pairs_channel(&p->plan, pvn_pairs_round(&p->plan, node, 0), part)].dev,
            mine[i], &c->listen);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(p->r, "listen", rc);
    }
    return 0;
}

/* Tries once to connect the missing directions of a comm. Returns how many of its two directions
 * came up, or -1. */
static int connect_one(struct pvn_pairs *p, struct pvn_pair_comm *c, char *handle)
{
    int before = (c->send != NULL) + (c->recv != NULL);
    ncclResult_t rc;

    if (!c->send) {
        pvn_rank_at(p->r, "connect");
        rc = pvn_netdrv_connect(p->r->drv, p->r->ctx, c->dev, handle, &c->send);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(p->r, "connect", rc);
    }
    if (!c->recv) {
        pvn_rank_at(p->r, "accept");
        rc = pvn_netdrv_accept(p->r->drv, c->listen, &c->recv);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(p->r, "accept", rc);
    }
    return (c->send != NULL) + (c->recv != NULL) - before;
}

static int connect_all(struct pvn_pairs *p, handle_t *theirs)
{
    int each = comms_each(p), waiting = 0, missing = 0, idle;

    for (int n = 0; n < p->plan.nodes; n++)
        waiting += talks(p, n) ? 2 * each : 0;
    p->r->idle = 0;
    while (waiting) {
        int came = 0;

        if (pvn_rank_stops(p->r))
            return -1;
        for (int i = 0; i < p->plan.nodes * each; i++) {
            int rc = talks(p, i / each) ? connect_one(p, &p->comm[i], theirs[i]) : 0;

            if (rc < 0)
                return -1;
            came += rc;
            if (p->comm[i].listen && (!p->comm[i].send || !p->comm[i].recv))
                missing = i / each;
        }
        waiting -= came;
        if (came) {
            pvn_rank_moved(p->r);
            continue;
        }
        idle = pvn_rank_idle(p->r);
        if (idle < 0)
            return -1;
        if (idle)
            return pvn_rank_fail(
                p->r, "plugin %s did not connect ranks %d and %d within %.0f s " PVN_RANK_TIMEOUT,
                p->r->o->plugin[p->r->plugin].name, p->r->rank,
                missing * p->plan.group + p->r->rank % p->plan.group, p->r->o->timeout);
    }
    return 0;
}

/* Selects, from the handles of all ranks, those that this rank's counterparts have for it. */
static void pick_theirs(const struct pvn_pairs *p, handle_t *all, handle_t *theirs)
{
    int each = comms_each(p), of_rank = p->plan.nodes * each;

    for (int n = 0; n < p->plan.nodes; n++) {
        int peer = n * p->plan.group + p->r->rank % p->plan.group;

        memcpy(theirs[n * each], all[peer * of_rank + p->plan.node * each],
               sizeof(*theirs) * (size_t)each);
    }
}

static int connect_pairs(struct pvn_pairs *p)
{
    size_t of_rank = (size_t)(p->plan.nodes * comms_each(p));
    handle_t *mine = calloc(of_rank, sizeof(*mine)), *theirs = calloc(of_rank, sizeof(*theirs));
    handle_t *all = calloc(of_rank * (size_t)p->r->nranks, sizeof(*all));
    int rc = 0;

    if (!mine || !theirs || !all)
        rc = pvn_rank_fail(p->r, "out of memory for the handles of %d ranks", p->r->nranks);
    if (!rc)
        rc = listen_all(p, mine);
    if (!rc && pvn_boot_allgather(&p->r->boot, mine, all, of_rank * sizeof(*mine)))
        rc = pvn_rank_fail_boot(p->r);
    if (!rc) {
        pick_theirs(p, all, theirs);
        rc = connect_all(p, theirs);
    }
    free(mine);
    free(theirs);
    free(all);
    if (!rc && pvn_boot_barrier(&p->r->boot))
        rc = pvn_rank_fail_boot(p->r);
    return rc;
}

/* Connects both directions with all nodes, and records the memory of a comm. */
static int connect_and_measure(struct pvn_pairs *p)
{
    double before = pvn_rank_resident();
    int comms = 0, rc = connect_pairs(p);

    for (int n = 0; n < p->plan.nodes; n++)
        comms += talks(p, n) ? 2 * comms_each(p) : 0;
    if (comms)
        p->r->rss_per_comm = (pvn_rank_resident() - before) / comms;
    return rc;
}

static void close_pairs(struct pvn_rank *r)
{
    struct pvn_pairs *p = r->pairs;

    if (!p)
        return;
    for (int i = 0; p->comm && i < p->plan.nodes * comms_each(p); i++) {
        pvn_rank_close_one(r, "closeSend", pvn_netdrv_close_send, p->comm[i].send);
        pvn_rank_close_one(r, "closeRecv", pvn_netdrv_close_recv, p->comm[i].recv);
        pvn_rank_close_one(r, "closeListen", pvn_netdrv_close_listen, p->comm[i].listen);
    }
    pvn_pairs_plan_free(&p->plan);
    free(p->comm);
    free(p);
    r->pairs = NULL;
}

int pvn_pairs_open(struct pvn_rank *r)
{
    const struct pvn_perf_opts *o = r->o;
    struct pvn_pairs *p = calloc(1, sizeof(*p));

    if (!p)
        return pvn_rank_fail(r, "out of memory for the comms of %d ranks", r->nranks);
    r->pairs = p;
    r->close_more = close_pairs;
    p->r = r;
    pvn_rank_hold(r);
    if (r->nranks > 1 && (r->nranks % o->group || r->nranks == o->group))
        pvn_rank_fail(r, "--group %d: %d ranks are not two or more whole nodes", o->group,
                      r->nranks);
    else if (r->nranks == 1 && o->group > 1)
        pvn_rank_fail(r, "--group %d: there is one rank", o->group);
    if (pvn_rank_agree(r))
        return -1;
    if (pvn_pairs_plan_init(&p->plan, r->nranks, r->rank, o->group, o->channels, o->per_peer,
                            o->slot))
        return pvn_rank_fail(r, "out of memory for the rounds of %d ranks", r->nranks);
    if (learn_groups(p))
        return -1;
    p->lanes = p->max_recvs > 1 ? 1 : o->group;
    p->comm = calloc((size_t)(p->plan.nodes * comms_each(p)), sizeof(*p->comm));
    if (!p->comm)
        return pvn_rank_fail(r, "out of memory for the comms of %d ranks", r->nranks);
    return p->plan.nodes > 1 ? connect_and_measure(p) : 0;
}
