/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Interruption: Ctrl-C, a launcher's SIGTERM, a reader of standard output that has gone. Nothing
 * ends at once: the flag is set, every rank stops where it may, closes its comms and finalizes the
 * plugin, and what was measured is written. One flag per process.
 */
#ifndef PVN_PERF_STOP_H
#define PVN_PERF_STOP_H

#include <signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The signal that requested the end, 0: none did. Read only. */
extern volatile sig_atomic_t pvn_stop_flag;

/* From now on SIGINT, SIGTERM and SIGHUP set the flag (if they were not ignored already) and
 * writing to a closed pipe gives an error instead of SIGPIPE. Inherited by ranks. Once, by the
 * thread that starts the ranks. */
void pvn_stop_catch(void);

/* Stops as the signal does, for SIGPIPE's cause. The first one counts. */
void pvn_stop_request(int sig);

/* 1 if a signal has come twice: its sender does not want to wait for an orderly end. */
int pvn_stop_insists(void);

#ifdef __cplusplus
}
#endif

#endif
