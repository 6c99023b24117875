/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes and doorbells of this process's comms, from the statistics file that the plugin writes
 * (stats/stat_layout.h). A plugin without such a file (another vendor's, or this one with
 * NCCL_PVRDMA_STATS_DIR=none) shows nothing.
 */
#ifndef PVN_PERF_OWN_STATS_H
#define PVN_PERF_OWN_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "stats/stat_via.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_doorbells {
    uint64_t comms;      /* comms that count doorbells */
    uint64_t msgs;       /* messages sent by them; a message counts only at its sender */
    uint64_t send, recv; /* calls of ibv_post_send and ibv_post_recv */
    uint64_t empty;      /* polls of an empty completion queue, if each is a doorbell */
};

#define PVN_LANES_TEXT 160

struct pvn_own_stats {
    struct pvn_doorbells doorbells; /* of all comms since the plugin was loaded */
    uint32_t via;                   /* PVN_VIA_ bits of the open comms; 0: unknown */
    uint64_t failovers, failbacks;  /* of all comms since the plugin was loaded */
    char version[32];               /* of the plugin */
    char lanes[PVN_LANES_TEXT];     /* the lanes of the first open sending comm, in words */
};

/* Reads the files of this process. false, and *out all zero, when there is none. Any thread. */
bool pvn_own_stats_read(struct pvn_own_stats *out);

#ifdef __cplusplus
}
#endif

#endif
