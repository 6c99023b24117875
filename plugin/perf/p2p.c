/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-perf p2p: rank 0 and rank 1, one pair of comms per channel. */
#include "config.h"

#include "perf/rank.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf/values.h"

#define GUARD       64 /* bytes before and after every buffer */
#define FILL        0xa5
#define CHECK_UNITS 96 /* messages of a verified pass */
#define MAX_WINDOW  (NCCL_NET_MAX_REQUESTS * 8)
#define MAX_SAMPLES 200000
#define TAG         100

/* One direction of one channel: a window over `total` units. A unit is one request: a message on
 * the sending side, a group of them on the receiving side. */
struct flow {
    void *comm, *mhandle;
    char *base;
    uint64_t total, posted, done;
    uint64_t window;
    void *req[MAX_WINDOW];
};

struct p2p {
    struct pvn_rank *r;
    int channels, depth, group;
    size_t max_size, stride, region;
    char *mem;
    struct flow *out, *in; /* per channel */
    int check;
    uint64_t size;
    uint64_t round; /* makes the bytes of every pass its own */
    int64_t errors;
};

static void *slot_of(const struct p2p *p, const struct flow *f, uint64_t message)
{
    uint64_t slots = (uint64_t)p->depth * (uint64_t)p->group;

    return f->base + (message % slots) * p->stride + GUARD;
}

/* Lengths of a verified pass: the corners, and anything up to the size. */
static size_t length_of(const struct p2p *p, uint64_t message)
{
    uint64_t h = (message + p->round * 7919) * 0x9e3779b97f4a7c15ull;

    if (!p->check)
        return p->size;
    switch (message % 6) {
    case 0:
        return p->size;
    case 1:
        return 0;
    case 2:
        return p->size ? 1 : 0;
    case 3:
        return p->size ? p->size - 1 : 0;
    default:
        return (h >> 20) % (p->size + 1);
    }
}

static uint64_t id_of(const struct p2p *p, int channel, uint64_t message)
{
    return p->round << 40 | (uint64_t)channel << 32 | message;
}

static int post_send(struct p2p *p, int c, struct flow *f)
{
    uint64_t m = f->posted;
    void *buf = slot_of(p, f, m);
    size_t len = length_of(p, m);
    ncclResult_t rc;

    if (p->check)
        pvn_bytes_fill(buf, len, id_of(p, c, m));
    pvn_rank_at(p->r, "isend");
    rc = pvn_netdrv_isend(p->r->drv, f->comm, buf, len, TAG + (int)(m % (uint64_t)p->group),
                          f->mhandle, NULL, &f->req[m % f->window]);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(p->r, "isend", rc);
    if (!f->req[m % f->window])
        return 0;
    f->posted++;
    return 1;
}

static int post_recv(struct p2p *p, struct flow *f)
{
    void *data[8], *mh[8];
    size_t sizes[8];
    int tags[8];
    uint64_t u = f->posted;
    ncclResult_t rc;

    for (int g = 0; g < p->group; g++) {
        data[g] = slot_of(p, f, u * (uint64_t)p->group + (uint64_t)g);
        mh[g] = f->mhandle;
        sizes[g] = p->size;
        tags[g] = TAG + g;
        if (p->check)
            memset((char *)data[g] - GUARD, FILL, p->size + 2 * GUARD);
    }
    f->req[u % f->window] = NULL;
    pvn_rank_at(p->r, "irecv");
    rc = pvn_netdrv_irecv(p->r->drv, f->comm, p->group, data, sizes, tags, mh, NULL,
                          &f->req[u % f->window]);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(p->r, "irecv", rc);
    if (!f->req[u % f->window])
        return 0;
    f->posted++;
    return 1;
}

/* One received message of a verified pass: what test() said, the bytes, and all that must not have
 * changed. */
static void verify(struct p2p *p, int c, const struct flow *f, uint64_t message, int got)
{
    const char *buf = slot_of(p, f, message);
    size_t want = length_of(p, message), first = 0, wrong, outside;

    wrong = pvn_bytes_check(buf, want, id_of(p, c, message), &first);
    outside = pvn_bytes_not(buf - GUARD, GUARD, FILL) +
              pvn_bytes_not(buf + want, p->size - want + GUARD, FILL);
    if (got == -1)
        p->r->sizes_missing = 1;
    if (!wrong && !outside && (got == -1 || (size_t)got == want))
        return;
    p->errors++;
    if (wrong)
        pvn_rank_wrong(p->r,
                       "channel %d, message %llu of %zu bytes: %zu bytes differ, the first at "
                       "offset %zu is 0x%02x",
                       c, (unsigned long long)message, want, wrong, first,
                       (unsigned char)buf[first]);
    else if (outside)
        pvn_rank_wrong(p->r,
                       "channel %d, message %llu of %zu bytes into a buffer of %llu: %zu bytes "
                       "outside the message were written",
                       c, (unsigned long long)message, want, (unsigned long long)p->size, outside);
    else
        pvn_rank_wrong(p->r, "channel %d, message %llu: test() reports %d bytes, sent were %zu", c,
                       (unsigned long long)message, got, want);
}

/* Tests the oldest request: 1 when it was complete, 0, or -1. */
static int complete(struct p2p *p, int c, struct flow *f, int is_send)
{
    int done = 0, sizes[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    ncclResult_t rc;

    if (f->done == f->posted)
        return 0;
    pvn_rank_at(p->r, "test");
    rc = pvn_netdrv_test(p->r->drv, f->req[f->done % f->window], &done, sizes);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(p->r, "test", rc);
    if (!done)
        return 0;
    for (int g = 0; p->check && !is_send && g < p->group; g++)
        verify(p, c, f, f->done * (uint64_t)p->group + (uint64_t)g, sizes[g]);
    f->done++;
    return 1;
}

static int stuck(struct p2p *p, int c, const struct flow *f, int is_send)
{
    return pvn_rank_fail(p->r,
                         "nothing moved for %.0f s: channel %d has %llu of %llu %s posted and %llu "
                         "complete, at %llu bytes each (see --timeout)",
                         p->r->o->timeout, c, (unsigned long long)f->posted,
                         (unsigned long long)f->total, is_send ? "sends" : "receives",
                         (unsigned long long)f->done, (unsigned long long)p->size);
}

static void flow_start(struct p2p *p, struct flow *f, uint64_t units, int is_send)
{
    f->total = is_send ? units * (uint64_t)p->group : units;
    f->window = (uint64_t)p->depth * (uint64_t)(is_send ? p->group : 1);
    f->posted = f->done = 0;
}

/* Works on the started flows of all channels until each is complete. */
static int drain(struct p2p *p, struct flow *flows, int is_send)
{
    int left = p->channels;

    p->r->idle = 0;
    while (left) {
        int moved = 0, last = 0;

        if (pvn_rank_stops(p->r))
            return -1;
        for (int c = 0; c < p->channels; c++) {
            struct flow *f = &flows[c];
            int rc = 0;

            if (f->done == f->total)
                continue;
            last = c;
            if (f->posted < f->total && f->posted - f->done < f->window)
                rc = is_send ? post_send(p, c, f) : post_recv(p, f);
            if (rc < 0)
                return -1;
            moved |= rc;
            rc = complete(p, c, f, is_send);
            if (rc < 0)
                return -1;
            moved |= rc;
            left -= f->done == f->total;
        }
        if (moved) {
            pvn_rank_moved(p->r);
        } else {
            int idle = pvn_rank_idle(p->r);

            if (idle)
                return idle < 0 ? -1 : stuck(p, last, &flows[last], is_send);
        }
    }
    return 0;
}

/* units groups from rank 0 to rank 1 on every channel, depth in flight. 0 or -1. */
static int stream(struct p2p *p, uint64_t units)
{
    int is_send = p->r->rank == 0;
    struct flow *flows = is_send ? p->out : p->in;

    for (int c = 0; c < p->channels; c++)
        flow_start(p, &flows[c], units, is_send);
    return drain(p, flows, is_send);
}

/* How far both directions of channel 0 shall get: requests posted and complete. */
struct goal {
    uint64_t out_posted, out_done, in_posted, in_done;
};

static int reached(const struct flow *out, const struct flow *in, const struct goal *goal)
{
    return out->posted >= goal->out_posted && out->done >= goal->out_done &&
           in->posted >= goal->in_posted && in->done >= goal->in_done;
}

/* Every pass tests both directions: some plugins move a message only when its own request is
 * tested; but an answer does not wait for that, nor does one of perftest's tools. Receives are
 * posted ahead of the goal, one in a pass and behind the send. */
static int reach(struct p2p *p, struct goal goal)
{
    struct flow *out = &p->out[0], *in = &p->in[0];

    p->r->idle = 0;
    while (!reached(out, in, &goal)) {
        int moved = 0, rc = 0;

        if (pvn_rank_stops(p->r))
            return -1;
        if (out->posted < goal.out_posted && out->posted - out->done < out->window)
            moved |= rc = post_send(p, 0, out);
        if (rc >= 0 && in->posted < in->total && in->posted - in->done < in->window)
            moved |= rc = post_recv(p, in);
        if (rc >= 0 && in->done < goal.in_done)
            moved |= rc = complete(p, 0, in, 0);
        if (rc >= 0 && !reached(out, in, &goal))
            moved |= rc = complete(p, 0, out, 1);
        if (rc < 0)
            return -1;
        if (moved) {
            pvn_rank_moved(p->r);
        } else {
            int idle = pvn_rank_idle(p->r);

            if (idle)
                return idle < 0 ? -1 : stuck(p, 0, in, 0);
        }
    }
    return 0;
}

/* n messages back and forth on channel 0. Up to p->depth receives are posted ahead, as NCCL's proxy
 * posts those of the next steps while it waits for this one; as many sends may be incomplete, for
 * the answer does not depend on them. sample: half of each round trip in seconds, on rank 0; may be
 * NULL. */
static int ping_pong(struct p2p *p, uint64_t n, float *sample)
{
    int group = p->group, rc = 0;

    p->group = 1;
    flow_start(p, &p->out[0], n, 1);
    flow_start(p, &p->in[0], n, 0);
    for (uint64_t i = 0; i < n && !rc; i++) {
        double t0 = pvn_boot_now();

        if (p->r->rank == 0) {
            rc = reach(p, (struct goal){i + 1, 0, i + 1, i + 1});
            if (sample && i < MAX_SAMPLES)
                sample[i] = (float)((pvn_boot_now() - t0) / 2);
        } else {
            rc = reach(p, (struct goal){i, 0, i + 1, i + 1});
            if (!rc)
                rc = reach(p, (struct goal){i + 1, 0, i + 2 < n ? i + 2 : n, i + 1});
        }
    }
    if (!rc)
        rc = reach(p, (struct goal){n, n, n, n});
    p->group = group;
    return rc;
}

/* How many units fit --time, as rank 0 saw a short run; the same on both ranks. */
static int choose_count(struct p2p *p, double seconds, uint64_t units, uint64_t min, uint64_t max,
                        uint64_t *n)
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
};

/* Both ranks' outcomes: the longer time, the sum of the rest. */
static int combine(struct p2p *p, struct outcome *o)
{
    struct outcome all[2];

    o->errors = p->errors;
    o->sizes_missing = p->r->sizes_missing;
    if (pvn_boot_allgather(&p->r->boot, o, all, sizeof(*o)))
        return pvn_rank_fail_boot(p->r);
    o->seconds = fmax(all[0].seconds, all[1].seconds);
    o->cpu = all[0].cpu + all[1].cpu;
    o->errors = all[0].errors + all[1].errors;
    o->sizes_missing = all[0].sizes_missing + all[1].sizes_missing;
    if (o->errors && p->r->status == PVN_PERF_OK)
        p->r->status = PVN_PERF_WRONG;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static struct pvn_row_result blank_result(const struct p2p *p, const char *test)
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

/* A pass of its own, before anything is timed: lengths vary, receives are larger, guards are
 * watched. */
static int run_check(struct p2p *p, struct outcome *o)
{
    int rc;

    p->check = 1;
    p->round++;
    rc = stream(p, CHECK_UNITS);
    p->check = 0;
    return rc ? rc : combine(p, o);
}

static int run_latency(struct p2p *p, const struct outcome *checked)
{
    struct pvn_row_result res = blank_result(p, "latency");
    uint64_t warm = p->r->o->warmup >= 0 ? (uint64_t)p->r->o->warmup : 20, n;
    float *sample = calloc(MAX_SAMPLES, sizeof(*sample));
    double t0 = pvn_boot_now();
    int rc = -1;

    if (!sample)
        return pvn_rank_fail(p->r, "out of memory for latency samples");
    if (ping_pong(p, warm ? warm : 1, NULL) ||
        choose_count(p, pvn_boot_now() - t0, warm ? warm : 1, 20, MAX_SAMPLES, &n))
        goto out;
    if (pvn_boot_barrier(&p->r->boot)) {
        pvn_rank_fail_boot(p->r);
        goto out;
    }
    rc = ping_pong(p, n, sample);
    if (rc)
        goto out;
    if (n > MAX_SAMPLES)
        n = MAX_SAMPLES;
    qsort(sample, n, sizeof(*sample), by_value);
    res.iters = n;
    res.depth = res.group = res.channels = 1;
    res.time_us = (double)sample[n / 2] * 1e6;
    res.min_us = (double)sample[0] * 1e6;
    res.p99_us = (double)sample[(n * 99) / 100 < n ? (n * 99) / 100 : n - 1] * 1e6;
    res.errors = checked ? checked->errors : -1;
    pvn_rank_result(p->r, &res);
out:
    free(sample);
    return rc;
}

static int run_bandwidth(struct p2p *p, const struct outcome *checked)
{
    struct pvn_row_result res = blank_result(p, "bandwidth");
    uint64_t warm = p->r->o->warmup >= 0 ? (uint64_t)p->r->o->warmup : (uint64_t)p->depth * 4, n;
    struct outcome o = {0};
    double t0 = pvn_boot_now(), cpu, messages;

    if (stream(p, warm ? warm : 1) ||
        choose_count(p, pvn_boot_now() - t0, warm ? warm : 1, (uint64_t)p->depth * 2, 20000000, &n))
        return -1;
    if (pvn_boot_barrier(&p->r->boot))
        return pvn_rank_fail_boot(p->r);
    cpu = pvn_rank_cpu();
    t0 = pvn_boot_now();
    if (stream(p, n))
        return -1;
    o.seconds = pvn_boot_now() - t0;
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

static int run_size(struct p2p *p, int index, int latency, struct outcome *checked)
{
    const struct pvn_perf_opts *o = p->r->o;

    p->size = o->size[index];
    p->stride = (p->size + 2 * GUARD + 63) / 64 * 64;
    pvn_rank_progress(p->r, "%s, %llu bytes", latency ? "latency" : "bandwidth",
                      (unsigned long long)p->size);
    /* Whichever test comes first for this size has it verified. */
    if (o->check && (latency || !o->latency)) {
        p->errors = 0;
        if (run_check(p, checked))
            return -1;
    }
    if (latency)
        return run_latency(p, o->check ? checked : NULL);
    return run_bandwidth(p, o->check ? checked : NULL);
}

/* All latencies, then all bandwidths: two tables. */
static int run_sizes(struct p2p *p)
{
    const struct pvn_perf_opts *o = p->r->o;
    struct outcome checked[PVN_PERF_MAX_SIZES] = {{0}};

    for (int i = 0; o->latency && i < o->nsizes; i++) {
        if (run_size(p, i, 1, &checked[i]))
            return -1;
    }
    for (int i = 0; o->bandwidth && i < o->nsizes; i++) {
        if (run_size(p, i, 0, &checked[i]))
            return -1;
    }
    return 0;
}

/* Tests one posted receive per channel in turn until the time is over; nothing arrives. */
static int wait_idle(struct p2p *p, double seconds, uint64_t *passes)
{
    double end = pvn_boot_now() + seconds;

    for (*passes = 0; pvn_boot_now() < end; (*passes)++) {
        if (pvn_rank_stops(p->r))
            return -1;
        for (int c = 0; c < p->channels; c++) {
            int rc = complete(p, c, &p->in[c], 0);

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

/* What silent comms cost: rank 1 has a receive posted on each and keeps testing them, as a rank
 * that waits for slower ones does. Then one message on each shows that they still work. */
static int run_idle(struct p2p *p)
{
    struct pvn_row_result res;
    struct {
        uint64_t passes;
        double rss;
    } mine = {0}, all[2];

    p->size = p->r->o->size[0];
    p->stride = (p->size + 2 * GUARD + 63) / 64 * 64;
    pvn_rank_progress(p->r, "%d idle comms for %.0f s", p->channels, p->r->o->idle);
    for (int c = 0; p->r->rank == 1 && c < p->channels; c++) {
        flow_start(p, &p->in[c], 1, 0);
        while (p->in[c].posted == 0) {
            if (post_recv(p, &p->in[c]) < 0)
                return -1;
        }
    }
    if (p->r->rank == 1 && wait_idle(p, p->r->o->idle, &mine.passes))
        return -1;
    mine.rss = p->r->rss_per_comm;
    if (pvn_boot_allgather(&p->r->boot, &mine, all, sizeof(mine)))
        return pvn_rank_fail_boot(p->r);
    if (p->r->rank == 0 ? stream(p, 1) : drain(p, p->in, 0))
        return -1;
    res = blank_result(p, "idle");
    res.iters = all[1].passes;
    res.time_us = p->r->o->idle / ((double)all[1].passes * p->channels) * 1e6;
    res.rate = (double)all[1].passes / p->r->o->idle;
    res.rss = all[1].rss;
    pvn_rank_result(p->r, &res);
    return 0;
}

static int set_up(struct p2p *p)
{
    p->out = calloc((size_t)p->channels, sizeof(*p->out));
    p->in = calloc((size_t)p->channels, sizeof(*p->in));
    if (!p->out || !p->in)
        return pvn_rank_fail(p->r, "out of memory for %d channels", p->channels);
    for (int c = 0; c < p->channels; c++) {
        struct flow *pair[2] = {&p->out[c], &p->in[c]};

        for (int k = 0; k < 2; k++) {
            ncclResult_t rc;

            pair[k]->comm = k ? p->r->link[c].recv : p->r->link[c].send;
            pair[k]->base = p->mem + p->region * (size_t)(2 * c + k);
            memset(pair[k]->base, k, p->region); /* no page faults later */
            pvn_rank_at(p->r, "regMr");
            rc = pvn_netdrv_reg_mr(p->r->drv, pair[k]->comm, pair[k]->base, p->region,
                                   NCCL_PTR_HOST, &pair[k]->mhandle);
            if (rc != ncclSuccess)
                return pvn_rank_fail_call(p->r, "regMr", rc);
        }
    }
    return 0;
}

static int tear_down(struct p2p *p)
{
    for (int c = 0; c < p->channels; c++) {
        ncclResult_t a, b;

        pvn_rank_at(p->r, "deregMr");
        a = pvn_netdrv_dereg_mr(p->r->drv, p->out[c].comm, p->out[c].mhandle);
        b = pvn_netdrv_dereg_mr(p->r->drv, p->in[c].comm, p->in[c].mhandle);
        if (a != ncclSuccess || b != ncclSuccess)
            return pvn_rank_fail_call(p->r, "deregMr", a != ncclSuccess ? a : b);
    }
    return pvn_boot_barrier(&p->r->boot) ? pvn_rank_fail_boot(p->r) : 0;
}

/* What was requested against what this version of the interface and this device can do. */
static int check_limits(const struct p2p *p)
{
    const struct pvn_rank *r = p->r;
    ncclNetProperties_v12_t props;
    ncclResult_t rc = pvn_netdrv_properties(r->drv, r->link[0].dev, &props);

    if (rc != ncclSuccess)
        return pvn_rank_fail_call(p->r, "getProperties", rc);
    if (p->depth > pvn_netdrv_max_requests(r->drv))
        return pvn_rank_fail(p->r, "--depth %d: version %d of the interface allows %d requests",
                             p->depth, pvn_netdrv_abi(r->drv), pvn_netdrv_max_requests(r->drv));
    if (p->group > pvn_netdrv_max_group(r->drv) || (p->group > 1 && p->group > props.maxRecvs))
        return pvn_rank_fail(p->r, "--group %d: device %s takes %d buffers in one receive",
                             p->group, props.name ? props.name : "?", props.maxRecvs);
    if (p->max_size > pvn_netdrv_max_bytes(r->drv))
        return pvn_rank_fail(p->r, "--sizes: %zu is more than version %d of the interface can send",
                             p->max_size, pvn_netdrv_abi(r->drv));
    return 0;
}

int pvn_p2p_run(struct pvn_rank *r)
{
    struct p2p p = {.r = r, .channels = r->o->channels, .depth = r->o->depth, .group = r->o->group};
    int rc;

    for (int i = 0; i < r->o->nsizes; i++)
        p.max_size = r->o->size[i] > p.max_size ? r->o->size[i] : p.max_size;
    p.region =
        ((p.max_size + 2 * GUARD + 63) / 64 * 64 * (size_t)p.depth * (size_t)p.group + 4095) /
        4096 * 4096;
    pvn_rank_hold(r);
    if (check_limits(&p) == 0 && pvn_rank_room(r, p.region * 2 * (size_t)p.channels) == 0)
        p.mem = pvn_rank_alloc_messages(r, p.region * 2 * (size_t)p.channels);
    rc = pvn_rank_agree(r);
    if (!rc)
        rc = set_up(&p);
    if (!rc)
        rc = r->o->idle > 0 ? run_idle(&p) : run_sizes(&p);
    if (!rc && r->sizes_missing)
        fprintf(stderr,
                "pvn-perf: rank %d: plugin %s does not report in test() how much was received\n",
                r->rank, r->o->plugin[r->plugin].name);
    if (!rc)
        rc = tear_down(&p);
    /* With requests still in flight the memory stays the plugin's until the process ends. */
    if (!rc)
        pvn_rank_free_messages(r, p.mem, p.region * 2 * (size_t)p.channels);
    free(p.out);
    free(p.in);
    return rc;
}
