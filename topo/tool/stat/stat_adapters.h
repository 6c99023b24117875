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
    const char **device; /* of the comms, each once; "mlx5_0+mlx5_1" is joined by NCCL */
    int devices;
    double read_s; /* when, on the monotonic clock */
};

/* Reads them below --root, this machine's by default, whose sysfs is mounted at sysfs. Nothing for what
 * was saved on other hosts. What cannot be read is said, and left out. list outlives out. */
void stat_adapters_read(const struct tool *t, const struct stat_list *list, const char *sysfs,
                        struct stat_adapters *out);
void stat_adapters_free(struct stat_adapters *a);

void stat_print_adapters(const struct tool *t, const struct stat_adapters *a);
/* The growth since an earlier look, per second; nothing where nothing grew. */
void stat_print_adapter_rates(const struct tool *t, const struct stat_adapters *before,
                              const struct stat_adapters *now);
/* Has what grew since the look before, where that is known; the caller's. */
struct json_t *stat_adapters_json(const struct stat_adapters *before,
                                  const struct stat_adapters *now);
void stat_print_prom_adapters(const struct tool *t, const struct stat_adapters *a);

#endif
