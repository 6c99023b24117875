/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: what should be alike on all hosts of a job. */
#ifndef PVN_TOPO_TOOL_FACTS_H
#define PVN_TOPO_TOOL_FACTS_H

#include "topo/tool/tool.h"

/* The "facts" of pvn-topo.schema.json, of what is loaded. */
struct json_t *json_facts(const struct tool *t);

/* check --hosts, or of files that --json check wrote: compares the hosts. An exit status. */
int tool_compare(struct tool *t, int argc, char **argv);

#endif
