/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo --json: one document for each command, as pvn-topo.schema.json describes it. The json_
 * functions of commands print it and return an exit status. */
#ifndef PVN_TOPO_TOOL_JSON_H
#define PVN_TOPO_TOOL_JSON_H

#include "topo/tool/base/tool.h"

struct json_t;

/* A text as JSON. If it is not UTF-8, bytes beyond ASCII become ?. */
struct json_t *json_text(const char *s);

/* Documents on the loaded machine, its pairs, all distances, or one pair. */
int json_machine(const struct tool *t);
int json_pairs(const struct tool *t);
int json_matrix(const struct tool *t);
int json_why(const struct tool *t, int gpu, int net);
int json_why_down(const struct tool *t, int gpu, const struct tool_down *nic);

/* Documents on the results of the other commands. These functions take ownership of their lists. */
int json_check(const struct tool *t, const struct pvn_topo_checks *checks, struct json_t *adapters,
               struct json_t *facts);
int json_compare(const struct tool *t, struct json_t *odd, struct json_t *not_compared,
                 struct json_t *rows);
int json_diff(const struct tool *t, const char *a, const char *b, struct json_t *differences);
int json_params(const struct tool *t, struct json_t *list, struct json_t *variables);
/* hosts and unreadable may be NULL. */
int json_stat(const struct tool *t, struct json_t *processes, struct json_t *awaited,
              struct json_t *adapters, struct json_t *hosts, struct json_t *unreadable);
int json_lint(const struct tool *t, const char *name, const struct pvn_topo_lint *lint);

#endif
