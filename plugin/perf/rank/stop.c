/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "perf/rank/stop.h"

#include <stddef.h>
#include <time.h>

/* A terminal and the parent may both deliver the same Ctrl-C. Only a later signal counts as a
 * second one. */
#define INSIST_S 0.3

volatile sig_atomic_t pvn_stop_flag;
static volatile sig_atomic_t insists;
static struct timespec first;

static void note(int sig)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!pvn_stop_flag) {
        first = now;
        pvn_stop_flag = sig;
    } else if ((double)(now.tv_sec - first.tv_sec) + (double)(now.tv_nsec - first.tv_nsec) * 1e-9 >
               INSIST_S) {
        insists = 1;
    }
}

void pvn_stop_catch(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = note, .sa_flags = SA_RESTART}, old;

    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        /* Under nohup, or in the background of a script, a signal stays ignored. */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &sa, NULL);
    }
    sa.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &sa, NULL);
}

void pvn_stop_request(int sig)
{
    if (!pvn_stop_flag)
        pvn_stop_flag = sig;
}

int pvn_stop_insists(void)
{
    return insists;
}
