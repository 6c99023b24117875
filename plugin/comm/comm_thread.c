/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which thread makes a comm's data calls. */
#include "config.h"
#include "comm/comm_priv.h"

/* Its address names the thread. */
static __thread char self;

void comm_thread_note(struct pvn_comm *c)
{
    atomic_store_explicit(&c->thread, &self, memory_order_relaxed);
}

bool comm_thread_is_here(const struct pvn_comm *c)
{
    return atomic_load_explicit(&c->thread, memory_order_relaxed) == &self;
}
