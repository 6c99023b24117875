/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Options that are good each for itself and bad together. Each function returns a pvn_perf_exit,
 * after a message on stderr. */
#ifndef PVN_PERF_OPTS_CHECK_H
#define PVN_PERF_OPTS_CHECK_H

#include "perf/options/opts.h"

/* Options that have no effect in the mode. */
int pvn_opts_check_mode(const struct pvn_perf_opts *o);
/* Options that have none beside others, or in the version of the interface. */
int pvn_opts_check_together(const struct pvn_perf_opts *o);
/* Options about pairs of ranks, after the defaults are set. */
int pvn_opts_check_pairs(const struct pvn_perf_opts *o);
/* Names that options refer to: plugins, presets. */
int pvn_opts_check_names(const struct pvn_perf_opts *o);

/* Sizes and ranks of mesh. */
int pvn_opts_check_mesh(const struct pvn_perf_opts *o);

#endif
