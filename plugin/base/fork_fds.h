/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that a forked child closes before its fork() returns.
 *
 * A connection ends when its last descriptor is closed. A child that does not exec, such as a worker of a data
 * loader, has copies of the parent's descriptors. If the rank is then killed, its peers learn of that only when the
 * child has ended as well. So a fork handler (pthread_atfork) closes the copies in the child; the parent's
 * descriptors are not touched. Children that are created without handlers (vfork, posix_spawn, clone) usually exec, and
 * every descriptor of the plugin is close-on-exec. One that does not keeps its copies, and forgets the list.
 *
 * The list always matches the open descriptors: opening and adding one, as well as removing and closing one, happen
 * under a lock that fork takes as well. So a child never closes a number that now belongs to another descriptor.
 *
 * The list needs no system call. A descriptor with a number of 2^20 or more is not listed. With glibc 2.36 or later a
 * process must not unload this library while another thread forks, nor wait in a fork handler of its own for a thread
 * that is in a call of NCCL.
 *
 * All functions may be called from any thread.
 */
#ifndef PVN_BASE_FORK_FDS_H
#define PVN_BASE_FORK_FDS_H

/* Hold the lock only for the call that opens or closes a descriptor, because forks wait for it. */
void pvn_fork_fds_lock(void);
void pvn_fork_fds_unlock(void);

/* The caller takes the lock before it opens and adds a descriptor, or before it removes and closes one. A descriptor
 * that a library opens may be added later, and has to be removed before the library closes it. fd -1 is ignored. */
void pvn_fork_fds_add(int fd);
void pvn_fork_fds_remove(int fd);

/* Forgets the parent's descriptors, in a child that initialises the plugin, also if it was created without fork
 * handlers. */
void pvn_fork_fds_after_fork(void);

#endif
