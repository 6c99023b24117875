/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of a comm that change with each message, in memory that other processes read: the engine
 * writes them, and they lie in the comm's row of the statistics (stat_layout.h).
 *
 * One thread writes. A reader may meet them between two stores of one message; in the order below, read
 * from the first to the last, a message is in msgs only if its bytes and its opening are there, too.
 */
#ifndef PVN_BASE_LIVE_H
#define PVN_BASE_LIVE_H

#include <stdint.h>

struct pvn_live {
    uint64_t msgs;   /* requests completed */
    uint64_t bytes;  /* of those */
    uint64_t opened; /* requests, the completed ones included */
};

static inline void pvn_live_set(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

#endif
