/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/poller.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/fork_fds.h"

/*
 * `word` is generation << 2 | state. An event carries the generation with which its watch was armed. READY is set by one
 * compare-and-swap from ARMED of that generation, so an event that outlives its watch changes nothing.
 */
enum { IDLE = 0, ARMED = 1, READY = 2, STATE_BITS = 2, STATE_MASK = 3 };

struct pvn_watch {
    _Atomic uint32_t word;
    uint32_t index;
    int fd;
    struct pvn_watch *next_free;
};

/* Watches lie in blocks that are neither moved nor freed while the poller is in use, because pvn_poller_poll_now finds
 * the watch of an event by its index without a lock. */
enum { BLOCK = 256, BLOCKS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* users, table growth, free list */
static int users;
static int in_use;
static uint32_t created;
static struct pvn_watch *free_list;
static _Atomic(struct pvn_watch *) blocks[BLOCKS];
static atomic_int epfd = -1;
static _Atomic uint64_t last_poll_ns;

/* The caller of these holds the lock. A forked child keeps no copy of the descriptor. */
static int open_epfd(void)
{
    int fd, rc;

    pvn_fork_fds_lock();
    fd = epoll_create1(EPOLL_CLOEXEC);
    rc = fd < 0 ? -errno : 0;
    pvn_fork_fds_add(fd);
    pvn_fork_fds_unlock();
    atomic_store(&epfd, fd);
    return rc;
}

static void close_epfd(void)
{
    int fd = atomic_load(&epfd);

    pvn_fork_fds_lock();
    pvn_fork_fds_remove(fd);
    close(fd);
    pvn_fork_fds_unlock();
    atomic_store(&epfd, -1);
}

int pvn_poller_get(void)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (users == 0)
        rc = open_epfd();
    if (rc == 0)
        users++;
    pthread_mutex_unlock(&lock);
    return rc;
}

/* Frees all watches. No thread polls any more, because a thread that polls has a reference. */
static void forget_blocks(void)
{
    int i;

    for (i = 0; i < BLOCKS && blocks[i]; i++) {
        free(blocks[i]);
        atomic_store(&blocks[i], NULL);
    }
    created = 0;
    free_list = NULL;
}

void pvn_poller_put(void)
{
    pthread_mutex_lock(&lock);
    if (users > 0 && --users == 0) {
        close_epfd();
        if (in_use == 0)
            forget_blocks();
    }
    pthread_mutex_unlock(&lock);
}

void pvn_poller_after_fork(void)
{
    int i;

    pthread_mutex_init(&lock, NULL); /* another thread of the parent may have held it */
    atomic_store(&epfd, -1);
    users = 0;
    in_use = 0;
    created = 0;
    free_list = NULL;
    for (i = 0; i < BLOCKS; i++)
        atomic_store(&blocks[i], NULL);
}

static struct pvn_watch *take_watch(void)
{
    struct pvn_watch *w;

    pthread_mutex_lock(&lock);
    if (!free_list && created < BLOCK * BLOCKS) {
        struct pvn_watch *b = calloc(BLOCK, sizeof(*b));
        uint32_t i;

        for (i = 0; b && i < BLOCK; i++) {
            b[i].index = created + i;
            b[i].next_free = i + 1 < BLOCK ? &b[i + 1] : NULL;
        }
        if (b) {
            atomic_store(&blocks[created / BLOCK], b);
            created += BLOCK;
            free_list = b;
        }
    }
    w = free_list;
    if (w) {
        free_list = w->next_free;
        in_use++;
    }
    pthread_mutex_unlock(&lock);
    if (!w)
        errno = ENOMEM;
    return w;
}

static void give(struct pvn_watch *w)
{
    uint32_t gen = (atomic_load(&w->word) >> STATE_BITS) + 1;

    atomic_store(&w->word, gen << STATE_BITS | IDLE);
    pthread_mutex_lock(&lock);
    w->next_free = free_list;
    free_list = w;
    in_use--;
    pthread_mutex_unlock(&lock);
}

/* Arms the watch by this call of epoll_ctl. 0 or a negative errno. */
static int arm(struct pvn_watch *w, int op)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT};
    uint32_t gen = atomic_load(&w->word) >> STATE_BITS;
    uint32_t armed = gen << STATE_BITS | ARMED;

    /* Stored before epoll_ctl, because a report that comes earlier would be lost. */
    atomic_store(&w->word, armed);
    ev.data.u64 = (uint64_t)w->index << 32 | gen;
    if (epoll_ctl(atomic_load(&epfd), op, w->fd, &ev) != 0) {
        int rc = -errno;

        atomic_store(&w->word, gen << STATE_BITS | IDLE);
        return rc;
    }
    return 0;
}

struct pvn_watch *pvn_poller_add(int fd)
{
    struct pvn_watch *w;
    int rc;

    if (pvn_forked()) {
        errno = EBADF;
        return NULL;
    }
    w = take_watch();
    if (!w)
        return NULL;
    w->fd = fd;
    rc = arm(w, EPOLL_CTL_ADD);
    if (rc == 0)
        return w;
    give(w);
    errno = -rc;
    return NULL;
}

void pvn_poller_remove(struct pvn_watch *w)
{
    struct epoll_event ev = {.events = 0};

    if (!w)
        return;
    if (!pvn_forked())
        epoll_ctl(atomic_load(&epfd), EPOLL_CTL_DEL, w->fd, &ev);
    give(w);
}

int pvn_poller_arm(struct pvn_watch *w)
{
    return pvn_forked() ? -EBADF : arm(w, EPOLL_CTL_MOD);
}

bool pvn_poller_ready(const struct pvn_watch *w)
{
    return (atomic_load_explicit(&w->word, memory_order_acquire) & STATE_MASK) == READY;
}

bool pvn_poller_armed(const struct pvn_watch *w)
{
    return (atomic_load_explicit(&w->word, memory_order_acquire) & STATE_MASK) == ARMED;
}

const uint32_t *pvn_poller_word(const struct pvn_watch *w, uint32_t *armed)
{
    *armed =
        atomic_load_explicit(&w->word, memory_order_relaxed) >> STATE_BITS << STATE_BITS | ARMED;
    return (const uint32_t *)&w->word; /* the reader has to load it atomically */
}

int pvn_poller_poll_now(void)
{
    struct epoll_event ev[64];
    int fd = atomic_load(&epfd);
    int i, n;

    if (fd < 0 || pvn_forked())
        return 0;
    n = epoll_wait(fd, ev, 64, 0);
    for (i = 0; i < n; i++) {
        uint32_t index = (uint32_t)(ev[i].data.u64 >> 32), gen = (uint32_t)ev[i].data.u64;
        struct pvn_watch *b = atomic_load(&blocks[index / BLOCK]);
        uint32_t want = gen << STATE_BITS | ARMED;

        atomic_compare_exchange_strong(&b[index % BLOCK].word, &want, gen << STATE_BITS | READY);
    }
    return n > 0 ? n : 0;
}

uint64_t pvn_poller_poll(uint64_t max_age_ns)
{
    uint64_t now = pvn_now_ns();
    uint64_t last = atomic_load_explicit(&last_poll_ns, memory_order_relaxed);

    if (now - last >= max_age_ns && atomic_compare_exchange_strong(&last_poll_ns, &last, now))
        pvn_poller_poll_now();
    return now;
}

int pvn_poller_watches(void)
{
    int n;

    pthread_mutex_lock(&lock);
    n = in_use;
    pthread_mutex_unlock(&lock);
    return n;
}
