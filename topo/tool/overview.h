/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* An overview for new users of pvn-topo. */
#ifndef PVN_TOPO_TOOL_OVERVIEW_H
#define PVN_TOPO_TOOL_OVERVIEW_H

#include "topo/tool/base/tool.h"

/* Answers a call without a command: what this machine has, and which commands come next. Returns an
 * exit status. */
int cmd_overview(struct tool *t, int argc, char **argv);

#endif
