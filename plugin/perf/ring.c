/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf ring: all-reduce of float32 over a ring, as NCCL runs it on top of a net plugin: a
 * part of the array per channel; loops of nranks chunks; each chunk goes round reduced, then round
 * again as the sum; messages travel through slots of registered memory, received and sent in slot
 * order (src/device/all_reduce.h, runRing, and src/transport/net.cc, sendProxyProgress and
 * recvProxyProgress, of NCCL 2.30.7). What the GPU kernel does there (copying and adding between
 * slots and the user's arrays, each slice in one pass) is done here by the polling thread, so a
 * figure includes it; results are written past the caches, which a GPU's memory does not use.
 * With --no-sums the polling thread leaves the slots' contents alone, as NCCL's proxy does, and only
 * stamps each message; the figure is then the plugin's and the network's alone.
 */
#include "config.h"

#include "perf/rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf/model.h"
#include "perf/values.h"

#define TAG            7
#define MAX_STEPS      NCCL_NET_MAX_REQUESTS
#define SIZE_UNSAID    ((size_t)-1) /* test() left the size as it was */
#define STAMP          16           /* bytes */
#define VERIFY_AT_ONCE (1u << 20)   /* elements between two updates of the progress time */

/* One move of the algorithm: where its slice is in the array, and which ends it uses. */
struct move {
    uint64_t at, count;
    int phase; /* 0 .. 2 * nranks - 2 */
};

struct channel {
    void *scomm, *rcomm, *smh, *rmh;
    char *sbuf, *rbuf; /* steps slots each */
    /* The share of the array, and the position of the algorithm in it. */
    uint64_t start, end, at;
    int phase, slice;
    uint64_t iters_left;
    uint64_t chunk; /* elements, of the current loop */
    int finished;
    /* Slots since the start of this run: received in order, sent in order. */
    uint64_t recv_total, recv_posted, recv_done, recv_used;
    uint64_t send_filled, send_posted, send_done;
    void *rreq[MAX_STEPS], *sreq[MAX_STEPS];
    size_t rsize[MAX_STEPS], ssize[MAX_STEPS];
};

struct ring {
    struct pvn_rank *r;
    struct channel *ch;
    char *mem;
    size_t mem_len;
    float *in, *out;
    uint64_t cap; /* elements of in and out */
    uint64_t slot_elems;
    uint32_t seed;
    int64_t errors;
    int failed; /* a send, while the ranks waited for each other */
};

/* Elements of the chunk of one loop, as NCCL shortens it in the last one. */
static void start_loop(struct ring *g, struct channel *c)
{
    uint64_t n = (uint64_t)g->r->nranks, left = c->end - c->at;
    uint64_t chunk = g->slot_elems * (uint64_t)g->r->o->slices;
    uint64_t even = ((left + n - 1) / n + 3) / 4 * 4; /* whole 16 bytes */

    c->chunk = even < chunk ? even : chunk;
    c->phase = c->slice = 0;
}

static void start_channel(struct ring *g, struct channel *c)
{
    c->at = c->start;
    c->finished = c->iters_left == 0 || c->start == c->end;
    if (!c->finished)
        start_loop(g, c);
}

/* The slice the algorithm is at. Chunks beyond the end of the array are empty but are sent all the
 * same. */
static struct move current(const struct ring *g, const struct channel *c)
{
    int n = g->r->nranks, rank = g->r->rank, which;
    uint64_t from, to, slice_at;

    if (c->phase < n)
        which = (rank + 2 * n - 1 - c->phase) % n;
    else
        which = (rank + 2 * n - (c->phase - n + 1)) % n;
    from = c->at + c->chunk * (uint64_t)which;
    to = from + c->chunk;
    slice_at = from + g->slot_elems * (uint64_t)c->slice;
    from = slice_at < to ? slice_at : to;
    to = from + g->slot_elems < to ? from + g->slot_elems : to;
    if (to > c->end)
        to = c->end;
    return (struct move){from, to > from ? to - from : 0, c->phase};
}

static void advance(struct ring *g, struct channel *c)
{
    if (++c->slice < g->r->o->slices)
        return;
    c->slice = 0;
    if (++c->phase <= 2 * g->r->nranks - 2)
        return;
    c->at += c->chunk * (uint64_t)g->r->nranks;
    if (c->at < c->end) {
        start_loop(g, c);
    } else {
        c->iters_left--;
        start_channel(g, c);
    }
}

/* Receives of the whole run: every phase but the first of each loop has one per slice. */
static uint64_t count_receives(struct ring *g, struct channel *c)
{
    uint64_t per_loop = (uint64_t)(2 * g->r->nranks - 2) * (uint64_t)g->r->o->slices, loops = 0;

    for (c->at = c->start; c->at < c->end; c->at += c->chunk * (uint64_t)g->r->nranks) {
        start_loop(g, c);
        loops++;
    }
    return c->iters_left * loops * per_loop;
}

static void check_size(struct ring *g, size_t got, size_t due)
{
    if (got == due || got == SIZE_UNSAID)
        return;
    g->errors++;
    pvn_rank_wrong(g->r, "test() reports %zu bytes where %zu were sent", got, due);
}

/* What the GPU kernel does with a slice. from, to: slots, or NULL where the phase has none. */
static void reduce_or_copy(struct ring *g, struct move m, float *to, const float *from)
{
    int n = g->r->nranks;
    float *in = g->in + m.at, *out = g->out + m.at;

    if (m.phase == 0)
        memcpy(to, in, m.count * sizeof(float));
    else if (m.phase < n - 1)
        pvn_values_add(to, in, from, m.count);
    else if (m.phase == n - 1)
        pvn_values_add_out(to, out, in, from, m.count);
    else
        pvn_values_copy_out(to, out, from, m.count);
}

/* --no-sums: the k-th message of a channel has a pattern of its own, as a whole with --check. */
static void check_and_stamp(struct ring *g, const struct channel *c, size_t len, void *to,
                            const void *from)
{
    uint64_t id = (uint64_t)(c - g->ch) << 48;
    size_t n = g->r->o->check || len < STAMP ? len : STAMP, at = 0;

    if (to)
        pvn_bytes_fill(to, n, id + c->send_filled);
    if (!from || pvn_bytes_check(from, n, id + c->recv_used, &at) == 0)
        return;
    g->errors++;
    pvn_rank_wrong(g->r, "byte %zu of message %llu of channel %d is wrong", at,
                   (unsigned long long)c->recv_used, (int)(c - g->ch));
}

/* The kernel's part: one slice, if its slots are ready. 1 when it was done. */
static int compute(struct ring *g, struct channel *c)
{
    int n = g->r->nranks, steps = g->r->o->steps;
    struct move m;
    float *to = NULL, *from = NULL;

    if (c->finished)
        return 0;
    m = current(g, c);
    if (m.phase > 0 && c->recv_used == c->recv_done)
        return 0;
    if (m.phase < 2 * n - 2 && c->send_filled - c->send_done == (uint64_t)steps)
        return 0;
    if (m.phase > 0)
        from = (float *)(void *)(c->rbuf + g->r->o->slot * (c->recv_used % (uint64_t)steps));
    if (m.phase < 2 * n - 2)
        to = (float *)(void *)(c->sbuf + g->r->o->slot * (c->send_filled % (uint64_t)steps));
    if (g->r->o->no_sums)
        check_and_stamp(g, c, m.count * sizeof(float), to, from);
    else
        reduce_or_copy(g, m, to, from);
    if (from)
        check_size(g, c->rsize[c->recv_used++ % (uint64_t)steps], m.count * sizeof(float));
    if (to)
        c->ssize[c->send_filled++ % (uint64_t)steps] = m.count * sizeof(float);
    advance(g, c);
    return 1;
}

static int progress_recv(struct ring *g, struct channel *c)
{
    uint64_t steps = (uint64_t)g->r->o->steps, k = c->recv_posted % steps;
    int moved = 0, done = 0, got = -1, tag = TAG;
    ncclResult_t rc;

    if (c->recv_posted < c->recv_total && c->recv_posted - c->recv_used < steps) {
        void *data = c->rbuf + g->r->o->slot * k;
        size_t size = g->r->o->slot;

        c->rreq[k] = NULL;
        pvn_rank_at(g->r, "irecv");
        rc = pvn_netdrv_irecv(g->r->drv, c->rcomm, 1, &data, &size, &tag, &c->rmh, NULL,
                              &c->rreq[k]);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(g->r, "irecv", rc);
        moved = c->rreq[k] ? 1 : 0;
        c->recv_posted += (uint64_t)moved;
    }
    if (c->recv_done == c->recv_posted)
        return moved;
    k = c->recv_done % steps;
    pvn_rank_at(g->r, "test");
    rc = pvn_netdrv_test(g->r->drv, c->rreq[k], &done, &got);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(g->r, "test", rc);
    if (!done)
        return moved;
    if (got == -1)
        g->r->sizes_missing = 1;
    c->rsize[k] = got == -1 ? SIZE_UNSAID : (size_t)got;
    c->recv_done++;
    return 1;
}

static int progress_send(struct ring *g, struct channel *c)
{
    uint64_t steps = (uint64_t)g->r->o->steps, k = c->send_posted % steps;
    int moved = 0, done = 0;
    ncclResult_t rc;

    if (c->send_posted < c->send_filled) {
        pvn_rank_at(g->r, "isend");
        rc = pvn_netdrv_isend(g->r->drv, c->scomm, c->sbuf + g->r->o->slot * k, c->ssize[k], TAG,
                              c->smh, NULL, &c->sreq[k]);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(g->r, "isend", rc);
        moved = c->sreq[k] ? 1 : 0;
        c->send_posted += (uint64_t)moved;
    }
    if (c->send_done == c->send_posted)
        return moved;
    pvn_rank_at(g->r, "test");
    rc = pvn_netdrv_test(g->r->drv, c->sreq[c->send_done % steps], &done, NULL);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(g->r, "test", rc);
    c->send_done += (uint64_t)(done != 0);
    return moved | (done != 0);
}

/* As for a rank of NCCL, whose kernel ends when its last slice is handed over: sends may be
 * outstanding. They are attended to until they are complete, whatever the rank waits for. */
static int channel_done(const struct channel *c)
{
    return c->finished && c->send_posted == c->send_filled && c->recv_done == c->recv_total;
}

static int stuck(struct ring *g, int i)
{
    const struct channel *c = &g->ch[i];
    const struct pvn_rank *r = g->r;
    const char *missing = c->recv_done < c->recv_posted && c->recv_used == c->recv_done
                              ? "a message from the previous rank"
                              : "the completion of a send to the next rank";

    return pvn_rank_fail(
        g->r,
        "nothing moved for %.0f s: channel %d waits for %s (%d or %d); sends: %llu "
        "filled, %llu posted, %llu complete; receives: %llu posted, %llu complete, "
        "%llu used (see --timeout)",
        r->o->timeout, i, missing, (r->rank + r->nranks - 1) % r->nranks, (r->rank + 1) % r->nranks,
        (unsigned long long)c->send_filled, (unsigned long long)c->send_posted,
        (unsigned long long)c->send_done, (unsigned long long)c->recv_posted,
        (unsigned long long)c->recv_done, (unsigned long long)c->recv_used);
}

/* While the ranks wait for each other outside the plugin, as NCCL's proxy thread does. 1: some are
 * outstanding. */
static int attend_to_sends(void *arg)
{
    struct ring *g = arg;
    int outstanding = 0;

    for (int i = 0; i < g->r->o->channels && !g->failed; i++) {
        struct channel *c = &g->ch[i];

        if (c->send_done < c->send_filled)
            g->failed = progress_send(g, c) < 0;
        outstanding |= c->send_done < c->send_filled;
    }
    return outstanding && !g->failed;
}

/* Completes what earlier runs have sent. */
static int complete_sends(struct ring *g)
{
    if (g->failed)
        return -1;
    g->r->idle = 0;
    for (int i = 0; i < g->r->o->channels; i++) {
        struct channel *c = &g->ch[i];

        while (c->send_done < c->send_filled) {
            int moved = pvn_rank_stops(g->r) ? -1 : progress_send(g, c), idle;

            if (moved < 0)
                return -1;
            idle = moved ? 0 : pvn_rank_idle(g->r);
            if (idle)
                return idle < 0 ? -1 : stuck(g, i);
            if (moved)
                pvn_rank_moved(g->r);
        }
    }
    return 0;
}

/* The array of `count` elements, iters times without a pause in between. */
static int all_reduce(struct ring *g, uint64_t count, uint64_t iters)
{
    uint64_t nch = (uint64_t)g->r->o->channels, part = (count / nch + 3) / 4 * 4;
    int left = (int)nch;

    if (g->r->nranks == 1) {
        for (uint64_t i = 0; i < iters; i++) {
            if (pvn_rank_stops(g->r))
                return -1;
            memcpy(g->out, g->in, count * sizeof(float));
        }
        return 0;
    }
    if (complete_sends(g))
        return -1;
    for (uint64_t i = 0; i < nch; i++) {
        struct channel *c = &g->ch[i];

        c->start = i * part < count ? i * part : count;
        c->end = i + 1 == nch || c->start + part > count ? count : c->start + part;
        c->iters_left = iters;
        c->recv_posted = c->recv_done = c->recv_used = 0;
        c->send_filled = c->send_posted = c->send_done = 0;
        c->recv_total = count_receives(g, c);
        start_channel(g, c);
        left -= channel_done(c);
    }
    g->r->idle = 0;
    while (left) {
        int moved = 0, last = 0;

        if (pvn_rank_stops(g->r))
            return -1;
        for (int i = 0; i < (int)nch; i++) {
            struct channel *c = &g->ch[i];
            int a, b;

            /* What it has sent may need calls of the plugin to go out. */
            if (channel_done(c)) {
                if (c->send_done < c->send_filled && progress_send(g, c) < 0)
                    return -1;
                continue;
            }
            last = i;
            a = progress_recv(g, c);
            moved |= compute(g, c);
            b = progress_send(g, c);
            if (a < 0 || b < 0)
                return -1;
            moved |= a | b;
            left -= channel_done(c);
        }
        if (moved) {
            pvn_rank_moved(g->r);
        } else {
            int idle = pvn_rank_idle(g->r);

            if (idle)
                return idle < 0 ? -1 : stuck(g, last);
        }
    }
    return 0;
}

static void fill(struct ring *g, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += VERIFY_AT_ONCE) {
        uint64_t n = count - i < VERIFY_AT_ONCE ? count - i : VERIFY_AT_ONCE;

        pvn_values_fill(g->in + i, n, g->r->rank, g->seed + (uint32_t)(i / VERIFY_AT_ONCE));
        memset(g->out + i, 0xff, n * sizeof(float)); /* NaN: what nobody wrote shows */
        pvn_rank_moved(g->r);
    }
}

static void verify(struct ring *g, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += VERIFY_AT_ONCE) {
        uint64_t n = count - i < VERIFY_AT_ONCE ? count - i : VERIFY_AT_ONCE, first = 0, wrong;
        uint32_t seed = g->seed + (uint32_t)(i / VERIFY_AT_ONCE);

        wrong = pvn_values_check(g->out + i, n, g->r->nranks, seed, &first);
        pvn_rank_moved(g->r);
        if (!wrong)
            continue;
        g->errors += (int64_t)wrong;
        pvn_rank_wrong(
            g->r, "element %llu of %llu is %g and should be %g (%llu wrong near there)",
            (unsigned long long)(i + first), (unsigned long long)count, (double)g->out[i + first],
            (double)pvn_values_expected(first, g->r->nranks, seed), (unsigned long long)wrong);
    }
}

struct outcome {
    double seconds, cpu;
    int64_t errors;
};

static int combine(struct ring *g, struct outcome *o)
{
    struct outcome *all = calloc((size_t)g->r->nranks, sizeof(*all));
    int rc = 0;

    if (!all)
        return pvn_rank_fail(g->r, "out of memory for %d ranks", g->r->nranks);
    if (pvn_boot_allgather(&g->r->boot, o, all, sizeof(*o)))
        rc = pvn_rank_fail_boot(g->r);
    *o = (struct outcome){0};
    for (int i = 0; i < g->r->nranks; i++) {
        o->seconds = fmax(o->seconds, all[i].seconds);
        o->cpu += all[i].cpu;
        o->errors += all[i].errors;
    }
    free(all);
    if (!rc && o->errors && g->r->status == PVN_PERF_OK)
        g->r->status = PVN_PERF_WRONG;
    return rc;
}

/* iters runs timed together, after a barrier; with check, filled before and verified after. */
static int timed(struct ring *g, uint64_t count, uint64_t iters, struct outcome *o)
{
    double t0, cpu;
    int rc;

    *o = (struct outcome){0};
    g->errors = 0;
    g->seed++;
    if (!g->r->o->no_sums)
        fill(g, count);
    pvn_rank_at(g->r, "waiting for the other ranks");
    if (pvn_boot_barrier(&g->r->boot))
        return pvn_rank_fail_boot(g->r);
    cpu = pvn_rank_cpu();
    t0 = pvn_boot_now();
    rc = all_reduce(g, count, iters);
    o->seconds = pvn_boot_now() - t0;
    o->cpu = pvn_rank_cpu() - cpu;
    if (rc)
        return -1;
    if (g->r->o->check && !g->r->o->no_sums)
        verify(g, count);
    o->errors = g->errors;
    return combine(g, o);
}

/* Adds the times of a result up, then turns them into nccl-tests' figures. */
static void finish_result(struct ring *g, struct pvn_row_result *res, double bytes, double iters,
                          const struct outcome *sum)
{
    double n = g->r->nranks, bus = 2 * (n - 1) / n;

    res->ranks = g->r->nranks;
    res->channels = g->r->o->channels;
    res->depth = g->r->o->steps;
    res->group = 1;
    res->iters = (uint64_t)iters;
    res->time_us = sum->seconds / iters * 1e6;
    res->algbw = bytes * iters / sum->seconds / 1e6;
    res->busbw = res->algbw * bus; /* 0 with one rank: nothing was sent */
    res->cpu = n > 1 ? sum->cpu / (bytes * bus * n * iters / 1e9) : 0;
    res->errors = g->r->o->check ? sum->errors : -1;
    pvn_rank_result(g->r, res);
}

static void add_outcome(struct outcome *sum, const struct outcome *one)
{
    sum->seconds += one->seconds;
    sum->cpu += one->cpu;
    sum->errors += one->errors;
}

static int choose_iters(struct ring *g, double seconds, uint64_t *n)
{
    double fit = g->r->o->time / (seconds > 1e-7 ? seconds : 1e-7);

    *n = fit < 3 ? 3 : fit > 100000 ? 100000 : (uint64_t)fit;
    if (g->r->o->iters)
        *n = (uint64_t)g->r->o->iters;
    if (pvn_boot_share(&g->r->boot, n, sizeof(*n)))
        return pvn_rank_fail_boot(g->r);
    return 0;
}

static int run_size(struct ring *g, uint64_t bytes)
{
    uint64_t count = bytes / sizeof(float), n;
    struct pvn_row_result res = {.bytes = bytes};
    struct outcome o, sum = {0};
    int warm = g->r->o->warmup >= 0 ? g->r->o->warmup : 2;

    snprintf(res.test, sizeof(res.test), g->r->o->no_sums ? "no-sums" : "allreduce");
    pvn_rank_progress(g->r, "%d ranks, %llu bytes", g->r->nranks, (unsigned long long)bytes);
    o.seconds = 0;
    for (int i = 0; i < warm; i++) {
        if (timed(g, count, 1, &o))
            return -1;
        sum.errors += o.errors;
    }
    if (choose_iters(g, o.seconds, &n))
        return -1;
    /* Unchecked, the runs follow each other as in nccl-tests; checked, each is started and verified
     * alone. */
    for (uint64_t i = 0; i < (g->r->o->check ? n : 1); i++) {
        if (timed(g, count, g->r->o->check ? 1 : n, &o))
            return -1;
        add_outcome(&sum, &o);
    }
    finish_result(g, &res, (double)bytes, (double)n, &sum);
    return 0;
}

/* A training step: all buckets of the model in the order their gradients become ready. */
static int run_preset(struct ring *g, const struct pvn_model *m, const struct pvn_bucket *b, int nb)
{
    int steps = g->r->o->iters ? g->r->o->iters : 2;
    int warm = g->r->o->warmup >= 0 ? g->r->o->warmup : 0;
    struct outcome *per = calloc((size_t)nb, sizeof(*per)), all = {0}, o;
    struct pvn_row_result res = {.bytes = m->count * sizeof(float)};

    if (!per)
        return pvn_rank_fail(g->r, "out of memory for %d buckets", nb);
    for (int s = -warm; s < steps; s++) {
        for (int i = 0; i < nb; i++) {
            pvn_rank_progress(g->r, "%s, %d ranks: step %d of %d, bucket %d of %d, %.1f MB",
                              m->name, g->r->nranks, s + 1, steps, i + 1, nb,
                              (double)b[i].count * sizeof(float) / 1e6);
            if (timed(g, b[i].count, 1, &o)) {
                free(per);
                return -1;
            }
            if (s < 0) {
                all.errors += o.errors;
                continue;
            }
            add_outcome(&per[i], &o);
            add_outcome(&all, &o);
        }
    }
    for (int i = 0; i < nb; i++) {
        struct pvn_row_result one = {.bytes = b[i].count * sizeof(float)};

        snprintf(one.test, sizeof(one.test), "bucket");
        snprintf(one.item, sizeof(one.item), "%s %d", m->name, i + 1);
        finish_result(g, &one, (double)one.bytes, steps, &per[i]);
    }
    snprintf(res.test, sizeof(res.test), "step");
    snprintf(res.item, sizeof(res.item), "%s", m->name);
    finish_result(g, &res, (double)res.bytes, steps, &all);
    free(per);
    return 0;
}

static int set_up(struct ring *g)
{
    const struct pvn_perf_opts *o = g->r->o;
    size_t each = o->slot * (size_t)o->steps;

    g->mem_len = each * 2 * (size_t)o->channels;
    pvn_rank_hold(g->r);
    if (g->r->nranks > 1 && o->steps > pvn_netdrv_max_requests(g->r->drv))
        pvn_rank_fail(g->r, "--steps %d: version %d of the interface allows %d requests", o->steps,
                      pvn_netdrv_abi(g->r->drv), pvn_netdrv_max_requests(g->r->drv));
    else if (pvn_rank_room(g->r, 2 * (g->cap + 16) * sizeof(float) + g->mem_len) == 0)
        g->mem = pvn_rank_alloc_messages(g->r, g->mem_len);
    if (pvn_rank_agree(g->r))
        return -1;
    g->ch = calloc((size_t)o->channels, sizeof(*g->ch));
    g->in = pvn_rank_alloc(g->r, (g->cap + 16) * sizeof(float));
    g->out = g->in ? pvn_rank_alloc(g->r, (g->cap + 16) * sizeof(float)) : NULL;
    if (!g->ch)
        return pvn_rank_fail(g->r, "out of memory for %d channels", o->channels);
    if (!g->out)
        return -1;
    memset(g->mem, 0, g->mem_len);
    for (int i = 0; g->r->nranks > 1 && i < o->channels; i++) {
        struct channel *c = &g->ch[i];
        ncclResult_t a, b;

        c->scomm = g->r->link[i].send;
        c->rcomm = g->r->link[i].recv;
        c->sbuf = g->mem + each * (size_t)(2 * i);
        c->rbuf = c->sbuf + each;
        pvn_rank_at(g->r, "regMr");
        a = pvn_netdrv_reg_mr(g->r->drv, c->scomm, c->sbuf, each, NCCL_PTR_HOST, &c->smh);
        b = pvn_netdrv_reg_mr(g->r->drv, c->rcomm, c->rbuf, each, NCCL_PTR_HOST, &c->rmh);
        if (a != ncclSuccess || b != ncclSuccess)
            return pvn_rank_fail_call(g->r, "regMr", a != ncclSuccess ? a : b);
    }
    return 0;
}

static int tear_down(struct ring *g)
{
    for (int i = 0; g->r->nranks > 1 && i < g->r->o->channels; i++) {
        struct channel *c = &g->ch[i];
        ncclResult_t a, b;

        pvn_rank_at(g->r, "deregMr");
        a = pvn_netdrv_dereg_mr(g->r->drv, c->scomm, c->smh);
        b = pvn_netdrv_dereg_mr(g->r->drv, c->rcomm, c->rmh);
        if (a != ncclSuccess || b != ncclSuccess)
            return pvn_rank_fail_call(g->r, "deregMr", a != ncclSuccess ? a : b);
    }
    if (pvn_boot_barrier(&g->r->boot))
        return pvn_rank_fail_boot(g->r);
    pvn_rank_free_messages(g->r, g->mem, g->mem_len);
    munmap(g->in, (g->cap + 16) * sizeof(float));
    munmap(g->out, (g->cap + 16) * sizeof(float));
    return 0;
}

int pvn_ring_run(struct pvn_rank *r)
{
    struct ring g = {.r = r, .slot_elems = r->o->slot / sizeof(float)};
    struct pvn_model model = {0};
    struct pvn_bucket *buckets = NULL;
    int nb = 0, rc = 0;

    if (r->o->preset[0]) {
        rc = pvn_model_load(r->o->preset, &model);
        nb = rc ? rc : pvn_model_buckets(&model, &buckets);
        if (nb < 0)
            rc = pvn_rank_fail(r, "out of memory for the model %s", r->o->preset);
    }
    for (int i = 0; i < nb; i++)
        g.cap = buckets[i].count > g.cap ? buckets[i].count : g.cap;
    for (int i = 0; i < r->o->nsizes; i++)
        g.cap = r->o->size[i] / sizeof(float) > g.cap ? r->o->size[i] / sizeof(float) : g.cap;
    if (!rc)
        rc = set_up(&g);
    r->boot.work = g.ch ? attend_to_sends : NULL;
    r->boot.work_arg = &g;
    for (int i = 0; !rc && i < r->o->nsizes; i++)
        rc = run_size(&g, r->o->size[i]);
    if (!rc && nb)
        rc = run_preset(&g, &model, buckets, nb);
    if (!rc && r->sizes_missing)
        fprintf(stderr,
                "pvn-perf: rank %d: plugin %s does not report in test() how much was received\n",
                r->rank, r->o->plugin[r->plugin].name);
    if (!rc)
        rc = complete_sends(&g);
    if (!rc)
        rc = tear_down(&g);
    r->boot.work = NULL;
    free(g.ch);
    free(buckets);
    pvn_model_free(&model);
    return rc;
}
