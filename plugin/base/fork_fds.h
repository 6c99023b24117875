/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that a child of fork() closes at once, before its fork() returns.
 *
 * A connection ends when its last descriptor does. A child that does not exec, such as a worker that loads data,
 * has copies: when a rank is killed, its peers would learn of it only when that child has ended as well. A fork
 * handler (pthread_atfork) closes the copies; the parent's descriptors are not touched. Children that are made
 * without handlers (vfork, posix_spawn, clone) exec, and every descriptor of the plugin is close-on-exec.
 *
 * The list says exactly what is open: a descriptor is made and added, and removed and closed, under a lock that
 * fork takes as well. So a child never closes a number that somebody else's descriptor has.
 *
 * Costs no system call. A descriptor whose number is 2^20 or more is not listed. Two things that a process must not do, with
 * glibc 2.36 or later: unload this library while another thread forks, and wait in a fork handler of its own for a thread that
 * is in a call of NCCL.
 *
 * Threads: any.
 */
#ifndef PVN_BASE_FORK_FDS_H
#define PVN_BASE_FORK_FDS_H

/* For no longer than the call that makes or closes a descriptor: meanwhile a fork waits. */
void pvn_fork_fds_lock(void);
void pvn_fork_fds_unlock(void);

/* The caller has the lock from before it makes the descriptor, or until it has closed it. A descriptor that
 * somebody else makes may be added later, and has to be removed before it is closed. -1: none. */
void pvn_fork_fds_add(int fd);
void pvn_fork_fds_remove(int fd);

/* In a child that starts afresh, also one that was made without fork handlers: forgets the parent's. */
void pvn_fork_fds_after_fork(void);

#endif
