/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of pvn-perf's ranks, and how they agree: a star of stream sockets around rank 0,
 * either socket pairs made before fork or TCP connections between machines (boot_tcp.c). It carries
 * handles, results and barriers, never the measured data.
 *
 * Every wait has a deadline, and the end of any rank reaches all others: a rank that fails sends
 * its reason to rank 0 (pvn_boot_abort), rank 0 passes it on, and a rank that dies without reporting why
 * is seen by its closed socket. One thread per boot. Errors: negative errno, with a sentence in
 * `why`; -ECANCELED: this rank or another one was interrupted, and pvn_boot_stop is due.
 */
#ifndef PVN_TOOLS_BOOT_H
#define PVN_TOOLS_BOOT_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_BOOT_MAX_RANKS 4096
#define PVN_BOOT_MAX_BLOCK (1u << 20) /* bytes of one rank's share in a gather */

struct pvn_boot {
    int rank;
    int nranks;
    int *fd; /* rank 0: one per rank, fd[0] unused; others: fd[0] leads to rank 0 */
    pid_t
        relay; /* of sealed connections (boot_relay.h), which its parent's close waits for; 0: none */
    double timeout;                    /* seconds that any one wait may take */
    int reported;                      /* the others know already why this rank ends */
    const volatile sig_atomic_t *stop; /* waiting ends when it is set; NULL: nothing interrupts */
    int stopped;                       /* this rank or another one was interrupted */
    int at_rest;                       /* rank 0: the rank whose stop was read already; 0: none */
    void (*tick)(void *arg);           /* called at least every 100 ms of waiting; may be NULL */
    void *tick_arg;
    /* Called while a wait lasts, every millisecond as long as it returns 1; may be NULL. */
    int (*work)(void *arg);
    void *work_arg;
    int heard; /* why came from another rank, in words */
    char why[384];
};

/* n pairs for n ranks: pairs[2 * i] is rank 0's end of rank i's socket, pairs[2 * i + 1] rank i's
 * own. */
int pvn_boot_pairs(int nranks, int **pairs, char *why, size_t why_len);
/* In rank `rank` after fork: keeps this rank's ends, closes all others, frees pairs. */
int pvn_boot_from_pairs(struct pvn_boot *b, int rank, int nranks, int *pairs, double timeout);

/*
 * A view of the first n ranks (this rank among them), sharing the sockets: close the parent only.
 */
void pvn_boot_view(const struct pvn_boot *whole, int n, struct pvn_boot *view);
void pvn_boot_close(struct pvn_boot *b);

/*
 * out has room for nranks blocks of len bytes; block i comes from rank i. len may be 0 (a barrier).
 */
int pvn_boot_allgather(struct pvn_boot *b, const void *in, void *out, size_t len);
int pvn_boot_barrier(struct pvn_boot *b);
/* rank 0's bytes to all. */
int pvn_boot_share(struct pvn_boot *b, void *data, size_t len);

/* 0 while all is well; -ECONNABORTED when another rank failed or ended. Never waits. */
int pvn_boot_check(struct pvn_boot *b);
/* Reports to the others why this rank ends. Best effort, does not wait. */
void pvn_boot_abort(struct pvn_boot *b, const char *reason);
/* After an interruption, in every rank: returns when all of them have come to rest here, or after
 * two seconds. Nothing else may be exchanged afterwards. */
void pvn_boot_stop(struct pvn_boot *b);

/*
 * Whole buffers with a deadline in monotonic seconds: 0, -ETIMEDOUT, -ECONNRESET or another errno.
 */
int pvn_boot_send(int fd, const void *data, size_t len, double deadline, struct pvn_boot *b);
int pvn_boot_recv(int fd, void *data, size_t len, double deadline, struct pvn_boot *b);

/* Between two looks at the clock, which a waiting process takes far more often, the seconds that no limit counts: the process
 * was stopped, or its machine stood still, and its peers perhaps with it. last is at most now. 0 or more. */
double pvn_boot_stopped(double last, double now);

#ifdef __cplusplus
}
#endif

#endif
