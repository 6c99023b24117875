/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: what should be alike on all hosts of a job. */
#ifndef PVN_TOPO_TOOL_FACTS_H
#define PVN_TOPO_TOOL_FACTS_H

#include <sys/types.h>

#include "topo/tool/base/tool.h"

struct json_t;

/* The "facts" of pvn-topo.schema.json, of what is loaded. */
struct json_t *json_facts(const struct tool *t);

/* Appends what NCCL's configuration files add to an environment (an object, by name). file: the value
 * of NCCL_CONF_FILE or NULL; user: whose home has .nccl.conf. */
void facts_nccl_conf(struct json_t *facts, const struct json_t *environment, const char *file,
                     uid_t user);

/* Puts what they add into this process's environment, before a command looks at it, as NCCL does; and whether an entry
 * NAME=VALUE is there for that reason. */
void tool_take_nccl_conf(void);
bool tool_is_from_nccl_conf(const char *entry);

/* The file of the n-th plugin that NCCL loads: NCCL_NET_PLUGIN is a list of names, libnccl-net-NAME.so
 * or a file each; unset it counts as "pvrdma". False where there is none. */
bool tool_plugin_file(const struct tool *t, int n, char *buf, size_t len);

#endif
