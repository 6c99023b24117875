/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* States of an RDMA lane that take long to reach: free-running counters wrap modulo 2^32, and
 * a send queue is seldom full. */
#ifndef PVN_TESTS_RDMA_WRAP_H
#define PVN_TESTS_RDMA_WRAP_H

#include "engine/engine.h"

/* Sets an engine on one RDMA lane that writes, neither used yet, as if so many messages, and chunks
 * of each queue pair, had gone. Both ends need the same numbers. */
void wrap_start_at(struct pvn_engine *e, uint64_t messages, uint32_t chunks);

/* From now on so many slots of the first queue pair's send queue are free, and every chain of a
 * receiver has a completion. How many there were. */
uint32_t wrap_slots(struct pvn_engine *e, uint32_t slots);

#endif
