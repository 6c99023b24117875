/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: the commands that check a machine, many hosts or an NCCL file. */
#ifndef PVN_TOPO_TOOL_CHECK_H
#define PVN_TOPO_TOOL_CHECK_H

#include "topo/tool/base/tool.h"

/* Each command gets the arguments after its name and returns an exit status. */
int cmd_check(struct tool *t, int argc, char **argv);
int cmd_lint(struct tool *t, int argc, char **argv);

/* check --hosts, or of files that --json check wrote: compares the hosts. An exit status. */
int tool_compare(struct tool *t, int argc, char **argv);

#endif
