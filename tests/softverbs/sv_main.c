/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The fabric's state, its lock, clock and random numbers, event queues, and counters */
#include "sv_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct sv_fabric sv = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .acked = PTHREAD_COND_INITIALIZER,
    .released = PTHREAD_COND_INITIALIZER,
};

/* The lock is not fair. A program that polls without pause would keep the service thread, for
 * which it waits, from getting the lock. So the service thread goes first. */
void sv_lock(void)
{
    for (int i = 0; i < 1000 && __atomic_load_n(&sv.service_waits, __ATOMIC_RELAXED); i++)
        sched_yield();
    pthread_mutex_lock(&sv.lock);
    if (!sv.ready) {
        sv.ready = true;
        int rc = sv_load_config(NULL);
        if (rc) {
            fprintf(stderr, "softverbs: configuration refused: %s\n", strerror(rc));
            abort();
        }
    }
    sv_obey_children();
}

void sv_lock_first(void)
{
    __atomic_store_n(&sv.service_waits, true, __ATOMIC_RELAXED);
    pthread_mutex_lock(&sv.lock);
    __atomic_store_n(&sv.service_waits, false, __ATOMIC_RELAXED);
    sv_obey_children();
}

void sv_unlock(void)
{
    pthread_mutex_unlock(&sv.lock);
}

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sv_unlock_ring(bool doorbell)
{
    long ns = doorbell ? sv.p.doorbell_ns : 0;
    sv_unlock();
    if (!ns)
        return;
    for (uint64_t until = clock_ns() + (uint64_t)ns; clock_ns() < until;) {
    }
}

uint64_t sv_now(void)
{
    return sv_hooks.now ? sv_hooks.now() : clock_ns();
}

/* xorshift64*: the same sequence for the same seed everywhere. */
uint32_t sv_rand(void)
{
    sv.rng ^= sv.rng >> 12;
    sv.rng ^= sv.rng << 25;
    sv.rng ^= sv.rng >> 27;
    return (uint32_t)((sv.rng * 2685821657736338717u) >> 32);
}

bool sv_queue_open(struct sv_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
    q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    return q->fd >= 0;
}

void sv_queue_close(struct sv_queue *q)
{
    while (q->head) {
        struct sv_event *e = q->head;
        q->head = e->next;
        free(e);
    }
    close(q->fd);
}

void sv_queue_put(struct sv_queue *q, const struct sv_event *ev)
{
    struct sv_event *e = malloc(sizeof *e);
    if (!e)
        abort();
    *e = *ev;
    e->next = NULL;
    *q->tail = e;
    q->tail = &e->next;
    uint64_t one = 1;
    if (write(q->fd, &one, sizeof one) != sizeof one)
        abort();
}

/* Drops the unfetched events of an object that goes away, as the kernel does. */
void sv_queue_purge(struct sv_queue *q, bool (*match)(const struct sv_event *, void *), void *arg)
{
    struct sv_event **at = &q->head;
    while (*at) {
        struct sv_event *e = *at;
        if (!match(e, arg)) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        free(e);
        /* The count cannot be below the number of queued events, so this does not block unless a
         * reader took it already; that reader then finds the queue shorter and waits again. */
        int fl = fcntl(q->fd, F_GETFL);
        uint64_t v;
        fcntl(q->fd, F_SETFL, fl | O_NONBLOCK);
        if (read(q->fd, &v, sizeof v) < 0 && errno != EAGAIN)
            abort();
        fcntl(q->fd, F_SETFL, fl);
    }
    q->tail = at;
}

/* Adds to one counter of the context's and the process's totals. */
void sv_count(struct sv_ctx *ctx, size_t field, uint64_t n, bool doorbell)
{
    struct sv_stats *s[2] = {&ctx->stats, &sv.total};
    for (int i = 0; i < 2; i++) {
        *(uint64_t *)((char *)s[i] + field) += n;
        s[i]->doorbells += doorbell;
    }
}

/* Appends the process's totals as a line to the file that PVN_SOFTVERBS_TOTALS names, when the
 * library is unloaded or the process exits. It is for measurements of programs that call nothing
 * of softverbs. */
__attribute__((destructor)) static void write_totals(void)
{
    const char *path = getenv("PVN_SOFTVERBS_TOTALS");
    if (!sv.ready || !path || !*path)
        return;
    FILE *f = fopen(path, "ae");
    if (!f) {
        fprintf(stderr, "softverbs: PVN_SOFTVERBS_TOTALS: %s: %s\n", path, strerror(errno));
        return;
    }
    const struct sv_stats *t = &sv.total;
    fprintf(f, "doorbells=%llu poll_empty=%llu send_wr=%llu recv_wr=%llu cqe=%llu relaxed=%llu\n",
            (unsigned long long)t->doorbells, (unsigned long long)t->poll_empty,
            (unsigned long long)t->send_wr, (unsigned long long)t->recv_wr,
            (unsigned long long)t->cqe, (unsigned long long)sv.relaxed_held);
    fclose(f);
}
