/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: the machine or NCCL file that a command works on. */
#ifndef PVN_TOPO_TOOL_LOAD_H
#define PVN_TOPO_TOOL_LOAD_H

#include "topo/tool/base/tool.h"

/* Loads the machine or file that the options name, and makes the pairs. On failure prints the
 * reason on standard error and returns an exit status. */
int tool_load(struct tool *t);
/* True if NCCL_IB_DISABLE makes the plugin ignore RDMA devices. */
bool tool_rdma_is_off(const struct tool *t);
void tool_unload(struct tool *t);
/* Reads a whole file, pipe or "-". On failure prints the reason on standard error and returns an
 * exit status. */
int tool_read(const struct tool *t, const char *path, struct pvn_topo_input *in);
/* Applies --hints and --host to t->topo. */
int tool_apply_merge(struct tool *t);
/* For commands that need the machine's own model: if the root is an XML file, prints this and
 * returns TOOL_USAGE. */
int tool_need_machine(const struct tool *t, const char *command);

#endif
