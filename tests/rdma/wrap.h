/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Puts an RDMA lane into states that take long to reach: free-running counters near their wrap
 * modulo 2^32, and a full send queue. */
#ifndef PVN_TESTS_RDMA_WRAP_H
#define PVN_TESTS_RDMA_WRAP_H

#include "engine/engine.h"

/* Makes an engine on one RDMA lane that writes look as if it had moved so many messages, and so
 * many chunks on each queue pair. Neither may have been used yet. Both ends need the same
 * numbers. */
void wrap_start_at(struct pvn_engine *e, uint64_t messages, uint32_t chunks);

/* Leaves so many slots free in the first queue pair's send queue, and signals every chain of a
 * receiver from now on. Returns the number of free slots before. */
uint32_t wrap_slots(struct pvn_engine *e, uint32_t slots);

#endif
