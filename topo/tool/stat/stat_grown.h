/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat of many hosts: which counters of their adapters grew between two looks. */
#ifndef PVN_TOPO_TOOL_STAT_GROWN_H
#define PVN_TOPO_TOOL_STAT_GROWN_H

#include "topo/tool/load/query.h"

struct json_t;

/* The adapters of a host's answer that its comms use; NULL: none, or the host did not say. */
struct json_t *stat_grown_adapters(const struct tool_answer *a);
/* Sets the "grew" of adapters by an earlier look at them, which may be NULL: nothing is known then. */
void stat_grown_since(struct json_t *now, const struct json_t *before);
/* Adds the adapters of another answer of the same host that it does not have yet. */
void stat_grown_join(struct tool_answer *a, const struct tool_answer *more);

/* The adapters that hosts had at an earlier look. */
struct stat_grown_earlier {
    struct json_t **adapters; /* one for each answer, NULL without */
    int n;
    double read_s; /* when, on the monotonic clock; 0: there was no such look */
};
/* Keeps these answers in place of those kept before; without answers: nothing. Without memory nothing is kept. */
void stat_grown_keep(struct stat_grown_earlier *e, const struct tool_answer *all, int n);
/* Sets what grew since then in answers of the same hosts; in how many seconds, 0: nothing was kept. */
double stat_grown_compare(const struct stat_grown_earlier *e, const struct tool_answer *all, int n);

/* Prints what grew on which host within seconds, with what it means, or that nothing did. */
void stat_print_grown(const struct tool *t, const struct tool_answer *all, int n, double seconds);
/* Prints the growth per second, for --watch: nothing where nothing grew. */
void stat_print_grown_rates(const struct tool *t, const struct tool_answer *all, int n,
                            double seconds);

#endif
