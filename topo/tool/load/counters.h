/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: the counters of adapters, looked at once or twice. */
#ifndef PVN_TOPO_TOOL_COUNTERS_H
#define PVN_TOPO_TOOL_COUNTERS_H

#include "topo/tool/base/tool.h"

struct json_t;

/* Seconds between the two looks of check, where counters are shown and may change. */
#define TOOL_INTERVAL_MAX_S 60.0

/* Sleeps not at all for 0 or less. */
void tool_sleep(double seconds);
/* Reads the counters of t->topo; names as pvn_topo_look_read has them. in: what was read of the root,
 * NULL for a directory. An exit status; what is wrong is said. */
int tool_look(const struct tool *t, const struct pvn_topo_input *in, const char *const *names,
              int nnames, struct pvn_topo_look *look);
/* The first look at the counters of what is loaded; in: NULL for a directory. An exit status. */
int tool_load_counters(struct tool *t, const struct pvn_topo_input *in);
/* The second look of check, t->interval_s behind the first, and the rows of both. 0 or negative
 * errno. */
int tool_check_counters(struct tool *t, struct pvn_topo_checks *checks);
/* The counters that are not zero, as a paragraph for people. */
void tool_print_counted(const struct tool *t);

/* "adapters" of pvn-topo.schema.json; first may be NULL. */
struct json_t *json_adapters(const struct pvn_topo *topo, const struct pvn_topo_look *first,
                             const struct pvn_topo_look *now);

#endif
