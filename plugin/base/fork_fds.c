/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/fork_fds.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fork.h"

enum {
    /* The default of fs.nr_open. The list has 128 KiB, of which usually only the first page is touched. */
    FDS_MAX = 1 << 20,
    WORDS = FDS_MAX / 64,
    /* Attempts to take the lock, 100 us apart. A signal handler may fork while its own thread has the lock. It gives up
     * after some 1.5 s (with the timers' slack), and its child closes nothing. */
    TRIES = 10000
};

static const struct timespec pause_ns = {.tv_nsec = 100 * 1000};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t listed[WORDS]; /* a bit for each descriptor */
static int used;               /* number of words up to the last one that has been used */
/* The thread that holds the lock for a fork; 0: none. pthread_self() returns the same value in the child. */
static _Atomic uintptr_t forking;

static void before_fork(void)
{
    int saved = errno, rc;

    /* A child that was created without handlers has its parent's list, and may use the numbers for others. */
    if (pvn_forked())
        return;
    for (int i = 0; (rc = pthread_mutex_trylock(&lock)) != 0 && i < TRIES; i++)
        nanosleep(&pause_ns, NULL);
    if (rc == 0)
        atomic_store(&forking, (uintptr_t)pthread_self());
    errno = saved;
}

static bool has_lock(void)
{
    return atomic_load(&forking) == (uintptr_t)pthread_self();
}

static void give_back(void)
{
    if (!has_lock())
        return;
    atomic_store(&forking, 0);
    pthread_mutex_unlock(&lock);
}

static void close_all(void)
{
    for (int w = 0; w < used; w++)
        for (uint64_t left = listed[w]; left; left &= left - 1)
            close(w * 64 + __builtin_ctzll(left));
}

static void forget_all(void)
{
    memset(listed, 0, (size_t)used * sizeof(listed[0]));
    used = 0;
}

/* Fork handler of the child. It uses only functions that are async-signal-safe, as the child of a process with
 * threads must. */
static void in_child(void)
{
    int saved = errno;

    if (has_lock()) {
        close_all();
        forget_all();
        give_back();
    } else {
        pvn_fork_fds_after_fork();
    }
    errno = saved;
}

/* Installs the handlers. The C library removes them when this library is unmapped. If memory is short, they are not
 * installed and children keep their copies. */
static void watch(void)
{
    pthread_atfork(before_fork, give_back, in_child);
}

void pvn_fork_fds_lock(void)
{
    pthread_once(&once, watch);
    /* The thread may hold the lock already: another fork handler, which may use NCCL, runs between those of this
     * library. */
    if (!has_lock())
        pthread_mutex_lock(&lock);
}

void pvn_fork_fds_unlock(void)
{
    if (!has_lock())
        pthread_mutex_unlock(&lock);
}

void pvn_fork_fds_add(int fd)
{
    if (fd < 0 || fd >= FDS_MAX)
        return;
    listed[fd / 64] |= UINT64_C(1) << fd % 64;
    if (fd / 64 >= used)
        used = fd / 64 + 1;
}

void pvn_fork_fds_remove(int fd)
{
    if (fd >= 0 && fd < FDS_MAX)
        listed[fd / 64] &= ~(UINT64_C(1) << fd % 64);
}

void pvn_fork_fds_after_fork(void)
{
    atomic_store(&forking, 0);
    pthread_mutex_init(&lock, NULL);
    forget_all();
}
