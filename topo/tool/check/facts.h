/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: facts that should be equal on all hosts of a job. */
#ifndef PVN_TOPO_TOOL_FACTS_H
#define PVN_TOPO_TOOL_FACTS_H

#include "topo/tool/base/tool.h"

struct json_t;

/* The "facts" of pvn-topo.schema.json for the loaded machine. */
struct json_t *json_facts(const struct tool *t);

/* Appends the variables that NCCL's configuration files add to an environment (an object, by name).
 * file, home: the values of NCCL_CONF_FILE and HOME, or NULL. */
void facts_nccl_conf(struct json_t *facts, const struct json_t *environment, const char *file,
                     const char *home);

/* The file of the n-th plugin that NCCL loads. NCCL_NET_PLUGIN is a list of names
 * (libnccl-net-NAME.so) or files; if unset it counts as "pvrdma". False if there is no such
 * entry. */
bool tool_plugin_file(const struct tool *t, int n, char *buf, size_t len);

#endif
