/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The options and modes of the command line, for the files that parse and check them. */
#ifndef PVN_PERF_OPTS_TABLE_H
#define PVN_PERF_OPTS_TABLE_H

#include "perf/options/opts.h"
#include "tools/options.h"

/* A further bit of an option's modes: p2p with --idle. */
enum { PVN_PERF_IDLE = PVN_PERF_PARAMS + 1 };

extern const struct pvn_options pvn_perf_options; /* its modes are in the order of pvn_perf_mode */
extern const struct pvn_option_word pvn_collective_words[];

/* Prints a message and a pointer to the help. Always PVN_PERF_USAGE. */
#define pvn_opts_bad(...) pvn_options_bad(&pvn_perf_options, __VA_ARGS__)

/* True if the option that fills a field of struct pvn_perf_opts was on the command line. */
#define pvn_opts_given(o, field)                                                                   \
    pvn_options_given(&pvn_perf_options, (o)->given, offsetof(struct pvn_perf_opts, field))

#endif
