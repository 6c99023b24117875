/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The commands and options of pvn-topo, as its help, man page and completion have them. */
#ifndef PVN_TOPO_TOOL_OPTIONS_H
#define PVN_TOPO_TOOL_OPTIONS_H

#include "plugin/tools/options.h"

enum tool_command {
    TOOL_DUMP,
    TOOL_MATRIX,
    TOOL_PAIRS,
    TOOL_WHY,
    TOOL_CHECK,
    TOOL_LINT,
    TOOL_MERGE,
    TOOL_DIFF,
    TOOL_GATHER,
    TOOL_PARAMS,
    TOOL_STAT,
    TOOL_OVERVIEW, /* a call without a command: it has no row */
};

extern const struct pvn_options pvn_topo_options; /* they fill struct tool */

#endif
