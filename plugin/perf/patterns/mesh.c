/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-perf mesh: the rounds, which all ranks go through together, and rank 0's reports on them. */
#include "config.h"

#include "perf/patterns/mesh.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/patterns/p2p.h"
#include "tools/launch_env.h"

#define HOPELESS                                                                                   \
    3 /* after so many failed pairs of a rank without a good one, the rest is not tried */

/* ---- one step of a round ---- */

/*
 * Keeps a failure inside its pair, unless another rank has ended or this one is interrupted.
 * Returns 0, or -1 if the run is over.
 */
static int keep(struct pvn_mesh *m, int rc)
{
    struct pvn_rank *r = m->r;

    r->holding = 0;
    if (!rc)
        return 0;
    if (r->lost || r->status == PVN_PERF_INTERRUPTED)
        return -1;
    m->failed = 1;
    snprintf(m->why, sizeof(m->why), "%.*s", (int)sizeof(m->why) - 1, r->err);
    r->status = r->wrong ? PVN_PERF_WRONG : PVN_PERF_OK;
    /* The cause may be that the other rank has just ended. */
    usleep(100000);
    return pvn_boot_check(&r->boot) ? pvn_rank_fail_boot(r) : 0;
}

struct token {
    uint64_t count;
    int32_t failed;
};

/* Exchanges between the ranks of a pair whether the pair works, and how many units fit. */
static int meet(struct pvn_mesh *m)
{
    struct token mine = {m->count, m->failed};
    struct token *all = calloc((size_t)m->r->nranks, sizeof(*all));
    int rc;

    if (!all)
        return pvn_rank_fail(m->r, "out of memory for %d ranks", m->r->nranks);
    pvn_rank_at(m->r, "waiting for the other ranks");
    rc = pvn_boot_allgather(&m->r->boot, &mine, all, sizeof(mine)) ? pvn_rank_fail_boot(m->r) : 0;
    if (!rc && m->partner >= 0) {
        m->failed |= all[m->partner].failed;
        if (all[m->partner].count > m->count)
            m->count = all[m->partner].count;
    }
    free(all);
    return rc;
}

static int step(struct pvn_mesh *m, int (*what)(struct pvn_mesh *m))
{
    if (m->partner >= 0 && !m->failed) {
        pvn_rank_hold(m->r);
        if (keep(m, what(m)))
            return -1;
    }
    return meet(m);
}

/* ---- the beginning and the end of a round ---- */

static int connect_pair(struct pvn_mesh *m)
{
    struct pvn_rank *r = m->r;
    size_t one = NCCL_NET_HANDLE_MAXSIZE, len = one * (size_t)r->o->channels;
    char(*all)[NCCL_NET_HANDLE_MAXSIZE] = calloc((size_t)r->nranks, len);
    int rc = 0;

    if (!all)
        return pvn_rank_fail(r, "out of memory for the handles of %d ranks", r->nranks);
    if (m->partner >= 0) {
        pvn_rank_hold(r);
        rc = keep(m, pvn_rank_listen(r, &all[r->rank * r->o->channels]));
    }
    pvn_rank_at(r, "waiting for the other ranks");
    if (!rc && pvn_boot_allgather(&r->boot, all[r->rank * r->o->channels], all, len))
        rc = pvn_rank_fail_boot(r);
    if (!rc)
        rc = meet(m);
    if (!rc && m->partner >= 0 && !m->failed) {
        pvn_rank_hold(r);
        rc = keep(m, pvn_mesh_connect(m, &all[m->partner * r->o->channels]));
    }
    free(all);
    return rc ? rc : meet(m);
}

/* Closes a pair's comms, except those of a failed pair, whose requests may never end. */
static int disconnect(struct pvn_mesh *m)
{
    if (m->partner < 0)
        return 0;
    if (!m->failed) {
        pvn_rank_hold(m->r);
        pvn_rank_disconnect(m->r);
        return keep(m, m->r->status == PVN_PERF_FAILED ? -1 : 0);
    }
    pvn_rank_forget(m->r);
    pvn_p2p_free(&m->p);
    m->left_open = 1;
    m->p.mem = NULL;
    pvn_messages_forget(m->r);
    return 0;
}

static int measure(struct pvn_mesh *m)
{
    const struct pvn_perf_opts *o = m->r->o;
    int rc = step(m, pvn_mesh_verify);

    for (m->lead = 0; !rc && o->latency && m->lead < 2; m->lead++) {
        m->count = 0;
        rc = step(m, pvn_mesh_try_latency);
        if (!rc)
            rc = step(m, pvn_mesh_latency);
    }
    for (m->lead = 0; !rc && o->bandwidth && m->lead < 2; m->lead++) {
        m->count = 0;
        rc = step(m, pvn_mesh_try_bandwidth);
        if (!rc)
            rc = step(m, pvn_mesh_bandwidth);
    }
    m->lead = 0;
    return rc;
}

/* ---- what rank 0 reports ---- */

static struct pvn_row path_row(const struct pvn_mesh *m, int from, int to, const char *test,
                               uint64_t bytes)
{
    struct pvn_row row = {.kind = PVN_ROW_RESULT};
    struct pvn_row_result *r = &row.u.result;
    const struct pvn_mesh_result *in = &m->all[to];

    snprintf(r->test, sizeof(r->test), "%s", test);
    snprintf(r->item, sizeof(r->item), "%d to %d", from, to);
    r->from = from;
    r->to = to;
    r->ranks = m->r->nranks;
    r->channels = m->p.channels;
    r->depth = m->p.depth;
    r->group = 1;
    r->bytes = bytes;
    r->errors = in->errors;
    r->via = in->via | m->all[from].via;
    r->memory = (int32_t)m->r->mem.kind;
    snprintf(r->memory_how, sizeof(r->memory_how), "%s", m->r->mem.how);
    return row;
}

static void report_path(struct pvn_mesh *m, int from, int to)
{
    const struct pvn_mesh_result *out = &m->all[from], *in = &m->all[to];
    struct pvn_row row = path_row(m, from, to, "latency", m->latency_size);
    struct pvn_row_result *r = &row.u.result;
    double messages = (double)in->units * m->p.channels;

    if (out->trips) {
        r->channels = r->depth = 1;
        r->iters = out->trips;
        r->time_us = out->time_us;
        r->min_us = out->min_us;
        r->p90_us = out->p90_us;
        r->p99_us = out->p99_us;
        r->p999_us = out->p999_us;
        r->max_us = out->max_us;
        r->best = out->best_us;
        pvn_rank_row(m->r, &row);
    }
    if (!in->units || in->seconds <= 0)
        return;
    row = path_row(m, from, to, "bandwidth", m->bandwidth_size);
    r->iters = in->units;
    r->time_us = in->seconds / (double)in->units * 1e6;
    r->rate = messages / in->seconds;
    r->algbw = r->busbw = messages * (double)r->bytes / in->seconds / 1e6;
    r->best = in->best_rate * m->p.channels * (double)r->bytes / 1e6;
    r->cpu = r->bytes ? in->cpu / (messages * (double)r->bytes / 1e9) : 0;
    pvn_rank_row(m->r, &row);
}

static void report_failure(struct pvn_mesh *m, int a, int b, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void report_failure(struct pvn_mesh *m, int a, int b, const char *fmt, ...)
{
    struct pvn_row row = {.kind = PVN_ROW_PATH_FAILED};
    va_list ap;

    m->nfailed++;
    m->fails[a]++;
    m->fails[b]++;
    row.u.failed.a = a;
    row.u.failed.b = b;
    va_start(ap, fmt);
    vsnprintf(row.u.failed.why, sizeof(row.u.failed.why), fmt, ap);
    va_end(ap);
    pvn_rank_row(m->r, &row);
}

/* Reports the reasons of failed pairs, after all ranks know that there is one. */
static int report_failures(struct pvn_mesh *m, const int *partner)
{
    const size_t len = sizeof(m->why);
    char *all = calloc((size_t)m->r->nranks, len);

    if (!all)
        return pvn_rank_fail(m->r, "out of memory for %d ranks", m->r->nranks);
    pvn_rank_at(m->r, "waiting for the other ranks");
    if (pvn_boot_allgather(&m->r->boot, m->why, all, len)) {
        free(all);
        return pvn_rank_fail_boot(m->r);
    }
    for (int a = 0; a < m->r->nranks; a++) {
        const char *x = all + len * (size_t)a, *y;
        int b = partner[a];

        if (b < a || !m->all[a].failed)
            continue;
        y = all + len * (size_t)b;
        if (x[0] && y[0])
            report_failure(m, a, b, "rank %d: %s; rank %d: %s", a, x, b, y);
        else
            report_failure(m, a, b, "rank %d: %s", x[0] ? a : b, x[0] ? x : y);
    }
    free(all);
    return 0;
}

static int report(struct pvn_mesh *m, const int *partner)
{
    int failed = 0;

    m->mine.failed = m->failed;
    pvn_rank_at(m->r, "waiting for the other ranks");
    if (pvn_boot_allgather(&m->r->boot, &m->mine, m->all, sizeof(m->mine)))
        return pvn_rank_fail_boot(m->r);
    for (int a = 0; a < m->r->nranks; a++) {
        int b = partner[a];

        failed |= m->all[a].failed;
        if (b < a || m->all[a].failed)
            continue;
        m->good[a]++;
        m->good[b]++;
        report_path(m, a, b);
        report_path(m, b, a);
    }
    return failed ? report_failures(m, partner) : 0;
}

/* ---- the run ---- */

static int hopeless(const struct pvn_mesh *m, int rank)
{
    return m->fails[rank] >= HOPELESS && !m->good[rank];
}

/* Removes pairs from a round that would only cost their timeout; the same in all ranks. */
static void skip_hopeless(struct pvn_mesh *m, int *partner)
{
    for (int a = 0; a < m->r->nranks; a++) {
        int b = partner[a];

        if (b < a || !(hopeless(m, a) || hopeless(m, b)))
            continue;
        partner[a] = partner[b] = -1;
        report_failure(m, a, b, "not tried, because rank %d had failed with all of its first %d",
                       hopeless(m, a) ? a : b, HOPELESS);
    }
}

static int run_round(struct pvn_mesh *m, int round)
{
    int *partner = &m->rounds.partner[(size_t)round * (size_t)m->r->nranks], rc;

    pvn_rank_progress(m->r, "round %d of %d", round + 1, m->rounds.n);
    skip_hopeless(m, partner);
    m->partner = partner[m->r->rank];
    m->failed = 0;
    m->why[0] = '\0';
    m->p.round = 2 * (uint64_t)round; /* equal for both ranks, whatever they did before */
    m->mine = (struct pvn_mesh_result){0};
    rc = connect_pair(m);
    if (!rc)
        rc = measure(m);
    if (!rc)
        rc = step(m, pvn_mesh_finish);
    if (!rc)
        rc = report(m, partner);
    return rc ? rc : disconnect(m);
}

/* A number that is equal for ranks that share an adapter. */
static uint64_t place_of(struct pvn_rank *r)
{
    uint64_t h = 0;
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    h = pvn_launch_hash(h, host);
    h = pvn_launch_hash(h, r->o->nnetns ? r->o->netns[r->rank % r->o->nnetns] : "");
    for (int c = 0; c < r->o->channels; c++) {
        ncclNetProperties_v12_t p;
        char guid[40];

        if (pvn_netdrv_properties(r->drv, r->link[c].dev, &p) != ncclSuccess)
            continue;
        snprintf(guid, sizeof(guid), " %llx ", (unsigned long long)p.guid);
        h = pvn_launch_hash(h, guid);
        h = pvn_launch_hash(h, p.name ? p.name : "");
    }
    return h;
}

static int prepare(struct pvn_mesh *m)
{
    struct pvn_rank *r = m->r;
    uint64_t mine = place_of(r), *place = calloc((size_t)r->nranks, sizeof(*place));
    int rc = 0;

    m->half = calloc(1, sizeof(*m->half));
    m->part = calloc(1, sizeof(*m->part));
    m->fails = calloc((size_t)r->nranks, sizeof(int));
    m->good = calloc((size_t)r->nranks, sizeof(int));
    m->all = calloc((size_t)r->nranks, sizeof(*m->all));
    if (!place || !m->half || !m->part || !m->fails || !m->good || !m->all)
        rc = pvn_rank_fail(r, "out of memory for %d ranks", r->nranks);
    if (!rc && pvn_boot_allgather(&r->boot, &mine, place, sizeof(mine)))
        rc = pvn_rank_fail_boot(r);
    if (!rc && pvn_mesh_rounds_make(&m->rounds, place, r->nranks))
        rc = pvn_rank_fail(r, "out of memory for the rounds of %d ranks", r->nranks);
    free(place);
    /* A pair may take longer than the others of its round. */
    r->boot.timeout = r->o->iters ? 86400 : 5 * r->o->timeout + 10 * r->o->time;
    return rc;
}

/* Sets the exit status. All ranks know every failed pair, so they end in order with a status that
 * shows it. */
static int judge(struct pvn_mesh *m)
{
    struct pvn_rank *r = m->r;

    if (!m->nfailed)
        return 0;
    snprintf(r->err, sizeof(r->err), "%d of %d pairs of ranks failed", m->nfailed,
             r->nranks * (r->nranks - 1) / 2);
    r->status = PVN_PERF_FAILED;
    r->orderly = !m->left_open;
    return -1;
}

int pvn_mesh_run(struct pvn_rank *r)
{
    const struct pvn_perf_opts *o = r->o;
    struct pvn_mesh m = {.r = r, .partner = -1};
    int rc;

    m.p = (struct pvn_p2p){.r = r, .channels = o->channels, .depth = o->depth, .group = 1};
    m.p.max_size = pvn_p2p_max_size(o);
    m.p.region = pvn_p2p_region(o);
    m.latency_size = o->size[0];
    m.bandwidth_size = o->size[o->nsizes - 1];
    m.memory = m.p.region * 2 * (size_t)o->channels;
    pvn_rank_hold(r);
    if (pvn_p2p_limits(&m.p) == 0 && (pvn_messages_on_gpu(r) || pvn_rank_room(r, m.memory) == 0))
        m.p.mem = pvn_rank_alloc_messages(r, m.memory);
    rc = pvn_rank_agree(r);
    if (!rc)
        rc = pvn_messages_say(r);
    if (!rc)
        rc = prepare(&m);
    for (int k = 0; !rc && k < m.rounds.n; k++)
        rc = run_round(&m, k);
    pvn_rank_say_sizes(r, rc);
    if (!rc)
        rc = judge(&m);
    if (!rc)
        pvn_rank_free_messages(r, m.p.mem, m.memory);
    pvn_mesh_rounds_free(&m.rounds);
    free(m.half);
    free(m.part);
    free(m.fails);
    free(m.good);
    free(m.all);
    return rc;
}
