/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Timing of operations that all ranks do together: warm-up, number of iterations, barriers,
 * verification, and nccl-tests' figures. */
#ifndef PVN_PERF_TIMED_H
#define PVN_PERF_TIMED_H

#include "perf/rank/rank.h"

/* A timed measurement. All ranks call each of its functions together. */
struct pvn_timed {
    struct pvn_rank *r;
    void *arg;
    void (*fill)(void *arg);                    /* called before each timed part; may be NULL */
    int (*run)(void *arg, uint64_t iters);      /* 0, or -1 after pvn_rank_fail */
    void (*verify)(void *arg, int64_t *errors); /* called after it with --check; may be NULL */
    int64_t errors;                             /* run may add errors here, too */
};

struct pvn_outcome {
    double seconds, cpu;
    int64_t errors;
};

/* The work of one iteration: its bytes as nccl-tests counts them, nccl-tests' factor to bus
 * bandwidth, and the bytes that all ranks send together. */
struct pvn_work {
    double bytes, factor, sent;
};

/* Times iters runs together, after a barrier: the slowest rank's time, all ranks' CPU time. */
int pvn_timed_once(struct pvn_timed *t, uint64_t iters, struct pvn_outcome *o);
void pvn_outcome_add(struct pvn_outcome *sum, const struct pvn_outcome *one);
/* For --duration: decides how many iterations run together next, if the last *n took `last`
 * seconds. *n becomes 0 when the time since `began` (pvn_now_s) is over. Rank 0's clock decides for
 * all ranks. 0, or -1 after pvn_rank_fail. */
int pvn_timed_next(struct pvn_rank *r, double began, double last, uint64_t *n);
/* Measures and reports a whole point; res has test, item and bytes. */
int pvn_timed_point(struct pvn_timed *t, struct pvn_row_result *res, const struct pvn_work *w);
/* Completes and reports a result that the caller has measured in `iters` iterations. */
void pvn_timed_report(struct pvn_timed *t, struct pvn_row_result *res, const struct pvn_work *w,
                      double iters, const struct pvn_outcome *sum);

#endif
