/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The report as an SVG: one panel per unit, a line per plugin, logarithmic x axis. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/results/plot.h"

#define MAX_SERIES 16

struct panel {
    const char *title, *unit;
    int latency;           /* draw results of latency, else of bandwidth */
    int by_ranks;          /* x axis: ranks instead of bytes */
    double x0, x1, y0, y1; /* data ranges; x as log2; y as log10 for latency */
    int top;
};

static int in_panel(const struct panel *p, const struct pvn_summary *s, int have_buckets)
{
    if ((strcmp(s->key.test, "latency") == 0) != p->latency || s->key.bytes == 0 ||
        strcmp(s->key.test, "idle") == 0)
        return 0;
    /* The chart has the sum of both directions, not each. */
    if (strcmp(s->key.test, "bidir") == 0 && s->key.item[0])
        return 0;
    /* A single rank only copies memory; its figure would compress all others. */
    if (p->by_ranks)
        return strcmp(s->key.test, "bucket") != 0 && strcmp(s->key.test, "part") != 0 &&
               s->key.ranks > 1;
    return !(have_buckets &&
             (strcmp(s->key.test, "step") == 0 || strcmp(s->key.test, "part") == 0));
}

static double x_of(const struct panel *p, const struct pvn_summary *s)
{
    return log2(p->by_ranks ? (double)s->key.ranks : (double)s->key.bytes);
}

static double y_of(const struct panel *p, double value)
{
    return p->latency ? log10(value > 1e-3 ? value : 1e-3) : value;
}

static double px(const struct panel *p, double x)
{
    double span = p->x1 > p->x0 ? p->x1 - p->x0 : 1;

    return PVN_PLOT_LEFT + (x - p->x0) / span * (PVN_PLOT_WIDTH - PVN_PLOT_LEFT - PVN_PLOT_RIGHT);
}

static double py(const struct panel *p, double y)
{
    return p->top + PVN_PLOT_PANEL_H - PVN_PLOT_BOTTOM -
           (y - p->y0) / (p->y1 - p->y0) * (PVN_PLOT_PANEL_H - PVN_PLOT_TOP - PVN_PLOT_BOTTOM);
}

static void put_grid_line(FILE *f, const struct panel *p, double y, double label)
{
    char text[32];

    snprintf(text, sizeof(text), "%g", label);
    pvn_plot_grid_y(f, py(p, y), text);
}

static void put_axes(FILE *f, const struct panel *p)
{
    int every = (int)ceil((p->x1 - p->x0) / 10);

    if (p->latency) {
        for (double e = ceil(p->y0); e <= p->y1; e += 1)
            put_grid_line(f, p, e, pow(10, e));
    } else {
        double step = pvn_plot_step(p->y1 - p->y0, 6);

        for (double v = 0; v <= p->y1; v += step)
            put_grid_line(f, p, v, v);
    }
    if (every < 1)
        every = 1;
    for (int k = (int)ceil(p->x0); k <= (int)floor(p->x1); k += every) {
        char text[24];

        if (p->by_ranks)
            snprintf(text, sizeof(text), "%d", 1 << k);
        else
            pvn_report_size(1ull << k, text);
        pvn_plot_grid_x(f, p->top, px(p, k), text);
    }
    pvn_plot_frame(f, p->top, p->title, p->by_ranks ? "ranks" : "size");
}

/* True if two points are in one series: per plugin, and per size if ranks are the axis. */
static int same_series(const struct panel *p, const struct pvn_summary *a,
                       const struct pvn_summary *b)
{
    return a->plugin == b->plugin &&
           (p->by_ranks ? a->key.bytes == b->key.bytes : a->key.ranks == b->key.ranks);
}

static int by_x(const void *a, const void *b)
{
    const struct pvn_summary *const *x = a, *const *y = b;

    if ((*x)->key.bytes != (*y)->key.bytes)
        return (*x)->key.bytes < (*y)->key.bytes ? -1 : 1;
    return (*x)->key.ranks - (*y)->key.ranks;
}

/* Draws a point, and a bar from the least to the largest of its repeats. */
static void put_point(FILE *f, const struct panel *p, const struct pvn_summary *s, const char *c)
{
    double x = px(p, x_of(p, s));

    if (s->n > 1)
        fprintf(f,
                "<line class=\"spread\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                "stroke=\"%s\"/>\n",
                x, py(p, y_of(p, s->low)), x, py(p, y_of(p, s->high)), c);
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%.2f %s", x,
            py(p, y_of(p, s->median)), c, s->median, p->unit);
    if (s->n > 1)
        fprintf(f, " (%.2f to %.2f in %d repeats)", s->low, s->high, s->n);
    fputs("</title></circle>\n", f);
}

static void put_series(FILE *f, const struct panel *p, const struct pvn_summary **pt, int n,
                       const char *name, int index)
{
    const char *c = pvn_plot_colour(index);

    qsort(pt, (size_t)n, sizeof(*pt), by_x);
    /* Buckets of a preset are single measurements without an order, so no line joins them. */
    if (strcmp(pt[0]->key.test, "bucket") != 0) {
        fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", c);
        for (int i = 0; i < n; i++)
            fprintf(f, "%s%.1f,%.1f", i ? " " : "", px(p, x_of(p, pt[i])),
                    py(p, y_of(p, pt[i]->median)));
        fputs("\"/>\n", f);
    }
    for (int i = 0; i < n; i++)
        put_point(f, p, pt[i], c);
    pvn_plot_legend(f, p->top, index, name);
}

/* Finds the ranges of the data; 0 if the panel would be empty. */
static int measure(struct panel *p, const struct pvn_summary *sum, int n, int have_buckets)
{
    int any = 0;

    for (int i = 0; i < n; i++) {
        double x;

        if (!in_panel(p, &sum[i], have_buckets))
            continue;
        x = x_of(p, &sum[i]);
        p->x0 = !any || x < p->x0 ? x : p->x0;
        p->x1 = !any || x > p->x1 ? x : p->x1;
        p->y0 = !any || y_of(p, sum[i].low) < p->y0 ? y_of(p, sum[i].low) : p->y0;
        p->y1 = !any || y_of(p, sum[i].high) > p->y1 ? y_of(p, sum[i].high) : p->y1;
        any = 1;
    }
    if (p->latency) {
        p->y0 = floor(p->y0);
        p->y1 = ceil(p->y1 + 1e-9);
    } else {
        p->y0 = 0;
        p->y1 = p->y1 > 0 ? p->y1 * 1.08 : 1;
    }
    return any;
}

static int put_panel(FILE *f, const struct panel *p, const struct pvn_report *rep,
                     const struct pvn_summary *sum, int n, int have_buckets)
{
    const struct pvn_summary **pt = calloc((size_t)n, sizeof(*pt));
    int index = 0;

    if (!pt)
        return -ENOMEM;
    put_axes(f, p);
    for (int i = 0; i < n && index < MAX_SERIES; i++) {
        char name[80], size[24];
        int k = 0, first = in_panel(p, &sum[i], have_buckets);

        for (int j = 0; j < i && first; j++)
            first = !(in_panel(p, &sum[j], have_buckets) && same_series(p, &sum[i], &sum[j]));
        if (!first)
            continue;
        for (int j = i; j < n; j++)
            if (in_panel(p, &sum[j], have_buckets) && same_series(p, &sum[i], &sum[j]))
                pt[k++] = &sum[j];
        if (p->by_ranks)
            snprintf(name, sizeof(name), "%s, %s", rep->o->plugin[sum[i].plugin].name,
                     pvn_report_size(sum[i].key.bytes, size));
        else
            snprintf(name, sizeof(name), "%s, %d ranks", rep->o->plugin[sum[i].plugin].name,
                     sum[i].key.ranks);
        put_series(f, p, pt, k, name, index++);
    }
    free(pt);
    return 0;
}

/* The title of the bandwidth. p2p has only one bandwidth; an all-reduce has two. */
static const char *bandwidth_title(const struct pvn_report *rep)
{
    int ring = 0;

    if (rep->o->mode == PVN_PERF_P2P)
        return "bandwidth of the messages, MB/s (10^6 bytes)";
    for (int i = 0; i < rep->nrows; i++)
        ring |= rep->row[i].kind == PVN_ROW_RESULT && pvn_report_has_busbw(&rep->row[i].u.result);
    return ring ? "bus bandwidth, MB/s (10^6 bytes; algorithm bandwidth times 2(n-1)/n)"
                : "algorithm bandwidth of one rank, MB/s (10^6 bytes)";
}

/* Draws the title, or with f NULL measures it. */
static int put_head(FILE *f, const struct pvn_report *rep)
{
    static const char *const what[] = {"p2p between two ranks", "ring all-reduce",
                                       "ring all-reduce by number of ranks"};
    const struct pvn_perf_opts *o = rep->o;
    char text[400];

    snprintf(text, sizeof(text), "pvn-perf: %s%s%s%s", what[o->mode], o->preset[0] ? ", " : "",
             o->preset, o->repeat > 1 ? "; medians, bars from least to largest" : "");
    return pvn_plot_head(f, PVN_PLOT_LEFT, PVN_PLOT_WIDTH, text, &rep->run);
}

int pvn_report_svg(const struct pvn_report *rep, FILE *f, int status)
{
    (void)status;

    struct panel panel[2] = {
        {.title = "latency: half a round trip, median, us", .unit = "us", .latency = 1},
        {.title = bandwidth_title(rep), .unit = "MB/s"}};
    int n, shown = 0, have_buckets = 0, rc = 0, used[2], head = put_head(NULL, rep),
           over_time = rep->timeline.n > 0, distribution = pvn_plot_has_distribution(rep);
    struct pvn_summary *sum = pvn_report_summary(rep, &n);

    for (int i = 0; sum && i < n; i++)
        have_buckets |= strcmp(sum[i].key.test, "bucket") == 0;
    panel[1].by_ranks = rep->o->mode == PVN_PERF_SCALE;
    for (int i = 0; i < 2; i++) {
        panel[i].top = head + shown * PVN_PLOT_PANEL_H;
        /* For a run over a time, the course shows more than one figure, so this panel is left
         * out. */
        used[i] = sum && !over_time && measure(&panel[i], sum, n, have_buckets);
        shown += used[i];
    }
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<style>.g{stroke:#ddd}.a{fill:none;stroke:#888}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            PVN_PLOT_WIDTH,
            head + (shown + over_time + distribution ? shown + over_time + distribution : 1) *
                       PVN_PLOT_PANEL_H);
    put_head(f, rep);
    for (int i = 0; i < 2 && !rc; i++)
        if (used[i])
            rc = put_panel(f, &panel[i], rep, sum, n, have_buckets);
    if (!rc && over_time)
        rc = pvn_plot_time(rep, f, head + shown++ * PVN_PLOT_PANEL_H);
    if (!rc && distribution)
        rc = pvn_plot_distribution(rep, f, head + shown++ * PVN_PLOT_PANEL_H);
    if (!shown)
        pvn_plot_text(f, PVN_PLOT_WIDTH / 2.0, head + PVN_PLOT_PANEL_H / 2.0, "middle",
                      "no results");
    fputs("</svg>\n", f);
    free(sum);
    return rc ? rc : ferror(f) ? -EIO : 0;
}
