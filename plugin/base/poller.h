/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One epoll descriptor for the whole process, so that watching an idle socket costs nothing.
 *
 * A comm's control socket is silent until something goes wrong, and a data socket is silent while its peer
 * computes. To read each of them at every test() would be a system call per socket and call. Instead the owner
 * registers a socket once and tests a flag in memory:
 *
 *     w = pvn_poller_add(fd);           once; the watch is armed
 *     ...
 *     pvn_poller_poll(max_age);         any thread, often: at most one epoll_wait(0) per max_age
 *     if (pvn_poller_ready(w)) read     one load
 *     pvn_poller_arm(w);                after everything has been read (EAGAIN)
 *     pvn_poller_remove(w); close(fd);  in this order
 *
 * A watch reports once per arm, for bytes, end of stream and errors. A report may be spurious (a read then returns
 * EAGAIN), but none is missed: bytes that arrived before arm are reported, too.
 *
 * Threads: a watch belongs to one thread at a time. pvn_poller_poll may run in any number of threads at the same
 * time. The memory of a watch stays valid after remove, until the last put. So an event that another thread has
 * already taken from the kernel is recognised as stale by its generation, and dropped.
 *
 * In a forked child the descriptor belongs to the parent. There every call does nothing, and pvn_poller_ready
 * returns the last state.
 */
#ifndef PVN_BASE_POLLER_H
#define PVN_BASE_POLLER_H

#include <stdbool.h>
#include <stdint.h>

/* Values of max_age_ns, the largest age of the process's last epoll_wait: for callers that wait for data, and for
 * callers that wait only for errors. */
enum { PVN_POLLER_EAGER_NS = 4000, PVN_POLLER_IDLE_NS = 500000 };

struct pvn_watch;

/* Take and drop a reference. The last put closes the descriptor. get returns 0 or a negative errno. */
int pvn_poller_get(void);
void pvn_poller_put(void);

/*
 * Called in a child that initialises the plugin (pvn_fork_mark), while it has one thread: forgets the parent's
 * watches and descriptor. The child's copy was closed when it was forked, if fork handlers ran (fork_fds.h), and its number
 * may be another descriptor's now.
 */
void pvn_poller_after_fork(void);

/* Creates an armed watch. On failure returns NULL with errno ENOMEM, ENOSPC (fs.epoll.max_user_watches), or EBADF
 * without a get. */
struct pvn_watch *pvn_poller_add(int fd);
/* Ends a watch. Call this before the descriptor is closed. NULL is allowed. */
void pvn_poller_remove(struct pvn_watch *w);

/* Clears the flag and arms the watch for the next event. 0 or a negative errno. */
int pvn_poller_arm(struct pvn_watch *w);

/* The flag: true from the event until the next arm. */
bool pvn_poller_ready(const struct pvn_watch *w);

/* True while the watch is armed and has not reported. */
bool pvn_poller_armed(const struct pvn_watch *w);

/* The word that has the value *armed while the watch is armed, and another value after the report. For callers that
 * test many watches without calls. Valid until the last put. */
const uint32_t *pvn_poller_word(const struct pvn_watch *w, uint32_t *armed);

/* Takes the kernel's events, unless a thread did so within the last max_age_ns. Returns the current time (clock.h),
 * which it needs anyway. */
uint64_t pvn_poller_poll(uint64_t max_age_ns);
/* Takes the kernel's events in any case, for set-up and for tests. Returns the number of events taken. */
int pvn_poller_poll_now(void);

/* Number of watches in use, for tests and statistics. */
int pvn_poller_watches(void);

#endif
