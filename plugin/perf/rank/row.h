/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The reports of a job's ranks, as fixed records: rank 0 writes them into a pipe to the process
 * that prints. */
#ifndef PVN_PERF_ROW_H
#define PVN_PERF_ROW_H

#include <stdint.h>

#include "perf/rank/own_stats.h"
#include "tools/sha256.h"

enum pvn_row_kind {
    PVN_ROW_RESULT = 1,
    PVN_ROW_DEVICE,
    PVN_ROW_NOTE,
    PVN_ROW_PROGRESS,
    PVN_ROW_DOORBELLS,
    PVN_ROW_PLUGIN,
    PVN_ROW_INTERVAL,   /* of --duration: only printed */
    PVN_ROW_PEER,       /* the other end of a run between serve and its client */
    PVN_ROW_BINS,       /* bins of the result before it, or more of them */
    PVN_ROW_ERROR,      /* text: why the run failed */
    PVN_ROW_PATH_FAILED /* mesh: a pair of ranks failed, in both directions */
};

struct pvn_row_result {
    char test[20];    /* "latency", "bandwidth", "idle", a collective, "step", "part", "bucket" */
    char item[32];    /* the part of a preset, or "" */
    int32_t from, to; /* mesh: ranks; else both 0 */
    int32_t ranks, channels, depth, group;
    uint64_t bytes; /* message size; size of the array reduced */
    uint64_t iters;
    double time_us; /* latency: median of half a round trip; else per iteration */
    double min_us, p90_us, p99_us, p999_us, max_us; /* latency only, else 0 */
    double best;         /* mesh: the best part of a measurement, in us or MB/s; else 0 */
    double algbw, busbw; /* MB/s, 1 MB = 1e6 bytes, as nccl-tests defines them; 0 for latency */
    double rate;         /* messages per second; p2p bandwidth only */
    double cpu;          /* seconds of all ranks per GB (1e9 bytes) sent by all ranks */
    double rss;          /* idle, pairs: KiB of memory per comm, set-up included; else 0 */
    int64_t errors;      /* wrong elements or messages; -1: not checked */
    uint64_t got_messages, got_bytes, failovers, failbacks; /* soak only: as in an interval */
    int32_t memory;             /* enum pvn_perf_memory: the memory of rank 0's messages */
    char memory_how[192];       /* as pvn_messages.how */
    uint32_t via;               /* PVN_VIA_ bits of all ranks' comms; 0: none or unknown */
    char lanes[PVN_LANES_TEXT]; /* of rank 0's first comm; "" likewise */
};

struct pvn_row_device {
    int32_t rank, dev, speed, port, max_recvs, max_comms, ptr_support;
    float latency;
    uint64_t guid;
    char host[64], name[64], pci[256], netns[32];
};

/*
 * Part of a histogram: the bins that are not empty, in order. A bin is PVN_BIN_BUCKETS neighbouring
 * buckets of struct pvn_hist, so its width is at most 1/16 of its values.
 */
#define PVN_BIN_BUCKETS  8
#define PVN_ROW_BINS_MAX 32
struct pvn_row_bins {
    int32_t n;
    struct {
        uint32_t bin;
        uint64_t count;
    } bin[PVN_ROW_BINS_MAX];
};

struct pvn_row_plugin {
    char name[64];  /* the plugin's own name */
    char path[320]; /* of the file that was loaded */
    char sha256[PVN_SHA256_TEXT];
};

struct pvn_row_peer {
    char host[64], version[32]; /* of pvn-perf */
    char name[64],
        plugin_version[32]; /* the plugin's own name, and its statistics' version or "" */
    char path[256];
    char sha256[PVN_SHA256_TEXT];
    int32_t abi;
};

struct pvn_row_interval {
    uint64_t bytes_each;      /* size of a message */
    double from, to;          /* seconds since the beginning */
    double seconds;           /* duration in which messages moved */
    uint64_t messages, bytes; /* received; if errors is not -1, only right ones */
    int64_t errors;           /* wrong messages; -1: not checked */
    uint64_t failovers, failbacks;
    uint32_t via;
};

struct pvn_row_failed {
    int32_t a, b; /* ranks */
    char why[440];
};

/* Doorbells of all comms of a job from beginning to end, from the plugin's statistics. */
struct pvn_row_doorbells {
    int32_t ranks;
    struct pvn_doorbells sum;
};

struct pvn_row {
    int32_t kind;   /* pvn_row_kind */
    int32_t plugin; /* index in the options */
    int32_t abi;
    int32_t repeat;
    union {
        struct pvn_row_result result;
        struct pvn_row_device device;
        struct pvn_row_doorbells doorbells;
        struct pvn_row_plugin plugin;
        struct pvn_row_peer peer;
        struct pvn_row_interval interval;
        struct pvn_row_bins bins;
        struct pvn_row_failed failed;
        char text[512]; /* note, progress, error */
    } u;
};

#endif
