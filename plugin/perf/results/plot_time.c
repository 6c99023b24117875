/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Bandwidth over time for p2p --duration, with a mark at each failover. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/results/plot.h"

static bool same_series(const struct pvn_time_point *a, const struct pvn_time_point *b)
{
    return a->plugin == b->plugin && a->repeat == b->repeat && a->i.bytes_each == b->i.bytes_each;
}

/* Merges neighbouring pairs of intervals. */
static void halve(struct pvn_timeline *t)
{
    int n = 0;

    for (int k = 0; k < t->n; k++) {
        struct pvn_time_point *to = &t->point[n++];

        *to = t->point[k];
        if (k + 1 == t->n || !same_series(to, &t->point[k + 1]))
            continue;
        const struct pvn_row_interval *next = &t->point[++k].i;
        to->i.to = next->to;
        to->i.seconds += next->seconds;
        to->i.messages += next->messages;
        to->i.bytes += next->bytes;
        to->i.failovers += next->failovers;
        to->i.failbacks += next->failbacks;
    }
    t->n = n;
}

int pvn_timeline_add(struct pvn_timeline *t, const struct pvn_row *row)
{
    if (!t->point)
        t->point = calloc(PVN_TIMELINE_MAX, sizeof(*t->point));
    if (!t->point)
        return -ENOMEM;
    if (t->n == PVN_TIMELINE_MAX)
        halve(t);
    /* No neighbours could be merged: each is a series of its own. */
    if (t->n == PVN_TIMELINE_MAX)
        return 0;
    t->point[t->n++] = (struct pvn_time_point){row->plugin, row->repeat, row->u.interval};
    return 0;
}

/* The axis begins with each series, so that sizes and repeats are drawn on top of each other. */
struct axis {
    double seconds, most; /* MB/s */
    double unit;          /* unit of the labels, in seconds */
    const char *name;
    int top;
};

static double rate(const struct pvn_row_interval *i)
{
    return i->seconds > 0 ? (double)i->bytes / i->seconds / 1e6 : 0;
}

static double px(const struct axis *a, double seconds)
{
    return PVN_PLOT_LEFT + seconds / a->seconds * (PVN_PLOT_WIDTH - PVN_PLOT_LEFT - PVN_PLOT_RIGHT);
}

static double py(const struct axis *a, double MBps)
{
    return a->top + PVN_PLOT_PANEL_H - PVN_PLOT_BOTTOM -
           MBps / a->most * (PVN_PLOT_PANEL_H - PVN_PLOT_TOP - PVN_PLOT_BOTTOM);
}

static void measure(const struct pvn_timeline *t, struct axis *a)
{
    for (int k = 0; k < t->n; k++) {
        a->seconds = fmax(a->seconds, t->point[k].i.to);
        a->most = fmax(a->most, rate(&t->point[k].i));
    }
    a->seconds = a->seconds > 0 ? a->seconds : 1;
    a->most = a->most > 0 ? a->most * 1.08 : 1;
    a->unit = a->seconds >= 3 * 3600 ? 3600 : a->seconds >= 180 ? 60 : 1;
    a->name = a->unit > 60 ? "hours" : a->unit > 1 ? "minutes" : "seconds";
}

static void put_axes(FILE *f, const struct axis *a)
{
    double dy = pvn_plot_step(a->most, 6), dx = pvn_plot_step(a->seconds / a->unit, 8);
    char text[32];

    for (double v = 0; v <= a->most; v += dy) {
        snprintf(text, sizeof(text), "%g", v);
        pvn_plot_grid_y(f, py(a, v), text);
    }
    for (double v = 0; v * a->unit <= a->seconds; v += dx) {
        snprintf(text, sizeof(text), "%g", v);
        pvn_plot_grid_x(f, a->top, px(a, v * a->unit), text);
    }
    pvn_plot_frame(f, a->top, "bandwidth over time, MB/s (10^6 bytes)", a->name);
}

/* Draws a step per interval, because the figure applies to the whole interval. */
static void put_series(FILE *f, const struct axis *a, const struct pvn_time_point *p,
                       const struct pvn_time_point *end, const char *colour)
{
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (const struct pvn_time_point *q = p; q < end; q++)
        fprintf(f, "%s%.1f,%.1f %.1f,%.1f", q > p ? " " : "", px(a, q->i.from), py(a, rate(&q->i)),
                px(a, q->i.to), py(a, rate(&q->i)));
    fputs("\"/>\n", f);
    for (const struct pvn_time_point *q = p; q < end; q++) {
        if (q->i.failovers == 0)
            continue;
        fprintf(f,
                "<line class=\"failover\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" "
                "stroke=\"#c00\" stroke-dasharray=\"4 3\"><title>%llu failover%s between %.1f s "
                "and %.1f s</title></line>\n",
                px(a, q->i.to), a->top + PVN_PLOT_TOP, px(a, q->i.to),
                a->top + PVN_PLOT_PANEL_H - PVN_PLOT_BOTTOM, (unsigned long long)q->i.failovers,
                q->i.failovers == 1 ? "" : "s", q->i.from, q->i.to);
    }
}

int pvn_plot_time(const struct pvn_report *rep, FILE *f, int top)
{
    enum { MAX_SERIES = 14 };
    const struct pvn_timeline *t = &rep->timeline;
    struct axis a = {.top = top};
    int index = 0;

    measure(t, &a);
    put_axes(f, &a);
    for (int from = 0, to; from < t->n && index < MAX_SERIES; from = to, index++) {
        const struct pvn_time_point *p = &t->point[from];
        char name[120], size[24], repeat[24] = "";

        for (to = from + 1; to < t->n && same_series(p, &t->point[to]);)
            to++;
        if (rep->o->repeat > 1)
            snprintf(repeat, sizeof(repeat), ", run %d", p->repeat + 1);
        snprintf(name, sizeof(name), "%s, %s%s", rep->o->plugin[p->plugin].name,
                 pvn_report_size(p->i.bytes_each, size), repeat);
        put_series(f, &a, p, &t->point[to], pvn_plot_colour(index));
        pvn_plot_legend(f, top, index, name);
    }
    return 0;
}
