/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of one job: loads the plugin, makes a ring of comms as NCCL's transport set-up does and
 * gives the measuring loops what they share: waiting with a deadline, errors that reach all ranks,
 * CPU time. One thread.
 */
#ifndef PVN_PERF_RANK_H
#define PVN_PERF_RANK_H

#include <stdatomic.h>
#include <stdint.h>

#include "perf/rank/hist.h"
#include "perf/rank/messages.h"
#include "perf/driver/netdrv.h"
#include "perf/options/opts.h"
#include "perf/rank/rank_fail.h"
#include "perf/rank/row.h"
#include "tools/boot.h"

/* In memory shared with the parent, which ends a rank that stays in one call of the plugin too
 * long. */
struct pvn_beat {
    _Atomic uint64_t count;
    _Atomic(const char *) where; /* a string literal: parent and rank are one image */
};

/* Channel c: sends to the next rank, receives from the previous one. */
struct pvn_link {
    int dev;
    void *listen, *send, *recv;
};

struct pvn_rank {
    const struct pvn_perf_opts *o;
    int plugin; /* index in o->plugin */
    int repeat;
    int rank, nranks;
    int external; /* started by a launcher, perhaps on several machines */
    struct pvn_boot boot;
    struct pvn_beat *beat;
    int row_fd;       /* rank 0's pipe to the parent, else -1 */
    char path[512];   /* of the plugin */
    char looked[512]; /* "" or, in words, where else it was looked for */
    struct pvn_netdrv *drv;
    void *ctx;
    struct pvn_link link[PVN_PERF_MAX_CHANNELS];
    int status;  /* pvn_perf_exit: of the run; a failure hides wrong data */
    int wrong;   /* this rank saw wrong data */
    int holding; /* between pvn_rank_hold and pvn_rank_agree */
    int lost;    /* the failure is that another rank ended or did not answer */
    int orderly; /* the failure left the plugin in a state in which it can be closed */
    char err[512];
    struct pvn_messages mem;
    double rss_per_comm; /* KiB; 0 until the ring is made */
    int sizes_missing;   /* test() left a size as it was */
    int abi;             /* version of the interface, also after the plugin was unloaded */
    struct pvn_doorbells doorbells; /* of this rank's comms, after they were closed */
    unsigned idle;
    double idle_since, next_check;
    unsigned nap_us;         /* what the next idle pass sleeps for */
    double looked_at;        /* the clock, while idle */
    struct pvn_pairs *pairs; /* instead of the ring's comms (pairs.h) */
    void (*close_more)(
        struct pvn_rank *r); /* before the plugin's end; NULL: the ring's comms are all */
};

/* Fills path. Before the rank gets a mount namespace of its own: from within a new one the kernel
 * gives this program's path as seen from outside a chroot. */
void pvn_rank_find_plugin(struct pvn_rank *r);
/* Loads and initialises the plugin and connects the ring; reports the devices. 0, or -1 after
 * pvn_rank_fail. With one rank, in mesh, and for pairs (pvn_pairs_open), nothing is connected. */
int pvn_rank_open(struct pvn_rank *r);
/* On every channel: listens, into a handle for each; connects this rank to the one whose handles
 * they are and accepts a connection, as NCCL does. from, to: the ranks, for messages. 0 or -1 after
 * pvn_rank_fail. */
int pvn_rank_listen(struct pvn_rank *r, char (*handle)[NCCL_NET_HANDLE_MAXSIZE]);
int pvn_rank_connect(struct pvn_rank *r, char (*handle)[NCCL_NET_HANDLE_MAXSIZE], int from, int to);
/* Calls a close function of the plugin for one handle, unless that is NULL. */
void pvn_rank_close_one(struct pvn_rank *r, const char *call,
                        ncclResult_t (*fn)(struct pvn_netdrv *, void *), void *comm);
/* Closes what these two opened, or leaves it open and takes no more notice of it. */
void pvn_rank_disconnect(struct pvn_rank *r);
void pvn_rank_forget(struct pvn_rank *r);
/* Undoes what pvn_rank_open did, as far as it went; a failure makes the status FAILED. After an
 * interruption it waits for the other ranks to come to rest first. */
void pvn_rank_close(struct pvn_rank *r);
/* After that: reports the doorbells of all ranks, if the plugin counts any. */
void pvn_rank_doorbells(struct pvn_rank *r);

/*
 * After a pass over all comms. moved: forgets the time waited. idle: yields the CPU, or sleeps for a
 * thousandth of that time once it is long (--spin: neither); 0 go on, 1 nothing has moved for the
 * whole time-out (the caller says what it waits for), -1 failed.
 */
static inline void pvn_rank_moved(struct pvn_rank *r)
{
    r->idle = 0;
    atomic_fetch_add_explicit(&r->beat->count, 1, memory_order_relaxed);
}
int pvn_rank_idle(struct pvn_rank *r);

/* Sets the place where this rank is, for the parent's watch: a string literal. */
static inline void pvn_rank_at(struct pvn_rank *r, const char *where)
{
    atomic_store_explicit(&r->beat->where, where, memory_order_relaxed);
}

/* Resident memory of this process, KiB. */
double pvn_rank_resident(void);
/* User and system time of this process, seconds. */
double pvn_rank_cpu(void);

/* Page-aligned zeroed memory of the process, or NULL after pvn_rank_fail; munmap it. */
void *pvn_rank_alloc(struct pvn_rank *r, size_t len);

/* Checks that there is memory for `len` bytes in every rank of this machine: between pvn_rank_hold and
 * pvn_rank_agree, before any rank takes its own. 0, or the rank has failed. */
int pvn_rank_room(struct pvn_rank *r, size_t len);

/* After a run that ended with rc: says on stderr that test() left out sizes, if it did. */
void pvn_rank_say_sizes(const struct pvn_rank *r, int rc);

/* Called by all ranks, which exchange the lanes they used; rank 0 reports it. A failure is in
 * r->status. */
void pvn_rank_result(struct pvn_rank *r, const struct pvn_row_result *res);
/* Between serve and its client: what the other end has, in words as well. 0, or -1 after
 * pvn_rank_fail. */
int pvn_rank_hear_peer(struct pvn_rank *r, struct pvn_row_peer *other, char *text, size_t len);
/* Rank 0 only, no-ops elsewhere. */
void pvn_rank_last_result(
    struct pvn_rank *r,
    const struct pvn_row_result *res); /* when ranks exchange nothing any more */
void pvn_rank_row(struct pvn_rank *r, struct pvn_row *row); /* which becomes this run's */
void pvn_rank_interval(struct pvn_rank *r, const struct pvn_row_interval *i);
void pvn_rank_hist(struct pvn_rank *r, const struct pvn_hist *h); /* of the result before it */
void pvn_rank_error(struct pvn_rank *r);                          /* why the run failed: r->err */
void pvn_rank_note(struct pvn_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pvn_rank_progress(struct pvn_rank *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The modes: 0, or -1 after pvn_rank_fail. Wrong data is in r->status. */
int pvn_p2p_run(struct pvn_rank *r);
int pvn_ring_run(struct pvn_rank *r);
int pvn_mesh_run(struct pvn_rank *r);
int pvn_alltoall_run(struct pvn_rank *r);
int pvn_pipeline_run(struct pvn_rank *r);

#endif
