/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: the commands that show a machine or write it to a file. */
#ifndef PVN_TOPO_TOOL_SHOW_H
#define PVN_TOPO_TOOL_SHOW_H

#include "topo/tool/base/tool.h"

struct pvn_err;
struct pvn_params;

/* Each gets the arguments behind its name and returns an exit status. */
int cmd_dump(struct tool *t, int argc, char **argv);
int cmd_matrix(struct tool *t, int argc, char **argv);
int cmd_pairs(struct tool *t, int argc, char **argv);
int cmd_why(struct tool *t, int argc, char **argv);
int cmd_diff(struct tool *t, int argc, char **argv);
int cmd_merge(struct tool *t, int argc, char **argv);
int cmd_gather(struct tool *t, int argc, char **argv);
int cmd_params(struct tool *t, int argc, char **argv);

/* The lines about a machine as a whole: name, hypervisor, driver, NUMA nodes. */
void dump_header(const struct tool *t);
/* Formats of dump that other files write or make. 0 or an exit status. */
int dump_dot(const struct tool *t, FILE *out);
int dump_xml(const struct tool *t, bool full, FILE *out);
/* Names on stderr what of the machine a written file (text) does not hold, and what its reader would
 * refuse in it. 0, or -1 when out of memory. */
int tool_report_missing(const struct tool *t, const char *text, size_t len);

/* 0, or a negative errno with *err, which has the remedy: what these parameters say of a key makes the plugin refuse every
 * connection, whatever is in the key's file. */
int tool_key_contradicts(const struct pvn_params *params, struct pvn_err *err);

/* Remedies on the host and in the guest where the layout is hidden. */
void tool_print_remedies(const struct tool *t);

#endif
