/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/rank/timed.h"

#include <math.h>
#include <stdlib.h>

#define BATCH_SECONDS 0.25 /* --duration without checks: time between two readings of the clock */
#define SHOWN_EVERY   1.0  /* seconds between two lines of progress */

static int combine(struct pvn_rank *r, struct pvn_outcome *o)
{
    struct pvn_outcome *all = calloc((size_t)r->nranks, sizeof(*all));
    int rc = 0;

    if (!all)
        return pvn_rank_fail(r, "out of memory for %d ranks", r->nranks);
    if (pvn_boot_allgather(&r->boot, o, all, sizeof(*o)))
        rc = pvn_rank_fail_boot(r);
    *o = (struct pvn_outcome){0};
    for (int i = 0; i < r->nranks; i++) {
        o->seconds = fmax(o->seconds, all[i].seconds);
        o->cpu += all[i].cpu;
        o->errors += all[i].errors;
    }
    free(all);
    if (!rc && o->errors && r->status == PVN_PERF_OK)
        r->status = PVN_PERF_WRONG;
    return rc;
}

int pvn_timed_once(struct pvn_timed *t, uint64_t iters, struct pvn_outcome *o)
{
    double t0, cpu;
    int rc;

    *o = (struct pvn_outcome){0};
    t->errors = 0;
    if (t->fill)
        t->fill(t->arg);
    pvn_rank_at(t->r, "waiting for the other ranks");
    if (pvn_boot_barrier(&t->r->boot))
        return pvn_rank_fail_boot(t->r);
    cpu = pvn_rank_cpu();
    t0 = pvn_now_s();
    rc = t->run(t->arg, iters);
    o->seconds = pvn_now_s() - t0;
    o->cpu = pvn_rank_cpu() - cpu;
    if (rc)
        return -1;
    if (t->r->o->check && t->verify)
        t->verify(t->arg, &t->errors);
    o->errors = t->errors;
    return combine(t->r, o);
}

void pvn_outcome_add(struct pvn_outcome *sum, const struct pvn_outcome *one)
{
    sum->seconds += one->seconds;
    sum->cpu += one->cpu;
    sum->errors += one->errors;
}

static void complete(const struct pvn_rank *r, struct pvn_row_result *res, const struct pvn_work *w,
                     double iters, const struct pvn_outcome *sum)
{

    res->ranks = r->nranks;
    res->channels = r->o->channels;
    res->depth = r->o->steps;
    res->group = r->o->group;
    res->iters = (uint64_t)iters;
    res->time_us = sum->seconds / iters * 1e6;
    res->algbw = w->bytes * iters / sum->seconds / 1e6;
    res->busbw = res->algbw * w->factor; /* 0 with one rank: nothing was sent */
    res->cpu = w->sent > 0 ? sum->cpu / (w->sent * iters / 1e9) : 0;
    res->errors = r->o->check ? sum->errors : -1;
}

void pvn_timed_report(struct pvn_timed *t, struct pvn_row_result *res, const struct pvn_work *w,
                      double iters, const struct pvn_outcome *sum)
{
    complete(t->r, res, w, iters, sum);
    pvn_rank_result(t->r, res);
}

static int choose_iters(struct pvn_rank *r, double seconds, uint64_t *n)
{
    double fit = r->o->time / (seconds > 1e-7 ? seconds : 1e-7);

    *n = fit < 3 ? 3 : fit > 100000 ? 100000 : (uint64_t)fit;
    if (r->o->iters)
        *n = (uint64_t)r->o->iters;
    if (pvn_boot_share(&r->boot, n, sizeof(*n)))
        return pvn_rank_fail_boot(r);
    return 0;
}

int pvn_timed_next(struct pvn_rank *r, double began, double last, uint64_t *n)
{
    double left = began + r->o->duration - pvn_now_s();
    double fit = (double)*n * fmin(fmin(BATCH_SECONDS, left) / fmax(last, 1e-7), 4);

    if (left <= 0)
        *n = 0;
    else
        *n = r->o->check || fit < 1 ? 1 : (uint64_t)fmin(fit, 100000);
    return pvn_boot_share(&r->boot, n, sizeof(*n)) ? pvn_rank_fail_boot(r) : 0;
}

static void show_progress(struct pvn_rank *r, uint64_t bytes, double began, uint64_t done,
                          double *shown)
{
    double now = pvn_now_s();

    if (now - *shown < SHOWN_EVERY)
        return;
    *shown = now;
    pvn_rank_progress(r, "%d ranks, %llu bytes: %.0f of %.0f s, %llu iterations", r->nranks,
                      (unsigned long long)bytes, now - began, r->o->duration,
                      (unsigned long long)done);
}

/* --duration: runs batches, at least one, until the time is over on rank 0's clock. If the run ends
 * early, the finished batches are reported. */
static int run_for(struct pvn_timed *t, struct pvn_row_result *res, const struct pvn_work *w)
{
    struct pvn_outcome o = {0}, sum = {0};
    double began = pvn_now_s(), shown = began;
    uint64_t n = 1, done = 0;
    int rc = 0;

    while (!rc && n) {
        rc = pvn_timed_once(t, n, &o);
        if (rc)
            break;
        pvn_outcome_add(&sum, &o);
        done += n;
        show_progress(t->r, res->bytes, began, done, &shown);
        rc = pvn_timed_next(t->r, began, o.seconds, &n);
    }
    if (!rc) {
        pvn_timed_report(t, res, w, (double)done, &sum);
    } else if (done) {
        complete(t->r, res, w, (double)done, &sum);
        pvn_rank_last_result(t->r, res);
    }
    return rc;
}

int pvn_timed_point(struct pvn_timed *t, struct pvn_row_result *res, const struct pvn_work *w)
{
    struct pvn_outcome o = {0}, sum = {0};
    int warm = t->r->o->warmup >= 0 ? t->r->o->warmup : 2;
    uint64_t n;

    pvn_rank_progress(t->r, "%d ranks, %llu bytes", t->r->nranks, (unsigned long long)res->bytes);
    if (t->r->o->duration > 0)
        return run_for(t, res, w);
    for (int i = 0; i < warm; i++) {
        if (pvn_timed_once(t, 1, &o))
            return -1;
        sum.errors += o.errors;
    }
    if (choose_iters(t->r, o.seconds, &n))
        return -1;
    /* Without checks the runs follow each other as in nccl-tests. With checks each run is started
     * and verified separately. */
    for (uint64_t i = 0; i < (t->r->o->check ? n : 1); i++) {
        if (pvn_timed_once(t, t->r->o->check ? 1 : n, &o))
            return -1;
        pvn_outcome_add(&sum, &o);
    }
    pvn_timed_report(t, res, w, (double)n, &sum);
    return 0;
}
