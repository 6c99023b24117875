/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Doorbells, as a comm tells of them in the message at its end and as pvn-perf reads that message:
 * it is the one way by which a plugin that is loaded through NCCL's interface can give figures of
 * its own.
 */
#ifndef PVN_ENGINE_BELLS_H
#define PVN_ENGINE_BELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/lane.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Since the comms came up. */
struct pvn_bells {
    uint64_t comms;      /* that have told of theirs */
    uint64_t msgs;       /* sent by them: a message's receiver counts it for itself */
    uint64_t send, recv; /* calls of ibv_post_send and ibv_post_recv */
    uint64_t empty;      /* calls of ibv_poll_cq that met an empty queue, where that rings */
};

/* The part of the message with the figures. Returns the length as snprintf does. Any thread. */
int pvn_bells_text(bool sender, uint64_t msgs, uint64_t bytes, const struct pvn_lane_counters *n,
                   char *buf, size_t cap);

/* Adds what a message tells to *sum. false, and *sum as it was: it is not such a message, or not
 * one of a comm that counts doorbells. Any thread. */
bool pvn_bells_read(const char *message, struct pvn_bells *sum);

#ifdef __cplusplus
}
#endif

#endif
