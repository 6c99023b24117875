/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/patterns/p2p_soak.h"

#include <math.h>
#include <string.h>

#define BATCH_SECONDS 0.25

/* One rank's figures of a batch, and its plugin's counters since the beginning. */
struct batch {
    double seconds, cpu;
    uint64_t messages, bytes; /* received; with checks, all of them right */
    int64_t errors;
    uint64_t failovers, failbacks;
    uint32_t via;
};

struct sum {
    double seconds, cpu; /* while messages moved, without the exchanges in between */
    uint64_t messages, bytes, failovers, failbacks;
    int64_t errors;
    uint32_t via;
};

struct soak {
    struct pvn_p2p *p;
    double began, shown;           /* beginning of the run, and of the interval */
    uint64_t failovers, failbacks; /* counts at the last report, in both ranks */
    struct sum all, interval;
};

static void add_batches(struct sum *s, const struct batch b[2], uint64_t failovers,
                        uint64_t failbacks)
{
    s->seconds += fmax(b[0].seconds, b[1].seconds);
    s->cpu += b[0].cpu + b[1].cpu;
    s->messages += b[0].messages + b[1].messages;
    s->bytes += b[0].bytes + b[1].bytes;
    s->errors += b[0].errors + b[1].errors;
    s->failovers += failovers;
    s->failbacks += failbacks;
    s->via |= b[0].via | b[1].via;
}

static int run_batch(struct soak *s, uint64_t units)
{
    struct pvn_p2p *p = s->p;
    double t0 = pvn_now_s(), cpu = pvn_rank_cpu(), in = 0;
    struct batch mine = {0}, both[2];
    struct pvn_own_stats own;
    uint64_t over, back;
    int rc;

    p->round++;
    p->errors = 0;
    p->got_messages = p->got_bytes = 0;
    rc = p->r->o->bidirectional ? pvn_p2p_both(p, units, &in) : pvn_p2p_stream(p, units);
    if (rc)
        return rc;
    mine.seconds = pvn_now_s() - t0;
    mine.cpu = pvn_rank_cpu() - cpu;
    mine.messages = p->got_messages;
    mine.bytes = p->got_bytes;
    mine.errors = p->errors;
    pvn_own_stats_read(&own);
    mine.failovers = own.failovers;
    mine.failbacks = own.failbacks;
    mine.via = own.via;
    if (pvn_boot_allgather(&p->r->boot, &mine, both, sizeof(mine)))
        return pvn_rank_fail_boot(p->r);
    over = both[0].failovers + both[1].failovers;
    back = both[0].failbacks + both[1].failbacks;
    add_batches(&s->all, both, over - s->failovers, back - s->failbacks);
    add_batches(&s->interval, both, over - s->failovers, back - s->failbacks);
    s->failovers = over;
    s->failbacks = back;
    if (s->all.errors && p->r->status == PVN_PERF_OK)
        p->r->status = PVN_PERF_WRONG;
    return 0;
}

static void show(struct soak *s, double now)
{
    struct pvn_row_interval i = {.bytes_each = s->p->size,
                                 .from = s->shown - s->began,
                                 .to = now - s->began,
                                 .seconds = s->interval.seconds,
                                 .messages = s->interval.messages,
                                 .bytes = s->interval.bytes,
                                 .errors = s->p->r->o->check ? s->interval.errors : -1,
                                 .failovers = s->interval.failovers,
                                 .failbacks = s->interval.failbacks,
                                 .via = s->interval.via};

    pvn_rank_interval(s->p->r, &i);
    memset(&s->interval, 0, sizeof(s->interval));
    s->shown = now;
}

/* Computes the units of the next batch from the last one: rank 0 decides. 0: the time is over. */
static int next_units(struct soak *s, double last, uint64_t *units)
{
    struct pvn_p2p *p = s->p;
    double now = pvn_now_s(), left = s->began + p->r->o->duration - now;
    double want = fmin(fmin(BATCH_SECONDS, p->r->o->interval), left > 0 ? left : 0);
    double fit = last > 0 ? (double)*units * fmin(want / last, 4) : (double)*units;

    *units = left <= 0 ? 0 : fit < 1 ? 1 : fit > 2e7 ? 20000000 : (uint64_t)fit;
    if (p->r->rank == 0 && s->interval.seconds > 0 &&
        (now - s->shown >= p->r->o->interval || !*units))
        show(s, now);
    return pvn_boot_share(&p->r->boot, units, sizeof(*units)) ? pvn_rank_fail_boot(p->r) : 0;
}

static void total(const struct soak *s, uint64_t units, struct pvn_row_result *res)
{
    res->iters = units;
    res->time_us = s->all.seconds / (double)units * 1e6;
    res->rate = (double)s->all.messages / s->all.seconds;
    res->algbw = res->busbw = (double)s->all.bytes / s->all.seconds / 1e6;
    res->cpu = s->all.bytes ? s->all.cpu / ((double)s->all.bytes / 1e9) : 0;
    res->errors = s->p->r->o->check ? s->all.errors : -1;
    res->got_messages = s->all.messages;
    res->got_bytes = s->all.bytes;
    res->failovers = s->all.failovers;
    res->failbacks = s->all.failbacks;
    res->via = s->all.via;
}

int pvn_p2p_soak(struct pvn_p2p *p, struct pvn_row_result *res)
{
    struct soak s = {.p = p};
    uint64_t units = (uint64_t)p->depth, units_done = 0;
    double last = 0;
    int rc;

    p->check = p->r->o->check;
    s.began = s.shown = pvn_now_s();
    for (;;) {
        double t0;

        rc = next_units(&s, last, &units);
        if (rc || !units)
            break;
        t0 = pvn_now_s();
        rc = run_batch(&s, units);
        if (rc)
            break;
        last = pvn_now_s() - t0;
        units_done += units;
    }
    /* However the run ended, report the completed exchanges. */
    if (rc && s.interval.seconds > 0)
        show(&s, pvn_now_s());
    if (units_done)
        total(&s, units_done, res);
    p->check = 0;
    return rc;
}
