/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The distance of the first two processors of this process: the time in which a cache line gets
 * from one to the other, half a round trip. A hypervisor that moves virtual processors changes it
 * between some 15 and 150 ns, and with it every figure of two processes that talk to each other. So
 * tests/bench/tcp.sh measures it before and after each measurement.
 *
 * usage: core_distance     prints nanoseconds: the median of short bursts
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { BURSTS = 41, TRIPS = 200, WAIT_MAX = 100000000 };

static _Alignas(128) atomic_int turn; /* even: the first processor's */
static atomic_bool end;

_Noreturn static void fail(const char *what, int code)
{
    fprintf(stderr, "core_distance: %s: %s\n", what, strerror(code));
    exit(3);
}

static void stay_on(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    int rc = pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    if (rc)
        fail("pthread_setaffinity_np", rc);
}

/* The n-th processor that this process may use, or -1. */
static int nth_cpu(int n)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        fail("sched_getaffinity", errno);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && n-- == 0)
            return i;
    return -1;
}

static void *answer(void *cpu)
{
    stay_on(*(int *)cpu);
    while (!atomic_load_explicit(&end, memory_order_relaxed)) {
        int t = atomic_load_explicit(&turn, memory_order_acquire);
        if (t & 1)
            atomic_store_explicit(&turn, t + 1, memory_order_release);
    }
    return NULL;
}

static double burst(void)
{
    uint64_t start = pvn_now_ns();
    for (int i = 0; i < TRIPS; i++) {
        int t = atomic_load_explicit(&turn, memory_order_relaxed);
        atomic_store_explicit(&turn, t + 1, memory_order_release);
        for (long w = 0; atomic_load_explicit(&turn, memory_order_acquire) == t + 1; w++)
            if (w == WAIT_MAX)
                fail("the other processor", ETIMEDOUT);
    }
    return (double)(pvn_now_ns() - start) / (2 * TRIPS);
}

static int compare(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

int main(void)
{
    int first = nth_cpu(0), second = nth_cpu(1);
    double ns[BURSTS];
    pthread_t thread;

    if (second < 0) {
        puts("0"); /* one processor is near itself */
        return 0;
    }
    int rc = pthread_create(&thread, NULL, answer, &second);
    if (rc)
        fail("pthread_create", rc);
    stay_on(first);
    for (int i = 0; i < BURSTS; i++)
        ns[i] = burst();
    atomic_store(&end, true);
    pthread_join(thread, NULL);
    qsort(ns, BURSTS, sizeof(ns[0]), compare);
    printf("%.0f\n", ns[BURSTS / 2]);
    return 0;
}
