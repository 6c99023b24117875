/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the panels of the SVG. */
#ifndef PVN_PERF_PLOT_H
#define PVN_PERF_PLOT_H

#include <stdio.h>

#include "perf/results/report.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of the drawing and of a panel in it, in pixels. */
#define PVN_PLOT_WIDTH   760
#define PVN_PLOT_PANEL_H 340
#define PVN_PLOT_LEFT    80
#define PVN_PLOT_RIGHT   180 /* room for the legend */
#define PVN_PLOT_TOP     44
#define PVN_PLOT_BOTTOM  56
#define PVN_PLOT_MARGIN  20 /* to the right of sentences */
/* Width of a character in pixels, for a wide typeface, because the reader's is unknown. */
#define PVN_PLOT_CHAR 7.0

void pvn_plot_escaped(FILE *f, const char *text); /* between tags */
/*
 * Breaks a text into lines of at most `width` pixels (px per character) and draws them from x, y
 * on, or with f NULL only counts them. Returns the number of lines.
 */
int pvn_plot_lines(FILE *f, double x, double y, int width, double px, int line_height,
                   const char *text);
/*
 * Draws the title and the place and time of the measurement, or with f NULL only measures them.
 * Returns the y below them.
 */
int pvn_plot_head(FILE *f, int left, int width, const char *title, const struct pvn_run_info *run);
void pvn_plot_text(FILE *f, double x, double y, const char *anchor, const char *text);
/* A step of 1, 2 or 5 times a power of ten, so that about `parts` of them fit into span. */
double pvn_plot_step(double span, int parts);
/* Draws the frame of a panel with its upper edge at top, the title above and the x axis' name
 * below. */
void pvn_plot_frame(FILE *f, int top, const char *title, const char *x_name);
/* Draw a horizontal and a vertical grid line with its label. */
void pvn_plot_grid_y(FILE *f, double y, const char *label);
void pvn_plot_grid_x(FILE *f, int top, double x, const char *label);
/* The colour of the index-th series of a panel, and its line in the legend. */
const char *pvn_plot_colour(int index);
void pvn_plot_legend(FILE *f, int top, int index, const char *name);

/* Draws bandwidth over time (--duration). 0 or a negative errno. */
int pvn_plot_time(const struct pvn_report *rep, FILE *f, int top);

/* The panel of the latencies' distribution: pvn_plot_has_distribution is true if there is one;
 * pvn_plot_distribution draws it, 0 or a negative errno. */
bool pvn_plot_has_distribution(const struct pvn_report *rep);
int pvn_plot_distribution(const struct pvn_report *rep, FILE *f, int top);

#ifdef __cplusplus
}
#endif

#endif
