/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The plugin's own threads in an application's process. */
#ifndef PVN_BASE_THREAD_H
#define PVN_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

/* Blocks all signals but those that an instruction raises: if such a signal is blocked, it ends the process without
 * calling its handler, as a program that reports its crashes has one. Returns the mask from before. */
sigset_t pvn_signals_block(void);

/* Starts a thread with signals blocked so, since the application's handlers of the others run only in its own threads.
 * `name`, of at most 15 characters, is shown by ps and debuggers. 0 or a negative errno. */
int pvn_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name);

/* Warns that pvn_thread_start returned rc. lost: what the user goes without, for "...; LOST; ...". */
void pvn_thread_not_started(const char *name, int rc, const char *lost);

/* Initialises a condition variable whose waits use monotonic time; a static initialiser cannot do that. May be called in a
 * forked child for one that the parent used. */
void pvn_cond_init(pthread_cond_t *cond);
/* Waits until the condition is signalled, for at most ns nanoseconds. May return earlier. The caller holds the mutex. */
void pvn_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ns);

/* Takes a reference to the shared object of the plugin, so that it stays mapped while a thread may execute its code.
 * Returns NULL if the plugin is linked into the program. */
void *pvn_library_hold(void);
/* Drops the reference. Only a thread that was called from outside of the library may do so, because its caller (NCCL) has
 * a reference of its own. Under a thread of the plugin the code could be unmapped. NULL is allowed. */
void pvn_library_release(void *held);

#endif
