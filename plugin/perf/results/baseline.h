/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The medians of an earlier run, from its JSON, and this run's beside them. */
#ifndef PVN_PERF_BASELINE_H
#define PVN_PERF_BASELINE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_report;
struct pvn_summary;
struct pvn_baseline;

/* Reads what --json has written. NULL with why: it cannot be read, is something else, or has no
 * figures. */
struct pvn_baseline *pvn_baseline_read(const char *path, char *why, size_t why_len);
void pvn_baseline_free(struct pvn_baseline *b);

/* The earlier median of the same point, or a negative number: there is none. Plugins are matched by
 * name; where both runs have one only, whatever it is called. */
double pvn_baseline_median(const struct pvn_baseline *b, const struct pvn_report *rep,
                           const struct pvn_summary *s);

/* How s compares with an earlier median (above 0). */
enum pvn_verdict { PVN_AS_BEFORE, PVN_BETTER, PVN_WORSE };
enum pvn_verdict pvn_baseline_verdict(const struct pvn_summary *s, double median,
                                      int tolerance_percent);

/* Prints the comparison on the report's text unless quiet. The number of figures that are worse than
 * the tolerance allows; -1: no figure is in both, or memory is short, which is said on stderr. */
int pvn_baseline_compare(const struct pvn_baseline *b, const struct pvn_report *rep);

#ifdef __cplusplus
}
#endif

#endif
