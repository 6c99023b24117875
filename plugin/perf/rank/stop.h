/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Interruption by Ctrl-C, a launcher's SIGTERM, or a reader of standard output that has gone. The
 * flag is set, every rank stops at the next safe point, closes its comms and finalizes the plugin,
 * and the results so far are written. One flag per process.
 */
#ifndef PVN_PERF_STOP_H
#define PVN_PERF_STOP_H

#include <signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The signal that requested the end; 0 if none did. Read only. */
extern volatile sig_atomic_t pvn_stop_flag;

/* Makes SIGINT, SIGTERM and SIGHUP set the flag (if they were not ignored already), and makes a
 * write to a closed pipe return an error instead of raising SIGPIPE. Ranks inherit this. Called
 * once, by the thread that starts the ranks. */
void pvn_stop_catch(void);

/* Requests a stop as the signal would, for the cause of a SIGPIPE. The first request counts. */
void pvn_stop_request(int sig);

/* 1 if a signal has come twice: its sender does not wait for an orderly end. */
int pvn_stop_insists(void);

#ifdef __cplusplus
}
#endif

#endif
