/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The matrices of pvn-perf mesh as heat maps in one SVG: a cell per path, coloured by its ratio to
 * the median. */
#include "config.h"

#include <errno.h>
#include <math.h>

#include "perf/results/mesh_view.h"
#include "perf/results/plot.h"

#define LEFT   200 /* names of the rows */
#define TOP    64  /* title of a panel and numbers of the columns */
#define BOTTOM 20
#define MARGIN PVN_PLOT_MARGIN
#define LINE   16 /* height of a line of text */
#define SAID   3  /* sentences below a panel */

static int side_of(int n)
{
    return n <= 16 ? 56 : n <= 40 ? 24 : n <= 100 ? 10 : 4;
}

/* Draws the sentences below a panel, or with f NULL only measures them. Returns their height. */
static int put_said(FILE *f, const struct pvn_mesh_panel *p, int y, int width)
{
    int room = width - 2 * MARGIN, lines = 0;
    char text[64];

    for (int i = 0; i < p->nsaid && i < SAID; i++)
        lines +=
            pvn_plot_lines(f, MARGIN, y + 18 + LINE * lines, room, PVN_PLOT_CHAR, LINE, p->said[i]);
    if (p->nsaid > SAID) {
        snprintf(text, sizeof(text), "and %d more like these", p->nsaid - SAID);
        lines += pvn_plot_lines(f, MARGIN, y + 18 + LINE * lines, room, PVN_PLOT_CHAR, LINE, text);
    }
    return LINE * (lines > 3 ? lines : 3) + 16;
}

static int height_of(int n, const struct pvn_mesh_panel *p, int width)
{
    return TOP + n * side_of(n) + put_said(NULL, p, 0, width) + BOTTOM;
}

/* From dark red (0) over yellow (0.75) to light green (1) and blue (from 1.5 on). */
static void put_colour(FILE *f, double ratio)
{
    static const struct {
        double at;
        int r, g, b;
    } stop[] = {{0, 122, 10, 30},
                {0.5, 230, 85, 40},
                {0.75, 250, 215, 110},
                {1, 205, 235, 200},
                {1.5, 90, 150, 210}};
    int k = 0;
    double x;

    ratio = fmin(ratio, stop[4].at);
    while (k < 3 && ratio > stop[k + 1].at)
        k++;
    x = (ratio - stop[k].at) / (stop[k + 1].at - stop[k].at);
    fprintf(f, "#%02x%02x%02x", (unsigned)lround(stop[k].r + x * (stop[k + 1].r - stop[k].r)),
            (unsigned)lround(stop[k].g + x * (stop[k + 1].g - stop[k].g)),
            (unsigned)lround(stop[k].b + x * (stop[k + 1].b - stop[k].b)));
}

static void put_cell(FILE *f, const struct pvn_mesh_view *v, const struct pvn_mesh_panel *p,
                     int from, int to, int top)
{
    size_t c = (size_t)from * (size_t)v->n + (size_t)to;
    double value = p->m.value[c], ratio = p->m.ratio[c];
    int side = side_of(v->n), x = LEFT + to * side, y = top + TOP + from * side;
    char text[32] = "failed";

    if (isnan(value))
        return;
    if (value > 0)
        snprintf(text, sizeof(text), "%.*f", p->m.less_is_better ? 2 : 1, value);
    fprintf(f,
            "<rect class=\"c\" data-test=\"%s\" data-from=\"%d\" data-to=\"%d\" data-value=\"%s\" "
            "x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"",
            p->test, from, to, text, x, y, side, side);
    if (value > 0)
        put_colour(f, ratio);
    else
        fputs("#000", f);
    fprintf(f, "\"><title>");
    pvn_plot_escaped(f, v->names.rank[from]);
    fputs(" to ", f);
    pvn_plot_escaped(f, v->names.rank[to]);
    if (value > 0)
        fprintf(f, ": %s %s, ratio %.2f</title></rect>\n", text, p->unit, ratio);
    else
        fputs(": failed</title></rect>\n", f);
    if (side < 56)
        return;
    fprintf(f, "<g font-size=\"11\" fill=\"%s\">", ratio < 0.6 ? "#fff" : "#222");
    pvn_plot_text(f, x + side / 2.0, y + side / 2.0 + 4, "middle", text);
    fputs("</g>\n", f);
}

static void put_names(FILE *f, const struct pvn_mesh_view *v, int top)
{
    int side = side_of(v->n), every = side < 12 ? 8 : 1;

    for (int i = 0; i < v->n; i += every) {
        char text[128];

        snprintf(text, sizeof(text), "%d %.22s", i, v->names.rank[i]);
        pvn_plot_text(f, LEFT - 8, top + TOP + i * side + side / 2.0 + 4, "end", text);
        snprintf(text, sizeof(text), "%d", i);
        pvn_plot_text(f, LEFT + i * side + side / 2.0, top + TOP - 6, "middle", text);
    }
}

static void put_panel(FILE *f, const struct pvn_report *rep, const struct pvn_mesh_view *v,
                      const struct pvn_mesh_panel *p, int top, int width)
{
    char text[400], size[24];
    int bottom = top + TOP + v->n * side_of(v->n);

    snprintf(text, sizeof(text), "%s: %s, %s, %s: a row sends, a column receives",
             rep->o->plugin[v->plugin].name, p->test, p->unit, pvn_report_size(p->bytes, size));
    fputs("<g font-weight=\"bold\">", f);
    pvn_plot_lines(f, MARGIN, top + 20, width - 2 * MARGIN, PVN_PLOT_CHAR * 1.1, LINE, text);
    fputs("</g>\n", f);
    put_names(f, v, top);
    for (int from = 0; from < v->n; from++) {
        for (int to = 0; to < v->n; to++)
            if (from != to)
                put_cell(f, v, p, from, to, top);
    }
    put_said(f, p, bottom, width);
}

/* Draws all panels from top on, or with f NULL only measures them. Returns the lower edge, or
 * -ENOMEM. */
static int put_all(FILE *f, const struct pvn_report *rep, int *width, int top)
{

    for (int k = 0; k < rep->o->nplugins; k++) {
        struct pvn_mesh_view v;
        int rc = pvn_mesh_view_make(&v, rep, k);

        if (rc == -ENOENT)
            continue;
        if (rc)
            return rc;
        *width = (int)fmax(*width, LEFT + v.n * side_of(v.n) + MARGIN);
        for (int i = 0; i < 2; i++) {
            if (!v.panel[i].any)
                continue;
            if (f)
                put_panel(f, rep, &v, &v.panel[i], top, *width);
            top += height_of(v.n, &v.panel[i], *width);
        }
        pvn_mesh_view_free(&v);
    }
    return top;
}

int pvn_mesh_svg(const struct pvn_report *rep, FILE *f, int status)
{
    int width = PVN_PLOT_WIDTH, head, height;
    char text[80];

    (void)status;
    snprintf(text, sizeof(text), "pvn-perf: every pair of ranks%s",
             rep->o->repeat > 1 ? "; medians" : "");
    /* This is done twice, because line breaks depend on the widest panel. */
    height = put_all(NULL, rep, &width, 0);
    head = pvn_plot_head(NULL, MARGIN, width, text, &rep->run);
    if (height >= 0)
        height = put_all(NULL, rep, &width, head);
    if (height < 0)
        return height;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<style>.c{stroke:#fff}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height > head ? height : head + 40);
    pvn_plot_head(f, MARGIN, width, text, &rep->run);
    if (height == head)
        pvn_plot_text(f, MARGIN, head + 20, "start", "no results");
    else if (put_all(f, rep, &width, head) < 0)
        return -ENOMEM;
    fputs("</svg>\n", f);
    return ferror(f) ? -EIO : 0;
}
