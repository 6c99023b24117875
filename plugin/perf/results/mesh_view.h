/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The results of pvn-perf mesh as matrices, and their table, JSON and heat map. */
#ifndef PVN_PERF_MESH_VIEW_H
#define PVN_PERF_MESH_VIEW_H

#include <jansson.h>

#include "perf/results/mesh_find.h"
#include "perf/results/report.h"

#define PVN_MESH_SAID 256 /* bytes of a sentence */

/* Latency or bandwidth of one plugin: medians over the repeats. */
struct pvn_mesh_panel {
    struct pvn_mesh_matrix m;
    const char *test; /* "latency", "bandwidth" */
    const char *unit; /* "us", "MB/s" */
    uint64_t bytes;   /* of a message */
    bool any;         /* there is a value or a failure */
    struct pvn_mesh_finding *find;
    int nfind;
    char (*said)[PVN_MESH_SAID]; /* sentences, at least one */
    int nsaid;
};

struct pvn_mesh_view {
    int n, plugin, hosts;
    int *host; /* per rank */
    struct pvn_mesh_names names;
    struct pvn_mesh_panel panel[2]; /* latency, bandwidth */
};

/* Makes the view of one plugin. 0 (free with pvn_mesh_view_free), -ENOENT if the plugin has
 * reported no ranks, or -ENOMEM. */
int pvn_mesh_view_make(struct pvn_mesh_view *v, const struct pvn_report *rep, int plugin);
void pvn_mesh_view_free(struct pvn_mesh_view *v);

/* Prints the matrices as tables (large ones only with --verbose) and the sentences, for all
 * plugins. */
void pvn_mesh_print(const struct pvn_report *rep);
/* One object per plugin, for the report's "mesh". */
json_t *pvn_mesh_json(const struct pvn_report *rep);
/* Writes the heat maps; arguments as for pvn_report_svg. 0 or a negative errno. */
int pvn_mesh_svg(const struct pvn_report *rep, FILE *f, int status);

#endif
