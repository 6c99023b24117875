/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

sigset_t pvn_signals_block(void)
{
    sigset_t most, before;

    sigfillset(&most);
    sigdelset(&most, SIGBUS);
    sigdelset(&most, SIGFPE);
    sigdelset(&most, SIGILL);
    sigdelset(&most, SIGSEGV);
    sigdelset(&most, SIGSYS);
    sigdelset(&most, SIGTRAP);
    pthread_sigmask(SIG_BLOCK, &most, &before);
    return before;
}

int pvn_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name)
{
    sigset_t before = pvn_signals_block();
    int rc = pthread_create(thread, NULL, run, arg);

    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_setname_np(*thread, name);
    return -rc;
}

void pvn_thread_not_started(const char *name, int rc, const char *lost)
{
    char why[128];

    pvn_warn(
        "thread %s cannot be started: %s; %s; the limit is that of `ulimit -u`, or pids.max of "
        "the cgroup",
        name, pvn_strerror(rc, why, sizeof(why)), lost);
}

void pvn_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void pvn_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / PVN_NS_PER_S);
    until.tv_nsec = (long)(ns % PVN_NS_PER_S);
    pthread_cond_timedwait(cond, mutex, &until);
}

void *pvn_library_hold(void)
{
    static char here;
    Dl_info info;

    if (!dladdr(&here, &info) || !info.dli_fname)
        return NULL;
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

void pvn_library_release(void *held)
{
    if (held)
        dlclose(held);
}
