/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of one job: loads the plugin and makes a ring of comms as NCCL's transport set-up does.
 * It also has what all measuring loops need: waits with a deadline, errors that reach all ranks,
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

/* Progress of a rank, in memory shared with the parent, which kills a rank that stays in one call
 * of the plugin too long. */
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
    char looked[512]; /* "" or, in words, the other places that were searched */
    struct pvn_netdrv *drv;
    void *ctx;
    struct pvn_link link[PVN_PERF_MAX_CHANNELS];
    int status;  /* pvn_perf_exit of the run; a failure hides wrong data */
    int wrong;   /* this rank saw wrong data */
    int holding; /* between pvn_rank_hold and pvn_rank_agree */
    int lost;    /* the failure is that another rank ended or did not answer */
    int orderly; /* the failure left the plugin in a state in which it can be closed */
    char err[512];
    struct pvn_messages mem;
    double rss_per_comm; /* KiB; 0 until the ring is made */
    int sizes_missing;   /* test() did not set a size */
    int abi;             /* version of the interface; kept after the plugin was unloaded */
    struct pvn_doorbells doorbells; /* doorbells of this rank's comms, after they were closed */
    unsigned idle;
    double idle_since, next_check;
    unsigned nap_us;         /* microseconds that the next idle pass sleeps */
    double looked_at;        /* last reading of the clock, while idle */
    struct pvn_pairs *pairs; /* instead of the ring's comms (pairs.h) */
    /* Called before the plugin is closed. NULL: there are only the ring's comms. */
    void (*close_more)(struct pvn_rank *r);
};

/* Fills path. Called before the rank gets a mount namespace of its own: inside a new one the kernel
 * reports this program's path as seen from outside a chroot. */
void pvn_rank_find_plugin(struct pvn_rank *r);
/* Loads and initialises the plugin, connects the ring and reports the devices. 0, or -1 after
 * pvn_rank_fail. With one rank, in mesh, and for pairs (pvn_pairs_open), it connects nothing. */
int pvn_rank_open(struct pvn_rank *r);
/* pvn_rank_listen listens on every channel, with a handle for each. pvn_rank_connect connects, on
 * every channel, to the rank whose handles it gets, and accepts a connection, as NCCL does. from,
 * to: the ranks, for messages. 0 or -1 after pvn_rank_fail. */
int pvn_rank_listen(struct pvn_rank *r, char (*handle)[NCCL_NET_HANDLE_MAXSIZE]);
int pvn_rank_connect(struct pvn_rank *r, char (*handle)[NCCL_NET_HANDLE_MAXSIZE], int from, int to);
/* Calls a close function of the plugin for one handle, unless that is NULL. */
void pvn_rank_close_one(struct pvn_rank *r, const char *call,
                        ncclResult_t (*fn)(struct pvn_netdrv *, void *), void *comm);
/* pvn_rank_disconnect closes the comms that these two opened; pvn_rank_forget leaves them open and
 * ignores them. */
void pvn_rank_disconnect(struct pvn_rank *r);
void pvn_rank_forget(struct pvn_rank *r);
/* Undoes pvn_rank_open, even if that failed halfway; a failure makes the status FAILED. After an
 * interruption it first waits until the other ranks have come to rest. */
void pvn_rank_close(struct pvn_rank *r);
/* Called after pvn_rank_close: reports the doorbells of all ranks, if the plugin counts any. */
void pvn_rank_doorbells(struct pvn_rank *r);

/*
 * One of these is called after each pass over all comms. pvn_rank_moved resets the time waited.
 * pvn_rank_idle yields the CPU or, after a long wait, sleeps for a thousandth of the time waited
 * (--spin: neither). It returns 0 to continue, 1 if nothing has moved for the whole timeout (the
 * caller reports what it waits for), or -1 if the rank failed.
 */
static inline void pvn_rank_moved(struct pvn_rank *r)
{
    r->idle = 0;
    atomic_fetch_add_explicit(&r->beat->count, 1, memory_order_relaxed);
}
int pvn_rank_idle(struct pvn_rank *r);

/* Records where this rank is, for the parent's watch: a string literal. */
static inline void pvn_rank_at(struct pvn_rank *r, const char *where)
{
    atomic_store_explicit(&r->beat->where, where, memory_order_relaxed);
}

/* Resident memory of this process, KiB. */
double pvn_rank_resident(void);
/* User and system time of this process, seconds. */
double pvn_rank_cpu(void);

/* Allocates page-aligned zeroed memory; NULL after pvn_rank_fail; munmap it. */
void *pvn_rank_alloc(struct pvn_rank *r, size_t len);

/* Checks that every rank of this machine can have `len` bytes of memory. Called between
 * pvn_rank_hold and pvn_rank_agree, before any rank allocates. 0, or the rank has failed. */
int pvn_rank_room(struct pvn_rank *r, size_t len);

/* Called after a run that ended with rc: reports on stderr if test() did not set sizes. */
void pvn_rank_say_sizes(const struct pvn_rank *r, int rc);

/* Called by all ranks, which exchange the lanes that they used; rank 0 reports the result. A
 * failure is in r->status. */
void pvn_rank_result(struct pvn_rank *r, const struct pvn_row_result *res);
/* Exchanges plugin and version between serve and its client, and describes the other end in words.
 * 0, or -1 after pvn_rank_fail. */
int pvn_rank_hear_peer(struct pvn_rank *r, struct pvn_row_peer *other, char *text, size_t len);
/* The following functions report for rank 0 and are no-ops in other ranks. */

/* Reports a result when the ranks no longer exchange data. */
void pvn_rank_last_result(struct pvn_rank *r, const struct pvn_row_result *res);
void pvn_rank_row(struct pvn_rank *r, struct pvn_row *row); /* sets the row's run */
void pvn_rank_interval(struct pvn_rank *r, const struct pvn_row_interval *i);
/* belongs to the result before it */
void pvn_rank_hist(struct pvn_rank *r, const struct pvn_hist *h);
void pvn_rank_error(struct pvn_rank *r); /* why the run failed: r->err */
void pvn_rank_note(struct pvn_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pvn_rank_progress(struct pvn_rank *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The modes. 0, or -1 after pvn_rank_fail. Wrong data is in r->status. */
int pvn_p2p_run(struct pvn_rank *r);
int pvn_ring_run(struct pvn_rank *r);
int pvn_mesh_run(struct pvn_rank *r);
int pvn_alltoall_run(struct pvn_rank *r);
int pvn_pipeline_run(struct pvn_rank *r);

#endif
