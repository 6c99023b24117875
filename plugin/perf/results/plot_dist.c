/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The SVG's panel of the latencies' distribution: percentiles of the round trips over the
 * percentage. Each further nine (90 %, 99 %, 99.9 %) has the same width on the axis. There is a
 * line per plugin and size, with all repeats.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/rank/hist.h"
#include "perf/results/plot.h"

#define BINS       (PVN_HIST_BUCKETS / PVN_BIN_BUCKETS)
#define MAX_SERIES 12 /* limit of the legend's room */

struct series {
    int plugin;
    uint64_t bytes;
    uint64_t total;
    uint64_t bin[BINS];
};

struct dist {
    struct series *s;
    int n;
    int step;             /* every step-th series is drawn */
    double nines, y0, y1; /* ranges of the axes; y as log10 us */
    int top;
};

bool pvn_plot_has_distribution(const struct pvn_report *rep)
{
    for (int i = 0; i < rep->nrows; i++)
        if (rep->row[i].kind == PVN_ROW_BINS)
            return true;
    return false;
}

static struct series *series_of(struct dist *d, int plugin, uint64_t bytes)
{
    for (int i = 0; i < d->n; i++)
        if (d->s[i].plugin == plugin && d->s[i].bytes == bytes)
            return &d->s[i];
    d->s[d->n].plugin = plugin;
    d->s[d->n].bytes = bytes;
    return &d->s[d->n++];
}

static int gather(const struct pvn_report *rep, struct dist *d)
{
    const struct pvn_row_result *of = NULL;

    d->s = calloc(PVN_PERF_MAX_PLUGINS * PVN_PERF_MAX_SIZES, sizeof(*d->s));
    if (!d->s)
        return -ENOMEM;
    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row *row = &rep->row[i];
        struct series *s;

        if (row->kind == PVN_ROW_RESULT)
            of = &row->u.result;
        if (row->kind != PVN_ROW_BINS || !of)
            continue;
        s = series_of(d, row->plugin, of->bytes);
        for (int k = 0; k < row->u.bins.n; k++) {
            s->bin[row->u.bins.bin[k].bin] += row->u.bins.bin[k].count;
            s->total += row->u.bins.bin[k].count;
        }
    }
    d->step = (d->n + MAX_SERIES - 1) / MAX_SERIES;
    return 0;
}

/* Nines of `seen` of `total` values: 1 for nine tenths. The slowest value would be infinitely far
 * away, so it is drawn as if one more were as slow. */
static double nines(uint64_t seen, uint64_t total)
{
    double rest = (double)(total - seen) / (double)total;

    return -log10(rest > 0 ? rest : 0.5 / (double)total);
}

static void measure(struct dist *d)
{
    d->y0 = 1e9;
    d->y1 = -1e9;
    for (int i = 0; i < d->n; i += d->step) {
        const struct series *s = &d->s[i];
        double low, high;

        d->nines = fmax(d->nines, nines(s->total, s->total));
        for (uint32_t b = 0; b < BINS; b++) {
            if (!s->bin[b])
                continue;
            pvn_report_bin(b, &low, &high);
            d->y0 = fmin(d->y0, log10(fmax(low, 1e-3)));
            d->y1 = fmax(d->y1, log10(high));
        }
    }
    d->y0 = floor(d->y0);
    d->y1 = ceil(d->y1 + 1e-9);
}

static double px(const struct dist *d, double n)
{
    return PVN_PLOT_LEFT + n / d->nines * (PVN_PLOT_WIDTH - PVN_PLOT_LEFT - PVN_PLOT_RIGHT);
}

static double py(const struct dist *d, double us)
{
    return d->top + PVN_PLOT_PANEL_H - PVN_PLOT_BOTTOM -
           (log10(us) - d->y0) / (d->y1 - d->y0) *
               (PVN_PLOT_PANEL_H - PVN_PLOT_TOP - PVN_PLOT_BOTTOM);
}

static void put_axes(FILE *f, const struct dist *d)
{
    static const char *const share[] = {"0 %",     "90 %",     "99 %",      "99.9 %",
                                        "99.99 %", "99.999 %", "99.9999 %", "99.99999 %"};
    char title[120];

    snprintf(title, sizeof(title),
             "latency: time that a share of the round trips stays within, us");
    if (d->step > 1)
        snprintf(title + strlen(title), sizeof(title) - strlen(title), " (%d of %d lines)",
                 (d->n + d->step - 1) / d->step, d->n);
    for (double e = d->y0; e <= d->y1; e += 1) {
        char text[32];

        snprintf(text, sizeof(text), "%g", pow(10, e));
        pvn_plot_grid_y(f, py(d, pow(10, e)), text);
    }
    for (int k = 0; k < (int)(sizeof(share) / sizeof(share[0])) && k <= d->nines; k++)
        pvn_plot_grid_x(f, d->top, px(d, k), share[k]);
    pvn_plot_frame(f, d->top, title, "share of the round trips");
}

static void put_series(FILE *f, const struct dist *d, const struct series *s, const char *name,
                       int index)
{
    uint64_t seen = 0;

    fprintf(f,
            "<polyline class=\"dist\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
            pvn_plot_colour(index));
    for (uint32_t b = 0; b < BINS; b++) {
        double low, high;

        if (!s->bin[b])
            continue;
        pvn_report_bin(b, &low, &high);
        fprintf(f, "%.1f,%.1f ", px(d, nines(seen, s->total)), py(d, high));
        seen += s->bin[b];
        fprintf(f, "%.1f,%.1f ", px(d, nines(seen, s->total)), py(d, high));
    }
    fputs("\"/>\n", f);
    pvn_plot_legend(f, d->top, index, name);
}

int pvn_plot_distribution(const struct pvn_report *rep, FILE *f, int top)
{
    struct dist d = {.top = top};
    int rc = gather(rep, &d), index = 0;

    if (rc)
        return rc;
    measure(&d);
    put_axes(f, &d);
    for (int i = 0; i < d.n; i += d.step) {
        char name[64], size[24];

        pvn_report_size(d.s[i].bytes, size);
        snprintf(name, sizeof(name), "%s%s%s",
                 rep->o->nplugins > 1 ? rep->o->plugin[d.s[i].plugin].name : "",
                 rep->o->nplugins > 1 ? ", " : "", size);
        put_series(f, &d, &d.s[i], name, index++);
    }
    free(d.s);
    return 0;
}
