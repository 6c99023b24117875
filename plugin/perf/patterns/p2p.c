/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-perf p2p: ranks 0 and 1 with one pair of comms per channel. */
#include "config.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/patterns/p2p.h"
#include "perf/patterns/p2p_soak.h"

#define CHECK_UNITS 96       /* messages of a verified pass */
#define LATENCY_MAX 20000000 /* limit of round trips of one size if their number is not given */

/* Computes how many units fit --time, from a short run on rank 0; the same on both ranks. */
static int choose_count(struct pvn_p2p *p, double seconds, uint64_t units, uint64_t min,
                        uint64_t max, uint64_t *n)
{
    double each = seconds / (double)(units ? units : 1);
    double fit = p->r->o->time / (each > 1e-9 ? each : 1e-9);

    *n = fit < (double)min ? min : fit > (double)max ? max : (uint64_t)fit;
    if (p->r->o->iters)
        *n = (uint64_t)p->r->o->iters;
    if (pvn_boot_share(&p->r->boot, n, sizeof(*n)))
        return pvn_rank_fail_boot(p->r);
    return 0;
}

struct outcome {
    double seconds, cpu;
    int64_t errors;
    int64_t sizes_missing;
    double in_seconds;   /* both directions: until this rank had received everything */
    double direction[2]; /* combined: until everything that rank 0, that rank 1 sent had arrived */
};

/* Combines both ranks' outcomes: the longer time, the sum of the rest. */
static int combine(struct pvn_p2p *p, struct outcome *o)
{
    struct outcome all[2];

    o->errors = p->errors;
    o->sizes_missing = p->r->sizes_missing;
    if (pvn_boot_allgather(&p->r->boot, o, all, sizeof(*o)))
        return pvn_rank_fail_boot(p->r);
    o->seconds = fmax(all[0].seconds, all[1].seconds);
    o->cpu = all[0].cpu + all[1].cpu;
    o->direction[0] = all[1].in_seconds;
    o->direction[1] = all[0].in_seconds;
    o->errors = all[0].errors + all[1].errors;
    o->sizes_missing = all[0].sizes_missing + all[1].sizes_missing;
    if (o->errors && p->r->status == PVN_PERF_OK)
        p->r->status = PVN_PERF_WRONG;
    return 0;
}

static struct pvn_row_result blank_result(const struct pvn_p2p *p, const char *test)
{
    struct pvn_row_result res = {.ranks = 2,
                                 .channels = p->channels,
                                 .depth = p->depth,
                                 .group = p->group,
                                 .bytes = p->size,
                                 .errors = -1};

    snprintf(res.test, sizeof(res.test), "%s", test);
    return res;
}

/* Verifies in a separate pass before the timed ones: lengths vary, receives are larger, and guards
 * are checked. */
static int run_check(struct pvn_p2p *p, struct outcome *o)
{
    int rc;

    p->check = 1;
    p->round++;
    rc = p->r->o->bidirectional ? pvn_p2p_both(p, CHECK_UNITS, &o->in_seconds)
                                : pvn_p2p_stream(p, CHECK_UNITS);
    p->check = 0;
    return rc ? rc : combine(p, o);
}

static int run_latency(struct pvn_p2p *p, const struct outcome *checked)
{
    struct pvn_row_result res = blank_result(p, "latency");
    uint64_t warm = p->r->o->warmup >= 0 ? (uint64_t)p->r->o->warmup : 20, n;
    struct pvn_hist *half = calloc(1, sizeof(*half));
    double t0 = pvn_now_s();
    int rc = -1;

    if (!half)
        return pvn_rank_fail(p->r, "out of memory for the latencies");
    if (pvn_p2p_ping_pong(p, warm ? warm : 1, NULL) ||
        choose_count(p, pvn_now_s() - t0, warm ? warm : 1, 20, LATENCY_MAX, &n))
        goto out;
    if (pvn_boot_barrier(&p->r->boot)) {
        pvn_rank_fail_boot(p->r);
        goto out;
    }
    rc = pvn_p2p_ping_pong(p, n, half);
    if (rc)
        goto out;
    res.iters = n;
    res.depth = res.group = res.channels = 1;
    res.time_us = pvn_hist_percentile(half, 0.5) / 1e3;
    res.min_us = (double)half->min / 1e3;
    res.p90_us = pvn_hist_percentile(half, 0.9) / 1e3;
    res.p99_us = pvn_hist_percentile(half, 0.99) / 1e3;
    res.p999_us = pvn_hist_percentile(half, 0.999) / 1e3;
    res.max_us = (double)half->max / 1e3;
    res.errors = checked ? checked->errors : -1;
    pvn_rank_result(p->r, &res);
    pvn_rank_hist(p->r, half);
out:
    free(half);
    return rc;
}

static int run_bandwidth(struct pvn_p2p *p, const struct outcome *checked)
{
    struct pvn_row_result res = blank_result(p, "bandwidth");
    uint64_t warm = p->r->o->warmup >= 0 ? (uint64_t)p->r->o->warmup : (uint64_t)p->depth * 4, n;
    struct outcome o = {0};
    double t0 = pvn_now_s(), cpu, messages;

    if (pvn_p2p_stream(p, warm ? warm : 1) ||
        choose_count(p, pvn_now_s() - t0, warm ? warm : 1, (uint64_t)p->depth * 2, 20000000, &n))
        return -1;
    if (pvn_boot_barrier(&p->r->boot))
        return pvn_rank_fail_boot(p->r);
    cpu = pvn_rank_cpu();
    t0 = pvn_now_s();
    if (pvn_p2p_stream(p, n))
        return -1;
    o.seconds = pvn_now_s() - t0;
    o.cpu = pvn_rank_cpu() - cpu;
    if (combine(p, &o))
        return -1;
    messages = (double)n * p->group * p->channels;
    res.iters = n;
    res.time_us = o.seconds / (double)n * 1e6;
    res.rate = messages / o.seconds;
    res.algbw = res.busbw = messages * (double)p->size / o.seconds / 1e6;
    res.cpu = p->size ? o.cpu / (messages * (double)p->size / 1e9) : 0;
    res.errors = checked ? checked->errors : -1;
    pvn_rank_result(p->r, &res);
    return 0;
}

/* Reports the sum of both directions, then each direction alone, until its last message had
 * arrived. */
static void report_both(struct pvn_p2p *p, const struct outcome *o, uint64_t n, int64_t errors)
{
    struct pvn_row_result res = blank_result(p, "bidir");
    double messages = (double)n * p->group * p->channels;
    double bytes = messages * (double)p->size;

    res.iters = n;
    res.time_us = o->seconds / (double)n * 1e6;
    res.rate = 2 * messages / o->seconds;
    res.algbw = res.busbw = 2 * bytes / o->seconds / 1e6;
    res.cpu = p->size ? o->cpu / (2 * bytes / 1e9) : 0;
    res.errors = errors;
    pvn_rank_result(p->r, &res);
    for (int i = 0; i < 2; i++) {
        snprintf(res.item, sizeof(res.item), "%d to %d", i, 1 - i);
        res.time_us = o->direction[i] / (double)n * 1e6;
        res.rate = messages / o->direction[i];
        res.algbw = res.busbw = bytes / o->direction[i] / 1e6;
        pvn_rank_result(p->r, &res);
    }
}

static int run_both(struct pvn_p2p *p, const struct outcome *checked)
{
    uint64_t warm = p->r->o->warmup >= 0 ? (uint64_t)p->r->o->warmup : (uint64_t)p->depth * 4, n;
    struct outcome o = {0};
    double t0 = pvn_now_s(), cpu;

    if (pvn_p2p_both(p, warm ? warm : 1, &o.in_seconds) ||
        choose_count(p, pvn_now_s() - t0, warm ? warm : 1, (uint64_t)p->depth * 2, 20000000, &n))
        return -1;
    if (pvn_boot_barrier(&p->r->boot))
        return pvn_rank_fail_boot(p->r);
    cpu = pvn_rank_cpu();
    t0 = pvn_now_s();
    if (pvn_p2p_both(p, n, &o.in_seconds))
        return -1;
    o.seconds = pvn_now_s() - t0;
    o.cpu = pvn_rank_cpu() - cpu;
    if (combine(p, &o))
        return -1;
    report_both(p, &o, n, checked ? checked->errors : -1);
    return 0;
}

static int run_soak(struct pvn_p2p *p)
{
    struct pvn_row_result res = blank_result(p, "soak");

    int rc = pvn_p2p_soak(p, &res);

    if (!rc)
        pvn_rank_result(p->r, &res);
    else if (res.got_messages)
        pvn_rank_last_result(p->r, &res);
    return rc;
}

static int run_size(struct pvn_p2p *p, int index, int latency, struct outcome *checked)
{
    const struct pvn_perf_opts *o = p->r->o;

    p->size = o->size[index];
    p->stride = (p->size + 2 * PVN_P2P_GUARD + 63) / 64 * 64;
    pvn_rank_progress(p->r, "%s, %llu bytes", latency ? "latency" : "bandwidth",
                      (unsigned long long)p->size);
    if (o->duration > 0)
        return run_soak(p);
    /* The first test of a size verifies it. */
    if (o->check && (latency || !o->latency)) {
        p->errors = 0;
        if (run_check(p, checked))
            return -1;
    }
    if (latency)
        return run_latency(p, o->check ? checked : NULL);
    if (o->bidirectional)
        return run_both(p, o->check ? checked : NULL);
    return run_bandwidth(p, o->check ? checked : NULL);
}

/* Measures all latencies, then all bandwidths: two tables. */
static int run_sizes(struct pvn_p2p *p)
{
    const struct pvn_perf_opts *o = p->r->o;
    struct outcome checked[PVN_PERF_MAX_SIZES] = {{0}};

    for (int i = 0; o->latency && i < o->nsizes; i++)
        if (run_size(p, i, 1, &checked[i]))
            return -1;
    for (int i = 0; o->bandwidth && i < o->nsizes; i++)
        if (run_size(p, i, 0, &checked[i]))
            return -1;
    return 0;
}

/* Tests one posted receive per channel in turn until the time is over; nothing arrives. */
static int wait_idle(struct pvn_p2p *p, double seconds, uint64_t *passes)
{
    double end = pvn_now_s() + seconds;

    for (*passes = 0; pvn_now_s() < end; (*passes)++) {
        if (pvn_rank_stops(p->r))
            return -1;
        for (int c = 0; c < p->channels; c++) {
            int rc = pvn_p2p_complete(p, c, &p->in[c], 0);

            if (rc < 0)
                return -1;
            if (rc > 0)
                return pvn_rank_fail(p->r,
                                     "channel %d: a receive completed before anything was sent", c);
        }
        pvn_rank_moved(p->r);
        sched_yield();
    }
    return 0;
}

/* Measures the cost of silent comms: rank 1 has a receive posted on each and keeps testing them,
 * like a rank that waits for slower ones. Then one message on each shows that they still work. */
static int run_idle(struct pvn_p2p *p)
{
    struct pvn_row_result res;
    struct {
        uint64_t passes;
        double rss;
    } mine = {0}, all[2];

    p->size = p->r->o->size[0];
    p->stride = (p->size + 2 * PVN_P2P_GUARD + 63) / 64 * 64;
    pvn_rank_progress(p->r, "%d idle comms for %.0f s", p->channels, p->r->o->idle);
    for (int c = 0; p->r->rank == 1 && c < p->channels; c++) {
        pvn_p2p_start(p, &p->in[c], 1, 0);
        while (p->in[c].posted == 0)
            if (pvn_p2p_post_recv(p, &p->in[c]) < 0)
                return -1;
    }
    if (p->r->rank == 1 && wait_idle(p, p->r->o->idle, &mine.passes))
        return -1;
    mine.rss = p->r->rss_per_comm;
    if (pvn_boot_allgather(&p->r->boot, &mine, all, sizeof(mine)))
        return pvn_rank_fail_boot(p->r);
    if (p->r->rank == 0 ? pvn_p2p_stream(p, 1) : pvn_p2p_drain(p, p->in, 0))
        return -1;
    res = blank_result(p, "idle");
    res.iters = all[1].passes;
    res.time_us = p->r->o->idle / ((double)all[1].passes * p->channels) * 1e6;
    res.rate = (double)all[1].passes / p->r->o->idle;
    res.rss = all[1].rss;
    pvn_rank_result(p->r, &res);
    return 0;
}

void pvn_p2p_free(struct pvn_p2p *p)
{
    for (int c = 0; p->in && c < p->channels; c++)
        free(p->in[c].got);
    free(p->out);
    free(p->in);
    free(p->bounce);
    p->out = p->in = NULL;
    p->bounce = NULL;
}

int pvn_p2p_register(struct pvn_p2p *p)
{
    p->out = calloc((size_t)p->channels, sizeof(*p->out));
    p->in = calloc((size_t)p->channels, sizeof(*p->in));
    if (!p->out || !p->in)
        return pvn_rank_fail(p->r, "out of memory for %d channels", p->channels);
    if (pvn_messages_on_gpu(p->r) && !(p->bounce = malloc(p->max_size + 2 * PVN_P2P_GUARD)))
        return pvn_rank_fail(p->r, "out of memory for a message of %zu bytes", p->max_size);
    for (int c = 0; c < p->channels; c++) {
        struct pvn_flow *pair[2] = {&p->out[c], &p->in[c]};

        if (p->r->mem.flush &&
            !(p->in[c].got = calloc(NCCL_NET_MAX_REQUESTS, sizeof(p->in[c].got[0]))))
            return pvn_rank_fail(p->r, "out of memory for %d channels", p->channels);
        for (int k = 0; k < 2; k++) {
            pair[k]->comm = k ? p->r->link[c].recv : p->r->link[c].send;
            pair[k]->base = p->mem + p->region * (size_t)(2 * c + k);
            if (!p->bounce)
                memset(pair[k]->base, k, p->region); /* avoids page faults later */
            if (pvn_messages_register(p->r, pair[k]->comm, pair[k]->base, p->region,
                                      &pair[k]->mhandle))
                return -1;
        }
    }
    return 0;
}

int pvn_p2p_deregister(struct pvn_p2p *p)
{
    for (int c = 0; c < p->channels; c++) {
        ncclResult_t a, b;

        pvn_rank_at(p->r, "deregMr");
        a = pvn_netdrv_dereg_mr(p->r->drv, p->out[c].comm, p->out[c].mhandle);
        b = pvn_netdrv_dereg_mr(p->r->drv, p->in[c].comm, p->in[c].mhandle);
        if (a != ncclSuccess || b != ncclSuccess)
            return pvn_rank_fail_call(p->r, "deregMr", a != ncclSuccess ? a : b);
    }
    pvn_p2p_free(p);
    return 0;
}

int pvn_p2p_limits(const struct pvn_p2p *p)
{
    const struct pvn_rank *r = p->r;

    if (p->depth > pvn_netdrv_max_requests(r->drv))
        return pvn_rank_fail(p->r, "--depth %d: version %d of the interface allows %d requests",
                             p->depth, pvn_netdrv_abi(r->drv), pvn_netdrv_max_requests(r->drv));
    /* The limit is the interface's, not maxRecvs: a plugin may support grouped receives and ask
     * NCCL not to use them. */
    if (p->group > pvn_netdrv_max_group(r->drv))
        return pvn_rank_fail(
            p->r, "--group %d: version %d of the interface takes %d buffers in one receive",
            p->group, pvn_netdrv_abi(r->drv), pvn_netdrv_max_group(r->drv));
    if (p->max_size > pvn_netdrv_max_bytes(r->drv))
        return pvn_rank_fail(p->r, "--sizes: %zu is more than version %d of the interface can send",
                             p->max_size, pvn_netdrv_abi(r->drv));
    return 0;
}

uint64_t pvn_p2p_max_size(const struct pvn_perf_opts *o)
{
    uint64_t max = 0;

    for (int i = 0; i < o->nsizes; i++)
        max = o->size[i] > max ? o->size[i] : max;
    return max;
}

uint64_t pvn_p2p_region(const struct pvn_perf_opts *o)
{
    uint64_t stride = (pvn_p2p_max_size(o) + 2 * PVN_P2P_GUARD + 63) / 64 * 64;

    return (stride * (uint64_t)o->depth * (uint64_t)o->group + 4095) / 4096 * 4096;
}

uint64_t pvn_p2p_bytes(const struct pvn_perf_opts *o)
{
    return pvn_p2p_region(o) * 2 * (uint64_t)o->channels;
}

int pvn_p2p_run(struct pvn_rank *r)
{
    struct pvn_p2p p = {.r = r,
                        .side = r->rank,
                        .channels = r->o->channels,
                        .depth = r->o->depth,
                        .group = r->o->group};
    int rc;

    p.max_size = pvn_p2p_max_size(r->o);
    p.region = pvn_p2p_region(r->o);
    pvn_rank_hold(r);
    if (pvn_p2p_limits(&p) == 0 &&
        (pvn_messages_on_gpu(r) || pvn_rank_room(r, p.region * 2 * (size_t)p.channels) == 0))
        p.mem = pvn_rank_alloc_messages(r, p.region * 2 * (size_t)p.channels);
    rc = pvn_rank_agree(r);
    if (!rc)
        rc = pvn_messages_say(r);
    if (!rc)
        rc = pvn_p2p_register(&p);
    if (!rc)
        rc = r->o->idle > 0 ? run_idle(&p) : run_sizes(&p);
    pvn_rank_say_sizes(r, rc);
    if (!rc)
        rc = pvn_p2p_deregister(&p);
    if (!rc && pvn_boot_barrier(&r->boot))
        rc = pvn_rank_fail_boot(r);
    /* If requests are still in flight, the plugin keeps the memory until the process ends. */
    if (!rc)
        pvn_rank_free_messages(r, p.mem, p.region * 2 * (size_t)p.channels);
    pvn_p2p_free(&p);
    return rc;
}
