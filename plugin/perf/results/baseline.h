/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-perf --baseline FILE: compares this run's medians with those of an earlier run, which were
 * written by --json. A figure is a time if pvn_report_is_time says so, else a bandwidth. */
#ifndef PVN_PERF_BASELINE_H
#define PVN_PERF_BASELINE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_report;
struct pvn_summary;
struct pvn_baseline;

/* Reads the earlier run's JSON; free with pvn_baseline_free. NULL with the reason in why: the file
 * cannot be read, is not of pvn-perf, or has no figures. */
struct pvn_baseline *pvn_baseline_read(const char *path, char *why, size_t why_len);
void pvn_baseline_free(struct pvn_baseline *b);

/* The earlier median of the same point (plugin, test, item, ranks, bytes), or a negative number if
 * there is none. Plugins are matched by name, unless each run has only one: two builds of one
 * plugin may have different names. */
double pvn_baseline_median(const struct pvn_baseline *b, const struct pvn_report *rep,
                           const struct pvn_summary *s);

/* Compares all figures, and prints the result on the report's text unless --quiet. Returns the
 * number of figures that are worse than --tolerance allows, or -1 with a message on stderr: the
 * runs have no figure in common, or memory is short. */
int pvn_baseline_compare(const struct pvn_baseline *b, const struct pvn_report *rep);

#ifdef __cplusplus
}
#endif

#endif
