/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: one or two snapshots of the adapters' counters. */
#ifndef PVN_TOPO_TOOL_COUNTERS_H
#define PVN_TOPO_TOOL_COUNTERS_H

#include "topo/tool/base/tool.h"

struct json_t;

/* Limit of --interval, the seconds between check's two snapshots. */
#define TOOL_INTERVAL_MAX_S 60.0

/* Sleeps; returns at once for 0 or less. */
void tool_sleep(double seconds);
/* Takes the first snapshot of the loaded machine's counters; in: NULL for a directory. Returns an
 * exit status. */
int tool_load_counters(struct tool *t, const struct pvn_topo_input *in);
/* Takes check's second snapshot, t->interval_s after the first, and adds the rows of both. 0 or
 * negative errno. */
int tool_check_counters(struct tool *t, struct pvn_topo_checks *checks);
/* Prints the counters that are not zero as a paragraph for people. */
void tool_print_counted(const struct tool *t);

/* "adapters" of pvn-topo.schema.json; first may be NULL. */
struct json_t *json_adapters(const struct pvn_topo *topo, const struct pvn_topo_look *first,
                             const struct pvn_topo_look *now);

#endif
