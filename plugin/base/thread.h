/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Threads of the plugin's own, in a process that is not ours. */
#ifndef PVN_BASE_THREAD_H
#define PVN_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts a thread with all signals blocked: the host process's handlers stay in its own threads.
 * `name` is what ps and debuggers show, at most 15 characters. 0 or a negative errno. */
int pvn_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name);

/* A condition whose waits count monotonic time, as no static initializer gives it. Also over one that a fork has left. */
void pvn_cond_init(pthread_cond_t *cond);
/* Waits for a signal, for ns nanoseconds at most; may return sooner without one. The caller holds the mutex. */
void pvn_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ns);

/* Keeps the shared object that holds the plugin mapped while a thread may execute it. Returns what
 * pvn_library_release takes, NULL in a program that has the plugin linked in. */
void *pvn_library_hold(void);
/* The caller must itself be called from outside of the library. NULL is allowed. */
void pvn_library_release(void *held);

#endif
