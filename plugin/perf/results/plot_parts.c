/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "perf/results/plot.h"

static const char *const colour[] = {"#1f6fb4", "#d9541e", "#2a9d5c", "#8b4fb8",
                                     "#b8860b", "#c2337f", "#3a9db0", "#606060"};

void pvn_plot_escaped(FILE *f, const char *text)
{
    for (; *text; text++)
        if (*text == '<')
            fputs("&lt;", f);
        else if (*text == '>')
            fputs("&gt;", f);
        else if (*text == '&')
            fputs("&amp;", f);
        else
            fputc(*text, f);
}

void pvn_plot_text(FILE *f, double x, double y, const char *anchor, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    pvn_plot_escaped(f, text);
    fputs("</text>\n", f);
}

int pvn_plot_lines(FILE *f, double x, double y, int width, double px, int line_height,
                   const char *text)
{
    size_t fit = width > 20 * px ? (size_t)(width / px) : 20;
    char line[512];
    int n = 0;

    for (; *text; n++) {
        size_t len = strlen(text), end;

        if (len > fit) {
            for (len = fit; len > 0 && text[len] != ' '; len--)
                ;
            len = len ? len : fit; /* a word that is longer than a line */
        }
        end = len < sizeof(line) - 1 ? len : sizeof(line) - 1;
        memcpy(line, text, end);
        line[end] = '\0';
        if (f)
            pvn_plot_text(f, x, y + n * line_height, "start", line);
        text += end;
        text += strspn(text, " ");
    }
    return n;
}

int pvn_plot_head(FILE *f, int left, int width, const char *title, const struct pvn_run_info *run)
{
    enum { TITLE_LINE = 20, LINE = 16 };
    char text[400];
    int room = width - left - PVN_PLOT_MARGIN, y = 24;

    if (f)
        fputs("<g font-size=\"16\" font-weight=\"bold\">", f);
    y += TITLE_LINE * pvn_plot_lines(f, left, y, room, PVN_PLOT_CHAR * 1.5, TITLE_LINE, title);
    if (f)
        fputs("</g>\n", f);
    snprintf(text, sizeof(text), "%s, %s, %s", run->host, run->started, run->kernel);
    y += LINE * pvn_plot_lines(f, left, y, room, PVN_PLOT_CHAR, LINE, text);
    return y - 4;
}

const char *pvn_plot_colour(int index)
{
    return colour[index % (int)(sizeof(colour) / sizeof(colour[0]))];
}

double pvn_plot_step(double span, int parts)
{
    double raw = span / parts, mag = pow(10, floor(log10(raw)));

    return raw / mag <= 1 ? mag : raw / mag <= 2 ? 2 * mag : raw / mag <= 5 ? 5 * mag : 10 * mag;
}

void pvn_plot_frame(FILE *f, int top, const char *title, const char *x_name)
{
    pvn_plot_text(f, PVN_PLOT_LEFT, top + PVN_PLOT_TOP - 16, "start", title);
    fprintf(f, "<rect class=\"a\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", PVN_PLOT_LEFT,
            top + PVN_PLOT_TOP, PVN_PLOT_WIDTH - PVN_PLOT_LEFT - PVN_PLOT_RIGHT,
            PVN_PLOT_PANEL_H - PVN_PLOT_TOP - PVN_PLOT_BOTTOM);
    pvn_plot_text(f, (PVN_PLOT_LEFT + PVN_PLOT_WIDTH - PVN_PLOT_RIGHT) / 2.0,
                  top + PVN_PLOT_PANEL_H - 14, "middle", x_name);
}

void pvn_plot_grid_y(FILE *f, double y, const char *label)
{
    fprintf(f, "<line class=\"g\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", PVN_PLOT_LEFT,
            y, PVN_PLOT_WIDTH - PVN_PLOT_RIGHT, y);
    pvn_plot_text(f, PVN_PLOT_LEFT - 8, y + 4, "end", label);
}

void pvn_plot_grid_x(FILE *f, int top, double x, const char *label)
{
    fprintf(f, "<line class=\"g\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", x,
            top + PVN_PLOT_TOP, x, top + PVN_PLOT_PANEL_H - PVN_PLOT_BOTTOM);
    pvn_plot_text(f, x, top + PVN_PLOT_PANEL_H - PVN_PLOT_BOTTOM + 18, "middle", label);
}

void pvn_plot_legend(FILE *f, int top, int index, const char *name)
{
    double y = top + PVN_PLOT_TOP + 14 + 18 * index;

    fprintf(
        f, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"/>\n",
        PVN_PLOT_WIDTH - PVN_PLOT_RIGHT + 14, y - 4, PVN_PLOT_WIDTH - PVN_PLOT_RIGHT + 38, y - 4,
        pvn_plot_colour(index));
    /* A long name is compressed so that it stays inside the edge. */
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"start\"",
            PVN_PLOT_WIDTH - PVN_PLOT_RIGHT + 44, y);
    if ((double)strlen(name) * PVN_PLOT_CHAR > PVN_PLOT_RIGHT - 48)
        fprintf(f, " textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\"", PVN_PLOT_RIGHT - 48);
    fputc('>', f);
    pvn_plot_escaped(f, name);
    fputs("</text>\n", f);
}
