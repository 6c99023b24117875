/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-tcp/tcp_workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

enum {
    EVENTS = 64,        /* taken from the kernel at once */
    TURN = 1024 * 1024, /* bytes of one job before the worker looks at its others */
    /* For so long a worker that has become idle yields before it sleeps: the next chunk of a stream
     * comes when the owner has completed the one before, and waking up takes longer than that. */
    LINGER_NS = 30000
};

struct tcp_worker {
    pthread_t thread;
    int epfd;
    int wake;                       /* eventfd, in the epoll set */
    _Atomic(struct tcp_job *) list; /* newest first */
    struct tcp_job *ready;          /* the worker's: to be served, oldest first */
    struct tcp_job **ready_end;
    atomic_bool asleep;
    atomic_bool stop;
    unsigned streams; /* with the pool's lock */
};

static struct {
    pthread_mutex_t lock;
    unsigned users;
    int n;
    struct tcp_worker *w;
    void *library;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the worker ---- */

static void done(struct tcp_job *j, int rc)
{
    j->rc = rc;
    __atomic_store_n(&j->state, TCP_JOB_DONE, __ATOMIC_RELEASE);
}

static void make_ready(struct tcp_worker *w, struct tcp_job *j)
{
    j->next = NULL;
    *w->ready_end = j;
    w->ready_end = &j->next;
}

/* Takes all posted jobs in the order of posting. True if there were any. */
static bool take_posted(struct tcp_worker *w)
{
    struct tcp_job *j = atomic_exchange(&w->list, NULL), *in_order = NULL;

    if (!j)
        return false;
    while (j) {
        struct tcp_job *older = j->next;

        j->next = in_order;
        in_order = j;
        j = older;
    }
    while (in_order) {
        struct tcp_job *next = in_order->next;

        make_ready(w, in_order);
        in_order = next;
    }
    return true;
}

/* Waits until the socket has bytes, or room. If epoll cannot watch the socket (the user has too
 * many watches, no memory), the job ends with the bytes that it has moved, and its owner posts the
 * rest at its next call: slower, never wrong. */
static void wait_for_socket(struct tcp_worker *w, struct tcp_job *j)
{
    struct epoll_event ev = {.events = (j->sends ? EPOLLOUT : EPOLLIN) | EPOLLONESHOT};

    ev.data.ptr = j;
    __atomic_store_n(&j->state, TCP_JOB_WAITING, __ATOMIC_RELAXED);
    if (epoll_ctl(w->epfd, j->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, j->fd, &ev) < 0) {
        done(j, 0);
        return;
    }
    j->watched = true;
}

static void use_up(struct tcp_job *j, size_t n)
{
    int k = 0;

    j->moved += n;
    while (k < j->npieces && n >= j->piece[k].iov_len)
        n -= j->piece[k++].iov_len;
    j->npieces -= k;
    for (int i = 0; i < j->npieces; i++)
        j->piece[i] = j->piece[i + k];
    if (j->npieces > 0) {
        j->piece[0].iov_base = (uint8_t *)j->piece[0].iov_base + n;
        j->piece[0].iov_len -= n;
    }
}

static ssize_t move_some(struct tcp_job *j)
{
    j->calls++;
    return j->sends ? j->io->sendv(j->fd, j->seal, j->piece, j->npieces)
                    : j->io->recvv(j->fd, j->seal, j->piece, j->npieces, 0);
}

/* Makes one system call. False: the job is done, or waits. The caller holds its lock. */
static bool step(struct tcp_worker *w, struct tcp_job *j)
{
    ssize_t n;

    if (__atomic_load_n(&j->state, __ATOMIC_RELAXED) == TCP_JOB_ENDING) {
        done(j, -ECANCELED);
        return false;
    }
    n = move_some(j);
    if (n == -EAGAIN) {
        wait_for_socket(w, j);
        return false;
    }
    j->eof = n == 0 && !j->sends;
    if (n > 0)
        use_up(j, (size_t)n);
    if (n >= 0 && !j->eof && j->moved < j->need)
        return true;
    done(j, n < 0 ? (int)n : 0);
    return false;
}

/* Serves a job until it is done, the socket has no more, or its turn is over. */
static void serve(struct tcp_worker *w, struct tcp_job *j)
{
    size_t turn_end = j->moved + TURN;
    bool more = true;

    while (more && j->moved < turn_end) {
        pthread_mutex_lock(&j->lock);
        more = step(w, j);
        pthread_mutex_unlock(&j->lock);
    }
    if (more)
        make_ready(w, j);
}

/* Collects the sockets that are ready. timeout: 0, or -1 to sleep. */
static bool ask_kernel(struct tcp_worker *w, int timeout)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(w->epfd, ev, EVENTS, timeout);

    for (int i = 0; i < n; i++) {
        uint64_t unused;

        if (ev[i].data.ptr)
            make_ready(w, ev[i].data.ptr);
        else if (read(w->wake, &unused, sizeof(unused)) < 0)
            continue; /* taken already */
    }
    return n > 0;
}

/* Sleeps unless something was posted since. */
static void sleep_until_needed(struct tcp_worker *w)
{
    atomic_store(&w->asleep, true);
    ask_kernel(w, atomic_load(&w->list) || atomic_load(&w->stop) ? 0 : -1);
    atomic_store(&w->asleep, false);
}

static void *serve_jobs(void *arg)
{
    struct tcp_worker *w = arg;
    uint64_t idle_since = 0;

    while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
        bool any = take_posted(w);

        any |= ask_kernel(w, 0);
        struct tcp_job *j = w->ready;
        w->ready = NULL;
        w->ready_end = &w->ready;
        while (j) {
            struct tcp_job *next = j->next;

            serve(w, j);
            j = next;
            any = true;
        }
        if (any) {
            idle_since = 0;
        } else if (!idle_since) {
            idle_since = pvn_now_ns();
        } else if (pvn_now_ns() - idle_since > LINGER_NS) {
            sleep_until_needed(w);
            idle_since = 0;
        } else {
            sched_yield();
        }
    }
    return NULL;
}

/* ---- the pool ---- */

static void wake_up(struct tcp_worker *w)
{
    const uint64_t one = 1;

    if (atomic_load(&w->asleep) && write(w->wake, &one, sizeof(one)) < 0)
        return; /* the counter is full: it is awake */
}

static void end_worker(struct tcp_worker *w)
{
    atomic_store(&w->stop, true);
    wake_up(w);
    pthread_join(w->thread, NULL);
    close(w->wake);
    close(w->epfd);
}

static int start_worker(struct tcp_worker *w)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int rc;

    w->ready_end = &w->ready;
    w->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (w->epfd < 0)
        return -errno;
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake >= 0 && epoll_ctl(w->epfd, EPOLL_CTL_ADD, w->wake, &ev) == 0) {
        rc = pvn_thread_start(&w->thread, serve_jobs, w, "pvn-tcp");
        if (rc == 0)
            return 0;
    } else {
        rc = -errno;
    }
    if (w->wake >= 0)
        close(w->wake);
    close(w->epfd);
    return rc;
}

/* The caller holds the lock. */
static void end_pool(void)
{
    for (int i = 0; i < pool.n; i++)
        end_worker(&pool.w[i]);
    free(pool.w);
    pool.w = NULL;
    pool.n = 0;
}

/* The caller holds the lock. */
static int start_pool(int n)
{
    int rc = 0;

    pool.w = calloc((size_t)n, sizeof(*pool.w));
    if (!pool.w)
        return -ENOMEM;
    while (pool.n < n && rc == 0) {
        rc = start_worker(&pool.w[pool.n]);
        pool.n += rc == 0;
    }
    if (rc) {
        end_pool();
        return rc;
    }
    if (!pool.library)
        pool.library = pvn_library_hold();
    return 0;
}

int tcp_workers_get(int n)
{
    int rc = 0;

    pthread_mutex_lock(&pool.lock);
    if (!pool.w)
        rc = start_pool(n);
    pool.users += rc == 0;
    pthread_mutex_unlock(&pool.lock);
    return rc;
}

void tcp_workers_put(void)
{
    void *unused = NULL;

    pthread_mutex_lock(&pool.lock);
    if (--pool.users == 0) {
        end_pool();
        unused = pool.library;
        pool.library = NULL;
    }
    pthread_mutex_unlock(&pool.lock);
    pvn_library_release(unused);
}

void tcp_workers_after_fork(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pool.w = NULL;
    pool.n = 0;
    pool.users = 0;
    pool.library = NULL; /* it stays open, as in the parent */
}

/* ---- jobs ---- */

struct tcp_job *tcp_job_new(void)
{
    struct tcp_job *j = calloc(1, sizeof(*j));

    if (!j)
        return NULL;
    j->io = &pvn_sockio_plain;
    pthread_mutex_init(&j->lock, NULL);
    pthread_mutex_lock(&pool.lock);
    j->worker = &pool.w[0];
    for (int i = 1; i < pool.n; i++)
        if (pool.w[i].streams < j->worker->streams)
            j->worker = &pool.w[i];
    j->worker->streams++;
    pthread_mutex_unlock(&pool.lock);
    return j;
}

void tcp_job_free(struct tcp_job *j)
{
    if (!j)
        return;
    pthread_mutex_lock(&pool.lock);
    j->worker->streams--;
    pthread_mutex_unlock(&pool.lock);
    /* The worker may still hold the lock after it has stored DONE. */
    pthread_mutex_lock(&j->lock);
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

static void post_job(struct tcp_job *j)
{
    struct tcp_worker *w = j->worker;
    struct tcp_job *head = atomic_load_explicit(&w->list, memory_order_relaxed);

    do {
        j->next = head;
    } while (!atomic_compare_exchange_weak(&w->list, &head, j));
    wake_up(w);
}

void tcp_job_post(struct tcp_job *j)
{
    j->moved = 0;
    j->rc = 0;
    j->eof = false;
    j->calls = 0;
    /* A thread that sees QUEUED may inspect the pieces. */
    __atomic_store_n(&j->state, TCP_JOB_QUEUED, __ATOMIC_RELEASE);
    post_job(j);
}

static bool is_ending(struct tcp_job *j)
{
    return __atomic_load_n(&j->state, __ATOMIC_ACQUIRE) == TCP_JOB_ENDING;
}

/* The caller holds the lock. */
static void take_back(struct tcp_job *j)
{
    if (tcp_job_busy(j))
        __atomic_store_n(&j->state, TCP_JOB_ENDING, __ATOMIC_RELEASE);
}

void tcp_job_cancel(struct tcp_job *j)
{
    /* A system call of the worker ends soon, and the shutdown wakes a waiting one, because it ends
     * everything on the socket. */
    if (tcp_job_busy(j) || is_ending(j))
        shutdown(j->fd, SHUT_RDWR);
    pthread_mutex_lock(&j->lock);
    take_back(j);
    pthread_mutex_unlock(&j->lock);
    while (is_ending(j))
        sched_yield();
    /* A forked child's copy of the socket would keep it in the set. */
    if (j->watched)
        epoll_ctl(j->worker->epfd, EPOLL_CTL_DEL, j->fd, NULL);
    j->watched = false;
}

/* True if the job has still to move some of these bytes. */
static bool has_yet_to_move(const struct tcp_job *j, const void *addr, size_t len)
{
    for (int i = 0; i < j->npieces; i++) {
        uintptr_t piece = (uintptr_t)j->piece[i].iov_base, at = (uintptr_t)addr;

        if (piece - at < len || at - piece < j->piece[i].iov_len)
            return true;
    }
    return false;
}

void tcp_job_revoke(struct tcp_job *j, const void *addr, size_t len)
{
    if (!tcp_job_busy(j))
        return;
    pthread_mutex_lock(&j->lock);
    if (tcp_job_busy(j) && has_yet_to_move(j, addr, len)) {
        j->revoked = true;
        take_back(j);
    }
    pthread_mutex_unlock(&j->lock);
}
