/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-perf mesh: the work of the two ranks of a pair. */
#include "config.h"

#include "perf/patterns/mesh.h"

#include <string.h>

#include "perf/rank/own_stats.h"
#include "perf/patterns/p2p.h"

#define CHECK_UNITS 48 /* messages of a verified pass, in each direction */
#define WARM_TRIPS  20
#define MAX_COUNT   20000000
/* Each measurement has several parts, because a busy host disturbs one part and hardly ever all. */
#define PARTS 3

static void use_size(struct pvn_mesh *m, uint64_t size)
{
    m->p.size = size;
    m->p.stride = (size + 2 * PVN_P2P_GUARD + 63) / 64 * 64;
}

/* Side 0 begins, or sends. It is the rank with the lower number if lead is 0. */
static void use_side(struct pvn_mesh *m)
{
    m->p.side = (m->r->rank > m->partner) != (m->lead != 0);
}

/* Computes how many units fit --time, from the duration of a few. */
static void choose(struct pvn_mesh *m, double seconds, uint64_t units, uint64_t min)
{
    double each = seconds / (double)units;
    double fit = m->r->o->time / (each > 1e-9 ? each : 1e-9);

    m->count = fit < (double)min ? min : fit > MAX_COUNT ? MAX_COUNT : (uint64_t)fit;
    if (m->r->o->iters)
        m->count = (uint64_t)m->r->o->iters;
}

int pvn_mesh_connect(struct pvn_mesh *m, char (*handle)[NCCL_NET_HANDLE_MAXSIZE])
{
    /* The plugin may still use the memory of a failed pair. */
    if (!m->p.mem)
        m->p.mem = pvn_rank_alloc_messages(m->r, m->memory);
    if (!m->p.mem || pvn_rank_connect(m->r, handle, m->partner, m->partner))
        return -1;
    return pvn_p2p_register(&m->p);
}

int pvn_mesh_verify(struct pvn_mesh *m)
{
    const uint64_t size[2] = {m->latency_size, m->bandwidth_size};
    double unused;
    int rc = 0;

    use_side(m);
    m->p.errors = 0;
    m->p.check = 1;
    for (int i = 0; i < 2 && !rc; i++) {
        if (i && size[1] == size[0])
            break;
        use_size(m, size[i]);
        m->p.round++;
        rc = pvn_p2p_both(&m->p, CHECK_UNITS, &unused);
    }
    m->p.check = 0;
    m->mine.errors = m->p.errors;
    return rc;
}

int pvn_mesh_try_latency(struct pvn_mesh *m)
{
    uint64_t warm = m->r->o->warmup > 0 ? (uint64_t)m->r->o->warmup : WARM_TRIPS;
    double t0 = pvn_now_s();

    use_side(m);
    use_size(m, m->latency_size);
    if (pvn_p2p_ping_pong(&m->p, warm, NULL))
        return -1;
    if (m->p.side == 0)
        choose(m, pvn_now_s() - t0, warm, 20);
    return 0;
}

/* The number of parts: PARTS if each has several full pipelines, else 1. */
static int parts_of(uint64_t count, int depth)
{
    return count >= (uint64_t)depth * 8 * PARTS ? PARTS : 1;
}

static uint64_t part_of(uint64_t count, int parts, int i)
{
    return count / (uint64_t)parts + ((uint64_t)i < count % (uint64_t)parts);
}

int pvn_mesh_latency(struct pvn_mesh *m)
{
    struct pvn_hist *h = m->half;
    int parts = parts_of(m->count, 1);
    double best = 0;

    pvn_hist_clear(h);
    for (int i = 0; i < parts; i++) {
        double median;

        pvn_hist_clear(m->part);
        if (pvn_p2p_ping_pong(&m->p, part_of(m->count, parts, i), m->p.side == 0 ? m->part : NULL))
            return -1;
        pvn_hist_merge(h, m->part);
        median = pvn_hist_percentile(m->part, 0.5) / 1e3;
        if (i == 0 || median < best)
            best = median;
    }
    if (m->p.side != 0)
        return 0;
    m->mine.best_us = best;
    m->mine.trips = m->count;
    m->mine.time_us = pvn_hist_percentile(h, 0.5) / 1e3;
    m->mine.min_us = (double)h->min / 1e3;
    m->mine.p90_us = pvn_hist_percentile(h, 0.9) / 1e3;
    m->mine.p99_us = pvn_hist_percentile(h, 0.99) / 1e3;
    m->mine.p999_us = pvn_hist_percentile(h, 0.999) / 1e3;
    m->mine.max_us = (double)h->max / 1e3;
    return 0;
}

int pvn_mesh_try_bandwidth(struct pvn_mesh *m)
{
    uint64_t warm = m->r->o->warmup > 0 ? (uint64_t)m->r->o->warmup : (uint64_t)m->p.depth * 2;
    double t0 = pvn_now_s();

    use_side(m);
    use_size(m, m->bandwidth_size);
    if (pvn_p2p_stream(&m->p, warm))
        return -1;
    if (m->p.side == 1)
        choose(m, pvn_now_s() - t0, warm, (uint64_t)m->p.depth * 2);
    return 0;
}

/* Measures bandwidth. The receiver's clock starts when the first messages have arrived, so that a
 * late start of the sender does not count. */
int pvn_mesh_bandwidth(struct pvn_mesh *m)
{
    int parts = parts_of(m->count, m->p.depth);
    double t0, t1, cpu, best = 0;

    if (pvn_p2p_stream(&m->p, (uint64_t)m->p.depth))
        return -1;
    cpu = pvn_rank_cpu();
    t0 = t1 = pvn_now_s();
    for (int i = 0; i < parts; i++) {
        uint64_t n = part_of(m->count, parts, i);
        double before = t1;

        if (pvn_p2p_stream(&m->p, n))
            return -1;
        t1 = pvn_now_s();
        if ((double)n / (t1 - before) > best)
            best = (double)n / (t1 - before);
    }
    if (m->p.side != 1)
        return 0;
    m->mine.seconds = t1 - t0;
    m->mine.best_rate = best;
    m->mine.cpu = pvn_rank_cpu() - cpu;
    m->mine.units = m->count;
    return 0;
}

int pvn_mesh_finish(struct pvn_mesh *m)
{
    struct pvn_own_stats own;

    pvn_own_stats_read(&own);
    m->mine.via = own.via;
    return pvn_p2p_deregister(&m->p);
}
