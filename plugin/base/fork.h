/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Distinguishes a forked child from the process that initialised the plugin.
 *
 * The mark is a page that the kernel empties in a child (MADV_WIPEONFORK, Linux 4.14), so a child that was made without
 * fork handlers is recognised as well, and the check is two loads. Older kernels, and emulators: the
 * process id is compared instead. What a child closes at once: fork_fds.h.
 */
#ifndef PVN_BASE_FORK_H
#define PVN_BASE_FORK_H

#include <stdbool.h>

/*
 * Marks this process. In a child it makes the child a process of its own with a new epoch. Not at
 * the same time as another call. 0 or a negative errno.
 */
int pvn_fork_mark(void);

/* True in a child of the marked process, false there and before any mark. Any thread. */
bool pvn_forked(void);

/* Counts the marks in this process and its ancestors; what is created carries it. 0 before the
 * first; from then on a number that is hardly met by chance. */
unsigned pvn_fork_epoch(void);

/* For pvn_fork_surely. Never NULL. */
extern const unsigned *pvn_fork_certain __attribute__((visibility("hidden")));
bool pvn_fork_in_child_slow(unsigned epoch);

/* The epoch of this process where that is certain without a closer look, else 0: what was created in
 * another one may be this process's nevertheless. Any thread. */
static inline unsigned pvn_fork_surely(void)
{
    const unsigned *certain = __atomic_load_n(&pvn_fork_certain, __ATOMIC_ACQUIRE);

    return __atomic_load_n(certain, __ATOMIC_RELAXED);
}

/* True where something created in `epoch` belongs to a parent of this process. Any thread. */
static inline bool pvn_fork_in_child(unsigned epoch)
{
    return __builtin_expect(pvn_fork_surely() != epoch, 0) && pvn_fork_in_child_slow(epoch);
}

/* The process that set the mark, 0 before. For messages. */
int pvn_fork_parent(void);

#endif
