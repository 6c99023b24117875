/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: directories of other users, and directories in which no file can be created. */
#ifndef PVN_TOPO_TOOL_STAT_HIDDEN_H
#define PVN_TOPO_TOOL_STAT_HIDDEN_H

#include "topo/tool/stat/stat_look.h"

struct json_t;

/* The "unreadable" of a document: such directories of this host. The caller frees it. */
struct json_t *stat_hidden(void);
/* The number of such directories in a document. */
size_t stat_hidden_in(const struct json_t *doc);
void stat_print_hidden(const struct tool *t, const struct json_t *hidden);
/* Prints the hosts with such directories and returns their number. */
int stat_print_hidden_hosts(const struct tool *t, const struct tool_answer *list, int n);

#endif
