/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of the statistics files: its name, which processes live, which files may be
 * removed. For the plugin and for pvn-topo stat.
 *
 * A file is named PID-START-N.stat (N distinguishes copies of the plugin in one process). It
 * belongs to the process's user, and nobody else may read it.
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
    PVN_STATS_KEEP = 64,             /* files of dead processes that a start keeps */
    PVN_STATS_KEEP_S = 24 * 60 * 60, /* and for how long after their last change */
    PVN_STATS_ENTRIES = 4096         /* directory entries that are looked at, at most */
};

/* Writes the name of the directory that NCCL_PVRDMA_STATS_DIR selects: param itself, or the user's
 * own for "". */
void pvn_stats_dir_name(const char *param, uid_t uid, char *out, size_t cap);

/*
 * Opens the directory for the files of this process's user, and makes it if it is not there (but
 * not its parent). It must not be a link, must belong to the user or to root, and must not be
 * writable by others unless it is sticky. Returns a descriptor, or a negative errno with *err, which
 * calls the directory "it".
 */
int pvn_stats_dir_open(const char *path, struct pvn_err *err);

/* Fills in the identity of this process. 0, or a negative errno if there is no /proc. */
int pvn_stats_ident_self(struct pvn_stat_ident *id);
/* The inode of this process's network namespace; 0: not known. */
uint32_t pvn_stats_net_ns(void);

enum pvn_stats_life {
    PVN_STATS_ALIVE,
    PVN_STATS_DEAD,
    PVN_STATS_ELSEWHERE /* a process of another machine */
};

/* Looks if the process that made the file, open at fd, exists. *state, unless NULL: its state
 * letter as in /proc/PID/stat, '?' if it is not known. */
enum pvn_stats_life pvn_stats_life_of(const struct pvn_stat_ident *id, int fd, char *state);

/*
 * Removes files of dead processes from a directory, and returns how many; only files of user uid.
 * `all`: all of them. Otherwise only files that are of no use any more: nothing was open and
 * nothing had failed, or they have not changed for PVN_STATS_KEEP_S, or there are PVN_STATS_KEEP
 * younger ones.
 */
int pvn_stats_sweep(int dirfd, uid_t uid, bool all);

#endif
