/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of the statistics files: which one it is, who lives, what may be removed. For the
 * plugin and for pvn-topo stat.
 *
 * A file is named PID-START-N.stat (N distinguishes several copies of the plugin in one process),
 * belongs to the process's user and is nobody else's to read.
 */
#ifndef PVN_STATS_STATS_DIR_H
#define PVN_STATS_STATS_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "stats/stat_layout.h"

#define PVN_STATS_DEFAULT_DIR "/dev/shm/nccl-net-pvrdma-" /* the user's number follows */
#define PVN_STATS_SUFFIX      ".stat"

enum {
    PVN_STATS_KEEP = 64,             /* files of dead processes that a start leaves behind */
    PVN_STATS_KEEP_S = 24 * 60 * 60, /* and how long after their last change */
    PVN_STATS_ENTRIES = 4096         /* directory entries that are looked at */
};

/* The directory that NCCL_PVRDMA_STATS_DIR means: param itself, or the user's own for "". */
void pvn_stats_dir_name(const char *param, uid_t uid, char *out, size_t cap);

/*
 * Opens the directory for the files of this process's user: made if it is not there (its parent
 * is not), no link, owned by the user or by root, not writable by others unless it is sticky. A
 * descriptor, or a negative errno with *err.
 */
int pvn_stats_dir_open(const char *path, struct pvn_err *err);

/* Fills in who this process is. 0 or a negative errno: /proc is not there. */
int pvn_stats_ident_self(struct pvn_stat_ident *id);
/* The inode of this process's network namespace; 0: not known. */
uint32_t pvn_stats_net_ns(void);

enum pvn_stats_life {
    PVN_STATS_ALIVE,
    PVN_STATS_DEAD,
    PVN_STATS_ELSEWHERE /* a process of another machine */
};

/* Looks if the process that made the file open at fd exists. *state, unless NULL: its state letter
 * as in /proc/PID/stat, '?' where that cannot be known. */
enum pvn_stats_life pvn_stats_life_of(const struct pvn_stat_ident *id, int fd, char *state);

/*
 * Removes files of dead processes from a directory: all of them, or those that are of no use any
 * more: nothing was open and nothing had failed, or they have not changed for PVN_STATS_KEEP_S, or
 * there are PVN_STATS_KEEP younger ones. Only files of user uid. Returns how many.
 */
int pvn_stats_sweep(int dirfd, uid_t uid, bool all);

#endif
