/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the checks. Internal to topo/. */
#ifndef PVN_TOPO_CHECK_CHECK_H
#define PVN_TOPO_CHECK_CHECK_H

#include "topo/counters/counters.h"
#include "topo/pvn_topo.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_topo_check_run {
    const struct pvn_topo *t;
    struct pvn_topo_checks *out;
    int rc; /* error of the first row that could not be stored */
};

/* Adds a row. remedy may be "" (always with OK). */
void pvn_topo_check_row(struct pvn_topo_check_run *run, const char *id, enum pvn_topo_level level,
                        const char *subject, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* The subject of a pair: "0000:3b:00.0 - mlx5_0" ("GPU0 0000:3b:00.0" would be too long). */
void pvn_topo_check_pair_name(const struct pvn_topo *t, const struct pvn_topo_check_pair *pair,
                              char *out, size_t cap);

void pvn_topo_check_links(struct pvn_topo_check_run *run);
void pvn_topo_check_relaxed_ordering(struct pvn_topo_check_run *run);
void pvn_topo_check_payload(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair);
void pvn_topo_check_acs(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair);
void pvn_topo_check_iommu(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair);
void pvn_topo_check_ats(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair);
void pvn_topo_check_numa(struct pvn_topo_check_run *run);
void pvn_topo_check_numa_pair(struct pvn_topo_check_run *run,
                              const struct pvn_topo_check_pair *pair);
void pvn_topo_check_ports(struct pvn_topo_check_run *run);
void pvn_topo_check_gids(struct pvn_topo_check_run *run);
void pvn_topo_check_mtu(struct pvn_topo_check_run *run);
void pvn_topo_check_pvrdma(struct pvn_topo_check_run *run);
void pvn_topo_check_memlock(struct pvn_topo_check_run *run);
void pvn_topo_check_files(struct pvn_topo_check_run *run);
void pvn_topo_check_nvidia(struct pvn_topo_check_run *run);
void pvn_topo_check_gpudirect(struct pvn_topo_check_run *run);
void pvn_topo_check_read(struct pvn_topo_check_run *run); /* the reader's notes */
void pvn_topo_check_guest(struct pvn_topo_check_run *run);

/* Adds the rows of adapters' counters from one snapshot and, unless it is NULL, a second one
 * `seconds` later. 0 or -ENOMEM. */
int pvn_topo_check_counters(const struct pvn_topo *topo, const struct pvn_topo_look *first,
                            const struct pvn_topo_look *second, double seconds,
                            struct pvn_topo_checks *out);

#ifdef __cplusplus
}
#endif
#endif
