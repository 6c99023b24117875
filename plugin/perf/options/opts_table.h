/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The options and modes of the command line by name, for the files that take and check them. */
#ifndef PVN_PERF_OPTS_TABLE_H
#define PVN_PERF_OPTS_TABLE_H

#include <getopt.h>
#include <stdbool.h>

#include "perf/options/opts.h"

enum {
    O_PLUGIN = 256,
    O_ABI,
    O_ENV,
    O_DEV,
    O_SIZES,
    O_PRESET,
    O_LAYERS,
    O_TOKENS,
    O_MICRO_BATCHES,
    O_PER_PEER,
    O_COLLECTIVE,
    O_TYPE,
    O_CHANNELS,
    O_MEMORY,
    O_GPU,
    O_DEPTH,
    O_GROUP,
    O_LATENCY,
    O_IDLE,
    O_BANDWIDTH,
    O_SLOT,
    O_STEPS,
    O_SLICES,
    O_NO_SUMS,
    O_TC,
    O_BIDIRECTIONAL,
    O_DURATION,
    O_INTERVAL,
    O_JSON_LINES,
    O_ONCE,
    O_MAX_MEMORY,
    O_MAX_TIME,
    O_CHECK,
    O_ITERS,
    O_WARMUP,
    O_TIME,
    O_REPEAT,
    O_TIMEOUT,
    O_SPIN,
    O_RANKS,
    O_NETNS,
    O_MASTER,
    O_BOOT_TIMEOUT,
    O_JSON,
    O_CSV,
    O_PLOT,
    O_BASELINE,
    O_TOLERANCE,
    O_QUIET,
    O_VERBOSE,
    O_PARAMS,
    O_HELP,
    O_VERSION
};

extern const struct option pvn_opts_long[]; /* ends with a zero */

struct pvn_opts_mode {
    const char *name;
    enum pvn_perf_mode mode;
};

extern const struct pvn_opts_mode
    pvn_opts_modes[]; /* in the order of the modes; ends with a zero */

/* "sizes" of O_SIZES; whether it was on the command line. */
const char *pvn_opts_name(int option);
bool pvn_opts_given(const struct pvn_perf_opts *o, int option);

#endif
