/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of this process, in a file that survives it (stat_layout.h) and that pvn-topo stat
 * reads from outside: which comms there are, how far they have come, who is waited for.
 *
 * The numbers of a comm are those of the last look at it (comm_watch.c: every 100 ms while NCCL
 * calls). Beside that a thread of the plugin keeps messages, bytes and open requests up to date
 * (pvn_stat_live), so that messages pay nothing. A process that hangs elsewhere leaves its last
 * numbers and the time of the look. The file is backed by memory before it is written, so that a
 * full file system costs rows and not the process. (If its user truncates the file, the process
 * ends.)
 *
 * Without a file, by choice or because it could not be made, all functions do nothing.
 *
 * In a forked child no function touches the parent's file.
 */
#ifndef PVN_STATS_STATS_H
#define PVN_STATS_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "stats/stat_layout.h"

/* Makes the file, and removes old files of other processes (stats_dir.h). abi: version of NCCL's
 * interface. A failure is one INFO line. Any thread, but not at the same time as another call of
 * these three. */
void pvn_stats_open(int abi);
/* Writes the addresses of the process's devices, as in struct pvn_stat_head. Others of the same host
 * name and pid, on a clone of this machine or in a container, have other addresses. */
void pvn_stats_addresses(const char *list);
/* Gives the file up when its last row is closed; removes it unless a comm has failed. */
void pvn_stats_close(void);
/* In a forked child that initializes the plugin for itself, while it has one thread. */
void pvn_stats_after_fork(void);

/* The file's path, "" while there is none. For the banner and for tests. */
const char *pvn_stats_path(void);

/*
 * A row. NULL if there is no file or no room: all functions take NULL and ignore it. Used by one
 * thread at a time. Texts that do not fit are cut.
 */
struct pvn_stat;

struct pvn_stat *pvn_stat_new(enum pvn_stat_phase phase, bool sender, const char *device);
/* host "" and pid 0: not known yet. */
void pvn_stat_peer(struct pvn_stat *s, const char *host, uint32_t pid, const char *addr);
/* Publishes a change of state: its name, and the text that goes with the phase (stat_layout.h). In
 * SETUP, the same name means that only the text has changed. */
void pvn_stat_state(struct pvn_stat *s, enum pvn_stat_phase phase, const char *name,
                    const char *text);
void pvn_stat_lanes(struct pvn_stat *s, const char *lanes);
/* How much of the comm the job's key seals. */
void pvn_stat_seal(struct pvn_stat *s, enum pvn_stat_sealed sealed);
/* Returns the row's live counters, which are 0 at first; NULL: there is no row. One thread may
 * write them, which need not be the row's. Valid until pvn_stat_end. */
struct pvn_live *pvn_stat_live(struct pvn_stat *s);
/* Publishes all numbers, and the text while something waits. */
void pvn_stat_put(struct pvn_stat *s, const struct pvn_stat_counts *n, const char *text);
/* Shows that a comm without numbers is still being driven. Does something at most ten times a
 * second. */
void pvn_stat_look(struct pvn_stat *s, uint64_t now_ns);
/* The comm has ended. Its row stays until another comm needs it; a listener's row does not stay. */
void pvn_stat_end(struct pvn_stat *s);
/* The row was not for a comm of its own, and is given back. */
void pvn_stat_discard(struct pvn_stat *s);

#endif
