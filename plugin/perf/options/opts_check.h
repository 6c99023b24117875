/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Checks of options that are valid alone and invalid together. Each function returns a
 * pvn_perf_exit, after a message on stderr. */
#ifndef PVN_PERF_OPTS_CHECK_H
#define PVN_PERF_OPTS_CHECK_H

#include "perf/options/opts.h"

/* Checks for options without effect in the mode. */
int pvn_opts_check_mode(const struct pvn_perf_opts *o);
/* Checks for options without effect beside others, or in the version of the interface. */
int pvn_opts_check_together(const struct pvn_perf_opts *o);
/* Checks options on pairs of ranks, after the defaults are set. */
int pvn_opts_check_pairs(const struct pvn_perf_opts *o);
/* Checks the names in options: plugins, presets. */
int pvn_opts_check_names(const struct pvn_perf_opts *o);

/* Checks sizes and ranks of mesh. */
int pvn_opts_check_mesh(const struct pvn_perf_opts *o);

#endif
