/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of a comm that change with each message. The engine returns them (pvn_engine_count), and the comm's row of
 * the statistics has a copy (stat_layout.h), in memory that other processes read.
 *
 * One thread writes. A reader may read between two stores of the writer. If it loads the members in the order below,
 * a message in `msgs` is always included in `bytes` and `opened`, too, and a flush in `flushes` in `opened`.
 */
#ifndef PVN_BASE_LIVE_H
#define PVN_BASE_LIVE_H

#include <stdint.h>

struct pvn_live {
    uint64_t msgs;    /* completed sends or receives */
    uint64_t bytes;   /* bytes of them */
    uint64_t flushes; /* completed flushes of received data */
    uint64_t opened;  /* all requests (sends, receives, flushes), including completed ones */
};

static inline void pvn_live_put(struct pvn_live *to, const struct pvn_live *from)
{
    __atomic_store_n(&to->opened, from->opened, __ATOMIC_RELEASE);
    __atomic_store_n(&to->flushes, from->flushes, __ATOMIC_RELEASE);
    __atomic_store_n(&to->bytes, from->bytes, __ATOMIC_RELEASE);
    __atomic_store_n(&to->msgs, from->msgs, __ATOMIC_RELEASE);
}

#endif
