/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: the commands that show a machine or write it to a file. */
#ifndef PVN_TOPO_TOOL_SHOW_H
#define PVN_TOPO_TOOL_SHOW_H

#include "topo/tool/base/tool.h"

struct pvn_err;
struct pvn_params;

/* Each command gets the arguments after its name and returns an exit status. */
int cmd_dump(struct tool *t, int argc, char **argv);
int cmd_matrix(struct tool *t, int argc, char **argv);
int cmd_pairs(struct tool *t, int argc, char **argv);
int cmd_why(struct tool *t, int argc, char **argv);
int cmd_diff(struct tool *t, int argc, char **argv);
int cmd_merge(struct tool *t, int argc, char **argv);
int cmd_gather(struct tool *t, int argc, char **argv);
int cmd_params(struct tool *t, int argc, char **argv);

/* Prints the lines about the whole machine: name, hypervisor, driver, NUMA nodes. */
void dump_header(const struct tool *t);
/* Output formats of dump in other files. 0 or an exit status. */
int dump_dot(const struct tool *t, FILE *out);
int dump_xml(const struct tool *t, bool full, FILE *out);
/* Prints on stderr the devices that a written file (text) lacks, and the parts of it that its
 * reader would refuse. 0, or -1 if memory is short. */
int tool_report_missing(const struct tool *t, const char *text, size_t len);

/* Checks whether the parameters on the key make the plugin refuse every connection, whatever the
 * key's file contains. 0 if not, or a negative errno with *err, which has the remedy. */
int tool_key_contradicts(const struct pvn_params *params, struct pvn_err *err);

/* Prints remedies on the host and in the guest if the layout is hidden. */
void tool_print_remedies(const struct tool *t);

#endif
