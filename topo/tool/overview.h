/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo for somebody who does not know it yet. */
#ifndef PVN_TOPO_TOOL_OVERVIEW_H
#define PVN_TOPO_TOOL_OVERVIEW_H

#include "topo/tool/base/tool.h"

/* The answer to a call without a command: what this machine has, and which commands come next. An exit status. */
int cmd_overview(struct tool *t, int argc, char **argv);

#endif
