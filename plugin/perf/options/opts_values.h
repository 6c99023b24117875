/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Parsers of options' values. Each function takes a value as given, reports errors on stderr, and
 * returns a pvn_perf_exit. */
#ifndef PVN_PERF_OPTS_VALUES_H
#define PVN_PERF_OPTS_VALUES_H

#include "perf/options/opts.h"

/* Splits a comma list into fixed rows. */
int pvn_opts_list(const char *opt, const char *s, char (*out)[32], int max, int *n);

int pvn_opts_add_plugin(struct pvn_perf_opts *o, const char *arg);
int pvn_opts_add_env(struct pvn_perf_opts *o, const char *arg);
int pvn_opts_master(struct pvn_perf_opts *o, const char *arg);
/* Parses the host after the mode p2p or serve. */
int pvn_opts_peer(struct pvn_perf_opts *o, const char *mode, const char *arg);
int pvn_opts_sizes(struct pvn_perf_opts *o, const char *arg);

#endif
