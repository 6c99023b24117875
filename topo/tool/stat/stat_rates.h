/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --watch: a process's work between two snapshots. */
#ifndef PVN_TOPO_TOOL_STAT_RATES_H
#define PVN_TOPO_TOOL_STAT_RATES_H

#include "topo/tool/stat/stat.h"

/* A process's work between two snapshots, as totals. */
struct stat_rates {
    double seconds; /* 0: there is no earlier snapshot of it */
    double sent, received, messages;
    double retransmits, doorbells, empty_polls;
    uint64_t known; /* PVN_STAT_KNOWS_ bits of its comms */
    uint64_t open;
    int troubled;
};

/* Computes rates by the process's age at both snapshots, on its own host's clock; old: the earlier
 * one, or NULL. */
struct stat_rates stat_rates_of(const struct pvn_stats *f, const struct pvn_stats *old);

#endif
