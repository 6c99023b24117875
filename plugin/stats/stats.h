/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of this process, in a file that survives it (stat_layout.h) and that pvn-topo stat
 * reads from outside: which comms there are, how far they have come, who is waited for.
 *
 * The numbers of a comm are those of the last look at it (comm_watch.c: every 100 ms while NCCL calls),
 * and a thread of the plugin keeps messages, bytes and open requests up to date beside it (pvn_stat_live), so
 * that nothing is added to a message; a process that hangs elsewhere leaves its last numbers and the time of the
 * look. The file is backed by memory before it is written, so that a full file system
 * costs rows and not the process. (Its user truncating it while the process lives would.)
 *
 * Without a file, by choice or because it could not be made, everything here does nothing.
 *
 * In a forked child nothing here touches the parent's file.
 */
#ifndef PVN_STATS_STATS_H
#define PVN_STATS_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "stats/stat_layout.h"

/* Makes the file, and removes what other processes have left too long (stats_dir.h). abi: version
 * of NCCL's interface. Failing is one INFO line. Any thread, not at the same time as another call
 * of these three. */
void pvn_stats_open(int abi);
/* Lets the file go when its last row is closed; removes it unless a comm has failed. */
void pvn_stats_close(void);
/* In a child that starts afresh, while it has one thread. */
void pvn_stats_after_fork(void);

/* The file's path, "" while there is none. For the banner and for tests. */
const char *pvn_stats_path(void);

/*
 * A row. NULL, which every function takes and ignores, when there is no file or no room. Used by
 * one thread at a time; texts are cut where they do not fit.
 */
struct pvn_stat;

struct pvn_stat *pvn_stat_new(enum pvn_stat_phase phase, bool sender, const char *device);
/* host "" and pid 0: not known yet. */
void pvn_stat_peer(struct pvn_stat *s, const char *host, uint32_t pid, const char *addr);
/* A change of state: its name, and the text that goes with the phase (stat_layout.h). With the same name within SETUP the text
 * alone has changed. */
void pvn_stat_state(struct pvn_stat *s, enum pvn_stat_phase phase, const char *name,
                    const char *text);
void pvn_stat_lanes(struct pvn_stat *s, const char *lanes);
/* Written with the next of the others. */
void pvn_stat_seal(struct pvn_stat *s, enum pvn_stat_sealed sealed);
/* The row's live counters, which are 0 at first, for one thread to write, which need not be the row's; NULL:
 * there is no row. Until pvn_stat_end. */
struct pvn_live *pvn_stat_live(struct pvn_stat *s);
/* All numbers, and the text while something waits. */
void pvn_stat_put(struct pvn_stat *s, const struct pvn_stat_counts *n, const char *text);
/* While there are no numbers: still being driven. At most ten times a second it does anything. */
void pvn_stat_look(struct pvn_stat *s, uint64_t now_ns);
/* The comm has come to its end; its row stays until another needs it. A listener's does not. */
void pvn_stat_end(struct pvn_stat *s);
/* It was no comm of its own; its row is given back. */
void pvn_stat_discard(struct pvn_stat *s);

#endif
