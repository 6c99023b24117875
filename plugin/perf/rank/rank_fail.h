/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The early ends of a rank. */
#ifndef PVN_PERF_RANK_FAIL_H
#define PVN_PERF_RANK_FAIL_H

#include "perf/driver/netdrv.h"
#include "perf/rank/stop.h"

struct pvn_rank;

/* The end of a message about a limit that --timeout sets. */
#define PVN_RANK_TIMEOUT "(see --timeout; --verbose shows more of the plugin's messages)"

/*
 * Records a failure (the first one counts), prints it and reports it to the other ranks, unless it
 * came from them. Always returns -1, for `return pvn_rank_fail(...)`.
 */
int pvn_rank_fail(struct pvn_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For a failed call of the plugin: the message names the call and explains the result. */
int pvn_rank_fail_call(struct pvn_rank *r, const char *call, ncclResult_t rc);
/* For a failed pvn_boot_ call. */
int pvn_rank_fail_boot(struct pvn_rank *r);
/*
 * All ranks call both functions around steps that may fail in single ranks (the plugin does not
 * load, a device is missing, limits, memory). A failure in between is held back. Then rank 0 prints
 * each reason once with its ranks, and all ranks fail and close the plugin. pvn_rank_agree returns
 * 0, or -1 in every rank if one failed. No data moves in between.
 */
void pvn_rank_hold(struct pvn_rank *r);
int pvn_rank_agree(struct pvn_rank *r);
/* Called in every pass of a loop. 1 if the run was interrupted: r->status is then INTERRUPTED, and
 * the caller returns -1. */
int pvn_rank_interrupted(struct pvn_rank *r);
static inline int pvn_rank_stops(struct pvn_rank *r)
{
    return pvn_stop_flag && pvn_rank_interrupted(r);
}
/* Reports wrong data. The caller counts it, and the run continues. */
void pvn_rank_wrong(struct pvn_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
