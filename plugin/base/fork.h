/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Distinguishes a forked child from the process that initialised the plugin.
 *
 * The mark is a page that the kernel zeroes in a child (MADV_WIPEONFORK, Linux 4.14). So a child that was created without
 * fork handlers is recognised as well, and the check is two loads. On older kernels and in emulators the process id is
 * compared instead. fork_fds.h closes descriptors in a child.
 */
#ifndef PVN_BASE_FORK_H
#define PVN_BASE_FORK_H

#include <stdbool.h>

/*
 * Marks this process. A child that calls this becomes a process of its own with a new epoch. Calls must not run at
 * the same time. 0 or a negative errno.
 */
int pvn_fork_mark(void);

/* True in a child of the marked process; false in the marked process and before the first mark. May be called from any
 * thread, as the next functions. */
bool pvn_forked(void);

/* The epoch of this process: a number that grows by one with each process that marks itself, in this process and its
 * ancestors. Objects store the epoch in which they were created. 0 before the first mark; after it a number that
 * uninitialised memory is unlikely to hold. */
unsigned pvn_fork_epoch(void);

/* Used by pvn_fork_surely. Never NULL. */
extern const unsigned *pvn_fork_certain __attribute__((visibility("hidden")));
bool pvn_fork_in_child_slow(unsigned epoch);

/* The epoch of this process if one load shows it. 0 if it does not; then pvn_fork_in_child_slow has to decide if an object
 * belongs to this process. */
static inline unsigned pvn_fork_surely(void)
{
    const unsigned *certain = __atomic_load_n(&pvn_fork_certain, __ATOMIC_ACQUIRE);

    return __atomic_load_n(certain, __ATOMIC_RELAXED);
}

/* True if an object created in `epoch` belongs to a parent of this process. */
static inline bool pvn_fork_in_child(unsigned epoch)
{
    return __builtin_expect(pvn_fork_surely() != epoch, 0) && pvn_fork_in_child_slow(epoch);
}

/* The process id of the marked process, for messages; 0 before the first mark. */
int pvn_fork_parent(void);

#endif
