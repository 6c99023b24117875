/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Events for NCCL's profilers (interface v10 and later): a start and a stop for each work request
 * of an RDMA lane and for each chunk on a TCP stream.
 *
 * NCCL passes its callback whether or not a profiler is loaded, so a comm checks once, when it
 * comes up, whether one is. Only then is a profiler attached to its lanes, and the engine shows it
 * posts and events (struct pvn_lane_profiler). Without one it costs no instruction, because the
 * engine tests for it together with a kick (pvn_lane.moves): an isend still takes 340 instructions,
 * an irecv 194 (tests/bench/instructions.sh, record mode).
 *
 * Threads: the callback belongs to the process. Everything else is called from the comm's thread.
 */
#ifndef PVN_COMM_PROFILE_H
#define PVN_COMM_PROFILE_H

#include "connect/handshake.h"
#include "engine/lane.h"
#include "nccl/types.h"

struct pvn_profile;

/* NCCL's callback, as given to init; NULL: none. It belongs to the process. */
void pvn_profile_set_callback(ncclProfilerCallback_t callback);

/* Reports events of the connection's lanes from now on. NULL: there is no callback, no profiler or
 * no memory, and the lanes do not change. */
struct pvn_profile *pvn_profile_of(const struct pvn_conn *conn);
/* Detaches the profiler from the lanes. Events that have not stopped are stopped, because their
 * transfers have ended with the lanes, done or not. NULL is allowed. */
void pvn_profile_free(struct pvn_profile *p);

/* Called before a send or receive, with the number that the engine gives to it, and NCCL's handles
 * of the events that it belongs to. Handles may be NULL, and so may their array. */
void pvn_profile_send(struct pvn_profile *p, uint64_t message, void *handle);
void pvn_profile_receive(struct pvn_profile *p, uint64_t slot, int n, void *const *data,
                         const size_t *sizes, void *const *handles);

#endif
