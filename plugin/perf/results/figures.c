/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The figures in rows, and medians over the repeats. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/rank/hist.h"
#include "perf/results/report.h"
#include "perf/results/order.h"

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
    *high_us = (double)(high + 1) / 1e3; /* the next bin begins there */
}

double pvn_report_per_message(const struct pvn_doorbells *b)
{
    return (double)(b->send + b->recv + b->empty) / (double)b->msgs;
}

/* Orders rows by their point: plugin, size, ranks, test and item. */
static int compare_points(const struct pvn_row *a, const struct pvn_row *b)
{
    const struct pvn_row_result *x = &a->u.result, *y = &b->u.result;
    int test;

    if (a->plugin != b->plugin)
        return a->plugin < b->plugin ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->ranks != y->ranks)
        return x->ranks < y->ranks ? -1 : 1;
    test = strcmp(x->test, y->test);
    return test ? test : strcmp(x->item, y->item);
}

static int by_point(const void *a, const void *b)
{
    const struct pvn_row *x = *(const struct pvn_row *const *)a;
    const struct pvn_row *y = *(const struct pvn_row *const *)b;
    int points = compare_points(x, y);

    return points ? points : (x > y) - (x < y);
}

static int by_first(const void *a, const void *b)
{
    const struct pvn_summary *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), pvn_by_double);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct columns {
    double *value, *cpu, *rate;
};

/* Summarises n rows of one point, in the order of their arrival. */
static void summarise(struct pvn_summary *s, const struct pvn_row *const *row, int n,
                      struct columns *c)
{
    s->first = row[0];
    s->plugin = row[0]->plugin;
    s->key = row[0]->u.result;
    s->n = n;
    s->errors = -1;
    for (int i = 0; i < n; i++) {
        const struct pvn_row_result *r = &row[i]->u.result;

        c->value[i] = pvn_report_value(r);
        c->cpu[i] = r->cpu;
        c->rate[i] = r->rate;
        s->via |= r->via;
        if (r->errors >= 0)
            s->errors = (s->errors > 0 ? s->errors : 0) + r->errors;
    }
    s->median = median(c->value, n);
    s->low = c->value[0];
    s->high = c->value[n - 1];
    s->cpu = median(c->cpu, n);
    s->rate = median(c->rate, n);
}

struct pvn_summary *pvn_report_summary(const struct pvn_report *rep, int *n)
{
    size_t rows = (size_t)(rep->nrows ? rep->nrows : 1);
    struct pvn_summary *sum = calloc(rows, sizeof(*sum));
    const struct pvn_row **row = calloc(rows, sizeof(const struct pvn_row *));
    double *buf = calloc(rows * 3, sizeof(*buf));
    struct columns c = {buf, buf + rows, buf + 2 * rows};
    int results = 0;

    *n = 0;
    for (int i = 0; row && i < rep->nrows; i++)
        if (rep->row[i].kind == PVN_ROW_RESULT)
            row[results++] = &rep->row[i];
    if (sum && row && buf && results) {
        qsort(row, (size_t)results, sizeof(*row), by_point);
        for (int i = 0, of; i < results; i += of) {
            for (of = 1; i + of < results && compare_points(row[i], row[i + of]) == 0; of++)
                ;
            summarise(&sum[(*n)++], &row[i], of, &c);
        }
        qsort(sum, (size_t)*n, sizeof(*sum), by_first);
    }
    free(row);
    free(buf);
    return sum;
}
