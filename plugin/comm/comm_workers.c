/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The two threads that serve all comms, whether or not anybody calls them. pvn-failback makes the
 * connections with which links return to better lanes (link_back.h). pvn-answer answers peers that
 * connect again (link_back.h), keeps control connections (link_keep.h), shows how far comms have
 * come (comm_live.c), and closes connections that come in at the sockets that prove that this
 * process exists (presence.h).
 *
 * Both run while there is a comm with failover, and pvn-answer also while a comm has a row of the
 * statistics. They end only after the attempts that closed comms left have ended. pvn-failback may
 * free a connection of a closed comm, so it holds the plugin.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/clock.h"
#include "base/thread.h"
#include "comm/plugin.h"
#include "connect/link_back.h"
#include "connect/presence.h"

/* How long a finalize or the end of the process waits for the threads. Attempts of closed comms
 * linger for a second from then on. */
#define FINISH_NS (PVN_NS_PER_S + PVN_NS_PER_S / 2)

/* pvn-answer's pause while something may come in, and otherwise. */
#define SOON_NS  (50 * PVN_NS_PER_MS)
#define WATCH_NS (200 * PVN_NS_PER_MS)

struct worker {
    const char *name;
    const char *lost; /* what the user goes without if it cannot be started */
    void *(*run)(void *);
    pthread_t thread;
    bool running;
    bool ended; /* it has ended, and has to be joined */
};

static void *run_trying(void *arg);
static void *run_answering(void *arg);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Says that a thread has ended. It uses the monotonic clock, so it has no static initializer. */
static pthread_cond_t changed;
static bool has_changed; /* `changed` is initialized */
static int users;        /* comms with failover */
enum { ANSWERS, TRIES, WORKERS };
static struct worker workers[WORKERS] = {
    [ANSWERS] = {.name = "pvn-answer",
                 .run = run_answering,
                 .lost = "a peer that connects again is not answered while its comm is not called, "
                         "comms do not return to better lanes, and their statistics stand still"},
    [TRIES] = {
        .name = "pvn-failback", .run = run_trying, .lost = "comms do not return to better lanes"}};
static void *library; /* keeps the code of the threads mapped */

/* True if there is nothing to do for this thread. It does not count as running from then on, and
 * later work starts another one. */
static bool ends(struct worker *w, bool (*needed)(void))
{
    bool over;

    pthread_mutex_lock(&lock);
    over = !needed();
    if (over) {
        w->running = false;
        w->ended = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return over;
}

/* The caller of these holds the lock. */
static bool is_trying_needed(void)
{
    return users > 0 || pvn_link_back_any();
}

static bool is_answering_needed(void)
{
    return is_trying_needed() || comm_live_any() || pvn_presence_any();
}

static void *run_trying(void *arg)
{
    unsigned seen = 0;

    for (;;) {
        uint64_t pause = pvn_link_back_try();

        if (ends(arg, is_trying_needed))
            break;
        pvn_link_back_wait(&seen, pause);
    }
    pvn_plugin_release();
    return NULL;
}

static void *run_answering(void *arg)
{
    unsigned seen = 0;
    bool soon;

    while (!ends(arg, is_answering_needed)) {
        comm_live_step();
        pvn_presence_answer();
        soon = pvn_link_keep_step();
        soon |= pvn_link_back_answer();
        pvn_link_back_wait(&seen, soon ? SOON_NS : WATCH_NS);
    }
    return NULL;
}

/* The caller holds the lock. */
static void join_ended(void)
{
    for (int i = 0; i < WORKERS; i++) {
        if (workers[i].ended)
            pthread_join(workers[i].thread, NULL);
        workers[i].ended = false;
    }
}

static bool is_running(void)
{
    return workers[ANSWERS].running || workers[TRIES].running;
}

/* True if a thread runs, but nothing needs one any more. The caller holds the lock. */
static bool is_idle(bool lingering)
{
    return is_running() && users == 0 && !comm_live_any() && !pvn_presence_any() &&
           pvn_link_back_all_stopped(lingering);
}

void comm_workers_finish(bool lingering, bool unmapping)
{
    uint64_t until = pvn_now_ns() + FINISH_NS;
    void *unused = NULL;

    pthread_mutex_lock(&lock);
    if (lingering && is_idle(lingering))
        pvn_link_back_end_soon();
    /* A closed comm does not wake the threads while others need them. */
    if (is_idle(lingering) || (users == 0 && workers[TRIES].running))
        pvn_link_back_wake();
    while (is_idle(lingering) && pvn_now_ns() < until)
        pvn_cond_wait(&changed, &lock, FINISH_NS / 8);
    join_ended();
    if (!is_running() && !unmapping) {
        unused = library;
        library = NULL;
    }
    pthread_mutex_unlock(&lock);
    /* The caller of the plugin still has the library open, so this unmaps nothing. */
    pvn_library_release(unused);
}

static void init_changed(void)
{
    pvn_cond_init(&changed);
    has_changed = true;
}

/* The caller holds the lock. */
static int start(int i)
{
    struct worker *w = &workers[i];
    struct pvn_err err = PVN_ERR_INIT;
    int rc = w->running || i != TRIES ? 0 : pvn_plugin_hold(&err);

    if (rc || w->running)
        return rc;
    rc = pvn_thread_start(&w->thread, w->run, w, w->name);
    w->running = rc == 0;
    if (rc && i == TRIES)
        pvn_plugin_release();
    if (rc)
        pvn_thread_not_started(w->name, rc, w->lost);
    return rc;
}

/* Starts the first n of the two threads. The caller holds the lock. A running thread may be
 * anywhere in the library, so the library is held, and is not unmapped. */
static int start_threads(int n)
{
    int rc = 0;

    if (!has_changed)
        init_changed();
    if (!library)
        library = pvn_library_hold();
    join_ended();
    for (int i = 0; i < n && rc == 0; i++)
        rc = start(i);
    return rc;
}

void comm_workers_show(void)
{
    pthread_mutex_lock(&lock);
    start_threads(ANSWERS + 1);
    pthread_mutex_unlock(&lock);
}

bool comm_workers_join(void)
{
    bool served;

    pthread_mutex_lock(&lock);
    served = start_threads(WORKERS) == 0;
    users += served;
    pthread_mutex_unlock(&lock);
    return served;
}

void comm_workers_leave(void)
{
    pthread_mutex_lock(&lock);
    users--;
    pthread_mutex_unlock(&lock);
}

void comm_workers_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    init_changed();
    users = 0;
    for (int i = 0; i < WORKERS; i++)
        workers[i].running = workers[i].ended = false;
    library = NULL; /* the library stays open, as in the parent */
    pvn_link_back_after_fork();
    pvn_link_keep_after_fork();
    pvn_presence_after_fork();
}
