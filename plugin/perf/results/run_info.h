/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The circumstances of a run, for readers of its files at another time and place. */
#ifndef PVN_PERF_RUN_INFO_H
#define PVN_PERF_RUN_INFO_H

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_run_info {
    int argc;
    char **argv;      /* the command line, before getopt changed its order */
    char started[32]; /* UTC, as 2026-01-31T12:00:00Z */
    double began;     /* CLOCK_MONOTONIC in seconds */
    char host[64];    /* host of this process, which is rank 0's */
    char kernel[256]; /* "Linux 6.1.0 x86_64" */
    char cpu[128];    /* the model's name; "" if /proc/cpuinfo has none */
    int cpus;         /* online */
};

/* Fills *info. Called once; the texts of argv must outlive *info. */
void pvn_run_info_fill(struct pvn_run_info *info, int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
