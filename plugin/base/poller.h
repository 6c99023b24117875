/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One epoll descriptor for the whole process, so that an idle socket costs nothing to watch.
 *
 * A comm's control socket is silent until something goes wrong, and a data socket is silent while
 * its peer computes. Reading each of them at every test() would be a system call per socket and
 * pass; instead the owner registers a socket once and looks at a flag in memory:
 *
 *     w = pvn_poller_add(fd);           once; it is armed
 *     ...
 *     pvn_poller_poll(max_age);         any thread, often: at most one epoll_wait(0) per max_age
 *     if (pvn_poller_ready(w)) read     one load
 *     pvn_poller_arm(w);                everything there was is read (EAGAIN)
 *     pvn_poller_remove(w); close(fd);  in this order
 *
 * A watch reports once per arm: bytes, end of stream and errors alike. It may report without cause
 * (a read then gives EAGAIN), but it misses nothing: bytes that arrived before arm are reported,
 * too.
 *
 * Threads: a watch belongs to one thread at a time; pvn_poller_poll may run in any number of
 * threads at once. Watches stay valid memory after remove (until the last put), so an event that
 * another thread has already taken from the kernel is recognised as stale by its generation and
 * dropped.
 *
 * In a forked child the descriptor is the parent's: there every call does nothing and ready is
 * false.
 */
#ifndef PVN_BASE_POLLER_H
#define PVN_BASE_POLLER_H

#include <stdbool.h>
#include <stdint.h>

/* How old the last epoll_wait of the process may be, in ns, for those who wait for data and for
 * those who wait for errors only. */
enum { PVN_POLLER_EAGER_NS = 4000, PVN_POLLER_IDLE_NS = 500000 };

struct pvn_watch;

/* Counted: the last put closes the descriptor. 0 or a negative errno. */
int pvn_poller_get(void);
void pvn_poller_put(void);

/*
 * In a child that starts afresh (pvn_fork_mark), while it has one thread: forgets the parent's
 * watches and descriptor without touching them.
 */
void pvn_poller_after_fork(void);

/* Armed. NULL with errno set: ENOMEM, ENOSPC
 * (fs.epoll.max_user_watches), EBADF without a get. */
struct pvn_watch *pvn_poller_add(int fd);
/* Before the descriptor is closed. NULL is allowed. */
void pvn_poller_remove(struct pvn_watch *w);

/* Clears the flag and arms the watch for the next event. 0 or a negative errno. */
int pvn_poller_arm(struct pvn_watch *w);

/* The flag: set from the event until the next arm. */
bool pvn_poller_ready(const struct pvn_watch *w);

/* Armed and not reported yet. */
bool pvn_poller_armed(const struct pvn_watch *w);

/* The memory that holds *armed while the watch is armed and not reported yet, and changes with the
 * report. For those who look at many watches without a call; valid until the last put. */
const uint32_t *pvn_poller_word(const struct pvn_watch *w, uint32_t *armed);

/* Takes what the kernel has to report, unless somebody did so within the last max_age_ns. Returns
 * the time, which it has read anyway (clock.h). */
uint64_t pvn_poller_poll(uint64_t max_age_ns);
/* Polls unconditionally, for set-up and for tests; returns the number of events taken. */
int pvn_poller_poll_now(void);

/* Watches in use, for tests and statistics. */
int pvn_poller_watches(void);

#endif
