/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the counters of the adapters that the comms of this host use. */
#ifndef PVN_TOPO_TOOL_STAT_ADAPTERS_H
#define PVN_TOPO_TOOL_STAT_ADAPTERS_H

#include "topo/tool/load/counters.h"
#include "topo/tool/stat/stat.h"

struct json_t;

struct stat_adapters {
    struct pvn_topo *topo; /* NULL: nothing was read */
    struct pvn_topo_look look;
    const char **device; /* devices of the comms, each once; NCCL joins "mlx5_0+mlx5_1" */
    int devices;
    double read_s; /* time of reading, on the monotonic clock */
};

/* Reads the adapters and counters below --root, by default this machine's, whose sysfs is mounted
 * at sysfs. Reads nothing for processes that were saved on other hosts. Parts that cannot be read
 * are reported and left out. list must outlive out. */
void stat_adapters_read(const struct tool *t, const struct stat_list *list, const char *sysfs,
                        struct stat_adapters *out);
void stat_adapters_free(struct stat_adapters *a);

void stat_print_adapters(const struct tool *t, const struct stat_adapters *a);
/* Prints the growth per second since an earlier snapshot; nothing if nothing grew. */
void stat_print_adapter_rates(const struct tool *t, const struct stat_adapters *before,
                              const struct stat_adapters *now);
/* The adapters as JSON, with the growth since the snapshot `before`, if that is known. The caller
 * owns the result. */
struct json_t *stat_adapters_json(const struct stat_adapters *before,
                                  const struct stat_adapters *now);
void stat_print_prom_adapters(const struct tool *t, const struct stat_adapters *a);

#endif
