/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of pvn-perf's ranks: a star of stream sockets around rank 0, either socket pairs
 * made before fork or TCP connections between machines (boot_tcp.c). It carries handles, results
 * and barriers, never the measured data.
 *
 * Every wait has a deadline, and all ranks learn of the end of any rank. A rank that fails sends
 * its reason to rank 0 (pvn_boot_abort), and rank 0 forwards it. A rank that dies without a report
 * is detected by its closed socket. One thread per boot. Errors: negative errno, with a sentence in
 * `why`; -ECANCELED: this rank or another one was interrupted, so call pvn_boot_stop next.
 */
#ifndef PVN_TOOLS_BOOT_H
#define PVN_TOOLS_BOOT_H

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_BOOT_MAX_RANKS 4096
#define PVN_BOOT_MAX_BLOCK (1u << 20) /* limit of one rank's bytes in a gather */

struct pvn_boot {
    int rank;
    int nranks;
    int *fd; /* rank 0: one per rank, fd[0] unused; others: fd[0] leads to rank 0 */
    /* Relay of sealed connections (boot_relay.h), for which its parent's close waits; 0: none. */
    pid_t relay;
    double timeout;                    /* limit of each wait, seconds */
    int reported;                      /* the others already have this rank's reason */
    const volatile sig_atomic_t *stop; /* waits end when it is set; NULL: nothing interrupts */
    int stopped;                       /* this rank or another one was interrupted */
    int at_rest;             /* rank 0: the rank whose stop frame was read already; 0: none */
    void (*tick)(void *arg); /* called at least every 100 ms during a wait; may be NULL */
    void *tick_arg;
    /* Called during a wait, every millisecond while it returns 1; may be NULL. */
    int (*work)(void *arg);
    void *work_arg;
    int heard; /* why is the text of another rank */
    char why[384];
};

/* Makes a pair for each of n ranks: pairs[2 * i] is rank 0's end of rank i's socket, pairs[2 * i +
 * 1] rank i's own. */
int pvn_boot_pairs(int nranks, int **pairs, char *why, size_t why_len);
/* Called in rank `rank` after fork: keeps this rank's ends, closes all others, frees pairs. */
int pvn_boot_from_pairs(struct pvn_boot *b, int rank, int nranks, int *pairs, double timeout);

/*
 * A view of the first n ranks (this rank among them) that shares the sockets. Close only the
 * parent.
 */
void pvn_boot_view(const struct pvn_boot *whole, int n, struct pvn_boot *view);
void pvn_boot_close(struct pvn_boot *b);

/*
 * Gathers a block from every rank: out has nranks blocks of len bytes; block i is rank i's. len may
 * be 0 (a barrier).
 */
int pvn_boot_allgather(struct pvn_boot *b, const void *in, void *out, size_t len);
int pvn_boot_barrier(struct pvn_boot *b);
/* Sends rank 0's bytes to all ranks. */
int pvn_boot_share(struct pvn_boot *b, void *data, size_t len);

/* 0 while all ranks run; -ECONNABORTED if another rank failed or ended. Never waits. */
int pvn_boot_check(struct pvn_boot *b);
/* Reports this rank's reason to the others. Best effort; does not wait. */
void pvn_boot_abort(struct pvn_boot *b, const char *reason);
/* Called in every rank after an interruption: returns when all ranks are at rest here, or after two
 * seconds. Nothing else may be exchanged afterwards. */
void pvn_boot_stop(struct pvn_boot *b);

/*
 * Send and receive whole buffers, with a deadline in monotonic seconds: 0, -ETIMEDOUT, -ECONNRESET
 * or another errno.
 */
int pvn_boot_send(int fd, const void *data, size_t len, double deadline, struct pvn_boot *b);
int pvn_boot_recv(int fd, void *data, size_t len, double deadline, struct pvn_boot *b);

/* The seconds between two readings of the clock that no limit counts, because the process was
 * stopped, or its machine, and perhaps its peers with it. A waiting process reads the clock far
 * more often. last is at most now. 0 or more. */
double pvn_boot_stopped(double last, double now);

#ifdef __cplusplus
}
#endif

#endif
