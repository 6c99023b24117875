/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* How a rank ends before its time. */
#ifndef PVN_PERF_RANK_FAIL_H
#define PVN_PERF_RANK_FAIL_H

#include "perf/driver/netdrv.h"
#include "perf/rank/stop.h"

struct pvn_rank;

/*
 * Notes a failure (the first one counts), prints it and reports it to the other ranks, unless it
 * came from them. Always -1, for `return pvn_rank_fail(...)`.
 */
int pvn_rank_fail(struct pvn_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For a failed call of the plugin: says which and what it means. */
int pvn_rank_fail_call(struct pvn_rank *r, const char *call, ncclResult_t rc);
/* For a failed pvn_boot_ call. */
int pvn_rank_fail_boot(struct pvn_rank *r);
/*
 * Steps that each rank may refuse for itself (a plugin that does not load, a device that is not there,
 * limits, memory) stand between these two, which all ranks call: a failure is held back, then
 * rank 0 prints each reason once with the ranks it is of, and all ranks fail and close the plugin.
 * pvn_rank_agree: 0, or -1 in every rank if one failed. No data moves in between.
 */
void pvn_rank_hold(struct pvn_rank *r);
int pvn_rank_agree(struct pvn_rank *r);
/* 1 if the run was interrupted: r->status is INTERRUPTED then, and the caller returns -1.
 * For every pass of a loop. */
int pvn_rank_interrupted(struct pvn_rank *r);
static inline int pvn_rank_stops(struct pvn_rank *r)
{
    return pvn_stop_flag && pvn_rank_interrupted(r);
}
/* Data was wrong: printed, counted by the caller, the run goes on. */
void pvn_rank_wrong(struct pvn_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
