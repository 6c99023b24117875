/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the directories of other users, and those in which no file can be made. */
#ifndef PVN_TOPO_TOOL_STAT_HIDDEN_H
#define PVN_TOPO_TOOL_STAT_HIDDEN_H

#include "topo/tool/stat/stat_look.h"

struct json_t;

/* The "unreadable" of a document: those of this host that this user may not read; for the caller to free. */
struct json_t *stat_hidden(void);
/* How many a document has. */
size_t stat_hidden_in(const struct json_t *doc);
void stat_print_hidden(const struct tool *t, const struct json_t *hidden);
/* Names the hosts that have some; how many there are. */
int stat_print_hidden_hosts(const struct tool *t, const struct tool_answer *list, int n);

#endif
