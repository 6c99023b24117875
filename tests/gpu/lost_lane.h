/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The two ranks of lost_lane (see lost_lane.c), and their calls of the plugin (lost_lane_net.c) */
#ifndef PVN_TESTS_LOST_LANE_H
#define PVN_TESTS_LOST_LANE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/lost_lane_gpu.h"
#include "perf/driver/netdrv.h"

enum { LL_OK = 0, LL_FAILED = 1, LL_USAGE = 2, LL_SKIP = 77 };

enum ll_time { LL_AWAKE, LL_RECEIVER_SLEEPS, LL_SENDER_SLEEPS, LL_TIMES };

/* Messages alternate between the buffers. The queue pair is lost after the first LL_BEFORE
 * messages. */
enum { LL_BUFFERS = 2, LL_BYTES = 4 << 20, LL_MESSAGES = 24, LL_BEFORE = 8 };

struct ll_message {
    size_t from, to, len; /* offsets in the sender's buffer and in the receiver's */
};

struct ll_options {
    const char *plugin, *cuda_lib, *label;
    int sleep_s;
};

/* The ranks and their parent share this. */
struct ll_shared {
    _Alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE];
    atomic_int listens;
    atomic_int arrived, generation; /* barrier */
    atomic_int failed;
    atomic_int sleeps[LL_TIMES], lost[LL_TIMES];
    char again[LL_TIMES][2][32]; /* by the receiver, the sender: the time that the failover took */
    char lanes[256];             /* of the last failover */
    long long relaxed;
};

struct ll_buffer {
    pvn_cu_ptr at;
    void *mh;
};

struct ll_rank {
    const struct ll_options *opt;
    struct ll_shared *shared;
    bool sender, by_dmabuf;
    struct pvn_netdrv *d;
    void *ctx, *listen, *comm;
    struct ll_buffer buf[LL_BUFFERS];
    unsigned char *host; /* twice the size of a buffer */
    int (*command)(const char *line, char *reply, size_t size);
    int64_t (*rule_seen)(const char *name);
    int64_t (*rule_fired)(const char *name);
};

/* Counters of this process */
struct ll_seen {
    int again;     /* failovers that have ended */
    int elsewhere; /* those that ended on other lanes than RDMA's, and copies of GPU memory */
    int refused;   /* lanes that did not take it, with the last reason */
    char refusal[256];
    int64_t dmabufs;            /* registrations by dma-buf */
    char after[32], lanes[256]; /* of the last one: its time, its lanes */
};

/* Returns message i, which is the same in all times. */
struct ll_message ll_message(int i);
/* Reports an error on stderr and returns false. The other rank ends, too. */
bool ll_fail(struct ll_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* False if the other rank has failed, or the time is up, which is a failure, too. */
bool ll_goes_on(struct ll_rank *r, double until, const char *what);

/* These return false after ll_fail. ll_open loads the plugin, connects the ranks and registers
 * the buffers. */
bool ll_open(struct ll_rank *r);
void ll_close(struct ll_rank *r);
/* These move all messages of one time. */
bool ll_send(struct ll_rank *r, enum ll_time time, double until);
bool ll_receive(struct ll_rank *r, enum ll_time time, double until);
struct ll_seen ll_seen(const struct ll_rank *r);
/* Returns the number of writes into this process's memory that its adapter held back by relaxed
 * ordering. */
long long ll_relaxed(const struct ll_rank *r);

#endif
