/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What the rows say: which figures they have, and medians over the repeats. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/hist.h"
#include "perf/report.h"

const char *pvn_report_size(uint64_t bytes, char out[24])
{
    static const char unit[] = " KMGT";
    uint64_t one = 1;
    int u = 0;

    while (bytes / one >= 1024 && u < 4) {
        one *= 1024;
        u++;
    }
    if (u == 0)
        snprintf(out, 24, "%llu B", (unsigned long long)bytes);
    else
        snprintf(out, 24, "%.*f %ciB", bytes % one ? 2 : 0, (double)bytes / (double)one, unit[u]);
    return out;
}

int pvn_report_is_time(const struct pvn_row_result *r)
{
    return strcmp(r->test, "latency") == 0 || strcmp(r->test, "idle") == 0;
}

bool pvn_report_has_bandwidth(const struct pvn_row_result *r)
{
    return !pvn_report_is_time(r);
}

bool pvn_report_has_busbw(const struct pvn_row_result *r)
{
    return !pvn_report_is_time(r) && r->ranks > 1;
}

bool pvn_report_has_cpu(const struct pvn_row_result *r)
{
    return pvn_report_has_busbw(r) && r->bytes > 0;
}

double pvn_report_value(const struct pvn_row_result *r)
{
    if (pvn_report_is_time(r))
        return r->time_us;
    return r->ranks > 1 ? r->busbw : r->algbw;
}

double pvn_report_gbps(double MBps)
{
    return MBps * 8 / 1e3;
}

void pvn_report_bin(uint32_t bin, double *low_us, double *high_us)
{
    uint64_t low, high, unused;

    pvn_hist_range(bin * PVN_BIN_BUCKETS, &low, &unused);
    pvn_hist_range(bin * PVN_BIN_BUCKETS + PVN_BIN_BUCKETS - 1, &unused, &high);
    *low_us = (double)low / 1e3;
    *high_us = (double)(high + 1) / 1e3; /* the next one begins there */
}

double pvn_report_per_message(const struct pvn_doorbells *b)
{
    return (double)(b->send + b->recv + b->empty) / (double)b->msgs;
}

static int same_point(const struct pvn_row *a, const struct pvn_row *b)
{
    return a->plugin == b->plugin && a->u.result.bytes == b->u.result.bytes &&
           a->u.result.ranks == b->u.result.ranks &&
           strcmp(a->u.result.test, b->u.result.test) == 0 &&
           strcmp(a->u.result.item, b->u.result.item) == 0;
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_double);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct columns {
    double *value, *cpu, *rate, *algbw, *p99;
};

/* The rows of one point, as columns; their number. */
static int gather(const struct pvn_report *rep, int first, struct columns *c, int64_t *errors,
                  uint32_t *via)
{
    int n = 0;

    *errors = -1;
    for (int i = first; i < rep->nrows; i++) {
        const struct pvn_row_result *r = &rep->row[i].u.result;

        if (rep->row[i].kind != PVN_ROW_RESULT || !same_point(&rep->row[first], &rep->row[i]))
            continue;
        c->value[n] = pvn_report_value(r);
        c->cpu[n] = r->cpu;
        c->rate[n] = r->rate;
        c->algbw[n] = r->algbw;
        c->p99[n] = r->p99_us;
        n++;
        *via |= r->via;
        if (r->errors >= 0)
            *errors = (*errors > 0 ? *errors : 0) + r->errors;
    }
    return n;
}

struct pvn_summary *pvn_report_summary(const struct pvn_report *rep, int *n)
{
    size_t rows = (size_t)(rep->nrows ? rep->nrows : 1);
    struct pvn_summary *sum = calloc(rows, sizeof(*sum));
    double *buf = calloc(rows * 5, sizeof(*buf));
    struct columns c = {buf, buf + rows, buf + 2 * rows, buf + 3 * rows, buf + 4 * rows};

    *n = 0;
    for (int i = 0; sum && buf && i < rep->nrows; i++) {
        struct pvn_summary *s = &sum[*n];
        int seen = rep->row[i].kind != PVN_ROW_RESULT;

        for (int k = 0; k < i && !seen; k++)
            seen = rep->row[k].kind == PVN_ROW_RESULT && same_point(&rep->row[k], &rep->row[i]);
        if (seen)
            continue;
        s->plugin = rep->row[i].plugin;
        s->key = rep->row[i].u.result;
        s->n = gather(rep, i, &c, &s->errors, &s->via);
        s->median = median(c.value, s->n);
        s->low = c.value[0];
        s->high = c.value[s->n - 1];
        s->cpu = median(c.cpu, s->n);
        s->rate = median(c.rate, s->n);
        s->algbw = median(c.algbw, s->n);
        s->p99_us = median(c.p99, s->n);
        (*n)++;
    }
    free(buf);
    return sum;
}
