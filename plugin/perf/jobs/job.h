/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* One measurement: one plugin, a number of ranks, each rank in a process of its own. */
#ifndef PVN_PERF_JOB_H
#define PVN_PERF_JOB_H

#include "perf/options/opts.h"
#include "perf/rank/row.h"
#include "tools/boot.h"

struct pvn_job {
    const struct pvn_perf_opts *o;
    int plugin, repeat, nranks;
    /* Called for every row of rank 0, in this process. */
    void (*on_row)(void *arg, const struct pvn_row *row);
    void *arg;
};

/*
 * Starts all ranks on this machine, watches them and ends them. If a rank dies, fails or stays in
 * one call of the plugin, the others are ended. Returns a pvn_perf_exit.
 */
int pvn_job_run_forked(const struct pvn_job *j);

/*
 * Runs this process's rank of a job that a launcher started on several machines, in a child.
 * `whole` is the rendezvous of all ranks; ranks from j->nranks on only wait. Returns a
 * pvn_perf_exit, which is FAILED in every rank if one failed.
 */
int pvn_job_run_rank(const struct pvn_job *j, struct pvn_boot *whole);

#endif
