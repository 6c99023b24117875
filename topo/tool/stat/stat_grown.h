/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat of many hosts: the adapters' counters that grew between two snapshots. */
#ifndef PVN_TOPO_TOOL_STAT_GROWN_H
#define PVN_TOPO_TOOL_STAT_GROWN_H

#include "topo/tool/load/query.h"

struct json_t;

/* The adapters in a host's answer that its comms use; NULL if there are none, or if the answer
 * lacks them. */
struct json_t *stat_grown_adapters(const struct tool_answer *a);
/* Sets the "grew" of adapters by an earlier snapshot, which may be NULL: the growth is then
 * unknown. */
void stat_grown_since(struct json_t *now, const struct json_t *before);
/* Adds the adapters of another answer of the same host, except those that the first has already. */
void stat_grown_join(struct tool_answer *a, const struct tool_answer *more);

/* An earlier snapshot of the hosts' adapters. */
struct stat_grown_earlier {
    struct json_t **adapters; /* one for each answer, NULL if it has none */
    int n;
    double read_s; /* time of reading, on the monotonic clock; 0: there is none */
};
/* Replaces the snapshot by these answers; n may be 0. If memory is short, nothing is kept. */
void stat_grown_keep(struct stat_grown_earlier *e, const struct tool_answer *all, int n);
/* Sets the growth since the snapshot in answers of the same hosts. Returns the seconds in between,
 * or 0 if there is no snapshot. */
double stat_grown_compare(const struct stat_grown_earlier *e, const struct tool_answer *all, int n);

/* Prints the counters that grew on each host within `seconds` and their meanings, or that none
 * grew. */
void stat_print_grown(const struct tool *t, const struct tool_answer *all, int n, double seconds);
/* Prints the growth per second, for --watch; nothing if nothing grew. */
void stat_print_grown_rates(const struct tool *t, const struct tool_answer *all, int n,
                            double seconds);

#endif
