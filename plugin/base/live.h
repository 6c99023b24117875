/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of a comm that change with each message. The engine gives them out (pvn_engine_count); they lie in the
 * comm's row of the statistics (stat_layout.h), in memory that other processes read.
 *
 * One thread writes. A reader may meet it between two stores; in the order below, read from the first to
 * the last, a message is in msgs only if its bytes and its opening are there, too.
 */
#ifndef PVN_BASE_LIVE_H
#define PVN_BASE_LIVE_H

#include <stdint.h>

struct pvn_live {
    uint64_t msgs;   /* requests completed */
    uint64_t bytes;  /* of those */
    uint64_t opened; /* requests, the completed ones included */
};

static inline void pvn_live_put(struct pvn_live *to, const struct pvn_live *from)
{
    __atomic_store_n(&to->opened, from->opened, __ATOMIC_RELEASE);
    __atomic_store_n(&to->bytes, from->bytes, __ATOMIC_RELEASE);
    __atomic_store_n(&to->msgs, from->msgs, __ATOMIC_RELEASE);
}

#endif
