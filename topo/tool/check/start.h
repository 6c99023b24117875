/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: the plugin's start with this environment on this machine, tried without a job. */
#ifndef PVN_TOPO_TOOL_START_H
#define PVN_TOPO_TOOL_START_H

struct pvn_topo_checks;
struct tool;

/* Adds rows for the settings, which the plugin may refuse, and for the devices that it finds with
 * them. 0 or -ENOMEM. */
int tool_check_start(const struct tool *t, struct pvn_topo_checks *checks);

#endif
