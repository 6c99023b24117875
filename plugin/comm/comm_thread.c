/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The thread that makes a comm's data calls. */
#include "config.h"
#include "comm/comm_priv.h"

/* Threads have numbers in the order of their first calls. The address of a thread-local variable
 * would not do, because the C library gives it to a later thread when the thread has ended. */
static atomic_uint_fast64_t numbers;
static __thread uint64_t number; /* 0: none yet */

static uint64_t self(void)
{
    if (__builtin_expect(number == 0, 0))
        number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    return number;
}

void comm_thread_note(struct pvn_comm *c)
{
    atomic_store_explicit(&c->thread, self(), memory_order_relaxed);
}

bool comm_thread_is_here(const struct pvn_comm *c)
{
    return atomic_load_explicit(&c->thread, memory_order_relaxed) == self();
}
